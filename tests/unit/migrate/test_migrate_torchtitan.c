/* A native file of a trainer in C as torchtitan's trainer has it: weights at the root, an optimizer with a key for each value, and what it asks
 * for besides. */
#include <sys/stat.h>
#include "../scarce_memory.h"
#include "trainer_model.h"

static const ckpt_value *at_root(ckpt_reader *r, const char *dict, const char *key)
{
    const ckpt_value *root = ckpt_reader_root(r);
    return ckpt_value_get(dict ? ckpt_value_get(root, dict) : root, key);
}

static ckpt_reader *made(what w)
{
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), "torchtitan", at("d"));
    ckpt_reader *r = opened(at("d"));
    ck_assert_str_eq(ckpt_reader_format(r), "dcp");
    return r;
}

static void holds_all(ckpt_reader *r)
{
    char path[100];
    for (size_t i = 0; i < N; i++) {
        holds(r, names[i], params[i]);
        snprintf(path, sizeof path, "optimizer.state.%s.exp_avg", names[i]);
        holds(r, path, m[i]);
        snprintf(path, sizeof path, "param_groups.%s.lr", names[i]);
        ck_assert_msg(at_root(r, "optimizer", path) && at_root(r, "optimizer", path)->real == lr, "%s", path);
        snprintf(path, sizeof path, "param_groups.%s.weight_decay", names[i]);
        ck_assert_msg(at_root(r, "optimizer", path) && at_root(r, "optimizer", path)->real == decay[i / 2], "%s", path);
    }
    ck_assert_ptr_null(at_root(r, "optimizer", "param_groups"));
    ck_assert_ptr_null(at_root(r, "optimizer", "state"));
    ck_assert_ptr_null(at_root(r, NULL, "model"));
    ck_assert_int_eq(at_root(r, "train_state", "step")->integer, step);
    ck_assert_int_eq(at_root(r, "lr_scheduler", "last_epoch")->integer, last_epoch);
}

START_TEST(as_the_trainer_asks)
{
    options.target_world = (uint32_t)_i;
    ckpt_reader *r = made((what){0});
    holds_all(r);
    ckpt_reader_close(r);
    ck_assert(is_said("torchtitan-lacks", "does not say train_state.ntokens_seen, dataloader, and none"));
    ck_assert(is_said("groups-lack", "initial_lr"));
    ck_assert_ptr_null(ckpt_report_find(report, "groups-joined", NULL));
    ck_assert_ptr_null(ckpt_report_find(report, "lost", NULL));
}
END_TEST

START_TEST(what_it_lacks)
{
    ckpt_reader_close(made((what){.no_scheduler = true}));
    ck_assert(is_said("torchtitan-lacks", "train_state.ntokens_seen, lr_scheduler.last_epoch, dataloader"));
    const ckpt_finding *f = ckpt_report_find(report, "torchtitan-lacks", NULL);
    ck_assert_ptr_nonnull(strstr(f->fix, "['train_state', 'lr_scheduler', 'dataloader']"));
}
END_TEST

START_TEST(weights_alone)
{
    ckpt_reader *r = made((what){.no_optimizer = true});
    for (size_t i = 0; i < N; i++)
        holds(r, names[i], params[i]);
    ckpt_reader_close(r);
    ck_assert_ptr_null(ckpt_report_find(report, "torchtitan-lacks", NULL));
    options.weights_only = options.lossy = options.force = true;
    r = made((what){0});
    for (size_t i = 0; i < N; i++)
        holds(r, names[i], params[i]);
    ck_assert_ptr_null(at_root(r, NULL, "optimizer"));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(groups_of_the_same_settings)
{
    const double was = decay[1];
    decay[1] = decay[0];
    ckpt_reader *r = made((what){0});
    decay[1] = was;
    ckpt_reader_close(r);
    ck_assert(is_said("groups-joined", "groups 0 and 1 of the optimizer have the same settings"));
}
END_TEST

/* There and back through a file of torch: the same checkpoint. */
START_TEST(there_and_back)
{
    ckpt_reader_close(made((what){0}));
    migrates(at("d"), "torch", at("d.pt"));
    migrates(at("d.pt"), "torchtitan", at("again"));
    ckpt_reader *r = opened(at("again"));
    holds_all(r);
    ckpt_reader_close(r);
    options.lossy = true; /* train_state has no file there */
    migrates(at("d"), "hf-trainer", at("hf"));
    ck_assert(!is_said("lost", "of the optimizer")); /* the flat settings are those of its groups */
    ck_assert(is_said("lost", "'train_state'"));
}
END_TEST

START_TEST(each_allocation)
{
    size_t failed = 0;
    bool all = false;
    struct stat st;
    options.target_world = 2;
    options.threads = 1;
    save(at("n.safetensors"), (what){.half = true, .extra = true});
    for (long n = 0; !all; n += n < 1500 ? 1 : 5) { /* the first are of the reader, and tried elsewhere too */
        char name[32];
        snprintf(name, sizeof name, "d%ld", n);
        allocations_left = n;
        const ckpt_status status = migrate(at("n.safetensors"), "torchtitan", at("%s", name));
        all = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_OK || (!all && status == CKPT_E_NO_MEMORY), "allocation %ld: %d %s", n,
                      (int)status, err.message);
        ck_assert_msg((stat(at("%s", name), &st) == 0) == (status == CKPT_OK), "allocation %ld", n);
        failed += status != CKPT_OK;
    }
    ck_assert_uint_gt(failed, 300);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_torchtitan");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, as_the_trainer_asks, 1, 4);
    tcase_add_test(t, what_it_lacks);
    tcase_add_test(t, weights_alone);
    tcase_add_test(t, groups_of_the_same_settings);
    tcase_add_test(t, there_and_back);
    tcase_add_test(t, each_allocation);
    suite_add_tcase(s, t);
    return run_suite(s);
}
