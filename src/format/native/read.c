/* format/native/read.c - one native file into an index. The checksum over length and header comes first: what is
 * parsed after it was written by us, or by somebody who took the trouble, and is checked as if by the latter. */
#include "codec/crc32.h"
#include "format/native/native.h"

#include <stdlib.h>

enum { VERSION, REQUIRES, STEP, DTYPES, NAMES, ALIASES, COLUMNS, CRC32, ROOT, MEMBERS };
static const char *const member_names[MEMBERS] = {"version", "requires", "step",  "dtypes", "names",
                                                  "aliases", "columns",  "crc32", "root"};

typedef struct native_file {
    ckpt__native_reader *r;
    ckpt__index *x;
    uint32_t file;
    char label[256];
    ckpt__st_header h;
    ckpt_str member[MEMBERS];
    size_t storages, records; /* of the index, before this file */
    size_t users, count;      /* records of this file without and with aliases */
    size_t blob_count;
    size_t *blob_entry; /* blob -> 1 + its entry; 0: there is none, or it was taken */
} native_file;

/* ---- the marker and the checksum */

/* Length, marker and checksum. */
static ckpt_status check_header(native_file *f, ckpt_error *err)
{
    const ckpt__st_header *h = &f->h;
    char digits[9] = "", wanted[9] = "";
    uint32_t stored, computed;
    if (h->size < CKPT__NATIVE_PREFIX ||
        ckpt__native_marker_errors((const unsigned char *)h->bytes, CKPT__NATIVE_PREFIX) != 0)
        return ckpt__fail(err, CKPT_E_DAMAGED, f->label, "its header does not begin with the marker of the format");
    computed = ckpt__native_crc(h->bytes, (size_t)h->size);
    memcpy(digits, h->bytes + CKPT__NATIVE_CRC_AT, 8);
    ckpt__hex_crc(wanted, computed);
    if (ckpt__hex_crc_get(digits, &stored) && stored == computed)
        return CKPT_OK;
    ckpt__escape(digits, sizeof digits, h->bytes + CKPT__NATIVE_CRC_AT, 8);
    return ckpt__fail(err, CKPT_E_DAMAGED, f->label, "its header has the checksum %s, computed %s", digits, wanted);
}

/* Reads the header. Whatever is wrong with it is damage, since the marker says that the file is ours. */
static ckpt_status load(native_file *f, ckpt_error *err)
{
    const ckpt__file *file = &f->r->source->files[f->file];
    unsigned char head[CKPT__NATIVE_PREFIX];
    size_t n = file->size < sizeof head ? (size_t)file->size : sizeof head;
    ckpt_status status = ckpt__source_read(f->r->source, f->file, 0, head, n, err);
    if (status < 0)
        return status;
    int errors = ckpt__native_marker_errors(head, n);
    if (errors < 0 || errors > CKPT__NATIVE_MARKER_ERRORS)
        return ckpt__fail(err, CKPT_E_FORMAT, f->label,
                          "not a ckpt file: its header does not begin with the marker of the format");
    status = ckpt__st_load(f->r->source, f->file, &f->h, err);
    if (status == CKPT_OK)
        return check_header(f, err);
    if (status == CKPT_E_FORMAT && err)
        err->status = CKPT_E_DAMAGED;
    return status == CKPT_E_FORMAT ? CKPT_E_DAMAGED : status;
}

/* A wrong checksum over a sound structure is more likely another tool's doing than damage. */
static ckpt_status maybe_rewritten(native_file *f, uint64_t file_size, ckpt_status status, ckpt_error *err)
{
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt__arena *names = ckpt__arena_new(0);
    ckpt_report *findings = ckpt_report_new();
    if (status == CKPT_E_DAMAGED && f->h.bytes && names && findings && err &&
        ckpt__st_parse(&f->h, file_size, f->label, names, findings, &ignored) == CKPT_OK) {
        size_t n = strlen(err->message);
        static const char more[] =
            ": damaged, or rewritten by a tool that kept our metadata (--from safetensors reads its tensors)";
        if (n + sizeof more <= sizeof err->message)
            memcpy(err->message + n, more, sizeof more);
    }
    ckpt__arena_free(names);
    ckpt_report_free(findings);
    return status;
}

/* ---- the document */

static ckpt_status wrong(const native_file *f, ckpt_error *err, const char *what)
{
    return ckpt__fail(err, CKPT_E_FORMAT, f->label, "in its ckpt document: %s", what);
}

