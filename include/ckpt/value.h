/* ckpt/value.h - the value tree: everything in a checkpoint that is not a tensor's bytes. */
#ifndef CKPT_VALUE_H
#define CKPT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/tensor.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_kind {
    CKPT_V_NONE = 0, /* None, null */
    CKPT_V_BOOL,
    CKPT_V_INT,    /* fits int64 */
    CKPT_V_BIGINT, /* text: decimal, with '-' where negative */
    CKPT_V_FLOAT,
    CKPT_V_STR,   /* text: UTF-8 */
    CKPT_V_BYTES, /* text: the bytes */
    CKPT_V_BYTEARRAY,
    CKPT_V_LIST, /* items */
    CKPT_V_TUPLE,
    CKPT_V_DICT,   /* entries; class_name set where it is a subclass (collections.OrderedDict, ...) */
    CKPT_V_TENSOR, /* tensor: number of a tensor of the same reader */
    CKPT_V_ARRAY,  /* a numpy array or scalar: an opaque object whose dtype, shape and bytes are known: array */
    CKPT_V_CLASS,  /* a class, function, dtype, layout, ... named as itself: class_name */
    CKPT_V_OBJECT  /* opaque: class_name, args, state, items, entries; never built, never run */
} ckpt_kind;

typedef struct ckpt_value ckpt_value;

/* An entry of a dict. The struct never grows: values have arrays of it. */
typedef struct ckpt_entry {
    const ckpt_value *key; /* any hashable: str, int, bool, float, tuple, ... */
    const ckpt_value *value;
} ckpt_entry;

/* The properties of a numpy array; its bytes are the value's text. The library makes the struct; it may grow. */
typedef struct ckpt_array {
    ckpt_str dtype; /* numpy's string, "<f4" */
    const int64_t *shape;
    uint32_t ndim;
    bool fortran; /* in Fortran order */
} ckpt_array;

/* Read only; it lives as long as its reader. The library makes the struct; it may grow. The same pointer may occur in several
 * places: that is Python's identity, and cycles are possible. Walk with ckpt_value_walk, or guard your recursion. */
struct ckpt_value {
    ckpt_kind kind;
    bool boolean;
    union {              /* of other kinds it says nothing */
        int64_t integer; /* INT */
        double real;     /* FLOAT */
        size_t tensor;   /* TENSOR */
    };
    ckpt_str text; /* BIGINT STR BYTES BYTEARRAY; ARRAY: its bytes */
    const ckpt_value *const *items;
    size_t item_count; /* LIST TUPLE; OBJECT: list items or None */
    const ckpt_entry *entries;
    size_t entry_count;  /* DICT; OBJECT: dict items */
    ckpt_str class_name; /* DICT subclass, CLASS, OBJECT: "module.Class"; TENSOR of a class of its own */
    const ckpt_value
        *args; /* OBJECT: constructor's arguments (tuple), or NULL. TENSOR that is quantized: its quantizer:
                                   * (scheme, scale, zero point), by channel (scheme, scales, zero points, axis) */
    const ckpt_value *state; /* OBJECT, DICT, LIST: attributes (__dict__ or what BUILD got), or NULL */
    const ckpt_array *array; /* ARRAY, and an OBJECT that is a numpy scalar or an array of objects; else NULL */
    const void *origin;      /* what it was read from, where that was a pickle, for writing it again; NULL: none */
};

/* One call a node, in file order, parents first. `name` is the dotted key path. Nodes under opaque objects come with
 * inside true; a container that contains itself is visited once a path and then given with cycle true. A return other
 * than 0 stops the walk, and is returned. CKPT_E_LIMIT when the tree, with shared parts counted at each place, has
 * more than max_nodes nodes (0: 50 million). The library makes the struct; it may grow. */
typedef struct ckpt_visit {
    const ckpt_value *value;
    ckpt_str name;  /* valid during the call */
    ckpt_path path; /* valid during the call */
    bool inside, cycle;
    ckpt_str cycle_to; /* with cycle: the name of the ancestor */
} ckpt_visit;
typedef int (*ckpt_visit_fn)(void *ctx, const ckpt_visit *visit);
int ckpt_value_walk(const ckpt_value *root, uint64_t max_nodes, ckpt_visit_fn fn, void *ctx, ckpt_error *err);

/* The value at a key path as the walk names it, the first in file order: "optimizer.param_groups.0.lr",
 * "hyper_parameters.args.name". A key may hold dots itself ("model.fc.weight" finds what is at ['model']['fc.weight']).
 * "" is the root. Looks at the keys beside the path only. CKPT_E_NOT_FOUND says how far the path leads; CKPT_E_LIMIT;
 * CKPT_E_NO_MEMORY; *out is NULL then. */
ckpt_status ckpt_value_find(const ckpt_value *root, const char *path, const ckpt_value **out, ckpt_error *err);

/* The value at a string key of a dict (or of an opaque object's state or entries); NULL where there is none, where `dict`
 * is NULL or no dict, and where the key is an integer or anything but a string: of state {0: {...}} "0" is found by
 * ckpt_value_find. */
const ckpt_value *ckpt_value_get(const ckpt_value *dict, const char *key);

/* "dict", "int", "object", ...: the commands' word for it. */
const char *ckpt_kind_name(ckpt_kind kind);

CKPT_END_DECLS
#endif
