/* engine/sums.c - one number for the elements of a tensor and their places. */
#include "engine/sums.h"

#include <stdlib.h>
#include "base/strided.h"
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/elements.h"
#include "engine/stream.h"

/* WINDOW: bytes of a storage that are in memory; CHUNK: bytes of elements that are made dense, and of what they are converted to. */
enum { WINDOW = 1 << 20, CHUNK = 256 << 10 };

/* ---- the term of a word. Elements of 1 and 2 bytes are a word each, of others each 4 bytes are. Its number is mixed into a mask and an
 * odd factor, so one changed bit always changes the sum. Only multiplications of 32 bits, of which a vector has many. */

static inline uint64_t term(uint32_t bits, uint32_t number, uint32_t seed)
{
    uint32_t mixed = (number ^ seed) * 0x9E3779B1u;
    mixed ^= mixed >> 15;
    return (uint64_t)(bits ^ mixed) * ((mixed * 0x85EBCA77u) | 1u);
}

#define SUM_WORDS(type)                                                                                                \
    const unsigned char *p = data;                                                                                     \
    uint64_t sum = 0;                                                                                                  \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        type bits;                                                                                                     \
        memcpy(&bits, p + i * sizeof bits, sizeof bits);                                                               \
        sum += term(bits, begin + (uint32_t)i * step, seed);                                                           \
    }                                                                                                                  \
    return sum;

typedef uint64_t sum_fn(const void *data, size_t n, uint32_t begin, uint32_t step, uint32_t seed);
/* gcc makes vectors of these loops where it is told to; clang at -O2 already. */
#if defined(__clang__) || !defined(__GNUC__)
#define FAST
#else
#define FAST __attribute__((optimize("O3")))
#endif
#define SUM(name, type, how)                                                                                           \
    how static uint64_t name(const void *data, size_t n, uint32_t begin, uint32_t step, uint32_t seed)                 \
    {                                                                                                                  \
        SUM_WORDS(type)                                                                                                \
    }
SUM(sum_8, uint8_t, FAST)
SUM(sum_16, uint16_t, FAST)
SUM(sum_32, uint32_t, FAST)
static sum_fn *const plain[3] = {sum_8, sum_16, sum_32};

#if defined(__x86_64__) && defined(__GNUC__)
#define WIDE FAST __attribute__((target("avx2")))
SUM(wide_8, uint8_t, WIDE)
SUM(wide_16, uint16_t, WIDE)
SUM(wide_32, uint32_t, WIDE)
static sum_fn *const wide[3] = {wide_8, wide_16, wide_32};
static sum_fn *const *sums_of_machine(void)
{
    return __builtin_cpu_supports("avx2") ? wide : plain;
}
#else
static sum_fn *const *sums_of_machine(void)
{
    return plain;
}
#endif

/* Words whose numbers begin at `begin` and are `step` apart. The upper half of a number is the seed: it is cut where that changes. */
static uint64_t sum_words(sum_fn *fn, const unsigned char *data, size_t n, size_t size, uint64_t begin, uint64_t step)
{
    uint64_t sum = 0;
    while (n) {
        uint64_t left = step ? ((begin | UINT32_MAX) - begin) / step + 1 : n;
        size_t some = left < n ? (size_t)left : n;
        sum += fn(data, some, (uint32_t)begin, (uint32_t)step, (uint32_t)(begin >> 32) * 0xC2B2AE3Du);
        data += some * size;
        begin += some * step;
        n -= some;
    }
    return sum;
}

uint64_t ckpt__sum_elements(const void *data, size_t n, size_t size, uint64_t begin, uint64_t step)
{
    sum_fn *const *fns = sums_of_machine();
    const unsigned char *p = data;
    if (size <= 4)
        return sum_words(fns[size / 2], p, n, size, begin, step);
    const size_t words = size / 4;
    if (step == 1)
        return sum_words(fns[2], p, n * words, 4, begin * words, 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += sum_words(fns[2], p + i * size, words, 4, (begin + i * step) * words, 1);
    return sum;
}

static uint64_t sum_bytes(const unsigned char *data, size_t n, size_t size, uint64_t begin, uint64_t step)
{
    uint64_t sum = 0;
    if (step == 1)
        return ckpt__sum_elements(data, n * size, 1, begin * size, 1);
    for (size_t i = 0; i < n; i++)
        sum += ckpt__sum_elements(data + i * size, size, 1, (begin + i * step) * size, 1);
    return sum;
}

/* ---- the bytes of a storage, in a window that goes over it */

struct ckpt__summer {
    const ckpt__source *source; /* borrowed */
    const ckpt__index *index;
    ckpt__decoder decoder; /* of a coded storage: what was decoded so far */
    bool open;             /* the decoder is */
    uint32_t storage;      /* whose bytes [begin, end) the window has; UINT32_MAX: none */
    uint64_t begin, end;   /* bytes of the storage */
    uint64_t crc_end;      /* `crc` is that of the first so many, read in order */
    uint32_t crc;
    bool as_bytes; /* of the tensor: what is summed */
    bool sums_crc; /* the tensor's elements come in their order, as they are: tensor_crc is of them */
    uint32_t tensor_crc;
    unsigned char *window;  /* WINDOW bytes */
    unsigned char *dense;   /* CHUNK bytes: elements one behind the other */
    unsigned char *becomes; /* CHUNK bytes: what they are converted to */
    char what[200];         /* the tensor, for messages */
};

ckpt_status ckpt__summer_new(const ckpt__source *source, const ckpt__index *index, ckpt__summer **out, ckpt_error *err)
{
    ckpt__summer *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s || !(s->window = malloc(WINDOW)) || !(s->dense = malloc(CHUNK)) || !(s->becomes = malloc(CHUNK))) {
        ckpt__summer_free(s);
        return ckpt__fail_memory(err, "read buffer", WINDOW);
    }
    s->source = source;
    s->index = index;
    s->storage = UINT32_MAX;
    *out = s;
    return CKPT_OK;
}

