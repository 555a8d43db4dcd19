/* test_migrate_mesh.c - a distributed checkpoint that is cut for the ranks of a mesh: each rank's boxes are those of layout/mesh.h, in its
 * own file, with the elements of the source; by --cut and by the ranks of a layout. What is wrong with them is said. */
#include <stdlib.h>
#include <sys/stat.h>
#include "../random.h"
#include "../scarce_memory.h"
#include "bound_adam.h"
#include "layout/mesh.h"

enum { CASES = 25, TENSORS = 3, DIMS = 3 };

/* ---- a source: weights with a moment each, one state of another shape, and a step */

typedef struct tensor {
    const char *name;
    uint32_t ndim;
    int64_t shape[DIMS];
    float *data, *moment;
} tensor;

static size_t volume(const tensor *t)
{
    size_t n = 1;
    for (uint32_t d = 0; d < t->ndim; d++)
        n *= (size_t)t->shape[d];
    return n;
}

static void bind_to(ckpt_state *s, const tensor *t, ckpt_role role, const char *key, uint32_t ndim, float *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = role == CKPT_ROLE_PARAM ? t->name : NULL;
    d.param = role == CKPT_ROLE_PARAM ? NULL : t->name;
    d.state_key = key;
    d.role = role;
    d.dtype = CKPT_F32;
    d.ndim = ndim;
    d.shape = t->shape;
    d.data = data;
    OK(ckpt_state_tensor(s, &d, &err));
}

static void save(const char *path, tensor *tensors, size_t count)
{
    static float rows[TENSORS][64];
    static double lr = 0.5, decay = 0.25;
    static int64_t step = 3;
    const char *names[TENSORS];
    ckpt_state *s = ckpt_state_new();
    ckpt_save_options to = CKPT_SAVE_OPTIONS_INIT;
    float next = 1;
    to.no_sync = true;
    for (size_t i = 0; i < count; i++) {
        tensor *t = &tensors[i];
        names[i] = t->name;
        t->data = malloc(2 * volume(t) * sizeof(float) + 1);
        t->moment = t->data + volume(t);
        ck_assert_ptr_nonnull(t->data);
        for (size_t k = 0; k < 2 * volume(t); k++)
            t->data[k] = next++;
        bind_to(s, t, CKPT_ROLE_PARAM, NULL, t->ndim, t->data);
        bind_to(s, t, CKPT_ROLE_EXP_AVG, NULL, t->ndim, t->moment);
        if (t->ndim == 2 && t->shape[0] < 64)
            bind_to(s, t, CKPT_ROLE_OPTIM, "row", 1,
                    rows[i]); /* as Adafactor has it: of another shape than its parameter */
    }
    bind_group(s, "0", names, count, &lr, &decay);
    OK(ckpt_state_i64(s, "step", &step, &err));
    OK(ckpt_save(s, path, &to, &err));
    ckpt_state_free(s);
}

static void forget(tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(tensors[i].data);
}

/* ---- what is written, against the parts of the ranks */

static bool is_box(const ckpt__rank_part *p, const ckpt_piece_info *piece)
{
    for (size_t k = 0; k < p->count; k++)
        if (memcmp(p->boxes[k].lo, piece->lo, piece->ndim * sizeof(int64_t)) == 0 &&
            memcmp(p->boxes[k].size, piece->size, piece->ndim * sizeof(int64_t)) == 0)
            return true;
    return false;
}

/* The box of a tensor that is whole is all of it. */
static void check_piece(ckpt_reader *r, size_t i, size_t piece, const ckpt__rank_mesh *mesh,
                        const ckpt__rank_part *parts)
{
    static const int64_t zeros[DIMS];
    const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    bool found = false;
    OK(ckpt_reader_piece(r, i, piece, &p, &err));
    ck_assert(!p.flat);
    if (!p.lo) {
        p.lo = zeros;
        p.size = t->shape;
    }
    p.ndim = t->ndim;
    for (uint32_t k = 0; k < ckpt__rank_mesh_world(mesh); k++) {
        char file[40];
        snprintf(file, sizeof file, "__%u_0.distcp", (unsigned)k);
        found = found || (is_box(&parts[k], &p) && ckpt__str_is(p.file, file));
    }
    ck_assert_msg(found, "%s: a box in %.*s is of no rank that has it", t->name.data, (int)p.file.size, p.file.data);
}

