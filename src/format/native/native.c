/* format/native/native.c - the native format's entry in the table: its marker, its bid, and reading as a whole. */
#include "codec/crc32.h"
#include "format/native/native.h"
#include "model/visits.h"

#include <stdlib.h>

enum { MARKER_LEAST = 26 }; /* bytes of the marker, to tell: more than any other safetensors file shares with it */

uint32_t ckpt__native_crc(const char *bytes, size_t size)
{
    uint32_t crc = ckpt__crc32(0, bytes, CKPT__NATIVE_CRC_AT);
    crc = ckpt__crc32(crc, "00000000", 8);
    return ckpt__crc32(crc, bytes + CKPT__NATIVE_CRC_AT + 8, size - CKPT__NATIVE_CRC_AT - 8);
}

int ckpt__native_marker_errors(const unsigned char *head, size_t n)
{
    static const char marker[] = CKPT__NATIVE_START "00000000" CKPT__NATIVE_NEXT;
    int errors = 0;
    if (n < 8 + MARKER_LEAST)
        return -1;
    for (size_t i = 0; i < sizeof marker - 1 && 8 + i < n; i++) {
        bool digit = i + 8 >= CKPT__NATIVE_CRC_AT && i < CKPT__NATIVE_CRC_AT;
        errors += !digit && head[8 + i] != (unsigned char)marker[i];
    }
    return errors;
}

static int native_bid(const ckpt__probe *probe)
{
    int errors = ckpt__native_marker_errors(probe->head, probe->head_size);
    return errors < 0 || errors > CKPT__NATIVE_MARKER_ERRORS ? 0 : errors ? 95 : 100;
}

/* ---- the format */

/* Values that refer to tensors of another file of the checkpoint. */
static ckpt_status find_elsewhere(ckpt__native_reader *r, ckpt_error *err)
{
    ckpt__index *x = r->index;
    size_t missing = 0;
    if (r->elsewhere_count == 0)
        return CKPT_OK;
    ckpt__hash *names = ckpt__hash_new(x->tensor_count);
    int put = names ? 0 : -1;
    for (size_t i = 0; put >= 0 && i < x->tensor_count; i++)
        put = ckpt__hash_put(names, x->tensors[i].info.name.data, x->tensors[i].info.name.size, i, NULL);
    for (size_t i = 0; put >= 0 && i < r->elsewhere_count; i++) {
        ckpt_value *v = r->elsewhere[i].value;
        if (!ckpt__hash_get(names, r->elsewhere[i].name.data, r->elsewhere[i].name.size, &v->tensor)) {
            v->kind = CKPT_V_NONE;
            missing++;
        }
    }
    if (put >= 0 && missing &&
        !ckpt__report_add(x->findings, CKPT_SEVERITY_WARNING, "tensor-elsewhere", NULL,
                          "open the directory, not one file of it",
                          "values refer to tensors that lie in another file of the checkpoint: %zu", missing))
        put = -1;
    ckpt__hash_free(names);
    return put < 0 ? ckpt__fail_memory(err, "names", 0) : CKPT_OK;
}

/* The key path of each tensor that the value tree holds under its own name. One value may stand in several places, and
 * then has a record for each: so records are found by name where the value's own has another. */
typedef struct paths {
    ckpt__index *x;
    ckpt__hash *names;   /* made when first needed */
    uint64_t names_left; /* bytes that the names of values may still have */
    ckpt_error *err;
} paths;

static ckpt_tensor_info *record_at(paths *p, const ckpt_visit *visit, bool *no_memory)
{
    ckpt__index *x = p->x;
    ckpt_tensor_info *own = &x->tensors[visit->value->tensor].info;
    size_t number;
    if (ckpt__str_equal(own->name, visit->name))
        return own;
    if (!p->names) {
        p->names = ckpt__hash_new(x->tensor_count);
        for (size_t i = 0; p->names && i < x->tensor_count; i++)
            if (ckpt__hash_put(p->names, x->tensors[i].info.name.data, x->tensors[i].info.name.size, i, NULL) < 0)
                *no_memory = true;
    }
    *no_memory |= !p->names;
    if (*no_memory || !ckpt__hash_get(p->names, visit->name.data, visit->name.size, &number))
        return NULL;
    return &x->tensors[number].info;
}

static int set_path(void *ctx, const ckpt_visit *visit)
{
    paths *p = ctx;
    bool no_memory = false;
    if (visit->name.size > p->names_left)
        return ckpt__value_names_over("values", p->err);
    p->names_left -= visit->name.size;
    if (visit->value->kind != CKPT_V_TENSOR)
        return 0;
    ckpt_tensor_info *info = record_at(p, visit, &no_memory);
    if (!info || info->path.count)
        return no_memory ? CKPT_E_NO_MEMORY : 0;
    return ckpt__visit_path(p->x->arena, visit, &info->path) ? 0 : CKPT_E_NO_MEMORY;
}

