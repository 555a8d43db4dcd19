/* format/keras/attribute.c - attributes as values.
 *
 * A text of variable length is a reference into a collection of the file, and libhdf5 makes a copy of it for each reference: an
 * array of them could come to any number of bytes. So arrays are read first, while no large collection is known to libhdf5 and
 * none is let in that would be too much with so many items; texts that stand alone (model_config) come after the last array. */
#include "format/keras/hdf5.h"

#include <stdlib.h>

/* "attribute 'layers/dense/vars@name'" */
typedef struct spot {
    ckpt__h5 *h;
    ckpt_str path, name;
    hid_t attribute, type, space; /* open */
    uint64_t count;               /* items */
    bool array;
    char text[300];
} spot;

static ckpt_status fail(spot *s, ckpt_error *err)
{
    return ckpt__h5_fail(s->h, s->text, err);
}

static ckpt_status no_memory(uint64_t bytes, ckpt_error *err)
{
    return ckpt__fail_memory(err, "the attributes of an HDF5 file", bytes);
}

static ckpt_value *text_value(ckpt__h5 *h, const char *data, size_t n)
{
    ckpt_value *v = ckpt__value_str(h->index->arena, data, n);
    if (v && !ckpt__utf8_valid(data, n))
        v->kind = CKPT_V_BYTES;
    return v;
}

/* ---- texts */

/* As NumPy prints an array of texts: ['a' 'b'], in lines of 75. */
typedef struct printed {
    ckpt__buf text;
    size_t line; /* characters of the last line */
} printed;

static size_t characters(const char *data, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)data[i] & 0xC0) != 0x80;
    return count;
}

static void print_item(printed *p, bool first, const ckpt_value *v)
{
    enum { LINE = 74 };
    ckpt__buf word = {0};
    ckpt__value_repr(&word, v);
    size_t n = characters(word.data ? word.data : "", word.size);
    if (first) {
        p->line = 1;
    } else if (p->line + 1 + n > LINE) {
        ckpt__buf_str(&p->text, "\n ");
        p->line = 1;
    } else {
        ckpt__buf_char(&p->text, ' ');
        p->line++;
    }
    ckpt__buf_add(&p->text, word.data ? word.data : "", word.size);
    p->line += n;
    p->text.failed = p->text.failed || word.failed;
    ckpt__buf_free(&word);
}

static const ckpt_value *print_all(ckpt__h5 *h, const ckpt_value *const *items, size_t count)
{
    printed p = {0};
    ckpt__buf_char(&p.text, '[');
    for (size_t i = 0; i < count; i++)
        print_item(&p, i == 0, items[i]);
    ckpt__buf_char(&p.text, ']');
    const ckpt_value *v = p.text.failed ? NULL : text_value(h, p.text.data, p.text.size);
    ckpt__buf_free(&p.text);
    return v;
}

/* A copy of the type that libhdf5 gives texts of the file in: the same set of characters, or none would be found. */
static hid_t text_type(hid_t like)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5Tget_cset(like)) < 0)) {
        H5Tclose(type);
        type = H5I_INVALID_HID;
    }
    return type;
}

static ckpt_status read_variable(spot *s, const ckpt_value **items, ckpt_error *err)
{
    ckpt__h5 *h = s->h;
    hid_t type = text_type(s->type);
    char **texts = calloc((size_t)s->count + 1, sizeof *texts);
    ckpt_status status = texts && type >= 0 ? CKPT_OK : no_memory(s->count * sizeof *texts, err);
    h->heap_most = s->array ? CKPT__H5_TEXTS / s->count : CKPT__H5_TEXT;
    h->heap_refused = s->array && h->heap_largest > h->heap_most;
    if (status == CKPT_OK && (h->heap_refused || H5Aread(s->attribute, type, texts) < 0))
        status = fail(s, err);
    for (uint64_t i = 0; status == CKPT_OK && i < s->count; i++)
        if (!(items[i] = text_value(h, texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) : 0)))
            status = no_memory(0, err);
    for (uint64_t i = 0; texts && i < s->count; i++)
        if (texts[i])
            H5free_memory(texts[i]);
    free(texts);
    if (type >= 0)
        H5Tclose(type);
    return status;
}

