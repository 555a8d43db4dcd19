/* format/dcp/write_record.c - a record: what torch.save writes of one tensor, or of one value, inside a rank's file.
 *
 * Archives of boxes with one dtype and one shape differ in the payload and its CRC alone. So one is made of each kind, and of a record
 * there are three segments: the bytes before the payload, which all of a kind share; the payload, a range of the tensor; and the bytes
 * behind it, computed from its CRC when their turn comes. */
#include "format/dcp/write.h"

#include <stdlib.h>
#include "codec/crc32.h"
#include "format/safetensors.h"
#include "format/torch/write.h"

enum { MOST = 48 }; /* segments of an archive of one tensor: it has about twenty */

/* An archive that stands in the file. */
typedef struct part {
    const ckpt__recipe *of; /* the file's */
    size_t base;            /* of one that stands in it segment by segment: the number of its first there */
    size_t payload;         /* of a kind of records: the segment that each has of its own */
    uint32_t crcs[MOST];    /* of a kind: of the segments before that */
    const char *head;       /* of a kind: their bytes, in the file's arena */
    uint64_t head_size, tail_size;
    bool is_kind;
} part;

/* What compute() works on, in the recipe's arena. */
typedef struct parts {
    part **list; /* by number; in the arena */
    size_t count, capacity;
} parts;

struct ckpt__dcp_records {
    const ckpt__write_request *q;
    ckpt__recipe *file;
    ckpt__hash *kinds; /* owned: dtype and shape -> number of the part */
    ckpt__index *none; /* owned: of values without tensors */
};

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "a record of a distributed checkpoint", 0);
}

ckpt__dcp_records *ckpt__dcp_records_new(const ckpt__write_request *q, ckpt__recipe *file)
{
    ckpt__dcp_records *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (ckpt__dcp_records){.q = q, .file = file, .kinds = ckpt__hash_new(16), .none = ckpt__index_new(0)};
    file->ctx = ckpt__arena_alloc(file->arena, sizeof(parts));
    if (r->kinds && r->none && file->ctx)
        return r;
    ckpt__dcp_records_free(r);
    return NULL;
}

void ckpt__dcp_records_free(ckpt__dcp_records *r)
{
    if (!r)
        return;
    ckpt__hash_free(r->kinds);
    ckpt__index_free(r->none);
    free(r);
}

/* Segments [first, end) of an archive as bytes, where none of them is a payload. crcs: of those before, and then of these too. */
static ckpt_status render(const ckpt__recipe *of, size_t first, size_t end, uint32_t *crcs, char *to, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = first; status == CKPT_OK && i < end; i++) {
        const ckpt__segment *s = &of->segments[i];
        if (s->kind == CKPT__LITERAL)
            memcpy(to, s->bytes, (size_t)s->size);
        else
            status = of->compute(of, i, crcs, to, err);
        crcs[i] = ckpt__crc32(0, to, (size_t)s->size);
        to += s->size;
    }
    return status;
}

static uint64_t size_of(const ckpt__recipe *of, size_t first, size_t end)
{
    uint64_t size = 0;
    for (size_t i = first; i < end; i++)
        size += of->segments[i].size;
    return size;
}

static ckpt_status compute(const ckpt__recipe *file, size_t i, const uint32_t *crcs, char *to, ckpt_error *err)
{
    const parts *all = file->ctx;
    const part *p = all->list[file->segments[i].number];
    uint32_t own[MOST];
    if (!p->is_kind)
        return p->of->compute(p->of, i - p->base, crcs + p->base, to, err);
    memcpy(own, p->crcs, sizeof own);
    own[p->payload] = crcs[i - 1];
    return render(p->of, p->payload + 1, p->of->count, own, to, err);
}

static ckpt_status add(ckpt__dcp_records *r, ckpt__segment_kind kind, uint64_t size, const char *bytes, size_t number,
                       ckpt_error *err)
{
    return ckpt__recipe_add(r->file, &r->file->capacity, kind, size, bytes, number, err);
}

