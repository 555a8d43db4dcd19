/* The strict subset of YAML: what it reads, and that everything else is refused with its place. */
#include "codec/yaml.h"
#include "../runner.h"

static ckpt_error err;

static ckpt__yaml *good(const char *text)
{
    ckpt__yaml *y = NULL;
    memset(&err, 0, sizeof err);
    ckpt_status s = ckpt__yaml_parse(text, strlen(text), "t.yaml", &y, &err);
    ck_assert_msg(s == CKPT_OK, "%s: %s", text, err.message);
    ck_assert_ptr_nonnull(y);
    return y;
}

static void bad_n(const char *text, size_t size, ckpt_status status, const char *expected)
{
    ckpt__yaml *y = (ckpt__yaml *)&err;
    memset(&err, 0, sizeof err);
    ckpt_status s = ckpt__yaml_parse(text, size, "t.yaml", &y, &err);
    ck_assert_msg(s == status, "%.*s: status %d, %s", (int)(size < 200 ? size : 200), text, s, err.message);
    ck_assert_ptr_null(y);
    ck_assert_str_eq(err.object, "t.yaml");
    ck_assert_msg(strstr(err.message, expected) != NULL, "'%s' lacks '%s'", err.message, expected);
}

static void bad(const char *text, const char *expected)
{
    bad_n(text, strlen(text), CKPT_E_ARGUMENT, expected);
}

START_TEST(tree)
{
    ckpt__yaml *y = good("a: 1\nb:\n- x\n- 'y: z'\n-\nc: {d: \"e\\n\", 'f': []}\n");
    const ckpt__yaml_node *root = y->root;
    ck_assert_int_eq(root->kind, CKPT__YAML_MAP);
    ck_assert_uint_eq(root->count, 3);
    const ckpt__yaml_node *a = ckpt__yaml_get(root, "a"), *b = ckpt__yaml_get(root, "b"),
                          *c = ckpt__yaml_get(root, "c");
    ck_assert_str_eq(a->text.data, "1");
    ck_assert(!a->quoted);
    ck_assert_uint_eq(a->line, 1);
    ck_assert_uint_eq(a->column, 4);
    ck_assert_int_eq(b->kind, CKPT__YAML_LIST);
    ck_assert_uint_eq(b->count, 3);
    ck_assert_str_eq(b->items[1]->text.data, "y: z");
    ck_assert(b->items[1]->quoted);
    ck_assert_uint_eq(b->items[1]->line, 4);
    ck_assert_uint_eq(b->items[1]->column, 3);
    ck_assert_uint_eq(b->items[2]->text.size, 0);
    ck_assert_str_eq(ckpt__yaml_get(c, "d")->text.data, "e\n");
    ck_assert_int_eq(ckpt__yaml_get(c, "f")->kind, CKPT__YAML_LIST);
    ck_assert_uint_eq(ckpt__yaml_get(c, "f")->count, 0);
    ck_assert_ptr_null(ckpt__yaml_get(c, "g"));
    ck_assert_ptr_null(ckpt__yaml_get(a, "g"));
    ckpt__yaml_free(y);
    ckpt__yaml_free(NULL);
}
END_TEST

START_TEST(scalar_document)
{
    ckpt__yaml *y = good("--- plain text\n...\n");
    ck_assert_int_eq(y->root->kind, CKPT__YAML_SCALAR);
    ck_assert_str_eq(y->root->text.data, "plain text");
    ckpt__yaml_free(y);
}
END_TEST

START_TEST(refused)
{
    bad("a: 1\nb: &x 2\n", "line 2, column 4: an anchor");
    bad("a: &x {b: 1}\n", "line 1, column 4: an anchor");
    bad("a: &x [b]\n", "an anchor");
    bad("a: !!str 2\n", "a tag");
    bad("a: !x [2]\n", "a tag");
    bad("a: ! {b: c}\n", "a tag");
    bad("a: 1\n--- \nb: 2\n", "line 2, column 1: a second document");
    bad("", "empty");
    bad("# only a comment\n", "empty");
    bad("a: 1\nc: 3\na: 2\n", "line 3, column 1: the key 'a' stands twice; first in line 1");
    bad("x: {b: 1, 'b': 2}\n", "line 1, column 11: the key 'b' stands twice");
    bad("? [a]\n: b\n", "a key must be text");
    bad("a: [1, 2\n", "line ");
    bad("a: 'b\n", "line ");
    bad("\ta: b\n", "line 1, column 1");
    bad("a: b: c\n", "line 1, column 5");
    bad("%YAML 3.0\n---\na: 1\n", "line 1");
}
END_TEST

