/* migrate/open.c - the source, and what is written of it: formats and paths, before anything is decided. */
#include "migrate/migration.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "anatomy/part.h"
#include "format/table.h"
#include "io/sink_left.h"
#include "migrate/layout.h"
#include "migrate/mesh.h"
#include "migrate/out.h"
#include "migrate/shards.h"
#include "migrate/torch.h"

static ckpt_status check_place(const ckpt__migration *m, const char *src, ckpt_error *err)
{
    struct stat a, b;
    memset(&a, 0, sizeof a);
    bool there = stat(m->dst, &b) == 0;
    if (stat(src, &a) == 0 && there && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "source and destination are the same: a checkpoint is never rewritten in place");
    size_t n = strlen(m->dst);
    while (n > 1 && m->dst[n - 1] == '/')
        n--;
    errno = 0;
    char *inside = realpath(src, NULL), *parent = NULL, *folder = strndup(m->dst, n);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    bool within = false;
    if (slash)
        slash[slash == folder] = 0;
    if (inside && folder && S_ISDIR(a.st_mode) && (parent = realpath(slash ? folder : ".", NULL))) {
        size_t k = strlen(inside);
        within = strncmp(parent, inside, k) == 0 && (parent[k] == 0 || parent[k] == '/');
    }
    char *target = there ? realpath(m->dst, NULL) : NULL;
    bool short_of_memory = errno == ENOMEM;
    size_t k = target ? strlen(target) : 0;
    bool around = ckpt__is_folder(m) && inside && target && strncmp(inside, target, k) == 0 && inside[k] == '/';
    free(inside);
    free(parent);
    free(folder);
    free(target);
    if (short_of_memory)
        return ckpt__migration_no_memory(err);
    if (around)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "the source %s lies in it, and would be replaced with it", src);
    return within ? ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                               "it would lie inside the source %s, which is never touched", src)
                  : CKPT_OK;
}

static ckpt_status check_paths(ckpt__migration *m, ckpt_error *err)
{
    struct stat b;
    bool there = stat(m->dst, &b) == 0;
    ckpt_status status = check_place(m, m->src, err);
    for (size_t i = 0; status == CKPT_OK && i < m->options.also_count; i++)
        status = check_place(m, m->options.also[i], err);
    if (status < 0)
        return status;
    bool folder = ckpt__is_folder(m);
    if (there && !folder && S_ISDIR(b.st_mode))
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "it is a directory: one file is written, give it a name");
    if (there && folder && !S_ISDIR(b.st_mode))
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "it is a file: a directory is written, give it a name");
    if (there && folder && !m->options.dry_run)
        ckpt__sink_tidy(m->dst);
    if (there && !m->options.force && !m->options.dry_run)
        return ckpt__fail(err, CKPT_E_EXISTS, m->dst, "it exists; --force replaces it");
    return there && m->options.force ? ckpt__check_replaced(m, err) : CKPT_OK;
}

/* A folder that the root names was read as a distributed checkpoint: it is no file of the checkpoint that could be written again. */
static ckpt_status see_member(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const ckpt__migration *m = ctx;
    char shown[200];
    (void)root;
    if (!folder || !m->from->root || !ckpt__find_entry(m->from->root, name))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, m->src,
                      "its folder '%s' is a distributed checkpoint of PyTorch (FSDP), which --to same does not write; "
                      "say --to ckpt, torch, safetensors or hf",
                      ckpt__escape(shown, sizeof shown, name, strlen(name)));
}

/* --to same: what the source is. */
static ckpt_status find_own(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__format *format = ckpt__format_of(m->from);
    if (m->options.weights_only)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "--weights-only leaves no such checkpoint: say --to torch, safetensors or hf");
    if (!m->reader->source->directory) {
        m->to = format->rewritten_as ? format->rewritten_as->name : format->name;
        return CKPT_OK;
    }
    m->same = ckpt__in_files(m->from);
    if (m->same && ckpt__index_is_directory(m->from) && m->reader->source->dirfd >= 0) {
        m->to = ckpt__format_torch.name;
        return ckpt__source_each(m->reader->source, "", see_member, m, err);
    }
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, m->src,
        "--to same writes one file, or a directory of accelerate, the Hugging Face Trainer, PEFT or transformers; "
        "this is of format %s: say --to ckpt, torch, safetensors or hf",
        format->name);
}

/* What is written, but for the last two. */
#define WRITTEN                                                                                                          \
    "ckpt, safetensors, torch, hf, dcp, dcp-fsdp1, dcp-hf, torchtitan, universal, hf-trainer and accelerate (each also " \
    "with -fsdp or -deepspeed behind it), torch-dist, llmc"

