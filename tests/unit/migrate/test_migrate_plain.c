/* test_migrate_plain.c - --plain: tensors with attributes, and keys, of which nothing may be lost without a word. */
#include "../migrate_setup.h"

static torch_file *t;
static ckpt_reader *r;

static void put_enum(const char *value)
{
    put_global(&t->pickle, "m", "Kind");
    put_str(&t->pickle, value);
    PUT(&t->pickle, "\x85R");
}

/* A shell of class m.Shell, of which the attributes follow; "}(" is open. */
static void begin_shell(const char *name)
{
    bytes *b = &t->pickle;
    if (name)
        put_str(b, name);
    begin_wrapper(b, "m", "Shell", 2);
    PUT(b, "}(");
}

static void end_shell(void)
{
    PUT(&t->pickle, "utR");
}

static void add(const char *name, float first)
{
    put_str(&t->pickle, name);
    torch_tensor(t, 1, 2, 0, first);
}

static void add_text(const char *name, const char *text)
{
    put_str(&t->pickle, name);
    put_str(&t->pickle, text);
}

static void begin(void)
{
    t = begin_torch();
    PUT(&t->pickle, "}(");
}

static void make_plain(void)
{
    PUT(&t->pickle, "u");
    write_torch(at("odd.pt"), t);
    options.plain = true;
    ckpt_status status = migrate(at("odd.pt"), "torch", at("plain.pt"));
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_msg(ckpt_reader_open(at("plain.pt"), NULL, &r, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}

static const ckpt_value *value(const char *a, const char *b)
{
    const ckpt_value *v = ckpt_value_get(ckpt_reader_root(r), a);
    return v && b ? ckpt_value_get(v, b) : v;
}

static void check_text(const char *a, const char *b, const char *text)
{
    const ckpt_value *v = value(a, b);
    ck_assert_msg(v && v->kind == CKPT_V_STR && strcmp(v->text.data, text) == 0, "%s.%s is not '%s'", a, b, text);
}

static void check_tensor(const char *name, float first)
{
    float is[2] = {0, 0};
    size_t i;
    ck_assert_msg(ckpt_reader_find(r, name, strlen(name), &i, NULL) == CKPT_OK, "%s is not there", name);
    ck_assert_msg(ckpt_reader_read(r, i, is, sizeof is, &err) == CKPT_OK, "%s", err.message);
    ck_assert(is[0] == first && is[1] == first + 1);
}

static void says(const char *name, const char *text)
{
    const ckpt_finding *f = ckpt_report_find(report, "plain", name);
    ck_assert_msg(f != NULL, "nothing is said of %s", name);
    ck_assert_msg(strstr(f->message, text) != NULL, "%s: '%s' lacks '%s'", name, f->message, text);
}

/* A shell of several tensors is a dict of them and of its attributes, in plain terms; what is one tensor stays one, and its
 * attributes are named. */
START_TEST(shells)
{
    begin();
    begin_shell("one");
    add("elem", 10);
    add_text("note", "x");
    add_text("more", "y");
    end_shell();
    begin_shell("two");
    begin_shell("data");
    add("elem", 20);
    add_text("deep", "z");
    end_shell();
    add_text("text", "kept");
    add("scale", 30);
    put_str(&t->pickle, "kind");
    put_enum("fast");
    end_shell();
    begin_shell("nest");
    begin_shell("in");
    add("a", 40);
    add("b", 50);
    add_text("text", "inner");
    end_shell();
    add_text("outer", "gone");
    end_shell();
    make_plain();
    check_tensor("one", 10);
    says("one", "m.Shell becomes a tensor, without its attributes note, more");
    check_tensor("two.data", 20);
    check_tensor("two.scale", 30);
    check_text("two", "text", "kept");
    check_text("two", "kind", "fast");
    ck_assert_uint_eq(value("two", NULL)->entry_count, 4);
    says("two", "m.Shell becomes dict");
    says("two.data", "without its attributes deep");
    check_tensor("nest.a", 40);
    check_tensor("nest.b", 50);
    check_text("nest", "text", "inner");
    says("nest", "m.Shell becomes dict, without its attributes outer");
    ckpt_reader_close(r);
}
END_TEST

/* An m.Sub of two elements, the first being `first`, with the attribute `note`. */
static void put_sub(float first)
{
    bytes *b = &t->pickle;
    char key[8];
    snprintf(key, sizeof key, "%d", t->count);
    t->numel[t->count] = 2;
    t->data[t->count][0] = first;
    t->data[t->count++][1] = first + 1;
    put_global(b, "torch._tensor", "_rebuild_from_type_v2");
    PUT(b, "(");
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    put_global(b, "m", "Sub");
    PUT(b, "(");
    put_storage(b, "FloatStorage", key, "cpu", 2);
    PUT(b, "K\0K\2\x85K\1\x85\x89");
    put_global(b, "collections", "OrderedDict");
    PUT(b, ")Rt}(");
    add_text("note", "x");
    PUT(b, "utR");
}

/* A subclass with bytes of its own loses its attributes, which are named; a parameter keeps its own, in plain terms. */
START_TEST(attributes)
{
    begin();
    bytes *b = &t->pickle;
    put_str(b, "sub");
    put_sub(7);
    put_str(b, "p");
    put_global(b, "torch._utils", "_rebuild_parameter_with_state");
    PUT(b, "(");
    torch_tensor(t, 1, 2, 0, 60);
    PUT(b, "\x88");
    put_global(b, "collections", "OrderedDict");
    PUT(b, ")R}(");
    put_str(b, "kind");
    put_enum("slow");
    PUT(b, "utR");
    make_plain();
    check_tensor("sub", 7);
    says("sub", "m.Sub becomes a tensor, without its attributes note");
    check_tensor("p", 60);
    says("p.kind", "m.Kind becomes a string");
    const ckpt_value *p = value("p", NULL);
    ck_assert_ptr_nonnull(p->state);
    const ckpt_value *kind = p->state->entries[0].value;
    ck_assert(kind->kind == CKPT_V_STR && strcmp(kind->text.data, "slow") == 0);
    ckpt_reader_close(r);
}
END_TEST

/* Tensors that are not listed: an object's argument, and items of sets, of which one can hold no dict. */
START_TEST(closed)
{
    begin();
    bytes *b = &t->pickle;
    put_str(b, "obj");
    put_global(b, "m", "Holder");
    put_sub(10);
    PUT(b, "\x85R");
    put_str(b, "set");
    put_global(b, "builtins", "set");
    PUT(b, "](");
    put_sub(20);
    PUT(b, "e\x85R");
    put_str(b, "keys");
    PUT(b, "}");
    put_sub(40);
    PUT(b, "K\1s");
    put_str(b, "shells");
    put_global(b, "builtins", "set");
    PUT(b, "](");
    begin_shell(NULL);
    add("elem", 30);
    end_shell();
    PUT(b, "e\x85R");
    make_plain();
    check_tensor("obj.args.0", 10);
    says("obj.args.0", "m.Sub becomes a tensor, without its attributes note");
    const ckpt_value *set = value("set", NULL), *list = value("shells", NULL);
    ck_assert_int_eq(set->kind, CKPT_V_OBJECT);
    ck_assert_uint_eq(set->item_count, 1);
    ck_assert_str_eq(set->items[0]->class_name.data, "torch.Tensor");
    ck_assert_str_eq(value("keys", NULL)->entries[0].key->class_name.data, "torch.Tensor");
    says("keys", "m.Sub becomes a key that is a tensor");
    ck_assert_int_eq(list->kind, CKPT_V_LIST);
    check_tensor("shells.0.elem", 30);
    says("shells", "builtins.set becomes list");
    ckpt_reader_close(r);
}
END_TEST

static void put_thing(void)
{
    put_global(&t->pickle, "m", "Thing");
    PUT(&t->pickle, ")R");
}

/* {Kind('a'): 0, 'a': 1, Kind('b'): 2, (Kind('a'), 1): 3, Thing(): 4, Thing(): 5, a tensor: 6, a path: 7}; the first key is
 * also a value, which was there before. */
START_TEST(keys)
{
    static const char *const names[] = {"m.Kind('a')", "a",   "b",     "(m.Kind('a'), 1)", "m.Thing()", "m.Thing() (2)",
                                        NULL,          "x/y", "<dict>"};
    enum { COUNT = sizeof names / sizeof *names };
    begin();
    bytes *b = &t->pickle;
    put_str(b, "v");
    put_enum("a");
    PUT(b, "q\5");
    put_str(b, "k");
    PUT(b, "}(h\5K\0");
    put_str(b, "a");
    PUT(b, "K\1");
    put_enum("b");
    PUT(b, "K\2");
    put_enum("a");
    PUT(b, "K\1\x86K\3");
    put_thing();
    PUT(b, "K\4");
    put_thing();
    PUT(b, "K\5");
    torch_tensor(t, 1, 2, 0, 1);
    PUT(b, "K\6");
    put_global(b, "pathlib", "PosixPath");
    put_str(b, "x");
    put_str(b, "y");
    PUT(b, "\x86RK\7");
    put_global(b, "collections", "OrderedDict"); /* Python takes none for a key: no pickler wrote this */
    PUT(b, ")RK\x08u");
    make_plain();
    const ckpt_value *k = value("k", NULL);
    ck_assert_uint_eq(k->entry_count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const ckpt_value *key = k->entries[i].key;
        ck_assert_int_eq(k->entries[i].value->integer, (int64_t)i);
        ck_assert((key->kind == CKPT_V_STR) == (names[i] != NULL));
        if (names[i])
            ck_assert_str_eq(key->text.data, names[i]);
    }
    check_text("v", NULL, "a");
    says("k", "m.Kind becomes a key in plain terms, \"m.Kind('a')\"");
    ckpt_reader_close(r);
}
END_TEST

/* A function that is a value, and becomes a string there, still makes the bytes that it made. */
START_TEST(called)
{
    begin();
    bytes *b = &t->pickle;
    put_str(b, "function");
    put_global(b, "_codecs", "encode");
    PUT(b, "q\5");
    put_str(b, "bytes");
    PUT(b, "h\5");
    put_str(b, "ab");
    put_str(b, "latin1");
    PUT(b, "\x86R");
    put_str(b, "rebuild");
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    PUT(b, "q\6");
    put_str(b, "w");
    PUT(b, "h\6(");
    put_storage(b, "FloatStorage", "0", "cpu", 2);
    PUT(b, "K\0K\2\x85K\1\x85\x89");
    put_global(b, "collections", "OrderedDict");
    PUT(b, ")RtR");
    t->data[0][0] = 1;
    t->data[0][1] = 2;
    t->numel[0] = 2;
    t->count = 1;
    make_plain();
    check_text("function", NULL, "_codecs.encode");
    check_text("rebuild", NULL, "torch._utils._rebuild_tensor_v2");
    check_tensor("w", 1);
    ck_assert_int_eq(value("bytes", NULL)->kind, CKPT_V_BYTES);
    ck_assert_str_eq(value("bytes", NULL)->text.data, "ab");
    ckpt_reader_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_plain");
    TCase *c = tcase_create("plain");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, shells);
    tcase_add_test(c, attributes);
    tcase_add_test(c, closed);
    tcase_add_test(c, keys);
    tcase_add_test(c, called);
    suite_add_tcase(s, c);
    return run_suite(s);
}
