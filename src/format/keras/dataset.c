/* format/keras/dataset.c - a dataset as a tensor. A contiguous one is an extent of the file. One in chunks that are stored, or
 * deflated and nothing more, is a tensor in pieces, a piece a chunk: nothing is decoded while the file is opened. What has
 * other filters (shuffle, szip, ...), holes, or lies within the metadata is decoded by libhdf5 into the index's arena, a little
 * of it: CKPT__H5_DECODED. */
#include "format/keras/hdf5.h"

#include <stdlib.h>

enum { DIMS = H5S_MAX_RANK };

typedef struct set {
    ckpt__h5 *h;
    hid_t id, type, space, list; /* open */
    ckpt_str path;
    ckpt_dtype dtype;
    bool big_endian;
    uint32_t ndim;
    int64_t shape[DIMS];
    uint64_t elements, bytes;
    char text[260]; /* "dataset 'a/b'" */
} set;

static ckpt_status refuse(const set *s, ckpt_error *err, const char *why)
{
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, s->h->in->label, "%s %s", s->text, why);
}

static ckpt_status no_memory(const set *s, ckpt_error *err)
{
    return ckpt__fail_memory(err, "the tensors of an HDF5 file", s->bytes);
}

/* ---- elements */

static ckpt_dtype integer_of(hid_t type, size_t size)
{
    static const ckpt_dtype all[2][4] = {{CKPT_U8, CKPT_U16, CKPT_U32, CKPT_U64},
                                         {CKPT_I8, CKPT_I16, CKPT_I32, CKPT_I64}};
    size_t log = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4;
    return log < 4 ? all[H5Tget_sign(type) != H5T_SGN_NONE][log] : CKPT_DTYPE_NONE;
}

/* By where sign, exponent and mantissa are, and the bias. */
static ckpt_dtype float_of(hid_t type, size_t size)
{
    static const struct {
        size_t size, exponent, mantissa, bias;
        ckpt_dtype dtype;
    } rows[] = {
        {4, 8, 23, 127, CKPT_F32}, {8, 11, 52, 1023, CKPT_F64}, {2, 5, 10, 15, CKPT_F16}, {2, 8, 7, 127, CKPT_BF16}};
    size_t sign = 0, at = 0, exponent = 0, low = 0, mantissa = 0, bias = H5Tget_ebias(type);
    if (H5Tget_fields(type, &sign, &at, &exponent, &low, &mantissa) < 0 || H5Tget_norm(type) != H5T_NORM_IMPLIED)
        return CKPT_DTYPE_NONE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].size == size && rows[i].exponent == exponent && rows[i].mantissa == mantissa &&
            rows[i].bias == bias && low == 0 && at == mantissa && sign == size * 8 - 1)
            return rows[i].dtype;
    return CKPT_DTYPE_NONE;
}

/* h5py's bool: {FALSE = 0, TRUE = 1} in a byte. */
static bool is_bool(hid_t type)
{
    int8_t no = -1, yes = -1;
    return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 && H5Tget_member_value(type, 0, &no) >= 0 &&
           H5Tget_member_value(type, 1, &yes) >= 0 && ((no == 0 && yes == 1) || (no == 1 && yes == 0));
}

