/* migrate/adapter.c - a LoRA adapter of PEFT: what its settings ask for, and what its keys are. Facts: peft 0.21.2,
 * tuners/lora/config.py (options), tuners/lora/layer.py (scaling, merge), utils/save_and_load.py (keys), utils/other.py
 * (get_pattern_key). An option that is not known here may change what is merged, so it is refused by its name. */
#include "migrate/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "format/folder/folder.h"
#include "map/rename.h"

#define ELSEWHERE "merge it with PEFT (merge_and_unload), and give the merged model"

/* ---- the settings */

/* Options that change no merged byte, whatever they say: which modules are trained, how the training began, and those that are read
 * below. */
static const char harmless[] =
    "auto_mapping base_model_name_or_path bias corda_config eva_config exclude_modules fan_in_fan_out inference_mode "
    "init_lora_weights layers_pattern layers_to_transform lora_alpha lora_bias lora_dropout lora_ga_config loftq_config "
    "megatron_core modules_to_save peft_type peft_version qalora_group_size r rank_pattern alpha_pattern revision "
    "runtime_config target_modules task_type use_dora use_rslora";

/* null, false, 0, "", [] and {}: an option that is not used. */
static bool is_unset(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_NONE:
        return true;
    case CKPT_V_BOOL:
        return !v->boolean;
    case CKPT_V_INT:
        return v->integer == 0;
    case CKPT_V_STR:
        return v->text.size == 0;
    case CKPT_V_LIST:
        return v->item_count == 0;
    case CKPT_V_DICT:
        return v->entry_count == 0;
    default:
        return false;
    }
}

static ckpt_status check_options(const ckpt__adapter *a, ckpt_error *err)
{
    for (size_t i = 0; i < a->config->entry_count; i++) {
        const ckpt_entry *e = &a->config->entries[i];
        char name[100];
        if (e->key->kind != CKPT_V_STR || ckpt__str_among(e->key->text, harmless) || is_unset(e->value))
            continue;
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, a->path,
                          "its adapter_config.json has the option '%s', which is not merged here: " ELSEWHERE,
                          ckpt__escape(name, sizeof name, e->key->text.data, e->key->text.size));
    }
    return CKPT_OK;
}

/* Those that begin with a part of the base's weights taken out of them need the base as it was changed: PEFT computes that again as it
 * loads them. */
static ckpt_status check_init(const ckpt__adapter *a, ckpt_error *err)
{
    const ckpt_value *init = ckpt_value_get(a->config, "init_lora_weights");
    char name[100];
    if (!init || init->kind != CKPT_V_STR || ckpt__str_among(init->text, "gaussian eva orthogonal"))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, a->path,
        "init_lora_weights is '%s', which may change the base's weights as PEFT loads the adapter: " ELSEWHERE
        ", or save it with path_initial_model_for_weight_conversion",
        ckpt__escape(name, sizeof name, init->text.data, init->text.size));
}

static ckpt_status read_config(ckpt__adapter *a, ckpt_error *err)
{
    const ckpt_value *root = a->reader->index->root;
    char name[100];
    a->config = root ? ckpt_value_get(root, "adapter_config.json") : NULL;
    if (!a->config || a->config->kind != CKPT_V_DICT)
        return ckpt__fail(
            err, CKPT_E_FORMAT, a->path,
            "it is not an adapter of PEFT: it has no adapter_config.json beside adapter_model.safetensors (or .bin); "
            "give the folder that save_pretrained wrote");
    const ckpt_value *type = ckpt_value_get(a->config, "peft_type");
    if (!type || type->kind != CKPT_V_STR)
        return ckpt__fail(err, CKPT_E_FORMAT, a->path, "its adapter_config.json has no peft_type");
    if (!ckpt__str_is(type->text, "LORA"))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, a->path,
                          "its peft_type is '%s': only LORA is merged here; " ELSEWHERE,
                          ckpt__escape(name, sizeof name, type->text.data, type->text.size));
    ckpt_status status = check_options(a, err);
    return status == CKPT_OK ? check_init(a, err) : status;
}

static bool number_of(const ckpt_value *v, double *out)
{
    if (v && v->kind == CKPT_V_INT)
        *out = (double)v->integer;
    else if (v && v->kind == CKPT_V_FLOAT)
        *out = v->real;
    else
        return false;
    return isfinite(*out);
}

