/* restore/bonds.c - which tensors of the checkpoint become which places of the states: one plan of all of them. */
#include "restore/restoration.h"

#include <stdlib.h>
#include "base/workers.h"
#include "io/readers.h"

void ckpt__restore_free_bonds(ckpt__restore_bonds *b)
{
    ckpt__plan_free(b->plan);
    ckpt__index_free(b->places);
    free(b->bonds);
    free(b->ops);
    free(b->wants);
    free(b->owners);
    free(b->done);
    memset(b, 0, sizeof *b);
}

static ckpt_status no_memory(const ckpt__restorer *r, ckpt_error *err)
{
    return ckpt__fail_memory(err, r->path, r->bonds.count * sizeof *r->bonds.bonds);
}

/* The op of two dtypes and the source's flags: one that there is, or a new one. */
static ckpt_status find_op(ckpt__restorer *r, const ckpt__op_want *want, const char *what, uint16_t *number,
                           ckpt_error *err)
{
    ckpt__restore_bonds *b = &r->bonds;
    for (size_t i = b->op_count; i-- > 0;)
        if (b->wants[i].from == want->from && b->wants[i].to == want->to && b->wants[i].from_swap == want->from_swap &&
            b->wants[i].conj == want->conj && b->wants[i].neg == want->neg) {
            *number = (uint16_t)i;
            return CKPT_OK;
        }
    if (b->op_count + 1 >= CKPT__OP_BYTES)
        return ckpt__fail(err, CKPT_E_LIMIT, what, "there are too many kinds of conversions");
    if (!ckpt__grow(&b->wants, &b->want_capacity, b->op_count + 1, sizeof *b->wants) ||
        !ckpt__grow(&b->ops, &b->op_capacity, b->op_count + 1, sizeof *b->ops))
        return no_memory(r, err);
    b->wants[b->op_count] = *want;
    *number = (uint16_t)b->op_count;
    return ckpt__op_make(want, what, &b->ops[b->op_count++], err);
}

/* A step of shape [] and one of shape [1] are one element, and a plan wants one shape: the place has the source's. */
static bool take_shape(const ckpt__restorer *r, const ckpt__target_state *side, size_t binding, ckpt_tensor_info *place)
{
    const ckpt_tensor_info *from = &r->reader->index->tensors[side->items[binding].tensor].info;
    uint64_t ours = 0, theirs = 0;
    if (ckpt__same_shape(place->shape, place->ndim, from->shape, from->ndim) ||
        !ckpt__numel(place->shape, place->ndim, &ours) || !ckpt__numel(from->shape, from->ndim, &theirs) || ours != 1 ||
        theirs != 1)
        return true;
    int64_t *strides = ckpt__arena_array(side->memory, (size_t)from->ndim + 1, sizeof *strides);
    if (!strides)
        return false;
    ckpt__c_strides(from->shape, from->ndim, strides);
    place->ndim = from->ndim;
    place->shape = from->shape;
    place->strides = strides;
    return true;
}

/* Are the bytes of the tensor all those of its storage, and do they become the binding's as they are? Then a bond of storages says
 * it: of a million such tensors the places need no description of a tensor each, which is 208 bytes. */
static bool is_plain(const ckpt__index *x, const ckpt__tensor *from, const ckpt__binding *to)
{
    const ckpt_tensor_info *info = &from->info;
    const ckpt__extent *e = from->whole && !ckpt__has_no_bytes(from) ? &x->storages[from->storage].extent : NULL;
    bool own_crc = from->has_crc && !(e && e->has_crc && e->crc == from->crc);
    return e && !own_crc && info->nbytes && info->offset == 0 && info->nbytes == e->size && to->span == e->size &&
           info->dtype == to->dtype && !info->conj && !info->neg && ckpt__plan_swap_of(x, from) == 1 &&
           ckpt__is_c_order(info->shape, info->strides, info->ndim) &&
           ckpt__is_c_order(to->shape, to->strides, to->ndim);
}

/* A storage of the target: the memory of one binding. */
static ckpt_status add_place(ckpt__restorer *r, size_t state, size_t binding, ckpt_error *err)
{
    const ckpt__target_state *side = &r->sides[state];
    const ckpt__binding *b = &side->state->bindings[binding];
    const ckpt__item *item = &side->items[binding];
    ckpt__index *x = r->bonds.places;
    ckpt__storage *s = ckpt__index_add_storage(x);
    if (!s)
        return no_memory(r, err);
    s->name = b->name;
    s->unit = 1;
    s->extent.place = item->data;
    s->extent.size = s->extent.length = b->span;
    return ckpt__index_device(x, item->target, &s->extent.device) ? CKPT_OK : no_memory(r, err);
}

