/* migrate/resume.c - what directories that training programs resume from want of tensors, and the optimizer of the target's tree
 * taken apart. */
#include "migrate/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "model/flat_state.h"
#include "model/training.h"
#include "model/value_path.h"

static const char head[] = "optimizer.", step_tail[] = ".step";
enum { HEAD = sizeof head - 1, STEP_TAIL = sizeof step_tail - 1 };

/* ---- before the target is described */

/* A parameter that a group has. Numbers are those of canonical entries; SIZE_MAX: none. */
typedef struct owner {
    ckpt_str name;
    size_t weight, master, step;
    bool moments; /* it has exp_avg */
} owner;

typedef struct readying {
    ckpt__migration *m;
    owner *owners;
    size_t count;
    ckpt__hash *by_name; /* name of a parameter -> number of its owner */
    size_t doubles;      /* float64 tensors that become float32 */
    ckpt_error *err;
} readying;

static ckpt_status find_owners(readying *r)
{
    const ckpt__canon *c = r->m->canon;
    size_t most = 0;
    for (size_t g = 0; g < c->group_count; g++)
        most += c->groups[g].param_count;
    r->owners = calloc(most + 1, sizeof *r->owners);
    if (!r->owners)
        return ckpt__migration_no_memory(r->err);
    for (size_t g = 0; g < c->group_count; g++)
        for (size_t i = 0; i < c->groups[g].param_count; i++) {
            ckpt_str name = c->groups[g].params[i];
            int put = ckpt__hash_put(r->by_name, name.data, name.size, r->count, NULL);
            if (put < 0)
                return ckpt__migration_no_memory(r->err);
            if (put)
                r->owners[r->count++] = (owner){.name = name, .weight = SIZE_MAX, .master = SIZE_MAX, .step = SIZE_MAX};
        }
    return CKPT_OK;
}

static owner *owner_of(const readying *r, ckpt_str name)
{
    size_t i;
    return name.data && ckpt__hash_get(r->by_name, name.data, name.size, &i) ? &r->owners[i] : NULL;
}

/* A state that is a number stands among the values: "optimizer.<param>.step". */
static owner *owner_of_number(const readying *r, const ckpt__canon_entry *e)
{
    if (!e->value || e->name.size <= HEAD + STEP_TAIL || !ckpt__str_begins(e->name, head) ||
        !ckpt__str_ends(e->name, step_tail))
        return NULL;
    return owner_of(r, (ckpt_str){e->name.data + HEAD, e->name.size - HEAD - STEP_TAIL});
}

static void find_entries(readying *r)
{
    const ckpt__canon *c = r->m->canon;
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        owner *o = e->is_tensor ? owner_of(r, e->state_key.data ? e->param : e->name) : owner_of_number(r, e);
        if (!o || e->outside || (e->is_tensor && ckpt__stays_behind(r->m, e->tensor)))
            continue;
        if (!e->is_tensor || ckpt__str_is(e->state_key, "step"))
            o->step = i;
        else if (!e->state_key.data)
            o->weight = i;
        else if (e->role == CKPT_ROLE_MASTER)
            o->master = i;
        o->moments = o->moments || ckpt__str_is(e->state_key, "exp_avg");
    }
}

/* In files of their own tensors share no storage: each file would have all of it. */
static void set_apart(readying *r, size_t tensor)
{
    const ckpt__index *x = r->m->from;
    const ckpt__tensor *t = &x->tensors[tensor];
    if (r->m->ledger.rows[tensor].own == CKPT__OWN_NONE && ckpt__is_within_storage(x, t))
        r->m->ledger.rows[tensor].own = CKPT__OWN_CUT;
}

static void make_float(readying *r, size_t tensor)
{
    const ckpt_dtype dtype = r->m->from->tensors[tensor].info.dtype;
    if (dtype == CKPT_F32 || r->m->ledger.rows[tensor].cast != CKPT_DTYPE_NONE)
        return;
    r->m->ledger.rows[tensor].cast = CKPT_F32;
    r->doubles += dtype == CKPT_F64;
}

