/* format/torch/torch.h - what the files of the torch format share.
 *
 *   torch.c          the archive: which one it is, its small records, the order of work
 *   storage.c  persistent ids -> storages of the index
 *   tensor.c   calls of torch's rebuild functions -> what they describe
 *   value.c    pickle nodes -> the value tree
 *   keys.c     keys that Python takes for one
 *   refuses.c  what torch.load raises on, though it can be read
 *   calls.c    rebuild calls that torch would not take, or that make another tensor than they seem to
 *   numpy.c    numpy's dtypes, arrays, scalars
 *   names.c    what classes are called; names of storages and dtypes
 *   dtensor.c  how a DTensor is laid out, in words
 *   shard.c    which part of a DTensor or ShardedTensor a rank has
 *   list.c     the value tree -> the tensors of the index, one for each key path
 *   role.c     what each of them is to training
 *   script.c   archives of libtorch in C++ and of TorchScript: their objects, roles and notes
 *   libtorch.c   optimizers of libtorch in the shape of torch.optim (libtorch.h)
 *   legacy.c   pickles that are no zip, recognised; the reads of the two formats
 *   legacy_read.c   the format before 1.6: its five pickles, and where its raw storages lie
 *   salvage.c  archives that are cut off or damaged
 *   twin.c     archives that have one pickle
 *   nested.c   storages that are whole files of that format inside a bytes value */
#ifndef CKPT_TORCH_PRIV_H
#define CKPT_TORCH_PRIV_H
#include "codec/pickle.h"
#include "codec/zip.h"
#include "format/format.h"
#include "format/shard.h"
#include "format/twins.h"

/* What a rebuild call describes: a tensor before it has a name. torch shares nodes, so one description may be listed under
 * several names. In t->specs, until the file is read; texts are in the arena of the index, shape and strides have ndim entries
 * there. */
typedef struct ckpt__torch_spec {
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;   /* NULL: a nested tensor has none */
    const int64_t *strides; /* NULL: not dense */
    int64_t offset;         /* elements into the storage */
    bool has_storage;       /* else meta, or not dense */
    size_t storage;         /* number in the index */
    ckpt_str device, layout, quantizer, class_name;
    bool requires_grad, conj, neg, is_buffer;
    const struct ckpt__torch_part *parts;
    size_t part_count;
    const ckpt__pickle_node *state; /* attributes, or NULL */
    const ckpt__pickle_node
        *shell; /* of a wrapper of tensors: its attributes, also where a parameter wraps it; else NULL */
    ckpt_str shell_class;
    const ckpt__pickle_node *quantizer_args;
} ckpt__torch_spec;

/* A TENSOR value, with what it was made of. */
typedef struct ckpt__torch_tensor {
    ckpt_value value;             /* first: a pointer to one is a pointer to the other */
    const ckpt__torch_spec *spec; /* while the file is read */
    bool listed;                  /* value.tensor is its number in the index */
} ckpt__torch_tensor;

typedef struct ckpt__torch_part {
    ckpt_str name;
    ckpt__torch_tensor *tensor;
} ckpt__torch_part;

/* What a persistent id says: ('storage', class, key, location, numel), and before 1.6 a sixth item: None, or (key,
 * offset, numel) of a view, which is a storage of its own inside the one that the rest describes. */
typedef struct ckpt__torch_id {
    const ckpt__pickle_node *storage_class;
    ckpt_str key, location; /* "0", "cuda:0"; location data NULL: None */
    int64_t numel;          /* elements of `dtype` */
    ckpt_dtype dtype;
    bool untyped;
    bool view;
    ckpt_str view_key;
    int64_t view_offset, view_numel; /* elements of `dtype`: of 100 from key 0 the view may be 20 from element 30 on */
} ckpt__torch_id;

/* Where a storage's bytes are. */
typedef struct ckpt__torch_place {
    ckpt__extent extent;
    ckpt_str name;                  /* for messages */
    const ckpt__zip_record *record; /* of a whole archive: extent.offset is set from it at the end; else NULL */
} ckpt__torch_place;

