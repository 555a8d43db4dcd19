/* engine/crcs.c - ranges with their CRCs, put together until they are a storage. */
#include "engine/crcs.h"

#include <pthread.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "model/nested.h"

enum { RANGES = 64 }; /* of a storage that are kept: one whose ranges come in no order at all is read again */

typedef struct range {
    uint64_t begin, end; /* bytes of the storage or span */
    uint32_t crc;        /* of these */
} range;

/* A storage, or a span, of which some bytes were read. */
typedef struct part {
    uint32_t storage; /* of a span: the one that was read first */
    uint32_t span;    /* 1 and the span's number; 0: it is a storage */
    uint32_t bond;    /* that read it first: its name is for messages */
    uint32_t count;
    bool lost;            /* too many ranges: it is read again at the end */
    range ranges[RANGES]; /* ascending; no two lie side by side */
} part;

struct ckpt__crcs {
    const ckpt__plan *plan; /* borrowed */
    part **parts;           /* heap, owned: the storages that were begun, in no order */
    size_t count, capacity;
    size_t last; /* number of the one that was looked for last: the next is it, or stands behind it, as a rule */
    uint64_t
        *sums; /* heap, owned: of each storage the bytes that the bonds read, then of each span; NULL: not asked yet */
    bool no_sums;   /* there was no memory for them */
    bool doubt_all; /* of the storages that are read any may not have been compared: all are read at the end */
    bool shared;
    pthread_mutex_t lock; /* of all above, while it is shared */
};

ckpt__crcs *ckpt__crcs_new(const ckpt__plan *plan)
{
    ckpt__crcs *c = calloc(1, sizeof *c);
    if (c) {
        c->plan = plan;
        pthread_mutex_init(&c->lock, NULL);
    }
    return c;
}

void ckpt__crcs_free(ckpt__crcs *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++)
        free(c->parts[i]);
    free(c->parts);
    free(c->sums);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void ckpt__crcs_share(ckpt__crcs *c, bool shared)
{
    c->shared = shared;
}

static const ckpt__extent *extent_of(const ckpt__crcs *c, uint32_t storage)
{
    return ckpt__extent_known(ckpt__plan_source_index(c->plan), storage);
}

static const ckpt__extent *span_of(const ckpt__crcs *c, uint32_t number)
{
    return &ckpt__plan_source_index(c->plan)->spans[number].extent;
}

/* ---- what the plan shows */

static bool reads_all(const ckpt__crcs *c, uint32_t storage, const ckpt__bond *b)
{
    const ckpt__index *x = ckpt__plan_source_index(c->plan);
    if (b->flags & CKPT__BOND_STORAGE)
        return true;
    const ckpt__tensor *t = &x->tensors[b->from];
    return t->whole && t->info.offset == 0 && t->info.nbytes == x->storages[storage].extent.size &&
           ckpt__is_dense(t->info.shape, t->info.strides, t->info.ndim);
}

static void add_sum(const ckpt__crcs *c, uint32_t storage, uint64_t bytes)
{
    const ckpt__index *x = ckpt__plan_source_index(c->plan);
    const ckpt__extent *e = &x->storages[storage].extent;
    c->sums[storage] += bytes;
    if (e->spanned)
        c->sums[x->storage_count + e->span] += bytes;
}

/* The bytes that a bond reads of each storage. Those of a view with holes or repeats are not ranges: it reads none. */
static void add_bond(const ckpt__crcs *c, const ckpt__bond *b)
{
    const ckpt__index *x = ckpt__plan_source_index(c->plan);
    if (b->flags & CKPT__BOND_STORAGE)
        add_sum(c, b->from, x->storages[b->from].extent.size);
    const ckpt__tensor *t = b->flags & CKPT__BOND_STORAGE ? NULL : &x->tensors[b->from];
    for (size_t i = 0; t && i < ckpt__view_count(t); i++) {
        ckpt__view v = ckpt__view_of(x, t, i);
        const int64_t *shape = v.size ? v.size : t->info.shape;
        uint64_t elements = v.count, bytes;
        bool dense = v.flat || !v.strides || ckpt__is_dense(shape, v.strides, t->info.ndim);
        if (dense && !v.replica && (v.flat || ckpt__numel(shape, t->info.ndim, &elements)) &&
            ckpt__nbytes(elements, ckpt_dtype_bits(t->info.dtype), &bytes))
            add_sum(c, v.storage, bytes);
    }
}

