/* tests/unit/format/test_native.c - the native format: written, read back, and broken in every way that a disk has. */
#include <math.h>
#include "format_files.h"
#include "format/native/manifest.h"
#include "format/native/native.h"
#include "../runner.h"

/* ---- a checkpoint to write: parameters, moments, aliases, odd dtypes, values of every kind */

enum { TENSORS = 16 };
static char payload[TENSORS][256];

typedef struct model {
    ckpt__index *x;
    size_t *all;
    const void *payloads[TENSORS + 8], *storages[TENSORS + 8];
    const ckpt_value *root;
} model;

static size_t moment(model *m, const char *name, const char *param, const char *key, ckpt_role role)
{
    static const int64_t shape[] = {2, 3};
    size_t i = add_tensor_to(m->x, name, CKPT_F32, 2, shape, "cuda:0", role);
    m->x->tensors[i].info.param = ckpt__s(param);
    m->x->tensors[i].info.state_key = ckpt__s(key);
    m->x->tensors[i].info.group = ckpt__s("0");
    return i;
}

static void add_tensors(model *m)
{
    static const int64_t two_three[] = {2, 3}, three_two[] = {3, 2}, five[] = {5}, four[] = {4}, swapped[] = {1, 3};
    static const int64_t none[] = {0, 7}, one[] = {1};
    size_t w = add_tensor_to(m->x, "wte.weight", CKPT_F32, 2, two_three, "cuda:0", CKPT_ROLE_PARAM);
    m->x->tensors[w].info.param = ckpt__s("wte.weight");
    m->x->tensors[w].info.requires_grad = true;
    static const ckpt_tensor_extra parameter = {.class_name = {"torch.nn.parameter.Parameter", 28}};
    m->x->tensors[w].info.extra = &parameter;
    moment(m, "optimizer.wte.weight.exp_avg", "wte.weight", "exp_avg", CKPT_ROLE_EXP_AVG);
    moment(m, "odd.name", "wte.weight", "exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ);
    add_tensor_to(m->x, "mask", CKPT_BOOL, 1, five, "cpu", CKPT_ROLE_BUFFER);
    add_tensor_to(m->x, "half", CKPT_BF16, 1, five, "cuda:1", CKPT_ROLE_PARAM);
    add_tensor_to(m->x, "step", CKPT_I64, 0, NULL, "cpu", CKPT_ROLE_STEP);
    add_tensor_to(m->x, "complex", CKPT_C128, 1, four, "cpu", CKPT_ROLE_OTHER);
    add_tensor_to(m->x, "empty", CKPT_F64, 2, none, "cpu", CKPT_ROLE_OTHER);
    add_view_to(m->x, "tied", w, CKPT_F32, 2, two_three, NULL, 0);
    add_view_to(m->x, "transposed", w, CKPT_F32, 2, three_two, swapped, 0);
    add_view_to(m->x, "bits", w, CKPT_I16, 1, one, NULL, 5);
    /* Two views that overlap, neither of which covers the other: the storage itself must be stored. */
    ckpt__storage *s = ckpt__index_add_storage(m->x);
    s->extent.size = s->extent.length = 40;
    s->device = ckpt__s("cuda:0");
    add_view_to(m->x, "head", m->x->storage_count - 1, CKPT_F32, 1, four, NULL, 0);
    add_view_to(m->x, "tail", m->x->storage_count - 1, CKPT_F32, 1, five, NULL, 3);
    add_tensor_to(m->x, "mask", CKPT_U8, 1, four, "cpu", CKPT_ROLE_OTHER); /* a name that occurs twice */
    add_tensor_to(m->x, "not\xffutf8", CKPT_U8, 1, four, "cpu", CKPT_ROLE_OTHER);
    ckpt__tensor *t = ckpt__index_add_tensor(m->x); /* meta: no data */
    t->info.name = ckpt__s("meta");
    t->info.dtype = CKPT_F16;
    t->info.ndim = 1;
    t->info.shape = five;
    t->info.strides = one;
    t->info.nbytes = 10;
    t->info.device = ckpt__s("meta");
}

#define STR(text) ckpt__value_str(a, text, sizeof(text) - 1)

static const ckpt_value *raw(ckpt__arena *a, ckpt_kind kind, const void *data, size_t n)
{
    ckpt_value *v = ckpt__value_new(a, kind);
    v->text = ckpt__arena_str(a, data, n);
    return v;
}

static const ckpt_value *make_values(ckpt__arena *a)
{
    static char long_bytes[300];
    const ckpt_value *ints[40], *floats[33], *pair[2], *mixed[7];
    for (int i = 0; i < 300; i++)
        long_bytes[i] = (char)i;
    for (int i = 0; i < 40; i++)
        ints[i] = ckpt__value_int(a, (int64_t)1 << i);
    for (int i = 0; i < 33; i++)
        floats[i] = ckpt__value_float(a, i == 5 ? (double)NAN : i / 3.0);
    mixed[0] = ckpt__value_new(a, CKPT_V_NONE);
    mixed[1] = ckpt__value_bool(a, true);
    mixed[2] = ckpt__value_int(a, INT64_MIN);
    mixed[3] = raw(a, CKPT_V_BIGINT, "-123456789012345678901234567890", 31);
    mixed[4] = ckpt__value_float(a, -0.0);
    mixed[5] = ckpt__value_float(a, -(double)INFINITY);
    mixed[6] = raw(a, CKPT_V_STR, "\xed\xa0\x80", 3);
    pair[0] = ckpt__value_int(a, 1);
    pair[1] = STR("x");
    ckpt_value *tensor = ckpt__value_new(a, CKPT_V_TENSOR), *array = ckpt__value_new(a, CKPT_V_ARRAY);
    tensor->tensor = 9; /* "transposed" */
    static const int64_t array_shape[] = {2};
    static const ckpt_array fortran = {{"<i2", 3}, array_shape, 1, true};
    array->array = &fortran;
    array->text = ckpt__arena_str(a, "\1\0\2\0", 4);
    ckpt_value *object = ckpt__value_new(a, CKPT_V_OBJECT), *class = ckpt__value_new(a, CKPT_V_CLASS);
    class->class_name = ckpt__s("torch.float32");
    ckpt_value *cycle = ckpt__value_new(a, CKPT_V_LIST);
    const ckpt_value **items = ckpt__arena_array(a, 2, sizeof *items);
    items[0] = object;
    items[1] = cycle;
    cycle->items = items;
    cycle->item_count = 2;
    object->class_name = ckpt__s("my.Thing");
    object->args = ckpt__value_list(a, CKPT_V_TUPLE, pair, 2);
    object->state = cycle;
    ckpt_entry odd[] = {{ckpt__value_int(a, 0), STR("int key")},
                        {ckpt__value_list(a, CKPT_V_TUPLE, pair, 2), class},
                        {STR("k"), cycle}};
    ckpt_value *ordered = ckpt__value_dict(a, odd, 3);
    ordered->class_name = ckpt__s("collections.OrderedDict");
    ckpt_entry dollar[] = {{STR("$"), STR("int")}, {STR("v"), STR("1")}};
    ckpt_entry top[] = {
        {STR("mixed"), ckpt__value_list(a, CKPT_V_LIST, mixed, 7)},
        {STR("lr"), ckpt__value_float(a, 3e-4)},
        {STR("na\xc3\xafve \"quote\" \\ \n"), STR("nul \0 inside")},
        {STR("ints"), ckpt__value_list(a, CKPT_V_TUPLE, ints, 40)},
        {STR("floats"), ckpt__value_list(a, CKPT_V_LIST, floats, 33)},
        {STR("rng"), raw(a, CKPT_V_BYTES, long_bytes, 300)},
        {STR("short"), raw(a, CKPT_V_BYTEARRAY, "\0\xff", 2)},
        {STR("tensor"), tensor},
        {STR("array"), array},
        {STR("object"), object},
        {STR("ordered"), ordered},
        {STR("dollar"), ckpt__value_dict(a, dollar, 2)},
        {STR("empty"), ckpt__value_dict(a, NULL, 0)},
        {STR("none"), ckpt__value_list(a, CKPT_V_LIST, NULL, 0)},
    };
    return ckpt__value_dict(a, top, sizeof top / sizeof *top);
}

static model make_model(void)
{
    model m = {.x = ckpt__index_new(0)};
    add_tensors(&m);
    for (size_t i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < sizeof payload[i]; k++)
            payload[i][k] = (char)(i * 37 + k * 11 + 1);
        m.payloads[i] = payload[i];
    }
    for (size_t i = 0; i < m.x->storage_count; i++)
        m.storages[i] = payload[8];
    m.all = all_tensors(m.x);
    m.root = make_values(m.x->arena);
    return m;
}

