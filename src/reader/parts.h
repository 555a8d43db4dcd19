/* reader/parts.h - what a reader makes when it is first asked for, and keeps until it is closed. */
#ifndef CKPT_READER_PARTS_H
#define CKPT_READER_PARTS_H
#include <pthread.h>
#include "reader/reader.h"
#include "device/lanes.h"

/* Maps, queues and numbers of storages cost memory and time, and most readers need none of them. They are made when they are first
 * asked for, and a lock guards them. */
struct ckpt__reader_parts {
    pthread_mutex_t lock; /* a reader may be shared by threads */
    const void **maps;    /* heap, owned: one a file of the source: mapped, or NULL. NULL before the first
                                   * map */
    size_t map_count;     /* files; 0 before the first map */
    int64_t *numbers;     /* heap, owned: the public number of each storage, and behind them as many zeros as any tensor
                                   * has dimensions. NULL before the first piece */
    struct ckpt__file_share {
        uint64_t pieces, nbytes;
    } * shares;        /* heap, owned: of each file of the source. NULL before the first question */
    ckpt__lanes lanes; /* the queues and pinned buffers to devices */
};

ckpt__reader_parts *ckpt__reader_parts_new(void);
void ckpt__reader_parts_free(ckpt__reader_parts *parts, const ckpt__source *source); /* accepts NULL */
ckpt_status ckpt__reader_check_number(const ckpt_reader *reader, size_t i, ckpt_error *err);
ckpt_status ckpt__reader_check_size(const ckpt_reader *reader, size_t i, size_t size, ckpt_error *err);
ckpt_status ckpt__reader_check_host(const ckpt_reader *reader, size_t i, const void *dst, size_t size, ckpt_error *err);
#endif
