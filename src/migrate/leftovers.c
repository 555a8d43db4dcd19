/* migrate/leftovers.c - what of a value tree has no canonical name: all but the model's tensors, the optimizer's states
 * and groups, and the scaler. What is left stays at its own place. Nothing here recurses. */
#include "migrate/migration.h"
#include "migrate/to_canonical.h"

#include <stdio.h>
#include <stdlib.h>

enum { SPINE_MAX = 64 };

/* A list has its places for keys, which are what its items are called; an object of a class of dicts its entries. */
static const ckpt_value *as_dict(const ckpt_value *v, ckpt__arena *a)
{
    if (v->kind == CKPT_V_OBJECT)
        return ckpt__value_dict(a, v->entries, v->entry_count);
    ckpt_entry *entries = ckpt__arena_array(a, v->item_count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < v->item_count; i++) {
        char number[24];
        int n = snprintf(number, sizeof number, "%zu", i);
        entries[i] = (ckpt_entry){ckpt__value_str(a, number, (size_t)n), v->items[i]};
        if (!entries[i].key)
            return NULL;
    }
    return entries ? ckpt__value_dict(a, entries, v->item_count) : NULL;
}

/* The dicts along the path, from the root on; a list is one with its places for keys (Lightning's optimizer_states). *depth 0:
 * the path does not go through these. */
static bool find_spine(const ckpt_value *root, ckpt_str path, ckpt__arena *a, const ckpt_value **spine, size_t *at,
                       size_t *depth)
{
    size_t done = 0, n = 0;
    *depth = 0;
    while (n < SPINE_MAX && done <= path.size) {
        const ckpt_value *v = n == 0 ? root : spine[n - 1]->entries[at[n - 1]].value;
        ckpt__step step;
        if (ckpt__is_list(v) && !(v = as_dict(v, a)))
            return false;
        if (v->kind != CKPT_V_DICT)
            return true;
        spine[n] = v;
        bool there = ckpt__step_into(v, (ckpt_str){path.data + done, path.size - done}, &step);
        if (!there || step.entry < v->entries || step.entry >= v->entries + v->entry_count)
            return true; /* nowhere, or through an attribute of the dict */
        at[n++] = (size_t)(step.entry - v->entries);
        done += step.taken;
        if (done == path.size) {
            *depth = n;
            return true;
        }
        done++;
    }
    return true;
}

/* A copy of the dicts along the path, the last without that entry, and without those that held nothing else; everything else is
 * shared with the source. *out is the root itself where the path does not go through plain dicts and lists. */
static bool without(const ckpt_value *root, ckpt_str path, ckpt__arena *a, const ckpt_value **out)
{
    const ckpt_value *spine[SPINE_MAX], *below = NULL;
    size_t at[SPINE_MAX], depth;
    *out = root;
    if (!find_spine(root, path, a, spine, at, &depth))
        return false;
    if (depth == 0)
        return true;
    while (depth-- > 0) {
        const ckpt_value *was = spine[depth];
        ckpt_value *copy = ckpt__value_dict_like(a, was, was->entries, was->entry_count);
        if (!copy)
            return false;
        ckpt_entry *entries = (ckpt_entry *)(uintptr_t)copy->entries;
        if (below) {
            entries[at[depth]].value = below;
        } else {
            memmove(entries + at[depth], entries + at[depth] + 1,
                    (copy->entry_count - at[depth] - 1) * sizeof *entries);
            copy->entry_count--;
        }
        below = copy->entry_count || depth == 0 ? copy : NULL;
    }
    *out = below;
    return true;
}

/* ---- the optimizer */

/* Its states and groups go, and the dict that held them where nothing else is in it. */
static bool without_optimizer(const ckpt_value *root, ckpt_str path, ckpt__arena *a, const ckpt_value **out)
{
    static const char *const parts[] = {"state", "param_groups"};
    *out = root;
    for (size_t i = 0; i < 2; i++) {
        ckpt_str part = ckpt__arena_join(a, path, ckpt__s(path.size ? "." : ""), ckpt__s(parts[i]));
        if (!part.data || !without(*out, part, a, out))
            return false;
    }
    const ckpt_value *left = path.size ? ckpt__value_at(*out, path) : NULL;
    return !left || left->kind != CKPT_V_DICT || left->entry_count || without(*out, path, a, out);
}

/* ---- the tensors that have canonical names */

/* A dict whose entries are looked at one after the other: those up to `at`, `kept` of which stay. */
typedef struct level {
    const ckpt_value *dict;
    ckpt_entry *entries;
    size_t at, kept;
    bool changed;
    bool module; /* tensors went: its attributes are about those (a state_dict's _metadata) */
} level;

typedef struct pruner {
    const bool *named; /* per tensor */
    size_t tensor_count;
    ckpt__arena *arena;
    ckpt__pointers seen;
    level *levels;
    size_t depth, capacity;
} pruner;

static bool enter(pruner *p, const ckpt_value *dict)
{
    ckpt_entry *entries = ckpt__arena_array(p->arena, dict->entry_count + 1, sizeof *entries);
    if (!entries || !ckpt__grow(&p->levels, &p->capacity, p->depth + 1, sizeof *p->levels))
        return false;
    p->levels[p->depth++] = (level){.dict = dict, .entries = entries};
    return true;
}

