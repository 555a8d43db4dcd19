/* reader/reader.c - the public reader: one open checkpoint. */
#include "reader/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "anatomy/canon.h"
#include "anatomy/part.h"
#include "engine/checked.h"
#include "engine/cover.h"
#include "engine/elements.h"
#include "engine/stream.h"
#include "format/table.h"
#include "base/first_sizes.h"

static ckpt_status take_options(const ckpt_reader_options *given, const char *path, ckpt_reader_options *o,
                                ckpt_error *err)
{
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_reader_options, o, given, err);
    if (status < 0)
        return status;
    if (o->also_count && !o->also)
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "also_count is %zu, and also is NULL", o->also_count);
    for (size_t i = 0; i < o->also_count; i++)
        if (!o->also[i])
            return ckpt__fail(err, CKPT_E_ARGUMENT, path, "also[%zu] of %zu is NULL; a path is expected", i,
                              o->also_count);
    return CKPT_OK;
}

/* What a file alone cannot tell. */
static ckpt_status note_part(ckpt_reader *r, ckpt_error *err)
{
    ckpt__whole whole;
    memset(&whole, 0, sizeof whole);
    if (!ckpt__part_of_shards(r->index, r->path, &whole) ||
        ckpt__report_add(r->index->findings, CKPT_SEVERITY_NOTE, "part-of-checkpoint", NULL, whole.how, "this is %s",
                         whole.what))
        return CKPT_OK;
    return ckpt__fail_memory(err, "the findings", 0);
}

/* How a checkpoint is opened: for whoever asks by ckpt_reader_open; what is damaged becomes a finding; for whoever asks for no tensor by
 * its name. */
typedef enum way { FOR_ALL, SURVEY, NAMELESS } way;

/* The table of names: the index's, or one that is made. */
static ckpt_status name_all(ckpt_reader *r, ckpt_error *err)
{
    r->by_name = r->index->by_name;
    r->index->by_name = NULL; /* it is the reader's now */
    if (r->by_name)
        return CKPT_OK;
    bool good = (r->by_name = ckpt__hash_new(r->index->tensor_count)) != NULL;
    const ckpt__tensor *tensors = r->index->tensors;
    for (size_t i = 0, next = 0; good && i < r->index->tensor_count; i++) {
        for (; next < r->index->tensor_count && next <= i + CKPT__HASH_AHEAD; next++)
            ckpt__hash_ahead(r->by_name, tensors[next].info.name.data, tensors[next].info.name.size);
        good = ckpt__hash_put(r->by_name, tensors[i].info.name.data, tensors[i].info.name.size, i, NULL) >= 0;
    }
    return good ? CKPT_OK : ckpt__fail_memory(err, r->path, 0);
}

/* *gone: it failed because a directory was removed or replaced meanwhile. */
static ckpt_status open_once(const char *path, const ckpt_reader_options *options, way how, ckpt_reader **out,
                             bool *gone, ckpt_error *err)
{
    ckpt_reader *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path)) || !(r->parts = ckpt__reader_parts_new())) {
        ckpt_reader_close(r);
        return ckpt__fail_memory(err, path, 0);
    }
    ckpt_status status = ckpt__source_open(path, &r->source, err);
    for (size_t i = 0; status == CKPT_OK && i < options->also_count; i++)
        status = ckpt__source_open_also(r->source, options->also[i], err);
    if (status == CKPT_OK) {
        ckpt__read_request request = ckpt__read_all(r->source);
        request.salvage = options->salvage;
        request.leave_damaged = options->leave_damaged;
        request.survey = how == SURVEY;
        status = ckpt__format_read(&request, options->format, &r->index, err);
    }
    /* A step that is pruned while it is opened loses its manifest, and what is left looks like a model's directory. */
    if (status == CKPT_OK && r->source->directory && !ckpt__format_of(r->index)->has_manifest &&
        !ckpt__source_is_there(r->source))
        status = ckpt__fail(err, CKPT_E_NOT_FOUND, path, "it was removed or replaced while it was opened");
    if (status == CKPT_OK)
        ckpt__canon_give_roles(r->index);
    if (status == CKPT_OK && !options->also_count)
        status = note_part(r, err);
    if (status == CKPT_OK && (how == SURVEY || options->leave_damaged))
        status = ckpt__cover_note(r->index, r->index->findings, err);
    if (status == CKPT_OK && options->leave_large &&
        !(r->index->parts_given = calloc(r->index->storage_count + 1, sizeof *r->index->parts_given)))
        status = ckpt__fail_memory(err, path, r->index->storage_count);
    if (status == CKPT_OK && how != NAMELESS)
        status = name_all(r, err);
    if (status < 0) {
        if (err && err->object[0] == '\0')
            ckpt__error_object(err, path);
        *gone = r->source && !ckpt__source_is_there(r->source);
        ckpt_reader_close(r);
        return status;
    }
    *out = r;
    return CKPT_OK;
}

