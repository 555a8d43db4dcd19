/* test_migrate_edit.c - what migrate changes on the way: names, what goes along, dtypes, objects, devices, the order of an
 * optimizer's parameters, shards, what is left of a damaged file. */
#include "../command_files.h"
#include "../runner.h"

static ckpt_error err;
static ckpt_report *report;
static ckpt_migrate_options options;

static void begin(void)
{
    make_scratch();
    memset(&options, 0, sizeof options);
    options.to = "torch";
    options.no_sync = options.force = options.verify = true;
    report = ckpt_report_new();
}

static void end(void)
{
    ckpt_report_free(report);
    remove_scratch();
}

static ckpt_status migrate(const char *src, const char *dst)
{
    err.status = CKPT_OK;
    err.message[0] = err.object[0] = 0;
    return ckpt_migrate(src, dst, &options, report, &err);
}

static void migrates(const char *src, const char *dst)
{
    ckpt_status status = migrate(src, dst);
    ck_assert_msg(status == CKPT_OK, "%s: %s: %s", src, err.object, err.message);
}

static ckpt_reader *open_file(const char *path)
{
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    return reader;
}

static const ckpt_tensor_info *find(const ckpt_reader *reader, const char *name)
{
    size_t i;
    return ckpt_reader_find(reader, name, strlen(name), &i, NULL) == CKPT_OK ? ckpt_reader_tensor(reader, i) : NULL;
}

static uint32_t crc(const ckpt_reader *reader, const char *name)
{
    size_t i;
    uint32_t sum = 0;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", name);
    ck_assert_int_eq(ckpt_reader_crc32(reader, i, &sum, &err), CKPT_OK);
    return sum;
}

static const ckpt_value *value(const ckpt_reader *reader, const char *a, const char *b)
{
    const ckpt_value *v = ckpt_value_get(ckpt_reader_root(reader), a);
    return b ? ckpt_value_get(v, b) : v;
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Two files of the same name: torch's archives hold it. */
static bool same_bytes(const char *a, const char *b)
{
    size_t n, k;
    char *x = read_all(a, &n), *y = read_all(b, &k);
    bool same = n == k && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

static const char *second(const char *name)
{
    if (!is_there(temporary("second")) && mkdir(temporary("second"), 0777) != 0)
        abort();
    return path_of(temporary("second"), name);
}

/* ---- names */

static const char *const module_prefix[] = {"module."};

START_TEST(prefix_and_back)
{
    migrates(fixture("plain.pt"), temporary("as-it-is.pt"));
    options.add_prefix = "module.";
    migrates(fixture("plain.pt"), temporary("wrapped.pt"));
    ckpt_reader *r = open_file(temporary("wrapped.pt"));
    ck_assert_ptr_nonnull(find(r, "model.module.1.running_var"));
    ck_assert_ptr_null(find(r, "model.1.running_var"));
    const ckpt_value *meta = ckpt_value_get(value(r, "model", NULL)->state, "_metadata");
    ck_assert_ptr_nonnull(ckpt_value_get(meta, "module.1"));
    ck_assert_ptr_nonnull(ckpt_value_get(meta, "module"));
    ck_assert_ptr_null(ckpt_value_get(meta, "1"));
    ckpt_reader_close(r);
    options.add_prefix = NULL;
    options.strip_prefix = module_prefix;
    options.strip_prefix_count = 1;
    migrates(temporary("wrapped.pt"), second("as-it-is.pt"));
    ck_assert(same_bytes(temporary("as-it-is.pt"), second("as-it-is.pt")));
    ck_assert_ptr_null(ckpt_report_find(report, "unused-rule", NULL));
    migrates(fixture("plain.pt"), temporary("back.pt"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "unused-rule", NULL));
}
END_TEST

/* net.1 is an activation: no tensor tells where its entry of _metadata goes. */
START_TEST(a_module_without_tensors_loses_the_prefix)
{
    static const char *const net[] = {"net."};
    options.strip_prefix = net;
    options.strip_prefix_count = 1;
    migrates(fixture("../peers/lightning.ckpt"), temporary("bare.pt"));
    ckpt_reader *r = open_file(temporary("bare.pt"));
    const ckpt_value *meta = ckpt_value_get(value(r, "state_dict", NULL)->state, "_metadata");
    ck_assert_ptr_nonnull(ckpt_value_get(meta, "0"));
    ck_assert_ptr_nonnull(ckpt_value_get(meta, "1"));
    ck_assert_ptr_null(ckpt_value_get(meta, "net.1"));
    ck_assert_ptr_null(ckpt_value_get(meta, "net"));
    ckpt_reader_close(r);
}
END_TEST

/* Canonical names follow, of the optimizer's state too; and a native file is renamed as a torch file is. */
START_TEST(renamed)
{
    static const char *const rules[] = {"0\\.(.*)=first.$1", "(?=2)(.*)=last.$1"};
    options.to = "ckpt";
    options.rename = rules;
    options.rename_count = 2;
    migrates(fixture("plain.pt"), temporary("a"));
    ckpt_reader *r = open_file(temporary("a"));
    ck_assert_ptr_nonnull(find(r, "first.weight"));
    ck_assert_ptr_nonnull(find(r, "last.2.bias"));
    ck_assert_ptr_nonnull(find(r, "optimizer.first.weight.exp_avg"));
    ck_assert_str_eq(find(r, "optimizer.first.weight.exp_avg")->param.data, "first.weight");
    ck_assert_ptr_null(find(r, "0.weight"));
    ckpt_reader_close(r);
    options.rename_count = 0;
    migrates(fixture("plain.pt"), temporary("b"));
    options.rename_count = 2;
    migrates(temporary("b"), temporary("c"));
    r = open_file(temporary("c"));
    ck_assert_ptr_nonnull(find(r, "optimizer.last.2.bias.exp_avg_sq"));
    ck_assert_str_eq(
        ckpt_value_get(ckpt_value_get(value(r, "optimizer", "groups"), "0"), "params")->items[0]->text.data,
        "first.weight");
    ckpt_reader_close(r);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "renamed", "first.weight"));
}
END_TEST

