/* A directory as a directory that its own program reads again, weights with what lies beside them, and an optimizer of
 * libtorch without its module. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_report *report;
static ckpt_migrate_options options;
static ckpt_reader *reader;

/* In that order torch's own order of the parameters fits, and another one: names of one shape. */
static const flat weights[] = {{"a.weight", 2, {2, 3}}, {"b.weight", 1, {3, 0}}, {"c.weight", 1, {3, 0}}};
static const char *const order[] = {"a.weight", "c.weight", "b.weight"};

static void setup(void)
{
    make_folder();
    report = ckpt_report_new();
    ck_assert_ptr_nonnull(report);
    options = (ckpt_migrate_options){.to = "same", .verify = true, .no_sync = true};
    memset(&err, 0, sizeof err);
    reader = NULL;
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    ckpt_report_free(report);
    remove_folder();
}

static ckpt_status migrate(const char *from, const char *to)
{
    return ckpt_migrate(from, to, &options, report, &err);
}
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        ckpt_status status_ = (call);                                                                                  \
        ck_assert_msg(status_ >= 0, "%s: %s: %s", #call, err.object, err.message);                                     \
    } while (0)

static void fails(const char *from, const char *to, ckpt_status status, const char *words)
{
    ckpt_status was = migrate(from, to);
    ck_assert_msg(was == status, "%d: %s", was, err.message);
    ck_assert_msg(strstr(err.message, words) != NULL, "no '%s' in: %s", words, err.message);
}

static const char *peers(const char *name)
{
    static char path[2][1200];
    static int next;
    const char *srcdir = getenv("srcdir");
    char *to = path[next++ % 2];
    snprintf(to, sizeof path[0], "%s/tests/data/peers/%s", srcdir ? srcdir : ".", name);
    return to;
}

/* diff -r of the two says nothing, but for `except`. */
static bool alike(const char *a, const char *b, const char *except)
{
    char command[2600];
    snprintf(command, sizeof command, "diff -r -q '%s' '%s' -x '%s' > '%s'", a, b, except, at("diff"));
    return system(command) == 0;
}

static void reads(const char *path)
{
    ckpt_reader_close(reader);
    reader = NULL;
    OK(ckpt_reader_open(path, NULL, &reader, &err));
}

static const ckpt_tensor_info *tensor(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    return ckpt_reader_tensor(reader, i);
}

static void device_is(const char *name, const char *device)
{
    const ckpt_tensor_info *t = tensor(name);
    ck_assert_msg(t->device.data && strcmp(t->device.data, device) == 0, "%s is on %s, not %s", name, t->device.data,
                  device);
}

static void first_is(const char *name, float first)
{
    float values[16];
    const ckpt_tensor_info *t = tensor(name);
    size_t i;
    ck_assert_uint_le(t->nbytes, sizeof values);
    OK(ckpt_reader_find(reader, name, strlen(name), &i, &err));
    OK(ckpt_reader_read(reader, i, values, (size_t)t->nbytes, &err));
    ck_assert_msg(values[0] == first, "%s begins with %g, not %g", name, (double)values[0], (double)first);
}

/* What accelerate saves, and what people put beside it. */
static void make_state(void)
{
    make_directory("src");
    write_safetensors(at("src/model.safetensors"), weights, 3, 10);
    torch_file *t = begin_torch();
    put_adam(t, weights, 3, 3, 0.25);
    write_torch(at("src/optimizer.bin"), t);
    t = begin_torch();
    PUT(&t->pickle, "}X\4\0\0\0lastK\7s");
    write_torch(at("src/scheduler.bin"), t);
    write_text(at("src/notes.md"), "lr was too high");
    write_text(at("src/empty"), "");
    make_directory("src/logs");
    make_directory("src/logs/deep");
    write_text(at("src/logs/deep/run.txt"), "step 1");
}

START_TEST(nothing_asked_for_is_a_copy)
{
    static const char *const names[] = {"accelerate", "hf-trainer", "hf-sharded"};
    make_state();
    OK(migrate(at("src"), at("dst")));
    ck_assert(alike(at("src"), at("dst"), ""));
    for (size_t i = 0; i < 3; i++) {
        OK(migrate(peers(names[i]), at("copy%zu", i)));
        ck_assert(alike(peers(names[i]), at("copy%zu", i), ""));
    }
    ck_assert_uint_eq(ckpt_report_count_code(report, "lost"), 0);
}
END_TEST

