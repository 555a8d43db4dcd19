/* Whose state is it? Each way that trainers order their parameters, and each way to misread it. */
#include "canon_build.h"
#include "state/state.h"

/* ---- the order of the parameters */

START_TEST(stated_names)
{
    static const char *const names[] = {"fc2.weight", "module.norm.bias", "norm.weight", "fc1.bias", "fc1.weight"};
    dict s = {.n = 0};
    put_int(&s, 0, state_mat(4, 8));
    for (int64_t i = 1; i < 4; i++)
        put_int(&s, i, state_vec(8));
    put_int(&s, 4, state_mat(8, 4));
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, names), NULL)));
    from("optimizer.fc2.weight.exp_avg", "optimizer.state.0.exp_avg");
    from("optimizer.norm.bias.exp_avg", "optimizer.state.1.exp_avg");
    ck_assert_uint_eq(ckpt_report_count_code(report, "order-hypothesis"), 0);
}
END_TEST

START_TEST(declared_names)
{
    static const char *const names[] = {"fc2.weight", "norm.bias", "norm.weight", "fc1.bias", "fc1.weight"};
    static const char *const strange[] = {"fc2.weight", "norm.bias", "norm.weight", "fc1.bias", "fc3.weight"};
    dict s = {.n = 0};
    put_int(&s, 0, state_mat(4, 8));
    for (int64_t i = 1; i < 4; i++)
        put_int(&s, i, state_vec(8));
    put_int(&s, 4, state_mat(8, 4));
    val root = minimal(small_model("module."), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL));
    hints.param_names = names;
    hints.param_name_count = 5;
    build(root);
    from("optimizer.fc2.weight.exp_avg", "optimizer.state.0.exp_avg");
    from("optimizer.fc1.weight.exp_avg", "optimizer.state.4.exp_avg");
    ckpt__canon_free(canon);
    hints.param_name_count = 4;
    failed(root, "4 parameter names were given, and the optimizer's groups hold 5 parameters");
    hints.param_names = strange;
    hints.param_name_count = 5;
    failed(root, "the model in the file has none of that name");
    ck_assert_str_eq(err.object, "fc3.weight");
}
END_TEST

START_TEST(optimizer_alone)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "norm.weight", "norm.bias", "fc2.weight"};
    val root = small_optimizer();
    failed(root, "no model");
    hints.param_names = names;
    hints.param_name_count = 5;
    build(root);
    from("optimizer.fc1.weight.exp_avg", "state.0.exp_avg");
    ckpt__canon_free(canon);
    hints.param_name_count = 0;
    hints.optional_optimizer = true;
    build(root);
    ck_assert(get("state.0.exp_avg")->outside);
    ck_assert_uint_eq(canon->group_count, 0);
}
END_TEST

/* Ids that are names, as FSDP's full optimizer state has them. */
START_TEST(named_ids)
{
    dict s = {.n = 0}, g = {.n = 0};
    val ids[2] = {text("norm.bias"), text("fc1.weight")};
    put(&s, "fc1.weight", state_mat(8, 4));
    put(&s, "norm.bias", state_vec(8));
    put(&g, "params", ckpt__value_list(ix->arena, CKPT_V_LIST, ids, 2));
    build(minimal(small_model(""), optimizer_of(&s, done(&g), NULL)));
    from("optimizer.fc1.weight.exp_avg", "optimizer.state.fc1.weight.exp_avg");
    from("optimizer.norm.bias.step", "optimizer.state.norm.bias.step");
}
END_TEST

START_TEST(no_decay_first)
{
    dict s = {.n = 0};
    for (int64_t i = 0; i < 3; i++)
        put_int(&s, i, state_vec(8));
    put_int(&s, 3, state_mat(8, 4));
    put_int(&s, 4, state_mat(4, 8));
    build(minimal(small_model(""), optimizer_of(&s, group(0, 3, 0.0, NULL), group(3, 2, 0.1, NULL))));
    from("optimizer.fc1.bias.step", "optimizer.state.0.step");
    from("optimizer.fc2.weight.step", "optimizer.state.4.step");
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message, "group 1 has the parameters "));
}
END_TEST

