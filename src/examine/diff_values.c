/* examine/diff_values.c - the elements of two tensors side by side, block by block. Equal bytes of one dtype need no further
 * look; where they differ, and between dtypes, values are compared as numbers: in double where that holds both exactly,
 * else an integer of 64 bits is held against the whole part of the other, and its fraction for itself. */
#include "examine/diff_work.h"

#include <math.h>
#include <stdlib.h>
#include "engine/elements.h"
#include "model/numbers.h"

__extension__ typedef __int128 wide;

enum {
    BLOCK_VALUES = 32 << 10, /* that are read of each at a time */
    SOME = 1024,             /* that are looked at as numbers at a time */
    VIEW_MEMORY = 32 << 20
};

/* Two tensors that are compared. It is on the heap, for its arrays. */
typedef struct comparer {
    ckpt_diff_tensor *row;             /* borrowed: the answer goes there */
    ckpt__numbers a, b;                /* how bytes of either become numbers */
    bool one_dtype, exact;             /* exact: no tolerance */
    double atol, rtol;                 /* a value of a may be atol + rtol * |value of b| away */
    unsigned char *pa, *pb;            /* heap, owned: blocks of BLOCK_VALUES values, of 16 bytes at most; NULL: nothing
                                   * is compared */
    double xa[2 * SOME], xb[2 * SOME]; /* values as numbers; complex ones take two places */
    int64_t ia[SOME], ib[SOME];        /* integers; those that have no sign, as their bits */
} comparer;

/* ---- one place */

static void note_distance(comparer *c, double distance, double of)
{
    ckpt_diff_tensor *row = c->row;
    double relative = distance == 0 ? 0 : of == 0 || isinf(distance) ? (double)INFINITY : distance / of;
    if (distance > row->max_abs)
        row->max_abs = distance;
    if (relative > row->max_rel)
        row->max_rel = relative;
}

/* NaNs are noted; true: at least one is NaN, and *same says whether that is the same. */
static bool note_nan(comparer *c, bool a, bool b, bool *same)
{
    if (!a && !b)
        return false;
    c->row->nan_mismatch += a != b;
    *same = a && b;
    return true;
}

static bool within(const comparer *c, double distance, double of)
{
    return !c->exact && isfinite(distance) && isfinite(of) && distance <= c->atol + c->rtol * of;
}

static bool same_real(comparer *c, double a, double b)
{
    bool same;
    if (a == b)
        return true;
    if (note_nan(c, isnan(a), isnan(b), &same))
        return same;
    double distance = fabs(a - b);
    note_distance(c, distance, fabs(b));
    return within(c, distance, fabs(b));
}

static bool same_complex(comparer *c, const double *a, const double *b)
{
    bool same;
    if (a[0] == b[0] && a[1] == b[1])
        return true;
    if (note_nan(c, isnan(a[0]) || isnan(a[1]), isnan(b[0]) || isnan(b[1]), &same))
        return same;
    double re = a[0] == b[0] ? 0 : a[0] - b[0], im = a[1] == b[1] ? 0 : a[1] - b[1];
    double distance = hypot(re, im), of = hypot(b[0], b[1]);
    note_distance(c, distance, of);
    return within(c, distance, of);
}

static void note_integers(comparer *c, wide a, wide b)
{
    wide apart = a > b ? a - b : b - a;
    note_distance(c, (double)apart, (double)(b < 0 ? -b : b));
}

/* ---- some places */

/* Same dtype: do the bytes of value i differ? What is packed is told by its values (a sign of zero counts). */
static bool bytes_differ(const comparer *c, const unsigned char *pa, const unsigned char *pb, size_t i)
{
    size_t size = c->a.bits / 8;
    if (size)
        return memcmp(pa + i * size, pb + i * size, size) != 0;
    return c->xa[i] != c->xb[i] || signbit(c->xa[i]) != signbit(c->xb[i]);
}

static bool is_integer(const ckpt__numbers *n)
{
    return n->kind == CKPT__SIGNED || n->kind == CKPT__UNSIGNED;
}

static wide wide_of(const ckpt__numbers *n, int64_t v)
{
    return n->kind == CKPT__SIGNED ? (wide)v : (wide)(uint64_t)v;
}

/* With tolerances too they have to be the same. */
static void look_at_integers(comparer *c, const unsigned char *pa, const unsigned char *pb, size_t n)
{
    ckpt__numbers_load_int(&c->a, pa, n, c->ia);
    ckpt__numbers_load_int(&c->b, pb, n, c->ib);
    for (size_t i = 0; i < n; i++) {
        wide a = wide_of(&c->a, c->ia[i]), b = wide_of(&c->b, c->ib[i]);
        bool differs = a != b || (c->one_dtype && c->a.bits >= 8 && bytes_differ(c, pa, pb, i)); /* bools of 1 and 2 */
        c->row->differing += differs;
        if (a != b)
            note_integers(c, a, b);
    }
}

