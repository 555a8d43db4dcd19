/* format/dcp/dcp.c - a directory of torch.distributed.checkpoint as one checkpoint: its lists, its files, the bids. */
#include "codec/zstd.h"
#include "format/dcp/dcp.h"
#include "format/dcp/read.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

ckpt_status ckpt__dcp_no_memory(const ckpt__dcp *d, ckpt_error *err)
{
    return ckpt__fail_memory(err, "the list of a distributed checkpoint", d->list_bytes);
}

/* ---- names */

/* Lightning puts a file beside the checkpoint: the epoch, the loops, schedules, hyper-parameters and callbacks (strategies/fsdp.py and
 * model_parallel.py, save_checkpoint), by torch.save. Its loader joins it with the rest. */
static const char META[] = "meta.pt";

/* What the directory has, by names alone. */
typedef struct names {
    bool list, records, shards, megatron,
        meta;       /* .metadata; a .distcp file; a shard in safetensors; what Megatron and Lightning
                                                 * put beside */
    uint64_t ranks; /* files __<rank>.metadata */
} names;

/* "__12_0.distcp": 12. -1: it has another name. */
static int64_t rank_of_record(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    size_t digits = ckpt__begins(base, "__") ? strspn(base + 2, "0123456789") : 0;
    int64_t number;
    bool is = digits > 0 && base[2 + digits] == '_' && ckpt__ends(base, ".distcp") &&
              ckpt__parse_i64(base + 2, digits, &number);
    return is ? number : -1;
}

/* "__12.metadata": 12. */
static bool rank_of(const char *name, uint64_t *rank)
{
    size_t n = strlen(name), tail = sizeof ".metadata" - 1;
    int64_t number;
    bool is = n > tail + 2 && memcmp(name, "__", 2) == 0 && strcmp(name + n - tail, ".metadata") == 0 &&
              ckpt__parse_i64(name + 2, n - tail - 2, &number) && number >= 0;
    *rank = is ? (uint64_t)number : 0;
    return is;
}

/* "shard-00001-model-00001-of-00001.safetensors" */
bool ckpt__dcp_is_shard(const char *name)
{
    static const char *const words[] = {"shard-", "-model-", "-of-"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]), digits = ckpt__begins(name, words[i]) ? strspn(name + n, "0123456789") : 0;
        if (digits == 0)
            return false;
        name += n + digits;
    }
    return strcmp(name, ".safetensors") == 0;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    names *n = ctx;
    uint64_t rank;
    (void)root;
    (void)err;
    if (folder)
        return CKPT_OK;
    n->list |= strcmp(name, ".metadata") == 0;
    n->records |= ckpt__ends(name, ".distcp");
    n->shards |= ckpt__dcp_is_shard(name);
    n->megatron |= strcmp(name, "common.pt") == 0;
    n->meta |= strcmp(name, META) == 0;
    n->ranks += rank_of(name, &rank);
    return CKPT_OK;
}

static ckpt_status look(const ckpt__source *source, const char *folder, names *n, ckpt_error *err)
{
    memset(n, 0, sizeof *n);
    return ckpt__source_each(source, folder, see, n, err);
}

bool ckpt__dcp_in_folder(const ckpt__source *source, const char *folder)
{
    names n;
    return look(source, folder, &n, NULL) == CKPT_OK && (n.list || n.ranks || n.records);
}

static bool owns(const char *name)
{
    uint64_t rank;
    return strcmp(name, ".metadata") == 0 || ckpt__ends(name, ".distcp") || ckpt__dcp_is_shard(name) ||
           rank_of(name, &rank);
}

static int bid(const ckpt__probe *probe)
{
    names n;
    if (!probe->directory || look(probe->source, "", &n, NULL) < 0 || n.megatron)
        return 0;
    return n.list || n.ranks || n.records || n.shards ? 85 : 0;
}

/* ---- files */

/* Those that are not there, or too short for what the list puts into them. */
typedef struct lacking {
    size_t count, of;
    char first[600]; /* the first of them, and what it lacks */
} lacking;

bool ckpt__dcp_goes_on(const ckpt__dcp *d)
{
    return ckpt__survey_goes_on(d->request);
}