/* A storage that some persistent id named: its first id, because others of the same key must say the same. */
typedef struct ckpt__torch_storage {
    const ckpt__pickle_node *first;
    size_t number;                  /* in the index */
    const ckpt__zip_record *record; /* that of its place */
} ckpt__torch_storage;

/* A file of torch.save that lies within another one, or in memory. Borrowed while it is read. */
typedef struct ckpt__torch_window {
    ckpt_status (*read)(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err); /* from its first byte on */
    void *ctx;
    uint64_t size;      /* bytes */
    uint64_t begin;     /* of its first byte in the file: the extents count from there */
    const char *memory; /* all of it, kept for as long as the index: the extents are of memory. NULL: of the file */
    const char *label;  /* for messages */
} ckpt__torch_window;
/* Its index, which lies in request->arena where there is one. The request's file is that of the extents. */
ckpt_status ckpt__torch_read_window(const ckpt__read_request *request, const ckpt__torch_window *window,
                                    ckpt__index **out, ckpt_error *err);

/* One file while it is read. It lives for one read: the index alone stays (ckpt__torch_release frees all else). The work has
 * three steps: the pickle becomes nodes, the nodes become values and specs, the values with specs are listed as tensors. */
typedef struct ckpt__torch {
    ckpt__source *source;             /* borrowed */
    uint32_t file;                    /* of the source */
    const char *path;                 /* of the file, for messages */
    const ckpt__torch_window *window; /* what is read of the file; NULL: all of it */
    bool salvage;
    bool walked;        /* salvage: the archive's directory is lost, its records were found by their headers */
    bool pickle_unsure; /* then: no descriptor agrees with data.pkl as it lies there */
    size_t unconfirmed; /* then: storages of which that is so */
    const ckpt__zip_record *unconfirmed_first;
    ckpt__index *index;
    ckpt__arena *lent;  /* that the index of a window lies in; NULL: it has one of its own */
    ckpt__arena *arena; /* the index's */
    ckpt__arena *specs; /* of its tensors: until it is read */
    ckpt__zip *zip;
    ckpt__pickle pickle;
    ckpt_str root;     /* "archive": the records are archive/data.pkl, ... */
    char *full;        /* room for root, a slash and the name of a record (RECORD_NAME) */
    const char *label; /* "archive/data.pkl", for messages */
    bool big_endian;
    bool script;          /* an archive of libtorch in C++ or of TorchScript (it has constants.pkl) */
    bool any_grad;        /* script: some tensor requires a gradient, so that one which does not is a buffer */
    uint64_t pickle_at;   /* where the pickle begins, for messages: 0 for a record of an archive */
    ckpt__twins *twins;   /* borrowed; NULL: none are known */
    bool twin;            /* tensors and values are those of one of them */
    ckpt__buf own_pickle; /* that is to be kept with what was read; empty: it is not */
    struct ckpt__torch_legacy *legacy; /* the storages of a file before 1.6; neither it nor zip: there are none */
    struct ckpt__torch_nested *nested;
    size_t nested_count, nested_capacity;
    ckpt__hash *nested_by; /* the address of a node of bytes -> number in `nested` */
    int depth;             /* of files in files */
    size_t next_record;    /* of the archive: behind the one that was found last */
    ckpt__buf record_name; /* root/data/, and a key */
    uint32_t *by_record;   /* 1 + number in `storages`; 0: none yet */
    ckpt__hash *by_key;    /* storage key -> number in `storages`, where there is no record of it */
    ckpt__torch_storage *storages;
    size_t storage_count, storage_capacity;
    struct ckpt__torch_pair *pairs; /* of the dict that is looked at */
    size_t pair_capacity;
    ckpt__buf spelt; /* a key */
    const ckpt__pickle_node **work;
    size_t work_count, work_capacity; /* nodes whose values are to be filled, or have been */
    ckpt__torch_tensor **tensors;
    size_t tensor_count, tensor_capacity;
    const ckpt__index *kept; /* not a torch file: a pickle that a native file keeps (kept.c), and that file's index */
    bool refused;            /* a finding says why torch.load does not load the file; one is enough */
    struct ckpt__torch_roles *roles; /* what role.c remembers from one tensor to the next */
    ckpt__shard *last_shard;         /* of the index's; NULL: it has none yet */
    ckpt__hash *meshes;              /* owned: the address of a node -> its ckpt__mesh; NULL: none was met */
} ckpt__torch;

