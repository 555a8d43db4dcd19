/* format/torch/torch.c - what torch.save writes since 1.6: a zip archive of a pickle (data.pkl) and one record for each
 * storage (data/<key>). Record names, order and meaning: caffe2/serialize/inline_container.cc, torch/serialization.py.
 * libtorch in C++ and TorchScript write the same archive, with more in it: script.c. */
#include "format/torch/torch.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

/* torch's reader refuses archives after this version (kMaxSupportedFileFormatVersion). */
enum { NEWEST_VERSION = 10 };
static int bid(const ckpt__probe *probe)
{
    if (probe->directory || probe->head_size < 30 || memcmp(probe->head, "PK\3\4", 4) != 0)
        return 0;
    size_t n = (size_t)probe->head[26] | (size_t)probe->head[27] << 8;
    static const char tail[] = "/data.pkl";
    bool first = n > sizeof tail - 1 && n <= probe->head_size - 30 &&
                 memcmp(probe->head + 30 + n - (sizeof tail - 1), tail, sizeof tail - 1) == 0;
    return first ? 100 : 50; /* any zip: read() says what it is */
}

/* ---- records */

static ckpt_status read_source(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__torch *t = ctx;
    return t->window ? t->window->read(t->window->ctx, offset, dst, n, err)
                     : ckpt__source_read(t->source, t->file, offset, dst, n, err);
}

static uint64_t size_of(const ckpt__torch *t)
{
    return t->window ? t->window->size : t->source->files[t->file].size;
}

enum { RECORD_NAME = 32 }; /* more than the longest name that is asked for here */

static const ckpt__zip_record *find(const ckpt__torch *t, const char *name)
{
    size_t n = strlen(name);
    if (!t->full || n >= RECORD_NAME)
        return NULL;
    memcpy(t->full, t->root.data, t->root.size);
    t->full[t->root.size] = '/';
    memcpy(t->full + t->root.size + 1, name, n);
    const ckpt__zip_record *r = ckpt__zip_find(t->zip, t->full, t->root.size + 1 + n);
    return r && !r->folder ? r : NULL;
}

/* A record's bytes into b; absent, b stays empty. */
static ckpt_status read_record(ckpt__torch *t, const char *name, uint64_t limit, ckpt__buf *b, ckpt_error *err)
{
    const ckpt__zip_record *r = find(t, name);
    b->size = 0;
    if (!r)
        return CKPT_OK;
    ckpt_status status = ckpt__zip_read(t->zip, r, limit, b, err);
    if (status == CKPT_E_DAMAGED && t->salvage)
        return ckpt__torch_salvage_record(t, r, limit, b, err);
    if (status == CKPT_OK && r->has_crc && r->usize)
        t->index->metadata_bytes += r->usize;
    return status;
}

/* ---- what kind of zip is it? */

/* The archive's name is what stands before the first slash of the first record. */
static ckpt_str root_of(const ckpt__zip *zip)
{
    const ckpt__zip_record *first = ckpt__zip_at(zip, 0);
    const char *slash = first ? memchr(first->name.data, '/', first->name.size) : NULL;
    ckpt_str root = {NULL, 0};
    if (slash) {
        root.data = first->name.data;
        root.size = (size_t)(slash - first->name.data);
    }
    return root;
}

static bool has(const ckpt__zip *zip, const char *name)
{
    return ckpt__zip_find(zip, name, strlen(name)) != NULL;
}

/* Names what is no checkpoint of torch.save, and says what to do with it. */
static ckpt_status not_torch(const ckpt__torch *t, ckpt_error *err)
{
    const char *label = t->path;
    const ckpt__zip_record *first = ckpt__zip_at(t->zip, 0);
    if (!first)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "an empty zip archive");
    if (t->root.data && (find(t, "archive_format") || find(t, "models/model.json")))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, label,
                          "a torch.export archive (.pt2): a program with its weights. Save the weights: "
                          "torch.save(torch.export.load(FILE).state_dict, 'weights.pt')");
    if (t->root.data && (find(t, "model.json") || find(t, "constants.pkl")))
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, label,
            "a TorchScript archive (torch.jit.save, or torch::save of libtorch in C++) without data.pkl, as "
            "torch wrote before 1.3. Save it again with a later torch: torch.jit.save(torch.jit.load(FILE), "
            "'new.pt')");
    if (has(t->zip, "config.json") && (has(t->zip, "model.weights.h5") || has(t->zip, "metadata.json")))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, label, "a Keras archive (.keras): it is of the format keras");
    if (ckpt__str_ends(first->name, ".npy"))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, label, "a NumPy archive (.npz), which this version does not read");
    return ckpt__fail(
        err, CKPT_E_FORMAT, label, "a zip archive without %.*s%sdata.pkl, so nothing that torch.save wrote",
        (int)(t->root.size > 100 ? 100 : t->root.size), t->root.data ? t->root.data : "", t->root.data ? "/" : "");
}