ckpt_status ckpt__dcp_note(ckpt__dcp *d, const char *code, const char *file, const char *what, ckpt_error *err)
{
    char fix[420];
    ckpt__buf path = {0};
    ckpt__buf_printf(&path, "%s%s", d->folder, file);
    if (path.failed)
        return ckpt__dcp_no_memory(d, err);
    snprintf(
        fix, sizeof fix,
        "copy %.200s again from where it was saved, or take an earlier checkpoint; ckpt-migrate --salvage keeps the "
        "tensors whose bytes are all there",
        path.data);
    bool noted = ckpt__report_add(d->index->findings, CKPT_SEVERITY_ERROR, code, NULL, fix, "%s", what) &&
                 ckpt__report_detail(d->index->findings, path.data, NULL, NULL, 0);
    ckpt__buf_free(&path);
    return noted ? CKPT_OK : ckpt__dcp_no_memory(d, err);
}

static ckpt_status note_lost(ckpt__dcp *d, const char *name, const char *code, const char *what, lacking *all,
                             ckpt_error *err)
{
    char text[300];
    int64_t rank = rank_of_record(name);
    if (rank >= 0)
        snprintf(text, sizeof text, "what rank %lld wrote %s", (long long)rank, what);
    else
        snprintf(text, sizeof text, "it %s", what);
    if (all->count++ == 0)
        snprintf(all->first, sizeof all->first, "%.80s%.120s: %s", d->folder, name, text);
    return ckpt__dcp_goes_on(d) ? ckpt__dcp_note(d, code, name, text, err) : CKPT_OK;
}

static ckpt_status open_file(ckpt__dcp *d, ckpt__dcp_file *f, lacking *all, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__buf name = {0};
    char what[200];
    ckpt__buf_printf(&name, "%s%s", d->folder, f->name);
    if (name.failed)
        return ckpt__dcp_no_memory(d, err);
    ckpt_status status = ckpt__source_add(d->request->source, name.data, &f->number, &why);
    bool found = status == CKPT_OK;
    if (!found)
        f->number = d->list_file;
    if (status < 0 && why.sys_errno == ENOENT)
        status =
            note_lost(d, f->name, "shard-missing", "is missing, with the records that the list puts into it", all, err);
    else if (status < 0 && err)
        *err = why;
    else if (found)
        f->has = d->request->source->files[f->number].size;
    if (status == CKPT_OK && found && f->has < f->needs) {
        snprintf(what, sizeof what, "ends at byte %llu of %llu that the list puts into it", (unsigned long long)f->has,
                 (unsigned long long)f->needs);
        status = note_lost(d, f->name, "truncated", what, all, err);
    }
    ckpt__buf_free(&name);
    return status;
}

static ckpt_status open_files(ckpt__dcp *d, ckpt_error *err)
{
    lacking all = {.of = d->file_count};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < d->file_count; i++)
        status = open_file(d, &d->files[i], &all, err);
    if (status < 0 || all.count == 0 || ckpt__dcp_goes_on(d))
        return status;
    return ckpt__fail(
        err, CKPT_E_DAMAGED, d->request->source->path,
        "%zu of the %zu files of this distributed checkpoint (DCP) lack%s what its list says: %s. Copy them "
        "again; ckpt-inspect verify names all, ckpt-migrate --salvage keeps what is whole",
        all.count, all.of, all.count == 1 ? "s" : "", all.first);
}

/* ---- lists */

static bool fill_hash(ckpt__hash **hash, size_t count, const char *(*name)(const ckpt__dcp *, size_t, size_t *),
                      const ckpt__dcp *d)
{
    ckpt__hash_free(*hash);
    *hash = ckpt__hash_new(count);
    bool ok = *hash != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        size_t n;
        const char *text = name(d, i, &n);
        ok = ckpt__hash_put(*hash, text, n, i, NULL) >= 0;
    }
    return ok;
}

static const char *name_of_item(const ckpt__dcp *d, size_t i, size_t *n)
{
    *n = d->items[i].name.size;
    return d->items[i].name.data;
}

