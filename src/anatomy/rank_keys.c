/* anatomy/rank_keys.c - what a checkpoint has once for each rank, below its root: entries whose keys name the rank, and lists with an
 * item for each. The names are the program's own, so the path has to say what it is. */
#include "anatomy/kinds.h"
#include "anatomy/rank_find.h"
#include "model/training.h"

#include <stdio.h>
#include <stdlib.h>

int64_t ckpt__rank_digits(ckpt_str name, size_t *begin, size_t *end)
{
    for (size_t i = name.data ? name.size : 0; i-- > 0;) {
        size_t at = i + 4;
        int64_t rank = 0;
        if (name.size - i < 5 || memcmp(name.data + i, "rank", 4) != 0)
            continue;
        at += at < name.size && (name.data[at] == '-' || name.data[at] == '_');
        *begin = at;
        for (; at < name.size && name.data[at] >= '0' && name.data[at] <= '9' && at - *begin < 9; at++)
            rank = rank * 10 + (name.data[at] - '0');
        *end = at;
        if (at > *begin)
            return rank;
    }
    return -1;
}

/* ---- keys */

/* {"dp_rank_0": ..., "world_size": 2} */
static size_t world_of(const ckpt_value *dict)
{
    for (size_t i = 0; i < dict->entry_count; i++) {
        const ckpt_entry *e = &dict->entries[i];
        if (e->key->kind == CKPT_V_STR && ckpt__str_is(e->key->text, "world_size") && e->value->kind == CKPT_V_INT)
            return i;
    }
    return SIZE_MAX;
}

static ckpt_str join(const ckpt__rank_finder *f, ckpt_str path, ckpt_str key)
{
    return path.size ? ckpt__arena_join(f->arena, path, ckpt__s("."), key) : key;
}

static bool is_rng(const ckpt__index *index, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && v->tensor < index->tensor_count &&
           index->tensors[v->tensor].info.role == CKPT_ROLE_RNG;
}

/* Tensors of models and optimizers are never states of ranks, whatever they are called: model.random_features.rank_3. */
static int on_trained(void *ctx, const ckpt_visit *visit)
{
    const ckpt__index *index = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= index->tensor_count)
        return 0;
    const ckpt_role role = index->tensors[v->tensor].info.role;
    return role != CKPT_ROLE_RNG && role != CKPT_ROLE_OTHER && role != CKPT_ROLE_NONE;
}

/* Does the path say what it is, and is it no part of what is trained? A tensor of a generator has that role. */
static bool is_state(const ckpt__rank_finder *f, ckpt_str name, const ckpt_value *v, ckpt__rank_kind *kind)
{
    const bool named = ckpt__rank_kind_of(name, kind);
    if (is_rng(f->index, v)) {
        *kind = named ? *kind : CKPT__OF_GENERATORS;
        return true;
    }
    if (!named || (v->kind == CKPT_V_TENSOR && *kind == CKPT__OF_GENERATORS))
        return false;
    return ckpt_value_walk(v, 0, on_trained, (void *)(uintptr_t)f->index, NULL) == 0;
}

/* `depth` keys lead to the dict. [begin, end) of the name are the digits of the rank. */
static bool add_key(ckpt__rank_finder *f, int64_t rank, ckpt_str name, size_t begin, size_t end, size_t depth,
                    const ckpt_value *dict, size_t i, ckpt__rank_kind kind)
{
    ckpt__rank_state like = {.kind = kind, .form = CKPT__IN_KEYS, .world = SIZE_MAX};
    ckpt__rank_part part = {
        .rank = rank, .name = name, .depth = depth + 1, .holder = dict, .value = dict->entries[i].value, .at = i};
    like.name = ckpt__arena_join(f->arena, (ckpt_str){name.data, begin}, ckpt__s("*"),
                                 (ckpt_str){name.data + end, name.size - end});
    like.world = kind == CKPT__OF_DATA ? world_of(dict) : SIZE_MAX;
    return like.name.data && ckpt__rank_add(f, like, part);
}

/* ---- dicts and lists, each once */

/* A value that the search has gone into. Its full name is made when somebody asks: a long key would otherwise be copied into the names of
 * all values below it. */
typedef struct place {
    const ckpt_value *value;
    ckpt_str key; /* borrowed from the tree */
    size_t above; /* number of the place that has it; of the root 0 */
    size_t depth; /* keys from the root */
} place;

typedef struct looking {
    ckpt__rank_finder *f;
    place *places;
    size_t count, capacity; /* heap */
} looking;

/* data NULL: no memory, or (size 1) it is longer than the name of a state is. */
static ckpt_str path_of(const looking *l, const place *at)
{
    enum { LONGEST = 1000 };
    ckpt_str keys[CKPT__RANK_DEPTH + 1];
    size_t n = 0, bytes = 0;
    for (const place *p = at; p->depth > 0; p = &l->places[p->above]) {
        keys[n++] = p->key;
        bytes += p->key.size + 1;
    }
    if (bytes > LONGEST)
        return (ckpt_str){NULL, 1};
    ckpt_str path = {"", 0};
    while (n-- > 0 && path.data)
        path = join(l->f, path, keys[n]);
    return path;
}

