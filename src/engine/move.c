/* engine/move.c - the kernel: one box of elements from one place in host memory to another. */
#include "engine/move.h"

/* A tile has EDGE elements in each of two dimensions, or AREA of them where one is short. What a conversion needs on the way is at
 * most STAGE bytes on each side: the first cache holds it all. */
enum {
    EDGE = 32,
    AREA = EDGE * EDGE,
    FEW = 8,         /* so short a dimension is not worth a copy of the tile */
    LARGEST = 16,    /* bytes of an element */
    STAGE = 8 << 10, /* bytes */
};

/* ---- what happens to an element */

static ckpt_status no_conversion(ckpt_dtype from, ckpt_dtype to, const char *what, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, what, "there is no conversion from %s to %s", ckpt_dtype_name(from),
                      ckpt_dtype_name(to));
}

/* The sign bits, as they lie in a little-endian element: a conjugate has that of the imaginary part flipped, a negated
 * one all of them. */
static ckpt_status set_flips(ckpt__op *op, const ckpt__op_want *want, const char *what, ckpt_error *err)
{
    const ckpt__dtype_row *row = ckpt__dtype_row_of(want->from);
    size_t size = row->bits / 8, half = size / 2;
    bool conj = want->conj && row->is_complex; /* of a real number: itself */
    if (!conj && !want->neg)
        return CKPT_OK;
    if (row->is_complex) {
        op->flip[half - 1] = want->neg ? 0x80 : 0;
        op->flip[size - 1] = want->neg != conj ? 0x80 : 0;
    } else if (row->is_float && row->is_signed && row->bits % 8 == 0)
        op->flip[size - 1] = 0x80;
    else if (!row->is_float && row->bits % 8 == 0 && want->from != CKPT_BOOL && want->from < CKPT_C32)
        op->negate = (uint8_t)size;
    else
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, what,
                          "it is a negated view of dtype %s, which has no negative "
                          "values: save it with .resolve_neg()",
                          ckpt_dtype_name(want->from));
    op->flips = op->negate == 0;
    return CKPT_OK;
}

ckpt_status ckpt__op_make(const ckpt__op_want *want, const char *what, ckpt__op *out, ckpt_error *err)
{
    uint32_t bits = ckpt_dtype_bits(want->from), granule = bits % 8 == 0 ? 1 : bits % 4 == 0 ? 2 : 4;
    *out = (ckpt__op){.from = want->from, .to = want->to, .granule = granule, .from_size = bits * granule / 8};
    out->to_size = want->from == want->to ? out->from_size : (uint32_t)ckpt_dtype_size(want->to);
    out->from_swap = want->from_swap ? want->from_swap : 1;
    out->to_swap = want->to_swap ? want->to_swap : 1;
    out->exact = want->exact;
    if (out->from_size == 0 || (want->from != want->to && !ckpt__convert(want->from, NULL, want->to, NULL, 0, NULL)))
        return no_conversion(want->from, want->to, what, err);
    bool fits = out->from_size % out->from_swap == 0;
    uint32_t size = fits ? out->to_size : out->from_size, swap = fits ? out->to_swap : out->from_swap;
    if (size % swap)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, what, "an element of %u bytes is not swapped %u bytes at a time",
                          size, swap);
    ckpt_status status = set_flips(out, want, what, err);
    if (want->from == want->to && out->from_swap == out->to_swap && !out->flips && !out->negate)
        out->from_swap = out->to_swap = 1; /* twice is not at all */
    return status;
}

bool ckpt__op_is_plain(const ckpt__op *op)
{
    return op->from == op->to && op->from_swap == 1 && op->to_swap == 1 && !op->flips && !op->negate;
}

static void flip(const ckpt__op *op, unsigned char *p, size_t n)
{
    unsigned char pattern[LARGEST];
    uint64_t mask[2], bits[2];
    size_t i = 0;
    for (size_t k = 0; k < LARGEST; k++)
        pattern[k] = op->flip[k % op->from_size]; /* each size that a flip is of divides 16 */
    memcpy(mask, pattern, LARGEST);
    for (; n - i >= LARGEST; i += LARGEST) {
        memcpy(bits, p + i, LARGEST);
        bits[0] ^= mask[0];
        bits[1] ^= mask[1];
        memcpy(p + i, bits, LARGEST);
    }
    for (size_t k = 0; i < n; i++, k++)
        p[i] ^= pattern[k];
}