static void free_model(model *m)
{
    ckpt__index_free(m->x);
    free(m->all);
}

static ckpt_status write_native(const model *m, ckpt_report *lost, ckpt__buf *out, ckpt_error *err)
{
    ckpt__recipe *r = NULL;
    ckpt__write_request q = {
        .index = m->x, .tensors = m->all, .count = m->x->tensor_count, .root = m->root, .step = 12, .lost = lost};
    ckpt_status status = ckpt__format_native.write(&q, &r, err);
    if (status == CKPT_OK)
        status = apply_recipe(r, m->payloads, m->storages, out, err);
    ckpt__recipe_free(r);
    return status;
}

/* ---- round trip */

/* Values are equal when they are written alike; tensors' numbers may differ, so their names are written. */
typedef struct names {
    const ckpt__index *x;
    uint64_t blobs;
    ckpt__buf bytes;
} names;

static ckpt_status by_name(void *ctx, size_t number, ckpt__buf *out, ckpt_error *err)
{
    (void)err;
    ckpt_str name = ((names *)ctx)->x->tensors[number].info.name;
    ckpt__buf_str(out, "\"name\":");
    ckpt__json_put_string(out, name.data, name.size);
    return CKPT_OK;
}

static ckpt_status keep_blob(void *ctx, ckpt_dtype dtype, const char *data, size_t size, uint64_t *number,
                             ckpt_error *err)
{
    names *n = ctx;
    (void)err;
    *number = n->blobs++ * 100 + (uint64_t)dtype;
    ckpt__buf_add(&n->bytes, data, size);
    return CKPT_OK;
}

