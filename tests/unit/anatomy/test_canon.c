/* Canonical names: where the model, the optimizer and the scaler are, and what their parts are called. */
#include "canon_build.h"

/* ---- where things are */

START_TEST(one_group)
{
    build(minimal(small_model(""), small_optimizer()));
    from("fc1.weight", "model.fc1.weight");
    from("optimizer.fc1.bias.exp_avg", "optimizer.state.1.exp_avg");
    from("optimizer.fc2.weight.step", "optimizer.state.4.step");
    from("optimizer.groups.0.lr", "optimizer.param_groups.0.lr");
    from("optimizer.groups.0.betas.1", "optimizer.param_groups.0.betas.1");
    ck_assert(!has("optimizer.groups.0.params.0"));
    ck_assert(!has("optimizer.param_groups.0.params.0"));
    const ckpt__canon_entry *e = get("optimizer.norm.weight.exp_avg_sq");
    ck_assert_int_eq(e->role, CKPT_ROLE_EXP_AVG_SQ);
    ck_assert_str_eq(e->param.data, "norm.weight");
    ck_assert_str_eq(e->state_key.data, "exp_avg_sq");
    ck_assert_str_eq(e->group.data, "0");
    ck_assert(e->is_tensor);
    ck_assert_int_eq(get("optimizer.fc1.bias.step")->role, CKPT_ROLE_STEP);
    ck_assert(get("epoch")->outside);
    ck_assert_int_eq((int)get("epoch")->value->integer, 3);
    ck_assert_uint_eq(canon->group_count, 1);
    ck_assert_uint_eq(canon->groups[0].param_count, 5);
    ck_assert_str_eq(canon->groups[0].params[3].data, "norm.bias");
    ck_assert_int_eq(canon->groups[0].flags.fused, 1);
    ck_assert_int_eq(canon->groups[0].flags.capturable, 0);
    ck_assert_int_eq(canon->groups[0].flags.foreach, -1);
    ck_assert_str_eq(canon->model_path.data, "model");
    ck_assert_str_eq(canon->optimizer_path.data, "optimizer");
    ck_assert_ptr_null(canon->scaler_path.data);
    ck_assert(!canon->hypothesis); /* torch's own order */
    ck_assert_int_eq(found("order-hypothesis")->severity, CKPT_SEVERITY_NOTE);
    ck_assert_int_eq(ckpt_report_worst(report), CKPT_SEVERITY_NOTE);
}
END_TEST

/* {w: {x, list: [{a}, {a, b: "text"}]}}: the first is a dict of nothing but tensors. A state that has "a" could not be told which of the
 * two is meant, so it is not the model for those who have no state either. */
static val dicts_in_a_list(const char *name)
{
    dict one = {.n = 0}, two = {.n = 0}, w = {.n = 0}, root = {.n = 0};
    put(&one, "a", vec(2));
    put(&two, name, vec(3));
    put(&two, "b", text("text"));
    val items[] = {done(&one), done(&two)};
    put(&w, "x", vec(4));
    put(&w, "list", ckpt__value_list(ix->arena, CKPT_V_LIST, items, 2));
    put(&w, "n", ckpt__value_int(ix->arena, 3));
    put(&root, "w", done(&w));
    return done(&root);
}

START_TEST(a_dict_of_a_list_is_not_taken_for_the_model)
{
    static const ckpt_str names[] = {{"a", 1}};
    const wanting one = {names, 1};
    ckpt__canon_hints asked = {.wants = wants, .wants_ctx = &one};
    build(dicts_in_a_list("a"));
    ck_assert(get("w.list.0.a")->outside && get("w.list.1.a")->outside && !has("a"));
    const ckpt_finding *f = found("source-ambiguous");
    ck_assert_msg(strstr(f->message, "w.list.0 and w.list.1") && strstr(f->fix, "source: {model:"), "%s: %s",
                  f->message, f->fix);
    ckpt__canon_free(canon);
    canon = NULL;
    ck_assert_int_eq(ckpt__canon_build(ix, &asked, &canon, report, &err), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, "'w.list.0' and 'w.list.1' both have the state's names"), "%s", err.message);
}
END_TEST

