/* migrate/to_torchtitan.c - what torchtitan's trainer has otherwise in a distributed checkpoint: the weights stand at the root, and the
 * optimizer is one dict with a key for each value (model/flat_state.h). [torchtitan 0.3, components/checkpointer/dcp.py,
 * components/optimizer/utils.py (get_flat_optim_state_dict), trainer.py (state_dict)] */
#include "migrate/resume.h"

#include <stdio.h>
#include "model/value_path.h"
#include "model/visits.h"

/* The flat dict on its way. */
typedef struct flattening {
    ckpt__migration *m;
    ckpt__made_dict dict;
    ckpt__hash *keys; /* owned: those that it has */
    ckpt_error *err;
} flattening;

/* A text that the dict has by now is not put again. key NULL: memory was short. */
static ckpt_status put(flattening *f, const ckpt_value *key, const ckpt_value *value)
{
    int fresh = key ? 1 : -1;
    if (key && key->kind == CKPT_V_STR)
        fresh = ckpt__hash_put(f->keys, key->text.data, key->text.size, 0, NULL);
    if (fresh < 0)
        return ckpt__migration_no_memory(f->err);
    if (fresh)
        ckpt__made_put(&f->dict, key, value);
    return CKPT_OK;
}

static bool has(const flattening *f, const ckpt_value *key)
{
    return key->kind == CKPT_V_STR && ckpt__hash_get(f->keys, key->text.data, key->text.size, NULL);
}

/* "state.", the parameter's name, a dot and the key. */
static ckpt_status put_of(flattening *f, const char *head, ckpt_str param, ckpt_str key, const ckpt_value *value)
{
    ckpt__buf text = {0};
    ckpt__buf_str(&text, head);
    ckpt__buf_add(&text, param.data, param.size);
    ckpt__buf_char(&text, '.');
    ckpt__buf_add(&text, key.data, key.size);
    ckpt_status status = text.failed ? ckpt__migration_no_memory(f->err)
                                     : put(f, ckpt__value_str(f->m->index->arena, text.data, text.size), value);
    ckpt__buf_free(&text);
    return status;
}

static ckpt_status put_states(flattening *f, const ckpt_value *states)
{
    ckpt_status status = CKPT_OK;
    char shown[200];
    for (size_t i = 0; status == CKPT_OK && i < states->entry_count; i++) {
        const ckpt_entry *e = &states->entries[i];
        bool texts = e->key->kind == CKPT_V_STR && e->value->kind == CKPT_V_DICT;
        for (size_t k = 0; texts && k < e->value->entry_count; k++)
            texts = e->value->entries[k].key->kind == CKPT_V_STR;
        if (!texts)
            return ckpt__fail(
                f->err, CKPT_E_UNSUPPORTED, f->m->dst,
                "the optimizer's state of '%s' is not a dict with texts for keys, and torchtitan has a name for "
                "each of its values",
                ckpt__escape(shown, sizeof shown, e->key->text.data, e->key->text.size));
        for (size_t k = 0; status == CKPT_OK && k < e->value->entry_count; k++)
            status = put_of(f, "state.", e->key->text, e->value->entries[k].key->text, e->value->entries[k].value);
    }
    return status;
}

/* Each parameter of a group has its settings. */
static ckpt_status put_group(flattening *f, const ckpt_value *group)
{
    const ckpt_value *names = ckpt__at(group, "params");
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < group->entry_count; k++) {
        const ckpt_entry *e = &group->entries[k];
        if (e->value == names)
            continue;
        for (size_t i = 0; i < names->item_count; i++)
            if (names->items[i]->kind != CKPT_V_STR || e->key->kind != CKPT_V_STR)
                return ckpt__fail(
                    f->err, CKPT_E_UNSUPPORTED, f->m->dst,
                    "a group of the optimizer names a parameter, or a setting, by something that is not text");
        const int tensor = ckpt__value_has_tensor(e->value, f->err);
        if (tensor)
            return tensor < 0
                       ? (ckpt_status)tensor
                       : ckpt__fail(f->err, CKPT_E_UNSUPPORTED, f->m->dst,
                                    "'%.*s' of a group of the optimizer is a tensor, and torchtitan has a number "
                                    "of it for each parameter",
                                    (int)e->key->text.size, e->key->text.data);
        for (size_t i = 0; status == CKPT_OK && i < names->item_count; i++)
            status = put_of(f, "param_groups.", names->items[i]->text, e->key->text, e->value);
    }
    return status;
}

/* Do two groups have the same settings? Their parameters are of one then, to whoever reads them. */
static bool same_settings(const ckpt_value *a, const ckpt_value *b)
{
    for (size_t i = 0; i < a->entry_count; i++) {
        const ckpt_entry *e = &a->entries[i];
        const ckpt_entry *o = e->key->kind == CKPT_V_STR ? ckpt__find_entry(b, e->key->text.data) : NULL;
        if (!ckpt__str_is(e->key->text, "params") && (!o || !ckpt__value_alike(e->value, o->value)))
            return false;
    }
    return a->entry_count == b->entry_count;
}

/* What of groups has no place where each parameter has its settings. */
static ckpt_status say_groups(const flattening *f, const ckpt_value *groups)
{
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < groups->item_count; g++) {
        const ckpt_value *one = groups->items[g], *names = ckpt__at(one, "params");
        if (!names->item_count && one->entry_count > 1)
            status = ckpt__lose(f->m, f->err, "the settings of group %zu of the optimizer, which has no parameters", g);
        if (names->item_count && one->entry_count == 1)
            status = ckpt__lose(f->m, f->err, "group %zu of the optimizer, which has no settings", g);
        for (size_t k = 0; status == CKPT_OK && k < g; k++)
            if (same_settings(one, groups->items[k])) {
                status = ckpt__migration_note(f->m, CKPT_SEVERITY_NOTE, "groups-joined", (ckpt_str){NULL, 0}, f->err,
                                              "groups %zu and %zu of the optimizer have the same settings: their "
                                              "parameters are one group there",
                                              k, g);
                break;
            }
    }
    return status;
}

