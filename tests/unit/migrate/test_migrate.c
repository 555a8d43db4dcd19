/* test_migrate.c - what is written is what was read: bytes, tags, values; and a restore of the result is the restore of
 * the source. */
#include <glob.h>
#include "../command_files.h"
#include "../runner.h"

static ckpt_error err;

static ckpt_status migrate(const char *src, const char *dst, ckpt_migrate_options *options, ckpt_report *report)
{
    ckpt_migrate_options defaults;
    memset(&defaults, 0, sizeof defaults);
    err.status = CKPT_OK;
    err.message[0] = 0;
    return ckpt_migrate(src, dst, options ? options : &defaults, report, &err);
}

static ckpt_reader *open_file(const char *path)
{
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    return reader;
}

static const ckpt_tensor_info *tensor(const ckpt_reader *reader, const char *name)
{
    size_t i;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", name);
    return ckpt_reader_tensor(reader, i);
}

static uint32_t crc(const ckpt_reader *reader, const char *name)
{
    size_t i;
    uint32_t sum = 0;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", name);
    ck_assert_int_eq(ckpt_reader_crc32(reader, i, &sum, &err), CKPT_OK);
    return sum;
}

static const ckpt_value *value(const ckpt_reader *reader, const char *a, const char *b, const char *c, const char *d)
{
    const char *const keys[] = {a, b, c, d};
    const ckpt_value *v = ckpt_reader_root(reader);
    for (size_t i = 0; i < 4 && keys[i]; i++)
        v = ckpt_value_get(v, keys[i]);
    return v;
}

/* source name -> canonical name */
static const char *const renamed[][2] = {
    {"model.0.weight", "0.weight"},
    {"model.1.running_var", "1.running_var"},
    {"model.1.num_batches_tracked", "1.num_batches_tracked"},
    {"optimizer.state.0.exp_avg", "optimizer.0.weight.exp_avg"},
    {"optimizer.state.3.step", "optimizer.1.bias.step"},
    {"optimizer.state.5.exp_avg_sq", "optimizer.2.bias.exp_avg_sq"},
};

START_TEST(canonical)
{
    ck_assert_int_eq(migrate(fixture("fused-step-cpu.pt"), temporary("a"), NULL, NULL), CKPT_OK);
    ckpt_reader *from = open_file(fixture("fused-step-cpu.pt")), *to = open_file(temporary("a"));
    ck_assert_str_eq(ckpt_reader_format(to), "ckpt");
    ck_assert_uint_eq(ckpt_reader_tensor_count(to), ckpt_reader_tensor_count(from));
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        const ckpt_tensor_info *a = tensor(from, renamed[i][0]), *b = tensor(to, renamed[i][1]);
        ck_assert_uint_eq(crc(from, renamed[i][0]), crc(to, renamed[i][1]));
        ck_assert_str_eq(a->device.data, b->device.data);
        ck_assert_int_eq(a->role, b->role);
        ck_assert_int_eq(a->dtype, b->dtype);
    }
    ck_assert_str_eq(tensor(to, "optimizer.0.weight.exp_avg")->param.data, "0.weight");
    ck_assert_str_eq(tensor(to, "optimizer.0.weight.exp_avg")->state_key.data, "exp_avg");
    const ckpt_value *group = value(to, "optimizer", "groups", "0", NULL);
    ck_assert_ptr_nonnull(group);
    ck_assert_uint_eq(ckpt_value_get(group, "params")->item_count, 6);
    ck_assert_str_eq(ckpt_value_get(group, "params")->items[5]->text.data, "2.bias");
    ck_assert_double_eq(ckpt_value_get(group, "lr")->real, 1e-3);
    ck_assert_uint_eq(ckpt_value_get(group, "betas")->item_count, 2);
    ck_assert_double_eq(ckpt_value_get(group, "betas")->items[1]->real, 0.999);
    ck_assert(ckpt_value_get(group, "fused")->boolean);
    ck_assert_int_eq(value(to, "step", NULL, NULL, NULL)->integer, 3);
    ck_assert_int_eq(value(to, "epoch", NULL, NULL, NULL)->integer, 1);
    ck_assert_double_eq(value(to, "scaler", "scale", NULL, NULL)->real, 65536);
    ck_assert_ptr_null(value(to, "model", NULL, NULL, NULL));
    ck_assert_ptr_null(value(to, "optimizer", "state", NULL, NULL));
    ckpt_reader_close(from);
    ckpt_reader_close(to);
}
END_TEST