/* How far an integer of 64 bits is from a finite number: 0 only where both are the same. */
static double wide_apart(wide v, double x)
{
    if (fabs(x) >= 0x1p+66)
        return fabs(x - (double)v);
    wide whole = (wide)x;
    return fabs((double)(v - whole) - (x - (double)whole));
}

static void look_at_wide(comparer *c, const unsigned char *pa, const unsigned char *pb, size_t n)
{
    bool first = c->a.wide;
    const ckpt__numbers *integers = first ? &c->a : &c->b;
    ckpt__numbers_load_int(integers, first ? pa : pb, n, c->ia);
    ckpt__numbers_load(first ? &c->b : &c->a, first ? pb : pa, n, c->xa);
    for (size_t i = 0; i < n; i++) {
        bool same;
        wide v = wide_of(integers, c->ia[i]);
        double of = first ? fabs(c->xa[i]) : fabs((double)v);
        if (note_nan(c, isnan(c->xa[i]), false, &same)) {
            c->row->differing++;
            continue;
        }
        double apart = isinf(c->xa[i]) ? (double)INFINITY : wide_apart(v, c->xa[i]);
        if (apart == 0)
            continue;
        note_distance(c, apart, of);
        c->row->differing += !within(c, apart, of);
    }
}

static void look(comparer *c, const unsigned char *pa, const unsigned char *pb, size_t n)
{
    if (is_integer(&c->a) && is_integer(&c->b)) {
        look_at_integers(c, pa, pb, n);
        return;
    }
    if (c->a.wide || c->b.wide) {
        look_at_wide(c, pa, pb, n);
        return;
    }
    if (c->a.kind == CKPT__NO_NUMBERS) {
        c->row->differing++; /* somewhere in these */
        return;
    }
    ckpt__numbers_load(&c->a, pa, n, c->xa);
    ckpt__numbers_load(&c->b, pb, n, c->xb);
    for (size_t i = 0; i < n; i++) {
        bool same = c->a.kind == CKPT__COMPLEX ? same_complex(c, c->xa + 2 * i, c->xb + 2 * i)
                                               : same_real(c, c->xa[i], c->xb[i]);
        if (c->exact && c->one_dtype)
            same = !bytes_differ(c, pa, pb, i);
        c->row->differing += !same;
    }
}

static size_t bytes_of(const ckpt__numbers *n, size_t values)
{
    return n->bits < 8 ? (values * n->bits + 7) / 8 : values * (n->bits / 8);
}

static void look_at_block(comparer *c, size_t n)
{
    if (c->one_dtype && memcmp(c->pa, c->pb, bytes_of(&c->a, n)) == 0)
        return;
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < SOME ? n - at : SOME;
        const unsigned char *pa = c->pa + bytes_of(&c->a, at), *pb = c->pb + bytes_of(&c->b, at);
        if (!c->one_dtype || memcmp(pa, pb, bytes_of(&c->a, some)) != 0)
            look(c, pa, pb, some);
    }
}

/* ---- two tensors */

static bool comparable(const comparer *c)
{
    if (c->one_dtype)
        return true;
    if (c->a.codes || c->b.codes || c->a.kind == CKPT__NO_NUMBERS || c->b.kind == CKPT__NO_NUMBERS)
        return false;
    return (c->a.kind == CKPT__COMPLEX) == (c->b.kind == CKPT__COMPLEX);
}

static ckpt_status open_one(const ckpt__diff_side *s, size_t tensor, ckpt__elements *e, ckpt_error *err)
{
    ckpt__elements_options options = {.check = true, .resolve = true, .memory = VIEW_MEMORY};
    const ckpt__tensor *t = &s->reader->index->tensors[tensor];
    uint64_t stored;
    if (ckpt__repeats(s->reader->index, t, &stored))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, t->info.name.data,
                          "%llu bytes of it repeat the %llu bytes of its storage: too many to compare",
                          (unsigned long long)t->info.nbytes, (unsigned long long)stored);
    return ckpt__elements_of_tensor(e, s->reader->source, s->reader->index, tensor, &options, err);
}

/* The error names the tensor; this says in which of the two. */
static ckpt_status said_of(const ckpt__diff_side *s, ckpt_status status, ckpt_error *err)
{
    if (status < 0)
        ckpt__error_prefix(err, "in %s (%s)", s->letter, s->reader->path);
    return status;
}

static ckpt_status tick(ckpt__differ *d, size_t n)
{
    const ckpt_progress *p = &d->options->progress;
    d->done += n;
    if (p && p->fn && p->fn(p->ctx, d->done, d->total) != 0)
        return ckpt__fail(d->err, CKPT_E_CANCELLED, NULL, "cancelled");
    return CKPT_OK;
}

