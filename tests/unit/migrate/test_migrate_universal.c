/* A native file of a trainer in C as a universal checkpoint of DeepSpeed: each parameter has its folder, and what DeepSpeed could not
 * resume from is refused, or said. */
#include <stdlib.h>
#include <sys/stat.h>
#include "bound_adam.h"

enum { N = 3 };
static const char *const names[N] = {"b.weight", "a.weight", "odd/weight"};
static float params[N][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, m[N][4], v[N][4], masters[N][4];
static uint16_t halves[N][4] = {{0x3f80, 0x4000, 0x4040, 0x4080}, {0x3f80, 0x4000, 0x4040, 0x4080}, {0, 0, 0, 0}};
static float buffer[4];
static int64_t step = 7;
static double lr = 0.5, decay[2] = {0.25, 0.125};

typedef struct what {
    size_t count; /* parameters */
    bool half, master, no_step, no_moments_of_b, momentum_of_b, two_groups, buffer;
} what;

static void save(const char *path, what w)
{
    ckpt_state *s = ckpt_state_new();
    ckpt_save_options to = CKPT_SAVE_OPTIONS_INIT;
    to.no_sync = true;
    for (size_t i = 0; i < w.count; i++) {
        bind(s, names[i], NULL, CKPT_ROLE_PARAM, w.half ? CKPT_BF16 : CKPT_F32,
             w.half ? (void *)halves[i] : (void *)params[i]);
        if (w.master)
            bind(s, NULL, names[i], CKPT_ROLE_MASTER, CKPT_F32, masters[i]);
        if (i == 0 && w.no_moments_of_b)
            continue;
        if (i > 0 || !w.momentum_of_b)
            bind(s, NULL, names[i], CKPT_ROLE_EXP_AVG, CKPT_F32, m[i]);
        bind(s, NULL, names[i], CKPT_ROLE_EXP_AVG_SQ, CKPT_F32, v[i]);
    }
    if (w.buffer)
        bind(s, "seen", NULL, CKPT_ROLE_BUFFER, CKPT_F32, buffer);
    bind_group(s, "0", names, w.two_groups ? 1 : w.count, &lr, &decay[0]);
    if (w.two_groups)
        bind_group(s, "1", names + 1, w.count - 1, &lr, &decay[1]);
    if (!w.no_step)
        OK(ckpt_state_i64(s, "step", &step, &err));
    OK(ckpt_save(s, path, &to, &err));
    ckpt_state_free(s);
}

static ckpt_status to_universal(what w)
{
    save(at("n.safetensors"), w);
    return migrate(at("n.safetensors"), "universal", at("u"));
}

static ckpt_reader *made(what w)
{
    ckpt_status status = to_universal(w);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ckpt_reader *r = opened(at("u"));
    ck_assert_str_eq(ckpt_reader_format(r), "universal");
    return r;
}

static void holds(const ckpt_reader *r, const char *name, const float *want, size_t count)
{
    float is[4] = {0};
    size_t i;
    OK(ckpt_reader_find(r, name, strlen(name), &i, &err));
    ck_assert_msg(ckpt_reader_tensor(r, i)->dtype == CKPT_F32, "%s", name);
    OK(ckpt_reader_read((ckpt_reader *)r, i, is, count * sizeof *is, &err));
    ck_assert_msg(memcmp(is, want, count * sizeof *is) == 0, "%s has other values", name);
}

static void is_there(const char *name)
{
    struct stat st;
    char path[300];
    snprintf(path, sizeof path, "u/global_step7_universal/%s", name);
    ck_assert_msg(stat(at("%s", path), &st) == 0, "%s is not there", path);
}

START_TEST(folders)
{
    const float seven = 7;
    ckpt_reader *r = made((what){.count = 2});
    for (size_t i = 0; i < 2; i++) {
        char name[80];
        holds(r, names[i], params[i], 4);
        snprintf(name, sizeof name, "optimizer.%s.fp32", names[i]);
        holds(r, name, params[i], 4); /* no master: the weight is it */
        snprintf(name, sizeof name, "optimizer.%s.exp_avg", names[i]);
        holds(r, name, m[i], 4);
        snprintf(name, sizeof name, "optimizer.%s.exp_avg_sq", names[i]);
        holds(r, name, v[i], 4);
        snprintf(name, sizeof name, "optimizer.%s.step", names[i]);
        holds(r, name, &seven, 1);
    }
    ckpt_reader_close(r);
    is_there("mp_rank_00_model_states.pt"); /* both, so that any stage finds its own */
    is_there("zero_pp_rank_0_mp_rank_00_model_states.pt");
    is_there("zero/optimizer_state.pt");
    ck_assert_uint_eq(ckpt_report_count_code(report, "universal-incomplete"), 0);
    r = opened(at("u/global_step7_universal/zero/optimizer_state.pt"));
    const ckpt_value *root = ckpt_reader_root(r), *groups = ckpt_value_get(root, "param_groups"),
                     *inner = ckpt_value_get(root, "optimizer_state_dict");
    ck_assert(groups && groups->item_count == 1);
    ck_assert(ckpt_value_get(groups->items[0], "lr")->real == lr);
    ck_assert_uint_eq(ckpt_value_get(groups->items[0], "params")->item_count, 0);
    ck_assert_uint_eq(ckpt_value_get(inner, "param_groups")->item_count, 1);
    ck_assert_ptr_nonnull(ckpt_value_get(root, "ds_version"));
    ckpt_reader_close(r);
    ck_assert_int_eq(migrate(at("u"), "torch", at("back.pt")), CKPT_OK);
}
END_TEST

START_TEST(halves_become_floats)
{
    static const float want[4] = {1, 2, 3, 4};
    ckpt_reader *r = made((what){.count = 2, .half = true});
    holds(r, "optimizer.b.weight.fp32", want, 4);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "cast", NULL));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(masters_are_taken)
{
    for (size_t i = 0; i < 4; i++)
        masters[0][i] = (float)i + 0.1f;
    ckpt_reader *r = made((what){.count = 2, .half = true, .master = true});
    holds(r, "optimizer.b.weight.fp32", masters[0], 4);
    ck_assert_int_eq(find(r, "b.weight")->dtype, CKPT_BF16); /* the weight stays what it was */
    ck_assert_ptr_null(ckpt_report_find(report, "cast", NULL));
    ckpt_reader_close(r);
}
END_TEST

