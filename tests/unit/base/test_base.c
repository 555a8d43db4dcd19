/* Errors, buffers, arenas, hash tables, numbers, globs. */
#include "base/base.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../runner.h"

START_TEST(errors_are_one_escaped_line)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(ckpt__fail(&err, CKPT_E_DAMAGED, "a\nb\x1b[31m", "bad \n byte %d", 7), CKPT_E_DAMAGED);
    ck_assert_str_eq(err.object, "a\\nb\\x1b[31m");
    ck_assert_str_eq(err.message, "bad \\n byte 7");
    ckpt__error_prefix(&err, "while reading %s", "x");
    ck_assert_str_eq(err.message, "while reading x: bad \\n byte 7");
    ck_assert_int_eq(ckpt__fail(NULL, CKPT_E_LIMIT, NULL, "nobody listens"), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__fail_sys(&err, 28, "f", "cannot write"), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, 28);
    ck_assert_ptr_nonnull(strstr(err.message, "No space left"));
}
END_TEST

START_TEST(long_text_is_cut_with_dots)
{
    char out[12];
    ck_assert_str_eq(ckpt__escape(out, sizeof out, "abcdefghijklmnop", 16), "abcdefgh...");
    ck_assert_str_eq(ckpt__escape(out, sizeof out, "\xff", 1), "\\xff");
    ck_assert_str_eq(ckpt__escape(out, sizeof out, "\xc3\xa9", 2), "\xc3\xa9");
    ck_assert_str_eq(ckpt__escape(out, sizeof out, "\xc2\x9b", 2), "\\x9b"); /* a C1 control */
    ckpt_error err;
    char big[4000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    ckpt__fail(&err, CKPT_E_FORMAT, big, "%s", big);
    ck_assert_uint_lt(strlen(err.object), sizeof err.object);
    ck_assert_uint_lt(strlen(err.message), sizeof err.message);
}
END_TEST

START_TEST(shapes_are_checked)
{
    uint64_t n;
    int64_t strides[3];
    ck_assert(ckpt__numel((int64_t[]){2, 3}, 2, &n) && n == 6);
    ck_assert(ckpt__numel(NULL, 0, &n) && n == 1);
    ck_assert(ckpt__numel((int64_t[]){0, 5}, 2, &n) && n == 0);
    ck_assert(!ckpt__numel((int64_t[]){-1}, 1, &n));
    ck_assert(!ckpt__numel((int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}, 2, &n));
    ck_assert(!ckpt__numel((int64_t[]){0, INT64_C(1) << 40, INT64_C(1) << 40}, 3, &n));
    ckpt__c_strides((int64_t[]){2, 0, 4}, 3, strides);
    ck_assert(strides[0] == 4 && strides[1] == 4 && strides[2] == 1);
    ck_assert(ckpt__is_c_order((int64_t[]){2, 1, 3}, (int64_t[]){3, 77, 1}, 3));
    ck_assert(!ckpt__is_c_order((int64_t[]){2, 3}, (int64_t[]){1, 2}, 2));
    ck_assert(ckpt__view_extent((int64_t[]){2, 3}, (int64_t[]){10, 2}, 2, &n) && n == 15);
    ck_assert(ckpt__view_extent((int64_t[]){2, 0}, (int64_t[]){10, 2}, 2, &n) && n == 0);
    ck_assert(!ckpt__view_extent((int64_t[]){2}, (int64_t[]){-1}, 1, &n));
    ck_assert(!ckpt__view_extent((int64_t[]){INT64_MAX, 2}, (int64_t[]){4, INT64_MAX}, 2, &n));
    ck_assert(ckpt__nbytes(3, 6, &n) && n == 3);
    ck_assert(!ckpt__nbytes(UINT64_MAX / 2, 32, &n));
}
END_TEST

START_TEST(doubles_round_trip_in_any_locale)
{
    static const struct {
        double d;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {1.0, "1.0"},
        {-0.0, "-0.0"},
        {1e300, "1e+300"},
        {5e-324, "5e-324"},
        {1.0 / 3, "0.3333333333333333"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {65536, "65536.0"},
        {3e-4, "0.0003"},
    };
    char buf[CKPT__DOUBLE_MAX];
    double back;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed: a comma */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_str_eq(ckpt__format_double(buf, cases[i].d), cases[i].text);
        ck_assert(ckpt__parse_double(buf, strlen(buf), &back));
        ck_assert(memcmp(&back, &cases[i].d, 8) == 0);
    }
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        double d;
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&d, &bits, 8);
        if (isnan(d) || isinf(d))
            continue;
        ckpt__format_double(buf, d);
        ck_assert(ckpt__parse_double(buf, strlen(buf), &back) && back == d);
    }
    setlocale(LC_ALL, "C");
    ck_assert_str_eq(ckpt__format_double(buf, (double)NAN), "nan");
    ck_assert_str_eq(ckpt__format_double(buf, -(double)INFINITY), "-inf");
    static const char *const bad[] = {"", " 1", "0x10", "nan", "inf", "1e", "1,5", "1 ", "--1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!ckpt__parse_double(bad[i], strlen(bad[i]), &back), "'%s' was taken", bad[i]);
}
END_TEST

