/* report/diff.c - what differs, for eyes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

static void put_cells(FILE *f, const uint64_t *counts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fputs("<td class=\"n\">", f);
        html_count(f, counts[i]);
        fputs("</td>", f);
    }
}

static void put_count_row(FILE *f, const char *what, const ckpt_diff_counts *n)
{
    const uint64_t counts[] = {n->same, n->changed, n->added, n->removed, n->tied};
    fprintf(f, "<tr><th scope=\"row\">%s</th>", what);
    put_cells(f, counts, sizeof counts / sizeof *counts);
    fputs("</tr>\n", f);
}

/* Tensors with values that are NaN on one side alone. */
static uint64_t nan_count(const ckpt_diff_result *r)
{
    uint64_t count = 0;
    for (size_t i = 0; i < r->tensor_count; i++)
        count += r->tensors[i]->nan_mismatch > 0;
    return count;
}

/* It is the first thing to know. */
static void put_nan(report_page *p, const ckpt_diff_result *r)
{
    enum { NAMED = 3 };
    char n[CLI_SIZE_MAX];
    const uint64_t count = nan_count(r);
    if (!count)
        return;
    fprintf(p->f, "<p class=\"cause\">%s tensor%s NaN on one side alone: ", cli_count(n, count),
            count == 1 ? " has values that are" : "s have values that are");
    size_t shown = 0;
    for (size_t i = 0; i < r->tensor_count && shown < NAMED; i++) {
        const ckpt_diff_tensor *d = r->tensors[i];
        if (!d->nan_mismatch)
            continue;
        fputs(shown++ ? ", " : "", p->f);
        fputs("<span class=\"name\">", p->f);
        html_str(p->f, d->name, "");
        fprintf(p->f, "</span> (%s)", cli_count(n, d->nan_mismatch));
    }
    fputs(count > shown ? ", ...</p>\n" : ".</p>\n", p->f);
}

static void put_sentence(report_page *p, const ckpt_diff_counts *n, const char *what)
{
    const struct {
        uint64_t count;
        const char *word;
    } parts[] = {{n->changed, "changed"}, {n->added, "only in B"}, {n->removed, "only in A"}, {n->same, "the same"}};
    const char *between = "";
    char text[CLI_SIZE_MAX];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].count)
            continue;
        if (!*between)
            fprintf(p->f, "%s: ", what);
        fprintf(p->f, "%s%s %s", between, cli_count(text, parts[i].count), parts[i].word);
        between = ", ";
    }
    fputs(*between ? ". " : "", p->f);
}

static void put_verdict(report_page *p, const ckpt_diff_result *r)
{
    const char *kind = r->same ? "good" : nan_count(r) ? "error" : "warning";
    const command_line *o = p->o;
    fprintf(p->f, "<section class=\"verdict is-%s\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"%s\">",
            kind, kind);
    html_icon(p->f, kind);
    fprintf(p->f, " %s</h2>\n", r->same ? "The two hold the same" : "The two differ");
    put_nan(p, r);
    fputs("<p>", p->f);
    put_sentence(p, &r->of_tensors, "Tensors");
    put_sentence(p, &r->of_scalars, "Other values");
    fputs("</p>\n<p class=\"quiet\">A is <span class=\"name\">", p->f);
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
}

/* ---- by role */

typedef struct role_row {
    uint64_t changed, added, removed, nan;
    bool values; /* some differ */
    double max_abs;
} role_row;

static void put_role(FILE *f, const char *name, const role_row *row)
{
    const uint64_t counts[] = {row->changed, row->added, row->removed, row->nan};
    fprintf(f, "<tr><th scope=\"row\">%s</th>", name);
    put_cells(f, counts, sizeof counts / sizeof *counts);
    fputs("<td class=\"n\">", f);
    if (row->values)
        fprintf(f, "%.4g", row->max_abs);
    fputs("</td></tr>\n", f);
}

/* The tensors that differ, by what they are to training. */
static void put_roles(report_page *p, const ckpt_diff_result *r)
{
    static const char *const heads[] = {"role",       "#changed", "#only in B", "#only in A", "#with NaN in one",
                                        "#max |a-b|", NULL};
    const size_t roles = (size_t)ckpt_role_count();
    role_row *rows = calloc(roles + 1, sizeof *rows);
    for (size_t i = 0; rows && i < r->tensor_count; i++) {
        const ckpt_diff_tensor *d = r->tensors[i];
        const ckpt_tensor_info *t = d->a ? d->a : d->b;
        role_row *row = &rows[t && (size_t)t->role < roles ? (size_t)t->role : roles];
        row->changed += d->status == CKPT_DIFF_CHANGED;
        row->added += d->status == CKPT_DIFF_ADDED;
        row->removed += d->status == CKPT_DIFF_REMOVED;
        row->nan += d->nan_mismatch > 0;
        row->values = row->values || (d->compared && (d->what & CKPT_DIFF_VALUE));
        if (d->compared && d->max_abs > row->max_abs)
            row->max_abs = d->max_abs;
    }
    html_table(p->f, "Tensors that differ, by role", heads);
    for (size_t k = 0; rows && k < roles; k++)
        if (rows[k].changed || rows[k].added || rows[k].removed)
            put_role(p->f, ckpt_role_name((ckpt_role)k), &rows[k]);
    html_table_end(p->f);
    free(rows);
}

