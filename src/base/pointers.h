/* base/pointers.h - a table from pointers to numbers; with the numbers left out, a set of pointers. What it holds is told apart
 * by its address alone: a value of a tree that several places share is in it once. */
#ifndef CKPT_POINTERS_H
#define CKPT_POINTERS_H
#include <stdbool.h>
#include <stddef.h>

/* All zero is empty. */
typedef struct ckpt__pointers {
    struct ckpt__pointer *slots; /* heap, owned: mask + 1 of them, a power of two; NULL: empty */
    size_t count, mask;          /* pointers in the table; slots - 1 */
} ckpt__pointers;

/* Gives `p`, which is not NULL, its number where it has none. 1: it is new, 0: it was there and keeps its number, -1: no memory. */
int ckpt__pointers_put(ckpt__pointers *t, const void *p, size_t number);
/* The same of a set: is it new? */
int ckpt__pointers_add(ckpt__pointers *t, const void *p);
/* Gives `p` this number whether it has one or not. False: no memory. */
bool ckpt__pointers_set(ckpt__pointers *t, const void *p, size_t number);
/* The number of `p` in *number, which may be NULL. False: it is not in the table. */
bool ckpt__pointers_get(const ckpt__pointers *t, const void *p, size_t *number);
void ckpt__pointers_free(ckpt__pointers *t);
#endif
