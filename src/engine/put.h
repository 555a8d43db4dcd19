/* engine/put.h - bytes that no plan moves: numbers that become tensors, zeros, and tensors that change their device. */
#ifndef CKPT_PUT_H
#define CKPT_PUT_H
#include "base/strided.h"
#include "device/lanes.h"

/* A few bytes of host memory to a place on any device (scalars into tensors). */
ckpt_status ckpt__put_bytes(ckpt__lanes *lanes, ckpt_device device, void *dst, const void *src, size_t n,
                            ckpt_error *err);
/* Zeros to every element of a place. */
ckpt_status ckpt__put_zeros(ckpt__lanes *lanes, ckpt_device device, void *dst, ckpt__strided *place, ckpt_error *err);
/* n bytes between two places on any devices (a tensor that was not in the checkpoint). */
ckpt_status ckpt__move_bytes(ckpt__lanes *lanes, ckpt_device to, void *dst, ckpt_device from, const void *src,
                             uint64_t n, ckpt_error *err);
#endif
