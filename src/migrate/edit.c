/* migrate/edit.c - another tree of the source's, and tensors that are made: what all steps that change them share, and what they
 * ask of a value. */
#include "migrate/migration.h"
#include "format/table.h"
#include "format/torch/write.h"

#include <stdlib.h>

bool ckpt__migration_begin_edits(ckpt__migration *m)
{
    return (m->edits = ckpt__edits_new(m->from->arena, ckpt__torch_holds)) != NULL;
}

ckpt_status ckpt__migration_rewrite(ckpt__migration *m, ckpt__rewrite_fn fn, void *ctx, ckpt_error *err)
{
    ckpt_status status = ckpt__edits_note(m->edits, m->root ? m->root : m->from->root, fn, ctx, err);
    return status == CKPT_OK ? ckpt__migration_apply(m, err) : status;
}

ckpt_status ckpt__migration_replace(ckpt__migration *m, const ckpt_value *value, const ckpt_value *by, ckpt_error *err)
{
    return by && ckpt__edits_replace(m->edits, value, by) ? CKPT_OK : ckpt__migration_no_memory(err);
}

ckpt_value *ckpt__migration_open_dict(ckpt__migration *m, const ckpt_value *v, size_t more, ckpt_entry **entries)
{
    ckpt_value *copy = ckpt__edits_copy(m->edits, v);
    *entries = ckpt__arena_array(m->from->arena, v->entry_count + more + 1, sizeof **entries);
    if (!copy || !*entries)
        return NULL;
    if (v->entry_count)
        memcpy(*entries, v->entries, v->entry_count * sizeof **entries);
    copy->entries = *entries;
    return copy;
}

ckpt_status ckpt__migration_apply(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value **from = &m->from->root, **to = &m->root;
    if (*from && *to && *from != *to) { /* two trees that share values: one edit changes both */
        const ckpt_value *roots[] = {*from, *to}, *both = ckpt__value_list(m->from->arena, CKPT_V_TUPLE, roots, 2);
        ckpt_status status = both ? ckpt__edits_apply(m->edits, both, &both, err) : ckpt__migration_no_memory(err);
        *from = status == CKPT_OK ? both->items[0] : *from;
        *to = status == CKPT_OK ? both->items[1] : *to;
        return status;
    }
    bool one = *from == *to;
    const ckpt_value **root = *to ? to : from;
    ckpt_status status = ckpt__edits_apply(m->edits, *root, root, err);
    *from = one ? *root : *from;
    return status;
}

ckpt_status ckpt__edit_dicts(ckpt__migration *m, ckpt__dict_fn fn, void *ctx, ckpt_error *err)
{
    const ckpt_value **pending = NULL, *root = m->from->root;
    size_t count = 0, capacity = 0;
    ckpt__pointers seen = {NULL, 0, 0};
    ckpt_status status = CKPT_OK;
    bool dict = root && root->kind == CKPT_V_DICT;
    if (dict && (ckpt__pointers_add(&seen, root) < 0 || !ckpt__grow(&pending, &capacity, 1, sizeof *pending)))
        status = ckpt__migration_no_memory(err);
    else if (dict)
        pending[count++] = root;
    while (status == CKPT_OK && count > 0) {
        const ckpt_value *v = pending[--count], *to = v;
        bool below = true;
        status = fn(ctx, v, &to, &below, err);
        if (status == CKPT_OK)
            status = ckpt__migration_replace(m, v, to, err);
        for (size_t i = 0; status == CKPT_OK && below && i < to->entry_count; i++) {
            const ckpt_value *next = ckpt__edits_now(m->edits, to->entries[i].value);
            int added = next->kind == CKPT_V_DICT ? ckpt__pointers_add(&seen, next) : 0;
            if (added < 0 || (added && !ckpt__grow(&pending, &capacity, count + 1, sizeof *pending)))
                status = ckpt__migration_no_memory(err);
            else if (added)
                pending[count++] = next;
        }
    }
    free(pending);
    ckpt__pointers_free(&seen);
    return status == CKPT_OK ? ckpt__migration_apply(m, err) : status;
}

/* ---- tensors of the source that were made */

ckpt_status ckpt__add_step(ckpt__migration *m, ckpt_str name, ckpt_str storage, int64_t step, ckpt_error *err)
{
    ckpt__index *x = m->from;
    const float number = (float)step;
    const int64_t none = 0;
    char *bytes = ckpt__arena_copy(x->arena, (const char *)&number, sizeof number);
    ckpt__storage *s = ckpt__index_add_storage(x);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    ckpt_key *key = ckpt__arena_alloc(x->arena, sizeof *key);
    if (!name.data || !bytes || !s || !t || !key || !ckpt__ledger_reach(&m->ledger, x->tensor_count))
        return ckpt__migration_no_memory(err);
    *s = (ckpt__storage){.device = ckpt__s("cpu"), .name = storage, .unit = 4, .dtype = CKPT_F32};
    s->extent = (ckpt__extent){.memory = bytes, .length = sizeof number, .size = sizeof number};
    t->info.name = name;
    t->info.dtype = CKPT_F32;
    t->info.role = CKPT_ROLE_STEP;
    *key = (ckpt_key){.text = name};
    if (m->became_torch) /* one without a path would be a part of what is not dense (ckpt__is_flat) */
        t->info.path = (ckpt_path){key, 1};
    return ckpt__index_set_view(x, x->tensor_count - 1, x->storage_count - 1, &none, NULL, 0, err);
}

ckpt_status ckpt__make_step(ckpt__migration *m, ckpt_str param, int64_t step, size_t *at, ckpt_error *err)
{
    ckpt__canon *c = m->canon;
    const bool more = *at == SIZE_MAX;
    const size_t number = more ? c->count : *at;
    ckpt_str name = ckpt__arena_join(m->from->arena, ckpt__s("optimizer."), param, ckpt__s(".step"));
    ckpt_status status = ckpt__add_step(m, name, name, step, err);
    if (status < 0)
        return status;
    c->entries[number] = (ckpt__canon_entry){.name = name,
                                             .own = name,
                                             .tensor = m->from->tensor_count - 1,
                                             .param = param,
                                             .state_key = ckpt__s("step"),
                                             .role = CKPT_ROLE_STEP,
                                             .is_tensor = true};
    if (more && ckpt__hash_put(c->by_name, name.data, name.size, c->count++, NULL) < 0)
        return ckpt__migration_no_memory(err);
    *at = number;
    return CKPT_OK;
}

/* ---- what a value is */

size_t ckpt__tensor_end(const ckpt__index *x, size_t i)
{
    size_t open = x->tensors[i].info.extra->part_count, end = i + 1;
    for (; open > 0 && end < x->tensor_count; end++)
        open += x->tensors[end].info.extra->part_count - 1;
    return end;
}

bool ckpt__is_flat(const ckpt__index *x, size_t tensor)
{
    return x->tensors[tensor].info.path.count == 0 && !(x->root && x->root->kind == CKPT_V_TENSOR);
}

bool ckpt__has_tree(const ckpt__index *x)
{
    const ckpt__format *format = ckpt__format_of(x);
    if (format->canonical)
        return false; /* canonical names; what tensors its values refer to have paths too */
    for (size_t i = 0; i < x->tensor_count; i++)
        if (!ckpt__is_flat(x, i))
            return true;
    return format->has_values || (x->root && x->tensor_count == 0) || ckpt__files_have_values(x);
}
