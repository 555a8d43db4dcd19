/* codec/zstd.h - one zstd frame, decoded as a stream. Without libzstd each is refused by name. */
#ifndef CKPT_ZSTD_H
#define CKPT_ZSTD_H
#include "base/base.h"

typedef struct ckpt__zstd ckpt__zstd;
/* Coded bytes that the caller has, of which `at` are used; and room, of which `done` bytes are filled. */
typedef struct ckpt__zstd_step {
    const void *from;
    size_t from_size, at;
    void *to;
    size_t to_size, done;
    bool ended; /* the frame has ended */
} ckpt__zstd_step;

/* CKPT_E_UNSUPPORTED: this build has no libzstd. Decoding refuses a frame whose window is over 128 MiB. */
ckpt_status ckpt__zstd_new(const char *label, ckpt__zstd **out, ckpt_error *err);
/* Decodes until the output has no room or the input ends. CKPT_E_DAMAGED: the input is not a valid zstd frame. */
ckpt_status ckpt__zstd_decode(ckpt__zstd *zstd, ckpt__zstd_step *step, const char *label, ckpt_error *err);
void ckpt__zstd_free(ckpt__zstd *zstd);
/* Is libzstd built in? */
bool ckpt__zstd_is_there(void);
#endif
