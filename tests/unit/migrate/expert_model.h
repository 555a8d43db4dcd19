/* migrate/expert_model.h - a model with experts under megatron-core's names, with Adam's states, as a trainer in C saves it. */
#ifndef EXPERT_MODEL_H
#define EXPERT_MODEL_H
#include "torch_dist_checks.h"

enum { MOST = 400, NAME = 160 };

/* A source. dense: so many layers in front have no experts. grouped: names of TEGroupedMLP; fused: names of Transformer Engine's layers. */
typedef struct what {
    int layers, experts, dense;
    bool grouped, fused, masters, no_optimizer, one_group;
    const char *lacks, *odd, *also; /* parameters: one that is not there, one of another dtype, one more */
    int named;                      /* groups say is_expert_parallel (1), and all that tells them apart (2) */
} what;

static char names[MOST][NAME];
static float values[KINDS][MOST][SIZE];
static size_t count;
static int64_t step = 5;
static double lr = 0.5, decays[3] = {0.25, 0, 0.25}, wd_mult[3] = {1, 0, 1}, lr_mult = 1;
static bool yes = true, no = false;

static void set_up(void)
{
    setup_new();
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < MOST; i++)
            for (size_t e = 0; e < SIZE; e++)
                values[k][i][e] = (float)(1000 * k + i) + (float)e / 8;
}

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ck_assert_uint_lt(count, MOST);
    ck_assert_int_lt(vsnprintf(names[count++], NAME, format, args), NAME);
    va_end(args);
}

static void expert_name(const what *w, int layer, int expert, const char *part, char *out, size_t size)
{
    if (w->grouped)
        snprintf(out, size, "decoder.layers.%d.mlp.experts.%s%d", layer, part, expert);
    else
        snprintf(out, size, "decoder.layers.%d.mlp.experts.local_experts.%d.%s", layer, expert, part);
}

static const char *const parts[] = {"linear_fc1.weight", "linear_fc2.weight", "linear_fc2.bias"};
enum { PARTS = 3 };

static void add_layer(const what *w, int l)
{
    char name[NAME];
    add("decoder.layers.%d.%s", l, w->fused ? "self_attention.linear_qkv.layer_norm_weight" : "input_layernorm.weight");
    add("decoder.layers.%d.self_attention.linear_qkv.weight", l);
    if (l < w->dense) {
        add("decoder.layers.%d.%s", l, w->fused ? "mlp.linear_fc1.layer_norm_weight" : "pre_mlp_layernorm.weight");
        add("decoder.layers.%d.mlp.linear_fc1.weight", l);
        return;
    }
    add("decoder.layers.%d.pre_mlp_layernorm.weight", l);
    add("decoder.layers.%d.mlp.router.weight", l);
    add("decoder.layers.%d.mlp.router.expert_bias", l);
    add("decoder.layers.%d.mlp.shared_experts.gate_weight", l);
    for (int e = w->experts - 1; e >= 0; e--) /* in another order than they are stacked */
        for (int p = 0; p < PARTS; p++) {
            expert_name(w, l, e, parts[p], name, sizeof name);
            add("%s", name);
        }
}

static bool is_expert(const char *name)
{
    return strstr(name, ".experts.") != NULL;
}

static bool is_norm(const char *name)
{
    return strstr(name, "norm") || strstr(name, "bias");
}

/* Groups: weights, what has no weight decay, and the experts where they have one of their own. */
static int group_of(const what *w, const char *name)
{
    return w->one_group ? 0 : w->named == 1 && is_expert(name) && !is_norm(name) ? 2 : is_norm(name);
}

static void bind_groups(ckpt_state *s, const what *w)
{
    for (int g = 0; g < 3; g++) {
        const char *own[MOST];
        char name[12], key[80];
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
            if (group_of(w, names[i]) == g && (!w->lacks || strcmp(names[i], w->lacks) != 0))
                own[n++] = names[i];
        if (!n)
            continue;
        snprintf(name, sizeof name, "%d", g);
        bind_group(s, name, own, n, &lr, &decays[g]);
        const struct {
            const char *key;
            double *number;
            bool *flag;
            bool said;
        } more[] = {{"wd_mult", &wd_mult[g], NULL, w->named == 2},
                    {"lr_mult", &lr_mult, NULL, w->named == 2},
                    {"is_decoupled_lr", NULL, &no, w->named == 2},
                    {"is_expert_parallel", NULL, g == 2 ? &yes : &no, w->named > 0}};
        for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
            snprintf(key, sizeof key, "optimizer.groups.%s.%s", name, more[k].key);
            if (more[k].said)
                OK(more[k].flag ? ckpt_state_bool(s, key, more[k].flag, &err)
                                : ckpt_state_f64(s, key, more[k].number, &err));
        }
    }
}

static void save(const char *path, what w)
{
    ckpt_state *s = ckpt_state_new();
    ckpt_save_options to = CKPT_SAVE_OPTIONS_INIT;
    to.no_sync = true;
    count = 0;
    for (int l = w.layers - 1; l >= 0; l--)
        add_layer(&w, l);
    add("embedding.word_embeddings.weight");
    if (w.also)
        add("%s", w.also);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < KINDS; k++) {
            const bool odd = w.odd && strcmp(names[i], w.odd) == 0 && k == 0;
            if ((w.lacks && strcmp(names[i], w.lacks) == 0) || (k > 0 && w.no_optimizer) || (k == 3 && !w.masters))
                continue;
            bind(s, k ? NULL : names[i], k ? names[i] : NULL, roles[k], odd ? CKPT_I32 : CKPT_F32, values[k][i]);
        }
    if (!w.no_optimizer)
        bind_groups(s, &w);
    OK(ckpt_state_i64(s, "step", &step, &err));
    OK(ckpt_save(s, path, &to, &err));
    ckpt_state_free(s);
}
#endif
