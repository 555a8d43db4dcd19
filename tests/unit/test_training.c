/* What a value is to training: list, restore, show and doctor go by one definition. Values by their paths, classes of
 * optimizers, tensors by storage. */
#include "core/canon.h"
#include "core/engine.h"
#include "core/optimizer_class.h"
#include "doctor_files.h"
#include "model/training.h"
#include "model/value_path.h"
#include "model/views.h"

static ckpt_reader *reader;
static ckpt__canon *canon;
static ckpt_error err;

static void open_text(const char *text)
{
    const char *path = at("x.pt");
    write_object(path, text, NULL);
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    hints.optional_optimizer = true;
    ckpt_report *findings = ckpt_report_new();
    ck_assert_msg(ckpt__canon_build(reader->index, &hints, &canon, findings, &err) >= 0, "%s", err.message);
    ckpt_report_free(findings);
}

static void close_text(void)
{
    ckpt__canon_free(canon);
    ckpt_reader_close(reader);
    canon = NULL;
    reader = NULL;
}

/* As `list` has it. */
static const ckpt_tensor_info *listed(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    return ckpt_reader_tensor(reader, i);
}

/* As a restore has it. */
static const ckpt__canon_entry *bound(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt__hash_get(canon->by_name, name, strlen(name), &i), "there is no %s", name);
    return &canon->entries[i];
}

static const struct {
    const char *key;
    ckpt_role role;
} keys[] = { { "exp_avg", CKPT_ROLE_EXP_AVG }, { "momentum_buffer", CKPT_ROLE_MOMENTUM }, { "max_exp_avg_sq", CKPT_ROLE_MAX_EXP_AVG_SQ },
             { "master", CKPT_ROLE_MASTER }, { "master_param", CKPT_ROLE_MASTER }, { "master_weights", CKPT_ROLE_MASTER },
             { "sum", CKPT_ROLE_OPTIM } };

START_TEST(a_key_has_one_role)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[300], name[80];
        snprintf(text, sizeof text, "{'model':{'a':f32@cpu[2,3],'b':f32@cpu[5]},'optimizer':{'state':{0:{'%s':f32@cpu[5]},"
                 "1:{'%s':f32@cpu[2,3]}},'param_groups':[{'lr':0.1,'params':[0,1]}]}}", keys[i].key, keys[i].key);
        open_text(text);
        snprintf(name, sizeof name, "optimizer.state.0.%s", keys[i].key);
        ck_assert_msg(listed(name)->role == keys[i].role, "list says %s of %s", ckpt_role_name(listed(name)->role), keys[i].key);
        /* All of them have their parameter's shape, and are told apart by it: the first state is b's. */
        snprintf(name, sizeof name, "optimizer.b.%s", keys[i].key);
        ck_assert_msg(bound(name)->role == keys[i].role, "restore says %s of %s", ckpt_role_name(bound(name)->role), keys[i].key);
        close_text();
    }
}
END_TEST

/* torch's load_state_dict asks of the groups and of their parameters only that they can be walked through. */
START_TEST(groups_in_a_tuple)
{
    static const char *const groups[] = { "[{'lr':0.1,'fused':True,'params':[0]}]", "({'lr':0.1,'fused':True,'params':[0]},)",
                                          "[{'lr':0.1,'fused':True,'params':(0,)}]", "({'lr':0.1,'fused':True,'params':(0,)},)" };
    for (size_t i = 0; i < 4; i++) {
        char text[300];
        ckpt_summary summary;
        ckpt_doctor_options options = { .cuda_devices = -1 };
        ckpt_doctor_result result;
        snprintf(text, sizeof text, "{'model':{'a':f32@cpu[2,3]},'optimizer':{'state':{0:{'step':3,'exp_avg':f32@cpu[2,3]}},"
                 "'param_groups':%s}}", groups[i]);
        open_text(text);
        const ckpt_tensor_info *moment = listed("optimizer.state.0.exp_avg");
        ck_assert_int_eq(moment->role, CKPT_ROLE_EXP_AVG);
        ck_assert_msg(ckpt__str_is(moment->group, "0"), "%s: the group is not known", groups[i]);
        ck_assert_int_eq(bound("optimizer.a.exp_avg")->role, CKPT_ROLE_EXP_AVG);
        ck_assert_int_eq(ckpt_summarize(reader, &summary, &err), CKPT_OK);
        ck_assert_msg(summary.optimizer_count == 1, "show counts %d optimizers in %s", (int)summary.optimizer_count, groups[i]);
        ck_assert(ckpt__str_is(summary.optimizer_kind, "fused"));
        ckpt_summary_clear(&summary);
        ckpt_report *report = ckpt_report_new();
        ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
        ck_assert_msg(result.fused == 1 && result.optimizer == CKPT_OPTIMIZER_FUSED, "doctor finds no fused group in %s", groups[i]);
        ckpt_report_free(report);
        close_text();
    }
}
END_TEST