/* ---- a restore of both */

typedef struct trained {
    float weight[12], exp_avg[12], bias[2], bias_sq[2], steps[6], others[4][6];
    double lr, beta;
    int64_t step;
    ckpt_scaler scaler;
} trained;

static const char *const params[] = {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"};

static void bind(ckpt_state *state, const char *name, const char *param, ckpt_role role, uint32_t ndim,
                 const int64_t *shape, void *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.dtype = CKPT_F32;
    d.role = role;
    d.ndim = ndim;
    d.shape = shape;
    d.data = data;
    ck_assert_msg(ckpt_state_tensor(state, &d, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}

static void restore(const char *path, trained *t)
{
    const int64_t matrix[] = {3, 4}, two[] = {2}, three[] = {3}, last[] = {2, 3};
    ckpt_state *state = ckpt_state_new();
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_group_desc group = CKPT_GROUP_DESC_INIT;
    ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &t->lr}, {"betas.1", CKPT_SCALAR_F64, &t->beta}};
    memset(t, 0, sizeof *t);
    bind(state, "0.weight", NULL, CKPT_ROLE_PARAM, 2, matrix, t->weight);
    bind(state, "2.bias", NULL, CKPT_ROLE_PARAM, 1, two, t->bias);
    for (size_t i = 1; i < 5; i++)
        bind(state, params[i], NULL, CKPT_ROLE_PARAM, i == 4 ? 2 : 1, i == 4 ? last : three, t->others[i - 1]);
    bind(state, NULL, "0.weight", CKPT_ROLE_EXP_AVG, 2, matrix, t->exp_avg);
    bind(state, NULL, "2.bias", CKPT_ROLE_EXP_AVG_SQ, 1, two, t->bias_sq);
    for (size_t i = 0; i < 6; i++)
        bind(state, NULL, params[i], CKPT_ROLE_STEP, 0, NULL, &t->steps[i]);
    group.name = "0";
    group.params = params;
    group.param_count = 6;
    group.hypers = hypers;
    group.hyper_count = 2;
    ck_assert_msg(ckpt_state_group(state, &group, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_int_eq(ckpt_state_i64(state, "step", &t->step, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_state_scaler(state, "scaler", &t->scaler, &err), CKPT_OK);
    options.map_location = "cpu";
    options.optimizer = CKPT_OPTIMIZER_PLAIN;
    options.allow_unexpected = true;
    ck_assert_msg(ckpt_restore(state, path, &options, NULL, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ckpt_state_free(state);
}

START_TEST(restores_alike)
{
    static const char *const files[] = {"fused-step-cpu.pt", "plain.pt", "namespace.pt", "plain-step-cuda.pt"};
    trained a, b;
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    options.force = true;
    options.verify = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ck_assert_msg(migrate(fixture(files[i]), temporary("a"), &options, NULL) == CKPT_OK, "%s", err.message);
        restore(fixture(files[i]), &a);
        restore(temporary("a"), &b);
        ck_assert_mem_eq(&a, &b, sizeof a);
        ck_assert_float_eq(a.steps[5], 3);
        ck_assert_double_eq(a.lr, 1e-3);
        ck_assert_double_eq(a.beta, 0.999);
        ck_assert_int_eq(a.step, 3);
        ck_assert_int_eq(a.scaler.growth_tracker, 3);
        ck_assert_float_ne(a.exp_avg[0], 0);
    }
}
END_TEST

/* ---- tags */

START_TEST(moves)
{
    ckpt_migrate_options options;
    ckpt_report *report = ckpt_report_new();
    memset(&options, 0, sizeof options);
    options.map_location = "cuda:1=cuda:5,cuda:2=cpu";
    ck_assert_int_eq(migrate(fixture("three-devices.pt"), temporary("a"), &options, report), CKPT_OK);
    ckpt_reader *to = open_file(temporary("a"));
    ck_assert_str_eq(tensor(to, "a")->device.data, "cuda:0");
    ck_assert_str_eq(tensor(to, "b")->device.data, "cuda:5");
    ck_assert_str_eq(tensor(to, "c")->device.data, "cpu");
    ck_assert_uint_eq(ckpt_report_count_code(report, "moved"), 2);
    const ckpt_finding *f = ckpt_report_find(report, "moved", "b");
    ck_assert_str_eq(f->from, "cuda:1");
    ck_assert_str_eq(f->to, "cuda:5");
    ck_assert_uint_eq(f->nbytes, 8);
    ckpt_reader_close(to);
    ckpt_report_free(report);
}
END_TEST

/* Every step follows the policy, both ways, and the flags agree with it. */
START_TEST(optimizer_kinds)
{
    static const struct {
        const char *file;
        ckpt_optimizer_kind kind;
        const char *map, *device;
        bool fused;
    } cases[] = {
        {"fused-step-cpu.pt", CKPT_OPTIMIZER_FUSED, NULL, "cuda:0", true},
        {"fused-step-cpu.pt", CKPT_OPTIMIZER_DEFAULT, NULL, "cpu", true},        /* nothing asked, nothing moved */
        {"fused-step-cpu.pt", CKPT_OPTIMIZER_DEFAULT, "cuda:2", "cuda:2", true}, /* by the saved flags */
        {"fused-step-cuda.pt", CKPT_OPTIMIZER_PLAIN, NULL, "cpu", false},
        {"plain.pt", CKPT_OPTIMIZER_FUSED, "cuda:1", "cuda:1", true},
        {"plain.pt", CKPT_OPTIMIZER_DEFAULT, "cuda:1", "cpu", false},
        {"capturable-cpu.pt", CKPT_OPTIMIZER_FUSED, "cpu", "cpu", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_migrate_options options;
        memset(&options, 0, sizeof options);
        options.force = true;
        options.optimizer = cases[i].kind;
        options.map_location = cases[i].map;
        ck_assert_msg(migrate(fixture(cases[i].file), temporary("a"), &options, NULL) == CKPT_OK, "%s", err.message);
        ckpt_reader *to = open_file(temporary("a"));
        size_t steps = 0;
        for (size_t k = 0; k < ckpt_reader_tensor_count(to); k++) {
            const ckpt_tensor_info *t = ckpt_reader_tensor(to, k);
            if (t->role != CKPT_ROLE_STEP)
                continue;
            steps++;
            ck_assert_msg(strcmp(t->device.data, cases[i].device) == 0, "case %zu: %s", i, t->device.data);
        }
        ck_assert_uint_eq(steps, 6);
        const ckpt_value *flag = value(to, "optimizer", "groups", "0", "fused");
        ck_assert_msg((flag && flag->kind == CKPT_V_BOOL && flag->boolean) == cases[i].fused, "case %zu", i);
        ckpt_reader_close(to);
    }
}
END_TEST

/* ---- refusals: nothing is written */

START_TEST(refusals)
{
    ckpt_migrate_options options;
    ckpt_report *report = ckpt_report_new();
    memset(&options, 0, sizeof options);
    options.to = "safetensors";
    ck_assert_int_eq(migrate(fixture("tensors.pt"), temporary("x"), &options, report), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "lost", "coo"));
    options.to = "torch-legacy"; /* read, and not written */
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, report), CKPT_E_UNSUPPORTED);
    options.to = "nonsense";
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, report), CKPT_E_UNSUPPORTED);
    options.to = "safetensors";
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, report), CKPT_E_UNSUPPORTED);
    options.to = NULL;
    ck_assert_int_eq(migrate(fixture("bad-half.pt"), temporary("x"), &options, report), CKPT_E_DAMAGED);
    ck_assert_int_eq(migrate(fixture("bad-crc.pt"), temporary("x"), &options, report), CKPT_E_DAMAGED);
    ck_assert_int_eq(migrate(temporary("none"), temporary("x"), &options, report), CKPT_E_SYSTEM);
    options.map_location = "cuda";
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, report), CKPT_E_ARGUMENT);
    options.map_location = NULL;
    ck_assert_int_eq(access(temporary("x"), F_OK), -1);
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, report), CKPT_OK);
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, report), CKPT_E_EXISTS);
    options.force = true;
    ck_assert_int_eq(migrate(temporary("x"), temporary("x"), &options, report), CKPT_E_ARGUMENT);
    ck_assert_int_eq(migrate(fixture("plain.pt"), scratch, &options, report), CKPT_E_ARGUMENT);
    ckpt_report_free(report);
}
END_TEST

