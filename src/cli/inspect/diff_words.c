/* inspect/diff_words.c - a difference in words, as the lists of text and the tables of Markdown have it. */
#include "cli/inspect/diff_words.h"
#include <inttypes.h>
#include <string.h>

/* A value is cut to so many bytes: a difference is named, not shown whole. */
enum { SHOWN_MAX = 60 };

bool diff_same_text(ckpt_str a, ckpt_str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static void put_dims(FILE *f, const int64_t *shape, uint32_t ndim)
{
    putc('[', f);
    for (uint32_t i = 0; i < ndim && shape; i++)
        fprintf(f, "%s%" PRId64, i ? ", " : "", shape[i]);
    putc(']', f);
}

static void put_shape(FILE *f, const ckpt_tensor_info *t)
{
    put_dims(f, t->shape, t->ndim);
}

void diff_put_values(FILE *f, const ckpt_diff_tensor *t)
{
    if (!t->compared) {
        fputs(": one of them has no data", f);
        return;
    }
    fprintf(f, ": %" PRIu64 " of %" PRIu64 " values, max |a-b| %.3g, relative %.3g", t->differing, t->elements,
            t->max_abs, t->max_rel);
    if (t->nan_mismatch)
        fprintf(f, ", NaN in one only: %" PRIu64, t->nan_mismatch);
}

void diff_put_change(FILE *f, const ckpt_diff_tensor *t)
{
    if (!t->a || !t->b) {
        const ckpt_tensor_info *only = t->a ? t->a : t->b;
        fprintf(f, "  %s ", ckpt_dtype_name(only->dtype));
        put_shape(f, only);
        return;
    }
    if (t->what & CKPT_DIFF_DTYPE)
        fprintf(f, "  dtype %s -> %s", ckpt_dtype_name(t->a->dtype), ckpt_dtype_name(t->b->dtype));
    if (t->what & CKPT_DIFF_SHAPE) {
        fputs("  shape ", f);
        put_shape(f, t->a);
        fputs(" -> ", f);
        put_shape(f, t->b);
    }
    if (t->what & CKPT_DIFF_LAYOUT) {
        fputs("  layout ", f);
        cli_put_str(f, t->a->extra->layout.data ? t->a->extra->layout : t->a->extra->quantizer, "dense");
        fputs(" -> ", f);
        cli_put_str(f, t->b->extra->layout.data ? t->b->extra->layout : t->b->extra->quantizer, "dense");
        ckpt_str before = t->a->extra->quantizer, now = t->b->extra->quantizer;
        if (before.data && now.data && diff_same_text(before, now))
            fputs(", another scale or zero point", f);
    }
    if (t->what & CKPT_DIFF_DEVICE) {
        fputs("  device ", f);
        cli_put_str(f, t->a->device, "-");
        fputs(" -> ", f);
        cli_put_str(f, t->b->device, "-");
    }
}

static void put_text(FILE *f, ckpt_str text, const char *quote)
{
    size_t n = text.size < SHOWN_MAX ? text.size : SHOWN_MAX;
    fputs(quote, f);
    cli_put(f, text.data, n);
    fprintf(f, "%s%s", n < text.size ? "..." : "", quote);
}

/* A scalar of numpy: its class, and its number where that is a double, a float or an integer of 64 bits. */
static void put_object(FILE *f, const ckpt_value *v)
{
    char number[JSON_DOUBLE_MAX];
    union {
        unsigned char bytes[8];
        double f8;
        float f4;
        int64_t i8;
    } of = {{0}};
    put_text(f, v->class_name, "");
    const char *dtype = v->array ? v->array->dtype.data : NULL;
    if (!dtype || v->array->ndim || v->text.size > sizeof of)
        return;
    memcpy(of.bytes, v->text.data, v->text.size);
    if (strcmp(dtype, "<f8") == 0)
        fprintf(f, " %s", json_format_double(number, of.f8));
    else if (strcmp(dtype, "<f4") == 0)
        fprintf(f, " %s", json_format_double(number, (double)of.f4));
    else if (strcmp(dtype, "<i8") == 0)
        fprintf(f, " %" PRId64, of.i8);
}

static void put_array(FILE *f, const ckpt_value *v)
{
    put_text(f, v->array->dtype, "");
    putc(' ', f);
    put_dims(f, v->array->shape, v->array->ndim);
    fputs(v->array->fortran ? " in Fortran order" : "", f);
}

static void put_value(FILE *f, const ckpt_value *v, const ckpt_tensor_info *t)
{
    char number[JSON_DOUBLE_MAX];
    if (!v) {
        fprintf(f, "a tensor of %s ", ckpt_dtype_name(t->dtype));
        put_shape(f, t);
        return;
    }
    switch (v->kind) {
    case CKPT_V_BOOL:
        fputs(v->boolean ? "True" : "False", f);
        break;
    case CKPT_V_INT:
        fprintf(f, "%" PRId64, v->integer);
        break;
    case CKPT_V_FLOAT:
        fputs(json_format_double(number, v->real), f);
        break;
    case CKPT_V_BIGINT:
        put_text(f, v->text, "");
        break;
    case CKPT_V_STR:
        put_text(f, v->text, "'");
        break;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        fprintf(f, "%zu bytes", v->text.size);
        break;
    case CKPT_V_NONE:
        fputs("None", f);
        break;
    case CKPT_V_CLASS:
        put_text(f, v->class_name, "");
        break;
    case CKPT_V_OBJECT:
        put_object(f, v);
        break;
    case CKPT_V_ARRAY:
        fputs("array of ", f);
        put_array(f, v);
        break;
    default:
        fprintf(f, "%s of %zu", ckpt_kind_name(v->kind), v->kind == CKPT_V_DICT ? v->entry_count : v->item_count);
    }
}

/* Two lists of names: where they part. */
static void put_lists(FILE *f, const ckpt_value *a, const ckpt_value *b)
{
    size_t i = 0, n = a->item_count < b->item_count ? a->item_count : b->item_count;
    while (i < n && diff_same_text(a->items[i]->text, b->items[i]->text))
        i++;
    fprintf(f, "%zu names -> %zu", a->item_count, b->item_count);
    if (i == n)
        return;
    fprintf(f, ", number %zu: ", i);
    put_value(f, a->items[i], NULL);
    fputs(" -> ", f);
    put_value(f, b->items[i], NULL);
}

static bool is_names(const ckpt_value *v)
{
    for (size_t i = 0; v && v->kind == CKPT_V_LIST && i < v->item_count; i++)
        if (v->items[i]->kind != CKPT_V_STR)
            return false;
    return v && v->kind == CKPT_V_LIST && v->item_count > 0;
}

void diff_put_scalar(FILE *f, const ckpt_diff_scalar *s)
{
    if (s->status == CKPT_DIFF_CHANGED && is_names(s->a) && is_names(s->b)) {
        put_lists(f, s->a, s->b);
        return;
    }
    if (s->status != CKPT_DIFF_ADDED)
        put_value(f, s->a, s->tensor_a);
    if (s->status == CKPT_DIFF_CHANGED)
        fputs(" -> ", f);
    if (s->status != CKPT_DIFF_REMOVED)
        put_value(f, s->b, s->tensor_b);
}
