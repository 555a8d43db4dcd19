/* A file that is a part of a checkpoint, opened alone: it is named as that, nothing resumes from it, and there is no verdict;
 * its neighbour lacks one sign, and is what it is. Files of tests/data/parts are torch's own. */
#include <ckpt/ckpt.h>
#include "producer_files.h"

static ckpt_error err;
static ckpt_doctor_result result;
static ckpt_report *report;
static ckpt_summary s;
static bool resumes; /* there is a call that does */

static void setup(void)
{
    make_folder();
    report = ckpt_report_new();
    memset(&s, 0, sizeof s);
    memset(&result, 0, sizeof result);
}

static void teardown(void)
{
    ckpt_summary_clear(&s);
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
    remove_folder();
}

static void ask(const char *path, ckpt_loader loader)
{
    ckpt_reader *reader = NULL;
    ckpt_doctor_options options = {.loader = loader};
    ckpt_summary_clear(&s);
    ckpt_doctor_result_clear(&result);
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s: %s", path, err.message);
    ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    resumes = s.resume.data != NULL;
    ckpt_summary_clear(&s); /* its values are the reader's */
    ckpt_reader_close(reader);
}

/* It is a part, in these words, and nothing else is said of it. */
static void is_part(const char *path, ckpt_loader loader, const char *words, const char *how)
{
    ask(path, loader);
    const ckpt_finding *f = ckpt_report_find(report, "part-of-checkpoint", NULL);
    ck_assert_msg(f && strstr(f->message, words), "%s: no '%s' in: %s", path, words, f ? f->message : "nothing");
    ck_assert_msg(strstr(f->fix, how) != NULL, "%s: no '%s' in: %s", path, how, f->fix);
    ck_assert_msg(ckpt_report_count(report) == 1, "%s: %s too", path, ckpt_report_get(report, 1)->code);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_UNKNOWN);
    ck_assert_msg(!resumes, "%s: something resumes from it", path);
}

static void is_none(const char *path)
{
    ask(path, CKPT_LOADER_OWN);
    ck_assert_msg(!ckpt_report_find(report, "part-of-checkpoint", NULL), "%s: %s", path,
                  ckpt_report_find(report, "part-of-checkpoint", NULL)->message);
    ck_assert_msg(resumes, "%s: nothing resumes from it", path);
}

static const char *data(const char *name)
{
    static char path[600];
    const char *top = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/parts/%s", top ? top : ".", name);
    return path;
}

START_TEST(a_rank_of_fsdp)
{
    const char *file = data("model_world_size_2_rank_1.pt");
    is_part(file, CKPT_LOADER_OWN, "rank 1 of 2", "verl");
    is_part(file, CKPT_LOADER_TORCH, "weight: Shard(dim=0), (1, 2) of (3, 2)", "verl");
    is_none(data("whole_rank_0.pt")); /* a DTensor over one rank has all of it */
    ckpt_reader *reader = NULL;
    char *snippet = NULL;
    ck_assert_int_eq(ckpt_reader_open(data("model_world_size_2_rank_1.pt"), NULL, &reader, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_doctor_snippet(reader, "torch", NULL, &snippet, &err), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "shard"), "%s", err.message);
    ckpt_reader_close(reader);
}
END_TEST

