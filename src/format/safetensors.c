/* format/safetensors.c - plain safetensors: header parser and reader. Rules: safetensors/src/tensor.rs and README. */
#include "format/safetensors.h"

#include <stdlib.h>
#include "format/safetensors_quick.h"

enum { HEADER_DEPTH = 128 }; /* serde_json stops at 128 levels */

void ckpt__st_free(ckpt__st_header *h)
{
    ckpt__arena_free(h->arena);
    free(h->bytes);
    free(h->entries);
    free(h->metadata);
    memset(h, 0, sizeof *h);
}

void ckpt__st_forget_text(ckpt__st_header *h)
{
    free(h->bytes);
    h->bytes = NULL;
}

static uint64_t length_of(const unsigned char *p)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    return n;
}

ckpt_status ckpt__st_load(const ckpt__source *source, uint32_t file, ckpt__st_header *h, ckpt_error *err)
{
    char label[256];
    uint64_t have = source->files[file].size, n;
    unsigned char head[9];
    ckpt__source_label(source, file, label, sizeof label);
    if (have < sizeof head)
        return ckpt__fail(err, CKPT_E_FORMAT, label,
                          "%llu bytes are too few for a safetensors header (8 length bytes and \"{}\")",
                          (unsigned long long)have);
    ckpt_status status = ckpt__source_read(source, file, 0, head, sizeof head, err);
    if (status < 0)
        return status;
    n = length_of(head);
    if (n > CKPT__ST_HEADER_MAX)
        return ckpt__fail(
            err, CKPT_E_FORMAT, label,
            "the first 8 bytes give a header of %llu bytes, safetensors allows %u: not safetensors, or damaged there",
            (unsigned long long)n, CKPT__ST_HEADER_MAX);
    if (n > have - 8)
        return ckpt__fail(err, CKPT_E_DAMAGED, label, "truncated: its header ends at byte %llu, the file at %llu",
                          (unsigned long long)n + 8, (unsigned long long)have);
    if (n < 2 || head[8] != '{')
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a safetensors header must begin with '{'; here it is byte 0x%02x",
                          head[8]);
    h->size = n + 8;
    h->bytes = malloc((size_t)h->size);
    if (!h->bytes)
        return ckpt__fail_memory(err, "header", h->size);
    return ckpt__source_read(source, file, 0, h->bytes, (size_t)h->size, err);
}

/* ---- one tensor */

typedef struct parser {
    ckpt__json j;
    ckpt__st_header *h;
    const char *label;
    ckpt__arena *names;
    ckpt__hash *seen;
    ckpt__buf key, text;
    int64_t *dims;
    size_t dim_capacity;
    ckpt__st_quick quick;
    uint64_t unknown; /* keys in tensors that the schema does not know */
    char first_unknown[96];
} parser;

static const char *shown(const ckpt__st_entry *e, char *buf, size_t size)
{
    return ckpt__escape(buf, size, e->name.data, e->name.size);
}

static ckpt_status parse_dtype(parser *p, ckpt__st_entry *e, ckpt_error *err)
{
    ckpt_str text;
    char name[160], found[64];
    ckpt_status status = ckpt__json_string(&p->j, &p->text, &text, err);
    if (status < 0)
        return status;
    e->dtype = ckpt__dtype_from_safetensors(text.data, text.size);
    if (e->dtype == CKPT_DTYPE_NONE)
        return ckpt__fail(err, CKPT_E_FORMAT, p->label,
                          "tensor '%s' has the dtype \"%s\", which safetensors does not define",
                          shown(e, name, sizeof name), ckpt__escape(found, sizeof found, text.data, text.size));
    return CKPT_OK;
}