/* CKPT_E_FORMAT (or another): "byte N: <message>", about a node. */
ckpt_status ckpt__torch_fail(const ckpt__torch *t, ckpt_status status, const ckpt__pickle_node *node, ckpt_error *err,
                             const char *format, ...) CKPT__PRINTF(5, 6);
ckpt_status ckpt__torch_no_memory(const ckpt__torch *t, ckpt_error *err);
/* torch.load raises on the file, with weights_only=False too: the finding torch-refuses, with the first line of torch's error.
 * Only the first reason is kept, and none in what is no file of torch's. False: no memory. */
bool ckpt__torch_refuses(ckpt__torch *t, const char *format, ...) CKPT__PRINTF(2, 3);
/* The same of records, of what .storage_alignment holds, of a storage's tag. */
bool ckpt__torch_refuses_archive(ckpt__torch *t);
bool ckpt__torch_refuses_script(ckpt__torch *t);
bool ckpt__torch_refuses_alignment(ckpt__torch *t, ckpt_str alignment);
bool ckpt__torch_refuses_location(ckpt__torch *t, ckpt_str location);
/* A list or dict that is changed behind a call which took its content: an error. */
ckpt_status ckpt__torch_check_late(const ckpt__torch *t, ckpt_error *err);
bool ckpt__torch_check_ids(ckpt__torch *t); /* false: no memory */
/* Everything of t but its index. */
void ckpt__torch_release(ckpt__torch *t);

/* ---- names */
/* "module.Class" of a GLOBAL node, by the names that Python 3 uses today. data NULL: no memory. */
ckpt_str ckpt__torch_class(ckpt__torch *t, const ckpt__pickle_node *global);
/* FloatStorage -> float32, ...; false where it is no storage class. UntypedStorage: CKPT_U8 with *untyped. */
bool ckpt__torch_storage_dtype(const ckpt__pickle_node *global, ckpt_dtype *dtype, bool *untyped);
/* `torch float32` -> CKPT_F32; CKPT_DTYPE_NONE where it is none. */
ckpt_dtype ckpt__torch_dtype(const ckpt__pickle_node *global);

/* ---- looking at nodes */
/* Item i of a TUPLE or LIST; NULL where there is none. */
const ckpt__pickle_node *ckpt__torch_item(const ckpt__pickle_node *sequence, size_t i);
size_t ckpt__torch_length(const ckpt__pickle_node *sequence); /* 0 for what is no TUPLE or LIST */
/* The class of what a node would be: of an object what it calls, of a global itself. data NULL: neither. */
ckpt_str ckpt__torch_callable(ckpt__torch *t, const ckpt__pickle_node *node);
/* "module.Outer.Inner" of a GLOBAL, or of the getattr by which a class in a class is found; "(result of a call)" of others. */
ckpt_str ckpt__torch_path(ckpt__torch *t, const ckpt__pickle_node *node);
/* BYTES and BYTEARRAY as they are; a latin-1 str through _codecs.encode (how protocols 0 to 2 write bytes) decoded. */
bool ckpt__torch_bytes(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_str *out);

/* ---- storages */
/* The number of the storage that a node stands for: a persistent id, or a call of torch.storage._load_from_bytes. */
ckpt_status ckpt__torch_storage_of(ckpt__torch *t, const ckpt__pickle_node *node, size_t *number, ckpt_error *err);
/* What its class says of its elements; after ckpt__torch_storage_of. */
bool ckpt__torch_storage_type(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_dtype *dtype, bool *untyped);
ckpt_status ckpt__torch_parse_id(const ckpt__torch *t, const ckpt__pickle_node *persistent, ckpt__torch_id *out,
                                 ckpt_error *err);
