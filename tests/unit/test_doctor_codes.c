/* test_doctor_codes.c - every finding of doctor in a file built so that it appears, and in its near neighbour so that it does
 * not. */
#include "doctor_files.h"

#define T CKPT_LOADER_TORCH
#define C CKPT_LOADER_CKPT
#define CPP CKPT_LOADER_TORCH_CPP
#define L CKPT_LOADER_LIGHTNING
#define R CKPT_RESUMES
#define RD CKPT_RESUMES_DIFFERENTLY
#define FL CKPT_FAILS_AT_LOAD
#define FS CKPT_FAILS_AT_STEP
#define LIGHTNING(more)                                                                                                   \
    "{'pytorch-lightning_version':'2.6.6','epoch':1,'global_step':3,'loops':{},'state_dict':{'a':f32@cpu[2,3],'b':f32@cpu[3]}," more "}"
#define STATES "'optimizer_states':[{" STATE("f32@cpu[]", "cpu") "," GROUPS("'initial_lr':0.1,") "}]"
#define SCALER "{'scale':2.0,'growth_factor':2.0,'backoff_factor':0.5,'growth_interval':20,'_growth_tracker':1}"
#define SCHEDULER "'scheduler':{'base_lrs':[0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1]}"

static const struct {
    const char *code;
    const char *sick, *well;
    ckpt_severity severity;
    ckpt_outcome outcome;         /* of the sick one */
    ckpt_doctor_options options;  /* cuda_devices: one more than is meant, so that 0 is "not said" */
} rows[] = {
    /* step */
    {"step-on-cpu", FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,"), CKPT_ERROR, FS, {.loader = C}},
    {"step-on-cpu", FILE_OF("f32@cpu[]", "cuda:0", "'capturable':True,"), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_ERROR, FS, {.loader = CPP}},
    {"step-on-cpu", FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_ERROR, FS, {.loader = T, .torch_major = 2}},
    {"step-on-cpu", FILE_OF("7", "cuda:0", "'fused':True,"), FILE_OF("7", "cuda:0", ""), CKPT_ERROR, FS, {.loader = T, .torch_major = 2}},
    {"step-on-cpu", FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,"), CKPT_NOTE, R, {.loader = T}},
    {"step-on-gpu-slow", FILE_OF("f32@cuda:0[]", "cuda:0", ""), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_WARNING, RD, {.loader = T}},
    {"step-on-gpu-slow", FILE_OF("f32@cuda:0[]", "cuda:0", ""), FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,"), CKPT_WARNING, RD, {.loader = C}},
    {"step-dtype", FILE_OF("i64@cpu[]", "cuda:0", ""), FILE_OF("f64@cpu[]", "cuda:0", ""), CKPT_ERROR, FS, {.loader = T}},
    {"step-dtype", FILE_OF("i64@cpu[]", "cpu", "'foreach':True,"), FILE_OF("i64@cpu[]", "cpu", "'foreach':False,"), CKPT_ERROR, FS, {.loader = T}},
    {"capturable-on-cpu", FILE_OF("f32@cpu[]", "cpu", "'capturable':True,"), FILE_OF("f32@cpu[]", "cpu", "'capturable':False,"), CKPT_ERROR, FS, {.loader = T}},
    {"fused-on-cpu", FILE_OF("f32@cpu[]", "cpu", "'fused':True,"), PLAIN, CKPT_ERROR, FS, {.loader = T, .torch_major = 2, .torch_minor = 3}},
    /* flags */
    {"fused-flag-overwritten", PLAIN, FILE_OF("f32@cpu[]", "cpu", "'fused':True,"), CKPT_WARNING, RD, {.loader = T, .optimizer = CKPT_FUSED}},
    {"fused-flag-overwritten", FILE_OF("f32@cpu[]", "cpu", "'fused':True,"), PLAIN, CKPT_WARNING, RD, {.loader = T, .optimizer = CKPT_PLAIN}},
    {"amp-needs-fused-flag", PLAIN, FILE_OF("f32@cpu[]", "cpu", "'fused':True,"), CKPT_ERROR, FS, {.loader = T, .optimizer = CKPT_FUSED, .amp = true}},
    {"capturable-flag-overwritten", FILE_OF("f32@cpu[]", "cuda:0", ""), FILE_OF("f32@cuda:0[]", "cuda:0", "'capturable':True,"), CKPT_WARNING, RD, {.loader = T, .optimizer = CKPT_CAPTURABLE}},
    /* moments */
    {"mixed-devices", "{" MODEL("cuda:0") "," OPTIMIZER("f32@cpu[]", "cuda:1", "") "}", FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_ERROR, FS, {.loader = C}},
    {"mixed-devices", "{" MODEL("cuda:0") "," OPTIMIZER("f32@cpu[]", "cpu", "") "}", FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_ERROR, FS, {.loader = CPP}},
    {"mixed-devices", "{" MODEL("cuda:0") "," OPTIMIZER("f32@cpu[]", "cpu", "") "}", FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_NOTE, R, {.loader = T}},
    {"moments-cast", "{'model':{'a':bf16@cpu[2,3],'b':bf16@cpu[3]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", PLAIN, CKPT_WARNING, RD, {.loader = T}},
    {"moments-cast", "{'model':{'a':f64@cpu[2,3],'b':f64@cpu[3]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"moment-shape", "{'model':{'a':f32@cpu[2,3],'b':f32@cpu[4]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", PLAIN, CKPT_ERROR, FS, {.loader = T}},
    {"moments-missing", "{" MODEL("cpu") ",'optimizer':{'state':{}," GROUPS("") "}}", PLAIN, CKPT_WARNING, RD, {.loader = T}},
    {"moments-missing", "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':f32@cpu[],'exp_avg':f32@cpu[2,3]}}," GROUPS("") "}}", PLAIN, CKPT_WARNING, RD, {.loader = T}},
    {"moments-missing", FILE_OF("f32@cpu[]", "cpu", "'amsgrad':True,"), FILE_OF("f32@cpu[]", "cpu", "'amsgrad':False,"), CKPT_ERROR, FS, {.loader = T}},
    {"state-without-parameter", "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") ",'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'params':[0]}]}}", PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"bnb-never-cast", "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':3,'state1':u8@cpu[2,3]},1:{'step':3,'state1':u8@cpu[3]}}," GROUPS("") "}}", PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"bnb-never-cast", "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':3,'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}},1:{'step':3}}," GROUPS("") "}}", PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"step-on-cpu", FILE_OF("f32@cpu[]", "cuda:0", "'capturable':True,"), FILE_OF("f32@cuda:0[]", "cuda:0", "'capturable':True,"), CKPT_ERROR, FS, {.loader = C}},
    {"step-on-cpu", FILE_OF("f32@cpu[]", "cuda:0", "'capturable':True,"), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_ERROR, FS, {.loader = T, .torch_major = 2}},
    {"capturable-on-cpu", FILE_OF("f32@cpu[]", "cpu", "'capturable':True,"), PLAIN, CKPT_ERROR, FS, {.loader = T, .torch_major = 1, .torch_minor = 13}},
    {"capturable-on-cpu", FILE_OF("f32@cpu[]", "cpu", "'capturable':True,"), PLAIN, CKPT_ERROR, FS, {.loader = CPP}},
    {"step-on-gpu-slow", FILE_OF("f32@cuda:0[]", "cuda:0", ""), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_WARNING, RD, {.loader = T, .torch_major = 1, .torch_minor = 12}},
    {"step-on-gpu-slow", "{" MODEL("cuda:0") ",'optimizer':{'state':{0:{'step':f32@cpu[],'mu_product':f32@cpu[],'exp_avg':f32@cuda:0[2,3]},1:{'step':f32@cpu[],'mu_product':f32@cpu[],'exp_avg':f32@cuda:0[3]}}," GROUPS("") "}}", FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_WARNING, RD, {.loader = T}},
    {"step-dtype", FILE_OF("f64@cuda:0[]", "cuda:0", "'fused':True,"), FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,"), CKPT_ERROR, FS, {.loader = T, .torch_major = 2}},
    {"step-dtype", FILE_OF("f64@cuda:0[]", "cuda:0", "'fused':True,"), FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,"), CKPT_WARNING, RD, {.loader = CPP}},
    {"amp-needs-fused-flag", PLAIN, FILE_OF("f32@cpu[]", "cpu", "'fused':True,"), CKPT_WARNING, CKPT_OUTCOME_UNKNOWN, {.loader = T, .torch_major = 2, .optimizer = CKPT_FUSED, .amp = true}},
    {"capturable-flag-overwritten", FILE_OF("f32@cuda:0[]", "cuda:0", "'capturable':True,"), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_WARNING, RD, {.loader = T, .optimizer = CKPT_PLAIN}},
    {"moments-missing", "{" MODEL("cpu") ",'optimizer':{'state':{}," GROUPS("") "}}", PLAIN, CKPT_ERROR, FL, {.loader = C}},
    {"moments-missing", "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':f32@cpu[],'exp_avg':f32@cpu[2,3]}}," GROUPS("") "}}", PLAIN, CKPT_WARNING, RD, {.loader = C}},
    {"ambiguous-order", "{'model':{'a':f32@cpu[2],'b':f32@cpu[2],'c':f32@cpu[2]},'optimizer':{'state':{0:{'exp_avg':f32@cpu[2]},1:{'exp_avg':f32@cpu[2]}}," GROUPS("") "}}", PLAIN, CKPT_WARNING, CKPT_OUTCOME_UNKNOWN, {.loader = C}},
    {"moment-shape", "{'model':{'a':f32@cpu[2,3],'b':f32@cpu[4]}," OPTIMIZER("f32@cpu[]", "cpu", "'param_names':['a','b'],") "}", PLAIN, CKPT_ERROR, FL, {.loader = C}},
    {"initial-lr-missing", "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "") "," SCHEDULER "}", PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"rng-moved", "{" MODEL("cuda:0") ",'rng':u8@cuda:0[5056]}", "{" MODEL("cuda:0") ",'rng':u8@cpu[5056]}", CKPT_WARNING, RD, {.loader = C}},
    {"prefix", "{'model':{'module.a':f32@cpu[2,3],'module.b':f32@cpu[3]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", PLAIN, CKPT_NOTE, R, {.loader = C}},
    {"no-optimizer", "{" MODEL("cpu") "}", PLAIN, CKPT_WARNING, RD, {.loader = C}},
    {"scaler-missing", LIGHTNING(STATES ",'lr_schedulers':[{}]"), LIGHTNING(STATES ",'lr_schedulers':[{}],'MixedPrecision':" SCALER), CKPT_WARNING, RD, {.loader = L, .amp = true}},
    {"weights-only-refused", LIGHTNING(STATES ",'lr_schedulers':[{}],'h':new argparse:Namespace"), LIGHTNING(STATES ",'lr_schedulers':[{}]"), CKPT_ERROR, FL, {.loader = L}},
    /* groups */
    {"missing-hyper", "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") ",'param_groups':[{'betas':(0.9,0.99),'params':[0,1]}]}}", PLAIN, CKPT_ERROR, FS, {.loader = T}},
    {"tensor-lr", "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") ",'param_groups':[{'lr':f32@cpu[],'foreach':True,'params':[0,1]}]}}",
     "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") ",'param_groups':[{'lr':f32@cpu[],'foreach':False,'params':[0,1]}]}}", CKPT_ERROR, FS, {.loader = T}},
    {"lr-comes-from-checkpoint", PLAIN, "{" MODEL("cpu") "}", CKPT_NOTE, R, {.loader = T}},
    {"initial-lr-missing", FILE_OF("f32@cpu[]", "cpu", ""), PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"group-mismatch", "{'model':{'a':f32@cpu[2,3]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", PLAIN, CKPT_ERROR, FL, {.loader = T}},
    {"ambiguous-order", "{'model':{'a':f32@cpu[2],'b':f32@cpu[2],'c':f32@cpu[2]},'optimizer':{'state':{0:{'exp_avg':f32@cpu[2]},1:{'exp_avg':f32@cpu[2]}}," GROUPS("") "}}", PLAIN, CKPT_NOTE, R, {.loader = T}},
    {"param-order-differs", FILE_OF("f32@cpu[]", "cpu", "'param_names':['b','a'],"), FILE_OF("f32@cpu[]", "cpu", "'param_names':['a','b'],"), CKPT_NOTE, FS, {.loader = T}},
    /* devices */
    {"no-such-device", FILE_OF("f32@cpu[]", "cuda:2", ""), FILE_OF("f32@cpu[]", "cuda:1", ""), CKPT_ERROR, FL, {.loader = T, .cuda_devices = 3}},
    {"no-such-device", FILE_OF("f32@cpu[]", "cuda:0", ""), PLAIN, CKPT_ERROR, FL, {.loader = C, .cuda_devices = 1}},
    {"no-such-device", FILE_OF("f32@cpu[]", "mps", ""), PLAIN, CKPT_ERROR, FL, {.loader = T, .cuda_devices = 1}},
    {"no-such-device", FILE_OF("f32@cpu[]", "cpu:0", ""), PLAIN, CKPT_ERROR, FL, {.loader = T}},
    {"no-data", FILE_OF("f32@cpu[]", "meta", ""), PLAIN, CKPT_ERROR, FL, {.loader = T}},
    {"rank-device", FILE_OF("f32@cpu[]", "cuda:0", ""), PLAIN, CKPT_WARNING, R, {.loader = T, .world = 2}},
    {"rank-device", FILE_OF("f32@cpu[]", "cuda:3", ""), FILE_OF("f32@cpu[]", "cuda:0", ""), CKPT_NOTE, R, {.loader = T}},
    {"rng-moved", "{" MODEL("cuda:0") ",'rng':u8@cuda:0[5056]}", "{" MODEL("cuda:0") ",'rng':u8@cpu[5056]}", CKPT_ERROR, FL, {.loader = T}},
    {"torch-device-object", "{" MODEL("cpu") ",'d':device@cuda:1}", "{" MODEL("cpu") ",'d':device@cpu}", CKPT_NOTE, RD, {.loader = T}},
    {"device-memory", FILE_OF("f32@cpu[]", "cuda:0", ""), FILE_OF("f32@cpu[]", "cpu", ""), CKPT_ERROR, FL, {.loader = T, .device_memory = 100}},
    {"device-memory", FILE_OF("f32@cpu[]", "cuda:0", ""), FILE_OF("f32@cpu[]", "cpu", ""), CKPT_ERROR, FS, {.loader = T, .device_memory = 120, .map_location = "cpu"}},
    {"device-memory", FILE_OF("f32@cpu[]", "cuda:0", ""), FILE_OF("f32@cpu[]", "cpu", ""), CKPT_NOTE, R, {.loader = T, .device_memory = 4096}},
    /* values */
    {"weights-only-refused", "{" MODEL("cpu") ",'args':new argparse:Namespace}", "{" MODEL("cpu") ",'args':{}}", CKPT_ERROR, FL, {.loader = T}},
    {"weights-only-refused", "{" MODEL("cpu") ",'args':new argparse:Namespace}", "{" MODEL("cpu") ",'args':{}}", CKPT_ERROR, FL, {.loader = CPP}},
    {"prefix", "{'model':{'module.a':f32@cpu[2,3],'module.b':f32@cpu[3]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", "{'model':{'amodule.a':f32@cpu[2,3],'b':f32@cpu[3]}," OPTIMIZER("f32@cpu[]", "cpu", "") "}", CKPT_NOTE, R, {.loader = T}},
    {"scaler-missing", PLAIN, "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "") ",'scaler':" SCALER "}", CKPT_WARNING, RD, {.loader = T, .amp = true}},
    {"scaler-disabled", "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "") ",'scaler':{}}", "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "") ",'scaler':" SCALER "}", CKPT_ERROR, FL, {.loader = T, .amp = true}},
    {"scheduler-without-optimizer", "{" MODEL("cpu") "," SCHEDULER "}", "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "") "," SCHEDULER "}", CKPT_WARNING, RD, {.loader = T}},
    {"no-optimizer", "{" MODEL("cpu") "}", PLAIN, CKPT_WARNING, RD, {.loader = T}},
    {"weights-missing", "{" STATE("f32@cpu[]", "cpu") "," GROUPS("") "}", PLAIN, CKPT_WARNING, RD, {.loader = T}},
    {"rank-state-count", "{" MODEL("cpu") ",'rng_states':[u8@cpu[16],u8@cpu[16]]}", "{" MODEL("cpu") ",'rng_states':[u8@cpu[16],u8@cpu[16],u8@cpu[16]]}", CKPT_WARNING, RD, {.loader = T, .world = 3}},
    {"rank-state-count", "{" MODEL("cpu") ",'sampler':[{'n':1},{'n':2}]}", "{" MODEL("cpu") ",'sampler':{'n':1}}", CKPT_WARNING, RD, {.loader = T, .world = 3}},
    {"rank-state-count", "{" MODEL("cpu") ",'cuda_rng':[u8@cpu[16],u8@cpu[16]]}", "{" MODEL("cpu") ",'cuda_rng':[u8@cpu[16]]}", CKPT_ERROR, FL, {.loader = T, .cuda_devices = 2}},
    {"version-unknown", PLAIN, NULL, CKPT_WARNING, R, {.loader = T, .torch_major = 3}},
    {"not-an-archive", PLAIN, NULL, CKPT_NOTE, R, {.loader = CPP}},
    /* Lightning */
    {"no-optimizer", LIGHTNING("'lr_schedulers':[]"), LIGHTNING(STATES ",'lr_schedulers':[{}]"), CKPT_ERROR, FL, {.loader = L}},
    {"moments-missing", LIGHTNING("'optimizer_states':[],'lr_schedulers':[]"), LIGHTNING(STATES ",'lr_schedulers':[{}]"), CKPT_WARNING, RD, {.loader = L}},
    {"scheduler-missing", LIGHTNING(STATES ",'lr_schedulers':[]"), LIGHTNING(STATES ",'lr_schedulers':[{}]"), CKPT_WARNING, RD, {.loader = L}},
    {"scaler-key-ignored", LIGHTNING(STATES ",'lr_schedulers':[{}],'MixedPrecisionPlugin':" SCALER), LIGHTNING(STATES ",'lr_schedulers':[{}],'MixedPrecision':" SCALER), CKPT_WARNING, RD, {.loader = L}},
    {"scaler-disabled", LIGHTNING(STATES ",'lr_schedulers':[{}],'MixedPrecision':{}"), LIGHTNING(STATES ",'lr_schedulers':[{}],'MixedPrecision':" SCALER), CKPT_ERROR, FL, {.loader = L, .amp = true}},
    {"not-lightning", PLAIN, LIGHTNING(STATES ",'lr_schedulers':[{}]"), CKPT_ERROR, FL, {.loader = L}},
    {"progress-missing", PLAIN, LIGHTNING(STATES ",'lr_schedulers':[{}]"), CKPT_WARNING, FL, {.loader = L}},
    {"map-ignored", PLAIN, NULL, CKPT_NOTE, FL, {.loader = L, .map_location = "cuda:0"}},
    {"torch-too-old", PLAIN, NULL, CKPT_ERROR, FL, {.loader = CKPT_LOADER_HF_TRAINER, .torch_major = 2, .torch_minor = 5}},
};

/* What --fix does for a code is printed as the very command. */
static void check_texts(const ckpt_report *report, int row)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        ck_assert_str_ne(f->message, "");
        static const char *const left[] = {"{n}", "{s}", "{a}", "{b}", "{c}", "{path}", "{py}", "{mend}", "{dst}", "{version}", "{loader}"};
        for (size_t k = 0; k < sizeof left / sizeof *left; k++)
            ck_assert_msg(!strstr(f->message, left[k]) && !strstr(f->fix, left[k]), "row %d: %s: %s | %s", row, f->code, f->message, f->fix);
        const char *mend = strstr(f->fix, "ckpt-migrate --fix ");
        if (mend)
            ck_assert_msg(strncmp(mend + 19, f->code, strlen(f->code)) == 0 && strstr(mend, "--to same"), "row %d: %s", row, mend);
        if (f->severity > CKPT_NOTE)
            ck_assert_msg(*f->fix, "row %d: %s has no fix", row, f->code);
    }
}

