/* inspect_list.c - one line a tensor. */
#include "inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "names.h"

static void json_path(json_out *j, const ckpt_tensor_info *t)
{
    json_array(j, "path");
    for (size_t i = 0; i < t->path.count; i++) {
        const ckpt_key *k = &t->path.keys[i];
        if (k->text.data)
            json_bytes(j, NULL, k->text.data, k->text.size);
        else
            json_int(j, NULL, k->number);
    }
    if (t->path.count == 0 && t->name.size > 0)        /* a format with flat names */
        json_bytes(j, NULL, t->name.data, t->name.size);
    json_end_array(j);
}

static void json_str(json_out *j, const char *key, ckpt_str s)
{
    json_bytes(j, key, s.data, s.size);
}

static void json_sizes(json_out *j, const char *key, const int64_t *sizes, uint32_t n)
{
    json_array(j, key);
    for (uint32_t i = 0; i < n; i++)
        json_int(j, NULL, sizes[i]);
    json_end_array(j);
}

/* What only some tensors have. */
static void json_marks(json_out *j, const ckpt_tensor_info *t)
{
    if (t->class_name.data)
        json_str(j, "class", t->class_name);
    if (t->requires_grad)
        json_bool(j, "requires_grad", true);
    if (t->conj || t->neg) {
        json_bool(j, "conj", t->conj);
        json_bool(j, "neg", t->neg);
    }
    if (t->inside)
        json_bool(j, "inside", true);
    if (t->layout.data)
        json_str(j, "layout", t->layout);
    if (t->placements.data)
        json_str(j, "placements", t->placements);
    if (t->quantizer.data)
        json_str(j, "quantizer", t->quantizer);
}

static ckpt_str either(ckpt_str a, ckpt_str b)
{
    return a.data ? a : b;
}

/* What the file itself says, else what a restore would find. */
static void json_owner(json_out *j, const ckpt_tensor_info *t, const ckpt_canonical *known)
{
    json_str(j, "file", t->file);
    json_str(j, "param", either(t->param, known->param));
    json_str(j, "group", either(t->group, known->group));
    json_str(j, "state_key", either(t->state_key, known->state_key));
    json_str(j, "canonical", known->name);
}

/* crc NULL: not asked for, or there is none. known NULL: a part of a tensor that is not dense; it has no path, role
 * and owner of its own. */
static void json_tensor(json_out *j, const ckpt_tensor_info *t, const uint32_t *crc, bool checksum, const ckpt_canonical *known)
{
    json_object(j, NULL);
    json_str(j, "name", t->name);
    if (known)
        json_path(j, t);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    bool nested = t->layout.data && (strcmp(t->layout.data, "nested") == 0 || strcmp(t->layout.data, "jagged") == 0);
    if (!nested && (t->shape || t->ndim == 0)) /* rows of several lengths have none */
        json_sizes(j, "shape", t->shape, t->ndim);
    else
        json_null(j, "shape");
    if (t->strides || (t->ndim == 0 && t->storage >= 0))
        json_sizes(j, "strides", t->strides, t->ndim);
    else
        json_null(j, "strides");
    json_str(j, "device", t->device);
    if (known)
        json_text(j, "role", t->role ? ckpt_role_name(t->role) : NULL);
    json_uint(j, "nbytes", t->nbytes);
    if (t->storage >= 0) {
        json_int(j, "storage", t->storage);
        json_uint(j, "storage_nbytes", t->storage_nbytes);
        json_int(j, "offset", t->offset);
    } else {
        json_null(j, "storage");
        json_null(j, "storage_nbytes");
        json_null(j, "offset");
    }
    if (known)
        json_owner(j, t, known);
    if (checksum && crc)
        json_crc(j, "crc32", *crc);
    else if (checksum)
        json_null(j, "crc32");
    json_marks(j, t);
    if (t->layout.data || t->part_count > 0) {
        json_array(j, "parts");
        for (size_t i = 0; i < t->part_count; i++)     /* parts have no parts */
            json_tensor(j, &t->parts[i], NULL, false, NULL);
        json_end_array(j);
    }
    json_end_object(j);
}

