/* test_verify_folder.c - a directory of several files of which some are damaged or missing: each is named, and the others
 * are checked. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

static const flat weights[] = {{"w", 2, {4, 3}}, {"b", 1, {4}}};

static ckpt_report *report;
static ckpt_verify_result result;
static ckpt_error err;

static ckpt_status verify(const char *const *paths, size_t n)
{
    ckpt_status status =
        ckpt_verify(paths[0], &(ckpt_verify_options){.also = paths + 1, .also_count = n - 1}, &result, report, &err);
    ck_assert(status != CKPT_OK || result.ok);
    return status;
}

static ckpt_status verify_here(void)
{
    const char *path = folder;
    return verify(&path, 1);
}

/* The finding about this file. */
static const char *code_of(const char *file)
{
    const char *code = "";
    size_t n = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (f->severity == CKPT_SEVERITY_ERROR && strcmp(f->file, file) == 0) {
            code = f->code;
            n++;
        }
    }
    ck_assert_uint_le(n, 1);
    return code;
}

static size_t errors(void)
{
    size_t n = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        n += ckpt_report_get(report, i)->severity == CKPT_SEVERITY_ERROR;
    return n;
}

static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    ck_assert_msg(f && fstat(fileno(f), &st) == 0, "cannot read %s", path);
    char *data = malloc((size_t)st.st_size + 1);
    *size = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    return data;
}

static void cut(const char *path, size_t keep)
{
    size_t size;
    char *data = read_file(path, &size);
    ck_assert_uint_lt(keep, size);
    write_to(path, data, keep);
    free(data);
}

static void make_accelerate(void)
{
    write_safetensors(at("model.safetensors"), weights, 2, 0);
    write_adam(at("optimizer.bin"), weights, 2, 2, 0.1);
    write_torch_int(at("scheduler.bin"), "last_epoch", 3);
    write_torch_int(at("random_states_0.pkl"), "step", 3);
    report = ckpt_report_new();
}

START_TEST(each_damaged_member_is_named)
{
    make_accelerate();
    ck_assert_int_eq(verify_here(), CKPT_OK);
    ck_assert_str_eq(result.format, "accelerate");
    uint64_t all = result.tensors, read = result.bytes;
    ck_assert_uint_eq(all, 8);
    cut(at("model.safetensors"), 20);
    cut(at("scheduler.bin"), 30);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert(!result.ok);
    ck_assert_uint_eq(errors(), 2);
    ck_assert_str_eq(code_of("model.safetensors"), "truncated");
    ck_assert_str_ne(code_of("scheduler.bin"), "");
    ck_assert_str_eq(result.format, "accelerate");
    ck_assert_uint_eq(result.tensors, all - 2);
    ck_assert_uint_eq(result.bytes, read - 64);
    ckpt_report_free(report);
}
END_TEST

/* Where the structure itself is altered nothing says which tensors are right: the fix does not promise it. */
START_TEST(a_structure_that_is_altered)
{
    size_t size;
    make_accelerate();
    char *data = read_file(at("optimizer.bin"), &size);
    char *key = memmem(data, size, "exp_avg", 7);
    ck_assert_ptr_nonnull(key);
    *key ^= 1;
    write_to(at("optimizer.bin"), data, size);
    free(data);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    const ckpt_finding *f = NULL;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (strcmp(ckpt_report_get(report, i)->file, "optimizer.bin") == 0)
            f = ckpt_report_get(report, i);
    ck_assert(f && strcmp(f->code, "crc-mismatch") == 0);
    ck_assert_msg(strstr(f->fix, "--salvage reads it as it stands") != NULL, "%s", f->fix);
    ckpt_report_free(report);
}
END_TEST

/* A payload of one file and the structure of another: both, in one pass. */
START_TEST(the_others_are_checked)
{
    size_t size;
    make_accelerate();
    cut(at("model.safetensors"), 20);
    char *data = read_file(at("optimizer.bin"), &size);
    const float moment = 2003;
    size_t k = 0;
    while (k + 4 < size && memcmp(data + k, &moment, 4) != 0)
        k++;
    ck_assert_uint_lt(k + 4, size);
    data[k] ^= 1;
    write_to(at("optimizer.bin"), data, size);
    free(data);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 2);
    ck_assert_str_eq(code_of("model.safetensors"), "truncated");
    ck_assert_str_eq(code_of("optimizer.bin"), "crc-mismatch");
    ckpt_report_free(report);
}
END_TEST

