/* format/deepspeed/values.c - what is no tensor: groups of parameters with their settings, the step, the scaler, and all that the files
 * say beside. */
#include "format/deepspeed/deepspeed.h"
#include "format/native/native.h"

#include <stdio.h>
#include <stdlib.h>

static ckpt__arena *arena_of(const ckpt__ds *d)
{
    return ckpt__ds_index(d)->arena;
}

/* A dict on its way: entries in the arena. */
typedef struct dict {
    ckpt__ds *d;
    ckpt_entry *entries;
    size_t count, capacity; /* heap */
    bool failed;
} dict;

static void put(dict *t, const ckpt_value *key, const ckpt_value *value)
{
    if (t->failed || !key || !value || !ckpt__grow(&t->entries, &t->capacity, t->count + 1, sizeof *t->entries)) {
        t->failed = true;
        return;
    }
    t->entries[t->count++] = (ckpt_entry){key, value};
}

static void put_as(dict *t, const char *key, const ckpt_value *value)
{
    put(t, ckpt__value_str(arena_of(t->d), key, strlen(key)), value);
}

/* NULL: no memory */
static const ckpt_value *finish(dict *t)
{
    const ckpt_value *v = t->failed ? NULL : ckpt__value_dict(arena_of(t->d), t->entries, t->count);
    free(t->entries);
    return v;
}

/* ---- states that are no tensors */

ckpt_status ckpt__ds_put_number(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str key, const ckpt_value *v,
                                ckpt_error *err)
{
    ckpt_entry *last = d->number_count ? &d->numbers[d->number_count - 1] : NULL;
    const bool more = last && ckpt__str_equal(last->key->text, p->name);
    dict own = {.d = d};
    for (size_t i = 0; more && i < last->value->entry_count; i++)
        put(&own, last->value->entries[i].key, last->value->entries[i].value);
    put(&own, ckpt__value_str(arena_of(d), key.data, key.size), v);
    const ckpt_value *dictionary = finish(&own), *name = ckpt__value_str(arena_of(d), p->name.data, p->name.size);
    if (!name || !dictionary || !ckpt__grow(&d->numbers, &d->number_capacity, d->number_count + 1, sizeof *d->numbers))
        return ckpt__ds_no_memory(err);
    d->numbers[d->number_count - more] = (ckpt_entry){name, dictionary};
    d->number_count += !more;
    return CKPT_OK;
}

/* ---- groups */

/* The parameters of group g of param_shapes, or with stage 3 of the flat tensors that param_groups lists for it. */
static bool is_of_group(const ckpt__ds *d, const ckpt__ds_param *p, size_t g, const ckpt_value *group)
{
    const ckpt_value *own = ckpt_value_get(group, "params");
    if (d->stage != 3 || !d->ids)
        return p->group == g;
    for (size_t i = 0; ckpt__is_list(own) && i < own->item_count; i++)
        if (ckpt__ds_int(own->items[i]) == d->ids[p->flat])
            return true;
    return false;
}

/* param_shapes has the order in which the parameters are laid out. With round_robin_gradients the optimizer's own is another one:
 * that of param_slice_mappings, rank by rank. 0: it is not there, or has other names; -1: no memory. */
static int put_in_own_order(const ckpt__ds *d, size_t g, size_t count, const ckpt_value **items)
{
    ckpt__hash *seen = ckpt__hash_new(count);
    size_t n = 0;
    bool known = seen != NULL;
    for (size_t r = 0; known && r < d->ranks; r++) {
        const ckpt_value *all = ckpt_value_get(ckpt__ds_optimizer(&d->optims[r]), "param_slice_mappings"),
                         *own = ckpt__is_list(all) && g < all->item_count ? all->items[g] : NULL;
        known = own && own->kind == CKPT_V_DICT;
        for (size_t i = 0; known && i < own->entry_count; i++) {
            const ckpt_value *key = own->entries[i].key;
            size_t at;
            known = key->kind == CKPT_V_STR && ckpt__hash_get(d->by_name, key->text.data, key->text.size, &at) &&
                    d->params[at].group == g;
            int put = known ? ckpt__hash_put(seen, key->text.data, key->text.size, n, NULL) : 0;
            known = known && put >= 0 && (put == 0 || n < count);
            if (known && put > 0)
                items[n++] = key;
        }
    }
    ckpt__hash_free(seen);
    return !seen ? -1 : known && n == count;
}

