/* test_move.c - the kernel against a loop over indices that moves one element at a time, over random boxes. Every byte of the
 * target is compared, with those between and around the elements. */
#include "engine/move.h"

#include <stdio.h>
#include "../runner.h"

enum { DIMS = 6, MOST = 20000, MARGIN = 64, CROWDED = 64 << 10, CASES = 9000 };

static ckpt_error err;

static uint32_t rng;
static uint32_t draw(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % n;
}

/* ---- one case */

/* A box before anything is merged, and what is done to its elements. Strides are bytes. */
typedef struct sample {
    uint32_t n;
    uint64_t size[DIMS], from_stride[DIMS], to_stride[DIMS];
    uint64_t count;              /* elements */
    uint64_t from_room, to_room; /* bytes that the elements reach on each side */
    ckpt__op_want want;
    ckpt__op op;
} sample;

static const ckpt_dtype any_dtype[] = {
    CKPT_U8,  CKPT_BOOL, CKPT_F16,     CKPT_BF16,    CKPT_F32, CKPT_F64,   CKPT_I8,
    CKPT_I16, CKPT_I32,  CKPT_I64,     CKPT_U16,     CKPT_U32, CKPT_U64,   CKPT_C32,
    CKPT_C64, CKPT_C128, CKPT_F6_E2M3, CKPT_F8_E5M2, CKPT_F4,  CKPT_QU4X2, CKPT_QI32,
};
static const ckpt_dtype real_dtype[] = {
    CKPT_F32, CKPT_BF16, CKPT_F16, CKPT_F64, CKPT_F8_E4M3, CKPT_I8, CKPT_I32, CKPT_I64, CKPT_U16, CKPT_BOOL,
};
static const ckpt_dtype complex_dtype[] = {CKPT_C32, CKPT_C64, CKPT_C128};
#define PICK(list) list[draw(sizeof list / sizeof *list)]

static uint8_t draw_swap(ckpt_dtype dtype)
{
    uint32_t size = ckpt_dtype_size(dtype) ? (uint32_t)ckpt_dtype_size(dtype) : 1, swap = 1u << draw(4);
    return (uint8_t)(swap <= size ? draw(2) ? swap : 0 : size);
}

/* A plain one in three; a cast in three. */
static void draw_op(sample *s)
{
    ckpt_status status;
    uint32_t kind = draw(6);
    do {
        s->want = (ckpt__op_want){.from = PICK(any_dtype)};
        s->want.to = s->want.from;
        if (kind > 3) {
            s->want.from = draw(4) ? PICK(real_dtype) : PICK(complex_dtype);
            s->want.to = ckpt__dtype_row_of(s->want.from)->is_complex ? PICK(complex_dtype) : PICK(real_dtype);
        }
        if (kind > 1) {
            s->want.from_swap = draw_swap(s->want.from);
            s->want.to_swap = draw_swap(s->want.to);
            s->want.conj = draw(3) == 0;
            s->want.neg = draw(3) == 0;
        }
        status = ckpt__op_make(&s->want, "it", &s->op, &err);
        ck_assert(status == CKPT_OK || (status == CKPT_E_UNSUPPORTED && s->want.neg));
    } while (status < 0);
}

static void draw_sizes(sample *s)
{
    uint64_t all = draw(8) ? 67 * 67 : MOST;
    s->n = draw(DIMS + 1);
    s->count = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t kind = draw(12);
        uint64_t most = s->count ? all / s->count : 6;
        s->size[i] = kind == 0 ? draw(7) : kind < 5 ? 31 + draw(37) : 1 + draw(6);
        if (kind == 11 && draw(4) == 0)
            s->size[i] = 1000 + draw(12000);
        if (s->size[i] > most)
            s->size[i] = most ? most : 1;
        s->count *= s->size[i];
    }
}

