/* inspect/diff.c - what differs between two checkpoints. Only what differs is said, and how many things do not. */
#include "cli/inspect/diff_order.h"
#include "cli/inspect/diff_words.h"
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/newest.h"
#include "cli/report/report.h"

/* ---- --json */

static void json_what(json_out *j, unsigned what)
{
    json_array(j, "what");
    for (unsigned bit = 1; ckpt_diff_what_name(bit); bit <<= 1)
        if (what & bit)
            json_text(j, NULL, ckpt_diff_what_name(bit));
    json_end_array(j);
}

static void json_head(json_out *j, ckpt_str name, ckpt_diff_status status, unsigned what, ckpt_diff_match match)
{
    json_object(j, NULL);
    json_bytes(j, "name", name.data, name.size);
    json_text(j, "status", ckpt_diff_status_name(status));
    json_what(j, what);
    json_text(j, "match", match ? ckpt_diff_match_name(match) : NULL);
}

static void json_side(json_out *j, const char *key, const ckpt_tensor_info *t)
{
    if (!t) {
        json_null(j, key);
        return;
    }
    json_object(j, key);
    json_bytes(j, "name", t->name.data, t->name.size);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_sizes(j, "shape", t->shape, t->ndim);
    json_bytes(j, "device", t->device.data, t->device.size);
    json_bytes(j, "layout", t->extra->layout.data, t->extra->layout.size);
    json_bytes(j, "file", t->file.data, t->file.size);
    json_uint(j, "nbytes", t->nbytes);
    json_end_object(j);
}

static void json_tensor(json_out *j, const ckpt_diff_tensor *t)
{
    json_head(j, t->name, t->status, t->what, t->match);
    json_side(j, "a", t->a);
    json_side(j, "b", t->b);
    json_double_or_null(j, "max_abs", t->compared, t->max_abs);
    json_double_or_null(j, "max_rel", t->compared, t->max_rel);
    json_uint_or_null(j, "nan_mismatch", t->compared, t->nan_mismatch);
    json_uint_or_null(j, "differing", t->compared, t->differing);
    json_uint_or_null(j, "elements", t->compared, t->elements);
    json_bytes(j, "tied", t->tied.data, t->tied.size);
    json_end_object(j);
}

static void json_value(json_out *j, const char *key, ckpt_str name, const ckpt_value *v, const ckpt_tensor_info *t)
{
    if (!v && !t) {
        json_null(j, key);
        return;
    }
    json_object(j, key);
    json_bytes(j, "name", name.data, name.size);
    json_text(j, "kind", v ? ckpt_kind_name(v->kind) : "tensor");
    if (!v || v->kind == CKPT_V_OBJECT || v->kind == CKPT_V_CLASS || v->kind == CKPT_V_ARRAY ||
        v->kind == CKPT_V_BYTES || v->kind == CKPT_V_BYTEARRAY)
        json_null(j, "value");
    else
        cli_json_value(j, "value", v);
    if (v && v->class_name.data)
        json_bytes(j, "class", v->class_name.data, v->class_name.size);
    json_end_object(j);
}

static void json_counts(json_out *j, const char *key, const ckpt_diff_counts *n)
{
    json_object(j, key);
    json_uint(j, "same", n->same);
    json_uint(j, "changed", n->changed);
    json_uint(j, "added", n->added);
    json_uint(j, "removed", n->removed);
    json_uint(j, "tied", n->tied);
    json_uint(j, "by_name", n->by_name);
    json_uint(j, "by_canonical", n->by_canonical);
    json_uint(j, "by_prefix", n->by_prefix);
    json_end_object(j);
}

