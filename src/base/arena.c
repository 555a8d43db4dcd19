/* base/arena.c - many small allocations that are freed together. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/mman.h>

typedef struct chunk {
    struct chunk *next;
    size_t size, used;
    max_align_t data[];
} chunk;

struct ckpt__arena {
    chunk *chunks;
    uint64_t used, limit;
    bool over_limit;
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 4 << 20, HUGE = 2 << 20 };    /* HUGE: a huge page */

ckpt__arena *ckpt__arena_new(uint64_t limit)
{
    ckpt__arena *a = calloc(1, sizeof *a);
    if (a)
        a->limit = limit;
    return a;
}

void ckpt__arena_free(ckpt__arena *a)
{
    if (!a)
        return;
    for (chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(a);
}

static chunk *new_chunk(ckpt__arena *a, size_t need)
{
    size_t size = FIRST_CHUNK;
    while (size < LARGEST_CHUNK && (size < need || (a->chunks && size <= a->chunks->size)))
        size *= size < HUGE / 8 ? 4 : size < HUGE ? 8 : 2;    /* 16 KiB, 64 KiB, 256 KiB, 2 MiB, 4 MiB */
    if (size < need)
        size = need;
    if (size > SIZE_MAX - sizeof(chunk) - HUGE)
        return NULL;
    if (size >= HUGE)             /* with the chunk's own head */
        size = ((size < need + sizeof(chunk) ? need + sizeof(chunk) : size) + HUGE - 1) / HUGE * HUGE;
    chunk *c = size >= HUGE ? aligned_alloc(HUGE, size) : malloc(sizeof *c + size);
    if (!c)
        return NULL;
    if (size >= HUGE) {
        madvise(c, size, MADV_HUGEPAGE);    /* one page fault where there would be 512; without it nothing is lost */
        size -= sizeof *c;
    }
    c->size = size;
    c->used = 0;
    /* A big allocation gets a chunk of its own behind the current one, so that the current one is still filled. */
    if (need > LARGEST_CHUNK / 4 && a->chunks) {
        c->next = a->chunks->next;
        a->chunks->next = c;
    } else {
        c->next = a->chunks;
        a->chunks = c;
    }
    return c;
}

void *ckpt__arena_alloc(ckpt__arena *a, size_t size)
{
    if (size > SIZE_MAX - 15)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (a->limit && size > a->limit - a->used) {
        a->over_limit = true;
        return NULL;
    }
    chunk *c = a->chunks;
    if (!c || c->size - c->used < size)
        c = new_chunk(a, size);
    if (!c)
        return NULL;
    void *out = (char *)c->data + c->used;
    c->used += size;
    a->used += size;
    memset(out, 0, size);
    return out;
}

void *ckpt__arena_array(ckpt__arena *a, size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : ckpt__arena_alloc(a, bytes);
}

char *ckpt__arena_copy(ckpt__arena *a, const char *data, size_t n)
{
    char *out = n == SIZE_MAX ? NULL : ckpt__arena_alloc(a, n + 1);
    if (out && n)
        memcpy(out, data, n);
    return out;
}

ckpt_str ckpt__arena_str(ckpt__arena *a, const char *data, size_t n)
{
    ckpt_str s = { ckpt__arena_copy(a, data, n), n };
    if (!s.data)
        s.size = 0;
    return s;
}

uint64_t ckpt__arena_used(const ckpt__arena *a)
{
    return a->used;
}

bool ckpt__arena_over_limit(const ckpt__arena *a)
{
    return a->over_limit;
}
