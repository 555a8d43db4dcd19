/* test_migrate_ties.c - tensors that are reached in several ways: under two names of which one goes, by views of one
 * storage, and inside opaque objects, where no name leads. */
#include "../migrate_setup.h"

/* A view of the storage `key` of `numel` floats. */
static void put_view(torch_file *t, const char *key, int64_t numel, int64_t offset, int ndim, int64_t a, int64_t b,
                     int64_t stride)
{
    view v = {.class_name = "FloatStorage",
              .key = key,
              .location = "cpu",
              .numel = numel,
              .offset = offset,
              .ndim = ndim,
              .stride_count = ndim,
              .shape = {a, b},
              .strides = {stride, 1}};
    put_tensor(&t->pickle, &v);
}

static void add_storage(torch_file *t, size_t numel)
{
    t->numel[t->count] = numel;
    for (size_t i = 0; i < numel; i++)
        t->data[t->count][i] = (float)i + 1;
    t->count++;
}

/* {'x': w, 'model': {'emb.weight': w, 'b': ..., 'head.weight': w}}: one object of Python under three names. */
static const char *write_tied(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "x");
    torch_tensor(t, 2, 3, 2, 1);
    PUT(b, "q\5");
    put_str(b, "model");
    PUT(b, "}(");
    put_str(b, "emb.weight");
    PUT(b, "h\5");
    put_str(b, "b");
    torch_tensor(t, 1, 2, 0, 10);
    put_str(b, "head.weight");
    PUT(b, "h\5uu");
    write_torch(at("tied.pt"), t);
    return at("tied.pt");
}

static const char *const drops[][1] = {{"x"}, {"model.emb.weight"}, {"model.head.weight"}};

static void is_moved_and_cast(const ckpt_reader *r, const char *name)
{
    const ckpt_tensor_info *t = find(r, name);
    ck_assert_msg(t != NULL, "%s is not there", name);
    ck_assert_msg(t->dtype == CKPT_BF16 && strcmp(t->device.data, "cuda:1") == 0, "%s: %s on %s", name,
                  ckpt_dtype_name(t->dtype), t->device.data);
}

/* One of the names goes: what is under the others moves and is converted as if it had them alone. */
START_TEST(one_name_goes)
{
    static const char *const casts[] = {"*=bfloat16"};
    static const char *const names[] = {"x", "model.emb.weight", "model.head.weight"}, *const canonical[] = {
                                                                                           "x", "emb.weight",
                                                                                           "head.weight"};
    const char *src = write_tied();
    options.cast = casts;
    options.cast_count = 1;
    options.map_location = "cuda:1";
    options.drop = drops[_i % 3];
    options.drop_count = 1;
    options.weights_only = _i >= 3;
    migrates(src, "torch", at("out.pt"));
    migrates(src, "ckpt", at("out.ckpt"));
    ckpt_reader *torch = opened(at("out.pt")), *native = opened(at("out.ckpt"));
    for (int i = 0; i < 3; i++) {
        const char *name = options.weights_only ? canonical[i] : names[i];
        if (i == _i % 3 || (options.weights_only && i == 0)) {
            ck_assert_ptr_null(find(torch, name));
            ck_assert_ptr_null(find(native, canonical[i]));
            continue;
        }
        is_moved_and_cast(torch, name);
        is_moved_and_cast(native, canonical[i]);
    }
    ckpt_reader_close(torch);
    ckpt_reader_close(native);
}
END_TEST

/* The names of both are other ones at the same time. */
START_TEST(one_name_goes_the_other_changes)
{
    static const char *const renames[] = {"(.*)\\.weight=$1.w"};
    const char *src = write_tied();
    options.drop = drops[1];
    options.drop_count = 1;
    options.rename = renames;
    options.rename_count = 1;
    options.map_location = "cuda:1";
    migrates(src, "ckpt", at("out.ckpt"));
    ckpt_reader *r = opened(at("out.ckpt"));
    ck_assert_ptr_nonnull(find(r, "head.w"));
    ck_assert_str_eq(find(r, "head.w")->device.data, "cuda:1");
    ck_assert_ptr_null(find(r, "emb.w"));
    ckpt_reader_close(r);
}
END_TEST

