/* layout/mesh.c - which part of a tensor a rank of a mesh has. */
#include "layout/mesh.h"

#include <stdio.h>
#include "layout/formula.h"

/* ---- the mesh */

static const char *shown_text(char *out, size_t size, ckpt_str text)
{
    return ckpt__escape(out, size, text.data ? text.data : "", text.size);
}

ckpt_status ckpt__rank_mesh_check(const ckpt__rank_mesh *mesh, ckpt_error *err)
{
    char shown[80];
    uint64_t world = 1;
    if (mesh->count == 0 || mesh->count > CKPT__MESH_AXES)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a mesh has 1 to %d axes, and this one has %zu",
                          (int)CKPT__MESH_AXES, mesh->count);
    for (size_t i = 0; i < mesh->count; i++) {
        const ckpt__rank_axis *a = &mesh->axes[i];
        shown_text(shown, sizeof shown, a->name);
        if (!ckpt__formula_is_name(a->name))
            return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                              "'%s' is not a name of an axis: a letter or _, and then letters, digits and _", shown);
        if (ckpt__rank_mesh_axis(mesh, a->name) < i)
            return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "the axis '%s' stands twice in the mesh", shown);
        if (a->size < 1)
            return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "the axis '%s' has the size %lld: a size is 1 or more", shown,
                              (long long)a->size);
        world = a->size > CKPT__MESH_RANKS ? CKPT__MESH_RANKS + 1 : world * (uint64_t)a->size;
        if (world > CKPT__MESH_RANKS)
            return ckpt__fail(err, CKPT_E_LIMIT, NULL, "a mesh has at most %d ranks", (int)CKPT__MESH_RANKS);
    }
    return CKPT_OK;
}

ckpt_status ckpt__rank_mesh_parse(ckpt_str text, ckpt__rank_mesh *out, ckpt_error *err)
{
    *out = (ckpt__rank_mesh){.count = 0};
    for (size_t at = 0; at <= text.size;) {
        const char *from = text.data ? text.data + at : "";
        const char *comma = at < text.size ? memchr(from, ',', text.size - at) : NULL;
        const ckpt_str one = {from, comma ? (size_t)(comma - from) : text.size - at};
        const char *equals = one.size ? memchr(one.data, '=', one.size) : NULL;
        ckpt__rank_axis axis = {.name = {one.data, equals ? (size_t)(equals - one.data) : one.size}};
        char shown[80];
        if (!equals || !ckpt__parse_i64(equals + 1, one.size - axis.name.size - 1, &axis.size))
            return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                              "'%s' is not an axis: name=size is expected, as in dp=2,tp=2, the slowest axis first",
                              shown_text(shown, sizeof shown, one));
        if (out->count == CKPT__MESH_AXES)
            return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a mesh has at most %d axes", (int)CKPT__MESH_AXES);
        out->axes[out->count++] = axis;
        at += one.size + 1;
    }
    return ckpt__rank_mesh_check(out, err);
}

uint32_t ckpt__rank_mesh_world(const ckpt__rank_mesh *mesh)
{
    int64_t world = 1;
    for (size_t i = 0; i < mesh->count; i++)
        world *= mesh->axes[i].size;
    return (uint32_t)world;
}

size_t ckpt__rank_mesh_axis(const ckpt__rank_mesh *mesh, ckpt_str name)
{
    size_t i = 0;
    while (i < mesh->count && !ckpt__str_equal(mesh->axes[i].name, name))
        i++;
    return i;
}

void ckpt__rank_mesh_coordinates(const ckpt__rank_mesh *mesh, uint32_t rank, int64_t *out)
{
    int64_t left = rank;
    for (size_t i = mesh->count; i-- > 0;) {
        out[i] = left % mesh->axes[i].size;
        left /= mesh->axes[i].size;
    }
}

uint32_t ckpt__rank_mesh_rank(const ckpt__rank_mesh *mesh, const int64_t *coordinates)
{
    int64_t rank = 0;
    for (size_t i = 0; i < mesh->count; i++)
        rank = rank * mesh->axes[i].size + coordinates[i];
    return (uint32_t)rank;
}

void ckpt__rank_mesh_text(const ckpt__rank_mesh *mesh, char *out, size_t size)
{
    size_t used = 0;
    if (size)
        out[0] = 0;
    for (size_t i = 0; i < mesh->count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%.*s=%lld", i ? ", " : "",
                                 (int)(mesh->axes[i].name.size < 40 ? mesh->axes[i].name.size : 40),
                                 mesh->axes[i].name.data, (long long)mesh->axes[i].size);
}

/* ---- one dimension: what a rank has of it */

/* Elements [lo, lo + size) of the tensor's dimension, from `at` on of the rank's own. */
typedef struct run {
    int64_t lo, size, at;
} run;

/* In the order in which the rank has them; none is empty, and none continues the one before. */
typedef struct runs {
    run *items; /* in the arena */
    size_t count, room;
} runs;

typedef struct cutting {
    const ckpt__rank_mesh *mesh;
    const ckpt__rank_cut *cut;
    int64_t coordinate; /* of the rank, along the cut's axis */
    ckpt__arena *arena;
    ckpt_error *err;
} cutting;

