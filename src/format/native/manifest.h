/* format/native/manifest.h - checkpoint.json of a step directory: written last; files, sizes, CRC-32 of each, world size,
 * step. */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H
#include "base/base.h"

/* One file of the directory: its size in bytes and the CRC-32 of all of them. */
typedef struct ckpt__manifest_file {
    ckpt_str name;
    uint64_t size;
    uint32_t crc;
} ckpt__manifest_file;
/* What checkpoint.json says. A directory without one is not a checkpoint: the file is written last, so its presence says that the
 * others are complete. Names are in the arena of the read, or the caller's for a write. */
typedef struct ckpt__manifest {
    ckpt__manifest_file files[16];
    size_t count;
    int64_t step;        /* completed steps; -1: not known */
    int64_t world, rank; /* how many ranks saved, and which of them this is, from 0 */
    int64_t time;        /* when it was saved, seconds since 1970 in UTC; 0: not said */
    uint64_t save;       /* one number for what all ranks saved together; 0: not said */
    uint32_t crc;        /* its own, as read: tells one save of a step from another. A write ignores it */
} ckpt__manifest;
/* Appends the JSON text (with a CRC of its own, so that a flipped bit in it is found). */
ckpt_status ckpt__manifest_write(const ckpt__manifest *m, ckpt__buf *out, ckpt_error *err);
/* Strings are copied into the arena. CKPT_E_DAMAGED, CKPT_E_TOO_NEW, CKPT_E_FORMAT. `label` is for messages. */
ckpt_status ckpt__manifest_read(const char *text, size_t size, const char *label, ckpt__arena *a, ckpt__manifest *out,
                                ckpt_error *err);
#endif
