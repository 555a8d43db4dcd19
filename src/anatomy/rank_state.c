/* anatomy/rank_state.c - see rank_state.h: what the root of a checkpoint and the names of its tensors tell. What lies deeper is found
 * in rank_keys.c.
 *
 * The names are those that the programs write [accelerate/checkpointing.py; transformers/trainer.py, _save_rng_state; Megatron-LM,
 * checkpointing.py, get_rng_state; megatron/core/rerun_state_machine.py; llm.c, train_gpt2.cu, save_state; torchtitan, dataloader.py;
 * verl/utils/checkpoint/fsdp_checkpoint_manager.py]. */
#include "anatomy/rank_state.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/rank_find.h"
#include "format/table.h"

/* ---- names */

int64_t ckpt__rank_in(ckpt_str name)
{
    size_t begin, end;
    return ckpt__rank_digits(name, &begin, &end);
}

int64_t ckpt__number_between(ckpt_str name, const char *prefix, const char *suffix)
{
    size_t a = strlen(prefix), b = strlen(suffix);
    int64_t n;
    if (!name.data || name.size <= a + b || memcmp(name.data, prefix, a) != 0 ||
        memcmp(name.data + name.size - b, suffix, b) != 0 || !ckpt__parse_i64(name.data + a, name.size - a - b, &n) ||
        n < 0)
        return -1;
    return n;
}

bool ckpt__rank_kind_of(ckpt_str path, ckpt__rank_kind *kind)
{
    static const char *const generators[] = {"rng", "random"}, *const data[] = {"loader", "sampler", "data_iter"};
    bool is = false;
    *kind = CKPT__OF_OTHER;
    for (size_t i = 0; i < sizeof data / sizeof *data && !is; i++)
        is = ckpt__str_holds_nocase(path, data[i]);
    if (is)
        *kind = CKPT__OF_DATA; /* a generator of a sampler is the sampler's */
    for (size_t i = 0; i < sizeof generators / sizeof *generators && !is; i++)
        if ((is = ckpt__str_holds_nocase(path, generators[i])))
            *kind = CKPT__OF_GENERATORS;
    return is;
}

/* ---- states and parts */

bool ckpt__rank_add(ckpt__rank_finder *f, ckpt__rank_state like, ckpt__rank_part part)
{
    ckpt__rank_states *s = f->out;
    size_t number = s->count;
    ckpt_str name = ckpt__arena_str(f->arena, like.name.data, like.name.size);
    int put = name.data ? ckpt__hash_put(f->by_name, name.data, name.size, s->count, &number) : -1;
    if (put < 0 || !ckpt__grow(&s->states, &s->capacity, s->count + 1, sizeof *s->states) ||
        !ckpt__grow(&s->parts, &s->part_capacity, s->part_count + 1, sizeof *s->parts))
        return false;
    if (put > 0) {
        like.name = name;
        like.count = 0;
        s->states[s->count++] = like;
    }
    ckpt__rank_state *state = &s->states[number];
    part.state = number;
    state->ranks = part.rank + 1 > state->ranks ? part.rank + 1 : state->ranks;
    if (state->form == like.form)
        s->parts[s->part_count++] = part;
    return !part.value || ckpt__pointers_add(&f->seen, part.value) >= 0;
}

/* The root's entry i. */
static ckpt__rank_part entry_of(const ckpt__rank_finder *f, int64_t rank, size_t i)
{
    const ckpt_entry *e = &f->index->root->entries[i];
    return (ckpt__rank_part){
        .rank = rank, .name = e->key->text, .depth = 1, .holder = f->index->root, .value = e->value, .at = i};
}

/* ---- files */

const ckpt__rank_file ckpt__rank_files[CKPT__RANK_FILES] = {
    [CKPT__RANDOM_STATES] = {"random_states_", ".pkl", "random_states_*.pkl", "random_states_0.pkl"},
    [CKPT__RNG_STATES] = {"rng_state_", ".pth", "rng_state_*.pth", "rng_state.pth"},
};

