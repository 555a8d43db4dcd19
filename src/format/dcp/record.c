/* format/dcp/record.c - one record: a whole archive of torch.save inside a file, or one zstd frame of such an archive. */
#include "codec/zstd.h"
#include "format/dcp/dcp.h"
#include "format/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>

/* All in bytes. A record that is read in one; of a longer one, its first bytes (the pickle, and where its storage begins) and its
 * last (the archive's directory, of which the zip reader looks at END at most); the block of a zstd frame that is decoded at a time. */
enum { SMALL = 128 << 10, HEAD = 8 << 10, END = 66 << 10, BLOCK = 256 << 10 };
/* What an archive of one tensor has beside the tensor: pickle, small records, headers. A frame that decodes to more is refused. */
enum { AROUND = 1 << 20 };
/* Objects that lie one after the other are read together. */
enum { TOGETHER = 1 << 20 };
/* An object is a pickle of a value, which lies in memory. */
static const uint64_t object_max = (uint64_t)1 << 30;

/* ---- the bytes of a record: its first and its last are at hand, the others are read where they are asked for */

typedef struct window {
    const struct ckpt__source *source;
    const char *label;
    uint32_t file;
    uint64_t begin, size; /* in the file; of a frame that was decoded: 0, and the decoded bytes */
    bool decoded;         /* the bytes between head and tail are not at hand */
    unsigned char *head, *tail;
    uint64_t head_size, tail_at; /* the tail ends where the record does */
} window;

static ckpt_status read_window(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const window *w = ctx;
    uint64_t end;
    if (!ckpt__add(offset, n, &end) || end > w->size)
        return ckpt__fail(err, CKPT_E_DAMAGED, w->label, "its record ends at byte %llu of %llu expected",
                          (unsigned long long)w->size, (unsigned long long)offset + n);
    if (end <= w->head_size)
        memcpy(dst, w->head + offset, n);
    else if (w->tail && offset >= w->tail_at)
        memcpy(dst, w->tail + (offset - w->tail_at), n);
    else if (w->decoded)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, w->label,
            "its archive has a directory or a pickle of more than %d bytes: torch writes no such record of "
            "a tensor",
            BLOCK);
    else
        return ckpt__source_read(w->source, w->file, w->begin + offset, dst, n, err);
    return CKPT_OK;
}

static void close_window(window *w)
{
    free(w->head);
    free(w->tail);
}

static ckpt_status open_plain(window *w, ckpt_error *err)
{
    bool small = w->size <= SMALL;
    w->head_size = small ? w->size : HEAD;
    w->head = malloc(w->head_size ? (size_t)w->head_size : 1);
    if (!small) {
        w->tail = malloc(END);
        w->tail_at = w->size - END;
    }
    if (!w->head || (!small && !w->tail))
        return ckpt__fail_memory(err, w->label, SMALL);
    ckpt_status status = ckpt__source_read(w->source, w->file, w->begin, w->head, (size_t)w->head_size, err);
    return status < 0 || small ? status
                               : ckpt__source_read(w->source, w->file, w->begin + w->tail_at, w->tail, END, err);
}

/* ---- a frame */

/* Decodes all of it: fn gets the decoded bytes in order. CKPT_E_DAMAGED: more than `most`, or bytes behind the frame. */
typedef ckpt_status bytes_fn(void *ctx, const unsigned char *bytes, size_t n, ckpt_error *err);
typedef struct frame {
    const window *of; /* begin and size are those of the coded bytes */
    uint64_t most, decoded;
    bytes_fn *fn;
    void *ctx;
    ckpt__zstd *zstd;
    unsigned char *in, *out; /* BLOCK bytes each */
    ckpt__zstd_step step;
} frame;

static ckpt_status take_decoded(frame *f, ckpt_error *err)
{
    size_t n = f->step.done;
    f->decoded += n;
    f->step.done = 0;
    if (f->decoded > f->most)
        return ckpt__fail(err, CKPT_E_DAMAGED, f->of->label,
                          "its zstd frame decodes to more than %llu bytes, which is more than what it holds can have",
                          (unsigned long long)f->most);
    return n ? f->fn(f->ctx, f->out, n, err) : CKPT_OK;
}