static const char *said(const char *part)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (strcmp(f->code, "universal-incomplete") == 0 && strstr(f->message, part))
            return f->message;
    }
    return NULL;
}

START_TEST(what_is_not_loaded)
{
    ckpt_reader *r = made((what){.count = 2, .buffer = true, .two_groups = true});
    ck_assert_ptr_nonnull(said("(seen)"));
    ck_assert_ptr_nonnull(said("copies those of the first"));
    ck_assert_ptr_nonnull(said("one tensor for the step"));
    ck_assert_ptr_nonnull(find(r, "seen"));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(refused)
{
    static const struct {
        what w;
        const char *because;
    } rows[] = {{{.count = 2, .momentum_of_b = true}, "'b.weight' has no exp_avg"},
                {{.count = 2, .no_step = true}, "step"},
                {{.count = 3}, "no file system has"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stat st;
        ck_assert_int_eq(to_universal(rows[i].w), CKPT_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.message, rows[i].because), "%s", err.message);
        ck_assert_int_ne(stat(at("u"), &st), 0);
    }
    save(at("n.safetensors"), (what){.count = 2});
    options.weights_only = true;
    ck_assert_int_eq(migrate(at("n.safetensors"), "universal", at("u")), CKPT_E_ARGUMENT);
}
END_TEST

START_TEST(what_is_there_stays)
{
    struct stat st;
    ck_assert_int_eq(mkdir(at("u"), 0777), 0);
    ckpt_reader_close(made((what){.count = 2})); /* an empty directory is replaced */
    ck_assert_int_eq(to_universal((what){.count = 2}), CKPT_E_EXISTS);
    ck_assert_int_eq(stat(at("u/latest_universal"), &st), 0);
}
END_TEST

START_TEST(without_a_state)
{
    ckpt_reader *r = made((what){.count = 2, .no_moments_of_b = true});
    ck_assert_ptr_nonnull(said("(b.weight)"));
    ck_assert_ptr_null(find(r, "optimizer.b.weight.fp32"));
    ck_assert_ptr_nonnull(find(r, "optimizer.a.weight.fp32"));
    ckpt_reader_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_universal");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, folders);
    tcase_add_test(t, halves_become_floats);
    tcase_add_test(t, masters_are_taken);
    tcase_add_test(t, what_is_not_loaded);
    tcase_add_test(t, refused);
    tcase_add_test(t, without_a_state);
    tcase_add_test(t, what_is_there_stays);
    suite_add_tcase(s, t);
    return run_suite(s);
}
