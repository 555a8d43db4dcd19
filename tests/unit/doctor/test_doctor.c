/* test_doctor.c - the truth table of a resume, row by row, and what `show` says of a file. */
#include "reader/reader.h"
#include "../command_files.h"
#include "../made_values.h"
#include "../runner.h"

static ckpt_error err;

typedef struct row {
    const char *file;
    ckpt_loader loader;
    int major, minor; /* torch; 0: newest */
    ckpt_optimizer_kind optimizer;
    const char *map;
    int devices; /* -1: not said */
    int weights_only;
    bool amp;
    ckpt_outcome outcome;
    const char *code; /* a finding that must be there; NULL: none of severity warning or error may */
    ckpt_severity severity;
} row;

#define TORCH CKPT_LOADER_TORCH
#define CKPT CKPT_LOADER_CKPT
static const row rows[] = {
    /* saved fused, step on the cpu */
    {"fused-step-cpu.pt", CKPT, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP, "step-on-cpu",
     CKPT_SEVERITY_ERROR},
    {"fused-step-cpu.pt", CKPT, 0, 0, CKPT_OPTIMIZER_FUSED, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP,
     "step-on-cpu", CKPT_SEVERITY_ERROR},
    {"fused-step-cpu.pt", CKPT, 0, 0, CKPT_OPTIMIZER_PLAIN, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"fused-step-cpu.pt", CKPT, 0, 0, 0, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"fused-step-cpu.pt", CKPT, 0, 0, 0, "cuda:*=cuda:1", 2, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"fused-step-cpu.pt", CKPT, 0, 0, 0, "cuda:*=cuda:2", 2, 0, false, CKPT_OUTCOME_FAILS_AT_LOAD, "no-such-device",
     CKPT_SEVERITY_ERROR},
    {"fused-step-cpu.pt", TORCH, 2, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP, "step-on-cpu",
     CKPT_SEVERITY_ERROR},
    {"fused-step-cpu.pt", TORCH, 1, 13, 0, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP, "step-on-cpu",
     CKPT_SEVERITY_ERROR},
    {"fused-step-cpu.pt", TORCH, 2, 0, 0, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"fused-step-cpu.pt", TORCH, 2, 1, 0, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES, "step-on-cpu", CKPT_SEVERITY_NOTE},
    {"fused-step-cpu.pt", TORCH, 0, 0, CKPT_OPTIMIZER_PLAIN, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     "fused-flag-overwritten", CKPT_SEVERITY_WARNING},
    /* saved fused, step on the GPU */
    {"fused-step-cuda.pt", CKPT, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"fused-step-cuda.pt", CKPT, 0, 0, CKPT_OPTIMIZER_PLAIN, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     "step-on-gpu-slow", CKPT_SEVERITY_WARNING},
    {"fused-step-cuda.pt", CKPT, 0, 0, CKPT_OPTIMIZER_PLAIN, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"fused-step-cuda.pt", TORCH, 2, 0, 0, "cpu", -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP, "step-on-cpu",
     CKPT_SEVERITY_ERROR},
    {"fused-step-cuda.pt", TORCH, 0, 0, 0, "cpu", -1, 0, false, CKPT_OUTCOME_RESUMES, "step-on-cpu",
     CKPT_SEVERITY_NOTE},
    {"fused-step-cuda.pt", TORCH, 0, 0, 0, NULL, 0, 0, false, CKPT_OUTCOME_FAILS_AT_LOAD, "no-such-device",
     CKPT_SEVERITY_ERROR},
    {"fused-step-cuda.pt", TORCH, 0, 0, 0, "cpu", 0, 0, false, CKPT_OUTCOME_RESUMES, "lr-comes-from-checkpoint",
     CKPT_SEVERITY_NOTE},
    /* not fused */
    {"plain.pt", TORCH, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"plain.pt", TORCH, 0, 0, CKPT_OPTIMIZER_FUSED, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP,
     "amp-needs-fused-flag", CKPT_SEVERITY_ERROR},
    {"plain.pt", TORCH, 2, 0, CKPT_OPTIMIZER_FUSED, NULL, -1, 0, false, CKPT_OUTCOME_UNKNOWN, "amp-needs-fused-flag",
     CKPT_SEVERITY_WARNING},
    {"plain.pt", TORCH, 0, 0, CKPT_OPTIMIZER_CAPTURABLE, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     "capturable-flag-overwritten", CKPT_SEVERITY_WARNING},
    {"plain.pt", TORCH, 0, 0, 0, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES_DIFFERENTLY, "step-on-gpu-slow",
     CKPT_SEVERITY_WARNING},
    {"plain.pt", CKPT, 0, 0, 0, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"plain-step-cuda.pt", TORCH, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES_DIFFERENTLY, "step-on-gpu-slow",
     CKPT_SEVERITY_WARNING},
    {"plain-step-cuda.pt", TORCH, 0, 0, 0, "cpu", -1, 0, false, CKPT_OUTCOME_RESUMES, "lr-comes-from-checkpoint",
     CKPT_SEVERITY_NOTE},
    /* capturable */
    {"capturable-cpu.pt", TORCH, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_STEP, "capturable-on-cpu",
     CKPT_SEVERITY_ERROR},
    {"capturable-cpu.pt", TORCH, 0, 0, 0, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"capturable-cpu.pt", CKPT, 0, 0, 0, "cuda:0", -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    /* weights_only, and no optimizer at all */
    {"namespace.pt", TORCH, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_FAILS_AT_LOAD, "weights-only-refused",
     CKPT_SEVERITY_ERROR},
    {"namespace.pt", TORCH, 0, 0, 0, NULL, -1, -1, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"namespace.pt", TORCH, 2, 5, 0, NULL, -1, 0, false, CKPT_OUTCOME_RESUMES, NULL, 0},
    {"namespace.pt", TORCH, 2, 5, 0, NULL, -1, 1, false, CKPT_OUTCOME_FAILS_AT_LOAD, "weights-only-refused",
     CKPT_SEVERITY_ERROR},
    {"weights.safetensors", CKPT, 0, 0, 0, NULL, -1, 0, false, CKPT_OUTCOME_WEIGHTS_ONLY, "weights-only",
     CKPT_SEVERITY_NOTE},
    {"weights.safetensors", CKPT, 0, 0, 0, NULL, -1, 0, true, CKPT_OUTCOME_FAILS_AT_LOAD, "scaler-missing",
     CKPT_SEVERITY_ERROR},
};

START_TEST(truth_table)
{
    const row *w = &rows[_i];
    ckpt_reader *reader = NULL;
    ckpt_report *report = ckpt_report_new();
    ckpt_doctor_options options;
    ckpt_doctor_result r = CKPT_DOCTOR_RESULT_INIT;
    memset(&options, 0, sizeof options);
    options.loader = w->loader;
    options.torch_major = w->major;
    options.torch_minor = w->minor;
    options.optimizer = w->optimizer;
    options.map_location = w->map;
    options.cuda_device_count = w->devices > 0 ? w->devices : -1 - w->devices; /* there: -1 not said, 0 none */
    options.load_weights_only = w->weights_only;
    options.amp = w->amp;
    ck_assert_int_eq(ckpt_reader_open(fixture(w->file), NULL, &reader, &err), CKPT_OK);
    ck_assert_msg(ckpt_doctor(reader, &options, &r, report, &err) == CKPT_OK, "row %d: %s", _i, err.message);
    ck_assert_msg(r.outcome == w->outcome, "row %d, %s: %s, expected %s", _i, w->file, ckpt_outcome_name(r.outcome),
                  ckpt_outcome_name(w->outcome));
    const ckpt_finding *f = w->code ? ckpt_report_find(report, w->code, NULL) : NULL;
    if (w->code) {
        ck_assert_msg(f != NULL, "row %d: no %s", _i, w->code);
        ck_assert_int_eq(f->severity, w->severity);
    } else {
        for (size_t i = 0; i < ckpt_report_count(report); i++)
            ck_assert_msg(ckpt_report_get(report, i)->severity == CKPT_SEVERITY_NOTE ||
                              strncmp(ckpt_report_get(report, i)->code, "order", 5) == 0,
                          "row %d: %s", _i, ckpt_report_get(report, i)->code);
    }
    /* nothing of the templates is left over */
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *g = ckpt_report_get(report, i);
        ck_assert_ptr_null(strstr(g->message, "{n}"));
        ck_assert_ptr_null(strstr(g->fix, "{path}"));
        ck_assert_str_ne(g->message, "");
    }
    ckpt_doctor_result_clear(&r);
    ckpt_report_free(report);
    ckpt_reader_close(reader);
}
END_TEST

