/* format/folder/hf.c - a model in shards. The index file (hf_index.c) says which tensor is in which file; shards are safetensors
 * or torch files that hold a flat dict (huggingface_hub: serialization; transformers and diffusers: save_pretrained). */
#include "format/folder/hf.h"
#include "format/survey.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t index_max = (uint64_t)128 << 20;

typedef ckpt__hf_shard shard;
typedef ckpt__hf sharded;

ckpt_status ckpt__hf_no_memory(const sharded *s, ckpt_error *err)
{
    return ckpt__fail_memory(err, s->label, s->count);
}

/* ---- the shards */

/* Why a shard is not read: in a survey a finding, and its tensors are not asked for; else the error. */
static ckpt_status pass_shard(sharded *s, size_t number, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    char name[300];
    ckpt_str own = s->shards[number].name;
    if (s->r->request->survey && ckpt__survey_passes(status)) {
        s->shards[number].missing = true;
        return ckpt__survey_note(s->r->index->findings, ckpt__escape(name, sizeof name, own.data, own.size), status,
                                 why, err);
    }
    if (err)
        *err = *why;
    return status;
}

/* One of them is not there. */
static ckpt_status lose(sharded *s, size_t number, ckpt_error *err)
{
    char name[300];
    shard *sh = &s->shards[number];
    ckpt_error why = CKPT_ERROR_INIT;
    sh->missing = true;
    if (s->r->request->salvage)
        return CKPT_OK;
    ckpt__fail(&why, CKPT_E_DAMAGED, s->label,
               "the shard '%s' is missing, with %zu of the %zu tensors; copy it into the directory (ckpt-migrate "
               "--salvage keeps the others)",
               ckpt__escape(name, sizeof name, sh->name.data, sh->name.size), sh->tensors, s->count);
    return pass_shard(s, number, CKPT_E_DAMAGED, &why, err);
}