/* Bytes that so many elements take; false where they overflow. */
bool ckpt__torch_storage_size(const ckpt__torch_id *id, int64_t numel, uint64_t *nbytes);
/* The class of ('module', class, path, source), which torch before 1.6 writes for the class of a module; else NULL. */
const ckpt__pickle_node *ckpt__torch_module(const ckpt__pickle_node *persistent);

/* The record data/<key>, or NULL; its name is t->record_name then. False: no memory. */
bool ckpt__torch_find_record(ckpt__torch *t, ckpt_str key, const ckpt__zip_record **out);

/* ---- archives that have one pickle (twin.c) */
/* Where one with this pickle was read before, the index is filled, and t->twin set. */
ckpt_status ckpt__torch_take_twin(ckpt__torch *t, const ckpt__buf *pickle, ckpt_error *err);
/* Is what was read the same for each archive with this pickle and such records? findings: how many there were before the pickle. */
bool ckpt__torch_may_be_twin(const ckpt__torch *t, size_t findings);

/* ---- the format before 1.6 */
/* Five pickles at `bytes`, of which `held` are there; with salvage they may end behind the fourth. The raw storages follow
 * in the same memory, or in t's file. Sets t->pickle and t->legacy; needs t->index. */
typedef struct ckpt__torch_legacy_input {
    const unsigned char *bytes;
    size_t held;
    bool memory;   /* the storages lie in `bytes` too */
    uint64_t size; /* of all of it */
} ckpt__torch_legacy_input;
ckpt_status ckpt__torch_legacy_open(ckpt__torch *t, const ckpt__torch_legacy_input *input, ckpt_error *err);
void ckpt__torch_legacy_free(struct ckpt__torch_legacy *legacy);
bool ckpt__torch_is_legacy(const unsigned char *head, size_t n);
ckpt_status ckpt__torch_legacy_place(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                     ckpt__torch_place *out, ckpt_error *err);

/* ---- salvage */
/* The archive's records without its directory, up to data.pkl; `status` is how opening it failed. */
ckpt_status ckpt__torch_salvage_open(ckpt__torch *t, const ckpt__zip_input *input, ckpt_status status, ckpt_error *err);
/* data.pkl must be whole; NULL: there is none. */
ckpt_status ckpt__torch_salvage_pickle(ckpt__torch *t, const ckpt__zip_record *pickle, ckpt_error *err);
/* The records behind data.pkl, with the sizes that t->pickle gives. */
ckpt_status ckpt__torch_salvage_rest(ckpt__torch *t, ckpt_error *err);
/* A small record that could not be read as it should be: without its CRC, or as if it were not there. */
ckpt_status ckpt__torch_salvage_record(ckpt__torch *t, const ckpt__zip_record *r, uint64_t limit, ckpt__buf *b,
                                       ckpt_error *err);
/* Where a storage of nbytes is in record r (NULL: none), in t's archive, and whether all of it is. */
void ckpt__torch_salvage_place(ckpt__torch *t, const ckpt__zip_record *r, uint64_t nbytes, ckpt__torch_place *out);
ckpt_status ckpt__torch_note_salvaged(ckpt__torch *t, ckpt_error *err);

/* ---- what a native file keeps */
ckpt_status ckpt__torch_kept_place(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                   ckpt__torch_place *out, ckpt_error *err);

/* ---- files in bytes */
bool ckpt__torch_is_nested(const ckpt__pickle_node *node);
typedef struct ckpt__torch_nested {
    bool good;
    ckpt__torch_id id;
    ckpt__torch_place place;
} ckpt__torch_nested;
/* Fills a new entry, or finds it; CKPT_E_FORMAT and the like where the bytes are no such file of one storage. */
ckpt_status ckpt__torch_nested_of(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__torch_nested **out,
                                  ckpt_error *err);

