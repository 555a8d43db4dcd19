/* migrate/to_universal.c - a universal checkpoint of DeepSpeed, which "checkpoint": {"load_universal": true} resumes from in any number
 * of ranks with ZeRO 1, 2 and 3 (deepspeed/runtime/engine.py, checkpoint/universal_checkpoint.py, runtime/zero/stage3.py):
 *
 *   latest_universal                                the tag
 *   global_step<N>_universal/
 *     mp_rank_00_model_states.pt                    the model's dict, the step, the scheduler, and all else: stages 1 and 2
 *     zero_pp_rank_0_mp_rank_00_model_states.pt     the same without the model: stage 3
 *     zero/optimizer_state.pt                       the groups' settings, as stages 1 and 2 want them, and as stage 3 does
 *     zero/<param>/{fp32,exp_avg,exp_avg_sq}.pt     {'param': float32 tensor}
 *     zero/<param>/step.pt                          a float32 of no dimensions
 *
 * Files of torch may share a tensor: each has the bytes. */
#include "migrate/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/format.h"
#include "format/table.h"
#include "model/views.h"

/* Stages 1 and 2 ask which version wrote a checkpoint: that whose loaders these files were held against. */
static const char version[] = "0.19.8";

typedef struct universal {
    ckpt__out *w;
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__trained_parts parts;
    const ckpt_value *first_step; /* of the first parameter that has one; NULL: none has */
    int64_t step;
    size_t trained, left;  /* parameters with files; tensors of the model that nobody loads */
    ckpt__buf names;       /* of the latter, the first few */
    const bool *elsewhere; /* one an entry of the root: it has a file of its own; NULL: none has */
    ckpt_error *err;
} universal;

static ckpt_status no_memory(const universal *u)
{
    return ckpt__migration_no_memory(u->err);
}

/* ---- what a parameter has */

static bool is_tensor(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_TENSOR;
}

/* No state at all: it was never stepped, or is frozen. */
static bool is_idle(const ckpt__trained *p)
{
    return !p->state || p->state->entry_count == 0;
}

static bool is_safe(ckpt_str name)
{
    enum { LONGEST = 255 };
    return name.size > 0 && name.size <= LONGEST && !memchr(name.data, '/', name.size) &&
           !memchr(name.data, 0, name.size) && !ckpt__str_is(name, ".") && !ckpt__str_is(name, "..");
}

/* DeepSpeed asks for all three of each parameter that it trains, and torch's Adam for the step. */
static ckpt_status check_param(const universal *u, const ckpt__trained *p)
{
    static const char *const wanted[] = {"exp_avg", "exp_avg_sq", "step"};
    char shown[300];
    ckpt__escape(shown, sizeof shown, p->name.data, p->name.size);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!is_tensor(ckpt__at(p->state, wanted[i])))
            return ckpt__fail(
                u->err, CKPT_E_UNSUPPORTED, u->m->dst,
                "a universal checkpoint holds the state of Adam: fp32, exp_avg, exp_avg_sq and step of each "
                "parameter, and '%s' has no %s%s",
                shown, wanted[i], i == 2 ? ", nor does the checkpoint say which step it is of" : "");
    if (!ckpt__master_in(u->m, p->state) && p->weight == SIZE_MAX)
        return ckpt__fail(u->err, CKPT_E_UNSUPPORTED, u->m->dst,
                          "the optimizer's parameter '%s' is none of the model's: there is nothing for its fp32",
                          shown);
    if (!is_safe(p->name))
        return ckpt__fail(u->err, CKPT_E_UNSUPPORTED, u->m->dst,
                          "the parameter '%s' would be a folder of that name, which no file system has", shown);
    return CKPT_OK;
}

static ckpt_status check_params(universal *u)
{
    ckpt__buf idle = {0};
    size_t count = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < u->parts.count; i++) {
        const ckpt__trained *p = &u->parts.params[i];
        if (is_idle(p)) {
            ckpt__put_name(&idle, count++, p->name);
            continue;
        }
        status = check_param(u, p);
        u->trained += status == CKPT_OK;
    }
    if (status == CKPT_OK && u->trained == 0)
        status = ckpt__fail(
            u->err, CKPT_E_UNSUPPORTED, u->m->dst,
            "%s: a universal checkpoint is the optimizer's state by its parameters' names. For weights alone say --to hf",
            u->parts.groups ? "no parameter of the optimizer has a state that has a name"
            : u->m->canon->unnamed.data
                ? "which of the model's parameters the optimizer's numbers are is not known (--param-names, --assume-order)"
                : "the checkpoint has no optimizer");
    if (status == CKPT_OK && count)
        status =
            idle.failed
                ? no_memory(u)
                : ckpt__warn(u->m, "universal-incomplete", u->err,
                             "leave them out of the optimizer; or take a step before the save",
                             "%zu of the optimizer's parameters have no state, and get no files (%s): where DeepSpeed "
                             "trains them, FileNotFoundError",
                             count, idle.data);
    ckpt__buf_free(&idle);
    return status;
}

