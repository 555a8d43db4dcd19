/* test_snippets.c - the templates of snippets (src/doctor/snippets): files that reach every line of every template.
 * With CKPT_SNIPPETS=DIR in the environment the snippets stay in DIR, where tests/snippets.sh compiles them. */
#include "doctor/template.h"
#include "doctor_files.h"

#define SCALER "{'scale':2.0,'growth_factor':2.0,'backoff_factor':0.5,'growth_interval':20,'_growth_tracker':1}"
#define TWO_GROUPS(keys) "'param_groups':[{'lr':0.1," keys "'params':[0]},{'lr':0.2," keys "'params':[1]}]"
#define ANY                                                                                                            \
    {                                                                                                                  \
        .struct_size = 0                                                                                               \
    }
#define LONG "transformer.layers.a_module_of_which_the_name_is_long.attention.projection."
#define MANY                                                                                                           \
    "{'a':f32@cpu[1],'b':f32@cpu[1],'c':f32@cpu[1],'d':f32@cpu[1],'e':f32@cpu[1],'f':f32@cpu[1],'g':f32@cpu[1],"       \
    "'h':f32@cpu[1],'i':f32@cpu[1],'j':f32@cpu[1],'k':f32@cpu[1],'l':f32@cpu[1],'m':f32@cpu[1]}"
#define FUSED "'amsgrad':False,'decoupled_weight_decay':True,'fused':True,"
#define CAPTURABLE "'amsgrad':False,'capturable':True,"