/* A copy has it as it is; where it would not be, that is a loss. */
START_TEST(json_that_cannot_be_read)
{
    static const char *const formats[] = {"torch", "ckpt"};
    make_state();
    write_text(at("src/config.json"), "{\"model_type\": \"ti");
    OK(migrate(at("src"), at("dst")));
    ck_assert(alike(at("src"), at("dst"), ""));
    for (size_t i = 0; i < 2; i++) {
        options = (ckpt_migrate_options){.to = formats[i], .no_sync = true};
        ckpt_report_clear(report);
        fails(at("src"), at("a.%s", formats[i]), CKPT_E_UNSUPPORTED, "");
        ck_assert_uint_eq(ckpt_report_count_code(report, "lost"), 1);
        ck_assert_ptr_nonnull(
            strstr(ckpt_report_find(report, "lost", NULL)->message, "all of config.json, which cannot be read: "));
        ck_assert_int_ne(access(at("a.%s", formats[i]), F_OK), 0);
        options.lossy = true;
        OK(migrate(at("src"), at("a.%s", formats[i])));
        reads(at("a.%s", formats[i]));
        ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 12);
    }
}
END_TEST

START_TEST(devices_of_torch_files_move_and_the_rest_is_copied)
{
    make_state();
    options.map_location = "cuda:2";
    OK(migrate(at("src"), at("dst")));
    ck_assert(alike(at("src"), at("dst"), "optimizer.bin"));
    ck_assert(!alike(at("src"), at("dst"), ""));
    reads(at("dst"));
    device_is("state.0.exp_avg", "cuda:2");
    device_is("state.0.step", "cpu");
    ck_assert_ptr_null(tensor("a.weight")->device.data);
    first_is("state.2.exp_avg_sq", 3000);
    ck_assert_uint_eq(ckpt_report_count_code(report, "moved"), 6);
}
END_TEST

/* Which parameter a state is, its place needs; here only --param-names says it. */
START_TEST(param_names_state_the_order_that_the_source_has)
{
    make_state();
    options.map_location = "cuda:2";
    options.optimizer = CKPT_OPTIMIZER_FUSED;
    fails(at("src"), at("dst"), CKPT_E_MISMATCH, "param_names");
    options.param_names = order;
    options.param_name_count = 3;
    OK(migrate(at("src"), at("dst")));
    ck_assert_uint_eq(ckpt_report_count_code(report, "order-stated"), 1);
    ck_assert_uint_eq(ckpt_report_count_code(report, "reordered"), 0);
    reads(at("dst"));
    device_is("state.0.step", "cuda:2");
    device_is("state.2.step", "cuda:2");
    first_is("state.1.exp_avg", 200); /* where it was */
    static const char *const wrong[] = {"b.weight", "c.weight", "a.weight"};
    options.param_names = wrong;
    ck_assert_int_eq(migrate(at("src"), at("other")), CKPT_E_MISMATCH);
}
END_TEST

/* The model's own order is known from a torch file: then it is the order that the target shall have. */
START_TEST(param_names_turn_an_order_that_is_known)
{
    make_state();
    ck_assert_int_eq(unlink(at("src/model.safetensors")), 0);
    write_torch_flat(at("src/pytorch_model.bin"), weights, 3, 10);
    options.param_names = order;
    options.param_name_count = 3;
    OK(migrate(at("src"), at("dst")));
    ck_assert_uint_eq(ckpt_report_count_code(report, "order-stated"), 0);
    ck_assert_uint_eq(ckpt_report_count_code(report, "reordered"), 1);
    reads(at("dst"));
    first_is("state.1.exp_avg", 300);
    first_is("state.2.exp_avg", 200);
}
END_TEST

