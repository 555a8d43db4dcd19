/* migrate/rank_edit.c - the source's tree and rows without the parts of ranks that do not go along, and the part that stays under the
 * name that one process has for it. In three steps: places go from the tree; what stays is moved; the rows follow. */
#include "migrate/rank_state.h"

#include <stdio.h>
#include <stdlib.h>

/* Names that begin with `from` (of so many keys) begin with the keys from now on. key_count 0: their tensors stay behind. */
typedef struct move {
    ckpt_str from;
    size_t from_keys;
    ckpt_str to;          /* the keys, with dots between them */
    const ckpt_key *keys; /* both in the source's arena */
    size_t key_count;
} move;

/* An entry of the root that is called `was` has this key and this value now. was.data NULL: the value goes to the path of the keys. */
typedef struct put {
    ckpt_str was;
    const ckpt_value *key;
    const ckpt_value **keys;
    size_t key_count;
    const ckpt_value *value;
} put;

typedef struct editing {
    ckpt__migration *m;
    const ckpt__rank_states *found;
    const ckpt__rank_deed *deeds;
    ckpt__arena *scratch; /* owned: keys of `spots` */
    ckpt__hash *spots;    /* owned: holder and number of the places that go from the tree */
    ckpt__pointers gone;  /* owned: values that go wherever they are: a list, a dict of folders */
    ckpt__hash *above;    /* owned: names of dicts that lost a place: they go where nothing is left in them */
    move *moves;
    size_t move_count, move_capacity; /* heap */
    ckpt__hash *by_from;              /* owned: move.from -> its number */
    put *puts;
    size_t put_count, put_capacity; /* heap */
    const ckpt_value **saying;
    size_t saying_count, saying_capacity; /* heap: dicts whose world_size is 1 from now on, as they were read */
    ckpt_error *err;
} editing;

static ckpt__arena *kept(const editing *e)
{
    return e->m->from->arena;
}

static ckpt_status no_memory(const editing *e)
{
    return ckpt__migration_no_memory(e->err);
}

/* ---- what is to be done */

typedef struct spot_key {
    const ckpt_value *holder;
    size_t number;
} spot_key;

static ckpt_status add_spot(editing *e, const ckpt_value *holder, size_t number)
{
    spot_key *key = ckpt__arena_alloc(e->scratch, sizeof *key);
    if (key)
        *key = (spot_key){holder, number};
    return key && ckpt__hash_put(e->spots, (const char *)key, sizeof *key, 0, NULL) >= 0 ? CKPT_OK : no_memory(e);
}

static ckpt_status add_gone(editing *e, const ckpt_value *value)
{
    return ckpt__pointers_add(&e->gone, value) >= 0 ? CKPT_OK : no_memory(e);
}

static ckpt_status add_move(editing *e, move one, const ckpt_key *keys)
{
    ckpt__buf to = {NULL, 0, 0, false};
    ckpt_key *copy = ckpt__arena_array(kept(e), one.key_count + 1, sizeof *copy);
    bool ok = copy && one.from.data;
    for (size_t i = 0; ok && i < one.key_count; i++) {
        copy[i].text = ckpt__arena_str(kept(e), keys[i].text.data, keys[i].text.size);
        ckpt__buf_str(&to, i ? "." : "");
        ckpt__buf_add(&to, keys[i].text.data, keys[i].text.size);
        ok = copy[i].text.data && !to.failed;
    }
    one.keys = copy;
    one.to = to.size && ok ? ckpt__arena_str(kept(e), to.data, to.size) : (ckpt_str){NULL, 0};
    one.from = ok ? ckpt__arena_str(kept(e), one.from.data, one.from.size) : one.from;
    ok = ok && one.from.data && (one.to.data || !one.key_count) &&
         ckpt__grow(&e->moves, &e->move_capacity, e->move_count + 1, sizeof *e->moves) &&
         ckpt__hash_put(e->by_from, one.from.data, one.from.size, e->move_count, NULL) >= 0;
    ckpt__buf_free(&to);
    if (!ok)
        return no_memory(e);
    e->moves[e->move_count++] = one;
    return CKPT_OK;
}

