/* The ledger of a migration: each tensor of the source once, its fate, why, and what it is in the target; and that the target has
 * what the ledger says is written, and nothing else. */
#include "../migrate_setup.h"
#include "fixtures.h"

/* A copy of what a row says. */
typedef struct row {
    char name[200], from[200];
    const char *fate, *why, *storage;
    ckpt_dtype dtype, from_dtype;
    bool written, made;
} row;

static row rows[2000];
static size_t row_count;

static void keep(char out[200], ckpt_str s)
{
    snprintf(out, 200, "%.*s", (int)s.size, s.data ? s.data : "");
}

static ckpt_status take(void *ctx, const ckpt_migrate_row *r, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    ck_assert_uint_lt(row_count, sizeof rows / sizeof *rows);
    ck_assert_uint_eq(r->struct_size, sizeof *r);
    row *to = &rows[row_count++];
    keep(to->name, r->name);
    keep(to->from, r->from_name);
    to->fate = r->fate;
    to->why = r->why;
    to->storage = r->storage;
    to->dtype = r->dtype;
    to->from_dtype = r->from_dtype;
    to->written = r->name.data != NULL;
    to->made = r->from_name.data == NULL;
    ck_assert((strcmp(r->fate, "written") == 0) == to->written && (r->why == NULL) == to->written);
    return CKPT_OK;
}

static const row *row_of(const char *from)
{
    for (size_t i = 0; i < row_count; i++)
        if (strcmp(rows[i].from, from) == 0)
            return &rows[i];
    ck_abort_msg("no row of %s", from);
    return NULL;
}

static size_t count_fate(const char *fate)
{
    size_t n = 0;
    for (size_t i = 0; i < row_count; i++)
        n += strcmp(rows[i].fate, fate) == 0;
    return n;
}

static const char *fixture(const char *name)
{
    static char path[700];
    const char *top = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/%s", top ? top : ".", name);
    return path;
}

static const char *target(void)
{
    return at("target");
}

/* Migrates, and holds the ledger against the source and against what was written. */
static void ledger_of(const char *source, const char *to)
{
    row_count = 0;
    options.struct_size = sizeof options; /* 0 is that of 0.2.0, which has no ledger */
    options.ledger = (ckpt_migrate_ledger){take, NULL};
    options.lossy = true;
    migrates(source, to, target());
    ckpt_reader *from = opened(source), *is = opened(target());
    size_t read = 0, written = 0;
    for (size_t i = 0; i < row_count; i++) {
        read += !rows[i].made;
        written += rows[i].written;
        if (rows[i].written && rows[i].name[0]) {
            const ckpt_tensor_info *t = find(is, rows[i].name);
            ck_assert_msg(t != NULL, "%s of %s: not written", rows[i].name, rows[i].from);
            ck_assert_int_eq(t->dtype, rows[i].dtype);
        }
    }
    ck_assert_uint_eq(read, ckpt_reader_tensor_count(from));
    ck_assert_uint_eq(written, ckpt_reader_tensor_count(is));
    ckpt_reader_close(from);
    ckpt_reader_close(is);
}

START_TEST(chosen)
{
    static const char *const drops[] = {"*bias"}, *const casts[] = {"*weight=bfloat16"};
    options.drop = drops;
    options.cast = casts;
    options.drop_count = options.cast_count = 1;
    ledger_of(fixture("peers/lightning.ckpt"), "ckpt");
    const row *w = row_of("state_dict.net.0.weight"), *b = row_of("state_dict.net.0.bias"),
              *m = row_of("optimizer_states.0.state.0.exp_avg");
    ck_assert(strcmp(w->name, "net.0.weight") == 0 && w->from_dtype == CKPT_F32 && w->dtype == CKPT_BF16);
    ck_assert_str_eq(w->storage, "converted");
    ck_assert(strcmp(b->fate, "dropped") == 0 && strstr(b->why, "as asked") && !b->storage);
    ck_assert(strcmp(m->name, "optimizer.net.0.weight.exp_avg") == 0 && !m->storage);
    ck_assert_uint_eq(count_fate("dropped"), ckpt_report_count_code(report, "dropped"));
}
END_TEST

START_TEST(weights)
{
    options.weights_only = true;
    ledger_of(fixture("peers/lightning.ckpt"), "safetensors");
    ck_assert_str_eq(row_of("optimizer_states.0.state.0.exp_avg")->fate, "no-weight");
    ck_assert_uint_eq(count_fate("written"), 4);
    ck_assert_uint_eq(count_fate("written") + count_fate("no-weight"), row_count);
}
END_TEST

START_TEST(replaced)
{
    static const char *const globs[] = {"2.*"};
    options.replace = globs;
    options.replace_count = 1;
    ledger_of(fixture("cli/plain.pt"), "torch");
    ck_assert_str_eq(row_of("model.2.weight")->fate, "replaced");
    ck_assert_uint_gt(count_fate("replaced"), 2); /* with its state */
}
END_TEST

