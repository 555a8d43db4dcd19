/* core/save.c - a state as a checkpoint: the index of what is bound, the format's recipe, the bytes through the lanes. */
#include <ckpt/save.h>

#include <stdio.h>
#include <stdlib.h>
#include "core/engine.h"
#include "core/lanes.h"
#include "core/tree.h"
#include "format/manifest.h"

typedef struct saver {
    ckpt_state *state;
    ckpt_save_options options;
    const char *path;
    const ckpt__format *format;
    ckpt__index *index;           /* tensor i is binding i; aliases follow */
    int64_t step;
    ckpt__lanes lanes;
    /* the payload that is being read */
    size_t current;
    ckpt__strided it;
    ckpt__slot *ahead;            /* a block of the current tensor that was asked for before it was needed */
    uint64_t ahead_offset;
    size_t ahead_size;
    char *span;                   /* a strided device tensor, fetched whole */
    uint64_t done;                /* bytes of the files that are written */
    uint64_t later;               /* and about how many come after the one that is being written */
} saver;

/* ---- the index */

static ckpt_status add_tensor(saver *v, const ckpt__binding *b, ckpt_str name, size_t storage, ckpt_error *err)
{
    ckpt__index *x = v->index;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return ckpt__fail_memory(err, name.data, 0);
    t->info.name = name;
    t->info.dtype = b->dtype;
    t->info.ndim = b->ndim;
    t->info.role = b->role;
    t->info.param = b->param;
    t->info.state_key = b->state_key;
    return ckpt__index_set_view(x, x->tensor_count - 1, storage, b->shape, NULL, 0, err);
}

/* The group of each parameter, for the tensors that are or belong to one. */
static ckpt_status put_groups(saver *v, ckpt_error *err)
{
    const ckpt_state *s = v->state;
    ckpt__hash *h = ckpt__hash_new(s->count);
    ckpt_status status = h ? CKPT_OK : ckpt__fail_memory(err, "groups", 0);
    for (size_t g = 0; status == CKPT_OK && g < s->group_count; g++)
        for (size_t i = 0; i < s->groups[g].param_count; i++)
            if (ckpt__hash_put(h, s->groups[g].params[i].data, s->groups[g].params[i].size, g, NULL) < 0)
                status = ckpt__fail_memory(err, "groups", 0);
    for (size_t i = 0; status == CKPT_OK && i < v->index->tensor_count; i++) {
        ckpt_tensor_info *t = &v->index->tensors[i].info;
        ckpt_str owner = t->param.data ? t->param : t->name;
        size_t g;
        if (ckpt__hash_get(h, owner.data, owner.size, &g))
            t->group = s->groups[g].name;
    }
    ckpt__hash_free(h);
    return status;
}

static ckpt_status build_index(saver *v, ckpt_error *err)
{
    const ckpt_state *s = v->state;
    char device[CKPT_DEVICE_NAME_MAX];
    if (!(v->index = ckpt__index_new(0)))
        return ckpt__fail_memory(err, v->path, 0);
    for (size_t i = 0; i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        ckpt_status status = ckpt__state_check_memory(s, b, err);
        ckpt__storage *storage = status == CKPT_OK ? ckpt__index_add_storage(v->index) : NULL;
        if (status < 0)
            return status;
        if (!storage)
            return ckpt__fail_memory(err, b->name.data, 0);
        storage->name = b->name;
        storage->extent.size = b->nbytes;
        ckpt_device_name(ckpt__memory_device(&b->memory), device);
        storage->device = ckpt__arena_str(v->index->arena, device, strlen(device));
        if (!storage->device.data)
            return ckpt__fail_memory(err, b->name.data, 0);
        if ((status = add_tensor(v, b, b->name, i, err)) < 0)
            return status;
    }
    for (size_t i = 0; i < s->alias_count; i++) {
        const ckpt__binding *b = ckpt__state_find(s, s->aliases[i].of.data, s->aliases[i].of.size);
        ckpt_status status = add_tensor(v, b, s->aliases[i].name, (size_t)(b - s->bindings), err);
        if (status < 0)
            return status;
    }
    ckpt_status status = put_groups(v, err);
    return status == CKPT_OK ? ckpt__index_finish(v->index, err) : status;
}