START_TEST(integers_know_their_range)
{
    int64_t i;
    ck_assert(ckpt__parse_i64("9223372036854775807", 19, &i) && i == INT64_MAX);
    ck_assert(ckpt__parse_i64("-9223372036854775808", 20, &i) && i == INT64_MIN);
    ck_assert(!ckpt__parse_i64("9223372036854775808", 19, &i));
    ck_assert(!ckpt__parse_i64("-9223372036854775809", 20, &i));
    ck_assert(!ckpt__parse_i64("", 0, &i) && !ckpt__parse_i64("-", 1, &i) && !ckpt__parse_i64("1a", 2, &i));
}
END_TEST

START_TEST(globs)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        {"*", "", true},
        {"*", "a.b", true},
        {"a.*", "a.b.c", true},
        {"a.?", "a.b", true},
        {"a.?", "a.", false},
        {"a[0]", "a[0]", true},
        {"a\\*", "a*", true},
        {"a\\*", "ab", false},
        {"*.weight", "h.0.weight", true},
        {"*.weight", "weight", false},
        {"", "", true},
        {"", "a", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXbY", false},
        {"{x}", "{x}", true},
        {"a\\", "a\\", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(ckpt__glob(cases[i].pattern, strlen(cases[i].pattern), cases[i].text, strlen(cases[i].text)) ==
                          cases[i].match,
                      "glob '%s' over '%s'", cases[i].pattern, cases[i].text);
}
END_TEST

START_TEST(heads_and_tails)
{
    ckpt_str none = {NULL, 0}, name = ckpt__s("fc.weight"), whole = ckpt__s(".weight");
    ck_assert(ckpt__str_begins(name, "fc.") && ckpt__str_begins(name, "") && ckpt__str_begins(whole, ".weight"));
    ck_assert(!ckpt__str_begins(name, "fd.") && !ckpt__str_begins(name, "fc.weights") && !ckpt__str_begins(none, ""));
    ck_assert(ckpt__str_ends(name, ".weight") && ckpt__str_ends(whole, ".weight") &&
              !ckpt__str_ends(name, "fc.weight.") && !ckpt__str_ends(none, ""));
    ck_assert(ckpt__str_begins_more(name, "fc.") && !ckpt__str_begins_more(whole, ".weight") &&
              !ckpt__str_begins_more(name, "fd."));
    ck_assert(ckpt__str_ends_more(name, ".weight") && !ckpt__str_ends_more(whole, ".weight") &&
              !ckpt__str_ends_more(name, ".bias"));
    ck_assert(ckpt__str_ends_with(name, whole) && ckpt__str_begins_with(name, none) &&
              !ckpt__str_ends_with(whole, name));
    ck_assert(ckpt__str_holds(name, ".wei") && !ckpt__str_holds(name, "WEI") && !ckpt__str_holds(none, "a"));
    ck_assert(ckpt__str_holds_nocase(name, "WEIGHT") && !ckpt__str_holds_nocase(name, "weights") &&
              !ckpt__str_holds_nocase(none, ""));
    ck_assert(ckpt__str_is(ckpt__str_last(name), "weight") && ckpt__str_is(ckpt__str_last(ckpt__s("bias")), "bias"));
    ck_assert(ckpt__str_last(none).data == NULL && ckpt__str_last(none).size == 0);
    ck_assert(ckpt__begins("a.json", "a.") && !ckpt__begins("a", "a.") && ckpt__ends("a.json", ".json") &&
              !ckpt__ends("json", ".json"));
    name.size = 2; /* what follows the size is not a part of the string */
    ck_assert(!ckpt__str_begins(name, "fc.") && ckpt__str_ends(name, "c"));
}
END_TEST

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Byte by byte, beside the same question asked of the library. */
START_TEST(held_in_either_case)
{
    static const char letters[] = "aNn_.k@`";
    static const char *const parts[] = {"nan", "n", "an_a", "_n", "a.", "k_", "@a", ""};
    ckpt_str some[4096];
    char texts[4096][8];
    size_t held = 0;
    for (size_t i = 0; i < 4096; i++) {
        size_t size = i / 8 % 8, rest = i * 2654435761u;
        for (size_t k = 0; k < size; k++, rest /= 8)
            texts[i][k] = letters[rest % 8];
        some[i] = (ckpt_str){texts[i], size};
    }
    for (size_t i = 0; i < 4096; i++)
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            size_t n = strlen(parts[p]);
            bool holds = false;
            for (size_t at = 0; n <= some[i].size && at <= some[i].size - n && !holds; at++) {
                size_t same = 0;
                while (same < n && lower(some[i].data[at + same]) == lower(parts[p][same]))
                    same++;
                holds = same == n;
            }
            held += holds && n > 1;
            ck_assert_msg(ckpt__str_holds_nocase(some[i], parts[p]) == holds, "'%.*s' holds '%s'", (int)some[i].size,
                          some[i].data, parts[p]);
        }
    ck_assert_uint_gt(held, 0);
}
END_TEST

