/* format/dcp/lists.c - the lists that a checkpoint has, read one after the other: .metadata, or one of each rank. */
#include "format/dcp/dcp.h"
#include "format/survey.h"

#include <stdio.h>
#include <stdlib.h>

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

ckpt_status ckpt__dcp_read_list(ckpt__dcp *d, const char *name, ckpt_error *err)
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
    int64_t of_record = folder ? -1 : ckpt__dcp_rank_of_record(name);
    bool list = !folder && ckpt__dcp_rank_of_list(name, &rank);
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
    ckpt_status status = ckpt__dcp_read_list(d, name, &why);
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
ckpt_status ckpt__dcp_read_ranks(ckpt__dcp *d, ckpt_error *err)
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