static bool look_at_file(ckpt__rank_finder *f, ckpt_str key, size_t i)
{
    for (size_t k = 0; k < CKPT__RANK_FILES; k++) {
        const ckpt__rank_file *file = &ckpt__rank_files[k];
        int64_t rank = ckpt__number_between(key, file->prefix, file->suffix);
        if (rank < 0)
            continue;
        ckpt__rank_state like = {.kind = CKPT__OF_GENERATORS,
                                 .form = CKPT__IN_FILES_OF_RANKS,
                                 .name = ckpt__s(file->name),
                                 .alone = ckpt__s(file->alone),
                                 .world = SIZE_MAX,
                                 .several = k == CKPT__RNG_STATES}; /* one process has another name for it */
        return ckpt__rank_add(f, like, entry_of(f, rank, i));
    }
    if (!ckpt__str_is(key, "dl_state_dict.bin") && ckpt__number_between(key, "dl_state_dict_", ".bin") < 0)
        return true;
    ckpt__rank_state like = {.kind = CKPT__OF_DATA, .form = CKPT__IN_MAIN, .name = key, .world = SIZE_MAX};
    return ckpt__rank_add(f, like, entry_of(f, 0, i));
}

/* ---- Megatron: objects of torch_dist, which say their place in a grid of pipeline and tensor parallel ranks, or of all ranks */

/* The place that a text names in a grid: "0.1_2.2" is place 1 of 4. *axes: how many numbers stand on each side of the "_". -1: the text
 * names no place. */
static int64_t place_in_grid(ckpt_str text, size_t *axes)
{
    enum { AXES = 8 };
    int64_t numbers[2][AXES], place = 0;
    size_t counts[2] = {0, 0}, begin = 0, side = 0;
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && text.data[i] != '.' && text.data[i] != '_')
            continue;
        if (counts[side] == AXES || !ckpt__parse_i64(text.data + begin, i - begin, &numbers[side][counts[side]]))
            return -1;
        counts[side]++;
        begin = i + 1;
        if (i < text.size && text.data[i] == '_' && ++side > 1)
            return -1;
    }
    *axes = counts[0];
    for (size_t k = 0; k < counts[0]; k++) {
        int64_t at = numbers[0][k], of = counts[0] == counts[1] ? numbers[1][k] : 0;
        if (at < 0 || at >= of || of > (1 << 20) || place > (1 << 20))
            return -1;
        place = place * of + at;
    }
    return place;
}

static bool look_at_grid(ckpt__rank_finder *f, ckpt_str key, size_t i)
{
    static const struct {
        const char *head;
        ckpt__rank_kind kind;
    } objects[] = {{"rng_state/shard_", CKPT__OF_GENERATORS}, {"rerun_state_machine_state/shard_", CKPT__OF_DATA}};
    for (size_t k = 0; k < sizeof objects / sizeof *objects; k++) {
        const size_t n = strlen(objects[k].head);
        size_t axes = 0;
        if (!ckpt__str_begins_more(key, objects[k].head))
            continue;
        int64_t rank = place_in_grid((ckpt_str){key.data + n, key.size - n}, &axes);
        if (rank < 0)
            return true;
        char name[80], alone[120];
        size_t at = (size_t)snprintf(alone, sizeof alone, "%s", objects[k].head);
        for (int side = 0; side < 2; side++)
            for (size_t a = 0; a < axes; a++)
                at += (size_t)snprintf(alone + at, sizeof alone - at, "%s%d", a ? "." : side ? "_" : "", side);
        snprintf(name, sizeof name, "%s*", objects[k].head);
        ckpt__rank_state like = {.kind = objects[k].kind,
                                 .form = CKPT__IN_GRID,
                                 .name = ckpt__s(name),
                                 .alone = ckpt__arena_str(f->arena, alone, at),
                                 .world = SIZE_MAX};
        return like.alone.data && ckpt__rank_add(f, like, entry_of(f, rank, i));
    }
    return true;
}

/* ---- Megatron: a folder of each model parallel rank, and in it an item of each data parallel one */

static bool is_folder_key(ckpt_str key)
{
    return ckpt__str_begins_more(key, "mp_rank_");
}

/* mp_rank_00_000: of the first tensor and pipeline parallel rank. */
static bool is_first_folder(ckpt_str key)
{
    for (size_t i = strlen("mp_rank_"); i < key.size; i++)
        if (key.data[i] != '0' && key.data[i] != '_')
            return false;
    return true;
}

