/* migrate/bytes.c - the bytes of a target: laid out, proved by one plan before the first is read, and read in the order of its files. */
#include "migrate/out.h"

#include <stdlib.h>
#include "engine/gather.h"
#include "engine/passes.h"
#include "engine/payload.h"
#include "engine/pull.h"
#include "model/nested.h"

/* In bytes. Tensors that are as small are read together, so many bytes at a time: one read for each takes longer than the copies. */
enum { SMALL = 16 << 10, TOGETHER = 1 << 20 };

typedef enum route {
    IN_ORDER, /* as it lies in the source: no window; its CRC is taken on the way */
    ALONE,    /* a window of it at a time, by the plan */
    AMONG     /* a small one: in one window with those behind it, by the plan */
} route;

struct ckpt__bytes {
    const ckpt__migration *m; /* borrowed */
    ckpt__bond *bonds;        /* heap, owned, as are all arrays: one a payload, in the order of the files */
    size_t count;
    ckpt__op *ops;
    ckpt__op_want *wants; /* one an op */
    size_t op_count, op_capacity, want_capacity;
    bool converts; /* an op does */
    ckpt__plan *plan;
    /* while it is read */
    uint64_t memory;              /* bytes that a window may take */
    ckpt__reader_payload *reader; /* of what lies in order */
    ckpt__payload ordered;
    ckpt__pull *pull;
    ckpt__convert_counts *counts;        /* one a bond; NULL: nothing is converted */
    ckpt__convert_counts *tensor_counts; /* one a tensor of the source; NULL likewise */
    size_t current;                      /* number of the bond that is read; SIZE_MAX: none */
    route route;                         /* its */
    size_t together;                     /* those from `current` up to this one are in the window, too; 0: none is */
    unsigned char *window;
    size_t room;        /* bytes of the window that is allocated */
    uint32_t window_of; /* a storage of the target: bytes [window_begin, window_end) of it are in the window */
    uint64_t window_begin, window_end;
};

/* ---- what each payload is made of */

static ckpt_status find_op(ckpt__bytes *b, const ckpt__op_want *want, const char *what, uint16_t *op, ckpt_error *err)
{
    for (size_t i = 0; i < b->op_count; i++) {
        const ckpt__op_want *w = &b->wants[i];
        if (w->from == want->from && w->to == want->to && w->from_swap == want->from_swap && w->conj == want->conj &&
            w->neg == want->neg && w->exact == want->exact) {
            *op = (uint16_t)i;
            return CKPT_OK;
        }
    }
    if (!ckpt__grow(&b->ops, &b->op_capacity, b->op_count + 1, sizeof *b->ops) ||
        !ckpt__grow(&b->wants, &b->want_capacity, b->op_count + 1, sizeof *b->wants))
        return ckpt__migration_no_memory(err);
    b->wants[b->op_count] = *want;
    b->converts |= want->from != want->to;
    *op = (uint16_t)b->op_count;
    ckpt_status status = ckpt__op_make(want, what, &b->ops[b->op_count], err); /* of dtypes and bits: never so many */
    b->op_count += status == CKPT_OK;
    return status;
}

static uint8_t swap_of(const ckpt__storage *s)
{
    return s->extent.big_endian && s->unit > 1 ? s->unit : 0;
}

static ckpt_status bond_storage(ckpt__bytes *b, const ckpt__laid *laid, ckpt__bond *bond, ckpt_error *err)
{
    const ckpt__storage *s = &b->m->from->storages[laid->from];
    uint8_t swap = swap_of(s);
    ckpt_dtype unit = swap == 2 ? CKPT_I16 : swap == 4 ? CKPT_I32 : CKPT_I64;
    const ckpt__op_want want = {.from = unit, .to = unit, .from_swap = swap};
    *bond = (ckpt__bond){laid->to, laid->from, CKPT__OP_BYTES, CKPT__BOND_STORAGE};
    return swap ? find_op(b, &want, s->name.data ? s->name.data : "a storage", &bond->op, err) : CKPT_OK;
}

