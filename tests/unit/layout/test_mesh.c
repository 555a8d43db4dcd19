/* test_mesh.c - the parts of a tensor that the ranks of a mesh have, against a reference that deals out elements one by one. */
#include "layout/mesh.h"

#include <stdio.h>
#include "../dealt.h"
#include "../random.h"
#include "../runner.h"
#include "../scarce_memory.h"

enum { DIMS = 3, MOST = 4096, CASES = 800, FEW = 50 };

/* ---- random cases */

typedef struct one {
    ckpt__rank_mesh mesh;
    ckpt__rank_cut cuts[CKPT__MESH_AXES];
    size_t count;
    uint32_t ndim;
    int64_t shape[DIMS], widths[CKPT__MESH_AXES][8], segments[CKPT__MESH_AXES][4];
    int64_t length[DIMS]; /* that all ranks have alike; -1: they differ */
} one;

static void make_widths(one *o, size_t i, int64_t n, int64_t m)
{
    int64_t *w = o->widths[i];
    for (int64_t k = 0; k < m; k++)
        w[k] = 0;
    for (int64_t p = 0; p < n; p++)
        w[roll((unsigned)m)]++;
    o->cuts[i].widths = w;
}

/* Segments of a length that is known, of which the cut is made one by one. */
static void make_segments(one *o, size_t i, int64_t n)
{
    ckpt__rank_cut *c = &o->cuts[i];
    const int64_t groups = 1 + roll(3);
    if (n == 0 || n % groups || roll(2))
        return;
    int64_t left = n / groups;
    c->groups = groups;
    c->segments = o->segments[i];
    for (c->segment_count = 0; c->segment_count < 3 && left; c->segment_count++) {
        const int64_t some = c->segment_count == 2 ? left : (int64_t)roll((unsigned)left + 1);
        o->segments[i][c->segment_count] = some;
        left -= some;
    }
    if (left)
        o->segments[i][c->segment_count - 1] += left;
}

static void make_cut(one *o, size_t axis)
{
    const size_t i = o->count++;
    ckpt__rank_cut *c = &o->cuts[i];
    const int64_t m = o->mesh.axes[axis].size;
    *c = (ckpt__rank_cut){.axis = axis, .dim = roll(o->ndim), .groups = 1};
    int64_t *n = &o->length[c->dim];
    if (*n >= 0)
        make_segments(o, i, *n);
    c->as = roll(2) ? CKPT__CUT_AS_CEIL : CKPT__CUT_AS_BALANCED;
    bool even = *n >= 0;
    for (size_t s = 0; s < c->segment_count; s++)
        even = even && c->segments[s] % m == 0;
    even = even && (c->segment_count || *n % m == 0);
    if (even && roll(2))
        c->as = CKPT__CUT_AS_EVEN;
    if (*n >= 0 && !c->segment_count && roll(4) == 0) {
        c->as = CKPT__CUT_AS_WIDTHS;
        make_widths(o, i, *n, m);
    }
    *n = even && c->as != CKPT__CUT_AS_WIDTHS ? *n / m : -1;
}

static void make(one *o)
{
    static const char *const names[] = {"pp", "dp", "tp"};
    memset(o, 0, sizeof *o);
    o->mesh.count = 1 + roll(3);
    for (size_t a = 0; a < o->mesh.count; a++)
        o->mesh.axes[a] = (ckpt__rank_axis){{names[a], 2}, 1 + roll(4)};
    o->ndim = roll(DIMS + 1);
    for (uint32_t d = 0; d < o->ndim; d++)
        o->length[d] = o->shape[d] = roll(8) ? 1 + roll(14) : 0;
    for (size_t a = o->mesh.count; o->ndim && a-- > 0;)
        if (roll(4))
            make_cut(o, a);
}

/* ---- the two side by side */

typedef struct counts {
    int all[MOST], first[MOST]; /* how many ranks have an element; and how many of those are the first that do */
} counts;

static size_t number_of(const one *o, const int64_t *index)
{
    size_t at = 0;
    for (uint32_t d = 0; d < o->ndim; d++)
        at = at * (size_t)o->shape[d] + (size_t)index[d];
    return at;
}

