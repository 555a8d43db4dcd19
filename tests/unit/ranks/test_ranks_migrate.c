/* test_ranks_migrate.c - files of ranks as the source of a migration: files of torch, of this library and safetensors, the rules that lead to
 * the other side of the layout, and which side the files are of. */
#include "../migrate_setup.h"
#include "ranks_case.h"

static training plain(void)
{
    training t = {.sizes = {1, 2, 2}, .align = 1, .multiple = 1, .count = 3};
    t.tensors[0] = (logical){.name = "w0", .layer = -1, .ndim = 2, .shape = {4, 6}, .cut_count = 1};
    t.tensors[0].cuts[0] = (cut){.axis = 2, .dim = 1, .as = CKPT__CUT_AS_EVEN, .groups = 1};
    t.tensors[1] = (logical){.name = "w1", .layer = -1, .ndim = 1, .shape = {5}};
    t.tensors[2] = (logical){.name = "w2", .layer = -1, .ndim = 2, .shape = {3, 2}, .cut_count = 1};
    t.tensors[2].cuts[0] = (cut){.axis = 2, .dim = 0, .as = CKPT__CUT_AS_CEIL, .groups = 1};
    return t;
}

/* The layout's text, with an ending of the names of files and more behind it. */
static void use_layout(const training *t, const char *ending, const char *sides, const char *more)
{
    static char path[400];
    char text[TEXT];
    const char *own = layout_of(t), *from = strstr(own, "\nranks:"), *dot = strstr(own, ".pt\n");
    snprintf(text, sizeof text, "layout: 1\nsides: %s%.*s%s%s%s", sides, (int)(dot - from), from, ending, dot + 3,
             more);
    snprintf(path, sizeof path, "%s", at("mine.yaml"));
    write_text(path, text);
    options.struct_size = sizeof options;
    options.layout = path;
}

static void check_weights(const char *path, const char *head, const training *t)
{
    ckpt_reader *r = opened(path);
    float data[64];
    char name[80];
    for (int i = 0; i < t->count; i++) {
        size_t number, n = 1;
        snprintf(name, sizeof name, "%s%s", head, t->tensors[i].name);
        ck_assert_msg(ckpt_reader_find(r, name, strlen(name), &number, &err) == CKPT_OK, "%s", err.message);
        const ckpt_tensor_info *info = ckpt_reader_tensor(r, number);
        for (int d = 0; d < t->tensors[i].ndim; d++) {
            ck_assert_int_eq(info->shape[d], t->tensors[i].shape[d]);
            n *= (size_t)t->tensors[i].shape[d];
        }
        ck_assert_int_eq(ckpt_reader_read(r, number, data, n * 4, &err), CKPT_OK);
        for (size_t k = 0; k < n; k++)
            ck_assert_int_eq((int64_t)data[k], value_of(i, 0, (int64_t)k));
    }
    ckpt_reader_close(r);
}

/* Each rank's file in another format. */
static void convert(const training *t, const char *to, const char *ending)
{
    char name[80];
    make_directory("other");
    make_directory("other/all_0");
    for (int rank = 0; rank < world_of(t); rank++) {
        char src[400], dst[400];
        name_of_file(t, "all_", rank, name, sizeof name);
        snprintf(src, sizeof src, "%s", at("run/%s", name));
        snprintf(dst, sizeof dst, "%s", at("other/%.*s%s", (int)strlen(name) - 3, name, ending));
        migrates(src, to, dst);
    }
}

START_TEST(torch_files)
{
    training t = plain();
    write_training(&t, "run");
    use_layout(&t, ".pt", "[mine]", "");
    migrates(at("run"), "torch", at("whole.pt"));
    check_weights(at("whole.pt"), "model.", &t);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "ranks", NULL));
    migrates(at("run"), "ckpt", at("whole.ckpt"));
    check_weights(at("whole.ckpt"), "", &t);
    migrates(at("run"), "dcp", at("whole"));
    check_weights(at("whole"), "model.", &t);

    options.rank_state = CKPT_RANK_STATE_DERIVE; /* that of all, as it is the same */
    t.other_rng = 3;
    write_rank(&t, "run", 2);
    migrates(at("run"), "torch", at("whole.pt"));
    ckpt_reader *r = opened(at("whole.pt"));
    ck_assert_ptr_nonnull(find(r, "rng"));
    ck_assert_ptr_null(find(r, "rank_0.rng"));
    ckpt_reader_close(r);
    options.rank_state = CKPT_RANK_STATE_KEEP;
    migrates(at("run"), "torch", at("whole.pt"));
    r = opened(at("whole.pt"));
    ck_assert_ptr_null(find(r, "rng"));
    ck_assert_ptr_nonnull(find(r, "rank_0.rng"));
    ck_assert_ptr_nonnull(find(r, "rank_3.rng"));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(native_files)
{
    training t = plain();
    write_training(&t, "run");
    convert(&t, "ckpt", ".ckpt");
    use_layout(&t, ".ckpt", "[mine]", "");
    migrates(at("other"), "ckpt", at("whole.ckpt"));
    check_weights(at("whole.ckpt"), "", &t);
    ckpt_reader *r = opened(at("whole.ckpt"));
    const ckpt_tensor_info *moment = find(r, "optimizer.w2.exp_avg");
    ck_assert_ptr_nonnull(moment);
    ck_assert_int_eq(moment->shape[0], 3);
    ck_assert_int_eq(moment->role, CKPT_ROLE_EXP_AVG);
    ck_assert(ckpt__str_is(moment->param, "w2"));
    ckpt_reader_close(r);

    char own[400];
    snprintf(own, sizeof own, "%s", at("other/all_0/dp1_tp_01.ckpt"));
    ck_assert_int_eq(rename(at("run/all_0/dp1_tp_01.pt"), own), 0);
    ck_assert_int_lt(migrate(at("other"), "ckpt", at("whole.ckpt")), 0);
    ck_assert_msg(strstr(err.message,
                         "all_0/dp1_tp_01.ckpt: it is not a file of this library, and all_0/dp0_tp_00.ckpt is") != NULL,
                  "%s", err.message);
}
END_TEST