/* ---- files */

static ckpt_status add_folder(universal *u, ckpt_str name)
{
    ckpt__out *w = u->w;
    if (!name.data || !ckpt__grow(&w->folders, &w->folder_capacity, w->folder_count + 1, sizeof *w->folders))
        return no_memory(u);
    w->folders[w->folder_count++] = name.data;
    return CKPT_OK;
}

static ckpt_status add_file(universal *u, ckpt_str folder, const char *name, const ckpt_value *root)
{
    ckpt_str path = ckpt__arena_join(u->arena, folder, ckpt__s("/"), ckpt__s(name));
    ckpt__out_file *f = path.data && root ? ckpt__out_add(u->w, path.data) : NULL;
    if (!f)
        return no_memory(u);
    f->format = u->m->format;
    f->root = root;
    return CKPT_OK;
}

/* The tensor as it is read back, for --verify. */
static ckpt_status note_back(universal *u, ckpt_str name, size_t tensor)
{
    return ckpt__back_expect(u->m, name, tensor) ? CKPT_OK : no_memory(u);
}

static ckpt_status write_state(universal *u, const ckpt__trained *p, ckpt_str folder, const char *key,
                               const ckpt_value *tensor)
{
    const bool bare = strcmp(key, "step") == 0;
    char file[200];
    snprintf(file, sizeof file, "%.180s.pt", key);
    ckpt__made_dict d = {.arena = u->arena};
    ckpt_str head = ckpt__arena_join(u->arena, ckpt__s("optimizer."), p->name, ckpt__s(".")), name = {NULL, 0};
    if (head.data)
        name = ckpt__arena_join(u->arena, head, ckpt__s(key), (ckpt_str){NULL, 0});
    if (!bare)
        ckpt__made_put_as(&d, "param", tensor);
    const ckpt_value *root = bare ? tensor : ckpt__made_finish(&d);
    ckpt_status status = name.data ? add_file(u, folder, file, root) : no_memory(u);
    /* resume.c has set the states apart. A table of all storages in each file would take minutes for ten thousand parameters. */
    if (status == CKPT_OK && !tensor->origin && !tensor->class_name.data &&
        ckpt__fills_storage(u->m->index, &u->m->index->tensors[tensor->tensor]))
        u->w->files[u->w->count - 1].only = tensor->tensor + 1;
    return status == CKPT_OK ? note_back(u, name, tensor->tensor) : status;
}

static const ckpt_value *tensor_value(const universal *u, size_t tensor)
{
    ckpt_value *v = ckpt__value_new(u->arena, CKPT_V_TENSOR);
    if (v)
        v->tensor = tensor;
    return v;
}

/* Stages 1 and 2 load each file of a parameter's folder, and stage 3 three of them: another moment is written for the former. */
static ckpt_status write_param(universal *u, const ckpt__trained *p, ckpt_str zero, size_t *others, size_t *values)
{
    ckpt_str folder = ckpt__arena_join(u->arena, zero, ckpt__s("/"), p->name);
    const ckpt_value *master = ckpt__master_in(u->m, p->state), *fp32 = master ? master : tensor_value(u, p->weight);
    ckpt_status status = add_folder(u, folder);
    if (status == CKPT_OK)
        status = fp32 ? write_state(u, p, folder, "fp32", fp32) : no_memory(u);
    for (size_t i = 0; status == CKPT_OK && i < p->state->entry_count; i++) {
        const ckpt_entry *e = &p->state->entries[i];
        const bool known = e->key->kind == CKPT_V_STR && is_safe(e->key->text) && e->key->text.size < 100;
        if (e->value == master)
            continue;
        if (!known || !is_tensor(e->value)) {
            ++*values;
            continue;
        }
        *others += !ckpt__str_is(e->key->text, "exp_avg") && !ckpt__str_is(e->key->text, "exp_avg_sq") &&
                   !ckpt__str_is(e->key->text, "step");
        status = write_state(u, p, folder, e->key->text.data, e->value);
    }
    if (!u->first_step)
        u->first_step = ckpt__at(p->state, "step");
    return status;
}

