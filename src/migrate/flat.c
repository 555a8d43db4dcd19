/* migrate/flat.c - what goes along as one dict, {name: tensor}. */
#include "migrate/migration.h"

#include <stdlib.h>

/* The entries of a source that is flat, tensors under their names, by tensor: of a directory, file by file. */
static ckpt_status find_entries(const ckpt__migration *m, const ckpt_entry ***out, ckpt_error *err)
{
    const ckpt_value *root = m->from->root;
    const ckpt_entry **found = *out = calloc(m->from->tensor_count + 1, sizeof(const ckpt_entry *));
    if (!found)
        return ckpt__migration_no_memory(err);
    for (size_t f = 0; root && root->kind == CKPT_V_DICT && f < root->entry_count; f++) {
        const ckpt_value *file = root->entries[f].value;
        for (size_t i = 0; file->kind == CKPT_V_DICT && i < file->entry_count; i++) {
            const ckpt_value *v = file->entries[i].value;
            if (v->kind == CKPT_V_TENSOR && v->tensor < m->from->tensor_count)
                found[v->tensor] = &file->entries[i];
        }
    }
    return CKPT_OK;
}

static bool is_entry(const ckpt_entry *e, const ckpt_tensor_info *t)
{
    ckpt_str class = t->extra->class_name;
    return e && e->key->kind == CKPT_V_STR && ckpt__str_equal(e->key->text, t->name) &&
           (class.data ? ckpt__str_equal(e->value->class_name, class) : !e->value->class_name.data);
}

static ckpt_status put_flat(ckpt__migration *m, const ckpt_entry **found, ckpt_entry *entries, size_t *count,
                            ckpt_error *err)
{
    ckpt__arena *a = m->index->arena;
    for (size_t k = 0; k < m->chosen_count; k++) {
        size_t i = m->chosen[k];
        const ckpt_tensor_info *t = &m->index->tensors[i].info;
        if (i < m->from->tensor_count && is_entry(found[i], t))
            entries[*count] = *found[i]; /* it need not be made again: there may be a hundred thousand */
        else {
            ckpt_value *key = ckpt__value_new(a, CKPT_V_STR), *v = ckpt__value_new(a, CKPT_V_TENSOR);
            if (!key || !v)
                return ckpt__migration_no_memory(err);
            key->text = t->name;
            v->tensor = i;
            v->class_name = t->extra->class_name;
            entries[*count] = (ckpt_entry){key, v};
        }
        ++*count;
        for (size_t end = ckpt__tensor_end(m->index, i); k + 1 < m->chosen_count && m->chosen[k + 1] < end;)
            k++; /* parts belong to their whole */
    }
    return CKPT_OK;
}

ckpt_status ckpt__migrate_flat(ckpt__migration *m, const ckpt_value **out, ckpt_error *err)
{
    const ckpt_entry **found;
    ckpt_entry *entries = ckpt__arena_array(m->index->arena, m->chosen_count + 1, sizeof *entries);
    ckpt_value *dict = entries ? ckpt__value_new(m->index->arena, CKPT_V_DICT) : NULL;
    ckpt_status status = dict ? find_entries(m, &found, err) : ckpt__migration_no_memory(err);
    if (status < 0)
        return status;
    status = put_flat(m, found, entries, &dict->entry_count, err);
    free(found);
    dict->entries = entries;
    dict->class_name = ckpt__s("collections.OrderedDict");
    *out = dict;
    return status;
}
