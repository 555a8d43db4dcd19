/* engine/push_priv.h - what the parts of a push share: the ranges, and the way to the devices. */
#ifndef CKPT_PUSH_PRIV_H
#define CKPT_PUSH_PRIV_H
#include <pthread.h>
#include "engine/push.h"
#include "io/cached.h"
#include "io/direct.h"

/* Bytes [begin, end) of a source storage. A stored extent is cut into several where it is longer than a range; a coded one never is. */
typedef struct ckpt__push_span {
    uint64_t begin, end;
    uint32_t storage;
    uint32_t large; /* number of the storage that is cut, in `larges`; UINT32_MAX: this is all that is read of it */
    uint32_t crc;   /* of these bytes, once they were read */
    bool more;      /* the next span goes on where this one ends */
} ckpt__push_span;

/* A storage with a CRC that several spans have: whoever reads the last of them compares it. */
typedef struct ckpt__push_large {
    size_t first, count; /* spans */
    size_t left;         /* that are not yet read; atomic */
} ckpt__push_large;

typedef struct ckpt__push_unit {
    size_t first, end; /* spans, all of one file */
    uint64_t bytes;
} ckpt__push_unit;

/* What is read, in the order of the files. */
typedef struct ckpt__push_list {
    ckpt__push_span *spans; /* heap, owned, as is the rest */
    size_t span_count, span_capacity;
    ckpt__push_large *larges;
    size_t large_count, large_capacity;
    ckpt__push_unit *units;
    size_t unit_count, unit_capacity;
    uint64_t bytes; /* of all spans */
} ckpt__push_list;
/* range: bytes of a unit. Of records that hold what is asked for, each is looked into. */
ckpt_status ckpt__push_list_make(const ckpt__push_want *want, uint64_t range, ckpt__push_list *list, ckpt_error *err);
void ckpt__push_list_free(ckpt__push_list *list);
/* The CRCs of tensors that are not those of their storages: each is of a tensor in its own order, which a push does not read it in. So they
 * are compared before anything is touched. */
ckpt_status ckpt__push_check_tensors(const ckpt__plan *plan, const ckpt__source *source, ckpt_error *err);

/* ---- push_read.c */

/* How bytes of a file come to a place in host memory: the system copies them there, where they are checked; or they are checked where the page
 * cache has them, and copied, with ordinary stores or past the processor's cache. Which one is the fastest depends on the machine, so each is
 * timed as the push goes on. The bytes are the same. */
typedef enum ckpt__push_way_of { CKPT__BY_READ = 0, CKPT__BY_COPY, CKPT__BY_STREAM } ckpt__push_way_of;
enum { CKPT__PUSH_WAYS = 3, CKPT__LARGE_PUSH = 64 << 20 }; /* bytes that do not stay in the processor's cache */
typedef struct ckpt__push_ways {
    ckpt__cached *cached;           /* NULL: all is read */
    unsigned count;                 /* the first so many ways are open */
    unsigned turn;                  /* choices so far; atomic */
    uint64_t cost[CKPT__PUSH_WAYS]; /* nanoseconds a KiB, of late; 0: not known; atomic */
} ckpt__push_ways;
/* Bytes of a push from which on it is large. */
uint64_t ckpt__push_large_from(const ckpt__push_want *want);
/* The ways of large spans, and of spans that are read together. `bytes`: of the whole push. Both have the files, which belong to `spans`: they
 * are closed when all threads are done. */
void ckpt__push_ways_open(const ckpt__push_want *want, uint64_t bytes, ckpt__push_ways *spans, ckpt__push_ways *groups);
/* The way for the next bytes; when they begin; and that they were done so. */
ckpt__push_way_of ckpt__push_choose(ckpt__push_ways *w);
uint64_t ckpt__push_began(const ckpt__push_ways *w);
void ckpt__push_took(ckpt__push_ways *w, ckpt__push_way_of way, uint64_t began, uint64_t bytes);

/* Bytes [begin, end) of a stored extent. All pointers are borrowed; what: for messages. */
typedef struct ckpt__push_part {
    const ckpt__source *source;
    const ckpt__extent *extent;
    uint64_t begin, end;
    const char *what;
    ckpt__direct *direct; /* NULL: through the page cache */
} ckpt__push_part;
/* Brings them to `to`; NULL: nowhere, by way of scratch, 256 KiB. *crc becomes their CRC-32; crc NULL: not asked for. ways NULL: all is read.
 * ckpt__copy_stream_end has to follow. */
ckpt_status ckpt__push_read(ckpt__push_ways *ways, const ckpt__push_part *p, unsigned char *to, unsigned char *scratch,
                            uint32_t *crc, ckpt_error *err);

/* ---- push_device.c */

/* The threads of a push share this on their way to the devices. The queues and the ring belong to who asked for the push. The thread that holds
 * a slot queues the copies out of it, without the lock. */
typedef struct ckpt__push_devices {
    ckpt__lanes *lanes;        /* NULL: no target is on a device */
    ckpt__lane **by_number;    /* heap, owned: of each device of the target's index; NULL for the host */
    size_t wanted;             /* slots: two a thread, so that one is filled while the other is on its way */
    pthread_mutex_t lock;      /* of all below */
    pthread_cond_t given;      /* back, or made, or not */
    bool making;               /* a thread makes the ring: whoever needs it first */
    size_t made;               /* slots; 0: not yet */
    bool held[CKPT__RING];     /* by a thread */
    uint64_t turn[CKPT__RING]; /* at which it was given back; 0: not yet */
    uint64_t turns;
    ckpt_status status; /* of the ring that could not be made */
    ckpt_error error;   /* why */
} ckpt__push_devices;

/* One thread's: a slot that it fills. */
typedef struct ckpt__push_way {
    ckpt__push_devices *devices;
    ckpt__slot *slot; /* NULL: none is held */
    size_t used;      /* bytes of it */
    ckpt__lane *lane; /* the last that copies from it were queued on, and not yet marked; NULL: none */
} ckpt__push_way;

/* threads, units: how many there are. */
ckpt_status ckpt__push_devices_open(ckpt__push_devices *devices, const ckpt__index *to, ckpt__lanes *lanes,
                                    unsigned threads, size_t units, ckpt_error *err);
void ckpt__push_devices_close(ckpt__push_devices *devices);
/* Holds a slot that nothing is pending in. A thread holds one at a time. */
ckpt_status ckpt__push_way_take(ckpt__push_way *way, ckpt_error *err);
/* Gives it back, if there is one, once the devices have it. Called on every path. */
ckpt_status ckpt__push_way_give(ckpt__push_way *way, ckpt_error *err);
/* Can a copy go from where it was read to the device, row by row, without being put together first? */
bool ckpt__push_goes_as_is(const ckpt__op *op, const ckpt__copy_box *box);
/* Queues the copy of a box out of the slot that is held: `from` lies in it. */
ckpt_status ckpt__push_send(ckpt__push_way *way, ckpt__lane *lane, const ckpt__copy_box *box, uint32_t size,
                            const unsigned char *from, unsigned char *to, ckpt_error *err);
/* Converts and turns a box from host memory into slots, in the order of the target, and queues its copy. */
ckpt_status ckpt__push_pack(ckpt__push_way *way, ckpt__lane *lane, const ckpt__op *op, const ckpt__copy_box *box,
                            const unsigned char *from, unsigned char *to, ckpt__convert_counts *counts,
                            const char *what, ckpt_error *err);
#endif
