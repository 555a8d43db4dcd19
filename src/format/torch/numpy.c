/* format/torch/numpy.c - numpy in pickles: dtypes, arrays, scalars. numpy 1 and 2 differ in module names alone.
 * What does not fit together is no error: the object then stays opaque. */
#include "format/torch/torch.h"

static bool callable_is(const ckpt__pickle_node *node, const char *tail)
{
    if (!node || node->kind != CKPT__P_OBJECT || node->u.object->callable->kind != CKPT__P_GLOBAL)
        return false;
    const ckpt__pickle_node *g = node->u.object->callable;
    static const char *const modules[] = {"numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric",
                                          "numpy._core.numeric", "numpy"};
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (ckpt__str_is(g->u.global->module, modules[i]))
            return ckpt__str_is(g->u.global->name, tail);
    return false;
}

/* ---- dtypes: numpy.dtype('f8', False, True) and its state (version, byte order, subdtype, names, fields, ...) */

typedef struct dtype {
    char kind;
    char order; /* '<' '>' '|' */
    uint64_t itemsize;
    char unit[24]; /* "[D]" of a date */
    const ckpt__pickle_node *names, *fields;
} dtype;

static const ckpt__pickle_node *state_of(const ckpt__pickle_node *node)
{
    return node && node->kind == CKPT__P_OBJECT ? node->u.object->state : NULL;
}

/* The unit of dates: the last of the state is (metadata, (unit, count, ...)). */
static void get_unit(ckpt__torch *t, const ckpt__pickle_node *state, dtype *out)
{
    const ckpt__pickle_node *data = ckpt__torch_item(ckpt__torch_item(state, 8), 1), *count = ckpt__torch_item(data, 1);
    ckpt_str unit;
    if (!data || !ckpt__torch_bytes(t, ckpt__torch_item(data, 0), &unit) || unit.size > 8 ||
        memchr(unit.data, '\0', unit.size))
        return;
    if (ckpt__str_is(unit, "generic"))
        return;
    size_t n = 0;
    out->unit[n++] = '[';
    if (count && count->kind == CKPT__P_INT && count->u.integer > 1 && count->u.integer < 1000000) {
        char digits[8];
        int64_t c = count->u.integer;
        size_t k = 0;
        for (; c; c /= 10)
            digits[k++] = (char)('0' + c % 10);
        while (k)
            out->unit[n++] = digits[--k];
    }
    memcpy(out->unit + n, unit.data, unit.size);
    out->unit[n + unit.size] = ']';
    out->unit[n + unit.size + 1] = '\0';
}

/* ---- class names */

static const struct {
    char kind;
    uint8_t size;
    const char *scalar, *dtype;
} classes[] = {
    {'f', 2, "numpy.float16", "numpy.dtypes.Float16DType"},
    {'f', 4, "numpy.float32", "numpy.dtypes.Float32DType"},
    {'f', 8, "numpy.float64", "numpy.dtypes.Float64DType"},
    {'f', 16, "numpy.longdouble", "numpy.dtypes.LongDoubleDType"},
    {'i', 1, "numpy.int8", "numpy.dtypes.Int8DType"},
    {'i', 2, "numpy.int16", "numpy.dtypes.Int16DType"},
    {'i', 4, "numpy.int32", "numpy.dtypes.Int32DType"},
    {'i', 8, "numpy.int64", "numpy.dtypes.Int64DType"},
    {'u', 1, "numpy.uint8", "numpy.dtypes.UInt8DType"},
    {'u', 2, "numpy.uint16", "numpy.dtypes.UInt16DType"},
    {'u', 4, "numpy.uint32", "numpy.dtypes.UInt32DType"},
    {'u', 8, "numpy.uint64", "numpy.dtypes.UInt64DType"},
    {'b', 1, "numpy.bool", "numpy.dtypes.BoolDType"},
    {'c', 8, "numpy.complex64", "numpy.dtypes.Complex64DType"},
    {'c', 16, "numpy.complex128", "numpy.dtypes.Complex128DType"},
    {'c', 32, "numpy.clongdouble", "numpy.dtypes.CLongDoubleDType"},
    {'S', 0, "numpy.bytes_", "numpy.dtypes.BytesDType"},
    {'U', 0, "numpy.str_", "numpy.dtypes.StrDType"},
    {'V', 0, "numpy.void", "numpy.dtypes.VoidDType"},
    {'M', 0, "numpy.datetime64", "numpy.dtypes.DateTime64DType"},
    {'m', 0, "numpy.timedelta64", "numpy.dtypes.TimeDelta64DType"},
    {'O', 0, "numpy.object_", "numpy.dtypes.ObjectDType"},
};

