/* engine/elements.c - the elements of a tensor, or the bytes of a storage, in order. */
#include "engine/elements.h"

#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/nested.h"

/* ---- opening */

static void label(ckpt__elements *e, ckpt_str name, const char *otherwise)
{
    ckpt__escape(e->what, sizeof e->what, name.data ? name.data : otherwise, name.data ? name.size : strlen(otherwise));
}

static ckpt_status set_op(ckpt__elements *e, const ckpt_tensor_info *t, ckpt_error *err)
{
    ckpt__op_want want = {.from = t->dtype, .to = t->dtype, .conj = t->conj, .neg = t->neg};
    ckpt_status status = ckpt__op_make(&want, e->what, &e->op, err);
    e->changes = status == CKPT_OK && !ckpt__op_is_plain(&e->op);
    if (e->changes)
        e->unit = e->op.from_size;
    return status;
}

/* What lies in the order in which it is asked for: bytes [begin, begin + size) of the storage. Read from end to end its CRC
 * is taken on the way; for a part of it the storage is checked before. */
static ckpt_status open_range(ckpt__elements *e, const ckpt__index *index, size_t storage, uint64_t begin, bool check,
                              ckpt_error *err)
{
    ckpt_status status = ckpt__extent_find(e->source, index, storage, &e->extent, err);
    if (status == CKPT_OK)
        status = ckpt__extent_holds(e->extent, begin, e->size, e->what, err);
    e->whole = begin == 0 && e->size == e->extent->size;
    e->check_extent = check && e->whole && ckpt__has_crc_of_its_own(e->extent);
    if (status == CKPT_OK && check && (!e->whole || ckpt__is_asked_before(e->extent)))
        status = ckpt__check_storage(e->source, index, storage, e->size, e->what, err);
    if (status == CKPT_OK)
        status = ckpt__decoder_open(&e->decoder, e->source, e->extent, e->what, err);
    if (status == CKPT_OK && begin)
        status = ckpt__decoder_skip(&e->decoder, begin, err);
    return status;
}

/* The most bytes that a coded storage of the tensor has, decoded; 0: none is coded. */
static uint64_t coded_bytes(const ckpt__index *x, const ckpt__tensor *t)
{
    uint64_t most = 0;
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        const ckpt__extent *e = ckpt__extent_known(x, ckpt__view_of(x, t, i).storage);
        if (!e->memory && e->coding != CKPT__STORED && e->size > most)
            most = e->size;
    }
    return most;
}

/* Bytes of a window, whole slices of the tensor where they fit: runs of what is turned are as long as a window has rows, so memory is
 * well spent on it. What is split lies in long runs as a rule. */
static uint64_t window_of(const ckpt__tensor *t, uint64_t memory)
{
    uint64_t least = CKPT__SCRATCH + CKPT__CODED_BLOCK, room = memory > 2 * least ? memory - least : least;
    uint64_t slice = ckpt_dtype_size(t->info.dtype);
    if (!t->whole && room > CKPT__BLOCK)
        room = CKPT__BLOCK;
    if (t->info.nbytes <= room)
        return t->info.nbytes;
    for (uint32_t i = t->info.ndim; slice && i-- > 0 && (uint64_t)t->info.shape[i] <= room / slice;)
        slice *= (uint64_t)t->info.shape[i];
    return slice ? room / slice * slice : room;
}

/* What is split, or does not lie in its order: a window at a time is put together. Its bytes come swapped, and the CRCs of the
 * storages compared. */
static ckpt_status open_joined(ckpt__elements *e, const ckpt__index *index, size_t tensor,
                               const ckpt__elements_options *options, ckpt_error *err)
{
    const ckpt__tensor *t = &index->tensors[tensor];
    uint64_t memory = options->memory ? options->memory : CKPT__MEMORY, coded = coded_bytes(index, t);
    bool once = t->whole && window_of(t, memory) == t->info.nbytes; /* decoded once in any case */
    bool kept = coded && coded <= memory / 2 && !once;
    e->extent = NULL;
    e->swap = 1;
    e->unit = e->changes ? e->op.from_size : 1;
    uint64_t room = window_of(t, kept ? memory - coded : memory);
    e->room = (size_t)room;
    if (room > SIZE_MAX / 2 || !(e->window = malloc(e->room)))
        return ckpt__fail_memory(err, e->what, room);
    return ckpt__joined_new(e->source, index, tensor, false, options->check, kept ? coded : 1, &e->joined, err);
}

/* The next window of one. */
static ckpt_status next_joined(ckpt__elements *e, ckpt_error *err)
{
    uint64_t left = e->size - e->next;
    e->window_end = left < e->room ? (size_t)left : e->room;
    ckpt_status status = ckpt__joined_read(e->joined, e->next, e->window, e->window_end, err);
    e->next += e->window_end;
    return status;
}

ckpt_status ckpt__elements_none(const ckpt__tensor *t, const char *what, ckpt_error *err)
{
    const char *layout = t->info.extra->layout.data;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, what,
                      layout ? "its layout is %s: only dense tensors are read%s" : "it has no data of its own%s%s",
                      layout ? layout : " (a meta tensor)",
                      layout && t->info.extra->part_count ? ", as its parts are: read those" : "");
}

