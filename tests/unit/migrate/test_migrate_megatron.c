/* A model under megatron-core's names, in a native file of a trainer in C, as a checkpoint of megatron-core: layers are stacked, moments
 * and masters too, and what its load would raise at is refused, or said. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "torch_dist_checks.h"

enum { MOST_LAYERS = 12, EACH = 4 };

static const struct {
    const char *name, *key;
} each[EACH] = {{"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"},
                {"self_attention.linear_qkv.weight", "self_attention.linear_qkv.weight"},
                {"pre_mlp_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"},
                {"mlp.linear_fc2.weight", "mlp.linear_fc2.weight"}};

/* A source. lacks, other, lacks_moment: 1 + the number of a layer's tensor, counted over all layers; 0: none. */
typedef struct what {
    int layers, lacks, other, lacks_moment;
    bool half, masters, no_optimizer, no_group, no_step;
    const char *more; /* another parameter */
} what;

static float values[KINDS][MOST_LAYERS * EACH + 2][SIZE];
static int64_t step = 7;
static double lr = 0.5, decay = 0.25;

static unsigned next(unsigned *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 16;
}

static void fill(unsigned seed)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < MOST_LAYERS * EACH + 2; i++)
            for (size_t e = 0; e < SIZE; e++)
                values[k][i][e] = (float)next(&seed) - 30000.0f;
}

/* The layers come in an order of their own. */
static int layer_at(int place, int layers)
{
    return layers % 2 ? layers - 1 - place : place;
}

static void bind_one(ckpt_state *s, const char *name, size_t number, const what *w, bool other)
{
    bind(s, name, NULL, CKPT_ROLE_PARAM, other ? CKPT_I32 : w->half ? CKPT_BF16 : CKPT_F32, values[0][number]);
    for (size_t k = 1; !w->no_optimizer && k < KINDS; k++)
        if ((k < 3 || w->masters) && !((int)number + 1 == w->lacks_moment && k == 1))
            bind(s, NULL, name, roles[k], CKPT_F32, values[k][number]);
}

static void save(const char *path, what w)
{
    static char names[MOST_LAYERS * EACH + 3][120];
    const char *own[MOST_LAYERS * EACH + 3];
    size_t count = 0;
    ckpt_state *s = ckpt_state_new();
    ckpt_save_options to = CKPT_SAVE_OPTIONS_INIT;
    to.no_sync = true;
    for (int place = 0; place < w.layers; place++)
        for (int i = 0; i < EACH; i++) {
            const int layer = layer_at(place, w.layers), number = layer * EACH + i;
            if (number + 1 == w.lacks)
                continue;
            snprintf(names[count], sizeof names[0], "decoder.layers.%d.%s", layer, each[i].name);
            bind_one(s, own[count] = names[count], (size_t)number, &w, number + 1 == w.other);
            count++;
        }
    bind_one(s, own[count] = "embedding.word_embeddings.weight", MOST_LAYERS * EACH, &w, false);
    count++;
    if (w.more) {
        bind_one(s, own[count] = w.more, MOST_LAYERS * EACH + 1, &w, false);
        count++;
    }
    if (!w.no_group && !w.no_optimizer)
        bind_group(s, "0", own, count, &lr, &decay);
    if (!w.no_step)
        OK(ckpt_state_i64(s, "step", &step, &err));
    OK(ckpt_save(s, path, &to, &err));
    ckpt_state_free(s);
}

static void holds(const ckpt_reader *r, const char *name, const void *want, size_t size)
{
    static char is[MOST_LAYERS * SIZE * sizeof(float)];
    size_t i;
    OK(ckpt_reader_find(r, name, strlen(name), &i, &err));
    ck_assert_msg(ckpt_reader_tensor(r, i)->nbytes == size, "%s", name);
    OK(ckpt_reader_read((ckpt_reader *)r, i, is, size, &err));
    ck_assert_msg(memcmp(is, want, size) == 0, "%s has other values", name);
}

/* All of one key: layer by layer, 2 bytes an element of a half. */
static void holds_stack(const ckpt_reader *r, const what *w, size_t kind, size_t i)
{
    char name[200], want[MOST_LAYERS * SIZE * sizeof(float)];
    const size_t size = kind == 0 && w->half ? SIZE * 2 : SIZE * sizeof(float);
    for (size_t l = 0; l < (size_t)w->layers; l++)
        memcpy(want + l * size, values[kind][l * EACH + i], size);
    snprintf(name, sizeof name, "%sdecoder.layers.%s", heads[kind], each[i].key);
    const ckpt_tensor_info *t = find(r, name);
    ck_assert_msg(t && t->ndim == 2 && t->shape[0] == w->layers && t->shape[1] == SIZE, "%s", name);
    holds(r, name, want, size * (size_t)w->layers);
}