START_TEST(lossy)
{
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    options.lossy = true;
    ck_assert_msg(migrate(fixture("tensors.pt"), temporary("a"), &options, NULL) == CKPT_OK, "%s", err.message);
    ckpt_reader *from = open_file(fixture("tensors.pt")), *to = open_file(temporary("a"));
    ck_assert_uint_eq(crc(from, "bf16"), crc(to, "bf16"));
    ck_assert_uint_eq(crc(from, "new\nline"), crc(to, "new\nline"));
    size_t i;
    ck_assert_int_eq(ckpt_reader_find(to, "coo", 3, &i, &err), CKPT_E_NOT_FOUND);
    ckpt_reader_close(from);
    ckpt_reader_close(to);
}
END_TEST

START_TEST(dry_run)
{
    ckpt_migrate_options options;
    ckpt_report *report = ckpt_report_new();
    memset(&options, 0, sizeof options);
    options.dry_run = true;
    options.map_location = "cuda:1=cuda:0";
    ck_assert_int_eq(migrate(fixture("three-devices.pt"), temporary("x"), &options, report), CKPT_OK);
    ck_assert_uint_eq(ckpt_report_count_code(report, "moved"), 1);
    ck_assert_uint_eq(ckpt_report_count_code(report, "copy"), 2);
    ck_assert_int_eq(access(temporary("x"), F_OK), -1);
    options.to = "safetensors";
    ck_assert_int_eq(migrate(fixture("three-devices.pt"), temporary("x"), &options, report), CKPT_OK);
    ck_assert_uint_ge(ckpt_report_count_code(report, "lost"), 1);
    ckpt_report_free(report);
}
END_TEST

