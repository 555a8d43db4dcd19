/* ckpt/migrate.h - rewrite a checkpoint: other format, device tags, names, dtypes; and what a damaged one still has. */
#ifndef CKPT_MIGRATE_H
#define CKPT_MIGRATE_H

#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>

CKPT_BEGIN_DECLS

/* Sums of a migration. They are known before a byte of a tensor is read. */
typedef struct ckpt_migrate_totals {
    uint32_t struct_size; /* by the initializer */
    uint64_t bytes_in;    /* of elements that are used, as the source has them: each tensor once, of replicas one */
    uint64_t bytes_out;   /* of elements, as the target has them */
    /* Of the source's files, each byte once: of each storage from the first byte that is used to the last, without unused runs of
     * over 16 KiB; of a compressed one all its bytes in the file. Not counted: lists and headers and what lies in them, what is
     * read to compare a CRC alone, and what is read again. */
    uint64_t bytes_read;
    uint64_t copies;      /* boxes that a piece of the source and a piece of the target have in common */
    uint64_t replicas;    /* pieces of the source that are not read, as another one is the same */
    uint64_t coded;       /* storages that are used and are compressed */
    uint64_t coded_reads; /* tensors, and pieces of such, that are read from them: each may decode its storage from the
                             * beginning. A tensor made in several windows of memory may do so for each window */
    uint64_t
        coded_passes; /* times that one of them is decoded from its beginning, by a run with this memory and without verify.
                             * Each is once, at the least */
} ckpt_migrate_totals;
#define CKPT_MIGRATE_TOTALS_INIT CKPT_SIZED(ckpt_migrate_totals)

/* The kinds of rows of a plan. Values are stable; new ones are added at the end. */
typedef enum ckpt_migrate_what {
    CKPT_MIGRATE_BOX = 1, /* elements of a tensor of the target, made of those of one piece of a tensor of the source */
    CKPT_MIGRATE_REPLICA, /* a piece of the source that is not read for the tensor, as another piece is the same */
    CKPT_MIGRATE_STORAGE, /* a storage of the source goes over whole, with all the bytes that tensors share in it */
    CKPT_MIGRATE_SHARED, /* a tensor whose bytes were named already: those of another tensor, of such a storage, or of a copied file */
    CKPT_MIGRATE_NOTHING, /* a tensor without bytes: it is empty, on meta, or not dense (its parts have rows) */
    CKPT_MIGRATE_FILE     /* a file of the source that is copied as it is */
} ckpt_migrate_what;

/* The places where the bytes of a source lie. Values are stable; new ones are added at the end. */
typedef enum ckpt_migrate_place {
    CKPT_MIGRATE_IN_FILE = 1, /* in a file, as they are */
    CKPT_MIGRATE_IN_RECORD,   /* in a record of a file that is compressed, or an archive of its own */
    CKPT_MIGRATE_IN_MEMORY,   /* in memory: in a pickle, or in metadata */
    CKPT_MIGRATE_COMPUTED     /* nowhere: they are computed, of a tensor of the source and an adapter's */
} ckpt_migrate_place;

/* Changes of the elements on the way, as bits: 0 is none. New ones may be added. */
enum {
    CKPT_MIGRATE_CONVERTED = 1,     /* from_dtype becomes dtype */
    CKPT_MIGRATE_SWAPPED = 2,       /* big-endian bytes become little-endian */
    CKPT_MIGRATE_CONJ_RESOLVED = 4, /* a conjugated view becomes its values */
    CKPT_MIGRATE_NEG_RESOLVED = 8   /* a negated view becomes its values */
};

/* A row of the plan: some bytes of the target, and where they come from. An example: w is float32 of shape 8 x 4, and two ranks have
 * four rows of it each. The second row says: name "w", lo {4, 0}, size {4, 4}, nbytes 64, of w in the file "rank1.pt", bytes
 * [from_begin, from_end) of it: 64 bytes that lie one behind the other, as strides are {4, 1}.
 *   BOX and STORAGE rows together name each byte of the tensors of the target once. Pointers are borrowed until the function
 * that gets the row returns. The library makes the struct; it may grow at its end. */
