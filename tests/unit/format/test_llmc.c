/* Checkpoints of llm.c: what every rank has of the moments is put together by its place, and what is missing, cut off or of another
 * run is named. Each element says which tensor it is of, and where in it. */
#include <ckpt/doctor.h>
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <ckpt/summary.h>
#include <ckpt/verify.h>
#include "../llmc_files.h"
#include "../scarce_memory.h"

static void expect_tensor(const char *name, int kind, int part, ckpt_role role)
{
    float values[LAYERS * 4 * CHANNELS * CHANNELS];
    size_t number;
    const ckpt_tensor_info *t = tensor_named(name, &number);
    size_t n = (size_t)parts[part].numel * (parts[part].layers ? LAYERS : 1);
    ck_assert_uint_eq(t->nbytes, n * 4);
    ck_assert_int_eq(t->role, role);
    ck_assert_int_eq(ckpt_reader_read(reader, number, values, n * 4, &err), CKPT_OK);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(values[i] == value_of(kind, part, (int)i), "%s[%zu]: %g", name, i, (double)values[i]);
}

static void expect_all(bool master)
{
    static const struct {
        const char *ending;
        ckpt_role role;
    } kinds[] = {{"exp_avg", CKPT_ROLE_EXP_AVG}, {"exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ}, {"fp32", CKPT_ROLE_MASTER}};
    for (int p = 0; p < PARTS; p++) {
        expect_tensor(parts[p].name, 0, p, CKPT_ROLE_PARAM);
        for (int k = 0; k < 2 + master; k++) {
            char name[80];
            snprintf(name, sizeof name, "optimizer.%s.%s", parts[p].name, kinds[k].ending);
            expect_tensor(name, k + 1, p, kinds[k].role);
        }
    }
}

START_TEST(moments_of_all_ranks_are_put_together)
{
    for (size_t i = 0; i < KINDS_OF_STATES; i++) {
        const state s = kinds_of_states[i];
        ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
        write_step(s);
        opens(folder);
        ck_assert_str_eq(ckpt_reader_format(reader), "llmc");
        ck_assert_uint_eq(ckpt_reader_tensor_count(reader),
                          PARTS * (s.master ? 4u : 3u) + (s.shuffles ? 3u * (size_t)s.ranks : 0));
        expect_all(s.master);
        ck_assert_int_eq(ckpt_verify(folder, NULL, &result, NULL, &err), CKPT_OK);
        remove_folder();
        make_folder();
    }
}
END_TEST

START_TEST(shapes_and_values_are_those_of_the_headers)
{
    static const struct {
        const char *name;
        uint32_t ndim;
        int64_t shape[3];
    } shapes[] = {{"wte", 2, {PADDED, CHANNELS}},
                  {"optimizer.qkvw.exp_avg", 3, {LAYERS, 3 * CHANNELS, CHANNELS}},
                  {"fcprojw", 3, {LAYERS, CHANNELS, 4 * CHANNELS}},
                  {"qkvb", 2, {LAYERS, 3 * CHANNELS}},
                  {"lnfb", 1, {CHANNELS}}};
    write_step((state){.ranks = 2, .step = 7, .shuffles = true});
    opens(folder);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t number;
        const ckpt_tensor_info *t = tensor_named(shapes[i].name, &number);
        ck_assert_uint_eq(t->ndim, shapes[i].ndim);
        for (uint32_t d = 0; d < t->ndim; d++)
            ck_assert_int_eq(t->shape[d], shapes[i].shape[d]);
    }
    const ckpt_value *root = ckpt_reader_root(reader), *rng = ckpt_value_get(root, "rng_state");
    ck_assert_int_eq(ckpt_value_get(root, "step")->integer, 7);
    ck_assert_int_eq(ckpt_value_get(root, "world_size")->integer, 2);
    ck_assert_int_eq(ckpt_value_get(root, "zero_stage")->integer, 1);
    ck_assert_int_eq(ckpt_value_get(root, "vocab_size")->integer, VOCAB);
    ck_assert_int_eq(ckpt_value_get(root, "current_sample_idx")->integer, 50);
    ck_assert_int_eq(rng->items[1]->integer, 701);
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.producer, "llm.c");
    ck_assert_int_eq(s.step, 7);
    ckpt_summary_clear(&s);
}
END_TEST