/* ---- the payload */

static ckpt_status fetch_ahead(saver *v, const ckpt__binding *b, ckpt__lane *lane, uint64_t offset, ckpt_error *err)
{
    v->ahead = NULL;
    if (offset >= b->nbytes)
        return CKPT_OK;
    size_t n = b->nbytes - offset < CKPT__BLOCK ? (size_t)(b->nbytes - offset) : CKPT__BLOCK;
    ckpt__slot *slot;
    ckpt_status status = ckpt__lanes_slot(&v->lanes, &slot, err);
    if (status == CKPT_OK)
        status = lane->ops->to_host(lane->stream, slot->data, (const char *)b->data + offset, n, err);
    if (status == CKPT_OK)
        status = ckpt__lanes_mark(&v->lanes, slot, lane, err);
    if (status == CKPT_OK) {
        v->ahead = slot;
        v->ahead_offset = offset;
        v->ahead_size = n;
    }
    return status;
}

/* Contiguous on a device: the next block is on its way while this one is written. */
static ckpt_status read_device(saver *v, const ckpt__binding *b, ckpt__lane *lane, uint64_t offset, char *dst, size_t n,
                               ckpt_error *err)
{
    while (n) {
        ckpt_status status = CKPT_OK;
        if (!v->ahead || offset < v->ahead_offset || offset >= v->ahead_offset + v->ahead_size)
            status = fetch_ahead(v, b, lane, offset, err);
        if (status < 0)
            return status;
        ckpt__slot *slot = v->ahead;
        uint64_t begin = v->ahead_offset, end = begin + v->ahead_size;
        if ((status = ckpt__lanes_wait(&v->lanes, slot, err)) < 0)
            return status;
        size_t take = end - offset < n ? (size_t)(end - offset) : n;
        if (offset + take == end) {
            if ((status = fetch_ahead(v, b, lane, end, err)) < 0)
                return status;
        }
        memcpy(dst, (const char *)slot->data + (offset - begin), take);
        dst += take;
        offset += take;
        n -= take;
    }
    return CKPT_OK;
}

/* Strided on a device: the bytes that it spans come over whole and are gathered here. */
static ckpt_status fetch_span(saver *v, const ckpt__binding *b, ckpt__lane *lane, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (b->span > SIZE_MAX / 2 || !(v->span = malloc((size_t)b->span)))
        return ckpt__fail_memory(err, b->name.data, b->span);
    for (uint64_t at = 0; status == CKPT_OK && at < b->span; at += CKPT__BLOCK) {
        size_t n = b->span - at < CKPT__BLOCK ? (size_t)(b->span - at) : CKPT__BLOCK;
        ckpt__slot *slot;
        if ((status = ckpt__lanes_slot(&v->lanes, &slot, err)) < 0 ||
            (status = lane->ops->to_host(lane->stream, slot->data, (const char *)b->data + at, n, err)) < 0 ||
            (status = ckpt__lanes_mark(&v->lanes, slot, lane, err)) < 0 ||
            (status = ckpt__lanes_wait(&v->lanes, slot, err)) < 0)
            break;
        memcpy(v->span + at, slot->data, n);
    }
    return status;
}

static ckpt_status read_payload(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                                ckpt_error *err)
{
    saver *v = ctx;
    size_t i = kind == CKPT__STORAGE ? number : v->index->tensors[number].pieces[0].storage;
    const ckpt__binding *b = &v->state->bindings[i];
    ckpt__lane *lane;
    ckpt_status status = ckpt__lanes_get(&v->lanes, v->state, ckpt__memory_device(&b->memory), &lane, err);
    if (status < 0)
        return status;
    if (offset == 0 || v->current != i) {
        v->current = i;
        v->ahead = NULL;
        free(v->span);
        v->span = NULL;
        ckpt__strided_init(&v->it, b->shape, b->strides, b->ndim, ckpt_dtype_size(b->dtype));
        if (lane && !ckpt__strided_is_contiguous(&v->it))
            status = fetch_span(v, b, lane, err);
    }
    if (status < 0)
        return status;
    if (lane && ckpt__strided_is_contiguous(&v->it))
        return read_device(v, b, lane, offset, dst, n, err);
    ckpt__strided_gather(&v->it, v->span ? v->span : b->data, dst, n);
    return CKPT_OK;
}