static bool same_text(const ckpt__index *x, const ckpt_value *a, const ckpt__index *y, const ckpt_value *b)
{
    names na = {.x = x}, nb = {.x = y};
    ckpt__buf ta = {0}, tb = {0};
    ckpt__values_writer wa = {by_name, keep_blob, &na, x->arena}, wb = {by_name, keep_blob, &nb, y->arena};
    bool same = ckpt__values_write(a, &wa, &ta, NULL) == CKPT_OK && ckpt__values_write(b, &wb, &tb, NULL) == CKPT_OK &&
                strcmp(ta.data, tb.data) == 0 && na.bytes.size == nb.bytes.size &&
                memcmp(na.bytes.data, nb.bytes.data, na.bytes.size) == 0;
    if (!same)
        fprintf(stderr, "%s\n%s\n", ta.data, tb.data);
    ckpt__buf_free(&ta);
    ckpt__buf_free(&tb);
    ckpt__buf_free(&na.bytes);
    ckpt__buf_free(&nb.bytes);
    return same;
}

static void same_string(ckpt_str a, ckpt_str b)
{
    ck_assert((!a.data && !b.data) || ckpt__str_equal(a, b));
}

static void same_tensor(const ckpt__tensor *a, const ckpt__tensor *b)
{
    ck_assert_int_eq(a->info.dtype, b->info.dtype);
    ck_assert_uint_eq(a->info.ndim, b->info.ndim);
    for (uint32_t i = 0; i < a->info.ndim; i++)
        ck_assert(a->info.shape[i] == b->info.shape[i] && a->info.strides[i] == b->info.strides[i]);
    same_string(a->info.device, b->info.device);
    same_string(a->info.param, b->info.param);
    same_string(a->info.state_key, b->info.state_key);
    same_string(a->info.group, b->info.group);
    same_string(a->info.extra->class_name, b->info.extra->class_name);
    ck_assert(a->info.role == b->info.role && a->info.requires_grad == b->info.requires_grad &&
              a->info.nbytes == b->info.nbytes);
    ck_assert(a->whole == b->whole && a->piece_count == b->piece_count);
}