/* An array of integers >= 0 into p->dims. */
static ckpt_status parse_sizes(parser *p, size_t limit, size_t *count, ckpt_error *err)
{
    ckpt_status status = ckpt__json_expect(&p->j, CKPT__JSON_ARRAY, err);
    size_t n = 0;
    while (status == CKPT_OK) {
        ckpt__json_event event = ckpt__json_next(&p->j, err);
        if (event == CKPT__JSON_ERROR)
            return p->j.status;
        if (event == CKPT__JSON_ARRAY_END)
            break;
        if (n == limit)
            return ckpt__json_wrong(&p->j, err, "an array of more than %zu numbers", limit);
        if (!ckpt__grow(&p->dims, &p->dim_capacity, n + 1, sizeof *p->dims))
            return ckpt__fail_memory(err, "shape", (n + 1) * sizeof *p->dims);
        status = ckpt__json_this_int(&p->j, &p->dims[n], err);
        if (status == CKPT_OK &&
            (p->dims[n++] < 0 || p->j.text[p->j.start] == '-')) /* -0 too: the reference takes no sign */
            status = ckpt__json_wrong(&p->j, err, "a negative number in a shape or in data_offsets");
    }
    *count = n;
    return status;
}

static ckpt_status set_shape(const parser *p, ckpt__st_entry *e, const int64_t *sizes, size_t n, ckpt_error *err)
{
    int64_t *shape = ckpt__arena_array(p->h->arena, n + 1, sizeof *shape);
    if (!shape)
        return ckpt__fail_memory(err, "shape", n * sizeof *shape);
    if (n)
        memcpy(shape, sizes, n * sizeof *shape);
    e->shape = shape;
    e->ndim = (uint32_t)n;
    return CKPT_OK;
}

static ckpt_status parse_shape(parser *p, ckpt__st_entry *e, ckpt_error *err)
{
    size_t n = 0;
    ckpt_status status = parse_sizes(p, CKPT__NDIM_MAX, &n, err);
    return status < 0 ? status : set_shape(p, e, p->dims, n, err);
}

static ckpt_status parse_offsets(parser *p, ckpt__st_entry *e, ckpt_error *err)
{
    size_t n = 0;
    ckpt_status status = parse_sizes(p, 2, &n, err);
    if (status < 0)
        return status;
    if (n != 2)
        return ckpt__json_wrong(&p->j, err, "data_offsets must be two numbers, found %zu", n);
    e->begin = (uint64_t)p->dims[0];
    e->end = (uint64_t)p->dims[1];
    return CKPT_OK;
}

/* The published schema forbids further keys, the reference ignores them: so do we, and say it once. */
static ckpt_status unknown_key(parser *p, const ckpt__st_entry *e, ckpt_str key, ckpt_error *err)
{
    char name[48], text[40];
    if (p->unknown++ == 0) {
        ckpt__buf b = {0};
        ckpt__buf_printf(&b, "'%s' in tensor '%s'", ckpt__escape(text, sizeof text, key.data, key.size),
                         shown(e, name, sizeof name));
        if (b.data)
            memcpy(p->first_unknown, b.data, b.size < sizeof p->first_unknown ? b.size : sizeof p->first_unknown - 1);
        ckpt__buf_free(&b);
    }
    return ckpt__json_skip(&p->j, NULL, err);
}

/* Does the shape come to what the offsets span? */
static ckpt_status check_size(const parser *p, const ckpt__st_entry *e, ckpt_error *err)
{
    char name[160];
    uint64_t numel = 0, bits = 0;
    unsigned width = ckpt_dtype_bits(e->dtype);
    bool fits = ckpt__numel(e->shape, e->ndim, &numel) && ckpt__mul(numel, width, &bits);
    if (fits && bits % 8 == 0 && e->end >= e->begin && bits / 8 == e->end - e->begin)
        return CKPT_OK;
    shown(e, name, sizeof name);
    if (e->end < e->begin)
        return ckpt__fail(err, CKPT_E_FORMAT, p->label, "tensor '%s' ends at byte %llu, before it begins at %llu", name,
                          (unsigned long long)e->end, (unsigned long long)e->begin);
    if (!fits)
        return ckpt__fail(err, CKPT_E_FORMAT, p->label, "the size of tensor '%s' overflows 64 bits", name);
    if (bits % 8)
        return ckpt__fail(err, CKPT_E_FORMAT, p->label,
                          "tensor '%s' has %llu elements of %u bits: not a whole number of bytes", name,
                          (unsigned long long)numel, width);
    return ckpt__fail(err, CKPT_E_FORMAT, p->label,
                      "tensor '%s': dtype and shape need %llu bytes, its data_offsets span %llu", name,
                      (unsigned long long)(bits / 8), (unsigned long long)(e->end - e->begin));
}

