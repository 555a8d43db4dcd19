/* PyTorch's format before 1.6, and pickles that torch.save did not write: built byte by byte, read into an index; and
 * what does not fit, by its messages. */
#include "format/table.h"
#include "codec/pickle.h"
#include "legacy_emit.h"
#include "../runner.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "../scratch_base.h"

static char folder[64], path[96];
static ckpt_error err;
static ckpt__source *source;
static ckpt__index *x;
static bytes object, file;
static const float six[6] = {0, 1, 2, 3, 4, 5};
static const int64_t three[3] = {7, 8, 9};

static void forget(void)
{
    ckpt__index_free(x);
    ckpt__source_close(source);
    x = NULL;
    source = NULL;
    memset(&err, 0, sizeof err);
}
static void setup(void)
{
    snprintf(folder, sizeof folder, "%s/test_legacy.XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/c.pt", folder);
    object.size = file.size = 0;
}
static void teardown(void)
{
    forget();
    unlink(path);
    rmdir(folder);
}

static ckpt_status read_bytes(const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, n), (ssize_t)n);
    close(fd);
    forget();
    ck_assert_msg(ckpt__source_open(path, &source, &err) == CKPT_OK, "%s", err.message);
    ckpt__read_request request = ckpt__read_all(source);
    return ckpt__format_read(&request, NULL, &x, &err);
}
static ckpt_status read_file(void)
{
    return read_bytes(file.data, file.size);
}
static void must_read(void)
{
    ckpt_status s = read_file();
    ck_assert_msg(s == CKPT_OK, "%s: %s", err.object, err.message);
}
static void must_refuse(ckpt_status status, const char *message)
{
    ckpt_status s = read_file();
    ck_assert_msg(s == status, "status %d, expected %d: %s", s, status, err.message);
    ck_assert_msg(strstr(err.message, message) != NULL, "'%s' lacks '%s'", err.message, message);
    ck_assert_ptr_null(x);
}
static const ckpt__tensor *named(const char *name)
{
    for (size_t i = 0; i < x->tensor_count; i++)
        if (ckpt__str_is(x->tensors[i].info.name, name))
            return &x->tensors[i];
    ck_abort_msg("no tensor %s", name);
    return NULL;
}
static const ckpt__storage *storage_of(const char *name)
{
    return &x->storages[named(name)->storage];
}
static bool has_finding(const char *code)
{
    return ckpt_report_find(x->findings, code, NULL) != NULL;
}
static void same_bytes(const char *name, const void *wanted, size_t n)
{
    const ckpt__extent *e = &storage_of(name)->extent;
    unsigned char got[256];
    ck_assert_uint_eq(e->size, n);
    ck_assert_uint_eq(e->length, n);
    ck_assert(!e->missing && !e->has_crc && !e->big_endian && e->coding == CKPT__STORED);
    if (e->memory)
        memcpy(got, e->memory, n);
    else
        ck_assert_msg(ckpt__source_read(source, e->file, e->offset, got, n, &err) == CKPT_OK, "%s", err.message);
    ck_assert_mem_eq(got, wanted, n);
}

static const old_view no_view = {NULL, 0, 0};
static const old_storage two[2] = {{"10", 6, six, sizeof six, false}, {"9", 3, three, sizeof three, false}};

static void begin(void)
{
    object.size = 0;
    PUT(&object, "\x80\2}(");
}
static void end(void)
{
    PUT(&object, "u.");
}
static void add_tensor(const char *name, const char *class_name, const char *key, int64_t numel, old_view v,
                       int64_t offset, int64_t size)
{
    put_str(&object, name);
    begin_tensor(&object);
    put_old_storage(&object, class_name, key, "cuda:1", numel, v);
    end_tensor(&object, offset, size);
}
/* {'n': int64 x 3 of storage 9, 'f': float32 x 6 of storage 10, 'tail': its last two} */
static void usual_object(void)
{
    begin();
    add_tensor("n", "LongStorage", "9", 3, no_view, 0, 3);
    add_tensor("f", "FloatStorage", "10", 6, no_view, 0, 6);
    add_tensor("tail", "FloatStorage", "10", 6, no_view, 4, 2);
    end();
}
static void usual(void)
{
    usual_object();
    file.size = 0;
    put_legacy(&file, &object, two, 2);
}

