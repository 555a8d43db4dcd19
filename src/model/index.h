/* model/index.h - the index: the tensors and values of a checkpoint, and where the payload of each is. Building an index reads
 * no payload. Formats build it, the planner and the executor work on it, formats write from it.
 *
 * Three levels lead from a tensor to bytes: a tensor is a view of a storage, or several pieces that are; a storage has an extent. A
 * worked example: torch saves w (float32, shape 3 x 4) and last = w[:, 3], which shares the memory of w. The file has one record of
 * 48 bytes at byte 1216. The index has one storage and two tensors, both whole:
 *
 *     storages[0].extent   .file = 0, .offset = 1216, .length = 48, .size = 48
 *     tensors[0] w         .storage = 0   info .offset = 0, .shape = {3, 4}, .strides = {4, 1}   (48 bytes)
 *     tensors[1] last      .storage = 0   info .offset = 3, .shape = {3},    .strides = {4}      (12 bytes)
 *
 * Offsets and strides count elements. Element i of last is element 3 + 4 * i of the storage: bytes 12, 28 and 44 of the
 * storage, bytes 1228, 1244 and 1260 of the file. The view reaches 1 + 2 * 4 = 9 elements past its offset, and
 * (3 + 9) * 4 = 48 bytes is what the storage has: ckpt__index_set_view accepts it, and refuses an offset of 4. */
#ifndef CKPT_INDEX_H
#define CKPT_INDEX_H

#include <ckpt/device.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>
#include <pthread.h>
#include "base/base.h"

/* STORED: the bytes as they are. NESTED: a record of a file holds them, and where in it is found out at first use
 * (model/nested.h). ZSTD and TURNED are what it may come to. ZLIB: deflated, with a header and the Adler-32 of the decoded
 * bytes (RFC 1950), which is compared whenever the last of them is decoded. MADE: nothing has them yet; whoever made the index computes
 * them from the first to the last. */
typedef enum ckpt__coding {
    CKPT__STORED = 0,
    CKPT__DEFLATE,
    CKPT__NESTED,
    CKPT__ZSTD,
    CKPT__TURNED,
    CKPT__ZLIB,
    CKPT__MADE
} ckpt__coding;

/* Who computes the bytes of a MADE extent. Each open makes a state of its own, so several threads may each have one; its bytes are
 * asked for in order. `what`: for messages. close: also of one whose open has failed, and of NULL. */
typedef struct ckpt__maker {
    ckpt_status (*open)(const struct ckpt__maker *maker, const char *what, void **state, ckpt_error *err);
    ckpt_status (*read)(void *state, uint64_t at, void *dst, size_t n, ckpt_error *err); /* `at` never goes back */
    void (*close)(void *state);
} ckpt__maker;

/* Where the bytes of one storage are. The extent exists because formats differ in this alone: the engine reads every payload by
 * its extent and needs to know no format.
 *
 * `length` counts bytes of the file and `size` counts bytes of the payload. A record of 48 bytes that is stored has size
 * 48 and length 48, too. Deflated to 31 bytes it has coding CKPT__DEFLATE, length 31 and size 48. */
typedef struct ckpt__extent {
    uint32_t file;   /* number in the source's file table */
    uint8_t coding;  /* CKPT__STORED, ... */
    bool big_endian; /* the elements are; the engine swaps ckpt__storage.unit bytes as it reads them */
    bool has_crc;    /* false: the format keeps no CRC of these bytes, and `crc` means nothing */
    bool missing;    /* salvage: bytes are lost; the `length` bytes at `offset` are there */
    bool spanned;    /* a span of the index has it, whose CRC is of its bytes too; then has_crc is false */
    uint8_t checked; /* the answer of a CRC check. Only engine/checked.c reads and writes it, atomically: threads may
                                   * share a reader */
    uint16_t device; /* of memory: number in the index's devices; 0: the host's */
    union {
        uint32_t crc;  /* zlib's crc32 of the `size` decoded bytes, as stored (before any byte swap) */
        uint32_t span; /* where spanned: the span's number in the index */
    };
    union {                 /* not NULL: the `size` bytes are here, and no file is read or written */
        const void *memory; /* of a source: bytes inside a pickle, a trainer's tensor. Borrowed from whoever made the
                                   * index, as a rule from its arena */
        void *place;        /* of a target that is memory: where a restore or a snapshot puts them */
    };
    union {
        uint64_t offset;                        /* in a file: of the first coded byte */
        const struct ckpt__nested *nested;      /* of a NESTED one: its record */
        const struct ckpt__nested_place *found; /* of a ZSTD or TURNED one: the rest of what is known of it */
        const ckpt__maker *maker;               /* of a MADE one: borrowed from whoever made the index */
        uint64_t
            allocation; /* of a device's memory: extents of one allocation have one number. What lies between two of
                                   * them may be read, never written. 0: nothing is known of its neighbours */
    };
    uint64_t length; /* coded bytes in the file; MADE: bytes that are read for it */
    uint64_t size;   /* decoded bytes */
} ckpt__extent;