/* The native file, too, has the tensor under each of its names. */
START_TEST(one_name_goes_from_native)
{
    static const char *const names[] = {"x", "model.emb.weight", "model.head.weight"},
                             *const canonical[] = {"x", "emb.weight", "head.weight"},
                             *const globs[] = {"x*", "*emb.w*", "*head.w*"};
    migrates(write_tied(), "ckpt", at("mid.ckpt"));
    options.drop = &globs[_i];
    options.drop_count = 1;
    migrates(at("mid.ckpt"), "torch", at("out.pt"));
    migrates(at("mid.ckpt"), "ckpt", at("out.ckpt"));
    ckpt_reader *torch = opened(at("out.pt")), *native = opened(at("out.ckpt"));
    for (int i = 0; i < 3; i++) {
        ck_assert_msg((find(torch, names[i]) == NULL) == (i == _i), "%s of torch, without %s", names[i], names[_i]);
        ck_assert_msg((find(native, canonical[i]) == NULL) == (i == _i), "%s, without %s", canonical[i], names[_i]);
    }
    ckpt_reader_close(torch);
    ckpt_reader_close(native);
}
END_TEST

/* It is one tensor: what converts it under one name converts it under all, and the first rule that names any of them wins. */
START_TEST(one_name_is_cast)
{
    static const char *const names[] = {"x", "model.emb.weight", "model.head.weight"}, *const canonical[] = {
                                                                                           "x", "emb.weight",
                                                                                           "head.weight"};
    const char *casts[2], *src = write_tied();
    char first[40];
    snprintf(first, sizeof first, "=%s=bfloat16", names[_i]);
    casts[0] = first;
    casts[1] = "*=float64";
    options.cast = casts;
    options.cast_count = 2;
    migrates(src, "torch", at("out.pt"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "cast"), 4);
    migrates(src, "ckpt", at("out.ckpt"));
    ckpt_reader *torch = opened(at("out.pt")), *native = opened(at("out.ckpt"));
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(find(torch, names[i])->dtype, CKPT_BF16);
        ck_assert_int_eq(find(native, canonical[i])->dtype, CKPT_BF16);
        ck_assert_int_eq(find(torch, names[i])->storage, find(torch, names[0])->storage);
    }
    ck_assert_int_eq(find(torch, "model.b")->dtype, CKPT_F64);
    ckpt_reader_close(torch);
    ckpt_reader_close(native);
}
END_TEST

/* {'m': s[0:2], 'r': Thing(s[1:9], other)}: what the object looks at is more of the storage than `m` shows. */
static const char *write_closed(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    add_storage(t, 10);
    add_storage(t, 3);
    PUT(b, "}(");
    put_str(b, "m");
    put_view(t, "0", 10, 0, 1, 2, 0, 1);
    put_str(b, "r");
    put_global(b, "thing", "Thing");
    PUT(b, "(");
    put_view(t, "0", 10, 1, 1, 8, 0, 1);
    put_view(t, "1", 3, 0, 1, 3, 0, 1);
    PUT(b, "tRu");
    write_torch(at("closed.pt"), t);
    return at("closed.pt");
}

static bool holds(const char *path, const char *text)
{
    static char data[1 << 16];
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    return memmem(data, n, text, strlen(text)) != NULL;
}

/* Tensors inside opaque objects lose nothing on the way to a native file and back, and are where map_location puts them,
 * whichever leg it is given on. */
