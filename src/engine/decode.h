/* engine/decode.h - the decoded bytes of an extent, from its first to its last: one pull interface over the codings. */
#ifndef CKPT_DECODE_H
#define CKPT_DECODE_H
#include <zlib.h>
#include "codec/zstd.h"
#include "io/source.h"
#include "model/nested.h"

struct ckpt__joined;

/* One pass over an extent. Of a deflated record of length 31 and size 48, consumed goes up to 31 and produced up to 48; of a
 * stored one no bytes are buffered. */
typedef struct ckpt__decoder {
    const ckpt__source *source; /* borrowed, as is the extent */
    const ckpt__extent *extent;
    const char *what;     /* for messages: borrowed */
    uint64_t produced;    /* decoded bytes given out */
    uint64_t consumed;    /* coded bytes read; stays 0 for a stored extent */
    z_stream z;           /* of any coding: next_in and avail_in are what was read of the file and is not yet decoded */
    bool z_open, z_ended; /* z is in use: the extent is deflated; the coding's end was seen */
    ckpt__zstd *zstd;     /* owned: of a zstd frame; else NULL */
    struct ckpt__joined *turned; /* owned: of elements that are not in C order in their record; else NULL */
    void *made;                  /* owned: of bytes that are computed; else NULL */
    unsigned char *coded;        /* heap, owned: CKPT__CODED_BLOCK bytes of input of a coded extent; else NULL */
} ckpt__decoder;

enum { CKPT__CODED_BLOCK = 256 << 10 };

/* Are the decoded bytes [begin, begin + n) of it, and are they there? CKPT_E_DAMAGED, also where a damaged file is
 * salvaged and does not reach so far. */
ckpt_status ckpt__extent_holds(const ckpt__extent *e, uint64_t begin, uint64_t n, const char *what, ckpt_error *err);
/* Reads them, of an extent that is stored or in memory. */
ckpt_status ckpt__extent_read(const ckpt__source *source, const ckpt__extent *e, uint64_t begin, void *dst, size_t n,
                              const char *what, ckpt_error *err);

/* Of a nested extent, what its record says is opened. */
ckpt_status ckpt__decoder_open(ckpt__decoder *d, const ckpt__source *source, const ckpt__extent *e, const char *what,
                               ckpt_error *err);
void ckpt__decoder_close(ckpt__decoder *d); /* of one that was opened, or is all zero */
/* Exactly n more bytes; the caller never asks past extent->size. CKPT_E_DAMAGED, too: they were the last of a zlib stream, and its
 * Adler-32 is not theirs. */
ckpt_status ckpt__decoder_read(ckpt__decoder *d, void *dst, size_t n, ckpt_error *err);
/* Leaves n bytes out; only a coded extent has to be decoded for it. */
ckpt_status ckpt__decoder_skip(ckpt__decoder *d, uint64_t n, ckpt_error *err);
/* All that the record says it holds was given out: is that its end? */
ckpt_status ckpt__decoder_finish(ckpt__decoder *d, ckpt_error *err);
#endif
