/* The pickle machine: every opcode of protocols 0 to 5, as data; what does not fit is refused with its byte and name.
 */
#include "codec/pickle.h"
#include "../torch_emit.h"
#include "../runner.h"
#include <math.h>

static ckpt__arena *arena;
static ckpt__pickle pickle;
static ckpt_error err;

static void setup(void)
{
    arena = ckpt__arena_new(ckpt__known_limit(1 << 16, false));
    memset(&pickle, 0, sizeof pickle);
}
static void teardown(void)
{
    ckpt__pickle_free(&pickle);
    ckpt__arena_free(arena);
}

static ckpt_status read_n(const void *data, size_t n)
{
    ckpt__pickle_free(&pickle);
    memset(&err, 0, sizeof err);
    return ckpt__pickle_read(data, n, "p", arena, &pickle, &err);
}

static const ckpt__pickle_node *load_n(const char *data, size_t n)
{
    ckpt_status s = read_n(data, n);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
    return pickle.root;
}
#define LOAD(literal) load_n(literal, sizeof(literal) - 1)

static void refuse_n(const char *data, size_t n, ckpt_status status, const char *message)
{
    ckpt_status s = read_n(data, n);
    ck_assert_msg(s == status, "status %d, expected %d: %s", s, status, err.message);
    ck_assert_msg(strstr(err.message, message) != NULL, "'%s' lacks '%s'", err.message, message);
    ck_assert_ptr_null(pickle.root);
}
#define REFUSE(literal, status, message) refuse_n(literal, sizeof(literal) - 1, status, message)

static void is_int(const ckpt__pickle_node *n, int64_t value)
{
    ck_assert_int_eq(n->kind, CKPT__P_INT);
    ck_assert_int_eq(n->u.integer, value);
}
static void is_text(const ckpt__pickle_node *n, ckpt__pickle_kind kind, const char *text, size_t size)
{
    ck_assert_int_eq(n->kind, kind);
    ck_assert_uint_eq(n->u.text.size, size);
    ck_assert_int_eq(memcmp(n->u.text.data, text, size), 0);
    ck_assert_int_eq(n->u.text.data[size], 0);
}
#define IS_TEXT(node, kind, literal) is_text(node, kind, literal, sizeof(literal) - 1)

START_TEST(numbers)
{
    is_int(LOAD("K\xff."), 255);
    is_int(LOAD("M\xff\xff."), 65535);
    is_int(LOAD("J\xff\xff\xff\xff."), -1);
    is_int(LOAD("J\xff\xff\xff\x7f."), INT32_MAX);
    is_int(LOAD("\x8a\x00."), 0);
    is_int(LOAD("\x8a\x01\x80."), -128);
    is_int(LOAD("\x8a\x08\0\0\0\0\0\0\0\x80."), INT64_MIN);
    is_int(LOAD("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\0."), INT64_MAX);
    is_int(LOAD("I-12\n."), -12);
    is_int(LOAD("L12L\n."), 12);
    IS_TEXT(LOAD("\x8a\x09\0\0\0\0\0\0\0\0\1."), CKPT__P_BIGINT, "18446744073709551616");
    IS_TEXT(LOAD("\x8a\x09\0\0\0\0\0\0\0\0\xff."), CKPT__P_BIGINT, "-18446744073709551616");
    IS_TEXT(LOAD("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0."), CKPT__P_BIGINT, "18446744073709551615");
    IS_TEXT(LOAD("L-00018446744073709551617L\n."), CKPT__P_BIGINT, "-18446744073709551617");
    ck_assert_double_eq(LOAD("G\x3f\xf8\0\0\0\0\0\0.")->u.real, 1.5);
    ck_assert_double_eq(LOAD("F-2.5e3\n.")->u.real, -2500);
    ck_assert(isinf(LOAD("Finf\n.")->u.real));
    ck_assert(isnan(LOAD("Fnan\n.")->u.real));
    ck_assert_int_eq(LOAD("I01\n.")->kind, CKPT__P_BOOL);
    ck_assert(pickle.root->boolean);
    ck_assert(!LOAD("I00\n.")->boolean);
    ck_assert_int_eq(LOAD("N.")->kind, CKPT__P_NONE);
    REFUSE("I1x\n.", CKPT_E_FORMAT, "byte 0, INT: not a decimal");
    REFUSE("L\n.", CKPT_E_FORMAT, "empty");
    REFUSE("F1,5\n.", CKPT_E_FORMAT, "not a decimal");
    REFUSE("\x8b\xff\xff\xff\xff\1.", CKPT_E_FORMAT, "LONG4: a negative length");
    REFUSE("\x8b\xff\xff\xff\x7f\1.", CKPT_E_DAMAGED, "needs 2147483647 bytes and 2 are left");
}
END_TEST

