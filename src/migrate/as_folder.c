/* migrate/as_folder.c - a directory of several files as a directory that its own program reads again: torch files in torch's
 * format, safetensors in theirs, all else byte for byte. What nothing has changed in is copied, too. */
#include "migrate/same.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/folder/folder.h"
#include "format/table.h"

typedef ckpt__same_part part;
typedef ckpt__same same;

/* ---- the parts */

static ckpt_status part_at(same *s, ckpt_str name, size_t *number)
{
    int put = ckpt__hash_put(s->by_name, name.data, name.size, s->count, number);
    if (put < 0 || !ckpt__grow(&s->parts, &s->capacity, s->count + 1, sizeof *s->parts))
        return ckpt__migration_no_memory(s->err);
    if (put == 0)
        return CKPT_OK;
    *number = s->count;
    s->parts[s->count++] = (part){.name = name};
    return CKPT_OK;
}

/* Options that may change a torch file in other places than its tensors. */
static bool edits_values(const ckpt__migration *m)
{
    const ckpt_migrate_options *o = &m->options;
    return ckpt__selects(m) || o->strip_prefix_count || o->rename_count || o->add_prefix || o->plain ||
           o->map_device_objects || o->param_name_count || o->salvage || m->kind != CKPT_OPTIMIZER_DEFAULT || m->place;
}

static bool same_tag(ckpt_str a, ckpt_str b)
{
    return a.data && b.data ? ckpt__str_equal(a, b) : a.data == b.data;
}

static ckpt_status find_parts(same *s)
{
    const ckpt__index *from = s->m->from, *to = s->m->index;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < from->tensor_count; i++) {
        ckpt_str file = from->tensors[i].info.file;
        s->part_of[i] = SIZE_MAX;
        if (!file.data)
            continue;
        status = part_at(s, file, &s->part_of[i]);
        if (status < 0)
            break;
        part *p = &s->parts[s->part_of[i]];
        bool more = ckpt__stays_behind(s->m, i) || s->m->ledger.rows[i].own != CKPT__OWN_NONE;
        p->changed |= more || !same_tag(from->tensors[i].info.device, to->tensors[i].info.device);
        p->other |= more;
    }
    for (size_t i = 0; status == CKPT_OK && i < s->m->storages; i++) {
        uint32_t file = from->storages[i].extent.file;
        size_t number;
        if (same_tag(from->storages[i].device, to->storages[i].device) || file >= s->m->reader->source->count)
            continue;
        const char *name = s->m->reader->source->files[file].name;
        if (ckpt__hash_get(s->by_name, name, strlen(name), &number))
            s->parts[number].changed = true;
    }
    return status;
}

/* What --rank-state has left out is not copied; a file that it has given another name is written under that. */
static ckpt_status find_rank_files(same *s)
{
    for (size_t i = 0; i < s->m->rank_file_count; i++) {
        const ckpt__rank_file_name *f = &s->m->rank_files[i];
        size_t number;
        const bool moved = f->is.data && !ckpt__str_equal(f->is, f->was);
        if (f->is.data && !moved)
            continue;
        if (ckpt__hash_put(s->away, f->was.data, f->was.size, 0, NULL) < 0)
            return ckpt__migration_no_memory(s->err);
        if (!moved)
            continue;
        ckpt_status status = part_at(s, f->was, &number);
        if (status < 0)
            return status;
        s->parts[number].called = f->is;
        s->parts[number].changed = s->parts[number].other = true;
        if (ckpt__hash_put(s->by_name, f->is.data, f->is.size, number, NULL) < 0)
            return ckpt__migration_no_memory(s->err);
    }
    return CKPT_OK;
}

