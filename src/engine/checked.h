/* engine/checked.h - the CRC of a storage, whatever part of it is used: checked by one pass, once for all its views. */
#ifndef CKPT_CHECKED_H
#define CKPT_CHECKED_H
#include "io/source.h"
#include "model/index.h"

/* Before `bytes` of a storage are used out of its order, or without the others: is it what its CRC says? Reads it from end to
 * end where that is not known yet of this index, and so the span that it lies in, by one thread alone; CKPT_E_DAMAGED, of which `what` is the object. CKPT_OK where the extent
 * has no checksum, or is cut off (`missing`: there is nothing to compare it with). Threads that share the index may each read it
 * at the same time. bytes UINT64_MAX: as many as there are.
 *   Where the index counts parts (parts_given), what is little of a storage over CKPT__CHECK_ANYWAY is counted, and not
 * checked. */
ckpt_status ckpt__check_storage(const ckpt__source *source, const ckpt__index *index, size_t storage, uint64_t bytes,
                                const char *what, ckpt_error *err);
/* All of it was read, and its CRC compared. */
void ckpt__note_checked(const ckpt__extent *extent, bool sound);
bool ckpt__is_sound(const ckpt__extent *extent);   /* it was, and was right */
bool ckpt__is_damaged(const ckpt__extent *extent); /* it was, and was wrong */
/* The error of bytes whose CRC is not the one that was stored. `what`: the object. */
ckpt_status ckpt__wrong_crc(uint32_t is, uint32_t was, const char *what, ckpt_error *err);
/* The bytes of a span were read, and have this CRC. CKPT_E_DAMAGED, of `what`: it is not the stored one. */
ckpt_status ckpt__compare_span(const ckpt__index *index, uint32_t span, uint32_t crc, const char *what,
                               ckpt_error *err);
/* Is a CRC compared before any use, but where a ckpt__crcs takes it? */
static inline bool ckpt__is_asked_before(const ckpt__extent *e)
{
    return e->spanned;
}
/* Is there a CRC of the bytes as they are given? What is turned is compared as its record is read. */
static inline bool ckpt__has_crc_of_its_own(const ckpt__extent *e)
{
    return e->has_crc && e->coding != CKPT__TURNED;
}
/* Bytes of the index that were given unchecked; *of: of the storages that they are a part of. */
uint64_t ckpt__bytes_unchecked(const ckpt__index *index, uint64_t *of);

enum {
    CKPT__CHECK_ANYWAY = 64 << 20, /* bytes of a storage that take no time worth speaking of */
    CKPT__CHECK_FROM = 8           /* so much of a larger one is not little: an eighth, all requests together */
};
#endif
