/* format/dcp/shards.c - what HuggingFaceStorageWriter writes: a file of safetensors for each rank, without a list. Its metadata has
 * under DCP_SHARDING_INFO a JSON text, {tensor: {"saved_offsets": [16, 0]}} (torch/distributed/checkpoint/_hf_utils.py): where the
 * tensor that the file has begins in the whole one. How large the whole is stands nowhere: as torch's reader does it, it ends where
 * the last shard ends. */
#include "format/dcp/dcp.h"
#include "format/dcp/read.h"
#include "format/native/json_values.h"
#include "format/survey.h"

#include <stdio.h>
#include <stdlib.h>

/* One shard of a tensor: the rows of the pieces, before the tensor is made. */
typedef struct shard {
    size_t next;       /* 1 + number of the next one of the tensor; 0: none */
    const int64_t *lo; /* in d->arena, as size: ndim numbers each */
    const int64_t *size;
    size_t storage, file; /* numbers: in the index, and of the file here */
    uint64_t at;          /* bytes */
} shard;

/* Files that are not there, or not read: those of ranks `from` to `to`, of this number among a rank's files; -1: all of a rank's. */
typedef struct gap {
    int64_t from, to, model;
} gap;

typedef struct shards {
    ckpt__dcp *d;
    shard *all; /* heap */
    size_t count, capacity;
    size_t *first, *last, *held; /* heap, by item: 1 + number; and in how many files it is, with empty shards */
    size_t first_capacity, last_capacity, held_capacity;
    ckpt_tensor_info *empty; /* heap: empty shards, whose tensors may not be known yet; names in the index's arena */
    size_t empty_count, empty_capacity;
    const char **files; /* heap: names, in d->arena */
    size_t file_count, file_capacity;
    size_t current; /* file that is read */
    gap *gaps;      /* heap */
    size_t gap_count, gap_capacity;
} shards;

static int64_t number_behind(const char *file, const char *word)
{
    const char *digits = strstr(file, word) + strlen(word);
    int64_t number;
    return ckpt__parse_i64(digits, strspn(digits, "0123456789"), &number) ? number : -1;
}

/* "shard-00003-model-00001-of-00002.safetensors": 3, and 1. */
static int64_t rank_of(const char *file)
{
    return number_behind(file, "shard-");
}

static int64_t model_of(const char *file)
{
    return number_behind(file, "-model-");
}

