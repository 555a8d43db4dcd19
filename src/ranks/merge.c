/* ranks/merge.c - the trees of all ranks as one. Dicts are joined key by key; a tensor of all ranks becomes one of the work's; a value is
 * taken once where it is the same on all ranks, and kept for each rank where it may differ. */
#include "ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/rank_kind.h"

enum { DEEPEST = 24 };

/* What each rank has for itself: the entries of its own dict. */
typedef struct own_entries {
    ckpt_entry *entries; /* heap */
    size_t count, capacity;
} own_entries;

typedef struct merger {
    ckpt__ranks *r;
    const ckpt__ranks_group *group;
    ckpt__buf path; /* of the place */
} merger;

/* A place of the tree. values[i] is what file i of the group has there; NULL: nothing. */
typedef struct place {
    const ckpt_value **values;
    const ckpt_value *key; /* under which the dict above has it */
    int depth;
} place;

static ckpt_status merge(merger *m, const place *at, const ckpt_value **out, own_entries *own);

static ckpt_str path_of(const merger *m)
{
    return (ckpt_str){m->path.data ? m->path.data : "", m->path.size};
}

static size_t first_of(const merger *m, const place *at)
{
    size_t i = 0;
    while (i < m->group->count && !at->values[i])
        i++;
    return i;
}

static bool all_are(const merger *m, const place *at, ckpt_kind kind)
{
    for (size_t i = 0; i < m->group->count; i++)
        if (at->values[i] && at->values[i]->kind != kind)
            return false;
    return true;
}

static ckpt_status put_own(own_entries *own, const ckpt_value *key, const ckpt_value *value, ckpt_error *err)
{
    if (!ckpt__grow(&own->entries, &own->capacity, own->count + 1, sizeof *own->entries))
        return ckpt__ranks_no_memory(err);
    own->entries[own->count++] = (ckpt_entry){key, value};
    return CKPT_OK;
}

static ckpt_status keep_own(merger *m, const place *at, own_entries *own)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->group->count; i++)
        if (at->values[i])
            status = put_own(&own[i], at->key, at->values[i], m->r->err);
    m->r->differ++;
    return status;
}

/* ---- may it differ? */

static bool is_within(ckpt_str path, ckpt_str folder)
{
    return folder.data && (folder.size == 0 || (ckpt__str_begins_with(path, folder) &&
                                                (path.size == folder.size || path.data[folder.size] == '.')));
}

/* A rank has another one than others: a state of random generators, a place in the data, or what the layout says. */
static bool is_own(merger *m)
{
    const ckpt_str path = path_of(m);
    ckpt__rank_kind kind;
    const size_t said = ckpt__name_list_find(&m->r->files->own, path);
    if (said < m->r->files->own.count)
        m->r->owned[said] = true;
    return said < m->r->files->own.count || ckpt__rank_kind_of(path, &kind);
}

/* It says of what step the file is. */
static bool counts_steps(ckpt_str path)
{
    static const char *const keys[] = {"step",       "global_step", "iter_num", "iteration",
                                       "train_step", "num_updates", "epoch"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t n = strlen(keys[i]);
        if (path.size >= n && memcmp(path.data + path.size - n, keys[i], n) == 0 &&
            (path.size == n || path.data[path.size - n - 1] == '.'))
            return true;
    }
    return false;
}

static ckpt_status not_same(merger *m, size_t one, size_t other, const char *what)
{
    const ckpt__ranks_file *a = &m->group->files[one], *b = &m->group->files[other];
    char first[200], second[200];
    return ckpt__ranks_wrong(m->r, b->name, path_of(m), "%s has another one than %s in %s%s",
                             ckpt__ranks_rank_text(m->r, b, second, sizeof second),
                             ckpt__ranks_rank_text(m->r, a, first, sizeof first), a->name, what);
}

/* ---- values */

