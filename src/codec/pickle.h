/* codec/pickle.h - reads Python pickles, protocols 0 to 5, as data. Nothing is imported, called or built: a global is
 * its two names, a call is a record of what would have been called with what, and a persistent id is the id.
 * The opcodes are those of Lib/pickletools.py.
 *
 * Nodes lie in the caller's arena, and the graph keeps Python's identity: an object that is fetched from the memo is
 * the same node, so it may occur in several places, and cycles are possible. Nothing here recurses on the input; memory
 * is bounded by a constant times the pickle's size. */
#ifndef CKPT_PICKLE_H
#define CKPT_PICKLE_H
#include "base/base.h"

typedef enum ckpt__pickle_kind {
    CKPT__P_NONE,
    CKPT__P_BOOL,
    CKPT__P_INT,    /* fits int64 */
    CKPT__P_BIGINT, /* text: decimal, with '-' where negative */
    CKPT__P_FLOAT,
    CKPT__P_STR, /* text: UTF-8; lone surrogates as Python's surrogatepass encodes them */
    CKPT__P_BYTES,
    CKPT__P_BYTEARRAY,
    CKPT__P_LIST,
    CKPT__P_TUPLE,
    CKPT__P_SET,
    CKPT__P_FROZENSET, /* items */
    CKPT__P_DICT, /* items: key, value, key, value, ...; keys that are one to Python stay apart: the reader's matter */
    CKPT__P_GLOBAL,     /* module and name, as they stand in the pickle */
    CKPT__P_PERSISTENT, /* id */
    CKPT__P_OBJECT      /* object: what a call or a class would have made */
} ckpt__pickle_kind;

typedef enum ckpt__pickle_call {
    CKPT__P_REDUCE,
    CKPT__P_NEWOBJ,
    CKPT__P_NEWOBJ_EX,
    CKPT__P_INST,
    CKPT__P_OBJ
} ckpt__pickle_call;

typedef struct ckpt__pickle_node ckpt__pickle_node;

/* All pointers in and between nodes are borrowed from the arena that the pickle was read into. A node that an opcode fetched
 * from the memo is the same node at each place. */
typedef struct ckpt__pickle_list {
    ckpt__pickle_node **items; /* NULL: empty */
    uint32_t count, capacity;  /* nodes: a dict of 3 entries has 6 */
} ckpt__pickle_list;

typedef struct ckpt__pickle_names {
    ckpt_str module, name;
} ckpt__pickle_names;

/* What a call would have made. torch's tensor is one: callable = GLOBAL torch._utils._rebuild_tensor_v2, args = a TUPLE of a
 * PERSISTENT (the storage), an offset, a size, strides, ... */
typedef struct ckpt__pickle_object {
    ckpt__pickle_call call;
    ckpt__pickle_node *callable; /* a GLOBAL; an OBJECT: the result of another call; a PERSISTENT */
    ckpt__pickle_node *args;     /* a TUPLE */
    ckpt__pickle_node *kwargs;   /* NEWOBJ_EX: a DICT; else NULL */
    ckpt__pickle_node *state;    /* what BUILD gave, or NULL */
    ckpt__pickle_node *setter;   /* what is called with the object and the state in place of BUILD, or NULL */
    ckpt__pickle_list items;     /* APPEND, APPENDS, ADDITEMS */
    ckpt__pickle_list entries;   /* SETITEM, SETITEMS: key, value, ... */
} ckpt__pickle_object;

/* One value of a pickle. A tensor is ten nodes, and a checkpoint may have a hundred thousand tensors, so a node is packed into 32
 * bytes. */
struct ckpt__pickle_node {
    uint64_t
        position : 40; /* byte of its opcode in the pickle, or the highest there is; constants (None, small ints, ...) are
                             * shared and have 0 */
    ckpt__pickle_kind kind : 8;
    uint8_t known; /* GLOBAL: the reader's own number of it; 0 at first. A node that is to be written: pickle_write.h */
    bool boolean;  /* BOOL: the value. LIST, DICT: a call of a builtin or of torch took its content as it was then */
    union {
        const void *later;           /* a node without content (pickle_write.h) */
        int64_t integer;             /* INT */
        double real;                 /* FLOAT */
        ckpt_str text;               /* BIGINT, STR, BYTES, BYTEARRAY */
        ckpt__pickle_list list;      /* LIST, TUPLE, SET, FROZENSET, DICT */
        ckpt__pickle_names *global;  /* GLOBAL */
        ckpt__pickle_node *id;       /* PERSISTENT */
        ckpt__pickle_object *object; /* OBJECT */
    } u;
    void *user; /* the reader's own; NULL at first */
};

