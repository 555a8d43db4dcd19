/* inspect/extract.c - tensors as .npy or .npz, their elements alone, or the first of them. The one command that writes a file:
 * the one asked for. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/inspect/extract.h"
#include "cli/inspect/newest.h"

enum { HEAD_SIZE = 4096 };

/* A tensor on its way into the file. */
typedef struct payload {
    const ckpt_tensor_info *tensor;
    ckpt_dtype dtype;     /* in the file */
    char head[HEAD_SIZE]; /* of .npy; head_size 0: none (--raw) */
    size_t head_size, size;
    char *data; /* owned: size bytes */
} payload;

/* The header of .npy 1.0: magic, length, a Python dict, spaces to a multiple of 64, a newline. */
bool extract_npy_head(const ckpt_tensor_info *t, ckpt_dtype dtype, char *out, size_t size, size_t *length)
{
    size_t n = (size_t)snprintf(out + 10, size - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                extract_numpy(dtype));
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
    for (int i = 0; i < o->path_count; i++)
        source |= output_is_same(o->output, o->paths[i], NULL, 0) ||
                  (output_is_file(o->output) && output_is_within(o->output, o->paths[i]));
    return source;
}

/* ---- one tensor */

/* The name as far as a message has room for it. */
#define NAME(t) (int)((t)->name.size < 900 ? (t)->name.size : 900), (t)->name.data

/* Can it be written as it was asked for? -1, or the exit status. */
static int check_one(const command_line *o, const ckpt_tensor_info *t)
{
    const ckpt_dtype wide = extract_upcast(t->dtype);
    char head[HEAD_SIZE];
    size_t head_size;
    if (o->raw)
        return -1;
    if (!extract_numpy(wide))
        return cli_fail(&o->cli, "unsupported", "%s: %.*s: numpy has no %s; --raw writes the bytes", o->paths[0],
                        NAME(t), ckpt_dtype_name(t->dtype));
    if (!o->upcast && wide != t->dtype)
        return cli_fail(&o->cli, "unsupported",
                        "%s: %.*s: numpy has no %s; --upcast writes %s, which holds it exactly, --raw the bytes",
                        o->paths[0], NAME(t), ckpt_dtype_name(t->dtype), ckpt_dtype_name(wide));
    if (!extract_npy_head(t, wide, head, sizeof head, &head_size))
        return cli_fail(&o->cli, "limit", "%s: %.*s: the shape is too long for an .npy header; --raw writes the bytes",
                        o->paths[0], NAME(t));
    return -1;
}

/* In the file. */
static ckpt_dtype dtype_of(const command_line *o, const ckpt_tensor_info *t)
{
    return o->upcast ? extract_upcast(t->dtype) : t->dtype;
}

/* Into memory, which the caller frees. */
static int load(const command_line *o, const ckpt_reader *reader, size_t i, payload *p)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    *p = (payload){.tensor = t, .dtype = dtype_of(o, t)};
    if (!o->raw)
        extract_npy_head(t, p->dtype, p->head, sizeof p->head, &p->head_size);
    uint64_t times = p->dtype == t->dtype ? 1 : ckpt_dtype_size(p->dtype) / ckpt_dtype_size(t->dtype);
    bool fits = t->nbytes <= (SIZE_MAX - 1) / times;
    p->size = fits ? (size_t)(t->nbytes * times) : 0;
    p->data = fits ? malloc(p->size + 1) : NULL;
    if (!p->data)
        return cli_fail(c, "no-memory", "%s: %.*s: out of memory for %" PRIu64 " bytes", o->paths[0], NAME(t),
                        t->nbytes);
    const size_t size = (size_t)t->nbytes;
    if (ckpt_reader_read(reader, i, p->data + (p->size - size), size, &err) != CKPT_OK)
        return cli_fail_error(c, &err);
    if (times > 1)
        extract_to_float32(t->dtype, p->data, size, p->size);
    return CLI_YES;
}

static void json_tensor(json_out *j, const command_line *o, const ckpt_tensor_info *t)
{
    json_bytes(j, "name", t->name.data, t->name.size);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_sizes(j, "shape", t->shape, t->ndim);
    json_uint(j, "nbytes", t->nbytes);
    json_text(j, "output_dtype", ckpt_dtype_name(dtype_of(o, t)));
}

static bool has_document(const command_line *o)
{
    return o->cli.json && strcmp(o->output, "-") != 0;
}

/* The end of both documents. */
static void end_document(const command_line *o, const ckpt_reader *reader, json_out *j)
{
    ckpt_report *unchecked = cli_unchecked(&o->cli, reader);
    if (has_document(o)) {
        json_text(j, "output", o->output);
        cli_json_findings(j, unchecked, NULL, CKPT_SEVERITY_NOTE);
        json_end_object(j);
    }
    ckpt_report_free(unchecked);
}

static int write_one(const command_line *o, const ckpt_reader *reader, size_t i)
{
    payload p;
    json_out j;
    int status = load(o, reader, i, &p);
    if (status == CLI_YES)
        status = output_write(&o->cli, o->output, o->force, p.head, p.head_size, p.data, p.size);
    free(p.data);
    if (status != CLI_YES)
        return status;
    if (has_document(o)) {
        json_document(&j);
        json_tensor(&j, o, p.tensor);
    }
    end_document(o, reader, &j);
    return status;
}

/* ---- --npz */

/* An entry was not written: output_close says why where it was a write. */
static int not_put(const output_file *out)
{
    return out->why ? CLI_NO_ANSWER : cli_fail(out->cli, "no-memory", "out of memory");
}

