/* base/hash.c - byte strings to numbers. Open addressing, SipHash-1-3 with a key of its own for every table. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

typedef struct slot {
    const char *key;              /* NULL: free */
    size_t size, value;
    uint64_t hash;
} slot;

struct ckpt__hash {
    slot *slots;
    size_t mask, count;
    uint64_t k0, k1;
};

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
    uint64_t v[4] = { h->k0 ^ 0x736f6d6570736575, h->k1 ^ 0x646f72616e646f6d, h->k0 ^ 0x6c7967656e657261,
                      h->k1 ^ 0x7465646279746573 };
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

ckpt__hash *ckpt__hash_new(size_t expected)
{
    if (expected > SIZE_MAX / 4 / sizeof(slot))
        return NULL;
    ckpt__hash *h = calloc(1, sizeof *h);
    size_t slots = 16;
    while (slots < expected + expected / 2 + 1)
        slots *= 2;
    if (h && !(h->slots = calloc(slots, sizeof *h->slots))) {
        free(h);
        return NULL;
    }
    if (!h)
        return NULL;
    h->mask = slots - 1;
    ckpt__touch(h->slots, slots * sizeof *h->slots);
    uint64_t seed[2];
    if (getrandom(seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        struct timespec t;        /* early in a boot: addresses and the clock are better than nothing */
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
        free(h);
    }
}

static slot *find(const ckpt__hash *h, const char *key, size_t n, uint64_t hash)
{
    for (size_t i = (size_t)hash & h->mask;; i = (i + 1) & h->mask) {
        slot *s = &h->slots[i];
        if (!s->key || (s->hash == hash && s->size == n && memcmp(s->key, key, n) == 0))
            return s;
    }
}

static bool double_slots(ckpt__hash *h)
{
    size_t slots = (h->mask + 1) * 2;
    slot *old = h->slots, *fresh = slots > SIZE_MAX / sizeof *fresh ? NULL : calloc(slots, sizeof *fresh);
    if (!fresh)
        return false;
    size_t old_slots = h->mask + 1;
    ckpt__touch(fresh, slots * sizeof *fresh);
    h->slots = fresh;
    h->mask = slots - 1;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].key) {
            size_t j = (size_t)old[i].hash & h->mask;
            while (fresh[j].key)
                j = (j + 1) & h->mask;
            fresh[j] = old[i];
        }
    free(old);
    return true;
}

int ckpt__hash_put(ckpt__hash *h, const char *key, size_t n, size_t value, size_t *existing)
{
    uint64_t hash = sip(h, key, n);
    slot *s = find(h, key, n, hash);
    if (s->key) {
        if (existing)
            *existing = s->value;
        return 0;
    }
    if (h->count + h->count / 2 > h->mask) {
        if (!double_slots(h))
            return -1;
        s = find(h, key, n, hash);
    }
    *s = (slot){ key, n, value, hash };
    h->count++;
    return 1;
}

bool ckpt__hash_get(const ckpt__hash *h, const char *key, size_t n, size_t *value)
{
    slot *s = find(h, key, n, sip(h, key, n));
    if (s->key && value)
        *value = s->value;
    return s->key != NULL;
}
