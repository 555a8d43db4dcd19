/* test_doctor_folders.c - what doctor makes of the directories of accelerate and the HF Trainer: files that are
 * missing, states of other ranks, what each of them refuses, allows and swallows. */
#include "doctor_files.h"

#define A CKPT_LOADER_ACCELERATE
#define H CKPT_LOADER_HF_TRAINER
#define WEIGHTS "{'a':f32@cpu[2,3],'b':f32@cpu[3]}"
#define STATES "{" STATE("f32@cpu[]", "cpu") "," GROUPS("'initial_lr':0.1,") "}"
#define SCHEDULER "{'base_lrs':[0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1]}"
#define SCALER "{'scale':2.0,'growth_factor':2.0,'backoff_factor':0.5,'growth_interval':20,'_growth_tracker':1}"
#define RANDOM "{'step':3,'torch_manual_seed':u8@cpu[5056]}"

typedef struct file {
    const char *name, *text;
} file;

/* Everything is there. */
static const file accelerate[] = {{"pytorch_model.bin", WEIGHTS},
                                  {"optimizer.bin", STATES},
                                  {"scheduler.bin", SCHEDULER},
                                  {"scaler.pt", SCALER},
                                  {"random_states_0.pkl", RANDOM}};
static const file trainer[] = {{"pytorch_model.bin", WEIGHTS},
                               {"optimizer.pt", STATES},
                               {"scheduler.pt", SCHEDULER},
                               {"scaler.pt", SCALER},
                               {"rng_state.pth", "{'cpu':u8@cpu[5056]}"},
                               {"trainer_state.json", "{\"global_step\": 3, \"epoch\": 1.0, \"train_batch_size\": 2}"}};

typedef struct situation {
    ckpt_loader loader;
    const char *without; /* this file */
    file other[3];       /* in place of the one of that name, or beside them */
    const char *code;    /* NULL: nothing worse than a note */
    ckpt_severity severity;
    ckpt_outcome outcome;
    int world;
    bool amp;
} situation;

