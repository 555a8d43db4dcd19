/* format/keras/keras.c - files of Keras: a .keras archive is a zip of metadata.json, config.json and model.weights.h5 (and of
 * assets, which are no state); weight files and those of Keras 2 are HDF5. */
#include "format/keras/keras.h"

#include <stdlib.h>
#include "codec/zip.h"
#include "format/native/json_values.h"
#include "format/safetensors.h"

static const char weights_name[] = CKPT__KERAS_WEIGHTS, config_name[] = CKPT__KERAS_CONFIG,
                  metadata_name[] = CKPT__KERAS_METADATA;
static const unsigned char signature[8] = "\x89HDF\r\n\x1a\n";
enum { JSON_MAX = 64 << 20 };

ckpt_status ckpt__keras_put(ckpt__index *index, ckpt__keras_values *values, ckpt_str key, const ckpt_value *value,
                            ckpt_error *err)
{
    ckpt_value *k = ckpt__value_new(index->arena, CKPT_V_STR);
    if (!k || !ckpt__arena_grow(index->arena, &values->entries, &values->capacity, values->count + 1,
                                sizeof *values->entries))
        return ckpt__fail_memory(err, "values", values->count);
    k->text = key;
    if (!ckpt__utf8_valid(key.data, key.size))
        k->kind = CKPT_V_BYTES;
    values->entries[values->count++] = (ckpt_entry){k, value};
    return CKPT_OK;
}

/* ---- the archive */

typedef struct archive {
    const ckpt__read_request *request;
    ckpt__index *index;
    ckpt__keras_values *values;
    const char *label;
    ckpt__zip *zip;
} archive;

static ckpt_status read_source(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__read_request *r = ctx;
    return ckpt__source_read(r->source, r->file, offset, dst, n, err);
}

static const ckpt__zip_record *find(const ckpt__zip *zip, const char *name)
{
    const ckpt__zip_record *r = ckpt__zip_find(zip, name, strlen(name));
    return r && !r->folder && ckpt__str_is(r->name, name) ? r : NULL;
}

static ckpt_status read_json(archive *a, const char *name, ckpt_error *err)
{
    const ckpt__zip_record *r = find(a->zip, name);
    ckpt__buf text = {0};
    const ckpt_value *value = NULL;
    if (!r)
        return CKPT_OK;
    ckpt_status status = ckpt__zip_read(a->zip, r, JSON_MAX, &text, err);
    ckpt__arena_allow(a->index->arena, ckpt__known_limit(text.size, true));
    if (status == CKPT_OK)
        status = ckpt__json_values(text.data ? text.data : "", text.size, name, a->index->arena, &value, err);
    if (status == CKPT_OK && r->has_crc)
        a->index->metadata_bytes += r->usize;
    ckpt__buf_free(&text);
    return status == CKPT_OK ? ckpt__keras_put(a->index, a->values, ckpt__s(name), value, err) : status;
}

/* A zip tool may have deflated the weights: they are inflated into memory, where that is no more than such a file may ask for. */
static ckpt_status inflate(archive *a, const ckpt__zip_record *r, ckpt__h5_input *in, ckpt_error *err)
{
    ckpt__buf bytes = {0};
    uint64_t limit = ckpt__inflated_limit(a->request->source->files[a->request->file].size, false);
    ckpt_status status = ckpt__zip_read(a->zip, r, limit, &bytes, err);
    if (status == CKPT_E_LIMIT)
        ckpt__error_prefix(err,
                           "the weights are compressed in the archive, which Keras does not do: unpack it and give "
                           "model.weights.h5 itself");
    ckpt__arena_allow(a->index->arena, status == CKPT_OK ? bytes.size : 0);
    in->memory = status == CKPT_OK ? (const unsigned char *)ckpt__arena_copy(a->index->arena,
                                                                             bytes.data ? bytes.data : "", bytes.size)
                                   : NULL;
    if (status == CKPT_OK && !in->memory)
        status = ckpt__fail_memory(err, weights_name, bytes.size);
    ckpt__buf_free(&bytes);
    return status;
}

static ckpt_status add_span(archive *a, const ckpt__zip_record *r, ckpt_str name, ckpt_error *err)
{
    const ckpt__extent extent = {.file = a->request->file,
                                 .coding = r->method == CKPT__ZIP_DEFLATED ? CKPT__DEFLATE : CKPT__STORED,
                                 .has_crc = true,
                                 .crc = r->crc,
                                 .offset = r->data,
                                 .length = r->csize,
                                 .size = r->usize};
    return ckpt__index_add_span(a->index, &extent, name) ? CKPT_OK : ckpt__fail_memory(err, a->label, r->usize);
}

