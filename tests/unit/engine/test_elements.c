/* test_elements.c - tensors and storages read in order and in bounded memory: every view against brute force. */
#include "engine/elements.h"

#include <fcntl.h>
#include "codec/crc32.h"
#include "engine/pull.h"
#include "engine/recipe_write.h"
#include "io/sink.h"
#include "../deflated.h"
#include "../runner.h"
#include "../scratch.h"

static ckpt_error err;

static uint32_t rng = 12345;
static uint32_t draw(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % n;
}

/* ---- a checkpoint of one file, made here */

enum { DIMS = 6 };

typedef struct made {
    ckpt__source *source;
    ckpt__index *index;
    unsigned char *bytes; /* of the storage, decoded */
    size_t size;
} made;

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite("junk", 1, 4, f), 4);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static size_t deflated_new(const void *data, size_t n, unsigned char **out)
{
    size_t room = compressBound(n) + 16;
    *out = malloc(room);
    ck_assert_ptr_nonnull(*out);
    return deflated(data, n, *out, room);
}

static made make(size_t size, ckpt__coding coding, bool in_memory)
{
    made m = {.size = size, .bytes = malloc(size + 1)};
    unsigned char *coded = NULL;
    for (size_t i = 0; i < size; i++)
        m.bytes[i] = (unsigned char)draw(i % 7 ? 256 : 3);
    size_t length = coding == CKPT__DEFLATE ? deflated_new(m.bytes, size, &coded) : size;
    write_file("payload", coded ? coded : m.bytes, length);
    free(coded);
    ck_assert_int_eq(ckpt__source_open("payload", &m.source, &err), CKPT_OK);
    ck_assert_ptr_nonnull(m.index = ckpt__index_new(0));
    ckpt__storage *s = ckpt__index_add_storage(m.index);
    s->extent = (ckpt__extent){.coding = coding, .offset = 4, .length = length, .size = size};
    s->extent.memory = in_memory ? m.bytes : NULL;
    s->unit = 1;
    return m;
}

static void discard(made *m)
{
    ckpt__index_free(m->index);
    ckpt__source_close(m->source);
    free(m->bytes);
}

static size_t add_view(made *m, ckpt_dtype dtype, uint32_t ndim, const int64_t *shape, const int64_t *strides,
                       int64_t offset)
{
    ckpt__tensor *t = ckpt__index_add_tensor(m->index);
    t->info.name = ckpt__s("view");
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    size_t i = m->index->tensor_count - 1;
    ck_assert_msg(ckpt__index_set_view(m->index, i, 0, shape, strides, offset, &err) == CKPT_OK, "%s", err.message);
    return i;
}

/* The elements of a tensor, one by one. */
static unsigned char *by_hand(const made *m, size_t tensor, size_t *n)
{
    const ckpt__tensor *t = &m->index->tensors[tensor];
    const ckpt_tensor_info *p = &t->info;
    size_t size = ckpt_dtype_size(t->info.dtype);
    *n = (size_t)t->info.nbytes;
    unsigned char *out = malloc(*n + 1);
    for (size_t e = 0; e < *n / size; e++) {
        size_t rest = e, at = (size_t)p->offset;
        for (uint32_t i = t->info.ndim; i-- > 0;) {
            at += (rest % (size_t)p->shape[i]) * (size_t)p->strides[i];
            rest /= (size_t)p->shape[i];
        }
        memcpy(out + e * size, m->bytes + at * size, size);
    }
    return out;
}

/* One tensor or storage at a time, from its first byte on. */
typedef struct ordered {
    const made *m; /* borrowed */
    ckpt__elements_options options;
    ckpt__elements elements;
} ordered;

static ordered in_order(const made *m)
{
    return (ordered){.m = m, .options = {.check = true}};
}

