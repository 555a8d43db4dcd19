/* format/safetensors_write.c - plain safetensors, as the reference writes it: "format": "pt", tensors by descending
 * alignment and then by name. What the format cannot hold is listed in request->lost. */
#include "format/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct item {
    const ckpt_tensor_info *info;
    size_t tensor;
    ckpt_dtype dtype; /* U8 where safetensors lacks the tensor's own */
    int rank;         /* of that dtype */
    bool as_bytes;
} item;

typedef struct writer {
    const ckpt__write_request *q;
    ckpt__recipe *recipe;
    item *items;
    size_t count;
    ckpt__hash *names;
    ckpt__buf *header; /* the recipe's text */
    size_t segment_capacity, left_capacity;
} writer;

static const char *shown(ckpt_str name, char *buf, size_t size)
{
    return ckpt__escape(buf, size, name.data ? name.data : "", name.size);
}

static const ckpt_str no_tensor = {NULL, 0};

static ckpt_status lost(const writer *w, ckpt_str tensor, const char *message)
{
    if (!w->q->lost || (ckpt__report_add(w->q->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", message) &&
                        ckpt__report_tensor(w->q->lost, tensor)))
        return CKPT_OK;
    return CKPT_E_NO_MEMORY;
}

static ckpt_status leave_out(writer *w, size_t number, const char *why, ckpt_error *err)
{
    ckpt__recipe *r = w->recipe;
    if (lost(w, w->q->index->tensors[number].info.name, why) < 0 ||
        !ckpt__grow(&r->left_out, &w->left_capacity, r->left_count + 1, sizeof *r->left_out))
        return ckpt__fail_memory(err, "findings", 0);
    r->left_out[r->left_count++] = number;
    return CKPT_OK;
}

static ckpt_status take_tensor(writer *w, size_t number, ckpt_error *err)
{
    const ckpt__tensor *t = &w->q->index->tensors[number];
    const ckpt_tensor_info *info = &t->info;
    char text[400];
    item *it = &w->items[w->count];
    if (ckpt__str_is(info->name, "__metadata__"))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, "__metadata__", "safetensors reserves this name: rename the tensor");
    const char *why = ckpt__has_no_bytes(t)
                          ? (info->extra->layout.data ? "it is not dense: left out" : "it has no data (meta): left out")
                      : info->conj ? "it is a conjugate view, which safetensors cannot say: left out"
                      : info->neg  ? "it is a negated view, which safetensors cannot say: left out"
                      : !ckpt__utf8_valid(info->name.data, info->name.size) ? "its name is not UTF-8: left out"
                                                                            : NULL;
    int put = why ? 1 : ckpt__hash_put(w->names, info->name.data, info->name.size, number, NULL);
    if (put == 0)
        why = "another tensor has the same name: left out";
    if (why || put < 0)
        return put < 0 ? ckpt__fail_memory(err, "names", 0) : leave_out(w, number, why, err);
    *it = (item){.info = info, .tensor = number, .dtype = info->dtype, .as_bytes = !ckpt__st_fits(info)};
    if (it->as_bytes) {
        it->dtype = CKPT_U8;
        const bool known = ckpt__st_rank(info->dtype) >= 0;
        snprintf(text, sizeof text, "%s%s%s: written as uint8 of %llu bytes", known ? "its " : "safetensors has no ",
                 ckpt_dtype_name(info->dtype), known ? " elements do not fill whole bytes" : "",
                 (unsigned long long)info->nbytes);
        if (lost(w, info->name, text) < 0)
            return ckpt__fail_memory(err, "findings", 0);
    }
    it->rank = ckpt__st_rank(it->dtype);
    w->count++;
    return CKPT_OK;
}

static int by_rank(const void *pa, const void *pb)
{
    const item *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    ckpt_str na = a->info->name, nb = b->info->name;
    size_t n = na.size < nb.size ? na.size : nb.size;
    int c = n ? memcmp(na.data, nb.data, n) : 0;
    return c ? c : na.size < nb.size ? -1 : na.size > nb.size;
}

