/* migrate/migration.h - what the files of migrate share.
 *
 *   migrate.c          the order of work
 *   edit.c     the value tree in place: visiting, taking out
 *   select.c   which tensors go along: drop, selection; replace.c: what is left out and keeps its place
 *   weights.c  the model's weights alone, and which ones stay behind; recover.c: what was not recovered
 *   rules.c    patterns, and those that match nothing
 *   naming.c   canonical names of the source; whose states its optimizer numbers
 *   names.c    strip, rename, add a prefix
 *   place.c    the target's index: names, device tags, dtypes
 *   cast.c     which tensors a cast names; float4.c: values of four bits
 *   objects.c  torch.device objects among the values
 *   plain.c    opaque objects as dicts, lists and strings; plain_keys.c: their keys
 *   order.c    the optimizer's parameters in another order; ids dense again
 *   merge.c    several files as one tree
 *   flat.c     tensors under their names, as one dict
 *   script.c   modules of libtorch in C++ and of TorchScript, flat
 *   libtorch.c optimizers of libtorch in C++, by position, as those of Python
 *   to_canonical.c     a torch file's tree under canonical names
 *   leftovers.c     what of it has none
 *   groups.c   a group for moments that have none, and their steps, for torch
 *   fix.c      findings of doctor that a rewrite mends
 *   out.c      writing a file or a directory
 *   as_folder.c     a directory whose own program reads it again; which files go along
 *   copy.c     copying those
 *   back.c     reading back
 *
 * Source and target share the numbers of tensors and storages, so payloads are read by the source's. The source's reader
 * is this call's own, and its tree is edited in place: canonical names are given first, and change with it. */
#ifndef CKPT_MIGRATE_JOB_H
#define CKPT_MIGRATE_JOB_H
#include <ckpt/migrate.h>
#include "anatomy/canon.h"
#include "engine/engine.h"
#include "anatomy/placement.h"
#include "io/sink.h"

typedef struct ckpt__mover {
    const char *src, *dst;
    ckpt_migrate_options options;
    const char *to;               /* "ckpt", "safetensors", "torch", "hf" */
    const ckpt__format *format;   /* of each file that is written */
    bool torch, hf;
    bool same;                    /* a directory, each file in its own format; `torch` holds too */
    ckpt_error order_error;       /* status not CKPT_OK: more than one order fits, an error if the optimizer goes along */
    bool order_stated;            /* --param-names is the order that the source has, and not another */
    bool remade;                  /* for torch, the optimizer of libtorch in C++ becomes one of torch's in Python */
    bool named_script;            /* it has an optimizer of libtorch in C++ whose parameters' names are known */
    ckpt_reader *reader;
    ckpt__index *from;            /* the reader's */
    bool tree;                    /* ckpt__has_tree of it */
    ckpt_map *map;
    ckpt__canon *canon;
    ckpt__placement places;
    ckpt_optimizer_kind kind;     /* asked for by options or map; DEFAULT: not */
    bool place;                   /* --fix asks for the placement policy, by the saved flags */
    bool fixes_prefix;            /* --fix asks for the wrappers' prefixes to go, where there are any */
    bool *dropped;                /* per tensor of `from`: it does not go along */
    size_t no_weights;            /* how many of them are none of the model's weights, where those alone are wanted */
    bool group_made;              /* no parameter group was bound, and one was made (groups.c) */
    bool holes;                   /* deques have places that go (edit.c) */
    bool lost_some;               /* some of them because they were not recovered */
    bool *cut_out; size_t cut_count;     /* per tensor that was read: recovered from a storage that is not whole, so it
                                          * gets one of its own */
    ckpt__index *index;           /* the target's */
    const int64_t **strides; size_t stride_count;     /* per tensor that was read: those that it had in a torch file, of
                                   * which a native file keeps the structure; NULL: C order, as it is stored */
    bool became_torch;            /* it is read as the torch file of which it keeps the structure, */
    bool by_files;                /* or as the directory of files */
    const char **kept_names; size_t kept_name_count;  /* then: the parameters in its optimizer's order */
    ckpt_str *canonical;          /* per tensor: its canonical name; a torch target keeps the file's own */
    ckpt_dtype *casts;            /* per tensor: NONE as saved */
    ckpt_str *first_names;        /* with casts, per tensor that was read: its canonical name before --rename and the like */
    size_t *one_of;               /* with casts, per tensor that was read: that of which it is another name, itself else */
    size_t read_count;            /* entries of these two; tensors from there on were made (the steps of libtorch's optimizers) */
    const ckpt_value *root;       /* the tree that is written; NULL: none */
    ckpt__buf kept;               /* in it, for a native target: the structure of the torch file that it is made from */
    size_t *chosen, chosen_count; /* the tensors that are written */
    uint64_t done, total;         /* bytes, for the progress callback */
    ckpt__sink *sink;             /* --verify: settled and not published; NULL: it has its name, or there is none */
    char *beside;                 /* heap: where that can be read */
    ckpt_report *report, *lost;
    ckpt_report *unused;          /* rules that matched nothing (rules.c) */
} ckpt__mover;