ckpt_status ckpt__reader_of(const char *path, ckpt__source *source, ckpt__index *index, ckpt_reader **out,
                            ckpt_error *err)
{
    ckpt_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) {
        ckpt__index_free(index);
        ckpt__source_close(source);
        return ckpt__fail_memory(err, path, 0);
    }
    r->source = source;
    r->index = index;
    ckpt_status status = (r->path = strdup(path)) && (r->parts = ckpt__reader_parts_new())
                             ? name_all(r, err)
                             : ckpt__fail_memory(err, path, 0);
    if (status < 0)
        ckpt_reader_close(r);
    else
        *out = r;
    return status;
}

static ckpt_status open_again(const char *path, const ckpt_reader_options *options, way how, ckpt_reader **out,
                              ckpt_error *err)
{
    enum { TRIES = 16 };
    if (!out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "no place for the reader was given");
    *out = NULL;
    if (!path || !*path)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "", "no path was given");
    ckpt_reader_options own = CKPT_READER_OPTIONS_INIT;
    ckpt_status status = take_options(options, path, &own, err);
    bool gone = status == CKPT_OK;
    for (int i = 0; i < TRIES && gone; i++) {
        gone = false;
        status = open_once(path, &own, how, out, &gone, err);
    }
    return gone ? ckpt__fail(err, CKPT_E_NOT_FOUND, path,
                             "it was replaced again and again while it was opened; open it again")
                : status;
}

ckpt_status ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out, ckpt_error *err)
{
    return open_again(path, options, FOR_ALL, out, err);
}

ckpt_status ckpt__reader_survey(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                ckpt_error *err)
{
    return open_again(path, options, SURVEY, out, err);
}

ckpt_status ckpt__reader_nameless(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                  ckpt_error *err)
{
    ckpt_status status = open_again(path, options, NAMELESS, out, err);
    if (status == CKPT_OK) {
        ckpt__hash_free((*out)->index->by_name);
        (*out)->index->by_name = NULL;
    }
    return status;
}

void ckpt_reader_close(ckpt_reader *r)
{
    if (!r)
        return;
    ckpt__reader_parts_free(r->parts, r->source);
    ckpt__hash_free(r->by_name);
    ckpt__index_free(r->index);
    ckpt__source_close(r->source);
    free(r->path);
    free(r);
}

const char *ckpt_reader_format(const ckpt_reader *r)
{
    return r ? r->index->format : NULL;
}

const char *ckpt_reader_layout(const ckpt_reader *r)
{
    return r ? r->index->layout : NULL;
}

const char *ckpt_reader_path(const ckpt_reader *r)
{
    return r ? r->path : NULL;
}

uint64_t ckpt_reader_file_size(const ckpt_reader *r)
{
    uint64_t n = 0;
    for (size_t i = 0; r && i < r->source->count; i++)
        n += r->source->files[i].size;
    return n;
}

size_t ckpt_reader_tensor_count(const ckpt_reader *r)
{
    return r ? r->index->tensor_count : 0;
}

const ckpt_tensor_info *ckpt_reader_tensor(const ckpt_reader *r, size_t i)
{
    return r && i < r->index->tensor_count ? &r->index->tensors[i].info : NULL;
}

ckpt_status ckpt_reader_find(const ckpt_reader *r, const char *name, size_t name_size, size_t *i, ckpt_error *err)
{
    if (!r || (!name && name_size))
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_reader_find", "a NULL %s", r ? "name" : "reader");
    if (ckpt__hash_get(r->by_name, name, name_size, i))
        return CKPT_OK;
    char shown[200];
    snprintf(shown, sizeof shown, "%.*s", (int)(name_size < sizeof shown ? name_size : sizeof shown), name);
    return ckpt__fail(err, CKPT_E_NOT_FOUND, shown, "there is no tensor of that name in %s (tensors in it: %zu)",
                      r->path, r->index->tensor_count);
}