START_TEST(storages_in_the_order_of_their_keys)
{
    usual();
    must_read();
    ck_assert_str_eq(x->format, "torch-legacy");
    ck_assert_uint_eq(x->tensor_count, 3);
    ck_assert_uint_eq(x->storage_count, 2);
    same_bytes("n", three, sizeof three);
    same_bytes("f", six, sizeof six);
    ck_assert_int_eq(named("n")->info.storage, 0);
    ck_assert_int_eq(named("tail")->info.storage, 1);
    ck_assert_int_eq(named("tail")->info.offset, 4);
    ck_assert_uint_eq(storage_of("f")->extent.offset, file.size - sizeof three - 8 - sizeof six);
    ck_assert(ckpt__str_is(storage_of("f")->device, "cuda:1"));
    ck_assert_uint_eq(ckpt_report_count(x->findings), 0);
}
END_TEST

/* What a pickler writes before the magic number depends on its protocol; 0 and 1 write it as text. */
START_TEST(magic_of_every_protocol)
{
    static const struct {
        const char *magic;
        size_t size;
    } magics[] = {
        {"L119547037146038801333356L\n.", 28},
        {LEGACY_MAGIC, sizeof LEGACY_MAGIC - 1},
        {"\x80\3" LEGACY_NUMBER, sizeof LEGACY_NUMBER + 1},
        {"\x80\4\x95\x0d\0\0\0\0\0\0\0" LEGACY_NUMBER, sizeof LEGACY_NUMBER + 10},
        {"\x80\5\x95\x0d\0\0\0\0\0\0\0" LEGACY_NUMBER, sizeof LEGACY_NUMBER + 10},
    };
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
        usual();
        bytes rest = file;
        file.size = 0;
        put(&file, magics[i].magic, magics[i].size);
        put(&file, rest.data + sizeof LEGACY_MAGIC - 1, rest.size - (sizeof LEGACY_MAGIC - 1));
        must_read();
        same_bytes("f", six, sizeof six);
    }
    usual();
    file.data[sizeof LEGACY_MAGIC + 2] ^= 1; /* 1001 */
    must_refuse(CKPT_E_FORMAT, "1001");
}
END_TEST