/* A file of torch, the language and the options of its snippet. */
static const struct {
    const char *name, *object, *language;
    ckpt_doctor_options options;
} situations[] = {
    {"trainer",
     "{'t':{'net':{'a':f32@cuda:0[2,3],'b':f32@cuda:0[3]}," OPTIMIZER(
         "f32@cuda:0[]", "cuda:0", FUSED) ",'amp':" SCALER ",'sched':{'base_lrs':[0.1],'last_epoch':3,'_step_count':4}}"
                                          ",'rng':u8@cpu[5056],'cuda_rng':[u8@cpu[16],u8@cpu[16]]}",
     "torch", ANY},
    {"plain", PLAIN, "torch", ANY},
    {"plain-1.12", PLAIN, "torch", {.torch_major = 1, .torch_minor = 12}},
    {"capturable", FILE_OF("f32@cuda:0[]", "cuda:0", CAPTURABLE), "torch", ANY},
    {"two-groups",
     "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]",
                                             "cpu") "," TWO_GROUPS("'betas':(0.9,0.99),'amsgrad':False,") "}}",
     "torch", ANY},
    {"no-class",
     "{" MODEL("cpu") ",'optimizer':{'state':{0:{'x':f32@cpu[2,3]},1:{'x':f32@cpu[3]}}," TWO_GROUPS("") "}}", "torch",
     ANY},
    {"no-model", "{" OPTIMIZER("f32@cpu[]", "cpu", "'amsgrad':False,") "}", "torch", ANY},
    {"two-optimizers",
     "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "") ",'other':{" STATE("f32@cpu[]", "cpu") "," GROUPS("") "}}",
     "torch", ANY},
    {"prefix", "{'model':{'module.a':f32@cpu[2,3]},'args':new argparse:Namespace,'scaler':{}}", "torch", ANY},
    {"long-names",
     "{'model':{'" LONG "a':f32@cpu[2,3],'" LONG
     "b':f32@cpu[3]}," OPTIMIZER("f32@cpu[]", "cpu", "'amsgrad':False,") "}",
     "torch", ANY},
    {"several-refused",
     "{'model':{'a':f32@cpu[2,3]},'x':[new a:A,new a:B,new a:C,new a:D,new a:E,new a:F,new a:G,new a:H,new a:I]}",
     "torch", ANY},
    {"flat-state",
     "{'model':{'module.a':f32@cpu[2,3]},'optimizer':{'state.a.exp_avg':f32@cpu[2,3],'state.a.exp_avg_sq':f32@cpu[2,3],"
     "'state.a.step':f32@cpu[],'param_groups.a.lr':0.1,'param_groups.a.betas':(0.9,0.99),'param_groups.a.amsgrad':"
     "False}}",
     "torch", ANY},
    {"flat-together",
     "{'a':f32@cpu[2,3],'state.a.exp_avg':f32@cpu[2,3],'state.a.exp_avg_sq':f32@cpu[2,3],"
     "'state.a.step':f32@cpu[],'param_groups.a.lr':0.1,'param_groups.a.betas':(0.9,0.99)}",
     "torch", ANY},
    {"flat-prefix",
     "{'module.a':f32@cpu[2,3],'state.module.a.exp_avg':f32@cpu[2,3],'state.module.a.exp_avg_sq':f32@cpu[2,3],"
     "'state.module.a.step':f32@cpu[],'param_groups.module.a.lr':0.1,'param_groups.module.a.betas':(0.9,0.99)}",
     "torch", ANY},
    {"lightning",
     "{'pytorch-lightning_version':'2.6.6','state_dict':{'a':f32@cpu[2,3]},'Old':" SCALER "}",
     "torch",
     {.loader = CKPT_LOADER_LIGHTNING}},
    {"lightning-refused",
     "{'pytorch-lightning_version':'2.6.6','state_dict':{'a':f32@cpu[2,3]},'args':new argparse:Namespace}",
     "torch",
     {.loader = CKPT_LOADER_LIGHTNING}},
    {"accelerate", PLAIN, "torch", {.loader = CKPT_LOADER_ACCELERATE}},
    {"accelerate-refused",
     "{'model':{'a':f32@cpu[2,3]},'args':new argparse:Namespace}",
     "torch",
     {.loader = CKPT_LOADER_ACCELERATE}},
    {"hf-trainer", PLAIN, "torch", {.loader = CKPT_LOADER_HF_TRAINER}},
    {"weights", "{'a':f32@cpu[2,3]}", "c", ANY},
    {"in-c",
     "{'a b':{" OPTIMIZER("f32@cuda:0[]", "cuda:0",
                          "'fused':True,") "},'net':{'a*/':f32@cuda:0[2,3],'b':f32@cuda:0[3]},'amp':" SCALER "}",
     "c", ANY},
    {"in-c-named",
     FILE_OF("f32@cpu[]", "cpu", ""),
     "c",
     {.param_names = (const char *const[]){"a", "b"}, .param_name_count = 2, .assume_order = "model"}},
    {"in-c-no-order", "{" OPTIMIZER("f32@cpu[]", "cpu", "") "}", "c", ANY},
    {"in-c-many", MANY, "c", ANY},
    {"run-many", MANY, "run", ANY},
    {"run", FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), "run", ANY},
};

/* ---- which lines were copied: the linker gives calls of ckpt__snippet_expand to this file. It hands on the template
 * with a mark of three bytes before each step, and takes the marks out of the text. */
enum { STEPS = 400 };
static struct {
    bool reached[STEPS]; /* by step */
} templates[16];

void __real_ckpt__snippet_expand(ckpt__buf *b, const ckpt__snippet_op *ops, const ckpt__snippet *with);
void __wrap_ckpt__snippet_expand(ckpt__buf *b, const ckpt__snippet_op *ops, const ckpt__snippet *with);

