/* format/native/entries.c - which bytes a native file stores for the tensors that are asked for: a tensor on a storage
 * of its own is an entry; of those that share one, the one that covers the others is, and the rest are aliases; where
 * none covers the others the storage is the entry and all are aliases. */
#include "format/native/write.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

static const char *shown(ckpt_str name, char *buf, size_t size)
{
    return ckpt__escape(buf, size, name.data ? name.data : "", name.size);
}

ckpt_status ckpt__native_no_memory(const ckpt__native_writer *w, ckpt_error *err)
{
    return ckpt__fail_memory(err, "native header", w->header.size + w->doc.size);
}

ckpt__entry *ckpt__native_add_entry(ckpt__native_writer *w)
{
    if (!ckpt__grow(&w->entries, &w->capacity, w->count + 1, sizeof *w->entries))
        return NULL;
    ckpt__entry *e = &w->entries[w->count++];
    memset(e, 0, sizeof *e);
    return e;
}

static ckpt_status lost(const ckpt__native_writer *w, const ckpt_tensor_info *info, const char *what, ckpt_error *err)
{
    if (!w->q->lost || (ckpt__report_add(w->q->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", what) &&
                        ckpt__report_tensor(w->q->lost, info->name)))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

static ckpt_status refuse_reserved(ckpt_str name, ckpt_error *err)
{
    char text[200];
    if (ckpt__has_prefix(name, CKPT__NATIVE_BLOB) || ckpt__has_prefix(name, CKPT__NATIVE_STORAGE) ||
        ckpt__str_is(name, "__metadata__"))
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, shown(name, text, sizeof text),
            "the format keeps this name for itself (__metadata__, ckpt.blob.*, ckpt.storage.*): rename the tensor");
    return CKPT_OK;
}

ckpt_status ckpt__native_name_own(ckpt__native_writer *w, ckpt__entry *e, const char *prefix, size_t n, ckpt_error *err)
{
    char text[64];
    snprintf(text, sizeof text, "%s%zu", prefix, n);
    e->name = ckpt__arena_str(w->recipe->arena, text, strlen(text));
    return e->name.data ? CKPT_OK : ckpt__native_no_memory(w, err);
}

/* ---- entries and aliases */

unsigned ckpt__native_alignment(ckpt_dtype dtype)
{
    size_t size = ckpt_dtype_size(dtype);
    return size ? (unsigned)size : 1;
}

static ckpt_status add_user(ckpt__native_writer *w, size_t tensor, ckpt_error *err)
{
    const ckpt_tensor_info *info = &w->q->index->tensors[tensor].info;
    ckpt__entry *e = ckpt__native_add_entry(w);
    if (!e)
        return ckpt__native_no_memory(w, err);
    e->kind = CKPT__ENTRY_USER;
    e->number = (uint32_t)tensor;
    e->info = info;
    e->as_bytes = !ckpt__st_fits(info);
    e->dtype = e->as_bytes ? CKPT_U8 : info->dtype;
    e->align = (uint8_t)ckpt__native_alignment(info->dtype);
    e->size = info->nbytes;
    return CKPT_OK;
}

static ckpt_status add_alias(ckpt__native_writer *w, size_t tensor, size_t of, int64_t offset, ckpt_error *err)
{
    const ckpt_tensor_info *info = &w->q->index->tensors[tensor].info;
    if (!ckpt__utf8_valid(info->name.data, info->name.size))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, NULL,
                          "a tensor that shares its storage has a name that is not UTF-8");
    if (!ckpt__grow(&w->aliases, &w->alias_capacity, w->alias_count + 1, sizeof *w->aliases))
        return ckpt__native_no_memory(w, err);
    w->aliases[w->alias_count++] = (ckpt__alias){tensor, info, of, offset};
    return CKPT_OK;
}

/* The bytes of the storage that a view touches: [*from, *to). */
static bool bytes_of(const ckpt__tensor *t, uint64_t *from, uint64_t *to)
{
    const ckpt_tensor_info *p = &t->info;
    uint64_t reach, first = (uint64_t)p->offset, end;
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    if (!ckpt__view_extent(p->shape, p->strides, p->ndim, &reach) || !ckpt__add(first, reach, &end) ||
        !ckpt__nbytes(end, bits, to) || !ckpt__mul(first, bits, from))
        return false;
    *from /= 8;
    if (reach == 0)
        *to = *from;
    return true;
}

/* Can the others be views of this one? It must be contiguous, reach from the first byte that any of them touches to the
 * last, and begin at a whole number of elements before each. Conjugated and negated views are resolved where they are
 * stored, so nothing can be a view of them or stand for their storage. */
