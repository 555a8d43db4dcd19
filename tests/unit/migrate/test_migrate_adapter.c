/* test_migrate_adapter.c - --merge-adapter: LoRA merged into its base, in numbers that float32 has exactly; what does not fit. The real
 * adapters are in tests/interop/adapter.py. */
#include "../migrate_setup.h"
#include "../scarce_memory.h"
#include <errno.h>
#include <unistd.h>

/* A safetensors file: its header, and then floats. */
static const char *write_floats(const char *name, const char *header, const float *data, size_t count)
{
    FILE *f = fopen(at("%s", name), "wb");
    ck_assert_ptr_nonnull(f);
    uint64_t n = strlen(header);
    ck_assert(fwrite(&n, 1, 8, f) == 8 && fwrite(header, 1, n, f) == n);
    ck_assert(fwrite(data, sizeof *data, count, f) == count);
    fclose(f);
    return at("%s", name);
}

#define CONFIG "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4"

static void write_adapter(const char *config, const char *header, const float *data, size_t count)
{
    ck_assert(mkdir(at("adapter"), 0700) == 0 || errno == EEXIST);
    write_text(at("adapter/adapter_config.json"), config);
    write_floats("adapter/adapter_model.safetensors", header, data, count);
}

/* fc is 3 x 2, its bias 3, and wte 4 x 2. */
static const char base_header[] = "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                                  "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]},"
                                  "\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[36,68]}}";
static const float base_data[] = {1, 2, 3, 4, 5, 6, 10, 20, 30, 1, 1, 2, 2, 3, 3, 4, 4};
static const char lora_header[] =
    "{\"base_model.model.fc.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"base_model.model.fc.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[16,40]}}";
static const float lora_data[] = {1, 2, 3, 4, 1, 0, 0, 1, 1, 1};

static void write_base(void)
{
    write_floats("base.safetensors", base_header, base_data, sizeof base_data / sizeof *base_data);
}

static void write_lora(const char *config)
{
    write_adapter(config, lora_header, lora_data, sizeof lora_data / sizeof *lora_data);
}

static void merges(const char *src, const char *to, const char *dst)
{
    static char adapter[300];
    snprintf(adapter, sizeof adapter, "%s", at("adapter"));
    options.merge_adapter = adapter;
    migrates(src, to, dst);
}

static void has(const char *path, const char *name, const float *want, size_t count)
{
    float data[32];
    ckpt_reader *r = opened(path);
    size_t i;
    ck_assert_msg(ckpt_reader_find(r, name, strlen(name), &i, &err) == CKPT_OK, "%s: no %s", path, name);
    ck_assert_uint_eq(ckpt_reader_tensor(r, i)->nbytes, count * sizeof *data);
    ck_assert_int_eq(ckpt_reader_read(r, i, data, count * sizeof *data, &err), CKPT_OK);
    for (size_t k = 0; k < count; k++)
        ck_assert_msg(data[k] == want[k], "%s[%zu] is %g, not %g", name, k, (double)data[k], (double)want[k]);
    ckpt_reader_close(r);
}

/* scaling 4 / 2: B @ A is {1 2, 3 4, 4 6}. */
static const float merged[] = {3, 6, 9, 12, 13, 18};

START_TEST(a_matrix)
{
    write_base();
    write_lora(CONFIG "}");
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    has(at("out.safetensors"), "fc.weight", merged, 6);
    has(at("out.safetensors"), "fc.bias", base_data + 6, 3);
    has(at("out.safetensors"), "wte.weight", base_data + 9, 8);
    ck_assert_uint_eq(ckpt_report_count_code(report, "merged"), 1);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "adapter", NULL));
    merges(at("base.safetensors"), "torch", at("out.pt"));
    has(at("out.pt"), "fc.weight", merged, 6);
    merges(at("base.safetensors"), "ckpt", at("out.ckpt.safetensors"));
    has(at("out.ckpt.safetensors"), "fc.weight", merged, 6);
}
END_TEST

