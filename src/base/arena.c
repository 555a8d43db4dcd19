/* base/arena.c - many small allocations that are freed together. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* One block of memory. Chunks grow: 16 KiB, 64 KiB, 256 KiB, 2 MiB, 4 MiB; those of 2 MiB and more are mappings. All sizes are
 * bytes. */
typedef struct chunk {
    struct chunk *next; /* the one made before; NULL: the oldest */
    size_t size;        /* of `data` */
    size_t mapped;      /* of the whole mapping, this head included; 0: the chunk is from the heap */
    size_t taken;       /* of `data` at most, once the chunk is not the first any more */
    max_align_t data[];
} chunk;

/* Allocations come from the first chunk, one behind the other. An example with a limit of 100,000 bytes, in a first chunk of
 * 16,384 of which 10,000 are used: left = 6,384, and room = 6,384 too, for the limit leaves 90,000. Near the limit room is
 * less than left. `room` is what the fast path compares with, so that it needs one comparison for both bounds. */
struct ckpt__arena {
    char *next;           /* the first free byte of the first chunk; NULL before there is one */
    size_t room;          /* the smaller of `left` and what the limit leaves */
    chunk *chunks;        /* owned; NULL: none yet */
    chunk *spare;         /* owned: a chunk that a rewind has emptied, zeroed again; NULL: none */
    size_t left;          /* bytes of the first chunk that are free */
    uint64_t used, limit; /* bytes given out; the most that may be (0: no limit) */
    uint64_t charged;     /* heap bytes that count against the limit too (ckpt__arena_charge) */
    bool over_limit;      /* a failure was the limit, not the memory */
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 4 << 20, HUGE = 2 << 20, MUCH = 128 << 10 }; /* HUGE: a huge page */

void ckpt__touch(void *data, size_t size)
{
    const uintptr_t page = 4096, from = ((uintptr_t)data + page - 1) & ~(page - 1),
                    end = ((uintptr_t)data + size) & ~(page - 1);
    const int populate_write = 23; /* MADV_POPULATE_WRITE, since Linux 5.14, which libc's headers may not know */
    if (size >= HUGE && end > from)
        madvise((void *)from, end - from, MADV_HUGEPAGE);
    if (size >= MUCH && end > from)
        madvise((void *)from, end - from, populate_write);
}

void ckpt__forget(void *data, size_t size)
{
    const uintptr_t page = 4096, from = ((uintptr_t)data + page - 1) & ~(page - 1),
                    end = ((uintptr_t)data + size) & ~(page - 1);
    if (end > from)
        madvise((void *)from, end - from, MADV_DONTNEED);
}

#ifdef __GLIBC__
void ckpt__heap_trim(void)
{
    malloc_trim(0);
}
#else
void ckpt__heap_trim(void)
{
}
#endif

ckpt__arena *ckpt__arena_new(uint64_t limit)
{
    ckpt__arena *a = calloc(1, sizeof *a);
    if (a)
        a->limit = limit;
    return a;
}

static void free_chunk(chunk *c)
{
    if (c && c->mapped)
        munmap(c, c->mapped);
    else
        free(c);
}

void ckpt__arena_free(ckpt__arena *a)
{
    if (!a)
        return;
    for (chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free_chunk(c);
    }
    free_chunk(a->spare);
    free(a);
}

/* Whole huge pages: one page fault where there would be 512, or without them nothing is lost. */
static chunk *map_chunk(size_t size)
{
    char *p = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = (HUGE - (uintptr_t)p % HUGE) % HUGE;
    if (before)
        munmap(p, before);
    munmap(p + before + size, HUGE - before);
    chunk *c = (chunk *)(void *)(p + before);
    madvise(c, size, MADV_HUGEPAGE);
    c->mapped = size;
    return c;
}