static bool covers(const ckpt__native_writer *w, const size_t *sharers, size_t n, size_t candidate, uint64_t first,
                   uint64_t last)
{
    const ckpt__tensor *c = &w->q->index->tensors[candidate];
    uint64_t from, to, f, t;
    if (!ckpt__is_c_order(c->info.shape, c->info.strides, c->info.ndim) || !bytes_of(c, &from, &to) || from > first ||
        to < last)
        return false;
    for (size_t i = 0; i < n; i++) {
        const ckpt__tensor *o = &w->q->index->tensors[sharers[i]];
        if (o->info.conj || o->info.neg || !bytes_of(o, &f, &t) || (f - from) % ckpt__native_alignment(o->info.dtype) ||
            (ckpt_dtype_size(o->info.dtype) == 0 && f != from))
            return false;
    }
    return true;
}

enum { COVER_TRIES = 16 }; /* further candidates reach as far and fail for the same reason */

/* Is the tensor all of its storage, byte for byte? */
static bool is_whole(const ckpt__native_writer *w, const ckpt__tensor *t)
{
    const ckpt_tensor_info *p = &t->info;
    return p->offset == 0 && p->nbytes == w->q->index->storages[t->storage].extent.size && !p->conj && !p->neg &&
           ckpt__is_c_order(p->shape, p->strides, p->ndim);
}

/* Nothing but its order is not C's (a transposed matrix, channels_last): the strides in what is kept of the torch file
 * put its elements back where they were. */
static bool is_permuted(const ckpt__native_writer *w, const ckpt__tensor *t)
{
    const ckpt_tensor_info *p = &t->info;
    return p->offset == 0 && p->nbytes == w->q->index->storages[t->storage].extent.size && !p->conj && !p->neg &&
           ckpt_dtype_size(p->dtype) && ckpt__is_dense(p->shape, p->strides, p->ndim);
}

/* The position among the sharers of one that covers all; n where there is none. For a file that keeps a torch file's
 * structure it is all of the storage: offsets and sizes are to be the same again. */
static size_t find_cover(const ckpt__native_writer *w, const size_t *sharers, size_t n)
{
    uint64_t first = UINT64_MAX, last = 0, from, to;
    int tries = 0;
    for (size_t i = 0; i < n; i++) {
        if (!bytes_of(&w->q->index->tensors[sharers[i]], &from, &to))
            return n;
        first = from < first ? from : first;
        last = to > last ? to : last;
    }
    for (size_t i = 0; i < n && tries < COVER_TRIES; i++) {
        if (!bytes_of(&w->q->index->tensors[sharers[i]], &from, &to) || from > first || to < last)
            continue;
        if ((!w->exact || is_whole(w, &w->q->index->tensors[sharers[i]])) &&
            covers(w, sharers, n, sharers[i], first, last))
            return i;
        tries++;
    }
    return n;
}

static ckpt_status add_storage(ckpt__native_writer *w, size_t storage, const size_t *sharers, size_t n, ckpt_error *err)
{
    const ckpt__index *x = w->q->index;
    ckpt__entry *e = ckpt__native_add_entry(w);
    if (!e)
        return ckpt__native_no_memory(w, err);
    e->kind = CKPT__ENTRY_STORAGE;
    e->number = (uint32_t)storage;
    e->size = x->storages[storage].extent.size;
    e->dtype = CKPT_U8;
    e->align = 1;
    for (size_t i = 0; i < n; i++) {
        unsigned size = ckpt__native_alignment(x->tensors[sharers[i]].info.dtype);
        if (size > e->align && e->size % size == 0)
            e->align = (uint8_t)size;
    }
    return ckpt__native_name_own(w, e, CKPT__NATIVE_STORAGE, w->storages++, err);
}

/* Several tensors on one storage: one that covers the others is stored, or else the storage itself. */
static ckpt_status add_shared(ckpt__native_writer *w, size_t storage, const size_t *sharers, size_t n, ckpt_error *err)
{
    const ckpt__index *x = w->q->index;
    size_t cover = find_cover(w, sharers, n), of = w->count;
    uint64_t base = 0, to;
    ckpt_status status;
    if (cover < n) {
        bytes_of(&x->tensors[sharers[cover]], &base, &to);
        status = add_user(w, sharers[cover], err);
    } else
        status = add_storage(w, storage, sharers, n, err);
    for (size_t i = 0; status == CKPT_OK && i < n; i++) {
        const ckpt__tensor *t = &x->tensors[sharers[i]];
        if (i != cover)
            status = add_alias(w, sharers[i], of,
                               t->info.offset - (int64_t)(base / ckpt__native_alignment(t->info.dtype)), err);
    }
    return status;
}

