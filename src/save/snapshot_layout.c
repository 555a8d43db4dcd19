/* save/snapshot_layout.c - where the copy of each tensor lies. */
#include <stdlib.h>
#include "save/snapshot.h"
#include "state/state.h"

enum {
    ALIGN = 64, /* bytes; a multiple of each element's size, so that offsets can be told in elements */
    HOLE = 512, /* bytes between two tensors on a device that a copy takes along: what allocators align to */
};

static bool on_device(const ckpt__binding *b)
{
    return ckpt__memory_device(&b->memory).type == CKPT_DEVICE_CUDA;
}

/* A copy has the strides of the tensor where it then takes no more than on the host, and at most twice as much as what comes over a
 * bus; the writer puts the elements in order while the trainer goes on. */
static bool stays_as_it_lies(const ckpt__binding *b)
{
    return on_device(b) ? b->span / 2 <= b->nbytes : ckpt__is_dense(b->shape, b->strides, b->ndim);
}

/* Room at the end of a part; false where that does not fit into 64 bits. */
static bool add(uint64_t *end, uint64_t size, uint64_t *offset)
{
    *offset = *end;
    return ckpt__add(size, ALIGN - 1, &size) && ckpt__add(*end, size / ALIGN * ALIGN, end);
}

/* ---- tensors on devices */

static int by_address(const void *a, const void *b)
{
    const ckpt__binding *p = *(const ckpt__binding *const *)a, *q = *(const ckpt__binding *const *)b;
    if (p->arena != q->arena)
        return p->arena < q->arena ? -1 : 1;
    if (p->lent != q->lent)
        return p->lent < q->lent ? -1 : 1;
    if (p->data != q->data)
        return (uintptr_t)p->data < (uintptr_t)q->data ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Does b lie behind a, in the same allocation, so near that one copy takes both? */
static bool follows(const ckpt__binding *a, const ckpt__binding *b)
{
    bool one = (a->arena != CKPT__NO_ARENA || a->lent != CKPT__NO_ARENA) && a->arena == b->arena && a->lent == b->lent;
    uintptr_t end = (uintptr_t)a->data + (uintptr_t)a->span, begin = (uintptr_t)b->data;
    if (!one || !stays_as_it_lies(a) || !stays_as_it_lies(b) || begin < end)
        return false;
    return begin - end <= HOLE || begin - end <= b->span;
}

/* Neighbours on the device are neighbours here. */
static bool lay_out_device(const ckpt__binding *const *sorted, size_t count, const ckpt__binding *first,
                           ckpt__snap *snaps, uint64_t *end)
{
    for (size_t i = 0, next; i < count; i = next) {
        const ckpt__binding *b = sorted[i];
        uintptr_t begin = (uintptr_t)b->data;
        bool as_lies = stays_as_it_lies(b);
        uint64_t size = as_lies ? b->span : b->nbytes, offset;
        for (next = i + 1; next < count && follows(sorted[next - 1], sorted[next]) &&
                           ((uintptr_t)sorted[next]->data - begin) % ckpt_dtype_size(sorted[next]->dtype) == 0;
             next++)
            size = ((uintptr_t)sorted[next]->data - begin) + sorted[next]->span;
        if (!add(end, size, &offset))
            return false;
        for (size_t k = i; snaps && k < next; k++)
            snaps[sorted[k] - first] =
                (ckpt__snap){offset + ((uintptr_t)sorted[k]->data - begin), .pinned = true, .as_lies = as_lies};
    }
    return true;
}

bool ckpt__snapshot_lay_out(const ckpt_state *state, ckpt__snap *snaps, ckpt__snapshot_need *need)
{
    const ckpt__binding **devices = malloc((state->count + 1) * sizeof *devices);
    size_t count = 0;
    bool fits = devices != NULL;
    *need = (ckpt__snapshot_need){.host = 0};
    for (size_t i = 0; fits && i < state->count; i++) {
        const ckpt__binding *b = &state->bindings[i];
        uint64_t offset;
        if (on_device(b)) {
            devices[count++] = b;
            continue;
        }
        fits = add(&need->host, b->nbytes, &offset);
        if (snaps)
            snaps[i] = (ckpt__snap){offset, .pinned = false, .as_lies = stays_as_it_lies(b)};
    }
    if (count > 1)
        qsort(devices, count, sizeof *devices, by_address);
    fits = fits && lay_out_device(devices, count, state->bindings, snaps, &need->pinned);
    free(devices);
    return fits;
}

bool ckpt__snapshot_measure(const ckpt_state *state, ckpt__snapshot_need *need)
{
    bool fits = ckpt__snapshot_lay_out(state, NULL, need);
    for (size_t i = 0; fits && i < state->value_count; i++)
        fits = ckpt__add(need->values, state->values[i].last, &need->values);
    return fits;
}

/* ---- as an index */

static bool add_part(ckpt__index *x, const char *name, uint64_t size)
{
    ckpt__storage *s = ckpt__index_add_storage(x);
    if (!s)
        return false;
    s->name = ckpt__s(name);
    s->extent.length = s->extent.size = size;
    return true;
}

static bool add_copy(ckpt__index *x, const ckpt_tensor_info *of, const ckpt__snap *snap)
{
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    int64_t *strides = snap->as_lies ? NULL : ckpt__arena_array(x->arena, of->ndim ? of->ndim : 1, sizeof *strides);
    if (!t || (!strides && !snap->as_lies))
        return false;
    t->info = *of;
    if (strides) {
        ckpt__c_strides(of->shape, of->ndim, strides);
        t->info.strides = strides;
    }
    t->info.offset = (int64_t)(snap->offset / ckpt_dtype_size(of->dtype));
    t->storage = snap->pinned;
    t->whole = true;
    return true;
}

ckpt_status ckpt__snapshot_index(const ckpt__index *memory, const ckpt__snap *snaps, const ckpt__snapshot_need *need,
                                 ckpt__index **kept, ckpt_error *err)
{
    ckpt__index *x = *kept = ckpt__index_new(0);
    bool made = x && ckpt__index_reserve(x, 2, memory->tensor_count) && add_part(x, "snapshot", need->host) &&
                add_part(x, "snapshot of device memory", need->pinned);
    for (size_t i = 0; made && i < memory->tensor_count; i++)
        made = add_copy(x, &memory->tensors[i].info, &snaps[i]);
    return made ? CKPT_OK : ckpt__fail_memory(err, "snapshot", memory->tensor_count * sizeof *x->tensors);
}
