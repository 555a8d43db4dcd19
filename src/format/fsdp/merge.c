/* format/fsdp/merge.c - the trees of all ranks as one. Where a tensor of all ranks lies below, dicts are joined key by key; all else is
 * taken once where it is the same on all ranks that have it, and kept for each rank where it is not. */
#include "format/fsdp/fsdp.h"
#include "model/visits.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEEPEST = 16 };

/* What is merged: a group's files, of which those without `there` have nothing. */
typedef struct merger {
    ckpt__fsdp *f;
    const ckpt__fsdp_group *group;
    ckpt_error *err;
} merger;

static ckpt_status merge(const merger *m, const ckpt__place *at, bool state, const ckpt_value **out,
                         ckpt__entries *own);

static bool is_text(const ckpt_value *key, const char *text)
{
    return key && key->kind == CKPT_V_STR && ckpt__str_is(key->text, text);
}

/* ---- do all ranks have the same? */

static const ckpt__shard *shard_of(const merger *m, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && v->tensor < m->f->row_count ? m->f->by_row[v->tensor] : NULL;
}

/* A value as bytes, for comparing. */
typedef struct printer {
    const merger *m;
    ckpt__buf *b;
    bool no_crcs; /* leave them out */
    bool unsure;  /* the file has no CRC of some tensor, or not all bytes of it */
    bool lost;    /* not all bytes */
} printer;

/* Its bytes are told by the CRC that the file keeps of them. Of what is not dense, and of a part, the number is said, which no
 * other has. */
static void put_tensor(printer *p, const ckpt_value *v)
{
    const merger *m = p->m;
    ckpt__buf *b = p->b;
    const ckpt__tensor *t = &m->f->index->tensors[v->tensor];
    const ckpt_tensor_info *info = &t->info;
    ckpt__buf_add(b, &info->dtype, sizeof info->dtype);
    ckpt__buf_add(b, &info->ndim, sizeof info->ndim);
    ckpt__buf_printf(b, "%d%d", info->conj, info->neg);
    if (info->shape)
        ckpt__buf_add(b, info->shape, info->ndim * sizeof *info->shape);
    if (!t->whole || shard_of(m, v)) {
        if (info->extra->part_count || shard_of(m, v))
            ckpt__buf_add(b, &v->tensor, sizeof v->tensor);
        return;
    }
    const ckpt__extent *e = &m->f->index->storages[t->storage].extent;
    if (info->strides)
        ckpt__buf_add(b, info->strides, info->ndim * sizeof *info->strides);
    ckpt__buf_add(b, &info->offset, sizeof info->offset);
    ckpt__buf_add(b, &e->size, sizeof e->size);
    p->lost = p->lost || e->missing;
    p->unsure = p->unsure || e->missing || (!e->memory && !e->has_crc);
    if (e->memory && !p->no_crcs)
        ckpt__buf_add(b, e->memory, e->size);
    else if (e->has_crc && !p->no_crcs)
        ckpt__buf_add(b, &e->crc, sizeof e->crc);
}

static int on_print(void *ctx, const ckpt_visit *visit)
{
    printer *p = ctx;
    const ckpt_value *v = visit->value;
    ckpt__visit_bytes(p->b, visit);
    if (v->kind == CKPT_V_TENSOR && v->tensor < p->m->f->row_count)
        put_tensor(p, v);
    return p->b->failed ? ckpt__fsdp_no_memory(p->m->err) : CKPT_OK;
}

static ckpt_status print(printer *p, const ckpt_value *v, ckpt__buf *b)
{
    p->b = b;
    b->size = 0;
    return (ckpt_status)ckpt_value_walk(v, 0, on_print, p, p->m->err);
}

/* *other: the first file that has something else than file `first`; the count of files: there is none. */
static ckpt_status compare_with(const ckpt__place *at, size_t first, printer *p, size_t *other)
{
    const size_t files = p->m->group->count;
    ckpt__buf one = {0}, next = {0};
    ckpt_status status = print(p, at->values[first], &one);
    *other = files;
    for (size_t i = first + 1; status == CKPT_OK && *other == files && i < files; i++) {
        if (!at->values[i])
            continue;
        status = print(p, at->values[i], &next);
        if (status == CKPT_OK && (one.size != next.size || memcmp(one.data, next.data, one.size) != 0))
            *other = i;
    }
    ckpt__buf_free(&one);
    ckpt__buf_free(&next);
    return status;
}

/* What a file has no CRC of is taken for the same. */
static ckpt_status compare(const merger *m, const ckpt__place *at, size_t *other)
{
    const size_t first = ckpt__place_first(at);
    printer p = {.m = m};
    ckpt_status status = compare_with(at, first, &p, other);
    p.no_crcs = true;
    return status == CKPT_OK && *other < m->group->count && p.unsure ? compare_with(at, first, &p, other) : status;
}

