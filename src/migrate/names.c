/* migrate/names.c - other names for the model's tensors: prefixes stripped, renamed by regular expressions, a
 * prefix added; in every state_dict of the tree with its _metadata, in the optimizers' param_names, and for tensors that
 * have names instead of a tree. */
#include "migrate/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include "map/rename.h"
#include "format/table.h"

/* The work of ckpt__migrate_names. */
typedef struct renaming {
    ckpt__migration *m;
    ckpt__rename **renames; /* one a --rename, compiled */
    bool *used; /* one a --strip-prefix, then one a --rename: it has changed a name. With 2 prefixes used[2] is
                 * renames[0] */
    ckpt__pointers done, optimizer; /* dicts that are finished; values below an optimizer */
    const ckpt_value *model;        /* the dict that --add-prefix is about; NULL: every one */
    ckpt__hash *moved;              /* whole name of a tensor in a state_dict, before -> number in `after` */
    ckpt_str *after;
    size_t after_count, after_capacity;
    ckpt__arena *arena;
    ckpt_error *err;
} renaming;

/* ---- one name */

/* Bytes that the prefix takes off at `name`: "module." or "module" both mean the part of that name. 0: none. */
static size_t prefix_at(const char *prefix, const char *name, size_t size, bool inner)
{
    size_t n = strlen(prefix);
    bool dotted = n && prefix[n - 1] == '.';
    if (n == 0 || size <= n || memcmp(name, prefix, n) != 0)
        return 0;
    if (dotted)
        return n;
    if (name[n] == '.')
        return n + 1 < size ? n + 1 : 0;
    return inner ? 0 : n;
}

static size_t any_prefix_at(renaming *n, const char *name, size_t size, bool inner)
{
    for (size_t k = 0; k < n->m->options.strip_prefix_count; k++) {
        size_t skip = prefix_at(n->m->options.strip_prefix[k], name, size, inner);
        if (skip) {
            n->used[k] = true;
            return skip;
        }
    }
    return 0;
}

/* In front, and after every dot, as often as it stands there. */
static void strip(renaming *n, ckpt_str name, ckpt__buf *out)
{
    bool inner = false;
    for (size_t i = 0; i < name.size;) {
        size_t skip = i == 0 || name.data[i - 1] == '.' ? any_prefix_at(n, name.data + i, name.size - i, inner) : 0;
        if (skip) {
            i += skip;
            continue;
        }
        inner = true;
        const char *dot = memchr(name.data + i, '.', name.size - i);
        size_t end = dot ? (size_t)(dot - name.data) + 1 : name.size;
        ckpt__buf_add(out, name.data + i, end - i);
        i = end;
    }
}

static ckpt_status new_name(renaming *n, ckpt_str name, bool prefix, ckpt_str *out)
{
    ckpt__buf now = {0}, next = {0};
    ckpt_status status = CKPT_OK;
    strip(n, name, &now);
    for (size_t k = 0; status == CKPT_OK && k < n->m->options.rename_count; k++) {
        bool matched = false;
        next.size = 0;
        status = ckpt__rename_apply(n->renames[k], now.data ? now.data : "", now.size, &matched, &next, n->err);
        if (status == CKPT_OK && matched) {
            ckpt__buf swap = now;
            now = next;
            next = swap;
            n->used[n->m->options.strip_prefix_count + k] = true;
        }
    }
    next.size = 0;
    if (prefix && n->m->options.add_prefix)
        ckpt__buf_str(&next, n->m->options.add_prefix);
    ckpt__buf_add(&next, now.data ? now.data : "", now.size);
    if (status == CKPT_OK && (now.failed || next.failed))
        status = ckpt__migration_no_memory(n->err);
    if (status == CKPT_OK && next.size == 0) {
        char shown[200];
        status = ckpt__fail(n->err, CKPT_E_ARGUMENT, ckpt__escape(shown, sizeof shown, name.data, name.size),
                            "the rules leave nothing of this name");
    }
    if (status == CKPT_OK && !(*out = ckpt__arena_str(n->arena, next.data, next.size)).data)
        status = ckpt__migration_no_memory(n->err);
    ckpt__buf_free(&now);
    ckpt__buf_free(&next);
    return status;
}

