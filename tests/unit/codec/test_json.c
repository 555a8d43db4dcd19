/* tests/unit/codec/test_json.c - codec/json: what the grammar allows and forbids, texts, numbers, limits, writing. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include "codec/json.h"
#include "../runner.h"

/* Pulls everything; the status of the whole document. */
static ckpt_status pull(const char *text, size_t size, unsigned depth, ckpt_error *err)
{
    ckpt__json j;
    ckpt__json_start(&j, text, size, depth, "test");
    for (;;) {
        ckpt__json_event event = ckpt__json_next(&j, err);
        if (event == CKPT__JSON_END)
            return CKPT_OK;
        if (event == CKPT__JSON_ERROR) {
            ck_assert_int_eq(ckpt__json_next(&j, NULL), CKPT__JSON_ERROR);
            return j.status;
        }
    }
}

static const char *const good[] = {
    "0",
    "-0",
    "1",
    "-12.5e+3",
    "1E5",
    "0.1",
    "true",
    "false",
    "null",
    "\"\"",
    "[]",
    "{}",
    " [ 1 , 2 ] \r\n\t",
    "{\"a\":{\"b\":[{}]}}",
    "\"\\u0000\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\ud83d\\ude00\"",
    "\"\xf0\x9f\x98\x80\"",
    "\"\x7f\"",
    "[[],[[]],{}]",
    "123456789012345678901234567890",
    "{\"\":0}",
};

/* What cJSON, Python or others let pass, among the rest. */
static const char *const bad[] = {
    "",
    " ",
    "[02]",
    "01",
    "-",
    "-a",
    "1.",
    ".5",
    "1e",
    "1e+",
    "+1",
    "0x10",
    "NaN",
    "Infinity",
    "nul",
    "truex",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{'a':1}",
    "{\"a\" 1}",
    "[",
    "{",
    "\"",
    "\"\\\"",
    "]",
    "}",
    "[}",
    "{]",
    "[1}",
    "{\"a\":1]",
    "1 2",
    "[] []",
    "{}x",
    "\"\\x41\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\ud800\"",
    "\"\\ud800\\u0041\"",
    "\"\\udc00\"",
    "\"\\ud800\\ud800\"",
    "\"a\nb\"",
    "\"\x01\"",
    "\"\xff\"",
    "\"\xc0\xaf\"",
    "\"\xed\xa0\x80\"",
    "\"\xf4\x90\x80\x80\"",
    "\"\xe2\x82\"",
    "/*c*/1",
    "1//c",
    "\xef\xbb\xbf{}",
    "[1]\x0b",
    "{1:2}",
    "{null:1}",
    "--1",
    "1.2.3",
    "[\"a\":1]",
};

START_TEST(grammar)
{
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(pull(good[i], strlen(good[i]), 16, &err) == CKPT_OK, "%s: %s", good[i], err.message);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err.message[0] = '\0';
        ck_assert_msg(pull(bad[i], strlen(bad[i]), 16, &err) == CKPT_E_FORMAT, "%s was accepted", bad[i]);
        ck_assert_msg(strstr(err.message, "byte"), "%s: %s", bad[i], err.message);
    }
    ck_assert_int_eq(pull("[1]\0", 4, 16, &err), CKPT_E_FORMAT); /* a NUL is not white space */
    ck_assert_int_eq(pull("\"a\0b\"", 5, 16, &err), CKPT_E_FORMAT);
}
END_TEST

/* Every prefix of a sound document is refused, and reads no byte past its end (the sanitizers look). */
START_TEST(every_prefix)
{
    static const char text[] = "{\"a\":[1,-2.5e3,true,null,\"x\\u00e9\\ud83d\\ude00\"],\"b\":{\"c\":\"\xc3\xa9\"}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, text, n);
        ck_assert_int_eq(pull(copy, n, 16, NULL), CKPT_E_FORMAT);
        free(copy);
    }
    ck_assert_int_eq(pull(text, sizeof text - 1, 16, NULL), CKPT_OK);
}
END_TEST

