/* doctor/adapter.c - a PEFT adapter beside its settings: PeftModel.from_pretrained makes the tensors by adapter_config.json
 * and then loads them. peft/tuners/lora/model.py (_create_and_replace), utils/other.py (get_pattern_key),
 * tuners/tuners_utils.py (check_target_module_exists). */
#include "doctor/facts.h"

#include <stdio.h>

typedef struct adapter {
    ckpt__examination *p;
    const ckpt_value *ranks, *targets; /* rank_pattern; target_modules as a list */
    int64_t rank;
    bool dora;
    size_t modules, with_dora;
} adapter;

/* A name of plain words; '.' stands for any character in a regular expression, itself too. */
static bool is_plain(ckpt_str s)
{
    for (size_t i = 0; i < s.size; i++) {
        char c = s.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.'))
            return false;
    }
    return s.size > 0;
}

/* The module is called so, or ends so behind a dot. */
static bool is_module(ckpt_str module, ckpt_str name)
{
    return module.size >= name.size && memcmp(module.data + module.size - name.size, name.data, name.size) == 0 &&
           (module.size == name.size || module.data[module.size - name.size - 1] == '.');
}

/* The rank that the settings give a module; -1: they say it by an expression, which is not matched here. */
static int64_t rank_of(const adapter *a, ckpt_str module)
{
    for (size_t i = 0; a->ranks && i < a->ranks->entry_count; i++) {
        const ckpt_entry *e = &a->ranks->entries[i];
        if (e->key->kind != CKPT_V_STR || !is_plain(e->key->text) || e->value->kind != CKPT_V_INT)
            return -1;
        if (is_module(module, e->key->text))
            return e->value->integer;
    }
    return a->rank;
}

static bool is_target(const adapter *a, ckpt_str module)
{
    for (size_t i = 0; a->targets && i < a->targets->item_count; i++)
        if (a->targets->items[i]->kind != CKPT_V_STR || is_module(module, a->targets->items[i]->text))
            return true;
    return !a->targets || a->targets->item_count == 0;
}

/* The last key of its path, "base_model.model.layers.0.q.lora_A.weight". */
static ckpt_str own_name(const ckpt_tensor_info *t)
{
    return t->path.count ? t->path.keys[t->path.count - 1].text : t->name;
}

static void check_tensor(adapter *a, const ckpt_tensor_info *t)
{
    static const char *const words[] = {".lora_A", ".lora_embedding_A"};
    ckpt_str name = own_name(t);
    if (!name.data)
        return;
    a->with_dora += memmem(name.data, name.size, ".lora_magnitude_vector", 22) != NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = memmem(name.data, name.size, words[i], strlen(words[i]));
        if (!at || t->ndim == 0)
            continue;
        char has[32], says[32], shown[200];
        ckpt_str module = {name.data, (size_t)(at - name.data)};
        int64_t rank = rank_of(a, module);
        a->modules++;
        ckpt__escape(shown, sizeof shown, module.data, module.size);
        snprintf(has, sizeof has, "%lld", (long long)t->shape[0]);
        snprintf(says, sizeof says, "%lld", (long long)rank);
        if (!is_target(a, module))
            ckpt__doctor_note(a->p, CKPT__ADAPTER_TARGET, NULL, t->name, shown, NULL, NULL);
        else if (rank > 0 && rank != t->shape[0])
            ckpt__doctor_note(a->p, CKPT__ADAPTER_RANK, NULL, t->name, has, says, shown);
        return;
    }
}

void ckpt__doctor_adapter(ckpt__examination *p)
{
    const ckpt_value *config = p->index->root ? ckpt_value_get(p->index->root, "adapter_config.json") : NULL;
    const ckpt_value *type = ckpt_value_get(config, "peft_type"), *rank = ckpt_value_get(config, "r");
    const ckpt_value *targets = ckpt_value_get(config, "target_modules"), *dora = ckpt_value_get(config, "use_dora");
    if (!type || type->kind != CKPT_V_STR || !ckpt__str_is(type->text, "LORA") || !rank || rank->kind != CKPT_V_INT)
        return;
    adapter a = {.p = p, .rank = rank->integer, .ranks = ckpt_value_get(config, "rank_pattern")};
    a.targets = targets && targets->kind == CKPT_V_LIST ? targets : NULL;
    a.dora = dora && dora->kind == CKPT_V_BOOL && dora->boolean;
    for (size_t i = 0; i < p->index->tensor_count; i++)
        check_tensor(&a, &p->index->tensors[i].info);
    if (a.modules > 0 && a.dora && a.with_dora < a.modules)
        ckpt__doctor_note(p, CKPT__ADAPTER_NO_DORA, NULL, (ckpt_str){NULL, 0}, NULL, NULL, NULL);
    if (!a.dora && a.with_dora > 0)
        ckpt__doctor_note(p, CKPT__ADAPTER_DORA, NULL, (ckpt_str){NULL, 0}, NULL, NULL, NULL);
}
