/* model/box.c - where two boxes meet, and which boxes a range of bytes of a view is. */
#include "model/box.h"

/* Indexes that one cut goes into. Nested strides need fewer than 128. Strides that do not nest may be made so that almost every
 * element is gone into alone, and a small file can have 2^60 of those. */
enum { STEPS_MAX = 1 << 24 };

/* Does the span [a, a + a_size) hold something of [b, b + b_size)? The difference is of the larger number less the smaller one, without
 * a sign: it does not overflow. */
static bool spans_meet(int64_t a, int64_t a_size, int64_t b, int64_t b_size)
{
    if (a_size <= 0 || b_size <= 0)
        return false;
    return a <= b ? (uint64_t)b - (uint64_t)a < (uint64_t)a_size : (uint64_t)a - (uint64_t)b < (uint64_t)b_size;
}

bool ckpt__box_meet(uint32_t n, const int64_t *a_lo, const int64_t *a_size, const int64_t *b_lo, const int64_t *b_size,
                    int64_t *lo, int64_t *size)
{
    for (uint32_t i = 0; i < n; i++)
        if (!spans_meet(a_lo[i], a_size[i], b_lo[i], b_size[i]))
            return false;
    for (uint32_t i = 0; i < n; i++) {
        int64_t from = a_lo[i] > b_lo[i] ? a_lo[i] : b_lo[i];
        int64_t a = a_size[i] - (from - a_lo[i]), b = b_size[i] - (from - b_lo[i]); /* they meet: none is below 1 */
        lo[i] = from;
        size[i] = a < b ? a : b;
    }
    return true;
}

bool ckpt__box_volume(uint32_t n, const int64_t *size, uint64_t *out)
{
    return ckpt__numel(size, n, out);
}

bool ckpt__box_range(uint32_t n, const int64_t *shape, const int64_t *lo, const int64_t *size, int64_t *begin,
                     int64_t *count)
{
    bool inner = true; /* all dimensions behind are whole */
    int64_t at = 0, volume = 1, stride = 1;
    for (uint32_t i = n; i-- > 0;) {
        if (!inner && size[i] != 1)
            return false;
        inner = inner && size[i] == shape[i];
        at += lo[i] * stride;
        stride *= shape[i];
        volume *= size[i];
    }
    *begin = at;
    *count = volume;
    return true;
}

bool ckpt__box_inside(uint32_t n, const int64_t *lo, const int64_t *size, const int64_t *shape)
{
    for (uint32_t i = 0; i < n; i++)
        if (lo[i] < 0 || size[i] < 0 || lo[i] > shape[i] || size[i] > shape[i] - lo[i])
            return false;
    return true;
}

/* ---- a range of bytes
 *
 * The dimensions are gone through from the largest stride to the smallest. An index of one is a view of the dimensions behind it,
 * whose bytes reach from its first to its last element. A row of indexes that lie wholly in the range is a box. An index that has only
 * a part of the range is gone into: where strides nest that is at most the first and the last of them. */

/* One cut under way. It exists because the walk down the dimensions needs all of it at each step. */
struct cut {
    const int64_t *shape;    /* borrowed; elements */
    const uint64_t *strides; /* borrowed; bytes */
    uint32_t
        order[CKPT__BOX_MAX]; /* the dimensions that move (size above 1, stride above 0), the largest stride first */
    uint32_t moving;          /* how many those are */
    /* Bytes from the first to one past the last of what the dimensions order[i], order[i + 1], ... span; reach[moving] is one
     * element. Of shape 3 x 4 in C order, unit 4: 48, 16, 4. */
    uint64_t reach[CKPT__BOX_MAX + 1];
    uint64_t begin, end; /* the range in bytes; not empty */
    int64_t lo[CKPT__BOX_MAX],
        size[CKPT__BOX_MAX]; /* the box in the making: all of a dimension that was not reached yet */
    uint64_t steps;          /* indexes gone into, against STEPS_MAX */
    ckpt__box_fn *fn;
    void *ctx; /* fn's */
};

/* How many of `count` numbers, which begin with `start` and lie `stride` (above 0) apart, are at most `limit`. */
static uint64_t at_most(uint64_t start, uint64_t stride, uint64_t count, uint64_t limit)
{
    if (start > limit)
        return 0;
    uint64_t more = (limit - start) / stride;
    return more < count ? more + 1 : count;
}

/* What a level holds of the range: the indexes [touched, touched_end) have bytes in it, [inside, inside_end) have no others. */
struct level {
    uint64_t touched, touched_end, inside, inside_end;
};

/* base: the byte at which index 0 begins. All sums are within the view's reach, which was checked. */
static struct level look_at_level(const struct cut *c, uint32_t depth, uint64_t base)
{
    uint32_t dim = c->order[depth];
    uint64_t count = (uint64_t)c->shape[dim], stride = c->strides[dim], past = base + c->reach[depth + 1];
    struct level l;
    l.touched = at_most(past, stride, count, c->begin);
    l.touched_end = at_most(base, stride, count, c->end - 1);
    l.inside = c->begin ? at_most(base, stride, count, c->begin - 1) : 0;
    l.inside_end = at_most(past, stride, count, c->end);
    if (depth + 1 == c->moving) { /* elements: they are not cut */
        l.inside = l.touched;
        l.inside_end = l.touched_end;
    }
    if (l.inside >= l.inside_end)
        l.inside = l.inside_end = l.touched_end;
    return l;
}