static size_t distinct(const ckpt__rank_mesh *mesh, const ckpt__rank_part *parts)
{
    size_t n = 0;
    for (uint32_t k = 0; k < ckpt__rank_mesh_world(mesh); k++)
        n += parts[k].first ? parts[k].count : 0;
    return n;
}

static void check_tensor(ckpt_reader *r, const char *name, const tensor *t, const float *want,
                         const ckpt__rank_mesh *mesh, const ckpt__rank_cut *cuts, size_t cut_count)
{
    size_t i;
    ckpt__arena *a = ckpt__arena_new(0);
    const uint32_t world = ckpt__rank_mesh_world(mesh);
    ckpt__rank_part *parts = ckpt__arena_array(a, world, sizeof *parts);
    float *got = malloc(volume(t) * sizeof *got + 1);
    OK(ckpt_reader_find(r, name, strlen(name), &i, &err));
    ck_assert(ckpt__same_shape(ckpt_reader_tensor(r, i)->shape, ckpt_reader_tensor(r, i)->ndim, t->shape, t->ndim));
    OK(ckpt_reader_read(r, i, got, volume(t) * sizeof *got, &err));
    ck_assert_msg(memcmp(got, want, volume(t) * sizeof *got) == 0, "%s has other elements", name);
    for (uint32_t k = 0; k < world; k++)
        OK(ckpt__rank_part_of(mesh, cuts, cut_count, t->ndim, t->shape, k, a, &parts[k], &err));
    ck_assert_uint_eq(ckpt_reader_piece_count(r, i), distinct(mesh, parts));
    for (size_t p = 0; p < ckpt_reader_piece_count(r, i); p++)
        check_piece(r, i, p, mesh, parts);
    free(got);
    ckpt__arena_free(a);
}

static void check_both(ckpt_reader *r, const tensor *t, const ckpt__rank_mesh *mesh, const ckpt__rank_cut *cuts,
                       size_t count)
{
    char name[80];
    snprintf(name, sizeof name, "model.%s", t->name);
    check_tensor(r, name, t, t->data, mesh, cuts, count);
    snprintf(name, sizeof name, "optimizer.state.%s.exp_avg", t->name);
    check_tensor(r, name, t, t->moment, mesh, cuts, count);
}

/* ---- random meshes */

typedef struct one {
    tensor tensors[TENSORS];
    char mesh_text[80], rules[TENSORS][120];
    const char *said[TENSORS];
    ckpt__rank_mesh mesh;
    ckpt__rank_cut cuts[TENSORS][4];
    size_t count[TENSORS];
} one;

static void make_mesh(one *o)
{
    static const char *const names[] = {"pp", "dp", "tp"};
    size_t used = 0;
    o->mesh.count = 3;
    for (size_t a = 0; a < 3; a++) {
        o->mesh.axes[a] = (ckpt__rank_axis){{names[a], 2}, 1 + roll(3)};
        used += (size_t)snprintf(o->mesh_text + used, sizeof o->mesh_text - used, "%s%s=%d", a ? "," : "", names[a],
                                 (int)o->mesh.axes[a].size);
    }
}