START_TEST(shards_get_other_names_and_dtypes_and_their_index_says_so)
{
    static const char *const rename[] = {"transformer[.](.*)=$1"}, *const drop[] = {"*.ln_f.bias"};
    static const char *const cast[] = {"*=bfloat16"};
    options.rename = rename, options.rename_count = 1;
    options.drop = drop, options.drop_count = 1;
    options.cast = cast, options.cast_count = 1;
    reads(peers("hf-sharded"));
    size_t before = ckpt_reader_tensor_count(reader);
    OK(migrate(peers("hf-sharded"), at("dst")));
    reads(at("dst"));
    ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0); /* total_size too */
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), before - 1);
    for (size_t i = 0; i < before - 1; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        ck_assert_int_eq(t->dtype, CKPT_BF16);
        ck_assert_msg(strncmp(t->name.data, "transformer.", 12) != 0, "%s", t->name.data);
    }
    ck_assert(alike(peers("hf-sharded"), at("dst"), "model*"));
}
END_TEST

START_TEST(only_such_a_directory_is_replaced)
{
    make_state();
    OK(migrate(at("src"), at("dst")));
    fails(at("src"), at("dst"), CKPT_E_EXISTS, "--force");
    options.force = true;
    options.map_location = "cuda:1";
    fails(at("src"), at("dst"), CKPT_E_EXISTS, "'logs'");
    OK(migrate(peers("accelerate"), at("two")));
    OK(migrate(peers("accelerate"), at("two")));
    reads(at("two"));
    write_text(at("two/thesis.txt"), "mine");
    fails(peers("accelerate"), at("two"), CKPT_E_EXISTS, "'thesis.txt'");
    make_directory("three");
    fails(peers("accelerate"), at("three"), CKPT_E_EXISTS, "another kind of checkpoint");
    fails(at("src"), at("src"), CKPT_E_ARGUMENT, "in place");
    fails(at("src"), at("src/inside"), CKPT_E_ARGUMENT, "inside the source");
}
END_TEST

START_TEST(a_dry_run_and_a_failure_leave_nothing)
{
    make_state();
    options.dry_run = true;
    options.map_location = "cuda:2";
    OK(migrate(at("src"), at("dst")));
    ck_assert_int_eq(access(at("dst"), F_OK), -1);
    ck_assert_uint_eq(ckpt_report_count_code(report, "moved"), 6);
    options.dry_run = false;
    ck_assert_int_eq(symlink("/etc/passwd", at("src/outside")), 0);
    ck_assert_int_lt(migrate(at("src"), at("dst")), 0); /* never followed */
    bool named = strstr(err.message, "outside") != NULL || strstr(err.object, "outside") != NULL;
    ck_assert_msg(named, "%s: %s", err.object, err.message);
    ck_assert_int_eq(access(at("dst"), F_OK), -1);
    char command[200];
    snprintf(command, sizeof command, "ls -A '%s' | grep -q '^[.]tmp'", folder);
    ck_assert_int_ne(system(command), 0); /* with its folders */
}
END_TEST

START_TEST(what_is_damaged_does_not_go_along_as_if_it_were_not)
{
    make_state();
    write_text(at("src/optimizer.bin"), "what is this");
    ck_assert_int_lt(migrate(at("src"), at("dst")), 0);
    options.salvage = true;
    OK(migrate(at("src"), at("dst")));
    ck_assert_int_eq(access(at("dst/optimizer.bin"), F_OK), -1);
    ck_assert_uint_eq(ckpt_report_count_code(report, "not-recovered"), 1);
    ck_assert(alike(at("src/model.safetensors"), at("dst/model.safetensors"), ""));
    ck_assert(alike(at("src/logs"), at("dst/logs"), ""));
}
END_TEST

/* The index then names what is there, and the result opens as a whole. */
START_TEST(what_is_left_of_shards_is_a_model_of_its_own)
{
    static const char *const file[] = {"model-00002-of-00002.safetensors", "model.safetensors.index.json"};
    char command[2600], line[64];
    reads(peers("hf-sharded"));
    size_t all = ckpt_reader_tensor_count(reader);
    options.salvage = true;
    for (size_t i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "cp -r '%s' '%s' && chmod -R u+w '%s'", peers("hf-sharded"), at("src%zu", i),
                 at("src%zu", i));
        ck_assert_int_eq(system(command), 0);
        snprintf(line, sizeof line, "%s/%s", i ? "src1" : "src0", file[i]);
        if (i == 0)
            snprintf(command, sizeof command, "rm '%s'", at("%s", line));
        else
            snprintf(command, sizeof command, "echo '[]' > '%s'", at("%s", line));
        ck_assert_int_eq(system(command), 0);
        OK(migrate(at("src%zu", i), at("dst%zu", i)));
        ck_assert_uint_gt(ckpt_report_count_code(report, "not-recovered"), 0);
        ck_assert_int_eq(access(at("dst%zu/config.json", i), F_OK), 0);
        ck_assert_int_eq(access(at("dst%zu/config.json.index.json", i), F_OK), -1); /* only weights have shards */
        reads(at("dst%zu", i));
        ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
        ck_assert_uint_gt(ckpt_reader_tensor_count(reader), 0);
        ck_assert_int_eq(ckpt_reader_tensor_count(reader) == all, i == 1);
    }
}
END_TEST