START_TEST(round_trip)
{
    model m = make_model();
    ckpt__buf file = {0};
    ckpt__index *y;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *lost = ckpt_report_new();
    ck_assert_msg(write_native(&m, lost, &file, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_report_count(lost), 0);
    ck_assert_mem_eq(file.data + 8, "{\"__metadata__\":{\"ckpt.crc32\":\"", 31);
    ck_assert_msg(read_bytes(file.data, file.size, NULL, &y, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_str_eq(y->format, "ckpt");
    ck_assert(y->step == 12 && y->metadata_crc && y->metadata_bytes % 4096 == 0);
    ck_assert_uint_eq(y->tensor_count, TENSORS);
    size_t masks = 0;
    for (size_t i = 0; i < y->tensor_count; i++) {
        const ckpt__tensor *t = &y->tensors[i], *was = tensor_named(m.x, t->info.name.data);
        ck_assert_ptr_nonnull(was);
        masks += ckpt__str_is(t->info.name, "mask");
        if (!ckpt__str_is(t->info.name, "mask"))
            same_tensor(was, t);
        if (t->has_crc) {
            const ckpt__extent *e = &y->storages[t->storage].extent;
            ck_assert_uint_eq(t->crc, ckpt__crc32(0, file.data + e->offset, (size_t)e->size));
        }
    }
    ck_assert_uint_eq(masks, 2);
    const ckpt__tensor *w = tensor_named(y, "wte.weight"), *tied = tensor_named(y, "tied"),
                       *bits = tensor_named(y, "bits");
    const ckpt__tensor *head = tensor_named(y, "head"), *tail = tensor_named(y, "tail");
    ck_assert(w->has_crc && !tied->has_crc && tied->info.storage == w->info.storage &&
              bits->info.storage == w->info.storage);
    ck_assert(bits->info.offset == 5 && head->info.storage == tail->info.storage && tail->info.offset == 3);
    ck_assert(y->storages[head->storage].extent.size == 40 && y->storages[head->storage].extent.has_crc);
    ck_assert(ckpt__str_is(y->storages[head->storage].device, "cuda:0"));
    ck_assert(ckpt__has_no_bytes(tensor_named(y, "meta")) &&
              ckpt__str_is(tensor_named(y, "meta")->info.device, "meta"));
    ck_assert(same_text(m.x, m.root, y, y->root));
    const ckpt_value *object = ckpt_value_get(y->root, "object");
    ck_assert(object->state->items[0] == object && object->state->items[1] == object->state); /* the cycle is one */
    ck_assert(ckpt_value_get(y->root, "ordered")->entries[2].value == object->state);
    ck_assert(isnan(ckpt_value_get(y->root, "floats")->items[5]->real));
    for (size_t i = 0; i < y->storage_count; i++)
        ck_assert(y->storages[i].extent.has_crc);
    ckpt__index_free(y);
    ckpt__buf_free(&file);
    ckpt_report_free(lost);
    free_model(&m);
}
END_TEST

/* The same tree by another reader: the file is plain safetensors too, and all its names are there. */
START_TEST(is_safetensors)
{
    model m = make_model();
    ckpt__buf file = {0}, again = {0};
    ckpt__index *y;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(write_native(&m, NULL, &file, &err), CKPT_OK);
    ck_assert_int_eq(read_bytes(file.data, file.size, "safetensors", &y, &err), CKPT_OK);
    ck_assert(tensor_named(y, "wte.weight")->info.dtype == CKPT_F32 && tensor_named(y, "ckpt.storage.0") &&
              tensor_named(y, "ckpt.blob.2"));
    ck_assert(!tensor_named(y, "tied") && tensor_named(y, "complex")->info.dtype == CKPT_U8);
    ck_assert(ckpt__str_is(ckpt_value_get(ckpt_value_get(y->root, "__metadata__"), "format")->text, "pt"));
    uint64_t at = y->metadata_bytes;
    for (size_t i = 0; i < y->tensor_count; i++) { /* every tensor lies on a multiple of its element */
        const ckpt__extent *e = &y->storages[y->tensors[i].storage].extent;
        size_t size = ckpt_dtype_size(y->tensors[i].info.dtype);
        ck_assert_uint_eq(e->offset % size, 0);
        ck_assert(e->offset >= at);
        at = e->offset + e->size;
    }
    ckpt__index_free(y);
    ck_assert_int_eq(write_native(&m, NULL, &again, &err), CKPT_OK); /* the same bytes every time */
    ck_assert(file.size == again.size && memcmp(file.data, again.data, file.size) == 0);
    ckpt__buf_free(&file);
    ckpt__buf_free(&again);
    free_model(&m);
}
END_TEST

/* ---- damage */

/* Is the damage of the file in scratch found: at opening, or by the checksum of the payload that it is in? Never may it
 * pass for plain safetensors. */
static bool found(const char *path, const ckpt__buf *file)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    bool caught = false;
    ckpt_status status = read_path(path, NULL, &x, &err);
    if (status < 0)
        return status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT;
    for (size_t i = 0; i < x->storage_count; i++) {
        const ckpt__extent *e = &x->storages[i].extent;
        caught |= !e->has_crc || ckpt__crc32(0, file->data + e->offset, (size_t)e->size) != e->crc;
    }
    caught &= strcmp(x->format, "ckpt") == 0;
    ckpt__index_free(x);
    return caught;
}

static model small_model(void)
{
    model m = make_model();
    static const size_t few[] = {0, 1, 5, 8};
    m.x->tensor_count = 9;
    memcpy(m.all, few, sizeof few);
    return m;
}

static ckpt_status write_small(model *m, ckpt__buf *file, ckpt_error *err)
{
    ckpt__recipe *r = NULL;
    ckpt_entry e = {ckpt__value_str(m->x->arena, "rng", 3), raw(m->x->arena, CKPT_V_BYTES, payload, 100)};
    ckpt__write_request q = {
        .index = m->x, .tensors = m->all, .count = 4, .root = ckpt__value_dict(m->x->arena, &e, 1), .step = 12};
    ckpt_status status = ckpt__format_native.write(&q, &r, err);
    if (status == CKPT_OK)
        status = apply_recipe(r, m->payloads, m->storages, file, err);
    ckpt__recipe_free(r);
    return status;
}

START_TEST(every_bit)
{
    model m = small_model();
    ckpt__buf file = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_msg(write_small(&m, &file, &err) == CKPT_OK, "%s", err.message);
    const char *path = in_scratch("bits");
    put_file(path, file.data, file.size);
    int fd = open(path, O_WRONLY);
    ck_assert(!found(path, &file));
    for (size_t i = 0; i < file.size * 8; i++) {
        char *byte = file.data + i / 8, good = *byte;
        *byte = (char)(good ^ 1 << i % 8);
        ck_assert_int_eq(pwrite(fd, byte, 1, (off_t)(i / 8)), 1);
        ck_assert_msg(found(path, &file), "bit %zu of byte %zu was not noticed", i % 8, i / 8);
        *byte = good;
        ck_assert_int_eq(pwrite(fd, byte, 1, (off_t)(i / 8)), 1);
    }
    ck_assert(!found(path, &file));
    close(fd);
    ckpt__buf_free(&file);
    free_model(&m);
}
END_TEST

START_TEST(every_length)
{
    model m = small_model();
    ckpt__buf file = {0};
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(write_small(&m, &file, &err), CKPT_OK);
    ckpt__buf_char(&file, 0);
    const char *path = in_scratch("lengths");
    put_file(path, file.data, file.size);
    ck_assert_int_eq(read_path(path, NULL, &x, &err), CKPT_E_DAMAGED); /* a byte too long */
    for (size_t n = file.size - 1; n-- > 0;) {
        ck_assert_int_eq(truncate(path, (off_t)n), 0);
        ckpt_status status = read_path(path, NULL, &x, &err);
        ck_assert_msg(status == CKPT_E_DAMAGED || (n < 9 && status == CKPT_E_FORMAT), "%zu bytes: %d %s", n, status,
                      err.message);
    }
    ckpt__buf_free(&file);
    free_model(&m);
}
END_TEST

/* Rewrites header text and its checksum: what somebody could make who knows the format. */
static ckpt_status reread(const ckpt__buf *file, const char *from, const char *to, ckpt_error *err)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | (unsigned char)file->data[i];
    char *copy = malloc(file->size + 1);
    memcpy(copy, file->data, file->size);
    char *at = memmem(copy, (size_t)n + 8, from, strlen(from));
    ck_assert_msg(at && strlen(from) == strlen(to), "%s", from);
    memcpy(at, to, strlen(to));
    ckpt__hex_crc(copy + CKPT__NATIVE_CRC_AT, ckpt__native_crc(copy, (size_t)n + 8));
    ckpt__index *x;
    ckpt_status status = read_bytes(copy, file->size, NULL, &x, err);
    ckpt__index_free(x);
    free(copy);
    return status;
}

START_TEST(hostile_documents)
{
    static const struct {
        const char *from, *to;
        ckpt_status status;
        const char *says;
    } cases[] = {
        {"version\\\":[1,1]", "version\\\":[2,0]", CKPT_E_TOO_NEW, "version 2.0"},
        {"version\\\":[1,1]", "version\\\":[0,9]", CKPT_E_FORMAT, "below 1.0"},
        {"version\\\":[1,1]", "version\\\":[1,7]", CKPT_OK, NULL},
        {"requires\\\":[],\\\"writer\\\":\\\"ck", "requires\\\":[\\\"zip\\\"],\\\"w\\\":\\\"", CKPT_E_TOO_NEW, "'zip'"},
        {"\\\"step\\\":12", "\\\"step\\\":-2", CKPT_E_FORMAT, "negative"},
        {"\\\"step\\\":12", "\\\"step\\\":1.", CKPT_E_FORMAT, "point"},
        {"\\\"blob\\\":0", "\\\"blob\\\":7", CKPT_E_FORMAT, "blob that is not there"},
        {"ckpt.blob.0", "ckpt.blob.9", CKPT_E_FORMAT, "blob whose number"},
        {"ckpt.blob.0", "ckpt.blob.x", CKPT_E_FORMAT, "blob whose number"},
        {"[\\\"tied\\\",1,", "[\\\"tied\\\",9,", CKPT_E_FORMAT, "alias of an entry"},
        {"\\\"float32\\\",0,[2,3]", "\\\"float32\\\",1,[2,3]", CKPT_E_FORMAT, "reaches"},
        {"\\\"float32\\\",0,[2,3]", "\\\"float99\\\",0,[2,3]", CKPT_E_FORMAT, "dtype"},
        {"\\\"values\\\":[1", "\\\"values\\\":[7", CKPT_E_FORMAT, "expected 0 to 2"},
        {"\\\"kind\\\":[0,1,2,3]", "\\\"kind\\\":[0,1,2,4]", CKPT_E_FORMAT, "expected 0 to 3"},
        {"\\\"kind\\\":[0,1,2,3]", "\\\"kind\\\":[[0,3]]  ", CKPT_E_FORMAT, "too few"},
        {"\\\"kind\\\":[0,1,2,3]", "\\\"kind\\\":[[0,5]]  ", CKPT_E_FORMAT, "too many"},
        {"\\\"kind\\\":[0,1,2,3]", "\\\"kind\\\":[[0,0]]  ", CKPT_E_FORMAT, "value"},
        {"\\\"kind\\\":[0,1,2,3]", "\\\"kind\\\":[0 1,2,3]", CKPT_E_FORMAT, "broken JSON"},
        {"\\\"kinds\\\":4", "\\\"kinds\\\":5", CKPT_E_FORMAT, "5 kinds of 4 tensors"},
        {"\\\"param\\\":{\\\"values\\\":[0,1,2,0]", "\\\"param\\\":{\\\"values\\\":[0,2,2,0]", CKPT_E_FORMAT,
         "optimizer.<param>"},
        {"\\\"param\\\":{\\\"values\\\":[0,1,2,0]", "\\\"param\\\":{\\\"values\\\":[3,1,2,0]", CKPT_E_FORMAT,
         "too few"},
    };
    model m = small_model();
    ckpt__buf file = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(write_small(&m, &file, &err), CKPT_OK);
    ck_assert_int_eq(reread(&file, "wte", "wte", &err), CKPT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err.message[0] = '\0';
        ckpt_status status = reread(&file, cases[i].from, cases[i].to, &err);
        ck_assert_msg(status == cases[i].status, "%s: %d %s", cases[i].to, status, err.message);
        ck_assert_msg(!cases[i].says || strstr(err.message, cases[i].says), "%s: %s", cases[i].to, err.message);
    }
    ckpt__buf_free(&file);
    free_model(&m);
}
END_TEST

/* A tool that keeps the metadata and moves it, or writes the header anew. */
START_TEST(rewritten_by_others)
{
    static const char displaced[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"ckpt\":\"{\\\"version\\\":[1,0]}\",\"ckpt.crc32\":\"00000000\"}}";
    static const char foreign[] = "{\"__metadata__\":{\"ckpt\":\"epoch=3.ckpt\"}}";
    char bytes[256] = {0};
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    bytes[0] = sizeof displaced - 1;
    memcpy(bytes + 8, displaced, sizeof displaced);
    ck_assert_int_eq(read_bytes(bytes, 7 + sizeof displaced, NULL, &x, &err), CKPT_E_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.message, "rewritten by a tool"));
    ck_assert_int_eq(read_bytes(bytes, 7 + sizeof displaced, "safetensors", &x, &err), CKPT_OK);
    ckpt__index_free(x);
    bytes[0] = sizeof foreign - 1;
    memcpy(bytes + 8, foreign, sizeof foreign);
    ck_assert_int_eq(read_bytes(bytes, 7 + sizeof foreign, NULL, &x, &err), CKPT_OK);
    ck_assert_str_eq(x->format, "safetensors");
    ckpt__index_free(x);
    ck_assert_int_eq(read_bytes(bytes, 7 + sizeof foreign, "ckpt", &x, &err), CKPT_E_FORMAT);

    model m = small_model();
    ckpt__buf file = {0};
    ck_assert_int_eq(write_small(&m, &file, &err), CKPT_OK);
    char *tied = memmem(file.data, file.size, "exp_avg", 7);
    tied[0] = 'E'; /* still sound, but not what was written */
    ck_assert_int_eq(read_bytes(file.data, file.size, NULL, &x, &err), CKPT_E_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.message, "rewritten by a tool"));
    ckpt__buf_free(&file);
    free_model(&m);
}
END_TEST