static int cancel(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return 1;
}

START_TEST(cancelled)
{
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    options.progress.fn = cancel;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x"), &options, NULL), CKPT_E_CANCELLED);
    DIR *d = opendir(scratch);
    size_t files = 0;
    while (readdir(d))
        files++;
    closedir(d);
    ck_assert_uint_eq(files, 2); /* . and .. */
}
END_TEST

static bool same_key(const ckpt_value *a, const ckpt_value *b)
{
    return a->kind == b->kind && a->integer == b->integer && a->text.size == b->text.size &&
           a->item_count == b->item_count &&
           (a->text.size == 0 || memcmp(a->text.data, b->text.data, a->text.size) == 0);
}

/* A disk that gives back other bytes than it got, from the moment all of the file is there, under its temporary name. */
static int spoil(void *ctx, uint64_t done, uint64_t total)
{
    bool *spoilt = ctx;
    glob_t found;
    if (*spoilt || done * 2 <= total || glob(temporary(".spoilt.tmp-*"), 0, NULL, &found) != 0)
        return 0;
    size_t size;
    char *data = read_all(found.gl_pathv[0], &size);
    for (size_t i = size - 64; i < size; i++)
        data[i] = (char)(data[i] ^ 1);
    FILE *f = fopen(found.gl_pathv[0], "r+b");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
    free(data);
    globfree(&found);
    *spoilt = true;
    return 0;
}

