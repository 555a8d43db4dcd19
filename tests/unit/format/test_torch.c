/* The torch format: checkpoints built byte by byte, read into an index; tensors that do not fit, and files that are
 * something else, by their messages. */
#include "format/table.h"
#include "../torch_emit.h"
#include "../runner.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../scratch_base.h"

static char folder[64], path[96];
static ckpt_error err;
static ckpt__source *source;
static ckpt__index *x;
static bytes pickle;
static archive a;
static const float values[6] = {0, 1, 2, 3, 4, 5};

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
    snprintf(folder, sizeof folder, "%s/test_torch.XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/c.pt", folder);
    memset(&pickle, 0, sizeof pickle);
    memset(&a, 0, sizeof a);
}
static void teardown(void)
{
    forget();
    unlink(path);
    rmdir(folder);
}

static void write_file(const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, n), (ssize_t)n);
    close(fd);
}

static ckpt_status read_with(const ckpt__format *format)
{
    forget();
    ck_assert_msg(ckpt__source_open(path, &source, &err) == CKPT_OK, "%s", err.message);
    ckpt__read_request request = ckpt__read_all(source);
    return format->read(&request, &x, &err);
}

static void add(const char *name, const void *data, size_t n)
{
    add_record(&a, &(record){.name = name, .data = data, .size = n, .flags = n ? 0x808 : 0x800});
}

/* An archive of the pickle, storage "0" of six floats, and what add() put there before. */
static ckpt_status read_archive(void)
{
    archive records = a;
    memset(&a, 0, sizeof a);
    add("m/data.pkl", pickle.data, pickle.size);
    add("m/data/0", values, sizeof values);
    for (size_t i = 0; i < records.directory.size;) { /* move the others behind: their offsets shift */
        unsigned char *e = records.directory.data + i;
        uint32_t offset = (uint32_t)e[42] | (uint32_t)e[43] << 8 | (uint32_t)e[44] << 16;
        offset += (uint32_t)a.file.size;
        for (int k = 0; k < 4; k++)
            e[42 + k] = (unsigned char)(offset >> 8 * k);
        i += 46 + (size_t)(e[28] | e[29] << 8);
    }
    put(&a.file, records.file.data, records.file.size);
    put(&a.directory, records.directory.data, records.directory.size);
    a.count += records.count;
    add("m/version", "3\n", 2);
    put_end64(&a, 0, 0, 0);
    write_file(a.file.data, a.file.size);
    memset(&a, 0, sizeof a);
    return read_with(&ckpt__format_torch);
}

static void begin(void)
{
    pickle.size = 0;
    PUT(&pickle, "\x80\2}(");
}
static void end(void)
{
    PUT(&pickle, "u.");
}
static void key(const char *name)
{
    put_str(&pickle, name);
}
static view whole(void)
{
    return (view){"FloatStorage", "0", "cuda:1", 6, 0, 2, 2, {2, 3}, {3, 1}};
}
static void must_read(void)
{
    ckpt_status s = read_archive();
    ck_assert_msg(s == CKPT_OK, "%s: %s", err.object, err.message);
}
static void must_refuse(ckpt_status status, const char *message)
{
    ckpt_status s = read_archive();
    ck_assert_msg(s == status, "status %d, expected %d: %s", s, status, err.message);
    ck_assert_msg(strstr(err.message, message) != NULL, "'%s' lacks '%s'", err.message, message);
    ck_assert_ptr_null(x);
}
static const ckpt_tensor_info *named(const char *name)
{
    for (size_t i = 0; i < x->tensor_count; i++)
        if (ckpt__str_is(x->tensors[i].info.name, name))
            return &x->tensors[i].info;
    ck_abort_msg("no tensor %s", name);
    return NULL;
}

