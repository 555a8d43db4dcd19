/* save/save.h - the parts of a save: what is saved (an index of the state), where its bytes come from (the state, or a
 * snapshot), and the writing. */
#ifndef CKPT_SAVE_INTERNAL_H
#define CKPT_SAVE_INTERNAL_H
#include <ckpt/save.h>
#include "device/lanes.h"
#include "state/index.h"
#include "engine/pull.h"
#include "engine/recipe_write.h"
#include "save/same.h"

/* The bytes of a state that stands still. The struct is the context of a ckpt__payload: a writer asks for the bytes of
 * one tensor after the other, each from its first byte on. They come by a plan, from the memory of the state to the tensors in C
 * order, and from a device by way of pinned buffers.
 *
 * A contiguous tensor of 20 MiB on a device comes over in blocks of 8, 8 and 4 MiB. The first read finds no block
 * ahead, asks for the block at 0 and waits for it. Before the last bytes of that block are handed out, the block at 8
 * MiB is asked for: then ahead_offset is 8 MiB and ahead_size is 8 MiB, and the device copies while the writer
 * writes. A strided tensor on a device comes over a window at a time: up to 32 MiB of its elements in C order. */
typedef struct ckpt__live {
    const ckpt_state *state;        /* borrowed */
    const ckpt__state_index *saved; /* borrowed: of the state */
    ckpt__index *memory;            /* owned until ckpt__live_close, as all that follows: where the bytes are */
    ckpt__same same;                /* from there to saved->index */
    ckpt__pull *pull;
    ckpt__lanes lanes;
    const ckpt__extent *ahead_of; /* that a block was asked for of before it was needed; NULL: of none */
    ckpt__slot *ahead;            /* the block, in the ring of the lanes; NULL: none */
    uint64_t ahead_offset;        /* of it, in bytes of the extent */
    size_t ahead_size;            /* its bytes: CKPT__SLOT, fewer at the end */
    char *window;       /* heap: bytes [window_begin, window_end) of a strided tensor on a device; NULL: none */
    size_t window_size; /* bytes that it has room for */
    size_t window_of;   /* number of its storage */
    uint64_t window_begin, window_end;
} ckpt__live;
/* Every device that holds a bound tensor comes to the point of the save here, before the first byte is read. */
ckpt_status ckpt__live_open(ckpt__live *l, const ckpt_state *state, const ckpt__state_index *saved,
                            ckpt__payload *payload, ckpt_error *err);
/* Waits for the devices; a device in trouble is heard here. Called twice it does nothing. */
ckpt_status ckpt__live_close(ckpt__live *l, ckpt_error *err);

/* One checkpoint that is being written: what, where to, and with which numbers. All pointers are borrowed from the
 * caller, for the one call of ckpt__save_file or ckpt__save_directory. */
typedef struct ckpt__save_job {
    const char *path;          /* for messages, where the next are given: */
    const char *name, *folder; /* a directory of that name below dirfd, which is open; its path. NULL: none */
    int dirfd;
    ckpt_save_options options;
    const ckpt__format *format;     /* static */
    const ckpt__state_index *saved; /* what is written */
    ckpt__payload payload;          /* where the bytes of its tensors come from */
    ckpt__live *live;               /* closed before anything is published; NULL: none */
    int64_t rank, world, time;      /* for the manifest; time: seconds since 1970 in UTC */
    uint64_t save;                  /* the number that all ranks give this save, for the manifest; 0: one process */
    bool replace_any;               /* what has the name is no checkpoint that anyone can use */
    uint64_t done;                  /* bytes of the files that are written */
    uint64_t later;                 /* and about how many come after the one that is being written */
} ckpt__save_job;
ckpt_status ckpt__save_file(ckpt__save_job *job, ckpt_error *err);
/* settled NULL: publishes. Else all of it is on disk under a temporary name, and *settled is to be committed or
 * aborted. */
ckpt_status ckpt__save_directory(ckpt__save_job *job, ckpt__sink **settled, ckpt_error *err);
#endif