static bool has_sums(ckpt__crcs *c)
{
    if (c->sums || c->no_sums)
        return c->sums != NULL;
    const ckpt__index *x = ckpt__plan_source_index(c->plan);
    c->sums = calloc(x->storage_count + x->span_count + 1, sizeof *c->sums);
    c->no_sums = !c->sums;
    for (size_t i = 0; c->sums && i < ckpt__plan_bond_count(c->plan); i++)
        if (ckpt__plan_bond_bytes(c->plan, i) != UINT64_MAX)
            add_bond(c, ckpt__plan_bond(c->plan, i));
    return c->sums != NULL;
}

static void lock(ckpt__crcs *c)
{
    if (c->shared)
        pthread_mutex_lock(&c->lock);
}

static void unlock(ckpt__crcs *c)
{
    if (c->shared)
        pthread_mutex_unlock(&c->lock);
}

bool ckpt__crcs_takes(ckpt__crcs *c, uint32_t storage, uint32_t bond)
{
    const ckpt__extent *e = extent_of(c, storage);
    if (ckpt__is_damaged(e))
        return false;
    if (reads_all(c, storage, ckpt__plan_bond(c->plan, bond)))
        return true;
    lock(c);
    bool all = has_sums(c) && c->sums[storage] == e->size;
    unlock(c);
    return all;
}

/* Twice its bytes are read where weights are made of masters that are kept, too: then the first pass over it is compared. */
bool ckpt__crcs_takes_span(ckpt__crcs *c, uint32_t storage)
{
    const ckpt__extent *e = extent_of(c, storage), *all = span_of(c, e->span);
    if (e->memory || all->memory || e->coding != CKPT__STORED || all->coding != CKPT__STORED || e->missing ||
        all->missing || e->file != all->file || ckpt__is_damaged(all) || e->offset < all->offset ||
        e->size > all->size || e->offset - all->offset > all->size - e->size)
        return false;
    lock(c);
    bool takes = has_sums(c) && c->sums[ckpt__plan_source_index(c->plan)->storage_count + e->span] >= all->size;
    unlock(c);
    return takes;
}

/* ---- ranges */

static part *find(ckpt__crcs *c, uint32_t storage, uint32_t span)
{
    for (size_t i = 0; i < c->count; i++) {
        size_t k = c->last + i < c->count ? c->last + i : c->last + i - c->count;
        if (c->parts[k]->span == span && (span || c->parts[k]->storage == storage)) {
            c->last = k;
            return c->parts[k];
        }
    }
    return NULL;
}

static part *begin(ckpt__crcs *c, uint32_t storage, uint32_t span, uint32_t bond, ckpt_error *err)
{
    part *p = find(c, storage, span);
    if (p)
        return p;
    p = ckpt__grow(&c->parts, &c->capacity, c->count + 1, sizeof *c->parts) ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        ckpt__fail_memory(err, "read buffer", sizeof *p);
        return NULL;
    }
    p->storage = storage;
    p->span = span;
    p->bond = bond;
    c->last = c->count;
    c->parts[c->count++] = p;
    return p;
}

static void end(ckpt__crcs *c, part *p)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->parts[i] == p)
            c->parts[i] = c->parts[--c->count];
    c->last = c->last < c->count ? c->last : 0;
    free(p);
}