START_TEST(inside_objects)
{
    const char *src = write_closed();
    options.map_location = _i == 1 ? "cuda:2" : NULL;
    migrates(src, "ckpt", at("mid.ckpt"));
    ckpt_reader *r = opened(at("mid.ckpt"));
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++)
        ck_assert_str_eq(ckpt_reader_tensor(r, i)->device.data, _i == 1 ? "cuda:2" : "cpu");
    ckpt_reader_close(r);
    options.map_location = _i == 2 ? "cuda:2" : NULL;
    migrates(at("mid.ckpt"), "torch", at("back.pt"));
    r = opened(at("back.pt"));
    ck_assert_uint_eq(find(r, "m")->storage_nbytes, 40);
    const ckpt_value *args = ckpt_value_get(ckpt_reader_root(r), "r")->args;
    ck_assert_uint_eq(args->item_count, 2);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(args->items[i]->kind, CKPT_V_OBJECT);
    ckpt_reader_close(r);
    ck_assert(holds(at("back.pt"), "cuda:2") == (_i > 0));
    ck_assert(holds(at("back.pt"), "cpu") == (_i == 0));
    options.map_location = "cuda:2";
    migrates(at("closed.pt"), "torch", at("direct.pt"));
    ck_assert(!holds(at("direct.pt"), "cpu"));
}
END_TEST

/* `m` goes, and the object's view of the same storage stays. */
START_TEST(inside_objects_stay)
{
    static const char *const m[] = {"m"};
    options.drop = m;
    options.drop_count = 1;
    migrates(write_closed(), "ckpt", at("mid.ckpt"));
    options.drop_count = 0;
    migrates(at("mid.ckpt"), "torch", at("back.pt"));
    ckpt_reader *r = opened(at("back.pt"));
    ck_assert_ptr_null(find(r, "m"));
    const ckpt_value *args = ckpt_value_get(ckpt_reader_root(r), "r")->args;
    ck_assert_int_eq(args->items[0]->kind, CKPT_V_OBJECT);
    ckpt_reader_close(r);
}
END_TEST

/* {'w': t, 'r': Thing(t)} without 'w': a native file has no record of t then, which is said before anything is written. */
START_TEST(held_inside)
{
    static const char *const w[] = {"w"};
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "w");
    torch_tensor(t, 1, 3, 0, 1);
    PUT(b, "q\5");
    put_str(b, "r");
    put_global(b, "thing", "Thing");
    PUT(b, "h\5\x85Ru");
    write_torch(at("held.pt"), t);
    options.drop = w;
    options.drop_count = 1;
    ck_assert_int_eq(migrate(at("held.pt"), "ckpt", at("out.ckpt")), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "lost", NULL));
    options.lossy = true;
    migrates(at("held.pt"), "ckpt", at("out.ckpt"));
}
END_TEST

/* {'w': w, 'm': {k1: 1, ('t', k2): 2, frozenset((k3,)): 3, Thing(k4): 4, w: 5}, 'c': Counter({k5: 6})}, each k a tensor; the
 * first element of each is a number of its own. */
static const char *write_keys(void)
{
    static const char keys[][2] = {"0", "1", "2", "3", "4", "5"};
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    for (int i = 0; i < 6; i++) {
        add_storage(t, 3);
        t->data[i][0] = 1000 + (float)i;
    }
    PUT(b, "}(");
    put_str(b, "w");
    put_view(t, keys[0], 3, 0, 1, 3, 0, 1);
    PUT(b, "q\5");
    put_str(b, "m");
    PUT(b, "}(");
    put_view(t, keys[1], 3, 0, 1, 3, 0, 1);
    PUT(b, "K\1");
    put_str(b, "t");
    put_view(t, keys[2], 3, 0, 1, 3, 0, 1);
    PUT(b, "\x86K\2");
    put_global(b, "builtins", "frozenset");
    PUT(b, "](");
    put_view(t, keys[3], 3, 0, 1, 3, 0, 1);
    PUT(b, "e\x85RK\3");
    put_global(b, "thing", "Thing");
    put_view(t, keys[4], 3, 0, 1, 3, 0, 1);
    PUT(b, "\x85RK\4h\5K\5u");
    put_str(b, "c");
    put_global(b, "collections", "Counter");
    PUT(b, "}(");
    put_view(t, keys[5], 3, 0, 1, 3, 0, 1);
    PUT(b, "K\6u\x85Ru");
    write_torch(at("keys.pt"), t);
    return at("keys.pt");
}

static void damage(const char *path, float first)
{
    static char data[1 << 16];
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(data, 1, sizeof data, f);
    char *at_first = memmem(data, n, &first, sizeof first);
    ck_assert_ptr_nonnull(at_first);
    ck_assert_int_eq(fseek(f, at_first - data, SEEK_SET), 0);
    ck_assert_int_eq(fputc(*at_first ^ 1, f), (unsigned char)(*at_first ^ 1));
    fclose(f);
}

