/* migrate/same_shards.c - --to same: the shards of a model that stay away, and the index file that names the others. */
#include "migrate/same.h"

#include <stdlib.h>
#include "codec/json.h"
#include "format/folder/folder.h"

typedef ckpt__same same;
typedef ckpt__same_part part;

static const uint64_t index_max = (uint64_t)128 << 20;

/* ---- shards that stay away */

static ckpt_status note_left(same *s, ckpt_str name, const char *text)
{
    if (ckpt__hash_put(s->away, name.data, name.size, 0, NULL) < 0)
        return ckpt__migration_no_memory(s->err);
    return ckpt__migration_note(s->m, CKPT_SEVERITY_NOTE, "left-out", name, s->err, "%s", text);
}

ckpt_status ckpt__same_leave(same *s)
{
    const ckpt__migration *m = s->m;
    ckpt_status status = CKPT_OK;
    for (size_t p = 0; status == CKPT_OK && p < s->count; p++) {
        part *one = &s->parts[p];
        if (one->count || !one->changed || !m->root || ckpt__find_entry(m->root, one->name.data))
            continue; /* a file that is no shard is written, be it empty: its program asks for it by name */
        if (ckpt__hash_get(s->away, one->name.data, one->name.size, NULL))
            continue; /* --rank-state has said so */
        one->left = true;
        s->left++;
        status = note_left(s, one->name, "is not written, and no index names it: all its tensors stay behind");
    }
    const bool damaged = ckpt__ledger_count(&m->ledger, CKPT__FATE_NOT_RECOVERED) > 0;
    if (status == CKPT_OK && s->left && s->left == s->count)
        return ckpt__fail(s->err, damaged ? CKPT_E_DAMAGED : CKPT_E_ARGUMENT, m->src,
                          "nothing is left of this checkpoint: none of its %zu tensors is kept; %s",
                          m->from->tensor_count,
                          damaged ? "use an earlier checkpoint" : "leave out fewer, so that at least one does");
    return status;
}

/* ---- shards that are written again */

ckpt_status ckpt__same_metadata(same *s, const part *p, const ckpt_value **root)
{
    ckpt__arena *a = s->m->index->arena;
    ckpt__index *own = NULL;
    ckpt__read_request q = {.source = s->m->reader->source, .salvage = s->m->options.salvage};
    ckpt_status status = ckpt__source_add(q.source, p->name.data, &q.file, s->err);
    if (status == CKPT_OK)
        status = p->format->read(&q, &own, s->err);
    if (status < 0)
        return status;
    const ckpt_entry *had = own->root ? ckpt__find_entry(own->root, "__metadata__") : NULL;
    size_t count = had ? had->value->entry_count : 0;
    ckpt_entry *entries = ckpt__arena_array(a, count + 1, sizeof *entries), one = {0};
    for (size_t i = 0; entries && i < count; i++) {
        ckpt_str key = had->value->entries[i].key->text, value = had->value->entries[i].value->text;
        entries[i].key = ckpt__value_str(a, key.data, key.size);
        entries[i].value = ckpt__value_str(a, value.data, value.size);
        if (!entries[i].key || !entries[i].value)
            entries = NULL;
    }
    one.key = ckpt__value_str(a, "__metadata__", 12);
    one.value = entries ? ckpt__value_dict(a, entries, count) : NULL;
    *root = one.key && one.value ? ckpt__value_dict(a, &one, had ? 1 : 0) : NULL;
    ckpt__index_free(own);
    return *root ? CKPT_OK : ckpt__migration_no_memory(s->err);
}

/* ---- the index file */

/* What the index file of the source says. */
typedef struct index_file {
    ckpt__buf text;    /* owned: the file */
    ckpt_str metadata; /* its object of this name, in `text`. data NULL: there is none */
    size_t tensors;    /* in the weight_map */
    bool left;         /* a shard that it names is left */
    bool *of;          /* heap, one a part: the weight_map names it */
} index_file;

/* The shards that the weight_map names; names with slashes are below the folder that the index file is in. */
static ckpt_status read_map(same *s, ckpt__json *j, ckpt_str folder, index_file *x)
{
    ckpt__buf key_text = {0}, file_text = {0}, path = {0};
    ckpt_str key, file;
    size_t number;
    int more = 1;
    ckpt_status status = ckpt__json_expect(j, CKPT__JSON_OBJECT, s->err);
    while (status == CKPT_OK && (more = ckpt__json_member(j, &key_text, &key, s->err)) > 0) {
        status = ckpt__json_string(j, &file_text, &file, s->err);
        if (status < 0)
            break;
        path.size = 0;
        ckpt__buf_add(&path, folder.data, folder.size);
        ckpt__buf_add(&path, file.data, file.size);
        if (path.failed)
            status = ckpt__migration_no_memory(s->err);
        else if (ckpt__hash_get(s->by_name, path.data, path.size, &number))
            x->of[number] = true;
        x->tensors++;
    }
    ckpt__buf_free(&key_text);
    ckpt__buf_free(&file_text);
    ckpt__buf_free(&path);
    return more < 0 ? (ckpt_status)more : status;
}