/* Places for all elements, in a random order of the dimensions. Returns the bytes they reach. */
static uint64_t draw_places(const sample *s, uint64_t *stride, uint32_t size, bool source)
{
    uint32_t order[DIMS], holes = draw(4);
    uint64_t next = size, reach = s->count ? size : 0;
    bool in_order = draw(3) == 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t k = in_order ? i : draw(i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    if (in_order)
        for (uint32_t i = 0; i < s->n; i++)
            order[i] = s->n - 1 - i;
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t i = order[k];
        if (next > CROWDED)
            holes = 0;
        stride[i] = next + (holes == 1 && draw(2) ? size * draw(4) : holes == 2 ? draw(9) : 0);
        if (holes == 3 && k == 1 && next < 1024 && s->count < 4096)
            stride[i] = 1024;
        if (source && draw(8) == 0)
            stride[i] = draw(3) ? 0 : size * draw(3);
        else
            next = stride[i] * (s->size[i] ? s->size[i] : 1);
        reach += s->count ? (s->size[i] - 1) * stride[i] : 0;
    }
    return reach;
}

/* ---- the reference */

static void reverse(unsigned char *p, uint32_t size, uint32_t unit)
{
    for (uint32_t i = 0; i < size; i++)
        if (i % unit < unit - 1 - i % unit) {
            uint32_t other = i - i % unit + unit - 1 - i % unit;
            unsigned char was = p[i];
            p[i] = p[other];
            p[other] = was;
        }
}

/* The little-endian element, as its flags say that it is meant. */
static void resolve(const ckpt__op_want *want, unsigned char *p)
{
    const ckpt__dtype_row *row = ckpt__dtype_row_of(want->from);
    uint32_t size = row->bits / 8;
    uint64_t integer = 0;
    if (row->is_complex) {
        p[size / 2 - 1] ^= want->neg ? 0x80 : 0;
        p[size - 1] ^= want->neg ? 0x80 : 0;
        p[size - 1] ^= want->conj ? 0x80 : 0;
    } else if (want->neg && row->is_float)
        p[size - 1] ^= 0x80;
    else if (want->neg) {
        memcpy(&integer, p, size);
        integer = 0 - integer;
        memcpy(p, &integer, size);
    }
}

static void move_one(const sample *s, const unsigned char *from, unsigned char *to, ckpt__convert_counts *counts)
{
    const ckpt__op_want *want = &s->want;
    unsigned char in[16], out[16];
    memcpy(in, from, s->op.from_size);
    reverse(in, s->op.from_size, want->from_swap ? want->from_swap : 1);
    resolve(want, in);
    memcpy(out, in, sizeof out);
    if (want->from != want->to)
        ck_assert(ckpt__convert_counted(want->from, in, want->to, out, 1, counts));
    reverse(out, s->op.to_size, want->to_swap ? want->to_swap : 1);
    memcpy(to, out, s->op.to_size);
}

static void move_by_indices(const sample *s, const unsigned char *from, unsigned char *to, ckpt__convert_counts *counts)
{
    uint64_t index[DIMS] = {0};
    for (uint64_t k = 0; k < s->count; k++) {
        uint64_t a = 0, b = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            a += index[i] * s->from_stride[i];
            b += index[i] * s->to_stride[i];
        }
        move_one(s, from + a, to + b, counts);
        for (uint32_t i = s->n; i-- > 0 && ++index[i] == s->size[i];)
            index[i] = 0;
    }
}

/* ---- random boxes */

static ckpt__copy_box merged(const sample *s)
{
    ckpt__copy_box box;
    ckpt__copy_box_init(&box);
    for (uint32_t i = 0; i < s->n; i++)
        ckpt__copy_box_add(&box, s->size[i], s->from_stride[i], s->to_stride[i]);
    return box;
}

static ckpt__copy_box unmerged(const sample *s)
{
    ckpt__copy_box box;
    ckpt__copy_box_init(&box);
    box.n = s->n;
    box.empty = s->count == 0;
    memcpy(box.size, s->size, sizeof s->size);
    memcpy(box.from_stride, s->from_stride, sizeof s->from_stride);
    memcpy(box.to_stride, s->to_stride, sizeof s->to_stride);
    return box;
}

