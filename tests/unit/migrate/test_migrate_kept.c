/* test_migrate_kept.c - what a torch file or a directory holds goes to a native file and back: bytes, offsets and strides
 * of views, optimizers whose parameters have no names, structures, and all of it through edits of the native file. */
#include "../migrate_setup.h"

static void setup_two(void)
{
    setup();
    make_directory("a");
    make_directory("b");
}

static bool said(const char *code)
{
    return ckpt_report_find(report, code, NULL) != NULL;
}

static char *content(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    char *data = malloc(1 << 22);
    *n = fread(data, 1, 1 << 22, f);
    fclose(f);
    return data;
}

/* Both have one name: torch's archives hold it. */
static void same_file(void)
{
    size_t n, k;
    char *a = content(at("a/x.pt"), &n), *b = content(at("b/x.pt"), &k);
    ck_assert_msg(n == k && memcmp(a, b, n) == 0, "%zu and %zu bytes", n, k);
    free(a);
    free(b);
}

/* The source as a torch file, at once and by way of a native file. */
static void both_ways(const char *src)
{
    migrates(src, "torch", at("a/x.pt"));
    migrates(src, "ckpt", at("x.ckpt"));
    migrates(at("x.ckpt"), "torch", at("b/x.pt"));
    same_file();
}

static const char *fixture(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/tests/data/%s", getenv("srcdir") ? getenv("srcdir") : ".", name);
    return path;
}

/* ---- views */

/* A tensor on a storage of its own of `numel` floats (0, 1, 2, ...), or of the one before where numel is 0. */
static void torch_view(torch_file *t, const char *name, int64_t numel, int64_t offset, int ndim, const int64_t *shape,
                       const int64_t *strides)
{
    char key[16];
    view v = {.class_name = "FloatStorage",
              .key = key,
              .location = "cpu",
              .offset = offset,
              .ndim = ndim,
              .stride_count = ndim};
    for (int i = 0; i < ndim; i++) {
        v.shape[i] = shape[i];
        v.strides[i] = strides[i];
    }
    if (numel) {
        t->numel[t->count] = (size_t)numel;
        for (int64_t i = 0; i < numel; i++)
            t->data[t->count][i] = (float)i;
        t->count++;
    }
    snprintf(key, sizeof key, "%d", t->count - 1);
    v.numel = (int64_t)t->numel[t->count - 1];
    put_str(&t->pickle, name);
    put_tensor(&t->pickle, &v);
}

static const struct {
    const char *name;
    int64_t numel, offset;
    int ndim;
    int64_t shape[4], strides[4];
    bool permuted; /* an entry of its own */
} views[] = {
    {"transposed", 12, 0, 2, {3, 4}, {1, 3}, true},
    {"channels_last", 48, 0, 4, {2, 3, 2, 4}, {24, 1, 12, 3}, true},
    {"stride_of_one", 4, 0, 2, {1, 4}, {77, 1}, true},
    {"stepped", 12, 1, 1, {5}, {2}, false},
    {"expanded", 3, 0, 2, {4, 3}, {0, 1}, false},
    {"unfolded", 6, 0, 2, {3, 4}, {1, 1}, false},
    {"part", 20, 7, 1, {5}, {1}, false},
    {"head", 20, 0, 1, {5}, {1}, false},
    {"empty", 8, 5, 1, {0}, {1}, false},
    {"whole", 6, 0, 2, {2, 3}, {3, 1}, true},
    {"scalar", 1, 0, 0, {0}, {0}, true},
};
enum { VIEWS = sizeof views / sizeof *views };

static torch_file *put_views(void)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < VIEWS; i++)
        torch_view(t, views[i].name, views[i].numel, views[i].offset, views[i].ndim, views[i].shape, views[i].strides);
    return t;
}

static void check_view(const ckpt_reader *r, size_t i)
{
    const ckpt_tensor_info *x = find(r, views[i].name);
    ck_assert_ptr_nonnull(x);
    ck_assert_int_eq(x->offset, views[i].offset);
    ck_assert_uint_eq(x->storage_nbytes, (uint64_t)views[i].numel * 4);
    for (int d = 0; d < views[i].ndim; d++) {
        ck_assert_int_eq(x->shape[d], views[i].shape[d]);
        ck_assert_msg(x->strides[d] == views[i].strides[d], "%s: stride %d is %d", views[i].name, d,
                      (int)x->strides[d]);
    }
}