START_TEST(views_and_sharing)
{
    view v = whole(), t = whole();
    t.shape[0] = 3, t.shape[1] = 2, t.strides[0] = 1, t.strides[1] = 3;
    view tail = {"FloatStorage", "0", "cuda:1", 6, 4, 1, 1, {2}, {1}};
    begin();
    key("w");
    put_tensor(&pickle, &v);
    PUT(&pickle, "q\1");
    key("tied");
    PUT(&pickle, "h\1");
    key("t");
    put_tensor(&pickle, &t);
    key("tail");
    put_tensor(&pickle, &tail);
    end();
    must_read();
    ck_assert_uint_eq(x->tensor_count, 4);
    ck_assert_uint_eq(x->storage_count, 1);
    const ckpt__extent *e = &x->storages[0].extent;
    ck_assert_int_eq(e->coding, CKPT__STORED);
    ck_assert(e->has_crc);
    ck_assert_uint_eq(e->size, sizeof values);
    float read_back[6];
    ck_assert_int_eq(ckpt__source_read(source, 0, e->offset, read_back, sizeof read_back, &err), CKPT_OK);
    ck_assert_int_eq(memcmp(read_back, values, sizeof values), 0);
    const ckpt_tensor_info *w = named("w");
    ck_assert_int_eq(w->dtype, CKPT_F32);
    ck_assert_uint_eq(w->nbytes, 24);
    ck_assert(ckpt__str_is(w->device, "cuda:1"));
    ck_assert_int_eq(w->path.count, 1);
    ck_assert_int_eq(w->role, CKPT_ROLE_PARAM);
    ck_assert_int_eq(named("tied")->storage, 0);
    ck_assert_int_eq(named("t")->strides[1], 3);
    ck_assert_int_eq(named("tail")->offset, 4);
    const ckpt_value *tied = ckpt_value_get(x->root, "tied");
    ck_assert_ptr_eq(tied, ckpt_value_get(x->root, "w")); /* one object, twice */
    ck_assert_ptr_nonnull(tied->origin);
}
END_TEST