START_TEST(a_view_is_a_storage_of_its_own)
{
    begin();
    add_tensor("v", "FloatStorage", "10", 6, (old_view){"77", 2, 3}, 0, 3);
    add_tensor("again", "FloatStorage", "10", 6, (old_view){"77", 2, 3}, 1, 2);
    add_tensor("f", "FloatStorage", "10", 6, no_view, 0, 6);
    add_tensor("same", "FloatStorage", "10", 6, (old_view){"10", 2, 3}, 0, 6); /* by the name of the whole */
    end();
    put_legacy(&file, &object, two, 1);
    must_read();
    ck_assert_uint_eq(x->storage_count, 2);
    same_bytes("v", six + 2, 12);
    ck_assert_int_eq(named("v")->info.storage, named("again")->info.storage);
    ck_assert_int_ne(named("v")->info.storage, named("f")->info.storage);
    ck_assert_int_eq(named("same")->info.storage, named("f")->info.storage);
    static const old_view wrong[] = {{"77", 4, 3}, {"77", 7, 0}, {"77", INT64_MAX, 2}, {"77", 2, INT64_MAX / 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        begin();
        add_tensor("v", "FloatStorage", "10", 6, wrong[i], 0, 0);
        end();
        file.size = 0;
        put_legacy(&file, &object, two, 1);
        must_refuse(CKPT_E_FORMAT, "does not fit");
    }
    begin();
    add_tensor("v", "FloatStorage", "10", 6, (old_view){"77", -1, 3}, 0, 0);
    end();
    file.size = 0;
    put_legacy(&file, &object, two, 1);
    must_refuse(CKPT_E_FORMAT, "whose view");
}
END_TEST

/* ('module', class, path, source) stands for the class. */
START_TEST(classes_of_modules)
{
    begin();
    put_str(&object, "net");
    PUT(&object, "(");
    put_str(&object, "module");
    put_global(&object, "my.nets", "Net");
    put_str(&object, "/home/me/nets.py");
    put_str(&object, "class Net: ...");
    PUT(&object, "tQ)\x81}(");
    add_tensor("w", "FloatStorage", "10", 6, no_view, 0, 6);
    PUT(&object, "ub");
    put_str(&object, "class");
    PUT(&object, "(");
    put_str(&object, "module");
    put_global(&object, "my.nets", "Other");
    PUT(&object, "NNtQ");
    end();
    put_legacy(&file, &object, two, 1);
    must_read();
    same_bytes("net.w", six, sizeof six);
    const ckpt_value *net = ckpt_value_get(x->root, "net"), *class = ckpt_value_get(x->root, "class");
    ck_assert_int_eq(net->kind, CKPT_V_OBJECT);
    ck_assert(ckpt__str_is(net->class_name, "my.nets.Net"));
    ck_assert_int_eq(class->kind, CKPT_V_CLASS);
    ck_assert(ckpt__str_is(class->class_name, "my.nets.Other"));
}
END_TEST

START_TEST(numbers_of_elements)
{
    old_storage s = two[0];
    begin();
    add_tensor("f", "FloatStorage", "10", 6, no_view, 0, 6);
    end();
    s.big_number = true; /* as machines of the other byte order wrote it: the elements are little-endian all the same */
    put_legacy(&file, &object, &s, 1);
    must_read();
    same_bytes("f", six, sizeof six);
    s.big_number = false;
    s.numel = 5;
    file.size = 0;
    put_legacy(&file, &object, &s, 1);
    must_refuse(CKPT_E_DAMAGED, "by the pickle it has 24 bytes");
    /* One storage under two classes: the number counts elements of either. */
    begin();
    add_tensor("u", "ByteStorage", "10", 24, no_view, 0, 24);
    end();
    s.numel = 24;
    file.size = 0;
    put_legacy(&file, &object, &s, 1);
    must_read();
    begin();
    add_tensor("f", "FloatStorage", "10", 6, no_view, 0, 6);
    add_tensor("g", "FloatStorage", "10", 7, no_view, 0, 6);
    end();
    file.size = 0;
    put_legacy(&file, &object, &s, 1);
    must_refuse(CKPT_E_FORMAT, "described twice");
    begin();
    add_tensor("f", "DoubleStorage", "10", INT64_MAX, no_view, 0, 6);
    end();
    file.size = 0;
    put_legacy(&file, &object, &s, 1);
    must_refuse(CKPT_E_FORMAT, "overflow");
}
END_TEST

static void with_keys(const char *keys, size_t n)
{
    usual_object();
    file.size = 0;
    PUT(&file, LEGACY_MAGIC LEGACY_VERSION);
    put_sys_info(&file);
    put(&file, object.data, object.size);
    put(&file, keys, n);
    put_old_data(&file, two, 2);
}

START_TEST(the_list_of_keys)
{
    static const char unknown[] = "\x80\2](X\2\0\0\0"
                                  "10X\1\0\0\0"
                                  "8e.",
                      again[] = "\x80\2](X\2\0\0\0"
                                "10X\2\0\0\0"
                                "10e.",
                      short_list[] = "\x80\2](X\2\0\0\0"
                                     "10e.",
                      numbers[] = "\x80\2](K\1K\2e.", dict[] = "\x80\2}.",
                      other_order[] = "\x80\2](X\1\0\0\0"
                                      "9X\2\0\0\0"
                                      "10e.";
    with_keys(unknown, sizeof unknown - 1);
    must_refuse(CKPT_E_FORMAT, "which the object does not use");
    with_keys(again, sizeof again - 1);
    must_refuse(CKPT_E_FORMAT, "twice");
    with_keys(short_list, sizeof short_list - 1);
    must_refuse(CKPT_E_DAMAGED, "not in the list of storages");
    with_keys(numbers, sizeof numbers - 1);
    must_refuse(CKPT_E_FORMAT, "something else than keys");
    with_keys(dict, sizeof dict - 1);
    must_refuse(CKPT_E_FORMAT, "not a list");
    with_keys(other_order, sizeof other_order - 1);
    must_refuse(CKPT_E_DAMAGED, "storage 9");
}
END_TEST

START_TEST(odd_ends)
{
    usual();
    PUT(&file, "xyz");
    must_read();
    ck_assert(has_finding("bytes-after-stop"));
    usual_object();
    file.size = 0;
    PUT(&file, LEGACY_MAGIC LEGACY_VERSION "\x80\2"
                                           "cos\nsystem\n(U\2idtR.");
    put(&file, object.data, object.size);
    put_keys(&file, two, 2);
    put_old_data(&file, two, 2);
    must_read();
    ck_assert(has_finding("odd-sys-info"));
    same_bytes("f", six, sizeof six);
    object.size = 0;
    PUT(&object, "P('storage', <class 'torch.FloatStorage'>, '0', 'cpu', 12, None)\n.");
    file.size = 0;
    put_legacy(&file, &object, two, 0);
    must_refuse(CKPT_E_UNSUPPORTED, "protocol 0");
    usual_object();
    file.size = 0;
    object.data[object.size++] = 0; /* behind STOP: no pickle begins with it */
    put_legacy(&file, &object, two, 2);
    must_refuse(CKPT_E_FORMAT, "not an opcode");
}
END_TEST

/* A file cut anywhere is damaged, never read. */
START_TEST(cut_everywhere)
{
    usual();
    for (size_t n = sizeof LEGACY_MAGIC - 1; n < file.size; n++) {
        ckpt_status s = read_bytes(file.data, n);
        ck_assert_msg(s == CKPT_E_DAMAGED, "cut to %zu: status %d, %s", n, s, err.message);
    }
}
END_TEST

/* ---- how torch wrote tensors long ago */

START_TEST(parameters_before_1_0)
{
    begin();
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"p", "fixed", "v"};
        put_str(&object, names[i]);
        if (i < 2)
            put_global(&object, "torch.nn.parameter", "Parameter");
        else
            put_global(&object, "torch.autograd.variable", "Variable");
        put_global(&object, "torch._utils", "_rebuild_tensor");
        PUT(&object, "(");
        put_old_storage(&object, "FloatStorage", "10", "cpu", 6, no_view);
        PUT(&object, "K\1K\2\x85K\1\x85tR\x85R(");
        put(&object, i == 1 ? "\x89" : "\x88", 1);
        PUT(&object, "\x89Ntb");
    }
    put_str(&object, "not one");
    put_global(&object, "torch.nn.parameter", "Parameter");
    PUT(&object, "K\5\x85R");
    end();
    put_legacy(&file, &object, two, 1);
    must_read();
    ck_assert_uint_eq(x->tensor_count, 3);
    ck_assert(ckpt__str_is(named("p")->info.extra->class_name, "torch.nn.parameter.Parameter"));
    ck_assert(named("p")->info.requires_grad && !named("fixed")->info.requires_grad && named("v")->info.requires_grad);
    ck_assert_ptr_null(named("v")->info.extra->class_name.data);
    ck_assert_int_eq(named("v")->info.offset, 1);
    ck_assert_int_eq(ckpt_value_get(x->root, "not one")->kind, CKPT_V_OBJECT);
}
END_TEST