static ckpt_status write_params(universal *u, ckpt_str tag)
{
    ckpt_str zero = ckpt__arena_join(u->arena, tag, ckpt__s("/zero"), (ckpt_str){NULL, 0});
    size_t others = 0, values = 0;
    ckpt_status status = add_folder(u, zero);
    for (size_t i = 0; status == CKPT_OK && i < u->parts.count; i++)
        if (!is_idle(&u->parts.params[i]))
            status = write_param(u, &u->parts.params[i], zero, &others, &values);
    if (status == CKPT_OK && values)
        status = ckpt__lose(u->m, u->err, "%zu values of the optimizer's state that are not tensors", values);
    if (status == CKPT_OK && others)
        status = ckpt__warn(
            u->m, "universal-incomplete", u->err, "resume with ZeRO 1 or 2",
            "%zu tensors of the optimizer's state are neither exp_avg nor exp_avg_sq (amsgrad's max_exp_avg_sq, ...): "
            "stages 1 and 2 load them, and stage 3 does not",
            others);
    return status;
}

/* ---- the settings */

static bool differ(const ckpt_value *groups)
{
    for (size_t i = 1; i < groups->item_count; i++)
        if (!ckpt__value_alike(groups->items[0], groups->items[i]))
            return true;
    return false;
}

static ckpt_status write_settings(universal *u, ckpt_str tag)
{
    ckpt__arena *a = u->arena;
    ckpt__made_dict top = {.arena = a}, inner = {.arena = a}, states = {.arena = a}, one = {.arena = a};
    const size_t count = u->parts.groups->item_count;
    const ckpt_value **items = ckpt__arena_array(a, count + 1, sizeof *items);
    if (!items)
        return no_memory(u);
    for (size_t g = 0; g < count; g++)
        if (!(items[g] = ckpt__settings_of(a, u->parts.groups->items[g])))
            return no_memory(u);
    const ckpt_value *groups = ckpt__value_list(a, CKPT_V_LIST, items, count);
    ckpt__made_put_as(&one, "step", u->first_step);
    ckpt__made_put(&states, ckpt__value_int(a, 0), ckpt__made_finish(&one));
    ckpt__made_put_as(&inner, "state", ckpt__made_finish(&states));
    ckpt__made_put_as(&inner, "param_groups", groups);
    ckpt__made_put_as(&top, "param_groups", groups);
    ckpt__made_put_as(&top, "ds_version", ckpt__value_str(a, version, sizeof version - 1));
    ckpt__made_put_as(&top, "optimizer_state_dict", ckpt__made_finish(&inner));
    ckpt_status status = add_file(u, tag, "zero/optimizer_state.pt", ckpt__made_finish(&top));
    if (status == CKPT_OK)
        status = ckpt__lose_settings(u->m, u->parts.optimizer, u->err);
    if (status == CKPT_OK && groups && differ(groups))
        status = ckpt__warn(
            u->m, "universal-incomplete", u->err,
            "with ZeRO 1 or 2 each group has its own; with stage 3 set lr and weight_decay of "
            "engine.optimizer.optimizer.param_groups anew after load_checkpoint",
            "the optimizer's %zu groups have different settings: ZeRO stage 3 copies those of the first into "
            "all, without a word",
            count);
    if (status == CKPT_OK && count > 1)
        status = ckpt__warn(
            u->m, "universal-incomplete", u->err,
            "after load_checkpoint: for s in engine.optimizer.optimizer.state.values(): s['step'] = "
            "s['step'].clone()",
            "ZeRO stage 3 gives all %zu groups of the optimizer one tensor for the step, and each of them counts it up: "
            "with torch's own Adam the steps behind it differ (DeepSpeed 0.19.8)",
            count);
    return status;
}

/* ---- the model's files */

/* (3, 4) */
static const ckpt_value *shape_value(const universal *u, const ckpt_tensor_info *t)
{
    const ckpt_value **items = ckpt__arena_array(u->arena, (size_t)t->ndim + 1, sizeof *items);
    for (uint32_t d = 0; items && d < t->ndim; d++)
        if (!(items[d] = ckpt__value_int(u->arena, t->shape[d])))
            return NULL;
    return items ? ckpt__value_list(u->arena, CKPT_V_TUPLE, items, t->ndim) : NULL;
}