/* *other: the first file that has something else than the first one; the count of files: there is none. */
static ckpt_status compare(merger *m, const place *at, size_t *other)
{
    const size_t first = first_of(m, at), files = m->group->count;
    bool same = true;
    ckpt_status status = CKPT_OK;
    for (*other = first; status == CKPT_OK && same && *other < files;)
        if (++*other < files && at->values[*other])
            status = ckpt__ranks_alike(m->r, at->values[first], at->values[*other], &same);
    return status;
}

static ckpt_status merge_value(merger *m, const place *at, const ckpt_value **out, own_entries *own)
{
    const size_t first = first_of(m, at);
    const ckpt_str path = path_of(m);
    size_t other;
    ckpt_status status = compare(m, at, &other);
    if (status < 0 || other == m->group->count) {
        *out = at->values[first];
        return status;
    }
    if (is_own(m))
        return keep_own(m, at, own);
    *out = at->values[first];
    if (counts_steps(path))
        return not_same(m, first, other, ": these are not files of one step");
    if (is_within(path, m->r->optimizer))
        return not_same(m, first, other, ": an optimizer has the same settings on all ranks");
    *out = NULL;
    return keep_own(m, at, own);
}

/* ---- tensors */

static ckpt_status note_name(merger *m, const ckpt__ranks_tensor *t)
{
    const ckpt__layout *layout = m->r->request->layout;
    if (t->shard != SIZE_MAX || !t->name.inside || !ckpt__layout_shard_count(layout, m->r->request->side))
        return CKPT_OK;
    return ckpt__ranks_wrong(m->r, NULL, t->name.shown, "no entry of 'shard' has the name '%.*s'",
                             (int)t->name.param.size, t->name.param.data);
}

/* Which entry cuts it: a moment is cut as its parameter, a count is not. *known false: none can be told, which was said. */
static ckpt_status find_shard(merger *m, ckpt__ranks_tensor *t, const ckpt_tensor_info *one, bool *known)
{
    const ckpt__layout *layout = m->r->request->layout;
    const unsigned side = m->r->request->side;
    const ckpt__ranks_name *param = t->name.state ? ckpt__ranks_param_of(m->r, &t->name) : NULL;
    size_t axes[CKPT__MESH_AXES], cuts;
    uint32_t dims[CKPT__MESH_AXES];
    uint64_t numel = 0;
    *known = true;
    t->shard = ckpt__layout_shard_of(layout, side, t->name.param);
    if (t->shard != SIZE_MAX)
        m->r->used[t->shard] = true;
    ckpt_status status = note_name(m, t);
    *known = status == CKPT_OK;
    if (status < 0 || t->shard == SIZE_MAX)
        return status;
    cuts = ckpt__layout_shard_axes(layout, side, t->shard, axes, dims);
    if (!t->name.inside && !cuts) /* it need not be the same on all ranks: a state of random generators */
        t->shard = SIZE_MAX;
    if (!t->name.state)
        return CKPT_OK;
    ckpt__numel(one->shape, one->ndim, &numel);
    if (t->name.step || !cuts || (one->ndim == 0 && numel == 1))
        t->shard = SIZE_MAX;
    else if (param && ckpt__same_shape(param->shape, param->ndim, one->shape, one->ndim))
        return CKPT_OK;
    else if (numel == 1)
        t->shard = SIZE_MAX;
    else {
        *known = false;
        return ckpt__ranks_wrong(
            m->r, NULL, t->name.shown,
            "it has not the shape of its parameter, so that the parameter's cuts say nothing of it");
    }
    return CKPT_OK;
}

/* Are all axes that cut it in the names of the files? */
static ckpt_status check_axes(merger *m, const ckpt__ranks_tensor *t)
{
    size_t axes[CKPT__MESH_AXES], cuts = 0;
    uint32_t dims[CKPT__MESH_AXES];
    if (t->shard != SIZE_MAX)
        cuts = ckpt__layout_shard_axes(m->r->request->layout, m->r->request->side, t->shard, axes, dims);
    for (size_t i = 0; i < cuts; i++) {
        const ckpt__rank_axis *a = &m->r->mesh.axes[axes[i]];
        if (!m->group->along[axes[i]] && a->size > 1)
            return ckpt__ranks_wrong(m->r, m->group->files[0].name, t->name.shown,
                                     "the axis '%.*s' cuts it, and the names %.*s of its files do not have <%.*s>",
                                     (int)a->name.size, a->name.data, (int)m->group->form->text.size,
                                     m->group->form->text.data, (int)a->name.size, a->name.data);
    }
    return CKPT_OK;
}