static void close_decoder(ckpt__summer *s)
{
    if (s->open)
        ckpt__decoder_close(&s->decoder);
    s->open = false;
}

void ckpt__summer_free(ckpt__summer *s)
{
    if (!s)
        return;
    close_decoder(s);
    free(s->window);
    free(s->dense);
    free(s->becomes);
    free(s);
}

static const ckpt__extent *extent_of(const ckpt__summer *s)
{
    return &s->index->storages[s->storage].extent;
}

/* Bytes [from, from + n) of the storage into the window's place `to`. */
static ckpt_status fetch(ckpt__summer *s, uint64_t from, size_t n, unsigned char *to, ckpt_error *err)
{
    const ckpt__extent *e = extent_of(s);
    ckpt_status status = CKPT_OK;
    if (e->memory || e->coding == CKPT__STORED)
        return ckpt__extent_read(s->source, e, from, to, n, s->what, err);
    if (s->open && s->decoder.produced > from)
        close_decoder(s);
    if (!s->open)
        status = ckpt__decoder_open(&s->decoder, s->source, e, s->what, err);
    s->open = true;
    if (status == CKPT_OK && s->decoder.produced < from)
        status = ckpt__decoder_skip(&s->decoder, from - s->decoder.produced, err);
    if (status == CKPT_OK)
        status = ckpt__decoder_read(&s->decoder, to, n, err);
    if (status == CKPT_OK && s->decoder.produced == e->size)
        status = ckpt__decoder_finish(&s->decoder, err);
    return status;
}

/* Bytes [from, from + n), n <= WINDOW. What is there already stays; the rest is read, and as much behind it as there is room. */
static ckpt_status show(ckpt__summer *s, uint64_t from, size_t n, const unsigned char **bytes, ckpt_error *err)
{
    const ckpt__extent *e = extent_of(s);
    if (from < s->begin || from + n > s->end) {
        size_t kept = from >= s->begin && from < s->end ? (size_t)(s->end - from) : 0;
        uint64_t at = from + kept, left = e->size - at;
        size_t more = left < WINDOW - kept ? (size_t)left : WINDOW - kept;
        if (e->missing) /* nobody knows how much is there */
            more = n - kept;
        memmove(s->window, s->window + (kept ? from - s->begin : 0), kept);
        s->begin = s->end = 0;
        ckpt_status status = fetch(s, at, more, s->window + kept, err);
        if (status < 0)
            return status;
        s->begin = from;
        s->end = at + more;
        if (at == s->crc_end && e->has_crc) {
            s->crc = ckpt__crc32(s->crc, s->window + kept, more);
            s->crc_end = s->end;
        }
    }
    *bytes = s->window + (from - s->begin);
    return CKPT_OK;
}

static void enter(ckpt__summer *s, uint32_t storage)
{
    if (s->storage == storage)
        return;
    close_decoder(s);
    s->storage = storage;
    s->begin = s->end = s->crc_end = 0;
    s->crc = 0;
}

/* All of the storage went by: is it what its CRC says? Else it is read for that. */
static ckpt_status check_storage(ckpt__summer *s, ckpt_error *err)
{
    ckpt__extent *e = (ckpt__extent *)(uintptr_t)extent_of(s);
    bool ended = s->open && s->decoder.produced == e->size;
    if (ckpt__is_asked_before(e) || (e->coding == CKPT__ZLIB && !ended))
        return ckpt__check_storage(s->source, s->index, s->storage, UINT64_MAX, s->what, err);
    if (!e->has_crc || e->missing)
        return CKPT_OK;
    if (s->crc_end != e->size || s->crc != e->crc)
        return ckpt__check_storage(s->source, s->index, s->storage, UINT64_MAX, s->what, err);
    ckpt__note_checked(e, true);
    return CKPT_OK;
}

