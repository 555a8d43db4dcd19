/* format/folder/foreign.c - layouts of several ranks that are known by their names and not read: what each is, and what
 * reads it or makes one file of it. Names are those of torch/distributed/checkpoint/filesystem.py and hf_storage.py,
 * of nanotron/constants.py and tensorflow/python/saved_model. */
#include "format/folder/folder.h"

#include <stdio.h>

#define DCP_HOW "torch.distributed.checkpoint.load(state_dict, checkpoint_id=DIR)"
#define DCP_MERGE                                                                                                      \
    "; one file of it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR OUT.pt, which is read here"
/* Names: '#' is a number, '*' anything, '/' at the end a folder. */
enum sign { METADATA, RANK_METADATA, DISTCP, DCP_HF, NANOTRON_METADATA, NANOTRON_MODEL, SAVED_MODEL, SIGNS };

static const char *const names[SIGNS] = {
    [METADATA] = ".metadata",
    [RANK_METADATA] = "__#.metadata",
    [DISTCP] = "*.distcp",
    [DCP_HF] = "shard-#-model-#-of-#.safetensors",
    [NANOTRON_METADATA] = "checkpoint_metadata.json",
    [NANOTRON_MODEL] = "model_config.json",
    [SAVED_MODEL] = "saved_model.pb",
};

/* The first row of which all signs are there. */
/* clang-format off */
static const struct row {
    unsigned all[2];              /* one sign more than its number; 0: none */
    const char *format, *what, *how;
} rows[] = {
#define IS(a) { (a) + 1, 0 }
#define BOTH(a, b) { (a) + 1, (b) + 1 }
    { IS(RANK_METADATA), "dcp", "a PyTorch distributed checkpoint (DCP), with a list for each rank",
      DCP_HOW " (dcp_to_torch reads the list of rank 0 alone)" },
    { IS(METADATA), "dcp", "a PyTorch distributed checkpoint (DCP)", DCP_HOW DCP_MERGE },
    { IS(DISTCP), "dcp", "a PyTorch distributed checkpoint (DCP)", DCP_HOW },
    { IS(DCP_HF), "dcp-hf", "a PyTorch distributed checkpoint in safetensors (DCP, HuggingFaceStorageWriter)",
      "torch.distributed.checkpoint.load(state_dict, storage_reader=torch.distributed.checkpoint.HuggingFaceStorageReader(DIR)); "
      "HuggingFaceStorageWriter(..., enable_consolidation=True) writes files that are read here" },
    { BOTH(NANOTRON_METADATA, NANOTRON_MODEL), "nanotron", "a checkpoint of nanotron, with a file for each parameter and rank",
      "nanotron with checkpoints.resume_checkpoint_path: DIR in its configuration; each file below model/ opens by itself" },
    { IS(SAVED_MODEL), "tensorflow", "a TensorFlow SavedModel", "tf.saved_model.load(DIR)" },
};
/* clang-format on */
_Static_assert(SIGNS <= 64, "a bit each");

static size_t digits_at(const char *p)
{
    size_t n = 0;
    while (p[n] >= '0' && p[n] <= '9')
        n++;
    return n;
}

/* A '*' in the middle takes as little as it can, and more when the rest then does not fit. */
static bool fits(const char *pattern, const char *name, bool folder)
{
    const char *star = NULL, *from = NULL;
    size_t n = strlen(pattern);
    bool of_folder = pattern[n - 1] == '/';
    const char *end = pattern + n - of_folder;
    if (of_folder != folder)
        return false;
    for (const char *p = pattern;;) {
        size_t number = p < end && *p == '#' ? digits_at(name) : 0;
        if (p == end && !*name)
            return true;
        if (p < end && *p == '*') {
            star = ++p;
            from = name;
        } else if (number) {
            p++;
            name += number;
        } else if (p < end && *p == *name && *p != '#') {
            p++;
            name++;
        } else if (star && *from) {
            p = star;
            name = ++from;
        } else {
            return false;
        }
    }
}

void ckpt__foreign_see(ckpt__folder *f, const char *name, bool folder)
{
    for (size_t i = 0; i < SIGNS; i++)
        if (fits(names[i], name, folder))
            f->signs |= UINT64_C(1) << i;
}

static bool has_all(const ckpt__folder *f, const unsigned all[2])
{
    for (size_t i = 0; i < 2; i++)
        if (all[i] && !(f->signs >> (all[i] - 1) & 1))
            return false;
    return true;
}

/* "scheduler.pt, rng_state_0.pth, ...": what is read alone all the same. */
static void put_members(const ckpt__folder *f, ckpt__buf *b)
{
    enum { SHOWN = 4 };
    char name[120];
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) {
        const ckpt__member *m = &f->members[i];
        if (!m->exact || m->part == CKPT__PART_NONE || m->part >= CKPT__PART_CONFIG || m->part == CKPT__PART_INDEX ||
            m->part == CKPT__PART_TRAINER_STATE)
            continue;
        if (++count <= SHOWN)
            ckpt__buf_printf(b, "%s%s", count > 1 ? ", " : "",
                             ckpt__escape(name, sizeof name, m->name, strlen(m->name)));
    }
    if (count > SHOWN)
        ckpt__buf_printf(b, " and %zu more", count - SHOWN);
}

void ckpt__foreign_decide(ckpt__folder *f)
{
    const struct row *row = NULL;
    for (size_t i = 0; !row && i < sizeof rows / sizeof *rows; i++)
        row = has_all(f, rows[i].all) ? &rows[i] : NULL;
    if (!row)
        return;
    ckpt__buf others = {0};
    bool shards = strcmp(row->format, "dcp-hf") == 0;
    if (!shards)
        put_members(f, &others);
    f->layout = CKPT__LAYOUT_REFUSED;
    f->foreign = row->format;
    char sign[80];
    snprintf(sign, sizeof sign, "%s", names[row->all[0] - 1]);
    for (char *p = sign; *p; p++)
        *p = *p == '#' ? 'N' : *p;
    int n = snprintf(f->why, sizeof f->why,
                     "this is %s, which this version does not read (it has %s). Programs that read it: %s", row->what,
                     sign, row->how);
    if (others.size && !others.failed && n > 0 && (size_t)n < sizeof f->why)
        snprintf(f->why + n, sizeof f->why - (size_t)n, ". Files of it that are read one by one: %s", others.data);
    ckpt__buf_free(&others);
}
