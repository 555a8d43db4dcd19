/* state/moves.c - memory that moves and values that change their size: another address for what is bound. */
#include "state/state.h"

#include <stdio.h>
#include <stdlib.h>

/* The driver is asked as it is at a bind, and what could not be saved is refused at once. */
static ckpt_status look(const ckpt_state *s, const ckpt__binding *b, void *data, ckpt__place_of *out, ckpt_error *err)
{
    ckpt__binding moved = *b;
    *out = (ckpt__place_of){.data = data, .memory = {.kind = CKPT_MEMORY_HOST, .device = ckpt_cpu()}};
    if (!data || !b->span)
        return CKPT_OK;
    ckpt_status status = ckpt_device_query(data, (size_t)b->span, &out->memory, err);
    moved.data = data;
    moved.memory = out->memory;
    return status < 0 ? ckpt__fail_tensor(err, status, b->name) : ckpt__state_check_memory(s, &moved, err);
}

/* Bindings [first, first + count), of which each lies its own offset behind data; all of them or none. */
static ckpt_status move_tensors(ckpt_state *s, size_t first, size_t count, void *data, ckpt_error *err)
{
    ckpt__place_of *to = calloc(count + 1, sizeof *to);
    ckpt_status status = to ? CKPT_OK : ckpt__fail_memory(err, "ckpt_state_rebind", count * sizeof *to);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        const ckpt__binding *b = &s->bindings[first + i];
        status = look(s, b, data ? (char *)data + b->arena_offset : NULL, &to[i], err);
    }
    if (status == CKPT_OK)
        status = ckpt__spans_move(s, first, count, to, err);
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        s->bindings[first + i].away = !data;
    free(to);
    return status;
}

static ckpt_status move_tensor(ckpt_state *s, const ckpt__binding *b, void *data, ckpt_error *err)
{
    if (b->ours)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, b->name.data,
            "its memory is ckpt's own (it was bound with data NULL) and is not the caller's to move; ckpt_state_data says where it lies");
    if (b->lent == CKPT__NO_ARENA)
        return move_tensors(s, (size_t)(b - s->bindings), 1, data, err);
    if (s->lent[b->lent].name.data)
        return ckpt__fail(err, CKPT_E_ARGUMENT, b->name.data,
                          "it lies in the arena '%s', whose tensors move together: bind '%s' again",
                          s->lent[b->lent].name.data, s->lent[b->lent].name.data);
    return ckpt__fail(
        err, CKPT_E_ARGUMENT, b->name.data,
        "it lies in an arena, whose tensors move together, and that arena has no name: give it one (ckpt_arena_desc.name) "
        "and bind that again");
}

/* The five variables of a ckpt_scaler, by the name that the struct was bound under; *found: there is one. */
static ckpt_status move_scaler(ckpt_state *s, const char *name, ckpt_scaler *data, bool *found, ckpt_error *err)
{
    static const struct {
        const char *key;
        size_t offset;
    } parts[] = {
        {"scale", offsetof(ckpt_scaler, scale)},
        {"growth_factor", offsetof(ckpt_scaler, growth_factor)},
        {"backoff_factor", offsetof(ckpt_scaler, backoff_factor)},
        {"growth_interval", offsetof(ckpt_scaler, growth_interval)},
        {"_growth_tracker", offsetof(ckpt_scaler, growth_tracker)},
    };
    ckpt__scalar *scalars[sizeof parts / sizeof *parts];
    *found = true;
    for (size_t i = 0; *found && i < sizeof parts / sizeof *parts; i++) {
        ckpt__buf full = {0};
        ckpt__buf_printf(&full, "%s.%s", name, parts[i].key);
        bool failed = full.failed;
        scalars[i] = failed ? NULL : ckpt__state_scalar(s, full.data, full.size);
        ckpt__buf_free(&full);
        if (failed)
            return ckpt__fail_memory(err, name, 0);
        *found = scalars[i] && scalars[i]->scaler;
    }
    for (size_t i = 0; *found && i < sizeof parts / sizeof *parts; i++)
        scalars[i]->data = data ? (char *)data + parts[i].offset : NULL;
    return CKPT_OK;
}

