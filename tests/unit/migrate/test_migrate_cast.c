/* test_migrate_cast.c - --cast and what its globs are about, through migrate; float4, of which a byte holds two. */
#include "../migrate_setup.h"

/* A safetensors file of this header, and bytes that count up from 0. */
static const char *write_file(const char *name, const char *header, size_t size)
{
    FILE *f = fopen(at("%s", name), "wb");
    ck_assert_ptr_nonnull(f);
    uint64_t n = strlen(header);
    ck_assert(fwrite(&n, 1, 8, f) == 8 && fwrite(header, 1, n, f) == n);
    for (size_t i = 0; i < size; i++)
        ck_assert_int_ne(fputc((int)i, f), EOF);
    fclose(f);
    return at("%s", name);
}

static void is(const char *path, const char *name, ckpt_dtype dtype, uint32_t ndim, int64_t rows, int64_t columns)
{
    ckpt_reader *r = opened(path);
    size_t i;
    unsigned char data[8];
    ck_assert_msg(ckpt_reader_find(r, name, strlen(name), &i, &err) == CKPT_OK, "%s: no %s", path, name);
    const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
    ck_assert_str_eq(ckpt_dtype_name(t->dtype), ckpt_dtype_name(dtype));
    ck_assert_uint_eq(t->ndim, ndim);
    ck_assert_int_eq(t->shape[0], rows);
    ck_assert(ndim == 1 || t->shape[1] == columns);
    ck_assert_uint_le(t->nbytes, sizeof data);
    ck_assert_int_eq(ckpt_reader_read(r, i, data, t->nbytes, &err), CKPT_OK);
    for (size_t k = 0; k < t->nbytes; k++)
        ck_assert_uint_eq(data[k], k);
    ckpt_reader_close(r);
}

static const char float4[] = "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,8],\"data_offsets\":[0,8]}}",
                  odd[] = "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]},"
                          "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}";

/* Torch counts bytes and safetensors values. */
START_TEST(float4_is_the_same_bytes)
{
    migrates(write_file("f4.safetensors", float4, 8), "torch", at("f4.pt"));
    is(at("f4.pt"), "a", CKPT_F4_E2M1_X2, 2, 2, 4);
    options.lossy = true; /* the device tag */
    migrates(at("f4.pt"), "safetensors", at("back.safetensors"));
    is(at("back.safetensors"), "a", CKPT_F4, 2, 2, 8);
    migrates(at("f4.pt"), "hf", at("folder"));
    is(at("folder"), "a", CKPT_F4, 2, 2, 8);
    migrates(at("f4.safetensors"), "safetensors", at("same.safetensors"));
    is(at("same.safetensors"), "a", CKPT_F4, 2, 2, 8);
    migrates(at("f4.pt"), "torch", at("same.pt"));
    is(at("same.pt"), "a", CKPT_F4_E2M1_X2, 2, 2, 4);
}
END_TEST

/* Three values of four bits a row are not whole bytes: torch has no such tensor, and what is said to be lost is not looked for
 * when the rest is read back. */
START_TEST(float4_of_half_bytes)
{
    write_file("odd.safetensors", odd, 7);
    ck_assert_int_eq(migrate(at("odd.safetensors"), "torch", at("odd.pt")), CKPT_E_UNSUPPORTED);
    options.lossy = true;
    migrates(at("odd.safetensors"), "torch", at("odd.pt"));
    ckpt_reader *r = opened(at("odd.pt"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), 1);
    ck_assert_str_eq(ckpt_reader_tensor(r, 0)->name.data, "w");
    ckpt_reader_close(r);
}
END_TEST

static void casts_to(const char *src, const char *cast, ckpt_status want)
{
    const char *const casts[] = {cast};
    options.cast = casts;
    options.cast_count = 1;
    for (int dry = 1; dry >= 0; dry--) {
        options.dry_run = dry;
        ckpt_status status = migrate(src, "torch", at("cast.pt"));
        ck_assert_msg(status == want, "%s%s: %d %s", cast, dry ? " (dry run)" : "", (int)status, err.message);
    }
    options.cast_count = 0;
}

/* What cannot be converted is left alone by a wide glob, and an error of one that names it, in a dry run too. */
START_TEST(what_has_no_conversion)
{
    const char *src = write_file("f4.safetensors", float4, 8);
    casts_to(src, "*=float32", CKPT_OK);
    is(at("cast.pt"), "a", CKPT_F4_E2M1_X2, 2, 2, 4);
    casts_to(src, "a=float32", CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "no conversion from float4_e2m1 to float32"));
    casts_to(src, "*=qint8", CKPT_E_ARGUMENT);
    casts_to(src, "*=float4_e2m1", CKPT_E_ARGUMENT);
    migrates(src, "torch", at("f4.pt"));
    casts_to(at("f4.pt"), "*=bfloat16", CKPT_OK);
    is(at("cast.pt"), "a", CKPT_F4_E2M1_X2, 2, 2, 4);
}
END_TEST

/* A star that is escaped is no wildcard: the glob names its tensor, and converts integers too. */
START_TEST(escaped_globs_are_names)
{
    const char *src =
        write_file("star.safetensors", "{\"a*b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    casts_to(src, "a*b=int8", CKPT_OK);
    is(at("cast.pt"), "a*b", CKPT_U8, 1, 4, 0);
    casts_to(src, "a\\*b=int8", CKPT_OK);
    is(at("cast.pt"), "a*b", CKPT_I8, 1, 4, 0);
}
END_TEST

/* The names of the native file, and canonical ones, are those from before they change. */
START_TEST(names_from_before)
{
    static const char *const strips[] = {"module."};
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "module.a");
    torch_tensor(t, 1, 2, 0, 1);
    PUT(&t->pickle, "uu");
    write_torch(at("in.pt"), t);
    migrates(at("in.pt"), "ckpt", at("mid.ckpt"));
    options.strip_prefix = strips;
    options.strip_prefix_count = 1;
    for (int i = 0; i < 2; i++) {
        casts_to(i ? at("mid.ckpt") : at("in.pt"), "=module.a=bfloat16", CKPT_OK);
        ckpt_reader *r = opened(at("cast.pt"));
        ck_assert_str_eq(ckpt_reader_tensor(r, 0)->name.data, "model.a");
        ck_assert_str_eq(ckpt_dtype_name(ckpt_reader_tensor(r, 0)->dtype), "bfloat16");
        ckpt_reader_close(r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_cast");
    TCase *t = tcase_create("cast");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, float4_is_the_same_bytes);
    tcase_add_test(t, float4_of_half_bytes);
    tcase_add_test(t, what_has_no_conversion);
    tcase_add_test(t, escaped_globs_are_names);
    tcase_add_test(t, names_from_before);
    suite_add_tcase(s, t);
    return run_suite(s);
}