typedef struct ckpt_migrate_source {
    uint32_t struct_size; /* bytes that the library has filled */
    uint32_t what;        /* ckpt_migrate_what */
    ckpt_str name;        /* of the tensor in the target. STORAGE: from_storage. FILE: data NULL */
    ckpt_str file;        /* of the target, relative to it; data NULL: the target is one file */
    size_t
        finding; /* number of the report's row that says what becomes of the tensor ("copy", "moved"); SIZE_MAX: none */
    ckpt_dtype dtype;         /* of the tensor in the target; NONE of a STORAGE or a FILE */
    uint32_t ndim;            /* numbers in shape, lo, size, strides, piece_lo, piece_size */
    const int64_t *shape;     /* of the tensor, on both sides */
    const int64_t *lo, *size; /* the box in the tensor: first index, and how many. NULL: flat */
    uint64_t flat_begin;      /* flat: the first of its elements in C order of the tensor; of a STORAGE bytes */
    uint64_t flat_count;
    uint64_t nbytes;       /* of these elements in the target */
    ckpt_str from_name;    /* of the tensor in the source */
    ckpt_str from_file;    /* relative to the source; data NULL: the source is one file, or it is in memory */
    ckpt_str from_storage; /* as errors name it: a record, or a tensor; data NULL: it has no name */
    uint64_t from_begin; /* byte of from_file (of a RECORD: of what it holds, decoded) where the first element begins */
    uint64_t from_end;   /* and past the last. Other bytes may lie between where strides leave holes */
    uint64_t record_begin, record_end;    /* RECORD: its bytes in from_file, as they are there */
    const int64_t *strides;               /* of the box in the source, in elements; NULL: flat, one behind the other */
    const int64_t *piece_lo, *piece_size; /* the piece of the source that has the box; NULL: flat, or it has all */
    uint64_t piece_flat_begin, piece_flat_count; /* flat: the same; both 0: it has all */
    ckpt_dtype from_dtype;
    uint32_t place;  /* ckpt_migrate_place; 0: NOTHING */
    uint32_t change; /* CKPT_MIGRATE_CONVERTED, ... */
    bool flat;       /* a range of elements, not a box */
    uint64_t
        passes; /* times that its record is decoded from the beginning, for all rows of it; 0: it is not compressed */
    ckpt_str shares; /* SHARED: the tensor of the target, the storage, or the file that has the bytes */
} ckpt_migrate_source;

/* Gets the rows; a negative answer ends the call, which returns it. fn NULL: nobody asks. The struct never grows. */
typedef struct ckpt_migrate_plan {
    ckpt_status (*fn)(void *ctx, const ckpt_migrate_source *source, ckpt_error *err);
    void *ctx;
} ckpt_migrate_plan;

/* A row of the ledger: what becomes of one tensor, and why. Pointers are borrowed until the function that gets the row returns.
 * The library makes the struct; it may grow at its end. An example, of --to safetensors --drop 'b*' --cast a=bfloat16:
 *
 *     from_name    name    from_dtype  dtype     fate       storage
 *     "model.a"    "a"     float32     bfloat16  "written"  "converted"
 *     "model.b"    none    float32     float32   "dropped"  NULL */