/* The CRC-32s before the first line is printed: a damaged payload must give an error, not half a document. */
typedef struct sums {
    uint32_t *crc;
    bool *has;
} sums;

static int checksums(const inspect *o, const ckpt_reader *reader, sums *s)
{
    const cli *c = &o->cli;
    size_t n = ckpt_reader_tensor_count(reader);
    uint64_t done = 0, total = 0;
    ckpt_error err = CKPT_ERROR_INIT;
    cli_progress progress;
    s->crc = calloc(n + 1, sizeof *s->crc);
    s->has = calloc(n + 1, sizeof *s->has);
    if (!s->crc || !s->has)
        return cli_fail(c, "no-memory", "out of memory for %zu checksums", n);
    for (size_t i = 0; i < n; i++)
        total += cli_selected(c, ckpt_reader_tensor(reader, i)) ? ckpt_reader_tensor(reader, i)->nbytes : 0;
    cli_progress_init(&progress, c, "read");
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(c, t) || t->layout.data || t->storage < 0)
            continue;
        ckpt_status status = ckpt_reader_crc32(reader, i, &s->crc[i], &err);
        if (status != CKPT_OK && status != CKPT_E_UNSUPPORTED) {
            cli_progress_end(&progress);
            return cli_fail_error(c, &err);
        }
        s->has[i] = status == CKPT_OK;
        done += t->nbytes;
        cli_progress_step(&progress, done, total);
    }
    cli_progress_end(&progress);
    return CLI_YES;
}

static void list_json(const inspect *o, const ckpt_reader *reader, const sums *s, const ckpt_naming *naming)
{
    static const ckpt_canonical unknown;
    json_out j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ckpt", 1);
    json_text(&j, "format", ckpt_reader_format(reader));
    json_array(&j, "tensors");
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (cli_selected(&o->cli, t))
            json_tensor(&j, t, s->has && s->has[i] ? &s->crc[i] : NULL, o->cli.checksum, naming ? ckpt_naming_get(naming, i) : &unknown);
    }
    json_end_array(&j);
    cli_json_findings(&j, ckpt_reader_findings(reader), NULL, CKPT_NOTE);
    json_end_object(&j);
}

static size_t shape_text(char *buf, size_t size, const ckpt_tensor_info *t)
{
    size_t used = 0;
    buf[used++] = '[';
    for (uint32_t i = 0; i < t->ndim && used + 24 < size; i++) {
        char digits[24], *p = digits + sizeof digits;
        for (uint64_t n = (uint64_t)t->shape[i]; p == digits + sizeof digits || n; n /= 10)
            *--p = (char)('0' + n % 10);
        size_t length = (size_t)(digits + sizeof digits - p);
        if (i) {
            buf[used++] = ',';
            buf[used++] = ' ';
        }
        memcpy(buf + used, p, length);
        used += length;
    }
    buf[used++] = ']';
    buf[used] = 0;
    return used;
}

/* The columns of a line, put together here: to print each by itself would take half the time of a long list. */
typedef struct row {
    char text[1280];              /* more than the longest shape */
    size_t n;
} row;

static void flush(row *r)
{
    fwrite_unlocked(r->text, 1, r->n, stdout);
    r->n = 0;
}

/* As printf("%-*s  ") or, to the right, printf("%*s  "). */
static void put_column(row *r, const char *text, size_t width, bool right)
{
    size_t n = strlen(text), most = sizeof r->text - 2, missing = n < width ? width - n : 0;
    n = n < most ? n : most;
    missing = missing < most - n ? missing : most - n;
    if (n + missing + 2 > sizeof r->text - r->n)
        flush(r);
    char *to = r->text + r->n;
    memset(to, ' ', n + missing + 2);
    memcpy(right ? to + missing : to, text, n);
    r->n += n + missing + 2;
}