static void start(const native_file *f, int member, ckpt__json *j)
{
    ckpt__json_start(j, f->member[member].data, f->member[member].size, CKPT__NATIVE_DEPTH, member_names[member]);
}

static ckpt_status check_version(native_file *f, ckpt_error *err)
{
    ckpt__json j;
    int64_t major = 0, minor = 0;
    if (!f->member[VERSION].data)
        return wrong(f, err, "no \"version\"");
    start(f, VERSION, &j);
    ckpt_status status = ckpt__json_expect(&j, CKPT__JSON_ARRAY, err);
    if (status == CKPT_OK)
        status = ckpt__json_int(&j, &major, err);
    if (status == CKPT_OK)
        status = ckpt__json_int(&j, &minor, err);
    if (status == CKPT_OK && (major < 1 || minor < 0))
        status = wrong(f, err, "a version below 1.0");
    if (status == CKPT_OK && major > CKPT__NATIVE_MAJOR)
        status =
            ckpt__fail(err, CKPT_E_TOO_NEW, f->label, "format version %lld.%lld; this library reads %d.x: update it",
                       (long long)major, (long long)minor, CKPT__NATIVE_MAJOR);
    return status;
}

/* This version knows no requirement at all. */
static ckpt_status check_requires(native_file *f, ckpt_error *err)
{
    ckpt__json j;
    ckpt__buf scratch = {0};
    char text[96];
    if (!f->member[REQUIRES].data)
        return CKPT_OK;
    start(f, REQUIRES, &j);
    ckpt_status status = ckpt__json_expect(&j, CKPT__JSON_ARRAY, err);
    if (status == CKPT_OK && ckpt__json_next(&j, err) != CKPT__JSON_ARRAY_END) {
        ckpt_str item = {NULL, 0};
        if (j.event == CKPT__JSON_STRING)
            item = ckpt__json_text(&j, &scratch);
        status = item.data
                     ? ckpt__fail(err, CKPT_E_TOO_NEW, f->label,
                                  "it requires '%s', which this version (%d.%d) does not know: update the library",
                                  ckpt__escape(text, sizeof text, item.data, item.size), CKPT__NATIVE_MAJOR,
                                  CKPT__NATIVE_MINOR)
                     : wrong(f, err, "\"requires\" must be a list of strings");
    }
    ckpt__buf_free(&scratch);
    return status;
}

static ckpt_status get_step(native_file *f, int64_t *step, ckpt_error *err)
{
    ckpt__json j;
    *step = -1;
    if (!f->member[STEP].data)
        return CKPT_OK;
    start(f, STEP, &j);
    ckpt_status status = ckpt__json_int(&j, step, err);
    return status == CKPT_OK && *step < 0 ? wrong(f, err, "a negative \"step\"") : status;
}

/* ---- entries: storages and the users' tensors */

/* The n of "ckpt.blob.<n>"; -1 where the rest is not a plain number. */
static int64_t own_number(ckpt_str name, const char *prefix)
{
    int64_t n = -1;
    size_t skip = strlen(prefix);
    return name.size > skip && name.size <= skip + 9 && name.data[skip] != '-' &&
                   ckpt__parse_i64(name.data + skip, name.size - skip, &n)
               ? n
               : -1;
}

static ckpt_status note_blob(native_file *f, size_t i, ckpt_error *err)
{
    const ckpt__st_entry *e = &f->h.entries[i];
    int64_t n = own_number(e->name, CKPT__NATIVE_BLOB);
    if (n < 0 || (size_t)n >= f->h.count || f->blob_entry[n] || e->ndim != 1)
        return wrong(f, err, "a blob whose number, or shape, cannot be");
    f->blob_entry[n] = i + 1;
    return CKPT_OK;
}

static ckpt_status add_entries(native_file *f, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    f->blob_entry = calloc(f->h.count + 1, sizeof *f->blob_entry);
    if (!f->blob_entry)
        return ckpt__fail_memory(err, "blobs", f->h.count * sizeof *f->blob_entry);
    if (!ckpt__index_reserve(f->x, f->h.count, f->h.count))
        return ckpt__fail_memory(err, "tensors", f->h.count * sizeof *f->x->tensors);
    for (size_t i = 0; status == CKPT_OK && i < f->h.count; i++) {
        const ckpt__st_entry *e = &f->h.entries[i];
        size_t storage;
        if (e->position != i)
            return wrong(f, err, "the entries of the header are not in data order");
        status = ckpt__st_add_storage(f->x, &f->h, e, f->file, e->dtype, &storage, err);
        if (status < 0 || ckpt__has_prefix(e->name, CKPT__NATIVE_STORAGE))
            continue;
        if (ckpt__has_prefix(e->name, CKPT__NATIVE_BLOB)) {
            status = note_blob(f, i, err);
            continue;
        }
        ckpt__tensor *t = ckpt__index_add_tensor(f->x);
        if (!t)
            return ckpt__fail_memory(err, "tensors", f->x->tensor_count * sizeof *t);
        t->info.name = e->name;
        t->info.dtype = e->dtype;
        t->info.ndim = e->ndim;
        status = ckpt__index_set_view(f->x, f->x->tensor_count - 1, storage, e->shape, NULL, 0, err);
    }
    f->users = f->x->tensor_count - f->records;
    return status;
}