static const char *name_of_file(const ckpt__dcp *d, size_t i, size_t *n)
{
    *n = strlen(d->files[i].name);
    return d->files[i].name;
}

/* Back to the counts of `before`: a list that turns out to be damaged in its middle has added items and chunks. */
static ckpt_status take_back(ckpt__dcp *d, const ckpt__dcp *before, ckpt_error *err)
{
    d->item_count = before->item_count;
    d->chunk_count = before->chunk_count;
    d->file_count = before->file_count;
    d->order_count = before->order_count;
    d->apart = before->apart;
    d->turns = before->turns;
    for (size_t i = 0; i < d->file_count; i++)
        d->files[i].needs = 0;
    for (size_t i = 0; i < d->chunk_count; i++) {
        ckpt__dcp_file *f = &d->files[d->chunks[i].file];
        uint64_t end = d->chunks[i].offset + d->chunks[i].length;
        f->needs = end > f->needs ? end : f->needs;
    }
    bool ok = fill_hash(&d->by_name, d->item_count, name_of_item, d) &&
              fill_hash(&d->by_file, d->file_count, name_of_file, d);
    return ok ? CKPT_OK : ckpt__dcp_no_memory(d, err);
}

static const uint64_t most_of_list = (uint64_t)4 << 30;

static ckpt_status read_part(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__dcp *d = ctx;
    return ckpt__source_read(d->request->source, d->list_file, offset, dst, n, err);
}

/* As torch writes it, or not at all. */
static ckpt_status stream_list(ckpt__dcp *d, bool *taken, ckpt_error *err)
{
    const ckpt__dcp before = *d;
    const ckpt__arena_mark mark = ckpt__arena_note(d->arena);
    const ckpt__pickle_input in = {read_part, d, d->request->source->files[d->list_file].size};
    *taken = false;
    if (d->replicas || in.size > most_of_list)
        return CKPT_OK;
    ckpt_status status = ckpt__dcp_stream(d, &in, taken, err);
    if (status < 0 || *taken)
        return status;
    status = take_back(d, &before, err);
    ckpt__arena_rewind(d->arena, &mark);
    return status;
}

static ckpt_status parse_list(ckpt__dcp *d, ckpt_error *err)
{
    char label[600];
    ckpt__buf text = {0};
    ckpt_status status = ckpt__source_slurp(d->request->source, d->list_file, most_of_list, &text, err);
    ckpt__source_label(d->request->source, d->list_file, label, sizeof label);
    if (status == CKPT_OK)
        status = ckpt__dcp_parse(d, text.data ? text.data : "", text.size, label, err);
    ckpt__buf_free(&text);
    return status;
}

static ckpt_status read_list(ckpt__dcp *d, const char *name, ckpt_error *err)
{
    bool taken = false;
    ckpt__buf path = {0};
    ckpt__buf_printf(&path, "%s%s", d->folder, name);
    ckpt_status status =
        path.failed ? ckpt__dcp_no_memory(d, err) : ckpt__source_add(d->request->source, path.data, &d->list_file, err);
    ckpt__buf_free(&path);
    if (status < 0)
        return status;
    const uint64_t size = d->request->source->files[d->list_file].size,
                   bytes = size < most_of_list ? size : most_of_list;
    d->list_bytes += bytes;
    ckpt__arena_allow(d->arena, ckpt__known_limit(bytes, true));
    ckpt__arena_allow(d->index->arena, ckpt__known_limit(bytes, true));
    d->index->bare_list = true;
    status = stream_list(d, &taken, err);
    return status == CKPT_OK && !taken ? parse_list(d, err) : status;
}

typedef struct ranks {
    uint64_t *numbers; /* heap: of the lists, ascending once all are known */
    size_t count, capacity;
    uint64_t most; /* 1 + the highest rank that wrote a list or records */
} ranks;

