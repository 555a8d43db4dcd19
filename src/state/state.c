/* state/state.c - binding tensors. Scalars and groups: values.c; memory that moves: moves.c. */
#include "state/state.h"

#include <stdlib.h>
#include "base/first_sizes.h"
#include "device/device.h"

ckpt_state *ckpt_state_new(void)
{
    ckpt_state *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->memory = ckpt__arena_new(0);
    s->names = ckpt__hash_new(64);
    if (!s->memory || !s->names) {
        ckpt_state_free(s);
        return NULL;
    }
    ckpt__state_changed(s);
    return s;
}

void ckpt__state_changed(ckpt_state *s)
{
    static uint64_t versions;
    s->version = __atomic_add_fetch(&versions, 1, __ATOMIC_RELAXED);
}

void ckpt__memory_release(ckpt_device device, void *data)
{
    const ckpt__device_ops *ops = ckpt__device_ops_of(device.type);
    if (ops && data)
        ops->release(device.index < 0 ? 0 : device.index, data, NULL);
}

ckpt_status ckpt__memory_new(ckpt_device device, uint64_t nbytes, void **data, ckpt_error *err)
{
    const ckpt__device_ops *ops = ckpt__device_ops_of(device.type);
    int ordinal = device.index < 0 ? 0 : device.index;
    *data = NULL;
    if (nbytes > SIZE_MAX / 2)
        return ckpt__fail_memory(err, "tensor", nbytes);
    ckpt_status status = ckpt_device_check(device, err);
    if (status == CKPT_OK)
        status = ops->alloc(ordinal, (size_t)nbytes, data, err);
    if (status == CKPT_OK && nbytes && (status = ops->zero(ordinal, *data, (size_t)nbytes, NULL, err)) < 0) {
        ops->release(ordinal, *data, NULL);
        *data = NULL;
    }
    return status;
}

void ckpt_state_free(ckpt_state *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        if (s->bindings[i].ours && s->bindings[i].arena == CKPT__NO_ARENA)
            ckpt__memory_release(s->bindings[i].memory.device, s->bindings[i].data);
    for (size_t i = 0; i < s->arena_count; i++)
        ckpt__memory_release(s->arenas[i].device, s->arenas[i].data);
    ckpt__arena_free(s->memory);
    ckpt__hash_free(s->names);
    ckpt__spans_free(s->spans);
    free(s->bindings);
    free(s->scalars);
    free(s->values);
    free(s->groups);
    free(s->aliases);
    free(s->arenas);
    free(s->lent);
    free(s->streams);
    free(s->optional);
    free(s->replace);
    free(s);
}

ckpt_device ckpt__memory_device(const ckpt_memory *m)
{
    return m->kind == CKPT_MEMORY_DEVICE ? m->device : ckpt_cpu();
}

ckpt__binding *ckpt__state_find(const ckpt_state *s, const char *name, size_t n)
{
    size_t i;
    if (!ckpt__hash_get(s->names, name, n, &i) || i >= CKPT__SCALAR_BASE)
        return NULL;
    if (i >= CKPT__ALIAS_BASE) {
        ckpt_str of = s->aliases[i - CKPT__ALIAS_BASE].of;
        if (!ckpt__hash_get(s->names, of.data, of.size, &i) || i >= CKPT__ALIAS_BASE)
            return NULL;
    }
    return &s->bindings[i];
}

bool ckpt__state_has_weights(const ckpt_state *s)
{
    bool has = s->alias_count > 0;
    for (size_t i = 0; i < s->count && !has; i++)
        has = s->bindings[i].role == CKPT_ROLE_PARAM || s->bindings[i].role == CKPT_ROLE_BUFFER;
    return has;
}

bool ckpt__state_wants(const void *state, ckpt_str name)
{
    const ckpt_state *s = state;
    size_t i;
    if (!ckpt__hash_get(s->names, name.data, name.size, &i) || i >= CKPT__SCALAR_BASE)
        return false;
    return i >= CKPT__ALIAS_BASE || s->bindings[i].role == CKPT_ROLE_PARAM || s->bindings[i].role == CKPT_ROLE_BUFFER;
}

