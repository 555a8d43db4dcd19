/* state/index.c - what a save says of a state: the index of what is bound, and its values, copied. */
#include "state/index.h"

#include <stdlib.h>
#include "state/state.h"
#include "state/scalars.h"

static ckpt_status add_tensor(ckpt__index *x, const ckpt__binding *b, ckpt_str name, size_t storage, ckpt_error *err)
{
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return ckpt__fail_memory(err, name.data, 0);
    t->info.name = name;
    t->info.dtype = b->dtype;
    t->info.ndim = b->ndim;
    t->info.role = b->role;
    t->info.param = b->param;
    t->info.state_key = b->state_key;
    return ckpt__index_set_view(x, x->tensor_count - 1, storage, b->shape, NULL, 0, err);
}

/* The group of each parameter, for the tensors that are or belong to one. */
static ckpt_status put_groups(ckpt__index *x, const ckpt_state *s, ckpt_error *err)
{
    ckpt__hash *h = s->group_count ? ckpt__hash_new(s->count) : NULL;
    ckpt_status status = h || !s->group_count ? CKPT_OK : ckpt__fail_memory(err, "groups", 0);
    for (size_t g = 0; status == CKPT_OK && g < s->group_count; g++)
        for (size_t i = 0; i < s->groups[g].param_count; i++)
            if (ckpt__hash_put(h, s->groups[g].params[i].data, s->groups[g].params[i].size, g, NULL) < 0)
                status = ckpt__fail_memory(err, "groups", 0);
    for (size_t i = 0; status == CKPT_OK && h && i < x->tensor_count; i++) {
        ckpt_tensor_info *t = &x->tensors[i].info;
        ckpt_str owner = t->param.data ? t->param : t->name;
        size_t g;
        if (ckpt__hash_get(h, owner.data, owner.size, &g))
            t->group = s->groups[g].name;
    }
    ckpt__hash_free(h);
    return status;
}

/* A tensor of bytes on the cpu; what they are was written into memory of ours. */
static ckpt_status add_value(ckpt__state_index *p, ckpt__valued *v, ckpt_error *err)
{
    ckpt__index *x = p->index;
    uint64_t size;
    ckpt_status status = ckpt__hook_write(v, &p->blobs[p->blob_count], &size, err);
    if (status < 0)
        return status;
    const int64_t shape = (int64_t)size;
    ckpt__storage *storage = ckpt__index_add_storage(x);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    p->blob_bytes += size;
    if (!storage || !t) {
        p->blob_count++;
        return ckpt__fail_memory(err, v->name.data, 0);
    }
    storage->name = v->name;
    storage->device = ckpt__s("cpu");
    storage->extent.size = size;
    storage->extent.memory = p->blobs[p->blob_count++];
    t->info.name = v->name;
    t->info.dtype = CKPT_U8;
    t->info.ndim = 1;
    t->info.role = ckpt__str_is(v->name, "rng") || ckpt__str_begins(v->name, "rng.") ? CKPT_ROLE_RNG : CKPT_ROLE_OTHER;
    return ckpt__index_set_view(x, x->tensor_count - 1, x->storage_count - 1, &shape, NULL, 0, err);
}

static ckpt_status add_values(ckpt__state_index *p, const ckpt_state *s, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (s->value_count && !(p->blobs = calloc(s->value_count, sizeof *p->blobs)))
        return ckpt__fail_memory(err, "values", s->value_count * sizeof *p->blobs);
    for (size_t i = 0; status == CKPT_OK && i < s->value_count; i++)
        status = add_value(p, &s->values[i], err);
    return status;
}

static ckpt_status build_index(ckpt__state_index *p, const ckpt_state *s, bool weights_only, ckpt_error *err)
{
    ckpt__index *x = p->index;
    char device[CKPT_DEVICE_NAME_MAX];
    ckpt__known known = {.begin = 0};
    ckpt_device last = {CKPT_DEVICE_NONE, -1};
    ckpt_str tag = {NULL, 0}; /* of `last` */
    if (!ckpt__index_reserve(x, s->count + s->value_count, s->count + s->alias_count + s->value_count))
        return ckpt__fail_memory(err, "state", s->count * sizeof *x->tensors);
    for (size_t i = 0; i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        const ckpt_device where = ckpt__memory_device(&b->memory);
        ckpt_status status = ckpt__state_check_now(s, b, &known, err);
        ckpt__storage *storage = status == CKPT_OK ? ckpt__index_add_storage(x) : NULL;
        if (status < 0)
            return status;
        if (!storage)
            return ckpt__fail_memory(err, b->name.data, 0);
        p->driver |= !b->ours && b->memory.kind == CKPT_MEMORY_DEVICE;
        storage->name = b->name;
        storage->extent.size = b->nbytes;
        if (!tag.data || !ckpt_device_equal(where, last)) {
            ckpt_device_name(where, device);
            tag = ckpt__arena_str(x->arena, device, strlen(device));
            if (!tag.data)
                return ckpt__fail_memory(err, b->name.data, 0);
            last = where;
        }
        storage->device = tag;
        if ((status = add_tensor(x, b, b->name, i, err)) < 0)
            return status;
    }
    for (size_t i = 0; i < s->alias_count; i++) {
        const ckpt__binding *b = ckpt__state_find(s, s->aliases[i].of.data, s->aliases[i].of.size);
        ckpt_status status = add_tensor(x, b, s->aliases[i].name, (size_t)(b - s->bindings), err);
        if (status < 0)
            return status;
    }
    ckpt_status status = weights_only ? CKPT_OK : add_values(p, s, err);
    if (status == CKPT_OK)
        status = put_groups(x, s, err);
    return status == CKPT_OK ? ckpt__index_finish(x, err) : status;
}