static ckpt__as as_of(const char *to)
{
    static const struct {
        const char *to;
        ckpt__as as;
    } rows[] = {{"dcp", CKPT__AS_DCP},
                {"dcp-fsdp1", CKPT__AS_DCP},
                {"torchtitan", CKPT__AS_DCP},
                {"dcp-hf", CKPT__AS_DCP_HF},
                {"universal", CKPT__AS_UNIVERSAL},
                {"hf-trainer", CKPT__AS_HF_TRAINER},
                {"accelerate", CKPT__AS_ACCELERATE},
                {"hf-trainer-fsdp", CKPT__AS_HF_TRAINER_FSDP},
                {"accelerate-fsdp", CKPT__AS_ACCELERATE_FSDP},
                {"hf-trainer-deepspeed", CKPT__AS_HF_TRAINER_DEEPSPEED},
                {"accelerate-deepspeed", CKPT__AS_ACCELERATE_DEEPSPEED},
                {"torch-dist", CKPT__AS_TORCH_DIST},
                {"ckpt-run", CKPT__AS_RUN},
                {"llmc", CKPT__AS_LLMC}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(to, rows[i].to) == 0)
            return rows[i].as;
    return CKPT__AS_IS;
}

static ckpt_status find_format(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    m->to = m->options.to ? m->options.to : "ckpt";
    if (strcmp(m->to, "same") == 0 && (status = find_own(m, err)) < 0)
        return status;
    m->as = as_of(m->to);
    m->wholes = strcmp(m->to, "dcp-fsdp1") == 0;
    m->torchtitan = strcmp(m->to, "torchtitan") == 0;
    m->hf = m->as == CKPT__AS_DCP_HF || strcmp(m->to, "hf") == 0;
    m->format = ckpt__format_find(m->hf                             ? "safetensors"
                                  : m->as == CKPT__AS_RUN           ? "ckpt"
                                  : m->as && m->as != CKPT__AS_LLMC ? "torch"
                                                                    : m->to);
    m->torch = m->format && m->format->torch_loads;
    if (m->as && !ckpt__is_dcp(m) && !ckpt__is_torch_dist(m) && m->as != CKPT__AS_LLMC && m->options.weights_only)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "--weights-only leaves no such checkpoint: say --to torch, safetensors or hf");
    if ((m->options.expert_parallel || m->options.layers_apart) && !ckpt__is_torch_dist(m))
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "--expert-parallel and --layers-apart are for --to torch-dist");
    if (m->format && (m->format->write || m->as == CKPT__AS_LLMC))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, m->dst,
                      m->format ? "format '%s' is read, but this version does not write it; it writes " WRITTEN
                                  " and ckpt-run"
                                : "there is no format '%s'; this version writes " WRITTEN ", ckpt-run and same",
                      m->to);
}

static ckpt_status open_source(ckpt__migration *m, ckpt_error *err)
{
    ckpt_reader_options reading = {.struct_size = sizeof reading,
                                   .format = m->options.from,
                                   .also = m->options.also,
                                   .also_count = m->options.also_count,
                                   .salvage = m->options.salvage};
    ckpt_status status = ckpt__migrate_open_ranks(m, err);
    if (status == CKPT_OK && !m->reader)
        status = ckpt_reader_open(m->src, &reading, &m->reader, err);
    if (status < 0)
        return status;
    m->from = m->reader->index;
    if (!m->options.to || strcmp(m->options.to, "same") != 0) /* which leaves a shard what it is */
        status = ckpt__part_refuse(m->from, m->src, err);
    if (status < 0)
        return status;
    status = ckpt__migrate_join(m, err);
    if (status < 0)
        return status;
    ckpt__hash_free(m->reader->by_name); /* nobody looks for a name in it */
    m->reader->by_name = NULL;
    /* What reading has left out of the values, no target can have. */
    bool added = ckpt__ledger_reach(&m->ledger, m->from->tensor_count) && ckpt__migration_begin_edits(m);
    m->ledger.read = m->from->tensor_count;
    for (size_t i = 0; added && i < ckpt_report_count(m->from->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(m->from->findings, i);
        if (strcmp(f->code, "calls-dropped") == 0)
            added = ckpt__report_add(m->report, f->severity, f->code, f->tensor, f->fix, "%s", f->message) &&
                    ckpt__report_detail(m->report, f->file, NULL, NULL, 0);
    }
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* --to same is written in the format of the source, which is open first then. */
ckpt_status ckpt__migrate_open(ckpt__migration *m, ckpt_error *err)
{
    const bool same = m->options.to && strcmp(m->options.to, "same") == 0;
    ckpt_status status = ckpt__migrate_fixes(m, err);
    if (status == CKPT_OK && same)
        status = open_source(m, err);
    if (status == CKPT_OK)
        status = find_format(m, err);
    if (status == CKPT_OK)
        status = ckpt__mesh_ask(m, err);
    if (status == CKPT_OK)
        status = check_paths(m, err);
    if (status == CKPT_OK && m->options.map_location)
        status = ckpt_map_parse(m->options.map_location, &m->map, err);
    if (status == CKPT_OK && !same)
        status = open_source(m, err);
    if (status < 0)
        return status;
    m->kind = m->options.optimizer != CKPT_OPTIMIZER_DEFAULT ? m->options.optimizer
              : m->map                                       ? ckpt__map_optimizer(m->map)
                                                             : CKPT_OPTIMIZER_DEFAULT;
    status = ckpt__migrate_torch_open(m, err);
    m->tree = ckpt__has_tree(m->from) || m->same;
    return status;
}