static void ready_tensors(readying *r)
{
    const ckpt__canon *c = r->m->canon;
    const bool universal = ckpt__is_universal(r->m);
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        const owner *o = e->is_tensor ? owner_of(r, e->state_key.data ? e->param : e->name) : NULL;
        if (!o || e->outside || ckpt__stays_behind(r->m, e->tensor) || (!e->state_key.data && !universal))
            continue;
        set_apart(r, e->tensor);
        const bool kept = !e->state_key.data && (o->master != SIZE_MAX || !o->moments);
        if (universal && !kept)
            make_float(r, e->tensor);
    }
}

/* ---- steps */

static bool is_exact(int64_t step)
{
    return step >= 0 && step <= INT64_C(1) << 40 && (int64_t)(float)step == step;
}

/* The step that stands for the parameter; -1: none does. */
static int64_t step_of(const readying *r, const owner *o)
{
    const ckpt__canon *c = r->m->canon;
    size_t i;
    const ckpt_value *v = o->step != SIZE_MAX                         ? c->entries[o->step].value
                          : ckpt__hash_get(c->by_name, "step", 4, &i) ? c->entries[i].value
                                                                      : NULL;
    if (v && v->kind == CKPT_V_INT)
        return v->integer;
    if (v && v->kind == CKPT_V_FLOAT && v->real >= 0 && v->real <= 1e12)
        return (int64_t)v->real;
    return o->step == SIZE_MAX ? r->m->from->step : -1;
}

static ckpt_status make_step(readying *r, owner *o)
{
    const int64_t step = step_of(r, o);
    return is_exact(step) ? ckpt__make_step(r->m, o->name, step, &o->step, r->err)
                          : CKPT_OK; /* the files say what is missing */
}

static ckpt_status make_steps(readying *r)
{
    ckpt__canon *c = r->m->canon;
    ckpt__canon_entry *entries = realloc(c->entries, (c->count + r->count + 1) * sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(r->err);
    c->entries = entries;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < r->count; i++) {
        owner *o = &r->owners[i];
        if (o->moments && (o->step == SIZE_MAX || !c->entries[o->step].is_tensor))
            status = make_step(r, o);
    }
    return status;
}

/* A file of a training loop has its step as a value. */
static void find_step(ckpt__migration *m)
{
    const ckpt__canon *c = m->canon;
    size_t i;
    const ckpt_value *v = ckpt__hash_get(c->by_name, "step", 4, &i) ? c->entries[i].value : NULL;
    const ckpt_value *root = m->from->root,
                     *steps[] = {v, ckpt__at(ckpt__at(root, "train_state"), "step"), /* torchtitan's */
                                 ckpt__at(ckpt__at(root, "trainer_state.json"), "global_step"),
                                 ckpt__at(ckpt__at(root, "trainer_state"), "global_step"),
                                 ckpt__at(root, "global_step")};
    for (size_t k = 0; m->from->step < 0 && k < sizeof steps / sizeof *steps; k++)
        if (steps[k] && steps[k]->kind == CKPT_V_INT && steps[k]->integer >= 0)
            m->from->step = steps[k]->integer;
}

/* Where nothing else says it: the optimizer's parameters have counted so many, each the same. */
static ckpt_status count_step(ckpt__migration *m, ckpt_error *err)
{
    enum { MOST = 64 };
    double step = -1, own;
    size_t count = 0;
    bool alike = true, read = false;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && m->from->step < 0 && alike && count < MOST && i < m->from->tensor_count;
         i++) {
        if (m->from->tensors[i].info.role != CKPT_ROLE_STEP || ckpt__stays_behind(m, i))
            continue;
        status = ckpt__read_number(m->reader->source, m->from, i, true, &own, &read, err);
        alike = status == CKPT_OK && read && (!count++ || own == step);
        step = own;
    }
    if (status < 0 || !count || !alike || step < 0 || step > 1e12 || step != (double)(int64_t)step)
        return status;
    m->from->step = (int64_t)step;
    return ckpt__migration_note(
        m, CKPT_SEVERITY_WARNING, "step-from-optimizer", (ckpt_str){NULL, 0}, err,
        "nothing in the checkpoint but its optimizer says which step it is of: each of its parameters "
        "has counted %lld",
        (long long)m->from->step);
}

