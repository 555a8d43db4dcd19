/* Distributed checkpoints of PyTorch of which something is lost, although each file that is named is there: what verify and doctor say,
 * and what a salvage keeps. */
#include <ckpt/ckpt.h>
#include "dcp_files.h"

static ckpt_error err;
static ckpt_report *report;

static void setup(void)
{
    make_folder();
    report = ckpt_report_new();
    ck_assert_ptr_nonnull(report);
}

static void teardown(void)
{
    ckpt_report_free(report);
    remove_folder();
}

/* The first places of these bytes, `most` of them, become those. */
static void change(const char *path, const char *from, const char *to, size_t n, size_t most)
{
    static char content[1 << 16];
    size_t found = 0;
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    size_t size = fread(content, 1, sizeof content, f);
    ck_assert(fclose(f) == 0 && size < sizeof content);
    for (size_t i = 0; i + n <= size && found < most; i++)
        if (memcmp(content + i, from, n) == 0) {
            memcpy(content + i, to, n);
            found++;
        }
    ck_assert_msg(found == most, "%zu times in %s", found, path);
    write_to(path, content, size);
}

static const ckpt_finding *says(const char *code, const char *tensor, const char *words)
{
    const ckpt_finding *f = ckpt_report_find(report, code, tensor);
    ck_assert_msg(f && f->severity == CKPT_SEVERITY_ERROR && strstr(f->message, words) && *f->fix, "%s of %s: %s", code,
                  tensor, f ? f->message : "it is not said");
    return f;
}

/* What verify finds is in the report. */
static void is_damaged(void)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_status status = ckpt_verify(at("c"), NULL, &result, report, &err);
    ck_assert_msg(status == CKPT_ANSWER_NO && !result.ok, "%d: %s", status, status < 0 ? err.message : "it is whole");
}

