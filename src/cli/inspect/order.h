/* cli/inspect/order.h - which tensors list shows, and in which order: --sort, --reverse, --limit. */
#ifndef CKPT_CLI_INSPECT_ORDER_H
#define CKPT_CLI_INSPECT_ORDER_H
#include "cli/inspect/inspect.h"

typedef struct order {
    size_t *tensors; /* heap, owned: numbers of the reader */
    size_t count;
    size_t omitted; /* selected, and beyond --limit */
} order;

/* The selected tensors as the command line asks for them. Without --sort they stand in the order of the file. CLI_YES, or the exit
 * status, the error said. */
int order_make(const command_line *o, const ckpt_reader *reader, order *out);
void order_free(order *x);
#endif