/* Each element of the box is where the reference has it. Gives how many there are. */
static size_t check_box(const one *o, const ckpt__rank_box *b, const held *dims, const ckpt__rank_part *part, counts *c)
{
    size_t n = 1;
    for (uint32_t d = 0; d < o->ndim; d++) {
        ck_assert_int_gt(b->size[d], 0);
        n *= (size_t)b->size[d];
    }
    for (size_t i = 0; i < n; i++) {
        int64_t index[DIMS] = {0};
        size_t left = i;
        for (uint32_t d = o->ndim; d-- > 0;) {
            const int64_t p = (int64_t)(left % (size_t)b->size[d]);
            left /= (size_t)b->size[d];
            index[d] = b->lo[d] + p;
            ck_assert_int_lt(b->at[d] + p, part->shape[d]);
            ck_assert_int_eq(dims[d].of[b->at[d] + p], index[d]);
        }
        c->all[number_of(o, index)]++;
        c->first[number_of(o, index)] += part->first;
    }
    return n;
}

static void check_rank(const one *o, uint32_t rank, ckpt__arena *a, counts *c)
{
    ckpt__rank_part part;
    ckpt_error err = CKPT_ERROR_INIT;
    int64_t at[CKPT__MESH_AXES];
    held dims[DIMS];
    size_t n = 0, want = 1;
    ck_assert_msg(ckpt__rank_part_of(&o->mesh, o->cuts, o->count, o->ndim, o->shape, rank, a, &part, &err) == CKPT_OK,
                  "%s", err.message);
    ckpt__rank_mesh_coordinates(&o->mesh, rank, at);
    ck_assert_uint_eq(ckpt__rank_mesh_rank(&o->mesh, at), rank);
    for (uint32_t d = 0; d < o->ndim; d++)
        dims[d] = held_whole(o->shape[d]);
    for (size_t i = 0; i < o->count; i++)
        deal(&o->cuts[i], o->mesh.axes[o->cuts[i].axis].size, at[o->cuts[i].axis], &dims[o->cuts[i].dim]);
    for (uint32_t d = 0; d < o->ndim; d++) {
        ck_assert_int_eq(part.shape[d], dims[d].count);
        ck_assert_int_eq(part.lo[d], dims[d].count ? dims[d].of[0] : o->shape[d]);
        want *= (size_t)dims[d].count;
    }
    for (size_t k = 0; k < part.count; k++)
        n += check_box(o, &part.boxes[k], dims, &part, c);
    ck_assert_uint_eq(n, want);
}

START_TEST(random_meshes)
{
    static one o;
    static counts c;
    random_state += (uint64_t)_i * 7919;
    for (unsigned k = 0; k < (unsigned)(getenv("CKPT_TEST_FEW") ? FEW : CASES); k++) {
        ckpt__arena *a = ckpt__arena_new(0);
        size_t volume = 1, replicas = 1;
        make(&o);
        memset(&c, 0, sizeof c);
        for (uint32_t d = 0; d < o.ndim; d++)
            volume *= (size_t)o.shape[d];
        for (uint32_t r = 0; r < ckpt__rank_mesh_world(&o.mesh); r++)
            check_rank(&o, r, a, &c);
        for (size_t x = 0; x < o.mesh.count; x++) {
            bool cuts = false;
            for (size_t i = 0; i < o.count; i++)
                cuts = cuts || o.cuts[i].axis == x;
            replicas *= cuts ? 1 : (size_t)o.mesh.axes[x].size;
        }
        for (size_t i = 0; i < volume; i++) {
            ck_assert_int_eq(c.first[i], 1);
            ck_assert_uint_eq((size_t)c.all[i], replicas);
        }
        ckpt__arena_free(a);
    }
}
END_TEST

/* ---- numbers that torch has: torch.chunk, and the offsets of DTensor */