/* Two shards in `name`: a.weight in the first, b.weight and c.weight in the second. */
static const char *const shard_name[2][2] = {{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
                                             {"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"}};
static const char *const index_name[2] = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};

static void make_shards(const char *name, bool torch)
{
    char text[600];
    make_directory(name);
    for (size_t i = 0; i < 2; i++) {
        const char *path = at("%s/%s", name, shard_name[torch][i]);
        if (torch)
            write_torch_flat(path, weights + i, i ? 2 : 1, 10 + 10 * (float)i);
        else
            write_safetensors(path, weights + i, i ? 2 : 1, 10 + 10 * (float)i);
    }
    snprintf(text, sizeof text,
             "{\"metadata\": {\"total_size\": 48}, \"weight_map\": {\"a.weight\": \"%s\", \"b.weight\": \"%s\", "
             "\"c.weight\": \"%s\"}}",
             shard_name[torch][0], shard_name[torch][1], shard_name[torch][1]);
    write_text(at("%s/%s", name, index_name[torch]), text);
    write_text(at("%s/config.json", name), "{}");
}

/* Of those the first is gone, and the second is a model that reads as it is. */
static void only_second_shard(const char *name, bool torch)
{
    ck_assert_int_eq(access(at("%s/%s", name, shard_name[torch][0]), F_OK), -1);
    ck_assert_int_eq(access(at("%s/%s", name, shard_name[torch][1]), F_OK), 0);
    ck_assert_int_eq(access(at("%s/%s", name, index_name[torch]), F_OK), 0);
    ck_assert_int_eq(access(at("%s/config.json", name), F_OK), 0);
    ck_assert_uint_eq(ckpt_report_count_code(report, "left-out"), 1);
    ck_assert_str_eq(ckpt_report_find(report, "left-out", NULL)->tensor, shard_name[torch][0]);
    reads(at("%s", name));
    ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 2);
    first_is("b.weight", 20);
}

START_TEST(a_shard_without_tensors_stays_away)
{
    static const char *const first[] = {"a.weight"};
    options.drop = first, options.drop_count = 1;
    for (int torch = 0; torch < 2; torch++)
        for (int loose = 0; loose < 2; loose++) {
            const char *of = torch ? "torch" : "st", *kind = loose ? "loose" : "named";
            make_shards(of, torch);
            if (loose)
                ck_assert_int_eq(unlink(at("%s/%s", of, index_name[torch])), 0);
            OK(migrate(at("%s", of), at("%s-%s", of, kind)));
            only_second_shard(at("%s-%s", of, kind) + strlen(folder) + 1, torch);
            char command[200];
            snprintf(command, sizeof command, "rm -r '%s'", at("%s", of));
            ck_assert_int_eq(system(command), 0);
        }
}
END_TEST

START_TEST(an_index_that_names_nothing_stays_away)
{
    static const char *const model[] = {"a.weight", "b.weight", "c.weight"}, *const all[] = {"*"};
    make_shards("src", false);
    options.drop = all, options.drop_count = 1;
    fails(at("src"), at("dst"), CKPT_E_ARGUMENT, "none of its 3 tensors");
    write_adam(at("src/optimizer.bin"), weights, 3, 3, 0.25);
    options.drop = model, options.drop_count = 3;
    OK(migrate(at("src"), at("dst")));
    ck_assert_uint_eq(ckpt_report_count_code(report, "left-out"), 3);
    ck_assert_int_eq(access(at("dst/%s", index_name[0]), F_OK), -1);
    reads(at("dst"));
    ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 9);
}
END_TEST

