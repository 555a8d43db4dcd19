/* model/value_path.c - one value of a tree by its dotted path. */
#include "model/value_path.h"

#include <stdio.h>

/* Does the path go through a key of n bytes? */
static bool goes_through(ckpt_str path, const char *key, size_t n)
{
    return n <= path.size && memcmp(path.data, key, n) == 0 && (n == path.size || path.data[n] == '.');
}

static bool find_longest(const ckpt_value *v, ckpt_str path, ckpt__step *out)
{
    char number[24];
    for (size_t i = 0; i < v->entry_count; i++) {
        ckpt_str key = v->entries[i].key->text;
        if (v->entries[i].key->kind == CKPT_V_INT) {
            int n = snprintf(number, sizeof number, "%lld", (long long)v->entries[i].key->integer);
            key = (ckpt_str){number, n > 0 ? (size_t)n : 0};
        } else if (v->entries[i].key->kind != CKPT_V_STR) {
            continue;
        }
        if ((!out->entry || key.size > out->taken) && goes_through(path, key.data, key.size))
            *out = (ckpt__step){v->entries[i].value, &v->entries[i], 0, key.size};
    }
    return out->entry != NULL;
}

static bool find_item(const ckpt_value *v, ckpt_str path, ckpt__step *out)
{
    size_t digits = 0, item = 0;
    while (digits < path.size && digits < 9 && path.data[digits] >= '0' && path.data[digits] <= '9')
        item = item * 10 + (size_t)(path.data[digits++] - '0');
    if (digits == 0 || item >= v->item_count || (digits < path.size && path.data[digits] != '.'))
        return false;
    *out = (ckpt__step){v->items[item], NULL, item, digits};
    return true;
}

bool ckpt__step_into(const ckpt_value *v, ckpt_str path, ckpt__step *out)
{
    *out = (ckpt__step){NULL, NULL, 0, 0};
    if (find_longest(v, path, out) || find_item(v, path, out))
        return true;
    const ckpt_value *state = v->state && v->state->kind == CKPT_V_DICT ? v->state : NULL;
    return state && find_longest(state, path, out);
}

const ckpt_value *ckpt__value_at(const ckpt_value *root, ckpt_str path)
{
    const ckpt_value *v = root;
    for (size_t at = 0; v && path.data && at < path.size;) {
        ckpt__step step;
        bool there = ckpt__step_into(v, (ckpt_str){path.data + at, path.size - at}, &step);
        v = there ? step.value : NULL;
        at += step.taken + 1;
    }
    return v;
}

const ckpt_entry *ckpt__find_entry(const ckpt_value *v, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = 0; v && i < v->entry_count; i++) {
        const ckpt_value *own = v->entries[i].key;
        if (own->text.size == n && own->kind == CKPT_V_STR && own->text.data && memcmp(own->text.data, key, n) == 0)
            return &v->entries[i];
    }
    return NULL;
}
