/* report/stats.c - the page of stats --run: what a run has learned, as curves over its checkpoints and as a table. */
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

static bool is_number(double v)
{
    return v - v == 0; /* no infinity, no NaN */
}

bool report_curve(report_page *p, const char *name, const double *values, size_t count)
{
    enum { FEWEST = 3 };
    double low = 0, high = 0, first = 0, last = 0;
    size_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        const double v = values[i];
        if (!is_number(v))
            continue;
        low = n == 0 || v < low ? v : low;
        high = n == 0 || v > high ? v : high;
        first = n == 0 ? v : first;
        last = v;
        n++;
    }
    if (n < FEWEST)
        return false;
    fputs(
        "<figure>\n<svg class=\"curve\" viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
        p->f);
    html_str(p->f, (ckpt_str){name, strlen(name)}, "");
    fprintf(p->f, " over %zu checkpoints: %.6g first, %.6g last\"><polyline points=\"", n, first, last);
    for (size_t i = 0; i < count; i++) {
        if (!is_number(values[i]))
            continue;
        const double height = high > low ? (values[i] - low) / (high - low) : 0.5;
        fprintf(p->f, "%s%.1f,%.1f", at++ ? " " : "", (double)i * 1000 / (double)(count - 1), 95 - 90 * height);
    }
    fputs("\"/></svg>\n<figcaption class=\"quiet\">", p->f);
    html_str(p->f, (ckpt_str){name, strlen(name)}, "");
    fprintf(p->f, ", oldest to newest: from %.6g to %.6g, lowest %.6g, highest %.6g</figcaption>\n</figure>\n", first,
            last, low, high);
    return true;
}

/* Curves side by side, as far as there is room; fewer than three numbers are none. */
static void put_curves(report_page *p, const char *id, const char *title, const report_series *all, size_t count,
                       size_t points)
{
    enum { FEWEST = 3 };
    size_t shown = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        size_t known = 0;
        for (size_t k = 0; k < points; k++)
            known += is_number(all[i].values[k]);
        if (known < FEWEST)
            continue;
        if (shown == REPORT_LAYERS || !report_room(p)) {
            left++;
            continue;
        }
        if (shown++ == 0) {
            html_section(p->f, id, title);
            fputs("<div class=\"pair\">\n", p->f);
        }
        report_curve(p, all[i].name, all[i].values, points);
    }
    if (shown == 0)
        return;
    fputs("</div>\n", p->f);
    if (left)
        fprintf(p->f, "<p class=\"quiet\">and %zu more; <code>--json</code> has all.</p>\n", left);
    html_section_end(p->f);
}

/* The last column is the path, which a page has first. */
static void put_row(FILE *f, const row_text *t, const row_parts *r)
{
    char buf[ROW_CELL];
    fputs("<tr><th scope=\"row\"><span class=\"name long\">", f);
    html_str(f, rows_cell(t->columns[t->count - 1].field, buf, r), "");
    fputs("</span></th>", f);
    for (size_t i = 0; i + 1 < t->count; i++)
        if (!t->columns[i].hidden) {
            fputs("<td class=\"n\">", f);
            html_str(f, rows_cell(t->columns[i].field, buf, r), "-");
            fputs("</td>", f);
        }
    fputs("</tr>\n", f);
}

static void put_table(report_page *p, const report_stats *s)
{
    const char *heads[ROW_COLUMNS + 1] = {NULL};
    char text[ROW_COLUMNS][32];
    size_t n = 0, shown = 0, first = s->count > REPORT_CHECKPOINTS ? s->count - REPORT_CHECKPOINTS : 0;
    row_text t;
    rows_begin(&t, s->fields, s->set, 2);
    for (size_t i = 0; i < s->count; i++)
        rows_measure(&t, &s->rows[i]);
    heads[n++] = t.columns[t.count - 1].title;
    for (size_t i = 0; i + 1 < t.count; i++) {
        snprintf(text[i], sizeof text[i], "#%s", t.columns[i].title);
        if (!t.columns[i].hidden)
            heads[n++] = text[i];
    }
    html_section(p->f, "checkpoints", "Checkpoints");
    html_table(p->f, "The newest last", heads);
    for (; first + shown < s->count && report_room(p); shown++)
        put_row(p->f, &t, &s->rows[first + shown]);
    html_table_end(p->f);
    if (shown < s->count)
        fprintf(p->f, "<p class=\"quiet\">and %zu more; <code>--json</code> has all.</p>\n", s->count - shown);
    html_section_end(p->f);
}

static void put_odd(report_page *p, const report_stats *s)
{
    fputs("<section class=\"verdict is-error\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"error\">",
          p->f);
    html_icon(p->f, "error");
    fprintf(p->f,
            " There are values that are not finite</h2>\n<p>%zu of %zu checkpoint%s NaN or infinities. The first is "
            "<span class=\"name\">",
            s->odd_count, s->count,
            s->count == 1       ? " has"
            : s->odd_count == 1 ? "s has"
                                : "s have");
    html_str(p->f, (ckpt_str){s->odd, strlen(s->odd)}, "");
    fputs("</span>.</p>\n", p->f);
    html_section_end(p->f);
}

int report_stats_page(const command_line *o, const report_stats *s)
{
    report_page p;
    int status = report_begin(&p, o, "stats", "How a run has gone", NULL, NULL);
    if (status >= 0)
        return status;
    if (s->odd)
        put_odd(&p, s);
    put_curves(&p, "curves", "Over the checkpoints", s->series, s->series_count, s->count);
    put_curves(&p, "layers", "Norms of the layers", s->layers, s->layer_count, s->count);
    put_table(&p, s);
    return report_end(&p);
}