/* A rule that names pp and tp, in either order, and dp sometimes; where it does not, dp cuts the rows of what is left. */
static void make_rule(one *o, size_t i)
{
    const tensor *t = &o->tensors[i];
    size_t order[3] = {0, 2, 1}, used = 0;
    bool dp = false;
    if (roll(2)) {
        order[0] = 2;
        order[1] = 0;
    }
    used += (size_t)snprintf(o->rules[i], sizeof o->rules[i], "%s=", t->name);
    for (size_t k = 0; k < 2 + roll(2); k++) {
        const size_t axis = order[k];
        const bool none = roll(4) == 0;
        const unsigned dim = roll(t->ndim);
        used += (size_t)(none ? snprintf(o->rules[i] + used, sizeof o->rules[i] - used, "%s%s:none", k ? "," : "",
                                         o->mesh.axes[axis].name.data)
                              : snprintf(o->rules[i] + used, sizeof o->rules[i] - used, "%s%s:%u", k ? "," : "",
                                         o->mesh.axes[axis].name.data, dim));
        dp = dp || axis == 1;
        if (!none)
            o->cuts[i][o->count[i]++] = (ckpt__rank_cut){.axis = axis, .dim = dim, .groups = 1};
    }
    if (!dp)
        o->cuts[i][o->count[i]++] = (ckpt__rank_cut){.axis = 1, .groups = 1};
    o->said[i] = o->rules[i];
}

static void make(one *o)
{
    static const char *const names[TENSORS] = {"a.weight", "b.weight", "c.bias"};
    memset(o, 0, sizeof *o);
    make_mesh(o);
    for (size_t i = 0; i < TENSORS; i++) {
        tensor *t = &o->tensors[i];
        t->name = names[i];
        t->ndim = i == 2 ? 1 : 2 + roll(2);
        for (uint32_t d = 0; d < t->ndim; d++)
            t->shape[d] = 1 + roll(i == 0 && t->ndim == 2 ? 120 : 9);
        make_rule(o, i);
    }
}

START_TEST(random_meshes)
{
    static one o;
    random_state = 0x2545f4914f6cdd1du + (uint64_t)_i * 104729;
    for (unsigned c = 0; c < CASES; c++) {
        make(&o);
        save(at("n.safetensors"), o.tensors, TENSORS);
        options.mesh = o.mesh_text;
        options.cuts = o.said;
        options.cut_count = TENSORS;
        options.threads = 1 + roll(3);
        migrates(at("n.safetensors"), "dcp", at("d"));
        ckpt_reader *r = opened(at("d"));
        for (size_t i = 0; i < TENSORS; i++)
            check_both(r, &o.tensors[i], &o.mesh, o.cuts[i], o.count[i]);
        ckpt_reader_close(r);
        options.lossy = true;
        migrates(at("n.safetensors"), "dcp-hf", at("h"));
        options.lossy = false;
        r = opened(at("h"));
        size_t i;
        OK(ckpt_reader_find(r, "a.weight", 8, &i, &err));
        ckpt_reader_close(r);
        options.mesh = NULL;
        options.cut_count = 0;
        migrates(at("d"), "ckpt", at("back.safetensors")); /* its pieces are read as any */
        forget(o.tensors, TENSORS);
    }
}
END_TEST

/* Boxes that are larger than the window, slices of which are made one behind the other; several threads; converted. */
START_TEST(large_boxes)
{
    tensor t = {.name = "a.weight", .ndim = 2, .shape = {1201, 1403}};
    const ckpt__rank_mesh mesh = {.count = 2, .axes = {{{"dp", 2}, 1}, {{"tp", 2}, 2}}};
    const ckpt__rank_cut cuts[] = {{.axis = 1, .dim = 1, .groups = 1}};
    static const char *const said[] = {"*=tp:1"}, *const casts[] = {"*.weight=bfloat16"};
    save(at("n.safetensors"), &t, 1);
    options.mesh = "dp=1,tp=2";
    options.cuts = said;
    options.cut_count = 1;
    options.memory = (uint64_t)33 << 20;
    options.threads = (unsigned)_i + 1;
    migrates(at("n.safetensors"), "dcp", at("d"));
    ckpt_reader *r = opened(at("d"));
    check_both(r, &t, &mesh, cuts, 1);
    ckpt_reader_close(r);
    options.cast = casts;
    options.cast_count = 1;
    migrates(at("n.safetensors"), "dcp", at("c")); /* it is read back */
    forget(&t, 1);
}
END_TEST

/* ---- a layout's ranks */

#define RULES                                                                                                          \
    "layout: 1\nsides: [mine, theirs]\nvars: {n: {mine: [a.weight, 0]}, ranks: given}\nrules:\n"                       \
    "- {mine: a.weight, theirs: x.a}\n- {mine: b.weight, theirs: x.b}\n- {mine: c.bias, theirs: x.c}\nranks:\n theirs:\n"

