/* ckpt/progress.h - the callback of long calls. */
#ifndef CKPT_PROGRESS_H
#define CKPT_PROGRESS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Called between blocks (some MiB) on the thread that made the call, with the bytes done and the bytes in all.
 * A return other than 0 cancels: the call cleans up and returns CKPT_E_CANCELLED. */
typedef int (*ckpt_progress_fn)(void *ctx, uint64_t done, uint64_t total);

typedef struct ckpt_progress {
    ckpt_progress_fn fn;          /* NULL: none */
    void *ctx;
} ckpt_progress;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
