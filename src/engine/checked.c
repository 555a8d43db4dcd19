/* engine/checked.c - the CRC of a storage, whatever part of it is used. Whoever reads a storage from its first byte to its last
 * compares the CRC on the way (engine/elements.c, engine/pull_copy.c; over several questions engine/crcs.c); of a view with holes, or
 * a part, it is compared here, before. The answer is kept with the extent: a thousand views of one storage cost one more reading of
 * it. A span, in which storages lie that have no CRC of their own, is read once, before the first of them is used. */
#include "engine/checked.h"
#include "engine/nested.h"
#include "engine/stream.h"

enum { UNKNOWN = 0, SOUND, DAMAGED };

void ckpt__note_checked(const ckpt__extent *of, bool sound)
{
    ckpt__extent *e = (ckpt__extent *)(uintptr_t)of; /* the answer alone is not const */
    __atomic_store_n(&e->checked, (uint8_t)(sound ? SOUND : DAMAGED), __ATOMIC_RELAXED);
}

bool ckpt__is_sound(const ckpt__extent *e)
{
    return __atomic_load_n(&e->checked, __ATOMIC_RELAXED) == SOUND;
}

bool ckpt__is_damaged(const ckpt__extent *e)
{
    return __atomic_load_n(&e->checked, __ATOMIC_RELAXED) == DAMAGED;
}

ckpt_status ckpt__wrong_crc(uint32_t is, uint32_t was, const char *what, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_DAMAGED, what,
                      "the CRC-32 of its bytes is %08x; %08x was stored when it was written "
                      "(copy the file again, or use an earlier checkpoint)",
                      is, was);
}

/* Little of a large storage or span, with all that was asked for before: what is given then is counted. */
static bool is_little(uint64_t *given, uint64_t size, uint64_t bytes)
{
    uint64_t most = size / CKPT__CHECK_FROM;
    if (size <= CKPT__CHECK_ANYWAY || bytes >= most)
        return false;
    return __atomic_add_fetch(given, bytes, __ATOMIC_RELAXED) < most;
}

/* A span that nobody has compared yet. */
static ckpt_status compare_span(const ckpt__source *source, ckpt__span *span, ckpt_error *err)
{
    if (ckpt__is_sound(&span->extent) || ckpt__is_damaged(&span->extent))
        return CKPT_OK;
    ckpt_status status = ckpt__read_span(source, span, NULL, NULL, &span->found, err);
    if (status == CKPT_OK)
        ckpt__note_checked(&span->extent, span->found == span->extent.crc);
    return status;
}

static ckpt_status wrong_span(const ckpt__span *span, const char *what, ckpt_error *err)
{
    char name[200];
    return ckpt__fail(
        err, CKPT_E_DAMAGED, what,
        "it lies in %s, whose bytes have the CRC-32 %08x; the archive says %08x, and which of its tensors are "
        "damaged cannot be told (copy the file again, or use an earlier checkpoint)",
        ckpt__escape(name, sizeof name, span->name.data, span->name.size), span->found, span->extent.crc);
}

static ckpt_status check_span(const ckpt__source *source, const ckpt__index *index, uint32_t number, uint64_t bytes,
                              const char *what, ckpt_error *err)
{
    ckpt__index *x = (ckpt__index *)(uintptr_t)index; /* the answer and the counts alone are not const */
    ckpt__span *span = &x->spans[number];
    if (ckpt__is_sound(&span->extent))
        return CKPT_OK;
    if (!ckpt__is_damaged(&span->extent) && x->parts_given && is_little(&span->given, span->extent.size, bytes))
        return CKPT_OK;
    pthread_mutex_lock(&x->span_lock);
    ckpt_status status = compare_span(source, span, err);
    pthread_mutex_unlock(&x->span_lock);
    if (status < 0 || ckpt__is_sound(&span->extent)) {
        if (status == CKPT_E_DAMAGED)
            ckpt__error_object(err, what);
        return status;
    }
    return wrong_span(span, what, err);
}

ckpt_status ckpt__compare_span(const ckpt__index *index, uint32_t number, uint32_t crc, const char *what,
                               ckpt_error *err)
{
    ckpt__span *span = &((ckpt__index *)(uintptr_t)index)->spans[number];
    span->found = crc;
    ckpt__note_checked(&span->extent, crc == span->extent.crc);
    return crc == span->extent.crc ? CKPT_OK : wrong_span(span, what, err);
}

static ckpt_status already_wrong(const ckpt__extent *e, const char *what, ckpt_error *err)
{
    if (e->coding == CKPT__ZLIB)
        return ckpt__fail(err, CKPT_E_DAMAGED, what,
                          "the deflated bytes of its storage are damaged, as their Adler-32 tells or zlib "
                          "(copy the file again, or use an earlier checkpoint)");
    return ckpt__fail(err, CKPT_E_DAMAGED, what,
                      "the bytes of its storage do not have the CRC-32 %08x that was stored when "
                      "it was written (copy the file again, or use an earlier checkpoint)",
                      e->crc);
}

ckpt_status ckpt__check_storage(const ckpt__source *source, const ckpt__index *index, size_t storage, uint64_t bytes,
                                const char *what, ckpt_error *err)
{
    const ckpt__extent *e;
    ckpt_status status = ckpt__extent_find(source, index, storage, &e, err);
    if (status == CKPT_OK && e->spanned && e->size)
        return check_span(source, index, e->span, bytes, what, err);
    if (status < 0 || !(ckpt__has_crc_of_its_own(e) || e->coding == CKPT__ZLIB) || e->missing)
        return status;
    uint8_t known = __atomic_load_n(&e->checked, __ATOMIC_RELAXED);
    if (known == SOUND)
        return CKPT_OK;
    if (known == DAMAGED)
        return already_wrong(e, what, err);
    if (index->parts_given && is_little(&index->parts_given[storage], e->size, bytes))
        return CKPT_OK;
    status = ckpt__read_storage(source, index, storage, true, NULL, NULL, err);
    if (status == CKPT_E_DAMAGED) {
        ckpt__note_checked(e, false);
        ckpt__error_object(err, what);
    } else if (status == CKPT_OK && e->coding == CKPT__ZLIB)
        ckpt__note_checked(e, true);
    return status;
}

uint64_t ckpt__bytes_unchecked(const ckpt__index *x, uint64_t *of)
{
    uint64_t bytes = 0;
    *of = 0;
    for (size_t i = 0; x->parts_given && i < x->storage_count; i++) {
        const ckpt__extent *e = ckpt__extent_known(x, i);
        uint64_t given = __atomic_load_n(&x->parts_given[i], __ATOMIC_RELAXED);
        if (given && __atomic_load_n(&e->checked, __ATOMIC_RELAXED) != SOUND) {
            bytes += given;
            *of += e->size;
        }
    }
    for (size_t i = 0; x->parts_given && i < x->span_count; i++) {
        uint64_t given = __atomic_load_n(&x->spans[i].given, __ATOMIC_RELAXED);
        if (given && !ckpt__is_sound(&x->spans[i].extent)) {
            bytes += given;
            *of += x->spans[i].extent.size;
        }
    }
    return bytes;
}