static bool has_round_robin(const ckpt__ds *d)
{
    const ckpt_value *v = ckpt_value_get(
        ckpt_value_get(ckpt_value_get(d->model.root, "ds_config"), "zero_optimization"), "round_robin_gradients");
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

static ckpt_status say_order(ckpt__ds *d, size_t g, ckpt_error *err)
{
    return ckpt__report_add(
               ckpt__ds_index(d)->findings, CKPT_SEVERITY_WARNING, "order-unknown", NULL,
               "match by name; to match by position, write down the order of the optimizer's parameters in the "
               "program that saved",
               "with round_robin_gradients the parameters of group %zu are laid out in another order than the "
               "optimizer's, which no file says: their names are known, their positions in the optimizer are not",
               g)
               ? CKPT_OK
               : ckpt__ds_no_memory(err);
}

static ckpt_status names_of(ckpt__ds *d, size_t g, const ckpt_value *group, const ckpt_value **out, ckpt_error *err)
{
    const ckpt_value **items = ckpt__arena_array(arena_of(d), d->param_count + 1, sizeof *items);
    size_t n = 0;
    if (!items)
        return ckpt__ds_no_memory(err);
    for (size_t i = 0; i < d->param_count; i++)
        n += is_of_group(d, &d->params[i], g, group);
    int own = d->optims && d->stage < 3 ? put_in_own_order(d, g, n, items) : 0;
    if (own < 0)
        return ckpt__ds_no_memory(err);
    if (own == 0) {
        n = 0;
        for (size_t i = 0; i < d->param_count; i++) {
            const ckpt__ds_param *p = &d->params[i];
            if (is_of_group(d, p, g, group) && !(items[n++] = ckpt__value_str(arena_of(d), p->name.data, p->name.size)))
                return ckpt__ds_no_memory(err);
        }
        if (d->optims && d->stage < 3 && has_round_robin(d) && say_order(d, g, err) < 0)
            return CKPT_E_NO_MEMORY;
    }
    *out = ckpt__value_list(arena_of(d), CKPT_V_LIST, items, n);
    return *out ? CKPT_OK : ckpt__ds_no_memory(err);
}

static ckpt_status put_groups(ckpt__ds *d, const ckpt_value *groups, dict *optimizer, ckpt_error *err)
{
    dict all = {.d = d};
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && groups && g < groups->item_count; g++) {
        const ckpt_value *group = groups->items[g], *params = NULL;
        char number[24];
        dict one = {.d = d};
        snprintf(number, sizeof number, "%zu", g);
        status = names_of(d, g, group, &params, err);
        if (status == CKPT_OK)
            put_as(&one, "params", params);
        for (size_t i = 0; group->kind == CKPT_V_DICT && i < group->entry_count; i++) {
            const ckpt_value *key = group->entries[i].key;
            if (key->kind != CKPT_V_STR || !ckpt__str_is(key->text, "params"))
                put(&one, key, group->entries[i].value);
        }
        put_as(&all, number, finish(&one));
    }
    const ckpt_value *made = finish(&all);
    if (status == CKPT_OK && !made)
        status = ckpt__ds_no_memory(err);
    if (status == CKPT_OK && groups)
        put_as(optimizer, "groups", made);
    return status;
}

static ckpt_status put_optimizer(ckpt__ds *d, const ckpt_value *groups, ckpt_error *err)
{
    dict optimizer = {.d = d};
    ckpt_status status = put_groups(d, groups, &optimizer, err);
    for (size_t i = 0; i < d->number_count; i++)
        put(&optimizer, d->numbers[i].key, d->numbers[i].value);
    const bool any = optimizer.count > 0;
    const ckpt_value *v = finish(&optimizer);
    if (status == CKPT_OK && !v)
        status = ckpt__ds_no_memory(err);
    return status == CKPT_OK && any ? ckpt__ds_put(d, "optimizer", v, err) : status;
}