static const char *text_of(const sample *s, int number)
{
    static char text[600];
    int n = snprintf(text, sizeof text, "case %d: %s to %s, swaps %u %u, conj %d, neg %d", number,
                     ckpt_dtype_name(s->want.from), ckpt_dtype_name(s->want.to), s->want.from_swap, s->want.to_swap,
                     s->want.conj, s->want.neg);
    for (uint32_t i = 0; i < s->n; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %llu: %llu %llu", (unsigned long long)s->size[i],
                      (unsigned long long)s->from_stride[i], (unsigned long long)s->to_stride[i]);
    return text;
}

/* Moves the box and compares all of the target; the source is exactly as long as it has to be, and not aligned. */
static void check_box(const sample *s, const ckpt__copy_box *box, int number)
{
    ckpt__convert_counts counts = {5, 5, 5, 5}, want_counts = {5, 5, 5, 5};
    size_t shift = draw(16), room = (size_t)s->to_room + MARGIN * 2 + shift;
    unsigned char *source = malloc((size_t)s->from_room + shift + 1), *from = source + shift + 1;
    unsigned char *to = malloc(room), *wanted = malloc(room);
    for (size_t i = 0; i < s->from_room; i++)
        from[i] = (unsigned char)(draw(16) ? draw(256) : draw(2) * 0x80);
    memset(to, 0x5A, room);
    memset(wanted, 0x5A, room);
    move_by_indices(s, from, wanted + MARGIN + shift, &want_counts);
    ck_assert_int_eq(ckpt__box_move(&s->op, box, from, to + MARGIN + shift, &counts, "it", &err), CKPT_OK);
    size_t at = 0;
    while (at < room && to[at] == wanted[at])
        at++;
    ck_assert_msg(at == room, "%s: byte %ld is %02x, not %02x", text_of(s, number), (long)at - (long)(MARGIN + shift),
                  at < room ? to[at] : 0, at < room ? wanted[at] : 0);
    ck_assert_msg(memcmp(&counts, &want_counts, sizeof counts) == 0, "%s: the counts are not those of one by one",
                  text_of(s, number));
    free(source);
    free(to);
    free(wanted);
}

START_TEST(random_boxes_are_as_one_by_one)
{
    rng = 4711 + (uint32_t)_i;
    for (int number = 0; number < CASES / 6; number++) {
        sample s;
        memset(&s, 0, sizeof s);
        draw_op(&s);
        draw_sizes(&s);
        s.from_room = draw_places(&s, s.from_stride, s.op.from_size, true);
        s.to_room = draw_places(&s, s.to_stride, s.op.to_size, false);
        ckpt__copy_box box = draw(2) ? merged(&s) : unmerged(&s);
        check_box(&s, &box, number);
    }
}
END_TEST

/* ---- boxes */

