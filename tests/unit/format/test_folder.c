/* Directories whose files are one checkpoint: which they are, what is read of them, what is refused and how; and several
 * paths as one. */
#include <ckpt/doctor.h>
#include <ckpt/reader.h>
#include <ckpt/verify.h>
#include <math.h>
#include "../folder_files.h"
#include "format/folder/folder.h"
#include "format/table.h"

static ckpt_error err;
static ckpt_reader *reader;

static const flat weights[] = {{"a.weight", 2, {2, 3}}, {"a.bias", 1, {3, 0}}};

static void setup(void)
{
    make_folder();
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    reader = NULL;
    remove_folder();
}

static ckpt_status open_paths(const char *const *paths, size_t count, bool salvage)
{
    ckpt_reader_options options = {.also = paths + 1, .also_count = count - 1, .salvage = salvage};
    ckpt_reader_close(reader);
    memset(&err, 0, sizeof err);
    return ckpt_reader_open(paths[0], &options, &reader, &err);
}

static void opens(const char *path, const char *format)
{
    ckpt_status status = open_paths(&path, 1, false);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_str_eq(ckpt_reader_format(reader), format);
}

static void fails(const char *path, ckpt_status status, const char *words)
{
    ck_assert_int_eq(open_paths(&path, 1, false), status);
    ck_assert_msg(strstr(err.message, words) != NULL, "no '%s' in: %s", words, err.message);
}

static const ckpt_value *value(const char *file, const char *key)
{
    const ckpt_value *v = ckpt_value_get(ckpt_reader_root(reader), file);
    ck_assert_msg(v != NULL, "no %s", file);
    return key ? ckpt_value_get(v, key) : v;
}

static size_t findings(const char *code)
{
    return ckpt_report_count_code(ckpt_reader_findings(reader), code);
}

/* ---- layouts */

static void make_trainer(const char *name, int step)
{
    char state[200];
    make_directory(name);
    write_safetensors(at("%s/model.safetensors", name), weights, 2, 0);
    write_adam(at("%s/optimizer.pt", name), weights, 2, 1, 0.1);
    write_torch_int(at("%s/scheduler.pt", name), "last_epoch", step);
    write_torch_int(at("%s/rng_state.pth", name), "python", 7);
    snprintf(state, sizeof state,
             "{\"epoch\": 0.5, \"global_step\": %d, \"log_history\": [{\"loss\": NaN}, {\"loss\": -Infinity}]}", step);
    write_text(at("%s/trainer_state.json", name), state);
    write_text(at("%s/config.json", name), "{\"model_type\": \"tiny\", \"huge\": 123456789012345678901234567890}");
    write_text(at("%s/tokenizer.json", name), "not JSON at all");
    write_text(at("%s/README.md", name), "words");
}

START_TEST(a_step_of_the_trainer)
{
    ckpt_summary summary = CKPT_SUMMARY_INIT;
    make_trainer("checkpoint-12", 12);
    opens(at("checkpoint-12"), "hf-trainer");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 8);
    ck_assert_str_eq(ckpt_reader_tensor(reader, 0)->file.data, "model.safetensors");
    ck_assert_str_eq(ckpt_reader_tensor(reader, 2)->file.data, "optimizer.pt");
    ck_assert_int_eq(value("trainer_state.json", "global_step")->integer, 12);
    const ckpt_value *history = value("trainer_state.json", "log_history");
    ck_assert_uint_eq(history->item_count, 2);
    ck_assert(isnan(ckpt_value_get(history->items[0], "loss")->real));
    ck_assert(isinf(ckpt_value_get(history->items[1], "loss")->real) &&
              ckpt_value_get(history->items[1], "loss")->real < 0);
    ck_assert_int_eq(value("config.json", "huge")->kind, CKPT_V_BIGINT);
    ck_assert_str_eq(value("config.json", "huge")->text.data, "123456789012345678901234567890");
    ck_assert_ptr_null(ckpt_value_get(ckpt_reader_root(reader), "tokenizer.json"));
    ck_assert_uint_eq(ckpt_report_count(ckpt_reader_findings(reader)), 0);
    ck_assert_int_eq(ckpt_summarize(reader, &summary, &err), CKPT_OK);
    ck_assert_str_eq(summary.producer, "HF Trainer");
    ck_assert_int_eq(summary.step, 12);
    ck_assert_str_eq(summary.model_path.data, "model.safetensors");
    ck_assert_str_eq(summary.optimizer_path.data, "optimizer.pt");
    ckpt_summary_clear(&summary);
}
END_TEST

