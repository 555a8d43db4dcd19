/* Whose state is it, where the model's file lists its tensors by name? By shape where that is enough, by the order in which
 * torch lists modules where one alone fits, and by asking where not. */
#include "canon_build.h"

typedef struct param {
    const char *name;
    int64_t a, b; /* b 0: a vector */
} param;

static val weight(const param *p)
{
    val v = p->b ? mat(p->a, p->b) : vec(p->a);
    ix->tensors[v->tensor].sorted = true;
    return v;
}

static int compare(const void *x, const void *y)
{
    return strcmp(((const param *)x)->name, ((const param *)y)->name);
}

/* A model of these, listed by name. */
static val model_of(const param *params, size_t n)
{
    param sorted[64];
    dict m = {.n = 0};
    memcpy(sorted, params, n * sizeof *params);
    qsort(sorted, n, sizeof *sorted, compare);
    for (size_t i = 0; i < n; i++)
        put(&m, sorted[i].name, weight(&sorted[i]));
    return done(&m);
}

/* The state of an optimizer that has them in this order. */
static void state_of(dict *s, const param *params, size_t n)
{
    s->n = 0;
    for (size_t i = 0; i < n; i++)
        put_int(s, (int64_t)i, params[i].b ? state_mat(params[i].a, params[i].b) : state_vec(params[i].a));
}

static void expect_order(const param *params, size_t n)
{
    char name[100], own[100];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "optimizer.%s.exp_avg", params[i].name);
        snprintf(own, sizeof own, "optimizer.state.%zu.exp_avg", i);
        from(name, own);
    }
}

START_TEST(shapes_that_differ_are_enough)
{
    static const param params[] = {{"z.weight", 3, 4}, {"a.weight", 4, 3}, {"m.bias", 7, 0}};
    dict s;
    state_of(&s, params, 3);
    build(minimal(model_of(params, 3), optimizer_of(&s, group(0, 3, 0.1, NULL), NULL)));
    expect_order(params, 3);
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message, "one alone fits: the parameters by their shapes"));
}
END_TEST

START_TEST(a_frozen_parameter_is_left_out)
{
    static const param params[] = {{"z.weight", 3, 4}, {"a.weight", 4, 3}, {"m.bias", 7, 0}};
    dict s;
    state_of(&s, params, 2);
    build(minimal(model_of(params, 3), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)));
    expect_order(params, 2);
}
END_TEST

START_TEST(two_groups_split_by_class)
{
    /* w and b have one shape: their groups tell them apart */
    static const param params[] = {{"fc.weight", 3, 4}, {"gain", 4, 5}, {"other.bias", 3, 4}};
    dict s;
    state_of(&s, params, 3);
    build(minimal(model_of(params, 3), optimizer_of(&s, group(0, 2, 0.1, NULL), group(2, 1, 0, NULL))));
    expect_order(params, 3);
}
END_TEST

/* Twelve layers of two matrices: 10 comes before 2 as text, and weights behind biases. */
START_TEST(layers_by_number)
{
    param params[40];
    char names[40][32];
    size_t n = 0;
    for (int i = 0; i < 12; i++) {
        snprintf(names[n], sizeof *names, "h.%d.fc.weight", i);
        params[n] = (param){names[n], 4, 3};
        n++;
        snprintf(names[n], sizeof *names, "h.%d.fc.bias", i);
        params[n] = (param){names[n], 4, 0};
        n++;
        snprintf(names[n], sizeof *names, "h.%d.out.weight", i);
        params[n] = (param){names[n], 3, 4};
        n++;
    }
    dict s;
    state_of(&s, params, n);
    val model = model_of(params, n);
    build(minimal(model, optimizer_of(&s, group(0, 36, 0.1, NULL), NULL)));
    expect_order(params, n);
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message,
                                 "the likely order of those that trainers use: the parameters as torch lists modules"));
    ckpt__canon_free(canon);
    /* two groups of such layers may be the lower ones and the upper ones, or the other way round */
    failed(minimal(model, optimizer_of(&s, group(0, 31, 0.1, NULL), group(31, 5, 0.1, NULL))), "group 0 <-> group 1");
}
END_TEST