static ckpt_status get_crcs(native_file *f, ckpt_error *err)
{
    ckpt__json j;
    ckpt__buf scratch = {0};
    ckpt_str digits = {NULL, 0};
    if (!f->member[CRC32].data)
        return wrong(f, err, "no \"crc32\"");
    start(f, CRC32, &j);
    ckpt_status status = ckpt__json_string(&j, &scratch, &digits, err);
    if (status == CKPT_OK && digits.size != 8 * f->h.count)
        status = wrong(f, err, "\"crc32\" is not 8 digits for every entry of the header");
    for (size_t i = 0; status == CKPT_OK && i < f->h.count; i++) {
        ckpt__extent *extent = &f->x->storages[f->storages + i].extent;
        if (!ckpt__hex_crc_get(digits.data + 8 * i, &extent->crc))
            status = wrong(f, err, "\"crc32\" holds something other than lower-case hexadecimal digits");
        extent->has_crc = true;
    }
    for (size_t i = f->records; status == CKPT_OK && i < f->records + f->users; i++) {
        ckpt__tensor *t = &f->x->tensors[i];
        t->has_crc = true;
        t->crc = f->x->storages[t->storage].extent.crc;
    }
    ckpt__buf_free(&scratch);
    return status;
}

/* ---- true dtypes and names, aliases */

/* An array of integers >= 0 into the arena. */
static ckpt_status get_sizes(native_file *f, ckpt__json *j, const int64_t **out, uint32_t *count, ckpt_error *err)
{
    int64_t *sizes = NULL;
    size_t n = 0, capacity = 0;
    ckpt_status status = ckpt__json_expect(j, CKPT__JSON_ARRAY, err);
    while (status == CKPT_OK && ckpt__json_next(j, err) != CKPT__JSON_ARRAY_END) {
        if (j->event == CKPT__JSON_ERROR)
            status = j->status;
        else if (n == CKPT__NDIM_MAX)
            status = wrong(f, err, "a shape of more than 1024 dimensions");
        else if (!ckpt__grow(&sizes, &capacity, n + 1, sizeof *sizes))
            status = ckpt__fail_memory(err, "shape", n * sizeof *sizes);
        else if ((status = ckpt__json_this_int(j, &sizes[n], err)) == CKPT_OK && sizes[n++] < 0)
            status = wrong(f, err, "a negative number in a shape");
    }
    if (status == CKPT_OK) {
        *out = (const int64_t *)(const void *)ckpt__arena_copy(f->x->arena, (const char *)sizes, n * sizeof *sizes);
        *count = (uint32_t)n;
        status = *out ? CKPT_OK : ckpt__fail_memory(err, "shape", n * sizeof *sizes);
    }
    free(sizes);
    return status;
}

static ckpt_status get_dtype(native_file *f, ckpt__json *j, ckpt_dtype *out, ckpt_error *err)
{
    ckpt__buf scratch = {0};
    ckpt_str s;
    char name[32] = "";
    ckpt_status status = ckpt__json_string(j, &scratch, &s, err);
    if (status == CKPT_OK && s.size < sizeof name)
        memcpy(name, s.data, s.size);
    ckpt__buf_free(&scratch);
    *out = ckpt_dtype_from_name(name);
    return status == CKPT_OK && *out == CKPT_DTYPE_NONE ? wrong(f, err, "a dtype that this version does not know")
                                                        : status;
}

static ckpt_status get_record(native_file *f, ckpt__json *j, size_t *record, ckpt_error *err)
{
    int64_t n = 0;
    ckpt_status status = ckpt__json_int(j, &n, err);
    if (status == CKPT_OK && (n < 0 || (uint64_t)n >= f->users))
        status = wrong(f, err, "a record number past the last tensor");
    *record = (size_t)n + f->records;
    return status;
}