/* ---- the scaler, as torch.amp has it */

static bool number_at(const ckpt_value *v, const char *key, double *out)
{
    const ckpt_value *n = ckpt_value_get(v, key);
    *out = n && n->kind == CKPT_V_INT ? (double)n->integer : n && n->kind == CKPT_V_FLOAT ? n->real : 0;
    return n && (n->kind == CKPT_V_INT || n->kind == CKPT_V_FLOAT);
}

/* DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py) multiplies its scale when scale_window steps have passed since the last
 * overflow, whose number it keeps; GradScaler counts these steps. It divides by the same factor, and GradScaler has no hysteresis. */
static ckpt_status put_scaler(ckpt__ds *d, const ckpt_value *optimizer, ckpt_error *err)
{
    const ckpt_value *s = ckpt_value_get(optimizer, "loss_scaler"), *dynamic = ckpt_value_get(s, "dynamic");
    double scale, factor, window, now, last;
    if (!dynamic || dynamic->kind != CKPT_V_BOOL || !dynamic->boolean || !number_at(s, "cur_scale", &scale) ||
        !number_at(s, "scale_factor", &factor) || !number_at(s, "scale_window", &window) ||
        !number_at(s, "cur_iter", &now) || !number_at(s, "last_overflow_iter", &last) || factor <= 0 || window < 1 ||
        window > 1e15 || now - last < 1 || now - last > 1e15)
        return CKPT_OK;
    ckpt__arena *a = arena_of(d);
    dict own = {.d = d};
    put_as(&own, "scale", ckpt__value_float(a, scale));
    put_as(&own, "growth_factor", ckpt__value_float(a, factor));
    put_as(&own, "backoff_factor", ckpt__value_float(a, 1 / factor));
    put_as(&own, "growth_interval", ckpt__value_int(a, (int64_t)window));
    put_as(&own, "_growth_tracker", ckpt__value_int(a, (int64_t)(now - last - 1) % (int64_t)window));
    return ckpt__ds_put(d, "scaler", finish(&own), err);
}

/* ---- all else */

static bool is_one_of(ckpt_str key, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ckpt__str_is(key, words[i]))
            return true;
    return false;
}

/* Tensors below a value stay. */
typedef struct keeper {
    ckpt__ds *d;
    ckpt_error *err;
} keeper;

static int keep_one(void *ctx, const ckpt_visit *visit)
{
    const keeper *k = ctx;
    return visit->value->kind == CKPT_V_TENSOR && !visit->cycle ? (int)ckpt__ds_keep(k->d, visit->value->tensor, k->err)
                                                                : CKPT_OK;
}

static bool is_taken(const ckpt__ds *d, ckpt_str key)
{
    const ckpt_entry *e = d->reader.entries;
    for (size_t i = 0; i < d->reader.entry_count; i++)
        if (ckpt__str_equal(e[i].key->text, key))
            return true;
    const ckpt__index *x = ckpt__ds_index(d);
    for (size_t i = 0; i < x->tensor_count; i++)
        if (i < d->keep_capacity && d->keep[i] && ckpt__str_equal(x->tensors[i].info.name, key))
            return true;
    return false;
}

/* Nobody in the program that reads binds it: CKPT__OUTSIDE_KEY lists it. A key that a parameter has too gets a word before it. */
static ckpt_status put_outside(ckpt__ds *d, ckpt_str key, const ckpt_value *v, dict *outside, ckpt_error *err)
{
    keeper k = {d, err};
    ckpt_str name =
        is_taken(d, key) ? ckpt__arena_join(arena_of(d), ckpt__s("client_state."), key, (ckpt_str){NULL, 0}) : key;
    if (!name.data || !v)
        return ckpt__ds_no_memory(err);
    put(outside, ckpt__value_str(arena_of(d), name.data, name.size), v);
    ckpt_status status = (ckpt_status)ckpt_value_walk(v, 0, keep_one, &k, err);
    return status == CKPT_OK ? ckpt__ds_put(d, name.data, v, err) : status;
}