START_TEST(long_ints)
{
    static char data[1 << 14] = "\x8b";
    data[1] = (char)(5000 & 0xff);
    data[2] = (char)(5000 >> 8);
    memset(data + 5, 1, 5000);
    data[5005] = '.';
    refuse_n(data, 5006, CKPT_E_LIMIT, "5000 bytes");
    memset(data + 5, 0, 5000);
    is_int(load_n(data, 5006), 0); /* bytes that only repeat the sign do not count */
    memset(data, 0, sizeof data);
    data[0] = 'L';
    memset(data + 1, '9', 12000);
    memcpy(data + 12001, "L\n.", 3);
    refuse_n(data, 12004, CKPT_E_LIMIT, "12000 digits");
}
END_TEST

START_TEST(strings)
{
    IS_TEXT(LOAD("X\2\0\0\0\xc3\xa9."), CKPT__P_STR, "\xc3\xa9");
    IS_TEXT(LOAD("\x8c\3a\0b."), CKPT__P_STR, "a\0b");
    IS_TEXT(LOAD("\x8d\1\0\0\0\0\0\0\0z."), CKPT__P_STR, "z");
    IS_TEXT(LOAD("\x8c\3\xed\xa0\x80."), CKPT__P_STR, "\xed\xa0\x80"); /* a lone surrogate */
    REFUSE("\x8c\1\xff.", CKPT_E_FORMAT, "not UTF-8");
    REFUSE("\x8c\3\xed\xc0\x80.", CKPT_E_FORMAT, "not UTF-8");
    IS_TEXT(LOAD("C\2\0\xff."), CKPT__P_BYTES, "\0\xff");
    IS_TEXT(LOAD("B\1\0\0\0x."), CKPT__P_BYTES, "x");
    IS_TEXT(LOAD("\x8e\1\0\0\0\0\0\0\0x."), CKPT__P_BYTES, "x");
    IS_TEXT(LOAD("\x96\1\0\0\0\0\0\0\0x."), CKPT__P_BYTEARRAY, "x");
    IS_TEXT(LOAD("U\1b."), CKPT__P_STR, "b");
    IS_TEXT(LOAD("T\1\0\0\0\x80."), CKPT__P_BYTES, "\x80");
    IS_TEXT(LOAD("S'a\\n\\x41\\\\\\'\\101\\q'\n."), CKPT__P_STR, "a\nA\\'A\\q");
    IS_TEXT(LOAD("S\"it's\"\n."), CKPT__P_STR, "it's");
    IS_TEXT(LOAD("Vna\xefve \\u6a21\\U0001f525 \\x41 \\\\u0041\n."), CKPT__P_STR,
            "na\xc3\xafve \xe6\xa8\xa1\xf0\x9f\x94\xa5 \\x41 \\\\u0041");
    REFUSE("S'a\n.", CKPT_E_FORMAT, "quotes");
    REFUSE("V\\u12\n.", CKPT_E_FORMAT, "escape");
    REFUSE("V\\Uffffffff\n.", CKPT_E_FORMAT, "escape");
    REFUSE("\x8d\0\0\0\0\0\0\0\x80"
           "abc.",
           CKPT_E_DAMAGED, "BINUNICODE8");
    REFUSE("Vabc", CKPT_E_DAMAGED, "cut off");
}
END_TEST

