/* test_migrate_llmc.c - --to llmc: the files of any number of ranks, against those of a writer that knows llm.c's loops alone. */
#include <ckpt/migrate.h>

#include "../llmc_files.h"
#include "../scarce_memory.h"
#include "../scratch_base.h"

static ckpt_report *report;
static char targets[40]; /* a directory for them, which is the current one */

static ckpt_status to_llmc(const char *src, const char *dst, uint32_t world, ckpt_rank_state rank_state)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    err = (ckpt_error)CKPT_ERROR_INIT;
    o.to = "llmc";
    o.target_world = world;
    o.rank_state = rank_state;
    o.verify = true;
    o.no_sync = true;
    ckpt_report_free(report);
    report = ckpt_report_new();
    return ckpt_migrate(src, dst, &o, report, &err);
}

static void expect_written(ckpt_status status)
{
    ck_assert_msg(status == CKPT_OK, "%d: %s: %s", (int)status, err.object, err.message);
}

static void expect_refused(ckpt_status status, ckpt_status as, const char *text)
{
    ck_assert_msg(status == as && strstr(err.message, text), "%d: %s", (int)status, err.message);
}

/* What a file holds; its size is the answer. */
static size_t slurp(const char *path, unsigned char *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "no %s", path);
    size_t n = fread(to, 1, room, f);
    ck_assert_uint_lt(n, room);
    fclose(f);
    return n;
}

enum { ROOM = 1 << 16 };

/* The files are alike but for the numbers of a state's header from 20 to 23, the random states. */
static void expect_same(const char *have, const char *want, bool but_random)
{
    static unsigned char a[ROOM], b[ROOM];
    const size_t n = slurp(have, a, ROOM), k = slurp(want, b, ROOM);
    ck_assert_msg(n == k, "%s has %zu bytes, not %zu", have, n, k);
    if (but_random && n >= 96)
        memcpy(a + 80, b + 80, 16);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(a[i] == b[i], "%s: byte %zu", have, i);
}

static void path_of(char *to, size_t size, const char *where, int step, int rank)
{
    if (rank < 0)
        snprintf(to, size, "%s/model_%08d.bin", where, step);
    else
        snprintf(to, size, "%s/state_%08d_%05d.bin", where, step, rank);
}

/* The folder `have` holds what the loop writes for s. */
static void expect_step(const char *have, state s, bool but_random)
{
    char path[200], want[200];
    path_of(path, sizeof path, have, s.step, -1);
    write_model("want");
    expect_same(path, "want", false);
    for (s.rank = 0; s.rank < s.ranks; s.rank++) {
        path_of(path, sizeof path, have, s.step, s.rank);
        snprintf(want, sizeof want, "want-%d", s.rank);
        write_state(want, s);
        expect_same(path, want, but_random);
    }
    path_of(path, sizeof path, have, s.step, s.ranks);
    ck_assert_msg(access(path, F_OK) != 0, "%s is there", path);
    snprintf(path, sizeof path, "%s/DONE_%08d", have, s.step);
    ck_assert_int_eq(access(path, F_OK), 0);
}

static const state four = {.ranks = 4, .step = 7, .master = true};

static int64_t random_of(const char *where, int rank, int place)
{
    static unsigned char held[ROOM];
    char path[200];
    int64_t n;
    path_of(path, sizeof path, where, 7, rank);
    slurp(path, held, ROOM);
    memcpy(&n, held + place * 4, sizeof n);
    return n;
}

/* ---- tests */

START_TEST(as_many_ranks_have_their_files_again)
{
    for (size_t i = 0; i < KINDS_OF_STATES; i++) {
        const state s = kinds_of_states[i];
        char dst[60], file[60], back[60];
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        write_step(s);
        snprintf(dst, sizeof dst, "to-%zu", i);
        expect_written(to_llmc(folder, dst, 0, CKPT_RANK_STATE_KEEP));
        expect_step(dst, s, false);
        /* and through one file of torch */
        snprintf(file, sizeof file, "of-%zu.pt", i);
        snprintf(back, sizeof back, "back-%zu", i);
        o.to = "torch";
        ck_assert_int_eq(ckpt_migrate(folder, file, &o, NULL, &err), CKPT_OK);
        expect_written(to_llmc(file, back, (uint32_t)s.ranks, CKPT_RANK_STATE_KEEP));
        expect_step(back, s, false);
        anew();
    }
}
END_TEST

START_TEST(other_ranks_have_their_parts)
{
    state s = four;
    write_step(s);
    expect_refused(to_llmc(folder, "refused", 2, CKPT_RANK_STATE_KEEP), CKPT_E_MISMATCH,
                   "the random states of 4 ranks");
    ck_assert_int_ne(access("refused", F_OK), 0);
    for (int world = 1; world <= 4; world++) {
        char dst[60], back[60];
        s = four;
        s.ranks = world;
        s.whole = world == 3; /* 544 parameters are not divided among three */
        snprintf(dst, sizeof dst, "of-%d", world);
        expect_written(to_llmc(folder, dst, (uint32_t)world, CKPT_RANK_STATE_DERIVE));
        expect_step(dst, s, true);
        ck_assert_int_eq(random_of(dst, 0, 20), 700);
        ck_assert_int_eq(random_of(dst, 0, 22), 600);
        if (world > 1)
            ck_assert_int_eq(random_of(dst, world - 1, 20), 13371337 + world - 1);
        /* and from there to four again */
        snprintf(back, sizeof back, "back-%d", world);
        expect_written(to_llmc(dst, back, 4, CKPT_RANK_STATE_DERIVE));
        s = four;
        s.whole = world == 3; /* which said that nothing is divided */
        expect_step(back, s, true);
    }
    expect_written(to_llmc(folder, "dropped", 2, CKPT_RANK_STATE_DROP));
    ck_assert_int_eq(random_of("dropped", 1, 22), 13371338);
}
END_TEST