static ckpt_status note_renamed(renaming *n, ckpt_str before, ckpt_str after)
{
    if (ckpt__str_equal(before, after))
        return CKPT_OK;
    char *a = ckpt__migration_escaped(before), *b = ckpt__migration_escaped(after);
    bool added = a && b && ckpt__report_add(n->m->report, CKPT_SEVERITY_NOTE, "renamed", b, NULL, "was '%s'", a) &&
                 ckpt__report_detail(n->m->report, NULL, a, b, 0);
    free(a);
    free(b);
    return added ? CKPT_OK : ckpt__migration_no_memory(n->err);
}

static ckpt_status collision(renaming *n, ckpt_str first, ckpt_str second, ckpt_str name)
{
    char a[200], b[200], c[200];
    ckpt__escape(a, sizeof a, first.data, first.size);
    ckpt__escape(b, sizeof b, second.data, second.size);
    ckpt__escape(c, sizeof c, name.data, name.size);
    ckpt__report_add(n->m->report, CKPT_SEVERITY_ERROR, "name-collision", c,
                     "rename one of them otherwise, or --drop it", "'%s' and '%s' would both be named '%s'", a, b, c);
    return ckpt__fail(n->err, CKPT_E_MISMATCH, n->m->src,
                      "'%s' and '%s' would both be named '%s'; rename one of them otherwise, or --drop it", a, b, c);
}

/* ---- a state_dict */

/* A dict with other entries, which is finished. */
static ckpt_status put_dict(renaming *n, const ckpt_value *dict, const ckpt_entry *entries, size_t count)
{
    ckpt_value *copy = ckpt__edits_copy(n->m->edits, dict);
    if (!copy || ckpt__pointers_add(&n->done, copy) < 0)
        return ckpt__migration_no_memory(n->err);
    copy->entries = entries;
    copy->entry_count = count;
    return ckpt__migration_replace(n->m, dict, copy, n->err);
}

/* The path of a module in _metadata goes where the tensors below it went: 'module.fc' is 'fc' if 'module.fc.weight' is
 * 'fc.weight' now. False: no tensor tells. */
static bool module_name(const ckpt_str *before, const ckpt_str *after, size_t count, ckpt_str path, ckpt_str *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t skip = path.size ? path.size + 1 : 0;
        if (before[i].size < skip || memcmp(before[i].data, path.data, path.size) != 0 ||
            (path.size && before[i].data[path.size] != '.'))
            continue;
        size_t rest = before[i].size - skip;
        if (after[i].size < rest || memcmp(after[i].data + after[i].size - rest, before[i].data + skip, rest) != 0)
            continue;
        size_t left = after[i].size - rest;
        if (left && after[i].data[left - 1] != '.')
            continue;
        *out = (ckpt_str){after[i].data, left ? left - 1 : 0};
        return true;
    }
    return false;
}

/* A module without tensors of its own, such as an activation, only loses the prefixes. */
static bool bare_module_name(renaming *n, ckpt_str path, ckpt_str *out)
{
    ckpt__buf whole = {0}, now = {0};
    if (!n->m->options.strip_prefix_count || !path.size)
        return false;
    ckpt__buf_add(&whole, path.data, path.size);
    ckpt__buf_char(&whole, '.');
    if (!whole.failed)
        strip(n, (ckpt_str){whole.data, whole.size}, &now);
    bool shorter = !whole.failed && !now.failed && now.size < whole.size;
    if (shorter)
        *out = ckpt__arena_str(n->arena, now.data ? now.data : "", now.size ? now.size - 1 : 0);
    ckpt__buf_free(&whole);
    ckpt__buf_free(&now);
    return shorter && out->data;
}

