/* format/torch/libtorch.c - optimizers of libtorch in C++ in torch's own shape. */
#include "format/torch/libtorch.h"

#include "model/training.h"

typedef struct shaping {
    ckpt__arena *arena;
    ckpt__hash *ids; /* address -> number; NULL: addresses stay */
    size_t count;    /* numbers that were given out */
    const char *object;
    ckpt_error *err;
} shaping;

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "an optimizer of libtorch", 0);
}

/* The number behind `head`; -1: another key. */
static int64_t number_behind(const ckpt_value *key, ckpt_str head)
{
    int64_t n = -1;
    if (key->kind != CKPT_V_STR || key->text.size <= head.size || memcmp(key->text.data, head.data, head.size) != 0 ||
        !ckpt__parse_i64(key->text.data + head.size, key->text.size - head.size, &n))
        return -1;
    return n;
}

ckpt_status ckpt__libtorch_list(const ckpt_value *dict, ckpt_str head, ckpt__arena *arena, const char *object,
                                const ckpt_value ***items, size_t *count, ckpt_error *err)
{
    *count = 0;
    for (size_t i = 0; i < dict->entry_count; i++)
        *count += number_behind(dict->entries[i].key, head) >= 0;
    *items = ckpt__arena_array(arena, *count + 1, sizeof **items);
    if (!*items)
        return no_memory(err);
    for (size_t i = 0; i < dict->entry_count; i++) {
        const ckpt_value *key = dict->entries[i].key;
        int64_t n = number_behind(key, head);
        if (n >= 0 && ((uint64_t)n >= *count || (*items)[n])) {
            char shown[80];
            return ckpt__fail(
                err, CKPT_E_MISMATCH, object,
                "the optimizer has %zu entries '%.*s<number>', and '%s' among them: libtorch numbers them "
                "from 0 without a hole",
                *count, (int)(head.size < 60 ? head.size : 60), head.data,
                ckpt__escape(shown, sizeof shown, key->text.data, key->text.size));
        }
        if (n >= 0)
            (*items)[n] = dict->entries[i].value;
    }
    return CKPT_OK;
}

static bool put(const shaping *s, ckpt_entry *entry, const char *key, const ckpt_value *value)
{
    *entry = (ckpt_entry){ckpt__value_str(s->arena, key, strlen(key)), value};
    return entry->key && value;
}

static ckpt_status dict_of(const shaping *s, const ckpt_entry *entries, size_t n, const ckpt_value **out)
{
    *out = ckpt__value_dict(s->arena, entries, n);
    return *out ? CKPT_OK : no_memory(s->err);
}

/* ---- groups */

static ckpt_status number_ids(shaping *s, const ckpt_value **params, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ckpt_str id = params[i]->text;
        if (params[i]->kind != CKPT_V_STR)
            return ckpt__fail(s->err, CKPT_E_MISMATCH, s->object,
                              "a parameter of a group is a %s; libtorch writes its address as a string",
                              ckpt_kind_name(params[i]->kind));
        if (s->ids && (ckpt__hash_put(s->ids, id.data, id.size, s->count, NULL) < 0 ||
                       !(params[i] = ckpt__value_int(s->arena, (int64_t)s->count++))))
            return no_memory(s->err);
    }
    return CKPT_OK;
}

static ckpt_status shape_group(shaping *s, const ckpt_value *group, const ckpt_value **out)
{
    if (group->kind != CKPT_V_DICT)
        return ckpt__fail(s->err, CKPT_E_MISMATCH, s->object,
                          "a group of the optimizer is a %s; libtorch writes a dict", ckpt_kind_name(group->kind));
    const ckpt_value *options = ckpt_value_get(group, "options"), **params;
    size_t more = options && options->kind == CKPT_V_DICT ? options->entry_count : 0, n = 0, count;
    ckpt_entry *entries = ckpt__arena_array(s->arena, group->entry_count + more + 1, sizeof *entries);
    ckpt_status status =
        entries ? ckpt__libtorch_list(group, ckpt__s("params/"), s->arena, s->object, &params, &count, s->err)
                : no_memory(s->err);
    if (status == CKPT_OK)
        status = number_ids(s, params, count);
    for (size_t i = 0; status == CKPT_OK && i < more; i++)
        entries[n++] = options->entries[i];
    for (size_t i = 0; status == CKPT_OK && i < group->entry_count; i++) {
        const ckpt_entry *e = &group->entries[i];
        if (e->value != options && (e->key->kind != CKPT_V_STR || !ckpt__str_begins(e->key->text, "params/")))
            entries[n++] = *e;
    }
    if (status == CKPT_OK && !put(s, &entries[n++], "params", ckpt__value_list(s->arena, CKPT_V_LIST, params, count)))
        status = no_memory(s->err);
    return status == CKPT_OK ? dict_of(s, entries, n, out) : status;
}