/* ---- values by hand */

static ckpt__index *ix;

static const ckpt_value *number(int64_t n)
{
    return ckpt__value_int(ix->arena, n);
}

static const ckpt_value *word(const char *text)
{
    return ckpt__value_str(ix->arena, text, strlen(text));
}

static ckpt_value *dict_of(const char *key, const ckpt_value *value, const char *second, const ckpt_value *other)
{
    ckpt_entry entries[2] = { { word(key), value }, { second ? word(second) : NULL, other } };
    return ckpt__value_dict(ix->arena, entries, second ? 2 : 1);
}

static const ckpt_value *tensor_of(uint32_t ndim, ckpt_role role)
{
    ckpt__tensor *t = ckpt__index_add_tensor(ix);
    t->info.ndim = ndim;
    t->info.role = role;
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
    v->tensor = ix->tensor_count - 1;
    return v;
}

static void make_index(void)
{
    ix = ckpt__index_new(0);
}

static void free_index(void)
{
    ckpt__index_free(ix);
}

static bool any_object(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT;
}

START_TEST(models)
{
    const ckpt_value *w = tensor_of(2, CKPT_ROLE_NONE), *loss = tensor_of(0, CKPT_ROLE_NONE), *rng = tensor_of(1, CKPT_ROLE_RNG);
    const ckpt_value *none = ckpt__value_new(ix->arena, CKPT_V_NONE), *object = ckpt__value_new(ix->arena, CKPT_V_OBJECT);
    const struct {
        const char *key;
        const ckpt_value *value;
        bool is, looks, names;
    } cases[] = {
        { "b", w, true, true, true },           { "b", none, true, false, true },    { "x._extra_state", number(1), true, false, true },
        { "__metadata__", number(1), true, false, true },                            { "epoch", number(1), false, false, true },
        { "b", object, false, false, true },    { "loss", loss, true, true, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_value *v = dict_of("a", w, cases[i].key, cases[i].value);
        ck_assert_msg(ckpt__is_state_dict(ix, v, NULL) == cases[i].is, "case %zu", i);
        ck_assert_msg(ckpt__looks_like_state_dict(v) == cases[i].looks, "case %zu", i);
        ck_assert_msg(ckpt__names_tensors(v) == cases[i].names, "case %zu", i);
    }
    ck_assert(ckpt__is_state_dict(ix, dict_of("a", w, "b", object), any_object));      /* the format says that it is a tensor */
    ck_assert(ckpt__is_state_dict(ix, dict_of("a", object, NULL, NULL), any_object));
    ck_assert(!ckpt__is_state_dict(ix, dict_of("loss", loss, "cpu", rng), NULL));
    ck_assert(!ckpt__is_state_dict(ix, w, NULL) && !ckpt__is_state_dict(ix, NULL, NULL) && !ckpt__names_tensors(NULL));
    ckpt_entry numbered = { number(0), w };
    const ckpt_value *list = ckpt__value_dict(ix->arena, &numbered, 1);
    ck_assert(!ckpt__is_state_dict(ix, list, NULL) && !ckpt__looks_like_state_dict(list) && !ckpt__names_tensors(list));
    ckpt_value *ordered = dict_of("a", w, "epoch", number(1));
    ordered->class_name = ckpt__s("collections.OrderedDict");
    ck_assert(ckpt__looks_like_state_dict(ordered) && !ckpt__is_state_dict(ix, ordered, NULL));
    ordered->class_name = ckpt__s("__torch__.Module");
    ck_assert(!ckpt__is_state_dict(ix, ordered, NULL));
    ordered->class_name = ckpt__s("__torch__.net.Linear");     /* a number is an attribute of it */
    ck_assert(ckpt__is_state_dict(ix, ordered, NULL));
}
END_TEST

/* A dict's own attributes are no entries of it: torch's _metadata, and what a program adds to an OrderedDict. */
START_TEST(attributes_of_a_model)
{
    ckpt_value *v = dict_of("a.weight", tensor_of(2, CKPT_ROLE_NONE), NULL, NULL);
    int64_t shape[2] = { 2, 3 };
    ckpt__tensor *t = &ix->tensors[0];
    t->info.name = ckpt__s("a.weight");
    t->info.dtype = CKPT_F32;
    t->info.shape = shape;
    t->info.nbytes = 24;
    v->state = dict_of("version", number(2), NULL, NULL);
    ix->format = "torch";
    ix->root = dict_of("model", v, "epoch", number(3));
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    ck_assert(ckpt__is_state_dict(ix, v, NULL));
    ck_assert_msg(ckpt__canon_build(ix, &hints, &canon, ix->findings, &err) >= 0, "%s", err.message);
    ck_assert_msg(canon->model_path.data && strcmp(canon->model_path.data, "model") == 0, "the model was not found");
    ck_assert_int_eq(bound("a.weight")->role, CKPT_ROLE_PARAM);
    ckpt__canon_free(canon);
}
END_TEST

START_TEST(optimizers)
{
    const ckpt_value *id = number(0), *name = word("a.weight"), *w = tensor_of(2, CKPT_ROLE_NONE);
    ckpt_value *state = dict_of("x", number(1), NULL, NULL);
    const ckpt_value *ids[] = { id, name }, *objects[] = { id, w };
    const ckpt_value *good = dict_of("params", ckpt__value_list(ix->arena, CKPT_V_TUPLE, ids, 2), NULL, NULL);
    const ckpt_value *pickled = dict_of("params", ckpt__value_list(ix->arena, CKPT_V_LIST, objects, 2), NULL, NULL);
    const ckpt_value *bad = dict_of("lr", number(1), NULL, NULL);
    const struct {
        const ckpt_value *group;
        bool ids;
    } cases[] = { { good, true }, { pickled, false }, { bad, false } };
    for (size_t i = 0; i < 3; i++) {
        const ckpt_value *groups = ckpt__value_list(ix->arena, CKPT_V_LIST, &cases[i].group, 1);
        ckpt_value *v = dict_of("state", state, "param_groups", groups);
        ck_assert(ckpt__is_optimizer(v) && ckpt__is_torch_optimizer(v) && !ckpt__is_cpp_optimizer(v) && !ckpt__is_optimizer_object(v));
        ck_assert_msg(ckpt__lists_ids(groups) == cases[i].ids, "case %zu", i);
        v->kind = CKPT_V_OBJECT;
        ck_assert(ckpt__is_optimizer_object(v) && !ckpt__is_optimizer(v));
    }
    ckpt_value *groups = dict_of("param_groups/0", good, NULL, NULL), *cpp = dict_of("state", state, "param_groups", groups);
    ck_assert(!ckpt__is_optimizer(cpp));
    groups->class_name = ckpt__s("__torch__.Module");
    ck_assert(ckpt__is_optimizer(cpp) && ckpt__is_libtorch_optimizer(cpp) && !ckpt__is_torch_optimizer(cpp) && !ckpt__lists_ids(groups));
    ckpt_value *old = dict_of("step_buffers/size", w, "step_buffers/0", w);
    ck_assert(!ckpt__is_cpp_optimizer(old));
    old->class_name = ckpt__s("__torch__.Module");
    ck_assert(ckpt__is_cpp_optimizer(old) && ckpt__is_old_libtorch_optimizer(old) && !ckpt__is_optimizer(old));
    int64_t place;
    ck_assert_uint_eq(ckpt__old_list_of(ckpt__s("step_buffers/12"), &place), 0);
    ck_assert_int_eq(place, 12);
    ck_assert_uint_eq(ckpt__old_list_of(ckpt__s("sum_buffers/size"), &place), CKPT__OLD_LISTS - 1);
    ck_assert_int_eq(place, -1);
    ck_assert_uint_eq(ckpt__old_list_of(ckpt__s("sum_buffers/"), &place), CKPT__OLD_LISTS);
    ck_assert(!ckpt__is_optimizer(NULL) && !ckpt__is_optimizer(state) && !ckpt__is_cpp_optimizer(NULL) && !ckpt__lists_ids(NULL));
}
END_TEST

START_TEST(paths)
{
    const ckpt_value *one = number(1), *two = number(2), *three = number(3), *items[] = { one, two };
    ckpt_value *inner = dict_of("a", one, "a.b", two);
    ckpt_entry entries[] = { { number(7), inner }, { word("list"), ckpt__value_list(ix->arena, CKPT_V_TUPLE, items, 2) },
                             { word("x"), dict_of("y", one, NULL, NULL) }, { word("x.y"), three } };
    ckpt_value *root = ckpt__value_dict(ix->arena, entries, 4);
    inner->state = dict_of("attribute", three, "a", three);
    const struct {
        const char *path;
        const ckpt_value *value;
    } cases[] = { { "", root }, { "7", inner }, { "7.a", one }, { "7.a.b", two }, { "7.attribute", three }, { "list.1", two },
                  { "list.2", NULL }, { "list.01x", NULL }, { "x.y", three }, { "x.y.z", NULL }, { "7.c", NULL }, { "8", NULL },
                  { "xx", NULL } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(ckpt__value_at(root, ckpt__s(cases[i].path)) == cases[i].value, "'%s'", cases[i].path);
    ckpt__step step;
    ck_assert(ckpt__step_into(root, ckpt__s("list.1"), &step) && step.entry == &root->entries[1] && step.taken == 4);
    ck_assert(ckpt__step_into(step.value, ckpt__s("1"), &step) && !step.entry && step.item == 1);
    ck_assert_ptr_eq(ckpt__find_entry(root, "x.y"), &root->entries[3]);
    ck_assert_ptr_null(ckpt__find_entry(root, "7"));
    ck_assert_ptr_null(ckpt__find_entry(NULL, "x"));
}
END_TEST

START_TEST(flags_of_a_group)
{
    ckpt_value *group = dict_of("fused", ckpt__value_bool(ix->arena, true), "foreach", ckpt__value_new(ix->arena, CKPT_V_NONE));
    ckpt__flags flags = ckpt__flags_of(group);
    ck_assert(flags.fused == 1 && flags.capturable == -1 && flags.foreach == -1);
    ck_assert_int_eq(ckpt__flags_of(dict_of("capturable", number(0), NULL, NULL)).capturable, 0);
    ck_assert_int_eq(ckpt__kind_of_flags(flags), CKPT_OPTIMIZER_FUSED);
    ck_assert_int_eq(ckpt__kind_of_flags((ckpt__flags){ 0, 1, 1 }), CKPT_OPTIMIZER_CAPTURABLE);
    ck_assert_int_eq(ckpt__kind_of_flags((ckpt__flags){ -1, 0, 1 }), CKPT_OPTIMIZER_FOREACH);
    ck_assert_int_eq(ckpt__kind_of_flags((ckpt__flags){ -1, -1, -1 }), CKPT_OPTIMIZER_PLAIN);
}
END_TEST

START_TEST(flags_to_set)
{
    static const ckpt_optimizer_kind kinds[] = { CKPT_OPTIMIZER_FUSED, CKPT_OPTIMIZER_CAPTURABLE, CKPT_OPTIMIZER_FOREACH,
                                                 CKPT_OPTIMIZER_PLAIN };
    for (size_t k = 0; k < 4; k++) {
        ckpt__flag flags[CKPT__FLAGS_MAX];
        size_t n = ckpt__flags_for(kinds[k], flags), on = 0;
        ckpt__flags set = { -1, -1, -1 };
        ck_assert_uint_eq(n, kinds[k] == CKPT_OPTIMIZER_FUSED ? 2 : 3);
        for (size_t i = 0; i < n; i++) {
            *(flags[i].key[0] == 'c' ? &set.capturable : flags[i].key[1] == 'u' ? &set.fused : &set.foreach) = flags[i].on;
            on += flags[i].on;
        }
        ck_assert_uint_eq(on, kinds[k] == CKPT_OPTIMIZER_PLAIN ? 0 : 1);
        ck_assert_int_eq(ckpt__kind_of_flags(set), kinds[k]);
    }
}
END_TEST

/* ---- classes of optimizers by their settings */

static bool in_group(void *ctx, const char *key, const ckpt_value **value)
{
    *value = ckpt_value_get(ctx, key);
    return *value != NULL;
}

static bool keeps_exp_inf(void *ctx, const char *key)
{
    return ckpt_value_get(ctx, "exp_inf") && strcmp(key, "exp_inf") == 0;
}

START_TEST(classes)
{
    static const struct {
        const char *settings, *name, *constructor;     /* words; the value of each is False */
    } cases[] = {
        { "betas eps amsgrad", "Adam or AdamW", "AdamW" },
        { "betas eps amsgrad decoupled_weight_decay", "Adam", "Adam" },
        { "momentum dampening nesterov", "SGD", "SGD" },
        { "momentum nesterov ns_steps ns_coefficients eps", "Muon", "Muon" },      /* it has nesterov, and is no SGD */
        { "betas eps maximize", "SparseAdam", "SparseAdam" },                      /* it has no amsgrad, and is no Adamax */
        { "betas eps weight_decay exp_inf", "Adamax", "Adamax" },
        { "betas eps decoupled_weight_decay capturable", "RAdam", "RAdam" },
        { "max_iter max_eval history_size", "LBFGS", NULL },
        { "beta2_decay d", "Adafactor", NULL },
        { "nesterov", NULL, "SGD" },                   /* a program left settings out: it can be constructed nevertheless */
        { "lr_decay", NULL, "Adagrad" },
        { "betas amsgrad decoupled_weight_decay", NULL, "Adam" },
        { "betas amsgrad", NULL, "AdamW" },
        { "betas decoupled_weight_decay", NULL, "RAdam" },
        { "betas weight_decay", NULL, "Adamax" },
        { "momentum", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_entry entries[8];
        size_t n = 0;
        for (const char *at = cases[i].settings; *at; n++) {
            size_t size = strcspn(at, " ");
            entries[n] = (ckpt_entry){ ckpt__value_str(ix->arena, at, size), ckpt__value_bool(ix->arena, false) };
            at += size + (at[size] == ' ');
        }
        ckpt_value *dict = ckpt__value_dict(ix->arena, entries, n);
        ckpt__optimizer_facts facts = { in_group, keeps_exp_inf, dict };
        const ckpt__optimizer_class *class = ckpt__optimizer_class_by(&facts);
        ck_assert_pstr_eq(class ? class->name : NULL, cases[i].name);
        ck_assert_pstr_eq(ckpt__optimizer_constructor(&facts), cases[i].constructor);
    }
    const ckpt_value *group = dict_of("a", ckpt__value_bool(ix->arena, true), "b", number(1));
    ck_assert(ckpt__words_hold(group, "a=True b", true) && !ckpt__words_hold(group, "a=False b", true) && !ckpt__words_hold(group, "a c", true));
    ck_assert(ckpt__words_hold(group, "c a=True", false) && !ckpt__words_hold(group, "c a=False b=True", false));
}
END_TEST

/* ---- which tensors view a storage */

static void view_of(const size_t *storages, size_t count)
{
    ckpt__piece *pieces = ckpt__arena_array(ix->arena, count + 1, sizeof *pieces);
    ckpt__tensor *t = ckpt__index_add_tensor(ix);
    for (size_t i = 0; i < count; i++)
        pieces[i].storage = storages[i];
    t->pieces = pieces;
    t->piece_count = count;
}

START_TEST(views_of_storages)
{
    static const size_t a[] = { 2 }, b[] = { 0, 2, 0, 2 }, none[] = { 9 };
    ckpt__views v;
    size_t count;
    ck_assert(ckpt__views_make(ix, &v) && v.first[0] == 0);     /* an index without anything */
    ckpt__views_free(&v);
    for (size_t i = 0; i < 3; i++)
        ckpt__index_add_storage(ix);
    view_of(a, 1);
    view_of(NULL, 0);
    view_of(b, 4);
    view_of(none, 1);
    view_of(a, 1);
    ck_assert(ckpt__views_make(ix, &v));
    const size_t *of = ckpt__views_of(&v, 0, &count);
    ck_assert(count == 1 && of[0] == 2);
    ckpt__views_of(&v, 1, &count);
    ck_assert_uint_eq(count, 0);
    of = ckpt__views_of(&v, 2, &count);
    ck_assert(count == 3 && of[0] == 0 && of[1] == 2 && of[2] == 4);
    ckpt__views_free(&v);
    ck_assert_ptr_null(v.tensors);
    ckpt__views_free(&v);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("training");
    TCase *files = tcase_create("files"), *values = tcase_create("values");
    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, a_key_has_one_role);
    tcase_add_test(files, groups_in_a_tuple);
    tcase_add_checked_fixture(values, make_index, free_index);
    tcase_add_test(values, models);
    tcase_add_test(values, attributes_of_a_model);
    tcase_add_test(values, optimizers);
    tcase_add_test(values, paths);
    tcase_add_test(values, flags_of_a_group);
    tcase_add_test(values, flags_to_set);
    tcase_add_test(values, classes);
    tcase_add_test(values, views_of_storages);
    suite_add_tcase(s, files);
    suite_add_tcase(s, values);
    return run_suite(s);
}