/* They come in the order of the ranks; where the first one has none, none is of rank 0. */
static bool look_at_folders(ckpt__rank_finder *f, ckpt_str key, const ckpt_value *v)
{
    bool state = ckpt__str_is(key, "rng_state"), machine = ckpt__str_is(key, "rerun_state_machine");
    ckpt__rank_state like = {
        .kind = state ? CKPT__OF_GENERATORS : CKPT__OF_DATA, .form = CKPT__IN_FOLDERS, .name = key, .world = SIZE_MAX};
    bool all = (state || machine) && v->kind == CKPT_V_DICT && v->entry_count > 0, ok = true;
    for (size_t i = 0; all && i < v->entry_count; i++)
        all = v->entries[i].key->kind == CKPT_V_STR && is_folder_key(v->entries[i].key->text);
    if (all && ckpt__pointers_add(&f->seen, v) < 0)
        return false;
    for (size_t i = 0; all && ok && i < v->entry_count; i++) {
        const int64_t rank = (int64_t)i + !is_first_folder(v->entries[0].key->text);
        ckpt__rank_part part = {.rank = rank, .depth = 2, .holder = v, .value = v->entries[i].value, .at = i};
        part.name = ckpt__arena_join(f->arena, key, ckpt__s("."), v->entries[i].key->text);
        ok = part.name.data && ckpt__rank_add(f, like, part);
    }
    if (all || !state || v->kind != CKPT_V_LIST || v->item_count < 2)
        return ok;
    return ckpt__rank_add_items(f, key, 1, v, CKPT__OF_GENERATORS);
}

/* ---- llm.c: a header and a shuffle of each process. What all have alike is read as one number: the place in the data is, and counts
 * batches of all processes together. In a shuffle it says nothing without that. */

static bool look_at_llmc(ckpt__rank_finder *f, ckpt_str key, size_t i)
{
    const ckpt_value *v = f->index->root->entries[i].value;
    bool states = ckpt__str_among(key, "rng_state rng_state_last_update"),
         place = ckpt__str_among(key, "current_shard_idx current_sample_idx");
    ckpt__rank_kind kind = states ? CKPT__OF_GENERATORS : CKPT__OF_DATA;
    if ((states || place) && v->kind == CKPT_V_LIST && v->item_count > 1)
        return ckpt__rank_add_items(f, key, 1, v, kind);
    ckpt__rank_state like = {
        .kind = kind, .form = f->shuffles ? CKPT__IN_COMMON : CKPT__IN_TOTAL, .name = key, .world = SIZE_MAX};
    if (ckpt__str_is(key, "world_size") && v->kind == CKPT_V_INT)
        f->out->world = i;
    return !place || ckpt__rank_add(f, like, entry_of(f, 0, i));
}

/* ---- a dict of the root for each rank, with what it has for itself */

typedef struct own_path {
    const ckpt_value *keys[CKPT__RANK_DEPTH];
    size_t count;
    ckpt_str name; /* of the rank's dict and the keys */
} own_path;

static bool add_own(ckpt__rank_finder *f, int64_t rank, const own_path *path, const ckpt_value *holder, size_t at)
{
    ckpt__rank_state like = {.form = CKPT__IN_OWN, .world = SIZE_MAX};
    ckpt_str inner = {path->name.data + f->own_head, path->name.size - f->own_head};
    ckpt__rank_part part = {.rank = rank,
                            .name = path->name,
                            .depth = path->count + 1,
                            .holder = holder,
                            .value = holder->entries[at].value,
                            .at = at};
    part.keys = ckpt__arena_array(f->arena, path->count, sizeof *part.keys);
    like.name = ckpt__arena_join(f->arena, ckpt__s(f->own_name), ckpt__s("."), inner);
    if (!part.keys || !like.name.data)
        return false;
    memcpy(part.keys, path->keys, path->count * sizeof *part.keys);
    ckpt__rank_kind_of(inner, &like.kind);
    return ckpt__rank_add(f, like, part);
}

/* Looks at each value below `dict`: those that are no dicts, and the dicts whose name says what they are. An optimizer's settings are one
 * value: a group whose parameters
 * differ has its own settings. */
