/* inspect/diff_order.c - the differences that matter first, and how many there are of each role. */
#include "cli/inspect/diff_order.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NANS, FORMS, OTHERS, RANKS };

static int rank_of(const ckpt_diff_tensor *t)
{
    if (t->nan_mismatch)
        return NANS;
    bool form = t->what & (CKPT_DIFF_DTYPE | CKPT_DIFF_SHAPE | CKPT_DIFF_LAYOUT);
    return form || t->status != CKPT_DIFF_CHANGED ? FORMS : OTHERS;
}

size_t *diff_order(const ckpt_diff_result *r, size_t *count)
{
    size_t *order = malloc((r->tensor_count + 1) * sizeof *order);
    *count = 0;
    for (int rank = NANS; order && rank < RANKS; rank++)
        for (size_t i = 0; i < r->tensor_count; i++) {
            const ckpt_diff_tensor *t = r->tensors[i];
            if (t->status != CKPT_DIFF_TIED && t->status != CKPT_DIFF_SAME && rank_of(t) == rank)
                order[(*count)++] = i;
        }
    return order;
}

static diff_tally *tally_of(diff_tally *all, size_t *count, const char *role)
{
    size_t i = 0;
    while (i < *count && strcmp(all[i].role, role) != 0)
        i++;
    if (i == *count)
        all[(*count)++] = (diff_tally){.role = role};
    return &all[i];
}

static void put_tally(const diff_tally *t)
{
    const char *between = "";
    const struct {
        uint64_t n;
        const char *word;
    } parts[] = {{t->changed, "changed"}, {t->added, "added"}, {t->removed, "removed"}};
    printf("  %-12s ", t->role);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].n) {
            printf("%s%" PRIu64 " %s", between, parts[i].n, parts[i].word);
            between = ", ";
        }
    if (t->max_abs > 0)
        printf(", max |a-b| %.3g", t->max_abs);
    if (t->nan)
        printf(", NaN in one only: %" PRIu64 " tensor%s", t->nan, t->nan == 1 ? "" : "s");
    putchar('\n');
}

size_t diff_tallies(const ckpt_diff_result *r, diff_tally all[DIFF_ROLES], size_t *differing)
{
    size_t count = 0;
    *differing = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        const ckpt_diff_tensor *t = r->tensors[i];
        if (t->status == CKPT_DIFF_TIED || t->status == CKPT_DIFF_SAME)
            continue;
        const ckpt_tensor_info *info = t->a ? t->a : t->b;
        diff_tally *of =
            count < DIFF_ROLES ? tally_of(all, &count, info->role ? ckpt_role_name(info->role) : "no role") : all;
        of->changed += t->status == CKPT_DIFF_CHANGED;
        of->added += t->status == CKPT_DIFF_ADDED;
        of->removed += t->status == CKPT_DIFF_REMOVED;
        of->nan += t->nan_mismatch > 0;
        of->max_abs = t->compared && t->max_abs > of->max_abs ? t->max_abs : of->max_abs;
        ++*differing;
    }
    return count;
}

void diff_by_role(const cli *c, const ckpt_diff_result *r, size_t least)
{
    diff_tally all[DIFF_ROLES];
    size_t differing, count = diff_tallies(r, all, &differing);
    if (differing < least)
        return;
    printf("%sby role%s\n", cli_style(c, "bold"), cli_style(c, "off"));
    for (size_t i = 0; i < count; i++)
        put_tally(&all[i]);
}

void diff_put_counts(const char *of, const ckpt_diff_counts *n)
{
    printf("%s: %" PRIu64 " same", of, n->same);
    const struct {
        uint64_t count;
        const char *text;
    } rows[] = {{n->changed, "changed"}, {n->added, "added"}, {n->removed, "removed"}, {n->tied, "second names"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].count)
            printf(", %" PRIu64 " %s", rows[i].count, rows[i].text);
    if (n->by_canonical || n->by_prefix)
        printf(" (matched: %" PRIu64 " by name", n->by_name);
    if (n->by_canonical)
        printf(", %" PRIu64 " by their canonical names", n->by_canonical);
    if (n->by_prefix)
        printf(", %" PRIu64 " by their names but for a path in front", n->by_prefix);
    puts(n->by_canonical || n->by_prefix ? ")" : "");
}