START_TEST(settings)
{
    write_base();
    write_lora(CONFIG ",\"alpha_pattern\":{\"other\":1,\"f.\":8},\"target_modules\":[\"fc\"],\"lora_dropout\":0.1}");
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    const float twice[] = {5, 10, 15, 20, 21, 30};
    has(at("out.safetensors"), "fc.weight", twice, 6);
    write_lora(CONFIG ",\"rank_pattern\":{\"fc\":8}}"); /* the tensors have 2 */
    ck_assert_int_eq(migrate(at("base.safetensors"), "safetensors", at("never")), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, "rank 2") && strstr(err.message, "says 8"), "%s", err.message);
    write_lora(CONFIG ",\"use_rslora\":true,\"rank_pattern\":{\"(fc\":2}}");
    ck_assert_int_eq(migrate(at("base.safetensors"), "safetensors", at("never")), CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(err.message, "rank_pattern"), "%s", err.message);
}
END_TEST

/* An embedding is turned: row i is scaling * column i of A with B. The bias of lora_B, and what is saved whole. */
START_TEST(other_kinds)
{
    static const char header[] =
        "{\"base_model.model.wte.lora_embedding_A\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
        "\"base_model.model.wte.lora_embedding_B\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
        "\"base_model.model.fc.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[48,64]},"
        "\"base_model.model.fc.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[64,88]},"
        "\"base_model.model.fc.lora_B.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[88,100]}}";
    static const float data[] = {1, 2, 3, 4, 0, 0, 0, 1, 1, 0, 2, 1, 1, 2, 3, 4, 1, 0, 0, 1, 1, 1, 1, 2, 3};
    static const char whole[] =
        "{\"base_model.model.fc.base_layer.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
        "\"base_model.model.wte.modules_to_save.weight\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[12,44]}}";
    write_base();
    write_adapter(CONFIG "}", header, data, sizeof data / sizeof *data);
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    const float wte[] = {3, 5, 6, 10, 9, 15, 12, 22}, bias[] = {12, 24, 36};
    has(at("out.safetensors"), "wte.weight", wte, 8);
    has(at("out.safetensors"), "fc.weight", merged, 6);
    has(at("out.safetensors"), "fc.bias", bias, 3);
    write_adapter(CONFIG "}", whole, data, 11);
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    has(at("out.safetensors"), "fc.bias", data, 3);
    has(at("out.safetensors"), "wte.weight", data + 3, 8);
    has(at("out.safetensors"), "fc.weight", base_data, 6);
}
END_TEST

/* W + delta is {3 6, 9 12, 13 18}: a row gets the length that the magnitude says; {9, 12} has 15. */
START_TEST(dora)
{
    static const char header[] =
        "{\"base_model.model.fc.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"base_model.model.fc.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[16,40]},"
        "\"base_model.model.fc.lora_magnitude_vector\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[40,52]}}";
    static const float data[] = {1, 2, 3, 4, 1, 0, 0, 1, 1, 1, 0, 30, 0}, want[] = {0, 0, 18, 24, 0, 0};
    write_base();
    write_adapter(CONFIG ",\"use_dora\":true}", header, data, sizeof data / sizeof *data);
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    has(at("out.safetensors"), "fc.weight", want, 6);
    write_adapter(CONFIG "}", header, data, sizeof data / sizeof *data);
    ck_assert_int_eq(migrate(at("base.safetensors"), "safetensors", at("never")), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "lora_magnitude_vector"), "%s", err.message);
    write_lora(CONFIG ",\"use_dora\":true}");
    ck_assert_int_eq(migrate(at("base.safetensors"), "safetensors", at("never")), CKPT_E_MISMATCH);
}
END_TEST