/* ---- byteorder, version */

static ckpt_status read_byteorder(ckpt__torch *t, ckpt__buf *b, ckpt_error *err)
{
    ckpt_status status = read_record(t, "byteorder", 64, b, err);
    if (status == CKPT_OK && b->size == 0 && find(t, "byteorder") &&
        !ckpt__torch_refuses(t, "ValueError: Unknown endianness type: "))
        return ckpt__torch_no_memory(t, err);
    if (status < 0 || b->size == 0)
        return status; /* absent: before 2.1, which little-endian machines wrote */
    ckpt_str order = {b->data, b->size};
    t->big_endian = ckpt__str_is(order, "big");
    if (!t->big_endian && !ckpt__str_is(order, "little")) {
        char shown[80];
        return ckpt__fail(err, CKPT_E_FORMAT, t->path, "its byteorder record says '%s'; it must be 'little' or 'big'",
                          ckpt__escape(shown, sizeof shown, b->data, b->size));
    }
    return CKPT_OK;
}

static ckpt_status read_version(ckpt__torch *t, ckpt__buf *b, ckpt_error *err)
{
    ckpt_status status = read_record(t, ".data/version", 64, b, err);
    bool said = find(t, ".data/version") || find(t, "version"), empty = find(t, ".data/version") && b->size == 0;
    if (status == CKPT_OK && b->size == 0)
        status = read_record(t, "version", 64, b, err);
    if (status < 0)
        return status;
    if (b->size == 0 && t->walked)
        return CKPT_OK;
    if ((empty || b->size == 0) &&
        !ckpt__torch_refuses(t, "%s",
                             said ? "RuntimeError: Couldn't parse the version  as Long Long."
                                  : "RuntimeError: Expected hasRecord(\"version\") to be true, but got false."))
        return ckpt__torch_no_memory(t, err);
    if (b->size == 0)
        return ckpt__report_add(t->index->findings, CKPT_SEVERITY_NOTE, "no-version", NULL, "save it again with torch",
                                "the archive has no version record; torch's own reader refuses it")
                   ? CKPT_OK
                   : ckpt__torch_no_memory(t, err);
    size_t n = b->size;
    while (n && (b->data[n - 1] == '\n' || b->data[n - 1] == '\r'))
        n--;
    int64_t version;
    char shown[80];
    ckpt__escape(shown, sizeof shown, b->data, n);
    if (!ckpt__parse_i64(b->data, n, &version) || version < 1)
        return ckpt__fail(err, CKPT_E_FORMAT, t->path, "its version record says '%s', no number of a version", shown);
    if (version > NEWEST_VERSION)
        return ckpt__fail(err, CKPT_E_TOO_NEW, t->path, "its version record says %s; this version reads up to %d",
                          shown, NEWEST_VERSION);
    return CKPT_OK;
}

/* ---- the pickle */

static bool note_odd_pickle(ckpt__torch *t, uint64_t size)
{
    static const char fix[] = "scan it before you load it";
    if (t->pickle.end < size &&
        !ckpt__report_add(
            t->index->findings, CKPT_SEVERITY_WARNING, "bytes-after-stop", NULL, fix,
            "%s has %llu bytes behind the end of its pickle; torch.save writes none, and nothing reads them", t->label,
            (unsigned long long)(size - t->pickle.end)))
        return false;
    return !t->pickle.left ||
           ckpt__report_add(t->index->findings, CKPT_SEVERITY_WARNING, "stack-left", NULL, fix,
                            "%s makes %zu objects that belong to nothing; torch.save does not write such pickles",
                            t->label, t->pickle.left);
}

