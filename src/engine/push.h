/* engine/push.h - the bytes of a plan's source, read once and in the order of its files, each to all places that are made of it. */
#ifndef CKPT_PUSH_H
#define CKPT_PUSH_H
#include <ckpt/progress.h>
#include <ckpt/restore.h>
#include "device/lanes.h"
#include "engine/plan.h"
#include "io/source.h"

/* What became of the target of a bond. TORN: some of its bytes are new, or all are and a CRC does not vouch for them. */
typedef enum ckpt__copied { CKPT__UNTOUCHED = 0, CKPT__TORN, CKPT__COMPLETE } ckpt__copied;

enum { CKPT__PUSH_THREADS = 16 }; /* the most */

/* What is asked for. All pointers are borrowed until ckpt__push returns. */
typedef struct ckpt__push_want {
    const ckpt__plan *plan; /* made with `push`; all storages of its target are memory (extent.place) */
    const ckpt__source *source;
    ckpt__lanes *lanes;            /* opened for all devices of the target; NULL: it is in the host's memory */
    const ckpt_progress *progress; /* called by the calling thread alone; NULL: none */
    bool check;                    /* the CRC of each storage of which a byte is used is compared: all of it is read */
    bool look_only;                /* the same bytes are read and checked, and nothing is written */
    unsigned threads;              /* the calling one is among them; 0: it alone */
    uint64_t range; /* bytes of the source that one thread takes at a time; 0: CKPT__BLOCK, or CKPT__SLOT to devices */
    bool
        past_cache; /* most of the source is not in the page cache: it may be read past it (io/direct.h), to host memory */
    uint64_t
        cached_from; /* a push of so many bytes may map files (io/cached.h), or read past the page cache; 0: of 64 MiB */
    uint64_t avoid;  /* CKPT_AVOID_..., as <ckpt/restore.h> has them */
    unsigned char *done;          /* one a bond, a ckpt__copied, all zero before; NULL: not asked */
    ckpt__convert_counts *counts; /* one a bond; they grow by what conversions cost; NULL: not asked */
} ckpt__push_want;

/* Reads each byte that a bond is made of once, and no other but for holes of 64 KiB and, with check, the rest of a storage with a CRC.
 * Storages that one read has whole are checked before a byte of them is delivered; of larger ones the CRC is compared once all of
 * them is. The result is the same for any number of threads: the bytes, the counts, and the error, which is that of the first place in
 * the files. After a failure queued copies have been waited for, and done says what each target has. CKPT_E_DAMAGED: a CRC is wrong, or a
 * file is shorter than it was; CKPT_E_CANCELLED: by the progress callback. */
ckpt_status ckpt__push(const ckpt__push_want *want, ckpt_error *err);
#endif