static ckpt_status decode_blocks(frame *f, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    uint64_t at = 0;
    f->step = (ckpt__zstd_step){.from = f->in, .to = f->out, .to_size = BLOCK};
    while (status == CKPT_OK && !f->step.ended) {
        if (f->step.at == f->step.from_size) {
            uint64_t left = f->of->size - at;
            f->step.from_size = left < BLOCK ? (size_t)left : BLOCK;
            f->step.at = 0;
            status = ckpt__source_read(f->of->source, f->of->file, f->of->begin + at, f->in, f->step.from_size, err);
            at += f->step.from_size;
        }
        bool starved = f->step.from_size == 0;
        if (status == CKPT_OK)
            status = ckpt__zstd_decode(f->zstd, &f->step, f->of->label, err);
        if (status == CKPT_OK && starved && !f->step.ended && f->step.done == 0)
            return ckpt__fail(err, CKPT_E_DAMAGED, f->of->label, "its zstd frame breaks off");
        if (status == CKPT_OK)
            status = take_decoded(f, err);
    }
    if (status == CKPT_OK && (at < f->of->size || f->step.at < f->step.from_size))
        status = ckpt__fail(err, CKPT_E_DAMAGED, f->of->label, "its zstd frame ends before its record does");
    return status;
}

static ckpt_status decode_frame(frame *f, ckpt_error *err)
{
    ckpt_status status = ckpt__zstd_new(f->of->label, &f->zstd, err);
    f->in = malloc(BLOCK);
    f->out = malloc(BLOCK);
    if (status == CKPT_OK && (!f->in || !f->out))
        status = ckpt__fail_memory(err, f->of->label, 2 * BLOCK);
    if (status == CKPT_OK)
        status = decode_blocks(f, err);
    ckpt__zstd_free(f->zstd);
    free(f->in);
    free(f->out);
    return status;
}

/* The first BLOCK bytes, and of the last BLOCK at least; the tail's buffer has room for twice as many, and its second half moves to the
 * front when it is full. */
typedef struct ends {
    unsigned char *head, *tail;
    size_t head_size, tail_size;
    uint64_t tail_at;
} ends;

static ckpt_status keep_ends(void *ctx, const unsigned char *bytes, size_t n, ckpt_error *err)
{
    ends *e = ctx;
    size_t some = BLOCK - e->head_size < n ? BLOCK - e->head_size : n;
    (void)err;
    memcpy(e->head + e->head_size, bytes, some);
    e->head_size += some;
    if (e->tail_size + n > 2 * BLOCK) {
        size_t drop = e->tail_size - BLOCK;
        memmove(e->tail, e->tail + drop, BLOCK);
        e->tail_size -= drop;
        e->tail_at += drop;
    }
    memcpy(e->tail + e->tail_size, bytes, n); /* n is BLOCK at most */
    e->tail_size += n;
    return CKPT_OK;
}

/* The window becomes that of the decoded bytes. most: of them. */
static ckpt_status open_frame(window *w, uint64_t most, ckpt_error *err)
{
    ends e = {.head = malloc(BLOCK), .tail = malloc(2 * BLOCK)};
    frame f = {.of = w, .most = most, .fn = keep_ends, .ctx = &e};
    ckpt_status status = e.head && e.tail ? decode_frame(&f, err) : ckpt__fail_memory(err, w->label, 3 * BLOCK);
    w->head = e.head;
    w->tail = e.tail;
    if (status < 0)
        return status;
    w->head_size = e.head_size;
    w->tail_at = e.tail_at;
    w->begin = 0;
    w->size = f.decoded;
    w->decoded = true;
    return CKPT_OK;
}

/* ---- a tensor's record */

/* What a damaged record looks like depends on where the damage is; it is a damaged one in any case. */
static ckpt_status blame(ckpt_status status, const window *w, const char *what, const ckpt_error *why, ckpt_error *err)
{
    bool content = status == CKPT_E_FORMAT || status == CKPT_E_DAMAGED || status == CKPT_E_LIMIT ||
                   status == CKPT_E_TOO_NEW || status == CKPT_E_UNSUPPORTED;
    if (content)
        return ckpt__fail(err, CKPT_E_DAMAGED, what, "its record in %s is damaged: %s", w->label, why->message);
    if (err)
        *err = *why;
    return status;
}