START_TEST(broken_json_hides_no_tensor)
{
    ckpt_report *report = ckpt_report_new();
    make_trainer("c", 3);
    write_text(at("c/config.json"), "{\"model_type\": \"tiny\", // a comment\n}");
    opens(at("c"), "hf-trainer");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 8);
    ck_assert_uint_eq(findings("member-damaged"), 1);
    ck_assert_ptr_null(ckpt_value_get(ckpt_reader_root(reader), "config.json"));
    ck_assert_int_eq(ckpt_verify(at("c"), NULL, NULL, report, &err), CKPT_ANSWER_NO);
    ck_assert_str_eq(ckpt_report_find(report, "member-damaged", NULL)->file, "config.json");
    ckpt_report_free(report);
}
END_TEST

static void make_accelerate(const char *name)
{
    make_directory(name);
    write_torch_flat(at("%s/pytorch_model.bin", name), weights, 2, 0);
    write_adam(at("%s/optimizer.bin", name), weights, 2, 2, 0.1);
    write_torch_int(at("%s/random_states_0.pkl", name), "step", 0);
    write_torch_int(at("%s/custom_checkpoint_0.pkl", name), "seen", 5);
}

START_TEST(what_accelerate_saves)
{
    make_accelerate("state");
    opens(at("state"), "accelerate");
    ck_assert_int_eq(value("custom_checkpoint_0.pkl", "seen")->integer, 5);
    ck_assert_int_eq(ckpt_verify(at("state"), NULL, NULL, NULL, &err), CKPT_OK);
    write_safetensors(at("state/model_1.safetensors"), weights, 2, 70);
    opens(at("state"), "accelerate");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 10);
    write_to(at("state/optimizer.bin"), "cut", 3);
    fails(at("state"), CKPT_E_FORMAT, "unknown format");
    ck_assert_ptr_nonnull(strstr(err.object, "optimizer.bin"));
    const char *path = at("state");
    ck_assert_int_eq(open_paths(&path, 1, true), CKPT_OK);
    ck_assert_uint_eq(findings("member-damaged"), 1);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
}
END_TEST

START_TEST(an_adapter_and_models_in_folders)
{
    make_directory("lora");
    write_safetensors(at("lora/adapter_model.safetensors"), weights, 2, 0);
    write_text(at("lora/adapter_config.json"), "{\"r\": 4}");
    opens(at("lora"), "peft");
    ck_assert_int_eq(value("adapter_config.json", "r")->integer, 4);
    make_directory("lora/second"); /* another adapter; and what the Trainer saved at a step, which is none */
    write_safetensors(at("lora/second/adapter_model.safetensors"), weights, 2, 20);
    write_text(at("lora/second/adapter_config.json"), "{\"r\": 8}");
    make_directory("lora/checkpoint-5");
    write_safetensors(at("lora/checkpoint-5/adapter_model.safetensors"), weights, 2, 40);
    write_text(at("lora/checkpoint-5/adapter_config.json"), "{\"r\": 4}");
    write_text(at("lora/checkpoint-5/trainer_state.json"), "{\"global_step\": 5}");
    opens(at("lora"), "peft");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    ck_assert_int_eq(value("second/adapter_config.json", "r")->integer, 8);
    ck_assert_int_eq(value("second/adapter_model.safetensors", "a.bias")->kind, CKPT_V_TENSOR);
    make_directory("pipeline");
    make_directory("pipeline/unet");
    make_directory("pipeline/vae");
    make_directory("pipeline/tokenizer");
    write_text(at("pipeline/model_index.json"), "{\"_class_name\": \"P\"}");
    write_safetensors(at("pipeline/unet/diffusion_pytorch_model.safetensors"), weights, 2, 0);
    write_safetensors(at("pipeline/unet/diffusion_pytorch_model.fp16.safetensors"), weights, 2, 0);
    write_safetensors(at("pipeline/vae/diffusion_pytorch_model-00001-of-00001.safetensors"), weights, 2, 9);
    write_text(at("pipeline/vae/diffusion_pytorch_model.safetensors.index.json"),
               "{\"weight_map\":{\"a.weight\":\"diffusion_pytorch_model-00001-of-00001.safetensors\","
               "\"a.bias\":\"diffusion_pytorch_model-00001-of-00001.safetensors\"}}");
    opens(at("pipeline"), "hf");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    ck_assert_uint_eq(findings("file-ignored"), 1);
    ck_assert_int_eq(value("unet/diffusion_pytorch_model.safetensors", "a.bias")->kind, CKPT_V_TENSOR);
    ck_assert_int_eq(value("vae/diffusion_pytorch_model.safetensors.index.json", "a.bias")->kind, CKPT_V_TENSOR);
}
END_TEST