static ckpt_str find_class(char kind, uint64_t itemsize, bool of_dtype)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (classes[i].kind == kind && (classes[i].size == 0 || classes[i].size == itemsize))
            return ckpt__s(of_dtype ? classes[i].dtype : classes[i].scalar);
    return (ckpt_str){NULL, 0};
}

static bool get_dtype(ckpt__torch *t, const ckpt__pickle_node *node, dtype *out)
{
    memset(out, 0, sizeof *out);
    if (!callable_is(node, "dtype"))
        return false;
    const ckpt__pickle_node *code = ckpt__torch_item(node->u.object->args, 0), *state = state_of(node);
    const ckpt__pickle_node *order = ckpt__torch_item(state, 1), *size = ckpt__torch_item(state, 5);
    int64_t n;
    if (!code || code->kind != CKPT__P_STR || code->u.text.size < 2 ||
        !ckpt__parse_i64(code->u.text.data + 1, code->u.text.size - 1, &n) || n < 0 || n > (int64_t)1 << 40)
        return false;
    out->kind = code->u.text.data[0];
    if (!strchr("fiubcSUVMmO", out->kind))
        return false;
    out->itemsize = out->kind == 'U' ? (uint64_t)n * 4 : (uint64_t)n;
    if (size && size->kind == CKPT__P_INT && size->u.integer >= 0 && (uint64_t)size->u.integer != out->itemsize)
        return false;
    if (!find_class(out->kind, out->itemsize, true).data) /* 'c17' */
        return false;
    bool plain = out->kind == 'S' || out->kind == 'V' || out->kind == 'O' || out->itemsize <= 1;
    out->order = '|';
    if (!plain)
        out->order = order && order->kind == CKPT__P_STR && ckpt__str_is(order->u.text, ">") ? '>' : '<';
    if (out->kind == 'M' || out->kind == 'm')
        get_unit(t, state, out);
    if (out->kind == 'V') {
        out->names = ckpt__torch_item(state, 3);
        out->fields = ckpt__torch_item(state, 4);
        if (ckpt__torch_length(out->names) == 0 || out->fields->kind != CKPT__P_DICT)
            out->names = NULL;
    }
    return true;
}

static void put_simple(ckpt__buf *b, const dtype *d)
{
    uint64_t n = d->kind == 'U' ? d->itemsize / 4 : d->itemsize;
    if (d->kind == 'O')
        ckpt__buf_str(b, "|O");
    else
        ckpt__buf_printf(b, "%c%c%llu%s", d->order, d->kind, (unsigned long long)n, d->unit);
}

/* ---- the text of a record: numpy's dtype.descr */

enum { DEEPEST = 16, LONGEST = 1 << 16 }; /* records in records may be the same over and over */

typedef struct record {
    const ckpt__pickle_node *names, *fields;
    uint64_t itemsize, at;          /* bytes so far */
    size_t next;                    /* field */
    const ckpt__pickle_node *shape; /* of the subarray whose items are such records, or NULL */
} record;

static void put_str(ckpt__buf *b, ckpt_str s)
{
    ckpt_value v = {.kind = CKPT_V_STR, .text = s};
    ckpt__value_repr(b, &v);
}

/* ('', '|V7'): what lies between fields. */
static bool put_padding(ckpt__buf *b, record *r, uint64_t to)
{
    if (to < r->at)
        return false;
    if (to > r->at)
        ckpt__buf_printf(b, "%s('', '|V%llu')", r->at || r->next ? ", " : "", (unsigned long long)(to - r->at));
    r->at = to;
    return true;
}

