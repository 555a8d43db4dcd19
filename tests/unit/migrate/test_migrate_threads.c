/* test_migrate_threads.c - migrate writes the same with any number of threads, and has as many as it was told. */
#include "../folder_files.h"
#include <ckpt/ckpt.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>

enum { ROWS = 1900, COLUMNS = 1024, TENSORS = 4 }; /* 31 MB: several blocks of the writer */

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

static void write_source(void)
{
    char header[1024];
    static float block[ROWS * COLUMNS];
    int n = snprintf(header, sizeof header, "{");
    for (size_t i = 0; i < TENSORS; i++)
        n += snprintf(header + n, sizeof header - (size_t)n,
                      "%s\"t%zu\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}", i ? "," : "", i,
                      ROWS, COLUMNS, i * sizeof block, (i + 1) * sizeof block);
    n += snprintf(header + n, sizeof header - (size_t)n, "}");
    FILE *f = fopen(at("source"), "wb");
    uint64_t size = (uint64_t)n;
    ck_assert(f && fwrite(&size, 8, 1, f) == 1 && fwrite(header, 1, (size_t)n, f) == (size_t)n);
    for (unsigned i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < ROWS * COLUMNS; k++)
            block[k] = (float)((k * 2654435761u + i) % 100003) / 7;
        ck_assert_uint_eq(fwrite(block, sizeof block, 1, f), 1);
    }
    ck_assert_int_eq(fclose(f), 0);
}

/* A sanitizer may have a thread of its own, from the first that is made: those do not count. */
static int threads_before;

static void *nothing(void *ctx)
{
    return ctx;
}

/* Called from within the migration: how many threads there are now. */
static int count_threads(void *ctx, uint64_t done, uint64_t total)
{
    int *most = ctx, n = -2 - threads_before;
    (void)done;
    (void)total;
    DIR *d = opendir("/proc/self/task");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    *most = n > *most ? n : *most;
    return 0;
}

static int migrate(const char *dst, const char *to, const char *cast, uint32_t threads)
{
    ckpt_error err = CKPT_ERROR_INIT;
    int most = 0;
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = to;
    o.threads = threads;
    o.cast = &cast;
    o.cast_count = cast ? 1 : 0;
    o.no_sync = o.verify = true;
    o.memory = (uint64_t)34 << 20;
    o.progress = (ckpt_progress){count_threads, &most};
    pthread_t thread;
    ck_assert(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    threads_before = 0;
    for (int i = 0; i < 50; i++) { /* one that was joined may be listed for a moment still: the fewest count */
        int now = 0;
        count_threads(&now, 0, 0);
        most = i == 0 || now < most ? now : most;
        usleep(1000);
    }
    threads_before = most - 1;
    most = 0;
    ckpt_status status = ckpt_migrate(at("source"), dst, &o, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    return most;
}

static void same_bytes(const char *a, const char *b)
{
    size_t m, n;
    char *x = read_file(a, &m), *y = read_file(b, &n);
    ck_assert_uint_eq(m, n);
    ck_assert(memcmp(x, y, m) == 0);
    free(x);
    free(y);
}

START_TEST(any_number)
{
    static const struct {
        const char *to, *cast, *file;
    } kinds[] = {{"ckpt", NULL, ""},
                 {"torch", "t1=bfloat16", ""},
                 {"safetensors", "*=float16", ""},
                 {"hf", NULL, "/model.safetensors"}};
    write_source();
    make_directory("a");
    make_directory("b");
    for (size_t k = 0; k < 4; k++) {
        int own = migrate(at("a/x"), kinds[k].to, kinds[k].cast, 1);
        ck_assert_int_eq(own, 1);
        for (uint32_t n = 2; n <= 8; n += 1 + n / 4) {
            int most = migrate(at("b/x"), kinds[k].to, kinds[k].cast, n);
            bool few = kinds[k].cast && kinds[k].cast[0] == '*'; /* half the bytes: too few blocks for a thread */
            ck_assert_msg(few || most == 2, "%s: %d threads of %u", kinds[k].to, most, n);
            same_bytes(at("a/x%s", kinds[k].file), at("b/x%s", kinds[k].file));
            char command[500];
            snprintf(command, sizeof command, "rm -r '%s'", at("b/x"));
            ck_assert_int_eq(system(command), 0);
        }
        migrate(at("b/x"), kinds[k].to, kinds[k].cast, 0);
        same_bytes(at("a/x%s", kinds[k].file), at("b/x%s", kinds[k].file));
        char command[900];
        snprintf(command, sizeof command, "rm -r '%s' '%s'", at("b/x"), at("a/x"));
        ck_assert_int_eq(system(command), 0);
    }
}
END_TEST

/* ---- what is said of it */

/* A list of the findings, and the error. */
static void texts_of(const char *to, const char *cast, uint32_t threads, char *out, size_t size)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    ckpt_report *report = ckpt_report_new();
    o.to = to;
    o.threads = threads;
    o.cast = &cast;
    o.cast_count = cast ? 1 : 0;
    o.no_sync = o.force = true;
    ckpt_status status = ckpt_migrate(at("source"), at("x"), &o, report, &err);
    int n = snprintf(out, size, "%d %s: %s", (int)status, status < 0 ? err.object : "", status < 0 ? err.message : "");
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        n += snprintf(out + n, size - (size_t)n, "\n%s %s %s", f->code, f->tensor ? f->tensor : "", f->message);
        ck_assert_uint_lt((size_t)n, size);
    }
    ckpt_report_free(report);
}

