/* format/dcp/write_shards.c - a model as HuggingFaceStorageWriter writes it: a file of safetensors for each rank, with its slab of each
 * tensor, and in the metadata where the slab begins (see shards.c). */
#include "format/dcp/write.h"

#include <stdlib.h>
#include "codec/json.h"
#include "format/safetensors.h"

/* One tensor that a rank has a slab of. */
typedef struct item {
    size_t tensor;
    const ckpt_tensor_info *info;
    int64_t begin, rows; /* rows -1: all of it */
    uint64_t from, size; /* bytes */
} item;

typedef struct writing {
    const ckpt__write_request *q;
    item *items; /* heap: of one rank */
    size_t count;
    ckpt_error *err;
} writing;

static ckpt_status no_memory(const writing *w)
{
    return ckpt__fail_memory(w->err, "a shard", w->q->count * sizeof *w->items);
}

/* Each tensor at a multiple of its elements' size, as safetensors' own writer puts them. */
static int by_alignment(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int own = ckpt__st_rank(y->info->dtype) - ckpt__st_rank(x->info->dtype);
    return own ? own : x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static void find_items(writing *w, uint32_t ranks, uint32_t rank)
{
    w->count = 0;
    for (size_t i = 0; i < w->q->count; i++) {
        item it = {.tensor = w->q->tensors[i]};
        it.info = &w->q->index->tensors[it.tensor].info;
        if (!ckpt__dcp_slab(it.info, ranks, rank, &it.begin, &it.rows))
            continue;
        it.size = it.info->nbytes;
        if (it.rows >= 0) {
            uint64_t row = it.info->nbytes / (uint64_t)it.info->shape[0];
            it.from = row * (uint64_t)it.begin;
            it.size = row * (uint64_t)it.rows;
        }
        w->items[w->count++] = it;
    }
    if (w->count)
        qsort(w->items, w->count, sizeof *w->items, by_alignment);
}

/* {"w": {"saved_offsets": [16, 0]}, ...}, as a string of JSON. */
static ckpt_status put_offsets(const writing *w, ckpt__buf *header)
{
    ckpt__buf b = {0};
    for (size_t i = 0; i < w->count; i++) {
        const item *it = &w->items[i];
        ckpt__buf_str(&b, i ? ", " : "{");
        ckpt__json_put_string(&b, it->info->name.data, it->info->name.size);
        ckpt__buf_str(&b, ": {\"saved_offsets\": [");
        for (uint32_t d = 0; d < it->info->ndim; d++) {
            ckpt__buf_str(&b, d ? ", " : "");
            ckpt__json_put_i64(&b, d == 0 && it->rows >= 0 ? it->begin : 0);
        }
        ckpt__buf_str(&b, "]}");
    }
    ckpt__buf_str(&b, w->count ? "}" : "{}");
    if (!b.failed)
        ckpt__json_put_string(header, b.data, b.size);
    bool failed = b.failed || header->failed;
    ckpt__buf_free(&b);
    return failed ? no_memory(w) : CKPT_OK;
}

static ckpt_status put_header(const writing *w, ckpt__buf *b)
{
    uint64_t at = 0, end;
    ckpt__buf_add(b, "\0\0\0\0\0\0\0", 8);
    ckpt__buf_str(b, "{\"__metadata__\":{\"format\":\"pt\",\"DCP_VERSION\":\"1.0\",\"DCP_SHARDING_INFO\":");
    ckpt_status status = put_offsets(w, b);
    ckpt__buf_char(b, '}');
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++, at = end) {
        const item *it = &w->items[i];
        int64_t *shape = calloc((size_t)it->info->ndim + 1, sizeof *shape);
        if (!shape)
            return no_memory(w);
        for (uint32_t d = 0; d < it->info->ndim; d++)
            shape[d] = it->info->shape[d];
        if (it->rows >= 0)
            shape[0] = it->rows;
        if (ckpt__add(at, it->size, &end))
            ckpt__st_put_entry(b, true, it->info->name, it->info->dtype, shape, it->info->ndim, at, end);
        else
            status = ckpt__fail(w->err, CKPT_E_LIMIT, NULL, "the tensors together are larger than a file can be");
        free(shape);
    }
    ckpt__buf_char(b, '}');
    return status == CKPT_OK ? ckpt__st_finish_header(b, w->err) : status;
}

static ckpt_status put_file(const writing *w, ckpt__recipe *r)
{
    ckpt_status status = put_header(w, &r->text);
    if (status == CKPT_OK)
        status = ckpt__recipe_add(r, &r->capacity, CKPT__LITERAL, r->text.size, r->text.data, 0, w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        status =
            ckpt__recipe_add_range(r, &r->capacity, w->items[i].tensor, w->items[i].from, w->items[i].size, w->err);
    return status;
}

/* What safetensors has no dtype for has no place in such a file. */
static ckpt_status check_dtypes(const writing *w)
{
    for (size_t i = 0; i < w->q->count; i++) {
        const ckpt_tensor_info *t = &w->q->index->tensors[w->q->tensors[i]].info;
        if (!ckpt__st_fits(t))
            return ckpt__fail(w->err, CKPT_E_UNSUPPORTED, t->name.data,
                              "safetensors has no %s of this shape: convert it (--cast), or write --to dcp",
                              ckpt_dtype_name(t->dtype));
    }
    return CKPT_OK;
}

ckpt_status ckpt__dcp_write_shards(const ckpt__write_request *q, uint32_t ranks, ckpt__recipe **files, ckpt_error *err)
{
    writing w = {.q = q, .err = err};
    w.items = calloc(q->count + 1, sizeof *w.items);
    ckpt_status status = w.items ? check_dtypes(&w) : no_memory(&w);
    for (uint32_t r = 0; status == CKPT_OK && r < ranks; r++) {
        find_items(&w, ranks, r);
        if (w.count == 0 && r > 0)
            continue;
        files[r] = ckpt__recipe_new();
        status = files[r] ? put_file(&w, files[r]) : no_memory(&w);
    }
    free(w.items);
    return status;
}