/* The first file that has all bytes of it; the first one, where none has. */
static ckpt_status find_whole(const merger *m, const ckpt__place *at, size_t *file)
{
    ckpt__buf text = {0};
    printer p = {.m = m, .lost = true};
    ckpt_status status = CKPT_OK;
    *file = ckpt__place_first(at);
    for (size_t i = *file; status == CKPT_OK && p.lost && i < m->group->count; i++) {
        p.lost = false;
        if (at->values[i])
            status = print(&p, at->values[i], &text);
        if (!p.lost && at->values[i])
            *file = i;
        p.lost = p.lost || !at->values[i];
    }
    ckpt__buf_free(&text);
    return status;
}

/* ---- what is below a place */

typedef struct finder {
    const merger *m;
    bool found;
} finder;

static int on_find(void *ctx, const ckpt_visit *visit)
{
    finder *f = ctx;
    f->found = shard_of(f->m, visit->value) != NULL;
    return f->found; /* 1 ends the walk */
}

static ckpt_status has_parts(const merger *m, const ckpt__place *at, bool *has)
{
    finder f = {m, false};
    int status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && !f.found && i < m->group->count; i++)
        if (at->values[i])
            status = ckpt_value_walk(at->values[i], 0, on_find, &f, m->err);
    *has = f.found;
    return f.found ? CKPT_OK : (ckpt_status)status;
}

static bool has_entries(const merger *m, const ckpt__place *at)
{
    for (size_t i = 0; i < m->group->count; i++)
        if (at->values[i] && at->values[i]->entry_count)
            return true;
    return false;
}

/* ---- a tensor of all ranks */

static ckpt_status add_tensor(const merger *m, ckpt__fsdp_tensor t, const ckpt_value **out)
{
    ckpt__fsdp *f = m->f;
    ckpt_value *v = ckpt__value_new(f->index->arena, CKPT_V_TENSOR);
    if (!v || !ckpt__grow(&f->tensors, &f->tensor_capacity, f->tensor_count + 1, sizeof *f->tensors))
        return ckpt__fsdp_no_memory(m->err);
    v->tensor = f->row_count + f->tensor_count;
    f->tensors[f->tensor_count++] = t;
    *out = v;
    return CKPT_OK;
}

static ckpt_status merge_parts(const merger *m, const ckpt__place *at, const ckpt_value **out)
{
    ckpt__fsdp *f = m->f;
    const size_t first = ckpt__place_first(at);
    ckpt__fsdp_tensor t = {.first = f->part_count, .like = at->values[first]->tensor};
    if (!ckpt__grow(&f->parts, &f->part_capacity, f->part_count + m->group->count, sizeof *f->parts))
        return ckpt__fsdp_no_memory(m->err);
    for (size_t i = first; i < m->group->count; i++)
        if (at->values[i])
            f->parts[f->part_count++] = (ckpt__fsdp_part){&m->group->files[i], shard_of(m, at->values[i])};
    t.count = f->part_count - t.first;
    return add_tensor(m, t, out);
}

/* ---- what is not the same */

static bool is_step(const merger *m, const ckpt__place *at, size_t one, size_t other)
{
    const ckpt_value *a = at->values[one], *b = at->values[other];
    const ckpt_value *x = a->kind == CKPT_V_DICT ? ckpt_value_get(a, "last_epoch") : NULL,
                     *y = b->kind == CKPT_V_DICT ? ckpt_value_get(b, "last_epoch") : NULL;
    bool schedules = x && y && x->kind == CKPT_V_INT && y->kind == CKPT_V_INT && x->integer != y->integer;
    bool optimizer = m->group->files[0].is.kind == CKPT__FSDP_OPTIMIZER &&
                     (is_text(at->key, "step") || is_text(at->key, "param_groups"));
    return schedules || optimizer;
}

/* Parts of two steps make no tensor of either. */
static ckpt_status mixed(const merger *m, const ckpt__place *at, size_t one, size_t other)
{
    char key[120] = "";
    ckpt_error why = CKPT_ERROR_INIT;
    const ckpt__fsdp_file *a = &m->group->files[one], *b = &m->group->files[other];
    if (at->key && at->key->kind == CKPT_V_STR)
        ckpt__escape(key, sizeof key, at->key->text.data, at->key->text.size);
    ckpt_status status =
        ckpt__fail(&why, CKPT_E_MISMATCH, b->name,
                   "its '%s' (rank %lld) is not that of rank %lld in %s: these are not files of one step. Take all "
                   "files from one save",
                   key, (long long)b->is.rank, (long long)a->is.rank, a->name);
    return ckpt__fsdp_lack(m->f, b->name, status, &why, m->err);
}

