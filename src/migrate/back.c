/* migrate/back.c - what was written is read back: every tensor has the bytes that its source has, converted where
 * that was asked for. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/stream.h"
#include "engine/sums.h"
#include "format/safetensors.h"

/* What is to be there, short enough that the source and all that was known of it can go before the target is opened: two
 * descriptions of one checkpoint are never in memory together. */
typedef struct written { /* a tensor, by its number in the index that was written */
    ckpt_str name;
    uint64_t nbytes;      /* bytes of its elements in the target */
    uint64_t sum;         /* of the elements that the tensor is to have (engine/sums.h), where `there` */
    const int64_t *shape; /* in the target: ndim numbers, in the checker's arena */
    uint32_t ndim;
    ckpt_dtype dtype;  /* that it has in the target */
    bool as_bytes;     /* safetensors has no such dtype: its bytes may be elements of uint8 there */
    bool there, known; /* the tensor has bytes; all of this is set */
} written;

/* One place where the target has to hold a tensor. */
typedef struct place {
    ckpt_str name;      /* a path in the tree, or the tensor's name */
    size_t tensor, end; /* the tensor and its parts: numbers of `tensors`, from `tensor` up to `end` */
    bool inside;        /* the place is below an opaque object */
} place;

typedef struct checker {
    ckpt__migration *m;
    ckpt__arena *names;
    written *tensors;
    size_t tensor_count;
    place *list;
    size_t count, capacity;
    ckpt_reader *back;
    bool refused; /* --to same: torch refuses an archive of the source, which may have been copied as it is */
    bool *seen;   /* per tensor of `back` */
    ckpt__summer *want, *got; /* what was to be written, and what is there: in bounded memory */
    ckpt__hash *places;       /* --to same: path in the tree of what is there -> tensor */
    ckpt__hash *gone;         /* --to same: file, '\n' and name of each tensor that stays behind. NULL: none does */
    ckpt_error *err;
} checker;

/* The target's tensor of that name that was not asked for yet: names that occur twice stay in their order. */
static bool next_of_name(const checker *c, ckpt_str name, size_t *i)
{
    size_t count = ckpt_reader_tensor_count(c->back);
    if (ckpt_reader_find(c->back, name.data, name.size, i, NULL) < 0)
        return false;
    for (size_t first = *i; c->seen[*i];) {
        do
            *i = (*i + 1) % count;
        while (*i != first && !ckpt__str_equal(ckpt_reader_tensor(c->back, *i)->name, name));
        if (*i == first)
            return false;
    }
    c->seen[*i] = true;
    return true;
}

static ckpt_status progress(checker *c, uint64_t nbytes)
{
    ckpt__migration *m = c->m;
    const ckpt_progress *p = &m->options.progress;
    m->done += nbytes;
    if (!p->fn || p->fn(p->ctx, m->done < m->total ? m->done : m->total, m->total) == 0)
        return CKPT_OK;
    return ckpt__fail(c->err, CKPT_E_CANCELLED, m->dst, "cancelled while it was read back; nothing was written");
}

/* ---- what is to be there, from the source */

/* Converted, and conjugated or negated, as it was written. */
static ckpt_status sum_source(checker *c, size_t i, uint64_t *sum)
{
    const ckpt__migration *m = c->m;
    const ckpt_tensor_info *from = &m->from->tensors[i].info, *to = &m->index->tensors[i].info;
    ckpt_dtype cast = m->casts ? m->casts[i] : CKPT_DTYPE_NONE;
    bool converts = cast != CKPT_DTYPE_NONE && cast != from->dtype;
    return ckpt__sum_tensor(c->want, i, converts ? cast : from->dtype,
                            converts || (from->conj && !to->conj) || (from->neg && !to->neg), c->tensors[i].as_bytes,
                            sum, c->err);
}

static ckpt_status note_tensor(checker *c, size_t i)
{
    const ckpt__tensor *t = &c->m->index->tensors[i];
    written *w = &c->tensors[i];
    if (w->known)
        return CKPT_OK;
    w->name = ckpt__arena_str(c->names, t->info.name.data ? t->info.name.data : "", t->info.name.size);
    w->nbytes = t->info.nbytes;
    w->there = t->whole && t->info.nbytes;
    w->dtype = t->info.dtype;
    w->as_bytes = !ckpt__st_fits(&t->info);
    w->known = true;
    w->ndim = t->info.ndim;
    int64_t *shape = ckpt__arena_array(c->names, (size_t)w->ndim + 1, sizeof *shape);
    if (!w->name.data || !shape)
        return ckpt__migration_no_memory(c->err);
    if (w->ndim)
        memcpy(shape, t->info.shape, w->ndim * sizeof *shape);
    w->shape = shape;
    ckpt_status status = w->there ? sum_source(c, i, &w->sum) : CKPT_OK;
    return status == CKPT_OK ? progress(c, w->nbytes / 2) : status;
}