/* Tensors that no format without torch's structure holds; and a view that is resolved. */
START_TEST(lost)
{
    ledger_of(fixture("cli/tensors.pt"), "safetensors");
    ck_assert_uint_gt(count_fate("lost"), 0);
    ck_assert_str_eq(row_of("conj")->storage, "resolved");
    ledger_of(fixture("cli/tensors.pt"), "ckpt");
    ck_assert_uint_gt(count_fate("in-structure"), 0);
    const ckpt_finding *said = ckpt_report_find(report, "in-structure", "coo");
    ck_assert(said && said->severity == CKPT_SEVERITY_WARNING && strstr(said->message, "sparse_coo"));
}
END_TEST

/* libtorch counts its groups and parameters in tensors; torch has a step of its own for each parameter. */
START_TEST(made)
{
    size_t of_no_source = 0;
    ledger_of(fixture("peers/libtorch-optimizer.pt"), "torch");
    ck_assert_uint_gt(count_fate("counted"), 0);
    for (size_t i = 0; i < row_count; i++)
        of_no_source += rows[i].made && rows[i].written;
    ck_assert_uint_gt(of_no_source, 0);
}
END_TEST

/* Of one migration: rows that are not as the target is. */
static size_t differences(const char *name, const char *to)
{
    size_t differ = 0, written = 0;
    ckpt_reader *is = opened(target());
    for (size_t i = 0; i < row_count; i++) {
        const row *r = &rows[i];
        const ckpt_tensor_info *t = r->written ? find(is, r->name) : NULL;
        bool as_bytes =
            t && t->dtype == CKPT_U8 && strcmp(to, "safetensors") == 0; /* of a dtype that safetensors lacks */
        bool as_said = !r->written || (t && (t->dtype == r->dtype || as_bytes));
        written += r->written;
        if (!as_said)
            printf("# %s to %s: '%s' of '%s': %s\n", name, to, r->name, r->from,
                   t ? ckpt_dtype_name(t->dtype) : "none");
        differ += !as_said;
    }
    if (written != ckpt_reader_tensor_count(is))
        printf("# %s to %s: %zu written, and it has %zu\n", name, to, written, ckpt_reader_tensor_count(is));
    differ += written != ckpt_reader_tensor_count(is);
    ckpt_reader_close(is);
    return differ;
}

/* Every fixture, to every format: what the ledger says is written is in the target, and nothing else is. */
START_TEST(every_fixture)
{
    static const char *const formats[] = {"ckpt", "torch", "safetensors", "hf"};
    size_t differ = 0, done = 0;
    char top[700], path[1800];
    snprintf(top, sizeof top, "%s", fixture(""));
    names list = everything_below(top);
    options.struct_size = sizeof options;
    options.ledger = (ckpt_migrate_ledger){take, NULL};
    options.lossy = true;
    options.verify = false;
    for (size_t i = 0; i < list.count; i++)
        for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
            snprintf(path, sizeof path, "%s%s", top, list.name[i]);
            if (!is_fixture(path, list.name[i]))
                break;
            char command[300];
            row_count = 0;
            snprintf(command, sizeof command, "rm -rf '%s'", target());
            ck_assert_int_eq(system(command), 0);
            if (migrate(path, formats[k], target()) != CKPT_OK)
                continue;
            differ += differences(list.name[i], formats[k]);
            done++;
        }
    free_names(&list);
    printf("# %zu migrations\n", done);
    ck_assert_uint_gt(done, 300);
    ck_assert_uint_eq(differ, 0);
}
END_TEST

static ckpt_status stop(void *ctx, const ckpt_migrate_row *r, ckpt_error *e)
{
    (void)r;
    (void)e;
    return ++*(int *)ctx < 3 ? CKPT_OK : CKPT_E_CANCELLED;
}

/* Whoever gets the rows can end the call, before anything is written. */
START_TEST(ended)
{
    int n = 0;
    options.struct_size = sizeof options;
    options.ledger = (ckpt_migrate_ledger){stop, &n};
    ck_assert_int_eq(migrate(fixture("cli/plain.pt"), "ckpt", target()), CKPT_E_CANCELLED);
    ck_assert_int_eq(n, 3);
    ck_assert_ptr_nonnull(strstr(err.message, "ledger"));
    ck_assert_int_ne(access(target(), F_OK), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ledger");
    TCase *t = tcase_create("ledger");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, chosen);
    tcase_add_test(t, weights);
    tcase_add_test(t, replaced);
    tcase_add_test(t, lost);
    tcase_add_test(t, made);
    tcase_add_test(t, ended);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_fixture);
    suite_add_tcase(s, t);
    return run_suite(s);
}