static ckpt_status read_fixed(spot *s, const ckpt_value **items, ckpt_error *err)
{
    size_t size = H5Tget_size(s->type);
    H5T_str_t pad = H5Tget_strpad(s->type);
    uint64_t bytes;
    if (size == 0 || !ckpt__mul(size, s->count, &bytes) || bytes > CKPT__H5_TEXTS)
        return ckpt__fail(err, CKPT_E_LIMIT, s->h->in->label, "%s has %llu texts of %zu bytes; %d MiB are the most",
                          s->text, (unsigned long long)s->count, size, CKPT__H5_TEXTS >> 20);
    char *data = malloc((size_t)bytes);
    ckpt_status status = data ? CKPT_OK : no_memory(bytes, err);
    if (status == CKPT_OK && H5Aread(s->attribute, s->type, data) < 0)
        status = fail(s, err);
    for (uint64_t i = 0; status == CKPT_OK && i < s->count; i++) {
        const char *at = data + i * size;
        size_t n = pad == H5T_STR_NULLTERM ? strnlen(at, size) : size;
        while (n && (at[n - 1] == '\0' || (pad == H5T_STR_SPACEPAD && at[n - 1] == ' ')))
            n--;
        if (!(items[i] = text_value(s->h, at, n)))
            status = no_memory(n, err);
    }
    free(data);
    return status;
}

static ckpt_status read_texts(spot *s, const ckpt_value **out, ckpt_error *err)
{
    const ckpt_value **items = calloc((size_t)s->count + 1, sizeof *items);
    ckpt_status status = !items                            ? no_memory(s->count * sizeof *items, err)
                         : s->count == 0                   ? CKPT_OK
                         : H5Tis_variable_str(s->type) > 0 ? read_variable(s, items, err)
                                                           : read_fixed(s, items, err);
    if (status == CKPT_OK && !(*out = s->array ? print_all(s->h, items, (size_t)s->count) : items[0]))
        status = no_memory(0, err);
    free(items);
    return status;
}

/* ---- numbers */

static const ckpt_value *number(ckpt__h5 *h, H5T_class_t class, bool is_signed, uint64_t bits)
{
    char text[24];
    double real;
    if (class == H5T_FLOAT) {
        memcpy(&real, &bits, sizeof real);
        return ckpt__value_float(h->index->arena, real);
    }
    if (is_signed || bits <= INT64_MAX)
        return ckpt__value_int(h->index->arena, (int64_t)bits);
    ckpt_value *big = ckpt__value_new(h->index->arena, CKPT_V_BIGINT);
    size_t n = 0;
    for (uint64_t rest = bits; rest; rest /= 10)
        text[sizeof text - ++n] = (char)('0' + rest % 10);
    if (big)
        big->text = ckpt__arena_str(h->index->arena, text + sizeof text - n, n);
    return big && big->text.data ? big : NULL;
}

static hid_t number_type(const spot *s, H5T_class_t class, bool *is_signed)
{
    *is_signed = class == H5T_INTEGER && H5Tget_sign(s->type) != H5T_SGN_NONE;
    if (class == H5T_FLOAT)
        return H5T_NATIVE_DOUBLE;
    return *is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
}

