/* report/diff.c - what differs, for eyes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

static void put_count_row(FILE *f, const char *what, const ckpt_diff_counts *n)
{
    const uint64_t counts[] = {n->same, n->changed, n->added, n->removed, n->tied};
    fprintf(f, "<tr><th scope=\"row\">%s</th>", what);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fputs("<td class=\"n\">", f);
        html_count(f, counts[i]);
        fputs("</td>", f);
    }
    fputs("</tr>\n", f);
}

static void put_verdict(report_page *p, const ckpt_diff_result *r)
{
    static const char *const heads[] = {"", "#the same", "#changed", "#added", "#removed", "#second names", NULL};
    const char *kind = r->same ? "good" : "warning";
    const command_line *o = p->o;
    fprintf(p->f, "<section class=\"verdict is-%s\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"%s\">",
            kind, kind);
    html_icon(p->f, kind);
    fprintf(p->f, " %s</h2>\n", r->same ? "The two hold the same" : "The two differ");
    fputs("<p>A is <span class=\"name\">", p->f);
    html_str(p->f, (ckpt_str){o->paths[0], strlen(o->paths[0])}, "");
    fputs("</span>, B is <span class=\"name\">", p->f);
    html_str(p->f, (ckpt_str){o->paths[1], strlen(o->paths[1])}, "");
    fputs("</span>. ", p->f);
    if (o->atol.text || o->rtol.text) {
        fputs("Values were compared with the tolerances atol ", p->f);
        html_message(p->f, o->atol.text ? o->atol.text : "0", 60);
        fputs(" and rtol ", p->f);
        html_message(p->f, o->rtol.text ? o->rtol.text : "0", 60);
        fputs(".</p>\n", p->f);
    } else {
        fputs("Values were compared bit by bit.</p>\n", p->f);
    }
    html_section_end(p->f);
    html_section(p->f, "counts", "How much");
    html_table(p->f, "From A to B", heads);
    put_count_row(p->f, "tensors", &r->of_tensors);
    put_count_row(p->f, "other values", &r->of_scalars);
    html_table_end(p->f);
    fputs("<p class=\"quiet\">Compared: ", p->f);
    html_size(p->f, r->bytes);
    fputs(" of both together.</p>\n", p->f);
    html_section_end(p->f);
}

static void put_what(FILE *f, ckpt_diff_status status, unsigned what)
{
    const char *between = ": ";
    fputs(ckpt_diff_status_name(status), f);
    for (unsigned bit = 1; bit && bit <= what; bit <<= 1)
        if ((what & bit) && ckpt_diff_what_name(bit)) {
            fprintf(f, "%s%s", between, ckpt_diff_what_name(bit));
            between = ", ";
        }
}

static void put_side(FILE *f, const ckpt_tensor_info *t)
{
    fputs("<td class=\"name word\">", f);
    if (t) {
        fprintf(f, "%s [", ckpt_dtype_name(t->dtype));
        for (uint32_t i = 0; i < t->ndim && i < 16; i++)
            fprintf(f, i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
        fputs(t->ndim > 16 ? ", ...] " : "] ", f);
        html_str(f, t->device, "");
    } else {
        fputs("-", f);
    }
    fputs("</td>", f);
}

static void put_numbers(FILE *f, const ckpt_diff_tensor *d)
{
    bool values = d->compared && (d->what & CKPT_DIFF_VALUE);
    fputs("<td class=\"n\">", f);
    if (values)
        html_count(f, d->differing);
    fputs("</td><td class=\"n\">", f);
    if (values)
        fprintf(f, "%.4g", d->max_abs);
    fputs("</td><td class=\"n\">", f);
    if (values)
        fprintf(f, "%.4g", d->max_rel);
    if (values && d->nan_mismatch)
        fprintf(f, "; %" PRIu64 " NaN in one", d->nan_mismatch);
    fputs("</td>", f);
}

static bool differs(ckpt_diff_status status)
{
    return status != CKPT_DIFF_SAME && status != CKPT_DIFF_TIED;
}

/* A section with one table, which comes with its first row and ends when the page is full. */
typedef struct rows {
    report_page *p;
    const char *id, *title, *caption, *const *heads;
    size_t shown, left;
} rows;

