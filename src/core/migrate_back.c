/* core/migrate_back.c - what was written is read back: every tensor has the bytes that its source has, converted where
 * that was asked for. */
#include "core/migrate_job.h"

#include <stdio.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "core/payload.h"

typedef struct checker {
    ckpt__mover *m;
    ckpt_reader *back;
    bool *seen; /* per tensor of `back` */
    ckpt__payload want, got; /* what was to be written, and what is there: in bounded memory */
    char *block;
    ckpt__hash *places; /* --to same: path in the tree of what is there -> tensor */
    ckpt_error *err;
} checker;

enum { BLOCK = 1 << 20, PAYLOAD = 16 << 20 };

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

static ckpt_status crc_of(checker *c, const ckpt__payload *payload, size_t tensor, uint64_t size, uint32_t *crc)
{
    ckpt_status status = CKPT_OK;
    *crc = 0;
    for (uint64_t at = 0; status == CKPT_OK && at < size; at += BLOCK) {
        size_t n = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        status = payload->read(payload->ctx, CKPT__PAYLOAD, tensor, at, c->block, n, c->err);
        if (status == CKPT_OK)
            *crc = ckpt__crc32(*crc, c->block, n);
    }
    return status;
}

static ckpt_status compare(checker *c, size_t tensor, size_t i)
{
    const ckpt_tensor_info *want = &c->m->index->tensors[tensor].info, *got = ckpt_reader_tensor(c->back, i);
    uint32_t was = 0, is = 0;
    char shown[200];
    ckpt__escape(shown, sizeof shown, want->name.data, want->name.size);
    bool there = c->m->index->tensors[tensor].piece_count == 1;
    if (got->nbytes != want->nbytes)
        return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' reads back with %llu bytes, and has %llu", shown,
                          (unsigned long long)got->nbytes, (unsigned long long)want->nbytes);
    ckpt_status status = there ? crc_of(c, &c->want, tensor, want->nbytes, &was) : CKPT_OK;
    if (status == CKPT_OK && there)
        status = crc_of(c, &c->got, i, got->nbytes, &is);
    if (status == CKPT_OK && was != is)
        status =
            ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' reads back with CRC-32 %08x, the source's is %08x",
                       shown, (unsigned)is, (unsigned)was);
    c->m->done += want->nbytes;
    const ckpt_progress *p = &c->m->options.progress;
    if (status == CKPT_OK && p->fn && p->fn(p->ctx, c->m->done < c->m->total ? c->m->done : c->m->total, c->m->total) != 0)
        status = ckpt__fail(c->err, CKPT_E_CANCELLED, c->m->dst, "cancelled while it was read back; nothing was written");
    return status;
}

static ckpt_status not_there(const checker *c, ckpt_str name)
{
    char shown[200];
    return ckpt__fail(c->err, CKPT_E_DAMAGED, c->m->dst, "tensor '%s' was written, and does not read back",
                      ckpt__escape(shown, sizeof shown, name.data ? name.data : "", name.size));
}

static ckpt_status compare_by_name(checker *c)
{
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < c->m->chosen_count; k++) {
        const ckpt__tensor *t = &c->m->index->tensors[c->m->chosen[k]];
        size_t i = 0;
        if (t->piece_count == 0)
            continue; /* no data */
        status = next_of_name(c, t->info.name, &i) ? compare(c, c->m->chosen[k], i) : not_there(c, t->info.name);
    }
    return status;
}