/* The reader has seen that it is one. */
static ckpt_status read_index(same *s, const char *name, index_file *x)
{
    const char *slash = strrchr(name, '/');
    const ckpt_str folder = {name, slash ? (size_t)(slash + 1 - name) : 0};
    ckpt__source *source = s->m->reader->source;
    ckpt__buf scratch = {0};
    ckpt_str key;
    uint32_t file;
    int more = 1;
    ckpt__json *j = malloc(sizeof *j);
    x->of = calloc(s->count + 1, sizeof *x->of);
    ckpt_status status = j && x->of ? ckpt__source_add(source, name, &file, s->err) : ckpt__migration_no_memory(s->err);
    if (status == CKPT_OK)
        status = ckpt__source_slurp(source, file, index_max, &x->text, s->err);
    if (status == CKPT_OK) {
        ckpt__json_start(j, x->text.data, x->text.size, CKPT__JSON_DEPTH, name);
        status = ckpt__json_expect(j, CKPT__JSON_OBJECT, s->err);
    }
    while (status == CKPT_OK && (more = ckpt__json_member(j, &scratch, &key, s->err)) > 0) {
        bool metadata = ckpt__str_is(key, "metadata");
        status = ckpt__str_is(key, "weight_map") ? read_map(s, j, folder, x)
                                                 : ckpt__json_skip(j, metadata ? &x->metadata : NULL, s->err);
    }
    for (size_t p = 0; status == CKPT_OK && p < s->count; p++)
        x->left = x->left || (x->of[p] && s->parts[p].left);
    ckpt__buf_free(&scratch);
    free(j);
    return more < 0 ? (ckpt_status)more : status;
}

/* What a model has, or had: bytes, tensors, and elements as programs count parameters. */
typedef struct totals {
    uint64_t bytes, elements;
    size_t tensors;
} totals;

static void count_tensor(totals *t, const ckpt_tensor_info *info)
{
    uint64_t elements = 0;
    (void)ckpt__numel(info->shape, info->ndim, &elements); /* the reader has seen that it fits */
    t->elements += elements;
    t->bytes += info->nbytes;
    t->tensors++;
}

/* transformers 5 counts the elements of what it saves. What else the number may be (without buffers), the tensors do not say, and
 * where some are gone it is not that. */
static ckpt_status put_parameters(same *s, ckpt_str name, ckpt_str text, const index_file *x, const totals *now,
                                  ckpt__buf *out)
{
    int64_t stated = 0;
    totals was = {0};
    const ckpt__index *from = s->m->from;
    for (size_t i = 0; i < from->tensor_count; i++)
        if (s->part_of[i] != SIZE_MAX && x->of[s->part_of[i]])
            count_tensor(&was, &from->tensors[i].info);
    bool all = now->tensors == x->tensors;
    if (!all && !(ckpt__parse_i64(text.data, text.size, &stated) && stated >= 0 && (uint64_t)stated == was.elements))
        return ckpt__migration_note(
            s->m, CKPT_SEVERITY_NOTE, "left-out", name, s->err,
            "its total_parameters is not written: tensors stay behind, and %llu elements in the "
            "source's shards do not say what it counted",
            (unsigned long long)was.elements);
    ckpt__buf_str(out, "    \"total_parameters\": ");
    if (all)
        ckpt__buf_add(out, text.data, text.size);
    else
        ckpt__json_put_u64(out, now->elements);
    ckpt__buf_str(out, ",\n");
    return CKPT_OK;
}

static ckpt_str trimmed(ckpt_str text)
{
    while (text.size && strchr(" \t\r\n", text.data[0])) {
        text.data++;
        text.size--;
    }
    while (text.size && strchr(" \t\r\n", text.data[text.size - 1]))
        text.size--;
    return text;
}

/* The members of the source's metadata as they are, but for what counts: lines that end in commas. */
static ckpt_status put_metadata(same *s, ckpt_str name, const index_file *x, const totals *now, ckpt__buf *out)
{
    ckpt__buf scratch = {0}, line = {0};
    ckpt_str key, value, metadata = trimmed(x->metadata);
    int more = 1;
    if (!metadata.size || metadata.data[0] != '{')
        return CKPT_OK;
    ckpt__json *j = malloc(sizeof *j);
    ckpt_status status = j ? CKPT_OK : ckpt__migration_no_memory(s->err);
    if (j) {
        ckpt__json_start(j, metadata.data, metadata.size, CKPT__JSON_DEPTH, name.data);
        status = ckpt__json_expect(j, CKPT__JSON_OBJECT, s->err);
    }
    while (status == CKPT_OK && (more = ckpt__json_member(j, &scratch, &key, s->err)) > 0) {
        bool total = ckpt__str_is(key, "total_size"), parameters = ckpt__str_is(key, "total_parameters");
        line.size = 0;
        ckpt__buf_str(&line, "    ");
        ckpt__json_put_string(&line, key.data, key.size);
        ckpt__buf_str(&line, ": ");
        status = ckpt__json_skip(j, &value, s->err);
        if (status < 0 || total)
            continue;
        value = trimmed(value);
        if (parameters)
            status = put_parameters(s, name, value, x, now, out);
        else {
            ckpt__buf_add(&line, value.data, value.size);
            ckpt__buf_str(&line, ",\n");
            ckpt__buf_add(out, line.data, line.size);
            out->failed |= line.failed;
        }
    }
    ckpt__buf_free(&line);
    ckpt__buf_free(&scratch);
    free(j);
    return more < 0 ? (ckpt_status)more : status;
}

