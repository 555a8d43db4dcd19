/* migrate/bytes_slices.c - what conversions cost of tensors that several files have in ranges: counted for each range, so that a range that
 * two files have counts once, and a run that goes on with finished files knows their part. An example: a tensor of 12 values is
 * converted, and cut for 3 ranks. Its slices are its values 0 to 4, 4 to 8 and 8 to 12; the first file's record in the journal has the
 * counts of the first. Where all of the tensor is put together in one window (it is small, or its elements lie strided), it is counted
 * whole, and each of the three records has that. */
#include <stdlib.h>
#include "migrate/bytes_priv.h"

static bool converts(const ckpt__bytes *b, size_t number)
{
    const ckpt__bond *bond = &b->bonds[number];
    return !(bond->flags & CKPT__BOND_STORAGE) && b->wants[bond->op].from != b->wants[bond->op].to;
}

static int by_place(const void *a, const void *b)
{
    const ckpt__slice *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : 0;
}

static ckpt_status add_ranges(ckpt__bytes *b, const ckpt__recipe *r, size_t *capacity, ckpt_error *err)
{
    for (size_t i = 0; i < r->count; i++) {
        const ckpt__segment *s = &r->segments[i];
        if (s->kind != CKPT__RANGE || !converts(b, r->ranges[s->number].number))
            continue;
        const ckpt__range *range = &r->ranges[s->number];
        if (!ckpt__grow(&b->slices, capacity, b->slice_count + 1, sizeof *b->slices))
            return ckpt__migration_no_memory(err);
        b->slices[b->slice_count++] =
            (ckpt__slice){.number = range->number, .begin = range->begin, .end = range->begin + s->size};
    }
    return CKPT_OK;
}

ckpt_status ckpt__slices_list(ckpt__bytes *b, const ckpt__out *w)
{
    size_t capacity = 0, kept = 0;
    ckpt_status status = CKPT_OK;
    if (!b->converts || !b->ranges)
        return CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        if (w->files[i].recipe)
            status = add_ranges(b, w->files[i].recipe, &capacity, w->err);
    if (status < 0 || !b->slice_count)
        return status;
    qsort(b->slices, b->slice_count, sizeof *b->slices, by_place);
    for (size_t i = 1; i < b->slice_count; i++) {
        const ckpt__slice *last = &b->slices[kept];
        const ckpt__slice *s = &b->slices[i];
        if (by_place(last, s) == 0)
            continue;
        b->slices_meet |= s->number == last->number && s->begin < last->end;
        b->slices[++kept] = *s;
    }
    b->slice_count = kept + 1;
    return CKPT_OK;
}

ckpt__slice *ckpt__slice_at(const ckpt__bytes *b, size_t number, uint64_t at)
{
    size_t low = 0, high = b->slice_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ckpt__slice *s = &b->slices[middle];
        if (s->number < number || (s->number == number && s->end <= at))
            low = middle + 1;
        else
            high = middle;
    }
    ckpt__slice *s = low < b->slice_count ? &b->slices[low] : NULL;
    return s && s->number == number && s->begin <= at ? s : NULL;
}

static void add(ckpt__convert_counts *to, const ckpt__convert_counts *n)
{
    to->elements += n->elements;
    to->inexact += n->inexact;
    to->out_of_range += n->out_of_range;
    to->nan += n->nan;
}

void ckpt__slice_count(ckpt__slice *s, uint64_t at, const ckpt__convert_counts *n)
{
    if (at == s->begin) /* what is read again is counted again */
        s->n = (ckpt__convert_counts){0, 0, 0, 0};
    add(&s->n, n);
}

ckpt__convert_counts ckpt__slices_sum(const ckpt__bytes *b, size_t number)
{
    ckpt__convert_counts sum = b->counts[number];
    if (sum.elements || !b->slice_count)
        return sum;
    for (ckpt__slice *s = ckpt__slice_at(b, number, 0), *end = b->slices + b->slice_count;
         s && s < end && s->number == number; s++)
        add(&sum, &s->n);
    return sum;
}
