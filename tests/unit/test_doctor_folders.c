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
                               {"trainer_state.json", "{\"global_step\": 3, \"epoch\": 1.0}"}};

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
    {A, NULL, {{0}}, NULL, CKPT_NOTE, CKPT_RESUMES, 0, true},
    {A, "optimizer.bin", {{0}}, "optimizer-file-missing", CKPT_ERROR, CKPT_FAILS_AT_LOAD, 0, false},
    {A, "scheduler.bin", {{0}}, "optimizer-file-missing", CKPT_ERROR, CKPT_FAILS_AT_LOAD, 0, false},
    {A, "scaler.pt", {{0}}, "scaler-missing", CKPT_ERROR, CKPT_FAILS_AT_LOAD, 0, true},
    {A, "scaler.pt", {{0}}, NULL, CKPT_NOTE, CKPT_RESUMES, 0, false},
    {A, "pytorch_model.bin", {{0}}, "weights-missing", CKPT_ERROR, CKPT_FAILS_AT_LOAD, 0, false},
    {A, "random_states_0.pkl", {{0}}, "rng-missing", CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, 0, false},
    {A, NULL, {{"random_states_1.pkl", RANDOM}}, "rank-state-count", CKPT_NOTE, CKPT_RESUMES, 0, false},
    {A, NULL, {{"random_states_1.pkl", RANDOM}}, "rank-state-count", CKPT_NOTE, CKPT_RESUMES, 1, false},
    {A, NULL, {{"random_states_1.pkl", RANDOM}}, "rank-state-count", CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, 4, false},
    {A, NULL, {{"random_states_1.pkl", RANDOM}}, NULL, CKPT_NOTE, CKPT_RESUMES, 2, false},
    {A,
     NULL,
     {{"random_states_0.pkl", "{'a':new argparse:Namespace}"}},
     "weights-only-refused",
     CKPT_WARNING,
     CKPT_RESUMES_DIFFERENTLY,
     0,
     false},
    {A,
     NULL,
     {{"scheduler.bin", "{'last_epoch':3,'_step_count':4,'a':new argparse:Namespace}"}},
     "weights-only-refused",
     CKPT_ERROR,
     CKPT_FAILS_AT_LOAD,
     0,
     false},
    {A, NULL, {{"sampler.bin", "{'a':new argparse:Namespace}"}}, NULL, CKPT_NOTE, CKPT_RESUMES, 0, false},
    {H, NULL, {{0}}, NULL, CKPT_NOTE, CKPT_RESUMES, 0, true},
    {H, "optimizer.pt", {{0}}, "optimizer-file-missing", CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, 0, false},
    {H, "scheduler.pt", {{0}}, "optimizer-file-missing", CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, 0, false},
    {H, "scaler.pt", {{0}}, "scaler-missing", CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, 0, true},
    {H, "pytorch_model.bin", {{0}}, "weights-missing", CKPT_ERROR, CKPT_FAILS_AT_LOAD, 0, false},
    {H, "trainer_state.json", {{0}}, "trainer-state-missing", CKPT_ERROR, CKPT_FAILS_AT_LOAD, 0, false},
    {H, "rng_state.pth", {{0}}, "rng-missing", CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, 0, false},
    {H,
     "rng_state.pth",
     {{"rng_state_0.pth", "{'cpu':u8@cpu[5056]}"}, {"rng_state_1.pth", "{'cpu':u8@cpu[5056]}"}},
     "rank-state-count",
     CKPT_WARNING,
     CKPT_RESUMES_DIFFERENTLY,
     1,
     false},
    {H,
     "rng_state.pth",
     {{"rng_state_0.pth", "{'cpu':u8@cpu[5056]}"}, {"rng_state_1.pth", "{'cpu':u8@cpu[5056]}"}},
     NULL,
     CKPT_NOTE,
     CKPT_RESUMES,
     2,
     false},
    {H,
     NULL,
     {{"optimizer.pt",
       "{" STATE("f32@cpu[]",
                 "cpu") ",'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'params':[0]}]}"}},
     "group-mismatch",
     CKPT_ERROR,
     CKPT_FAILS_AT_LOAD,
     0,
     false},
    {H,
     NULL,
     {{"training_args.bin", "new transformers.training_args:TrainingArguments"}},
     NULL,
     CKPT_NOTE,
     CKPT_RESUMES,
     0,
     false},
    {H,
     NULL,
     {{"scheduler.pt", "{'last_epoch':3,'_step_count':4,'a':new argparse:Namespace}"}},
     "weights-only-refused",
     CKPT_ERROR,
     CKPT_FAILS_AT_LOAD,
     0,
     false},
};

static void write_file(const file *f)
{
    if (*f->text == '{' && f->text[1] == '"')
        write_text(at("%s", f->name), f->text);
    else
        write_object(at("%s", f->name), f->text, NULL);
}

