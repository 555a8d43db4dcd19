/* engine/execute.h - the executor: runs a plan through one ring of pinned buffers. */
#ifndef CKPT_EXECUTE_H
#define CKPT_EXECUTE_H
#include <ckpt/progress.h>
#include "device/lanes.h"
#include "engine/transfers.h"
#include "io/source.h"

/* Each storage is read once, in file order; its CRC is checked on the way (check); every copy of it gets its bytes.
 * copies[i].done says afterwards what became of each. On failure the queues are drained before it returns. The lanes
 * are the caller's: opened for all devices, closed by the caller. */
ckpt_status ckpt__execute(ckpt__transfers *plan, const ckpt__source *source, const ckpt__index *index, bool check,
                          ckpt__lanes *lanes, const ckpt_progress *progress, ckpt_error *err);
/* A few bytes of host memory to a place on any device (scalars into tensors). */
ckpt_status ckpt__put_bytes(ckpt__lanes *lanes, ckpt_device device, void *dst, const void *src, size_t n,
                            ckpt_error *err);
/* Zeros to every element of a place. */
ckpt_status ckpt__put_zeros(ckpt__lanes *lanes, ckpt_device device, void *dst, ckpt__strided *place, ckpt_error *err);
/* n bytes between two places on any devices (a tensor that was not in the checkpoint). */
ckpt_status ckpt__move_bytes(ckpt__lanes *lanes, ckpt_device to, void *dst, ckpt_device from, const void *src,
                             uint64_t n, ckpt_error *err);
#endif