START_TEST(safetensors_files)
{
    training t = plain();
    write_training(&t, "run");
    options.weights_only = true;
    convert(&t, "safetensors", ".safetensors");
    use_layout(&t, ".safetensors", "[mine]", "");
    migrates(at("other"), "safetensors", at("whole.safetensors"));
    check_weights(at("whole.safetensors"), "", &t);
}
END_TEST

/* ---- rules behind it */

START_TEST(to_another_side)
{
    training t = plain();
    float data[24];
    size_t number;
    write_training(&t, "run");
    use_layout(&t, ".pt", "[mine, whole]",
               "rules:\n- {mine: w0, whole: a.w0, steps: [{transpose: [1, 0]}]}\n- {mine: w1, whole: a.w1}\n"
               "- {mine: w2, whole: a.w2}\n");
    migrates(at("run"), "ckpt", at("whole.ckpt"));
    ckpt_reader *r = opened(at("whole.ckpt"));
    ck_assert_int_eq(ckpt_reader_find(r, "optimizer.a.w0.exp_avg", 22, &number, &err), CKPT_OK);
    const ckpt_tensor_info *info = ckpt_reader_tensor(r, number);
    ck_assert_int_eq(info->shape[0], 6);
    ck_assert_int_eq(ckpt_reader_read(r, number, data, sizeof data, &err), CKPT_OK);
    for (int i = 0; i < 24; i++)
        ck_assert_int_eq((int64_t)data[i], value_of(0, 1, i % 4 * 6 + i / 4));
    ckpt_reader_close(r);

    migrates(at("whole.ckpt"), "ckpt",
             at("back.ckpt")); /* a file of the other side: the files of ranks are none of it */
    check_weights(at("back.ckpt"), "", &t);
}
END_TEST

static void refuses(const char *src, const char *words)
{
    ck_assert_int_lt(migrate(src, "ckpt", at("no.ckpt")), 0);
    ck_assert_msg(strstr(err.message, words) || strstr(err.object, words), "no '%s' in: %s: %s", words, err.object,
                  err.message);
}

START_TEST(which_side)
{
    training t = plain();
    write_training(&t, "run");
    use_layout(&t, ".pt", "[mine]", "");
    options.layout_side = "yours";
    refuses(at("run"), "it has no side 'yours': its side is mine");
    options.layout_side = "mine";
    migrates(at("run"), "ckpt", at("whole.ckpt"));
    options.layout_side = NULL;
    refuses(at("whole.ckpt"), "it is not a directory");
    make_directory("empty");
    refuses(at("empty"), "it has no file with a name such as all_<pp>/dp<dp>_tp_<tp:02>.pt");
    options.salvage = true;
    refuses(at("run"), "--salvage");
    options.salvage = false;
    options.from = "torch";
    refuses(at("run"), "--from torch");
    options.from = "ranks";
    options.layout = NULL;
    refuses(at("run"), "say --layout FILE");
    options.from = NULL;

    use_layout(&t, ".pt", "[mine, whole]",
               "  whole:\n    mesh: {dp: 2, tp: 2, pp: 1}\n    files: all_<pp>/dp<dp>_tp_<tp:02>.pt\n"
               "rules: [{mine: \"<r:rest>\", whole: \"<r:rest>\"}]\n");
    refuses(at("run"),
            "it has files with the names of those of mine and of whole: say which they are with --layout-side");
    options.layout_side = "mine";
    migrates(at("run"), "ckpt", at("whole.ckpt"));
    options.layout_side = "whole"; /* which cuts nothing, and so all would be replicas */
    refuses(at("run"), "no axis cuts it");
    options.layout_side = NULL;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks_migrate");
    TCase *cases = tcase_create("ranks_migrate");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, torch_files);
    tcase_add_test(cases, native_files);
    tcase_add_test(cases, safetensors_files);
    tcase_add_test(cases, to_another_side);
    tcase_add_test(cases, which_side);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