/* The index of shards with the names that are there now. `x`: what it was; NULL: it was none. */
static ckpt_status write_index(same *s, const char *name, const ckpt_value *dict, const index_file *x)
{
    ckpt__out_file *f = ckpt__out_add(s->w, name); /* keeps the name */
    const ckpt__migration *m = s->m;
    totals now = {0};
    const char *slash = strrchr(name, '/');
    size_t skip = slash ? (size_t)(slash + 1 - name) : 0;
    bool first = true;
    if (!f)
        return ckpt__migration_no_memory(s->err);
    for (size_t i = 0; i < dict->entry_count; i++)
        if (dict->entries[i].value->kind == CKPT_V_TENSOR)
            count_tensor(&now, &m->index->tensors[dict->entries[i].value->tensor].info);
    ckpt__buf_str(&f->text, "{\n  \"metadata\": {\n");
    ckpt_status status = x ? put_metadata(s, ckpt__s(name), x, &now, &f->text) : CKPT_OK;
    if (status < 0)
        return status;
    ckpt__buf_str(&f->text, "    \"total_size\": ");
    ckpt__json_put_u64(&f->text, now.bytes);
    ckpt__buf_str(&f->text, "\n  },\n  \"weight_map\": {");
    for (size_t i = 0; i < dict->entry_count; i++) {
        const ckpt_entry *e = &dict->entries[i];
        if (e->value->kind != CKPT_V_TENSOR || e->key->kind != CKPT_V_STR)
            continue;
        ckpt_str file = m->from->tensors[e->value->tensor].info.file;
        ckpt__buf_str(&f->text, first ? "\n    " : ",\n    ");
        ckpt__json_put_string(&f->text, e->key->text.data, e->key->text.size);
        ckpt__buf_str(&f->text, ": ");
        ckpt__json_put_string(&f->text, file.data + skip, file.size - skip);
        first = false;
    }
    ckpt__buf_str(&f->text, "\n  }\n}\n");
    return f->text.failed ? ckpt__migration_no_memory(s->err) : CKPT_OK;
}

static bool has_tensors(const ckpt_value *dict)
{
    for (size_t i = 0; i < dict->entry_count; i++)
        if (dict->entries[i].value->kind == CKPT_V_TENSOR)
            return true;
    return false;
}

/* An index that names nothing is left, too: transformers takes a model of which no weight is there for one that is whole. */
static ckpt_status renew_index(same *s, const ckpt_entry *e, bool changed)
{
    index_file x = {0};
    ckpt_status status = read_index(s, e->key->text.data, &x);
    if (status == CKPT_OK && x.left && !has_tensors(e->value))
        status = note_left(s, e->key->text, "is not written: no shard that it names is");
    else if (status == CKPT_OK && (changed || x.left))
        status = write_index(s, e->key->text.data, e->value, &x);
    ckpt__buf_free(&x.text);
    free(x.of);
    return status;
}

/* Shards without an index file are a model where all of them are there. */
static bool needs_index(const same *s, const char *stem)
{
    const ckpt_report *said = s->m->from->findings;
    bool lost = ckpt_report_count_code(said, "member-damaged") || ckpt_report_count_code(said, "shard-missing");
    char own[300];
    uint64_t number, count;
    if (s->m->options.salvage && lost)
        return true;
    for (size_t p = 0; p < s->count; p++)
        if (s->parts[p].left && ckpt__shard_of(s->parts[p].name.data, &number, &count, own, sizeof own) &&
            strcmp(own, stem) == 0)
            return true;
    return false;
}

ckpt_status ckpt__same_index(same *s, const ckpt_entry *e, bool has_index, bool changed)
{
    const char *name = e->key->text.data;
    bool lost = s->m->options.salvage && ckpt_report_count_code(s->m->from->findings, "shard-missing");
    if (has_index)
        return changed || lost || s->left ? renew_index(s, e, changed || lost) : CKPT_OK;
    if (!needs_index(s, name))
        return CKPT_OK;
    ckpt__buf own = {0};
    ckpt__buf_printf(&own, "%s.index.json", name);
    ckpt_status status = own.failed ? ckpt__migration_no_memory(s->err) : write_index(s, own.data, e->value, NULL);
    const ckpt_value *key = own.failed ? NULL : ckpt__value_str(s->m->from->arena, own.data, own.size);
    ckpt__buf_free(&own);
    return status == CKPT_OK ? ckpt__migration_replace(s->m, e->key, key, s->err) : status; /* as it is read back */
}