static ckpt_status leave_below(editing *e, ckpt_str name)
{
    return add_move(e, (move){.from = name}, NULL);
}

/* "name.3"; data NULL: no memory. */
static ckpt_str numbered(const editing *e, ckpt_str name, size_t n)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", n);
    return name.data ? ckpt__arena_join(e->scratch, name, ckpt__s("."), ckpt__s(number)) : name;
}

/* The dicts above a place, but for the root. */
static ckpt_status note_above(editing *e, ckpt_str name)
{
    for (size_t n = name.size; n-- > 1;) {
        if (name.data[n] != '.')
            continue;
        const char *copy = ckpt__arena_copy(e->scratch, name.data, n);
        if (!copy || ckpt__hash_put(e->above, copy, n, 0, NULL) < 0)
            return no_memory(e);
    }
    return CKPT_OK;
}

/* The part goes from the tree, and its tensors do not go along. */
static ckpt_status leave_part(editing *e, const ckpt__rank_part *part)
{
    ckpt_status status = leave_below(e, part->name);
    if (status == CKPT_OK && part->holder)
        status = add_spot(e, part->holder, part->at);
    return status == CKPT_OK && part->holder ? note_above(e, part->name) : status;
}

/* ---- one state */

static ckpt_key key_of(ckpt_str text)
{
    return (ckpt_key){.text = text};
}

/* The dict says that the ranks are one, once the others have gone from it. */
static ckpt_status say_one(editing *e, const ckpt_value *dict)
{
    if (!ckpt__grow(&e->saying, &e->saying_capacity, e->saying_count + 1, sizeof *e->saying))
        return no_memory(e);
    e->saying[e->saying_count++] = dict;
    return CKPT_OK;
}

/* Of a list with an item for each data parallel rank the first, in a list of its own. The others do not go along. The record of torch_dist
 * is a list of one more, with the object in it. */
static ckpt_status first_item(editing *e, const ckpt__rank_part *part, const ckpt_value **value)
{
    const ckpt_value *all = ckpt__rank_items(part);
    const bool wrapped = all && all != part->value;
    const ckpt_str name = wrapped ? numbered(e, part->name, 0) : part->name;
    ckpt_status status = CKPT_OK;
    *value = part->value;
    if (!all || all->item_count < 2)
        return CKPT_OK;
    for (size_t i = 1; status == CKPT_OK && i < all->item_count; i++)
        status = leave_below(e, numbered(e, name, i));
    *value = ckpt__value_list(kept(e), CKPT_V_LIST, all->items, 1);
    if (*value && wrapped)
        *value = ckpt__value_list(kept(e), CKPT_V_LIST, value, 1);
    return status == CKPT_OK && !*value ? no_memory(e) : status;
}

/* The states of all devices of a process: the first is that of the device of rank 0. The HF Trainer has a list of them in a job of several
 * processes, and a tensor in a job of one; accelerate always a list, and sets as many devices as it has items. */
static ckpt_status first_device(editing *e, const ckpt__rank_state *s, const ckpt__rank_part *part,
                                const ckpt_value **value)
{
    const bool trainer = ckpt__str_is(s->alone, ckpt__rank_files[CKPT__RNG_STATES].alone);
    const ckpt_value *v = part->value;
    ckpt_entry *entries = NULL;
    ckpt_status status = CKPT_OK;
    *value = v;
    for (size_t i = 0; status == CKPT_OK && v->kind == CKPT_V_DICT && i < v->entry_count; i++) {
        const ckpt_value *list = v->entries[i].value;
        const ckpt_str key = v->entries[i].key->kind == CKPT_V_STR ? v->entries[i].key->text : (ckpt_str){NULL, 0};
        const bool devices =
            key.data && (trainer ? ckpt__str_among(key, "cuda npu hpu mlu musa") : ckpt__str_ends(key, "_manual_seed"));
        if (!devices || list->kind != CKPT_V_LIST || list->item_count < (trainer ? 1 : 2) ||
            list->items[0]->kind != CKPT_V_TENSOR)
            continue;
        if (!entries && !(*value = ckpt__migration_open_dict(e->m, v, 0, &entries)))
            return no_memory(e);
        const ckpt_str name = ckpt__arena_join(e->scratch, part->name, ckpt__s("."), key);
        for (size_t k = 1; status == CKPT_OK && k < list->item_count; k++)
            status = leave_below(e, numbered(e, name, k));
        entries[i].value = trainer ? list->items[0] : ckpt__value_list(kept(e), CKPT_V_LIST, list->items, 1);
        if (status == CKPT_OK && !entries[i].value)
            status = no_memory(e);
        if (status == CKPT_OK && trainer) {
            const ckpt_key keys[] = {key_of(s->alone), key_of(key)};
            status =
                add_move(e, (move){.from = numbered(e, name, 0), .from_keys = part->depth + 2, .key_count = 2}, keys);
        }
    }
    return status;
}

