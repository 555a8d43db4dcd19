/* base/hash.c - byte strings to numbers. Open addressing, SipHash-1-3 with a key of its own for every table.
 *
 * What was put stands in one row, in the order in which it came; a slot is 8 bytes, half of the hash and the place in that
 * row. So the part that is touched at random is small and stays in the caches, and the rest is written from front to end. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

typedef struct entry {
    const char *key; /* borrowed from whoever put it */
    size_t value;    /* what the key stands for */
    uint32_t size;   /* bytes of the key */
    uint32_t low;    /* half of the hash; its slot has the other */
} entry;

/* A key that is put soon, and its hash. */
typedef struct soon {
    const char *key; /* borrowed; NULL: none */
    size_t size;
    uint64_t hash;
} soon;

/* A slot is 64 bits: the upper 32 of the hash, and the entry's number + 1 in the lower 32. The key with hash 0x1234567800000005
 * that came third is slot 5 & mask, and the slot holds 0x1234567800000003.
 *
 * Many tables are asked for all their keys in the order in which these were put. Where the last two answers were neighbours the
 * entry behind them is looked at first: then neither a hash is made nor a slot looked for. */
struct ckpt__hash {
    uint64_t *slots; /* heap, mask + 1 of them, a power of two; 0: free */
    size_t mask;
    entry *entries;         /* heap, in the order in which they came */
    size_t count, capacity; /* of entries */
    uint64_t k0, k1;        /* the key of SipHash, random for each table */
    size_t *guess; /* &own: the entry that may be asked for next, or past the last: no guess. Threads that share a
                                   * table read and write it atomically; it makes a lookup quick and never another one */
    size_t *last;  /* &own + 1: the entry behind the last answer */
    size_t own[2];
    soon soon[2 * CKPT__HASH_AHEAD]; /* a ring */
    size_t told, asked;              /* keys that came into it; the next of them that a put looks at */
};