START_TEST(a_dict_without_its_like_is)
{
    build(dicts_in_a_list("c"));
    from("a", "w.list.0.a");
}
END_TEST

/* {epoch, iter, trainer{var_wo_ddp, vae_local, var_opt{scaler, optimizer}}, args}: the optimizer tells the two apart. */
static val var_layout(void)
{
    dict opt = {.n = 0}, trainer = {.n = 0}, root = {.n = 0}, vae = {.n = 0}, s;
    split_state(&s);
    put(&vae, "encoder.weight", mat(3, 3));
    put(&vae, "encoder.bias", vec(3));
    put(&opt, "scaler", scaler_dict());
    put(&opt, "optimizer", optimizer_of(&s, group(0, 2, 0.05, NULL), group(2, 3, 0.0, NULL)));
    put(&trainer, "var_wo_ddp", small_model(""));
    put(&trainer, "vae_local", done(&vae));
    put(&trainer, "var_opt", done(&opt));
    put(&root, "epoch", ckpt__value_int(ix->arena, 1));
    put(&root, "iter", ckpt__value_int(ix->arena, 0));
    put(&root, "trainer", done(&trainer));
    return done(&root);
}

static void check_var(void)
{
    ck_assert_str_eq(canon->model_path.data, "trainer.var_wo_ddp");
    ck_assert_str_eq(canon->optimizer_path.data, "trainer.var_opt.optimizer");
    ck_assert_str_eq(canon->scaler_path.data, "trainer.var_opt.scaler");
    from("fc2.weight", "trainer.var_wo_ddp.fc2.weight");
    from("optimizer.fc2.weight.exp_avg", "trainer.var_opt.optimizer.state.1.exp_avg");
    from("optimizer.norm.bias.step", "trainer.var_opt.optimizer.state.4.step");
    from("scaler.scale", "trainer.var_opt.scaler.scale");
    from("scaler._growth_tracker", "trainer.var_opt.scaler._growth_tracker");
    ck_assert(get("trainer.vae_local.encoder.weight")->outside);
    ck_assert(get("iter")->outside); /* within the epoch: no step */
    ck_assert(!has("step"));
    ck_assert_uint_eq(canon->group_count, 2);
    ck_assert_str_eq(canon->groups[1].params[0].data, "fc1.bias");
    ck_assert_str_eq(get("fc2.weight")->group.data, "0");
    ck_assert_str_eq(get("norm.bias")->group.data, "1");
}

START_TEST(var)
{
    val root = var_layout();
    build(root);
    check_var();
    ck_assert_uint_eq(ckpt_report_count_code(report, "source-found"), 3);
    ck_assert(canon->hypothesis);
    ck_assert_int_eq(found("order-hypothesis")->severity,
                     CKPT_SEVERITY_NOTE); /* weight_decay says which group is which */
    ck_assert_int_eq(canon->order.evidence, CKPT__CONTENT);
    ckpt__canon_free(canon);
    want(small_names, 5);
    build(root);
    check_var();
}
END_TEST

START_TEST(sources_by_rule)
{
    static const char rules[] =
        "map: 1\nsource: {model: trainer.vae_local, optimizer: trainer.var_opt.optimizer, step: iter}\n";
    ckpt_map *map = NULL;
    val root = var_layout();
    ck_assert_int_eq(ckpt_map_parse_yaml(rules, sizeof rules - 1, "m", &map, &err), CKPT_OK);
    hints.map = map;
    hints.optional_optimizer = true; /* the vae's optimizer is not in the file */
    build(root);
    from("encoder.weight", "trainer.vae_local.encoder.weight");
    from("step", "iter");
    ck_assert_ptr_null(canon->optimizer_path.data);
    ck_assert_int_eq(found("order-unknown")->severity, CKPT_SEVERITY_WARNING);
    ck_assert(get("trainer.var_opt.optimizer.state.0.step")->outside);
    ckpt__canon_free(canon);
    hints.optional_optimizer = false;
    failed(root, "no order fits");
    ckpt_map_free(map);
    static const char wrong[] = "map: 1\nsource: {model: trainer.var}\n";
    ck_assert_int_eq(ckpt_map_parse_yaml(wrong, sizeof wrong - 1, "m", &map, &err), CKPT_OK);
    hints.map = map;
    failed(root, "source.model: the checkpoint has nothing at this path; it could be 'trainer.var_wo_ddp'");
    ckpt_map_free(map);
    hints.map = NULL;
}
END_TEST

