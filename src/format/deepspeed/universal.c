/* format/deepspeed/universal.c - a universal checkpoint: a folder for each parameter below zero/, with its master and its moments as
 * tensors of their own, and zero/optimizer_state.pt with the settings (deepspeed/checkpoint/ds_to_universal.py). */
#include "format/deepspeed/deepspeed.h"
#include "format/survey.h"
#include "model/training.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the files of a folder */

typedef struct names {
    ckpt__arena *arena; /* borrowed */
    const char **files; /* heap: "exp_avg.pt", ... */
    size_t count, capacity;
    bool folders; /* it is folders that are listed */
} names;

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    names *n = ctx;
    (void)root;
    if (folder != n->folders || (!folder && !ckpt__ends(name, ".pt")))
        return CKPT_OK;
    for (size_t i = 0; !folder && i < n->count; i++)
        if (strcmp(n->files[i], name) == 0)
            return CKPT_OK;
    const char *copy = ckpt__arena_copy(n->arena, name, strlen(name));
    if (!copy || !ckpt__grow(&n->files, &n->capacity, n->count + 1, sizeof *n->files))
        return ckpt__ds_no_memory(err);
    n->files[n->count++] = copy;
    return CKPT_OK;
}

/* The master first, then in the order of the alphabet. */
static int by_kind(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const bool fx = strcmp(x, "fp32.pt") == 0, fy = strcmp(y, "fp32.pt") == 0;
    return fx != fy ? (fx ? -1 : 1) : strcmp(x, y);
}

/* ---- one tensor */

/* {'param': tensor, 'cat_dim': 0, ...}, or the tensor alone. */
static const ckpt_value *tensor_in(const ckpt_value *root)
{
    const ckpt_value *v = root && root->kind == CKPT_V_DICT ? ckpt_value_get(root, "param") : root;
    return v && v->kind == CKPT_V_TENSOR ? v : NULL;
}

/* Stage 3 has them flat: the shape is the parameter's. */
static ckpt_status give_shape(ckpt__ds *d, size_t number, const ckpt__ds_param *p, const char *file, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const ckpt__tensor *t = &x->tensors[number];
    char is[120], said[120];
    uint64_t numel;
    if (t->info.ndim == 0 || ckpt__same_shape(t->info.shape, t->info.ndim, p->shape, p->ndim))
        return CKPT_OK;
    const bool flat = t->info.ndim == 1 && t->whole && t->info.strides[0] == 1 &&
                      ckpt__numel(t->info.shape, 1, &numel) && numel == p->numel;
    if (!flat) {
        ckpt__shape_text(is, sizeof is, t->info.shape, t->info.ndim);
        ckpt__shape_text(said, sizeof said, p->shape, p->ndim);
        return ckpt__fail(err, CKPT_E_MISMATCH, file, "its shape is %s, and that of the parameter %s (param_shapes)",
                          is, said);
    }
    x->tensors[number].info.ndim = p->ndim;
    return ckpt__index_set_view(x, number, t->storage, p->shape, NULL, t->info.offset, err);
}

static ckpt_status add_state(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str key, const ckpt_value *root,
                             const char *file, ckpt_error *err)
{
    const bool master = ckpt__str_is(key, "fp32");
    const ckpt_value *v = tensor_in(root);
    ckpt_str name;
    size_t number;
    if (!v)
        return root && (root->kind == CKPT_V_INT || root->kind == CKPT_V_FLOAT)
                   ? ckpt__ds_put_number(d, p, key, root, err)
                   : ckpt__fail(err, CKPT_E_FORMAT, file,
                                "it holds no tensor, where one of the parameter's is expected");
    ckpt_status status = ckpt__ds_name_state(d, p, key, &name, err);
    if (status == CKPT_OK)
        status =
            ckpt__ds_add_like(d, name, v->tensor, master ? CKPT_ROLE_MASTER : ckpt__role_of_key(key), &number, err);
    if (status == CKPT_OK)
        status = give_shape(d, number, p, file, err);
    if (status == CKPT_OK)
        ckpt__ds_belongs(d, number, p, master ? ckpt__s("master") : key);
    return status;
}

/* ---- one parameter */

static ckpt_status read_state(ckpt__ds *d, const ckpt__ds_param *p, const char *folder, const char *file,
                              ckpt_error *err)
{
    ckpt__arena *a = ckpt__ds_index(d)->arena;
    ckpt_str name = ckpt__arena_join(a, ckpt__s(folder), ckpt__s(file), (ckpt_str){NULL, 0}),
             key = ckpt__arena_str(a, file, strlen(file) - 3);
    const ckpt_value *root;
    ckpt_error why = CKPT_ERROR_INIT;
    if (!name.data || !key.data)
        return ckpt__ds_no_memory(err);
    ckpt_status status = ckpt__ds_read(d, name.data, &root, &why);
    if (status < 0)
        return ckpt__ds_lack(d, name.data, status, &why, err);
    return add_state(d, p, key, root, name.data, err);
}

