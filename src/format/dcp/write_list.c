/* format/dcp/write_list.c - the list: a pickle of torch/distributed/checkpoint/metadata.py's Metadata, in protocol 4 as torch writes it.
 * Its readers need state_dict_metadata and storage_data; planner_data has the paths, by which dcp_to_torch_save nests. */
#include "format/dcp/write.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 1000 }; /* entries for each SETITEMS, as Python's pickler has it */

/* What stands in the memo: it is told by its number there. */
typedef struct pickler {
    ckpt__buf *out;
    ckpt__hash *texts;  /* owned: "\0" and a text, "\1" and a class -> number in the memo */
    ckpt__arena *arena; /* owned: the keys of that */
    ckpt__buf key;      /* owned: the one that is looked for */
    size_t memo;
    bool failed;
} pickler;

static void put_le(pickler *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        ckpt__buf_char(p->out, (char)(unsigned char)(v >> 8 * i));
}

static void put_op(pickler *p, char op)
{
    ckpt__buf_char(p->out, op);
}

static void put_get(pickler *p, size_t number)
{
    put_op(p, number < 256 ? 'h' : 'j');
    put_le(p, number, number < 256 ? 1 : 4);
}

/* It is at the stack's top, and gets a number. */
static size_t memoize(pickler *p)
{
    put_op(p, '\x94');
    p->failed |= p->memo >= UINT32_MAX;
    return p->memo++;
}

static void put_int(pickler *p, int64_t v)
{
    if (v >= 0 && v < 256) {
        put_op(p, 'K');
        put_le(p, (uint64_t)v, 1);
    } else if (v >= 0 && v < 65536) {
        put_op(p, 'M');
        put_le(p, (uint64_t)v, 2);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        put_op(p, 'J');
        put_le(p, (uint64_t)v, 4);
    } else {
        put_op(p, '\x8a');
        put_le(p, 8, 1);
        put_le(p, (uint64_t)v, 8);
    }
}

static void put_text_bytes(pickler *p, ckpt_str text)
{
    put_op(p, text.size < 256 ? '\x8c' : 'X');
    put_le(p, text.size, text.size < 256 ? 1 : 4);
    ckpt__buf_add(p->out, text.data, text.size);
}

/* Is it in the memo? Then it was fetched. Else the caller makes it now. */
static bool fetch(pickler *p, char kind, const char *data, size_t n)
{
    size_t number = 0;
    p->key.size = 0;
    ckpt__buf_char(&p->key, kind);
    ckpt__buf_add(&p->key, data, n);
    p->failed |= p->key.failed;
    if (p->failed || !ckpt__hash_get(p->texts, p->key.data, p->key.size, &number))
        return p->failed;
    put_get(p, number);
    return true;
}

static void keep(pickler *p, char kind, const char *data, size_t n)
{
    char *key = ckpt__arena_alloc(p->arena, n + 1);
    if (!key) {
        p->failed = true;
        return;
    }
    key[0] = kind;
    memcpy(key + 1, data, n);
    p->failed |= ckpt__hash_put(p->texts, key, n + 1, memoize(p), NULL) < 0;
}

static void put_text(pickler *p, ckpt_str text)
{
    if (fetch(p, 0, text.data, text.size))
        return;
    put_text_bytes(p, text);
    keep(p, 0, text.data, text.size);
}

static void put_name(pickler *p, const char *text)
{
    put_text(p, ckpt__s(text));
}

/* "module\nname" */
static void put_class(pickler *p, const char *module, const char *name)
{
    char key[160];
    int n = snprintf(key, sizeof key, "%s\n%s", module, name);
    if (fetch(p, 1, key, (size_t)n))
        return;
    put_name(p, module);
    put_name(p, name);
    put_op(p, '\x93');
    keep(p, 1, key, (size_t)n);
}

static const char metadata[] = "torch.distributed.checkpoint.metadata",
                  storage[] = "torch.distributed.checkpoint.filesystem";