/* Long bytes of a pickle that is kept are not copied, unless they were put together from a text with escapes. */
START_TEST(long_strings)
{
    enum { LONG = 5000 };
    static char text[LONG + 5], again[LONG]; /* S'...'\n. */
    ckpt__pickle out;
    memset(text, 0xff, sizeof text);
    memcpy(text, "S'", 2);
    memcpy(text + 2 + LONG, "'\n.", 3);
    ck_assert_int_eq(ckpt__pickle_read_kept(text, sizeof text, "p", arena, &out, &err), CKPT_OK);
    char *other = malloc(LONG); /* what was freed is used again */
    ck_assert_ptr_nonnull(other);
    memset(other, 0, LONG);
    memset(again, 0xff, sizeof again);
    ck_assert_int_eq(out.root->kind, CKPT__P_BYTES);
    ck_assert_uint_eq(out.root->u.text.size, LONG);
    ck_assert_mem_eq(out.root->u.text.data, again, LONG);
    free(other);
    ckpt__pickle_free(&out);
}
END_TEST

START_TEST(containers)
{
    const ckpt__pickle_node *n = LOAD("]q\0(K\1K\2e.");
    ck_assert_int_eq(n->kind, CKPT__P_LIST);
    ck_assert_uint_eq(n->u.list.count, 2);
    is_int(n->u.list.items[1], 2);
    n = LOAD("}(X\1\0\0\0aK\1X\1\0\0\0bK\2uX\1\0\0\0aK\3s.");
    ck_assert_int_eq(n->kind, CKPT__P_DICT);
    ck_assert_uint_eq(n->u.list.count, 6);
    is_int(ckpt__pickle_get(n, "a"), 3); /* the later one counts */
    is_int(ckpt__pickle_get(n, "b"), 2);
    ck_assert_ptr_null(ckpt__pickle_get(n, "c"));
    ck_assert_uint_eq(LOAD("(K\1K\2K\3K\4t.")->u.list.count, 4);
    ck_assert_uint_eq(LOAD("K\1K\2\x86.")->u.list.count, 2);
    ck_assert_uint_eq(LOAD(").")->u.list.count, 0);
    ck_assert_uint_eq(LOAD("(K\1K\2l.")->u.list.count, 2);
    ck_assert_uint_eq(LOAD("(K\1K\2d.")->u.list.count, 2);
    n = LOAD("\x8f(K\1K\2\x90.");
    ck_assert_int_eq(n->kind, CKPT__P_SET);
    ck_assert_uint_eq(n->u.list.count, 2);
    ck_assert_int_eq(LOAD("(K\1\x91.")->kind, CKPT__P_FROZENSET);
    n = LOAD("]q\0h\0a."); /* a list in itself */
    ck_assert_ptr_eq(n->u.list.items[0], n);
    REFUSE("K\1\x87.", CKPT_E_FORMAT, "TUPLE3: the stack is empty");
    REFUSE("K\1(K\2\x86.", CKPT_E_FORMAT, "above the last MARK");
    REFUSE("K\1K\2t.", CKPT_E_FORMAT, "no MARK");
    REFUSE("}(K\1u.", CKPT_E_FORMAT, "a key without a value");
    REFUSE("]K\1K\2s.", CKPT_E_FORMAT, "SETITEM: works on a dict or an object, not on a list");
    REFUSE("}K\1a.", CKPT_E_FORMAT, "APPEND: works on a list or an object, not on a dict");
    REFUSE("]K\1\x85(K\1\x90.", CKPT_E_FORMAT, "ADDITEMS");
    REFUSE("}]K\1s.", CKPT_E_FORMAT, "a list cannot be a key");
    REFUSE("K\1(K\2", CKPT_E_DAMAGED, "without STOP");
    REFUSE("\xf7.", CKPT_E_FORMAT, "opcode 0xf7: no such opcode");
    REFUSE(".", CKPT_E_FORMAT, "STOP: the stack is empty");
}
END_TEST

