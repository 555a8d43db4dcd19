/* format/dcp/write_shards.c - a model as HuggingFaceStorageWriter writes it: a file of safetensors for each rank, with its box of each
 * tensor, and in the metadata where the box begins (see shards.c). */
#include "format/dcp/write.h"

#include <stdlib.h>
#include "codec/json.h"
#include "format/safetensors.h"

/* One tensor that a rank writes a box of. */
typedef struct item {
    size_t tensor;
    const ckpt_tensor_info *info;
    const int64_t *lo, *shape; /* of the box; lo NULL: it begins at 0 */
    uint64_t from, size;       /* bytes */
} item;

typedef struct writing {
    const ckpt__write_request *q;
    const ckpt__dcp_ranks *ranks;
    ckpt__dcp_share *shares; /* heap: one a tensor of the request */
    uint32_t *writers;       /* heap: theirs */
    item *items;             /* heap: of one rank */
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

/* Who writes which box of which tensor. */
static ckpt_status share_out(writing *w)
{
    size_t boxes = 0;
    w->shares = calloc(w->q->count + 1, sizeof *w->shares);
    for (size_t i = 0; w->shares && i < w->q->count; i++) {
        const ckpt__dcp_cut *cut = ckpt__dcp_cut_of(w->ranks, w->q->tensors[i]);
        w->shares[i] = (ckpt__dcp_share){.cut = cut, .nbytes = w->q->index->tensors[w->q->tensors[i]].info.nbytes};
        boxes += cut ? cut->count : 1;
    }
    w->writers = calloc(boxes + 1, sizeof *w->writers);
    boxes = 0;
    for (size_t i = 0; w->shares && w->writers && i < w->q->count; i++) {
        w->shares[i].writers = w->writers + boxes;
        boxes += w->shares[i].cut ? w->shares[i].cut->count : 1;
    }
    return w->shares && w->writers && ckpt__dcp_assign(w->ranks, w->shares, w->q->count) ? CKPT_OK : no_memory(w);
}

/* Box k of the tensor, where the rank writes it. */
static bool take_box(const writing *w, size_t number, size_t k, uint32_t rank, item *it)
{
    const ckpt__dcp_share *s = &w->shares[number];
    const ckpt__dcp_cut *c = s->cut;
    if (s->writers[k] != rank || (c && ckpt__dcp_box_is_empty(c, k)))
        return false;
    *it = (item){.tensor = w->q->tensors[number]};
    it->info = &w->q->index->tensors[it->tensor].info;
    it->shape = c ? ckpt__dcp_box_size(c, k) : it->info->shape;
    it->lo = c ? ckpt__dcp_box_lo(c, k) : NULL;
    it->size = it->info->nbytes;
    if (c) {
        const uint64_t unit = it->info->nbytes / c->begin[c->count];
        it->from = unit * c->begin[k];
        it->size = unit * (c->begin[k + 1] - c->begin[k]);
    }
    return true;
}

/* Ranks up to the last one that has something. A rank before that has a file without tensors: the files are numbered. */
static uint32_t ranks_with_files(const writing *w)
{
    uint32_t ranks = 1;
    for (size_t i = 0; i < w->q->count; i++) {
        const ckpt__dcp_share *s = &w->shares[i];
        for (size_t k = 0; k < (s->cut ? s->cut->count : 1); k++)
            if (s->writers[k] >= ranks && !(s->cut && ckpt__dcp_box_is_empty(s->cut, k)))
                ranks = s->writers[k] + 1;
    }
    return ranks;
}

static ckpt_status find_items(writing *w, uint32_t rank)
{
    w->count = 0;
    for (size_t i = 0; i < w->q->count; i++) {
        const ckpt__dcp_cut *c = w->shares[i].cut;
        const size_t first = c ? c->first_held[rank] : 0, end = c ? c->first_held[rank + 1] : 1;
        size_t boxes = 0;
        for (size_t k = first; k < end; k++) {
            if (!take_box(w, i, c ? c->held[k] : 0, rank, &w->items[w->count + (boxes != 0)]))
                continue;
            if (boxes++)
                return ckpt__fail(
                    w->err, CKPT_E_UNSUPPORTED, w->q->index->tensors[w->q->tensors[i]].info.name.data,
                    "rank %u has several boxes of it, and a file of safetensors has one of each tensor: cut "
                    "it without segments, or write --to dcp",
                    (unsigned)rank);
        }
        w->count += boxes != 0;
    }
    if (w->count)
        qsort(w->items, w->count, sizeof *w->items, by_alignment);
    return CKPT_OK;
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
            ckpt__json_put_i64(&b, it->lo ? it->lo[d] : 0);
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
        if (ckpt__add(at, it->size, &end))
            ckpt__st_put_entry(b, true, it->info->name, it->info->dtype, it->shape, it->info->ndim, at, end);
        else
            status = ckpt__fail(w->err, CKPT_E_LIMIT, NULL, "the tensors together are larger than a file can be");
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

ckpt_status ckpt__dcp_write_shards(const ckpt__write_request *q, const ckpt__dcp_ranks *ranks, ckpt__recipe **files,
                                   ckpt_error *err)
{
    writing w = {.q = q, .ranks = ranks, .err = err};
    w.items = calloc(q->count + 2, sizeof *w.items); /* one more than there are, where a second box is found */
    ckpt_status status = w.items ? check_dtypes(&w) : no_memory(&w);
    if (status == CKPT_OK)
        status = share_out(&w);
    const uint32_t count = status == CKPT_OK ? ranks_with_files(&w) : 0;
    for (uint32_t r = 0; status == CKPT_OK && r < count; r++) {
        status = find_items(&w, r);
        if (status < 0)
            break;
        files[r] = ckpt__recipe_new();
        status = files[r] ? put_file(&w, files[r]) : no_memory(&w);
    }
    free(w.items);
    free(w.shares);
    free(w.writers);
    return status;
}
