/* migrate/merge.c - a directory of several files as the one dict that a torch program would save:
 * {'model': ..., 'optimizer': ..., 'scheduler': ..., 'scaler': ..., 'rng': ..., ...}. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/folder/folder.h"
#include "format/table.h"

/* Of the keys of ckpt__folder_key, those that say how to build the model and are no part of its state. */
#define SETTINGS "config generation_config adapter_config"

/* "model.safetensors", "pytorch_model-00001-of-00002.bin", "adapter_model.safetensors": weights; *number of a second
 * model ("model_1.safetensors"), else empty. */
static bool is_weights(ckpt_str file, ckpt_str *number)
{
    static const char *const stems[] = {"pytorch_model", "adapter_model", "model"}, *const tails[] = {".safetensors",
                                                                                                      ".bin"};
    *number = (ckpt_str){"", 0};
    for (size_t s = 0; s < sizeof stems / sizeof *stems; s++)
        for (size_t e = 0; e < sizeof tails / sizeof *tails; e++) {
            size_t n = strlen(stems[s]), k = strlen(tails[e]);
            if (file.size < n + k || !ckpt__str_begins(file, stems[s]) || !ckpt__str_ends(file, tails[e]))
                continue;
            ckpt_str middle = {file.data + n, file.size - n - k};
            if (middle.size && middle.data[0] == '_')
                *number = middle;
            return middle.size == 0 || middle.data[0] == '-' || middle.data[0] == '_';
        }
    return false;
}

typedef struct merger {
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt_entry *entries;
    size_t count; /* of the result */
    ckpt_error *err;
} merger;

static ckpt_entry *entry_for(merger *g, const char *key)
{
    for (size_t i = 0; i < g->count; i++)
        if (ckpt__str_is(g->entries[i].key->text, key))
            return &g->entries[i];
    return NULL;
}

static ckpt_status add(merger *g, const char *key, const ckpt_value *v)
{
    ckpt_value *name = ckpt__value_str(g->arena, key, strlen(key));
    if (!name)
        return ckpt__migration_no_memory(g->err);
    g->entries[g->count++] = (ckpt_entry){name, v};
    return CKPT_OK;
}

/* Shards of one model become one state_dict; a file's __metadata__ stays behind. */
static ckpt_status add_weights(merger *g, const char *key, const ckpt_value *v)
{
    ckpt_entry *there = entry_for(g, key);
    size_t before = there ? there->value->entry_count : 0, n = before;
    ckpt_entry *entries = ckpt__arena_array(g->arena, before + v->entry_count + 1, sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(g->err);
    if (before)
        memcpy(entries, there->value->entries, before * sizeof *entries);
    for (size_t i = 0; i < v->entry_count; i++)
        if (v->entries[i].key->kind != CKPT_V_STR || !ckpt__str_is(v->entries[i].key->text, "__metadata__"))
            entries[n++] = v->entries[i];
    ckpt_value *dict = ckpt__value_new(g->arena, CKPT_V_DICT);
    if (!dict)
        return ckpt__migration_no_memory(g->err);
    dict->entries = entries;
    dict->entry_count = n;
    dict->class_name = ckpt__s("collections.OrderedDict");
    dict->state = there ? there->value->state : ckpt__find_entry(v, "__metadata__") ? NULL : v->state;
    if (!there)
        return add(g, key, dict);
    there->value = dict;
    return CKPT_OK;
}

static ckpt_status add_file(merger *g, const ckpt_entry *e)
{
    ckpt_str file = e->key->text, number;
    const char *slash = memrchr(file.data, '/', file.size);
    char key[200];
    if (slash)
        file = (ckpt_str){slash + 1, (size_t)(file.data + file.size - slash - 1)};
    if (ckpt__str_ends_more(file, ".index.json"))
        file.size -= strlen(".index.json"); /* the shards that it names, as one */
    if (is_weights(file, &number) && e->value->kind == CKPT_V_DICT) {
        snprintf(key, sizeof key, "model%.*s", (int)(number.size < 100 ? number.size : 100), number.data);
        return add_weights(g, key, e->value);
    }
    ckpt__folder_key(file, key, sizeof key);
    for (size_t i = 0; entry_for(g, key) && i < 1; i++)
        snprintf(key, sizeof key, "%.*s", (int)(e->key->text.size < 190 ? e->key->text.size : 190), e->key->text.data);
    return add(g, key, e->value);
}

/* The one state_dict, where all else is settings. */
static const ckpt_value *only_weights(const merger *g)
{
    const ckpt_value *model = NULL;
    for (size_t i = 0; i < g->count; i++) {
        ckpt_str key = g->entries[i].key->text;
        if (ckpt__str_is(key, "model"))
            model = g->entries[i].value;
        else if (!ckpt__str_among(key, SETTINGS))
            return NULL;
    }
    return model;
}

static bool is_settings(const ckpt_value *file)
{
    char key[200];
    if (file->kind != CKPT_V_STR)
        return false;
    const char *slash = memrchr(file->text.data, '/', file->text.size), *name = slash ? slash + 1 : file->text.data;
    ckpt__folder_key((ckpt_str){name, (size_t)(file->text.data + file->text.size - name)}, key, sizeof key);
    return ckpt__str_among(ckpt__s(key), SETTINGS);
}

static ckpt_status say_settings(ckpt__migration *m, ckpt_str file, ckpt_error *err)
{
    char name[200];
    return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "left-out", (ckpt_str){NULL, 0}, err,
                                "the settings in %s are not copied: they are not part of a state_dict",
                                ckpt__escape(name, sizeof name, file.data, file.size));
}