START_TEST(collision)
{
    static const char *const rules[] = {"[02]\\.weight=w"}, *const wrong[] = {"(=x"}, *const none[] = {"abc"};
    options.rename = rules;
    options.rename_count = 1;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "'0.weight'"));
    ck_assert_ptr_nonnull(strstr(err.message, "'2.weight'"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "name-collision", "w"));
    options.rename = wrong;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_ARGUMENT);
    options.rename = none;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_ARGUMENT);
    ck_assert(!is_there(temporary("x")));
}
END_TEST

/* ---- what goes along */

/* A parameter that goes with its state leaves the optimizer, whose ids are dense afterwards. */
START_TEST(dropped)
{
    static const char *const globs[] = {"model.0.weight", "optimizer.0.weight.*", "epoch", "no.such.name"};
    options.drop = globs;
    options.drop_count = 4;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("a.pt")), CKPT_E_ARGUMENT);
    ck_assert(!is_there(temporary("a.pt")));
    options.allow_unused = true;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    ckpt_reader *from = open_file(fixture("plain.pt")), *to = open_file(temporary("a.pt"));
    ck_assert_ptr_null(find(to, "model.0.weight"));
    ck_assert_ptr_nonnull(find(to, "model.0.bias"));
    ck_assert_ptr_null(value(to, "epoch", NULL));
    const ckpt_value *params =
        ckpt_value_get(ckpt_value_get(value(to, "optimizer", NULL), "param_groups")->items[0], "params");
    ck_assert_uint_eq(params->item_count, 5);
    for (size_t i = 0; i < 5; i++)
        ck_assert_int_eq(params->items[i]->integer, (int64_t)i);
    ck_assert_uint_eq(value(to, "optimizer", "state")->entry_count, 5);
    ck_assert_uint_eq(crc(from, "optimizer.state.3.exp_avg"), crc(to, "optimizer.state.2.exp_avg"));
    ckpt_reader_close(from);
    ckpt_reader_close(to);
    ck_assert_uint_eq(ckpt_report_count_code(report, "dropped"), 4);
    ck_assert_uint_eq(ckpt_report_count_code(report, "unused-rule"), 1);
}
END_TEST