/* Does some checksum tell whether the bytes are as they were written? */
static inline bool ckpt__has_any_crc(const ckpt__extent *e)
{
    return e->has_crc || e->spanned || e->coding == CKPT__ZLIB;
}

/* One run of payload bytes that tensors view. Storages exist apart from tensors because tensors share bytes: tied weights,
 * slices, a flat buffer with all parameters. */
typedef struct ckpt__storage {
    ckpt__extent extent;
    ckpt_str device;  /* tag ("cuda:0"), in the arena; data NULL where the format keeps none */
    ckpt_str name;    /* for messages: the record's or the tensor's name, in the arena */
    ckpt_dtype dtype; /* of the elements, where the format gives storages a dtype; else CKPT_DTYPE_NONE */
    uint8_t unit;     /* bytes that a byte swap reverses: 4 for float32, 4 for complex64 (each half alone), 1 for
                                   * bytes (no swap) */
    bool closed;      /* a tensor inside an opaque object views the storage, and that tensor is not in the index */
} ckpt__storage;

/* Dimensions of a tensor, at most, of any format. torch's own files have no limit; no trainer has more than a few. */
enum { CKPT__NDIM_MAX = 1024 };

/* What a piece is, beside a box in C order. */
enum {
    CKPT__PIECE_STRIDED = 1, /* box has strides, too */
    CKPT__PIECE_FLAT = 2,    /* box is {begin, count}: elements of the tensor in C order, side by side in the storage */
    CKPT__PIECE_REPLICA =
        4,               /* other pieces may be the very same box: they have the same bytes, and one of them is read */
    CKPT__PIECE_KEPT = 8 /* what ckpt__index_set_pieces is given: ckpt__index_box gave the box */
};

/* One box of a tensor that is split, and the view of a storage that holds it. A float32 tensor of shape 8 x 4 that is split over
 * two ranks by its first dimension has two: {box {0, 0, 4, 4}, storage 0, at 0} and {box {4, 0, 4, 4}, storage 1, at 0}. A million
 * pieces take 32 MB and their boxes, of which equal ones are kept once. */
typedef struct ckpt__piece {
    const int64_t *box; /* in the arena: lo[ndim], size[ndim], and, STRIDED, strides[ndim] in elements, all >= 0 */
    uint64_t at;        /* of the box's first element in the storage, in bytes */
    uint32_t storage;   /* number in the index */
    uint32_t tensor;    /* the same */
    uint32_t crc;       /* of the piece's elements in C order, where has_crc */
    uint8_t flags;      /* CKPT__PIECE_... */
    bool has_crc;
} ckpt__piece;

/* A stretch of a file with a CRC of its own, where the storages in it have none: the member of an archive that is a file of
 * many tensors. Its extent is not one of a storage; what lies in it says so (ckpt__extent.spanned). It is compared before the first
 * use of anything in it (engine/checked.c). */
typedef struct ckpt__span {
    ckpt__extent extent; /* has_crc; DEFLATE where an archive has it so */
    ckpt_str name;       /* for messages */
    uint64_t given;      /* as parts_given: bytes given without a look at the CRC; atomic */
    uint32_t found;      /* the CRC that it was found to have, once it was compared */
} ckpt__span;

extern const ckpt_tensor_extra ckpt__no_extra; /* of a plain tensor */

/* One tensor: the public row, and how to read it. Nearly every tensor is whole: one view of one storage, which info.shape,
 * info.strides and info.offset say, so that a row of its own for its one piece would say them again. A tensor that is not dense
 * (sparse, nested) has no bytes; its parts are tensors of the index too, right behind it ("<name>.indices", ...), and have
 * them. Neither has a tensor on meta. */
