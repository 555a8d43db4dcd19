/* format/safetensors_quick.h - one tensor of a header as nearly all writers have it: in this order, without white space,
 *
 *     {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}
 *
 * Of a header of a million tensors, which is 90 MB, nothing takes as long to read as these. Whatever is otherwise is the lexer's (codec/json.h),
 * and so is each message. */
#ifndef CKPT_SAFETENSORS_QUICK_H
#define CKPT_SAFETENSORS_QUICK_H
#include <ckpt/tensor.h>
#include <stddef.h>
#include <stdint.h>

enum { CKPT__ST_QUICK_DIMS = 16, CKPT__ST_QUICK_TEXT = 16 };

/* What was read. One is kept for all tensors of a header, and begins with zeros: the dtype of the one before is the likeliest. */
typedef struct ckpt__st_quick {
    ckpt_dtype dtype;
    char dtype_text[CKPT__ST_QUICK_TEXT]; /* what it is called there, without a NUL */
    size_t dtype_size;                    /* bytes of it; 0: nothing was read yet */
    int64_t shape[CKPT__ST_QUICK_DIMS];   /* ndim sizes, none below 0 */
    size_t ndim;
    int64_t offsets[2]; /* begin and end, none below 0; nothing else is known of them */
} ckpt__st_quick;

/* The bytes of the object that begins at text; 0: it is not written so. */
size_t ckpt__st_read_quickly(const char *text, size_t size, ckpt__st_quick *q);
#endif
