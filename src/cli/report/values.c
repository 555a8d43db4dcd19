/* report/values.c - histograms, where --values asks for them: they read payloads. */
#include <ckpt/stats.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

/* Bars side by side, as high as their share of the highest; what is there is seen, however little. */
static void put_bars(FILE *f, const uint64_t *counts, size_t n, const char *says, unsigned kind)
{
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    fputs("<svg class=\"hist\" viewBox=\"0 0 640 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", f);
    html_text(f, says);
    fputs("\">", f);
    double width = 640.0 / (double)(n ? n : 1);
    for (size_t i = 0; i < n; i++) {
        double height = most ? (double)counts[i] / (double)most * 98 : 0;
        if (counts[i] == 0)
            continue;
        height = height < 1.5 ? 1.5 : height;
        fprintf(f,
                "<rect class=\"k%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%" PRIu64
                "</title></rect>",
                kind, (double)i * width + 0.5, 100 - height, width - 1, height, counts[i]);
    }
    fputs("</svg>\n", f);
}

static void put_axis(FILE *f, const char *low, const char *middle, const char *high)
{
    fputs("<div class=\"axis\"><span>", f);
    html_text(f, low);
    fputs("</span><span>", f);
    html_text(f, middle);
    fputs("</span><span>", f);
    html_text(f, high);
    fputs("</span></div>\n", f);
}

static void put_octaves(FILE *f, const ckpt_tensor_stats *s, unsigned kind)
{
    char low[32], high[32], says[160];
    int last = s->octave_first + s->octave_count;
    if (s->octave_count < 1 || s->octave_count > CKPT_STATS_OCTAVES)
        return;
    snprintf(low, sizeof low, "2^%d", s->octave_first);
    snprintf(high, sizeof high, "2^%d", last);
    snprintf(says, sizeof says, "how many values other than zero have which magnitude, from 2^%d to 2^%d",
             s->octave_first, last);
    fputs("<div>\n", f);
    put_bars(f, s->octaves, (size_t)s->octave_count, says, kind);
    put_axis(f, low, "magnitude, by powers of two", high);
    fputs("</div>\n", f);
}

static void put_numbers(FILE *f, const ckpt_tensor_stats *s)
{
    char n[CLI_SIZE_MAX];
    uint64_t infinite = s->inf_pos + s->inf_neg;
    fprintf(f, "<p class=\"quiet\">%s value%s", cli_count(n, s->count), s->count == 1 ? "" : "s");
    if (s->finite)
        fprintf(f, "; smallest %.6g, largest %.6g, mean %.6g, deviation %.6g", s->min, s->max, s->mean, s->std);
    fprintf(f, "; %s zero</p>\n", cli_count(n, s->zero));
    if (s->nan || infinite) {
        fputs("<p class=\"error\">", f);
        html_icon(f, "error");
        fprintf(f, " %s not a number, ", cli_count(n, s->nan));
        fprintf(f, "%s infinite</p>\n", cli_count(n, infinite));
    }
}

typedef struct figure {
    report_page *page;
    const ckpt_reader *reader;
} figure;

static int put_stats(void *ctx, size_t tensor, const ckpt_tensor_stats *s)
{
    const figure *fig = ctx;
    FILE *f = fig->page->f;
    unsigned kind = html_kind_of(ckpt_reader_tensor(fig->reader, tensor)->role);
    char low[32], high[32], says[120];
    if (s->kind == CKPT_STATS_NONE) {
        fputs("<p class=\"quiet\">It has no values to look at: ", f);
        html_text(f, s->why ? s->why : "not known");
        fputs(".</p>\n", f);
        return 0;
    }
    put_numbers(f, s);
    if (!s->has_histogram)
        return 0;
    snprintf(low, sizeof low, "%.4g", s->min);
    snprintf(high, sizeof high, "%.4g", s->max);
    snprintf(says, sizeof says, "how many values lie where between %s and %s", low, high);
    fputs("<div class=\"pair\">\n<div>\n", f);
    put_bars(f, s->bins, CKPT_STATS_BINS, says, kind);
    put_axis(f, low, s->kind == CKPT_STATS_COMPLEX ? "absolute value" : "value", high);
    fputs("</div>\n", f);
    put_octaves(f, s, kind);
    fputs("</div>\n", f);
    return 0;
}

static void put_figure(report_page *p, const ckpt_reader *reader, size_t tensor, const ckpt_progress *progress)
{
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, tensor);
    ckpt_stats_options options = CKPT_STATS_OPTIONS_INIT;
    options.histogram = true;
    options.progress = *progress;
    ckpt_error err = CKPT_ERROR_INIT;
    figure fig = {p, reader};
    fputs("<figure>\n<figcaption><span class=\"name\">", p->f);
    html_str(p->f, t->name, "");
    fprintf(p->f, "</span>, the largest of role %s: %s, ", ckpt_role_name(t->role), ckpt_dtype_name(t->dtype));
    html_size(p->f, t->nbytes);
    fputs("</figcaption>\n", p->f);
    if (ckpt_stats(reader, &tensor, 1, &options, put_stats, &fig, &err) < 0) {
        fputs("<p class=\"error\">", p->f);
        html_icon(p->f, "error");
        fputs(" It cannot be read: ", p->f);
        html_message(p->f, err.message, 800);
        fputs("</p>\n", p->f);
    }
    fputs("</figure>\n", p->f);
}

/* The first of the largest that are shown; SIZE_MAX: none. */
static size_t largest_of(const report_page *p, const ckpt_reader *reader, ckpt_role role)
{
    size_t largest = SIZE_MAX;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (t->role == role && cli_selected(&p->o->cli, t) &&
            (largest == SIZE_MAX || ckpt_reader_tensor(reader, largest)->nbytes < t->nbytes))
            largest = i;
    }
    return largest;
}

void report_values(report_page *p, const ckpt_reader *reader)
{
    const int roles = ckpt_role_count();
    cli_progress shown;
    html_section(p->f, "values", "Values");
    if (!p->o->values) {
        fputs(
            "<p class=\"quiet\">Left out, because it takes reading the payload: with <code>--values</code> there are histograms of the "
            "largest tensor of each role.</p>\n",
            p->f);
        html_section_end(p->f);
        return;
    }
    cli_progress_init(&shown, &p->o->cli, "read");
    const ckpt_progress progress = {cli_progress_step, &shown};
    for (int role = 1; role <= roles; role++) { /* those without a role last */
        size_t tensor = largest_of(p, reader, (ckpt_role)(role % roles));
        if (tensor != SIZE_MAX)
            put_figure(p, reader, tensor, &progress);
    }
    cli_progress_end(&shown);
    html_section_end(p->f);
}