static ckpt_status put_client_state(ckpt__ds *d, dict *outside, ckpt_error *err)
{
    static const char *const layout[] = {
        "module",       "param_shapes", "frozen_param_shapes", "frozen_param_fragments", "shared_params",
        "buffer_names", "optimizer"};
    ckpt_status status = CKPT_OK;
    const ckpt_value *root = d->model.root;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key;
        if (key->kind == CKPT_V_STR && !is_one_of(key->text, layout, sizeof layout / sizeof *layout))
            status = put_outside(d, key->text, root->entries[i].value, outside, err);
    }
    return status;
}

/* A loss scaler is an object of DeepSpeed's, which no other program builds: its attributes, as a dict. An enum is its number. */
static const ckpt_value *plain(const ckpt__ds *d, const ckpt_value *v)
{
    if (v->kind == CKPT_V_OBJECT && v->state && v->state->kind == CKPT_V_DICT)
        return ckpt__value_dict(arena_of(d), v->state->entries, v->state->entry_count);
    return v->kind == CKPT_V_OBJECT && ckpt__ds_int(v) >= 0 ? ckpt__value_int(arena_of(d), ckpt__ds_int(v)) : v;
}

/* What the optimizer's file says beside the flat tensors and how they are laid out. */
static ckpt_status put_rest(ckpt__ds *d, const ckpt_value *optimizer, dict *outside, ckpt_error *err)
{
    static const char *const layout[] = {
        "base_optimizer_state",     "optimizer_state_dict", "single_partition_of_fp32_groups",
        "fp32_flat_groups",         "param_groups",         "param_slice_mappings",
        "param_alignment_paddings", "group_paddings",       "partition_count"};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && optimizer && optimizer->kind == CKPT_V_DICT && i < optimizer->entry_count;
         i++) {
        const ckpt_value *key = optimizer->entries[i].key;
        if (key->kind == CKPT_V_STR && !is_one_of(key->text, layout, sizeof layout / sizeof *layout) &&
            !is_taken(d, key->text)) /* ds_version stands in both files */
            status = put_outside(d, key->text, plain(d, optimizer->entries[i].value), outside, err);
    }
    return status;
}

static ckpt_status put_list(ckpt__ds *d, const dict *outside, ckpt_error *err)
{
    const ckpt_value **items = ckpt__arena_array(arena_of(d), outside->count + 1, sizeof *items);
    for (size_t i = 0; items && i < outside->count; i++)
        items[i] = outside->entries[i].key;
    return items && !outside->failed
               ? ckpt__ds_put(d, CKPT__OUTSIDE_KEY, ckpt__value_list(arena_of(d), CKPT_V_LIST, items, outside->count),
                              err)
               : ckpt__ds_no_memory(err);
}

ckpt_status ckpt__ds_values(ckpt__ds *d, const ckpt_value *optimizer, const ckpt_value *groups, ckpt_error *err)
{
    const int64_t step = ckpt__ds_int(ckpt_value_get(d->model.root, "global_steps"));
    dict outside = {.d = d};
    ckpt_status status = put_optimizer(d, groups, err);
    if (status == CKPT_OK && step >= 0)
        status = ckpt__ds_put(d, "step", ckpt__value_int(arena_of(d), step), err);
    ckpt__ds_index(d)->step = step;
    if (status == CKPT_OK)
        status = put_scaler(d, optimizer, err);
    if (status == CKPT_OK)
        status = put_client_state(d, &outside, err);
    if (status == CKPT_OK)
        status = put_rest(d, optimizer, &outside, err);
    for (size_t i = 0; status == CKPT_OK && i < d->beside_count; i++)
        status = put_outside(d, d->beside[i].key->text, d->beside[i].value, &outside, err);
    if (status == CKPT_OK)
        status = put_list(d, &outside, err);
    free(outside.entries);
    return status;
}
