/* migrate/bytes_read.c - the bytes of a target, read in the order of its files: all by the plan. */
#include <stdlib.h>
#include "base/workers.h"
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/elements.h"
#include "engine/nested.h"
#include "engine/passes.h"
#include "engine/stream.h"
#include "migrate/bytes_priv.h"

/* In bytes. Tensors that are as small are read together, so many bytes at a time: one read for each takes longer than the copies. */
enum { SMALL = 16 << 10, TOGETHER = 1 << 20 };
/* What one thread makes at a time, and the writer asks one thread for; the least memory for each thread that reads. */
enum { PART = 256 << 10, FOR_THREAD = 2 << 20 };

/* ---- which way */

/* One coded storage that is not small would be decoded for it alone. */
static bool has_coded(const ckpt__index *x, const ckpt__tensor *t)
{
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        const ckpt__extent *e = &x->storages[ckpt__view_of(x, t, i).storage].extent;
        if (!e->memory && e->coding != CKPT__STORED && e->size > SMALL)
            return true;
    }
    return false;
}

static ckpt__route route_of(const ckpt__bytes *b, size_t number)
{
    const ckpt__bond *bond = &b->bonds[number];
    if (bond->flags & CKPT__BOND_STORAGE)
        return CKPT__STRAIGHT;
    const ckpt__index *x = b->m->from;
    const ckpt__tensor *from = &x->tensors[bond->from], *to = &b->m->index->tensors[bond->to];
    if (to->info.nbytes <= SMALL && from->info.nbytes <= SMALL && !has_coded(x, from))
        return CKPT__AMONG;
    return ckpt__plan_is_straight(b->plan, number) ? CKPT__STRAIGHT : CKPT__ALONE;
}

static uint64_t begin_of(const ckpt__bytes *b, size_t number)
{
    const ckpt__index *x = b->m->index;
    return ckpt__payload_begin(x, &x->tensors[b->bonds[number].to]);
}

/* May threads each read a part of it? What is coded is decoded by one. A storage with a CRC is not checked before by each of them, so
 * its parts have to be ranges of it. A record is looked into, as it is read next; what is wrong with one is said by the reading. */
static bool has_parts(const ckpt__bytes *b, const ckpt__bond *bond, ckpt__route route)
{
    const ckpt__index *x = b->m->from;
    const ckpt__tensor *t = bond->flags & CKPT__BOND_STORAGE ? NULL : &x->tensors[bond->from];
    bool can = route != CKPT__AMONG;
    for (size_t i = 0; can && i < (t ? ckpt__view_count(t) : 1); i++) {
        ckpt__view v = {.storage = bond->from};
        if (t)
            v = ckpt__view_of(x, t, i);
        const ckpt__extent *e;
        if (ckpt__extent_find(b->m->reader->source, x, v.storage, &e, NULL) < 0)
            return false;
        bool ranges = route == CKPT__STRAIGHT || (!t->whole && !v.strides);
        can = (e->memory || e->coding == CKPT__STORED) && (ranges || !e->has_crc || ckpt__is_sound(e));
    }
    return can;
}

/* ---- windows */

/* What a thread that reads may keep of a coded storage. Two boxes of a tensor have parts of the same one, each of them to its end. */
static uint64_t decoded_memory(const ckpt__bytes *b)
{
    const uint64_t share = b->memory / 2 / b->pull_count;
    return b->m->index->piece_count && share > SMALL ? share : SMALL;
}

/* So many bytes of a tensor that is put together alone: whole slices, as what is turned lies in runs as long as a window has slices.
 * What is split lies in long runs as a rule. */