/* 16 ranks divide 544 parameters, and not the four of lnfw: llm.c's ZeRO ends there. */
START_TEST(what_zero_cannot_divide_is_whole)
{
    state s = four;
    write_step(s);
    expect_written(to_llmc(folder, "sixteen", 16, CKPT_RANK_STATE_DERIVE));
    s.ranks = 16;
    s.whole = true;
    expect_step("sixteen", s, true);
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "llmc-resume", NULL)->message, "cannot divide"));
}
END_TEST

START_TEST(a_shuffle_of_other_ranks_is_none)
{
    state s = {.ranks = 4, .step = 7, .shuffles = true};
    write_step(s);
    expect_written(to_llmc(folder, "two", 2, CKPT_RANK_STATE_DERIVE));
    s.ranks = 2;
    s.shuffles = false;
    static unsigned char held[ROOM];
    size_t n = slurp("two/state_00000007_00001.bin", held, ROOM);
    int64_t place[2], none[2] = {0, 0};
    memcpy(place, held + 120, sizeof place);
    ck_assert_uint_eq(n, 1024 + 544 * 4);
    ck_assert_int_eq(held[20], 0);
    ck_assert_mem_eq(place, none, sizeof none);
}
END_TEST

START_TEST(a_rank_without_its_file_is_an_error)
{
    write_step(four);
    ck_assert_int_eq(unlink(state_path(7, 2)), 0);
    expect_refused(to_llmc(folder, "none", 0, CKPT_RANK_STATE_KEEP), CKPT_E_DAMAGED, "it is missing");
    ck_assert_int_ne(access("none", F_OK), 0);
}
END_TEST

START_TEST(weights_alone_are_a_file)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    write_step(four);
    o.to = "llmc";
    o.weights_only = o.verify = true;
    ck_assert_int_eq(ckpt_migrate(folder, "alone.bin", &o, NULL, &err), CKPT_OK);
    write_model("want");
    expect_same("alone.bin", "want", false);
    /* float16 is none of llm.c's, bfloat16 is version 5 */
    const char *half = "*=float16", *brain = "*=bfloat16";
    o.cast = &half;
    o.cast_count = 1;
    expect_refused(ckpt_migrate(folder, "half.bin", &o, NULL, &err), CKPT_E_UNSUPPORTED, "--cast '*=bfloat16'");
    o.cast = &brain;
    ck_assert_int_eq(ckpt_migrate(folder, "brain.bin", &o, NULL, &err), CKPT_OK);
    static unsigned char held[ROOM];
    ck_assert_uint_eq(slurp("brain.bin", held, ROOM), 1024 + 544 * 2);
    ck_assert_int_eq(held[4], 5);
}
END_TEST

/* What a source lacks is asked for. */
START_TEST(nothing_is_made_up)
{
    static const struct {
        const char *drop, *text;
    } cases[] = {{"num_heads", "num_heads"},
                 {"vocab_size", "vocab_size"},
                 {"rng_state", "no random state"},
                 {"current_sample_idx", "no place in the data"},
                 {"wpe", "no 'wpe'"},
                 {"optimizer.fcw.exp_avg", "exp_avg of every tensor"},
                 {"optimizer.fcw.fp32", "fp32 of every tensor"}};
    write_step(four);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        o.to = "llmc";
        o.drop = &cases[i].drop;
        o.drop_count = 1;
        expect_refused(ckpt_migrate(folder, "none", &o, NULL, &err), CKPT_E_UNSUPPORTED, cases[i].text);
        ck_assert_int_ne(access("none", F_OK), 0);
    }
}
END_TEST

START_TEST(an_allocation_that_fails_is_said)
{
    bool done = false;
    state s = four;
    s.shuffles = true;
    write_step(s);
    for (long n = 0; !done; n++) {
        char path[40];
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        err = (ckpt_error)CKPT_ERROR_INIT;
        o.to = o.from = "llmc";
        o.no_sync = true;
        o.threads = 1;
        snprintf(path, sizeof path, "scarce-%ld", n % 3);
        allocations_left = n;
        ckpt_status status = ckpt_migrate(folder, path, &o, NULL, &err);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                      err.message);
        if (status == CKPT_OK) {
            expect_step(path, s, false);
            char command[80];
            snprintf(command, sizeof command, "rm -r %s", path);
            ck_assert_int_eq(system(command), 0);
        } else
            ck_assert_int_ne(access(path, F_OK), 0);
        ck_assert_int_lt(n, 100000);
    }
}
END_TEST

static void begin_all(void)
{
    setup();
    snprintf(targets, sizeof targets, "%s/ckpt-llmc-XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(targets));
    ck_assert_int_eq(chdir(targets), 0);
}

static void end(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", targets);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
    ckpt_report_free(report);
    report = NULL;
    teardown();
}

int main(void)
{
    Suite *s = suite_create("migrate to llmc");
    TCase *t = tcase_create("llmc");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, begin_all, end);
    tcase_add_test(t, as_many_ranks_have_their_files_again);
    tcase_add_test(t, other_ranks_have_their_parts);
    tcase_add_test(t, what_zero_cannot_divide_is_whole);
    tcase_add_test(t, a_shuffle_of_other_ranks_is_none);
    tcase_add_test(t, a_rank_without_its_file_is_an_error);
    tcase_add_test(t, weights_alone_are_a_file);
    tcase_add_test(t, nothing_is_made_up);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