/* What is no checkpoint at all where its name promises one. */
START_TEST(a_member_of_zeros)
{
    static const char zeros[512];
    make_accelerate();
    write_to(at("optimizer.bin"), zeros, sizeof zeros);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 1);
    ck_assert_str_eq(code_of("optimizer.bin"), "member-damaged");
    ck_assert_uint_eq(result.tensors, 2);
    ckpt_report_free(report);
}
END_TEST

START_TEST(nothing_is_left)
{
    make_accelerate();
    cut(at("model.safetensors"), 20);
    cut(at("optimizer.bin"), 100);
    cut(at("scheduler.bin"), 100);
    cut(at("random_states_0.pkl"), 100);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 4);
    ck_assert_uint_eq(result.tensors, 0);
    ck_assert_uint_eq(result.bytes, 0);
    ckpt_report_free(report);
}
END_TEST

/* A zip of which the first bytes alone are there may be anything: no answer, unless something else is wrong. */
START_TEST(what_is_not_read)
{
    make_accelerate();
    cut(at("scheduler.bin"), 20);
    ck_assert_int_eq(verify_here(), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(code_of("scheduler.bin"), "member-unread");
    ck_assert_uint_eq(result.tensors, 8);
    cut(at("model.safetensors"), 20);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 2);
    ckpt_report_free(report);
}
END_TEST

static void make_shards(void)
{
    static const flat one[] = {{"a", 1, {4}}}, two[] = {{"b", 1, {5}}}, three[] = {{"c", 1, {6}}};
    write_safetensors(at("model-00001-of-00003.safetensors"), one, 1, 1);
    write_safetensors(at("model-00002-of-00003.safetensors"), two, 1, 2);
    write_safetensors(at("model-00003-of-00003.safetensors"), three, 1, 3);
    write_text(at("model.safetensors.index.json"),
               "{\"metadata\": {\"total_size\": 60}, \"weight_map\": {\"a\": \"model-00001-of-00003.safetensors\", "
               "\"b\": \"model-00002-of-00003.safetensors\", \"c\": \"model-00003-of-00003.safetensors\"}}");
    report = ckpt_report_new();
}

START_TEST(shards)
{
    make_shards();
    ck_assert_int_eq(verify_here(), CKPT_OK);
    ck_assert_uint_eq(result.tensors, 3);
    cut(at("model-00003-of-00003.safetensors"), 100);
    ck_assert_int_eq(unlink(at("model-00001-of-00003.safetensors")), 0);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 2);
    ck_assert_str_eq(code_of("model-00001-of-00003.safetensors"), "shard-missing");
    ck_assert_str_eq(code_of("model-00003-of-00003.safetensors"), "truncated");
    ck_assert_uint_eq(result.tensors, 1);
    ck_assert_uint_eq(result.bytes, 20);
    ckpt_report_free(report);
}
END_TEST

START_TEST(shards_of_two_saves)
{
    static const flat other[] = {{"z", 1, {5}}};
    make_shards();
    write_safetensors(at("model-00002-of-00003.safetensors"), other, 1, 2);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 1);
    ck_assert_str_eq(code_of("model-00002-of-00003.safetensors"), "member-damaged");
    ck_assert_uint_eq(result.bytes, 60);
    write_safetensors(at("model-00002-of-00003.safetensors"), other, 0, 2);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 1);
    ck_assert_str_eq(code_of("model-00002-of-00003.safetensors"), "damaged");
    ckpt_report_free(report);
}
END_TEST

START_TEST(a_broken_index_of_shards)
{
    make_shards();
    cut(at("model.safetensors.index.json"), 50);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_str_ne(code_of("model.safetensors.index.json"), "");
    ck_assert_uint_eq(result.tensors, 3);
    ck_assert_uint_eq(result.bytes, 60);
    ckpt_report_free(report);
}
END_TEST

/* A shard is missing, and no index says so but the numbers. */
START_TEST(shards_without_an_index)
{
    make_shards();
    ck_assert_int_eq(unlink(at("model.safetensors.index.json")), 0);
    ck_assert_int_eq(unlink(at("model-00002-of-00003.safetensors")), 0);
    ck_assert_int_eq(verify_here(), CKPT_ANSWER_NO);
    ck_assert_uint_eq(ckpt_report_count_code(report, "shard-missing"), 1);
    ck_assert_uint_eq(result.tensors, 2);
    ckpt_report_free(report);
}
END_TEST