static void write_source(tensor *tensors)
{
    const tensor made[TENSORS] = {
        {"a.weight", 2, {12, 5}, NULL, NULL}, {"b.weight", 2, {7, 6}, NULL, NULL}, {"c.bias", 1, {3}, NULL, NULL}};
    memcpy(tensors, made, sizeof made);
    save(at("n.safetensors"), tensors, TENSORS);
}

/* Queries, keys and values in one tensor: each is cut by itself. By the layout's own mesh, and by one that --mesh changes. */
START_TEST(segments)
{
    static const int64_t sizes[] = {3, 3, 6};
    static const char *const vars[] = {"ranks=2"};
    tensor tensors[TENSORS];
    const ckpt__rank_cut cuts[] = {{.axis = 1, .segments = sizes, .segment_count = 3, .groups = 1},
                                   {.axis = 0, .groups = 1}};
    const ckpt__rank_mesh mesh = {.count = 2, .axes = {{{"dp", 2}, 2}, {{"tp", 2}, _i ? 3 : 2}}};
    write_source(tensors);
    write_text(at("l.yaml"), RULES
               "  mesh: {dp: ranks, tp: ranks}\n"
               "  shard:\n"
               "  - {name: x.a, cuts: [{axis: tp, dim: 0, segments: {sizes: [3, n / 4, 6]}}, {axis: dp, dim: 0}]}\n"
               "  - {name: '<r:rest>', cuts: [{axis: dp, dim: 0}]}\n");
    options.layout = at("l.yaml");
    options.layout_side = "mine";
    options.layout_vars = vars;
    options.layout_var_count = 1;
    options.mesh = _i ? "tp=3" : NULL;
    migrates(at("n.safetensors"), "dcp", at("d"));
    ckpt_reader *r = opened(at("d"));
    tensors[0].name = "x.a";
    tensors[1].name = "x.b";
    check_both(r, &tensors[0], &mesh, cuts, 2);
    check_both(r, &tensors[1], &mesh, cuts + 1, 1);
    ckpt_reader_close(r);
    options.lossy = true;
    ck_assert_int_eq(migrate(at("n.safetensors"), "dcp-hf", at("h")), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "has several boxes of it"));
    forget(tensors, TENSORS);
}
END_TEST

/* ---- what is wrong */

static const struct wrong {
    const char *to, *mesh, *cuts[3];
    uint32_t world;
    const char *says;
} wrongs[] = {
    {"torch", "dp=2", {NULL}, 0, "--mesh is for a distributed checkpoint of PyTorch"},
    {"torch-dist", "dp=2", {NULL}, 0, "--mesh is for a distributed checkpoint of PyTorch"},
    {"universal", "dp=2", {NULL}, 0, "universal is not"},
    {"torch", NULL, {"*=tp:0"}, 0, "--cut is for a distributed checkpoint of PyTorch"},
    {"dcp", "dp=2,", {NULL}, 0, "--mesh dp=2,: '' is not an axis"},
    {"dcp", "dp=2", {NULL}, 3, "--world 3 and --mesh dp=2, which has 2 ranks"},
    {"dcp", NULL, {"*=tp:0"}, 0, "say --mesh, too"},
    {"dcp",
     "dp=2,tp=2",
     {NULL},
     0,
     "it is unknown which tensors the axis 'tp' cuts, and along which dimension: say --cut 'GLOB=tp:"},
    {"dcp", "dp=2,ep=2", {"*=dp:0"}, 0, "the axis 'ep' cuts"},
    {"dcp", "dp=2,tp=2", {"*"}, 0, "there is no '=' behind a pattern"},
    {"dcp", "dp=2,tp=2", {"=tp:0"}, 0, "there is no '=' behind a pattern"},
    {"dcp", "dp=2,tp=2", {"*="}, 0, "an axis, a colon, and"},
    {"dcp", "dp=2,tp=2", {"*=tp"}, 0, "an axis, a colon, and"},
    {"dcp", "dp=2,tp=2", {"*=tp:x"}, 0, "an axis, a colon, and"},
    {"dcp", "dp=2,tp=2", {"*=tp:-1"}, 0, "an axis, a colon, and"},
    {"dcp", "dp=2,tp=2", {"*=tp:0,"}, 0, "an axis, a colon, and"},
    {"dcp", "dp=2,tp=2", {"*=cp:0"}, 0, "the mesh has no such axis"},
    {"dcp", "dp=2,tp=2", {"*=tp:0,tp:1"}, 0, "an axis cuts a tensor once"},
    {"dcp",
     "dp=2,tp=2",
     {"*.weight=tp:1", "*.wight=tp:0"},
     0,
     "--cut '*.wight=tp:0' is the first rule of no parameter"},
    {"dcp", "dp=2,tp=2", {"*=tp:1"}, 0, "--cut '*': tp cuts dimension 1, and the tensor has 1"},
    {"dcp", "dp=300,tp=300", {"*=tp:0"}, 0, "at most 65536 ranks"},
};