START_TEST(of_a_distributed_checkpoint)
{
    ckpt_reader *reader = NULL;
    is_part(data(".metadata"), CKPT_LOADER_OWN, "DCP, 2 entries", "ckpt-migrate --to torch DIR");
    ck_assert_int_eq(ckpt_reader_open(data("__0_0.distcp"), NULL, &reader, &err), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "DCP") && !strstr(err.message, "head -c"), "%s", err.message);
    char command[700];
    snprintf(command, sizeof command, "cp '%s' '%s'", data("__0_0.distcp"), at("two.pt"));
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_lt(ckpt_reader_open(at("two.pt"), NULL, &reader, &err), 0); /* its name is all that tells it */
    ck_assert_msg(strstr(err.message, "two archives"), "%s", err.message);
    snprintf(command, sizeof command, "cp '%s' '%s'", data(".metadata"), at("__1.metadata"));
    ck_assert_int_eq(system(command), 0);
    is_part(at("__1.metadata"), CKPT_LOADER_OWN, "rank 1's list", "ckpt-migrate --to torch DIR");
    ck_assert_ptr_null(strstr(ckpt_report_find(report, "part-of-checkpoint", NULL)->fix, "dcp_to_torch"));
    write_spec(at("__1_0.distcp"), "W");
    is_part(at("__1_0.distcp"), CKPT_LOADER_OWN, "rank 1 wrote", "ckpt-migrate --to torch DIR");
    write_spec(at("__1_0.pt"), "W");
    is_none(at("__1_0.pt"));
}
END_TEST

static void is_refused(const char *file, const char *words)
{
    char path[700];
    float values[6];
    int64_t shape[] = {2, 3};
    ckpt_migrate_options to = CKPT_MIGRATE_OPTIONS_INIT;
    to.lossy = to.force = true;
    snprintf(path, sizeof path, "%s", file); /* at() gives one buffer */
    static const char *const formats[] = {"torch", "safetensors", "ckpt", "hf"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        to.to = formats[i];
        ck_assert_int_eq(ckpt_migrate(path, at("out"), &to, NULL, &err), CKPT_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.message, words) && strstr(err.message, "is not given out"), "%s", err.message);
        ck_assert_int_ne(access(at("out"), F_OK), 0);
    }
    ckpt_tensor_desc t = CKPT_TENSOR_DESC_INIT;
    t.name = "rows.weight";
    t.data = values;
    t.dtype = CKPT_F32;
    t.shape = shape;
    t.ndim = 2;
    ckpt_state *state = ckpt_state_new();
    ck_assert_int_eq(ckpt_state_tensor(state, &t, &err), CKPT_OK);
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = o.allow_missing = true;
    ck_assert_msg(ckpt_restore(state, path, &o, NULL, &err) == CKPT_E_UNSUPPORTED, "%s", err.message);
    ck_assert_msg(strstr(err.message, words), "%s", err.message);
    ckpt_state_free(state);
}

/* What a rank writes in safetensors: it has the names of whole tensors, and of each a box. */
START_TEST(a_rank_of_dcp_in_safetensors)
{
    static const char name[] = "shard-00002-model-00001-of-00001.safetensors";
    char file[700], command[2000];
    ckpt_reader *reader = NULL;
    ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
    ckpt_migrate_options to = CKPT_MIGRATE_OPTIONS_INIT;
    snprintf(file, sizeof file, "%s/../dcp/shards/%s", data("."), name);
    is_part(file, CKPT_LOADER_OWN, "a shard (rank 1 by its name) of a PyTorch distributed checkpoint in safetensors",
            "ask for the directory");
    is_part(file, CKPT_LOADER_TORCH, "is a box of a larger one", "HuggingFaceStorageReader(DIR)");
    is_refused(file, "is a box of a larger one");
    ck_assert_int_eq(ckpt_reader_open(file, NULL, &reader, &err), CKPT_OK); /* list says it */
    ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "part-of-checkpoint", NULL));
    ckpt_reader_close(reader);
    ck_assert_int_eq(ckpt_verify(file, NULL, &verified, report, &err), CKPT_OK);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "part-of-checkpoint", NULL));
    make_directory("f");
    snprintf(command, sizeof command, "cp '%s' '%s/f/b.safetensors' && cp '%s' '%s/mine.safetensors'", file, folder,
             file, folder);
    ck_assert_int_eq(system(command), 0);
    is_part(at("mine.safetensors"), CKPT_LOADER_OWN, "a shard (one rank's)", "ask for the directory");
    is_refused(at("f"), "b.safetensors is a shard"); /* a folder that torch did not name */
    to.to = "same";                                  /* stays what it is, and says so itself */
    ck_assert_msg(ckpt_migrate(file, at("same.safetensors"), &to, NULL, &err) == CKPT_OK, "%s", err.message);
    is_part(at("same.safetensors"), CKPT_LOADER_OWN, "a shard (one rank's)", "ask for the directory");
    write_safetensors(at(name), shapes, 2, 0);
    ask(at(name), CKPT_LOADER_OWN); /* its name alone tells nothing */
    ck_assert_ptr_null(ckpt_report_find(report, "part-of-checkpoint", NULL));
}
END_TEST