START_TEST(quote_it)
{
    bad("tag: *\n",
        "line 1, column 6: a value that starts with '*' is an alias in YAML, and those are refused; quote it");
    bad("a: 1\nname: *.weight\n", "line 2, column 7: a value that starts with '*'");
    bad("name: *weight\n", "line 1, column 7: a value that starts with '*'");
    bad("- {name: *.bias, to: cpu}\n", "line 1, column 10: a value that starts with '*'");
    bad("to: cuda:{rank % 8}\n",
        "line 1, column 5: a value that holds '{' is a map in YAML; quote it: 'cuda:{rank % 8}'");
    bad("- {to: cuda:{rank % 8}}\n", "quote it");
    bad("- {to: cuda:{rank}, role: rng}\n", "quote it");
    ckpt__yaml *y = good("to: 'cuda:{rank % 8}'\nn: \"*\"\nk: a*\n");
    ck_assert_str_eq(ckpt__yaml_get(y->root, "n")->text.data, "*");
    ckpt__yaml_free(y);
    y = good("\xc3\xa9: 1\nto: |\n  a{b\n");
    ckpt__yaml_free(y);
}
END_TEST

START_TEST(hostile)
{
    bad_n("a: \xff\n", 5, CKPT_E_ARGUMENT, "line 1, column 4: not valid UTF-8");
    bad_n("a: 1\nb: \0c\n", 11, CKPT_E_ARGUMENT, "line 2, column 4");
    bad_n("a: \"\\0\"\n", 8, CKPT_E_ARGUMENT, "NUL");
    bad_n("a: \x01\n", 5, CKPT_E_ARGUMENT, "line 1");
    static char deep[200];
    memset(deep, '[', 33);
    bad_n(deep, 33, CKPT_E_LIMIT, "deeper than 32 levels");
    memset(deep, '[', 32);
    memset(deep + 32, ']', 32);
    ckpt__yaml *y = NULL;
    ck_assert_int_eq(ckpt__yaml_parse(deep, 64, "t.yaml", &y, &err), CKPT_OK);
    ckpt__yaml_free(y);
    size_t size = CKPT__YAML_MAX_SIZE + 1;
    char *big = malloc(size);
    memset(big, '\n', size);
    bad_n(big, size, CKPT_E_LIMIT, "1048577 bytes");
    memset(big, '[', size - 1);
    bad_n(big, size - 1, CKPT_E_LIMIT, "deeper");
    for (size_t i = 0; i + 1 < size; i += 2)
        memcpy(big + i, "-\n", 2);
    ck_assert_int_eq(ckpt__yaml_parse(big, size - 1, "t.yaml", &y, &err), CKPT_OK);
    ck_assert_uint_eq(y->root->count, (size - 1) / 2);
    ckpt__yaml_free(y);
    free(big);
}
END_TEST

/* No prefix of a document may crash; every one that is refused says where. */
START_TEST(prefixes)
{
    static const char text[] =
        "map: 1\nsource:\n  strip_prefix: ['module.']\n  rename: [{from: 'h.(\\d+)', to: \"x\"}]\n"
        "rules:\n- {name: 'a.*', to: 'cuda:{rank % 8}'} # c\n- role: >\n    rng\n  to: cpu\n";
    for (size_t n = 0; n < sizeof text; n++) {
        ckpt__yaml *y = NULL;
        memset(&err, 0, sizeof err);
        ckpt_status s = ckpt__yaml_parse(text, n, "t.yaml", &y, &err);
        ck_assert((s == CKPT_OK) == (y != NULL));
        ck_assert(s == CKPT_OK || err.message[0]);
        ckpt__yaml_free(y);
    }
}
END_TEST

START_TEST(schema_help)
{
    static const char *const known[] = {"a", "b", NULL};
    ckpt__yaml *y = good("a: 1\nzz: 2\n");
    ck_assert_int_eq(ckpt__yaml_check_keys(y->root, known, "t.yaml", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.message, "line 2, column 1: there is no key 'zz' here; the keys are a, b");
    ckpt__yaml_free(y);
    y = good("b: 1\n");
    ck_assert_int_eq(ckpt__yaml_check_keys(y->root, known, "t.yaml", &err), CKPT_OK);
    ck_assert_int_eq(ckpt__yaml_fail(NULL, "t.yaml", y->root, "x"), CKPT_E_ARGUMENT);
    ckpt__yaml_free(y);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("yaml");
    TCase *c = tcase_create("yaml");
    tcase_add_test(c, tree);
    tcase_add_test(c, scalar_document);
    tcase_add_test(c, refused);
    tcase_add_test(c, quote_it);
    tcase_add_test(c, hostile);
    tcase_add_test(c, prefixes);
    tcase_add_test(c, schema_help);
    suite_add_tcase(s, c);
    return run_suite(s);
}
