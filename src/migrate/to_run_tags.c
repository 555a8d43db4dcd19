/* migrate/to_run_tags.c - a run as a target: the devices that a map gives each rank's tensors, and the run read as one checkpoint. */
#include "migrate/to_run.h"

#include <stdio.h>
#include <stdlib.h>
#include "migrate/place.h"
#include "migrate/shards.h"

/* ---- tags */

static ckpt_status keep_tags(ckpt__migration *m, const ckpt__placement *places, size_t rank, ckpt_error *err)
{
    char name[CKPT_DEVICE_NAME_MAX];
    for (size_t i = 0; i < places->count; i++) {
        const size_t tensor = m->canon->entries[places->entries[i]].tensor;
        const ckpt_str was = m->from->tensors[tensor].info.device;
        ckpt_str *tag = &m->rank_tags[rank * m->from->tensor_count + tensor];
        if (places->targets[i].device.type == CKPT_DEVICE_NONE ||
            (was.data && ckpt__tag_parse(was).type == CKPT_DEVICE_META))
            continue;
        ckpt__target_name(&places->targets[i], name);
        *tag = ckpt__arena_str(m->index->arena, name, strlen(name));
        if (!tag->data)
            return ckpt__migration_no_memory(err);
    }
    return CKPT_OK;
}

/* While canonical names are known. The report has had what rank 0 gets. */
ckpt_status ckpt__run_tags(ckpt__migration *m, ckpt_error *err)
{
    const size_t ranks = (size_t)m->options.ranks.world;
    ckpt_status status = CKPT_OK;
    if (!m->map && m->kind == CKPT_OPTIMIZER_DEFAULT)
        return CKPT_OK;
    if (!(m->rank_tags = calloc(m->from->tensor_count + 1, ranks * sizeof *m->rank_tags)))
        return ckpt__migration_no_memory(err);
    for (size_t r = 0; status == CKPT_OK && r < ranks; r++) {
        ckpt__placement places = {0};
        const ckpt_ranks own = {(int64_t)r, (int64_t)r, (int64_t)ranks};
        ckpt_report *said = ckpt_report_new();
        status = said ? ckpt__placement_build(m->from, m->canon, &places, err) : ckpt__migration_no_memory(err);
        if (status == CKPT_OK)
            status = ckpt__placement_apply(&places, m->map, m->options.optimizer, &own, said, err);
        if (status == CKPT_OK)
            status = keep_tags(m, &places, r, err);
        ckpt__placement_free(&places);
        ckpt_report_free(said);
    }
    return status;
}

/* ---- read back */

static ckpt_status path_of(const ckpt__migration *m, const char *path, size_t rank, char **out, ckpt_error *err)
{
    ckpt__buf text = {0};
    if (m->run_ranks > 1)
        ckpt__buf_printf(&text, "%s/rank-%05zu/step-%08lld", path, rank, (long long)m->run_step);
    else
        ckpt__buf_printf(&text, "%s/step-%08lld", path, (long long)m->run_step);
    *out = text.failed ? NULL : strdup(text.data);
    ckpt__buf_free(&text);
    return *out ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* Names are numbers of another list of tensors once parts are joined. */
static ckpt_status join_parts(const ckpt__migration *m, const char *path, ckpt_reader *r, ckpt_error *err)
{
    bool *matched = calloc(m->options.shard_count, sizeof *matched);
    ckpt_status status = matched ? ckpt__shards_join(r->index, path, m->run_ranks, &m->options, matched, err)
                                 : ckpt__migration_no_memory(err);
    free(matched);
    ckpt__hash_free(r->by_name);
    r->by_name = status == CKPT_OK ? ckpt__hash_new(r->index->tensor_count) : NULL;
    for (size_t i = 0; status == CKPT_OK && i < r->index->tensor_count; i++) {
        const ckpt_str name = r->index->tensors[i].info.name;
        if (!r->by_name || ckpt__hash_put(r->by_name, name.data, name.size, i, NULL) < 0)
            status = ckpt__migration_no_memory(err);
    }
    return status;
}

ckpt_status ckpt__run_open(const ckpt__migration *m, const char *path, ckpt_reader **out, ckpt_error *err)
{
    char **paths = calloc(m->run_ranks + 1, sizeof(char *));
    ckpt_status status = paths ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t r = 0; status == CKPT_OK && r < m->run_ranks; r++)
        status = path_of(m, path, r, &paths[r], err);
    const ckpt_reader_options o = {.struct_size = sizeof o,
                                   .also = paths ? (const char *const *)(paths + 1) : NULL,
                                   .also_count = m->run_ranks - 1};
    if (status == CKPT_OK)
        status = ckpt_reader_open(paths[0], &o, out, err);
    if (status == CKPT_OK && m->options.shard_count && m->run_ranks > 1)
        status = join_parts(m, path, *out, err);
    for (size_t r = 0; paths && r < m->run_ranks; r++)
        free(paths[r]);
    free(paths);
    return status;
}
