/* test_digests.c - every fixture of the tree, migrated to every format in every way, gives the bytes that are recorded in
 * tests/data/digests/list. A change that is not meant to change an output is held by this; one that is meant to shows here
 * which outputs it changed. DIGESTS=write tests/unit/test_digests records them anew (then read the diff).
 *
 * A line: fixture, target format, way, the status of ckpt_migrate, the SHA-256 of what it reported (codes, tensors and
 * counts, no texts), the SHA-256 of the target (each file's path below it, size and bytes, by path), or - where it has none.
 * The value `writer` (the library's version) is masked: this program is linked with --wrap=ckpt_version. */
#include <ckpt/ckpt.h>
#include "../runner.h"
#include "../scratch.h"
#include "fixtures.h"
#include "codec/sha256.h"

const char *__wrap_ckpt_version(void);
const char *__wrap_ckpt_version(void)
{
    return "0";
}

static void add_file(ckpt__sha256 *s, const char *path)
{
    char block[65536];
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        ckpt__sha256_add(s, block, n);
    ck_assert_int_eq(ferror(f), 0);
    fclose(f);
}

static void digest_target(const char *path, char out[65])
{
    struct stat st;
    ckpt__sha256 s;
    strcpy(out, "-");
    if (lstat(path, &st) != 0)
        return;
    ckpt__sha256_begin(&s);
    if (S_ISDIR(st.st_mode)) {
        names list = everything_below(path);
        for (size_t i = 0; i < list.count; i++) {
            char file[1024];
            size_t n = strlen(list.name[i]);
            if (n == 0 || list.name[i][n - 1] == '/')
                continue;
            snprintf(file, sizeof file, "%s/%s", path, list.name[i]);
            ck_assert_int_eq(lstat(file, &st), 0);
            snprintf(file, sizeof file, "%s %llu\n", list.name[i], (unsigned long long)st.st_size);
            ckpt__sha256_add(&s, file, strlen(file));
            snprintf(file, sizeof file, "%s/%s", path, list.name[i]);
            add_file(&s, file);
        }
        free_names(&list);
    } else {
        add_file(&s, path);
    }
    ckpt__sha256_end(&s, out);
}

static void digest_report(const ckpt_report *report, char out[65])
{
    ckpt__sha256 s;
    ckpt__sha256_begin(&s);
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        char number[64];
        const char *texts[] = {f->code, f->tensor, f->from, f->to};
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
            ckpt__sha256_add(&s, texts[t], strlen(texts[t]) + 1);
        snprintf(number, sizeof number, "%d %llu\n", (int)f->severity, (unsigned long long)f->nbytes);
        ckpt__sha256_add(&s, number, strlen(number));
    }
    ckpt__sha256_end(&s, out);
}

static const char *const formats[] = {"safetensors", "torch", "ckpt", "hf", "same"};
enum { FORMATS = sizeof formats / sizeof *formats };
static const char *const ways[] = {"as-is", "plain", "cast", "salvage", "weights-only", "map"};
enum { WAYS = sizeof ways / sizeof *ways };

static ckpt_migrate_options options_of(const char *format, const char *way)
{
    static const char *const casts[] = {"*weight=bfloat16", "*exp_avg*=float16", "*bias=float64"};
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = format;
    o.lossy = o.no_sync = o.allow_unused = true;
    o.threads = 1;
    o.max_shard_size = 2000;
    if (strcmp(way, "plain") == 0)
        o.plain = true;
    if (strcmp(way, "cast") == 0) {
        o.cast = casts;
        o.cast_count = sizeof casts / sizeof *casts;
    }
    if (strcmp(way, "salvage") == 0)
        o.salvage = true;
    if (strcmp(way, "weights-only") == 0)
        o.weights_only = true;
    if (strcmp(way, "map") == 0) {
        o.map_location = "cuda:*=cuda:{(index + 1) % 3},cpu=cuda:0";
        o.map_device_objects = true;
    }
    return o;
}

static void migrate_one(const char *fixture, const char *name, const char *format, const char *way, char *line,
                        size_t size)
{
    char reported[65], target[65];
    ckpt_migrate_options o = options_of(format, way);
    ckpt_report *report = ckpt_report_new();
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_ptr_nonnull(report);
    ckpt_status status = ckpt_migrate(fixture, "target", &o, report, &err);
    digest_report(report, reported);
    digest_target("target", target);
    ck_assert_msg((status == CKPT_OK) == (target[0] != '-'), "%s to %s, %s: %s, and the target is %s", name, format,
                  way, ckpt_status_name(status), target);
    ck_assert_int_lt(
        snprintf(line, size, "%s %s %s %s %s %s", name, format, way, ckpt_status_name(status), reported, target),
        (int)size);
    ckpt_report_free(report);
    ck_assert_int_eq(system("rm -rf target"), 0);
}