/* A norm whose weight is a matrix: by rank it would decay, by name it does not. */
START_TEST(split_by_name)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "a.weight", mat(4, 4));
    put(&m, "a.norm.weight", mat(4, 4));
    put(&m, "b.weight", mat(4, 4));
    put(&m, "b.bias", vec(4));
    put_int(&s, 0, state_mat(4, 4));
    put_int(&s, 1, state_mat(4, 4));
    put_int(&s, 2, state_mat(4, 4));
    put_int(&s, 3, state_vec(4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), group(2, 2, 0.0, NULL))));
    from("optimizer.b.weight.step", "optimizer.state.1.step");
    from("optimizer.a.norm.weight.step", "optimizer.state.2.step");
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message, "neither bias nor norm"));
}
END_TEST

/* The same groups without weight decay: the shapes fit more than one order, and nothing settles it. */
START_TEST(ambiguous_groups)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "h.0.weight", mat(4, 4));
    put(&m, "h.0.norm.weight", mat(4, 4));
    put(&m, "h.1.weight", mat(4, 4));
    put(&m, "h.1.norm.weight", mat(4, 4));
    for (int64_t i = 0; i < 4; i++)
        put_int(&s, i, state_mat(4, 4));
    val root = minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), group(2, 2, 0.1, NULL)));
    failed(root, "more than one order fits");
    ck_assert_ptr_nonnull(strstr(err.message, "param_names"));
    ckpt_report_clear(report);
    hints.optional_optimizer = true;
    build(root);
    ck_assert_int_eq(found("order-ambiguous")->severity, CKPT_SEVERITY_WARNING);
    ck_assert(get("optimizer.state.0.step")->outside);
    ckpt__canon_free(canon);
    hints.optional_optimizer = false; /* weight decay says which group is which */
    build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.0, NULL), group(2, 2, 0.1, NULL))));
    from("optimizer.h.0.weight.step", "optimizer.state.2.step");
    from("optimizer.h.1.norm.weight.step", "optimizer.state.1.step");
}
END_TEST

START_TEST(buffers_are_skipped)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "mask", tensor(CKPT_BOOL, 2, 4, 4));
    put(&m, "bn.weight", vec(4));
    put(&m, "bn.bias", vec(4));
    put(&m, "bn.running_mean", vec(4));
    put(&m, "bn.running_var", vec(4));
    put(&m, "bn.num_batches_tracked", tensor(CKPT_I64, 0, 0, 0));
    put(&m, "rope.inv_freq", vec(2));
    put(&m, "last", vec(4));
    for (int64_t i = 0; i < 3; i++)
        put_int(&s, i, state_vec(4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 3, 0.1, NULL), NULL)));
    from("optimizer.bn.weight.step", "optimizer.state.0.step");
    from("optimizer.last.step", "optimizer.state.2.step");
    ck_assert_int_eq(get("bn.running_mean")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(get("rope.inv_freq")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(get("mask")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(get("last")->role, CKPT_ROLE_PARAM);
    ck_assert(!canon->hypothesis);
}
END_TEST

/* A name that sounds like a buffer's, and is a parameter: without it nothing would fit. */
START_TEST(maybe_buffers)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "w", mat(4, 4));
    put(&m, "attn._mask", vec(4));
    put_int(&s, 0, state_mat(4, 4));
    put_int(&s, 1, state_vec(4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)));
    from("optimizer.attn._mask.step", "optimizer.state.1.step");
    ck_assert_int_eq(get("attn._mask")->role, CKPT_ROLE_PARAM);
}
END_TEST

START_TEST(tied)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "tok.weight", mat(6, 4));
    put(&m, "pos.weight", mat(6, 4));
    val head = mat(6, 4);
    put(&m, "head.weight", head);
    ix->tensors[head->tensor].info.storage = ix->tensors[0].info.storage;
    put_int(&s, 0, state_mat(6, 4));
    put_int(&s, 1, state_mat(6, 4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)));
    from("optimizer.tok.weight.step", "optimizer.state.0.step");
    from("optimizer.pos.weight.step", "optimizer.state.1.step");
    ck_assert(has("head.weight"));
    ck_assert(!has("optimizer.head.weight.step"));
}
END_TEST