void __wrap_ckpt__snippet_expand(ckpt__buf *b, const ckpt__snippet_op *ops, const ckpt__snippet *with)
{
    static ckpt__snippet_op marked[2 * STEPS];
    static char marks[STEPS][4];
    ckpt__buf text = {NULL, 0, 0, false};
    size_t t = 0, n = 0;
    while (ckpt__snippet_templates[t].ops && ckpt__snippet_templates[t].ops != ops)
        t++;
    ck_assert(ckpt__snippet_templates[t].ops && t < sizeof templates / sizeof *templates);
    for (size_t i = 0; ops[i].kind != CKPT__SNIPPET_DONE; i++) {
        ck_assert_uint_lt(i, STEPS);
        snprintf(marks[i], sizeof marks[i], "\1%c%c", (char)(1 + i / 100), (char)(1 + i % 100));
        marked[n++] = (ckpt__snippet_op){CKPT__SNIPPET_TEXT, 0, marks[i]};
        marked[n++] = ops[i];
    }
    marked[n] = (ckpt__snippet_op){CKPT__SNIPPET_DONE, 0, NULL};
    __real_ckpt__snippet_expand(&text, marked, with);
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] == 1) {
            templates[t].reached[(text.data[i + 1] - 1) * 100 + text.data[i + 2] - 1] = true;
            i += 2;
        } else {
            ckpt__buf_char(b, text.data[i]);
        }
    ckpt__buf_free(&text);
}

/* ---- the snippets */

/* The snippet of what is at `path`, as a file of DIR. */
static void take_snippet(const char *path, const char *name, const char *language, const ckpt_doctor_options *options)
{
    const char *keep = getenv("CKPT_SNIPPETS");
    char to[500], *text = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s: %s", name, err.message);
    ck_assert_msg(ckpt_doctor_snippet(reader, language, options, &text, &err) == CKPT_OK, "%s: %s", name, err.message);
    snprintf(to, sizeof to, "%s/%s.%s", keep ? keep : folder, name, strcmp(language, "torch") == 0 ? "py" : "c");
    write_text(to, text);
    free(text);
    ckpt_reader_close(reader);
}

static void take_folders(void)
{
    static const flat lora[] = {{"base_model.model.q.lora_A.weight", 2, {4, 6}},
                                {"base_model.model.q.lora_B.weight", 2, {6, 4}}};
    static const flat weights[] = {{"module.q.weight", 2, {4, 6}}}, bare[] = {{"q.weight", 2, {4, 6}}};
    ckpt_doctor_options options = {.loader = CKPT_LOADER_TORCH};
    make_directory("p");
    write_safetensors(at("p/adapter_model.safetensors"), lora, 2, 0);
    write_text(at("p/adapter_config.json"), "{\"peft_type\": \"LORA\", \"r\": 4}");
    take_snippet(at("p"), "adapter", "torch", &options);
    take_snippet(at("p/adapter_model.safetensors"), "adapter-alone", "torch", &options);
    write_safetensors(at("w.safetensors"), weights, 1, 0);
    take_snippet(at("w.safetensors"), "safetensors-prefix", "torch", &options);
    write_safetensors(at("v.safetensors"), bare, 1, 0);
    take_snippet(at("v.safetensors"), "safetensors", "torch", &options);
    make_directory("hf");
    write_safetensors(at("hf/model.safetensors"), bare, 1, 0);
    write_text(at("hf/config.json"), "{\"model_type\": \"gpt2\"}");
    take_snippet(at("hf"), "folder", "torch", &options);
}

static void take_own(void)
{
    const char *top = getenv("srcdir");
    char path[600];
    ckpt_doctor_options options = ANY;
    snprintf(path, sizeof path, "%s/tests/data/run/one/step-00000100", top ? top : ".");
    take_snippet(path, "own", "c", &options);
    take_snippet(path, "own-run", "run", &options);
}

START_TEST(every_line_is_reached)
{
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s", at("it's \"%s\".pt", situations[i].name));
        write_object(path, situations[i].object, NULL);
        take_snippet(path, situations[i].name, situations[i].language, &situations[i].options);
    }
    take_folders();
    take_own();
    size_t lines = 0;
    for (size_t t = 0; ckpt__snippet_templates[t].ops; t++)
        for (const ckpt__snippet_op *op = ckpt__snippet_templates[t].ops; op->kind != CKPT__SNIPPET_DONE; op++) {
            bool copied = op->kind == CKPT__SNIPPET_TEXT || op->kind == CKPT__SNIPPET_HOLE;
            lines += copied;
            ck_assert_msg(!copied || templates[t].reached[op - ckpt__snippet_templates[t].ops],
                          "%s: no file here reaches this step: %s", ckpt__snippet_templates[t].name,
                          op->text ? op->text : "a hole");
        }
    ck_assert_uint_gt(lines, 200);
}
END_TEST

