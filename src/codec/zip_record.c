/* codec/zip_record.c - local headers, data descriptors, and the bytes of small records. */
#include "codec/zip_priv.h"
#include "codec/crc32.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <zlib.h>

enum { LOCAL_SIZE = 30, DESCRIPTOR_MAX = 24, HAS_DESCRIPTOR = 8 };

static ckpt_status damaged(const ckpt__zip *z, const ckpt__zip_record *r, ckpt_error *err, const char *what)
{
    char shown[256];
    ckpt__escape(shown, sizeof shown, r->name.data, r->name.size);
    return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label, "record '%s': %s", shown, what);
}

/* ---- local headers */

/* The local header's own sizes: zero where a descriptor follows, all ones where they stand in the zip64 field. */
static bool local_sizes_agree(const ckpt__zip_record *r, const unsigned char *local)
{
    uint32_t crc = le32(local + 14), csize = le32(local + 18), usize = le32(local + 22);
    if ((r->flags & HAS_DESCRIPTOR) && crc == 0 && csize == 0 && usize == 0)
        return true;
    return (crc == r->crc || (crc == 0 && (r->flags & HAS_DESCRIPTOR))) && (csize == r->csize || csize == 0xFFFFFFFF) &&
           (usize == r->usize || usize == 0xFFFFFFFF);
}

enum { FEW_LINES = 160, LINES = 512, MANY_LINES = 64 << 10, NEAR = 8 << 10 }; /* bytes */

/* What was read last. Records are looked at in the order of the file, and the descriptor behind one lies just before the
 * local header of the next: both come in one read. Of records that lie near each other a read has many: in the page cache it takes as long as
 * one of a few lines and a copy of 14 KiB. */
typedef struct view {
    unsigned char lines[LINES];
    unsigned char *window; /* borrowed: MANY_LINES bytes; NULL: there is no memory for it, or no use */
    size_t most;           /* so many at a time: a far record's few lines cost more than all else here */
    const unsigned char *bytes;
    uint64_t at;
    size_t n;
    ckpt__buf more; /* for a name that is longer */
} view;

/* The n bytes at `at`; they do not reach beyond the directory. */
static ckpt_status look(const ckpt__zip *z, view *v, uint64_t at, size_t n, const unsigned char **p, ckpt_error *err)
{
    if (n > LINES) {
        v->more.size = 0;
        if (!ckpt__buf_reserve(&v->more, n))
            return ckpt__fail_memory(err, z->in.label, n);
        *p = (const unsigned char *)v->more.data;
        return z->in.read(z->in.ctx, at, v->more.data, n, err);
    }
    if (at < v->at || n > v->n || at - v->at > v->n - n) {
        v->at = at;
        v->n = 0;
        size_t most = n < v->most ? v->most : n;
        unsigned char *to = most > LINES ? v->window : v->lines;
        most = z->directory - at < most ? (size_t)(z->directory - at) : most;
        ckpt_status status = z->in.read(z->in.ctx, at, to, most, err);
        if (status < 0)
            return status;
        v->bytes = to;
        v->n = most;
    }
    *p = v->bytes + (at - v->at);
    return CKPT_OK;
}

static ckpt_status check_local(const ckpt__zip *z, ckpt__zip_record *r, view *v, ckpt_error *err)
{
    uint64_t need = LOCAL_SIZE + (uint64_t)r->name.size;
    const unsigned char *p;
    if (r->header > z->directory || z->directory - r->header < need)
        return damaged(z, r, err,
                       "its local header lies beyond the directory: the file is truncated or the offset is wrong");
    ckpt_status status = look(z, v, r->header, (size_t)need, &p, err);
    if (status < 0)
        return status;
    if (memcmp(p, "PK\3\4", 4) != 0)
        return damaged(z, r, err, "no local header where the directory says");
    size_t name = le16(p + 26), extra = le16(p + 28);
    if (name != r->name.size || memcmp(p + LOCAL_SIZE, r->name.data, name) != 0) {
        char central[200], local[200];
        ckpt__escape(central, sizeof central, r->name.data, r->name.size);
        ckpt__escape(local, sizeof local, (const char *)p + LOCAL_SIZE, name < r->name.size ? name : r->name.size);
        return ckpt__fail(err, CKPT_E_FORMAT, z->in.label,
                          "the directory says '%s' and the record itself '%s': readers would "
                          "disagree on what it is",
                          central, local);
    }
    if (le16(p + 8) != r->method)
        return damaged(z, r, err, "its local header names another compression method than the directory");
    if ((le16(p + 6) & 1) != 0)
        return damaged(z, r, err, "its local header says that it is encrypted, the directory that it is not");
    if (!local_sizes_agree(r, p))
        return damaged(z, r, err, "its local header and the directory give different sizes or checksums");
    r->data = r->header + LOCAL_SIZE + name + extra;
    if (r->data > z->directory || r->csize > z->directory - r->data)
        return damaged(z, r, err, "its data reaches beyond the directory: the file is truncated or the size is wrong");
    return CKPT_OK;
}