/* Tensors that share a storage become copies: each but the first of a storage is listed. */
static ckpt_status list_copies(const writer *w, ckpt_error *err)
{
    const ckpt__index *x = w->q->index;
    size_t *first = calloc(x->storage_count + 1, sizeof *first);
    ckpt_status status = first ? CKPT_OK : ckpt__fail_memory(err, "storages", x->storage_count * sizeof *first);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        const ckpt__tensor *t = &x->tensors[w->items[i].tensor];
        char other[160], text[256];
        if (!t->whole || t->info.nbytes == 0)
            continue;
        size_t s = t->storage;
        if (first[s] == 0) {
            first[s] = i + 1;
            continue;
        }
        snprintf(text, sizeof text, "shares its bytes with '%s': becomes a copy",
                 shown(w->items[first[s] - 1].info->name, other, sizeof other));
        if (lost(w, w->items[i].info->name, text) < 0)
            status = ckpt__fail_memory(err, "findings", 0);
    }
    free(first);
    return status;
}

/* Device tags, roles and the step have no place: one finding each. What was on the cpu is read there all the same, and weights by
 * themselves are put where their loader is told to. */
static ckpt_status list_tags(const writer *w, ckpt_error *err)
{
    size_t devices = 0, roles = 0;
    char text[128];
    int bad = 0;
    for (size_t i = 0; i < w->count; i++) {
        const ckpt_tensor_info *info = w->items[i].info;
        devices += !w->q->weights_only && info->device.data && !ckpt__str_is(info->device, "cpu");
        roles += info->role != CKPT_ROLE_NONE && info->role != CKPT_ROLE_PARAM && info->role != CKPT_ROLE_BUFFER;
    }
    if (devices) {
        snprintf(text, sizeof text, "the device tag%s of %zu tensor%s", devices == 1 ? "" : "s", devices,
                 devices == 1 ? "" : "s");
        bad |= lost(w, no_tensor, text);
    }
    if (roles) {
        snprintf(text, sizeof text, "what %zu tensor%s to the optimizer (role, parameter, group)", roles,
                 roles == 1 ? " is" : "s are");
        bad |= lost(w, no_tensor, text);
    }
    if (w->q->step >= 0) {
        snprintf(text, sizeof text, "the step, %lld", (long long)w->q->step);
        bad |= lost(w, no_tensor, text);
    }
    return bad ? ckpt__fail_memory(err, "findings", 0) : CKPT_OK;
}

/* ---- values: strings below the root's __metadata__ are kept, everything else but tensors is lost; the step was said above */

enum { VALUES_LISTED = 1000 };

typedef struct value_list {
    const writer *w;
    const ckpt_value *metadata; /* its strings are not lost */
    uint64_t count;
} value_list;

static int list_value(void *ctx, const ckpt_visit *visit)
{
    value_list *l = ctx;
    const ckpt_value *v = visit->value;
    bool container = (v->kind == CKPT_V_DICT || v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE) && !visit->cycle;
    if (visit->inside || v->kind == CKPT_V_TENSOR ||
        (container && (v->entry_count || v->item_count || !visit->name.size)))
        return 0;
    bool step =
        l->w->q->step >= 0 && v->kind == CKPT_V_INT && visit->path.count == 1 && ckpt__str_is(visit->name, "step");
    if (v == l->metadata || step ||
        (l->metadata && v->kind == CKPT_V_STR && visit->path.count == 2 &&
         ckpt__str_is(visit->path.keys[0].text, "__metadata__")))
        return 0;
    char name[160], text[256];
    if (l->count++ >= VALUES_LISTED)
        return 0;
    snprintf(text, sizeof text, "the value '%s' (%s)", shown(visit->name, name, sizeof name), ckpt_kind_name(v->kind));
    return lost(l->w, no_tensor, text);
}

static const ckpt_value *metadata_of(const ckpt_value *root)
{
    const ckpt_value *m = root && root->kind == CKPT_V_DICT ? ckpt_value_get(root, "__metadata__") : NULL;
    return m && m->kind == CKPT_V_DICT ? m : NULL;
}

static ckpt_status list_values(const writer *w, ckpt_error *err)
{
    value_list l = {w, metadata_of(w->q->root), 0};
    char text[96];
    if (!w->q->root)
        return CKPT_OK;
    int status = ckpt_value_walk(w->q->root, 0, list_value, &l, err);
    if (status == CKPT_OK && l.count > VALUES_LISTED) {
        snprintf(text, sizeof text, "%llu more values", (unsigned long long)(l.count - VALUES_LISTED));
        status = lost(w, no_tensor, text);
    }
    return status == CKPT_E_NO_MEMORY ? ckpt__fail_memory(err, "findings", 0) : (ckpt_status)status;
}