/* ---- tensors */
bool ckpt__torch_is_tensor(const ckpt__pickle_node *node);
/* Sets the spec of the node's value. */
ckpt_status ckpt__torch_tensor_of(ckpt__torch *t, const ckpt__pickle_node *node, ckpt__torch_tensor **out,
                                  ckpt_error *err);

/* "sparse_coo" for 1, ...: the numbers that libtorch's own pickler writes; NULL where it is none of a sparse layout. */
const char *ckpt__torch_layout_name(int64_t number);

/* A tensor class of torch itself: torch.Tensor, torch.FloatTensor, torch.nn.parameter.Parameter, ... */
bool ckpt__torch_is_tensor_class(const ckpt__pickle_node *callable);
/* The same of an object that is no tensor: its state, what it calls. */
bool ckpt__torch_check_build(ckpt__torch *t, ckpt_str class_name, const ckpt__pickle_node *state);
bool ckpt__torch_check_callable(ckpt__torch *t, const ckpt__pickle_object *object);
/* Do indices, values and size of a sparse tensor go together? */
bool ckpt__torch_check_sparse(ckpt__torch *t, const ckpt__torch_spec *indices, const ckpt__torch_spec *values,
                              size_t sizes);
bool ckpt__torch_no_parameter(ckpt__torch *t, const ckpt__pickle_node *object);
ckpt_status ckpt__torch_fail_class(const ckpt__torch *t, const ckpt__pickle_node *object,
                                   ckpt_error *err); /* one that is called */
/* calls.c: does torch take this call of a rebuild function (by its name), which describes *spec? What it raises on is a
 * finding. False: no memory. */
bool ckpt__torch_check_call(ckpt__torch *t, ckpt_str name, const ckpt__pickle_node *args, const ckpt__torch_spec *spec);
/* What nearly all calls are: six arguments of _rebuild_tensor_v2, three of _rebuild_parameter, and of a dtype that may require
 * a gradient. */
static inline bool ckpt__torch_usual_call(ckpt_dtype dtype, const ckpt__pickle_node *args, size_t count, size_t grad)
{
    const ckpt__pickle_node *flag = args->u.list.count == count ? args->u.list.items[grad] : NULL;
    const ckpt__pickle_node *hooks = flag ? args->u.list.items[count - 1] : NULL;
    return flag && flag->kind == CKPT__P_BOOL && (!flag->boolean || ckpt_dtype_is_float(dtype)) &&
           (hooks->kind != CKPT__P_OBJECT || (!hooks->u.object->state && hooks->u.object->args->u.list.count == 0 &&
                                              hooks->u.object->callable->kind == CKPT__P_GLOBAL));
}
/* "conj" and "neg" of the last argument, which torch applies where they are there, whatever their value. An error: what it is
 * cannot be told. */
ckpt_status ckpt__torch_lazy_bits(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__pickle_node *bits,
                                  ckpt__torch_spec *spec, ckpt_error *err);
/* A tensor's attributes, of which some replace its content: an error. */
ckpt_status ckpt__torch_check_state(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__pickle_node *state,
                                    ckpt_error *err);
/* What BUILD, SETITEM and APPEND do to a tensor: an error, but for the (requires_grad, volatile, hooks) of old parameters. */
ckpt_status ckpt__torch_check_object(ckpt__torch *t, const ckpt__pickle_node *node, bool old, ckpt_error *err);

/* ---- values */
ckpt_status ckpt__torch_values(ckpt__torch *t, ckpt_error *err); /* sets index->root */
/* The value of a node, made when first asked for and filled later; NULL: no memory. */
ckpt_value *ckpt__torch_value_of(ckpt__torch *t, const ckpt__pickle_node *node);
/* Its parts, for the handlers of single classes. False: no memory. */
bool ckpt__torch_set_items(ckpt__torch *t, ckpt_value *v, const ckpt__pickle_list *first,
                           const ckpt__pickle_list *then);
bool ckpt__torch_set_entries(ckpt__torch *t, ckpt_value *v, const ckpt__pickle_list *first,
                             const ckpt__pickle_list *then);