typedef struct ckpt_migrate_row {
    uint32_t struct_size;   /* bytes that the library has filled */
    uint32_t role;          /* ckpt_role, in the target */
    ckpt_str name;          /* in the target; data NULL: the tensor stays behind */
    ckpt_str from_name;     /* in the source; data NULL: the tensor was made on the way (a step, a numpy array) */
    ckpt_str from_file;     /* relative to the source; data NULL: the source is one file */
    ckpt_dtype dtype;       /* in the target; of one that stays behind as in the source */
    ckpt_dtype from_dtype;  /* in the source */
    ckpt_str tag, from_tag; /* device tags, in the target and in the source; data NULL: none */
    ckpt_str layout;        /* "sparse_coo", ...; data NULL: dense */
    const char *fate;       /* "written"; or what keeps it out: "dropped" "replaced" "not-recovered" "no-weight"
                             * "counted" "rank-state" "dead-state" "stacked" "laid-out" "tied" "in-structure" "in-header" "lost" */
    const char *why;        /* in words; NULL: it is written */
    /* Why it has a storage of its own: "joined" "cut-out" "converted" "strided" "merged" "laid-out" "resolved"; NULL: it lies in the
     * storage that it was read from, with what shares it. */
    const char *storage;
} ckpt_migrate_row;

/* Gets the rows; a negative answer ends the call, which returns it. fn NULL: nobody asks. The struct never grows. */
typedef struct ckpt_migrate_ledger {
    ckpt_status (*fn)(void *ctx, const ckpt_migrate_row *row, ckpt_error *err);
    void *ctx;
} ckpt_migrate_ledger;

/* A rule for the states that each rank saved for itself: random generators, samplers, places in the data. Values are stable; new
 * ones are added at the end. */
typedef enum ckpt_rank_state {
    CKPT_RANK_STATE_KEEP = 0, /* each is kept under the name of its rank */
    CKPT_RANK_STATE_DROP,     /* all are left out */
    /* They become those of one process, by rule. States that are equal on all ranks become one. Of states of random generators that differ the
     * one of rank 0 is taken, under the name that a job of one process has for it. A place in the data that differs is left out, for
     * no rule makes one of several. Counters of all ranks together (Megatron's consumed_train_samples) stay as they are. */
    CKPT_RANK_STATE_DERIVE
} ckpt_rank_state;