static ckpt_status refuse(const cutting *c, const char *what)
{
    const ckpt_str name = c->mesh->axes[c->cut->axis].name;
    return ckpt__fail(c->err, CKPT_E_MISMATCH, NULL, "%.*s cuts dimension %u, %s",
                      (int)(name.size < 60 ? name.size : 60), name.data, (unsigned)c->cut->dim, what);
}

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the parts of a tensor", 0);
}

static ckpt_status add_run(const cutting *c, runs *to, int64_t lo, int64_t size)
{
    run *last = to->count ? &to->items[to->count - 1] : NULL;
    if (size == 0)
        return CKPT_OK;
    if (last && last->lo + last->size == lo) {
        last->size += size;
        return CKPT_OK;
    }
    if (to->count == CKPT__PART_BOXES)
        return ckpt__fail(c->err, CKPT_E_LIMIT, NULL, "a rank would have more than %d boxes of it",
                          (int)CKPT__PART_BOXES);
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 4;
        run *items = ckpt__arena_array(c->arena, room, sizeof *items);
        if (!items)
            return no_memory(c->err);
        if (to->count)
            memcpy(items, to->items, to->count * sizeof *items);
        to->items = items;
        to->room = room;
    }
    last = to->count ? &to->items[to->count - 1] : NULL;
    to->items[to->count] = (run){lo, size, last ? last->at + last->size : 0};
    to->count++;
    return CKPT_OK;
}

static int64_t length_of(const runs *r)
{
    const run *last = r->count ? &r->items[r->count - 1] : NULL;
    return last ? last->at + last->size : 0;
}

/* Elements [begin, begin + size) of what `from` is. *next: the run where the last one was found; `begin` never goes back. */
static ckpt_status take_runs(const cutting *c, const runs *from, int64_t begin, int64_t size, size_t *next, runs *to)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && size && *next < from->count) {
        const run *r = &from->items[*next];
        const int64_t within = begin - r->at, left = r->size - within;
        if (left <= 0) {
            ++*next;
            continue;
        }
        const int64_t some = left < size ? left : size;
        status = add_run(c, to, r->lo + within, some);
        begin += some;
        size -= some;
    }
    return status;
}

static ckpt_status by_widths(const cutting *c, int64_t n, int64_t *begin, int64_t *size)
{
    const int64_t ranks = c->mesh->axes[c->cut->axis].size;
    char what[120];
    uint64_t sum = 0;
    bool fits = true;
    for (int64_t i = 0; i < ranks && fits; i++) {
        const int64_t width = c->cut->widths[i];
        if (i == c->coordinate) {
            *begin = (int64_t)sum;
            *size = width;
        }
        fits = width >= 0 && ckpt__add(sum, (uint64_t)width, &sum) && sum <= (uint64_t)n;
    }
    if (fits && sum == (uint64_t)n)
        return CKPT_OK;
    snprintf(what, sizeof what,
             fits ? "and its widths come to %llu: there are %lld" : "and its widths are more than %lld",
             fits ? (unsigned long long)sum : (unsigned long long)n, (long long)n);
    return refuse(c, what);
}

/* The rank's part of n elements. */
static ckpt_status part_of(const cutting *c, int64_t n, int64_t *begin, int64_t *size)
{
    const int64_t ranks = c->mesh->axes[c->cut->axis].size, k = c->coordinate, each = n / ranks, rest = n % ranks;
    char what[120];
    switch (c->cut->as) {
    case CKPT__CUT_AS_WIDTHS:
        return by_widths(c, n, begin, size);
    case CKPT__CUT_AS_BALANCED:
        *begin = each * k + (k < rest ? k : rest);
        *size = each + (k < rest);
        return CKPT_OK;
    case CKPT__CUT_AS_EVEN:
        if (rest) {
            snprintf(what, sizeof what, "and its %lld elements are not a multiple of %lld", (long long)n,
                     (long long)ranks);
            return refuse(c, what);
        }
        break;
    default:
        break;
    }
    const int64_t most = each + (rest != 0); /* most * k is below n + most where it counts */
    *begin = most && k > n / most ? n : most * k;
    *begin = *begin < n ? *begin : n;
    *size = n - *begin < most ? n - *begin : most;
    return CKPT_OK;
}

/* The groups and sizes come to n elements? */
static ckpt_status check_segments(const cutting *c, int64_t n)
{
    uint64_t sum = 0, all = 0;
    bool fits = c->cut->groups >= 1;
    char what[120];
    for (size_t i = 0; i < c->cut->segment_count && fits; i++)
        fits = c->cut->segments[i] >= 0 && ckpt__add(sum, (uint64_t)c->cut->segments[i], &sum);
    fits = fits && ckpt__mul(sum, (uint64_t)c->cut->groups, &all);
    if (fits && all == (uint64_t)n)
        return CKPT_OK;
    if (fits)
        snprintf(what, sizeof what, "and its segments come to %llu: there are %lld", (unsigned long long)all,
                 (long long)n);
    else
        snprintf(what, sizeof what, "and the sizes of its segments are out of range");
    return refuse(c, what);
}

