/* examine/diff_work.h - what the files of diff share: the things of both sides, and which of them are the same thing. */
#ifndef CKPT_DIFFER_H
#define CKPT_DIFFER_H
#include <ckpt/diff.h>
#include "anatomy/canon.h"
#include "model/preorder.h"
#include "reader/reader.h"

/* A tensor, or a value without values in it (an empty container, too). Two things, one of each side, are a pair.
 * The strings and values are borrowed from the index, the tree or the canon of the side.
 *
 * A holds {'model': {'w': T0}, 'epoch': 3}, and B holds {'net': {'w': T0}, 'epoch': 4}:
 *
 *     side  thing  name     canonical  tensor    other
 *     A     0      model.w  w          0         0
 *     A     1      epoch    -          SIZE_MAX  1
 *     B     0      net.w    w          0         0
 *     B     1      epoch    -          SIZE_MAX  1
 *
 * The canonical names pair the tensors, the own names the values. */
typedef struct ckpt__thing {
    ckpt_str name;      /* its path in the value tree, with the file's name in a directory; else the tensor's name */
    ckpt_str loose;     /* in a directory: its path with another word for the file; data NULL: none */
    ckpt_str canonical; /* what a state calls it; data NULL: that is not known */
    size_t tensor;      /* number in the index; SIZE_MAX: a value */
    const ckpt_value *value;     /* NULL: a tensor */
    const ckpt_value *quantizer; /* of a quantized tensor: its scheme, scale and zero point; NULL: none, or not kept */
    size_t other;                /* its number among the things of the other side; SIZE_MAX: none */
    ckpt_diff_match match;
    bool frame;  /* only says how the optimizer's dict is laid out: ids, lists of names */
    bool empty;  /* a container without anything in it */
    size_t tied; /* number on the same side of what it is the second name of; SIZE_MAX: none */
} ckpt__thing;

/* One of the two checkpoints that are compared. The side owns what it has but the reader; ckpt__diff_side_close
 * frees it. */
typedef struct ckpt__diff_side {
    const ckpt_reader *reader; /* the caller's */
    ckpt__arena *arena;        /* names */
    ckpt__tree tree;           /* without nodes where the format has no value tree */
    ckpt__hash *by_name;       /* name -> number of the first value of it (tensors are not in it) */
    ckpt__hash *containers;    /* names of those that hold something; NULL: not made yet */
    size_t containers_next;    /* nodes from here on are not in it */
    ckpt__canon *canon;        /* NULL: too ambiguous */
    ckpt__thing *things;
    size_t count, capacity; /* heap; the first of them are the tensors: thing i is tensor i */
    const char *letter;     /* static: "A" or "B" */
} ckpt__diff_side;

/* One comparison. The result points into it, so it lives until ckpt_diff_result_clear. */
typedef struct ckpt__differ {
    ckpt__diff_side a, b;
    const ckpt_diff_options *options; /* borrowed; NULL once ckpt_diff returns */
    ckpt_diff_result *result;         /* the same */
    ckpt_report *report;              /* borrowed; NULL: none */
    ckpt_error *err;                  /* borrowed for the call of ckpt_diff */
    uint64_t done, total;             /* payload bytes of both sides, for the progress callback */
    ckpt_diff_tensor *tensors;
    size_t tensor_count, tensor_capacity; /* heap, owned: the rows of the result */
    ckpt_diff_scalar *scalars;
    size_t scalar_count, scalar_capacity;
    const ckpt_diff_tensor **tensor_list; /* heap, owned: made of them at the end, as rows move while they are
                                             * added; NULL before */
    const ckpt_diff_scalar **scalar_list;
} ckpt__differ;

ckpt_status ckpt__differ_no_memory(const ckpt__differ *d);
/* False when memory is short; without a report it is true. */
bool ckpt__differ_note(const ckpt__differ *d, ckpt_severity severity, const char *code, const char *tensor,
                       const char *message);

/* diff_things.c: lists what a checkpoint holds. */
ckpt_status ckpt__diff_side_open(ckpt__differ *d, ckpt__diff_side *s, const ckpt_reader *reader, const char *letter);
void ckpt__diff_side_close(ckpt__diff_side *s);
/* diff_match.c: sets other, match and tied. */
ckpt_status ckpt__differ_match(ckpt__differ *d);
void ckpt__differ_pair(ckpt__differ *d, size_t a, size_t b, ckpt_diff_match match);
/* Is it a tensor that is not dense, whose parts all have counterparts in a native file? That keeps the parts alone as
 * tensors, and how they belong together in its notes. */
bool ckpt__differ_in_parts(const ckpt__diff_side *s, const ckpt__diff_side *other, const ckpt__thing *t);
/* diff_prefix.c: pairs what is left by a path that one of them has in front. */
ckpt_status ckpt__differ_match_prefixes(ckpt__differ *d);
/* diff_values.c: compares the elements of two tensors of the same shape; fills what it finds in. */
ckpt_status ckpt__differ_values(ckpt__differ *d, ckpt_diff_tensor *row, size_t a, size_t b);
/* Of a tensor with one element, that element as a number; *is false: it has none. */
ckpt_status ckpt__differ_number(ckpt__differ *d, const ckpt__diff_side *s, size_t tensor, bool *is, double *number);
/* diff_scalars.c: adds rows to the result. */
ckpt_status ckpt__differ_scalars(ckpt__differ *d);
/* Do the codes of two quantized tensors stand for the same numbers? Where one format does not keep what says so: yes. */
bool ckpt__differ_same_quantizer(const ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b);
#endif