static const situation rows[] = {
    {A, NULL, {{0}}, NULL, CKPT_SEVERITY_NOTE, CKPT_OUTCOME_RESUMES, 0, true},
    {A, "optimizer.bin", {{0}}, "optimizer-file-missing", CKPT_SEVERITY_ERROR, CKPT_OUTCOME_FAILS_AT_LOAD, 0, false},
    {A, "scheduler.bin", {{0}}, "optimizer-file-missing", CKPT_SEVERITY_ERROR, CKPT_OUTCOME_FAILS_AT_LOAD, 0, false},
    {A, "scaler.pt", {{0}}, "scaler-missing", CKPT_SEVERITY_ERROR, CKPT_OUTCOME_FAILS_AT_LOAD, 0, true},
    {A, "scaler.pt", {{0}}, NULL, CKPT_SEVERITY_NOTE, CKPT_OUTCOME_RESUMES, 0, false},
    {A, "pytorch_model.bin", {{0}}, "weights-missing", CKPT_SEVERITY_ERROR, CKPT_OUTCOME_FAILS_AT_LOAD, 0, false},
    /* a program's own hook: a folder with a model and its settings, or LoRA weights of diffusers */
    {A,
     "pytorch_model.bin",
     {{"unet/config.json", "{\"_class_name\": \"UNet2DModel\"}"}, {"unet/diffusion_pytorch_model.bin", WEIGHTS}},
     "weights-by-hook",
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     0,
     false},
    {A,
     "pytorch_model.bin",
     {{"pytorch_lora_weights.bin", WEIGHTS}},
     "weights-by-hook",
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     0,
     false},
    {A,
     "pytorch_model.bin",
     {{"unet/diffusion_pytorch_model.bin", WEIGHTS}},
     "weights-missing",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {A,
     "pytorch_model.bin",
     {{"unet/config.json", "{\"a\": 1}"}},
     "weights-missing",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"trainer_state.json", "{\"global_step\": 3,"}},
     "trainer-state-damaged",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"trainer_state.json", "{\"global_step\": 3}"}},
     "trainer-state-incomplete",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"trainer_state.json", "{\"global_step\": 3, \"train_batch_size\": null}"}},
     "trainer-state-incomplete",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"config.json", "{\"model_type\": "}},
     "config-damaged",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"config.json", "{\"model_type\": \"gpt2\"}"}},
     NULL,
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     0,
     false},
    {A, NULL, {{"config.json", "{\"model_type\": "}}, NULL, CKPT_SEVERITY_NOTE, CKPT_OUTCOME_RESUMES, 0, false},
    {H,
     "trainer_state.json",
     {{"rng_state.pth", "{'cpu':u8@cpu[5056]}"},
      {"training_args.bin", "new transformers.training_args:TrainingArguments"}},
     "trainer-state-missing",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {A, "random_states_0.pkl", {{0}}, "rng-missing", CKPT_SEVERITY_WARNING, CKPT_OUTCOME_RESUMES_DIFFERENTLY, 0, false},
    {A,
     NULL,
     {{"random_states_1.pkl", RANDOM}},
     "rank-state-count",
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     0,
     false},
    {A,
     NULL,
     {{"random_states_1.pkl", RANDOM}},
     "rank-state-count",
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     1,
     false},
    {A,
     NULL,
     {{"random_states_1.pkl", RANDOM}},
     "rank-state-count",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     4,
     false},
    {A, NULL, {{"random_states_1.pkl", RANDOM}}, NULL, CKPT_SEVERITY_NOTE, CKPT_OUTCOME_RESUMES, 2, false},
    {A,
     NULL,
     {{"random_states_0.pkl", "{'a':new argparse:Namespace}"}},
     "weights-only-refused",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {A,
     NULL,
     {{"scheduler.bin", "{'last_epoch':3,'_step_count':4,'a':new argparse:Namespace}"}},
     "weights-only-refused",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {A,
     NULL,
     {{"sampler.bin", "{'a':new argparse:Namespace}"}},
     NULL,
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     0,
     false},
    {H, NULL, {{0}}, NULL, CKPT_SEVERITY_NOTE, CKPT_OUTCOME_RESUMES, 0, true},
    {H,
     "optimizer.pt",
     {{0}},
     "optimizer-file-missing",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {H,
     "scheduler.pt",
     {{0}},
     "optimizer-file-missing",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {H, "scaler.pt", {{0}}, "scaler-missing", CKPT_SEVERITY_WARNING, CKPT_OUTCOME_RESUMES_DIFFERENTLY, 0, true},
    {H, "pytorch_model.bin", {{0}}, "weights-missing", CKPT_SEVERITY_ERROR, CKPT_OUTCOME_FAILS_AT_LOAD, 0, false},
    {H,
     "trainer_state.json",
     {{0}},
     "trainer-state-missing",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H, "rng_state.pth", {{0}}, "rng-missing", CKPT_SEVERITY_WARNING, CKPT_OUTCOME_RESUMES_DIFFERENTLY, 0, false},
    {H,
     "rng_state.pth",
     {{"rng_state_0.pth", "{'cpu':u8@cpu[5056]}"}, {"rng_state_1.pth", "{'cpu':u8@cpu[5056]}"}},
     "rank-state-count",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     1,
     false},
    {H,
     "rng_state.pth",
     {{"rng_state_0.pth", "{'cpu':u8@cpu[5056]}"}, {"rng_state_1.pth", "{'cpu':u8@cpu[5056]}"}},
     NULL,
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     2,
     false},
    {H,
     NULL,
     {{"optimizer.pt",
       "{" STATE("f32@cpu[]",
                 "cpu") ",'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'params':[0]}]}"}},
     "group-mismatch",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    /* of the two one is missing: the other is not read */
    {H,
     "optimizer.pt",
     {{"scheduler.pt", "{'last_epoch':3,'_step_count':4,'a':new argparse:Namespace}"}},
     "optimizer-file-missing",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {H,
     "scheduler.pt",
     {{"optimizer.pt", "{'state':{},'param_groups':[{'lr':None,'amsgrad':False,'foreach':None,'params':[0,1]}]}"}},
     "optimizer-file-missing",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {H,
     NULL,
     {{"pytorch_model.bin", "{'a':f32@cpu[2,3]}"}},
     "weights-incomplete",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {A,
     NULL,
     {{"random_states_0.pkl", "{'torch_manual_seed':f32@cpu[8]}"}},
     "rng-refused",
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     0,
     false},
    {H,
     NULL,
     {{"rng_state.pth", "{'cpu':f32@cpu[8]}"}},
     "rng-refused",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"scheduler.pt",
       "{'base_lrs':[0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1],'_get_lr_called_within_step':False}"}},
     "scheduler-incomplete",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"optimizer.pt", "{" STATE("f32@cpu[]", "cpu") "}"}},
     "optimizer-incomplete",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"training_args.bin", "new transformers.training_args:TrainingArguments"}},
     NULL,
     CKPT_SEVERITY_NOTE,
     CKPT_OUTCOME_RESUMES,
     0,
     false},
    {H,
     NULL,
     {{"scheduler.pt", "{'last_epoch':3,'_step_count':4,'a':new argparse:Namespace}"}},
     "weights-only-refused",
     CKPT_SEVERITY_ERROR,
     CKPT_OUTCOME_FAILS_AT_LOAD,
     0,
     false},
};

/* in: "" or "directory/" */
static void write_file(const char *in, const file *f)
{
    const char *slash = strchr(f->name, '/');
    if (slash)
        (void)mkdir(at("%s%.*s", in, (int)(slash - f->name), f->name), 0700);
    if (*f->text == '{' && f->text[1] == '"')
        write_text(at("%s%s", in, f->name), f->text);
    else
        write_object(at("%s%s", in, f->name), f->text, NULL);
}

START_TEST(each)
{
    const situation *s = &rows[_i];
    const file *files = s->loader == A ? accelerate : trainer;
    size_t n = s->loader == A ? sizeof accelerate / sizeof *accelerate : sizeof trainer / sizeof *trainer;
    ckpt_doctor_options options = {.loader = s->loader, .world = s->world, .amp = s->amp};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < n; i++)
        if (!s->without || strcmp(files[i].name, s->without) != 0)
            write_file("", &files[i]);
    for (size_t i = 0; i < 3 && s->other[i].name; i++)
        write_file("", &s->other[i]);
    doctor_of(folder, &options, &result, report);
    const ckpt_finding *f = s->code ? ckpt_report_find(report, s->code, NULL) : NULL;
    for (size_t i = 0; i < ckpt_report_count(report) && !s->code; i++)
        ck_assert_msg(ckpt_report_get(report, i)->severity == CKPT_SEVERITY_NOTE ||
                          strncmp(ckpt_report_get(report, i)->code, "order", 5) == 0,
                      "row %d: %s: %s", _i, ckpt_report_get(report, i)->code, ckpt_report_get(report, i)->message);
    ck_assert_msg(!s->code || (f && f->severity == s->severity), "row %d: %s", _i,
                  f ? ckpt_severity_name(f->severity) : "no finding");
    ck_assert_msg(result.outcome == s->outcome, "row %d: %s", _i, ckpt_outcome_name(result.outcome));
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

/* Cut to half, as a full disk leaves it. Without leave_damaged no directory is opened past a damaged file; with it one is whose
 * loader goes on all the same. */
START_TEST(damaged_files)
{
    static const struct {
        ckpt_loader loader;
        const char *cut, *without, *code; /* code NULL: it is not opened */
        ckpt_outcome outcome;
    } cases[] = {
        {A, "random_states_0.pkl", NULL, "rng-missing", CKPT_OUTCOME_RESUMES_DIFFERENTLY},
        {A, "optimizer.bin", NULL, NULL, 0},
        {A, "scheduler.bin", NULL, NULL, 0},
        {H, "training_args.bin", NULL, "member-damaged", CKPT_OUTCOME_RESUMES},
        {H, "scheduler.pt", "optimizer.pt", "optimizer-file-missing", CKPT_OUTCOME_RESUMES_DIFFERENTLY},
        {H, "optimizer.pt", "scheduler.pt", "optimizer-file-missing", CKPT_OUTCOME_RESUMES_DIFFERENTLY},
        {H, "optimizer.pt", NULL, NULL, 0},
        {H, "scheduler.pt", NULL, NULL, 0},
        {H, "rng_state.pth", NULL, NULL, 0},
        {H, "pytorch_model.bin", NULL, NULL, 0},
    };
    const file args = {"training_args.bin", "new transformers.training_args:TrainingArguments"};
    ckpt_reader_options leave = {.leave_damaged = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const file *files = cases[i].loader == A ? accelerate : trainer;
        size_t n = cases[i].loader == A ? sizeof accelerate / sizeof *accelerate : sizeof trainer / sizeof *trainer;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_reader *reader = NULL;
        struct stat before;
        char in[40];
        snprintf(in, sizeof in, "damaged-%zu/", i);
        ck_assert_int_eq(mkdir(at("%s", in), 0700), 0);
        for (size_t k = 0; k < n; k++)
            if (!cases[i].without || strcmp(files[k].name, cases[i].without) != 0)
                write_file(in, &files[k]);
        if (cases[i].loader == H)
            write_file(in, &args);
        ck_assert_int_eq(stat(at("%s%s", in, cases[i].cut), &before), 0);
        ck_assert_int_eq(truncate(at("%s%s", in, cases[i].cut), before.st_size / 2), 0);
        ck_assert_msg(ckpt_reader_open(at("%s", in), NULL, &reader, &err) < 0, "case %zu", i);
        ck_assert_msg(strstr(err.object, cases[i].cut) || strstr(err.message, cases[i].cut), "case %zu: %s", i,
                      err.message);
        ckpt_status status = ckpt_reader_open(at("%s", in), &leave, &reader, &err);
        ck_assert_msg((status == CKPT_OK) == (cases[i].code != NULL), "case %zu: %s", i, err.message);
        if (status == CKPT_OK) {
            ckpt_doctor_options options = {.loader = cases[i].loader};
            ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
            ckpt_report *report = ckpt_report_new();
            ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
            ck_assert_msg(ckpt_report_find(report, cases[i].code, NULL) != NULL, "case %zu: no %s", i, cases[i].code);
            ck_assert_msg(result.outcome == cases[i].outcome, "case %zu: %s", i, ckpt_outcome_name(result.outcome));
            ckpt_doctor_result_clear(&result);
            ckpt_report_free(report);
        }
        ckpt_reader_close(reader);
    }
}
END_TEST

static void bind_tensor(ckpt_state *state, const char *name, const char *param, ckpt_role role, float *data, int64_t n)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc d = {
        .name = name, .dtype = CKPT_F32, .ndim = 1, .shape = &n, .role = role, .param = param, .data = data};
    ck_assert_msg(ckpt_state_tensor(state, &d, &err) == CKPT_OK, "%s", err.message);
}

/* A trainer that saves with this library and counts its steps in its own way resumes: amsgrad is one of its hypers, not a sign of
 * torch's Adam, and only what the program binds can be missing. */
START_TEST(steps_of_native_files)
{
    static const char *const steps[] = {"optimizer.a.step", "step", "optimizer.groups.0.steps"};
    const char *params[] = {"a"};
    for (size_t i = 0; i < 6; i++) {
        float a[4] = {1, 2, 3, 4}, m[4] = {0}, v[4] = {0}, lr = 0.1F, beta = 0.9F;
        bool amsgrad = false;
        int64_t taken = 3;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_state *state = ckpt_state_new();
        bind_tensor(state, "a", NULL, CKPT_ROLE_PARAM, a, 4);
        bind_tensor(state, NULL, "a", CKPT_ROLE_EXP_AVG, m, 4);
        bind_tensor(state, NULL, "a", CKPT_ROLE_EXP_AVG_SQ, v, 4);
        const ckpt_hyper hypers[] = {
            {"lr", CKPT_SCALAR_F32, &lr}, {"amsgrad", CKPT_SCALAR_BOOL, &amsgrad}, {"betas.0", CKPT_SCALAR_F32, &beta}};
        ckpt_group_desc g = {
            .name = "0", .params = params, .param_count = 1, .hypers = hypers, .hyper_count = i < 3 ? 3 : 2};
        ck_assert_int_eq(ckpt_state_group(state, &g, &err), CKPT_OK);
        ck_assert_msg(ckpt_state_i64(state, steps[i % 3], &taken, &err) == CKPT_OK, "%s", err.message);
        ck_assert_msg(ckpt_save(state, at("s%zu.ckpt", i), NULL, &err) == CKPT_OK, "%s", err.message);
        ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        doctor_of(at("s%zu.ckpt", i), &options, &result, report);
        ck_assert_msg(result.outcome == CKPT_OUTCOME_RESUMES, "case %zu: %s, %s", i, ckpt_outcome_name(result.outcome),
                      ckpt_report_count(report) ? ckpt_report_get(report, 0)->message : "");
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
        ckpt_state_free(state);
    }
}
END_TEST

/* An optimizer without state: whether that is before its first step the progress of the checkpoint says, where it has any. */
START_TEST(steps_that_are_said)
{
    static const struct {
        const char *more, *words;
    } cases[] = {{"", "does not say how many steps"},
                 {",'step':40", "the checkpoint is of step 40"},
                 {",'global_step':7", "is of step 7"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, "{" MODEL("cpu") ",'optimizer':{'state':{}," GROUPS("'amsgrad':False,") "}%s}",
                 cases[i].more);
        write_object(at("f%zu.pt", i), text, NULL);
        ckpt_doctor_options options = {.loader = CKPT_LOADER_TORCH};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        doctor_of(at("f%zu.pt", i), &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "moments-missing", NULL);
        ck_assert_msg(f && strstr(f->message, cases[i].words), "case %zu: %s", i, f ? f->message : "no finding");
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
    }
}
END_TEST

/* A PEFT adapter is made by its settings, and then loaded. */
START_TEST(adapters)
{
    static const char *const tensors[] = {"q.lora_A.weight", "q.lora_B.weight", "v.lora_A.weight", "v.lora_B.weight",
                                          "q.lora_magnitude_vector"};
    static const struct {
        const char *config;
        bool dora;         /* the vector is there */
        const char *words; /* NULL: no finding */
        ckpt_severity severity;
    } cases[] = {
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": [\"q\", \"v\"], \"lora_alpha\": 64}", false, NULL, 0},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": [\"q\", \"v\"]}", false,
         "gives 2 modules another rank", CKPT_SEVERITY_ERROR},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"rank_pattern\": {\"q\": 4, \"layer.v\": 4}, \"target_modules\": [\"q\", \"v\"]}",
         false, NULL, 0},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"rank_pattern\": {\"ayer.q\": 8, \"v\": 2}, \"target_modules\": [\"q\", \"v\"]}",
         false, "base_model.model.layer.v: r=2, and its tensors are of 4", CKPT_SEVERITY_ERROR},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"rank_pattern\": {\"(q|v)\": 4}, \"target_modules\": [\"q\", \"v\"]}",
         false, NULL, 0},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": [\"q\"]}", false, "target_modules",
         CKPT_SEVERITY_WARNING},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": \"q|k\"}", false, NULL, 0},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": [\"q\", \"v\"], \"use_dora\": true}", false,
         "says use_dora", CKPT_SEVERITY_WARNING},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": [\"q\", \"v\"]}", true, "does not say use_dora",
         CKPT_SEVERITY_WARNING},
        {"{\"peft_type\": \"LOHA\", \"r\": 8, \"target_modules\": [\"q\", \"v\"]}", false, NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        flat list[5];
        char names[5][80];
        for (size_t k = 0; k < 5; k++) {
            snprintf(names[k], sizeof names[k], "base_model.model.layer.%s", tensors[k]);
            list[k] = (flat){names[k], k == 4 ? 1 : 2, {k % 2 ? 6 : 4, k % 2 ? 4 : 6}};
        }
        write_safetensors(at("adapter_model.safetensors"), list, cases[i].dora ? 5 : 4, 0);
        write_text(at("adapter_config.json"), cases[i].config);
        ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        doctor_of(folder, &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "adapter-mismatch", NULL);
        ck_assert_msg(!f == !cases[i].words, "case %zu: %s", i, f ? f->message : "no finding");
        ck_assert_msg(!f || (strstr(f->message, cases[i].words) && f->severity == cases[i].severity), "case %zu: %s", i,
                      f->message);
        ck_assert_msg((result.outcome == CKPT_OUTCOME_FAILS_AT_LOAD) == (f && f->severity == CKPT_SEVERITY_ERROR),
                      "case %zu: %s", i, ckpt_outcome_name(result.outcome));
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
    }
}
END_TEST

