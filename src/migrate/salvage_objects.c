/* migrate/salvage_objects.c - --salvage: tensors that are no tensors of the listing (a call's argument, an item of a set), and
 * storages that are values by themselves, whose bytes are not whole. A program's object cannot be made without its
 * argument: the nearest value around it that has a place of its own goes. What a key needs is replaced in the key by a
 * string, so that what the key leads to stays. */
#include "migrate/migration.h"
#include "format/torch/write.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* A value on the way from the root to the value that is visited. */
typedef struct place {
    ckpt__spot spot;
    const ckpt_value *value;
} place;

typedef struct closer {
    ckpt__migration *m;
    const bool *whole;      /* one a storage of the source, borrowed: all of its bytes are there, undamaged */
    const char *const *why; /* one a storage: how much of it is there */
    place *path;            /* heap, by depth; without a slot: not a place of its own */
    size_t path_capacity;
    place *goes;            /* heap: places to take out */
    size_t count, capacity; /* of goes */
    ckpt__seen slots;       /* the slots of `goes`: each goes once */
    size_t keys;            /* how many keys were replaced */
    ckpt_str name;          /* of the entry whose key is looked at */
    ckpt_error *err;
} closer;

/* ---- keys, which the walk does not visit */

enum { FOUND = 1 };

typedef struct needed {
    const closer *c;
    const char *why;
} needed;

static int find_lost(void *ctx, const ckpt_visit *visit)
{
    needed *n = ctx;
    const closer *c = n->c;
    const ckpt_value *v = visit->value;
    size_t storage;
    if (visit->cycle)
        return CKPT_OK;
    if (v->kind == CKPT_V_TENSOR && v->tensor < c->m->from->tensor_count && c->m->dropped[v->tensor])
        n->why = "it was not recovered"; /* one of the listing, where the rest is said */
    else if (ckpt__torch_looks_at(c->m->from, v, c->whole, &storage))
        n->why = c->why[storage];
    return n->why ? FOUND : CKPT_OK;
}

/* A tensor, or an object that needs one, within a key. Two of them stay two. */
static ckpt_status replace(closer *c, const ckpt_value **slot, const char *why)
{
    char text[64];
    int n = snprintf(text, sizeof text, "(not recovered: key %zu)", ++c->keys);
    ckpt_value *v = (ckpt_value *)(uintptr_t)*slot, *fresh = ckpt__value_str(c->m->from->arena, text, (size_t)n);
    if (!fresh)
        return ckpt__migration_no_memory(c->err);
    if (v->kind == CKPT_V_TENSOR) /* it stands in other places too, and goes there */
        *slot = fresh;
    else
        *v = *fresh; /* also where an opaque object's entries are copied from its pickle */
    return ckpt__migration_note(c->m, CKPT_SEVERITY_ERROR, "not-recovered", c->name, c->err,
                                "%s; in the key, '%s' stands in its place", why, text);
}

static bool is_of_parts(const ckpt_value *v)
{
    bool set = v->kind == CKPT_V_OBJECT && ckpt__str_is(v->class_name, "builtins.frozenset");
    return v->kind == CKPT_V_TUPLE || (set && v->item_count > 0);
}

static int on_part(void *ctx, const ckpt_visit *visit)
{
    closer *c = ctx;
    const ckpt_value *v = visit->value;
    int status = CKPT_OK;
    for (size_t i = 0; !visit->cycle && is_of_parts(v) && i < v->item_count && status == CKPT_OK; i++) {
        needed n = {.c = c};
        if (!is_of_parts(v->items[i]))
            status = ckpt_value_walk(v->items[i], 0, find_lost, &n, c->err);
        if (status == FOUND) {
            status = replace(c, (const ckpt_value **)(uintptr_t)&v->items[i], n.why);
            if (v->kind == CKPT_V_OBJECT)
                ((ckpt_value *)(uintptr_t)v)->origin = NULL; /* its items count from now on, not those of its pickle */
        }
    }
    return status;
}

static bool is_simple(const ckpt_value *v)
{
    return v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_OBJECT && v->kind != CKPT_V_TENSOR;
}

static ckpt_status look_at_key(closer *c, ckpt_entry *e, ckpt_str name)
{
    const ckpt_value *self[] = {e->key};
    const ckpt_value key = {.kind = CKPT_V_TUPLE, .items = self, .item_count = 1};
    if (is_simple(e->key))
        return CKPT_OK;
    c->name = name;
    int status = ckpt_value_walk(&key, 0, on_part, c, c->err);
    e->key = self[0];
    return (ckpt_status)status;
}

/* ---- values */

static int on_spot(void *ctx, const ckpt__spot *spot)
{
    closer *c = ctx;
    size_t depth = spot->visit->path.count, storage;
    if (!ckpt__grow(&c->path, &c->path_capacity, depth + 1, sizeof *c->path))
        return ckpt__migration_no_memory(c->err);
    c->path[depth] = (place){*spot, spot->visit->value};
    if (depth > 1 && !c->path[depth - 1].spot.slot)
        c->path[depth].spot.slot = NULL; /* within a call's arguments, or a state that no attributes are */
    ckpt_status status = CKPT_OK;
    if (spot->dict) /* its slot is the value of an entry */
        status = look_at_key(c, (ckpt_entry *)(void *)((char *)(uintptr_t)spot->slot - offsetof(ckpt_entry, value)),
                             spot->visit->name);
    if (status < 0)
        return status;
    if (spot->visit->cycle || !ckpt__torch_looks_at(c->m->from, spot->visit->value, c->whole, &storage))
        return CKPT_OK;
    while (depth > 0 && !c->path[depth].spot.slot)
        depth--;
    if (depth == 0) /* the root itself */
        return CKPT_OK;
    int first = ckpt__seen_add(&c->slots, c->path[depth].spot.slot);
    if (first < 0 || (first && !ckpt__grow(&c->goes, &c->capacity, c->count + 1, sizeof *c->goes)))
        return ckpt__migration_no_memory(c->err);
    if (first)
        c->goes[c->count++] = c->path[depth];
    return ckpt__migration_note(c->m, CKPT_SEVERITY_ERROR, "not-recovered", spot->visit->name, c->err,
                                "%s; the object that needs it is left out", c->why[storage]);
}

ckpt_status ckpt__migrate_recover_closed(ckpt__migration *m, const bool *whole, const char *const *why, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    closer c = {.m = m, .whole = whole, .why = why, .err = err};
    ckpt__cuts cuts = {NULL, 0, 0};
    size_t lost = 0;
    for (size_t i = 0; i < x->storage_count; i++)
        lost += x->storages[i].closed && !whole[i];
    ckpt_status status = lost || m->lost_some ? ckpt__edit_walk(x->root, on_spot, &c, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < c.count; i++) {
        ckpt_visit visit = {.value = c.goes[i].value};
        c.goes[i].spot.visit = &visit;
        if (!ckpt__cuts_add(&cuts, &c.goes[i].spot))
            status = ckpt__migration_no_memory(err);
    }
    if (status == CKPT_OK)
        m->holes |= ckpt__cuts_apply(&cuts);
    ckpt__cuts_free(&cuts);
    ckpt__seen_free(&c.slots);
    free(c.path);
    free(c.goes);
    return status;
}