bool ckpt__state_binds_so(const void *state, ckpt_str name, const ckpt_tensor_info *t)
{
    const ckpt__binding *b = ckpt__state_find(state, name.data, name.size);
    return b && ckpt__same_shape(b->shape, b->ndim, t->shape, t->ndim);
}

ckpt_status ckpt__state_check_memory(const ckpt_state *s, const ckpt__binding *b, ckpt_error *err)
{
    (void)s;
    if (b->nbytes == 0)
        return CKPT_OK;
    if (!b->data) /* the caller's: ckpt__state_check_bound */
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data,
                          "it has no memory yet: restore a checkpoint or call ckpt_state_allocate first");
    if (b->memory.kind == CKPT_MEMORY_SPLIT)
        return ckpt__fail(err, CKPT_E_DEVICE, b->name.data, "its %llu bytes lie in more than one allocation or device",
                          (unsigned long long)b->span);
    if (b->memory.kind == CKPT_MEMORY_UNMAPPED)
        return ckpt__fail(
            err, CKPT_E_DEVICE, b->name.data,
            "its pointer is a device address outside any live allocation: bind it again with ckpt_state_rebind");
    return CKPT_OK;
}

ckpt_status ckpt__state_check_now(const ckpt_state *s, const ckpt__binding *b, ckpt__known *known, ckpt_error *err)
{
    if (b->memory.kind != CKPT_MEMORY_DEVICE)
        return ckpt__state_check_memory(s, b, err);
    ckpt__binding now = *b;
    char was[CKPT_DEVICE_NAME_MAX], is[CKPT_DEVICE_NAME_MAX];
    if (!b->ours && b->data && b->span) {
        ckpt_status status = ckpt__device_query(b->data, (size_t)b->span, &now.memory, known, err);
        if (status < 0)
            return ckpt__fail_tensor(err, status, b->name);
    }
    ckpt_status status = ckpt__state_check_memory(s, &now, err);
    if (status < 0 || ckpt_device_equal(ckpt__memory_device(&now.memory), ckpt__memory_device(&b->memory)))
        return status;
    return ckpt__fail(
        err, CKPT_E_DEVICE, b->name.data,
        "its pointer was on %s when it was bound and is on %s now: its memory was freed; bind it again with ckpt_state_rebind",
        ckpt_device_name(ckpt__memory_device(&b->memory), was), ckpt_device_name(ckpt__memory_device(&now.memory), is));
}

static const char *const default_keys[CKPT__ROLE_COUNT] = {
    [CKPT_ROLE_EXP_AVG] = "exp_avg",
    [CKPT_ROLE_EXP_AVG_SQ] = "exp_avg_sq",
    [CKPT_ROLE_MAX_EXP_AVG_SQ] = "max_exp_avg_sq",
    [CKPT_ROLE_MOMENTUM] = "momentum_buffer",
    [CKPT_ROLE_MASTER] = "master",
    [CKPT_ROLE_STEP] = "step",
};

ckpt_status ckpt__state_check_name(ckpt_str name, const char *what, ckpt_error *err)
{
    if (name.size == 0 || name.size > 4096 || !ckpt__utf8_valid(name.data, name.size))
        return ckpt__fail(err, CKPT_E_ARGUMENT, what, "a name of 1 to 4096 bytes of UTF-8 is expected");
    if (ckpt__begins(name.data, "ckpt.") || ckpt__str_is(name, "__metadata__"))
        return ckpt__fail(err, CKPT_E_ARGUMENT, what,
                          "names that begin with 'ckpt.', and '__metadata__', are the format's own");
    return CKPT_OK;
}

/* Where a tensor that is bound lies: in an arena of ours or of the caller's, or in none. */
typedef struct place {
    uint32_t arena, lent; /* NO_ARENA: none */
    uint64_t offset;      /* bytes, in the arena */
    const char *average;  /* what stands before the parameter's name in that of a CKPT_ROLE_EMA; NULL: "ema" */
} place;

