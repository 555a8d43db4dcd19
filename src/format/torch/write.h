/* format/torch/write.h - what the files of the torch writer share.
 *
 *   write.c         the request -> pickle and storages -> recipe
 *   zip.c           the archive as torch lays it out, segment by segment
 *   write_values.c  the value tree -> a graph of pickle nodes
 *   write_tensor.c  tensors: rebuild calls with storages and devices of the target
 *   write_object.c  objects without a pickle of their own, made from their parts
 *   kept.c          the pickle that a native file keeps of a torch file ("ckpt.torch") */
#ifndef CKPT_TORCH_WRITE_H
#define CKPT_TORCH_WRITE_H
#include "codec/pickle_write.h"
#include "format/format.h"
#include "model/rewrite.h"

ckpt_status ckpt__torch_write(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err);

/* ---- the pickle */

/* The pickle that is to be made: what goes in, and what comes out beside its text. */
typedef struct ckpt__torch_pickling {
    const ckpt__index *index;  /* what is written */
    const ckpt__index *source; /* what was read: pickle nodes that stand for storages are known to it */
    const ckpt__edits *edits;  /* what the values of those nodes have become; NULL: they are what they were */
    const ckpt_value *root;
    ckpt_report *lost; /* NULL: nobody asks */
    /* The pickle that a native file keeps: the key of a storage is the number of the tensor in the index that views it, or
     * with record_of (1 + the record of each tensor in that file; 0: none) of its record; *missing: one has none, and the
     * numbers are to be given by ckpt__torch_kept_renumber, which takes what is around it away. Else storages have the keys
     * 0, 1, ... in the order in which they are met. */
    bool kept;
    const size_t *record_of;
    bool missing;
    size_t only; /* as ckpt__write_request has it */
    size_t held; /* out: bytes of nodes and tables that lasted, beside those that went by */
    size_t *storages;
    size_t count; /* out, heap: the storage of the index with key i (not for a kept one) */
} ckpt__torch_pickling;
ckpt_status ckpt__torch_pickle(ckpt__torch_pickling *p, ckpt__buf *out, ckpt_error *err);
/* An object (defaultdict, deque) whose entries or items are written from its value, so that some can go; those of
 * other objects are written as they were read, each from its own value. */
bool ckpt__torch_holds(const ckpt__edits *edits, const ckpt_value *v);
/* A tensor that is an opaque object to the tree: of a structure that a native file keeps, one that is no record of its own. */
bool ckpt__torch_is_closed(const ckpt_value *v);
/* Is v such a tensor of a subclass with bytes of its own (not a shell around others)? The other is the tensor that it is made of,
 * without attributes, in the arena; NULL: no memory. */
bool ckpt__torch_is_subclass(const ckpt_value *v);
const ckpt_value *ckpt__torch_unclass(const ckpt_value *v, ckpt__arena *a);
/* Is v such a tensor, or a storage by itself, of a storage that is not whole? *storage: the first that is not. */
bool ckpt__torch_looks_at(const ckpt__index *x, const ckpt_value *v, const bool *whole, size_t *storage);

/* ---- the archive. Records in the order in which they are given; names stand behind "<archive>/". */
typedef struct ckpt__torch_zip ckpt__torch_zip;
ckpt__torch_zip *ckpt__torch_zip_new(ckpt__recipe *recipe, const char *archive, size_t records); /* at most so many */
void ckpt__torch_zip_free(ckpt__torch_zip *z);
/* Bytes that are known, and static as names are, or the recipe's own; or a storage of the index, as "data/<key>". */
ckpt_status ckpt__torch_zip_bytes(ckpt__torch_zip *z, const char *name, const char *bytes, size_t size,
                                  ckpt_error *err);
ckpt_status ckpt__torch_zip_storage(ckpt__torch_zip *z, size_t key, size_t storage, uint64_t size, ckpt_error *err);
/* The serialization id, the central directory and the end. The recipe computes them when it runs. */
ckpt_status ckpt__torch_zip_finish(ckpt__torch_zip *z, ckpt_error *err);

/* ---- what a native file keeps of a torch file: the entry CKPT__TORCH_KEY of its root, bytes */
#define CKPT__TORCH_KEY "ckpt.torch"
/* Tensors that hold the bytes of storages which no other tensor shows (inside opaque objects, or by themselves): they
 * have such names, and count for nothing else. */
#define CKPT__TORCH_STORAGE "ckpt.torch.storage."
/* The value tree of such a pickle, made in x's arena: as if the torch file had been read, with the tensors of x.
 * strides[tensor], of x->tensor_count, is set where a tensor that x has in C order, alone, had others: all of its storage
 * in another order of the dimensions. *closed: how many tensors of the pickle are none of x (not dense, on meta, or below an
 * opaque object), and stay as they are there. */
