/* examine/verify_payloads.c - every checksum that the format keeps, of a storage, a tensor or a stretch of a file; and where there
 * is none: can the bytes at least be read to their end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/nested.h"
#include "engine/stream.h"
#include "examine/verify.h"
#include "examine/verify_work.h"

static const char tensor_fix[] =
    "copy it again, or take an earlier checkpoint; ckpt-migrate --salvage leaves this tensor out and keeps the others",
                  unread_fix[] = "ckpt-migrate --salvage leaves this tensor out and keeps the others";

/* The bytes that a read has given so far, and their CRC-32. */
typedef struct sum {
    ckpt__verifier *v; /* borrowed */
    uint32_t crc;
    uint64_t bytes;
} sum;

static ckpt_status sum_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    (void)offset;
    sum *s = ctx;
    s->crc = ckpt__crc32(s->crc, data, n);
    s->bytes += n;
    return ckpt__verifier_tick(s->v, n, err);
}

/* One finding for each tensor that views the storage; for the storage itself where none does. */
static ckpt_status blame(ckpt__verifier *v, size_t storage, const char *code, const char *fix, const char *message,
                         ckpt_error *err)
{
    const ckpt__storage *s = &v->index->storages[storage];
    bool gone = s->extent.missing && s->extent.coding == CKPT__NESTED; /* its file may be none of the source's */
    const char *file = v->source->directory && !gone ? v->source->files[s->extent.file].name : NULL;
    char name[512];
    ckpt_status status = CKPT_OK;
    size_t count;
    if (!v->views.tensors && !ckpt__views_make(v->index, true, &v->views)) {
        ckpt__views_free(&v->views);
        return ckpt__fail_memory(err, "a list of tensors", v->index->tensor_count);
    }
    const size_t *tensors = ckpt__views_of(&v->views, storage, &count);
    if (count == 0)
        return ckpt__verifier_wrong(v, code, NULL, file ? file : s->name.data, ckpt__verifier_file_fix, message, err);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        ckpt_str own = v->index->tensors[tensors[i]].info.name;
        status =
            ckpt__verifier_wrong(v, code, ckpt__escape(name, sizeof name, own.data, own.size), file, fix, message, err);
    }
    return status;
}

/* Reads one storage to its end, unless it was swept, and compares its own checksum, if it has one. */
static ckpt_status check_storage(ckpt__verifier *v, size_t storage, const ckpt__swept *swept, ckpt_error *err)
{
    const ckpt__extent *e = &v->index->storages[storage].extent;
    sum s = {v, 0, 0};
    ckpt_error why = CKPT_ERROR_INIT;
    char message[900];
    ckpt_status status = CKPT_OK;
    if (swept)
        s = (sum){v, swept->crc, e->size};
    else
        status = ckpt__read_storage(v->source, v->index, storage, false, sum_block, &s, &why);
    v->result->bytes += s.bytes;
    if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT) {
        snprintf(message, sizeof message, "the stored bytes cannot be read to their end: %s", why.message);
        return blame(v, storage, e->coding == CKPT__STORED ? "truncated" : "damaged", tensor_fix, message, err);
    }
    if (status == CKPT_E_UNSUPPORTED && e->coding == CKPT__NESTED) /* a record of a kind that is not read */
        return blame(v, storage, "member-unread", unread_fix, why.message, err);
    if (status < 0) {
        if (err)
            *err = why;
        return status;
    }
    e = ckpt__extent_known(v->index, storage);
    if (ckpt__has_crc_of_its_own(e) && s.crc != e->crc) {
        snprintf(message, sizeof message,
                 "the %" PRIu64 " stored bytes have CRC-32 %08" PRIx32 ", the checkpoint says %08" PRIx32, s.bytes,
                 s.crc, e->crc);
        return blame(v, storage, "crc-mismatch", tensor_fix, message, err);
    }
    return CKPT_OK;
}

/* A tensor whose checksum covers all bytes of its storage (C order over the whole of it). */
static bool covers(const ckpt__index *index, const ckpt__tensor *t, size_t storage)
{
    return t->has_crc && t->whole && t->storage == storage && t->info.offset == 0 &&
           t->info.nbytes == index->storages[storage].extent.size &&
           (!t->info.strides || ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim));
}