/* Two values of four bits are two elements of float4 and one of float4_e2m1fn_x2: whoever has the former is seen as the latter,
 * in memory alone, as all is said of both by now. */
static ckpt_status see_pairs(const ckpt__migration *m, ckpt__tensor *four, const ckpt__tensor *pairs, ckpt_error *err)
{
    uint32_t n = pairs->info.ndim;
    int64_t *strides = ckpt__arena_array(m->index->arena, (size_t)n + 1, sizeof *strides);
    if (!strides)
        return ckpt__migration_no_memory(err);
    ckpt__c_strides(pairs->info.shape, n, strides);
    four->info.dtype = CKPT_F4_E2M1_X2;
    four->info.shape = pairs->info.shape;
    four->info.strides = strides;
    four->info.offset /= 2;
    return CKPT_OK;
}

static ckpt_status bond_tensor(ckpt__bytes *b, const ckpt__laid *laid, ckpt__bond *bond, ckpt_error *err)
{
    ckpt__tensor *from = &b->m->from->tensors[laid->from], *to = &b->m->index->tensors[laid->to];
    ckpt_status status = CKPT_OK;
    if (from->info.dtype == CKPT_F4 && to->info.dtype == CKPT_F4_E2M1_X2)
        status = see_pairs(b->m, from, to, err);
    else if (to->info.dtype == CKPT_F4 && from->info.dtype == CKPT_F4_E2M1_X2)
        status = see_pairs(b->m, to, from, err);
    if (status < 0)
        return status;
    bool converts = from->info.dtype != to->info.dtype, some = !ckpt__has_no_bytes(from);
    const ckpt__op_want want = {
        .from = from->info.dtype,
        .to = to->info.dtype,
        .from_swap = some ? swap_of(&b->m->from->storages[ckpt__view_of(b->m->from, from, 0).storage]) : 0,
        .conj = from->info.conj && !to->info.conj,
        .neg = from->info.neg && !to->info.neg,
        .exact = converts && to->info.role == CKPT_ROLE_STEP};
    *bond = (ckpt__bond){.to = laid->to, .from = laid->from};
    return find_op(b, &want, to->info.name.data, &bond->op, err);
}

static ckpt_status make_bonds(ckpt__bytes *b, const ckpt__laid *laid, size_t count, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (!(b->bonds = malloc((count + 1) * sizeof *b->bonds)))
        return ckpt__migration_no_memory(err);
    b->count = count;
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        status = laid[i].storage ? bond_storage(b, &laid[i], &b->bonds[i], err)
                                 : bond_tensor(b, &laid[i], &b->bonds[i], err);
    return status;
}

ckpt_status ckpt__bytes_plan(ckpt__out *w, ckpt__bytes **out)
{
    ckpt__migration *m = w->m;
    ckpt__bytes *b = calloc(1, sizeof *b);
    ckpt__recipe **recipes = calloc(w->count + 1, sizeof(ckpt__recipe *));
    ckpt__laid *laid = NULL;
    size_t count = 0;
    *out = b;
    ckpt_status status = b && recipes ? CKPT_OK : ckpt__migration_no_memory(w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        recipes[i] = w->files[i].recipe;
    if (status == CKPT_OK)
        status = ckpt__recipes_lay_out(recipes, w->count, m->index, m->from->storage_count, &laid, &count, w->err);
    free(recipes);
    if (status == CKPT_OK) {
        b->m = m;
        b->current = SIZE_MAX; /* nothing is behind it */
        status = make_bonds(b, laid, count, w->err);
    }
    free(laid);
    if (status < 0)
        return status;
    ckpt__plan_want want = {.from = m->from,
                            .to = m->index,
                            .bonds = b->bonds,
                            .bond_count = b->count,
                            .ops = b->ops,
                            .op_count = b->op_count,
                            .push = m->options.totals != NULL};
    return ckpt__plan_new(&want, &b->plan, w->err);
}

/* ---- reading it */

/* One coded storage that is not small would be decoded for it again and again. */
static bool has_coded(const ckpt__index *x, const ckpt__tensor *t)
{
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        const ckpt__extent *e = &x->storages[ckpt__view_of(x, t, i).storage].extent;
        if (!e->memory && e->coding != CKPT__STORED && e->size > SMALL)
            return true;
    }
    return false;
}