static void negate(unsigned char *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i += size) {
        unsigned carry = 1;
        for (size_t k = 0; k < size; k++) {
            carry += (unsigned char)~p[i + k];
            p[i + k] = (unsigned char)carry;
            carry >>= 8;
        }
    }
}

/* What comes before a conversion. n counts elements, one behind the other. */
static void prepare(const ckpt__op *op, unsigned char *p, size_t n)
{
    ckpt__swap_bytes(p, n * op->from_size, op->from_swap);
    if (op->flips)
        flip(op, p, n * op->from_size);
    if (op->negate)
        negate(p, n * op->from_size, op->negate);
}

void ckpt__op_apply(const ckpt__op *op, void *data, size_t n)
{
    prepare(op, data, n);
    ckpt__swap_bytes(data, n * op->from_size, op->to_swap);
}

/* ---- boxes */

void ckpt__copy_box_init(ckpt__copy_box *box)
{
    box->n = 0;
    box->empty = false;
}

void ckpt__copy_box_add(ckpt__copy_box *box, uint64_t size, uint64_t from_stride, uint64_t to_stride)
{
    if (size == 0)
        box->empty = true;
    if (box->empty)
        box->n = 0;
    if (box->empty || size == 1)
        return;
    uint32_t last = box->n - 1;
    if (box->n && box->from_stride[last] == size * from_stride && box->to_stride[last] == size * to_stride)
        box->size[last] *= size;
    else {
        last = box->n++;
        box->size[last] = size;
    }
    box->from_stride[last] = from_stride;
    box->to_stride[last] = to_stride;
}

bool ckpt__copy_box_is_run(const ckpt__copy_box *box, const ckpt__op *op, uint64_t *bytes)
{
    bool run = box->n == 0 || (box->n == 1 && box->from_stride[0] == op->from_size && box->to_stride[0] == op->to_size);
    *bytes = !run || box->empty ? 0 : (box->n ? box->size[0] : 1) * op->from_size;
    return run;
}

/* The same box, the longest stride of the target first: so more dimensions continue each other than in the caller's order, and
 * the last is the one that lies closest in the target. */