/* What diffusers trains beside a model is another thing than the model. */
START_TEST(a_lora_beside_a_model)
{
    make_directory("both");
    write_safetensors(at("both/model.safetensors"), weights, 2, 0);
    write_safetensors(at("both/pytorch_lora_weights.safetensors"), weights, 2, 20);
    write_torch_flat(at("both/pytorch_lora_weights.bin"), weights, 2, 20);
    write_text(at("both/config.json"), "{}");
    opens(at("both"), "hf");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4);
    ck_assert_int_eq(value("pytorch_lora_weights.safetensors", "a.bias")->kind, CKPT_V_TENSOR);
    ck_assert_int_eq(value("model.safetensors", "a.bias")->kind, CKPT_V_TENSOR);
    ck_assert_uint_eq(findings("file-ignored"), 1);
}
END_TEST

START_TEST(files_that_belong_together_by_their_words)
{
    make_directory("mine");
    write_torch_flat(at("mine/last_model.pt"), weights, 2, 0);
    write_adam(at("mine/last_optimizer.pt"), weights, 2, 2, 0.1);
    opens(at("mine"), "folder");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 8);
    write_torch_flat(at("mine/best_model.pt"), weights, 2, 0);
    fails(at("mine"), CKPT_E_FORMAT, "best_model.pt and last_model.pt");
}
END_TEST

START_TEST(one_file_in_a_directory_is_it)
{
    make_directory("lightning");
    write_torch_flat(at("lightning/epoch=3-step=120.ckpt"), weights, 2, 0);
    opens(at("lightning"), "folder");
    ck_assert_ptr_nonnull(value("epoch=3-step=120.ckpt", NULL));
    write_torch_flat(at("lightning/epoch=4-step=160.ckpt"), weights, 2, 0);
    fails(at("lightning"), CKPT_E_FORMAT, "epoch=3-step=120.ckpt and epoch=4-step=160.ckpt");
}
END_TEST

START_TEST(other_layouts_are_refused_by_name)
{
    static const struct {
        const char *name;
        bool folder;
        const char *words;
    } cases[] = {
        {"saved_model.pb", false, "SavedModel"},
    };
    static const struct {
        const char *name;
        bool folder;
    } neighbours[] = {
        {"zero_to_fp32.py", false}, /* it lies beside a model on the hub, too */
        {"global_step_10", true},
        {"mp_rank_", true},
        {"pytorch_model_fsdp_0", true}, /* without a distributed checkpoint in it */
        {"optimizer_0", true},
        {"optimizer_a", true},
        {"model_world_size_2_rank_.pt", false},
        {"shard-1-model-1.safetensors", false},
        {"__x.metadata", false},
        {"common.pt", false},
    };
    make_trainer("c", 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].folder)
            make_directory(at("c/%s", cases[i].name) + strlen(folder) + 1);
        else
            write_text(at("c/%s", cases[i].name), "x");
        fails(at("c"), CKPT_E_UNSUPPORTED, cases[i].words);
        ck_assert_int_eq(remove(at("c/%s", cases[i].name)), 0);
    }
    opens(at("c"), "hf-trainer");
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++) {
        if (neighbours[i].folder)
            make_directory(at("c/%s", neighbours[i].name) + strlen(folder) + 1);
        else
            write_torch_int(at("c/%s", neighbours[i].name), "x", 1);
        opens(at("c"), "hf-trainer");
        ck_assert_int_eq(remove(at("c/%s", neighbours[i].name)), 0);
    }
    write_text(at("c/__0_0.distcp"), "x"); /* a distributed checkpoint (format/dcp), which is none yet */
    fails(at("c"), CKPT_E_DAMAGED, "the save did not finish");
    ck_assert_int_eq(remove(at("c/__0_0.distcp")), 0);
    write_text(at("c/__1.metadata"), "x");
    fails(at("c"), CKPT_E_DAMAGED, "the list of rank 0 (__0.metadata) is missing");
    ck_assert_int_eq(remove(at("c/__1.metadata")), 0);
    write_text(at("c/saved_model.pb"), "x");
    fails(at("c"), CKPT_E_UNSUPPORTED, "read one by one: model.safetensors, optimizer.pt, scheduler.pt");
}
END_TEST