START_TEST(frozen)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "frozen", mat(2, 2));
    put(&m, "a", mat(3, 3));
    put(&m, "b", mat(5, 5));
    put_int(&s, 0, state_mat(3, 3));
    put_int(&s, 1, state_mat(5, 5));
    build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)));
    from("optimizer.a.step", "optimizer.state.0.step");
    ck_assert_ptr_null(get("frozen")->group.data);
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message, "1 of its 3 left out"));
    ck_assert_int_eq(found("order-hypothesis")->severity, CKPT_SEVERITY_NOTE);
    ckpt__canon_free(canon);
    put(&m, "c", mat(5, 5)); /* b or c is the frozen one: nobody knows */
    failed(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)), "more than one order fits");
}
END_TEST

START_TEST(missing_state)
{
    dict s = {.n = 0};
    put_int(&s, 4, state_mat(4, 8)); /* torch restarts the others in silence; restore will list them */
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    from("optimizer.fc2.weight.step", "optimizer.state.4.step");
    ck_assert(!has("optimizer.fc1.weight.step"));
    ck_assert_uint_eq(canon->groups[0].param_count, 5);
    ckpt__canon_free(canon);
    s.n = 0;
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    ck_assert_str_eq(canon->groups[0].params[4].data, "fc2.weight");
}
END_TEST

START_TEST(dead_state)
{
    dict s;
    small_state(&s);
    put_int(&s, 99, state_vec(3));
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    ck_assert_int_eq(found("dead-state")->severity, CKPT_SEVERITY_WARNING);
    ck_assert(get("optimizer.state.99.step")->outside);
}
END_TEST

START_TEST(moment_shape)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "norm.weight", "norm.bias", "fc2.weight"};
    dict s;
    small_state(&s);
    s.entries[1].value = moments(vec(8), vec(9));
    val root = minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL));
    build(root);
    const ckpt_finding *f = ckpt_report_find(report, "moment-shape", "optimizer.fc1.bias.exp_avg_sq");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_ERROR);
    ck_assert_str_eq(f->message, "'optimizer.state.1.exp_avg_sq' has shape (9), and its parameter 'fc1.bias' has (8)");
    ckpt__canon_free(canon);
    s.entries[1].value = state_vec(9); /* one wrong parameter in an order that is plain otherwise */
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "moment-shape", "optimizer.fc1.bias.exp_avg"));
    ckpt__canon_free(canon);
    s.entries[0].value = state_vec(9); /* two: then the order itself is in doubt */
    failed(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)), "no order fits");
    hints.param_names = names; /* unless it is declared */
    hints.param_name_count = 5;
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "moment-shape", "optimizer.fc1.weight.exp_avg"));
}
END_TEST

START_TEST(twice_in_groups)
{
    dict s;
    small_state(&s);
    failed(minimal(small_model(""), optimizer_of(&s, group(0, 3, 0.1, NULL), group(2, 3, 0.1, NULL))),
           "parameter 2 twice");
}
END_TEST

START_TEST(quantized_state)
{
    dict s = {.n = 0}, q = {.n = 0}, p = {.n = 0};
    put(&q, "state1", tensor(CKPT_U8, 2, 8, 4));
    put(&q, "absmax1", vec(1));
    put(&p, "step", ckpt__value_int(ix->arena, 3));
    put(&p, "__bnb_optimizer_quant_state__", done(&q));
    put_int(&s, 0, done(&p));
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    const ckpt__canon_entry *e = get("optimizer.fc1.weight.absmax1");
    ck_assert_int_eq(e->role, CKPT_ROLE_OPTIM);
    ck_assert_str_eq(e->param.data, "fc1.weight");
    e = get("optimizer.fc1.weight.step");
    ck_assert(!e->is_tensor);
    ck_assert_int_eq(e->role, CKPT_ROLE_STEP);
    ck_assert_int_eq((int)e->value->integer, 3);
}
END_TEST

static val stacked(ckpt_dtype dtype, int64_t a, int64_t b)
{
    const int64_t both[3] = {2, a, b};
    dict q = {.n = 0}, p = {.n = 0};
    ckpt_value *one = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
    one->tensor = add("t", dtype, CKPT_ROLE_NONE, b ? 3 : 2, both);
    put(&q, "state1", one);
    put(&q, "state2", tensor(dtype, b ? 2 : 1, a, b));
    put(&p, "__bnb_optimizer_quant_state__", done(&q));
    return done(&p);
}