static bool is_true(const ckpt__adapter *a, const char *option)
{
    const ckpt_value *v = ckpt_value_get(a->config, option);
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

/* PEFT's get_pattern_key: the first key that the module's name matches to its end, at its beginning or behind a dot. */
static ckpt_status of_pattern(const ckpt__adapter *a, const char *option, ckpt_str module, const ckpt_value **out,
                              ckpt_error *err)
{
    const ckpt_value *patterns = ckpt_value_get(a->config, option);
    ckpt_status status = CKPT_OK;
    *out = NULL;
    for (size_t i = 0; status == CKPT_OK && !*out && patterns && i < patterns->entry_count; i++) {
        const ckpt_entry *e = &patterns->entries[i];
        ckpt__buf text = {0}, renamed = {0};
        ckpt__rename *rule = NULL;
        bool matched = false;
        if (e->key->kind != CKPT_V_STR)
            continue;
        ckpt__buf_add(&text, "(.*\\.)?(", 8);
        ckpt__buf_add(&text, e->key->text.data, e->key->text.size);
        ckpt__buf_char(&text, ')');
        if (text.failed)
            status = ckpt__migration_no_memory(err);
        if (status == CKPT_OK)
            status = ckpt__rename_new(text.data, text.size, "", 0, &rule, err);
        if (status == CKPT_OK)
            status = ckpt__rename_apply(rule, module.data, module.size, &matched, &renamed, err);
        if (status < 0)
            ckpt__error_prefix(err, "%s of its adapter_config.json", option);
        *out = matched ? e->value : NULL;
        ckpt__rename_free(rule);
        ckpt__buf_free(&text);
        ckpt__buf_free(&renamed);
    }
    return status;
}

static ckpt_status setting_of(const ckpt__adapter *a, const char *option, const char *patterns, ckpt_str module,
                              double *out, ckpt_error *err)
{
    const ckpt_value *v;
    ckpt_status status = of_pattern(a, patterns, module, &v, err);
    if (status < 0)
        return status;
    if (!number_of(v ? v : ckpt_value_get(a->config, option), out) || *out == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, a->path, "its adapter_config.json says no number for %s", option);
    return CKPT_OK;
}

/* ---- the keys */

static const ckpt_tensor_info *info_of(const ckpt__adapter *a, int64_t i)
{
    return &a->reader->index->tensors[i].info;
}

static ckpt_str last_key(const ckpt_tensor_info *t)
{
    return t->path.count ? t->path.keys[t->path.count - 1].text : t->name;
}

static ckpt_status no_key(const ckpt__adapter *a, int64_t tensor, const char *why, ckpt_error *err)
{
    char shown[300];
    ckpt_str key = last_key(info_of(a, tensor));
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, a->path, "its key '%s' %s: " ELSEWHERE,
                      ckpt__escape(shown, sizeof shown, key.data, key.size), why);
}

/* The part of a target, which is made where there is none yet. */
static ckpt_status part_of(ckpt__adapter *a, ckpt_str module, const char *tail, ckpt__merge_kind kind, int64_t tensor,
                           ckpt__merge_part **out, ckpt_error *err)
{
    ckpt__buf text = {0};
    size_t at;
    ckpt__buf_add(&text, module.data, module.size);
    ckpt__buf_add(&text, tail, strlen(tail));
    ckpt_str target = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(a->arena, text.data, text.size);
    ckpt__buf_free(&text);
    ckpt_str named = ckpt__arena_str(a->arena, module.data, module.size);
    int put = target.data && named.data ? ckpt__hash_put(a->by_target, target.data, target.size, a->count, &at) : -1;
    if (put < 0 || !ckpt__grow(&a->parts, &a->capacity, a->count + 1, sizeof *a->parts))
        return ckpt__migration_no_memory(err);
    if (put == 1)
        a->parts[at = a->count++] = (ckpt__merge_part){.module = named,
                                                       .target = target,
                                                       .kind = kind,
                                                       .a = CKPT__NO_TENSOR,
                                                       .b = CKPT__NO_TENSOR,
                                                       .magnitude = CKPT__NO_TENSOR};
    *out = &a->parts[at];
    return (*out)->kind == kind ? CKPT_OK : no_key(a, tensor, "changes a tensor that another of its keys changes", err);
}

static ckpt_status set_once(const ckpt__adapter *a, int64_t *to, int64_t tensor, ckpt_error *err)
{
    if (*to != CKPT__NO_TENSOR)
        return no_key(a, tensor, "is there twice", err);
    *to = tensor;
    return CKPT_OK;
}

