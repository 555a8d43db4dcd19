/* format/torch_priv.h - what the files of the torch format share.
 *
 *   torch.c          the archive: which one it is, its small records, the order of work
 *   torch_storage.c  persistent ids -> storages of the index
 *   torch_tensor.c   calls of torch's rebuild functions -> what they describe
 *   torch_value.c    pickle nodes -> the value tree
 *   torch_numpy.c    numpy's dtypes, arrays, scalars
 *   torch_names.c    what classes are called; names of storages and dtypes
 *   torch_list.c     the value tree -> the tensors of the index, one for each key path
 *   torch_role.c     what each of them is to training
 *   torch_legacy.c   the formats before 1.6, recognised and named */
#ifndef CKPT_TORCH_PRIV_H
#define CKPT_TORCH_PRIV_H
#include "codec/pickle.h"
#include "codec/zip.h"
#include "format/format.h"

typedef ckpt__pickle_node ckpt__node;

/* What a rebuild call describes; shape and strides have ndim entries in the arena. */
typedef struct ckpt__torch_spec {
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;   /* NULL: a nested tensor has none */
    const int64_t *strides; /* NULL: not dense */
    int64_t offset;
    bool has_storage; /* else meta, or not dense */
    size_t storage;   /* number in the index */
    ckpt_str device, layout, quantizer, class_name;
    bool requires_grad, conj, neg, is_buffer;
    const struct ckpt__torch_part *parts;
    size_t part_count;
    const ckpt__node *state; /* attributes, or NULL */
    const ckpt__node *quantizer_args;
} ckpt__torch_spec;

/* A TENSOR value, with what it was made of. */
typedef struct ckpt__torch_tensor {
    ckpt_value value; /* first: a pointer to one is a pointer to the other */
    const ckpt__torch_spec *spec;
    bool listed; /* value.tensor is its number in the index */
} ckpt__torch_tensor;

typedef struct ckpt__torch_part {
    ckpt_str name;
    ckpt__torch_tensor *tensor;
} ckpt__torch_part;

/* What a persistent id said; the same key must always say the same. */
typedef struct ckpt__torch_storage {
    ckpt_str class_name, location;
    int64_t numel;
    size_t number; /* in the index */
} ckpt__torch_storage;

typedef struct ckpt__torch {
    ckpt__source *source;
    uint32_t file;      /* of the source */
    const char *path;   /* of the file, for messages */
    bool salvage;
    ckpt__index *index;
    ckpt__arena *arena; /* the index's */
    ckpt__zip *zip;
    ckpt__pickle pickle;
    ckpt_str root;     /* "archive": the records are archive/data.pkl, ... */
    char *full;        /* room for root, a slash and the name of a record (RECORD_NAME) */
    const char *label; /* "archive/data.pkl", for messages */
    bool big_endian;
    ckpt__hash *by_key; /* storage key -> number in `storages` */
    ckpt__torch_storage *storages;
    size_t storage_count, storage_capacity;
    const ckpt__node **work;
    size_t work_count, work_capacity; /* nodes whose values are to be filled */
    ckpt__torch_tensor **tensors;
    size_t tensor_count, tensor_capacity;
    struct ckpt__torch_roles *roles; /* what torch_role.c remembers from one tensor to the next */
} ckpt__torch;

/* CKPT_E_FORMAT (or another): "byte N: <message>", about a node. */
ckpt_status ckpt__torch_fail(const ckpt__torch *t, ckpt_status status, const ckpt__node *node, ckpt_error *err,
                             const char *format, ...) CKPT__PRINTF(5, 6);
ckpt_status ckpt__torch_no_memory(const ckpt__torch *t, ckpt_error *err);

/* ---- names */
/* "module.Class" of a GLOBAL node, by the names that Python 3 uses today. data NULL: no memory. */
ckpt_str ckpt__torch_class(ckpt__torch *t, const ckpt__node *global);
/* FloatStorage -> float32, ...; false where it is no storage class. UntypedStorage: CKPT_U8 with *untyped. */
bool ckpt__torch_storage_dtype(const ckpt__node *global, ckpt_dtype *dtype, bool *untyped);
/* `torch float32` -> CKPT_F32; CKPT_DTYPE_NONE where it is none. */
ckpt_dtype ckpt__torch_dtype(const ckpt__node *global);

/* ---- looking at nodes */
/* Item i of a TUPLE or LIST; NULL where there is none. */
const ckpt__node *ckpt__torch_item(const ckpt__node *sequence, size_t i);
size_t ckpt__torch_length(const ckpt__node *sequence); /* 0 for what is no TUPLE or LIST */
/* The class of what a node would be: of an object what it calls, of a global itself. data NULL: neither. */
ckpt_str ckpt__torch_callable(ckpt__torch *t, const ckpt__node *node);
/* BYTES and BYTEARRAY as they are; a latin-1 str through _codecs.encode (how protocols 0 to 2 write bytes) decoded. */
bool ckpt__torch_bytes(ckpt__torch *t, const ckpt__node *node, ckpt_str *out);

/* ---- storages */
ckpt_status ckpt__torch_storage_of(ckpt__torch *t, const ckpt__node *persistent, size_t *number, ckpt_error *err);

/* ---- tensors */
bool ckpt__torch_is_tensor(const ckpt__node *node);
/* Sets the spec of the node's value. */
ckpt_status ckpt__torch_tensor_of(ckpt__torch *t, const ckpt__node *node, ckpt__torch_tensor **out, ckpt_error *err);

/* ---- values */
ckpt_status ckpt__torch_values(ckpt__torch *t, ckpt_error *err); /* sets index->root */
/* The value of a node, made when first asked for and filled later; NULL: no memory. */
ckpt_value *ckpt__torch_value_of(ckpt__torch *t, const ckpt__node *node);
/* Its parts, for the handlers of single classes. False: no memory. */
bool ckpt__torch_set_items(ckpt__torch *t, ckpt_value *v, const ckpt__pickle_list *first,
                           const ckpt__pickle_list *then);
bool ckpt__torch_set_entries(ckpt__torch *t, ckpt_value *v, const ckpt__pickle_list *first,
                             const ckpt__pickle_list *then);

/* ---- numpy */
typedef struct ckpt__torch_array {
    ckpt_str dtype; /* "<f4" */
    char kind;      /* numpy's: f i u b c S U V M m O */
    uint64_t itemsize;
    bool object, fortran;
    uint32_t ndim;
    const int64_t *shape;
    ckpt_str bytes;
    const ckpt__node *objects; /* of an object array: a LIST */
} ckpt__torch_array;
/* Is node a numpy array or scalar whose bytes are all there? */
bool ckpt__torch_array_of(ckpt__torch *t, const ckpt__node *node, ckpt__torch_array *out, bool *scalar);
/* "numpy.float32" and "numpy.dtypes.Float32DType"; data NULL where numpy has no such class. */
ckpt_str ckpt__torch_scalar_class(ckpt__torch *t, char kind, uint64_t itemsize);
ckpt_str ckpt__torch_dtype_class(ckpt__torch *t, const ckpt__node *dtype);

/* ---- listing */
ckpt_status ckpt__torch_list(ckpt__torch *t, ckpt_error *err);
/* Sets info.role, state_key, group and param. containers[i] is the value at path.keys[0..i), the root first. False: no
 * memory. */
bool ckpt__torch_set_role(ckpt__torch *t, const ckpt__torch_spec *spec, const ckpt_value *const *containers,
                          ckpt_tensor_info *info);
void ckpt__torch_roles_free(ckpt__torch *t);

#endif