static void diff_json(const ckpt_reader *a, const ckpt_reader *b, const ckpt_diff_options *options,
                      const ckpt_diff_result *r, const ckpt_report *report)
{
    json_out j;
    json_document(&j);
    json_text(&j, "format_a", ckpt_reader_format(a));
    json_text(&j, "format_b", ckpt_reader_format(b));
    json_double_or_null(&j, "atol", options->tolerant, options->atol);
    json_double_or_null(&j, "rtol", options->tolerant, options->rtol);
    json_bool(&j, "same", r->same);
    json_object(&j, "counts");
    json_counts(&j, "tensors", &r->of_tensors);
    json_counts(&j, "scalars", &r->of_scalars);
    json_end_object(&j);
    json_array(&j, "tensors");
    for (size_t i = 0; i < r->tensor_count; i++)
        if (r->tensors[i]->status != CKPT_DIFF_TIED)
            json_tensor(&j, r->tensors[i]);
    json_end_array(&j);
    json_array(&j, "scalars");
    for (size_t i = 0; i < r->scalar_count; i++) {
        const ckpt_diff_scalar *s = r->scalars[i];
        json_head(&j, s->name, s->status, s->what, s->match);
        json_value(&j, "a", s->name_a, s->a, s->tensor_a);
        json_value(&j, "b", s->name_b, s->b, s->tensor_b);
        json_end_object(&j);
    }
    json_end_array(&j);
    cli_json_findings(&j, report, NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

/* ---- text */

static void put_name(const cli *c, ckpt_diff_status status, ckpt_str name, ckpt_str other)
{
    const char *style = status == CKPT_DIFF_CHANGED ? "yellow" : status == CKPT_DIFF_REMOVED ? "red" : "bold";
    printf("%s%-8s%s ", cli_style(c, style), ckpt_diff_status_name(status), cli_style(c, "off"));
    cli_put_str(stdout, name.size ? name : (ckpt_str){"\"\"", 2}, "");
    if (other.data && !diff_same_text(other, name)) {
        fputs(" (B: ", stdout);
        cli_put_str(stdout, other.size ? other : (ckpt_str){"\"\"", 2}, "");
        putchar(')');
    }
}

static void put_tensor(const cli *c, const ckpt_diff_tensor *t)
{
    ckpt_str none = {NULL, 0};
    put_name(c, t->status, t->name, t->a && t->b ? t->b->name : none);
    diff_put_change(stdout, t);
    if (t->a && t->b && t->what & CKPT_DIFF_VALUE) {
        fputs("  value", stdout);
        diff_put_values(stdout, t);
    }
    putchar('\n');
}

static void put_scalar(const cli *c, const ckpt_diff_scalar *s)
{
    put_name(c, s->status, s->name, s->name_a.data && s->name_b.data ? s->name_b : (ckpt_str){NULL, 0});
    fputs("  ", stdout);
    diff_put_scalar(stdout, s);
    putchar('\n');
}

static int diff_text(const command_line *o, const ckpt_diff_result *r, const ckpt_report *report)
{
    enum { MANY = 9 }; /* so many differing tensors get a summary */
    const cli *c = &o->cli;
    const size_t limit = o->limit.text ? (size_t)o->limit.n : SIZE_MAX;
    size_t count = 0, *order = diff_order(r, &count);
    if (!order)
        return cli_fail(c, "no-memory", "out of memory for %zu tensors", r->tensor_count);
    if (!c->quiet)
        cli_text_findings(c, stdout, report, CKPT_SEVERITY_NOTE, NULL);
    for (size_t i = 0; i < count && i < limit; i++)
        put_tensor(c, r->tensors[order[i]]);
    free(order);
    for (size_t i = 0; i < r->scalar_count && i < limit; i++)
        put_scalar(c, r->scalars[i]);
    if (c->quiet)
        return r->same ? CLI_YES : CLI_NO;
    if (count > limit || r->scalar_count > limit)
        printf("%zu more tensors and %zu more values differ (--limit)\n", count > limit ? count - limit : 0,
               r->scalar_count > limit ? r->scalar_count - limit : 0);
    diff_by_role(c, r, MANY);
    diff_put_counts("tensors", &r->of_tensors);
    if (!cli_has_selection(c))
        diff_put_counts("values", &r->of_scalars);
    printf("%s%s%s\n", cli_style(c, r->same ? "bold" : "yellow"), r->same ? "the same" : "different",
           cli_style(c, "off"));
    return r->same ? CLI_YES : CLI_NO;
}

/* ---- both */

static bool is_wanted(void *ctx, const ckpt_tensor_info *t)
{
    const command_line *o = ctx;
    return cli_selected(&o->cli, t) && !cli_names(&o->exclude, t->name);
}

/* The library says "in B (PATH): " of the one that cannot be read; here PATH stands at the beginning, as in every error. */
static int failed_in(const command_line *o, ckpt_error *err)
{
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(o->paths[i]);
        char *at = err->message + 6;
        if (strncmp(err->message, i ? "in B (" : "in A (", 6) != 0)
            continue;
        if (strncmp(at, o->paths[i], n) == 0 && strncmp(at + n, "): ", 3) == 0)
            memmove(err->message, at + n + 3, strlen(at + n + 3) + 1);
        return cli_fail_error_of(&o->cli, o->paths[i], err);
    }
    return cli_fail_error(&o->cli, err);
}

static int compare(const command_line *o, const ckpt_reader *a, const ckpt_reader *b, ckpt_diff_options *options)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_diff_result result = CKPT_DIFF_RESULT_INIT;
    cli_progress shown;
    ckpt_progress progress = {cli_progress_step, &shown};
    ckpt_report *report = ckpt_report_new();
    if (!report)
        return cli_fail(c, "no-memory", "out of memory");
    if (cli_has_selection(c) || o->exclude.count) {
        options->wanted = is_wanted;
        options->wanted_ctx = (void *)(uintptr_t)o;
        options->values_too = !cli_has_selection(c);
    }
    options->progress = progress;
    cli_progress_init(&shown, c, "compared");
    ckpt_status answer = ckpt_diff(a, b, options, &result, report, &err);
    cli_progress_end(&shown);
    if (answer == CKPT_OK) {
        ckpt_report_free(cli_unchecked(c, a));
        ckpt_report_free(cli_unchecked(c, b));
        ckpt_reader_unchecked(a, NULL, report);
        ckpt_reader_unchecked(b, NULL, report);
    }
    int status = answer < 0 ? failed_in(o, &err) : result.same ? CLI_YES : CLI_NO;
    if (answer == CKPT_OK && o->report && report_diff(o, a, b, &result, report) != CLI_YES)
        status = CLI_NO_ANSWER;
    else if (answer == CKPT_OK && c->json)
        diff_json(a, b, options, &result, report);
    else if (answer == CKPT_OK)
        status = c->markdown ? diff_markdown(o, &result, report) : diff_text(o, &result, report);
    if (answer == CKPT_OK)
        ckpt_diff_result_clear(&result);
    ckpt_report_free(report);
    return status;
}

int inspect_diff(const command_line *o)
{
    const cli *c = &o->cli;
    ckpt_diff_options options = CKPT_DIFF_OPTIONS_INIT;
    options.tolerant = o->atol.text || o->rtol.text;
    options.atol = o->atol.real;
    options.rtol = o->rtol.real;
    ckpt_reader *a = newest_open(o, 0), *b = a ? newest_open(o, 1) : NULL;
    const ckpt_reader *const both[] = {a, b};
    int status = b ? cli_selection_finds(c, both, 2) : CLI_NO_ANSWER;
    if (status < 0)
        status = compare(o, a, b, &options);
    ckpt_reader_close(b);
    ckpt_reader_close(a);
    return status;
}