START_TEST(selected)
{
    static const char *const roles[] = {"exp_avg"}, *const names[] = {"=model.0.bias"};
    options.only_role = roles;
    options.only_role_count = 1;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), 6);
    ck_assert_int_eq(ckpt_reader_tensor(r, 5)->role, CKPT_ROLE_EXP_AVG);
    ckpt_reader_close(r);
    options.only_role_count = 0;
    options.only_tensor = names;
    options.only_tensor_count = 1;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    r = open_file(temporary("a.pt"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), 1);
    ckpt_reader_close(r);
}
END_TEST

START_TEST(weights)
{
    options.weights_only = true;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), 9);
    ck_assert_str_eq(ckpt_reader_tensor(r, 0)->name.data, "0.weight");
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_reader_root(r)->state, "_metadata"));
    ck_assert_ptr_null(value(r, "step", NULL));
    ckpt_reader_close(r);
    options.to = "safetensors";
    options.lossy = true;
    migrates(fixture("plain.pt"), temporary("a.safetensors"));
    r = open_file(temporary("a.safetensors"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), 9);
    ckpt_reader_close(r);
    ck_assert_int_eq(migrate(fixture("values.pt"), temporary("b")), CKPT_E_MISMATCH);
}
END_TEST

/* ---- dtypes */

static bool all_of(const ckpt_reader *r, ckpt_role role, ckpt_dtype dtype)
{
    size_t n = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        if (t->role == role && t->dtype != dtype)
            return false;
        n += t->role == role;
    }
    return n > 0;
}

START_TEST(casts)
{
    static const char *const all[] = {"*=bfloat16"}, *const moments[] = {"*.exp_avg=float16", "optimizer.*=bfloat16"},
                             *const wrong[] = {"*=float17"};
    options.cast = all;
    options.cast_count = 1;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert(all_of(r, CKPT_ROLE_PARAM, CKPT_BF16));
    ck_assert(all_of(r, CKPT_ROLE_EXP_AVG, CKPT_F32));
    ck_assert(all_of(r, CKPT_ROLE_STEP, CKPT_F32));
    ck_assert_int_eq(find(r, "model.1.num_batches_tracked")->dtype, CKPT_I64);
    ckpt_reader_close(r);
    options.cast = moments;
    options.cast_count = 2;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    r = open_file(temporary("a.pt"));
    ck_assert(all_of(r, CKPT_ROLE_PARAM, CKPT_F32));
    ck_assert(all_of(r, CKPT_ROLE_EXP_AVG, CKPT_F16));
    ck_assert(all_of(r, CKPT_ROLE_EXP_AVG_SQ, CKPT_BF16));
    ckpt_reader_close(r);
    options.cast = wrong;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_ARGUMENT);
    ck_assert(!is_there(temporary("x")));
}
END_TEST