/* A CRC of the tensor is compared by whoever reads it in order; one of its storage by both. */
static bool has_own_crc(const ckpt__index *x, const ckpt__tensor *t)
{
    return t->has_crc && !(t->whole && x->storages[t->storage].extent.has_crc);
}

static route route_of(const ckpt__bytes *b, size_t number)
{
    const ckpt__bond *bond = &b->bonds[number];
    if (bond->flags & CKPT__BOND_STORAGE)
        return IN_ORDER;
    const ckpt__index *x = b->m->from;
    const ckpt__tensor *from = &x->tensors[bond->from], *to = &b->m->index->tensors[bond->to];
    bool kept = ckpt__is_c_order(to->info.shape, to->info.strides, to->info.ndim),
         in_order = from->whole && ckpt__is_c_order(from->info.shape, from->info.strides, from->info.ndim);
    if (kept && (has_own_crc(x, from) || has_coded(x, from)))
        return IN_ORDER;
    if (to->info.nbytes <= SMALL && from->info.nbytes <= SMALL)
        return AMONG;
    return in_order && kept ? IN_ORDER : ALONE;
}

static uint64_t begin_of(const ckpt__bytes *b, size_t number)
{
    const ckpt__index *x = b->m->index;
    return ckpt__view_of(x, &x->tensors[b->bonds[number].to], 0).at;
}

/* So many bytes of a tensor that is put together alone: whole slices, as what is turned lies in runs as long as a window has slices.
 * What is split lies in long runs as a rule. */
static uint64_t window_bytes(const ckpt__bytes *b, size_t number)
{
    const ckpt__tensor *t = &b->m->index->tensors[b->bonds[number].to];
    uint64_t least = CKPT__SCRATCH, room = b->memory > 2 * least ? b->memory - least : least;
    uint64_t size = ckpt_dtype_size(t->info.dtype), slice = size;
    if (!b->m->from->tensors[b->bonds[number].from].whole && room > CKPT__BLOCK)
        room = CKPT__BLOCK;
    if (t->info.nbytes <= room || !size)
        return t->info.nbytes <= room ? t->info.nbytes : room;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < t->info.ndim && !more; i++) {
            uint64_t n = (uint64_t)t->info.shape[i];
            more = n > 1 && (uint64_t)t->info.strides[i] == slice / size && n <= room / slice;
            slice *= more ? n : 1;
        }
    }
    return room / slice * slice;
}

/* Where the small ones end that lie behind `number` in the same storage, and fit. */
static uint64_t end_together(ckpt__bytes *b, size_t number)
{
    const ckpt__index *x = b->m->index;
    uint32_t storage = x->tensors[b->bonds[number].to].storage;
    uint64_t begin = begin_of(b, number), end = begin + x->tensors[b->bonds[number].to].info.nbytes,
             most = b->memory / 4 < TOGETHER ? b->memory / 4 : TOGETHER;
    size_t i = number + 1;
    for (; i < b->count && route_of(b, i) == AMONG; i++) {
        const ckpt__tensor *t = &x->tensors[b->bonds[i].to];
        uint64_t its = begin_of(b, i) + t->info.nbytes;
        if (t->storage != storage || its - begin > most)
            break;
        end = its;
    }
    b->together = i;
    return end;
}

static ckpt_status fill_window(ckpt__bytes *b, uint64_t begin, ckpt_error *err)
{
    const ckpt__tensor *t = &b->m->index->tensors[b->bonds[b->current].to];
    uint64_t end = begin_of(b, b->current) + t->info.nbytes;
    if (b->route == AMONG)
        end = end_together(b, b->current);
    else if (window_bytes(b, b->current) < end - begin)
        end = begin + window_bytes(b, b->current);
    b->window_begin = b->window_end = 0;
    if (end - begin > b->room) {
        free(b->window);
        b->room = (size_t)(end - begin);
        if (!(b->window = malloc(b->room))) {
            b->room = 0;
            return ckpt__migration_no_memory(err);
        }
    }
    ckpt_status status = ckpt__pull_bytes(b->pull, t->storage, begin, end, b->window, b->counts, err);
    if (status < 0)
        return status;
    b->window_of = t->storage;
    b->window_begin = begin;
    b->window_end = end;
    return CKPT_OK;
}