START_TEST(views_come_back)
{
    torch_file *t = put_views();
    PUT(&t->pickle, "u");
    write_torch(at("v.pt"), t);
    both_ways(at("v.pt"));
    ckpt_reader *r = opened_as(at("b/x.pt"), NULL);
    for (size_t i = 0; i < VIEWS; i++)
        check_view(r, i);
    ckpt_reader_close(r);
    migrates(at("v.pt"), "ckpt", at("x.ckpt"));
    ck_assert(said("view"));
    r = opened_as(at("x.ckpt"), "safetensors"); /* as others read it */
    for (size_t i = 0; i < VIEWS; i++)
        ck_assert_msg((find(r, views[i].name) != NULL) == views[i].permuted, "%s", views[i].name);
    ckpt_reader_close(r);
}
END_TEST

/* What was in C order is not the storage as it was: the elements are. */
START_TEST(elements_stay)
{
    torch_file *t = put_views();
    float got[48];
    PUT(&t->pickle, "u");
    write_torch(at("v.pt"), t);
    migrates(at("v.pt"), "ckpt", at("x.ckpt"));
    ckpt_reader *r = opened_as(at("x.ckpt"), NULL);
    for (size_t i = 0; i < VIEWS; i++) {
        const ckpt_tensor_info *x = find(r, views[i].name);
        size_t number, n = (size_t)(x->nbytes / 4);
        ck_assert_int_eq(ckpt_reader_find(r, views[i].name, strlen(views[i].name), &number, NULL), CKPT_OK);
        ck_assert_int_eq(ckpt_reader_read(r, number, got, x->nbytes, &err), CKPT_OK);
        for (size_t e = 0; e < n; e++) {
            int64_t place = views[i].offset, rest = (int64_t)e;
            for (int d = views[i].ndim; d-- > 0; rest /= views[i].shape[d])
                place += rest % views[i].shape[d] * views[i].strides[d];
            ck_assert_msg(got[e] == (float)place, "%s[%zu]", views[i].name, e);
        }
    }
    ckpt_reader_close(r);
}
END_TEST

/* Views of one storage: one is all of it, or none; and one that is permuted beside another. */
START_TEST(shared_views_come_back)
{
    static const int64_t row[] = {4}, one[] = {1}, matrix[] = {3, 4}, flipped[] = {4, 3}, by_row[] = {4, 1},
                         by_column[] = {1, 4};
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    torch_view(t, "all", 12, 0, 2, matrix, by_row);
    torch_view(t, "row", 0, 4, 1, row, one);
    torch_view(t, "some", 12, 2, 1, row, one);
    torch_view(t, "more", 0, 6, 1, row, one);
    torch_view(t, "twice", 12, 0, 2, flipped, by_column);
    torch_view(t, "again", 0, 0, 2, flipped, by_column);
    PUT(&t->pickle, "u");
    write_torch(at("v.pt"), t);
    both_ways(at("v.pt"));
    options.cast = (const char *const[]){"some=float64"}; /* what is converted has its own place from then on */
    options.cast_count = 1;
    migrates(at("v.pt"), "torch", at("a/x.pt"));
    migrates(at("v.pt"), "ckpt", at("x.ckpt"));
    options.cast_count = 0;
    migrates(at("x.ckpt"), "torch", at("b/x.pt"));
    same_file();
}
END_TEST

static void lazy(torch_file *t, const char *name, const char *class_name, const char *bit)
{
    bytes *b = &t->pickle;
    const int64_t shape[] = {2}, strides[] = {1};
    char key[16];
    snprintf(key, sizeof key, "%d", t->count);
    t->numel[t->count] = 4;
    for (int i = 0; i < 4; i++)
        t->data[t->count][i] = (float)(i + 1);
    t->count++;
    put_str(b, name);
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    PUT(b, "(");
    put_storage(b, class_name, key, "cpu", strcmp(class_name, "FloatStorage") == 0 ? 4 : 2);
    put_int(b, 0);
    put_ints(b, shape, 1);
    put_ints(b, strides, 1);
    PUT(b, "\x89");
    put_ordered_dict(b);
    PUT(b, "}");
    put_str(b, bit);
    PUT(b, "\x88stR");
}