static ckpt_status take_rank(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    ranks *r = ctx;
    uint64_t rank;
    int64_t of_record = folder ? -1 : rank_of_record(name);
    bool list = !folder && rank_of(name, &rank);
    (void)root;
    if (of_record >= 0 && (uint64_t)of_record >= r->most)
        r->most = (uint64_t)of_record + 1;
    if (!list)
        return CKPT_OK;
    if (rank >= r->most)
        r->most = rank + 1;
    if (!ckpt__grow(&r->numbers, &r->capacity, r->count + 1, sizeof *r->numbers))
        return ckpt__fail_memory(err, name, 0);
    r->numbers[r->count++] = rank;
    return CKPT_OK;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The lists of ranks from `from` up to `to` are not there. */
static ckpt_status no_list(ckpt__dcp *d, const ranks *r, uint64_t from, uint64_t to, ckpt_error *err)
{
    char name[64], text[500], more[60] = "";
    if (to - from > 1)
        snprintf(more, sizeof more, ", and those up to rank %llu", (unsigned long long)to - 1);
    snprintf(name, sizeof name, "__%llu.metadata", (unsigned long long)from);
    snprintf(
        text, sizeof text,
        "the list of rank %llu (%.100s%s) is missing%s: each rank wrote one, and what it held is in no other. There are %zu, "
        "and files of ranks up to %llu",
        (unsigned long long)from, d->folder, name, more, r->count, (unsigned long long)r->most - 1);
    if (ckpt__dcp_goes_on(d))
        return ckpt__dcp_note(d, "rank-missing", name, text, err);
    return ckpt__fail(err, CKPT_E_DAMAGED, d->request->source->path,
                      "%s. Copy it again; ckpt-inspect verify names all, ckpt-migrate --salvage keeps what is whole",
                      text);
}

/* The list of one rank. A damaged one is a finding where reading goes on; what it held is missing in its tensors. */
static ckpt_status read_rank(ckpt__dcp *d, const char *name, ckpt_error *err)
{
    const ckpt__dcp before = *d;
    ckpt__buf path = {0};
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = read_list(d, name, &why);
    if (status == CKPT_OK)
        return status;
    if (!ckpt__survey_leaves(d->request, status)) {
        if (err)
            *err = why;
        return status;
    }
    ckpt__buf_printf(&path, "%s%s", d->folder, name);
    status =
        path.failed ? ckpt__dcp_no_memory(d, err) : ckpt__survey_note(d->index->findings, path.data, status, &why, err);
    ckpt__buf_free(&path);
    return status == CKPT_OK ? take_back(d, &before, err) : status;
}

/* The checkpoint is the union of all ranks' lists: each has what its rank holds. */
static ckpt_status read_ranks(ckpt__dcp *d, ckpt_error *err)
{
    ranks r = {0};
    char name[64];
    uint64_t next = 0;
    ckpt_status status = ckpt__source_each(d->request->source, d->folder, take_rank, &r, err);
    if (r.count)
        qsort(r.numbers, r.count, sizeof *r.numbers, by_number);
    d->replicas = true;
    for (size_t i = 0; status == CKPT_OK && i < r.count; i++) {
        if (r.numbers[i] > next)
            status = no_list(d, &r, next, r.numbers[i], err);
        next = r.numbers[i] + 1;
        snprintf(name, sizeof name, "__%llu.metadata", (unsigned long long)r.numbers[i]);
        if (status == CKPT_OK)
            status = read_rank(d, name, err);
    }
    if (status == CKPT_OK && next < r.most)
        status = no_list(d, &r, next, r.most, err);
    free(r.numbers);
    return status;
}

static ckpt_status read_lists(ckpt__dcp *d, ckpt_error *err)
{
    names n;
    ckpt_status status = look(d->request->source, d->folder, &n, err);
    if (status < 0)
        return status;
    if (n.list) {
        status = read_list(d, ".metadata", err);
        if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT)
            ckpt__error_prefix(
                err,
                "the one list of this checkpoint is damaged, and the files of the ranks do not say what is in them: "
                "nothing can be salvaged, copy .metadata again or use an earlier checkpoint");
        return status;
    }
    if (n.ranks)
        return read_ranks(d, err);
    d->shards = n.shards && !n.records;
    if (d->shards)
        return ckpt__dcp_read_shards(d, err);
    if (n.records)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, d->request->source->path,
            "a distributed checkpoint of PyTorch (DCP) without its .metadata, which is written last: the save "
            "did not finish, or the file was not copied (its name begins with a dot). The files of the ranks "
            "(*.distcp) do not say what is in them; use an earlier checkpoint");
    return ckpt__fail(err, CKPT_E_FORMAT, d->request->source->path,
                      "not a distributed checkpoint of PyTorch: it has no .metadata");
}