/* cls.__new__(cls), and its attributes behind it: BUILD is the caller's. */
static void begin_object(pickler *p, const char *module, const char *name)
{
    put_class(p, module, name);
    put_op(p, ')');
    put_op(p, '\x81');
    put_op(p, '}');
    put_op(p, '(');
}

static void end_object(pickler *p)
{
    put_op(p, 'u');
    put_op(p, 'b');
}

static void put_tuple(pickler *p, const int64_t *values, size_t n)
{
    if (n > 3)
        put_op(p, '(');
    for (size_t i = 0; i < n; i++)
        put_int(p, values[i]);
    put_op(p, n == 0 ? ')' : n == 1 ? '\x85' : n == 2 ? '\x86' : n == 3 ? '\x87' : 't');
}

static void put_size(pickler *p, const int64_t *values, size_t n)
{
    put_class(p, "torch", "Size");
    put_tuple(p, values, n);
    put_op(p, '\x85');
    put_op(p, 'R');
}

/* ---- its parts */

/* Box k of an item. zeros: as many as a tensor has dimensions. */
static const int64_t *lo_of(const ckpt__dcp_put *item, size_t k, const int64_t *zeros)
{
    return item->cut ? ckpt__dcp_box_lo(item->cut, k) : zeros;
}

static bool is_empty(const ckpt__dcp_put *item, size_t k)
{
    return item->cut && ckpt__dcp_box_is_empty(item->cut, k);
}

/* dtype, layout, requires_grad, memory format, pinned */
static void put_properties(pickler *p, ckpt_dtype dtype)
{
    put_class(p, metadata, "TensorProperties");
    put_op(p, ')');
    put_op(p, '\x81');
    put_op(p, '(');
    put_class(p, "torch", ckpt_dtype_name(dtype));
    put_class(p, "torch.serialization", "_get_layout");
    put_name(p, "torch.strided");
    put_op(p, '\x85');
    put_op(p, 'R');
    put_op(p, '\x89');
    put_class(p, metadata, "_MEM_FORMAT_ENCODING");
    put_int(p, 0);
    put_op(p, '\x85');
    put_op(p, 'R');
    put_op(p, '\x89');
    put_op(p, 't');
    put_op(p, 'b');
}

static void put_tensor(pickler *p, const ckpt__dcp_put *item, const ckpt_tensor_info *t, const int64_t *zeros)
{
    begin_object(p, metadata, "TensorStorageMetadata");
    put_name(p, "properties");
    put_properties(p, t->dtype);
    put_name(p, "size");
    put_size(p, t->shape, t->ndim);
    put_name(p, "chunks");
    put_op(p, ']');
    put_op(p, '(');
    for (size_t k = 0; k < item->count; k++) {
        if (is_empty(item, k))
            continue;
        begin_object(p, metadata, "ChunkStorageMetadata");
        put_name(p, "offsets");
        put_size(p, lo_of(item, k, zeros), t->ndim);
        put_name(p, "sizes");
        put_size(p, item->cut ? ckpt__dcp_box_size(item->cut, k) : t->shape, t->ndim);
        end_object(p);
    }
    put_op(p, 'e');
    end_object(p);
}

static void put_item(pickler *p, const ckpt__dcp_puts *puts, const ckpt__dcp_put *item, const int64_t *zeros)
{
    put_text(p, item->key);
    if (item->value->kind == CKPT_V_TENSOR) {
        put_tensor(p, item, &puts->index->tensors[item->value->tensor].info, zeros);
    } else {
        put_class(p, metadata, "BytesStorageMetadata");
        put_op(p, ')');
        put_op(p, '\x81');
    }
}

static void put_path(pickler *p, const ckpt__dcp_put *item)
{
    put_text(p, item->key);
    if (item->path_count > 3)
        put_op(p, '(');
    for (size_t i = 0; i < item->path_count; i++) {
        if (item->path[i].text.data)
            put_text(p, item->path[i].text);
        else
            put_int(p, item->path[i].number);
    }
    const size_t n = item->path_count;
    put_op(p, n == 0 ? ')' : n == 1 ? '\x85' : n == 2 ? '\x86' : n == 3 ? '\x87' : 't');
}