/* Begins a row with its name and what differs; false: it is the same, or there is no room. */
static bool row_begin(rows *t, ckpt_str name, ckpt_diff_status status, unsigned what)
{
    FILE *f = t->p->f;
    if (!differs(status))
        return false;
    if (t->shown >= REPORT_DIFFERENCES || !report_room(t->p)) {
        t->left++;
        return false;
    }
    if (t->shown++ == 0) {
        html_section(f, t->id, t->title);
        html_table(f, t->caption, t->heads);
    }
    fputs("<tr><th scope=\"row\"><span class=\"name long\">", f);
    html_str(f, name, "");
    fputs("</span></th><td>", f);
    put_what(f, status, what);
    fputs("</td>", f);
    return true;
}

static void rows_end(const rows *t)
{
    if (t->shown == 0)
        return;
    html_table_end(t->p->f);
    if (t->left)
        fprintf(t->p->f, "<p class=\"quiet\">and %zu more; <code>--json</code> has all.</p>\n", t->left);
    html_section_end(t->p->f);
}

static void put_tensors(report_page *p, const ckpt_diff_result *r)
{
    static const char *const heads[] = {"name", "what", "A", "B", "#values", "#max |a-b|", "#max |a-b|/|b|", NULL};
    rows t = {p, "tensors", "Tensors that differ", "How many values differ, and by how much at most", heads, 0, 0};
    for (size_t i = 0; i < r->tensor_count; i++) {
        const ckpt_diff_tensor *d = r->tensors[i];
        if (!row_begin(&t, d->name, d->status, d->what))
            continue;
        put_side(p->f, d->a);
        put_side(p->f, d->b);
        put_numbers(p->f, d);
        fputs("</tr>\n", p->f);
    }
    rows_end(&t);
}

static void put_value(FILE *f, const ckpt_value *v, const ckpt_tensor_info *tensor)
{
    char number[JSON_DOUBLE_MAX];
    fputs("<td class=\"name\">", f);
    if (tensor)
        fputs("a tensor", f);
    else if (!v)
        fputs("-", f);
    else if (v->kind == CKPT_V_FLOAT)
        html_text(f, json_format_double(number, v->real));
    else if (v->kind == CKPT_V_INT)
        fprintf(f, "%" PRId64, v->integer);
    else if (v->kind == CKPT_V_BOOL)
        fputs(v->boolean ? "True" : "False", f);
    else if (v->kind == CKPT_V_STR || v->kind == CKPT_V_BIGINT)
        html_str(f, v->text, "");
    else
        html_text(f, ckpt_kind_name(v->kind));
    fputs("</td>", f);
}

static void put_scalars(report_page *p, const ckpt_diff_result *r)
{
    static const char *const heads[] = {"name", "what", "A", "B", NULL};
    rows t = {p, "scalars", "Other values that differ", "Everything that is not a tensor", heads, 0, 0};
    for (size_t i = 0; i < r->scalar_count; i++) {
        const ckpt_diff_scalar *d = r->scalars[i];
        if (!row_begin(&t, d->name, d->status, d->what))
            continue;
        put_value(p->f, d->a, d->tensor_a);
        put_value(p->f, d->b, d->tensor_b);
        fputs("</tr>\n", p->f);
    }
    rows_end(&t);
}

static int facts_of(report_page *p, const ckpt_reader *reader, const char *id, const char *title)
{
    ckpt_summary summary = CKPT_SUMMARY_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    if (ckpt_summarize(reader, &summary, &err) < 0)
        return cli_fail_error(&p->o->cli, &err);
    report_facts(p, reader, &summary, id, title);
    ckpt_summary_clear(&summary);
    return -1;
}

int report_diff(const command_line *o, const ckpt_reader *a, const ckpt_reader *b, const ckpt_diff_result *result,
                const ckpt_report *findings)
{
    report_page p;
    int status = report_begin(&p, o, "diff", "What differs between two checkpoints", a, b);
    if (status >= 0)
        return status;
    put_verdict(&p, result);
    put_tensors(&p, result);
    put_scalars(&p, result);
    if (findings && ckpt_report_count(findings) > 0)
        report_findings(&p, findings, NULL);
    status = facts_of(&p, a, "facts-a", "A");
    if (status < 0)
        status = facts_of(&p, b, "facts-b", "B");
    return status >= 0 ? report_give_up(&p, status) : report_end(&p);
}
