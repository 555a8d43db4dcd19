/* migrate/to_llmc.c - a step of llm.c, which `train_gpt2cu -o DST -y 1` goes on from (train_gpt2.cu, load_state):
 *
 *   model_00000004.bin          the weights, of one dtype: float32, or bfloat16
 *   state_00000004_00000.bin    of each rank: its part of the moments and of the masters, its random state, its place in the data
 *   DONE_00000004               empty: llm.c goes on from the newest step that has one
 *
 * With --weights-only it is the model's file alone, which `train_gpt2cu -e DST` starts from. The source's tensors have llm.c's names
 * (format/llmc/header.c) by now, whatever it was. */
#include "migrate/to_llmc.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/rank_state.h"
#include "engine/stream.h"
#include "format/table.h"
#include "migrate/layout.h"

typedef ckpt__llmc_target target;

static const char *const kinds[CKPT__LLMC_KINDS] = {"exp_avg", "exp_avg_sq", "fp32"};
static const ckpt_role roles[CKPT__LLMC_KINDS] = {CKPT_ROLE_EXP_AVG, CKPT_ROLE_EXP_AVG_SQ, CKPT_ROLE_MASTER};
static const char *const lists[CKPT__LLMC_LISTS] = {".shard_indices", ".intra_shard_indices", ".mt19937"};

static ckpt_status no_memory(const target *t)
{
    return ckpt__migration_no_memory(t->err);
}

static const ckpt_tensor_info *info_of(const target *t, size_t tensor)
{
    return &t->m->index->tensors[tensor].info;
}

/* ---- which tensor is which */

static size_t number_of(const target *t, ckpt_str name)
{
    size_t i = 0;
    while (i < CKPT__LLMC_TENSORS && !(name.data && ckpt__str_is(name, ckpt__llmc_tensor_of(&t->parts.model, i).name)))
        i++;
    return i;
}

/* A place in the files for the tensor; NULL: there is none. */
static size_t *place_of(target *t, const ckpt_tensor_info *info)
{
    const size_t own = number_of(t, info->name), param = number_of(t, info->param);
    if (own < CKPT__LLMC_TENSORS)
        return &t->parts.weights[own];
    for (size_t k = 0; !t->alone && param < CKPT__LLMC_TENSORS && k < CKPT__LLMC_KINDS; k++)
        if (info->role == roles[k])
            return &t->parts.states[k][param];
    for (size_t k = 0; !t->alone && k < CKPT__LLMC_LISTS; k++) {
        int64_t rank = ckpt__number_between(info->name, "loader.", lists[k]);
        if (rank >= 0 && rank < t->ranks)
            return &t->lists[rank][k];
    }
    return NULL;
}

/* llm.c counts steps once for all: each parameter must have counted as many. */
static ckpt_status check_step(const target *t, size_t tensor)
{
    double own = 0;
    bool read = false;
    char shown[200];
    const ckpt_tensor_info *info = info_of(t, tensor);
    ckpt_status status = ckpt__read_number(t->m->reader->source, t->m->from, tensor, true, &own, &read, t->err);
    if (status < 0 || (read && own == (double)t->step))
        return status;
    ckpt__escape(shown, sizeof shown, info->name.data, info->name.size);
    return ckpt__fail(
        t->err, CKPT_E_MISMATCH, t->m->src,
        "'%s' is %g and the checkpoint's step is %lld: llm.c has one step for all parameters, and corrects "
        "the moments by it",
        shown, own, (long long)t->step);
}