static ckpt_status read_param(ckpt__ds *d, const ckpt__ds_param *p, ckpt_error *err)
{
    ckpt__arena *a = ckpt__ds_index(d)->arena;
    names n = {.arena = a};
    ckpt_str zero = ckpt__arena_join(a, ckpt__s(d->below), ckpt__s("zero/"), p->name),
             folder = zero.data ? ckpt__arena_join(a, zero, ckpt__s("/"), (ckpt_str){NULL, 0}) : zero;
    if (!folder.data)
        return ckpt__ds_no_memory(err);
    ckpt_status status = ckpt__source_each(d->reader.request->source, folder.data, see, &n, err);
    if (n.count)
        qsort(n.files, n.count, sizeof *n.files, by_kind);
    if (status == CKPT_OK && (n.count == 0 || strcmp(n.files[0], "fp32.pt") != 0)) {
        ckpt_error why = CKPT_ERROR_INIT;
        char file[300];
        snprintf(file, sizeof file, "%sfp32.pt", folder.data);
        ckpt__fail(&why, CKPT_E_DAMAGED, file,
                   "it is missing, with the master of the parameter. Copy it from where it was made, or convert the "
                   "checkpoint again (ds_to_universal.py)");
        status = ckpt__ds_lack(d, file, CKPT_E_DAMAGED, &why, err);
    }
    for (size_t i = 0; status == CKPT_OK && i < n.count; i++)
        status = read_state(d, p, folder.data, n.files[i], err);
    free(n.files);
    return status;
}

/* ---- the settings */

/* Stages 1 and 2: param_groups at the top; stage 3: rank 0's whole file of the optimizer. */
static const ckpt_value *groups_in(const ckpt_value *settings)
{
    const ckpt_value *own = ckpt_value_get(settings, "param_groups");
    return ckpt__is_list(own) ? own : ckpt__ds_groups(settings);
}

static ckpt_status read_settings(ckpt__ds *d, const ckpt_value **settings, ckpt_error *err)
{
    ckpt__arena *a = ckpt__ds_index(d)->arena;
    ckpt_str name = ckpt__arena_join(a, ckpt__s(d->below), ckpt__s("zero/optimizer_state.pt"), (ckpt_str){NULL, 0});
    ckpt_error why = CKPT_ERROR_INIT;
    *settings = NULL;
    if (!name.data)
        return ckpt__ds_no_memory(err);
    ckpt_status status = ckpt__ds_read(d, name.data, settings, &why);
    if (status == CKPT_E_SYSTEM && why.sys_errno == ENOENT)
        status =
            ckpt__fail(&why, CKPT_E_DAMAGED, name.data,
                       "it is missing, with the optimizer's settings. Copy it from where it was made, or convert the "
                       "checkpoint again (ds_to_universal.py)");
    return status == CKPT_OK ? CKPT_OK : ckpt__ds_lack(d, name.data, status, &why, err);
}

/* Folders of what is no trained parameter hold its float32 copy once more: the model's file has it. */
static ckpt_status note_others(ckpt__ds *d, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    ckpt_str zero = ckpt__arena_join(x->arena, ckpt__s(d->below), ckpt__s("zero/"), (ckpt_str){NULL, 0});
    names n = {.arena = x->arena, .folders = true};
    if (!zero.data)
        return ckpt__ds_no_memory(err);
    ckpt_status status = ckpt__source_each(d->reader.request->source, zero.data, see, &n, err);
    for (size_t i = 0; status == CKPT_OK && i < n.count; i++) {
        ckpt_str file = ckpt__arena_join(x->arena, zero, ckpt__s(n.files[i]), (ckpt_str){NULL, 0});
        if (ckpt__hash_get(d->by_name, n.files[i], strlen(n.files[i]), NULL))
            continue;
        if (!file.data ||
            !ckpt__report_add(
                x->findings, CKPT_SEVERITY_NOTE, "file-ignored", NULL, NULL,
                "it is not read: param_shapes has no parameter of the name. Tied parameters and buffers are in the model's file") ||
            !ckpt__report_detail(x->findings, file.data, NULL, NULL, 0))
            status = ckpt__ds_no_memory(err);
    }
    free(n.files);
    return status;
}

/* The number of its master; SIZE_MAX: there is none. */
static size_t master_of(const ckpt__ds *d, const ckpt__ds_param *p)
{
    const ckpt__index *x = ckpt__ds_index(d);
    size_t i = x->tensor_count;
    while (i-- > 0)
        if (x->tensors[i].info.role == CKPT_ROLE_MASTER && ckpt__str_equal(x->tensors[i].info.param, p->name))
            break;
    return i;
}

