/* format/recipe.c - recipes, and the parts of a safetensors header that both of its writers make. */
#include "format/safetensors.h"

#include <stdlib.h>

ckpt__recipe *ckpt__recipe_new(void)
{
    ckpt__recipe *r = calloc(1, sizeof *r);
    if (r && !(r->arena = ckpt__arena_new(0))) {
        free(r);
        return NULL;
    }
    return r;
}

void ckpt__recipe_free(ckpt__recipe *r)
{
    if (!r)
        return;
    ckpt__arena_free(r->arena);
    ckpt__buf_free(&r->text);
    free(r->segments);
    free(r->ranges);
    for (size_t i = 0; i < r->part_count; i++)
        ckpt__recipe_free(r->parts[i]);
    free(r->parts);
    free(r->left_out);
    free(r);
}

ckpt_status ckpt__recipe_add(ckpt__recipe *r, size_t *capacity, ckpt__segment_kind kind, uint64_t size,
                             const char *bytes, size_t number, ckpt_error *err)
{
    if (size == 0)
        return CKPT_OK;
    if (!ckpt__grow(&r->segments, capacity, r->count + 1, sizeof *r->segments))
        return ckpt__fail_memory(err, "segments", r->count * sizeof *r->segments);
    if (!ckpt__add(r->size, size, &r->size) || r->size > INT64_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "the tensors together are larger than a file can be");
    ckpt__segment *s = &r->segments[r->count++];
    *s = (ckpt__segment){.kind = kind, .size = size, .number = number};
    if (kind == CKPT__LITERAL || kind == CKPT__DEFERRED)
        s->bytes = (char *)(uintptr_t)bytes;
    return CKPT_OK;
}

ckpt_status ckpt__recipe_add_range(ckpt__recipe *r, size_t *capacity, size_t tensor, uint64_t begin, uint64_t size,
                                   ckpt_error *err)
{
    if (!ckpt__grow(&r->ranges, &r->range_capacity, r->range_count + 1, sizeof *r->ranges))
        return ckpt__fail_memory(err, "segments", r->count * sizeof *r->segments);
    ckpt_status status = ckpt__recipe_add(r, capacity, CKPT__RANGE, size, NULL, r->range_count, err);
    if (status == CKPT_OK && size)
        r->ranges[r->range_count++] = (ckpt__range){tensor, begin};
    return status;
}

bool ckpt__recipe_own(ckpt__recipe *r, ckpt__recipe *part)
{
    if (!ckpt__grow(&r->parts, &r->part_capacity, r->part_count + 1, sizeof *r->parts)) {
        ckpt__recipe_free(part);
        return false;
    }
    r->parts[r->part_count++] = part;
    return true;
}

/* The order of Dtype in safetensors/src/tensor.rs: ascending alignment. */
int ckpt__st_rank(ckpt_dtype dtype)
{
    static const ckpt_dtype order[] = {
        CKPT_BOOL,    CKPT_F4,          CKPT_F6_E2M3,     CKPT_F6_E3M2, CKPT_U8,  CKPT_I8,  CKPT_F8_E5M2, CKPT_F8_E4M3,
        CKPT_F8_E8M0, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ, CKPT_I16,     CKPT_U16, CKPT_F16, CKPT_BF16,    CKPT_I32,
        CKPT_U32,     CKPT_F32,         CKPT_C64,         CKPT_F64,     CKPT_I64, CKPT_U64,
    };
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
        if (order[i] == dtype)
            return i;
    return -1;
}

bool ckpt__st_fits(const ckpt_tensor_info *info)
{
    uint64_t numel, nbytes;
    const unsigned bits = ckpt_dtype_bits(info->dtype);
    return ckpt__st_rank(info->dtype) >= 0 && ckpt__numel(info->shape, info->ndim, &numel) &&
           numel % 8 * bits % 8 == 0 && ckpt__nbytes(numel, bits, &nbytes) && nbytes == info->nbytes;
}

void ckpt__st_put_entry(ckpt__buf *b, bool comma, ckpt_str name, ckpt_dtype dtype, const int64_t *shape, uint32_t ndim,
                        uint64_t begin, uint64_t end)
{
    if (comma)
        ckpt__buf_char(b, ',');
    ckpt__json_put_string(b, name.data, name.size);
    ckpt__buf_str(b, ":{\"dtype\":\"");
    ckpt__buf_str(b, ckpt__dtype_row_of(dtype)->safetensors);
    ckpt__buf_str(b, "\",\"shape\":[");
    for (uint32_t i = 0; i < ndim; i++) {
        if (i)
            ckpt__buf_char(b, ',');
        ckpt__json_put_i64(b, shape[i]);
    }
    ckpt__buf_str(b, "],\"data_offsets\":[");
    ckpt__json_put_u64(b, begin);
    ckpt__buf_char(b, ',');
    ckpt__json_put_u64(b, end);
    ckpt__buf_str(b, "]}");
}

ckpt_status ckpt__st_finish_header(ckpt__buf *b, ckpt_error *err)
{
    static const char spaces[64] = "                                                                ";
    while (!b->failed && b->size % CKPT__ST_ALIGN) {
        size_t n = CKPT__ST_ALIGN - b->size % CKPT__ST_ALIGN;
        ckpt__buf_add(b, spaces, n < sizeof spaces ? n : sizeof spaces);
    }
    if (b->failed)
        return ckpt__fail_memory(err, "header", b->size);
    uint64_t n = b->size - 8;
    if (n > CKPT__ST_HEADER_MAX)
        return ckpt__fail(
            err, CKPT_E_LIMIT, NULL,
            "the header would be %llu bytes, safetensors allows %u: fewer tensors a file, or shorter names",
            (unsigned long long)n, CKPT__ST_HEADER_MAX);
    for (int i = 0; i < 8; i++)
        b->data[i] = (char)(unsigned char)(n >> 8 * i);
    return CKPT_OK;
}