/* ---- files */

static ckpt_status write_file(saver *v, const size_t *tensors, size_t count, const ckpt_value *root, bool weights,
                              ckpt__sink *directory, const char *name, ckpt__manifest_file *entry, ckpt_error *err)
{
    ckpt__sink_options sink_options = { !v->options.no_sync, !v->options.keep_existing };
    ckpt_report *lost = ckpt_report_new();
    ckpt__write_request request = { v->index, tensors, count, root, v->step, weights, lost };
    ckpt__payload payload = { read_payload, v };
    ckpt__recipe *recipe = NULL;
    ckpt__sink *sink = NULL;
    uint32_t crc = 0;
    ckpt_status status = lost ? v->format->write(&request, &recipe, err) : ckpt__fail_memory(err, v->path, 0);
    if (status == CKPT_OK && ckpt_report_count(lost) && !v->options.lossy)
        status = ckpt__report_fail(lost, CKPT_NOTE, CKPT_E_UNSUPPORTED, v->path, err);
    if (status == CKPT_OK)
        status = directory ? ckpt__sink_member(directory, name, recipe->size, &sink, err)
                           : ckpt__sink_file(v->path, recipe->size, &sink_options, &sink, err);
    if (status == CKPT_OK)
        status = ckpt__write_recipe(recipe, &payload, sink, &v->options.progress, v->done,
                                     v->done + recipe->size + v->later, entry ? &crc : NULL, err);
    if (status == CKPT_OK && !directory)
        status = ckpt__lanes_close(&v->lanes, err);      /* a device in trouble is heard before anything is published */
    if (status == CKPT_OK) {
        v->done += recipe->size;
        status = ckpt__sink_commit(sink, err);
    } else
        ckpt__sink_abort(sink);
    if (status == CKPT_OK && entry)
        *entry = (ckpt__manifest_file){ ckpt__s(name), recipe->size, crc };
    ckpt__recipe_free(recipe);
    ckpt_report_free(lost);
    return status;
}

static bool is_weight(const ckpt_tensor_info *t)
{
    return t->role == CKPT_PARAM || t->role == CKPT_BUFFER;
}

static size_t choose(const saver *v, bool weights, bool rest, size_t *tensors)
{
    size_t n = 0;
    for (size_t i = 0; i < v->index->tensor_count; i++)
        if (is_weight(&v->index->tensors[i].info) ? weights : rest)
            tensors[n++] = i;
    return n;
}

static uint64_t bytes_of(const saver *v, const size_t *tensors, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += tensors[i] < v->state->count ? v->state->bindings[tensors[i]].nbytes : 0;      /* not those of aliases */
    return bytes;
}

static ckpt_status write_manifest(saver *v, ckpt__manifest *m, ckpt__sink *directory, ckpt_error *err)
{
    ckpt__buf text = { 0 };
    ckpt__sink *sink = NULL;
    m->step = v->step;
    m->world = 1;
    ckpt_status status = ckpt__manifest_write(m, &text, err);
    if (status == CKPT_OK)
        status = ckpt__sink_member(directory, "checkpoint.json", text.size, &sink, err);
    if (status == CKPT_OK)
        status = ckpt__sink_write(sink, 0, text.data, text.size, err);
    if (status == CKPT_OK)
        status = ckpt__sink_commit(sink, err);
    else
        ckpt__sink_abort(sink);
    ckpt__buf_free(&text);
    return status;
}

