/* engine/payload.c - the payloads of a recipe that are read from another checkpoint. */
#include "engine/payload.h"

#include <stdlib.h>
#include "engine/elements.h"
#include "model/views.h"

enum { SOURCE_BLOCK = 256 << 10 }; /* bytes that are converted at a time */

/* The one payload that is read, and what all of them share. Where the source has 3 storages and the target 5, the
 * storages 3 and 4 are new: own_count is 2, and own[0] is the tensor that storage 3 is made of.
 *
 * A read of 6 bytes of float32 that are converted ends within the second element: 4 bytes go to the caller at once;
 * the second element goes to `carry`, carried is 4, and 2 bytes are given (carry_at 2). The next read begins with
 * the other 2. */
struct ckpt__reader_payload {
    const ckpt__source *source; /* borrowed, as are the indexes and casts */
    const ckpt__index *from, *to;
    const ckpt_dtype *casts;      /* one a tensor of `from`; NULL: none */
    uint64_t memory;              /* bytes that the buffers may take */
    ckpt__convert_counts *counts; /* heap, owned: per tensor of `from`; NULL: no casts */
    size_t *own;
    size_t own_count; /* heap, owned: the tensor of each storage that the source does not have;
                                       * SIZE_MAX: none */
    bool open;        /* kind and number are those of the payload that is being read */
    ckpt__segment_kind kind;
    size_t number;
    uint64_t next;           /* the byte of it that comes next */
    ckpt__elements elements; /* owned */
    ckpt__index view;        /* a copy of `from` with one tensor: its elements in the order of their places in a
                                   * storage. It owns nothing; the next two and `sizes` are its tensor */
    ckpt__tensor ordered;
    int64_t *sizes; /* heap, owned: shape, then strides; NULL before the first such tensor */
    /* one that is converted */
    bool converts;
    size_t tensor;            /* number in `from` */
    ckpt_dtype dtype, cast;   /* of the source's elements, of the target's */
    uint64_t left;            /* elements that are not converted yet */
    unsigned char *block;     /* heap, owned: SOURCE_BLOCK bytes of the source's elements; NULL before the first
                                   * conversion */
    unsigned char carry[16];  /* of a converted element that a read cuts */
    size_t carried, carry_at; /* bytes of it; how many were given out */
};

/* ---- opening one */

static bool resolved(const ckpt__reader_payload *p, size_t tensor)
{
    const ckpt_tensor_info *a = &p->from->tensors[tensor].info, *b = &p->to->tensors[tensor].info;
    return (a->conj && !b->conj) || (a->neg && !b->neg);
}

static ckpt_status open_tensor(ckpt__reader_payload *p, size_t tensor, ckpt_error *err)
{
    const ckpt_tensor_info *from = &p->from->tensors[tensor].info;
    ckpt__elements_options options = {.check = true, .resolve = resolved(p, tensor), .memory = p->memory};
    size_t size = ckpt_dtype_size(from->dtype);
    p->tensor = tensor;
    p->dtype = from->dtype;
    p->cast = p->casts ? p->casts[tensor] : CKPT_DTYPE_NONE;
    p->converts = p->cast != CKPT_DTYPE_NONE && p->cast != p->dtype;
    p->carried = p->carry_at = 0;
    p->left = size ? from->nbytes / size : 0;
    if (p->converts) {
        options.resolve = true;
        memset(&p->counts[tensor], 0, sizeof *p->counts);
        if (!ckpt__convert(p->dtype, NULL, p->cast, NULL, 0, NULL))
            return ckpt__fail(err, CKPT_E_UNSUPPORTED, from->name.data, "there is no conversion from %s to %s",
                              ckpt_dtype_name(p->dtype), ckpt_dtype_name(p->cast));
        if (!p->block && !(p->block = malloc(SOURCE_BLOCK)))
            return ckpt__fail_memory(err, from->name.data, SOURCE_BLOCK);
    }
    return ckpt__elements_of_tensor(&p->elements, p->source, p->from, tensor, &options, err);
}