/* --one: the ranks' files lie on two disks. */
START_TEST(several_directories)
{
    char first[400], second[400];
    const char *const paths[] = {first, second};
    make_directory("one");
    make_directory("two");
    strcpy(first, at("one"));
    strcpy(second, at("two"));
    write_safetensors(at("one/model.safetensors"), weights, 2, 0);
    write_torch_int(at("one/random_states_0.pkl"), "step", 3);
    write_adam(at("two/optimizer.bin"), weights, 2, 2, 0.1);
    write_torch_int(at("two/random_states_1.pkl"), "step", 3);
    report = ckpt_report_new();
    ck_assert_int_eq(verify(paths, 2), CKPT_OK);
    cut(at("two/random_states_1.pkl"), 40);
    cut(at("one/model.safetensors"), 40);
    ck_assert_int_eq(verify(paths, 2), CKPT_ANSWER_NO);
    ck_assert_uint_eq(errors(), 2);
    ck_assert_str_ne(code_of("random_states_1.pkl"), "");
    ck_assert_str_eq(code_of("model.safetensors"), "truncated");
    ck_assert_uint_eq(result.tensors, 6);
    ckpt_report_free(report);
}
END_TEST

/* Opening is as strict as before: a reader that goes on would give half a checkpoint. */
START_TEST(opening_still_fails)
{
    ckpt_reader *reader;
    make_accelerate();
    cut(at("scheduler.bin"), 30);
    ck_assert_int_eq(ckpt_reader_open(folder, NULL, &reader, &err), CKPT_E_DAMAGED);
    ckpt_report_free(report);
}
END_TEST

static void save_step(void)
{
    static float w[64], m[64];
    int64_t shape[] = {8, 8};
    ckpt_state *state = ckpt_state_new();
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    ckpt_save_options options = CKPT_SAVE_OPTIONS_INIT;
    d.name = "w";
    d.dtype = CKPT_F32;
    d.ndim = 2;
    d.shape = shape;
    d.role = CKPT_ROLE_PARAM;
    d.data = w;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    d.name = NULL;
    d.param = "w";
    d.role = CKPT_ROLE_EXP_AVG;
    d.data = m;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    options.directory = true;
    ck_assert_int_eq(ckpt_save(state, at("step"), &options, &err), CKPT_OK);
    ckpt_state_free(state);
    report = ckpt_report_new();
}

/* The header of one file of a step is damaged, and another's payload: each is named once. */
START_TEST(a_step)
{
    size_t size;
    const char *path;
    char step[400];
    save_step();
    strcpy(step, at("step"));
    path = step;
    ck_assert_int_eq(verify(&path, 1), CKPT_OK);
    ck_assert_uint_eq(result.tensors, 2);
    char *data = read_file(at("step/model.safetensors"), &size);
    data[200] ^= 4;
    write_to(at("step/model.safetensors"), data, size);
    free(data);
    ck_assert_int_eq(verify(&path, 1), CKPT_ANSWER_NO);
    ck_assert_str_eq(code_of("model.safetensors"), "crc-mismatch");
    ck_assert_str_eq(result.format, "ckpt");
    ck_assert_uint_eq(result.tensors, 1);
    ck_assert_uint_eq(result.bytes, 256);
    ck_assert_int_eq(unlink(at("step/model.safetensors")), 0);
    ck_assert_int_eq(verify(&path, 1), CKPT_ANSWER_NO);
    ck_assert_str_eq(code_of("model.safetensors"), "missing-file");
    ck_assert_uint_eq(result.tensors, 1);
    ckpt_report_free(report);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("verify_folder");
    TCase *t = tcase_create("verify_folder");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_damaged_member_is_named);
    tcase_add_test(t, a_structure_that_is_altered);
    tcase_add_test(t, the_others_are_checked);
    tcase_add_test(t, a_member_of_zeros);
    tcase_add_test(t, nothing_is_left);
    tcase_add_test(t, what_is_not_read);
    tcase_add_test(t, shards);
    tcase_add_test(t, shards_of_two_saves);
    tcase_add_test(t, a_broken_index_of_shards);
    tcase_add_test(t, shards_without_an_index);
    tcase_add_test(t, several_directories);
    tcase_add_test(t, opening_still_fails);
    tcase_add_test(t, a_step);
    suite_add_tcase(s, t);
    return run_suite(s);
}