static void begin_payload(ckpt__bytes *b, size_t number)
{
    if (b->route == AMONG && number > b->current && number < b->together) {
        b->current = number;
        return;
    }
    b->current = number;
    b->together = 0;
    b->route = route_of(b, number);
    if (b->route != IN_ORDER)
        ckpt__payload_pause(b->reader);
    else if (b->room > TOGETHER) { /* the memory is the other's now */
        free(b->window);
        b->window = NULL;
        b->room = 0;
        b->window_begin = b->window_end = 0;
    }
}

static ckpt_status read_bytes(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                              ckpt_error *err)
{
    ckpt__bytes *b = ctx;
    unsigned char *to = dst;
    ckpt_status status = CKPT_OK;
    if (number != b->current || offset == 0)
        begin_payload(b, number);
    const ckpt__bond *bond = &b->bonds[number];
    kind = bond->flags & CKPT__BOND_STORAGE ? CKPT__STORAGE : CKPT__PAYLOAD;
    if (b->route == IN_ORDER)
        return b->ordered.read(b->ordered.ctx, kind, bond->from, offset, dst, n, err);
    uint64_t at = begin_of(b, number) + offset;
    uint32_t storage = b->m->index->tensors[bond->to].storage;
    while (status == CKPT_OK && n) {
        bool there = b->window_of == storage && at >= b->window_begin && at < b->window_end;
        size_t some = 0;
        if (!there)
            status = fill_window(b, at, err);
        if (status == CKPT_OK) {
            some = b->window_end - at < n ? (size_t)(b->window_end - at) : n;
            memcpy(to, b->window + (at - b->window_begin), some);
        }
        to += some;
        at += some;
        n -= some;
    }
    return status;
}

ckpt_status ckpt__bytes_open(ckpt__bytes *b, uint64_t memory, ckpt__payload *payload, ckpt_error *err)
{
    const ckpt__migration *m = b->m;
    const ckpt__source *source = m->reader->source;
    b->memory = memory;
    *payload = (ckpt__payload){.read = read_bytes, .ctx = b};
    if (b->converts && (!(b->counts = calloc(b->count + 1, sizeof *b->counts)) ||
                        !(b->tensor_counts = calloc(m->from->tensor_count + 1, sizeof *b->tensor_counts))))
        return ckpt__migration_no_memory(err);
    ckpt_status status = ckpt__pull_new(b->plan, source, true, SMALL, &b->pull, err);
    return status == CKPT_OK
               ? ckpt__payload_open(source, m->from, m->index, m->casts, memory, &b->reader, &b->ordered, err)
               : status;
}

const ckpt__convert_counts *ckpt__bytes_cast_counts(ckpt__bytes *b)
{
    for (size_t i = 0; b->counts && i < b->count; i++) {
        const ckpt__bond *bond = &b->bonds[i];
        if (bond->flags & CKPT__BOND_STORAGE)
            continue;
        if (route_of(b, i) == IN_ORDER)
            ckpt__payload_cast_counts(b->reader, bond->from, &b->tensor_counts[bond->from]);
        else
            b->tensor_counts[bond->from] = b->counts[i];
    }
    return b->tensor_counts;
}

uint64_t ckpt__bytes_memory(const ckpt__bytes *b)
{
    return b->count * sizeof *b->bonds + ckpt__plan_memory(b->plan);
}

/* ---- what it comes to */

