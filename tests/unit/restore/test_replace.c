/* test_replace.c - a tensor that is new in the state although the checkpoint has one of its name in another shape. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_report *report;

#define OK(call) ck_assert_msg((call) >= 0, "%s: %s: %s", #call, err.object, err.message)

/* The head stands in the middle: whoever gets its states for another's loses count. */
enum { N = 6 };
static const flat old_model[N] = {{"net.weight", 2, {4, 3}}, {"net.bias", 1, {4, 0}},    {"head.weight", 2, {3, 4}},
                                  {"head.bias", 1, {3, 0}},  {"tail.weight", 2, {2, 4}}, {"tail.bias", 1, {2, 0}}};
static const flat new_model[N] = {{"net.weight", 2, {4, 3}}, {"net.bias", 1, {4, 0}},    {"head.weight", 2, {5, 4}},
                                  {"head.bias", 1, {5, 0}},  {"tail.weight", 2, {2, 4}}, {"tail.bias", 1, {2, 0}}};
/* AdamW with the usual two groups: those that decay first. */
static const int split_order[N] = {0, 2, 4, 1, 3, 5}, model_order[N] = {0, 1, 2, 3, 4, 5};

/* Every place of the state holds 7 in its parameters, 8 and 9 in its moments, and 4 steps. */
typedef struct net {
    float param[N][20], avg[N][20], sq[N][20], steps[N];
    ckpt_state *state;
} net;

static size_t numel(const flat *f)
{
    return (size_t)(f->shape[0] * (f->ndim > 1 ? f->shape[1] : 1));
}

static void bind_one(ckpt_state *s, const flat *f, ckpt_role role, ckpt_dtype dtype, void *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    bool param = role == CKPT_ROLE_PARAM;
    d.name = param ? f->name : NULL;
    d.param = param ? NULL : f->name;
    d.role = role;
    d.dtype = dtype;
    d.ndim = role == CKPT_ROLE_STEP ? 0 : (uint32_t)f->ndim;
    d.shape = f->shape;
    d.data = data;
    OK(ckpt_state_tensor(s, &d, &err));
}

static void fill_net(net *n)
{
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 20; k++) {
            n->param[i][k] = 7;
            n->avg[i][k] = 8;
            n->sq[i][k] = 9;
        }
        n->steps[i] = 4;
    }
}

static void open_net(net *n, const flat *model, bool split)
{
    const char *names[2][N];
    size_t counts[2] = {0, 0};
    memset(n, 0, sizeof *n);
    n->state = ckpt_state_new();
    fill_net(n);
    for (int i = 0; i < N; i++) {
        bind_one(n->state, &model[i], CKPT_ROLE_PARAM, CKPT_F32, n->param[i]);
        bind_one(n->state, &model[i], CKPT_ROLE_EXP_AVG, CKPT_F32, n->avg[i]);
        bind_one(n->state, &model[i], CKPT_ROLE_EXP_AVG_SQ, CKPT_F32, n->sq[i]);
        bind_one(n->state, &model[i], CKPT_ROLE_STEP, CKPT_F32, &n->steps[i]);
        int g = split && model[i].ndim < 2;
        names[g][counts[g]++] = model[i].name;
    }
    for (int g = 0; g < (split ? 2 : 1); g++) {
        ckpt_group_desc d = CKPT_GROUP_DESC_INIT;
        d.name = g ? "plain" : "decay";
        d.params = names[g];
        d.param_count = counts[g];
        OK(ckpt_state_group(n->state, &d, &err));
    }
}

static bool is_run(const float *x, size_t n, float first, float by)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != first + by * (float)i)
            return false;
    return true;
}