/* "h.0.fc.lora_A.weight": the tails of what a module of LoRA has, and where they belong. */
static const struct {
    const char *tail, *target;
    char place; /* A, B, magnitude, bias */
    bool embedding;
} tails[] = {{".lora_A.weight", ".weight", 'A', false},
             {".lora_B.weight", ".weight", 'B', false},
             {".lora_embedding_A", ".weight", 'A', true},
             {".lora_embedding_B", ".weight", 'B', true},
             {".lora_magnitude_vector", ".weight", 'm', false},
             {".lora_magnitude_vector.weight", ".weight", 'm', false},
             {".lora_B.bias", ".bias", 'b', false}};

static ckpt_status take_lora(ckpt__adapter *a, ckpt_str key, int64_t tensor, bool *taken, ckpt_error *err)
{
    *taken = false;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        ckpt__merge_part *p;
        if (!ckpt__str_ends(key, tails[i].tail) || key.size == strlen(tails[i].tail))
            continue;
        const char place = tails[i].place;
        ckpt_str module = {key.data, key.size - strlen(tails[i].tail)};
        if (memmem(module.data, module.size, ".base_layer.", 12))
            return no_key(a, tensor,
                          "is of nn.MultiheadAttention, which is not merged here (peft 0.21 adds to out_proj twice)",
                          err);
        ckpt_status status =
            part_of(a, module, tails[i].target, place == 'b' ? CKPT__MERGE_BIAS : CKPT__MERGE_LORA, tensor, &p, err);
        *taken = true;
        if (status < 0)
            return status;
        p->embedding |= tails[i].embedding;
        return set_once(a, place == 'A' ? &p->a : place == 'm' ? &p->magnitude : &p->b, tensor, err);
    }
    return CKPT_OK;
}

/* What is saved whole: "score.weight" of modules_to_save, "fc.base_layer.bias" and "norm.bias" of bias="all", the weights of an
 * embedding ("wte.base_layer.weight"). */
static ckpt_status take_whole(ckpt__adapter *a, ckpt_str key, int64_t tensor, ckpt_error *err)
{
    static const char *const inner[] = {".base_layer.", ".modules_to_save."};
    ckpt__merge_part *p;
    if (memmem(key.data, key.size, "lora_", 5))
        return no_key(a, tensor, "is not a weight of LoRA that is known here", err);
    if (memmem(key.data, key.size, "token_adapter", 13) || memmem(key.data, key.size, "trainable_tokens", 16))
        return no_key(a, tensor, "has rows of single tokens, which are not merged here", err);
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        const char *at = memmem(key.data, key.size, inner[i], strlen(inner[i]));
        if (!at)
            continue;
        ckpt_str module = {key.data, (size_t)(at - key.data)};
        const char *tail = at + strlen(inner[i]) - 1; /* with its dot; what a file keeps ends with a zero byte */
        ckpt_str whole = ckpt__arena_str(a->arena, tail, (size_t)(key.data + key.size - tail));
        ckpt_status status = whole.data ? part_of(a, module, whole.data, CKPT__MERGE_TAKE, tensor, &p, err)
                                        : ckpt__migration_no_memory(err);
        return status == CKPT_OK ? set_once(a, &p->b, tensor, err) : status;
    }
    ckpt_status status = part_of(a, key, "", CKPT__MERGE_TAKE, tensor, &p, err);
    return status == CKPT_OK ? set_once(a, &p->b, tensor, err) : status;
}

static ckpt_status take_key(ckpt__adapter *a, int64_t tensor, ckpt_error *err)
{
    static const char prefix[] = "base_model.model.";
    const ckpt_tensor_info *t = info_of(a, tensor);
    ckpt_str key = last_key(t);
    bool taken;
    if (t->file.data && memchr(t->file.data, '/', t->file.size))
        return no_key(a, tensor, "lies in a folder of its own: give the folder of one adapter", err);
    if (!ckpt_dtype_is_float(t->dtype) || !a->reader->index->tensors[tensor].whole)
        return no_key(a, tensor, "is not a dense tensor of floating point numbers", err);
    if (ckpt__str_begins(key, prefix))
        key = (ckpt_str){key.data + strlen(prefix), key.size - strlen(prefix)};
    ckpt_status status = take_lora(a, key, tensor, &taken, err);
    return status == CKPT_OK && !taken ? take_whole(a, key, tensor, err) : status;
}

