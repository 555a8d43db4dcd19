/* core/producer.c - the table of producers. */
#include "core/producer.h"

/* By what the root holds: the first row whose keys are all there. */
static const struct {
    ckpt__producer producer;
    const char *path[2];          /* keys from the root */
} by_keys[] = {
    { { "Lightning", CKPT_LOADER_LIGHTNING }, { "pytorch-lightning_version", NULL } },
    { { "VAR", CKPT_LOADER_TORCH }, { "trainer", "var_wo_ddp" } },
    { { "DeepSpeed", CKPT_LOADER_TORCH }, { "ds_version", NULL } },
    { { "DeepSpeed", CKPT_LOADER_TORCH }, { "ds_config", NULL } },
    { { "Megatron", CKPT_LOADER_TORCH }, { "checkpoint_version", NULL } },
};

/* Directories whose files are one checkpoint: the layout is the producer's. */
static const struct {
    const char *format;
    ckpt__producer producer;
} by_format[] = {
    { "ckpt", { "ckpt", CKPT_LOADER_CKPT } },
    { "hf", { "Hugging Face", CKPT_LOADER_TORCH } },
    { "hf-trainer", { "HF Trainer", CKPT_LOADER_HF_TRAINER } },
    { "accelerate", { "accelerate", CKPT_LOADER_ACCELERATE } },
    { "peft", { "PEFT", CKPT_LOADER_TORCH } },
};

static const ckpt__producer libtorch = { "libtorch", CKPT_LOADER_TORCH_CPP }, script = { "TorchScript", CKPT_LOADER_TORCH_CPP },
                            torch = { "torch", CKPT_LOADER_TORCH }, hugging = { "Hugging Face", CKPT_LOADER_TORCH },
                            unknown = { NULL, CKPT_LOADER_CKPT };

const ckpt__producer *ckpt__producer_of(const ckpt__index *index)
{
    for (size_t i = 0; i < sizeof by_format / sizeof *by_format; i++)
        if (strcmp(index->format, by_format[i].format) == 0)
            return &by_format[i].producer;
    const ckpt_value *root = index->root;
    for (size_t i = 0; i < sizeof by_keys / sizeof *by_keys; i++) {
        const ckpt_value *v = ckpt_value_get(root, by_keys[i].path[0]);
        if (v && by_keys[i].path[1])
            v = ckpt_value_get(v, by_keys[i].path[1]);
        if (v)
            return &by_keys[i].producer;
    }
    const ckpt_value *first = root;       /* or the first file's of a directory */
    if (root && !root->class_name.data && strcmp(index->kind, "directory") == 0 && root->entry_count > 0)
        first = root->entries[0].value;
    if (first && first->class_name.data && strncmp(first->class_name.data, "__torch__.", 10) == 0)
        return ckpt__str_is(first->class_name, "__torch__.Module") ? &libtorch : &script;
    if (strncmp(index->format, "torch", 5) == 0)
        return &torch;
    const ckpt_value *metadata = ckpt_value_get(root, "__metadata__");
    const ckpt_value *format = ckpt_value_get(metadata ? metadata : root, "format");
    if (format && format->kind == CKPT_V_STR && ckpt__str_is(format->text, "pt"))
        return &hugging;
    return &unknown;
}