static uint64_t window_bytes(const ckpt__bytes *b, size_t number)
{
    const ckpt__tensor *t = &b->m->index->tensors[b->bonds[number].to];
    uint64_t taken = b->pull_count * ((uint64_t)CKPT__SCRATCH + decoded_memory(b)), least = CKPT__SCRATCH;
    uint64_t room = b->memory > taken + least ? b->memory - taken : least;
    uint64_t size = ckpt_dtype_size(t->info.dtype), slice = size;
    if (!b->m->from->tensors[b->bonds[number].from].whole && room > CKPT__BLOCK)
        room = CKPT__BLOCK;
    if (t->info.nbytes <= room || !size || ckpt__is_split(t))
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

/* The window from `begin` on ends here, or with the payload: whole slices of the box that begins there or before, and no other box. Another
 * box is another file's, as a rule, which is not written at this time. */
static uint64_t window_end(const ckpt__bytes *b, size_t number, uint64_t begin)
{
    const ckpt__index *x = b->m->index;
    const ckpt__tensor *t = &x->tensors[b->bonds[number].to];
    const uint64_t some = window_bytes(b, number), size = ckpt_dtype_size(t->info.dtype);
    if (!ckpt__is_split(t) || !some)
        return begin + some;
    size_t low = 0, high = t->piece_count; /* the last one that begins at `begin` or before */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(x->pieces[t->first_piece + middle].at <= begin ? &low : &high) = middle;
    }
    const ckpt__piece *p = &x->pieces[t->first_piece + low];
    const int64_t *sizes = p->box + t->info.ndim;
    uint64_t volume = 0, slice = size;
    (void)ckpt__numel(sizes, t->info.ndim, &volume);
    for (uint32_t d = t->info.ndim; d-- > 0 && (uint64_t)sizes[d] <= some / slice;)
        slice *= (uint64_t)sizes[d];
    const uint64_t end = p->at + volume * size, whole = some / slice * slice;
    return end - begin < whole ? end : begin + whole;
}

/* Where the small ones end that lie behind `number` in the same storage, and fit. */
static uint64_t end_together(ckpt__bytes *b, size_t number)
{
    const ckpt__index *x = b->m->index;
    uint64_t begin = b->begin, end = begin + b->size, most = b->memory / 4 < TOGETHER ? b->memory / 4 : TOGETHER;
    size_t i = number + 1;
    for (; i < b->count && route_of(b, i) == CKPT__AMONG; i++) {
        const ckpt__tensor *t = &x->tensors[b->bonds[i].to];
        uint64_t its = begin_of(b, i) + t->info.nbytes;
        if (t->storage != b->storage || its - begin > most)
            break;
        end = its;
        if (b->counts)
            memset(&b->counts[i], 0, sizeof *b->counts);
    }
    b->together = i;
    return end;
}

typedef struct parts {
    ckpt__bytes *b;
    uint64_t begin, end, step; /* bytes of the target's storage; of a part */
    unsigned char *to;
    size_t lowest; /* of the parts that failed; atomic */
} parts;