static ckpt_status rename_metadata(renaming *n, const ckpt_value *dict, const ckpt_str *before, const ckpt_str *after)
{
    const ckpt_value *state = dict->state && dict->state->kind == CKPT_V_DICT ? dict->state : NULL;
    const ckpt_entry *at = ckpt__find_entry(state, "_metadata");
    if (!at || at->value->kind != CKPT_V_DICT || ckpt__pointers_get(&n->done, at->value, NULL))
        return CKPT_OK;
    const ckpt_value *meta = at->value;
    ckpt_entry *entries = ckpt__arena_array(n->arena, meta->entry_count + 1, sizeof *entries);
    ckpt__hash *names = ckpt__hash_new(meta->entry_count);
    ckpt_status status =
        entries && names && ckpt__pointers_add(&n->done, meta) >= 0 ? CKPT_OK : ckpt__migration_no_memory(n->err);
    size_t kept = 0;
    for (size_t i = 0; status == CKPT_OK && i < meta->entry_count; i++) {
        ckpt_entry e = meta->entries[i];
        ckpt_str name = e.key->text;
        size_t other;
        if (e.key->kind == CKPT_V_STR &&
            (module_name(before, after, dict->entry_count, e.key->text, &name) ||
             bare_module_name(n, e.key->text, &name)) &&
            !ckpt__str_equal(name, e.key->text) && !(e.key = ckpt__value_str(n->arena, name.data, name.size)))
            status = ckpt__migration_no_memory(n->err);
        int put = status == CKPT_OK ? ckpt__hash_put(names, e.key->text.data, e.key->text.size, kept, &other) : 0;
        if (put < 0)
            status = ckpt__migration_no_memory(n->err);
        else if (put == 0 && status == CKPT_OK)
            entries[other].value = e.value; /* the wrapped module's own, which torch keeps too */
        else
            entries[kept++] = e;
    }
    ckpt__hash_free(names);
    return status == CKPT_OK ? put_dict(n, meta, entries, kept) : status;
}

/* The whole names, for tensors that canonical names call by them. */
static ckpt_status note_moved(renaming *n, ckpt_str dict, ckpt_str before, ckpt_str after)
{
    if (ckpt__str_equal(before, after))
        return CKPT_OK;
    const ckpt_str dot = ckpt__s(dict.size ? "." : "");
    const ckpt_str was = ckpt__arena_join(n->arena, dict, dot, before),
                   is = ckpt__arena_join(n->arena, dict, dot, after);
    if (!was.data || !is.data || !ckpt__grow(&n->after, &n->after_capacity, n->after_count + 1, sizeof *n->after) ||
        ckpt__hash_put(n->moved, was.data, was.size, n->after_count, NULL) < 0)
        return ckpt__migration_no_memory(n->err);
    n->after[n->after_count++] = is;
    return CKPT_OK;
}

static ckpt_status rename_dict(renaming *n, const ckpt_value *dict, ckpt_str where)
{
    size_t count = dict->entry_count;
    ckpt_entry *entries = ckpt__arena_array(n->arena, count + 1, sizeof *entries);
    ckpt_str *before = ckpt__arena_array(n->arena, count + 1, sizeof *before),
             *after = ckpt__arena_array(n->arena, count + 1, sizeof *after);
    ckpt__hash *names = ckpt__hash_new(count);
    bool prefix = !n->model || n->model == dict;
    size_t other;
    ckpt_status status = entries && before && after && names ? CKPT_OK : ckpt__migration_no_memory(n->err);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        entries[i] = dict->entries[i];
        before[i] = after[i] = entries[i].key->text;
        if (!ckpt__str_is(before[i], "__metadata__"))
            status = new_name(n, before[i], prefix, &after[i]);
        if (status != CKPT_OK)
            break;
        int put = ckpt__hash_put(names, after[i].data, after[i].size, i, &other);
        if (put == 0 && !ckpt__str_equal(before[i], before[other]))
            status = collision(n, before[other], before[i], after[i]);
        else if (put < 0)
            status = ckpt__migration_no_memory(n->err);
        if (status == CKPT_OK && !ckpt__str_equal(before[i], after[i]) &&
            !(entries[i].key = ckpt__value_str(n->arena, after[i].data, after[i].size)))
            status = ckpt__migration_no_memory(n->err);
        if (status == CKPT_OK && n->m->tree) /* else its canonical name is said */
            status = note_renamed(n, before[i], after[i]);
        if (status == CKPT_OK)
            status = note_moved(n, where, before[i], after[i]);
    }
    if (status == CKPT_OK)
        status = rename_metadata(n, dict, before, after);
    ckpt__hash_free(names);
    return status == CKPT_OK ? put_dict(n, dict, entries, count) : status;
}

/* ---- an optimizer: names in its groups, and states under names */

