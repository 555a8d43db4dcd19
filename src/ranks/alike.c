/* ranks/alike.c - have two ranks the same? Values are compared as they are, tensors by the checksums that their files keep, and by their
 * bytes where there are none. */
#include "ranks/ranks.h"

#include <stdlib.h>
#include "engine/elements.h"
#include "model/visits.h"

/* ---- tensors */

/* The CRC of a row that is all of its storage, in C order. */
static bool crc_of(const ckpt__ranks *r, size_t row, uint32_t *crc)
{
    const ckpt__tensor *t = &r->index->tensors[row];
    const ckpt__extent *e = t->whole ? &r->index->storages[t->storage].extent : NULL;
    if (t->has_crc) {
        *crc = t->crc;
        return true;
    }
    if (!e || !e->has_crc || t->info.offset != 0 || t->info.nbytes != e->size || e->big_endian || t->info.conj ||
        t->info.neg || (t->info.strides && !ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim)))
        return false;
    *crc = e->crc;
    return true;
}

/* Both, block by block. *at: the element that differs first. */
static ckpt_status read_both(ckpt__ranks *r, size_t a, size_t b, bool *same, uint64_t *at)
{
    enum { BLOCK = 1 << 18 };
    const ckpt__elements_options options = {.check = true, .resolve = true, .memory = 4 << 20};
    const uint64_t size = r->index->tensors[a].info.nbytes;
    const unsigned unit = ckpt_dtype_bits(r->index->tensors[a].info.dtype) / 8;
    ckpt__elements one = {.at = 0}, two = {.at = 0};
    unsigned char *blocks = malloc(2 * (size_t)BLOCK);
    ckpt_status status = blocks ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    if (status == CKPT_OK)
        status = ckpt__elements_of_tensor(&one, r->source, r->index, a, &options, r->err);
    if (status == CKPT_OK)
        status = ckpt__elements_of_tensor(&two, r->source, r->index, b, &options, r->err);
    for (uint64_t done = 0; status == CKPT_OK && *same && done < size;) {
        const size_t n = size - done < BLOCK ? (size_t)(size - done) : (size_t)BLOCK;
        size_t k = 0;
        status = ckpt__elements_read(&one, blocks, n, r->err);
        if (status == CKPT_OK)
            status = ckpt__elements_read(&two, blocks + BLOCK, n, r->err);
        if (status == CKPT_OK && memcmp(blocks, blocks + BLOCK, n) != 0) {
            while (blocks[k] == blocks[BLOCK + k])
                k++;
            *same = false;
            *at = (done + k) / (unit ? unit : 1);
        }
        done += n;
    }
    ckpt__elements_close(&one);
    ckpt__elements_close(&two);
    free(blocks);
    return status;
}

ckpt_status ckpt__ranks_same_bytes(ckpt__ranks *r, size_t a, size_t b, bool *same, uint64_t *at)
{
    uint32_t one, other;
    *same = true;
    *at = 0;
    if (crc_of(r, a, &one) && crc_of(r, b, &other) && one == other)
        return CKPT_OK;
    return read_both(r, a, b, same, at);
}

/* ---- values */

/* A value as bytes. Of a tensor its place among the tensors of the value is one of them. */
typedef struct printer {
    ckpt__ranks *r;
    ckpt__buf text;
    size_t *rows; /* heap: of its tensors */
    size_t count, capacity;
} printer;

static int on_print(void *ctx, const ckpt_visit *visit)
{
    printer *p = ctx;
    const ckpt_value *v = visit->value;
    ckpt__buf *b = &p->text;
    ckpt__visit_bytes(b, visit);
    if (v->kind == CKPT_V_TENSOR && v->tensor < p->r->row_count) {
        const ckpt_tensor_info *t = &p->r->index->tensors[v->tensor].info;
        ckpt__buf_printf(b, "%d %u %d%d", (int)t->dtype, (unsigned)t->ndim, t->conj, t->neg);
        if (t->ndim)
            ckpt__buf_add(b, t->shape, t->ndim * sizeof *t->shape);
        if (!ckpt__grow(&p->rows, &p->capacity, p->count + 1, sizeof *p->rows))
            return ckpt__ranks_no_memory(p->r->err);
        p->rows[p->count++] = v->tensor;
    }
    return b->failed ? ckpt__ranks_no_memory(p->r->err) : CKPT_OK;
}

ckpt_status ckpt__ranks_alike(ckpt__ranks *r, const ckpt_value *a, const ckpt_value *b, bool *same)
{
    printer one = {.r = r}, two = {.r = r};
    uint64_t at;
    ckpt_status status = (ckpt_status)ckpt_value_walk(a, 0, on_print, &one, r->err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(b, 0, on_print, &two, r->err);
    *same = status == CKPT_OK && one.text.size == two.text.size && one.count == two.count &&
            memcmp(one.text.data, two.text.data, one.text.size) == 0;
    for (size_t i = 0; status == CKPT_OK && *same && i < one.count; i++)
        if (!ckpt__has_no_bytes(&r->index->tensors[one.rows[i]]) &&
            !ckpt__has_no_bytes(&r->index->tensors[two.rows[i]]))
            status = ckpt__ranks_same_bytes(r, one.rows[i], two.rows[i], same, &at);
    ckpt__buf_free(&one.text);
    ckpt__buf_free(&two.text);
    free(one.rows);
    free(two.rows);
    return status;
}
