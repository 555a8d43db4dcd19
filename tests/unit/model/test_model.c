/* dtypes, tags, conversions, the value walk, reports, views, parts of an index. */
#include "model/index.h"

#include <math.h>
#include <stdio.h>
#include "../runner.h"

START_TEST(dtypes_have_one_name_each)
{
    for (int i = 1; i < CKPT__DTYPE_COUNT; i++) {
        ckpt_dtype d = (ckpt_dtype)i;
        ck_assert_int_eq(ckpt__dtype_row_of(d)->dtype, d);
        ck_assert_int_eq(ckpt_dtype_from_name(ckpt_dtype_name(d)), d);
        ck_assert_uint_gt(ckpt_dtype_bits(d), 0);
    }
    ck_assert_int_eq(ckpt__dtype_from_safetensors("BF16", 4), CKPT_BF16);
    ck_assert_int_eq(ckpt__dtype_from_safetensors("BF17", 4), CKPT_DTYPE_NONE);
    ck_assert_int_eq(ckpt_dtype_from_name("float33"), CKPT_DTYPE_NONE);
    for (int i = 1; i < CKPT__ROLE_COUNT; i++)
        ck_assert_int_eq(ckpt_role_from_name(ckpt_role_name((ckpt_role)i)), i);
}
END_TEST

