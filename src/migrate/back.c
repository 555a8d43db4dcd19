/* migrate/back.c - what was written is read back: every tensor has the bytes that its source has, converted where
 * that was asked for. */
#include "migrate/to_run.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/workers.h"
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

/* A tensor whose elements are to be summed. */
typedef struct look {
    uint32_t tensor, of; /* its number in the index that is read; and in `tensors` */
} look;

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
    look *looks;  /* heap: of the source, and once those are summed, of what is there; in the order of the places */
    size_t look_count, look_capacity;
    ckpt__hash *places; /* --to same: path in the tree of what is there -> tensor */
    ckpt__hash *gone;   /* --to same: file, '\n' and name of each tensor that stays behind. NULL: none does */
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

/* ---- the elements of both sides, summed by several threads */

enum { MOST_THREADS = 8 };
static const uint64_t unit_bytes = (uint64_t)4 << 20;

/* The looks at one side. A thread takes some that lie one behind the other, so that each reads in order. */
typedef struct summing {
    checker *c;
    const ckpt__index *index;
    bool there;                          /* what is there; else the source */
    ckpt__summer *summers[MOST_THREADS]; /* owned: one a thread, in bounded memory */
    size_t *begins;                      /* heap, owned: of unit u the first look; the last is behind all */
    size_t units, capacity;
    uint64_t before, done; /* bytes of the target: when it began; since then (atomic) */
} summing;

static ckpt_status progress(const summing *s, ckpt_error *err)
{
    ckpt__migration *m = s->c->m;
    const ckpt_progress *p = &m->options.progress;
    m->done = s->before + __atomic_load_n(&s->done, __ATOMIC_RELAXED);
    if (!p->fn || p->fn(p->ctx, m->done < m->total ? m->done : m->total, m->total) == 0)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_CANCELLED, m->dst, "cancelled while it was read back");
}

/* Converted, and conjugated or negated, as it was written. */
static ckpt_status sum_source(const summing *s, ckpt__summer *by, const look *l, ckpt_error *err)
{
    const ckpt__migration *m = s->c->m;
    const ckpt_tensor_info *from = &m->from->tensors[l->tensor].info, *to = &m->index->tensors[l->tensor].info;
    ckpt_dtype cast = ckpt__own_dtype(m, l->tensor);
    bool converts = cast != CKPT_DTYPE_NONE && cast != from->dtype;
    written *w = &s->c->tensors[l->of];
    return ckpt__sum_tensor(by, l->tensor, converts ? cast : from->dtype,
                            converts || (from->conj && !to->conj) || (from->neg && !to->neg), w->as_bytes, &w->sum,
                            err);
}

static ckpt_status sum_there(const summing *s, ckpt__summer *by, const look *l, ckpt_error *err)
{
    const written *want = &s->c->tensors[l->of];
    uint64_t is = 0;
    char shown[200];
    ckpt_status status =
        ckpt__sum_tensor(by, l->tensor, s->index->tensors[l->tensor].info.dtype, false, want->as_bytes, &is, err);
    if (status < 0 || want->sum == is)
        return status;
    return ckpt__fail(err, CKPT_E_DAMAGED, s->c->m->dst,
                      "tensor '%s' reads back with other elements: their sum is %016llx, the source's is %016llx",
                      ckpt__escape(shown, sizeof shown, want->name.data, want->name.size), (unsigned long long)is,
                      (unsigned long long)want->sum);
}

/* The caller's progress is told by the caller's thread. */
static ckpt_status sum_unit(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    summing *s = ctx;
    ckpt_status status = CKPT_OK;
    for (size_t i = s->begins[unit]; status == CKPT_OK && i < s->begins[unit + 1]; i++) {
        const look *l = &s->c->looks[i];
        uint64_t nbytes = s->c->tensors[l->of].nbytes;
        status = (s->there ? sum_there : sum_source)(s, s->summers[worker], l, err);
        __atomic_add_fetch(&s->done, s->there ? nbytes - nbytes / 2 : nbytes / 2, __ATOMIC_RELAXED);
        if (status == CKPT_OK && worker == 0)
            status = progress(s, err);
    }
    return status;
}

static uint32_t storage_of(const ckpt__index *x, const look *l)
{
    return ckpt__first_storage(x, &x->tensors[l->tensor]);
}

/* Units of some bytes; tensors of one storage are in one unit, which reads or decodes it once. */
static bool cut_units(summing *s)
{
    const checker *c = s->c;
    uint64_t bytes = 0;
    for (size_t i = 0; i <= c->look_count; i++) {
        bool first =
            i == 0 || i == c->look_count ||
            (bytes >= unit_bytes && storage_of(s->index, &c->looks[i]) != storage_of(s->index, &c->looks[i - 1]));
        if (first && !ckpt__grow(&s->begins, &s->capacity, s->units + 2, sizeof *s->begins))
            return false;
        if (first) {
            s->begins[s->units] = i;
            s->units += i < c->look_count;
            bytes = 0;
        }
        bytes += i < c->look_count ? c->tensors[c->looks[i].of].nbytes : 0;
    }
    return true;
}

