/* The sum of a tensor's elements and places: the same however they lie, another one for whatever goes wrong on the way. */
#include <unistd.h>
#include "../runner.h"
#include "engine/sums.h"
#include "codec/crc32.h"

enum { CASES = 2000, MOST = 4000 };

static uint64_t random_state;
static ckpt_error err;

static uint64_t any(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return below ? (random_state >> 33) % below : 0;
}

static ckpt__index *x;
static unsigned char logical[MOST * 16]; /* the elements in C order */
static uint64_t elements;
static size_t size;

static uint64_t sum_of_logical(void)
{
    return ckpt__sum_elements(logical, (size_t)elements, size, 0, 1);
}

static uint64_t sum_of_tensor(ckpt_dtype to, bool as_bytes)
{
    ckpt__summer *s;
    uint64_t sum = 0;
    ck_assert_int_eq(ckpt__summer_new(NULL, x, &s, &err), CKPT_OK);
    ck_assert_msg(ckpt__sum_tensor(s, 0, to, false, as_bytes, &sum, &err) == CKPT_OK, "%s: %s", err.object,
                  err.message);
    ckpt__summer_free(s);
    return sum;
}

static void setup(void)
{
    random_state = 7;
    memset(&err, 0, sizeof err);
    x = NULL;
}

static void teardown(void)
{
    ckpt__index_free(x);
}

static const ckpt_dtype dtypes[] = {CKPT_U8, CKPT_BF16, CKPT_F32, CKPT_F64, CKPT_C128};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* A shape of at most MOST elements, and elements of a dtype. */
static uint32_t make_shape(int64_t *shape, ckpt_dtype dtype)
{
    uint32_t n = (uint32_t)any(5);
    elements = 1;
    for (uint32_t i = 0; i < n; i++) {
        shape[i] = (int64_t)(1 + any(8));
        elements *= (uint64_t)shape[i];
    }
    while (elements > MOST)
        elements /= (uint64_t)shape[--n];
    size = ckpt_dtype_size(dtype);
    for (size_t i = 0; i < elements * size; i++)
        logical[i] = (unsigned char)any(256);
    return n;
}

/* A tensor of the shape in a storage, its dimensions in some order and with gaps; and the elements at their places. */
static unsigned char *make_strided(ckpt_dtype dtype, uint32_t n, const int64_t *shape)
{
    uint32_t order[8];
    int64_t strides[8], pitch = 1;
    const uint64_t first = any(4);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        uint32_t k = (uint32_t)any(i + 1), swapped = order[i];
        order[i] = order[k];
        order[k] = swapped;
    }
    for (uint32_t i = 0; i < n; i++) {
        strides[order[i]] = pitch;
        pitch *= shape[order[i]] + (int64_t)any(2);
    }
    const size_t bytes = ((size_t)pitch + first + 1) * size;
    unsigned char *memory = malloc(bytes);
    memset(memory, 0xa5, bytes);
    for (uint64_t i = 0; i < elements; i++) {
        uint64_t left = i, at = first;
        for (uint32_t d = n; d-- > 0;) {
            at += left % (uint64_t)shape[d] * (uint64_t)strides[d];
            left /= (uint64_t)shape[d];
        }
        memcpy(memory + at * size, logical + i * size, size);
    }
    const ckpt__storage storage = {.extent = {.memory = memory, .length = bytes, .size = bytes}, .unit = 1};
    const ckpt_tensor_info info = {.name = {"t", 1}, .dtype = dtype, .ndim = n};
    x = ckpt__index_new(0);
    *ckpt__index_add_storage(x) = storage;
    ckpt__index_add_tensor(x)->info = info;
    ck_assert_msg(ckpt__index_set_view(x, 0, 0, shape, strides, (int64_t)first, &err) == CKPT_OK, "%s", err.message);
    return memory;
}

static void drop(unsigned char *memory)
{
    ckpt__index_free(x);
    x = NULL;
    free(memory);
}

START_TEST(any_order_gives_the_same)
{
    for (int i = 0; i < CASES; i++) {
        int64_t shape[8];
        ckpt_dtype dtype = dtypes[any(DTYPES)];
        uint32_t n = make_shape(shape, dtype);
        unsigned char *memory = make_strided(dtype, n, shape);
        ck_assert_uint_eq(sum_of_tensor(dtype, false), sum_of_logical());
        ck_assert_uint_eq(sum_of_tensor(dtype, true), ckpt__sum_elements(logical, (size_t)elements * size, 1, 0, 1));
        drop(memory);
    }
}
END_TEST

