/* format/native/write.c - a native file as a recipe. The order of work: entries and aliases from the tensors; data
 * order; the value tree, which yields the blobs; the document; the header. The header is one deferred segment: the
 * payloads' checksums, then its own, are put in when all payloads have gone by. */
#include "codec/crc32.h"
#include "format/native/write.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

/* What finish() needs. */
typedef struct deferred {
    size_t crc_at; /* of the payloads' digits in the header */
    size_t entries;
    uint32_t *crcs;   /* of each entry; known ones are set */
    size_t *entry_of; /* segment -> ckpt__entry */
} deferred;

static const char *shown(ckpt_str name, char *buf, size_t size)
{
    return ckpt__escape(buf, size, name.data ? name.data : "", name.size);
}

/* ---- names */

/* A name of our own making for what cannot stand in the header under its own: taken twice, not UTF-8, reserved. The
 * true name goes into the document. */
static ckpt_status other_name(ckpt__native_writer *w, ckpt__entry *e, ckpt_error *err)
{
    for (unsigned n = 2;; n++) {
        char text[64];
        snprintf(text, sizeof text, "ckpt.name.%u.%u", e->record, n);
        e->name = ckpt__arena_str(w->recipe->arena, text, strlen(text));
        int put = e->name.data ? ckpt__hash_put(w->names, e->name.data, e->name.size, 0, NULL) : -1;
        if (put < 0)
            return ckpt__native_no_memory(w, err);
        if (put > 0)
            return CKPT_OK;
    }
}

/* Users' tensors first, so that a made name never takes the place of a real one. */
static ckpt_status name_entries(ckpt__native_writer *w, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; i < w->count; i++) {
        ckpt__entry *e = &w->entries[i];
        if (e->kind != CKPT__ENTRY_USER || !ckpt__utf8_valid(e->info->name.data, e->info->name.size))
            continue;
        int put = ckpt__hash_put(w->names, e->info->name.data, e->info->name.size, 0, NULL);
        if (put < 0)
            return ckpt__native_no_memory(w, err);
        if (put > 0)
            e->name = e->info->name;
    }
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        if (w->entries[i].kind == CKPT__ENTRY_USER && !w->entries[i].name.data)
            status = other_name(w, &w->entries[i], err);
    return status;
}

/* ---- data order */

/* 0 of 16 bytes, 4 of one. */
static size_t align_class(unsigned align)
{
    size_t c = 4;
    for (; align > 1; align /= 2)
        c--;
    return c;
}

/* By descending alignment, so that every entry is aligned; within one the given order, blobs last. */
static ckpt_status sort_entries(ckpt__native_writer *w, ckpt_error *err)
{
    enum { CLASSES = 5 }; /* 16 bytes, 8, 4, 2, 1 */
    size_t next[CLASSES + 1] = {0};
    if (w->order && w->sorted == w->count) /* the value tree made no blobs */
        return CKPT_OK;
    free(w->order);
    free(w->position);
    w->order = calloc(w->count + 1, sizeof *w->order);
    w->position = calloc(w->count + 1, sizeof *w->position);
    if (!w->order || !w->position)
        return ckpt__native_no_memory(w, err);
    for (size_t i = 0; i < w->count; i++)
        next[align_class(w->entries[i].align) + 1]++;
    for (size_t c = 1; c <= CLASSES; c++)
        next[c] += next[c - 1];
    for (size_t i = 0; i < w->count; i++) {
        w->position[i] = next[align_class(w->entries[i].align)]++;
        w->order[w->position[i]] = i;
    }
    w->sorted = w->count;
    return CKPT_OK;
}

static void number_records(ckpt__native_writer *w)
{
    w->users = 0;
    for (size_t i = 0; i < w->count; i++) {
        ckpt__entry *e = &w->entries[w->order[i]];
        if (e->kind == CKPT__ENTRY_USER) {
            e->record = (uint32_t)w->users++;
            w->record_of[e->number] = (size_t)e->record + 1;
        }
    }
    for (size_t i = 0; i < w->alias_count; i++)
        w->record_of[w->aliases[i].tensor] = w->users + i + 1;
}

