/* format/deepspeed/doubles.c - is a rank's file a copy of another's? Nothing in it says whose it is, but the archive has the CRC of each
 * flat tensor: of two ranks no two files have the same, unless it is of zeros. */
#include "format/deepspeed/deepspeed.h"

#include <stdlib.h>
#include <zlib.h>

/* The CRCs and the sizes of all flat tensors of one rank. */
typedef struct mark {
    ckpt__buf bytes;
    bool known, zero; /* each has a CRC; each is of zeros, as far as that was asked */
    const ckpt__ds *d;
    bool ask;
} mark;

static bool is_zero(const ckpt__extent *e)
{
    static const unsigned char zeros[1 << 16];
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t left = e->size; left > 0;) {
        const uInt n = left < sizeof zeros ? (uInt)left : (uInt)sizeof zeros;
        crc = crc32(crc, zeros, n);
        left -= n;
    }
    return crc == e->crc;
}

static void add(mark *m, const ckpt_value *v)
{
    const ckpt__tensor *t = ckpt__ds_tensor(m->d, v);
    if (!t || t->info.ndim != 1 || !t->whole || t->info.nbytes == 0)
        return;
    const ckpt__extent *e = &ckpt__ds_index(m->d)->storages[t->storage].extent;
    m->known = m->known && e->has_crc;
    if (e->has_crc && m->ask && m->zero)
        m->zero = is_zero(e);
    if (!m->ask) {
        ckpt__buf_add(&m->bytes, &e->crc, sizeof e->crc);
        ckpt__buf_add(&m->bytes, &e->size, sizeof e->size);
    }
}

static void add_all(mark *m, const ckpt__ds_file *f)
{
    const ckpt_value *optimizer = ckpt__ds_optimizer(f), *masters = ckpt__ds_masters(optimizer);
    for (size_t k = 0; masters && k < masters->item_count; k++)
        add(m, masters->items[k]);
    for (size_t k = 0; k < m->d->flat_count; k++) {
        const ckpt_value *state = ckpt__ds_item(ckpt__ds_states(optimizer), m->d->ids[k]);
        for (size_t i = 0; state && state->kind == CKPT_V_DICT && i < state->entry_count; i++)
            add(m, state->entries[i].value);
    }
}

static bool is_all_zero(const ckpt__ds *d, const ckpt__ds_file *f)
{
    mark m = {.known = true, .zero = true, .d = d, .ask = true};
    add_all(&m, f);
    return m.zero;
}

static ckpt_status check_one(const ckpt__ds *d, size_t rank, ckpt__hash *seen, ckpt__arena *arena, ckpt_error *err)
{
    mark m = {.known = true, .d = d};
    size_t other = 0;
    add_all(&m, &d->optims[rank]);
    const bool any = m.known && m.bytes.size > 0;
    const char *key = any && !m.bytes.failed ? ckpt__arena_copy(arena, m.bytes.data, m.bytes.size) : NULL;
    const size_t size = m.bytes.size;
    const bool failed = m.bytes.failed || (any && !key);
    ckpt__buf_free(&m.bytes);
    int put = failed ? -1 : any ? ckpt__hash_put(seen, key, size, rank, &other) : 1;
    if (put < 0)
        return ckpt__ds_no_memory(err);
    if (put > 0 || is_all_zero(d, &d->optims[rank]))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_MISMATCH, d->optims[rank].name,
        "its masters and its state are byte for byte those of rank %zu: one of the two files is a copy of the other. "
        "Copy the file of rank %zu, and that of rank %zu, from where they were saved",
        other, rank, other);
}

ckpt_status ckpt__ds_check_doubles(const ckpt__ds *d, ckpt_error *err)
{
    ckpt__hash *seen = ckpt__hash_new(d->ranks);
    ckpt__arena *arena = ckpt__arena_new(0);
    ckpt_status status = seen && arena ? CKPT_OK : ckpt__ds_no_memory(err);
    for (size_t r = 0; status == CKPT_OK && r < d->ranks; r++)
        if (d->optims[r].there)
            status = check_one(d, r, seen, arena, err);
    ckpt__hash_free(seen);
    ckpt__arena_free(arena);
    return status;
}