START_TEST(lazy_bits_come_back)
{
    torch_file *t = begin_torch();
    float got[4];
    size_t i;
    PUT(&t->pickle, "}(");
    lazy(t, "conj", "ComplexFloatStorage", "conj");
    lazy(t, "neg", "FloatStorage", "neg");
    PUT(&t->pickle, "u");
    write_torch(at("v.pt"), t);
    both_ways(at("v.pt"));
    ck_assert(!said("resolved"));
    ckpt_reader *r = opened_as(at("x.ckpt"), NULL);
    ck_assert(find(r, "conj")->conj && find(r, "neg")->neg);
    ck_assert_int_eq(ckpt_reader_find(r, "conj", 4, &i, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, got, sizeof got, &err), CKPT_OK);
    ck_assert(got[0] == 1 && got[1] == -2 && got[2] == 3 && got[3] == -4);
    ck_assert_int_eq(ckpt_reader_find(r, "neg", 3, &i, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, got, 8, &err), CKPT_OK);
    ck_assert(got[0] == -1 && got[1] == -2);
    ckpt_reader_close(r);
    options.lossy = true;
    migrates(at("v.pt"), "safetensors", at("x.safetensors"));
    ck_assert(said("resolved"));
}
END_TEST

/* ---- optimizers without names */

static const flat params[] = {{"w", 2, {3, 4}}, {"v", 2, {3, 4}}, {"b", 1, {3, 0}}};

START_TEST(an_optimizer_alone)
{
    static const char *const names[] = {"w", "v", "b"};
    write_adam(at("optimizer.bin"), params, 3, 3, 0.1);
    both_ways(at("optimizer.bin"));
    migrates(at("optimizer.bin"), "ckpt", at("x.ckpt"));
    const ckpt_finding *f = ckpt_report_find(report, "order-unknown", NULL);
    ck_assert(f && f->severity == CKPT_SEVERITY_WARNING && strstr(f->message, "state in C") &&
              strstr(f->fix, "--param-names"));
    ckpt_reader *r = opened_as(at("x.ckpt"), NULL);
    ck_assert_ptr_nonnull(find(r, "state.1.exp_avg_sq"));
    ckpt_reader_close(r);
    options.param_names = names;
    options.param_name_count = 2;
    ck_assert_int_eq(migrate(at("optimizer.bin"), "ckpt", at("y.ckpt")), CKPT_E_MISMATCH);
    options.param_name_count = 3;
    migrates(at("x.ckpt"), "ckpt", at("y.ckpt")); /* stated later, of the native file */
    ck_assert(!said("order-unknown"));
    r = opened_as(at("y.ckpt"), NULL);
    ck_assert_ptr_nonnull(find(r, "optimizer.v.exp_avg_sq"));
    ckpt_reader_close(r);
    options.param_name_count = 0;
    migrates(at("y.ckpt"), "torch", at("b/x.pt"));
    same_file();
    options.lossy = true;
    migrates(at("optimizer.bin"), "safetensors", at("x.safetensors"));
    r = opened_as(at("x.safetensors"), NULL);
    ck_assert_ptr_nonnull(find(r, "state.1.exp_avg_sq"));
    ckpt_reader_close(r);
    options.optimizer = CKPT_OPTIMIZER_FUSED; /* a placement by groups is asked for */
    ck_assert_int_eq(migrate(at("optimizer.bin"), "ckpt", at("x.ckpt")), CKPT_E_MISMATCH);
}
END_TEST

/* Two parameters of one shape and one that the optimizer does not hold. */
static void write_ambiguous(const char *path)
{
    torch_file *t = begin_torch();
    static const flat model[] = {{"w", 2, {3, 4}}, {"v", 2, {3, 4}}, {"u", 2, {3, 4}}};
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < 3; i++) {
        put_str(&t->pickle, model[i].name);
        torch_tensor(t, 2, 3, 4, (float)i);
    }
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "optimizer");
    put_adam(t, params, 2, 2, 0.1);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

static void bind(ckpt_state *state, const char *name, const char *param, ckpt_role role, float *data)
{
    static const int64_t shape[] = {3, 4};
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = CKPT_F32;
    d.ndim = 2;
    d.shape = shape;
    d.data = data;
    ck_assert_msg(ckpt_state_tensor(state, &d, &err) == CKPT_OK, "%s", err.message);
}

