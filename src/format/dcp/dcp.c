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
int64_t ckpt__dcp_rank_of_record(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    size_t digits = ckpt__begins(base, "__") ? strspn(base + 2, "0123456789") : 0;
    int64_t number;
    bool is = digits > 0 && base[2 + digits] == '_' && ckpt__ends(base, ".distcp") &&
              ckpt__parse_i64(base + 2, digits, &number);
    return is ? number : -1;
}

/* "__12.metadata": 12. */
bool ckpt__dcp_rank_of_list(const char *name, uint64_t *rank)
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
    n->ranks += ckpt__dcp_rank_of_list(name, &rank);
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
           ckpt__dcp_rank_of_list(name, &rank);
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
    int64_t rank = ckpt__dcp_rank_of_record(name);
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

static ckpt_status read_lists(ckpt__dcp *d, ckpt_error *err)
{
    names n;
    ckpt_status status = look(d->request->source, d->folder, &n, err);
    if (status < 0)
        return status;
    if (n.list) {
        status = ckpt__dcp_read_list(d, ".metadata", err);
        if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT)
            ckpt__error_prefix(
                err,
                "the one list of this checkpoint is damaged, and the files of the ranks do not say what is in them: "
                "nothing can be salvaged, copy .metadata again or use an earlier checkpoint");
        return status;
    }
    if (n.ranks)
        return ckpt__dcp_read_ranks(d, err);
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

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
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
        const int64_t rank = ckpt__dcp_rank_of_record(d->files[i].name);
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
