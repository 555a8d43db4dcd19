/* engine/gather.h - the elements of one box, from where they lie in an extent to their places in memory.
 *
 * From a file, the bytes of a box are read in pieces as long as they come (neighbours with a small hole between them in one), many of
 * them at a time into a small scratch, from which the elements go to their places: a transposed matrix is so turned in tiles
 * that stay in the cache. From a coded extent, which can only be read from its first byte on, all of it is decoded, and each block
 * gives the elements that begin in it. */
#ifndef CKPT_GATHER_H
#define CKPT_GATHER_H
#include "engine/decode.h"
#include "engine/move.h"

enum { CKPT__SCRATCH = 1 << 20 };

/* The elements are of `size` bytes, and the first is at byte `begin` of the storage. box says how they lie there, and in `to`, which
 * is the place of the first. scratch: CKPT__SCRATCH bytes. decoder: of a coded extent, NULL of another; it stands at byte `begin` or
 * before, and then behind the last element. No CRC is looked at. */
ckpt_status ckpt__gather(const ckpt__source *source, const ckpt__extent *e, const ckpt__copy_box *box, uint64_t begin,
                         size_t size, void *to, unsigned char *scratch, ckpt__decoder *decoder, const char *what,
                         ckpt_error *err);
#endif
