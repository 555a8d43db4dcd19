/* What a training saves by distributed checkpoints, and the list does not say outright: the order of the state dict, an optimizer that
 * keeps nothing, a model whose tensors stand at the root, files of two saves. Lists are written here; of tensors only steps have records
 * that can be looked into. */
#include <ckpt/migrate.h>
#include <ckpt/naming.h>
#include <ckpt/reader.h>
#include <ckpt/summary.h>
#include <ckpt/verify.h>
#define READER_FORMAT "dcp"
#include "../reader_checks.h"

enum { MOST = 24, TENSOR_BYTES = 64 };

/* An item of a state dict: a tensor of float32, or an object. */
typedef struct item {
    const char *path[4]; /* up to NULL */
    int64_t size; /* of a tensor of one dimension; 0: an object, which is `object`; -1: a tensor without dimensions */
    const char *object; /* a pickle without its frame and STOP */
    size_t object_size;
    float step; /* of a tensor without dimensions */
    int file;   /* 0 or 1 */
} item;

#define TENSOR(n, ...)                                                                                                 \
    {                                                                                                                  \
        .path = {__VA_ARGS__}, .size = (n)                                                                             \
    }
#define STEP(value, number, ...)                                                                                       \
    {                                                                                                                  \
        .path = {__VA_ARGS__}, .size = -1, .step = (value), .file = (number)                                           \
    }
#define OBJECT(pickle, ...)                                                                                            \
    {                                                                                                                  \
        .path = {__VA_ARGS__}, .object = pickle, .object_size = sizeof(pickle) - 1                                     \
    }

static void key_of(const item *it, char *key, size_t room)
{
    key[0] = '\0';
    for (size_t i = 0; i < 4 && it->path[i]; i++)
        snprintf(key + strlen(key), room - strlen(key), "%s%s", i ? "." : "", it->path[i]);
}

static void begin_object(bytes *b, const char *name)
{
    put_global(b, "torch.distributed.checkpoint.metadata", name);
    PUT(b, ")\x81}(");
}

static void put_shape(bytes *b, const item *it, bool zero)
{
    const int64_t n = zero ? 0 : it->size;
    put_ints(b, &n, it->size > 0 ? 1 : 0);
}

static void put_item(bytes *b, const item *it)
{
    char key[200];
    key_of(it, key, sizeof key);
    put_str(b, key);
    begin_object(b, it->size ? "TensorStorageMetadata" : "BytesStorageMetadata");
    if (it->size) {
        put_str(b, "properties");
        begin_object(b, "TensorProperties");
        put_str(b, "dtype");
        put_global(b, "torch", "float32");
        PUT(b, "ub");
        put_str(b, "size");
        put_shape(b, it, false);
        put_str(b, "chunks");
        PUT(b, "](");
        begin_object(b, "ChunkStorageMetadata");
        put_str(b, "offsets");
        put_shape(b, it, true);
        put_str(b, "sizes");
        put_shape(b, it, false);
        PUT(b, "ube");
    }
    PUT(b, "ub");
}

static void put_record(bytes *b, const item *it, size_t at, size_t length)
{
    char key[200];
    key_of(it, key, sizeof key);
    begin_object(b, "MetadataIndex");
    put_str(b, "fqn");
    put_str(b, key);
    put_str(b, "offset");
    if (it->size)
        put_shape(b, it, true);
    else
        PUT(b, "N");
    PUT(b, "ub");
    begin_object(b, "_StorageInfo");
    put_str(b, "relative_path");
    put_str(b, it->file ? "__1_0.distcp" : "__0_0.distcp");
    put_str(b, "offset");
    put_int(b, (int64_t)at);
    put_str(b, "length");
    put_int(b, (int64_t)length);
    PUT(b, "ub");
}

static void put_path(bytes *b, const item *it)
{
    char key[200];
    key_of(it, key, sizeof key);
    put_str(b, key);
    PUT(b, "(");
    for (size_t i = 0; i < 4 && it->path[i]; i++)
        put_str(b, it->path[i]);
    PUT(b, "t");
}

