/* base/strided.c - walking strided views. */
#include "base/strided.h"

void ckpt__strided_init(ckpt__strided *it, const int64_t *shape, const int64_t *strides, uint32_t ndim, size_t size)
{
    memset(it, 0, sizeof *it);
    it->left = 1;
    for (uint32_t i = 0; i < ndim; i++)
        if (shape[i] == 0) {
            it->left = 0;
            return;
        }
    for (uint32_t i = 0; i < ndim; i++) {
        uint64_t n = (uint64_t)shape[i], step = (uint64_t)strides[i] * size;
        if (n == 1)
            continue;
        it->left *= n;
        if (it->ndim && it->stride[it->ndim - 1] == n * step) { /* continues the dimension before */
            it->shape[it->ndim - 1] *= n;
            it->stride[it->ndim - 1] = step;
        } else {
            it->shape[it->ndim] = n;
            it->stride[it->ndim++] = step;
        }
    }
    it->run = size;
    if (it->ndim && it->stride[it->ndim - 1] == size) {
        it->run = it->shape[it->ndim - 1] * size;
        it->left /= it->shape[it->ndim - 1];
        it->ndim--;
    }
}

static void advance(ckpt__strided *it)
{
    it->partial = 0;
    it->left--;
    for (uint32_t i = it->ndim; i-- > 0;) {
        it->offset += it->stride[i];
        if (++it->index[i] < it->shape[i])
            return;
        it->offset -= it->stride[i] * it->shape[i];
        it->index[i] = 0;
    }
}

bool ckpt__strided_next(ckpt__strided *it, uint64_t most, uint64_t *offset, uint64_t *n)
{
    if (it->left == 0 || most == 0)
        return false;
    uint64_t rest = it->run - it->partial;
    *offset = it->offset + it->partial;
    *n = rest < most ? rest : most;
    it->partial += *n;
    if (it->partial == it->run)
        advance(it);
    return true;
}

void ckpt__strided_gather(ckpt__strided *it, const void *base, void *dst, size_t n)
{
    const char *from = base;
    char *to = dst;
    uint64_t offset, got;
    while (n && ckpt__strided_next(it, n, &offset, &got)) {
        memcpy(to, from + offset, (size_t)got);
        to += got;
        n -= (size_t)got;
    }
}

void ckpt__strided_scatter(ckpt__strided *it, void *base, const void *src, size_t n)
{
    const char *from = src;
    char *to = base;
    uint64_t offset, got;
    while (n && ckpt__strided_next(it, n, &offset, &got)) {
        memcpy(to + offset, from, (size_t)got);
        from += got;
        n -= (size_t)got;
    }
}

void ckpt__swap_bytes(void *data, size_t n, uint32_t unit)
{
    unsigned char *p = data;
    if (unit < 2)
        return;
    for (size_t i = 0; i + unit <= n; i += unit)
        for (uint32_t a = 0, b = unit - 1; a < b; a++, b--) {
            unsigned char t = p[i + a];
            p[i + a] = p[i + b];
            p[i + b] = t;
        }
}