static chunk *new_chunk(ckpt__arena *a, size_t need)
{
    size_t size = FIRST_CHUNK;
    if (a->chunks)
        a->chunks->taken = a->chunks->size - a->left;
    if (a->spare && need <= a->spare->size && need <= LARGEST_CHUNK / 4) {
        chunk *c = a->spare;
        a->spare = NULL;
        c->next = a->chunks;
        return a->chunks = c;
    }
    while (size < LARGEST_CHUNK && (size < need || (a->chunks && size <= a->chunks->size)))
        size *= size < HUGE / 8 ? 4 : size < HUGE ? 8 : 2; /* 16 KiB, 64 KiB, 256 KiB, 2 MiB, 4 MiB */
    if (size < need)
        size = need;
    if (size > SIZE_MAX / 2)
        return NULL;
    if (size >= HUGE) /* with the chunk's own head */
        size = ((size < need + sizeof(chunk) ? need + sizeof(chunk) : size) + HUGE - 1) / HUGE * HUGE;
    chunk *c = size >= HUGE ? map_chunk(size) : calloc(1, sizeof *c + size); /* zeroed, and handed out once */
    if (!c)
        return NULL;
    c->size = c->taken = size >= HUGE ? size - sizeof *c : size;
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

static void set_room(ckpt__arena *a)
{
    uint64_t most = a->limit ? a->limit - a->used - a->charged : UINT64_MAX;
    a->room = a->left < most ? a->left : (size_t)most;
}

void ckpt__arena_expect(ckpt__arena *a, size_t bytes)
{
    chunk *c = a->chunks || bytes < HUGE || bytes > SIZE_MAX / 2 ? NULL : map_chunk(bytes / HUGE * HUGE);
    if (!c)
        return;
    c->size = bytes / HUGE * HUGE - sizeof *c;
    a->chunks = c;
    a->next = (char *)c->data;
    a->left = c->size;
    set_room(a);
}

/* Where the first chunk has no room, or the limit none. */
static void *alloc_slowly(ckpt__arena *a, size_t size)
{
    if (a->limit && size > a->limit - a->used - a->charged) {
        a->over_limit = true;
        return NULL;
    }
    char *out = a->next;
    bool fits = a->chunks && size <= a->left;
    chunk *c = fits ? a->chunks : new_chunk(a, size);
    if (!c)
        return NULL;
    if (!fits)
        out = (char *)c->data;
    if (!fits && c == a->chunks)
        a->left = c->size;
    a->used += size;
    if (c == a->chunks) {
        a->next = out + size;
        a->left -= size;
    }
    set_room(a);
    return out;
}

void *ckpt__arena_alloc(ckpt__arena *a, size_t size)
{
    enum { ALIGN = 8 }; /* the strictest of what lies in arenas */
    if (size > SIZE_MAX - ALIGN)
        return NULL;
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size >= a->room)
        return alloc_slowly(a, size);
    char *out = a->next;
    a->next += size;
    a->room -= size;
    a->left -= size;
    a->used += size;
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
    ckpt_str s = {ckpt__arena_copy(a, data, n), n};
    if (!s.data)
        s.size = 0;
    return s;
}

ckpt_str ckpt__arena_join(ckpt__arena *a, ckpt_str one, ckpt_str two, ckpt_str three)
{
    const ckpt_str parts[] = {one, two, three};
    size_t size = one.size + two.size + three.size, at = 0;
    char *text = ckpt__arena_alloc(a, size + 1);
    for (size_t i = 0; text && i < 3; i++) {
        if (parts[i].size)
            memcpy(text + at, parts[i].data, parts[i].size);
        at += parts[i].size;
    }
    return text ? (ckpt_str){text, size} : (ckpt_str){NULL, 0};
}

ckpt__arena_mark ckpt__arena_note(const ckpt__arena *a)
{
    return (ckpt__arena_mark){a->chunks, a->chunks ? a->chunks->next : NULL, a->left, a->used};
}