/* m->chosen by parts, in the order that they have there. */
static ckpt_status sort_chosen(same *s)
{
    ckpt__migration *m = s->m;
    size_t *sorted = calloc(m->chosen_count + 1, sizeof *sorted), at = 0;
    if (!sorted)
        return ckpt__migration_no_memory(s->err);
    for (size_t k = 0; k < m->chosen_count; k++)
        if (s->part_of[m->chosen[k]] != SIZE_MAX)
            s->parts[s->part_of[m->chosen[k]]].count++;
    for (size_t p = 0; p < s->count; p++) {
        s->parts[p].first = at;
        at += s->parts[p].count;
        s->parts[p].count = 0;
    }
    for (size_t k = 0; k < m->chosen_count; k++) {
        size_t p = s->part_of[m->chosen[k]];
        if (p != SIZE_MAX)
            sorted[s->parts[p].first + s->parts[p].count++] = m->chosen[k];
    }
    free(m->chosen);
    m->chosen = sorted;
    m->chosen_count = at;
    return CKPT_OK;
}

static ckpt_status find_format(same *s, part *p)
{
    ckpt__read_request q = {.source = s->m->reader->source};
    ckpt_status status = ckpt__source_add(q.source, p->name.data, &q.file, s->err);
    return status == CKPT_OK ? ckpt__format_choose(&q, &p->format, s->err) : status;
}

/* ---- one member */

static ckpt__out_file *add_file(same *s, const part *p)
{
    ckpt__out_file *f = ckpt__out_add(s->w, p->called.data ? p->called.data : p->name.data);
    if (!f)
        return NULL;
    f->format = p->format;
    f->first = p->first;
    f->count = p->count;
    return f;
}

/* Names in a file of weights are the keys that its tensors have in the tree now. */
static void find_renamed(same *s, const ckpt_value *dict)
{
    const ckpt__migration *m = s->m;
    for (size_t i = 0; i < dict->entry_count; i++) {
        const ckpt_entry *e = &dict->entries[i];
        if (e->value->kind != CKPT_V_TENSOR || e->key->kind != CKPT_V_STR || e->value->tensor >= m->from->tensor_count)
            continue;
        size_t n = e->value->tensor, p = s->part_of[n];
        if (p == SIZE_MAX)
            continue;
        if (!ckpt__str_equal(m->from->tensors[n].info.name, e->key->text))
            s->parts[p].changed = s->parts[p].other = true;
    }
}

/* The part of a model's dict that lies in one shard. */
static const ckpt_value *dict_of_part(same *s, const ckpt_value *dict, size_t number)
{
    ckpt__arena *a = s->m->index->arena;
    ckpt_entry *entries = ckpt__arena_array(a, dict->entry_count + 1, sizeof *entries);
    size_t n = 0;
    for (size_t i = 0; entries && i < dict->entry_count; i++) {
        const ckpt_value *v = dict->entries[i].value;
        if (v->kind == CKPT_V_TENSOR && v->tensor < s->m->from->tensor_count && s->part_of[v->tensor] == number)
            entries[n++] = dict->entries[i];
    }
    return entries ? ckpt__value_dict(a, entries, n) : NULL;
}

/* Of a value beside the tensors the dict does not tell which shard has it. */
static ckpt_status check_values(const same *s, const ckpt_value *dict, const part *p)
{
    char key[160];
    for (size_t i = 0; i < dict->entry_count; i++) {
        const ckpt_entry *e = &dict->entries[i];
        if (e->value->kind == CKPT_V_TENSOR || e->key->kind != CKPT_V_STR || ckpt__str_is(e->key->text, "__metadata__"))
            continue;
        return ckpt__fail(
            s->err, CKPT_E_UNSUPPORTED, p->name.data,
            "it is to be changed, and its model in shards has more than tensors: '%s' is a %s. Which shard "
            "has it is not known, so none is written again. --to torch and --to ckpt write one file of all",
            ckpt__escape(key, sizeof key, e->key->text.data, e->key->text.size), ckpt_kind_name(e->value->kind));
    }
    return CKPT_OK;
}

/* Its tensors' names become those of the file; only then, for the plan shows the others. */
static void set_names(same *s, const ckpt_value *dict, size_t number)
{
    for (size_t i = 0; i < dict->entry_count; i++) {
        const ckpt_value *v = dict->entries[i].value;
        if (v->kind == CKPT_V_TENSOR && v->tensor < s->m->from->tensor_count && s->part_of[v->tensor] == number)
            s->m->index->tensors[v->tensor].info.name = dict->entries[i].key->text;
    }
}

