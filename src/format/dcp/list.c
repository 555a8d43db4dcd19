/* format/dcp/list.c - a pickled list -> items and chunks. Its pickle comes from strangers: nothing of it is built or called. Classes are
 * told by their last name, for their modules changed between versions and other programs subclass them; a global that no writer of
 * lists needs is refused by name.
 *
 * torch/distributed/checkpoint/metadata.py and filesystem.py, from 2.0 to 2.15:
 *     Metadata {state_dict_metadata: {key: TensorStorageMetadata | BytesStorageMetadata}, planner_data: {key: path} | None,
 *               storage_data: {MetadataIndex: _StorageInfo}}            + storage_meta, version
 *     TensorStorageMetadata {properties: TensorProperties, size, chunks: [ChunkStorageMetadata {offsets, sizes}]}
 *     TensorProperties: its state is (dtype, layout, requires_grad, memory format, pin_memory), since 2.15 also strides; or a dict of these
 *     MetadataIndex {fqn, offset | None}                                + index, which is no part of its identity
 *     _StorageInfo {relative_path, offset, length}                      + transform_descriptors
 *
 * megatron/core/dist_checkpointing/strategies/torch.py adds two attributes to Metadata (or to MCoreMetadata, a class of it):
 *     all_local_plans [MCoreSavePlan {items: [WriteItem ...]}]          what each rank was told to write; it is not looked at
 *     mcore_data {key: {'nd_reformulated_orig_global_shape': sizes}}    the whole shape of a tensor that the list has in fragments */
#include "format/dcp/dcp.h"
#include "format/torch/torch.h"

/* One list while it is read. */
typedef struct parser {
    ckpt__dcp *d;
    const char *label;
    ckpt__arena *nodes; /* owned */
    ckpt__pickle pickle;
    ckpt__hash *records; /* owned: a chunk's key -> its _StorageInfo */
    ckpt__buf key;
    ckpt_error *err;
} parser;

static ckpt_status wrong(const parser *p, const ckpt__pickle_node *node, const char *what)
{
    return ckpt__fail(p->err, CKPT_E_FORMAT, p->label,
                      "byte %llu: %s; torch.distributed.checkpoint writes no such list",
                      (unsigned long long)(node ? node->position : 0), what);
}

static ckpt_status no_memory(const parser *p)
{
    return ckpt__dcp_no_memory(p->d, p->err);
}

/* ---- classes */

ckpt_str ckpt__dcp_last_name(ckpt_str name)
{
    const char *dot = name.size ? memrchr(name.data, '.', name.size) : NULL;
    return dot ? (ckpt_str){dot + 1, name.size - (size_t)(dot + 1 - name.data)} : name;
}

static bool is_allowed(const ckpt__pickle_global *g)
{
    static const char *const names[] = {
        "Metadata",
        "TensorStorageMetadata",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "TensorProperties",
        "StorageMeta",
        "MetadataIndex",
        "_StorageInfo",
        "_MEM_FORMAT_ENCODING",
        "MEM_FORMAT_ENCODING",
        "Size",
        "_get_layout",
        "PosixPath",
        "PurePosixPath",
        "WindowsPath",
        "PureWindowsPath",
        "OrderedDict",
        /* the plans of ranks */
        "SavePlan",
        "MCoreSavePlan",
        "MCoreMetadata",
        "WriteItem",
        "WriteItemType",
        "TensorWriteData",
        "BytesIOWriteData",
    };
    ckpt__pickle_names own = {g->module, g->name};
    ckpt__pickle_node node = {.kind = CKPT__P_GLOBAL, .u.global = &own};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ckpt__str_is(ckpt__dcp_last_name(g->name), names[i]))
            return true;
    return ckpt__torch_dtype(&node) != CKPT_DTYPE_NONE;
}