ckpt_status ckpt_state_rebind(ckpt_state *s, const char *name, void *data, ckpt_error *err)
{
    size_t i = 0;
    bool found = false;
    if (!s || !name)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_rebind", "a NULL state or name");
    const ckpt__binding *b = ckpt__state_find(s, name, strlen(name));
    ckpt__scalar *v = ckpt__state_scalar(s, name, strlen(name));
    if (b)
        return move_tensor(s, b, data, err);
    if (v) {
        v->data = data;
        return CKPT_OK;
    }
    if (ckpt__hash_get(s->names, name, strlen(name), &i)) {
        if (i >= CKPT__VALUE_BASE)
            return ckpt__fail(err, CKPT_E_ARGUMENT, name,
                              "its hooks write and take it (ckpt_state_value): it has no memory that could move");
        if (i >= CKPT__ARENA_BASE)
            return ckpt__fail(err, CKPT_E_ARGUMENT, name,
                              "this arena is ckpt's own (it was bound with data NULL) and is not the caller's to move");
        const ckpt__lent *arena = &s->lent[i - CKPT__LENT_BASE];
        return move_tensors(s, arena->first, arena->count, data, err);
    }
    ckpt_status status = move_scaler(s, name, data, &found, err);
    if (status < 0 || found)
        return status;
    return ckpt__fail(err, CKPT_E_NOT_FOUND, name, "no tensor, value or arena of that name is bound");
}

ckpt_status ckpt_state_resize(ckpt_state *s, const char *name, void *data, size_t size, ckpt_error *err)
{
    size_t other;
    if (!s || !name)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_state_resize", "a NULL state or name");
    ckpt__scalar *v = ckpt__state_scalar(s, name, strlen(name));
    if (!v && !ckpt__hash_get(s->names, name, strlen(name), &other))
        return ckpt__fail(err, CKPT_E_NOT_FOUND, name, "no value of that name is bound");
    if (!v || (v->kind != CKPT__S_BYTES && v->kind != CKPT__S_STRING))
        return ckpt__fail(err, CKPT_E_ARGUMENT, name,
                          "only what was bound with ckpt_state_bytes or ckpt_state_string has a size that can change");
    if (v->kind == CKPT__S_STRING && size == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "a buffer of 0 bytes holds no string");
    v->data = data;
    v->size = size;
    return CKPT_OK;
}

/* ---- what is bound to NULL for now */

static ckpt_status refuse(const char *name, const char *again, size_t others, ckpt_error *err)
{
    char more[64] = "";
    if (others)
        snprintf(more, sizeof more, "; so it is with %zu other%s", others, others == 1 ? "" : "s");
    return ckpt__fail(err, CKPT_E_ARGUMENT, name,
                      "it is bound to NULL for now: bind it again with ckpt_state_rebind%s%s%s%s",
                      again ? " under its arena's name, '" : "", again ? again : "", again ? "'" : "", more);
}

ckpt_status ckpt__state_check_bound(const ckpt_state *s, bool tensors, bool values, ckpt_error *err)
{
    const ckpt__binding *first = NULL;
    const ckpt__scalar *value = NULL;
    size_t count = 0;
    for (size_t i = 0; tensors && i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        first = b->away && !first ? b : first;
        count += b->away;
    }
    for (size_t i = 0; values && i < s->scalar_count; i++) {
        const ckpt__scalar *v = &s->scalars[i];
        value = !v->data && !value ? v : value;
        count += !v->data;
    }
    if (first)
        return refuse(first->name.data, first->lent == CKPT__NO_ARENA ? NULL : s->lent[first->lent].name.data,
                      count - 1, err);
    if (!value)
        return CKPT_OK;
    ckpt__buf full = {0};
    ckpt__scalar_name(s, value, &full);
    ckpt_status status = refuse(full.failed ? value->name.data : full.data, NULL, count - 1, err);
    ckpt__buf_free(&full);
    return status;
}