/* {"__metadata__": ...} of a file that is not in shards. */
static const ckpt_value *metadata_of(same *s, const ckpt_value *dict)
{
    const ckpt_entry *meta = ckpt__find_entry(dict, "__metadata__");
    return ckpt__value_dict(s->m->index->arena, meta, meta ? 1 : 0);
}

static ckpt_status write_part(same *s, size_t number, const ckpt_value *value, bool whole)
{
    part *p = &s->parts[number];
    ckpt_status status = find_format(s, p);
    if (status < 0)
        return status;
    bool flat = p->format && p->format->weights_alone;
    bool torch = p->format && p->format->torch_loads;
    if (!p->changed && (flat || !torch || !edits_values(s->m)))
        return CKPT_OK; /* copied with all else */
    if (!flat && !torch)
        return ckpt__fail(
            s->err, CKPT_E_UNSUPPORTED, p->name.data,
            "what is asked for would change this file, which is of format %s: only torch and safetensors are "
            "written again. Rules that leave its tensors as they are (cuda:*=cuda:1) copy it",
            p->format ? p->format->name : "unknown");
    if (p->format->rewritten_as)
        p->format = p->format->rewritten_as;
    if (torch && !whole && (status = check_values(s, value, p)) < 0)
        return status;
    const ckpt_value *root = whole ? value : dict_of_part(s, value, number);
    if (flat) {
        set_names(s, value, number);
        root = metadata_of(s, value);
    }
    if (flat && !whole && (status = ckpt__same_metadata(s, p, &root)) < 0)
        return status;
    ckpt__out_file *f = root ? add_file(s, p) : NULL;
    if (!f)
        return ckpt__migration_no_memory(s->err);
    f->root = root;
    return CKPT_OK;
}

/* One entry of the root: a file, or the shards that an index file names. */
static ckpt_status write_entry(same *s, const ckpt_entry *e)
{
    const char *name = e->key->text.data;
    size_t number;
    bool other = false, any = false;
    ckpt_status status = CKPT_OK;
    if (ckpt__hash_get(s->by_name, name, e->key->text.size, &number)) {
        if (e->value->kind == CKPT_V_DICT && ckpt__ends(name, ".safetensors"))
            find_renamed(s, e->value);
        return write_part(s, number, e->value, true);
    }
    bool shards = ckpt__ends(name, ".json") && strstr(name, ".index.") != NULL;
    if (e->value->kind != CKPT_V_DICT)
        return CKPT_OK;
    find_renamed(s, e->value);
    bool *of = calloc(s->count + 1, sizeof *of);
    if (!of)
        return ckpt__migration_no_memory(s->err);
    for (size_t i = 0; i < e->value->entry_count; i++) {
        const ckpt_value *v = e->value->entries[i].value;
        if (v->kind == CKPT_V_TENSOR && v->tensor < s->m->from->tensor_count && s->part_of[v->tensor] != SIZE_MAX)
            any = of[s->part_of[v->tensor]] = true;
    }
    for (size_t p = 0; status == CKPT_OK && p < s->count; p++) {
        if (!of[p])
            continue;
        status = write_part(s, p, e->value, false);
        other |= s->parts[p].other;
    }
    free(of);
    if (!shards && !any)
        return status; /* a configuration: no tensor of it lies in shards */
    return status == CKPT_OK ? ckpt__same_index(s, e, shards, other) : status;
}

/* A file without tensors (a scheduler's): written again where something in it may have changed. */
static ckpt_status write_values(same *s, const ckpt_entry *e)
{
    ckpt_str name = e->key->text;
    size_t number;
    if (ckpt__hash_get(s->by_name, name.data, name.size, &number) || !edits_values(s->m) ||
        ckpt__ends(name.data, ".json") || ckpt__ends(name.data, ".safetensors"))
        return write_entry(s, e);
    ckpt__read_request q = {.source = s->m->reader->source};
    const ckpt__format *format = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    bool torch = ckpt__source_add(q.source, name.data, &q.file, &why) == CKPT_OK &&
                 ckpt__format_choose(&q, &format, &why) == CKPT_OK && format && format->torch_loads;
    if (!torch)
        return write_entry(s, e);
    ckpt__out_file *f = ckpt__out_add(s->w, name.data);
    if (!f)
        return ckpt__migration_no_memory(s->err);
    f->format = format->rewritten_as ? format->rewritten_as : format;
    f->root = e->value;
    return CKPT_OK;
}

