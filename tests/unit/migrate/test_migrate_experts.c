/* Models with experts under megatron-core's names, in a native file of a trainer in C, as checkpoints of megatron-core: experts are stacked
 * within their layers, or layers are kept apart; the optimizer has the form that one expert parallel rank asks for, or several. */
#include <stdlib.h>
#include "expert_model.h"

/* ---- the target */

static size_t number_of(const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    ck_assert_msg(i < count, "%s", name);
    return i;
}

static void holds(const ckpt_reader *r, const char *key, size_t kind, const char own[][NAME], size_t n, uint32_t ndim,
                  const int64_t *shape)
{
    static float is[MOST * SIZE], want[MOST * SIZE];
    char name[300];
    size_t i;
    snprintf(name, sizeof name, "%s%s", heads[kind], key);
    for (size_t k = 0; k < n; k++)
        memcpy(want + k * SIZE, values[kind][number_of(own[k])], SIZE * sizeof *want);
    ck_assert_msg(ckpt_reader_find(r, name, strlen(name), &i, &err) == CKPT_OK, "%s is not there", name);
    const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
    ck_assert_msg(t->ndim == ndim && memcmp(t->shape, shape, ndim * sizeof *shape) == 0 && t->nbytes == n * SIZE * 4,
                  "%s has another shape", name);
    OK(ckpt_reader_read((ckpt_reader *)r, i, is, n * SIZE * 4, &err));
    ck_assert_msg(memcmp(is, want, n * SIZE * 4) == 0, "%s has other values", name);
}

/* All layers of a key, or one of them where they are apart. */
static void holds_layers(const ckpt_reader *r, const what *w, bool apart, size_t kind, int first, const char *name,
                         const char *key)
{
    static char own[MOST][NAME];
    char whole[NAME];
    const int64_t shape[2] = {w->layers, SIZE};
    for (int l = first; l < w->layers; l++)
        snprintf(own[l], NAME, "decoder.layers.%d.%s", l, name);
    snprintf(whole, sizeof whole, "decoder.layers.%s", key);
    if (!apart)
        holds(r, whole, kind, own, (size_t)w->layers, 2, shape);
    for (int l = first; apart && l < w->layers; l++) {
        snprintf(whole, sizeof whole, "decoder.layers.%d.%s", l, key);
        holds(r, whole, kind, own + l, 1, 1, &shape[1]);
    }
}

static void holds_experts(const ckpt_reader *r, const what *w, bool apart, size_t kind, const char *part)
{
    static char own[MOST][NAME];
    char key[NAME];
    const int64_t shape[3] = {w->layers, w->experts, SIZE};
    size_t n = 0;
    for (int l = w->dense; l < w->layers; l++) {
        for (int e = 0; e < w->experts; e++)
            expert_name(w, l, e, part, own[n++], NAME);
        if (!apart)
            continue;
        snprintf(key, sizeof key, "decoder.layers.%d.mlp.experts.experts.%s", l, part);
        holds(r, key, kind, own, n, 2, shape + 1);
        n = 0;
    }
    snprintf(key, sizeof key, "decoder.layers.mlp.experts.experts.%s", part);
    if (!apart)
        holds(r, key, kind, own, n, 3, shape);
}

static void has_extras(const ckpt_reader *r, const what *w, bool apart)
{
    const char *const linear = "linear_fc2._extra_state/shard_", *const experts = "mlp.experts.experts.";
    for (int l = w->dense; l < w->layers; l++)
        for (int e = 0; e <= w->experts; e++) {
            const ckpt_value *v =
                apart ? root_value(r, "decoder.layers.%d.%s%s%d_%d", l, experts, linear, e, w->experts)
                      : root_value(r, "decoder.layers.%s%s%d.%d_%d.%d", experts, linear, l, e, w->layers, w->experts);
            ck_assert_msg(!v == (e == w->experts), "layer %d, expert %d", l, e);
            ck_assert(!v || (v->kind == CKPT_V_LIST && v->item_count == 1 && v->items[0]->kind == CKPT_V_NONE));
        }
    ck_assert_ptr_nonnull(
        apart ? root_value(r, "decoder.layers.0.self_attention.linear_qkv._extra_state/shard_0_1")
              : root_value(r, "decoder.layers.self_attention.linear_qkv._extra_state/shard_0_%d", w->layers));
}