/* Of a tensor that was read quickly. */
static ckpt_status take_tensor(parser *p, ckpt__st_entry *e, ckpt_error *err)
{
    const ckpt__st_quick *q = &p->quick;
    e->dtype = q->dtype;
    e->begin = (uint64_t)q->offsets[0];
    e->end = (uint64_t)q->offsets[1];
    ckpt_status status = set_shape(p, e, q->shape, q->ndim, err);
    return status < 0 ? status : check_size(p, e, err);
}

static ckpt_status parse_tensor(parser *p, ckpt__st_entry *e, ckpt_error *err)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    ckpt_status (*const parse[])(parser *, ckpt__st_entry *, ckpt_error *) = {parse_dtype, parse_shape, parse_offsets};
    char name[160];
    unsigned seen = 0;
    ckpt_str key;
    size_t quick = ckpt__st_read_quickly(p->j.text + p->j.pos, p->j.size - p->j.pos, &p->quick);
    if (quick) {
        ckpt__json_took(&p->j, quick);
        return take_tensor(p, e, err);
    }
    int more = ckpt__json_expect(&p->j, CKPT__JSON_OBJECT, err);
    while (more >= 0 && (more = ckpt__json_member(&p->j, &p->key, &key, err)) > 0) {
        unsigned i = 0;
        while (i < 3 && !ckpt__str_is(key, keys[i]))
            i++;
        if (seen >> i & 1 && i < 3)
            return ckpt__fail(err, CKPT_E_FORMAT, p->label, "tensor '%s' has the key \"%s\" twice",
                              shown(e, name, sizeof name), keys[i]);
        seen |= 1u << i;
        more = i < 3 ? parse[i](p, e, err) : unknown_key(p, e, key, err);
    }
    if (more < 0)
        return (ckpt_status)more;
    for (unsigned i = 0; i < 3; i++)
        if (!(seen >> i & 1))
            return ckpt__fail(err, CKPT_E_FORMAT, p->label, "tensor '%s' has no \"%s\"", shown(e, name, sizeof name),
                              keys[i]);
    return check_size(p, e, err);
}

/* ---- the header */

static ckpt_status twice(const parser *p, const char *where, ckpt_str key, ckpt_error *err)
{
    char text[160];
    return ckpt__fail(err, CKPT_E_FORMAT, p->label, "%s '%s' occurs twice in the header", where,
                      ckpt__escape(text, sizeof text, key.data, key.size));
}

/* Takes the key for its own; twice is an error that names it. */
static ckpt_status unique(parser *p, ckpt__hash *set, ckpt_str key, const char *where, ckpt_error *err)
{
    int put = ckpt__hash_put(set, key.data, key.size, 0, NULL);
    if (put < 0)
        return ckpt__fail_memory(err, "names", 0);
    return put ? CKPT_OK : twice(p, where, key, err);
}

/* The names of all tensors, which are unique. */
static ckpt_status check_names(parser *p, ckpt_error *err)
{
    const ckpt__st_header *h = p->h;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0, next = 0; status == CKPT_OK && i < h->count; i++) {
        for (; next < h->count && next <= i + CKPT__HASH_AHEAD; next++)
            ckpt__hash_ahead(p->seen, h->entries[next].name.data, h->entries[next].name.size);
        status = unique(p, p->seen, h->entries[i].name, "the name", err);
    }
    return status;
}