/* ---- the value tree */

static ckpt_status put_tensor(void *ctx, size_t number, ckpt__buf *out, ckpt_error *err)
{
    const ckpt__native_writer *w = ctx;
    char text[200];
    if (number >= w->q->index->tensor_count)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a value refers to tensor %zu of %zu", number,
                          w->q->index->tensor_count);
    ckpt_str name = w->q->index->tensors[number].info.name;
    if (w->record_of[number]) {
        ckpt__buf_str(out, "\"n\":");
        ckpt__json_put_u64(out, w->record_of[number] - 1);
        return CKPT_OK;
    }
    if (!ckpt__utf8_valid(name.data, name.size))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, shown(name, text, sizeof text),
                          "its name is not UTF-8, and it lies in another file");
    ckpt__buf_str(out, "\"name\":");
    ckpt__json_put_string(out, name.data, name.size);
    return CKPT_OK;
}

static ckpt_status put_blob(void *ctx, ckpt_dtype dtype, const char *data, size_t size, uint64_t *number,
                            ckpt_error *err)
{
    ckpt__native_writer *w = ctx;
    ckpt__entry *e = ckpt__native_add_entry(w);
    if (!e)
        return ckpt__native_no_memory(w, err);
    e->kind = CKPT__ENTRY_BLOB;
    e->number = (uint32_t)w->blobs++;
    e->dtype = dtype;
    e->align = (uint8_t)ckpt__native_alignment(dtype);
    e->size = size;
    e->crc = ckpt__crc32(0, data, size);
    e->bytes = data == w->kept ? (char *)(uintptr_t)data : ckpt__arena_copy(w->recipe->arena, data, size);
    *number = e->number;
    return e->bytes ? ckpt__native_name_own(w, e, CKPT__NATIVE_BLOB, e->number, err) : ckpt__native_no_memory(w, err);
}

/* Has every tensor the record of its own number? So it is when a native file is written again as it was. */
static bool same_numbers(const ckpt__native_writer *w)
{
    for (size_t i = 0; i < w->q->index->tensor_count; i++)
        if (w->record_of[i] != i + 1)
            return false;
    return true;
}

/* The structure of a torch file names tensors by their numbers in the index: in the file they are records. */
static ckpt_status number_kept(ckpt__native_writer *w, const ckpt_value **root, ckpt_error *err)
{
    const ckpt_entry *kept = ckpt__native_kept(w->q->root);
    ckpt__buf pickle = {0};
    *root = w->q->root;
    if (!kept)
        return CKPT_OK;
    if (w->q->numbered)
        w->kept = kept->value->text.data;
    if (w->q->numbered || same_numbers(w))
        return CKPT_OK;
    ckpt_status status =
        ckpt__torch_kept_renumber(kept->value->text, w->record_of, w->q->index->tensor_count, &pickle, err);
    ckpt_value *copy = ckpt__value_dict_like(w->recipe->arena, *root, (*root)->entries, (*root)->entry_count);
    ckpt_value *bytes = ckpt__value_new(w->recipe->arena, CKPT_V_BYTES);
    ckpt_str text = pickle.data ? ckpt__arena_str(w->recipe->arena, pickle.data, pickle.size) : (ckpt_str){NULL, 0};
    ckpt__buf_free(&pickle);
    if (status < 0)
        return status;
    if (!copy || !bytes || !text.data)
        return ckpt__native_no_memory(w, err);
    bytes->text = text;
    w->kept = text.data; /* in the recipe's arena */
    ((ckpt_entry *)(uintptr_t)copy->entries)[kept - (*root)->entries].value = bytes;
    *root = copy;
    return CKPT_OK;
}

static ckpt_status put_root(ckpt__native_writer *w, ckpt_error *err)
{
    const ckpt_value *root;
    ckpt_status status = w->q->root ? number_kept(w, &root, err) : CKPT_OK;
    if (!w->q->root || status < 0)
        return status;
    const ckpt__values_writer hooks = {put_tensor, put_blob, w, w->recipe->arena};
    ckpt__buf_str(&w->doc, ",\"root\":");
    return ckpt__values_write(root, &hooks, &w->doc, err);
}