static ckpt_status parse_pickle(ckpt__torch *t, const ckpt__buf *b, ckpt_error *err)
{
    if (!ckpt__arena_charge(t->arena, b->size))
        return ckpt__torch_no_memory(t, err);
    t->index->pickle_strange = NULL;
    ckpt_status status = ckpt__pickle_read(b->data ? b->data : "", b->size, t->label, t->arena, &t->pickle, err);
    ckpt__arena_discharge(t->arena, b->size);
    if (status < 0)
        return status;
    if (t->pickle.text_persid)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, t->label,
                          "pickled with protocol 0: its storages are named by text that torch itself "
                          "cannot load. Save it again without pickle_protocol=0");
    t->index->pickle_strange = t->pickle.strange;
    if ((status = ckpt__torch_check_late(t, err)) < 0)
        return status;
    return ckpt__torch_check_ids(t) && note_odd_pickle(t, b->size) ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

static ckpt_status read_pickle(ckpt__torch *t, const ckpt__zip_record *r, ckpt__buf *b, ckpt_error *err)
{
    uint64_t most = ckpt__inflated_limit(size_of(t), t->source->directory);
    ckpt_status status = read_record(t, "data.pkl", r->method == CKPT__ZIP_STORED ? UINT64_MAX : most, b, err);
    t->index->metadata_crc = status == CKPT_OK && r->has_crc;
    if (status == CKPT_OK)
        status = ckpt__torch_take_twin(t, b, err);
    return status == CKPT_OK && !t->twin ? parse_pickle(t, b, err) : status;
}

static ckpt_status check_alignment(ckpt__torch *t, ckpt__buf *b, ckpt_error *err)
{
    if (!find(t, ".storage_alignment"))
        return CKPT_OK;
    ckpt_status status = read_record(t, ".storage_alignment", 4096, b, err);
    if (status == CKPT_OK && !ckpt__torch_refuses_alignment(t, (ckpt_str){b->data, b->size}))
        return ckpt__torch_no_memory(t, err);
    return status == CKPT_E_LIMIT ? CKPT_OK : status;
}