/* The key names the rank, and the path says what it is: rng.rank_3. Or it has a dict of several: rank_3.rng, rank_3.loader. */
static bool look_at_key(const looking *l, const place *at, size_t i)
{
    ckpt__rank_finder *f = l->f;
    const ckpt_value *dict = at->value;
    const ckpt_entry *e = &dict->entries[i];
    size_t begin, end;
    ckpt__rank_kind kind;
    int64_t rank = e->key->kind == CKPT_V_STR ? ckpt__rank_digits(e->key->text, &begin, &end) : -1;
    if (rank < 0)
        return true;
    const ckpt_str path = path_of(l, at);
    if (!path.data)
        return path.size == 1;
    ckpt_str name = join(f, path, e->key->text);
    if (!name.data)
        return false;
    begin += name.size - e->key->text.size;
    end += name.size - e->key->text.size;
    if (is_state(f, name, e->value, &kind))
        return add_key(f, rank, name, begin, end, at->depth, dict, i, kind);
    bool ok = true;
    for (size_t k = 0; ok && !f->own_name && e->value->kind == CKPT_V_DICT && k < e->value->entry_count; k++) {
        const ckpt_entry *below = &e->value->entries[k];
        if (below->key->kind != CKPT_V_STR || below->key->text.size > 200)
            continue;
        ckpt_str inner = join(f, name, below->key->text);
        ok = inner.data && (!is_state(f, inner, below->value, &kind) ||
                            add_key(f, rank, inner, begin, end, at->depth + 1, e->value, k, kind));
    }
    return ok;
}

/* ---- lists */

bool ckpt__rank_add_items(ckpt__rank_finder *f, ckpt_str path, size_t depth, const ckpt_value *list,
                          ckpt__rank_kind kind)
{
    ckpt__rank_state like = {.kind = kind, .form = CKPT__IN_ITEMS, .name = path, .world = SIZE_MAX};
    bool ok = ckpt__pointers_add(&f->seen, list) >= 0;
    for (size_t i = 0; ok && i < list->item_count; i++) {
        ckpt__rank_part part = {
            .rank = (int64_t)i, .depth = depth + 1, .holder = list, .value = list->items[i], .at = i};
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        part.name = join(f, path, ckpt__arena_str(f->arena, number, strlen(number)));
        ok = part.name.data && ckpt__rank_add(f, like, part);
    }
    return ok;
}

/* The state of the CPU's generator has over a thousand bytes, that of a GPU's 16: of the first a process has one, of the others one a
 * GPU. */
static bool is_of_cpu(const ckpt__index *index, const ckpt_value *v)
{
    const ckpt_tensor_info *t = is_rng(index, v) ? &index->tensors[v->tensor].info : NULL;
    return t && t->dtype == CKPT_U8 && t->ndim == 1 && t->shape && t->shape[0] > 1000;
}

/* One, or a dict that has one: a list of such is one of ranks. Other dicts may be anything (random_transforms: [{...}, ...]). */
static bool has_cpu(const ckpt__index *index, const ckpt_value *v)
{
    bool has = is_of_cpu(index, v);
    for (size_t i = 0; !has && v->kind == CKPT_V_DICT && i < v->entry_count; i++)
        has = is_of_cpu(index, v->entries[i].value);
    return has;
}

static bool look_at_list(const looking *l, const place *at)
{
    const ckpt__index *index = l->f->index;
    const ckpt_value *v = at->value;
    const bool dicts = v->kind == CKPT_V_LIST && v->item_count > 1 && v->items[0]->kind == CKPT_V_DICT;
    bool states = v->kind == CKPT_V_LIST && v->item_count > 1 && has_cpu(index, v->items[0]);
    if (!states && !(dicts && ckpt__str_holds_nocase(at->key, "state"))) /* sampler_states */
        return true;
    const ckpt_str path = path_of(l, at);
    if (!path.data)
        return path.size == 1;
    if (!states)
        return !ckpt__is_sampler_list(v, at->key) || ckpt__rank_add_items(l->f, path, at->depth, v, CKPT__OF_DATA);
    states = ckpt__is_rng_list(index, v, path) && !ckpt__is_of_gpu(path);
    for (size_t i = 0; states && i < v->item_count; i++)
        states = v->items[i]->kind == v->items[0]->kind && has_cpu(index, v->items[i]);
    return !states || ckpt__rank_add_items(l->f, path, at->depth, v, CKPT__OF_GENERATORS);
}

/* ---- all of them */

/* A container that is not itself a rank's state, but may hold some. */
static bool add_place(looking *l, const ckpt_value *v, ckpt_str key, size_t above, size_t depth)
{
    bool dict = v->kind == CKPT_V_DICT && v->entry_count > 0 && !ckpt__is_optimizer(v);
    if ((!dict && !(v->kind == CKPT_V_LIST && v->item_count > 1)) || depth >= CKPT__RANK_DEPTH)
        return true;
    int added = ckpt__pointers_add(&l->f->seen, v);
    if (added <= 0)
        return added == 0;
    if (!ckpt__grow(&l->places, &l->capacity, l->count + 1, sizeof *l->places))
        return false;
    l->places[l->count++] = (place){v, key, above, depth};
    return true;
}

static bool look_into(looking *l, size_t number)
{
    const place at = l->places[number];
    bool ok = at.value->kind == CKPT_V_DICT || look_at_list(l, &at);
    for (size_t i = 0; ok && at.value->kind == CKPT_V_DICT && i < at.value->entry_count; i++)
        ok = look_at_key(l, &at, i);
    for (size_t i = 0; ok && at.value->kind == CKPT_V_DICT && i < at.value->entry_count; i++) {
        const ckpt_entry *e = &at.value->entries[i];
        if (e->key->kind == CKPT_V_STR)
            ok = add_place(l, e->value, e->key->text, number, at.depth + 1);
    }
    return ok;
}

bool ckpt__rank_look_below(ckpt__rank_finder *f)
{
    looking l = {.f = f};
    bool ok = !f->index->root || add_place(&l, f->index->root, (ckpt_str){"", 0}, 0, 0);
    for (size_t i = 0; ok && i < l.count; i++)
        ok = look_into(&l, i);
    free(l.places);
    return ok;
}