/* ---- tensors by pickle.dump */

/* The file of one storage of six floats, as the bytes that _load_from_bytes gets. */
static void nested_file(bytes *b)
{
    static bytes inner;
    inner.size = 0;
    PUT(&inner, "\x80\2");
    put_old_storage(&inner, "FloatStorage", "10", "cuda:0", 6, no_view);
    PUT(&inner, ".");
    b->size = 0;
    put_legacy(b, &inner, two, 1);
}

typedef enum how { SHORT_BINBYTES, BINBYTES, BINBYTES8, LATIN_1 } how;

static void put_bytes(const bytes *b, how h)
{
    static const char *const opcodes[] = {"C", "B", "\x8e"};
    static const int widths[] = {1, 4, 8};
    if (h == LATIN_1) {
        static bytes text;
        text.size = 0;
        for (size_t i = 0; i < b->size; i++) {
            unsigned char c = b->data[i], pair[2] = {(unsigned char)(0xC0 | c >> 6), (unsigned char)(0x80 | (c & 63))};
            put(&text, c < 128 ? &c : pair, c < 128 ? 1 : 2);
        }
        put_global(&object, "_codecs", "encode");
        PUT(&object, "X");
        put_number(&object, text.size, 4);
        put(&object, text.data, text.size);
        PUT(&object, "X\6\0\0\0latin1\x86R");
        return;
    }
    put(&object, opcodes[h], 1);
    put_number(&object, b->size, widths[h]);
    put(&object, b->data, b->size);
}
static void load_from_bytes(const bytes *b, how h)
{
    put_global(&object, "torch.storage", "_load_from_bytes");
    put_bytes(b, h);
    PUT(&object, "\x85R");
}
static void add_nested(const char *name, const bytes *b, how h)
{
    put_str(&object, name);
    begin_tensor(&object);
    load_from_bytes(b, h);
    end_tensor(&object, 0, 6);
}
static void take_object(void)
{
    file = object;
}