START_TEST(tails_of_a_table)
{
    static const ckpt_str tails[] = {CKPT__STR("_mask"), CKPT__STR(".v")};
    ck_assert(ckpt__str_ends_among(ckpt__s("a_mask"), tails, 2) && ckpt__str_ends_among(ckpt__s(".v"), tails, 2));
    ck_assert(!ckpt__str_ends_among(ckpt__s("mask"), tails, 2) && !ckpt__str_ends_among(ckpt__s("a.v"), tails, 1));
    ck_assert(!ckpt__str_ends_among(ckpt__s(""), tails, 2) && !ckpt__str_ends_among((ckpt_str){NULL, 0}, tails, 2));
}
END_TEST

START_TEST(arena_obeys_its_limit)
{
    ckpt__arena *a = ckpt__arena_new(1000);
    char *p = ckpt__arena_alloc(a, 100);
    ck_assert_ptr_nonnull(p);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(p[i], 0);
    ck_assert_uint_eq((uintptr_t)p % 8, 0);
    ck_assert_ptr_null(ckpt__arena_alloc(a, 2000));
    ck_assert(ckpt__arena_over_limit(a));
    ck_assert_ptr_null(ckpt__arena_array(a, SIZE_MAX / 2, 4));
    ckpt__arena_free(a);
    a = ckpt__arena_new(0);
    for (size_t i = 1; i < 3000; i++)
        memset(ckpt__arena_alloc(a, i * 7), 1, i * 7);
    memset(ckpt__arena_alloc(a, 9 << 20), 2, 9 << 20);
    ckpt__arena_free(a);
}
END_TEST