/* Bytes that come again: what was known before is forgotten, and the range is the first of a new pass. */
static void put(part *p, range r)
{
    uint32_t i = p->count;
    while (i > 0 && p->ranges[i - 1].begin >= r.end)
        i--;
    if (i > 0 && p->ranges[i - 1].end > r.begin)
        i = p->count = 0;
    range *before = i > 0 ? &p->ranges[i - 1] : NULL, *behind = i < p->count ? &p->ranges[i] : NULL;
    if (before && before->end == r.begin) {
        before->crc = ckpt__crc32_combine(before->crc, r.crc, r.end - r.begin);
        before->end = r.end;
        if (behind && behind->begin == r.end) {
            before->crc = ckpt__crc32_combine(before->crc, behind->crc, behind->end - behind->begin);
            before->end = behind->end;
            memmove(behind, behind + 1, (--p->count - i) * sizeof *behind);
        }
    } else if (behind && behind->begin == r.end) {
        behind->crc = ckpt__crc32_combine(r.crc, behind->crc, behind->end - behind->begin);
        behind->begin = r.begin;
    } else if (p->count == RANGES)
        p->lost = true;
    else {
        memmove(&p->ranges[i + 1], &p->ranges[i], (p->count++ - i) * sizeof r);
        p->ranges[i] = r;
    }
}

static bool is_complete(const ckpt__crcs *c, const part *p)
{
    const ckpt__extent *e = p->span ? span_of(c, p->span - 1) : extent_of(c, p->storage);
    return !p->lost && p->count == 1 && p->ranges[0].begin == 0 && p->ranges[0].end == e->size;
}

static ckpt_status compare(const ckpt__crcs *c, const part *p, ckpt_error *err)
{
    const char *name = ckpt__plan_name_of(c->plan, p->bond);
    if (p->span)
        return ckpt__compare_span(ckpt__plan_source_index(c->plan), p->span - 1, p->ranges[0].crc, name, err);
    const ckpt__extent *e = extent_of(c, p->storage);
    ckpt__note_checked(e, p->ranges[0].crc == e->crc);
    return p->ranges[0].crc == e->crc ? CKPT_OK : ckpt__wrong_crc(p->ranges[0].crc, e->crc, name, err);
}

/* By one thread a range goes on with the CRC of the one that it continues: to combine two takes as long as some KiB. */
static ckpt_status add_alone(ckpt__crcs *c, part *p, uint64_t at, const void *data, size_t n, ckpt_error *err)
{
    range *last = p->count ? &p->ranges[p->count - 1] : NULL;
    if (last && last->end == at) {
        last->crc = ckpt__crc32(last->crc, data, n);
        last->end = at + n;
    } else
        put(p, (range){at, at + n, ckpt__crc32(0, data, n)});
    if (!is_complete(c, p))
        return CKPT_OK;
    ckpt_status status = compare(c, p, err);
    end(c, p);
    return status;
}

static ckpt_status add(ckpt__crcs *c, uint32_t storage, uint32_t span, uint32_t bond, uint64_t at, const void *data,
                       size_t n, ckpt_error *err)
{
    part *p;
    if (!c->shared)
        return (p = begin(c, storage, span, bond, err)) ? add_alone(c, p, at, data, n, err) : CKPT_E_NO_MEMORY;
    uint32_t crc = ckpt__crc32(0, data, n);
    lock(c);
    if ((p = begin(c, storage, span, bond, err)))
        put(p, (range){at, at + n, crc});
    unlock(c);
    return p ? CKPT_OK : CKPT_E_NO_MEMORY;
}

ckpt_status ckpt__crcs_add(ckpt__crcs *c, uint32_t storage, uint32_t bond, uint64_t at, const void *data, size_t n,
                           ckpt_error *err)
{
    return add(c, storage, 0, bond, at, data, n, err);
}

ckpt_status ckpt__crcs_add_span(ckpt__crcs *c, uint32_t storage, uint32_t bond, uint64_t at, const void *data, size_t n,
                                ckpt_error *err)
{
    const ckpt__extent *e = extent_of(c, storage), *all = span_of(c, e->span);
    if (ckpt__is_sound(all))
        return CKPT_OK;
    return add(c, storage, e->span + 1, bond, e->offset - all->offset + at, data, n, err);
}