/* A tensor of the target: all of the last storage. */
static ckpt_status add_view(ckpt__restorer *r, size_t state, size_t binding, ckpt_error *err)
{
    const ckpt__target_state *side = &r->sides[state];
    const ckpt__binding *b = &side->state->bindings[binding];
    ckpt__index *x = r->bonds.places;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return no_memory(r, err);
    t->info.name = b->name;
    t->info.dtype = b->dtype;
    t->info.ndim = b->ndim;
    t->info.shape = b->shape; /* the state's, which outlives the plan; it was checked when it was bound */
    t->info.strides = b->strides;
    t->info.nbytes = b->nbytes;
    t->storage = (uint32_t)(x->storage_count - 1);
    t->whole = true;
    return take_shape(r, side, binding, &t->info) ? CKPT_OK : no_memory(r, err);
}

/* The bond of two tensors. */
static ckpt_status bind_view(ckpt__restorer *r, size_t state, size_t binding, ckpt__bond *bond, ckpt_error *err)
{
    const ckpt__index *x = r->reader->index;
    const ckpt__binding *b = &r->sides[state].state->bindings[binding];
    size_t tensor = r->sides[state].items[binding].tensor;
    const ckpt_tensor_info *info = &x->tensors[tensor].info;
    ckpt__op_want want = {.from = info->dtype,
                          .to = b->dtype,
                          .from_swap = ckpt__plan_swap_of(x, &x->tensors[tensor]),
                          .conj = info->conj,
                          .neg = info->neg};
    *bond = (ckpt__bond){.from = (uint32_t)tensor, .to = (uint32_t)r->bonds.places->tensor_count};
    ckpt_status status = find_op(r, &want, info->name.data, &bond->op, err);
    return status == CKPT_OK ? add_view(r, state, binding, err) : status;
}

static ckpt_status add_bond(ckpt__restorer *r, size_t state, size_t binding, ckpt_error *err)
{
    ckpt__restore_bonds *all = &r->bonds;
    const ckpt__index *x = r->reader->index;
    const ckpt__tensor *from = &x->tensors[r->sides[state].items[binding].tensor];
    ckpt__bond bond = {
        .from = from->storage, .to = (uint32_t)all->count, .op = CKPT__OP_BYTES, .flags = CKPT__BOND_STORAGE};
    bool fits = all->count < UINT32_MAX && binding < UINT32_MAX && state < UINT32_MAX;
    ckpt_status status =
        fits ? add_place(r, state, binding, err) : ckpt__fail(err, CKPT_E_LIMIT, r->path, "too many tensors");
    if (status == CKPT_OK && !is_plain(x, from, &r->sides[state].state->bindings[binding]))
        status = bind_view(r, state, binding, &bond, err);
    if (status == CKPT_OK && (!ckpt__grow(&all->bonds, &all->bond_capacity, all->count + 1, sizeof *all->bonds) ||
                              !ckpt__grow(&all->owners, &all->owner_capacity, all->count + 1, sizeof *all->owners)))
        status = no_memory(r, err);
    if (status < 0)
        return status;
    all->bonds[all->count] = bond;
    all->owners[all->count++] = (ckpt__owner){(uint32_t)state, (uint32_t)binding};
    return CKPT_OK;
}

/* The tensors that somebody still asks for by number: those of bonds of tensors, and what hooks take. */
static size_t find_asked(const ckpt__restorer *r, bool *asked)
{
    size_t count = 0;
    for (size_t i = 0; i < r->bonds.count; i++)
        if (!(r->bonds.bonds[i].flags & CKPT__BOND_STORAGE))
            asked[r->bonds.bonds[i].from] = true;
    for (size_t n = 0; n < r->count; n++)
        for (size_t i = 0; i < r->sides[n].state->value_count; i++)
            if (r->sides[n].taken[i].tensor != SIZE_MAX)
                asked[r->sides[n].taken[i].tensor] = true;
    for (size_t i = 0; i < r->reader->index->tensor_count; i++)
        count += asked[i];
    return count;
}

static void number_asked(ckpt__restorer *r, const uint32_t *now)
{
    for (size_t i = 0; i < r->bonds.count; i++)
        if (!(r->bonds.bonds[i].flags & CKPT__BOND_STORAGE))
            r->bonds.bonds[i].from = now[r->bonds.bonds[i].from];
    for (size_t n = 0; n < r->count; n++)
        for (size_t i = 0; i < r->sides[n].state->value_count; i++)
            if (r->sides[n].taken[i].tensor != SIZE_MAX)
                r->sides[n].taken[i].tensor = now[r->sides[n].taken[i].tensor];
}

/* A bond of storages asks for no tensor: where most are such bonds, the rows of their tensors are of no use any more, and the plan has
 * their memory: 200 MB of a million. The items say from here on whether they have a tensor, and not which. */
static ckpt_status forget_tensors(ckpt__restorer *r, ckpt_error *err)
{
    ckpt__index *x = r->reader->index;
    bool *asked = calloc(x->tensor_count + 1, sizeof *asked);
    uint32_t *now = malloc((x->tensor_count + 1) * sizeof *now), next = 0;
    ckpt_status status = asked && now ? CKPT_OK : no_memory(r, err);
    if (status == CKPT_OK && find_asked(r, asked) <= x->tensor_count / 2) {
        for (size_t i = 0; i < x->tensor_count; i++) {
            now[i] = next;
            next += asked[i];
        }
        status = ckpt__index_keep(x, asked, err);
        if (status == CKPT_OK)
            number_asked(r, now);
    }
    free(asked);
    free(now);
    return status;
}

