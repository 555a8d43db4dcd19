/* Strided views against brute force. */
#include "base/strided.h"

#include "../runner.h"

static uint32_t rng = 12345;
static uint32_t draw(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % n;
}

START_TEST(gather_and_scatter_as_brute_force_does)
{
    for (int round = 0; round < 3000; round++) {
        uint32_t ndim = draw(5);
        int64_t shape[5], strides[5];
        size_t numel = 1, reach = 1;
        size_t size = (size_t)1 << draw(4);
        for (uint32_t i = 0; i < ndim; i++) {
            shape[i] = (int64_t)draw(5);
            strides[i] = (int64_t)draw(7);
            numel *= (size_t)shape[i];
        }
        for (uint32_t i = 0; i < ndim; i++)
            reach += shape[i] ? (size_t)((shape[i] - 1) * strides[i]) : 0;
        unsigned char *base = malloc(reach * size), *want = malloc(numel * size + 1), *got = malloc(numel * size + 1);
        for (size_t i = 0; i < reach * size; i++)
            base[i] = (unsigned char)draw(256);
        for (size_t e = 0; e < numel; e++) {
            size_t rest = e, at = 0;
            for (uint32_t i = ndim; i-- > 0;) {
                at += (rest % (size_t)shape[i]) * (size_t)strides[i];
                rest /= (size_t)shape[i];
            }
            memcpy(want + e * size, base + at * size, size);
        }
        ckpt__strided it;
        ckpt__strided_init(&it, shape, strides, ndim, size);
        for (size_t at = 0; at < numel * size;) {
            size_t n = 1 + draw(40);
            n = n < numel * size - at ? n : numel * size - at;
            ckpt__strided_gather(&it, base, got + at, n);
            at += n;
        }
        ck_assert_msg(memcmp(want, got, numel * size) == 0, "round %d", round);
        uint64_t offset, n;
        ck_assert(!ckpt__strided_next(&it, 8, &offset, &n));
        /* Scattering what was gathered changes nothing, whatever overlaps. */
        unsigned char *copy = malloc(reach * size);
        memcpy(copy, base, reach * size);
        ckpt__strided_init(&it, shape, strides, ndim, size);
        ckpt__strided_scatter(&it, copy, got, numel * size);
        ck_assert(memcmp(copy, base, reach * size) == 0);
        free(base);
        free(want);
        free(got);
        free(copy);
    }
}
END_TEST

START_TEST(neighbours_are_merged)
{
    ckpt__strided it;
    ckpt__strided_init(&it, (int64_t[]){2, 3, 4}, (int64_t[]){12, 4, 1}, 3, 4);
    ck_assert(ckpt__strided_is_contiguous(&it));
    ck_assert_uint_eq(it.run, 96);
    ckpt__strided_init(&it, (int64_t[]){2, 3, 4}, (int64_t[]){24, 4, 1}, 3, 4);
    ck_assert_uint_eq(it.ndim, 1);
    ck_assert_uint_eq(it.run, 48);
    ckpt__strided_init(&it, NULL, NULL, 0, 8);
    ck_assert(ckpt__strided_is_contiguous(&it) && it.run == 8);
}
END_TEST

START_TEST(bytes_are_swapped_by_unit)
{
    unsigned char b[] = {1, 2, 3, 4, 5, 6, 7, 8};
    ckpt__swap_bytes(b, 8, 4);
    ck_assert(memcmp(b, (unsigned char[]){4, 3, 2, 1, 8, 7, 6, 5}, 8) == 0);
    ckpt__swap_bytes(b, 8, 1);
    ck_assert(b[0] == 4);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("strided");
    TCase *t = tcase_create("strided");
    tcase_add_test(t, gather_and_scatter_as_brute_force_does);
    tcase_add_test(t, neighbours_are_merged);
    tcase_add_test(t, bytes_are_swapped_by_unit);
    suite_add_tcase(s, t);
    return run_suite(s);
}
