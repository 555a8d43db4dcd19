/* format/torch/salvage.c - archives of torch.save that were cut off, or whose directory is damaged. torch writes data.pkl
 * first (libtorch behind the storages), and it says which storages there are and how large they are: so every record whose
 * bytes are there is found again, and the rest is known by name. */
#include "format/torch/torch.h"

#include <stdlib.h>

/* Behind a record's data there is a descriptor, and padding is inside of headers. */
enum { NARROW_DESCRIPTOR = 16, WIDE_DESCRIPTOR = 24 };

ckpt_status ckpt__torch_salvage_open(ckpt__torch *t, const ckpt__zip_input *input, ckpt_status status, ckpt_error *err)
{
    ckpt_error second = CKPT_ERROR_INIT;
    uint64_t start = 0;
    bool two = false;
    if (status == CKPT_E_SYSTEM || status == CKPT_E_NO_MEMORY)
        return status;
    ckpt_status salvaged = ckpt__zip_start(input, &start, &two, &second);
    if (two)
        return status; /* two archives in one file: nothing says which of them is wanted */
    t->walked = true;
    if (salvaged != CKPT_E_NO_MEMORY)
        salvaged = ckpt__zip_salvage(input, "/data.pkl", &t->zip, &second);
    if (salvaged != CKPT_OK && salvaged != CKPT_E_NO_MEMORY)
        return status; /* the first message says more */
    if (salvaged < 0 && err)
        *err = second;
    return salvaged;
}

static ckpt_status read_source(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__torch *t = ctx;
    return ckpt__source_read(t->source, t->file, offset, dst, n, err);
}

static ckpt_status lost(const ckpt__torch *t, const char *why, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_DAMAGED, t->path,
                      "data.pkl, which says what the archive holds, %s: nothing can be recovered from this file", why);
}

ckpt_status ckpt__torch_salvage_pickle(ckpt__torch *t, const ckpt__zip_record *pickle, ckpt_error *err)
{
    if (!pickle)
        return lost(t, "is not there", err);
    if (!pickle->unsure)
        return CKPT_OK;
    uint64_t end = 0;
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt__pickle_input in = {read_source, t, pickle->data + pickle->csize};
    if (pickle->method != CKPT__ZIP_STORED || ckpt__pickle_measure(&in, pickle->data, t->path, &end, &ignored) < 0)
        return lost(t, "is cut off", err);
    /* Its end is that of what it is; but a descriptor that says the same was not found, nor was the file cut off there. */
    t->pickle_unsure = !pickle->has_crc && t->source->files[t->file].size - end >= NARROW_DESCRIPTOR;
    ckpt__zip_settle(t->zip, pickle, end - pickle->data);
    return CKPT_OK;
}

