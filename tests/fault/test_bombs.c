/* Files that ask for far more memory than they have bytes: whatever is done with one takes no more than SECURITY.md says. Each is
 * made, and looked at, in a process of its own, whose highest use of memory is measured; tests/cli/bombs_test.sh does the same with
 * the commands. CKPT_BOMBS_LONG=1 reads a million tensors in place of a hundred thousand, CKPT_TEST_FEW=1 twenty thousand. */
#include <ckpt/ckpt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bombs.h"
#include "format/native/native.h"
#include "../unit/scratch.h"
#include "../unit/runner.h"

/* Where nothing else takes memory: not under valgrind or a sanitizer. */
static bool measures(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#endif
    const char *loaded = getenv("LD_PRELOAD");
    return !loaded || !strstr(loaded, "vgpreload");
}

static uint64_t highest(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (uint64_t)used.ru_maxrss * 1024;
}

/* ---- in the child */

static uint64_t bound;

static void hold(const char *what)
{
    uint64_t n = measures() ? highest() : 0;
    if (n <= bound)
        return;
    fprintf(stderr, "%s took %llu KiB; %llu KiB are the bound\n", what, (unsigned long long)(n >> 10),
            (unsigned long long)(bound >> 10));
    _exit(99);
}

static int count_visit(void *ctx, const ckpt_visit *visit)
{
    *(uint64_t *)ctx += visit->name.size + visit->path.count;
    return 0;
}

static void look(const ckpt_reader *reader, ckpt_report *report)
{
    ckpt_error err = CKPT_ERROR_INIT;
    uint64_t n = 0;
    ckpt_value_walk(ckpt_reader_root(reader), 0, count_visit, &n, &err);
    hold("the walk");
    ckpt_summary summary = CKPT_SUMMARY_INIT;
    memset(&summary, 0, sizeof summary);
    ckpt_summarize(reader, &summary, &err);
    ckpt_summary_clear(&summary);
    hold("the summary");
    ckpt_doctor_options options;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    memset(&options, 0, sizeof options);
    memset(&result, 0, sizeof result);
    ckpt_doctor(reader, &options, &result, report, &err);
    ckpt_doctor_result_clear(&result);
    hold("doctor");
}

static void migrate(const char *path, ckpt_report *report)
{
    static const char *const formats[] = {"torch", "safetensors", "ckpt"};
    for (size_t i = 0; i <= sizeof formats / sizeof *formats; i++) {
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        ckpt_error err = CKPT_ERROR_INIT;
        o.plain = i == sizeof formats / sizeof *formats;
        o.to = formats[o.plain ? 0 : i];
        o.lossy = o.force = o.no_sync = true;
        ckpt_migrate(path, "migrated", &o, report, &err);
        hold(o.to);
    }
}

/* Everything that the library does with a checkpoint. The status of opening it is the exit status, negated. */
static int all_of(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT, why = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    ckpt_report *report = ckpt_report_new();
    ckpt_status opened = ckpt_reader_open(path, NULL, &reader, &err);
    hold("opening it");
    if (opened == CKPT_OK)
        look(reader, report);
    ckpt_reader_close(reader);
    ckpt_reader_options salvage = CKPT_READER_OPTIONS_INIT;
    salvage.salvage = true;
    reader = NULL;
    ckpt_reader_open(path, &salvage, &reader, &why);
    hold("opening it to salvage");
    ckpt_reader_close(reader);
    ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
    memset(&verified, 0, sizeof verified);
    ckpt_verify(path, NULL, &verified, report, &why);
    hold("verify");
    ckpt_scan *scan = NULL;
    ckpt_scan_open(path, NULL, &scan, report, &why);
    ckpt_scan_close(scan);
    hold("scan");
    migrate(path, report);
    ckpt_report_free(report);
    fprintf(stderr, "%s", err.message);
    return -(int)opened;
}

/* ---- in the parent */

static char said[2000];

static int in_child(int (*function)(const char *), const char *path)
{
    int ends[2], status;
    size_t used = 0;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct rlimit most = {(rlim_t)8 << 30, (rlim_t)8 << 30};
        if (measures())
            setrlimit(RLIMIT_AS, &most);
        dup2(ends[1], STDERR_FILENO);
        alarm(120);
        _exit(function(path));
    }
    close(ends[1]);
    for (ssize_t n; used < sizeof said - 1 && (n = read(ends[0], said + used, sizeof said - 1 - used)) > 0;)
        used += (size_t)n;
    said[used] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static uint64_t size_of(const char *path)
{
    struct stat st;
    uint64_t sum = 0;
    ck_assert_int_eq(stat(path, &st), 0);
    if (!S_ISDIR(st.st_mode))
        return (uint64_t)st.st_size;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.' && stat(name, &st) == 0)
            sum += (uint64_t)st.st_size;
    }
    closedir(d);
    return sum;
}