START_TEST(lists_and_records_of_dcp_are_no_tensors)
{
    is_refused(data(".metadata"), "DCP, 2 entries");
    write_spec(at("__1_0.distcp"), "W");
    is_refused(at("__1_0.distcp"), "rank 1 wrote");
}
END_TEST

#define ARGS(tp, pp, more)                                                                                             \
    "'args': $argparse Namespace{'tensor_model_parallel_size': " #tp ", 'pipeline_model_parallel_size': " #pp more "}"
#define MEGATRON(tp, pp, more) "{" ARGS(tp, pp, more) ", 'checkpoint_version': 3.0, 'iteration': 5, 'model': W}"

static const struct {
    const char *path, *spec, *words, *how; /* words NULL: none */
} shards[] = {
    {"mp_rank_01_002/model_optim_rng.pt", MEGATRON(2, 4, ", 'rank': 5, 'world_size': 8"),
     "rank 5 of 8: tensor parallel rank 1 of 2, pipeline stage 2 of 4", "--load"},
    {"mp_rank_01_002_003/model_optim_rng.pt", MEGATRON(2, 4, ""),
     "(tensor parallel rank 1 of 2, pipeline stage 2 of 4)", "--load"},
    {"mp_rank_00/model_optim_rng.pt", MEGATRON(1, 1, ", 'use_distributed_optimizer': y"), "distrib_optim.pt", "--load"},
    {"mp_rank_00/model_optim_rng.pt", MEGATRON(1, 1, ""), NULL, NULL},
    {"x.pt", MEGATRON(2, 1, ""), "of 2 tensor parallel ranks", "--load"},
    {"x.pt", "{" ARGS(2, 1, "") ", 'iteration': 5, 'model': W}", NULL, NULL},
    {"common.pt", "{" ARGS(2, 1, ", 'ckpt_format': 'torch_dist'") ", 'checkpoint_version': 3.0, 'iteration': 5}",
     "torch_dist", "--load"},
    {"mp_rank_01/distrib_optim.pt", "{'buckets_coalesced': y, 'param': T1.0}", "tensor parallel rank 1", "--load"},
    {"distrib_optim.pt", "{'buckets_coalesced': 1, 'param': T1.0}", NULL, NULL},
    {"bf16_zero_pp_rank_3_mp_rank_01_optim_states.pt",
     "{'optimizer_state_dict': {'zero_stage': 2, 'base_optimizer_state': O}, 'ds_version': '0.14.2'}",
     "data parallel rank 3, model parallel rank 1", "--to torch DIR"},
    {"mp_rank_00_model_states.pt",
     "{'module': W, 'optimizer': None, 'param_shapes': [{}], 'ds_version': '0.14.2', 'dp_world_size': 4, 'mp_world_size': 1}",
     "saved by 4 data parallel ranks): the model; the optimizer's state is in *_optim_states.pt",
     "engine.load_checkpoint"},
    {"mp_rank_01_model_states.pt",
     "{'module': W, 'optimizer': O, 'ds_version': '0.14.2', 'dp_world_size': 1, 'mp_world_size': 2}",
     "its share of the model", "engine.load_checkpoint"},
    {"zero_pp_rank_1_mp_rank_00_model_states.pt",
     "{'module': W, 'ds_version': '0.14.2', 'dp_world_size': 2, 'mp_world_size': 1}", "(stage 3)",
     "engine.load_checkpoint"},
    {"mp_rank_00_model_states.pt",
     "{'module': W, 'optimizer': O, 'ds_version': '0.14.2', 'dp_world_size': 1, 'mp_world_size': 1}", NULL, NULL},
    {"zero/a.weight/exp_avg.pt", "{'param': T1.0}", "exp_avg of the parameter a.weight", "load_universal"},
    {"zero/exp_avg.pt", "{'param': T1.0}", NULL, NULL},
    {"one/a.weight/exp_avg.pt", "{'param': T1.0}", NULL, NULL},
    {"optimizer_state.pt", "{'zero_stage': 1, 'param_groups': [], 'ds_version': '0.14.2', 't': T1.0}", "universal",
     "load_universal"},
};

