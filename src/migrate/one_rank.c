/* migrate/one_rank.c - what a checkpoint says of how many ranks wrote it, once it is whole. Megatron's arguments are such: a file
 * with tensor_model_parallel_size 2 in them is taken for the part of one of two ranks, by Megatron and by this library. */
#include "migrate/migration.h"
#include "format/table.h"

#include <stdio.h>

/* The object's attributes, those that say another number replaced; said gets "world_size 4 -> 1, ...". NULL in *out: none does. */
static ckpt_status as_one(ckpt__migration *m, const ckpt_value *attributes, const ckpt__rank_size *sizes,
                          ckpt__buf *said, const ckpt_value **out, ckpt_error *err)
{
    ckpt_entry *entries;
    ckpt_value *copy = ckpt__migration_open_dict(m, attributes, 0, &entries);
    *out = NULL;
    for (size_t i = 0; copy && i < copy->entry_count; i++) {
        const ckpt_value *key = entries[i].key, *was = entries[i].value;
        const ckpt__rank_size *s = sizes;
        while (s->name && !(key->kind == CKPT_V_STR && ckpt__str_is(key->text, s->name)))
            s++;
        if (!s->name || was->kind != s->kind || (was->kind == CKPT_V_INT ? was->integer : was->boolean) == s->value)
            continue;
        const bool number = s->kind == CKPT_V_INT;
        entries[i].value =
            number ? ckpt__value_int(m->from->arena, s->value) : ckpt__value_bool(m->from->arena, s->value);
        if (!entries[i].value)
            return ckpt__migration_no_memory(err);
        if (number)
            ckpt__buf_printf(said, "%s%s %lld -> %lld", said->size ? ", " : "", s->name, (long long)was->integer,
                             (long long)s->value);
        else
            ckpt__buf_printf(said, "%s%s %s -> %s", said->size ? ", " : "", s->name, was->boolean ? "True" : "False",
                             s->value ? "True" : "False");
        *out = copy;
    }
    return copy && !said->failed ? CKPT_OK : ckpt__migration_no_memory(err);
}

ckpt_status ckpt__migrate_one_rank(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__rank_sizes *sizes = ckpt__format_of(m->from)->rank_sizes;
    const ckpt_value *object = sizes && m->from->root ? ckpt_value_get(m->from->root, sizes->object) : NULL,
                     *attributes = object && object->kind == CKPT_V_OBJECT ? object->state : NULL, *now;
    if (!attributes || attributes->kind != CKPT_V_DICT)
        return CKPT_OK;
    ckpt__buf said = {0};
    ckpt_status status = as_one(m, attributes, sizes->sizes, &said, &now, err);
    if (status == CKPT_OK && now && (status = ckpt__migration_replace(m, attributes, now, err)) == CKPT_OK)
        status = ckpt__migration_apply(m, err);
    if (status == CKPT_OK && now)
        status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "one-rank", ckpt__s(sizes->object), err,
                                      "one file has now what the ranks had, and its settings follow: %s", said.data);
    ckpt__buf_free(&said);
    return status;
}