START_TEST(weights_before_biases_and_norms_by_number)
{
    static const param params[] = {{"norm1.weight", 4, 0},
                                   {"norm1.bias", 4, 0},
                                   {"norm2.weight", 4, 0},
                                   {"norm2.bias", 4, 0},
                                   {"out.weight", 4, 5}};
    dict s;
    state_of(&s, params, 5);
    build(minimal(model_of(params, 5), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    expect_order(params, 5);
}
END_TEST

/* The order within a layer is not guessed: b and c are alike in each. */
START_TEST(what_is_alike_in_each_layer)
{
    static const param params[] = {{"h.0.b.weight", 3, 4}, {"h.0.a.weight", 5, 5}, {"h.0.c.weight", 3, 4},
                                   {"h.1.b.weight", 3, 4}, {"h.1.a.weight", 5, 5}, {"h.1.c.weight", 3, 4}};
    dict s;
    state_of(&s, params, 6);
    failed(minimal(model_of(params, 6), optimizer_of(&s, group(0, 6, 0.1, NULL), NULL)), "state 0 may be that of");
}
END_TEST

/* A torch file made of a safetensors file goes on listing the model by name, though nothing marks it. */
START_TEST(a_bias_before_its_weight_tells_it)
{
    static const param params[] = {{"fc.weight", 8, 6}, {"fc.bias", 8, 0}, {"bn.weight", 8, 0}, {"bn.bias", 8, 0}};
    dict s;
    state_of(&s, params, 4);
    val model = model_of(params, 4);
    for (size_t i = 0; i < ix->tensor_count; i++)
        ix->tensors[i].sorted = false;
    failed(minimal(model, optimizer_of(&s, group(0, 1, 0.1, NULL), group(1, 3, 0, NULL))), "more than one order fits");
}
END_TEST

START_TEST(what_is_alike_is_asked_for)
{
    static const param params[] = {{"q.weight", 3, 3}, {"k.weight", 3, 3}};
    static const char *const names[] = {"q.weight", "k.weight"};
    dict s;
    state_of(&s, params, 2);
    val root = minimal(model_of(params, 2), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL));
    failed(root, "state 0 may be that of 'k.weight' or of 'q.weight'");
    ck_assert_ptr_nonnull(strstr(err.message, "param_names"));
    hints.param_names = names;
    hints.param_name_count = 2;
    build(root);
    expect_order(params, 2);
}
END_TEST

/* A config.json beside it names the model, whose definition is known. */
START_TEST(a_known_model_has_a_known_order)
{
    static const param params[] = {{"model.embed_tokens.weight", 9, 3},
                                   {"model.layers.0.self_attn.q_proj.weight", 3, 3},
                                   {"model.layers.0.self_attn.k_proj.weight", 3, 3},
                                   {"model.layers.0.self_attn.v_proj.weight", 3, 3},
                                   {"model.layers.0.self_attn.o_proj.weight", 3, 3},
                                   {"model.layers.0.input_layernorm.weight", 3, 0},
                                   {"model.layers.0.post_attention_layernorm.weight", 3, 0},
                                   {"model.norm.weight", 3, 0}};
    dict s, config = {.n = 0}, root = {.n = 0};
    state_of(&s, params, 8);
    put(&config, "model_type", text("llama"));
    put(&root, "config.json", done(&config));
    put(&root, "model.safetensors", model_of(params, 8));
    put(&root, "optimizer.pt", optimizer_of(&s, group(0, 5, 0.1, NULL), group(5, 3, 0, NULL)));
    failed(done(&root), "more than one order fits"); /* a file of such keys is not a directory */
    ix->kind = "directory";
    ix->format = "hf-trainer";
    build(done(&root));
    from("optimizer.model.layers.0.self_attn.q_proj.weight.exp_avg", "optimizer.pt.state.1.exp_avg");
    from("optimizer.model.layers.0.self_attn.k_proj.weight.exp_avg", "optimizer.pt.state.2.exp_avg");
    from("optimizer.model.layers.0.self_attn.o_proj.weight.exp_avg", "optimizer.pt.state.4.exp_avg");
    from("optimizer.model.layers.0.post_attention_layernorm.weight.exp_avg", "optimizer.pt.state.6.exp_avg");
    from("optimizer.model.norm.weight.exp_avg", "optimizer.pt.state.7.exp_avg");
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message, "transformers defines"));
}
END_TEST

START_TEST(what_fits_nothing_is_said)
{
    static const param params[] = {{"q.weight", 3, 3}, {"k.weight", 4, 4}}, others[] = {{"q", 3, 3}, {"k", 5, 5}};
    dict s;
    state_of(&s, others, 2);
    failed(minimal(model_of(params, 2), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)), "in no order");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("canon_sorted");
    TCase *t = tcase_create("canon_sorted");
    tcase_add_checked_fixture(t, no_hints, teardown);
    tcase_add_test(t, shapes_that_differ_are_enough);
    tcase_add_test(t, a_frozen_parameter_is_left_out);
    tcase_add_test(t, two_groups_split_by_class);
    tcase_add_test(t, layers_by_number);
    tcase_add_test(t, weights_before_biases_and_norms_by_number);
    tcase_add_test(t, what_is_alike_in_each_layer);
    tcase_add_test(t, a_bias_before_its_weight_tells_it);
    tcase_add_test(t, what_is_alike_is_asked_for);
    tcase_add_test(t, a_known_model_has_a_known_order);
    tcase_add_test(t, what_fits_nothing_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