static ckpt_status ask(ordered *o, bool storage, size_t number, uint64_t offset, void *dst, size_t n)
{
    ckpt_status status = CKPT_OK;
    if (offset == 0) {
        ckpt__elements_close(&o->elements);
        status = storage ? ckpt__elements_of_storage(&o->elements, o->m->source, o->m->index, number, false,
                                                     &o->options, &err)
                         : ckpt__elements_of_tensor(&o->elements, o->m->source, o->m->index, number, &o->options, &err);
    }
    return status == CKPT_OK ? ckpt__elements_read(&o->elements, dst, n, &err) : status;
}

/* The same in blocks of random sizes. */
static unsigned char *through(ordered *o, bool storage, size_t number, size_t n, size_t most)
{
    unsigned char *out = malloc(n + 1);
    for (size_t at = 0; at < n;) {
        size_t some = 1 + draw((uint32_t)most);
        some = some < n - at ? some : n - at;
        ck_assert_msg(ask(o, storage, number, at, out + at, some) == CKPT_OK, "%s", err.message);
        at += some;
    }
    return out;
}

static const ckpt_dtype dtypes[] = {CKPT_U8, CKPT_I16, CKPT_F32, CKPT_F64, CKPT_C128};

/* A random view that lies within n elements. */
static size_t random_view(made *m, ckpt_dtype dtype, uint32_t most)
{
    int64_t shape[DIMS], strides[DIMS];
    size_t elements = m->size / ckpt_dtype_size(dtype), reach = 0;
    uint32_t ndim = draw(DIMS), kept = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        int64_t n = (int64_t)draw(most), stride = (int64_t)draw(draw(3) ? 9 : (uint32_t)(elements / 4 + 1));
        if (n > 1 && reach + (size_t)((n - 1) * stride) >= elements)
            continue;
        reach += n > 1 ? (size_t)((n - 1) * stride) : 0;
        shape[kept] = n;
        strides[kept++] = stride;
    }
    return add_view(m, dtype, kept, shape, strides, (int64_t)draw((uint32_t)(elements - reach)));
}

START_TEST(random_views)
{
    static const struct {
        ckpt__coding coding;
        bool in_memory;
    } ways[] = {{CKPT__STORED, false}, {CKPT__DEFLATE, false}, {CKPT__STORED, true}};
    for (size_t way = 0; way < 3; way++)
        for (int round = 0; round < 400; round++) {
            ckpt_dtype dtype = dtypes[draw(5)];
            made m = make(ckpt_dtype_size(dtype) * (1 + draw(600)), ways[way].coding, ways[way].in_memory);
            size_t n, t = random_view(&m, dtype, 7);
            unsigned char *want = by_hand(&m, t, &n);
            ordered o = in_order(&m);
            unsigned char *got = through(&o, false, t, n, 40);
            ck_assert_msg(memcmp(got, want, n) == 0, "way %zu round %d", way, round);
            ckpt__elements_close(&o.elements);
            free(got);
            free(want);
            discard(&m);
        }
}
END_TEST

/* Windows of a few bytes, so that there are many of them. */
START_TEST(small_windows)
{
    for (int round = 0; round < 1200; round++) {
        ckpt_dtype dtype = dtypes[draw(5)];
        size_t size = ckpt_dtype_size(dtype), n, at = 0, got;
        made m = make(size * (1 + draw(900)), round % 2 ? CKPT__DEFLATE : CKPT__STORED, false);
        size_t t = random_view(&m, dtype, 9);
        unsigned char *want = by_hand(&m, t, &n), *window = malloc(n + 1);
        ckpt__joined *joined = NULL;
        ck_assert_msg(!n || ckpt__joined_new(m.source, m.index, t, false, true, draw(2), &joined, &err) == CKPT_OK,
                      "%s", err.message);
        for (got = 1 + draw(300); at < n; at += got) {
            got = got < n - at ? got : n - at;
            ck_assert_msg(ckpt__joined_read(joined, at, window, got, &err) == CKPT_OK, "%s", err.message);
            ck_assert_msg(memcmp(want + at, window, got) == 0, "round %d at %zu", round, at);
        }
        ckpt__joined_free(joined);
        free(window);
        free(want);
        discard(&m);
    }
}
END_TEST