static ckpt_status check_globals(const parser *p)
{
    char module[120], name[120];
    for (size_t i = 0; i < p->pickle.global_count; i++) {
        const ckpt__pickle_global *g = &p->pickle.globals[i];
        if (!is_allowed(g))
            return ckpt__fail(
                p->err, CKPT_E_UNSUPPORTED, p->label,
                "its pickle names %s.%s at byte %llu, which no list of torch.distributed.checkpoint needs: "
                "it is not read (ckpt-inspect scan says what loading it would run)",
                ckpt__escape(module, sizeof module, g->module.data, g->module.size),
                ckpt__escape(name, sizeof name, g->name.data, g->name.size), (unsigned long long)g->position);
    }
    return CKPT_OK;
}

static bool is_a(const ckpt__pickle_node *node, const char *class_name)
{
    const ckpt__pickle_node *callable = node && node->kind == CKPT__P_OBJECT ? node->u.object->callable : NULL;
    return callable && callable->kind == CKPT__P_GLOBAL &&
           ckpt__str_is(ckpt__dcp_last_name(callable->u.global->name), class_name);
}

/* An attribute of an object: its state is its __dict__, or (None, {...}) of a class with slots. */
static const ckpt__pickle_node *attribute(const ckpt__pickle_node *object, const char *name)
{
    const ckpt__pickle_node *state = object && object->kind == CKPT__P_OBJECT ? object->u.object->state : NULL;
    if (state && state->kind == CKPT__P_TUPLE)
        state = ckpt__torch_item(state, 1);
    return state && state->kind == CKPT__P_DICT ? ckpt__pickle_get(state, name) : NULL;
}

static bool is_none(const ckpt__pickle_node *node)
{
    return !node || node->kind == CKPT__P_NONE;
}

/* ---- numbers */

/* torch.Size((...)), or a tuple or list where another program wrote the list. NULL: it is none of these. */
static const ckpt__pickle_node *sizes_of(const ckpt__pickle_node *node)
{
    if (is_a(node, "Size"))
        node = ckpt__torch_item(node->u.object->args, 0);
    return node && (node->kind == CKPT__P_TUPLE || node->kind == CKPT__P_LIST) ? node : NULL;
}

static bool put_sizes(const ckpt__pickle_node *sizes, int64_t *to)
{
    for (size_t i = 0; i < ckpt__torch_length(sizes); i++) {
        const ckpt__pickle_node *n = ckpt__torch_item(sizes, i);
        if (n->kind != CKPT__P_INT || n->u.integer < 0)
            return false;
        to[i] = n->u.integer;
    }
    return true;
}

static bool get_number(const ckpt__pickle_node *node, uint64_t *out)
{
    bool number = node && node->kind == CKPT__P_INT && node->u.integer >= 0;
    *out = number ? (uint64_t)node->u.integer : 0;
    return number;
}

/* ---- which record has what: storage_data */

/* The key of a chunk: its item's name, and where it begins. lo NULL: an object. */
static void make_key(parser *p, ckpt_str name, const int64_t *lo, size_t ndim)
{
    p->key.size = 0;
    ckpt__buf_add(&p->key, name.data, name.size);
    ckpt__buf_char(&p->key, lo ? '[' : 'o');
    if (ndim)
        ckpt__buf_add(&p->key, lo, ndim * sizeof *lo);
}

