/* migrate/migration.h - one migration, and the functions that the files of migrate call across each other.
 *
 *   migrate.c          the order of work: ckpt_migrate
 *   open.c             the source, formats and paths
 *   fix.c              --fix: options that mend findings of doctor
 *   torch.c            the structure of a torch file that a native file keeps (torch.h)
 *   recover.c          --salvage: damaged tensors stay behind
 *   salvage_objects.c  --salvage: values that need a damaged storage stay behind
 *   rank_state.c       --rank-state: what each rank has for itself (rank_state.h)
 *   rank_alike.c       --rank-state derive: do all ranks have the same?
 *   rank_edit.c        --rank-state: the tree and the rows without the others, under the names of one process
 *   plain.c            --plain: opaque objects become dicts, lists, strings and tensors
 *   plain_array.c      --plain: numpy arrays
 *   plain_keys.c       --plain: keys of dicts
 *   naming.c           canonical names of the source, and the parameters that its optimizer numbers
 *   select.c           --drop, --tensor, --role, --device: which tensors go along
 *   replace.c          --replace: tensors that stay behind, and keep their place in the optimizer
 *   weights.c          --weights-only and "hf": the model's weights alone
 *   adapter.c          --merge-adapter: the adapter's settings and keys (adapter.h)
 *   adapter_match.c    --merge-adapter: which tensors of the base it changes
 *   lora.c             --merge-adapter: the merged rows, computed as they are read
 *   script.c           modules of libtorch in C++ and of TorchScript become flat dicts
 *   libtorch.c         optimizers of libtorch in C++ become optimizers of torch in Python, by position
 *   groups.c           a torch target: a group for moments without one, one step a parameter
 *   layout.c           --layout: the tensors of one program become those of another (layout.h)
 *   layout_states.c    --layout: what belongs to each of them goes along
 *   layout_groups.c    --layout: the parameters of the optimizer's groups
 *   layout_pieces.c    --layout: tensors as pieces, and pieces as tensors
 *   ranks.c            --layout: files of ranks that it says how to put together
 *   names.c            --strip-prefix, --rename, --add-prefix
 *   rules.c            patterns of options, and patterns that match nothing (rules.h)
 *   ledger.c           what becomes of each tensor, and why; rows by their names (ledger.h)
 *   place.c            the target's index: names, roles, and what goes along (place.h)
 *   place_tags.c       its device tags
 *   own.c              its tensors with a storage of their own: converted, joined, cut out, turned, resolved
 *   cast.c             --cast: which tensors it names
 *   float4.c           dtypes that pack two values of four bits in a byte
 *   edit.c             another value tree, and tensors that are made: what the steps that change them share
 *   objects.c          torch.device objects among the values
 *   order.c            the optimizer's parameters in another order, dense ids (order.h)
 *   merge.c            several files as one tree
 *   flat.c             the tensors as one dict, {name: tensor}
 *   root.c             the target's value tree
 *   to_canonical.c     a torch file's tree under canonical names (to_canonical.h)
 *   keep_megatron.c    a checkpoint of megatron-core from a checkpoint of megatron-core
 *   leftovers.c        values of that tree that have no canonical name
 *   to_torch.c         canonical names as the tree of a torch file (torch.h)
 *   to_dcp.c           that tree as a distributed checkpoint of PyTorch, for any number of ranks
 *   to_torchtitan.c    and what torchtitan's trainer has otherwise there
 *   mesh.c             --mesh, --cut: how its tensors are cut for the ranks (mesh.h)
 *   mesh_cuts.c        which boxes that are, and whose
 *   stack.c            a torch-dist target: the layers and experts of a model as one tensor for each of their parameters (megatron.h)
 *   stack_layers.c     which layers it has, and whether they are kept apart
 *   to_megatron.c      that tree as a checkpoint of megatron-core (torch-dist)
 *   megatron_extras.c  what its modules keep beside their parameters
 *   megatron_optimizer.c  what common.pt says of its optimizer
 *   resume.c           what directories that training programs resume from want of tensors (resume.h)
 *   to_trainer.c       that tree as a checkpoint of the HF Trainer or of accelerate (trainer.h)
 *   to_trainer_shards.c  of their runs with FSDP2 and DeepSpeed
 *   trainer_beside.c   what stands beside the weights and the optimizer there
 *   to_universal.c     that tree as a universal checkpoint of DeepSpeed
 *   to_run.c           a run of this library, for any number of ranks (to_run.h)
 *   to_run_tags.c      the devices of its ranks, and reading it back
 *   shards.c           --shard: what each of its ranks has rows of (shards.h)
 *   to_llmc.c          a step of llm.c, for any number of ranks (to_llmc.h)
 *   to_llmc_ranks.c    what each of those has for itself
 *   out_files.c        the list of the target's files (out.h)
 *   out.c              writing a file, or a directory of shards (out.h)
 *   ties.c             names that a program ties by itself (out.h)
 *   turns.c            files that have ranges of the same tensors, by turns
 *   bytes.c            which bytes become which: the plan, and reading by it (out.h)
 *   bytes_slices.c     what conversions cost of tensors that files have in ranges
 *   bytes_kept.c       what of that another run has to know
 *   digest.c           is a migration the same as another one?
 *   digest_options.c   and which option is another?
 *   interrupted.c      going on with what an interrupted run has left, by its journal
 *   as_folder.c        --to same: a directory that its own program reads again
 *   same_shards.c      --to same: shards that stay away, and their index (same.h)
 *   copy.c             copying files byte for byte
 *   back.c             --verify: reading back
 *
 * The source's reader belongs to this call alone. Its value tree is never touched: each step that changes something makes
 * another tree of it (model/rewrite.h). */