/* What is in the directory says what it is, whatever comes first of its names; what was said no more: to give a file inside. */
START_TEST(the_most_particular_layout_is_named)
{
    make_directory("meg");
    write_torch_int(at("meg/common.pt"), "x", 1);
    opens(at("meg"), "folder");
    make_directory("universal");
    make_directory("universal/zero");
    write_torch_int(at("universal/mp_rank_00_model_states.pt"), "x", 1);
    fails(at("universal"), CKPT_E_UNSUPPORTED, "no param_shapes");
    make_directory("nano");
    write_text(at("nano/model_config.json"), "{}");
    fails(at("nano"), CKPT_E_FORMAT, "not a checkpoint");
    write_text(at("nano/checkpoint_metadata.json"), "{}");
    fails(at("nano"), CKPT_E_UNSUPPORTED, "nanotron");
}
END_TEST

/* torchtune keeps the optimizer apart: that it is not read is said. */
START_TEST(a_recipe_is_not_passed_over)
{
    make_directory("tune");
    write_text(at("tune/config.json"), "{}");
    write_safetensors(at("tune/model.safetensors"), weights, 2, 0);
    opens(at("tune"), "hf");
    ck_assert_ptr_null(ckpt_report_find(ckpt_reader_findings(reader), "file-ignored", NULL));
    make_directory("tune/recipe_state");
    write_torch_int(at("tune/recipe_state/recipe_state.pt"), "x", 1);
    opens(at("tune"), "hf");
    const ckpt_finding *f = ckpt_report_find(ckpt_reader_findings(reader), "file-ignored", NULL);
    ck_assert(f && f->severity == CKPT_SEVERITY_WARNING && strstr(f->message, "recipe_state/recipe_state.pt"));
}
END_TEST

START_TEST(a_directory_of_checkpoints_is_none)
{
    make_directory("run");
    fails(at("run"), CKPT_E_FORMAT, "not a checkpoint");
    make_directory("run/checkpoint-5");
    fails(at("run"), CKPT_E_FORMAT, "checkpoint-5");
    make_directory("run/checkpoint-10");
    fails(at("run"), CKPT_E_FORMAT, "several checkpoints, such as checkpoint-10 and checkpoint-5");
    make_directory("all"); /* a user's checkpoints, an adapter among them: it is not what they are of */
    make_directory("all/lora");
    write_safetensors(at("all/lora/adapter_model.safetensors"), weights, 2, 0);
    write_text(at("all/lora/adapter_config.json"), "{\"r\": 4}");
    write_torch_int(at("all/one.pt"), "step", 1);
    write_torch_int(at("all/two.pt"), "step", 2);
    fails(at("all"), CKPT_E_FORMAT, "several checkpoints, such as one.pt and two.pt");
}
END_TEST

START_TEST(a_step_of_ours_needs_its_manifest)
{
    make_directory("step-00000003");
    write_safetensors(at("step-00000003/model.safetensors"), weights, 2, 0);
    write_safetensors(at("step-00000003/training.safetensors"), weights, 2, 0);
    fails(at("step-00000003"), CKPT_E_FORMAT, "did not complete");
}
END_TEST

START_TEST(a_shard_and_parts_of_names)
{
    int64_t number;
    bool exact;
    uint64_t k, n;
    char stem[100];
    ck_assert(ckpt__shard_of("model-00002-of-00005.safetensors", &k, &n, stem, sizeof stem));
    ck_assert_uint_eq(k, 2);
    ck_assert_uint_eq(n, 5);
    ck_assert_str_eq(stem, "model.safetensors");
    ck_assert(!ckpt__shard_of("model-2.safetensors", &k, &n, stem, sizeof stem));
    ck_assert(!ckpt__shard_of("model-99999999999999999999-of-00005.bin", &k, &n, stem, sizeof stem));
    ck_assert_int_eq(ckpt__part_of("rng_state_12.pth", &number, &exact), CKPT__PART_RNG);
    ck_assert_int_eq(number, 12);
    ck_assert_int_eq(ckpt__part_of("model.fp16.safetensors", &number, &exact), CKPT__PART_MODEL);
    ck_assert(exact);
    ck_assert_int_eq(ckpt__part_of("my_optim.pt", &number, &exact), CKPT__PART_OPTIMIZER);
    ck_assert(!exact);
    ck_assert_int_eq(ckpt__part_of("option.pt", &number, &exact), CKPT__PART_OTHER);
    ck_assert_int_eq(ckpt__part_of("tokenizer.json", &number, &exact), CKPT__PART_NONE);
    ck_assert_int_eq(ckpt__part_of("model.safetensors.index.fp16.json", &number, &exact), CKPT__PART_INDEX);
}
END_TEST