typedef struct ckpt__tensor {
    ckpt_tensor_info info; /* after ckpt__index_finish info.storage is dense: not the number in `storages` */
    uint32_t storage;      /* number of the one that the whole tensor views; means nothing where it is not whole */
    uint32_t first_piece;  /* of a split tensor: its pieces are pieces[first_piece ...] of the index */
    uint32_t piece_count;  /* 0: it is not split */
    uint32_t crc;          /* of the tensor's bytes in C order, where has_crc: native format */
    bool whole;
    bool has_crc;
    bool sorted; /* the file lists tensors by name, so their order is not the model's */
} ckpt__tensor;

/* In pieces, each with a part of its elements. */
static inline bool ckpt__is_split(const ckpt__tensor *t)
{
    return t->piece_count != 0;
}

/* Of a copy of a tensor's row in another index: it has none of the pieces. */
static inline void ckpt__leave_pieces(ckpt__tensor *t)
{
    t->first_piece = t->piece_count = 0;
}

/* Neither whole nor split: on meta, or not dense. */
static inline bool ckpt__has_no_bytes(const ckpt__tensor *t)
{
    return !t->whole && !ckpt__is_split(t);
}

/* The first byte in its storage of a tensor that is whole. */
static inline uint64_t ckpt__whole_at(const ckpt__tensor *t)
{
    return t->info.offset ? (uint64_t)t->info.offset * ckpt_dtype_bits(t->info.dtype) / 8 : 0;
}

/* The job that saved a checkpoint, as far as its files tell. The struct exists because another job may not be able to load what it
 * saved (doctor). Numbers count ranks; 0: not told. */
typedef struct ckpt__job {
    int64_t ranks;      /* all of them, or those that have files of their own */
    int64_t dp, tp, pp; /* data, tensor and pipeline parallel */
    enum {
        CKPT__LATEST_FINE = 0,
        CKPT__LATEST_NONE,
        CKPT__LATEST_WRONG
    } latest;           /* DeepSpeed: the file that names the folder; llm.c: NONE where no step has a mark */
    const char *folder; /* DeepSpeed: "pytorch_model/", with the files, in the arena; NULL or "": none */
    int64_t zero;       /* DeepSpeed: the stage, of a universal checkpoint 2 for 1 and 2. llm.c: 1 */
    bool
        whole_model; /* DeepSpeed without ZeRO: the model's file is a file of torch, and what the directory is read as */
    const char *tag; /* DeepSpeed: the name of the folder where latest does not name it, in the arena; NULL: it does */
    bool inside_tag; /* DeepSpeed: the path is that folder itself */
    enum {
        CKPT__BESIDE_NOTHING = 0,
        CKPT__BESIDE_TRAINER,
        CKPT__BESIDE_ACCELERATE
    } beside;                      /* DeepSpeed without ZeRO: whose files lie beside the folder */
    const struct ckpt__mesh *mesh; /* of a DTensor, the largest, in the arena of the index; NULL: not told */
    const ckpt_value *frozen,
        *shared; /* DeepSpeed: frozen_param_shapes, shared_params; in the arena. NULL: not there */
} ckpt__job;

/* All that is known of a checkpoint without its payload. One index is made by one read; an index of a directory takes in those
 * of its files (ckpt__index_absorb). The storages and tensors are two heap arrays, which move as they grow: keep numbers, not
 * pointers, while an index is built. Their bytes count against the arena's limit. */
