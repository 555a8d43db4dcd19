/* test_doctor_codes.c - every finding of doctor in a file built so that it appears, and in its near neighbour so that
 * it does not. */
#include "doctor_files.h"
#include "doctor_situations.h"

/* What --fix does for a code is printed as the very command. */
static void check_texts(const ckpt_report *report, int row)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        ck_assert_str_ne(f->message, "");
        static const char *const left[] = {"{n}",    "{s}",      "{a}",   "{b}",       "{c}",      "{path}",
                                           "{py}",   "{repair}", "{dst}", "{version}", "{loader}", "{torch}",
                                           "{file}", "{drop}",   "{es}",  "{have}",    "{are}",    "{were}"};
        for (size_t k = 0; k < sizeof left / sizeof *left; k++)
            ck_assert_msg(!strstr(f->message, left[k]) && !strstr(f->fix, left[k]), "row %d: %s: %s | %s", row, f->code,
                          f->message, f->fix);
        const char *mend = strstr(f->fix, "ckpt-migrate --fix ");
        if (mend)
            ck_assert_msg(strncmp(mend + 19, f->code, strlen(f->code)) == 0 && strstr(mend, "--to same"), "row %d: %s",
                          row, mend);
        if (f->severity > CKPT_SEVERITY_NOTE)
            ck_assert_msg(*f->fix, "row %d: %s has no fix", row, f->code);
        ck_assert_int_eq(*f->fix != 0, f->fix_count > 0);
        for (size_t k = 0; k < f->fix_count; k++) /* tests/fixes.sh reads the kinds */
            ck_assert_msg(*f->fixes[k]->kind && strstr(f->fix, f->fixes[k]->text), "row %d: %s", row, f->fix);
    }
}

