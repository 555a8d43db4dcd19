/* anatomy/producer.h - who wrote a checkpoint: one row a producer, matched by the structure of what it leaves.
 *
 *   producer.c         the table
 *   producer_match.c   signs and paths, and which row fits
 *
 * A path is keys parted by '/' from the root: of a torch file what it holds, of a directory {file: what it holds}. A number
 * is a place in a list, "-1" its last; a key that ends in '*' stands for each that begins so, a class that is a key being
 * its name.
 * A sign is a path, and may say what must be there: "a/b:int" (int, number, str, dict, list, weights: a dict of tensors
 * under names; optimizer: one with state and param_groups), "a@module.Class" (the class's name begins so), "a=True",
 * "a=text". Alternatives are parted by '|'. */
#ifndef CKPT_PRODUCER_H
#define CKPT_PRODUCER_H
#include <ckpt/doctor.h>
#include "format/format.h"
#include "model/training.h"

/* A program that writes checkpoints: its name, and the paths of what `show` tells. All texts are static; a path that
 * is NULL is not kept by the producer, except step and epoch. */
typedef struct ckpt__producer {
    const char *name;   /* "Lightning"; NULL: not known */
    ckpt_loader loader; /* what it resumes with */
    /* Alternatives "path>word": where its version is, and whose it is ("": the producer's own). */
    const char *version;
    const char *step, *epoch; /* alternatives of paths; NULL: under the names that trainers use */
    const char *score;        /* the best so far; NULL: it keeps none */
    const char *current;      /* that of this checkpoint */
    const char *metric;       /* the score's name: a path, or "=name" */
    /* Alternatives "sign>word": which plugin, or how it computed; no word: the path; "=": the value. */
    const char *precision;
    const char *ema; /* alternatives "sign>path": where averaged weights are; no path: the sign's */
    /* What resumes it: {path}, {load} (", weights_only=False" where that is needed), {device} (the GPU that its tensors name,
     * or cpu), {lines} (torch.load, and a load_state_dict for each part that was found), {model} (the class that config.json
     * names, or AutoModel). */
    const char *resume;
} ckpt__producer;

/* Never NULL. */
const ckpt__producer *ckpt__producer_of(const ckpt__index *index);
/* The same, and what the row's paths start from: in a directory of files that have no layout of their own it is the file
 * that told, whose name is *file (data NULL: none). */
const ckpt__producer *ckpt__producer_match(const ckpt__index *index, const ckpt_value **root, ckpt_str *file);
/* Of the value tree of a torch file. */
const ckpt__producer *ckpt__producer_of_root(const ckpt_value *root);

/* A producer, and the signs that a checkpoint is from it. The first row that fits is taken. Lightning's signs are
 * "pytorch-lightning_version:str", "state_dict:dict", "global_step:int" and "epoch:int": a torch file whose root has
 * all four keys, with values of these kinds, is Lightning's. */
typedef struct ckpt__producer_row {
    ckpt__producer producer;
    const ckpt__format *format; /* the index's; NULL: a torch file */
    const char *signs[8];       /* all must hold; NULL behind the last */
    const char *none;           /* alternatives of signs: none may hold; NULL: nothing is excluded */
    const char *only;           /* words: the root has no other keys; NULL: it may */
} ckpt__producer_row;
extern const ckpt__producer_row ckpt__producer_rows[];
extern const size_t ckpt__producer_row_count;

/* The first of the alternatives that leads to something which is not None. `name` (may be NULL) gets the dotted name. The
 * word behind its '>' is *word (NULL: there is none), *size long. */
const ckpt_value *ckpt__producer_find(const ckpt_value *root, const char *alternatives, ckpt__buf *name,
                                      const char **word, size_t *size);
bool ckpt__producer_fits(const ckpt_value *root, const char *alternatives);
#endif