/* The file has the archive from now on, also where this fails. */
static ckpt_status keep(ckpt__dcp_records *r, ckpt__recipe *of, part **out, size_t *number, ckpt_error *err)
{
    parts *all = r->file->ctx;
    if (!ckpt__recipe_own(r->file, of))
        return no_memory(err);
    if (all->count == all->capacity) {
        size_t more = all->capacity ? 2 * all->capacity : 8;
        part **list = ckpt__arena_array(r->file->arena, more, sizeof(part *));
        if (!list)
            return no_memory(err);
        if (all->count)
            memcpy(list, all->list, all->count * sizeof(part *));
        all->list = list;
        all->capacity = more;
    }
    if (!(*out = ckpt__arena_alloc(r->file->arena, sizeof **out)))
        return no_memory(err);
    (*out)->of = of;
    *number = all->count;
    all->list[all->count++] = *out;
    r->file->compute = compute;
    return CKPT_OK;
}

/* ---- tensors */

/* An archive of a tensor that is all of its storage. */
static ckpt_status archive_of(const ckpt_tensor_info *t, const int64_t *shape, ckpt__recipe **out, ckpt_error *err)
{
    static const ckpt_value root = {.kind = CKPT_V_TENSOR};
    const size_t one = 0;
    ckpt__index *x = ckpt__index_new(0);
    ckpt__storage *s = x ? ckpt__index_add_storage(x) : NULL;
    ckpt__tensor *own = s ? ckpt__index_add_tensor(x) : NULL;
    uint64_t numel = 0;
    ckpt_status status = own && ckpt__numel(shape, t->ndim, &numel) ? CKPT_OK : no_memory(err);
    if (status == CKPT_OK) {
        *s = (ckpt__storage){.device = ckpt__s("cpu"), .name = t->name, .unit = 1};
        (void)ckpt__nbytes(numel, ckpt_dtype_bits(t->dtype), &s->extent.size);
        own->info.name = t->name;
        own->info.dtype = t->dtype;
        own->info.ndim = t->ndim;
        status = ckpt__index_set_view(x, 0, 0, shape, NULL, 0, err);
    }
    ckpt_report *lost = status == CKPT_OK ? ckpt_report_new() : NULL;
    ckpt__write_request q = {.index = x, .tensors = &one, .count = 1, .root = &root, .step = -1, .lost = lost};
    if (status == CKPT_OK)
        status = lost ? ckpt__torch_write(&q, out, err) : no_memory(err);
    if (status == CKPT_OK && ckpt_report_count(lost)) {
        status = ckpt__fail(err, CKPT_E_UNSUPPORTED, t->name.data, "%s", ckpt_report_get(lost, 0)->message);
        ckpt__recipe_free(*out);
        *out = NULL;
    }
    ckpt_report_free(lost);
    ckpt__index_free(x);
    return status;
}

static ckpt_status make_kind(ckpt__dcp_records *r, const ckpt_tensor_info *t, const int64_t *shape, size_t *number,
                             ckpt_error *err)
{
    ckpt__recipe *of = NULL;
    part *p = NULL;
    ckpt_status status = archive_of(t, shape, &of, err);
    if (status == CKPT_OK)
        status = keep(r, of, &p, number, err);
    if (status < 0)
        return status;
    p->is_kind = true;
    while (p->payload < of->count && of->segments[p->payload].kind != CKPT__STORAGE)
        p->payload++;
    if (of->count > MOST)
        return ckpt__fail(err, CKPT_E_LIMIT, t->name.data, "its archive has %zu segments", of->count);
    p->head_size = size_of(of, 0, p->payload);
    p->tail_size = p->payload < of->count ? size_of(of, p->payload + 1, of->count) : 0;
    char *head = ckpt__arena_alloc(r->file->arena, (size_t)p->head_size);
    p->head = head;
    return head ? render(of, 0, p->payload, p->crcs, head, err) : no_memory(err);
}

