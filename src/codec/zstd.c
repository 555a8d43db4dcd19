/* codec/zstd.c - libzstd's stream decoder (RFC 8878), bounded. */
#include "codec/zstd.h"

#ifdef HAVE_ZSTD
#include <stdlib.h>
#include <zstd.h>

struct ckpt__zstd {
    ZSTD_DStream *stream;
};

enum { WINDOW_LOG = 27 };

ckpt_status ckpt__zstd_new(const char *label, ckpt__zstd **out, ckpt_error *err)
{
    ckpt__zstd *z = calloc(1, sizeof *z);
    *out = NULL;
    if (z && (z->stream = ZSTD_createDStream()) &&
        !ZSTD_isError(ZSTD_DCtx_setParameter(z->stream, ZSTD_d_windowLogMax, WINDOW_LOG))) {
        *out = z;
        return CKPT_OK;
    }
    ckpt__zstd_free(z);
    return ckpt__fail_memory(err, label, 0);
}

ckpt_status ckpt__zstd_decode(ckpt__zstd *z, ckpt__zstd_step *s, const char *label, ckpt_error *err)
{
    ZSTD_inBuffer in = {s->from, s->from_size, s->at};
    ZSTD_outBuffer out = {s->to, s->to_size, s->done};
    size_t rc = ZSTD_decompressStream(z->stream, &out, &in);
    if (ZSTD_isError(rc))
        return ckpt__fail(err, CKPT_E_DAMAGED, label, "its zstd frame is damaged (%s)", ZSTD_getErrorName(rc));
    s->at = in.pos;
    s->done = out.pos;
    s->ended = rc == 0;
    return CKPT_OK;
}

void ckpt__zstd_free(ckpt__zstd *z)
{
    if (!z)
        return;
    ZSTD_freeDStream(z->stream);
    free(z);
}

bool ckpt__zstd_is_there(void)
{
    return true;
}
#else
ckpt_status ckpt__zstd_new(const char *label, ckpt__zstd **out, ckpt_error *err)
{
    *out = NULL;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, label,
                      "it is compressed with zstd, and this build has no libzstd: build ckpt with it (Debian: "
                      "libzstd-dev)");
}

ckpt_status ckpt__zstd_decode(ckpt__zstd *z, ckpt__zstd_step *s, const char *label, ckpt_error *err)
{
    (void)s;
    return ckpt__zstd_new(label, &z, err);
}

void ckpt__zstd_free(ckpt__zstd *z)
{
    (void)z;
}

bool ckpt__zstd_is_there(void)
{
    return false;
}
#endif