static ckpt_status read_weights(archive *a, ckpt_error *err)
{
    const ckpt__zip_record *r = find(a->zip, weights_name);
    if (!r)
        return ckpt__fail(err, find(a->zip, "model.weights.npz") ? CKPT_E_UNSUPPORTED : CKPT_E_FORMAT, a->label,
                          find(a->zip, "model.weights.npz")
                              ? "a Keras archive whose weights are in the member model.weights.npz, which this version "
                                "does not read: save it without weights_format=\"npz\""
                              : "a Keras archive without the member model.weights.h5, so without weights");
    ckpt__h5_input in = {
        .source = a->request->source, .file = a->request->file, .offset = r->data, .size = r->usize, .label = a->label};
    ckpt_status status = r->method == CKPT__ZIP_DEFLATED ? inflate(a, r, &in, err) : CKPT_OK;
    if (status == CKPT_OK && r->has_crc)
        status = add_span(a, r, ckpt__s(weights_name), err);
    in.spanned = status == CKPT_OK && r->has_crc;
    in.span = in.spanned ? (uint32_t)(a->index->span_count - 1) : 0;
    return status == CKPT_OK ? ckpt__h5_read(&in, a->index, a->values, err) : status;
}

/* What else is in it (the words of a text layer, say) is no state, but a verification looks at it. The JSON was compared as it was
 * read. */
static ckpt_status add_others(archive *a, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < ckpt__zip_count(a->zip); i++) {
        const ckpt__zip_record *r = ckpt__zip_at(a->zip, i);
        if (r->folder || !r->has_crc || r == find(a->zip, weights_name) || r == find(a->zip, metadata_name) ||
            r == find(a->zip, config_name))
            continue;
        ckpt_str name = ckpt__arena_str(a->index->arena, r->name.data, r->name.size);
        status = name.data ? add_span(a, r, name, err) : ckpt__fail_memory(err, a->label, r->name.size);
    }
    return status;
}

static ckpt_status read_archive(archive *a, ckpt_error *err)
{
    uint64_t size = a->request->source->files[a->request->file].size;
    const ckpt__zip_input input = {read_source, (void *)(uintptr_t)a->request, size, a->label};
    ckpt_status status = ckpt__zip_open(&input, &a->zip, err);
    if (status == CKPT_OK)
        status = read_json(a, metadata_name, err);
    if (status == CKPT_OK)
        status = read_json(a, config_name, err);
    if (status == CKPT_OK)
        status = read_weights(a, err);
    if (status == CKPT_OK)
        status = add_others(a, err);
    ckpt__zip_free(a->zip);
    return status;
}

/* ---- files */

static bool is_hdf5(const unsigned char *head, size_t n)
{
    return n >= sizeof signature && memcmp(head, signature, sizeof signature) == 0;
}

static ckpt_status read_file(const ckpt__read_request *request, const char *label, ckpt__index *x,
                             ckpt__keras_values *values, ckpt_error *err)
{
    unsigned char head[sizeof signature];
    uint64_t size = request->source->files[request->file].size;
    size_t n = size < sizeof head ? (size_t)size : sizeof head;
    ckpt_status status = ckpt__source_read(request->source, request->file, 0, head, n, err);
    if (status < 0)
        return status;
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) {
        archive a = {.request = request, .index = x, .values = values, .label = label};
        return read_archive(&a, err);
    }
    if (!is_hdf5(head, n) && ckpt__ends(request->source->files[request->file].name, ".weights.json"))
        return ckpt__keras_read_map(request, x, values, err);
    if (!is_hdf5(head, n))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "neither a Keras archive (a zip) nor an HDF5 file");
    ckpt__h5_input in = {.source = request->source, .file = request->file, .size = size, .label = label};
    return ckpt__h5_read(&in, x, values, err);
}

/* A value and a tensor, or two values, of one name would hide each other. */
static ckpt_status check_names(const ckpt__index *x, const ckpt__keras_values *values, const char *label,
                               ckpt_error *err)
{
    ckpt__hash *names = ckpt__hash_new(x->tensor_count + values->count);
    int put = names ? 1 : -1;
    ckpt_str name = {NULL, 0};
    for (size_t i = 0; put > 0 && i < x->tensor_count + values->count; i++) {
        name = i < x->tensor_count ? x->tensors[i].info.name : values->entries[i - x->tensor_count].key->text;
        put = ckpt__hash_put(names, name.data, name.size, i, NULL);
    }
    ckpt__hash_free(names);
    char text[200];
    if (put < 0)
        return ckpt__fail_memory(err, "names", x->tensor_count);
    if (put == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "'%s' is there twice, as tensors or values of one name",
                          ckpt__escape(text, sizeof text, name.data, name.size));
    return CKPT_OK;
}

/* The root is one dict: tensors by their paths, then values. A group is no dict of its own: its name and its attributes would not
 * go together in one. */
static ckpt_status make_root(ckpt__index *x, const ckpt__keras_values *values, ckpt_error *err)
{
    size_t count = x->tensor_count + values->count;
    ckpt_entry *entries = ckpt__arena_array(x->arena, count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < x->tensor_count; i++) {
        ckpt_tensor_info *t = &x->tensors[i].info;
        ckpt_key *key = ckpt__arena_alloc(x->arena, sizeof *key);
        ckpt_value *name = ckpt__value_new(x->arena, CKPT_V_STR), *value = ckpt__value_new(x->arena, CKPT_V_TENSOR);
        if (!key || !name || !value)
            return ckpt__fail_memory(err, "tensors", x->tensor_count);
        key->text = name->text = t->name;
        value->tensor = i;
        t->path = (ckpt_path){key, 1};
        entries[i] = (ckpt_entry){name, value};
    }
    if (entries && values->count)
        memcpy(entries + x->tensor_count, values->entries, values->count * sizeof *entries);
    x->root = entries ? ckpt__value_dict(x->arena, entries, count) : NULL;
    return x->root ? CKPT_OK : ckpt__fail_memory(err, "values", values->count);
}

