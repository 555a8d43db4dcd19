/* inspect/list.c - one line a tensor. */
#include "cli/inspect/inspect.h"
#include "cli/inspect/order.h"
#include "cli/inspect/pieces.h"
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/newest.h"
#include "cli/out/names.h"
#include "cli/out/rows.h"

/* What a line is made of. CRC is NULL where there is none, WHERE (a piece_row) but for the members of a tensor. */
enum { TENSOR, EXTRA, KNOWN, CRC, WHERE };
/* What the asker wants: WHOLE is of a tensor, and not of one dense part of it, which has no path, role and owner of its
 * own. */
enum { WHOLE = 1, CHECKSUM = 2, PIECES = 4 };

static const ckpt_tensor_info *tensor_of(const row_parts *r)
{
    return r->part[TENSOR];
}

static bool has_storage(const row_parts *r)
{
    return tensor_of(r)->storage >= 0;
}

static void json_str(json_out *j, const char *key, ckpt_str s)
{
    json_bytes(j, key, s.data, s.size);
}

static void json_path(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_tensor_info *t = tensor_of(r);
    json_array(j, key);
    for (size_t i = 0; i < t->path.count; i++) {
        const ckpt_key *k = &t->path.keys[i];
        if (k->text.data)
            json_str(j, NULL, k->text);
        else
            json_int(j, NULL, k->number);
    }
    if (t->path.count == 0 && t->name.size > 0) /* a format with flat names */
        json_str(j, NULL, t->name);
    json_end_array(j);
}

static void json_shape(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_tensor_info *t = tensor_of(r);
    const char *layout = t->extra->layout.data;
    bool nested = layout && (strcmp(layout, "nested") == 0 || strcmp(layout, "jagged") == 0);
    json_sizes(j, key, nested ? NULL : t->shape, nested ? 1 : t->ndim); /* rows of several lengths have none */
}

static void json_strides(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_tensor_info *t = tensor_of(r);
    if (t->strides || has_storage(r))
        json_sizes(j, key, t->strides, t->ndim);
    else
        json_null(j, key);
}

static ckpt_str either(ckpt_str a, ckpt_str b)
{
    return a.data ? a : b;
}

/* What the file itself says, else what a restore would find. */
static void json_owner(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_tensor_info *t = tensor_of(r);
    const ckpt_canonical *known = r->part[KNOWN];
    json_str(j, key, either(t->param, known->param));
    json_str(j, "group", either(t->group, known->group));
    json_str(j, "state_key", either(t->state_key, known->state_key));
}

static void json_turned(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_tensor_info *t = tensor_of(r);
    if (!t->conj && !t->neg)
        return;
    json_bool(j, key, t->conj);
    json_bool(j, "neg", t->neg);
}

static void json_pieces(json_out *j, const char *key, const row_parts *r)
{
    if (!tensor_of(r)->extra->layout.data)
        pieces_json(j, key, r->part[WHERE]);
}

static void json_parts(json_out *j, const char *key, const row_parts *r);