/* Other options beside it, in small windows and by threads; the names of the base begin otherwise. */
START_TEST(beside_others)
{
    static const char header[] = "{\"model.fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                                 "\"model.x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
    const char *const casts[] = {"*.fc.weight=float64"}, *const prefixes[] = {"model."};
    write_floats("base.safetensors", header, base_data, 8);
    write_lora(CONFIG "}");
    options.cast = casts;
    options.cast_count = 1;
    options.strip_prefix = prefixes;
    options.strip_prefix_count = 1;
    options.threads = 4;
    options.memory = (uint64_t)48 << 20;
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    double data[6];
    size_t i;
    ckpt_reader *r = opened(at("out.safetensors"));
    ck_assert_int_eq(ckpt_reader_find(r, "fc.weight", 9, &i, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, data, sizeof data, &err), CKPT_OK);
    for (size_t k = 0; k < 6; k++)
        ck_assert(data[k] == (double)merged[k]);
    ckpt_reader_close(r);
}
END_TEST

static ckpt_status see_row(void *ctx, const ckpt_migrate_source *row, ckpt_error *e)
{
    (void)e;
    *(size_t *)ctx += row->place == CKPT_MIGRATE_COMPUTED && row->nbytes == 24;
    return CKPT_OK;
}

static ckpt_status see_ledger(void *ctx, const ckpt_migrate_row *row, ckpt_error *e)
{
    (void)e;
    *(size_t *)ctx += row->storage && strcmp(row->storage, "merged") == 0;
    return CKPT_OK;
}

START_TEST(a_plan)
{
    ckpt_migrate_totals totals = CKPT_MIGRATE_TOTALS_INIT;
    size_t rows = 0, merged_rows = 0;
    write_base();
    write_lora(CONFIG "}");
    options.dry_run = true;
    options.totals = &totals;
    options.plan = (ckpt_migrate_plan){see_row, &rows};
    options.ledger = (ckpt_migrate_ledger){see_ledger, &merged_rows};
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    ck_assert_uint_eq(rows, 1);
    ck_assert_uint_eq(merged_rows, 1);
    ck_assert_uint_eq(totals.bytes_out, 68);
    ck_assert_uint_eq(totals.bytes_read, 68 + 40); /* and the adapter's */
    ck_assert_int_ne(access(at("out.safetensors"), F_OK), 0);
}
END_TEST

static void refuses(ckpt_status want, const char *first, const char *second)
{
    ckpt_status status = migrate(at("base.safetensors"), "safetensors", at("never"));
    ck_assert_msg(status == want, "%d %s", (int)status, err.message);
    ck_assert_msg(strstr(err.message, first) && strstr(err.message, second), "%s", err.message);
    ck_assert_int_ne(access(at("never"), F_OK), 0);
}

START_TEST(what_does_not_fit)
{
    static const struct {
        const char *config, *word;
    } options_of[] = {{CONFIG ",\"use_qalora\":true}", "use_qalora"},
                      {CONFIG ",\"later\":{\"a\":1}}", "later"},
                      {CONFIG ",\"init_lora_weights\":\"pissa_niter_4\"}", "pissa_niter_4"},
                      {"{\"peft_type\":\"LOHA\",\"r\":2}", "LOHA"}};
    static char adapter[300];
    write_base();
    write_lora(CONFIG "}");
    snprintf(adapter, sizeof adapter, "%s", at("adapter"));
    options.merge_adapter = adapter;
    for (size_t i = 0; i < sizeof options_of / sizeof *options_of; i++) {
        write_lora(options_of[i].config);
        refuses(CKPT_E_UNSUPPORTED, options_of[i].word, "PEFT");
    }
    write_lora("{\"peft_type\":\"LORA\",\"r\":2}");
    refuses(CKPT_E_FORMAT, "lora_alpha", "number");
    write_lora(CONFIG "}");
    write_floats("base.safetensors", "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}",
                 base_data, 8);
    refuses(CKPT_E_MISMATCH, "base_model.model.fc.lora_B.weight", "'fc.weight' of [2, 4]");
    write_floats("base.safetensors", "{\"fc.weigh\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}",
                 base_data, 6);
    refuses(CKPT_E_MISMATCH, "base_model.model.fc.lora_B.weight", "'fc.weight' is not there");
    write_floats("base.safetensors", "{\"fc.weight\":{\"dtype\":\"I32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}",
                 base_data, 6);
    refuses(CKPT_E_UNSUPPORTED, "'fc.weight'", "int32");
    write_floats("base.safetensors",
                 "{\"a.fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                 "\"b.fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[24,48]}}",
                 base_data, 12);
    refuses(CKPT_E_MISMATCH, "more than one", "fc.weight");
    options.merge_adapter = adapter;
    write_base();
    ck_assert_int_eq(unlink(at("adapter/adapter_model.safetensors")), 0);
    ck_assert_int_lt(migrate(at("base.safetensors"), "safetensors", at("never")), 0);
}
END_TEST