START_TEST(shards_by_what_they_hold)
{
    char path[200];
    snprintf(path, sizeof path, "%s", shards[_i].path);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        make_directory(path);
        *slash = '/';
    }
    write_spec(at("%s", path), shards[_i].spec);
    if (shards[_i].words)
        is_part(at("%s", path), CKPT_LOADER_OWN, shards[_i].words, shards[_i].how);
    else
        is_none(at("%s", path));
}
END_TEST

/* A file of a directory that is a checkpoint: it is asked of the directory; where the loader is named, of the file. */
START_TEST(beside_its_siblings)
{
    make_directory("c");
    write_spec(at("c/optimizer.bin"), "O");
    is_part(at("c/optimizer.bin"), CKPT_LOADER_OWN, "what accelerator.save_state wrote): the optimizer's state",
            "ask for the directory");
    write_spec(at("c/random_states_0.pkl"), "{'step': 3}");
    is_part(at("c/random_states_0.pkl"), CKPT_LOADER_OWN, "random states", "ask for the directory");
    ask(at("c/optimizer.bin"), CKPT_LOADER_TORCH);
    ck_assert_int_eq(ckpt_report_find(report, "part-of-checkpoint", NULL)->severity, CKPT_SEVERITY_NOTE);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_RESUMES_DIFFERENTLY);
    write_spec(at("c/mine.bin"), "O");
    is_none(at("c/mine.bin")); /* a name of a person's own */
    make_directory("t");
    write_text(at("t/trainer_state.json"), "{\"global_step\": 3}");
    write_safetensors(at("t/model.safetensors"), shapes, 2, 0);
    is_part(at("t/model.safetensors"), CKPT_LOADER_OWN, "a checkpoint of the HF Trainer): the weights",
            "ask for the directory");
    make_directory("m"); /* a model in one file is whole with and without its settings */
    write_text(at("m/config.json"), "{}");
    write_safetensors(at("m/model.safetensors"), shapes, 2, 0);
    is_none(at("m/model.safetensors"));
    make_directory("h");
    write_safetensors(at("h/model-00001-of-00002.safetensors"), shapes, 1, 0);
    is_part(at("h/model-00001-of-00002.safetensors"), CKPT_LOADER_OWN, "some of the weights", "ask for the directory");
    make_directory("p");
    write_text(at("p/adapter_config.json"), "{}");
    write_safetensors(at("p/adapter_model.safetensors"), shapes, 2, 0);
    is_part(at("p/adapter_model.safetensors"), CKPT_LOADER_OWN, "PEFT adapter", "ask for the directory");
    make_directory("n");
    write_spec(at("n/model.pt"), "W");
    is_none(at("n/model.pt"));
    write_spec(at("n/optimizer.pth"), "O");
    is_none(at("n/optimizer.pth")); /* files that someone put together */
}
END_TEST

/* ---- an optimizer's state with a key for each value */