/* A whole tensor of the model that ranks have, or the state of an optimizer that is not sharded: DDP's are the same on all. */
static bool is_replica(const merger *m, const ckpt__place *at, size_t one, size_t other)
{
    const ckpt__fsdp_kind kind = m->group->files[0].is.kind;
    const ckpt_value *a = at->values[one], *b = at->values[other];
    return kind == CKPT__FSDP_MODEL ? a->kind == CKPT_V_TENSOR && b->kind == CKPT_V_TENSOR
                                    : kind == CKPT__FSDP_OPTIMIZER && is_text(at->key, "state");
}

/* Does the rank's flat parameter lie in this storage? */
static bool is_flat_storage(const merger *m, const ckpt__fsdp_file *file, size_t storage)
{
    for (const ckpt__shard *s = file->there ? file->shards : NULL; s; s = s->next) {
        const ckpt_str name = m->f->index->tensors[file->tensors + s->tensor].info.name;
        for (size_t i = 0; ckpt__str_ends(name, "_flat_param") && i < s->local_count; i++)
            if (file->storages + s->locals[i].storage == storage)
                return true;
    }
    return false;
}

/* FSDP1 with use_orig_params names the parameters too, in LOCAL_STATE_DICT: each is what the rank's part of the flat parameter has of
 * it, in one dimension, and of no element where it has none. */
static bool is_slice(const merger *m, const ckpt__place *at)
{
    bool viewed = false;
    for (size_t i = 0; i < m->group->count; i++) {
        if (!at->values[i])
            continue;
        if (at->values[i]->kind != CKPT_V_TENSOR || at->values[i]->tensor >= m->f->row_count)
            return false;
        const ckpt__tensor *t = &m->f->index->tensors[at->values[i]->tensor];
        if (!t->whole || t->info.ndim != 1)
            return false;
        const bool views = is_flat_storage(m, &m->group->files[i], t->storage);
        if (!views && t->info.shape[0] != 0)
            return false;
        viewed = viewed || views;
    }
    return viewed;
}

static ckpt_status note_unlike(const merger *m, const ckpt__place *at, size_t one, size_t other)
{
    char key[300] = "", name[400];
    const ckpt__fsdp_file *a = &m->group->files[one], *b = &m->group->files[other];
    if (at->key && at->key->kind == CKPT_V_STR)
        ckpt__escape(key, sizeof key, at->key->text.data, at->key->text.size);
    snprintf(name, sizeof name, "%s.%s", m->group->key, key);
    bool good = ckpt__report_add(
        m->f->index->findings, CKPT_SEVERITY_WARNING, "replicas-differ", name,
        "make sure that the files are of one save; ranks that have drifted apart are a fault of the run, but for buffers "
        "that each keeps for itself",
        "rank %lld has all of it in %s and rank %lld in %s, and not the same: each rank's own is under rank_%lld, rank_%lld, "
        "...",
        (long long)a->is.rank, a->name, (long long)b->is.rank, b->name, (long long)a->is.rank, (long long)b->is.rank);
    good = good && ckpt__report_detail(m->f->index->findings, b->name, NULL, NULL, 0);
    return good ? CKPT_OK : ckpt__fsdp_no_memory(m->err);
}

/* Steps that a parameter's moments have. */
static bool is_count(const merger *m, const ckpt__place *at)
{
    return m->group->files[0].is.kind == CKPT__FSDP_OPTIMIZER && is_text(at->key, "step") &&
           at->values[ckpt__place_first(at)]->kind == CKPT_V_TENSOR;
}

/* FSDP1 has one for all parameters of a unit, and files have it at the place of each. An optimizer that is not sharded counts each by
 * itself, in place: one that several share would be counted several times a step. So each place gets a tensor of its own. */
static ckpt_status copy_count(const merger *m, const ckpt_value **value)
{
    return add_tensor(m, (ckpt__fsdp_tensor){.like = (*value)->tensor}, value);
}

static ckpt_status merge_value(const merger *m, const ckpt__place *at, const ckpt_value **out, ckpt__entries *own)
{
    const size_t first = ckpt__place_first(at);
    size_t other, whole = first;
    ckpt_status status = compare(m, at, &other);
    if (status == CKPT_OK && other == m->group->count) {
        if (m->f->request->salvage)
            status = find_whole(m, at, &whole);
        *out = at->values[whole];
        return status == CKPT_OK && is_count(m, at) ? copy_count(m, out) : status;
    }
    if (status == CKPT_OK && is_step(m, at, first, other))
        status = mixed(m, at, first, other);
    const bool slice = is_slice(m, at);
    m->f->slices += slice;
    if (status == CKPT_OK && !slice && is_replica(m, at, first, other))
        status = note_unlike(m, at, first, other);
    if (status == CKPT_OK)
        status = ckpt__place_keep(at, own, m->err);
    m->f->differ += status == CKPT_OK;
    return status;
}