static void holds_all(const ckpt_reader *r, const what *w)
{
    ck_assert_str_eq(ckpt_reader_format(r), "torch-dist");
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < EACH; i++)
            if (k == 0 || (!w->no_optimizer && (k < 3 || w->masters)))
                holds_stack(r, w, k, i);
    holds(r, "embedding.word_embeddings.weight", values[0][MOST_LAYERS * EACH], w->half ? SIZE * 2 : SIZE * 4);
}

static void says(const ckpt_value *v, const char *text)
{
    ck_assert_ptr_nonnull(v);
    ck_assert_msg(v->kind == CKPT_V_STR && v->text.size == strlen(text) &&
                      memcmp(v->text.data, text, v->text.size) == 0,
                  "not %s", text);
}

START_TEST(layers_are_stacked)
{
    for (unsigned seed = 0; seed < 24; seed++) {
        what w = {.layers = 1 + (int)seed % MOST_LAYERS}, again;
        w.masters = seed % 3 == 0;
        w.half = w.masters;
        w.no_optimizer = seed % 5 == 4;
        fill(seed);
        save(at("n.safetensors"), w);
        options.target_world = 1 + seed % 4;
        migrates(at("n.safetensors"), "torch-dist", at("a%u", seed));
        ck_assert_int_eq(ckpt_report_find(report, "torch-dist-adam", NULL) != NULL, w.masters && !w.no_optimizer);
        ck_assert_int_eq(ckpt_report_find(report, "groups-lack", NULL) != NULL, !w.no_optimizer);
        ckpt_reader *r = opened(at("a%u", seed));
        holds_all(r, &w);
        ck_assert(root_value(r, "iteration")->integer == step);
        ckpt_reader_close(r);
        again = w;
        options.target_world = 3;
        migrates(at("a%u", seed), "torch-dist", at("b%u", seed));
        r = opened(at("b%u", seed));
        holds_all(r, &again);
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(forms_of_the_optimizer)
{
    const float seven = 7;
    what w = {.layers = 2};
    fill(1);
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), "torch-dist", at("a"));
    ckpt_reader *r = opened(at("a"));
    holds(r, "optimizer.state.common_step", &seven, sizeof seven);
    const ckpt_value *groups = ckpt_value_get(root_value(r, "optimizer"), "param_groups"), *none;
    ck_assert(groups && groups->item_count == 1 && ckpt_value_get(groups->items[0], "lr")->real == lr);
    ck_assert_ptr_null(ckpt_value_get(groups->items[0], "params")); /* megatron-core has none */
    ck_assert_ptr_null(ckpt_value_get(root_value(r, "content_metadata"), "distrib_optim_sharding_type"));
    none = root_value(r, "decoder.layers.self_attention.linear_qkv._extra_state/shard_1_2");
    ck_assert(none && none->kind == CKPT_V_LIST && none->item_count == 1 && none->items[0]->kind == CKPT_V_NONE);
    ck_assert_ptr_null(root_value(r, "decoder.layers.self_attention.linear_proj._extra_state/shard_1_2"));
    ckpt_reader_close(r);
    w.masters = w.half = true;
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), "torch-dist", at("b"));
    r = opened(at("b"));
    says(ckpt_value_get(root_value(r, "optimizer"), "param_state_sharding_type"), "fully_reshardable");
    says(ckpt_value_get(root_value(r, "content_metadata"), "distrib_optim_sharding_type"), "fully_reshardable");
    groups = ckpt_value_get(ckpt_value_get(root_value(r, "optimizer"), "optimizer"), "param_groups");
    ck_assert(groups && ckpt_value_get(groups->items[0], "step")->integer == step);
    ck_assert_ptr_null(find(r, "optimizer.state.common_step"));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(weights_alone)
{
    what w = {.layers = 3}, alone = w;
    alone.no_optimizer = true;
    fill(2);
    save(at("n.safetensors"), w);
    options.weights_only = true;
    migrates(at("n.safetensors"), "torch-dist", at("a"));
    ckpt_reader *r = opened(at("a"));
    holds_all(r, &alone);
    ck_assert_ptr_null(root_value(r, "optimizer"));
    ckpt_reader_close(r);
    options.weights_only = false;
    migrates(at("n.safetensors"), "torch-dist", at("b"));
    options.weights_only = true;
    migrates(at("b"), "torch-dist", at("c")); /* of a torch-dist likewise */
    r = opened(at("c"));
    holds_all(r, &alone);
    ck_assert_ptr_null(find(r, "optimizer.state.exp_avg.embedding.word_embeddings.weight"));
    ck_assert_ptr_nonnull(root_value(r, "decoder.layers.mlp.linear_fc2._extra_state/shard_0_3"));
    ckpt_reader_close(r);
}
END_TEST