/* With or without PK\7\8, sizes of 4 or 8 bytes: four forms exist, and a writer need not say which. */
static bool descriptor_agrees(const ckpt__zip_record *r, const unsigned char *d, size_t n, size_t *used)
{
    for (size_t sign = 4;; sign = 0) {
        if (sign == 0 || (n >= 4 && memcmp(d, "PK\7\x08", 4) == 0))
            for (size_t width = 4; width <= 8; width += 4) {
                const unsigned char *p = d + sign;
                *used = sign + 4 + 2 * width;
                if (*used > n || le32(p) != r->crc)
                    continue;
                uint64_t csize = width == 4 ? le32(p + 4) : le64(p + 4);
                uint64_t usize = width == 4 ? le32(p + 8) : le64(p + 12);
                if (csize == r->csize && usize == r->usize)
                    return true;
            }
        if (sign == 0)
            return false;
    }
}

static ckpt_status check_descriptor(const ckpt__zip *z, const ckpt__zip_record *r, uint64_t *end, view *v,
                                    ckpt_error *err)
{
    const unsigned char *d;
    uint64_t left = z->directory - *end;
    size_t used = 0, n = left < DESCRIPTOR_MAX ? (size_t)left : DESCRIPTOR_MAX;
    ckpt_status status = look(z, v, *end, n, &d, err);
    if (status < 0)
        return status;
    if (!descriptor_agrees(r, d, n, &used))
        return damaged(z, r, err, "the descriptor behind its data contradicts the directory");
    *end += used;
    return CKPT_OK;
}

/* ---- in the order of the file */

static int by_header(const void *a, const void *b)
{
    const ckpt__zip_record *const *x = a, *const *y = b;
    return (*x)->header < (*y)->header ? -1 : (*x)->header > (*y)->header;
}

static ckpt_status overlap(const ckpt__zip *z, const ckpt__zip_record *x, const ckpt__zip_record *y, ckpt_error *err)
{
    char a[200], b[200];
    ckpt__escape(a, sizeof a, x->name.data, x->name.size);
    ckpt__escape(b, sizeof b, y->name.data, y->name.size);
    return ckpt__fail(err, CKPT_E_FORMAT, z->in.label, "records '%s' and '%s' overlap at byte %llu", a, b,
                      (unsigned long long)y->header);
}

/* Records are checked in pieces of so many, of which two threads take the next one in turn. */
enum { PIECE = 256 };

struct ckpt__zip_work {
    ckpt__zip *z;
    ckpt__zip_record **records; /* in the order of the file */
    size_t pieces;
    atomic_size_t next; /* piece that nobody has taken */
    uint64_t *ends;     /* of the last record of each piece */
};

/* What one of the threads found: the first piece that is wrong among those that it took. */
typedef struct ckpt__zip_share {
    struct ckpt__zip_work *work;
    size_t piece;
    ckpt_status status;
    ckpt_error err;
} share;

static ckpt_status check_piece(struct ckpt__zip_work *w, size_t piece, unsigned char *window, ckpt_error *err)
{
    const ckpt__zip *z = w->z;
    view v = {.window = window};
    uint64_t end = 0; /* of the record before */
    ckpt_status status = CKPT_OK;
    size_t first = piece * PIECE, last = z->count - first < PIECE ? z->count : first + PIECE;
    for (size_t i = first; status == CKPT_OK && i < last; i++) {
        ckpt__zip_record *r = w->records[i];
        v.most = r->csize >= NEAR ? FEW_LINES : window ? MANY_LINES : LINES;
        status = check_local(z, r, &v, err);
        if (status == CKPT_OK && i > first && r->header < end)
            status = overlap(z, w->records[i - 1], r, err);
        if (status < 0)
            break;
        end = r->data + r->csize;
        if (r->flags & HAS_DESCRIPTOR)
            status = check_descriptor(z, r, &end, &v, err);
    }
    w->ends[piece] = end;
    ckpt__buf_free(&v.more);
    return status;
}

