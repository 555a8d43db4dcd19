/* tests/unit/codec/test_crc32.c - codec/crc32: the check value, zlib's results, pieces, combination. */
#include <zlib.h>
#include "codec/crc32.h"
#include "../runner.h"

START_TEST(check_value)
{
    ck_assert_uint_eq(ckpt__crc32(0, "123456789", 9), 0xcbf43926u); /* the catalogue's check value */
    ck_assert_uint_eq(ckpt__crc32(0, "", 0), 0);
    ck_assert_uint_eq(ckpt__crc32(0x12345678, NULL, 0), 0x12345678);
}
END_TEST

START_TEST(same_as_zlib)
{
    static unsigned char data[70000];
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
    for (size_t n = 0; n < 600; n++)
        for (size_t at = 0; at < 17; at += 4)
            ck_assert_uint_eq(ckpt__crc32((uint32_t)n, data + at, n), (uint32_t)crc32(n, data + at, (uInt)n));
    ck_assert_uint_eq(ckpt__crc32(0, data, sizeof data), (uint32_t)crc32(0, data, sizeof data));
}
END_TEST

START_TEST(pieces_and_combination)
{
    static char data[5000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * i >> 3);
    uint32_t whole = ckpt__crc32(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += 37) {
        uint32_t a = ckpt__crc32(0, data, cut), b = ckpt__crc32(0, data + cut, sizeof data - cut);
        ck_assert_uint_eq(ckpt__crc32(a, data + cut, sizeof data - cut), whole);
        ck_assert_uint_eq(ckpt__crc32_combine(a, b, sizeof data - cut), whole);
    }
}
END_TEST

/* Lengths past 32 bits: combining with n zero bytes k times is combining with k * n once. */
START_TEST(long_combination)
{
    uint64_t n = UINT64_C(3) << 30;
    uint32_t zeros = 0, step = 0xdeadbeef;
    for (int i = 0; i < 4; i++)
        step = ckpt__crc32_combine(step, zeros, n);
    ck_assert_uint_eq(step, ckpt__crc32_combine(0xdeadbeef, zeros, 4 * n));
    ck_assert_uint_ne(step, ckpt__crc32_combine(0xdeadbeef, zeros, (uint32_t)(4 * n)));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("crc32");
    TCase *t = tcase_create("crc32");
    tcase_add_test(t, check_value);
    tcase_add_test(t, same_as_zlib);
    tcase_add_test(t, pieces_and_combination);
    tcase_add_test(t, long_combination);
    suite_add_tcase(s, t);
    return run_suite(s);
}
