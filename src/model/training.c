/* model/training.c - which dicts are a model's or an optimizer's, and what the keys of an optimizer's state mean. */
#include "model/training.h"

/* ---- TorchScript and libtorch */

bool ckpt__is_scripted_class(ckpt_str class_name)
{
    return ckpt__str_begins(class_name, "__torch__.");
}

bool ckpt__is_scripted(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_DICT && ckpt__is_scripted_class(v->class_name);
}

bool ckpt__numbered(ckpt_str key, const char *head, int64_t *number)
{
    size_t n = strlen(head);
    return ckpt__str_begins(key, head) && ckpt__parse_i64(key.data + n, key.size - n, number) && *number >= 0;
}

/* ---- optimizers */

/* The groups of a dict that has states too; NULL: it has not both. */
static const ckpt_value *groups_beside_state(const ckpt_value *v)
{
    const ckpt_value *state = v && v->kind == CKPT_V_DICT ? ckpt_value_get(v, "state") : NULL;
    return state && state->kind == CKPT_V_DICT ? ckpt_value_get(v, "param_groups") : NULL;
}

bool ckpt__is_torch_optimizer(const ckpt_value *v)
{
    return ckpt__is_list(groups_beside_state(v));
}

bool ckpt__is_libtorch_optimizer(const ckpt_value *v)
{
    return ckpt__is_scripted(groups_beside_state(v));
}

bool ckpt__is_optimizer_object(const ckpt_value *v)
{
    const ckpt_value *state = v && v->kind == CKPT_V_OBJECT ? ckpt_value_get(v, "state") : NULL;
    const ckpt_value *groups = state ? ckpt_value_get(v, "param_groups") : NULL;
    return ckpt__is_list(groups) && (state->kind == CKPT_V_DICT || state->kind == CKPT_V_OBJECT);
}

bool ckpt__is_optimizer(const ckpt_value *v)
{
    const ckpt_value *groups = groups_beside_state(v);
    return ckpt__is_list(groups) || ckpt__is_scripted(groups);
}

const ckpt_value *ckpt__params_of(const ckpt_value *group)
{
    const ckpt_value *params = ckpt_value_get(group, "params");
    return ckpt__is_list(params) ? params : NULL;
}

bool ckpt__lists_ids(const ckpt_value *groups)
{
    if (!ckpt__is_list(groups))
        return false;
    for (size_t g = 0; g < groups->item_count; g++) {
        const ckpt_value *params = ckpt__params_of(groups->items[g]);
        for (size_t i = 0; params && i < params->item_count; i++)
            if (params->items[i]->kind != CKPT_V_INT && params->items[i]->kind != CKPT_V_STR)
                return false;
        if (!params)
            return false;
    }
    return true;
}

const ckpt__old_list ckpt__old_lists[CKPT__OLD_LISTS] = {
    {"step_buffers/", "step"},
    {"exp_average_buffers/", "exp_avg"},
    {"exp_average_sq_buffers/", "exp_avg_sq"},
    {"max_exp_average_sq_buffers/", "max_exp_avg_sq"},
    {"momentum_buffers/", "momentum_buffer"},
    {"square_average_buffers/", "square_avg"},
    {"grad_average_buffers/", "grad_avg"},
    {"sum_buffers/", "sum"},
};

size_t ckpt__old_list_of(ckpt_str key, int64_t *number)
{
    for (size_t i = 0; i < CKPT__OLD_LISTS; i++) {
        const char *list = ckpt__old_lists[i].list;
        if (ckpt__numbered(key, list, number))
            return i;
        *number = -1;
        if (ckpt__str_begins(key, list) &&
            ckpt__str_is((ckpt_str){key.data + strlen(list), key.size - strlen(list)}, "size"))
            return i;
    }
    return CKPT__OLD_LISTS;
}

bool ckpt__is_old_libtorch_optimizer(const ckpt_value *v)
{
    if (!ckpt__is_scripted(v))
        return false;
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_entry *e = &v->entries[i];
        if (e->value->kind != CKPT_V_TENSOR || e->key->kind != CKPT_V_STR ||
            !ckpt__str_holds(e->key->text, "_buffers/"))
            return false;
    }
    return v->entry_count > 0;
}

bool ckpt__is_cpp_optimizer(const ckpt_value *v)
{
    return ckpt__is_libtorch_optimizer(v) || ckpt__is_old_libtorch_optimizer(v);
}

