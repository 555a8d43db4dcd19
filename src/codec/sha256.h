/* codec/sha256.h - SHA-256 (FIPS 180-4), for telling whether two things are the same. */
#ifndef CKPT_SHA256_H
#define CKPT_SHA256_H
#include <stddef.h>
#include <stdint.h>

enum { CKPT__SHA256_TEXT = 65 }; /* the digest as lower-case hexadecimal digits, and a NUL */

/* A digest that is being made. Its bytes are gathered into blocks of 64. */
typedef struct ckpt__sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
} ckpt__sha256;

void ckpt__sha256_begin(ckpt__sha256 *s);
void ckpt__sha256_add(ckpt__sha256 *s, const void *data, size_t n);
void ckpt__sha256_end(ckpt__sha256 *s, char text[CKPT__SHA256_TEXT]);
#endif