static ckpt_status take_tree(const ckpt_state *state, ckpt__state_index *p, const char *label, ckpt_error *err)
{
    p->root = NULL;
    p->step = -1;
    if (!(p->values = ckpt__arena_new(0)))
        return ckpt__fail_memory(err, label, 0);
    return ckpt__state_tree(state, p->values, &p->root, &p->step, err);
}

ckpt_status ckpt__state_index_take(const ckpt_state *state, bool weights_only, const char *label,
                                   ckpt__state_index *out, ckpt_error *err)
{
    *out = (ckpt__state_index){.step = -1,
                               .bindings = state->count,
                               .aliases = state->alias_count,
                               .groups = state->group_count,
                               .version = state->version};
    ckpt_status status = ckpt__state_check_bound(state, true, !weights_only, err);
    if (status < 0)
        return status;
    if (!(out->index = ckpt__index_new(0)))
        return ckpt__fail_memory(err, label, 0);
    status = build_index(out, state, weights_only, err);
    if (status == CKPT_OK && !weights_only)
        status = take_tree(state, out, label, err);
    if (status < 0)
        ckpt__state_index_free(out);
    return status;
}

ckpt_status ckpt__state_index_renew(const ckpt_state *state, const char *label, ckpt__state_index *saved, bool *renewed,
                                    ckpt_error *err)
{
    *renewed = saved->index && saved->values && !state->value_count && saved->bindings == state->count &&
               saved->aliases == state->alias_count && saved->groups == state->group_count;
    if (!*renewed) {
        ckpt__state_index_free(saved);
        return ckpt__state_index_take(state, false, label, saved, err);
    }
    bool moved = saved->version != state->version;
    ckpt__known known = {.begin = 0};
    ckpt_status status = ckpt__state_check_bound(state, moved, true, err);
    for (size_t i = 0; status == CKPT_OK && (moved || saved->driver) && i < state->count; i++)
        status = ckpt__state_check_now(state, &state->bindings[i], &known, err);
    saved->version = state->version;
    ckpt__arena_free(saved->values);
    saved->values = NULL;
    if (status == CKPT_OK)
        status = take_tree(state, saved, label, err);
    if (status < 0)
        ckpt__state_index_free(saved);
    return status;
}

/* The arenas of the state, then those of the caller; 0: the binding has none. */
static uint64_t allocation_of(const ckpt_state *s, const ckpt__binding *b)
{
    return b->arena != CKPT__NO_ARENA  ? (uint64_t)b->arena + 1
           : b->lent != CKPT__NO_ARENA ? s->arena_count + b->lent + 1
                                       : 0;
}

static bool add_binding(ckpt__index *x, const ckpt_state *s, const ckpt__binding *b)
{
    ckpt__storage *storage = ckpt__index_add_storage(x);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!storage || !t)
        return false;
    ckpt__extent *e = &storage->extent;
    storage->name = t->info.name = b->name;
    storage->unit = 1;
    e->memory = b->data;
    e->allocation = allocation_of(s, b);
    e->length = e->size = b->span;
    t->info.dtype = b->dtype;
    t->info.ndim = b->ndim;
    t->info.shape = b->shape;
    t->info.strides = b->strides;
    t->info.nbytes = b->nbytes;
    t->storage = (uint32_t)(x->storage_count - 1);
    t->whole = true;
    return ckpt__index_device(x, ckpt__memory_device(&b->memory), &e->device);
}

bool ckpt__state_add_values(ckpt__index *x, const ckpt__state_index *saved)
{
    for (size_t i = 0; i < saved->blob_count; i++) {
        ckpt__storage *storage = ckpt__index_add_storage(x);
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        if (!storage || !t)
            return false;
        *storage = saved->index->storages[saved->bindings + i];
        *t = saved->index->tensors[saved->bindings + saved->aliases + i];
        t->storage = (uint32_t)(x->storage_count - 1);
    }
    return true;
}

ckpt_status ckpt__state_memory(const ckpt_state *state, const ckpt__state_index *saved, ckpt__index **out,
                               ckpt_error *err)
{
    size_t values = saved ? saved->blob_count : 0;
    ckpt__index *x = ckpt__index_new(0);
    bool made = x && ckpt__index_reserve(x, state->count + values, state->count + values);
    *out = NULL;
    for (size_t i = 0; made && i < state->count; i++)
        made = add_binding(x, state, &state->bindings[i]);
    if (!made || (saved && !ckpt__state_add_values(x, saved))) {
        ckpt__index_free(x);
        return ckpt__fail_memory(err, "state", state->count * sizeof *x->tensors);
    }
    *out = x;
    return CKPT_OK;
}

void ckpt__state_index_free(ckpt__state_index *p)
{
    ckpt__index_free(p->index);
    ckpt__arena_free(p->values);
    for (size_t i = 0; i < p->blob_count; i++)
        free(p->blobs[i]);
    free(p->blobs);
    memset(p, 0, sizeof *p);
}
