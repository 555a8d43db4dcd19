/* engine/gather.c - gathering a box from a file or a coded extent. */
#include "engine/gather.h"

#include <stdlib.h>

/* A hole that is cheaper to read than to read around, and the longest piece. */
enum { HOLE = 16 << 10, PIECE = 512 << 10, PITCH = 64 };

/* One dimension of a box. The first window of the matrix in window.h (2 rows of 3 float32, strides of 4 and 16 bytes):
 *
 *     dims[0]   n 2   stride 4    place 12     the rows: neighbours in the storage, 12 bytes apart in the window
 *     dims[1]   n 3   stride 16   place 4      the columns
 *
 * The holes are small, so both dimensions are within one piece: bytes 0..39 of the storage are read at once, and the
 * element in row 1, column 2 goes from byte 1 * 4 + 2 * 16 = 36 to byte 1 * 12 + 2 * 4 = 20 of the window. */
typedef struct dim {
    uint64_t n;      /* indexes in the window */
    uint64_t stride; /* bytes between them in the storage */
    uint64_t place;  /* and in the window */
    uint64_t tile;   /* indexes in a tile */
    uint64_t at;     /* the tile's first */
    uint64_t here;   /* indexes of the tile that is being moved */
    uint64_t pitch;  /* bytes between them in the scratch */
    bool piece;      /* lies within a piece; else each index has pieces of its own */
} dim;

/* One window, while it is gathered. All pointers are borrowed. */
typedef struct box {
    uint32_t ndim;
    dim dims[CKPT__COPY_DIMS];
    uint32_t by_stride[CKPT__COPY_DIMS]; /* numbers of dims, that of the smallest stride first */
    uint64_t begin;                      /* of the box's first element in the storage, in bytes */
    size_t size;                         /* bytes of an element */
    uint64_t pitch;                      /* bytes from piece to piece in the scratch */
    unsigned char *scratch, *to;         /* CKPT__SCRATCH bytes; the window */
    const ckpt__source *source;
    const ckpt__extent *extent;
} box;

static void sort_by_stride(box *b)
{
    for (uint32_t i = 0; i < b->ndim; i++) {
        uint32_t k = i;
        for (; k > 0 && b->dims[b->by_stride[k - 1]].stride > b->dims[i].stride; k--)
            b->by_stride[k] = b->by_stride[k - 1];
        b->by_stride[k] = i;
    }
}

/* ---- from what can be read anywhere */

/* How far a piece goes, and how many of them fit into the scratch: those first that lie side by side in the window. */
static void plan_tiles(box *b)
{
    uint64_t span = b->size;
    for (uint32_t i = 0; i < b->ndim; i++)
        b->dims[i].tile = 1;
    for (uint32_t k = 0; k < b->ndim; k++) {
        dim *d = &b->dims[b->by_stride[k]];
        if (d->n > 1 && d->stride > span + HOLE)
            break;
        uint64_t most = d->stride ? (PIECE - span) / d->stride + 1 : d->n;
        d->piece = true;
        d->tile = d->n < most ? d->n : most;
        d->pitch = d->stride;
        span += (d->tile - 1) * d->stride;
        if (d->tile < d->n)
            break;
    }
    b->pitch = (span + PITCH - 1) / PITCH * PITCH + PITCH; /* no power of two, which would fall on few cache lines */
    uint64_t fit = CKPT__SCRATCH / b->pitch;
    for (uint32_t i = b->ndim; i-- > 0 && fit > 1;) {
        dim *d = &b->dims[i];
        if (d->piece)
            continue;
        d->tile = d->n < fit ? d->n : fit;
        fit /= d->tile;
    }
}

static ckpt_status read_pieces(box *b, const char *what, ckpt_error *err)
{
    uint64_t index[CKPT__COPY_DIMS] = {0}, from = b->begin, span = b->size, pitch = b->pitch;
    unsigned char *to = b->scratch;
    ckpt_status status = CKPT_OK;
    for (uint32_t i = 0; i < b->ndim; i++) {
        dim *d = &b->dims[i];
        from += d->at * d->stride;
        if (d->piece)
            span += (d->here - 1) * d->stride;
    }
    for (uint32_t i = b->ndim; i-- > 0;)
        if (!b->dims[i].piece) {
            b->dims[i].pitch = pitch;
            pitch *= b->dims[i].here;
        }
    for (;;) {
        status = ckpt__extent_read(b->source, b->extent, from, to, (size_t)span, what, err);
        uint32_t i = b->ndim;
        for (; status == CKPT_OK && i-- > 0;) {
            dim *d = &b->dims[i];
            if (d->piece)
                continue;
            from += d->stride;
            if (++index[i] < d->here)
                break;
            from -= d->stride * d->here;
            index[i] = 0;
        }
        if (status < 0 || i == UINT32_MAX)
            return status;
        to += b->pitch;
    }
}

