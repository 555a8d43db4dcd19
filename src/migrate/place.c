/* migrate/place.c - the target's index: the source's tensors and storages under their numbers, with canonical
 * names, roles, and the device tags and dtypes that rules, policy and casts give them. */
#include "migrate/place.h"
#include "migrate/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"
#include "format/torch/write.h"

typedef ckpt__placing placement;

static ckpt_status copy_index(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__index *from = m->from;
    m->index->format = from->format;
    m->index->kind = "file";
    m->index->step = from->step;
    if (!ckpt__index_reserve(m->index, from->storage_count, from->tensor_count))
        return ckpt__migration_no_memory(err);
    for (size_t i = 0; i < from->storage_count; i++) {
        ckpt__storage *s = ckpt__index_add_storage(m->index);
        if (!s)
            return ckpt__migration_no_memory(err);
        *s = from->storages[i];
    }
    for (size_t i = 0; i < from->tensor_count; i++) {
        ckpt__tensor *t = ckpt__index_add_tensor(m->index);
        if (!t)
            return ckpt__migration_no_memory(err);
        *t = from->tensors[i];
        t->has_crc = false; /* computed anew on the way */
    }
    return CKPT_OK;
}

static ckpt_status know_views(placement *p)
{
    const ckpt__index *x = p->m->from;
    p->named = calloc(x->tensor_count + 1, sizeof *p->named);
    p->holder = calloc(x->storage_count + 1, sizeof *p->holder);
    p->wanted = calloc(x->tensor_count + 1, sizeof *p->wanted);
    if (!p->named || !p->holder || !p->wanted || !ckpt__views_make(x, &p->views))
        return ckpt__migration_no_memory(p->err);
    for (size_t i = 0; i < x->storage_count; i++)
        p->holder[i] = SIZE_MAX;
    return CKPT_OK;
}

/* A tensor that is reached under two names is listed twice, and the tree has the number of the first: the second name
 * belongs to a listing of the same view that has none yet. */
static size_t listing_of(const placement *p, size_t tensor)
{
    const ckpt__index *x = p->m->from;
    if (!p->named[tensor] || !x->tensors[tensor].whole)
        return tensor;
    size_t count;
    const size_t *views = ckpt__views_of(&p->views, x->tensors[tensor].storage, &count);
    for (size_t i = 0; i < count; i++)
        if (!p->named[views[i]] && ckpt__same_view(&x->tensors[views[i]], &x->tensors[tensor]))
            return views[i];
    return tensor;
}

/* In a directory the tree's names begin with the file's; a listing has that beside the name. */
static ckpt_str listed_name(const ckpt__migration *m, ckpt_str own)
{
    const ckpt_value *root = m->from->root;
    for (size_t i = 0; m->same && root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        ckpt_str file = root->entries[i].key->text;
        if (root->entries[i].key->kind == CKPT_V_STR && own.size > file.size + 1 && own.data[file.size] == '.' &&
            memcmp(own.data, file.data, file.size) == 0)
            return (ckpt_str){own.data + file.size + 1, own.size - file.size - 1};
    }
    return own;
}

static ckpt_status set_entry(placement *p, size_t item)
{
    ckpt__migration *m = p->m;
    const ckpt__canon_entry *e = &m->canon->entries[m->places.entries[item]];
    const ckpt__target *target = &m->places.targets[item];
    size_t tensor = listing_of(p, e->tensor), g = m->places.groups[item];
    ckpt_tensor_info *t = &m->index->tensors[tensor].info;
    if (m->became_torch && ckpt__is_flat(m->from, tensor))
        return CKPT_OK; /* a part of what is no record: place_parts_alone */
    p->named[tensor] = true;
    if (ckpt__stays_behind(m, tensor))
        return CKPT_OK;
    m->ledger.rows[tensor].canonical = e->name;
    t->name = m->torch && !m->options.weights_only && m->tree ? listed_name(m, e->own) : e->name;
    t->path = (ckpt_path){NULL, 0};
    if (e->role != CKPT_ROLE_NONE)
        t->role = e->role;
    t->param = e->param;
    t->state_key = e->state_key;
    t->group = e->group.data ? e->group : g != SIZE_MAX ? m->canon->groups[g].name : e->group;
    ckpt_status status = ckpt__place_tag(p, tensor, target);
    if (status == CKPT_OK && target->cast != CKPT_DTYPE_NONE)
        p->wanted[tensor] = target->cast;
    return status;
}