static ckpt_status parse_metadata(parser *p, ckpt_error *err)
{
    ckpt__st_header *h = p->h;
    ckpt__hash *set = ckpt__hash_new(8);
    ckpt_str key, value;
    int more = set ? ckpt__json_expect(&p->j, CKPT__JSON_OBJECT, err) : ckpt__fail_memory(err, "metadata", 0);
    h->has_metadata = true;
    while (more >= 0 && (more = ckpt__json_member(&p->j, &p->key, &key, err)) > 0) {
        key = ckpt__arena_str(h->arena, key.data, key.size);
        more = ckpt__json_expect(&p->j, CKPT__JSON_STRING, err);
        if (more < 0) {
            ckpt__error_prefix(err, "__metadata__ holds strings only");
            break;
        }
        value = ckpt__json_text(&p->j, &p->text);
        if (value.data)
            value = ckpt__arena_str(h->arena, value.data, value.size);
        if (!key.data || !value.data ||
            !ckpt__grow(&h->metadata, &h->metadata_capacity, h->metadata_count + 1, sizeof *h->metadata)) {
            more = ckpt__fail_memory(err, "metadata", value.size);
            break;
        }
        h->metadata[h->metadata_count++] = (ckpt__st_metadata){key, value};
        more = unique(p, set, key, "the __metadata__ key", err);
    }
    ckpt__hash_free(set);
    return more < 0 ? (ckpt_status)more : CKPT_OK;
}

static ckpt_status parse_header(parser *p, ckpt_error *err)
{
    ckpt__st_header *h = p->h;
    ckpt_str key;
    int more = ckpt__json_expect(&p->j, CKPT__JSON_OBJECT, err);
    while (more >= 0 && (more = ckpt__json_member(&p->j, &p->key, &key, err)) > 0) {
        ckpt_str name = ckpt__arena_str(p->names, key.data, key.size);
        if (!name.data || !ckpt__grow(&h->entries, &h->capacity, h->count + 1, sizeof *h->entries))
            return ckpt__fail_memory(err, "header", key.size);
        if (ckpt__str_is(name, "__metadata__")) {
            more = h->has_metadata ? twice(p, "the name", name, err) : parse_metadata(p, err);
            continue;
        }
        ckpt__st_entry *e = &h->entries[h->count];
        *e = (ckpt__st_entry){.name = name, .position = h->count};
        h->count++;
        more = parse_tensor(p, e, err);
    }
    if (more >= 0)
        more = ckpt__json_expect(&p->j, CKPT__JSON_END, err);
    return more < 0 ? (ckpt_status)more : check_names(p, err);
}

static int by_offsets(const void *pa, const void *pb)
{
    const ckpt__st_entry *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Every byte of the data belongs to one tensor, and the file ends with the last. */
static ckpt_status check_layout(ckpt__st_header *h, uint64_t file_size, const char *label, ckpt_error *err)
{
    char name[160], before[160];
    uint64_t at = 0, end;
    bool sorted = true;
    for (size_t i = 1; i < h->count && sorted; i++)
        sorted = by_offsets(&h->entries[i - 1], &h->entries[i]) < 0;
    if (!sorted)
        qsort(h->entries, h->count, sizeof *h->entries, by_offsets);
    for (size_t i = 0; i < h->count; i++) {
        const ckpt__st_entry *e = &h->entries[i];
        if (e->begin != at)
            return ckpt__fail(
                err, CKPT_E_FORMAT, label,
                "tensor '%s' begins at byte %llu of the data, but what is before it%s%s%s ends at %llu: %s",
                shown(e, name, sizeof name), (unsigned long long)e->begin, i ? " ('" : "",
                i ? shown(e - 1, before, sizeof before) : "", i ? "')" : "", (unsigned long long)at,
                e->begin < at ? "they overlap" : "a hole that belongs to no tensor");
        at = e->end;
    }
    if (!ckpt__add(h->size, at, &end))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "the offsets of its tensors overflow 64 bits");
    h->file_size = file_size;
    if (h->salvage)
        return CKPT_OK;
    if (end > file_size)
        return ckpt__fail(err, CKPT_E_DAMAGED, label,
                          "truncated: the header describes %llu bytes, the file has %llu: %llu are missing",
                          (unsigned long long)end, (unsigned long long)file_size,
                          (unsigned long long)(end - file_size));
    if (end < file_size)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, label,
            "the header describes %llu bytes, the file has %llu: %llu bytes at its end belong to no tensor",
            (unsigned long long)end, (unsigned long long)file_size, (unsigned long long)(file_size - end));
    return CKPT_OK;
}

