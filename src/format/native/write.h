/* format/native/write.h - what the parts of the native writer share. */
#ifndef CKPT_NATIVE_WRITE_H
#define CKPT_NATIVE_WRITE_H
#include "format/native/native.h"

typedef enum ckpt__entry_kind { CKPT__ENTRY_USER, CKPT__ENTRY_STORAGE, CKPT__ENTRY_BLOB } ckpt__entry_kind;

/* One tensor of the safetensors header (native.h has the words entry, record, blob and alias). */
typedef struct ckpt__entry {
    const ckpt_tensor_info *info; /* of a user's tensor, in the index; else NULL */
    ckpt_str name;                /* as it is in the header */
    uint64_t size;                /* bytes of the data section */
    char *bytes;                  /* of a blob, in an arena; else NULL */
    uint32_t number;              /* a tensor, a storage of the index, or the n of a blob */
    uint32_t record;              /* of a user's tensor: its number among the records */
    uint32_t crc;                 /* of a blob */
    ckpt__entry_kind kind;
    ckpt_dtype dtype; /* as it is in the header */
    uint8_t align;    /* bytes, 16 at most: the file offset is to be a multiple of it */
    bool as_bytes;    /* U8 [nbytes] in place of the true dtype and shape */
} ckpt__entry;

/* A tensor that has no bytes of its own in the file: it views another entry, or is on meta. */
typedef struct ckpt__alias {
    size_t tensor;                /* number in the index */
    const ckpt_tensor_info *info; /* borrowed from the index */
    size_t of;                    /* number of the entry before sorting; SIZE_MAX: none (meta) */
    int64_t offset;               /* elements of its own dtype from the entry's first byte */
} ckpt__alias;

/* One file while its recipe is made. `entries` keep the order in which they came; the data section has another, by alignment:
 * with a float32 bias (entry 0) and a float64 weight (entry 1), order is {1, 0} and position {1, 0}: entry 1 comes first, and
 * entry 0 is at place 1. */
typedef struct ckpt__native_writer {
    const ckpt__write_request *q; /* borrowed */
    ckpt__recipe *recipe;
    ckpt__entry *entries;
    size_t count, capacity; /* heap */
    ckpt__alias *aliases;
    size_t alias_count, alias_capacity; /* heap */
    size_t *order;                      /* heap: place in the data section -> number of the entry */
    size_t *position;                   /* heap: number of the entry -> place in the data section */
    size_t sorted;                      /* entries that order and position have */
    size_t *record_of;                  /* tensor of the index -> 1 + its record; 0: not in this file */
    size_t blobs, storages, users;      /* users: records without the aliases */
    ckpt__hash *names;
    ckpt__buf header, doc;
    size_t crc_in_doc;
    size_t segment_capacity;
    const char *kept; /* that structure, where the request has it with its numbers: it is not copied */
    bool exact;       /* it keeps a torch file's structure: storages, offsets and strides stay as they are */
} ckpt__native_writer;

/* Entries and aliases of the tensors that are asked for, in the order of the request. */
ckpt_status ckpt__native_take(ckpt__native_writer *w, ckpt_error *err);
ckpt__entry *ckpt__native_add_entry(ckpt__native_writer *w); /* zeroed; NULL when memory is short */
/* Gives the entry the name <prefix><n>. */
ckpt_status ckpt__native_name_own(ckpt__native_writer *w, ckpt__entry *e, const char *prefix, size_t n,
                                  ckpt_error *err);
ckpt_status ckpt__native_no_memory(const ckpt__native_writer *w, ckpt_error *err);
/* The root's entry "ckpt.torch" (format/torch/kept.c); NULL: none. */
const ckpt_entry *ckpt__native_kept(const ckpt_value *root);
unsigned ckpt__native_alignment(ckpt_dtype dtype);
#endif
