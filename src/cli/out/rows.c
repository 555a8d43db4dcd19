#include "cli/out/rows.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Is the field there for one who asks so? */
static bool is_in(const row_field *f, unsigned set)
{
    return !f->only || (f->only & set);
}

/* Where its value lies; NULL: it is not known. */
static const void *value_of(const row_field *f, const row_parts *r)
{
    const char *part = r->part[f->part];
    return part && (!f->known || f->known(r)) ? part + f->at : NULL;
}

/* ---- JSON */

/* clang-format off */
static void json_value(json_out *j, const row_field *f, const void *v)
{
    const char *key = f->key;
    const ckpt_str *s = v;
    const ckpt_tensor_info *tensor = v;
    switch (f->kind) {
    case ROW_NONE: break;
    case ROW_WORD: json_text(j, key, *(const char *const *)v); break;
    case ROW_STR:
    case ROW_NAME: json_bytes(j, key, s->data, s->size); break;
    case ROW_DTYPE: json_text(j, key, ckpt_dtype_name(*(const ckpt_dtype *)v)); break;
    case ROW_ROLE: json_text(j, key, *(const ckpt_role *)v ? ckpt_role_name(*(const ckpt_role *)v) : NULL); break;
    case ROW_SHAPE: json_sizes(j, key, tensor->shape, tensor->ndim); break;
    case ROW_INT: json_int(j, key, *(const int64_t *)v); break;
    case ROW_NUMBER: json_int_or_null(j, key, *(const int64_t *)v >= 0, *(const int64_t *)v); break;
    case ROW_UINT:
    case ROW_SIZE: json_uint(j, key, *(const uint64_t *)v); break;
    case ROW_BOOL: json_bool(j, key, *(const bool *)v); break;
    case ROW_CRC: json_crc(j, key, *(const uint32_t *)v); break;
    }
}
/* clang-format on */

static bool is_empty(const row_field *f, const void *v)
{
    return f->kind == ROW_BOOL ? !*(const bool *)v : f->kind == ROW_STR && !((const ckpt_str *)v)->data;
}

void rows_json(json_out *j, const row_field *fields, unsigned set, const row_parts *r)
{
    json_object(j, NULL);
    for (const row_field *f = fields; f->key || f->title; f++) {
        if (!f->key || !is_in(f, set))
            continue;
        const void *v = value_of(f, r);
        if (f->json)
            f->json(j, f->key, r);
        else if (!v)
            json_null(j, f->key);
        else if (!f->omit || !is_empty(f, v))
            json_value(j, f, v);
    }
    json_end_object(j);
}

/* ---- text */

ckpt_str rows_word(const char *text)
{
    return (ckpt_str){text, text ? strlen(text) : 0};
}

ckpt_str rows_print(char buf[ROW_CELL], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buf, ROW_CELL, format, args);
    va_end(args);
    return (ckpt_str){buf, n < 0 ? 0 : n < ROW_CELL ? (size_t)n : ROW_CELL - 1};
}

static size_t digits_of(int64_t n)
{
    size_t digits = 1;
    for (uint64_t more = 10; (uint64_t)n >= more; more *= 10)
        digits++;
    return digits;
}

static ckpt_str shape_text(char buf[ROW_CELL], const ckpt_tensor_info *t)
{
    size_t used = 0;
    buf[used++] = '[';
    for (uint32_t i = 0; i < t->ndim && used + 24 < ROW_CELL; i++) {
        if (i) {
            buf[used++] = ',';
            buf[used++] = ' ';
        }
        used += digits_of(t->shape[i]);
        char *p = buf + used;
        for (uint64_t n = (uint64_t)t->shape[i]; p == buf + used || n; n /= 10)
            *--p = (char)('0' + n % 10);
    }
    buf[used++] = ']';
    return (ckpt_str){buf, used};
}

