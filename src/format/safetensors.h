/* format/safetensors.h - the header of a safetensors file, read and written: what the plain and the native format
 * share.
 *
 * The rules are those of the reference implementation (safetensors/src/tensor.rs) and, where it is laxer, of its
 * README: 8 bytes of little-endian N; N bytes of JSON that begin with '{' and may be padded with spaces; the data, of
 * which every byte belongs to exactly one tensor. */
#ifndef CKPT_SAFETENSORS_H
#define CKPT_SAFETENSORS_H
#include "codec/json.h"
#include "format/format.h"

#define CKPT__ST_HEADER_MAX 100000000u /* bytes of N; the reference's limit, for readers and writers */
#define CKPT__ST_ALIGN 4096u           /* where our writers start the data */

/* One tensor of the header. The entries of a header are in data order: by begin, then end, then position in the header. */
typedef struct ckpt__st_entry {
    ckpt_str name; /* in the arena that ckpt__st_parse was given for names */
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape; /* ndim sizes, in the header's arena */
    uint64_t begin, end; /* bytes [begin, end) of the data section; the file has them at ckpt__st_header.size + begin */
    size_t position;     /* in the header: 0 is the tensor that it lists first */
} ckpt__st_entry;

typedef struct ckpt__st_metadata {
    ckpt_str key, value; /* in the header's arena */
} ckpt__st_metadata;

/* A header that was read. A file of 4156 bytes that begins with the length 4088 has size 4096; w of 48 bytes has begin 0 and
 * end 48, last of 12 bytes has begin 48 and end 60, and 4096 + 60 is all of the file, as the format demands. */
typedef struct ckpt__st_header {
    ckpt__arena *arena; /* owned: the shapes and the metadata */
    char *bytes;        /* heap, owned: the 8 length bytes and the JSON; NULL: forgotten */
    uint64_t size;      /* bytes of both: where the data section starts in the file */
    ckpt__st_entry *entries;
    size_t count, capacity; /* heap, owned */
    ckpt__st_metadata *metadata;
    size_t metadata_count, metadata_capacity; /* heap, owned; NULL: empty */
    bool has_metadata;                        /* there is a __metadata__, be it empty */
    bool salvage;                             /* set before: the data may end early, or go on behind the last tensor */
    uint64_t file_size;                       /* bytes */
} ckpt__st_header;

/* Reads length and JSON into h->bytes. CKPT_E_FORMAT: too short for a header, too long a header, no '{';
 * CKPT_E_DAMAGED: the file ends inside the header. Zero h before; free it in any case. */
ckpt_status ckpt__st_load(const ckpt__source *source, uint32_t file, ckpt__st_header *h, ckpt_error *err);
/* Parses and checks h->bytes against the file's size. Names go into `names`; odd but harmless things into findings. */
ckpt_status ckpt__st_parse(ckpt__st_header *h, uint64_t file_size, const char *label, ckpt__arena *names,
                           ckpt_report *findings, ckpt_error *err);
/* What was parsed stays: the text of a million tensors has 88 MB, which the index can have. */
void ckpt__st_forget_text(ckpt__st_header *h);
void ckpt__st_free(ckpt__st_header *h);
const ckpt__st_metadata *ckpt__st_find(const ckpt__st_header *h, const char *key);

/* Makes the file the object of an error that is about something in it: "<object>: <message>". */
void ckpt__st_blame(ckpt_error *err, const char *label);

/* Adds the storage of an entry (extent in `file`) to the index; *storage gets its number. */
ckpt_status ckpt__st_add_storage(ckpt__index *index, const ckpt__st_header *h, const ckpt__st_entry *e, uint32_t file,
                                 ckpt_dtype dtype, size_t *storage, ckpt_error *err);

/* In a salvage: says how far the file is from what the header describes; `from`: the first storage of this file. */
ckpt_status ckpt__st_note_salvaged(const ckpt__st_header *h, const ckpt__index *x, size_t from, const char *label,
                                   ckpt_error *err);

/* ---- writing */
ckpt_status ckpt__safetensors_write(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err);

/* The reference writer sorts by this, descending, then by name; -1: safetensors lacks the dtype. */
int ckpt__st_rank(ckpt_dtype dtype);
/* Can the tensor stand in the header with its own dtype and shape? Else it is written as U8 [nbytes]. */
bool ckpt__st_fits(const ckpt_tensor_info *info);
/* Appends `"name":{"dtype":...,"shape":[...],"data_offsets":[begin,end]}`, after a comma where `comma`. */
void ckpt__st_put_entry(ckpt__buf *b, bool comma, ckpt_str name, ckpt_dtype dtype, const int64_t *shape, uint32_t ndim,
                        uint64_t begin, uint64_t end);
/* Pads the JSON behind the first 8 bytes of b with spaces up to the alignment, and fills in the 8 length bytes.
 * CKPT_E_LIMIT past CKPT__ST_HEADER_MAX; CKPT_E_NO_MEMORY where b failed. */
ckpt_status ckpt__st_finish_header(ckpt__buf *b, ckpt_error *err);
/* A recipe that owns an arena; segments are appended (empty ones are left out) and counted into its size. */
ckpt__recipe *ckpt__recipe_new(void);
ckpt_status ckpt__recipe_add(ckpt__recipe *r, size_t *capacity, ckpt__segment_kind kind, uint64_t size,
                             const char *bytes, size_t number, ckpt_error *err);
/* The same of a RANGE. */
ckpt_status ckpt__recipe_add_range(ckpt__recipe *r, size_t *capacity, size_t tensor, uint64_t begin, uint64_t size,
                                   ckpt_error *err);
/* `part` is freed with r; and right now where memory is short (false). */
bool ckpt__recipe_own(ckpt__recipe *r, ckpt__recipe *part);
#endif