static ckpt_status shape_groups(shaping *s, const ckpt_value *groups, const ckpt_value **out)
{
    const ckpt_value **list;
    size_t count;
    ckpt_status status =
        ckpt__libtorch_list(groups, ckpt__s("param_groups/"), s->arena, s->object, &list, &count, s->err);
    for (size_t g = 0; status == CKPT_OK && g < count; g++)
        status = shape_group(s, list[g], &list[g]);
    *out = status == CKPT_OK ? ckpt__value_list(s->arena, CKPT_V_LIST, list, count) : NULL;
    return status == CKPT_OK && !*out ? no_memory(s->err) : status;
}

/* ---- lists of the time before 1.5 */

static ckpt_status old_state(const shaping *s, const ckpt_value **const *lists, const size_t *counts, size_t k,
                             const ckpt_value **out)
{
    ckpt_entry *entries = ckpt__arena_array(s->arena, CKPT__OLD_LISTS, sizeof *entries);
    size_t n = 0;
    bool ok = entries != NULL;
    for (size_t i = 0; ok && i < CKPT__OLD_LISTS; i++)
        if (k < counts[i])
            ok = put(s, &entries[n++], ckpt__old_lists[i].key, lists[i][k]);
    return ok ? dict_of(s, entries, n, out) : no_memory(s->err);
}

/* The states of {0: ..., 1: ...}, and the one group that has all of them. */
static ckpt_status shape_lists(const shaping *s, const ckpt_value *v, ckpt_entry *states, ckpt_entry *groups)
{
    const ckpt_value **lists[CKPT__OLD_LISTS], *all = NULL, *group = NULL;
    size_t counts[CKPT__OLD_LISTS], count = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < CKPT__OLD_LISTS; i++) {
        status = ckpt__libtorch_list(v, ckpt__s(ckpt__old_lists[i].list), s->arena, s->object, &lists[i], &counts[i],
                                     s->err);
        count = status == CKPT_OK && counts[i] > count ? counts[i] : count;
    }
    if (status < 0)
        return status;
    ckpt_entry *entries = ckpt__arena_array(s->arena, count + 1, sizeof *entries), of_group;
    const ckpt_value **ids = ckpt__arena_array(s->arena, count + 1, sizeof *ids);
    bool ok = entries && ids;
    for (size_t k = 0; ok && status == CKPT_OK && k < count; k++) {
        ids[k] = entries[k].key = ckpt__value_int(s->arena, (int64_t)k);
        status = old_state(s, lists, counts, k, &entries[k].value);
        ok = ids[k] != NULL;
    }
    if (ok && status == CKPT_OK)
        status = dict_of(s, entries, count, &all);
    ok = ok && status == CKPT_OK && put(s, &of_group, "params", ckpt__value_list(s->arena, CKPT_V_LIST, ids, count));
    if (ok)
        status = dict_of(s, &of_group, 1, &group);
    ok = ok && status == CKPT_OK && put(s, states, "state", all) &&
         put(s, groups, "param_groups", ckpt__value_list(s->arena, CKPT_V_LIST, &group, 1));
    return ok || status < 0 ? status : no_memory(s->err);
}

/* ---- all of it */

ckpt_status ckpt__libtorch_ordinary(const ckpt_value *v, ckpt__arena *arena, ckpt__hash *ids, const char *object,
                                    const ckpt_value **out, ckpt_error *err)
{
    shaping s = {.arena = arena, .ids = ids, .object = object, .err = err};
    ckpt_entry *entries = ckpt__arena_array(arena, v->entry_count + 2, sizeof *entries);
    ckpt_status status = entries ? CKPT_OK : no_memory(err);
    bool old = ckpt__is_old_libtorch_optimizer(v);
    size_t n = 0;
    int64_t number;
    if (old && status == CKPT_OK) {
        status = shape_lists(&s, v, &entries[0], &entries[1]);
        n = 2;
    }
    for (size_t i = 0; status == CKPT_OK && i < v->entry_count; i++) {
        const ckpt_entry *e = &v->entries[i];
        ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : ckpt__s("");
        if (old && ckpt__old_list_of(key, &number) != CKPT__OLD_LISTS)
            continue;
        entries[n] = *e;
        if (!old && ckpt__str_is(key, "param_groups"))
            status = shape_groups(&s, e->value, &entries[n].value);
        n++;
    }
    ckpt_value *made = status == CKPT_OK ? ckpt__value_dict(arena, entries, n) : NULL;
    if (made)
        made->class_name = v->class_name;
    *out = made;
    return made || status < 0 ? status : no_memory(err);
}