START_TEST(storages_in_bytes)
{
    static bytes b;
    nested_file(&b);
    for (how h = b.size < 256 ? SHORT_BINBYTES : BINBYTES; h <= LATIN_1; h++) {
        begin();
        add_nested("a", &b, h);
        add_nested("b", &b, h);
        put_str(&object, "bare");
        load_from_bytes(&b, h);
        end();
        take_object();
        must_read();
        ck_assert_str_eq(x->format, "pickle");
        ck_assert_uint_eq(x->storage_count, 3);
        same_bytes("a", six, sizeof six);
        same_bytes("b", six, sizeof six);
        ck_assert_ptr_nonnull(storage_of("a")->extent.memory);
        ck_assert_int_ne(named("a")->info.storage, named("b")->info.storage);
        ck_assert(ckpt__str_is(storage_of("a")->device, "cuda:0"));
        ck_assert_int_eq(named("a")->info.dtype, CKPT_F32);
        const ckpt_value *bare = ckpt_value_get(x->root, "bare");
        size_t number = 99;
        ck_assert(ckpt__str_is(bare->class_name, "torch.storage.TypedStorage"));
        ck_assert(ckpt__index_storage_of(x, bare->origin, &number));
        ck_assert_uint_lt(number, 3);
    }
}
END_TEST

START_TEST(broken_files_in_bytes)
{
    static bytes b, whole, more;
    nested_file(&whole);
    for (size_t n = 0; n < whole.size; n++) { /* cut anywhere */
        b = whole;
        b.size = n;
        begin();
        add_nested("a", &b, BINBYTES);
        end();
        take_object();
        ckpt_status s = read_file();
        ck_assert_msg(s == CKPT_E_DAMAGED || s == CKPT_E_UNSUPPORTED, "cut to %zu: status %d %s", n, s, err.message);
    }
    begin(); /* nothing that a storage could be: opaque, unless a tensor needs it */
    put_str(&object, "x");
    b = whole;
    b.size = 40;
    load_from_bytes(&b, BINBYTES);
    end();
    take_object();
    must_read();
    ck_assert(ckpt__str_is(ckpt_value_get(x->root, "x")->class_name, "torch.storage._load_from_bytes"));
    static bytes inner; /* a file whose only object is again such a file, and so on */
    more = whole;
    for (int depth = 1; depth <= 6; depth++) {
        object.size = 0;
        PUT(&object, "\x80\2");
        load_from_bytes(&more, BINBYTES);
        PUT(&object, ".");
        inner = object;
        more.size = 0;
        put_legacy(&more, &inner, two, 0);
        begin();
        add_nested("a", &more, BINBYTES);
        end();
        take_object();
        if (depth <= 3)
            must_read();
        else
            must_refuse(CKPT_E_LIMIT, "files in files");
    }
}
END_TEST