START_TEST(what_has_no_names_is_said)
{
    static float weights[3][12], moments[12];
    ckpt_doctor_options asked = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result answer = CKPT_DOCTOR_RESULT_INIT;
    write_ambiguous(at("m.pt"));
    both_ways(at("m.pt"));
    migrates(at("m.pt"), "ckpt", at("x.ckpt"));
    ck_assert(said("order-ambiguous"));
    ckpt_reader *r = opened_as(at("x.ckpt"), NULL);
    ck_assert(find(r, "w") && find(r, "optimizer.state.0.exp_avg"));
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_doctor(r, &asked, &answer, report, &err), CKPT_OK);
    ck_assert(said("ambiguous-order"));
    ck_assert_int_eq(answer.outcome, CKPT_OUTCOME_UNKNOWN);
    ckpt_doctor_result_clear(&answer);
    ckpt_reader_close(r);
    ckpt_state *state = ckpt_state_new();
    bind(state, "w", NULL, CKPT_ROLE_PARAM, weights[0]);
    bind(state, "v", NULL, CKPT_ROLE_PARAM, weights[1]);
    bind(state, "u", NULL, CKPT_ROLE_PARAM, weights[2]);
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_restore(state, at("x.ckpt"), NULL, report, &err), CKPT_OK);
    ck_assert_float_eq(weights[1][3], 4);
    bind(state, "optimizer.w.exp_avg", "w", CKPT_ROLE_EXP_AVG, moments);
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_restore(state, at("x.ckpt"), NULL, report, &err), CKPT_E_MISMATCH);
    ck_assert(said("order-unknown") && said("missing"));
    ckpt_state_free(state);
}
END_TEST

/* ---- directories */

START_TEST(directories_come_back)
{
    static const char *const folders[] = {"accelerate", "hf-trainer", "hf-sharded"};
    char path[400];
    options.lossy = true;
    snprintf(path, sizeof path, "%s", fixture("peers"));
    for (size_t i = 0; i < 3; i++) {
        char one[500];
        snprintf(one, sizeof one, "%s/%s", path, folders[i]);
        both_ways(one);
        options.map_location = "cuda:1"; /* the native file is edited as the directory is */
        migrates(one, "torch", at("a/x.pt"));
        migrates(at("x.ckpt"), "ckpt", at("y.ckpt"));
        options.map_location = NULL;
        ck_assert(!said("structure-dropped"));
        migrates(at("y.ckpt"), "torch", at("b/x.pt"));
        same_file();
    }
}
END_TEST

/* ---- native files that are edited */

static const char *const rules[] = {"0\\.(.*)=first.$1"}, *const drops[] = {"*bias*"},
                         *const casts[] = {"*weight=bfloat16"};

static void edit(int which)
{
    options.rename = which == 0 ? rules : NULL;
    options.rename_count = which == 0;
    options.add_prefix = which == 1 ? "net." : NULL;
    options.plain = which == 2;
    options.optimizer = which == 3 ? CKPT_OPTIMIZER_FUSED : CKPT_OPTIMIZER_DEFAULT;
    options.map_location = which == 4 ? "cuda:1" : NULL;
    options.map_device_objects = which == 4;
    options.drop = drops;
    options.drop_count = which == 5;
    options.cast = casts;
    options.cast_count = which == 6;
}

START_TEST(edited_along)
{
    const char *file = fixture(_i == 2 ? "peers/lightning-callbacks.ckpt" : "torch_write/plain.pt");
    options.lossy = true;
    migrates(file, "ckpt", at("x.ckpt"));
    edit(_i);
    migrates(file, "torch", at("a/x.pt"));
    migrates(at("x.ckpt"), "ckpt", at("y.ckpt"));
    ck_assert(!said("structure-dropped"));
    edit(-1);
    migrates(at("y.ckpt"), "torch", at("b/x.pt"));
    same_file();
    migrates(file, "torch", at("a/x.pt"));
    size_t n, k;
    char *a = content(at("a/x.pt"), &n), *b = content(at("b/x.pt"), &k);
    ck_assert(n != k || memcmp(a, b, n) != 0); /* the edit did something */
    free(a);
    free(b);
}
END_TEST

START_TEST(views_are_edited_along)
{
    torch_file *t = put_views();
    PUT(&t->pickle, "u");
    write_torch(at("v.pt"), t);
    migrates(at("v.pt"), "ckpt", at("x.ckpt"));
    options.add_prefix = "net.";
    migrates(at("v.pt"), "torch", at("a/x.pt"));
    migrates(at("x.ckpt"), "ckpt", at("y.ckpt"));
    options.add_prefix = NULL;
    migrates(at("y.ckpt"), "torch", at("b/x.pt"));
    same_file();
}
END_TEST

