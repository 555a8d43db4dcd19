/* model/pieces.c - tensors that are split, and the view that is the same for a whole tensor and a piece. */
#include "model/index.h"

uint64_t ckpt__granule(unsigned bits)
{
    uint64_t granule = 1;
    while (granule * bits % 8)
        granule *= 2;
    return granule;
}

/* What the caller says of one piece, while it is checked. Borrowed. */
typedef struct checked {
    const ckpt__tensor *tensor; /* dtype, ndim and shape are set */
    const ckpt__piece *piece;
    size_t number;
    uint64_t numel;   /* of the tensor */
    uint64_t granule; /* elements; of the dtype */
} checked;

static ckpt_status wrong(const checked *c, ckpt_error *err, const char *what)
{
    return ckpt__fail(err, CKPT_E_FORMAT, c->tensor->info.name.data, "piece %zu of it %s", c->number, what);
}

/* So many elements of the storage lie from its first to behind its last. */
static ckpt_status check_flat(const checked *c, uint64_t *reach, ckpt_error *err)
{
    const int64_t *box = c->piece->box;
    if (c->piece->flags & CKPT__PIECE_STRIDED)
        return wrong(c, err, "is a range of elements, and has strides");
    if (box[0] < 0 || box[1] < 0 || (uint64_t)box[0] > c->numel || (uint64_t)box[1] > c->numel - (uint64_t)box[0])
        return wrong(c, err, "is a range that ends outside of its elements");
    if ((uint64_t)box[0] % c->granule || (uint64_t)box[1] % c->granule)
        return wrong(c, err, "begins or ends within a byte");
    *reach = (uint64_t)box[1];
    return CKPT_OK;
}

static ckpt_status check_box(const checked *c, uint64_t *reach, ckpt_error *err)
{
    const ckpt_tensor_info *t = &c->tensor->info;
    uint32_t n = t->ndim;
    const int64_t *lo = c->piece->box, *size = lo + n;
    for (uint32_t i = 0; i < n; i++)
        if (lo[i] < 0 || size[i] < 0 || lo[i] > t->shape[i] || size[i] > t->shape[i] - lo[i])
            return wrong(c, err, "lies outside of its shape");
    if (c->granule > 1 && (n == 0 || c->piece->flags & CKPT__PIECE_STRIDED || (uint64_t)t->shape[n - 1] % c->granule ||
                           (uint64_t)lo[n - 1] % c->granule || (uint64_t)size[n - 1] % c->granule))
        return wrong(c, err, "has rows that begin or end within a byte");
    if (c->piece->flags & CKPT__PIECE_STRIDED)
        return ckpt__view_extent(size, size + n, n, reach)
                   ? CKPT_OK
                   : wrong(c, err, "has a negative stride, or strides times sizes that overflow 64 bits");
    return ckpt__numel(size, n, reach) ? CKPT_OK : wrong(c, err, "has a size that overflows 64 bits");
}

static bool is_empty(const ckpt__piece *p, uint32_t n)
{
    if (p->flags & CKPT__PIECE_FLAT)
        return p->box[1] == 0;
    for (uint32_t i = 0; i < n; i++)
        if (p->box[n + i] == 0)
            return true;
    return false;
}

static ckpt_status check_piece(const checked *c, const ckpt__index *x, ckpt_error *err)
{
    const ckpt__piece *p = c->piece;
    uint64_t reach = 0, bytes, end;
    if (p->storage >= x->storage_count)
        return wrong(c, err, "views a storage that is not there");
    ckpt_status status = p->flags & CKPT__PIECE_FLAT ? check_flat(c, &reach, err) : check_box(c, &reach, err);
    if (status < 0)
        return status;
    uint64_t size = x->storages[p->storage].extent.size;
    if (!ckpt__nbytes(reach, ckpt_dtype_bits(c->tensor->info.dtype), &bytes) || !ckpt__add(p->at, bytes, &end) ||
        (reach && end > size))
        return ckpt__fail(err, CKPT_E_FORMAT, c->tensor->info.name.data,
                          "piece %zu of it reaches %llu elements behind byte %llu of a storage of %llu bytes",
                          c->number, (unsigned long long)reach, (unsigned long long)p->at, (unsigned long long)size);
    return CKPT_OK;
}

/* Numbers in the box of a piece. */
static size_t box_numbers(const ckpt__piece *p, uint32_t ndim)
{
    return p->flags & CKPT__PIECE_FLAT ? 2 : (p->flags & CKPT__PIECE_STRIDED ? 3 : 2) * (size_t)ndim;
}

/* The pieces of the tensor that was split last. A parameter's moments are cut as it is, so most boxes are theirs again. */
typedef struct last_split {
    const ckpt__piece *pieces; /* NULL: there is none */
    size_t count;
    uint32_t ndim;
} last_split;