/* The edits on the way, and the target. All zero: SRC as it is, as a ckpt file. Texts and lists are borrowed during the call. */
typedef struct ckpt_migrate_options {
    uint32_t struct_size; /* by the initializer */

    /* the source */
    const char *from; /* its format; NULL: told from the content */
    const char *const *also;
    size_t also_count; /* further files or directories of the same checkpoint (--one) */
    bool salvage;      /* damaged: what is whole is kept, the rest is listed ("not-recovered") */

    /* the target */
    /* "ckpt", "safetensors", "torch", "hf", "dcp", "dcp-fsdp1", "dcp-hf", "torchtitan", "universal", "hf-trainer", "accelerate" (these
     * two also with "-fsdp" or "-deepspeed" behind it), "torch-dist", "llmc", "ckpt-run", "same" (as the source, which may be a directory of a
     * framework's); NULL: ckpt. */
    const char *to;
    uint64_t max_shard_size; /* hf: bytes per file; 0: 5,000,000,000 */
    bool lossy;              /* what the target cannot hold may be left out */
    bool force;              /* an existing target is replaced */
    bool no_sync;            /* not flushed to the disk: a power cut may lose it */
    bool verify;             /* read back before it takes its name, the CRC-32 of every tensor compared: what differs is
                                   * removed, and what was there before stays */
    bool dry_run;            /* nothing is written: the report has the plan ("copy", "moved", ..., "lost") */

    /* devices and the optimizer */
    const char *map_location;      /* rules for the device tags, as ckpt_map_parse takes them; NULL: kept */
    ckpt_optimizer_kind optimizer; /* step is placed, and the groups' flags are set, for this kind; DEFAULT: as saved */
    ckpt_ranks ranks;              /* of expressions in the rules; all zero: rank 0 of 1 */
    bool map_device_objects;       /* torch.device objects among the values follow map_location */
    const char *const *param_names;
    size_t param_name_count; /* the optimizer's parameters in order, group by group:
                                   * of a torch target made of a torch file the order to write, else the source's */

    /* names, in this order: strip_prefix, rename, add_prefix */
    const char *const *strip_prefix;
    size_t strip_prefix_count; /* "module.", ...: in front and after each dot */
    const char *const *rename;
    size_t rename_count;    /* "REGEX=REPLACEMENT" (PCRE2, end to end), in order */
    const char *add_prefix; /* before the names of the model's tensors */

    /* the tensors to keep; a glob that begins with '=' is literal */
    const char *const *only_tensor;
    size_t only_tensor_count; /* globs over names: all others are left out */
    const char *const *only_role;
    size_t only_role_count; /* "param", "exp_avg", ... */
    const char *const *only_device;
    size_t only_device_count; /* saved tags: "cuda:1" */
    const char *const *drop;
    size_t drop_count; /* globs over names, of tensors and values */
    bool weights_only; /* the model's tensors alone */

    /* content */
    const char *const *cast;
    size_t cast_count; /* "GLOB=DTYPE", the first that matches; to nearest even. "DTYPE", also
                                * bf16, fp16, fp32: parameters and buffers */
    bool plain;        /* opaque objects become dicts, lists and strings, listed ("plain") */
    const char *const *fix;
    size_t fix_count; /* codes of doctor's findings to fix, or "all" */

    /* the work */
    uint64_t memory;        /* what its buffers may take at most; 0: 256 MiB; at least 33 MiB */
    ckpt_progress progress; /* with verify the total is twice what is written: its second half is the reading back */
    uint32_t threads;       /* 1: one reads, converts and writes; 2: another one writes meanwhile; of more, one writes
                                   * and the others each read and convert parts of what is written next. With `verify` all,
                                   * but eight at most, read back what was written. 0: 2 where the
                                   * process may use two cores, else 1. The files, the report and an error are
                                   * the same for any number */
    const char
        *assume_order; /* of the known orders of an optimizer's parameters the one that the source has, by its name
                                   * (ckpt-map(5): "model", "groups-reversed", ...), where more than one could be; NULL: none */
    const char *const *replace;
    size_t replace_count; /* globs over names of the model's tensors: each is left out
                                                                  * with its optimizer state, and keeps its place in its
                                                                  * group, so that the others keep their numbers */
    bool allow_unused;    /* a drop, cast, rename, replace or only_ rule that matches nothing is a warning, no error */
    ckpt_migrate_totals *totals; /* NULL, or what is filled where the call succeeds, of a dry run too */
    ckpt_migrate_plan plan; /* of a dry run: gets where each byte of each tensor comes from, file by file of the target:
                                   * the storages of a file, then its tensors in their order. The report and the totals are
                                   * complete before the first row. No row is kept: a million take no memory */
    ckpt_migrate_ledger ledger; /* gets what becomes of each tensor of the source, in the order of `list`, with its
                                 * parts, and then of those that were made: behind the rows of the plan, and before a
                                 * byte is written */
    const char *
        merge_adapter; /* a folder of PEFT with a LoRA adapter, which is merged into the weights as merge_and_unload does it on
                                   * a CPU; NULL: none. A source with an optimizer's state needs weights_only */
    ckpt_rank_state rank_state; /* the report says what there is, and what becomes of it ("rank-state") */
    uint32_t target_world; /* dcp, torch-dist, llmc, ckpt-run: so many ranks; 0: as many as saved the source, else 1 */
    /* A directory: what an interrupted run has left is removed, and this one leaves nothing when it is interrupted. */
    bool no_resume;
    /* Globs over names of the model's tensors: each rank of a run has some rows of such a tensor, and of its states of that shape. Of a
     * source that is the ranks' directories they are joined, in the order of the ranks; for a target "ckpt-run" they are cut. */
    const char *const *shard;
    size_t shard_count;
    /* A file that says how the tensors of one program are stored in another (ckpt-layout(5)); NULL: none. Names of the other options
     * are those of the source up to it (drop, only_tensor, replace, param_names), and of the target behind it (strip_prefix, rename,
     * add_prefix, cast). layout_side: the side of it that the source is; NULL: the one that its names and shapes fit. Where it says
     * files of ranks, and the source is a directory that has them, they are put together first. */
    const char *layout;
    const char *layout_side;
    const char *const *layout_vars; /* "name=number": what the layout asks for */
    size_t layout_var_count;
    /* dcp, dcp-fsdp1, dcp-hf, torchtitan, hf-trainer-fsdp, accelerate-fsdp: the ranks of a mesh, "dp=2,tp=2", the slowest axis first; each has its
     * part of a parameter, and of the states of the optimizer that have its shape, in its own file. How an axis cuts is said by `cuts`,
     * or by the layout (its `ranks` of the target's side), whose axes get their sizes from the mesh. NULL: the layout's, else rows
     * for target_world. */
    const char *mesh;
    /* "GLOB=tp:0,dp:0": the parameters of these names, in the target, are cut along dimension 0 by tp, and what is left of that by dp;
     * "dp:none": not by dp. The first that has a name cuts it, before the layout's. Axes dp, fsdp and dp_shard that it does not name cut
     * the rows of what is left, and those of all other parameters where no layout says how. */
    const char *const *cuts;
    size_t cut_count;
    /* torch-dist, of a model with experts: how many expert parallel ranks the program that loads it has. Its optimizer has one form for one
     * of them, and another one for two or more; the tensors are the same for all. 0: as the source says, else for one. */
    uint32_t expert_parallel;
    bool
        layers_apart; /* torch-dist: each layer has keys of its own, as where megatron-core's moe_layer_freq is a list */
    bool
        no_optimizer; /* the tensors and groups of every optimizer stay behind ("left-out"); all else is kept. A list of
                                   * optimizers is empty then. A source without one is "unused-rule" */
} ckpt_migrate_options;
#define CKPT_MIGRATE_OPTIONS_INIT CKPT_SIZED(ckpt_migrate_options)

