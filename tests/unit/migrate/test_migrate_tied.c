/* test_migrate_tied.c - tensors that a layout calls another name of one: dropped where they are the same, refused where they are not, and
 * made again on the way back, with the bytes there once. */
#include <ckpt/ckpt.h>

#include "../runner.h"
#include "../scarce_memory.h"
#include "../scratch.h"

enum { ROWS = 61, PADDED = 64, WIDTH = 16 };

static const char rules[] =
    "layout: 1\nsides: [two, one]\nvars:\n  rows: {two: [embed, 0]}\n  padded: {one: [table, 0]}\n"
    "rules:\n- two: embed\n  one: table\n  steps:\n  - pad: {dim: 0, from: rows, to: padded}\n"
    "- {two: other, one: other}\n- {two: head, drop: true}\nties:\n- {two: head, of: embed}\n";

static ckpt_error err = CKPT_ERROR_INIT;
static float embed[ROWS * WIDTH], head[ROWS * WIDTH], other[4], moment[ROWS * WIDTH];

static void bind(ckpt_state *s, const char *name, const char *param, ckpt_role role, float *data, int64_t rows)
{
    const int64_t shape[] = {rows, WIDTH};
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.dtype = CKPT_F32;
    d.shape = rows ? shape : (const int64_t[]){4};
    d.ndim = rows ? 2 : 1;
    d.role = role;
    d.data = data;
    ck_assert_msg(ckpt_state_tensor(s, &d, &err) >= 0, "%s", err.message);
}

static void save(const char *path, bool with_head, bool with_moment)
{
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    bind(s, "embed", NULL, CKPT_ROLE_PARAM, embed, ROWS);
    bind(s, "other", NULL, CKPT_ROLE_PARAM, other, 0);
    if (with_head)
        bind(s, "head", NULL, CKPT_ROLE_PARAM, head, ROWS);
    if (with_moment)
        bind(s, NULL, "head", CKPT_ROLE_EXP_AVG, moment, ROWS);
    ck_assert_msg(ckpt_save(s, path, NULL, &err) >= 0, "%s", err.message);
    ckpt_state_free(s);
}

static ckpt_status lay(const char *from, const char *to, const char *format, const char *var, ckpt_report *r)
{
    const char *const vars[] = {var};
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = format;
    o.layout = "tied.yaml";
    o.layout_vars = vars;
    o.layout_var_count = 1;
    o.no_sync = o.lossy = o.verify = true;
    err = (ckpt_error)CKPT_ERROR_INIT;
    return ckpt_migrate(from, to, &o, r, &err);
}

static void set_up(void)
{
    make_scratch();
    FILE *f = fopen("tied.yaml", "w");
    ck_assert(f && fputs(rules, f) >= 0 && fclose(f) == 0);
    for (int i = 0; i < ROWS * WIDTH; i++)
        embed[i] = head[i] = (float)(i + 1);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return (int64_t)st.st_size;
}