static bool look_at_own(ckpt__rank_finder *f, int64_t rank, ckpt_str name, const ckpt_value *dict,
                        const ckpt_value *key)
{
    struct level {
        const ckpt_value *dict;
        size_t at;
        ckpt_str name;
    } levels[CKPT__RANK_DEPTH + 1];
    size_t depth = 1;
    own_path path = {.count = 0};
    f->own_head = name.size + 1;
    if (key) {
        path.keys[path.count++] = key;
        name = ckpt__arena_join(f->arena, name, ckpt__s("."), key->text);
    }
    const size_t base = path.count;
    levels[0] = (struct level){dict, 0, name};
    while (depth > 0 && name.data) {
        struct level *l = &levels[depth - 1];
        if (l->at == l->dict->entry_count) {
            depth--;
            continue;
        }
        const size_t at = l->at++;
        const ckpt_entry *e = &l->dict->entries[at];
        ckpt__rank_kind kind;
        if (e->key->kind != CKPT_V_STR || l->name.size + e->key->text.size > 1000)
            continue; /* names of values are short; a long key above many would make long names of each */
        path.count = base + depth;
        path.keys[path.count - 1] = e->key;
        path.name = ckpt__arena_join(f->arena, l->name, ckpt__s("."), e->key->text);
        if (!path.name.data)
            return false;
        ckpt_str inner = {path.name.data + f->own_head, path.name.size - f->own_head};
        bool deeper = e->value->kind == CKPT_V_DICT && e->value->entry_count && depth + base < CKPT__RANK_DEPTH &&
                      !ckpt__str_is(inner, "optimizer") && !ckpt__rank_kind_of(inner, &kind);
        if (deeper)
            levels[depth++] = (struct level){e->value, 0, path.name};
        else if (!add_own(f, rank, &path, l->dict, at))
            return false;
    }
    return name.data != NULL;
}

/* Looks at what one rank has under its own key. Of FSDP that is extra_state, as the model and the optimizer beside it are shards; of ours it
 * is all. */
static bool look_at_rank(ckpt__rank_finder *f, ckpt_str key, const ckpt_value *v)
{
    int64_t rank;
    if (v->kind != CKPT_V_DICT)
        return true;
    if (ckpt__format_of(f->index)->sharded == CKPT__SHARDED_FSDP &&
        (rank = ckpt__number_between(key, "rank_", "")) >= 0) {
        const ckpt_entry *extra = NULL;
        for (size_t i = 0; i < v->entry_count && !extra; i++)
            if (v->entries[i].key->kind == CKPT_V_STR && ckpt__str_is(v->entries[i].key->text, "extra_state"))
                extra = &v->entries[i];
        f->own_name = "rank_*"; /* which no key of the program's is taken for */
        return !extra || extra->value->kind != CKPT_V_DICT || look_at_own(f, rank, key, extra->value, extra->key);
    }
    if (ckpt__format_of(f->index)->sharded == CKPT__SHARDED_RANKS &&
        (rank = ckpt__number_between(key, "rank_", "")) >= 0) {
        f->own_name = "rank_*";
        return look_at_own(f, rank, key, v, NULL);
    }
    bool ours = ckpt__format_of(f->index)->canonical && key.size == strlen("rank-00000");
    if (!ours || (rank = ckpt__number_between(key, "rank-", "")) < 0)
        return true;
    f->own_name = "rank-*";
    return look_at_own(f, rank, key, v, NULL);
}

/* ---- the root */

static bool look_at_root(ckpt__rank_finder *f)
{
    const ckpt_value *root = f->index->root;
    const ckpt__sharded sharded = ckpt__format_of(f->index)->sharded;
    bool ok = true;
    for (size_t i = 0; ok && root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key, *v = root->entries[i].value;
        if (key->kind != CKPT_V_STR)
            continue;
        ok = look_at_file(f, key->text, i) && look_at_grid(f, key->text, i) && look_at_rank(f, key->text, v);
        if (ok && sharded == CKPT__SHARDED_MEGATRON)
            ok = look_at_folders(f, key->text, v);
        if (ok && sharded == CKPT__SHARDED_LLMC)
            ok = look_at_llmc(f, key->text, i);
    }
    return ok;
}

/* ---- tensors without a place in the tree */

static bool is_flat(const ckpt__index *index, size_t i)
{
    return index->tensors[i].info.path.count == 0;
}

