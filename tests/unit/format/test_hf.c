/* Models in shards: the index file against the shards, what is missing or mixed, and names that reach outside. */
#include <ckpt/reader.h>
#include <ckpt/verify.h>
#include "reader/reader.h"
#include "../folder_files.h"

static ckpt_error err;
static ckpt_reader *reader;

static const flat one[] = {{"h.0.weight", 2, {2, 3}}, {"h.0.bias", 1, {3, 0}}};
static const flat two[] = {{"h.1.weight", 2, {2, 3}}, {"head", 1, {2, 0}}};
#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
#define MAP_ONE "\"h.0.bias\":\"" ONE "\",\"h.0.weight\":\"" ONE "\""
#define MAP MAP_ONE ",\"h.1.weight\":\"" TWO "\",\"head\":\"" TWO "\""

static void write_index(const char *text)
{
    write_text(at("model.safetensors.index.json"), text);
}

static void setup(void)
{
    make_folder();
    write_safetensors(at(ONE), one, 2, 0);
    write_safetensors(at(TWO), two, 2, 50);
    write_index("{\"metadata\":{\"total_size\":68},\"weight_map\":{" MAP "}}");
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    reader = NULL;
    remove_folder();
}

static ckpt_status open_with(const char *path, const ckpt_reader_options *options)
{
    ckpt_reader_close(reader);
    memset(&err, 0, sizeof err);
    return ckpt_reader_open(path, options, &reader, &err);
}

static void opens(const char *path)
{
    ckpt_status status = open_with(path, NULL);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
}

static void fails(ckpt_status status, const char *words)
{
    ck_assert_int_eq(open_with(folder, NULL), status);
    ck_assert_msg(strstr(err.message, words) != NULL, "no '%s' in: %s", words, err.message);
}

static void expect_values(const char *name, const char *file, float first)
{
    size_t i;
    float values[6];
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    ck_assert_str_eq(t->file.data, file);
    ck_assert_int_eq(ckpt_reader_read(reader, i, values, (size_t)t->nbytes, &err), CKPT_OK);
    for (size_t k = 0; k < t->nbytes / 4; k++)
        ck_assert(values[k] == first + (float)k);
}

START_TEST(all_shards_are_one_model)
{
    opens(folder);
    ck_assert_str_eq(ckpt_reader_format(reader), "hf");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    expect_values("h.0.weight", ONE, 0);
    expect_values("h.0.bias", ONE, 6);
    expect_values("head", TWO, 56);
    const ckpt_value *model = ckpt_value_get(ckpt_reader_root(reader), "model.safetensors.index.json");
    ck_assert_ptr_nonnull(model);
    ck_assert_uint_eq(model->entry_count, 4);
    ck_assert_int_eq(ckpt_value_get(model, "head")->kind, CKPT_V_TENSOR);
    ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
}
END_TEST

