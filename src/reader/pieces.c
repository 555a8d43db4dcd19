/* reader/pieces.c - the pieces of a tensor, and boxes of it. */
#include <stdlib.h>
#include "reader/parts.h"
#include "base/first_sizes.h"
#include "engine/elements.h"
#include "engine/nested.h"
#include "model/box.h"

/* ---- numbers of storages */

/* Storages that whole tensors view keep the number that info.storage has; the others follow, by first appearance. */
static bool make_numbers(const ckpt__index *x, int64_t **out)
{
    size_t n = x->storage_count, most = 0;
    for (size_t i = 0; i < x->tensor_count; i++)
        most = x->tensors[i].info.ndim > most ? x->tensors[i].info.ndim : most;
    int64_t *numbers = calloc(n + most + 1, sizeof *numbers), next = 0;
    *out = numbers;
    if (!numbers)
        return false;
    for (size_t i = 0; i < n; i++)
        numbers[i] = -1;
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt__tensor *t = &x->tensors[i];
        if (!t->whole)
            continue;
        numbers[t->storage] = t->info.storage;
        next = t->info.storage >= next ? t->info.storage + 1 : next;
    }
    for (size_t i = 0; i < x->tensor_count; i++)
        for (size_t k = 0; k < ckpt__view_count(&x->tensors[i]); k++) {
            uint32_t storage = ckpt__view_of(x, &x->tensors[i], k).storage;
            if (numbers[storage] < 0)
                numbers[storage] = next++;
        }
    return true;
}

static ckpt_status numbers_of(const ckpt_reader *r, const int64_t **out, ckpt_error *err)
{
    pthread_mutex_lock(&r->parts->lock);
    bool made = r->parts->numbers || make_numbers(r->index, &r->parts->numbers);
    *out = r->parts->numbers;
    pthread_mutex_unlock(&r->parts->lock);
    return made ? CKPT_OK : ckpt__fail_memory(err, r->path, r->index->storage_count * sizeof **out);
}

/* ---- a piece */

size_t ckpt_reader_piece_count(const ckpt_reader *r, size_t i)
{
    return r && i < r->index->tensor_count ? ckpt__view_count(&r->index->tensors[i]) : 0;
}

static ckpt_str file_of(const ckpt_reader *r, const ckpt__tensor *t, uint32_t file)
{
    const ckpt__source *s = r->source;
    if ((t->whole && t->info.file.data) || !s->directory || file >= s->count)
        return t->info.file;
    return ckpt__s(s->files[file].name);
}

/* What the tensor's row says where it is whole, and the piece's where it is split. */
static void describe(const ckpt_reader *r, const ckpt__tensor *t, size_t piece, const int64_t *numbers,
                     ckpt_piece_info *out)
{
    const ckpt__index *x = r->index;
    const ckpt__view v = ckpt__view_of(x, t, piece);
    const ckpt__storage *s = &x->storages[v.storage];
    const ckpt__extent *e = ckpt__extent_known(x, v.storage);
    uint64_t numel = v.count, in_file;
    *out = (ckpt_piece_info){.ndim = t->info.ndim,
                             .flat_begin = v.begin,
                             .flat_count = v.count,
                             .storage = numbers[v.storage],
                             .storage_nbytes = e->size,
                             .offset = v.at,
                             .file_offset = -1,
                             .file = file_of(r, t, e->file),
                             .device = t->whole ? t->info.device : s->device,
                             .crc32 = v.has_crc ? v.crc : 0,
                             .has_crc = v.has_crc,
                             .flat = v.flat,
                             .replica = v.replica};
    if (!v.flat) {
        out->lo = v.lo ? v.lo : numbers + x->storage_count;
        out->size = v.size;
        if (v.strides && !ckpt__is_c_order(v.size, v.strides, t->info.ndim))
            out->strides = v.strides;
        ckpt__numel(v.size, t->info.ndim, &numel);
    }
    ckpt__nbytes(numel, ckpt_dtype_bits(t->info.dtype), &out->nbytes);
    if (!e->memory && e->coding == CKPT__STORED && ckpt__add(e->offset, v.at, &in_file) && in_file <= INT64_MAX)
        out->file_offset = (int64_t)in_file;
}

ckpt_status ckpt_reader_piece(const ckpt_reader *r, size_t i, size_t piece, ckpt_piece_info *out, ckpt_error *err)
{
    ckpt_status status = ckpt__reader_check_number(r, i, err);
    const int64_t *numbers;
    if (status < 0)
        return status;
    const ckpt__tensor *t = &r->index->tensors[i];
    size_t count = ckpt__view_count(t);
    if (!out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, t->info.name.data, "no place for what is known of a piece was given");
    if ((status = CKPT__CHECK_ANSWER(ckpt_piece_info, out, err)) < 0)
        return status;
    if (piece >= count)
        return ckpt__fail(err, CKPT_E_ARGUMENT, t->info.name.data,
                          "there is no piece of number %zu: it has %zu, counted from 0 (ckpt_reader_piece_count)",
                          piece, count);
    if ((status = numbers_of(r, &numbers, err)) < 0)
        return status;
    const ckpt__extent *e; /* of a nested one the record says where the bytes are */
    status = ckpt__extent_find(r->source, r->index, ckpt__view_of(r->index, t, piece).storage, &e, err);
    if (status < 0)
        return status;
    ckpt_piece_info own;
    describe(r, t, piece, numbers, &own);
    CKPT__GIVE_ANSWER(ckpt_piece_info, out, &own);
    return CKPT_OK;
}

/* ---- files */

