/* engine/push_list.c - which bytes a push reads, in the order of the files, and in which ranges. */
#include <stdlib.h>
#include "engine/checked.h"
#include "engine/nested.h"
#include "engine/push_priv.h"
#include "engine/stream.h"

enum { HOLE = 64 << 10 };

typedef struct making {
    const ckpt__plan *plan;
    const ckpt__push_want *want;
    ckpt__push_list *list;
    uint32_t storage; /* whose runs are added */
    uint64_t range;
    bool large; /* its parts have a CRC together */
} making;

static bool in_file(const ckpt__extent *e)
{
    return !e->memory;
}

static int by_place(const void *a, const void *b, void *ctx)
{
    const ckpt__index *x = ctx;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const ckpt__extent *e = &x->storages[i].extent, *f = &x->storages[k].extent;
    if (in_file(e) != in_file(f))
        return in_file(e) ? 1 : -1;
    if (in_file(e) && e->file != f->file)
        return e->file < f->file ? -1 : 1;
    if (in_file(e) && ckpt__extent_begin(e) != ckpt__extent_begin(f))
        return ckpt__extent_begin(e) < ckpt__extent_begin(f) ? -1 : 1;
    return i < k ? -1 : i > k;
}

static ckpt_status no_memory(const ckpt__push_list *l, ckpt_error *err)
{
    return ckpt__fail_memory(err, "ranges to be read", l->span_count * sizeof *l->spans);
}

/* A span behind the others: in the last unit, if it is of the same file and still has room. */
static ckpt_status add_span(making *m, uint64_t begin, uint64_t end, bool more, uint32_t large, ckpt_error *err)
{
    ckpt__push_list *l = m->list;
    const ckpt__index *x = ckpt__plan_source_index(m->plan);
    const ckpt__extent *e = ckpt__extent_known(x, m->storage), *last = NULL;
    if (!ckpt__grow(&l->spans, &l->span_capacity, l->span_count + 1, sizeof *l->spans))
        return no_memory(l, err);
    ckpt__push_unit *u = l->unit_count ? &l->units[l->unit_count - 1] : NULL;
    if (u)
        last = ckpt__extent_known(x, l->spans[u->first].storage);
    if (!u || u->bytes + (end - begin) > m->range || in_file(e) != in_file(last) ||
        (in_file(e) && e->file != last->file)) {
        if (!ckpt__grow(&l->units, &l->unit_capacity, l->unit_count + 1, sizeof *l->units))
            return no_memory(l, err);
        u = &l->units[l->unit_count++];
        *u = (ckpt__push_unit){.first = l->span_count};
    }
    l->spans[l->span_count++] =
        (ckpt__push_span){.begin = begin, .end = end, .storage = m->storage, .more = more, .large = large};
    u->end = l->span_count;
    u->bytes += end - begin;
    l->bytes += end - begin;
    return CKPT_OK;
}

static ckpt_status check_before(const making *m, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(m->plan);
    ckpt_str own = x->storages[m->storage].name;
    char name[200];
    return ckpt__check_storage(
        m->want->source, x, m->storage, UINT64_MAX,
        ckpt__escape(name, sizeof name, own.data ? own.data : "storage", own.data ? own.size : strlen("storage")), err);
}

static ckpt_status add_run(void *ctx, uint64_t begin, uint64_t end, ckpt_error *err)
{
    making *m = ctx;
    ckpt__push_list *l = m->list;
    const ckpt__extent *e = ckpt__extent_known(ckpt__plan_source_index(m->plan), m->storage);
    bool cut = in_file(e) && e->coding == CKPT__STORED && end - begin > m->range;
    uint32_t large = UINT32_MAX;
    ckpt_status status = m->want->check && ckpt__is_asked_before(e) ? check_before(m, err) : CKPT_OK;
    if (cut && m->large) {
        if (l->large_count == UINT32_MAX ||
            !ckpt__grow(&l->larges, &l->large_capacity, l->large_count + 1, sizeof *l->larges))
            return no_memory(l, err);
        large = (uint32_t)l->large_count++;
        l->larges[large] = (ckpt__push_large){.first = l->span_count};
    }
    for (uint64_t at = begin, n; status == CKPT_OK && at < end; at += n) {
        n = cut && end - at > m->range ? m->range : end - at;
        status = add_span(m, at, at + n, at + n < end, large, err);
    }
    if (large != UINT32_MAX)
        l->larges[large].count = l->larges[large].left = l->span_count - l->larges[large].first;
    return status;
}