/* Salvage: one of them is damaged so that nothing of it is known. The others are read. */
static ckpt_status leave_out(sharded *s, size_t number, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    char name[300];
    shard *sh = &s->shards[number];
    if (status != CKPT_E_DAMAGED && status != CKPT_E_FORMAT && status != CKPT_E_LIMIT)
        return pass_shard(s, number, status, why, err);
    sh->missing = sh->unread = true;
    ckpt__escape(name, sizeof name, sh->name.data, sh->name.size);
    if (ckpt__report_add(s->r->index->findings, CKPT_SEVERITY_ERROR, "member-damaged", NULL, NULL, "%s is left out: %s",
                         name, why->message) &&
        ckpt__report_detail(s->r->index->findings, name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__hf_no_memory(s, err);
}

/* Salvage: the tensors of missing shards, by name. */
static ckpt_status note_lost(sharded *s, ckpt_error *err)
{
    char name[300];
    for (size_t i = 0; i < s->count; i++) {
        const shard *sh = &s->shards[s->tensors[i].shard];
        if (!sh->missing)
            continue;
        s->tensors[i].found = true;
        if (s->r->request->survey)
            continue; /* the shard is a finding */
        if (!ckpt__report_add(s->r->index->findings, CKPT_SEVERITY_ERROR, "shard-missing", s->tensors[i].name.data,
                              "copy the shard into the directory",
                              sh->unread ? "it is lost: its shard cannot be read"
                                         : "it is lost: its shard is not there") ||
            !ckpt__report_detail(s->r->index->findings, ckpt__escape(name, sizeof name, sh->name.data, sh->name.size),
                                 NULL, NULL, 0))
            return ckpt__hf_no_memory(s, err);
    }
    return CKPT_OK;
}

/* Salvage takes a shard's tensors where the index is wrong about them. */
static ckpt_status add_entry(sharded *s, const ckpt_entry *entry, ckpt_error *err)
{
    if (!ckpt__grow(&s->entries, &s->entry_capacity, s->entry_count + 1, sizeof *s->entries))
        return ckpt__hf_no_memory(s, err);
    s->entries[s->entry_count++] = *entry;
    return CKPT_OK;
}

/* A tensor of a shard against the map. */
static ckpt_status place(sharded *s, size_t number, const ckpt_entry *entry, ckpt_error *err)
{
    char one[160], two[120], three[120];
    size_t i;
    ckpt_str key = entry->key->text, own = s->shards[number].name;
    bool salvage = s->r->request->salvage;
    if (!ckpt__hash_get(s->by_tensor, key.data, key.size, &i)) {
        if (salvage)
            return s->sorted ? CKPT_OK : add_entry(s, entry, err);
        return ckpt__fail(
            err, CKPT_E_FORMAT, s->label, "the shard '%s' holds the tensor '%s', which the weight_map does not name",
            ckpt__escape(two, sizeof two, own.data, own.size), ckpt__escape(one, sizeof one, key.data, key.size));
    }
    if (s->tensors[i].shard != number && !salvage) {
        ckpt_str other = s->shards[s->tensors[i].shard].name;
        return ckpt__fail(
            err, CKPT_E_FORMAT, s->label,
            "the tensor '%s' is in the shard '%s', and the weight_map puts it into '%s': shards of two saves are mixed",
            ckpt__escape(one, sizeof one, key.data, key.size), ckpt__escape(two, sizeof two, own.data, own.size),
            ckpt__escape(three, sizeof three, other.data, other.size));
    }
    s->tensors[i].found = true;
    if (!s->sorted)
        s->entries[i] = *entry;
    return CKPT_OK;
}

/* Adds the entries of a shard's dict to the model's; with an index in an order of its own, tensors have their places. */
static ckpt_status merge(sharded *s, size_t number, const ckpt_value *root, ckpt_error *err)
{
    char name[300];
    ckpt_status status = CKPT_OK;
    if (!root || root->kind != CKPT_V_DICT)
        return ckpt__fail(err, CKPT_E_FORMAT, s->label, "the shard '%s' holds no dict of tensors",
                          ckpt__escape(name, sizeof name, s->shards[number].name.data, s->shards[number].name.size));
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        if (e->key->kind != CKPT_V_STR || ckpt__str_is(e->key->text, "__metadata__"))
            continue;
        bool tensor = e->value->kind == CKPT_V_TENSOR;
        if (tensor && s->name && (status = place(s, number, e, err)) < 0)
            break;
        if (!tensor || s->sorted)
            status = add_entry(s, e, err);
    }
    return status;
}

/* Two shards without an index must not both hold a tensor. */
static ckpt_status check_twice(sharded *s, ckpt_error *err)
{
    char one[160];
    for (size_t i = 0; i < s->entry_count; i++) {
        ckpt_str key = s->entries[i].key->text;
        int put = ckpt__hash_put(s->by_tensor, key.data, key.size, i, NULL);
        if (put < 0)
            return ckpt__hf_no_memory(s, err);
        if (put == 0)
            return ckpt__fail(err, CKPT_E_FORMAT, s->label, "the tensor '%s' is in two of its shards",
                              ckpt__escape(one, sizeof one, key.data, key.size));
    }
    return CKPT_OK;
}

/* By the index, what it holds is in other shards, and nothing of its own is there. */
static bool is_astray(const sharded *s, size_t number, const ckpt_value *root)
{
    size_t at = 0, others = 0;
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key;
        if (key->kind != CKPT_V_STR || !ckpt__hash_get(s->by_tensor, key->text.data, key->text.size, &at))
            continue;
        if (s->tensors[at].shard == number)
            return false;
        others++;
    }
    return others > 0;
}

static ckpt_status read_shard(sharded *s, size_t number, ckpt_error *err)
{
    ckpt__index *part = NULL;
    uint32_t file;
    bool sorted;
    const char *name = s->shards[number].name.data;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__source_add(s->r->request->source, name, &file, &why);
    if (status < 0 && why.sys_errno == ENOENT)
        return lose(s, number, err);
    if (status == CKPT_OK)
        status = ckpt__folder_part(s->r, file, &part, &sorted, &why);
    if (status < 0)
        return s->r->request->salvage ? leave_out(s, number, status, &why, err)
                                      : pass_shard(s, number, status, &why, err);
    const ckpt_value *root = part->root;
    if (s->name && s->r->request->salvage &&
        is_astray(s, number, root)) { /* old values must not take the place of new ones */
        ckpt__index_free(part);
        ckpt__fail(&why, CKPT_E_DAMAGED, name,
                   "it is of another save: it holds tensors that the index puts elsewhere, and none of its own");
        return leave_out(s, number, CKPT_E_DAMAGED, &why, err);
    }
    status = ckpt__folder_absorb(s->r, part, name, sorted && s->sorted, err);
    if (status == CKPT_OK && (status = merge(s, number, root, &why)) < 0)
        status = pass_shard(s, number, status, &why, err);
    return status;
}