/* number: of the box among those that have a record. */
static void put_record(pickler *p, const ckpt__dcp_puts *puts, const ckpt__dcp_put *item, size_t k, size_t number,
                       const int64_t *zeros)
{
    const ckpt__dcp_place *at = &puts->places[item->first + k];
    const bool tensor = item->value->kind == CKPT_V_TENSOR;
    char file[32];
    snprintf(file, sizeof file, "__%u_0.distcp", (unsigned)at->file);
    begin_object(p, metadata, "MetadataIndex");
    put_name(p, "fqn");
    put_text(p, item->key);
    put_name(p, "offset");
    if (tensor)
        put_size(p, lo_of(item, k, zeros), puts->index->tensors[item->value->tensor].info.ndim);
    else
        put_op(p, 'N');
    put_name(p, "index");
    if (tensor)
        put_int(p, (int64_t)number);
    else
        put_op(p, 'N');
    end_object(p);
    begin_object(p, storage, "_StorageInfo");
    put_name(p, "relative_path");
    put_name(p, file);
    put_name(p, "offset");
    put_int(p, (int64_t)at->offset);
    put_name(p, "length");
    put_int(p, (int64_t)at->length);
    end_object(p);
}

/* A dict whose entries come in batches. */
static void begin_dict(pickler *p, const char *name)
{
    put_name(p, name);
    put_op(p, '}');
}

static void next_entry(pickler *p, size_t *entries)
{
    if (*entries % BATCH == 0) {
        if (*entries)
            put_op(p, 'u');
        put_op(p, '(');
    }
    ++*entries;
}

static void end_dict(pickler *p, size_t entries)
{
    if (entries)
        put_op(p, 'u');
}

static void put_all(pickler *p, const ckpt__dcp_puts *puts, const int64_t *zeros)
{
    size_t items = 0, paths = 0, records = 0;
    put_op(p, '\x80');
    put_op(p, 4);
    begin_object(p, metadata, "Metadata");
    begin_dict(p, "state_dict_metadata");
    for (size_t i = 0; i < puts->count; i++) {
        next_entry(p, &items);
        put_item(p, puts, &puts->items[i], zeros);
    }
    end_dict(p, items);
    begin_dict(p, "planner_data");
    for (size_t i = 0; i < puts->count; i++) {
        next_entry(p, &paths);
        put_path(p, &puts->items[i]);
    }
    end_dict(p, paths);
    begin_dict(p, "storage_data");
    for (size_t i = 0; i < puts->count; i++)
        for (size_t k = 0, number = 0; k < puts->items[i].count; k++) {
            if (is_empty(&puts->items[i], k))
                continue;
            next_entry(p, &records);
            put_record(p, puts, &puts->items[i], k, number++, zeros);
        }
    end_dict(p, records);
    put_name(p, "storage_meta");
    put_op(p, 'N');
    end_object(p);
    put_op(p, '.');
}

ckpt_status ckpt__dcp_put_list(const ckpt__dcp_puts *puts, ckpt__buf *out, ckpt_error *err)
{
    size_t dimensions = 1;
    for (size_t i = 0; i < puts->count; i++) {
        const ckpt_value *v = puts->items[i].value;
        if (v->kind == CKPT_V_TENSOR && puts->index->tensors[v->tensor].info.ndim > dimensions)
            dimensions = puts->index->tensors[v->tensor].info.ndim;
    }
    int64_t *zeros = calloc(dimensions, sizeof *zeros);
    pickler p = {.out = out, .texts = ckpt__hash_new(256), .arena = ckpt__arena_new(0)};
    p.failed = !zeros || !p.texts || !p.arena;
    if (!p.failed)
        put_all(&p, puts, zeros);
    bool failed = p.failed || out->failed;
    free(zeros);
    ckpt__hash_free(p.texts);
    ckpt__arena_free(p.arena);
    ckpt__buf_free(&p.key);
    return failed ? ckpt__fail_memory(err, "the list of a distributed checkpoint", out->size) : CKPT_OK;
}