/* Keras writes bfloat16 as two opaque bytes, and says so in an attribute. */
static bool says_bfloat16(const set *s)
{
    char text[16] = "";
    char *long_text = NULL;
    bool is = false;
    if (H5Aexists(s->id, "dtype") <= 0)
        return false;
    hid_t attribute = H5Aopen(s->id, "dtype", H5P_DEFAULT);
    hid_t type = attribute >= 0 ? H5Aget_type(attribute) : H5I_INVALID_HID;
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : H5I_INVALID_HID;
    bool one = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1;
    if (one && H5Tis_variable_str(type) > 0) {
        s->h->heap_most = CKPT__H5_TEXT;
        is = H5Aread(attribute, type, &long_text) >= 0 && long_text && strcmp(long_text, "bfloat16") == 0;
        if (long_text)
            H5free_memory(long_text);
    } else if (one && H5Tget_size(type) < sizeof text) {
        is = H5Aread(attribute, type, text) >= 0 && strcmp(text, "bfloat16") == 0;
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (attribute >= 0)
        H5Aclose(attribute);
    return is;
}

static const char *class_name(H5T_class_t class)
{
    switch (class) {
    case H5T_STRING:
        return "texts";
    case H5T_COMPOUND:
        return "compounds";
    case H5T_REFERENCE:
        return "references to objects";
    case H5T_VLEN:
        return "lists of any length";
    case H5T_OPAQUE:
        return "opaque bytes without a dtype that Keras writes";
    case H5T_ENUM:
        return "an enumeration";
    case H5T_ARRAY:
        return "arrays";
    default:
        return "numbers of a kind that no tensor has";
    }
}

static ckpt_status find_dtype(set *s, ckpt_error *err)
{
    H5T_class_t class = H5Tget_class(s->type);
    size_t size = H5Tget_size(s->type);
    bool number = (class == H5T_INTEGER || class == H5T_FLOAT) && H5Tget_precision(s->type) == size * 8;
    s->dtype = CKPT_DTYPE_NONE;
    if (number)
        s->dtype = class == H5T_INTEGER ? integer_of(s->type, size) : float_of(s->type, size);
    else if (class == H5T_ENUM && is_bool(s->type))
        s->dtype = CKPT_BOOL;
    else if (class == H5T_OPAQUE && size == 2 && says_bfloat16(s))
        s->dtype = CKPT_BF16;
    H5T_order_t order = number ? H5Tget_order(s->type) : H5T_ORDER_LE;
    s->big_endian = order == H5T_ORDER_BE && size > 1;
    if (s->dtype != CKPT_DTYPE_NONE && (order == H5T_ORDER_LE || order == H5T_ORDER_BE))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, s->h->in->label,
                      "%s has %s (%zu bytes each), where a tensor's elements are expected", s->text, class_name(class),
                      size);
}

static ckpt_status find_shape(set *s, ckpt_error *err)
{
    hsize_t dims[DIMS] = {0};
    H5S_class_t extent = H5Sget_simple_extent_type(s->space);
    int ndim = extent == H5S_SIMPLE ? H5Sget_simple_extent_dims(s->space, dims, NULL) : 0;
    if (extent == H5S_NULL)
        return refuse(s, err, "has no shape at all, where a tensor is expected");
    if (ndim < 0 || extent == H5S_NO_CLASS)
        return ckpt__h5_fail(s->h, s->text, err);
    s->ndim = (uint32_t)ndim;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] > INT64_MAX)
            return ckpt__fail(err, CKPT_E_FORMAT, s->h->in->label, "%s has a dimension of %llu", s->text,
                              (unsigned long long)dims[i]);
        s->shape[i] = (int64_t)dims[i];
    }
    if (!ckpt__numel(s->shape, s->ndim, &s->elements) ||
        !ckpt__nbytes(s->elements, ckpt_dtype_bits(s->dtype), &s->bytes))
        return ckpt__fail(err, CKPT_E_FORMAT, s->h->in->label, "%s has more elements than 64 bits count", s->text);
    return CKPT_OK;
}

/* ---- storages */

static ckpt__storage *add_storage(set *s, uint64_t bytes)
{
    ckpt__storage *storage = ckpt__index_add_storage(s->h->index);
    if (!storage)
        return NULL;
    storage->extent.file = s->h->in->file;
    storage->extent.size = bytes;
    storage->extent.big_endian = s->big_endian;
    storage->extent.spanned = s->h->in->spanned;
    storage->extent.span = s->h->in->span;
    storage->name = s->path;
    storage->unit = ckpt__dtype_row_of(s->dtype)->unit;
    return storage;
}

/* `length` bytes at an address of the HDF5 file, which must lie within it. */
static ckpt_status place(const set *s, ckpt__storage *storage, uint64_t address, uint64_t length, ckpt_error *err)
{
    const ckpt__h5_input *in = s->h->in;
    uint64_t end;
    if (!ckpt__add(address, length, &end) || end > in->size)
        return ckpt__fail(err, CKPT_E_DAMAGED, in->label,
                          "%s has %llu bytes at byte %llu, and the HDF5 file ends at byte %llu", s->text,
                          (unsigned long long)length, (unsigned long long)address, (unsigned long long)in->size);
    if (in->memory)
        storage->extent.memory = in->memory + address;
    else
        storage->extent.offset = in->offset + address;
    storage->extent.length = length;
    return CKPT_OK;
}