static ckpt_status add_place(checker *c, ckpt_str name, bool inside, size_t tensor, size_t end)
{
    ckpt_status status = CKPT_OK;
    for (size_t k = tensor; status == CKPT_OK && k < end; k++)
        status = note_tensor(c, k);
    if (status < 0)
        return status;
    ckpt_str kept = c->tensors[tensor].name;
    if (!ckpt__str_equal(name, kept))
        kept = ckpt__arena_str(c->names, name.data ? name.data : "", name.size);
    if (!kept.data || !ckpt__grow(&c->list, &c->capacity, c->count + 1, sizeof *c->list))
        return ckpt__migration_no_memory(c->err);
    c->list[c->count++] = (place){kept, tensor, end, inside};
    return CKPT_OK;
}

/* Was said to be lost: torch has no such dtype, and its file has None there. */
static bool is_none(const ckpt__migration *m, size_t tensor)
{
    ckpt_dtype dtype = m->index->tensors[tensor].info.dtype;
    return !m->same && (dtype == CKPT_F4 || dtype == CKPT_F6_E2M3 || dtype == CKPT_F6_E3M2);
}

/* In a torch file the tree says what is where; a tensor's parts follow it, here as there. */
static int note_spot(void *ctx, const ckpt_visit *visit)
{
    checker *c = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= c->m->index->tensor_count || visit->cycle || is_none(c->m, v->tensor))
        return CKPT_OK;
    return add_place(c, visit->name, visit->inside, v->tensor, ckpt__tensor_end(c->m->index, v->tensor));
}

/* "FILE\nNAME" of a tensor, in `text`, which it replaces. */
static bool put_place(ckpt__buf *text, const ckpt_tensor_info *t)
{
    text->size = 0;
    ckpt__buf_add(text, t->file.data ? t->file.data : "", t->file.size);
    ckpt__buf_char(text, '\n');
    ckpt__buf_add(text, t->name.data ? t->name.data : "", t->name.size);
    return !text->failed;
}

/* A file that is copied has what it had: what stays behind must not be in one. */
static ckpt_status note_gone(checker *c)
{
    const ckpt__migration *m = c->m;
    ckpt__buf text = {0};
    bool ok = true;
    for (size_t i = 0; ok && m->same && i < m->from->tensor_count; i++) {
        if (!m->dropped[i])
            continue;
        c->gone = c->gone ? c->gone : ckpt__hash_new(64);
        ok = c->gone && put_place(&text, &m->from->tensors[i].info);
        ckpt_str kept = ok ? ckpt__arena_str(c->names, text.data, text.size) : (ckpt_str){NULL, 0};
        ok = kept.data && ckpt__hash_put(c->gone, kept.data, kept.size, i, NULL) >= 0;
    }
    ckpt__buf_free(&text);
    return ok ? CKPT_OK : ckpt__migration_no_memory(c->err);
}

static ckpt_status note_all(checker *c)
{
    ckpt__migration *m = c->m;
    c->names = ckpt__arena_new(0);
    c->tensor_count = m->index->tensor_count;
    c->tensors = calloc(c->tensor_count + 1, sizeof *c->tensors);
    ckpt_status status = c->names && c->tensors ? note_gone(c) : ckpt__migration_no_memory(c->err);
    if (status == CKPT_OK)
        status = ckpt__summer_new(m->reader->source, m->from, &c->want, c->err);
    if (status == CKPT_OK && m->torch && m->root)
        status = (ckpt_status)ckpt_value_walk(m->root, 0, note_spot, c, c->err);
    for (size_t k = 0; status == CKPT_OK && !m->torch && k < m->chosen_count; k++) {
        size_t i = m->chosen[k];
        if (!ckpt__is_left_out(m, i) && !ckpt__has_no_bytes(&m->index->tensors[i])) /* else it has no data */
            status = add_place(c, m->index->tensors[i].info.name, false, i, i + 1);
    }
    ckpt__summer_free(c->want);
    c->want = NULL;
    return status;
}

/* ---- what is there */

/* float4 and float4_e2m1fn_x2 are the same bytes, counted otherwise; what was written is seen as the latter by now. */
static ckpt_dtype as_pairs(ckpt_dtype dtype)
{
    return dtype == CKPT_F4 ? CKPT_F4_E2M1_X2 : dtype;
}