/* from: what the rank had before the cut. */
static ckpt_status cut_runs(const cutting *c, const runs *from, runs *to)
{
    const int64_t n = length_of(from);
    int64_t begin = 0, size = 0, at = 0;
    size_t next = 0;
    ckpt_status status = CKPT_OK;
    if (!c->cut->segment_count) {
        status = part_of(c, n, &begin, &size);
        return status == CKPT_OK ? take_runs(c, from, begin, size, &next, to) : status;
    }
    status = check_segments(c, n);
    for (int64_t g = 0; status == CKPT_OK && at < n && g < c->cut->groups; g++)
        for (size_t i = 0; status == CKPT_OK && i < c->cut->segment_count; i++) {
            status = part_of(c, c->cut->segments[i], &begin, &size);
            if (status == CKPT_OK)
                status = take_runs(c, from, at + begin, size, &next, to);
            at += c->cut->segments[i];
        }
    return status;
}

/* ---- all dimensions */

/* The boxes: each run of the one dimension with each of the others, in C order. */
static ckpt_status make_boxes(const runs *dims, uint32_t ndim, ckpt__arena *arena, ckpt__rank_part *out,
                              ckpt_error *err)
{
    size_t count = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        count *= dims[d].count;
        if (count > CKPT__PART_BOXES)
            return ckpt__fail(err, CKPT_E_LIMIT, NULL, "a rank would have more than %d boxes of it",
                              (int)CKPT__PART_BOXES);
    }
    out->count = count;
    out->boxes = ckpt__arena_array(arena, count + 1, sizeof *out->boxes);
    int64_t *numbers = ckpt__arena_array(arena, 3 * count * ndim + 1, sizeof *numbers);
    if (!out->boxes || !numbers)
        return no_memory(err);
    for (size_t k = 0; k < count; k++) {
        int64_t *lo = numbers + 3 * k * ndim, *size = lo + ndim, *at = size + ndim;
        size_t left = k;
        for (uint32_t d = ndim; d-- > 0;) {
            const size_t r = left % dims[d].count;
            left /= dims[d].count;
            lo[d] = dims[d].items[r].lo;
            size[d] = dims[d].items[r].size;
            at[d] = dims[d].items[r].at;
        }
        out->boxes[k] = (ckpt__rank_box){lo, size, at};
    }
    return CKPT_OK;
}

static ckpt_status apply_cuts(cutting *c, const ckpt__rank_cut *cuts, size_t count, const int64_t *coordinates,
                              uint32_t ndim, runs *dims)
{
    bool cut[CKPT__MESH_AXES] = {false};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        char what[80];
        runs to = {.count = 0};
        c->cut = &cuts[i];
        c->coordinate = coordinates[cuts[i].axis];
        snprintf(what, sizeof what, "and the tensor has %u", (unsigned)ndim);
        if (cuts[i].dim >= ndim)
            status = refuse(c, what);
        else if (cut[cuts[i].axis])
            status = refuse(c, "and has cut the tensor before: an axis cuts a tensor once");
        else
            status = cut_runs(c, &dims[cuts[i].dim], &to);
        cut[cuts[i].axis] = true;
        if (status == CKPT_OK)
            dims[cuts[i].dim] = to;
    }
    return status;
}

ckpt_status ckpt__rank_part_of(const ckpt__rank_mesh *mesh, const ckpt__rank_cut *cuts, size_t count, uint32_t ndim,
                               const int64_t *shape, uint32_t rank, ckpt__arena *arena, ckpt__rank_part *out,
                               ckpt_error *err)
{
    int64_t coordinates[CKPT__MESH_AXES];
    cutting c = {.mesh = mesh, .arena = arena, .err = err};
    runs *dims = ckpt__arena_array(arena, (size_t)ndim + 1, sizeof *dims);
    *out = (ckpt__rank_part){.shape = ckpt__arena_array(arena, (size_t)ndim + 1, sizeof *out->shape),
                             .lo = ckpt__arena_array(arena, (size_t)ndim + 1, sizeof *out->lo),
                             .first = true};
    ckpt_status status = dims && out->shape && out->lo ? CKPT_OK : no_memory(err);
    ckpt__rank_mesh_coordinates(mesh, rank, coordinates);
    for (uint32_t d = 0; status == CKPT_OK && d < ndim; d++)
        status = add_run(&c, &dims[d], 0, shape[d]);
    if (status == CKPT_OK)
        status = apply_cuts(&c, cuts, count, coordinates, ndim, dims);
    for (size_t a = 0; a < mesh->count; a++) {
        bool cuts_it = false;
        for (size_t i = 0; i < count; i++)
            cuts_it = cuts_it || cuts[i].axis == a;
        out->first = out->first && (cuts_it || coordinates[a] == 0);
    }
    for (uint32_t d = 0; status == CKPT_OK && d < ndim; d++) {
        out->shape[d] = length_of(&dims[d]);
        out->lo[d] = dims[d].count ? dims[d].items[0].lo : shape[d];
    }
    return status == CKPT_OK ? make_boxes(dims, ndim, arena, out, err) : status;
}