/* ---- several paths */

static void together(ckpt_status want, const char *words, size_t count, const char *a, const char *b, const char *c)
{
    const char *paths[3] = {a, b, c};
    ckpt_status status = open_paths(paths, count, false);
    ck_assert_msg(status == want, "%s: %s", err.object, err.message);
    ck_assert_msg(!words || strstr(err.message, words), "no '%s' in: %s", words ? words : "", err.message);
}

START_TEST(ranks_on_disks_of_their_own)
{
    make_accelerate("r0");
    make_directory("r1");
    make_directory("r2");
    write_torch_int(at("r1/random_states_1.pkl"), "step", 0);
    write_torch_int(at("r2/random_states_2.pkl"), "step", 0);
    together(CKPT_OK, NULL, 3, at("r0"), at("r1"), at("r2"));
    ck_assert_str_eq(ckpt_reader_format(reader), "accelerate");
    ck_assert_int_eq(value("random_states_2.pkl", "step")->integer, 0);
    together(CKPT_OK, NULL, 3, at("r2"), at("r0"), at("r1"));
    together(CKPT_E_MISMATCH, "rank 1 is missing", 2, at("r0"), at("r2"), NULL);
    ck_assert_ptr_nonnull(strstr(err.message, at("r0")));
    ck_assert_ptr_nonnull(strstr(err.message, at("r2")));
    together(CKPT_E_ARGUMENT, "given twice", 2, at("r0"), at("r0/../r0"), NULL);
    const char *paths[2] = {at("r0"), at("r1")};
    ck_assert_int_eq(
        ckpt_verify(paths[0], &(ckpt_verify_options){.also = paths + 1, .also_count = 1}, NULL, NULL, &err), CKPT_OK);
    opens(at("r2"), "accelerate");
    ck_assert_uint_eq(findings("rank-missing"), 1);
}
END_TEST

START_TEST(one_file_on_two_disks_is_the_same)
{
    make_accelerate("r0");
    make_directory("r1");
    write_torch_int(at("r1/random_states_1.pkl"), "step", 0);
    write_torch_int(at("r1/custom_checkpoint_0.pkl"), "seen", 5);
    together(CKPT_OK, NULL, 2, at("r0"), at("r1"), NULL);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 8);
    write_torch_int(at("r1/custom_checkpoint_0.pkl"), "seen", 6);
    together(CKPT_E_MISMATCH, "other bytes", 2, at("r0"), at("r1"), NULL);
    ck_assert_ptr_nonnull(strstr(err.object, "r0/custom_checkpoint_0.pkl"));
    ck_assert_ptr_nonnull(strstr(err.message, at("r1")));
    write_torch_int(at("r1/custom_checkpoint_0.pkl"), "seen", 5);
    write_torch_int(at("r1/random_states_1.pkl"), "step", 9);
    together(CKPT_E_MISMATCH, "two checkpoints", 2, at("r0"), at("r1"), NULL);
}
END_TEST

START_TEST(other_steps_do_not_mix)
{
    make_trainer("n0", 12);
    make_directory("n1");
    write_torch_int(at("n1/rng_state_1.pth"), "python", 7);
    write_text(at("n1/trainer_state.json"), "{\"global_step\": 12, \"is_world_process_zero\": false}");
    together(CKPT_E_MISMATCH, "rank 0 is missing", 2, at("n0"), at("n1"), NULL);
    ck_assert_int_eq(rename(at("n0/rng_state.pth"), at("n0/rng_state_0.pth")), 0);
    together(CKPT_OK, NULL, 2, at("n0"), at("n1"), NULL);
    write_text(at("n1/trainer_state.json"), "{\"global_step\": 13}");
    together(CKPT_E_MISMATCH, "of step 12", 2, at("n0"), at("n1"), NULL);
    ck_assert_ptr_nonnull(strstr(err.message, "of step 13"));
}
END_TEST