/* Views so large that pieces are cut, tiles are many, and holes are not read. */
START_TEST(large_views)
{
    static const struct {
        uint32_t ndim;
        int64_t shape[3], strides[3];
    } views[] = {
        {2, {1100, 900}, {1, 1100}}, /* transposed */
        {2, {900, 700}, {1100, 1}},  /* columns cut away */
        {2, {3, 300000}, {1, 3}},    /* narrow and transposed */
        {2, {30, 20}, {33000, 7}},   /* large holes */
        {3, {20, 30, 40}, {1, 20000, 250}},
        {3, {4, 500, 400}, {0, 1, 500}}, /* expanded and transposed */
        {1, {330000}, {3}},
    };
    for (size_t k = 0; k < 2; k++) {
        made m = make(4 * 1100 * 900, k ? CKPT__DEFLATE : CKPT__STORED, false);
        for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
            size_t n, t = add_view(&m, CKPT_F32, views[i].ndim, views[i].shape, views[i].strides, 0);
            unsigned char *want = by_hand(&m, t, &n);
            ordered o = in_order(&m);
            o.options.memory = 1 << 20;
            unsigned char *got = through(&o, false, t, n, 400000);
            ck_assert_msg(memcmp(got, want, n) == 0, "view %zu of %zu", i, k);
            ckpt__elements_close(&o.elements);
            free(got);
            free(want);
        }
        discard(&m);
    }
}
END_TEST

START_TEST(big_endian)
{
    for (int round = 0; round < 60; round++) {
        made m = make(16 * (1 + draw(60)), round % 2 ? CKPT__DEFLATE : CKPT__STORED, false);
        size_t n, t = random_view(&m, CKPT_C64, 5);
        unsigned char *want = by_hand(&m, t, &n);
        ckpt__swap_bytes(want, n, 4);
        m.index->storages[0].extent.big_endian = true;
        m.index->storages[0].unit = 4;
        ordered o = in_order(&m);
        unsigned char *got = through(&o, false, t, n, 13);
        ck_assert(memcmp(got, want, n) == 0);
        unsigned char *all = through(&o, true, 0, m.size, 7);
        ckpt__swap_bytes(m.bytes, m.size, 4);
        ck_assert(memcmp(all, m.bytes, m.size) == 0);
        ckpt__elements_close(&o.elements);
        free(got);
        free(all);
        free(want);
        discard(&m);
    }
}
END_TEST

/* A storage of big-endian elements of every size, as a whole; one that ends within an element keeps its last bytes. */
START_TEST(big_endian_storages)
{
    for (int round = 0; round < 90; round++) {
        uint8_t unit = (uint8_t)(1 << draw(4));
        made m = make(1 + draw(200), round % 3 ? CKPT__STORED : CKPT__DEFLATE, round % 3 == 1);
        size_t even = m.size - m.size % unit;
        m.index->storages[0].extent.big_endian = true;
        m.index->storages[0].unit = unit;
        ordered o = in_order(&m);
        unsigned char *got = through(&o, true, 0, m.size, 5);
        for (size_t i = 0; i < even; i++)
            ck_assert_msg(got[i] == m.bytes[i - i % unit + unit - 1 - i % unit], "unit %d: byte %zu", unit, i);
        ck_assert(memcmp(got + even, m.bytes + even, m.size - even) == 0);
        ckpt__elements_close(&o.elements);
        free(got);
        discard(&m);
    }
}
END_TEST

/* ---- what the target has in another dtype: by a plan */

/* Tensor 0 of the source, converted. */
typedef struct cast {
    ckpt__index *to;
    ckpt__bond bond;
    ckpt__op op;
    ckpt__plan *plan;
    ckpt__pull *pull;
} cast;