/* The manifest is written last: without it a directory is no checkpoint. */
static ckpt_status write_directory(saver *v, size_t *tensors, const ckpt_value *root, ckpt_error *err)
{
    ckpt__sink_options options = { !v->options.no_sync, !v->options.keep_existing };
    ckpt__manifest m = { .count = 0, .step = -1 };
    ckpt__sink *directory = NULL;
    ckpt_status status = ckpt__sink_directory(v->path, &options, &directory, err);
    if (status < 0)
        return status;
    size_t n = v->options.weights_only ? 0 : choose(v, false, true, tensors);
    v->later = bytes_of(v, tensors, n);
    n = choose(v, true, false, tensors);
    status = write_file(v, tensors, n, NULL, true, directory, "model.safetensors", &m.files[m.count++], err);
    if (status == CKPT_OK && !v->options.weights_only) {
        n = choose(v, false, true, tensors);
        v->later = 0;
        status = write_file(v, tensors, n, root, false, directory, "training.safetensors", &m.files[m.count++], err);
    }
    if (status == CKPT_OK)
        status = write_manifest(v, &m, directory, err);
    if (status == CKPT_OK)
        status = ckpt__lanes_close(&v->lanes, err);
    if (status == CKPT_OK)
        return ckpt__sink_commit(directory, err);
    ckpt__sink_abort(directory);
    return status;
}

static ckpt_status check_options(saver *v, const ckpt_save_options *options, ckpt_error *err)
{
    const char *format = "ckpt";
    if (options) {
        if (options->struct_size > sizeof *options)
            return ckpt__fail(err, CKPT_E_ARGUMENT, v->path, "the options are of a newer version of the library");
        memcpy(&v->options, options, options->struct_size ? options->struct_size : sizeof *options);
    }
    if (v->options.format)
        format = v->options.format;
    v->format = ckpt__format_find(format);
    if (!v->format || !v->format->write)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, v->path, "format '%s' is not written; 'ckpt' and 'safetensors' are", format);
    if (v->options.directory && v->format != &ckpt__format_native)
        return ckpt__fail(err, CKPT_E_ARGUMENT, v->path, "a step directory is written in format 'ckpt' only");
    if (v->format != &ckpt__format_native && !v->options.weights_only && !v->options.lossy)
        return ckpt__fail(err, CKPT_E_ARGUMENT, v->path,
                          "plain safetensors holds tensors alone: ask for weights_only, or permit the loss with lossy");
    if (v->state->poisoned)
        return ckpt__fail(err, CKPT_E_POISONED, v->path,
                          "the last restore failed midway and the state holds a mixture; restore a checkpoint first");
    return CKPT_OK;
}

ckpt_status ckpt_save(ckpt_state *state, const char *path, const ckpt_save_options *options, ckpt_error *err)
{
    saver v = { .state = state, .path = path, .step = -1, .current = SIZE_MAX };
    if (!state || !path || !*path)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_save", "a NULL state or path");
    ckpt_status status = check_options(&v, options, err);
    size_t *tensors = NULL;
    const ckpt_value *root = NULL;
    if (status == CKPT_OK)
        status = build_index(&v, err);
    if (status == CKPT_OK && !(tensors = malloc((v.index->tensor_count + 1) * sizeof *tensors)))
        status = ckpt__fail_memory(err, path, 0);
    if (status == CKPT_OK && !v.options.weights_only)
        status = ckpt__state_tree(state, v.index->arena, &root, &v.step, err);
    /* Every device that holds a bound tensor comes to the point of the save now, before the first byte is read. */
    for (size_t i = 0; status == CKPT_OK && i < state->count; i++) {
        ckpt__lane *lane;
        status = ckpt__lanes_get(&v.lanes, state, ckpt__memory_device(&state->bindings[i].memory), &lane, err);
    }
    if (status == CKPT_OK && v.options.directory)
        status = write_directory(&v, tensors, root, err);
    else if (status == CKPT_OK) {
        size_t n = choose(&v, true, !v.options.weights_only, tensors);
        status = write_file(&v, tensors, n, root, v.options.weights_only, NULL, path, NULL, err);
    }
    ckpt__lanes_close(&v.lanes, NULL);       /* after a failure; otherwise they are closed already */
    free(v.span);
    free(tensors);
    ckpt__index_free(v.index);
    return status;
}