START_TEST(refuses_reserved_names)
{
    static const char *const reserved[] = {"ckpt.blob.0", "ckpt.blob.x", "ckpt.storage.12", "__metadata__"};
    model m = make_model();
    ckpt__buf file = {0};
    for (size_t i = 0; i < 4; i++) {
        ckpt_error err = CKPT_ERROR_INIT;
        m.x->tensors[3].info.name = ckpt__s(reserved[i]);
        ck_assert_int_eq(write_native(&m, NULL, &file, &err), CKPT_E_UNSUPPORTED);
        ck_assert_str_eq(err.object, reserved[i]);
    }
    ck_assert_uint_eq(file.size, 0);
    free_model(&m);
}
END_TEST

/* A million levels would overflow a stack; the format's own limit answers instead, in both directions. */
START_TEST(deep_values)
{
    ckpt__arena *a = ckpt__arena_new(0);
    ckpt__buf out = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    names n = {0};
    const ckpt__values_writer w = {by_name, keep_blob, &n, a};
    const ckpt__values_reader r = {NULL, NULL, NULL, a};
    const ckpt_value *v = ckpt__value_int(a, 1), *back = NULL;
    for (int i = 0; i < 4000; i++)
        v = ckpt__value_list(a, CKPT_V_LIST, &v, 1);
    ck_assert_int_eq(ckpt__values_write(v, &w, &out, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__values_read(out.data, out.size, &r, &back, &err), CKPT_OK);
    for (int i = 0; i < 4000; i++)
        back = back->items[0];
    ck_assert_int_eq(back->integer, 1);
    for (int i = 0; i < 1000000; i++)
        v = ckpt__value_list(a, CKPT_V_LIST, &v, 1);
    ck_assert_int_eq(ckpt__values_write(v, &w, &out, &err), CKPT_E_LIMIT);
    out.size = 0;
    for (int i = 0; i < 1000000; i++)
        ckpt__buf_char(&out, '[');
    ck_assert_int_eq(ckpt__values_read(out.data, out.size, &r, &back, &err), CKPT_E_LIMIT);
    ckpt__buf_free(&out);
    ckpt__arena_free(a);
}
END_TEST

START_TEST(broken_values)
{
    static const char *const texts[] = {
        "{\"a\":1,\"a\":2}",
        "{\"$\":1}",
        "{\"$\":\"magic\"}",
        "{\"$x\":1}",
        "{\"$\":\"tuple\"}",
        "{\"$\":\"tuple\",\"items\":1}",
        "{\"$\":\"int\",\"v\":\"12x\"}",
        "{\"$\":\"int\",\"v\":\"-\"}",
        "{\"$\":\"float\",\"v\":\"1\"}",
        "{\"$\":\"bytes\",\"hex\":\"0\"}",
        "{\"$\":\"bytes\",\"hex\":\"FF\"}",
        "{\"$\":\"bytes\"}",
        "{\"$\":\"dict\"}",
        "{\"$\":\"dict\",\"entries\":[[1]]}",
        "{\"$\":\"dict\",\"entries\":[1]}",
        "{\"$\":\"ref\",\"id\":0}",
        "{\"$\":\"ref\"}",
        "{\"$\":\"list\",\"id\":1,\"items\":[]}",
        "{\"$\":\"list\",\"id\":0,\"items\":{\"$\":\"ref\",\"id\":0}}",
        "{\"$\":\"dict\",\"id\":0,\"entries\":[{\"$\":\"ref\",\"id\":0}]}",
        "{\"$\":\"tensor\"}",
        "{\"$\":\"tensor\",\"n\":-1}",
        "{\"$\":\"tensor\",\"n\":1,\"name\":\"a\"}",
        "{\"$\":\"class\"}",
        "{\"$\":\"array\",\"dtype\":\"<f4\",\"shape\":[\"x\"],\"hex\":\"\"}",
        "{\"$\":\"array\",\"dtype\":\"<f4\",\"shape\":[-1],\"hex\":\"\"}",
        "[1,",
        "[1] 2",
        "",
    };
    ckpt__arena *a = ckpt__arena_new(0);
    const ckpt__values_reader r = {NULL, NULL, NULL, a};
    const ckpt_value *v = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ckpt_error err = CKPT_ERROR_INIT;
        ck_assert_msg(ckpt__values_read(texts[i], strlen(texts[i]), &r, &v, &err) == CKPT_E_FORMAT, "%s", texts[i]);
        ck_assert(err.message[0]);
    }
    ckpt__arena *tight = ckpt__arena_new(1 << 16); /* memory is bounded: "[0,0,0,..." grows forty-fold */
    const ckpt__values_reader small = {NULL, NULL, NULL, tight};
    ckpt__buf many = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__buf_char(&many, '[');
    for (int i = 0; i < 5000; i++)
        ckpt__buf_str(&many, "[],");
    ckpt__buf_str(&many, "0]");
    ck_assert_int_eq(ckpt__values_read(many.data, many.size, &small, &v, &err), CKPT_E_LIMIT);
    ckpt__buf_free(&many);
    ckpt__arena_free(tight);
    ckpt__arena_free(a);
}
END_TEST

