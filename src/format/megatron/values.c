/* format/megatron/values.c - what of the ranks' files is no parameter: once where all ranks have the same, else under the name of each
 * rank's folder. */
#include "format/megatron/ranks.h"
#include "model/visits.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- are two values the same? Both are spelt out, as far as it is reasonable; tensors are not compared. */

typedef struct spelling {
    ckpt__buf text;
    bool tensor; /* there is one in it */
} spelling;

enum { SPELT = 1 << 22 }; /* bytes; longer values are not compared */

static int spell(void *ctx, const ckpt_visit *visit)
{
    spelling *s = ctx;
    s->tensor |= visit->value->kind == CKPT_V_TENSOR;
    if (s->tensor || s->text.size > SPELT)
        return 1;
    ckpt__visit_bytes(&s->text, visit);
    return 0;
}

/* *known: it was spelt to its end, and there is no tensor in it. */
static ckpt_status spell_out(const ckpt_value *v, spelling *s, bool *known, ckpt_error *err)
{
    const int result = ckpt_value_walk(v, 0, spell, s, err);
    *known = result == 0 && !s->text.failed;
    return result < 0 ? (ckpt_status)result : s->text.failed ? ckpt__meg_no_memory(err) : CKPT_OK;
}

static ckpt_status is_same(const ckpt_value *a, const ckpt_value *b, bool *same, ckpt_error *err)
{
    spelling x = {{0}, false}, y = {{0}, false};
    bool one = false, two = false;
    ckpt_status status = spell_out(a, &x, &one, err);
    if (status == CKPT_OK && one)
        status = spell_out(b, &y, &two, err);
    *same = one && two && x.text.size == y.text.size && memcmp(x.text.data, y.text.data, x.text.size) == 0;
    ckpt__buf_free(&x.text);
    ckpt__buf_free(&y.text);
    return status;
}

/* ---- one key of the ranks' roots */

static const ckpt_value *of_rank(const ckpt__meg_rank *r, const ckpt_value *key, bool flat)
{
    if (flat)
        return r->there ? r->flat : NULL;
    for (size_t i = 0; r->there && i < r->root->entry_count; i++)
        if (ckpt__str_equal(r->root->entries[i].key->text, key->text))
            return r->root->entries[i].value;
    return NULL;
}

/* {"mp_rank_00": ..., "mp_rank_01": ...} */
static ckpt_status put_by_rank(ckpt__meg *m, ckpt_str name, const ckpt_value *key, bool flat, ckpt_error *err)
{
    const size_t n = m->rank_count;
    size_t count = 0;
    ckpt_entry *entries = ckpt__arena_array(m->index->arena, n, sizeof *entries);
    for (size_t i = 0; entries && i < n; i++) {
        const ckpt_value *v = of_rank(&m->ranks[i], key, flat);
        if (!v)
            continue;
        entries[count].key = ckpt__value_str(m->index->arena, m->ranks[i].folder, strlen(m->ranks[i].folder));
        entries[count].value = v;
        if (!entries[count++].key)
            return ckpt__meg_no_memory(err);
    }
    return entries ? ckpt__meg_put(m, name, ckpt__value_dict(m->index->arena, entries, count), err)
                   : ckpt__meg_no_memory(err);
}

/* Of the arguments those that tell ranks apart (rank, local_rank) are the first rank's. */
static ckpt_status put_key(ckpt__meg *m, const ckpt_entry *e, ckpt_error *err)
{
    bool same = ckpt__str_is(e->key->text, "args");
    ckpt_status status = CKPT_OK;
    if (!same) {
        same = true;
        for (size_t i = 0; status == CKPT_OK && same && i < m->rank_count; i++) {
            const ckpt__meg_rank *r = &m->ranks[i];
            const ckpt_value *v = r->there && r != m->first ? of_rank(r, e->key, false) : NULL;
            if (r->there && r != m->first)
                status = v ? is_same(e->value, v, &same, err) : CKPT_OK;
            same = same && (v || !r->there || r == m->first);
        }
    }
    if (status < 0)
        return status;
    return same ? ckpt__meg_put(m, e->key->text, e->value, err) : put_by_rank(m, e->key->text, e->key, false, err);
}

static bool is_parameters(const ckpt__meg *m, const ckpt_value *key)
{
    int64_t number;
    const bool chunk = m->vp > 1 && ckpt__str_begins_more(key->text, "model") &&
                       ckpt__parse_i64(key->text.data + 5, key->text.size - 5, &number) && number >= 0 &&
                       (uint64_t)number < m->vp;
    return chunk || (m->vp == 1 && ckpt__str_is(key->text, "model")) ||
           (ckpt__str_is(key->text, "optimizer") && m->joined_optimizer);
}

/* ---- what is not joined */