ckpt_status ckpt__dcp_record_tensor(ckpt__dcp_records *r, size_t tensor, const ckpt__dcp_cut *cut, size_t box,
                                    ckpt_error *err)
{
    const ckpt_tensor_info *t = &r->q->index->tensors[tensor].info;
    int64_t *shape = ckpt__arena_array(r->file->arena, (size_t)t->ndim + 2, sizeof *shape);
    uint64_t from = 0, size = t->nbytes;
    size_t number, bytes = ((size_t)t->ndim + 1) * sizeof *shape;
    ckpt_status status = CKPT_OK;
    if (!shape)
        return no_memory(err);
    for (uint32_t d = 0; d < t->ndim; d++)
        shape[d] = cut ? ckpt__dcp_box_size(cut, box)[d] : t->shape[d];
    if (cut) { /* of a tensor with whole bytes to an element: its bytes are counted, so that these are, too */
        const uint64_t unit = t->nbytes / cut->begin[cut->count];
        from = unit * cut->begin[box];
        size = unit * (cut->begin[box + 1] - cut->begin[box]);
    }
    shape[t->ndim] = t->dtype;
    int there = ckpt__hash_get(r->kinds, (const char *)shape, bytes, &number);
    if (!there)
        status = make_kind(r, t, shape, &number, err);
    if (status == CKPT_OK && !there && ckpt__hash_put(r->kinds, (const char *)shape, bytes, number, NULL) < 0)
        status = no_memory(err);
    if (status < 0)
        return status;
    const part *p = ((const parts *)r->file->ctx)->list[number];
    status = add(r, CKPT__LITERAL, p->head_size, p->head, 0, err);
    if (status == CKPT_OK && size)
        status = ckpt__recipe_add_range(r->file, &r->file->capacity, tensor, from, size, err);
    return status == CKPT_OK ? add(r, CKPT__COMPUTED, p->tail_size, NULL, number, err) : status;
}

/* ---- values */

/* Does it hold a tensor, or an object, which may? */
static int may_hold(void *ctx, const ckpt_visit *visit)
{
    (void)ctx;
    return visit->value->kind == CKPT_V_TENSOR || visit->value->kind == CKPT_V_OBJECT;
}

/* An archive without payloads, as bytes. */
static ckpt_status put_bytes(ckpt__dcp_records *r, const ckpt__recipe *of, ckpt_error *err)
{
    uint32_t *crcs = calloc(of->count + 1, sizeof *crcs);
    char *bytes = ckpt__arena_alloc(r->file->arena, (size_t)of->size);
    ckpt_status status = crcs && bytes ? render(of, 0, of->count, crcs, bytes, err) : no_memory(err);
    free(crcs);
    return status == CKPT_OK ? add(r, CKPT__LITERAL, of->size, bytes, 0, err) : status;
}

static ckpt_status put_segments(ckpt__dcp_records *r, ckpt__recipe *of, ckpt_error *err)
{
    part *p;
    size_t number;
    const size_t base = r->file->count;
    ckpt_status status = keep(r, of, &p, &number, err);
    if (status == CKPT_OK)
        p->base = base;
    for (size_t i = 0; status == CKPT_OK && i < of->count; i++) {
        const ckpt__segment *s = &of->segments[i];
        bool literal = s->kind == CKPT__LITERAL;
        status =
            add(r, s->kind, s->size, literal ? s->bytes : NULL, s->kind == CKPT__COMPUTED ? number : s->number, err);
    }
    return status;
}

ckpt_status ckpt__dcp_record_value(ckpt__dcp_records *r, const ckpt_value *value, ckpt_error *err)
{
    int holds = ckpt_value_walk(value, 0, may_hold, NULL, err);
    if (holds < 0)
        return (ckpt_status)holds;
    ckpt__write_request q = *r->q;
    ckpt__recipe *of = NULL;
    q.root = value;
    q.archive = NULL;
    q.source = r->q->source ? r->q->source : r->q->index;
    if (!holds)
        q.index = r->none; /* a table of all storages for each value would be long */
    ckpt_status status = ckpt__torch_write(&q, &of, err);
    bool payloads = false;
    for (size_t i = 0; status == CKPT_OK && i < of->count; i++)
        payloads |= of->segments[i].kind == CKPT__STORAGE;
    if (status == CKPT_OK && payloads)
        return put_segments(r, of, err);
    if (status == CKPT_OK)
        status = put_bytes(r, of, err);
    ckpt__recipe_free(of);
    return status;
}