/* ---- the directory of a step */

static void put_step_file(const char *dir, const char *name, model *m, const size_t *tensors, size_t n, int64_t step,
                          const ckpt_value *root, ckpt__manifest *manifest)
{
    char path[256];
    ckpt__buf file = {0};
    ckpt__recipe *r = NULL;
    ckpt__write_request q = {.index = m->x, .tensors = tensors, .count = n, .root = root, .step = step};
    ck_assert_int_eq(ckpt__format_native.write(&q, &r, NULL), CKPT_OK);
    ck_assert_int_eq(apply_recipe(r, m->payloads, m->storages, &file, NULL), CKPT_OK);
    ckpt__recipe_free(r);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put_file(path, file.data, file.size);
    if (manifest)
        manifest->files[manifest->count++] =
            (ckpt__manifest_file){ckpt__s(name), file.size, ckpt__crc32(0, file.data, file.size)};
    ckpt__buf_free(&file);
}

static void put_manifest(const char *dir, const ckpt__manifest *m)
{
    char path[256];
    ckpt__buf text = {0};
    ck_assert_int_eq(ckpt__manifest_write(m, &text, NULL), CKPT_OK);
    snprintf(path, sizeof path, "%s/checkpoint.json", dir);
    put_file(path, text.data, text.size);
    ckpt__buf_free(&text);
}