/* *out: the optimizer as one dict. One that names no parameters, or is flat by now, stays as it is. */
static ckpt_status flatten(ckpt__migration *m, const ckpt_value *optimizer, const ckpt_value **out, ckpt_error *err)
{
    const ckpt_value *states = ckpt__at(optimizer, "state"), *groups = ckpt__at(optimizer, "param_groups");
    flattening f = {.m = m, .dict = {.arena = m->index->arena}, .keys = ckpt__hash_new(64), .err = err};
    ckpt_status status = f.keys ? CKPT_OK : ckpt__migration_no_memory(err);
    *out = optimizer;
    if (status == CKPT_OK && states && ckpt__is_list(groups)) {
        status = say_groups(&f, groups);
        for (size_t g = 0; status == CKPT_OK && g < groups->item_count; g++) /* first: so their order is kept */
            status = put_group(&f, groups->items[g]);
        if (status == CKPT_OK)
            status = put_states(&f, states);
        for (size_t i = 0; status == CKPT_OK && i < optimizer->entry_count; i++)
            if (optimizer->entries[i].value != states && optimizer->entries[i].value != groups)
                status = put(&f, optimizer->entries[i].key, optimizer->entries[i].value);
        *out = ckpt__made_finish(&f.dict);
    }
    ckpt__hash_free(f.keys);
    return status == CKPT_OK && !*out ? ckpt__migration_no_memory(err) : status;
}

/* The trainer's step, as it has it; NULL: memory was short. */
static const ckpt_value *train_state_of(ckpt__migration *m)
{
    ckpt__made_dict d = {.arena = m->index->arena};
    ckpt__made_put_as(&d, "step", ckpt__value_int(m->index->arena, m->index->step));
    return ckpt__made_finish(&d);
}

/* torchtitan asks for all of these by name, and stops where one is missing. */
static ckpt_status note_lacking(ckpt__migration *m, ckpt_error *err)
{
    static const struct {
        const char *dict, *key;
    } asked[] = {
        {"train_state", "step"}, {"train_state", "ntokens_seen"}, {"lr_scheduler", "last_epoch"}, {"dataloader", NULL}};
    char lacks[200] = "", left[120] = "";
    size_t n = 0, l = 0;
    const char *last = "";
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const ckpt_value *dict = ckpt__at(m->root, asked[i].dict);
        if (dict && (!asked[i].key || ckpt__at(dict, asked[i].key)))
            continue;
        n += (size_t)snprintf(lacks + n, sizeof lacks - n, "%s%s%s%s", n ? ", " : "", asked[i].dict,
                              asked[i].key ? "." : "", asked[i].key ? asked[i].key : "");
        if (strcmp(last, asked[i].dict) != 0)
            l += (size_t)snprintf(left + l, sizeof left - l, "%s'%s'", l ? ", " : "", asked[i].dict);
        last = asked[i].dict;
    }
    if (!n)
        return CKPT_OK;
    char fix[300];
    snprintf(fix, sizeof fix, "checkpoint.exclude_from_loading = [%s] in torchtitan's configuration", left);
    return ckpt__warn(
        m, "torchtitan-lacks", err, fix,
        "the checkpoint does not say %s, and none of it is made up: torchtitan's load asks for it, and stops "
        "(Missing key)",
        lacks);
}

ckpt_status ckpt__torchtitan_root(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *root = m->root, *model = ckpt__at(root, "model"), *optimizer = ckpt__at(root, "optimizer"),
                     *scheduler = ckpt__scheduler_of(root), *flat = optimizer;
    flattening f = {.m = m, .dict = {.arena = m->index->arena}, .keys = ckpt__hash_new(64), .err = err};
    ckpt_status status = f.keys ? CKPT_OK : ckpt__migration_no_memory(err);
    if (model && model->kind != CKPT_V_DICT)
        model = NULL; /* it stays where it is */
    if (status == CKPT_OK && optimizer)
        status = flatten(m, optimizer, &flat, err);
    for (size_t i = 0; status == CKPT_OK && model && i < model->entry_count; i++)
        status = put(&f, model->entries[i].key, model->entries[i].value);
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        const ckpt_value *key = e->value == scheduler ? ckpt__value_str(m->index->arena, "lr_scheduler", 12) : e->key;
        char shown[200];
        if (e->value == model)
            continue;
        if (key && has(&f, key))
            status = ckpt__fail(
                err, CKPT_E_UNSUPPORTED, m->dst,
                "'%s' is a tensor of the model and something beside it, or stands there twice, and torchtitan has "
                "all of it at the root: --drop or --rename one",
                ckpt__escape(shown, sizeof shown, key->text.data, key->text.size));
        else
            status = put(&f, key, e->value == optimizer ? flat : e->value);
    }
    if (status == CKPT_OK && m->index->step >= 0 && !ckpt__at(root, "train_state") && optimizer)
        status = put(&f, ckpt__value_str(m->index->arena, "train_state", 11), train_state_of(m));
    ckpt__hash_free(f.keys);
    m->root = ckpt__made_finish(&f.dict);
    if (status == CKPT_OK && !m->root)
        status = ckpt__migration_no_memory(err);
    return status == CKPT_OK && optimizer ? note_lacking(m, err) : status;
}
