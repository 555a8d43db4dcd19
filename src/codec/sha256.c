/* codec/sha256.c - see sha256.h. By the words of FIPS 180-4, sections 4.1.2, 5.1.1 and 6.2.2. */
#include "codec/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void take_block(uint32_t state[8], const unsigned char *p)
{
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ x >> 3) + w[i - 7] + (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i];
        uint32_t t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void ckpt__sha256_begin(ckpt__sha256 *s)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, first, sizeof first);
    s->size = 0;
}

void ckpt__sha256_add(ckpt__sha256 *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    size_t used = (size_t)(s->size % sizeof s->block);
    s->size += n;
    if (used) {
        size_t some = sizeof s->block - used < n ? sizeof s->block - used : n;
        memcpy(s->block + used, p, some);
        if (used + some < sizeof s->block)
            return;
        take_block(s->state, s->block);
        p += some;
        n -= some;
    }
    for (; n >= sizeof s->block; p += sizeof s->block, n -= sizeof s->block)
        take_block(s->state, p);
    if (n)
        memcpy(s->block, p, n);
}

void ckpt__sha256_end(ckpt__sha256 *s, char text[CKPT__SHA256_TEXT])
{
    static const unsigned char padding[64] = {0x80};
    static const char digits[] = "0123456789abcdef";
    const uint64_t bits = s->size * 8;
    const size_t used = (size_t)(s->size % sizeof s->block);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ckpt__sha256_add(s, padding, (used < 56 ? 56 : 120) - used);
    ckpt__sha256_add(s, length, sizeof length);
    for (int i = 0; i < 64; i++)
        text[i] = digits[s->state[i / 8] >> (28 - i % 8 * 4) & 15];
    text[64] = '\0';
}