static ckpt_status add_record(parser *p, const ckpt__pickle_node *index, const ckpt__pickle_node *info)
{
    const ckpt__pickle_node *name = attribute(index, "fqn"), *offset = attribute(index, "offset");
    const ckpt__pickle_node *sizes = is_none(offset) ? NULL : sizes_of(offset);
    int64_t lo[CKPT__DCP_DIMS] = {0};
    if (!is_a(index, "MetadataIndex") || !name || name->kind != CKPT__P_STR || (!is_none(offset) && !sizes))
        return wrong(p, index, "storage_data has a key that is not a MetadataIndex of a name and an offset");
    if (!is_a(info, "_StorageInfo"))
        return wrong(p, info, "storage_data has a value that is no _StorageInfo");
    if (ckpt__torch_length(sizes) > CKPT__DCP_DIMS || !put_sizes(sizes, lo))
        return wrong(p, index, "an offset that is not a list of at most 64 numbers");
    make_key(p, name->u.text, sizes ? lo : NULL, ckpt__torch_length(sizes));
    char *key = p->key.failed ? NULL : ckpt__arena_copy(p->nodes, p->key.data, p->key.size);
    int put = key ? ckpt__hash_put(p->records, key, p->key.size, (size_t)info, NULL) : -1;
    if (put < 0)
        return no_memory(p);
    return put ? CKPT_OK : wrong(p, index, "storage_data has two records of one chunk");
}

static ckpt_status read_records(parser *p, const ckpt__pickle_node *data)
{
    if (!data || data->kind != CKPT__P_DICT)
        return wrong(p, data, "storage_data is not a dict: another storage than torch's own wrote it");
    ckpt_status status = CKPT_OK;
    for (uint32_t i = 0; status == CKPT_OK && i + 1 < data->u.list.count; i += 2)
        status = add_record(p, data->u.list.items[i], data->u.list.items[i + 1]);
    return status;
}

/* ---- chunks */

ckpt_status ckpt__dcp_file_of(ckpt__dcp *d, ckpt_str name, uint32_t *file)
{
    size_t number = d->file_count;
    *file = 0;
    if (memchr(name.data, '\0', name.size) || name.size == 0 || name.size > 4000 || number >= CKPT__DCP_FILES)
        return CKPT_E_FORMAT;
    if (ckpt__hash_get(d->by_file, name.data, name.size, &number)) {
        *file = (uint32_t)number;
        return CKPT_OK;
    }
    ckpt_str copy = ckpt__arena_str(d->arena, name.data, name.size);
    if (!copy.data || !ckpt__arena_grow(d->arena, &d->files, &d->file_capacity, d->file_count + 1, sizeof *d->files) ||
        ckpt__hash_put(d->by_file, copy.data, copy.size, number, NULL) < 0)
        return CKPT_E_NO_MEMORY;
    d->files[d->file_count++] = (ckpt__dcp_file){.name = copy.data};
    *file = (uint32_t)number;
    return CKPT_OK;
}

static ckpt_status file_of(parser *p, ckpt_str name, uint32_t *file)
{
    ckpt_status status = ckpt__dcp_file_of(p->d, name, file);
    if (status == CKPT_E_NO_MEMORY)
        return no_memory(p);
    return status == CKPT_OK ? status
                             : ckpt__fail(p->err, status, p->label, "it names a file by a name that none can have");
}

/* "stream.zstd/1" is the one extension that torch has (torch/distributed/checkpoint/_extension.py). */
static ckpt_status read_transform(const parser *p, const ckpt__pickle_node *info, bool *zstd)
{
    const ckpt__pickle_node *all = attribute(info, "transform_descriptors"), *first = ckpt__torch_item(all, 0);
    char shown[80] = "";
    *zstd = false;
    if (is_none(all) || ckpt__torch_length(all) == 0)
        return CKPT_OK;
    bool text = first && first->kind == CKPT__P_STR;
    *zstd = text && ckpt__torch_length(all) == 1 && ckpt__str_is(first->u.text, "stream.zstd/1");
    if (*zstd)
        return CKPT_OK;
    if (text)
        ckpt__escape(shown, sizeof shown, first->u.text.data, first->u.text.size);
    return ckpt__fail(
        p->err, CKPT_E_UNSUPPORTED, p->label,
        "its records are transformed by %zu extensions (%s first), and only stream.zstd/1 alone is known: load "
        "it with the program that wrote it, and save it without",
        ckpt__torch_length(all), shown);
}