/* bitsandbytes' AdEMAMix: two moments in one state1. It is no wrong shape, and does not hide the order. */
START_TEST(stacked_moments)
{
    dict s = {.n = 0};
    put_int(&s, 0, stacked(CKPT_U8, 8, 4));
    for (int64_t i = 1; i < 4; i++)
        put_int(&s, i, stacked(CKPT_F32, 8, 0));
    put_int(&s, 4, stacked(CKPT_U8, 4, 8));
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    from("optimizer.fc2.weight.state1", "optimizer.state.4.__bnb_optimizer_quant_state__.state1");
    ck_assert_uint_eq(ckpt_report_count_code(report, "moment-shape"), 0);
    ckpt__canon_free(canon);
    s.entries[1].value = stacked(CKPT_F32, 9, 0);
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "moment-shape", "optimizer.fc1.bias.state1"));
}
END_TEST

/* Moments of a projection: the program that binds them so knows, of others it is an error still. */
START_TEST(bound_in_another_shape)
{
    const int64_t projected[2] = {2, 4};
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    dict s;
    small_state(&s);
    s.entries[0].value = moments(mat(2, 4), mat(2, 4));
    ckpt_state *state = ckpt_state_new();
    ck_assert_ptr_nonnull(state);
    d.param = "fc1.weight";
    d.role = CKPT_ROLE_EXP_AVG;
    d.dtype = CKPT_F32;
    d.ndim = 2;
    d.shape = projected;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    hints.is_bound_so = ckpt__state_binds_so;
    hints.bound_ctx = state;
    build(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)));
    ck_assert_ptr_null(ckpt_report_find(report, "moment-shape", "optimizer.fc1.weight.exp_avg"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "moment-shape", "optimizer.fc1.weight.exp_avg_sq"));
    ckpt_state_free(state);
}
END_TEST

/* Orders that fit and need not be torch's: they are an error that says why, until one is assumed by its name. */
static void doubtful(val root, const char *why)
{
    failed(root, why);
    ck_assert_int_eq(found("order-ambiguous")->severity, CKPT_SEVERITY_ERROR);
    ck_assert_ptr_nonnull(strstr(found("order-ambiguous")->fix, "--assume-order model"));
    ckpt_report_clear(report);
    hints.assume_order = "model";
    build(root);
    ck_assert_int_eq(canon->order.evidence, CKPT__ASSUMED_ORDER);
    hints.assume_order = NULL;
}

START_TEST(twins_in_two_dicts)
{
    dict r = {.n = 0}, one = {.n = 0}, two = {.n = 0}, s = {.n = 0};
    put(&two, "w", mat(4, 4));
    put(&one, "w", mat(4, 4));
    put_int(&s, 0, state_mat(4, 4));
    put_int(&s, 1, state_mat(4, 4));
    put(&r, "G_B", done(&two));
    put(&r, "G_A", done(&one));
    put(&r, "optimizer", optimizer_of(&s, group(0, 2, 0.1, NULL), NULL));
    doubtful(done(&r), "G_B <-> G_A: 1 parameter");
}
END_TEST

START_TEST(groups_from_the_head)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "body.w", mat(4, 4));
    put(&m, "head.w", mat(4, 4));
    put_int(&s, 0, state_mat(4, 4));
    put_int(&s, 1, state_mat(4, 4));
    doubtful(minimal(done(&m), optimizer_of(&s, group(0, 1, 0.1, NULL), group(1, 1, 0.1, NULL))),
             "'groups-reversed' fits too");
}
END_TEST

START_TEST(names_sorted_as_text)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "h.1.w", mat(4, 4));
    put(&m, "h.10.w", mat(4, 4));
    put(&m, "h.2.w", mat(4, 4));
    for (int64_t i = 0; i < 3; i++)
        put_int(&s, i, state_mat(4, 4));
    doubtful(minimal(done(&m), optimizer_of(&s, group(0, 3, 0.1, NULL), NULL)), "10 before 2");
    ckpt__canon_free(canon);
    dict w = {.n = 0}; /* w3 before w1, layer9 before layer10: as programs number things */
    put(&w, "w3", mat(4, 4));
    put(&w, "w1", mat(4, 4));
    put(&w, "layer10.w", mat(4, 4));
    build(minimal(done(&w), optimizer_of(&s, group(0, 3, 0.1, NULL), NULL)));
    ck_assert(!canon->hypothesis);
}
END_TEST

