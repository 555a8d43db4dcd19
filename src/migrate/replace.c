/* migrate/replace.c - --replace: tensors of the model that another program has in another shape under the same name. Each
 * is left out with its optimizer state, and its averaged copy, and keeps its place in its group: the ids of the others stay, which
 * is how torch matches them, and the new parameter begins without a state. */
#include "migrate/rules.h"
#include "migrate/select.h"

#include <stdio.h>
#include <stdlib.h>

/* The work of ckpt__migrate_replace. "One a tensor" is by numbers of the source. */
typedef struct replacer {
    ckpt__migration *m;
    ckpt__chosen *c;
    bool *weight;           /* one a tensor: of a model, or an average of one */
    bool *goes;             /* one a tensor: a rule names it */
    bool *copy;             /* one a tensor: the average of a weight that goes */
    bool *used;             /* one a rule: it has named a weight */
    size_t *states;         /* one a tensor: how many of the optimizer's tensors and values go with it */
    ckpt__hash *containers; /* names of the states in the tree */
    ckpt_error *err;
} replacer;

static bool is_role(ckpt_role role)
{
    return role == CKPT_ROLE_PARAM || role == CKPT_ROLE_BUFFER || role == CKPT_ROLE_EMA;
}

static void find_weights(replacer *r)
{
    const ckpt__index *x = r->m->from;
    for (size_t i = 0; i < x->tensor_count; i = ckpt__tensor_end(x, i))
        r->weight[i] = is_role(x->tensors[i].info.role);
    for (size_t i = 0; i < r->m->canon->count; i++) {
        const ckpt__canon_entry *e = &r->m->canon->entries[i];
        if (e->is_tensor && !e->state_key.data && is_role(e->role))
            r->weight[ckpt__listing(r->c->listed, e)] = true;
    }
}

/* As --drop takes names; one without wildcards means all that is below it too. */
static bool names(const char *rule, ckpt_str listed, ckpt_str canonical)
{
    return ckpt__rule_matches(rule, listed) || ckpt__rule_matches(rule, canonical) ||
           ckpt__rule_is_below(listed, rule) || ckpt__rule_is_below(canonical, rule);
}

static void find_replaced(replacer *r)
{
    const ckpt_migrate_options *o = &r->m->options;
    const ckpt__index *x = r->m->from;
    for (size_t i = 0; i < x->tensor_count; i = ckpt__tensor_end(x, i))
        for (size_t k = 0; r->weight[i] && k < o->replace_count; k++)
            if (names(o->replace[k], x->tensors[i].info.name, r->m->ledger.rows[i].called))
                r->goes[i] = r->used[k] = true;
}

/* Their canonical names, by which the optimizer's states know them. */
static ckpt_status note_names(replacer *r)
{
    const ckpt__canon *canon = r->m->canon;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < canon->count; i++) {
        const ckpt__canon_entry *e = &canon->entries[i];
        size_t at = e->is_tensor ? ckpt__listing(r->c->listed, e) : 0;
        if (!e->is_tensor || e->outside || e->state_key.data || e->role != CKPT_ROLE_PARAM || !r->goes[at])
            continue;
        if (ckpt__hash_put(r->c->replaced, e->name.data, e->name.size, at, NULL) < 0)
            status = ckpt__migration_no_memory(r->err);
    }
    return status;
}

/* ---- their states */

/* Where the state lies in the tree: what stands before its key. */
static ckpt_str container_of(const ckpt__canon_entry *e)
{
    ckpt_str own = e->own, key = e->state_key;
    if (own.size > key.size + 1 && memcmp(own.data + own.size - key.size, key.data, key.size) == 0)
        return (ckpt_str){own.data, own.size - key.size - 1};
    const char *dot = memrchr(own.data, '.', own.size);
    return dot ? (ckpt_str){own.data, (size_t)(dot - own.data)} : (ckpt_str){NULL, 0};
}

/* LBFGS keeps one state, under its first parameter, with vectors over all of them. */
static bool is_common(const ckpt__canon_entry *e)
{
    return ckpt__str_is(e->state_key, "prev_flat_grad") || ckpt__str_is(e->state_key, "func_evals");
}