ckpt_status ckpt__resume_step(ckpt__migration *m, ckpt_error *err)
{
    find_step(m);
    return count_step(m, err);
}

ckpt_status ckpt__resume_ready(ckpt__migration *m, ckpt_error *err)
{
    readying r = {.m = m, .by_name = ckpt__hash_new(64), .err = err};
    ckpt_status status = r.by_name ? find_owners(&r) : ckpt__migration_no_memory(err);
    if (status == CKPT_OK) {
        find_entries(&r);
        status = ckpt__resume_step(m, err);
    }
    if (status == CKPT_OK) {
        status = make_steps(&r);
    }
    if (status == CKPT_OK)
        ready_tensors(&r);
    if (status == CKPT_OK && r.doubles)
        status = ckpt__lose(m, err, "the float64 values of %zu tensor%s, which DeepSpeed has as float32", r.doubles,
                            r.doubles == 1 ? "" : "s");
    ckpt__hash_free(r.by_name);
    free(r.owners);
    return status;
}

/* ---- dicts */

void ckpt__made_put(ckpt__made_dict *d, const ckpt_value *key, const ckpt_value *value)
{
    if (d->failed || !key || !value || !ckpt__grow(&d->entries, &d->capacity, d->count + 1, sizeof *d->entries))
        d->failed = true;
    else
        d->entries[d->count++] = (ckpt_entry){key, value};
}

void ckpt__made_put_as(ckpt__made_dict *d, const char *key, const ckpt_value *value)
{
    ckpt__made_put(d, ckpt__value_str(d->arena, key, strlen(key)), value);
}

const ckpt_value *ckpt__made_finish(ckpt__made_dict *d)
{
    const ckpt_value *v = d->failed ? NULL : ckpt__value_dict(d->arena, d->entries, d->count);
    free(d->entries);
    *d = (ckpt__made_dict){.arena = d->arena};
    return v;
}

const ckpt_value *ckpt__made_without(ckpt__arena *a, const ckpt_value *dict, const ckpt_value *value)
{
    ckpt__made_dict d = {.arena = a};
    for (size_t i = 0; i < dict->entry_count; i++)
        if (dict->entries[i].value != value)
            ckpt__made_put(&d, dict->entries[i].key, dict->entries[i].value);
    return ckpt__made_finish(&d);
}

/* ---- the optimizer of the target's tree */

const ckpt_value *ckpt__master_in(const ckpt__migration *m, const ckpt_value *state)
{
    for (size_t i = 0; state && i < state->entry_count; i++) {
        const ckpt_value *v = state->entries[i].value;
        if (v->kind == CKPT_V_TENSOR && m->index->tensors[v->tensor].info.role == CKPT_ROLE_MASTER)
            return v;
    }
    return NULL;
}

const ckpt_value *ckpt__at(const ckpt_value *dict, const char *key)
{
    const ckpt_entry *e = dict && dict->kind == CKPT_V_DICT ? ckpt__find_entry(dict, key) : NULL;
    return e ? e->value : NULL;
}

static const ckpt_value *state_of(const ckpt_value *states, const ckpt_value *id)
{
    for (size_t i = 0; id->kind == CKPT_V_INT && states && i < states->entry_count; i++)
        if (states->entries[i].key->kind == CKPT_V_INT && states->entries[i].key->integer == id->integer)
            return states->entries[i].value;
    return NULL;
}

/* Ids run through the groups, and so do the states: the one that is looked for is mostly the next. */
static const ckpt_value *next_state(const ckpt_value *states, const ckpt_value *id, size_t *next)
{
    if (states && *next < states->entry_count && states->entries[*next].key->kind == CKPT_V_INT &&
        id->kind == CKPT_V_INT && states->entries[*next].key->integer == id->integer)
        return states->entries[(*next)++].value;
    return state_of(states, id);
}