/* ", (2, 3)" and ")": how a field ends. */
static bool end_field(ckpt__buf *b, const ckpt__pickle_node *shape)
{
    size_t n = ckpt__torch_length(shape);
    for (size_t i = 0; i < n; i++) {
        const ckpt__pickle_node *d = ckpt__torch_item(shape, i);
        if (d->kind != CKPT__P_INT)
            return false;
        ckpt__buf_printf(b, "%s%lld", i ? ", " : ", (", (long long)d->u.integer);
    }
    ckpt__buf_str(b, n == 0 ? ")" : n == 1 ? ",))" : "))");
    return true;
}

/* The name, or (title, name). */
static bool put_name(ckpt__buf *b, ckpt_str name, const ckpt__pickle_node *title)
{
    if (title && title->kind != CKPT__P_STR)
        return false;
    ckpt__buf_str(b, title ? "((" : "(");
    if (title) {
        put_str(b, title->u.text);
        ckpt__buf_str(b, ", ");
    }
    put_str(b, name);
    ckpt__buf_str(b, title ? "), " : ", ");
    return true;
}

/* One field up to its dtype; *of: that of its items, *shape: NULL, or the subarray's. */
static bool begin_field(ckpt__torch *t, ckpt__buf *b, record *r, dtype *of, const ckpt__pickle_node **shape)
{
    const ckpt__pickle_node *name = ckpt__torch_item(r->names, r->next);
    const ckpt__pickle_node *field = name->kind == CKPT__P_STR ? ckpt__pickle_get(r->fields, name->u.text.data) : NULL;
    const ckpt__pickle_node *type = ckpt__torch_item(field, 0), *offset = ckpt__torch_item(field, 1);
    if (!offset || offset->kind != CKPT__P_INT || offset->u.integer < 0 || !get_dtype(t, type, of) ||
        !put_padding(b, r, (uint64_t)offset->u.integer))
        return false;
    ckpt__buf_str(b, r->at || r->next ? ", " : "");
    uint64_t itemsize = of->itemsize;
    const ckpt__pickle_node *sub = ckpt__torch_item(state_of(type), 2); /* (dtype of the items, shape) */
    bool many = sub && sub->kind == CKPT__P_TUPLE;
    *shape = many ? ckpt__torch_item(sub, 1) : NULL;
    if ((many && (!*shape || !get_dtype(t, ckpt__torch_item(sub, 0), of))) || !ckpt__add(r->at, itemsize, &r->at))
        return false;
    r->next++;
    return put_name(b, name->u.text, ckpt__torch_item(field, 2));
}

/* "[('a', '<i4'), ('', '|V4'), ('b', '<f8', (2,))]"; false: its fields overlap, or are not in order, or are too many. */
static bool put_record(ckpt__torch *t, ckpt__buf *b, const dtype *outer)
{
    record stack[DEEPEST] = {{.names = outer->names, .fields = outer->fields, .itemsize = outer->itemsize}};
    size_t depth = 1;
    ckpt__buf_char(b, '[');
    while (depth && b->size < LONGEST) {
        record *r = &stack[depth - 1];
        const ckpt__pickle_node *shape;
        dtype d;
        if (r->next == ckpt__torch_length(r->names)) {
            if (!put_padding(b, r, r->itemsize))
                return false;
            ckpt__buf_char(b, ']');
            if (--depth && !end_field(b, r->shape))
                return false;
            continue;
        }
        if (!begin_field(t, b, r, &d, &shape) || (d.names && depth == DEEPEST))
            return false;
        if (d.names) {
            stack[depth++] = (record){.names = d.names, .fields = d.fields, .itemsize = d.itemsize, .shape = shape};
            ckpt__buf_char(b, '[');
            continue;
        }
        ckpt__buf_char(b, '\'');
        put_simple(b, &d);
        ckpt__buf_char(b, '\'');
        if (!end_field(b, shape))
            return false;
    }
    return depth == 0;
}