/* Pieces are taken in order: where this ends at a wrong one, everything before it was or is being looked at. */
static void *take_pieces(void *arg)
{
    share *s = arg;
    struct ckpt__zip_work *w = s->work;
    unsigned char *window = w->pieces > 1 ? malloc(MANY_LINES) : NULL;
    s->err = (ckpt_error)CKPT_ERROR_INIT;
    s->status = CKPT_OK;
    for (size_t i; s->status == CKPT_OK && (i = atomic_fetch_add(&w->next, 1)) < w->pieces;) {
        s->piece = i;
        s->status = check_piece(w, i, window, &s->err);
    }
    free(window);
    return NULL;
}

static void free_work(struct ckpt__zip_work *w)
{
    if (w) {
        free(w->records);
        free(w->ends);
        free(w);
    }
}

static ckpt_status new_work(ckpt__zip *z, struct ckpt__zip_work **out, ckpt_error *err)
{
    bool sorted = true;
    struct ckpt__zip_work *w = *out = calloc(1, sizeof *w);
    if (w) {
        w->z = z;
        w->pieces = (z->count + PIECE - 1) / PIECE;
        w->records = calloc(z->count + 1, sizeof *w->records);
        w->ends = calloc(w->pieces + 1, sizeof *w->ends);
    }
    if (!w || !w->records || !w->ends) {
        free_work(w);
        return ckpt__fail_memory(err, z->in.label, z->count * sizeof *w->records);
    }
    for (size_t i = 0; i < z->count; i++) {
        w->records[i] = &z->records[i];
        sorted = sorted && (i == 0 || w->records[i - 1]->header <= w->records[i]->header);
    }
    if (!sorted)
        qsort(w->records, z->count, sizeof *w->records, by_header);
    return CKPT_OK;
}

/* The first thing that is wrong in the order of the file. b may be NULL. */
static ckpt_status conclude(const struct ckpt__zip_work *w, const share *a, const share *b, ckpt_error *err)
{
    const share *first = a->status < 0 ? a : NULL;
    if (b && b->status < 0 && (!first || b->piece < first->piece))
        first = b;
    for (size_t i = 1; i < (first ? first->piece : w->pieces); i++)
        if (w->records[i * PIECE]->header < w->ends[i - 1])
            return overlap(w->z, w->records[i * PIECE - 1], w->records[i * PIECE], err);
    if (first && err)
        *err = first->err;
    return first ? first->status : CKPT_OK;
}

ckpt_status ckpt__zip_check_locals(ckpt__zip *z, ckpt_error *err)
{
    share all = {.work = NULL};
    ckpt_status status = new_work(z, &all.work, err);
    if (status < 0)
        return status;
    take_pieces(&all);
    status = conclude(all.work, &all, NULL, err);
    free_work(all.work);
    return status;
}

/* ---- ahead */

enum { MANY = 512 }; /* a thread takes as long to start as some fifty reads */