static void change_float(size_t tensor, size_t element, float value)
{
    uint64_t header;
    FILE *f = fopen(at("source"), "r+b");
    ck_assert(f && fread(&header, 8, 1, f) == 1);
    ck_assert_int_eq(fseek(f, (long)(8 + header + 4 * (tensor * ROWS * COLUMNS + element)), SEEK_SET), 0);
    ck_assert(fwrite(&value, 4, 1, f) == 1 && fclose(f) == 0);
}

/* Findings have counts: each element counts once, however many threads convert. */
START_TEST(same_findings)
{
    static char want[4000], have[4000];
    write_source();
    for (size_t i = 0; i < ROWS * COLUMNS; i += 65521) /* on both sides of what a thread makes */
        change_float(i % TENSORS, i, i % 2 ? 1e30f : nanf(""));
    for (size_t i = 65535; i < ROWS * COLUMNS; i += 65536)
        change_float(1, i, -1e30f);
    texts_of("safetensors", "*=float16", 1, want, sizeof want);
    ck_assert_msg(strstr(want, "cast-range") && strstr(want, "cast-nan"), "%s", want);
    for (uint32_t n = 2; n <= 8; n++) {
        texts_of("safetensors", "*=float16", n, have, sizeof have);
        ck_assert_msg(strcmp(want, have) == 0, "%u threads: %s\ninstead of %s", n, have, want);
    }
}
END_TEST

/* A byte is wrong that only one of the threads reads, and there are values that a step may not have: the same error is given. */
START_TEST(same_error)
{
    static const size_t places[] = {0, 65535, 65536, 3 * 65536 + 5, ROWS * COLUMNS - 1};
    static char want[4000], have[4000];
    char command[1200];
    write_source();
    ck_assert_int_eq(migrate(at("native"), "ckpt", NULL, 1), 1);
    snprintf(command, sizeof command, "mv '%s' '%s'", at("native"), at("source"));
    ck_assert_int_eq(system(command), 0);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        size_t size;
        char *data = read_file(at("source"), &size);
        size_t place = size - 4 * ROWS * COLUMNS + 4 * places[k]; /* in the last tensor of the file */
        FILE *f = fopen(at("source"), "r+b");
        ck_assert(f && fseek(f, (long)place, SEEK_SET) == 0 && fputc(data[place] ^ 1, f) != EOF && fclose(f) == 0);
        for (int cast = 0; cast < 2; cast++) {
            texts_of("safetensors", cast ? "*=float16" : NULL, 1, want, sizeof want);
            ck_assert_msg(strstr(want, "CRC"), "%s", want);
            for (uint32_t n = 2; n <= 8; n += 1 + n / 4) {
                texts_of("safetensors", cast ? "*=float16" : NULL, n, have, sizeof have);
                ck_assert_msg(strcmp(want, have) == 0, "%u threads: %s\ninstead of %s", n, have, want);
            }
        }
        f = fopen(at("source"), "r+b");
        ck_assert(f && fseek(f, (long)place, SEEK_SET) == 0 && fputc(data[place], f) != EOF && fclose(f) == 0);
        free(data);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_threads");
    TCase *t = tcase_create("migrate_threads");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, any_number);
    tcase_add_test(t, same_findings);
    tcase_add_test(t, same_error);
    suite_add_tcase(s, t);
    return run_suite(s);
}