static bool make_shares(const ckpt_reader *r, struct ckpt__file_share **out)
{
    const ckpt__index *x = r->index;
    struct ckpt__file_share *shares = *out = calloc(r->source->count + 1, sizeof *shares);
    for (size_t i = 0; shares && i < x->tensor_count; i++)
        for (size_t k = 0; k < ckpt__view_count(&x->tensors[i]); k++) {
            const ckpt__view v = ckpt__view_of(x, &x->tensors[i], k);
            const uint32_t file = x->storages[v.storage].extent.file;
            uint64_t numel = v.count, nbytes = 0;
            if (file >= r->source->count)
                continue;
            if (!v.flat)
                ckpt__numel(v.size, x->tensors[i].info.ndim, &numel);
            ckpt__nbytes(numel, ckpt_dtype_bits(x->tensors[i].info.dtype), &nbytes);
            shares[file].pieces++;
            shares[file].nbytes += nbytes;
        }
    return shares != NULL;
}

size_t ckpt_reader_file_count(const ckpt_reader *r)
{
    return r ? r->source->count : 0;
}

ckpt_status ckpt_reader_file_holds(const ckpt_reader *r, size_t file, ckpt_str *name, uint64_t *pieces,
                                   uint64_t *nbytes, ckpt_error *err)
{
    if (!r)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no reader was given");
    if (file >= r->source->count)
        return ckpt__fail(err, CKPT_E_ARGUMENT, r->path,
                          "there is no file of number %zu: it has %zu, counted from 0 (ckpt_reader_file_count)", file,
                          r->source->count);
    pthread_mutex_lock(&r->parts->lock);
    bool made = r->parts->shares || make_shares(r, &r->parts->shares);
    const struct ckpt__file_share share = made ? r->parts->shares[file] : (struct ckpt__file_share){0, 0};
    pthread_mutex_unlock(&r->parts->lock);
    if (!made)
        return ckpt__fail_memory(err, r->path, r->source->count * sizeof share);
    if (name)
        *name = r->source->directory ? ckpt__s(r->source->files[file].name) : (ckpt_str){NULL, 0};
    if (pieces)
        *pieces = share.pieces;
    if (nbytes)
        *nbytes = share.nbytes;
    return CKPT_OK;
}

/* ---- a box */

static ckpt_status check_inside(const ckpt_tensor_info *t, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    if (t->ndim && (!lo || !size))
        return ckpt__fail(err, CKPT_E_ARGUMENT, t->name.data, "the %s of the box is NULL; %u numbers are expected",
                          lo ? "size" : "first index", t->ndim);
    for (uint32_t k = 0; k < t->ndim; k++)
        if (!ckpt__box_inside(1, lo + k, size + k, t->shape + k))
            return ckpt__fail(
                err, CKPT_E_ARGUMENT, t->name.data,
                "along dimension %u the box has %lld elements from %lld on, and the tensor has %lld; give a "
                "box inside of it",
                k, (long long)size[k], (long long)lo[k], (long long)t->shape[k]);
    return CKPT_OK;
}

/* Elements below a byte: rows of the tensor and of the box are whole bytes. There is more than one element. */
static ckpt_status check_granule(const ckpt_tensor_info *t, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    int64_t granule = (int64_t)ckpt__granule(ckpt_dtype_bits(t->dtype));
    uint32_t last = t->ndim - 1;
    if (granule == 1 || (t->shape[last] % granule == 0 && lo[last] % granule == 0 && size[last] % granule == 0))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_ARGUMENT, t->name.data,
        "its last dimension has %lld elements of %u bits, and the box has %lld of them from %lld on; only "
        "multiples of %lld begin and end with a byte: give those, or read all of the tensor",
        (long long)t->shape[last], ckpt_dtype_bits(t->dtype), (long long)size[last], (long long)lo[last],
        (long long)granule);
}

static ckpt_status check_bytes(const ckpt_tensor_info *t, const int64_t *size, size_t n, ckpt_error *err)
{
    uint64_t numel = 0, bytes = 0;
    if (ckpt__numel(size, t->ndim, &numel) && ckpt__nbytes(numel, ckpt_dtype_bits(t->dtype), &bytes) && n == bytes)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_ARGUMENT, t->name.data,
                      "a buffer of %zu bytes was given for the %llu of the box; give one of just that size", n,
                      (unsigned long long)bytes);
}

ckpt_status ckpt_reader_read_box(const ckpt_reader *r, size_t i, const int64_t *lo, const int64_t *size, void *dst,
                                 size_t n, ckpt_error *err)
{
    ckpt_status status = ckpt__reader_check_number(r, i, err);
    if (status < 0)
        return status;
    const ckpt__tensor *t = &r->index->tensors[i];
    const ckpt_tensor_info *info = &t->info;
    if (ckpt__has_no_bytes(t))
        return ckpt__elements_none(t, info->name.data, err);
    status = check_inside(info, lo, size, err);
    if (status == CKPT_OK && ckpt__same_shape(size, info->ndim, info->shape, info->ndim))
        return ckpt_reader_read(r, i, dst, n, err); /* all of it */
    if (status == CKPT_OK)
        status = check_granule(info, lo, size, err);
    if (status == CKPT_OK)
        status = check_bytes(info, size, n, err);
    if (status == CKPT_OK)
        status = ckpt__reader_check_host(r, i, dst, n, err);
    if (status < 0 || n == 0)
        return status;
    if (info->ndim > CKPT__BOX_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, info->name.data,
                          "it has %u dimensions, and boxes are read of up to %d; read all of it", info->ndim,
                          CKPT__BOX_MAX);
    return ckpt__joined_box(r->source, r->index, i, lo, size, dst, n, err);
}