/* What is wider than `most` pushes the rest of its line aside; the name is last and never cut. */
/* clang-format off */
#define OF(type, number, member) .part = number, .at = offsetof(type, member)
#define T(member) OF(ckpt_tensor_info, TENSOR, member)
#define X(member) OF(ckpt_tensor_extra, EXTRA, member)
static const row_field fields[] = {
    {"name", "name", ROW_NAME, T(name), .column = 3},
    {"path", .only = WHOLE, .json = json_path},
    {"dtype", "dtype", ROW_DTYPE, T(dtype), .most = 24},
    {"shape", "shape", ROW_SHAPE, .json = json_shape, .most = 24},
    {"strides", .json = json_strides},
    {"device", "device", ROW_STR, T(device), .most = 24},
    {"role", "role", ROW_ROLE, T(role), .only = WHOLE, .most = 24},
    {"nbytes", "size", ROW_SIZE, T(nbytes), .right = true, .width = 10},
    {"storage", NULL, ROW_NUMBER, T(storage)},
    {"storage_nbytes", NULL, ROW_UINT, T(storage_nbytes), .known = has_storage},
    {"offset", NULL, ROW_INT, T(offset), .known = has_storage},
    {"file", "file", ROW_STR, T(file), .only = WHOLE, .if_any = WHOLE, .most = 48, .column = 2},
    {"param", .only = WHOLE, .json = json_owner}, /* and "group", "state_key" */
    {"canonical", NULL, ROW_STR, OF(ckpt_canonical, KNOWN, name), .only = WHOLE},
    {"crc32", "crc32", ROW_CRC, .part = CRC, .only = CHECKSUM, .width = 8, .column = 1},
    {"class", NULL, ROW_STR, X(class_name), .omit = true},
    {"requires_grad", NULL, ROW_BOOL, T(requires_grad), .omit = true},
    {"conj", .json = json_turned}, /* and "neg" */
    {"inside", NULL, ROW_BOOL, T(inside), .omit = true},
    {"layout", NULL, ROW_STR, X(layout), .omit = true},
    {"placements", NULL, ROW_STR, X(placements), .omit = true},
    {"quantizer", NULL, ROW_STR, X(quantizer), .omit = true},
    {"parts", .json = json_parts},
    {"pieces", .only = PIECES, .json = json_pieces},
    {.key = NULL},
};
/* clang-format on */

static row_parts parts_of(const ckpt_tensor_info *t, const ckpt_canonical *known, const uint32_t *crc)
{
    return (row_parts){{[TENSOR] = t, [EXTRA] = t->extra, [KNOWN] = known, [CRC] = crc}};
}