enum { FEWEST = 16 };
static const uint64_t NUMBER = UINT32_MAX;

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = ROTATE(v[1], 13) ^ v[0];
    v[0] = ROTATE(v[0], 32);
    v[2] += v[3];
    v[3] = ROTATE(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = ROTATE(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = ROTATE(v[1], 17) ^ v[2];
    v[2] = ROTATE(v[2], 32);
}

/* SipHash-1-3, Aumasson and Bernstein, 2012: the rounds that Rust's and Python's tables take. */
static uint64_t sip(const ckpt__hash *h, const char *key, size_t n)
{
    uint64_t v[4] = {h->k0 ^ 0x736f6d6570736575, h->k1 ^ 0x646f72616e646f6d, h->k0 ^ 0x6c7967656e657261,
                     h->k1 ^ 0x7465646279746573};
    size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word;
        memcpy(&word, key + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)n << 56;
    for (size_t i = whole; i < n; i++)
        last |= (uint64_t)(unsigned char)key[i] << 8 * (i - whole);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* As many entries as two thirds of the slots. */
static bool make_room(ckpt__hash *h, size_t slots)
{
    size_t capacity = slots - slots / 3;
    if (slots > SIZE_MAX / 2 / sizeof(entry) || capacity >= NUMBER)
        return false;
    uint64_t *fresh = calloc(slots, sizeof *fresh);
    entry *entries = fresh ? realloc(h->entries, capacity * sizeof *entries) : NULL;
    if (!entries) {
        free(fresh);
        return false;
    }
    ckpt__touch(fresh, slots * sizeof *fresh);
    for (size_t i = 0; h->slots && i <= h->mask; i++) {
        if (!h->slots[i])
            continue;
        size_t j = entries[(h->slots[i] & NUMBER) - 1].low & (slots - 1);
        while (fresh[j])
            j = (j + 1) & (slots - 1);
        fresh[j] = h->slots[i];
    }
    free(h->slots);
    h->slots = fresh;
    h->mask = slots - 1;
    h->entries = entries;
    h->capacity = capacity;
    return true;
}

ckpt__hash *ckpt__hash_new(size_t expected)
{
    if (expected > SIZE_MAX / 8)
        return NULL;
    ckpt__hash *h = calloc(1, sizeof *h);
    size_t slots = FEWEST;
    while (slots - slots / 3 < expected)
        slots *= 2;
    if (!h || !make_room(h, slots)) {
        free(h);
        return NULL;
    }
    uint64_t seed[2];
    if (getrandom(seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        struct timespec t; /* early in a boot: addresses and the clock are better than nothing */
        clock_gettime(CLOCK_MONOTONIC, &t);
        seed[0] = (uint64_t)(uintptr_t)h ^ (uint64_t)t.tv_nsec << 20;
        seed[1] = (uint64_t)(uintptr_t)h->slots ^ (uint64_t)t.tv_sec;
    }
    h->k0 = seed[0];
    h->k1 = seed[1];
    h->guess = h->own;
    h->last = h->own + 1;
    return h;
}

bool ckpt__hash_expect(ckpt__hash *h, size_t more)
{
    size_t slots = h->mask + 1;
    while (slots <= NUMBER && slots - slots / 3 < h->count + more)
        slots *= 2;
    return slots == h->mask + 1 || make_room(h, slots);
}

void ckpt__hash_free(ckpt__hash *h)
{
    if (h) {
        free(h->slots);
        free(h->entries);
        free(h);
    }
}

/* The slot that holds the key, or the free one where it belongs; the entry, or NULL. */
static uint64_t *find(const ckpt__hash *h, const char *key, size_t n, uint64_t hash, entry **found)
{
    size_t i = (size_t)hash & h->mask;
    for (uint64_t s; (s = h->slots[i]) != 0; i = (i + 1) & h->mask) {
        if ((s ^ hash) & ~NUMBER)
            continue;
        entry *e = &h->entries[(s & NUMBER) - 1];
        if (e->low == (uint32_t)hash && e->size == n && memcmp(e->key, key, n) == 0) {
            *found = e;
            return &h->slots[i];
        }
    }
    *found = NULL;
    return &h->slots[i];
}

void ckpt__hash_ahead(ckpt__hash *h, const char *key, size_t n)
{
    const size_t ring = sizeof h->soon / sizeof *h->soon;
    uint64_t hash = sip(h, key, n);
    __builtin_prefetch(&h->slots[hash & h->mask], 1);
    h->soon[h->told++ % ring] = (soon){key, n, hash};
}

void ckpt__hash_ahead_end(ckpt__hash *h)
{
    h->asked = h->told;
}

static uint64_t hash_of(ckpt__hash *h, const char *key, size_t n)
{
    const size_t ring = sizeof h->soon / sizeof *h->soon;
    if (h->asked == h->told)
        return sip(h, key, n);
    if (h->told - h->asked > ring)
        h->asked = h->told - ring;
    const soon *next = &h->soon[h->asked % ring];
    if (next->size != n || memcmp(next->key, key, n) != 0)
        return sip(h, key, n);
    h->asked++;
    return next->hash;
}

int ckpt__hash_put(ckpt__hash *h, const char *key, size_t n, size_t value, size_t *existing)
{
    uint64_t hash = hash_of(h, key, n);
    entry *e;
    if (n > UINT32_MAX)
        return -1;
    uint64_t *slot = find(h, key, n, hash, &e);
    if (e) {
        if (existing)
            *existing = e->value;
        return 0;
    }
    if (h->count == h->capacity) {
        if (!make_room(h, (h->mask + 1) * 2))
            return -1;
        slot = find(h, key, n, hash, &e);
    }
    h->entries[h->count++] = (entry){key, value, (uint32_t)n, (uint32_t)hash};
    *slot = (hash & ~NUMBER) | h->count;
    return 1;
}

/* Nothing was put behind it, so no other key was led past its slot. */
void ckpt__hash_take_back(ckpt__hash *h)
{
    size_t i = h->entries[h->count - 1].low & h->mask;
    while ((h->slots[i] & NUMBER) != h->count)
        i = (i + 1) & h->mask;
    h->slots[i] = 0;
    h->count--;
}

static bool is_key(const entry *e, const char *key, size_t n)
{
    return e->size == n && memcmp(e->key, key, n) == 0;
}

bool ckpt__hash_get(const ckpt__hash *h, const char *key, size_t n, size_t *value)
{
    if (h->count == 0)
        return false;
    size_t guess = __atomic_load_n(h->guess, __ATOMIC_RELAXED);
    entry *e = guess < h->count ? &h->entries[guess] : NULL;
    if (e && is_key(e, key, n))
        __atomic_store_n(h->guess, guess + 1, __ATOMIC_RELAXED);
    else {
        find(h, key, n, sip(h, key, n), &e);
        size_t at = e ? (size_t)(e - h->entries) : SIZE_MAX - 1;
        bool behind = at == __atomic_load_n(h->last, __ATOMIC_RELAXED);
        __atomic_store_n(h->last, at + 1, __ATOMIC_RELAXED);
        __atomic_store_n(h->guess, behind ? at + 1 : SIZE_MAX, __ATOMIC_RELAXED);
    }
    if (e && value)
        *value = e->value;
    return e != NULL;
}