static int only_open(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    ckpt_status opened = ckpt_reader_open(path, NULL, &reader, &err);
    hold("opening it");
    ckpt_reader_close(reader);
    fprintf(stderr, "%s", err.message);
    return -(int)opened;
}

/* status: that of opening it; 1: any. */
static void expect_of(int (*function)(const char *), const char *name, const char *path, int status)
{
    bound = bomb_bound(size_of(path));
    int answer = in_child(function, path);
    ck_assert_msg(answer >= 0 && answer != 99, "%s, %llu bytes: %d: %s", name, (unsigned long long)size_of(path),
                  answer, said);
    ck_assert_msg(status > 0 || answer == -status, "%s: opened with %d, expected %d: %s", name, -answer, status, said);
}

static void expect_bounded(const char *name, const char *path, int status)
{
    expect_of(all_of, name, path, status);
}

static const bomb_pickle *now;
static size_t now_size;
static bomb_box now_box;

static int make_now(const char *path)
{
    bomb_make(path, now, now_size, now_box);
    return 0;
}

/* sure: what opening it gives is known, and nothing else is tried; else everything is. */
static void try_pickles(bomb_box box, size_t size, bool sure)
{
    const char *path = "bomb";
    char name[100];
    for (size_t i = 0; i < BOMB_PICKLES; i++) {
        now = &bomb_pickles[i];
        now_size = size;
        now_box = box;
        ck_assert_int_eq(in_child(make_now, path), 0);
        snprintf(name, sizeof name, "%s of %zu bytes, %d", now->name, size, (int)box);
        expect_of(sure ? only_open : all_of, name, path,
                  !sure                           ? 1
                  : now->sound && box != DEFLATED ? CKPT_OK
                                                  : CKPT_E_LIMIT);
        unlink(path);
    }
}

START_TEST(pickles_are_refused_where_they_are_no_checkpoints)
{
    try_pickles(STORED, 3 << 20, true);
    try_pickles(DEFLATED, 14 << 20, true);
}
END_TEST

START_TEST(stored_pickles)
{
    try_pickles(STORED, 300 << 10, false);
}
END_TEST

START_TEST(deflated_pickles)
{
    try_pickles(DEFLATED, 200 << 10, false);
}
END_TEST

START_TEST(pickles_by_themselves)
{
    try_pickles(BARE, 100 << 10, false);
}
END_TEST

START_TEST(pickles_of_the_old_format)
{
    try_pickles(LEGACY, 100 << 10, false);
}
END_TEST

START_TEST(a_deflated_pickle_of_gigabytes_is_refused_before_it_is_read)
{
    const char *path = "bomb";
    now = &bomb_pickles[0];
    now_size = 40 << 20;
    now_box = DEFLATED;
    ck_assert_int_eq(in_child(make_now, path), 0);
    ck_assert_uint_lt(size_of(path), 50000);
    expect_bounded("lists", path, CKPT_E_LIMIT);
    ck_assert_msg(strstr(said, "41943046 bytes") && strstr(said, "the limit for it is"), "%s", said);
}
END_TEST

static int make_shared(const char *path)
{
    bomb_shared(path, "N", 1, 20, 2);
    bomb_shared("b", "}", 1, 9, 10);
    bomb_shared("c", BOMB_TENSORS "h\0h\1R", sizeof BOMB_TENSORS "h\0h\1R" - 1, 20, 2);
    bomb_shared("d", "X\3\0\0\0abc", 8, 5, 10); /* as far as sharing may go */
    bomb_shared("e", BOMB_TENSORS "h\0h\1R", sizeof BOMB_TENSORS "h\0h\1R" - 1, 4, 10);
    bomb_shared("f", "N", 1, 60, 10);
    return 0;
}

START_TEST(what_is_shared_is_counted_at_each_place)
{
    const char *path = "bomb";
    ck_assert_int_eq(in_child(make_shared, path), 0);
    expect_bounded("2^20 Nones", path, CKPT_E_LIMIT);
    expect_bounded("10^9 dicts", "b", CKPT_E_LIMIT);
    expect_bounded("2^20 tensors", "c", CKPT_E_LIMIT);
    expect_bounded("10^5 texts", "d", CKPT_OK);
    expect_bounded("10^4 tensors", "e", CKPT_OK);
    expect_bounded("10^60 Nones", "f", CKPT_E_LIMIT);
}
END_TEST