/* A torch file: parameter i holds 10 * i and on, state k of the optimizer 100 * (k + 1) and 1000 * (k + 1) and on. */
static void write_net(const char *path, const int *order, size_t first_group)
{
    flat shapes[N];
    torch_file *t = begin_torch();
    for (int i = 0; i < N; i++)
        shapes[i] = old_model[order[i]];
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    for (int i = 0; i < N; i++) {
        put_str(&t->pickle, old_model[i].name);
        torch_tensor(t, old_model[i].ndim, old_model[i].shape[0], old_model[i].shape[1], 10 * (float)i);
    }
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "optimizer");
    put_adam(t, shapes, N, first_group, 0.1);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

static bool is_head(int i)
{
    return i == 2 || i == 3;
}

/* All but the head is the file's; the head starts anew. */
static void expect_new_head(const net *n, const int *order)
{
    for (int k = 0; k < N; k++) {
        int i = order[k];
        size_t count = numel(&new_model[i]);
        if (is_head(i)) {
            ck_assert_msg(is_run(n->param[i], 20, 7, 0), "%s lost its value", new_model[i].name);
            ck_assert(is_run(n->avg[i], count, 0, 0) && is_run(n->sq[i], count, 0, 0) && n->steps[i] == 0);
        } else {
            ck_assert(is_run(n->param[i], count, 10 * (float)i, 1));
            ck_assert_msg(is_run(n->avg[i], count, 100 * (float)(k + 1), 1), "%s has %g", new_model[i].name,
                          n->avg[i][0]);
            ck_assert(is_run(n->sq[i], count, 1000 * (float)(k + 1), 1) && n->steps[i] == 3);
        }
        ck_assert(count == 20 || n->avg[i][count] == 8); /* and nothing beside it was touched */
    }
}

static void setup(void)
{
    make_folder();
    report = ckpt_report_new();
}

static void teardown(void)
{
    ckpt_report_free(report);
    remove_folder();
}

/* The saved optimizer numbers the old head's parameters among the others, in one group or in two. */
START_TEST(a_torch_file_of_another_head)
{
    for (int split = 0; split < 2; split++) {
        net n;
        const int *order = split ? split_order : model_order;
        write_net(at("m.pt"), order, split ? 3 : N);
        open_net(&n, new_model, split);
        ck_assert_int_eq(ckpt_restore(n.state, at("m.pt"), NULL, report, &err), CKPT_E_MISMATCH);
        ck_assert_ptr_nonnull(ckpt_report_find(report, "shape-mismatch", "head.weight"));
        ck_assert_ptr_nonnull(
            strstr(ckpt_report_find(report, "shape-mismatch", "head.weight")->fix, "ckpt_state_replace"));
        ck_assert(is_run(n.param[0], 12, 7, 0) && !ckpt_state_poisoned(n.state));
        OK(ckpt_state_replace(n.state, "head.*", &err));
        OK(ckpt_restore(n.state, at("m.pt"), NULL, report, &err));
        expect_new_head(&n, order);
        ck_assert_uint_eq(ckpt_report_count_code(report, "replaced"), 8);
        const ckpt_finding *f = ckpt_report_find(report, "replaced", "head.weight");
        ck_assert_str_eq(f->message,
                         "its shape is [3, 4] in the checkpoint and [5, 4] in the state: it keeps its value, on cpu");
        ck_assert_str_eq(f->from, "[3, 4]");
        ck_assert_str_eq(f->to, "[5, 4]");
        f = ckpt_report_find(report, "replaced", "optimizer.head.bias.exp_avg");
        ck_assert_ptr_nonnull(
            strstr(f->message, "[3] in the checkpoint and [5] in the state: it starts at zero, on cpu"));
        ck_assert_ptr_nonnull(strstr(f->message, "'head.bias'"));
        ck_assert_uint_eq(ckpt_report_count_code(report, "left-over") + ckpt_report_count_code(report, "unexpected"),
                          split ? 4 : 2);
        ckpt_state_free(n.state);
    }
}
END_TEST