/* The storage of a tensor whose dimensions lie in another order than C's: its elements in that order, the longest stride
 * first, are a view like any other. */
static ckpt_status open_ordered(ckpt__reader_payload *p, size_t tensor, ckpt_error *err)
{
    const ckpt__tensor *from = &p->from->tensors[tensor], *to = &p->to->tensors[tensor];
    const int64_t *order = to->info.strides;
    ckpt__elements_options options = {.check = true, .resolve = resolved(p, tensor), .memory = p->memory};
    uint32_t n = to->info.ndim;
    int64_t *sizes = realloc(p->sizes, ((size_t)n * 2 + 1) * sizeof *sizes), *strides = sizes ? sizes + n : NULL;
    if (!sizes)
        return ckpt__fail_memory(err, from->info.name.data, n);
    p->sizes = sizes;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 0; /* how many lie outside of dimension i */
        for (uint32_t k = 0; k < n; k++)
            at += order[k] > order[i] || (order[k] == order[i] && k < i);
        sizes[at] = from->info.shape[i];
        strides[at] = from->info.strides[i];
    }
    p->view = *p->from;
    p->view.tensors = &p->ordered;
    p->view.tensor_count = 1;
    p->ordered = *from;
    p->ordered.has_crc = false;
    p->ordered.info.shape = sizes;
    p->ordered.info.strides = strides;
    return ckpt__elements_of_tensor(&p->elements, p->source, &p->view, 0, &options, err);
}

static bool is_ordered(const ckpt__reader_payload *p, size_t tensor)
{
    const ckpt__tensor *to = &p->to->tensors[tensor];
    bool converts =
        p->casts && p->casts[tensor] != CKPT_DTYPE_NONE && p->casts[tensor] != p->from->tensors[tensor].info.dtype;
    return !converts && to->whole && p->from->tensors[tensor].whole &&
           to->info.ndim == p->from->tensors[tensor].info.ndim &&
           !ckpt__is_c_order(to->info.shape, to->info.strides, to->info.ndim);
}

static ckpt_status open_payload(ckpt__reader_payload *p, ckpt__segment_kind kind, size_t number, ckpt_error *err)
{
    ckpt__elements_options options = {.check = true, .memory = p->memory};
    size_t tensor = number;
    ckpt__elements_close(&p->elements);
    p->kind = kind;
    p->number = number;
    p->next = 0;
    p->open = true;
    p->converts = false;
    if (kind == CKPT__STORAGE) {
        size_t k = number - p->from->storage_count;
        if (number < p->from->storage_count)
            return ckpt__elements_of_storage(&p->elements, p->source, p->from, number, false, &options, err);
        tensor = k < p->own_count ? p->own[k] : SIZE_MAX;
    }
    if (tensor >= p->from->tensor_count)
        return ckpt__fail(err, CKPT_E_FORMAT, "payload", "number %zu is asked for, which the source does not have",
                          number);
    if (kind == CKPT__STORAGE && is_ordered(p, tensor))
        return open_ordered(p, tensor, err);
    return open_tensor(p, tensor, err);
}

/* ---- reading */

/* `count` more elements, converted. */
static ckpt_status convert_some(ckpt__reader_payload *p, void *dst, size_t count, ckpt_error *err)
{
    const ckpt_tensor_info *to = &p->to->tensors[p->tensor].info;
    ckpt__convert_counts *counts = &p->counts[p->tensor];
    ckpt_status status = ckpt__elements_read(&p->elements, p->block, count * ckpt_dtype_size(p->dtype), err);
    if (status < 0)
        return status;
    ckpt__convert_counted(p->dtype, p->block, p->cast, dst, count, counts);
    p->left -= count;
    if (counts->inexact && to->role == CKPT_ROLE_STEP)
        return ckpt__fail(err, CKPT_E_MISMATCH, to->name.data, "this step is not exactly representable in %s",
                          ckpt_dtype_name(p->cast));
    return CKPT_OK;
}