static ckpt_status find_states(replacer *r)
{
    const ckpt__canon *canon = r->m->canon;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < canon->count; i++) {
        ckpt__canon_entry *e = &canon->entries[i];
        size_t at;
        if (e->outside || !e->param.data || !e->state_key.data)
            continue;
        if (is_common(e))
            return ckpt__fail(
                r->err, CKPT_E_UNSUPPORTED, r->m->src,
                "--replace: LBFGS keeps one state with vectors over all parameters: none can be taken out; leave the "
                "optimizer out as well (--drop)");
        if (!ckpt__hash_get(r->c->replaced, e->param.data, e->param.size, &at))
            continue;
        ckpt_str container = container_of(e);
        if (container.data && ckpt__hash_put(r->containers, container.data, container.size, at, NULL) < 0)
            status = ckpt__migration_no_memory(r->err);
        r->states[at]++;
        if (e->is_tensor)
            ckpt__leave(r->m, ckpt__listing(r->c->listed, e), CKPT__FATE_REPLACED);
        else
            e->value = NULL;
    }
    return status;
}

/* ---- averages of them */

/* Does the name end in a dot and this name? */
static bool is_below(ckpt_str name, ckpt_str own)
{
    return name.size > own.size && name.data[name.size - own.size - 1] == '.' && ckpt__str_ends_with(name, own);
}

/* The tensor of which tensor i is a copy by its name and shape; SIZE_MAX: none. */
static size_t copy_of(const replacer *r, size_t i)
{
    const ckpt__index *x = r->m->from;
    for (size_t k = 0; k < x->tensor_count; k++)
        if (r->goes[k] && r->m->ledger.rows[k].called.data &&
            is_below(x->tensors[i].info.name, r->m->ledger.rows[k].called) &&
            ckpt__same_shape(x->tensors[i].info.shape, x->tensors[i].info.ndim, x->tensors[k].info.shape,
                             x->tensors[k].info.ndim))
            return k;
    return SIZE_MAX;
}

static ckpt_status note_copies(replacer *r)
{
    const ckpt__index *x = r->m->from;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i)) {
        size_t of = r->weight[i] && !r->goes[i] && !ckpt__stays_behind(r->m, i) ? copy_of(r, i) : SIZE_MAX;
        char shown[200];
        if (of == SIZE_MAX)
            continue;
        ckpt_str name = x->tensors[of].info.name;
        ckpt__escape(shown, sizeof shown, name.data, name.size);
        if (x->tensors[i].info.role == CKPT_ROLE_EMA)
            r->copy[i] = true;
        else
            status = ckpt__migration_note(
                r->m, CKPT_SEVERITY_WARNING, "replaced", x->tensors[i].info.name, r->err,
                "stays: it has the name and shape of '%s', and is not an average of it; --replace it too if the new "
                "program has it in the new shape",
                shown);
    }
    for (size_t i = 0; i < x->tensor_count; i++)
        r->goes[i] = r->goes[i] || r->copy[i];
    return status;
}

/* ---- what is said */

/* Another name of the same tensor, which goes along (tied weights). */
static void put_twin(const replacer *r, size_t tensor, char *out, size_t size)
{
    const ckpt__index *x = r->m->from;
    const ckpt__tensor *t = &x->tensors[tensor];
    char shown[200];
    *out = 0;
    for (size_t i = 0; t->whole && i < x->tensor_count; i++) {
        ckpt_str name = x->tensors[i].info.name;
        if (i == tensor || r->goes[i] || ckpt__stays_behind(r->m, i) || !ckpt__same_view(&x->tensors[i], t))
            continue;
        snprintf(out, size, "; '%s' is the same tensor, and stays",
                 ckpt__escape(shown, sizeof shown, name.data, name.size));
        return;
    }
}

/* Is an optimizer written? */
static bool has_target(const replacer *r)
{
    return !r->m->options.weights_only && !r->m->hf;
}

/* "; params[4] of group 0 stays its place". Nothing where it is in no group. */
static void put_place(const replacer *r, size_t tensor, char *out, size_t size)
{
    const ckpt__canon *canon = r->m->canon;
    ckpt_str name = r->m->ledger.rows[tensor].called;
    *out = 0;
    for (size_t g = 0; name.data && has_target(r) && g < canon->group_count; g++)
        for (size_t i = 0; i < canon->groups[g].param_count; i++)
            if (ckpt__str_equal(canon->groups[g].params[i], name)) {
                snprintf(out, size, "; its place stays: params[%zu] of group %.40s", i, canon->groups[g].name.data);
                return;
            }
}