static int make_names(const char *path)
{
    bomb_keys(path, "N", 1, 60000, 9000);
    bomb_keys("b", "N", 1, 10000, 100);
    bomb_keys("c", "N", 1, 200, 900);
    bomb_keys("d", "X\1\0\0\0a", 6, 1000, 100);
    bomb_deep("e", 5000);
    bomb_deep("f", 900);
    return 0;
}

START_TEST(names_are_bounded_together)
{
    const char *path = "bomb";
    ck_assert_int_eq(in_child(make_names, path), 0);
    expect_bounded("keys of 60000", path, CKPT_E_LIMIT);
    expect_bounded("keys of 10000", "b", CKPT_E_LIMIT);
    expect_bounded("keys of 200", "c", CKPT_E_LIMIT);
    expect_bounded("keys of 1000", "d", CKPT_OK);
    expect_bounded("5000 levels", "e", CKPT_E_LIMIT);
    expect_bounded("900 levels", "f", CKPT_OK);
}
END_TEST

enum { JSON_SIZE = 600 << 10 };

static int make_headers(const char *path)
{
    bomb_safetensors(path, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
                     ",\"t%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}", "}", JSON_SIZE);
    bomb_safetensors("b", "{\"__metadata__\":{\"a\":\"\"", ",\"%zu\":\"\"",
                     "},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", JSON_SIZE);
    bomb_safetensors("c", "{\"a\":", "[", "", JSON_SIZE);
    bomb_safetensors("d", "{\"a\":{\"dtype\":\"U8\",\"x\":[[]", ",[]", "],\"shape\":[1],\"data_offsets\":[0,1]}}",
                     JSON_SIZE);
    bomb_safetensors("e", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1", ",1", "],\"data_offsets\":[0,1]}}", JSON_SIZE);
    return 0;
}

START_TEST(headers_of_safetensors)
{
    const char *path = "bomb";
    ck_assert_int_eq(in_child(make_headers, path), 0);
    expect_bounded("tensors", path, CKPT_OK);
    expect_bounded("metadata", "b", CKPT_OK);
    expect_bounded("nesting", "c", 1);
    expect_bounded("lists", "d", 1);
    expect_bounded("a shape", "e", 1);
}
END_TEST

/* A value tree as a file of the library's own: lists of lists, each of the one below so many times. */
static int make_native(const char *path)
{
    for (int levels = 4; levels <= 24; levels += 20) {
        ckpt__index *x = ckpt__index_new(0);
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt__recipe *recipe = NULL;
        ckpt__buf file = {0};
        const ckpt_value *v = ckpt__value_str(x->arena, "leaf", 4);
        for (int i = 0; i < levels; i++) {
            const ckpt_value *items[] = {v, v, v, v, v, v, v, v};
            v = ckpt__value_list(x->arena, CKPT_V_LIST, items, levels > 4 ? 2 : 8);
        }
        const ckpt_entry entry = {ckpt__value_str(x->arena, "x", 1), v};
        ckpt__write_request q = {
            .index = x, .root = ckpt__value_dict(x->arena, &entry, 1), .step = -1, .lost = x->findings};
        if (ckpt__native_write(&q, &recipe, &err) < 0 || (recipe->finish && recipe->finish(recipe, NULL, &err) < 0)) {
            fprintf(stderr, "%s", err.message);
            return 1;
        }
        for (size_t k = 0; k < recipe->count; k++)
            ckpt__buf_add(&file, recipe->segments[k].bytes, (size_t)recipe->segments[k].size);
        bomb_write(levels > 4 ? path : "b", &file);
    }
    return 0;
}

START_TEST(files_of_our_own)
{
    const char *path = "bomb";
    ck_assert_msg(in_child(make_native, path) == 0, "%s", said);
    expect_bounded("2^24 texts", path, CKPT_E_LIMIT);
    expect_bounded("8^4 texts", "b", CKPT_OK);
}
END_TEST

static int make_folders(const char *path)
{
    const char *model = "model.safetensors", *shard = "model-00001-of-00001.safetensors";
    const char *map = "{\"metadata\":{},\"weight_map\":{\"a\":\"model-00001-of-00001.safetensors\"";
    bomb_folder(path, "config.json", model, "{\"model_type\":\"x\",\"a\":[[]", ",[]", "]}", JSON_SIZE);
    bomb_folder("b", "config.json", model, "{\"model_type\":\"x\",\"a\":[0", ",0", "]}", JSON_SIZE);
    bomb_folder("c", "trainer_state.json", model, "{\"global_step\":1,\"log_history\":[{}",
                ",{\"step\":%zu,\"loss\":1.5}", "]}", JSON_SIZE);
    bomb_folder("d", "trainer_state.json", model, "{\"global_step\":1,\"log_history\":[[1]", ",[1]", "]}", JSON_SIZE);
    bomb_folder("e", "model.safetensors.index.json", shard, map, ",\"%zu\":\"model-00001-of-00001.safetensors\"", "}}",
                JSON_SIZE);
    bomb_folder("f", "model.safetensors.index.json", shard, map, ",\"%zu\":\"%zx\"", "}}", JSON_SIZE);
    bomb_folder("g", "model.safetensors.index.json", shard,
                "{\"weight_map\":{\"a\":\"model-00001-of-00001.safetensors\"},\"metadata\":{\"x\":[1", ",1", "]}}",
                JSON_SIZE);
    return 0;
}

