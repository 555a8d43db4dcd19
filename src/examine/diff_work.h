/* examine/diff_work.h - what the files of diff share: the things of both sides, and which of them are the same thing. */
#ifndef CKPT_DIFFER_H
#define CKPT_DIFFER_H
#include <ckpt/diff.h>
#include "anatomy/canon_work.h"
#include "engine/engine.h"

/* A tensor, or a value that is no container (an empty container is one too). */
typedef struct ckpt__thing {
    ckpt_str name;                /* its path in the value tree, with the file's name in a directory; else the tensor's name */
    ckpt_str loose;               /* in a directory: its path with another word for the file; data NULL: none */
    ckpt_str canonical;           /* what a state calls it; data NULL: that is not known */
    size_t tensor;                /* number in the index; SIZE_MAX: a value */
    const ckpt_value *value;      /* NULL: a tensor */
    const ckpt_value *quantizer;  /* of a quantized tensor: its scheme, scale and zero point; NULL: none, or not kept */
    size_t other;                 /* its number on the other side; SIZE_MAX: none */
    ckpt_diff_match match;
    bool frame;                   /* only says how the optimizer's dict is laid out: ids, lists of names */
    bool empty;                   /* a container without anything in it */
    size_t tied;                  /* number on the same side of what it is the second name of; SIZE_MAX: none */
} ckpt__thing;

typedef struct ckpt__side {
    const ckpt_reader *reader;
    ckpt__arena *arena;           /* names */
    ckpt__tree tree;
    ckpt__hash *by_name;          /* name -> the first value of it */
    ckpt__hash *containers;       /* names of those that hold something; NULL: not made yet */
    size_t containers_next;       /* nodes from here on are not in it */
    ckpt__canon *canon;           /* NULL: too ambiguous */
    ckpt__thing *things; size_t count, capacity;    /* the first of them are the tensors: thing i is tensor i */
    const char *letter;           /* "A" */
} ckpt__side;

typedef struct ckpt__differ {
    ckpt__side a, b;
    const ckpt_diff_options *options;
    ckpt_diff_result *result;
    ckpt_report *report;          /* NULL: none */
    ckpt_error *err;
    uint64_t done, total;
    size_t tensor_capacity, scalar_capacity;
} ckpt__differ;

ckpt_status ckpt__differ_no_memory(const ckpt__differ *d);
/* False when memory is short; without a report it is true. */
bool ckpt__differ_note(const ckpt__differ *d, ckpt_severity severity, const char *code, const char *tensor, const char *message);

/* diff_things.c: lists what a checkpoint holds. */
ckpt_status ckpt__side_open(ckpt__differ *d, ckpt__side *s, const ckpt_reader *reader, const char *letter);
void ckpt__side_close(ckpt__side *s);
/* diff_match.c: sets other, match and tied. */
ckpt_status ckpt__differ_match(ckpt__differ *d);
void ckpt__differ_pair(ckpt__differ *d, size_t a, size_t b, ckpt_diff_match match);
/* Is it a tensor that is not dense, whose parts all have counterparts in a native file? That keeps the parts alone as
 * tensors, and how they belong together in its notes. */
bool ckpt__differ_in_parts(const ckpt__side *s, const ckpt__side *other, const ckpt__thing *t);
/* diff_prefix.c: pairs what is left by a path that one of them has in front. */
ckpt_status ckpt__differ_match_prefixes(ckpt__differ *d);
/* diff_values.c: compares the elements of two tensors of the same shape; fills what it finds in. */
ckpt_status ckpt__differ_values(ckpt__differ *d, ckpt_diff_tensor *row, size_t a, size_t b);
/* Of a tensor with one element, that element as a number; *is false: it has none. */
ckpt_status ckpt__differ_number(ckpt__differ *d, const ckpt__side *s, size_t tensor, bool *is, double *number);
/* diff_scalars.c: adds rows to the result. */
ckpt_status ckpt__differ_scalars(ckpt__differ *d);
/* Do the codes of two quantized tensors stand for the same numbers? Where one format does not keep what says so: yes. */
bool ckpt__differ_same_quantizer(const ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b);
#endif