static ckpt_status note_unjoined(ckpt__meg *m, bool flat, ckpt_error *err)
{
    bool ok = true;
    if (flat)
        ok = ckpt__report_add(
            m->index->findings, CKPT_SEVERITY_WARNING, "layout-unknown", NULL,
            "load it with Megatron-LM in the sizes that wrote it, and save it with --ckpt-format torch_dist and "
            "--dist-ckpt-optim-fully-reshardable",
            "the moments and masters of the distributed optimizer are flat buffers (distrib_optim.pt), whose parameters' names, "
            "order and padding are in no file: they stay as they are, under distrib_optim and the name of each rank's folder");
    if (ok && m->unjoined[0])
        ok = ckpt__report_add(
            m->index->findings, CKPT_SEVERITY_WARNING, "layout-unknown", NULL,
            "load it with Megatron-LM, and save it with --ckpt-format torch_dist",
            "which parameters the numbers of the optimizer stand for is not known (%s): the states of each rank stay as they "
            "are, under optimizer and the name of its folder",
            m->unjoined);
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

/* A key that the first rank has not, and a later one has. */
static bool is_new(const ckpt__meg *m, size_t rank, const ckpt_value *key)
{
    for (size_t i = 0; i < rank; i++)
        if (m->ranks[i].there && of_rank(&m->ranks[i], key, false))
            return false;
    return true;
}

ckpt_status ckpt__meg_put_values(ckpt__meg *m, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    bool flat = false;
    const ckpt_value *root = m->first->root;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++)
        if (root->entries[i].key->kind == CKPT_V_STR && !is_parameters(m, root->entries[i].key))
            status = put_key(m, &root->entries[i], err);
    for (size_t i = 0; status == CKPT_OK && i < m->rank_count; i++) {
        const ckpt__meg_rank *r = &m->ranks[i];
        flat |= r->there && r->flat;
        for (size_t k = 0; status == CKPT_OK && r->there && r != m->first && k < r->root->entry_count; k++) {
            const ckpt_value *key = r->root->entries[k].key;
            if (key->kind == CKPT_V_STR && !is_parameters(m, key) && is_new(m, i, key))
                status = put_by_rank(m, key->text, key, false, err);
        }
    }
    if (status == CKPT_OK && flat)
        status = put_by_rank(m, ckpt__s("distrib_optim"), NULL, true, err);
    if (status == CKPT_OK)
        status = note_unjoined(m, flat, err);
    if (status == CKPT_OK && !(m->index->root = ckpt__value_dict(m->index->arena, m->entries, m->entry_count)))
        status = ckpt__meg_no_memory(err);
    return status;
}

/* ---- the ranks' tensors that stay: those in values */

typedef struct keeping {
    ckpt__meg *m;
    bool *keep; /* heap, one a tensor; set once it has its name */
    size_t logical;
    uint64_t names_left;
    ckpt_error *err;
} keeping;

/* What it is to training, by its place: the buffers of an optimizer are flat, and are of no parameter. */
static void set_role(ckpt_tensor_info *t)
{
    const ckpt_str last = ckpt__str_last(t->name);
    ckpt_str key = {NULL, 0};
    t->role = CKPT_ROLE_OTHER;
    if (ckpt__str_begins(t->name, "rng_state.")) {
        t->role = CKPT_ROLE_RNG;
    } else if (ckpt__str_begins(t->name, "distrib_optim.") || ckpt__str_begins(t->name, "optimizer.")) {
        key = last;
        t->role = ckpt__str_is(last, "exp_avg")      ? CKPT_ROLE_EXP_AVG
                  : ckpt__str_is(last, "exp_avg_sq") ? CKPT_ROLE_EXP_AVG_SQ
                  : ckpt__str_is(last, "step")       ? CKPT_ROLE_STEP
                  : ckpt__str_is(last, "param")      ? CKPT_ROLE_MASTER
                                                     : CKPT_ROLE_OPTIM;
    }
    t->param = t->group = (ckpt_str){NULL, 0};
    t->state_key = key;
}

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    keeping *k = ctx;
    ckpt__index *x = k->m->index;
    if (visit->name.size > k->names_left)
        return ckpt__value_names_over("a checkpoint of Megatron", k->err);
    k->names_left -= visit->name.size;
    if (visit->value->kind != CKPT_V_TENSOR || visit->value->tensor >= k->logical || k->keep[visit->value->tensor])
        return CKPT_OK;
    ckpt_tensor_info *t = &x->tensors[visit->value->tensor].info;
    if (!ckpt__visit_row(x->arena, visit, t))
        return ckpt__meg_no_memory(k->err);
    k->keep[visit->value->tensor] = true;
    set_role(t);
    return CKPT_OK;
}

/* The parts of a tensor that is not dense stand behind it, and stay with it. */
static void keep_parts(const ckpt__index *x, bool *keep, size_t logical)
{
    for (size_t i = 0; i < logical; i++)
        for (size_t p = 1; keep[i] && p <= x->tensors[i].info.extra->part_count && i + p < logical; p++)
            keep[i + p] = true;
}

ckpt_status ckpt__meg_keep_rest(ckpt__meg *m, size_t logical, ckpt_error *err)
{
    ckpt__index *x = m->index;
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->request->source->count; i++)
        bytes += m->request->source->files[i].size;
    keeping k = {.m = m, .logical = logical, .names_left = ckpt__names_limit(bytes), .err = err};
    k.keep = calloc(x->tensor_count + 1, sizeof *k.keep);
    if (!k.keep)
        return ckpt__meg_no_memory(err);
    for (size_t i = logical; i < x->tensor_count; i++)
        k.keep[i] = true;
    ckpt_status status = (ckpt_status)ckpt_value_walk(x->root, ckpt__visits_limit(bytes), on_visit, &k, err);
    keep_parts(x, k.keep, logical);
    if (status == CKPT_OK)
        status = ckpt__index_keep(x, k.keep, err);
    free(k.keep);
    return status;
}
