/* What a value is to training, by its structure; values by their paths; tensors by storage. */
#include "model/training.h"
#include "model/value_path.h"
#include "model/views.h"
#include "../made_values.h"
#include "../runner.h"

static bool any_object(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT;
}

START_TEST(models)
{
    const ckpt_value *w = tensor_of(2, CKPT_ROLE_NONE), *loss = tensor_of(0, CKPT_ROLE_NONE),
                     *rng = tensor_of(1, CKPT_ROLE_RNG);
    const ckpt_value *none = ckpt__value_new(ix->arena, CKPT_V_NONE),
                     *object = ckpt__value_new(ix->arena, CKPT_V_OBJECT);
    const struct {
        const char *key;
        const ckpt_value *value;
        bool is, looks, names;
    } cases[] = {
        {"b", w, true, true, true},
        {"b", none, true, false, true},
        {"x._extra_state", number(1), true, false, true},
        {"__metadata__", number(1), true, false, true},
        {"epoch", number(1), false, false, true},
        {"b", object, false, false, true},
        {"loss", loss, true, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_value *v = dict_of("a", w, cases[i].key, cases[i].value);
        ck_assert_msg(ckpt__is_state_dict(ix, v, NULL) == cases[i].is, "case %zu", i);
        ck_assert_msg(ckpt__looks_like_state_dict(v) == cases[i].looks, "case %zu", i);
        ck_assert_msg(ckpt__names_tensors(v) == cases[i].names, "case %zu", i);
    }
    ck_assert(
        ckpt__is_state_dict(ix, dict_of("a", w, "b", object), any_object)); /* the format says that it is a tensor */
    ck_assert(ckpt__is_state_dict(ix, dict_of("a", object, NULL, NULL), any_object));
    ck_assert(!ckpt__is_state_dict(ix, dict_of("loss", loss, "cpu", rng), NULL));
    ck_assert(!ckpt__is_state_dict(ix, w, NULL) && !ckpt__is_state_dict(ix, NULL, NULL) && !ckpt__names_tensors(NULL));
    ckpt_entry numbered = {number(0), w};
    const ckpt_value *list = ckpt__value_dict(ix->arena, &numbered, 1);
    ck_assert(!ckpt__is_state_dict(ix, list, NULL) && !ckpt__looks_like_state_dict(list) && !ckpt__names_tensors(list));
    ck_assert(ckpt__is_bare_state_dict(dict_of("fc.weight", w, "fc.bias", w)) &&
              !ckpt__is_bare_state_dict(dict_of("fc.weight", w, "x", w)));
    ck_assert(!ckpt__is_bare_state_dict(dict_of("fc.weight", number(1), NULL, NULL)) &&
              !ckpt__is_bare_state_dict(NULL));
    ckpt_value *ordered = dict_of("a", w, "epoch", number(1));
    ordered->class_name = ckpt__s("collections.OrderedDict");
    ck_assert(ckpt__is_bare_state_dict(ordered) && ckpt__looks_like_state_dict(ordered) &&
              !ckpt__is_state_dict(ix, ordered, NULL));
    ordered->class_name = ckpt__s("__torch__.Module");
    ck_assert(!ckpt__is_state_dict(ix, ordered, NULL));
    ordered->class_name = ckpt__s("__torch__.net.Linear"); /* a number is an attribute of it */
    ck_assert(ckpt__is_state_dict(ix, ordered, NULL));
}
END_TEST

START_TEST(optimizers)
{
    const ckpt_value *id = number(0), *name = word("a.weight"), *w = tensor_of(2, CKPT_ROLE_NONE);
    ckpt_value *state = dict_of("x", number(1), NULL, NULL);
    const ckpt_value *ids[] = {id, name}, *objects[] = {id, w};
    const ckpt_value *good = dict_of("params", ckpt__value_list(ix->arena, CKPT_V_TUPLE, ids, 2), NULL, NULL);
    const ckpt_value *pickled = dict_of("params", ckpt__value_list(ix->arena, CKPT_V_LIST, objects, 2), NULL, NULL);
    const ckpt_value *bad = dict_of("lr", number(1), NULL, NULL);
    const struct {
        const ckpt_value *group;
        bool ids;
    } cases[] = {{good, true}, {pickled, false}, {bad, false}};
    for (size_t i = 0; i < 3; i++) {
        const ckpt_value *groups = ckpt__value_list(ix->arena, CKPT_V_LIST, &cases[i].group, 1);
        ckpt_value *v = dict_of("state", state, "param_groups", groups);
        ck_assert(ckpt__is_optimizer(v) && ckpt__is_torch_optimizer(v) && !ckpt__is_cpp_optimizer(v) &&
                  !ckpt__is_optimizer_object(v));
        ck_assert_msg(ckpt__lists_ids(groups) == cases[i].ids, "case %zu", i);
        v->kind = CKPT_V_OBJECT;
        ck_assert(ckpt__is_optimizer_object(v) && !ckpt__is_optimizer(v));
    }
    ckpt_value *groups = dict_of("param_groups/0", good, NULL, NULL),
               *cpp = dict_of("state", state, "param_groups", groups);
    ck_assert(!ckpt__is_optimizer(cpp));
    groups->class_name = ckpt__s("__torch__.Module");
    ck_assert(ckpt__is_optimizer(cpp) && ckpt__is_libtorch_optimizer(cpp) && !ckpt__is_torch_optimizer(cpp) &&
              !ckpt__lists_ids(groups));
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
    ck_assert(!ckpt__is_optimizer(NULL) && !ckpt__is_optimizer(state) && !ckpt__is_cpp_optimizer(NULL) &&
              !ckpt__lists_ids(NULL));
}
END_TEST

START_TEST(paths)
{
    const ckpt_value *one = number(1), *two = number(2), *three = number(3), *items[] = {one, two};
    ckpt_value *inner = dict_of("a", one, "a.b", two);
    ckpt_entry entries[] = {{number(7), inner},
                            {word("list"), ckpt__value_list(ix->arena, CKPT_V_TUPLE, items, 2)},
                            {word("x"), dict_of("y", one, NULL, NULL)},
                            {word("x.y"), three}};
    ckpt_value *root = ckpt__value_dict(ix->arena, entries, 4);
    inner->state = dict_of("attribute", three, "a", three);
    const struct {
        const char *path;
        const ckpt_value *value;
    } cases[] = {{"", root},      {"7", inner},     {"7.a", one},       {"7.a.b", two}, {"7.attribute", three},
                 {"list.1", two}, {"list.2", NULL}, {"list.01x", NULL}, {"x.y", three}, {"x.y.z", NULL},
                 {"7.c", NULL},   {"8", NULL},      {"xx", NULL}};
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
    ckpt_value *group =
        dict_of("fused", ckpt__value_bool(ix->arena, true), "foreach", ckpt__value_new(ix->arena, CKPT_V_NONE));
    ckpt__flags flags = ckpt__flags_of(group);
    ck_assert(flags.fused == 1 && flags.capturable == -1 && flags.foreach == -1);
    ck_assert_int_eq(ckpt__flags_of(dict_of("capturable", number(0), NULL, NULL)).capturable, 0);
    ck_assert_int_eq(ckpt__kind_of_flags(flags), CKPT_OPTIMIZER_FUSED);
    ck_assert_int_eq(ckpt__kind_of_flags((ckpt__flags){0, 1, 1}), CKPT_OPTIMIZER_CAPTURABLE);
    ck_assert_int_eq(ckpt__kind_of_flags((ckpt__flags){-1, 0, 1}), CKPT_OPTIMIZER_FOREACH);
    ck_assert_int_eq(ckpt__kind_of_flags((ckpt__flags){-1, -1, -1}), CKPT_OPTIMIZER_PLAIN);
}
END_TEST

START_TEST(flags_to_set)
{
    static const ckpt_optimizer_kind kinds[] = {CKPT_OPTIMIZER_FUSED, CKPT_OPTIMIZER_CAPTURABLE, CKPT_OPTIMIZER_FOREACH,
                                                CKPT_OPTIMIZER_PLAIN};
    for (size_t k = 0; k < 4; k++) {
        ckpt__flag flags[CKPT__FLAGS_MAX];
        size_t n = ckpt__flags_for(kinds[k], flags), on = 0;
        ckpt__flags set = {-1, -1, -1};
        ck_assert_uint_eq(n, kinds[k] == CKPT_OPTIMIZER_FUSED ? 2 : 3);
        for (size_t i = 0; i < n; i++) {
            *(flags[i].key[0] == 'c'   ? &set.capturable
              : flags[i].key[1] == 'u' ? &set.fused
                                       : &set.foreach) = flags[i].on;
            on += flags[i].on;
        }
        ck_assert_uint_eq(on, kinds[k] == CKPT_OPTIMIZER_PLAIN ? 0 : 1);
        ck_assert_int_eq(ckpt__kind_of_flags(set), kinds[k]);
    }
}
END_TEST

/* ---- which tensors view a storage */

static void view_of(const size_t *storages, size_t count)
{
    ckpt__tensor *t = ckpt__index_add_tensor(ix);
    ck_assert(ckpt__grow(&ix->pieces, &ix->piece_capacity, ix->piece_count + count, sizeof *ix->pieces));
    t->first_piece = (uint32_t)ix->piece_count;
    t->piece_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        ix->pieces[ix->piece_count++] = (ckpt__piece){.storage = (uint32_t)storages[i]};
}

START_TEST(views_of_storages)
{
    static const size_t a[] = {2}, b[] = {0, 2, 0, 2}, none[] = {9};
    ckpt__views v;
    size_t count;
    ck_assert(ckpt__views_make(ix, true, &v) && v.first[0] == 0); /* an index without anything */
    ckpt__views_free(&v);
    for (size_t i = 0; i < 3; i++)
        ckpt__index_add_storage(ix);
    view_of(a, 1);
    view_of(NULL, 0);
    view_of(b, 4);
    view_of(none, 1);
    view_of(a, 1);
    ck_assert(ckpt__views_make(ix, true, &v));
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

/* Arrays of numpy say what their bytes say. */
START_TEST(alike)
{
    static const int64_t two[] = {2}, one[] = {1};
    static const ckpt_array bytes = {.dtype = {"|u1", 3}, .shape = two, .ndim = 1},
                            words = {.dtype = {"<u2", 3}, .shape = one, .ndim = 1};
    const struct {
        const ckpt_array *array;
        const char *data;
        bool same;
    } cases[] = {{&bytes, "ab", true}, {&bytes, "ac", false}, {&words, "ab", false}};
    for (size_t k = 0; k < 2; k++) /* an array, and a numpy scalar */
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            ckpt_value *x = ckpt__value_new(ix->arena, k ? CKPT_V_OBJECT : CKPT_V_ARRAY),
                       *y = ckpt__value_new(ix->arena, x->kind);
            x->class_name = y->class_name = ckpt__s("numpy.uint8");
            x->array = &bytes;
            x->text = (ckpt_str){"ab", 2};
            y->array = cases[i].array;
            y->text = (ckpt_str){cases[i].data, 2};
            ck_assert_msg(ckpt__value_alike(x, y) == cases[i].same, "case %zu", i);
            ck_assert(ckpt__value_alike(dict_of("a", x, NULL, NULL), dict_of("a", y, NULL, NULL)) == cases[i].same);
        }
}
END_TEST

START_TEST(averages)
{
    static const char *const are[] = {"ema",       "ema.w",      "model_ema.w", "swa_model.w", "a.shadow",
                                      "x.average", "averaged_w", "data.ema",    "aaa.ema"};
    static const char *const are_not[] = {"",          "a",        "e",    "emac.w", "schema.w",
                                          "a.shadows", "averages", "xswa", "m.sw.a"};
    for (size_t i = 0; i < sizeof are / sizeof *are; i++)
        ck_assert_msg(ckpt__is_average(ckpt__s(are[i])), "%s", are[i]);
    for (size_t i = 0; i < sizeof are_not / sizeof *are_not; i++)
        ck_assert_msg(!ckpt__is_average(ckpt__s(are_not[i])), "%s", are_not[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("training");
    TCase *t = tcase_create("training");
    tcase_add_checked_fixture(t, make_index, free_index);
    tcase_add_test(t, models);
    tcase_add_test(t, optimizers);
    tcase_add_test(t, paths);
    tcase_add_test(t, flags_of_a_group);
    tcase_add_test(t, flags_to_set);
    tcase_add_test(t, views_of_storages);
    tcase_add_test(t, alike);
    tcase_add_test(t, averages);
    suite_add_tcase(s, t);
    return run_suite(s);
}
