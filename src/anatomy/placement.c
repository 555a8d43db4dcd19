/* anatomy/placement.c - canonical entries as subjects of the map, with the saved flags of their groups. */
#include "anatomy/placement.h"

#include <stdlib.h>

void ckpt__placement_free(ckpt__placement *p)
{
    free(p->entries);
    free(p->subjects);
    free(p->dtypes);
    free(p->kinds);
    free(p->groups);
    free(p->targets);
    memset(p, 0, sizeof *p);
}

/* Parameter -> group. A parameter that is in two groups belongs to the first. */
static ckpt__hash *groups_by_param(const ckpt__canon *canon)
{
    size_t n = 0;
    for (size_t g = 0; g < canon->group_count; g++)
        n += canon->groups[g].param_count;
    ckpt__hash *hash = ckpt__hash_new(n);
    for (size_t g = 0; hash && g < canon->group_count; g++)
        for (size_t i = 0; i < canon->groups[g].param_count; i++) {
            ckpt_str name = canon->groups[g].params[i];
            if (ckpt__hash_put(hash, name.data, name.size, g, NULL) < 0) {
                ckpt__hash_free(hash);
                return NULL;
            }
        }
    return hash;
}

ckpt_status ckpt__placement_build(const ckpt__index *index, const ckpt__canon *canon, ckpt__placement *out,
                                  ckpt_error *err)
{
    size_t n = 0;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < canon->count; i++)
        n += canon->entries[i].is_tensor;
    ckpt__hash *groups = groups_by_param(canon);
    out->entries = calloc(n + 1, sizeof *out->entries);
    out->subjects = calloc(n + 1, sizeof *out->subjects);
    out->dtypes = calloc(n + 1, sizeof *out->dtypes);
    out->kinds = calloc(n + 1, sizeof *out->kinds);
    out->groups = calloc(n + 1, sizeof *out->groups);
    out->targets = calloc(n + 1, sizeof *out->targets);
    if (!groups || !out->entries || !out->subjects || !out->dtypes || !out->kinds || !out->groups || !out->targets) {
        ckpt__hash_free(groups);
        ckpt__placement_free(out);
        return ckpt__fail_memory(err, "the placement of tensors", n);
    }
    for (size_t i = 0; i < canon->count; i++) {
        const ckpt__canon_entry *e = &canon->entries[i];
        if (!e->is_tensor)
            continue;
        size_t k = out->count++, g = SIZE_MAX;
        const ckpt_tensor_info *t = &index->tensors[e->tensor].info;
        ckpt_str param = e->param.data ? e->param : e->name;
        out->entries[k] = i;
        out->subjects[k] = (ckpt__subject){.name = e->name, .param = e->param, .role = e->role, .tag = t->device};
        out->dtypes[k] = t->dtype;
        if (!ckpt__hash_get(groups, param.data, param.size, &g))
            g = SIZE_MAX;
        out->groups[k] = g;
        out->kinds[k] = g == SIZE_MAX ? CKPT_OPTIMIZER_DEFAULT : ckpt__kind_of_flags(canon->groups[g].flags);
        out->targets[k].rule = SIZE_MAX;
    }
    ckpt__hash_free(groups);
    return CKPT_OK;
}

ckpt_status ckpt__placement_apply(ckpt__placement *p, const ckpt_map *map, ckpt_optimizer_kind kind,
                                  const ckpt_ranks *ranks, ckpt_report *report, ckpt_error *err)
{
    return ckpt__map_place(map, kind, p->kinds, p->subjects, p->dtypes, p->count, ranks, p->targets, report, err);
}