static size_t put_archive(bytes *out, const item *it)
{
    static archive zip;
    static bytes pickle;
    memset(&zip, 0, sizeof zip);
    pickle.size = 0;
    PUT(&pickle, "\x80\x02");
    if (it->size)
        put_tensor(&pickle, &(view){.class_name = "FloatStorage", .key = "0", .location = "cpu", .numel = 1});
    else
        put(&pickle, it->object, it->object_size);
    PUT(&pickle, ".");
    add_record(&zip, &(record){.name = "archive/data.pkl", .data = pickle.data, .size = pickle.size});
    if (it->size)
        add_record(&zip, &(record){.name = "archive/data/0", .data = &it->step, .size = sizeof it->step});
    add_record(&zip, &(record){.name = "archive/version", .data = "3\n", .size = 2});
    put_end64(&zip, 0, 0, 0);
    put(out, zip.file.data, zip.file.size);
    return zip.file.size;
}

/* The state dict's items as given; the list has them in the order `listed` (numbers of items), as the work was divided. */
static void write_state(const item *items, size_t count, const size_t *listed)
{
    static bytes list, records[2];
    static const char zeros[TENSOR_BYTES];
    size_t begins[MOST], length[MOST];
    list.size = records[0].size = records[1].size = 0;
    mkdir(at("c"), 0700);
    for (size_t i = 0; i < count; i++) {
        bytes *to = &records[items[i].file];
        begins[i] = to->size;
        length[i] = items[i].size > 0 ? sizeof zeros : put_archive(to, &items[i]);
        if (items[i].size > 0)
            put(to, zeros, sizeof zeros);
    }
    PUT(&list, "\x80\x02");
    begin_object(&list, "Metadata");
    put_str(&list, "state_dict_metadata");
    PUT(&list, "}(");
    for (size_t i = 0; i < count; i++)
        put_item(&list, &items[listed ? listed[i] : i]);
    PUT(&list, "u");
    put_str(&list, "storage_data");
    PUT(&list, "}(");
    for (size_t i = 0; i < count; i++)
        put_record(&list, &items[i], begins[i], length[i]);
    PUT(&list, "u");
    put_str(&list, "planner_data");
    PUT(&list, "}(");
    for (size_t i = 0; i < count; i++)
        put_path(&list, &items[i]);
    PUT(&list, "uub.");
    write_to(at("c/.metadata"), list.data, list.size);
    write_to(at("c/__0_0.distcp"), records[0].data, records[0].size);
    if (records[1].size)
        write_to(at("c/__1_0.distcp"), records[1].data, records[1].size);
}

static const ckpt_canonical *named(ckpt_naming *naming, const char *name, const ckpt_tensor_info **info)
{
    size_t i;
    *info = tensor_named(name, &i);
    return ckpt_naming_get(naming, i);
}

/* {lr: 1, params: [...]} of one group, with ids 0, 1, 2, and with the names "a", "b". */
#define NUMBERED "](}(X\2\0\0\0lrK\1X\6\0\0\0params](K\0K\1K\2eue"
#define NAMED "](}(X\2\0\0\0lrK\1X\6\0\0\0params](X\1\0\0\0aX\1\0\0\0beue"

