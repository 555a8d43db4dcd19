/* model/boxes.c - a packed R-tree: 16 boxes a leaf, 16 nodes a node, and the bounding box of each.
 *
 * The boxes are sorted by halving: a set is divided, across the dimension in which it is longest, at a border between whole nodes.
 * So the number of tiles along each dimension comes out of the boxes: a grid of 100,000 x 10 is cut otherwise than one of 1000 x
 * 1000, and a dimension in which all boxes are alike is not cut. */
#include "model/box.h"

#include <stdlib.h>

enum { FAN = 16, LEVELS = 8 }; /* 16^8 boxes are 2^32 */

/* The tree (box.h). */
struct ckpt__boxes {
    uint32_t n;
    uint32_t levels;  /* of nodes: 0 where no box can meet */
    size_t count;     /* boxes */
    size_t filled;    /* those that are not empty: they are first in `order` */
    ckpt__box_of *of; /* the caller's, with its ctx */
    const void *ctx;  /* borrowed as long as the tree lives */
    uint32_t *order;  /* owned; count numbers of boxes: those of leaf i begin at FAN * i. NULL where count is 0 */
    int64_t *bounds;  /* owned; of each node 2n numbers: first and last element (its own, not one past it) */
    size_t first[LEVELS + 1]; /* node number with which each level begins, the leaves first; first[levels]: all nodes */
};

/* A box that ends past int64 is in no tensor. It counts as one that ends there, as ckpt__box_meet has it. */
static int64_t last_of(int64_t lo, int64_t size)
{
    int64_t last;
    return __builtin_add_overflow(lo, size - 1, &last) ? INT64_MAX : last;
}

static bool is_empty(uint32_t n, const int64_t *size)
{
    for (uint32_t i = 0; i < n; i++)
        if (size[i] <= 0)
            return true;
    return false;
}

/* ---- sorting */

/* The boxes while they are sorted: a copy of what sorting looks at, because the boxes themselves lie anywhere. */
struct sorting {
    int64_t *rows;                /* owned; a box: n middles in elements, and its number */
    size_t count;                 /* rows */
    uint32_t n, width;            /* dimensions; numbers a row: n + 1 */
    double length[CKPT__BOX_MAX]; /* elements: the sizes of all boxes, added up for each dimension */
};

/* Where one set is cut. */
struct side {
    uint32_t dim;
    int64_t least, most; /* the middles of its boxes in dim */
};

static int64_t *row_of(const struct sorting *s, size_t i)
{
    return s->rows + i * s->width;
}

/* The dimension in which the rows [from, to) lie farthest apart, measured by how long a box is there on average. */
static struct side longest_side(const struct sorting *s, size_t from, size_t to)
{
    int64_t least[CKPT__BOX_MAX], most[CKPT__BOX_MAX];
    for (uint32_t i = 0; i < s->n; i++)
        least[i] = most[i] = row_of(s, from)[i];
    for (size_t r = from + 1; r < to; r++) {
        const int64_t *row = row_of(s, r);
        for (uint32_t i = 0; i < s->n; i++) {
            least[i] = row[i] < least[i] ? row[i] : least[i];
            most[i] = row[i] > most[i] ? row[i] : most[i];
        }
    }
    struct side side = {0, 0, 0};
    double farthest = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        double far = (double)((uint64_t)most[i] - (uint64_t)least[i]) / s->length[i];
        if (far > farthest) {
            farthest = far;
            side = (struct side){i, least[i], most[i]};
        }
    }
    return side;
}

/* Puts the rows of [from, to) with a middle of at most `pivot` before the others. Returns the first of those. */
static size_t part(const struct sorting *s, size_t from, size_t to, uint32_t dim, int64_t pivot)
{
    for (;;) {
        while (from < to && row_of(s, from)[dim] <= pivot)
            from++;
        while (from < to && row_of(s, to - 1)[dim] > pivot)
            to--;
        if (from == to)
            return from;
        int64_t *a = row_of(s, from++), *b = row_of(s, --to);
        for (uint32_t i = 0; i < s->width; i++) {
            int64_t kept = a[i];
            a[i] = b[i];
            b[i] = kept;
        }
    }
}