static ckpt_status rename_items(renaming *n, const ckpt_value *list)
{
    ckpt_value *copy = ckpt__edits_copy(n->m->edits, list);
    const ckpt_value **items = ckpt__arena_array(n->arena, list->item_count + 1, sizeof *items);
    if (!copy || !items)
        return ckpt__migration_no_memory(n->err);
    for (size_t i = 0; i < list->item_count; i++) {
        ckpt_str name;
        items[i] = list->items[i];
        if (items[i]->kind != CKPT_V_STR)
            continue;
        ckpt_status status = new_name(n, items[i]->text, true, &name);
        if (status != CKPT_OK)
            return status;
        if (!ckpt__str_equal(name, items[i]->text) && !(items[i] = ckpt__value_str(n->arena, name.data, name.size)))
            return ckpt__migration_no_memory(n->err);
    }
    copy->items = items;
    return ckpt__migration_replace(n->m, list, copy, n->err);
}

static ckpt_status rename_optimizer(renaming *n, const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups"), *state = ckpt_value_get(optimizer, "state");
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < groups->item_count; g++) {
        const ckpt_value *params = ckpt__params_of(groups->items[g]),
                         *names = ckpt_value_get(groups->items[g], "param_names");
        if (params)
            status = rename_items(n, params);
        if (status == CKPT_OK && ckpt__is_list(names))
            status = rename_items(n, names);
    }
    ckpt_entry *entries = ckpt__arena_array(n->arena, state->entry_count + 1, sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(n->err);
    for (size_t i = 0; status == CKPT_OK && i < state->entry_count; i++) {
        ckpt_entry *e = &entries[i];
        ckpt_str name;
        *e = state->entries[i];
        if (e->key->kind != CKPT_V_STR)
            continue;
        status = new_name(n, e->key->text, true, &name);
        if (status == CKPT_OK && !(e->key = ckpt__value_str(n->arena, name.data, name.size)))
            status = ckpt__migration_no_memory(n->err);
    }
    return status == CKPT_OK ? put_dict(n, state, entries, state->entry_count) : status;
}

static int rename_value(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    renaming *n = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_DICT || visit->cycle)
        return CKPT_OK;
    if (spot->parent &&
        ckpt__pointers_get(&n->optimizer, spot->parent, NULL)) { /* what an optimizer holds is no model */
        return ckpt__pointers_add(&n->optimizer, v) < 0 ? ckpt__migration_no_memory(n->err) : CKPT_OK;
    }
    if (ckpt__is_cpp_optimizer(v)) {
        return ckpt__pointers_add(&n->optimizer, v) < 0 ? ckpt__migration_no_memory(n->err) : CKPT_OK;
    }
    bool optimizer = ckpt__is_torch_optimizer(v);
    if (!optimizer && !ckpt__canon_is_model(n->m->from, v))
        return CKPT_OK;
    if (optimizer && ckpt__pointers_add(&n->optimizer, v) < 0)
        return ckpt__migration_no_memory(n->err);
    int first = ckpt__pointers_add(&n->done, v);
    if (first <= 0)
        return first < 0 ? ckpt__migration_no_memory(n->err) : CKPT_OK;
    ckpt_status status = optimizer ? rename_optimizer(n, v) : rename_dict(n, v, visit->name);
    *to = ckpt__edits_now(n->m->edits, v);
    return status;
}

/* Everything below an optimizer, also through its lists. */
static int note_below(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    renaming *n = ctx;
    const ckpt_value *v = visit->value;
    (void)to;
    bool below = (spot->parent && ckpt__pointers_get(&n->optimizer, spot->parent, NULL)) || ckpt__is_torch_optimizer(v);
    bool container = v->kind == CKPT_V_DICT || v->kind == CKPT_V_OBJECT || ckpt__is_list(v);
    if (below && container && !visit->cycle && ckpt__pointers_add(&n->optimizer, v) < 0)
        return ckpt__migration_no_memory(n->err);
    return CKPT_OK;
}

/* ---- canonical names */

/* What is behind the head, which has at least one byte; false: it does not begin with it. */
static bool cut_head(ckpt_str *name, ckpt_str head)
{
    if (name->size <= head.size || !ckpt__str_begins_with(*name, head))
        return false;
    *name = (ckpt_str){name->data + head.size, name->size - head.size};
    return true;
}

