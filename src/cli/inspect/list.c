/* inspect/list.c - one line a tensor. */
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/out/names.h"

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
    if (t->path.count == 0 && t->name.size > 0) /* a format with flat names */
        json_bytes(j, NULL, t->name.data, t->name.size);
    json_end_array(j);
}

static void json_str(json_out *j, const char *key, ckpt_str s)
{
    json_bytes(j, key, s.data, s.size);
}

/* What only some tensors have. */
static void json_marks(json_out *j, const ckpt_tensor_info *t)
{
    if (t->extra->class_name.data)
        json_str(j, "class", t->extra->class_name);
    if (t->requires_grad)
        json_bool(j, "requires_grad", true);
    if (t->conj || t->neg) {
        json_bool(j, "conj", t->conj);
        json_bool(j, "neg", t->neg);
    }
    if (t->inside)
        json_bool(j, "inside", true);
    if (t->extra->layout.data)
        json_str(j, "layout", t->extra->layout);
    if (t->extra->placements.data)
        json_str(j, "placements", t->extra->placements);
    if (t->extra->quantizer.data)
        json_str(j, "quantizer", t->extra->quantizer);
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
static void json_tensor(json_out *j, const ckpt_tensor_info *t, const uint32_t *crc, bool checksum,
                        const ckpt_canonical *known)
{
    json_object(j, NULL);
    json_str(j, "name", t->name);
    if (known)
        json_path(j, t);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    const char *layout = t->extra->layout.data;
    bool nested = layout && (strcmp(layout, "nested") == 0 || strcmp(layout, "jagged") == 0);
    json_sizes(j, "shape", nested ? NULL : t->shape, nested ? 1 : t->ndim); /* rows of several lengths have none */
    if (t->strides || t->storage >= 0)
        json_sizes(j, "strides", t->strides, t->ndim);
    else
        json_null(j, "strides");
    json_str(j, "device", t->device);
    if (known)
        json_text(j, "role", t->role ? ckpt_role_name(t->role) : NULL);
    json_uint(j, "nbytes", t->nbytes);
    json_int_or_null(j, "storage", t->storage >= 0, t->storage);
    json_uint_or_null(j, "storage_nbytes", t->storage >= 0, t->storage_nbytes);
    json_int_or_null(j, "offset", t->storage >= 0, t->offset);
    if (known)
        json_owner(j, t, known);
    if (checksum && crc)
        json_crc(j, "crc32", *crc);
    else if (checksum)
        json_null(j, "crc32");
    json_marks(j, t);
    if (t->extra->layout.data || t->extra->part_count > 0) {
        json_array(j, "parts");
        for (size_t i = 0; i < t->extra->part_count; i++) /* parts have no parts */
            json_tensor(j, t->extra->parts[i], NULL, false, NULL);
        json_end_array(j);
    }
    json_end_object(j);
}

/* The CRC-32s before the first line is printed: a damaged payload must give an error, not half a document. */
typedef struct sums {
    uint32_t *crc;
    bool *has;
    ckpt_report *unchecked; /* a note where there are such bytes; else NULL */
} sums;

static int checksums(const command_line *o, const ckpt_reader *reader, sums *s)
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
        if (!cli_selected(c, t) || t->extra->layout.data || t->storage < 0)
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

static void list_json(const command_line *o, const ckpt_reader *reader, const sums *s, const ckpt_naming *naming)
{
    static const ckpt_canonical unknown;
    json_out j;
    json_document(&j);
    json_text(&j, "format", ckpt_reader_format(reader));
    json_array(&j, "tensors");
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (cli_selected(&o->cli, t))
            json_tensor(&j, t, s->has && s->has[i] ? &s->crc[i] : NULL, o->cli.checksum,
                        naming ? ckpt_naming_get(naming, i) : &unknown);
    }
    json_end_array(&j);
    cli_json_findings(&j, ckpt_reader_findings(reader), s->unchecked, CKPT_SEVERITY_NOTE);
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

/* Lines, put together here: to print each column by itself would take half the time of a long list. */
typedef struct page {
    char text[32 << 10];
    size_t n;
} page;

static void flush(page *p)
{
    fwrite_unlocked(p->text, 1, p->n, stdout);
    p->n = 0;
}

static void put(page *p, const char *text, size_t n)
{
    if (n > sizeof p->text - p->n)
        flush(p);
    if (n > sizeof p->text) {
        fwrite_unlocked(text, 1, n, stdout);
        return;
    }
    memcpy(p->text + p->n, text, n);
    p->n += n;
}

static void put_blanks(page *p, size_t n)
{
    static const char blanks[] = "                                ";
    for (size_t now; n; n -= now) {
        now = n < sizeof blanks - 1 ? n : sizeof blanks - 1;
        put(p, blanks, now);
    }
}

/* As printf("%-*s  ") or, to the right, printf("%*s  "). */
static void put_column(page *p, const char *text, size_t n, size_t width, bool right)
{
    size_t missing = n < width ? width - n : 0;
    if (right)
        put_blanks(p, missing);
    put(p, text, n);
    put_blanks(p, (right ? 0 : missing) + 2);
}

/* What comes from the file: escaped where it has to be. */
static void put_str(page *p, ckpt_str s, const char *otherwise)
{
    if (s.data && cli_plain(s.data, s.size) < s.size) {
        flush(p);
        cli_put(stdout, s.data, s.size);
        return;
    }
    put(p, s.data ? s.data : otherwise, s.data ? s.size : strlen(otherwise));
}

static size_t str_width(ckpt_str s)
{
    return s.data ? cli_width(s.data, s.size) : 1;
}

static void put_str_column(page *p, ckpt_str s, size_t width)
{
    size_t taken = str_width(s);
    put_str(p, s, "-");
    put_blanks(p, (taken < width ? width - taken : 0) + 2);
}

/* How wide the columns are, and which dtypes and roles there are. */
typedef struct widths {
    size_t dtype, shape, device, role, file, shown;
    uint64_t dtypes, roles; /* a bit each */
    ckpt_str last;          /* device */
} widths;

static void widen(size_t *column, size_t width, size_t most)
{
    if (width > *column && width <= most)
        *column = width;
}

static size_t shape_width(const ckpt_tensor_info *t)
{
    size_t width = 2 + (t->ndim ? 2 * (size_t)(t->ndim - 1) : 0);
    for (uint32_t i = 0; i < t->ndim; i++)
        for (uint64_t n = (uint64_t)t->shape[i], first = 1; first || n; n /= 10, first = 0)
            width++;
    return width;
}

enum { WIDEST = 24, WIDEST_FILE = 48 }; /* what is wider pushes the rest of its line aside */

static void measure(widths *w, const ckpt_tensor_info *t)
{
    widen(&w->shape, shape_width(t), WIDEST);
    w->dtypes |= UINT64_C(1) << t->dtype;
    w->roles |= UINT64_C(1) << t->role;
    if (t->device.data != w->last.data || t->device.size != w->last.size)
        widen(&w->device, t->device.data ? str_width(t->device) : 0, WIDEST);
    w->last = t->device;
    if (t->file.data)
        widen(&w->file, str_width(t->file), WIDEST_FILE);
    w->shown++;
}

static widths measure_all(const command_line *o, const ckpt_reader *reader)
{
    widths w = {.dtype = 5, .shape = 5, .device = 6, .role = 4};
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++)
        if (cli_selected(&o->cli, ckpt_reader_tensor(reader, i)))
            measure(&w, ckpt_reader_tensor(reader, i));
    for (int k = 0; k < ckpt_dtype_count(); k++)
        if (w.dtypes >> k & 1)
            widen(&w.dtype, strlen(ckpt_dtype_name((ckpt_dtype)k)), WIDEST);
    for (int k = CKPT_ROLE_NONE + 1; k < ckpt_role_count(); k++)
        if (w.roles >> k & 1)
            widen(&w.role, strlen(ckpt_role_name((ckpt_role)k)), WIDEST);
    w.file = w.file > 0 && w.file < 4 ? 4 : w.file;
    return w;
}

