/* tests/unit/format/test_safetensors.c - plain safetensors: what is read, what is refused and why, what is written. */
#include "format_files.h"
#include "format/safetensors.h"
#include "format/safetensors_quick.h"
#include "../runner.h"
#include "format/table.h"

/* A file of this header, padded with `spaces`, and n bytes of data. */
static size_t make_file(char *out, const char *header, size_t spaces, size_t n)
{
    size_t size = strlen(header) + spaces;
    for (int i = 0; i < 8; i++)
        out[i] = (char)(size >> 8 * i);
    memcpy(out + 8, header, strlen(header));
    memset(out + 8 + strlen(header), ' ', spaces);
    for (size_t i = 0; i < n; i++)
        out[8 + size + i] = (char)i;
    return 8 + size + n;
}

static ckpt_status read_header(const char *header, size_t spaces, size_t n, ckpt__index **x, ckpt_error *err)
{
    char *file = malloc(8 + strlen(header) + spaces + n);
    size_t size = make_file(file, header, spaces, n);
    ckpt_status status = read_bytes(file, size, NULL, x, err);
    free(file);
    return status;
}

#define T(name, dtype, shape, offsets)                                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

START_TEST(reads)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(
        read_header("{\"__metadata__\":{\"format\":\"pt\",\"\":\"e\"}," T("b", "F32", "[2,3]", "[0,24]") "," T(
                        "a", "F4", "[3,2]", "[24,27]") "," T("s", "I64", "[]", "[27,35]") "," T("z", "F16", "[0,5]",
                                                                                                "[24,24]") "}",
                    5, 35, &x, &err),
        CKPT_OK);
    ck_assert_str_eq(x->format, "safetensors");
    ck_assert_uint_eq(x->tensor_count, 4);
    const ckpt__tensor *b = tensor_named(x, "b"), *z = tensor_named(x, "z"), *s = tensor_named(x, "s");
    ck_assert_int_eq(b->info.dtype, CKPT_F32);
    ck_assert(b->info.ndim == 2 && b->info.shape[0] == 2 && b->info.shape[1] == 3 && b->info.strides[0] == 3);
    ck_assert(b->info.nbytes == 24 && !b->info.device.data && b->info.role == CKPT_ROLE_NONE);
    ck_assert(z->info.nbytes == 0 && s->info.ndim == 0 && s->info.nbytes == 8);
    ck_assert_int_eq(tensor_named(x, "a")->info.dtype, CKPT_F4);
    const ckpt__extent *e = &x->storages[b->storage].extent;
    ck_assert(e->size == 24 && e->length == 24 && !e->has_crc);
    const ckpt_value *m = ckpt_value_get(x->root, "__metadata__");
    ck_assert(m && m->entry_count == 2 && ckpt__str_is(ckpt_value_get(m, "format")->text, "pt"));
    ckpt__index_free(x);
    ck_assert_int_eq(read_header("{}", 0, 0, &x, &err), CKPT_OK); /* nothing at all is legal */
    ck_assert(x->tensor_count == 0 && !x->root);
    ckpt__index_free(x);
}
END_TEST

START_TEST(sorts_by_offset)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(
        read_header("{" T("late", "U8", "[3]", "[5,8]") "," T("early", "U8", "[5]", "[0,5]") "}", 0, 8, &x, &err),
        CKPT_OK);
    ck_assert(ckpt__str_is(x->tensors[0].info.name, "early") && ckpt__str_is(x->tensors[1].info.name, "late"));
    ck_assert_uint_eq(
        x->storages[x->tensors[1].storage].extent.offset - x->storages[x->tensors[0].storage].extent.offset, 5);
    ckpt__index_free(x);
}
END_TEST