START_TEST(the_index_file_stands_for_the_directory)
{
    opens(at("model.safetensors.index.json"));
    ck_assert_str_eq(ckpt_reader_format(reader), "hf");
    expect_values("h.1.weight", TWO, 50);
    ck_assert_int_eq(chdir(folder), 0);
    opens("model.safetensors.index.json");
    expect_values("h.1.weight", TWO, 50);
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(torch_shards_keep_the_order_of_the_model)
{
    unlink(at(ONE));
    unlink(at(TWO));
    unlink(at("model.safetensors.index.json"));
    write_torch_flat(at("pytorch_model-00001-of-00002.bin"), one, 2, 0);
    write_torch_flat(at("pytorch_model-00002-of-00002.bin"), two, 2, 50);
    write_text(at("pytorch_model.bin.index.json"),
               "{\"weight_map\":{\"h.0.bias\":\"pytorch_model-00001-of-00002.bin\",\"h.0.weight\":\"pytorch_model-"
               "00001-of-00002.bin\","
               "\"h.1.weight\":\"pytorch_model-00002-of-00002.bin\",\"head\":\"pytorch_model-00002-of-00002.bin\"}}");
    opens(folder);
    expect_values("head", "pytorch_model-00002-of-00002.bin", 56);
    const ckpt_value *model = ckpt_value_get(ckpt_reader_root(reader), "pytorch_model.bin.index.json");
    ck_assert_uint_eq(model->entry_count, 4);
    ck_assert_str_eq(model->entries[0].key->text.data, "h.0.weight");
    ck_assert_str_eq(model->entries[1].key->text.data, "h.0.bias");
}
END_TEST

/* An index lists names sorted; the model's order is that of the shards. */
START_TEST(shards_go_by_their_names)
{
    static const flat first = {"z.weight", 2, {2, 2}}, second = {"a.weight", 2, {2, 2}};
    make_directory("torch");
    write_torch_flat(at("torch/pytorch_model-00001-of-00002.bin"), &first, 1, 0);
    write_torch_flat(at("torch/pytorch_model-00002-of-00002.bin"), &second, 1, 0);
    write_text(at("torch/pytorch_model.bin.index.json"), "{\"weight_map\":{\"a.weight\":\"pytorch_model-00002-of-00002."
                                                         "bin\",\"z.weight\":\"pytorch_model-00001-of-00002.bin\"}}");
    opens(at("torch"));
    const ckpt_value *model = ckpt_value_get(ckpt_reader_root(reader), "pytorch_model.bin.index.json");
    ck_assert_str_eq(model->entries[0].key->text.data, "z.weight");
}
END_TEST

START_TEST(shards_on_two_disks)
{
    const char *other;
    make_directory("other");
    ck_assert_int_eq(rename(at(TWO), at("other/" TWO)), 0);
    fails(CKPT_E_DAMAGED, TWO);
    other = at("other");
    ckpt_reader_options one_of = {.also = &other, .also_count = 1};
    ck_assert_msg(open_with(folder, &one_of) == CKPT_OK, "%s", err.message);
    expect_values("h.0.bias", ONE, 6);
    expect_values("head", TWO, 56);
}
END_TEST

START_TEST(an_index_in_the_models_order_keeps_it)
{
    write_index("{\"weight_map\":{\"head\":\"" TWO "\",\"h.0.weight\":\"" ONE "\",\"h.0.bias\":\"" ONE
                "\",\"h.1.weight\":\"" TWO "\"}}");
    opens(folder);
    const ckpt_value *model = ckpt_value_get(ckpt_reader_root(reader), "model.safetensors.index.json");
    ck_assert_uint_eq(model->entry_count, 4);
    ck_assert_str_eq(model->entries[0].key->text.data, "head");
    ck_assert_str_eq(model->entries[3].key->text.data, "h.1.weight");
}
END_TEST

START_TEST(a_missing_shard_is_named)
{
    ckpt_report *report = ckpt_report_new();
    ckpt_reader_options salvage = {.salvage = true};
    unlink(at(TWO));
    fails(CKPT_E_DAMAGED, TWO);
    ck_assert_ptr_nonnull(strstr(err.message, "2 of the 4 tensors"));
    ck_assert_int_eq(ckpt_verify(folder, NULL, NULL, report, &err), CKPT_ANSWER_NO);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "shard-missing", NULL));
    ckpt_report_free(report);
    ck_assert_int_eq(open_with(folder, &salvage), CKPT_OK);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 2);
    expect_values("h.0.bias", ONE, 6);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "shard-missing"), 2);
    const ckpt_finding *f = ckpt_report_find(ckpt_reader_findings(reader), "shard-missing", "head");
    ck_assert_ptr_nonnull(f);
    ck_assert_str_eq(f->file, TWO);
}
END_TEST

START_TEST(shards_of_two_saves_do_not_mix)
{
    static const flat more[] = {{"h.1.weight", 2, {2, 3}}, {"head", 1, {2, 0}}, {"tail", 1, {2, 0}}};
    static const flat other[] = {{"h.1.weight", 2, {2, 3}}, {"head", 1, {2, 0}}, {"h.0.bias", 1, {3, 0}}};
    write_safetensors(at(TWO), more, 3, 0);
    fails(CKPT_E_FORMAT, "'tail', which the weight_map does not name");
    write_safetensors(at(TWO), other, 3, 0);
    fails(CKPT_E_FORMAT, "weight_map puts it into '" ONE "'");
    write_safetensors(at(TWO), two, 1, 0);
    fails(CKPT_E_DAMAGED, "'head' into the shard '" TWO "', and it is not in it");
}
END_TEST

START_TEST(total_size_is_checked)
{
    write_index("{\"metadata\":{\"total_size\":69},\"weight_map\":{" MAP "}}");
    opens(folder);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "total-size"), 1);
    write_index("{\"metadata\":{\"total_size\":68.0},\"weight_map\":{" MAP "}}");
    opens(folder);
    ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
}
END_TEST