static void put_line(page *p, const widths *w, const ckpt_tensor_info *t, const char *sum)
{
    char shape[1024], size[CLI_SIZE_MAX];
    const char *dtype = ckpt_dtype_name(t->dtype), *role = t->role ? ckpt_role_name(t->role) : "-";
    put_column(p, dtype, strlen(dtype), w->dtype, false);
    put_column(p, shape, shape_text(shape, sizeof shape, t), w->shape, false);
    put_str_column(p, t->device, w->device);
    put_column(p, role, strlen(role), w->role, false);
    cli_size(size, t->nbytes);
    put_column(p, size, strlen(size), 10, true);
    if (sum)
        put_column(p, sum, strlen(sum), 8, false);
    if (w->file)
        put_str_column(p, t->file, w->file);
    put_str(p, t->name.size ? t->name : (ckpt_str){"\"\"", 2}, "");
    if (t->extra->layout.data) {
        put(p, "  (", 3);
        put_str(p, t->extra->layout, "");
        if (t->extra->placements.data) {
            put(p, ", ", 2);
            put_str(p, t->extra->placements, "");
        }
        put(p, ")", 1);
    }
    put(p, "\n", 1);
}

/* Columns as wide as what stands in them; the file where there are several; the name is last and never cut. */
static void list_text(const command_line *o, const ckpt_reader *reader, const sums *s)
{
    static page p;
    const widths w = measure_all(o, reader);
    if (w.shown == 0)
        return;
    printf("%s%-*s  %-*s  %-*s  %-*s  %10s  %s%-*s%sname%s\n", cli_style(&o->cli, "bold"), (int)w.dtype, "dtype",
           (int)w.shape, "shape", (int)w.device, "device", (int)w.role, "role", "size",
           o->cli.checksum ? "crc32     " : "", (int)w.file, w.file ? "file" : "", w.file ? "  " : "",
           cli_style(&o->cli, "off"));
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        char sum[16] = "-";
        if (!cli_selected(&o->cli, t))
            continue;
        if (o->cli.checksum && s->has[i])
            snprintf(sum, sizeof sum, "%08" PRIx32, s->crc[i]);
        put_line(&p, &w, t, o->cli.checksum ? sum : NULL);
    }
    flush(&p);
}