/* All looks at one side. */
static ckpt_status sum_all(checker *c, ckpt__source *source, const ckpt__index *index, bool there)
{
    summing s = {.c = c, .index = index, .there = there, .before = c->m->done};
    unsigned threads = c->m->threads < MOST_THREADS ? c->m->threads : MOST_THREADS;
    ckpt_status status = cut_units(&s) ? CKPT_OK : ckpt__migration_no_memory(c->err);
    threads = threads < s.units ? threads : (unsigned)s.units;
    if (threads > 1)
        ckpt__source_pass(source, true, 0); /* a source that is passed is not for several threads */
    for (unsigned i = 0; status == CKPT_OK && i < threads; i++)
        status = ckpt__summer_new(source, index, &s.summers[i], c->err);
    if (status == CKPT_OK)
        status = ckpt__workers_run(threads, s.units, sum_unit, &s, c->err);
    if (status == CKPT_OK)
        status = progress(&s, c->err);
    for (unsigned i = 0; i < MOST_THREADS; i++)
        ckpt__summer_free(s.summers[i]);
    free(s.begins);
    c->look_count = 0;
    return status;
}

static ckpt_status add_look(checker *c, size_t tensor, size_t of)
{
    if (!ckpt__grow(&c->looks, &c->look_capacity, c->look_count + 1, sizeof *c->looks))
        return ckpt__migration_no_memory(c->err);
    c->looks[c->look_count++] = (look){(uint32_t)tensor, (uint32_t)of};
    return CKPT_OK;
}

/* ---- what is to be there, from the source */

static ckpt_status note_tensor(checker *c, size_t i)
{
    const ckpt__tensor *t = &c->m->index->tensors[i];
    written *w = &c->tensors[i];
    if (w->known)
        return CKPT_OK;
    w->name = ckpt__arena_str(c->names, t->info.name.data ? t->info.name.data : "", t->info.name.size);
    w->nbytes = t->info.nbytes;
    w->there = !ckpt__has_no_bytes(t) && t->info.nbytes;
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
    return w->there ? add_look(c, i, i) : CKPT_OK;
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
        if (!ckpt__stays_behind(m, i))
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
    for (size_t i = 0; status == CKPT_OK && i < m->expected_count; i++)
        status = add_place(c, m->expected[i].name, false, m->expected[i].tensor,
                           ckpt__tensor_end(m->index, m->expected[i].tensor));
    if (status == CKPT_OK && m->torch && !m->expected_count && m->root)
        status = (ckpt_status)ckpt_value_walk(m->root, 0, note_spot, c, c->err);
    for (size_t k = 0; status == CKPT_OK && !m->torch && k < m->chosen_count; k++) {
        size_t i = m->chosen[k];
        if (!ckpt__is_left_out(m, i) && !ckpt__has_no_bytes(&m->index->tensors[i])) /* else it has no data */
            status = add_place(c, m->index->tensors[i].info.name, false, i, i + 1);
    }
    return status == CKPT_OK ? sum_all(c, m->reader->source, m->from, false) : status;
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
    return want->there ? add_look(c, i, (size_t)(want - c->tensors)) : CKPT_OK;
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
    if (!c->m->same && !ckpt__is_trainers(c->m) && !ckpt__is_fsdps(c->m))
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
    ckpt_status status = c->m->as == CKPT__AS_RUN ? ckpt__run_open(c->m, c->m->beside, &c->back, c->err)
                                                  : ckpt_reader_open(c->m->beside, NULL, &c->back, c->err);
    if ((status == CKPT_E_FORMAT || status == CKPT_E_UNSUPPORTED || status == CKPT_E_TOO_NEW ||
         status == CKPT_E_LIMIT) &&
        c->err)
        c->err->status = CKPT_E_DAMAGED; /* it was none of these when it was written */
    if (status < 0)
        return c->err ? c->err->status : status;
    c->seen = calloc(ckpt_reader_tensor_count(c->back) + 1, sizeof *c->seen);
    status = c->seen ? CKPT_OK : ckpt__migration_no_memory(c->err);
    if (status == CKPT_OK)
        status = note_places(c);
    for (size_t k = 0; status == CKPT_OK && k < c->count; k++)
        status = compare_place(c, &c->list[k]);
    if (status == CKPT_OK)
        status = sum_all(c, c->back->source, c->back->index, true);
    if (status == CKPT_OK)
        status = check_gone(c);
    if (status == CKPT_OK)
        status = check_rest(c);
    if (status == CKPT_OK)
        status = check_archive(c);
    return status;
}

bool ckpt__back_expect(ckpt__migration *m, ckpt_str name, size_t tensor)
{
    if (!ckpt__grow(&m->expected, &m->expected_capacity, m->expected_count + 1, sizeof *m->expected))
        return false;
    m->expected[m->expected_count++] = (ckpt__expected){name, tensor};
    return true;
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
    free(c.looks);
    free(c.seen);
    return status;
}