static last_split find_last(const ckpt__index *x)
{
    const ckpt__tensor *t = x->piece_count ? &x->tensors[x->pieces[x->piece_count - 1].tensor] : NULL;
    if (!t || t->first_piece >= x->piece_count)
        return (last_split){NULL, 0, 0};
    return (last_split){&x->pieces[t->first_piece], x->piece_count - t->first_piece, t->info.ndim};
}

const int64_t *ckpt__index_box(ckpt__index *x, const int64_t *box, size_t count)
{
    static const int64_t none[1];
    size_t found;
    if (count == 0)
        return none;
    if (!x->boxes && !(x->boxes = ckpt__hash_new(64)))
        return NULL;
    if (ckpt__hash_get(x->boxes, (const char *)box, count * sizeof *box, &found))
        return (const int64_t *)found;
    const char *own = ckpt__arena_copy(x->arena, (const char *)box, count * sizeof *box);
    if (!own || ckpt__hash_put(x->boxes, own, count * sizeof *box, (size_t)own, NULL) < 0)
        return NULL;
    return (const int64_t *)(const void *)own;
}

/* The box in the arena: one for all that are the same. Layers repeat, so most are. number: of the piece among its tensor's. */
static const int64_t *keep_box(ckpt__index *x, const ckpt__piece *p, uint32_t ndim, const last_split *last,
                               size_t number)
{
    const ckpt__piece *like = number < last->count ? &last->pieces[number] : NULL;
    const size_t count = box_numbers(p, ndim);
    if (p->flags & CKPT__PIECE_KEPT)
        return p->box;
    if (like && box_numbers(like, last->ndim) == count && memcmp(like->box, p->box, count * sizeof *p->box) == 0)
        return like->box;
    return ckpt__index_box(x, p->box, count);
}

/* The device of all pieces, where they have one. */
static ckpt_str common_device(const ckpt__index *x, const ckpt__tensor *t)
{
    ckpt_str first = {NULL, 0};
    for (size_t i = 0; i < t->piece_count; i++) {
        ckpt_str device = x->storages[x->pieces[t->first_piece + i].storage].device;
        if (i == 0)
            first = device;
        else if (!ckpt__str_equal(first, device))
            return (ckpt_str){NULL, 0};
    }
    return first;
}

/* One piece that is all of the tensor makes it whole. It stays a piece where it begins within an element. */
static ckpt_status make_whole(ckpt__index *x, size_t tensor, uint64_t numel, ckpt_error *err)
{
    ckpt__tensor *t = &x->tensors[tensor];
    const ckpt__piece piece = x->pieces[t->first_piece];
    uint64_t unit = ckpt_dtype_size(t->info.dtype);
    uint32_t n = t->info.ndim;
    bool all = piece.flags & CKPT__PIECE_FLAT
                   ? (uint64_t)piece.box[1] == numel
                   : n == 0 || memcmp(piece.box + n, t->info.shape, n * sizeof *piece.box) == 0;
    if (!all || (unit ? piece.at % unit != 0 || piece.at / unit > INT64_MAX : piece.at != 0))
        return CKPT_OK;
    x->piece_count--;
    t->first_piece = t->piece_count = 0;
    t->has_crc = piece.has_crc;
    t->crc = piece.crc;
    const int64_t *strides = piece.flags & CKPT__PIECE_STRIDED ? piece.box + 2 * (size_t)n : NULL;
    return ckpt__index_set_view(x, tensor, piece.storage, t->info.shape, strides, unit ? (int64_t)(piece.at / unit) : 0,
                                err);
}