START_TEST(neighbours_are_merged_where_both_sides_continue)
{
    ckpt__copy_box box;
    uint64_t bytes;
    ckpt__op_want want = {.from = CKPT_F32, .to = CKPT_F32};
    ckpt__op op, halved;
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_OK);
    want.to = CKPT_BF16;
    ck_assert_int_eq(ckpt__op_make(&want, "it", &halved, &err), CKPT_OK);
    ckpt__copy_box_init(&box);
    ck_assert(ckpt__copy_box_is_run(&box, &op, &bytes));
    ck_assert_uint_eq(bytes, 4);
    for (int i = 0; i < 100; i++)
        ckpt__copy_box_add(&box, 1, 7, 9);
    ck_assert_uint_eq(box.n, 0);
    ckpt__copy_box_add(&box, 2, 48, 24);
    ckpt__copy_box_add(&box, 3, 16, 8);
    ckpt__copy_box_add(&box, 4, 4, 2);
    ck_assert_uint_eq(box.n, 1);
    ck_assert_uint_eq(box.size[0], 24);
    ck_assert_uint_eq(box.from_stride[0], 4);
    ck_assert_uint_eq(box.to_stride[0], 2);
    ck_assert(ckpt__copy_box_is_run(&box, &halved, &bytes));
    ck_assert_uint_eq(bytes, 96);
    ck_assert(!ckpt__copy_box_is_run(&box, &op, &bytes));
    ckpt__copy_box_init(&box);
    ckpt__copy_box_add(&box, 3, 16, 20); /* the source continues, the target does not */
    ckpt__copy_box_add(&box, 4, 4, 4);
    ck_assert_uint_eq(box.n, 2);
    ck_assert(!ckpt__copy_box_is_run(&box, &op, &bytes));
    ckpt__copy_box_init(&box);
    ckpt__copy_box_add(&box, 3, 20, 16); /* the other way round */
    ckpt__copy_box_add(&box, 4, 4, 4);
    ck_assert_uint_eq(box.n, 2);
    ckpt__copy_box_add(&box, 0, 4, 4);
    ckpt__copy_box_add(&box, 4, 4, 4);
    ck_assert(box.empty && box.n == 0);
    ck_assert(ckpt__copy_box_is_run(&box, &op, &bytes));
    ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(nothing_of_an_empty_box_is_touched)
{
    ckpt__op_want want = {.from = CKPT_F32, .to = CKPT_F16};
    ckpt__op op;
    ckpt__copy_box box;
    ckpt__convert_counts counts = {0, 0, 0, 0};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_OK);
    ckpt__copy_box_init(&box);
    ckpt__copy_box_add(&box, 3, 4, 2);
    ckpt__copy_box_add(&box, 0, 4, 2);
    ck_assert_int_eq(ckpt__box_move(&op, &box, NULL, NULL, &counts, "it", &err), CKPT_OK);
    ck_assert_uint_eq(counts.elements, 0);
}
END_TEST

/* ---- ops */

START_TEST(an_exact_op_fails_where_an_element_is_rounded)
{
    float in[3000];
    uint16_t out[3000];
    ckpt__op_want want = {.from = CKPT_F32, .to = CKPT_BF16, .exact = true};
    ckpt__op op;
    ckpt__copy_box box;
    ckpt__convert_counts counts = {0, 7, 0, 0}; /* what was inexact before does not count */
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_OK);
    for (int stride = 1; stride <= 3; stride++) {
        size_t n = 3000 / (size_t)stride;
        for (size_t i = 0; i < 3000; i++)
            in[i] = (float)(i % 250);
        ckpt__copy_box_init(&box);
        ckpt__copy_box_add(&box, n, 4 * (uint64_t)stride, 2 * (uint64_t)stride);
        ck_assert_int_eq(ckpt__box_move(&op, &box, in, out, &counts, "it", &err), CKPT_OK);
        ck_assert_uint_eq(counts.inexact, 7);
        in[(n - 1) * (size_t)stride] = 257;
        ck_assert_int_eq(ckpt__box_move(&op, &box, in, out, NULL, "it", &err), CKPT_E_MISMATCH);
        ck_assert_str_eq(err.message, "this step is not exactly representable in bfloat16");
        op.exact = false;
        ck_assert_int_eq(ckpt__box_move(&op, &box, in, out, NULL, "it", &err), CKPT_OK);
        op.exact = true;
    }
}
END_TEST

/* dtype, bytes and elements of a granule, whether a negated view of it has values */
static const struct {
    ckpt_dtype dtype;
    uint32_t size, granule;
    bool negative;
} dtypes[] = {
    {CKPT_F32, 4, 1, true},      {CKPT_C128, 16, 1, true},    {CKPT_I8, 1, 1, true},     {CKPT_U64, 8, 1, true},
    {CKPT_BOOL, 1, 1, false},    {CKPT_QI8, 1, 1, false},     {CKPT_QI32, 4, 1, false},  {CKPT_F8_E8M0, 1, 1, false},
    {CKPT_F6_E2M3, 3, 4, false}, {CKPT_F4, 1, 2, false},      {CKPT_QU4X2, 1, 2, false}, {CKPT_QU2X4, 1, 4, false},
    {CKPT_BITS16, 2, 1, false},  {CKPT_F6_E3M2, 3, 4, false},
};