/* The tensor that was added last views the storage that was added last, which is all of it. */
static ckpt_status view(const set *s, ckpt_error *err)
{
    return ckpt__index_set_view(s->h->index, s->h->index->tensor_count - 1, s->h->index->storage_count - 1, s->shape,
                                NULL, 0, err);
}

static const char decode_how[] = "h5repack -f NONE makes a file that is read in place";

static ckpt_status check_filters(const set *s, ckpt_error *err)
{
    int count = H5Pget_nfilters(s->list);
    for (int i = 0; i < count; i++) {
        unsigned flags = 0, config = 0;
        size_t values = 0;
        char name[80] = "";
        H5Z_filter_t filter = H5Pget_filter2(s->list, (unsigned)i, &flags, &values, NULL, sizeof name, name, &config);
        if (filter < 0)
            return ckpt__h5_fail(s->h, s->text, err);
        if (H5Zfilter_avail(filter) > 0)
            continue;
        char shown[100];
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, s->h->in->label,
                          "%s is coded by filter %d ('%s'), which this libhdf5 lacks; filters are never loaded as "
                          "plugins here. %s, where the filter is there",
                          s->text, (int)filter, ckpt__escape(shown, sizeof shown, name, strnlen(name, sizeof name)),
                          decode_how);
    }
    return CKPT_OK;
}

/* A copy in the arena, made by libhdf5: of little data alone. */
static ckpt_status decode(set *s, uint64_t chunk_bytes, ckpt_error *err)
{
    ckpt__h5 *h = s->h;
    ckpt_status status = check_filters(s, err);
    if (status < 0)
        return status;
    if (s->bytes > CKPT__H5_DECODED - h->decoded || chunk_bytes > ckpt__inflated_limit(h->in->size, false))
        return ckpt__fail(err, CKPT_E_LIMIT, h->in->label,
                          "%s (%llu bytes) is coded by filters that are not read in place (shuffle, szip, ...), or has "
                          "holes: %d MiB of such data are the most in a file. %s",
                          s->text, (unsigned long long)s->bytes, CKPT__H5_DECODED >> 20, decode_how);
    void *copy = ckpt__arena_alloc(h->index->arena, (size_t)s->bytes + 1);
    ckpt__storage *storage = copy ? add_storage(s, s->bytes) : NULL;
    if (!storage)
        return no_memory(s, err);
    h->decoding = true;
    herr_t read = H5Dread(s->id, s->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, copy);
    h->decoding = false;
    if (read < 0)
        return ckpt__h5_fail(h, s->text, err);
    h->decoded += s->bytes;
    storage->extent.memory = copy;
    storage->extent.length = s->bytes;
    return view(s, err);
}

static ckpt_status read_contiguous(set *s, ckpt_error *err)
{
    int external = H5Pget_external_count(s->list);
    if (external != 0)
        return refuse(
            s, err, "keeps its bytes in another file (external storage), which is not opened; h5repack takes them in");
    haddr_t address = H5Dget_offset(s->id);
    uint64_t stored = H5Dget_storage_size(s->id);
    if (address == HADDR_UNDEF)
        return decode(s, 0, err); /* nothing was written yet: all of it is the fill value */
    if (stored != s->bytes)
        return ckpt__fail(err, CKPT_E_DAMAGED, s->h->in->label, "%s: shape and dtype need %llu bytes, %llu are stored",
                          s->text, (unsigned long long)s->bytes, (unsigned long long)stored);
    ckpt__storage *storage = add_storage(s, s->bytes);
    ckpt_status status = storage ? place(s, storage, address, s->bytes, err) : no_memory(s, err);
    return status == CKPT_OK ? view(s, err) : status;
}

/* ---- chunks */

typedef struct grid {
    uint64_t count[DIMS], total; /* chunks */
    int64_t chunk[DIMS];
    uint64_t bytes; /* of a chunk, decoded */
    bool deflated;  /* each is, and nothing more; else: each is stored as it is */
    int64_t *boxes; /* heap: lo, size and strides of each */
    ckpt__piece *pieces;
} grid;