/* One that is of use again is kept, so that a place near the end of a chunk costs no mapping each time. */
static void put_aside(ckpt__arena *a, chunk *c, size_t taken)
{
    if (c->size > LARGEST_CHUNK || (a->spare && a->spare->size >= c->size)) {
        free_chunk(c);
        return;
    }
    free_chunk(a->spare);
    memset(c->data, 0, taken);
    a->spare = c;
}

void ckpt__arena_rewind(ckpt__arena *a, const ckpt__arena_mark *mark)
{
    chunk *last = mark->chunk, *c;
    if (a->chunks)
        a->chunks->taken = a->chunks->size - a->left;
    while ((c = a->chunks) != last) {
        a->chunks = c->next;
        put_aside(a, c, c->taken);
    }
    while (last && (c = last->next) != mark->second) { /* big ones */
        last->next = c->next;
        free_chunk(c);
    }
    a->left = mark->left;
    a->used = mark->used;
    a->next = last ? (char *)last->data + (last->size - mark->left) : NULL;
    if (last)
        memset(a->next, 0, last->taken - (last->size - mark->left));
    set_room(a);
}

bool ckpt__arena_charge(ckpt__arena *a, uint64_t bytes)
{
    if (a->limit && bytes > a->limit - a->used - a->charged) {
        a->over_limit = true;
        return false;
    }
    a->charged += bytes;
    set_room(a);
    return true;
}

void ckpt__arena_discharge(ckpt__arena *a, uint64_t bytes)
{
    a->charged -= bytes;
    set_room(a);
}

void ckpt__arena_allow(ckpt__arena *a, uint64_t more)
{
    if (a->limit)
        a->limit = more > UINT64_MAX - a->limit ? UINT64_MAX : a->limit + more;
    set_room(a);
}

bool ckpt__arena_grow_more(ckpt__arena *a, void *items_pointer, size_t *capacity, size_t need, size_t item_size)
{
    size_t before = *capacity, likely = before ? before : 8;
    while (likely < need && likely <= SIZE_MAX / 2)
        likely *= 2;
    uint64_t more;
    if (!ckpt__mul(likely - before, item_size, &more) || !ckpt__arena_charge(a, more))
        return false;
    if (ckpt__grow_more(items_pointer, capacity, need, item_size))
        return true;
    ckpt__arena_discharge(a, more);
    return false;
}

uint64_t ckpt__arena_limit(const ckpt__arena *a)
{
    return a->limit;
}

/* ---- how much */

enum { FLOOR = 24 << 20, A_BYTE = 40, INFLATED_FLOOR = 16 << 20, AN_INFLATED_BYTE = 16, OF_MANY = 64 };
enum { VISITS_FLOOR = 300000, VISITS_A_BYTE = 4, VISITS_MOST = 50000000, NAMES_FLOOR = 16 << 20, NAMES_A_BYTE = 40 };

static uint64_t line(uint64_t floor, uint64_t factor, uint64_t size)
{
    return size > (UINT64_MAX - floor) / factor ? UINT64_MAX : floor + factor * size;
}

uint64_t ckpt__known_limit(uint64_t size, bool of_many)
{
    return line(of_many ? FLOOR / OF_MANY : FLOOR, A_BYTE, size);
}

uint64_t ckpt__inflated_limit(uint64_t size, bool of_many)
{
    return line(of_many ? INFLATED_FLOOR / OF_MANY : INFLATED_FLOOR, AN_INFLATED_BYTE, size);
}

uint64_t ckpt__visits_limit(uint64_t size)
{
    uint64_t limit = line(VISITS_FLOOR, VISITS_A_BYTE, size);
    return limit < VISITS_MOST ? limit : VISITS_MOST;
}

uint64_t ckpt__names_limit(uint64_t size)
{
    return line(NAMES_FLOOR, NAMES_A_BYTE, size);
}

uint64_t ckpt__arena_used(const ckpt__arena *a)
{
    return a->used;
}

bool ckpt__arena_over_limit(const ckpt__arena *a)
{
    return a->over_limit;
}