/* ---- all other files */

/* The listing of one folder of the source. */
typedef struct lister {
    ckpt__out *w;
    const char *folder; /* "": the top */
    bool carry;         /* only what ckpt__is_carried, at the top */
    size_t left;        /* how many folders stay behind */
    ckpt__hash *there;  /* names that are written, or that have to stay away */
} lister;

/* A file that tensors are read from, or a folder: a distributed checkpoint, of a run with FSDP. from NULL: it was forgotten. */
static bool is_read(const ckpt__index *from, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; from && i < from->tensor_count; i++) {
        const ckpt_str file = from->tensors[i].info.file;
        if (file.data && file.size == n && memcmp(file.data, name, n) == 0)
            return true;
    }
    return false;
}

bool ckpt__is_carried(const ckpt__index *from, const char *name)
{
    int64_t number;
    bool exact;
    ckpt__part is = ckpt__part_of(name, &number, &exact);
    if (strchr(name, '/') || strcmp(name, "adapter_config.json") == 0 || ckpt__format_owned(from, name) ||
        is_read(from, name))
        return false;
    return is == CKPT__PART_NONE || is == CKPT__PART_CONFIG;
}

static ckpt_status see_file(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    lister *l = ctx;
    ckpt__out *w = l->w;
    char path[1024];
    size_t skip = *l->folder == 0;
    int n = snprintf(path, sizeof path, "%s/%s", l->folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return ckpt__fail(err, CKPT_E_LIMIT, w->m->src, "the path of a file in it has over %zu bytes", sizeof path - 1);
    if (l->carry && (folder || !ckpt__is_carried(w->m->from, name))) {
        l->left += folder && !is_read(w->m->from, name);
        return CKPT_OK;
    }
    const char *kept = ckpt__arena_copy(w->m->index->arena, path + skip, strlen(path + skip));
    int put = kept ? ckpt__hash_put(l->there, kept, strlen(kept), 0, NULL) : -1;
    if (put <= 0)
        return put < 0 ? ckpt__migration_no_memory(err) : CKPT_OK;
    if (folder) {
        if (!ckpt__grow(&w->folders, &w->folder_capacity, w->folder_count + 1, sizeof *w->folders))
            return ckpt__migration_no_memory(err);
        if (w->folder_count >= 1000)
            return ckpt__fail(err, CKPT_E_LIMIT, w->m->src,
                              "it holds more than 1000 folders, which no checkpoint does");
        w->folders[w->folder_count++] = kept;
        return CKPT_OK;
    }
    ckpt__out_file *f = ckpt__out_add(w, kept);
    if (!f)
        return ckpt__migration_no_memory(err);
    f->copy = true;
    f->from = root;
    return CKPT_OK;
}

/* A copy of the model that its program does not load (pytorch_model.bin beside model.safetensors) stays as it is. */
static ckpt_status note_unread(const ckpt__out *w, ckpt_error *err)
{
    const ckpt_report *said = w->m->from->findings;
    const bool edits = edits_values(w->m) || w->m->options.cast_count || w->m->map;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; edits && status == CKPT_OK && i < ckpt_report_count(said); i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        if (strcmp(f->code, "file-ignored") == 0)
            status = ckpt__migration_note(w->m, CKPT_SEVERITY_WARNING, "copied-unread", ckpt__s(f->file), err,
                                          "is copied as it is: no part of the checkpoint is read from it");
    }
    return status;
}