static ckpt_status find_grid(const set *s, grid *g, ckpt_error *err)
{
    hsize_t chunk[DIMS];
    uint64_t elements;
    if (H5Pget_chunk(s->list, DIMS, chunk) != (int)s->ndim)
        return ckpt__h5_fail(s->h, s->text, err);
    g->total = 1;
    bool fits = true;
    for (uint32_t i = 0; fits && i < s->ndim; i++) {
        fits = chunk[i] > 0 && chunk[i] <= UINT32_MAX;
        g->chunk[i] = fits ? (int64_t)chunk[i] : 1;
        uint64_t n = (uint64_t)s->shape[i], c = (uint64_t)g->chunk[i];
        g->count[i] = n / c + (n % c != 0);
        fits = fits && ckpt__mul(g->total, g->count[i], &g->total);
    }
    fits = fits && ckpt__numel(g->chunk, s->ndim, &elements) &&
           ckpt__nbytes(elements, ckpt_dtype_bits(s->dtype), &g->bytes);
    if (!fits)
        return ckpt__fail(err, CKPT_E_FORMAT, s->h->in->label, "%s has chunks whose size or number overflows", s->text);
    return CKPT_OK;
}

/* May the chunks be read in place? */
static bool is_plain(const set *s, grid *g)
{
    int filters = H5Pget_nfilters(s->list);
    unsigned flags = 0, config = 0;
    size_t values = 0;
    g->deflated =
        filters == 1 && H5Pget_filter2(s->list, 0, &flags, &values, NULL, 0, NULL, &config) == H5Z_FILTER_DEFLATE;
    uint64_t stored = H5Dget_storage_size(s->id);
    return (filters == 0 || (g->deflated && !s->h->in->memory)) && g->total <= CKPT__H5_CHUNKS && g->total <= stored;
}

/* libhdf5 goes through all chunks for each that it is asked for, and so reads their list again and again. */
static ckpt_status fail_many(const set *s, const grid *g, uint64_t found, ckpt_error *err)
{
    return ckpt__fail(
        err, CKPT_E_LIMIT, s->h->in->label,
        "%s has %llu chunks, and only %llu of them were found: libhdf5 looks through their list for each, and "
        "may read no more of it. h5repack -l CONTI makes a file without chunks, larger chunks do too",
        s->text, (unsigned long long)g->total, (unsigned long long)found);
}

/* A zlib stream is two bytes of header, the deflated data, and four of a checksum. */
static ckpt_status place_chunk(set *s, const grid *g, uint64_t number, const hsize_t *at, bool *hole, ckpt_error *err)
{
    enum { ZLIB_FRAME = 6 };
    unsigned mask = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t length = 0;
    if (H5Dget_chunk_info_by_coord(s->id, at, &mask, &address, &length) < 0)
        return s->h->out_of_budget ? fail_many(s, g, number, err) : ckpt__h5_fail(s->h, s->text, err);
    *hole = address == HADDR_UNDEF || length == 0;
    if (*hole)
        return CKPT_OK;
    bool deflated = g->deflated && !(mask & 1);
    if (deflated ? length <= ZLIB_FRAME : length != g->bytes)
        return ckpt__fail(err, CKPT_E_DAMAGED, s->h->in->label, "%s has a chunk of %llu bytes where %llu are expected",
                          s->text, (unsigned long long)length, (unsigned long long)g->bytes);
    ckpt__storage *storage = add_storage(s, g->bytes);
    if (!storage)
        return no_memory(s, err);
    storage->extent.coding = deflated ? CKPT__ZLIB : CKPT__STORED;
    return place(s, storage, address, length, err);
}

/* Chunks at the end of a dimension are whole in the file, and reach beyond the tensor. */
static void fill_piece(const set *s, grid *g, uint64_t number, const hsize_t *at)
{
    int64_t *box = g->boxes + number * 3 * s->ndim;
    ckpt__c_strides(g->chunk, s->ndim, box + (size_t)2 * s->ndim);
    for (uint32_t i = 0; i < s->ndim; i++) {
        int64_t left = s->shape[i] - (int64_t)at[i];
        box[i] = (int64_t)at[i];
        box[s->ndim + i] = left < g->chunk[i] ? left : g->chunk[i];
    }
    g->pieces[number] =
        (ckpt__piece){.box = box, .storage = (uint32_t)(s->h->index->storage_count - 1), .flags = CKPT__PIECE_STRIDED};
}