const ckpt_value *ckpt_reader_root(const ckpt_reader *r)
{
    return r ? r->index->root : NULL;
}

const ckpt_report *ckpt_reader_findings(const ckpt_reader *r)
{
    return r ? r->index->findings : NULL;
}

uint64_t ckpt_reader_unchecked(const ckpt_reader *r, uint64_t *of, ckpt_report *report)
{
    uint64_t all = 0, bytes = r ? ckpt__bytes_unchecked(r->index, &all) : 0;
    if (of)
        *of = all;
    if (bytes && report)
        ckpt__report_add(
            report, CKPT_SEVERITY_NOTE, "bytes-unchecked", NULL, NULL,
            "%llu bytes were not checked: they are few of %llu, for which the file keeps a CRC-32 of all together",
            (unsigned long long)bytes, (unsigned long long)all);
    return bytes;
}

enum { READ_BLOCK = 1 << 20 }; /* as much as a core's cache holds: its CRC is made while it is there */

static ckpt_status crc_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    (void)offset;
    (void)err;
    uint32_t *crc = ctx;
    *crc = ckpt__crc32(*crc, data, n);
    return CKPT_OK;
}

ckpt_status ckpt__reader_check_number(const ckpt_reader *r, size_t i, ckpt_error *err)
{
    if (!r)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "", "no reader was given");
    if (i < r->index->tensor_count)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_ARGUMENT, r->path, "there is no tensor of number %zu: it has %zu, counted from 0", i,
                      r->index->tensor_count);
}

ckpt_status ckpt__reader_check_size(const ckpt_reader *r, size_t i, size_t size, ckpt_error *err)
{
    ckpt_status status = ckpt__reader_check_number(r, i, err);
    if (status < 0 || size == r->index->tensors[i].info.nbytes)
        return status;
    const ckpt_tensor_info *t = &r->index->tensors[i].info;
    return ckpt__fail(err, CKPT_E_ARGUMENT, t->name.data,
                      "a buffer of %zu bytes was given for its %llu; give one of just that size", size,
                      (unsigned long long)t->nbytes);
}

ckpt_status ckpt_reader_read(const ckpt_reader *r, size_t i, void *dst, size_t size, ckpt_error *err)
{
    ckpt_status status = ckpt__reader_check_size(r, i, size, err);
    ckpt__elements e;
    ckpt__elements_options options = {.check = true, .resolve = true};
    if (status == CKPT_OK)
        status = ckpt__reader_check_host(r, i, dst, size, err);
    if (status < 0)
        return status;
    status = ckpt__elements_of_tensor(&e, r->source, r->index, i, &options, err);
    for (size_t at = 0, n; status == CKPT_OK && at < size; at += n) {
        n = size - at < READ_BLOCK ? size - at : READ_BLOCK;
        status = ckpt__elements_read(&e, (char *)dst + at, n, err);
    }
    ckpt__elements_close(&e);
    return status;
}

static ckpt_status check_repeats(const ckpt_reader *r, size_t i, ckpt_error *err)
{
    const ckpt__tensor *t = &r->index->tensors[i];
    uint64_t stored;
    if (!ckpt__repeats(r->index, t, &stored))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, t->info.name.data,
                      "%llu bytes of it repeat the %llu bytes of its storage: too many for a checksum",
                      (unsigned long long)t->info.nbytes, (unsigned long long)stored);
}

ckpt_status ckpt__reader_crc32(const ckpt_reader *r, size_t i, bool check, uint32_t *crc, ckpt_error *err)
{
    uint32_t sum = 0;
    ckpt_status status = ckpt__reader_check_number(r, i, err);
    if (status == CKPT_OK && !crc)
        status = ckpt__fail(err, CKPT_E_ARGUMENT, r->path, "no place for the checksum was given");
    if (status == CKPT_OK)
        status = check_repeats(r, i, err);
    if (status == CKPT_OK)
        status = ckpt__read_tensor(r->source, r->index, i, check, crc_block, &sum, err);
    if (status == CKPT_OK)
        *crc = sum;
    return status;
}

ckpt_status ckpt_reader_crc32(const ckpt_reader *r, size_t i, uint32_t *crc, ckpt_error *err)
{
    return ckpt__reader_crc32(r, i, true, crc, err);
}