static bool is_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* What is taken after a mark is taken again, and zero again: in the same chunk, in further ones, and in ones of its own. */
START_TEST(arena_rewound)
{
    static const size_t sizes[] = {40, 5000, 20000, 100, (size_t)3 << 20, 64, 300000, (size_t)9 << 20, 8, 400000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    ckpt__arena *a = ckpt__arena_new(0);
    for (int before = 0; before < 12; before++) {
        ckpt__arena_mark outer = ckpt__arena_note(a);
        uint64_t used = ckpt__arena_used(a);
        for (size_t i = 0; i < 2 * SIZES; i++) {
            ckpt__arena_mark inner = ckpt__arena_note(a);
            for (size_t k = 0; k <= i % SIZES; k++) {
                char *p = ckpt__arena_alloc(a, sizes[k]);
                ck_assert(is_zero(p, sizes[k]));
                memset(p, 1, sizes[k]);
            }
            if ((i + (size_t)before) % 3)
                ckpt__arena_rewind(a, &inner);
        }
        ckpt__arena_rewind(a, &outer);
        ck_assert_uint_eq(ckpt__arena_used(a), used);
        for (int i = 0; i < before; i++)
            memset(ckpt__arena_alloc(a, 7777), 2, 7777); /* so that marks lie anywhere in a chunk */
    }
    ckpt__arena_free(a);
    a = ckpt__arena_new(1000);
    ckpt__arena_mark mark = ckpt__arena_note(a);
    ck_assert_ptr_nonnull(ckpt__arena_alloc(a, 900));
    ck_assert_ptr_null(ckpt__arena_alloc(a, 900));
    ckpt__arena_rewind(a, &mark);
    char *p = ckpt__arena_alloc(a, 900); /* the limit is of what is there */
    ck_assert(p != NULL && is_zero(p, 900));
    ckpt__arena_free(a);
}
END_TEST

/* Small ones, ones that fill a chunk to its end, ones with a chunk of their own: all zero, aligned, and none in another. */
START_TEST(arena_gives_zeroed_memory_once)
{
    static const size_t sizes[] = {16,      0, 1, 24, 4000, 16384, 100000, 64, (2 << 20) - 64, 48, (1 << 20) + 1,
                                   5 << 20, 8};
    enum { N = 600, KINDS = sizeof sizes / sizeof *sizes };
    ckpt__arena *a = ckpt__arena_new(0);
    ckpt__arena_expect(a, (size_t)_i * (3 << 20));
    static unsigned char *given[N];
    uint64_t used = 0;
    for (size_t i = 0; i < N; i++) {
        size_t n = sizes[i * 7 % KINDS] * (i % KINDS != 11 || i < 20);
        given[i] = ckpt__arena_alloc(a, n);
        ck_assert_ptr_nonnull(given[i]);
        ck_assert_uint_eq((uintptr_t)given[i] % 8, 0);
        ck_assert_msg(is_zero((char *)given[i], n), "allocation %zu of %zu bytes", i, n);
        memset(given[i], (int)(i % 250 + 1), n);
        used += (n + 7) / 8 * 8;
        ck_assert_uint_eq(ckpt__arena_used(a), used);
    }
    for (size_t i = 0; i < N; i++) {
        size_t n = sizes[i * 7 % KINDS] * (i % KINDS != 11 || i < 20);
        ck_assert_msg(n == 0 || (given[i][0] == i % 250 + 1 && memcmp(given[i], given[i] + 1, n - 1) == 0),
                      "allocation %zu was given out twice", i);
    }
    ck_assert_ptr_null(ckpt__arena_alloc(a, SIZE_MAX - 20));
    ck_assert_ptr_null(ckpt__arena_alloc(a, SIZE_MAX - (4 << 20)));
    ckpt__arena_free(a);
}
END_TEST

/* The limit holds to the byte, across chunks, whichever way they are taken. */
START_TEST(arena_limit_is_exact)
{
    const uint64_t limit = 10 << 20;
    for (size_t step = 16; step <= 3 << 20; step *= 3) {
        size_t size = (step + 15) / 16 * 16;
        ckpt__arena *a = ckpt__arena_new(limit);
        ckpt__arena_expect(a, (size_t)_i * (7 << 20)); /* room for less, and for more than may be given out */
        uint64_t used = 0;
        while (used + size <= limit) {
            ck_assert_ptr_nonnull(ckpt__arena_alloc(a, size));
            used += size;
        }
        ck_assert(!ckpt__arena_over_limit(a));
        ck_assert_ptr_null(ckpt__arena_alloc(a, size));
        ck_assert(ckpt__arena_over_limit(a));
        if (used < limit)
            ck_assert_ptr_nonnull(ckpt__arena_alloc(a, (size_t)(limit - used)));
        ck_assert_uint_eq(ckpt__arena_used(a), limit);
        ck_assert_ptr_null(ckpt__arena_alloc(a, 1));
        ckpt__arena_free(a);
    }
}
END_TEST

START_TEST(hash_keeps_what_it_is_given)
{
    enum { N = 20000 };
    static char keys[N][12];
    ckpt__hash *h = ckpt__hash_new(0);
    size_t value;
    for (size_t i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key%zu", i);
        ck_assert_int_eq(ckpt__hash_put(h, keys[i], strlen(keys[i]), i, NULL), 1);
    }
    ck_assert_int_eq(ckpt__hash_put(h, "key77", 5, 1, &value), 0);
    ck_assert_uint_eq(value, 77);
    for (size_t i = 0; i < N; i++)
        ck_assert(ckpt__hash_get(h, keys[i], strlen(keys[i]), &value) && value == i);
    ck_assert(!ckpt__hash_get(h, "key", 3, &value));
    ck_assert_int_eq(ckpt__hash_put(h, "a\0b", 3, 5, NULL), 1);
    ck_assert(!ckpt__hash_get(h, "a\0c", 3, &value));
    ck_assert(ckpt__hash_get(h, "a\0b", 3, &value) && value == 5);
    ckpt__hash_free(h);
}
END_TEST

/* The order of the questions, and a key that is not there between them, change no answer. */
/* Keys that are told before they are put: the table is the one that it is without, whatever was told and never put. */
START_TEST(hash_is_told_ahead)
{
    enum { KEYS = 20000 };
    static char keys[KEYS][16];
    uint32_t r = 3;
    for (int told = 0; told < 4; told++) { /* none; in order; with others between; more than the ring has */
        ckpt__hash *h = ckpt__hash_new(told == 2 ? KEYS : 0);
        ck_assert_ptr_nonnull(h);
        size_t put = 0, value;
        for (size_t i = 0, next = 0; i < KEYS; i++) {
            r = r * 1664525u + 1013904223u;
            snprintf(keys[i], sizeof keys[i], "key%u", (unsigned)(i < 10 || (r >> 16) % 50 ? i : i / 2));
            for (; told && next <= i; next++) {
                if (told > 1 && (r >> 8) % 5 == 0)
                    ckpt__hash_ahead(h, "never put", 9);
                ckpt__hash_ahead(h, keys[i], strlen(keys[i]));
                if (told == 3 && i % 100 == 0)
                    for (int k = 0; k < 50; k++)
                        ckpt__hash_ahead(h, keys[k % 10], strlen(keys[k % 10]));
            }
            const bool there = ckpt__hash_get(h, keys[i], strlen(keys[i]), &value);
            ck_assert_int_eq(ckpt__hash_put(h, keys[i], strlen(keys[i]), i, &value), there ? 0 : 1);
            put += !there;
            if (i % 1000 == 999)
                ckpt__hash_ahead_end(h);
        }
        ck_assert_uint_gt(put, KEYS / 2);
        for (size_t i = 0; i < KEYS; i++)
            ck_assert(ckpt__hash_get(h, keys[i], strlen(keys[i]), &value) && strcmp(keys[value], keys[i]) == 0);
        ck_assert(!ckpt__hash_get(h, "never put", 9, NULL));
        ckpt__hash_free(h);
    }
}
END_TEST

START_TEST(hash_answers_in_any_order)
{
    enum { N = 1000 };
    static char keys[N][12];
    const size_t steps[] = {1, N - 1, 7, 499};
    ckpt__hash *h = ckpt__hash_new(0);
    size_t value = 0;
    ck_assert(!ckpt__hash_get(h, "key", 3, &value)); /* of nothing */
    for (size_t i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key%zu", i);
        ck_assert_int_eq(ckpt__hash_put(h, keys[i], strlen(keys[i]), 3 * i, NULL), 1);
    }
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (size_t k = 0, i = 0; k < 2 * N; k++, i = (i + steps[s]) % N) {
            ck_assert(ckpt__hash_get(h, keys[i], strlen(keys[i]), &value) && value == 3 * i);
            if (k % 5 == 4)
                ck_assert(!ckpt__hash_get(h, keys[i], strlen(keys[i]) - 1, &value) || value != 3 * i);
        }
    ckpt__hash_free(h);
}
END_TEST

START_TEST(hash_takes_back_the_last)
{
    enum { N = 5000 };
    static char keys[N][12];
    ckpt__hash *h = ckpt__hash_new(0);
    size_t value = 0;
    for (size_t i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "%zu", i);
        ck_assert_int_eq(ckpt__hash_put(h, keys[i], strlen(keys[i]), 0, NULL), 1);
        ck_assert(ckpt__hash_get(h, keys[i], strlen(keys[i]), NULL));
        ckpt__hash_take_back(h);
        ck_assert(!ckpt__hash_get(h, keys[i], strlen(keys[i]), NULL));
        ck_assert(i % 100 || ckpt__hash_expect(h, 100));
        ck_assert_int_eq(ckpt__hash_put(h, keys[i], strlen(keys[i]), i, NULL), 1);
    }
    for (size_t i = 0; i < N; i++)
        ck_assert(ckpt__hash_get(h, keys[i], strlen(keys[i]), &value) && value == i);
    ckpt__hash_free(h);
}
END_TEST

