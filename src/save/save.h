/* save/save.h - the parts of a save: what is saved (an index of the state), where its bytes come from (the state, or a
 * snapshot), and the writing. */
#ifndef CKPT_SAVE_INTERNAL_H
#define CKPT_SAVE_INTERNAL_H
#include <ckpt/save.h>
#include "device/lanes.h"
#include "state/index.h"
#include "engine/recipe_write.h"
#include "base/strided.h"

/* The bytes of a state that stands still. */
typedef struct ckpt__live {
    const ckpt_state *state;
    const ckpt__index *index;
    ckpt__lanes lanes;
    /* the payload that is being read */
    size_t current;
    ckpt__strided it;
    ckpt__slot *ahead;            /* a block of the current tensor that was asked for before it was needed */
    uint64_t ahead_offset;
    size_t ahead_size;
    char *span;                   /* a strided device tensor, fetched whole */
} ckpt__live;
/* Every device that holds a bound tensor comes to the point of the save here, before the first byte is read. */
ckpt_status ckpt__live_open(ckpt__live *l, const ckpt_state *state, const ckpt__index *index, ckpt__payload *payload,
                            ckpt_error *err);
/* Waits for the devices; a device in trouble is heard here. Called twice it does nothing. */
ckpt_status ckpt__live_close(ckpt__live *l, ckpt_error *err);

typedef struct ckpt__save_job {
    const char *path;             /* for messages, where the next are given: */
    const char *name, *folder;    /* a directory of that name below dirfd, which is open; its path. NULL: none */
    int dirfd;
    ckpt_save_options options;
    const ckpt__format *format;
    const ckpt__state_index *saved;
    ckpt__payload payload;
    ckpt__live *live;             /* closed before anything is published; NULL: none */
    int64_t rank, world, time;    /* for the manifest */
    uint64_t save;
    bool replace_any;             /* what has the name is no checkpoint that anyone can use */
    uint64_t done;                /* bytes of the files that are written */
    uint64_t later;               /* and about how many come after the one that is being written */
} ckpt__save_job;
ckpt_status ckpt__save_file(ckpt__save_job *job, ckpt_error *err);
/* settled NULL: publishes. Else all of it is on disk under a temporary name, and *settled is to be committed or
 * aborted. */
ckpt_status ckpt__save_directory(ckpt__save_job *job, ckpt__sink **settled, ckpt_error *err);
#endif
