/* ckpt/progress.h - the callback of long calls. */
#ifndef CKPT_PROGRESS_H
#define CKPT_PROGRESS_H

#include <stdint.h>
#include <ckpt/error.h>

CKPT_BEGIN_DECLS

/* Called between blocks (some MiB) on the thread that made the call, with the bytes done and the bytes in all.
 * A return other than 0 cancels: the call cleans up and returns CKPT_E_CANCELLED. */
typedef int (*ckpt_progress_fn)(void *ctx, uint64_t done, uint64_t total);

/* The struct never grows: it is a field of options. */
typedef struct ckpt_progress {
    ckpt_progress_fn fn; /* NULL: none */
    void *ctx;
} ckpt_progress;

CKPT_END_DECLS
#endif