static ckpt_status state_name(renaming *n, ckpt__canon_entry *e)
{
    const ckpt_str head = ckpt__s("optimizer."), before = e->param;
    ckpt_status status = new_name(n, before, true, &e->param);
    ckpt_str tail = e->name;
    if (status != CKPT_OK || ckpt__str_equal(before, e->param) || !cut_head(&tail, head) || !cut_head(&tail, before))
        return status;
    e->name = ckpt__arena_join(n->arena, head, e->param, tail);
    return e->name.data ? CKPT_OK : ckpt__migration_no_memory(n->err);
}

static ckpt_status entry_name(renaming *n, ckpt__canon_entry *e)
{
    size_t i;
    bool weight = e->is_tensor && (e->role == CKPT_ROLE_PARAM || e->role == CKPT_ROLE_BUFFER);
    ckpt_status status = CKPT_OK;
    if (e->outside) { /* of a state_dict that is not the model's: an average, another model */
        if (e->is_tensor && ckpt__hash_get(n->moved, e->own.data, e->own.size, &i))
            e->name = n->after[i];
        return CKPT_OK;
    }
    if (!weight)
        return e->param.data ? state_name(n, e) : CKPT_OK;
    ckpt_str before = e->name;
    status = new_name(n, before, true, &e->name);
    if (status == CKPT_OK && !n->m->tree)
        status = note_renamed(n, before, e->name);
    return status == CKPT_OK && e->param.data ? new_name(n, e->param, true, &e->param) : status;
}

static ckpt_status rename_groups(renaming *n)
{
    ckpt__canon *c = n->m->canon;
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < c->group_count; g++) {
        ckpt_str *params = c->groups[g].params;
        for (size_t i = 0; status == CKPT_OK && i < c->groups[g].param_count; i++)
            if (params[i].data)
                status = new_name(n, params[i], true, &params[i]);
    }
    return status;
}

/* The groups of a native file list their parameters by name. */
static ckpt_status rename_native_groups(renaming *n)
{
    const ckpt_value *optimizer = ckpt_value_get(n->m->from->root, "optimizer"),
                     *groups = ckpt_value_get(optimizer, "groups");
    ckpt_status status = CKPT_OK;
    if (!ckpt__format_of(n->m->from)->canonical || !groups || groups->kind != CKPT_V_DICT)
        return CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < groups->entry_count; g++) {
        const ckpt_value *params = ckpt_value_get(groups->entries[g].value, "params");
        if (params && params->kind == CKPT_V_LIST)
            status = rename_items(n, params);
    }
    return status;
}

static ckpt_status rename_canonical(renaming *n)
{
    ckpt__canon *c = n->m->canon;
    ckpt__hash *by_name = ckpt__hash_new(c->count);
    ckpt_status status = by_name ? CKPT_OK : ckpt__migration_no_memory(n->err);
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++) {
        ckpt__canon_entry *e = &c->entries[i];
        ckpt_str before = e->name;
        size_t other;
        status = entry_name(n, e);
        int put = status == CKPT_OK ? ckpt__hash_put(by_name, e->name.data, e->name.size, i, &other) : 1;
        if (put < 0)
            status = ckpt__migration_no_memory(n->err);
        else if (put == 0 && !e->outside && !c->entries[other].outside && !ckpt__str_equal(before, e->name) &&
                 !ckpt__stays_behind(n->m, e->tensor))
            status = collision(n, c->entries[other].own, e->own, e->name);
    }
    ckpt__hash_free(c->by_name);
    c->by_name = by_name;
    for (size_t i = 0, k; i < c->count; i++) /* the names that the tree has now */
        if (c->entries[i].is_tensor && ckpt__hash_get(n->moved, c->entries[i].own.data, c->entries[i].own.size, &k))
            c->entries[i].own = n->after[k];
    if (status == CKPT_OK)
        status = rename_groups(n);
    return status == CKPT_OK ? rename_native_groups(n) : status;
}

/* Parts of tensors that are not dense, of which a native file knows no whole: "<name>.indices", ... */
static ckpt_status rename_parts(renaming *n)
{
    ckpt__index *x = n->m->from;
    for (size_t i = 0; n->m->became_torch && n->after_count && i < x->tensor_count; i++) {
        ckpt_str *name = &x->tensors[i].info.name;
        size_t dot = ckpt__str_after_dot(*name), k;
        if (!ckpt__is_flat(x, i) || dot == 0 || !ckpt__hash_get(n->moved, name->data, dot - 1, &k))
            continue;
        *name = ckpt__arena_join(n->arena, n->after[k], ckpt__s("."), ckpt__str_last(*name));
        if (!name->data)
            return ckpt__migration_no_memory(n->err);
    }
    return CKPT_OK;
}