/* ---- what lies beside */

static ckpt_status is_archive(const ckpt__dcp *d, uint32_t file, bool *is, ckpt_error *err)
{
    char head[4];
    *is = false;
    if (d->request->source->files[file].size < sizeof head)
        return CKPT_OK;
    ckpt_status status = ckpt__source_read(d->request->source, file, 0, head, sizeof head, err);
    *is = status == CKPT_OK && memcmp(head, "PK\3\4", sizeof head) == 0;
    return status;
}

/* As an item of the state dict, by the file's name. */
static ckpt_status add_meta(ckpt__dcp *d, ckpt__index *part, ckpt_error *err)
{
    ckpt__dcp_item item = {.object = true, .value = (ckpt_value *)(uintptr_t)part->root};
    item.name = ckpt__arena_str(d->index->arena, META, strlen(META));
    ckpt_status status = ckpt__index_absorb(d->index, part, (ckpt_str){NULL, 0}, err);
    if (status < 0)
        return status;
    if (!item.name.data || !ckpt__arena_grow(d->arena, &d->items, &d->item_capacity, d->item_count + 1, sizeof item))
        return ckpt__dcp_no_memory(d, err);
    d->items[d->item_count++] = item;
    return CKPT_OK;
}

static ckpt_status read_meta(ckpt__dcp *d, ckpt_error *err)
{
    ckpt__read_request request = {
        .source = d->request->source, .arena = d->index->arena, .salvage = d->request->salvage};
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__index *part = NULL;
    ckpt__buf name = {0};
    bool archive = false;
    ckpt__buf_printf(&name, "%s%s", d->folder, META);
    ckpt_status status =
        name.failed ? ckpt__dcp_no_memory(d, err) : ckpt__source_add(request.source, name.data, &request.file, err);
    if (status == CKPT_OK)
        status = is_archive(d, request.file, &archive, err);
    if (status == CKPT_OK && archive) {
        uint64_t size = request.source->files[request.file].size;
        ckpt__arena_allow(d->index->arena, ckpt__known_limit(size, true));
        d->list_bytes += size < ((uint64_t)1 << 30) ? size : (uint64_t)1 << 30;
        status = ckpt__format_torch.read(&request, &part, &why);
        if (status == CKPT_OK)
            status = add_meta(d, part, err);
        else if ((d->request->survey || d->request->salvage) && ckpt__survey_passes(status))
            status = ckpt__survey_note(d->index->findings, name.data, status, &why, err);
        else if (err)
            *err = why;
    }
    ckpt__buf_free(&name);
    return status;
}

/* ---- the whole */

static ckpt_status check_codings(const ckpt__dcp *d, ckpt_error *err)
{
    for (size_t i = 0; i < d->chunk_count && !ckpt__zstd_is_there(); i++)
        if (d->chunks[i].zstd) {
            ckpt__zstd *none;
            return ckpt__zstd_new(d->request->source->path, &none, err);
        }
    return CKPT_OK;
}

/* "84 pieces of tensors in 4 files, written by 4 ranks": a rank that had nothing to write is in no name. */
static ckpt_status tell_layout(ckpt__dcp *d, ckpt_error *err)
{
    uint64_t *of = malloc((d->file_count + 1) * sizeof *of);
    const size_t pieces = d->pieces;
    size_t distinct = 0;
    bool named = d->file_count > 0;
    char by[64] = "";
    if (!of)
        return ckpt__dcp_no_memory(d, err);
    for (size_t i = 0; named && i < d->file_count; i++) {
        const int64_t rank = rank_of_record(d->files[i].name);
        named = rank >= 0;
        of[i] = (uint64_t)rank;
    }
    if (named)
        qsort(of, d->file_count, sizeof *of, by_number);
    for (size_t i = 0; named && i < d->file_count; i++)
        distinct += i == 0 || of[i] != of[i - 1];
    free(of);
    if (named)
        snprintf(by, sizeof by, ", written by %zu rank%s", distinct, distinct == 1 ? "" : "s");
    return ckpt__index_tell_layout(d->index, "%zu piece%s of tensors in %zu file%s%s", pieces, pieces == 1 ? "" : "s",
                                   d->file_count, d->file_count == 1 ? "" : "s", by)
               ? CKPT_OK
               : ckpt__dcp_no_memory(d, err);
}