/* Where the shapes are equal nothing is replaced: the run's own checkpoints come back whole. */
START_TEST(its_own_checkpoints_come_back_whole)
{
    net n;
    write_net(at("m.pt"), split_order, 3);
    open_net(&n, new_model, true);
    OK(ckpt_state_replace(n.state, "head.*", &err));
    OK(ckpt_restore(n.state, at("m.pt"), NULL, report, &err));
    n.param[2][0] = 41;
    n.avg[2][1] = 42;
    n.steps[3] = 43;
    OK(ckpt_save(n.state, at("own"), NULL, &err));
    net before = n;
    fill_net(&n);
    OK(ckpt_restore(n.state, at("own"), NULL, report, &err));
    ck_assert(n.param[2][0] == 41 && n.avg[2][1] == 42 && n.steps[3] == 43 && n.steps[2] == 0);
    ck_assert(memcmp(n.avg[0], before.avg[0], 12 * sizeof(float)) == 0);
    ck_assert_uint_eq(ckpt_report_count_code(report, "replaced"), 0);
    ckpt_state_free(n.state);
}
END_TEST

START_TEST(a_glob_of_nothing_is_an_error)
{
    net n;
    write_net(at("m.pt"), model_order, N);
    open_net(&n, old_model, false);
    OK(ckpt_state_replace(n.state, "haed.*", &err));
    OK(ckpt_state_replace(n.state, "optimizer.head.*", &err)); /* moments are nobody's name: they follow */
    ck_assert_int_eq(ckpt_restore(n.state, at("m.pt"), NULL, report, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "unused-replace", "haed.*"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "unused-replace", "optimizer.head.*"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "replaced"), 0);
    ck_assert_int_eq(ckpt_state_replace(n.state, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_replace(NULL, "x", &err), CKPT_E_ARGUMENT);
    ckpt_state_free(n.state);
}
END_TEST

/* A native checkpoint, with everything that may belong to a head. */
typedef struct head {
    float weight[24], master[24], ema[24], grad[24], sum[24], amax[24], product;
    unsigned char code[24], table[16], absmax[8];
    int64_t step, count;
    double mu;
    ckpt_state *state;
} head;

static void open_head(head *h, int64_t classes, float value)
{
    const flat f = {"head", 2, {classes, 4}}, table = {"head", 1, {16, 0}}, absmax = {"head", 1, {2, 0}};
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    memset(h, 0, sizeof *h);
    h->state = ckpt_state_new();
    for (int i = 0; i < 24; i++) {
        h->weight[i] = h->master[i] = h->ema[i] = h->grad[i] = h->sum[i] = h->amax[i] = value;
        h->code[i] = (unsigned char)value;
        h->table[i % 16] = h->absmax[i % 8] = (unsigned char)(value + 1);
    }
    h->product = value;
    h->step = h->count = (int64_t)value;
    h->mu = (double)value;
    bind_one(h->state, &f, CKPT_ROLE_PARAM, CKPT_F32, h->weight);
    bind_one(h->state, &f, CKPT_ROLE_MASTER, CKPT_F32, h->master);
    bind_one(h->state, &f, CKPT_ROLE_EMA, CKPT_F32, h->ema);
    bind_one(h->state, &f, CKPT_ROLE_MAX_EXP_AVG_SQ, CKPT_F32, h->amax);
    d.param = "head";
    d.name = "grad.head";
    d.role = CKPT_ROLE_GRAD;
    d.dtype = CKPT_F32;
    d.ndim = 2;
    d.shape = f.shape;
    d.data = h->grad;
    OK(ckpt_state_tensor(h->state, &d, &err));
    const struct {
        const char *key;
        const flat *shape;
        ckpt_dtype dtype;
        void *data;
        uint32_t ndim;
    } optim[] = {
        {"sum", &f, CKPT_F32, h->sum, 2},
        {"state1", &f, CKPT_U8, h->code, 2},
        {"qmap1", &table, CKPT_U8, h->table, 1},
        {"absmax1", &absmax, CKPT_U8, h->absmax, 1},
        {"mu_product", &f, CKPT_F32, &h->product, 0},
    };
    for (size_t i = 0; i < sizeof optim / sizeof *optim; i++) {
        d.name = NULL;
        d.role = CKPT_ROLE_OPTIM;
        d.state_key = optim[i].key;
        d.dtype = optim[i].dtype;
        d.ndim = optim[i].ndim;
        d.shape = optim[i].shape->shape;
        d.data = optim[i].data;
        OK(ckpt_state_tensor(h->state, &d, &err));
    }
    OK(ckpt_state_i64(h->state, "optimizer.head.step", &h->step, &err));
    OK(ckpt_state_f64(h->state, "optimizer.head.mu", &h->mu, &err));
    OK(ckpt_state_i64(h->state, "count", &h->count, &err));
}

START_TEST(what_belongs_to_it_starts_anew)
{
    head old, h;
    open_head(&old, 3, 5);
    open_head(&h, 6, 50);
    OK(ckpt_save(old.state, at("old"), NULL, &err));
    OK(ckpt_state_replace(h.state, "head", &err));
    OK(ckpt_restore(h.state, at("old"), NULL, report, &err));
    ck_assert(is_run(h.weight, 24, 50, 0) && is_run(h.master, 24, 50, 0) && is_run(h.ema, 24, 50, 0));
    ck_assert(is_run(h.sum, 24, 0, 0) && is_run(h.amax, 24, 0, 0) && is_run(h.grad, 24, 0, 0) && h.product == 50);
    ck_assert(h.code[0] == 0 && h.code[23] == 0 && h.absmax[0] == 0 && h.absmax[1] == 0 && h.absmax[2] == 51);
    ck_assert(h.table[0] == 6 && h.table[15] == 6); /* the table of the code is the checkpoint's, as ever */
    ck_assert(h.step == 0 && h.mu == 50 && h.count == 5);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "replaced", "optimizer.head.step"));
    ck_assert_ptr_nonnull(
        strstr(ckpt_report_find(report, "replaced", "optimizer.head.master")->message, "keeps its value"));
    ck_assert_ptr_null(ckpt_report_find(report, "replaced", "optimizer.head.qmap1"));
    ckpt_state_free(old.state);
    ckpt_state_free(h.state);
}
END_TEST