static ckpt_status add_chunk(parser *p, size_t item, const ckpt__pickle_node *info, const int64_t *box)
{
    ckpt__dcp *d = p->d;
    const ckpt__pickle_node *path = attribute(info, "relative_path");
    ckpt__dcp_chunk chunk = {.box = box, .item = (uint32_t)item};
    uint32_t file = 0;
    bool zstd = false;
    uint64_t end;
    if (!path || path->kind != CKPT__P_STR || !get_number(attribute(info, "offset"), &chunk.offset) ||
        !get_number(attribute(info, "length"), &chunk.length) || !ckpt__add(chunk.offset, chunk.length, &end))
        return wrong(p, info, "a _StorageInfo without a file, an offset and a length");
    ckpt_status status = read_transform(p, info, &zstd);
    if (status == CKPT_OK)
        status = file_of(p, path->u.text, &file);
    if (status < 0)
        return status;
    if (d->chunk_count >= UINT32_MAX ||
        !ckpt__arena_grow(d->arena, &d->chunks, &d->chunk_capacity, d->chunk_count + 1, sizeof *d->chunks))
        return no_memory(p);
    chunk.file = file & CKPT__DCP_FILES;
    chunk.zstd = zstd;
    d->chunks[d->chunk_count++] = chunk;
    ckpt__dcp_file *f = &d->files[file];
    f->needs = end > f->needs ? end : f->needs;
    return CKPT_OK;
}

static bool is_empty(const int64_t *size, uint32_t ndim)
{
    for (uint32_t i = 0; i < ndim; i++)
        if (size[i] == 0)
            return true;
    return false;
}

static ckpt_status read_chunk(parser *p, size_t number, const ckpt__pickle_node *node)
{
    const ckpt__dcp_item *item = &p->d->items[number];
    const ckpt__pickle_node *lo = sizes_of(attribute(node, "offsets")), *size = sizes_of(attribute(node, "sizes"));
    uint32_t n = item->ndim;
    size_t info;
    int64_t box[2 * CKPT__DCP_DIMS] = {0};
    if (!is_a(node, "ChunkStorageMetadata") || !lo || !size || ckpt__torch_length(lo) != n ||
        ckpt__torch_length(size) != n || !put_sizes(lo, box) || !put_sizes(size, box + n))
        return wrong(p, node, "a chunk that is not a box of its tensor");
    if (is_empty(box + n, n)) /* a rank that has nothing of it */
        return CKPT_OK;
    make_key(p, item->name, box, n);
    if (p->key.failed)
        return no_memory(p);
    if (ckpt__hash_get(p->records, p->key.data, p->key.size, &info)) {
        const int64_t *kept = ckpt__index_box(p->d->index, box, 2 * (size_t)n);
        return kept ? add_chunk(p, number, (const ckpt__pickle_node *)info, kept) : no_memory(p);
    }
    char shown[200], where[200];
    ckpt__shape_text(where, sizeof where, box, n);
    return ckpt__fail(p->err, CKPT_E_DAMAGED, p->label, "no record is named for the chunk at %s of '%s'", where,
                      ckpt__escape(shown, sizeof shown, item->name.data, item->name.size));
}

/* ---- items */