START_TEST(each)
{
    const situation *s = &rows[_i];
    const file *files = s->loader == A ? accelerate : trainer;
    size_t n = s->loader == A ? sizeof accelerate / sizeof *accelerate : sizeof trainer / sizeof *trainer;
    ckpt_doctor_options options = {.loader = s->loader, .cuda_devices = -1, .world = s->world, .amp = s->amp};
    ckpt_doctor_result result;
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < n; i++)
        if (!s->without || strcmp(files[i].name, s->without) != 0)
            write_file(&files[i]);
    for (size_t i = 0; i < 3 && s->other[i].name; i++)
        write_file(&s->other[i]);
    doctor_of(folder, &options, &result, report);
    const ckpt_finding *f = s->code ? ckpt_report_find(report, s->code, NULL) : NULL;
    for (size_t i = 0; i < ckpt_report_count(report) && !s->code; i++)
        ck_assert_msg(ckpt_report_get(report, i)->severity == CKPT_NOTE ||
                          strncmp(ckpt_report_get(report, i)->code, "order", 5) == 0,
                      "row %d: %s: %s", _i, ckpt_report_get(report, i)->code, ckpt_report_get(report, i)->message);
    ck_assert_msg(!s->code || (f && f->severity == s->severity), "row %d: %s", _i,
                  f ? ckpt_severity_name(f->severity) : "no finding");
    ck_assert_msg(result.outcome == s->outcome, "row %d: %s", _i, ckpt_outcome_name(result.outcome));
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
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
        ckpt_doctor_options options = {.loader = A, .cuda_devices = -1};
        ckpt_doctor_result result;
        for (size_t k = 0; k < sizeof accelerate / sizeof *accelerate; k++)
            write_file(&accelerate[k]);
        write_file(&cases[i].file);
        doctor_of(folder, &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "weights-only-refused", NULL);
        ck_assert_msg(f && (strstr(f->fix, "load_kwargs") != NULL) == cases[i].reached, "%s: %s", cases[i].file.name, f ? f->fix : "-");
        ck_assert(cases[i].reached || strstr(f->fix, "add_safe_globals"));
        ck_assert_int_eq(result.outcome, CKPT_FAILS_AT_LOAD);
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
    "},1:{'step':f32@cpu[],'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu" second "}}," GROUPS("'grad_averaging':False,") "}}"
#define GALORE(rank)                                                                                                   \
    "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':3,'exp_avg':f32@cpu[2,2],'exp_avg_sq':f32@cpu[2,2]},"           \
    "1:{'step':3,'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}},'param_groups':["                                      \
    "{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0," rank "'params':[0]},"                                \
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
    {{{"last.ckpt", LIGHTNING}}, "not-lightning", false},       /* the directory of a file of Lightning */
    {{{"last.ckpt", LIGHTNING}}, "progress-missing", false},
    {{{"last.ckpt", LIGHTNING}, {"notes.txt", "{\"a\": 1}"}}, "not-lightning", false},
    {{{"config.json", "{\"model_type\": \"bert\"}"},           /* Trainer.save_model */
      {"pytorch_model.bin", WEIGHTS},
      {"training_args.bin", "new transformers.training_args:TrainingArguments"}},
     "weights-only-refused", false},
    {{{"config.json", "{\"model_type\": \"bert\"}"}, {"pytorch_model.bin", "{'a':f32@cpu[2,3],'b':new argparse:Namespace}"}},
     "weights-only-refused", true},
    {{{"x.pt", NOVOGRAD("[]", "[]")}}, "moment-shape", false},
    {{{"x.pt", NOVOGRAD("[2,3]", "[]")}}, "moment-shape", true},
    {{{"x.pt", GALORE("'rank':2,'update_proj_gap':2,")}}, "moment-shape", false},
    {{{"x.pt", GALORE("")}}, "moment-shape", true},
    {{{"x.pt", EXPERTS("[2,2,3]")}}, "moment-shape", false},
    {{{"x.pt", EXPERTS("[5,2,3]")}}, "moment-shape", true},
};

START_TEST(programs_without_a_loader)
{
    ckpt_doctor_options options = {.cuda_devices = -1};
    ckpt_doctor_result result;
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3 && programs[_i].files[i].name; i++)
        write_file(&programs[_i].files[i]);
    doctor_of(folder, &options, &result, report);
    const ckpt_finding *f = ckpt_report_find(report, programs[_i].code, NULL);
    ck_assert_msg((f != NULL) == programs[_i].found, "row %d: %s %s", _i, programs[_i].code, f ? f->message : "is not found");
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
    tcase_add_test(t, what_load_kwargs_reach);
    tcase_add_loop_test(t, programs_without_a_loader, 0, (int)(sizeof programs / sizeof *programs));
    suite_add_tcase(s, t);
    return run_suite(s);
}