/* torchtitan: the weights among all else, so that they alone are taken for the model, in either form of the optimizer. */
START_TEST(a_model_beside_its_optimizer)
{
    static const char *const objects[] = {
        "{'step':3,'a':f32@cpu[2,3],'optimizer':{'state.a.exp_avg':f32@cpu[2,3],'param_groups.a.lr':0.1}}",
        "{'step':3,'a':f32@cpu[2,3],'optimizer':{'state':{'a':{'exp_avg':f32@cpu[2,3]}},'param_groups':[{'lr':0.1,'params':['a']}]}}"};
    const ckpt_doctor_options options = ANY;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        char *text = NULL;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_reader *reader = NULL;
        write_object(at("beside.pt"), objects[i], NULL);
        ck_assert_int_eq(ckpt_reader_open(at("beside.pt"), NULL, &reader, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_doctor_snippet(reader, "torch", &options, &text, &err), CKPT_OK);
        ck_assert_msg(strstr(text, "weights = {k: v for k, v in checkpoint.items() if k in model.state_dict()}"), "%s",
                      text);
        free(text);
        ckpt_reader_close(reader);
    }
}
END_TEST

static void put_digit(ckpt__buf *b, const void *context, int hole, size_t round)
{
    (void)context;
    ckpt__buf_printf(b, "%d.%zu ", hole, round);
}

/* if a / each list / if b / x / elif c / y / else / z / end / hole / end / else / w / end */
START_TEST(conditions_and_lists)
{
    enum { A, B, C };
    const ckpt__snippet_op ops[] = {
        {CKPT__SNIPPET_IF, A, NULL},   {CKPT__SNIPPET_EACH, 0, NULL}, {CKPT__SNIPPET_IF, B, NULL},
        {CKPT__SNIPPET_TEXT, 0, "x"},  {CKPT__SNIPPET_ELIF, C, NULL}, {CKPT__SNIPPET_TEXT, 0, "y"},
        {CKPT__SNIPPET_ELSE, 0, NULL}, {CKPT__SNIPPET_TEXT, 0, "z"},  {CKPT__SNIPPET_END, 0, NULL},
        {CKPT__SNIPPET_HOLE, 7, NULL}, {CKPT__SNIPPET_END, 0, NULL},  {CKPT__SNIPPET_ELSE, 0, NULL},
        {CKPT__SNIPPET_TEXT, 0, "w"},  {CKPT__SNIPPET_END, 0, NULL},  {CKPT__SNIPPET_IF_NOT, B, NULL},
        {CKPT__SNIPPET_TEXT, 0, "n"},  {CKPT__SNIPPET_END, 0, NULL},  {CKPT__SNIPPET_TEXT, 0, "."},
        {CKPT__SNIPPET_DONE, 0, NULL}};
    static const struct {
        bool holds[3];
        size_t count;
        const char *text;
    } cases[] = {{{true, true, true}, 1, "x7.0 ."},    {{true, false, true}, 2, "y7.0 y7.1 n."},
                 {{true, false, false}, 1, "z7.0 n."}, {{true, true, false}, 0, "."},
                 {{true, false, false}, 0, "n."},      {{false, true, true}, 3, "w."},
                 {{false, false, false}, 3, "wn."},    {{true, true, false}, 3, "x7.0 x7.1 x7.2 ."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt__buf b = {NULL, 0, 0, false};
        __real_ckpt__snippet_expand(&b, ops, &(ckpt__snippet){cases[i].holds, &cases[i].count, put_digit, NULL});
        ck_assert_str_eq(b.data, cases[i].text);
        ckpt__buf_free(&b);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("snippets");
    TCase *t = tcase_create("snippets");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, every_line_is_reached);
    tcase_add_test(t, a_model_beside_its_optimizer);
    tcase_add_test(t, conditions_and_lists);
    suite_add_tcase(s, t);
    return run_suite(s);
}