/* [record,"complex32",[2,3]]: the bytes are stored as U8. */
static ckpt_status get_true_dtype(native_file *f, ckpt__json *j, ckpt_error *err)
{
    size_t record;
    const int64_t *shape = NULL;
    ckpt_dtype dtype = CKPT_DTYPE_NONE;
    uint32_t ndim = 0;
    uint64_t numel, nbytes;
    ckpt_status status = get_record(f, j, &record, err);
    if (status == CKPT_OK)
        status = get_dtype(f, j, &dtype, err);
    if (status == CKPT_OK)
        status = get_sizes(f, j, &shape, &ndim, err);
    if (status < 0)
        return status;
    ckpt__tensor *t = &f->x->tensors[record];
    size_t storage = t->storage;
    uint64_t stored = f->x->storages[storage].extent.size;
    unsigned bits = ckpt_dtype_bits(dtype);
    /* PyTorch pads the rows of its packed quantized tensors: they may be longer than their elements. */
    if (t->info.dtype != CKPT_U8 || !ckpt__numel(shape, ndim, &numel) || !ckpt__nbytes(numel, bits, &nbytes) ||
        (bits % 8 ? nbytes > stored : nbytes != stored))
        return wrong(f, err, "a true dtype and shape that do not come to the bytes stored");
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    f->x->storages[storage].unit = ckpt__dtype_row_of(dtype)->unit;
    status = ckpt__index_set_view(f->x, record, storage, shape, NULL, 0, err);
    t->info.nbytes = stored;
    return status;
}

static ckpt_status get_true_name(native_file *f, ckpt__json *j, ckpt_error *err)
{
    ckpt__buf scratch = {0};
    size_t record;
    ckpt_str hex = {NULL, 0};
    ckpt_status status = get_record(f, j, &record, err);
    if (status == CKPT_OK)
        status = ckpt__json_string(j, &scratch, &hex, err);
    char *name = status == CKPT_OK ? ckpt__arena_alloc(f->x->arena, hex.size / 2 + 1) : NULL;
    if (status == CKPT_OK && !name)
        status = ckpt__fail_memory(err, "names", hex.size);
    else if (status == CKPT_OK && !ckpt__hex_get(hex.data, hex.size, name))
        status = wrong(f, err, "a true name that is not hexadecimal");
    else if (status == CKPT_OK) {
        f->x->tensors[record].info.name = (ckpt_str){name, hex.size / 2};
        f->x->storages[f->x->tensors[record].storage].name = f->x->tensors[record].info.name;
    }
    ckpt__buf_free(&scratch);
    return status;
}

typedef struct alias {
    ckpt_str name;
    int64_t of, offset;
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape, *strides;
} alias;

static ckpt_status parse_alias(native_file *f, ckpt__json *j, alias *a, ckpt_error *err)
{
    ckpt__buf scratch = {0};
    uint32_t strides = 0;
    ckpt_status status = ckpt__json_string(j, &scratch, &a->name, err);
    if (status == CKPT_OK && !(a->name = ckpt__arena_str(f->x->arena, a->name.data, a->name.size)).data)
        status = ckpt__fail_memory(err, "names", 0);
    ckpt__buf_free(&scratch);
    if (status == CKPT_OK)
        status = ckpt__json_int(j, &a->of, err);
    if (status == CKPT_OK)
        status = get_dtype(f, j, &a->dtype, err);
    if (status == CKPT_OK)
        status = ckpt__json_int(j, &a->offset, err);
    if (status == CKPT_OK)
        status = get_sizes(f, j, &a->shape, &a->ndim, err);
    if (status == CKPT_OK)
        status = get_sizes(f, j, &a->strides, &strides, err);
    if (status == CKPT_OK && (strides != a->ndim || a->of < -1 || (a->of >= 0 && (uint64_t)a->of >= f->h.count)))
        status = wrong(f, err, "an alias of an entry that is not there, or with too few strides");
    return status;
}