/* What is too large to walk here is so for all that would look at the values later. */
static ckpt_status set_paths(const ckpt__native_reader *r, ckpt_error *err)
{
    uint64_t size = 0;
    for (size_t i = 0; i < r->source->count; i++)
        size += r->source->files[i].size;
    paths p = {.x = r->index, .names_left = ckpt__names_limit(size), .err = err};
    int status = p.x->root ? ckpt_value_walk(p.x->root, ckpt__visits_limit(size), set_path, &p, err) : 0;
    ckpt__hash_free(p.names);
    return status == CKPT_E_NO_MEMORY ? ckpt__fail_memory(err, "paths", 0) : (ckpt_status)status;
}

static ckpt_status read_one(const ckpt__read_request *request, ckpt__native_reader *r, ckpt_error *err)
{
    const ckpt_str none = {NULL, 0};
    ckpt_status status;
    if (request->file == CKPT__WHOLE_DIRECTORY)
        status = ckpt__native_read_step(r, err);
    else
        status = ckpt__native_read_file(r, request->file, none, &r->index->step, err);
    if (status == CKPT_OK)
        status = find_elsewhere(r, err);
    if (status == CKPT_OK)
        status = set_paths(r, err);
    if (status == CKPT_OK)
        status = ckpt__index_finish(r->index, err);
    free(r->elsewhere);
    return status;
}

static ckpt__native_reader new_reader(const ckpt__read_request *request)
{
    return (ckpt__native_reader){.source = request->source,
                                 .index = ckpt__index_new(ckpt__known_limit(0, false)),
                                 .salvage = request->salvage,
                                 .survey = request->survey};
}

static ckpt_status give(const ckpt__read_request *request, ckpt__index *x, ckpt_status status, ckpt__index **out,
                        ckpt_error *err)
{
    if (status < 0) {
        status = ckpt__index_refused(x, status, request->source->path, err);
        ckpt__index_free(x);
        return status;
    }
    x->format = "ckpt";
    x->kind = request->file == CKPT__WHOLE_DIRECTORY ? "directory" : "file";
    *out = x;
    return CKPT_OK;
}

ckpt_status ckpt__native_read_root(const ckpt__read_request *request, size_t root, ckpt__index **out, ckpt_error *err)
{
    ckpt__native_reader r = new_reader(request);
    r.rooted = true;
    r.root = root;
    return r.index ? give(request, r.index, read_one(request, &r, err), out, err) : ckpt__fail_memory(err, "index", 0);
}

static ckpt_status native_read(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    ckpt__native_reader r = new_reader(request);
    if (!r.index)
        return ckpt__fail_memory(err, "index", 0);
    bool several = request->file == CKPT__WHOLE_DIRECTORY && request->source->also_count &&
                   ckpt__native_has_ranks(request->source);
    ckpt_status status = several ? ckpt__native_read_ranks(request, r.index, err) : read_one(request, &r, err);
    return give(request, r.index, status, out, err);
}

static int native_or_step_bid(const ckpt__probe *probe)
{
    return probe->directory ? ckpt__native_bid_step(probe) : native_bid(probe);
}

static bool owns(const char *name)
{
    return strcmp(name, "checkpoint.json") == 0;
}

const ckpt__format ckpt__format_native = {
    .name = "ckpt",
    .suffix = ".safetensors",
    .bid = native_or_step_bid,
    .read = native_read,
    .write = ckpt__native_write,
    .family = CKPT__FAMILY_NATIVE,
    .canonical = true,
    .bound = true,
    .holds_state = true,
    .tags_tensors = true,
    .own_loader = true,
    .no_python =
        "no Python program reads this format, so there is no resume in Python: ckpt-migrate --to torch makes a "
        "file that torch reads, and for that there is one; in C there is one for this",
    .joins_files = true,
    .has_manifest = true,
    .keeps_torch = true,
    .parts_alone = true,
    .owns = owns,
};

/* A foreign "ckpt" in the metadata is only ours when it looks like our document. */
static bool is_ours(const ckpt_value *metadata)
{
    const ckpt_value *crc = ckpt_value_get(metadata, "ckpt.crc32"), *document = ckpt_value_get(metadata, "ckpt");
    return crc || (document && document->kind == CKPT_V_STR && ckpt__has_prefix(document->text, "{\"version\":["));
}

ckpt_status ckpt__native_disown(const ckpt__index *x, const char *label, ckpt_error *err)
{
    const ckpt_value *metadata = x->root ? ckpt_value_get(x->root, "__metadata__") : NULL;
    if (!metadata || !is_ours(metadata))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_DAMAGED, label,
        "its metadata has the keys of the ckpt format, but not where that format has them: damaged, or rewritten "
        "by a tool that kept our metadata (--from safetensors reads its tensors)");
}