/* The others are lost: named together. */
static ckpt_status place_tensors(target *t)
{
    ckpt__migration *m = t->m;
    ckpt__buf odd = {0};
    size_t kept = 0, count = 0;
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const size_t i = m->chosen[k];
        const ckpt_tensor_info *info = info_of(t, i);
        size_t *place = place_of(t, info);
        if (place && *place == SIZE_MAX) {
            *place = i;
            m->chosen[kept++] = i;
        } else if (info->role == CKPT_ROLE_STEP && number_of(t, info->param) < CKPT__LLMC_TENSORS) {
            status = check_step(t, i);
            m->ledger.rows[i].fate = CKPT__FATE_IN_HEADER;
        } else {
            m->ledger.rows[i].fate = CKPT__FATE_LOST;
            ckpt__put_name(&odd, count++, info->name);
        }
    }
    m->chosen_count = kept;
    if (status == CKPT_OK && odd.failed)
        status = no_memory(t);
    if (status == CKPT_OK && count)
        status = ckpt__lose(m, t->err, "%zu tensor%s for which llm.c has no place (%s)", count, count == 1 ? "" : "s",
                            odd.data);
    ckpt__buf_free(&odd);
    return status;
}

/* ---- the model */

/* A setting of the model that no shape tells: among the values, in the settings of transformers, or a variable of the layout. */
static ckpt_status find_setting(const target *t, const char *key, const char *in_config, const char *var, int64_t *out)
{
    char unused[200];
    int64_t laid = 0;
    if (t->m->followed && !ckpt__layout_value(t->m->followed->match, ckpt__s(var), &laid, unused, sizeof unused))
        laid = 0;
    const ckpt_value *root = t->m->from->root, *v = ckpt__at(ckpt__at(root, "config.json"), in_config);
    v = v ? v : ckpt__at(ckpt__at(root, "config"), in_config);
    bool said = ckpt__llmc_number(t, key, out);
    if (!said && v && v->kind == CKPT_V_INT) {
        *out = v->integer;
        said = true;
    }
    if (said && laid && *out != laid)
        return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src,
                          "its %s is %lld, and the layout's variable %s is %lld: they are to be the same", key,
                          (long long)*out, var, (long long)laid);
    if (!said && laid)
        *out = laid;
    if (said || laid)
        return CKPT_OK;
    return ckpt__fail(
        t->err, CKPT_E_UNSUPPORTED, t->m->src,
        "llm.c's header asks for %s, which no tensor tells: the checkpoint has neither a value '%s' nor a "
        "config.json with '%s', and no layout gives its variable %s (--var %s=N)",
        key, key, in_config, var, var);
}

static ckpt_status lacks_tensor(const target *t, const char *name)
{
    return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                      "llm.c's tensors are wte, wpe, ln1w, ln1b, qkvw, ..., and the checkpoint has no '%s'. Those of a "
                      "GPT-2 of transformers get these names by --layout, others by --rename",
                      name);
}

/* The sizes by the shapes of four tensors. */
static ckpt_status measure(target *t)
{
    ckpt__llmc_model *model = &t->parts.model;
    enum { WTE, WPE, LN1W };
    const size_t *w = t->parts.weights;
    for (size_t i = 0; i < CKPT__LLMC_TENSORS; i++)
        if (w[i] == SIZE_MAX)
            return lacks_tensor(t, ckpt__llmc_tensor_of(model, i).name);
    const ckpt_tensor_info *wte = info_of(t, w[WTE]), *wpe = info_of(t, w[WPE]), *ln = info_of(t, w[LN1W]);
    if (wte->ndim != 2 || wpe->ndim != 2 || ln->ndim != 2)
        return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src,
                          "wte, wpe and ln1w have %u, %u and %u dimensions, where llm.c has two: of all layers in one "
                          "tensor (--layout)",
                          wte->ndim, wpe->ndim, ln->ndim);
    model->padded_vocab = wte->shape[0];
    model->channels = wte->shape[1];
    model->max_t = wpe->shape[0];
    model->layers = ln->shape[0];
    model->dtype = wte->dtype;
    ckpt_status status = find_setting(t, "vocab_size", "vocab_size", "vocab", &model->vocab);
    if (status == CKPT_OK)
        status = find_setting(t, "num_heads", "n_head", "heads", &model->heads);
    if (status == CKPT_OK)
        status = ckpt__llmc_check_sizes(model, "it", t->m->src, t->err);
    if (status == CKPT_OK && !ckpt__llmc_numel(model, &model->numel))
        status = ckpt__fail(t->err, CKPT_E_LIMIT, t->m->src, "the tensors together are larger than a file can be");
    return status;
}