static ckpt_status compare(ckpt__differ *d, comparer *c, size_t a, size_t b, uint64_t values)
{
    ckpt__elements ea, eb;
    memset(&ea, 0, sizeof ea);
    memset(&eb, 0, sizeof eb);
    ckpt_status status = said_of(&d->a, open_one(&d->a, a, &ea, d->err), d->err);
    if (status == CKPT_OK)
        status = said_of(&d->b, open_one(&d->b, b, &eb, d->err), d->err);
    for (uint64_t left = values; status == CKPT_OK && left > 0;) {
        size_t n = left < BLOCK_VALUES ? (size_t)left : BLOCK_VALUES;
        size_t na = bytes_of(&c->a, n), nb = bytes_of(&c->b, n);
        status = said_of(&d->a, ckpt__elements_read(&ea, c->pa, na, d->err), d->err);
        if (status == CKPT_OK)
            status = said_of(&d->b, ckpt__elements_read(&eb, c->pb, nb, d->err), d->err);
        if (status < 0)
            break;
        look_at_block(c, n);
        left -= n;
        d->result->bytes += na + nb;
        status = tick(d, na + nb);
    }
    ckpt__elements_close(&ea);
    ckpt__elements_close(&eb);
    return status;
}

ckpt_status ckpt__differ_values(ckpt__differ *d, ckpt_diff_tensor *row, size_t a, size_t b)
{
    const ckpt__tensor *ta = &d->a.reader->index->tensors[a], *tb = &d->b.reader->index->tensors[b];
    const ckpt_diff_options *o = d->options;
    uint64_t elements = 0;
    if (ckpt__has_no_bytes(ta) || ckpt__has_no_bytes(tb)) {
        if (ta->info.extra->layout.data || tb->info.extra->layout.data)
            return CKPT_OK; /* their parts are compared */
        row->what |= ckpt__has_no_bytes(ta) != ckpt__has_no_bytes(tb) ? CKPT_DIFF_VALUE : 0u;
        return CKPT_OK;
    }
    comparer *c = calloc(1, sizeof *c);
    if (!c)
        return ckpt__differ_no_memory(d);
    c->row = row;
    ckpt__numbers_init(&c->a, ta->info.dtype);
    ckpt__numbers_init(&c->b, tb->info.dtype);
    c->one_dtype = ta->info.dtype == tb->info.dtype;
    c->exact = !o->tolerant;
    c->atol = o->atol;
    c->rtol = o->rtol;
    ckpt__numel(ta->info.shape, ta->info.ndim, &elements);
    row->elements = ckpt__numbers_count(&c->a, elements, ta->info.nbytes);
    row->compared = comparable(c) && row->elements == ckpt__numbers_count(&c->b, elements, tb->info.nbytes);
    ckpt_status status = CKPT_OK;
    if (row->compared) {
        c->pa = malloc(BLOCK_VALUES * 16);
        c->pb = malloc(BLOCK_VALUES * 16);
        status = c->pa && c->pb ? compare(d, c, a, b, row->elements) : ckpt__differ_no_memory(d);
    }
    row->what |= row->differing ? CKPT_DIFF_VALUE : 0u;
    free(c->pa);
    free(c->pb);
    free(c);
    return status;
}

ckpt_status ckpt__differ_number(ckpt__differ *d, const ckpt__diff_side *s, size_t tensor, bool *is, double *number)
{
    const ckpt__tensor *t = &s->reader->index->tensors[tensor];
    unsigned char bytes[16];
    ckpt__elements e;
    uint64_t elements = 0;
    ckpt__numbers *n = malloc(sizeof *n);
    if (!n)
        return ckpt__differ_no_memory(d);
    ckpt__numbers_init(n, t->info.dtype);
    *is = !ckpt__has_no_bytes(t) && ckpt__numel(t->info.shape, t->info.ndim, &elements) && elements == 1 &&
          n->bits >= 8 && n->kind != CKPT__COMPLEX && n->kind != CKPT__NO_NUMBERS && !n->codes &&
          t->info.dtype != CKPT_F4_E2M1_X2;
    ckpt_status status = CKPT_OK;
    if (*is) {
        memset(&e, 0, sizeof e);
        status = open_one(s, tensor, &e, d->err);
        if (status == CKPT_OK)
            status = ckpt__elements_read(&e, bytes, n->bits / 8, d->err);
        if (status == CKPT_OK)
            ckpt__numbers_load(n, bytes, 1, number);
        ckpt__elements_close(&e);
        said_of(s, status, d->err);
    }
    free(n);
    return status;
}
