/* base/shape.c - overflow-checked arithmetic over shapes and strides. */
#include "base/base.h"

#include <stdio.h>

bool ckpt__numel(const int64_t *shape, uint32_t ndim, uint64_t *out)
{
    uint64_t n = 1;
    bool zero = false;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        if (shape[i] == 0)
            zero = true; /* the others are still checked: torch refuses [0, 2^40, 2^40] too */
        else if (!ckpt__mul(n, (uint64_t)shape[i], &n) || n > INT64_MAX)
            return false;
    }
    *out = zero ? 0 : n;
    return true;
}

bool ckpt__same_shape(const int64_t *a, uint32_t a_ndim, const int64_t *b, uint32_t b_ndim)
{
    return a_ndim == b_ndim && (a_ndim == 0 || memcmp(a, b, a_ndim * sizeof *a) == 0);
}

void ckpt__shape_text(char *buf, size_t size, const int64_t *shape, uint32_t ndim)
{
    size_t at = 0;
    at += (size_t)snprintf(buf, size, "[");
    for (uint32_t i = 0; i < ndim && at + 24 < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(buf + at, size - at, at + 24 < size ? "]" : "...]");
}

bool ckpt__nbytes(uint64_t numel, unsigned bits, uint64_t *out)
{
    uint64_t all;
    if (bits % 8 == 0)
        return ckpt__mul(numel, bits / 8, out);
    if (!ckpt__mul(numel, bits, &all) || all > UINT64_MAX - 7)
        return false;
    *out = (all + 7) / 8;
    return true;
}

void ckpt__c_strides(const int64_t *shape, uint32_t ndim, int64_t *strides)
{
    int64_t n = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        strides[i] = n;
        n *= shape[i] > 1 ? shape[i] : 1;
    }
}

static bool is_last(const ckpt__last_view *v, const int64_t *shape, const int64_t *strides, uint32_t ndim)
{
    const size_t size = ndim * sizeof *shape;
    if (!v->last || v->ndim != ndim || (ndim && memcmp(v->last, shape, size) != 0))
        return false;
    return strides && ndim ? memcmp(v->last + ndim, strides, size) == 0 : v->c_order;
}

const int64_t *ckpt__view_keep(ckpt__last_view *v, ckpt__arena *a, const int64_t *shape, const int64_t *strides,
                               uint32_t ndim)
{
    if (is_last(v, shape, strides, ndim))
        return v->last;
    int64_t *copy = ckpt__arena_array(a, ndim ? 2 * (size_t)ndim : 1, sizeof *copy);
    if (!copy)
        return NULL;
    if (ndim)
        memcpy(copy, shape, ndim * sizeof *copy);
    if (strides && ndim)
        memcpy(copy + ndim, strides, ndim * sizeof *copy);
    else
        ckpt__c_strides(copy, ndim, copy + ndim);
    *v = (ckpt__last_view){copy, ndim, !strides || !ndim};
    return copy;
}

bool ckpt__is_c_order(const int64_t *shape, const int64_t *strides, uint32_t ndim)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return true;
    for (uint32_t i = ndim; i-- > 0;) {
        if (shape[i] != 1 && strides[i] != n)
            return false;
        n *= shape[i];
    }
    return true;
}

bool ckpt__is_dense(const int64_t *shape, const int64_t *strides, uint32_t ndim)
{
    int64_t next = 1;
    uint32_t left = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] == 0)
            return true;
        left += shape[i] != 1;
    }
    while (left--) {
        uint32_t i = 0;
        while (i < ndim && (shape[i] == 1 || strides[i] != next))
            i++;
        if (i == ndim)
            return false;
        next *= shape[i];
    }
    return true;
}

bool ckpt__view_extent(const int64_t *shape, const int64_t *strides, uint32_t ndim, uint64_t *out)
{
    uint64_t last = 0, step;
    bool empty = false;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0 || strides[i] < 0)
            return false;
        if (shape[i] == 0) {
            empty = true;
            continue;
        }
        if (!ckpt__mul((uint64_t)shape[i] - 1, (uint64_t)strides[i], &step) || !ckpt__add(last, step, &last))
            return false;
    }
    if (empty) {
        *out = 0;
        return true;
    }
    return ckpt__add(last, 1, out);
}
