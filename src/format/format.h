/* format/format.h - the format table. A format translates between a file's metadata and an index, and an index and a
 * recipe; it never reads or writes a payload and never sees a device. */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H
#include "io/source.h"
#include "model/index.h"

/* What a bid looks at: the first bytes (up to 4 KiB) of file 0 and its size; for a directory head_size is 0 and
 * dirfd can be asked for names. */
typedef struct ckpt__probe {
    const unsigned char *head;
    size_t head_size;   /* borrowed; bytes */
    uint64_t file_size; /* bytes */
    bool directory;
    int dirfd;                  /* borrowed; -1 where several files were given */
    const ckpt__source *source; /* borrowed */
    uint32_t file;              /* number in the source, unless it is a directory: for the few bids that look further */
} ckpt__probe;

/* ---- recipes: the mirror of an index. A recipe is an ordered list of segments without holes: the whole output file, but for the
 * payloads, which are only named. So a format writes without reading a payload. A plain safetensors file of w (48 bytes) and
 * last (12 bytes), which are tensors 0 and 1 of the index, is
 *
 *     segments[0]  LITERAL   size 4096    the header: 8 bytes of length, the JSON, spaces up to CKPT__ST_ALIGN
 *     segments[1]  PAYLOAD   size 48      number 0
 *     segments[2]  PAYLOAD   size 12      number 1          recipe.size = 4096 + 48 + 12 = 4156
 *
 * Segment 2 begins at byte 4144, the sum of the sizes before it. */
typedef enum ckpt__segment_kind {
    CKPT__LITERAL,  /* bytes known now */
    CKPT__COMPUTED, /* bytes that depend on nothing but the CRCs of the segments before: compute() makes them
                                   * when their turn comes */
    CKPT__PAYLOAD,  /* the payload of tensor `number`: its elements in C order, little-endian */
    CKPT__STORAGE,  /* the payload of storage `number`: all its bytes, little-endian elements */
    CKPT__RANGE,    /* a part of the payload of a tensor, which other segments have the rest of, as a rule in other
                                   * files: number `number` of the recipe's ranges */
    CKPT__DEFERRED  /* bytes known once all payload CRCs are: filled by finish() */
} ckpt__segment_kind;
typedef struct ckpt__segment {
    ckpt__segment_kind kind;
    uint64_t size;     /* bytes of the output; never 0 */
    union {            /* one word: a file of a hundred thousand tensors has some times as many segments */
        char *bytes;   /* LITERAL, DEFERRED (placeholders of the right length): in the recipe's arena, or its text */
        size_t number; /* PAYLOAD, STORAGE: number in the index that is written; COMPUTED: the format's own */
    };
} ckpt__segment;
/* Bytes [begin, begin + the segment's size) of a payload. */
typedef struct ckpt__range {
    size_t number; /* of a tensor in the index that is written */
    uint64_t begin;
} ckpt__range;
typedef struct ckpt__recipe {
    ckpt__arena *arena; /* owned */
    ckpt__buf text;     /* owned: the one long text that a format makes, so that it is not copied */
    ckpt__segment *segments;
    size_t count, capacity; /* heap, owned; the capacity of a format that adds them in several calls, else 0 */
    ckpt__range *ranges;
    size_t range_count, range_capacity; /* heap, owned */
    struct ckpt__recipe **parts;
    size_t part_count, part_capacity; /* heap, owned, as each of them: recipes that ctx refers to */
    uint64_t size;                    /* bytes of the whole file: the sum of the segments' sizes */
    /* Fills the DEFERRED segments in place; crcs[i] is the CRC-32 of segment i (PAYLOAD, STORAGE). NULL: nothing is
     * deferred. */
    ckpt_status (*finish)(struct ckpt__recipe *recipe, const uint32_t *crcs, ckpt_error *err);
    /* The bytes of COMPUTED segment i, all of them; crcs[k] is the CRC-32 of segment k for every k < i. NULL: nothing is
     * computed. */
    ckpt_status (*compute)(const struct ckpt__recipe *recipe, size_t i, const uint32_t *crcs, char *to,
                           ckpt_error *err);
    void *ctx; /* the format's own, in the arena; NULL: it needs none */
    size_t *left_out,
        left_count; /* heap, owned: tensors of the request, by their numbers, that the file does not have: `lost`
                                   * says so of each. NULL: it has all of them */
} ckpt__recipe;
void ckpt__recipe_free(ckpt__recipe *r);