/* "loader.3.mt19937" */
static bool look_at_shuffle(ckpt__rank_finder *f, size_t i)
{
    static const char *const tails[] = {".shard_indices", ".intra_shard_indices", ".mt19937"};
    const ckpt_str name = f->index->tensors[i].info.name;
    for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
        int64_t rank = ckpt__number_between(name, "loader.", tails[k]);
        char shown[60];
        if (rank < 0)
            continue;
        snprintf(shown, sizeof shown, "loader.*%s", tails[k]);
        ckpt__rank_state like = {
            .kind = CKPT__OF_DATA, .form = CKPT__IN_NAMES, .name = ckpt__s(shown), .world = SIZE_MAX};
        f->shuffles = f->shuffles || rank > 0;
        return ckpt__rank_add(f, like, (ckpt__rank_part){.rank = rank, .name = name, .at = i});
    }
    return true;
}

/* "rank-00003.rng" of a run of several ranks, which one process calls "rng"; "rng.rank_3" as a program has named it. */
static bool look_at_flat(ckpt__rank_finder *f, size_t i)
{
    const ckpt_tensor_info *t = &f->index->tensors[i].info;
    size_t begin, end;
    int64_t rank = t->role == CKPT_ROLE_RNG ? ckpt__rank_digits(t->name, &begin, &end) : -1;
    if (rank < 0)
        return true;
    ckpt_str head = {t->name.data, begin}, tail = {t->name.data + end, t->name.size - end};
    bool ours = ckpt__str_is(head, "rank-") && end - begin == 5 && tail.size > 1 && *tail.data == '.';
    ckpt__rank_state like = {.kind = CKPT__OF_GENERATORS,
                             .form = CKPT__IN_NAMES,
                             .name = ckpt__arena_join(f->arena, head, ckpt__s("*"), tail),
                             .alone = ours ? (ckpt_str){tail.data + 1, tail.size - 1} : (ckpt_str){NULL, 0},
                             .world = SIZE_MAX};
    return like.name.data && ckpt__rank_add(f, like, (ckpt__rank_part){.rank = rank, .name = t->name, .at = i});
}

static bool look_at_tensors(ckpt__rank_finder *f, bool shuffles)
{
    const bool llmc = ckpt__format_of(f->index)->sharded == CKPT__SHARDED_LLMC;
    bool ok = true;
    for (size_t i = 0; ok && llmc == shuffles && i < f->index->tensor_count; i++)
        ok = shuffles ? look_at_shuffle(f, i) : !is_flat(f->index, i) || look_at_flat(f, i);
    return ok;
}

/* ---- all of it */

static int by_state(const void *a, const void *b)
{
    const ckpt__rank_part *x = a, *y = b;
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* How many ranks there were, and which states are of several: where there is one alone, a job of one process has just that. */
static void count_ranks(ckpt__rank_states *s, int64_t told)
{
    s->ranks = told;
    for (size_t i = 0, at = 0; i < s->count; i++) {
        ckpt__rank_state *state = &s->states[i];
        state->first = at;
        while (at < s->part_count && s->parts[at].state == i)
            at++;
        state->count = at - state->first;
        s->ranks = state->ranks > s->ranks ? state->ranks : s->ranks;
    }
    for (size_t i = 0; i < s->count; i++) {
        ckpt__rank_state *state = &s->states[i];
        if (state->form >= CKPT__IN_MAIN)
            state->ranks = s->ranks;
        state->several = state->several || state->ranks > 1;
    }
}

ckpt_status ckpt__rank_states_find(const ckpt__index *index, ckpt__arena *arena, ckpt__rank_states *out,
                                   ckpt_error *err)
{
    *out = (ckpt__rank_states){.world = SIZE_MAX};
    ckpt__rank_finder f = {.index = index, .arena = arena, .out = out, .by_name = ckpt__hash_new(16)};
    bool ok = f.by_name && look_at_tensors(&f, true) && look_at_root(&f) && ckpt__rank_look_below(&f) &&
              look_at_tensors(&f, false);
    ckpt__hash_free(f.by_name);
    ckpt__pointers_free(&f.seen);
    if (!ok)
        return ckpt__fail_memory(err, "the states of ranks", out->part_count);
    if (out->part_count)
        qsort(out->parts, out->part_count, sizeof *out->parts, by_state);
    count_ranks(out, index->job.ranks);
    return CKPT_OK;
}

void ckpt__rank_states_free(ckpt__rank_states *s)
{
    free(s->states);
    free(s->parts);
    *s = (ckpt__rank_states){0};
}