/* The dict as it was, or what is left of it; NULL where nothing is. */
static bool leave(pruner *p, const ckpt_value **out)
{
    const level *l = &p->levels[--p->depth];
    *out = l->dict;
    if (!l->changed)
        return true;
    *out = NULL;
    if (!l->kept)
        return true;
    ckpt_value *copy = ckpt__value_new(p->arena, CKPT_V_DICT);
    if (!copy)
        return false;
    copy->entries = l->entries;
    copy->entry_count = l->kept;
    copy->class_name = l->dict->class_name;
    copy->state = l->module ? NULL : l->dict->state;
    *out = copy;
    return true;
}

static bool is_named(const pruner *p, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && v->tensor < p->tensor_count && p->named[v->tensor];
}

static void keep(pruner *p, const ckpt_value *was, const ckpt_value *is)
{
    level *l = &p->levels[p->depth - 1];
    if (is)
        l->entries[l->kept++] = (ckpt_entry){l->dict->entries[l->at].key, is};
    l->changed = l->changed || is != was;
    l->module = l->module || (!is && was->kind == CKPT_V_TENSOR);
    l->at++;
}

/* A dict that is met again, or in itself, stays as it is. */
static bool prune(pruner *p, const ckpt_value *root, const ckpt_value **out)
{
    if (ckpt__pointers_add(&p->seen, root) < 0 || !enter(p, root))
        return false;
    for (;;) {
        const level *l = &p->levels[p->depth - 1];
        if (l->at == l->dict->entry_count) {
            if (!leave(p, out))
                return false;
            if (!p->depth)
                return true;
            l = &p->levels[p->depth - 1];
            keep(p, l->dict->entries[l->at].value, *out);
            continue;
        }
        const ckpt_value *v = l->dict->entries[l->at].value;
        int fresh = v->kind == CKPT_V_DICT ? ckpt__pointers_add(&p->seen, v) : 0;
        if (fresh < 0 || (fresh && !enter(p, v)))
            return false;
        if (!fresh)
            keep(p, v, is_named(p, v) ? NULL : v);
    }
}

bool ckpt__values_without(const ckpt_value *root, const bool *named, size_t tensor_count, ckpt__arena *a,
                          const ckpt_value **out)
{
    pruner p = {.named = named, .tensor_count = tensor_count, .arena = a};
    bool ok = prune(&p, root, out);
    free(p.levels);
    ckpt__pointers_free(&p.seen);
    return ok;
}

static bool without_tensors(const ckpt_value *root, const ckpt__index *index, const ckpt__canon *canon, ckpt__arena *a,
                            const ckpt_value **out)
{
    bool *named = calloc(index->tensor_count + 1, sizeof *named);
    for (size_t i = 0; named && i < canon->count; i++)
        if (canon->entries[i].is_tensor && !canon->entries[i].outside && canon->entries[i].tensor < index->tensor_count)
            named[canon->entries[i].tensor] = true;
    bool ok = named && ckpt__values_without(root, named, index->tensor_count, a, out);
    free(named);
    return ok;
}

/* ---- all of it */

static bool holds_names(const ckpt_value *root)
{
    return ckpt__is_list(root) || (root->kind == CKPT_V_OBJECT && root->entry_count && !root->item_count);
}

/* The step under the name that the source has for it: global_step. */
static bool without_step(const ckpt_value *root, const ckpt__canon *canon, ckpt__arena *a, const ckpt_value **out)
{
    size_t step;
    if (!ckpt__hash_get(canon->by_name, "step", 4, &step) || canon->entries[step].outside ||
        !canon->entries[step].own.data)
        return true;
    return without(root, canon->entries[step].own, a, out);
}

ckpt_status ckpt__migrate_rest(const ckpt__index *index, const ckpt__canon *canon, bool keep_step, ckpt__arena *arena,
                               const ckpt_value **out, ckpt_error *err)
{
    static const ckpt_value nothing = {.kind = CKPT_V_DICT};
    const ckpt_value *rest = index->root;
    bool ok = true, optimizer = canon->optimizer_path.data != NULL;
    *out = &nothing;
    if (!rest)
        return CKPT_OK;
    if ((canon->model_path.data || optimizer || canon->scaler_path.data) && holds_names(rest))
        ok = (rest = as_dict(rest, arena)) != NULL;
    if (ok && rest->kind == CKPT_V_DICT && optimizer) {
        bool script =
            ckpt__is_scripted(canon->optimizer_path.size ? ckpt__value_at(rest, canon->optimizer_path) : rest);
        if (script && !canon->optimizer_path.size)
            return CKPT_OK; /* an optimizer of libtorch in C++, and nothing else */
        ok = script ? without(rest, canon->optimizer_path, arena, &rest)
                    : without_optimizer(rest, canon->optimizer_path, arena, &rest);
    }
    if (ok && rest->kind == CKPT_V_DICT && canon->scaler_path.data) {
        if (!canon->scaler_path.size)
            return CKPT_OK;
        ok = without(rest, canon->scaler_path, arena, &rest);
    }
    if (ok && rest->kind == CKPT_V_DICT && !keep_step)
        ok = without_step(rest, canon, arena, &rest);
    if (ok && rest->kind == CKPT_V_DICT)
        ok = without_tensors(rest, index, canon, arena, &rest);
    if (!ok)
        return ckpt__fail_memory(err, "the value tree", 0);
    *out = rest ? rest : &nothing;
    return CKPT_OK;
}