static ckpt_status note_replaced(replacer *r)
{
    const ckpt__index *x = r->m->from;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i)) {
        char shape[160], place[120], with[80] = "", twin[260];
        if (!r->goes[i])
            continue;
        ckpt__shape_text(shape, sizeof shape, x->tensors[i].info.shape, x->tensors[i].info.ndim);
        put_place(r, i, place, sizeof place);
        put_twin(r, i, twin, sizeof twin);
        if (r->states[i])
            snprintf(with, sizeof with, ", with %zu %s of its optimizer state", r->states[i],
                     r->states[i] == 1 ? "entry" : "entries");
        ckpt__leave(r->m, i, CKPT__FATE_REPLACED);
        status = ckpt__migration_note(r->m, CKPT_SEVERITY_NOTE, "replaced", x->tensors[i].info.name, r->err,
                                      "shape %s: left out%s%s%s%s", shape,
                                      r->copy[i] ? ", an average of a tensor that is" : "", with, place, twin);
        if (status == CKPT_OK && !ckpt__report_detail(r->m->report, NULL, NULL, NULL, x->tensors[i].info.nbytes))
            status = ckpt__migration_no_memory(r->err);
    }
    return status;
}

/* How many parameters of the optimizer keep what they have. */
static ckpt_status note_kept(replacer *r)
{
    const ckpt__canon *canon = r->m->canon;
    size_t all = 0, gone = 0;
    for (size_t g = 0; g < canon->group_count; g++)
        for (size_t i = 0; i < canon->groups[g].param_count; i++) {
            ckpt_str name = canon->groups[g].params[i];
            all++;
            gone += name.data && ckpt__hash_get(r->c->replaced, name.data, name.size, NULL);
        }
    if (!gone || !has_target(r))
        return CKPT_OK;
    return ckpt__migration_note(
        r->m, CKPT_SEVERITY_NOTE, "replaced", (ckpt_str){NULL, 0}, r->err,
        "the other %zu parameter%s number%s and state; the new program loads the model with strict=False, and has its "
        "new parameters in the places of the old ones",
        all - gone, all - gone == 1 ? " keeps its" : "s keep their", all - gone == 1 ? "" : "s");
}

static ckpt_status note_unused(replacer *r)
{
    const ckpt_migrate_options *o = &r->m->options;
    ckpt__rule_names all = {.canonical = true, .among = r->weight};
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < o->replace_count; k++) {
        char said[300];
        snprintf(said, sizeof said, "--replace '%s'", o->replace[k]);
        if (!r->used[k])
            status = ckpt__rule_unused(r->m, said, "matches no tensor of a model", o->replace[k], &all, r->err);
    }
    return status;
}

static ckpt_status replace(replacer *r)
{
    find_weights(r);
    find_replaced(r);
    ckpt_status status = note_names(r);
    if (status == CKPT_OK)
        status = find_states(r);
    if (status == CKPT_OK)
        status = note_copies(r);
    if (status == CKPT_OK)
        status = note_replaced(r);
    if (status == CKPT_OK)
        status = note_kept(r);
    if (status == CKPT_OK)
        status = note_unused(r);
    return status == CKPT_OK ? ckpt__migrate_cut_named(r->m, r->containers, r->err) : status;
}

ckpt_status ckpt__migrate_replace(ckpt__migration *m, ckpt__chosen *c, ckpt_error *err)
{
    size_t n = m->from->tensor_count + 1;
    replacer r = {.m = m, .c = c, .err = err};
    if (!m->options.replace_count)
        return CKPT_OK;
    r.weight = calloc(n, sizeof *r.weight);
    r.goes = calloc(n, sizeof *r.goes);
    r.copy = calloc(n, sizeof *r.copy);
    r.states = calloc(n, sizeof *r.states);
    r.used = calloc(m->options.replace_count, sizeof *r.used);
    r.containers = ckpt__hash_new(16);
    c->replaced = ckpt__hash_new(16);
    bool room = r.weight && r.goes && r.copy && r.states && r.used && r.containers && c->replaced;
    ckpt_status status = room ? replace(&r) : ckpt__migration_no_memory(err);
    ckpt__hash_free(r.containers);
    free(r.weight);
    free(r.goes);
    free(r.copy);
    free(r.states);
    free(r.used);
    return status;
}