/* Elements of four bits are counted one by one (F4) or in pairs, and then the last dimension is half as long. What safetensors has no
 * dtype for is one row of bytes. */
static bool same_shape(const written *want, const ckpt_tensor_info *got)
{
    if (want->as_bytes && got->dtype == CKPT_U8 && want->dtype != CKPT_U8)
        return got->ndim == 1 && got->shape[0] >= 0 && (uint64_t)got->shape[0] == want->nbytes;
    if (want->dtype == got->dtype || want->ndim == 0 || got->ndim != want->ndim)
        return ckpt__same_shape(want->shape, want->ndim, got->shape, got->ndim);
    uint32_t last = want->ndim - 1;
    int64_t wanted = want->shape[last], found = got->shape[last];
    bool pairs = want->dtype == CKPT_F4_E2M1_X2;
    return ckpt__same_shape(want->shape, last, got->shape, last) &&
           (pairs ? found % 2 == 0 && found / 2 == wanted : wanted % 2 == 0 && wanted / 2 == found);
}

static ckpt_status compare(checker *c, const written *want, size_t i)
{
    const ckpt_tensor_info *got = ckpt_reader_tensor(c->back, i);
    uint64_t is = 0;
    char shown[200], have[200], shape[200];
    ckpt__escape(shown, sizeof shown, want->name.data, want->name.size);
    if (got->nbytes != want->nbytes)
        return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' reads back with %llu bytes, and has %llu",
                          shown, (unsigned long long)got->nbytes, (unsigned long long)want->nbytes);
    if (as_pairs(got->dtype) != as_pairs(want->dtype) && !(want->as_bytes && got->dtype == CKPT_U8))
        return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' reads back as %s, and is %s", shown,
                          ckpt_dtype_name(got->dtype), ckpt_dtype_name(want->dtype));
    if (!same_shape(want, got)) {
        ckpt__shape_text(have, sizeof have, got->shape, got->ndim);
        ckpt__shape_text(shape, sizeof shape, want->shape, want->ndim);
        return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' reads back with the shape %s, and has %s",
                          shown, have, shape);
    }
    ckpt_status status =
        want->there ? ckpt__sum_tensor(c->got, i, got->dtype, false, want->as_bytes, &is, c->err) : CKPT_OK;
    if (status == CKPT_OK && want->there && want->sum != is)
        status = ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst,
                            "tensor '%s' reads back with other elements: their sum is %016llx, the source's is %016llx",
                            shown, (unsigned long long)is, (unsigned long long)want->sum);
    return status == CKPT_OK ? progress(c, want->nbytes - want->nbytes / 2) : status;
}

static ckpt_status not_there(const checker *c, ckpt_str name)
{
    char shown[200];
    return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' was written, and does not read back",
                      ckpt__escape(shown, sizeof shown, name.data ? name.data : "", name.size));
}

static ckpt_status compare_place(checker *c, const place *p)
{
    size_t i = 0, count = ckpt_reader_tensor_count(c->back);
    ckpt_status status = CKPT_OK;
    if (c->places ? !ckpt__hash_get(c->places, p->name.data, p->name.size, &i) : !next_of_name(c, p->name, &i))
        return p->inside ? CKPT_OK : not_there(c, p->name); /* where no path leads, nothing is listed */
    for (size_t k = p->tensor; status == CKPT_OK && k < p->end; k++, i++) {
        if (i >= count)
            return not_there(c, c->tensors[k].name);
        c->seen[i] = true;
        status = compare(c, &c->tensors[k], i);
    }
    return status;
}

/* In a directory a name alone does not say in which file: the tree of what is there does. */
static int note_place(void *ctx, const ckpt_visit *visit)
{
    checker *c = ctx;
    if (visit->value->kind != CKPT_V_TENSOR)
        return 0;
    ckpt_str name = ckpt__arena_str(c->back->index->arena, visit->name.data, visit->name.size);
    if (!name.data || ckpt__hash_put(c->places, name.data, name.size, visit->value->tensor, NULL) < 0)
        return ckpt__migration_no_memory(c->err);
    return 0;
}

static ckpt_status note_places(checker *c)
{
    if (!c->m->same)
        return CKPT_OK;
    if (!(c->places = ckpt__hash_new(c->back->index->tensor_count)))
        return ckpt__migration_no_memory(c->err);
    return c->back->index->root ? (ckpt_status)ckpt_value_walk(c->back->index->root, 0, note_place, c, c->err)
                                : CKPT_OK;
}