static ckpt_status add_tensor(merger *m, const place *at, ckpt__ranks_tensor t, const ckpt_value **out)
{
    ckpt__ranks *r = m->r;
    t.first = r->part_count;
    t.count = m->group->count;
    ckpt_status status = check_axes(m, &t);
    if (status < 0 || !ckpt__grow(&r->parts, &r->part_capacity, r->part_count + t.count, sizeof *r->parts) ||
        !ckpt__grow(&r->tensors, &r->tensor_capacity, r->tensor_count + 1, sizeof *r->tensors))
        return status < 0 ? status : ckpt__ranks_no_memory(r->err);
    for (size_t i = 0; i < t.count; i++)
        r->parts[r->part_count++] = (ckpt__ranks_part){&m->group->files[i], at->values[i]->tensor};
    ckpt_value *v = ckpt__value_new(r->index->arena, CKPT_V_TENSOR);
    if (!v)
        return ckpt__ranks_no_memory(r->err);
    v->tensor = r->row_count + r->tensor_count;
    r->tensors[r->tensor_count++] = t;
    *out = v;
    return CKPT_OK;
}

static ckpt_status merge_tensors(merger *m, const place *at, const ckpt_value **out, own_entries *own)
{
    const ckpt_str path = path_of(m);
    const ckpt__ranks_name *name = ckpt__ranks_name_of(m->r, path);
    const ckpt_tensor_info *one = &m->r->index->tensors[at->values[0]->tensor].info;
    ckpt__ranks_tensor t = {.group = m->group};
    size_t other;
    bool known;
    if (name)
        t.name = *name;
    else
        t.name.own = t.name.param = t.name.shown = ckpt__arena_str(m->r->arena, path.data, path.size);
    if (!t.name.own.data)
        return ckpt__ranks_no_memory(m->r->err);
    ckpt_status status = find_shard(m, &t, one, &known);
    if (status < 0 || !known)
        return status;
    if (t.name.inside || t.shard != SIZE_MAX)
        return add_tensor(m, at, t, out);
    status = compare(m, at, &other);
    if (status < 0 || other == m->group->count) {
        *out = at->values[0];
        return status;
    }
    return is_own(m)
               ? keep_own(m, at, own)
               : not_same(m, 0, other,
                          ", and no entry of 'shard' cuts it (what each rank has for itself is listed under 'own')");
}

/* ---- dicts and lists */

/* The children of all files, by key: those of child k are values[k * files ...]. */
typedef struct children {
    const ckpt_value **keys, **values; /* heap */
    size_t count, capacity, value_capacity;
    ckpt__hash *by_key;
    ckpt__arena *texts;
} children;

static void put_key(ckpt__buf *text, const ckpt_value *key)
{
    if (key->kind == CKPT_V_STR)
        ckpt__buf_add(text, key->text.data, key->text.size);
    else if (key->kind == CKPT_V_INT)
        ckpt__buf_printf(text, "%lld", (long long)key->integer);
    else
        ckpt__value_repr(text, key);
}