/* With CKPT_TEST_FEW (under valgrind) one fixture in eight. */
static names lines_now(const char *data, bool few)
{
    names lines = {NULL, 0}, all = everything_below(data);
    for (size_t i = 0; i < all.count; i += few ? 8 : 1) {
        char path[2048], line[1024];
        snprintf(path, sizeof path, "%s/%s", data, all.name[i]);
        if (!is_fixture(path, all.name[i]))
            continue;
        for (size_t f = 0; f < FORMATS; f++)
            for (size_t w = 0; w < WAYS; w++) {
                migrate_one(path, all.name[i], formats[f], ways[w], line, sizeof line);
                add_name(&lines, line);
            }
    }
    free_names(&all);
    qsort(lines.name, lines.count, sizeof *lines.name, by_name);
    return lines;
}

static names lines_of(const char *path)
{
    char line[1024];
    names lines = {NULL, 0};
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        add_name(&lines, line);
    }
    fclose(f);
    return lines;
}

/* Is there a line of this one's fixture? */
static bool has_fixture(const names *lines, const char *line)
{
    size_t n = strcspn(line, " ") + 1;
    for (size_t i = 0; i < lines->count; i++)
        if (strncmp(lines->name[i], line, n) == 0)
            return true;
    return false;
}

/* The fixture, format and way of a line: up to its third blank (the names of fixtures hold none). */
static size_t key_size(const char *line)
{
    size_t at = 0;
    for (int blanks = 0; line[at] != '\0'; at++)
        if (line[at] == ' ' && ++blanks == 3)
            break;
    return at;
}

static int by_key(const char *a, const char *b)
{
    size_t m = key_size(a), n = key_size(b);
    int order = memcmp(a, b, m < n ? m : n);
    return order != 0 ? order : (m > n) - (m < n);
}

START_TEST(outputs)
{
    char data[1024], path[1100];
    size_t differ = 0;
    const char *source = getenv("srcdir");
    ck_assert_msg(source != NULL, "srcdir is not set: run it by make check");
    snprintf(data, sizeof data, "%s/tests/data", source);
    snprintf(path, sizeof path, "%s/digests/list", data);
    make_scratch();
    bool few = getenv("CKPT_TEST_FEW") != NULL;
    names now = lines_now(data, few);
    if (getenv("DIGESTS") != NULL && strcmp(getenv("DIGESTS"), "write") == 0) {
        FILE *f = fopen(path, "w");
        ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
        for (size_t i = 0; i < now.count; i++)
            fprintf(f, "%s\n", now.name[i]);
        ck_assert_int_eq(fclose(f), 0);
    }
    names want = lines_of(path);
    ck_assert_uint_gt(want.count, 1000);
    for (size_t i = 0, j = 0; i < now.count || j < want.count;) {
        int order = i == now.count ? 1 : j == want.count ? -1 : by_key(now.name[i], want.name[j]);
        if (order < 0)
            printf("# not recorded: %s\n", now.name[i]);
        else if (order > 0 && (!few || has_fixture(&now, want.name[j])))
            printf("# gone: %s\n", want.name[j]);
        else if (order > 0)
            differ--;
        else if (strcmp(now.name[i], want.name[j]) != 0)
            printf("# recorded: %s\n#      now: %s\n", want.name[j], now.name[i]);
        differ += order != 0 || strcmp(now.name[i], want.name[j]) != 0;
        i += order <= 0;
        j += order >= 0;
    }
    printf("# %zu outputs, %zu not as recorded\n", now.count, differ);
    remove_scratch();
    free_names(&now);
    free_names(&want);
    ck_assert_msg(differ == 0, "%zu outputs are not as recorded in tests/data/digests/list", differ);
}
END_TEST

/* FIPS 180-4's own examples. */
START_TEST(digest)
{
    static const struct {
        const char *text, *digest;
    } known[] = {{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                 {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char hex[65];
        ckpt__sha256 s;
        ckpt__sha256_begin(&s);
        ckpt__sha256_add(&s, known[i].text, strlen(known[i].text));
        ckpt__sha256_end(&s, hex);
        ck_assert_str_eq(hex, known[i].digest);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digests");
    TCase *tcase = tcase_create("digests");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, digest);
    tcase_add_test(tcase, outputs);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