static void open_cast(cast *c, const made *m, ckpt_dtype to, bool exact)
{
    const ckpt_tensor_info *from = &m->index->tensors[0].info;
    const ckpt__op_want want = {.from = from->dtype, .to = to, .exact = exact};
    *c = (cast){.to = ckpt__index_new(0)};
    uint64_t numel;
    ck_assert(ckpt__numel(from->shape, from->ndim, &numel));
    ckpt__index_add_storage(c->to)->extent.size = numel * ckpt_dtype_size(to);
    ckpt__tensor *t = ckpt__index_add_tensor(c->to);
    t->info.name = from->name;
    t->info.dtype = to;
    t->info.ndim = from->ndim;
    ck_assert_int_eq(ckpt__index_set_view(c->to, 0, 0, from->shape, NULL, 0, &err), CKPT_OK);
    ckpt__plan_want asked = {
        .from = m->index, .to = c->to, .bonds = &c->bond, .bond_count = 1, .ops = &c->op, .op_count = 1};
    ck_assert_int_eq(ckpt__op_make(&want, "view", &c->op, &err), CKPT_OK);
    ck_assert_msg(ckpt__plan_new(&asked, &c->plan, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt__pull_new(c->plan, m->source, true, 0, &c->pull, &err), CKPT_OK);
}

static void close_cast(cast *c)
{
    ckpt__pull_free(c->pull);
    ckpt__plan_free(c->plan);
    ckpt__index_free(c->to);
}

/* In blocks of so many elements at most. */
static unsigned char *cast_through(cast *c, size_t n, size_t most, ckpt__convert_counts *counts)
{
    unsigned char *out = malloc(n + 1);
    size_t size = c->op.to_size;
    memset(counts, 0, sizeof *counts);
    for (size_t at = 0, some; at < n; at += some) {
        some = (1 + draw((uint32_t)most)) * size;
        some = some < n - at ? some : n - at;
        ck_assert_msg(ckpt__pull_bytes(c->pull, 0, at, at + some, out + at, counts, &err) == CKPT_OK, "%s",
                      err.message);
    }
    return out;
}

START_TEST(casts)
{
    static const ckpt_dtype pairs[][2] = {{CKPT_F32, CKPT_BF16}, {CKPT_I16, CKPT_F64}, {CKPT_F64, CKPT_F16},
                                          {CKPT_C128, CKPT_C64}, {CKPT_F32, CKPT_I8},  {CKPT_F32, CKPT_F32}};
    for (int round = 0; round < 120; round++) {
        ckpt_dtype from = pairs[round % 6][0], to = pairs[round % 6][1];
        made m = make(ckpt_dtype_size(from) * (1 + draw(500)), CKPT__STORED, false);
        size_t n, t = random_view(&m, from, 6), count;
        unsigned char *raw = by_hand(&m, t, &n);
        ckpt__convert_counts want_counts, counts;
        memset(&want_counts, 0, sizeof want_counts);
        count = n / ckpt_dtype_size(from);
        unsigned char *want = malloc(count * ckpt_dtype_size(to) + 1);
        if (from != to)
            ck_assert(ckpt__convert_counted(from, raw, to, want, count, &want_counts));
        else
            memcpy(want, raw, n);
        n = count * ckpt_dtype_size(to);
        cast c;
        open_cast(&c, &m, to, false);
        unsigned char *got = cast_through(&c, n, 9, &counts);
        ck_assert(memcmp(got, want, n) == 0);
        ck_assert(memcmp(&counts, &want_counts, sizeof counts) == 0 || n == 0);
        close_cast(&c);
        free(got);
        free(raw);
        free(want);
        discard(&m);
    }
}
END_TEST

START_TEST(casts_are_counted)
{
    static const float values[] = {1, 1.5f, 3e38f, -3e38f, 0.1f, 1e-30f};
    made m = make(sizeof values, CKPT__STORED, false);
    write_file("payload", values, sizeof values);
    int64_t shape[1] = {6};
    add_view(&m, CKPT_F32, 1, shape, NULL, 0);
    cast c;
    ckpt__convert_counts counts;
    open_cast(&c, &m, CKPT_F16, false);
    free(cast_through(&c, 12, 2, &counts));
    ck_assert_uint_eq(counts.elements, 6);
    ck_assert_uint_eq(counts.inexact, 4);
    ck_assert_uint_eq(counts.out_of_range, 2);
    ck_assert_uint_eq(counts.nan, 0);
    close_cast(&c);
    open_cast(&c, &m, CKPT_F16, true); /* a step is exact or refused */
    uint16_t half[6];
    ck_assert_int_eq(ckpt__pull_bytes(c.pull, 0, 0, 12, half, NULL, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "float16"));
    close_cast(&c);
    discard(&m);
}
END_TEST

/* Conjugate and negated views: the bytes behind them, or their values where they are asked for. */
START_TEST(resolved_views)
{
    static const double values[] = {1, 2, -3, 4, 5, -6, 7, 0};
    static const struct {
        ckpt_dtype dtype;
        bool conj, neg;
        int re, im;
    } views[] = {{CKPT_C128, true, false, 1, -1},
                 {CKPT_C128, false, true, -1, -1},
                 {CKPT_C128, true, true, -1, 1},
                 {CKPT_F64, false, true, -1, -1},
                 {CKPT_F64, true, false, 1, 1}};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        made m = make(sizeof values, CKPT__STORED, false);
        write_file("payload", values, sizeof values);
        bool complex_one = views[i].dtype == CKPT_C128;
        int64_t shape[2] = {2, complex_one ? 2 : 4}, strides[2] = {1, 2};
        size_t n, t = add_view(&m, views[i].dtype, 2, shape, strides, 0);
        memcpy(m.bytes, values, sizeof values);
        double *want = (double *)(void *)by_hand(&m, t, &n);
        m.index->tensors[0].info.conj = views[i].conj;
        m.index->tensors[0].info.neg = views[i].neg;
        ordered o = in_order(&m);
        unsigned char *same = through(&o, false, t, n, 11);
        ck_assert(memcmp(same, want, n) == 0);
        o.options.resolve = true;
        unsigned char *got = through(&o, false, t, n, 11);
        for (size_t k = 0; k < n / 8; k++)
            want[k] *= k % 2 ? views[i].im : views[i].re;
        ck_assert_msg(memcmp(got, want, n) == 0, "view %zu", i);
        ckpt__elements_close(&o.elements);
        free(same);
        free(got);
        free(want);
        discard(&m);
    }
}
END_TEST