START_TEST(steps)
{
    static const char *const keys[] = {"num_updates", "iter_num", "global_step", "step"};
    dict r = {.n = 0};
    put(&r, "model", small_model(""));
    for (size_t i = 0; i < 4; i++) { /* the better known key wins */
        put(&r, keys[i], ckpt__value_int(ix->arena, (int64_t)i));
        build(done(&r));
        ck_assert_int_eq((int)get("step")->value->integer, (int)i);
        ck_assert_str_eq(get("step")->own.data, keys[i]);
        ck_assert(!get("step")->outside);
        ckpt__canon_free(canon);
    }
    r.n = 1;
    put(&r, "step", text("many"));
    build(done(&r));
    ck_assert(get("step")->outside);
}
END_TEST

START_TEST(bare_state_dict)
{
    build(small_model("net."));
    from("net.fc1.weight", "net.fc1.weight");
    ck_assert_int_eq(get("net.fc1.weight")->role, CKPT_ROLE_PARAM);
    ck_assert_str_eq(canon->model_path.data, "");
    ckpt__canon_free(canon);
    build(scalar()); /* the root itself is a tensor */
    ck_assert_uint_eq(canon->count, 1);
    ckpt__canon_free(canon);
    build(NULL);
    ck_assert_uint_eq(canon->count, 0);
}
END_TEST

/* ---- names */

START_TEST(prefixes)
{
    want(small_names, 5);
    build(minimal(small_model("module._orig_mod.module."), small_optimizer()));
    from("fc1.weight", "model.module._orig_mod.module.fc1.weight");
    from("optimizer.norm.bias.exp_avg", "optimizer.state.3.exp_avg");
    ck_assert_int_eq(found("prefix-stripped")->severity, CKPT_SEVERITY_NOTE);
}
END_TEST

START_TEST(prefixes_inside)
{
    static const ckpt_str names[] = {{"blk.0.attn.w", 12}};
    dict m = {.n = 0};
    put(&m, "_fsdp_wrapped_module.blk.0._fsdp_wrapped_module._orig_mod.attn.w", mat(2, 2));
    want(names, 1);
    build(minimal(done(&m), NULL));
    ck_assert(!get("blk.0.attn.w")->outside);
    ck_assert_ptr_nonnull(strstr(found("prefix-stripped")->message, "inside names"));
}
END_TEST

START_TEST(prefixes_kept)
{
    static const ckpt_str names[] = {{"module.w", 8}};
    dict m = {.n = 0};
    put(&m, "module.w", mat(2, 2));
    val root = minimal(done(&m), NULL);
    build(root); /* nobody asks: as they are */
    ck_assert(has("module.w"));
    ckpt__canon_free(canon);
    want(names, 1); /* the state has them with the prefix */
    build(root);
    ck_assert(has("module.w"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "prefix-stripped"), 0);
}
END_TEST

START_TEST(map_renames)
{
    static const char rules[] =
        "map: 1\nsource:\n  strip_prefix: ['net.']\n  rename: [{from: 'fc(\\d)\\.(.*)', to: 'layer$1.$2'}]\n";
    ckpt_map *map = NULL;
    ck_assert_int_eq(ckpt_map_parse_yaml(rules, sizeof rules - 1, "m", &map, &err), CKPT_OK);
    hints.map = map;
    build(minimal(small_model("net."), small_optimizer()));
    from("layer1.weight", "model.net.fc1.weight");
    from("optimizer.layer2.weight.step", "optimizer.state.4.step");
    from("norm.bias", "model.net.norm.bias");
    ckpt_map_free(map);
    hints.map = NULL;
}
END_TEST