START_TEST(json_beside_a_model)
{
    static const char *const names[] = {"bomb", "b", "c", "d", "e", "f", "g"};
    const char *path = "bomb";
    ck_assert_int_eq(in_child(make_folders, path), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_bounded(names[i], names[i], i == 2 ? CKPT_OK : 1);
}
END_TEST

/* ---- what must stay readable */

static size_t memo;

static void put_memo(ckpt__buf *b)
{
    ckpt__buf_char(b, memo < 256 ? 'q' : 'r');
    bomb_number(b, memo, memo < 256 ? 1 : 4);
    memo++;
}

/* As torch.save writes a state_dict, but that the tensors are one storage's. */
static int make_many(const char *path)
{
    size_t n = getenv("CKPT_BOMBS_LONG") ? 1000000 : getenv("CKPT_TEST_FEW") ? 20000 : 100000;
    static const char head[] = "\x80\2"
                               "ctorch._utils\n_rebuild_tensor_v2\nq\0000X\7\0\0\0storageq\001"
                               "0ctorch\nFloatStorage\nq\0020"
                               "X\1\0\0\0000q\0030X\3\0\0\0cpuq\0040ccollections\nOrderedDict\nq\5)Rq\6(";
    ckpt__buf b = {0};
    char name[80];
    ckpt__buf_add(&b, head, sizeof head - 1);
    memo = 7;
    for (size_t i = 0; i < n; i++) {
        int size = snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.w%zu.weight", i / 10, i % 10);
        ckpt__buf_char(&b, 'X');
        bomb_number(&b, (uint64_t)size, 4);
        ckpt__buf_str(&b, name);
        put_memo(&b);
        ckpt__buf_add(&b, "h\0((h\1h\2h\3h\4K\4t", 15);
        put_memo(&b);
        ckpt__buf_add(&b, "QK\0K\2K\2\x86", 8);
        put_memo(&b);
        ckpt__buf_add(&b, "K\2K\1\x86", 5);
        put_memo(&b);
        ckpt__buf_add(&b, "\x89h\5)R", 5);
        put_memo(&b);
        ckpt__buf_char(&b, 't');
        put_memo(&b);
        ckpt__buf_char(&b, 'R');
        put_memo(&b);
    }
    ckpt__buf_add(&b, "u.", 2);
    bomb_put_pickle(path, &b, STORED);
    return 0;
}

static int list_many(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    size_t n = getenv("CKPT_BOMBS_LONG") ? 1000000 : getenv("CKPT_TEST_FEW") ? 20000 : 100000;
    if (ckpt_reader_open(path, NULL, &reader, &err) < 0 || ckpt_reader_tensor_count(reader) != n) {
        fprintf(stderr, "%s", err.message);
        return 1;
    }
    look(reader, NULL);
    ckpt_reader_close(reader);
    hold("reading it");
    return 0;
}

START_TEST(very_many_tensors_stay_readable)
{
    const char *path = "bomb";
    ck_assert_int_eq(in_child(make_many, path), 0);
    bound = bomb_bound(size_of(path)) / 3; /* far from it */
    ck_assert_msg(in_child(list_many, path) == 0, "%s", said);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bombs");
    TCase *t = tcase_create("bombs");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, pickles_are_refused_where_they_are_no_checkpoints);
    tcase_add_test(t, stored_pickles);
    tcase_add_test(t, deflated_pickles);
    tcase_add_test(t, pickles_by_themselves);
    tcase_add_test(t, pickles_of_the_old_format);
    tcase_add_test(t, a_deflated_pickle_of_gigabytes_is_refused_before_it_is_read);
    tcase_add_test(t, what_is_shared_is_counted_at_each_place);
    tcase_add_test(t, names_are_bounded_together);
    tcase_add_test(t, headers_of_safetensors);
    tcase_add_test(t, files_of_our_own);
    tcase_add_test(t, json_beside_a_model);
    tcase_add_test(t, very_many_tensors_stay_readable);
    suite_add_tcase(s, t);
    return run_suite(s);
}