static ckpt_status add_child(const merger *m, children *c, size_t file, const ckpt_value *key, const ckpt_value *value)
{
    const size_t files = m->group->count;
    ckpt__buf text = {0};
    size_t found;
    ckpt__buf_printf(&text, "%d:", (int)key->kind);
    put_key(&text, key);
    bool good = !text.failed;
    if (good && !ckpt__hash_get(c->by_key, text.data, text.size, &found)) {
        char *own = ckpt__arena_copy(c->texts, text.data, text.size);
        found = c->count;
        good = own && ckpt__grow(&c->keys, &c->capacity, found + 1, sizeof *c->keys) &&
               ckpt__grow(&c->values, &c->value_capacity, (found + 1) * files, sizeof *c->values) &&
               ckpt__hash_put(c->by_key, own, text.size, found, NULL) >= 0;
        if (good) {
            c->keys[c->count++] = key;
            memset(c->values + found * files, 0, files * sizeof *c->values);
        }
    }
    if (good && !c->values[found * files + file])
        c->values[found * files + file] = value;
    ckpt__buf_free(&text);
    return good ? CKPT_OK : ckpt__ranks_no_memory(m->r->err);
}

static ckpt_status list_children(const merger *m, const place *at, children *c)
{
    ckpt_status status = CKPT_OK;
    c->by_key = ckpt__hash_new(64);
    c->texts = ckpt__arena_new(0);
    if (!c->by_key || !c->texts)
        return ckpt__ranks_no_memory(m->r->err);
    for (size_t i = 0; status == CKPT_OK && i < m->group->count; i++) {
        const ckpt_value *v = at->values[i];
        for (size_t k = 0; status == CKPT_OK && v && k < v->entry_count; k++)
            status = add_child(m, c, i, v->entries[k].key, v->entries[k].value);
        for (size_t k = 0; status == CKPT_OK && v && k < v->item_count; k++) {
            const ckpt_value *key = ckpt__value_int(m->r->index->arena, (int64_t)k);
            status = key ? add_child(m, c, i, key, v->items[k]) : ckpt__ranks_no_memory(m->r->err);
        }
    }
    return status;
}

static int is_tensor(void *ctx, const ckpt_visit *visit)
{
    (void)ctx;
    return visit->value->kind == CKPT_V_TENSOR;
}

/* All files have the same keys, but for values that one rank alone keeps (the first one's settings, say). */
static ckpt_status check_keys(merger *m, const place *at, bool *fits)
{
    size_t has = 0, lacks = m->group->count;
    *fits = true;
    for (size_t i = m->group->count; i-- > 0;)
        if (at->values[i])
            has = i;
        else
            lacks = i;
    if (lacks == m->group->count || is_own(m))
        return CKPT_OK;
    const int found = ckpt_value_walk(at->values[has], 0, is_tensor, NULL, m->r->err);
    if (found < 0)
        return (ckpt_status)found;
    *fits = found == 0;
    return *fits ? CKPT_OK
                 : ckpt__ranks_wrong(
                       m->r, m->group->files[lacks].name, path_of(m),
                       "there is none in it, and there is one in %s: all ranks have the same tensors in the same "
                       "places",
                       m->group->files[has].name);
}

/* What each rank has for itself below a place becomes a dict under the place's key. */
static ckpt_status gather_own(const merger *m, const place *at, const own_entries *below, own_entries *own)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->group->count; i++) {
        const ckpt_value *dict = NULL;
        if (!below[i].count)
            continue;
        if (!at->key) { /* the root of the files: its entries are the rank's own */
            for (size_t k = 0; status == CKPT_OK && k < below[i].count; k++)
                status = put_own(&own[i], below[i].entries[k].key, below[i].entries[k].value, m->r->err);
            continue;
        }
        dict = ckpt__value_dict(m->r->index->arena, below[i].entries, below[i].count);
        status = dict ? put_own(&own[i], at->key, dict, m->r->err) : ckpt__ranks_no_memory(m->r->err);
    }
    return status;
}

static ckpt_value *made_of(const merger *m, const ckpt_value *like, const ckpt_entry *entries, size_t count)
{
    ckpt__arena *a = m->r->index->arena;
    ckpt_value *v = NULL;
    if (like->kind == CKPT_V_DICT) {
        if ((v = ckpt__value_dict(a, entries, count))) {
            v->class_name = like->class_name;
            v->state = like->state;
            v->origin = NULL;
        }
        return v;
    }
    const ckpt_value **items = ckpt__arena_array(a, count + 1, sizeof *items);
    for (size_t i = 0; items && i < count; i++)
        items[i] = entries[i].value;
    return items ? ckpt__value_list(a, like->kind, items, count) : NULL;
}