static ckpt_status pull_part(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    parts *p = ctx;
    uint64_t at = unit * p->step, begin = p->begin + at, end = p->end - begin > p->step ? begin + p->step : p->end;
    ckpt_status status =
        ckpt__pull_bytes(p->b->pulls[worker], p->b->storage, begin, end, p->to + at, p->b->counts, err);
    size_t lowest = __atomic_load_n(&p->lowest, __ATOMIC_RELAXED);
    while (status < 0 && unit < lowest &&
           !__atomic_compare_exchange_n(&p->lowest, &lowest, unit, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return status;
}

/* Bytes [begin, end) of the target's storage. Made in parts, the CRC of a storage is compared when all parts are there. One thread
 * compares it before it converts the last part: so an error of that part comes after it here, too. */
static ckpt_status pull(ckpt__bytes *b, uint64_t begin, uint64_t end, void *to, ckpt_error *err)
{
    parts p = {.b = b, .begin = begin, .end = end, .step = PART, .to = to};
    ckpt_error wrong = CKPT_ERROR_INIT;
    if (b->route == CKPT__ALONE && (end - begin) / b->pull_count > PART) /* its runs are as long as a part has slices */
        p.step = ((end - begin) / b->pull_count + PART - 1) / PART * PART;
    size_t units = (size_t)((end - begin + p.step - 1) / p.step);
    if (!b->parts || b->pull_count == 1 || units < 2)
        return ckpt__pull_bytes(b->pulls[0], b->storage, begin, end, to, b->counts, err);
    p.lowest = units;
    ckpt__crcs_share(b->crcs, true);
    ckpt_status status = ckpt__workers_run(b->pull_count, units, pull_part, &p, err);
    ckpt__crcs_share(b->crcs, false);
    ckpt_status settled = status == CKPT_OK || p.lowest + 1 == units ? ckpt__crcs_settle(b->crcs, &wrong) : CKPT_OK;
    if (settled < 0 && err)
        *err = wrong;
    return settled < 0 ? settled : status;
}

/* The same, of the current payload; where it is counted by slices, the bytes are of one. */
static ckpt_status pull_slice(ckpt__bytes *b, uint64_t begin, uint64_t end, void *to, ckpt_error *err)
{
    ckpt__slice *s = b->counts ? ckpt__slice_at(b, b->current, begin - b->begin) : NULL;
    if (!s)
        return pull(b, begin, end, to, err);
    ckpt__convert_counts *counts = &b->counts[b->current], whole = *counts;
    memset(counts, 0, sizeof *counts);
    ckpt_status status = pull(b, begin, end, to, err);
    ckpt__slice_count(s, begin - b->begin, counts);
    *counts = whole;
    return status;
}

/* Is the current payload, of which files have ranges, put together whole all the same? Its elements lie strided: part by part, the bytes
 * between them would be read each time. */
static bool is_filled_whole(const ckpt__bytes *b)
{
    const ckpt__tensor *from = &b->m->from->tensors[b->bonds[b->current].from],
                       *to = &b->m->index->tensors[b->bonds[b->current].to];
    return from->whole && !ckpt__is_split(to) &&
           !ckpt__is_c_order(from->info.shape, from->info.strides, from->info.ndim) &&
           window_bytes(b, b->current) >= b->size;
}

/* Which bytes are put together for byte `*begin`, and are they counted for all of the payload? */
static bool bound_window(ckpt__bytes *b, uint64_t *begin, uint64_t *end)
{
    const uint64_t all = b->begin + b->size, most = window_end(b, b->current, *begin);
    const ckpt__slice *s = b->counts ? ckpt__slice_at(b, b->current, *begin - b->begin) : NULL;
    if (b->route == CKPT__AMONG || (s && is_filled_whole(b))) {
        *begin = b->begin;
        *end = b->route == CKPT__AMONG ? end_together(b, b->current) : all;
        if (b->counts)
            memset(&b->counts[b->current], 0, sizeof *b->counts);
        return true;
    }
    *end = s ? b->begin + s->end : all;
    *end = most < *end ? most : *end;
    return !s;
}

static ckpt_status fill_window(ckpt__bytes *b, uint64_t begin, ckpt_error *err)
{
    uint64_t end;
    const bool whole = bound_window(b, &begin, &end);
    b->window_begin = b->window_end = 0;
    if (end - begin > b->room) {
        free(b->window);
        b->room = (size_t)(end - begin);
        if (!(b->window = malloc(b->room))) {
            b->room = 0;
            return ckpt__migration_no_memory(err);
        }
    }
    ckpt_status status = whole ? pull(b, begin, end, b->window, err) : pull_slice(b, begin, end, b->window, err);
    if (status < 0)
        return status;
    b->window_of = b->storage;
    b->window_begin = begin;
    b->window_end = end;
    return CKPT_OK;
}

static ckpt_status read_window(ckpt__bytes *b, uint64_t offset, unsigned char *to, size_t n, ckpt_error *err)
{
    uint64_t at = b->begin + offset;
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && n) {
        bool there = b->window_of == b->storage && at >= b->window_begin && at < b->window_end;
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

/* ---- straight into the block */

/* Whole elements. One that the read cuts is made once, and the rest of it given by the next read. */
static ckpt_status read_straight(ckpt__bytes *b, uint64_t offset, unsigned char *to, size_t n, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && n) {
        uint64_t cut = offset % b->unit, left = b->size - offset;
        size_t some = 0;
        if (offset >= b->carry_begin && offset < b->carry_end) {
            some = b->carry_end - offset < n ? (size_t)(b->carry_end - offset) : n;
            memcpy(to, b->carry + (offset - b->carry_begin), some);
        } else if (cut == 0 && (n >= b->unit || n == left)) {
            some = n == left ? n : n - n % b->unit; /* a storage may end within an element */
            status = pull_slice(b, b->begin + offset, b->begin + offset + some, to, err);
        } else {
            b->carry_begin = offset - cut;
            b->carry_end = b->carry_begin + (left + cut < b->unit ? left + cut : b->unit);
            status = pull_slice(b, b->begin + b->carry_begin, b->begin + b->carry_end, b->carry, err);
        }
        to += some;
        offset += some;
        n -= some;
    }
    return status;
}

/* ---- payloads */

/* A CRC of the tensor that its storage's does not tell: of its elements in C order, little-endian. Where they are given so it is taken
 * on the way, else before. */
static bool has_own_crc(const ckpt__bytes *b, const ckpt__bond *bond, bool *on_the_way)
{
    const ckpt__index *x = b->m->from;
    const ckpt__op *op = ckpt__plan_op_of(b->plan, bond->op);
    *on_the_way = true;
    if (bond->flags & CKPT__BOND_STORAGE)
        return false;
    const ckpt__tensor *from = &x->tensors[bond->from];
    const ckpt_tensor_info *to = &b->m->index->tensors[bond->to].info;
    *on_the_way = op->from == op->to && !op->flips && !op->negate && to->strides &&
                  ckpt__is_c_order(to->shape, to->strides, to->ndim);
    return from->has_crc && !(from->whole && x->storages[from->storage].extent.has_crc);
}

/* Which it is, where it lies and how it is read. True: it is in the window with the one before. */
static bool find_place(ckpt__bytes *b, size_t number)
{
    const ckpt__bond *bond = &b->bonds[number];
    const ckpt__index *x = b->m->index;
    bool storage = bond->flags & CKPT__BOND_STORAGE;
    bool among = b->route == CKPT__AMONG && number > b->current && number < b->together;
    b->current = number;
    b->storage = storage ? bond->to : x->tensors[bond->to].storage;
    b->begin = storage ? 0 : begin_of(b, number);
    b->size = storage ? x->storages[bond->to].extent.size : x->tensors[bond->to].info.nbytes;
    if (!among) {
        b->together = 0;
        b->route = route_of(b, number);
    }
    return among;
}

/* kind RANGE: some of it is asked for now, from anywhere, and other parts later. */
static ckpt_status begin_payload(ckpt__bytes *b, ckpt__segment_kind kind, size_t number, ckpt_error *err)
{
    const ckpt__bond *bond = &b->bonds[number];
    const ckpt__op *op = ckpt__plan_op_of(b->plan, bond->op);
    const bool range = kind == CKPT__RANGE, first = !range || !b->checked[number];
    bool on_the_way, among = find_place(b, number), own = has_own_crc(b, bond, &on_the_way);
    b->crc = 0;
    b->sums = own && on_the_way && !range;
    if (own && !b->sums && first) {
        ckpt_status status = ckpt__read_tensor(b->m->reader->source, b->m->from, bond->from, true, NULL, NULL, err);
        if (status < 0)
            return status;
    }
    if (range)
        b->checked[number] = true;
    if (among)
        return CKPT_OK;
    b->parts = b->pull_count > 1 && has_parts(b, bond, b->route);
    b->unit = op->granule > 1 ? 1 : op->to_size;
    b->carry_begin = b->carry_end = 0;
    b->window_begin = b->window_end = 0; /* what is read again is counted again */
    if (b->counts && !range)
        memset(&b->counts[number], 0, sizeof *b->counts);
    if (b->route == CKPT__STRAIGHT && b->room > TOGETHER) { /* so much is not kept where it is not used */
        free(b->window);
        b->window = NULL;
        b->room = 0;
    }
    return CKPT_OK;
}

static ckpt_status read_bytes(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                              ckpt_error *err)
{
    ckpt__bytes *b = ctx;
    ckpt_status status = number != b->current || offset == 0 ? begin_payload(b, kind, number, err) : CKPT_OK;
    if (status == CKPT_OK)
        status =
            b->route == CKPT__STRAIGHT ? read_straight(b, offset, dst, n, err) : read_window(b, offset, dst, n, err);
    if (status < 0 || !b->sums)
        return status;
    const ckpt__tensor *t = &b->m->from->tensors[b->bonds[number].from];
    b->crc = ckpt__crc32(b->crc, dst, n);
    return offset + n < b->size || b->crc == t->crc ? CKPT_OK : ckpt__wrong_crc(b->crc, t->crc, t->info.name.data, err);
}

/* One of the threads writes. */
unsigned ckpt__bytes_readers(unsigned threads, uint64_t memory)
{
    uint64_t most = memory / FOR_THREAD;
    unsigned readers = threads > 2 ? threads - 1 : 1;
    readers = readers < CKPT__WORKERS_MAX ? readers : CKPT__WORKERS_MAX;
    return most < 1 ? 1 : readers < most ? readers : (unsigned)most;
}

ckpt_status ckpt__bytes_open(ckpt__bytes *b, uint64_t memory, unsigned readers, ckpt__payload *payload, ckpt_error *err)
{
    const ckpt__migration *m = b->m;
    b->memory = memory;
    b->pull_count = readers;
    *payload = (ckpt__payload){.read = read_bytes, .ctx = b, .tile = readers > 1 ? CKPT__BLOCK : PART};
    if (b->converts && (!(b->counts = calloc(b->count + 1, sizeof *b->counts)) ||
                        !(b->tensor_counts = calloc(m->from->tensor_count + 1, sizeof *b->tensor_counts))))
        return ckpt__migration_no_memory(err);
    if (b->ranges && !(b->checked = calloc(b->count + 1, sizeof *b->checked)))
        return ckpt__migration_no_memory(err);
    if (!(b->crcs = ckpt__crcs_new(b->plan)) || !(b->pulls = calloc(b->pull_count, sizeof(ckpt__pull *))))
        return ckpt__migration_no_memory(err);
    ckpt_status status = CKPT_OK;
    for (unsigned i = 0; status == CKPT_OK && i < b->pull_count; i++) {
        status = ckpt__pull_new(b->plan, m->reader->source, true, decoded_memory(b), &b->pulls[i], err);
        if (status == CKPT_OK)
            ckpt__pull_check_late(b->pulls[i], b->crcs);
    }
    return status;
}

ckpt_status ckpt__bytes_finish(ckpt__bytes *b, ckpt_error *err)
{
    return ckpt__crcs_finish(b->crcs, b->m->reader->source, err);
}

const ckpt__convert_counts *ckpt__bytes_cast_counts(ckpt__bytes *b)
{
    for (size_t i = 0; b->counts && i < b->count; i++)
        if (!(b->bonds[i].flags & CKPT__BOND_STORAGE))
            b->tensor_counts[b->bonds[i].from] = ckpt__slices_sum(b, i);
    return b->tensor_counts;
}

/* ---- without reading */

/* One payload, as read_bytes reads it. What is straight goes on where it was left: as one question. */
static ckpt_status count_payload(ckpt__bytes *b, size_t number, ckpt__pass_pull *pull, ckpt__passes *passes,
                                 ckpt_error *err)
{
    bool on_the_way, among = find_place(b, number);
    ckpt_status status = CKPT_OK;
    if (has_own_crc(b, &b->bonds[number], &on_the_way) && !on_the_way)
        ckpt__passes_tensor(passes, b->bonds[number].from);
    if (among)
        return CKPT_OK;
    uint64_t begin = b->begin;
    const uint64_t end = b->route == CKPT__AMONG ? end_together(b, number) : begin + b->size;
    while (status == CKPT_OK && begin < end) {
        const uint64_t next = b->route == CKPT__ALONE ? window_end(b, number, begin) : end,
                       to = next < end ? next : end;
        status = ckpt__passes_pull(passes, pull, b->storage, begin, to, err);
        begin = to;
    }
    return status;
}

ckpt_status ckpt__bytes_passes(ckpt__bytes *b, const ckpt__out *w, uint64_t memory, ckpt__passes **out, ckpt_error *err)
{
    ckpt__pass_pull pull = {.decoded = UINT32_MAX};
    ckpt_status status = ckpt__passes_new(b->plan, out, err);
    b->memory = memory;
    b->pull_count = ckpt__bytes_readers(w->m->options.threads, memory);
    pull.memory = decoded_memory(b);
    for (size_t i = 0; status == CKPT_OK && i <= w->count; i++) {
        const ckpt__recipe *r = i < w->count ? w->files[i].recipe : w->ranged;
        for (size_t s = 0; r && status == CKPT_OK && s < r->count; s++)
            if (r->segments[s].kind == CKPT__STORAGE)
                status = count_payload(b, r->segments[s].number, &pull, *out, err);
    }
    b->current = SIZE_MAX;
    b->together = 0;
    return status;
}