static void order_by_target(const ckpt__copy_box *box, ckpt__copy_box *out)
{
    uint32_t order[CKPT__COPY_DIMS];
    for (uint32_t i = 0; i < box->n; i++) {
        uint32_t k = i;
        for (; k > 0 && box->to_stride[order[k - 1]] < box->to_stride[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    ckpt__copy_box_init(out);
    for (uint32_t i = 0; i < box->n; i++)
        ckpt__copy_box_add(out, box->size[order[i]], box->from_stride[order[i]], box->to_stride[order[i]]);
}

/* The dimension that lies closest in the source. One that repeats its elements lies nowhere, unless it is the target's closest,
 * which then is as good as any. */
static uint32_t closest_in_source(const ckpt__copy_box *box)
{
    uint32_t best = box->n - 1;
    for (uint32_t i = best; box->from_stride[box->n - 1] && i-- > 0;)
        if (box->from_stride[i] && box->from_stride[i] < box->from_stride[best])
            best = i;
    return best;
}

/* ---- tile by tile */

/* A walk over a box, tile by tile, in the target's order: what lies close together is moved together. Of a box of 40 x 70 elements
 * with tiles of 32 x 32 there are six; the last one is at {32, 64}, and has 8 x 6 elements. The pointers are borrowed. */
typedef struct walk {
    ckpt__copy_box box;
    uint64_t tile[CKPT__COPY_DIMS]; /* elements of a whole tile, a dimension each */
    uint64_t area;                  /* all of them multiplied */
    uint64_t at[CKPT__COPY_DIMS];   /* the first element of this tile */
    uint64_t here[CKPT__COPY_DIMS]; /* elements of this tile */
    const unsigned char *from;      /* where its first one lies */
    unsigned char *to;
} walk;

/* The tile is one element at first, and grows. */
static void walk_open(walk *w, const ckpt__copy_box *box, const unsigned char *from, unsigned char *to)
{
    order_by_target(box, &w->box);
    w->area = 1;
    w->from = from;
    w->to = to;
    for (uint32_t i = 0; i < w->box.n; i++) {
        w->tile[i] = 1;
        w->at[i] = 0;
    }
}

/* In dimension i, to `most` at most, while the tile has no more than `area` elements. */
static void walk_grow(walk *w, uint32_t i, uint64_t most, uint64_t area)
{
    uint64_t others = w->area / w->tile[i], n = w->box.size[i] < most ? w->box.size[i] : most;
    n = n < area / others ? n : area / others;
    w->tile[i] = n > w->tile[i] ? n : w->tile[i];
    w->area = others * w->tile[i];
}

static void walk_measure(walk *w)
{
    for (uint32_t i = 0; i < w->box.n; i++) {
        uint64_t left = w->box.size[i] - w->at[i];
        w->here[i] = left < w->tile[i] ? left : w->tile[i];
    }
}

/* To the next tile; false at the end. */
static bool walk_on(walk *w)
{
    for (uint32_t i = w->box.n; i-- > 0;) {
        w->at[i] += w->here[i];
        w->from += w->here[i] * w->box.from_stride[i];
        w->to += w->here[i] * w->box.to_stride[i];
        if (w->at[i] < w->box.size[i])
            return true;
        w->from -= w->box.size[i] * w->box.from_stride[i];
        w->to -= w->box.size[i] * w->box.to_stride[i];
        w->at[i] = 0;
    }
    return false;
}

/* ---- bytes as they are */

/* The two dimensions that the inner loops run over. Strides are bytes. */
typedef struct plane {
    uint64_t rows, columns;
    uint64_t from_row, from_column, to_row, to_column;
} plane;

static inline void copy_each(plane p, unsigned char *to, const unsigned char *from, size_t size)
{
    for (uint64_t r = 0; r < p.rows; r++, to += p.to_row, from += p.from_row) {
        unsigned char *q = to;
        const unsigned char *s = from;
        uint64_t left = p.columns;
        for (; left >= 4; left -= 4, q += 4 * p.to_column, s += 4 * p.from_column) {
            memcpy(q, s, size);
            memcpy(q + p.to_column, s + p.from_column, size);
            memcpy(q + 2 * p.to_column, s + 2 * p.from_column, size);
            memcpy(q + 3 * p.to_column, s + 3 * p.from_column, size);
        }
        for (; left > 0; left--, q += p.to_column, s += p.from_column)
            memcpy(q, s, size);
    }
}

static void copy_plane(const plane *p, unsigned char *to, const unsigned char *from, size_t size)
{
    if (p->from_column == size && p->to_column == size)
        for (uint64_t r = 0; r < p->rows; r++)
            memcpy(to + r * p->to_row, from + r * p->from_row, (size_t)p->columns * size);
    else if (size == 1)
        copy_each(*p, to, from, 1);
    else if (size == 2)
        copy_each(*p, to, from, 2);
    else if (size == 4)
        copy_each(*p, to, from, 4);
    else if (size == 8)
        copy_each(*p, to, from, 8);
    else if (size == 16)
        copy_each(*p, to, from, 16);
    else
        copy_each(*p, to, from, size);
}

/* Columns lie close in the target and rows close in the source. The tile goes through a small copy, so that each cache line of both
 * sides is used once, and at once: lines whose distance is a power of two push each other out of the cache. The copy lies as the
 * target does, or as the source does where elements are small: a wide load waits for the many narrow stores that it reads. */
static void turn_plane(const plane *p, unsigned char *to, const unsigned char *from, size_t size)
{
    unsigned char copy[AREA * LARGEST];
    bool small = size < 8;
    uint64_t row = small ? size : p->columns * size, column = small ? p->rows * size : size;
    plane in = {p->columns, p->rows, p->from_column, p->from_row, column, row};
    plane out = {p->rows, p->columns, row, column, p->to_row, p->to_column};
    if (p->rows < FEW || p->columns < FEW) {
        copy_plane(p, to, from, size);
        return;
    }
    copy_plane(&in, copy, from, size);
    copy_plane(&out, to, copy, size);
}

/* A short run of elements is one larger element. */
static size_t join_run(ckpt__copy_box *box, size_t size)
{
    uint32_t last = box->n - 1;
    if (box->n == 0 || box->from_stride[last] != size || box->to_stride[last] != size ||
        box->size[last] > LARGEST / size)
        return size;
    size_t joined = (size_t)box->size[last] * size;
    if (joined & (joined - 1))
        return size;
    box->n--;
    return joined;
}

static void move_plain(const ckpt__copy_box *box, const unsigned char *from, unsigned char *to, size_t size)
{
    walk w;
    walk_open(&w, box, from, to);
    size = join_run(&w.box, size);
    if (w.box.n == 0) {
        memcpy(to, from, size);
        return;
    }
    uint32_t column = w.box.n - 1, row = closest_in_source(&w.box);
    bool turn = row != column && size <= LARGEST;
    uint64_t area = turn ? AREA : UINT64_MAX;
    if (!turn)
        row = column ? column - 1 : 0;
    walk_grow(&w, column, turn ? EDGE : area, area);
    walk_grow(&w, row, area, area);
    walk_grow(&w, column, area, area);
    do {
        walk_measure(&w);
        plane p = {1, w.here[column], 0, w.box.from_stride[column], 0, w.box.to_stride[column]};
        if (row != column) {
            p.rows = w.here[row];
            p.from_row = w.box.from_stride[row];
            p.to_row = w.box.to_stride[row];
        }
        if (turn)
            turn_plane(&p, w.to, w.from, size);
        else
            copy_plane(&p, w.to, w.from, size);
    } while (walk_on(&w));
}

/* ---- through a stage */

/* One move that does something to the elements. A tile is gathered into `in`, prepared there, converted to `out` and scattered.
 * What lies one behind the other in the source is converted from there, unless it has to be prepared. What does so in the target
 * gets its elements there, and `out` is not used. Nor is `in` where nothing is converted. */
typedef struct staged {
    const ckpt__op *op; /* borrowed */
    walk w;
    bool converts;
    bool prepares; /* something is done before a conversion */
    size_t count;  /* elements of this tile */
    unsigned char in[STAGE], out[STAGE];
} staged;

/* Does the tile lie without holes, in the target's order? */
static bool is_dense(const staged *s, const uint64_t *stride, size_t size)
{
    uint64_t run = size;
    for (uint32_t i = s->w.box.n; i-- > 0; run *= s->w.here[i])
        if (s->w.here[i] > 1 && stride[i] != run)
            return false;
    return true;
}

/* Between the tile's place and dense elements. gathers: from its place in the source. Else to its place in the target. */
static void move_tile(const staged *s, bool gathers, const unsigned char *from, unsigned char *to, size_t size)
{
    ckpt__copy_box box;
    uint64_t dense[CKPT__COPY_DIMS], run = size;
    const walk *w = &s->w;
    for (uint32_t i = w->box.n; i-- > 0; run *= w->here[i])
        dense[i] = run;
    ckpt__copy_box_init(&box);
    for (uint32_t i = 0; i < w->box.n; i++)
        ckpt__copy_box_add(&box, w->here[i], gathers ? w->box.from_stride[i] : dense[i],
                           gathers ? dense[i] : w->box.to_stride[i]);
    move_plain(&box, from, to, size);
}

static bool convert_tile(staged *s, unsigned char *out, ckpt__convert_counts *counts)
{
    const ckpt__op *op = s->op;
    const unsigned char *in = s->w.from;
    if (s->prepares || !is_dense(s, s->w.box.from_stride, op->from_size)) {
        move_tile(s, true, in, s->in, op->from_size);
        prepare(op, s->in, s->count);
        in = s->in;
    }
    bool known = ckpt__convert_counted(op->from, in, op->to, out, s->count, counts);
    ckpt__swap_bytes(out, s->count * op->to_size, op->to_swap);
    return known;
}

static bool do_tile(staged *s, ckpt__convert_counts *counts)
{
    const ckpt__op *op = s->op;
    bool known = true, dense = is_dense(s, s->w.box.to_stride, op->to_size);
    unsigned char *out = dense ? s->w.to : s->out;
    if (s->converts)
        known = convert_tile(s, out, counts);
    else {
        move_tile(s, true, s->w.from, out, op->from_size);
        ckpt__op_apply(op, out, s->count);
    }
    if (!dense)
        move_tile(s, false, out, s->w.to, op->to_size);
    return known;
}

/* As much of the two dimensions that lie closest as a stage holds, then of the others. A long run that is converted where it lies
 * is one tile. */
static void plan_stage(staged *s)
{
    walk *w = &s->w;
    if (w->box.n == 0)
        return;
    uint32_t column = w->box.n - 1, row = closest_in_source(&w->box);
    uint64_t area = STAGE / (s->op->from_size > s->op->to_size ? s->op->from_size : s->op->to_size);
    if (s->converts && !s->prepares && w->box.size[column] > area && w->box.from_stride[column] == s->op->from_size &&
        w->box.to_stride[column] == s->op->to_size) {
        walk_grow(w, column, UINT64_MAX, UINT64_MAX);
        return;
    }
    walk_grow(w, column, row == column ? area : EDGE, area);
    walk_grow(w, row, area, area);
    for (uint32_t i = w->box.n; i-- > 0;)
        walk_grow(w, i, area, area);
}

static ckpt_status move_staged(const ckpt__op *op, const ckpt__copy_box *box, const unsigned char *from,
                               unsigned char *to, ckpt__convert_counts *counts, const char *what, ckpt_error *err)
{
    staged s;
    bool known = true;
    s.op = op;
    s.converts = op->from != op->to;
    s.prepares = op->from_swap > 1 || op->flips || op->negate;
    walk_open(&s.w, box, from, to);
    plan_stage(&s);
    do {
        walk_measure(&s.w);
        s.count = 1;
        for (uint32_t i = 0; i < s.w.box.n; i++)
            s.count *= (size_t)s.w.here[i];
        known = do_tile(&s, counts);
        if (known && op->exact && counts->inexact)
            return ckpt__fail(err, CKPT_E_MISMATCH, what, "this step is not exactly representable in %s",
                              ckpt_dtype_name(op->to));
    } while (known && walk_on(&s.w));
    return known ? CKPT_OK : no_conversion(op->from, op->to, what, err);
}

ckpt_status ckpt__box_move(const ckpt__op *op, const ckpt__copy_box *box, const void *from, void *to,
                           ckpt__convert_counts *counts, const char *what, ckpt_error *err)
{
    ckpt__convert_counts cost = {0, 0, 0, 0};
    if (box->empty)
        return CKPT_OK;
    if (ckpt__op_is_plain(op)) {
        uint64_t bytes; /* of many small ones the tiles would take longer than the bytes */
        if (ckpt__copy_box_is_run(box, op, &bytes))
            memcpy(to, from, (size_t)bytes);
        else
            move_plain(box, from, to, op->from_size);
        return CKPT_OK;
    }
    ckpt_status status = move_staged(op, box, from, to, &cost, what, err);
    if (counts && cost.elements) { /* threads may move parts of one tensor */
        __atomic_add_fetch(&counts->elements, cost.elements, __ATOMIC_RELAXED);
        __atomic_add_fetch(&counts->inexact, cost.inexact, __ATOMIC_RELAXED);
        __atomic_add_fetch(&counts->out_of_range, cost.out_of_range, __ATOMIC_RELAXED);
        __atomic_add_fetch(&counts->nan, cost.nan, __ATOMIC_RELAXED);
    }
    return status;
}