/* ["name",of,"float32",offset,[shape],[strides]]; of -1 has no data: a tensor on the meta device. */
static ckpt_status get_alias(native_file *f, ckpt__json *j, ckpt_error *err)
{
    alias a = {.of = -1};
    uint64_t numel;
    ckpt_status status = parse_alias(f, j, &a, err);
    if (status < 0)
        return status;
    ckpt__tensor *t = ckpt__index_add_tensor(f->x);
    if (!t)
        return ckpt__fail_memory(err, "tensors", f->x->tensor_count * sizeof *t);
    t->info.name = a.name;
    t->info.dtype = a.dtype;
    t->info.ndim = a.ndim;
    if (a.of >= 0) {
        ckpt__storage *s = &f->x->storages[f->storages + (size_t)a.of];
        if (ckpt__has_prefix(s->name, CKPT__NATIVE_STORAGE) && s->unit == 1)
            s->unit = ckpt__dtype_row_of(a.dtype)->unit;
        return ckpt__index_set_view(f->x, f->x->tensor_count - 1, f->storages + (size_t)a.of, a.shape, a.strides,
                                    a.offset, err);
    }
    t->info.shape = a.shape;
    t->info.strides = a.strides;
    t->info.offset = a.offset;
    if (!ckpt__numel(a.shape, a.ndim, &numel) || !ckpt__nbytes(numel, ckpt_dtype_bits(a.dtype), &t->info.nbytes))
        return wrong(f, err, "a tensor without data whose shape overflows");
    return CKPT_OK;
}

/* Calls get for each element, an array, of the member, an array of arrays. */
static ckpt_status for_each(native_file *f, int member, ckpt_status (*get)(native_file *, ckpt__json *, ckpt_error *),
                            ckpt_error *err)
{
    ckpt__json j;
    if (!f->member[member].data)
        return CKPT_OK;
    start(f, member, &j);
    ckpt_status status = ckpt__json_expect(&j, CKPT__JSON_ARRAY, err);
    while (status == CKPT_OK && ckpt__json_next(&j, err) != CKPT__JSON_ARRAY_END) {
        if (j.event != CKPT__JSON_ARRAY)
            return j.event == CKPT__JSON_ERROR ? j.status : ckpt__json_wrong(&j, err, "expected an array");
        status = get(f, &j, err);
        if (status == CKPT_OK)
            status = ckpt__json_expect(&j, CKPT__JSON_ARRAY_END, err);
    }
    return status;
}

/* ---- the value tree */

static ckpt_status value_tensor(void *ctx, int64_t n, ckpt_str name, ckpt_value *v, ckpt_error *err)
{
    native_file *f = ctx;
    ckpt__native_reader *r = f->r;
    if (n >= 0) {
        if ((uint64_t)n >= f->count)
            return wrong(f, err, "the value tree refers to a tensor past the last");
        v->tensor = f->records + (size_t)n;
        return CKPT_OK;
    }
    if (!ckpt__grow(&r->elsewhere, &r->elsewhere_capacity, r->elsewhere_count + 1, sizeof *r->elsewhere))
        return ckpt__fail_memory(err, "values", 0);
    r->elsewhere[r->elsewhere_count].value = v;
    r->elsewhere[r->elsewhere_count++].name = name;
    return CKPT_OK;
}

/* Blobs are small parts of the value tree, so they are read, and checked, with the metadata. */
static ckpt_status value_blob(void *ctx, int64_t number, ckpt_dtype *dtype, const char **data, size_t *size,
                              ckpt_error *err)
{
    native_file *f = ctx;
    char found[9] = "", wanted[9] = "";
    if (number < 0 || (uint64_t)number >= f->h.count || !f->blob_entry[number])
        return wrong(f, err, "the value tree refers to a blob that is not there, or twice to one");
    const ckpt__st_entry *e = &f->h.entries[f->blob_entry[number] - 1];
    const ckpt__storage *s = &f->x->storages[f->storages + f->blob_entry[number] - 1];
    f->blob_entry[number] = 0;
    if (s->extent.missing)
        return ckpt__fail(err, CKPT_E_DAMAGED, f->label, "the values in '%s' are cut off", e->name.data);
    if (s->extent.size > SIZE_MAX - 1)
        return ckpt__fail_memory(err, "blob", s->extent.size);
    char *bytes = ckpt__arena_alloc(f->x->arena, (size_t)s->extent.size + 1);
    if (!bytes)
        return ckpt__arena_over_limit(f->x->arena)
                   ? ckpt__fail(err, CKPT_E_LIMIT, f->label, "the values of its tree take too much memory")
                   : ckpt__fail_memory(err, "blob", s->extent.size);
    ckpt_status status = ckpt__source_read(f->r->source, f->file, s->extent.offset, bytes, (size_t)s->extent.size, err);
    if (status < 0)
        return status;
    uint32_t crc = ckpt__crc32(0, bytes, (size_t)s->extent.size);
    ckpt__hex_crc(found, crc);
    ckpt__hex_crc(wanted, s->extent.crc);
    if (crc != s->extent.crc)
        return ckpt__fail(err, CKPT_E_DAMAGED, f->label, "the values in '%s' are damaged: checksum %s, expected %s",
                          e->name.data, found, wanted);
    *dtype = e->dtype;
    *data = bytes;
    *size = (size_t)s->extent.size;
    return CKPT_OK;
}