START_TEST(refusals)
{
    const struct wrong *w = &wrongs[_i];
    tensor tensors[TENSORS];
    struct stat st;
    write_source(tensors);
    options.mesh = w->mesh;
    options.cuts = w->cuts;
    while (options.cut_count < 3 && w->cuts[options.cut_count])
        options.cut_count++;
    options.target_world = w->world;
    ck_assert_int_lt(migrate(at("n.safetensors"), w->to, at("d")), 0);
    ck_assert_msg(strstr(err.message, w->says), "'%s' is not in '%s'", w->says, err.message);
    ck_assert_int_ne(stat(at("d"), &st), 0);
    forget(tensors, TENSORS);
}
END_TEST

static const struct wrong_layout {
    const char *ranks, *mesh;
    uint32_t world;
    const char *says;
} wrong_layouts[] = {
    {"  mesh: {dp: 2, tp: 2}\n", "tp=2,dp=2", 0, "the axes of theirs are in the order dp, tp"},
    {"  mesh: {dp: 2, tp: 2}\n", "cp=2", 0, "the mesh of theirs has no axis 'cp': its axes are dp, tp"},
    {"  mesh: {dp: 2, tp: 2}\n", NULL, 0, "it is unknown which tensors the axis 'tp' cuts"},
    {"  mesh: {dp: 2, tp: ranks}\n", NULL, 0, "line 10, column 17: 'ranks': the value of 'ranks' is unknown"},
    {"  mesh: {dp: 2, tp: files}\n  files: r<dp>_<tp>.pt\n", NULL, 0,
     "the size of the axis tp is left to the names of files"},
    {"  mesh: {dp: 0}\n", NULL, 0, "the axis 'dp' has the size 0"},
    {"  mesh: {dp: 2, tp: 2}\n  shard: [{name: '<r:rest>', cuts: []}]\n", NULL, 8,
     "--world 8, and the mesh of 4 ranks"},
    {"  mesh: {tp: 2}\n  shard: [{name: x.y, cuts: []}]\n", NULL, 0,
     "line 11, column 11: the entry of 'shard' is the first of no"},
    {"  mesh: {tp: 2}\n  shard: [{name: x.a, cuts: [{axis: tp, dim: 0, as: [1, 2, 3]}]}]\n", NULL, 0,
     "line 11, column 30: there are 3 widths, and 2 ranks along tp"},
    {"  mesh: {tp: 5}\n  shard: [{name: x.a, cuts: [{axis: tp, dim: 0, as: even}]}]\n", NULL, 0,
     "its 12 elements are not a multiple of 5"},
    {"  mesh: {tp: 2}\n  shard: [{name: x.a, cuts: [{axis: tp, dim: 0, segments: {sizes: [n / 5]}}]}]\n", NULL, 0,
     "12 / 5 is not a whole number"},
};