typedef struct ckpt__index {
    ckpt__arena *arena; /* has names, shapes, pieces and values; owned unless arena_lent */
    bool arena_lent;    /* the arena belongs to the index that will absorb this one */
    const char *format; /* static: "ckpt", "safetensors", "torch", ... */
    const char *kind;   /* static: "file" or "directory" */
    const char
        *layout; /* in the arena: how ranks divided it ("ZeRO stage 2 over 8 data parallel ranks"); NULL: not told */
    ckpt__job job;
    ckpt__storage *storages;
    size_t storage_count, storage_capacity; /* heap, owned; counts are rows */
    ckpt__tensor *tensors;
    size_t tensor_count, tensor_capacity; /* the same */
    ckpt__piece *pieces;                  /* of split tensors alone, those of a tensor side by side */
    size_t piece_count, piece_capacity;   /* the same */
    ckpt__hash *boxes;                    /* owned: the bytes of a box -> its address; NULL while no tensor is split */
    ckpt_device *devices;                 /* heap, owned: where memory is; devices[0] is the host. NULL: there alone */
    size_t device_count, device_capacity; /* the same */
    const ckpt_value *root;  /* the value tree, in the arena; TENSOR values are numbers in `tensors`. NULL: no tree */
    ckpt_report *findings;   /* owned: what the read noticed */
    int64_t step;            /* native: completed steps; -1 where not known */
    uint64_t metadata_bytes; /* bytes of metadata that a CRC of their own covered (verify counts them) */
    const char
        *pickle_strange; /* static: the first opcode that torch's weights_only unpickler does not know; NULL: none */
    const char *
        archive_refused; /* static: why torch's reader refuses the archive, whatever it holds; NULL: it does not, or there
                                   * is none */
    ckpt_str
        archive; /* in the arena: what the archive calls itself, which torch.save makes of the file's name without its ending; data
                                   * NULL: nothing. Not of a directory */
    bool metadata_crc; /* such a CRC there was */
    bool bare_list; /* names, shapes and places of the tensors are in a file without a CRC (DCP's .metadata), whatever
                                   * the payloads have */
    int pickle_protocol; /* of the one pickle that the index was read from: 1 (0 too) to 5; 0: no pickle, or several
                                   * files */
    struct ckpt__index **absorbed;
    size_t absorbed_count, absorbed_capacity; /* heap, owned: kept for what they own */
    ckpt__last_view view;                     /* of whole tensors; in the arena */
    size_t dense_of;                          /* of its first so many tensors ... */
    int64_t dense;                            /* ... info.storage is below this */
    struct ckpt__records *records;            /* owned: of nested extents; NULL: there are none */
    struct ckpt__origins *origins; /* owned: which pickle node stands for which storage; NULL: none was noted */
    size_t origin_base;            /* of an absorbed index: add it to the storage numbers in its `origins` */
    uint64_t
        *parts_given;    /* heap, owned, one count a storage: bytes given without a look at the CRC (engine/checked.c);
                                   * NULL: no such bytes are given */
    ckpt__hash *by_name; /* owned: name -> number of its first tensor; NULL where the format makes no such table */
    const struct ckpt__shard *shards; /* in the arena: tensors of which this file has one rank's part (format/shard.h);
                                   * NULL: there are none */
    ckpt__span *spans;
    size_t span_count, span_capacity; /* heap, owned */
    size_t held;               /* so many more have it than the one that made it: ckpt__index_free lets go of one */
    pthread_mutex_t span_lock; /* there from the first span on: one thread compares, others wait for its answer */
} ckpt__index;

static inline bool ckpt__index_is_directory(const ckpt__index *index)
{
    return index->kind && strcmp(index->kind, "directory") == 0;
}

/* Sets index->layout. False: no memory. */
bool ckpt__index_tell_layout(ckpt__index *index, const char *format, ...) CKPT__PRINTF(2, 3);
ckpt__index *ckpt__index_new(uint64_t arena_limit);
ckpt__index *ckpt__index_new_part(ckpt__arena *lent); /* of many small ones each arena would waste some room */
void ckpt__index_free(ckpt__index *index);
/* It is freed once more than it was. Such an index is not taken into another (ckpt__index_absorb). */
static inline void ckpt__index_hold(ckpt__index *index)
{
    index->held++;
}
/* Of a read that failed for want of memory because of the arena's limit: CKPT_E_LIMIT with what was found and expected. Else the
 * status, and *err stays. */