/* A parameter with the name of a buffer, and a buffer with that of a parameter: both ways fit. */
START_TEST(parameter_named_as_a_buffer)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "inv_freq", vec(8));
    put(&m, "mean", vec(8));
    put(&m, "fc.weight", mat(8, 8));
    put_int(&s, 0, state_vec(8));
    put_int(&s, 1, state_mat(8, 8));
    doubtful(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)), "name of a buffer");
}
END_TEST

START_TEST(complex_parameters)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "w1", tensor(CKPT_C64, 2, 4, 4));
    put(&m, "w2", mat(4, 4));
    put_int(&s, 0, moments(tensor(CKPT_C64, 2, 4, 4), tensor(CKPT_C64, 2, 4, 4)));
    put_int(&s, 1, state_mat(4, 4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)));
    from("optimizer.w1.exp_avg", "optimizer.state.0.exp_avg");
    from("optimizer.w2.exp_avg", "optimizer.state.1.exp_avg");
    ck_assert_int_eq(get("w1")->role, CKPT_ROLE_PARAM);
    ckpt__canon_free(canon);
    put(&m, "mean", mat(4, 4)); /* a buffer of the same shape: no longer to be told */
    failed(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)), "more than one order fits");
}
END_TEST

START_TEST(two_states_of_one_id)
{
    dict s = {.n = 0};
    put_int(&s, 0, state_mat(8, 4));
    put(&s, "0", state_mat(8, 4));
    failed(minimal(small_model(""), optimizer_of(&s, group(0, 5, 0.1, NULL), NULL)), "two states for parameter 0");
}
END_TEST

static void with_rule(const char *rules, val root)
{
    ckpt_map *map = NULL;
    ck_assert_int_eq(ckpt_map_parse_yaml(rules, strlen(rules), "m", &map, &err), CKPT_OK);
    hints.map = map;
    hints.optional_optimizer = true;
    build(root);
    hints.map = NULL;
    ckpt_map_free(map);
}

/* Two models and two optimizers, as accelerate saves a GAN: a rule for one of a pair names the other, if only one fits. */
START_TEST(a_rule_for_one_names_the_other)
{
    dict r = {.n = 0}, d = {.n = 0}, s = {.n = 0};
    put(&d, "fc.weight", mat(5, 5));
    put_int(&s, 0, state_mat(5, 5));
    put(&r, "g", small_model(""));
    put(&r, "d", done(&d));
    put(&r, "opt_d", optimizer_of(&s, group(0, 1, 0.1, NULL), NULL));
    put(&r, "opt_g", small_optimizer());
    val root = done(&r);
    with_rule("{map: 1, source: {optimizer: opt_d}}", root);
    ck_assert_str_eq(canon->model_path.data, "d");
    ck_assert_str_eq(canon->optimizer_path.data, "opt_d");
    ckpt__canon_free(canon);
    with_rule("{map: 1, source: {model: g}}", root);
    ck_assert_str_eq(canon->optimizer_path.data, "opt_g");
    ckpt__canon_free(canon);
    canon = NULL;
    hints.optional_optimizer = true;
    build(root); /* nothing says which pair */
    ck_assert_ptr_null(canon->model_path.data);
    ck_assert_ptr_null(canon->optimizer_path.data);
    ck_assert_ptr_nonnull(strstr(found("source-ambiguous")->fix, "{map: 1, source: {model: 'g'}}"));
}
END_TEST

/* A rule that names no optimizer is an error also where the file has none. */
START_TEST(a_rule_for_no_optimizer)
{
    static const char rules[] = "{map: 1, source: {optimizer: model}}";
    ckpt_map *map = NULL;
    dict r = {.n = 0};
    put(&r, "model", small_model(""));
    ck_assert_int_eq(ckpt_map_parse_yaml(rules, sizeof rules - 1, "m", &map, &err), CKPT_OK);
    hints.map = map;
    failed(done(&r), "this is not an optimizer's state_dict");
    hints.map = NULL;
    ckpt_map_free(map);
}
END_TEST

