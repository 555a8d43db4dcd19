/* doctor/loaders.c - how each loader brings a checkpoint back, as data. Sources: torch 2.13 (serialization.py,
 * optim/optimizer.py), Lightning 2.6.6 (strategies/strategy.py, connectors/checkpoint_connector.py), accelerate 1.15.0
 * (checkpointing.py, utils/other.py), transformers 5.23.0 (trainer.py, trainer_pt_utils.py). */
#include "doctor/facts.h"

static const ckpt__loader_row rows[] = {
    {.loader = CKPT_LOADER_CKPT, .name = "ckpt", .takes_map = true, .weights_only = -1},
    /* the HF Trainer leaves its arguments beside a model that it saves: from_pretrained does not read them */
    {.loader = CKPT_LOADER_TORCH, .name = "torch", .python = true, .takes_map = true, .skips = "training_args.bin"},
    {.loader = CKPT_LOADER_TORCH_CPP, .name = "torch-cpp", .takes_map = true, .weights_only = -1},
    /* maps to the cpu whatever is asked, load_state_dict, then all but step to the root device */
    {.loader = CKPT_LOADER_LIGHTNING,
     .name = "lightning",
     .python = true,
     .alone = CKPT__TO_CPU,
     .several = CKPT__TO_CPU,
     .takes = CKPT__IN_DCP | CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL},
    /* its load() allows numpy's arrays and asks for weights_only=True itself, but for objects that were
     * registered; errors of RNG states are swallowed */
    {.loader = CKPT_LOADER_ACCELERATE,
     .name = "accelerate",
     .python = true,
     .alone = CKPT__TO_CPU,
     .several = CKPT__TO_RANK,
     .weights_only = 1,
     .numpy_in = "",
     .trusts = "custom_checkpoint_",
     .fixed = "pytorch_model,scaler",
     .swallows = "random_states_",
     .skips = "sampler",
     .takes = CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL | CKPT__IN_FSDP | CKPT__IN_FLAT},
    {.loader = CKPT_LOADER_HF_TRAINER,
     .name = "hf-trainer",
     .python = true,
     .alone = CKPT__TO_CPU,
     .several = CKPT__TO_RANK,
     .weights_only = 1,
     .oldest = 206,
     .numpy_in = "rng_state",
     .skips = "training_args.bin",
     .takes = CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL},
    /* the programs of sharded checkpoints: they go by names, and by their own places for tensors */
    {.loader = CKPT_LOADER_DCP, .name = "dcp", .weights_only = -1, .takes = CKPT__IN_DCP},
    {.loader = CKPT_LOADER_DCP_HF, .name = "dcp-hf", .weights_only = -1, .takes = CKPT__IN_DCP_HF},
    {.loader = CKPT_LOADER_DEEPSPEED,
     .name = "deepspeed",
     .weights_only = -1,
     .takes = CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL},
    {.loader = CKPT_LOADER_UNIVERSAL,
     .name = "universal",
     .weights_only = -1,
     .takes = CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL},
    {.loader = CKPT_LOADER_MEGATRON, .name = "megatron", .weights_only = -1, .takes = CKPT__IN_MEGATRON},
    {.loader = CKPT_LOADER_TORCH_DIST, .name = "torch-dist", .weights_only = -1, .takes = CKPT__IN_TORCH_DIST},
    {.loader = CKPT_LOADER_FSDP, .name = "fsdp", .weights_only = -1, .takes = CKPT__IN_FSDP | CKPT__IN_FLAT},
    {.loader = CKPT_LOADER_LLMC, .name = "llmc", .weights_only = -1, .takes = CKPT__IN_LLMC},
    /* of weights */
    {.loader = CKPT_LOADER_SAFETENSORS, .name = "safetensors", .weights_only = -1},
    {.loader = CKPT_LOADER_HF, .name = "hf", .weights_only = -1},
};

const ckpt__loader_row *ckpt__loader_row_of(ckpt_loader loader)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].loader == loader)
            return &rows[i];
    return &rows[0];
}

bool ckpt__loader_file(const char *prefix, ckpt_str file)
{
    if (!prefix)
        return false;
    if (!file.data)
        return *prefix == 0;
    for (;;) {
        size_t n = strcspn(prefix, ",");
        if (file.size >= n && memcmp(file.data, prefix, n) == 0)
            return true;
        if (!prefix[n])
            return false;
        prefix += n + 1;
    }
}

const char *ckpt_loader_name(ckpt_loader loader)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].loader == loader)
            return rows[i].name;
    return "own";
}

bool ckpt_loader_from_name(const char *name, ckpt_loader *loader)
{
    for (size_t i = 0; name && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(name, rows[i].name) == 0) {
            *loader = rows[i].loader;
            return true;
        }
    return false;
}
