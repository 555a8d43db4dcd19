/* Files of Keras, as Keras and h5py wrote them (tests/data/keras, with the script): every tensor, what each is, values; files
 * that a reader must refuse, cut files and files with flipped bytes. Without libhdf5: that they are named. */
#include <ckpt/ckpt.h>
#include <pthread.h>
#include <string.h>
#include "codec/crc32.h"
#include "codec/zip.h"
#include "format/format.h"
#include "reader/reader.h"
#include "../runner.h"
#include "../scratch.h"

static const char *data_file(const char *name)
{
    static char path[4][1200];
    static int turn;
    const char *srcdir = getenv("srcdir");
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/tests/data/keras/%s", srcdir ? srcdir : ".", name);
    return path[turn];
}

static ckpt_error err;

#ifndef HAVE_HDF5

START_TEST(names_what_is_missing)
{
    static const char *const names[] = {"small.keras", "small.h5", "shards"};
    ckpt_reader *r;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(ckpt_reader_open(data_file(names[i]), NULL, &r, &err), CKPT_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.message, "HDF5 (Keras)") && strstr(err.message, "--with-hdf5"), "%s", err.message);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("keras");
    TCase *t = tcase_create("without libhdf5");
    tcase_add_test(t, names_what_is_missing);
    suite_add_tcase(s, t);
    return run_suite(s);
}

#else
#include <hdf5.h>

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s is not there", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n + 1);
    ck_assert_uint_eq(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

static void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

static ckpt_reader *opened(const char *path)
{
    ckpt_reader *r = NULL;
    ckpt_status status = ckpt_reader_open(path, NULL, &r, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s: %s", path, err.object, err.message);
    return r;
}

static const ckpt_tensor_info *named(const ckpt_reader *r, const char *name, size_t *i)
{
    ckpt_status status = ckpt_reader_find(r, name, strlen(name), i, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", name, err.message);
    return ckpt_reader_tensor(r, *i);
}

/* ---- what h5py reads */

static void shape_text(const ckpt_tensor_info *t, char *out, size_t size)
{
    size_t n = 0;
    snprintf(out, size, "-");
    for (uint32_t i = 0; i < t->ndim; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? "," : "", (long long)t->shape[i]);
}

/* Lines of expected.txt: file, name, dtype, shape, CRC. f4 and the like are h5py's names of big-endian ones. */
static size_t check_expected(const char *file, const char *path)
{
    FILE *f = fopen(data_file("expected.txt"), "r");
    char in[64], name[200], dtype[32], shape[64], have[64];
    unsigned want;
    size_t count = 0;
    ckpt_reader *r = opened(path);
    while (f && fscanf(f, "%63s %199s %31s %63s %x", in, name, dtype, shape, &want) == 5) {
        size_t i;
        uint32_t crc;
        if (strcmp(in, file) != 0)
            continue;
        const ckpt_tensor_info *t = named(r, name, &i);
        const char *is = strcmp(dtype, "f8") == 0 ? "float64" : strcmp(dtype, "i2") == 0 ? "int16" : dtype;
        ck_assert_str_eq(ckpt_dtype_name(t->dtype), is);
        shape_text(t, have, sizeof have);
        ck_assert_str_eq(have, shape);
        ck_assert_int_eq(ckpt_reader_crc32(r, i, &crc, &err), CKPT_OK);
        ck_assert_msg(crc == want, "%s of %s: CRC %08x, expected %08x", name, file, crc, want);
        char *bytes = malloc((size_t)t->nbytes + 1);
        ck_assert_int_eq(ckpt_reader_read(r, i, bytes, (size_t)t->nbytes, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt__crc32(0, bytes, (size_t)t->nbytes), want);
        free(bytes);
        count++;
    }
    fclose(f);
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), count);
    ckpt_reader_close(r);
    return count;
}

/* A shard that the map names is not there: the others are listed, and a finding names it. */
START_TEST(a_missing_shard)
{
    char command[1200];
    ckpt_reader *r = NULL;
    ckpt_reader_options leave = {.leave_damaged = true};
    ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    snprintf(command, sizeof command, "cp -r '%s' c && chmod -R u+w c && rm c/small_00001.weights.h5",
             data_file("shards"));
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(ckpt_reader_open("c", NULL, &r, &err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "names the shard small_00001.weights.h5, which is missing"), "%s", err.message);
    ck_assert_int_eq(ckpt_verify("c", NULL, &verified, report, &err), CKPT_ANSWER_NO);
    const ckpt_finding *f = ckpt_report_find(report, "shard-missing", NULL);
    ck_assert(f && strcmp(f->file, "small_00001.weights.h5") == 0 && strstr(f->fix, "small_00001.weights.h5"));
    ck_assert_msg(ckpt_reader_open("c", &leave, &r, &err) == CKPT_OK, "%s", err.message);
    size_t count = ckpt_reader_tensor_count(r);
    ck_assert_uint_gt(count, 0);
    ck_assert_uint_lt(count, 28);
    ck_assert_int_eq(ckpt_doctor(r, NULL, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "shard-missing", NULL));
    ckpt_doctor_result_clear(&result);
    ckpt_reader_close(r);
    ckpt_report_free(report);
    ck_assert_int_eq(system("rm -rf c"), 0);
}
END_TEST

/* One that is cut is a finding, and the other is read: by verify, list and a salvage. */
START_TEST(a_cut_shard)
{
    char command[1200];
    ckpt_reader *r = NULL;
    ckpt_reader_options leave = {.leave_damaged = true}, salvage = {.salvage = true};
    const ckpt_reader_options *const options[] = {&leave, &salvage};
    ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    snprintf(command, sizeof command, "cp -r '%s' c && chmod -R u+w c && truncate -s 5000 c/small_00001.weights.h5",
             data_file("shards"));
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(ckpt_reader_open("c", NULL, &r, &err), CKPT_E_DAMAGED);
    ck_assert_int_eq(ckpt_verify("c", NULL, &verified, report, &err), CKPT_ANSWER_NO);
    const ckpt_finding *f = ckpt_report_find(report, "truncated", NULL);
    ck_assert(f && strcmp(f->file, "small_00001.weights.h5") == 0);
    ck_assert(verified.tensors > 0 && verified.tensors < 28);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_msg(ckpt_reader_open("c", options[i], &r, &err) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(ckpt_reader_tensor_count(r), verified.tensors);
        ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(r), "truncated", NULL));
        ckpt_reader_close(r);
    }
    ckpt_report_free(report);
    ck_assert_int_eq(system("rm -rf c"), 0);
}
END_TEST