/* Split into runs of any length, summed in any order; also where the number of an element has more than 32 bits. */
START_TEST(any_split_gives_the_same)
{
    static const uint64_t begins[] = {0, 5, UINT32_MAX - 100, (uint64_t)UINT32_MAX * 7 + 3};
    for (int i = 0; i < CASES; i++) {
        size = ckpt_dtype_size(dtypes[any(DTYPES)]);
        elements = 1 + any(600);
        for (size_t k = 0; k < elements * size; k++)
            logical[k] = (unsigned char)any(256);
        uint64_t begin = begins[any(4)], step = 1 + any(3) * any(1000000), whole = 0, parts = 0, each = 0;
        whole = ckpt__sum_elements(logical, (size_t)elements, size, begin, step);
        for (uint64_t at = 0, some; at < elements; at += some) {
            some = 1 + any(elements - at);
            parts += ckpt__sum_elements(logical + at * size, (size_t)some, size, begin + at * step, step);
        }
        for (uint64_t at = elements; at-- > 0;)
            each += ckpt__sum_elements(logical + at * size, 1, size, begin + at * step, 1);
        ck_assert_uint_eq(parts, whole);
        ck_assert_uint_eq(each, whole);
    }
}
END_TEST

static void swap_elements(uint64_t a, uint64_t b)
{
    unsigned char kept[16];
    memcpy(kept, logical + a * size, size);
    memcpy(logical + a * size, logical + b * size, size);
    memcpy(logical + b * size, kept, size);
}

/* Every single bit of some elements; two that are swapped; a shift by one; rows and columns turned; the places of two equal-shaped
 * tensors changed. */
START_TEST(what_goes_wrong_is_found)
{
    for (int i = 0; i < CASES / 10; i++) {
        size = ckpt_dtype_size(dtypes[i % DTYPES]);
        elements = 12 * 20;
        for (size_t k = 0; k < elements * size; k++)
            logical[k] = (unsigned char)any(256);
        uint64_t right = sum_of_logical(), a = any(elements), b = any(elements);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            logical[a * size + bit / 8] ^= (unsigned char)(1 << bit % 8);
            ck_assert_uint_ne(sum_of_logical(), right);
            logical[a * size + bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        ck_assert_uint_eq(sum_of_logical(), right);
        swap_elements(a, b);
        ck_assert_int_eq(sum_of_logical() == right, memcmp(logical + a * size, logical + b * size, size) == 0);
        swap_elements(a, b);
        ck_assert_uint_ne(ckpt__sum_elements(logical, (size_t)elements, size, 1, 1), right);
        uint64_t turned = 0;
        for (uint64_t r = 0; r < 12; r++)
            turned += ckpt__sum_elements(logical + r * 20 * size, 20, size, r, 12);
        ck_assert_uint_ne(turned, right);
        const uint64_t far = (uint64_t)1 << 32; /* two that lie so far apart, changed */
        ck_assert_uint_ne(
            ckpt__sum_elements(logical, 1, size, 3, 1) + ckpt__sum_elements(logical + size, 1, size, 3 + far, 1),
            ckpt__sum_elements(logical + size, 1, size, 3, 1) + ckpt__sum_elements(logical, 1, size, 3 + far, 1));
        /* one byte more or less somewhere in what follows */
        memmove(logical + size, logical, (size_t)(elements - 1) * size);
        ck_assert_uint_ne(sum_of_logical(), right);
    }
}
END_TEST

/* Mirrored, and numbers that count up, which sums with affine weights confuse. */
START_TEST(regular_values_are_told_apart)
{
    float *f = (float *)(void *)logical;
    uint64_t sums[6];
    size = 4;
    elements = 1024;
    for (int i = 0; i < 1024; i++)
        f[i] = (float)i;
    sums[0] = sum_of_logical();
    for (int i = 0; i < 1024; i++)
        f[i] = (float)(1023 - i);
    sums[1] = sum_of_logical();
    for (int i = 0; i < 1024; i++)
        f[i] = (float)(i ^ 1);
    sums[2] = sum_of_logical();
    for (int i = 0; i < 1024; i++)
        f[i] = (float)(i % 32 * 32 + i / 32);
    sums[3] = sum_of_logical();
    for (int i = 0; i < 1024; i++)
        f[i] = (float)((i + 32) % 1024);
    sums[4] = sum_of_logical();
    for (int i = 0; i < 1024; i++)
        f[i] = (float)(i == 3 || i == 5 ? 4 : i == 4 ? 4 : i);
    sums[5] = sum_of_logical();
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++)
            ck_assert_uint_ne(sums[a], sums[b]);
}
END_TEST