static size_t shape_width(const ckpt_tensor_info *t)
{
    size_t width = t->ndim ? 2 * (size_t)t->ndim : 2;
    for (uint32_t i = 0; i < t->ndim; i++)
        width += digits_of(t->shape[i]);
    return width;
}

/* clang-format off */
ckpt_str rows_cell(const row_field *f, char buf[ROW_CELL], const row_parts *r)
{
    const void *v = value_of(f, r);
    const ckpt_str *s = v;
    const int64_t *n = v;
    if (!v || f->text)
        return v ? f->text(buf, r) : rows_word(NULL);
    switch (f->kind) {
    case ROW_NONE: break;
    case ROW_WORD: return rows_word(*(const char *const *)v);
    case ROW_STR: return *s;
    case ROW_NAME: return s->size ? *s : rows_word("\"\"");
    case ROW_DTYPE: return rows_word(ckpt_dtype_name(*(const ckpt_dtype *)v));
    case ROW_ROLE: return rows_word(*(const ckpt_role *)v ? ckpt_role_name(*(const ckpt_role *)v) : NULL);
    case ROW_SHAPE: return shape_text(buf, v);
    case ROW_NUMBER: return *n < 0 ? rows_word(NULL) : rows_print(buf, "%" PRId64, *n);
    case ROW_INT: return rows_print(buf, "%" PRId64, *n);
    case ROW_UINT: return rows_print(buf, "%" PRIu64, *(const uint64_t *)v);
    case ROW_SIZE: return rows_word(cli_size(buf, *(const uint64_t *)v));
    case ROW_BOOL: return rows_word(*(const bool *)v ? "yes" : "no");
    case ROW_CRC: return rows_print(buf, "%08" PRIx32, *(const uint32_t *)v);
    }
    return rows_word("");
}
/* clang-format on */

static bool from_file(const row_field *f)
{
    return f->kind == ROW_STR || f->kind == ROW_NAME;
}

void rows_flush(row_text *t)
{
    fwrite_unlocked(t->page, 1, t->used, stdout);
    t->used = 0;
}

void rows_begin(row_text *t, const row_field *fields, unsigned set, size_t gap)
{
    t->count = t->used = 0;
    t->markdown = false;
    for (const row_field *f = fields; f->key || f->title; f++) {
        if (!f->title || !is_in(f, set) || t->count == ROW_COLUMNS)
            continue;
        size_t i = t->count++;
        for (; i > 0 && t->columns[i - 1].field->column > f->column; i--)
            t->columns[i] = t->columns[i - 1];
        t->columns[i] = (row_column){f, f->title, f->width, gap, f->if_any & set, from_file(f), NULL};
    }
    t->columns[t->count - 1].gap = 0;
}

/* Needs no second look, for the row above had the same. */
static bool is_same(row_kind kind, const void *v, const void *above)
{
    const ckpt_str *s = v, *t = above;
    return kind == ROW_DTYPE  ? *(const ckpt_dtype *)v == *(const ckpt_dtype *)above
           : kind == ROW_ROLE ? *(const ckpt_role *)v == *(const ckpt_role *)above
                              : kind == ROW_STR && s->data == t->data && s->size == t->size;
}

static size_t width_of(const row_field *f, const row_parts *r, const void *v)
{
    char buf[ROW_CELL];
    if (f->kind == ROW_SHAPE)
        return shape_width(v);
    ckpt_str s = rows_cell(f, buf, r);
    return from_file(f) ? cli_width(s.data, s.size) : s.size;
}

void rows_measure(row_text *t, const row_parts *r)
{
    for (row_column *k = t->columns; k->gap; k++) {
        const row_field *f = k->field;
        if (f->width && !k->hidden)
            continue;
        const void *v = value_of(f, r), *above = k->above;
        k->above = v;
        if (!v || (above && is_same(f->kind, v, above)))
            continue;
        size_t width = width_of(f, r, v);
        if (width == 0 || (f->most && width > f->most))
            continue;
        k->hidden = false;
        if (width > k->width && !f->width)
            k->width = width;
    }
}

