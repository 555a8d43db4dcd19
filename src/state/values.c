/* state/values.c - binding scalars, strings, bytes, groups and the scaler. */
#include "state/state.h"
#include "base/first_sizes.h"

#include <stdlib.h>

static ckpt_status add_scalar(ckpt_state *s, const char *name, ckpt__scalar_kind kind, void *data, size_t size,
                              ckpt_error *err)
{
    if (!s || !name || !*name || !data)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name ? name : "scalar", "a NULL state or variable, or an empty name");
    if (ckpt__begins(name, "ckpt.") || !ckpt__utf8_valid(name, strlen(name)))
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "names are UTF-8 and do not begin with 'ckpt.'");
    ckpt__scalar v = {ckpt__arena_str(s->memory, name, strlen(name)), kind, data, size, SIZE_MAX, false};
    if (!v.name.data || !ckpt__grow(&s->scalars, &s->scalar_capacity, s->scalar_count + 1, sizeof *s->scalars))
        return ckpt__fail_memory(err, name, 0);
    int put = ckpt__hash_put(s->names, v.name.data, v.name.size, CKPT__SCALAR_BASE + s->scalar_count, NULL);
    if (put < 0)
        return ckpt__fail_memory(err, name, 0);
    if (put == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "this name is bound already");
    s->scalars[s->scalar_count++] = v;
    return CKPT_OK;
}

ckpt_status ckpt_state_i64(ckpt_state *s, const char *name, int64_t *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_I64, value, sizeof *value, err);
}

ckpt_status ckpt_state_i32(ckpt_state *s, const char *name, int32_t *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_I32, value, sizeof *value, err);
}

ckpt_status ckpt_state_u32(ckpt_state *s, const char *name, uint32_t *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_U32, value, sizeof *value, err);
}

ckpt_status ckpt_state_u64(ckpt_state *s, const char *name, uint64_t *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_U64, value, sizeof *value, err);
}

ckpt_status ckpt_state_f64(ckpt_state *s, const char *name, double *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_F64, value, sizeof *value, err);
}

ckpt_status ckpt_state_f32(ckpt_state *s, const char *name, float *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_F32, value, sizeof *value, err);
}

ckpt_status ckpt_state_bool(ckpt_state *s, const char *name, bool *value, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_BOOL, value, sizeof *value, err);
}

ckpt_status ckpt_state_string(ckpt_state *s, const char *name, char *buffer, size_t size, ckpt_error *err)
{
    if (size == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "a buffer of 0 bytes holds no string");
    return add_scalar(s, name, CKPT__S_STRING, buffer, size, err);
}

ckpt_status ckpt_state_bytes(ckpt_state *s, const char *name, void *data, size_t size, ckpt_error *err)
{
    return add_scalar(s, name, CKPT__S_BYTES, data, size, err);
}

ckpt_status ckpt_state_scaler(ckpt_state *s, const char *name, ckpt_scaler *scaler, ckpt_error *err)
{
    if (!s || !name || !scaler)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_scaler", "a NULL state, name or scaler");
    const struct {
        const char *key;
        ckpt__scalar_kind kind;
        void *data;
    } parts[] = {
        {"scale", CKPT__S_F64, &scaler->scale},
        {"growth_factor", CKPT__S_F64, &scaler->growth_factor},
        {"backoff_factor", CKPT__S_F64, &scaler->backoff_factor},
        {"growth_interval", CKPT__S_I64, &scaler->growth_interval},
        {"_growth_tracker", CKPT__S_I64, &scaler->growth_tracker},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ckpt__buf full = {0};
        ckpt__buf_printf(&full, "%s.%s", name, parts[i].key);
        ckpt_status status = full.failed ? ckpt__fail_memory(err, name, 0)
                                         : add_scalar(s, full.data, parts[i].kind, parts[i].data, 8, err);
        ckpt__buf_free(&full);
        if (status < 0)
            return status;
        s->scalars[s->scalar_count - 1].scaler = true;
    }
    return CKPT_OK;
}

/* "optimizer.groups.<g>.<key>", bound to nothing yet? Asked of all before the first is bound. */
static ckpt_status check_hyper(const ckpt_state *s, const ckpt_group_desc *g, size_t i, ckpt_error *err)
{
    const ckpt_hyper *h = &g->hypers[i];
    if (!h->key || !*h->key || !ckpt__utf8_valid(h->key, strlen(h->key)) || !h->data || h->type < CKPT_SCALAR_F32 ||
        h->type > CKPT_SCALAR_U64)
        return ckpt__fail(err, CKPT_E_ARGUMENT, g->name,
                          "hyper-parameter %zu has no key, no variable or an unknown type", i);
    if (strcmp(h->key, "params") == 0 || ckpt__begins(h->key, "params."))
        return ckpt__fail(err, CKPT_E_ARGUMENT, g->name,
                          "hyper-parameter '%s': 'params' is the list of the group's parameters", h->key);
    bool taken = false;
    for (size_t k = 0; k < i; k++)
        taken |= strcmp(g->hypers[k].key, h->key) == 0;
    ckpt__buf full = {0};
    ckpt__buf_printf(&full, "optimizer.groups.%s.%s", g->name, h->key);
    bool failed = full.failed;
    taken |= !failed && ckpt__hash_get(s->names, full.data, full.size, &(size_t){0});
    ckpt__buf_free(&full);
    if (failed)
        return ckpt__fail_memory(err, g->name, 0);
    return taken ? ckpt__fail(err, CKPT_E_ARGUMENT, g->name, "hyper-parameter '%s' is bound already", h->key) : CKPT_OK;
}

