/* migrate/rank_alike.c - do the ranks have the same? Values are compared as values, tensors byte by byte: states of generators and of
 * loaders are small. */
#include "migrate/rank_state.h"

#include <stdlib.h>
#include "engine/stream.h"

enum { MOST = 64 << 20 }; /* bytes of a tensor: larger ones are not compared, and count as different */

/* Numbers of the tensors below a value, in the order of the walk. */
typedef struct numbers {
    size_t *items, count, capacity; /* heap */
    ckpt_error *err;
} numbers;

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    numbers *n = ctx;
    if (visit->value->kind != CKPT_V_TENSOR)
        return CKPT_OK;
    if (!ckpt__grow(&n->items, &n->capacity, n->count + 1, sizeof *n->items))
        return ckpt__migration_no_memory(n->err);
    n->items[n->count++] = visit->value->tensor;
    return CKPT_OK;
}

typedef struct bytes {
    char *data; /* heap */
    size_t size;
} bytes;

static ckpt_status take(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    bytes *b = ctx;
    (void)err;
    if (offset <= b->size && n <= b->size - offset)
        memcpy(b->data + offset, data, n);
    return CKPT_OK;
}

static bool same_kind(const ckpt_tensor_info *a, const ckpt_tensor_info *b)
{
    return a->dtype == b->dtype && a->nbytes == b->nbytes && a->extra->part_count == 0 && b->extra->part_count == 0 &&
           ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim) && a->nbytes <= MOST;
}

static ckpt_status same_tensor(const ckpt__migration *m, size_t a, size_t b, bool *same, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    *same = a == b;
    if (a == b)
        return CKPT_OK;
    if (!same_kind(&x->tensors[a].info, &x->tensors[b].info) || ckpt__stays_behind(m, a) || ckpt__stays_behind(m, b))
        return CKPT_OK;
    const size_t size = (size_t)x->tensors[a].info.nbytes;
    bytes one = {malloc(size + 1), size}, two = {malloc(size + 1), size};
    ckpt_status status = one.data && two.data ? CKPT_OK : ckpt__migration_no_memory(err);
    if (status == CKPT_OK && size && !ckpt__has_no_bytes(&x->tensors[a]))
        status = ckpt__read_tensor(m->reader->source, x, a, true, take, &one, err);
    if (status == CKPT_OK && size && !ckpt__has_no_bytes(&x->tensors[b]))
        status = ckpt__read_tensor(m->reader->source, x, b, true, take, &two, err);
    *same = status == CKPT_OK && ckpt__has_no_bytes(&x->tensors[a]) == ckpt__has_no_bytes(&x->tensors[b]) &&
            (ckpt__has_no_bytes(&x->tensors[a]) || memcmp(one.data, two.data, size) == 0);
    free(one.data);
    free(two.data);
    return status;
}

static ckpt_status same_value(const ckpt__migration *m, const ckpt_value *a, const ckpt_value *b, bool *same,
                              ckpt_error *err)
{
    numbers one = {.err = err}, two = {.err = err};
    ckpt_status status = CKPT_OK;
    *same = ckpt__value_alike(a, b);
    if (*same)
        status = (ckpt_status)ckpt_value_walk(a, 0, on_visit, &one, err);
    if (*same && status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(b, 0, on_visit, &two, err);
    *same = *same && status == CKPT_OK && one.count == two.count;
    for (size_t i = 0; *same && status == CKPT_OK && i < one.count; i++)
        status = same_tensor(m, one.items[i], two.items[i], same, err);
    free(one.items);
    free(two.items);
    return status;
}

static ckpt_status same_part(const ckpt__migration *m, const ckpt__rank_part *a, const ckpt__rank_part *b, bool *same,
                             ckpt_error *err)
{
    if (!a->value)
        return same_tensor(m, a->at, b->at, same, err);
    return same_value(m, a->value, b->value, same, err);
}

const ckpt_value *ckpt__rank_items(const ckpt__rank_part *part)
{
    const ckpt_value *v = part->value;
    if (v && v->kind == CKPT_V_LIST && v->item_count == 1 && v->items[0]->kind == CKPT_V_LIST)
        v = v->items[0]; /* a record of torch_dist: a list with the object */
    return v && v->kind == CKPT_V_LIST ? v : NULL;
}

static ckpt_status same_items(const ckpt__migration *m, const ckpt__rank_part *part, bool *same, ckpt_error *err)
{
    const ckpt_value *all = ckpt__rank_items(part);
    ckpt_status status = CKPT_OK;
    for (size_t i = 1; all && *same && status == CKPT_OK && i < all->item_count; i++)
        status = same_value(m, all->items[0], all->items[i], same, err);
    return status;
}

ckpt_status ckpt__rank_alike(const ckpt__migration *m, const ckpt__rank_states *found, const ckpt__rank_state *state,
                             bool *same, ckpt_error *err)
{
    const ckpt__rank_part *parts = found->parts + state->first;
    const bool lists =
        state->kind == CKPT__OF_GENERATORS && (state->form == CKPT__IN_GRID || state->form == CKPT__IN_FOLDERS);
    ckpt_status status = CKPT_OK;
    *same = (int64_t)state->count == state->ranks; /* a rank whose part is missing may have another */
    for (size_t i = 1; *same && status == CKPT_OK && i < state->count; i++)
        status = same_part(m, &parts[0], &parts[i], same, err);
    if (lists && *same && status == CKPT_OK)
        status = same_items(m, &parts[0], same, err);
    return status;
}
