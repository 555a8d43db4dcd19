/* engine/fetch.h - boxes of a device's memory into host memory, through pinned buffers or straight into pinned memory. */
#ifndef CKPT_FETCH_H
#define CKPT_FETCH_H
#include "device/lanes.h"
#include "engine/move.h"

/* Moves the elements of a box, of `item` bytes each, from a device to the host; from and to are the places of its first element. A box
 * is cut into groups that span a pinned buffer at most. A group is copied as it lies where at most half of that is none of its
 * elements, else row by row (two-dimensional copies); it is put in its place from the buffer while the next group is on its way. So a
 * column of a matrix costs its own bytes, and not those of the matrix.
 *
 * pinned: `to` is page-locked memory. What can be copied there by rows is only queued on the lane, and is there when the lane is
 * waited for. */
ckpt_status ckpt__fetch_box(ckpt__lanes *lanes, ckpt__lane *lane, const ckpt__copy_box *box, uint32_t item,
                            const void *from, void *to, bool pinned, ckpt_error *err);
#endif