/* The root's entry has another key, or another value, from now on. */
static ckpt_status settle(editing *e, const ckpt__rank_state *s, const ckpt__rank_part *part)
{
    const ckpt_key key = key_of(s->alone);
    const ckpt_value *value = part->value;
    ckpt_status status = s->form == CKPT__IN_GRID             ? first_item(e, part, &value)
                         : s->form == CKPT__IN_FILES_OF_RANKS ? first_device(e, s, part, &value)
                                                              : CKPT_OK;
    const bool other = s->alone.data && !ckpt__str_equal(s->alone, part->name);
    if (status < 0 || (!other && value == part->value))
        return status;
    const ckpt_value *name = ckpt__value_str(kept(e), s->alone.data, s->alone.size);
    if (!name || !ckpt__grow(&e->puts, &e->put_capacity, e->put_count + 1, sizeof *e->puts))
        return no_memory(e);
    e->puts[e->put_count++] = (put){.was = part->name, .key = name, .value = value};
    return other ? add_move(e, (move){.from = part->name, .from_keys = 1, .key_count = 1}, &key) : CKPT_OK;
}

/* The value goes to the same path without the rank. */
static ckpt_status keep_own(editing *e, const ckpt__rank_part *part)
{
    ckpt_key *keys = ckpt__arena_array(e->scratch, part->depth, sizeof *keys);
    if (!keys || !ckpt__grow(&e->puts, &e->put_capacity, e->put_count + 1, sizeof *e->puts))
        return no_memory(e);
    for (size_t i = 0; i + 1 < part->depth; i++)
        keys[i] = key_of(part->keys[i]->text);
    e->puts[e->put_count++] = (put){.keys = part->keys, .key_count = part->depth - 1, .value = part->value};
    ckpt_status status = add_spot(e, part->holder, part->at);
    if (status == CKPT_OK)
        status = note_above(e, part->name);
    return status == CKPT_OK
               ? add_move(e, (move){.from = part->name, .from_keys = part->depth, .key_count = part->depth - 1}, keys)
               : status;
}

/* In the place of the list, or of the dict of folders, that has it. */
static ckpt_status keep_whole(editing *e, const ckpt__rank_state *s, const ckpt__rank_part *part)
{
    const ckpt_value *value = NULL;
    ckpt_status status = CKPT_OK;
    if (s->form == CKPT__IN_ITEMS) /* its name ends in a number, that of the first */
        value = part->at == 0 ? ckpt__value_list(kept(e), part->holder->kind, &part->value, 1) : NULL;
    else
        status = first_item(e, part, &value);
    if (status == CKPT_OK)
        status = ckpt__migration_replace(e->m, part->holder, value, e->err);
    const ckpt_key key = key_of((ckpt_str){part->name.data, strcspn(part->name.data, ".")});
    return status == CKPT_OK && s->form == CKPT__IN_FOLDERS
               ? add_move(e, (move){.from = part->name, .from_keys = part->depth, .key_count = 1}, &key)
               : status;
}