/* ---- one view */

/* A row: elements that are `stride` bytes apart in the storage and `step` in the tensor. */
static ckpt_status sum_row(ckpt__summer *s, const ckpt__op *op, uint64_t from, uint64_t n, uint64_t stride,
                           uint64_t begin, uint64_t step, uint64_t *sum, ckpt_error *err)
{
    const size_t size = op->from_size, most = CHUNK / (size > op->to_size ? size : op->to_size);
    const uint64_t fit = stride ? (WINDOW - size) / stride + 1 : n;
    const bool plain_op = ckpt__op_is_plain(op);
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && n) {
        const unsigned char *bytes;
        size_t some = n < fit ? (size_t)n : (size_t)fit;
        some = some < most ? some : most;
        status = show(s, from, (size_t)((some - 1) * stride + size), &bytes, err);
        if (status < 0)
            return status;
        if (stride != size || !plain_op) {
            for (size_t i = 0; stride != size && i < some; i++)
                memcpy(s->dense + i * size, bytes + i * stride, size);
            if (stride == size)
                memcpy(s->dense, bytes, some * size);
            bytes = s->dense;
        }
        if (!plain_op) {
            ckpt__copy_box box;
            ckpt__copy_box_init(&box);
            ckpt__copy_box_add(&box, some, size, op->to_size);
            status = ckpt__box_move(op, &box, s->dense, s->becomes, NULL, s->what, err);
            bytes = s->becomes;
        }
        if (s->sums_crc)
            s->tensor_crc = ckpt__crc32(s->tensor_crc, bytes, some * size);
        *sum += s->as_bytes ? sum_bytes(bytes, some, op->to_size, begin, step)
                            : ckpt__sum_elements(bytes, some, op->to_size, begin, step);
        from += some * stride;
        begin += some * step;
        n -= some;
    }
    return status;
}

/* The dimensions of a view, as they lie in the storage: the longest stride first. to_stride counts elements of the tensor. */
static void order_of(const ckpt_tensor_info *info, const ckpt__view *v, size_t size, ckpt__copy_box *box,
                     uint64_t *begin)
{
    uint64_t size_of[CKPT__COPY_DIMS], own[CKPT__COPY_DIMS], of_tensor[CKPT__COPY_DIMS], pitch = 1, inner = 1;
    uint32_t count = 0;
    *begin = v->begin;
    ckpt__copy_box_init(box);
    if (v->flat)
        ckpt__copy_box_add(box, v->count, size, 1);
    for (uint32_t i = 0; !v->flat && i < info->ndim; i++)
        if (v->size[i] == 0)
            ckpt__copy_box_add(box, 0, size, 1);
    for (uint32_t i = v->flat || box->empty ? 0 : info->ndim; i-- > 0;) {
        uint64_t n = (uint64_t)v->size[i], stride = (v->strides ? (uint64_t)v->strides[i] : inner) * size;
        uint32_t k = count;
        *begin += v->lo ? (uint64_t)v->lo[i] * pitch : 0;
        for (; n > 1 && k > 0 && own[k - 1] <= stride; k--) {
            size_of[k] = size_of[k - 1];
            own[k] = own[k - 1];
            of_tensor[k] = of_tensor[k - 1];
        }
        if (n > 1) { /* at most 63, as the number of elements is below 2^63; a file may have a thousand of size 1 */
            size_of[k] = n;
            own[k] = stride;
            of_tensor[k] = pitch;
            count++;
        }
        inner *= n;
        pitch *= (uint64_t)info->shape[i];
    }
    for (uint32_t i = 0; i < count; i++)
        ckpt__copy_box_add(box, size_of[i], own[i], of_tensor[i]);
}

static ckpt_status sum_view(ckpt__summer *s, const ckpt_tensor_info *info, const ckpt__view *v, const ckpt__op *op,
                            uint64_t *sum, ckpt_error *err)
{
    ckpt__copy_box box;
    uint64_t begin, at[CKPT__COPY_DIMS] = {0};
    ckpt_status status = CKPT_OK;
    order_of(info, v, op->from_size, &box, &begin);
    enter(s, v->storage);
    const uint32_t rows = box.n ? box.n - 1 : 0;
    for (bool more = !box.empty; status == CKPT_OK && more;) {
        uint64_t from = v->at, first = begin;
        for (uint32_t i = 0; i < rows; i++) {
            from += at[i] * box.from_stride[i];
            first += at[i] * box.to_stride[i];
        }
        status = box.n
                     ? sum_row(s, op, from, box.size[rows], box.from_stride[rows], first, box.to_stride[rows], sum, err)
                     : sum_row(s, op, from, 1, op->from_size, first, 1, sum, err);
        more = false;
        for (uint32_t i = rows; i-- > 0 && !more;) {
            more = ++at[i] < box.size[i];
            at[i] = more ? at[i] : 0;
        }
    }
    return status == CKPT_OK ? check_storage(s, err) : status;
}