static const struct {
    what model;
    ckpt_status status;
    const char *because;
} refusals[] = {
    {{.layers = 3, .lacks = EACH + 2}, CKPT_E_MISMATCH, "layer 1 has none"},
    {{.layers = 3, .lacks = 2 * EACH + 1}, CKPT_E_MISMATCH, "layer 2 has none"},
    {{.layers = 3, .lacks_moment = 3}, CKPT_E_MISMATCH, "layer 0 has none"},
    {{.layers = 3, .other = EACH + 2}, CKPT_E_MISMATCH, "layer 1 is int32"},
    {{.layers = 2, .more = "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight"},
     CKPT_E_MISMATCH,
     "layer 1 has another tensor"},
    {{.layers = 2, .more = "model.layers.0.self_attn.q_proj.weight"}, CKPT_E_UNSUPPORTED, "--layout"},
    {{.layers = 2, .more = "decoder.layers.0.mlp.experts.weight1"}, CKPT_E_UNSUPPORTED, "--layout megatron-moe-gemm"},
    {{.layers = 2, .more = "mtp.layers.0.enorm.weight"}, CKPT_E_UNSUPPORTED, "(MTP)"},
    {{.layers = 2, .more = "decoder.layers.0.mixer.in_proj.weight"}, CKPT_E_UNSUPPORTED, "Mamba"},
    {{.layers = 2, .more = "encoder.layers.0.mlp.linear_fc1.weight"}, CKPT_E_UNSUPPORTED, "(T5, BERT)"},
    {{.layers = 2, .more = "decoder.layers.01.mlp.linear_fc1.weight"}, CKPT_E_UNSUPPORTED, "none of the names"},
    {{.layers = 2, .more = "decoder.layers.999999.mlp.linear_fc1.weight"}, CKPT_E_LIMIT, "layers"},
    {{.layers = 2, .no_group = true}, CKPT_E_UNSUPPORTED, "no groups"},
    {{.layers = 2, .no_step = true}, CKPT_E_UNSUPPORTED, "how many steps"},
};

START_TEST(refused)
{
    save(at("n.safetensors"), refusals[_i].model);
    refuses(at("n.safetensors"), "torch-dist", refusals[_i].status, refusals[_i].because);
}
END_TEST

START_TEST(what_is_there_stays)
{
    struct stat st;
    fill(3);
    save(at("n.safetensors"), (what){.layers = 2});
    ck_assert_int_eq(mkdir(at("u"), 0777), 0);
    ck_assert_int_eq(mkdir(at("u/mine"), 0777), 0);
    ck_assert_int_eq(migrate(at("n.safetensors"), "torch-dist", at("u")), CKPT_E_EXISTS);
    ck_assert_int_eq(stat(at("u/mine"), &st), 0);
    options.force = false;
    migrates(at("n.safetensors"), "torch-dist", at("v"));
    ck_assert_int_eq(migrate(at("n.safetensors"), "torch-dist", at("v")), CKPT_E_EXISTS);
}
END_TEST

/* Of a torch-dist as source: names are its own, and what is missing or damaged is no source. */
START_TEST(its_own_kind)
{
    struct stat st;
    const char *prefix = "x.";
    fill(4);
    save(at("n.safetensors"), (what){.layers = 4});
    options.target_world = 2;
    migrates(at("n.safetensors"), "torch-dist", at("a"));
    options.add_prefix = prefix;
    ck_assert_int_eq(migrate(at("a"), "torch-dist", at("b")), CKPT_E_ARGUMENT);
    options.add_prefix = NULL;
    FILE *f = fopen(at("a/__1_0.distcp"), "r+b");
    ck_assert_msg(f != NULL, "%s: %s", at("a/__1_0.distcp"), strerror(errno));
    ck_assert(fseek(f, 600, SEEK_SET) == 0 && fputc(0x55, f) != EOF && fclose(f) == 0);
    ck_assert_int_lt(migrate(at("a"), "torch-dist", at("b")), 0);
    ck_assert_int_eq(unlink(at("a/__1_0.distcp")), 0);
    ck_assert_int_lt(migrate(at("a"), "torch-dist", at("b")), 0);
    ck_assert_int_ne(stat(at("b"), &st), 0);
}
END_TEST

/* ---- layer by layer once more, by a layout */