ckpt_status ckpt__elements_of_tensor(ckpt__elements *e, const ckpt__source *source, const ckpt__index *index,
                                     size_t tensor, const ckpt__elements_options *options, ckpt_error *err)
{
    const ckpt__tensor *t = &index->tensors[tensor];
    memset(e, 0, sizeof *e);
    label(e, t->info.name, "");
    if (ckpt__has_no_bytes(t))
        return ckpt__elements_none(t, e->what, err);
    e->source = source;
    e->size = t->info.nbytes;
    e->check_tensor = options->check && t->has_crc;
    e->want_crc = t->crc;
    e->swap = 1;
    e->unit = 1;
    if (e->size == 0)
        return CKPT_OK;
    ckpt_status status = options->resolve && (t->info.conj || t->info.neg) ? set_op(e, &t->info, err) : CKPT_OK;
    if (status < 0)
        return status;
    if (!t->whole || !ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim))
        return open_joined(e, index, tensor, options, err);
    ckpt__storage *s = &index->storages[t->storage];
    e->extent = &s->extent;
    e->swap = s->extent.big_endian && s->unit > 1 ? s->unit : 1;
    e->unit = e->changes ? e->op.from_size : e->swap;
    return open_range(e, index, t->storage, ckpt__view_of(index, t, 0).at, options->check, err);
}

ckpt_status ckpt__elements_of_storage(ckpt__elements *e, const ckpt__source *source, const ckpt__index *index,
                                      size_t storage, bool as_stored, const ckpt__elements_options *options,
                                      ckpt_error *err)
{
    ckpt__storage *s = &index->storages[storage];
    memset(e, 0, sizeof *e);
    label(e, s->name, "storage");
    e->source = source;
    e->extent = &s->extent;
    e->size = s->extent.size;
    e->swap = !as_stored && s->extent.big_endian && s->unit > 1 ? s->unit : 1;
    e->unit = e->swap;
    return open_range(e, index, storage, 0, options->check, err);
}

void ckpt__elements_close(ckpt__elements *e)
{
    ckpt__decoder_close(&e->decoder);
    ckpt__joined_free(e->joined);
    free(e->window);
    memset(e, 0, sizeof *e);
}

/* ---- reading */

static ckpt_status from_windows(ckpt__elements *e, unsigned char *to, size_t n, ckpt_error *err)
{
    while (n) {
        if (e->window_at == e->window_end) {
            e->window_at = e->window_end = 0;
            ckpt_status status = next_joined(e, err);
            if (status < 0)
                return status;
            if (e->window_end == 0)
                return ckpt__fail(err, CKPT_E_FORMAT, e->what, "its view has fewer elements than its shape says");
        }
        size_t some = e->window_end - e->window_at < n ? e->window_end - e->window_at : n;
        memcpy(to, e->window + e->window_at, some);
        e->window_at += some;
        to += some;
        n -= some;
    }
    return CKPT_OK;
}

/* n more bytes, whole units where there are any; CRCs on the way. */
static ckpt_status read_units(ckpt__elements *e, unsigned char *to, size_t n, ckpt_error *err)
{
    ckpt_status status = e->joined ? from_windows(e, to, n, err) : ckpt__decoder_read(&e->decoder, to, n, err);
    if (status < 0)
        return status;
    if (e->check_extent)
        e->extent_crc = ckpt__crc32(e->extent_crc, to, n);
    if (e->swap > 1)
        ckpt__swap_bytes(to, n, e->swap);
    if (e->check_tensor)
        e->tensor_crc = ckpt__crc32(e->tensor_crc, to, n);
    if (e->changes)
        ckpt__op_apply(&e->op, to, n / e->op.from_size);
    return CKPT_OK;
}

static ckpt_status finish(ckpt__elements *e, ckpt_error *err)
{
    ckpt_status status = e->whole ? ckpt__decoder_finish(&e->decoder, err) : CKPT_OK;
    if (status == CKPT_OK && e->check_extent && e->extent_crc != e->extent->crc)
        status = ckpt__wrong_crc(e->extent_crc, e->extent->crc, e->what, err);
    if (e->check_extent && (status == CKPT_OK || status == CKPT_E_DAMAGED))
        ckpt__note_checked(e->extent, status == CKPT_OK);
    if (status == CKPT_OK && e->check_tensor && e->tensor_crc != e->want_crc)
        status = ckpt__wrong_crc(e->tensor_crc, e->want_crc, e->what, err);
    return status;
}

ckpt_status ckpt__elements_read(ckpt__elements *e, void *dst, size_t n, ckpt_error *err)
{
    unsigned char *to = dst;
    ckpt_status status = CKPT_OK;
    if (n > e->size - e->at)
        return ckpt__fail(err, CKPT_E_FORMAT, e->what, "more is asked for than its %llu bytes",
                          (unsigned long long)e->size);
    e->at += n;
    while (status == CKPT_OK && n) {
        size_t some = e->carried - e->carry_at;
        if (some) {
            some = some < n ? some : n;
            memcpy(to, e->carry + e->carry_at, some);
            e->carry_at += some;
        } else if (n >= e->unit) {
            some = n - n % e->unit;
            status = read_units(e, to, some, err);
        } else {
            uint64_t left = e->size - (e->at - n); /* a storage may end within a unit */
            e->carried = left < e->unit ? (size_t)left : e->unit;
            e->carry_at = 0;
            status = read_units(e, e->carry, e->carried, err);
            some = 0;
        }
        to += some;
        n -= some;
    }
    return status == CKPT_OK && e->at == e->size && e->size ? finish(e, err) : status;
}
