/* test_migrate_lbfgs.c - an optimizer whose state holds lists, as LBFGS's does: libtorch's, beside its model, becomes torch's. */
#include <ckpt/ckpt.h>
#include "reader/reader.h"
#include "../script_emit.h"

static ckpt_error err;

enum { STEPS = 12 }; /* more than ten: as text, 10 comes before 2 */

static void put_tensors(const char *name, int n)
{
    key(name);
    PUT(&pickle, "](");
    for (int i = 0; i < n; i++)
        rebuild(store(6, false), "FloatStorage", 6, 1, 6, 0, false);
    PUT(&pickle, "e");
}

static void write_archive(void)
{
    begin();
    open_as("__torch__", "Module");
    open_at("model");
    floats("weight", 3, 2, true);
    shut();
    open_at("optimizer");
    text("pytorch_version", "1.5.0");
    open_at("state");
    open_at(addresses[0]);
    integer("n_iter", STEPS);
    real("t", 0.5);
    put_tensors("old_dirs", STEPS);
    put_tensors("ro", 1);
    shut();
    shut();
    open_at("param_groups");
    count("param_groups/size");
    open_at("param_groups/0");
    params_of(0, 1);
    open_at("options");
    real("lr", 0.5);
    shut();
    shut();
    shut();
    shut();
    shut();
    finish();
}

static const ckpt_value *state_of(const ckpt_reader *r)
{
    const ckpt_value *state = ckpt_value_get(ckpt_value_get(r->index->root, "optimizer"), "state");
    ck_assert(state && state->entry_count == 1);
    return state->entries[0].value;
}

static void is_list(const ckpt_reader *r, const char *name, size_t n)
{
    char path_of[80];
    const ckpt_value *list = ckpt_value_get(state_of(r), name);
    ck_assert_msg(list && list->kind == CKPT_V_LIST && list->item_count == n, "%s", name);
    for (size_t i = 0; i < n; i++) {
        size_t tensor;
        snprintf(path_of, sizeof path_of, "optimizer.state.0.%s.%zu", name, i);
        ck_assert_msg(ckpt_reader_find(r, path_of, strlen(path_of), &tensor, &err) >= 0, "no %s", path_of);
        ck_assert(list->items[i]->kind == CKPT_V_TENSOR && list->items[i]->tensor == tensor);
    }
}

/* As a file of torch's, and that by way of the native format too. */
START_TEST(lists_stay_lists)
{
    static const char *const ways[][2] = {{"torch", NULL}, {"ckpt", "torch"}};
    char first[160], last[160];
    write_archive();
    for (size_t i = 0; i < 2; i++) {
        ckpt_report *report = ckpt_report_new();
        ckpt_reader *r = NULL;
        snprintf(first, sizeof first, "%s/first.%zu", folder, i);
        snprintf(last, sizeof last, "%s/last.%zu", folder, i);
        ckpt_migrate_options o = {.to = ways[i][0], .lossy = true}, back = {.to = "torch", .lossy = true};
        ck_assert_msg(ckpt_migrate(path, first, &o, report, &err) == CKPT_OK, "%s", err.message);
        if (ways[i][1])
            ck_assert_msg(ckpt_migrate(first, last, &back, report, &err) == CKPT_OK, "%s", err.message);
        ck_assert_int_eq(ckpt_reader_open(ways[i][1] ? last : first, NULL, &r, &err), CKPT_OK);
        is_list(r, "old_dirs", STEPS);
        is_list(r, "ro", 1);
        ck_assert_int_eq(ckpt_value_get(state_of(r), "n_iter")->integer, STEPS);
        ckpt_reader_close(r);
        ckpt_report_free(report);
        unlink(first);
        unlink(last);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_lbfgs");
    TCase *t = tcase_create("lists");
    tcase_add_checked_fixture(t, script_setup, script_teardown);
    tcase_add_test(t, lists_stay_lists);
    suite_add_tcase(s, t);
    return run_suite(s);
}
