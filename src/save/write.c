/* save/write.c - a save's files: one, or those of a step directory. */
#include "save/save.h"

#include <stdlib.h>
#include "state/state.h"
#include "format/native/manifest.h"

static ckpt_status write_file(ckpt__save_job *v, const size_t *tensors, size_t count, const ckpt_value *root,
                              bool weights, ckpt__sink *directory, const char *name, ckpt__manifest_file *entry,
                              ckpt_error *err)
{
    ckpt__sink_options sink_options = {.sync = !v->options.no_sync, .replace = !v->options.keep_existing};
    ckpt_report *lost = ckpt_report_new();
    ckpt__write_request request = {.index = v->saved->index,
                                   .tensors = tensors,
                                   .count = count,
                                   .root = root,
                                   .step = v->saved->step,
                                   .weights_only = weights,
                                   .lost = lost};
    ckpt__recipe *recipe = NULL;
    ckpt__sink *sink = NULL;
    uint32_t crc = 0;
    ckpt_status status = lost ? v->format->write(&request, &recipe, err) : ckpt__fail_memory(err, v->path, 0);
    if (status == CKPT_OK && ckpt_report_count(lost) && !v->options.lossy)
        status = ckpt__report_fail(lost, CKPT_SEVERITY_NOTE, CKPT_E_UNSUPPORTED, v->path, err);
    if (status == CKPT_OK)
        status = directory ? ckpt__sink_member(directory, name, recipe->size, &sink, err)
                           : ckpt__sink_file(v->path, recipe->size, &sink_options, &sink, err);
    if (status == CKPT_OK)
        status = ckpt__write_recipe(recipe, &v->payload, sink, &v->options.progress, v->done,
                                    v->done + recipe->size + v->later, entry ? &crc : NULL, err);
    if (status == CKPT_OK && !directory && v->live)
        status = ckpt__live_close(v->live, err); /* a device in trouble is heard before anything is published */
    if (status == CKPT_OK) {
        v->done += recipe->size;
        status = ckpt__sink_commit(sink, err);
    } else
        ckpt__sink_abort(sink);
    if (status == CKPT_OK && entry)
        *entry = (ckpt__manifest_file){ckpt__s(name), recipe->size, crc};
    ckpt__recipe_free(recipe);
    ckpt_report_free(lost);
    return status;
}

static bool is_weight(const ckpt_tensor_info *t)
{
    return t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER;
}

static size_t choose(const ckpt__save_job *v, bool weights, bool rest, size_t *tensors)
{
    size_t n = 0;
    for (size_t i = 0; i < v->saved->index->tensor_count; i++)
        if (is_weight(&v->saved->index->tensors[i].info) ? weights : rest)
            tensors[n++] = i;
    return n;
}

static uint64_t bytes_of(const ckpt__save_job *v, const size_t *tensors, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (tensors[i] < v->saved->bindings || tensors[i] >= v->saved->bindings + v->saved->aliases)
            bytes += v->saved->index->tensors[tensors[i]].info.nbytes;
    return bytes;
}

static ckpt_status write_manifest(ckpt__save_job *v, ckpt__manifest *m, ckpt__sink *directory, ckpt_error *err)
{
    ckpt__buf text = {0};
    ckpt__sink *sink = NULL;
    m->step = v->saved->step;
    m->world = v->world ? v->world : 1;
    m->rank = v->rank;
    m->time = v->time;
    m->save = v->save;
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

static ckpt_status write_members(ckpt__save_job *v, size_t *tensors, ckpt__sink *directory, ckpt_error *err)
{
    ckpt__manifest m = {.count = 0, .step = -1};
    size_t n = v->options.weights_only ? 0 : choose(v, false, true, tensors);
    v->later = bytes_of(v, tensors, n);
    n = choose(v, true, false, tensors);
    ckpt_status status =
        write_file(v, tensors, n, NULL, true, directory, "model.safetensors", &m.files[m.count++], err);
    if (status == CKPT_OK && !v->options.weights_only) {
        n = choose(v, false, true, tensors);
        v->later = 0;
        status = write_file(v, tensors, n, v->saved->root, false, directory, "training.safetensors",
                            &m.files[m.count++], err);
    }
    /* The manifest is written last: without it a directory is no checkpoint. */
    return status == CKPT_OK ? write_manifest(v, &m, directory, err) : status;
}

static size_t *room_for_tensors(const ckpt__save_job *v)
{
    return malloc((v->saved->index->tensor_count + 1) * sizeof(size_t));
}

ckpt_status ckpt__save_directory(ckpt__save_job *v, ckpt__sink **settled, ckpt_error *err)
{
    ckpt__sink_options options = {
        .sync = !v->options.no_sync, .replace = !v->options.keep_existing, .replace_any = v->replace_any};
    ckpt__sink *directory = NULL;
    size_t *tensors = room_for_tensors(v);
    ckpt_status status = !tensors  ? ckpt__fail_memory(err, v->path, 0)
                         : v->name ? ckpt__sink_directory_at(v->dirfd, v->folder, v->name, &options, &directory, err)
                                   : ckpt__sink_directory(v->path, &options, &directory, err);
    if (status == CKPT_OK)
        status = write_members(v, tensors, directory, err);
    if (status == CKPT_OK && v->live)
        status = ckpt__live_close(v->live, err);
    if (status == CKPT_OK && settled)
        status = ckpt__sink_settle(directory, err);
    free(tensors);
    if (status < 0) {
        ckpt__sink_abort(directory);
        return status;
    }
    if (!settled)
        return ckpt__sink_commit(directory, err);
    *settled = directory;
    return CKPT_OK;
}

ckpt_status ckpt__save_file(ckpt__save_job *v, ckpt_error *err)
{
    size_t *tensors = room_for_tensors(v);
    if (!tensors)
        return ckpt__fail_memory(err, v->path, 0);
    size_t n = choose(v, true, !v->options.weights_only, tensors);
    ckpt_status status = write_file(v, tensors, n, v->saved->root, v->options.weights_only, NULL, v->path, NULL, err);
    free(tensors);
    return status;
}