ckpt_status ckpt__migrate_merge(ckpt__migration *m, const ckpt_value **root, ckpt_error *err)
{
    const ckpt_value *from = m->from->root;
    merger g = {.m = m, .arena = m->from->arena, .err = err};
    *root = from;
    if (!from || from->kind != CKPT_V_DICT)
        return CKPT_OK;
    for (size_t i = 0; i < from->entry_count; i++)
        if (from->entries[i].key->kind != CKPT_V_STR)
            return CKPT_OK; /* not by files */
    if (!(g.entries = ckpt__arena_array(g.arena, from->entry_count + 1, sizeof *g.entries)))
        return ckpt__migration_no_memory(err);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < from->entry_count; i++)
        status = add_file(&g, &from->entries[i]);
    if (status < 0)
        return status;
    /* nothing but weights: the state_dict itself, as the shards' own program would save it */
    const ckpt_value *model = only_weights(&g);
    for (size_t i = 0; status == CKPT_OK && model && i < from->entry_count; i++)
        if (is_settings(from->entries[i].key))
            status = say_settings(m, from->entries[i].key->text, err);
    *root = model ? model : ckpt__value_dict(g.arena, g.entries, g.count);
    return !*root ? ckpt__migration_no_memory(err) : status;
}

/* The tree of a directory with torch files in it, for a file of safetensors: settings are not lost values there either. */
static ckpt_status leave_settings(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *root = m->from->root;
    ckpt_entry *entries = ckpt__arena_array(m->from->arena, root->entry_count + 1, sizeof *entries);
    ckpt_status status = entries ? CKPT_OK : ckpt__migration_no_memory(err);
    size_t n = 0;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        if (is_settings(root->entries[i].key))
            status = say_settings(m, root->entries[i].key->text, err);
        else
            entries[n++] = root->entries[i];
    }
    if (status < 0 || n == root->entry_count)
        return status;
    ckpt_value *left = ckpt__value_dict(m->from->arena, entries, n);
    if (!left)
        return ckpt__migration_no_memory(err);
    m->from->root = left;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_say_settings(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *root = m->from->root;
    ckpt_status status = CKPT_OK;
    if (m->hf || m->options.weights_only || !m->reader->source->directory || !root || root->kind != CKPT_V_DICT ||
        ckpt__format_of(m->from)->joins_files)
        return CKPT_OK;
    if (m->tree) /* a native file keeps them; for a torch file ckpt__migrate_merge says it */
        return m->format->weights_alone ? leave_settings(m, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key, *value = root->entries[i].value;
        if (key->kind != CKPT_V_STR || !ckpt__str_ends(key->text, ".json") ||
            ckpt__str_ends(key->text, ".index.json") || (value->kind == CKPT_V_DICT && value->entry_count == 0))
            continue;
        status = say_settings(m, key->text, err);
    }
    return status;
}