/* What is pasted for an adapter is PEFT's own call: its names are not those of the model that has it. */
START_TEST(a_resume_of_an_adapter)
{
    static const flat tensors[] = {{"base_model.model.q.lora_A.weight", 2, {4, 6}},
                                   {"base_model.model.q.lora_B.weight", 2, {6, 4}}};
    static const flat weights[] = {{"q.weight", 2, {4, 6}}};
    static const char *const paths[] = {"p", "p/adapter_model.safetensors", "p/alone.safetensors"};
    char *text = NULL;
    ckpt_reader *reader = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    (void)mkdir(at("p"), 0700);
    write_safetensors(at("p/adapter_model.safetensors"), tensors, 2, 0);
    write_text(at("p/adapter_config.json"), "{\"peft_type\": \"LORA\", \"r\": 4}");
    for (size_t i = 0; i < 3; i++) {
        if (i == 2)
            write_safetensors(at("%s", paths[i]), weights, 1, 0);
        ck_assert_int_eq(ckpt_reader_open(at("%s", paths[i]), NULL, &reader, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_doctor_snippet(reader, "torch", NULL, &text, &err), CKPT_OK);
        ck_assert_msg(!strstr(text, "peft.set_peft_model_state_dict") == (i == 2), "%s: %s", paths[i], text);
        ck_assert_msg(!strstr(text, "PeftModel.from_pretrained") == (i > 0), "%s: %s", paths[i], text);
        ck_assert_msg(!strstr(text, "model.load_state_dict") == (i < 2), "%s: %s", paths[i], text);
        free(text);
        ckpt_reader_close(reader);
    }
}
END_TEST

/* accelerate hands load_kwargs to some of its files only: what is pasted must reach the one that is refused. */
START_TEST(what_load_kwargs_reach)
{
    static const struct {
        file file;
        bool reached;
    } cases[] = {{{"scheduler.bin", "{'last_epoch':3,'_step_count':4,'a':new argparse:Namespace}"}, true},
                 {{"scaler.pt", "{'scale':2.0,'a':new argparse:Namespace}"}, false},
                 {{"pytorch_model.bin", "{'a':f32@cpu[2,3],'b':f32@cpu[3],'c':new argparse:Namespace}"}, false}};
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3; i++) {
        ckpt_doctor_options options = {.loader = A};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        for (size_t k = 0; k < sizeof accelerate / sizeof *accelerate; k++)
            write_file("", &accelerate[k]);
        write_file("", &cases[i].file);
        doctor_of(folder, &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "weights-only-refused", NULL);
        ck_assert_msg(f && (strstr(f->fix, "load_kwargs") != NULL) == cases[i].reached, "%s: %s", cases[i].file.name,
                      f ? f->fix : "-");
        ck_assert(cases[i].reached || strstr(f->fix, "add_safe_globals"));
        ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* Healthy checkpoints of programs that are no loader here, beside the same with a defect. */
#define LIGHTNING                                                                                                      \
    "{'pytorch-lightning_version':'2.6.6','epoch':1,'global_step':3,'loops':{},'state_dict':" WEIGHTS                  \
    ",'optimizer_states':[" STATES "],'lr_schedulers':[]}"
#define NOVOGRAD(first, second)                                                                                        \
    "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':f32@cpu[],'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu" first    \
                     "},1:{'step':f32@cpu[],'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu" second                          \
                     "}}," GROUPS("'grad_averaging':False,") "}}"
#define GALORE(rank)                                                                                                   \
    "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':3,'exp_avg':f32@cpu[2,2],'exp_avg_sq':f32@cpu[2,2]},"           \
                     "1:{'step':3,'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}},'param_groups':["                     \
                     "{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0," rank "'params':[0]},"               \
                     "{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'params':[1]}]}}"

/* Experts that are one tensor in the program, and one by one in the file. */
#define EXPERTS(shape)                                                                                                 \
    "{'model':{'mlp.experts.0.w1.weight':f32@cpu[2,3],'mlp.experts.1.w1.weight':f32@cpu[2,3],'b':f32@cpu[3]},"         \
    "'optimizer':{'state':{0:{'step':f32@cpu[],'exp_avg':f32@cpu" shape ",'exp_avg_sq':f32@cpu" shape                  \
    "},1:{'step':f32@cpu[],'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}}," GROUPS("") "}}"

static const struct {
    file files[3];
    const char *code;
    bool found;
} programs[] = {
    {{{"last.ckpt", LIGHTNING}}, "not-lightning", false}, /* the directory of a file of Lightning */
    {{{"last.ckpt", LIGHTNING}}, "progress-missing", false},
    {{{"last.ckpt", LIGHTNING}, {"notes.txt", "{\"a\": 1}"}}, "not-lightning", false},
    {{{"config.json", "{\"model_type\": \"bert\"}"}, /* Trainer.save_model */
      {"pytorch_model.bin", WEIGHTS},
      {"training_args.bin", "new transformers.training_args:TrainingArguments"}},
     "weights-only-refused",
     false},
    {{{"config.json", "{\"model_type\": \"bert\"}"},
      {"pytorch_model.bin", "{'a':f32@cpu[2,3],'b':new argparse:Namespace}"}},
     "weights-only-refused",
     true},
    {{{"x.pt", NOVOGRAD("[]", "[]")}}, "moment-shape", false},
    {{{"x.pt", NOVOGRAD("[2,3]", "[]")}}, "moment-shape", true},
    {{{"x.pt", GALORE("'rank':2,'update_proj_gap':2,")}}, "moment-shape", false},
    {{{"x.pt", GALORE("")}}, "moment-shape", true},
    {{{"x.pt", EXPERTS("[2,2,3]")}}, "moment-shape", false},
    {{{"x.pt", EXPERTS("[5,2,3]")}}, "moment-shape", true},
};

START_TEST(programs_without_a_loader)
{
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3 && programs[_i].files[i].name; i++)
        write_file("", &programs[_i].files[i]);
    doctor_of(folder, &options, &result, report);
    const ckpt_finding *f = ckpt_report_find(report, programs[_i].code, NULL);
    ck_assert_msg((f != NULL) == programs[_i].found, "row %d: %s %s", _i, programs[_i].code,
                  f ? f->message : "is not found");
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor_folders");
    TCase *t = tcase_create("doctor_folders");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_loop_test(t, each, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(t, damaged_files);
    tcase_add_test(t, steps_of_native_files);
    tcase_add_test(t, steps_that_are_said);
    tcase_add_test(t, adapters);
    tcase_add_test(t, a_resume_of_an_adapter);
    tcase_add_test(t, what_load_kwargs_reach);
    tcase_add_loop_test(t, programs_without_a_loader, 0, (int)(sizeof programs / sizeof *programs));
    suite_add_tcase(s, t);
    return run_suite(s);
}