static ckpt_status mismatch(const window *w, const char *what, const ckpt__nested_kind *n, const ckpt__index *part,
                            ckpt_error *err)
{
    const ckpt_tensor_info *t = part->tensor_count ? &part->tensors[0].info : NULL;
    char want[200], is[200] = "";
    ckpt__shape_text(want, sizeof want, n->shape, n->ndim);
    if (t && t->shape)
        ckpt__shape_text(is, sizeof is, t->shape, t->ndim);
    if (!t || part->tensor_count != 1 || !part->root || part->root->kind != CKPT_V_TENSOR || !part->tensors[0].whole)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, what,
                          "its record in %s holds something else than one dense tensor, which the list says that it is",
                          w->label);
    if (t->conj || t->neg)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, what,
                          "its record in %s has elements that torch has marked as to be %s, and such records are not "
                          "read: save %s",
                          w->label, t->conj ? "conjugated" : "negated",
                          t->conj ? "what resolve_conj() returns" : "what resolve_neg() returns");
    if (t->extra->quantizer.data)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, what,
                          "its record in %s is a quantized tensor: its scale and zero point lie there and not in the "
                          "list, and without them its codes say nothing. Save what int_repr(), q_scale() and "
                          "q_zero_point() return",
                          w->label);
    return ckpt__fail(
        err, CKPT_E_DAMAGED, what,
        "its record in %s has a tensor of %s %s, where the list says %s %s: list and files are not of one "
        "save, or damaged",
        w->label, ckpt_dtype_name(t->dtype), is, ckpt_dtype_name((ckpt_dtype)n->dtype), want);
}

static bool is_as_said(const ckpt__nested_kind *n, const ckpt__index *part)
{
    const ckpt__tensor *t = part->tensor_count == 1 ? &part->tensors[0] : NULL;
    return t && t->whole && part->root && part->root->kind == CKPT_V_TENSOR && (uint16_t)t->info.dtype == n->dtype &&
           !t->info.conj && !t->info.neg && !t->info.extra->quantizer.data &&
           ckpt__same_shape(t->info.shape, t->info.ndim, n->shape, n->ndim);
}

/* A frame's extents count from the first decoded byte; they are read by decoding. */
static bool set_frame(ckpt__nested_place *place, const ckpt__extent *of, const ckpt__nested *n, ckpt__extent *e)
{
    place->offset = n->offset;
    place->skip = e->offset;
    if (e->coding != CKPT__STORED)
        return false;
    e->coding = CKPT__ZSTD;
    e->length = of->length;
    e->found = place;
    return true;
}

/* Where the elements are: side by side in C order, and nothing else with them; else they are turned from a view as they are read. */
static ckpt_status set_place(ckpt__nested_place *place, const ckpt__extent *of, const ckpt__nested *n,
                             ckpt__index *part, const char *what, ckpt_error *err)
{
    const ckpt__tensor *t = &part->tensors[0];
    ckpt__extent *e = &part->storages[t->storage].extent;
    if (e->big_endian)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, what,
            "its record was written by a big-endian machine: distributed checkpoints of such are not read");
    if (n->kind->zstd && !set_frame(place, of, n, e))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, what, "its record is compressed twice, as torch writes none");
    bool plain = t->info.offset == 0 && t->info.nbytes == e->size &&
                 ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim);
    place->extent = *e;
    if (plain)
        return CKPT_OK;
    place->extent = (ckpt__extent){.file = of->file,
                                   .coding = CKPT__TURNED,
                                   .has_crc = e->has_crc,
                                   .found = place,
                                   .length = of->length,
                                   .size = of->size};
    place->part = part;
    return CKPT_OK;
}

