/* base/hash.c - byte strings to numbers. Open addressing, SipHash-1-3 with a key of its own for every table.
 *
 * What was put stands in one row, in the order in which it came; a slot is 8 bytes, half of the hash and the place in that
 * row. So the part that is touched at random is small and stays in the caches, and the rest is written from front to end. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

typedef struct entry {
    const char *key;    /* borrowed from whoever put it */
    size_t size, value; /* bytes of the key; what the key stands for */
    uint64_t hash;
} entry;

/* A slot is 64 bits: the upper 32 of the hash, and the entry's number + 1 in the lower 32. The key with hash 0x1234567800000005
 * that came third is slot 5 & mask, and the slot holds 0x1234567800000003. */
struct ckpt__hash {
    uint64_t *slots; /* heap, mask + 1 of them, a power of two; 0: free */
    size_t mask;
    entry *entries;         /* heap, in the order in which they came */
    size_t count, capacity; /* of entries */
    uint64_t k0, k1;        /* the key of SipHash, random for each table */
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
    free(h->slots);
    h->slots = fresh;
    h->mask = slots - 1;
    h->entries = entries;
    h->capacity = capacity;
    for (size_t i = 0; i < h->count; i++) {
        size_t j = (size_t)entries[i].hash & h->mask;
        while (fresh[j])
            j = (j + 1) & h->mask;
        fresh[j] = (entries[i].hash & ~NUMBER) | (i + 1);
    }
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
    return h;
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
        if (e->hash == hash && e->size == n && memcmp(e->key, key, n) == 0) {
            *found = e;
            return &h->slots[i];
        }
    }
    *found = NULL;
    return &h->slots[i];
}

int ckpt__hash_put(ckpt__hash *h, const char *key, size_t n, size_t value, size_t *existing)
{
    uint64_t hash = sip(h, key, n);
    entry *e;
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
    h->entries[h->count++] = (entry){key, n, value, hash};
    *slot = (hash & ~NUMBER) | h->count;
    return 1;
}

bool ckpt__hash_get(const ckpt__hash *h, const char *key, size_t n, size_t *value)
{
    entry *e;
    find(h, key, n, sip(h, key, n), &e);
    if (e && value)
        *value = e->value;
    return e != NULL;
}
