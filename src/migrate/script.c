/* migrate/script.c - modules of libtorch in C++ and of TorchScript, which are dicts in dicts, as the flat dicts that
 * load_state_dict takes: {"fc1": {"weight": T}} becomes {"fc1.weight": T}. Names stay what they are. */
#include "migrate/migration.h"
#include "format/torch/write.h"

#include <stdlib.h>

static bool is_script(const ckpt_value *v)
{
    return v->kind == CKPT_V_DICT && v->class_name.data && strncmp(v->class_name.data, "__torch__.", 10) == 0;
}

/* Before libtorch 1.5: one list for each kind of state ("step_buffers/0", ...). */
static bool is_old_optimizer(const ckpt_value *v)
{
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key;
        if (key->kind != CKPT_V_STR || !memmem(key->text.data, key->text.size, "_buffers/", 9))
            return false;
    }
    return v->entry_count > 0;
}

bool ckpt__is_script_optimizer(const ckpt_value *v)
{
    if (!is_script(v))
        return false;
    return is_old_optimizer(v) || (ckpt_value_get(v, "state") && ckpt_value_get(v, "param_groups"));
}

/* An archive of C++ that holds values of its own besides tensors and archives is a trainer's, not a module's. */
static bool is_container(const ckpt_value *v)
{
    bool plain = ckpt__str_is(v->class_name, "__torch__.Module");
    for (size_t i = 0; plain && i < v->entry_count; i++) {
        const ckpt_value *is = v->entries[i].value;
        if (is->kind != CKPT_V_TENSOR && is->kind != CKPT_V_NONE && !is_script(is))
            return true;
    }
    return false;
}

/* One module on its way to be flat; or the question whether it is one. */
typedef struct flattener {
    ckpt__mover *m;
    bool *open;                   /* by depth: a module whose entries go into the flat dict */
    size_t open_capacity;
    ckpt_entry *entries;
    size_t count, capacity;
    ckpt__hash *names;
    bool collision, optimizer;    /* two of one name; an optimizer is below: it stays as it is */
    uint64_t *budget;             /* values that may be looked at, over all modules */
    ckpt_error *err;
} flattener;

static int is_any_tensor(void *ctx, const ckpt_visit *visit)
{
    (void)ctx;
    return visit->value->kind == CKPT_V_TENSOR || ckpt__torch_is_closed(visit->value);
}

/* Of the weights alone an attribute of TorchScript's (training, a constant) is none: load_state_dict would not know it. */
static bool goes_along(const flattener *f, const ckpt_value *v)
{
    return !f->m->options.weights_only || ckpt_value_walk(v, 0, is_any_tensor, NULL, NULL) != 0;
}

static int visit(void *ctx, const ckpt_visit *visit)
{
    flattener *f = ctx;
    size_t depth = visit->path.count;
    if (!ckpt__grow(&f->open, &f->open_capacity, depth + 1, sizeof *f->open))
        return ckpt__mover_no_memory(f->err);
    bool member = depth > 0 && f->open[depth - 1];
    f->open[depth] = depth == 0 || (member && is_script(visit->value) && !visit->cycle);
    f->optimizer |= f->open[depth] && ckpt__is_script_optimizer(visit->value);
    if (*f->budget == 0 || f->optimizer)
        return 1;                 /* no more to know */
    --*f->budget;
    if (!member || f->open[depth] || !goes_along(f, visit->value))
        return 0;
    ckpt__arena *a = f->m->from->arena;
    const ckpt_value *key = ckpt__value_str(a, visit->name.data, visit->name.size);
    if (!key || !ckpt__grow(&f->entries, &f->capacity, f->count + 1, sizeof *f->entries))
        return ckpt__mover_no_memory(f->err);
    f->entries[f->count++] = (ckpt_entry){ key, visit->value };
    int put = ckpt__hash_put(f->names, key->text.data, key->text.size, f->count, NULL);
    f->collision |= put == 0;
    return put < 0 ? ckpt__mover_no_memory(f->err) : 0;
}

/* *done: it was a module. */
static ckpt_status flatten(ckpt__mover *m, ckpt_value *v, uint64_t *budget, bool *done, ckpt_error *err)
{
    flattener f = { .m = m, .names = ckpt__hash_new(v->entry_count), .budget = budget, .err = err };
    int walked = f.names ? ckpt_value_walk(v, 0, visit, &f, err) : ckpt__mover_no_memory(err);
    *done = walked == 0;
    if (walked == 0 && !f.collision) {
        ckpt__arena *a = m->from->arena;
        ckpt_entry *entries = ckpt__arena_array(a, f.count + 1, sizeof *entries);
        if (entries) {
            if (f.count)
                memcpy(entries, f.entries, f.count * sizeof *entries);
            v->entries = entries;
            v->entry_count = f.count;
        } else {
            walked = ckpt__mover_no_memory(err);
        }
    }
    free(f.open);
    free(f.entries);
    ckpt__hash_free(f.names);
    return walked < 0 ? (ckpt_status)walked : CKPT_OK;
}

typedef struct flattening {
    ckpt__mover *m;
    uint64_t budget;
} flattening;

/* The modules lie below containers and directories of files. */
static ckpt_status flatten_if(void *ctx, ckpt_value *v, bool *below, ckpt_error *err)
{
    flattening *f = ctx;
    bool done = ckpt__is_script_optimizer(v);
    ckpt_status status = CKPT_OK;
    if (!done && f->budget > 0 && is_script(v) && !is_container(v))
        status = flatten(f->m, v, &f->budget, &done, err);
    *below = !done;
    return status;
}

ckpt_status ckpt__migrate_flatten(ckpt__mover *m, ckpt_error *err)
{
    flattening f = { m, 20000000 };
    return ckpt__edit_dicts(m->from->root, flatten_if, &f, err);
}