static void inner_fails(const char *index, const char *words)
{
    write_text(at("in/model.safetensors.index.json"), index);
    ck_assert_int_eq(open_with(at("in"), NULL), CKPT_E_FORMAT);
    ck_assert_msg(strstr(err.message, words) != NULL, "no '%s' in: %s", words, err.message);
}

START_TEST(names_that_leave_the_directory_are_refused)
{
    make_directory("in");
    inner_fails("{\"weight_map\":{\"h.0.weight\":\"../" ONE "\",\"h.0.bias\":\"../" ONE "\"}}",
                "leaves the checkpoint's directory");
    inner_fails("{\"weight_map\":{\"h.0.weight\":\"/etc/passwd\"}}", "'/etc/passwd'");
    inner_fails("{\"weight_map\":{\"h.0.weight\":\"\"}}", "shards lie in the directory");
    inner_fails("{\"weight_map\":{\"h.0.weight\":\"a\\u0000b\"}}", "NUL");
    ck_assert_int_eq(symlink("../" ONE, at("in/link.safetensors")), 0);
    inner_fails("{\"weight_map\":{\"h.0.weight\":\"link.safetensors\",\"h.0.bias\":\"link.safetensors\"}}",
                "a link that leaves");
}
END_TEST

START_TEST(a_broken_index_says_what_is_wrong)
{
    write_index("{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}");
    fails(CKPT_E_FORMAT, "'a' twice");
    write_index("{\"weight_map\":{\"a\":1}}");
    fails(CKPT_E_FORMAT, "string");
    write_index("{\"weight_map\":[]}");
    fails(CKPT_E_FORMAT, "object");
    write_index("{\"metadata\":{}}");
    fails(CKPT_E_FORMAT, "no member 'weight_map'");
    write_index("{\"weight_map\":{}} x");
    fails(CKPT_E_FORMAT, "byte");
    write_index("{\"weight_map\":{" MAP "},\"weight_map\":{}}");
    fails(CKPT_E_FORMAT, "two members");
    write_index("");
    fails(CKPT_E_FORMAT, "byte 0");
}
END_TEST

START_TEST(an_index_that_names_itself_has_an_end)
{
    write_index("{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}");
    fails(CKPT_E_FORMAT, "it is an index of shards");
    write_text(at("model.bin"), "{\"weight_map\":{\"a\":\"model.bin\"}}");
    unlink(at("model.safetensors.index.json"));
    fails(CKPT_E_FORMAT, "it is an index of shards");
}
END_TEST

START_TEST(shards_without_an_index_are_read_when_all_are_there)
{
    unlink(at("model.safetensors.index.json"));
    opens(folder);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "no-shard-index"), 1);
    expect_values("head", TWO, 56);
    unlink(at(ONE));
    fails(CKPT_E_DAMAGED, "1 of the 2 shards");
    write_safetensors(at(ONE), two, 2, 0);
    fails(CKPT_E_FORMAT, "in two of its shards");
}
END_TEST

START_TEST(of_one_model_in_several_forms_one_is_read)
{
    write_torch_flat(at("pytorch_model.bin"), one, 2, 9);
    opens(folder);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "file-ignored"), 1);
    write_text(at("model.safetensors.index.fp16.json"), "{\"weight_map\":{\"h.0.weight\":\"nowhere.safetensors\"}}");
    opens(folder);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "file-ignored"), 2);
    unlink(at("model.safetensors.index.json"));
    unlink(at("model.safetensors.index.fp16.json"));
    opens(folder);
    expect_values("h.0.weight", "pytorch_model.bin", 9);
}
END_TEST

START_TEST(a_variant_alone_is_the_model)
{
    write_text(at("model.safetensors.index.fp16.json"), "{\"weight_map\":{" MAP "}}");
    unlink(at("model.safetensors.index.json"));
    opens(folder);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_reader_root(reader), "model.safetensors.index.fp16.json"));
}
END_TEST

/* An index that is none is refused beside a whole model too, which is read without it. */
START_TEST(an_index_that_is_not_needed_must_be_one)
{
    ck_assert_int_eq(unlink(at(ONE)) + unlink(at(TWO)), 0);
    write_safetensors(at("model.safetensors"), one, 2, 7);
    opens(folder);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 2);
    write_index("{\"metadata\":{},\"weight_map\":[\"model.safetensors\"]}");
    fails(CKPT_E_FORMAT, "expected an object");
    write_index("[]");
    fails(CKPT_E_FORMAT, "expected an object");
    write_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}");
    fails(CKPT_E_FORMAT, "shards lie in the directory of the index file");
    ckpt_reader_options salvage = {.struct_size = sizeof salvage, .salvage = true};
    ck_assert_msg(open_with(folder, &salvage) == CKPT_OK, "%s", err.message);
    expect_values("h.0.weight", "model.safetensors", 7);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "member-damaged"), 1);
}
END_TEST