/* swept: a storage that the tensor covers; NULL: the tensor is read. */
static ckpt_status check_tensor(ckpt__verifier *v, size_t i, const ckpt__swept *swept, ckpt_error *err)
{
    const ckpt__tensor *t = &v->index->tensors[i];
    sum s = {v, 0, 0};
    char message[200], name[512];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    if (swept)
        s = (sum){v, swept->crc, swept->extent->size};
    else
        status = ckpt__read_tensor_as_stored(v->source, v->index, i, sum_block, &s, &why);
    v->result->bytes += s.bytes;
    const char *file = v->source->directory ? t->info.file.data : NULL;
    ckpt__escape(name, sizeof name, t->info.name.data, t->info.name.size);
    if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT)
        return ckpt__verifier_wrong(v, "truncated", name, file, tensor_fix, why.message, err);
    if (status < 0) {
        if (err)
            *err = why;
        return status;
    }
    if (s.crc == t->crc)
        return CKPT_OK;
    snprintf(message, sizeof message, "its %" PRIu64 " bytes have CRC-32 %08" PRIx32 ", the checkpoint says %08" PRIx32,
             s.bytes, s.crc, t->crc);
    return ckpt__verifier_wrong(v, "crc-mismatch", name, file, tensor_fix, message, err);
}

/* ---- stretches of a file with a CRC of their own */

static ckpt_status tick_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    (void)offset;
    (void)data;
    return ckpt__verifier_tick(ctx, n, err);
}

static bool has_storages(const ckpt__index *x, const ckpt__span *s)
{
    for (size_t i = 0; i < x->storage_count; i++)
        if (x->storages[i].extent.spanned && &x->spans[x->storages[i].extent.span] == s)
            return true;
    return false;
}

/* A span that is damaged is one finding: the tensors in it are not read again one by one. */
static ckpt_status check_span(ckpt__verifier *v, const ckpt__span *s, ckpt_error *err)
{
    char message[1000], name[120];
    uint32_t crc;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__escape(name, sizeof name, s->name.data, s->name.size);
    const char *file = v->source->directory ? v->source->files[s->extent.file].name : name;
    static const char fix[] = "copy it again, or take an earlier checkpoint";
    bool used = has_storages(v->index, s); /* the total has the bytes of storages */
    ckpt_status status = ckpt__read_span(v->source, s, used ? tick_block : NULL, v, &crc, &why);
    if (status == CKPT_E_DAMAGED) {
        snprintf(message, sizeof message, "%s cannot be read to its end: %s", name, why.message);
        return ckpt__verifier_wrong(v, "damaged", NULL, file, fix, message, err);
    }
    if (status < 0 && err)
        *err = why;
    if (status < 0 || crc == s->extent.crc)
        return status;
    snprintf(message, sizeof message,
             "the %" PRIu64 " bytes of %s have CRC-32 %08" PRIx32 ", the archive says %08" PRIx32 ": %s",
             s->extent.size, name, crc, s->extent.crc,
             used ? "which of its tensors are damaged cannot be told, for they have no checksums of "
                    "their own"
                  : "no tensor lies there");
    return ckpt__verifier_wrong(v, "crc-mismatch", NULL, file, fix, message, err);
}

static int by_place(const void *a, const void *b, void *ctx)
{
    const ckpt__index *index = ctx;
    const ckpt__extent *x = &index->storages[*(const size_t *)a].extent,
                       *y = &index->storages[*(const size_t *)b].extent;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return ckpt__extent_begin(x) < ckpt__extent_begin(y) ? -1 : ckpt__extent_begin(x) > ckpt__extent_begin(y);
}

/* The storages as they lie in the files, so that these are read from front to end. */
static size_t *in_order(const ckpt__index *index)
{
    size_t *order = calloc(index->storage_count + 1, sizeof *order);
    for (size_t i = 0; order && i < index->storage_count; i++)
        order[i] = i;
    if (order)
        qsort_r(order, index->storage_count, sizeof *order, by_place, (void *)(uintptr_t)index);
    return order;
}

static bool is_vouched(const ckpt__verifier *v, const ckpt__extent *e)
{
    return (!e->memory && ckpt__verifier_file_is_whole(v, e->file)) ||
           (e->spanned && (e->memory || e->coding == CKPT__STORED));
}

/* The CRCs of the storages that lie in their files as they are, in that order. What ends too early is left out: it is read again, and
 * said. */