static void write_layout(void)
{
    FILE *f = fopen(at("layers.yaml"), "w");
    ck_assert_ptr_nonnull(f);
    fputs(
        "layout: 1\nsides: [layers, stacked]\nrules:\n"
        "- {layers: embedding.word_embeddings.weight, stacked: embedding.word_embeddings.weight}\n"
        "- layers: \"decoder.layers.<i>.self_attention.<r:rest>\"\n  stacked: \"decoder.layers.self_attention.<r:rest>\"\n"
        "  steps:\n  - stack: {dim: 0, over: i}\n"
        "- layers: \"decoder.layers.<i>.mlp.<r:rest>\"\n  stacked: \"decoder.layers.mlp.<r:rest>\"\n"
        "  steps:\n  - stack: {dim: 0, over: i}\n",
        f);
    ck_assert_int_eq(fclose(f), 0);
}

/* Groups that name no parameters keep what they say; objects of a torch-dist are those of the next one, and are there once. */
START_TEST(layers_come_back)
{
    for (int k = 0; k < 2; k++) {
        char layers[200], again[200];
        what w = {.layers = 3};
        w.masters = w.half = k == 1;
        fill(5);
        write_layout();
        save(at("n.safetensors"), w);
        migrates(at("n.safetensors"), "torch-dist", at("a%d", k));
        snprintf(layers, sizeof layers, "%s", at("layers%d.pt", k));
        snprintf(again, sizeof again, "%s", at("again%d", k));
        char *layout = strdup(at("layers.yaml"));
        options.layout = layout;
        migrates(at("a%d", k), "torch", layers);
        options.layout = NULL;
        free(layout);
        ckpt_reader *r = opened(layers);
        const ckpt_value *groups = root_value(r, "saved_param_groups");
        ck_assert(groups && groups->item_count == 1 && ckpt_value_get(groups->items[0], "lr")->real == lr);
        ck_assert_ptr_nonnull(find(r, "model.decoder.layers.2.mlp.linear_fc2.weight"));
        ckpt_reader_close(r);
        migrates(layers, "torch-dist", again);
        r = opened(again);
        holds_all(r, &w);
        ck_assert_ptr_nonnull(root_value(r, "decoder.layers.self_attention.linear_qkv._extra_state/shard_1_3"));
        ckpt_reader_close(r);
    }
}
END_TEST

/* By way of a ckpt file, which keeps the groups as they are there: nothing is made up, and nothing is there twice. */
START_TEST(layers_come_back_by_ckpt)
{
    for (int k = 0; k < 4; k++) {
        char middle[200], again[200];
        what w = {.layers = 3};
        w.masters = w.half = k % 2 == 1;
        fill(6);
        write_layout();
        save(at("n.safetensors"), w);
        migrates(at("n.safetensors"), "torch-dist", at("a%d", k));
        snprintf(middle, sizeof middle, "%s", at("middle%d.safetensors", k));
        snprintf(again, sizeof again, "%s", at("again%d", k));
        char *layout = strdup(at("layers.yaml"));
        options.layout = k < 2 ? layout : NULL;
        migrates(at("a%d", k), "ckpt", middle);
        if (k > 1) { /* stacked in the file: parted on the way */
            ck_assert_int_eq(migrate(middle, "torch-dist", again), CKPT_E_UNSUPPORTED);
            ck_assert_msg(strstr(err.message, "--layout megatron-layers"), "%s", err.message);
        }
        options.layout = k < 2 ? NULL : layout;
        migrates(middle, "torch-dist", again);
        options.layout = NULL;
        free(layout);
        ckpt_reader *r = opened(again);
        holds_all(r, &w);
        ck_assert_ptr_null(root_value(r, "optimizer.state.common_step"));
        ckpt_reader_close(r);
        are_the_same(at("a%d", k), again);
    }
}
END_TEST

START_TEST(short_of_memory)
{
    for (int k = 0; k < 2; k++) {
        what w = {.layers = 2, .half = k == 0, .masters = k == 0};
        char to[200];
        fill((unsigned)k);
        save(at("n.safetensors"), w);
        if (k == 1)
            migrates(at("n.safetensors"), "torch-dist", at("s"));
        each_allocation(at("%s", k == 0 ? "n.safetensors" : "s"), 100000, to, sizeof to);
        ckpt_reader *r = opened(to);
        holds_all(r, &w);
        ckpt_reader_close(r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_megatron");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup_new, teardown);
    tcase_add_test(t, layers_are_stacked);
    tcase_add_test(t, forms_of_the_optimizer);
    tcase_add_test(t, weights_alone);
    tcase_add_loop_test(t, refused, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(t, what_is_there_stays);
    tcase_add_test(t, its_own_kind);
    tcase_add_test(t, layers_come_back);
    tcase_add_test(t, layers_come_back_by_ckpt);
    tcase_add_test(t, short_of_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