static void holds_all(const ckpt_reader *r, const what *w, bool apart)
{
    static const char norm[] = "self_attention.linear_qkv.layer_norm_weight";
    const int64_t shape = SIZE;
    ck_assert_str_eq(ckpt_reader_format(r), "torch-dist");
    for (size_t k = 0; k < KINDS; k++) {
        if (k > 0 && (w->no_optimizer || (k == 3 && !w->masters)))
            continue;
        holds_layers(r, w, apart, k, 0, w->fused ? norm : "input_layernorm.weight", norm);
        holds_layers(r, w, apart, k, 0, "self_attention.linear_qkv.weight", "self_attention.linear_qkv.weight");
        holds_layers(r, w, apart, k, w->dense, "pre_mlp_layernorm.weight",
                     w->fused ? "pre_mlp_layernorm.weight" : "mlp.linear_fc1.layer_norm_weight");
        holds_layers(r, w, apart, k, w->dense, "mlp.router.weight", "mlp.router.weight");
        holds_layers(r, w, apart, k, w->dense, "mlp.router.expert_bias", "mlp.router.expert_bias");
        holds_layers(r, w, apart, k, w->dense, "mlp.shared_experts.gate_weight", "mlp.shared_experts.gate_weight");
        for (int p = 0; p < PARTS; p++)
            holds_experts(r, w, apart, k, parts[p]);
        holds(r, "embedding.word_embeddings.weight", k, (const char(*)[NAME])names[count - 1], 1, 1, &shape);
    }
    has_extras(r, w, apart);
}

static bool said(const char *code)
{
    const bool is = ckpt_report_find(report, code, NULL) != NULL;
    ckpt_report_free(report);
    report = ckpt_report_new();
    return is;
}

START_TEST(experts_are_stacked)
{
    for (int seed = 0; seed < 40; seed++) {
        what w = {.layers = 1 + seed % 4, .experts = 1 + seed % 5, .grouped = seed % 2 == 1, .fused = seed % 3 == 1};
        w.dense = seed % 7 == 3 ? (w.layers - 1) / 2 : 0;
        w.masters = seed % 3 == 0;
        w.no_optimizer = seed % 5 == 4;
        options.layers_apart = seed % 4 == 2;
        const bool apart = options.layers_apart || w.dense;
        save(at("n.safetensors"), w);
        options.target_world = 1 + (uint32_t)seed % 3;
        migrates(at("n.safetensors"), "torch-dist", at("a%d", seed));
        ck_assert_int_eq(said("torch-dist-experts"), !w.no_optimizer);
        ckpt_reader *r = opened(at("a%d", seed));
        holds_all(r, &w, apart);
        ckpt_reader_close(r);
        options.layers_apart = false;
        migrates(at("a%d", seed), "torch-dist", at("b%d", seed));
        r = opened(at("b%d", seed));
        holds_all(r, &w, apart);
        ckpt_reader_close(r);
    }
}
END_TEST

/* ---- the optimizer */

static const ckpt_value *groups_of(const ckpt_value *one)
{
    const ckpt_value *inner = ckpt_value_get(one, "optimizer");
    return ckpt_value_get(inner ? inner : one, "param_groups");
}

/* Of the key 0 or 1; NULL: there are none. */
static const ckpt_value *half_of(const ckpt_reader *r, int64_t which)
{
    const ckpt_value *o = root_value(r, "optimizer");
    for (size_t i = 0; i < o->entry_count; i++)
        if (o->entries[i].key->kind == CKPT_V_INT && o->entries[i].key->integer == which)
            return o->entries[i].value;
    return NULL;
}

static void says(const ckpt_value *groups, size_t n, int experts)
{
    ck_assert(groups && groups->item_count == n);
    for (size_t i = 0; i < n; i++) {
        const ckpt_value *v = ckpt_value_get(groups->items[i], "is_expert_parallel");
        ck_assert_int_eq(v ? v->kind == CKPT_V_BOOL && v->boolean : -1, experts);
        ck_assert(ckpt_value_get(groups->items[i], "lr")->real == lr);
        ck_assert_ptr_null(ckpt_value_get(groups->items[i], "params"));
    }
}