/* Two optimizers that the model fits: neither is taken, and nothing is said of the order of one. */
START_TEST(two_that_fit)
{
    dict r = {.n = 0};
    put(&r, "model", small_model(""));
    put(&r, "opt_1", small_optimizer());
    put(&r, "opt_2", small_optimizer());
    hints.optional_optimizer = true;
    build(done(&r));
    ck_assert_ptr_null(canon->optimizer_path.data);
    ck_assert_ptr_null(ckpt_report_find(report, "order-hypothesis", NULL));
    ck_assert(!canon->hypothesis);
    ck_assert_ptr_nonnull(strstr(found("source-ambiguous")->fix, "{map: 1, source: {optimizer: 'opt_1'}}"));
}
END_TEST

/* PEFT: the optimizer holds what the adapter adds, and none of the frozen model, whose shapes it has too. */
START_TEST(an_adapter_in_its_model)
{
    static const char *const names[] = {"h.0.base.weight", "h.0.lora_A.default.weight", "h.0.lora_B.default.weight",
                                        "h.1.base.weight", "h.1.lora_A.default.weight", "h.1.lora_B.default.weight"};
    dict m = {.n = 0}, s = {.n = 0};
    for (size_t i = 0; i < 6; i++)
        put(&m, names[i], mat(4, 4));
    for (int i = 0; i < 4; i++)
        put_int(&s, i, state_mat(4, 4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 4, 0.1, NULL), NULL)));
    from("optimizer.h.0.lora_A.default.weight.exp_avg", "optimizer.state.0.exp_avg");
    from("optimizer.h.1.lora_B.default.weight.exp_avg", "optimizer.state.3.exp_avg");
    ck_assert(!has("optimizer.h.0.base.weight.exp_avg"));
}
END_TEST

/* ---- what else a trainer may have done */

typedef struct row {
    const char *name;
    int64_t a, b; /* b 0: a vector */
} row;

/* A model of these, and an optimizer that has `groups` of them, of so many each, in the model's order. */
static val of_rows(const row *rows, size_t n, size_t first, double decay, double other)
{
    dict m = {.n = 0}, s = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        put(&m, rows[i].name, rows[i].b ? mat(rows[i].a, rows[i].b) : vec(rows[i].a));
        put_int(&s, (int64_t)i, rows[i].b ? state_mat(rows[i].a, rows[i].b) : state_vec(rows[i].a));
    }
    return minimal(done(&m), optimizer_of(&s, group(0, (int64_t)first, decay, NULL),
                                          first < n ? group((int64_t)first, (int64_t)(n - first), other, NULL) : NULL));
}

/* Two nets of equal shapes beside each other: Adam(chain(G_BA.parameters(), G_AB.parameters())) fits too. */
START_TEST(twin_branches)
{
    static const row gan[] = {{"G_AB.0.weight", 4, 3}, {"G_AB.0.bias", 4, 0},   {"G_AB.2.weight", 3, 4},
                              {"G_AB.2.bias", 3, 0},   {"G_BA.0.weight", 4, 3}, {"G_BA.0.bias", 4, 0},
                              {"G_BA.2.weight", 3, 4}, {"G_BA.2.bias", 3, 0}};
    static const row numbered[] = {
        {"q1.0.weight", 4, 3}, {"q1.0.bias", 4, 0}, {"q2.0.weight", 4, 3}, {"q2.0.bias", 4, 0}};
    static const row head[] = {{"body.0.weight", 4, 4}, {"body.0.bias", 4, 0}, {"body.2.weight", 4, 4},
                               {"body.2.bias", 4, 0},   {"head.weight", 4, 4}, {"head.bias", 4, 0}};
    doubtful(of_rows(gan, 8, 8, 0.1, 0), "G_AB <-> G_BA: 4 parameters");
    ckpt__canon_free(canon);
    doubtful(of_rows(numbered, 4, 4, 0.1, 0), "q1 <-> q2: 2 parameters");
    ckpt__canon_free(canon);
    doubtful(of_rows(head, 6, 6, 0.1, 0), "body <-> head"); /* the head first, in one group */
    ckpt__canon_free(canon);
    hints.strict_order = hints.optional_optimizer = true;
    build(of_rows(gan, 8, 8, 0.1, 0));
    ck_assert_int_eq(found("order-ambiguous")->severity, CKPT_SEVERITY_WARNING);
    ck_assert(get("optimizer.state.0.exp_avg")->outside);
    ck_assert(ckpt__str_is(canon->unnamed, "optimizer"));
}
END_TEST