/* Replicas are divided over the ranks, and the list has what rank 0 writes first. Equal shapes leave the order alone to tell. */
START_TEST(the_list_is_in_the_order_of_the_state_dict)
{
    static const item items[] = {TENSOR(4, "model", "z"),
                                 TENSOR(4, "model", "m"),
                                 TENSOR(4, "model", "a"),
                                 TENSOR(4, "optim", "state", "0", "exp_avg"),
                                 TENSOR(4, "optim", "state", "1", "exp_avg"),
                                 TENSOR(4, "optim", "state", "2", "exp_avg"),
                                 OBJECT(NUMBERED, "optim", "param_groups")};
    static const size_t listed[] = {2, 5, 3, 6, 0, 1, 4};
    static const char *const names[] = {"model.z", "model.m", "model.a"};
    write_state(items, sizeof items / sizeof *items, listed);
    opens(at("c"));
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(ckpt_reader_tensor(reader, i)->name.data, names[i]);
    ckpt_naming *naming;
    const ckpt_tensor_info *info;
    ck_assert_int_eq(ckpt_naming_new(reader, NULL, &naming, NULL, &err), CKPT_OK);
    ck_assert_str_eq(named(naming, "optim.state.0.exp_avg", &info)->name.data, "optimizer.z.exp_avg");
    ck_assert_str_eq(named(naming, "optim.state.1.exp_avg", &info)->name.data, "optimizer.m.exp_avg");
    ck_assert_str_eq(named(naming, "optim.state.2.exp_avg", &info)->name.data, "optimizer.a.exp_avg");
    ckpt_naming_free(naming);
}
END_TEST

/* A dict without items has no key in the list. */
START_TEST(an_optimizer_that_keeps_nothing_has_a_state)
{
    static const item items[] = {TENSOR(4, "model", "a"), TENSOR(3, "model", "b"),
                                 OBJECT(NAMED, "optim", "param_groups")};
    const ckpt_value *root, *state;
    write_state(items, sizeof items / sizeof *items, NULL);
    opens(at("c"));
    root = ckpt_reader_root(reader);
    state = ckpt_value_get(ckpt_value_get(root, "optim"), "state");
    ck_assert_ptr_nonnull(state);
    ck_assert_int_eq(state->kind, CKPT_V_DICT);
    ck_assert_uint_eq(state->entry_count, 0);
    ck_assert_ptr_null(ckpt_value_get(ckpt_value_get(root, "model"), "state"));
}
END_TEST

/* torchtitan: parameters, buffers and frozen parameters at the root, with the optimizer flat below its name. */
START_TEST(a_model_at_the_root_beside_its_optimizer)
{
    static const item items[] = {OBJECT("K\3", "train_state", "step"),
                                 OBJECT("K\5", "train_state", "ntokens_seen"),
                                 TENSOR(4, "rng"),
                                 TENSOR(4, "optimizer", "state.scale.exp_avg"),
                                 TENSOR(3, "optimizer", "state.layers.0.up.exp_avg"),
                                 OBJECT("K\1", "optimizer", "param_groups.scale.lr"),
                                 OBJECT("K\1", "optimizer", "param_groups.layers.0.up.lr"),
                                 OBJECT("K\3", "lr_scheduler", "last_epoch"),
                                 TENSOR(4, "scale"),
                                 TENSOR(5, "freqs"),
                                 TENSOR(3, "layers.0.up"),
                                 TENSOR(2, "layers.0.frozen"),
                                 OBJECT("K\1", "seed"),
                                 TENSOR(-1, "best")};
    write_state(items, sizeof items / sizeof *items, NULL);
    opens(at("c"));
    ckpt_naming *naming;
    const ckpt_tensor_info *info;
    ck_assert_int_eq(ckpt_naming_new(reader, NULL, &naming, NULL, &err), CKPT_OK);
    static const char *const weights[] = {"scale", "freqs", "layers.0.up", "layers.0.frozen"};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(named(naming, weights[i], &info)->name.data, weights[i]);
        ck_assert_msg(info->role == CKPT_ROLE_PARAM, "%s is no parameter", weights[i]);
    }
    ck_assert_str_eq(named(naming, "optimizer.state.layers.0.up.exp_avg", &info)->name.data,
                     "optimizer.layers.0.up.exp_avg");
    ck_assert_int_eq(info->role, CKPT_ROLE_EXP_AVG);
    named(naming, "rng", &info);
    ck_assert_int_eq(info->role, CKPT_ROLE_OTHER);
    named(naming, "best", &info);
    ck_assert_int_eq(info->role, CKPT_ROLE_OTHER);
    ckpt_naming_free(naming);
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_pstr_eq(s.producer, "torchtitan");
    ck_assert_int_eq(s.step, 3);
    ckpt_summary_clear(&s);
}
END_TEST