/* One optimizer with so many groups, or two with so many each. */
static void is_form(const char *path, bool masters, size_t dense, size_t experts, int flag)
{
    ckpt_reader *r = opened(path);
    if (!experts) {
        ck_assert_ptr_null(half_of(r, 0));
        says(groups_of(root_value(r, "optimizer")), dense, flag);
    } else {
        says(groups_of(half_of(r, 0)), dense, 0);
        says(groups_of(half_of(r, 1)), experts, 1);
        bool decays_too = false;
        for (size_t i = 0; i < experts; i++)
            decays_too |= ckpt_value_get(groups_of(half_of(r, 1))->items[i], "weight_decay")->real == decays[0];
        ck_assert(decays_too);
        for (int i = 0; i < 2; i++) {
            const ckpt_value *type = ckpt_value_get(half_of(r, i), "param_state_sharding_type"),
                             *state = ckpt_value_get(half_of(r, i), "state");
            ck_assert_int_eq(type != NULL, masters);
            ck_assert_int_eq(state && ckpt_value_get(state, "common_step"), !masters);
        }
    }
    ckpt_reader_close(r);
}

START_TEST(forms_of_the_optimizer)
{
    for (int k = 0; k < 2; k++) {
        what w = {.layers = 2, .experts = 4, .masters = k == 1};
        save(at("n.safetensors"), w); /* the groups do not say whose they are */
        migrates(at("n.safetensors"), "torch-dist", at("a%d", k));
        ck_assert(said("torch-dist-experts"));
        is_form(at("a%d", k), w.masters, 2, 0, -1);
        options.expert_parallel = 1;
        migrates(at("n.safetensors"), "torch-dist", at("b%d", k));
        ck_assert(!said("torch-dist-experts"));
        is_form(at("b%d", k), w.masters, 2, 0, 0);
        options.expert_parallel = 2; /* experts have weights and biases: both groups are theirs, too */
        migrates(at("n.safetensors"), "torch-dist", at("c%d", k));
        is_form(at("c%d", k), w.masters, 2, 2, 0);
        w.named = 1; /* a group of theirs alone, for the weights */
        save(at("n.safetensors"), w);
        options.expert_parallel = 0;
        migrates(at("n.safetensors"), "torch-dist", at("d%d", k));
        ck_assert(said("torch-dist-experts"));
        is_form(at("d%d", k), w.masters, 2, 2, 0);
    }
}
END_TEST

/* A torch-dist has groups without the names of parameters: weight decay tells them apart. */
START_TEST(another_form_of_a_torch_dist)
{
    for (int k = 0; k < 2; k++) {
        what w = {.layers = 2, .experts = 4, .masters = k == 1, .named = 2};
        save(at("n.safetensors"), w);
        options.expert_parallel = 2;
        migrates(at("n.safetensors"), "torch-dist", at("two%d", k));
        is_form(at("two%d", k), w.masters, 2, 2, 0);
        ck_assert(!said("groups-lack"));
        options.expert_parallel = 1;
        migrates(at("two%d", k), "torch-dist", at("one%d", k));
        is_form(at("one%d", k), w.masters, 2, 0, 0);
        options.expert_parallel = 4;
        migrates(at("one%d", k), "torch-dist", at("again%d", k));
        is_form(at("again%d", k), w.masters, 2, 2, 0);
        options.expert_parallel = 0;
        ck_assert(!said("torch-dist-experts"));
        migrates(at("again%d", k), "torch-dist", at("kept%d", k));
        ck_assert(said("torch-dist-experts"));
        is_form(at("kept%d", k), w.masters, 2, 2, 0);
        ckpt_reader *r = opened(at("kept%d", k));
        holds_all(r, &w, false);
        ckpt_reader_close(r);
    }
}
END_TEST

/* Layer by layer and expert by expert, in a file that keeps the groups where they are, and stacked again. */
START_TEST(both_forms_come_back)
{
    const char *srcdir = getenv("srcdir");
    for (int k = 0; k < 4; k++) {
        what w = {
            .layers = 2, .experts = 4, .masters = k % 2 == 1, .named = 2, .also = "decoder.final_layernorm.weight"};
        save(at("n.safetensors"), w);
        options.expert_parallel = k < 2 ? 2 : 1;
        migrates(at("n.safetensors"), "torch-dist", at("a%d", k));
        options.expert_parallel = 0;
        char layout[600];
        snprintf(layout, sizeof layout, "%s/layouts/megatron-moe-layers.yaml", srcdir ? srcdir : ".");
        options.layout = layout;
        migrates(at("a%d", k), "ckpt", at("l%d.safetensors", k));
        options.layout = NULL;
        migrates(at("l%d.safetensors", k), "torch-dist", at("b%d", k));
        is_form(at("b%d", k), w.masters, 2, k < 2 ? 2 : 0, 0);
        are_the_same(at("a%d", k), at("b%d", k));
    }
}
END_TEST