/* The canonical name: the given one, or optimizer.<param>.<state_key>, or of an average ema.<param>. */
static ckpt_status name_of(ckpt_state *s, const ckpt_tensor_desc *d, const place *at, ckpt__binding *b, ckpt_error *err)
{
    const char *key = d->state_key ? d->state_key : d->role < CKPT__ROLE_COUNT ? default_keys[d->role] : NULL;
    const char *what = d->name ? d->name : d->param ? d->param : "tensor";
    const ckpt_str param = ckpt__s(d->param), dot = {".", 1};
    if (d->name)
        b->name = ckpt__arena_str(s->memory, d->name, strlen(d->name));
    else if (d->role == CKPT_ROLE_EMA && d->param)
        b->name = ckpt__arena_join(s->memory, ckpt__s(at->average ? at->average : "ema"), dot, param);
    else if (!d->param || !key)
        return ckpt__fail(err, CKPT_E_ARGUMENT, what, "a tensor needs a name, or a param and a role with a state_key");
    else {
        ckpt__buf text = {0};
        ckpt__buf_str(&text, "optimizer.");
        ckpt__buf_add(&text, param.data, param.size);
        ckpt__buf_char(&text, '.');
        ckpt__buf_str(&text, key);
        if (!text.failed)
            b->name = ckpt__arena_str(s->memory, text.data, text.size);
        ckpt__buf_free(&text);
    }
    bool failed = !b->name.data;
    if (d->param) {
        b->param = ckpt__arena_str(s->memory, param.data, param.size);
        failed |= !b->param.data;
    }
    if (key && ckpt_role_is_optimizer(d->role)) {
        b->state_key = ckpt__arena_str(s->memory, key, strlen(key));
        failed |= !b->state_key.data;
    }
    if (failed)
        return ckpt__fail_memory(err, what, 0);
    return ckpt__state_check_name(b->name, what, err);
}

static int by_stride(const void *a, const void *b)
{
    int64_t x = ((const int64_t *)a)[0], y = ((const int64_t *)b)[0];
    return x < y ? -1 : x > y;
}

/* A target must hold each element once: sorted by stride, each stride reaches past all that the smaller ones span. */
static bool strides_are_distinct(const int64_t *shape, const int64_t *strides, uint32_t ndim)
{
    int64_t pairs[CKPT__STRIDED_MAX][2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] <= 1)
            continue;
        if (n == CKPT__STRIDED_MAX)
            return false;
        pairs[n][0] = strides[i];
        pairs[n++][1] = shape[i];
    }
    qsort(pairs, n, sizeof pairs[0], by_stride);
    int64_t reach = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pairs[i][0] <= reach)
            return false;
        reach += pairs[i][0] * (pairs[i][1] - 1);
    }
    return true;
}

static ckpt_status shape_of(ckpt_state *s, const ckpt_tensor_desc *d, ckpt__binding *b, ckpt_error *err)
{
    uint64_t numel, reach;
    size_t size = ckpt_dtype_size(d->dtype);
    if (size == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data,
                          "dtype '%s' cannot be bound; elements of whole bytes are expected",
                          ckpt_dtype_name(d->dtype));
    if (d->ndim > CKPT__STRIDED_MAX || (d->ndim && !d->shape))
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data, "a shape of %u sizes (at most %d, and not NULL)", d->ndim,
                          CKPT__STRIDED_MAX);
    if (!ckpt__numel(d->shape, d->ndim, &numel) || !ckpt__mul(numel, size, &b->nbytes) || b->nbytes > INT64_MAX)
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data, "its shape has a negative size or overflows 64 bits");
    const int64_t *copy = ckpt__view_keep(&s->view, s->memory, d->shape, d->strides, d->ndim);
    if (!copy)
        return ckpt__fail_memory(err, b->name.data, 0);
    if (!ckpt__view_extent(copy, copy + d->ndim, d->ndim, &reach) || !ckpt__mul(reach, size, &b->span) ||
        b->span > INT64_MAX)
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data, "its strides are negative or overflow 64 bits");
    if (numel && !strides_are_distinct(copy, copy + d->ndim, d->ndim))
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data,
                          "its strides are zero or overlap: a target must have a place of its own for each element");
    if (!d->data && d->strides && !ckpt__is_c_order(copy, copy + d->ndim, d->ndim))
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data,
                          "a tensor that ckpt allocates (data NULL) is in C order: no strides");
    b->dtype = d->dtype;
    b->ndim = (uint16_t)d->ndim;
    b->shape = copy;
    b->strides = copy + d->ndim;
    return CKPT_OK;
}

