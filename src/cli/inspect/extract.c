/* inspect/extract.c - one tensor as .npy, or its elements alone. The one command that writes a file: the one asked for. */
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/inspect/newest.h"
#include "cli/out/file.h"

/* numpy's name of a dtype; NULL where numpy has none. */
static const char *numpy_dtype(ckpt_dtype dtype)
{
    static const struct {
        ckpt_dtype dtype;
        const char *name;
    } rows[] = {{CKPT_F32, "<f4"}, {CKPT_F64, "<f8"},  {CKPT_F16, "<f2"}, {CKPT_I8, "|i1"},   {CKPT_I16, "<i2"},
                {CKPT_I32, "<i4"}, {CKPT_I64, "<i8"},  {CKPT_U8, "|u1"},  {CKPT_U16, "<u2"},  {CKPT_U32, "<u4"},
                {CKPT_U64, "<u8"}, {CKPT_BOOL, "|b1"}, {CKPT_C64, "<c8"}, {CKPT_C128, "<c16"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype)
            return rows[i].name;
    return NULL;
}

/* The header of .npy 1.0: magic, length, a Python dict, spaces to a multiple of 64, a newline. */
static bool npy_header(const ckpt_tensor_info *t, char *out, size_t size, size_t *length)
{
    size_t n = (size_t)snprintf(out + 10, size - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                numpy_dtype(t->dtype));
    for (uint32_t i = 0; i < t->ndim && n + 160 < size; i++)
        n += (size_t)snprintf(out + 10 + n, size - 10 - n, i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
    if (n + 160 >= size)
        return false;
    n += (size_t)snprintf(out + 10 + n, size - 10 - n, t->ndim == 1 ? ",), }" : "), }");
    while ((10 + n + 1) % 64 != 0)
        out[10 + n++] = ' ';
    out[10 + n++] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)(n & 0xff);
    out[9] = (char)(n >> 8);
    *length = 10 + n;
    return true;
}

/* A file of a directory, whichever, is the checkpoint too. */
static bool is_source(const command_line *o, const ckpt_reader *reader)
{
    bool source = output_is_part(o->output, reader);
    for (int i = 0; i < o->path_count - 1; i++)
        source |= output_is_same(o->output, o->paths[i], NULL, 0) ||
                  (output_is_file(o->output) && output_is_within(o->output, o->paths[i]));
    return source;
}

static int extract(const command_line *o, const ckpt_reader *reader, size_t i)
{
    const cli *c = &o->cli;
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    ckpt_error err = CKPT_ERROR_INIT;
    char head[4096];
    size_t head_size = 0;
    if (is_source(o, reader))
        return cli_fail(c, "argument",
                        "%s: it is the checkpoint itself, or a file of its directory, which is never written",
                        o->output);
    if (!o->force && output_is_file(o->output))
        return output_refuse(c, o->output);
    if (!o->raw && !numpy_dtype(t->dtype))
        return cli_fail(c, "unsupported", "%s: %s: numpy has no %s; --raw writes the bytes", o->paths[0], o->name,
                        ckpt_dtype_name(t->dtype));
    if (!o->raw && !npy_header(t, head, sizeof head, &head_size))
        return cli_fail(c, "limit", "%s: %s: the shape is too long for an .npy header; --raw writes the bytes",
                        o->paths[0], o->name);
    if (t->nbytes > SIZE_MAX - 1)
        return cli_fail(c, "no-memory", "%s: %s: %" PRIu64 " bytes do not fit into memory", o->paths[0], o->name,
                        t->nbytes);
    char *data = malloc((size_t)t->nbytes + 1);
    if (!data)
        return cli_fail(c, "no-memory", "%s: %s: out of memory for %" PRIu64 " bytes", o->paths[0], o->name, t->nbytes);
    int status;
    if (ckpt_reader_read(reader, i, data, (size_t)t->nbytes, &err) != CKPT_OK)
        status = cli_fail_error(c, &err);
    else
        status = output_write(c, o->output, o->force, head, head_size, data, (size_t)t->nbytes);
    free(data);
    ckpt_report *unchecked = status == CLI_YES ? cli_unchecked(c, reader) : NULL;
    if (status == CLI_YES && c->json && strcmp(o->output, "-") != 0) {
        json_out j;
        json_document(&j);
        json_bytes(&j, "name", t->name.data, t->name.size);
        json_text(&j, "dtype", ckpt_dtype_name(t->dtype));
        json_sizes(&j, "shape", t->shape, t->ndim);
        json_uint(&j, "nbytes", t->nbytes);
        json_text(&j, "output", o->output);
        cli_json_findings(&j, unchecked, NULL, CKPT_SEVERITY_NOTE);
        json_end_object(&j);
    }
    ckpt_report_free(unchecked);
    return status;
}

/* Keys such as {"a.b": ...} and {"a": {"b": ...}} give one name. */
static void warn_of_others(const command_line *o, const ckpt_reader *reader, size_t i)
{
    size_t others = 0;
    ckpt_str name = ckpt_reader_tensor(reader, i)->name;
    for (size_t k = 0; k < ckpt_reader_tensor_count(reader); k++) {
        ckpt_str other = ckpt_reader_tensor(reader, k)->name;
        others += k != i && other.size == name.size && memcmp(other.data, name.data, name.size) == 0;
    }
    if (others)
        cli_warn(&o->cli, "%s: %s: %zu more have this name; the first in the file was taken", o->paths[0], o->name,
                 others);
}

/* The one tensor whose name ends in o->name, at a dot. False: none does, or several. */
static bool find_by_end(const command_line *o, const ckpt_reader *reader, size_t *tensor)
{
    const size_t n = strlen(o->name);
    size_t found = 0;
    for (size_t i = 0; n && i < ckpt_reader_tensor_count(reader); i++) {
        ckpt_str name = ckpt_reader_tensor(reader, i)->name;
        if (name.size > n + 1 && name.data[name.size - n - 1] == '.' &&
            memcmp(name.data + name.size - n, o->name, n) == 0 && !found++)
            *tensor = i;
    }
    return found == 1;
}

static int not_found(const command_line *o, const ckpt_reader *reader)
{
    char *hint = cli_selection_hint(&o->cli, reader, o->name);
    int status =
        cli_fail(&o->cli, "not-found", "%s: no tensor is called '%s'%s", o->paths[0], o->name, hint ? hint : "");
    free(hint);
    return status;
}

int inspect_extract(const command_line *o)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (!o->output)
        return cli_usage(&o->cli, "extract: missing -o FILE ('-' is standard output)");
    if (o->cli.json && output_is_stdout(o->output) && strcmp(o->output, "/dev/null") != 0)
        return cli_usage(&o->cli, "extract: --json and the tensor cannot both go to standard output");
    if (strcmp(o->output, "-") == 0 && isatty(STDOUT_FILENO))
        return cli_usage(&o->cli, "extract: binary data is not written to a terminal");
    ckpt_reader *reader = newest_open(o, 0);
    if (!reader)
        return CLI_NO_ANSWER;
    size_t i = 0;
    bool found = ckpt_reader_find(reader, o->name, strlen(o->name), &i, &err) == CKPT_OK;
    if (found) {
        warn_of_others(o, reader, i);
    } else if (err.status == CKPT_E_NOT_FOUND && find_by_end(o, reader, &i)) {
        ckpt_str name = ckpt_reader_tensor(reader, i)->name;
        cli_warn(&o->cli, "%s: '%s' is taken to be %.*s, the one tensor whose name ends so", o->paths[0], o->name,
                 (int)(name.size < 900 ? name.size : 900), name.data);
        found = true;
    }
    int status = found                            ? extract(o, reader, i)
                 : err.status == CKPT_E_NOT_FOUND ? not_found(o, reader)
                                                  : cli_fail_error(&o->cli, &err);
    ckpt_reader_close(reader);
    return status;
}
