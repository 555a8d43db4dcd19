/* migrate/chain_targets.h - what the chains are made of: the targets, a checkpoint that was written as one, and a migration from one to
 * the next. */
#ifndef CHAIN_TARGETS_H
#define CHAIN_TARGETS_H
#include <dirent.h>
#include <ftw.h>
#include "chain_picture.h"

enum {
    FREE = 1 << CHAIN_FREE,
    MEGATRON = 1 << CHAIN_MEGATRON,
    LLMC = 1 << CHAIN_LLMC,
    LAID = 1 << CHAIN_LAID,
    ANY = 15
};

typedef struct target {
    const char *to;
    unsigned models; /* bits: of these models it can be written */
    bool ranks;      /* --world says how many */
    bool weights;    /* nothing but the model */
    bool numbered;   /* its optimizer has no names */
    bool masters;    /* where there are masters they are the weights */
    bool floats;     /* what is trained is float32 */
    bool resumes;    /* asks for an optimizer */
    unsigned tried, done, refused;
} target;

static target targets[] = {
    {.to = "ckpt", .models = ANY},
    {.to = "torch", .models = ANY, .numbered = true},
    {.to = "safetensors", .models = ANY},
    {.to = "hf", .models = ANY, .weights = true},
    {.to = "dcp", .models = ANY, .ranks = true, .masters = true},
    {.to = "dcp-fsdp1", .models = ANY, .ranks = true, .masters = true},
    {.to = "torchtitan", .models = ANY, .ranks = true, .masters = true},
    {.to = "dcp-hf", .models = ANY, .ranks = true, .weights = true},
    {.to = "ckpt-run", .models = ANY, .ranks = true},
    {.to = "universal", .models = ANY, .floats = true, .resumes = true},
    {.to = "hf-trainer", .models = ANY, .numbered = true, .masters = true, .resumes = true},
    {.to = "accelerate", .models = ANY, .numbered = true, .masters = true, .resumes = true},
    {.to = "hf-trainer-fsdp", .models = ANY, .ranks = true, .masters = true, .resumes = true},
    {.to = "accelerate-fsdp", .models = ANY, .ranks = true, .masters = true, .resumes = true},
    {.to = "hf-trainer-deepspeed", .models = ANY, .floats = true, .resumes = true},
    {.to = "accelerate-deepspeed", .models = ANY, .floats = true, .resumes = true},
    {.to = "torch-dist", .models = MEGATRON, .ranks = true},
    {.to = "llmc", .models = LLMC, .ranks = true},
};
enum { TARGETS = sizeof targets / sizeof *targets };

/* What became of a tensor: nothing, itself, its float32 master, its values as float32, its bytes as uint8; something else; or nobody can
 * tell, as its file numbers it. */
typedef enum held { HELD_NOT, HELD, HELD_MASTER, HELD_FLOATS, HELD_BYTES, HELD_OTHER, HELD_HIDDEN } held;

/* A checkpoint of a chain, and what it holds of the training. */
typedef struct stop {
    char path[40];
    target *as;       /* NULL: a source */
    char read[9][80]; /* ckpt-run: the directories of its ranks; else the path */
    size_t reads;
    bool numbered;
    ckpt_report *report; /* of the migration that wrote it; NULL: of a source */
    const struct stop *from;
    held things[CHAIN_TENSORS];
    char settings[CHAIN_VALUES][CHAIN_NAME]; /* its name there; "": it is not there */
    bool groups;                             /* they have their parameters, in the order of the training */
} stop;

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void remove_all(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void end_stop(stop *s)
{
    if (s->path[0])
        remove_all(s->path);
    ckpt_report_free(s->report);
    *s = (stop){.path = ""};
}

static inline void source_stop(stop *to, const training *t, const char *path, bool numbered)
{
    *to = (stop){.reads = 1, .numbered = numbered, .groups = t->group_count > 0};
    for (size_t i = 0; i < t->count; i++)
        to->things[i] = HELD;
    for (size_t i = 0; i < t->setting_count; i++)
        snprintf(to->settings[i], CHAIN_NAME, "%s", t->settings[i].name);
    snprintf(to->path, sizeof to->path, "%s", path);
    snprintf(to->read[0], sizeof to->read[0], "%s", path);
}

static inline void find_reads(stop *s, uint32_t world)
{
    s->reads = 1;
    snprintf(s->read[0], sizeof s->read[0], "%s", s->path);
    if (strcmp(s->as->to, "ckpt-run") != 0)
        return;
    s->reads = world ? world : 1;
    for (size_t r = 0; r < s->reads; r++) {
        char ranks[60];
        if (s->reads > 1)
            snprintf(ranks, sizeof ranks, "%s/rank-%05u", s->path, (unsigned)r);
        else
            snprintf(ranks, sizeof ranks, "%s", s->path);
        DIR *d = opendir(ranks);
        ck_assert_ptr_nonnull(d);
        for (struct dirent *e; (e = readdir(d)) != NULL;)
            if (strncmp(e->d_name, "step-", 5) == 0)
                snprintf(s->read[r], sizeof s->read[r], "%s/%.16s", ranks, e->d_name);
        closedir(d);
    }
}

/* What a migration is asked beside its target. */
typedef struct asked {
    uint32_t world;
    uint64_t shard_size;
    const char *layout, *side;
} asked;

static inline asked draw_asked(const target *w)
{
    return (asked){.world = w->ranks ? 1 + (uint32_t)draw(9) : 0,
                   .shard_size = strcmp(w->to, "hf") == 0 && chance(60) ? 1 + draw(20000) : 0};
}

/* First without --lossy; where something would be lost, with it. */
static inline ckpt_status migrate_stop(const training *t, const stop *from, target *as, const asked *a,
                                       const char *path, stop *to, ckpt_error *err)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    const char *names[CHAIN_PARAMS * CHAIN_GROUPS], *also[9];
    const bool one = from->reads == 1 || chance(50);
    *to = (stop){.as = as, .numbered = as->numbered, .from = from};
    ck_assert_ptr_nonnull(to->report = ckpt_report_new());
    snprintf(to->path, sizeof to->path, "%s", path);
    o.to = as->to;
    o.no_sync = true;
    o.verify = chance(60);
    o.threads = 1 + (uint32_t)draw(3);
    o.target_world = a->world;
    o.max_shard_size = a->shard_size;
    o.layout = a->layout;
    o.layout_side = a->side;
    o.lossy = true;
    o.rank_state = strcmp(as->to, "llmc") == 0 ? CKPT_RANK_STATE_DROP : CKPT_RANK_STATE_KEEP;
    if (from->numbered && from->groups) {
        o.param_names = names;
        o.param_name_count = optimizer_order(t, names);
    }
    for (size_t r = 1; !one && r < from->reads; r++)
        also[r - 1] = from->read[r];
    o.also = also;
    o.also_count = one ? 0 : from->reads - 1;
    as->tried++;
    ckpt_status status = ckpt_migrate(one ? from->read[draw(from->reads)] : from->read[0], path, &o, to->report, err);
    if (status < 0) {
        as->refused++;
        end_stop(to);
    } else {
        as->done++;
        find_reads(to, a->world);
    }
    return status;
}
#endif
