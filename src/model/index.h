/* model/index.h - the index: the tensors and values of a checkpoint, with no payload read; and where payloads lie.
 * Formats build it, the planner and the executor work on it, formats write from it. */
#ifndef CKPT_INDEX_H
#define CKPT_INDEX_H

#include <ckpt/device.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>
#include "base/base.h"

typedef enum ckpt__coding { CKPT__STORED = 0, CKPT__DEFLATE } ckpt__coding;

/* Where a storage's bytes lie. */
typedef struct ckpt__extent {
    uint32_t file;                /* number in the source's file table */
    ckpt__coding coding;
    bool big_endian;
    bool has_crc;
    bool missing;                 /* salvage: they are not all there; offset and length say what is */
    uint8_t checked;              /* by engine/checked.c, which alone looks at it: a reader may be shared by threads */
    uint32_t crc;                 /* zlib's crc32 of the `size` decoded bytes, as stored (before any byte swap) */
    const void *memory;           /* not NULL: the bytes are here (inside a pickle), not in a file */
    uint64_t offset, length;      /* in the file: coded bytes */
    uint64_t size;                /* decoded bytes */
} ckpt__extent;

typedef struct ckpt__storage {
    ckpt__extent extent;
    ckpt_str device;              /* tag; data NULL where the format keeps none */
    ckpt_str name;                /* for messages: the record or tensor name */
    ckpt_dtype dtype;             /* of its elements, where the format says it of storages; else CKPT_DTYPE_NONE */
    uint8_t unit;                 /* bytes that a byte swap reverses (1: none); for complex the half */
    bool closed;                  /* something that is no tensor of the index looks at it: a tensor inside an opaque object */
} ckpt__storage;

/* The parts of a tensor that is not dense are tensors of the index too, right behind it ("<name>.indices", ...).
 *
 * A box of the tensor <- a view of a storage. A whole dense tensor is one piece with lo NULL (all zero) and its own
 * shape. */
typedef struct ckpt__piece {
    const int64_t *lo, *shape;    /* ndim each */
    size_t storage;               /* number in the index */
    int64_t offset;               /* elements into the storage */
    const int64_t *strides;       /* elements */
} ckpt__piece;

extern const ckpt_tensor_extra ckpt__no_extra;      /* of a plain tensor */

typedef struct ckpt__tensor {
    ckpt_tensor_info info;
    const ckpt__piece *pieces;    /* none: meta, or not dense (then the parts have them) */
    size_t piece_count;
    uint32_t crc;                 /* of the tensor in C order, where has_crc: native format */
    bool has_crc;
    bool sorted;                  /* its file lists tensors by name: their order is not the model's */
} ckpt__tensor;

typedef struct ckpt__index {
    ckpt__arena *arena;           /* owns everything below but the report */
    bool arena_lent;              /* it is that of the index which will absorb this one */
    const char *format;           /* static string */
    const char *kind;             /* static: "file" or "directory" */
    ckpt__storage *storages; size_t storage_count, storage_capacity;    /* heap arrays */
    ckpt__tensor *tensors; size_t tensor_count, tensor_capacity;
    const ckpt_value *root;       /* NULL: none */
    ckpt_report *findings;
    int64_t step;                 /* native: completed steps; -1 where not known */
    uint64_t metadata_bytes;      /* that were checked by a CRC of their own (verify counts them) */
    const char *pickle_strange; /* the first opcode that torch's weights_only unpickler does not know; NULL: none */
    bool metadata_crc;
    int pickle_protocol;          /* of the one pickle that it was read from: 1 (0 too) to 5; 0: no pickle, or several files */
    struct ckpt__index **absorbed; size_t absorbed_count, absorbed_capacity;    /* kept for what they own */
    struct ckpt__origins *origins;    /* a format's own records of storages, and the storages' numbers; NULL: none */
    size_t origin_base;           /* of one that was absorbed: what is added to those numbers */
    uint64_t *parts_given;        /* heap, one a storage: bytes of it given without a look at its CRC (engine/checked.c); NULL: none
                                   * are */
    ckpt__hash *by_name;          /* name -> the first tensor of it, where the format has made that table; else NULL */
} ckpt__index;

ckpt__index *ckpt__index_new(uint64_t arena_limit);
ckpt__index *ckpt__index_new_part(ckpt__arena *lent);      /* of many small ones each arena would waste some room */
void ckpt__index_free(ckpt__index *index);
/* Of a read that failed for want of memory because of the arena's limit: CKPT_E_LIMIT with what was found and expected. Else the
 * status, and *err stays. */
