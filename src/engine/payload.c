/* engine/payload.c - the payloads of a recipe that are read from another checkpoint. */
#include "engine/payload.h"

#include <stdlib.h>
#include "engine/elements.h"

enum { SOURCE_BLOCK = 256 << 10 }; /* bytes that are converted at a time */

/* The one payload that is read, and what all of them share.
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
    bool open;                    /* kind and number are those of the payload that is being read */
    ckpt__segment_kind kind;
    size_t number;
    uint64_t next;           /* the byte of it that comes next */
    ckpt__elements elements; /* owned */
    /* one that is converted */
    bool converts;
    size_t tensor;            /* number in `from` */
    ckpt__op op;              /* from the source's elements to the target's */
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
    ckpt_dtype cast = p->casts ? p->casts[tensor] : CKPT_DTYPE_NONE;
    p->converts = cast != CKPT_DTYPE_NONE && cast != from->dtype;
    p->carried = p->carry_at = 0;
    p->left = size ? from->nbytes / size : 0;
    if (p->converts) {
        options.resolve = true;
        memset(&p->counts[tensor], 0, sizeof *p->counts);
        bool is_step = p->to->tensors[tensor].info.role == CKPT_ROLE_STEP;
        ckpt__op_want want = {.from = from->dtype, .to = cast, .exact = is_step};
        ckpt_status status = ckpt__op_make(&want, from->name.data, &p->op, err);
        if (status < 0)
            return status;
        if (!p->block && !(p->block = malloc(SOURCE_BLOCK)))
            return ckpt__fail_memory(err, from->name.data, SOURCE_BLOCK);
    }
    return ckpt__elements_of_tensor(&p->elements, p->source, p->from, tensor, &options, err);
}

static ckpt_status open_payload(ckpt__reader_payload *p, ckpt__segment_kind kind, size_t number, ckpt_error *err)
{
    ckpt__elements_options options = {.check = true, .memory = p->memory};
    ckpt__elements_close(&p->elements);
    p->kind = kind;
    p->number = number;
    p->next = 0;
    p->open = true;
    p->converts = false;
    if (number >= (kind == CKPT__STORAGE ? p->from->storage_count : p->from->tensor_count))
        return ckpt__fail(err, CKPT_E_FORMAT, "payload", "number %zu is asked for, which the source does not have",
                          number);
    return kind == CKPT__STORAGE
               ? ckpt__elements_of_storage(&p->elements, p->source, p->from, number, false, &options, err)
               : open_tensor(p, number, err);
}

/* ---- reading */

/* `count` more elements, converted. */
static ckpt_status convert_some(ckpt__reader_payload *p, void *dst, size_t count, ckpt_error *err)
{
    const ckpt_tensor_info *to = &p->to->tensors[p->tensor].info;
    ckpt__copy_box box;
    ckpt__copy_box_init(&box);
    ckpt__copy_box_add(&box, count, p->op.from_size, p->op.to_size);
    ckpt_status status = ckpt__elements_read(&p->elements, p->block, count * p->op.from_size, err);
    p->left -= count;
    return status < 0 ? status : ckpt__box_move(&p->op, &box, p->block, dst, &p->counts[p->tensor], to->name.data, err);
}

static ckpt_status read_converted(ckpt__reader_payload *p, unsigned char *to, size_t n, ckpt_error *err)
{
    size_t size = p->op.to_size, most = SOURCE_BLOCK / p->op.from_size;
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && n) {
        size_t some = p->carried - p->carry_at, count = n / size < most ? n / size : most;
        if (some) {
            some = some < n ? some : n;
            memcpy(to, p->carry + p->carry_at, some);
            p->carry_at += some;
        } else if (p->left < (count ? count : 1))
            return ckpt__fail(err, CKPT_E_FORMAT, p->elements.what, "more is asked for than its elements in %s",
                              ckpt_dtype_name(p->op.to));
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

void ckpt__payload_pause(ckpt__reader_payload *p)
{
    ckpt__elements_close(&p->elements);
    p->open = false;
}

void ckpt__reader_payload_free(ckpt__reader_payload *p)
{
    if (p) {
        ckpt__elements_close(&p->elements);
        free(p->block);
        free(p->counts);
        free(p);
    }
}