static ckpt_status read_converted(ckpt__reader_payload *p, unsigned char *to, size_t n, ckpt_error *err)
{
    size_t size = ckpt_dtype_size(p->cast), most = SOURCE_BLOCK / ckpt_dtype_size(p->dtype);
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && n) {
        size_t some = p->carried - p->carry_at, count = n / size < most ? n / size : most;
        if (some) {
            some = some < n ? some : n;
            memcpy(to, p->carry + p->carry_at, some);
            p->carry_at += some;
        } else if (p->left < (count ? count : 1))
            return ckpt__fail(err, CKPT_E_FORMAT, p->elements.what, "more is asked for than its elements in %s",
                              ckpt_dtype_name(p->cast));
        else if (count) {
            status = convert_some(p, to, count, err);
            some = count * size;
        } else {
            status = convert_some(p, p->carry, 1, err);
            p->carried = size;
            p->carry_at = 0;
        }
        to += some;
        n -= some;
    }
    return status;
}

static ckpt_status payload_read(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                                ckpt_error *err)
{
    ckpt__reader_payload *p = ctx;
    ckpt_status status = CKPT_OK;
    if (!p->open || p->kind != kind || p->number != number || offset == 0)
        status = open_payload(p, kind, number, err);
    if (status == CKPT_OK && offset != p->next)
        status = ckpt__fail(err, CKPT_E_ARGUMENT, "payload", "byte %llu is asked for where %llu comes next",
                            (unsigned long long)offset, (unsigned long long)p->next);
    if (status == CKPT_OK)
        status = p->converts ? read_converted(p, dst, n, err) : ckpt__elements_read(&p->elements, dst, n, err);
    p->next += n;
    p->open = status == CKPT_OK;
    return status;
}

/* ---- all of them */

static bool find_own(ckpt__reader_payload *p)
{
    p->own_count = p->to->storage_count > p->from->storage_count ? p->to->storage_count - p->from->storage_count : 0;
    if (!(p->own = malloc((p->own_count + 1) * sizeof *p->own)))
        return false;
    if (p->own_count == 0)
        return true;
    ckpt__views views;
    bool made = ckpt__views_make(p->to, &views);
    for (size_t i = 0; made && i < p->own_count; i++) {
        size_t count;
        const size_t *tensors = ckpt__views_of(&views, p->from->storage_count + i, &count);
        while (count > 0 && tensors[count - 1] >= p->from->tensor_count)
            count--;
        p->own[i] = count ? tensors[count - 1] : SIZE_MAX;
    }
    ckpt__views_free(&views);
    return made;
}

ckpt_status ckpt__payload_open(const ckpt__source *source, const ckpt__index *from, const ckpt__index *to,
                               const ckpt_dtype *casts, uint64_t memory, ckpt__reader_payload **out,
                               ckpt__payload *payload, ckpt_error *err)
{
    ckpt__reader_payload *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return ckpt__fail_memory(err, "payload", sizeof *p);
    p->source = source;
    p->from = from;
    p->to = to;
    p->casts = casts;
    p->memory = memory ? memory : CKPT__MEMORY;
    if (p->memory < CKPT__MEMORY_LEAST)
        p->memory = CKPT__MEMORY_LEAST;
    if (casts && !(p->counts = calloc(from->tensor_count + 1, sizeof *p->counts))) {
        free(p);
        return ckpt__fail_memory(err, "payload", from->tensor_count);
    }
    if (!find_own(p)) {
        ckpt__reader_payload_free(p);
        return ckpt__fail_memory(err, "payload", to->storage_count);
    }
    *payload = (ckpt__payload){.read = payload_read, .ctx = p};
    *out = p;
    return CKPT_OK;
}

void ckpt__payload_cast_counts(const ckpt__reader_payload *p, size_t tensor, ckpt__convert_counts *counts)
{
    memset(counts, 0, sizeof *counts);
    if (p->counts && tensor < p->from->tensor_count)
        *counts = p->counts[tensor];
}

void ckpt__reader_payload_free(ckpt__reader_payload *p)
{
    if (p) {
        ckpt__elements_close(&p->elements);
        free(p->block);
        free(p->counts);
        free(p->own);
        free(p->sizes);
        free(p);
    }
}
