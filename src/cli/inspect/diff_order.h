/* cli/inspect/diff_order.h - how diff tells people of many differences: what matters first, and a summary by role. */
#ifndef CKPT_CLI_INSPECT_DIFF_ORDER_H
#define CKPT_CLI_INSPECT_DIFF_ORDER_H
#include "cli/inspect/inspect.h"

/* The numbers of the tensors that differ, for free(): those that have NaN in one of the two alone, then those that are in one alone or have another
 * dtype, shape or layout, then the others; each in the order of the result. *count of them. NULL: no memory. */
size_t *diff_order(const ckpt_diff_result *r, size_t *count);
/* A line for each role of which a tensor differs, largest difference and NaN; nothing where fewer than `least` differ. */
void diff_by_role(const cli *c, const ckpt_diff_result *r, size_t least);
#endif