ckpt_status ckpt__st_parse(ckpt__st_header *h, uint64_t file_size, const char *label, ckpt__arena *names,
                           ckpt_report *findings, ckpt_error *err)
{
    parser p = {.h = h, .label = label, .names = names, .seen = ckpt__hash_new((size_t)(h->size / 96))};
    ckpt_status status;
    h->arena = ckpt__arena_new(0);
    ckpt__json_start(&p.j, h->bytes + 8, (size_t)h->size - 8, HEADER_DEPTH, label);
    status = h->arena && p.seen ? parse_header(&p, err) : ckpt__fail_memory(err, "header", h->size);
    if (status == CKPT_OK)
        status = check_layout(h, file_size, label, err);
    if (status == CKPT_OK && p.unknown &&
        !ckpt__report_add(findings, CKPT_SEVERITY_NOTE, "unknown-key", NULL, NULL,
                          "%llu keys that safetensors does not define are ignored, the first: %s",
                          (unsigned long long)p.unknown, p.first_unknown))
        status = ckpt__fail_memory(err, "findings", 0);
    ckpt__hash_free(p.seen);
    ckpt__buf_free(&p.key);
    ckpt__buf_free(&p.text);
    free(p.dims);
    return status;
}

const ckpt__st_metadata *ckpt__st_find(const ckpt__st_header *h, const char *key)
{
    for (size_t i = 0; i < h->metadata_count; i++)
        if (ckpt__str_is(h->metadata[i].key, key))
            return &h->metadata[i];
    return NULL;
}

void ckpt__st_blame(ckpt_error *err, const char *label)
{
    char object[sizeof err->object];
    if (!err || !err->object[0])
        return;
    memcpy(object, err->object, sizeof object);
    ckpt__error_object(err, label);
    if (strcmp(object, err->object) != 0)
        ckpt__error_prefix(err, "%s", object);
}

/* ---- the format */

ckpt_status ckpt__st_add_storage(ckpt__index *index, const ckpt__st_header *h, const ckpt__st_entry *e, uint32_t file,
                                 ckpt_dtype dtype, size_t *storage, ckpt_error *err)
{
    ckpt__storage *s = ckpt__index_add_storage(index);
    if (!s)
        return ckpt__fail_memory(err, "storages", index->storage_count * sizeof *s);
    s->extent.file = file;
    s->extent.offset = h->size + e->begin;
    s->extent.length = s->extent.size = e->end - e->begin;
    uint64_t there = h->file_size > s->extent.offset ? h->file_size - s->extent.offset : 0;
    if (h->salvage && there < s->extent.size) {
        s->extent.length = there;
        s->extent.missing = true;
    }
    s->name = e->name;
    s->unit = ckpt__dtype_row_of(dtype)->unit;
    *storage = index->storage_count - 1;
    return CKPT_OK;
}

ckpt_status ckpt__st_note_salvaged(const ckpt__st_header *h, const ckpt__index *x, size_t from, const char *label,
                                   ckpt_error *err)
{
    size_t missing = 0;
    uint64_t end = h->size + (h->count ? h->entries[h->count - 1].end : 0);
    for (size_t i = from; i < x->storage_count; i++)
        missing += x->storages[i].extent.missing;
    if (!h->salvage || end == h->file_size)
        return CKPT_OK;
    return ckpt__report_add(x->findings, CKPT_SEVERITY_WARNING, "salvaged", NULL, NULL,
                            "%s has %llu bytes where its header describes %llu: %zu of its %zu tensors are not whole",
                            label, (unsigned long long)h->file_size, (unsigned long long)end, missing,
                            x->storage_count - from)
               ? CKPT_OK
               : ckpt__fail_memory(err, "findings", 0);
}