ckpt_role ckpt__role_of_key(ckpt_str key)
{
    static const struct {
        const char *key;
        ckpt_role role;
    } table[] = {
        {"step", CKPT_ROLE_STEP},
        {"exp_avg", CKPT_ROLE_EXP_AVG},
        {"exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
        {"max_exp_avg_sq", CKPT_ROLE_MAX_EXP_AVG_SQ},
        {"momentum_buffer", CKPT_ROLE_MOMENTUM},
        {"master", CKPT_ROLE_MASTER},
        {"master_param", CKPT_ROLE_MASTER},
        {"master_weights", CKPT_ROLE_MASTER},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (ckpt__str_is(key, table[i].key))
            return table[i].role;
    return CKPT_ROLE_OPTIM;
}

int ckpt__flag_value(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_BOOL ? v->boolean : v && v->kind == CKPT_V_INT ? v->integer != 0 : -1;
}

ckpt__flags ckpt__flags_of(const ckpt_value *group)
{
    return (ckpt__flags){ckpt__flag_value(ckpt_value_get(group, "fused")),
                         ckpt__flag_value(ckpt_value_get(group, "capturable")),
                         ckpt__flag_value(ckpt_value_get(group, "foreach"))};
}

ckpt_optimizer_kind ckpt__kind_of_flags(ckpt__flags flags)
{
    if (flags.fused == 1)
        return CKPT_OPTIMIZER_FUSED;
    if (flags.capturable == 1)
        return CKPT_OPTIMIZER_CAPTURABLE;
    return flags.foreach == 1 ? CKPT_OPTIMIZER_FOREACH : CKPT_OPTIMIZER_PLAIN;
}

size_t ckpt__flags_for(ckpt_optimizer_kind kind, ckpt__flag out[CKPT__FLAGS_MAX])
{
    size_t n = 0;
    out[n++] = (ckpt__flag){"fused", kind == CKPT_OPTIMIZER_FUSED};
    if (kind != CKPT_OPTIMIZER_FUSED)
        out[n++] = (ckpt__flag){"capturable", kind == CKPT_OPTIMIZER_CAPTURABLE};
    out[n++] = (ckpt__flag){"foreach", kind == CKPT_OPTIMIZER_FOREACH};
    return n;
}

/* ---- schedulers and scalers */

/* Keys that say what a dict is, each with its bit. */
typedef struct known_key {
    const char *key;
    size_t size;
    unsigned bit;
} known_key;
#define KEY(text, bit)                                                                                                 \
    {                                                                                                                  \
        text, sizeof text - 1, bit                                                                                     \
    }

static const known_key scheduler_keys[] = {
    KEY("last_epoch", CKPT__HAS_LAST_EPOCH),
    KEY("base_lrs", CKPT__HAS_BASE_LRS),
    KEY("_step_count", CKPT__HAS_STEP_COUNT),
    KEY("_last_lr", CKPT__HAS_LAST_LR),
    KEY("_get_lr_called_within_step", CKPT__HAS_LR_CALLED),
    KEY("num_bad_epochs", CKPT__HAS_BAD_EPOCHS),
    KEY("_schedulers", CKPT__HAS_SCHEDULERS),
    KEY("_milestones", CKPT__HAS_MILESTONES),
    {NULL, 0, 0},
};

static const known_key scaler_keys[] = {
    KEY("scale", CKPT__HAS_SCALE),
    KEY("growth_factor", CKPT__HAS_GROWTH),
    KEY("backoff_factor", CKPT__HAS_BACKOFF),
    KEY("growth_interval", CKPT__HAS_INTERVAL),
    KEY("_growth_tracker", CKPT__HAS_TRACKER),
    {NULL, 0, 0},
};

static unsigned bit_of(const known_key *table, ckpt_str key)
{
    for (; table->key; table++)
        if (key.size == table->size && memcmp(key.data, table->key, key.size) == 0)
            return table->bit;
    return 0;
}

/* The bits of those keys that a dict has. */
static unsigned bits_of(const known_key *table, const ckpt_value *v)
{
    unsigned bits = 0;
    if (v->kind == CKPT_V_DICT)
        for (size_t i = 0; i < v->entry_count; i++)
            bits |= v->entries[i].key->kind == CKPT_V_STR ? bit_of(table, v->entries[i].key->text) : 0;
    else
        for (; table->key; table++)
            bits |= ckpt_value_get(v, table->key) ? table->bit : 0;
    return bits;
}

static int count_bits(unsigned bits)
{
    int n = 0;
    for (; bits; bits &= bits - 1)
        n++;
    return n;
}

bool ckpt__is_scheduler(unsigned evidence)
{
    const unsigned chain = CKPT__LISTS_SCHEDULERS | CKPT__HAS_LAST_LR,
                   beside = CKPT__HAS_BASE_LRS | CKPT__HAS_STEP_COUNT | CKPT__HAS_LAST_LR | CKPT__HAS_BAD_EPOCHS |
                            CKPT__HAS_SCHEDULERS;
    return (evidence & chain) == chain || ((evidence & CKPT__HAS_LAST_EPOCH) && (evidence & beside));
}

unsigned ckpt__scheduler_evidence(const ckpt_value *v)
{
    const unsigned common =
        CKPT__HAS_LAST_EPOCH | CKPT__HAS_BASE_LRS | CKPT__HAS_STEP_COUNT | CKPT__HAS_LAST_LR | CKPT__HAS_LR_CALLED;
    unsigned bits = v->kind == CKPT_V_DICT ? bits_of(scheduler_keys, v) : 0;
    bool made = bits & CKPT__HAS_SCHEDULERS;
    if (made && ckpt_value_get(v, "_schedulers")->kind == CKPT_V_LIST)
        bits |= CKPT__LISTS_SCHEDULERS;
    if (count_bits(bits & common) >= 3 || (made && (bits & CKPT__HAS_MILESTONES)))
        bits |= CKPT__SHARES_KEYS;
    return ckpt__is_scheduler(bits) || (bits & (CKPT__SHARES_KEYS | CKPT__HAS_LAST_EPOCH)) ? bits : 0;
}

unsigned ckpt__scaler_evidence(const ckpt_value *v, ckpt_str path, size_t depth)
{
    if (v->kind == CKPT_V_DICT && v->entry_count == 0) {
        bool named = ckpt__str_holds_nocase(path, "scaler") || ckpt__str_is(path, "MixedPrecision") ||
                     ckpt__str_is(path, "native_amp_scaling_state");
        return named && depth > 0 ? CKPT__EMPTY_SCALER : 0;
    }
    unsigned bits = bits_of(scaler_keys, v);
    return count_bits(bits) >= 3 ? bits : 0;
}

/* ---- models */

const char *const ckpt__wrappers[CKPT__WRAPPERS] = {"module.", "_orig_mod.", "_fsdp_wrapped_module.",
                                                    "_forward_module."};

static bool is_weight(const ckpt__index *index, size_t tensor)
{
    const ckpt_tensor_info *info = &index->tensors[tensor].info;
    return info->ndim > 0 && info->role != CKPT_ROLE_RNG;
}

/* What a module's dict may have beside its tensors. */
static bool is_left_by_modules(ckpt_str key, const ckpt_value *v)
{
    return v->kind == CKPT_V_NONE || ckpt__str_ends(key, "_extra_state") || ckpt__str_is(key, "__metadata__");
}

bool ckpt__is_state_dict(const ckpt__index *index, const ckpt_value *v, bool (*is_tensor)(const ckpt_value *))
{
    bool weights = false;
    if (!v || v->kind != CKPT_V_DICT)
        return false;
    bool has_attributes = ckpt__is_scripted(v) && !ckpt__str_is(v->class_name, "__torch__.Module");
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key, *is = v->entries[i].value;
        if (key->kind != CKPT_V_STR)
            return false;
        if (is_left_by_modules(key->text, is))
            continue;
        if (is->kind == CKPT_V_TENSOR && is->tensor < index->tensor_count)
            weights = weights || is_weight(index, is->tensor);
        else if (is_tensor && is_tensor(is))
            weights = true;
        else if (is->kind == CKPT_V_TENSOR || !has_attributes || ckpt__is_scripted_class(is->class_name))
            return false;
    }
    return weights;
}

bool ckpt__names_tensors(const ckpt_value *v)
{
    size_t tensors = 0;
    if (!v || v->kind != CKPT_V_DICT)
        return false;
    for (size_t i = 0; i < v->entry_count; i++) {
        if (v->entries[i].key->kind != CKPT_V_STR)
            return false;
        tensors += v->entries[i].value->kind == CKPT_V_TENSOR;
    }
    return tensors > 0;
}

bool ckpt__is_bare_state_dict(const ckpt_value *v)
{
    size_t owned = 0;
    if (!ckpt__names_tensors(v))
        return false;
    for (size_t i = 0; i < v->entry_count; i++)
        owned += memchr(v->entries[i].key->text.data, '.', v->entries[i].key->text.size) != NULL;
    return ckpt__str_is(v->class_name, "collections.OrderedDict") || owned * 2 > v->entry_count;
}

bool ckpt__looks_like_state_dict(const ckpt_value *v)
{
    if (v->kind != CKPT_V_DICT)
        return false;
    bool ordered = v->class_name.data != NULL;
    size_t tensors = 0;
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key, *value = v->entries[i].value;
        if (key->kind != CKPT_V_STR)
            return false;
        bool lazy =
            value->kind == CKPT_V_OBJECT && ckpt__str_holds(value->class_name, "torch.nn.parameter.Uninitialized");
        tensors += value->kind == CKPT_V_TENSOR || lazy;
        if (!ordered && tensors <= i)
            return false;
    }
    return tensors > 0;
}