#ifndef CKPT_MIGRATE_JOB_H
#define CKPT_MIGRATE_JOB_H
#include <ckpt/migrate.h>
#include "anatomy/canon.h"
#include "format/megatron/megatron.h"
#include "reader/reader.h"
#include "engine/recipe_write.h"
#include "anatomy/placement.h"
#include "format/table.h"
#include "io/sink.h"
#include "migrate/ledger.h"
#include "model/rewrite.h"
#include "model/training.h"
#include "model/value_path.h"

/* A file of the source that --rank-state leaves out of a directory, or calls otherwise there. Both in the arena of the source's index. */
typedef struct ckpt__rank_file_name {
    ckpt_str was, is; /* is: its name in the target, which may be the same; data NULL: it is left out */
} ckpt__rank_file_name;

/* A directory that a training program resumes from. Its tree is made from canonical names, whatever the source was. */
typedef enum ckpt__as {
    CKPT__AS_IS = 0,    /* none of these */
    CKPT__AS_DCP,       /* to_dcp.c */
    CKPT__AS_DCP_HF,    /* to_dcp.c: `hf` is true too, and `torch` is not */
    CKPT__AS_UNIVERSAL, /* to_universal.c */
    CKPT__AS_HF_TRAINER,
    CKPT__AS_ACCELERATE, /* to_trainer.c */
    CKPT__AS_HF_TRAINER_FSDP,
    CKPT__AS_ACCELERATE_FSDP,
    CKPT__AS_HF_TRAINER_DEEPSPEED,
    CKPT__AS_ACCELERATE_DEEPSPEED, /* to_trainer_shards.c */
    CKPT__AS_TORCH_DIST,           /* to_megatron.c */
    CKPT__AS_RUN,                  /* to_run.c: `torch` is not true */
    CKPT__AS_LLMC,                 /* to_llmc.c: `torch` is not true; of weights alone it is one file */
} ckpt__as;

/* A tensor of the target by the name that it is read back by. */
typedef struct ckpt__expected {
    ckpt_str name; /* in the arena of the target's index, or the source's */
    size_t tensor;
} ckpt__expected;