START_TEST(every_tensor)
{
    ck_assert_uint_eq(check_expected("small.keras", data_file("small.keras")), 28);
    ck_assert_uint_eq(check_expected("small.keras", data_file("deflated.keras")), 28);
    ck_assert_uint_eq(check_expected("small.keras", data_file("shards")), 28);
    ck_assert_uint_eq(check_expected("small.keras", data_file("shards/small.weights.json")), 28);
    ck_assert_uint_eq(check_expected("small.h5", data_file("small.h5")), 28);
    ck_assert_uint_eq(check_expected("module.weights.h5", data_file("module.weights.h5")), 2);
    ck_assert_uint_eq(check_expected("coded.h5", data_file("coded.h5")), 18);
}
END_TEST

/* Nothing is decoded that can be read in place. */
typedef struct bytes {
    const char *data;
} bytes;

static ckpt_status read_bytes(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *e)
{
    (void)e;
    memcpy(dst, ((const bytes *)ctx)->data + offset, n);
    return CKPT_OK;
}

/* save_model with zipped=False: the archive's members as files. */
START_TEST(an_unpacked_archive)
{
    static const char *const members[] = {"config.json", "metadata.json", "model.weights.h5"};
    size_t n;
    char *data = slurp(data_file("small.keras"), &n), path[64];
    bytes all = {data};
    const ckpt__zip_input input = {read_bytes, &all, n, "small.keras"};
    ckpt__zip *zip;
    ck_assert_int_eq(ckpt__zip_open(&input, &zip, &err), CKPT_OK);
    ck_assert_int_eq(system("rm -rf u && mkdir -p u/assets"), 0);
    for (size_t i = 0; i < 3; i++) {
        ckpt__buf member = {0};
        const ckpt__zip_record *r = ckpt__zip_find(zip, members[i], strlen(members[i]));
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(ckpt__zip_read(zip, r, 1 << 20, &member, &err), CKPT_OK);
        snprintf(path, sizeof path, "u/%s", members[i]);
        put_file(path, member.data, member.size);
        ckpt__buf_free(&member);
    }
    ckpt__zip_free(zip);
    free(data);
    ck_assert_uint_eq(check_expected("small.keras", "u"), 28);
    ckpt_reader *r = opened("u"), *packed = opened(data_file("small.keras"));
    ck_assert_uint_eq(r->index->root->entry_count, packed->index->root->entry_count);
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++)
        ck_assert_int_eq(ckpt_reader_tensor(r, i)->role, ckpt_reader_tensor(packed, i)->role);
    ckpt_reader_close(r);
    ckpt_reader_close(packed);
    /* Without one of the three it is none: a model of transformers has a config.json, too. */
    ck_assert_int_eq(system("rm u/metadata.json"), 0);
    ck_assert_int_ne(ckpt_reader_open("u", NULL, &r, &err), CKPT_OK);
    ck_assert_int_eq(system("rm -rf u"), 0);
}
END_TEST