/* A pipe ends a cell, in code too; code that holds a backquote stands between two of them. */
void rows_put_markdown_message(const char *text, bool code)
{
    const char *fence = !code ? "" : strchr(text, '`') ? "`` " : "`";
    fputs(fence, stdout);
    for (const char *p = text; *p; p++) {
        if (*p == '|')
            putchar('\\');
        putchar(*p);
    }
    fputs(fence[0] && fence[1] ? " ``" : fence, stdout);
}

void rows_put_markdown(ckpt_str s, bool code)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f)
        cli_put(f, s.data, s.size);
    if (f && fclose(f) == 0)
        rows_put_markdown_message(text, code);
    free(text);
}

/* "| a | b", which rows_end_line ends. Names from a file are code: nothing in them is a mark of emphasis or HTML. */
static void line_of_markdown(const row_text *t, const row_parts *r)
{
    for (size_t i = 0; i < t->count; i++) {
        char buf[ROW_CELL];
        const row_column *k = &t->columns[i];
        ckpt_str s = r ? rows_cell(k->field, buf, r) : rows_word(k->title);
        fputs(i ? " | " : "| ", stdout);
        rows_put_markdown(s.data ? s : rows_word("-"), r && s.data && k->escape);
    }
}

/* Each cell as printf("%-*s") or, to the right, printf("%*s"), and the gap. */
size_t rows_line(row_text *t, const row_parts *r)
{
    size_t all = 0;
    if (t->markdown) {
        rows_flush(t);
        line_of_markdown(t, r);
        return 0;
    }
    for (const row_column *k = t->columns, *end = k + t->count; k < end; k++) {
        char buf[ROW_CELL];
        ckpt_str s = r ? rows_cell(k->field, buf, r) : rows_word(k->title);
        if (!s.data)
            s = rows_word("-");
        size_t plain = r && !k->escape ? s.size : cli_plain(s.data, s.size);
        size_t width = plain == s.size ? plain : cli_width(s.data, s.size),
               missing = width < k->width ? k->width - width : 0;
        size_t left = k->field->right ? missing : 0, taken = width + missing + k->gap;
        if (plain < s.size || taken > sizeof t->page - t->used)
            rows_flush(t);
        if (plain == s.size && taken <= sizeof t->page) {
            memset(t->page + t->used, ' ', taken);
            memcpy(t->page + t->used + left, s.data, s.size);
            t->used += taken;
        } else {
            printf("%*s", (int)left, "");
            cli_put(stdout, s.data, s.size);
            printf("%*s", (int)(taken - width - left), "");
        }
        all += taken;
    }
    return all;
}

void rows_head(row_text *t, const cli *c)
{
    size_t shown = 0;
    for (size_t i = 0; i < t->count; i++)
        if (!t->columns[i].hidden)
            t->columns[shown++] = t->columns[i];
    t->count = shown;
    t->markdown = c->markdown;
    if (t->markdown) {
        rows_line(t, NULL);
        fputs(" |\n|", stdout);
        for (size_t i = 0; i < t->count; i++)
            fputs(t->columns[i].field->right ? " ---: |" : " --- |", stdout);
        putchar('\n');
        return;
    }
    for (row_column *k = t->columns; k->gap; k++) {
        size_t width = cli_width(k->title, strlen(k->title));
        k->width = width > k->width && !k->field->width ? width : k->width;
    }
    fputs(cli_style(c, "bold"), stdout);
    rows_line(t, NULL);
    rows_flush(t);
    printf("%s\n", cli_style(c, "off"));
}

void rows_end_line(row_text *t)
{
    if (t->markdown)
        fputs(" |", stdout);
    if (t->used == sizeof t->page)
        rows_flush(t);
    t->page[t->used++] = '\n';
}