ckpt_status ckpt__dcp_look(const struct ckpt__source *source, const ckpt__extent *extent, const char *what,
                           ckpt__nested_place **out, ckpt_error *err)
{
    char label[600];
    const ckpt__nested *n = extent->nested;
    window w = {.source = source, .file = extent->file, .begin = n->offset, .size = extent->length};
    ckpt__read_request request = {.source = (ckpt__source *)(uintptr_t)source, .file = extent->file};
    ckpt__index *part = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    uint64_t most;
    w.label = ckpt__source_label(source, extent->file, label, sizeof label);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ckpt__fail_memory(err, what, sizeof **out);
    if (!ckpt__add(extent->size, AROUND, &most))
        most = UINT64_MAX;
    ckpt_status status = n->kind->zstd ? open_frame(&w, most, &why) : open_plain(&w, &why);
    const ckpt__torch_window torch = {read_window, &w, w.size, w.begin, NULL, w.label};
    if (status == CKPT_OK)
        status = ckpt__torch_read_window(&request, &torch, &part, &why);
    if (status < 0)
        status = blame(status, &w, what, &why, err);
    else if (!is_as_said(n->kind, part))
        status = mismatch(&w, what, n->kind, part, err);
    else
        status = set_place(*out, extent, n, part, what, err);
    close_window(&w);
    if (part && (*out)->part != part)
        ckpt__index_free(part);
    if (status < 0) {
        ckpt__nested_place_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- an object's record */

void ckpt__dcp_cache_free(ckpt__dcp_cache *c)
{
    free(c->bytes);
    memset(c, 0, sizeof *c);
}

/* The record's bytes, as they lie in the file. They stay until the next is asked for. */
static ckpt_status read_together(ckpt__dcp *d, const window *w, ckpt__dcp_cache *c, const char **bytes, ckpt_error *err)
{
    uint64_t all = d->request->source->files[w->file].size;
    bool held = c->bytes && c->file == w->file && w->begin >= c->begin && w->begin - c->begin <= c->size &&
                w->size <= c->size - (w->begin - c->begin);
    if (!held) {
        uint64_t n = all - w->begin < TOGETHER ? all - w->begin : TOGETHER;
        n = w->size > n ? w->size : n;
        ckpt__dcp_cache_free(c);
        if (n > object_max || !(c->bytes = malloc(n ? (size_t)n : 1)))
            return ckpt__fail_memory(err, w->label, n);
        ckpt_status status = ckpt__source_read(d->request->source, w->file, w->begin, c->bytes, (size_t)n, err);
        if (status < 0)
            return status;
        *c = (ckpt__dcp_cache){c->bytes, (size_t)n, w->begin, w->file};
    }
    *bytes = c->bytes + (w->begin - c->begin);
    return CKPT_OK;
}

static ckpt_status append(void *ctx, const unsigned char *bytes, size_t n, ckpt_error *err)
{
    ckpt__buf *b = ctx;
    ckpt__buf_add(b, bytes, n);
    return b->failed ? ckpt__fail_memory(err, "an object", b->size + n) : CKPT_OK;
}

typedef struct memory {
    const char *bytes, *label;
    uint64_t size;
} memory;

static ckpt_status read_memory(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const memory *m = ctx;
    if (offset > m->size || n > m->size - offset)
        return ckpt__fail(err, CKPT_E_DAMAGED, m->label, "its record ends at byte %llu of %llu expected",
                          (unsigned long long)m->size, (unsigned long long)offset + n);
    memcpy(dst, m->bytes + offset, n);
    return CKPT_OK;
}

/* A frame is decoded to memory, where the bytes of tensors in it stay. */
static ckpt_status unpack(ckpt__dcp *d, const window *w, memory *m, ckpt_error *err)
{
    ckpt__buf b = {0};
    frame f = {.of = w, .most = ckpt__inflated_limit(w->size, true), .fn = append, .ctx = &b};
    ckpt_status status = decode_frame(&f, err);
    const char *copy = status == CKPT_OK ? ckpt__arena_copy(d->index->arena, b.data ? b.data : "", b.size) : NULL;
    if (status == CKPT_OK && !copy)
        status = ckpt__fail_memory(err, w->label, b.size);
    m->bytes = copy;
    m->size = b.size;
    ckpt__buf_free(&b);
    return status;
}

ckpt_status ckpt__dcp_object(ckpt__dcp *d, const ckpt__dcp_chunk *c, ckpt__dcp_cache *cache, ckpt__index **out,
                             ckpt_error *err)
{
    char label[600];
    window w = {.source = d->request->source, .file = d->files[c->file].number, .begin = c->offset, .size = c->length};
    ckpt__read_request request = {.source = d->request->source, .file = w.file, .arena = d->index->arena};
    const char *name = d->items[c->item].name.data;
    memory m = {.size = c->length};
    ckpt_error why = CKPT_ERROR_INIT;
    m.label = w.label = ckpt__source_label(w.source, w.file, label, sizeof label);
    *out = NULL;
    if (!c->zstd && c->length > object_max)
        return ckpt__fail(err, CKPT_E_LIMIT, name,
                          "its record in %s has %llu bytes, and a value of more than %llu is not read%s", w.label,
                          (unsigned long long)c->length, (unsigned long long)object_max,
                          ckpt__dcp_goes_on(d) ? "" : "; ckpt-migrate --salvage leaves it out and keeps the others");
    ckpt_status status = c->zstd ? unpack(d, &w, &m, &why) : read_together(d, &w, cache, &m.bytes, &why);
    const ckpt__torch_window torch = {read_memory, &m, m.size, c->offset, c->zstd ? m.bytes : NULL, w.label};
    if (status == CKPT_OK)
        status = ckpt__torch_read_window(&request, &torch, out, &why);
    return status < 0 ? blame(status, &w, name, &why, err) : CKPT_OK;
}
