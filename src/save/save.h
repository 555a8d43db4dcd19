/* save/save.h - the parts of a save: what is saved (a picture of the state), where its bytes come from (the state, or a
 * snapshot), and the writing. */
#ifndef CKPT_SAVE_INTERNAL_H
#define CKPT_SAVE_INTERNAL_H
#include <ckpt/save.h>
#include "engine/engine.h"
#include "device/lanes.h"

/* A state at one moment, without its payload: names, shapes, devices, and the values copied. */
typedef struct ckpt__picture {
    ckpt__index *index;           /* tensor i and storage i are binding i; the aliases follow, then the values of hooks, whose
                                   * storages say where their bytes are (extent.memory) */
    const ckpt_value *root;       /* NULL: weights only */
    int64_t step;                 /* completed steps, -1 */
    size_t bindings, aliases;
    char **blobs; size_t blob_count;     /* heap: the bytes of the values of hooks */
    uint64_t blob_bytes;
} ckpt__picture;
ckpt_status ckpt__picture_take(const ckpt_state *state, bool weights_only, const char *label, ckpt__picture *out,
                               ckpt_error *err);
void ckpt__picture_free(ckpt__picture *p);

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
    const ckpt__picture *picture;
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