/* A note, warning or error about a tensor or a path, whose name is escaped. */
ckpt_status ckpt__mover_note(ckpt__mover *m, ckpt_severity severity, const char *code, ckpt_str name, ckpt_error *err,
                             const char *format, ...) CKPT__PRINTF(6, 7);
ckpt_status ckpt__mover_no_memory(ckpt_error *err);

/* ---- edit.c */

/* One place of the tree that holds a value. `dict` is the value whose entries[] it is in (a dict, or the attributes of
 * an object); NULL: an item of a list or tuple, or something of an opaque object. */
typedef struct ckpt__spot {
    const ckpt_visit *visit;
    const ckpt_value *parent;     /* NULL: the root */
    const ckpt_value **slot;      /* NULL: the root, or what is no place of its own */
    ckpt_value *dict;
} ckpt__spot;
typedef int (*ckpt__spot_fn)(void *ctx, const ckpt__spot *spot);
/* ckpt_value_walk, with the places; what hangs below a place may be exchanged, the place itself not during the walk. */
ckpt_status ckpt__edit_walk(const ckpt_value *root, ckpt__spot_fn fn, void *ctx, ckpt_error *err);

/* Places to take out once the walk is over: entries go, items of lists become None, those of a deque a hole, which is None
 * until it is closed: names stay what they were. All zero is empty. */
typedef struct ckpt__cuts {
    struct ckpt__cut *items;
    size_t count, capacity;
} ckpt__cuts;
bool ckpt__cuts_add(ckpt__cuts *cuts, const ckpt__spot *spot);
bool ckpt__cuts_apply(ckpt__cuts *cuts);     /* are there holes now? */
ckpt_status ckpt__edit_close_holes(const ckpt_value *root, ckpt_error *err);
void ckpt__cuts_free(ckpt__cuts *cuts);

/* A set of pointers. */
typedef struct ckpt__seen {
    const void **slots;
    size_t count, mask;
} ckpt__seen;
int ckpt__seen_add(ckpt__seen *seen, const void *p);      /* 1: new, 0: it was there, -1: no memory */
bool ckpt__seen_has(const ckpt__seen *seen, const void *p);
void ckpt__seen_free(ckpt__seen *seen);

/* Every dict that dicts alone lead to from the root, each once. fn may change it, and says whether what is below it is to be
 * seen too. */
typedef ckpt_status (*ckpt__dict_fn)(void *ctx, ckpt_value *dict, bool *below, ckpt_error *err);
ckpt_status ckpt__edit_dicts(const ckpt_value *root, ckpt__dict_fn fn, void *ctx, ckpt_error *err);

/* A dict of tensors under string keys: a state_dict by its structure (its own entries, not those below). */
bool ckpt__is_state_dict(const ckpt__index *index, const ckpt_value *v);
/* {'state': {...}, 'param_groups': [...]} */
bool ckpt__is_optimizer_dict(const ckpt_value *v);
/* The value at a dotted path; keys may hold dots. NULL: nothing there. */
const ckpt_value *ckpt__value_at(const ckpt_value *root, ckpt_str path);
/* The entry of a dict with this string key; NULL: none. The entries of trees that migrate edits are its own. */
ckpt_entry *ckpt__entry_of(const ckpt_value *dict, const char *key);
/* Tensor `i` and its parts are the tensors [i, end). */
size_t ckpt__tensor_end(const ckpt__index *index, size_t i);
/* Has the tensor a name of its own, and no path in the value tree? */
bool ckpt__is_flat(const ckpt__index *index, size_t tensor);
/* The tree of a torch file (or of one below a directory), rather than names and values beside them. */
bool ckpt__has_tree(const ckpt__index *index);

/* A tensor's parts go with it. */
void ckpt__mover_drop(ckpt__mover *m, size_t tensor);

/* ---- recover.c: --salvage, before canonical names */
ckpt_status ckpt__migrate_recover(ckpt__mover *m, ckpt_error *err);
/* Objects that need storage i go where whole[i] is false; why[i] says how much of it is there. */
ckpt_status ckpt__migrate_recover_closed(ckpt__mover *m, const bool *whole, const char *const *why, ckpt_error *err);

