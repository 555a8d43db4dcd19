/* producer_files.h - torch files as programs leave them, from a short notation. */
#ifndef PRODUCER_FILES_H
#define PRODUCER_FILES_H
#include "anatomy/producer.h"
#include "../folder_files.h"

/* ---- files from a short notation: Python's literals; W a state_dict, O an Adam with its state, T1.5 a tensor of one
 * float32, I7 one of int64, A7 a numpy.int64, $module Class{...} an object with attributes; S a state_dict whose a.weight is tied to b.weight, first in a
 * file */
static const flat shapes[] = {{"a.weight", 2, {2, 3}}, {"a.bias", 1, {3, 0}}};

static inline void put_weights(torch_file *t)
{
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < 2; i++) {
        put_str(&t->pickle, shapes[i].name);
        torch_tensor(t, shapes[i].ndim, shapes[i].shape[0], shapes[i].shape[1], 1);
    }
    PUT(&t->pickle, "u");
}

static inline void put_tied(torch_file *t)
{
    view tie = {.class_name = "FloatStorage",
                .key = "0",
                .location = "cpu",
                .numel = 6,
                .ndim = 2,
                .stride_count = 2,
                .shape = {2, 3},
                .strides = {3, 1}};
    ck_assert_int_eq(t->count, 0);
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "a.weight");
    torch_tensor(t, 2, 2, 3, 1);
    put_str(&t->pickle, "a.bias");
    torch_tensor(t, 1, 3, 0, 1);
    put_str(&t->pickle, "b.weight");
    put_tensor(&t->pickle, &tie);
    PUT(&t->pickle, "u");
}

static inline void put_whole_tensor(torch_file *t, int64_t value)
{
    char key[16];
    view v = {.class_name = "LongStorage", .key = key, .location = "cpu", .numel = 1};
    snprintf(key, sizeof key, "%d", t->count);
    t->numel[t->count] = 2; /* floats: 8 bytes */
    memcpy(t->data[t->count++], &value, sizeof value);
    put_tensor(&t->pickle, &v);
}

/* scalar(dtype('i8'), b'...'), whose other seven bytes are 0 */
static inline void put_numpy_scalar(torch_file *t, unsigned char value)
{
    char text[8] = {(char)value};
    ck_assert_uint_lt(value, 128); /* one byte of UTF-8 */
    put_global(&t->pickle, "numpy._core.multiarray", "scalar");
    put_global(&t->pickle, "numpy", "dtype");
    put_str(&t->pickle, "i8");
    PUT(&t->pickle, "\x89\x88\x87R(K\3");
    put_str(&t->pickle, "<");
    PUT(&t->pickle, "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb");
    put_global(&t->pickle, "_codecs", "encode");
    PUT(&t->pickle, "X\10\0\0\0");
    put(&t->pickle, text, sizeof text);
    put_str(&t->pickle, "latin1");
    PUT(&t->pickle, "\x86R\x86R");
}

static inline const char *put_quoted(torch_file *t, const char *p)
{
    char text[200];
    size_t n = strcspn(p + 1, "'");
    ck_assert_uint_lt(n, sizeof text);
    memcpy(text, p + 1, n);
    text[n] = 0;
    put_str(&t->pickle, text);
    return p + n + 2;
}

static inline const char *put_number_of(torch_file *t, const char *p)
{
    size_t n = strspn(p, "-0123456789.e");
    if (memchr(p, '.', n))
        torch_float(t, atof(p));
    else
        put_int(&t->pickle, atol(p));
    return p + n;
}

static const char *put_value(torch_file *t, const char *p);

static inline const char *put_object(torch_file *t, const char *p)
{
    char module[100], name[100];
    ck_assert_int_eq(sscanf(p, "$%99s %99[A-Za-z]", module, name), 2);
    put_global(&t->pickle, module, name);
    PUT(&t->pickle, ")\x81");
    p = put_value(t, strchr(p, '{'));
    PUT(&t->pickle, "b");
    return p;
}

static inline const char *put_many(torch_file *t, const char *p, char end)
{
    bool dict = end == '}';
    put(&t->pickle, dict ? "}(" : "](", 2);
    for (p++; *p != end;) {
        p += strspn(p, ", ");
        if (dict)
            p = put_value(t, p) + 1; /* the colon */
        p = put_value(t, p);
    }
    put(&t->pickle, dict ? "u" : "e", 1);
    return p + 1;
}

static const char *put_value(torch_file *t, const char *p)
{
    p += strspn(p, " ");
    switch (*p) {
    case '{':
        return put_many(t, p, '}');
    case '[':
        return put_many(t, p, ']');
    case '\'':
        return put_quoted(t, p);
    case '$':
        return put_object(t, p);
    case 'W':
        put_weights(t);
        return p + 1;
    case 'S':
        put_tied(t);
        return p + 1;
    case 'O':
        put_adam(t, shapes, 2, 2, 0.1);
        return p + 1;
    case 'T':
        torch_tensor(t, 0, 0, 0, (float)atof(p + 1));
        return p + 1 + strspn(p + 1, "-0123456789.");
    case 'I':
        put_whole_tensor(t, atol(p + 1));
        return p + 1 + strspn(p + 1, "-0123456789");
    case 'A':
        put_numpy_scalar(t, (unsigned char)atol(p + 1));
        return p + 1 + strspn(p + 1, "0123456789");
    case 'N':
        PUT(&t->pickle, "N");
        return p + 4; /* None, True, False */
    case 'y':
        PUT(&t->pickle, "\x88");
        return p + 1;
    case 'n':
        PUT(&t->pickle, "\x89");
        return p + 1;
    default:
        return put_number_of(t, p);
    }
}

static inline void write_spec(const char *path, const char *spec)
{
    torch_file *t = begin_torch();
    const char *end = put_value(t, spec);
    ck_assert_str_eq(end, "");
    write_torch(path, t);
}

/* The rows of torch files, each key looked up by itself. `only` is a row's matter and not looked at. */
static inline const ckpt__producer *look_up_each(const ckpt_value *root)
{
    for (size_t i = 0; i < ckpt__producer_row_count; i++) {
        const ckpt__producer_row *row = &ckpt__producer_rows[i];
        bool all = !row->format && !row->only;
        for (size_t k = 0; all && k < sizeof row->signs / sizeof *row->signs && row->signs[k]; k++)
            all = ckpt__producer_fits(root, row->signs[k]);
        if (all && !ckpt__producer_fits(root, row->none))
            return &row->producer;
    }
    return NULL;
}

/* A dict with 100 keys more, of 0 to 99 bytes; its arrays are the test's, and static. */
static inline ckpt_value with_many_keys(const ckpt_value *dict)
{
    enum { MORE = 100, OWN = 100 };
    static char name[MORE + 1];
    static ckpt_value keys[MORE], value = {.kind = CKPT_V_INT, .integer = 1};
    static ckpt_entry entries[MORE + OWN];
    ck_assert_uint_le(dict->entry_count, OWN);
    memset(name, 'z', MORE);
    for (size_t i = 0; i < MORE; i++) {
        keys[i] = (ckpt_value){.kind = CKPT_V_STR, .text = {name + MORE - i, i}};
        entries[i] = (ckpt_entry){&keys[i], &value};
    }
    for (size_t i = 0; i < dict->entry_count; i++)
        entries[MORE + i] = dict->entries[i];
    ckpt_value more = *dict;
    more.entries = entries;
    more.entry_count = MORE + dict->entry_count;
    return more;
}
#endif