START_TEST(where_bytes_lie)
{
    static const struct {
        const char *name;
        size_t pieces; /* 1: whole */
        bool memory;
    } rows[] = {{"contiguous", 1, false}, {"chunks", 9, false}, {"gzip", 9, false},      {"big_chunks", 4, false},
                {"shuffled", 1, true},    {"checked", 1, true}, {"holes", 1, true},      {"unwritten", 1, true},
                {"compact", 1, true},     {"bf16", 1, false},   {"big_endian", 1, false}};
    ckpt_reader *r = opened(data_file("coded.h5"));
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        size_t i;
        named(r, rows[k].name, &i);
        const ckpt__tensor *t = &r->index->tensors[i];
        ck_assert_msg(ckpt__view_count(t) == rows[k].pieces, "%s: %zu", rows[k].name, ckpt__view_count(t));
        const ckpt__extent *e = &r->index->storages[ckpt__view_of(r->index, t, 0).storage].extent;
        ck_assert_msg((e->memory != NULL) == rows[k].memory, "%s", rows[k].name);
    }
    ckpt_reader_close(r);
}
END_TEST

/* ---- what each is */

static void check_slot(const char *file, const char *name, ckpt_role role, const char *key, const char *param)
{
    size_t i;
    ckpt_reader *r = opened(data_file(file));
    const ckpt_tensor_info *t = named(r, name, &i);
    ck_assert_msg(t->role == role, "%s of %s is %s", name, file, ckpt_role_name(t->role));
    ck_assert_str_eq(t->state_key.data ? t->state_key.data : "", key);
    ck_assert_str_eq(t->param.data ? t->param.data : "", param);
    ckpt_reader_close(r);
}

START_TEST(roles)
{
    check_slot("small.keras", "layers/batch_normalization/vars/1", CKPT_ROLE_PARAM, "", "");
    check_slot("small.keras", "layers/batch_normalization/vars/2", CKPT_ROLE_BUFFER, "", "");
    check_slot("small.keras", "optimizer/vars/0", CKPT_ROLE_OPTIM, "iteration", "");
    check_slot("small.keras", "optimizer/vars/1", CKPT_ROLE_OPTIM, "learning_rate", "");
    check_slot("small.keras", "optimizer/vars/2", CKPT_ROLE_EXP_AVG, "momentum", "layers/conv2d/vars/0");
    check_slot("small.keras", "optimizer/vars/9", CKPT_ROLE_EXP_AVG_SQ, "velocity",
               "layers/batch_normalization/vars/1");
    check_slot("small.keras", "optimizer/vars/16", CKPT_ROLE_EXP_AVG, "momentum", "layers/dense_1/vars/1");
    /* without config.json: what shapes leave open is not known */
    check_slot("shards", "optimizer/vars/9", CKPT_ROLE_EXP_AVG_SQ, "velocity", "");
    check_slot("shards", "optimizer/vars/11", CKPT_ROLE_EXP_AVG_SQ, "velocity", "");
    check_slot("small.h5", "optimizer_weights/adam/first_bias_velocity", CKPT_ROLE_EXP_AVG_SQ, "velocity",
               "model_weights/first/first/bias");
    check_slot("small.h5", "optimizer_weights/adam/iteration", CKPT_ROLE_OPTIM, "iteration", "");
    check_slot("coded.h5", "contiguous", CKPT_ROLE_NONE, "", "");
}
END_TEST