/* ---- doctor */

/* What doctor says of a job with so many expert parallel ranks. */
static void fails_at_load(const char *path, const char *mesh, const char *because)
{
    ckpt_doctor_options asked = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *found = ckpt_report_new();
    ckpt_reader *r = opened(path);
    asked.mesh = mesh;
    ck_assert_int_ge(ckpt_doctor(r, &asked, &result, found, &err), 0);
    const ckpt_finding *f = ckpt_report_find(found, "mesh", NULL);
    ck_assert_msg(!f == !because, "%s, %s: %s", path, mesh, f ? f->message : "nothing");
    if (f) {
        ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
        ck_assert_msg(strstr(f->message, because) && strstr(f->fix, "--expert-parallel "), "%s; %s", f->message,
                      f->fix);
    }
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(found);
    ckpt_reader_close(r);
}

START_TEST(doctor_knows_the_form)
{
    what w = {.layers = 2, .experts = 4};
    save(at("n.safetensors"), w);
    options.expert_parallel = 1;
    migrates(at("n.safetensors"), "torch-dist", at("one"));
    options.expert_parallel = 4;
    migrates(at("n.safetensors"), "torch-dist", at("two"));
    fails_at_load(at("one"), "dp=2,ep=2", "saved for one expert parallel rank, and the job has ep=2");
    fails_at_load(at("one"), "dp=2,ep=1", NULL);
    fails_at_load(at("one"), "dp=2", NULL); /* not asked */
    fails_at_load(at("two"), "dp=2,ep=1", "saved for two expert parallel ranks or more, and the job has ep=1");
    fails_at_load(at("two"), "dp=2,ep=2", NULL);
    w = (what){.layers = 2, .dense = 2};
    save(at("n.safetensors"), w);
    options.expert_parallel = 0;
    migrates(at("n.safetensors"), "torch-dist", at("dense"));
    fails_at_load(at("dense"), "dp=2,ep=2", NULL);
    w = (what){.layers = 2, .experts = 4, .no_optimizer = true};
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), "torch-dist", at("weights"));
    fails_at_load(at("weights"), "dp=2,ep=2", NULL);
}
END_TEST

/* ---- refused */

/* experts: local ones of layer L, expert E */
#define LOCAL(l, e) "decoder.layers." #l ".mlp.experts.local_experts." #e "."

static const struct refusal {
    what model;
    ckpt_status status;
    const char *because;
} refusals[] = {
    {{.lacks = LOCAL(1, 2) "linear_fc2.weight"},
     CKPT_E_MISMATCH,
     "expert 2 of layer 1 has none, and the model has 3 layers of 3 experts"},
    {{.lacks = LOCAL(2, 2) "linear_fc1.weight"}, CKPT_E_MISMATCH, "expert 2 of layer 2 has none"},
    {{.lacks = "decoder.layers.0.mlp.router.weight"}, CKPT_E_MISMATCH, "layer 0 has none"},
    {{.odd = LOCAL(2, 1) "linear_fc1.weight"}, CKPT_E_MISMATCH, "that of expert 1 of layer 2 is int32"},
    /* under the other name, too */
    {{.also = "decoder.layers.2.mlp.experts.linear_fc1.weight1"},
     CKPT_E_MISMATCH,
     "expert 1 of layer 2 has another tensor"},
    {{.also = LOCAL(2, 01) "linear_fc1.weight"}, CKPT_E_UNSUPPORTED, "none of the names"},
    {{.also = LOCAL(2, 1) "linear_fc3.weight"}, CKPT_E_UNSUPPORTED, "none of the names"},
    {{.also = LOCAL(2, 900000000) "linear_fc1.weight"}, CKPT_E_LIMIT, "experts in one"},
    {{.also = "decoder.layers.5.mlp.router.weight"}, CKPT_E_MISMATCH, "layer 3 has none"},
};

START_TEST(refused)
{
    what w = refusals[_i].model;
    w.layers = w.experts = 3;
    w.no_optimizer = true;
    save(at("n.safetensors"), w);
    refuses(at("n.safetensors"), "torch-dist", refusals[_i].status, refusals[_i].because);
}
END_TEST

