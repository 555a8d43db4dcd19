/* inspect/stats.c - numbers of each tensor's values. All are had before the first is printed: a damaged tensor must give an
 * error, not half a document. */
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/inspect/newest.h"
#include "cli/inspect/stats_run.h"
#include "cli/out/rows.h"

typedef struct table {
    const command_line *o;
    const ckpt_reader *reader;
    ckpt_tensor_stats **of; /* per tensor; NULL: not asked for. What has no histogram ends before it */
    size_t unknown;         /* --nonfinite: tensors whose values are not known */
    bool no_memory;
    bool drawn; /* -v: a histogram stands beside the numbers */
} table;

static int take(void *ctx, size_t tensor, const ckpt_tensor_stats *stats)
{
    table *t = ctx;
    size_t size = stats->has_histogram ? sizeof *stats : offsetof(ckpt_tensor_stats, bins);
    ckpt_tensor_stats *copy = malloc(size);
    if (copy)
        memcpy(copy, stats, size);
    t->of[tensor] = copy;
    t->no_memory = !copy;
    return t->no_memory;
}

/* Of --nonfinite those that have NaN or infinities. Those without numbers, which cannot be told, are counted. */
static void keep_nonfinite(table *t)
{
    for (size_t i = 0; i < ckpt_reader_tensor_count(t->reader); i++)
        if (t->of[i] && t->of[i]->nan + t->of[i]->inf_pos + t->of[i]->inf_neg == 0) {
            t->unknown += t->of[i]->kind == CKPT_STATS_NONE;
            free(t->of[i]);
            t->of[i] = NULL;
        }
    if (t->unknown)
        cli_warn(&t->o->cli, "%s: the values of %zu tensor%s are not known: stats without --nonfinite says why",
                 t->o->paths[0], t->unknown, t->unknown == 1 ? "" : "s");
}

/* ---- --json */

static bool is_signed(const ckpt_tensor_stats *s)
{
    return s->kind == CKPT_STATS_INT || (s->kind == CKPT_STATS_CODES && s->is_signed);
}

static bool is_unsigned(const ckpt_tensor_stats *s)
{
    return s->kind == CKPT_STATS_UINT || (s->kind == CKPT_STATS_CODES && !s->is_signed);
}

/* The absolute value of an integer, exactly: -2^63 has one too. */
static uint64_t int_absmax(const ckpt_tensor_stats *s)
{
    uint64_t low = s->int_min < 0 ? 0 - (uint64_t)s->int_min : (uint64_t)s->int_min;
    uint64_t high = s->int_max < 0 ? 0 - (uint64_t)s->int_max : (uint64_t)s->int_max;
    return low > high ? low : high;
}

static void json_extremes(json_out *j, const ckpt_tensor_stats *s)
{
    if (s->finite == 0) {
        json_null(j, "min");
        json_null(j, "max");
        json_null(j, "absmax");
    } else if (is_signed(s)) {
        json_int(j, "min", s->int_min);
        json_int(j, "max", s->int_max);
        json_uint(j, "absmax", int_absmax(s));
    } else if (is_unsigned(s)) {
        json_uint(j, "min", s->uint_min);
        json_uint(j, "max", s->uint_max);
        json_uint(j, "absmax", s->uint_max);
    } else {
        json_double(j, "min", s->min);
        json_double(j, "max", s->max);
        json_double(j, "absmax", s->absmax);
    }
}

static void json_histogram(json_out *j, const ckpt_tensor_stats *s)
{
    if (!s->has_histogram) {
        json_null(j, "histogram");
        json_null(j, "magnitudes");
        return;
    }
    json_object(j, "histogram");
    json_double(j, "low", s->min);
    json_double(j, "high", s->max);
    json_array(j, "counts");
    for (int i = 0; i < CKPT_STATS_BINS; i++)
        json_uint(j, NULL, s->bins[i]);
    json_end_array(j);
    json_end_object(j);
    json_object(j, "magnitudes");
    json_int(j, "log2_first", s->octave_first);
    json_array(j, "counts");
    for (int i = 0; i < s->octave_count; i++)
        json_uint(j, NULL, s->octaves[i]);
    json_end_array(j);
    json_end_object(j);
}