static ckpt_status read_dtype(const parser *p, const ckpt__pickle_node *properties, ckpt_str name, ckpt_dtype *out)
{
    const ckpt__pickle_node *state =
        properties && properties->kind == CKPT__P_OBJECT ? properties->u.object->state : NULL;
    bool tuple = state && state->kind == CKPT__P_TUPLE && ckpt__torch_length(state) >= 5;
    const ckpt__pickle_node *dtype = tuple ? ckpt__torch_item(state, 0) : attribute(properties, "dtype"),
                            *layout = tuple ? ckpt__torch_item(state, 1) : attribute(properties, "layout");
    char shown[200], text[80];
    *out = dtype && dtype->kind == CKPT__P_GLOBAL ? ckpt__torch_dtype(dtype) : CKPT_DTYPE_NONE;
    if (!is_a(properties, "TensorProperties") || *out == CKPT_DTYPE_NONE)
        return wrong(p, properties, "a tensor without a dtype that is known");
    if (!is_a(layout, "_get_layout"))
        return CKPT_OK;
    const ckpt__pickle_node *is = ckpt__torch_item(layout->u.object->args, 0);
    if (is && is->kind == CKPT__P_STR && !ckpt__str_is(is->u.text, "torch.strided"))
        return ckpt__fail(p->err, CKPT_E_UNSUPPORTED, p->label, "the layout of '%s' is %s: only dense tensors are read",
                          ckpt__escape(shown, sizeof shown, name.data, name.size),
                          ckpt__escape(text, sizeof text, is->u.text.data, is->u.text.size));
    return CKPT_OK;
}

ckpt_status ckpt__dcp_add_item(ckpt__dcp *d, ckpt_str name, const ckpt__dcp_item *like, size_t *number, ckpt_error *err)
{
    ckpt_str copy = ckpt__arena_str(d->arena, name.data, name.size);
    *number = d->item_count;
    if (!copy.data || d->item_count >= UINT32_MAX ||
        !ckpt__arena_grow(d->arena, &d->items, &d->item_capacity, d->item_count + 1, sizeof *d->items) ||
        ckpt__hash_put(d->by_name, copy.data, copy.size, *number, NULL) < 0)
        return ckpt__dcp_no_memory(d, err);
    d->items[d->item_count] = *like;
    d->items[d->item_count].turn = UINT32_MAX;
    d->items[d->item_count++].name = copy;
    return CKPT_OK;
}

/* The item of that name: a new one, or the one that another rank's list had, which must be the same. */
static ckpt_status item_of(parser *p, const ckpt__pickle_node *key, const ckpt__dcp_item *like, size_t *number,
                           bool *is_new)
{
    ckpt__dcp *d = p->d;
    ckpt_str name = key->u.text;
    *is_new = !ckpt__hash_get(d->by_name, name.data, name.size, number);
    if (!*is_new) {
        const ckpt__dcp_item *is = &d->items[*number];
        bool same = is->object == like->object && is->dtype == like->dtype &&
                    ckpt__same_shape(is->shape, is->ndim, like->shape, like->ndim);
        char shown[200];
        if (!d->replicas)
            return wrong(p, key, "state_dict_metadata has a key twice");
        return same ? CKPT_OK
                    : ckpt__fail(p->err, CKPT_E_MISMATCH, p->label,
                                 "'%s' has another dtype or shape than in the list of a rank before: these are not the "
                                 "parts of one checkpoint",
                                 ckpt__escape(shown, sizeof shown, name.data, name.size));
    }
    return ckpt__dcp_add_item(d, name, like, number, p->err);
}

static ckpt_status read_object(parser *p, const ckpt__pickle_node *key)
{
    const ckpt__dcp_item like = {.object = true};
    size_t number, info;
    bool is_new;
    ckpt_status status = item_of(p, key, &like, &number, &is_new);
    if (status < 0 || !is_new) /* of an object that all ranks have, the first rank's */
        return status;
    make_key(p, key->u.text, NULL, 0);
    if (p->key.failed)
        return no_memory(p);
    if (ckpt__hash_get(p->records, p->key.data, p->key.size, &info))
        return add_chunk(p, number, (const ckpt__pickle_node *)info, NULL);
    char shown[200];
    return ckpt__fail(p->err, CKPT_E_DAMAGED, p->label, "no record is named for the object '%s'",
                      ckpt__escape(shown, sizeof shown, key->u.text.data, key->u.text.size));
}