static ckpt_status take_group(const ckpt_value *group, size_t number, const ckpt_value *states, size_t *next,
                              ckpt__trained_parts *out, size_t *capacity, ckpt_error *err)
{
    const ckpt_value *ids = ckpt__at(group, "params"), *names = ckpt__at(group, "param_names");
    for (size_t i = 0; ckpt__is_list(ids) && ckpt__is_list(names) && i < ids->item_count && i < names->item_count;
         i++) {
        const ckpt_value *name = names->items[i];
        const ckpt_value *state = next_state(states, ids->items[i], next);
        if (name->kind != CKPT_V_STR)
            continue;
        int put = ckpt__hash_put(out->by_name, name->text.data, name->text.size, out->count, NULL);
        if (put < 0 || !ckpt__grow(&out->params, capacity, out->count + 1, sizeof *out->params))
            return ckpt__migration_no_memory(err);
        if (put)
            out->params[out->count++] =
                (ckpt__trained){.name = name->text, .group = number, .state = state, .weight = SIZE_MAX};
    }
    return CKPT_OK;
}

ckpt_status ckpt__trained_take(const ckpt__migration *m, ckpt__trained_parts *out, ckpt_error *err)
{
    const ckpt__canon *c = m->canon;
    const bool own = ckpt__by_position(m);
    const ckpt_value *optimizer = own ? ckpt__value_at(m->root, c->unnamed) : ckpt__at(m->root, "optimizer"),
                     *states = ckpt__at(optimizer, "state"),
                     *model = !own                 ? ckpt__at(m->root, "model")
                              : c->model_path.data ? ckpt__value_at(m->root, c->model_path)
                                                   : NULL;
    size_t next = 0, capacity = 0, at;
    *out = (ckpt__trained_parts){.model = model, .optimizer = optimizer, .by_name = ckpt__hash_new(64)};
    const ckpt_value *groups = ckpt__at(optimizer, "param_groups");
    out->groups = ckpt__is_list(groups) ? groups : NULL;
    ckpt_status status = out->by_name ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t g = 0; status == CKPT_OK && out->groups && g < out->groups->item_count; g++)
        status = take_group(out->groups->items[g], g, states, &next, out, &capacity, err);
    for (size_t i = 0; status == CKPT_OK && out->model && i < out->model->entry_count; i++) {
        const ckpt_entry *e = &out->model->entries[i];
        if (e->key->kind == CKPT_V_STR && e->value->kind == CKPT_V_TENSOR &&
            ckpt__hash_get(out->by_name, e->key->text.data, e->key->text.size, &at))
            out->params[at].weight = e->value->tensor;
    }
    return status;
}

void ckpt__trained_free(ckpt__trained_parts *o)
{
    ckpt__hash_free(o->by_name);
    free(o->params);
}

const ckpt_value *ckpt__settings_of(ckpt__arena *a, const ckpt_value *group)
{
    ckpt__made_dict d = {.arena = a};
    for (size_t i = 0; i < group->entry_count; i++) {
        const ckpt_value *key = group->entries[i].key;
        if (key->kind == CKPT_V_STR && (ckpt__str_is(key->text, "params") || ckpt__str_is(key->text, "param_names")))
            continue;
        ckpt__made_put(&d, key, group->entries[i].value);
    }
    ckpt__made_put_as(&d, "params", ckpt__value_list(a, CKPT_V_LIST, NULL, 0));
    return ckpt__made_finish(&d);
}

/* Of each parameter, the number of its group. */
static ckpt__hash *groups_by_name(const ckpt_value *groups)
{
    ckpt__hash *h = ckpt__hash_new(64);
    for (size_t g = 0; h && ckpt__is_list(groups) && g < groups->item_count; g++) {
        const ckpt_value *names = ckpt__at(groups->items[g], "param_names");
        for (size_t i = 0; h && ckpt__is_list(names) && i < names->item_count; i++) {
            const ckpt_str name = names->items[i]->text;
            if (names->items[i]->kind == CKPT_V_STR && ckpt__hash_put(h, name.data, name.size, g, NULL) < 0) {
                ckpt__hash_free(h);
                h = NULL;
            }
        }
    }
    return h;
}