START_TEST(salvage_reads_shards_without_their_broken_index)
{
    ckpt_reader_options salvage = {.struct_size = sizeof salvage, .salvage = true};
    write_index("{\"weight_map\":[]}");
    fails(CKPT_E_FORMAT, "expected an object");
    ck_assert_msg(open_with(folder, &salvage) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    expect_values("h.0.weight", ONE, 0);
    expect_values("head", TWO, 56);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "member-damaged"), 1);
}
END_TEST

/* The index says "head" is in the other shard, names one tensor that is nowhere, and not "h.0.bias". */
START_TEST(salvage_takes_what_the_index_is_wrong_about)
{
    static const char *const orders[] = {
        "{\"weight_map\":{\"gone\":\"" ONE "\",\"h.0.weight\":\"" ONE "\",\"h.1.weight\":\"" TWO "\",\"head\":\"" ONE
        "\"}}",
        "{\"weight_map\":{\"head\":\"" ONE "\",\"h.1.weight\":\"" TWO "\",\"h.0.weight\":\"" ONE "\",\"gone\":\"" ONE
        "\"}}",
    };
    ckpt_reader_options salvage = {.struct_size = sizeof salvage, .salvage = true};
    for (size_t i = 0; i < 2; i++) {
        write_index(orders[i]);
        ck_assert_int_lt(open_with(folder, NULL), 0);
        ck_assert_msg(open_with(folder, &salvage) == CKPT_OK, "%s", err.message);
        const ckpt_value *model = ckpt_value_get(ckpt_reader_root(reader), "model.safetensors.index.json");
        ck_assert_ptr_nonnull(model);
        ck_assert_uint_eq(model->entry_count, 4);
        ck_assert_ptr_nonnull(ckpt_value_get(model, "h.0.bias"));
        expect_values("h.0.bias", ONE, 6);
        expect_values("head", TWO, 56);
        ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "shard-missing"), 1);
    }
}
END_TEST

/* One shard has another one's place, of an older save: none of its tensors may be taken for those of now. */
START_TEST(salvage_takes_no_tensor_of_an_older_shard)
{
    static const char *const maps[] = {"{\"weight_map\":{" MAP "}}", "{\"weight_map\":{\"head\":\"" TWO "\"," MAP_ONE
                                                                     ",\"h.1.weight\":\"" TWO "\"}}"};
    ckpt_reader_options salvage = {.struct_size = sizeof salvage, .salvage = true};
    for (size_t i = 0; i < 4; i++) {
        write_index(maps[i % 2]);
        write_safetensors(at(ONE), i < 2 ? one : two, 2, i < 2 ? 0 : 20);
        write_safetensors(at(TWO), i < 2 ? one : two, 2, i < 2 ? 20 : 50);
        ck_assert_msg(open_with(folder, &salvage) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 2);
        if (i < 2)
            expect_values("h.0.bias", ONE, 6);
        else
            expect_values("head", TWO, 56);
        ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "shard-missing"), 2);
    }
}
END_TEST

/* A shard that ends before its header does: what it held is told by name, and the others are read. Order of an index: sorted,
 * and its own. */
START_TEST(salvage_leaves_out_a_shard_of_which_nothing_is_known)
{
    static const char *const maps[] = {MAP, "\"head\":\"" TWO "\",\"h.1.weight\":\"" TWO "\",\"h.0.weight\":\"" ONE
                                            "\",\"h.0.bias\":\"" ONE "\""};
    static const off_t sizes[] = {20, 0};
    ckpt_reader_options salvage = {.struct_size = sizeof salvage, .salvage = true};
    for (size_t i = 0; i < 4; i++) {
        ckpt__buf index = {0};
        ckpt__buf_printf(&index, "{\"weight_map\":{%s}}", maps[i / 2]);
        write_index(index.data);
        ckpt__buf_free(&index);
        ck_assert_int_eq(truncate(at(ONE), sizes[i % 2]), 0);
        ck_assert_int_lt(open_with(folder, NULL), 0);
        ck_assert_msg(open_with(folder, &salvage) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 2);
        expect_values("head", TWO, 56);
        const ckpt_report *said = ckpt_reader_findings(reader);
        ck_assert_uint_eq(ckpt_report_count_code(said, "member-damaged"), 1);
        const ckpt_finding *f = ckpt_report_find(said, "shard-missing", "h.0.bias");
        ck_assert_ptr_nonnull(f);
        ck_assert_str_eq(f->message, "it is lost: its shard cannot be read");
        ck_assert_ptr_nonnull(ckpt_report_find(said, "shard-missing", "h.0.weight"));
        write_safetensors(at(ONE), one, 2, 0);
    }
}
END_TEST

