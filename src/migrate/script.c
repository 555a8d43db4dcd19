/* migrate/script.c - modules of libtorch in C++ and of TorchScript, which are dicts in dicts, as the flat dicts that
 * load_state_dict takes: {"fc1": {"weight": T}} becomes {"fc1.weight": T}. Names stay what they are. */
#include "migrate/migration.h"
#include "format/torch/write.h"

#include <stdlib.h>

/* An archive of C++ that holds values of its own besides tensors and archives is a trainer's, not a module's. */
static bool is_container(const ckpt_value *v)
{
    bool plain = ckpt__str_is(v->class_name, "__torch__.Module");
    for (size_t i = 0; plain && i < v->entry_count; i++) {
        const ckpt_value *is = v->entries[i].value;
        if (is->kind != CKPT_V_TENSOR && is->kind != CKPT_V_NONE && !ckpt__is_scripted(is))
            return true;
    }
    return false;
}

/* One module on its way to be flat; or the question whether it is one. */
typedef struct flattener {
    ckpt__migration *m;
    bool *open; /* by depth: a module whose entries go into the flat dict */
    size_t open_capacity;
    ckpt_entry *entries;
    size_t count, capacity;
    ckpt__hash *names;
    bool collision, optimizer; /* two of one name; an optimizer is below: it stays as it is */
    uint64_t *budget;          /* values that may be looked at, over all modules */
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
        return ckpt__migration_no_memory(f->err);
    bool member = depth > 0 && f->open[depth - 1];
    f->open[depth] = depth == 0 || (member && ckpt__is_scripted(visit->value) && !visit->cycle);
    f->optimizer |= f->open[depth] && ckpt__is_cpp_optimizer(visit->value);
    if (*f->budget == 0 || f->optimizer)
        return 1; /* no more to know */
    --*f->budget;
    if (!member || f->open[depth] || !goes_along(f, visit->value))
        return 0;
    ckpt__arena *a = f->m->from->arena;
    const ckpt_value *key = ckpt__value_str(a, visit->name.data, visit->name.size);
    if (!key || !ckpt__grow(&f->entries, &f->capacity, f->count + 1, sizeof *f->entries))
        return ckpt__migration_no_memory(f->err);
    f->entries[f->count++] = (ckpt_entry){key, visit->value};
    int put = ckpt__hash_put(f->names, key->text.data, key->text.size, f->count, NULL);
    f->collision |= put == 0;
    return put < 0 ? ckpt__migration_no_memory(f->err) : 0;
}

/* *done: it was a module, and *to is a flat one. */
static ckpt_status flatten(ckpt__migration *m, const ckpt_value *v, const ckpt_value **to, uint64_t *budget, bool *done,
                           ckpt_error *err)
{
    flattener f = {.m = m, .names = ckpt__hash_new(v->entry_count), .budget = budget, .err = err};
    int walked = f.names ? ckpt__value_walk_now(v, m->edits, visit, &f, err) : ckpt__migration_no_memory(err);
    *done = walked == 0;
    if (walked == 0 && !f.collision) {
        ckpt__arena *a = m->from->arena;
        ckpt_entry *entries = ckpt__arena_array(a, f.count + 1, sizeof *entries);
        ckpt_value *flat = entries ? ckpt__edits_copy(m->edits, v) : NULL;
        if (flat) {
            if (f.count)
                memcpy(entries, f.entries, f.count * sizeof *entries);
            flat->entries = entries;
            flat->entry_count = f.count;
            *to = flat;
        } else {
            walked = ckpt__migration_no_memory(err);
        }
    }
    free(f.open);
    free(f.entries);
    ckpt__hash_free(f.names);
    return walked < 0 ? (ckpt_status)walked : CKPT_OK;
}

typedef struct flattening {
    ckpt__migration *m;
    uint64_t budget;
} flattening;

/* The modules lie below containers and directories of files. */
static ckpt_status flatten_if(void *ctx, const ckpt_value *v, const ckpt_value **to, bool *below, ckpt_error *err)
{
    flattening *f = ctx;
    bool done = ckpt__is_cpp_optimizer(v);
    ckpt_status status = CKPT_OK;
    if (!done && f->budget > 0 && ckpt__is_scripted(v) && !is_container(v))
        status = flatten(f->m, v, to, &f->budget, &done, err);
    *below = !done;
    return status;
}

ckpt_status ckpt__migrate_flatten(ckpt__migration *m, ckpt_error *err)
{
    flattening f = {m, 20000000};
    return ckpt__edit_dicts(m, flatten_if, &f, err);
}