static ckpt_status sweep(ckpt__verifier *v, const size_t *order, ckpt__swept **out, size_t *count, ckpt_error *err)
{
    size_t n = 0;
    ckpt__swept *list = *out = calloc(v->index->storage_count + 1, sizeof *list);
    if (!list)
        return ckpt__fail_memory(err, "a list of tensors", v->index->storage_count);
    for (size_t k = 0; k < v->index->storage_count; k++) {
        const ckpt__extent *e = &v->index->storages[order[k]].extent;
        if (e->coding == CKPT__STORED && !e->memory && !e->missing && e->size && !is_vouched(v, e))
            list[n++].extent = e;
    }
    ckpt_status status = ckpt__verifier_sweep(v, list, n, err);
    for (size_t i = 0; i < n; i++)
        if (list[i].known)
            list[(*count)++] = list[i];
    return status;
}

/* Every payload once: a storage by its own checksum, else by that of a tensor that covers it. Tensors with a checksum
 * that covers less (views, aliases) are read on their own. Where the manifest already vouches for the whole file, its
 * payloads are not read a second time. */
ckpt_status ckpt__verifier_payloads(ckpt__verifier *v, ckpt_error *err)
{
    const ckpt__index *index = v->index;
    size_t *cover = calloc(index->storage_count + 1, sizeof *cover), *order = in_order(index);
    bool *by_storage = calloc(index->tensor_count + 1, sizeof *by_storage);
    ckpt__swept *swept = NULL;
    size_t swept_count = 0, at = 0;
    ckpt_status status =
        cover && order && by_storage ? CKPT_OK : ckpt__fail_memory(err, "a list of tensors", index->tensor_count);
    for (size_t i = 0; status == CKPT_OK && i < index->tensor_count; i++) {
        const ckpt__tensor *t = &index->tensors[i];
        size_t storage = t->whole ? t->storage : SIZE_MAX;
        if (storage >= index->storage_count || !covers(index, t, storage))
            continue;
        const ckpt__extent *e = &index->storages[storage].extent;
        if (e->has_crc)
            by_storage[i] = e->crc == t->crc;
        else {
            by_storage[i] = cover[storage] == 0 || index->tensors[cover[storage] - 1].crc == t->crc;
            cover[storage] = cover[storage] ? cover[storage] : i + 1;
        }
    }
    for (size_t i = 0; status == CKPT_OK && i < index->span_count; i++)
        status = ckpt__verifier_file_is_whole(v, index->spans[i].extent.file) ? CKPT_OK
                                                                              : check_span(v, &index->spans[i], err);
    if (status == CKPT_OK)
        status = sweep(v, order, &swept, &swept_count, err);
    for (size_t k = 0; status == CKPT_OK && k < index->storage_count; k++) {
        size_t s = order[k];
        const ckpt__extent *e = &index->storages[s].extent;
        const ckpt__swept *own = at < swept_count && swept[at].extent == e ? &swept[at++] : NULL;
        bool vouched = is_vouched(v, e);
        if (vouched)
            v->result->bytes += e->size;
        else if (cover[s])
            status = check_tensor(v, cover[s] - 1, own, err);
        else
            status = check_storage(v, s, own, err);
        bool in_header = e->memory && index->metadata_crc;
        e = ckpt__extent_known(index, s);
        if (ckpt__has_any_crc(e) || cover[s] || vouched || in_header)
            v->protected_bytes += e->size;
        else
            v->result->unprotected_bytes += e->size;
    }
    for (size_t i = 0; status == CKPT_OK && i < index->tensor_count; i++) {
        const ckpt__tensor *t = &index->tensors[i];
        size_t storage = t->whole ? t->storage : SIZE_MAX;
        bool vouched =
            storage < index->storage_count && ckpt__verifier_file_is_whole(v, index->storages[storage].extent.file);
        if (t->has_crc && !by_storage[i] && t->whole && !vouched)
            status = check_tensor(v, i, NULL, err);
    }
    free(cover);
    free(order);
    free(by_storage);
    free(swept);
    return status;
}

ckpt_status ckpt__verify_payloads(const ckpt_reader *reader, ckpt_verify_result *result, ckpt_report *report,
                                  ckpt_error *err)
{
    ckpt__verifier v = {.result = result, .report = report, .source = reader->source, .index = reader->index};
    ckpt_status status = ckpt__verifier_payloads(&v, err);
    ckpt__views_free(&v.views);
    return status;
}