/* What is known of a tensor lies in memory once, and no shard keeps memory of its own. */
START_TEST(shards_share_what_they_keep)
{
    enum { TENSORS = 200, SHARDS = 4 };
    static const char name[] = "model-0000%d-of-00004.safetensors";
    static char names[TENSORS][80];
    flat tensors[TENSORS / SHARDS];
    ckpt__buf index = {0};
    char file[64];
    remove(at(ONE));
    remove(at(TWO));
    for (int s = 0; s < SHARDS; s++) {
        snprintf(file, sizeof file, name, s + 1);
        for (int i = 0; i < TENSORS / SHARDS; i++) {
            char *own = names[s * (TENSORS / SHARDS) + i];
            snprintf(own, sizeof names[0], "model.layers.%d.mlp.experts.%03d.down_proj.weight", s, i);
            tensors[i] = (flat){own, 2, {1, 1}};
            ckpt__buf_printf(&index, "%s\"%s\":\"%s\"", index.size ? "," : "{\"weight_map\":{", own, file);
        }
        write_safetensors(at("%s", file), tensors, TENSORS / SHARDS, 0);
    }
    ckpt__buf_str(&index, "}}");
    write_index(index.data);
    ckpt__buf_free(&index);
    opens(folder);
    const ckpt__index *x = reader->index;
    ck_assert_uint_eq(x->tensor_count, TENSORS);
    ck_assert_uint_eq(x->absorbed_count, SHARDS);
    for (size_t i = 0; i < SHARDS; i++) {
        ck_assert_ptr_eq(x->absorbed[i]->arena, x->arena);
        ck_assert_ptr_null(x->absorbed[i]->tensors);
        ck_assert_ptr_null(x->absorbed[i]->storages);
    }
    /* its name, its key and its value in the dict of the model, shape, strides and piece: no more than this of each */
    ck_assert_uint_le(ckpt__arena_used(x->arena),
                      TENSORS * (64 + 2 * sizeof(ckpt_value) + 32 + sizeof(ckpt__piece) + 40));
    const ckpt_value *model = ckpt_value_get(ckpt_reader_root(reader), "model.safetensors.index.json");
    for (size_t i = 0; i < TENSORS; i++) {
        ck_assert_str_eq(model->entries[i].key->text.data, names[i]);
        ck_assert_uint_eq(model->entries[i].value->tensor, i);
        ck_assert_ptr_eq(model->entries[i].key->text.data, x->tensors[i].info.name.data);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hf");
    TCase *t = tcase_create("hf");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, all_shards_are_one_model);
    tcase_add_test(t, the_index_file_stands_for_the_directory);
    tcase_add_test(t, torch_shards_keep_the_order_of_the_model);
    tcase_add_test(t, shards_go_by_their_names);
    tcase_add_test(t, shards_on_two_disks);
    tcase_add_test(t, an_index_in_the_models_order_keeps_it);
    tcase_add_test(t, a_missing_shard_is_named);
    tcase_add_test(t, shards_of_two_saves_do_not_mix);
    tcase_add_test(t, total_size_is_checked);
    tcase_add_test(t, names_that_leave_the_directory_are_refused);
    tcase_add_test(t, a_broken_index_says_what_is_wrong);
    tcase_add_test(t, an_index_that_names_itself_has_an_end);
    tcase_add_test(t, shards_without_an_index_are_read_when_all_are_there);
    tcase_add_test(t, of_one_model_in_several_forms_one_is_read);
    tcase_add_test(t, a_variant_alone_is_the_model);
    tcase_add_test(t, an_index_that_is_not_needed_must_be_one);
    tcase_add_test(t, salvage_reads_shards_without_their_broken_index);
    tcase_add_test(t, salvage_takes_what_the_index_is_wrong_about);
    tcase_add_test(t, salvage_takes_no_tensor_of_an_older_shard);
    tcase_add_test(t, salvage_leaves_out_a_shard_of_which_nothing_is_known);
    tcase_add_test(t, shards_share_what_they_keep);
    suite_add_tcase(s, t);
    return run_suite(s);
}