static ckpt_status finish(ckpt__index *x, const ckpt__keras_values *values, const char *label, ckpt_error *err)
{
    ckpt_status status = check_names(x, values, label, err);
    if (status == CKPT_OK)
        status = ckpt__keras_roles(x, values, err);
    if (status == CKPT_OK)
        status = make_root(x, values, err);
    return status == CKPT_OK ? ckpt__index_finish(x, err) : status;
}

static ckpt_status keras_read(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    const ckpt__source *source = request->source;
    bool directory = request->file == CKPT__WHOLE_DIRECTORY;
    char label[256];
    if (directory)
        ckpt__escape(label, sizeof label, source->path, strlen(source->path));
    else
        ckpt__source_label(source, request->file, label, sizeof label);
    uint64_t limit = ckpt__known_limit(directory ? 0 : source->files[request->file].size, source->directory);
    ckpt__index *x = request->arena ? ckpt__index_new_part(request->arena) : ckpt__index_new(limit);
    ckpt__keras_values values = {0};
    if (!x)
        return ckpt__fail_memory(err, "index", 0);
    x->format = "keras";
    ckpt_status status =
        directory ? ckpt__keras_read_directory(request, x, &values, err) : read_file(request, label, x, &values, err);
    if (status == CKPT_OK)
        status = finish(x, &values, label, err);
    ckpt__arena_discharge(x->arena, values.capacity * sizeof *values.entries);
    free(values.entries);
    if (status < 0) {
        ckpt__st_blame(err, label);
        status = ckpt__index_refused(x, status, label, err);
        ckpt__index_free(x);
        return status;
    }
    *out = x;
    return CKPT_OK;
}

/* ---- bids */

static ckpt_status read_probed(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__probe *p = ctx;
    return ckpt__source_read(p->source, p->file, offset, dst, n, err);
}

/* The members in any order, after a zip tool. */
static bool has_members(const ckpt__probe *probe)
{
    ckpt__probe copy = *probe;
    const ckpt__zip_input in = {read_probed, &copy, probe->file_size, "archive"};
    ckpt__zip *zip = NULL;
    bool is = probe->source && ckpt__zip_open(&in, &zip, NULL) == CKPT_OK && find(zip, config_name) &&
              (find(zip, weights_name) || find(zip, metadata_name));
    ckpt__zip_free(zip);
    return is;
}

static int keras_bid(const ckpt__probe *probe)
{
    enum { SURE = 100, LIKELY = 95, LOCAL_HEADER = 30 };
    if (probe->directory)
        return ckpt__keras_bid_directory(probe);
    if (is_hdf5(probe->head, probe->head_size))
        return SURE;
    if (ckpt__keras_is_map(probe))
        return LIKELY;
    if (probe->head_size < LOCAL_HEADER || memcmp(probe->head, "PK\3\4", 4) != 0)
        return 0;
    size_t n = (size_t)probe->head[26] | (size_t)probe->head[27] << 8;
    ckpt_str first = {(const char *)probe->head + LOCAL_HEADER, n};
    if (n > probe->head_size - LOCAL_HEADER || ckpt__str_ends(first, "/data.pkl"))
        return 0;
    if (ckpt__str_is(first, metadata_name) || ckpt__str_is(first, config_name) || ckpt__str_is(first, weights_name))
        return LIKELY;
    return ckpt__str_begins(first, "assets/") && has_members(probe) ? LIKELY : 0;
}

/* .h5 alone is anybody's. */
static bool owns(const char *name)
{
    return ckpt__ends(name, ".keras") || ckpt__ends(name, ".weights.h5") || ckpt__ends(name, ".weights.json");
}

/* Those of a model that was saved unpacked were read: they are no settings of transformers. */
static bool owns_beside(const ckpt__index *index, const char *name)
{
    return ckpt_value_get(index->root, name) && (strcmp(name, config_name) == 0 || strcmp(name, metadata_name) == 0);
}

const ckpt__format ckpt__format_keras = {
    .name = "keras",
    .suffix = ".keras",
    .bid = keras_bid,
    .read = keras_read,
    .family = CKPT__FAMILY_KERAS,
    .own_loader = true,
    .no_python =
        "torch does not read this, Keras does: keras.models.load_model of what model.save wrote (with the optimizer), "
        "model.load_weights of weights, into a model that is built as it was; that call is the "
        "whole resume. ckpt-migrate --to torch makes a file that torch reads; in C there is a resume for this",
    .joins_files = true,
    .owns = owns,
    .owns_beside = owns_beside,
};