/* ---- one tensor */

typedef struct bytes_sum {
    uint64_t sum;
    size_t size;
} bytes_sum;

static ckpt_status add_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    bytes_sum *b = ctx;
    (void)err;
    b->sum += ckpt__sum_elements(data, n / b->size, b->size, offset / b->size, 1);
    return CKPT_OK;
}

/* In C order by the elements: of a dtype below a byte, whose bytes are summed. */
static ckpt_status sum_in_order(ckpt__summer *s, size_t tensor, uint64_t *sum, ckpt_error *err)
{
    bytes_sum b = {.size = 1};
    ckpt_status status = ckpt__read_tensor_as_stored(s->source, s->index, tensor, add_block, &b, err);
    *sum = b.sum;
    return status;
}

static bool is_in_order(const ckpt__summer *s, const ckpt__tensor *t, ckpt_dtype to)
{
    const ckpt_tensor_info *info = &t->info;
    return t->whole && to == info->dtype && !s->index->storages[t->storage].extent.big_endian && !info->conj &&
           !info->neg && (!info->strides || ckpt__is_c_order(info->shape, info->strides, info->ndim));
}

/* The CRC of the tensor, whose elements all went by, or are read for that. */
static ckpt_status check_tensor(ckpt__summer *s, size_t tensor, ckpt_error *err)
{
    const ckpt__tensor *t = &s->index->tensors[tensor];
    if (!t->has_crc || (s->sums_crc && s->tensor_crc == t->crc))
        return CKPT_OK;
    return ckpt__read_tensor(s->source, s->index, tensor, true, NULL, NULL, err);
}

/* Was a piece of this box summed already? Boxes are interned, so their addresses tell. -1: no memory. */
static int is_repeated(const ckpt__summer *s, ckpt__hash **seen, const ckpt__tensor *t, size_t number)
{
    if (t->whole || !(s->index->pieces[t->first_piece + number].flags & CKPT__PIECE_REPLICA))
        return 0;
    const ckpt__piece *p = &s->index->pieces[t->first_piece + number];
    if (!*seen && !(*seen = ckpt__hash_new(t->piece_count)))
        return -1;
    int put = ckpt__hash_put(*seen, (const char *)&p->box, sizeof p->box, number, NULL);
    return put < 0 ? -1 : !put;
}

static ckpt_status sum_piece(ckpt__summer *s, const ckpt_tensor_info *info, const ckpt__view *v, ckpt_dtype to,
                             bool resolve, uint64_t *sum, ckpt_error *err)
{
    const ckpt__storage *storage = &s->index->storages[v->storage];
    ckpt__op_want want = {.from = info->dtype,
                          .to = to,
                          .from_swap = storage->extent.big_endian && storage->unit > 1 ? storage->unit : 0,
                          .conj = resolve && info->conj,
                          .neg = resolve && info->neg};
    ckpt__op op;
    ckpt_status status = ckpt__op_make(&want, s->what, &op, err);
    return status == CKPT_OK ? sum_view(s, info, v, &op, sum, err) : status;
}

ckpt_status ckpt__sum_tensor(ckpt__summer *s, size_t tensor, ckpt_dtype to, bool resolve, bool as_bytes, uint64_t *sum,
                             ckpt_error *err)
{
    const ckpt__tensor *t = &s->index->tensors[tensor];
    const ckpt_tensor_info *info = &t->info;
    ckpt__hash *seen = NULL;
    ckpt_status status = CKPT_OK;
    *sum = 0;
    ckpt__escape(s->what, sizeof s->what, info->name.data ? info->name.data : "", info->name.size);
    if (ckpt__has_no_bytes(t))
        return ckpt__elements_none(t, s->what, err);
    if (ckpt_dtype_bits(info->dtype) % 8)
        return sum_in_order(s, tensor, sum, err);
    s->sums_crc = t->has_crc && is_in_order(s, t, to);
    s->tensor_crc = 0;
    s->as_bytes = as_bytes;
    for (size_t i = 0; status == CKPT_OK && i < ckpt__view_count(t); i++) {
        const ckpt__view v = ckpt__view_of(s->index, t, i);
        const int repeated = is_repeated(s, &seen, t, i);
        if (repeated < 0)
            status = ckpt__fail_memory(err, s->what, 0);
        else if (!repeated)
            status = sum_piece(s, info, &v, to, resolve, sum, err);
    }
    ckpt__hash_free(seen);
    return status == CKPT_OK ? check_tensor(s, tensor, err) : status;
}