static bool named(ckpt_str name, const char *text)
{
    return name.data && strcmp(name.data, text) == 0;
}

static void flat_state(const char *file, const char *fix)
{
    ckpt_reader *reader = NULL;
    ckpt_naming *names = NULL;
    size_t i;
    ask(data(file), CKPT_LOADER_TORCH);
    const ckpt_finding *f = ckpt_report_find(report, "flat-optimizer", NULL);
    ck_assert_msg(f && strstr(f->message, "KeyError: 'param_groups'") && strstr(f->fix, fix), "%s: %s", file,
                  f ? f->fix : "nothing");
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ck_assert_ptr_null(ckpt_report_find(report, "no-optimizer", NULL));
    ck_assert_ptr_null(ckpt_report_find(report, "weights-missing", NULL));
    ck_assert_int_eq(ckpt_reader_open(data(file), NULL, &reader, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_naming_new(reader, NULL, &names, NULL, &err), CKPT_OK);
    size_t moments = 0, weights = 0;
    for (i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        const ckpt_canonical *c = ckpt_naming_get(names, i);
        weights += t->role == CKPT_ROLE_PARAM && (named(c->name, "weight") || named(c->name, "bias"));
        if (t->role != CKPT_ROLE_EXP_AVG)
            continue;
        moments++;
        ck_assert(named(c->param, "weight") || named(c->param, "bias"));
        ck_assert(named(c->state_key, "exp_avg") && named(t->state_key, "exp_avg"));
        ck_assert_msg(named(c->group, named(c->param, "weight") ? "0" : "1"), "%s", c->group.data);
        ck_assert(t->param.size == c->param.size && memcmp(t->param.data, c->param.data, c->param.size) == 0);
    }
    ck_assert_uint_eq(moments, 2);
    ck_assert_uint_eq(weights, 2);
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.optimizer_class, "AdamW");
    ck_assert(s.state.known && s.state.params == 2 && s.state.without_state == 0);
    ckpt_summary_clear(&s);
    ckpt_naming_free(names);
    ckpt_reader_close(reader);
}

START_TEST(a_flat_optimizer)
{
    flat_state("flat.pt", "set_optimizer_state_dict(model, optimizer, checkpoint['optimizer'])");
    flat_state(
        "flat_mixed.pt",
        "{k[10:]: v for k, v in checkpoint.items() if k.startswith(('optimizer.state.', 'optimizer.param_groups.'))}");
    write_spec(at("x.pt"),
               "{'optimizer': {'state.a.weight.exp_avg': T1.0, 'state.a.weight.step': T3.0}}"); /* no groups */
    ask(at("x.pt"), CKPT_LOADER_TORCH);
    ck_assert_ptr_null(ckpt_report_find(report, "flat-optimizer", NULL));
    write_spec(at("x.pt"), "{'optimizer': {'param_groups.a.weight.lr': 0.5, 'exp_avg': T1.0}}"); /* no state */
    ask(at("x.pt"), CKPT_LOADER_TORCH);
    ck_assert_ptr_null(ckpt_report_find(report, "flat-optimizer", NULL));
    write_spec(at("x.pt"),
               "{'model': W, 'optimizer': {'param_groups.a.weight.lr': 0.5, 'state.a.weight.exp_avg': T1.0}}");
    ask(at("x.pt"), CKPT_LOADER_TORCH);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "flat-optimizer", NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parts");
    TCase *t = tcase_create("parts");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_rank_of_fsdp);
    tcase_add_test(t, of_a_distributed_checkpoint);
    tcase_add_test(t, a_rank_of_dcp_in_safetensors);
    tcase_add_test(t, lists_and_records_of_dcp_are_no_tensors);
    tcase_add_loop_test(t, shards_by_what_they_hold, 0, (int)(sizeof shards / sizeof *shards));
    tcase_add_test(t, beside_its_siblings);
    tcase_add_test(t, a_flat_optimizer);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