/* total_size counts the tensors, or what is stored where some share a storage; old programs counted tied ones twice. */
static ckpt_status check_total(sharded *s, size_t first_tensor, size_t first_storage, ckpt_error *err)
{
    const ckpt__index *x = s->r->index;
    uint64_t tensors = 0, storages = 0;
    bool missing = false;
    for (size_t i = 0; i < s->shard_count; i++)
        missing = missing || s->shards[i].missing;
    for (size_t i = first_tensor; i < x->tensor_count; i++)
        tensors += x->tensors[i].info.nbytes;
    for (size_t i = first_storage; i < x->storage_count; i++)
        storages += x->storages[i].extent.size;
    if (!s->has_total || missing ||
        (s->total >= 0 && ((uint64_t)s->total == tensors || (uint64_t)s->total == storages)))
        return CKPT_OK;
    if (ckpt__report_add(x->findings, CKPT_SEVERITY_WARNING, "total-size", NULL,
                         "compare the shards with where they were copied from",
                         "the index says that the tensors take %" PRId64
                         " bytes in all; those in the shards take %" PRIu64,
                         s->total, tensors) &&
        ckpt__report_detail(x->findings, s->name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__hf_no_memory(s, err);
}

static ckpt_status check_found(sharded *s, ckpt_error *err)
{
    char one[160], two[120];
    ckpt_error why = CKPT_ERROR_INIT;
    for (size_t i = 0; i < s->count; i++) {
        ckpt_str name = s->tensors[i].name, file = s->shards[s->tensors[i].shard].name;
        if (s->tensors[i].found || s->shards[s->tensors[i].shard].missing)
            continue;
        if (s->r->request->salvage &&
            (!ckpt__report_add(s->r->index->findings, CKPT_SEVERITY_ERROR, "shard-missing", name.data, NULL,
                               "it is lost: the shard that the index names for it is of another save") ||
             !ckpt__report_detail(s->r->index->findings, ckpt__escape(two, sizeof two, file.data, file.size), NULL,
                                  NULL, 0)))
            return ckpt__hf_no_memory(s, err);
        if (s->r->request->salvage)
            continue;
        ckpt__fail(
            &why, CKPT_E_DAMAGED, s->label,
            "the weight_map puts the tensor '%s' into the shard '%s', and it is not in it: the shard is of another "
            "save",
            ckpt__escape(one, sizeof one, name.data, name.size), ckpt__escape(two, sizeof two, file.data, file.size));
        ckpt_status status = pass_shard(s, s->tensors[i].shard, CKPT_E_DAMAGED, &why, err);
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

static int by_name(const void *x, const void *y)
{
    const shard *a = x, *b = y;
    return strcmp(a->name.data, b->name.data);
}

static ckpt_status put_model(sharded *s, const char *name, ckpt_error *err)
{
    size_t n = 0;
    ckpt__arena *a = s->r->index->arena;
    ckpt_value *dict = NULL;
    ckpt_entry *entries = ckpt__arena_array(a, s->entry_count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < s->entry_count; i++)
        if (s->entries[i].key) /* a place of what a missing shard held is empty */
            entries[n++] = s->entries[i];
    if (entries && (dict = ckpt__value_new(a, CKPT_V_DICT))) {
        dict->entries = entries;
        dict->entry_count = n;
    }
    return dict ? ckpt__folder_put(s->r, name, dict, err) : ckpt__hf_no_memory(s, err);
}

static ckpt_status start(sharded *s, ckpt_error *err)
{
    s->arena = ckpt__arena_new(0);
    s->by_tensor = ckpt__hash_new(64);
    s->by_file = ckpt__hash_new(16);
    s->sorted = true;
    return s->arena && s->by_tensor && s->by_file ? CKPT_OK : ckpt__hf_no_memory(s, err);
}

static void finish(sharded *s)
{
    ckpt__arena_free(s->arena);
    ckpt__hash_free(s->by_tensor);
    ckpt__hash_free(s->by_file);
    free(s->tensors);
    free(s->shards);
    free(s->entries);
}

/* Shards in the order of their names, which is the order of a torch model's own dict; each tensor's shard with them. */
static ckpt_status order_shards(sharded *s, ckpt_error *err)
{
    size_t n = s->shard_count;
    ckpt_str *before = calloc(n + 1, sizeof *before);
    size_t *after = calloc(n + 1, sizeof *after);
    bool ok = before && after;
    for (size_t i = 0; ok && i < n; i++)
        before[i] = s->shards[i].name;
    if (ok && n)
        qsort(s->shards, n, sizeof *s->shards, by_name);
    ckpt__hash *where = ok ? ckpt__hash_new(n) : NULL;
    ok = ok && where;
    for (size_t i = 0; ok && i < n; i++)
        ok = ckpt__hash_put(where, s->shards[i].name.data, s->shards[i].name.size, i, NULL) >= 0;
    for (size_t i = 0; ok && i < n; i++)
        (void)ckpt__hash_get(where, before[i].data, before[i].size, &after[i]);
    for (size_t i = 0; ok && i < s->count; i++)
        s->tensors[i].shard = (uint32_t)after[s->tensors[i].shard];
    ckpt__hash_free(where);
    free(before);
    free(after);
    return ok ? CKPT_OK : ckpt__hf_no_memory(s, err);
}

/* Names with slashes are below the folder that the index file is in. */
static ckpt_status prefix_shards(sharded *s, ckpt_error *err)
{
    const char *slash = strrchr(s->name, '/');
    size_t n = slash ? (size_t)(slash + 1 - s->name) : 0;
    for (size_t i = 0; i < s->shard_count; i++) {
        ckpt_str own = s->shards[i].name;
        char shown[160];
        if (own.size == 0 || own.data[0] == '/')
            return ckpt__fail(err, CKPT_E_FORMAT, s->label,
                              "its weight_map names the file '%s'; shards lie in the directory of the index file",
                              ckpt__escape(shown, sizeof shown, own.data, own.size));
        char *full = n ? ckpt__arena_alloc(s->arena, n + own.size + 1) : NULL;
        if (n && !full)
            return ckpt__hf_no_memory(s, err);
        if (!full)
            continue;
        memcpy(full, s->name, n);
        memcpy(full + n, own.data, own.size);
        s->shards[i].name = (ckpt_str){full, n + own.size};
    }
    return CKPT_OK;
}

static ckpt_status read_all(sharded *s, ckpt_error *err)
{
    ckpt__index *x = s->r->index;
    size_t first_tensor = x->tensor_count, first_storage = x->storage_count;
    ckpt_status status = CKPT_OK;
    /* Arrays that grow step by step leave their old places behind. Most tensors have a storage of their own. */
    if (!ckpt__grow(&x->storages, &x->storage_capacity, first_storage + s->count, sizeof *x->storages) ||
        !ckpt__grow(&x->tensors, &x->tensor_capacity, first_tensor + s->count, sizeof *x->tensors))
        return ckpt__hf_no_memory(s, err);
    if (s->name && !s->sorted) {
        if (!ckpt__grow(&s->entries, &s->entry_capacity, s->count + 1, sizeof *s->entries))
            return ckpt__hf_no_memory(s, err);
        memset(s->entries, 0, s->count * sizeof *s->entries);
        s->entry_count = s->count;
    }
    for (size_t i = 0; status == CKPT_OK && i < s->shard_count; i++)
        status = read_shard(s, i, err);
    if (status == CKPT_OK)
        status = note_lost(s, err);
    if (status == CKPT_OK)
        status = s->name ? check_found(s, err) : check_twice(s, err);
    return status == CKPT_OK ? check_total(s, first_tensor, first_storage, err) : status;
}

/* The index file, checked against itself. */
static ckpt_status read_index(sharded *s, uint32_t file, ckpt_error *err)
{
    ckpt__buf text = {0};
    ckpt_status status = ckpt__source_slurp(s->r->request->source, file, index_max, &text, err);
    if (status == CKPT_OK)
        status = ckpt__hf_parse_index(s, text.data, text.size, err);
    if (status < 0 && err && !err->object[0])
        ckpt__error_object(err, s->label);
    ckpt__buf_free(&text);
    return status == CKPT_OK ? prefix_shards(s, err) : status;
}

/* With salvage an index that is none is said, and the shards are read without it. */
static ckpt_status give_up(sharded *s, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    bool damage = status == CKPT_E_FORMAT || status == CKPT_E_DAMAGED || status == CKPT_E_LIMIT;
    if (s->r->request->survey && ckpt__survey_passes(status))
        return ckpt__survey_note(s->r->index->findings, s->name, status, why, err);
    if (!s->r->request->salvage || !damage) {
        if (err)
            *err = *why;
        return status;
    }
    if (ckpt__report_add(s->r->index->findings, CKPT_SEVERITY_ERROR, "member-damaged", NULL, NULL, "%s is left out: %s",
                         s->name, why->message) &&
        ckpt__report_detail(s->r->index->findings, s->name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__hf_no_memory(s, err);
}

ckpt_status ckpt__hf_check(ckpt__folder_reader *r, uint32_t file, const char *name, ckpt_error *err)
{
    sharded s = {.r = r, .name = name};
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__source_label(r->request->source, file, s.label, sizeof s.label);
    ckpt_status status = start(&s, err);
    if (status == CKPT_OK && (status = read_index(&s, file, &why)) < 0)
        status = give_up(&s, status, &why, err);
    finish(&s);
    return status;
}

ckpt_status ckpt__hf_shards(ckpt__folder_reader *r, uint32_t file, const char *name, ckpt_error *err)
{
    sharded s = {.r = r, .name = name};
    char *kept = strdup(name); /* adding files moves the names of those that are there */
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__source_label(r->request->source, file, s.label, sizeof s.label);
    s.name = kept;
    ckpt_status status = kept ? start(&s, err) : ckpt__hf_no_memory(&s, err);
    if (status == CKPT_OK && (status = read_index(&s, file, &why)) < 0) {
        status = give_up(&s, status, &why, err);
        r->bad_index = true;
        finish(&s);
        free(kept);
        return status;
    }
    if (status == CKPT_OK)
        status = order_shards(&s, err);
    if (status == CKPT_OK)
        status = read_all(&s, err);
    if (status == CKPT_OK)
        status = put_model(&s, kept, err);
    finish(&s);
    free(kept);
    return status;
}

/* ---- without an index file */

static ckpt_status add_loose(sharded *s, const ckpt__member *m, uint64_t *most, char *stem, size_t size,
                             ckpt_error *err)
{
    char own[300];
    uint64_t number, count;
    if (!ckpt__shard_of(m->name, &number, &count, own, sizeof own))
        return CKPT_OK;
    if (s->shard_count == 0) {
        snprintf(stem, size, "%s", own);
        *most = count;
    }
    if (count != *most || strcmp(stem, own) != 0)
        return ckpt__fail(err, CKPT_E_FORMAT, s->label,
                          "it has shards of several models ('%s' and '%s'), and no index file that names them",
                          s->shards[0].name.data, m->name);
    ckpt_str name = ckpt__arena_str(s->arena, m->name, strlen(m->name));
    if (!name.data || !ckpt__grow(&s->shards, &s->shard_capacity, s->shard_count + 1, sizeof *s->shards))
        return ckpt__hf_no_memory(s, err);
    s->shards[s->shard_count++] = (shard){.name = name};
    return CKPT_OK;
}

ckpt_status ckpt__hf_loose_shards(ckpt__folder_reader *r, const ckpt__folder *folder, ckpt_error *err)
{
    sharded s = {.r = r};
    char stem[300] = "";
    uint64_t most = 0;
    snprintf(s.label, sizeof s.label, "%s", r->request->source->path);
    ckpt_status status = start(&s, err);
    for (size_t i = 0; status == CKPT_OK && i < folder->count; i++)
        if (folder->members[i].part == CKPT__PART_SHARD)
            status = add_loose(&s, &folder->members[i], &most, stem, sizeof stem, err);
    if (status == CKPT_OK && s.shard_count != most && !r->request->salvage && !r->request->survey)
        status = ckpt__fail(err, CKPT_E_DAMAGED, s.label,
                            "it has %zu of the %" PRIu64 " shards of '%s', and no index file; copy the others into it",
                            s.shard_count, most, stem);
    if (status == CKPT_OK &&
        !ckpt__report_add(r->index->findings, s.shard_count == most ? CKPT_SEVERITY_NOTE : CKPT_SEVERITY_ERROR,
                          s.shard_count == most ? "no-shard-index" : "shard-missing", NULL, NULL,
                          "the shards of '%s' lie here without the index file that names their tensors; %zu of %" PRIu64
                          " are there",
                          stem, s.shard_count, most))
        status = ckpt__hf_no_memory(&s, err);
    if (status == CKPT_OK)
        status = read_all(&s, err);
    if (status == CKPT_OK)
        status = put_model(&s, stem, err);
    finish(&s);
    return status;
}
