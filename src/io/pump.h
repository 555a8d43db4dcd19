/* io/pump.h - blocks on their way to a sink: one thread writes while the caller fills the next. */
#ifndef CKPT_PUMP_H
#define CKPT_PUMP_H
#include "io/sink.h"

typedef struct ckpt__pump ckpt__pump;

/* Blocks of `block` bytes, aligned for writes past the page cache. Where the caller wants to be alone, for a file of a few
 * blocks, and where no thread can be made, there is none: then a put writes at once. The thread runs with all signals
 * blocked. */
ckpt_status ckpt__pump_new(ckpt__sink *sink, size_t block, uint64_t file_size, bool alone, ckpt__pump **out,
                           ckpt_error *err);
/* A block to fill. Waits for one; an earlier write that failed is heard here. */
ckpt_status ckpt__pump_block(ckpt__pump *p, void **block, ckpt_error *err);
/* Hands the block last taken over: n bytes for `offset`. */
ckpt_status ckpt__pump_put(ckpt__pump *p, uint64_t offset, size_t n, ckpt_error *err);
/* Waits until all is written, or has failed. */
ckpt_status ckpt__pump_drain(ckpt__pump *p, ckpt_error *err);
void ckpt__pump_free(ckpt__pump *p); /* what is under way is finished first; accepts NULL */
#endif