/* ---- stage 3: the module's parameters are empty, the masters stand for them */

static ckpt_status add_weight(ckpt__ds *d, const ckpt_entry *e, ckpt_error *err)
{
    size_t at, number, made;
    const ckpt__tensor *t = ckpt__ds_tensor(d, e->value);
    if (!t || e->key->kind != CKPT_V_STR)
        return CKPT_OK;
    const ckpt_str name = e->key->text;
    const ckpt_value *tied = ckpt_value_get(ckpt_value_get(d->model.root, "shared_params"), name.data);
    ckpt_str of = tied && tied->kind == CKPT_V_STR ? tied->text : name;
    if (!ckpt__hash_get(d->by_name, of.data, of.size, &at)) {
        const ckpt_value *frozen = ckpt_value_get(ckpt_value_get(d->model.root, "frozen_param_shapes"), name.data);
        return frozen ? ckpt__ds_frozen(d, name, frozen, err)
                      : ckpt__ds_add_like(d, name, e->value->tensor, t->info.role, &made, err);
    }
    number = master_of(d, &d->params[at]);
    return number == SIZE_MAX ? CKPT_OK : ckpt__ds_add_like(d, name, number, CKPT_ROLE_PARAM, &made, err);
}

/* Frozen parameters are in the model's files of the ranks that saved, as without a universal checkpoint. */
static ckpt_status read_frozen(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    enum { MOST_RANKS = 1 << 16 };
    const ckpt_value *frozen = ckpt_value_get(d->model.root, "frozen_param_shapes");
    const int64_t ranks = ckpt__ds_int(ckpt_value_get(d->model.root, "dp_world_size"));
    if (!frozen || frozen->kind != CKPT_V_DICT || frozen->entry_count == 0)
        return CKPT_OK;
    if (ranks < 1 || ranks > MOST_RANKS)
        return ckpt__fail(
            err, CKPT_E_FORMAT, d->model.name,
            "it has frozen parameters, which the files of all ranks have in parts, and its dp_world_size is %lld",
            (long long)ranks);
    d->ranks = (size_t)ranks;
    return ckpt__ds_read_models(d, tag, err);
}

static ckpt_status add_weights(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    const ckpt_value *module = ckpt_value_get(d->model.root, "module");
    ckpt_status status = read_frozen(d, tag, err);
    for (size_t i = 0; status == CKPT_OK && module && module->kind == CKPT_V_DICT && i < module->entry_count; i++)
        status = add_weight(d, &module->entries[i], err);
    return status;
}

/* ---- stage 3 has the step in rank 0's file of the optimizer alone */

static ckpt_status add_step(ckpt__ds *d, const ckpt__ds_param *p, const ckpt_value *step, ckpt_error *err)
{
    const ckpt_str key = ckpt__s("step");
    ckpt_str name;
    size_t number;
    if (!ckpt__ds_tensor(d, step))
        return ckpt__ds_put_number(d, p, key, step, err);
    ckpt_status status = ckpt__ds_name_state(d, p, key, &name, err);
    if (status == CKPT_OK)
        status = ckpt__ds_add_like(d, name, step->tensor, CKPT_ROLE_STEP, &number, err);
    if (status == CKPT_OK)
        ckpt__ds_belongs(d, number, p, key);
    return status;
}

static bool has_step(const ckpt__ds *d)
{
    const ckpt__index *x = ckpt__ds_index(d);
    bool has = d->number_count > 0;
    for (size_t i = 0; !has && i < x->tensor_count; i++)
        has = i < d->keep_capacity && d->keep[i] && x->tensors[i].info.role == CKPT_ROLE_STEP;
    return has;
}

static ckpt_status add_steps(ckpt__ds *d, const ckpt_value *settings, ckpt_error *err)
{
    const ckpt_value *step = settings && d->stage == 3 && !has_step(d) ? ckpt__ds_one_step(d, settings) : NULL;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && step && i < d->param_count; i++)
        status = add_step(d, &d->params[i], step, err);
    return status;
}

ckpt_status ckpt__ds_universal(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    const ckpt_value *settings = NULL;
    d->stage = tag->models ? 2 : 3;
    ckpt_status status = d->stage == 2 ? ckpt__ds_weights(d, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < d->param_count; i++)
        status = read_param(d, &d->params[i], err);
    if (status == CKPT_OK)
        status = d->stage == 3 ? add_weights(d, tag, err) : ckpt__ds_check_universal(d, err);
    if (status == CKPT_OK)
        status = read_settings(d, &settings, err);
    if (status == CKPT_OK)
        status = add_steps(d, settings, err);
    if (status == CKPT_OK)
        status = note_others(d, err);
    return status == CKPT_OK ? ckpt__ds_values(d, settings, settings ? groups_in(settings) : NULL, err) : status;
}