/* Layers that are kept apart are still alike, each kind of them. */
static const struct refusal apart_refusals[] = {
    {{.lacks = "decoder.layers.1.mlp.linear_fc1.weight"},
     CKPT_E_MISMATCH,
     "layer 0 has it, and layer 1 has none like it"},
    {{.lacks = "decoder.layers.2.mlp.router.weight"}, CKPT_E_MISMATCH, "layer 3 has it, and layer 2 has none like it"},
    {{.lacks = LOCAL(2, 0) "linear_fc1.weight"}, CKPT_E_MISMATCH, "expert 0 has none"},
    {{.also = "decoder.layers.6.mlp.router.weight"}, CKPT_E_MISMATCH, "the model has no layer 4, and 2 behind it"},
    {{.also = "decoder.layers.1.mlp.linear_fc2.weight"},
     CKPT_E_MISMATCH,
     "layer 1 has it, and layer 0 has none like it"},
    /* pre_mlp_layernorm has that key there */
    {{.also = "decoder.layers.1.mlp.linear_fc1.layer_norm_weight"}, CKPT_E_MISMATCH, "its layer has another tensor"},
};

START_TEST(refused_apart)
{
    what w = apart_refusals[_i].model;
    w.layers = 4;
    w.experts = w.dense = 2;
    w.no_optimizer = true;
    save(at("n.safetensors"), w);
    refuses(at("n.safetensors"), "torch-dist", apart_refusals[_i].status, apart_refusals[_i].because);
}
END_TEST

START_TEST(refused_options)
{
    what w = {.layers = 2, .experts = 4};
    save(at("n.safetensors"), w);
    options.expert_parallel = 3;
    refuses(at("n.safetensors"), "torch-dist", CKPT_E_ARGUMENT, "4 experts, which so many ranks cannot share evenly");
    refuses(at("n.safetensors"), "dcp", CKPT_E_ARGUMENT, "are for --to torch-dist");
    options.expert_parallel = 2;
    w.one_group = true; /* all in one group: it is in both lists */
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), "torch-dist", at("a"));
    is_form(at("a"), false, 1, 1, 0);
    options.expert_parallel = 1; /* wd_mult and the like are not said, so that they are not known to be one */
    migrates(at("a"), "torch-dist", at("b"));
    is_form(at("b"), false, 2, 0, 0);
    options.expert_parallel = 2;
    refuses(at("b"), "torch-dist", CKPT_E_UNSUPPORTED,
            "which of the optimizer's 2 groups has the experts is in no file");
    options.expert_parallel = 0;
    options.layers_apart = true;
    refuses(at("b"), "torch-dist", CKPT_E_ARGUMENT, "keeps its keys");
    refuses(at("n.safetensors"), "ckpt-run", CKPT_E_ARGUMENT, "are for --to torch-dist");
    options.layers_apart = false;
    w = (what){.layers = 2, .dense = 2};
    save(at("n.safetensors"), w);
    options.expert_parallel = 2;
    refuses(at("n.safetensors"), "torch-dist", CKPT_E_ARGUMENT, "has no experts");
}
END_TEST

START_TEST(short_of_memory)
{
    for (int k = 0; k < 3; k++) {
        what w = {.layers = 1 + (k == 1), .experts = 2, .masters = k == 0, .dense = k == 1, .named = 2};
        char to[200];
        save(at("n.safetensors"), w);
        options.threads = 1;
        options.expert_parallel = 2;
        if (k == 2)
            migrates(at("n.safetensors"), "torch-dist", at("s"));
        options.expert_parallel = k == 2 ? 1 : 2;
        each_allocation(at("%s", k == 2 ? "s" : "n.safetensors"), 60, to, sizeof to);
        ckpt_reader *r = opened(to);
        holds_all(r, &w, w.dense);
        ckpt_reader_close(r);
        is_form(to, w.masters, 2, k == 2 ? 0 : 2, 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_experts");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, set_up, teardown);
    tcase_add_test(t, experts_are_stacked);
    tcase_add_test(t, forms_of_the_optimizer);
    tcase_add_test(t, another_form_of_a_torch_dist);
    tcase_add_test(t, both_forms_come_back);
    tcase_add_test(t, doctor_knows_the_form);
    tcase_add_loop_test(t, refused, 0, sizeof refusals / sizeof *refusals);
    tcase_add_loop_test(t, refused_apart, 0, sizeof apart_refusals / sizeof *apart_refusals);
    tcase_add_test(t, refused_options);
    tcase_add_test(t, short_of_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