/* Of the root's __metadata__: strings, but not the native format's own keys, which would claim the file for it. */
static bool keeps(const ckpt_value *key, const ckpt_value *value)
{
    return key->kind == CKPT_V_STR && value->kind == CKPT_V_STR && ckpt__utf8_valid(key->text.data, key->text.size) &&
           ckpt__utf8_valid(value->text.data, value->text.size) && !ckpt__str_is(key->text, "ckpt") &&
           !ckpt__str_is(key->text, "ckpt.crc32");
}

static ckpt_status put_metadata(writer *w, ckpt_error *err)
{
    const ckpt_value *m = metadata_of(w->q->root);
    ckpt__hash *seen = ckpt__hash_new(8);
    ckpt__buf *b = w->header;
    int put = seen ? 1 : -1;
    size_t n = 0;
    ckpt__buf_str(b, "{\"__metadata__\":{");
    for (size_t i = 0; m && put >= 0 && i < m->entry_count; i++) {
        const ckpt_value *key = m->entries[i].key, *value = m->entries[i].value;
        if (!keeps(key, value) || (put = ckpt__hash_put(seen, key->text.data, key->text.size, 0, NULL)) <= 0)
            continue;
        ckpt__buf_str(b, n++ ? "," : "");
        ckpt__json_put_string(b, key->text.data, key->text.size);
        ckpt__buf_char(b, ':');
        ckpt__json_put_string(b, value->text.data, value->text.size);
    }
    if (put >= 0 && !ckpt__hash_get(seen, "format", 6, NULL)) /* transformers refuses a file without it */
        ckpt__buf_str(b, n ? ",\"format\":\"pt\"" : "\"format\":\"pt\"");
    ckpt__buf_char(b, '}');
    ckpt__hash_free(seen);
    return put < 0 ? ckpt__fail_memory(err, "metadata", 0) : CKPT_OK;
}

static ckpt_status put_header(writer *w, ckpt_error *err)
{
    uint64_t at = 0, end;
    ckpt__buf_add(w->header, "\0\0\0\0\0\0\0", 8);
    ckpt_status status = put_metadata(w, err);
    if (status < 0)
        return status;
    for (size_t i = 0; i < w->count; i++, at = end) {
        const item *it = &w->items[i];
        int64_t bytes = (int64_t)it->info->nbytes;
        if (!ckpt__add(at, it->info->nbytes, &end))
            return ckpt__fail(err, CKPT_E_LIMIT, NULL, "the tensors together are larger than a file can be");
        ckpt__st_put_entry(w->header, true, it->info->name, it->dtype, it->as_bytes ? &bytes : it->info->shape,
                           it->as_bytes ? 1 : it->info->ndim, at, end);
    }
    ckpt__buf_char(w->header, '}');
    return ckpt__st_finish_header(w->header, err);
}

static ckpt_status put_segments(writer *w, ckpt_error *err)
{
    ckpt__recipe *r = w->recipe;
    ckpt_status status =
        ckpt__recipe_add(r, &w->segment_capacity, CKPT__LITERAL, w->header->size, w->header->data, 0, err);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        status = ckpt__recipe_add(r, &w->segment_capacity, CKPT__PAYLOAD, w->items[i].info->nbytes, NULL,
                                  w->items[i].tensor, err);
    return status;
}

ckpt_status ckpt__safetensors_write(const ckpt__write_request *request, ckpt__recipe **out, ckpt_error *err)
{
    writer w = {.q = request, .recipe = ckpt__recipe_new(), .names = ckpt__hash_new(request->count)};
    w.items = calloc(request->count + 1, sizeof *w.items);
    ckpt_status status = CKPT_OK;
    if (!w.recipe || !w.names || !w.items)
        status = ckpt__fail_memory(err, "header", request->count * sizeof *w.items);
    for (size_t i = 0; status == CKPT_OK && i < request->count; i++)
        status = take_tensor(&w, request->tensors[i], err);
    if (status == CKPT_OK && w.count)
        qsort(w.items, w.count, sizeof *w.items, by_rank);
    if (status == CKPT_OK)
        status = list_copies(&w, err);
    if (status == CKPT_OK)
        status = list_tags(&w, err);
    if (status == CKPT_OK)
        status = list_values(&w, err);
    ckpt__hash_free(w.names); /* before the header takes as much */
    w.header = w.recipe ? &w.recipe->text : NULL;
    if (status == CKPT_OK)
        status = put_header(&w, err);
    if (status == CKPT_OK)
        status = put_segments(&w, err);
    free(w.items);
    if (status < 0)
        ckpt__recipe_free(w.recipe);
    else
        *out = w.recipe;
    return status;
}