/* ---- what the keys of a module come to */

static ckpt_status lacks(const ckpt__adapter *a, const ckpt__merge_part *p, const char *what, ckpt_error *err)
{
    char shown[300];
    return ckpt__fail(err, CKPT_E_MISMATCH, a->path,
                      "its module '%s' has no %s: the adapter is not whole, save it again",
                      ckpt__escape(shown, sizeof shown, p->module.data, p->module.size), what);
}

static ckpt_status scale(const ckpt__adapter *a, ckpt__merge_part *p, ckpt_error *err)
{
    double rank, alpha;
    char shown[300];
    ckpt_status status = setting_of(a, "r", "rank_pattern", p->module, &rank, err);
    if (status == CKPT_OK)
        status = setting_of(a, "lora_alpha", "alpha_pattern", p->module, &alpha, err);
    if (status < 0)
        return status;
    p->scaling = is_true(a, "use_rslora") ? alpha / sqrt(rank) : alpha / rank;
    if (p->kind != CKPT__MERGE_LORA)
        return CKPT_OK;
    const ckpt_tensor_info *A = info_of(a, p->a), *B = info_of(a, p->b);
    int64_t r = A->ndim ? A->shape[0] : 0, rb = B->ndim > 1 ? B->shape[1] : 0;
    if (r <= 0 || r != rb || (double)r != rank)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, a->path,
            "its module '%s' has lora_A for rank %lld and lora_B for rank %lld, and adapter_config.json says "
            "%.17g: they do not belong together",
            ckpt__escape(shown, sizeof shown, p->module.data, p->module.size), (long long)r, (long long)rb, rank);
    p->rank = (uint64_t)r;
    return CKPT_OK;
}

static ckpt_status finish_part(const ckpt__adapter *a, ckpt__merge_part *p, ckpt_error *err)
{
    bool dora = is_true(a, "use_dora");
    if (p->kind == CKPT__MERGE_TAKE)
        return CKPT_OK;
    if (p->kind == CKPT__MERGE_LORA && p->a == CKPT__NO_TENSOR)
        return lacks(a, p, "lora_A", err);
    if (p->kind == CKPT__MERGE_LORA && p->b == CKPT__NO_TENSOR)
        return lacks(a, p, "lora_B", err);
    if (p->kind == CKPT__MERGE_LORA && dora && p->magnitude == CKPT__NO_TENSOR)
        return lacks(a, p, "lora_magnitude_vector, and use_dora is true", err);
    if (!dora && p->magnitude != CKPT__NO_TENSOR)
        return no_key(a, p->magnitude, "is DoRA's, and use_dora of adapter_config.json is not true", err);
    return scale(a, p, err);
}

static ckpt_status open_adapter(ckpt__adapter *a, ckpt_error *err)
{
    a->arena = ckpt__arena_new(0);
    a->by_target = ckpt__hash_new(64);
    if (!a->arena || !a->by_target)
        return ckpt__migration_no_memory(err);
    ckpt_status status = ckpt_reader_open(a->path, NULL, &a->reader, err);
    if (status < 0)
        ckpt__error_prefix(err, "the adapter of --merge-adapter");
    if (status == CKPT_OK)
        status = read_config(a, err);
    size_t count = status == CKPT_OK ? a->reader->index->tensor_count : 0;
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        status = take_key(a, (int64_t)i, err);
    for (size_t i = 0; status == CKPT_OK && i < a->count; i++)
        status = finish_part(a, &a->parts[i], err);
    if (status == CKPT_OK && !a->count)
        status = ckpt__fail(err, CKPT_E_MISMATCH, a->path, "it has no tensors: there is nothing to merge");
    return status;
}

ckpt_status ckpt__adapter_open(const char *path, ckpt__adapter **out, ckpt_error *err)
{
    ckpt__adapter *a = *out = calloc(1, sizeof *a);
    if (!a)
        return ckpt__migration_no_memory(err);
    a->path = path;
    return open_adapter(a, err);
}

void ckpt__adapter_close(ckpt__adapter *a)
{
    if (!a)
        return;
    ckpt_reader_close(a->reader);
    ckpt_reader_close(a->base);
    ckpt__hash_free(a->by_target);
    ckpt__arena_free(a->arena);
    free(a->parts);
    free(a);
}