START_TEST(step_directory)
{
    char dir[256], path[300];
    static const size_t weights[] = {0, 3}, training[] = {1, 2, 5};
    model m = make_model();
    ckpt__index *y;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__manifest manifest = {.step = 12, .world = 1};
    ckpt_value *t = ckpt__value_new(m.x->arena, CKPT_V_TENSOR);
    ckpt_entry e = {ckpt__value_str(m.x->arena, "wte.weight", 10), t};
    snprintf(dir, sizeof dir, "%s", in_scratch("step"));
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    put_step_file(dir, "model.safetensors", &m, weights, 2, 12, NULL, &manifest);
    put_step_file(dir, "training.safetensors", &m, training, 3, 12, ckpt__value_dict(m.x->arena, &e, 1), &manifest);
    put_manifest(dir, &manifest);
    ck_assert_msg(read_path(dir, NULL, &y, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert(y->tensor_count == 5 && y->step == 12 && strcmp(y->kind, "directory") == 0 &&
              strcmp(y->format, "ckpt") == 0);
    ck_assert(ckpt__str_is(tensor_named(y, "mask")->info.file, "model.safetensors"));
    ck_assert(ckpt__str_is(tensor_named(y, "step")->info.file, "training.safetensors"));
    ck_assert(ckpt__str_is(tensor_named(y, "odd.name")->info.param, "wte.weight"));
    const ckpt_value *v = ckpt_value_get(y->root, "wte.weight");
    ck_assert(v->kind == CKPT_V_TENSOR && ckpt__str_is(y->tensors[v->tensor].info.name, "wte.weight"));
    ck_assert(y->tensors[v->tensor].info.path.count == 1);
    ckpt__index_free(y);

    snprintf(path, sizeof path, "%s/training.safetensors", dir); /* one file alone: the reference leads nowhere */
    ck_assert_int_eq(read_path(path, NULL, &y, &err), CKPT_OK);
    ck_assert(ckpt_value_get(y->root, "wte.weight")->kind == CKPT_V_NONE &&
              ckpt_report_find(y->findings, "tensor-elsewhere", NULL));
    ckpt__index_free(y);

    put_step_file(dir, "training.safetensors", &m, training, 3, 13, NULL, NULL); /* of another step, another size */
    ck_assert_int_eq(read_path(dir, NULL, &y, &err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "manifest"), "%s", err.message);
    manifest.count = 1;
    put_step_file(dir, "training.safetensors", &m, training, 3, 13, NULL,
                  &manifest); /* of another step, the size right */
    put_manifest(dir, &manifest);
    ck_assert_int_eq(read_path(dir, NULL, &y, &err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "step 13") && strstr(err.message, "mixed"), "%s", err.message);
    manifest.count = 1;
    put_step_file(dir, "training.safetensors", &m, weights, 2, 12, NULL, &manifest); /* the same names twice */
    put_manifest(dir, &manifest);
    ck_assert_int_eq(read_path(dir, NULL, &y, &err), CKPT_E_FORMAT);
    ck_assert_msg(strstr(err.message, "wte.weight"), "%s", err.message);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(read_path(dir, NULL, &y, &err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "training.safetensors") || strstr(err.object, "training.safetensors"), "%s",
                  err.message);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/checkpoint.json", dir);
    unlink(path);
    rmdir(dir);
    free_model(&m);
}
END_TEST

START_TEST(manifest)
{
    ckpt__manifest m = {.step = 7, .world = 4, .rank = 3, .count = 2}, back;
    ckpt__buf text = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__arena *a = ckpt__arena_new(0);
    m.files[0] = (ckpt__manifest_file){ckpt__s("model.safetensors"), UINT64_C(9007199254740990), 0xdeadbeef};
    m.files[1] = (ckpt__manifest_file){ckpt__s("tr\"aining"), 0, 0};
    ck_assert_int_eq(ckpt__manifest_write(&m, &text, &err), CKPT_OK);
    ck_assert_msg(ckpt__manifest_read(text.data, text.size, "m", a, &back, &err) == CKPT_OK, "%s", err.message);
    ck_assert(back.step == 7 && back.world == 4 && back.rank == 3 && back.count == 2);
    ck_assert(back.files[0].size == m.files[0].size && back.files[0].crc == 0xdeadbeef &&
              ckpt__str_is(back.files[1].name, "tr\"aining"));
    for (size_t i = 0; i < text.size * 8; i++) {
        text.data[i / 8] = (char)(text.data[i / 8] ^ 1 << i % 8);
        ckpt_status status = ckpt__manifest_read(text.data, text.size, "m", a, &back, &err);
        ck_assert_msg(status == CKPT_E_DAMAGED || (i / 8 < 15 && status == CKPT_E_FORMAT), "bit %zu: %d", i, status);
        text.data[i / 8] = (char)(text.data[i / 8] ^ 1 << i % 8);
    }
    for (size_t n = 0; n < text.size; n++)
        ck_assert_int_lt(ckpt__manifest_read(text.data, n, "m", a, &back, &err), 0);
    m.files[1].name = ckpt__s("../up"); /* sound, but leads out of the directory */
    text.size = 0;
    ck_assert_int_eq(ckpt__manifest_write(&m, &text, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__manifest_read(text.data, text.size, "m", a, &back, &err), CKPT_E_FORMAT);
    m.files[1].name = m.files[0].name;
    text.size = 0;
    ck_assert_int_eq(ckpt__manifest_write(&m, &text, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__manifest_read(text.data, text.size, "m", a, &back, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "twice"));
    ckpt__buf_free(&text);
    ckpt__arena_free(a);
}
END_TEST

/* ---- size */

START_TEST(many_tensors)
{
    enum { N = 50000 };
    ckpt__index *x = ckpt__index_new(0), *y;
    ckpt__buf file = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__recipe *r = NULL;
    static const int64_t one[] = {1};
    const void **payloads = calloc(N, sizeof *payloads);
    for (size_t i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, i % 2 ? "optimizer.h.%zu.w.exp_avg" : "h.%zu.w", i / 2);
        add_tensor_to(x, "", CKPT_F32, 1, one, "cuda:0", i % 2 ? CKPT_ROLE_EXP_AVG : CKPT_ROLE_PARAM);
        x->tensors[i].info.name = ckpt__arena_str(x->arena, name, strlen(name));
        snprintf(name, sizeof name, "h.%zu.w", i / 2);
        x->tensors[i].info.param = ckpt__arena_str(x->arena, name, strlen(name));
        if (i % 2)
            x->tensors[i].info.state_key = ckpt__s("exp_avg");
        payloads[i] = payload;
    }
    size_t *all = all_tensors(x);
    ckpt__write_request q = {.index = x, .tensors = all, .count = N, .step = 1};
    ck_assert_int_eq(ckpt__format_native.write(&q, &r, &err), CKPT_OK);
    ck_assert_int_eq(apply_recipe(r, payloads, NULL, &file, &err), CKPT_OK);
    ck_assert_msg(r->segments[0].size < 110 * N, "%llu", (unsigned long long)r->segments[0].size);
    ck_assert_msg(read_bytes(file.data, file.size, NULL, &y, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(y->tensor_count, N);
    for (size_t i = 0; i < N; i++)
        ck_assert(ckpt__str_equal(y->tensors[i].info.param, x->tensors[i].info.param) &&
                  y->tensors[i].info.role == x->tensors[i].info.role);
    ckpt__recipe_free(r);
    ckpt__index_free(y);
    ckpt__index_free(x);
    ckpt__buf_free(&file);
    free(payloads);
    free(all);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("native");
    TCase *t = tcase_create("native");
    tcase_add_unchecked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 300);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, is_safetensors);
    tcase_add_test(t, every_bit);
    tcase_add_test(t, every_length);
    tcase_add_test(t, hostile_documents);
    tcase_add_test(t, rewritten_by_others);
    tcase_add_test(t, refuses_reserved_names);
    tcase_add_test(t, deep_values);
    tcase_add_test(t, broken_values);
    tcase_add_test(t, step_directory);
    tcase_add_test(t, manifest);
    tcase_add_test(t, many_tensors);
    suite_add_tcase(s, t);
    return run_suite(s);
}