static ckpt_status read_numbers(spot *s, H5T_class_t class, const ckpt_value **out, ckpt_error *err)
{
    ckpt__h5 *h = s->h;
    bool is_signed;
    hid_t type = number_type(s, class, &is_signed);
    uint64_t *bits = calloc((size_t)s->count + 1, sizeof *bits);
    const ckpt_value **items = calloc((size_t)s->count + 1, sizeof *items);
    ckpt_status status = bits && items ? CKPT_OK : no_memory(s->count * sizeof *bits, err);
    if (status == CKPT_OK && s->count && H5Aread(s->attribute, type, bits) < 0)
        status = fail(s, err);
    for (uint64_t i = 0; status == CKPT_OK && i < s->count; i++)
        if (!(items[i] = number(h, class, is_signed, bits[i])))
            status = no_memory(sizeof *items, err);
    if (status == CKPT_OK &&
        !(*out = s->array ? ckpt__value_list(h->index->arena, CKPT_V_LIST, items, (size_t)s->count) : items[0]))
        status = no_memory(0, err);
    free(bits);
    free(items);
    return status;
}

/* ---- one attribute */

/* h5py's bool: an enumeration of a byte. */
static bool is_bool(hid_t type)
{
    hid_t base = H5Tget_super(type);
    bool is = base >= 0 && H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 && H5Tget_class(base) == H5T_INTEGER;
    if (base >= 0)
        H5Tclose(base);
    return is;
}

/* What it is, or *out NULL and a note: a value that no Keras writes is left out, and said. */
static ckpt_status read_value(spot *s, const ckpt_value **out, ckpt_error *err)
{
    H5T_class_t class = H5Tget_class(s->type);
    H5S_class_t extent = H5Sget_simple_extent_type(s->space);
    hssize_t count = extent == H5S_NULL ? 0 : H5Sget_simple_extent_npoints(s->space);
    s->array = extent == H5S_SIMPLE;
    s->count = count > 0 ? (uint64_t)count : 0;
    if (extent == H5S_NULL)
        return (*out = ckpt__value_new(s->h->index->arena, CKPT_V_NONE)) ? CKPT_OK : no_memory(0, err);
    if (count < 0 || s->count > CKPT__H5_ITEMS)
        return ckpt__fail(err, CKPT_E_LIMIT, s->h->in->label, "%s has %lld items; %d are the most", s->text,
                          (long long)count, CKPT__H5_ITEMS);
    if (class == H5T_STRING || (s->array && s->count == 0)) /* a list of no names has no type */
        return read_texts(s, out, err);
    if (class == H5T_INTEGER || class == H5T_FLOAT)
        return read_numbers(s, class, out, err);
    if (class == H5T_ENUM && is_bool(s->type)) {
        uint8_t is = 0;
        if (s->array)
            *out = NULL;
        else if (H5Aread(s->attribute, s->type, &is) < 0)
            return fail(s, err);
        else if (!(*out = ckpt__value_bool(s->h->index->arena, is != 0)))
            return no_memory(0, err);
    }
    if (*out)
        return CKPT_OK;
    return ckpt__report_add(s->h->index->findings, CKPT_SEVERITY_NOTE, "attribute-unread", NULL, NULL,
                            "%s of %s is left out: it is neither text nor a number", s->text, s->h->in->label)
               ? CKPT_OK
               : no_memory(0, err);
}

static ckpt_status open_spot(spot *s, ckpt_error *err)
{
    char path[120], name[120];
    ckpt__escape(path, sizeof path, s->path.data, s->path.size);
    s->attribute = s->type = s->space = H5I_INVALID_HID;
    s->attribute =
        H5Aopen_by_name(s->h->file, s->path.size ? s->path.data : "/", s->name.data, H5P_DEFAULT, H5P_DEFAULT);
    ckpt__escape(name, sizeof name, s->name.data, s->name.size);
    ckpt__buf text = {0};
    ckpt__buf_printf(&text, "attribute '%s@%s'", path, name);
    if (text.data)
        memcpy(s->text, text.data, text.size < sizeof s->text ? text.size + 1 : 0);
    ckpt__buf_free(&text);
    if (s->attribute >= 0) {
        s->type = H5Aget_type(s->attribute);
        s->space = H5Aget_space(s->attribute);
    }
    return s->type >= 0 && s->space >= 0 ? CKPT_OK : fail(s, err);
}

static void close_spot(spot *s)
{
    if (s->space >= 0)
        H5Sclose(s->space);
    if (s->type >= 0)
        H5Tclose(s->type);
    if (s->attribute >= 0)
        H5Aclose(s->attribute);
}