/* The tensors that go into one file: tensors[i] numbers in the index, in any order. What the format cannot hold is
 * added to `lost` as findings of code "lost" (device tags, aliases, values, ...): the caller decides. `root` is the
 * value tree to write (TENSOR nodes refer to the index), NULL for none. Tensors of the index that view one storage
 * share it: native keeps them as aliases, plain safetensors writes copies and says so in `lost`. */
typedef struct ckpt__write_request {
    const ckpt__index *index; /* borrowed, as all pointers here: the recipe's segments name its rows by number */
    const size_t *tensors;
    size_t count;
    const ckpt_value *root;
    int64_t step;      /* completed steps, or -1 */
    bool weights_only; /* HF-clean: __metadata__.format = "pt" is wanted */
    ckpt_report *lost;
    const char *archive;       /* torch: the name of the archive inside the zip; NULL: "archive" */
    const ckpt__index *source; /* torch: the index that was read, which knows the pickle nodes that the values' origins
                                   * are; NULL: `index` itself */
    const struct ckpt__edits
        *edits; /* torch: what the values of those nodes have become; NULL: they are what they were */
    size_t
        only; /* torch: 1 + the tensor that is the only one in the root, made of nothing that was read, in a storage that no
                                   * other tensor views: no table of all storages is made then. 0: there may be others */
    bool numbered; /* native: the structure of a torch file in the root has the records of this file as its
                                   * numbers (ckpt__native_records). It is not copied: it lives as long as the recipe. */
} ckpt__write_request;

/* What the bytes of one payload are made of, when the recipes of a target are laid out. */
typedef struct ckpt__laid {
    uint32_t to, from; /* numbers of tensors, in the target's index and in the source's; or of storages */
    bool storage;
} ckpt__laid;

/* Makes `index`, which all of these recipes were written from (NULL: a file without one), the index of their target: storage k is
 * all payloads of recipe k, one behind the other, and what of them is one tensor is that tensor there. Its places count
 * in the storage, and not in the file. Storages behind those are the ones that go over whole, because none of their tensors is
 * all of them. A tensor that shares the bytes of another one lies in those; one that is not written is not whole any more.
 *   Segments that are payloads become STORAGE, with their numbers in *laid (heap), which are in the order of the recipes.
 * sources: the storages from there on are no storages of the source; each is what one tensor makes of it.
 *   Plain safetensors of w (48 bytes) and of last = w[:, 3] (12 bytes): storage 0 has 60 bytes, w at 0 and last, in C order, at
 * 48. A torch file of the two has storage 0 of 48 bytes, in which w is laid, and last is a view of w. */
ckpt_status ckpt__recipes_lay_out(ckpt__recipe *const *recipes, size_t count, ckpt__index *index, size_t sources,
                                  ckpt__laid **laid, size_t *laid_count, ckpt_error *err);

/* What is read: one file of the source, or its directory. */
#define CKPT__WHOLE_DIRECTORY UINT32_MAX
typedef struct ckpt__members ckpt__members;
typedef struct ckpt__read_request {
    ckpt__source *source;
    uint32_t file;      /* number in the source: every extent of the index refers to it; or CKPT__WHOLE_DIRECTORY */
    bool salvage;       /* a damaged file: list what can be told of it, with extent.missing set where a storage's
                                   * bytes are not all there, instead of failing */
    bool survey;        /* several files: each that is damaged or missing is a finding of its own (format/survey.h),
                                   * and the others are read */
    ckpt__arena *arena; /* a file of several: that of the index that they become, for a format whose index of one
                                   * may lie there; else NULL */
    bool leave_damaged; /* a directory: as ckpt_reader_options has it */
    struct ckpt__twins *twins;    /* of one of many files that are looked at and freed: what was read of those before
                                   * (format/twins.h). Such an index is not taken into another. NULL: it is read by itself */
    const ckpt__members *members; /* a directory: how its files are read, each by its own format (format/table.c) */
} ckpt__read_request;

