/* format/keras/shards.c - directories. Weights in several files (save_weights with max_shard_size): model.weights.json has a map from
 * the path of a group to the files that hold its variables, and may be given instead of its directory. Or the members of an archive as
 * files (save_model with zipped=False). */
#include "format/keras/keras.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "format/native/json_values.h"
#include "format/survey.h"

static const char suffix[] = ".weights.json";
enum { MAP_MAX = 64 << 20, NAME_SIZE = 256 };

/* The map's name in the directory; two maps are two checkpoints. */
typedef struct maps {
    char name[NAME_SIZE];
    size_t count;
    bool config, metadata, weights; /* the members of an archive */
} maps;

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    maps *m = ctx;
    (void)err;
    if (root != 0 || folder)
        return CKPT_OK;
    m->config |= strcmp(name, CKPT__KERAS_CONFIG) == 0;
    m->metadata |= strcmp(name, CKPT__KERAS_METADATA) == 0;
    m->weights |= strcmp(name, CKPT__KERAS_WEIGHTS) == 0;
    if (ckpt__ends(name, suffix) && strlen(name) < sizeof m->name && m->count++ == 0)
        memcpy(m->name, name, strlen(name) + 1);
    return CKPT_OK;
}

int ckpt__keras_bid_directory(const ckpt__probe *probe)
{
    enum { LIKELY = 85 };
    maps m = {.count = 0};
    if (!probe->source || ckpt__source_each(probe->source, "", see, &m, NULL) != CKPT_OK)
        return 0;
    return m.count || (m.config && m.metadata && m.weights) ? LIKELY : 0;
}

bool ckpt__keras_is_map(const ckpt__probe *probe)
{
    size_t n = probe->head_size, at = 0;
    while (at < n && memchr(" \t\r\n", probe->head[at], 4))
        at++;
    return probe->source && at < n && probe->head[at] == '{' && memmem(probe->head, n, "\"weight_map\"", 12) &&
           ckpt__ends(probe->source->files[probe->file].name, suffix);
}

typedef struct shards {
    const ckpt__read_request *request;
    ckpt__index *index;
    ckpt__keras_values *values;
    ckpt__hash *seen; /* owned: the name of a file -> its number here */
    ckpt_str *names;
    size_t count, capacity; /* heap; the names are in the index's arena */
    size_t lost;            /* of them that are not there or not read, where reading goes on */
    char label[256];        /* of the map */
} shards;

/* The map that was given, or the one of the directory. */
static ckpt_status find_map(const ckpt__read_request *request, uint32_t *file, ckpt_error *err)
{
    ckpt__source *source = request->source;
    maps m = {.count = 0};
    *file = request->file;
    if (request->file != CKPT__WHOLE_DIRECTORY)
        return CKPT_OK;
    ckpt_status status = ckpt__source_each(source, "", see, &m, err);
    if (status == CKPT_OK && m.count != 1)
        return ckpt__fail(err, CKPT_E_FORMAT, source->path,
                          "the directory has %zu files that end in %s, and each is a checkpoint: give one of them",
                          m.count, suffix);
    return status == CKPT_OK ? ckpt__source_add(source, m.name, file, err) : status;
}

static ckpt_status read_map(shards *s, const ckpt_value **map, ckpt_error *err)
{
    ckpt__source *source = s->request->source;
    ckpt__buf text = {0};
    const ckpt_value *all = NULL;
    uint32_t file = 0;
    ckpt_status status = find_map(s->request, &file, err);
    if (status == CKPT_OK)
        status = ckpt__source_slurp(source, file, MAP_MAX, &text, err);
    if (status == CKPT_OK) {
        ckpt__source_label(source, file, s->label, sizeof s->label);
        ckpt__arena_allow(s->index->arena, ckpt__known_limit(text.size, true));
        status = ckpt__json_values(text.data ? text.data : "", text.size, s->label, s->index->arena, &all, err);
    }
    ckpt__buf_free(&text);
    if (status < 0)
        return status;
    *map = ckpt_value_get(all, "weight_map");
    if (!*map || (*map)->kind != CKPT_V_DICT)
        return ckpt__fail(err, CKPT_E_FORMAT, s->label,
                          "there is no \"weight_map\" in it, which says what is in which file");
    const char *own = source->files[file].name;
    ckpt_str name = ckpt__arena_str(s->index->arena, own, strlen(own));
    return name.data ? ckpt__keras_put(s->index, s->values, name, all, err) : ckpt__fail_memory(err, "names", 0);
}