START_TEST(files_given_one_by_one)
{
    write_torch_flat(at("epoch3.pt"), weights, 2, 0);
    write_adam(at("opt3.pt"), weights, 2, 2, 0.1);
    together(CKPT_OK, NULL, 2, at("epoch3.pt"), at("opt3.pt"), NULL);
    ck_assert_str_eq(ckpt_reader_format(reader), "folder");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 8);
    ck_assert_ptr_nonnull(value("opt3.pt", "param_groups"));
    ck_assert_str_eq(ckpt_reader_tensor(reader, 0)->file.data, "epoch3.pt");
    together(CKPT_E_SYSTEM, "cannot open", 2, at("epoch3.pt"), at("nothing.pt"), NULL);
}
END_TEST

/* What the other rooms ask of a format instead of its name: every row says whose it is, and an index that no format has
 * read has no fact. */
START_TEST(every_format_has_its_facts)
{
    ckpt__index *x = ckpt__index_new(0);
    ck_assert_ptr_nonnull(x);
    ck_assert_int_eq(ckpt__format_of(x)->family, CKPT__FAMILY_NONE);
    ck_assert(!ckpt__in_files(x));
    for (size_t i = 0; ckpt__formats[i]; i++) {
        const ckpt__format *f = ckpt__formats[i];
        bool native = f == &ckpt__format_native, dcp = f == &ckpt__format_dcp,
             llmc = f == &ckpt__format_llmc || f->family == CKPT__FAMILY_MEGATRON ||
                    f->family == CKPT__FAMILY_DEEPSPEED, /* parts of ranks, by name */
            fsdp = f == &ckpt__format_fsdp || f == &ckpt__format_ranks, several = !f->suffix && !dcp && !llmc && !fsdp;
        x->format = f->name;
        x->kind = "directory";
        ck_assert_ptr_eq(ckpt__format_of(x), f);
        ck_assert_int_ne(f->family, CKPT__FAMILY_NONE);
        ck_assert_int_eq(f->family == CKPT__FAMILY_FOLDER, several);
        ck_assert_int_eq(ckpt__in_files(x), !native && !dcp && !llmc && !fsdp && f != &ckpt__format_keras);
        ck_assert_int_eq(f->family == CKPT__FAMILY_DCP, dcp);
        ck_assert(f->canonical == (native || llmc) && f->bound == native && f->has_manifest == native &&
                  f->keeps_torch == native && f->holds_state == native && f->tags_tensors == native);
        ck_assert(f->own_loader == (native || dcp || llmc || fsdp || f == &ckpt__format_keras) &&
                  f->own_loader == !!f->no_python);
        ck_assert(f->torch_loads == (f->family == CKPT__FAMILY_TORCH) &&
                  f->laid_out == (f->torch_loads || dcp || fsdp));
        ck_assert(f->torch_raises == (f == &ckpt__format_pickle) && f->weights_alone == !!f->python_load);
        ck_assert(!several || f->loose_files != f->of_one_model);
        ck_assert(!f->rewritten_as || (!f->write && f->rewritten_as->write && f->rewritten_as->family == f->family));
        x->kind = "file";
        ck_assert(!ckpt__in_files(x));
    }
    ckpt__index_free(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("folder");
    TCase *t = tcase_create("folder");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_step_of_the_trainer);
    tcase_add_test(t, broken_json_hides_no_tensor);
    tcase_add_test(t, what_accelerate_saves);
    tcase_add_test(t, an_adapter_and_models_in_folders);
    tcase_add_test(t, a_lora_beside_a_model);
    tcase_add_test(t, files_that_belong_together_by_their_words);
    tcase_add_test(t, one_file_in_a_directory_is_it);
    tcase_add_test(t, other_layouts_are_refused_by_name);
    tcase_add_test(t, the_most_particular_layout_is_named);
    tcase_add_test(t, a_recipe_is_not_passed_over);
    tcase_add_test(t, a_directory_of_checkpoints_is_none);
    tcase_add_test(t, a_step_of_ours_needs_its_manifest);
    tcase_add_test(t, a_shard_and_parts_of_names);
    tcase_add_test(t, ranks_on_disks_of_their_own);
    tcase_add_test(t, one_file_on_two_disks_is_the_same);
    tcase_add_test(t, other_steps_do_not_mix);
    tcase_add_test(t, files_given_one_by_one);
    tcase_add_test(t, every_format_has_its_facts);
    suite_add_tcase(s, t);
    return run_suite(s);
}