static ckpt_str dtype_text(ckpt__torch *t, const dtype *d)
{
    ckpt__buf b = {0};
    if (!d->names || !put_record(t, &b, d)) {
        b.size = 0;
        put_simple(&b, d);
    }
    ckpt_str out = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(t->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return out;
}

ckpt_str ckpt__torch_scalar_class(ckpt__torch *t, char kind, uint64_t itemsize)
{
    (void)t;
    return find_class(kind, itemsize, false);
}

ckpt_str ckpt__torch_dtype_class(ckpt__torch *t, const ckpt__pickle_node *node)
{
    dtype d;
    return get_dtype(t, node, &d) ? find_class(d.kind, d.itemsize, true) : (ckpt_str){NULL, 0};
}

/* ---- arrays */

enum { MOST_AXES = 64 }; /* numpy's own limit */

static bool get_shape(ckpt__torch *t, const ckpt__pickle_node *node, ckpt__torch_array *out)
{
    if (!node || node->kind != CKPT__P_TUPLE || ckpt__torch_length(node) > MOST_AXES)
        return false;
    out->ndim = (uint32_t)ckpt__torch_length(node);
    int64_t *shape = ckpt__arena_array(t->arena, (size_t)out->ndim + 1, sizeof *shape);
    for (uint32_t i = 0; shape && i < out->ndim; i++) {
        const ckpt__pickle_node *n = ckpt__torch_item(node, i);
        if (n->kind != CKPT__P_INT)
            return false;
        shape[i] = n->u.integer;
    }
    out->shape = shape;
    return shape != NULL;
}

/* numpy turns what it unpickles into the machine's byte order; so does this. (The buffers of protocol 5 it leaves as they are:
 * the numbers are the same.) */
static bool to_little_endian(ckpt__torch *t, const dtype *d, ckpt_str *bytes)
{
    size_t unit = d->kind == 'U' ? 4 : (size_t)(d->kind == 'c' ? d->itemsize / 2 : d->itemsize);
    char *swapped = ckpt__arena_alloc(t->arena, bytes->size + 1);
    for (size_t i = 0; swapped && i < bytes->size; i++)
        swapped[i] = bytes->data[i / unit * unit + (unit - 1 - i % unit)];
    bytes->data = swapped;
    return swapped != NULL;
}

static bool finish(ckpt__torch *t, const dtype *from, const ckpt__pickle_node *data, ckpt__torch_array *out)
{
    uint64_t numel, nbytes;
    dtype little = *from, *d = &little;
    bool swap = d->order == '>' && d->itemsize > 1;
    if (swap)
        d->order = '<';
    out->kind = d->kind;
    out->itemsize = d->itemsize;
    out->dtype = dtype_text(t, d);
    if (!out->dtype.data || !ckpt__numel(out->shape, out->ndim, &numel) || !ckpt__mul(numel, d->itemsize, &nbytes))
        return false;
    if (d->kind == 'O') {
        out->object = true;
        out->objects = data;
        return data && data->kind == CKPT__P_LIST && ckpt__torch_length(data) == numel;
    }
    return ckpt__torch_bytes(t, data, &out->bytes) && out->bytes.size == nbytes &&
           (!swap || to_little_endian(t, d, &out->bytes));
}

/* _reconstruct(ndarray, (0,), b'b') with the state (version, shape, dtype, fortran, data) */
static bool reconstructed(ckpt__torch *t, const ckpt__pickle_node *node, ckpt__torch_array *out)
{
    dtype d;
    const ckpt__pickle_node *state = state_of(node), *order = ckpt__torch_item(state, 3);
    if (!ckpt__pickle_is_global(ckpt__torch_item(node->u.object->args, 0), "numpy", "ndarray") ||
        ckpt__torch_length(state) != 5)
        return false;
    out->fortran = order->kind == CKPT__P_BOOL && order->boolean;
    return get_shape(t, ckpt__torch_item(state, 1), out) && get_dtype(t, ckpt__torch_item(state, 2), &d) &&
           finish(t, &d, ckpt__torch_item(state, 4), out);
}

/* The order of the axes: a permutation of their numbers. */
static bool get_axes(const ckpt__pickle_node *node, uint32_t ndim, uint32_t *axes)
{
    uint64_t seen = 0;
    if (!node || node->kind != CKPT__P_TUPLE || ckpt__torch_length(node) != ndim)
        return false;
    for (uint32_t i = 0; i < ndim; i++) {
        const ckpt__pickle_node *n = ckpt__torch_item(node, i);
        if (n->kind != CKPT__P_INT || n->u.integer < 0 || n->u.integer >= ndim || (seen >> n->u.integer & 1))
            return false;
        axes[i] = (uint32_t)n->u.integer;
        seen |= (uint64_t)1 << n->u.integer;
    }
    return true;
}

/* array.transpose(axes) of an array in C order: its shape, and its bytes in C order again. */
static bool transpose(ckpt__torch *t, const uint32_t *axes, uint64_t itemsize, ckpt__torch_array *out)
{
    uint64_t strides[MOST_AXES], at[MOST_AXES] = {0}, stride = itemsize, from = 0;
    int64_t *shape = ckpt__arena_array(t->arena, (size_t)out->ndim + 1, sizeof *shape);
    char *bytes = ckpt__arena_alloc(t->arena, out->bytes.size + 1);
    if (!shape || !bytes)
        return false;
    for (uint32_t i = out->ndim; i-- > 0; stride *= (uint64_t)out->shape[i]) /* no more than bytes.size */
        strides[i] = stride;
    for (uint32_t i = 0; i < out->ndim; i++)
        shape[i] = out->shape[axes[i]];
    for (size_t to = 0; to < out->bytes.size; to += (size_t)itemsize) {
        memcpy(bytes + to, out->bytes.data + from, (size_t)itemsize);
        for (uint32_t i = out->ndim; i-- > 0;) {
            from += strides[axes[i]];
            if (++at[i] < (uint64_t)shape[i])
                break;
            from -= strides[axes[i]] * at[i];
            at[i] = 0;
        }
    }
    out->shape = shape;
    out->bytes.data = bytes;
    return true;
}

/* _frombuffer(bytes, dtype, shape, 'C'), protocol 5; from numpy 2.3 on also (bytes, dtype, shape, 'K', axes), which is an
 * array in C order whose axes were exchanged. */
static bool from_buffer(ckpt__torch *t, const ckpt__pickle_node *args, ckpt__torch_array *out)
{
    dtype d;
    uint32_t axes[MOST_AXES];
    const ckpt__pickle_node *order = ckpt__torch_item(args, 3), *exchanged = ckpt__torch_item(args, 4);
    bool named = order && order->kind == CKPT__P_STR;
    out->fortran = named && ckpt__str_is(order->u.text, "F");
    bool turned = named && ckpt__str_is(order->u.text, "K") && exchanged && exchanged->kind != CKPT__P_NONE;
    if (!get_dtype(t, ckpt__torch_item(args, 1), &d) || !get_shape(t, ckpt__torch_item(args, 2), out) ||
        !finish(t, &d, ckpt__torch_item(args, 0), out))
        return false;
    return !turned || (get_axes(exchanged, out->ndim, axes) && transpose(t, axes, d.itemsize, out));
}

bool ckpt__torch_array_of(ckpt__torch *t, const ckpt__pickle_node *node, ckpt__torch_array *out, bool *scalar)
{
    static const int64_t no_shape[1] = {0};
    dtype d;
    memset(out, 0, sizeof *out);
    *scalar = false;
    if (callable_is(node, "_reconstruct"))
        return reconstructed(t, node, out);
    if (callable_is(node, "_frombuffer"))
        return from_buffer(t, node->u.object->args, out);
    *scalar = callable_is(node, "scalar");
    out->shape = no_shape;
    return *scalar && get_dtype(t, ckpt__torch_item(node->u.object->args, 0), &d) && d.kind != 'O' &&
           finish(t, &d, ckpt__torch_item(node->u.object->args, 1), out);
}