START_TEST(collisions)
{
    static const char rules[] = "map: 1\nsource:\n  rename: [{from: '.*bias', to: 'b'}]\n";
    ckpt_map *map = NULL;
    ck_assert_int_eq(ckpt_map_parse_yaml(rules, sizeof rules - 1, "m", &map, &err), CKPT_OK);
    hints.map = map;
    build(minimal(small_model(""), NULL));
    const ckpt_finding *f = found("name-collision");
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_ERROR);
    ck_assert_ptr_nonnull(strstr(f->message, "'model.fc1.bias' and 'model.norm.bias'"));
    ckpt_map_free(map);
    hints.map = NULL;
}
END_TEST

START_TEST(own_names_do_not_hide)
{
    dict m = {.n = 0};
    put(&m, "epoch", vec(3)); /* a parameter named as a key beside the model */
    build(minimal(done(&m), NULL));
    from("epoch", "model.epoch");
    ck_assert_uint_eq(ckpt_report_count_code(report, "name-collision"), 0);
}
END_TEST

/* ---- which model */

START_TEST(averages_stand_back)
{
    dict r = {.n = 0};
    put(&r, "state_dict_ema", small_model(""));
    put(&r, "state_dict", small_model(""));
    put(&r, "optimizer", small_optimizer());
    val root = done(&r);
    build(root);
    ck_assert_str_eq(canon->model_path.data, "state_dict");
    ckpt__canon_free(canon);
    want(small_names, 5);
    build(root);
    ck_assert_str_eq(canon->model_path.data, "state_dict");
    ck_assert(get("state_dict_ema.fc1.weight")->outside);
}
END_TEST

START_TEST(two_models)
{
    dict r = {.n = 0};
    put(&r, "a", small_model(""));
    put(&r, "b", small_model(""));
    build(done(&r)); /* nothing asks for one of them */
    ck_assert_ptr_null(canon->model_path.data);
    ck_assert(get("b.fc1.weight")->outside);
    ckpt__canon_free(canon);
    canon = NULL;
    want(small_names, 5);
    failed(done(&r),
           "'a' and 'b' both have the state's names; say which one in a map file: {map: 1, source: {model: 'a'}}");
    want(NULL, 0);
    put(&r, "optimizer", small_optimizer());
    failed(
        done(&r),
        "2 dicts of the checkpoint could be it: 'a', 'b'; say which one in a map file: {map: 1, source: {model: 'a'}}");
    hints.optional_optimizer = true;
    build(done(&r));
    ck_assert_ptr_nonnull(strstr(found("source-ambiguous")->message, "'a', 'b'"));
}
END_TEST

START_TEST(best_match_wins)
{
    dict r = {.n = 0}, part = {.n = 0};
    put(&part, "fc1.weight", mat(8, 4));
    put(&r, "teacher", done(&part));
    put(&r, "student", small_model(""));
    want(small_names, 5);
    build(done(&r));
    ck_assert_str_eq(canon->model_path.data, "student");
    ck_assert(get("teacher.fc1.weight")->outside);
}
END_TEST

/* The state's names may be the file's own: then the dict is the root, and only what is wanted is the model's. */
START_TEST(nested_names)
{
    static const ckpt_str names[] = {{"enc.fc1.weight", 14}, {"dec.fc1.weight", 14}};
    dict r = {.n = 0};
    put(&r, "enc", small_model(""));
    put(&r, "dec", small_model(""));
    put(&r, "loss", scalar());
    want(names, 2);
    build(done(&r));
    from("enc.fc1.weight", "enc.fc1.weight");
    from("dec.fc1.weight", "dec.fc1.weight");
    ck_assert(get("loss")->outside);
    ck_assert(get("dec.norm.bias")->outside);
}
END_TEST

START_TEST(model_in_parts)
{
    dict r = {.n = 0}, head = {.n = 0}, s = {.n = 0};
    put(&head, "w", mat(5, 5));
    small_state(&s);
    put_int(&s, 5, state_mat(5, 5));
    put(&r, "model", small_model(""));
    put(&r, "head", done(&head));
    put(&r, "optimizer", optimizer_of(&s, group(0, 6, 0.1, NULL), NULL));
    put(&r, "cpu_rng", tensor(CKPT_U8, 1, 5056, 0));
    build(done(&r));
    from("optimizer.head.w.exp_avg", "optimizer.state.5.exp_avg");
    from("optimizer.model.fc1.weight.step", "optimizer.state.0.step");
    ck_assert(get("cpu_rng")->outside);
}
END_TEST