START_TEST(buffers_grow)
{
    ckpt__buf b = {0};
    for (int i = 0; i < 1000; i++)
        ckpt__buf_printf(&b, "%d,", i);
    ckpt__buf_char(&b, '\0');
    ck_assert(!b.failed);
    ck_assert_uint_eq(b.size, 3891);
    char big[1000];
    memset(big, 'y', sizeof big);
    big[999] = '\0';
    ckpt__buf_printf(&b, "%s", big);
    ck_assert_uint_eq(b.size, 3891 + 999);
    ck_assert_int_eq(b.data[b.size], 0);
    ck_assert(!ckpt__buf_reserve(&b, SIZE_MAX));
    ck_assert(b.failed);
    ck_assert_uint_eq(b.size, 3891 + 999);
    ckpt__buf_free(&b);
}
END_TEST

START_TEST(utf8)
{
    static const struct {
        const char *s;
        size_t n;
        bool ok;
    } cases[] = {
        {"abc", 3, true},
        {"\xc3\xa9", 2, true},
        {"\xc3", 1, false},
        {"\xc0\x80", 2, false},
        {"\xed\xa0\x80", 3, false},
        {"\xf4\x90\x80\x80", 4, false},
        {"\xf0\x9f\x98\x80", 4, true},
        {"\xe0\x80\x80", 3, false},
        {"\x80", 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(ckpt__utf8_valid(cases[i].s, cases[i].n) == cases[i].ok, "case %zu", i);
}
END_TEST

/* The header, configure.ac (by way of the library) and the library's number say one version. */
START_TEST(one_version)
{
    char text[40];
    snprintf(text, sizeof text, "%d.%d.%d", CKPT_VERSION_MAJOR, CKPT_VERSION_MINOR, CKPT_VERSION_PATCH);
    ck_assert_str_eq(text, ckpt_version());
    ck_assert_str_eq(text, PACKAGE_VERSION);
    ck_assert_uint_eq(ckpt_version_number(), CKPT_VERSION_NUMBER);
    ck_assert_uint_eq(CKPT_VERSION_NUMBER, CKPT_VERSION_MAJOR * 10000 + CKPT_VERSION_MINOR * 100 + CKPT_VERSION_PATCH);
}
END_TEST

/* A struct of the caller's that may grow: six fields here, fewer or more there. */
typedef struct sized {
    uint32_t struct_size, first;
    uint64_t fields[6];
} sized;

START_TEST(structs_at_their_own_size)
{
    enum { FIRST = 24 };
    ckpt_error err = CKPT_ERROR_INIT;
    sized own, given = {0, 1, {2, 3, 4, 5, 6, 7}};
    size_t knows = offsetof(sized, fields[4]);
    ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, &given, "sized", &err),
                     CKPT_OK); /* 0: the first release's */
    ck_assert(own.struct_size == knows && own.first == 1 && own.fields[1] == 3 && own.fields[2] == 0);
    given.struct_size = offsetof(sized, fields[3]);
    ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, &given, "sized", &err), CKPT_OK);
    ck_assert(own.fields[2] == 4 && own.fields[3] == 0);
    given.struct_size = sizeof given;
    ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, &given, "sized", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "sized");
    ck_assert_ptr_nonnull(strstr(err.message, "newer libckpt"));
    given.fields[4] = 0;
    ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, &given, "sized", &err), CKPT_E_ARGUMENT);
    given.fields[5] = 0;
    ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, &given, "sized", &err), CKPT_OK);
    ck_assert(own.fields[3] == 5);
    static const uint32_t bad[] = {1, FIRST - 1, 4097, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        given.struct_size = bad[i];
        ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, &given, "sized", &err), CKPT_E_ARGUMENT);
        ck_assert_int_eq(ckpt__check_answer(&given, FIRST, "sized", &err), CKPT_E_ARGUMENT);
    }
    ck_assert_int_eq(ckpt__take_options(&own, knows, FIRST, NULL, "sized", &err), CKPT_OK);
    ck_assert(own.struct_size == knows && own.first == 0 && own.fields[0] == 0);
}
END_TEST

