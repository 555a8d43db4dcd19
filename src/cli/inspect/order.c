/* inspect/order.c - list --sort, --reverse, --limit. */
#include "cli/inspect/order.h"
#include <stdlib.h>
#include <string.h>

/* One tensor, and what it is sorted by. Equal ones stay in the order of the file. */
typedef struct item {
    size_t tensor;
    ckpt_str text;   /* the name, or the file */
    uint64_t number; /* bytes, or where they begin in the file; UINT64_MAX: in no one place */
} item;

static int in_file_order(const item *a, const item *b)
{
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static int by_name(const void *x, const void *y)
{
    const item *a = x, *b = y;
    const int at = cli_str_order(a->text, b->text);
    return at ? at : in_file_order(a, b);
}

/* The largest first. */
static int by_size(const void *x, const void *y)
{
    const item *a = x, *b = y;
    const int at = (a->number < b->number) - (a->number > b->number);
    return at ? at : in_file_order(a, b);
}

static int by_offset(const void *x, const void *y)
{
    const item *a = x, *b = y;
    const int file = cli_str_order(a->text, b->text), at = (a->number > b->number) - (a->number < b->number);
    return file ? file : at ? at : in_file_order(a, b);
}

/* The first byte of the first piece, and its file. */
static void find_place(const ckpt_reader *reader, item *out)
{
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    out->number = UINT64_MAX;
    if (ckpt_reader_piece_count(reader, out->tensor) == 0 ||
        ckpt_reader_piece(reader, out->tensor, 0, &p, NULL) != CKPT_OK)
        return;
    out->text = p.file;
    if (p.file_offset >= 0)
        out->number = (uint64_t)p.file_offset;
}

int order_make(const command_line *o, const ckpt_reader *reader, order *out)
{
    const size_t n = ckpt_reader_tensor_count(reader);
    const char key = o->sort ? *o->sort : 0;
    size_t count = 0;
    item *items = calloc(n + 1, sizeof *items);
    *out = (order){calloc(n + 1, sizeof *out->tensors), 0, 0};
    if (!items || !out->tensors) {
        free(items);
        return cli_fail(&o->cli, "no-memory", "out of memory for %zu tensors", n);
    }
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(&o->cli, t))
            continue;
        item *it = &items[count++];
        *it = (item){i, t->name, t->nbytes};
        if (key == 'o') {
            it->text = (ckpt_str){NULL, 0};
            find_place(reader, it);
        }
    }
    if (key && count)
        qsort(items, count, sizeof *items, key == 's' ? by_size : key == 'n' ? by_name : by_offset);
    out->count = o->limit.text && o->limit.n < count ? (size_t)o->limit.n : count;
    out->omitted = count - out->count;
    for (size_t i = 0; i < out->count; i++)
        out->tensors[i] = items[o->reverse ? count - 1 - i : i].tensor;
    free(items);
    return CLI_YES;
}

void order_free(order *x)
{
    free(x->tensors);
    memset(x, 0, sizeof *x);
}