static void json_stats(json_out *j, const ckpt_tensor_info *t, const ckpt_tensor_stats *s)
{
    const bool known = s->kind != CKPT_STATS_NONE;
    json_object(j, NULL);
    json_bytes(j, "name", t->name.data, t->name.size);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_sizes(j, "shape", t->shape, t->ndim);
    json_text(j, "role", t->role ? ckpt_role_name(t->role) : NULL);
    json_bytes(j, "file", t->file.data, t->file.size);
    json_text(j, "of", s->kind ? ckpt_stats_kind_name(s->kind) : NULL);
    json_text(j, "why", s->why);
    json_uint_or_null(j, "count", known, s->count);
    json_extremes(j, s);
    json_double_or_null(j, "mean", s->finite > 0, s->mean);
    json_double_or_null(j, "std", s->finite > 0, s->std);
    json_uint_or_null(j, "nan", known, s->nan);
    json_uint_or_null(j, "inf", known, s->inf_pos + s->inf_neg);
    json_uint_or_null(j, "inf_pos", known, s->inf_pos);
    json_uint_or_null(j, "inf_neg", known, s->inf_neg);
    json_uint_or_null(j, "zero", known, s->zero);
    json_histogram(j, s);
    json_end_object(j);
}

static void stats_json(const table *t, const ckpt_report *unchecked)
{
    json_out j;
    json_document(&j);
    json_text(&j, "format", ckpt_reader_format(t->reader));
    json_array(&j, "tensors");
    for (size_t i = 0; i < ckpt_reader_tensor_count(t->reader); i++)
        if (t->of[i])
            json_stats(&j, ckpt_reader_tensor(t->reader, i), t->of[i]);
    json_end_array(&j);
    cli_json_findings(&j, ckpt_reader_findings(t->reader), unchecked, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

/* ---- text */

enum { NUMBER_WIDTH = 9 };

/* Three digits; integers of up to seven as they are. */
static void put_number(const ckpt_tensor_stats *s, double value, bool integer)
{
    if (s->finite == 0)
        printf("%*s ", NUMBER_WIDTH, "-");
    else if (integer && value > -1e7 && value < 1e8)
        printf("%*.0f ", NUMBER_WIDTH, value);
    else
        printf("%*.3g ", NUMBER_WIDTH, value);
}

static void put_share(uint64_t n, uint64_t of)
{
    double share = of ? 100.0 * (double)n / (double)of : 0;
    if (n == 0)
        printf("%5s ", "-");
    else if (n < of && (share < 0.1 || share > 99.9))
        printf("%5s ", share < 1 ? "<0.1%" : ">99%");
    else
        printf("%4.*f%% ", share < 9.95 ? 1 : 0, share);
}

/* -v draws where each of its characters is one column: on a terminal of a UTF-8 locale. The columns of a pipe are a script's. */
static bool can_draw(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"}, *locale = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && (!locale || !*locale); i++)
        locale = getenv(names[i]);
    return isatty(STDOUT_FILENO) && locale &&
           (strstr(locale, "UTF-8") || strstr(locale, "utf8") || strstr(locale, "utf-8") || strstr(locale, "UTF8"));
}

enum { DRAWN = 16, MERGED = CKPT_STATS_BINS / DRAWN };

/* A column for every two bins, in eighths of the largest; what is there at all has one. */
static void put_histogram(const ckpt_tensor_stats *s)
{
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    uint64_t counts[DRAWN] = {0}, most = 1;
    for (size_t i = 0; s->has_histogram && i < CKPT_STATS_BINS; i++)
        counts[i / MERGED] += s->bins[i];
    for (size_t i = 0; i < DRAWN; i++)
        most = counts[i] > most ? counts[i] : most;
    putchar(' ');
    for (size_t i = 0; i < DRAWN; i++) {
        double share = 8.0 * (double)counts[i] / (double)most;
        fputs(bars[counts[i] ? share > 1 ? (size_t)share : 1 : 0], stdout);
    }
    putchar(' ');
}

/* Before each column of Markdown. */
static void begin_cell(const table *t)
{
    if (t->o->cli.markdown)
        fputs("| ", stdout);
}

static void put_name(const table *t, ckpt_str name)
{
    const ckpt_str shown = name.size ? name : (ckpt_str){"\"\"", 2};
    if (t->o->cli.markdown)
        rows_put_markdown(shown, true);
    else
        cli_put_str(stdout, shown, "");
}

static void put_stats(const table *t, size_t i, bool odd)
{
    const ckpt_tensor_info *info = ckpt_reader_tensor(t->reader, i);
    const ckpt_tensor_stats *s = t->of[i];
    const double numbers[] = {s->min, s->max, s->mean, s->std};
    bool integer = is_signed(s) || is_unsigned(s);
    for (size_t k = 0; k < 4; k++) {
        begin_cell(t);
        put_number(s, numbers[k], k < 2 && integer);
    }
    begin_cell(t);
    put_share(s->zero, s->count);
    if (odd) {
        const char *red = s->nan || s->inf_pos || s->inf_neg ? cli_style(&t->o->cli, "red") : "";
        begin_cell(t);
        printf("%s%7" PRIu64 " ", red, s->nan);
        begin_cell(t);
        printf("%7" PRIu64 "%s ", s->inf_pos + s->inf_neg, *red ? cli_style(&t->o->cli, "off") : "");
    }
    if (t->drawn)
        put_histogram(s);
    if (t->o->cli.markdown)
        putchar('|');
    putchar(' ');
    put_name(t, info->name);
    if (s->why)
        printf("  (%s)", s->why);
    else if (s->kind == CKPT_STATS_CODES)
        fputs("  (integers as stored)", stdout);
    else if (s->kind == CKPT_STATS_COMPLEX)
        fputs("  (absolute values)", stdout);
    puts(t->o->cli.markdown ? " |" : "");
}

static void stats_text(const table *t)
{
    bool odd = false, any = false;
    for (size_t i = 0; i < ckpt_reader_tensor_count(t->reader); i++) {
        any |= t->of[i] != NULL;
        odd |= t->of[i] && (t->of[i]->nan || t->of[i]->inf_pos || t->of[i]->inf_neg);
    }
    if (!any) {
        if (t->o->nonfinite && !t->o->cli.quiet)
            puts(t->unknown ? "no tensor whose values are known has NaN or infinities"
                            : "no tensor has NaN or infinities");
        return;
    }
    if (t->o->cli.markdown)
        printf("| min | max | mean | std | zero |%s name |\n| ---: | ---: | ---: | ---: | ---: |%s --- |\n",
               odd ? " nan | inf |" : "", odd ? " ---: | ---: |" : "");
    else
        printf("%s%*s %*s %*s %*s  zero %s%s name%s\n", cli_style(&t->o->cli, "bold"), NUMBER_WIDTH, "min",
               NUMBER_WIDTH, "max", NUMBER_WIDTH, "mean", NUMBER_WIDTH, "std", odd ? "    nan     inf " : "",
               t->drawn ? " histogram        " : "", cli_style(&t->o->cli, "off"));
    for (size_t i = 0; i < ckpt_reader_tensor_count(t->reader); i++)
        if (t->of[i])
            put_stats(t, i, odd);
}

/* ---- both */

static int read_all(table *t)
{
    const cli *c = &t->o->cli;
    size_t n = ckpt_reader_tensor_count(t->reader), chosen = 0;
    size_t *tensors = calloc(n + 1, sizeof *tensors);
    ckpt_error err = CKPT_ERROR_INIT;
    cli_progress shown;
    ckpt_stats_options options = CKPT_STATS_OPTIONS_INIT;
    options.histogram = c->json || t->drawn;
    options.progress = (ckpt_progress){cli_progress_step, &shown};
    if (!tensors)
        return cli_fail(c, "no-memory", "out of memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        if (cli_selected(c, ckpt_reader_tensor(t->reader, i)))
            tensors[chosen++] = i;
    cli_progress_init(&shown, c, "read");
    ckpt_status status = ckpt_stats(t->reader, tensors, chosen, &options, take, t, &err);
    cli_progress_end(&shown);
    free(tensors);
    if (t->no_memory)
        return cli_fail(c, "no-memory", "out of memory for %zu tensors", n);
    return status < 0 ? cli_fail_error(c, &err) : CLI_YES;
}

int inspect_stats(const command_line *o)
{
    if (o->run)
        return stats_run(o);
    ckpt_reader *reader = newest_open(o, 0);
    if (!reader)
        return CLI_NO_ANSWER;
    int status = cli_selection_finds(&o->cli, (const ckpt_reader *const *)&reader, 1);
    if (status >= 0) {
        ckpt_reader_close(reader);
        return status;
    }
    size_t n = ckpt_reader_tensor_count(reader);
    table t = {.o = o, .reader = reader, .of = calloc(n + 1, sizeof *t.of)};
    t.drawn = o->cli.verbose && !o->cli.json && !o->cli.markdown && can_draw();
    if (o->cli.verbose && !o->cli.json && !t.drawn)
        cli_warn(&o->cli, "-v draws histograms on a terminal of a UTF-8 locale; --json has them as numbers");
    status = t.of ? read_all(&t) : cli_fail(&o->cli, "no-memory", "out of memory for %zu tensors", n);
    if (status == CLI_YES && o->nonfinite)
        keep_nonfinite(&t);
    ckpt_report *unchecked = status == CLI_YES ? cli_unchecked(&o->cli, reader) : NULL;
    if (status == CLI_YES && o->cli.json)
        stats_json(&t, unchecked);
    else if (status == CLI_YES)
        stats_text(&t);
    for (size_t i = 0; t.of && i < n; i++)
        free(t.of[i]);
    free(t.of);
    ckpt_report_free(unchecked);
    ckpt_reader_close(reader);
    return status;
}