/* ---- names */

/* The names of a node and of all below it begin as `head` says, and go on as they did behind the name of the node. */
static bool rename_range(ckpt__tree *t, size_t from, const char *head, ckpt_str path, size_t number, ckpt__arena *arena)
{
    size_t cut = t->nodes[from].name.size, end = t->nodes[from].end;
    for (size_t i = from; i < end; i++) {
        ckpt__node *n = &t->nodes[i];
        ckpt__buf b = {0};
        ckpt__buf_add(&b, path.data, path.size);
        ckpt__buf_printf(&b, head, path.size ? "." : "", number);
        ckpt__buf_add(&b, n->name.data + cut, n->name.size - cut);
        n->name = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(arena, b.data, b.size);
        ckpt__buf_free(&b);
        if (!n->name.data)
            return false;
    }
    return true;
}

static bool name_group(ckpt__tree *t, size_t group, ckpt_str groups, size_t number, ckpt__arena *arena)
{
    size_t params = ckpt__tree_child(t, group, "params"), k = 0;
    if (!rename_range(t, group, "%sparam_groups/%zu.options", groups, number, arena))
        return false;
    ckpt_str path = t->nodes[group].name;
    path.size -= strlen(".options");
    for
        CKPT__CHILDREN(t, p, params)
    if (!rename_range(t, p, "%sparams/%zu", path, k++, arena))
        return false;
    return true;
}

/* Are the parameters that the groups list numbers? Then they come from lists. */
static bool is_numbered(const ckpt__tree *t, size_t groups)
{
    for (size_t i = groups + 1; i < t->nodes[groups].end; i++)
        if (ckpt__str_is(t->nodes[i].key, "params") && i + 1 < t->nodes[i].end)
            return t->nodes[i + 1].value->kind == CKPT_V_INT;
    return false;
}

/* Only the tensors of the lists of before 1.5 have a name in the file. */
static void name_lists(ckpt__tree *t, size_t state, const ckpt__index *index)
{
    for (size_t i = state; i < t->nodes[state].end; i++) {
        const ckpt_value *v = t->nodes[i].value;
        if (v->kind == CKPT_V_TENSOR && v->tensor < index->tensor_count)
            t->nodes[i].name = index->tensors[v->tensor].info.name;
    }
}

bool ckpt__libtorch_name(ckpt__tree *t, size_t node, const ckpt__index *index, ckpt__arena *arena)
{
    size_t groups = ckpt__tree_child(t, node, "param_groups"), number = 0;
    if (is_numbered(t, groups)) {
        name_lists(t, ckpt__tree_child(t, node, "state"), index);
        return true;
    }
    for
        CKPT__CHILDREN(t, g, groups)
    if (!name_group(t, g, t->nodes[groups].name, number++, arena))
        return false;
    return true;
}

typedef struct all_shaping {
    ckpt__arena *arena;
    ckpt__pointers *made;
    size_t number;
    ckpt_error *err;
} all_shaping;

static int shape_one(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    all_shaping *s = ctx;
    (void)spot;
    if (visit->cycle || !ckpt__is_cpp_optimizer(visit->value))
        return CKPT_OK;
    ckpt_status status = ckpt__libtorch_ordinary(visit->value, s->arena, NULL, NULL, to, s->err);
    if (status == CKPT_E_MISMATCH) {
        *to = visit->value; /* who needs it gets that error */
        return CKPT_OK;
    }
    return status == CKPT_OK && ckpt__pointers_put(s->made, *to, s->number) < 0 ? no_memory(s->err) : status;
}

/* Everything in an archive of libtorch is of its classes: a tree has some at its root, or in the root of a file of a directory. */
static bool has_archive(const ckpt_value *root)
{
    bool has = ckpt__is_scripted(root);
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && !has && i < root->entry_count; i++)
        has = ckpt__is_scripted(root->entries[i].value);
    return has;
}

ckpt_status ckpt__libtorch_all_ordinary(const ckpt_value *root, ckpt__arena *arena, ckpt__pointers *made, size_t number,
                                        const ckpt_value **out, ckpt_error *err)
{
    *out = root;
    if (!has_archive(root))
        return CKPT_OK;
    all_shaping s = {arena, made, number, err};
    ckpt__edits *edits = ckpt__edits_new(arena, NULL);
    ckpt_status status = edits ? ckpt__rewrite(edits, root, shape_one, &s, out, err) : no_memory(err);
    ckpt__edits_free(edits);
    return status;
}