/* One payload, as read_bytes reads it: in order, or in windows of it and of those behind it. */
static ckpt_status count_payload(ckpt__bytes *b, size_t number, ckpt__pass_pull *pull, ckpt__passes *passes,
                                 ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (number > b->current && number < b->together) { /* it is in the window */
        b->current = number;
        return CKPT_OK;
    }
    b->current = number;
    b->together = 0;
    route way = route_of(b, number);
    if (way == IN_ORDER)
        return ckpt__passes_in_order(passes, number, b->memory, err);
    const ckpt__tensor *t = &b->m->index->tensors[b->bonds[number].to];
    uint64_t begin = begin_of(b, number), end = begin + t->info.nbytes, some = window_bytes(b, number);
    if (way == AMONG)
        end = end_together(b, number), some = end - begin;
    for (; status == CKPT_OK && begin < end; begin += some)
        status = ckpt__passes_pull(passes, pull, t->storage, begin, end - begin < some ? end : begin + some, err);
    return status;
}

ckpt_status ckpt__bytes_passes(ckpt__bytes *b, const ckpt__out *w, uint64_t memory, ckpt__passes **out, ckpt_error *err)
{
    ckpt__pass_pull pull = {.memory = SMALL, .decoded = UINT32_MAX};
    ckpt_status status = ckpt__passes_new(b->plan, out, err);
    b->memory = memory;
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        const ckpt__recipe *r = w->files[i].recipe;
        for (size_t s = 0; r && status == CKPT_OK && s < r->count; s++)
            if (r->segments[s].kind == CKPT__STORAGE)
                status = count_payload(b, r->segments[s].number, &pull, *out, err);
    }
    b->current = SIZE_MAX;
    b->together = 0;
    return status;
}

const ckpt__plan *ckpt__bytes_plan_of(const ckpt__bytes *b)
{
    return b->plan;
}

static ckpt_status add_run(void *ctx, uint64_t begin, uint64_t end, ckpt_error *err)
{
    uint64_t *bytes = ctx;
    (void)err;
    *bytes += end - begin;
    return CKPT_OK;
}

/* How often a bond reads a coded storage. */
static uint64_t coded_reads(const ckpt__bytes *b, const ckpt__bond *bond)
{
    const ckpt__index *x = b->m->from;
    uint64_t reads = 0;
    if (bond->flags & CKPT__BOND_STORAGE)
        return ckpt__is_coded(ckpt__extent_known(x, bond->from));
    const ckpt__tensor *t = &x->tensors[bond->from];
    for (size_t i = 0; t->info.nbytes && i < ckpt__view_count(t); i++)
        reads += ckpt__is_coded(ckpt__extent_known(x, ckpt__view_of(x, t, i).storage));
    return reads;
}

ckpt_status ckpt__bytes_totals(const ckpt__bytes *b, ckpt_migrate_totals *out, ckpt_error *err)
{
    enum { HOLE = 16 << 10 };
    ckpt__plan_totals sums;
    ckpt_status status = CKPT_OK;
    ckpt__plan_totals_of(b->plan, &sums);
    *out = (ckpt_migrate_totals){.struct_size = sizeof *out,
                                 .bytes_in = sums.bytes_in,
                                 .bytes_out = sums.bytes_out,
                                 .copies = sums.meets,
                                 .replicas = sums.replicas};
    for (size_t i = 0; status == CKPT_OK && i < b->m->from->storage_count; i++) {
        const ckpt__extent *e = ckpt__extent_known(b->m->from, i);
        uint64_t used = 0;
        if (e->memory)
            continue;
        status = ckpt__plan_source_runs(b->plan, (uint32_t)i, HOLE, add_run, &used, err);
        out->bytes_read += used && ckpt__is_coded(e) ? e->length : used;
        out->coded += used && ckpt__is_coded(e);
    }
    for (size_t i = 0; i < b->count; i++)
        out->coded_reads += coded_reads(b, &b->bonds[i]);
    return status;
}

void ckpt__bytes_free(ckpt__bytes *b)
{
    if (!b)
        return;
    ckpt__pull_free(b->pull);
    ckpt__reader_payload_free(b->reader);
    ckpt__plan_free(b->plan);
    free(b->bonds);
    free(b->ops);
    free(b->wants);
    free(b->counts);
    free(b->tensor_counts);
    free(b->window);
    free(b);
}