/* ---- all of it */

/* The dict of the model, where it is one; else its parts are, and each gets the prefix. */
static void find_model(renaming *n)
{
    if (n->m->canon->model_path.data)
        n->model = ckpt__value_at(n->m->from->root, n->m->canon->model_path);
    if (n->model && !ckpt__canon_is_model(n->m->from, n->model))
        n->model = NULL;
}

static ckpt_status compile(renaming *n)
{
    const ckpt_migrate_options *o = &n->m->options;
    n->renames = calloc(o->rename_count + 1, sizeof *n->renames);
    n->used = calloc(o->strip_prefix_count + o->rename_count + 1, sizeof *n->used);
    ckpt_status status = n->renames && n->used ? CKPT_OK : ckpt__migration_no_memory(n->err);
    for (size_t k = 0; status == CKPT_OK && k < o->rename_count; k++)
        status = ckpt__rename_parse(o->rename[k], &n->renames[k], n->err);
    return status;
}

/* A prefix that is not there is a warning: scripts strip "module." whether or not there is one. */
static ckpt_status note_unused_prefixes(renaming *n)
{
    const ckpt_migrate_options *o = &n->m->options;
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < o->strip_prefix_count; k++)
        if (!n->used[k] && !n->m->fixes_prefix)
            status = ckpt__migration_note(n->m, CKPT_SEVERITY_WARNING, "unused-rule", (ckpt_str){NULL, 0}, n->err,
                                          "--strip-prefix '%s': no name has it", o->strip_prefix[k]);
    return status;
}

/* A name that a --rename is compared with, for the message. */
static ckpt_str example(const ckpt__migration *m)
{
    for (size_t i = 0; i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        if (e->is_tensor && !e->outside && e->role == CKPT_ROLE_PARAM && !ckpt__stays_behind(m, e->tensor))
            return e->name;
    }
    return (ckpt_str){NULL, 0};
}

static ckpt_status note_unused(renaming *n)
{
    const ckpt_migrate_options *o = &n->m->options;
    ckpt_status status = note_unused_prefixes(n);
    ckpt_str name = example(n->m);
    char said[300], shown[200], why[300];
    ckpt__escape(shown, sizeof shown, name.data ? name.data : "", name.size);
    for (size_t k = 0; status == CKPT_OK && k < o->rename_count; k++) {
        if (n->used[o->strip_prefix_count + k])
            continue;
        snprintf(said, sizeof said, "--rename '%s'", o->rename[k]);
        snprintf(why, sizeof why, "matches nothing; an expression is compared with a whole name of the model%s%s%s",
                 name.data ? ", such as '" : "", shown, name.data ? "'" : "");
        status = ckpt__rule_unused(n->m, said, why, NULL, NULL, n->err);
    }
    return status;
}

ckpt_status ckpt__migrate_names(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    renaming n = {.m = m, .arena = m->from->arena, .err = err};
    if (!o->strip_prefix_count && !o->rename_count && !(o->add_prefix && *o->add_prefix))
        return CKPT_OK;
    ckpt_status status = compile(&n);
    find_model(&n);
    if (status == CKPT_OK && !(n.moved = ckpt__hash_new(m->from->tensor_count)))
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        status = ckpt__edits_note(m->edits, m->from->root, note_below, &n, err);
    if (status == CKPT_OK)
        status = ckpt__edits_note(m->edits, m->from->root, rename_value, &n, err);
    if (status == CKPT_OK)
        status = rename_canonical(&n);
    if (status == CKPT_OK)
        status = rename_parts(&n);
    if (status == CKPT_OK)
        status = ckpt__migration_apply(m, err);
    if (status == CKPT_OK)
        status = note_unused(&n);
    for (size_t k = 0; n.renames && k < o->rename_count; k++)
        ckpt__rename_free(n.renames[k]);
    ckpt__hash_free(n.moved);
    free(n.after);
    free(n.renames);
    free(n.used);
    ckpt__pointers_free(&n.done);
    ckpt__pointers_free(&n.optimizer);
    return status;
}