static ckpt_status keep_one(editing *e, const ckpt__rank_state *s, const ckpt__rank_part *part)
{
    const ckpt_key key = key_of(s->alone);
    switch (s->form) {
    case CKPT__IN_ITEMS:
    case CKPT__IN_FOLDERS:
        return keep_whole(e, s, part);
    case CKPT__IN_OWN:
        return keep_own(e, part);
    case CKPT__IN_NAMES: /* a tensor without a path */
        return s->alone.data ? add_move(e, (move){.from = part->name, .from_keys = 0, .key_count = 1}, &key) : CKPT_OK;
    case CKPT__IN_KEYS:
        return s->world != SIZE_MAX ? say_one(e, part->holder) : CKPT_OK;
    default:
        return settle(e, s, part);
    }
}

/* Which parts stay, and under which name. */
static ckpt_status plan_state(editing *e, size_t number)
{
    const ckpt__rank_state *s = &e->found->states[number];
    const ckpt__rank_deed *deed = &e->deeds[number];
    const ckpt__rank_part *parts = e->found->parts + s->first;
    const bool whole = s->form == CKPT__IN_ITEMS || s->form == CKPT__IN_FOLDERS;
    ckpt_status status = CKPT_OK;
    if (deed->verdict == CKPT__RANK_STAYS)
        return CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        if (&parts[i] == deed->kept)
            continue;
        status = whole ? leave_below(e, parts[i].name) : leave_part(e, &parts[i]);
    }
    if (status == CKPT_OK && !deed->kept && whole)
        status = add_gone(e, parts[0].holder);
    if (status == CKPT_OK && !deed->kept && whole)
        status = note_above(e, parts[0].name);
    if (status == CKPT_OK && !deed->kept && s->world != SIZE_MAX)
        status = add_spot(e, parts[0].holder, s->world);
    return status == CKPT_OK && deed->kept ? keep_one(e, s, deed->kept) : status;
}

/* ---- the tree: what goes */

static int cut(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    editing *e = ctx;
    spot_key key = {spot->holder, spot->number};
    if (visit->cycle || !spot->parent)
        return CKPT_OK;
    if (ckpt__pointers_get(&e->gone, visit->value, NULL) ||
        (spot->holder && ckpt__hash_get(e->spots, (const char *)&key, sizeof key, NULL)))
        *to = NULL;
    return CKPT_OK;
}

typedef struct emptying {
    editing *e;
    bool some;
} emptying;

static int cut_empty(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    emptying *x = ctx;
    const ckpt_value *v = visit->value;
    if (!spot->parent || visit->cycle || v->kind != CKPT_V_DICT || v->entry_count ||
        !ckpt__hash_get(x->e->above, visit->name.data, visit->name.size, NULL))
        return CKPT_OK;
    *to = NULL;
    x->some = true;
    return CKPT_OK;
}

/* ---- the tree: what stays */

/* The dict with the value at the path of the keys; dicts that are not there are made. NULL: no memory. */
static const ckpt_value *with_path(editing *e, const ckpt_value *dict, const put *p)
{
    const ckpt_value *spine[16] = {dict}, *value = p->value;
    size_t depth = 1;
    for (; depth < p->key_count && depth < sizeof spine / sizeof *spine; depth++) {
        const ckpt_entry *at =
            spine[depth - 1] ? ckpt__find_entry(spine[depth - 1], p->keys[depth - 1]->text.data) : NULL;
        spine[depth] = at && at->value->kind == CKPT_V_DICT ? at->value : NULL;
    }
    while (depth-- > 0) {
        static const ckpt_value nothing = {.kind = CKPT_V_DICT};
        const ckpt_value *was = spine[depth] ? spine[depth] : &nothing;
        ckpt_entry *entries;
        ckpt_value *copy = ckpt__migration_open_dict(e->m, was, 1, &entries);
        const ckpt_entry *at = ckpt__find_entry(was, p->keys[depth]->text.data);
        const size_t number = at ? (size_t)(at - was->entries) : was->entry_count;
        if (!copy)
            return NULL;
        entries[number] = (ckpt_entry){p->keys[depth], value};
        copy->entry_count = at ? was->entry_count : was->entry_count + 1;
        value = copy;
    }
    return value;
}