const ckpt_entry *ckpt__native_kept(const ckpt_value *root)
{
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        if (e->key->kind == CKPT_V_STR && ckpt__str_is(e->key->text, CKPT__TORCH_KEY))
            return e->value->kind == CKPT_V_BYTES ? e : NULL;
    }
    return NULL;
}

/* What the format does not hold of a tensor, unless it keeps a torch file's own pickle of it; *skip: nothing of it. */
static ckpt_status check_tensor(const ckpt__native_writer *w, const ckpt__tensor *t, bool *skip, ckpt_error *err)
{
    const ckpt_tensor_info *info = &t->info;
    *skip = ckpt__has_no_bytes(t) && (info->extra->layout.data || !info->strides || info->extra->part_count);
    if (ckpt__native_kept(w->q->root))
        return CKPT_OK;
    if (*skip)
        return lost(w, info, "it is not dense: left out", err);
    if (info->extra->part_count)
        return lost(w, info, "its parts (scales and zero points): left out", err);
    if (info->extra->quantizer.data)
        return lost(w, info, "its quantizer's scale and zero point: the integers and the scheme's name are kept", err);
    return CKPT_OK;
}

/* A tensor without elements views a storage too, which counts only where offsets are kept. */
static bool is_view(const ckpt__native_writer *w, const ckpt__tensor *t)
{
    return t->whole && (t->info.nbytes > 0 || (w->exact && w->q->index->storages[t->storage].extent.size > 0));
}

/* Must the storage of a tensor that nothing shares it with be written, and the tensor as a view of it? A name that is not
 * UTF-8 can only be an entry's. */
static bool is_odd(const ckpt__native_writer *w, const ckpt__tensor *t)
{
    return w->exact && !is_whole(w, t) && !is_permuted(w, t) && ckpt__utf8_valid(t->info.name.data, t->info.name.size);
}

/* The tensors of each storage, in the order of the request: sharers[first[s] .. first[s + 1]). */
static ckpt_status group_by_storage(ckpt__native_writer *w, size_t **first, size_t **sharers, ckpt_error *err)
{
    const ckpt__index *x = w->q->index;
    size_t *f = calloc(x->storage_count + 2, sizeof *f), *s = calloc(w->q->count + 1, sizeof *s);
    *first = f;
    *sharers = s;
    if (!f || !s)
        return ckpt__native_no_memory(w, err);
    for (size_t i = 0; i < w->q->count; i++) {
        const ckpt__tensor *t = &x->tensors[w->q->tensors[i]];
        if (is_view(w, t))
            f[t->storage + 2]++;
    }
    for (size_t i = 2; i < x->storage_count + 2; i++)
        f[i] += f[i - 1];
    for (size_t i = 0; i < w->q->count; i++) {
        const ckpt__tensor *t = &x->tensors[w->q->tensors[i]];
        if (is_view(w, t))
            s[f[t->storage + 1]++] = w->q->tensors[i];
    }
    return CKPT_OK;
}

ckpt_status ckpt__native_take(ckpt__native_writer *w, ckpt_error *err)
{
    const ckpt__index *x = w->q->index;
    size_t *first, *sharers;
    w->exact = ckpt__native_kept(w->q->root) != NULL;
    ckpt_status status = group_by_storage(w, &first, &sharers, err);
    for (size_t i = 0; status == CKPT_OK && i < w->q->count; i++) {
        size_t number = w->q->tensors[i];
        const ckpt__tensor *t = &x->tensors[number];
        bool skip = false;
        status = refuse_reserved(t->info.name, err);
        if (status == CKPT_OK)
            status = check_tensor(w, t, &skip, err);
        if (status < 0 || skip)
            continue;
        size_t s = is_view(w, t) ? t->storage : 0;
        size_t n = is_view(w, t) ? first[s + 1] - first[s] : 1;
        if (ckpt__has_no_bytes(t))
            status = add_alias(w, number, SIZE_MAX, 0, err);
        else if (n == 1 && !(is_view(w, t) && is_odd(w, t)))
            status = add_user(w, number, err);
        else if (sharers[first[s]] == number) /* the first of them brings them all */
            status = add_shared(w, s, sharers + first[s], n, err);
    }
    free(first);
    free(sharers);
    return status;
}
