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

static bool is_state(const ckpt__rank_finder *f, ckpt_str name, const ckpt_value *v, ckpt__rank_kind *kind)
{
    if (ckpt__rank_kind_of(name, kind))
        return true;
    *kind = CKPT__OF_GENERATORS;
    return v->kind == CKPT_V_TENSOR && v->tensor < f->index->tensor_count &&
           f->index->tensors[v->tensor].info.role == CKPT_ROLE_RNG;
}

/* The key names the rank, and the path says what it is: rng.rank_3. Or it has a dict of several: rank_3.rng, rank_3.loader. */
static bool look_at_key(ckpt__rank_finder *f, const ckpt_value *dict, ckpt_str path, size_t depth, size_t i)
{
    const ckpt_entry *e = &dict->entries[i];
    size_t begin, end;
    ckpt__rank_kind kind;
    int64_t rank = e->key->kind == CKPT_V_STR ? ckpt__rank_digits(e->key->text, &begin, &end) : -1;
    if (rank < 0)
        return true;
    ckpt_str name = join(f, path, e->key->text);
    if (!name.data)
        return false;
    begin += name.size - e->key->text.size;
    end += name.size - e->key->text.size;
    if (is_state(f, name, e->value, &kind))
        return add_key(f, rank, name, begin, end, depth, dict, i, kind);
    bool ok = true;
    for (size_t k = 0; ok && !f->own_name && e->value->kind == CKPT_V_DICT && k < e->value->entry_count; k++) {
        const ckpt_entry *below = &e->value->entries[k];
        if (below->key->kind != CKPT_V_STR)
            continue;
        ckpt_str inner = join(f, name, below->key->text);
        ok = inner.data && (!is_state(f, inner, below->value, &kind) ||
                            add_key(f, rank, inner, begin, end, depth + 1, e->value, k, kind));
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

/* The state of the CPU's generator has over a thousand bytes, that of a GPU's 16: a list of tensors is one of ranks where all are as the
 * CPU's, of which a process has one. */
static bool is_of_cpu(const ckpt__index *index, const ckpt_value *v)
{
    const ckpt_tensor_info *t = &index->tensors[v->tensor].info;
    return t->dtype == CKPT_U8 && t->ndim == 1 && t->shape && t->shape[0] > 1000;
}

static bool look_at_list(ckpt__rank_finder *f, const ckpt_value *v, ckpt_str path, size_t depth)
{
    bool ranks = v->kind == CKPT_V_LIST && v->item_count > 1;
    ckpt__rank_kind kind = CKPT__OF_DATA;
    if (ranks && !ckpt__is_sampler_list(v, path)) {
        kind = CKPT__OF_GENERATORS;
        ranks = ckpt__is_rng_list(f->index, v, path) && !ckpt__is_of_gpu(path);
        for (size_t i = 0; ranks && i < v->item_count; i++)
            ranks = v->items[i]->kind == v->items[0]->kind &&
                    (v->items[i]->kind != CKPT_V_TENSOR || is_of_cpu(f->index, v->items[i]));
    }
    return !ranks || ckpt__rank_add_items(f, path, depth, v, kind);
}

/* ---- all dicts and lists, each once */

typedef struct place {
    const ckpt_value *value;
    ckpt_str path;
    size_t depth;
} place;

typedef struct looking {
    ckpt__rank_finder *f;
    place *pending;
    size_t count, capacity; /* heap */
} looking;

/* What is no part of a rank's state, and may have some. */
static bool push(looking *l, const ckpt_value *v, ckpt_str path, size_t depth)
{
    bool dict = v->kind == CKPT_V_DICT && v->entry_count > 0 && !ckpt__is_optimizer(v);
    if ((!dict && !(ckpt__is_list(v) && v->item_count > 1)) || depth >= CKPT__RANK_DEPTH)
        return true;
    int added = ckpt__pointers_add(&l->f->seen, v);
    if (added <= 0)
        return added == 0;
    if (!ckpt__grow(&l->pending, &l->capacity, l->count + 1, sizeof *l->pending))
        return false;
    l->pending[l->count++] = (place){v, path, depth};
    return true;
}

static bool look_into(looking *l, place at)
{
    const ckpt_value *v = at.value;
    bool ok = true;
    for (size_t i = 0; ok && v->kind == CKPT_V_DICT && i < v->entry_count; i++)
        ok = look_at_key(l->f, v, at.path, at.depth, i);
    for (size_t i = v->entry_count; ok && v->kind == CKPT_V_DICT && i-- > 0;) {
        const ckpt_entry *e = &v->entries[i];
        if (e->key->kind != CKPT_V_STR || (e->value->kind != CKPT_V_DICT && !ckpt__is_list(e->value)) ||
            ckpt__pointers_get(&l->f->seen, e->value, NULL))
            continue;
        ckpt_str path = join(l->f, at.path, e->key->text);
        ok = path.data && push(l, e->value, path, at.depth + 1);
    }
    return ok && (v->kind == CKPT_V_DICT || look_at_list(l->f, v, at.path, at.depth));
}

bool ckpt__rank_look_below(ckpt__rank_finder *f)
{
    looking l = {.f = f};
    bool ok = !f->index->root || push(&l, f->index->root, (ckpt_str){"", 0}, 0);
    while (ok && l.count > 0)
        ok = look_into(&l, l.pending[--l.count]);
    free(l.pending);
    return ok;
}