static void rows_of(int64_t n, const char *mesh, const char *order, int64_t (*out)[2])
{
    ckpt__rank_mesh m;
    ckpt__rank_cut cuts[CKPT__MESH_AXES] = {{.groups = 1}};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__arena *a = ckpt__arena_new(0);
    size_t count = 0;
    ck_assert_int_eq(ckpt__rank_mesh_parse(ckpt__s(mesh), &m, &err), CKPT_OK);
    for (const char *p = order; *p; p += 2)
        cuts[count++] = (ckpt__rank_cut){.axis = ckpt__rank_mesh_axis(&m, (ckpt_str){p, 2}), .groups = 1};
    for (uint32_t r = 0; r < ckpt__rank_mesh_world(&m); r++) {
        ckpt__rank_part part;
        ck_assert_int_eq(ckpt__rank_part_of(&m, cuts, count, 1, &n, r, a, &part, &err), CKPT_OK);
        ck_assert_uint_le(part.count, 1);
        out[r][0] = part.count ? part.boxes[0].lo[0] : n;
        out[r][1] = part.shape[0];
    }
    ckpt__arena_free(a);
}

static const struct rows {
    int64_t n;
    const char *mesh, *order;
    int64_t rows[4][2];
} known[] = {
    {9, "dp=4", "dp", {{0, 3}, {3, 3}, {6, 3}, {9, 0}}},
    {5, "dp=4", "dp", {{0, 2}, {2, 2}, {4, 1}, {5, 0}}},
    {2, "dp=4", "dp", {{0, 1}, {1, 1}, {2, 0}, {2, 0}}},
    {0, "dp=4", "dp", {{0, 0}, {0, 0}, {0, 0}, {0, 0}}},
    {7, "dp=2,tp=2", "tpdp", {{0, 2}, {4, 2}, {2, 2}, {6, 1}}}, /* _StridedShard(0, 2), Shard(0) */
    {9, "dp=2,tp=2", "tpdp", {{0, 3}, {5, 2}, {3, 2}, {7, 2}}},
    {9, "dp=2,tp=2", "dptp", {{0, 3}, {3, 2}, {5, 2}, {7, 2}}}, /* Shard(0), Shard(0) */
    {9, "dp=2,tp=2", "tp", {{0, 5}, {5, 4}, {0, 5}, {5, 4}}},
    {9, "dp=2,tp=2", "", {{0, 9}, {0, 9}, {0, 9}, {0, 9}}},
};

START_TEST(known_rows)
{
    const struct rows *k = &known[_i];
    int64_t got[4][2];
    rows_of(k->n, k->mesh, k->order, got);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(got[r][0], k->rows[r][0]);
        ck_assert_int_eq(got[r][1], k->rows[r][1]);
    }
}
END_TEST

/* ---- what is wrong */

static const struct bad {
    const char *mesh, *says;
} bad_meshes[] = {
    {"", "'' is not an axis"},
    {"dp", "'dp' is not an axis: name=size is expected"},
    {"dp=2,", "'' is not an axis"},
    {"dp=x", "'dp=x' is not an axis"},
    {"dp=2,dp=2", "the axis 'dp' stands twice"},
    {"dp=0", "the axis 'dp' has the size 0"},
    {"dp=-2", "the axis 'dp' has the size -2"},
    {"2=2", "'2' is not a name of an axis"},
    {"=2", "'' is not a name of an axis"},
    {"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1", "at most 8 axes"},
    {"a=256,b=257", "at most 65536 ranks"},
    {"a=9223372036854775807,b=9223372036854775807", "at most 65536 ranks"},
};

START_TEST(wrong_meshes)
{
    ckpt__rank_mesh m;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_lt(ckpt__rank_mesh_parse(ckpt__s(bad_meshes[_i].mesh), &m, &err), 0);
    ck_assert_msg(strstr(err.message, bad_meshes[_i].says), "'%s' is not in '%s'", bad_meshes[_i].says, err.message);
}
END_TEST