/* Rewrites the checkpoint src (a file or a directory, of any format that ckpt_reader_open reads) as dst. src is never
 * touched; dst appears whole under its name or not at all. Values that the target cannot hold are listed ("lost") before anything is
 * written, and are CKPT_E_UNSUPPORTED unless lossy. Payloads stream: memory does not grow with the checkpoint's size.
 *   A directory that was interrupted, by whatever, is gone on with by the next call that would write the same: finished files are read
 * back and kept ("journal-resumed"). Files that a call with other options has finished for dst stay, and this call is CKPT_E_EXISTS; files
 * left of another source are removed ("journal-stale"). After CKPT_E_CANCELLED and
 * CKPT_E_SYSTEM the finished files of a directory stay beside dst, where there are any, and the error says where ("journal-kept");
 * with no_resume nothing stays. ckpt-migrate(1), Interrupted, has the rules.
 *   options may be NULL. report may be NULL; it is cleared first, and says what was done (ckpt(3) lists the codes). With
 * salvage the call succeeds when something was not recovered: ckpt_report_count_code(report, "not-recovered").
 *   CKPT_E_EXISTS: dst is there, and force was not given; or an interrupted call of other options, which the message names, has finished
 * files for it, and no_resume was not given. CKPT_E_ARGUMENT: an option says nothing that can be done, or a rule
 * matches nothing ("unused-rule", each with a better one where there is one; allow_unused makes it a warning).
 * CKPT_E_MISMATCH: two tensors would have one name, or one storage two devices; or the target would give the optimizer's
 * states names, or a state is to go by its parameter's name (replace), and more than one order of its parameters fits
 * ("order-ambiguous": param_names tells it, or assume_order). CKPT_E_CANCELLED by progress. Else as ckpt_reader_open and
 * ckpt_reader_read. */
ckpt_status ckpt_migrate(const char *src, const char *dst, const ckpt_migrate_options *options, ckpt_report *report,
                         ckpt_error *err);

CKPT_END_DECLS
#endif