static ckpt_status merge_child(merger *m, const place *child, ckpt_entry *out, own_entries *below)
{
    const size_t before = m->path.size;
    bool fits;
    if (before || child->depth > 1)
        ckpt__buf_char(&m->path, '.');
    put_key(&m->path, child->key);
    ckpt_status status = m->path.failed ? ckpt__ranks_no_memory(m->r->err) : check_keys(m, child, &fits);
    *out = (ckpt_entry){child->key, NULL};
    if (status == CKPT_OK && fits)
        status = merge(m, child, &out->value, below);
    m->path.size = before;
    return status;
}

static ckpt_status merge_children(merger *m, const place *at, const ckpt_value **out, own_entries *own)
{
    const size_t files = m->group->count;
    const ckpt_value *like = at->values[first_of(m, at)];
    const bool list = like->kind != CKPT_V_DICT;
    children c = {0};
    ckpt_status status = list_children(m, at, &c);
    ckpt_entry *entries = calloc(c.count + 1, sizeof *entries);
    own_entries *below = calloc(files + 1, sizeof *below);
    size_t count = 0;
    if (status == CKPT_OK && (!entries || !below))
        status = ckpt__ranks_no_memory(m->r->err);
    for (size_t k = 0; status == CKPT_OK && k < c.count; k++) {
        const place child = {.values = c.values + k * files, .key = c.keys[k], .depth = at->depth + 1};
        status = merge_child(m, &child, &entries[count], below);
        if (status == CKPT_OK && !entries[count].value && list)
            entries[count].value = ckpt__value_new(m->r->index->arena, CKPT_V_NONE);
        if (status == CKPT_OK && !entries[count].value && list)
            status = ckpt__ranks_no_memory(m->r->err);
        count += status == CKPT_OK && entries[count].value;
    }
    if (status == CKPT_OK && !(*out = made_of(m, like, entries, count)))
        status = ckpt__ranks_no_memory(m->r->err);
    if (status == CKPT_OK)
        status = gather_own(m, at, below, own);
    for (size_t i = 0; below && i < files; i++)
        free(below[i].entries);
    free(below);
    free(entries);
    free(c.keys);
    free(c.values);
    ckpt__hash_free(c.by_key);
    ckpt__arena_free(c.texts);
    return status;
}

static bool same_length(const merger *m, const place *at)
{
    const ckpt_value *like = at->values[first_of(m, at)];
    for (size_t i = 0; i < m->group->count; i++)
        if (at->values[i] && at->values[i]->item_count != like->item_count)
            return false;
    return true;
}

/* *out NULL: nothing of it is common to all ranks. */
static ckpt_status merge(merger *m, const place *at, const ckpt_value **out, own_entries *own)
{
    const bool tensors = all_are(m, at, CKPT_V_TENSOR), dicts = all_are(m, at, CKPT_V_DICT),
               lists = (all_are(m, at, CKPT_V_LIST) || all_are(m, at, CKPT_V_TUPLE)) && same_length(m, at);
    *out = NULL;
    if (tensors && at->values[0] && first_of(m, at) == 0) {
        size_t i = 0;
        while (i < m->group->count && at->values[i])
            i++;
        if (i == m->group->count)
            return merge_tensors(m, at, out, own);
    }
    if ((dicts || lists) && at->depth == DEEPEST)
        return ckpt__ranks_wrong(m->r, m->group->files[0].name, path_of(m), "it lies deeper than %d dicts and lists",
                                 (int)DEEPEST);
    if (dicts || lists)
        return merge_children(m, at, out, own);
    return merge_value(m, at, out, own);
}

/* ---- all groups */