START_TEST(two_optimizers)
{
    dict r = {.n = 0}, disc = {.n = 0}, s = {.n = 0};
    put(&disc, "w", mat(5, 5));
    put_int(&s, 0, state_mat(5, 5));
    put(&r, "gen", small_model(""));
    put(&r, "opt_d", optimizer_of(&s, group(0, 1, 0.1, NULL), NULL));
    put(&r, "opt_g", small_optimizer());
    want(small_names, 5);
    build(done(&r)); /* only one fits the model that the state names */
    ck_assert_str_eq(canon->optimizer_path.data, "opt_g");
    ck_assert(get("opt_d.state.0.step")->outside);
    ckpt__canon_free(canon);
    put(&r, "opt_h", small_optimizer());
    failed(
        done(&r),
        "2 dicts of the checkpoint could be it: 'opt_g', 'opt_h'; say which one in a map file: {map: 1, source: {optimizer: 'opt_g'}}");
}
END_TEST

START_TEST(inside_objects)
{
    ckpt_value *object = ckpt__value_new(ix->arena, CKPT_V_OBJECT);
    object->class_name = ckpt__s("trainer.State");
    object->state = minimal(small_model(""), small_optimizer());
    dict r = {.n = 0};
    put(&r, "trainer", object);
    build(done(&r));
    ck_assert_str_eq(canon->model_path.data, "trainer.model");
    from("optimizer.fc1.bias.step", "trainer.optimizer.state.1.step");
}
END_TEST

/* ---- other formats */

START_TEST(native)
{
    ix->format = "ckpt";
    int64_t shape[] = {8, 4};
    size_t w = add("w", CKPT_F32, CKPT_ROLE_PARAM, 2, shape),
           m = add("optimizer.w.exp_avg", CKPT_F32, CKPT_ROLE_EXP_AVG, 2, shape);
    ix->tensors[m].info.param = ckpt__s("w");
    ix->tensors[m].info.state_key = ckpt__s("exp_avg");
    ckpt_value *blob = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
    blob->tensor = add("ckpt.blob.0", CKPT_U8, CKPT_ROLE_OTHER, 1, shape);
    dict r = {.n = 0}, o = {.n = 0}, gs = {.n = 0}, g = {.n = 0}, sc = {.n = 0};
    val params[1] = {text("w")}, betas[2] = {real(0.9), real(0.99)};
    put(&g, "params", ckpt__value_list(ix->arena, CKPT_V_LIST, params, 1));
    put(&g, "lr", real(0.5));
    put(&g, "betas", ckpt__value_list(ix->arena, CKPT_V_LIST, betas, 2));
    put(&g, "fused", ckpt__value_bool(ix->arena, true));
    put(&gs, "no.decay", done(&g));
    put(&o, "groups", done(&gs));
    put(&sc, "scale", real(3.0));
    put(&r, "optimizer", done(&o));
    put(&r, "scaler", done(&sc));
    put(&r, "rng.torch", blob);
    ix->step = 12;
    want(small_names, 5);
    build(done(&r));
    ck_assert_uint_eq(get("w")->tensor, w);
    ck_assert_str_eq(get("optimizer.w.exp_avg")->param.data, "w");
    ck_assert_int_eq(get("optimizer.w.exp_avg")->role, CKPT_ROLE_EXP_AVG);
    ck_assert(get("optimizer.groups.no.decay.lr")->value->real == 0.5);
    ck_assert(get("optimizer.groups.no.decay.betas.1")->value->real == 0.99);
    ck_assert_str_eq(get("optimizer.groups.no.decay.lr")->group.data, "no.decay");
    ck_assert(!has("optimizer.groups.no.decay.params.0"));
    ck_assert_uint_eq(canon->group_count, 1);
    ck_assert_str_eq(canon->groups[0].name.data, "no.decay");
    ck_assert_str_eq(canon->groups[0].params[0].data, "w");
    ck_assert_int_eq(canon->groups[0].flags.fused, 1);
    ck_assert_int_eq(canon->groups[0].flags.foreach, -1);
    ck_assert_int_eq(get("scaler.scale")->role, CKPT_ROLE_SCALER);
    ck_assert(get("rng.torch")->is_tensor);
    ck_assert_int_eq(get("rng.torch")->role, CKPT_ROLE_RNG);
    ck_assert(!has("ckpt.blob.0"));
    ck_assert_int_eq((int)get("step")->value->integer, 12);
    for (size_t i = 0; i < canon->count; i++)
        ck_assert(canon->entries[i].outside == (strcmp(canon->entries[i].name.data, "step") == 0)); /* the header's */
}
END_TEST