static ckpt_status put_all(editing *e)
{
    const ckpt_value *root = e->m->from->root, *now = root;
    for (size_t k = 0; now && k < e->put_count; k++) {
        const put *p = &e->puts[k];
        ckpt_entry *entries;
        if (!p->was.data) {
            now = with_path(e, now, p);
            continue;
        }
        ckpt_value *copy = ckpt__migration_open_dict(e->m, now, 0, &entries);
        for (size_t i = 0; copy && i < copy->entry_count; i++)
            if (entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(entries[i].key->text, p->was))
                entries[i] = (ckpt_entry){p->key, p->value};
        now = copy;
    }
    if (!now)
        return no_memory(e);
    ckpt_status status = now != root ? ckpt__migration_replace(e->m, root, now, e->err) : CKPT_OK;
    return status == CKPT_OK && now != root ? ckpt__migration_apply(e->m, e->err) : status;
}

static ckpt_status say_all(editing *e)
{
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < e->saying_count; k++) {
        const ckpt_value *now = ckpt__edits_now(e->m->edits, e->saying[k]);
        const ckpt_entry *at = ckpt__find_entry(now, "world_size");
        ckpt_entry *entries;
        if (!at)
            continue;
        const size_t number = (size_t)(at - now->entries);
        ckpt_value *copy = ckpt__migration_open_dict(e->m, now, 0, &entries);
        if (!copy || !(entries[number].value = ckpt__value_int(kept(e), 1)))
            return no_memory(e);
        status = ckpt__migration_replace(e->m, now, copy, e->err);
        if (status == CKPT_OK)
            status = ckpt__migration_apply(e->m, e->err);
    }
    return status;
}

static ckpt_status edit_tree(editing *e)
{
    emptying x = {e, true};
    ckpt_status status = e->m->from->root ? ckpt__migration_rewrite(e->m, cut, e, e->err) : CKPT_OK;
    if (status == CKPT_OK)
        status = say_all(e);
    if (status == CKPT_OK)
        status = put_all(e);
    while (status == CKPT_OK && e->m->from->root && x.some) { /* a dict that was in one that is empty now */
        x.some = false;
        status = ckpt__migration_rewrite(e->m, cut_empty, &x, e->err);
    }
    return status;
}

/* ---- the rows */

/* A name as the tree has it: of a tensor in a file of a directory the file's name stands before it, and is not in the row's name and
 * path. */
typedef struct row_name {
    ckpt__buf text;
    bool in_file;
} row_name;

static ckpt_status move_row(editing *e, ckpt_tensor_info *t, const row_name *was, const move *one)
{
    ckpt__arena *a = kept(e);
    const size_t file = was->in_file, skipped = file && one->key_count ? one->keys[0].text.size : 0;
    const size_t from_keys = one->from_keys - (file && one->from_keys);
    const size_t to_keys = one->key_count - (file && one->key_count);
    const size_t rest_keys = t->path.count > from_keys ? t->path.count - from_keys : 0;
    const ckpt_str rest = {was->text.data + one->from.size, was->text.size - one->from.size};
    ckpt_str name = ckpt__arena_join(a, one->to, rest, (ckpt_str){NULL, 0});
    ckpt_key *keys = ckpt__arena_array(a, to_keys + rest_keys + 1, sizeof *keys);
    if (!name.data || !keys)
        return no_memory(e);
    if (file) {
        const size_t begin = skipped + (name.size > skipped);
        name = (ckpt_str){name.data + begin, name.size - begin};
    }
    t->name = name;
    if (t->path.count == 0)
        return CKPT_OK;
    memcpy(keys, one->keys + (one->key_count - to_keys), to_keys * sizeof *keys);
    if (rest_keys)
        memcpy(keys + to_keys, t->path.keys + from_keys, rest_keys * sizeof *keys);
    t->path = (ckpt_path){keys, to_keys + rest_keys};
    return CKPT_OK;
}

/* The move of the longest beginning of the name. NULL: there is none. */
static const move *find_move(const editing *e, const char *name, size_t n)
{
    size_t number;
    while (n > 0 && !ckpt__hash_get(e->by_from, name, n, &number))
        for (n--; n > 0 && name[n] != '.'; n--)
            ;
    return n ? &e->moves[number] : NULL;
}