/* What no optimizer has the name of is no model for standing beside one. */
START_TEST(tensors_beside_an_optimizer_of_others)
{
    static const item items[] = {TENSOR(4, "model", "a"), TENSOR(4, "model", "b"),
                                 TENSOR(4, "optim", "state", "a", "exp_avg"), OBJECT(NAMED, "optim", "param_groups"),
                                 TENSOR(2, "loss.history")};
    const ckpt_tensor_info *info;
    size_t i;
    write_state(items, sizeof items / sizeof *items, NULL);
    opens(at("c"));
    info = tensor_named("loss.history", &i);
    ck_assert_int_eq(info->role, CKPT_ROLE_OTHER);
    info = tensor_named("model.a", &i);
    ck_assert_int_eq(info->role, CKPT_ROLE_PARAM);
}
END_TEST

/* What verify finds of the steps of four parameters, of which rank 1 wrote the last two; -1: nothing. */
static int found_in(float a, float b, float c, float d)
{
    const item items[] = {STEP(a, 0, "optim", "state", "0", "step"),   STEP(b, 0, "optim", "state", "1", "step"),
                          STEP(c, 1, "optim", "state", "2", "step"),   STEP(d, 1, "optim", "state", "3", "step"),
                          STEP(9, 1, "optim_d", "state", "0", "step"), OBJECT(NUMBERED, "optim", "param_groups"),
                          OBJECT(NUMBERED, "optim_d", "param_groups")};
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *found = ckpt_report_new();
    anew();
    write_state(items, sizeof items / sizeof *items, NULL);
    ckpt_status status = ckpt_verify(at("c"), NULL, &result, found, &err);
    const ckpt_finding *f = ckpt_report_find(found, "mixed-steps", NULL);
    int severity = f ? (int)f->severity : -1;
    ck_assert_msg(status == (severity == CKPT_SEVERITY_ERROR ? CKPT_ANSWER_NO : CKPT_OK), "%d: %s", (int)status,
                  err.message);
    ckpt_report_clear(found);
    /* such files become no checkpoint, unless all that can be saved is asked for */
    for (int salvage = 0; salvage < 2; salvage++) {
        ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
        options.to = "torch";
        options.force = true;
        options.salvage = salvage;
        status = ckpt_migrate(at("c"), at("c.pt"), &options, found, &err);
        ck_assert_msg(severity == CKPT_SEVERITY_ERROR && !salvage
                          ? status == CKPT_E_DAMAGED && strstr(err.message, "two saves")
                          : status >= 0,
                      "%d: %s", (int)status, err.message);
        ck_assert_int_eq(ckpt_report_find(found, "mixed-steps", NULL) != NULL, severity >= 0 && status >= 0);
        ckpt_report_clear(found);
    }
    ckpt_report_free(found);
    return severity;
}

/* Each file is as it was written, and rank 1's is of the save before. Parameters that had no gradient for a time lag behind in any
 * file, and another optimizer counts its own steps. */
START_TEST(files_of_two_saves_are_told)
{
    ck_assert_int_eq(found_in(6, 6, 4, 4), CKPT_SEVERITY_ERROR);
    ck_assert_int_eq(found_in(4, 4, 6, 6), CKPT_SEVERITY_ERROR);
    ck_assert_int_eq(found_in(6, 6, 6, 6), -1);
    ck_assert_int_eq(found_in(6, 4, 6, 4), -1);
    ck_assert_int_eq(found_in(6, 6, 6, 4), -1);
    ck_assert_int_eq(unlink(at("c.pt")), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dcp_state");
    TCase *t = tcase_create("dcp_state");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_list_is_in_the_order_of_the_state_dict);
    tcase_add_test(t, an_optimizer_that_keeps_nothing_has_a_state);
    tcase_add_test(t, a_model_at_the_root_beside_its_optimizer);
    tcase_add_test(t, tensors_beside_an_optimizer_of_others);
    tcase_add_test(t, files_of_two_saves_are_told);
    suite_add_tcase(s, t);
    return run_suite(s);
}