/* {"__metadata__": {key: string, ...}}, where the file has it. */
static ckpt_status make_root(ckpt__index *x, const ckpt__st_header *h, ckpt_error *err)
{
    ckpt_entry top;
    ckpt_entry *entries = ckpt__arena_array(x->arena, h->metadata_count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < h->metadata_count; i++) {
        const ckpt__st_metadata *m = &h->metadata[i];
        entries[i].key = ckpt__value_str(x->arena, m->key.data, m->key.size);
        entries[i].value = ckpt__value_str(x->arena, m->value.data, m->value.size);
        if (!entries[i].key || !entries[i].value)
            entries = NULL;
    }
    top.key = ckpt__value_str(x->arena, "__metadata__", 12);
    top.value = entries ? ckpt__value_dict(x->arena, entries, h->metadata_count) : NULL;
    x->root = top.key && top.value ? ckpt__value_dict(x->arena, &top, 1) : NULL;
    return x->root ? CKPT_OK : ckpt__fail_memory(err, "metadata", h->size);
}

static ckpt_status add_tensor(ckpt__index *x, const ckpt__st_header *h, const ckpt__st_entry *e, uint32_t file,
                              ckpt_error *err)
{
    size_t storage;
    ckpt_status status = ckpt__st_add_storage(x, h, e, file, e->dtype, &storage, err);
    if (status < 0)
        return status;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return ckpt__fail_memory(err, "tensors", x->tensor_count * sizeof *t);
    t->info.name = e->name;
    t->info.dtype = e->dtype;
    t->info.ndim = e->ndim;
    return ckpt__index_set_view(x, x->tensor_count - 1, storage, e->shape, NULL, 0, err);
}

static ckpt_status safetensors_read(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    ckpt__source *source = request->source;
    uint32_t file = request->file;
    char label[256];
    ckpt__st_header h = {0};
    if (file == CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, source->path, "a directory; safetensors is a file");
    ckpt__source_label(source, file, label, sizeof label);
    h.salvage = request->salvage;
    ckpt__index *x = request->arena ? ckpt__index_new_part(request->arena)
                                    : ckpt__index_new(ckpt__known_limit(source->files[file].size, source->directory));
    ckpt_status status = x ? ckpt__st_load(source, file, &h, err) : ckpt__fail_memory(err, "index", 0);
    if (status == CKPT_OK)
        status = ckpt__st_parse(&h, source->files[file].size, label, x->arena, x->findings, err);
    for (size_t i = 0; status == CKPT_OK && i < h.count; i++)
        status = add_tensor(x, &h, &h.entries[i], file, err);
    if (status == CKPT_OK && h.has_metadata)
        status = make_root(x, &h, err);
    if (status == CKPT_OK)
        status = ckpt__st_note_salvaged(&h, x, 0, label, err);
    if (status == CKPT_OK)
        status = ckpt__index_finish(x, err);
    ckpt__st_free(&h);
    if (status < 0) {
        ckpt__st_blame(err, label);
        status = ckpt__index_refused(x, status, label, err);
        ckpt__index_free(x);
        return status;
    }
    x->format = "safetensors";
    *out = x;
    return CKPT_OK;
}

/* There is no magic: a plausible length and an opening brace are all. A wrong length still bids, lower, so that the
 * message is about safetensors and not "unknown". */
static int safetensors_bid(const ckpt__probe *probe)
{
    if (probe->directory || probe->head_size < 9)
        return 0;
    uint64_t n = length_of(probe->head);
    bool fits = n >= 2 && n <= CKPT__ST_HEADER_MAX && n <= probe->file_size - 8;
    if (probe->head[8] == '{')
        return fits ? 80 : 40;
    return fits && memchr("[\" \t\r\n", probe->head[8], 6) && probe->head_size > 9 && probe->head[9] >= 0x09 ? 10 : 0;
}

const ckpt__format ckpt__format_safetensors = {
    .name = "safetensors",
    .suffix = ".safetensors",
    .bid = safetensors_bid,
    .read = safetensors_read,
    .write = ckpt__safetensors_write,
    .family = CKPT__FAMILY_SAFETENSORS,
    .python_load = "safetensors.torch.load_file",
    .weights_alone = true,
    .logical_float4 = true,
};
