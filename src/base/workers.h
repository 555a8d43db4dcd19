/* base/workers.h - numbered units of work, done by several threads. */
#ifndef CKPT_WORKERS_H
#define CKPT_WORKERS_H
#include "base/base.h"

enum { CKPT__WORKERS_MAX = 256 };

/* One unit. worker: number of the thread, below the `threads` that was given to ckpt__workers_run. One worker does one unit at a
 * time, so it is the index of what each thread has for itself. A return >= 0 is success. */
typedef ckpt_status ckpt__unit_fn(void *ctx, unsigned worker, size_t unit, ckpt_error *err);

/* Calls fn for the units 0 ... units - 1 on at most `threads` threads (0 counts as 1; at most CKPT__WORKERS_MAX), the caller's among
 * them as worker 0. Each thread takes the lowest unit that nobody has taken. Returns when all threads are done with fn; the
 * caller then sees all that they wrote. With one thread, or one unit, no thread is made. Where the system makes fewer threads
 * than asked for, those do the work. The threads that are made block all signals.
 *
 * A unit that fails is a failure of the whole: the status and the error are those of the lowest unit that fails, for any number
 * of threads, since all units below it are done. Units above it may be done, or not. */
ckpt_status ckpt__workers_run(unsigned threads, size_t units, ckpt__unit_fn *fn, void *ctx, ckpt_error *err);
/* The processors that the caller may run on; UINT_MAX: more than can be asked for. */
unsigned ckpt__workers_allowed(void);
/* Threads for work that memory bounds, where nobody said how many: the processors that the caller may run on, eight at most. */
unsigned ckpt__workers_usual(void);
#endif