/* Layers of one list and parameters of one layer are no branches: counted, and no more. */
START_TEST(layers_are_no_branches)
{
    static const row rows[] = {{"layers.0.q.weight", 4, 4}, {"layers.0.q.bias", 4, 0},    {"layers.0.k.weight", 4, 4},
                               {"layers.0.k.bias", 4, 0},   {"layers.0.ln.weight", 4, 0}, {"layers.0.ln.bias", 4, 0},
                               {"layers.1.q.weight", 4, 4}, {"layers.1.q.bias", 4, 0},    {"layers.1.k.weight", 4, 4},
                               {"layers.1.k.bias", 4, 0},   {"layers.1.ln.weight", 4, 0}, {"layers.1.ln.bias", 4, 0},
                               {"head.weight", 2, 4}};
    build(of_rows(rows, 13, 13, 0.1, 0));
    ck_assert(!canon->hypothesis && canon->order.plain && !canon->order.ambiguous);
    ck_assert_int_eq(canon->order.evidence, CKPT__STRUCTURE);
    ck_assert_str_eq(canon->order.name, "model");
    ck_assert_uint_eq(canon->order.exchangeable, 12);
    ck_assert_uint_eq(canon->order.exchange_count, 1);
    ck_assert_uint_eq(canon->order.exchanges[0].count, 12);
    ck_assert_int_eq(found("order-hypothesis")->severity, CKPT_SEVERITY_NOTE);
    ck_assert_ptr_nonnull(strstr(found("order-hypothesis")->message,
                                 "12 parameters of equal shape could be exchanged within it (layers: 12)"));
    ckpt__canon_free(canon);
    hints.strict_order = true;
    failed(of_rows(rows, 13, 13, 0.1, 0), "strict_order");
}
END_TEST

/* Groups c, a, b; and layers from the last down: the shapes fit the model's order as well. */
START_TEST(groups_of_equal_shapes)
{
    static const row rows[] = {{"a.weight", 4, 3}, {"a.bias", 4, 0}, {"b.weight", 4, 3}, {"b.bias", 4, 0}};
    static const row layers[] = {
        {"h.0.fc.weight", 4, 4}, {"h.0.fc.bias", 4, 0}, {"h.1.fc.weight", 4, 4}, {"h.1.fc.bias", 4, 0}};
    static const row apart[] = {{"a.weight", 4, 3}, {"a.bias", 4, 0}, {"b.weight", 5, 4}, {"b.bias", 5, 0}};
    val root = of_rows(layers, 4, 2, 0.1, 0.1);
    doubtful(of_rows(rows, 4, 2, 0.1, 0.1), "group 0 <-> group 1: 2 parameters");
    ckpt__canon_free(canon);
    failed(root, "'groups-reversed' fits too");
    hints.assume_order = "groups-reversed";
    build(root);
    from("optimizer.h.1.fc.weight.exp_avg", "optimizer.state.0.exp_avg");
    from("optimizer.h.0.fc.bias.exp_avg", "optimizer.state.3.exp_avg");
    ckpt__canon_free(canon);
    hints.assume_order = NULL;
    build(of_rows(apart, 4, 2, 0.1, 0.1)); /* shapes that differ: which group is which is sure */
    ck_assert(!canon->order.ambiguous);
    ckpt__canon_free(canon);
    hints.assume_order = "decay-split-rank";
    failed(root, "'decay-split-rank', does not fit");
    ck_assert(ckpt__order_known("decay-split-hf-last") && !ckpt__order_known("decay-split"));
}
END_TEST