ckpt_status ckpt__restore_bind(ckpt__restorer *r, ckpt_error *err)
{
    ckpt__restore_bonds *b = &r->bonds;
    size_t count = 0;
    ckpt_status status = CKPT_OK;
    for (size_t n = 0; n < r->count; n++)
        for (size_t i = 0; i < r->sides[n].state->count; i++)
            count += r->sides[n].items[i].tensor != CKPT__NOTHING;
    if (!(b->places = ckpt__index_new(0)) || !ckpt__index_reserve(b->places, count, 0) ||
        !ckpt__grow(&b->bonds, &b->bond_capacity, count, sizeof *b->bonds) ||
        !ckpt__grow(&b->owners, &b->owner_capacity, count, sizeof *b->owners))
        return no_memory(r, err);
    for (size_t n = 0; n < r->count; n++)
        for (size_t i = 0; status == CKPT_OK && i < r->sides[n].state->count; i++)
            if (r->sides[n].items[i].tensor != CKPT__NOTHING)
                status = add_bond(r, n, i, err);
    if (status == CKPT_OK && !(b->done = calloc(b->count + 1, sizeof *b->done)))
        status = no_memory(r, err);
    if (status == CKPT_OK)
        status = forget_tensors(r, err);
    ckpt__plan_want want = {.from = r->reader->index,
                            .to = b->places,
                            .bonds = b->bonds,
                            .bond_count = b->count,
                            .ops = b->ops,
                            .op_count = b->op_count,
                            .push = true};
    return status == CKPT_OK ? ckpt__plan_new(&want, &b->plan, err) : status;
}

ckpt_status ckpt__restore_not_whole(ckpt__restorer *r, const ckpt_error *why, ckpt_error *err)
{
    char shown[sizeof why->object];
    const ckpt__index *x = r->reader->index;
    for (size_t i = 0; i < r->bonds.count; i++) {
        const ckpt__owner *owner = &r->bonds.owners[i];
        const ckpt__bond *bond = &r->bonds.bonds[i];
        ckpt__target_state *side = &r->sides[owner->state];
        const char *name = bond->flags & CKPT__BOND_STORAGE ? x->storages[bond->from].name.data
                                                            : x->tensors[bond->from].info.name.data;
        if (strcmp(ckpt__escape(shown, sizeof shown, name, strlen(name)), why->object) != 0)
            continue;
        ckpt_status status =
            ckpt__target_note(side, CKPT_SEVERITY_ERROR, "not-whole", side->state->bindings[owner->binding].name.data,
                              "restore from a checkpoint that has all of it, or leave it unbound and "
                              "permit that with allow_unexpected",
                              err, "%s", why->message);
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

/* Two read out of the page cache as fast as memory takes it on most machines, and leave the other processors to the program. One thread
 * reads, checks and sends to a device a tenth of what the link takes: of 1, 2, 4, 8 and 12 threads, 12 were the fastest on an H200
 * (bench/gpu.py). Where a disk is waited for more are wanted, and those take no processor (io/readers.h);
 * past the page cache sixteen were 1.02 to 1.08 times as fast as eight, in five runs of a virtual disk. */
enum { TO_HOST = 2, TO_DEVICES = 12, PAST_CACHE = CKPT__PUSH_THREADS };
static unsigned threads_of(const ckpt__restorer *r, bool cached)
{
    size_t asked = r->sides[0].options.threads;
    unsigned most = ckpt__workers_allowed(), own = r->bonds.places->device_count > 1 ? TO_DEVICES : TO_HOST;
    if (asked)
        return asked < CKPT__PUSH_THREADS ? (unsigned)asked : CKPT__PUSH_THREADS;
    most = most < own ? most : own;
    if (!cached && own == TO_HOST && !(r->sides[0].options.avoid & CKPT_AVOID_DIRECT))
        return PAST_CACHE;
    return cached || most >= CKPT__READERS ? most : CKPT__READERS;
}

ckpt_status ckpt__restore_push(ckpt__restorer *r, bool look_only, ckpt_error *err)
{
    const ckpt_restore_options *o = &r->sides[0].options;
    const bool cached = ckpt__source_is_cached(r->reader->source);
    const unsigned threads = threads_of(r, cached);
    ckpt__push_want want = {.plan = r->bonds.plan,
                            .source = r->reader->source,
                            .lanes = &r->lanes,
                            .progress = look_only ? NULL : &o->progress,
                            .check = !o->no_verify,
                            .look_only = look_only,
                            .threads = threads,
                            .past_cache = !cached && threads >= CKPT__READERS, /* for fewer the system reads ahead */
                            .avoid = o->avoid,
                            .done = look_only ? NULL : r->bonds.done};
    return ckpt__push(&want, err);
}