static ckpt_status get_root(native_file *f, ckpt_error *err)
{
    const ckpt__values_reader hooks = {value_tensor, value_blob, f, f->x->arena};
    if (!f->member[ROOT].data)
        return CKPT_OK;
    if (f->x->root)
        return wrong(f, err, "a second value tree in one checkpoint");
    ckpt_status status = ckpt__values_read(f->member[ROOT].data, f->member[ROOT].size, &hooks, &f->x->root, err);
    if (status != CKPT_E_DAMAGED || !f->r->salvage)
        return status;
    f->x->root = NULL;
    return ckpt__report_add(f->x->findings, CKPT_SEVERITY_ERROR, "salvaged", NULL, NULL,
                            "%s: bytes that belong to its values are not there or damaged: only tensors are recovered, "
                            "none of its other values",
                            f->label)
               ? CKPT_OK
               : ckpt__fail_memory(err, "findings", 0);
}

/* ---- one file */

static ckpt_status read_document(native_file *f, int64_t *step, ckpt_error *err)
{
    const ckpt__st_metadata *m = ckpt__st_find(&f->h, "ckpt");
    if (!m)
        return wrong(f, err, "it is missing"); /* cannot be: the marker holds its key */
    ckpt_status status = ckpt__json_split(m->value.data, m->value.size, CKPT__JSON_DEPTH, "ckpt document", member_names,
                                          f->member, MEMBERS, err);
    if (status == CKPT_OK)
        status = check_version(f, err);
    if (status == CKPT_OK)
        status = check_requires(f, err);
    if (status == CKPT_OK)
        status = get_step(f, step, err);
    if (status == CKPT_OK)
        status = add_entries(f, err);
    if (status == CKPT_OK)
        status = for_each(f, DTYPES, get_true_dtype, err);
    if (status == CKPT_OK)
        status = for_each(f, NAMES, get_true_name, err);
    if (status == CKPT_OK)
        status = get_crcs(f, err);
    if (status == CKPT_OK)
        status = for_each(f, ALIASES, get_alias, err);
    f->count = f->x->tensor_count - f->records;
    if (status == CKPT_OK && f->member[COLUMNS].data)
        status = ckpt__native_get_columns(f->member[COLUMNS], f->x, f->records, f->count, err);
    return status == CKPT_OK ? get_root(f, err) : status;
}

/* Aliases were made before the columns were known: what a storage's device is, its views' is. */
static void finish_records(native_file *f, ckpt_str name)
{
    for (size_t i = f->records; i < f->records + f->count; i++) {
        ckpt__tensor *t = &f->x->tensors[i];
        t->info.file = name;
        if (!t->info.device.data && t->whole)
            t->info.device = f->x->storages[t->storage].device;
    }
}

ckpt_status ckpt__native_read_file(ckpt__native_reader *r, uint32_t file, ckpt_str name, int64_t *step, ckpt_error *err)
{
    native_file f = {
        .r = r, .x = r->index, .file = file, .storages = r->index->storage_count, .records = r->index->tensor_count};
    uint64_t size = r->source->files[file].size;
    f.h.salvage = r->salvage;
    ckpt__source_label(r->source, file, f.label, sizeof f.label);
    ckpt__arena_allow(r->index->arena, ckpt__known_limit(size, true));
    ckpt_status status = load(&f, err);
    if (status == CKPT_E_DAMAGED)
        status = maybe_rewritten(&f, size, status, err);
    if (status == CKPT_OK)
        status = ckpt__st_parse(&f.h, size, f.label, r->index->arena, r->index->findings, err);
    ckpt__st_forget_text(&f.h);
    if (status == CKPT_OK)
        status = read_document(&f, step, err);
    if (status == CKPT_OK)
        status = ckpt__st_note_salvaged(&f.h, f.x, f.storages, f.label, err);
    if (status == CKPT_OK) {
        finish_records(&f, name);
        r->index->metadata_bytes += f.h.size;
        r->index->metadata_crc = true;
    } else
        ckpt__st_blame(err, f.label);
    ckpt__st_free(&f.h);
    free(f.blob_entry);
    return status;
}