static const ckpt_value *param_shapes(const universal *u)
{
    const size_t count = u->parts.groups->item_count;
    const ckpt_value **items = ckpt__arena_array(u->arena, count + 1, sizeof *items);
    size_t i = 0;
    for (size_t g = 0; items && g < count; g++) {
        ckpt__made_dict d = {.arena = u->arena};
        for (; i < u->parts.count && u->parts.params[i].group == g; i++) {
            const ckpt__trained *p = &u->parts.params[i];
            if (is_idle(p))
                continue;
            const ckpt_value *master = ckpt__master_in(u->m, p->state);
            const size_t tensor = p->weight != SIZE_MAX ? p->weight : master->tensor;
            ckpt__made_put(&d, ckpt__value_str(u->arena, p->name.data, p->name.size),
                           shape_value(u, &u->m->index->tensors[tensor].info));
        }
        if (!(items[g] = ckpt__made_finish(&d)))
            return NULL;
    }
    return items ? ckpt__value_list(u->arena, CKPT_V_LIST, items, count) : NULL;
}

/* Another name of a parameter that is trained: the program ties it again. */
static const ckpt__trained *tied_to(const universal *u, size_t tensor)
{
    const ckpt__index *x = u->m->index;
    const ckpt__tensor *t = &x->tensors[tensor];
    for (size_t i = 0; t->info.nbytes && i < u->parts.count; i++) {
        const ckpt__trained *p = &u->parts.params[i];
        if (!is_idle(p) && p->weight != SIZE_MAX && ckpt__same_view(&x->tensors[p->weight], t))
            return p;
    }
    return NULL;
}

/* What of the model has no folder below zero/: buffers, frozen parameters, and second names. */
static ckpt_status list_others(universal *u, ckpt__made_dict *frozen, ckpt__made_dict *tied, const ckpt_value **buffers)
{
    const ckpt_value *model = u->parts.model;
    const size_t most = model ? model->entry_count : 0;
    const ckpt_value **items = ckpt__arena_array(u->arena, most + 1, sizeof *items);
    size_t at, count = 0;
    if (!items)
        return no_memory(u);
    for (size_t i = 0; i < most; i++) {
        const ckpt_entry *e = &model->entries[i];
        if (!is_tensor(e->value) || e->key->kind != CKPT_V_STR)
            continue;
        const ckpt_str name = e->key->text;
        const ckpt_tensor_info *t = &u->m->index->tensors[e->value->tensor].info;
        if (ckpt__hash_get(u->parts.by_name, name.data, name.size, &at) && !is_idle(&u->parts.params[at]))
            continue;
        const ckpt__trained *other = tied_to(u, e->value->tensor);
        if (other) {
            ckpt__made_put(tied, e->key, ckpt__value_str(u->arena, other->name.data, other->name.size));
            continue;
        }
        ckpt__put_name(&u->names, u->left++, name);
        if (t->role == CKPT_ROLE_BUFFER)
            items[count++] = e->key;
        else
            ckpt__made_put(frozen, e->key, shape_value(u, t));
    }
    *buffers = ckpt__value_list(u->arena, CKPT_V_LIST, items, count);
    return *buffers ? CKPT_OK : no_memory(u);
}

/* Names that DeepSpeed gives to something of its own. */
static bool is_reserved(ckpt_str key)
{
    static const char *const names[] = {"module",
                                        "buffer_names",
                                        "optimizer",
                                        "param_shapes",
                                        "frozen_param_shapes",
                                        "shared_params",
                                        "frozen_param_fragments",
                                        "lr_scheduler",
                                        "global_steps",
                                        "dp_world_size",
                                        "mp_world_size",
                                        "universal_checkpoint_info"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ckpt__str_is(key, names[i]))
            return true;
    return false;
}

/* The tensors of a value are read back below its key; one that has several places, at the first. */
typedef struct expecting {
    universal *u;
    ckpt_str key;
    bool *met; /* one a tensor */
} expecting;

static int expect_one(void *ctx, const ckpt_visit *visit)
{
    const expecting *x = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || visit->cycle || visit->inside || x->met[v->tensor])
        return CKPT_OK;
    x->met[v->tensor] = true;
    ckpt_str name = visit->name.size
                        ? ckpt__arena_join(x->u->arena, x->key, ckpt__s("."),
                                           ckpt__arena_str(x->u->arena, visit->name.data, visit->name.size))
                        : x->key;
    return name.data ? note_back(x->u, name, v->tensor) : no_memory(x->u);
}

