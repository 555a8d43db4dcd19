/* unit/migrate/test_migrate_chain.c - trainings that go from target to target. At each stop each tensor, setting and group of the training is
 * there to the bit, or its loss was said; and a target that was reached by two ways has the same. Where CKPT_CHAINS is set, so many chains
 * are made (2,000, say); CKPT_CHAIN_SEED is the number of the first one. */
#include "chain_expect.h"
#include "chain_pieces.h"

static training t;

static target *draw_target(void)
{
    target *w;
    do
        w = &targets[draw(TARGETS)];
    while (!(w->models >> t.model & 1) || (w->resumes && t.optimizer == CHAIN_NONE));
    return w;
}

static ckpt_status step_on(const stop *from, target *w, const asked *a, const char *path, stop *to)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = migrate_stop(&t, from, w, a, path, to, &err);
    if (status < 0) {
        if (status == CKPT_E_DAMAGED || status == CKPT_E_SYSTEM || status == CKPT_E_NO_MEMORY || !err.message[0])
            fault(from, "to %s: %d: %s", w->to, (int)status, err.message);
    } else
        expect_all(to, &t);
    return status;
}

static bool same_files(const char *a, const char *b)
{
    char command[200];
    snprintf(command, sizeof command, "diff -rqx checkpoint.json %s %s >/dev/null", a, b);
    return system(command) == 0;
}

/* Chains whose two ends were compared, and those that have the same bytes. */
typedef struct pairs {
    unsigned count, same;
} pairs;
static pairs ways, returns;

/* A target that was reached by two ways. whole: nothing that the first had was lost on the second. */
static void compare(const stop *a, const char *files_a, const stop *b, const char *files_b, bool whole, pairs *p)
{
    p->count++;
    p->same += same_files(files_a, files_b);
    if (whole && holds_same(a, b, &t))
        expect_same(a, b, &t);
}

/* S -> A -> A is N; N -> B -> C against N -> C, and N -> B -> A against N. */
static void go_on(const stop *n, target *wa, const asked *aa)
{
    stop b = {0}, c = {0}, d = {0}, back = {0};
    target *wb = draw_target(), *wc = draw_target();
    const asked ab = draw_asked(wb), ac = draw_asked(wc);
    if (step_on(n, wb, &ab, "B/x", &b) == CKPT_OK) {
        const bool whole = holds_same(n, &b, &t);
        const bool by_b = step_on(&b, wc, &ac, "C/x", &c) == CKPT_OK;
        if (step_on(n, wc, &ac, "D/x", &d) == CKPT_OK && by_b)
            compare(&c, "C/x", &d, "D/x", whole, &ways);
        if (step_on(&b, wa, aa, "Z/x", &back) == CKPT_OK)
            compare(&back, "Z/x", n, "N/x", whole, &returns);
    }
    end_stop(&b);
    end_stop(&c);
    end_stop(&d);
    end_stop(&back);
}

static void chain(void)
{
    static stop s, a, n;
    ckpt_reader *native = NULL;
    begin_random(chain_seed);
    draw_training(&t, (chain_model)(draw(5) % 3));
    const unsigned source = (unsigned)draw(3); /* native, torch, pieces */
    if (source != 1)
        save_native(&t, "native");
    else
        save_torch(&t, "file.pt", chance(60));
    source_stop(&s, &t, source == 1 ? "file.pt" : "native", source == 1);
    if (source == 2) {
        CHAIN_OK(ckpt_reader_open("native", NULL, &native, &chain_err));
        give_pieces(&t, native);
        snprintf(s.path, sizeof s.path, "pieces");
    }
    target *w = draw_target();
    const asked how = draw_asked(w);
    ckpt_status status = step_on(&s, w, &how, "A/x", &a);
    give_reader(NULL, NULL);
    if (status == CKPT_OK)
        status = step_on(&a, w, &how, "N/x", &n);
    if (status == CKPT_OK)
        go_on(&n, w, &how);
    ckpt_reader_close(native);
    end_stop(&a);
    end_stop(&n);
}

static uint64_t number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(nothing_is_lost_unsaid)
{
    static const char *const folders[] = {"A", "B", "C", "D", "N", "Z"};
    const bool few = getenv("CKPT_TEST_FEW") != NULL;
    const uint64_t first = number("CKPT_CHAIN_SEED", 1), count = number("CKPT_CHAINS", few ? 6 : 60);
    unsigned done = 0, tried = 0;
    make_folder();
    ck_assert_int_eq(chdir(folder), 0);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        ck_assert_int_eq(mkdir(folders[i], 0700), 0);
    for (chain_seed = first; chain_seed < first + count; chain_seed++)
        chain();
    for (size_t k = 0; k < TARGETS; k++) {
        printf("# %s: %u of %u\n", targets[k].to, targets[k].done, targets[k].tried);
        done += targets[k].done;
        tried += targets[k].tried;
        if (count >= 60 && strcmp(targets[k].to, "llmc") != 0) /* few of the trainings are its model */
            ck_assert_msg(targets[k].done > 0, "nothing was written as %s", targets[k].to);
    }
    printf("# %zu compared; two ways the same files: %u of %u, there and back: %u of %u\n", chain_looked, ways.same,
           ways.count, returns.same, returns.count);
    ck_assert_uint_eq(chain_faults, 0);
    ck_assert_uint_gt(4 * done, 3 * tried);
    ck_assert(count < 60 || (4 * ways.same > ways.count && 4 * returns.same > returns.count));
    ck_assert_int_eq(chdir("/"), 0);
    remove_folder();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_chain");
    TCase *c = tcase_create("migrate_chain");
    tcase_set_timeout(c, 3000);
    tcase_add_test(c, nothing_is_lost_unsaid);
    suite_add_tcase(s, c);
    return run_suite(s);
}