/* One call of ckpt_migrate. The struct exists because each step of the work reads what the steps before it found. It is
 * zeroed first, so an array below is NULL and a number is 0 until its step has run. migrate.c frees all of it.
 *
 * Two indexes meet here: `from` is the source's, `index` is the target's. Tensor i of `index` is tensor i of `from`,
 * and storage i of `index` is storage i of `from`, until all recipes are made and bytes.c lays the target out. A tensor that is left
 * out keeps its number. A tensor that cannot stay in its storage, or is split, views a new storage, and new storages
 * follow the source's. All arrays with one element a tensor are indexed by the tensor's number; only
 * `chosen` holds numbers.
 *
 * A worked example. torch.save wrote {'model': {'a': a, 'b': a[:, 3], 'c': c}}, where a is float32 of shape 3 x 4 and c
 * is one int64. The options are --to safetensors --drop c --cast b=bfloat16:
 *
 *                          tensor 0 (a)   tensor 1 (b)   tensor 2 (c)
 *     from    info.name    "model.a"      "model.b"      "model.c"
 *             storage      0              0              1                 two storages: 48 and 8 bytes
 *     row     fate         GOES           GOES           DROPPED
 *             entry        1 ("a")        2 ("b")        3 ("c")
 *             rule, cast   0, NONE        1, BF16        0, NONE
 *             own, dtype   NONE, NONE     CAST, BF16     NONE, NONE
 *     index   info.name    "a"            "b"            "model.c"
 *             storage      0              2              1                 three storages: 48, 8 and 6 bytes
 *
 *     chosen = {0, 1}, chosen_count = 2
 *
 * The view b is 3 elements of storage 0, 4 elements apart. Converted to 2 bytes an element b cannot stay there, so b
 * gets storage 2, of 3 * 2 = 6 bytes, in C order. Storage 1 has no tensor in `chosen`, and no byte of it is written. Laid out,
 * `index` has one storage of 54 bytes, with a at 0 and b at 48, as the file has them behind its header. */
typedef struct ckpt__migration {
    const char *src, *dst;        /* paths, the caller's */
    ckpt_migrate_options options; /* a copy; its strings and arrays are the caller's, or static where --fix set them */
    const char *to;               /* borrowed: "ckpt", "safetensors", "torch", "hf", ...; never "same" */
    const ckpt__format *format;   /* static: the format of each file that is written ("hf" writes safetensors) */
    bool torch, hf;               /* torch: `format` is torch's; hf: a directory of shards for transformers */
    bool same;                    /* --to same of a directory: each file in its own format; `torch` is true too */
    ckpt__as as;                  /* not AS_IS: `torch` is true too, as a rule */
    bool wholes;                  /* of AS_DCP: values without tensors are there whole, too (--to dcp-fsdp1) */
    bool torchtitan;              /* of AS_DCP: as torchtitan's trainer has it (--to torchtitan) */
    ckpt_error order_error;       /* status not CKPT_OK: more than one order of the optimizer's parameters fits. The
                                   * call fails with this error if a state of that optimizer goes along */
    bool order_stated;            /* --param-names is the order of the source, and not an order for the target */
    bool remade;                  /* named_script, and a torch target: the optimizer of libtorch in C++ becomes one of
                                   * torch's in Python */
    bool named_script;            /* the source has an optimizer of libtorch in C++, whose parameters' names are
                                   * known */
    ckpt_reader *reader;          /* owned, the source's. With --verify the reader, both indexes and canon are freed,
                                   * and NULL, before the target is read back (ckpt__migrate_forget_source) */
    ckpt__index *from;            /* the reader's. Its root becomes that of the tree as it was edited; some steps append
                                   * tensors, or give them other names */
    ckpt__edits *edits;           /* owned: what the values of the source's tree have become */
    bool tree;                    /* ckpt__has_tree of `from` once torch.c has opened it, or `same` */
    ckpt_map *map;                /* owned: --map-location; NULL: not given */
    ckpt__canon *canon;           /* owned: canonical names; its entries go before the first byte is written */
    ckpt__placement places;       /* where each tensor goes; empty again once place.c has read it */
    ckpt_optimizer_kind kind;     /* the options' or the map's; DEFAULT: neither asks for one */
    bool place;                   /* --fix asks for the placement policy, by the saved flags */
    bool fixes_prefix;            /* --fix asks for the wrappers' prefixes to go; a prefix that no name has is no
                                   * error */
    bool group_made;              /* no parameter group was bound, and groups.c made one */
    const ckpt_value *saved_groups;  /* with group_made: a list of the groups that the source has, which name no
                                   * parameters. NULL: it has none */
    struct ckpt__adapter *adapter;   /* owned: --merge-adapter; NULL: not given. It goes with the source */
    struct ckpt__followed *followed; /* owned: --layout, once it was followed (layout.h); NULL: not given */
    struct ckpt__meshed *meshed;     /* owned: the ranks of a target that is cut for several (mesh.h); NULL: not yet */
    ckpt__ledger ledger;             /* owned: a row a tensor of `from`, and of `index`: what becomes of it, and why */
    ckpt__index *index;              /* owned: the target's, with the numbers of `from`; NULL until place.c has run */
    size_t
        storages; /* of `from` that `index` has under their numbers; those behind are pieces of tensors, which `index`
                                     * has whole, in storages of its own */
    bool became_torch; /* a native source now has the tree, the names and the format of the torch file whose
                                   * structure it keeps (torch.c) */
    bool by_files;     /* with became_torch: that tree is a dict from the names of files to their contents */
    const char **kept_names;
    size_t kept_name_count; /* heap, strings in the arena of `from`: parameters in the order
                                                       * of the optimizer that the native source names. NULL: not
                                                       * asked */
    const ckpt_value *root; /* borrowed: the value tree that is written; NULL: none */
    ckpt__buf kept;         /* owned, native target: the pickle with the structure of the torch source, and `root`
                                   * points into it. data NULL: no structure is kept */
    ckpt__meg_model meg;    /* a torch-dist target of another source: its layers and experts */
    int64_t common_step;    /* likewise: the step that all parameters have; -1: none says it */
    size_t step_tensor;     /* likewise: it as a tensor of the source; SIZE_MAX: there is none */
    ckpt__rank_file_name *rank_files; /* in the arena of `from`; NULL: none */
    size_t rank_file_count;
    size_t *chosen, chosen_count; /* heap: numbers of the tensors that are written, in the order of the target's
                                   * files */
    ckpt__expected *expected;     /* heap: with `as`, what --verify looks for (ckpt__back_expect) */
    size_t expected_count, expected_capacity;
    size_t run_ranks; /* AS_RUN: of the target; 0: they are not known yet */
    int64_t run_step;
    ckpt_str *
        rank_tags; /* heap, AS_RUN with a map: device tags, those of all tensors for each rank; data NULL: as in `index` */
    ckpt_migrate_totals totals; /* where the options ask for them; they are given when all has gone well */
    uint64_t done, total;       /* bytes, for the progress callback; with --verify `total` counts each file twice */
    unsigned threads;           /* that the files were written by: as many read them back. 0: nothing is written yet */
    ckpt__sink *sink;           /* owned, --verify: all is written, and does not yet have the name dst. NULL: the
                                   * target has its name, or there is none */
    size_t finished;            /* files of the target's directory that are written, or were by an interrupted run */
    char *beside;               /* heap: the path where the target can be read until then; NULL: no --verify */
    ckpt_report *report, *lost; /* report: the caller's; the call's own where the caller gave none. lost: owned, all
                                   * that the target cannot hold; without --lossy one finding refuses the call */
    ckpt_report *unused;        /* owned: rules that matched nothing (rules.c) */
} ckpt__migration;