START_TEST(a_dtype_alone_is_no_other_tensor)
{
    const flat f = {"head", 1, {4, 0}};
    float old[4] = {1, 2, 3, 4};
    double now[4] = {0};
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    bind_one(s, &f, CKPT_ROLE_PARAM, CKPT_F32, old);
    bind_one(t, &f, CKPT_ROLE_PARAM, CKPT_F64, now);
    OK(ckpt_save(s, at("old"), NULL, &err));
    OK(ckpt_state_replace(t, "he*", &err));
    ck_assert_int_eq(ckpt_restore(t, at("old"), NULL, report, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "dtype-mismatch", "head"));
    o.allow_cast = true;
    OK(ckpt_restore(t, at("old"), &o, report, &err));
    ck_assert(now[3] == 4);
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

/* A checkpoint of the optimizer alone: the moments say that the parameter had another shape. */
START_TEST(an_optimizer_without_its_model)
{
    net n;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    flat shapes[N];
    for (int i = 0; i < N; i++)
        shapes[i] = old_model[split_order[i]];
    write_adam(at("o.pt"), shapes, N, 3, 0.1);
    open_net(&n, new_model, true);
    o.allow_missing = true;
    OK(ckpt_state_replace(n.state, "head.*", &err));
    OK(ckpt_restore(n.state, at("o.pt"), &o, report, &err));
    ck_assert(is_run(n.avg[2], 20, 0, 0) && n.steps[2] == 0 && is_run(n.avg[4], 8, 300, 1) &&
              is_run(n.avg[5], 2, 600, 1));
    ck_assert(is_run(n.param[0], 12, 7, 0));
    ckpt_state_free(n.state);
}
END_TEST

/* Ours: the value moves along, the moments are made where it goes. A tie is one tensor under two names. */
START_TEST(tensors_of_ours_and_ties)
{
    const flat old = {"head", 2, {3, 4}}, now = {"head", 2, {5, 4}};
    float weight[12] = {1}, avg[12] = {2}, *p;
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    bind_one(s, &old, CKPT_ROLE_PARAM, CKPT_F32, weight);
    OK(ckpt_state_alias(s, "tied", "head", &err));
    bind_one(s, &old, CKPT_ROLE_EXP_AVG, CKPT_F32, avg);
    OK(ckpt_save(s, at("old"), NULL, &err));
    bind_one(t, &now, CKPT_ROLE_PARAM, CKPT_F32, NULL);
    OK(ckpt_state_alias(t, "tied", "head", &err));
    bind_one(t, &now, CKPT_ROLE_EXP_AVG, CKPT_F32, NULL);
    OK(ckpt_state_replace(t, "tied", &err));
    OK(ckpt_restore(t, at("old"), NULL, report, &err)); /* made, as nothing was there */
    p = ckpt_state_data(t, "head");
    ck_assert(p && p[0] == 0 && p[19] == 0);
    p[0] = 6;
    ((float *)ckpt_state_data(t, "optimizer.head.exp_avg"))[0] = 7;
    OK(ckpt_restore(t, at("old"), NULL, report, &err));
    ck_assert(((float *)ckpt_state_data(t, "head"))[0] == 6 &&
              ((float *)ckpt_state_data(t, "optimizer.head.exp_avg"))[0] == 0);
    /* A moment that only the checkpoint has is its head's, and no error. */
    ckpt_state *few = ckpt_state_new();
    bind_one(few, &now, CKPT_ROLE_PARAM, CKPT_F32, NULL);
    OK(ckpt_state_alias(few, "tied", "head", &err));
    OK(ckpt_state_replace(few, "head", &err));
    OK(ckpt_restore(few, at("old"), NULL, report, &err));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "left-over", "optimizer.head.exp_avg"));
    ckpt_state_free(s);
    ckpt_state_free(t);
    ckpt_state_free(few);
}
END_TEST