ckpt_status ckpt__index_set_pieces(ckpt__index *x, size_t tensor, const int64_t *shape, const ckpt__piece *pieces,
                                   size_t count, ckpt_error *err)
{
    ckpt__tensor *t = &x->tensors[tensor];
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    uint32_t ndim = t->info.ndim;
    const char *name = t->info.name.data;
    checked c = {.tensor = t};
    last_split last;
    int64_t *copy = ckpt__arena_array(x->arena, ndim ? ndim : 1, sizeof *copy);
    if (!copy || count > UINT32_MAX - x->piece_count ||
        !ckpt__arena_grow(x->arena, &x->pieces, &x->piece_capacity, x->piece_count + count, sizeof *x->pieces))
        return ckpt__fail_memory(err, name, count * sizeof *pieces);
    if (ndim)
        memcpy(copy, shape, ndim * sizeof *copy);
    if (bits == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, name, "a tensor without a known dtype");
    if (!ckpt__numel(copy, ndim, &c.numel) || !ckpt__nbytes(c.numel, bits, &t->info.nbytes))
        return ckpt__fail(err, CKPT_E_FORMAT, name, "the product of its shape is negative or overflows 64 bits");
    t->info.shape = copy;
    t->first_piece = (uint32_t)x->piece_count;
    c.granule = ckpt__granule(bits);
    last = find_last(x);
    for (c.number = 0; c.number < count; c.number++) {
        c.piece = &pieces[c.number];
        ckpt_status status = check_piece(&c, x, err);
        if (status < 0)
            return status;
        if (is_empty(c.piece, ndim))
            continue;
        ckpt__piece *own = &x->pieces[x->piece_count];
        *own = *c.piece;
        own->tensor = (uint32_t)tensor;
        if (!(own->box = keep_box(x, c.piece, ndim, &last, t->piece_count)))
            return ckpt__fail_memory(err, name, 0);
        own->flags &= (uint8_t)~CKPT__PIECE_KEPT;
        x->piece_count++;
        t->piece_count++;
    }
    if (t->piece_count == 1 && x->piece_count == (size_t)t->first_piece + 1) {
        ckpt_status status = make_whole(x, tensor, c.numel, err);
        if (status < 0 || t->whole)
            return status;
    }
    t->info.strides = NULL;
    t->info.storage = -1;
    t->info.offset = 0;
    t->info.storage_nbytes = 0;
    if (!t->info.device.data)
        t->info.device = common_device(x, t);
    return CKPT_OK;
}

ckpt__view ckpt__view_of(const ckpt__index *x, const ckpt__tensor *t, size_t number)
{
    const ckpt_tensor_info *info = &t->info;
    if (t->whole)
        return (ckpt__view){.size = info->shape,
                            .strides = info->strides,
                            .at = (uint64_t)info->offset * ckpt_dtype_bits(info->dtype) / 8,
                            .storage = t->storage,
                            .crc = t->crc,
                            .has_crc = t->has_crc};
    const ckpt__piece *p = &x->pieces[t->first_piece + number];
    if (p->flags & CKPT__PIECE_FLAT)
        return (ckpt__view){.at = p->at,
                            .storage = p->storage,
                            .begin = (uint64_t)p->box[0],
                            .count = (uint64_t)p->box[1],
                            .crc = p->crc,
                            .has_crc = p->has_crc,
                            .flat = true,
                            .replica = p->flags & CKPT__PIECE_REPLICA};
    return (ckpt__view){.lo = p->box,
                        .size = p->box + info->ndim,
                        .strides = p->flags & CKPT__PIECE_STRIDED ? p->box + 2 * (size_t)info->ndim : NULL,
                        .at = p->at,
                        .storage = p->storage,
                        .crc = p->crc,
                        .has_crc = p->has_crc,
                        .replica = p->flags & CKPT__PIECE_REPLICA};
}

uint32_t ckpt__first_storage(const ckpt__index *x, const ckpt__tensor *t)
{
    return ckpt__view_of(x, t, 0).storage;
}

const ckpt__extent *ckpt__first_extent(const ckpt__index *x, const ckpt__tensor *t)
{
    return ckpt__view_count(t) ? &x->storages[ckpt__first_storage(x, t)].extent : NULL;
}

bool ckpt__same_view(const ckpt__tensor *a, const ckpt__tensor *b)
{
    const ckpt_tensor_info *p = &a->info, *q = &b->info;
    return a->whole && b->whole && a->storage == b->storage && p->dtype == q->dtype && p->offset == q->offset &&
           p->conj == q->conj && p->neg == q->neg && ckpt__same_shape(p->shape, p->ndim, q->shape, q->ndim) &&
           ckpt__same_shape(p->strides, p->ndim, q->strides, q->ndim);
}

bool ckpt__same_storage(const ckpt__tensor *a, const ckpt__tensor *b)
{
    return a->whole && b->whole && a->storage == b->storage;
}

bool ckpt__fills_storage(const ckpt__index *x, const ckpt__tensor *t)
{
    return t->whole && x->storages[t->storage].extent.size == t->info.nbytes;
}

bool ckpt__is_within_storage(const ckpt__index *x, const ckpt__tensor *t)
{
    return t->whole && x->storages[t->storage].extent.size != t->info.nbytes;
}

bool ckpt__repeats(const ckpt__index *x, const ckpt__tensor *t, uint64_t *stored)
{
    static const uint64_t most = (uint64_t)16 << 30, repeats = 1024;
    uint64_t bytes = 0;
    if (t->info.nbytes <= most || ckpt__has_no_bytes(t))
        return false;
    for (size_t i = 0; i < ckpt__view_count(t); i++)
        bytes += x->storages[ckpt__view_of(x, t, i).storage].extent.size;
    if (stored)
        *stored = bytes;
    return t->info.nbytes / repeats > bytes;
}
