/* migrate/bytes_priv.h - the bytes of a target: what planning them and reading them share. */
#ifndef CKPT_MIGRATE_BYTES_PRIV_H
#define CKPT_MIGRATE_BYTES_PRIV_H
#include "engine/pull.h"
#include "migrate/out.h"

/* How a payload is read. */
typedef enum ckpt__route {
    CKPT__STRAIGHT, /* its bytes are in the target's order in the source: into the writer's block */
    CKPT__ALONE,    /* a window of it at a time */
    CKPT__AMONG     /* a small one: in one window with those behind it */
} ckpt__route;

/* A range of a payload that is converted, which one file has, or several. */
typedef struct ckpt__slice {
    size_t number;          /* of the payload */
    uint64_t begin, end;    /* bytes of it */
    ckpt__convert_counts n; /* what its conversion costs, as far as it was read */
} ckpt__slice;

struct ckpt__bytes {
    const ckpt__migration *m; /* borrowed */
    ckpt__bond *bonds;        /* heap, owned, as are all arrays: one a payload, in the order of the files */
    size_t count;
    ckpt__op *ops;
    ckpt__op_want *wants; /* one an op */
    size_t op_count, op_capacity, want_capacity;
    bool converts; /* an op does */
    bool ranges;   /* payloads are given in ranges, for several files */
    ckpt__slice *slices;
    size_t slice_count; /* of those that are converted: each once, in the order of their places; NULL: there are none */
    bool slices_meet;   /* two that are not the same have bytes in common */
    ckpt__plan *plan;
    /* while it is read */
    uint64_t memory;                     /* bytes that a window may take */
    ckpt__pull **pulls;                  /* owned: one a thread that reads */
    unsigned pull_count;                 /* threads that read */
    ckpt__crcs *crcs;                    /* owned: of storages that are read range by range */
    ckpt__convert_counts *counts;        /* one a bond, but of what is counted by slices; NULL: nothing is converted */
    ckpt__convert_counts *tensor_counts; /* one a tensor of the source; NULL likewise */
    size_t current;                      /* number of the bond that is read; SIZE_MAX: none */
    ckpt__route route;                   /* its */
    uint32_t storage;                    /* of the target, that it lies in */
    uint64_t begin, size;                /* bytes: where it begins there, and how many it has */
    unsigned unit;                       /* bytes of it that are made together: an element */
    unsigned char carry[16]; /* the element that a read of the writer cuts: bytes [carry_begin, carry_end) of it */
    bool parts;              /* threads may each make a part of it */
    uint64_t carry_begin, carry_end; /* equal: there is none */
    bool sums;                       /* its tensor has a CRC of its own, of the bytes that are given */
    uint32_t crc;                    /* of those that were given; then */
    bool *checked;   /* one a bond: that CRC was compared before its first range. NULL: there are no ranges */
    size_t together; /* those from `current` up to this one are in the window, too; 0: none is */
    unsigned char *window;
    size_t room;        /* bytes of the window that is allocated */
    uint32_t window_of; /* a storage of the target: bytes [window_begin, window_end) of it are in the window */
    uint64_t window_begin, window_end;
};

/* ---- bytes_slices.c */

/* Once ranges have the numbers of payloads. */
ckpt_status ckpt__slices_list(ckpt__bytes *b, const ckpt__out *w);
/* The slice that byte `at` of the payload is in; NULL: none. */
ckpt__slice *ckpt__slice_at(const ckpt__bytes *b, size_t number, uint64_t at);
/* Elements from byte `at` of the payload on were converted. A slice is always read from its first byte on. */
void ckpt__slice_count(ckpt__slice *s, uint64_t at, const ckpt__convert_counts *n);
/* Of all of the payload. */
ckpt__convert_counts ckpt__slices_sum(const ckpt__bytes *b, size_t number);
#endif