/* ---- the document */

static void put_shape(ckpt__buf *b, const int64_t *shape, uint32_t ndim)
{
    ckpt__buf_char(b, '[');
    for (uint32_t i = 0; i < ndim; i++) {
        ckpt__buf_str(b, i ? "," : "");
        ckpt__json_put_i64(b, shape[i]);
    }
    ckpt__buf_char(b, ']');
}

/* [[record,"complex32",[2,3]],...] */
static void put_dtypes(ckpt__native_writer *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->count; i++) {
        const ckpt__entry *e = &w->entries[w->order[i]];
        if (!e->as_bytes)
            continue;
        ckpt__buf_str(&w->doc, n++ ? ",[" : ",\"dtypes\":[[");
        ckpt__json_put_u64(&w->doc, e->record);
        ckpt__buf_printf(&w->doc, ",\"%s\",", ckpt_dtype_name(e->info->dtype));
        put_shape(&w->doc, e->info->shape, e->info->ndim);
        ckpt__buf_char(&w->doc, ']');
    }
    ckpt__buf_str(&w->doc, n ? "]" : "");
}

/* [[record,"the true name, in hexadecimal"],...] */
static void put_names(ckpt__native_writer *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->count; i++) {
        const ckpt__entry *e = &w->entries[w->order[i]];
        if (e->kind != CKPT__ENTRY_USER || e->name.data == e->info->name.data)
            continue;
        ckpt__buf_str(&w->doc, n++ ? ",[" : ",\"names\":[[");
        ckpt__json_put_u64(&w->doc, e->record);
        ckpt__buf_str(&w->doc, ",\"");
        ckpt__hex_put(&w->doc, e->info->name.data, e->info->name.size);
        ckpt__buf_str(&w->doc, "\"]");
    }
    ckpt__buf_str(&w->doc, n ? "]" : "");
}

/* [["name",of,"float32",offset,[shape],[strides]],...]; of -1: no data (meta). */
static void put_aliases(ckpt__native_writer *w)
{
    for (size_t i = 0; i < w->alias_count; i++) {
        const ckpt__alias *a = &w->aliases[i];
        ckpt__buf_str(&w->doc, i ? ",[" : ",\"aliases\":[[");
        ckpt__json_put_string(&w->doc, a->info->name.data, a->info->name.size);
        ckpt__buf_char(&w->doc, ',');
        ckpt__json_put_i64(&w->doc, a->of == SIZE_MAX ? -1 : (int64_t)w->position[a->of]);
        ckpt__buf_printf(&w->doc, ",\"%s\",", ckpt_dtype_name(a->info->dtype));
        ckpt__json_put_i64(&w->doc, a->offset);
        ckpt__buf_char(&w->doc, ',');
        put_shape(&w->doc, a->info->shape, a->info->ndim);
        ckpt__buf_char(&w->doc, ',');
        put_shape(&w->doc, a->info->strides, a->info->ndim);
        ckpt__buf_char(&w->doc, ']');
    }
    ckpt__buf_str(&w->doc, w->alias_count ? "]" : "");
}

static ckpt_status put_columns(ckpt__native_writer *w, ckpt_error *err)
{
    size_t n = w->users + w->alias_count;
    const ckpt_tensor_info **infos = calloc(n + 1, sizeof *infos);
    if (!infos)
        return ckpt__native_no_memory(w, err);
    for (size_t i = 0; i < w->count; i++)
        if (w->entries[i].kind == CKPT__ENTRY_USER)
            infos[w->entries[i].record] = w->entries[i].info;
    for (size_t i = 0; i < w->alias_count; i++)
        infos[w->users + i] = w->aliases[i].info;
    ckpt__buf_char(&w->doc, ',');
    ckpt_status status = ckpt__native_put_columns(infos, n, &w->doc, err);
    free(infos);
    return status;
}

/* What the document is made of, and the header is not: the header takes as much. */
static void forget_records(ckpt__native_writer *w)
{
    free(w->position);
    free(w->record_of);
    w->position = w->record_of = NULL;
}