START_TEST(negated_integers)
{
    static const int16_t values[] = {0, 1, -1, 255, 256, -256, 32767, -32768},
                         want[] = {0, -1, 1, -255, -256, 256, -32767, -32768};
    int16_t got[8];
    made m = make(sizeof values, CKPT__STORED, false);
    write_file("payload", values, sizeof values);
    int64_t shape[1] = {8};
    add_view(&m, CKPT_I16, 1, shape, NULL, 0);
    m.index->tensors[0].info.neg = true;
    ckpt__elements e;
    ckpt__elements_options options = {.resolve = true};
    ck_assert_int_eq(ckpt__elements_of_tensor(&e, m.source, m.index, 0, &options, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__elements_read(&e, got, 7, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__elements_read(&e, (char *)got + 7, 9, &err), CKPT_OK);
    ck_assert(memcmp(got, want, sizeof want) == 0);
    ckpt__elements_close(&e);
    discard(&m);
}
END_TEST

/* ---- damage */

START_TEST(checksums)
{
    for (int coded = 0; coded < 2; coded++) {
        made m = make(4096, coded ? CKPT__DEFLATE : CKPT__STORED, false);
        int64_t shape[2] = {32, 32}, turned[2] = {1, 32};
        size_t t = add_view(&m, CKPT_F32, 2, shape, NULL, 0), u = add_view(&m, CKPT_F32, 2, shape, turned, 0), n;
        unsigned char *want = by_hand(&m, u, &n), got[4096];
        ckpt__extent *e = &m.index->storages[0].extent;
        e->has_crc = true;
        e->crc = ckpt__crc32(0, m.bytes, m.size);
        ordered o = in_order(&m);
        ck_assert_int_eq(ask(&o, false, t, 0, got, 4096), CKPT_OK);
        ck_assert_int_eq(ask(&o, true, 0, 0, got, 4096), CKPT_OK);
        e->crc ^= 1;
        ck_assert_int_eq(ask(&o, false, t, 0, got, 4095), CKPT_OK);
        ck_assert_int_eq(ask(&o, false, t, 4095, got, 1), CKPT_E_DAMAGED);
        ck_assert_int_eq(ask(&o, true, 0, 0, got, 4096), CKPT_E_DAMAGED);
        ck_assert_int_eq(ask(&o, false, u, 0, got, 1), CKPT_E_DAMAGED);
        m.index->tensors[u].has_crc = true;
        m.index->tensors[u].crc = ckpt__crc32(0, want, n);
        ck_assert_int_eq(ask(&o, false, u, 0, got, 1), CKPT_E_DAMAGED);
        e->crc ^= 1;
        e->checked = 0;
        ck_assert_int_eq(ask(&o, false, u, 0, got, 4096), CKPT_OK);
        m.index->tensors[u].crc ^= 1;
        ck_assert_int_eq(ask(&o, false, u, 0, got, 4096), CKPT_E_DAMAGED);
        ckpt__elements_close(&o.elements);
        free(want);
        discard(&m);
    }
}
END_TEST

/* A deflated record that breaks off, says less or more than it holds, or is no deflated record; a file that ends early.
 */
START_TEST(broken_records)
{
    for (int way = 0; way < 5; way++) {
        made m = make(100000, way == 4 ? CKPT__STORED : CKPT__DEFLATE, false);
        ckpt__extent *e = &m.index->storages[0].extent;
        unsigned char *got = malloc(200000);
        if (way == 0)
            e->length -= 10;
        else if (way == 1)
            e->size -= 7;
        else if (way == 2)
            e->size += 7;
        else if (way == 3)
            write_file("payload", "\xff\xff\xff\xff", 4);
        else
            e->size = e->length = 100001;
        ordered o = in_order(&m);
        ck_assert_msg(ask(&o, true, 0, 0, got, (size_t)e->size) == CKPT_E_DAMAGED, "way %d: %s", way, err.message);
        ckpt__elements_close(&o.elements);
        free(got);
        discard(&m);
    }
}
END_TEST

/* Of a salvaged file, what lies before the end can be read. */
START_TEST(salvaged)
{
    made m = make(4096, CKPT__STORED, false);
    ckpt__extent *e = &m.index->storages[0].extent;
    unsigned char got[4096];
    int64_t shape[1] = {16}, turned[1] = {5};
    size_t first = add_view(&m, CKPT_U8, 1, shape, NULL, 0), last = add_view(&m, CKPT_U8, 1, shape, NULL, 85),
           strided = add_view(&m, CKPT_U8, 1, shape, turned, 0), beyond = add_view(&m, CKPT_U8, 1, shape, turned, 25);
    e->missing = true;
    e->length = 100;
    ordered o = in_order(&m);
    ck_assert_int_eq(ask(&o, false, first, 0, got, 16), CKPT_OK);
    ck_assert(memcmp(got, m.bytes, 16) == 0);
    ck_assert_int_eq(ask(&o, false, strided, 0, got, 16), CKPT_OK);
    ck_assert_int_eq(ask(&o, false, last, 0, got, 16), CKPT_E_DAMAGED);
    ck_assert_int_eq(ask(&o, false, beyond, 0, got, 16), CKPT_E_DAMAGED);
    ck_assert_int_eq(ask(&o, true, 0, 0, got, 16), CKPT_E_DAMAGED);
    ckpt__elements_close(&o.elements);
    discard(&m);
}
END_TEST

/* ---- a recipe, in blocks of any size: what is known last lies over several of them, alone and with others */

enum { HEAD = 5000, BODY = 9000, TAIL = 300, ALL = 8 + HEAD + BODY + TAIL };

static ckpt_status read_body(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                             ckpt_error *e)
{
    (void)ctx, (void)kind, (void)number, (void)e;
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)dst)[i] = (unsigned char)((offset + i) * 7);
    return CKPT_OK;
}