/* Which shard has them the model's dict does not tell: nothing is written by guess. Copied is what does not change. */
START_TEST(shards_with_values_are_not_written_again)
{
    make_directory("src");
    write_torch_flat(at("src/pytorch_model-00001-of-00002.bin"), weights, 1, 10);
    write_adam(at("src/pytorch_model-00002-of-00002.bin"), weights + 1, 2, 2, 0.25);
    OK(migrate(at("src"), at("copy")));
    ck_assert(alike(at("src"), at("copy"), "none"));
    options.map_location = "cuda:3";
    fails(at("src"), at("dst"), CKPT_E_UNSUPPORTED, "'state' is a dict");
    ck_assert_int_eq(access(at("dst"), F_OK), -1);
    options.to = "torch";
    OK(migrate(at("src"), at("dst.pt")));
}
END_TEST

/* Cut so that its tensor is not whole, and of a torch file with one byte that its CRC denies. */
START_TEST(a_shard_of_damaged_tensors_stays_away)
{
    static const char *const source[] = {"st", "torch", "flipped"};
    options.salvage = true;
    for (size_t i = 0; i < 3; i++) {
        bool torch = i > 0;
        char command[600];
        make_shards(source[i], torch);
        const char *path = at("%s/%s", source[i], shard_name[torch][0]);
        const char *how = i == 0 ? "truncate -s -4 '%s'"
                                 : "at=$(grep -obUaP '\\x20\\x41\\x00\\x00\\x30\\x41' '%s' | head -n 1 | cut -d: -f1)";
        int n = snprintf(command, sizeof command, how, path);
        if (i == 1)
            snprintf(command + n, sizeof command - (size_t)n, "; truncate -s $((at + 3)) '%s'", path);
        if (i == 2)
            snprintf(command + n, sizeof command - (size_t)n,
                     "; printf X | dd of='%s' bs=1 seek=$at conv=notrunc status=none", path);
        ck_assert_int_eq(system(command), 0);
        OK(migrate(at("%s", source[i]), at("%s-left", source[i])));
        ck_assert_uint_eq(ckpt_report_count_code(report, "not-recovered"), 1);
        only_second_shard(at("%s-left", source[i]) + strlen(folder) + 1, torch);
    }
}
END_TEST

static bool holds(const char *path, const char *text)
{
    char command[800];
    snprintf(command, sizeof command, "grep -qaF '%s' '%s'", text, path);
    return system(command) == 0;
}

/* What programs and people note of a model and of a shard; what counts its tensors counts those that are there now. */
START_TEST(notes_of_shards_and_their_index_stay)
{
    static const char *const cast[] = {"*=bfloat16"}, *const drop[] = {"c.weight"};
    static const char *const parameters[] = {"10", "12"};
    static const char shard[] = "{\"__metadata__\":{\"note\":\"keep me\",\"format\":\"mlx\"},\"a.weight\":{\"dtype\":"
                                "\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}";
    static bytes file;
    for (size_t i = 0; i < 2; i++) {
        char text[600], name[20];
        snprintf(name, sizeof name, "src%zu", i);
        make_shards(name, false);
        file.size = 0;
        put_number(&file, sizeof shard - 1, 8);
        put(&file, shard, sizeof shard - 1);
        put(&file, "abcdefghijklmnopqrstuvwx", 24);
        write_to(at("%s/%s", name, shard_name[0][0]), file.data, file.size);
        snprintf(text, sizeof text,
                 "{\"metadata\": {\"by\": {\"who\": [1, \"m\\u00e9\"]}, \"total_size\": 48 , \"total_parameters\": %s},"
                 "\"weight_map\": {\"a.weight\": \"%s\", \"b.weight\": \"%s\", \"c.weight\": \"%s\"}}",
                 parameters[i], shard_name[0][0], shard_name[0][1], shard_name[0][1]);
        write_text(at("%s/%s", name, index_name[0]), text);
        options.drop = NULL, options.drop_count = 0;
        options.cast = cast, options.cast_count = 1;
        OK(migrate(at("%s", name), at("%s-cast", name)));
        const char *index = at("%s-cast/%s", name, index_name[0]);
        ck_assert(holds(at("%s-cast/%s", name, shard_name[0][0]), "\"note\":\"keep me\",\"format\":\"mlx\""));
        ck_assert(holds(index, "\"by\": {\"who\": [1, \"m\\u00e9\"]},"));
        ck_assert(holds(index, "\"total_size\": 24"));
        snprintf(text, sizeof text, "\"total_parameters\": %s,", parameters[i]);
        ck_assert(holds(index, text)); /* nothing is left out */
        options.drop = drop, options.drop_count = 1;
        OK(migrate(at("%s", name), at("%s-drop", name)));
        index = at("%s-drop/%s", name, index_name[0]);
        ck_assert(holds(index, "\"by\": {\"who\": [1, \"m\\u00e9\"]},"));
        ck_assert(holds(index, "\"total_size\": 18"));
        ck_assert_int_eq(holds(index, "total_parameters"), i == 1);
        ck_assert_int_eq(holds(index, "\"total_parameters\": 9,"), i == 1);
        ck_assert_uint_eq(ckpt_report_count_code(report, "left-out"), i == 0);
        reads(at("%s-drop", name));
        ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
    }
}
END_TEST

