/* restore/shared.c - do two states of one restore share memory? A state alone is held against itself when it is bound
 * (state/overlap.c). */
#include "restore/restoration.h"

#include <stdlib.h>

/* The memory of one binding that the restore leaves where it is. One address space has host and devices. */
typedef struct place {
    uintptr_t begin, end;  /* addresses of the first byte, and past the last */
    size_t state, binding; /* whose it is, as in ckpt__owner */
} place;

static int by_begin(const void *a, const void *b)
{
    const place *p = a, *q = b;
    if (p->begin != q->begin)
        return p->begin < q->begin ? -1 : 1;
    if (p->state != q->state)
        return p->state < q->state ? -1 : 1;
    return p->binding < q->binding ? -1 : p->binding > q->binding;
}

static const ckpt__binding *binding_of(const ckpt__restorer *r, const place *p)
{
    return &r->sides[p->state].state->bindings[p->binding];
}

static bool same_elements(const ckpt__binding *a, const ckpt__binding *b)
{
    bool same = a->data == b->data && a->dtype == b->dtype && ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim);
    for (uint32_t i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == 1 || a->strides[i] == b->strides[i];
    return same;
}

static bool is_written(const ckpt__item *item)
{
    return item->tensor != CKPT__NOTHING || item->entry != CKPT__NOTHING || item->fate == CKPT__ZEROED;
}

/* Do both states want the same bytes there? Replicas may have one step together. */
static bool agree(ckpt__restorer *r, const place *p, const place *q)
{
    const ckpt__target_state *x = &r->sides[p->state], *y = &r->sides[q->state];
    const ckpt__item *one = &x->items[p->binding], *two = &y->items[q->binding];
    unsigned char a[16] = {0}, b[16] = {0};
    if (!is_written(one) && !is_written(two))
        return true;
    if (is_written(one) != is_written(two) || one->tensor != two->tensor ||
        !same_elements(binding_of(r, p), binding_of(r, q)))
        return false;
    if (one->tensor != CKPT__NOTHING)
        return true;
    bool number = ckpt__restore_number_of(r, x, p->binding, a);
    return number == ckpt__restore_number_of(r, y, q->binding, b) && memcmp(a, b, sizeof a) == 0;
}

static ckpt_status note(ckpt__restorer *r, const place *p, const place *other, ckpt_error *err)
{
    const char *name = binding_of(r, p)->name.data, *of = binding_of(r, other)->name.data;
    return ckpt__target_note(&r->sides[p->state], CKPT_SEVERITY_ERROR, "overlap", name,
                             "give each state memory of its own; one place of two states has one dtype, shape and "
                             "strides, and gets one tensor of the checkpoint",
                             err, "its memory in states[%zu] overlaps that of '%s' in states[%zu]", p->state, of,
                             other->state);
}

static ckpt_status compare(ckpt__restorer *r, const place *p, const place *q, bool *wrong, ckpt_error *err)
{
    if (p->state == q->state || agree(r, p, q))
        return CKPT_OK;
    int hit = ckpt__bindings_touch(binding_of(r, p), binding_of(r, q));
    if (hit <= 0)
        return hit < 0 ? ckpt__fail_memory(err, "overlap check", 0) : CKPT_OK;
    ckpt_status status = note(r, p, q, err);
    *wrong = true;
    return status == CKPT_OK ? note(r, q, p, err) : status;
}

/* All that stays where it is, by address. */
static size_t gather(const ckpt__restorer *r, place *places)
{
    size_t n = 0;
    for (size_t k = 0; k < r->count; k++)
        for (size_t i = 0; i < r->sides[k].state->count; i++) {
            const ckpt__binding *b = &r->sides[k].state->bindings[i];
            uintptr_t begin = (uintptr_t)b->data;
            if (b->data && b->span && !ckpt__restore_is_new(&r->sides[k], i))
                places[n++] = (place){begin, begin + (uintptr_t)b->span, k, i};
        }
    if (n)
        qsort(places, n, sizeof *places, by_begin);
    return n;
}

ckpt_status ckpt__restore_shared(ckpt__restorer *r, ckpt_error *err)
{
    size_t most = 0;
    bool wrong = false;
    for (size_t k = 0; k < r->count; k++)
        most += r->sides[k].state->count;
    if (r->count < 2 || !most)
        return CKPT_OK;
    place *places = malloc(most * sizeof *places);
    ckpt_status status = places ? CKPT_OK : ckpt__fail_memory(err, "overlap check", most * sizeof *places);
    size_t n = places ? gather(r, places) : 0;
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        for (size_t k = i + 1; status == CKPT_OK && k < n && places[k].begin < places[i].end; k++)
            status = compare(r, &places[i], &places[k], &wrong, err);
    free(places);
    for (size_t k = 0; status == CKPT_OK && wrong && k < r->count; k++)
        if (ckpt_report_worst(r->sides[k].report) == CKPT_SEVERITY_ERROR)
            status = ckpt__report_fail(r->sides[k].report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, r->path, err);
    return status;
}