ckpt_status ckpt__zip_check_ahead(ckpt__zip *z, ckpt_error *err)
{
    sigset_t all, before;
    share *s = z->count < MANY ? NULL : calloc(1, sizeof *s);
    if (!s)
        return ckpt__zip_check_locals(z, err);
    ckpt_status status = new_work(z, &s->work, err);
    if (status < 0) {
        free(s);
        return status;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the program's signals are its own threads' */
    bool ahead = pthread_create(&z->checker, NULL, take_pieces, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ahead) {
        z->ahead = s;
        return CKPT_OK;
    }
    free_work(s->work);
    free(s);
    return ckpt__zip_check_locals(z, err);
}

/* What is left is done by both. */
ckpt_status ckpt__zip_checked(ckpt__zip *z, ckpt_error *err)
{
    share own = {.work = z->ahead ? z->ahead->work : NULL};
    if (!z->ahead) {
        if (z->check_status < 0 && err)
            *err = z->check_error;
        return z->check_status;
    }
    take_pieces(&own);
    pthread_join(z->checker, NULL);
    z->check_error = (ckpt_error)CKPT_ERROR_INIT;
    z->check_status = conclude(own.work, z->ahead, &own, &z->check_error);
    free_work(own.work);
    free(z->ahead);
    z->ahead = NULL;
    return ckpt__zip_checked(z, err);
}

void ckpt__zip_abandon(ckpt__zip *z)
{
    if (z->ahead)
        atomic_store(&z->ahead->work->next, z->ahead->work->pieces);
    ckpt__zip_checked(z, NULL);
}

/* A record that is read before its turn; the thread writes to the one in the table. */
static ckpt_status settle(const ckpt__zip *z, ckpt__zip_record *copy, ckpt_error *err)
{
    view v = {.most = FEW_LINES};
    ckpt_status status = check_local(z, copy, &v, err);
    ckpt__buf_free(&v.more);
    return status;
}

/* ---- reading */

enum { WINDOW = 64 << 10 };

typedef struct inflater {
    z_stream stream;
    unsigned char in[WINDOW], out[WINDOW];
} inflater;

/* Inflates until the stream ends; what comes out is bounded by the size that the directory gives. */
static ckpt_status inflate_all(const ckpt__zip *z, const ckpt__zip_record *r, inflater *f, ckpt__buf *b,
                               ckpt_error *err)
{
    uint64_t at = r->data, left = r->csize, made = 0;
    for (int end = Z_OK; end != Z_STREAM_END;) {
        if (f->stream.avail_in == 0 && left > 0) {
            size_t n = left < WINDOW ? (size_t)left : WINDOW;
            ckpt_status status = z->in.read(z->in.ctx, at, f->in, n, err);
            if (status < 0)
                return status;
            f->stream.next_in = f->in;
            f->stream.avail_in = (uInt)n;
            at += n;
            left -= n;
        }
        f->stream.next_out = f->out;
        f->stream.avail_out = WINDOW;
        end = inflate(&f->stream, Z_NO_FLUSH);
        size_t n = WINDOW - f->stream.avail_out;
        if (end == Z_MEM_ERROR)
            return ckpt__fail_memory(err, z->in.label, WINDOW);
        if ((end != Z_OK && end != Z_STREAM_END) || (end == Z_OK && n == 0 && f->stream.avail_in == 0 && left == 0))
            return damaged(z, r, err, "its deflated data is broken or cut off");
        if (n > r->usize - made)
            return damaged(z, r, err, "it inflates to more bytes than the directory says");
        ckpt__buf_add(b, f->out, n);
        made += n;
        if (b->failed)
            return ckpt__fail_memory(err, z->in.label, r->usize);
    }
    if (made != r->usize || left != 0 || f->stream.avail_in != 0)
        return damaged(z, r, err, "it does not inflate to the size that the directory says");
    return CKPT_OK;
}

static ckpt_status read_deflated(const ckpt__zip *z, const ckpt__zip_record *r, ckpt__buf *b, ckpt_error *err)
{
    inflater *f = calloc(1, sizeof *f);
    if (!f)
        return ckpt__fail_memory(err, z->in.label, sizeof *f);
    ckpt_status status;
    if (inflateInit2(&f->stream, -MAX_WBITS) != Z_OK) {
        status = ckpt__fail_memory(err, z->in.label, sizeof *f);
    } else {
        status = inflate_all(z, r, f, b, err);
        inflateEnd(&f->stream);
    }
    free(f);
    return status;
}

static ckpt_status read_stored(const ckpt__zip *z, const ckpt__zip_record *r, ckpt__buf *b, ckpt_error *err)
{
    if (!ckpt__buf_reserve(b, (size_t)r->usize + 1))
        return ckpt__fail_memory(err, z->in.label, r->usize);
    ckpt_status status = z->in.read(z->in.ctx, r->data, b->data + b->size, (size_t)r->usize, err);
    if (status == CKPT_OK) {
        b->size += (size_t)r->usize;
        b->data[b->size] = '\0';
    }
    return status;
}

/* All of a record but where its data lies, which a thread may be finding out. */
static ckpt__zip_record without_data(const ckpt__zip_record *r)
{
    return (ckpt__zip_record){.name = r->name,
                              .method = r->method,
                              .flags = r->flags,
                              .folder = r->folder,
                              .has_crc = r->has_crc,
                              .crc = r->crc,
                              .header = r->header,
                              .csize = r->csize,
                              .usize = r->usize};
}

ckpt_status ckpt__zip_read(const ckpt__zip *z, const ckpt__zip_record *r, uint64_t limit, ckpt__buf *b, ckpt_error *err)
{
    ckpt__zip_record own;
    if (z->ahead) {
        own = without_data(r);
        r = &own;
        ckpt_status status = settle(z, &own, err);
        if (status < 0)
            return status;
    }
    if (r->usize > limit || r->usize > SIZE_MAX / 2) {
        char shown[256];
        ckpt__escape(shown, sizeof shown, r->name.data, r->name.size);
        return ckpt__fail(err, CKPT_E_LIMIT, z->in.label, "record '%s' has %llu bytes; the limit for it is %llu", shown,
                          (unsigned long long)r->usize, (unsigned long long)limit);
    }
    size_t before = b->size;
    ckpt_status status = r->method == CKPT__ZIP_DEFLATED ? read_deflated(z, r, b, err) : read_stored(z, r, b, err);
    if (status < 0)
        return status;
    if (r->has_crc && r->usize && ckpt__crc32(0, b->data + before, b->size - before) != r->crc)
        return damaged(z, r, err, "its CRC-32 is wrong: the file was altered or damaged after it was written");
    return CKPT_OK;
}