START_TEST(answers_at_their_own_size)
{
    enum { FIRST = 24 };
    size_t knows = offsetof(sized, fields[4]);
    const sized own = {99, 1, {2, 3, 4, 5, 6, 7}};
    sized given, back;
    memset(&given, 0xff, sizeof given);
    given.struct_size = 0;
    ckpt__give_answer(&given, &own, knows, FIRST);
    ck_assert(given.struct_size == 0 && given.first == 1 && given.fields[1] == 3 && given.fields[2] == UINT64_MAX);
    given.struct_size = sizeof given; /* of a newer header: what this library does not know is 0 */
    ckpt__give_answer(&given, &own, knows, FIRST);
    ck_assert(given.struct_size == sizeof given && given.fields[3] == 5 && given.fields[4] == 0 &&
              given.fields[5] == 0);
    ckpt__take_answer(&back, knows, FIRST, &given);
    ck_assert(back.first == 1 && back.fields[3] == 5);
    ckpt__take_answer(&back, knows, FIRST, NULL);
    ck_assert(back.first == 0);
    ckpt__give_answer(NULL, &own, knows, FIRST);
    memset(&given, 0xff, sizeof given); /* never initialized: left alone */
    ckpt__give_answer(&given, &own, knows, FIRST);
    ck_assert(given.first == UINT32_MAX);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base");
    TCase *t = tcase_create("base");
    tcase_add_test(t, errors_are_one_escaped_line);
    tcase_add_test(t, long_text_is_cut_with_dots);
    tcase_add_test(t, shapes_are_checked);
    tcase_add_test(t, doubles_round_trip_in_any_locale);
    tcase_add_test(t, integers_know_their_range);
    tcase_add_test(t, globs);
    tcase_add_test(t, heads_and_tails);
    tcase_add_test(t, held_in_either_case);
    tcase_add_test(t, tails_of_a_table);
    tcase_add_test(t, arena_obeys_its_limit);
    tcase_add_test(t, arena_rewound);
    tcase_add_loop_test(t, arena_gives_zeroed_memory_once, 0, 3);
    tcase_add_loop_test(t, arena_limit_is_exact, 0, 3);
    tcase_add_test(t, hash_keeps_what_it_is_given);
    tcase_add_test(t, hash_is_told_ahead);
    tcase_add_test(t, hash_answers_in_any_order);
    tcase_add_test(t, hash_takes_back_the_last);
    tcase_add_test(t, buffers_grow);
    tcase_add_test(t, one_version);
    tcase_add_test(t, structs_at_their_own_size);
    tcase_add_test(t, answers_at_their_own_size);
    tcase_add_test(t, utf8);
    suite_add_tcase(s, t);
    return run_suite(s);
}
