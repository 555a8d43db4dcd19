/* migrate/plain_keys.c - --plain: keys of dicts that torch.load(weights_only=True) does not take. An enum becomes its
 * value, a path its text, anything else a string of what Python would print; two keys of one dict never become the same one. */
#include "migrate/migration.h"
#include "format/torch/write.h"

#include <stdio.h>

typedef struct keys {
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__hash *taken; /* of this dict, each with a letter for its kind in front */
    size_t twins;
    ckpt_error *err;
} keys;

enum { ODD = 1 };

static int find_odd(void *ctx, const ckpt_visit *visit)
{
    (void)ctx;
    return ckpt__is_plain(visit->value) ? CKPT_OK : ODD;
}

/* 1: it is not taken, 0: it is, < 0: an error. */
static int is_odd(const ckpt_value *key, ckpt_error *err)
{
    if (key->kind == CKPT_V_DICT || key->kind == CKPT_V_LIST)
        return ODD; /* a call that makes one, which Python does not take for a key either */
    bool deep = key->kind == CKPT_V_OBJECT || key->kind == CKPT_V_CLASS || key->kind == CKPT_V_ARRAY ||
                key->kind == CKPT_V_TUPLE;
    return deep ? ckpt_value_walk(key, 0, find_odd, NULL, err) : 0;
}

/* 1: the key is new in its dict, 0: there is one like it, -1: no memory. */
static int take(keys *k, const ckpt_value *key)
{
    ckpt__buf b = {0};
    bool text = key->kind == CKPT_V_STR;
    ckpt__buf_char(&b, text ? 's' : 'o');
    if (text)
        ckpt__buf_add(&b, key->text.data, key->text.size);
    else
        ckpt__value_repr(&b, key);
    ckpt_str kept = b.failed || !b.data ? (ckpt_str){NULL, 0} : ckpt__arena_str(k->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return kept.data ? ckpt__hash_put(k->taken, kept.data, kept.size, 0, NULL) : -1;
}

static ckpt_status take_all(keys *k, const ckpt_value *v)
{
    k->taken = ckpt__hash_new(v->entry_count);
    bool ok = k->taken != NULL;
    for (size_t i = 0; ok && i < v->entry_count; i++)
        ok = take(k, ckpt__edits_now(k->m->edits, v->entries[i].key)) >= 0;
    return ok ? CKPT_OK : ckpt__migration_no_memory(k->err);
}

/* What Python would print of it, with a number behind it where another key is the same then. NULL: no memory. */
static const ckpt_value *string_of(keys *k, const ckpt_value *key)
{
    const ckpt_value *fresh = NULL;
    ckpt__buf b = {0};
    ckpt__value_repr(&b, key);
    size_t n = b.size;
    for (int is_new = 0; is_new == 0;) {
        fresh = b.failed || !b.data ? NULL : ckpt__value_str(k->arena, b.data, b.size);
        is_new = fresh ? take(k, fresh) : -1;
        fresh = is_new < 0 ? NULL : fresh;
        b.size = n;
        if (is_new == 0)
            ckpt__buf_printf(&b, " (%zu)", ++k->twins + 1);
    }
    ckpt__buf_free(&b);
    return fresh;
}

/* A tensor stays one: it is told from other keys by being another object. */
static ckpt_status keep_tensor(keys *k, const ckpt_value *key, ckpt_str name)
{
    char was[200];
    ckpt__escape(was, sizeof was, key->class_name.data, key->class_name.size);
    ckpt_status status = ckpt__migration_replace(k->m, key, ckpt__torch_unclass(key, k->arena), k->err);
    if (status < 0)
        return status;
    return ckpt__migration_note(k->m, CKPT_SEVERITY_NOTE, "plain", name, k->err,
                                "%s becomes a key that is a tensor, without its attributes", was);
}

static ckpt_status replace(keys *k, ckpt_entry *e, ckpt_str name)
{
    const ckpt_value *fresh = NULL, *key = ckpt__edits_now(k->m->edits, e->key);
    if (ckpt__torch_is_subclass(key))
        return keep_tensor(k, key, name);
    ckpt_status status = ckpt__plain_scalar(k->arena, key, &fresh, k->err);
    if (status < 0)
        return status;
    int is_new = fresh ? take(k, fresh) : 0;
    if (is_new == 0)
        fresh = string_of(k, key);
    if (is_new < 0 || !fresh)
        return ckpt__migration_no_memory(k->err);
    ckpt_str class_name = key->kind == CKPT_V_TUPLE ? ckpt__s("a tuple") : key->class_name;
    char was[200], is[200];
    ckpt__buf b = {0};
    ckpt__value_repr(&b, fresh);
    ckpt__escape(was, sizeof was, class_name.data ? class_name.data : "?", class_name.data ? class_name.size : 1);
    ckpt__escape(is, sizeof is, b.data ? b.data : "", b.size);
    bool failed = b.failed;
    ckpt__buf_free(&b);
    e->key = fresh;
    return failed ? ckpt__migration_no_memory(k->err)
                  : ckpt__migration_note(k->m, CKPT_SEVERITY_NOTE, "plain", name, k->err,
                                         "%s becomes a key in plain terms, %s", was, is);
}

ckpt_status ckpt__plain_keys(ckpt__migration *m, const ckpt_value *v, ckpt_str name, const ckpt_value **to,
                             ckpt_error *err)
{
    keys k = {.m = m, .arena = m->from->arena, .err = err};
    ckpt_status status = CKPT_OK;
    ckpt_entry *entries = NULL;
    *to = v;
    for (size_t i = 0; status == CKPT_OK && i < v->entry_count; i++) {
        int odd = is_odd(ckpt__edits_now(m->edits, v->entries[i].key), err);
        status = odd < 0 ? (ckpt_status)odd : odd && !k.taken ? take_all(&k, v) : CKPT_OK;
        if (status == CKPT_OK && odd && *to == v && !(*to = ckpt__migration_open_dict(m, v, 0, &entries))) {
            *to = v;
            status = ckpt__migration_no_memory(err);
        }
        if (status == CKPT_OK && odd)
            status = replace(&k, &entries[i], name);
    }
    ckpt__hash_free(k.taken);
    return status;
}