/* A storage that is read from end to end, whatever is used of it. */
static ckpt_status add_all(void *ctx, uint64_t begin, uint64_t end, ckpt_error *err)
{
    (void)begin;
    (void)end;
    (void)err;
    *(bool *)ctx = true;
    return CKPT_OK;
}

/* The runs of one storage that are read. Where a record holds its bytes, the record is looked into first. */
static ckpt_status add_storage(making *m, const ckpt__push_want *want, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(m->plan);
    const ckpt__extent *e = &x->storages[m->storage].extent;
    bool used = false;
    ckpt_status status = CKPT_OK;
    if (e->coding == CKPT__NESTED) {
        status = ckpt__plan_source_runs(m->plan, m->storage, UINT64_MAX, add_all, &used, err);
        if (status == CKPT_OK && used)
            status = ckpt__extent_find(want->source, x, m->storage, &e, err);
        if (status < 0 || !used)
            return status;
    }
    m->large = want->check && ckpt__has_crc_of_its_own(e) && !e->missing;
    if (!m->large && (e->memory || e->coding == CKPT__STORED))
        return ckpt__plan_source_runs(m->plan, m->storage, HOLE, add_run, m, err);
    status = ckpt__plan_source_runs(m->plan, m->storage, UINT64_MAX, add_all, &used, err);
    return status == CKPT_OK && used ? add_run(m, 0, e->size, err) : status;
}

ckpt_status ckpt__push_list_make(const ckpt__push_want *want, uint64_t range, ckpt__push_list *list, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(want->plan);
    memset(list, 0, sizeof *list);
    uint32_t *order = malloc((x->storage_count + 1) * sizeof *order);
    if (!order)
        return ckpt__fail_memory(err, "ranges to be read", x->storage_count * sizeof *order);
    for (uint32_t i = 0; i < x->storage_count; i++)
        order[i] = i;
    if (x->storage_count)
        qsort_r(order, x->storage_count, sizeof *order, by_place, (void *)(uintptr_t)x);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++) {
        making m = {.plan = want->plan, .want = want, .list = list, .storage = order[i], .range = range};
        status = add_storage(&m, want, err);
    }
    free(order);
    if (status < 0)
        ckpt__push_list_free(list);
    return status;
}

void ckpt__push_list_free(ckpt__push_list *l)
{
    free(l->spans);
    free(l->larges);
    free(l->units);
    memset(l, 0, sizeof *l);
}

/* A CRC of the tensor's that its storage's does not tell. */
static bool has_own_crc(const ckpt__index *x, const ckpt__tensor *t)
{
    const ckpt__extent *e = t->whole ? &x->storages[t->storage].extent : NULL;
    return t->has_crc && !(e && e->has_crc && e->crc == t->crc && t->info.offset == 0 && t->info.nbytes == e->size);
}

ckpt_status ckpt__push_check_tensors(const ckpt__plan *plan, const ckpt__source *source, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(plan);
    unsigned char *seen = calloc(x->tensor_count / 8 + 1, 1);
    ckpt_status status = seen ? CKPT_OK : ckpt__fail_memory(err, "ranges to be read", x->tensor_count / 8);
    for (size_t i = 0; status == CKPT_OK && i < ckpt__plan_bond_count(plan); i++) {
        const ckpt__bond *b = ckpt__plan_bond(plan, i);
        if (b->flags & CKPT__BOND_STORAGE || seen[b->from / 8] >> (b->from % 8) & 1)
            continue;
        seen[b->from / 8] |= (unsigned char)(1u << (b->from % 8));
        if (has_own_crc(x, &x->tensors[b->from]))
            status = ckpt__read_tensor(source, x, b->from, true, NULL, NULL, err);
    }
    free(seen);
    return status;
}
