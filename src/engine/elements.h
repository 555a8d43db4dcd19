/* engine/elements.h - the elements of a tensor, or the bytes of a storage, in order, in memory that is bounded. */
#ifndef CKPT_ELEMENTS_H
#define CKPT_ELEMENTS_H
#include "engine/joined.h"
#include "engine/move.h"
#include "engine/gather.h"

enum { CKPT__MEMORY = 128 << 20 }; /* bytes that the buffers of one tensor take where nobody says how many */

/* One tensor or storage that is read from its first byte to its last. Of a tensor the bytes come in C order, and
 * little-endian.
 *
 * A read may ask for any number of bytes, but a byte swap needs whole units. Two big-endian float32 are read 6 bytes
 * and then 2: the first 4 go to the caller directly; the second unit is read into `carry` (carried 4) and swapped
 * there, and 2 bytes of it are given (carry_at 2). The second read takes the other 2 from there. */
typedef struct ckpt__elements {
    ckpt__decoder decoder; /* what lies in order is read through it */
    ckpt__joined *joined;  /* owned: what does not, or is split; NULL: it lies in order */
    uint64_t next;         /* of it: the byte with which the next window begins */
    size_t room;           /* bytes of a window */
    unsigned char *window; /* heap, owned: the window that was put together; bytes [window_at, window_end) of it
                                   * are not yet given out. NULL: it lies in order */
    size_t window_at, window_end;
    const ckpt__source *source; /* borrowed */
    const ckpt__extent *
        extent; /* the index's, or what was found of it; only the answer of the CRC check is written (engine/checked.h) */
    uint64_t size, at;                         /* bytes in all, and given out */
    size_t unit;                               /* bytes that belong together: no block ends within */
    uint32_t swap;                             /* bytes that are reversed; 1: none */
    ckpt__op op;                               /* of a resolved view, what gives its values; it swaps nothing */
    bool changes;                              /* there is such an op */
    unsigned char carry[16];                   /* of a unit that a read cuts */
    size_t carried, carry_at;                  /* bytes of it; how many were given out */
    bool check_extent, check_tensor, whole;    /* compare the CRC of the storage, of the tensor; all of the extent is
                                                * read */
    uint32_t extent_crc, tensor_crc, want_crc; /* of the bytes as stored; of the elements in C order, not
                                                   * resolved; what tensor_crc must be */
    char what[200];                            /* for messages: the name, escaped */
} ckpt__elements;

/* How the elements are read. All zero: no check, the bytes behind a view, 128 MiB. */
typedef struct ckpt__elements_options {
    bool check;      /* compare the CRCs there are: of the storage, also where a view is but a part of it, and of
                                   * the tensor */
    bool resolve;    /* conjugate and negated views: give their values, not the bytes behind them */
    uint64_t memory; /* for the buffers; 0: CKPT__MEMORY */
} ckpt__elements_options;

/* CKPT_E_UNSUPPORTED where it is not dense or has no data; CKPT_E_MISMATCH where it is split and its pieces are not all of it, or
 * meet; CKPT_E_NO_MEMORY. */
ckpt_status ckpt__elements_of_tensor(ckpt__elements *e, const ckpt__source *source, const ckpt__index *index,
                                     size_t tensor, const ckpt__elements_options *options, ckpt_error *err);
/* The first of these, of a tensor that has no bytes (ckpt__has_no_bytes). */
ckpt_status ckpt__elements_none(const ckpt__tensor *tensor, const char *what, ckpt_error *err);
/* All bytes of a storage, its elements little-endian (as_stored: as they are). */
ckpt_status ckpt__elements_of_storage(ckpt__elements *e, const ckpt__source *source, const ckpt__index *index,
                                      size_t storage, bool as_stored, const ckpt__elements_options *options,
                                      ckpt_error *err);
/* The next n bytes, never more than are left; with the last of them CRCs are compared: CKPT_E_DAMAGED. */
ckpt_status ckpt__elements_read(ckpt__elements *e, void *dst, size_t n, ckpt_error *err);
void ckpt__elements_close(ckpt__elements *e); /* of one that was opened, also without success, or is all zero */
#endif