/* The value tree comes first in time, since it makes blobs, and last in the text. */
static ckpt_status make_document(ckpt__native_writer *w, ckpt_error *err)
{
    static const char zeros[8] = "00000000";
    ckpt_status status = put_root(w, err);
    ckpt__buf root = w->doc;
    memset(&w->doc, 0, sizeof w->doc);
    if (status == CKPT_OK)
        status = sort_entries(w, err);
    if (status == CKPT_OK) {
        ckpt__buf_printf(&w->doc, "{\"version\":[%d,%d],\"requires\":[],\"writer\":\"ckpt %s\"", CKPT__NATIVE_MAJOR,
                         CKPT__NATIVE_MINOR, ckpt_version());
        if (w->q->step >= 0)
            ckpt__buf_printf(&w->doc, ",\"step\":%lld", (long long)w->q->step);
        put_dtypes(w);
        put_names(w);
        put_aliases(w);
        status = put_columns(w, err);
    }
    ckpt__buf_str(&w->doc, ",\"crc32\":\"");
    w->crc_in_doc = w->doc.size;
    for (size_t i = 0; i < w->count; i++)
        ckpt__buf_add(&w->doc, zeros, 8);
    ckpt__buf_char(&w->doc, '"');
    if (root.data)
        ckpt__buf_add(&w->doc, root.data, root.size);
    ckpt__buf_char(&w->doc, '}');
    if (status == CKPT_OK && (root.failed || w->doc.failed))
        status = ckpt__native_no_memory(w, err);
    ckpt__buf_free(&root);
    return status;
}

/* ---- the header and the recipe */

static ckpt_status make_header(ckpt__native_writer *w, deferred *d, ckpt_error *err)
{
    ckpt__buf *b = &w->header;
    size_t digits = 8 * w->count, after = w->crc_in_doc + digits;
    uint64_t at = 0, end;
    ckpt__buf_add(b, "\0\0\0\0\0\0\0", 8);
    ckpt__buf_str(b, CKPT__NATIVE_START "00000000" CKPT__NATIVE_NEXT);
    ckpt__json_put_escaped(b, w->doc.data, w->crc_in_doc);
    d->crc_at = b->size;
    ckpt__buf_add(b, w->doc.data + w->crc_in_doc, digits);
    ckpt__json_put_escaped(b, w->doc.data + after, w->doc.size - after);
    ckpt__buf_str(b, "\",\"format\":\"pt\"}");
    for (size_t i = 0; i < w->count; i++, at = end) {
        const ckpt__entry *e = &w->entries[w->order[i]];
        int64_t one = (int64_t)(e->kind == CKPT__ENTRY_BLOB && e->dtype != CKPT_U8 ? e->size / 8 : e->size);
        bool own = e->kind == CKPT__ENTRY_USER && !e->as_bytes;
        if (!ckpt__add(at, e->size, &end))
            return ckpt__fail(err, CKPT_E_LIMIT, NULL, "the tensors together are larger than a file can be");
        ckpt__st_put_entry(b, true, e->name, e->dtype, own ? e->info->shape : &one, own ? e->info->ndim : 1, at, end);
    }
    ckpt__buf_char(b, '}');
    return ckpt__st_finish_header(b, err);
}

static ckpt_status finish(ckpt__recipe *r, const uint32_t *crcs, ckpt_error *err)
{
    deferred *d = r->ctx;
    char *header = r->segments[0].bytes;
    size_t size = (size_t)r->segments[0].size;
    (void)err;
    for (size_t i = 0; i < r->count; i++)
        if (r->segments[i].kind == CKPT__PAYLOAD || r->segments[i].kind == CKPT__STORAGE ||
            r->segments[i].kind == CKPT__RANGE) /* of a file of several ranks' */
            d->crcs[d->entry_of[i]] = crcs[i];
    for (size_t i = 0; i < d->entries; i++)
        ckpt__hex_crc(header + d->crc_at + 8 * i, d->crcs[i]);
    ckpt__hex_crc(header + CKPT__NATIVE_CRC_AT, ckpt__native_crc(header, size));
    return CKPT_OK;
}