/* Views of one storage that are the same view go on being one; a part of it gets bytes of its own. */
START_TEST(cast_shared)
{
    static const char *const all[] = {"*=float64"};
    options.cast = all;
    options.cast_count = 1;
    migrates(fixture("shared.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    double part[2];
    size_t i;
    ck_assert_int_eq(ckpt_reader_find(r, "part", 4, &i, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, part, sizeof part, &err), CKPT_OK);
    ck_assert(part[0] == 2 && part[1] == 3);
    ck_assert_uint_eq(find(r, "part")->storage_nbytes, 16);
    ck_assert_str_eq(find(r, "part")->device.data, "cuda:1");
    ckpt_reader_close(r);
}
END_TEST

/* ---- objects */

static int count_object(void *ctx, const ckpt_visit *visit)
{
    *(size_t *)ctx += visit->value->kind == CKPT_V_OBJECT || visit->value->kind == CKPT_V_ARRAY;
    return 0;
}

static size_t objects(const char *path)
{
    ckpt_reader *r = open_file(path);
    size_t n = 0;
    ck_assert_int_eq(ckpt_value_walk(ckpt_reader_root(r), 0, count_object, &n, &err), 0);
    ckpt_reader_close(r);
    return n;
}

START_TEST(plain)
{
    options.plain = true;
    ck_assert_uint_eq(objects(fixture("namespace.pt")), 1);
    migrates(fixture("namespace.pt"), temporary("a.pt"));
    ck_assert_uint_eq(objects(temporary("a.pt")), 0);
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert_int_eq(value(r, "args", NULL)->kind, CKPT_V_DICT);
    ck_assert_double_eq(value(r, "args", "lr")->real, 1e-3);
    ck_assert_uint_eq(ckpt_report_count_code(report, "plain"), 1);
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "plain", "args")->message, "argparse.Namespace"));
    ckpt_reader_close(r);
}
END_TEST

/* A tensor that holds others becomes a dict of them, the same one at each of its places. */
START_TEST(plain_wrapper)
{
    options.plain = true;
    migrates(fixture("masked.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert_int_eq(value(r, "m", NULL)->kind, CKPT_V_DICT);
    ck_assert_ptr_eq(value(r, "m", NULL), value(r, "again", NULL));
    ck_assert_uint_eq(crc(r, "m._masked_data"), 0x25601b8b);
    ck_assert_int_eq(find(r, "m._masked_mask")->dtype, CKPT_BOOL);
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), 5);
    ckpt_reader_close(r);
    options.map_location = "cuda:1";
    migrates(fixture("masked.pt"), temporary("b.pt"));
    r = open_file(temporary("b.pt"));
    ck_assert_str_eq(find(r, "again._masked_data")->device.data, "cuda:1");
    ckpt_reader_close(r);
}
END_TEST

START_TEST(device_objects)
{
    options.map_location = "cuda:*=cuda:0";
    migrates(fixture("values.pt"), temporary("a.pt"));
    const ckpt_finding *f = ckpt_report_find(report, "torch-device-object", "device");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "cuda:1"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert_int_eq(value(r, "device", NULL)->args->items[1]->integer, 1);
    ckpt_reader_close(r);
    options.map_device_objects = true;
    migrates(fixture("values.pt"), temporary("a.pt"));
    r = open_file(temporary("a.pt"));
    ck_assert_str_eq(value(r, "device", NULL)->class_name.data, "torch.device");
    ck_assert_str_eq(value(r, "device", NULL)->args->items[0]->text.data, "cuda");
    ck_assert_int_eq(value(r, "device", NULL)->args->items[1]->integer, 0);
    ckpt_reader_close(r);
}
END_TEST

/* ---- devices */

