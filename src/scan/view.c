/* scan/view.c - the bytes that a scan looks at: of a file, of memory, or of a deflated stream, of which no more is
 * inflated than somebody reads. Whatever is looked at is taken from the job's budget. */
#include "scan/work.h"

#include <stdlib.h>
#include <zlib.h>

enum { BLOCK = 64 << 10 };

/* Bytes of one of three kinds: a file (memory false), memory (memory true, parent NULL), or a stream that is being
 * inflated (memory true, parent set). A stream that has ended is memory from then on. Spans of one view share the
 * bytes, so the view counts its references, and the last one frees it. */
struct ckpt__scan_view {
    size_t references; /* spans and streams that hold this view */
    bool memory;
    uint32_t file;    /* number in the source, of a file */
    uint64_t size;    /* bytes, of a file */
    ckpt__buf bytes;  /* owned. Of memory: all; of a stream: as far as it is inflated */
    uint64_t counted; /* bytes of this view that job->memory has */
    /* a stream */
    ckpt__scan_view *parent; /* has the coded bytes; a reference is held. NULL: it ended, or this is none */
    uint64_t at, left;       /* coded bytes of the parent: the next to be read, how many are left */
    z_stream z;              /* means something while open */
    bool open, capped, raw;  /* z is set up; a limit or short memory stopped it; no zlib or gzip header */
    bool between;            /* members of one stream: Python's readers take them for one */
    unsigned char *in;       /* heap, owned: BLOCK coded bytes; NULL: it ended, or this is none */
};

static ckpt__scan_view *new_view(void)
{
    ckpt__scan_view *v = calloc(1, sizeof *v);
    if (v)
        v->references = 1;
    return v;
}

ckpt__scan_view *ckpt__scan_view_file(ckpt__scan_job *job, uint32_t file)
{
    ckpt__scan_view *v = new_view();
    if (v) {
        v->file = file;
        v->size = job->source->files[file].size;
    }
    return v;
}

static void count_memory(ckpt__scan_job *job, ckpt__scan_view *v)
{
    job->memory += v->bytes.size - v->counted;
    v->counted = v->bytes.size;
}

ckpt__scan_view *ckpt__scan_view_memory(ckpt__scan_job *job, ckpt__buf *bytes)
{
    ckpt__scan_view *v = new_view();
    if (!v)
        return NULL;
    v->memory = true;
    v->bytes = *bytes;
    *bytes = (ckpt__buf){0};
    count_memory(job, v);
    return v;
}

ckpt__scan_view *ckpt__scan_view_inflate(ckpt__scan_job *job, const ckpt__scan_span *span, bool raw)
{
    ckpt__scan_view *v = new_view();
    if (!v)
        return NULL;
    v->memory = true;
    v->in = malloc(BLOCK);
    v->open = v->in && inflateInit2(&v->z, raw ? -MAX_WBITS : MAX_WBITS + 32) == Z_OK;
    if (!v->open) {
        ckpt__scan_view_drop(job, v);
        return NULL;
    }
    v->raw = raw;
    v->parent = ckpt__scan_view_keep(span->view);
    v->at = span->at;
    v->left = span->size;
    return v;
}

ckpt__scan_view *ckpt__scan_view_keep(ckpt__scan_view *v)
{
    v->references++;
    return v;
}

static void end_stream(ckpt__scan_job *job, ckpt__scan_view *v)
{
    ckpt__scan_view *parent = v->parent;
    if (v->open)
        inflateEnd(&v->z);
    v->open = false;
    free(v->in);
    v->in = NULL;
    v->parent = NULL;
    ckpt__scan_view_drop(job, parent);
}

/* Streams in streams are no deeper than CKPT__SCAN_DEPTH. */
void ckpt__scan_view_drop(ckpt__scan_job *job, ckpt__scan_view *v)
{
    if (!v || --v->references > 0)
        return;
    end_stream(job, v);
    job->memory -= v->counted;
    ckpt__buf_free(&v->bytes);
    free(v);
}

static bool spend(ckpt__scan_job *job, uint64_t n)
{
    if (job->budget < n) {
        job->over = true;
        return false;
    }
    job->budget -= n;
    return true;
}