START_TEST(folders_of_fsdp_are_refused_by_name)
{
    char command[1600];
    const char *srcdir = getenv("srcdir");
    make_directory("src");
    write_torch_int(at("src/scheduler.bin"), "last", 7);
    snprintf(command, sizeof command, "cp -r '%s/tests/data/dcp/ranks' '%s' && chmod -R u+w '%s'",
             srcdir ? srcdir : ".", at("src/pytorch_model_fsdp_0"), at("src"));
    ck_assert_int_eq(system(command), 0);
    fails(at("src"), at("dst"), CKPT_E_UNSUPPORTED, "'pytorch_model_fsdp_0' is a distributed checkpoint");
    fails(at("src"), at("dst"), CKPT_E_UNSUPPORTED, "say --to ckpt, torch, safetensors or hf");
    ck_assert_str_eq(err.object, at("src"));
    ck_assert_int_eq(access(at("dst"), F_OK), -1);
    options.to = "torch";
    OK(migrate(at("src"), at("dst")));
}
END_TEST

START_TEST(one_file_keeps_its_format)
{
    write_safetensors(at("a.safetensors"), weights, 3, 10);
    OK(migrate(at("a.safetensors"), at("b.safetensors")));
    reads(at("b.safetensors"));
    ck_assert_str_eq(ckpt_reader_format(reader), "safetensors");
    first_is("a.weight", 10);
    write_torch_flat(at("a.pt"), weights, 3, 10);
    options.map_location = "cuda:1";
    OK(migrate(at("a.pt"), at("b.pt")));
    reads(at("b.pt"));
    ck_assert_str_eq(ckpt_reader_format(reader), "torch");
    device_is("a.weight", "cuda:1");
    options.weights_only = true;
    fails(at("a.pt"), at("c.pt"), CKPT_E_ARGUMENT, "--weights-only");
}
END_TEST

START_TEST(settings_and_tokenizers_go_with_the_weights)
{
    char command[1600];
    snprintf(command, sizeof command, "cp -r '%s' '%s' && chmod -R u+w '%s'", peers("hf-sharded"), at("src"),
             at("src"));
    ck_assert_int_eq(system(command), 0);
    write_text(at("src/tokenizer.json"), "{}");
    write_text(at("src/merges.txt"), "a b");
    options.to = "hf";
    OK(migrate(at("src"), at("dst")));
    ck_assert_uint_eq(ckpt_report_count_code(report, "lost"), 0);
    ck_assert(alike(at("src"), at("dst"), "model*"));
    ck_assert_int_eq(access(at("dst/model.safetensors"), F_OK), 0);
    options.force = true;
    OK(migrate(at("src"), at("dst"))); /* what was carried along is no obstacle */
    fails(peers("hf-trainer"), at("other"), CKPT_E_UNSUPPORTED, "--lossy");
    ck_assert_ptr_nonnull(ckpt_report_find(report, "lost", ""));
}
END_TEST