static ckpt_status fill(ckpt__dcp *d, ckpt_error *err)
{
    names n;
    ckpt_status status = read_lists(d, err);
    for (size_t i = 0; status == CKPT_OK && i < d->chunk_count; i++)
        d->pieces += !d->items[d->chunks[i].item].object;
    if (status == CKPT_OK && !d->shards)
        status = check_codings(d, err);
    if (status == CKPT_OK && !d->shards)
        status = open_files(d, err);
    if (status == CKPT_OK && !d->shards)
        status = ckpt__dcp_fill(d, err);
    if (status == CKPT_OK && !d->shards && look(d->request->source, d->folder, &n, err) == CKPT_OK && n.meta &&
        !ckpt__hash_get(d->by_name, META, strlen(META), NULL))
        status = read_meta(d, err);
    if (status == CKPT_OK)
        status = ckpt__dcp_tree(d, err);
    if (status == CKPT_OK)
        status = ckpt__dcp_roles(d, err);
    if (status == CKPT_OK && d->file_count > 0)
        status = tell_layout(d, err);
    return status == CKPT_OK ? ckpt__index_finish(d->index, err) : status;
}

ckpt_status ckpt__dcp_read_folder(const ckpt__read_request *request, const char *folder, ckpt__index **out,
                                  ckpt_error *err)
{
    return ckpt__dcp_read_wholes(request, folder, NULL, out, err);
}

ckpt_status ckpt__dcp_read_wholes(const ckpt__read_request *request, const char *folder, ckpt__dcp_wholes *wholes,
                                  ckpt__index **out, ckpt_error *err)
{
    ckpt__dcp d = {.request = request,
                   .folder = folder,
                   .wholes = wholes,
                   .index = request->arena ? ckpt__index_new_part(request->arena)
                                           : ckpt__index_new(ckpt__known_limit(0, false)),
                   .arena = ckpt__arena_new(ckpt__known_limit(0, false)),
                   .by_name = ckpt__hash_new(64),
                   .by_file = ckpt__hash_new(64)};
    *out = NULL;
    ckpt_status status = d.index && d.arena && d.by_name && d.by_file ? CKPT_OK : ckpt__dcp_no_memory(&d, err);
    if (status == CKPT_OK) {
        d.index->format = "dcp";
        d.index->kind = "directory";
        status = fill(&d, err);
        status = ckpt__index_refused(d.index, status, request->source->path, err);
    }
    free(d.items);
    free(d.chunks);
    free(d.order);
    free(d.files);
    ckpt__hash_free(d.by_name);
    ckpt__hash_free(d.by_file);
    ckpt__arena_free(d.arena);
    if (status == CKPT_OK)
        *out = d.index;
    else
        ckpt__index_free(d.index);
    return status;
}

static ckpt_status read_dcp(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    *out = NULL;
    if (request->file != CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, request->source->path,
                          "a file; a distributed checkpoint of PyTorch is a directory");
    return ckpt__dcp_read_folder(request, "", out, err);
}

const ckpt__format ckpt__format_dcp = {
    .name = "dcp",
    .bid = bid,
    .read = read_dcp,
    .family = CKPT__FAMILY_DCP,
    .sharded = CKPT__SHARDED_DCP,
    .laid_out = true,
    .own_loader = true,
    .no_python =
        "torch.load does not read this, torch.distributed.checkpoint does, on every rank: model_state, optim_state = "
        "get_state_dict(model, optimizer), both under the keys that ckpt-inspect tree shows into one dict, dcp.load of "
        "that dict with checkpoint_id=PATH, and set_state_dict. ckpt-migrate --to torch makes a file for which there is "
        "a resume in Python; in C there is one for this",
    .joins_files = true,
    .has_values = true,
    .owns = owns,
};