static void check_text(const char *file, const char *path, const char *want)
{
    const ckpt_value *v;
    ckpt_reader *r = opened(data_file(file));
    ck_assert_msg(ckpt_value_find(ckpt_reader_root(r), path, &v, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(v->kind, CKPT_V_STR);
    ck_assert_str_eq(v->text.data, want);
    ckpt_reader_close(r);
}

START_TEST(values)
{
    const ckpt_value *v;
    check_text("small.keras", "metadata.json.keras_version", "3.15.1");
    check_text("small.keras", "config.json.compile_config.optimizer.class_name", "Adam");
    check_text("small.keras", "layers/dense_1/vars@name", "head");
    check_text("small.h5", "@keras_version", "3.15.1");
    check_text("small.h5", "model_weights/head@weight_names", "['head/kernel' 'head/bias']");
    check_text("small.h5", "model_weights@layer_names",
               "['image' 'first' 'batch_normalization' 'flatten' 'dense' 'head']");
    check_text("shards", "small.weights.json.weight_map./layers/conv2d/vars.0", "small_00000.weights.h5");
    check_text("shards/small.weights.json", "small.weights.json.weight_map./layers/conv2d/vars.0",
               "small_00000.weights.h5");
    check_text("coded.h5", "@names", "[\"it's\" 'b']");
    check_text("coded.h5", "@fixed", "abc");
    ckpt_reader *r = opened(data_file("coded.h5"));
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(r), "@int", &v, &err), CKPT_OK);
    ck_assert_int_eq(v->integer, -5);
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(r), "@big", &v, &err), CKPT_OK);
    ck_assert_int_eq(v->kind, CKPT_V_BIGINT);
    ck_assert_str_eq(v->text.data, "18446744073709551615");
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(r), "@ints.2", &v, &err), CKPT_OK);
    ck_assert_int_eq(v->integer, 3);
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(r), "@bool", &v, &err), CKPT_OK);
    ck_assert(v->kind == CKPT_V_BOOL && v->boolean);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(r), "attribute-unread"), 1);
    ckpt_reader_close(r);
}
END_TEST

/* ---- what is refused */