static ckpt_status list_files(lister *l)
{
    ckpt__out *w = l->w;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        if (w->files[i].name && ckpt__hash_put(l->there, w->files[i].name, strlen(w->files[i].name), 0, NULL) < 0)
            status = ckpt__migration_no_memory(w->err);
    l->folder = "";
    if (status == CKPT_OK)
        status = ckpt__source_each(w->m->reader->source, "", see_file, l, w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->folder_count; i++) {
        l->folder = w->folders[i];
        status = ckpt__source_each(w->m->reader->source, l->folder, see_file, l, w->err);
    }
    return status;
}

/* What the tensors are read from stays away, whatever its name. */
static ckpt_status leave_read(const ckpt__out *w, ckpt__hash *there)
{
    const ckpt__source *source = w->m->reader->source;
    for (size_t i = 0; i < w->m->from->storage_count; i++) {
        const ckpt__extent *e = &w->m->from->storages[i].extent;
        if (e->memory || e->file >= source->count)
            continue;
        const char *name = source->files[e->file].name;
        if (name && ckpt__hash_put(there, name, strlen(name), 0, NULL) < 0)
            return ckpt__migration_no_memory(w->err);
    }
    return CKPT_OK;
}

ckpt_status ckpt__carry_files(ckpt__out *w)
{
    lister l = {.w = w, .carry = true, .there = ckpt__hash_new(64)};
    ckpt_status status = l.there ? leave_read(w, l.there) : ckpt__migration_no_memory(w->err);
    if (status == CKPT_OK)
        status = list_files(&l);
    const bool weights = !w->m->as || w->m->hf; /* else the folders may be those that the optimizer is read from */
    if (status == CKPT_OK && l.left && weights)
        status =
            ckpt__migration_note(w->m, CKPT_SEVERITY_NOTE, "left-out", (ckpt_str){NULL, 0}, w->err,
                                 "%zu folders of the source stay behind: no weights of this model are in them", l.left);
    ckpt__hash_free(l.there);
    return status;
}

/* Salvage: what could not be read is damaged (not-recovered), and does not go along as if it were not. */
static ckpt_status leave_damaged(const ckpt__out *w, ckpt__hash *there)
{
    const ckpt__migration *m = w->m;
    const ckpt_report *said = m->from->findings;
    for (size_t i = 0; m->options.salvage && i < ckpt_report_count(said); i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        if (strcmp(f->code, "member-damaged") != 0 || !f->file[0] ||
            (ckpt__ends(f->file, ".json") && !strstr(f->file, ".index.")))
            continue;
        if (ckpt__hash_put(there, f->file, strlen(f->file), 0, NULL) < 0)
            return ckpt__migration_no_memory(w->err);
    }
    return CKPT_OK;
}

ckpt_status ckpt__same_files(ckpt__out *w)
{
    ckpt__migration *m = w->m;
    const ckpt_value *root = m->root;
    same s = {.w = w, .m = m, .by_name = ckpt__hash_new(64), .away = ckpt__hash_new(64), .err = w->err};
    lister l = {.w = w, .there = s.away};
    s.part_of = calloc(m->from->tensor_count + 1, sizeof *s.part_of);
    ckpt_status status = s.by_name && s.away && s.part_of ? find_parts(&s) : ckpt__migration_no_memory(s.err);
    if (status == CKPT_OK)
        status = find_rank_files(&s);
    if (status == CKPT_OK)
        status = sort_chosen(&s);
    if (status == CKPT_OK)
        status = ckpt__same_leave(&s);
    for (size_t i = 0; status == CKPT_OK && root && i < root->entry_count; i++)
        if (root->entries[i].key->kind == CKPT_V_STR)
            status = write_values(&s, &root->entries[i]);
    if (status == CKPT_OK)
        status = ckpt__migration_apply(m, w->err);
    if (status == CKPT_OK)
        status = leave_damaged(w, l.there);
    if (status == CKPT_OK)
        status = list_files(&l);
    if (status == CKPT_OK)
        status = note_unread(w, w->err);
    ckpt__hash_free(s.by_name);
    ckpt__hash_free(s.away);
    free(s.part_of);
    free(s.parts);
    return status;
}