/* What the values say of the sizes must be so. */
static ckpt_status check_values(const target *t)
{
    const ckpt__llmc_model *m = &t->parts.model;
    const struct {
        const char *key;
        int64_t is;
    } sizes[] = {{"max_seq_len", m->max_t},
                 {"padded_vocab_size", m->padded_vocab},
                 {"num_layers", m->layers},
                 {"channels", m->channels}};
    int64_t said;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (ckpt__llmc_number(t, sizes[i].key, &said) && said != sizes[i].is)
            return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src,
                              "its value %s is %lld, and the tensors' shapes say %lld", sizes[i].key, (long long)said,
                              (long long)sizes[i].is);
    if (m->channels % m->heads)
        return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src, "its %lld channels cannot be divided among %lld heads",
                          (long long)m->channels, (long long)m->heads);
    const int64_t together = m->dtype == CKPT_F32 ? 4 : 8;
    if (m->padded_vocab % together)
        return ckpt__fail(
            t->err, CKPT_E_UNSUPPORTED, t->m->src,
            "wte has %lld rows: train_gpt2cu takes a vocabulary that is padded to a multiple of %lld (llm.c "
            "pads to 128, with rows of zeros), and rows are not made up here",
            (long long)m->padded_vocab, (long long)together);
    return CKPT_OK;
}

static ckpt_status check_tensor(const target *t, size_t i, size_t tensor, ckpt_dtype dtype, const char *what)
{
    const ckpt__llmc_tensor want = ckpt__llmc_tensor_of(&t->parts.model, i);
    const ckpt_tensor_info *is = info_of(t, tensor);
    char have[120], shape[120], shown[120];
    ckpt__escape(shown, sizeof shown, is->name.data, is->name.size);
    if (!ckpt__same_shape(is->shape, is->ndim, want.shape, want.ndim)) {
        ckpt__shape_text(have, sizeof have, is->shape, is->ndim);
        ckpt__shape_text(shape, sizeof shape, want.shape, want.ndim);
        return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src, "'%s' has the shape %s, and llm.c's has %s", shown, have,
                          shape);
    }
    if (is->dtype == dtype)
        return CKPT_OK;
    return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->src, "'%s' is %s: %s (--cast '%s=%s')", shown,
                      ckpt_dtype_name(is->dtype), what, shown, ckpt_dtype_name(dtype));
}

static ckpt_status check_model(const target *t)
{
    const ckpt_dtype dtype = t->parts.model.dtype;
    char what[160];
    ckpt_status status = CKPT_OK;
    if (dtype != CKPT_F32 && dtype != CKPT_BF16)
        return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                          "the weights are %s, and llm.c's files are float32 or bfloat16: %s--cast '*=bfloat16'",
                          ckpt_dtype_name(dtype), t->alone ? "" : "--cast 'optimizer.*=float32' ");
    snprintf(what, sizeof what, "llm.c has all weights of one dtype, and wte is %s", ckpt_dtype_name(dtype));
    for (size_t i = 0; status == CKPT_OK && i < CKPT__LLMC_TENSORS; i++)
        status = check_tensor(t, i, t->parts.weights[i], dtype, what);
    return status;
}

/* ---- the optimizer */

