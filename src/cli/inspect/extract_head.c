/* inspect/extract_head.c - the first elements of tensors, on standard output. No more is read than the box that they lie in. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/extract.h"

/* The first elements of a tensor, as they were read. */
typedef struct beginning {
    unsigned char *data; /* owned; little-endian, in C order */
    uint64_t count, all; /* elements to show, and of the tensor */
} beginning;

/* The box from the first element on that has `count` of them in C order, and as few more as can be: 5 of [4, 3] are two rows.
 * Its elements, and their extent in each dimension. */
static uint64_t box_of(const ckpt_tensor_info *t, uint64_t count, int64_t *size)
{
    uint64_t inner = 1;
    bool more = true;
    for (uint32_t k = t->ndim; k-- > 0;) {
        const uint64_t extent = (uint64_t)t->shape[k], need = inner ? count / inner + (count % inner != 0) : 0;
        if (count == 0)
            size[k] = t->shape[k];
        else
            size[k] = !more ? 1 : need < extent ? (int64_t)need : t->shape[k];
        more &= need > extent;
        inner *= (uint64_t)size[k];
    }
    return inner;
}

static void element_text(const element *e, char *out)
{
    if (e->kind == ELEMENT_REAL)
        json_format_double(out, e->real);
    else if (e->kind == ELEMENT_BOOL)
        strcpy(out, e->u ? "True" : "False");
    else if (e->kind == ELEMENT_INT)
        snprintf(out, JSON_DOUBLE_MAX, "%" PRId64, e->i);
    else
        snprintf(out, JSON_DOUBLE_MAX, "%" PRIu64, e->u);
}

static void element_json(json_out *j, const element *e)
{
    if (e->kind == ELEMENT_REAL)
        json_double(j, NULL, e->real);
    else if (e->kind == ELEMENT_BOOL)
        json_bool(j, NULL, e->u);
    else if (e->kind == ELEMENT_INT)
        json_int(j, NULL, e->i);
    else
        json_uint(j, NULL, e->u);
}

/* "model.0.weight  float32 [2, 3]", and the values below it. */
static void put_text(const ckpt_tensor_info *t, const beginning *b)
{
    const unsigned parts = extract_parts(t->dtype);
    const size_t step = ckpt_dtype_size(t->dtype) / parts;
    size_t used = 0, columns = cli_columns(stdout);
    char real[JSON_DOUBLE_MAX], imaginary[JSON_DOUBLE_MAX], both[2 * JSON_DOUBLE_MAX + 8];
    cli_put_str(stdout, t->name.size ? t->name : (ckpt_str){"\"\"", 2}, "");
    printf("  %s [", ckpt_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->ndim; i++)
        printf(i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
    fputs("]\n", stdout);
    for (uint64_t i = 0; i < b->count; i++) {
        element e = extract_element(t->dtype, b->data + i * parts * step);
        element_text(&e, real);
        snprintf(both, sizeof both, "%s", real);
        if (parts == 2) {
            e = extract_element(t->dtype, b->data + (i * parts + 1) * step);
            element_text(&e, imaginary);
            snprintf(both, sizeof both, "(%s%s%sj)", real, *imaginary == '-' ? "" : "+", imaginary);
        }
        if (used && used + 1 + strlen(both) > columns) {
            putchar('\n');
            used = 0;
        }
        used += (size_t)printf("%s%s", used ? " " : "  ", both);
    }
    fputs(b->count < b->all ? " ...\n" : b->count ? "\n" : "  no elements\n", stdout);
}

static void put_json(json_out *j, const ckpt_tensor_info *t, const beginning *b)
{
    const unsigned parts = extract_parts(t->dtype);
    const size_t step = ckpt_dtype_size(t->dtype) / parts;
    json_object(j, NULL);
    json_bytes(j, "name", t->name.data, t->name.size);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_sizes(j, "shape", t->shape, t->ndim);
    json_uint(j, "count", b->all);
    json_array(j, "values");
    for (uint64_t i = 0; i < b->count; i++) {
        if (parts == 2)
            json_array(j, NULL);
        for (unsigned k = 0; k < parts; k++) {
            element e = extract_element(t->dtype, b->data + (i * parts + k) * step);
            element_json(j, &e);
        }
        if (parts == 2)
            json_end_array(j);
    }
    json_end_array(j);
    json_end_object(j);
}

static int read_one(const command_line *o, const ckpt_reader *reader, size_t i, beginning *b)
{
    const cli *c = &o->cli;
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    const size_t wide = ckpt_dtype_size(t->dtype);
    ckpt_error err = CKPT_ERROR_INIT;
    if (extract_parts(t->dtype) == 0)
        return cli_fail(c, "unsupported",
                        "%s: %.*s: --head cannot print %s, whose elements are less than a byte; --raw writes the bytes",
                        o->paths[0], (int)(t->name.size < 900 ? t->name.size : 900), t->name.data,
                        ckpt_dtype_name(t->dtype));
    int64_t *size = calloc(2 * (size_t)t->ndim + 1, sizeof *size);
    b->all = t->nbytes / wide;
    b->count = o->head.n < b->all ? o->head.n : b->all;
    uint64_t elements = size ? box_of(t, b->count, size) : 0;
    b->data = size && elements < SIZE_MAX / wide ? malloc((size_t)elements * wide + 1) : NULL;
    int status = CLI_YES;
    if (!b->data)
        status = cli_fail(c, "no-memory", "out of memory for %" PRIu64 " elements", b->count);
    else if (ckpt_reader_read_box(reader, i, t->ndim ? size + t->ndim : NULL, t->ndim ? size : NULL, b->data,
                                  (size_t)elements * wide, &err) != CKPT_OK)
        status = cli_fail_error(c, &err);
    free(size);
    return status;
}

static void show_all(const command_line *o, const ckpt_reader *reader, const chosen *all, const beginning *of)
{
    ckpt_report *unchecked = cli_unchecked(&o->cli, reader);
    json_out j;
    if (o->cli.json) {
        json_document(&j);
        json_array(&j, "tensors");
    }
    for (size_t k = 0; k < all->count; k++)
        if (o->cli.json)
            put_json(&j, ckpt_reader_tensor(reader, all->tensors[k]), &of[k]);
        else
            put_text(ckpt_reader_tensor(reader, all->tensors[k]), &of[k]);
    if (o->cli.json) {
        json_end_array(&j);
        cli_json_findings(&j, unchecked, NULL, CKPT_SEVERITY_NOTE);
        json_end_object(&j);
    }
    ckpt_report_free(unchecked);
}

int extract_head(const command_line *o, const ckpt_reader *reader, const chosen *all)
{
    beginning *of = calloc(all->count + 1, sizeof *of);
    int status = of ? CLI_YES : cli_fail(&o->cli, "no-memory", "out of memory for %zu tensors", all->count);
    for (size_t k = 0; status == CLI_YES && k < all->count; k++)
        status = read_one(o, reader, all->tensors[k], &of[k]);
    if (status == CLI_YES)
        show_all(o, reader, all, of);
    for (size_t k = 0; of && k < all->count; k++)
        free(of[k].data);
    free(of);
    return status;
}