START_TEST(geometry_that_does_not_fit)
{
    static const struct {
        view v;
        ckpt_status status;
        const char *message;
    } bad[] = {
        {{"FloatStorage", "0", "cpu", 6, 0, 2, 2, {3, 3}, {3, 1}}, CKPT_E_FORMAT, "reaches 9 elements"},
        {{"FloatStorage", "0", "cpu", 6, -1, 1, 1, {1}, {1}}, CKPT_E_FORMAT, "offset is -1"},
        {{"FloatStorage", "0", "cpu", 6, INT64_MAX, 1, 1, {1}, {1}}, CKPT_E_FORMAT, "reaches"},
        {{"FloatStorage", "0", "cpu", 6, 0, 2, 2, {-2, 3}, {3, 1}}, CKPT_E_FORMAT, "negative"},
        {{"FloatStorage", "0", "cpu", 6, 0, 2, 2, {2, 3}, {-3, 1}}, CKPT_E_FORMAT, "stride is negative"},
        {{"FloatStorage", "0", "cpu", 6, 0, 2, 2, {INT64_C(1) << 32, INT64_C(1) << 32}, {0, 0}},
         CKPT_E_FORMAT,
         "overflows"},
        {{"FloatStorage", "0", "cpu", 6, 0, 2, 2, {2, 3}, {INT64_MAX, 1}}, CKPT_E_FORMAT, "reaches"},
        {{"FloatStorage", "0", "cpu", 6, 0, 2, 1, {2, 3}, {1}}, CKPT_E_FORMAT, "2 sizes and 1 strides"},
        {{"FloatStorage", "0", "cpu", -6, 0, 1, 1, {1}, {1}}, CKPT_E_FORMAT, "negative number of elements"},
        {{"FloatStorage", "0", "cpu", (INT64_C(1) << 62) + 6, 0, 1, 1, {1}, {1}}, CKPT_E_FORMAT, "overflow 64 bits"},
        {{"FloatStorage", "0", "cpu", 7, 0, 1, 1, {1}, {1}}, CKPT_E_DAMAGED, "need 28 bytes, and the record has 24"},
        {{"FloatStorage", "7", "cpu", 6, 0, 1, 1, {1}, {1}}, CKPT_E_DAMAGED, "no record data/7"},
        {{"FloatStorage", "../../x", "cpu", 6, 0, 1, 1, {1}, {1}}, CKPT_E_DAMAGED, "no record data/../../x"},
        {{"SystemStorage", "0", "cpu", 6, 0, 1, 1, {1}, {1}}, CKPT_E_UNSUPPORTED, "'SystemStorage'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin();
        key("w");
        put_tensor(&pickle, &bad[i].v);
        end();
        must_refuse(bad[i].status, bad[i].message);
    }
    view v = whole(), other = whole();
    other.location = "cpu";
    begin();
    key("w");
    put_tensor(&pickle, &v);
    key("v");
    put_tensor(&pickle, &other);
    end();
    must_refuse(CKPT_E_FORMAT, "described twice, and not alike");
    begin();
    key("w");
    PUT(&pickle, "K\1K\2\x86Q");
    end();
    must_refuse(CKPT_E_FORMAT, "a persistent id of 2 items");
}
END_TEST

START_TEST(wrapped_tensors)
{
    view v = whole();
    begin();
    key("p"); /* _rebuild_parameter(tensor, True, OrderedDict()) */
    put_global(&pickle, "torch._utils", "_rebuild_parameter");
    PUT(&pickle, "(");
    put_tensor(&pickle, &v);
    PUT(&pickle, "\x88");
    put_ordered_dict(&pickle);
    PUT(&pickle, "tR");
    key("sub"); /* _rebuild_from_type_v2(func, __main__.Tagged, args, {'note': 1}) */
    put_global(&pickle, "torch._tensor", "_rebuild_from_type_v2");
    PUT(&pickle, "(");
    put_global(&pickle, "torch._utils", "_rebuild_tensor");
    put_global(&pickle, "__main__", "Tagged");
    PUT(&pickle, "(");
    put_storage(&pickle, "FloatStorage", "0", "cuda:1", 6);
    PUT(&pickle, "K\0K\6\x85K\1\x85t}X\4\0\0\0noteK\1stR");
    key("meta");
    put_global(&pickle, "torch._utils", "_rebuild_meta_tensor_no_storage");
    PUT(&pickle, "(");
    put_global(&pickle, "torch", "bfloat16");
    PUT(&pickle, "K\4\x85K\1\x85\x89tR");
    key("far");
    put_global(&pickle, "torch._utils", "_rebuild_device_tensor_from_cpu_tensor");
    PUT(&pickle, "(");
    put_tensor(&pickle, &v);
    put_global(&pickle, "torch", "float32");
    put_str(&pickle, "xla:0");
    PUT(&pickle, "\x89tR");
    key("coo");
    put_global(&pickle, "torch._utils", "_rebuild_sparse_tensor");
    put_global(&pickle, "torch.serialization", "_get_layout");
    PUT(&pickle, "X\x10\0\0\0torch.sparse_coo\x85R(");
    put_tensor(&pickle, &v);
    put_tensor(&pickle, &v);
    put_global(&pickle, "torch", "Size");
    PUT(&pickle, "K\4K\5\x86\x85R\x88t\x86R");
    end();
    must_read();
    ck_assert(ckpt__str_is(named("p")->extra->class_name, "torch.nn.parameter.Parameter"));
    ck_assert(named("p")->requires_grad);
    ck_assert(ckpt__str_is(named("sub")->extra->class_name, "__main__.Tagged"));
    ck_assert_ptr_nonnull(ckpt_value_get(x->root, "sub")->state);
    const ckpt_tensor_info *meta = named("meta");
    ck_assert(ckpt__str_is(meta->device, "meta"));
    ck_assert_int_eq(meta->storage, -1);
    ck_assert_uint_eq(meta->nbytes, 8);
    ck_assert(ckpt__str_is(named("far")->device, "xla:0"));
    const ckpt_tensor_info *coo = named("coo");
    ck_assert(ckpt__str_is(coo->extra->layout, "sparse_coo"));
    ck_assert_ptr_null(coo->strides);
    ck_assert_int_eq(coo->shape[1], 5);
    ck_assert_uint_eq(coo->extra->part_count, 2);
    ck_assert(ckpt__str_is(coo->extra->parts[0]->name, "indices"));
    ck_assert_int_eq(coo->extra->parts[1]->storage, 0);
    ck_assert_int_eq(named("coo.values")->storage, 0); /* its parts can be read */
}
END_TEST

/* {'state': {0: {'exp_avg': t, 'step': t, 'other': t}}, 'param_groups': [{'params': [0], 'param_names': ['fc.w']}]} */
START_TEST(roles)
{
    view v = whole(), step = {"FloatStorage", "0", "cuda:1", 6, 0, 0, 0, {0}, {0}};
    begin();
    key("model");
    put_ordered_dict(&pickle);
    PUT(&pickle, "(");
    key("fc.w");
    put_tensor(&pickle, &v);
    key("bn.running_mean");
    put_tensor(&pickle, &v);
    PUT(&pickle, "u}X\x09\0\0\0_metadata}sb");
    key("optimizer");
    PUT(&pickle, "}(");
    key("state");
    PUT(&pickle, "}K\0}(");
    key("exp_avg");
    put_tensor(&pickle, &v);
    key("step");
    put_tensor(&pickle, &step);
    key("other");
    put_tensor(&pickle, &v);
    PUT(&pickle, "us");
    key("param_groups");
    PUT(&pickle, "]}(");
    key("params");
    PUT(&pickle, "]K\0a");
    key("param_names");
    PUT(&pickle, "]X\4\0\0\0fc.wauau");
    key("note");
    PUT(&pickle, "]");
    put_tensor(&pickle, &v);
    PUT(&pickle, "a");
    end();
    must_read();
    ck_assert_int_eq(named("model.fc.w")->role, CKPT_ROLE_PARAM);
    ck_assert_int_eq(named("model.bn.running_mean")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(named("optimizer.state.0.exp_avg")->role, CKPT_ROLE_EXP_AVG);
    ck_assert_int_eq(named("optimizer.state.0.step")->role, CKPT_ROLE_STEP);
    const ckpt_tensor_info *other = named("optimizer.state.0.other");
    ck_assert_int_eq(other->role, CKPT_ROLE_OPTIM);
    ck_assert(ckpt__str_is(other->state_key, "other"));
    ck_assert(ckpt__str_is(other->group, "0"));
    ck_assert(ckpt__str_is(other->param, "fc.w"));
    ck_assert_int_eq(named("note.0")->role, CKPT_ROLE_OTHER);
    const ckpt_value *model = ckpt_value_get(x->root, "model");
    ck_assert_int_eq(model->kind, CKPT_V_DICT);
    ck_assert(ckpt__str_is(model->class_name, "collections.OrderedDict"));
    ck_assert_ptr_nonnull(ckpt_value_get(model->state, "_metadata"));
}
END_TEST

START_TEST(values_of_python)
{
    begin();
    key("size");
    put_global(&pickle, "torch", "Size");
    PUT(&pickle, "K\2K\3\x86\x85R");
    key("bytes");
    put_global(&pickle, "_codecs", "encode");
    PUT(&pickle, "X\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R");
    key("int");
    put_global(&pickle, "__builtin__", "long");
    key("set");
    put_global(&pickle, "__builtin__", "set");
    PUT(&pickle, "]K\1a\x85R");
    key("space");
    put_global(&pickle, "argparse", "Namespace");
    PUT(&pickle, ")\x81}X\2\0\0\0lrK\5sb");
    key("dtype");
    put_global(&pickle, "torch", "float16");
    key("point");
    put_global(&pickle, "__main__", "Point");
    PUT(&pickle, "K\1K\2\x86\x81");
    key("danger");
    put_global(&pickle, "os", "system");
    PUT(&pickle, "X\2\0\0\0id\x85R");
    key("array");
    put_global(&pickle, "numpy._core.multiarray", "_reconstruct");
    put_global(&pickle, "numpy", "ndarray");
    PUT(&pickle, "K\0\x85U\1b\x87R(K\1K\2\x85");
    put_global(&pickle, "numpy", "dtype");
    PUT(&pickle, "X\2\0\0\0i2\x89\x88\x87R(K\3X\1\0\0\0>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
                 "B\4\0\0\0\0\1\0\2tb");
    end();
    must_read();
    const ckpt_value *v = ckpt_value_get(x->root, "size");
    ck_assert_int_eq(v->kind, CKPT_V_OBJECT);
    ck_assert_uint_eq(v->item_count, 2);
    v = ckpt_value_get(x->root, "bytes");
    ck_assert_int_eq(v->kind, CKPT_V_BYTES);
    ck_assert_int_eq(memcmp(v->text.data, "a\xff", 3), 0);
    v = ckpt_value_get(x->root, "int");
    ck_assert_int_eq(v->kind, CKPT_V_CLASS);
    ck_assert(ckpt__str_is(v->class_name, "builtins.int"));
    ck_assert(ckpt__str_is(ckpt_value_get(x->root, "set")->class_name, "builtins.set"));
    v = ckpt_value_get(x->root, "space");
    ck_assert(ckpt__str_is(v->class_name, "argparse.Namespace"));
    ck_assert_int_eq(ckpt_value_get(v, "lr")->integer, 5);
    ck_assert(ckpt__str_is(ckpt_value_get(x->root, "dtype")->class_name, "torch.float16"));
    ck_assert_uint_eq(ckpt_value_get(x->root, "point")->item_count, 2);
    v = ckpt_value_get(x->root, "danger"); /* a record of a call, and nothing more */
    ck_assert_int_eq(v->kind, CKPT_V_OBJECT);
    ck_assert(ckpt__str_is(v->class_name, "os.system"));
    v = ckpt_value_get(x->root, "array");
    ck_assert_int_eq(v->kind, CKPT_V_ARRAY);
    ck_assert(ckpt__str_is(v->array->dtype, "<i2"));
    ck_assert_int_eq(memcmp(v->text.data, "\1\0\2\0", 4), 0);
}
END_TEST

START_TEST(cycles_and_sharing_are_bounded)
{
    pickle.size = 0;
    PUT(&pickle, "\x80\2]q\0h\0a."); /* a list in itself */
    must_read();
    ck_assert_ptr_eq(x->root->items[0], x->root);
    pickle.size = 0;
    PUT(&pickle, "\x80\2]q\0"); /* 10^30 by reference */
    for (int i = 0; i < 30; i++) {
        PUT(&pickle, "](");
        for (int k = 0; k < 10; k++) {
            PUT(&pickle, "h");
            put_number(&pickle, (uint64_t)i, 1);
        }
        PUT(&pickle, "eq");
        put_number(&pickle, (uint64_t)i + 1, 1);
    }
    PUT(&pickle, ".");
    must_refuse(CKPT_E_LIMIT, "shared parts");
    pickle.size = 0;
    for (int i = 0; i < 20000; i++)
        PUT(&pickle, "]");
    for (int i = 1; i < 20000; i++)
        PUT(&pickle, "a");
    PUT(&pickle, ".");
    must_refuse(CKPT_E_LIMIT, "levels");
}
END_TEST

START_TEST(byte_order_and_checksums)
{
    view v = whole();
    begin();
    key("w");
    put_tensor(&pickle, &v);
    end();
    add("m/byteorder", "big", 3);
    must_read();
    ck_assert(x->storages[0].extent.big_endian);
    ck_assert_uint_eq(x->storages[0].unit, 4);
    ck_assert(x->metadata_crc);
    ck_assert_uint_eq(x->metadata_bytes, pickle.size + 3 + 2);
    add("m/byteorder", "middle", 6);
    must_refuse(CKPT_E_FORMAT, "'middle'");
    add("m/.data/version", "99\n", 3);
    must_refuse(CKPT_E_TOO_NEW, "99");
    add("m/.data/version", "11\n", 3); /* torch's reader takes 10 */
    must_refuse(CKPT_E_TOO_NEW, "11");
    add("m/.data/version", "x\n", 2);
    must_refuse(CKPT_E_FORMAT, "'x'");
    add("m/.data/version", "10\n", 3);
    PUT(&pickle, "\x80\2N.");
    must_read();
    ck_assert_uint_eq(ckpt_report_count_code(x->findings, "bytes-after-stop"), 1);
}
END_TEST

START_TEST(other_archives)
{
    static const struct {
        const char *first, *second, *message;
        ckpt_status status;
    } zips[] = {
        {"m/model.json", "m/tensors/0", "TorchScript", CKPT_E_UNSUPPORTED},
        {"m/archive_format", "m/archive_version", "torch.export", CKPT_E_UNSUPPORTED},
        {"config.json", "model.weights.h5", "Keras", CKPT_E_UNSUPPORTED},
        {"a.npy", "b.npy", "NumPy", CKPT_E_UNSUPPORTED},
        {"m/data/0", "m/version", "without m/data.pkl", CKPT_E_FORMAT},
        {"readme", "licence", "without data.pkl", CKPT_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof zips / sizeof zips[0]; i++) {
        memset(&a, 0, sizeof a);
        add(zips[i].first, "x", 1);
        add(zips[i].second, "y", 1);
        put_end(&a, 2, "");
        write_file(a.file.data, a.file.size);
        ck_assert_int_eq(read_with(&ckpt__format_torch), zips[i].status);
        ck_assert_msg(strstr(err.message, zips[i].message) != NULL, "%s", err.message);
    }
}
END_TEST

static int bid_of(const ckpt__format *f, const void *head, size_t n)
{
    ckpt__probe p = {.head = head, .head_size = n, .file_size = n, .dirfd = -1};
    return f->bid(&p);
}

START_TEST(older_formats)
{
    static const char magic2[] = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    static const char magic4[] = "\x80\4\x95\x0d\0\0\0\0\0\0\0\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    static const char plain[] = "\x80\2}q\0.", text[] = "cos\nsystem\n(S'id'\ntR.", neither[] = "{\"a\": 1}";
    const ckpt__format *old = &ckpt__format_torch_legacy;
    ck_assert_int_eq(bid_of(old, magic2, sizeof magic2 - 1), 100);
    ck_assert_int_eq(bid_of(old, magic4, sizeof magic4 - 1), 100);
    ck_assert_int_eq(bid_of(old, plain, sizeof plain - 1), 0);
    ck_assert_int_gt(bid_of(&ckpt__format_pickle, plain, sizeof plain - 1), 0);
    ck_assert_int_gt(bid_of(&ckpt__format_pickle, text, sizeof text - 1), 0);
    ck_assert_int_eq(bid_of(&ckpt__format_pickle, neither, sizeof neither - 1), 0);
    ck_assert_int_eq(bid_of(&ckpt__format_pickle, magic4, sizeof magic4 - 1), 0);
    ck_assert_int_eq(bid_of(old, neither, sizeof neither - 1), 0);
    ck_assert_int_eq(bid_of(old, "PK\3\4", 4), 0);
    ck_assert_int_eq(bid_of(&ckpt__format_torch, magic2, sizeof magic2 - 1), 0);
    write_file(magic4, sizeof magic4 - 1);
    ck_assert_int_eq(read_with(old), CKPT_E_DAMAGED);
    write_file(plain, sizeof plain - 1);
    ck_assert_int_eq(read_with(old), CKPT_E_FORMAT);
    ck_assert(strstr(err.message, "pickle") != NULL);
    unsigned char tar[512] = "storages";
    memcpy(tar + 257, "ustar", 5);
    ck_assert_int_gt(bid_of(old, tar, sizeof tar), 0);
    write_file(tar, sizeof tar);
    ck_assert_int_eq(read_with(old), CKPT_E_UNSUPPORTED);
    ck_assert(strstr(err.message, "oldest format") != NULL);
    write_file("x", 1);
    ck_assert_int_eq(read_with(old), CKPT_E_FORMAT);
}
END_TEST

/* With many records the pickle is read while a thread looks at their headers. What the archive lies about comes before what
 * is wrong with the pickle, and a storage is where its local header says. */
START_TEST(many_records)
{
    enum { MANY = 550 };
    static char names[MANY][20];
    view v = whole();
    for (int lie = 0; lie < 2; lie++)
        for (int broken = 0; broken < 2; broken++) {
            memset(&a, 0, sizeof a);
            for (int i = 0; i < MANY; i++) {
                snprintf(names[i], sizeof names[i], "m/x/%d", i);
                add_record(&a, &(record){.name = names[i], .local_name = lie && i == MANY - 1 ? "m/x/000" : NULL});
            }
            begin();
            key("w");
            put_tensor(&pickle, &v);
            end();
            pickle.size -= broken;
            if (lie)
                must_refuse(CKPT_E_FORMAT, "readers would disagree on what it is");
            else if (broken)
                must_refuse(CKPT_E_DAMAGED, "STOP");
            else {
                must_read();
                float back[6];
                ck_assert_int_eq(ckpt__source_read(source, 0, x->storages[0].extent.offset, back, sizeof back, &err),
                                 CKPT_OK);
                ck_assert_int_eq(memcmp(back, values, sizeof back), 0);
            }
        }
}
END_TEST

START_TEST(protocol_0_is_named)
{
    pickle.size = 0;
    PUT(&pickle, "P('storage', <class 'torch.FloatStorage'>, '0', 'cpu', 12)\n.");
    must_refuse(CKPT_E_UNSUPPORTED, "protocol 0");
}
END_TEST

/* A file cut anywhere is damaged, never read. */
START_TEST(cut_everywhere)
{
    view v = whole();
    begin();
    key("w");
    put_tensor(&pickle, &v);
    end();
    add("m/data.pkl", pickle.data, pickle.size);
    add("m/data/0", values, sizeof values);
    put_end64(&a, 0, 0, 0);
    for (size_t n = 4; n < a.file.size; n += 3) {
        write_file(a.file.data, n);
        ckpt_status s = read_with(&ckpt__format_torch);
        ck_assert_msg(s == CKPT_E_DAMAGED, "cut to %zu: status %d, %s", n, s, err.message);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("torch");
    TCase *t = tcase_create("format");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, views_and_sharing);
    tcase_add_test(t, geometry_that_does_not_fit);
    tcase_add_test(t, wrapped_tensors);
    tcase_add_test(t, roles);
    tcase_add_test(t, values_of_python);
    tcase_add_test(t, cycles_and_sharing_are_bounded);
    tcase_add_test(t, byte_order_and_checksums);
    tcase_add_test(t, other_archives);
    tcase_add_test(t, older_formats);
    tcase_add_test(t, protocol_0_is_named);
    tcase_add_test(t, many_records);
    tcase_add_test(t, cut_everywhere);
    suite_add_tcase(s, t);
    return run_suite(s);
}