ckpt_status ckpt_state_group(ckpt_state *s, const ckpt_group_desc *desc, ckpt_error *err)
{
    ckpt_group_desc own;
    const ckpt_group_desc *g = &own;
    if (!s || !desc)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_group", "a NULL state or descriptor");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_group_desc, &own, desc, err);
    if (status < 0)
        return status;
    if (!g->name || !*g->name || (g->param_count && !g->params) || (g->hyper_count && !g->hypers))
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_group", "a NULL name or list");
    if (!ckpt__utf8_valid(g->name, strlen(g->name)))
        return ckpt__fail(err, CKPT_E_ARGUMENT, g->name, "names are UTF-8");
    for (size_t i = 0; i < s->group_count; i++)
        if (ckpt__str_is(s->groups[i].name, g->name))
            return ckpt__fail(err, CKPT_E_ARGUMENT, g->name, "a group of this name is bound already");
    ckpt__group group = {ckpt__arena_str(s->memory, g->name, strlen(g->name)), NULL, g->param_count};
    group.params = ckpt__arena_array(s->memory, g->param_count + 1, sizeof *group.params);
    if (!group.name.data || !group.params ||
        !ckpt__grow(&s->groups, &s->group_capacity, s->group_count + 1, sizeof *s->groups))
        return ckpt__fail_memory(err, g->name, 0);
    for (size_t i = 0; i < g->param_count; i++) {
        const ckpt__binding *b = g->params[i] ? ckpt__state_find(s, g->params[i], strlen(g->params[i])) : NULL;
        if (!b)
            return ckpt__fail(err, CKPT_E_NOT_FOUND, g->params[i] ? g->params[i] : g->name,
                              "group '%s' names a parameter that is not bound; bind the parameters first", g->name);
        group.params[i] = b->name;
    }
    for (size_t i = 0; i < g->hyper_count; i++)
        if ((status = check_hyper(s, g, i, err)) < 0)
            return status;
    size_t number = s->group_count;
    s->groups[s->group_count++] = group; /* first: no hyper-parameter is ever without its group */
    for (size_t i = 0; i < g->hyper_count; i++) {
        const ckpt_hyper *h = &g->hypers[i];
        ckpt__buf full = {0};
        ckpt__buf_printf(&full, "optimizer.groups.%s.%s", g->name, h->key);
        ckpt_str key = ckpt__arena_str(s->memory, h->key, strlen(h->key));
        status = full.failed || !key.data ? ckpt__fail_memory(err, g->name, 0)
                                          : add_scalar(s, full.data, (ckpt__scalar_kind)h->type, h->data, 0, err);
        ckpt__buf_free(&full);
        if (status < 0)
            return status;
        s->scalars[s->scalar_count - 1].group = number;
        s->scalars[s->scalar_count - 1].name = key;
    }
    return CKPT_OK;
}

ckpt_status ckpt_state_optional(ckpt_state *s, const char *glob, ckpt_error *err)
{
    if (!s || !glob)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_optional", "a NULL state or glob");
    ckpt_str copy = ckpt__arena_str(s->memory, glob, strlen(glob));
    if (!copy.data || !ckpt__grow(&s->optional, &s->optional_capacity, s->optional_count + 1, sizeof *s->optional))
        return ckpt__fail_memory(err, glob, 0);
    s->optional[s->optional_count++] = copy;
    return CKPT_OK;
}

ckpt_status ckpt_state_replace(ckpt_state *s, const char *glob, ckpt_error *err)
{
    if (!s || !glob)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_replace", "a NULL state or glob");
    ckpt_str copy = ckpt__arena_str(s->memory, glob, strlen(glob));
    if (!copy.data || !ckpt__grow(&s->replace, &s->replace_capacity, s->replace_count + 1, sizeof *s->replace))
        return ckpt__fail_memory(err, glob, 0);
    s->replace[s->replace_count++] = copy;
    return CKPT_OK;
}

bool ckpt__state_is_optional(const ckpt_state *s, ckpt_str name)
{
    for (size_t i = 0; i < s->optional_count; i++)
        if (ckpt__glob(s->optional[i].data, s->optional[i].size, name.data, name.size))
            return true;
    return false;
}

void ckpt__scalar_name(const ckpt_state *s, const ckpt__scalar *v, ckpt__buf *b)
{
    if (v->group != SIZE_MAX)
        ckpt__buf_printf(b, "optimizer.groups.%s.", s->groups[v->group].name.data);
    ckpt__buf_add(b, v->name.data, v->name.size);
}

ckpt__scalar *ckpt__state_scalar(const ckpt_state *s, const char *name, size_t n)
{
    size_t i;
    if (!ckpt__hash_get(s->names, name, n, &i) || i < CKPT__SCALAR_BASE || i >= CKPT__LENT_BASE)
        return NULL;
    return &s->scalars[i - CKPT__SCALAR_BASE];
}

bool ckpt__scalar_integer(const ckpt__scalar *v, int64_t *value)
{
    int32_t i32;
    uint32_t u32;
    uint64_t u64;
    if (!v->data)
        return false;
    switch (v->kind) {
    case CKPT__S_I32:
        memcpy(&i32, v->data, sizeof i32);
        *value = i32;
        return true;
    case CKPT__S_I64:
        memcpy(value, v->data, sizeof *value);
        return true;
    case CKPT__S_U32:
        memcpy(&u32, v->data, sizeof u32);
        *value = u32;
        return true;
    case CKPT__S_U64:
        memcpy(&u64, v->data, sizeof u64);
        *value = u64 > INT64_MAX ? INT64_MAX : (int64_t)u64;
        return true;
    default:
        return false;
    }
}

bool ckpt__state_step(const ckpt_state *s, int64_t *value)
{
    const ckpt__scalar *step = ckpt__state_scalar(s, "step", 4);
    return step && ckpt__scalar_integer(step, value);
}