START_TEST(refused_layouts)
{
    const struct wrong_layout *w = &wrong_layouts[_i];
    tensor tensors[TENSORS];
    char text[1000];
    write_source(tensors);
    snprintf(text, sizeof text, RULES "%s", w->ranks);
    write_text(at("l.yaml"), text);
    options.layout = at("l.yaml");
    options.layout_side = "mine";
    options.mesh = w->mesh;
    options.target_world = w->world;
    ck_assert_int_lt(migrate(at("n.safetensors"), "dcp", at("d")), 0);
    ck_assert_msg(strstr(err.message, w->says), "'%s' is not in '%s'", w->says, err.message);
    options.mesh = NULL; /* of a target that is one file the ranks are not asked */
    options.target_world = 0;
    migrates(at("n.safetensors"), "ckpt", at("one.safetensors"));
    forget(tensors, TENSORS);
}
END_TEST

/* A mesh of one rank in a layout cuts nothing, and --world is as without it; so it is of a mesh that only files tell. */
START_TEST(one_rank)
{
    static const ckpt__rank_cut rows = {.groups = 1};
    const ckpt__rank_mesh mesh = {.count = 1, .axes = {{{"ranks", 5}, 3}}};
    tensor tensors[TENSORS];
    write_source(tensors);
    write_text(at("l.yaml"), _i ? RULES "  mesh: {dp: 2, tp: files}\n  files: r<dp>_<tp>.pt\n"
                                : RULES "  mesh: {dp: 1, tp: 1}\n  shard: [{name: x.a, cuts: [{axis: tp, dim: 1}]}]\n");
    options.layout = at("l.yaml");
    options.layout_side = "mine";
    options.target_world = 3;
    migrates(at("n.safetensors"), "dcp", at("d"));
    ckpt_reader *r = opened(at("d"));
    tensors[0].name = "x.a";
    check_both(r, &tensors[0], &mesh, &rows, 1);
    ckpt_reader_close(r);
    forget(tensors, TENSORS);
}
END_TEST

START_TEST(every_allocation)
{
    static const char *const said[] = {"a*=tp:1", "b*=tp:0,dp:1"}, *const vars[] = {"ranks=2"};
    char source[200], layout[200]; /* at() keeps eight */
    tensor tensors[TENSORS];
    bool all = false;
    size_t failed = 0;
    write_source(tensors);
    snprintf(source, sizeof source, "%s", at("n.safetensors"));
    snprintf(layout, sizeof layout, "%s", at("l.yaml"));
    write_text(layout, RULES
               "  mesh: {dp: ranks, tp: 2}\n"
               "  shard: [{name: x.a, cuts: [{axis: tp, dim: 0, segments: {sizes: [6], groups: 2}, as: [2, 4]}]}]\n");
    options.verify = false;
    options.dry_run = true;
    options.threads = 1;
    options.layout = _i ? layout : NULL;
    options.layout_side = _i ? "mine" : NULL;
    options.layout_vars = vars;
    options.layout_var_count = _i ? 1 : 0;
    options.mesh = _i ? NULL : "dp=2,tp=2";
    options.cuts = said;
    options.cut_count = _i ? 0 : 2;
    for (long n = 0; !all; n++) {
        allocations_left = n;
        ckpt_status status = migrate(source, "dcp", at("d"));
        all = allocations_left >= 0; /* none has failed */
        allocations_left = -1;
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld: %d %s", n, (int)status,
                      err.message);
        failed += status < 0;
    }
    ck_assert_uint_gt(failed, 300);
    forget(tensors, TENSORS);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_mesh");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup_new, teardown);
    tcase_add_loop_test(t, random_meshes, 0, 2);
    tcase_add_loop_test(t, large_boxes, 0, 3);
    tcase_add_loop_test(t, segments, 0, 2);
    tcase_add_loop_test(t, refusals, 0, sizeof wrongs / sizeof *wrongs);
    tcase_add_loop_test(t, refused_layouts, 0, sizeof wrong_layouts / sizeof *wrong_layouts);
    tcase_add_loop_test(t, one_rank, 0, 2);
    tcase_add_loop_test(t, every_allocation, 0, 2);
    suite_add_tcase(s, t);
    return run_suite(s);
}