/* Names are for --json alone: nothing of them is in a line. */
static int name_and_list(const command_line *o, const ckpt_reader *reader, const sums *s)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_naming *naming = NULL;
    names list = {NULL, NULL, 0};
    int status = o->param_names ? names_read(&o->cli, o->param_names, &list) : -1;
    ckpt_naming_options options = CKPT_NAMING_OPTIONS_INIT;
    options.param_names = list.items;
    options.param_name_count = list.count;
    if (status < 0 && ckpt_naming_new(reader, &options, &naming, NULL, &err) < 0 &&
        (o->param_names || err.status == CKPT_E_NO_MEMORY))
        status = cli_fail_error(&o->cli, &err); /* otherwise the list stands without names */
    if (status < 0) {
        list_json(o, reader, s, naming);
        status = CLI_YES;
    }
    ckpt_naming_free(naming);
    names_free(&list);
    return status;
}

int inspect_list(const command_line *o)
{
    ckpt_reader *reader = cli_open(&o->cli, o->paths[0]);
    if (!reader)
        return CLI_NO_ANSWER;
    static char buffer[64 << 10];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* a line a tensor: few writes */
    sums s = {NULL, NULL, NULL};
    int status = cli_selection_finds(&o->cli, (const ckpt_reader *const *)&reader, 1);
    if (status < 0)
        status = o->cli.checksum ? checksums(o, reader, &s) : CLI_YES;
    s.unchecked = status == CLI_YES ? cli_unchecked(&o->cli, reader) : NULL;
    if (status == CLI_YES && o->cli.json)
        status = name_and_list(o, reader, &s);
    else if (status == CLI_YES)
        list_text(o, reader, &s);
    free(s.crc);
    free(s.has);
    ckpt_report_free(s.unchecked);
    ckpt_reader_close(reader);
    return status;
}