ckpt_status ckpt__index_refused(const ckpt__index *index, ckpt_status status, const char *label, ckpt_error *err);
/* Append; return the new record zeroed (valid until the next append), NULL when memory is short. */
ckpt__storage *ckpt__index_add_storage(ckpt__index *index);
ckpt__tensor *ckpt__index_add_tensor(ckpt__index *index);
/* false: no memory; `name` is borrowed */
bool ckpt__index_add_span(ckpt__index *index, const ckpt__extent *extent, ckpt_str name);
/* The number of a device for the extents of this index: one that it has, or a new one. The host is 0. False: no memory. */
bool ckpt__index_device(ckpt__index *index, ckpt_device device, uint16_t *number);
/* The extent that has its first element; NULL: it has no bytes. Of a tensor of one element it has all. */
const ckpt__extent *ckpt__first_extent(const ckpt__index *index, const ckpt__tensor *tensor);
/* The number of the storage that has its first element. It is to have bytes. */
uint32_t ckpt__first_storage(const ckpt__index *index, const ckpt__tensor *tensor);
/* The box of so many numbers in the index's arena, one for all that are the same; NULL: no memory. */
const int64_t *ckpt__index_box(ckpt__index *index, const int64_t *box, size_t count);
/* Room for so many more storages and pieces, which come one by one. False: no memory. */
bool ckpt__index_expect(ckpt__index *index, size_t storages, size_t pieces);
/* Room for so many more, of which the file has shown that it has them: they are not moved as they are added. */
bool ckpt__index_reserve(ckpt__index *index, size_t storages, size_t tensors);
/* Makes tensor i whole: a view of `storage`. Copies shape and strides (NULL: C order) into the arena and fills
 * info.{shape,strides,offset,nbytes,storage,storage_nbytes,device}. Checks that the view lies inside the storage:
 * CKPT_E_FORMAT naming the tensor, or CKPT_E_NO_MEMORY. dtype and ndim must be set before. */
ckpt_status ckpt__index_set_view(ckpt__index *index, size_t tensor, size_t storage, const int64_t *shape,
                                 const int64_t *strides, int64_t offset, ckpt_error *err);
/* The same of a tensor that has no elements: a view of a storage without bytes. */
ckpt_status ckpt__index_set_empty(ckpt__index *index, size_t tensor, const int64_t *shape, ckpt_error *err);
/* Tensor i, which is whole, views a storage of its own, of the same bytes. False: no memory. */
bool ckpt__index_own_storage(ckpt__index *index, size_t tensor);
/* Splits tensor i, once: it has the pieces, copied with their boxes into the index (piece.tensor is filled). Fills info.shape
 * (copied), info.nbytes and info.device (the storages' where all have one); info.strides is NULL and info.storage -1. Checks each
 * box against the shape and each view against its storage: CKPT_E_FORMAT naming the tensor. Pieces without elements are left
 * out; one that is all of the tensor makes it whole. It does not check that the pieces cover the tensor, or that they do not meet: the plan does, of what is asked for. */
ckpt_status ckpt__index_set_pieces(ckpt__index *index, size_t tensor, const int64_t *shape, const ckpt__piece *pieces,
                                   size_t count, ckpt_error *err);
/* One piece of a tensor, or the whole of it, as a view: without a look at which of the two it is. */
typedef struct ckpt__view {
    const int64_t *lo, *size; /* the box; lo NULL: all zero. Borrowed from the index */
    const int64_t *strides;   /* in elements; NULL: C order */
    uint64_t at;              /* of the first element in the storage, in bytes */
    uint32_t storage;         /* number in the index */
    uint64_t begin, count;    /* flat: elements of the tensor in C order; lo, size and strides are NULL */
    uint32_t crc;             /* of the elements in C order, where has_crc */
    bool has_crc, flat, replica;
} ckpt__view;
static inline size_t ckpt__view_count(const ckpt__tensor *t)
{
    return t->whole ? 1 : t->piece_count;
}
ckpt__view ckpt__view_of(const ckpt__index *index, const ckpt__tensor *t, size_t number);
/* Are both whole, and the same elements of one storage with the same values? A lazy conjugate or negation of the other is not. */
bool ckpt__same_view(const ckpt__tensor *a, const ckpt__tensor *b);
/* Of tensors in one piece: do both view one storage; is one all of its storage, or does it share it, or leave some of it out? False of
 * what is split or has no bytes. */
bool ckpt__same_storage(const ckpt__tensor *a, const ckpt__tensor *b);
bool ckpt__fills_storage(const ckpt__index *index, const ckpt__tensor *t);
bool ckpt__is_within_storage(const ckpt__index *index, const ckpt__tensor *t);
/* Does it repeat few bytes so often (strides of 0) that a file of a kilobyte would keep its reader busy for hours? *stored (may be
 * NULL): the bytes of the storages that it views, where it does. */