/* Keras on torch: an integer and the means that move are parameters too. They have no state. */
START_TEST(buffers_among_the_parameters)
{
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "variables.0", tensor(CKPT_I32, 1, 2, 0));
    put(&m, "variables.1", mat(4, 3));
    put(&m, "bn.running_mean", vec(3));
    put(&m, "variables.3", mat(3, 4));
    val again = tensor(CKPT_I32, 1, 2, 0); /* Keras registers each twice */
    put(&m, "again.0", again);
    ix->tensors[again->tensor].info.storage = ix->tensors[0].info.storage;
    put_int(&s, 1, state_mat(4, 3));
    put_int(&s, 3, state_mat(3, 4));
    build(minimal(done(&m), optimizer_of(&s, group(0, 4, 0.1, NULL), NULL)));
    from("optimizer.variables.1.exp_avg", "optimizer.state.1.exp_avg");
    from("optimizer.variables.3.exp_avg", "optimizer.state.3.exp_avg");
    ckpt__canon_free(canon);
    put_int(&s, 0, moments(vec(2), vec(2))); /* an integer has no moments: then it is another order */
    failed(minimal(done(&m), optimizer_of(&s, group(0, 4, 0.1, NULL), NULL)), "no order fits");
}
END_TEST

/* A factored second moment says the shape by its rows and columns. */
START_TEST(factored_moments)
{
    static const struct {
        const char *row, *column;
        uint32_t ndim;
    } keys[] = {{"exp_avg_sq_row", "exp_avg_sq_col", 1}, {"row_var", "col_var", 2}};
    for (size_t k = 0; k < 2; k++) {
        dict m = {.n = 0}, s = {.n = 0};
        for (int64_t i = 0; i < 2; i++) {
            dict p = {.n = 0};
            put(&p, keys[k].row, tensor(CKPT_F32, keys[k].ndim, i ? 5 : 3, 1));
            put(&p, keys[k].column, k ? tensor(CKPT_F32, 2, 1, i ? 3 : 5) : vec(i ? 3 : 5));
            put_int(&s, i, done(&p));
        }
        put(&m, "a", mat(3, 5));
        put(&m, "b", mat(5, 3));
        build(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)));
        ck_assert(canon->order.plain && !canon->order.doubtful);
        ckpt__canon_free(canon);
        canon = NULL;
        m.entries[0].value = mat(3, 4);
        m.entries[1].value = mat(4, 3);
        failed(minimal(done(&m), optimizer_of(&s, group(0, 2, 0.1, NULL), NULL)), "no order fits");
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("canon_order");
    TCase *c = tcase_create("canon_order");
    tcase_add_checked_fixture(c, no_hints, teardown);
    tcase_add_test(c, stated_names);
    tcase_add_test(c, declared_names);
    tcase_add_test(c, optimizer_alone);
    tcase_add_test(c, named_ids);
    tcase_add_test(c, no_decay_first);
    tcase_add_test(c, split_by_name);
    tcase_add_test(c, ambiguous_groups);
    tcase_add_test(c, buffers_are_skipped);
    tcase_add_test(c, maybe_buffers);
    tcase_add_test(c, tied);
    tcase_add_test(c, frozen);
    tcase_add_test(c, missing_state);
    tcase_add_test(c, dead_state);
    tcase_add_test(c, moment_shape);
    tcase_add_test(c, twice_in_groups);
    tcase_add_test(c, quantized_state);
    tcase_add_test(c, stacked_moments);
    tcase_add_test(c, bound_in_another_shape);
    tcase_add_test(c, twins_in_two_dicts);
    tcase_add_test(c, groups_from_the_head);
    tcase_add_test(c, names_sorted_as_text);
    tcase_add_test(c, parameter_named_as_a_buffer);
    tcase_add_test(c, complex_parameters);
    tcase_add_test(c, two_states_of_one_id);
    tcase_add_test(c, a_rule_for_one_names_the_other);
    tcase_add_test(c, two_that_fit);
    tcase_add_test(c, a_rule_for_no_optimizer);
    tcase_add_test(c, an_adapter_in_its_model);
    tcase_add_test(c, twin_branches);
    tcase_add_test(c, layers_are_no_branches);
    tcase_add_test(c, groups_of_equal_shapes);
    tcase_add_test(c, buffers_among_the_parameters);
    tcase_add_test(c, factored_moments);
    suite_add_tcase(s, c);
    return run_suite(s);
}