/* Square matrices lie as adapter_config.json says, unless others show that it is not so of all. */
START_TEST(square)
{
    static const char base[] = "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                               "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[16,40]}}";
    static const char alone[] =
        "{\"base_model.model.a.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"base_model.model.a.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]}}";
    static const char both[] =
        "{\"base_model.model.a.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"base_model.model.a.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
        "\"base_model.model.fc.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
        "\"base_model.model.fc.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[48,72]}}";
    static const float zero[10] = {0}, data[] = {1, 2, 3, 4, 1, 0, 1, 1, 1, 2, 3, 4, 1, 0, 0, 1, 1, 1};
    const float straight[] = {2, 4, 8, 12}, turned[] = {2, 8, 4, 12};
    write_floats("base.safetensors", base, zero, 10);
    write_adapter(CONFIG ",\"fan_in_fan_out\":false}", alone, data, 8);
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    has(at("out.safetensors"), "a.weight", straight, 4);
    write_adapter(CONFIG ",\"fan_in_fan_out\":true}", alone, data, 8);
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    has(at("out.safetensors"), "a.weight", turned, 4);
    write_adapter(CONFIG ",\"fan_in_fan_out\":true}", both, data, 18);
    refuses(CKPT_E_MISMATCH, "'a.weight'", "fan_in_fan_out");
    write_adapter(CONFIG ",\"fan_in_fan_out\":false}", both, data, 18);
    merges(at("base.safetensors"), "safetensors", at("out.safetensors"));
    has(at("out.safetensors"), "a.weight", straight, 4);
}
END_TEST

/* Any allocation may fail: an error, nothing written, nothing leaked. */
START_TEST(short_of_memory)
{
    static char adapter[300], base[300], out[300];
    write_base();
    write_lora(CONFIG "}");
    snprintf(adapter, sizeof adapter, "%s", at("adapter"));
    snprintf(base, sizeof base, "%s", at("base.safetensors"));
    snprintf(out, sizeof out, "%s", at("out.safetensors"));
    options.merge_adapter = adapter;
    options.threads = 1;
    options.verify = false;
    long failed = 0;
    bool all = false;
    for (long n = 0; !all; n++) {
        unlink(out);
        allocations_left = n;
        ckpt_status status = migrate(base, "safetensors", out);
        all = allocations_left >= 0; /* none has failed */
        allocations_left = -1;
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld: %d %s", n, (int)status,
                      err.message);
        failed += status < 0;
        ck_assert_int_eq(access(out, F_OK) == 0, status == CKPT_OK);
    }
    ck_assert_int_gt(failed, 100);
    has(out, "fc.weight", merged, 6);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_adapter");
    TCase *t = tcase_create("adapter");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_matrix);
    tcase_add_test(t, settings);
    tcase_add_test(t, other_kinds);
    tcase_add_test(t, dora);
    tcase_add_test(t, beside_others);
    tcase_add_test(t, a_plan);
    tcase_add_test(t, what_does_not_fit);
    tcase_add_test(t, square);
    tcase_add_test(t, short_of_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
