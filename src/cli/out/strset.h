/* cli/out/strset.h - a set of byte strings, to find names that occur twice. Seeded, so hostile names cannot collide by
 * choice. */
#ifndef CKPT_CLI_OUT_STRSET_H
#define CKPT_CLI_OUT_STRSET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct strset {
    struct strset_slot {
        uint64_t hash;
        size_t size; /* bytes of data */
        char *data;  /* NULL: free */
    } * slots;
    size_t mask, count;
    uint64_t seed;
} strset;

/* 1: added (copied); 0: it was there; -1: no memory. All zero is the empty set. */
int strset_add(strset *s, const char *data, size_t size);
bool strset_has(const strset *s, const char *data, size_t size);
void strset_free(strset *s);

/* Which of very many strings may occur twice? A string is 8 bytes here. */
typedef struct hashset {
    uint64_t *hashes; /* 0: free */
    size_t mask, count;
    uint64_t seed;
} hashset;
/* 1: no equal one was added before; 0: one may have been; -1: no memory. */
int hashset_add(hashset *s, const char *data, size_t size);
void hashset_free(hashset *s);
#endif