static const int64_t three[] = {1, 2}, huge[] = {INT64_MAX, INT64_MAX}, below[] = {-1, 5};
static const struct bad_cut {
    ckpt__rank_cut cuts[2];
    size_t count;
    const char *says;
} bad_cuts[] = {
    {{{.axis = 1, .dim = 1, .groups = 1}}, 1, "tp cuts dimension 1, and the tensor has 1"},
    {{{.axis = 1, .groups = 1}, {.axis = 1, .groups = 1}}, 2, "an axis cuts a tensor once"},
    {{{.axis = 1, .groups = 1, .as = CKPT__CUT_AS_EVEN}}, 1, "its 5 elements are not a multiple of 2"},
    {{{.axis = 1, .groups = 1, .as = CKPT__CUT_AS_WIDTHS, .widths = three}}, 1, "its widths come to 3: there are 5"},
    {{{.axis = 1, .groups = 1, .as = CKPT__CUT_AS_WIDTHS, .widths = huge}}, 1, "its widths are more than 5"},
    {{{.axis = 1, .groups = 1, .as = CKPT__CUT_AS_WIDTHS, .widths = below}}, 1, "its widths"},
    {{{.axis = 1, .groups = 1, .segments = three, .segment_count = 2}}, 1, "its segments come to 3: there are 5"},
    {{{.axis = 1, .groups = 0, .segments = three, .segment_count = 2}},
     1,
     "the sizes of its segments are out of range"},
    {{{.axis = 1, .groups = 2, .segments = huge, .segment_count = 1}}, 1, "its segments come to 18446744073709551614"},
    {{{.axis = 1, .groups = 1, .segments = below, .segment_count = 2}},
     1,
     "the sizes of its segments are out of range"},
};

START_TEST(wrong_cuts)
{
    const int64_t n = 5;
    ckpt__rank_mesh m;
    ckpt__rank_part part;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__arena *a = ckpt__arena_new(0);
    ck_assert_int_eq(ckpt__rank_mesh_parse(ckpt__s("dp=2,tp=2"), &m, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__rank_part_of(&m, bad_cuts[_i].cuts, bad_cuts[_i].count, 1, &n, 3, a, &part, &err),
                     CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, bad_cuts[_i].says), "'%s' is not in '%s'", bad_cuts[_i].says, err.message);
    ckpt__arena_free(a);
}
END_TEST

/* Segments of one row each: a rank would have a box a row. */
START_TEST(too_many_boxes)
{
    const int64_t n = 4 * CKPT__PART_BOXES, sizes[] = {2};
    const ckpt__rank_cut cut = {.segments = sizes, .segment_count = 1, .groups = n / 2};
    const ckpt__rank_mesh m = {.count = 1, .axes = {{{"tp", 2}, 2}}};
    ckpt__rank_part part;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__arena *a = ckpt__arena_new(0);
    ck_assert_int_eq(ckpt__rank_part_of(&m, &cut, 1, 1, &n, 0, a, &part, &err), CKPT_E_LIMIT);
    ckpt__arena_free(a);
}
END_TEST

START_TEST(every_allocation)
{
    static one o;
    random_state = 42;
    for (unsigned k = 0; k < 60; k++) {
        make(&o);
        for (long fail = 0;; fail++) {
            ckpt__rank_part part;
            ckpt_error err = CKPT_ERROR_INIT;
            ckpt__arena *a = ckpt__arena_new(0);
            allocations_left = fail;
            ckpt_status status = ckpt__rank_part_of(&o.mesh, o.cuts, o.count, o.ndim, o.shape, 0, a, &part, &err);
            const bool all = allocations_left >= 0;
            allocations_left = -1;
            ckpt__arena_free(a);
            ck_assert_int_eq(status, all ? CKPT_OK : CKPT_E_NO_MEMORY);
            if (all)
                break;
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mesh");
    TCase *c = tcase_create("mesh");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, random_meshes, 0, 3);
    tcase_add_loop_test(c, known_rows, 0, sizeof known / sizeof *known);
    tcase_add_loop_test(c, wrong_meshes, 0, sizeof bad_meshes / sizeof *bad_meshes);
    tcase_add_loop_test(c, wrong_cuts, 0, sizeof bad_cuts / sizeof *bad_cuts);
    tcase_add_test(c, too_many_boxes);
    tcase_add_test(c, every_allocation);
    suite_add_tcase(s, c);
    return run_suite(s);
}