/* What a reader of the report should know about checksums and odd records. */
static ckpt_status note_records(ckpt__torch *t, ckpt_error *err)
{
    size_t without = 0;
    uint64_t behind = ckpt__zip_trailing(t->zip);
    if (behind &&
        !ckpt__report_add(t->index->findings, CKPT_SEVERITY_WARNING, "bytes-after-end", NULL,
                          t->refused
                              ? "save or migrate it to be rid of them"
                              : "nothing to do for torch, which reads such files; save or migrate it to be rid of them",
                          "%llu bytes follow the end of the archive and belong to nothing: the file was padded, "
                          "or something was appended to it",
                          (unsigned long long)behind))
        return ckpt__torch_no_memory(t, err);
    for (size_t i = 0; i < t->storage_count; i++) {
        const ckpt__extent *e = &t->index->storages[t->storages[i].number].extent;
        without += !e->has_crc && e->size > 0;
    }
    if (without && !ckpt__report_add(
                       t->index->findings, CKPT_SEVERITY_NOTE, "no-crc", NULL, NULL,
                       "%zu of %zu storages have no CRC-32 (written with compute_crc32=False or skip_data): damage to "
                       "them cannot be seen",
                       without, t->storage_count))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

/* "archive/data.pkl", escaped. */
static bool set_label(ckpt__torch *t)
{
    size_t n = t->root.size * 4 + 1;
    char *label = ckpt__arena_alloc(t->arena, n + sizeof "/data.pkl");
    if (!label)
        return false;
    ckpt__escape(label, n, t->root.data, t->root.size);
    strcat(label, "/data.pkl");
    t->label = label;
    return true;
}

/* The pickle's nodes as values and tensors. */
static ckpt_status list_pickle(ckpt__torch *t, ckpt_error *err)
{
    size_t most =
        t->pickle.persistent_count < ckpt__zip_count(t->zip) ? t->pickle.persistent_count : ckpt__zip_count(t->zip);
    if (!ckpt__index_reserve(t->index, most, 0))
        return ckpt__torch_no_memory(t, err);
    ckpt_status status = ckpt__torch_values(t, err);
    t->any_grad = status == CKPT_OK && t->script && ckpt__torch_any_grad(t);
    return status == CKPT_OK ? ckpt__torch_list(t, err) : status;
}

static ckpt_status read_contents(ckpt__torch *t, const ckpt__zip_record *pickle, ckpt_error *err)
{
    ckpt__buf b = {0};
    ckpt_status status = set_label(t) ? CKPT_OK : ckpt__torch_no_memory(t, err);
    if (status == CKPT_OK && t->walked && (status = read_pickle(t, pickle, &b, err)) == CKPT_OK)
        status = ckpt__torch_salvage_rest(t, err);
    if (status == CKPT_OK)
        status = read_byteorder(t, &b, err);
    if (status == CKPT_OK)
        status = read_version(t, &b, err);
    if (status == CKPT_OK && !t->walked)
        status = ckpt__torch_refuses_archive(t) ? check_alignment(t, &b, err) : ckpt__torch_no_memory(t, err);
    const size_t findings = ckpt_report_count(t->index->findings);
    if (status == CKPT_OK && !t->walked)
        status = read_pickle(t, pickle, &b, err);
    if (!t->twins)
        ckpt__buf_free(&b); /* before the values are made */
    if (status == CKPT_OK && !t->twin)
        status = list_pickle(t, err);
    if (status == CKPT_OK && ckpt__torch_may_be_twin(t, findings)) {
        t->own_pickle = b;
        b = (ckpt__buf){0};
    }
    ckpt__buf_free(&b);
    if (status == CKPT_OK && t->script && !t->salvage)
        status = ckpt__torch_refuses_script(t) ? CKPT_OK : ckpt__torch_no_memory(t, err);
    if (status == CKPT_OK && t->script)
        status = ckpt__torch_note_script(t, err);
    if (status == CKPT_OK && t->salvage)
        return ckpt__torch_note_salvaged(t, err);
    return status == CKPT_OK ? note_records(t, err) : status;
}

/* Most records are storages, each of a tensor or more, of which about so much will be known. */
static size_t expected(const ckpt__torch *t)
{
    enum { A_TENSOR = 1000, MOST = 32 << 20 };
    size_t n = ckpt__zip_count(t->zip);
    return n < MOST / A_TENSOR ? n * A_TENSOR : MOST;
}

static ckpt_status read_opened(ckpt__torch *t, uint64_t size, ckpt_error *err)
{
    ckpt_status status;
    t->root = root_of(t->zip);
    if (t->root.data && !(t->full = malloc(t->root.size + 1 + RECORD_NAME)))
        return ckpt__fail_memory(err, t->path, t->root.size);
    const ckpt__zip_record *pickle = t->root.data ? find(t, "data.pkl") : NULL;
    if (t->walked && (status = ckpt__torch_salvage_pickle(t, pickle, err)) < 0)
        return status;
    if (!pickle)
        return not_torch(t, err);
    const ckpt__zip_record *constants = find(t, "constants.pkl");
    t->script =
        constants && ckpt__str_ends(constants->name, "constants.pkl"); /* torch looks for these letters, no others */
    t->index = t->window && t->lent ? ckpt__index_new_part(t->lent)
                                    : ckpt__index_new(ckpt__known_limit(size, t->source->directory));
    t->by_key = ckpt__hash_new(0);
    if (!t->index || !t->by_key)
        return ckpt__fail_memory(err, t->path, 0);
    t->arena = t->index->arena;
    if (!t->window)
        ckpt__arena_expect(t->arena, expected(t));
    t->index->format = "torch";
    if (!t->window)
        t->index->archive = ckpt__arena_str(t->arena, t->root.data, t->root.size);
    if (!t->window && !t->index->archive.data)
        return ckpt__fail_memory(err, t->path, t->root.size);
    return read_contents(t, pickle, err);
}

static void set_place(const ckpt__torch *t, ckpt__extent *e, const ckpt__zip_record *r)
{
    e->offset = r->data + (t->window ? t->window->begin : 0);
    if (t->window && t->window->memory && e->coding == CKPT__STORED && !e->missing)
        e->memory = t->window->memory + r->data;
}

/* torch reads the id too, and has it as text. */
static bool note_id(ckpt__torch *t)
{
    const ckpt__zip_record *r = find(t, ".data/serialization_id");
    if (!r || t->window || t->salvage || !r->has_crc || r->method != CKPT__ZIP_STORED || r->usize == 0)
        return true;
    const ckpt__extent id = {
        .file = t->file, .offset = r->data, .length = r->csize, .size = r->usize, .has_crc = true, .crc = r->crc};
    return ckpt__index_add_span(t->index, &id, ckpt__s(".data/serialization_id"));
}

/* The records' local headers were looked at meanwhile: is the archive what its directory says, and where do bytes lie? */
static ckpt_status settle(ckpt__torch *t, ckpt_status status, ckpt_error *err)
{
    ckpt_error own = CKPT_ERROR_INIT;
    ckpt_status checked = ckpt__zip_checked(t->zip, &own);
    if (checked < 0 && err)
        *err = own;
    for (size_t i = 0; checked == CKPT_OK && i < t->storage_count; i++)
        if (t->storages[i].record)
            set_place(t, &t->index->storages[t->storages[i].number].extent, t->storages[i].record);
    if (checked == CKPT_OK && status == CKPT_OK && !note_id(t))
        status = ckpt__torch_no_memory(t, err);
    return checked < 0 ? checked : status;
}

static ckpt_status read_archive(ckpt__torch *t, ckpt_error *err)
{
    ckpt__zip_input input = {read_source, t, size_of(t), t->path};
    bool ahead = !t->salvage && !t->window; /* a window may keep what it has read */
    ckpt_status status = !ahead ? ckpt__zip_open(&input, &t->zip, err) : ckpt__zip_open_ahead(&input, &t->zip, err);
    if (status < 0 && t->salvage)
        status = ckpt__torch_salvage_open(t, &input, status, err);
    if (status < 0)
        return status;
    status = read_opened(t, input.size, err);
    return settle(t, status, err);
}

void ckpt__torch_release(ckpt__torch *t)
{
    free(t->full);
    ckpt__pickle_free(&t->pickle);
    ckpt__zip_free(t->zip);
    ckpt__torch_legacy_free(t->legacy);
    ckpt__hash_free(t->by_key);
    ckpt__buf_free(&t->record_name);
    ckpt__buf_free(&t->own_pickle);
    free(t->by_record);
    ckpt__hash_free(t->nested_by);
    ckpt__hash_free(t->meshes);
    ckpt__torch_roles_free(t);
    free(t->nested);
    free(t->storages);
    free(t->work);
    free(t->pairs);
    ckpt__buf_free(&t->spelt);
    free(t->tensors);
    ckpt__arena_free(t->specs);
}

static ckpt_status read(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    *out = NULL;
    if (request->file == CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, request->source->path, "a directory; a torch checkpoint is a file");
    char path[1024];
    ckpt__torch t = {.source = request->source,
                     .file = request->file,
                     .salvage = request->salvage,
                     .twins = request->salvage ? NULL : request->twins};
    t.path = t.label = request->source->directory
                           ? ckpt__source_label(request->source, request->file, path, sizeof path)
                           : request->source->path;
    ckpt__source_scattered(t.source, t.file, !t.salvage); /* the records' headers, one every few megabytes */
    ckpt_status status = read_archive(&t, err);
    status = ckpt__index_refused(t.index, status, t.label, err);
    if (status == CKPT_OK && t.own_pickle.size)
        ckpt__twins_keep(t.twins, &t.own_pickle, t.big_endian, t.index);
    ckpt__torch_release(&t);
    ckpt__source_scattered(t.source, t.file, false);
    if (status < 0)
        ckpt__index_free(t.index);
    else
        *out = t.index;
    return status;
}

ckpt_status ckpt__torch_read_window(const ckpt__read_request *request, const ckpt__torch_window *window,
                                    ckpt__index **out, ckpt_error *err)
{
    ckpt__torch t = {.source = request->source,
                     .file = request->file,
                     .window = window,
                     .lent = request->arena,
                     .path = window->label,
                     .label = window->label};
    ckpt_status status = read_archive(&t, err);
    ckpt__torch_release(&t);
    if (status < 0)
        ckpt__index_free(t.index);
    *out = status < 0 ? NULL : t.index;
    return status;
}

const ckpt__format ckpt__format_torch = {
    .name = "torch",
    .suffix = ".pt",
    .bid = bid,
    .read = read,
    .write = ckpt__torch_write,
    .family = CKPT__FAMILY_TORCH,
    .laid_out = true,
    .torch_loads = true,
    .has_values = true,
};