/* Who writes such files. Asked by producer alone, which names the program; the others ask for what follows from it, below. */
typedef enum ckpt__family {
    CKPT__FAMILY_NONE = 0,    /* of an index that no format of the table has read */
    CKPT__FAMILY_NATIVE,      /* this library: no Python program reads it */
    CKPT__FAMILY_SAFETENSORS, /* safetensors.torch.load_file reads it */
    CKPT__FAMILY_TORCH,       /* torch.save and libtorch: torch.load reads it */
    CKPT__FAMILY_PICKLE,      /* pickle.dump without torch: torch.load refuses it */
    CKPT__FAMILY_DCP,         /* torch.distributed.checkpoint.save: its load reads it */
    CKPT__FAMILY_FOLDER,      /* a directory of several files, each of a format of its own; torch.load is behind most */
    CKPT__FAMILY_LLMC,        /* llm.c in CUDA: no Python program reads it */
    CKPT__FAMILY_DEEPSPEED,   /* DeepSpeed: its engine.load_checkpoint reads it */
    CKPT__FAMILY_MEGATRON,    /* Megatron-LM and megatron-core, in both layouts: their own load reads it */
    CKPT__FAMILY_FSDP,  /* a pickled file of each rank: the program that wrote them reads them, each rank its own */
    CKPT__FAMILY_RANKS, /* any program, of whose files of ranks a layout tells */
    CKPT__FAMILY_KERAS  /* Keras: keras.saving.load_model or load_weights reads it */
} ckpt__family;

/* What the ranks of one job wrote together. Doctor asks: each has its own rules for another number of ranks. */
typedef enum ckpt__sharded {
    CKPT__SHARDED_NONE = 0, /* any number of ranks reads it alike */
    CKPT__SHARDED_DCP,
    CKPT__SHARDED_DEEPSPEED,
    CKPT__SHARDED_UNIVERSAL,
    CKPT__SHARDED_MEGATRON,
    CKPT__SHARDED_TORCH_DIST,
    CKPT__SHARDED_FSDP, /* a pickled file of each rank */
    CKPT__SHARDED_LLMC,
    CKPT__SHARDED_RANKS /* a file of each rank, of a program that a layout describes */
} ckpt__sharded;

/* What an object of the tree says of how many ranks wrote a checkpoint, and what it says of one. */
typedef struct ckpt__rank_size {
    const char *name; /* of an attribute; NULL: the end of a list */
    ckpt_kind kind;   /* INT or BOOL */
    int value;
} ckpt__rank_size;
typedef struct ckpt__rank_sizes {
    const char *object; /* at the root's key */
    const ckpt__rank_size *sizes;
} ckpt__rank_sizes;