/* Is a directory written? */
static inline bool ckpt__is_folder(const ckpt__migration *m)
{
    return m->hf || m->same || (m->as && !(m->as == CKPT__AS_LLMC && m->options.weights_only));
}
/* Is a distributed checkpoint written, cut for any number of ranks? */
static inline bool ckpt__is_dcp(const ckpt__migration *m)
{
    return m->as == CKPT__AS_DCP || m->as == CKPT__AS_DCP_HF;
}
/* Is the source one, too? It keeps its own tree. */
static inline bool ckpt__keeps_dcp(const ckpt__migration *m)
{
    return m->as == CKPT__AS_DCP && m->tree && !m->options.layout &&
           ckpt__format_of(m->from)->sharded == CKPT__SHARDED_DCP && !m->options.weights_only;
}
/* Is a checkpoint of megatron-core written, cut for any number of ranks as well? */
static inline bool ckpt__is_torch_dist(const ckpt__migration *m)
{
    return m->as == CKPT__AS_TORCH_DIST;
}
/* Is the source one, too? It keeps its own keys and values. */
static inline bool ckpt__keeps_megatron(const ckpt__migration *m)
{
    return ckpt__is_torch_dist(m) && ckpt__format_of(m->from)->sharded == CKPT__SHARDED_TORCH_DIST;
}
/* Files of the HF Trainer or of accelerate, of one process: the target's tree is a dict from their names. */
static inline bool ckpt__is_trainers(const ckpt__migration *m)
{
    return m->as == CKPT__AS_HF_TRAINER || m->as == CKPT__AS_ACCELERATE;
}
/* The same of a run with FSDP2: weights and optimizer are distributed checkpoints, and the tree is a dict from names likewise. */
static inline bool ckpt__is_fsdps(const ckpt__migration *m)
{
    return m->as == CKPT__AS_HF_TRAINER_FSDP || m->as == CKPT__AS_ACCELERATE_FSDP;
}
static inline bool ckpt__is_accelerates(const ckpt__migration *m)
{
    return m->as == CKPT__AS_ACCELERATE || m->as == CKPT__AS_ACCELERATE_FSDP || m->as == CKPT__AS_ACCELERATE_DEEPSPEED;
}
/* A universal checkpoint of DeepSpeed, alone or as one of these two has it. */
static inline bool ckpt__is_universal(const ckpt__migration *m)
{
    return m->as == CKPT__AS_UNIVERSAL || m->as == CKPT__AS_HF_TRAINER_DEEPSPEED ||
           m->as == CKPT__AS_ACCELERATE_DEEPSPEED;
}
/* Does the target have its optimizer by position, as torch has it? */
static inline bool ckpt__matches_by_position(const ckpt__migration *m)
{
    return m->torch && !m->options.layout && (!m->as || ckpt__keeps_dcp(m) || ckpt__is_trainers(m));
}
/* Which parameters the optimizer's numbers are is not known, and the target's program matches by position as the source's does. */
static inline bool ckpt__by_position(const ckpt__migration *m)
{
    return ckpt__is_trainers(m) && m->tree && m->canon->group_count == 0 && m->canon->unnamed.data;
}
/* Are tensors left out as asked, by --drop, --no-optimizer, --tensor, --role or --device? */
static inline bool ckpt__selects(const ckpt__migration *m)
{
    const ckpt_migrate_options *o = &m->options;
    return o->drop_count || o->no_optimizer || o->only_tensor_count || o->only_role_count || o->only_device_count;
}
/* Is the tensor none of those that go along? */
static inline bool ckpt__stays_behind(const ckpt__migration *m, size_t tensor)
{
    ckpt__fate fate = m->ledger.rows[tensor].fate;
    return fate > CKPT__FATE_GOES && fate < CKPT__FATE_TIED;
}
/* Can its file not hold it, though it goes along? */
static inline bool ckpt__is_left_out(const ckpt__migration *m, size_t tensor)
{
    return m->ledger.rows[tensor].fate == CKPT__FATE_LOST;
}
/* The dtype of a tensor with a storage of its own; CKPT_DTYPE_NONE: it has none. */
static inline ckpt_dtype ckpt__own_dtype(const ckpt__migration *m, size_t tensor)
{
    return (ckpt_dtype)m->ledger.rows[tensor].dtype;
}
/* A tensor that goes along stays behind from now on; one that does not keeps its fate. With its parts, or alone. */
void ckpt__leave(ckpt__migration *m, size_t tensor, ckpt__fate fate);
static inline void ckpt__leave_one(ckpt__migration *m, size_t tensor, ckpt__fate fate)
{
    ckpt__row *row = &m->ledger.rows[tensor];
    row->fate = row->fate == CKPT__FATE_GOES ? (uint8_t)fate : row->fate;
}
/* Names of the source's tensors that are so (NULL: of all) -> their numbers; of several with one name the first. NULL: no memory. */
typedef bool ckpt__row_is(const ckpt__migration *m, size_t tensor);
ckpt__hash *ckpt__listed(const ckpt__migration *m, ckpt__row_is *is);
bool ckpt__goes_in_tree(const ckpt__migration *m, size_t tensor);
/* The tensor that the entry is listed as: a tie is listed under each of its names. */
size_t ckpt__listing(const ckpt__hash *listed, const ckpt__canon_entry *e);
/* The rows get their canonical names in the source: nobody knows the number that a parameter's state has in the file. */
void ckpt__call_rows(ckpt__migration *m, const ckpt__hash *listed);
/* The canonical name that a rule may use: in the source, and once there is the target's index, of what goes along there. A torch
 * target of a source with a tree writes the file's own name (place.c). data NULL: it has none. */