START_TEST(devices)
{
    static const char split[] = "map: 1\nrules:\n- {name: 'part', to: 'cuda:0'}\n";
    options.map_location = "cuda:3";
    migrates(fixture("tensors.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++) /* the parts of a sparse one too */
        ck_assert_str_eq(ckpt_reader_tensor(r, i)->device.data, "cuda:3");
    ck_assert_uint_eq(find(r, "coo")->extra->part_count, 2);
    ck_assert(find(r, "conj")->conj);
    ckpt_reader_close(r);
    migrates(temporary("a.pt"), second("a.pt"));
    ck_assert(same_bytes(temporary("a.pt"), second("a.pt")));
    write_all(temporary("split.yaml"), split, sizeof split - 1);
    options.map_location = temporary("split.yaml");
    ck_assert_int_eq(migrate(fixture("shared.pt"), temporary("x")), CKPT_E_MISMATCH);
    ck_assert_uint_eq(ckpt_report_count_code(report, "shared-split"), 1);
    ck_assert_ptr_nonnull(strstr(err.message, "'whole'"));
    ck_assert_ptr_nonnull(strstr(err.message, "'part'"));
    ck_assert(!is_there(temporary("x")));
}
END_TEST

/* Our own format has a tag for every tensor, so that views of one storage can have two, which torch cannot keep. */
START_TEST(split_tags_of_our_own)
{
    static const char split[] = "map: 1\nrules:\n- {name: 'part', to: 'cuda:0'}\n";
    write_all(temporary("split.yaml"), split, sizeof split - 1);
    options.to = "ckpt";
    options.map_location = temporary("split.yaml");
    migrates(fixture("shared.pt"), temporary("a"));
    ckpt_reader *r = open_file(temporary("a"));
    ck_assert_str_eq(find(r, "part")->device.data, "cuda:0");
    ck_assert_str_eq(find(r, "whole")->device.data, "cuda:1");
    ckpt_reader_close(r);
    options.to = "torch";
    options.map_location = NULL;
    ck_assert_int_eq(migrate(temporary("a"), temporary("x")), CKPT_E_MISMATCH);
    ck_assert_uint_ge(ckpt_report_count_code(report, "shared-split"), 1);
    ck_assert(!is_there(temporary("x")));
    options.map_location = "cuda:3";
    migrates(temporary("a"), temporary("x"));
    r = open_file(temporary("x"));
    ck_assert_str_eq(find(r, "part")->device.data, "cuda:3");
    ck_assert_str_eq(find(r, "whole")->device.data, "cuda:3");
    ckpt_reader_close(r);
}
END_TEST

/* Elsewhere than in torch's own format a conjugate view is its values. */
START_TEST(conjugate)
{
    float pair[2] = {0, 0};
    size_t i;
    options.to = "safetensors";
    options.lossy = true;
    migrates(fixture("tensors.pt"), temporary("a"));
    ckpt_reader *r = open_file(temporary("a"));
    ck_assert_int_eq(ckpt_reader_find(r, "conj", 4, &i, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, pair, sizeof pair, &err), CKPT_OK);
    ck_assert(pair[0] == 1 && pair[1] == -2);
    ckpt_reader_close(r);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "resolved", "conj"));
}
END_TEST

/* ---- the order of an optimizer's parameters */

START_TEST(reordered)
{
    static const char *const names[] = {"2.bias", "2.weight", "1.bias", "1.weight", "0.bias", "0.weight"};
    options.param_names = names;
    options.param_name_count = 6;
    migrates(fixture("plain.pt"), temporary("a.pt"));
    ckpt_reader *from = open_file(fixture("plain.pt")), *to = open_file(temporary("a.pt"));
    ck_assert_uint_eq(crc(from, "optimizer.state.5.exp_avg"), crc(to, "optimizer.state.0.exp_avg"));
    ck_assert_uint_eq(crc(from, "optimizer.state.0.exp_avg_sq"), crc(to, "optimizer.state.5.exp_avg_sq"));
    ck_assert_int_eq(value(to, "optimizer", "state")->entries[0].key->integer, 0);
    ck_assert_uint_eq(crc(from, "model.0.weight"), crc(to, "model.0.weight"));
    ckpt_reader_close(from);
    ckpt_reader_close(to);
    options.to = "ckpt"; /* there it is the order that the source has, and by the shapes it is not */
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_MISMATCH);
    ck_assert_uint_gt(ckpt_report_count_code(report, "moment-shape"), 0);
    options.to = "torch";
    options.param_name_count = 5;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_MISMATCH);
    ck_assert(!is_there(temporary("x")));
}
END_TEST

/* ---- directories of weights */

static size_t files_in(const char *folder)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