/* ---- keys (keys.c) */
/* The pairs of first and then as Python's dict keeps them: of keys that are equal (1, 1.0 and True are; so are two strs of the
 * same characters) the first stays, at its place, with the last value. entries has room for all; *n of them are left, as nodes.
 * False: no memory. */
typedef struct ckpt__torch_pair {
    const ckpt__pickle_node *key, *value;
} ckpt__torch_pair;
bool ckpt__torch_merge_keys(ckpt__torch *t, ckpt__torch_pair *pairs, size_t *n);

/* ---- numpy */
/* A numpy array: a matrix of float32 of shape 2 x 3 has dtype "<f4", kind 'f', itemsize 4, ndim 2, and 24 bytes. */
typedef struct ckpt__torch_array {
    ckpt_str dtype; /* "<f4" */
    char kind;      /* numpy's: f i u b c S U V M m O */
    uint64_t itemsize;
    bool object, fortran;
    uint32_t ndim;
    const int64_t *shape;             /* ndim sizes, in the arena */
    ckpt_str bytes;                   /* borrowed from the pickle; of an object array none */
    const ckpt__pickle_node *objects; /* of an object array: a LIST */
} ckpt__torch_array;
/* Is node a numpy array or scalar whose bytes are all there? */
bool ckpt__torch_array_of(ckpt__torch *t, const ckpt__pickle_node *node, ckpt__torch_array *out, bool *scalar);
/* "numpy.float32" and "numpy.dtypes.Float32DType"; data NULL where numpy has no such class. */
ckpt_str ckpt__torch_scalar_class(ckpt__torch *t, char kind, uint64_t itemsize);
ckpt_str ckpt__torch_dtype_class(ckpt__torch *t, const ckpt__pickle_node *dtype);

/* ---- libtorch in C++ and TorchScript */
/* An object of a class of TorchScript; and its value, class_name, items and entries being set. */
bool ckpt__torch_is_script(const ckpt__pickle_node *node);
bool ckpt__torch_script_object(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v);
/* A call of torch.jit._pickle that says the type of a list or dict: that list or dict; NULL where it is none. And the
 * handler that makes its value. */
const ckpt__pickle_node *ckpt__torch_untagged(const ckpt__pickle_node *node);
bool ckpt__torch_typed(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v);
/* Optimizers: the number in "param_groups/3" and "params/3"; the role of "exp_average_buffers/3" (before 1.5). */
bool ckpt__torch_old_optimizer(const ckpt_value *parent, ckpt_tensor_info *info);
bool ckpt__torch_any_grad(const ckpt__torch *t);
/* What such an archive holds besides, as findings. */
ckpt_status ckpt__torch_note_script(ckpt__torch *t, ckpt_error *err);

/* ---- DTensor: "Shard(dim=0)", "dp: Shard(dim=0), tp: Replicate()"; data NULL where the attributes are not those of one.
 * False: no memory. */
bool ckpt__torch_placements(ckpt__torch *t, const ckpt__pickle_node *state, ckpt_str *out);
/* What a state says of a name, being a dict or (dict or None, slots); what an object's state says. NULL: nothing. */
const ckpt__pickle_node *ckpt__torch_said(const ckpt__pickle_node *state, const char *name);
const ckpt__pickle_node *ckpt__torch_attribute(const ckpt__pickle_node *object, const char *name);
/* shard.c: notes in the index what rank's part of a tensor it is, where it is a DTensor or a ShardedTensor. False: no memory. */
bool ckpt__torch_note_shard(ckpt__torch *t, const ckpt__torch_spec *spec, size_t tensor);

/* ---- listing */
ckpt_status ckpt__torch_list(ckpt__torch *t, ckpt_error *err);
/* Sets info.role, state_key, group and param. containers[i] is the value at path.keys[0..i), the root first. False: no
 * memory. */
bool ckpt__torch_set_role(ckpt__torch *t, const ckpt__torch_spec *spec, const ckpt_value *const *containers,
                          ckpt_tensor_info *info);
void ckpt__torch_roles_free(ckpt__torch *t);

#endif