static ckpt_status add_name(ckpt_state *s, ckpt_str name, size_t value, ckpt_error *err)
{
    int put = ckpt__hash_put(s->names, name.data, name.size, value, NULL);
    if (put < 0)
        return ckpt__fail_memory(err, name.data, 0);
    return put ? CKPT_OK : ckpt__fail(err, CKPT_E_ARGUMENT, name.data, "this name is bound already");
}

static ckpt_status bind(ckpt_state *s, const ckpt_tensor_desc *d, const place *at, ckpt_error *err)
{
    ckpt__binding b = {.role = d->role,
                       .arena = at->arena,
                       .lent = at->lent,
                       .arena_offset = at->offset,
                       .data = d->data,
                       .wanted = d->device};
    ckpt_status status = name_of(s, d, at, &b, err);
    if (status == CKPT_OK)
        status = shape_of(s, d, &b, err);
    if (status < 0)
        return status;
    if (d->role <= CKPT_ROLE_NONE || d->role >= CKPT__ROLE_COUNT)
        b.role = CKPT_ROLE_OTHER;
    b.ours = !d->data;
    b.memory.device = ckpt_cpu();
    if (b.ours && d->device.type != CKPT_DEVICE_NONE && d->device.type != CKPT_DEVICE_CPU &&
        d->device.type != CKPT_DEVICE_CUDA)
        return ckpt__fail(err, CKPT_E_ARGUMENT, b.name.data, "a device of cpu or cuda:N is expected");
    if (d->data && b.span && (status = ckpt_device_query(d->data, (size_t)b.span, &b.memory, err)) < 0)
        return ckpt__fail_tensor(err, status, b.name);
    if (s->count >= CKPT__ALIAS_BASE)
        return ckpt__fail(err, CKPT_E_LIMIT, b.name.data, "a state holds at most %d tensors", CKPT__ALIAS_BASE);
    if (!ckpt__grow(&s->bindings, &s->capacity, s->count + 1, sizeof *s->bindings))
        return ckpt__fail_memory(err, b.name.data, 0);
    if ((status = add_name(s, b.name, s->count, err)) < 0)
        return status;
    s->bindings[s->count] = b;
    if ((status = ckpt__spans_add(s, s->count, err)) < 0) {
        ckpt__hash_take_back(s->names);
        return status;
    }
    s->count++;
    ckpt__state_changed(s);
    return CKPT_OK;
}

ckpt_status ckpt_state_tensor(ckpt_state *s, const ckpt_tensor_desc *desc, ckpt_error *err)
{
    ckpt_tensor_desc d;
    if (!s || !desc)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_tensor", "a NULL state or descriptor");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_tensor_desc, &d, desc, err);
    return status < 0 ? status : bind(s, &d, &(place){.arena = CKPT__NO_ARENA, .lent = CKPT__NO_ARENA}, err);
}

/* A number among the arenas, and the name taken; at->average is set. */
static ckpt_status open_arena(ckpt_state *s, const ckpt_arena_desc *a, place *at, ckpt_error *err)
{
    const char *what = a->name ? a->name : "ckpt_state_arena";
    ckpt_str name = {NULL, 0};
    ckpt_status status = a->name ? ckpt__state_check_name(ckpt__s(a->name), what, err) : CKPT_OK;
    if (status < 0)
        return status;
    if (s->lent_count >= CKPT__NO_ARENA || s->arena_count >= CKPT__NO_ARENA)
        return ckpt__fail(err, CKPT_E_LIMIT, what, "a state holds at most %u arenas", CKPT__NO_ARENA);
    if (a->name && !(name = ckpt__arena_str(s->memory, a->name, strlen(a->name))).data)
        return ckpt__fail_memory(err, what, 0);
    if (!(a->data ? ckpt__grow(&s->lent, &s->lent_capacity, s->lent_count + 1, sizeof *s->lent)
                  : ckpt__grow(&s->arenas, &s->arena_capacity, s->arena_count + 1, sizeof *s->arenas)))
        return ckpt__fail_memory(err, what, 0);
    if (name.data)
        status = add_name(s, name, a->data ? CKPT__LENT_BASE + s->lent_count : CKPT__ARENA_BASE + s->arena_count, err);
    if (status < 0)
        return status;
    *at = (place){CKPT__NO_ARENA, CKPT__NO_ARENA, 0, name.data};
    if (a->data) {
        at->lent = (uint32_t)s->lent_count++;
        s->lent[at->lent] = (ckpt__lent){name, a->nbytes, s->count, 0};
    } else {
        at->arena = (uint32_t)s->arena_count++;
        s->arenas[at->arena] = (ckpt__state_arena){NULL, a->nbytes, a->device, ckpt_cpu()};
    }
    return CKPT_OK;
}

