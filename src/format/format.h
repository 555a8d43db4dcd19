/* format/format.h - the format table. A format translates between a file's metadata and an index, and an index and a
 * recipe; it never reads or writes a payload and never sees a device. */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H
#include "io/source.h"
#include "model/index.h"

/* What a bid looks at: the first bytes (up to 4 KiB) of file 0 and its size; for a directory head_size is 0 and
 * dirfd can be asked for names. */
typedef struct ckpt__probe {
    const unsigned char *head; size_t head_size;
    uint64_t file_size;
    bool directory;
    int dirfd;                    /* -1 where several files were given */
    const ckpt__source *source;
    uint32_t file;                /* number in the source, unless it is a directory: for the few bids that look further */
} ckpt__probe;

/* ---- recipes: the mirror. An ordered list of segments without holes. */
typedef enum ckpt__segment_kind {
    CKPT__LITERAL,                /* bytes known now */
    CKPT__COMPUTED,               /* bytes that depend on nothing but the CRCs of the segments before: compute() makes them
                                   * when their turn comes */
    CKPT__PAYLOAD,                /* the payload of tensor `number`: its elements in C order, little-endian */
    CKPT__STORAGE,                /* the payload of storage `number`: all its bytes, little-endian elements */
    CKPT__DEFERRED                /* bytes known once all payload CRCs are: filled by finish() */
} ckpt__segment_kind;
typedef struct ckpt__segment {
    ckpt__segment_kind kind;
    uint64_t size;
    union {                       /* a file of a hundred thousand tensors has some times as many segments */
        char *bytes;              /* LITERAL, DEFERRED (placeholders of the right length): in the recipe's arena, or its text */
        size_t number;            /* PAYLOAD, STORAGE: number in the index that is written; COMPUTED: the format's own */
    };
} ckpt__segment;
typedef struct ckpt__recipe {
    ckpt__arena *arena;
    ckpt__buf text;               /* the one long text that a format makes, so that it is not copied */
    ckpt__segment *segments; size_t count;
    uint64_t size;                /* of the whole file */
    /* Fills the DEFERRED segments in place; crcs[i] is the CRC-32 of segment i (PAYLOAD, STORAGE). NULL: nothing is
     * deferred. */
    ckpt_status (*finish)(struct ckpt__recipe *recipe, const uint32_t *crcs, ckpt_error *err);
    /* The bytes of COMPUTED segment i, all of them; crcs[k] is the CRC-32 of segment k for every k < i. NULL: nothing is
     * computed. */
    ckpt_status (*compute)(const struct ckpt__recipe *recipe, size_t i, const uint32_t *crcs, char *to, ckpt_error *err);
    void *ctx;                    /* format's own, in the arena */
} ckpt__recipe;
void ckpt__recipe_free(ckpt__recipe *r);

/* The tensors that go into one file: tensors[i] numbers in the index, in any order. What the format cannot hold is
 * added to `lost` as findings of code "lost" (device tags, aliases, values, ...): the caller decides. `root` is the
 * value tree to write (TENSOR nodes refer to the index), NULL for none. Tensors of the index that view one storage
 * share it: native keeps them as aliases, plain safetensors writes copies and says so in `lost`. */
typedef struct ckpt__write_request {
    const ckpt__index *index;
    const size_t *tensors; size_t count;
    const ckpt_value *root;
    int64_t step;                 /* completed steps, or -1 */
    bool weights_only;            /* HF-clean: __metadata__.format = "pt" is wanted */
    ckpt_report *lost;
    const char *archive;          /* torch: the name of the archive inside the zip; NULL: "archive" */
    const ckpt__index *source;    /* torch: the index that was read, which knows the pickle nodes that the values' origins
                                   * are; NULL: `index` itself */
    bool numbered;                /* native: the structure of a torch file in the root has the records of this file as its
                                   * numbers (ckpt__native_records). It is not copied: it lives as long as the recipe. */
} ckpt__write_request;

/* What is read: one file of the source, or its directory. */
#define CKPT__WHOLE_DIRECTORY UINT32_MAX
typedef struct ckpt__read_request {
    ckpt__source *source;
    uint32_t file;                /* number in the source: every extent of the index refers to it; or CKPT__WHOLE_DIRECTORY */
    bool salvage;                 /* a damaged file: list what can be told of it, with extent.missing set where a storage's
                                   * bytes are not all there, instead of failing */
    bool survey;                  /* several files: each that is damaged or missing is a finding of its own (format/folder/survey.h),
                                   * and the others are read */
    ckpt__arena *arena;           /* a file of several: that of the index that they become, for a format whose index of one
                                   * may lie there; else NULL */
    bool leave_damaged;           /* a directory: as ckpt_reader_options has it */
} ckpt__read_request;

typedef struct ckpt__format {
    const char *name;
    const char *suffix;           /* for migrate's default: ".safetensors"; NULL: none */
    /* 0: not mine; else how sure: 100 for an unmistakable magic. */
    int (*bid)(const ckpt__probe *probe);
    ckpt_status (*read)(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err);
    /* NULL: cannot write. */
    ckpt_status (*write)(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err);
} ckpt__format;

extern const ckpt__format ckpt__format_native, ckpt__format_safetensors, ckpt__format_torch, ckpt__format_torch_legacy,
    ckpt__format_pickle;
extern const ckpt__format ckpt__format_hf, ckpt__format_accelerate, ckpt__format_hf_trainer, ckpt__format_peft,
    ckpt__format_folder;

/* The one visible registration list, in order of bidding; NULL at the end. */
extern const ckpt__format *const ckpt__formats[];
const ckpt__format *ckpt__format_find(const char *name);
/* Bids, then reads. forced NULL: told from the content. The message of a failure names what it is where it is known
 * (HDF5, a tar, TorchScript, a zip without data.pkl, ...). */
ckpt_status ckpt__format_read(const ckpt__read_request *request, const char *forced, ckpt__index **out, ckpt_error *err);
/* The format that bids highest for it; *best NULL: none does. */
ckpt_status ckpt__format_choose(const ckpt__read_request *request, const ckpt__format **best, ckpt_error *err);
/* The request for what was opened: its only file, or its directory. */
ckpt__read_request ckpt__read_all(ckpt__source *source);

/* Native and plain safetensors share their reader: src/format/safetensors.h has what the two need of each other. */
#endif