ckpt_str ckpt__canonical(const ckpt__migration *m, size_t tensor);
/* The whole of it, as messages show it: heap. NULL: memory is short. */
char *ckpt__migration_escaped(ckpt_str name);
/* A note, warning or error about a tensor or a path, whose whole name is escaped. */
ckpt_status ckpt__migration_note(ckpt__migration *m, ckpt_severity severity, const char *code, ckpt_str name,
                                 ckpt_error *err, const char *format, ...) CKPT__PRINTF(6, 7);
ckpt_status ckpt__migration_no_memory(ckpt_error *err);
/* The finding that was added last says what becomes of the tensor. */
void ckpt__migration_note_row(ckpt__migration *m, size_t tensor);

/* ---- edit.c: each makes another tree, and m->from->root and m->root are that then. A tree that was read is never touched. */

/* Where the source's ranks say how many they were, the target, which is whole, says one (one_rank.c). */
ckpt_status ckpt__migrate_one_rank(ckpt__migration *m, ckpt_error *err);
bool ckpt__migration_begin_edits(ckpt__migration *m); /* once; false: no memory */
/* Asks fn about every place of the target's tree; where there is none yet, of the source's (model/rewrite.h). */
ckpt_status ckpt__migration_rewrite(ckpt__migration *m, ckpt__rewrite_fn fn, void *ctx, ckpt_error *err);
/* For edits that are found otherwise: one value in place of another (NULL: no memory), wherever it stands; and the tree of all that
 * was noted. */