START_TEST(shards)
{
    options.to = "hf";
    options.max_shard_size = 60;
    options.verify = true;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("out")), CKPT_E_UNSUPPORTED); /* optimizer, tags */
    ck_assert(!is_there(temporary("out")));
    static const char *const bias[] = {"a.bias"}; /* what was asked to go is no loss */
    options.drop = bias;
    options.drop_count = 1;
    migrates(fixture("weights.safetensors"), temporary("dropped"));
    options.drop_count = 0;
    options.lossy = true;
    migrates(fixture("plain.pt"), temporary("out"));
    ck_assert(is_there(temporary("out/model-00001-of-00003.safetensors")));
    size_t n;
    char *index = read_all(temporary("out/model.safetensors.index.json"), &n);
    index[n] = 0;
    ck_assert_ptr_nonnull(strstr(index, "\"total_size\": 148"));
    ck_assert_ptr_nonnull(strstr(index, "\"2.bias\": \"model-00003-of-00003.safetensors\""));
    free(index);
    ckpt_reader *from = open_file(fixture("plain.pt")), *to = open_file(temporary("out"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(to), 9);
    ck_assert_uint_eq(crc(from, "model.2.weight"), crc(to, "2.weight"));
    ckpt_reader_close(from);
    ckpt_reader_close(to);
    options.max_shard_size = 0;
    migrates(fixture("plain.pt"), temporary("out")); /* replaced whole: no shard of before is left */
    ck_assert_uint_eq(files_in(temporary("out")), 1);
    ck_assert(is_there(temporary("out/model.safetensors")));
    write_all(temporary("out/config.json"), "{}", 2);
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("out")), CKPT_E_EXISTS);
    ck_assert_ptr_nonnull(strstr(err.message, "config.json"));
    ck_assert_uint_eq(files_in(temporary("out")), 2);
}
END_TEST