/* Is what stays behind there all the same? `seen`: it was written under that name. */
static ckpt_status check_gone(checker *c)
{
    ckpt__buf text = {0};
    char name[200], file[200];
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && c->gone && i < ckpt_reader_tensor_count(c->back); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(c->back, i);
        if (c->seen[i])
            continue;
        if (!put_place(&text, t))
            status = ckpt__migration_no_memory(c->err);
        else if (ckpt__hash_get(c->gone, text.data, text.size, NULL))
            status = ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst,
                                "tensor '%s' was left out, and is in the file '%s' all the same",
                                ckpt__escape(name, sizeof name, t->name.data ? t->name.data : "", t->name.size),
                                ckpt__escape(file, sizeof file, t->file.data ? t->file.data : "", t->file.size));
    }
    ckpt__buf_free(&text);
    return status;
}

/* What else the target holds (values that lie in tensors of their own), by the CRCs that it has. */
static ckpt_status check_rest(checker *c)
{
    const ckpt__index *x = c->back->index;
    bool *checked = calloc(x->storage_count + 1, sizeof *checked);
    ckpt_status status = checked ? CKPT_OK : ckpt__migration_no_memory(c->err);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        if (x->tensors[i].whole) {
            if (!c->seen[i] && x->tensors[i].has_crc)
                status = ckpt__read_tensor(c->back->source, x, i, true, NULL, NULL, c->err);
            checked[x->tensors[i].storage] = c->seen[i] || x->tensors[i].has_crc;
        }
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++)
        if (!checked[i] && x->storages[i].extent.has_crc)
            status = ckpt__read_storage(c->back->source, x, i, true, NULL, NULL, c->err);
    free(checked);
    return status;
}

/* Bytes of a file that have a CRC beside those of storages. */
static ckpt_status check_span(const checker *c, const ckpt__span *s)
{
    char name[120];
    uint32_t crc;
    ckpt_status status = ckpt__read_span(c->back->source, s, NULL, NULL, &crc, c->err);
    if (status < 0 || crc == s->extent.crc)
        return status;
    return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "the record %s reads back with CRC-32 %08x, and has %08x",
                      ckpt__escape(name, sizeof name, s->name.data, s->name.size), (unsigned)crc,
                      (unsigned)s->extent.crc);
}

/* What no tensor of the target shows. */
static ckpt_status check_archive(const checker *c)
{
    const ckpt__index *x = c->back->index;
    ckpt_status status = CKPT_OK;
    if (x->archive_refused && !c->refused)
        status = ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "it reads back as an archive that torch refuses: %s",
                            x->archive_refused);
    for (size_t i = 0; status == CKPT_OK && i < x->span_count; i++)
        status = check_span(c, &x->spans[i]);
    return status;
}

static ckpt_status check(checker *c)
{
    ckpt_status status = ckpt_reader_open(c->m->beside, NULL, &c->back, c->err);
    if ((status == CKPT_E_FORMAT || status == CKPT_E_UNSUPPORTED || status == CKPT_E_TOO_NEW ||
         status == CKPT_E_LIMIT) &&
        c->err)
        c->err->status = CKPT_E_DAMAGED; /* it was none of these when it was written */
    if (status < 0)
        return c->err ? c->err->status : status;
    c->seen = calloc(ckpt_reader_tensor_count(c->back) + 1, sizeof *c->seen);
    status = c->seen ? CKPT_OK : ckpt__migration_no_memory(c->err);
    if (status == CKPT_OK)
        status = ckpt__summer_new(c->back->source, c->back->index, &c->got, c->err);
    if (status == CKPT_OK)
        status = note_places(c);
    for (size_t k = 0; status == CKPT_OK && k < c->count; k++)
        status = compare_place(c, &c->list[k]);
    if (status == CKPT_OK)
        status = check_gone(c);
    if (status == CKPT_OK)
        status = check_rest(c);
    if (status == CKPT_OK)
        status = check_archive(c);
    ckpt__summer_free(c->got);
    return status;
}

ckpt_status ckpt__migrate_read_back(ckpt__migration *m, ckpt_error *err)
{
    checker c = {.m = m, .err = err, .refused = m->same && m->from->archive_refused};
    ckpt_status status = note_all(&c);
    if (status == CKPT_OK) {
        ckpt__migrate_forget_source(m);
        status = check(&c);
    }
    ckpt_reader_close(c.back);
    ckpt__hash_free(c.places);
    ckpt__hash_free(c.gone);
    ckpt__arena_free(c.names);
    free(c.tensors);
    free(c.list);
    free(c.seen);
    return status;
}
