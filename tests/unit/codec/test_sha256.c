/* tests/unit/codec/test_sha256.c - codec/sha256: the examples of FIPS 180-2 (appendix B), and bytes added in pieces. */
#include "codec/sha256.h"
#include <string.h>
#include "../runner.h"

static void check(const char *data, size_t n, const char *wanted)
{
    char text[CKPT__SHA256_TEXT];
    for (size_t piece = 1; piece <= 130; piece += 43) {
        ckpt__sha256 s;
        ckpt__sha256_begin(&s);
        for (size_t at = 0; at < n; at += piece)
            ckpt__sha256_add(&s, data + at, n - at < piece ? n - at : piece);
        ckpt__sha256_end(&s, text);
        ck_assert_str_eq(text, wanted);
    }
}

START_TEST(examples)
{
    static char a[1000000];
    memset(a, 'a', sizeof a);
    check("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(a, sizeof a, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

/* Each place at which the padding may begin, in pieces and at once. */
START_TEST(lengths)
{
    char data[200], one[CKPT__SHA256_TEXT], last[CKPT__SHA256_TEXT] = "";
    memset(data, 7, sizeof data);
    for (size_t n = 0; n <= sizeof data; n++) {
        ckpt__sha256 s;
        ckpt__sha256_begin(&s);
        ckpt__sha256_add(&s, data, n);
        ckpt__sha256_end(&s, one);
        check(data, n, one);
        ck_assert_str_ne(one, last);
        memcpy(last, one, sizeof last);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sha256");
    TCase *t = tcase_create("sha256");
    tcase_add_test(t, examples);
    tcase_add_test(t, lengths);
    suite_add_tcase(s, t);
    return run_suite(s);
}