/* The order that was stated once is in the native file, whatever the torch file lets infer. */
START_TEST(the_order_stays)
{
    static const char *const names[] = {"u", "w"};
    write_ambiguous(at("m.pt"));
    options.param_names = names;
    options.param_name_count = 2;
    migrates(at("m.pt"), "ckpt", at("x.ckpt"));
    options.param_name_count = 0;
    options.add_prefix = "net.";
    migrates(at("x.ckpt"), "ckpt", at("y.ckpt"));
    ck_assert(!said("structure-dropped") && !said("order-unknown"));
    ckpt_reader *r = opened_as(at("y.ckpt"), NULL);
    ck_assert_ptr_nonnull(find(r, "optimizer.net.u.exp_avg"));
    ck_assert_ptr_nonnull(find(r, "net.v"));
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_reader_root(r), "ckpt.torch"));
    ckpt_reader_close(r);
}
END_TEST

/* A map file said which model is meant; without it the names would be others. */
START_TEST(what_cannot_be_edited_along)
{
    static const flat models[] = {{"w", 2, {3, 4}}};
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    for (int i = 0; i < 2; i++) {
        put_str(&t->pickle, i ? "critic" : "actor");
        PUT(&t->pickle, "}(");
        put_str(&t->pickle, models[0].name);
        torch_tensor(t, 2, 3, 4, (float)i);
        PUT(&t->pickle, "u");
    }
    PUT(&t->pickle, "u");
    write_torch(at("m.pt"), t);
    write_text(at("map.yaml"), "map: 1\nsource: {model: actor}\n");
    options.map_location = at("map.yaml");
    migrates(at("m.pt"), "ckpt", at("x.ckpt"));
    options.map_location = NULL;
    options.add_prefix = "net.";
    migrates(at("x.ckpt"), "ckpt", at("y.ckpt"));
    ck_assert(said("structure-dropped"));
    ckpt_reader *r = opened_as(at("y.ckpt"), NULL);
    ck_assert_ptr_nonnull(find(r, "net.w"));
    ck_assert_ptr_null(ckpt_value_get(ckpt_reader_root(r), "ckpt.torch"));
    ckpt_reader_close(r);
}
END_TEST

/* What a salvage leaves behind is not in the structure either: a key that leads to nothing would become None. */
START_TEST(what_is_lost_leaves_the_structure)
{
    static const flat model[] = {{"a", 1, {5}}, {"b", 1, {5}}};
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    for (int i = 0; i < 2; i++) {
        put_str(&t->pickle, model[i].name);
        torch_tensor(t, 1, 5, 0, (float)(i ? 7 : 3));
    }
    PUT(&t->pickle, "uu");
    write_torch(at("m.pt"), t);
    migrates(at("m.pt"), "ckpt", at("x.ckpt"));
    size_t n, i;
    char *data = content(at("x.ckpt"), &n);
    ckpt_reader *r = opened(at("x.ckpt"));
    ckpt_piece_info lost = CKPT_PIECE_INFO_INIT;
    ck_assert(ckpt_reader_find(r, "a", 1, &i, NULL) == CKPT_OK && ckpt_reader_piece(r, i, 0, &lost, NULL) == CKPT_OK);
    ck_assert(lost.file_offset > 0);
    data[lost.file_offset] ^= 1;
    ckpt_reader_close(r);
    write_to(at("x.ckpt"), data, n);
    free(data);
    options.salvage = true;
    migrates(at("x.ckpt"), "ckpt", at("y.ckpt"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "not-recovered", NULL));
    options.salvage = false;
    migrates(at("y.ckpt"), "torch", at("b/x.pt"));
    r = opened(at("b/x.pt"));
    const ckpt_value *kept = ckpt_value_get(ckpt_reader_root(r), "model");
    ck_assert_ptr_nonnull(kept);
    ck_assert_ptr_nonnull(ckpt_value_get(kept, "b"));
    ck_assert_ptr_null(ckpt_value_get(kept, "a"));
    ck_assert(ckpt_reader_find(r, "model.b", 7, &i, NULL) == CKPT_OK);
    ckpt_reader_close(r);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("what a native file keeps");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup_two, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, views_come_back);
    tcase_add_test(t, elements_stay);
    tcase_add_test(t, shared_views_come_back);
    tcase_add_test(t, lazy_bits_come_back);
    tcase_add_test(t, an_optimizer_alone);
    tcase_add_test(t, what_has_no_names_is_said);
    tcase_add_test(t, directories_come_back);
    tcase_add_loop_test(t, edited_along, 0, 7);
    tcase_add_test(t, views_are_edited_along);
    tcase_add_test(t, the_order_stays);
    tcase_add_test(t, what_cannot_be_edited_along);
    tcase_add_test(t, what_is_lost_leaves_the_structure);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