/* A hostile pickle refers to the same bytes from many calls: they are decoded and read once. */
START_TEST(bytes_are_read_once)
{
    static bytes b;
    nested_file(&b);
    object.size = 0;
    PUT(&object, "\x80\2](");
    load_from_bytes(&b, LATIN_1);
    object.size--; /* R */
    PUT(&object, "q\7R");
    for (int i = 0; i < 1000; i++) {
        put_global(&object, "torch.storage", "_load_from_bytes");
        PUT(&object, "h\7R");
    }
    PUT(&object, "e.");
    take_object();
    must_read();
    ck_assert_uint_eq(x->root->item_count, 1001);
    ck_assert_uint_eq(x->storage_count, 1001);
    ck_assert_ptr_eq(x->storages[0].extent.memory, x->storages[1000].extent.memory);
    ck_assert_uint_lt(ckpt__arena_used(x->arena), 1 << 20);
}
END_TEST

START_TEST(storages_as_lists)
{
    static const float f[] = {1.5f, -2, 1};
    static const int64_t l[] = {7, -1};
    begin();
    put_str(&object, "f");
    begin_tensor(&object);
    put_global(&object, "torch.cuda", "FloatStorage");
    PUT(&object, "](G\x3f\xf8\0\0\0\0\0\0G\xc0\0\0\0\0\0\0\0K\1e\x85R");
    end_tensor(&object, 0, 3);
    put_str(&object, "l");
    begin_tensor(&object);
    put_global(&object, "torch", "LongStorage");
    PUT(&object, "](K\7J\xff\xff\xff\xff"
                 "e\x85R");
    end_tensor(&object, 0, 2);
    end();
    take_object();
    must_read();
    same_bytes("f", f, sizeof f);
    same_bytes("l", l, sizeof l);
    ck_assert(ckpt__str_is(named("f")->info.device, "cuda") && ckpt__str_is(named("l")->info.device, "cpu"));
    begin();
    put_str(&object, "f");
    begin_tensor(&object);
    put_global(&object, "torch", "FloatStorage");
    PUT(&object, "](NNe\x85R");
    end_tensor(&object, 0, 2);
    end();
    take_object();
    must_refuse(CKPT_E_UNSUPPORTED, "something else than numbers");
}
END_TEST

/* ---- any pickle */

static bool kind_is_marked(const char *data)
{
    return data[0] == '(' && (data[1] == 'l' || data[1] == 'd') && data[2] == 'p';
}

START_TEST(plain_pickles)
{
    static const char proto2[] = "\x80\2}(X\1\0\0\0aK\5X\1\0\0\0bG\x3f\xf8\0\0\0\0\0\0u.";
    static const char proto1[] = "}q\0(U\1aK\5U\1bG\x3f\xf8\0\0\0\0\0\0u.";
    static const char proto0[] = "(dp0\nS'a'\np1\nI5\nsS'b'\nF1.5\ns.";
    static const struct {
        const char *data;
        size_t size;
    } all[] = {{proto2, sizeof proto2 - 1}, {proto1, sizeof proto1 - 1}, {proto0, sizeof proto0 - 1}};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_msg(read_bytes(all[i].data, all[i].size) == CKPT_OK, "%s", err.message);
        ck_assert_str_eq(x->format, "pickle");
        ck_assert_int_eq(ckpt_value_get(x->root, "a")->integer, 5);
        ck_assert(ckpt_value_get(x->root, "b")->real == 1.5);
        ck_assert_uint_eq(x->tensor_count, 0);
        ck_assert_uint_eq(ckpt_report_count(x->findings), 0);
        for (size_t n = 4; n < all[i].size; n++)
            ck_assert_int_eq(read_bytes(all[i].data, n), CKPT_E_DAMAGED);
    }
    file.size = 0;
    put(&file, proto2, sizeof proto2 - 1);
    PUT(&file, "\x80\2N.");
    must_read();
    ck_assert(has_finding("bytes-after-stop"));
}
END_TEST