/* A setting that was flattened ("param_groups.w.lr", model/flat_state.h) and is one of w's group. *by_name is made when it is needed. */
static bool is_of_group(const ckpt_value *groups, const ckpt_entry *e, ckpt__hash **by_name, bool *failed)
{
    const ckpt_str none = {"", 0};
    ckpt_str param, what;
    size_t g;
    bool group;
    if (!ckpt__is_list(groups) || !ckpt__flat_key(e->key->text, none, &group, &param, &what) || !group)
        return false;
    if (!*by_name && !(*by_name = groups_by_name(groups))) {
        *failed = true;
        return false;
    }
    if (!ckpt__hash_get(*by_name, param.data, param.size, &g))
        return false;
    const ckpt_value *own = groups->items[g];
    for (size_t i = 0; i < own->entry_count; i++)
        if (own->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(own->entries[i].key->text, what))
            return ckpt__value_alike(own->entries[i].value, e->value);
    return false;
}

ckpt_status ckpt__lose_settings(ckpt__migration *m, const ckpt_value *optimizer, ckpt_error *err)
{
    const ckpt_value *groups = ckpt__at(optimizer, "param_groups");
    ckpt__hash *by_name = NULL;
    ckpt_status status = CKPT_OK;
    bool failed = false;
    char shown[120];
    for (size_t i = 0; status == CKPT_OK && !failed && i < optimizer->entry_count; i++) {
        const ckpt_value *key = optimizer->entries[i].key;
        const ckpt_str name = key->kind == CKPT_V_STR ? key->text : ckpt__s("a value whose key is not text");
        if (ckpt__str_is(name, "state") || ckpt__str_is(name, "param_groups") ||
            (key->kind == CKPT_V_STR && is_of_group(groups, &optimizer->entries[i], &by_name, &failed)))
            continue;
        if (!failed)
            status = ckpt__lose(m, err, "'%s' of the optimizer, which is neither a state nor a group's",
                                ckpt__escape(shown, sizeof shown, name.data, name.size));
    }
    ckpt__hash_free(by_name);
    return failed ? ckpt__migration_no_memory(err) : status;
}

const ckpt_value *ckpt__scheduler_of(const ckpt_value *root)
{
    static const char *const names[] = {"lr_scheduler", "scheduler", "scheduler.pt", "scheduler.bin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ckpt_value *v = ckpt__at(root, names[i]);
        if (v && v->kind == CKPT_V_DICT)
            return v;
    }
    return NULL;
}

/* ---- words */

void ckpt__put_name(ckpt__buf *b, size_t number, ckpt_str name)
{
    enum { SHOWN = 4 };
    char shown[120];
    if (number < SHOWN)
        ckpt__buf_printf(b, "%s%s", number ? ", " : "", ckpt__escape(shown, sizeof shown, name.data, name.size));
    else if (number == SHOWN)
        ckpt__buf_str(b, ", ...");
}

ckpt_status ckpt__lose(ckpt__migration *m, ckpt_error *err, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", text)
               ? CKPT_OK
               : ckpt__migration_no_memory(err);
}

ckpt_status ckpt__warn(ckpt__migration *m, const char *code, ckpt_error *err, const char *fix, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ckpt__report_add(m->report, CKPT_SEVERITY_WARNING, code, NULL, fix, "%s", text)
               ? CKPT_OK
               : ckpt__migration_no_memory(err);
}

/* ---- devices */

void ckpt__tag_as_host(const ckpt__migration *m)
{
    for (size_t i = 0; !m->map && i < m->index->tensor_count; i++)
        if (!ckpt__has_no_bytes(&m->index->tensors[i]))
            m->index->tensors[i].info.device = ckpt__s("cpu");
    for (size_t i = 0; !m->map && i < m->index->storage_count; i++)
        m->index->storages[i].device = ckpt__s("cpu");
}
