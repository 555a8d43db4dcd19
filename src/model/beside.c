/* model/beside.c - see beside.h. The optimizer has the names of the parameters that it trains, in either form. Buffers and frozen
 * parameters are in none: a name with a dot is a module's, and a module's tensors stand together. */
#include "model/beside.h"

#include "model/flat_state.h"
#include "model/training.h"

static bool put_text(ckpt__hash *names, const ckpt_value *text)
{
    return text->kind != CKPT_V_STR || ckpt__hash_put(names, text->text.data, text->text.size, 0, NULL) >= 0;
}

static bool put_params(ckpt__hash *names, const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    bool ok = true;
    for (size_t g = 0; ok && g < groups->item_count; g++) {
        const ckpt_value *params = ckpt__params_of(groups->items[g]),
                         *named = ckpt_value_get(groups->items[g], "param_names");
        for (size_t i = 0; ok && params && i < params->item_count; i++)
            ok = put_text(names, params->items[i]);
        for (size_t i = 0; ok && ckpt__is_list(named) && i < named->item_count; i++)
            ok = put_text(names, named->items[i]);
    }
    return ok;
}

static bool put_flat(ckpt__hash *names, const ckpt_value *optimizer, ckpt_str prefix)
{
    bool ok = true, group;
    for (size_t i = 0; ok && i < optimizer->entry_count; i++) {
        const ckpt_value *key = optimizer->entries[i].key;
        ckpt_str param, what;
        if (key->kind == CKPT_V_STR && ckpt__flat_key(key->text, prefix, &group, &param, &what))
            ok = ckpt__hash_put(names, param.data, param.size, 0, NULL) >= 0;
    }
    return ok;
}

static bool put_names(ckpt__hash *names, const ckpt_value *v)
{
    ckpt_str prefix;
    if (ckpt__is_torch_optimizer(v))
        return put_params(names, v);
    return !ckpt__flat_state(v, &prefix) || put_flat(names, v, prefix);
}

/* A dict that is looked at. */
typedef struct looking {
    const ckpt_value *dict;
    ckpt__hash *names; /* owned: of the parameters that its optimizers train */
    bool flat;         /* it has the optimizer's keys itself, */
    ckpt_str prefix;   /* behind this */
} looking;

/* No tensor of the optimizer's. */
static bool is_tensor(const looking *l, const ckpt_entry *e)
{
    bool group;
    ckpt_str param, what;
    return e->key->kind == CKPT_V_STR && e->value->kind == CKPT_V_TENSOR &&
           !(l->flat && ckpt__flat_key(e->key->text, l->prefix, &group, &param, &what));
}

static bool is_trained(const looking *l, const ckpt_entry *e)
{
    return is_tensor(l, e) && ckpt__hash_get(l->names, e->key->text.data, e->key->text.size, NULL);
}

static bool is_named(const looking *l, const ckpt_entry *e)
{
    return is_trained(l, e) || (is_tensor(l, e) && memchr(e->key->text.data, '.', e->key->text.size));
}

/* What a trainer keeps beside a model, and is a tensor at times. */
static bool is_of_trainer(ckpt_str key)
{
    return ckpt__str_among(key, "step global_step iteration iter epoch current_epoch best_score best_loss seed") ||
           ckpt__str_holds_nocase(key, "rng") || ckpt__str_holds_nocase(key, "random");
}

/* A tensor that stands next to one of the model's is one of it. */
static bool put_neighbours(const looking *l, ckpt__hash *weights, bool backwards)
{
    const size_t count = l->dict->entry_count;
    bool inside = false, ok = true;
    for (size_t n = 0; ok && n < count; n++) {
        const ckpt_entry *e = &l->dict->entries[backwards ? count - 1 - n : n];
        inside = is_named(l, e) || (inside && is_tensor(l, e) && !is_of_trainer(e->key->text));
        if (inside)
            ok = ckpt__hash_put(weights, e->key->text.data, e->key->text.size, 0, NULL) >= 0;
    }
    return ok;
}

static bool put_all_names(const looking *l)
{
    bool ok = !l->flat || put_flat(l->names, l->dict, l->prefix);
    for (size_t i = 0; ok && i < l->dict->entry_count; i++)
        if (l->dict->entries[i].value->kind == CKPT_V_DICT)
            ok = put_names(l->names, l->dict->entries[i].value);
    return ok;
}

bool ckpt__beside(const ckpt_value *dict, ckpt__hash **weights)
{
    looking l = {.dict = dict};
    bool may = false, trained = false;
    *weights = NULL;
    if (!dict || dict->kind != CKPT_V_DICT)
        return true;
    may = l.flat = ckpt__flat_state(dict, &l.prefix);
    for (size_t i = 0; !may && i < dict->entry_count; i++)
        may = dict->entries[i].value->kind == CKPT_V_DICT;
    if (!may)
        return true;
    l.names = ckpt__hash_new(64);
    bool ok = l.names && put_all_names(&l);
    for (size_t i = 0; ok && !trained && i < dict->entry_count; i++)
        trained = l.flat ? is_named(&l, &dict->entries[i]) : is_trained(&l, &dict->entries[i]);
    if (ok && trained) {
        *weights = ckpt__hash_new(dict->entry_count);
        ok = *weights && put_neighbours(&l, *weights, false) && put_neighbours(&l, *weights, true);
    }
    ckpt__hash_free(l.names);
    if (!ok) {
        ckpt__hash_free(*weights);
        *weights = NULL;
    }
    return ok;
}