START_TEST(stack_and_memo)
{
    ck_assert_uint_eq(LOAD("]2\x86.")->u.list.count, 2); /* DUP */
    is_int(LOAD("K\1K\2"
                "0."),
           1);                 /* POP */
    is_int(LOAD("K\1(0."), 1); /* POP of a MARK */
    is_int(LOAD("K\1(K\2K\3"
                "1."),
           1); /* POP_MARK */
    is_int(LOAD("K\7q\0"
                "0K\1h\0\x86q\1"
                "0h\0."),
           7);
    is_int(LOAD("K\7r\xff\xff\xff\xff"
                "0j\xff\xff\xff\xff."),
           7); /* no array as long as the index */
    is_int(LOAD("K\7p12345678901\n0g12345678901\n."), 7);
    is_int(LOAD("K\1q\5"
                "0K\2q\5"
                "0h\5."),
           2); /* put again */
    is_int(LOAD("\x80\4K\7\x94"
                "0K\x08\x94"
                "0h\0."),
           7);
    is_int(LOAD("K\1q\1"
                "0K\2q\0"
                "0h\1."),
           1);
    REFUSE("h\x63.", CKPT_E_FORMAT, "memo entry 99 was never put");
    REFUSE("K\1q\1h\0.", CKPT_E_FORMAT, "memo entry 0 was never put");
    REFUSE("q\0.", CKPT_E_FORMAT, "BINPUT: the stack is empty");
    REFUSE("gx\n.", CKPT_E_FORMAT, "not a number");
    LOAD("K\1K\2.");
    ck_assert_uint_eq(pickle.left, 1);
    LOAD("K\1.and more");
    ck_assert_uint_eq(pickle.end, 3);
}
END_TEST

START_TEST(objects)
{
    const ckpt__pickle_node *n = LOAD("cos\nsystem\n(X\1\0\0\0xtR.");
    ck_assert_int_eq(n->kind, CKPT__P_OBJECT);
    ck_assert_int_eq(n->u.object->call, CKPT__P_REDUCE);
    ck_assert(ckpt__pickle_is_global(n->u.object->callable, "os", "system"));
    ck_assert_uint_eq(n->u.object->args->u.list.count, 1);
    ck_assert_uint_eq(pickle.global_count, 1);
    ck_assert(ckpt__str_is(pickle.globals[0].name, "system"));
    n = LOAD("\x8c\2os\x8c\6system\x93)\x81}(X\1\0\0\0aK\1ub.");
    ck_assert_int_eq(n->u.object->call, CKPT__P_NEWOBJ);
    is_int(ckpt__pickle_get(n->u.object->state, "a"), 1);
    n = LOAD("ca\nb\n)}X\1\0\0\0kK\1s\x92.");
    ck_assert_int_eq(n->u.object->call, CKPT__P_NEWOBJ_EX);
    ck_assert_ptr_nonnull(n->u.object->kwargs);
    n = LOAD("(K\1ia\nb\n.");
    ck_assert_int_eq(n->u.object->call, CKPT__P_INST);
    is_int(n->u.object->args->u.list.items[0], 1);
    n = LOAD("(ca\nb\nK\1o.");
    ck_assert_int_eq(n->u.object->call, CKPT__P_OBJ);
    n = LOAD("ca\nb\n)R(K\1K\2eK\3K\4s.");
    ck_assert_uint_eq(n->u.object->items.count, 2);
    ck_assert_uint_eq(n->u.object->entries.count, 2);
    n = LOAD("ca\nb\n)R)R."); /* what a call gave is called */
    ck_assert_int_eq(n->u.object->callable->kind, CKPT__P_OBJECT);
    n = LOAD("K\1K\2\x86Q.");
    ck_assert_int_eq(n->kind, CKPT__P_PERSISTENT);
    ck_assert_uint_eq(n->u.id->u.list.count, 2);
    ck_assert(!pickle.text_persid);
    IS_TEXT(LOAD("Psome id\n.")->u.id, CKPT__P_STR, "some id");
    ck_assert(pickle.text_persid);
    REFUSE("K\1)R.", CKPT_E_FORMAT, "REDUCE: calls an int");
    REFUSE("ca\nb\nK\1R.", CKPT_E_FORMAT, "must be a tuple, not an int");
    REFUSE("ca\nb\n)K\1\x92.", CKPT_E_FORMAT, "must be a dict");
    REFUSE("K\1K\2\x93.", CKPT_E_FORMAT, "STACK_GLOBAL: module and name must be strs");
    REFUSE("}}b.", CKPT_E_FORMAT, "gives a state to a dict");
    REFUSE("ca\nb\n}b.", CKPT_E_FORMAT, "gives a state to a global");
    REFUSE("ca\nb\n)R}b}b.", CKPT_E_FORMAT, "a second state");
    REFUSE("(o.", CKPT_E_FORMAT, "no class");
    REFUSE("\x82\1.", CKPT_E_UNSUPPORTED, "EXT1");
    REFUSE("\x97.", CKPT_E_UNSUPPORTED, "NEXT_BUFFER");
    REFUSE("\x80\6.", CKPT_E_TOO_NEW, "protocol 6");
    REFUSE("\x95\xff\0\0\0\0\0\0\0.", CKPT_E_DAMAGED, "a frame of 255 bytes");
    REFUSE("cos\nsystem\n(h\1.", CKPT_E_FORMAT, "never put");
    ck_assert_uint_eq(pickle.global_count, 1); /* met before the failure: a scan still sees it */
}
END_TEST