static int64_t middle_of_three(int64_t a, int64_t b, int64_t c)
{
    int64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Sorts just so far that no row before `border` has a larger middle than one behind it. Every other pivot is taken from the rows:
 * on most sets it lies near their median. The others halve what is between the least and the most middle: so at most 128 pivots are
 * needed, whatever the boxes are. */
static void sort_around(const struct sorting *s, size_t from, size_t to, size_t border, struct side side)
{
    for (bool halve = false; side.least < side.most && from < to; halve = !halve) {
        int64_t pivot = side.least + (int64_t)(((uint64_t)side.most - (uint64_t)side.least) / 2);
        if (!halve)
            pivot = middle_of_three(row_of(s, from)[side.dim], row_of(s, from + (to - from) / 2)[side.dim],
                                    row_of(s, to - 1)[side.dim]);
        size_t middle = part(s, from, to, side.dim, pivot);
        if (middle == border)
            return;
        if (middle > border) {
            to = middle;
            side.most = pivot;
        } else {
            from = middle;
            side.least = pivot + 1;
        }
    }
}

/* Sorts the rows [from, to). Recurses: a set of at most 16^k boxes is halved four times until it is of 16^(k - 1), so 32 deep at
 * most. */
static void sort_rows(const struct sorting *s, size_t from, size_t to)
{
    if (to - from <= FAN)
        return;
    size_t node = FAN; /* boxes of the largest node that is smaller than the set */
    while (node < (to - from + FAN - 1) / FAN)
        node *= FAN;
    struct side side = longest_side(s, from, to);
    if (side.least == side.most)
        return; /* all lie at the same place */
    size_t border = from + (to - from + node - 1) / node / 2 * node;
    sort_around(s, from, to, border, side);
    sort_rows(s, from, border);
    sort_rows(s, border, to);
}

/* Fills the rows with all boxes that are not empty; the numbers of the others go to the end of the order. */
static void gather_rows(struct sorting *s, ckpt__boxes *b)
{
    int64_t lo[CKPT__BOX_MAX], size[CKPT__BOX_MAX];
    size_t end = b->count;
    for (size_t number = 0; number < b->count; number++) {
        b->of(b->ctx, number, lo, size);
        if (is_empty(b->n, size)) {
            b->order[--end] = (uint32_t)number;
            continue;
        }
        int64_t *row = row_of(s, s->count++);
        for (uint32_t i = 0; i < b->n; i++) {
            s->length[i] += (double)size[i];
            if (__builtin_add_overflow(lo[i], size[i] / 2, &row[i]))
                row[i] = INT64_MAX;
        }
        row[b->n] = (int64_t)number;
    }
    b->filled = s->count;
}

static ckpt_status sort_boxes(ckpt__boxes *b, ckpt_error *err)
{
    struct sorting s = {.n = b->n, .width = b->n + 1};
    uint64_t bytes;
    s.rows = ckpt__mul(b->count, s.width * sizeof *s.rows, &bytes) && bytes <= SIZE_MAX ? malloc((size_t)bytes) : NULL;
    if (!s.rows)
        return ckpt__fail_memory(err, "the boxes of a tensor", b->count);
    gather_rows(&s, b);
    sort_rows(&s, 0, s.count);
    for (size_t i = 0; i < s.count; i++)
        b->order[i] = (uint32_t)row_of(&s, i)[b->n];
    free(s.rows);
    return CKPT_OK;
}

/* ---- bounding boxes */

static int64_t *bounds_of(const ckpt__boxes *b, size_t node)
{
    return b->bounds + node * 2 * b->n;
}

static void count_levels(ckpt__boxes *b)
{
    size_t nodes = b->filled;
    while (nodes > 1 || (b->levels == 0 && nodes == 1)) {
        nodes = (nodes + FAN - 1) / FAN;
        b->first[b->levels + 1] = b->first[b->levels] + nodes;
        b->levels++;
    }
}

/* Makes [first, last] of `bounds` reach over that of `more` too. */
static void widen(uint32_t n, int64_t *bounds, const int64_t *more)
{
    for (uint32_t i = 0; i < n; i++) {
        bounds[i] = more[i] < bounds[i] ? more[i] : bounds[i];
        bounds[n + i] = more[n + i] > bounds[n + i] ? more[n + i] : bounds[n + i];
    }
}

static void bound_leaves(const ckpt__boxes *b)
{
    int64_t box[2 * CKPT__BOX_MAX], size[CKPT__BOX_MAX];
    for (size_t i = 0; i < b->filled; i++) {
        b->of(b->ctx, b->order[i], box, size);
        for (uint32_t d = 0; d < b->n; d++)
            box[b->n + d] = last_of(box[d], size[d]);
        int64_t *bounds = bounds_of(b, i / FAN);
        if (i % FAN == 0)
            memcpy(bounds, box, 2 * b->n * sizeof *box);
        widen(b->n, bounds, box);
    }
}

static void bound_nodes(const ckpt__boxes *b)
{
    for (uint32_t level = 1; level < b->levels; level++)
        for (size_t i = b->first[level - 1]; i < b->first[level]; i++) {
            size_t child = i - b->first[level - 1];
            int64_t *bounds = bounds_of(b, b->first[level] + child / FAN);
            if (child % FAN == 0)
                memcpy(bounds, bounds_of(b, i), 2 * b->n * sizeof *bounds);
            widen(b->n, bounds, bounds_of(b, i));
        }
}

static ckpt_status bound_all(ckpt__boxes *b, ckpt_error *err)
{
    count_levels(b);
    size_t numbers = b->first[b->levels] * 2 * b->n; /* no overflow: about what the rows took, which fitted */
    if (numbers == 0)
        return CKPT_OK;
    b->bounds = malloc(numbers * sizeof *b->bounds);
    if (!b->bounds)
        return ckpt__fail_memory(err, "the boxes of a tensor", numbers * sizeof *b->bounds);
    bound_leaves(b);
    bound_nodes(b);
    return CKPT_OK;
}

ckpt_status ckpt__boxes_new(uint32_t n, size_t count, ckpt__box_of *of, const void *ctx, ckpt__boxes **out,
                            ckpt_error *err)
{
    *out = NULL;
    if (n > CKPT__BOX_MAX || count > UINT32_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "%zu boxes of %u dimensions; the limits here are %u and %d", count,
                          (unsigned)n, (unsigned)UINT32_MAX, CKPT__BOX_MAX);
    ckpt__boxes *b = calloc(1, sizeof *b);
    if (!b)
        return ckpt__fail_memory(err, "the boxes of a tensor", sizeof *b);
    b->n = n;
    b->count = count;
    b->of = of;
    b->ctx = ctx;
    ckpt_status status = CKPT_OK;
    if (count > 0) {
        b->order = malloc(count * sizeof *b->order);
        if (!b->order)
            status = ckpt__fail_memory(err, "the boxes of a tensor", count * sizeof *b->order);
        if (status == CKPT_OK)
            status = sort_boxes(b, err);
        if (status == CKPT_OK)
            status = bound_all(b, err);
    }
    if (status == CKPT_OK)
        *out = b;
    else
        ckpt__boxes_free(b);
    return status;
}

void ckpt__boxes_free(ckpt__boxes *boxes)
{
    if (!boxes)
        return;
    free(boxes->order);
    free(boxes->bounds);
    free(boxes);
}

const uint32_t *ckpt__boxes_order(const ckpt__boxes *boxes)
{
    return boxes->order;
}

/* ---- asking */

/* One question under way: it exists so that the walk down the levels passes on one pointer. */
struct question {
    const ckpt__boxes *boxes;
    const int64_t *lo, *size;    /* the caller's */
    int64_t last[CKPT__BOX_MAX]; /* the last element, not one past it */
    uint64_t work;               /* comparisons so far */
    ckpt__meet_fn *fn;
    void *ctx; /* fn's */
    ckpt_error *err;
};

static bool reaches(const struct question *q, const int64_t *bounds)
{
    uint32_t n = q->boxes->n;
    for (uint32_t i = 0; i < n; i++)
        if (bounds[i] > q->last[i] || bounds[n + i] < q->lo[i])
            return false;
    return true;
}

static ckpt_status ask_leaf(struct question *q, size_t leaf)
{
    const ckpt__boxes *b = q->boxes;
    int64_t lo[CKPT__BOX_MAX], size[CKPT__BOX_MAX];
    size_t end = (leaf + 1) * FAN < b->filled ? (leaf + 1) * FAN : b->filled;
    ckpt_status status = CKPT_OK;
    for (size_t i = leaf * FAN; status >= 0 && i < end; i++) {
        q->work++;
        b->of(b->ctx, b->order[i], lo, size);
        if (ckpt__box_meet(b->n, lo, size, q->lo, q->size, lo, size))
            status = q->fn(q->ctx, b->order[i], lo, size, q->err);
    }
    return status;
}

/* Node `node` of its level, whose bounds reach the box. Recurses once a level. */
static ckpt_status ask_node(struct question *q, uint32_t level, size_t node)
{
    const ckpt__boxes *b = q->boxes;
    if (level == 0)
        return ask_leaf(q, node);
    size_t below = b->first[level] - b->first[level - 1], end = (node + 1) * FAN < below ? (node + 1) * FAN : below;
    ckpt_status status = CKPT_OK;
    for (size_t i = node * FAN; status >= 0 && i < end; i++) {
        q->work++;
        if (reaches(q, bounds_of(b, b->first[level - 1] + i)))
            status = ask_node(q, level - 1, i);
    }
    return status;
}

ckpt_status ckpt__boxes_each(const ckpt__boxes *boxes, const int64_t *lo, const int64_t *size, ckpt__meet_fn *fn,
                             void *ctx, uint64_t *work, ckpt_error *err)
{
    if (boxes->levels == 0 || is_empty(boxes->n, size))
        return CKPT_OK;
    struct question q;
    q.boxes = boxes;
    q.lo = lo, q.size = size;
    q.fn = fn, q.ctx = ctx;
    q.err = err;
    q.work = 1;
    for (uint32_t i = 0; i < boxes->n; i++)
        q.last[i] = last_of(lo[i], size[i]);
    ckpt_status status = CKPT_OK;
    if (reaches(&q, bounds_of(boxes, boxes->first[boxes->levels - 1])))
        status = ask_node(&q, boxes->levels - 1, 0);
    if (work)
        *work += q.work;
    return status < 0 ? status : CKPT_OK;
}