START_TEST(read_back_damaged)
{
    bool spoilt = false;
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    options.verify = true;
    options.progress = (ckpt_progress){spoil, &spoilt};
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("spoilt"), &options, NULL), CKPT_E_DAMAGED);
    ck_assert(spoilt);
    ck_assert_ptr_nonnull(strstr(err.message, "was removed"));
    ck_assert_int_ne(access(temporary("spoilt"), F_OK), 0);
}
END_TEST

/* Every kind of value comes through, also those that JSON has not. */
START_TEST(values)
{
    ck_assert_msg(migrate(fixture("values.pt"), temporary("a"), NULL, NULL) == CKPT_OK, "%s", err.message);
    ckpt_reader *from = open_file(fixture("values.pt")), *to = open_file(temporary("a"));
    const ckpt_value *a = ckpt_reader_root(from), *b = ckpt_reader_root(to);
    ck_assert_int_eq(b->kind, CKPT_V_DICT);
    for (size_t i = 0; i < a->entry_count; i++) {
        const ckpt_value *v = a->entries[i].value, *w = NULL;
        for (size_t k = 0; k < b->entry_count && !w; k++)
            if (same_key(a->entries[i].key, b->entries[k].key))
                w = b->entries[k].value;
        ck_assert_msg(w != NULL, "entry %zu", i);
        ck_assert(same_key(v, w)); /* kind, integer, text, length */
        ck_assert_int_eq(memcmp(&v->real, &w->real, sizeof v->real), 0);
        ck_assert_int_eq(v->boolean, w->boolean);
        ck_assert_uint_eq(v->entry_count, w->entry_count);
    }
    ckpt_reader_close(from);
    ckpt_reader_close(to);
}
END_TEST

/* {name: 1 byte} of so many tensors, as a safetensors file. */
static void write_many(const char *path, size_t count)
{
    char *header = NULL;
    size_t size = 0;
    FILE *text = open_memstream(&header, &size), *f = fopen(path, "wb");
    ck_assert(text && f);
    for (size_t i = 0; i < count; i++)
        fprintf(text, "%c\"t%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", i ? ',' : '{', i, i,
                i + 1);
    fputc('}', text);
    ck_assert_int_eq(fclose(text), 0);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)size >> 8 * i & 0xff), f);
    fwrite(header, 1, size, f);
    for (size_t i = 0; i < count; i++)
        fputc((int)(i % 251), f);
    ck_assert_int_eq(fclose(f), 0);
    free(header);
}

/* What is known of the tensors may be more than is allowed: that is said, with what it takes. */
START_TEST(more_than_memory)
{
    enum { MANY = 60000 };
    ckpt_migrate_options options = {.memory = (uint64_t)33 << 20};
    for (int few = 0; few < 2; few++) {
        ckpt_report *report = ckpt_report_new();
        write_many(temporary("many"), few ? 1000 : MANY);
        ck_assert_msg(migrate(temporary("many"), temporary("a"), &options, report) == CKPT_OK, "%s", err.message);
        const ckpt_finding *f = ckpt_report_find(report, "over-memory", NULL);
        ck_assert_int_eq(f != NULL, !few);
        ck_assert(few || (strstr(f->message, "60000 tensors") && strstr(f->message, "--memory 33 MiB") &&
                          strncmp(f->fix, "--memory ", 9) == 0));
        /* as much as the fix says is enough */
        options.memory = few ? 0 : strtoull(f->fix + 9, NULL, 10) << 20;
        ckpt_report_free(report);
        report = ckpt_report_new();
        options.force = true;
        ck_assert_int_eq(migrate(temporary("many"), temporary("a"), &options, report), CKPT_OK);
        ck_assert_ptr_null(ckpt_report_find(report, "over-memory", NULL));
        ckpt_report_free(report);
        options.memory = (uint64_t)33 << 20;
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate");
    TCase *t = tcase_create("migrate");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_test(t, canonical);
    tcase_add_test(t, restores_alike);
    tcase_add_test(t, moves);
    tcase_add_test(t, optimizer_kinds);
    tcase_add_test(t, refusals);
    tcase_add_test(t, lossy);
    tcase_add_test(t, dry_run);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, read_back_damaged);
    tcase_add_test(t, values);
    tcase_add_test(t, more_than_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