/* In a torch file the tree says what is where; a tensor's parts follow it, here as there. */
static int compare_spot(void *ctx, const ckpt__spot *spot)
{
    checker *c = ctx;
    const ckpt_value *v = spot->visit->value;
    size_t i = 0;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= c->m->index->tensor_count || spot->visit->cycle)
        return CKPT_OK;
    ckpt_str name = spot->visit->name;
    if (c->places ? !ckpt__hash_get(c->places, name.data, name.size, &i) : !next_of_name(c, name, &i))
        return spot->visit->inside ? CKPT_OK : not_there(c, spot->visit->name); /* where no path leads, nothing is listed */
    size_t end = ckpt__tensor_end(c->m->index, v->tensor), count = ckpt_reader_tensor_count(c->back);
    ckpt_status status = CKPT_OK;
    for (size_t k = v->tensor; status == CKPT_OK && k < end; k++) {
        if (i + (k - v->tensor) >= count)
            return not_there(c, c->m->index->tensors[k].info.name);
        c->seen[i + (k - v->tensor)] = true;
        status = compare(c, k, i + (k - v->tensor));
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
        return ckpt__mover_no_memory(c->err);
    return 0;
}

static ckpt_status note_places(checker *c)
{
    if (!c->m->same)
        return CKPT_OK;
    if (!(c->places = ckpt__hash_new(c->back->index->tensor_count)))
        return ckpt__mover_no_memory(c->err);
    return c->back->index->root ? (ckpt_status)ckpt_value_walk(c->back->index->root, 0, note_place, c, c->err) : CKPT_OK;
}

/* What else the target holds (values that lie in tensors of their own), by the CRCs that it has. */
static ckpt_status check_rest(checker *c)
{
    const ckpt__index *x = c->back->index;
    bool *checked = calloc(x->storage_count + 1, sizeof *checked);
    ckpt_status status = checked ? CKPT_OK : ckpt__mover_no_memory(c->err);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        for (size_t p = 0; p < x->tensors[i].piece_count; p++) {
            if (!c->seen[i] && x->tensors[i].has_crc)
                status = ckpt__read_tensor(c->back->source, x, i, true, NULL, NULL, c->err);
            checked[x->tensors[i].pieces[p].storage] = c->seen[i] || x->tensors[i].has_crc;
        }
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++)
        if (!checked[i] && x->storages[i].extent.has_crc)
            status = ckpt__read_storage(c->back->source, x, i, true, NULL, NULL, c->err);
    free(checked);
    return status;
}

static ckpt_status check(checker *c)
{
    ckpt__mover *m = c->m;
    ckpt__reader_payload *want = NULL, *got = NULL;
    ckpt_status status = ckpt_reader_open(m->beside, NULL, &c->back, c->err);
    if ((status == CKPT_E_FORMAT || status == CKPT_E_UNSUPPORTED || status == CKPT_E_TOO_NEW || status == CKPT_E_LIMIT) && c->err)
        c->err->status = CKPT_E_DAMAGED;     /* it was none of these when it was written */
    if (status < 0)
        return c->err ? c->err->status : status;
    c->seen = calloc(ckpt_reader_tensor_count(c->back) + 1, sizeof *c->seen);
    c->block = malloc(BLOCK);
    status = c->seen && c->block ? CKPT_OK : ckpt__mover_no_memory(c->err);
    if (status == CKPT_OK)
        status = ckpt__payload_open(m->reader->source, m->from, m->index, m->casts, PAYLOAD, &want, &c->want, c->err);
    if (status == CKPT_OK)
        status = ckpt__payload_open(c->back->source, c->back->index, c->back->index, NULL, PAYLOAD, &got, &c->got, c->err);
    if (status == CKPT_OK)
        status = note_places(c);
    if (status == CKPT_OK)
        status = m->torch ? ckpt__edit_walk(m->root, compare_spot, c, c->err) : compare_by_name(c);
    if (status == CKPT_OK)
        status = check_rest(c);
    ckpt__reader_payload_free(want);
    ckpt__reader_payload_free(got);
    return status;
}

ckpt_status ckpt__migrate_read_back(ckpt__mover *m, ckpt_error *err)
{
    checker c = { .m = m, .err = err };
    ckpt_status status = check(&c);
    ckpt_reader_close(c.back);
    ckpt__hash_free(c.places);
    free(c.seen);
    free(c.block);
    return status;
}