static ckpt_status read_tensor(parser *p, const ckpt__pickle_node *key, const ckpt__pickle_node *of)
{
    const ckpt__pickle_node *sizes = sizes_of(attribute(of, "size")), *chunks = attribute(of, "chunks");
    size_t n = ckpt__torch_length(sizes), number;
    int64_t *shape = ckpt__arena_array(p->d->arena, n ? n : 1, sizeof *shape);
    bool is_new;
    if (!shape)
        return no_memory(p);
    if (!sizes || n > CKPT__DCP_DIMS || !put_sizes(sizes, shape) || !chunks || chunks->kind != CKPT__P_LIST)
        return wrong(p, of, "a tensor without a size and chunks");
    ckpt__dcp_item like = {.shape = shape, .ndim = (uint32_t)n};
    ckpt_status status = read_dtype(p, attribute(of, "properties"), key->u.text, &like.dtype);
    if (status == CKPT_OK)
        status = item_of(p, key, &like, &number, &is_new);
    for (size_t i = 0; status == CKPT_OK && i < ckpt__torch_length(chunks); i++)
        status = read_chunk(p, number, ckpt__torch_item(chunks, i));
    return status;
}

static ckpt_status read_items(parser *p, const ckpt__pickle_node *all)
{
    if (!all || all->kind != CKPT__P_DICT)
        return wrong(p, all, "state_dict_metadata is not a dict");
    ckpt_status status = CKPT_OK;
    for (uint32_t i = 0; status == CKPT_OK && i + 1 < all->u.list.count; i += 2) {
        const ckpt__pickle_node *key = all->u.list.items[i], *of = all->u.list.items[i + 1];
        if (key->kind != CKPT__P_STR)
            status = wrong(p, key, "a key of the state dict that is not a str");
        else if (is_a(of, "TensorStorageMetadata"))
            status = read_tensor(p, key, of);
        else if (is_a(of, "BytesStorageMetadata"))
            status = read_object(p, key);
        else
            status = wrong(p, of, "an item that is neither a TensorStorageMetadata nor a BytesStorageMetadata");
    }
    return status;
}

/* ---- paths: planner_data, {key: ('model', 'blocks.0.up.weight')}. A step is a str, or the number of a list's item. Its keys stand as
 * they were met in the state dict; those of state_dict_metadata stand by ranks, which replicas are divided among. */

static ckpt_status read_path(parser *p, ckpt__dcp_item *item, const ckpt__pickle_node *path)
{
    size_t n = ckpt__torch_length(path);
    if (n == 0 || item->keys)
        return CKPT_OK;
    ckpt_key *keys = ckpt__arena_array(p->d->arena, n, sizeof *keys);
    if (!keys)
        return no_memory(p);
    for (size_t i = 0; i < n; i++) {
        const ckpt__pickle_node *step = ckpt__torch_item(path, i);
        if (step->kind != CKPT__P_STR && step->kind != CKPT__P_INT)
            return CKPT_OK; /* another planner's: the key stands for itself */
        if (step->kind == CKPT__P_INT)
            keys[i].number = step->u.integer;
        else if (!(keys[i].text = ckpt__arena_str(p->d->arena, step->u.text.data, step->u.text.size)).data)
            return no_memory(p);
    }
    item->keys = keys;
    item->key_count = n;
    return CKPT_OK;
}

static ckpt_status read_paths(parser *p, const ckpt__pickle_node *planner)
{
    ckpt_status status = CKPT_OK;
    size_t number;
    if (!planner || planner->kind != CKPT__P_DICT)
        return CKPT_OK;
    for (uint32_t i = 0; status == CKPT_OK && i + 1 < planner->u.list.count; i += 2) {
        const ckpt__pickle_node *key = planner->u.list.items[i], *path = planner->u.list.items[i + 1];
        if (key->kind != CKPT__P_STR || !ckpt__hash_get(p->d->by_name, key->u.text.data, key->u.text.size, &number))
            continue;
        ckpt__dcp_item *item = &p->d->items[number];
        if (item->turn == UINT32_MAX && p->d->turns < UINT32_MAX)
            item->turn = p->d->turns++;
        status = read_path(p, item, path);
    }
    return status;
}