/* Where the next names belong is fetched ahead. Those of what belongs to a parameter are made of two, and are not. */
static void names_ahead(ckpt_state *s, const ckpt_arena_entry *entries, size_t n, size_t to, size_t *next)
{
    for (; *next < n && *next <= to; (*next)++)
        if (entries[*next].name)
            ckpt__hash_ahead(s->names, entries[*next].name, strlen(entries[*next].name));
}

static bool is_of_param(ckpt_role role)
{
    return ckpt_role_is_optimizer(role) || role == CKPT_ROLE_EMA;
}

static ckpt_status bind_entry(ckpt_state *s, const ckpt_arena_desc *a, const ckpt_arena_entry *e, place *at,
                              ckpt_error *err)
{
    const size_t size = ckpt_dtype_size(a->dtype);
    const bool of_param = is_of_param(a->role);
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    uint64_t numel, bytes, end;
    d.name = of_param ? NULL : e->name;
    d.param = of_param ? e->name : NULL;
    d.state_key = a->state_key;
    d.dtype = a->dtype;
    d.role = a->role;
    d.ndim = e->ndim;
    d.shape = e->shape;
    d.device = a->device;
    if (size == 0 || e->offset % size || (e->ndim && !e->shape) || !ckpt__numel(e->shape, e->ndim, &numel) ||
        !ckpt__mul(numel, size, &bytes) || !ckpt__add(e->offset, bytes, &end) || end > a->nbytes)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, e->name ? e->name : "arena entry",
            "offset %llu and shape do not fit the arena of %llu bytes of %s (or the offset is not aligned)",
            (unsigned long long)e->offset, (unsigned long long)a->nbytes, ckpt_dtype_name(a->dtype));
    d.data = a->data ? (char *)a->data + e->offset : NULL;
    at->offset = e->offset;
    ckpt_status status = bind(s, &d, at, err);
    if (status == CKPT_OK && at->lent != CKPT__NO_ARENA)
        s->lent[at->lent].count++;
    return status;
}

ckpt_status ckpt_state_arena(ckpt_state *s, const ckpt_arena_desc *desc, const ckpt_arena_entry *entries, size_t n,
                             ckpt_error *err)
{
    ckpt_arena_desc own;
    if (!s || !desc || (n && !entries))
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_arena", "a NULL state, descriptor or list of entries");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_arena_desc, &own, desc, err);
    place at;
    if (status == CKPT_OK)
        status = open_arena(s, &own, &at, err);
    if (status < 0)
        return status;
    if (n <= CKPT__ALIAS_BASE &&
        !(ckpt__hash_expect(s->names, n) && ckpt__grow(&s->bindings, &s->capacity, s->count + n, sizeof *s->bindings)))
        return ckpt__fail_memory(err, "ckpt_state_arena", n * sizeof *s->bindings);
    if (n <= CKPT__ALIAS_BASE && n)
        ckpt__touch(s->bindings + s->count, n * sizeof *s->bindings);
    const bool own_names = !is_of_param(own.role);
    for (size_t i = 0, next = 0; status == CKPT_OK && i < n; i++) {
        if (own_names)
            names_ahead(s, entries, n, i + CKPT__HASH_AHEAD, &next);
        status = bind_entry(s, &own, &entries[i], &at, err);
    }
    ckpt__hash_ahead_end(s->names);
    return status;
}