/* Recurses once a dimension. */
static ckpt_status cut_level(struct cut *c, uint32_t depth, uint64_t base, ckpt_error *err)
{
    if (c->steps++ == STEPS_MAX)
        return ckpt__fail(
            err, CKPT_E_LIMIT, NULL,
            "a view whose elements lie across each other: more than %d steps to find those in a range of bytes",
            STEPS_MAX);
    struct level l = look_at_level(c, depth, base);
    uint32_t dim = c->order[depth];
    ckpt_status status = CKPT_OK;
    for (uint64_t i = l.touched; status >= 0 && i < l.touched_end; i++) {
        bool whole = i == l.inside;
        c->lo[dim] = (int64_t)i;
        c->size[dim] = whole ? (int64_t)(l.inside_end - l.inside) : 1;
        if (whole)
            status = c->fn(c->ctx, c->lo, c->size, err);
        else
            status = cut_level(c, depth + 1, base + i * c->strides[dim], err);
        if (whole)
            i = l.inside_end - 1;
    }
    c->lo[dim] = 0;
    c->size[dim] = c->shape[dim];
    return status < 0 ? status : CKPT_OK;
}

/* Sorts by insertion: there are few dimensions. */
static void order_dimensions(struct cut *c, uint32_t n)
{
    c->moving = 0;
    for (uint32_t dim = 0; dim < n; dim++) {
        c->lo[dim] = 0;
        c->size[dim] = c->shape[dim];
        if (c->shape[dim] == 1 || c->strides[dim] == 0)
            continue;
        uint32_t at = c->moving++;
        for (; at > 0 && c->strides[c->order[at - 1]] < c->strides[dim]; at--)
            c->order[at] = c->order[at - 1];
        c->order[at] = dim;
    }
}

static bool add_up_reach(struct cut *c, uint64_t unit)
{
    bool fits = true;
    c->reach[c->moving] = unit;
    for (uint32_t i = c->moving; fits && i-- > 0;) {
        uint64_t steps = (uint64_t)c->shape[c->order[i]] - 1, bytes;
        fits = ckpt__mul(steps, c->strides[c->order[i]], &bytes) && ckpt__add(bytes, c->reach[i + 1], &c->reach[i]);
    }
    return fits;
}

static ckpt_status check_dimensions(uint32_t n, ckpt_error *err)
{
    return n <= CKPT__BOX_MAX ? CKPT_OK
                              : ckpt__fail(err, CKPT_E_LIMIT, NULL, "a tensor of %u dimensions; the limit here is %d",
                                           (unsigned)n, CKPT__BOX_MAX);
}

ckpt_status ckpt__box_cut_bytes(uint32_t n, const int64_t *shape, const uint64_t *strides, uint64_t unit,
                                uint64_t begin, uint64_t end, ckpt__box_fn *fn, void *ctx, ckpt_error *err)
{
    ckpt_status status = check_dimensions(n, err);
    if (status < 0)
        return status;
    bool empty = begin >= end || unit == 0;
    for (uint32_t i = 0; i < n; i++)
        empty = empty || shape[i] <= 0;
    if (empty)
        return CKPT_OK;
    struct cut c; /* not all set to zero: most of it is for tensors of more dimensions, and cuts are many */
    c.shape = shape, c.strides = strides;
    c.begin = begin, c.end = end;
    c.fn = fn, c.ctx = ctx;
    c.steps = 0;
    order_dimensions(&c, n);
    if (!add_up_reach(&c, unit))
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "a view that reaches over 2^64 bytes or more");
    if (begin >= c.reach[0])
        return CKPT_OK;
    if (c.moving > 0)
        return cut_level(&c, 0, 0, err);
    status = fn(ctx, c.lo, c.size, err); /* all elements lie at byte 0 */
    return status < 0 ? status : CKPT_OK;
}

ckpt_status ckpt__box_cut_flat(uint32_t n, const int64_t *shape, uint64_t begin, uint64_t end, ckpt__box_fn *fn,
                               void *ctx, ckpt_error *err)
{
    uint64_t strides[CKPT__BOX_MAX], all, stride = 1;
    ckpt_status status = check_dimensions(n, err);
    if (status < 0)
        return status;
    if (!ckpt__numel(shape, n, &all))
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "a tensor of more than 2^63 elements");
    if (all == 0)
        return CKPT_OK;
    for (uint32_t i = n; i-- > 0;) {
        strides[i] = stride;
        stride *= (uint64_t)shape[i]; /* the product of all fits */
    }
    return ckpt__box_cut_bytes(n, shape, strides, 1, begin, end, fn, ctx, err);
}
