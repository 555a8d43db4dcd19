/* A native file of a trainer in C, as the HF Trainer and accelerate resume from it with FSDP2 and with DeepSpeed: the files of each, the
 * ranks that they are cut for, whose random states are where, and what they could not resume from. Each allocation fails once. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../scarce_memory.h"
#include "trainer_model.h"

/* Of a file below the target: whole, or below a universal checkpoint's tag. */
static const struct {
    const char *to, *format, *scheduler, *random, *tag;
    bool fsdp, accelerate;
} programs[] = {
    {"hf-trainer-fsdp", "hf-trainer", "scheduler.pt", "rng_state_%zu.pth", NULL, true, false},
    {"accelerate-fsdp", "accelerate", "scheduler.bin", "random_states_%zu.pkl", NULL, true, true},
    {"hf-trainer-deepspeed", "universal", "scheduler.pt", "rng_state_%zu.pth", "global_step7_universal", false, false},
    {"accelerate-deepspeed", "universal", "scheduler.bin", "random_states_%zu.pkl", "pytorch_model", false, true}};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static char d[20] = "d"; /* the target: each has a name of its own */

static ckpt_reader *made(what w, int which)
{
    static unsigned count;
    snprintf(d, sizeof d, "d%u", ++count);
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), programs[which].to, at("%s", d));
    ckpt_reader *r = opened(at("%s", d));
    ck_assert_str_eq(ckpt_reader_format(r), programs[which].format);
    return r;
}

static bool is_there(const char *name)
{
    struct stat st;
    return stat(at("%s/%s", d, name), &st) == 0;
}

/* The weights and moments, by the names that the reader gives each format. */
static void holds_all(ckpt_reader *r, int which, float (*weights)[4])
{
    char name[120];
    for (size_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, programs[which].fsdp ? "model.%s" : "%s", names[i]);
        if (weights == params || programs[which].fsdp)
            holds(r, name, weights[i]);
        snprintf(name, sizeof name, programs[which].fsdp ? "optimizer.state.%s.exp_avg" : "optimizer.%s.exp_avg",
                 names[i]);
        holds(r, name, m[i]);
    }
}

static const ckpt_value *in_file(ckpt_reader **r, const char *name)
{
    *r = opened(at("%s/%s", d, name));
    return ckpt_reader_root(*r);
}

START_TEST(files)
{
    options.target_world = 3;
    ckpt_reader *r = made((what){0}, _i);
    holds_all(r, _i, params);
    ckpt_reader_close(r);
    ck_assert_int_eq(ckpt_value_get(in_file(&r, programs[_i].scheduler), "last_epoch")->integer, last_epoch);
    ckpt_reader_close(r);
    ck_assert(is_there("trainer_state.json") == !programs[_i].accelerate);
    if (programs[_i].fsdp) {
        /* Four rows for three ranks: two, two and none. */
        ck_assert(is_there("pytorch_model_fsdp_0/.metadata") && is_there("pytorch_model_fsdp_0/__1_0.distcp"));
        ck_assert(is_there("optimizer_0/.metadata") && is_there("optimizer_0/__1_0.distcp"));
        ck_assert(!is_there("optimizer_0/__2_0.distcp") && !is_there("optimizer.bin") &&
                  !is_there("model.safetensors"));
        return;
    }
    char path[120];
    snprintf(path, sizeof path, "%s/zero/a.weight/exp_avg.pt", programs[_i].tag);
    ck_assert(is_there(path));
    ck_assert(is_there("latest_universal") == !programs[_i].accelerate);
}
END_TEST

/* Beside the record of each setting there is one of all groups: torch loads groups from it that say less than its own. */
START_TEST(groups_in_one_record)
{
    ckpt_reader *r = made((what){0}, _i);
    ckpt_reader_close(r);
    FILE *f = fopen(at("%s/optimizer_0/.metadata", d), "rb");
    char text[20000];
    ck_assert_ptr_nonnull(f);
    size_t n = fread(text, 1, sizeof text, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_ptr_nonnull(memmem(text, n, "\x16optimizer.param_groups\x94", 24));
    ck_assert_ptr_nonnull(memmem(text, n, "optimizer.param_groups.1.weight_decay", 37));
    r = opened(at("%s/optimizer_0", d));
    const ckpt_value *groups = ckpt_value_get(ckpt_value_get(ckpt_reader_root(r), "optimizer"), "param_groups");
    ck_assert(groups && groups->item_count == 2);
    ck_assert(ckpt_value_get(groups->items[0], "weight_decay")->real == decay[0]);
    const ckpt_value *own = ckpt_value_get(groups->items[1], "params");
    ck_assert(own && own->item_count == 1);
    ck_assert_str_eq(own->items[0]->text.data, names[2]);
    ckpt_reader_close(r);
}
END_TEST

START_TEST(masters_are_the_weights)
{
    ckpt_reader *r = made((what){.half = true}, _i);
    holds_all(r, _i, masters);
    ck_assert_int_eq(ckpt_report_find(report, "weights-from-masters", NULL) != NULL, programs[_i].fsdp);
    ckpt_reader_close(r);
}
END_TEST

static void has_seed(size_t rank, int which, const char *format)
{
    char name[60];
    ckpt_reader *r;
    snprintf(name, sizeof name, "%s", format);
    const ckpt_value *root = in_file(&r, name),
                     *seed = ckpt_value_get(root, programs[which].accelerate ? "torch_manual_seed" : "cpu");
    ck_assert(seed && seed->integer == seeds[rank]);
    ckpt_reader_close(r);
}

static const char *random_name(int which, size_t rank)
{
    static char name[60];
    if (programs[which].accelerate)
        snprintf(name, sizeof name, "random_states_%zu.pkl", rank);
    else
        snprintf(name, sizeof name, "rng_state_%zu.pth", rank);
    return name;
}

START_TEST(random_states)
{
    options.target_world = 3;
    ckpt_reader_close(made((what){.ranks = 3}, _i));
    for (size_t r = 0; r < 3; r++)
        has_seed(r, _i, random_name(_i, r));
    ck_assert(!is_said("rank-state", "each other rank"));
    options.target_world = 4; /* one has none, and none is made up */
    ckpt_reader_close(made((what){.ranks = 3}, _i));
    ck_assert(is_said("rank-state", "of 3 ranks are there") && !is_there(random_name(_i, 3)));
    options.target_world = 0;
    ckpt_reader_close(made((what){.ranks = 1}, _i));
    has_seed(0, _i, random_name(_i, 0));
    ck_assert(is_said("rank-state", "of 1 rank are there"));
    options.target_world = 1; /* a process that is alone has another file in the Trainer */
    ckpt_reader_close(made((what){.ranks = 1}, _i));
    has_seed(0, _i, programs[_i].accelerate ? random_name(_i, 0) : "rng_state.pth");
    ck_assert(!is_said("rank-state", "each other rank"));
}
END_TEST

START_TEST(what_is_lost)
{
    const char *to = programs[_i].to;
    save(at("n.safetensors"), (what){.no_scheduler = true, .extra = true});
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("%s", d)), CKPT_E_UNSUPPORTED);
    ck_assert(!is_there(""));
    ck_assert(is_said("lost", programs[_i].accelerate ? "scheduler.bin"
                              : programs[_i].fsdp     ? "optimizer_0 and scheduler.pt together"
                                                      : "asks for scheduler.pt"));
    ck_assert(is_said("lost", "'extra'") == programs[_i].fsdp); /* DeepSpeed has it in the client state */
    options.lossy = true;
    migrates(at("n.safetensors"), to, at("%s", d));
    ck_assert(!is_there(programs[_i].scheduler));
    if (programs[_i].fsdp)
        return;
    ckpt_reader *r = opened(at("%s", d));
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(r), "extra")->integer, extra);
    ckpt_reader_close(r);
}
END_TEST