/* All 16 of a kind, or of masters none. The names are those that llm.c's reader gives. */
static ckpt_status check_kind(target *t, size_t kind)
{
    ckpt_status status = CKPT_OK;
    size_t first = SIZE_MAX, missing = SIZE_MAX;
    for (size_t i = 0; i < CKPT__LLMC_TENSORS; i++) {
        const bool there = t->parts.states[kind][i] != SIZE_MAX;
        first = there && first == SIZE_MAX ? i : first;
        missing = !there && missing == SIZE_MAX ? i : missing;
    }
    if (kind + 1 == CKPT__LLMC_KINDS && first == SIZE_MAX)
        return CKPT_OK;
    if (missing != SIZE_MAX)
        return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->src,
                          "llm.c's state has the %s of every tensor, and that of '%s' is not in the checkpoint; "
                          "--weights-only writes the model's file, which train_gpt2cu -e starts from",
                          kinds[kind], ckpt__llmc_tensor_of(&t->parts.model, missing).name);
    t->master = t->master || kind + 1 == CKPT__LLMC_KINDS;
    for (size_t i = 0; status == CKPT_OK && i < CKPT__LLMC_TENSORS; i++) {
        const size_t tensor = t->parts.states[kind][i];
        const char *name = ckpt__llmc_tensor_of(&t->parts.model, i).name;
        char full[80];
        status = check_tensor(t, i, tensor, CKPT_F32, "llm.c has moments and masters as float32");
        snprintf(full, sizeof full, "optimizer.%s.%s", name, kinds[kind]);
        ckpt_str kept = ckpt__arena_str(t->m->index->arena, full, strlen(full));
        if (!kept.data)
            return no_memory(t);
        t->m->index->tensors[tensor].info.name = kept;
    }
    return status;
}

static ckpt_status check_states(target *t)
{
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < CKPT__LLMC_KINDS; k++)
        status = check_kind(t, k);
    if (status == CKPT_OK && !t->master &&
        !ckpt__report_add(
            t->m->report, CKPT_SEVERITY_WARNING, "llmc-resume", NULL, "train_gpt2cu -w 0",
            "the checkpoint has no masters: train_gpt2cu asks for them (-w 1 is its default), and ends where there are none"))
        status = no_memory(t);
    return status;
}

/* ---- what llm.c does not keep */

static bool is_known(ckpt_str key)
{
    static const char *const known[] = {"max_seq_len",
                                        "vocab_size",
                                        "padded_vocab_size",
                                        "num_layers",
                                        "num_heads",
                                        "channels",
                                        "step",
                                        "world_size",
                                        "use_master_weights",
                                        "should_shuffle",
                                        "rng_state",
                                        "rng_state_last_update",
                                        "current_shard_idx",
                                        "current_sample_idx",
                                        "zero_stage",
                                        "optimizer",
                                        "ckpt.outside",
                                        "config.json"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ckpt__str_is(key, known[i]))
            return true;
    return false;
}

/* Of the first group, as the others have the same as a rule; a group that lists its parameters alone has none. */
static void name_settings(const ckpt_value *optimizer, ckpt__buf *names, size_t *count)
{
    const ckpt_value *groups = ckpt__at(optimizer, "groups"),
                     *group =
                         groups && groups->kind == CKPT_V_DICT && groups->entry_count ? groups->entries[0].value : NULL;
    for (size_t i = 0; i < optimizer->entry_count; i++)
        if (optimizer->entries[i].value != groups && optimizer->entries[i].key->kind == CKPT_V_STR)
            ckpt__put_name(names, (*count)++, optimizer->entries[i].key->text);
    for (size_t i = 0; group && group->kind == CKPT_V_DICT && i < group->entry_count; i++)
        if (group->entries[i].key->kind == CKPT_V_STR && !ckpt__str_is(group->entries[i].key->text, "params"))
            ckpt__put_name(names, (*count)++, group->entries[i].key->text);
}

/* train_gpt2cu has its learning rate and the like on its command line. */
static ckpt_status lose_optimizer(const target *t)
{
    const ckpt_value *optimizer = ckpt__at(t->m->root, "optimizer");
    ckpt__buf names = {0};
    size_t count = 0;
    if (!optimizer || optimizer->kind != CKPT_V_DICT)
        return CKPT_OK;
    name_settings(optimizer, &names, &count);
    ckpt_status status = names.failed ? no_memory(t) : CKPT_OK;
    if (status == CKPT_OK && count)
        status = ckpt__lose(t->m, t->err, "the optimizer's settings (%s), which train_gpt2cu has on its command line",
                            names.data);
    ckpt__buf_free(&names);
    return status;
}