bool ckpt__repeats(const ckpt__index *index, const ckpt__tensor *t, uint64_t *stored);
/* Notes that `origin` (a pickle node) stands for the storage, for writing it again: cheap. Asking makes a table of what was
 * noted since, so one thread may ask; 1: it is there, 0: it is not, -1: no memory. */
bool ckpt__index_note_origin(ckpt__index *index, const void *origin, size_t storage);
int ckpt__index_storage_of(const ckpt__index *index, const void *origin, size_t *storage);
void ckpt__index_free_origins(ckpt__index *index);
/* Takes `part` (one file of several) into `into`: storages and tensors are appended with their numbers shifted, in the
 * value tree too, which is part->root afterwards as before; the part keeps no rows of its own. findings, metadata_bytes, bare_list and
 * origins go along. Tensors without info.file get `name` (data NULL: none). Both must be finished. part belongs to `into`
 * then, also on failure. */
ckpt_status ckpt__index_absorb(ckpt__index *into, ckpt__index *part, ckpt_str name, ckpt_error *err);
/* Leaves out the tensors i without keep[i], which were the means of making others: those of each rank's file, say, of which pieces
 * are views. Their storages stay. The others move up, with their pieces and their values in x->root; a TENSOR value of one that
 * is left out becomes NONE. Call it once the index is finished and nobody else has numbers of it. */
ckpt_status ckpt__index_keep(ckpt__index *index, const bool *keep, ckpt_error *err);
/* Renumbers info.storage densely by first appearance in tensor order. Call once, at the end of a read. */
ckpt_status ckpt__index_finish(ckpt__index *index, ckpt_error *err);

/* CKPT_E_LIMIT: the names of all values have more bytes than ckpt__names_limit. */
ckpt_status ckpt__value_names_over(const char *label, ckpt_error *err);

/* ---- values in an arena (NULL when memory is short) */
ckpt_value *ckpt__value_new(ckpt__arena *a, ckpt_kind kind);
ckpt_value *ckpt__value_int(ckpt__arena *a, int64_t v);
ckpt_value *ckpt__value_float(ckpt__arena *a, double v);
ckpt_value *ckpt__value_bool(ckpt__arena *a, bool v);
ckpt_value *ckpt__value_str(ckpt__arena *a, const char *data, size_t n);
/* Entries and items are copied into the arena. */
ckpt_value *ckpt__value_dict(ckpt__arena *a, const ckpt_entry *entries, size_t n);
ckpt_value *ckpt__value_dict_like(ckpt__arena *a, const ckpt_value *like, const ckpt_entry *entries,
                                  size_t n); /* of the class, and with the state, of another dict */
ckpt_value *ckpt__value_list(ckpt__arena *a, ckpt_kind kind, const ckpt_value *const *items, size_t n);
/* Is it a list or a tuple? v NULL: it is neither. */
static inline bool ckpt__is_list(const ckpt_value *v)
{
    return v && (v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE);
}
/* Do two values of any trees say the same? Floats are compared bit by bit, tensors are all alike, and what lies deeper than twelve
 * containers is not looked at. Either may be NULL: alike is NULL alone. */
bool ckpt__value_alike(const ckpt_value *a, const ckpt_value *b);
/* Python's repr of a key (True, 2.5, (1, 'a'), b'by', None), appended to b. */
void ckpt__value_repr(ckpt__buf *b, const ckpt_value *v);

/* ---- roles */
/* The path says ema, average, swa: a copy of the weights that has the same names. */
bool ckpt__is_average(ckpt_str path);

/* ---- dtypes */
/* One dtype, for everything that asks about dtypes: one table instead of a switch in each room. Texts are static. */
typedef struct ckpt__dtype_row {
    ckpt_dtype dtype;
    const char *torch;       /* "float32" */
    const char *safetensors; /* "F32"; NULL: safetensors lacks the dtype */
    uint16_t bits;           /* of one element: 32; 6 for float6 */
    uint8_t unit;            /* bytes that a byte swap reverses: 4 for float32 and for complex64, 1: no swap */
    bool is_float, is_complex, is_signed;
} ckpt__dtype_row;
const ckpt__dtype_row *ckpt__dtype_row_of(ckpt_dtype dtype); /* never NULL: row 0 is none */
/* torch's name, or what people write for it ("bf16", "half"); CKPT_DTYPE_NONE: neither. */
ckpt_dtype ckpt__dtype_called(const char *name);
/* torch's name of the dtype that was meant, where one is called so or is a letter away; else NULL. Static. */
const char *ckpt__dtype_meant(const char *name);
uint64_t
ckpt__granule(unsigned bits); /* elements that begin at a byte only together: 2 of 4 bits, 4 of 6; 1: each does */
ckpt_dtype ckpt__dtype_from_safetensors(const char *data, size_t n); /* NONE where unknown */

