/* model/numbers.h - the elements of any dtype as numbers: doubles where those hold them exactly, 64-bit integers where they do
 * not. What is packed gives several values a byte, the lowest bits first, as torch and safetensors pack. */
#ifndef CKPT_NUMBERS_H
#define CKPT_NUMBERS_H
#include "model/index.h"

typedef enum ckpt__number_kind {
    CKPT__NO_NUMBERS = 0, /* the dtype has no values that are known: float6, of which no packing is agreed */
    CKPT__REAL,           /* floats */
    CKPT__COMPLEX,        /* two doubles a value: real, imaginary */
    CKPT__SIGNED,
    CKPT__UNSIGNED /* integers; bool is 0 and 1 */
} ckpt__number_kind;

/* How to read the values of one dtype. Made once for a tensor (ckpt__numbers_init), then used for each of its blocks. No
 * pointers: copy it freely. */
typedef struct ckpt__numbers {
    ckpt_dtype dtype;
    ckpt__number_kind kind;
    bool codes;        /* quantized or packed: the integers are codes of other values */
    bool wide;         /* integers of 64 bits: a double does not hold each of them */
    unsigned bits;     /* of one value in memory: 4 for float4, 64 for float64 */
    double table[256]; /* floats of 8 bits or fewer: table[code] is the value; else not used */
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