static ckpt_status note_shard(shards *s, const ckpt_value *name, ckpt_error *err)
{
    if (!name || name->kind != CKPT_V_STR)
        return ckpt__fail(err, CKPT_E_FORMAT, s->label,
                          "its \"weight_map\" has %s where the name of a file is expected",
                          name ? ckpt_kind_name(name->kind) : "nothing");
    int put = ckpt__hash_put(s->seen, name->text.data, name->text.size, s->count, NULL);
    if (put == 0)
        return CKPT_OK;
    if (put < 0 || !ckpt__arena_grow(s->index->arena, &s->names, &s->capacity, s->count + 1, sizeof *s->names))
        return ckpt__fail_memory(err, "shards", s->count);
    s->names[s->count++] = name->text;
    return CKPT_OK;
}

static ckpt_status note_shards(shards *s, const ckpt_value *map, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < map->entry_count; i++) {
        const ckpt_value *v = map->entries[i].value;
        if (v->kind != CKPT_V_LIST)
            status = note_shard(s, v, err);
        for (size_t k = 0; v->kind == CKPT_V_LIST && status == CKPT_OK && k < v->item_count; k++)
            status = note_shard(s, v->items[k], err);
    }
    return status;
}

/* A file that the map names is not there: an error, or a finding where the others are read. */
static ckpt_status lose_shard(shards *s, ckpt_str name, ckpt_error *err)
{
    const ckpt__read_request *r = s->request;
    char shown[200], fix[300];
    ckpt__escape(shown, sizeof shown, name.data, name.size);
    if (!r->survey && !r->salvage && !r->leave_damaged)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, s->label,
            "it names the shard %s, which is missing, with the variables in it. Copy it again, or take an "
            "earlier checkpoint; ckpt-migrate --salvage keeps the others",
            shown);
    s->lost++;
    snprintf(fix, sizeof fix, "copy %s again, or take an earlier checkpoint; ckpt-migrate --salvage keeps the others",
             shown);
    if (ckpt__report_add(s->index->findings, CKPT_SEVERITY_ERROR, "shard-missing", NULL, fix,
                         "is missing, with the variables in it: the map of the shards names it") &&
        ckpt__report_detail(s->index->findings, shown, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

/* One that is damaged is a finding where reading goes on. Nothing of it is in the index: it has been tried elsewhere first. */
static ckpt_status read_weights(shards *s, const ckpt__h5_input *in, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    size_t tensors = s->index->tensor_count, values = s->values->count;
    char shown[200];
    ckpt_status status = ckpt__h5_read(in, s->index, s->values, &why);
    bool whole = tensors == s->index->tensor_count && values == s->values->count;
    if (status < 0 && whole && ckpt__survey_leaves(s->request, status)) {
        s->lost++;
        return ckpt__survey_note(s->index->findings, ckpt__escape(shown, sizeof shown, in->shard.data, in->shard.size),
                                 status, &why, err);
    }
    if (status < 0 && err)
        *err = why;
    return status;
}

static ckpt_status read_shard(shards *s, ckpt_str name, ckpt_error *err)
{
    ckpt__source *source = s->request->source;
    char label[256];
    uint32_t file;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__source_add(source, name.data, &file, &why);
    if (status < 0 && why.sys_errno == ENOENT)
        return lose_shard(s, name, err);
    if (status < 0) {
        if (err)
            *err = why;
        ckpt__error_prefix(err, "%s names a shard that cannot be opened", s->label);
        return status;
    }
    ckpt__source_label(source, file, label, sizeof label);
    ckpt__arena_allow(s->index->arena, ckpt__known_limit(source->files[file].size, true));
    ckpt__h5_input in = {
        .source = source, .file = file, .size = source->files[file].size, .label = label, .shard = name};
    return read_weights(s, &in, err);
}

/* Each group of the map has its variables in the files: else the files are those of another save. */
static ckpt_status check_map(const shards *s, const ckpt_value *map, ckpt_error *err)
{
    ckpt__hash *groups = ckpt__hash_new(s->index->tensor_count);
    int put = groups ? 1 : -1;
    char text[200];
    for (size_t i = 0; put >= 0 && i < s->index->tensor_count; i++) {
        ckpt_str name = s->index->tensors[i].info.name;
        size_t n = name.size;
        while (n > 0 && name.data[n - 1] != '/')
            n--;
        put = ckpt__hash_put(groups, name.data, n ? n - 1 : 0, i, NULL);
    }
    ckpt_status status = put < 0 ? ckpt__fail_memory(err, "names", 0) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < map->entry_count; i++) {
        const ckpt_value *key = map->entries[i].key;
        size_t head = key->kind == CKPT_V_STR && key->text.size && key->text.data[0] == '/';
        size_t number;
        if (s->lost == 0 &&
            (key->kind != CKPT_V_STR || !ckpt__hash_get(groups, key->text.data + head, key->text.size - head, &number)))
            status = ckpt__fail(
                err, CKPT_E_DAMAGED, s->label,
                "it says where the variables of '%s' are, and they are in none of its %zu files",
                key->kind == CKPT_V_STR ? ckpt__escape(text, sizeof text, key->text.data, key->text.size) : "?",
                s->count);
    }
    ckpt__hash_free(groups);
    return status;
}

/* ---- the members of an archive as files */

static ckpt_status read_json(const ckpt__read_request *request, const char *name, ckpt__index *index,
                             ckpt__keras_values *values, ckpt_error *err)
{
    ckpt__buf text = {0};
    const ckpt_value *value = NULL;
    char label[256];
    uint32_t file;
    ckpt_status status = ckpt__source_add(request->source, name, &file, err);
    if (status < 0)
        return status;
    ckpt__source_label(request->source, file, label, sizeof label);
    status = ckpt__source_slurp(request->source, file, MAP_MAX, &text, err);
    if (status == CKPT_OK) {
        ckpt__arena_allow(index->arena, ckpt__known_limit(text.size, true));
        status = ckpt__json_values(text.data ? text.data : "", text.size, label, index->arena, &value, err);
    }
    ckpt__buf_free(&text);
    return status == CKPT_OK ? ckpt__keras_put(index, values, ckpt__s(name), value, err) : status;
}

static ckpt_status read_members(const ckpt__read_request *request, ckpt__index *index, ckpt__keras_values *values,
                                ckpt_error *err)
{
    char label[256];
    uint32_t file;
    ckpt_status status = read_json(request, CKPT__KERAS_METADATA, index, values, err);
    if (status == CKPT_OK)
        status = read_json(request, CKPT__KERAS_CONFIG, index, values, err);
    if (status == CKPT_OK)
        status = ckpt__source_add(request->source, CKPT__KERAS_WEIGHTS, &file, err);
    if (status < 0)
        return status;
    uint64_t size = request->source->files[file].size;
    ckpt__source_label(request->source, file, label, sizeof label);
    ckpt__arena_allow(index->arena, ckpt__known_limit(size, true));
    ckpt__h5_input in = {.source = request->source, .file = file, .size = size, .label = label};
    return ckpt__h5_read(&in, index, values, err);
}

/* ---- either */

static ckpt_status read_shards(const ckpt__read_request *request, ckpt__index *index, ckpt__keras_values *values,
                               ckpt_error *err)
{
    shards s = {.request = request, .index = index, .values = values, .seen = ckpt__hash_new(16)};
    const ckpt_value *map = NULL;
    ckpt_status status = s.seen ? read_map(&s, &map, err) : ckpt__fail_memory(err, "shards", 0);
    if (status == CKPT_OK)
        status = note_shards(&s, map, err);
    for (size_t i = 0; status == CKPT_OK && i < s.count; i++)
        status = read_shard(&s, s.names[i], err);
    if (status == CKPT_OK)
        status = check_map(&s, map, err);
    ckpt__arena_discharge(index->arena, s.capacity * sizeof *s.names);
    free(s.names);
    ckpt__hash_free(s.seen);
    return status;
}

ckpt_status ckpt__keras_read_directory(const ckpt__read_request *request, ckpt__index *index,
                                       ckpt__keras_values *values, ckpt_error *err)
{
    maps m = {.count = 0};
    index->kind = "directory";
    ckpt_status status = ckpt__source_each(request->source, "", see, &m, err);
    if (status < 0)
        return status;
    return m.count || !m.weights ? read_shards(request, index, values, err) : read_members(request, index, values, err);
}

ckpt_status ckpt__keras_read_map(const ckpt__read_request *request, ckpt__index *index, ckpt__keras_values *values,
                                 ckpt_error *err)
{
    ckpt_status status = ckpt__source_open_around(request->source, err);
    return status == CKPT_OK ? read_shards(request, index, values, err) : status;
}