START_TEST(refused)
{
    static const struct {
        const char *file, *says;
        ckpt_status status;
    } rows[] = {
        {"bad-soft-link.h5", "soft link", CKPT_E_UNSUPPORTED},
        {"bad-external-link.h5", "external link", CKPT_E_UNSUPPORTED},
        {"bad-cycle.h5", "another name", CKPT_E_UNSUPPORTED},
        {"bad-two-names.h5", "another name", CKPT_E_UNSUPPORTED},
        {"bad-external-storage.h5", "external storage", CKPT_E_UNSUPPORTED},
        {"bad-virtual.h5", "virtual", CKPT_E_UNSUPPORTED},
        {"bad-texts.h5", "texts", CKPT_E_UNSUPPORTED},
        {"bad-lists.h5", "lists", CKPT_E_UNSUPPORTED},
        {"bad-compound.h5", "compounds", CKPT_E_UNSUPPORTED},
        {"bad-reference.h5", "references", CKPT_E_UNSUPPORTED},
        {"bad-opaque.h5", "opaque", CKPT_E_UNSUPPORTED},
        {"bad-filter.h5", "filter 32000", CKPT_E_UNSUPPORTED},
        {"bad-bomb.h5", "64 MiB", CKPT_E_LIMIT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckpt_reader *r = NULL;
        ckpt_status status = ckpt_reader_open(data_file(rows[i].file), NULL, &r, &err);
        ck_assert_msg(status == rows[i].status, "%s: %d: %s", rows[i].file, status, err.message);
        ck_assert_msg(strstr(err.message, rows[i].says) != NULL, "%s: %s", rows[i].file, err.message);
        ck_assert_ptr_null(r);
    }
}
END_TEST

/* HDF5 2.0 wrote it: an older libhdf5 says that it is too new, and not that it is damaged. */
START_TEST(a_newer_structure)
{
    ckpt_reader *r = NULL;
    float content[12] = {0};
    ckpt_status status = ckpt_reader_open(data_file("newer.h5"), NULL, &r, &err);
    if (status == CKPT_OK) {
        ck_assert_int_eq(ckpt_reader_read(r, 0, content, sizeof content, &err), CKPT_OK);
        ck_assert(content[11] == 11);
    } else {
        ck_assert_msg(status == CKPT_E_TOO_NEW && strstr(err.message, "a newer HDF5 wrote the file"), "%d: %s", status,
                      err.message);
    }
    ckpt_reader_close(r);
}
END_TEST

static hid_t made(const char *path)
{
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(f >= 0);
    return f;
}

static ckpt_status open_made(const char *path)
{
    ckpt_reader *r = NULL;
    ckpt_status status = ckpt_reader_open(path, NULL, &r, &err);
    ckpt_reader_close(r);
    return status;
}

START_TEST(too_deep)
{
    enum { DEEP = 140 };
    hid_t f = made("deep.h5"), at = f;
    for (int i = 0; i < DEEP; i++) {
        hid_t next = H5Gcreate2(at, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert(next >= 0);
        if (at != f)
            H5Gclose(at);
        at = next;
    }
    H5Gclose(at);
    H5Fclose(f);
    ck_assert_int_eq(open_made("deep.h5"), CKPT_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.message, "128"));
}
END_TEST

/* One long text, and many short ones that may all be the long one: only reading them would tell. */
START_TEST(texts_without_end)
{
    enum { SHORT = 3500, LONG = 20000 };
    hid_t f = made("texts.h5"), type = H5Tcopy(H5T_C_S1);
    hsize_t count = SHORT;
    char **texts = calloc(SHORT, sizeof *texts), *text = malloc(LONG + 1);
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    H5Tset_size(type, H5T_VARIABLE);
    for (size_t i = 0; i < SHORT; i++)
        texts[i] = i ? (char *)(uintptr_t) "y" : text;
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    hid_t attribute = H5Acreate2(f, "a", type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(attribute >= 0 && H5Awrite(attribute, type, texts) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(list);
    H5Fclose(f);
    ck_assert_int_eq(open_made("texts.h5"), CKPT_E_LIMIT);
    ck_assert_msg(strstr(err.message, "16 MiB") != NULL, "%s", err.message);
    free(texts);
    free(text);
}
END_TEST

/* ---- damage */

static void look_at(const char *path, size_t *read, size_t *not_read)
{
    ckpt_reader *r = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    if (ckpt_reader_open(path, NULL, &r, &why) < 0) {
        ck_assert_msg(why.message[0], "%s: no message", path);
        ++*not_read;
        return;
    }
    uint32_t crc;
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++)
        (void)ckpt_reader_crc32(r, i, &crc, &why);
    ++*read;
    ckpt_reader_close(r);
}

START_TEST(cut_anywhere)
{
    static const char *const files[] = {"small.keras", "coded.h5", "deflated.keras"};
    for (size_t k = 0; k < 3; k++) {
        size_t n, read = 0, not_read = 0;
        char *all = slurp(data_file(files[k]), &n);
        for (size_t cut = 9; cut < n; cut += 997) {
            put_file("cut", all, cut);
            look_at("cut", &read, &not_read);
        }
        free(all);
        ck_assert_msg(read == 0, "%zu cut files of %s were read", read, files[k]);
    }
}
END_TEST

START_TEST(flipped_anywhere)
{
    size_t n, read = 0, not_read = 0;
    char *all = slurp(data_file("coded.h5"), &n);
    unsigned seed = 1;
    for (size_t i = 0; i < 300; i++) {
        seed = seed * 1103515245u + 12345u;
        size_t at = (seed >> 4) % n;
        char kept = all[at];
        all[at] = (char)(all[at] ^ (1 << (seed >> 28 & 7)));
        put_file("flipped", all, n);
        look_at("flipped", &read, &not_read);
        all[at] = kept;
    }
    free(all);
    ck_assert_uint_gt(not_read, 10);
    ck_assert_uint_gt(read, 10);
}
END_TEST

/* The archive's CRC finds what HDF5 has no checksum for. */
START_TEST(verified)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    size_t n, i;
    ck_assert_int_eq(ckpt_verify(data_file("small.keras"), NULL, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.integrity, CKPT_INTEGRITY_CRC32);
    ck_assert_uint_eq(result.unprotected_bytes, 0);
    ckpt_reader *r = opened(data_file("small.keras"));
    named(r, "layers/dense/vars/0", &i);
    uint64_t at = r->index->storages[r->index->tensors[i].storage].extent.offset;
    ckpt_reader_close(r);
    char *all = slurp(data_file("small.keras"), &n);
    all[at + 5] ^= 1;
    put_file("flipped.keras", all, n);
    free(all);
    ck_assert_int_eq(ckpt_verify("flipped.keras", NULL, &result, report, &err), CKPT_ANSWER_NO);
    ck_assert_uint_eq(ckpt_report_count_code(report, "crc-mismatch"), 1);
    ck_assert_int_eq(ckpt_verify(data_file("small.h5"), NULL, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.integrity, CKPT_INTEGRITY_NONE);
    ckpt_report_free(report);
}
END_TEST

/* ---- beside others who use libhdf5 */

static void *read_often(void *ctx)
{
    for (int i = 0; i < 20; i++) {
        ckpt_reader *r = NULL;
        ckpt_error why = CKPT_ERROR_INIT;
        bool ok = ckpt_reader_open(ctx, NULL, &r, &why) == CKPT_OK && ckpt_reader_tensor_count(r) > 1;
        ckpt_reader_close(r);
        if (!ok)
            return ctx;
    }
    return NULL;
}

/* AddressSanitizer's allocator is not made for a fork beside other threads: the copy waits for its lock for ever. */
#ifdef __SANITIZE_ADDRESS__
enum { AT_A_TIME = 1 };
#else
enum { AT_A_TIME = 4 };
#endif

START_TEST(several_threads)
{
    pthread_t threads[4];
    char files[4][1200];
    static const char *const names[] = {"small.keras", "small.h5", "coded.h5", "shards"};
    for (size_t i = 0; i < 4; i++) {
        strcpy(files[i], data_file(names[i]));
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_often, files[i]), 0);
        if (AT_A_TIME > 1 && i < 3)
            continue;
        for (size_t k = AT_A_TIME > 1 ? 0 : i; k <= i; k++) {
            void *failed;
            pthread_join(threads[k], &failed);
            ck_assert_msg(failed == NULL, "%s", names[k]);
        }
    }
}
END_TEST

static herr_t own_print(hid_t stack, void *ctx)
{
    (void)stack;
    ++*(int *)ctx;
    return 0;
}

/* The program's settings are as before, nothing is printed, and nothing of a file is left open. */
START_TEST(leaves_no_trace)
{
    int printed = 0;
    H5E_auto2_t print;
    void *to;
    unsigned plugins;
    H5open();
    H5Eset_auto2(H5E_DEFAULT, own_print, &printed);
    H5PLset_loading_state(H5PL_FILTER_PLUGIN);
    ckpt_reader_close(opened(data_file("small.keras")));
    ck_assert_int_eq(open_made(data_file("bad-cycle.h5")), CKPT_E_UNSUPPORTED);
    size_t n;
    char *all = slurp(data_file("small.h5"), &n);
    put_file("half.h5", all, n / 2);
    free(all);
    ck_assert_int_eq(open_made("half.h5"), CKPT_E_DAMAGED);
    ck_assert_int_eq(printed, 0);
    ck_assert(H5Eget_auto2(H5E_DEFAULT, &print, &to) >= 0 && print == own_print && to == &printed);
    ck_assert(H5PLget_loading_state(&plugins) >= 0 && plugins == H5PL_FILTER_PLUGIN);
    ck_assert_int_eq(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("keras");
    TCase *t = tcase_create("keras");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_test(t, every_tensor);
    tcase_add_test(t, a_missing_shard);
    tcase_add_test(t, a_cut_shard);
    tcase_add_test(t, an_unpacked_archive);
    tcase_add_test(t, where_bytes_lie);
    tcase_add_test(t, roles);
    tcase_add_test(t, values);
    tcase_add_test(t, refused);
    tcase_add_test(t, a_newer_structure);
    tcase_add_test(t, too_deep);
    tcase_add_test(t, texts_without_end);
    tcase_add_test(t, cut_anywhere);
    tcase_add_test(t, flipped_anywhere);
    tcase_add_test(t, verified);
    tcase_add_test(t, several_threads);
    tcase_add_test(t, leaves_no_trace);
    suite_add_tcase(s, t);
    return run_suite(s);
}
#endif