ckpt_status ckpt_state_alias(ckpt_state *s, const char *name, const char *of, ckpt_error *err)
{
    if (!s || !name || !of || !*name)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_alias", "a NULL or empty name");
    size_t i;
    ckpt_status status = ckpt__state_check_name(ckpt__s(name), name, err);
    if (status < 0)
        return status;
    if (!ckpt__hash_get(s->names, of, strlen(of), &i) || i >= CKPT__ALIAS_BASE)
        return ckpt__fail(err, CKPT_E_NOT_FOUND, of, "bind the tensor before its alias '%s'", name);
    ckpt__alias a = {ckpt__arena_str(s->memory, name, strlen(name)), s->bindings[i].name};
    if (!a.name.data || !ckpt__grow(&s->aliases, &s->alias_capacity, s->alias_count + 1, sizeof *s->aliases))
        return ckpt__fail_memory(err, name, 0);
    if ((status = add_name(s, a.name, CKPT__ALIAS_BASE + s->alias_count, err)) == CKPT_OK)
        s->aliases[s->alias_count++] = a;
    return status;
}

ckpt_status ckpt_state_stream(ckpt_state *s, ckpt_device device, void *stream, ckpt_error *err)
{
    if (!s || (device.type != CKPT_DEVICE_CUDA && device.type != CKPT_DEVICE_CPU))
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_stream", "a state and a cuda device are expected");
    if (device.type == CKPT_DEVICE_CPU)
        return CKPT_OK; /* the cpu has no queue */
    ckpt_status status = ckpt_device_check(device, err);
    if (status < 0)
        return status;
    for (size_t i = 0; i < s->stream_count; i++)
        if (ckpt_device_equal(s->streams[i].device, device)) {
            s->streams[i].stream = stream;
            return CKPT_OK;
        }
    if (!ckpt__grow(&s->streams, &s->stream_capacity, s->stream_count + 1, sizeof *s->streams))
        return ckpt__fail_memory(err, "ckpt_state_stream", 0);
    s->streams[s->stream_count++] = (ckpt__caller_stream){device, stream};
    return CKPT_OK;
}

static ckpt_status make(ckpt_device wanted, uint64_t nbytes, void **data, ckpt_device *device, ckpt_error *err)
{
    *device = wanted.type == CKPT_DEVICE_NONE ? ckpt_cpu() : wanted;
    return ckpt__memory_new(*device, nbytes, data, err);
}

ckpt_status ckpt_state_allocate(ckpt_state *s, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    ckpt__state_changed(s);
    for (size_t i = 0; status == CKPT_OK && i < s->arena_count; i++)
        if (!s->arenas[i].data)
            status = make(s->arenas[i].wanted, s->arenas[i].nbytes, &s->arenas[i].data, &s->arenas[i].device, err);
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        ckpt__binding *b = &s->bindings[i];
        if (!b->ours || b->data)
            continue;
        if (b->arena != CKPT__NO_ARENA) {
            b->data = (char *)s->arenas[b->arena].data + b->arena_offset;
            b->memory.device = s->arenas[b->arena].device;
        } else
            status = make(b->wanted, b->nbytes, &b->data, &b->memory.device, err);
        b->memory.kind = b->memory.device.type == CKPT_DEVICE_CUDA ? CKPT_MEMORY_DEVICE : CKPT_MEMORY_HOST;
        if (status < 0 && err && !*err->object)
            ckpt__error_object(err, b->name.data);
    }
    return status;
}

void *ckpt_state_data(const ckpt_state *s, const char *name)
{
    const ckpt__binding *b = s && name ? ckpt__state_find(s, name, strlen(name)) : NULL;
    return b ? b->data : NULL;
}

ckpt_device ckpt_state_device(const ckpt_state *s, const char *name)
{
    const ckpt__binding *b = s && name ? ckpt__state_find(s, name, strlen(name)) : NULL;
    return b && b->data ? ckpt__memory_device(&b->memory) : (ckpt_device){CKPT_DEVICE_NONE, -1};
}

size_t ckpt_state_tensor_count(const ckpt_state *s)
{
    return s->count;
}

const char *ckpt_state_tensor_name(const ckpt_state *s, size_t i)
{
    return i < s->count ? s->bindings[i].name.data : NULL;
}

bool ckpt_state_poisoned(const ckpt_state *s)
{
    return s->poisoned;
}