/* Shards again as one torch file, and safetensors as a flat state_dict. */
START_TEST(joined)
{
    options.to = "hf";
    options.max_shard_size = 60;
    options.lossy = true;
    migrates(fixture("plain.pt"), temporary("out"));
    options.to = "torch";
    migrates(temporary("out"), temporary("a.pt"));
    ckpt_reader *from = open_file(fixture("plain.pt")), *to = open_file(temporary("a.pt"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(to), 9);
    ck_assert_uint_eq(crc(from, "model.2.weight"), crc(to, "2.weight"));
    ck_assert_str_eq(find(to, "2.weight")->device.data, "cpu");
    ckpt_reader_close(from);
    ckpt_reader_close(to);
}
END_TEST

/* ---- damage */

/* An object whose tensor is not listed goes with it, and the rest is kept. */
START_TEST(salvage_closed)
{
    static const char *const names[] = {"call", "set", "bytes"};
    size_t n;
    char *data = read_all(fixture("closed.pt"), &n);
    options.salvage = true;
    for (int i = 0; i < 3; i++) {
        const float is[3] = {(float)(i + 1), (float)(i + 1), (float)(i + 1)};
        char *at = memmem(data, n, is, sizeof is);
        ck_assert_ptr_nonnull(at);
        at[0] ^= 1;
        write_all(temporary("bad.pt"), data, n);
        at[0] ^= 1;
        migrates(temporary("bad.pt"), temporary("a.pt"));
        ck_assert_uint_eq(ckpt_report_count_code(report, "not-recovered"), 1);
        ckpt_reader *r = open_file(temporary("a.pt"));
        for (int k = 0; k < 3; k++) {
            const ckpt_value *v = value(r, names[k], NULL);
            bool none = v && v->item_count == 1 && v->items[0]->kind == CKPT_V_NONE; /* an item of a set */
            ck_assert((!v || none) == (k == i));
        }
        ck_assert_ptr_nonnull(find(r, "w"));
        ckpt_reader_close(r);
    }
    const float last[3] = {4, 4, 4};
    size_t cut = (size_t)((char *)memmem(data, n, last, sizeof last) - data) - 400; /* in what `bytes` has */
    write_all(temporary("bad.pt"), data, cut);
    migrates(temporary("bad.pt"), temporary("a.pt"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "not-recovered", "w"));
    free(data);
}
END_TEST

START_TEST(salvage)
{
    size_t n;
    char *data = read_all(fixture("plain.pt"), &n);
    ckpt_reader *from = open_file(fixture("plain.pt"));
    size_t before = 0, count = ckpt_reader_tensor_count(from);
    options.salvage = true;
    for (size_t cut = n / 8; cut <= n; cut += n / 8) {
        write_all(temporary("cut.pt"), data, cut);
        ckpt_status status = migrate(temporary("cut.pt"), temporary("a.pt"));
        if (status != CKPT_OK)
            continue; /* not even the pickle is there */
        ckpt_reader *to = open_file(temporary("a.pt"));
        size_t kept = ckpt_reader_tensor_count(to);
        ck_assert_uint_eq(kept + ckpt_report_count_code(report, "not-recovered"), count);
        ck_assert_uint_ge(kept, before);
        for (size_t i = 0; i < kept; i++) {
            uint32_t sum = 0;
            ck_assert_int_eq(ckpt_reader_crc32(to, i, &sum, &err), CKPT_OK);
            ck_assert_uint_eq(sum, crc(from, ckpt_reader_tensor(to, i)->name.data));
        }
        before = kept;
        ckpt_reader_close(to);
    }
    ck_assert_uint_gt(before, 0);
    ckpt_reader_close(from);
    free(data);
    migrates(fixture("bad-crc.pt"), temporary("a.pt")); /* all there, and one not as it was written */
    ck_assert_uint_eq(ckpt_report_count_code(report, "not-recovered"), 1);
    options.salvage = false;
    ck_assert_int_eq(migrate(fixture("bad-crc.pt"), temporary("b.pt")), CKPT_E_DAMAGED);
}
END_TEST

/* ---- mends */

START_TEST(fixes)
{
    static const char *const step[] = {"step-on-cpu"}, *const all[] = {"all"}, *const none[] = {"no-optimizer"};
    options.fix = step;
    options.fix_count = 1;
    migrates(fixture("fused-step-cpu.pt"), temporary("a.pt"));
    ckpt_reader *r = open_file(temporary("a.pt"));
    ck_assert_str_eq(find(r, "optimizer.state.0.step")->device.data, "cuda:0");
    ckpt_reader_close(r);
    options.fix = all;
    migrates(fixture("plain-step-cuda.pt"), temporary("a.pt"));
    r = open_file(temporary("a.pt"));
    ck_assert_str_eq(find(r, "optimizer.state.0.step")->device.data, "cpu");
    ck_assert_str_eq(find(r, "optimizer.state.0.exp_avg")->device.data, "cuda:0");
    ckpt_reader_close(r);
    options.fix = none;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "step-on-cpu"));
    ck_assert(!is_there(temporary("x")));
}
END_TEST

START_TEST(memory)
{
    options.memory = 1 << 20;
    ck_assert_int_eq(migrate(fixture("plain.pt"), temporary("x")), CKPT_E_ARGUMENT);
    ck_assert(!is_there(temporary("x")));
    options.memory = 64 << 20;
    migrates(fixture("plain.pt"), temporary("x"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_edit");
    TCase *t = tcase_create("migrate_edit");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, prefix_and_back);
    tcase_add_test(t, a_module_without_tensors_loses_the_prefix);
    tcase_add_test(t, renamed);
    tcase_add_test(t, collision);
    tcase_add_test(t, dropped);
    tcase_add_test(t, selected);
    tcase_add_test(t, weights);
    tcase_add_test(t, casts);
    tcase_add_test(t, cast_shared);
    tcase_add_test(t, plain);
    tcase_add_test(t, plain_wrapper);
    tcase_add_test(t, device_objects);
    tcase_add_test(t, devices);
    tcase_add_test(t, split_tags_of_our_own);
    tcase_add_test(t, conjugate);
    tcase_add_test(t, reordered);
    tcase_add_test(t, shards);
    tcase_add_test(t, joined);
    tcase_add_test(t, salvage_closed);
    tcase_add_test(t, salvage);
    tcase_add_test(t, fixes);
    tcase_add_test(t, memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