/* Protocols 0 and 1 have no mark of their own: what they begin with, much else begins with too. All of the file says it. */
START_TEST(plain_pickles_of_any_root)
{
    static const struct {
        const char *data;
        size_t size;
        ckpt_kind kind;
    } all[] = {
#define P(text, kind) {text, sizeof text - 1, kind}
        P("N.", CKPT_V_NONE),
        P("K\5.", CKPT_V_INT),
        P("M\5\1.", CKPT_V_INT),
        P("J\5\1\0\0.", CKPT_V_INT),
        P("I5\n.", CKPT_V_INT),
        P("L5L\n.", CKPT_V_INT),
        P("I01\n.", CKPT_V_BOOL),
        P("F1.5\n.", CKPT_V_FLOAT),
        P("G\x3f\xf8\0\0\0\0\0\0.", CKPT_V_FLOAT),
        P("Vabc\np0\n.", CKPT_V_STR),
        P("X\3\0\0\0abcq\0.", CKPT_V_STR),
        P("S'abc'\np0\n.", CKPT_V_STR),
        P("(I1\nI2\ntp0\n.", CKPT_V_TUPLE),
        P("(K\1K\2tq\0.", CKPT_V_TUPLE),
        P(").", CKPT_V_TUPLE),
        P("(t.", CKPT_V_TUPLE),
        P("(lp0\nI1\na.", CKPT_V_LIST),
        P("].", CKPT_V_LIST),
        P("](K\1K\2e.", CKPT_V_LIST),
        P("(lI1\na.", CKPT_V_LIST),
        P("(dI1\nI2\ns.", CKPT_V_DICT),
        P("}.", CKPT_V_DICT),
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char longer[80];
        ck_assert_msg(read_bytes(all[i].data, all[i].size) == CKPT_OK, "%zu: %s", i, err.message);
        ck_assert_str_eq(x->format, "pickle");
        ck_assert_msg(x->root->kind == all[i].kind, "%zu: %d", i, (int)x->root->kind);
        memcpy(longer, all[i].data, all[i].size);
        longer[all[i].size] = '\n';
        longer[all[i].size + 1] = '.';
        if (kind_is_marked(all[i].data))
            continue; /* known by its first bytes, whatever follows */
        ck_assert_msg(read_bytes(longer, all[i].size + 2) == CKPT_E_FORMAT, "%zu", i);
        ck_assert_msg(read_bytes(longer, all[i].size + 1) == CKPT_E_FORMAT, "%zu", i);
        if (all[i].size > 2)
            ck_assert_msg(read_bytes(all[i].data, all[i].size - 1) == CKPT_E_FORMAT, "%zu", i);
    }
    /* texts that begin with an opcode, end with a full stop and are no pickle */
    static const char *const texts[] = {"No.",
                                        "Is this a list (or not)?\nI think so.",
                                        "(a).",
                                        "N N.",
                                        "NN.",
                                        "(.",
                                        "a.",
                                        "0.",
                                        "{}.",
                                        "(t1.",
                                        "Version 1.5\nof it."};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ck_assert_msg(read_bytes(texts[i], strlen(texts[i])) == CKPT_E_FORMAT, "'%s'", texts[i]);
}
END_TEST