START_TEST(refused)
{
    const char *to = programs[_i].to;
    options.lossy = true;
    save(at("n.safetensors"), (what){.no_optimizer = true});
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("%s", d)), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "no optimizer"));
    save(at("n.safetensors"), (what){0});
    options.weights_only = true;
    ck_assert_int_eq(migrate(at("n.safetensors"), to, at("%s", d)), CKPT_E_ARGUMENT);
    options.weights_only = false;
    options.target_world = 100000;
    if (programs[_i].fsdp)
        ck_assert_int_eq(migrate(at("n.safetensors"), to, at("%s", d)), CKPT_E_ARGUMENT);
    ck_assert(!is_there(""));
}
END_TEST

START_TEST(what_is_there_stays)
{
    ckpt_reader_close(made((what){0}, _i));
    write_text(at("%s/notes.txt", d), "mine");
    ck_assert_int_eq(migrate(at("n.safetensors"), programs[_i].to, at("%s", d)), CKPT_E_EXISTS);
    ck_assert(is_there("notes.txt"));
}
END_TEST

/* From one way of cutting to the other, and back to a file. */
START_TEST(from_one_to_the_other)
{
    options.target_world = 2;
    options.lossy = true; /* a program's file that the other has no place for */
    ckpt_reader_close(made((what){.ranks = 2}, _i));
    for (int to = 0; to < PROGRAMS; to++) {
        char name[32];
        snprintf(name, sizeof name, "to%d", to);
        migrates(at("%s", d), programs[to].to, at("%s", name));
        ckpt_reader *r = opened(at("%s", name));
        holds_all(r, to, params);
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(each_allocation)
{
    size_t failed = 0;
    bool all = false;
    options.target_world = 2;
    options.threads = 1;
    options.verify = programs[_i].fsdp; /* where memory is short a bid is 0, and another format reads it back */
    save(at("n.safetensors"), (what){.half = true, .ranks = 2, .extra = false});
    for (long n = 0; !all; n += n < 1500 ? 1 : 7) { /* the first are of the reader, and tried elsewhere too */
        allocations_left = n;
        char name[32];
        snprintf(name, sizeof name, "d%ld", n);
        ckpt_status status = migrate(at("n.safetensors"), programs[_i].to, at("%s", name));
        all = allocations_left >= 0; /* none has failed */
        allocations_left = -1;
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld: %d %s", n, (int)status,
                      err.message);
        failed += status < 0;
        struct stat st;
        ck_assert_msg((stat(at("%s", name), &st) == 0) == (status == CKPT_OK), "allocation %ld", n);
        if (status == CKPT_OK) { /* what failed was not needed */
            ckpt_reader *r = opened(at("%s", name));
            holds_all(r, _i, masters);
            ckpt_reader_close(r);
        }
    }
    ck_assert_uint_gt(failed, 300);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_shards");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup_new, teardown);
    tcase_add_loop_test(t, files, 0, PROGRAMS);
    tcase_add_loop_test(t, groups_in_one_record, 0, 2);
    tcase_add_loop_test(t, masters_are_the_weights, 0, PROGRAMS);
    tcase_add_loop_test(t, random_states, 0, PROGRAMS);
    tcase_add_loop_test(t, what_is_lost, 0, PROGRAMS);
    tcase_add_loop_test(t, refused, 0, PROGRAMS);
    tcase_add_loop_test(t, what_is_there_stays, 0, PROGRAMS);
    tcase_add_loop_test(t, from_one_to_the_other, 0, PROGRAMS);
    tcase_add_loop_test(t, each_allocation, 0, PROGRAMS);
    suite_add_tcase(s, t);
    return run_suite(s);
}