/* Every GLOBAL, STACK_GLOBAL and INST, in file order, whether or not anything refers to it. */
typedef struct ckpt__pickle_global {
    ckpt_str module, name;
    uint64_t position;
} ckpt__pickle_global;

/* What a read gives. The nodes are in the caller's arena; the two lists are heap, freed by ckpt__pickle_free. */
typedef struct ckpt__pickle {
    ckpt__pickle_node *root; /* NULL after a failure */
    unsigned protocol;       /* of PROTO; 0 without (protocols 0 and 1) */
    uint64_t end;            /* bytes up to and with STOP: what follows was not looked at */
    ckpt__pickle_global *globals;
    size_t global_count, global_capacity; /* heap */
    ckpt__pickle_node **persistents;      /* every persistent id in file order, whether or not anything refers to it */
    size_t persistent_count, persistent_capacity; /* heap */
    size_t left;                            /* objects and marks below the root on the stack: picklers leave none */
    size_t dropped;                         /* calls made for their effect alone, which no object of the graph keeps */
    const ckpt__pickle_node *dropped_first; /* what the first of them calls */
    bool text_persid;                       /* protocol 0: a persistent id as text */
    const char *strange; /* the first opcode that torch's weights_only unpickler does not know; NULL: none */
    bool late;           /* a list or dict was changed after a call or a state took its content: */
    uint64_t late_at;    /* by the opcode at this byte */
} ckpt__pickle;

/* Reads one pickle at `data`; bytes behind its STOP are no error: see `end`. Everything but *out's lists of globals and
 * persistent ids lies in the arena. On failure *out still has the globals met so far, for a scan. Free with ckpt__pickle_free in either case.
 * CKPT_E_DAMAGED: it ends before STOP or within an argument; CKPT_E_FORMAT: an opcode that does not exist or does not
 * fit (the message gives the byte and the opcode); CKPT_E_UNSUPPORTED: extension registry, out-of-band buffers;
 * CKPT_E_TOO_NEW: a protocol after 5; CKPT_E_LIMIT: an int of more than 4096 bytes. `label` is for messages. */
ckpt_status ckpt__pickle_read(const void *data, size_t size, const char *label, ckpt__arena *arena, ckpt__pickle *out,
                              ckpt_error *err);
void ckpt__pickle_free(ckpt__pickle *pickle);
/* The same of data that the caller keeps for as long as the arena: long bytes are not copied, their nodes point into it. */
ckpt_status ckpt__pickle_read_kept(const void *data, size_t size, const char *label, ckpt__arena *arena,
                                   ckpt__pickle *out, ckpt_error *err);

/* A file, by a callback: exactly n bytes at offset, or an error. */
typedef struct ckpt__pickle_input {
    ckpt_status (*read)(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err);
    void *ctx;
    uint64_t size;
} ckpt__pickle_input;
/* Where the pickle that begins at `from` ends: the byte behind its STOP. Arguments are skipped, not looked at.
 * CKPT_E_DAMAGED: the file ends before; CKPT_E_FORMAT: an opcode that does not exist. */
ckpt_status ckpt__pickle_measure(const ckpt__pickle_input *in, uint64_t from, const char *label, uint64_t *end,
                                 ckpt_error *err);

/* Is node the global module.name? NULL is not. */
bool ckpt__pickle_is_global(const ckpt__pickle_node *node, const char *module, const char *name);
/* Where a node stands: what is more than a position holds becomes the highest. */
static inline void ckpt__pickle_place(ckpt__pickle_node *node, uint64_t at)
{
    const uint64_t highest = ((uint64_t)1 << 40) - 1;
    node->position = (at < highest ? at : highest) & highest;
}
/* The value at a string key of a DICT, the last one where it occurs twice; NULL where there is none. */
ckpt__pickle_node *ckpt__pickle_get(const ckpt__pickle_node *dict, const char *key);

#endif