/* ---- dicts and lists */

/* The state of FSDP1's own optimizers, as it is: each rank has tensors of its own under the numbers of the parameters, flat, and what of
 * which parameter they are is in no file. */
static ckpt_status keep_apart(const merger *m, const ckpt__place *at, ckpt__entries *own)
{
    ckpt_status status = ckpt__place_keep(at, own, m->err);
    m->f->differ += status == CKPT_OK;
    if (status == CKPT_OK &&
        !ckpt__report_add(
            m->f->index->findings, CKPT_SEVERITY_WARNING, "flat-parameters", NULL,
            "load it with FSDP on as many ranks, wrapped as it was, and save FSDP.optim_state_dict(model, "
            "optimizer)",
            "the state of the optimizer is what each rank has of flat parameters (FSDP1's "
            "optimizer.state_dict()): it is under rank_0, rank_1, ...; no file says to which part of which parameter it belongs"))
        status = ckpt__fsdp_no_memory(m->err);
    return status;
}

/* A place whose children are merged. */
typedef struct parent {
    const merger *m;
    bool optimizer;
} parent;

static ckpt_status merge_child(void *ctx, const ckpt__place *at, ckpt_entry *out, ckpt__entries *own)
{
    const parent *p = ctx;
    return merge(p->m, at, p->optimizer && is_text(at->key, "state"), &out->value, own);
}

static ckpt_status merge_children(const merger *m, const ckpt__place *at, const ckpt_value **out, ckpt__entries *own)
{
    parent p = {m, ckpt_value_get(at->values[ckpt__place_first(at)], "param_groups") != NULL};
    return ckpt__place_merge(at, m->f->index->arena, merge_child, &p, out, NULL, own, m->err);
}

/* state: it is the state of an optimizer, whose entries are told apart. *out NULL: nothing of it is common to all ranks. */
static ckpt_status merge(const merger *m, const ckpt__place *at, bool state, const ckpt_value **out, ckpt__entries *own)
{
    bool parts = true, deep = at->depth >= DEEPEST;
    *out = NULL;
    if (ckpt__place_is(at, CKPT_V_TENSOR)) {
        size_t count = 0, all = 0;
        for (size_t i = 0; i < m->group->count; i++) {
            all += at->values[i] != NULL;
            count += at->values[i] && shard_of(m, at->values[i]);
        }
        return count > 0 && count == all ? merge_parts(m, at, out) : merge_value(m, at, out, own);
    }
    ckpt_status status = at->depth == 0 || state ? CKPT_OK : has_parts(m, at, &parts);
    const bool joined = ckpt__place_is(at, CKPT_V_DICT) || ckpt__place_is_lists(at);
    if (status < 0)
        return status;
    if (state && m->f->world > 1 && m->f->any_part && has_entries(m, at)) {
        status = has_parts(m, at, &parts);
        if (status < 0 || !parts)
            return status < 0 ? status : keep_apart(m, at, own);
    }
    return parts && !deep && joined ? merge_children(m, at, out, own) : merge_value(m, at, out, own);
}

ckpt_status ckpt__fsdp_merge(ckpt__fsdp *f, const ckpt__fsdp_group *group, ckpt__entries *own, ckpt_error *err)
{
    const merger m = {f, group, err};
    const ckpt_value **values = calloc(group->count + 1, sizeof *values), *merged = NULL;
    ckpt__entries *below = calloc(group->count + 1, sizeof *below);
    const ckpt_value *key = ckpt__value_str(f->index->arena, group->key, strlen(group->key));
    ckpt_status status = values && below && key ? CKPT_OK : ckpt__fsdp_no_memory(err);
    size_t there = 0;
    for (size_t i = 0; status == CKPT_OK && i < group->count; i++) {
        values[i] = group->files[i].there ? group->files[i].root : NULL;
        there += values[i] != NULL;
    }
    const ckpt__place at = {.values = values, .count = group->count, .key = key};
    if (status == CKPT_OK && there)
        status = merge(&m, &at, false, &merged, below);
    if (status == CKPT_OK && merged)
        status = ckpt__folder_put(&f->reader, group->key, merged, err);
    for (size_t i = 0; status == CKPT_OK && i < group->count; i++) {
        const int64_t rank = group->files[i].is.rank;
        for (size_t k = 0; status == CKPT_OK && k < below[i].count; k++)
            status = ckpt__entries_add(&own[rank], below[i].items[k].key, below[i].items[k].value, err);
    }
    for (size_t i = 0; below && i < group->count; i++)
        free(below[i].items);
    free(below);
    free(values);
    return status;
}