/* A native file keeps them in the structure of the torch file (torch.h), and their parts as tensors: not by their names. */
static ckpt_status say_in_structure(placement *p, size_t count, size_t first)
{
    const ckpt_tensor_info *t = &p->m->from->tensors[first].info;
    char shown[200], layout[100];
    ckpt_str is = t->extra->layout.data ? t->extra->layout : ckpt__s("unknown");
    return ckpt__migration_note(
        p->m, CKPT_SEVERITY_WARNING, "in-structure", count == 1 ? t->name : (ckpt_str){NULL, 0}, p->err,
        "%zu tensor%s not dense (%s%s, %s): --to torch gives %s back, and a state in C finds nothing but parts of %s",
        count, count == 1 ? " is" : "s are", count == 1 ? "" : "the first ",
        ckpt__escape(shown, sizeof shown, t->name.data, t->name.size),
        ckpt__escape(layout, sizeof layout, is.data, is.size), count == 1 ? "it" : "them", count == 1 ? "it" : "them");
}

/* What is not dense has parts, which only torch's own format puts together again. */
static ckpt_status choose(placement *p)
{
    ckpt__migration *m = p->m;
    const ckpt__index *x = m->index;
    ckpt_status status = CKPT_OK;
    size_t kept = 0, first = 0;
    if (!(m->chosen = calloc(x->tensor_count + 1, sizeof *m->chosen)))
        return ckpt__migration_no_memory(p->err);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++) {
        const ckpt__tensor *t = &x->tensors[i];
        bool meta = ckpt__has_no_bytes(t) && !t->info.extra->layout.data && t->info.extra->part_count == 0;
        char why[300];
        if (ckpt__stays_behind(m, i))
            continue;
        if (t->whole || meta || m->torch) {
            m->chosen[m->chosen_count++] = i;
            continue;
        }
        const bool keeps = ckpt__migrate_torch_keeps(m);
        m->ledger.rows[i].fate = keeps ? CKPT__FATE_IN_STRUCTURE : CKPT__FATE_LOST;
        if (keeps) {
            first = kept++ ? first : i;
            continue;
        }
        snprintf(why, sizeof why, "a tensor of layout %.100s is left out: only dense ones are written",
                 t->info.extra->layout.data ? t->info.extra->layout.data : "unknown");
        if (!ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", why) ||
            !ckpt__report_tensor(m->lost, t->info.name))
            status = ckpt__migration_no_memory(p->err);
    }
    return status == CKPT_OK && kept ? say_in_structure(p, kept, first) : status;
}

/* Is there anything that --optimizer could speak of? */
static bool has_optimizer(const ckpt__migration *m)
{
    bool state = m->canon->group_count > 0;
    for (size_t i = 0; i < m->from->tensor_count && !state; i++) {
        ckpt_role role = m->from->tensors[i].info.role;
        state = role == CKPT_ROLE_STEP || role == CKPT_ROLE_EXP_AVG || role == CKPT_ROLE_EXP_AVG_SQ;
    }
    return state && !m->options.weights_only && !m->hf;
}

static ckpt_status place(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = copy_index(m, p->err);
    if (status == CKPT_OK)
        status = ckpt__own_joined(p);
    if (status == CKPT_OK)
        status = know_views(p);
    if (status == CKPT_OK)
        status = ckpt__placement_build(m->from, m->canon, &m->places, p->err);
    if (status == CKPT_OK &&
        (m->map || m->place || m->kind != CKPT_OPTIMIZER_DEFAULT)) /* asked for nothing: every tag stays */
        status = ckpt__placement_apply(&m->places, m->map, m->options.optimizer, &m->options.ranks, m->report, p->err);
    if (status == CKPT_OK && m->options.optimizer != CKPT_OPTIMIZER_DEFAULT && !has_optimizer(m))
        status = ckpt__migration_note(
            m, CKPT_SEVERITY_WARNING, "unused-rule", (ckpt_str){NULL, 0}, p->err,
            "the optimizer is to be %s, and none is %s", ckpt_optimizer_kind_name(m->options.optimizer),
            m->options.weights_only || m->hf ? "written with the weights alone" : "in the checkpoint");
    for (size_t i = 0; status == CKPT_OK && i < m->places.count; i++)
        status = set_entry(p, i);
    if (status == CKPT_OK)
        status = ckpt__place_parts_alone(p);
    ckpt__placement_free(&m->places);
    if (status == CKPT_OK)
        status = ckpt__place_storages(p);
    if (status == CKPT_OK)
        status = ckpt__own_cast(p);
    if (status == CKPT_OK)
        status = ckpt__own_cut(p);
    if (status == CKPT_OK)
        status = ckpt__own_strided(p);
    if (status == CKPT_OK)
        status = ckpt__own_resolved(p);
    if (status == CKPT_OK)
        status = ckpt__migrate_float4(m, p->err);
    if (status == CKPT_OK)
        status = choose(p);
    return status == CKPT_OK ? ckpt__index_finish(m->index, p->err) : status;
}

ckpt_status ckpt__migrate_place(ckpt__migration *m, ckpt_error *err)
{
    placement p = {.m = m, .err = err};
    m->index = ckpt__index_new(0);
    ckpt_status status = m->index ? place(&p) : ckpt__migration_no_memory(err);
    free(p.named);
    ckpt__views_free(&p.views);
    free(p.holder);
    free(p.wanted);
    return status;
}