/* ---- select.c: sets m->dropped, and takes what does not go along out of the tree */
ckpt_status ckpt__migrate_find_names(ckpt__mover *m, ckpt_error *err);
ckpt_status ckpt__migrate_check_order(ckpt__mover *m, ckpt_error *err);   /* after the selection: must its states have names? */
ckpt_status ckpt__migrate_select(ckpt__mover *m, ckpt_error *err);    /* --drop, --tensor, --role, --device, --replace: after */
ckpt_status ckpt__migrate_weights(ckpt__mover *m, ckpt_error *err);   /* --weights-only: after (weights.c) */
ckpt_status ckpt__migrate_second_names(ckpt__mover *m, ckpt_error *err);   /* of tensors whose first name went: at last */

/* ---- names.c: the tree and the canonical names */
ckpt_status ckpt__migrate_names(ckpt__mover *m, ckpt_error *err);

/* ---- place.c */
bool ckpt__same_view(const ckpt__tensor *a, const ckpt__tensor *b);      /* of one storage, and of one piece each */
ckpt_status ckpt__migrate_place(ckpt__mover *m, ckpt_error *err);
ckpt_status ckpt__migrate_float4(ckpt__mover *m, ckpt_error *err);       /* float4.c */

/* ---- cast.c: the casts that --cast names, by `kinds[i]`: the role of tensor i by canonical names. */
ckpt_status ckpt__migrate_find_ties(ckpt__mover *m, ckpt_error *err);      /* while the tree has the names of the listings */
ckpt_status ckpt__migrate_casts(ckpt__mover *m, ckpt_dtype *out, ckpt_error *err);

/* ---- objects.c */
ckpt_status ckpt__migrate_device_objects(ckpt__mover *m, ckpt_error *err);

/* ---- plain.c: may add tensors to the source's index (numpy arrays) */
ckpt_status ckpt__migrate_plain(ckpt__mover *m, ckpt_error *err);
/* Does torch.load(weights_only=True) take the value itself (not what is in it)? */
bool ckpt__is_plain(const ckpt_value *v);
/* What an enum, a path or the like becomes; NULL: v is none. */
ckpt_status ckpt__plain_scalar(ckpt__arena *a, const ckpt_value *v, const ckpt_value **out, ckpt_error *err);

/* ---- plain_keys.c: the keys of v's entries */
ckpt_status ckpt__plain_keys(ckpt__mover *m, const ckpt_value *v, ckpt_str name, ckpt_error *err);

/* ---- flat.c: {name: tensor} of everything that goes along */
ckpt_status ckpt__migrate_flat(ckpt__mover *m, const ckpt_value **out, ckpt_error *err);

/* ---- script.c: archives of libtorch in C++ and of TorchScript */
/* Modules, which are dicts in dicts, become flat dicts in the source's tree. */
ckpt_status ckpt__migrate_flatten(ckpt__mover *m, ckpt_error *err);
/* An optimizer of libtorch: no names of parameters are in it. */
bool ckpt__is_script_optimizer(const ckpt_value *v);

/* ---- libtorch.c: for a torch target, optimizers of libtorch whose parameters have no names */
ckpt_status ckpt__migrate_libtorch(ckpt__mover *m, ckpt_error *err);

/* ---- order.c: the tree of a torch target */
ckpt_status ckpt__migrate_order(ckpt__mover *m, ckpt_error *err);     /* --param-names */
ckpt_status ckpt__migrate_torch_flags(ckpt__mover *m, ckpt_error *err);   /* --optimizer: the groups' flags */

/* ---- merge.c: the tree of a directory for a torch target */
ckpt_status ckpt__migrate_merge(ckpt__mover *m, const ckpt_value **root, ckpt_error *err);
/* Weights alone are written, and the settings beside them (config.json) are said to stay behind. */
ckpt_status ckpt__migrate_say_settings(ckpt__mover *m, ckpt_error *err);

/* ---- fix.c: --fix CODE, before anything else: sets options */
ckpt_status ckpt__migrate_fixes(ckpt__mover *m, ckpt_error *err);

/* ---- out.c, back.c */
ckpt_status ckpt__migrate_write(ckpt__mover *m, ckpt_error *err);     /* lost is known before the first byte */
ckpt_status ckpt__migrate_refuse(const ckpt__mover *m, ckpt_error *err);   /* the report's errors, as one */
ckpt_status ckpt__migrate_read_back(ckpt__mover *m, ckpt_error *err);
/* migrate.c: closes the source, and lets go of everything that was known of it and of the target. */
void ckpt__migrate_forget_source(ckpt__mover *m);
/* merge.c: the key that a file of a directory gets where all become one dict: "rng" of "rng_state.pth". */
void ckpt__merge_key(ckpt_str file, char *out, size_t size);
#endif