START_TEST(native_flat_keys)
{
    ix->format = "ckpt";
    dict r = {.n = 0};
    val params[2] = {text("a"), text("b")};
    put(&r, "step", ckpt__value_int(ix->arena, 4));
    put(&r, "optimizer.groups.0.params", ckpt__value_list(ix->arena, CKPT_V_LIST, params, 2));
    put(&r, "optimizer.groups.0.betas.0", real(0.8));
    put(&r, "optimizer.groups.0.capturable", ckpt__value_bool(ix->arena, false));
    ix->step = 5;
    build(done(&r));
    ck_assert_uint_eq(canon->groups[0].param_count, 2);
    ck_assert_int_eq(canon->groups[0].flags.capturable, 0);
    ck_assert(get("optimizer.groups.0.betas.0")->value->real == 0.8);
    ck_assert_int_eq((int)get("step")->value->integer, 4); /* the tree's own */
    ck_assert_uint_eq(ckpt_report_count(report), 0);
}
END_TEST

START_TEST(safetensors)
{
    ix->format = "safetensors";
    int64_t shape[] = {8, 4};
    add("module.fc1.weight", CKPT_F32, CKPT_ROLE_NONE, 2, shape);
    add("module.bn.running_mean", CKPT_F32, CKPT_ROLE_NONE, 1, shape);
    add("module.l.weight", CKPT_U8, CKPT_ROLE_NONE, 2, shape);
    add("module.l.weight.absmax", CKPT_F32, CKPT_ROLE_NONE, 1, shape);
    add("module.k.weight", CKPT_I8, CKPT_ROLE_NONE, 2, shape);
    add("module.k.SCB", CKPT_F32, CKPT_ROLE_NONE, 1, shape);
    want(small_names, 5);
    build(NULL);
    ck_assert_int_eq(get("fc1.weight")->role, CKPT_ROLE_PARAM);
    ck_assert_str_eq(get("fc1.weight")->own.data, "module.fc1.weight");
    ck_assert_int_eq(get("bn.running_mean")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(get("l.weight")->role, CKPT_ROLE_PARAM); /* quantized */
    ck_assert_str_eq(get("l.weight.absmax")->param.data, "l.weight");
    ck_assert_str_eq(get("k.SCB")->param.data, "k.weight");
    ck_assert_ptr_nonnull(found("prefix-stripped"));
}
END_TEST

/* ---- hostile trees */

START_TEST(hostile)
{
    /* an optimizer without groups, groups without params, ids that are no ids */
    dict empty = {.n = 0}, o = {.n = 0}, g = {.n = 0};
    val groups[1];
    put(&o, "state", done(&empty));
    put(&o, "param_groups", ckpt__value_list(ix->arena, CKPT_V_LIST, groups, 0));
    build(minimal(small_model(""), done(&o)));
    ck_assert_uint_eq(canon->group_count, 0);
    ckpt__canon_free(canon);
    put(&g, "params", real(1.0));
    groups[0] = done(&g);
    o.n = 1;
    put(&o, "param_groups", ckpt__value_list(ix->arena, CKPT_V_LIST, groups, 1));
    build(minimal(small_model(""), done(&o)));
    ckpt__canon_free(canon);
    /* a tensor number that is not in the index */
    dict m = {.n = 0};
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
    v->tensor = 1u << 30;
    put(&m, "w", v);
    build(minimal(done(&m), NULL));
    ck_assert(!has("model.w"));
    ckpt__canon_free(canon);
    /* a dict that holds itself */
    ckpt_entry *self = ckpt__arena_alloc(ix->arena, sizeof *self);
    ckpt_value *loop = ckpt__value_new(ix->arena, CKPT_V_DICT);
    self->key = text("state");
    self->value = loop;
    loop->entries = self;
    loop->entry_count = 1;
    build(loop);
    ckpt__canon_free(canon);
    /* a deep chain */
    val deep = mat(2, 2);
    for (int i = 0; i < 3000; i++) {
        dict d = {.n = 0};
        put(&d, "x", deep);
        deep = done(&d);
    }
    want(small_names, 5);
    build(deep);
    ck_assert_uint_eq(canon->count, 1);
}
END_TEST

static val dict_of(ckpt_entry *entries, size_t n)
{
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_DICT);
    v->entries = entries;
    v->entry_count = n;
    return v;
}