static const move *move_of(const editing *e, const ckpt_tensor_info *t, row_name *name)
{
    const move *one = NULL;
    name->text.size = 0;
    name->in_file = t->file.data != NULL;
    if (name->in_file) {
        ckpt__buf_add(&name->text, t->file.data, t->file.size);
        ckpt__buf_char(&name->text, '.');
        ckpt__buf_add(&name->text, t->name.data, t->name.size);
        one = name->text.failed ? NULL : find_move(e, name->text.data, name->text.size);
    }
    if (one || name->text.failed)
        return one;
    name->in_file = false;
    name->text.size = 0;
    ckpt__buf_add(&name->text, t->name.data, t->name.size);
    return name->text.failed ? NULL : find_move(e, name->text.data, name->text.size);
}

static ckpt_status edit_rows(editing *e)
{
    ckpt__index *x = e->m->from;
    row_name name = {{NULL, 0, 0, false}, false};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && e->move_count && i < x->tensor_count; i++) {
        ckpt_tensor_info *t = &x->tensors[i].info;
        const move *one = t->name.data ? move_of(e, t, &name) : NULL;
        if (one && one->key_count)
            status = move_row(e, t, &name, one);
        else if (one)
            ckpt__leave_one(e->m, i, CKPT__FATE_RANK_STATE);
        else if (name.text.failed)
            status = no_memory(e);
    }
    ckpt__buf_free(&name.text);
    return status;
}

/* ---- all of it */

/* Files of the source's directory that are not copied, and the one that has another name: --to same. */
static ckpt_status note_files(editing *e)
{
    ckpt__migration *m = e->m;
    m->rank_files = ckpt__arena_array(kept(e), e->found->part_count + 1, sizeof *m->rank_files);
    if (!m->rank_files)
        return no_memory(e);
    for (size_t i = 0; i < e->found->count; i++) {
        const ckpt__rank_state *s = &e->found->states[i];
        const ckpt__rank_deed *deed = &e->deeds[i];
        if (deed->verdict == CKPT__RANK_STAYS || (s->form != CKPT__IN_FILES_OF_RANKS && s->form != CKPT__IN_MAIN))
            continue;
        for (size_t k = s->first; k < s->first + s->count; k++) {
            const bool stays = &e->found->parts[k] == deed->kept;
            ckpt__rank_file_name *f = &m->rank_files[m->rank_file_count++];
            f->was = ckpt__arena_str(kept(e), e->found->parts[k].name.data, e->found->parts[k].name.size);
            f->is = stays ? ckpt__arena_str(kept(e), s->alone.data, s->alone.size) : (ckpt_str){NULL, 0};
            if (!f->was.data || (stays && !f->is.data))
                return no_memory(e);
        }
    }
    return CKPT_OK;
}

ckpt_status ckpt__rank_edit(ckpt__migration *m, const ckpt__rank_states *found, const ckpt__rank_deed *deeds,
                            ckpt_error *err)
{
    editing e = {.m = m, .found = found, .deeds = deeds, .err = err};
    e.scratch = ckpt__arena_new(0);
    e.spots = ckpt__hash_new(found->part_count);
    e.above = ckpt__hash_new(found->count);
    e.by_from = ckpt__hash_new(found->part_count);
    bool one = false;
    ckpt_status status = e.scratch && e.spots && e.above && e.by_from ? CKPT_OK : no_memory(&e);
    for (size_t i = 0; status == CKPT_OK && i < found->count; i++) {
        status = plan_state(&e, i);
        one = one || deeds[i].verdict == CKPT__RANK_ONE;
    }
    if (status == CKPT_OK && one && found->world != SIZE_MAX)
        status = say_one(&e, m->from->root);
    if (status == CKPT_OK)
        status = edit_tree(&e);
    if (status == CKPT_OK)
        status = edit_rows(&e);
    if (status == CKPT_OK && m->same)
        status = note_files(&e);
    ckpt__arena_free(e.scratch);
    ckpt__hash_free(e.spots);
    ckpt__hash_free(e.above);
    ckpt__hash_free(e.by_from);
    ckpt__pointers_free(&e.gone);
    free(e.moves);
    free(e.puts);
    free(e.saying);
    return status;
}
