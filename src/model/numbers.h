/* model/numbers.h - the elements of any dtype as numbers: doubles where those hold them exactly, 64-bit integers where they do
 * not. What is packed gives several values a byte, the lowest bits first, as torch and safetensors pack. */
#ifndef CKPT_NUMBERS_H
#define CKPT_NUMBERS_H
#include "model/index.h"

typedef enum ckpt__number_kind {
    CKPT__NO_NUMBERS = 0,         /* the dtype has no values that are known: float6, of which no packing is agreed */
    CKPT__REAL,                   /* floats */
    CKPT__COMPLEX,                /* two doubles a value: real, imaginary */
    CKPT__SIGNED, CKPT__UNSIGNED  /* integers; bool is 0 and 1 */
} ckpt__number_kind;

typedef struct ckpt__numbers {
    ckpt_dtype dtype;
    ckpt__number_kind kind;
    bool codes;                   /* quantized or packed: the integers stand for something else */
    bool wide;                    /* 64 bits: not all are doubles */
    unsigned bits;                /* of a value, as it lies in the bytes */
    double table[256];            /* of floats of 8 bits or fewer: by their code */
} ckpt__numbers;

void ckpt__numbers_init(ckpt__numbers *n, ckpt_dtype dtype);
/* How many values a tensor of so many elements and bytes has. */
uint64_t ckpt__numbers_count(const ckpt__numbers *n, uint64_t elements, uint64_t nbytes);
/* Values in n bytes, which are whole elements. */
size_t ckpt__numbers_in(const ckpt__numbers *n, size_t bytes);
/* The first `count` values of src, as doubles: CKPT__COMPLEX gives 2 * count. Of wide integers the nearest doubles. */
void ckpt__numbers_load(const ckpt__numbers *n, const void *src, size_t count, double *dst);
/* Integers: SIGNED as they are, UNSIGNED as the bits of a uint64_t. */
void ckpt__numbers_load_int(const ckpt__numbers *n, const void *src, size_t count, int64_t *dst);
#endif