/* The key as the program's client state has it: what came of such a checkpoint may have a word before it (format/deepspeed/values.c).
 * NULL: the same is there without the word. */
static const ckpt_value *client_key(const universal *u, const ckpt_entry *e, bool own)
{
    static const char word[] = "client_state.";
    if (e->key->kind != CKPT_V_STR || !ckpt__str_begins_more(e->key->text, word))
        return e->key;
    const ckpt_str plain = {e->key->text.data + sizeof word - 1, e->key->text.size - (sizeof word - 1)};
    const bool step = own && ckpt__str_is(plain, "step");
    const ckpt_value *same = step ? NULL : ckpt__at(u->m->root, plain.data);
    const bool scalar = e->value->kind == CKPT_V_INT || e->value->kind == CKPT_V_FLOAT ||
                        e->value->kind == CKPT_V_BOOL || e->value->kind == CKPT_V_STR;
    if (is_reserved(plain) || (same && (!scalar || !ckpt__value_alike(same, e->value))))
        return e->key;
    return same ? NULL : ckpt__value_str(u->arena, plain.data, plain.size);
}

/* Client state: all that DeepSpeed has no name for. load_checkpoint returns it. */
static ckpt_status put_client_state(universal *u, ckpt__made_dict *d)
{
    const ckpt_value *root = u->m->root;
    const ckpt__sharded by = ckpt__format_of(u->m->from)->sharded;
    const bool own = by == CKPT__SHARDED_DEEPSPEED || by == CKPT__SHARDED_UNIVERSAL;
    bool skipped = false, *met = calloc(u->m->index->tensor_count + 1, sizeof *met);
    ckpt_status status = met ? CKPT_OK : no_memory(u);
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : (ckpt_str){NULL, 0};
        expecting x = {u, key, met};
        skipped |= ckpt__str_is(key, "skipped_steps");
        if (u->elsewhere && u->elsewhere[i])
            continue;
        if (ckpt__str_is(key, "model") && e->value == u->parts.model)
            continue;
        if (own && ckpt__str_is(key, "step"))
            continue; /* it is global_steps */
        if (is_reserved(key)) {
            if (!own && !ckpt__str_is(key, "optimizer") && !ckpt__str_is(key, "lr_scheduler") &&
                !ckpt__str_is(key, "global_steps"))
                status =
                    ckpt__lose(u->m, u->err, "'%s', a name that DeepSpeed gives to something of its own", key.data);
            continue;
        }
        const ckpt_value *own_key = client_key(u, e, own);
        if (!own_key)
            continue;
        ckpt__made_put(d, own_key, e->value);
        if (key.data)
            status = (ckpt_status)ckpt_value_walk(e->value, 0, expect_one, &x, u->err);
    }
    free(met);
    if (!skipped)
        ckpt__made_put_as(d, "skipped_steps", ckpt__value_int(u->arena, 0));
    return status;
}

static ckpt_status put_layout(universal *u, ckpt__made_dict *d, const ckpt_value *shapes)
{
    ckpt__made_dict frozen = {.arena = u->arena}, tied = {.arena = u->arena};
    const ckpt_value *scheduler = ckpt__scheduler_of(u->m->root), *none = ckpt__value_new(u->arena, CKPT_V_NONE),
                     *buffers = NULL;
    ckpt_status status = list_others(u, &frozen, &tied, &buffers);
    ckpt__made_put_as(d, "buffer_names", buffers);
    ckpt__made_put_as(d, "optimizer", none);
    ckpt__made_put_as(d, "param_shapes", shapes);
    ckpt__made_put_as(d, "frozen_param_shapes", ckpt__made_finish(&frozen));
    ckpt__made_put_as(d, "shared_params", ckpt__made_finish(&tied));
    ckpt__made_put_as(d, "frozen_param_fragments", none);
    ckpt__made_put_as(d, "lr_scheduler", scheduler ? scheduler : none);
    ckpt__made_put_as(d, "global_steps", ckpt__value_int(u->arena, u->step));
    ckpt__made_put_as(d, "dp_world_size", ckpt__value_int(u->arena, 1));
    ckpt__made_put_as(d, "mp_world_size", ckpt__value_int(u->arena, 1));
    return status == CKPT_OK ? put_client_state(u, d) : status;
}