/* A tensor as the next entry. *entry: its name there, for free(). */
static int put_entry(const command_line *o, const ckpt_reader *reader, size_t i, npz *z, output_file *out, char **entry)
{
    payload p;
    int status = load(o, reader, i, &p);
    const char *name = status == CLI_YES ? npz_name(z, p.tensor->name) : NULL;
    if (status == CLI_YES && !name)
        status = cli_fail(&o->cli, "limit", "%s: %.*s: no entry of an .npz has room for this name, of %zu bytes",
                          o->paths[0], NAME(p.tensor), p.tensor->name.size);
    if (name && (strlen(name) != p.tensor->name.size || memcmp(name, p.tensor->name.data, strlen(name)) != 0))
        cli_warn(&o->cli, "%s: '%.*s' is called '%s' in the .npz", o->paths[0], NAME(p.tensor), name);
    if (name && !(*entry = strdup(name)))
        status = cli_fail(&o->cli, "no-memory", "out of memory");
    if (status == CLI_YES && !npz_put(z, name, p.head, p.head_size, p.data, p.size))
        status = not_put(out);
    free(p.data);
    return status;
}

static int put_entries(const command_line *o, const ckpt_reader *reader, const chosen *all, npz *z, output_file *out,
                       char **entries)
{
    cli_progress shown;
    uint64_t total = 0, done = 0;
    int status = CLI_YES;
    for (size_t k = 0; k < all->count; k++)
        total += ckpt_reader_tensor(reader, all->tensors[k])->nbytes;
    cli_progress_init(&shown, &o->cli, "written");
    for (size_t k = 0; status == CLI_YES && k < all->count; k++) {
        status = put_entry(o, reader, all->tensors[k], z, out, &entries[k]);
        done += ckpt_reader_tensor(reader, all->tensors[k])->nbytes;
        if (status == CLI_YES && cli_progress_step(&shown, done, total))
            status = CLI_NO_ANSWER; /* a signal */
    }
    cli_progress_end(&shown);
    return status;
}

static void npz_document(const command_line *o, const ckpt_reader *reader, const chosen *all, char **entries)
{
    json_out j;
    if (has_document(o)) {
        json_document(&j);
        json_array(&j, "tensors");
        for (size_t k = 0; k < all->count; k++) {
            json_object(&j, NULL);
            json_tensor(&j, o, ckpt_reader_tensor(reader, all->tensors[k]));
            json_text(&j, "entry", entries[k]);
            json_end_object(&j);
        }
        json_end_array(&j);
    }
    end_document(o, reader, &j);
}

static int write_npz(const command_line *o, const ckpt_reader *reader, const chosen *all)
{
    const cli *c = &o->cli;
    output_file out;
    char **entries = calloc(all->count + 1, sizeof *entries);
    int status = entries ? output_open(&out, c, o->output, o->force) : cli_fail(c, "no-memory", "out of memory");
    if (status != CLI_YES) {
        free(entries);
        return status;
    }
    npz *z = npz_new(&out);
    status = z ? put_entries(o, reader, all, z, &out, entries) : cli_fail(c, "no-memory", "out of memory");
    if (status == CLI_YES && !npz_end(z))
        status = not_put(&out);
    int closed = output_close(&out, status == CLI_YES || out.why); /* it says why a write failed */
    npz_free(z);
    if (status == CLI_YES && (status = closed) == CLI_YES)
        npz_document(o, reader, all, entries);
    for (size_t k = 0; k < all->count; k++)
        free(entries[k]);
    free(entries);
    return status;
}

/* ---- all */

static int write_file(const command_line *o, const ckpt_reader *reader, const chosen *all)
{
    const cli *c = &o->cli;
    int status = -1;
    if (is_source(o, reader))
        return cli_fail(c, "argument",
                        "%s: it is the checkpoint itself, or a file of its directory, which is never written",
                        o->output);
    if (!o->force && output_is_file(o->output))
        return output_refuse(c, o->output);
    if (all->count > 1 && !o->npz)
        return cli_fail(c, "argument", "%s: %zu tensors are asked for: %s", o->paths[0], all->count,
                        o->raw ? "--raw writes one" : "--npz writes them into one file");
    for (size_t k = 0; status < 0 && k < all->count; k++)
        status = check_one(o, ckpt_reader_tensor(reader, all->tensors[k]));
    if (status >= 0)
        return status;
    return o->npz ? write_npz(o, reader, all) : write_one(o, reader, all->tensors[0]);
}

/* -1: the options fit each other. */
static int check_options(const command_line *o)
{
    const cli *c = &o->cli;
    if (o->head.text && (o->output || o->raw || o->npz || o->upcast || o->force))
        return cli_usage(c, "extract: --head prints elements and writes no file: it goes without -o, --raw, --npz, "
                            "--upcast and --force");
    if (o->head.text)
        return -1;
    if (o->raw && (o->npz || o->upcast))
        return cli_usage(c, "extract: --raw writes the elements as they are: it goes without --npz and --upcast");
    if (!o->output)
        return cli_usage(c, "extract: missing -o FILE ('-' is standard output), or --head N");
    if (c->json && output_is_stdout(o->output) && strcmp(o->output, "/dev/null") != 0)
        return cli_usage(c, "extract: --json and the tensor cannot both go to standard output");
    if (output_is_stdout(o->output) && isatty(STDOUT_FILENO))
        return cli_usage(c, "extract: binary data is not written to a terminal");
    return -1;
}

int inspect_extract(const command_line *o)
{
    chosen all;
    int status = check_options(o);
    if (status >= 0)
        return status;
    ckpt_reader *reader = newest_open(o, 0);
    if (!reader)
        return CLI_NO_ANSWER;
    status = extract_choose(o, reader, &all);
    if (status < 0)
        status = o->head.text ? extract_head(o, reader, &all) : write_file(o, reader, &all);
    free(all.tensors);
    ckpt_reader_close(reader);
    return status;
}