static ckpt_status lose_values(const target *t)
{
    const ckpt_value *root = t->m->root;
    ckpt__buf names = {0};
    size_t count = 0;
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : ckpt__s("a value whose key is not text");
        if (!is_known(key) && e->value->kind != CKPT_V_TENSOR &&
            !(e->value->kind == CKPT_V_DICT && !e->value->entry_count))
            ckpt__put_name(&names, count++, key);
    }
    ckpt_status status = names.failed ? no_memory(t) : lose_optimizer(t);
    if (status == CKPT_OK && count)
        status = ckpt__lose(t->m, t->err, "%zu value%s for which llm.c has no place (%s)", count, count == 1 ? "" : "s",
                            names.data);
    ckpt__buf_free(&names);
    return status;
}

/* ---- files */

static ckpt_status add_files(target *t)
{
    ckpt__recipe *recipe = NULL;
    char name[60];
    snprintf(name, sizeof name, "model_%08lld.bin", (long long)t->step);
    ckpt_status status = ckpt__llmc_write_model(&t->parts, &recipe, t->err);
    if (status == CKPT_OK)
        status = ckpt__out_add_recipe(t->w, t->alone ? NULL : name, recipe);
    for (int64_t r = 0; !t->alone && status == CKPT_OK && r < t->ranks; r++) {
        snprintf(name, sizeof name, "state_%08lld_%05lld.bin", (long long)t->step, (long long)r);
        status = ckpt__llmc_write_state(&t->parts, &t->states[r], t->lists[r], &recipe, t->err);
        if (status == CKPT_OK)
            status = ckpt__out_add_recipe(t->w, name, recipe);
    }
    snprintf(name, sizeof name, "DONE_%08lld", (long long)t->step);
    return status == CKPT_OK && !t->alone ? ckpt__out_add_recipe(t->w, name, NULL) : status;
}

static ckpt_status plan(target *t)
{
    ckpt_status status = CKPT_OK;
    t->step = t->m->index->step >= 0 ? t->m->index->step : t->m->from->step;
    if (!t->alone && t->step < 0)
        return ckpt__fail(
            t->err, CKPT_E_UNSUPPORTED, t->m->src,
            "it does not say which step it is of: llm.c corrects the moments by it, and names the files by it");
    if (!t->alone && t->step > INT32_MAX)
        return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->src,
                          "it is of step %lld, and llm.c's header has 32 bits for it", (long long)t->step);
    if (!t->alone)
        status = ckpt__llmc_plan_ranks(t);
    if (status == CKPT_OK)
        status = place_tensors(t);
    if (status == CKPT_OK)
        status = measure(t);
    if (status == CKPT_OK)
        status = check_values(t);
    if (status == CKPT_OK)
        status = check_model(t);
    if (status == CKPT_OK && !t->alone)
        status = check_states(t);
    if (status == CKPT_OK && !t->alone)
        status = ckpt__llmc_plan_states(t);
    if (status == CKPT_OK && !t->alone)
        status = lose_values(t);
    return status;
}

ckpt_status ckpt__llmc_files(ckpt__out *w)
{
    target t = {.w = w, .m = w->m, .err = w->err, .alone = w->m->options.weights_only};
    t.parts.index = w->m->index;
    t.root = t.alone ? w->m->from->root : w->m->root;
    for (size_t i = 0; i < CKPT__LLMC_TENSORS; i++) {
        t.parts.weights[i] = SIZE_MAX;
        for (size_t k = 0; k < CKPT__LLMC_KINDS; k++)
            t.parts.states[k][i] = SIZE_MAX;
    }
    ckpt_status status = plan(&t);
    if (status == CKPT_OK)
        status = add_files(&t);
    free(t.states);
    free(t.lists);
    return status;
}
