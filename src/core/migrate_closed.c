/* core/migrate_closed.c - --salvage: tensors that are no tensors of the listing (a call's argument, an item of a set), and
 * storages that are values by themselves, whose bytes are not whole. A program's object cannot be made without its
 * argument: the nearest value around it that has a place of its own goes. */
#include "core/migrate_job.h"
#include "format/torch_write.h"

#include <stdlib.h>

typedef struct place {
    ckpt__spot spot;
    const ckpt_value *value;
} place;

typedef struct closer {
    ckpt__mover *m;
    const bool *whole;
    const char *const *why;
    place *path; /* [depth]; without a slot: not a place of its own */
    size_t path_capacity;
    place *goes;
    size_t count, capacity;
    ckpt__seen slots;
    ckpt_error *err;
} closer;

static int on_spot(void *ctx, const ckpt__spot *spot)
{
    closer *c = ctx;
    size_t depth = spot->visit->path.count, storage;
    if (!ckpt__grow(&c->path, &c->path_capacity, depth + 1, sizeof *c->path))
        return ckpt__mover_no_memory(c->err);
    c->path[depth] = (place){ *spot, spot->visit->value };
    if (depth > 1 && !c->path[depth - 1].spot.slot)
        c->path[depth].spot.slot = NULL; /* within a call's arguments, or a state that no attributes are */
    if (spot->visit->cycle || !ckpt__torch_looks_at(c->m->from, spot->visit->value, c->whole, &storage))
        return CKPT_OK;
    while (depth > 0 && !c->path[depth].spot.slot)
        depth--;
    if (depth == 0) /* the root itself */
        return CKPT_OK;
    int first = ckpt__seen_add(&c->slots, c->path[depth].spot.slot);
    if (first < 0 || (first && !ckpt__grow(&c->goes, &c->capacity, c->count + 1, sizeof *c->goes)))
        return ckpt__mover_no_memory(c->err);
    if (first)
        c->goes[c->count++] = c->path[depth];
    return ckpt__mover_note(c->m, CKPT_ERROR, "not-recovered", spot->visit->name, c->err,
                            "%s; the object that needs it is left out", c->why[storage]);
}

ckpt_status ckpt__migrate_recover_closed(ckpt__mover *m, const bool *whole, const char *const *why, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    closer c = { .m = m, .whole = whole, .why = why, .err = err };
    ckpt__cuts cuts = { NULL, 0, 0 };
    size_t lost = 0;
    for (size_t i = 0; i < x->storage_count; i++)
        lost += x->storages[i].closed && !whole[i];
    ckpt_status status = lost ? ckpt__edit_walk(x->root, on_spot, &c, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < c.count; i++) {
        ckpt_visit visit = { .value = c.goes[i].value };
        c.goes[i].spot.visit = &visit;
        if (!ckpt__cuts_add(&cuts, &c.goes[i].spot))
            status = ckpt__mover_no_memory(err);
    }
    if (status == CKPT_OK)
        m->holes |= ckpt__cuts_apply(&cuts);
    ckpt__cuts_free(&cuts);
    ckpt__seen_free(&c.slots);
    free(c.path);
    free(c.goes);
    return status;
}
