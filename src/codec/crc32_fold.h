/* codec/crc32_fold.h - the loops that fold a CRC-32 and copy on the way, one for each width of carry-less multiplication.
 *
 * V. Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009. What was folded is a remainder of
 * one line or more. To fold a remainder of 128 bits over d bits is to multiply its halves by x^(d+32) and x^(d-32) modulo the polynomial, all
 * reflected. The line that is left has the CRC that all the bytes have. */
#ifndef CKPT_CRC32_FOLD_H
#define CKPT_CRC32_FOLD_H
#include <stddef.h>
#include <stdint.h>

enum { CKPT__LINE = 64 }; /* bytes: a line of the cache */

/* What becomes of the bytes on the way: nothing; an ordinary store; a store past the cache. */
typedef enum ckpt__fold_how { CKPT__FOLD_LOOK, CKPT__FOLD_STORE, CKPT__FOLD_STREAM } ckpt__fold_how;

/* Folds n bytes, a multiple of CKPT__LINE and not 0, behind bytes of the CRC-32 `crc`. The CRC-32 of all is that of `left`, begun with
 * UINT32_MAX. Of STREAM `to` is aligned to a line; of LOOK it is not looked at. Bytes ahead are asked for, which never fails. */
typedef void ckpt__fold_lines(ckpt__fold_how how, uint32_t crc, char *to, const char *from, size_t n,
                              unsigned char left[CKPT__LINE]);

/* The loop of a width in bits: 128 (PCLMULQDQ), 256 (VPCLMULQDQ, AVX2), 512 (VPCLMULQDQ, AVX-512); NULL: this processor has no such
 * instructions, or there is no such loop. */
ckpt__fold_lines *ckpt__fold_of(unsigned width);
/* The widest that there is; NULL: there is none. */
ckpt__fold_lines *ckpt__fold_widest(void);
#endif