static ckpt_status write_models(universal *u, ckpt_str tag)
{
    ckpt__made_dict rest = {.arena = u->arena}, all = {.arena = u->arena};
    const ckpt_value *model = u->parts.model ? u->parts.model : ckpt__value_dict(u->arena, NULL, 0);
    const ckpt_value *shapes = param_shapes(u);
    ckpt_status status = shapes && model ? put_layout(u, &rest, shapes) : no_memory(u);
    ckpt__made_put_as(&all, "module", model);
    for (size_t i = 0; i < rest.count; i++)
        ckpt__made_put(&all, rest.entries[i].key, rest.entries[i].value);
    for (size_t i = 0; status == CKPT_OK && i < model->entry_count; i++)
        if (is_tensor(model->entries[i].value) && model->entries[i].key->kind == CKPT_V_STR)
            status = note_back(u, model->entries[i].key->text, model->entries[i].value->tensor);
    const ckpt_value *one = ckpt__made_finish(&all), *other = ckpt__made_finish(&rest);
    if (status == CKPT_OK)
        status = add_file(u, tag, "mp_rank_00_model_states.pt", one);
    if (status == CKPT_OK)
        status = add_file(u, tag, "zero_pp_rank_0_mp_rank_00_model_states.pt", other);
    return status;
}

/* ---- the whole */

static ckpt_status find_step(universal *u)
{
    const ckpt_value *own = ckpt__at(u->m->root, "global_steps");
    u->step = own && own->kind == CKPT_V_INT && own->integer >= 0 ? own->integer : u->m->index->step;
    if (u->step >= 0)
        return CKPT_OK;
    u->step = 0;
    return ckpt__warn(
        u->m, "universal-incomplete", u->err,
        "engine.global_steps = N after load_checkpoint, or write 'global_steps' into the source",
        "the checkpoint does not say which step it is of: global_steps is 0. The steps of the optimizer's states are "
        "their own");
}

static ckpt_status say_left(universal *u)
{
    ckpt_status status = CKPT_OK;
    const ckpt_value *scaler = ckpt__at(u->m->root, "scaler");
    if (u->left && u->names.failed)
        return no_memory(u);
    if (u->left)
        status = ckpt__warn(
            u->m, "universal-incomplete", u->err,
            "load them from mp_rank_00_model_states.pt, torch.load(...)['module'], before deepspeed.initialize: "
            "model.load_state_dict(..., strict=False)",
            "%zu buffers and frozen parameters (%s) are in the model's file, which DeepSpeed does not read under "
            "load_universal: they stay as the program makes them",
            u->left, u->names.data);
    if (status == CKPT_OK && scaler)
        status =
            ckpt__warn(u->m, "universal-incomplete", u->err, NULL,
                       "the loss scale is in the client state alone: with fp16 DeepSpeed begins with the scale of its "
                       "configuration");
    return status;
}

static ckpt_status write_latest(universal *u, ckpt_str tag)
{
    ckpt__out_file *f = ckpt__out_add(u->w, "latest_universal");
    if (!f)
        return no_memory(u);
    ckpt__buf_add(&f->text, tag.data, tag.size);
    return f->text.failed ? no_memory(u) : CKPT_OK;
}

static ckpt_status write_all(universal *u, ckpt_str tag, bool latest)
{
    ckpt_status status = add_folder(u, tag);
    if (status == CKPT_OK)
        status = write_models(u, tag);
    if (status == CKPT_OK)
        status = write_params(u, tag);
    if (status == CKPT_OK)
        status = write_settings(u, tag);
    if (status == CKPT_OK && latest)
        status = write_latest(u, tag);
    return status == CKPT_OK ? say_left(u) : status;
}

ckpt_status ckpt__universal_in(ckpt__out *w, ckpt_str tag, const bool *elsewhere)
{
    universal u = {.w = w, .m = w->m, .arena = w->m->index->arena, .elsewhere = elsewhere, .err = w->err};
    const bool latest = !tag.data;
    char name[60];
    ckpt_status status = ckpt__trained_take(u.m, &u.parts, u.err);
    if (status == CKPT_OK)
        status = check_params(&u);
    if (status == CKPT_OK)
        status = find_step(&u);
    if (status == CKPT_OK) {
        snprintf(name, sizeof name, "global_step%lld_universal", (long long)u.step);
        if (latest)
            tag = ckpt__arena_str(u.arena, name, strlen(name));
        ckpt__tag_as_host(u.m);
        status = write_all(&u, tag, latest);
    }
    ckpt__buf_free(&u.names);
    ckpt__trained_free(&u.parts);
    return status;
}

ckpt_status ckpt__universal_files(ckpt__out *w)
{
    return ckpt__universal_in(w, (ckpt_str){NULL, 0}, NULL);
}