START_TEST(each_code)
{
    ckpt_doctor_options options = rows[_i].options;
    ckpt_doctor_result result;
    ckpt_report *report = ckpt_report_new();
    options.cuda_devices--;
    write_object(at("x.pt"), rows[_i].sick, NULL);
    doctor_of(at("x.pt"), &options, &result, report);
    const ckpt_finding *f = ckpt_report_find(report, rows[_i].code, NULL);
    ck_assert_msg(f != NULL, "row %d: no %s", _i, rows[_i].code);
    ck_assert_msg(f->severity == rows[_i].severity, "row %d: %s is of severity %s", _i, f->code, ckpt_severity_name(f->severity));
    ck_assert_msg(result.outcome == rows[_i].outcome, "row %d, %s: %s", _i, f->code, ckpt_outcome_name(result.outcome));
    check_texts(report, _i);
    ckpt_doctor_result_clear(&result);
    if (rows[_i].well) {
        write_object(at("x.pt"), rows[_i].well, NULL);
        doctor_of(at("x.pt"), &options, &result, report);
        for (size_t i = 0; i < ckpt_report_count(report); i++)
            ck_assert_msg(strcmp(ckpt_report_get(report, i)->code, rows[_i].code) != 0 || ckpt_report_get(report, i)->severity < rows[_i].severity,
                          "row %d: %s in the neighbour: %s", _i, rows[_i].code, ckpt_report_get(report, i)->message);
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* A healthy file has notes only, for every loader that reads it. */
START_TEST(healthy)
{
    static const char *const files[] = {PLAIN, FILE_OF("f32@cpu[]", "cuda:0", ""), FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,")};
    static const ckpt_loader loaders[] = {T, C, CPP};
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            ckpt_doctor_options options = {.loader = loaders[k], .cuda_devices = -1};
            ckpt_doctor_result result;
            write_object(at("x.pt"), files[i], NULL);
            doctor_of(at("x.pt"), &options, &result, report);
            ck_assert_msg(result.outcome == R && ckpt_report_worst(report) == CKPT_NOTE, "file %zu, loader %zu: %s", i, k, ckpt_outcome_name(result.outcome));
            ckpt_doctor_result_clear(&result);
        }
    ckpt_report_free(report);
}
END_TEST

START_TEST(non_finite)
{
    ckpt_doctor_options options = {.loader = T, .cuda_devices = -1, .read_values = true};
    ckpt_doctor_result result;
    ckpt_report *report = ckpt_report_new();
    write_object(at("x.pt"), PLAIN, "\0\0\xc0\x7f");
    doctor_of(at("x.pt"), &options, &result, report);
    const ckpt_finding *f = ckpt_report_find(report, "non-finite", NULL);
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "8 tensors"));
    ck_assert_str_eq(f->tensor, "model.a");
    ck_assert_int_eq(result.outcome, RD);
    ckpt_doctor_result_clear(&result);
    write_object(at("x.pt"), PLAIN, "\0\0\x80\x3f");
    doctor_of(at("x.pt"), &options, &result, report);
    ck_assert_ptr_null(ckpt_report_find(report, "non-finite", NULL));
    ckpt_doctor_result_clear(&result);
    options.read_values = false;
    write_object(at("x.pt"), PLAIN, "\0\0\xc0\x7f");
    doctor_of(at("x.pt"), &options, &result, report);
    ck_assert_ptr_null(ckpt_report_find(report, "non-finite", NULL));
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

/* Each refused class once, with the path of the first and how often. */
START_TEST(refusals)
{
    ckpt_doctor_options options = {.loader = T, .cuda_devices = -1};
    ckpt_doctor_result result;
    ckpt_report *report = ckpt_report_new();
    write_object(at("x.pt"), "{" MODEL("cpu") ",'h':{'one':new argparse:Namespace,'two':new argparse:Namespace,'p':new pathlib:PosixPath}}", NULL);
    doctor_of(at("x.pt"), &options, &result, report);
    ck_assert_uint_eq(ckpt_report_count_code(report, "weights-only-refused"), 2);
    const ckpt_finding *f = ckpt_report_find(report, "weights-only-refused", "h.one");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "argparse.Namespace at 2 places"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "weights-only-refused", "h.p"));
    ckpt_doctor_result_clear(&result);
    options.load_weights_only = -1;
    doctor_of(at("x.pt"), &options, &result, report);
    ck_assert_ptr_null(ckpt_report_find(report, "weights-only-refused", NULL));
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