static int by_storage(const void *a, const void *b)
{
    const part *x = *(part *const *)a, *y = *(part *const *)b;
    if (x->span != y->span)
        return x->span < y->span ? -1 : 1;
    return x->storage < y->storage ? -1 : x->storage > y->storage;
}

static void sort(ckpt__crcs *c)
{
    if (c->count > 1)
        qsort(c->parts, c->count, sizeof(part *), by_storage);
    c->last = 0;
}

ckpt_status ckpt__crcs_settle(ckpt__crcs *c, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t kept = 0;
    sort(c);
    for (size_t i = 0; i < c->count; i++) {
        part *p = c->parts[i];
        if (status == CKPT_OK && is_complete(c, p)) {
            status = compare(c, p, err);
            free(p);
        } else
            c->parts[kept++] = p;
    }
    c->count = kept;
    return status;
}

/* Of those that are not known to be sound by now. */
static ckpt_status check_all(ckpt__crcs *c, const ckpt__source *source, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(c->plan);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < ckpt__plan_bond_count(c->plan); i++) {
        const ckpt__bond *b = ckpt__plan_bond(c->plan, i);
        const bool storage = b->flags & CKPT__BOND_STORAGE;
        const ckpt__tensor *t = storage ? NULL : &x->tensors[b->from];
        for (size_t k = 0; status == CKPT_OK && k < (t ? ckpt__view_count(t) : 1); k++)
            status = ckpt__check_storage(source, x, t ? ckpt__view_of(x, t, k).storage : b->from, UINT64_MAX,
                                         ckpt__plan_name_of(c->plan, (uint32_t)i), err);
    }
    return status;
}

ckpt_status ckpt__crcs_finish(ckpt__crcs *c, const ckpt__source *source, ckpt_error *err)
{
    ckpt_status status = ckpt__crcs_settle(c, err);
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++)
        status = ckpt__check_storage(source, ckpt__plan_source_index(c->plan), c->parts[i]->storage, UINT64_MAX,
                                     ckpt__plan_name_of(c->plan, c->parts[i]->bond), err);
    return status == CKPT_OK && c->doubt_all ? check_all(c, source, err) : status;
}

/* ---- from one run to another */

enum { SAID = 16384 }; /* of storages: a longer list would be said again with each file */

void ckpt__crcs_say(const ckpt__crcs *c, ckpt__buf *text)
{
    if (c->doubt_all || c->count > SAID) {
        ckpt__buf_char(text, '*');
        return;
    }
    for (size_t i = 0; i < c->count; i++)
        ckpt__buf_printf(text, "%s%u:%u", i ? "," : "", (unsigned)c->parts[i]->storage, (unsigned)c->parts[i]->bond);
}

static bool take_number(const char **text, size_t most, uint32_t *number)
{
    uint64_t n = 0;
    const char *p = *text;
    while (*p >= '0' && *p <= '9' && n <= UINT32_MAX)
        n = n * 10 + (uint64_t)(*p++ - '0');
    bool any = p > *text;
    *text = p;
    *number = (uint32_t)n;
    return any && n < most;
}

ckpt_status ckpt__crcs_doubt(ckpt__crcs *c, const char *text, bool *understood, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(c->plan);
    const size_t bonds = ckpt__plan_bond_count(c->plan);
    uint32_t storage, bond;
    *understood = true;
    if (strcmp(text, "*") == 0) {
        c->doubt_all = true;
        return CKPT_OK;
    }
    while (*text) {
        *understood = take_number(&text, x->storage_count, &storage) && *text++ == ':' &&
                      take_number(&text, bonds, &bond) && (*text == '\0' || (*text == ',' && text[1]));
        if (!*understood)
            return CKPT_OK;
        text += *text == ',';
        const ckpt__extent *e = extent_of(c, storage);
        part *p = begin(c, storage, e->spanned ? e->span + 1 : 0, bond, err);
        if (!p)
            return CKPT_E_NO_MEMORY;
        p->lost = true; /* whatever of it is read again, all of it is read at the end */
    }
    return CKPT_OK;
}