START_TEST(an_op_knows_its_dtype)
{
    ckpt_dtype dtype = dtypes[_i].dtype;
    ckpt__op_want want = {.from = dtype, .to = dtype, .conj = !ckpt__dtype_row_of(dtype)->is_complex};
    ckpt__op op;
    char text[200];
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_OK);
    ck_assert(ckpt__op_is_plain(&op));
    ck_assert_uint_eq(op.from_size, dtypes[_i].size);
    ck_assert_uint_eq(op.to_size, dtypes[_i].size);
    ck_assert_uint_eq(op.granule, dtypes[_i].granule);
    want.neg = true;
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), dtypes[_i].negative ? CKPT_OK : CKPT_E_UNSUPPORTED);
    ck_assert(!dtypes[_i].negative || !ckpt__op_is_plain(&op));
    snprintf(text, sizeof text,
             "it is a negated view of dtype %s, which has no negative values: save it with .resolve_neg()",
             ckpt_dtype_name(dtype));
    if (!dtypes[_i].negative)
        ck_assert_str_eq(err.message, text);
    want.neg = false;
    want.to = dtype == CKPT_F32 ? CKPT_C64 : CKPT_F32;
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err),
                     ckpt__convert(dtype, NULL, want.to, NULL, 0, NULL) ? CKPT_OK : CKPT_E_UNSUPPORTED);
}
END_TEST

START_TEST(what_cannot_be_done_is_said)
{
    ckpt__op op;
    ckpt__op_want want = {.from = CKPT_C64, .to = CKPT_F32};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.message, "there is no conversion from complex64 to float32");
    want = (ckpt__op_want){.from = CKPT_F4, .to = CKPT_F32};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.message, "there is no conversion from float4_e2m1 to float32");
    want = (ckpt__op_want){.from = CKPT_DTYPE_NONE, .to = CKPT_DTYPE_NONE};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_E_UNSUPPORTED);
    want = (ckpt__op_want){.from = CKPT_F32, .to = CKPT_F32, .from_swap = 8};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.message, "an element of 4 bytes is not swapped 8 bytes at a time");
    want = (ckpt__op_want){.from = CKPT_F32, .to = CKPT_F16, .from_swap = 4, .to_swap = 4};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.message, "an element of 2 bytes is not swapped 4 bytes at a time");
    want = (ckpt__op_want){.from = CKPT_F32, .to = CKPT_F32, .from_swap = 4, .to_swap = 4};
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_OK);
    ck_assert(ckpt__op_is_plain(&op)); /* swapped twice */
    want.neg = true;
    ck_assert_int_eq(ckpt__op_make(&want, "it", &op, &err), CKPT_OK);
    ck_assert(!ckpt__op_is_plain(&op) && op.from_swap == 4 && op.to_swap == 4);
}
END_TEST

START_TEST(an_op_is_applied_in_place)
{
    rng = 99;
    for (int number = 0; number < 2000; number++) {
        unsigned char data[200], wanted[200];
        sample s;
        memset(&s, 0, sizeof s);
        draw_op(&s);
        if (s.want.from != s.want.to)
            continue;
        size_t n = draw(12);
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = wanted[i] = (unsigned char)draw(256);
        for (size_t i = 0; i < n; i++)
            move_one(&s, wanted + i * s.op.from_size, wanted + i * s.op.from_size, NULL);
        ckpt__op_apply(&s.op, data, n);
        ck_assert_msg(memcmp(data, wanted, sizeof data) == 0, "%s", text_of(&s, number));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine/move");
    TCase *tc = tcase_create("move");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, random_boxes_are_as_one_by_one, 0, 6);
    tcase_add_test(tc, neighbours_are_merged_where_both_sides_continue);
    tcase_add_test(tc, nothing_of_an_empty_box_is_touched);
    tcase_add_test(tc, an_exact_op_fails_where_an_element_is_rounded);
    tcase_add_loop_test(tc, an_op_knows_its_dtype, 0, (int)(sizeof dtypes / sizeof *dtypes));
    tcase_add_test(tc, what_cannot_be_done_is_said);
    tcase_add_test(tc, an_op_is_applied_in_place);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