START_TEST(depth_and_memory)
{
    size_t n = 1000000;
    char *data = malloc(2 * n + 8);
    ck_assert_ptr_nonnull(data);
    memset(data, ']', n);
    memset(data + n, 'a', n - 1);
    data[2 * n - 1] = '.';
    ckpt__arena *big = ckpt__arena_new(ckpt__known_limit(2 * n, false));
    ck_assert_msg(ckpt__pickle_read(data, 2 * n, "deep", big, &pickle, &err) == CKPT_OK, "%s", err.message);
    size_t depth = 0;
    for (const ckpt__pickle_node *p = pickle.root; p->u.list.count; p = p->u.list.items[0])
        depth++;
    ck_assert_uint_eq(depth, n - 1);
    ckpt__arena_free(big);
    ckpt__arena *small = ckpt__arena_new(100000);
    ck_assert_int_eq(ckpt__pickle_read(data, 2 * n, "deep", small, &pickle, &err), CKPT_E_LIMIT);
    ckpt__arena_free(small);
    free(data);
}
END_TEST

/* A call that is thrown away was made for its effect; a state that a function sets, and an object that was made inside its own
 * arguments, lose nothing. */
START_TEST(calls_thrown_away)
{
    LOAD("\x80\2]q\0(cm\nX\nq\1)Rq\2cm\neffect\nh\2K\1K\2\x87R0cm\nother\n)R0K\5e.");
    ck_assert_uint_eq(pickle.dropped, 2);
    ck_assert(ckpt__pickle_is_global(pickle.dropped_first, "m", "effect"));
    LOAD("\x80\2]q\0(cm\nX\nq\1)Rq\2cm\ngive\nh\2K\1\x86R0K\5e.");
    ck_assert_uint_eq(pickle.dropped, 0);
    /* i = I([i]) */
    LOAD("\x80\2cm\nI\nq\0]q\1h\0h\1\x85Rq\2a\x85R0h\2.");
    ck_assert_uint_eq(pickle.dropped, 0);
    LOAD("\x80\2]q\0K\1"
         "0h\0"
         "0h\0.");
    ck_assert_uint_eq(pickle.dropped, 0);
}
END_TEST

/* Every prefix of a pickle is damaged, and its globals are still given. */
START_TEST(cut_everywhere)
{
    static const char data[] = "\x80\4\x95\x2e\0\0\0\0\0\0\0}(\x8c\1a\x8a\x09\0\0\0\0\0\0\0\0\1\x8c\1bca\nb\n)"
                               "R\x8c\1cI12\nG\0\0\0\0\0\0\0\0]u.";
    static const size_t whole = sizeof data - 1;
    for (size_t n = 0; n < whole; n++) {
        char *copy = malloc(n + 1); /* exact size: a sanitizer sees a read past the end */
        memcpy(copy, data, n);
        ckpt_status s = read_n(copy, n);
        ck_assert_msg(s == CKPT_E_DAMAGED || s == CKPT_E_FORMAT, "cut to %zu: status %d", n, s);
        ck_assert(err.message[0] != '\0');
        free(copy);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pickle");
    TCase *t = tcase_create("machine");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, numbers);
    tcase_add_test(t, long_ints);
    tcase_add_test(t, strings);
    tcase_add_test(t, long_strings);
    tcase_add_test(t, containers);
    tcase_add_test(t, stack_and_memo);
    tcase_add_test(t, objects);
    tcase_add_test(t, calls_thrown_away);
    tcase_add_test(t, depth_and_memory);
    tcase_add_test(t, cut_everywhere);
    suite_add_tcase(s, t);
    return run_suite(s);
}