ckpt_status ckpt__torch_kept_tree(ckpt__index *x, ckpt_str pickle, const ckpt_value **root, const int64_t **strides,
                                  size_t *closed, ckpt_error *err);
/* The pickle with the keys that the tensors have in another file: record_of[tensor] is 1 + its record, or 0 where it is
 * not there; those become None. */
ckpt_status ckpt__torch_kept_renumber(ckpt_str pickle, const size_t *record_of, size_t count, ckpt__buf *out,
                                      ckpt_error *err);

/* ---- between the files of the writer */

typedef ckpt__pickle_node ckpt__out; /* a node that is written; those that were read are const ckpt__pickle_node */

/* What was made of a node that was read, or of a value. */
typedef struct ckpt__torch_made {
    const void *identity; /* NULL: free */
    ckpt__out *to;
} ckpt__torch_made;

enum { CKPT__TORCH_RECENT = 8, CKPT__TORCH_INTS = 1024 };
typedef struct ckpt__torch_writer {
    ckpt__torch_pickling *p;
    ckpt__arena *arena;   /* contents of nodes, while they are counted or written (codec/pickle_write.h) */
    ckpt__arena *lasting; /* nodes that are reached again, and texts */
    bool writing;         /* all was counted, and said, and goes by once more */
    bool dotted;          /* a global has a dot in its name: names are those of Python 3 */
    struct ckpt__torch_made *made;
    size_t made_count, made_mask;          /* heap, open addressing */
    struct ckpt__torch_spot *places;       /* per storage of the index; of `only` one */
    ckpt__out **keys;                      /* kept: per tensor of the index */
    ckpt__out *recent[CKPT__TORCH_RECENT]; /* of those that are made here: a few names come again and again, */
    size_t next_recent;
    ckpt__out *ints[CKPT__TORCH_INTS], *bools[2]; /* and so do small numbers, which have no identity */
    size_t key_capacity;
    uint64_t left_out; /* kept: storages that no listed tensor views */
    ckpt_error *err;
} ckpt__torch_writer;

/* What the persistent ids of a storage say. */
typedef struct ckpt__torch_spot {
    ckpt_dtype dtype; /* of the tensors that view it; NONE: none does */
    bool mixed;       /* they are of several */
    bool used;        /* it has a key */
    size_t key;
    ckpt__out *key_node; /* kept: for all of its bytes */
    size_t whole;        /* 1 + a tensor that is all of it, in C order; 0: there is none */
} ckpt__torch_spot;

static inline ckpt__torch_spot *ckpt__torch_spot_of(const ckpt__torch_writer *w, size_t storage)
{
    return &w->places[w->p->only ? 0 : storage];
}

/* The value of a node that was read, as it is now; NULL: it has none. */
const ckpt_value *ckpt__torch_user(const ckpt__torch_writer *w, const ckpt__pickle_node *n);
/* The node to write for a value, or for a node that was read; made when first asked for, and filled when its turn comes. NULL:
 * no memory. */
ckpt__out *ckpt__torch_put_value(ckpt__torch_writer *w, const ckpt_value *v);
ckpt__out *ckpt__torch_put_node(ckpt__torch_writer *w, const ckpt__pickle_node *n);
/* The same of what is called: a class that is a value elsewhere, of which --plain has made a string there, is still called here. */
ckpt__out *ckpt__torch_put_callable(ckpt__torch_writer *w, const ckpt__pickle_node *n);
/* The content of an opaque node: everything but what its own value says. */
ckpt_status ckpt__torch_copy_node(ckpt__torch_writer *w, const ckpt__pickle_node *from, ckpt__out *to);
ckpt__out *ckpt__torch_put_int(ckpt__torch_writer *w, int64_t value);
ckpt__out *ckpt__torch_put_bool(ckpt__torch_writer *w, bool value);
ckpt__out *ckpt__torch_put_global(ckpt__torch_writer *w, const char *module, const char *name);
/* An OBJECT, CLASS or ARRAY without origin. */
ckpt_status ckpt__torch_put_object(ckpt__torch_writer *w, const ckpt_value *v, ckpt__out *to);
/* A TENSOR, or an OBJECT that is a tensor which is not listed. */
ckpt_status ckpt__torch_put_tensor(ckpt__torch_writer *w, const ckpt_value *v, ckpt__out *to);
/* A storage by itself: n is a node that stands for one. */
ckpt_status ckpt__torch_put_storage(ckpt__torch_writer *w, const ckpt__pickle_node *n, size_t storage, ckpt__out *to);
ckpt_status ckpt__torch_put_failed(ckpt__torch_writer *w);
/* The names that Python 3 has for a global of Python 2 (names.c). */
void ckpt__torch_python3(ckpt_str *module, ckpt_str *name);
/* A "lost" finding about tensor n (SIZE_MAX: about none). */
ckpt_status ckpt__torch_put_lost(ckpt__torch_writer *w, size_t n, const char *format, ...) CKPT__PRINTF(3, 4);

#endif