/* Each broken rule has its own message; the status separates broken from damaged. */
static const struct {
    const char *header;
    size_t spaces, data;
    ckpt_status status;
    const char *says;
} refused[] = {
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", 0, 12, CKPT_E_FORMAT, "overlap"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[12,20]") "}", 0, 20, CKPT_E_FORMAT, "hole"},
    {"{" T("a", "F32", "[2]", "[4,12]") "}", 0, 12, CKPT_E_FORMAT, "hole"},
    {"{" T("a", "F32", "[2]", "[8,0]") "}", 0, 8, CKPT_E_FORMAT, "before it begins"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("z", "F32", "[0]", "[4,4]") "}", 0, 8, CKPT_E_FORMAT, "overlap"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 0, 9, CKPT_E_DAMAGED, "1 bytes at its end belong to no tensor"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 0, 6, CKPT_E_DAMAGED, "2 are missing"},
    {"{" T("a", "F32", "[3]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "need 12 bytes"},
    {"{" T("a", "F4", "[3]", "[0,2]") "}", 0, 2, CKPT_E_FORMAT, "whole number of bytes"},
    {"{" T("a", "F31", "[2]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "F31"},
    {"{" T("a", "f32", "[2]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "f32"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "overflows"},
    {"{" T("a", "F64", "[4611686018427387904]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "overflows"},
    {"{" T("a", "F32", "[9223372036854775808]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "not an integer of 64 bits"},
    {"{" T("a", "F32", "[-2]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "negative"},
    {"{" T("a", "F32", "[2.0]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "not an integer"},
    {"{" T("a", "F32", "[02]", "[0,8]") "}", 0, 8, CKPT_E_FORMAT, "leading zero"},
    {"{" T("a", "F32", "[2]", "[-0,8]") "}", 0, 8, CKPT_E_FORMAT, "a negative number"},
    {"{" T("a", "F32", "[2]", "[0]") "}", 0, 8, CKPT_E_FORMAT, "two numbers"},
    {"{" T("a", "F32", "[2]", "[0,8,8]") "}", 0, 8, CKPT_E_FORMAT, "more than 2"},
    {"{" T("a", "F32", "[2]", "[0,18446744073709551615]") "}", 0, 8, CKPT_E_FORMAT, "not an integer"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[8,16]") "}", 0, 16, CKPT_E_FORMAT,
     "'a' occurs twice"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("\\u0061", "F32", "[2]", "[8,16]") "}", 0, 16, CKPT_E_FORMAT,
     "'a' occurs twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 8, CKPT_E_FORMAT,
     "\"dtype\" twice"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 8, CKPT_E_FORMAT, "no \"dtype\""},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 0, 8, CKPT_E_FORMAT, "no \"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, 8, CKPT_E_FORMAT, "no \"data_offsets\""},
    {"{\"a\":[]}", 0, 0, CKPT_E_FORMAT, "expected an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, 0, CKPT_E_FORMAT, "strings only"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, 0, CKPT_E_FORMAT, "strings only"},
    {"{\"__metadata__\":[]}", 0, 0, CKPT_E_FORMAT, "expected an object"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, 0, CKPT_E_FORMAT, "'a' occurs twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, CKPT_E_FORMAT, "'__metadata__' occurs twice"},
    {"[{\"dtype\":\"F32\"}]", 0, 0, CKPT_E_FORMAT, "must begin with '{'"},
    {" {}", 0, 0, CKPT_E_FORMAT, "must begin with '{'"},
    {"{\"\xff\":0}", 0, 0, CKPT_E_FORMAT, "UTF-8"},
    {"{", 8, 0, CKPT_E_FORMAT, "broken JSON"},
    {"{} {}", 0, 0, CKPT_E_FORMAT, "broken JSON"},
};

START_TEST(refuses)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ckpt__index *x;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_status status = read_header(refused[i].header, refused[i].spaces, refused[i].data, &x, &err);
        ck_assert_msg(status == refused[i].status, "%s: status %d, %s", refused[i].header, status, err.message);
        ck_assert_msg(strstr(err.message, refused[i].says), "%s: %s", refused[i].header, err.message);
        ck_assert_msg(strstr(err.object, "bytes"), "object %s of %s", err.object, err.message);
        ck_assert_ptr_null(x);
    }
}
END_TEST

START_TEST(refuses_lengths)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    char file[64] = {0};
    ck_assert_int_eq(read_bytes("", 0, NULL, &x, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "empty"));
    make_file(file, "{}", 0, 0);
    file[7] = (char)0x80; /* 2^63 and a little */
    ck_assert_int_eq(read_bytes(file, 10, NULL, &x, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "100000000"));
    file[7] = 0;
    file[0] = 30;
    ck_assert_int_eq(read_bytes(file, 10, NULL, &x, &err), CKPT_E_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.message, "truncated: its header ends at byte 38, the file at 10"));
    make_file(file, "{}", 0, 0);
    file[0] = 10; /* NUL padding */
    ck_assert_int_eq(read_bytes(file, 18, NULL, &x, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "0x00"));
}
END_TEST

START_TEST(truncated_anywhere)
{
    char file[256];
    size_t size = make_file(file, "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "U8", "[3]", "[8,11]") "}", 3, 11);
    for (size_t n = 0; n < size; n++) {
        ckpt__index *x;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_status status = read_bytes(file, n, NULL, &x, &err);
        ck_assert_msg(status == (n < 9 ? CKPT_E_FORMAT : CKPT_E_DAMAGED), "at %zu: %d %s", n, status, err.message);
    }
}
END_TEST

START_TEST(notes_unknown_keys)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(read_header("{\"a\":{\"x\":[1,{}],\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"y\":0}}",
                                 0, 1, &x, &err),
                     CKPT_OK);
    const ckpt_finding *f = ckpt_report_find(x->findings, "unknown-key", NULL);
    ck_assert(f && strstr(f->message, "2 keys") && strstr(f->message, "'x' in tensor 'a'"));
    ckpt__index_free(x);
}
END_TEST

/* Many tensors: time and memory go with the header, and names are compared by hash. */
START_TEST(many_tensors)
{
    enum { N = 100000 };
    ckpt__buf b = {0};
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__buf_add(&b, "\0\0\0\0\0\0\0\0{", 9);
    for (int i = 0; i < N; i++)
        ckpt__buf_printf(&b, "%s\"layers.%d.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                         i ? "," : "", i, i, i + 1);
    ckpt__buf_char(&b, '}');
    for (int i = 0; i < 8; i++)
        b.data[i] = (char)((b.size - 8) >> 8 * i);
    for (int i = 0; i < N; i++)
        ckpt__buf_char(&b, 'x');
    ck_assert_int_eq(read_bytes(b.data, b.size, NULL, &x, &err), CKPT_OK);
    ck_assert_uint_eq(x->tensor_count, N);
    ck_assert(ckpt__str_is(x->tensors[N - 1].info.name, "layers.99999.weight"));
    ckpt__index_free(x);
    ckpt__buf_free(&b);
}
END_TEST

/* ---- writing */

typedef struct model {
    ckpt__index *x;
    size_t *all;
    const void *payloads[8];
} model;
static char model_bytes[8][64];

static model make_model(void)
{
    model m = {.x = ckpt__index_new(0)};
    static const int64_t two_three[] = {2, 3}, five[] = {5}, two[] = {2}, zero[] = {0, 4};
    add_tensor_to(m.x, "b.half", CKPT_F16, 1, five, "cuda:0", CKPT_ROLE_PARAM);
    add_tensor_to(m.x, "a.bytes", CKPT_U8, 1, five, "cuda:0", CKPT_ROLE_BUFFER);
    add_tensor_to(m.x, "z", CKPT_F32, 2, two_three, "cuda:1", CKPT_ROLE_EXP_AVG);
    add_tensor_to(m.x, "step", CKPT_I64, 0, NULL, "cpu", CKPT_ROLE_STEP);
    add_tensor_to(m.x, "a", CKPT_F32, 2, two_three, "cuda:0", CKPT_ROLE_PARAM);
    add_tensor_to(m.x, "c", CKPT_C128, 1, two, "cpu", CKPT_ROLE_OTHER);
    add_tensor_to(m.x, "none", CKPT_F32, 2, zero, "cpu", CKPT_ROLE_OTHER);
    add_view_to(m.x, "tied", 4, CKPT_F32, 2, two_three, NULL, 0);
    for (size_t i = 0; i < 8; i++) {
        memset(model_bytes[i], (int)i + 65, sizeof model_bytes[i]);
        m.payloads[i] = model_bytes[i == 7 ? 4 : i];
    }
    m.all = all_tensors(m.x);
    return m;
}

static void free_model(model *m)
{
    ckpt__index_free(m->x);
    free(m->all);
}

static ckpt_status write_plain(const model *m, const ckpt_value *root, ckpt_report *lost, ckpt__buf *out,
                               ckpt_error *err)
{
    ckpt__recipe *r = NULL;
    ckpt__write_request q = {
        .index = m->x, .tensors = m->all, .count = m->x->tensor_count, .root = root, .step = 7, .lost = lost};
    ckpt_status status = ckpt__format_safetensors.write(&q, &r, err);
    if (status == CKPT_OK)
        status = apply_recipe(r, m->payloads, NULL, out, err);
    ckpt__recipe_free(r);
    return status;
}

static const ckpt_value *some_values(ckpt__arena *a)
{
    ckpt_entry in[3] = {{ckpt__value_str(a, "format", 6), ckpt__value_str(a, "np", 2)},
                        {ckpt__value_str(a, "n", 1), ckpt__value_int(a, 1)},
                        {ckpt__value_str(a, "ckpt", 4), ckpt__value_str(a, "x", 1)}};
    ckpt_entry top[2] = {{ckpt__value_str(a, "__metadata__", 12), ckpt__value_dict(a, in, 3)},
                         {ckpt__value_str(a, "lr", 2), ckpt__value_float(a, 0.1)}};
    return ckpt__value_dict(a, top, 2);
}

START_TEST(writes)
{
    model m = make_model();
    ckpt__buf file = {0};
    ckpt__index *y;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *lost = ckpt_report_new();
    ck_assert_msg(write_plain(&m, NULL, lost, &file, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(read_bytes(file.data, file.size, NULL, &y, &err), CKPT_OK);
    ck_assert_str_eq(y->format, "safetensors");
    static const char *const order[] = {"step", "a", "none", "tied", "z", "b.half", "a.bytes", "c"};
    ck_assert_uint_eq(y->tensor_count, 8);
    for (size_t i = 0; i < 8; i++) {
        const ckpt__tensor *t = &y->tensors[i], *was = tensor_named(m.x, order[i]);
        const ckpt__extent *e = &y->storages[t->storage].extent;
        ck_assert_msg(ckpt__str_is(t->info.name, order[i]), "%zu: %s", i, t->info.name.data);
        ck_assert_uint_eq(t->info.nbytes, was->info.nbytes);
        if (t->info.nbytes)
            ck_assert_mem_eq(file.data + e->offset, m.payloads[was - m.x->tensors], e->size);
    }
    ck_assert_uint_eq(y->storages[0].extent.offset % 4096, 0);
    ck_assert(ckpt__str_is(ckpt_value_get(ckpt_value_get(y->root, "__metadata__"), "format")->text, "pt"));
    ck_assert(tensor_named(y, "c")->info.dtype == CKPT_U8 && tensor_named(y, "c")->info.shape[0] == 32);
    ck_assert(ckpt_report_find(lost, "lost", "c") &&
              strstr(ckpt_report_find(lost, "lost", "c")->message, "complex128"));
    ck_assert(ckpt_report_find(lost, "lost", "tied") &&
              strstr(ckpt_report_find(lost, "lost", "tied")->message, "copy"));
    ck_assert_uint_eq(ckpt_report_count(lost), 5); /* and device tags, roles, the step */
    ckpt__index_free(y);
    ckpt__buf_free(&file);
    ckpt_report_free(lost);
    free_model(&m);
}
END_TEST

/* Their bytes alone would be other values, and safetensors cannot say so. */
START_TEST(lazy_views_stay_out)
{
    model m = make_model();
    ckpt__buf file = {0};
    ckpt__index *y;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *lost = ckpt_report_new();
    m.x->tensors[0].info.neg = true;
    m.x->tensors[2].info.conj = true;
    ck_assert_int_eq(write_plain(&m, NULL, lost, &file, &err), CKPT_OK);
    ck_assert_int_eq(read_bytes(file.data, file.size, NULL, &y, &err), CKPT_OK);
    ck_assert_uint_eq(y->tensor_count, 6);
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(lost, "lost", "b.half")->message, "negated view"));
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(lost, "lost", "z")->message, "conjugate view"));
    ckpt__index_free(y);
    ckpt__buf_free(&file);
    ckpt_report_free(lost);
    free_model(&m);
}
END_TEST

/* Each dtype that the format has fits, of any size; but elements that end within a byte. */
START_TEST(fits_by_dtype_and_whole_bytes)
{
    static const int64_t huge[] = {INT64_C(1) << 30, INT64_C(1) << 30}, three[] = {3};
    ckpt_tensor_info info = {.dtype = CKPT_F32, .ndim = 2, .shape = huge, .nbytes = UINT64_C(1) << 62};
    ck_assert(ckpt__st_fits(&info));
    info.nbytes--;
    ck_assert(!ckpt__st_fits(&info));
    info = (ckpt_tensor_info){.dtype = CKPT_F6_E2M3, .ndim = 1, .shape = three, .nbytes = 3};
    ck_assert(!ckpt__st_fits(&info));
    model m = make_model();
    ckpt__buf file = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *lost = ckpt_report_new();
    ckpt_tensor_info *a = &m.x->tensors[4].info;
    a->dtype = info.dtype;
    a->ndim = info.ndim;
    a->shape = three;
    a->strides = NULL;
    a->nbytes = 3;
    ck_assert_int_eq(write_plain(&m, NULL, lost, &file, &err), CKPT_OK);
    const ckpt_finding *f = ckpt_report_find(lost, "lost", "a");
    ck_assert_ptr_nonnull(f);
    ck_assert_str_eq(f->message, "its float6_e2m3 elements do not fill whole bytes: written as uint8 of 3 bytes");
    ckpt__buf_free(&file);
    ckpt_report_free(lost);
    free_model(&m);
}
END_TEST

START_TEST(writes_metadata)
{
    model m = make_model();
    ckpt__buf file = {0};
    ckpt__index *y;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *lost = ckpt_report_new();
    ck_assert_int_eq(write_plain(&m, some_values(m.x->arena), lost, &file, &err), CKPT_OK);
    ck_assert_int_eq(read_bytes(file.data, file.size, NULL, &y, &err), CKPT_OK);
    const ckpt_value *kept = ckpt_value_get(y->root, "__metadata__");
    ck_assert(kept->entry_count == 1 && ckpt__str_is(ckpt_value_get(kept, "format")->text, "np"));
    ck_assert_uint_eq(ckpt_report_count(lost), 7); /* __metadata__.n and lr */
    ckpt__index_free(y);
    ckpt__buf_free(&file);
    ckpt_report_free(lost);
    free_model(&m);
}
END_TEST

START_TEST(refuses_to_write)
{
    model m = make_model();
    ckpt__buf file = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *lost = ckpt_report_new();
    m.x->tensors[0].info.name = ckpt__s("__metadata__");
    ck_assert_int_eq(write_plain(&m, NULL, lost, &file, &err), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.object, "__metadata__");
    m.x->tensors[0].info.name = ckpt__s("a"); /* twice: the second stays out, and is listed */
    ck_assert_int_eq(write_plain(&m, NULL, lost, &file, &err), CKPT_OK);
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(lost, "lost", "a")->message, "same name"));
    ckpt__buf_free(&file);
    ckpt_report_free(lost);
    free_model(&m);
}
END_TEST

START_TEST(header_limit)
{
    ckpt__buf b = {0};
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert(ckpt__buf_reserve(&b, CKPT__ST_HEADER_MAX + 9000));
    b.size = 8 + CKPT__ST_HEADER_MAX - 8192;
    memset(b.data, 'x', b.size);
    ck_assert_int_eq(ckpt__st_finish_header(&b, &err), CKPT_OK);
    ck_assert_uint_eq(b.size % 4096, 0);
    b.size = 8 + CKPT__ST_HEADER_MAX + 1;
    ck_assert_int_eq(ckpt__st_finish_header(&b, &err), CKPT_E_LIMIT);
    ckpt__buf_free(&b);
}
END_TEST

/* ---- what is no checkpoint */

START_TEST(names_strangers)
{
    static const struct {
        const char *bytes;
        size_t n;
        ckpt_status status;
        const char *says;
    } strangers[] = {
        {"GGUF\3\0\0\0........", 16, CKPT_E_UNSUPPORTED, "GGUF"},
        {"\x93NUMPY\1\0v\0{'descr'", 18, CKPT_E_UNSUPPORTED, "NumPy"},
        {"\0\0\0\0\0\0\0\0\0\0\0\0", 12, CKPT_E_FORMAT, "zero"},
        {"version https://git-lfs.github.com/spec/v1", 42, CKPT_E_UNSUPPORTED, "git lfs pull"},
        {"hello, world", 12, CKPT_E_FORMAT, "unknown format"},
    };
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        ckpt__index *x;
        ckpt_error err = CKPT_ERROR_INIT;
        ck_assert_int_eq(read_bytes(strangers[i].bytes, strangers[i].n, NULL, &x, &err), strangers[i].status);
        ck_assert_msg(strstr(err.message, strangers[i].says), "%s", err.message);
    }
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(read_path(scratch, NULL, &x, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "checkpoint.json"));
    ck_assert_int_eq(read_bytes("{}", 2, "orbax", &x, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "ckpt, safetensors"));
    ck_assert_ptr_eq(ckpt__format_find("safetensors"), &ckpt__format_safetensors);
}
END_TEST

/* ---- real files, where the environment names a directory of them: those called hostile/st-* are refused, others there
 * attack what is around them, the rest is read */

static int files_seen;

static void try_file(const char *path)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    bool hostile = strstr(path, "/hostile/st-") != NULL;
    ckpt_status status = read_path(path, NULL, &x, &err);
    ck_assert_msg(hostile ? status == CKPT_E_FORMAT || status == CKPT_E_DAMAGED || status == CKPT_E_LIMIT
                          : status == CKPT_OK,
                  "%s: %d %s", path, status, err.message);
    ck_assert_msg(hostile || x->tensor_count > 0, "%s: no tensors", path);
    ckpt__index_free(x);
    files_seen++;
}

static void try_directory(const char *path, int depth)
{
    char name[1024];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (n > 12 && strcmp(e->d_name + n - 12, ".safetensors") == 0)
            try_file(name);
        else if (depth < 4 && e->d_name[0] != '.' && (e->d_type == DT_DIR || e->d_type == DT_UNKNOWN))
            try_directory(name, depth + 1);
    }
    if (d)
        closedir(d);
}

START_TEST(real_files)
{
    const char *directory = getenv("CKPT_CHECKPOINTS");
    if (!directory)
        return;
    try_directory(directory, 0);
    ck_assert_int_gt(files_seen, 0);
}
END_TEST

/* Texts of one tensor: is it read without the lexer? */
static const struct plain_text {
    const char *text;
    bool quick;
} plain_texts[] = {
    {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", true},
    {"{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}", true},
    {"{\"dtype\":\"F8_E4M3\",\"shape\":[0],\"data_offsets\":[0,0]}", true},
    {"{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,2]}", true},
    {"{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,2]}", false},
    {"{\"dtype\":\"U8\",\"shape\":[999999999999999999],\"data_offsets\":[0,999999999999999999]}", true},
    {"{\"dtype\":\"U8\",\"shape\":[1000000000000000000],\"data_offsets\":[0,1]}", false},
    {"{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,1]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[02,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[-2,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2.0,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2,3,],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[,],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24,48]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24],\"more\":1}", false},
    {"{\"dtype\":\"F33\",\"shape\":[2,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"\",\"shape\":[2,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32F32F32F32F32F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", false},
    {"{\"shape\":[2,3],\"dtype\":\"F32\",\"data_offsets\":[0,24]}", false},
    {"{\"dtype\": \"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F\\u0033\\u0032\",\"shape\":[2,3],\"data_offsets\":[0,24]}", false},
    {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,0]}", true},
    {"{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,24]}", true},
};

/* The tensor of a header that has such a text, or its status. */
static ckpt_status read_plain(const char *before, const char *text, ckpt__index **x)
{
    char header[300];
    ckpt_error err = CKPT_ERROR_INIT;
    snprintf(header, sizeof header, "{%s%s}", before, text);
    return read_header(header, 0,
                       strstr(text, "[0,24")  ? 24
                       : strstr(text, "[0,4") ? 4
                       : strstr(text, "[0,2") ? 2
                                              : 0,
                       x, &err);
}

/* Every text is what the lexer says of it, which a space before the object keeps it for; and no bytes behind its end are looked at. */
START_TEST(plain_tensors_are_read_quickly)
{
    ckpt__st_quick q = {0};
    for (size_t i = 0; i < sizeof plain_texts / sizeof *plain_texts; i++) {
        const char *text = plain_texts[i].text;
        const size_t n = strlen(text);
        for (size_t k = 0; k < n; k++) {
            char *part = malloc(k + 1);
            memcpy(part, text, k);
            ck_assert_uint_eq(ckpt__st_read_quickly(part, k, &q), 0);
            free(part);
        }
        ck_assert_msg(ckpt__st_read_quickly(text, n, &q) == (plain_texts[i].quick ? n : 0), "%s", text);
        ckpt__index *x = NULL, *y = NULL;
        const ckpt_status quickly = read_plain("\"a\":", text, &x), slowly = read_plain("\"a\": ", text, &y);
        ck_assert_msg(quickly == slowly, "%s: %d and %d", text, (int)quickly, (int)slowly);
        if (quickly == CKPT_OK) {
            const ckpt_tensor_info *a = &x->tensors[0].info, *b = &y->tensors[0].info;
            ck_assert(a->dtype == b->dtype && a->ndim == b->ndim && a->nbytes == b->nbytes);
            ck_assert(!a->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
            ckpt__index_free(x);
            ckpt__index_free(y);
        }
    }
    ck_assert_uint_gt(ckpt__st_read_quickly(plain_texts[0].text, strlen(plain_texts[0].text), &q), 0);
    ck_assert(q.dtype == CKPT_F32 && q.ndim == 2 && q.shape[0] == 2 && q.shape[1] == 3 && q.offsets[1] == 24);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_unchecked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, reads);
    tcase_add_test(t, sorts_by_offset);
    tcase_add_test(t, refuses);
    tcase_add_test(t, refuses_lengths);
    tcase_add_test(t, truncated_anywhere);
    tcase_add_test(t, notes_unknown_keys);
    tcase_add_test(t, many_tensors);
    tcase_add_test(t, writes);
    tcase_add_test(t, lazy_views_stay_out);
    tcase_add_test(t, fits_by_dtype_and_whole_bytes);
    tcase_add_test(t, writes_metadata);
    tcase_add_test(t, refuses_to_write);
    tcase_add_test(t, header_limit);
    tcase_add_test(t, names_strangers);
    tcase_add_test(t, plain_tensors_are_read_quickly);
    tcase_add_test(t, real_files);
    suite_add_tcase(s, t);
    return run_suite(s);
}
