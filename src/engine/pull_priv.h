/* engine/pull_priv.h - what the files of the pull share. */
#ifndef CKPT_PULL_PRIV_H
#define CKPT_PULL_PRIV_H
#include "engine/crcs.h"
#include "engine/decode.h"
#include "engine/pull.h"

enum { CKPT__PULL_DECODERS = 4 }; /* coded storages that are read side by side: a tensor that is split over as many */

/* When the CRC of a copy's storage is compared. */
typedef enum ckpt__crc_rule {
    CKPT__CRC_NONE,    /* not here: there is none, or it was compared before the copy is read */
    CKPT__CRC_OF_COPY, /* the copy reads all of the storage: with its last byte */
    CKPT__CRC_ADDED,   /* the copy is a range of it: pull->crcs gets the range */
    CKPT__CRC_OF_SPAN  /* likewise, of the span that has the storage */
} ckpt__crc_rule;

/* A copy that is kept for the time of a range. Its box lies in `dims`: sizes, strides of the source, strides of the target. Of a dense
 * one the dimensions stand in the order of the source. */
typedef struct ckpt__held {
    uint32_t from, bond;
    uint16_t op, n;
    bool dense;       /* its elements lie side by side in the source, in whatever order */
    bool run;         /* and in the same order in the target */
    uint8_t rule;     /* ckpt__crc_rule, once it was asked for */
    size_t dims;      /* number of the first */
    uint64_t from_at; /* bytes in the storage */
    uint64_t to_at;   /* bytes in the memory that the question fills */
    uint64_t span;    /* bytes of the source from the first to past the last */
    uint32_t file;    /* UINT32_MAX: it is not read from a file as it is: from memory, or decoded */
    uint64_t place;   /* in the file; else 0 */
} ckpt__held;

/* A decoder that stays where the last copy has left it. */
typedef struct ckpt__open_decoder {
    ckpt__decoder decoder;
    uint32_t storage;
    uint64_t used; /* the question that used it last; 0: it is closed */
} ckpt__open_decoder;

struct ckpt__pull {
    const ckpt__plan *plan; /* borrowed, as is the source */
    const ckpt__source *source;
    bool check;
    ckpt__crcs *crcs;   /* borrowed; NULL: a storage that is read range by range is checked before */
    uint64_t memory;    /* bytes of a coded storage that may be kept decoded */
    ckpt__held *copies; /* heap, owned, as are all arrays */
    size_t count, capacity;
    uint64_t *dims;
    size_t dim_count, dim_capacity;
    unsigned char *scratch; /* CKPT__SCRATCH bytes: what is read together, or a tile of it; NULL before */
    unsigned char *stage;   /* CKPT__PULL_STAGE bytes: elements that are converted; NULL before */
    unsigned char *decoded; /* the coded storage that was asked for last; NULL: none */
    uint32_t decoded_of;    /* its number */
    ckpt__open_decoder decoders[CKPT__PULL_DECODERS];
    uint64_t openings;          /* of decoders */
    uint64_t uses;              /* of decoders */
    ckpt__pull_fetch_fn *fetch; /* of a device's memory; NULL: none is read */
    void *fetch_ctx;            /* its owner's */
    uint64_t low,
        high;       /* of the copies of the last range: the first byte and past the last, which may lie outside of it */
    uint64_t shift; /* what to_at is more than the byte of the storage */
};

enum { CKPT__PULL_STAGE = 256 << 10 };

/* ---- pull_copy.c */
const ckpt__extent *ckpt__pull_extent(const ckpt__pull *pull, uint32_t storage);
void ckpt__pull_box(const ckpt__pull *pull, const ckpt__held *copy, ckpt__copy_box *box);
/* Finds the rule of the copy. Where its storage is to be checked before, it is. */
ckpt_status ckpt__pull_rule(ckpt__pull *pull, ckpt__held *copy, ckpt_error *err);
/* All bytes of a dense copy, as they are stored: compared, or added. */
ckpt_status ckpt__pull_crc(ckpt__pull *pull, const ckpt__held *copy, const void *bytes, ckpt_error *err);
/* Elements of a copy with holes that are converted, swapped or flipped go through a small buffer that stays in the cache: long runs of
 * the source, as many as it holds, and one buffer after the other in the order of the source. gather: from the storage, in which
 * the first element is byte `from`, to the buffer; spread: from there to byte `to` behind the copy's first place.
 *   in_order: the storage is coded. No run of it is cut that the buffer holds: behind a buffer the decoder goes on to the next. */
typedef struct ckpt__pull_part {
    uint64_t from, to;
    ckpt__copy_box gather, spread;
} ckpt__pull_part;
typedef ckpt_status ckpt__pull_stage_fn(void *ctx, const ckpt__pull_part *stage, ckpt_error *err);
ckpt_status ckpt__pull_each_stage(const ckpt__copy_box *box, uint32_t item, bool in_order, uint64_t from_at,
                                  ckpt__pull_stage_fn *fn, void *ctx, ckpt_error *err);
/* Do the elements of a copy lie side by side in the source, in whatever order? *sorted: its dimensions, the longest stride of the source
 * first. */
bool ckpt__pull_is_dense(const ckpt__copy_box *box, const ckpt__op *op, ckpt__copy_box *sorted);
/* `to` is the place of the copy's first element. */
ckpt_status ckpt__pull_copy(ckpt__pull *pull, ckpt__held *copy, unsigned char *to, ckpt__convert_counts *counts,
                            ckpt_error *err);
ckpt_status ckpt__pull_need(unsigned char **buffer, size_t size, ckpt_error *err);
void ckpt__pull_close_decoders(ckpt__pull *pull);
#endif