/* A tensor in a key, or an object that needs one: it is listed as lost, a string stands for it, and what the key leads to is
 * kept. Of the listed tensor `w`, which is a key as well, both are said. */
START_TEST(salvage_of_keys)
{
    static const char *const to[] = {"torch", "ckpt"};
    static const char *const lost[] = {"m.<tensor>",
                                       "m.torch.Tensor",
                                       "m.('t', torch.Tensor)",
                                       "m.frozenset({torch.Tensor})",
                                       "m.thing.Thing(torch.Tensor)",
                                       "c.torch.Tensor"};
    options.salvage = true;
    damage(write_keys(), 1000 + (float)_i);
    for (size_t i = 0; i < 2; i++) {
        ckpt_report_free(report);
        report = ckpt_report_new();
        migrates(at("keys.pt"), to[i], at(i ? "out.ckpt" : "out.pt"));
        ck_assert_msg(ckpt_report_find(report, "not-recovered", lost[_i]) != NULL, "%s is not said to be lost",
                      lost[_i]);
        ck_assert_uint_ge(ckpt_report_count_code(report, "not-recovered"), _i ? 1 : 2);
    }
    options.salvage = false;
    migrates(at("out.ckpt"), "torch", at("back.pt"));
    for (size_t i = 0; i < 2; i++) {
        ckpt_reader *r = opened(at(i ? "back.pt" : "out.pt"));
        ck_assert((find(r, "w") == NULL) == (_i == 0));
        const ckpt_value *m = ckpt_value_get(ckpt_reader_root(r), "m"), *c = ckpt_value_get(ckpt_reader_root(r), "c");
        ck_assert_uint_eq(m->entry_count, 5);
        for (size_t k = 0; k < m->entry_count; k++)
            ck_assert_int_eq(m->entries[k].value->integer, (int64_t)k + 1);
        ck_assert(c && c->entry_count == 1 && c->entries[0].value->integer == 6);
        const ckpt_value *key = _i == 5 ? c->entries[0].key : m->entries[_i ? _i - 1 : 4].key;
        if (_i == 2)
            ck_assert_str_eq(key->items[0]->text.data, "t");
        key = _i == 2 ? key->items[1] : _i == 3 ? key->items[0] : key;
        ck_assert(key->kind == CKPT_V_STR && strcmp(key->text.data, "(not recovered: key 1)") == 0);
        ckpt_reader_close(r);
    }
}
END_TEST

/* [1, 2] with strides (1, 1) and [2] of the same storage: a dimension of size 1 may have any stride. */
START_TEST(strides_of_one)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    add_storage(t, 2);
    PUT(b, "}(");
    put_str(b, "a");
    put_view(t, "0", 2, 0, 2, 1, 2, 1);
    put_str(b, "c");
    put_view(t, "0", 2, 0, 1, 2, 0, 1);
    PUT(b, "u");
    write_torch(at("x.pt"), t);
    migrates(at("x.pt"), "ckpt", at("mid.ckpt"));
    migrates(at("mid.ckpt"), "torch", at("back.pt"));
    ckpt_reader *r = opened(at("back.pt"));
    ck_assert_int_eq(find(r, "a")->storage, find(r, "c")->storage);
    ck_assert_int_eq(find(r, "a")->strides[0], 1);
    ckpt_reader_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_ties");
    TCase *t = tcase_create("ties");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, one_name_goes, 0, 6);
    tcase_add_test(t, one_name_goes_the_other_changes);
    tcase_add_loop_test(t, one_name_goes_from_native, 0, 3);
    tcase_add_loop_test(t, one_name_is_cast, 0, 3);
    tcase_add_loop_test(t, inside_objects, 0, 3);
    tcase_add_test(t, inside_objects_stay);
    tcase_add_test(t, held_inside);
    tcase_add_loop_test(t, salvage_of_keys, 0, 6);
    tcase_add_test(t, strides_of_one);
    suite_add_tcase(s, t);
    return run_suite(s);
}
