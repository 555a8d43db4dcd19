/* A native file of a trainer in C as a checkpoint of the HF Trainer, and of accelerate: the files of each, the ids in the order of the
 * groups, and what they could not resume from. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "trainer_model.h"

static ckpt_reader *made(what w, const char *to)
{
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), to, at("d"));
    ckpt_reader *r = opened(at("d"));
    ck_assert_str_eq(ckpt_reader_format(r), to);
    return r;
}

static const struct {
    const char *to, *optimizer, *scheduler;
} programs[] = {{"hf-trainer", "optimizer.pt", "scheduler.pt"}, {"accelerate", "optimizer.bin", "scheduler.bin"}};

START_TEST(files)
{
    char path[100];
    ckpt_reader *r = made((what){0}, programs[_i].to);
    for (size_t i = 0; i < N; i++)
        holds(r, names[i], params[i]);
    ckpt_reader_close(r);
    snprintf(path, sizeof path, "d/%s", programs[_i].optimizer);
    r = opened(at("%s", path));
    const ckpt_value *root = ckpt_reader_root(r), *groups = ckpt_value_get(root, "param_groups");
    ck_assert(groups && groups->item_count == 2);
    for (int64_t id = 0; id < N; id++) {
        const ckpt_value *ids = ckpt_value_get(groups->items[id / 2], "params");
        ck_assert_int_eq(ids->items[id % 2]->integer, id);
        snprintf(path, sizeof path, "state.%d.exp_avg", (int)id);
        holds(r, path, m[id]);
        snprintf(path, sizeof path, "state.%d.step", (int)id);
        ck_assert_ptr_nonnull(find(r, path));
    }
    ck_assert(ckpt_value_get(groups->items[0], "weight_decay")->real == decay[0]);
    ck_assert_ptr_null(ckpt_value_get(groups->items[0], "param_names"));
    ckpt_reader_close(r);
    snprintf(path, sizeof path, "d/%s", programs[_i].scheduler);
    r = opened(at("%s", path));
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(r), "last_epoch")->integer, last_epoch);
    ckpt_reader_close(r);
}
END_TEST

START_TEST(masters_are_the_weights)
{
    char path[100];
    ckpt_reader *r = made((what){.half = true}, programs[_i].to);
    for (size_t i = 0; i < N; i++)
        holds(r, names[i], masters[i]);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "weights-from-masters", NULL));
    ckpt_reader_close(r);
    snprintf(path, sizeof path, "d/%s", programs[_i].optimizer);
    r = opened(at("%s", path));
    ck_assert_ptr_null(find(r, "state.0.master"));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(what_is_lost)
{
    struct stat st;
    const char *to = programs[_i].to;
    save(at("n.safetensors"), (what){.no_scheduler = true, .extra = true});
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("d")), CKPT_E_UNSUPPORTED);
    ck_assert_int_ne(stat(at("d"), &st), 0);
    ck_assert(is_said("lost", "'extra'") &&
              is_said("lost", _i ? "scheduler.bin" : "optimizer.pt and scheduler.pt together"));
    options.lossy = true;
    migrates(at("n.safetensors"), to, at("d"));
}
END_TEST

START_TEST(refused)
{
    const char *to = programs[_i].to;
    options.lossy = true;
    save(at("n.safetensors"), (what){.no_optimizer = true});
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("d")), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "no optimizer"));
    save(at("n.safetensors"), (what){0});
    options.weights_only = true;
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("d")), CKPT_E_ARGUMENT);
}
END_TEST

START_TEST(what_is_there_stays)
{
    struct stat st;
    const char *to = programs[_i].to;
    ckpt_reader_close(made((what){0}, to));
    migrates(at("n.safetensors"), to, at("d")); /* such a checkpoint is replaced */
    write_text(at("d/notes.txt"), "mine");
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("d")), CKPT_E_EXISTS);
    ck_assert_int_eq(stat(at("d/notes.txt"), &st), 0);
    ck_assert_int_eq(unlink(at("d/notes.txt")), 0);
    ck_assert_int_eq(mkdir(at("d/mine"), 0777), 0);
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("d")), CKPT_E_EXISTS);
    ck_assert_int_eq(stat(at("d/mine"), &st), 0);
}
END_TEST