START_TEST(each_code)
{
    ckpt_doctor_options options = rows[_i].options;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    write_object(at("x.pt"), rows[_i].sick, NULL);
    doctor_of(at("x.pt"), &options, &result, report);
    const ckpt_finding *f = ckpt_report_find(report, rows[_i].code, NULL);
    ck_assert_msg(f != NULL, "row %d: no %s", _i, rows[_i].code);
    ck_assert_msg(f->severity == rows[_i].severity, "row %d: %s is of severity %s", _i, f->code,
                  ckpt_severity_name(f->severity));
    ck_assert_msg(result.outcome == rows[_i].outcome, "row %d, %s: %s", _i, f->code, ckpt_outcome_name(result.outcome));
    check_texts(report, _i);
    ckpt_doctor_result_clear(&result);
    if (rows[_i].well) {
        write_object(at("x.pt"), rows[_i].well, NULL);
        doctor_of(at("x.pt"), &options, &result, report);
        for (size_t i = 0; i < ckpt_report_count(report); i++)
            ck_assert_msg(strcmp(ckpt_report_get(report, i)->code, rows[_i].code) != 0 ||
                              ckpt_report_get(report, i)->severity < rows[_i].severity,
                          "row %d: %s in the neighbour: %s", _i, rows[_i].code, ckpt_report_get(report, i)->message);
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* A healthy file has notes only, for every loader that reads it. */
START_TEST(healthy)
{
    static const char *const files[] = {PLAIN, FILE_OF("f32@cpu[]", "cuda:0", ""),
                                        FILE_OF("f32@cuda:0[]", "cuda:0", "'fused':True,")};
    static const ckpt_loader loaders[] = {T, C, CPP};
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            ckpt_doctor_options options = {.loader = loaders[k]};
            ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
            write_object(at("x.pt"), files[i], NULL);
            doctor_of(at("x.pt"), &options, &result, report);
            ck_assert_msg(result.outcome == R && ckpt_report_worst(report) == CKPT_SEVERITY_NOTE,
                          "file %zu, loader %zu: %s", i, k, ckpt_outcome_name(result.outcome));
            ckpt_doctor_result_clear(&result);
        }
    ckpt_report_free(report);
}
END_TEST

START_TEST(non_finite)
{
    ckpt_doctor_options options = {.loader = T, .read_values = true};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
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
    ckpt_doctor_options options = {.loader = T};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    write_object(
        at("x.pt"),
        "{" MODEL("cpu") ",'h':{'one':new argparse:Namespace,'two':new argparse:Namespace,'p':new pathlib:PosixPath}}",
        NULL);
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

/* What is allowed depends on the version: refused before, and allowed from there on. */
static const struct {
    const char *what, *text, *said;
    int minor; /* of torch 2: the first that allows it */
} allowed_from[] = {
    {"a float", "1.5", "refuses float at", 0},
    {"a Counter", "new collections:Counter", "refuses collections.Counter at", 4},
    {"a device", "device@cpu", "refuses torch.device at", 4},
    {"bytes", "bytes", "refuses _codecs.encode at", 5},
    {"a bytearray", "new __builtin__:bytearray", "refuses builtins.bytearray at", 5},
    {"a set", "new __builtin__:set", "refuses builtins.set at", 6},
};

static const ckpt_finding *refused_by(int major, int minor, ckpt_outcome *outcome, ckpt_report *report)
{
    ckpt_doctor_options options = {.loader = T, .load_weights_only = 1, .torch_major = major};
    options.torch_minor = minor;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    doctor_of(at("x.pt"), &options, &result, report);
    *outcome = result.outcome;
    ckpt_doctor_result_clear(&result);
    return ckpt_report_find(report, "weights-only-refused", NULL);
}

START_TEST(refusals_by_version)
{
    ckpt_report *report = ckpt_report_new();
    ckpt_outcome outcome;
    char text[400];
    snprintf(text, sizeof text, "{" MODEL("cpu") ",'x':%s}", allowed_from[_i].text);
    write_object(at("x.pt"), text, NULL);
    int major = allowed_from[_i].minor ? 2 : 1, minor = allowed_from[_i].minor ? allowed_from[_i].minor - 1 : 13;
    const ckpt_finding *f = refused_by(major, minor, &outcome, report);
    ck_assert_msg(f && strstr(f->message, allowed_from[_i].said), "%s: %s", allowed_from[_i].what,
                  f ? f->message : "not refused");
    ck_assert_int_eq(outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ck_assert_ptr_null(refused_by(2, allowed_from[_i].minor, &outcome, report));
    ck_assert_int_eq(outcome, CKPT_OUTCOME_WEIGHTS_ONLY);
    ck_assert_ptr_null(refused_by(2, 13, &outcome, report));
    ckpt_report_free(report);
}
END_TEST

/* What is not in an old torch at all: it fails without weights_only too, and loads from its version on. */
START_TEST(names_that_were_not_there)
{
    static const struct {
        const char *text, *name;
        int minor;
    } cases[] = {{"is torch:float8_e4m3fn", "torch.float8_e4m3fn", 1},
                 {"is torch:uint16", "torch.uint16", 3},
                 {"is torch:float4_e2m1fn_x2", "torch.float4_e2m1fn_x2", 8},
                 {"v3", "torch._utils._rebuild_tensor_v3", 2}};
    ckpt_report *report = ckpt_report_new();
    char text[400];
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        bool old = i % 2;
        ckpt_doctor_options options = {
            .loader = T, .load_weights_only = -1, .torch_major = 2, .torch_minor = cases[i / 2].minor - old};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        snprintf(text, sizeof text, "{'w':f32@cpu[2],'x':%s}", cases[i / 2].text);
        write_object(at("x.pt"), text, NULL);
        doctor_of(at("x.pt"), &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "torch-too-old", "x");
        ck_assert_msg((f != NULL) == old && (result.outcome == FL) == old, "%s, torch 2.%d: %s", text,
                      options.torch_minor, ckpt_outcome_name(result.outcome));
        snprintf(text, sizeof text, "torch>=2.%d", cases[i / 2].minor);
        ck_assert(!old || (strstr(f->message, cases[i / 2].name) && strstr(f->fix, text)));
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* What an old torch has by name, and does not take with these arguments. */
START_TEST(calls_that_take_more)
{
    static const struct {
        const char *text, *what;
        int from; /* major * 100 + minor, as the version before it is */
        int before;
    } cases[] = {{"conj", "a conjugate or negated view", 200, 113},
                 {"csr", "a compressed sparse tensor", 200, 113},
                 {"coo", "whether it is coalesced", 201, 200}};
    ckpt_report *report = ckpt_report_new();
    char text[100];
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        bool old = i % 2;
        int version = old ? cases[i / 2].before : cases[i / 2].from;
        ckpt_doctor_options options = {
            .loader = T, .load_weights_only = 0, .torch_major = version / 100, .torch_minor = version % 100};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        snprintf(text, sizeof text, "{'w':f32@cpu[2],'x':%s}", cases[i / 2].text);
        write_object(at("x.pt"), text, NULL);
        doctor_of(at("x.pt"), &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "torch-too-old", "x");
        ck_assert_msg((f != NULL) == old && (result.outcome == FL) == old, "%s, torch %d: %s", text, version,
                      ckpt_outcome_name(result.outcome));
        snprintf(text, sizeof text, "torch>=%d.%d", cases[i / 2].from / 100, cases[i / 2].from % 100);
        ck_assert_msg(!old || (strstr(f->message, cases[i / 2].what) && strstr(f->fix, text)), "%s",
                      old ? f->message : "");
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* The default is weights_only=False before 2.6; 1.12 does not know the argument. */
START_TEST(weights_only_by_version)
{
    ckpt_doctor_options options = {.loader = T, .torch_major = 2, .torch_minor = 5};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_outcome outcome;
    write_object(at("x.pt"), "{" MODEL("cpu") ",'x':new argparse:Namespace}", NULL);
    doctor_of(at("x.pt"), &options, &result, report);
    ck_assert(!result.load_weights_only);
    ck_assert_ptr_null(ckpt_report_find(report, "weights-only-refused", NULL));
    ckpt_doctor_result_clear(&result);
    options.torch_minor = 6;
    doctor_of(at("x.pt"), &options, &result, report);
    ck_assert(result.load_weights_only);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "weights-only-refused", NULL));
    ckpt_doctor_result_clear(&result);
    const ckpt_finding *f = refused_by(1, 12, &outcome, report);
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "TypeError"));
    ck_assert_int_eq(outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ckpt_report_free(report);
}
END_TEST

/* accelerate and the HF Trainer take a directory; torch.load no pickle of its own. */
START_TEST(not_its_format)
{
    static const ckpt_loader loaders[] = {CKPT_LOADER_ACCELERATE, CKPT_LOADER_HF_TRAINER, T};
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    write_object(at("x.pt"), PLAIN, NULL);
    for (size_t i = 0; i < sizeof loaders / sizeof *loaders; i++) {
        options.loader = loaders[i];
        doctor_of(at("x.pt"), &options, &result, report);
        bool found = ckpt_report_find(report, "not-its-format", NULL) != NULL;
        ck_assert_msg(found == (loaders[i] != T), "%s", ckpt_loader_name(loaders[i]));
        ck_assert_int_eq(result.outcome, loaders[i] == T ? CKPT_OUTCOME_RESUMES : CKPT_OUTCOME_FAILS_AT_LOAD);
        ckpt_doctor_result_clear(&result);
    }
    static const char pickle[] = "\x80\2}(X\5\0\0\0epochK\3X\4\0\0\0argsK\1u.";
    write_to(at("y.pkl"), (const unsigned char *)pickle, sizeof pickle - 1);
    options.loader = T;
    doctor_of(at("y.pkl"), &options, &result, report);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "not-its-format", NULL));
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

/* Who reads what at all: the same weights and optimizer in each format, to each loader. */
START_TEST(formats_by_loaders)
{
    static const ckpt_loader loaders[] = {CKPT_LOADER_CKPT,       T,
                                          CKPT_LOADER_TORCH_CPP,  CKPT_LOADER_LIGHTNING,
                                          CKPT_LOADER_ACCELERATE, CKPT_LOADER_HF_TRAINER};
    static const struct {
        const char *path;
        ckpt_outcome outcomes[6];
        unsigned said;   /* bits of the loaders to whom it is not-its-format */
        const char *fix; /* words of what torch is told */
    } cases[] = {
        {"x.pt", {R, R, R, FL, FL, FL}, 0x30, NULL},
        {"one", {R, R, R, FL, FL, FL}, 0x30, NULL},
        {"native", {R, FL, FL, FL, FL, FL}, 0x3e, "ckpt-migrate --to torch %s/native %s/native.pt"},
        {"step", {R, FL, FL, FL, FL, FL}, 0x3e, "ckpt-migrate --to torch %s/step %s/step.pt"},
        {"w.safetensors",
         {CKPT_OUTCOME_WEIGHTS_ONLY, CKPT_OUTCOME_WEIGHTS_ONLY, FL, FL, FL, FL},
         0x3e,
         "safetensors.torch.load_file('%s/w.safetensors')"},
    };
    ckpt_report *report = ckpt_report_new();
    ckpt_error err = CKPT_ERROR_INIT;
    make_directory("one");
    make_directory("step");
    write_object(at("x.pt"), FILE_OF("f32@cpu[]", "cpu", ""), NULL);
    write_object(at("one/x.pt"), FILE_OF("f32@cpu[]", "cpu", ""), NULL);
    write_object(at("w.pt"), "{'a':f32@cpu[2,3],'b':f32@cpu[3]}", NULL);
    ck_assert_int_eq(ckpt_migrate(at("x.pt"), at("native"), &(ckpt_migrate_options){.to = "ckpt"}, NULL, &err),
                     CKPT_OK);
    ck_assert_int_eq(ckpt_migrate(at("x.pt"), at("step/x.ckpt"), &(ckpt_migrate_options){.to = "ckpt"}, NULL, &err),
                     CKPT_OK);
    ckpt_migrate_options weights = {.to = "safetensors", .lossy = true};
    ck_assert_int_eq(ckpt_migrate(at("w.pt"), at("w.safetensors"), &weights, NULL, &err), CKPT_OK);
    for (size_t i = 0; i < 6 * (sizeof cases / sizeof *cases); i++) {
        size_t k = i % 6;
        ckpt_doctor_options options = {.loader = loaders[k]};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        char fix[800];
        doctor_of(at("%s", cases[i / 6].path), &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "not-its-format", NULL);
        ck_assert_msg(result.outcome == cases[i / 6].outcomes[k] && (f != NULL) == (cases[i / 6].said >> k & 1),
                      "%s for %s: %s, %s", cases[i / 6].path, ckpt_loader_name(loaders[k]),
                      ckpt_outcome_name(result.outcome), f ? f->message : "-");
        if (k == 1 && cases[i / 6].fix) {
            snprintf(fix, sizeof fix, cases[i / 6].fix, folder, folder);
            ck_assert_msg(strstr(f->fix, fix) != NULL, "%s: %s", cases[i / 6].path, f->fix);
        }
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
}
END_TEST

/* What is pasted names the file of a folder of one, and what C++ refuses of it counts. */
START_TEST(a_folder_of_one)
{
    static const ckpt_loader loaders[] = {T, CKPT_LOADER_LIGHTNING, CKPT_LOADER_TORCH_CPP};
    ckpt_report *report = ckpt_report_new();
    char file[800], *snippet = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    make_directory("one");
    write_object(
        at("one/last.ckpt"),
        "{'pytorch-lightning_version':'2.6.6','epoch':1,'global_step':3,'loops':{},'state_dict':{'a':f32@cpu[3]},"
        "'optimizer_states':[],'lr_schedulers':[],'hyper_parameters':new argparse:Namespace}",
        NULL);
    snprintf(file, sizeof file, "%s/one/last.ckpt", folder);
    for (size_t i = 0; i < 3; i++) {
        ckpt_doctor_options options = {.loader = loaders[i]};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        doctor_of(at("one"), &options, &result, report);
        const ckpt_finding *f = ckpt_report_find(report, "weights-only-refused", NULL);
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(result.outcome, FL);
        ck_assert_msg(i == 2 || strstr(f->fix, file) != NULL, "%s", f->fix);
        ckpt_doctor_result_clear(&result);
    }
    ck_assert_int_eq(ckpt_reader_open(at("one"), NULL, &reader, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_doctor_snippet(reader, "torch", &(ckpt_doctor_options){.loader = T}, &snippet, &err),
                     CKPT_OK);
    ck_assert_ptr_nonnull(strstr(snippet, file));
    free(snippet);
    ckpt_reader_close(reader);
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
    write_object(
        at("x.pt"),
        "{'model':{'a':f32@cpu[3],'b':f32@cpu[3]},'optimizer':{'state':{0:{'step':f32@cpu[],'exp_avg':f32@cpu[3],'exp_"
        "avg_sq':f32@cpu[3]},1:{'step':f32@cpu[],'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}}," GROUPS(
            "'param_names':['a','b'],") "}}",
        NULL);
    for (size_t i = 0; i < 3; i++) {
        ckpt_doctor_options options = {.loader = T, .param_names = cases[i].names, .param_name_count = cases[i].count};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
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
    } cases[] = {{"rank-00003.pt", 2, CKPT_SEVERITY_WARNING},
                 {"rank-00001.pt", 0, CKPT_SEVERITY_WARNING},
                 {"rank-00003.pt", 4, CKPT_SEVERITY_NOTE}};
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < 3; i++) {
        ckpt_doctor_options options = {.loader = T, .world = cases[i].world};
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
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
        if (strcmp(r->places[i]->from, from) == 0 && strcmp(r->places[i]->to, to) == 0 && r->places[i]->role == role)
            return r->places[i]->nbytes;
    return 0;
}

START_TEST(places)
{
    ckpt_doctor_options options = {.loader = T};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    write_object(at("x.pt"), FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), NULL);
    doctor_of(at("x.pt"), &options, &result, NULL);
    ck_assert_uint_eq(held(&result, "cuda:0", "cuda:0", CKPT_ROLE_PARAM), 36);
    ck_assert_uint_eq(held(&result, "cuda:0", "cuda:0", CKPT_ROLE_EXP_AVG), 36);
    ck_assert_uint_eq(held(&result, "cpu", "cuda:0", CKPT_ROLE_STEP), 8); /* load_state_dict moves it */
    ckpt_doctor_result_clear(&result);
    options.torch_major = 2;
    doctor_of(at("x.pt"), &options, &result, NULL);
    ck_assert_uint_eq(held(&result, "cpu", "cpu", CKPT_ROLE_STEP), 8); /* torch 2.0 does not */
    ck_assert_uint_eq(result.places[0]->nbytes, 36);                   /* largest first */
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
    tcase_add_loop_test(t, refusals_by_version, 0, (int)(sizeof allowed_from / sizeof *allowed_from));
    tcase_add_test(t, names_that_were_not_there);
    tcase_add_test(t, calls_that_take_more);
    tcase_add_test(t, weights_only_by_version);
    tcase_add_test(t, not_its_format);
    tcase_add_test(t, formats_by_loaders);
    tcase_add_test(t, a_folder_of_one);
    tcase_add_test(t, declared_order);
    tcase_add_test(t, rank_of_another);
    tcase_add_test(t, places);
    suite_add_tcase(s, t);
    return run_suite(s);
}