/* The elements of the tile, from the scratch to their places in the window. */
static void move_tile(const box *b)
{
    uint32_t size = (uint32_t)b->size;
    ckpt__op op = {.from_size = size, .to_size = size, .granule = 1, .from_swap = 1, .to_swap = 1};
    ckpt__copy_box tile;
    unsigned char *to = b->to;
    ckpt__copy_box_init(&tile);
    for (uint32_t i = 0; i < b->ndim; i++) {
        to += b->dims[i].at * b->dims[i].place;
        ckpt__copy_box_add(&tile, b->dims[i].here, b->dims[i].pitch, b->dims[i].place);
    }
    ckpt__box_move(&op, &tile, b->scratch, to, NULL, "", NULL);
}

static ckpt_status fill_by_tiles(box *b, const char *what, ckpt_error *err)
{
    plan_tiles(b);
    for (;;) {
        for (uint32_t i = 0; i < b->ndim; i++) {
            dim *d = &b->dims[i];
            d->here = d->n - d->at < d->tile ? d->n - d->at : d->tile;
        }
        ckpt_status status = read_pieces(b, what, err);
        if (status < 0)
            return status;
        move_tile(b);
        uint32_t k = 0;
        for (; k < b->ndim; k++) { /* on in the order of the file */
            dim *d = &b->dims[b->by_stride[k]];
            if ((d->at += d->here) < d->n)
                break;
            d->at = 0;
        }
        if (k == b->ndim)
            return CKPT_OK;
    }
}

/* ---- from what can be read from its first byte only */

/* The elements that begin in bytes [at, at + n) of the storage, which are in the scratch. Dimensions go from the largest
 * stride to the smallest; of each only the indexes that can lead there. */
static void pick(const box *b, uint64_t at, uint64_t n)
{
    uint64_t reach[CKPT__COPY_DIMS + 1], from[CKPT__COPY_DIMS + 1], place[CKPT__COPY_DIMS + 1];
    uint64_t next[CKPT__COPY_DIMS], end[CKPT__COPY_DIMS];
    uint32_t depth = 0, ndim = b->ndim;
    bool down = true;
    reach[ndim] = 0;
    for (uint32_t k = ndim; k-- > 0;) {
        const dim *d = &b->dims[b->by_stride[ndim - 1 - k]];
        reach[k] = reach[k + 1] + (d->n - 1) * d->stride;
    }
    from[0] = b->begin;
    place[0] = 0;
    for (;;) {
        const dim *d = &b->dims[b->by_stride[ndim - 1 - depth]];
        if (down) {
            uint64_t o = from[depth], last = o + reach[depth + 1];
            next[depth] = 0;
            end[depth] = o >= at + n ? 0 : d->n;
            if (d->stride) {
                next[depth] = last < at ? (at - last + d->stride - 1) / d->stride : 0;
                uint64_t most = o < at + n ? (at + n - 1 - o) / d->stride + 1 : 0;
                end[depth] = most < d->n ? most : d->n;
            } else if (last < at)
                end[depth] = 0;
        }
        if (depth == ndim - 1) {
            for (uint64_t i = next[depth]; i < end[depth]; i++)
                memcpy(b->to + place[depth] + i * d->place, b->scratch + (from[depth] + i * d->stride - at), b->size);
            next[depth] = end[depth];
        }
        if (next[depth] < end[depth]) {
            from[depth + 1] = from[depth] + next[depth] * d->stride;
            place[depth + 1] = place[depth] + next[depth] * d->place;
            next[depth]++;
            depth++;
            down = true;
        } else if (depth-- == 0)
            return;
        else
            down = false;
    }
}

static ckpt_status fill_in_order(box *b, ckpt__decoder *decoder, ckpt_error *err)
{
    uint64_t end = b->begin + b->size, step = CKPT__SCRATCH / b->size * b->size;
    for (uint32_t i = 0; i < b->ndim; i++)
        end += (b->dims[i].n - 1) * b->dims[i].stride;
    ckpt_status status = ckpt__decoder_skip(decoder, b->begin - decoder->produced, err);
    for (uint64_t at = b->begin; status == CKPT_OK && at < end; at += step) {
        uint64_t n = end - at < step ? end - at : step;
        if ((status = ckpt__decoder_read(decoder, b->scratch, (size_t)n, err)) == CKPT_OK)
            pick(b, at, n);
    }
    return status;
}

ckpt_status ckpt__gather(const ckpt__source *source, const ckpt__extent *e, const ckpt__copy_box *copy, uint64_t begin,
                         size_t size, void *to, unsigned char *scratch, ckpt__decoder *decoder, const char *what,
                         ckpt_error *err)
{
    box b;
    memset(&b, 0, sizeof b);
    b.ndim = copy->n ? copy->n : 1;
    b.dims[0] = (dim){.n = 1, .stride = size, .place = size}; /* one element */
    for (uint32_t i = 0; i < copy->n; i++)
        b.dims[i] = (dim){.n = copy->size[i], .stride = copy->from_stride[i], .place = copy->to_stride[i]};
    sort_by_stride(&b);
    b.begin = begin;
    b.size = size;
    b.source = source;
    b.extent = e;
    b.scratch = scratch;
    b.to = to;
    return decoder ? fill_in_order(&b, decoder, err) : fill_by_tiles(&b, what, err);
}