/* What doctor finds is in the report: of a plain reader, or of one that leaves out what is damaged. */
static ckpt_outcome outcome(bool leave_damaged, ckpt_loader loader)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    ckpt_doctor_options asked = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_reader *reader = NULL;
    options.leave_damaged = leave_damaged;
    asked.loader = loader;
    ck_assert_msg(ckpt_reader_open(at("c"), &options, &reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_msg(ckpt_doctor(reader, &asked, &result, report, &err) == CKPT_OK, "%s", err.message);
    ckpt_outcome is = result.outcome;
    ckpt_doctor_result_clear(&result);
    ckpt_reader_close(reader);
    return is;
}

/* Nothing tells of the last rank but the pieces that are not there. */
START_TEST(the_last_rank_is_not_there)
{
    copy("ranks");
    ck_assert(remove(at("c/__1.metadata")) == 0 && remove(at("c/__1_0.distcp")) == 0);
    is_damaged();
    says("pieces-missing", "model.rows.weight", "have 9 of its 15 elements");
    says("pieces-missing", "model.columns.weight", "have 9 of its 15 elements");
    ck_assert_uint_eq(ckpt_report_count_code(report, "pieces-missing"), 2);
    for (int leave = 0; leave < 2; leave++) {
        ck_assert_int_eq(outcome(leave, CKPT_LOADER_CKPT), CKPT_OUTCOME_FAILS_AT_LOAD);
        says("pieces-missing", "model.rows.weight", "have 9 of its 15 elements");
        ck_assert_uint_eq(ckpt_report_count_code(report, "pieces-missing"), 2);
    }
}
END_TEST

/* The offset 3, 0 of rank 1's rows becomes 2, 0: row 2 is there twice, row 4 is not. */
START_TEST(pieces_that_meet)
{
    copy("cut");
    change(at("c/.metadata"), "K\3K\0\x86", "K\2K\0\x86", 5, 2);
    is_damaged();
    says("pieces-overlap", "model.rows.weight", "two of its pieces have the same elements");
    ck_assert_uint_eq(ckpt_report_count_code(report, "pieces-overlap"), 1);
    ck_assert_int_eq(outcome(false, CKPT_LOADER_CKPT), CKPT_OUTCOME_FAILS_AT_LOAD);
    says("pieces-overlap", "model.rows.weight", "two of its pieces have the same elements");
}
END_TEST

/* One piece that is less than its tensor. */
START_TEST(a_piece_that_is_not_all)
{
    copy("cut");
    change(at("c/.metadata"), "K\4K\3\x86", "K\5K\3\x86", 5, 1); /* its shape, and not its chunk's */
    is_damaged();
    says("pieces-missing", "model.turned", "have 12 of its 15 elements");
}
END_TEST

/* What could not be recovered is in the report; how many things are those. */
static size_t salvage(void)
{
    ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
    options.salvage = true;
    options.to = "torch";
    (void)remove(at("out.pt"));
    ckpt_status status = ckpt_migrate(at("c"), at("out.pt"), &options, report, &err);
    ck_assert_msg(status >= 0, "%s", err.message);
    return ckpt_report_count_code(report, "not-recovered");
}

static bool is_in_output(const char *name)
{
    ckpt_reader *reader = NULL;
    size_t i;
    ck_assert_msg(ckpt_reader_open(at("out.pt"), NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    bool is = ckpt_reader_find(reader, name, strlen(name), &i, NULL) == CKPT_OK;
    ckpt_reader_close(reader);
    return is;
}

/* A tensor that was on rank 0 alone, of which the other lists have the shape: it is lost, and no tensor without bytes. */
START_TEST(a_tensor_without_a_piece)
{
    ckpt_reader *reader = NULL;
    copy("ranks");
    ck_assert(remove(at("c/__0.metadata")) == 0 && remove(at("c/__0_0.distcp")) == 0);
    is_damaged();
    says("rank-missing", NULL, "the list of rank 0");
    says("pieces-missing", "model.few", "have 0 of its 4 elements");
    says("pieces-missing", "model.rows.weight", "have 6 of its 15 elements");
    ck_assert_uint_eq(salvage(), 4); /* the list too */
    says("not-recovered", "model.few", "have 0 of its 4 elements");
    ck_assert(!is_in_output("model.few") && !is_in_output("model.rows.weight") && is_in_output("model.whole"));
    copy("ranks"); /* the last rank, of whose list nothing tells */
    ck_assert(rename(at("c/__1.metadata"), at("c/__0.metadata")) == 0 &&
              rename(at("c/__1_0.distcp"), at("c/__0_0.distcp")) == 0);
    change(at("c/__0.metadata"), "__1_0.distcp", "__0_0.distcp", 12, 1);
    ck_assert_int_eq(ckpt_reader_open(at("c"), NULL, &reader, &err), CKPT_E_DAMAGED);
    ck_assert_msg(strcmp(err.object, "model.few") == 0 && strstr(err.message, "4 elements are expected"), "%s: %s",
                  err.object, err.message);
}
END_TEST

/* The list of one rank is cut, or garbage in its middle: what the others list is read, and nothing of it. */
START_TEST(a_damaged_list_of_a_rank)
{
    ckpt_reader *reader = NULL;
    struct stat is;
    for (int damage = 0; damage < 3; damage++) {
        copy("ranks");
        ck_assert_int_eq(stat(at("c/__1.metadata"), &is), 0);
        if (damage == 0)
            ck_assert_int_eq(truncate(at("c/__1.metadata"), is.st_size / 2), 0);
        else if (damage == 1)
            write_text(at("c/__1.metadata"), "garbage");
        else /* its file's name has a NUL: the first tensor of it is there by then, and is taken back */
            change(at("c/__1.metadata"), "__1_0.distcp", "__1_0.di\0tcp", 12, 1);
        ck_assert_int_lt(ckpt_reader_open(at("c"), NULL, &reader, &err), 0);
        ck_assert_msg(strstr(err.object, "__1.metadata"), "%s: %s", err.object, err.message);
        is_damaged();
        says("pieces-missing", "model.rows.weight", "have 9 of its 15 elements");
        says("pieces-missing", "model.columns.weight", "have 9 of its 15 elements");
        ck_assert_int_eq(outcome(true, CKPT_LOADER_CKPT), CKPT_OUTCOME_FAILS_AT_LOAD);
        ck_assert_uint_eq(salvage(), 3);
        ck_assert(!is_in_output("model.rows.weight") && is_in_output("model.few") && is_in_output("model.whole"));
    }
}
END_TEST

/* Torch keeps scale and zero point in the record, and not in the list. */
START_TEST(a_quantized_tensor)
{
    static char content[100];
    ckpt_reader *reader = NULL;
    size_t i;
    struct stat is;
    copy("quantized");
    ck_assert_msg(ckpt_reader_open(at("c"), NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt_reader_find(reader, "codes", 5, &i, &err), CKPT_OK);
    ck_assert_str_eq(ckpt_dtype_name(ckpt_reader_tensor(reader, i)->dtype), "quint8");
    ck_assert_int_eq(ckpt_reader_read(reader, i, content, 3, &err), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "scale and zero point"), "%s", err.message);
    ckpt_reader_close(reader);
    ck_assert_uint_eq(salvage(), 1);
    ck_assert(!is_in_output("codes") && is_in_output("plain"));
    ck_assert_int_eq(ckpt_verify(at("c"), NULL, NULL, report, &err), CKPT_E_UNSUPPORTED);
    says("member-unread", "codes", "scale and zero point");
    ck_assert_uint_eq(ckpt_report_count_code(report, "member-unread"), 1);
    ck_assert_int_eq(stat(at("c/__0_0.distcp"), &is), 0);
    ck_assert_int_eq(truncate(at("c/__0_0.distcp"), is.st_size - 1), 0);
    is_damaged();
    says("truncated", NULL, "ends at byte");
    says("member-unread", "codes", "scale and zero point");
}
END_TEST

/* Each value that is lost is named, as tensors are. What is said of the file names it once, and advises no salvage in a salvage. */
START_TEST(values_that_are_lost)
{
    static const char *const names[] = {"optim.param_groups.0.lr", "optim.param_groups.0.params", "notes.name",
                                        "notes.list", "notes.rng"};
    copy("cut");
    ck_assert_int_eq(remove(at("c/__1_0.distcp")), 0);
    salvage();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ckpt_finding *f = ckpt_report_find(report, "not-recovered", names[i]);
        ck_assert_msg(f && strcmp(f->file, "__1_0.distcp") == 0, "%s", names[i]);
    }
    const ckpt_finding *f = ckpt_report_find(report, "not-recovered", "");
    ck_assert_msg(f && strcmp(f->file, "__1_0.distcp") == 0 && !strstr(f->message, "__1_0") && *f->fix &&
                      !strstr(f->fix, "--salvage"),
                  "%s: %s", f ? f->message : "", f ? f->fix : "");
}
END_TEST

/* A shard cut within its header, cut within its payload, or with a header of garbage: the other one is read. Where the last rank's is
 * lost, how large the tensors are is not known. */
START_TEST(a_damaged_shard)
{
    static const char *const files[] = {"shard-00001-model-00001-of-00001.safetensors",
                                        "shard-00002-model-00001-of-00001.safetensors"};
    static const char *const words[] = {"have 6 of its 15 elements", "no other file says how large it is"};
    struct stat is;
    char path[100];
    snprintf(path, sizeof path, "c/%s", files[_i]);
    for (int damage = 0; damage < 3; damage++) {
        copy("shards");
        ck_assert_int_eq(stat(at("%s", path), &is), 0);
        if (damage == 2)
            write_text(at("%s", path), "garbage");
        else
            ck_assert_int_eq(truncate(at("%s", path), damage ? is.st_size - 1 : 100), 0);
        is_damaged();
        if (damage != 1)
            says("pieces-missing", "rows.weight", words[_i]);
        ck_assert_uint_eq(ckpt_report_count_code(report, damage == 2 ? "member-damaged" : "truncated"),
                          damage == 1 ? 2 : 1);
        ck_assert_int_eq(outcome(true, CKPT_LOADER_CKPT), CKPT_OUTCOME_FAILS_AT_LOAD);
        ck_assert_uint_gt(salvage(), damage == 1 ? 0 : 1);
        ck_assert(damage == 1 || (!is_in_output("rows.weight") && !is_in_output("columns.weight")));
    }
}
END_TEST

/* A rank has one of its two files. Where each tensor is cut over all ranks it had something to write into the other one; where what is in
 * that one may not have been cut, nobody knows. */
START_TEST(a_rank_without_one_of_its_files)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_verify(data("models"), NULL, &result, report, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_report_count_code(report, "shard-missing"), 0);
    copy("models");
    ck_assert_int_eq(remove(at("c/shard-00002-model-00002-of-00002.safetensors")), 0);
    ck_assert_int_eq(ckpt_reader_open(at("c"), NULL, &reader, &err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "rank 1 has no such file"), "%s", err.message);
    is_damaged();
    says("shard-missing", NULL, "rank 1 has no such file");
    says("pieces-missing", "columns.weight", "no other file says how large it is");
    ck_assert_uint_eq(salvage(), 2);
    ck_assert(is_in_output("rows.weight") && is_in_output("few") && !is_in_output("columns.weight"));
    ck_assert_msg(ckpt_verify(data("buffer"), NULL, &result, report, &err) == CKPT_OK, "%s", err.message);
    const ckpt_finding *f = ckpt_report_find(report, "shard-missing", NULL);
    ck_assert(f && f->severity == CKPT_SEVERITY_WARNING && strstr(f->message, "had nothing to write into it"));
}
END_TEST

/* Without its one list nothing of it can be salvaged, and nobody is told that it can. */
START_TEST(a_damaged_list)
{
    static const off_t sizes[] = {0, 400};
    copy("cut");
    ck_assert_int_eq(truncate(at("c/.metadata"), sizes[_i]), 0);
    is_damaged();
    const ckpt_finding *f = ckpt_report_find(report, "damaged", NULL);
    ck_assert_msg(f && strstr(f->message, "nothing can be salvaged") && !strstr(f->fix, "salvage"), "%s",
                  f ? f->fix : "it is not said");
}
END_TEST

/* One shard of a tensor without elements: it is listed. */
START_TEST(an_empty_tensor)
{
    static const char header[] =
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"none\\\": {\\\"saved_offsets\\\": [0]}}\"},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    char file[sizeof header + 8] = {(char)(sizeof header - 1)};
    ckpt_reader *reader = NULL;
    memcpy(file + 8, header, sizeof header - 1);
    make_directory("c");
    write_to(at("c/shard-00001-model-00001-of-00001.safetensors"), file, sizeof header - 1 + 8);
    ck_assert_msg(ckpt_reader_open(at("c"), NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 1);
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, 0);
    ck_assert(t->ndim == 1 && t->shape[0] == 0 && t->dtype == CKPT_F32 && strcmp(t->name.data, "none") == 0);
    ckpt_reader_close(reader);
}
END_TEST

/* A value of more than 1 GiB is too large to be read. The rest is read. */
START_TEST(a_value_that_is_too_large)
{
    char command[1000];
    ckpt_reader *reader = NULL;
    copy("cut");
    snprintf(command, sizeof command, "cp '%s' '%s'", data("large/.metadata"), at("c/.metadata"));
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(truncate(at("c/__1_0.distcp"), (off_t)1100 << 20), 0); /* a hole */
    ck_assert_int_eq(ckpt_reader_open(at("c"), NULL, &reader, &err), CKPT_E_LIMIT);
    ck_assert_msg(strcmp(err.object, "notes.name") == 0 && strstr(err.message, "1073741825") &&
                      strstr(err.message, "1073741824"),
                  "%s: %s", err.object, err.message);
    is_damaged();
    const ckpt_finding *f = ckpt_report_find(report, "damaged", NULL);
    ck_assert(f && strstr(f->message, "'notes.name'") && strstr(f->message, "1073741824"));
    ck_assert_uint_eq(salvage(), 1);
    ck_assert(is_in_output("model.rows.weight"));
}
END_TEST

START_TEST(what_is_whole_is_not_blamed)
{
    static const char *const names[] = {"cut", "ranks", "shards", "trained", "torch-2.0"};
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ck_assert_msg(ckpt_verify(data(names[_i]), NULL, &result, report, &err) == CKPT_OK, "%s: %s", names[_i],
                  err.message);
    bool list = strcmp(names[_i], "shards") != 0; /* torch gives it no checksum */
    ck_assert_uint_eq(ckpt_report_count_code(report, "list-unprotected"), list);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dcp, lost");
    TCase *t = tcase_create("dcp, lost");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_last_rank_is_not_there);
    tcase_add_test(t, pieces_that_meet);
    tcase_add_test(t, a_piece_that_is_not_all);
    tcase_add_test(t, a_tensor_without_a_piece);
    tcase_add_test(t, a_damaged_list_of_a_rank);
    tcase_add_test(t, a_quantized_tensor);
    tcase_add_test(t, values_that_are_lost);
    tcase_add_loop_test(t, a_damaged_shard, 0, 2);
    tcase_add_test(t, a_rank_without_one_of_its_files);
    tcase_add_loop_test(t, a_damaged_list, 0, 2);
    tcase_add_test(t, an_empty_tensor);
    tcase_add_test(t, a_value_that_is_too_large);
    tcase_add_loop_test(t, what_is_whole_is_not_blamed, 0, 5);
    suite_add_tcase(s, t);
    return run_suite(s);
}