/* A tensor in pieces, cut anywhere along one dimension or flat; and twice, as replicas. */
START_TEST(pieces_give_the_same)
{
    for (int i = 0; i < CASES / 4; i++) {
        int64_t shape[2] = {(int64_t)(2 + any(20)), (int64_t)(2 + any(20))}, boxes[4][4];
        const bool flat = any(2), twice = any(2);
        ckpt__piece pieces[4];
        unsigned char *memory[2];
        size = 4;
        elements = (uint64_t)(shape[0] * shape[1]);
        for (size_t k = 0; k < elements * size; k++)
            logical[k] = (unsigned char)any(256);
        x = ckpt__index_new(0);
        uint64_t cut = flat ? 1 + any(elements - 1) : (uint64_t)shape[1] * (1 + any((uint64_t)shape[0] - 1));
        for (uint32_t k = 0; k < 2; k++) {
            const uint64_t from = k ? cut : 0, n = k ? elements - cut : cut;
            memory[k] = malloc((size_t)n * size);
            memcpy(memory[k], logical + from * size, (size_t)n * size);
            const ckpt__storage storage = {.extent = {.memory = memory[k], .length = n * size, .size = n * size},
                                           .unit = 1};
            *ckpt__index_add_storage(x) = storage;
            int64_t *b = boxes[k];
            const int64_t columns = shape[1];
            b[0] = flat ? (int64_t)from : (int64_t)from / columns;
            b[1] = flat ? (int64_t)n : 0;
            b[2] = (int64_t)n / columns;
            b[3] = columns;
            pieces[k] =
                (ckpt__piece){.box = b,
                              .storage = k,
                              .flags = (uint8_t)((flat ? CKPT__PIECE_FLAT : 0) | (twice ? CKPT__PIECE_REPLICA : 0))};
            pieces[k + 2] = pieces[k];
        }
        const ckpt_tensor_info info = {.name = {"t", 1}, .dtype = CKPT_F32, .ndim = 2};
        ckpt__index_add_tensor(x)->info = info;
        ck_assert_msg(ckpt__index_set_pieces(x, 0, shape, pieces, twice ? 4 : 2, &err) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(sum_of_tensor(CKPT_F32, false), sum_of_logical());
        drop(memory[0]);
        free(memory[1]);
    }
}
END_TEST

/* The bits are compared after the conversion. */
START_TEST(casts_come_first)
{
    float values[64];
    uint16_t half[64];
    int64_t shape[1] = {64};
    for (int i = 0; i < 64; i++) {
        values[i] = (float)i * 0.5f - 7;
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        half[i] = (uint16_t)(bits >> 16); /* exact */
    }
    size = 4;
    elements = 64;
    memcpy(logical, values, sizeof values);
    unsigned char *memory = make_strided(CKPT_F32, 1, shape);
    ck_assert_uint_eq(sum_of_tensor(CKPT_BF16, false), ckpt__sum_elements(half, 64, 2, 0, 1));
    drop(memory);
}
END_TEST

/* Longer than the window, with a CRC that is right, and then wrong. */
START_TEST(crcs_are_compared_on_the_way)
{
    enum { LARGE = 5 << 20 };
    unsigned char *memory = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        memory[i] = (unsigned char)any(256);
    int64_t shape[2] = {1280, 1024}, strides[2] = {1, 1280};
    const ckpt__storage storage = {.extent = {.memory = memory,
                                              .length = LARGE,
                                              .size = LARGE,
                                              .has_crc = true,
                                              .crc = ckpt__crc32(0, memory, LARGE)},
                                   .unit = 1};
    const ckpt_tensor_info info = {.name = {"t", 1}, .dtype = CKPT_F32, .ndim = 2};
    uint64_t sum = 0, expected = 0;
    ckpt__summer *s;
    x = ckpt__index_new(0);
    *ckpt__index_add_storage(x) = storage;
    ckpt__index_add_tensor(x)->info = info;
    ck_assert_int_eq(ckpt__index_set_view(x, 0, 0, shape, strides, 0, &err), CKPT_OK);
    for (uint64_t k = 0; k < 1024; k++)
        expected += ckpt__sum_elements(memory + k * 1280 * 4, 1280, 4, k, 1024);
    ck_assert_uint_eq(sum_of_tensor(CKPT_F32, false), expected);
    x->storages[0].extent.checked = 0;
    x->storages[0].extent.crc ^= 1;
    ck_assert_int_eq(ckpt__summer_new(NULL, x, &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sum_tensor(s, 0, CKPT_F32, false, false, &sum, &err), CKPT_E_DAMAGED);
    ckpt__summer_free(s);
    drop(memory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sums");
    TCase *t = tcase_create("sums");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, any_order_gives_the_same);
    tcase_add_test(t, any_split_gives_the_same);
    tcase_add_test(t, what_goes_wrong_is_found);
    tcase_add_test(t, regular_values_are_told_apart);
    tcase_add_test(t, pieces_give_the_same);
    tcase_add_test(t, casts_come_first);
    tcase_add_test(t, crcs_are_compared_on_the_way);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