START_TEST(depth)
{
    enum { N = 200000 };
    char *text = malloc(2 * N);
    ckpt_error err = CKPT_ERROR_INIT;
    memset(text, '[', N);
    memset(text + N, ']', N);
    ck_assert_int_eq(pull(text, 2 * N, 128, &err), CKPT_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.message, "128"));
    ck_assert_int_eq(pull(text, 2 * N, 1000000, &err), CKPT_E_LIMIT); /* CKPT__JSON_DEPTH holds whatever is asked */
    ck_assert_int_eq(pull(text + N - 128, 256, 128, &err), CKPT_OK);
    ck_assert_int_eq(pull(text + N - 129, 258, 128, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(pull(text + N - CKPT__JSON_DEPTH, 2 * CKPT__JSON_DEPTH, CKPT__JSON_DEPTH, &err), CKPT_OK);
    free(text);
}
END_TEST

START_TEST(texts)
{
    static const char text[] = "[\"plain\",\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\u0000z\"]";
    ckpt__json j;
    ckpt__buf scratch = {0};
    ckpt_str s;
    ckpt__json_start(&j, text, sizeof text - 1, 4, "test");
    ck_assert_int_eq(ckpt__json_expect(&j, CKPT__JSON_ARRAY, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt__json_string(&j, &scratch, &s, NULL), CKPT_OK);
    ck_assert(ckpt__str_is(s, "plain") && s.data == text + 2); /* nothing was copied */
    ck_assert_int_eq(ckpt__json_string(&j, &scratch, &s, NULL), CKPT_OK);
    ck_assert_uint_eq(s.size, 12);
    ck_assert_mem_eq(s.data, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z", 12);
    ck_assert_int_eq(ckpt__json_next(&j, NULL), CKPT__JSON_ARRAY_END);
    ck_assert_int_eq(ckpt__json_next(&j, NULL), CKPT__JSON_END);
    ckpt__buf_free(&scratch);
}
END_TEST

static ckpt_status one_int(const char *text, int64_t *v)
{
    ckpt__json j;
    ckpt__json_start(&j, text, strlen(text), 4, "test");
    return ckpt__json_int(&j, v, NULL);
}

START_TEST(integers)
{
    int64_t v;
    ck_assert_int_eq(one_int("9007199254740993", &v), CKPT_OK);
    ck_assert_int_eq(v, 9007199254740993);
    ck_assert_int_eq(one_int("-9223372036854775808", &v), CKPT_OK);
    ck_assert(v == INT64_MIN);
    ck_assert_int_eq(one_int("9223372036854775808", &v), CKPT_E_FORMAT);
    ck_assert_int_eq(one_int("1.0", &v), CKPT_E_FORMAT);
    ck_assert_int_eq(one_int("1e3", &v), CKPT_E_FORMAT);
    ck_assert_int_eq(one_int("\"1\"", &v), CKPT_E_FORMAT);
    ck_assert_int_eq(one_int("[1]", &v), CKPT_E_FORMAT);
}
END_TEST

START_TEST(members)
{
    static const char text[] = "{\"skip\":[1,{\"a\":[]}],\"n\":5,\"s\":\"x\"}";
    ckpt__json j;
    ckpt__buf scratch = {0};
    ckpt_str key, range;
    int64_t n = 0;
    int more, count = 0;
    ckpt__json_start(&j, text, sizeof text - 1, 8, "test");
    ck_assert_int_eq(ckpt__json_expect(&j, CKPT__JSON_OBJECT, NULL), CKPT_OK);
    while ((more = ckpt__json_member(&j, &scratch, &key, NULL)) > 0) {
        count++;
        if (ckpt__str_is(key, "n"))
            ck_assert_int_eq(ckpt__json_int(&j, &n, NULL), CKPT_OK);
        else
            ck_assert_int_eq(ckpt__json_skip(&j, &range, NULL), CKPT_OK);
        if (ckpt__str_is(key, "skip"))
            ck_assert(ckpt__str_is((ckpt_str){range.data, range.size}, "[1,{\"a\":[]}]"));
    }
    ck_assert_int_eq(more, 0);
    ck_assert_int_eq(count, 3);
    ck_assert_int_eq(n, 5);
    ck_assert(ckpt__str_is(range, "\"x\""));
    ckpt__buf_free(&scratch);
}
END_TEST

START_TEST(split)
{
    static const char *const names[] = {"a", "b", "missing"};
    ckpt_str range[3];
    ckpt_error err = CKPT_ERROR_INIT;
    const char *text = "{\"other\":{\"a\":9},\"b\" : [1, 2] ,\"a\":\"x\"}";
    ck_assert_int_eq(ckpt__json_split(text, strlen(text), 8, "test", names, range, 3, &err), CKPT_OK);
    ck_assert(ckpt__str_is(range[0], "\"x\"") && ckpt__str_is(range[1], "[1, 2]") && !range[2].data);
    text = "{\"a\":1,\"\\u0061\":2}"; /* the same key, spelt otherwise */
    ck_assert_int_eq(ckpt__json_split(text, strlen(text), 8, "test", names, range, 3, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "\"a\" occurs twice"));
    ck_assert_int_eq(ckpt__json_split("[]", 2, 8, "test", names, range, 3, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(ckpt__json_split("{} 1", 4, 8, "test", names, range, 3, &err), CKPT_E_FORMAT);
}
END_TEST

static ckpt_status tree(const char *text, ckpt_error *err)
{
    cJSON *t = NULL;
    ckpt_status status = ckpt__json_tree(text, strlen(text), "test", &t, err);
    ck_assert(!t == (status < 0));
    cJSON_Delete(t);
    return status;
}

START_TEST(small_trees)
{
    ckpt_error err = CKPT_ERROR_INIT;
    cJSON *t = NULL;
    const char *text = "{\"Name\":\"n\",\"name\":\"m\",\"l\":[{\"x\":1},{\"x\":2}]}";
    ck_assert_int_eq(ckpt__json_tree(text, strlen(text), "test", &t, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__json_get(t, "name")->valuestring, "m"); /* case counts */
    ck_assert_ptr_null(ckpt__json_get(t, "NAME"));
    cJSON_Delete(t);
    ck_assert_int_eq(tree("[02]", &err), CKPT_E_FORMAT); /* cJSON 1.7.15 accepts each of these */
    ck_assert_int_eq(tree("{} x", &err), CKPT_E_FORMAT);
    ck_assert_int_eq(tree("[\"\xff\"]", &err), CKPT_E_FORMAT);
    ck_assert_int_eq(tree("{\"a\\u0000b\":1}", &err), CKPT_E_FORMAT);
    ck_assert_int_eq(tree("[1,[{\"k\":{\"a\":1,\"b\":2,\"a\":3}}]]", &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "\"a\" occurs twice"));
    ck_assert_int_eq(tree("[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]", &err), CKPT_E_LIMIT);
    ckpt__buf many = {0};
    ckpt__buf_str(&many, "{\"k\":0");
    for (int i = 0; i < 300; i++)
        ckpt__buf_printf(&many, ",\"k%d\":0", i);
    ckpt__buf_str(&many, "}");
    ck_assert_int_eq(tree(many.data, &err), CKPT_E_LIMIT);
    for (int i = 0; i < 9000; i++)
        ckpt__buf_str(&many, "         ");
    ck_assert_int_eq(tree(many.data, &err), CKPT_E_LIMIT);
    ckpt__buf_free(&many);
}
END_TEST

START_TEST(writing)
{
    ckpt__buf b = {0};
    ckpt__json_put_string(&b, "a\"\\\n\t\r\x01\x7f/\xc3\xa9\0z", 13);
    ck_assert_str_eq(b.data, "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f/\xc3\xa9\\u0000z\"");
    ck_assert_int_eq(pull(b.data, b.size, 4, NULL), CKPT_OK);
    b.size = 0;
    ckpt__json_put_i64(&b, INT64_MIN);
    ckpt__buf_char(&b, ' ');
    ckpt__json_put_u64(&b, UINT64_MAX);
    ckpt__buf_char(&b, ' ');
    ckpt__json_put_i64(&b, 0);
    ckpt__buf_char(&b, ' ');
    ckpt__json_put_double(&b, 0.1);
    ckpt__buf_char(&b, ' ');
    ckpt__json_put_double(&b, 3);
    ckpt__buf_char(&b, ' ');
    ckpt__json_put_double(&b, -__builtin_inf());
    ck_assert_str_eq(b.data, "-9223372036854775808 18446744073709551615 0 0.1 3.0 \"-inf\"");
    ckpt__buf_free(&b);
}
END_TEST

START_TEST(hexadecimal)
{
    unsigned char out[4];
    uint32_t crc;
    char text[8];
    ckpt__buf b = {0};
    ckpt__hex_put(&b, "\x00\xff\x1a", 3);
    ck_assert_str_eq(b.data, "00ff1a");
    ck_assert(ckpt__hex_get(b.data, 6, out) && out[0] == 0 && out[1] == 0xff && out[2] == 0x1a);
    ck_assert(!ckpt__hex_get("00f", 3, out) && !ckpt__hex_get("0g", 2, out) && !ckpt__hex_get("FF", 2, out));
    ckpt__hex_crc(text, 0x0badcafe);
    ck_assert_mem_eq(text, "0badcafe", 8);
    ck_assert(ckpt__hex_crc_get("0badcafe", &crc) && crc == 0x0badcafe && !ckpt__hex_crc_get("0BADCAFE", &crc));
    ckpt__buf_free(&b);
}
END_TEST

/* Strings are read eight bytes at a time where nothing stops it. */
START_TEST(every_byte_at_every_place)
{
    enum { SIZE = 19 };
    for (size_t size = 1; size <= SIZE; size++)
        for (size_t at = 0; at < size; at++)
            for (int c = 0; c < 256; c++) {
                char text[SIZE + 2];
                ckpt_error err = CKPT_ERROR_INIT;
                ckpt__json j;
                memset(text, 'x', sizeof text);
                text[0] = text[size + 1] = '"';
                text[at + 1] = (char)c;
                ckpt__json_start(&j, text, size + 2, 1, "test");
                ckpt__json_event event = ckpt__json_next(&j, &err);
                if (c == '"') {
                    ck_assert_int_eq(event, CKPT__JSON_STRING);
                    ck_assert_uint_eq(j.end, at + 1);
                } else if (c < ' ' || c == '\\' || c >= 0x80) {
                    ck_assert_int_eq(event, CKPT__JSON_ERROR);
                    ck_assert(c >= 0x80 || (c == '\\' && at + 1 == size) || j.pos == at + 1);
                } else {
                    ck_assert_int_eq(event, CKPT__JSON_STRING);
                    ck_assert(j.start == 1 && j.end == size + 1 && !j.escaped);
                }
            }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json");
    TCase *t = tcase_create("json");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, grammar);
    tcase_add_test(t, every_prefix);
    tcase_add_test(t, depth);
    tcase_add_test(t, texts);
    tcase_add_test(t, every_byte_at_every_place);
    tcase_add_test(t, integers);
    tcase_add_test(t, members);
    tcase_add_test(t, split);
    tcase_add_test(t, small_trees);
    tcase_add_test(t, writing);
    tcase_add_test(t, hexadecimal);
    suite_add_tcase(s, t);
    return run_suite(s);
}