/* One long key over many values: the names together must not take what the file does not. */
START_TEST(long_shared_key)
{
    enum { VALUES = 20000, KEY = 50000 };
    char *key = malloc(KEY + 1);
    ck_assert_ptr_nonnull(key);
    memset(key, 'k', KEY);
    key[KEY] = 0;
    ckpt_entry *entries = ckpt__arena_alloc(ix->arena, VALUES * sizeof *entries);
    for (int64_t i = 0; i < VALUES; i++)
        entries[i] = (ckpt_entry){ckpt__value_int(ix->arena, i), ckpt__value_int(ix->arena, 1)};
    dict r = {.n = 0};
    put(&r, key, dict_of(entries, VALUES));
    ck_assert_int_eq(try_build(done(&r)), CKPT_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.message, "very long keys"));
    free(key);
}
END_TEST

/* Thousands of models beside thousands of optimizers: trying each with each would take minutes. */
START_TEST(many_pairs)
{
    enum { PAIRS = 3000 };
    ckpt_entry *entries = ckpt__arena_alloc(ix->arena, 2 * PAIRS * sizeof *entries);
    dict m = {.n = 0}, s = {.n = 0};
    put(&m, "w", mat(4, 4));
    put_int(&s, 0, state_mat(4, 4));
    val model = done(&m), optimizer = optimizer_of(&s, group(0, 1, 0.1, NULL), NULL);
    for (int64_t i = 0; i < 2 * PAIRS; i++)
        entries[i] = (ckpt_entry){ckpt__value_int(ix->arena, i), i % 2 ? optimizer : model};
    failed(dict_of(entries, 2 * PAIRS), "3000 dicts of the checkpoint could be it");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("canon");
    TCase *c = tcase_create("canon");
    tcase_add_checked_fixture(c, no_hints, teardown);
    tcase_add_test(c, one_group);
    tcase_add_test(c, a_dict_of_a_list_is_not_taken_for_the_model);
    tcase_add_test(c, a_dict_without_its_like_is);
    tcase_add_test(c, var);
    tcase_add_test(c, sources_by_rule);
    tcase_add_test(c, steps);
    tcase_add_test(c, bare_state_dict);
    tcase_add_test(c, prefixes);
    tcase_add_test(c, prefixes_inside);
    tcase_add_test(c, prefixes_kept);
    tcase_add_test(c, map_renames);
    tcase_add_test(c, collisions);
    tcase_add_test(c, own_names_do_not_hide);
    tcase_add_test(c, averages_stand_back);
    tcase_add_test(c, two_models);
    tcase_add_test(c, best_match_wins);
    tcase_add_test(c, nested_names);
    tcase_add_test(c, model_in_parts);
    tcase_add_test(c, two_optimizers);
    tcase_add_test(c, inside_objects);
    tcase_add_test(c, native);
    tcase_add_test(c, native_flat_keys);
    tcase_add_test(c, safetensors);
    tcase_add_test(c, hostile);
    tcase_add_test(c, long_shared_key);
    tcase_add_test(c, many_pairs);
    suite_add_tcase(s, c);
    return run_suite(s);
}