static bool waits(const spot *s)
{
    return H5Tget_class(s->type) == H5T_STRING && H5Tis_variable_str(s->type) > 0 &&
           H5Sget_simple_extent_type(s->space) == H5S_SCALAR;
}

static ckpt_str key_of(ckpt__h5 *h, ckpt_str path, ckpt_str name)
{
    char *text = ckpt__arena_alloc(h->index->arena, path.size + name.size + 2);
    if (!text)
        return (ckpt_str){NULL, 0};
    if (path.size)
        memcpy(text, path.data, path.size);
    text[path.size] = '@';
    memcpy(text + path.size + 1, name.data, name.size);
    return (ckpt_str){text, path.size + 1 + name.size};
}

static ckpt_status put(ckpt__h5 *h, ckpt_str path, ckpt_str name, const ckpt_value *value, ckpt_error *err)
{
    ckpt_str key = key_of(h, path, name);
    return key.data ? ckpt__keras_put(h->index, h->values, key, value, err) : no_memory(path.size + name.size, err);
}

static ckpt_status read_one(ckpt__h5 *h, ckpt_str path, ckpt_str name, ckpt__h5_laters *laters, ckpt_error *err)
{
    spot s = {.h = h, .path = path, .name = name};
    const ckpt_value *value = NULL;
    ckpt_status status = open_spot(&s, err);
    bool later = status == CKPT_OK && waits(&s);
    if (status == CKPT_OK && later) {
        status = put(h, path, name, NULL, err);
        if (status == CKPT_OK && !ckpt__arena_grow(h->index->arena, &laters->items, &laters->capacity,
                                                   laters->count + 1, sizeof *laters->items))
            status = no_memory(laters->count, err);
        if (status == CKPT_OK)
            laters->items[laters->count++] = (ckpt__h5_later){path, name, h->values->count - 1};
    } else if (status == CKPT_OK) {
        status = read_value(&s, &value, err);
        if (status == CKPT_OK && value)
            status = put(h, path, name, value, err);
    }
    close_spot(&s);
    return status;
}

ckpt_status ckpt__h5_attributes(ckpt__h5 *h, hid_t object, ckpt_str path, uint64_t count, ckpt__h5_laters *laters,
                                ckpt_error *err)
{
    char text[200], name[4096];
    ckpt__escape(text, sizeof text, path.data, path.size);
    ckpt_status status = CKPT_OK;
    if (count > CKPT__H5_ATTRIBUTES)
        return ckpt__fail(err, CKPT_E_LIMIT, h->in->label, "'%s' has %llu attributes; %d are the most", text,
                          (unsigned long long)count, CKPT__H5_ATTRIBUTES);
    for (uint64_t i = 0; status == CKPT_OK && i < count; i++) {
        ssize_t n =
            H5Aget_name_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, (hsize_t)i, name, sizeof name, H5P_DEFAULT);
        if (n < 0)
            return ckpt__h5_fail(h, text, err);
        if ((size_t)n >= sizeof name)
            return ckpt__fail(err, CKPT_E_LIMIT, h->in->label,
                              "an attribute of '%s' has a name of %zd bytes; %zu are the most", text, n,
                              sizeof name - 1);
        ckpt_str copy = ckpt__arena_str(h->index->arena, name, (size_t)n);
        status = copy.data ? read_one(h, path, copy, laters, err) : no_memory((uint64_t)n, err);
    }
    return status;
}

ckpt_status ckpt__h5_read_later(ckpt__h5 *h, const ckpt__h5_laters *laters, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < laters->count; i++) {
        const ckpt__h5_later *l = &laters->items[i];
        spot s = {.h = h, .path = l->path, .name = l->name};
        status = open_spot(&s, err);
        if (status == CKPT_OK)
            status = read_value(&s, &h->values->entries[l->entry].value, err);
        close_spot(&s);
    }
    return status;
}
