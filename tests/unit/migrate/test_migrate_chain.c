#include "chain_expect.h"

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
        if (getenv("CKPT_CHAIN_REPORT")) {
            say_chain(from);
            printf("refused %s: %s: %s\n", w->to, err.object, err.message);
        }
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

static unsigned same_two, two, same_back, backs;
static void chain(void)
{
    static stop s, a, b, c, d, back;
    ckpt_reader *native = NULL;
    begin_random(chain_seed);
    draw_training(&t, (chain_model)(draw(5) % 3));
    const unsigned source = (unsigned)draw(3);
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
    target *wa = draw_target(), *wb = draw_target(), *wc = draw_target();
    asked aa = draw_asked(wa), ab = draw_asked(wb), ac = draw_asked(wc);
    ckpt_status status = step_on(&s, wa, &aa, "A/x", &a);
    give_reader(NULL, NULL);
    if (status == CKPT_OK)
        status = step_on(&a, wb, &ab, "B/x", &b);
    if (status == CKPT_OK) {
        bool x = step_on(&b, wc, &ac, "C/x", &c) == CKPT_OK, y = step_on(&a, wc, &ac, "D/x", &d) == CKPT_OK;
        if (x && y) {
            two++;
            if (same_files("C/x", "D/x"))
                same_two++;
            else {
                say_chain(&c);
                printf(" differs %s\n", holds_same(&a, &b, &t) && holds_same(&c, &d, &t) ? "lossless" : "lossy");
            }
        }
        if (step_on(&b, wa, &aa, "Z/x", &back) == CKPT_OK) {
            backs++;
            if (same_files("A/x", "Z/x"))
                same_back++;
            else {
                say_chain(&back);
                printf(" not back %s\n", holds_same(&a, &b, &t) && holds_same(&a, &back, &t) ? "lossless" : "lossy");
            }
        }
    }
    ckpt_reader_close(native);
    if (getenv("KEEP")) {
        printf("# %s\n", folder);
        return;
    }
    end_stop(&a);
    end_stop(&b);
    end_stop(&c);
    end_stop(&d);
    end_stop(&back);
}

START_TEST(proto)
{
    make_folder();
    ck_assert(chdir(folder) == 0);
    ck_assert(mkdir("A", 0700) == 0 && mkdir("B", 0700) == 0 && mkdir("C", 0700) == 0 && mkdir("D", 0700) == 0 &&
              mkdir("Z", 0700) == 0);
    const char *n = getenv("CKPT_CHAIN_CASES"), *f = getenv("CKPT_CHAIN_SEED");
    uint64_t first = f ? strtoull(f, NULL, 10) : 1, count = n ? strtoull(n, NULL, 10) : 300;
    for (chain_seed = first; chain_seed < first + count; chain_seed++)
        chain();
    for (size_t k = 0; k < TARGETS; k++)
        printf("%s: %u of %u\n", targets[k].to, targets[k].done, targets[k].tried);
    printf("faults %zu of %zu, same C %u of %u, same A %u of %u\n", chain_faults, chain_looked, same_two, two,
           same_back, backs);
    ck_assert(chdir("/") == 0);
    if (!getenv("KEEP"))
        remove_folder();
}
END_TEST
int main(void)
{
    Suite *s = suite_create("migrate_chain");
    TCase *c = tcase_create("migrate_chain");
    tcase_set_timeout(c, 3000);
    tcase_add_test(c, proto);
    suite_add_tcase(s, c);
    return run_suite(s);
}
