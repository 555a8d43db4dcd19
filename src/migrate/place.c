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
    m->storages = ckpt__pieces_from(from); /* what is split becomes whole, in a storage of its own */
    if (!ckpt__index_reserve(m->index, m->storages, from->tensor_count))
        return ckpt__migration_no_memory(err);
    for (size_t i = 0; i < m->storages; i++) {
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
        t->has_crc = false;    /* computed anew on the way */
        ckpt__leave_pieces(t); /* those are the source's */
    }
    return CKPT_OK;
}

static ckpt_status know_views(placement *p)
{
    const ckpt__index *x = p->m->from;
    p->holder = calloc(p->m->storages + 1, sizeof *p->holder);
    if (!p->holder || !ckpt__views_make(x, false, &p->views))
        return ckpt__migration_no_memory(p->err);
    for (size_t i = 0; i < p->m->storages; i++)
        p->holder[i] = SIZE_MAX;
    return CKPT_OK;
}

/* A tensor that is reached under two names is listed twice, and the tree has the number of the first: the second name
 * belongs to a listing of the same view that has none yet. */
static size_t listing_of(const placement *p, size_t tensor)
{
    const ckpt__index *x = p->m->from;
    const ckpt__row *rows = p->m->ledger.rows;
    if (!rows[tensor].entry || !x->tensors[tensor].whole)
        return tensor;
    size_t count;
    const size_t *views = ckpt__views_of(&p->views, x->tensors[tensor].storage, &count);
    for (size_t i = 0; i < count; i++)
        if (!rows[views[i]].entry && ckpt__same_view(&x->tensors[views[i]], &x->tensors[tensor]))
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
            ckpt__str_begins_with(own, file))
            return (ckpt_str){own.data + file.size + 1, own.size - file.size - 1};
    }
    return own;
}

/* The name of a row, and what it says of the tensor. */
static ckpt_status name_row(placement *p, size_t item)
{
    ckpt__migration *m = p->m;
    const ckpt__canon_entry *e = &m->canon->entries[m->places.entries[item]];
    const ckpt__target *target = &m->places.targets[item];
    size_t tensor = listing_of(p, e->tensor), g = m->places.groups[item];
    ckpt_tensor_info *t = &m->index->tensors[tensor].info;
    if (m->became_torch && ckpt__is_flat(m->from, tensor))
        return CKPT_OK; /* a part of what is no record: place_parts_alone */
    m->ledger.rows[tensor].entry = (uint32_t)m->places.entries[item] + 1;
    if (ckpt__stays_behind(m, tensor))
        return CKPT_OK;
    t->name = m->torch && !m->options.weights_only && m->tree && (!m->as || ckpt__keeps_dcp(m)) ? listed_name(m, e->own)
                                                                                                : e->name;
    t->path = (ckpt_path){NULL, 0};
    if (e->role != CKPT_ROLE_NONE)
        t->role = e->role;
    t->param = e->param;
    t->state_key = e->state_key;
    t->group = e->group.data ? e->group : g != SIZE_MAX ? m->canon->groups[g].name : e->group;
    if (target->cast != CKPT_DTYPE_NONE)
        m->ledger.rows[tensor].cast = (uint8_t)target->cast;
    return ckpt__place_tag(p, tensor, target);
}

/* What is not dense has parts, which only torch's own format puts together again. */
static ckpt_status choose_row(placement *p, size_t i)
{
    ckpt__migration *m = p->m;
    const ckpt__tensor *t = &m->index->tensors[i];
    const ckpt_str layout = t->info.extra->layout;
    bool meta = ckpt__has_no_bytes(t) && !layout.data && t->info.extra->part_count == 0;
    if (t->whole || meta || (m->torch && !m->as)) {
        m->chosen[m->chosen_count++] = i;
        return CKPT_OK;
    }
    const bool keeps = ckpt__migrate_torch_keeps(m);
    char why[300];
    m->ledger.rows[i].fate = keeps ? CKPT__FATE_IN_STRUCTURE : CKPT__FATE_LOST;
    snprintf(why, sizeof why, "a tensor of layout %.100s is left out: only dense ones are written",
             layout.data ? layout.data : "unknown");
    bool added = keeps || (ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", why) &&
                           ckpt__report_tensor(m->lost, t->info.name));
    return added ? CKPT_OK : ckpt__migration_no_memory(p->err);
}

/* A native file keeps them in the structure of the torch file (torch.h), and their parts as tensors: not by their names. */
static ckpt_status say_in_structure(placement *p)
{
    const ckpt__ledger *ledger = &p->m->ledger;
    size_t count = ckpt__ledger_count(ledger, CKPT__FATE_IN_STRUCTURE), first = 0;
    if (!count)
        return CKPT_OK;
    while (ledger->rows[first].fate != CKPT__FATE_IN_STRUCTURE)
        first++;
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

/* Of those that go along. */
static ckpt_status each_row(placement *p, ckpt_status (*row)(placement *p, size_t tensor))
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < p->m->from->tensor_count; i++)
        if (!ckpt__stays_behind(p->m, i))
            status = row(p, i);
    return status;
}

/* When the names and tags of all rows are known: one column after the other. */
static ckpt_status finish_rows(placement *p)
{
    ckpt_status (*const rows[])(placement * p, size_t tensor) = {ckpt__own_merged,   ckpt__own_cast,     ckpt__own_cut,
                                                                 ckpt__own_strided,  ckpt__own_resolved, ckpt__own_tied,
                                                                 ckpt__place_float4, choose_row};
    ckpt__migration *m = p->m;
    m->chosen = calloc(m->from->tensor_count + 1, sizeof *m->chosen);
    ckpt_status status = m->chosen ? CKPT_OK : ckpt__migration_no_memory(p->err);
    if (status == CKPT_OK && m->options.cast_count)
        status = ckpt__migrate_casts(m, p->err);
    for (size_t k = 0; status == CKPT_OK && k < sizeof rows / sizeof *rows; k++)
        status = each_row(p, rows[k]);
    return status == CKPT_OK ? say_in_structure(p) : status;
}

static ckpt_status place(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = copy_index(m, p->err);
    if (status == CKPT_OK)
        status = each_row(p, ckpt__own_joined);
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
        status = name_row(p, i);
    if (status == CKPT_OK && m->as == CKPT__AS_RUN)
        status = ckpt__run_tags(m, p->err);
    if (status == CKPT_OK)
        status = ckpt__place_parts_alone(p);
    ckpt__placement_free(&m->places);
    if (status == CKPT_OK)
        status = ckpt__place_storages(p);
    if (status == CKPT_OK)
        status = finish_rows(p);
    return status == CKPT_OK ? ckpt__index_finish(m->index, p->err) : status;
}

ckpt_status ckpt__migrate_place(ckpt__migration *m, ckpt_error *err)
{
    placement p = {.m = m, .err = err};
    m->index = ckpt__index_new(0);
    ckpt_status status = m->index ? place(&p) : ckpt__migration_no_memory(err);
    ckpt__views_free(&p.views);
    free(p.holder);
    return status;
}