/* Columns as wide as what stands in them; the file where there are several; the name is last and never cut. */
static void list_text(const inspect *o, const ckpt_reader *reader, const sums *s)
{
    size_t shape_width = 5, device_width = 6, dtype_width = 5, role_width = 4, file_width = 0, shown = 0;
    char shape[1024], size[CLI_SIZE_MAX];
    row r = {.n = 0};
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(&o->cli, t))
            continue;
        size_t widths[] = {shape_text(shape, sizeof shape, t), cli_width(t->device.data, t->device.data ? t->device.size : 0),
                           strlen(ckpt_dtype_name(t->dtype)), t->role ? strlen(ckpt_role_name(t->role)) : 1};
        size_t *const columns[] = {&shape_width, &device_width, &dtype_width, &role_width};
        for (size_t k = 0; k < 4; k++)
            if (widths[k] > *columns[k] && widths[k] <= 24)
                *columns[k] = widths[k];
        size_t file = t->file.data ? cli_width(t->file.data, t->file.size) : 0;
        file_width = file > file_width && file <= 48 ? file : file_width;
        shown++;
    }
    if (shown == 0)
        return;
    if (file_width > 0 && file_width < 4)
        file_width = 4;
    printf("%s%-*s  %-*s  %-*s  %-*s  %10s  %s%-*s%sname%s\n", cli_style(&o->cli, "bold"), (int)dtype_width, "dtype",
           (int)shape_width, "shape", (int)device_width, "device", (int)role_width, "role", "size",
           o->cli.checksum ? "crc32     " : "", (int)file_width, file_width ? "file" : "", file_width ? "  " : "",
           cli_style(&o->cli, "off"));
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(&o->cli, t))
            continue;
        put_column(&r, ckpt_dtype_name(t->dtype), dtype_width, false);
        shape_text(shape, sizeof shape, t);
        put_column(&r, shape, shape_width, false);
        flush(&r);
        cli_put_str(stdout, t->device, "-");
        size_t taken = t->device.data ? cli_width(t->device.data, t->device.size) : 1;
        put_column(&r, "", taken < device_width ? device_width - taken : 0, false);
        put_column(&r, t->role ? ckpt_role_name(t->role) : "-", role_width, false);
        put_column(&r, cli_size(size, t->nbytes), 10, true);
        flush(&r);
        if (o->cli.checksum && s->has[i])
            printf("%08" PRIx32 "  ", s->crc[i]);
        else if (o->cli.checksum)
            printf("%-8s  ", "-");
        if (file_width) {
            cli_put_str(stdout, t->file, "-");
            size_t used = t->file.data ? cli_width(t->file.data, t->file.size) : 1;
            printf("%*s  ", (int)(used < file_width ? file_width - used : 0), "");
        }
        cli_put_str(stdout, t->name.size ? t->name : (ckpt_str){"\"\"", 2}, "");
        if (t->layout.data) {
            fputs("  (", stdout);
            cli_put_str(stdout, t->layout, "");
            if (t->placements.data) {
                fputs(", ", stdout);
                cli_put_str(stdout, t->placements, "");
            }
            putchar(')');
        }
        putchar_unlocked('\n');
    }
}

/* Names are for --json alone: nothing of them is in a line. */
static int name_and_list(const inspect *o, const ckpt_reader *reader, const sums *s)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_naming *naming = NULL;
    names list = {NULL, NULL, 0};
    int status = o->param_names ? names_read(&o->cli, o->param_names, &list) : -1;
    if (status < 0 && ckpt_naming_new(reader, list.items, list.count, &naming, NULL, &err) < 0 &&
        (o->param_names || err.status == CKPT_E_NO_MEMORY))
        status = cli_fail_error(&o->cli, &err);        /* otherwise the list stands without names */
    if (status < 0) {
        list_json(o, reader, s, naming);
        status = CLI_YES;
    }
    ckpt_naming_free(naming);
    names_free(&list);
    return status;
}

int inspect_list(const inspect *o)
{
    ckpt_reader *reader = cli_open(&o->cli, o->paths[0]);
    if (!reader)
        return CLI_NO_ANSWER;
    cli_warn_selection(&o->cli, reader);
    static char buffer[64 << 10];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);    /* a line a tensor: few writes */
    sums s = {NULL, NULL};
    int status = o->cli.checksum ? checksums(o, reader, &s) : CLI_YES;
    if (status == CLI_YES && o->cli.json)
        status = name_and_list(o, reader, &s);
    else if (status == CLI_YES)
        list_text(o, reader, &s);
    free(s.crc);
    free(s.has);
    ckpt_reader_close(reader);
    return status;
}