static ckpt_status make_recipe(ckpt__native_writer *w, deferred *d, ckpt_error *err)
{
    ckpt__recipe *r = w->recipe;
    r->text = w->header;
    memset(&w->header, 0, sizeof w->header);
    d->entries = w->count;
    d->crcs = ckpt__arena_array(r->arena, w->count + 1, sizeof *d->crcs);
    d->entry_of = ckpt__arena_array(r->arena, w->count + 1, sizeof *d->entry_of);
    if (!d->crcs || !d->entry_of)
        return ckpt__native_no_memory(w, err);
    ckpt_status status = ckpt__recipe_add(r, &w->segment_capacity, CKPT__DEFERRED, r->text.size, r->text.data, 0, err);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        static const ckpt__segment_kind kinds[] = {[CKPT__ENTRY_USER] = CKPT__PAYLOAD,
                                                   [CKPT__ENTRY_STORAGE] = CKPT__STORAGE,
                                                   [CKPT__ENTRY_BLOB] = CKPT__LITERAL};
        const ckpt__entry *e = &w->entries[w->order[i]];
        d->crcs[i] = e->crc;
        d->entry_of[r->count] = i; /* at most w->count segments come before: an empty one takes no number */
        status = ckpt__recipe_add(r, &w->segment_capacity, kinds[e->kind], e->size, e->bytes, e->number, err);
    }
    r->finish = finish;
    r->ctx = d;
    return status;
}

/* Which tensors are entries, and in which order, which the value tree has no part in. */
static ckpt_status take_records(ckpt__native_writer *w, ckpt_error *err)
{
    w->record_of = calloc(w->q->index->tensor_count + 1, sizeof *w->record_of);
    ckpt_status status = w->recipe && w->record_of ? ckpt__native_take(w, err) : ckpt__native_no_memory(w, err);
    if (status == CKPT_OK)
        status = sort_entries(w, err);
    if (status == CKPT_OK)
        number_records(w);
    return status;
}

static void free_writer(ckpt__native_writer *w)
{
    free(w->entries);
    free(w->aliases);
    free(w->order);
    free(w->position);
    free(w->record_of);
    ckpt__hash_free(w->names);
    ckpt__buf_free(&w->header);
    ckpt__buf_free(&w->doc);
}

ckpt_status ckpt__native_write(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err)
{
    ckpt__native_writer w = {.q = request, .recipe = ckpt__recipe_new(), .names = ckpt__hash_new(request->count)};
    deferred *d = w.recipe ? ckpt__arena_alloc(w.recipe->arena, sizeof *d) : NULL;
    ckpt_status status = d && w.names ? take_records(&w, err) : ckpt__native_no_memory(&w, err);
    if (status == CKPT_OK)
        status = name_entries(&w, err);
    ckpt__hash_free(w.names);
    w.names = NULL;
    if (status == CKPT_OK)
        status = make_document(&w, err);
    forget_records(&w);
    if (status == CKPT_OK)
        status = make_header(&w, d, err);
    ckpt__buf_free(&w.doc);
    if (status == CKPT_OK)
        status = make_recipe(&w, d, err);
    free_writer(&w);
    if (status < 0)
        ckpt__recipe_free(w.recipe);
    else
        *out = w.recipe;
    return status;
}

ckpt_status ckpt__native_records(const ckpt__write_request *request, size_t **record_of, ckpt_error *err)
{
    static const ckpt_value key = {.kind = CKPT_V_STR, .text = {CKPT__TORCH_KEY, sizeof CKPT__TORCH_KEY - 1}};
    static const ckpt_value bytes = {.kind = CKPT_V_BYTES};
    const ckpt_entry kept = {&key, &bytes};
    const ckpt_value root = {.kind = CKPT_V_DICT, .entries = &kept, .entry_count = 1};
    ckpt__write_request q = *request;
    ckpt__native_writer w = {.q = &q, .recipe = ckpt__recipe_new()};
    q.root = &root;
    ckpt_status status = take_records(&w, err);
    *record_of = status == CKPT_OK ? w.record_of : NULL;
    if (status == CKPT_OK)
        w.record_of = NULL;
    free_writer(&w);
    ckpt__recipe_free(w.recipe);
    return status;
}