/* The configuration of an adapter has no place beside the weights of a model, of whatever format they were. */
START_TEST(what_is_not_carried_along_is_told)
{
    make_directory("src");
    write_safetensors(at("src/adapter_model.safetensors"), weights, 3, 10);
    write_text(at("src/adapter_config.json"), "{\"peft_type\": \"LORA\", \"r\": 4}");
    options.to = "hf";
    fails(at("src"), at("dst"), CKPT_E_UNSUPPORTED, "--lossy");
    ck_assert_uint_eq(ckpt_report_count_code(report, "lost"), 1);
    options.lossy = true;
    OK(migrate(at("src"), at("dst")));
}
END_TEST

START_TEST(tags_of_the_cpu_are_no_loss)
{
    make_directory("src");
    write_torch_flat(at("src/pytorch_model.bin"), weights, 3, 10);
    write_text(at("src/config.json"), "{}");
    options.to = "hf";
    OK(migrate(at("src"), at("dst")));
    ck_assert(alike(at("src/config.json"), at("dst/config.json"), ""));
    ck_assert_ptr_null(ckpt_report_find(report, "tags-dropped", NULL));
    options.map_location = "cuda:1";
    OK(migrate(at("src"), at("two"))); /* who loads weights says where they go */
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "tags-dropped", NULL)->message, "3 tensors (cuda:1, ...)"));
}
END_TEST

START_TEST(an_optimizer_of_libtorch_goes_by_position)
{
    options.to = "torch";
    OK(migrate(peers("libtorch-optimizer.pt"), at("o.pt")));
    reads(at("o.pt"));
    const ckpt_value *root = ckpt_reader_root(reader), *groups = ckpt_value_get(root, "param_groups"),
                     *state = ckpt_value_get(root, "state");
    ck_assert_uint_eq(root->entry_count, 2);
    ck_assert(groups && groups->kind == CKPT_V_LIST && groups->item_count > 0 && state && state->entry_count > 0);
    int64_t id = 0;
    for (size_t g = 0; g < groups->item_count; g++) {
        const ckpt_value *params = ckpt_value_get(groups->items[g], "params");
        ck_assert_ptr_nonnull(ckpt_value_get(groups->items[g], "lr"));
        for (size_t i = 0; i < params->item_count; i++)
            ck_assert_int_eq(params->items[i]->integer, id++);
    }
    ck_assert_int_eq((int64_t)state->entry_count, id);
    for (size_t i = 0; i < state->entry_count; i++)
        ck_assert(state->entries[i].key->kind == CKPT_V_INT && state->entries[i].key->integer == (int64_t)i);
    ck_assert_int_eq(tensor("state.0.step")->dtype, CKPT_F32);
    ck_assert_uint_eq(tensor("state.0.step")->ndim, 0);
    ck_assert_int_eq(tensor("state.0.step")->role, CKPT_ROLE_STEP);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_same");
    TCase *t = tcase_create("same");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_asked_for_is_a_copy);
    tcase_add_test(t, json_that_cannot_be_read);
    tcase_add_test(t, devices_of_torch_files_move_and_the_rest_is_copied);
    tcase_add_test(t, param_names_state_the_order_that_the_source_has);
    tcase_add_test(t, param_names_turn_an_order_that_is_known);
    tcase_add_test(t, shards_get_other_names_and_dtypes_and_their_index_says_so);
    tcase_add_test(t, only_such_a_directory_is_replaced);
    tcase_add_test(t, a_dry_run_and_a_failure_leave_nothing);
    tcase_add_test(t, what_is_damaged_does_not_go_along_as_if_it_were_not);
    tcase_add_test(t, what_is_left_of_shards_is_a_model_of_its_own);
    tcase_add_test(t, a_shard_without_tensors_stays_away);
    tcase_add_test(t, an_index_that_names_nothing_stays_away);
    tcase_add_test(t, shards_with_values_are_not_written_again);
    tcase_add_test(t, a_shard_of_damaged_tensors_stays_away);
    tcase_add_test(t, notes_of_shards_and_their_index_stay);
    tcase_add_test(t, folders_of_fsdp_are_refused_by_name);
    tcase_add_test(t, one_file_keeps_its_format);
    tcase_add_test(t, settings_and_tokenizers_go_with_the_weights);
    tcase_add_test(t, what_is_not_carried_along_is_told);
    tcase_add_test(t, tags_of_the_cpu_are_no_loss);
    tcase_add_test(t, an_optimizer_of_libtorch_goes_by_position);
    suite_add_tcase(s, t);
    return run_suite(s);
}