static ckpt_status read_chunks(set *s, grid *g, bool *hole, ckpt_error *err)
{
    hsize_t at[DIMS] = {0};
    ckpt_status status = CKPT_OK;
    for (uint64_t n = 0; status == CKPT_OK && !*hole && n < g->total; n++) {
        status = place_chunk(s, g, n, at, hole, err);
        if (status == CKPT_OK && !*hole)
            fill_piece(s, g, n, at);
        for (uint32_t i = s->ndim; i-- > 0;) {
            at[i] += (hsize_t)g->chunk[i];
            if (at[i] < (hsize_t)s->shape[i])
                break;
            at[i] = 0;
        }
    }
    return status;
}

static ckpt_status read_chunked(set *s, ckpt_error *err)
{
    grid g = {0};
    ckpt__index *x = s->h->index;
    bool hole = false;
    ckpt_status status = find_grid(s, &g, err);
    if (status < 0)
        return status;
    if (!is_plain(s, &g))
        return decode(s, g.bytes, err);
    uint64_t bytes = g.total * (3 * s->ndim * sizeof *g.boxes + sizeof *g.pieces); /* at most 2^20 * 800 */
    if (!ckpt__arena_charge(x->arena, bytes))
        return no_memory(s, err);
    size_t storages = x->storage_count;
    g.boxes = calloc((size_t)g.total + 1, 3 * s->ndim * sizeof *g.boxes + 1);
    g.pieces = calloc((size_t)g.total + 1, sizeof *g.pieces);
    status = g.boxes && g.pieces ? read_chunks(s, &g, &hole, err) : no_memory(s, err);
    if (status == CKPT_OK && hole)
        x->storage_count = storages; /* what is not in the file is the fill value */
    if (status == CKPT_OK)
        status = hole ? decode(s, g.bytes, err)
                      : ckpt__index_set_pieces(x, x->tensor_count - 1, s->shape, g.pieces, (size_t)g.total, err);
    ckpt__arena_discharge(x->arena, bytes);
    free(g.boxes);
    free(g.pieces);
    return status;
}

/* ---- one dataset */

static ckpt_status read_empty(set *s, ckpt_error *err)
{
    return add_storage(s, 0) ? view(s, err) : no_memory(s, err);
}

static ckpt_status add_tensor(set *s, ckpt_error *err)
{
    ckpt__tensor *t = ckpt__index_add_tensor(s->h->index);
    if (!t)
        return no_memory(s, err);
    t->info.name = s->path;
    t->info.dtype = s->dtype;
    t->info.ndim = s->ndim;
    t->info.file = s->h->in->shard;
    t->sorted = true;
    H5D_layout_t layout = H5Pget_layout(s->list);
    if (layout == H5D_VIRTUAL)
        return refuse(s, err, "is virtual: it is made of datasets of other files, which are not opened");
    if (s->elements == 0)
        return read_empty(s, err);
    if (layout == H5D_CONTIGUOUS)
        return read_contiguous(s, err);
    if (layout == H5D_CHUNKED)
        return read_chunked(s, err);
    return layout == H5D_COMPACT ? decode(s, 0, err) : ckpt__h5_fail(s->h, s->text, err);
}

static void name_it(set *s)
{
    static const char head[] = "dataset '";
    memcpy(s->text, head, sizeof head);
    ckpt__escape(s->text + sizeof head - 1, sizeof s->text - sizeof head - 1, s->path.data, s->path.size);
    memcpy(s->text + strlen(s->text), "'", 2);
}

ckpt_status ckpt__h5_dataset(ckpt__h5 *h, hid_t id, ckpt_str path, ckpt_error *err)
{
    set *s = calloc(1, sizeof *s);
    if (!s)
        return ckpt__fail_memory(err, "a dataset", sizeof *s);
    s->h = h;
    s->id = id;
    s->path = path;
    name_it(s);
    s->type = H5Dget_type(id);
    s->space = H5Dget_space(id);
    s->list = H5Dget_create_plist(id);
    ckpt_status status =
        s->type >= 0 && s->space >= 0 && s->list >= 0 ? find_dtype(s, err) : ckpt__h5_fail(h, s->text, err);
    if (status == CKPT_OK)
        status = find_shape(s, err);
    if (status == CKPT_OK)
        status = add_tensor(s, err);
    if (s->list >= 0)
        H5Pclose(s->list);
    if (s->space >= 0)
        H5Sclose(s->space);
    if (s->type >= 0)
        H5Tclose(s->type);
    free(s);
    return status;
}