/* The order of the program's parameters against the file's. */
START_TEST(declared_order)
{
    static const char *const right[] = {"a", "b"}, *const wrong[] = {"b", "a"}, *const three[] = {"a", "b", "c"};
    static const struct {
        const char *const *names;
        size_t count;
        const char *code;
        ckpt_outcome outcome;
    } cases[] = {{right, 2, NULL, R}, {wrong, 2, "param-order-differs", RD}, {three, 3, "group-mismatch", FL}};
    ckpt_report *report = ckpt_report_new();
    write_object(at("x.pt"), "{'model':{'a':f32@cpu[3],'b':f32@cpu[3]},'optimizer':{'state':{0:{'exp_avg':f32@cpu[3]},1:{'exp_avg':f32@cpu[3]}},"
                            GROUPS("'param_names':['a','b'],") "}}", NULL);
    for (size_t i = 0; i < 3; i++) {
        ckpt_doctor_options options = {.loader = T, .cuda_devices = -1, .param_names = cases[i].names, .param_name_count = cases[i].count};
        ckpt_doctor_result result;
        doctor_of(at("x.pt"), &options, &result, report);
        ck_assert_msg(result.outcome == cases[i].outcome, "%zu: %s", i, ckpt_outcome_name(result.outcome));
        ck_assert_int_eq(ckpt_report_find(report, "param-order-differs", NULL) != NULL, i == 1);
        ck_assert_int_eq(ckpt_report_find(report, "group-mismatch", NULL) != NULL, i == 2);
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* Whose file it is, by its name. */
START_TEST(rank_of_another)
{
    static const struct {
        const char *name;
        int world;
        ckpt_severity severity;
    } cases[] = {{"rank-00003.pt", 2, CKPT_WARNING}, {"rank-00001.pt", 0, CKPT_WARNING}, {"rank-00003.pt", 4, CKPT_NOTE}};
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3; i++) {
        ckpt_doctor_options options = {.loader = T, .cuda_devices = -1, .world = cases[i].world};
        ckpt_doctor_result result;
        write_object(at("%s", cases[i].name), FILE_OF("f32@cpu[]", "cuda:3", ""), NULL);
        doctor_of(at("%s", cases[i].name), &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "rank-device", NULL);
        ck_assert_msg(f && f->severity == cases[i].severity, "case %zu", i);
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

static uint64_t held(const ckpt_doctor_result *r, const char *from, const char *to, ckpt_role role)
{
    for (size_t i = 0; i < r->place_count; i++)
        if (strcmp(r->places[i].from, from) == 0 && strcmp(r->places[i].to, to) == 0 && r->places[i].role == role)
            return r->places[i].nbytes;
    return 0;
}

START_TEST(places)
{
    ckpt_doctor_options options = {.loader = T, .cuda_devices = -1};
    ckpt_doctor_result result;
    write_object(at("x.pt"), FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), NULL);
    doctor_of(at("x.pt"), &options, &result, NULL);
    ck_assert_uint_eq(held(&result, "cuda:0", "cuda:0", CKPT_PARAM), 36);
    ck_assert_uint_eq(held(&result, "cuda:0", "cuda:0", CKPT_EXP_AVG), 36);
    ck_assert_uint_eq(held(&result, "cpu", "cuda:0", CKPT_STEP), 8);      /* load_state_dict moves it */
    ckpt_doctor_result_clear(&result);
    options.torch_major = 2;
    doctor_of(at("x.pt"), &options, &result, NULL);
    ck_assert_uint_eq(held(&result, "cpu", "cpu", CKPT_STEP), 8);         /* torch 2.0 does not */
    ck_assert_uint_eq(result.places[0].nbytes, 36);                       /* largest first */
    ckpt_doctor_result_clear(&result);
    ck_assert_ptr_null(result.places);
    ckpt_doctor_result_clear(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor_codes");
    TCase *t = tcase_create("doctor_codes");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_loop_test(t, each_code, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(t, healthy);
    tcase_add_test(t, non_finite);
    tcase_add_test(t, refusals);
    tcase_add_test(t, declared_order);
    tcase_add_test(t, rank_of_another);
    tcase_add_test(t, places);
    suite_add_tcase(s, t);
    return run_suite(s);
}
