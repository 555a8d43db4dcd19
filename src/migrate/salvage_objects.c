/* migrate/salvage_objects.c - --salvage: tensors that are no tensors of the listing (a call's argument, an item of a set), and
 * storages that are values by themselves, whose bytes are not whole. A program's object cannot be made without its
 * argument: the nearest value around it that has a place of its own goes. What a key needs is replaced in the key by a
 * string, so that what the key leads to stays. */
#include "migrate/migration.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct closer {
    ckpt__migration *m;
    const bool *whole;      /* one a storage of the source, borrowed: all of its bytes are there, undamaged */
    const char *const *why; /* one a storage: how much of it is there */
    ckpt__spot *path; /* heap, by depth: of the values from the root to the one that is visited. holder NULL: not a
                             * place of its own */
    size_t path_capacity;
    size_t keys;            /* how many keys were replaced */
    ckpt__spot *goes;       /* heap: places to take out */
    size_t count, capacity; /* of goes */
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
    if (v->kind == CKPT_V_TENSOR && v->tensor < c->m->from->tensor_count && ckpt__stays_behind(c->m, v->tensor))
        n->why = "it was not recovered"; /* one of the listing, where the rest is said */
    else if (ckpt__torch_looks_at(c->m->from, v, c->whole, &storage))
        n->why = c->why[storage];
    return n->why ? FOUND : CKPT_OK;
}

/* What stands for a lost part of a key: a string, and no two of them are the same. */
static ckpt_status replace(closer *c, const ckpt_value *part, const char *why, const ckpt_value **by)
{
    char text[64];
    int n = snprintf(text, sizeof text, "(not recovered: key %zu)", ++c->keys);
    *by = ckpt__value_str(c->m->from->arena, text, (size_t)n);
    if (!*by)
        return ckpt__migration_no_memory(c->err);
    if (part->kind != CKPT_V_TENSOR) /* a tensor stands in other places too, and goes there */
        if (!ckpt__edits_replace(c->m->edits, part, *by))
            return ckpt__migration_no_memory(c->err);
    return ckpt__migration_note(c->m, CKPT_SEVERITY_ERROR, "not-recovered", c->name, c->err,
                                "%s; in the key, '%s' stands in its place", why, text);
}

static bool is_of_parts(const ckpt_value *v)
{
    bool set = v->kind == CKPT_V_OBJECT && ckpt__str_is(v->class_name, "builtins.frozenset");
    return v->kind == CKPT_V_TUPLE || (set && v->item_count > 0);
}

/* A tensor, or an object that needs one: *by is a string where it is lost, and else the value itself. */
static ckpt_status look_at_part(closer *c, const ckpt_value *v, const ckpt_value **by)
{
    needed n = {.c = c};
    *by = v = ckpt__edits_now(c->m->edits, v);
    int status = is_of_parts(v) ? CKPT_OK : ckpt__value_walk_now(v, c->m->edits, find_lost, &n, c->err);
    return status == FOUND ? replace(c, v, n.why, by) : (ckpt_status)status;
}

static int on_part(void *ctx, const ckpt_visit *visit)
{
    closer *c = ctx;
    const ckpt_value *v = visit->value;
    if (visit->cycle || !is_of_parts(v))
        return CKPT_OK;
    ckpt_value *copy = ckpt__edits_copy(c->m->edits, v);
    const ckpt_value **items = ckpt__arena_array(c->m->from->arena, v->item_count + 1, sizeof *items);
    ckpt_status status = copy && items ? CKPT_OK : ckpt__migration_no_memory(c->err);
    size_t lost = c->keys;
    for (size_t i = 0; status == CKPT_OK && i < v->item_count; i++)
        status = look_at_part(c, v->items[i], &items[i]);
    if (status < 0 || lost == c->keys)
        return status;
    copy->items = items;
    if (v->kind == CKPT_V_OBJECT)
        copy->origin = NULL; /* its items count from now on, not those of its pickle */
    return ckpt__migration_replace(c->m, v, copy, c->err);
}

static bool is_simple(const ckpt_value *v)
{
    return v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_OBJECT && v->kind != CKPT_V_TENSOR;
}

/* The dict with another key. */
static ckpt_status set_key(closer *c, const ckpt_value *dict, size_t number, const ckpt_value *key)
{
    dict = ckpt__edits_now(c->m->edits, dict);
    ckpt_entry *entries;
    ckpt_value *copy = ckpt__migration_open_dict(c->m, dict, 0, &entries);
    if (!copy)
        return ckpt__migration_no_memory(c->err);
    entries[number].key = key;
    return ckpt__migration_replace(c->m, dict, copy, c->err);
}

static ckpt_status look_at_key(closer *c, const ckpt__spot *spot, ckpt_str name)
{
    const ckpt_value *key = spot->holder->entries[spot->number].key, *by = key;
    if (is_simple(key))
        return CKPT_OK;
    c->name = name;
    if (is_of_parts(key))
        return (ckpt_status)ckpt__value_walk_now(key, c->m->edits, on_part, c, c->err);
    ckpt_status status = look_at_part(c, key, &by);
    return status == CKPT_OK && by != key && key->kind == CKPT_V_TENSOR ? set_key(c, spot->holder, spot->number, by)
                                                                        : status;
}

/* ---- values */

static int on_place(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    closer *c = ctx;
    size_t depth = visit->path.count, storage;
    (void)to; /* when all is known */
    if (!ckpt__grow(&c->path, &c->path_capacity, depth + 1, sizeof *c->path))
        return ckpt__migration_no_memory(c->err);
    c->path[depth] = *spot;
    if (depth > 1 && !c->path[depth - 1].holder)
        c->path[depth].holder = NULL; /* within a call's arguments, or a state that no attributes are */
    ckpt_status status = spot->holder && !spot->item ? look_at_key(c, spot, visit->name) : CKPT_OK;
    if (status < 0)
        return status;
    if (visit->cycle || !ckpt__torch_looks_at(c->m->from, visit->value, c->whole, &storage))
        return CKPT_OK;
    while (depth > 0 && !c->path[depth].holder)
        depth--;
    if (depth == 0) /* the root itself */
        return CKPT_OK;
    if (!ckpt__grow(&c->goes, &c->capacity, c->count + 1, sizeof *c->goes))
        return ckpt__migration_no_memory(c->err);
    c->goes[c->count++] = c->path[depth];
    return ckpt__migration_note(c->m, CKPT_SEVERITY_ERROR, "not-recovered", visit->name, c->err,
                                "%s; the object that needs it is left out", c->why[storage]);
}

ckpt_status ckpt__migrate_recover_closed(ckpt__migration *m, const bool *whole, const char *const *why, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    closer c = {.m = m, .whole = whole, .why = why, .err = err};
    size_t lost = 0;
    for (size_t i = 0; i < x->storage_count; i++)
        lost += x->storages[i].closed && !whole[i];
    ckpt_status status = lost || ckpt__ledger_count(&m->ledger, CKPT__FATE_NOT_RECOVERED)
                             ? ckpt__edits_note(m->edits, x->root, on_place, &c, err)
                             : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < c.count; i++)
        if (!ckpt__edits_drop(m->edits, &c.goes[i]))
            status = ckpt__migration_no_memory(err);
    free(c.path);
    free(c.goes);
    return status == CKPT_OK ? ckpt__migration_apply(m, err) : status;
}
