/* cli/inspect/diff_order.h - how diff tells people of many differences: what matters first, and a summary by role. */
#ifndef CKPT_CLI_INSPECT_DIFF_ORDER_H
#define CKPT_CLI_INSPECT_DIFF_ORDER_H
#include "cli/inspect/inspect.h"

/* The numbers of the tensors that differ, for free(): those that have NaN in one of the two alone, then those that are in one alone or have another
 * dtype, shape or layout, then the others; each in the order of the result. *count of them. NULL: no memory. */
size_t *diff_order(const ckpt_diff_result *r, size_t *count);
/* The differing tensors of one role. */
typedef struct diff_tally {
    const char *role; /* static */
    uint64_t changed, added, removed, nan;
    double max_abs; /* of values that were compared */
} diff_tally;
enum { DIFF_ROLES = 64 };
/* How many roles have one; *differing: the tensors in all. */
size_t diff_tallies(const ckpt_diff_result *r, diff_tally all[DIFF_ROLES], size_t *differing);
/* A line for each role of which a tensor differs, largest difference and NaN; nothing where fewer than `least` differ. */
void diff_by_role(const cli *c, const ckpt_diff_result *r, size_t least);
/* "tensors: 3 same, 1 changed", and by what they were matched. */
void diff_put_counts(const char *of, const ckpt_diff_counts *n);
/* --markdown: tables for an issue or a pull request, in this order. The exit status. */
int diff_markdown(const command_line *o, const ckpt_diff_result *r, const ckpt_report *report);
#endif