ckpt_status ckpt__migration_replace(ckpt__migration *m, const ckpt_value *value, const ckpt_value *by, ckpt_error *err);
ckpt_status ckpt__migration_apply(ckpt__migration *m, ckpt_error *err);
/* A copy of v with entries that can be changed, and room for so many more. NULL: no memory. */
ckpt_value *ckpt__migration_open_dict(ckpt__migration *m, const ckpt_value *v, size_t more, ckpt_entry **entries);
/* Every dict that dicts alone lead to from the root, each once. fn may put another in its place (*to), and says whether
 * what is below it is to be seen too. */
typedef ckpt_status (*ckpt__dict_fn)(void *ctx, const ckpt_value *dict, const ckpt_value **to, bool *below,
                                     ckpt_error *err);
ckpt_status ckpt__edit_dicts(ckpt__migration *m, ckpt__dict_fn fn, void *ctx, ckpt_error *err);

/* torch counts steps in a float32 of its own for each parameter: the source's last tensor is one from now on. name.data NULL: no
 * memory. */
ckpt_status ckpt__add_step(ckpt__migration *m, ckpt_str name, ckpt_str storage, int64_t step, ckpt_error *err);
/* The same, under its canonical name: entry *at is it from now on, or where *at is SIZE_MAX a new one, for which there is room. */
ckpt_status ckpt__make_step(ckpt__migration *m, ckpt_str param, int64_t step, size_t *at, ckpt_error *err);
/* Tensor `i` and its parts are the tensors [i, end). */
size_t ckpt__tensor_end(const ckpt__index *index, size_t i);
/* Has the tensor a name of its own, and no path in the value tree? */
bool ckpt__is_flat(const ckpt__index *index, size_t tensor);
/* The tree of a torch file (or of one below a directory), rather than names and values beside them. */
bool ckpt__has_tree(const ckpt__index *index);

/* ---- recover.c: --salvage, before canonical names */
ckpt_status ckpt__migrate_recover(ckpt__migration *m, ckpt_error *err);
/* Objects that need storage i go where whole[i] is false; why[i] says how much of it is there. */
ckpt_status ckpt__migrate_recover_closed(ckpt__migration *m, const bool *whole, const char *const *why,
                                         ckpt_error *err);

/* ---- rank_state.c: --rank-state, before canonical names; what is kept is said after the selection */
ckpt_status ckpt__migrate_ranks(ckpt__migration *m, ckpt_error *err);
ckpt_status ckpt__migrate_say_ranks(ckpt__migration *m, ckpt_error *err);

/* ---- select.c: says what stays behind, and takes what does not go along out of the tree */
ckpt_status ckpt__migrate_find_names(ckpt__migration *m, ckpt_error *err);
ckpt_status ckpt__migrate_check_order(ckpt__migration *m, ckpt_error *err);  /* after the selection: must its states
                                                                               * have names? */
ckpt_status ckpt__migrate_select(ckpt__migration *m, ckpt_error *err);       /* --drop, --tensor, --role, --device,
                                                                           * --replace: after */
ckpt_status ckpt__migrate_weights(ckpt__migration *m, ckpt_error *err);      /* --weights-only: after (weights.c) */
ckpt_status ckpt__migrate_second_names(ckpt__migration *m, ckpt_error *err); /* of tensors whose first name went: at
                                                                                * last */