START_TEST(what_is_kept_outside)
{
    begin();
    put_str(&object, "x");
    put_str(&object, "an id");
    PUT(&object, "Q");
    end();
    take_object();
    must_read();
    ck_assert(ckpt__str_is(ckpt_value_get(x->root, "x")->class_name, "(persistent id)"));
    begin();
    put_str(&object, "w");
    begin_tensor(&object);
    put_storage(&object, "FloatStorage", "0", "cpu", 6);
    end_tensor(&object, 0, 6);
    end();
    take_object();
    must_refuse(CKPT_E_UNSUPPORTED, "data.pkl taken out of its archive");
    begin();
    put_str(&object, "w");
    put_global(&object, "joblib.numpy_pickle", "NumpyArrayWrapper");
    PUT(&object, ")\x81\xff\xff\xff");
    take_object();
    must_refuse(CKPT_E_UNSUPPORTED, "joblib");
}
END_TEST

/* ---- where a pickle ends */

static ckpt_status read_memory(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *e)
{
    const bytes *b = ctx;
    if (offset > b->size || n > b->size - offset)
        return ckpt__fail(e, CKPT_E_SYSTEM, "test", "read past the end");
    memcpy(dst, b->data + offset, n);
    return CKPT_OK;
}

START_TEST(measured)
{
    static const char every[] =
        "\x80\4\x95\4\0\0\0\0\0\0\0(I1\nJ\1\0\0\0K\1M\1\0L1L\n\x8a\1\1\x8b\1\0\0\0\1S'a'\nT\1\0\0\0aU\1aB\1\0\0\0.C\1."
        "\x8e\1\0\0\0\0\0\0\0.\x96\1\0\0\0\0\0\0\0.N\x88\x89Va\n\x8c\1.X\1\0\0\0.\x8d\1\0\0\0\0\0\0\0.F1.5\nG........"
        "lq.r....p9\ncos\n.\nh.ios\nx\n.";
    bytes b;
    b.size = 0;
    PUT(&b, "xx");
    put(&b, every, sizeof every - 1);
    size_t size = b.size;
    PUT(&b, "more");
    ckpt__pickle_input in = {read_memory, &b, b.size};
    uint64_t at = 0;
    ck_assert_msg(ckpt__pickle_measure(&in, 2, "test", &at, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(at, size);
    for (size_t n = 0; n < size; n++) {
        b.size = in.size = n;
        ck_assert_int_eq(ckpt__pickle_measure(&in, 2, "test", &at, &err), CKPT_E_DAMAGED);
    }
    b.size = 0;
    PUT(&b, "N\xff.");
    in.size = b.size;
    ck_assert_int_eq(ckpt__pickle_measure(&in, 0, "test", &at, &err), CKPT_E_FORMAT);
    b.size = 0;
    PUT(&b, "\x8e\xff\xff\xff\xff\xff\xff\xff\xff.");
    in.size = b.size;
    ck_assert_int_eq(ckpt__pickle_measure(&in, 0, "test", &at, &err), CKPT_E_DAMAGED);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("torch_legacy");
    TCase *t = tcase_create("format");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, storages_in_the_order_of_their_keys);
    tcase_add_test(t, magic_of_every_protocol);
    tcase_add_test(t, a_view_is_a_storage_of_its_own);
    tcase_add_test(t, classes_of_modules);
    tcase_add_test(t, numbers_of_elements);
    tcase_add_test(t, the_list_of_keys);
    tcase_add_test(t, odd_ends);
    tcase_add_test(t, cut_everywhere);
    tcase_add_test(t, parameters_before_1_0);
    tcase_add_test(t, storages_in_bytes);
    tcase_add_test(t, broken_files_in_bytes);
    tcase_add_test(t, bytes_are_read_once);
    tcase_add_test(t, storages_as_lists);
    tcase_add_test(t, plain_pickles);
    tcase_add_test(t, plain_pickles_of_any_root);
    tcase_add_test(t, what_is_kept_outside);
    tcase_add_test(t, measured);
    suite_add_tcase(s, t);
    return run_suite(s);
}