static ckpt_status merge_group(ckpt__ranks *r, const ckpt__ranks_group *g, const ckpt_value **out, own_entries *own)
{
    merger m = {.r = r, .group = g};
    const ckpt_value **values = calloc(g->count + 1, sizeof *values);
    const ckpt_str key = g->form->key;
    place at = {.values = values};
    ckpt_status status = values ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    if (status == CKPT_OK && key.data) {
        at.depth = 1;
        at.key = ckpt__value_str(r->index->arena, key.data, key.size);
        ckpt__buf_add(&m.path, key.data, key.size);
        if (!at.key || m.path.failed)
            status = ckpt__ranks_no_memory(r->err);
    }
    for (size_t i = 0; values && i < g->count; i++)
        values[i] = g->files[i].root;
    if (status == CKPT_OK)
        status = merge(&m, &at, out, own);
    ckpt__buf_free(&m.path);
    free(values);
    return status;
}

/* What file i of a group has for itself is its rank's. */
static ckpt_status put_ranks(ckpt__ranks *r, const ckpt__ranks_group *g, own_entries *own, own_entries *by_rank)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < g->count; i++)
        for (size_t k = 0; status == CKPT_OK && k < own[i].count; k++)
            status = put_own(&by_rank[g->files[i].rank], own[i].entries[k].key, own[i].entries[k].value, r->err);
    for (size_t i = 0; i < g->count; i++)
        free(own[i].entries);
    return status;
}

static ckpt_status make_root(ckpt__ranks *r, own_entries *all, const own_entries *by_rank)
{
    const uint32_t world = ckpt__rank_mesh_world(&r->mesh);
    ckpt_status status = CKPT_OK;
    for (uint32_t rank = 0; status == CKPT_OK && rank < world; rank++) {
        char name[40];
        if (!by_rank[rank].count)
            continue;
        const size_t n = (size_t)snprintf(name, sizeof name, "rank_%u", rank);
        const ckpt_value *key = ckpt__value_str(r->index->arena, name, n);
        const ckpt_value *dict = ckpt__value_dict(r->index->arena, by_rank[rank].entries, by_rank[rank].count);
        status = key && dict ? put_own(all, key, dict, r->err) : ckpt__ranks_no_memory(r->err);
    }
    if (status == CKPT_OK && !(r->index->root = ckpt__value_dict(r->index->arena, all->entries, all->count)))
        status = ckpt__ranks_no_memory(r->err);
    return status;
}

ckpt_status ckpt__ranks_merge(ckpt__ranks *r)
{
    const uint32_t world = ckpt__rank_mesh_world(&r->mesh);
    own_entries *by_rank = calloc((size_t)world + 1, sizeof *by_rank), all = {NULL, 0, 0};
    ckpt_status status = by_rank ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++) {
        const ckpt__ranks_group *group = &r->groups[g];
        own_entries *own = calloc(group->count + 1, sizeof *own);
        const ckpt_value *merged = NULL, *key = NULL;
        status = own ? merge_group(r, group, &merged, own) : ckpt__ranks_no_memory(r->err);
        if (status == CKPT_OK && merged && group->form->key.data) {
            key = ckpt__value_str(r->index->arena, group->form->key.data, group->form->key.size);
            status = key ? put_own(&all, key, merged, r->err) : ckpt__ranks_no_memory(r->err);
        } else if (status == CKPT_OK && (!merged || merged->kind != CKPT_V_DICT))
            status = ckpt__fail(r->err, CKPT_E_UNSUPPORTED, group->files[0].name, "a dict is expected at its top");
        for (size_t k = 0; status == CKPT_OK && !group->form->key.data && k < merged->entry_count; k++)
            status = put_own(&all, merged->entries[k].key, merged->entries[k].value, r->err);
        ckpt_status put = own ? put_ranks(r, group, own, by_rank) : CKPT_OK;
        status = status == CKPT_OK ? put : status;
        free(own);
    }
    if (status == CKPT_OK)
        status = make_root(r, &all, by_rank);
    for (uint32_t i = 0; by_rank && i < world; i++)
        free(by_rank[i].entries);
    free(by_rank);
    free(all.entries);
    return status;
}