ckpt_status ckpt__index_refused(const ckpt__index *index, ckpt_status status, const char *label, ckpt_error *err);
/* Append; return the new record zeroed (valid until the next append), NULL when memory is short. */
ckpt__storage *ckpt__index_add_storage(ckpt__index *index);
ckpt__tensor *ckpt__index_add_tensor(ckpt__index *index);
/* Room for so many more, of which the file has shown that it has them: they are not moved as they are added. */
bool ckpt__index_reserve(ckpt__index *index, size_t storages, size_t tensors);
/* Gives tensor i one piece that views `storage`; copies shape and strides (NULL: C order) into the arena and fills
 * info.{shape,strides,offset,nbytes,storage,storage_nbytes,device}. Checks that the view lies inside the storage:
 * CKPT_E_FORMAT naming the tensor, or CKPT_E_NO_MEMORY. dtype and ndim must be set before. */
ckpt_status ckpt__index_set_view(ckpt__index *index, size_t tensor, size_t storage, const int64_t *shape,
                                 const int64_t *strides, int64_t offset, ckpt_error *err);
/* Notes that `origin` (a pickle node) stands for the storage, for writing it again: cheap. Asking makes a table of what was
 * noted since, so one thread may ask; 1: it is there, 0: it is not, -1: no memory. */
bool ckpt__index_note_origin(ckpt__index *index, const void *origin, size_t storage);
int ckpt__index_storage_of(const ckpt__index *index, const void *origin, size_t *storage);
void ckpt__index_free_origins(ckpt__index *index);
/* Takes `part` (one file of several) into `into`: storages and tensors are appended with their numbers shifted, in the
 * value tree too, which is part->root afterwards as before; the part keeps no rows of its own. findings, metadata_bytes and
 * origins go along. Tensors without info.file get `name` (data NULL: none). Both must be finished. part belongs to `into`
 * then, also on failure. */
ckpt_status ckpt__index_absorb(ckpt__index *into, ckpt__index *part, ckpt_str name, ckpt_error *err);
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
ckpt_value *ckpt__value_list(ckpt__arena *a, ckpt_kind kind, const ckpt_value *const *items, size_t n);
/* Python's repr of a key (True, 2.5, (1, 'a'), b'by', None), appended to b. */
void ckpt__value_repr(ckpt__buf *b, const ckpt_value *v);

/* ---- roles */
/* The path says ema, average, swa: a copy of the weights that has the same names. */
bool ckpt__is_average(ckpt_str path);

/* ---- dtypes */
typedef struct ckpt__dtype_row {
    ckpt_dtype dtype;
    const char *torch;            /* "float32" */
    const char *safetensors;      /* "F32"; NULL: safetensors lacks it */
    uint16_t bits;
    uint8_t unit;                 /* bytes that a byte swap reverses */
    bool is_float, is_complex, is_signed;
} ckpt__dtype_row;
const ckpt__dtype_row *ckpt__dtype_row_of(ckpt_dtype dtype);             /* never NULL: row 0 is none */
ckpt_dtype ckpt__dtype_from_safetensors(const char *data, size_t n);    /* NONE where unknown */

/* Converts n elements, round to nearest even; over float, integer and bool dtypes. Returns false where it has no rule
 * for the pair. *changed (may be NULL) is set when a value was not exactly representable. src and dst do not overlap. */
bool ckpt__convert(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n, bool *changed);
/* The same, counting (added to *counts). */
typedef struct ckpt__convert_counts {
    uint64_t elements;            /* converted */
    uint64_t inexact;             /* rounded, out of range, or NaN into what has none */
    uint64_t out_of_range;        /* a finite value became infinite, NaN or the largest there is */
    uint64_t nan;                 /* NaN: kept by a float, 0 in an integer */
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
bool ckpt__report_add(ckpt_report *r, ckpt_severity severity, const char *code, const char *tensor, const char *fix,
                      const char *format, ...) CKPT__PRINTF(6, 7);
/* The last added finding gets these too. */
bool ckpt__report_detail(ckpt_report *r, const char *file, const char *from, const char *to, uint64_t nbytes);
bool ckpt__report_use(ckpt_report *r, ckpt_device device, ckpt_role role, uint64_t nbytes);   /* device rows */
bool ckpt__report_merge(ckpt_report *into, const ckpt_report *from);
/* Takes back the findings from number `count` on, and the device rows. */
void ckpt__report_cut(ckpt_report *r, size_t count);
/* "3 wrong: 'a': ...; 'b': ... and 1 more": the first eight findings of at least that severity, into *err. */
ckpt_status ckpt__report_fail(const ckpt_report *r, ckpt_severity at_least, ckpt_status status, const char *object,
                              ckpt_error *err);

#endif