/* Places that are not contiguous: every element of them, and nothing between. */
START_TEST(a_strided_moment_is_zeroed)
{
    const flat old = {"head", 1, {3, 0}};
    float weight[3] = {1}, avg[3] = {2}, now[4] = {5, 5, 5, 5}, moment[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    const flat four = {"head", 1, {4, 0}};
    bind_one(s, &old, CKPT_ROLE_PARAM, CKPT_F32, weight);
    bind_one(s, &old, CKPT_ROLE_EXP_AVG, CKPT_F32, avg);
    OK(ckpt_save(s, at("old"), NULL, &err));
    bind_one(t, &four, CKPT_ROLE_PARAM, CKPT_F32, now);
    d.param = "head";
    d.role = CKPT_ROLE_EXP_AVG;
    d.dtype = CKPT_F32;
    d.ndim = 1;
    d.shape = four.shape;
    d.strides = (int64_t[]){2};
    d.data = moment;
    OK(ckpt_state_tensor(t, &d, &err));
    OK(ckpt_state_replace(t, "head", &err));
    OK(ckpt_restore(t, at("old"), NULL, report, &err));
    for (int i = 0; i < 8; i++)
        ck_assert(moment[i] == (float)(i % 2));
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("replace");
    TCase *t = tcase_create("replace");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_torch_file_of_another_head);
    tcase_add_test(t, its_own_checkpoints_come_back_whole);
    tcase_add_test(t, a_glob_of_nothing_is_an_error);
    tcase_add_test(t, what_belongs_to_it_starts_anew);
    tcase_add_test(t, a_dtype_alone_is_no_other_tensor);
    tcase_add_test(t, an_optimizer_without_its_model);
    tcase_add_test(t, tensors_of_ours_and_ties);
    tcase_add_test(t, a_strided_moment_is_zeroed);
    suite_add_tcase(s, t);
    return run_suite(s);
}