START_TEST(flags_after_the_load)
{
    ckpt_reader *reader = NULL;
    ckpt_doctor_options options;
    ckpt_doctor_result r = CKPT_DOCTOR_RESULT_INIT;
    memset(&options, 0, sizeof options);
    options.loader = TORCH;
    options.optimizer = CKPT_OPTIMIZER_PLAIN;
    ck_assert_int_eq(ckpt_reader_open(fixture("fused-step-cuda.pt"), NULL, &reader, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_doctor(reader, &options, &r, NULL, &err), CKPT_OK);
    ck_assert_int_eq(r.uses_fused, 1); /* the saved flag wins */
    ck_assert_int_eq(r.uses_capturable, 0);
    ck_assert_int_eq(r.uses_foreach, -1);
    ck_assert_int_eq(r.torch_major, 2);
    ck_assert(r.load_weights_only);
    ckpt_doctor_result_clear(&r);
    options.loader = CKPT;
    ck_assert_int_eq(ckpt_doctor(reader, &options, &r, NULL, &err), CKPT_OK);
    ck_assert_int_eq(r.uses_fused, 0); /* the program's word wins */
    ck_assert_int_eq(r.optimizer, CKPT_OPTIMIZER_PLAIN);
    ckpt_doctor_result_clear(&r);
    options.map_location = "cuda";
    ck_assert_int_eq(ckpt_doctor(reader, &options, &r, NULL, &err), CKPT_E_ARGUMENT);
    options.map_location = NULL;
    options.torch_major = 1;
    options.torch_minor = 2;
    ck_assert_int_eq(ckpt_doctor(reader, &options, &r, NULL, &err), CKPT_E_UNSUPPORTED);
    ck_assert_int_eq(ckpt_doctor(NULL, &options, &r, NULL, &err), CKPT_E_ARGUMENT);
    ckpt_reader_close(reader);
}
END_TEST

/* A path in a fix can be pasted into a shell. */
START_TEST(fix_is_quoted)
{
    static const char *const names[][3] = {
        {"it's a file.pt", "it'\\''s a file.pt", "it\\'s a file.pt"},
        {"two\nlines.pt", "/two\\012lines.pt'", "two\\nlines.pt"}, /* $'...' */
        {"not \xff utf.pt", "/not \\377 utf.pt'", "not \\udcff utf.pt"},
        {"\xe6\xa8\xa1.pt", "/\xe6\xa8\xa1.pt'", "/\xe6\xa8\xa1.pt'"},
    };
    size_t size;
    char *data = read_all(fixture("fused-step-cpu.pt"), &size);
    ckpt_reader *reader = NULL;
    ckpt_report *report = ckpt_report_new();
    ckpt_doctor_options options;
    ckpt_doctor_result r = CKPT_DOCTOR_RESULT_INIT;
    memset(&options, 0, sizeof options);
    options.torch_major = 2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        options.loader = CKPT_LOADER_TORCH;
        write_all(temporary(names[i][0]), data, size);
        ck_assert_int_eq(ckpt_reader_open(temporary(names[i][0]), NULL, &reader, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_doctor(reader, &options, &r, report, &err), CKPT_OK);
        const ckpt_finding *f = ckpt_report_find(report, "step-on-cpu", NULL);
        ck_assert_ptr_nonnull(f);
        ck_assert_msg(strstr(f->fix, names[i][1]) != NULL, "%s", f->fix);
        ck_assert_msg(strstr(f->fix, names[i][2]) != NULL, "%s", f->fix);
        ck_assert_str_eq(f->tensor, "optimizer.state.0.step");
        ckpt_doctor_result_clear(&r);
        ckpt_report_clear(report);
        ckpt_reader_close(reader);
    }
    ckpt_report_free(report);
    free(data);
}
END_TEST

START_TEST(summary)
{
    static const struct {
        const char *file, *producer, *model, *kind;
        int64_t step, epoch;
    } files[] = {{"fused-step-cpu.pt", "torch", "model", "fused", 3, 1},
                 {"plain.pt", "torch", "model", "plain", 3, 1},
                 {"weights.safetensors", "safetensors", NULL, NULL, -1, -1},
                 {"values.pt", "torch", NULL, NULL, -1, -1}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ckpt_reader *reader = NULL;
        ckpt_summary s = CKPT_SUMMARY_INIT;
        ck_assert_int_eq(ckpt_reader_open(fixture(files[i].file), NULL, &reader, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
        ck_assert_pstr_eq(s.producer, files[i].producer);
        ck_assert_pstr_eq(s.model_path.data, files[i].model);
        ck_assert_pstr_eq(s.optimizer_kind.data, files[i].kind);
        ck_assert_int_eq(s.step, files[i].step);
        ck_assert_int_eq(s.epoch, files[i].epoch);
        ck_assert_int_eq(s.optimizer != NULL, files[i].kind != NULL);
        ck_assert_int_eq(s.scaler != NULL, files[i].kind != NULL);
        ckpt_summary_clear(&s);
        ck_assert_ptr_null(s.model_path.data);
        ckpt_reader_close(reader);
    }
}
END_TEST

/* What ckpt_summarize said of the same reader is taken as it is. */
START_TEST(by_a_summary)
{
    static const char *const files[] = {"fused-step-cpu.pt", "plain.pt", "weights.safetensors", "values.pt"};
    ckpt_report *alone = ckpt_report_new(), *given = ckpt_report_new();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ckpt_reader *reader = NULL;
        ckpt_summary s = CKPT_SUMMARY_INIT;
        ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ck_assert_int_eq(ckpt_reader_open(fixture(files[i]), NULL, &reader, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_doctor(reader, &options, &result, alone, &err), CKPT_OK);
        const ckpt_outcome outcome = result.outcome;
        ckpt_doctor_result_clear(&result);
        options.summary = &s;
        ck_assert_int_eq(ckpt_doctor(reader, &options, &result, given, &err), CKPT_OK);
        ck_assert_int_eq(result.outcome, outcome);
        ckpt_doctor_result_clear(&result);
        ck_assert_uint_eq(ckpt_report_count(given), ckpt_report_count(alone));
        for (size_t k = 0; k < ckpt_report_count(alone); k++) {
            ck_assert_str_eq(ckpt_report_get(given, k)->code, ckpt_report_get(alone, k)->code);
            ck_assert_str_eq(ckpt_report_get(given, k)->message, ckpt_report_get(alone, k)->message);
            ck_assert_pstr_eq(ckpt_report_get(given, k)->fix, ckpt_report_get(alone, k)->fix);
        }
        const ckpt_str resume = s.resume;
        s.resume = ckpt__s("load_it_so(\"{path}\")"); /* the fix of a file of weights alone has it */
        ck_assert_int_eq(ckpt_doctor(reader, &options, &result, given, &err), CKPT_OK);
        ckpt_doctor_result_clear(&result);
        const ckpt_finding *weights = ckpt_report_find(given, "weights-only", NULL);
        ck_assert_int_eq(weights != NULL, i == 2);
        ck_assert_msg(!weights || strstr(weights->message, "load_it_so("), "%s", weights->message);
        s.resume = resume;
        s.struct_size = 8;
        ck_assert_int_eq(ckpt_doctor(reader, &options, &result, given, &err), CKPT_E_ARGUMENT);
        s.struct_size = sizeof s;
        ckpt_doctor_result_clear(&result);
        ckpt_summary_clear(&s);
        ckpt_reader_close(reader);
    }
    ckpt_report_free(alone);
    ckpt_report_free(given);
}
END_TEST

static const ckpt_canonical *named(const ckpt_reader *reader, const ckpt_naming *naming, const char *name)
{
    size_t i;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", name);
    return ckpt_naming_get(naming, i);
}

/* A torch file and what it migrates to agree on every name. */
START_TEST(naming)
{
    static const char *const wrong[] = {"0.weight", "1.weight"};
    ckpt_reader *torch = NULL, *native = NULL;
    ckpt_naming *a = NULL, *b = NULL;
    ckpt_report *report = ckpt_report_new();
    size_t i;
    ck_assert_int_eq(ckpt_migrate(fixture("fused-step-cpu.pt"), temporary("n"), NULL, NULL, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_open(fixture("fused-step-cpu.pt"), NULL, &torch, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_open(temporary("n"), NULL, &native, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_naming_new(torch, NULL, &a, report, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_naming_new(native, NULL, &b, NULL, &err), CKPT_OK);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "order-hypothesis", NULL));
    const ckpt_canonical *c = named(torch, a, "optimizer.state.3.exp_avg_sq");
    ck_assert_str_eq(c->name.data, "optimizer.1.bias.exp_avg_sq");
    ck_assert_str_eq(c->param.data, "1.bias");
    ck_assert_str_eq(c->state_key.data, "exp_avg_sq");
    ck_assert_str_eq(c->group.data, "0");
    ck_assert_int_eq(c->role, CKPT_ROLE_EXP_AVG_SQ);
    for (i = 0; i < ckpt_reader_tensor_count(torch); i++) {
        const ckpt_canonical *x = ckpt_naming_get(a, i), *y = named(native, b, x->name.data);
        ck_assert_str_eq(x->name.data, y->name.data);
        ck_assert_pstr_eq(x->param.data, y->param.data);
        ck_assert_pstr_eq(x->state_key.data, y->state_key.data);
        ck_assert_pstr_eq(x->group.data, y->group.data);
        ck_assert_int_eq(x->role, y->role);
    }
    ck_assert_ptr_null(ckpt_naming_get(a, i));
    ckpt_naming_free(a);
    ck_assert_int_lt(
        ckpt_naming_new(torch, &(ckpt_naming_options){.param_names = wrong, .param_name_count = 2}, &a, NULL, &err),
        0); /* six parameters, two names */
    ck_assert_ptr_null(a);
    ck_assert_int_eq(ckpt_naming_new(NULL, NULL, &a, NULL, &err), CKPT_E_ARGUMENT);
    ckpt_naming_free(b);
    ckpt_naming_free(NULL);
    ckpt_reader_close(torch);
    ckpt_reader_close(native);
    ckpt_report_free(report);
}
END_TEST

/* The names that the caller declares are its own, and may go when it has the answer. */
START_TEST(declared_names_are_kept)
{
    enum { PARAMS = 6 };
    ckpt_reader *torch = NULL;
    ckpt_naming *inferred = NULL, *declared = NULL;
    char *names[PARAMS], id[64];
    ck_assert_int_eq(ckpt_reader_open(fixture("fused-step-cpu.pt"), NULL, &torch, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_naming_new(torch, NULL, &inferred, NULL, &err), CKPT_OK);
    for (int i = 0; i < PARAMS; i++) {
        snprintf(id, sizeof id, "optimizer.state.%d.exp_avg", i);
        ck_assert_ptr_nonnull(names[i] = strdup(named(torch, inferred, id)->param.data));
    }
    ckpt_status status = ckpt_naming_new(
        torch, &(ckpt_naming_options){.param_names = (const char *const *)names, .param_name_count = PARAMS}, &declared,
        NULL, &err);
    for (int i = 0; i < PARAMS; i++) {
        memset(names[i], 'x', strlen(names[i]));
        free(names[i]);
    }
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    for (size_t i = 0; i < ckpt_reader_tensor_count(torch); i++) {
        ck_assert_pstr_eq(ckpt_naming_get(declared, i)->name.data, ckpt_naming_get(inferred, i)->name.data);
        ck_assert_pstr_eq(ckpt_naming_get(declared, i)->param.data, ckpt_naming_get(inferred, i)->param.data);
    }
    ckpt_naming_free(inferred);
    ckpt_naming_free(declared);
    ckpt_reader_close(torch);
}
END_TEST

/* Each optimizer is looked at by itself: of so many the examination takes less than a second. */
START_TEST(many_optimizers)
{
    enum { MANY = 60000 };
    ckpt_doctor_options options = {.loader = TORCH};
    ckpt_doctor_result r = CKPT_DOCTOR_RESULT_INIT;
    const ckpt_value **list = calloc(MANY, sizeof *list), *id;
    make_index();
    id = number(0);
    for (size_t i = 0; list && i < MANY; i++) {
        const ckpt_value *group = dict_of("lr", number(1), "params", ckpt__value_list(ix->arena, CKPT_V_LIST, &id, 1));
        list[i] = dict_of("state", ckpt__value_dict(ix->arena, NULL, 0), "param_groups",
                          ckpt__value_list(ix->arena, CKPT_V_LIST, &group, 1));
    }
    ix->format = "torch";
    ix->root = ckpt__value_list(ix->arena, CKPT_V_LIST, list, MANY);
    ckpt_reader reader = {.index = ix, .path = (char *)(uintptr_t) "x.pt"};
    ck_assert_msg(ckpt_doctor(&reader, &options, &r, NULL, &err) == CKPT_OK, "%s", err.message);
    ckpt_doctor_result_clear(&r);
    free_index();
    free(list);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor");
    TCase *t = tcase_create("doctor");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_loop_test(t, truth_table, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(t, flags_after_the_load);
    tcase_add_test(t, fix_is_quoted);
    tcase_add_test(t, summary);
    tcase_add_test(t, by_a_summary);
    tcase_add_test(t, naming);
    tcase_add_test(t, declared_names_are_kept);
    tcase_add_test(t, many_optimizers);
    suite_add_tcase(s, t);
    return run_suite(s);
}