static void json_parts(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_tensor_info *t = tensor_of(r);
    if (!t->extra->layout.data && t->extra->part_count == 0)
        return;
    json_array(j, key);
    for (size_t i = 0; i < t->extra->part_count; i++) { /* parts have no parts */
        const row_parts part = parts_of(t->extra->parts[i], NULL, NULL);
        rows_json(j, fields, 0, &part);
    }
    json_end_array(j);
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
        if (!cli_selected(c, t) || ckpt_reader_piece_count(reader, i) == 0)
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

static unsigned wanted(const command_line *o)
{
    return WHOLE | (o->cli.checksum ? CHECKSUM : 0) | (o->pieces ? PIECES : 0);
}

static void list_json(const command_line *o, const ckpt_reader *reader, const order *shown, const sums *s,
                      const ckpt_naming *naming)
{
    static const ckpt_canonical unknown;
    json_out j;
    json_document(&j);
    json_text(&j, "format", ckpt_reader_format(reader));
    json_array(&j, "tensors");
    for (size_t k = 0; k < shown->count; k++) {
        const size_t i = shown->tensors[k];
        const piece_row where = {reader, i};
        row_parts r = parts_of(ckpt_reader_tensor(reader, i), naming ? ckpt_naming_get(naming, i) : &unknown,
                               s->has && s->has[i] ? &s->crc[i] : NULL);
        r.part[WHERE] = &where;
        rows_json(&j, fields, wanted(o), &r);
    }
    json_end_array(&j);
    if (shown->omitted)
        json_uint(&j, "omitted", shown->omitted);
    cli_json_findings(&j, ckpt_reader_findings(reader), s->unchecked, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

static void put_layout(const ckpt_tensor_extra *extra)
{
    fputs("  (", stdout);
    cli_put_str(stdout, extra->layout, "");
    fputs(extra->placements.data ? ", " : "", stdout);
    cli_put_str(stdout, extra->placements, "");
    fputs(")", stdout);
}

/* Columns as wide as what stands in them; the file where there are several. */
static void list_text(const command_line *o, const ckpt_reader *reader, const order *shown, const sums *s)
{
    row_text out;
    rows_begin(&out, fields, wanted(o), 2);
    for (size_t k = 0; k < shown->count; k++) {
        const row_parts r = parts_of(ckpt_reader_tensor(reader, shown->tensors[k]), NULL, NULL);
        rows_measure(&out, &r);
    }
    if (shown->count)
        rows_head(&out, &o->cli);
    for (size_t k = 0; k < shown->count; k++) {
        const size_t i = shown->tensors[k];
        const row_parts r = parts_of(ckpt_reader_tensor(reader, i), NULL, s->has && s->has[i] ? &s->crc[i] : NULL);
        rows_line(&out, &r);
        if (tensor_of(&r)->extra->layout.data) {
            rows_flush(&out);
            put_layout(tensor_of(&r)->extra);
        }
        rows_end_line(&out);
        if (o->pieces && ckpt_reader_piece_count(reader, i) && tensor_of(&r)->storage < 0) {
            rows_flush(&out);
            pieces_text(&(piece_row){reader, i});
        }
    }
    rows_flush(&out);
    fflush(stdout);
    if (shown->omitted)
        cli_warn(&o->cli, "%s: %zu more tensors are not shown (--limit)", o->paths[0], shown->omitted);
}

/* Names are for --json alone: nothing of them is in a line. */
static int name_and_list(const command_line *o, const ckpt_reader *reader, const order *shown, const sums *s)
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
        list_json(o, reader, shown, s, naming);
        status = CLI_YES;
    }
    ckpt_naming_free(naming);
    names_free(&list);
    return status;
}

/* Is a file of the checkpoint missing, short or damaged, so that not all of it is listed? */
static bool lacks_files(const ckpt_reader *reader)
{
    static const char *const codes[] = {"shard-missing",  "rank-missing",   "truncated", "member-damaged",
                                        "pieces-missing", "pieces-overlap", "damaged",   "crc-mismatch"};
    const ckpt_report *said = ckpt_reader_findings(reader);
    for (size_t i = 0; i < ckpt_report_count(said); i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        for (size_t k = 0; f->severity == CKPT_SEVERITY_ERROR && k < sizeof codes / sizeof *codes; k++)
            if (strcmp(f->code, codes[k]) == 0)
                return true;
    }
    return false;
}

int inspect_list(const command_line *o)
{
    ckpt_reader *reader = newest_open(o, 0);
    if (!reader)
        return CLI_NO_ANSWER;
    static char buffer[64 << 10];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* a line a tensor: few writes */
    sums s = {NULL, NULL, NULL};
    order shown = {NULL, 0, 0};
    int status = cli_selection_finds(&o->cli, (const ckpt_reader *const *)&reader, 1);
    if (status < 0)
        status = o->pieces ? pieces_ready(&o->cli, reader) : -1;
    if (status < 0)
        status = o->cli.checksum ? checksums(o, reader, &s) : CLI_YES;
    if (status == CLI_YES)
        status = order_make(o, reader, &shown);
    s.unchecked = status == CLI_YES ? cli_unchecked(&o->cli, reader) : NULL;
    if (status == CLI_YES && o->cli.json)
        status = name_and_list(o, reader, &shown, &s);
    else if (status == CLI_YES)
        list_text(o, reader, &shown, &s);
    bool less = status == CLI_YES && lacks_files(reader);
    if (status == CLI_YES && !o->cli.json)
        cli_text_code(&o->cli, stderr, ckpt_reader_findings(reader), "part-of-checkpoint");
    if (less && !o->cli.json)
        cli_text_findings(&o->cli, stderr, ckpt_reader_findings(reader), CKPT_SEVERITY_ERROR, NULL);
    status = less ? CLI_NO : status;
    order_free(&shown);
    free(s.crc);
    free(s.has);
    ckpt_report_free(s.unchecked);
    ckpt_reader_close(reader);
    return status;
}