static ckpt_status finish_head(ckpt__recipe *r, const uint32_t *crcs, ckpt_error *e)
{
    (void)e;
    memset(r->segments[1].bytes, (int)(crcs[2] & 0x7f), HEAD);
    return CKPT_OK;
}

static ckpt_status compute_tail(const ckpt__recipe *r, size_t i, const uint32_t *crcs, char *to, ckpt_error *e)
{
    (void)e;
    memset(to, (int)(r->segments[i].number + (crcs[2] & 1)), TAIL);
    return CKPT_OK;
}

START_TEST(recipe_in_blocks)
{
    static const size_t sizes[] = {0, 512, 777, 4096, HEAD + 8, 20000};
    char start[] = "12345678", head[HEAD] = {0};
    unsigned char body[BODY];
    read_body(NULL, CKPT__PAYLOAD, 0, 0, body, BODY, NULL);
    uint32_t crc = ckpt__crc32(0, body, BODY);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ckpt__segment segments[] = {{CKPT__LITERAL, 8, {.bytes = start}},
                                    {CKPT__DEFERRED, HEAD, {.bytes = head}},
                                    {CKPT__PAYLOAD, BODY, {.number = 0}},
                                    {CKPT__COMPUTED, TAIL, {.number = 40}}};
        ckpt__recipe r = {
            .segments = segments, .count = 4, .size = ALL, .finish = finish_head, .compute = compute_tail};
        ckpt__payload payload = {.read = read_body, .alone = i % 2, .block = sizes[i]};
        ckpt__sink_options options = {.replace = true};
        ckpt__sink *sink;
        unsigned char got[ALL];
        uint32_t whole;
        ck_assert_int_eq(ckpt__sink_file("recipe", r.size, &options, &sink, &err), CKPT_OK);
        ck_assert_int_eq(ckpt__write_recipe(&r, &payload, sink, NULL, 0, r.size, &whole, &err), CKPT_OK);
        ck_assert_int_eq(ckpt__sink_commit(sink, &err), CKPT_OK);
        FILE *f = fopen("recipe", "r");
        ck_assert(fread(got, 1, sizeof got, f) == sizeof got && fgetc(f) == EOF);
        fclose(f);
        ck_assert_uint_eq(whole, ckpt__crc32(0, got, sizeof got));
        ck_assert_int_eq(memcmp(got, start, 8), 0);
        for (size_t k = 0; k < HEAD; k++)
            ck_assert_uint_eq(got[8 + k], crc & 0x7f);
        ck_assert_int_eq(memcmp(got + 8 + HEAD, body, BODY), 0);
        for (size_t k = 0; k < TAIL; k++)
            ck_assert_uint_eq(got[8 + HEAD + BODY + k], 40 + (crc & 1));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("elements");
    TCase *c = tcase_create("elements");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_scratch, remove_scratch);
    tcase_add_test(c, random_views);
    tcase_add_test(c, small_windows);
    tcase_add_test(c, large_views);
    tcase_add_test(c, big_endian);
    tcase_add_test(c, big_endian_storages);
    tcase_add_test(c, casts);
    tcase_add_test(c, casts_are_counted);
    tcase_add_test(c, resolved_views);
    tcase_add_test(c, negated_integers);
    tcase_add_test(c, checksums);
    tcase_add_test(c, broken_records);
    tcase_add_test(c, salvaged);
    tcase_add_test(c, recipe_in_blocks);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