/* ---- whole shapes: mcore_data of megatron-core */

static ckpt_status read_whole(parser *p, ckpt_str name, const ckpt__pickle_node *of)
{
    ckpt__dcp_wholes *w = p->d->wholes;
    const ckpt__pickle_node *sizes =
        of->kind == CKPT__P_DICT ? sizes_of(ckpt__pickle_get(of, "nd_reformulated_orig_global_shape")) : NULL;
    size_t n = ckpt__torch_length(sizes);
    if (!sizes)
        return CKPT_OK;
    ckpt__arena *a = p->d->index->arena;
    int64_t *shape = ckpt__arena_array(a, n ? n : 1, sizeof *shape);
    ckpt_str copy = ckpt__arena_str(a, name.data, name.size);
    if (!shape || !copy.data || !ckpt__grow(&w->items, &w->capacity, w->count + 1, sizeof *w->items))
        return no_memory(p);
    if (n > CKPT__DCP_DIMS || !put_sizes(sizes, shape))
        return wrong(p, sizes, "a whole shape that is not a list of at most 64 sizes");
    w->items[w->count++] = (ckpt__dcp_whole){copy, shape, (uint32_t)n};
    return CKPT_OK;
}

static ckpt_status read_wholes(parser *p, const ckpt__pickle_node *data)
{
    ckpt_status status = CKPT_OK;
    if (!p->d->wholes || !data || data->kind != CKPT__P_DICT)
        return CKPT_OK;
    for (uint32_t i = 0; status == CKPT_OK && i + 1 < data->u.list.count; i += 2)
        if (data->u.list.items[i]->kind == CKPT__P_STR)
            status = read_whole(p, data->u.list.items[i]->u.text, data->u.list.items[i + 1]);
    return status;
}

ckpt_status ckpt__dcp_parse(ckpt__dcp *d, const char *text, size_t size, const char *label, ckpt_error *err)
{
    parser p = {.d = d, .label = label, .err = err};
    p.nodes = ckpt__arena_new(ckpt__known_limit(size, false));
    p.records = ckpt__hash_new(64);
    ckpt_status status = p.nodes && p.records ? CKPT_OK : no_memory(&p);
    if (status == CKPT_OK)
        status = ckpt__pickle_read_kept(text, size, label, p.nodes, &p.pickle, err);
    if (status == CKPT_E_FORMAT)
        status = CKPT_E_DAMAGED; /* it has the name of a list, and is no pickle */
    if (status == CKPT_E_NO_MEMORY && p.nodes && ckpt__arena_over_limit(p.nodes))
        status =
            ckpt__fail(err, CKPT_E_LIMIT, label, "what it describes takes more memory than a list of its size may");
    if (status == CKPT_OK)
        status = check_globals(&p);
    if (status == CKPT_OK && !is_a(p.pickle.root, "Metadata") && !is_a(p.pickle.root, "MCoreMetadata"))
        status = ckpt__fail(err, CKPT_E_MISMATCH, label,
                            "it is a pickle of something else: a list of torch.distributed.checkpoint is a Metadata");
    if (status == CKPT_OK)
        status = read_records(&p, attribute(p.pickle.root, "storage_data"));
    if (status == CKPT_OK)
        status = read_items(&p, attribute(p.pickle.root, "state_dict_metadata"));
    if (status == CKPT_OK)
        status = read_paths(&p, attribute(p.pickle.root, "planner_data"));
    if (status == CKPT_OK)
        status = read_wholes(&p, attribute(p.pickle.root, "mcore_data"));
    ckpt__pickle_free(&p.pickle);
    ckpt__arena_free(p.nodes);
    ckpt__hash_free(p.records);
    ckpt__buf_free(&p.key);
    return status;
}