START_TEST(the_same_is_there_once)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_reader *reader;
    float row[ROWS * WIDTH];
    size_t at;
    for (int k = 0; k < 2; k++) { /* k: the source has it under both names */
        save("two.safetensors", k == 1, false);
        ck_assert_msg(lay("two.safetensors", k ? "b.safetensors" : "a.safetensors", "ckpt", "padded=64", r) == CKPT_OK,
                      "%s", err.message);
        ck_assert_uint_eq(ckpt_report_count_code(r, "layout-tied"), (size_t)k);
        ck_assert_uint_eq(ckpt_report_count_code(r, "layout-dropped"), 0);
    }
    ck_assert_int_eq(system("cmp a.safetensors b.safetensors"), 0);
    ck_assert_int_eq(ckpt_reader_open("a.safetensors", NULL, &reader, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_find(reader, "table", 5, &at, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_tensor(reader, at)->shape[0], PADDED);
    ck_assert_int_lt(ckpt_reader_find(reader, "head", 4, &at, &err), 0);
    ckpt_reader_close(reader);
    /* back: two names, and one time the bytes */
    static const char *const targets[] = {"ckpt", "back.safetensors", "torch", "back.pt"};
    for (int k = 0; k < 4; k += 2) {
        ck_assert_msg(lay("a.safetensors", targets[k + 1], targets[k], "rows=61", r) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(ckpt_report_count_code(r, "layout-tied"), 1);
        ck_assert_int_eq(ckpt_reader_open(targets[k + 1], NULL, &reader, &err), CKPT_OK);
        for (int n = 0; n < 2; n++) {
            char name[30];
            snprintf(name, sizeof name, "%s%s", k ? "model." : "", n ? "head" : "embed");
            ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &at, &err) == CKPT_OK, "%s", err.message);
            ck_assert_int_eq(ckpt_reader_read(reader, at, row, sizeof row, &err), CKPT_OK);
            ck_assert_mem_eq(row, embed, sizeof row);
        }
        ckpt_reader_close(reader);
        ck_assert_int_lt(size_of(targets[k + 1]), 4096 + 2 * (int64_t)sizeof embed);
    }
    ckpt_report_free(r);
}
END_TEST

START_TEST(what_is_not_the_same_is_refused)
{
    head[ROWS * WIDTH - 1] += 1;
    save("two.safetensors", true, false);
    ck_assert_int_eq(lay("two.safetensors", "x.safetensors", "ckpt", "padded=64", NULL), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, "'head' is not 'embed' once more, and") && strstr(err.message, "--drop"), "%s",
                  err.message);
    head[ROWS * WIDTH - 1] -= 1;
    save("two.safetensors", true, true);
    ck_assert_int_eq(lay("two.safetensors", "x.safetensors", "ckpt", "padded=64", NULL), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, "its own state"), "%s", err.message);
    ck_assert_int_ne(access("x.safetensors", F_OK), 0);
}
END_TEST

START_TEST(each_allocation)
{
    static const struct {
        const char *from, *to, *format, *var;
    } ways[] = {{"two.safetensors", "a.safetensors", "ckpt", "padded=64"},
                {"a.safetensors", "back.safetensors", "ckpt", "rows=61"},
                {"a.safetensors", "back.pt", "torch", "rows=61"},
                {"a.safetensors", "back", "dcp", "rows=61"}};
    char command[100], tried[60]; /* of the same name: a torch archive has it inside */
    save("two.safetensors", true, false);
    ck_assert_int_eq(mkdir("tried", 0700), 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        size_t failed = 0;
        bool all = false;
        snprintf(tried, sizeof tried, "tried/%s", ways[i].to);
        ck_assert_msg(lay(ways[i].from, ways[i].to, ways[i].format, ways[i].var, NULL) == CKPT_OK, "%s", err.message);
        for (long n = 0; !all; n++) {
            allocations_left = n;
            const ckpt_status status = lay(ways[i].from, tried, ways[i].format, ways[i].var, NULL);
            all = allocations_left >= 0;
            allocations_left = -1;
            ck_assert_msg(status == CKPT_OK || (!all && status == CKPT_E_NO_MEMORY), "%s, allocation %ld: %d %s",
                          ways[i].to, n, (int)status, err.message);
            ck_assert_int_eq(access(tried, F_OK) == 0, status == CKPT_OK);
            failed += status != CKPT_OK;
            if (status != CKPT_OK)
                continue;
            snprintf(command, sizeof command, "diff -r %s %s && rm -r tried/*", ways[i].to, tried);
            ck_assert_msg(system(command) == 0, "%s, allocation %ld", ways[i].to, n);
        }
        ck_assert_uint_gt(failed, 100);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate tied");
    TCase *t = tcase_create("tied");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, remove_scratch);
    tcase_add_test(t, the_same_is_there_once);
    tcase_add_test(t, what_is_not_the_same_is_refused);
    tcase_add_test(t, each_allocation);
    suite_add_tcase(s, t);
    return run_suite(s);
}
