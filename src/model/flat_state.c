/* model/flat_state.c - keys of an optimizer's state that was flattened. */
#include "model/flat_state.h"

static const char groups_word[] = "param_groups.", state_word[] = "state.";

/* Where "param_groups." stands in a key, at its front or behind a dot. */
static bool find_prefix(ckpt_str key, ckpt_str *prefix)
{
    const size_t n = sizeof groups_word - 1, before = sizeof "param" - 1;
    size_t i = 0;
    for (const char *at; i < key.size && (at = memchr(key.data + i, '_', key.size - i)) != NULL; i++) {
        i = (size_t)(at - key.data);
        if (i < before || key.size - (i - before) <= n || memcmp(at - before, groups_word, n) != 0 ||
            (i > before && key.data[i - before - 1] != '.'))
            continue;
        *prefix = (ckpt_str){key.data, i - before};
        return true;
    }
    return false;
}

bool ckpt__flat_key(ckpt_str key, ckpt_str prefix, bool *group, ckpt_str *param, ckpt_str *what)
{
    const size_t in_groups = sizeof groups_word - 1, in_state = sizeof state_word - 1;
    if (!ckpt__str_begins_with(key, prefix))
        return false;
    ckpt_str rest = {key.data + prefix.size, key.size - prefix.size};
    *group = ckpt__str_begins_with(rest, (ckpt_str){groups_word, in_groups});
    if (!*group && !ckpt__str_begins_with(rest, (ckpt_str){state_word, in_state}))
        return false;
    size_t from = *group ? in_groups : in_state, dot = rest.size;
    while (dot > from && rest.data[dot - 1] != '.')
        dot--;
    if (dot < from + 2 || dot == rest.size)
        return false;
    *param = (ckpt_str){rest.data + from, dot - 1 - from};
    *what = (ckpt_str){rest.data + dot, rest.size - dot};
    return true;
}

/* Both kinds of keys, of one parameter at least. */
bool ckpt__flat_state(const ckpt_value *dict, ckpt_str *prefix)
{
    ckpt_str first = {NULL, 0};
    bool found = false, group;
    if (!dict || dict->kind != CKPT_V_DICT)
        return false;
    for (size_t i = 0; !found && i < dict->entry_count; i++)
        found = dict->entries[i].key->kind == CKPT_V_STR && find_prefix(dict->entries[i].key->text, prefix) &&
                ckpt__flat_key(dict->entries[i].key->text, *prefix, &group, &first, &(ckpt_str){NULL, 0}) && group;
    for (size_t i = 0; found && i < dict->entry_count; i++) {
        ckpt_str param, what;
        if (dict->entries[i].key->kind == CKPT_V_STR && dict->entries[i].value->kind == CKPT_V_TENSOR &&
            ckpt__flat_key(dict->entries[i].key->text, *prefix, &group, &param, &what) && !group)
            return true;
    }
    return false;
}
