/* engine/recipe_write.h - the one place that writes a recipe, and where its payloads come from. */
#ifndef CKPT_RECIPE_WRITE_H
#define CKPT_RECIPE_WRITE_H
#include <ckpt/progress.h>
#include "format/format.h"
#include "io/sink.h"

enum { CKPT__WRITER_MEMORY = 4 * CKPT__BLOCK }; /* bytes that its blocks take at most */

/* Where a recipe's payloads come from: bytes [offset, offset + n) of the payload of `number` (PAYLOAD: a tensor's
 * elements in C order; STORAGE: a storage's bytes), asked for in order within one payload. A payload of 12 bytes may
 * be asked for as offset 0, n 8 and then offset 8, n 4. The writer borrows it. */
typedef struct ckpt__payload {
    ckpt_status (*read)(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                        ckpt_error *err);
    void *ctx;    /* what read gets; whoever made the payload owns it */
    bool alone;   /* the thread that reads writes as well; else another one does */
    size_t block; /* bytes that are written at a time; 0: CKPT__BLOCK */
    size_t tile;  /* bytes that are asked for at a time, of one payload and within a block; 0: 256 KiB */
} ckpt__payload;

/* Writes the recipe to the sink (which has its size): 8 MiB blocks or smaller, CRC of each payload on the way, the deferred bytes
 * last. crc (may be NULL) gets the CRC-32 of the whole file. Does not commit. */
ckpt_status ckpt__write_recipe(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                               const ckpt_progress *progress, uint64_t done_before, uint64_t total, uint32_t *crc,
                               ckpt_error *err);

/* ---- a recipe step by step, so that several files can be written at a time, by turns */
typedef struct ckpt__recipe_writer ckpt__recipe_writer;
/* What the caller is told of files that are written by turns: bytes of all of them. */
typedef struct ckpt__write_progress {
    const ckpt_progress *to; /* borrowed; NULL: nobody is told */
    uint64_t done, total;    /* bytes */
} ckpt__write_progress;
/* All but `out` is borrowed until it is freed, which the caller does also after an error. */
ckpt_status ckpt__recipe_writer_open(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                                     ckpt__write_progress *progress, ckpt__recipe_writer **out, ckpt_error *err);
/* Where a file goes on with a payload, once all that comes before it is put. An example: of a file that has bytes 100 to 400 of payload 7,
 * 60 of which it has by now, {RANGE, 7, 160, 240}. */
typedef struct ckpt__payload_place {
    ckpt__segment_kind kind;
    size_t number; /* of the payload */
    uint64_t at;   /* the byte of the payload that comes next */
    uint64_t left; /* bytes of it that the file takes from there */
} ckpt__payload_place;
/* *there: false when no payload is left. */
ckpt_status ckpt__recipe_writer_next(ckpt__recipe_writer *w, ckpt__payload_place *place, bool *there);
/* So many bytes of that payload, at most `left`: read, or what the caller has read for several files. */
ckpt_status ckpt__recipe_writer_read(ckpt__recipe_writer *w, uint64_t bytes);
ckpt_status ckpt__recipe_writer_give(ckpt__recipe_writer *w, const void *bytes, size_t n);
ckpt_status ckpt__recipe_writer_finish(ckpt__recipe_writer *w,
                                       uint32_t *crc); /* the rest, and what comes last; crc as above */
void ckpt__recipe_writer_free(ckpt__recipe_writer *w);
#endif
