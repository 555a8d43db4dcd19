/* model/nested.h - extents whose bytes lie in a record of a file: what names the record does not say where in it they are. A
 * distributed checkpoint of PyTorch is such: each tensor of it is a whole archive of torch.save, appended to a file, and its list
 * has the archive's place, the dtype and the shape. Three million archives are not looked into to list three million tensors: each is
 * at its first use (engine/nested.c), by the format that has made the index.
 *
 * The bytes of such an extent are the elements of its box in C order, whatever the record's own order is. */
#ifndef CKPT_NESTED_H
#define CKPT_NESTED_H
#include <pthread.h>
#include "model/index.h"

struct ckpt__source;

/* What one look into a record has found. */
typedef struct ckpt__nested_place {
    ckpt__extent extent; /* STORED, DEFLATE, ZSTD or TURNED; never NESTED */
    uint64_t offset;     /* ZSTD: of the first coded byte in the file */
    uint64_t skip;       /* ZSTD: bytes of the decoded stream before ours. Others follow behind them, too */
    ckpt__index *part;   /* owned. TURNED: an index of its own, whose first tensor, a view that is not in C order or not
                              all of its storage, has the elements. Else NULL */
    struct ckpt__nested_place *next; /* the records' list, which owns it */
} ckpt__nested_place;

typedef struct ckpt__nested ckpt__nested;
/* All records of one index: how they are looked into, and what was found. There may be millions, of which a run looks into few, or is
 * asked for their places alone: so a row has what differs from record to record, and what was found lies beside, in memory that
 * nobody has touched before. */
typedef struct ckpt__records {
    /* One record: *out is heap, to be freed by ckpt__nested_place_free. CKPT_E_DAMAGED: the record is not what the list says. */
    ckpt_status (*look)(const struct ckpt__source *source, const ckpt__extent *extent, const char *what,
                        ckpt__nested_place **out, ckpt_error *err);
    ckpt__nested *rows; /* heap, owned */
    ckpt__nested_place *
        *found; /* heap, owned, one a row. NULL: nobody has looked yet. Read and set atomically: threads may share a
                                 * reader */
    size_t count, capacity;    /* rows; capacity never changes, so that rows stay where they are */
    pthread_mutex_t lock;      /* of `first`, and of each of `found` as it is set */
    ckpt__nested_place *first; /* heap, owned: all that were found */
} ckpt__records;

/* What many records have in common. In the arena. */
typedef struct ckpt__nested_kind {
    ckpt__records *records;
    const int64_t *shape; /* of a record's elements: ndim sizes */
    uint32_t ndim;
    uint16_t dtype;
    bool zstd; /* a record is one zstd frame */
} ckpt__nested_kind;

/* One record. The extent has its file, its length there, and the bytes of its elements as `size`. */
struct ckpt__nested {
    const ckpt__nested_kind *kind;
    uint64_t offset; /* of the record in the file */
};

/* The records of an index, at most `most` of them, which the index frees; NULL: no memory. Asked for once. */
ckpt__records *ckpt__index_records(ckpt__index *index, size_t most);
/* One more; NULL: there are as many as were said. */
ckpt__nested *ckpt__records_add(const ckpt__nested_kind *kind, uint64_t offset);
void ckpt__records_free(ckpt__records *records);
void ckpt__nested_place_free(ckpt__nested_place *found);

/* Where what was found of a record is kept. */
static inline ckpt__nested_place **ckpt__nested_found(const ckpt__nested *n)
{
    const ckpt__records *r = n->kind->records;
    return &r->found[n - r->rows];
}

/* What is known by now of a storage's extent: the index's own, or what was found where it is nested. */
static inline const ckpt__extent *ckpt__extent_known(const ckpt__index *index, size_t storage)
{
    const ckpt__extent *e = &index->storages[storage].extent;
    const ckpt__nested_place *found =
        e->coding == CKPT__NESTED ? __atomic_load_n(ckpt__nested_found(e->nested), __ATOMIC_ACQUIRE) : NULL;
    return found ? &found->extent : e;
}

/* Was the record of a nested extent looked into? */
static inline bool ckpt__is_found(const ckpt__extent *e)
{
    return __atomic_load_n(ckpt__nested_found(e->nested), __ATOMIC_ACQUIRE) != NULL;
}

/* Is it compressed, as far as is known without a look into its file? */
static inline bool ckpt__is_coded(const ckpt__extent *e)
{
    return !e->memory && e->coding != CKPT__STORED && e->coding != CKPT__TURNED && e->coding != CKPT__MADE &&
           (e->coding != CKPT__NESTED || e->nested->kind->zstd);
}

/* Where its bytes, or the record that has them, begin in the file: for what is read in the files' order. */
static inline uint64_t ckpt__extent_begin(const ckpt__extent *e)
{
    return e->coding == CKPT__NESTED ? e->nested->offset : e->offset;
}
#endif
