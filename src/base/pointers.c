/* base/pointers.c - see pointers.h. Open addressing, at most half full. */
#include "base/pointers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct ckpt__pointer {
    const void *key; /* NULL: free */
    size_t number;
} slot;

static slot *slot_of(const ckpt__pointers *t, const void *p)
{
    uint64_t h = (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & t->mask;
    while (t->slots[i].key && t->slots[i].key != p)
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

/* Is there room for one more? */
static bool grow(ckpt__pointers *t)
{
    if (t->slots && t->count * 2 <= t->mask)
        return true;
    ckpt__pointers fresh = {NULL, t->count, t->slots ? t->mask * 2 + 1 : 63};
    if (!(fresh.slots = calloc(fresh.mask + 1, sizeof *fresh.slots)))
        return false;
    for (size_t i = 0; t->slots && i <= t->mask; i++)
        if (t->slots[i].key)
            *slot_of(&fresh, t->slots[i].key) = t->slots[i];
    free(t->slots);
    *t = fresh;
    return true;
}

int ckpt__pointers_put(ckpt__pointers *t, const void *p, size_t number)
{
    if (!grow(t))
        return -1;
    slot *s = slot_of(t, p);
    if (s->key)
        return 0;
    *s = (slot){p, number};
    t->count++;
    return 1;
}

int ckpt__pointers_add(ckpt__pointers *t, const void *p)
{
    return ckpt__pointers_put(t, p, 0);
}

bool ckpt__pointers_set(ckpt__pointers *t, const void *p, size_t number)
{
    int put = ckpt__pointers_put(t, p, number);
    if (put == 0)
        slot_of(t, p)->number = number;
    return put >= 0;
}

bool ckpt__pointers_get(const ckpt__pointers *t, const void *p, size_t *number)
{
    const slot *s = t->slots ? slot_of(t, p) : NULL;
    if (!s || !s->key)
        return false;
    if (number)
        *number = s->number;
    return true;
}

void ckpt__pointers_free(ckpt__pointers *t)
{
    free(t->slots);
    memset(t, 0, sizeof *t);
}