static ckpt_status add_gap(shards *s, gap g, ckpt_error *err)
{
    if (!ckpt__grow(&s->gaps, &s->gap_capacity, s->gap_count + 1, sizeof *s->gaps))
        return ckpt__dcp_no_memory(s->d, err);
    s->gaps[s->gap_count++] = g;
    return CKPT_OK;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    shards *s = ctx;
    ckpt__arena *a = s->d->arena;
    (void)root;
    if (folder || !ckpt__dcp_is_shard(name))
        return CKPT_OK;
    const char *copy = ckpt__arena_copy(a, name, strlen(name));
    if (!copy || !ckpt__grow(&s->files, &s->file_capacity, s->file_count + 1, sizeof *s->files))
        return ckpt__dcp_no_memory(s->d, err);
    s->files[s->file_count++] = copy;
    return CKPT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The offsets of a tensor: as many as it has dimensions. */
static bool offsets_of(const ckpt_value *info, ckpt_str name, uint32_t ndim, int64_t *lo)
{
    const ckpt_value *own = NULL, *offsets;
    for (size_t i = 0; info->kind == CKPT_V_DICT && i < info->entry_count; i++)
        if (info->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(info->entries[i].key->text, name))
            own = info->entries[i].value;
    offsets = own ? ckpt_value_get(own, "saved_offsets") : NULL;
    if (!offsets || offsets->kind != CKPT_V_LIST || offsets->item_count != ndim)
        return false;
    for (uint32_t i = 0; i < ndim; i++) {
        if (offsets->items[i]->kind != CKPT_V_INT || offsets->items[i]->integer < 0)
            return false;
        lo[i] = offsets->items[i]->integer;
    }
    return true;
}

static ckpt_status item_of(shards *s, const ckpt_tensor_info *t, const char *label, size_t *number, ckpt_error *err)
{
    ckpt__dcp *d = s->d;
    if (ckpt__hash_get(d->by_name, t->name.data, t->name.size, number)) {
        const ckpt__dcp_item *is = &d->items[*number];
        if (is->dtype == t->dtype && is->ndim == t->ndim)
            return CKPT_OK;
        return ckpt__fail(
            err, CKPT_E_MISMATCH, t->name.data,
            "it has another dtype or another number of dimensions in %s than in a file before: these are not "
            "the shards of one checkpoint",
            label);
    }
    ckpt_str name = ckpt__arena_str(d->index->arena, t->name.data, t->name.size);
    int64_t *shape = ckpt__arena_array(d->arena, t->ndim + 1, sizeof *shape);
    *number = d->item_count;
    if (!name.data || !shape ||
        !ckpt__arena_grow(d->arena, &d->items, &d->item_capacity, d->item_count + 1, sizeof *d->items) ||
        !ckpt__grow(&s->first, &s->first_capacity, d->item_count + 1, sizeof *s->first) ||
        !ckpt__grow(&s->last, &s->last_capacity, d->item_count + 1, sizeof *s->last) ||
        !ckpt__grow(&s->held, &s->held_capacity, d->item_count + 1, sizeof *s->held) ||
        ckpt__hash_put(d->by_name, name.data, name.size, *number, NULL) < 0)
        return ckpt__dcp_no_memory(d, err);
    memset(shape, 0, (t->ndim + 1) * sizeof *shape);
    s->first[*number] = s->last[*number] = s->held[*number] = 0;
    d->items[d->item_count++] = (ckpt__dcp_item){.name = name, .shape = shape, .ndim = t->ndim, .dtype = t->dtype};
    return CKPT_OK;
}

static ckpt_status add_empty(shards *s, const ckpt_tensor_info *t, ckpt_error *err)
{
    ckpt_tensor_info kept = {.dtype = t->dtype, .ndim = 1};
    kept.name = ckpt__arena_str(s->d->index->arena, t->name.data, t->name.size);
    if (!kept.name.data || !ckpt__grow(&s->empty, &s->empty_capacity, s->empty_count + 1, sizeof *s->empty))
        return ckpt__dcp_no_memory(s->d, err);
    s->empty[s->empty_count++] = kept;
    return CKPT_OK;
}

/* When all files are read. A tensor of which each shard is empty has a shape of one 0 itself: it is not told from one of several
 * dimensions that is as empty. */
static ckpt_status count_empty(shards *s, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t number = 0;
    for (size_t i = 0; status == CKPT_OK && i < s->empty_count; i++) {
        const ckpt_tensor_info *t = &s->empty[i];
        if (!ckpt__hash_get(s->d->by_name, t->name.data, t->name.size, &number))
            status = item_of(s, t, "", &number, err);
        if (status == CKPT_OK)
            s->held[number]++;
    }
    return status;
}

/* An empty shard has a shape of one 0, whatever the tensor's is. */
static ckpt_status add_shard(shards *s, const ckpt__index *part, size_t tensor, const ckpt_value *info,
                             const char *label, ckpt_error *err)
{
    const ckpt__tensor *t = &part->tensors[tensor];
    const ckpt__dcp_item *item;
    ckpt__dcp *d = s->d;
    size_t number = 0;
    uint32_t n = t->info.ndim;
    if (t->info.nbytes == 0 && n == 1 && t->info.shape[0] == 0)
        return add_empty(s, &t->info, err);
    int64_t *lo = ckpt__arena_array(d->arena, n + 1, sizeof *lo),
            *size = ckpt__arena_array(d->arena, n + 1, sizeof *lo);
    if (!lo || !size || !ckpt__grow(&s->all, &s->capacity, s->count + 1, sizeof *s->all))
        return ckpt__dcp_no_memory(d, err);
    if (!offsets_of(info, t->info.name, n, lo))
        return ckpt__fail(err, CKPT_E_FORMAT, t->info.name.data,
                          "DCP_SHARDING_INFO of %s has no saved_offsets of it, one for each of its %u dimensions",
                          label, n);
    memcpy(size, t->info.shape, n * sizeof *size);
    ckpt_status status = item_of(s, &t->info, label, &number, err);
    if (status < 0)
        return status;
    s->held[number]++;
    item = &d->items[number];
    for (uint32_t i = 0; i < n; i++) {
        int64_t end;
        if (__builtin_add_overflow(lo[i], size[i], &end))
            return ckpt__fail(err, CKPT_E_FORMAT, t->info.name.data, "its saved_offsets in %s overflow 64 bits", label);
        if (end > item->shape[i])
            ((int64_t *)(uintptr_t)item->shape)[i] = end;
    }
    ckpt__storage *storage = ckpt__index_add_storage(d->index);
    if (!storage)
        return ckpt__dcp_no_memory(d, err);
    *storage = part->storages[t->storage];
    storage->name = item->name;
    s->all[s->count++] = (shard){0, lo, size, d->index->storage_count - 1, s->current, ckpt__view_of(part, t, 0).at};
    if (s->last[number])
        s->all[s->last[number] - 1].next = s->count;
    else
        s->first[number] = s->count;
    s->last[number] = s->count;
    return CKPT_OK;
}

/* The file ends before its payloads do. A salvage says it of each tensor. */
static ckpt_status note_short(shards *s, const ckpt__index *part, const char *name, ckpt_error *err)
{
    char text[200];
    size_t cut = 0;
    for (size_t i = 0; i < part->tensor_count; i++)
        cut += part->tensors[i].whole && part->storages[part->tensors[i].storage].extent.missing;
    if (cut == 0 || s->d->request->salvage)
        return CKPT_OK;
    snprintf(text, sizeof text, "it ends before its payloads do: of %zu of its %zu tensors bytes are missing", cut,
             part->tensor_count);
    return ckpt__dcp_note(s->d, "truncated", name, text, err);
}

static ckpt_status read_tensors(shards *s, const char *name, ckpt_error *err)
{
    ckpt__dcp *d = s->d;
    char label[600];
    ckpt__read_request request = {
        .source = d->request->source, .arena = d->index->arena, .salvage = ckpt__dcp_goes_on(d)};
    ckpt__index *part = NULL;
    const ckpt_value *info = NULL;
    ckpt_status status = ckpt__source_add(request.source, name, &request.file, err);
    if (status < 0)
        return status;
    ckpt__source_label(request.source, request.file, label, sizeof label);
    uint64_t size = request.source->files[request.file].size;
    ckpt__arena_allow(d->index->arena, ckpt__known_limit(size, true));
    ckpt__arena_allow(d->arena, ckpt__known_limit(size, true));
    d->list_bytes += size < ((uint64_t)1 << 30) ? size : (uint64_t)1 << 30;
    status = ckpt__format_safetensors.read(&request, &part, err);
    const ckpt_value *metadata = part ? ckpt_value_get(part->root, "__metadata__") : NULL,
                     *text = ckpt_value_get(metadata, "DCP_SHARDING_INFO");
    if (status == CKPT_OK && (!text || text->kind != CKPT_V_STR))
        status = ckpt__fail(err, CKPT_E_FORMAT, label,
                            "its metadata has no DCP_SHARDING_INFO, so where its tensors begin in "
                            "the whole ones is not known");
    if (status == CKPT_OK)
        status = ckpt__json_values(text->text.data, text->text.size, label, d->index->arena, &info, err);
    if (status == CKPT_OK)
        status = note_short(s, part, name, err);
    for (size_t i = 0; status == CKPT_OK && i < part->tensor_count; i++)
        status = add_shard(s, part, i, info, label, err);
    if (part)
        d->index->metadata_bytes += part->metadata_bytes;
    ckpt__index_free(part);
    return status;
}

/* One that is damaged is a finding where reading goes on; what it held is missing in its tensors. */
static ckpt_status read_shard(shards *s, const char *name, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = read_tensors(s, name, &why);
    if (status == CKPT_OK)
        return status;
    if (ckpt__survey_leaves(s->d->request, status)) {
        ckpt_status added = add_gap(s, (gap){rank_of(name), rank_of(name), model_of(name)}, err);
        return added == CKPT_OK ? ckpt__survey_note(s->d->index->findings, name, status, &why, err) : added;
    }
    if (err)
        *err = why;
    return status;
}

/* Does it end where the last of its shards that are there ends? Not, where one behind them may be lost. */
static bool end_is_known(const shards *s, size_t number)
{
    int64_t last = -1, model = -1;
    for (size_t k = s->first[number]; k; k = s->all[k - 1].next) {
        const char *file = s->files[s->all[k - 1].file];
        last = rank_of(file) > last ? rank_of(file) : last;
        model = model_of(file);
    }
    for (size_t i = 0; s->d->items[number].ndim && i < s->gap_count; i++)
        if (last < s->gaps[i].to && (model == -1 || s->gaps[i].model == -1 || s->gaps[i].model == model))
            return false;
    return true;
}

static ckpt_status note_end(const shards *s, const ckpt__dcp_item *item, ckpt_error *err)
{
    char shown[512];
    if (ckpt__report_add(s->d->index->findings, CKPT_SEVERITY_ERROR, "pieces-missing",
                         ckpt__escape(shown, sizeof shown, item->name.data, item->name.size),
                         "copy the missing or damaged file again; ckpt-migrate --salvage leaves this tensor out",
                         "its end may lie in the file that is missing or damaged, and no other file says how large it "
                         "is"))
        return CKPT_OK;
    return ckpt__dcp_no_memory(s->d, err);
}

/* One whose end is not known is said; a salvage does not take what is there of it for all. */
static ckpt_status make_tensor(shards *s, size_t number, ckpt__piece **pieces, size_t *capacity, ckpt_error *err)
{
    ckpt__dcp *d = s->d;
    ckpt__dcp_item *item = &d->items[number];
    size_t count = 0;
    bool known = end_is_known(s, number);
    ckpt_status status = known ? CKPT_OK : note_end(s, item, err);
    if (status < 0 || (!known && d->request->salvage))
        return status;
    ckpt__tensor *t = ckpt__index_add_tensor(d->index);
    if (!t)
        return ckpt__dcp_no_memory(d, err);
    t->info.name = item->name;
    t->info.dtype = item->dtype;
    t->info.ndim = item->ndim;
    t->sorted = true;
    for (size_t k = s->first[number]; k; k = s->all[k - 1].next, count++) {
        const shard *part = &s->all[k - 1];
        int64_t *box = ckpt__arena_array(d->arena, 2 * (size_t)item->ndim + 1, sizeof *box);
        if (!box || !ckpt__grow(pieces, capacity, count + 1, sizeof **pieces))
            return ckpt__dcp_no_memory(d, err);
        memcpy(box, part->lo, item->ndim * sizeof *box);
        memcpy(box + item->ndim, part->size, item->ndim * sizeof *box);
        (*pieces)[count] = (ckpt__piece){.box = box, .at = part->at, .storage = (uint32_t)part->storage};
    }
    item->value = ckpt__value_new(d->index->arena, CKPT_V_TENSOR);
    if (!item->value)
        return ckpt__dcp_no_memory(d, err);
    item->value->tensor = d->index->tensor_count - 1;
    uint64_t numel = 0;
    if (count == 0 || (ckpt__numel(item->shape, item->ndim, &numel) && numel == 0))
        return ckpt__index_set_empty(d->index, d->index->tensor_count - 1, item->shape, err);
    return ckpt__index_set_pieces(d->index, d->index->tensor_count - 1, item->shape, *pieces, count, err);
}

/* A rank that is missing between two is noticed; of the last nothing tells. Names are given with the digits that the file behind the
 * gap has. */
static ckpt_status check_ranks(shards *s, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    int64_t last = 0;
    for (size_t i = 0; status == CKPT_OK && i < s->file_count; i++) {
        const char *file = s->files[i], *rest = strchr(file + sizeof "shard-" - 1, '-');
        int64_t number = rank_of(file), first = last + 1;
        last = number;
        if (number >= 0 && number <= first)
            continue;
        char name[100], text[400];
        snprintf(name, sizeof name, "shard-%0*lld%.60s", (int)(rest - file) - 6, (long long)first, rest);
        snprintf(
            text, sizeof text,
            "the shard of rank %lld is missing before %.80s: the ranks' files are numbered from 1 on. How large its "
            "tensors are, the others do not say",
            (long long)first - 1, file);
        if (ckpt__dcp_goes_on(s->d))
            status = ckpt__dcp_note(s->d, "shard-missing", name, text, err);
        if (ckpt__dcp_goes_on(s->d))
            status = status == CKPT_OK ? add_gap(s, (gap){first, number - 1, -1}, err) : status;
        else
            status = ckpt__fail(err, CKPT_E_DAMAGED, s->d->request->source->path, "%s: %s. Copy it again", name, text);
    }
    return status;
}

/* ---- a rank that has some of the files, and lacks one that other ranks have */

/* How many ranks there are, and how many of them have file `model` of a rank. */
typedef struct counts {
    size_t ranks;
    size_t *with; /* heap, by model, up to `most` */
    size_t most;
} counts;

/* Torch writes no file for a rank that has nothing to write into it, and of a tensor that all ranks have alike one rank writes it. Of a
 * tensor that is cut each rank writes its shard, an empty one too. So a file that is not there is missing for certain where
 * all tensors in files that all ranks have are cut over all ranks, and where those in this one are seen to be cut or the
 * others have no whole ones. Meshes of several dimensions write less. */
static bool is_missing(const shards *s, const counts *c, int64_t model)
{
    size_t all = 0, some = 0, one = 0;
    bool cut = false;
    for (size_t i = 0; i < s->d->item_count; i++) {
        int64_t own = s->first[i] ? model_of(s->files[s->all[s->first[i] - 1].file]) : 0;
        if (own == model)
            cut |= s->held[i] > 1;
        else if (own > 0 && (uint64_t)own <= c->most && c->with[own] == c->ranks) {
            all += s->held[i] == c->ranks;
            some += s->held[i] > 1 && s->held[i] < c->ranks;
            one += s->held[i] == 1 && c->ranks > 1;
        }
    }
    return all && !some && (!one || cut);
}

static ckpt_status lack(shards *s, const char *of, int64_t rank, bool missing, ckpt_error *err)
{
    const char *rest = strchr(of + sizeof "shard-" - 1, '-');
    char name[100], text[400];
    snprintf(name, sizeof name, "shard-%0*lld%.60s", (int)(rest - of) - 6, (long long)rank, rest);
    snprintf(text, sizeof text, "rank %lld has no such file, as other ranks have (%.80s): %s", (long long)rank - 1, of,
             missing ? "its shards of the tensors there are missing"
                     : "it had nothing to write into it, or its shards of the tensors there are missing");
    if (missing && !ckpt__dcp_goes_on(s->d))
        return ckpt__fail(err, CKPT_E_DAMAGED, s->d->request->source->path, "%s: %s. Copy it again", name, text);
    if (missing) {
        ckpt_status status = add_gap(s, (gap){rank, rank, model_of(of)}, err);
        return status == CKPT_OK ? ckpt__dcp_note(s->d, "shard-missing", name, text, err) : status;
    }
    if (ckpt__report_add(s->d->index->findings, CKPT_SEVERITY_WARNING, "shard-missing", NULL,
                         "compare the files with those where it was saved", "%s", text) &&
        ckpt__report_detail(s->d->index->findings, name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__dcp_no_memory(s->d, err);
}

/* Files are in the order of their ranks. `of`: one of the others. */
static ckpt_status check_model(shards *s, const counts *c, const char *of, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    int64_t model = model_of(of);
    bool missing = is_missing(s, c, model);
    for (size_t i = 0; status == CKPT_OK && i < s->file_count;) {
        int64_t rank = rank_of(s->files[i]);
        bool has = false;
        for (; i < s->file_count && rank_of(s->files[i]) == rank; i++)
            has |= model_of(s->files[i]) == model;
        if (!has)
            status = lack(s, of, rank, missing, err);
    }
    return status;
}

static ckpt_status check_models(shards *s, ckpt_error *err)
{
    counts c = {.most = s->file_count, .with = calloc(s->file_count + 1, sizeof *c.with)};
    ckpt_status status = c.with ? CKPT_OK : ckpt__dcp_no_memory(s->d, err);
    for (size_t i = 0; c.with && i < s->file_count; i++) {
        int64_t model = model_of(s->files[i]);
        c.ranks += i == 0 || rank_of(s->files[i]) != rank_of(s->files[i - 1]);
        if (model > 0 && (uint64_t)model <= c.most)
            c.with[model]++;
    }
    for (size_t i = 0; status == CKPT_OK && i < s->file_count; i++) {
        int64_t model = model_of(s->files[i]);
        if (model <= 0 || (uint64_t)model > c.most || c.with[model] >= c.ranks)
            continue;
        status = check_model(s, &c, s->files[i], err);
        c.with[model] = SIZE_MAX; /* each once */
    }
    free(c.with);
    return status;
}

ckpt_status ckpt__dcp_read_shards(ckpt__dcp *d, ckpt_error *err)
{
    shards s = {.d = d};
    ckpt__piece *pieces = NULL;
    size_t capacity = 0;
    ckpt_status status = ckpt__source_each(d->request->source, d->folder, see, &s, err);
    if (s.file_count)
        qsort(s.files, s.file_count, sizeof *s.files, by_name);
    if (status == CKPT_OK)
        status = check_ranks(&s, err);
    for (s.current = 0; status == CKPT_OK && s.current < s.file_count; s.current++)
        status = read_shard(&s, s.files[s.current], err);
    if (status == CKPT_OK)
        status = count_empty(&s, err);
    if (status == CKPT_OK)
        status = check_models(&s, err);
    for (size_t i = 0; status == CKPT_OK && i < d->item_count; i++)
        status = make_tensor(&s, i, &pieces, &capacity, err);
    free(pieces);
    free(s.all);
    free(s.first);
    free(s.last);
    free(s.held);
    free(s.empty);
    free(s.files);
    free(s.gaps);
    return status;
}