/* ---- names.c: the tree and the canonical names */
ckpt_status ckpt__migrate_names(ckpt__migration *m, ckpt_error *err);

/* ---- place.c */
ckpt_status ckpt__migrate_place(ckpt__migration *m, ckpt_error *err);

/* ---- cast.c: which tensors --cast is about */
ckpt_status ckpt__migrate_find_ties(ckpt__migration *m, ckpt_error *err); /* while the tree has the names of the
                                                                                * listings */
ckpt_status ckpt__migrate_casts(ckpt__migration *m, ckpt_error *err);

/* ---- objects.c */
ckpt_status ckpt__migrate_device_objects(ckpt__migration *m, ckpt_error *err);

/* ---- plain.c: may add tensors to the source's index (numpy arrays) */
ckpt_status ckpt__migrate_plain(ckpt__migration *m, ckpt_error *err);
/* Does torch.load(weights_only=True) take the value itself (not what is in it)? */
bool ckpt__is_plain(const ckpt_value *v);
/* What an enum, a path or the like becomes; NULL: v is none. */
ckpt_status ckpt__plain_scalar(ckpt__arena *a, const ckpt_value *v, const ckpt_value **out, ckpt_error *err);

/* ---- plain_array.c: *v, a numpy array or scalar, in plain terms; may add a tensor */
ckpt_status ckpt__plain_array(ckpt__migration *m, ckpt_value *v, ckpt_str name, ckpt_error *err);

/* ---- plain_keys.c: *to is v with other keys; v itself where all may stay */
ckpt_status ckpt__plain_keys(ckpt__migration *m, const ckpt_value *v, ckpt_str name, const ckpt_value **to,
                             ckpt_error *err);

/* ---- flat.c: {name: tensor} of everything that goes along */
ckpt_status ckpt__migrate_flat(ckpt__migration *m, const ckpt_value **out, ckpt_error *err);

/* ---- adapter_match.c: --merge-adapter, when it is known what goes along */
ckpt_status ckpt__migrate_adapter(ckpt__migration *m, ckpt_error *err);

/* ---- script.c: archives of libtorch in C++ and of TorchScript */
/* Modules, which are dicts in dicts, become flat dicts in the source's tree. */
ckpt_status ckpt__migrate_flatten(ckpt__migration *m, ckpt_error *err);

/* ---- libtorch.c: for a torch target, optimizers of libtorch whose parameters have no names */
ckpt_status ckpt__migrate_libtorch(ckpt__migration *m, ckpt_error *err);

/* ---- order.c: the tree of a torch target */
ckpt_status ckpt__migrate_order(ckpt__migration *m, ckpt_error *err);       /* --param-names */
ckpt_status ckpt__migrate_torch_flags(ckpt__migration *m, ckpt_error *err); /* --optimizer: the groups' flags */

/* ---- merge.c: the tree of a directory for a torch target */
ckpt_status ckpt__migrate_merge(ckpt__migration *m, const ckpt_value **root, ckpt_error *err);
/* Weights alone are written, and the settings beside them (config.json) are said to stay behind. */
ckpt_status ckpt__migrate_say_settings(ckpt__migration *m, ckpt_error *err);

/* ---- open.c, root.c */
ckpt_status ckpt__migrate_open(ckpt__migration *m, ckpt_error *err);
ckpt_status ckpt__migrate_root(ckpt__migration *m, ckpt_error *err);

/* ---- to_dcp.c: m->root as a distributed checkpoint has it */
ckpt_status ckpt__migrate_dcp_root(ckpt__migration *m, ckpt_error *err);

/* ---- fix.c: --fix CODE, before anything else: sets options */
ckpt_status ckpt__migrate_fixes(ckpt__migration *m, ckpt_error *err);

/* ---- out.c, back.c */
ckpt_status ckpt__migrate_write(ckpt__migration *m, ckpt_error *err);        /* lost is known before the first byte */
ckpt_status ckpt__migrate_refuse(const ckpt__migration *m, ckpt_error *err); /* the report's errors, as one */
ckpt_status ckpt__migrate_read_back(ckpt__migration *m, ckpt_error *err);
/* The target is to have that tensor under the name; false: no memory. */
bool ckpt__back_expect(ckpt__migration *m, ckpt_str name, size_t tensor);
/* migrate.c: closes the source, and lets go of everything that was known of it and of the target. */
void ckpt__migrate_forget_source(ckpt__migration *m);
#endif