ckpt_status ckpt__torch_salvage_record(ckpt__torch *t, const ckpt__zip_record *r, uint64_t limit, ckpt__buf *b,
                                       ckpt_error *err)
{
    ckpt__zip_record copy = *r;
    char shown[256];
    bool small = !ckpt__str_ends(r->name, "/data.pkl");
    ckpt__escape(shown, sizeof shown, r->name.data, r->name.size);
    b->size = 0;
    copy.has_crc = false;
    ckpt_status status = ckpt__zip_read(t->zip, &copy, limit, b, err);
    if (status < 0 && !small)
        return lost(t, "is damaged", err);
    if (status < 0 || small) {
        b->size = 0;
        return status == CKPT_E_DAMAGED || status == CKPT_OK ? CKPT_OK : status;
    }
    if (!ckpt__report_add(
            t->index->findings, CKPT_SEVERITY_ERROR, "salvaged", NULL, NULL, /* nobody knows what was recovered */
            "'%s' has not the CRC-32 that it should have: names, shapes and values may have changed", shown))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

/* ---- the sizes of the storages */

typedef struct sizes {
    ckpt_str prefix; /* "archive/data/" */
    ckpt__hash *by_key;
    uint64_t *nbytes;
    size_t count, capacity;
} sizes;

static bool size_of(void *ctx, ckpt_str name, uint64_t *size)
{
    const sizes *s = ctx;
    size_t i, n = s->prefix.size;
    if (name.size <= n || memcmp(name.data, s->prefix.data, n) != 0 ||
        !ckpt__hash_get(s->by_key, name.data + n, name.size - n, &i))
        return false;
    *size = s->nbytes[i];
    return true;
}

/* Ids that are not right are refused later, where their tensor is read. */
static bool collect(ckpt__torch *t, sizes *s)
{
    for (size_t i = 0; i < t->pickle.persistent_count; i++) {
        ckpt__torch_id id;
        uint64_t nbytes;
        if (ckpt__torch_parse_id(t, t->pickle.persistents[i], &id, NULL) < 0 ||
            !ckpt__torch_storage_size(&id, id.numel, &nbytes))
            continue;
        if (!ckpt__grow(&s->nbytes, &s->capacity, s->count + 1, sizeof *s->nbytes))
            return false;
        int put = ckpt__hash_put(s->by_key, id.key.data, id.key.size, s->count, NULL);
        if (put < 0)
            return false;
        if (put == 1)
            s->nbytes[s->count++] = nbytes;
    }
    return true;
}

static bool is_script(const ckpt__pickle *p)
{
    for (size_t i = 0; i < p->global_count; i++)
        if (ckpt__str_begins(p->globals[i].module, "__torch__"))
            return true;
    return false;
}

ckpt_status ckpt__torch_salvage_rest(ckpt__torch *t, ckpt_error *err)
{
    ckpt__buf prefix = {0};
    ckpt__buf_add(&prefix, t->root.data, t->root.size);
    ckpt__buf_str(&prefix, "/data/");
    sizes s = {{prefix.data, prefix.size}, ckpt__hash_new(t->pickle.persistent_count), NULL, 0, 0};
    ckpt_status status = CKPT_OK;
    t->script = t->script || is_script(&t->pickle);
    if (prefix.failed || !s.by_key || !collect(t, &s))
        status = ckpt__torch_no_memory(t, err);
    if (status == CKPT_OK)
        status = ckpt__zip_salvage_rest(t->zip, size_of, &s, err);
    ckpt__buf_free(&prefix);
    ckpt__hash_free(s.by_key);
    free(s.nbytes);
    return status;
}

/* ---- a storage */

void ckpt__torch_salvage_place(ckpt__torch *t, const ckpt__zip_record *r, uint64_t nbytes, ckpt__torch_place *out)
{
    bool raw = r && r->unsure && r->method == CKPT__ZIP_STORED;
    uint64_t behind = raw && r->csize >= nbytes ? r->csize - nbytes : 0;
    /* With another record behind it: what is between must be a descriptor, though it may be a damaged one. At the end of
     * the file its size could not be confirmed; libtorch's may be larger than what the tensor needs. */
    bool at_end = raw && r->data + r->csize == t->source->files[t->file].size;
    uint64_t there = at_end && r->csize < nbytes ? r->csize : 0;
    bool wide = raw && (nbytes >= UINT32_MAX || r->header >= UINT32_MAX); /* and so are the descriptors there */
    bool whole =
        at_end ? t->script && r->csize >= nbytes : raw && behind == (wide ? WIDE_DESCRIPTOR : NARROW_DESCRIPTOR);
    /* The directory's CRC, of the whole record (libtorch's may be larger than what is read), tells it in any case. */
    bool told = raw && r->has_crc && !t->script;
    whole = whole || (told && r->csize >= nbytes);
    if (whole && raw && !told && !at_end && t->unconfirmed++ == 0)
        t->unconfirmed_first = r;
    out->extent = (ckpt__extent){.file = t->file,
                                 .big_endian = t->big_endian,
                                 .has_crc = whole && told,
                                 .crc = told ? r->crc : 0,
                                 .offset = r ? r->data : t->source->files[t->file].size,
                                 .length = whole ? nbytes : there,
                                 .size = nbytes,
                                 .missing = !whole && nbytes > 0};
}

/* Bytes that were put in or taken out move all that follows: what stands where a tensor should may be something else. */
static bool note_unconfirmed(const ckpt__torch *t)
{
    ckpt_report *to = t->index->findings;
    char name[200];
    if (t->pickle_unsure &&
        !ckpt__report_add(to, CKPT_SEVERITY_ERROR, "salvaged", NULL, NULL,
                          "no descriptor and no directory confirm %s: names, shapes and values may have changed",
                          t->label))
        return false;
    if (t->unconfirmed == 0)
        return true;
    ckpt__escape(name, sizeof name, t->unconfirmed_first->name.data, t->unconfirmed_first->name.size);
    return ckpt__report_add(
        to, CKPT_SEVERITY_ERROR, "salvaged", NULL, NULL,
        "no descriptor and no directory confirm the bytes of %zu storage%s, of the record '%s' first: they are "
        "kept as they lie there, and may be others",
        t->unconfirmed, t->unconfirmed == 1 ? "" : "s", name);
}

ckpt_status ckpt__torch_note_salvaged(ckpt__torch *t, ckpt_error *err)
{
    size_t missing = 0, n = t->index->storage_count;
    for (size_t i = 0; i < n; i++)
        missing += t->index->storages[i].extent.missing;
    const char *how = t->walked ? "its directory is lost or damaged, so its records were found by their headers"
                                : "its directory is whole";
    if ((missing || t->walked) &&
        !ckpt__report_add(t->index->findings, CKPT_SEVERITY_WARNING, "salvaged", NULL, NULL,
                          "the archive is cut off or damaged (%s): %zu of its %zu storages are not whole", how, missing,
                          n))
        return ckpt__torch_no_memory(t, err);
    return note_unconfirmed(t) ? CKPT_OK : ckpt__torch_no_memory(t, err);
}