START_TEST(settings_of_the_optimizer)
{
    save(at("n.safetensors"), (what){.setting = true});
    ck_assert_int_eq(migrate(at("n.safetensors"), programs[_i].to, at("d")), CKPT_E_UNSUPPORTED);
    ck_assert(is_said("lost", "'scale' of the optimizer"));
}
END_TEST

START_TEST(state_of_the_trainer)
{
    ckpt_reader *r = made((what){0}, "hf-trainer");
    const ckpt_value *state = ckpt_value_get(ckpt_reader_root(r), "trainer_state.json");
    ck_assert_int_eq(ckpt_value_get(state, "global_step")->integer, step);
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_value_get(state, "stateful_callbacks"), "TrainerControl"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "trainer-state-made", NULL));
    ckpt_reader_close(r);
    write_text(at("d/config.json"), "{\"model_type\": \"x\"}");
    write_text(at("d/trainer_state.json"), "{\"global_step\": 7, \"own\": 1}");
    migrates(at("d"), "hf-trainer", at("e")); /* its own goes along as it is */
    ck_assert_ptr_null(ckpt_report_find(report, "trainer-state-made", NULL));
    r = opened(at("e"));
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_value_get(ckpt_reader_root(r), "trainer_state.json"), "own"));
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_reader_root(r), "config.json"));
    ckpt_reader_close(r);
}
END_TEST

/* The Trainer has one epoch, a number: what is none, or another one, is lost. */
static const struct {
    what w;
    double has;
    const char *lost; /* NULL: nothing */
} epochs[] = {
    {{.epochs = {1.5}}, 1.5, NULL},
    {{.epoch_texts = {"two"}}, 0, "'epoch'"},
    {{.epochs = {0, 2.5}}, 2.5, "of trainer_state the logs"},
    {{.epochs = {2.5, 2.5}}, 2.5, "of trainer_state the logs"},
    {{.epochs = {1.5, 2.5}}, 2.5, "'epoch'"},
    {{.epochs = {1.5}, .epoch_texts = {NULL, "two"}}, 1.5, "'epoch' of trainer_state, which is not a number"},
};

START_TEST(epoch_of_the_trainer)
{
    save(at("n.safetensors"), epochs[_i].w);
    if (epochs[_i].lost) {
        ck_assert_int_eq(migrate(at("n.safetensors"), "hf-trainer", at("d")), CKPT_E_UNSUPPORTED);
        ck_assert(is_said("lost", epochs[_i].lost));
        ck_assert(is_said("lost", "'epoch', for") == (_i == 1 || _i == 4));
    }
    options.lossy = true;
    migrates(at("n.safetensors"), "hf-trainer", at("d"));
    ckpt_reader *r = opened(at("d"));
    const ckpt_value *state = ckpt_value_get(ckpt_reader_root(r), "trainer_state.json");
    ck_assert(ckpt_value_get(state, "epoch")->real == epochs[_i].has);
    ckpt_reader_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_trainer");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, files, 0, 2);
    tcase_add_loop_test(t, masters_are_the_weights, 0, 2);
    tcase_add_loop_test(t, what_is_lost, 0, 2);
    tcase_add_loop_test(t, refused, 0, 2);
    tcase_add_loop_test(t, what_is_there_stays, 0, 2);
    tcase_add_loop_test(t, settings_of_the_optimizer, 0, 2);
    tcase_add_test(t, state_of_the_trainer);
    tcase_add_loop_test(t, epoch_of_the_trainer, 0, sizeof epochs / sizeof *epochs);
    suite_add_tcase(s, t);
    return run_suite(s);
}
