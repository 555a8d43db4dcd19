/* format/native/native.h - the native format "ckpt": a safetensors file whose __metadata__ holds the rest of a checkpoint.
 * man/ckpt-format.5 is the specification; the names here follow it.
 *
 * Vocabulary: an *entry* is a tensor of the safetensors header, numbered in data order: a user's tensor, a blob
 * ("ckpt.blob.<n>": bytes or numbers of the value tree) or a storage ("ckpt.storage.<n>": bytes that several views
 * share). A *record* is what a reader lists: first the users' tensors in data order, then the aliases. */
#ifndef CKPT_NATIVE_H
#define CKPT_NATIVE_H
#include "format/safetensors.h"
#include "format/native/values.h"

/* The first bytes of the JSON, exactly; the 8 digits of the checksum stand between the two. */
#define CKPT__NATIVE_START "{\"__metadata__\":{\"ckpt.crc32\":\""
#define CKPT__NATIVE_NEXT "\",\"ckpt\":\""
#define CKPT__NATIVE_BLOB "ckpt.blob."
#define CKPT__NATIVE_STORAGE "ckpt.storage."
/* A list in the root of a file that was made from another program's (it may be empty): the root's keys that belong to
 * neither model, optimizer nor scaler. Nobody bound what lies below them: a restore leaves it alone where nothing asks
 * for it. */
#define CKPT__OUTSIDE_KEY "ckpt.outside"
enum {
    CKPT__NATIVE_CRC_AT = 8 + sizeof CKPT__NATIVE_START - 1,
    CKPT__NATIVE_PREFIX = CKPT__NATIVE_CRC_AT + 8 + sizeof CKPT__NATIVE_NEXT - 1,
    CKPT__NATIVE_MARKER_ERRORS = 2, /* that still make a file ours */
    CKPT__NATIVE_MAJOR = 1,
    CKPT__NATIVE_MINOR = 1,
    CKPT__NATIVE_DEPTH = 16 /* of the document outside its value tree */
};

static inline bool ckpt__has_prefix(ckpt_str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.size >= n && memcmp(s.data, prefix, n) == 0;
}

/* The CRC-32 of length bytes and header, the digits of the checksum itself taken as '0'. */
uint32_t ckpt__native_crc(const char *bytes, size_t size);

/* How many bytes of the marker differ; -1 where too few are there to tell. A damaged byte or two still make it ours:
 * else a flipped bit would turn our file into a plain one. */
int ckpt__native_marker_errors(const unsigned char *head, size_t n);

/* Columns: what is known of each record beside the safetensors header. infos[i] is record i. Appends
 * `"columns":{...}`. */
ckpt_status ckpt__native_put_columns(const ckpt_tensor_info *const *infos, size_t n, ckpt__buf *out, ckpt_error *err);
/* Fills the tensors [base, base + n) of the index from the text of the member "columns". */
ckpt_status ckpt__native_get_columns(ckpt_str text, ckpt__index *x, size_t base, size_t n, ckpt_error *err);

ckpt_status ckpt__native_write(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err);
/* The numbers that the tensors will have in a file that keeps a torch file's structure (CKPT__TORCH_KEY), before there is
 * one: per tensor of the index 1 + its record, or 0 where it is none. Heap. */
ckpt_status ckpt__native_records(const ckpt__write_request *request, size_t **record_of, ckpt_error *err);

/* What one or several files are read into. Two files of a step share one reader, so that a value tree can name a tensor of the
 * other file. */
typedef struct ckpt__native_reader {
    ckpt__source *source; /* borrowed */
    ckpt__index *index;   /* borrowed: that is filled */
    bool salvage;         /* what is not there is marked so; a value tree that is not all there is left out */
    size_t root;          /* of the source, where `rooted`: one rank's directory of several */
    bool rooted;
    bool survey; /* of a step: a file that is damaged is a finding, and the others are read */
    /* TENSOR values whose tensor is in another file, by its name: bound when all files are read. Heap. */
    struct {
        ckpt_value *value;
        ckpt_str name;
    } * elsewhere;
    size_t elsewhere_count, elsewhere_capacity;
} ckpt__native_reader;
/* Appends the tensors of one file. *step: its own (-1: none). name: for info.file, data NULL in a single file. */
ckpt_status ckpt__native_read_file(ckpt__native_reader *r, uint32_t file, ckpt_str name, int64_t *step,
                                   ckpt_error *err);
/* The directory of a step: the manifest, then its files. */
ckpt_status ckpt__native_read_step(ckpt__native_reader *r, ckpt_error *err);
/* Several directories that each hold a step: the ranks of a run. Their tensors and values go into `into`. */
bool ckpt__native_has_ranks(ckpt__source *source);
ckpt_status ckpt__native_read_ranks(const ckpt__read_request *request, ckpt__index *into, ckpt_error *err);
ckpt_status ckpt__native_read_root(const ckpt__read_request *request, size_t root, ckpt__index **out, ckpt_error *err);
int ckpt__native_bid_step(const ckpt__probe *probe);

/* CKPT_E_DAMAGED where an index that was read as plain safetensors holds our keys in its metadata: ours, but damaged
 * or rewritten. Else CKPT_OK. */
ckpt_status ckpt__native_disown(const ckpt__index *x, const char *label, ckpt_error *err);
#endif