static void put_counts(report_page *p, const ckpt_diff_result *r)
{
    static const char *const heads[] = {"", "#the same", "#changed", "#only in B", "#only in A", "#second names", NULL};
    const ckpt_diff_counts *n = &r->of_tensors;
    html_section(p->f, "counts", "How much");
    html_table(p->f, "From A to B", heads);
    put_count_row(p->f, "tensors", &r->of_tensors);
    put_count_row(p->f, "other values", &r->of_scalars);
    html_table_end(p->f);
    if (n->changed || n->added || n->removed)
        put_roles(p, r);
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

static void put_shape(FILE *f, const ckpt_tensor_info *t)
{
    fputs("[", f);
    for (uint32_t i = 0; i < t->ndim && i < 16; i++)
        fprintf(f, i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
    fputs(t->ndim > 16 ? ", ...]" : "]", f);
}

/* What the other side does not have: all of it. Else that alone which differs, A before B. */
static void put_change(FILE *f, const ckpt_diff_tensor *d)
{
    const ckpt_tensor_info *one = d->a ? d->a : d->b;
    const char *between = "";
    fputs("<td class=\"name word\">", f);
    if (!d->a || !d->b) {
        fprintf(f, "%s ", ckpt_dtype_name(one->dtype));
        put_shape(f, one);
        fputs(one->device.size ? " " : "", f);
        html_str(f, one->device, "");
    } else {
        if (d->what & CKPT_DIFF_DTYPE) {
            fprintf(f, "%s \xe2\x86\x92 %s", ckpt_dtype_name(d->a->dtype), ckpt_dtype_name(d->b->dtype));
            between = "; ";
        }
        if (d->what & CKPT_DIFF_SHAPE) {
            fputs(between, f);
            put_shape(f, d->a);
            fputs(" \xe2\x86\x92 ", f);
            put_shape(f, d->b);
            between = "; ";
        }
        if (d->what & CKPT_DIFF_DEVICE) {
            fputs(between, f);
            html_str(f, d->a->device, "no tag");
            fputs(" \xe2\x86\x92 ", f);
            html_str(f, d->b->device, "no tag");
        }
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

/* Begins a row with its name and what differs, whose cell is left open; false: it is the same, or there is no room. */
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

/* NaN first; then what is there once, or is another thing; then by how much values differ. */
static int rank_of(const ckpt_diff_tensor *d)
{
    return d->nan_mismatch ? 0 : !d->a || !d->b ? 1 : d->what & ~(unsigned)CKPT_DIFF_VALUE ? 2 : 3;
}

static int by_weight(const void *x, const void *y)
{
    const ckpt_diff_tensor *a = *(const ckpt_diff_tensor *const *)x, *b = *(const ckpt_diff_tensor *const *)y;
    int roles = ckpt_role_count(), one = (int)a->a->role, other = (int)b->a->role;
    if (one != other) /* those without a role last */
        return (one + roles - 1) % roles - (other + roles - 1) % roles;
    if (a->max_abs != b->max_abs)
        return a->max_abs < b->max_abs ? 1 : -1;
    return cli_str_order(a->name, b->name);
}

/* The last of the ranks by role and by their numbers, the others in the file's order. NULL: no memory. */
static const ckpt_diff_tensor **sorted(const ckpt_diff_result *r)
{
    const ckpt_diff_tensor **all = calloc(r->tensor_count + 1, sizeof *all);
    size_t n = 0;
    if (!all)
        return NULL;
    for (int rank = 0; rank < 4; rank++) {
        size_t begin = n;
        for (size_t i = 0; i < r->tensor_count; i++)
            if (differs(r->tensors[i]->status) && rank_of(r->tensors[i]) == rank)
                all[n++] = r->tensors[i];
        if (rank == 3)
            qsort(all + begin, n - begin, sizeof *all, by_weight);
    }
    return all;
}

static void put_tensors(report_page *p, const ckpt_diff_result *r)
{
    static const char *const heads[] = {"name", "what", "from A to B", "#values", "#max |a-b|", "#max |a-b|/|b|", NULL};
    rows t = {p, "tensors", "Tensors that differ", "How many values differ, and by how much at most", heads, 0, 0};
    const ckpt_diff_tensor **all = sorted(r);
    char n[CLI_SIZE_MAX];
    for (size_t i = 0; all && all[i]; i++) {
        const ckpt_diff_tensor *d = all[i];
        if (!row_begin(&t, d->name, d->status, d->what))
            continue;
        if (d->nan_mismatch)
            fprintf(p->f, "; <span class=\"error\">%s NaN in one</span>", cli_count(n, d->nan_mismatch));
        fputs("</td>", p->f);
        put_change(p->f, d);
        put_numbers(p->f, d);
        fputs("</tr>\n", p->f);
    }
    free(all);
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
        fputs("</td>", p->f);
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
    put_counts(&p, result);
    put_tensors(&p, result);
    put_scalars(&p, result);
    if (findings && ckpt_report_count(findings) > 0)
        report_findings(&p, findings, NULL);
    status = facts_of(&p, a, "facts-a", "A");
    if (status < 0)
        status = facts_of(&p, b, "facts-b", "B");
    return status >= 0 ? report_give_up(&p, status) : report_end(&p);
}