/* A file of torch has an optimizer of all parameters, and a step of each. */
START_TEST(it_becomes_a_file_of_torch)
{
    ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
    write_step((state){.ranks = 2, .step = 7, .master = true});
    options.to = "torch";
    options.verify = true;
    char out[300];
    snprintf(out, sizeof out, "%s.pt", folder); /* never inside the source */
    ckpt_status status = ckpt_migrate(folder, out, &options, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    opens(out);
    unlink(out);
    expect_tensor("model.fcw", 0, 10, CKPT_ROLE_PARAM);
    expect_tensor("optimizer.state.10.exp_avg_sq", 2, 10, CKPT_ROLE_EXP_AVG_SQ);
    expect_tensor("optimizer.state.10.master", 3, 10, CKPT_ROLE_MASTER);
    size_t number;
    float step = 0;
    ck_assert_uint_eq(tensor_named("optimizer.state.15.step", &number)->nbytes, 4);
    ck_assert_int_eq(ckpt_reader_read(reader, number, &step, 4, &err), CKPT_OK);
    ck_assert(step == 7);
}
END_TEST

START_TEST(the_newest_step_that_is_whole_is_read)
{
    write_step((state){.ranks = 2, .step = 7});
    write_step((state){.ranks = 2, .step = 9});
    opens(folder);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "step")->integer, 9);
    ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "file-ignored", NULL));
    ck_assert_int_eq(unlink(step_path("DONE", 9)), 0); /* killed before the mark */
    opens(folder);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "step")->integer, 7);
    const ckpt_finding *f = ckpt_report_find(ckpt_reader_findings(reader), "incomplete-step", NULL);
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "step 9 is not whole"));
    ck_assert_int_eq(unlink(step_path("DONE", 7)), 0); /* none has a mark: the newest, with a word */
    opens(folder);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "step")->integer, 9);
    ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "incomplete-step", NULL));
    ckpt_report *report = ckpt_report_new(); /* train_gpt2cu -y 1 looks for a mark */
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "latest-missing", NULL));
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

START_TEST(a_rank_without_its_file_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    char out[64];
    size_t number;
    options.leave_damaged = true;
    for (int rank = 0; rank < 4; rank++) {
        write_step((state){.ranks = 4, .step = 7, .whole = rank == 2});
        ck_assert_int_eq(unlink(state_path(7, rank)), 0);
        fails(folder, CKPT_E_DAMAGED, "is missing");
        snprintf(out, sizeof out, "state_00000007_%05d.bin", rank);
        ck_assert_ptr_nonnull(strstr(err.object, out));
        ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
        ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "shard-missing", NULL));
        expect_tensor("fcw", 0, 10, CKPT_ROLE_PARAM);
        tensor_named("optimizer.fcw.exp_avg", &number);
    }
}
END_TEST

/* A file of `size` bytes from now on. */
static void cut(const char *path, long size)
{
    ck_assert_int_eq(truncate(path, size), 0);
}

static long size_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return (long)st.st_size;
}

START_TEST(a_file_of_another_length_is_refused)
{
    static const long less[] = {1, 4, 3000, -4};
    write_step((state){.ranks = 2, .step = 7, .shuffles = true});
    for (size_t i = 0; i < sizeof less / sizeof *less; i++) {
        long size = size_of(state_path(7, 1));
        cut(state_path(7, 1), size - less[i]);
        fails(folder, CKPT_E_DAMAGED, less[i] > 0 ? "ends at byte" : "not what its header says");
        write_state(state_path(7, 1), (state){.rank = 1, .ranks = 2, .step = 7, .shuffles = true});
    }
    cut(state_path(7, 1), 1000); /* in its header */
    fails(folder, CKPT_E_DAMAGED, "ends at byte");
    write_state(state_path(7, 1), (state){.rank = 1, .ranks = 2, .step = 7, .shuffles = true});
    cut(step_path("model", 7), size_of(step_path("model", 7)) - 2);
    fails(folder, CKPT_E_DAMAGED, "ends at byte");
    ck_assert_int_eq(unlink(step_path("model", 7)), 0);
    fails(folder, CKPT_E_DAMAGED, "model_00000007.bin is missing");
}
END_TEST