/* One format. Everything above this room goes by this table; a new format is one more of these. */
typedef struct ckpt__format {
    const char *name;   /* "torch"; static */
    const char *suffix; /* for migrate's default: ".safetensors"; NULL: none */
    /* 0: not mine; else how sure: 100 for an unmistakable magic. */
    int (*bid)(const ckpt__probe *probe);
    ckpt_status (*read)(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err);
    /* NULL: cannot write. */
    ckpt_status (*write)(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err);

    /* ---- facts, asked as ckpt__format_of(index)->FACT by the rooms above, which never compare a format's name. Each says
     * which formats have it, and who asks. */
    ckpt__family family;
    /* dcp, deepspeed, universal, megatron, torch-dist, fsdp, llmc: asked of directories by doctor, and by producer. */
    ckpt__sharded sharded;
    /* native, llmc, deepspeed, megatron: names are the canonical ones (optimizer.W.exp_avg), and groups list their parameters by name. The order of an
     * optimizer is not looked for; diff, summary and migrate take the names as they are. */
    bool canonical;
    /* native: a trainer bound all that is in it. So what it lacks is no loss to that trainer (doctor), and what nobody asks
     * for is a mistake (restore). */
    bool bound;
    /* native, dcp, keras, llmc, deepspeed, megatron, torch-dist, fsdp: the files of a directory become one tree. Else the root is a dict from a file's name to what the file holds:
     * see ckpt__in_files. */
    bool joins_files;
    /* native: it holds all that a state binds: values, roles, parameters, groups. Another format loses some. Asked by save. */
    bool holds_state;
    /* native: each tensor has a device tag of its own, also of those that share a storage. Asked by migrate, for a torch target,
     * whose tags are those of storages. */
    bool tags_tensors;
    /* torch, torch-legacy, dcp, torch-dist, fsdp: tensors and values lie in dicts that a program laid out as it liked. The model, its optimizer
     * and its scaler are found by their structure. Asked by anatomy. */
    bool laid_out;
    /* torch, torch-legacy: torch.load reads a file of it, and each value is one that it may refuse. Asked by doctor and
     * migrate. */
    bool torch_loads;
    /* pickle: torch.load raises on each of its files. Asked by doctor. */
    bool torch_raises;
    /* native, dcp, keras, llmc, deepspeed, megatron, torch-dist, fsdp: one program's own loader reads it, and those of torch, Lightning and the others do not. Asked by doctor. */
    bool own_loader;
    /* native, dcp, keras, llmc, deepspeed, megatron, torch-dist, fsdp: no resume in Python begins with reading a file; the text says why, and what to do instead. NULL:
     * one does. Asked by doctor, for a snippet. */
    const char *no_python;
    /* safetensors: the function that reads a file in Python. NULL: torch.load. Asked by doctor. */
    const char *python_load;
    /* native: a directory has a manifest, written last, so that it may be a step of a run (save). A directory of another format may be what is left of a step that is
     * being removed, and the reader looks again. */
    bool has_manifest;
    /* native: it may keep the structure of a torch file in its root (CKPT__TORCH_KEY), which summary and migrate look for. */
    bool keeps_torch;
    /* native: a tensor that is not dense is there as its parts alone. diff compares the parts then. */
    bool parts_alone;
    /* safetensors: there is nothing but weights, so a tensor without a role is one. Asked by doctor, and by migrate: a file
     * of such a directory has no values to change. */
    bool weights_alone;
    /* safetensors: float4 is F4, whose shape counts values; torch's shape counts pairs. Asked by migrate. */
    bool logical_float4;
    /* torch, pickle, dcp, torch-dist, fsdp: there is a value tree even where every tensor is at its top. Asked by migrate. */
    bool has_values;
    /* torch-legacy: no zip archive, which libtorch's readers refuse. Asked by doctor. */
    bool no_archive;
    /* hf, hf-trainer, accelerate, peft: the weights are those of one model, so a tensor without a role is a parameter or a
     * buffer. Asked by the reader. */
    bool of_one_model;
    /* folder: no layout binds the files. One of them may tell who wrote them (producer), and each is loaded by its own name
     * (doctor, summary). */
    bool loose_files;
    /* hf: weights without a word about who trained them. Asked by producer. */
    bool pretrained;
    /* peft: the weights are an adapter's, under names of PEFT's, which PEFT alone loads. Asked by doctor, for the resume. */
    bool adapter;
    /* ckpt, dcp, keras, llmc, deepspeed, megatron, torch-dist, fsdp: does a file of this name, at the top of a directory, hold part of such a checkpoint? It is no settings then, and does
     * not go along when the weights are written as something else. Asked by migrate. NULL: the names of format/folder say it. */
    bool (*owns)(const char *name);
    /* keras, torch-dist: the same, of names that mean something else beside other formats ("config.json"). NULL: none */
    bool (*owns_beside)(const ckpt__index *index, const char *name);
    /* torch-dist, megatron: the arguments say how many ranks there were, and a file that is whole is of one. Asked by migrate. NULL:
     * nothing says it. */
    const ckpt__rank_sizes *rank_sizes;
    /* torch-legacy: torch. What `--to same` writes where this format is only read; NULL: the format itself. */
    const struct ckpt__format *rewritten_as;
} ckpt__format;

/* What a directory's format asks of the table, which stands above it: see ckpt__format_choose and ckpt__format_read. */
struct ckpt__members {
    ckpt_status (*choose)(const ckpt__read_request *request, const ckpt__format **best, ckpt_error *err);
    ckpt_status (*read)(const ckpt__read_request *request, const char *forced, ckpt__index **out, ckpt_error *err);
};

extern const ckpt__format ckpt__format_native, ckpt__format_safetensors, ckpt__format_torch, ckpt__format_torch_legacy,
    ckpt__format_pickle;
extern const ckpt__format ckpt__format_hf, ckpt__format_accelerate, ckpt__format_hf_trainer, ckpt__format_peft,
    ckpt__format_folder, ckpt__format_dcp, ckpt__format_keras, ckpt__format_llmc, ckpt__format_deepspeed,
    ckpt__format_universal;
extern const ckpt__format ckpt__format_torch_dist, ckpt__format_megatron, ckpt__format_fsdp, ckpt__format_ranks;

/* Native and plain safetensors share their reader: src/format/safetensors.h has what the two need of each other. */
#endif
