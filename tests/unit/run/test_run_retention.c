/* Which checkpoints stay: every small case against what is worked out by hand, one after the other. */
#include <ckpt/run.h>

#include <string.h>
#include "../runner.h"

enum { MOST = 4, STEPS = 5 };

/* The rule by another road: sort the complete ones, cross off what stays. */
static void by_hand(const ckpt_retention *rule, const ckpt_retention_entry *e, size_t n, bool *remove)
{
    size_t order[MOST], m = 0;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        remove[i] = e[i].complete && rule->keep_last > 0;
        if (e[i].complete)
            order[m++] = i;
    }
    for (size_t a = 0; a < m; a++)
        for (size_t b = a + 1; b < m; b++)
            if (e[order[b]].step > e[order[a]].step) {
                size_t swap = order[a];
                order[a] = order[b];
                order[b] = swap;
            }
    int64_t verified = 0;
    for (size_t k = 0; k < m; k++) {
        const ckpt_retention_entry *x = &e[order[k]];
        size_t equals = k; /* what is as new as an earlier one has its place */
        while (equals > 0 && e[order[equals - 1]].step == x->step)
            equals--;
        if (equals == 0 || (int64_t)equals < rule->keep_last ||
            (rule->keep_every > 0 && x->step % rule->keep_every == 0))
            remove[order[k]] = false;
        if (x->verified && !found) {
            found = true;
            verified = x->step;
        }
    }
    for (size_t k = 0; k < m; k++)
        if (found && e[order[k]].step == verified)
            remove[order[k]] = false;
}

static size_t check(const ckpt_retention *rule, const ckpt_retention_entry *e, size_t n)
{
    bool got[MOST + 1], want[MOST], left = false, any = false;
    size_t removed = 0;
    got[n] = true;
    memset(got, 1, n);
    ckpt_retention_plan(rule, e, n, got);
    by_hand(rule, e, n, want);
    for (size_t i = 0; i < n; i++) {
        if (got[i] != want[i] || (got[i] && !e[i].complete)) /* Check's assertions are too slow for millions */
            ck_abort_msg("entry %zu of %zu (step %d, last %d, every %d): %d, expected %d", i, n, (int)e[i].step,
                         (int)rule->keep_last, (int)rule->keep_every, got[i], want[i]);
        any |= e[i].complete;
        left |= e[i].complete && !got[i];
        removed += got[i];
    }
    if (left != any || !got[n])
        ck_abort_msg("%s", left != any ? "no complete checkpoint is left" : "written past the end");
    return removed;
}

START_TEST(every_small_case)
{
    size_t cases = 0, removed = 0;
    for (size_t n = 0; n <= MOST; n++) {
        size_t total = 1;
        for (size_t i = 0; i < n; i++)
            total *= STEPS * 4;
        for (size_t code = 0; code < total; code++) {
            ckpt_retention_entry e[MOST];
            size_t rest = code;
            memset(e, 0, sizeof e);
            for (size_t i = 0; i < n; i++, rest /= STEPS * 4) {
                e[i].step = (int64_t)(rest % STEPS);
                e[i].complete = rest / STEPS % 2;
                e[i].verified = rest / STEPS / 2 % 2;
            }
            for (int64_t last = 0; last <= (int64_t)n + 1; last++)
                for (int64_t every = 0; every <= 3; every++, cases++)
                    removed += check(&(ckpt_retention){last, every}, e, n);
        }
    }
    ck_assert_uint_gt(cases, 3000000);
    ck_assert_uint_gt(removed, 100000);
}
END_TEST

START_TEST(named_cases)
{
    static const struct {
        ckpt_retention rule;
        const char *entries; /* newest first: c complete, v verified, d damaged; steps 50, 40, 30, 20, 10 */
        const char *plan;    /* x: removed */
    } rows[] = {
        {{0, 0}, "ccccc", "....."},  {{0, 20}, "ccccc", "....."},  {{1, 0}, "ccccc", ".xxxx"},
        {{2, 0}, "ccccc", "..xxx"},  {{9, 0}, "ccccc", "....."},   {{1, 20}, "ccccc", "..x.x"},
        {{1, 0}, "dcccc", "..xxx"},  {{1, 0}, "dcvcc", "...xx"},   {{1, 0}, "ccccv", ".xxx."},
        {{1, 0}, "cvvvv", "..xxx"},  {{2, 0}, "dddcc", "....."},   {{1, 0}, "ddddd", "....."},
        {{1, 10}, "ccccc", "....."}, {{-1, -1}, "ccccc", "....."}, {{INT64_MAX, INT64_MAX}, "ccccc", "....."},
        {{1, 0}, "cdcdc", "..x.x"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ckpt_retention_entry e[5];
        bool remove[5];
        memset(e, 0, sizeof e);
        for (int i = 0; i < 5; i++) {
            e[i].step = 50 - 10 * i;
            e[i].complete = rows[r].entries[i] != 'd';
            e[i].verified = rows[r].entries[i] == 'v';
        }
        ckpt_retention_plan(&rows[r].rule, e, 5, remove);
        for (int i = 0; i < 5; i++)
            ck_assert_msg(remove[i] == (rows[r].plan[i] == 'x'), "row %zu, entry %d", r, i);
    }
    bool untouched = true;
    ckpt_retention_plan(&rows[2].rule, NULL, 0, &untouched);
    ck_assert(untouched);
    ckpt_retention_entry one = {.step = 3, .complete = true};
    ckpt_retention_plan(NULL, &one, 1, &untouched);
    ck_assert(!untouched); /* no rule: all stay */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("run_retention");
    TCase *c = tcase_create("plan");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, every_small_case);
    tcase_add_test(c, named_cases);
    suite_add_tcase(s, c);
    return run_suite(s);
}