START_TEST(files_of_several_runs_do_not_mix)
{
    static const struct {
        state other; /* in the place of rank 1 of 2 at step 7 */
        const char *words;
    } cases[] = {{{.rank = 0, .ranks = 2, .step = 7}, "its name rank 1 at 7"},
                 {{.rank = 1, .ranks = 2, .step = 6}, "rank 1 at step 6"},
                 {{.rank = 1, .ranks = 4, .step = 7}, "of a run of 4 ranks"},
                 {{.rank = 1, .ranks = 2, .step = 7, .master = true}, "not the files of one run"},
                 {{.rank = 1, .ranks = 2, .step = 7, .whole = true}, "not the files of one run"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_step((state){.ranks = 2, .step = 7});
        write_state(state_path(7, 1), cases[i].other);
        fails(folder, CKPT_E_MISMATCH, cases[i].words);
    }
    write_step((state){.ranks = 2, .step = 7});
    write_state(state_path(7, 2), (state){.rank = 2, .ranks = 4, .step = 7}); /* one rank too many */
    fails(folder, CKPT_E_MISMATCH, "has a state of rank 2");
    ck_assert_int_eq(unlink(state_path(7, 2)), 0);
    write_state(step_path("model", 7), (state){.rank = 0, .ranks = 2, .step = 7});
    fails(folder, CKPT_E_MISMATCH, "as llm.c's states do, and its name is that of a model");
}
END_TEST

START_TEST(a_header_of_nonsense_is_refused)
{
    static const struct {
        int place;
        int32_t value;
        ckpt_status status;
        const char *words;
    } cases[] = {{1, 1, CKPT_E_UNSUPPORTED, "version 1"},
                 {2, 0, CKPT_E_FORMAT, "maxT 0"},
                 {4, -1, CKPT_E_FORMAT, "layers -1"},
                 {6, INT32_MAX, CKPT_E_FORMAT, "channels 2147483647"},
                 {3, PADDED + 1, CKPT_E_FORMAT, "more than padded V"},
                 {6, 1 << 24, CKPT_E_FORMAT, "overflow"},
                 {4, 3, CKPT_E_DAMAGED, "ends at byte"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t *h = model_header();
        h[cases[i].place] = cases[i].value;
        if (strcmp(cases[i].words, "overflow") == 0)
            h[4] = 1 << 24;
        FILE *f = begin(at("model.bin"), h);
        put_kind(f, 0, 0, 1);
        fclose(f);
        fails(at("model.bin"), cases[i].status, cases[i].words);
    }
}
END_TEST

START_TEST(a_state_of_nonsense_is_refused)
{
    static const struct {
        int place;
        int32_t value;
        ckpt_status status;
        const char *words;
    } cases[] = {{0, 5, CKPT_E_FORMAT, "begins with 5"},
                 {1, 2, CKPT_E_UNSUPPORTED, "version 2"},
                 {2, 0, CKPT_E_FORMAT, "rank 0 of 0"},
                 {2, -3, CKPT_E_FORMAT, "of -3"},
                 {4, 7, CKPT_E_FORMAT, "use_master_weights 7"},
                 {2, INT32_MAX, CKPT_E_LIMIT, "2147483647 ranks"},
                 {5, 1, CKPT_E_DAMAGED, "header"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_step((state){.ranks = 1, .step = 7});
        FILE *f = fopen(state_path(7, 0), "r+b");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(fseek(f, cases[i].place * 4L, SEEK_SET), 0);
        ck_assert_uint_eq(fwrite(&cases[i].value, 4, 1, f), 1);
        fclose(f);
        fails(folder, cases[i].status, cases[i].words);
    }
}
END_TEST

/* 4 channels cannot be divided by 3, though all elements together can. */
START_TEST(ranks_that_cannot_divide_a_tensor_are_refused)
{
    int all = 0;
    for (int p = 0; p < PARTS; p++)
        all += parts[p].numel * (parts[p].layers ? LAYERS : 1);
    ck_assert_int_eq(all % 16, 0);
    write_model(step_path("model", 7));
    for (int rank = 0; rank < 16; rank++) {
        int32_t *h = header(20240527, 1);
        h[2] = 16;
        h[3] = rank;
        h[10] = 7;
        FILE *f = begin(state_path(7, rank), h);
        for (int i = 0; i < 2 * all / 16; i++)
            fwrite("\0\0\0", 4, 1, f);
        fclose(f);
    }
    fails(folder, CKPT_E_FORMAT, "cannot divide");
}
END_TEST

START_TEST(a_file_alone_says_what_it_is)
{
    write_step((state){.ranks = 2, .step = 7});
    opens(step_path("model", 7));
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), PARTS);
    expect_tensor("lnfb", 0, 15, CKPT_ROLE_PARAM);
    fails(state_path(7, 1), CKPT_E_UNSUPPORTED, "rank 1 of 2");
    ck_assert_ptr_nonnull(strstr(err.message, "step 7"));
}
END_TEST

/* Each allocation fails in turn: what comes of it is an error of memory, or the whole checkpoint. */
START_TEST(an_allocation_that_fails_is_said)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    bool done = false;
    options.format = "llmc"; /* which format it is, is another question */
    write_step((state){.ranks = 2, .step = 7, .master = true, .shuffles = true});
    for (long n = 0; !done; n++) {
        allocations_left = n;
        ckpt_status status = open_with(folder, &options);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                      err.message);
        if (status == CKPT_OK)
            expect_all(true);
        ck_assert_int_lt(n, 100000);
    }
    ck_assert_ptr_nonnull(reader);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("llmc");
    TCase *t = tcase_create("llmc");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, moments_of_all_ranks_are_put_together);
    tcase_add_test(t, shapes_and_values_are_those_of_the_headers);
    tcase_add_test(t, it_becomes_a_file_of_torch);
    tcase_add_test(t, the_newest_step_that_is_whole_is_read);
    tcase_add_test(t, a_rank_without_its_file_is_named);
    tcase_add_test(t, a_file_of_another_length_is_refused);
    tcase_add_test(t, files_of_several_runs_do_not_mix);
    tcase_add_test(t, a_header_of_nonsense_is_refused);
    tcase_add_test(t, a_state_of_nonsense_is_refused);
    tcase_add_test(t, ranks_that_cannot_divide_a_tensor_are_refused);
    tcase_add_test(t, a_file_alone_says_what_it_is);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