START_TEST(tags)
{
    static const struct {
        const char *tag;
        ckpt_device_type type;
        int index;
    } cases[] = {
        {"cpu", CKPT_DEVICE_CPU, -1},
        {"cuda", CKPT_DEVICE_CUDA, -1},
        {"cuda:3", CKPT_DEVICE_CUDA, 3},
        {"meta", CKPT_DEVICE_META, -1},
        {"mps", CKPT_DEVICE_MPS, -1},
        {"xpu:2", CKPT_DEVICE_XPU, 2},
        {"hpu", CKPT_DEVICE_HPU, -1},
        {"xpu:", CKPT_DEVICE_OTHER, -1},
        {"xpux:1", CKPT_DEVICE_OTHER, 1},
        {"musa:1", CKPT_DEVICE_OTHER, 1},
        {"cpu:0", CKPT_DEVICE_OTHER, 0},
        {"cuda:-1", CKPT_DEVICE_OTHER, -1},
        {"cuda:99999999999", CKPT_DEVICE_OTHER, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_device d = ckpt__tag_parse(ckpt__s(cases[i].tag));
        ck_assert_msg(d.type == cases[i].type && d.index == cases[i].index, "%s", cases[i].tag);
    }
    ck_assert_int_eq(ckpt__tag_parse((ckpt_str){NULL, 0}).type, CKPT_DEVICE_NONE);
}
END_TEST

/* A key that is neither str nor int is named by what Python's repr prints, so that two keys have two names. */
START_TEST(keys_are_named_as_python_prints_them)
{
    static const unsigned char minus_3[] = {0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
                               tenth[] = {0xcd, 0xcc, 0xcc, 0x3d}, text[] = {0xe9, 0, 0, 0, 'x', 0, 0, 0},
                               all[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    ckpt_value one = {.kind = CKPT_V_FLOAT, .real = 1}, half = {.kind = CKPT_V_FLOAT, .real = -0.5},
               zero = {.kind = CKPT_V_FLOAT}, cuda = {.kind = CKPT_V_STR, .text = ckpt__s("cuda")},
               two = {.kind = CKPT_V_INT, .integer = 2}, unit = {.kind = CKPT_V_INT, .integer = 1};
    const ckpt_value *parts[] = {&one, &half}, *pure[] = {&zero, &half}, *device[] = {&cuda, &two},
                     *size[] = {&two, &two}, *by_one[] = {&two, &two, &unit}, *by_two[] = {&two, &two, &two};
#define SEQUENCE(list)                                                                                                 \
    &(ckpt_value)                                                                                                      \
    {                                                                                                                  \
        .kind = CKPT_V_TUPLE, .items = list, .item_count = 2                                                           \
    }
#define SCALAR(type, code, bytes)                                                                                      \
    .class_name = ckpt__s("numpy." type), .array = &(ckpt_array){.dtype = ckpt__s(code)},                              \
    .text = {(const char *)bytes, sizeof bytes}
    const struct {
        ckpt_value key;
        const char *name;
    } cases[] = {
        {{SCALAR("int64", "<i8", minus_3)}, "np.int64(-3)"},
        {{SCALAR("uint64", "<u8", all)}, "np.uint64(18446744073709551615)"},
        {{SCALAR("int32", "<i4", tenth)}, "np.int32(1036831949)"},
        {{SCALAR("float32", "<f4", tenth)}, "np.float32(0.1)"},
        {{SCALAR("str_", "<U2", text)}, "\xc3\xa9x"},
        {{SCALAR("void", "|V4", tenth)}, "np.void(b'\\xcd\\xcc\\xcc=')"},
        {{.class_name = ckpt__s("builtins.complex"), .args = SEQUENCE(parts)}, "(1-0.5j)"},
        {{.class_name = ckpt__s("builtins.complex"), .args = SEQUENCE(pure)}, "-0.5j"},
        {{.class_name = ckpt__s("torch.device"), .args = SEQUENCE(device)}, "device(type='cuda', index=2)"},
        {{.class_name = ckpt__s("torch.Size"), .items = size, .item_count = 2}, "torch.Size([2, 2])"},
        {{.class_name = ckpt__s("m.Point"), .items = size, .item_count = 2}, "m.Point(2, 2)"},
        {{.class_name = ckpt__s("builtins.range"),
          .args = &(ckpt_value){.kind = CKPT_V_TUPLE, .items = by_one, .item_count = 3}},
         "range(2, 2)"},
        {{.class_name = ckpt__s("builtins.range"),
          .args = &(ckpt_value){.kind = CKPT_V_TUPLE, .items = by_two, .item_count = 3}},
         "range(2, 2, 2)"},
        {{.class_name = ckpt__s("builtins.ellipsis")}, "Ellipsis"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_value key = cases[i].key;
        ckpt__buf b = {0};
        key.kind = CKPT_V_OBJECT;
        ckpt__value_repr(&b, &key);
        ckpt__buf_char(&b, '\0');
        ck_assert_str_eq(b.data, cases[i].name);
        ckpt__buf_free(&b);
    }
}
END_TEST

/* What the standard library pickles as arguments, and Python prints otherwise: each name is what Python 3.11 prints. */
START_TEST(keys_of_the_standard_library)
{
#define INT(n)                                                                                                         \
    &(const ckpt_value)                                                                                                \
    {                                                                                                                  \
        .kind = CKPT_V_INT, .integer = n                                                                               \
    }
#define STR(s)                                                                                                         \
    &(const ckpt_value)                                                                                                \
    {                                                                                                                  \
        .kind = CKPT_V_STR, .text = { s, sizeof s - 1 }                                                                \
    }
#define BYTES(s)                                                                                                       \
    &(const ckpt_value)                                                                                                \
    {                                                                                                                  \
        .kind = CKPT_V_BYTES, .text = { s, sizeof s - 1 }                                                              \
    }
#define CALL(name, n, ...)                                                                                             \
    {                                                                                                                  \
        .kind = CKPT_V_OBJECT, .class_name = ckpt__s(name), .args = &(const ckpt_value)                                \
        {                                                                                                              \
            .kind = CKPT_V_TUPLE, .items = (const ckpt_value *[]){__VA_ARGS__}, .item_count = n                        \
        }                                                                                                              \
    }
    const ckpt_value none = CALL("datetime.timedelta", 3, INT(0), INT(0), INT(0)),
                     hours = CALL("datetime.timedelta", 3, INT(0), INT(7200), INT(0)),
                     utc = CALL("datetime.timezone", 1, &none), east = CALL("datetime.timezone", 1, &hours);
    const ckpt_entry low = {STR("int"), INT(5)},
                     high = {STR("int"), &(ckpt_value){.kind = CKPT_V_BIGINT,
                                                       .text = ckpt__s("24197857161011715162171839636988778104")}},
                     huge = {STR("int"), &(ckpt_value){.kind = CKPT_V_BIGINT,
                                                       .text = ckpt__s("340282366920938463463374607431768211456")}};
#define UUID(e)                                                                                                        \
    {                                                                                                                  \
        .kind = CKPT_V_OBJECT, .class_name = ckpt__s("uuid.UUID"), .state = &(ckpt_value)                              \
        {                                                                                                              \
            .kind = CKPT_V_DICT, .entries = e, .entry_count = 1                                                        \
        }                                                                                                              \
    }
    const struct {
        ckpt_value key;
        const char *name;
    } cases[] = {
        {CALL("m.Color", 1, INT(1)), "m.Color(1)"},
        {CALL("datetime.date", 1, BYTES("\x07\xe8\x01\x1f")), "datetime.date(2024, 1, 31)"},
        {CALL("datetime.date", 1, BYTES("\x07\xe8\x01")), "datetime.date(b'\\x07\\xe8\\x01')"},
        {CALL("datetime.datetime", 1, BYTES("\x07\xe8\x01\x1f\0\0\0\0\0\0")), "datetime.datetime(2024, 1, 31, 0, 0)"},
        {CALL("datetime.datetime", 1, BYTES("\x07\xe8\x81\x1f\x0c\5\0\0\2\xbc")),
         "datetime.datetime(2024, 1, 31, 12, 5, 0, 700, fold=1)"},
        {CALL("datetime.datetime", 2, BYTES("\x07\xe8\x01\x1f\1\2\3\0\0\0"), &utc),
         "datetime.datetime(2024, 1, 31, 1, 2, 3, tzinfo=datetime.timezone.utc)"},
        {CALL("datetime.time", 1, BYTES("\x0c\5\0\0\0\0")), "datetime.time(12, 5)"},
        {CALL("datetime.time", 2, BYTES("\x81\2\3\0\0\0"), &east),
         "datetime.time(1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(seconds=7200)), fold=1)"},
        {CALL("datetime.time", 3, BYTES("\1\2\3\0\0\0"), &east, INT(1)),
         "datetime.time(b'\\x01\\x02\\x03\\x00\\x00\\x00', datetime.timezone(datetime.timedelta(seconds=7200)), 1)"},
        {none, "datetime.timedelta(0)"},
        {CALL("datetime.timedelta", 3, INT(-1), INT(5), INT(9)),
         "datetime.timedelta(days=-1, seconds=5, microseconds=9)"},
        {CALL("datetime.timezone", 2, &hours, STR("X")), "datetime.timezone(datetime.timedelta(seconds=7200), 'X')"},
        {CALL("pathlib.PosixPath", 3, STR("/"), STR("x"), STR("it's")), "PosixPath(\"/x/it's\")"},
        {CALL("pathlib._local.PurePosixPath", 2, STR("a"), STR("b")), "PurePosixPath('a/b')"},
        {CALL("pathlib.PurePosixPath", 0, NULL), "PurePosixPath('.')"},
        {CALL("pathlib.PurePosixPath", 2, STR("a"), STR("/b")), "pathlib.PurePosixPath('a', '/b')"},
        {CALL("pathlib.PureWindowsPath", 2, STR("C:\\"), STR("x")), "PureWindowsPath('C:/x')"},
        {CALL("pathlib.WindowsPath", 2, STR("C:"), STR("x")), "WindowsPath('C:x')"},
        {CALL("pathlib.PureWindowsPath", 2, STR("\\\\host\\share\\"), STR("x")), "PureWindowsPath('//host/share/x')"},
        {UUID(&low), "UUID('00000000-0000-0000-0000-000000000005')"},
        {UUID(&high), "UUID('12345678-1234-5678-1234-567812345678')"},
        {UUID(&huge), "uuid.UUID"},
        {CALL("decimal.Decimal", 1, STR("-1E+5")), "Decimal('-1E+5')"},
        {CALL("fractions.Fraction", 2, INT(-2), INT(3)), "Fraction(-2, 3)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt__buf b = {0};
        ckpt__value_repr(&b, &cases[i].key);
        ckpt__buf_char(&b, '\0');
        ck_assert_str_eq(b.data, cases[i].name);
        ckpt__buf_free(&b);
    }
}
END_TEST

/* Every bfloat16 and float16 is a double exactly, and comes back; halfway cases go to the even neighbour. */
START_TEST(conversions_round_to_even)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t h = (uint16_t)bits, back;
        double d;
        for (int k = 0; k < 2; k++) {
            ckpt_dtype t = k ? CKPT_F16 : CKPT_BF16;
            bool changed = false;
            ck_assert(ckpt__convert(t, &h, CKPT_F64, &d, 1, NULL));
            ck_assert(ckpt__convert(CKPT_F64, &d, t, &back, 1, &changed));
            if (!isnan(d))
                ck_assert_msg(back == h && !changed, "%s %04x came back as %04x", ckpt_dtype_name(t), h, back);
        }
    }
    static const struct {
        float f;
        uint16_t bf16;
    } cases[] = {
        {1.00390625f, 0x3f80}, /* halfway between 3f80 and 3f81: to the even 3f80 */
        {1.01171875f, 0x3f82}, /* halfway between 3f81 and 3f82: to the even 3f82 */
        {3.3895314e38f, 0x7f7f}, {3.4e38f, 0x7f80}, {1e-45f, 0x0000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t out;
        bool changed = false;
        ck_assert(ckpt__convert(CKPT_F32, &cases[i].f, CKPT_BF16, &out, 1, &changed));
        ck_assert_msg(out == cases[i].bf16, "case %zu: %04x", i, out);
    }
    int64_t big = INT64_C(9007199254740993);
    float f;
    int32_t n;
    bool changed = false;
    double d = 2.5;
    ck_assert(ckpt__convert(CKPT_I64, &big, CKPT_F32, &f, 1, &changed) && changed);
    changed = false;
    ck_assert(ckpt__convert(CKPT_F64, &d, CKPT_I32, &n, 1, &changed) && changed && n == 2);
    changed = false;
    d = (double)NAN;
    ck_assert(ckpt__convert(CKPT_F64, &d, CKPT_I32, &n, 1, &changed) && changed && n == 0);
    changed = false;
    d = 7;
    ck_assert(ckpt__convert(CKPT_F64, &d, CKPT_I32, &n, 1, &changed) && !changed && n == 7);
    ck_assert(!ckpt__convert(CKPT_C64, &d, CKPT_F32, &f, 1, NULL));
}
END_TEST

typedef struct seen {
    char text[4096];
    int cycles, inside;
} seen;

static int note(void *ctx, const ckpt_visit *v)
{
    seen *s = ctx;
    strncat(s->text, v->name.data, v->name.size);
    strcat(s->text, "|");
    s->cycles += v->cycle;
    s->inside += v->inside;
    return 0;
}

START_TEST(walk_names_everything_and_stops_at_cycles)
{
    ckpt__arena *a = ckpt__arena_new(0);
    ckpt_value *one = ckpt__value_int(a, 1), *key = ckpt__value_float(a, 2.5), *word = ckpt__value_str(a, "a.b", 3);
    ckpt_value *pair = ckpt__value_list(a, CKPT_V_TUPLE, (const ckpt_value *[]){one, ckpt__value_str(a, "x'y", 3)}, 2);
    ckpt_value *state = ckpt__value_dict(a, &(ckpt_entry){ckpt__value_str(a, "depth", 5), one}, 1);
    ckpt_value *object = ckpt__value_new(a, CKPT_V_OBJECT);
    object->class_name = ckpt__s("argparse.Namespace");
    object->state = state;
    ckpt_value *list = ckpt__value_list(a, CKPT_V_LIST, (const ckpt_value *[]){one, one}, 2);
    ((const ckpt_value **)(uintptr_t)list->items)[1] = list;
    ckpt_entry entries[] = {{word, one}, {key, one}, {pair, list}, {one, object}};
    ckpt_value *root = ckpt__value_dict(a, entries, 4);
    seen s = {"", 0, 0};
    ck_assert_int_eq(ckpt_value_walk(root, 0, note, &s, NULL), 0);
    ck_assert_str_eq(s.text, "|a.b|2.5|(1, \"x'y\")|(1, \"x'y\").0|(1, \"x'y\").1|1|1.depth|");
    ck_assert_int_eq(s.cycles, 1);
    ck_assert_int_eq(s.inside, 1);
    ck_assert_ptr_eq(ckpt_value_get(object, "depth"), one);
    ck_assert_ptr_null(ckpt_value_get(root, "nothing"));
    ckpt__arena_free(a);
}
END_TEST

static int count_node(void *ctx, const ckpt_visit *v)
{
    (void)v;
    ++*(int *)ctx;
    return 0;
}

START_TEST(walk_is_bounded)
{
    ckpt__arena *a = ckpt__arena_new(0);
    const ckpt_value *level = ckpt__value_int(a, 1);
    for (int i = 0; i < 30; i++) { /* 10^30 values, were each place counted */
        const ckpt_value *items[10];
        for (int k = 0; k < 10; k++)
            items[k] = level;
        level = ckpt__value_list(a, CKPT_V_LIST, items, 10);
    }
    ckpt_error err;
    int nodes = 0;
    ck_assert_int_eq(ckpt_value_walk(level, 1000, count_node, &nodes, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(nodes, 1000);
    const ckpt_value *deep = ckpt__value_int(a, 1);
    for (int i = 0; i < 20000; i++)
        deep = ckpt__value_list(a, CKPT_V_LIST, &deep, 1);
    ck_assert_int_eq(ckpt_value_walk(deep, 0, count_node, &nodes, &err), CKPT_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.message, "deeper"));
    ckpt__arena_free(a);
}
END_TEST

static const ckpt_value *dict_of(ckpt__arena *a, const char *one, const ckpt_value *first, const char *two,
                                 const ckpt_value *second)
{
    ckpt_entry entries[] = {{ckpt__value_str(a, one, strlen(one)), first},
                            {two ? ckpt__value_str(a, two, strlen(two)) : NULL, second}};
    return ckpt__value_dict(a, entries, two ? 2 : 1);
}

static void finds(const ckpt_value *root, const char *path, const ckpt_value *want)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_value *found = root;
    ck_assert_msg(ckpt_value_find(root, path, &found, &err) == (want ? CKPT_OK : CKPT_E_NOT_FOUND), "%s: %s", path,
                  err.message);
    ck_assert_msg(found == want, "%s", path);
}

/* {"a": {"b": [7, {0: 8}]}, "a.b": 9, ...}: keys hold dots, are integers, and lead round in circles. */
START_TEST(a_value_by_its_path)
{
    ckpt__arena *a = ckpt__arena_new(0);
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_value *seven = ckpt__value_int(a, 7), *eight = ckpt__value_int(a, 8), *nine = ckpt__value_int(a, 9),
                     *found;
    ckpt_entry numbered = {ckpt__value_int(a, 0), eight};
    const ckpt_value *items[] = {seven, ckpt__value_dict(a, &numbered, 1), NULL};
    const ckpt_value *list = ckpt__value_list(a, CKPT_V_LIST, items, 2), *b = dict_of(a, "b", list, NULL, NULL);
    const ckpt_value *dotted = dict_of(a, "a.b", nine, "a.c.d", eight);
    ckpt_value *object = ckpt__value_new(a, CKPT_V_OBJECT);
    object->class_name = ckpt__s("argparse.Namespace");
    object->state = dict_of(a, "lr", nine, "self", object);
    ckpt_entry entries[] = {{ckpt__value_str(a, "a", 1), b},
                            {ckpt__value_str(a, "x", 1), dotted},
                            {ckpt__value_str(a, "", 0), seven},
                            {ckpt__value_str(a, "args", 4), object},
                            {ckpt__value_str(a, "a.b", 3), nine}};
    const ckpt_value *root = ckpt__value_dict(a, entries, 5);
    finds(root, "a.b.0", seven);
    finds(root, "a.b.1.0", eight);
    finds(root, "a.b", list); /* the first of the two in the file */
    finds(root, "x.a.b", nine);
    finds(root, "x.a.c.d", eight);
    finds(root, "args.lr", nine);
    finds(root, "args.self.lr", NULL); /* a cycle is not gone round */
    ck_assert_int_eq(ckpt_value_find(root, "", &found, &err), CKPT_OK);
    ck_assert_ptr_eq(found, root);
    static const char *const none[] = {"a.b.2", "b", "a.", "a.b.0.0", ".", "x.a", "a.b.1.00", "argsx"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        finds(root, none[i], NULL);
    finds(NULL, "a", NULL);
    finds(seven, "a", NULL);
    ckpt_value_find(root, "a.b.2.lr", &found, &err);
    ck_assert_str_eq(err.object, "a.b.2.lr");
    ck_assert_str_eq(err.message, "there is no value of that path: 'a.b' (list) has no such key");
    ckpt_value_find(root, "b", &found, &err);
    ck_assert_str_eq(err.message, "there is no value of that path: the root (dict) has no such key");
    ck_assert_int_eq(ckpt_value_find(root, NULL, &found, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_value_find(root, "a", NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_value_walk(root, 0, NULL, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_null(ckpt_value_get(root, NULL));
    ckpt__arena_free(a);
}
END_TEST

START_TEST(views_stay_inside_their_storage)
{
    ckpt__index *x = ckpt__index_new(0);
    ckpt_error err;
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = 48;
    static const struct {
        int64_t shape[2], strides[2], offset;
        ckpt_status status;
    } cases[] = {
        {{2, 3}, {3, 1}, 0, CKPT_OK},
        {{2, 3}, {3, 1}, 6, CKPT_OK},
        {{2, 3}, {3, 1}, 7, CKPT_E_FORMAT},
        {{2, 3}, {0, 1}, 9, CKPT_OK},
        {{2, 3}, {-3, 1}, 6, CKPT_E_FORMAT},
        {{2, 3}, {3, 1}, -1, CKPT_E_FORMAT},
        {{2, -3}, {3, 1}, 0, CKPT_E_FORMAT},
        {{0, 3}, {3, 1}, 12, CKPT_OK},
        {{2, 3}, {INT64_MAX, INT64_MAX}, 0, CKPT_E_FORMAT},
        {{2, 3}, {3, 1}, INT64_MAX, CKPT_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        t->info.name = ckpt__s("w");
        t->info.dtype = CKPT_F32;
        t->info.ndim = 2;
        ck_assert_msg(ckpt__index_set_view(x, x->tensor_count - 1, 0, cases[i].shape, cases[i].strides, cases[i].offset,
                                           &err) == cases[i].status,
                      "case %zu: %s", i, err.message);
    }
    ckpt__index_free(x);
}
END_TEST

/* As long as it is, and on one line. */
START_TEST(a_finding_has_the_whole_name)
{
    char name[1001], want[sizeof name + 8];
    memset(name, 'n', sizeof name);
    name[0] = '\n';
    memset(want, 'n', sizeof want);
    memcpy(want, "\\n", 2);
    want[sizeof name + 1] = '\0';
    ckpt_report *r = ckpt_report_new();
    ck_assert(!ckpt__report_tensor(r, (ckpt_str){name, sizeof name}));
    ck_assert(ckpt__report_add(r, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "it is left out"));
    ck_assert(ckpt__report_tensor(r, (ckpt_str){NULL, 0}));
    ck_assert_str_eq(ckpt_report_get(r, 0)->tensor, "");
    ck_assert(ckpt__report_tensor(r, (ckpt_str){name, sizeof name}));
    ck_assert_str_eq(ckpt_report_get(r, 0)->tensor, want);
    ck_assert_ptr_eq(ckpt_report_find(r, "lost", want), ckpt_report_get(r, 0));
    ck_assert(ckpt__report_tensor(NULL, (ckpt_str){name, sizeof name}));
    ckpt_report_free(r);
}
END_TEST

/* A sentence is one, whatever bytes it has; alternatives are told apart, and what has no text is none. */
START_TEST(a_fix_has_alternatives)
{
    static const char several[] = CKPT__FIX_SHELL "ls" CKPT__FIX_PYTHON CKPT__FIX_PYTHON "1" CKPT__FIX_C
                                                  "f();" CKPT__FIX_CONFIG "x = 1" CKPT__FIX_ADVICE "wait";
    static const char *const kinds[] = {"shell", "python", "c", "config", "advice"}, *const texts[] = {"ls", "1",
                                                                                                       "f();", "x = 1",
                                                                                                       "wait"};
    ckpt_report *r = ckpt_report_new(), *other = ckpt_report_new();
    ck_assert(ckpt__report_add(r, CKPT_SEVERITY_ERROR, "a", NULL, several, "it is odd"));
    ck_assert(ckpt__report_add(r, CKPT_SEVERITY_ERROR, "b", NULL, "wait" CKPT__FIX_SHELL "rm it", "it is odd"));
    ck_assert(ckpt__report_add(r, CKPT_SEVERITY_ERROR, "c", NULL, NULL, "it is odd"));
    ck_assert(ckpt__report_add(r, CKPT_SEVERITY_ERROR, "d", NULL, CKPT__FIX_SHELL, "it is odd"));
    ck_assert(ckpt__report_merge(other, r));
    for (int i = 0; i < 2; i++) {
        const ckpt_finding *f = ckpt_report_get(i ? other : r, 0);
        ck_assert_uint_eq(f->fix_count, 5);
        ck_assert_str_eq(f->fix, "ls; or: 1; or: f();; or: x = 1; or: wait");
        for (size_t k = 0; k < 5; k++) {
            ck_assert_str_eq(f->fixes[k]->kind, kinds[k]);
            ck_assert_str_eq(f->fixes[k]->text, texts[k]);
        }
        f = ckpt_report_get(i ? other : r, 2);
        ck_assert(f->fix_count == 0 && !f->fixes && !*f->fix);
        f = ckpt_report_get(i ? other : r, 3);
        ck_assert(f->fix_count == 0 && !f->fixes && !*f->fix);
    }
    const ckpt_finding *f = ckpt_report_get(r, 1);
    ck_assert(f->fix_count == 1 && strcmp(f->fixes[0]->kind, "advice") == 0);
    ck_assert_str_eq(f->fix, "wait" CKPT__FIX_SHELL "rm it");
    ckpt_report_free(r);
    ckpt_report_free(other);
}
END_TEST

START_TEST(a_report_fails_with_its_first_eight)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_error err;
    char name[16];
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "t%d", i);
        ck_assert(ckpt__report_add(r, i == 3 ? CKPT_SEVERITY_NOTE : CKPT_SEVERITY_ERROR, "missing", name, "do this",
                                   "%s", i == 2 ? "it is odd" : "it is not there"));
    }
    ck_assert_int_eq(ckpt__report_fail(r, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, "f", &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "11 things are wrong: 't0': it is not there; 't1'"));
    ck_assert_ptr_nonnull(strstr(err.message, "'t2': it is odd"));
    ck_assert_ptr_nonnull(strstr(err.message, "and 3 more"));
    ck_assert_ptr_null(strstr(err.message, "'t3'"));
    ck_assert_ptr_null(strstr(err.message, "'t9'"));
    ck_assert_uint_eq(ckpt_report_count_code(r, "missing"), 12);
    ck_assert_ptr_nonnull(ckpt_report_find(r, "missing", "t11"));
    ck_assert_ptr_null(ckpt_report_get(r, 12));
    ck_assert(ckpt__report_use(r, ckpt_cpu(), CKPT_ROLE_PARAM, 10) &&
              ckpt__report_use(r, ckpt_cpu(), CKPT_ROLE_STEP, 4));
    ck_assert_uint_eq(ckpt_report_device_count(r), 1);
    ck_assert_uint_eq(ckpt_report_device(r, 0)->nbytes, 14);
    ck_assert_uint_eq(ckpt_report_device(r, 0)->by_role[CKPT_ROLE_STEP], 4);
    ckpt_report_clear(r);
    ck_assert_uint_eq(ckpt_report_count(r), 0);
    for (int i = 0; i < 12; i++) { /* one sentence for all */
        snprintf(name, sizeof name, "t%d", i);
        ck_assert(ckpt__report_add(r, CKPT_SEVERITY_ERROR, "missing", name, "do this", "it is not there"));
    }
    ckpt__report_fail(r, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, "f", &err);
    ck_assert_str_eq(err.message,
                     "12 times: it is not there: 't0', 't1', 't2', 't3', 't4', 't5', 't6', 't7' and 4 more; do this");
    ckpt_report_free(r);
}
END_TEST

static size_t add_view(ckpt__index *x, const char *name)
{
    static const int64_t two[] = {2};
    ckpt_error err;
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = 8;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s(name);
    t->info.dtype = CKPT_F32;
    t->info.ndim = 1;
    ck_assert_int_eq(ckpt__index_set_view(x, x->tensor_count - 1, x->storage_count - 1, two, NULL, 0, &err), CKPT_OK);
    return x->tensor_count - 1;
}

/* An index of `count` tensors behind one of `before`: its tree has the first of them twice, in one value. */
static void check_part(size_t before, size_t count)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    ckpt_error err;
    ckpt__index *into = ckpt__index_new(0), *part = ckpt__index_new_part(into->arena);
    for (size_t i = 0; i < before; i++)
        add_view(into, names[i]);
    const ckpt_value *items[5];
    for (size_t i = 0; i < count; i++) {
        ckpt_value *v = ckpt__value_new(part->arena, CKPT_V_TENSOR);
        v->tensor = add_view(part, names[i]);
        items[i] = v;
    }
    items[count] = items[0];
    const ckpt_value *root = part->root = ckpt__value_list(part->arena, CKPT_V_LIST, items, count + 1);
    ck_assert(ckpt__index_finish(into, &err) == CKPT_OK && ckpt__index_finish(part, &err) == CKPT_OK);
    ck_assert_int_eq(ckpt__index_absorb(into, part, ckpt__s("part"), &err), CKPT_OK);
    ck_assert_uint_eq(into->tensor_count, before + count);
    ck_assert_uint_eq(into->storage_count, before + count);
    for (size_t i = 0; i < count; i++) {
        const ckpt__tensor *t = &into->tensors[before + i];
        ck_assert_uint_eq(root->items[i]->tensor, before + i);
        ck_assert_str_eq(t->info.name.data, names[i]);
        ck_assert_str_eq(t->info.file.data, "part");
        ck_assert_uint_eq(t->storage, before + i);
        ck_assert_int_eq(t->info.storage, (int64_t)(before + i));
    }
    for (size_t i = 0; i < before; i++)
        ck_assert_ptr_null(into->tensors[i].info.file.data);
    ck_assert_uint_eq(part->tensor_count, 0); /* nothing is there twice */
    ck_assert_ptr_null(part->tensors);
    ck_assert_ptr_null(part->storages);
    ckpt__index_free(into);
}

START_TEST(parts_become_one_index)
{
    for (size_t before = 0; before <= 4; before++)
        for (size_t count = 1; count <= 4; count++)
            check_part(before, count);
}
END_TEST

/* A checkpoint has as many of these as tensors, or more: what grows here grows by as much for each. */
START_TEST(what_is_kept_of_a_tensor_is_small)
{
    ck_assert_uint_le(sizeof(ckpt_value), 112);
    ck_assert_uint_le(sizeof(ckpt__tensor), 208);
    ck_assert_uint_le(sizeof(ckpt__storage), 88);
}
END_TEST

START_TEST(an_index_numbers_devices)
{
    static const struct {
        ckpt_device device;
        uint16_t number;
    } steps[] = {{{CKPT_DEVICE_CPU, -1}, 0}, {{CKPT_DEVICE_CUDA, 1}, 1}, {{CKPT_DEVICE_CUDA, 0}, 2},
                 {{CKPT_DEVICE_CUDA, 1}, 1}, {{CKPT_DEVICE_CPU, -1}, 0}, {{CKPT_DEVICE_XPU, 0}, 3}};
    ckpt__index *x = ckpt__index_new(0);
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint16_t number = 99;
        ck_assert(ckpt__index_device(x, steps[i].device, &number));
        ck_assert_uint_eq(number, steps[i].number);
    }
    ck_assert_uint_eq(x->device_count, 4);
    ck_assert(ckpt_device_equal(x->devices[0], ckpt_cpu()));
    ck_assert(ckpt_device_equal(x->devices[2], (ckpt_device){CKPT_DEVICE_CUDA, 0}));
    ckpt__index_free(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model");
    TCase *t = tcase_create("model");
    tcase_add_test(t, dtypes_have_one_name_each);
    tcase_add_test(t, tags);
    tcase_add_test(t, keys_are_named_as_python_prints_them);
    tcase_add_test(t, keys_of_the_standard_library);
    tcase_add_test(t, conversions_round_to_even);
    tcase_add_test(t, walk_names_everything_and_stops_at_cycles);
    tcase_add_test(t, walk_is_bounded);
    tcase_add_test(t, a_value_by_its_path);
    tcase_add_test(t, views_stay_inside_their_storage);
    tcase_add_test(t, a_finding_has_the_whole_name);
    tcase_add_test(t, a_fix_has_alternatives);
    tcase_add_test(t, a_report_fails_with_its_first_eight);
    tcase_add_test(t, parts_become_one_index);
    tcase_add_test(t, what_is_kept_of_a_tensor_is_small);
    tcase_add_test(t, an_index_numbers_devices);
    suite_add_tcase(s, t);
    return run_suite(s);
}
