/* Copies past the cache: every length and every alignment around a line, and no byte beside them. */
#include "base/stream_copy.h"

#include <stdint.h>
#include <string.h>
#include <zlib.h>
#include "codec/crc32.h"
#include "codec/crc32_fold.h"
#include "../runner.h"

enum { SIZE = 1024, GAP = 0xA5 };

static void fill(unsigned char *data, size_t n)
{
    uint32_t r = 7;
    for (size_t i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        data[i] = (unsigned char)(r >> 24);
    }
}

/* The bytes before `at` and from at + n on are untouched, and those between them are from's. */
static void compare(const unsigned char *to, size_t at, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < SIZE; i++) {
        unsigned want = i >= at && i - at < n ? from[i - at] : GAP;
        if (to[i] != want) /* the assertion's own cost would be a minute */
            ck_abort_msg("%zu bytes to %zu: byte %zu is %02x, not %02x", n, at, i, to[i], want);
    }
}

START_TEST(each_length_and_alignment)
{
    unsigned char *from = malloc(SIZE), *to = aligned_alloc(64, SIZE);
    fill(from, SIZE);
    for (size_t at = 0; at < 130; at++)
        for (size_t n = 0; n < 420; n += n < 200 ? 1 : 13) {
            size_t skip = (at * 7 + n) % 67;
            memset(to, GAP, SIZE);
            ckpt__copy_stream_part(to + at, from + skip, n);
            ckpt__copy_stream_end();
            compare(to, at, from + skip, n);
            memset(to, GAP, SIZE);
            uint32_t crc = n ? (uint32_t)crc32_z(5, from + skip, n) : 5;
            ck_assert_uint_eq(ckpt__crc32_copy_part(5, to + at, from + skip, n, true), crc);
            ckpt__copy_stream_end();
            compare(to, at, from + skip, n);
            memset(to, GAP, SIZE);
            ck_assert_uint_eq(ckpt__crc32_copy_part(5, to + at, from + skip, n, false), crc);
            compare(to, at, from + skip, n);
            memset(to, GAP, SIZE);
            ckpt__copy_ahead(to + at, from + skip, n, 100);
            compare(to, at, from + skip, n);
            ck_assert_uint_eq(ckpt__crc32(5, from + skip, n), crc);
        }
    free(from);
    free(to);
}
END_TEST

/* The source ends where its memory does: a sanitizer sees a read past it. */
START_TEST(nothing_is_read_past_the_end)
{
    for (size_t n = 1; n < 600; n++) {
        unsigned char *from = malloc(n), *to = malloc(n);
        fill(from, n);
        const uint32_t crc = (uint32_t)crc32_z(0, from, n);
        for (int way = 0; way < 4; way++) {
            memset(to, 0, n);
            if (way == 0)
                ckpt__copy_stream_part(to, from, n);
            else if (way == 1)
                ckpt__copy_ahead(to, from, n, 2048);
            else
                ck_assert_uint_eq(ckpt__crc32_copy_part(0, to, from, n, way == 2), crc);
            ckpt__copy_stream_end();
            ck_assert(memcmp(from, to, n) == 0);
        }
        ck_assert_uint_eq(ckpt__crc32(0, from, n), crc);
        free(from);
        free(to);
    }
}
END_TEST

START_TEST(a_crc_of_many_pieces)
{
    size_t n = (3 << 20) + 77;
    unsigned char *from = malloc(n), *to = malloc(n + 1);
    fill(from, n);
    const uint32_t crc = (uint32_t)crc32_z(0, from, n);
    ck_assert_uint_eq(ckpt__crc32(0, from, n), crc);
    ck_assert_uint_eq(ckpt__crc32_copy_part(0, to + 1, from, n, true), crc);
    ckpt__copy_stream_end();
    ck_assert(memcmp(from, to + 1, n) == 0);
    memset(to, 0, n + 1);
    ck_assert_uint_eq(ckpt__crc32_copy_part(0, to + 1, from, n, false), crc);
    ck_assert(memcmp(from, to + 1, n) == 0);
    memset(to, 0, n + 1);
    ckpt__copy_stream_part(to + 1, from, n);
    ckpt__copy_stream_end();
    ck_assert(memcmp(from, to + 1, n) == 0);
    free(from);
    free(to);
}
END_TEST

/* Each loop that the processor has, at each number of lines up to some that all of its parts take part in, and what it copies. */
START_TEST(each_width)
{
    enum { LINES = 40, MOST = LINES * CKPT__LINE };
    unsigned char *from = malloc(MOST + 64), *to = aligned_alloc(64, MOST + 128), left[CKPT__LINE];
    unsigned widths = 0;
    fill(from, MOST + 64);
    for (unsigned width = 128; width <= 512; width *= 2) {
        ckpt__fold_lines *fold = ckpt__fold_of(width);
        widths += fold != NULL;
        for (size_t n = CKPT__LINE; fold && n <= MOST; n += CKPT__LINE)
            for (int how = CKPT__FOLD_LOOK; how <= CKPT__FOLD_STREAM; how++) {
                const size_t skip = n / CKPT__LINE % 7 * 9, at = how == CKPT__FOLD_STREAM ? 64 : skip;
                const uint32_t before = (uint32_t)(n * 77777);
                memset(to, GAP, MOST + 128);
                fold((ckpt__fold_how)how, before, (char *)to + at, (const char *)from + skip, n, left);
                ckpt__copy_stream_end();
                ck_assert_uint_eq(crc32_z(UINT32_MAX, left, sizeof left), crc32_z(before, from + skip, n));
                for (size_t i = 0; i < MOST + 128; i++) {
                    const bool inside = how != CKPT__FOLD_LOOK && i >= at && i - at < n;
                    if (to[i] != (inside ? from[skip + i - at] : GAP))
                        ck_abort_msg("%u bits, %zu bytes, way %d: byte %zu is %02x", width, n, how, i, to[i]);
                }
            }
    }
    ckpt__fold_lines *widest = ckpt__fold_widest();
    ck_assert(widest == ckpt__fold_of(512) || !ckpt__fold_of(512));
    ck_assert((widest != NULL) == (widths > 0));
    ck_assert_ptr_null(ckpt__fold_of(64));
    free(from);
    free(to);
}
END_TEST

START_TEST(no_bytes_and_no_memory)
{
    ckpt__copy_stream_part(NULL, NULL, 0);
    ckpt__copy_ahead(NULL, NULL, 0, 0);
    ck_assert_uint_eq(ckpt__crc32_copy_part(9, NULL, NULL, 0, true), 9);
    ck_assert_uint_eq(ckpt__crc32_copy_part(9, NULL, NULL, 0, false), 9);
    ck_assert_uint_eq(ckpt__crc32(9, NULL, 0), 9);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stream_copy");
    TCase *t = tcase_create("stream_copy");
    tcase_add_test(t, each_length_and_alignment);
    tcase_add_test(t, nothing_is_read_past_the_end);
    tcase_add_test(t, a_crc_of_many_pieces);
    tcase_add_test(t, each_width);
    tcase_add_test(t, no_bytes_and_no_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
