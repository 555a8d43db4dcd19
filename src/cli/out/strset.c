#include "cli/out/strset.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

static uint64_t hash_of(uint64_t seed, const char *data, size_t size)
{
    uint64_t h = seed ^ size, word;
    for (; size >= sizeof word; data += sizeof word, size -= sizeof word) {
        memcpy(&word, data, sizeof word);
        h = mix(h ^ word);
    }
    word = 0;
    memcpy(&word, data, size);
    return mix(mix(h ^ word) ^ seed);
}

static struct strset_slot *slot_of(struct strset_slot *slots, size_t mask, uint64_t hash, const char *data, size_t size)
{
    size_t i = hash & mask;
    while (slots[i].data && !(slots[i].hash == hash && slots[i].size == size && memcmp(slots[i].data, data, size) == 0))
        i = (i + 1) & mask;
    return &slots[i];
}

static int grow(strset *s)
{
    size_t mask = s->mask ? s->mask * 2 + 1 : 255;
    struct strset_slot *slots = calloc(mask + 1, sizeof *slots);
    if (!slots)
        return -1;
    if (!s->slots && getrandom(&s->seed, sizeof s->seed, GRND_NONBLOCK) != (ssize_t)sizeof s->seed)
        s->seed = (uint64_t)(uintptr_t)slots;
    for (size_t i = 0; s->slots && i <= s->mask; i++)
        if (s->slots[i].data)
            *slot_of(slots, mask, s->slots[i].hash, s->slots[i].data, s->slots[i].size) = s->slots[i];
    free(s->slots);
    s->slots = slots;
    s->mask = mask;
    return 0;
}

int strset_add(strset *s, const char *data, size_t size)
{
    if ((!s->slots || s->count * 2 > s->mask) && grow(s) < 0)
        return -1;
    uint64_t hash = hash_of(s->seed, data, size);
    struct strset_slot *slot = slot_of(s->slots, s->mask, hash, data, size);
    if (slot->data)
        return 0;
    char *copy = malloc(size + 1);
    if (!copy)
        return -1;
    memcpy(copy, data, size);
    copy[size] = 0;
    *slot = (struct strset_slot){hash, size, copy};
    s->count++;
    return 1;
}

bool strset_has(const strset *s, const char *data, size_t size)
{
    return s->slots && slot_of(s->slots, s->mask, hash_of(s->seed, data, size), data, size)->data;
}

void strset_free(strset *s)
{
    for (size_t i = 0; s->slots && i <= s->mask; i++)
        free(s->slots[i].data);
    free(s->slots);
    memset(s, 0, sizeof *s);
}

static bool make_room(hashset *s)
{
    size_t mask = s->mask ? s->mask * 2 + 1 : 255;
    uint64_t *hashes = calloc(mask + 1, sizeof *hashes);
    if (!hashes)
        return false;
    if (!s->hashes && getrandom(&s->seed, sizeof s->seed, GRND_NONBLOCK) != (ssize_t)sizeof s->seed)
        s->seed = (uint64_t)(uintptr_t)hashes;
    for (size_t i = 0; s->hashes && i <= s->mask; i++) {
        size_t at = s->hashes[i] & mask;
        while (s->hashes[i] && hashes[at])
            at = (at + 1) & mask;
        if (s->hashes[i])
            hashes[at] = s->hashes[i];
    }
    free(s->hashes);
    s->hashes = hashes;
    s->mask = mask;
    return true;
}

int hashset_add(hashset *s, const char *data, size_t size)
{
    if ((!s->hashes || s->count > s->mask / 4 * 3) && !make_room(s))
        return -1;
    uint64_t hash = hash_of(s->seed, data, size);
    hash += hash == 0;
    size_t i = hash & s->mask;
    while (s->hashes[i] && s->hashes[i] != hash)
        i = (i + 1) & s->mask;
    if (s->hashes[i])
        return 0;
    s->hashes[i] = hash;
    s->count++;
    return 1;
}

void hashset_free(hashset *s)
{
    free(s->hashes);
    memset(s, 0, sizeof *s);
}