/* The next block of what is to be inflated. */
static void read_coded(ckpt__scan_job *job, ckpt__scan_view *v)
{
    uint64_t there = ckpt__scan_view_size(job, v->parent, v->at + BLOCK);
    uint64_t have = there > v->at ? there - v->at : 0;
    size_t n = v->left < BLOCK ? (size_t)v->left : BLOCK;
    n = have < n ? (size_t)have : n;
    if (n && ckpt__scan_view_read(job, v->parent, v->at, v->in, n, NULL) < 0)
        n = 0;
    v->z.next_in = v->in;
    v->z.avail_in = (uInt)n;
    v->at += n;
    v->left = n ? v->left - n : 0;
}

/* To the next member, over the zeros that may lie before it. */
static void next_member(ckpt__scan_view *v)
{
    while (v->z.avail_in > 0 && *v->z.next_in == 0) {
        v->z.next_in++;
        v->z.avail_in--;
    }
    if (v->z.avail_in > 0) {
        inflateReset(&v->z);
        v->between = false;
    }
}

/* Inflates one block more; false: there is no more. */
static bool inflate_more(ckpt__scan_job *job, ckpt__scan_view *v)
{
    if (!v->parent)
        return false;
    if (v->bytes.size + BLOCK > CKPT__SCAN_STREAM_MAX || job->memory + BLOCK > job->memory_max || !spend(job, BLOCK)) {
        v->capped = true;
        return false;
    }
    if (v->z.avail_in == 0 && v->left > 0)
        read_coded(job, v);
    if (v->between)
        next_member(v);
    if (v->between && v->left > 0)
        return true; /* nothing but zeros so far */
    if (!ckpt__buf_reserve(&v->bytes, BLOCK + 1)) {
        v->capped = true;
        return false;
    }
    v->z.next_out = (unsigned char *)v->bytes.data + v->bytes.size;
    v->z.avail_out = BLOCK;
    int end = v->between ? Z_DATA_ERROR : inflate(&v->z, Z_NO_FLUSH);
    size_t made = BLOCK - v->z.avail_out;
    v->bytes.size += made;
    count_memory(job, v);
    v->between = end == Z_STREAM_END && !v->raw && (v->z.avail_in > 0 || v->left > 0);
    if ((end != Z_OK && !v->between) || (made == 0 && v->z.avail_in == 0 && v->left == 0))
        end_stream(job, v); /* its end, or what is broken: an unpickler reads what came before */
    return true;
}

uint64_t ckpt__scan_view_size(ckpt__scan_job *job, ckpt__scan_view *v, uint64_t want)
{
    if (!v->memory)
        return v->size;
    while (v->bytes.size < want && inflate_more(job, v))
        ;
    return v->bytes.size;
}

bool ckpt__scan_view_capped(const ckpt__scan_view *v)
{
    return v->capped;
}

ckpt_status ckpt__scan_view_read(ckpt__scan_job *job, ckpt__scan_view *v, uint64_t at, void *dst, size_t n,
                                 ckpt_error *err)
{
    if (!spend(job, n))
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "more than scan reads");
    if (!v->memory)
        return ckpt__source_read(job->source, v->file, at, dst, n, err);
    uint64_t size = at + n < at ? 0 : ckpt__scan_view_size(job, v, at + n);
    if (size < at + n || at + n < at)
        return ckpt__fail(err, v->capped ? CKPT_E_LIMIT : CKPT_E_DAMAGED, NULL,
                          v->capped ? "inflates to more than scan reads" : "ends before");
    if (n)
        memcpy(dst, v->bytes.data + at, n);
    return CKPT_OK;
}

size_t ckpt__scan_head(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t at, void *dst, size_t n)
{
    uint64_t end, size;
    if (at >= span->size || !ckpt__add(span->at + at, n, &end))
        return 0;
    size = ckpt__scan_view_size(job, span->view, end);
    uint64_t have = size > span->at + at ? size - span->at - at : 0;
    n = span->size - at < n ? (size_t)(span->size - at) : n;
    n = have < n ? (size_t)have : n;
    return n && ckpt__scan_view_read(job, span->view, span->at + at, dst, n, NULL) == CKPT_OK ? n : 0;
}

ckpt_status ckpt__scan_read(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__scan_input *in = ctx;
    return ckpt__scan_view_read(in->job, in->span->view, in->span->at + offset, dst, n, err);
}

ckpt_status ckpt__scan_read_memory(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__scan_memory *m = ctx;
    if (offset > m->size || n > m->size - offset)
        return ckpt__fail(err, CKPT_E_DAMAGED, NULL, "ends before");
    memcpy(dst, m->data + offset, n);
    return CKPT_OK;
}