/* Converts n elements, round to nearest even; over float, integer and bool dtypes. Returns false where it has no rule
 * for the pair. *changed (may be NULL) is set when a value was not exactly representable. src and dst do not overlap. */
bool ckpt__convert(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n, bool *changed);
/* The same, counting: the numbers are added to *counts. One element can count in several of them: float32 70000 becomes inf in
 * float16, and counts as converted, as inexact and as out of range. */
typedef struct ckpt__convert_counts {
    uint64_t elements;     /* converted */
    uint64_t inexact;      /* rounded, out of range, or NaN into what has none */
    uint64_t out_of_range; /* a finite value became infinite, NaN or the largest there is */
    uint64_t nan;          /* NaN: kept by a float, 0 in an integer */
} ckpt__convert_counts;
bool ckpt__convert_counted(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n,
                           ckpt__convert_counts *counts);

/* ---- device tags: torch's, as found in files. "cuda" is {CUDA, -1}, "cuda:3" {CUDA, 3}, "cpu" {CPU, -1}, "meta", "mps",
 * "xpu:1" and torch's further devices; all else OTHER (index after the last ':' or -1). */
ckpt_device ckpt__tag_parse(ckpt_str tag);
/* The type of a device by its name alone, without an index, where it is one of those that have an index: cuda, xpu, npu, hpu,
 * mtia, privateuseone. NONE: it is none of these. */
ckpt_device_type ckpt__indexed_device(ckpt_str word);
/* A tag that a rule gives to tensors, as ckpt_device_parse has it, and torch's further devices: "mps", "xpu:0", "hpu". */
ckpt_status ckpt__tag_target(const char *text, ckpt_device *out, ckpt_error *err);

/* ---- reports (strings are copied and may be NULL); all return false when memory is short */

/* A fix is one sentence of advice; or alternatives in a row, each of which begins with its kind: CKPT__FIX_SHELL "ls"
 * CKPT__FIX_ADVICE "copy it again". An alternative without a text is none. What is put into such a text must not have these
 * bytes; a sentence may. */
#define CKPT__FIX_SHELL "\001"
#define CKPT__FIX_PYTHON "\002"
#define CKPT__FIX_C "\003"
#define CKPT__FIX_CONFIG "\004"
#define CKPT__FIX_ADVICE "\005"
bool ckpt__report_add(ckpt_report *r, ckpt_severity severity, const char *code, const char *tensor, const char *fix,
                      const char *format, ...) CKPT__PRINTF(6, 7);
/* The last added finding is of this tensor: its whole name, escaped. data NULL: of none. */
bool ckpt__report_tensor(ckpt_report *r, ckpt_str name);
/* The last added finding gets these too. */
bool ckpt__report_detail(ckpt_report *r, const char *file, const char *from, const char *to, uint64_t nbytes);
bool ckpt__report_use(ckpt_report *r, ckpt_device device, ckpt_role role, uint64_t nbytes); /* device rows */
/* Adds a finding of another report, with all that it has, as one of this severity and code. */
bool ckpt__report_repeat(ckpt_report *r, const ckpt_finding *f, ckpt_severity severity, const char *code);
bool ckpt__report_merge(ckpt_report *into, const ckpt_report *from);
/* Takes back the findings from number `count` on, and the device rows. */
void ckpt__report_cut(ckpt_report *r, size_t count);
/* "3 wrong: 'a': ...; 'b': ... and 1 more": the first eight findings of at least that severity, into *err. */
ckpt_status ckpt__report_fail(const ckpt_report *r, ckpt_severity at_least, ckpt_status status, const char *object,
                              ckpt_error *err);

#endif
