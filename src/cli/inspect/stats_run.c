#include "cli/inspect/stats_run.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"
#include "cli/inspect/run.h"
#include "cli/inspect/show.h"
#include "cli/out/checkpoints.h"
#include "cli/report/report.h"

/* The norm of one layer's weights. */
typedef struct layer_norm {
    char *name; /* heap, owned */
    double squares;
} layer_norm;

/* One checkpoint. What is not known: -1, NaN for lr. */
typedef struct point {
    const char *path; /* the list's */
    int64_t step, epoch;
    double epoch_exact, lr, squares; /* lr: of the first group; squares: the sum over the finite weights */
    size_t lrs;                      /* groups with another lr than the first */
    char metric[40];
    ckpt_score score;                    /* its name is `metric` */
    uint64_t nbytes, nonfinite, unknown; /* values; tensors whose values are not known */
    layer_norm *layers;                  /* heap, owned; by name */
    size_t layer_count;
} point;

/* One reading of a checkpoint's tensors. */
typedef struct reading {
    const command_line *o;
    const ckpt_reader *reader;
    point *out;
    const bool *again; /* second names */
    ckpt_role weights;
    bool no_memory;
} reading;

static bool add_to_layer(point *p, ckpt_str name, double squares)
{
    size_t at = p->layer_count;
    while (at > 0 &&
           (strlen(p->layers[at - 1].name) != name.size || memcmp(p->layers[at - 1].name, name.data, name.size)))
        at--; /* layers stand together in a file: the last is it mostly */
    if (at > 0) {
        p->layers[at - 1].squares += squares;
        return true;
    }
    layer_norm *more = realloc(p->layers, (p->layer_count + 1) * sizeof *more);
    char *copy = more ? strndup(name.data, name.size) : NULL;
    if (more)
        p->layers = more;
    if (!copy)
        return false;
    p->layers[p->layer_count++] = (layer_norm){copy, squares};
    return true;
}

static int take(void *ctx, size_t tensor, const ckpt_tensor_stats *s)
{
    reading *r = ctx;
    const ckpt_tensor_info *t = ckpt_reader_tensor(r->reader, tensor);
    r->out->nonfinite += s->nan + s->inf_pos + s->inf_neg;
    r->out->unknown += s->kind == CKPT_STATS_NONE || s->kind == CKPT_STATS_CODES;
    if (t->role != r->weights || r->again[tensor] || s->kind == CKPT_STATS_NONE || s->kind == CKPT_STATS_CODES)
        return 0;
    const double squares = (double)s->finite * (s->std * s->std + s->mean * s->mean);
    r->out->squares += squares;
    if (r->o->by)
        r->no_memory =
            !add_to_layer(r->out, (ckpt_str){t->name.data ? t->name.data : "", cli_layer_size(t->name)}, squares);
    return r->no_memory;
}

static void take_lr(point *p, const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    show_group g;
    p->lr = NAN;
    if (!groups)
        groups = ckpt_value_get(optimizer, "groups");
    for (size_t i = 0; i < show_group_limit(groups); i++) {
        const ckpt_value *v = show_group_at(groups, i, &g) ? ckpt_value_get(g.hypers, "lr") : NULL;
        if (!v || (v->kind != CKPT_V_FLOAT && v->kind != CKPT_V_INT))
            continue;
        const double lr = v->kind == CKPT_V_FLOAT ? v->real : (double)v->integer;
        p->lrs += !isnan(p->lr) && (lr < p->lr || lr > p->lr);
        p->lr = isnan(p->lr) ? lr : p->lr;
    }
}

static void take_summary(point *p, const ckpt_reader *reader)
{
    ckpt_summary s = CKPT_SUMMARY_INIT;
    p->nbytes = ckpt_reader_file_size(reader);
    p->lr = NAN;
    if (ckpt_summarize(reader, &s, NULL) < 0)
        return;
    p->step = s.step;
    p->epoch = s.epoch;
    p->epoch_exact = s.epoch_exact;
    p->score = s.score;
    folder_keep_text(p->metric, sizeof p->metric, s.score.name.data, s.score.name.size);
    p->score.name = (ckpt_str){p->metric[0] ? p->metric : NULL, strlen(p->metric)};
    take_lr(p, s.optimizer);
    ckpt_summary_clear(&s);
}

/* CLI_YES, else the status, the error said. */
static int read_point(const command_line *o, const ckpt_reader *reader, point *p)
{
    const size_t n = ckpt_reader_tensor_count(reader);
    reading r = {.o = o, .reader = reader, .out = p, .weights = CKPT_ROLE_NONE};
    size_t *tensors = calloc(n + 1, sizeof *tensors), chosen = 0;
    bool *again = show_second_names(reader, &o->cli);
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_stats_options options = CKPT_STATS_OPTIONS_INIT;
    cli_progress shown;
    r.again = again;
    take_summary(p, reader);
    for (size_t i = 0; tensors && i < n; i++) {
        r.weights = ckpt_reader_tensor(reader, i)->role == CKPT_ROLE_NONE ? r.weights : CKPT_ROLE_PARAM;
        if (cli_selected(&o->cli, ckpt_reader_tensor(reader, i)))
            tensors[chosen++] = i;
    }
    cli_progress_init(&shown, &o->cli, "read");
    options.progress = (ckpt_progress){cli_progress_step, &shown};
    ckpt_status status = tensors && again ? ckpt_stats(reader, tensors, chosen, &options, take, &r, &err) : CKPT_OK;
    cli_progress_end(&shown);
    const bool memory = tensors && again && !r.no_memory;
    free(again);
    free(tensors);
    if (!memory)
        return cli_fail(&o->cli, "no-memory", "out of memory");
    return status < 0 ? cli_fail_error_of(&o->cli, p->path, &err) : CLI_YES;
}

static int open_point(const command_line *o, point *p)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = cli_open_quietly(&o->cli, p->path, &err);
    int status = reader ? read_point(o, reader, p) : cli_fail_error_of(&o->cli, p->path, &err);
    ckpt_reader_close(reader);
    return status;
}

/* ---- which */

/* Those of a run that are complete, oldest first. Of a checkpoint of several ranks no single directory has all. */
static int list_run(const run_view *v, path_list *out)
{
    for (size_t i = v->count; i-- > 0;) {
        const ckpt_run_entry *e = ckpt_run_list_entry(v->list, i);
        if (e->complete && e->world > 1)
            return cli_fail(
                &v->o->cli, "unsupported",
                "%s: stats --run is not there for a run of several ranks; stats %s is of its newest checkpoint",
                v->path, v->path);
        if (!e->complete)
            cli_warn(&v->o->cli, "%s: skipped: %s", e->path, e->why);
        else if (!path_list_add(out, e->path))
            return cli_fail(&v->o->cli, "no-memory", "out of memory");
    }
    return CLI_YES;
}

static int list_folder(const command_line *o, path_list *out)
{
    folder_list l;
    folder_look(&l, o, o->paths[0]);
    int status = l.no_memory ? cli_fail(&o->cli, "no-memory", "out of memory") : CLI_YES;
    for (size_t i = 0; status == CLI_YES && i < l.count; i++) {
        const folder_item *it = &l.items[i];
        if (!it->complete)
            cli_warn(&o->cli, "%s: skipped: %s", it->path, it->why);
        else if (!path_list_add(out, it->path))
            status = cli_fail(&o->cli, "no-memory", "out of memory");
    }
    folder_free(&l);
    return status;
}

static int list_all(const command_line *o, path_list *out)
{
    run_view v;
    int status = run_view_open(o, &v);
    if (status < 0) {
        status = list_run(&v, out);
        run_view_close(&v);
    } else if (status == CLI_YES) {
        status = list_folder(o, out);
    }
    if (status == CLI_YES && out->count == 0)
        status = cli_fail(&o->cli, "format",
                          "%s: neither a run directory nor a folder with a checkpoint that is complete", o->paths[0]);
    return status;
}

/* ---- what is printed */

static void json_point(json_out *j, const command_line *o, const point *p)
{
    json_object(j, NULL);
    json_text(j, "path", p->path);
    json_int_or_null(j, "step", p->step >= 0, p->step);
    checkpoint_json_epoch(j, "epoch", p->epoch, p->epoch_exact);
    json_double_or_null(j, "lr", !isnan(p->lr), p->lr);
    json_uint(j, "other_lrs", p->lrs);
    checkpoint_json_score(j, "score", &p->score);
    json_uint(j, "nonfinite", p->nonfinite);
    json_uint(j, "unknown", p->unknown);
    json_double(j, "norm", sqrt(p->squares));
    json_uint(j, "nbytes", p->nbytes);
    if (o->by) {
        json_array(j, "layers");
        for (size_t i = 0; i < p->layer_count; i++) {
            json_object(j, NULL);
            json_text(j, "name", p->layers[i].name);
            json_double(j, "norm", sqrt(p->layers[i].squares));
            json_end_object(j);
        }
        json_end_array(j);
    }
    json_end_object(j);
}

static void put_json(const command_line *o, const point *points, size_t count)
{
    json_out j;
    json_document(&j);
    json_text(&j, "format", "steps");
    json_array(&j, "steps");
    for (size_t i = 0; i < count; i++)
        json_point(&j, o, &points[i]);
    json_end_array(&j);
    cli_json_findings(&j, NULL, NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

static bool has_lr(const row_parts *r)
{
    return !isnan(((const point *)r->part[0])->lr);
}

static bool has_score(const row_parts *r)
{
    const ckpt_score *s = &((const point *)r->part[0])->score;
    return s->has_current || s->has_best;
}

static bool has_epoch(const row_parts *r)
{
    return ((const point *)r->part[0])->epoch >= 0;
}

static ckpt_str lr_text(char buf[ROW_CELL], const row_parts *r)
{
    const point *p = r->part[0];
    return rows_print(buf, "%.4g%s", p->lr, p->lrs ? ", ..." : "");
}

static ckpt_str score_text(char buf[ROW_CELL], const row_parts *r)
{
    const ckpt_score *s = &((const point *)r->part[0])->score;
    return rows_print(buf, "%.6g", s->has_current ? s->current : s->best);
}

static ckpt_str epoch_text(char buf[ROW_CELL], const row_parts *r)
{
    return rows_print(buf, "%.4g", ((const point *)r->part[0])->epoch_exact);
}

static ckpt_str norm_text(char buf[ROW_CELL], const row_parts *r)
{
    return rows_print(buf, "%.6g", sqrt(((const point *)r->part[0])->squares));
}

static ckpt_str path_text(char buf[ROW_CELL], const row_parts *r)
{
    (void)buf;
    return rows_word(((const point *)r->part[0])->path);
}

enum { ALL = 1 };
#define AT(member) .at = offsetof(point, member)
static const row_field columns[] = {
    {.title = "step", .kind = ROW_NUMBER, AT(step), .right = true},
    {.title = "epoch", .text = epoch_text, .known = has_epoch, .only = ALL, .if_any = ALL, .right = true},
    {.title = "lr", .text = lr_text, .known = has_lr, .only = ALL, .if_any = ALL, .right = true},
    {.title = "score", .text = score_text, .known = has_score, .only = ALL, .if_any = ALL, .right = true},
    {.title = "norm", .text = norm_text, .right = true},
    {.title = "nonfinite", .kind = ROW_UINT, AT(nonfinite), .right = true},
    {.title = "size", .kind = ROW_SIZE, AT(nbytes), .right = true},
    {.title = "path", .kind = ROW_STR, .text = path_text},
    {.key = NULL},
};

/* The norms of a layer stand in a line, in the order of the checkpoints. */
static void put_layers(const point *points, size_t count)
{
    const point *last = &points[count - 1];
    for (size_t i = 0; i < last->layer_count; i++) {
        const char *name = last->layers[i].name;
        for (size_t k = 0; k < count; k++) {
            const point *p = &points[k];
            size_t at = 0;
            while (at < p->layer_count && strcmp(p->layers[at].name, name) != 0)
                at++;
            if (at < p->layer_count)
                printf("%9.5g ", sqrt(p->layers[at].squares));
            else
                printf("%9s ", "-");
        }
        putchar(' ');
        cli_put(stdout, name, strlen(name));
        putchar('\n');
    }
}

static void put_text(const command_line *o, const point *points, size_t count)
{
    row_text t;
    rows_begin(&t, columns, ALL, 2);
    for (size_t i = 0; i < count; i++)
        rows_measure(&t, &(row_parts){{&points[i]}});
    rows_head(&t, &o->cli);
    for (size_t i = 0; i < count; i++) {
        rows_line(&t, &(row_parts){{&points[i]}});
        rows_end_line(&t);
    }
    rows_flush(&t);
    if (!o->by)
        return;
    printf("%snorms of the layers, in the order of these %zu%s\n", cli_style(&o->cli, "bold"), count,
           cli_style(&o->cli, "off"));
    put_layers(points, count);
}

/* ---- --report */

/* Of the layer in each checkpoint; where it has none, NaN. */
static void layer_series(double *out, const point *points, size_t count, const char *name)
{
    for (size_t k = 0; k < count; k++) {
        const point *p = &points[k];
        out[k] = NAN;
        for (size_t i = 0; i < p->layer_count; i++)
            if (strcmp(p->layers[i].name, name) == 0)
                out[k] = sqrt(p->layers[i].squares);
    }
}

/* The name of the scores, where all that have one call it so. */
static const char *metric_of(const point *points, size_t count)
{
    const char *metric = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *name = points[i].metric[0] ? points[i].metric : "score";
        if (!points[i].score.has_current && !points[i].score.has_best)
            continue;
        metric = metric && strcmp(metric, name) != 0 ? "score" : name;
    }
    return metric ? metric : "score";
}

static int put_page(const command_line *o, const point *points, size_t count)
{
    enum { SCORE, LR, NORM, OWN };
    const point *last = &points[count - 1];
    const size_t layers = o->by ? last->layer_count : 0;
    size_t odd = 0, first = count;
    double *values = calloc((OWN + layers) * count, sizeof *values);
    report_series *series = calloc(OWN + layers, sizeof *series);
    row_parts *rows = calloc(count, sizeof *rows);
    for (size_t i = 0; series && i < OWN + layers; i++)
        series[i] = (report_series){i < OWN ? "" : last->layers[i - OWN].name, values ? &values[i * count] : NULL};
    for (size_t i = 0; values && series && rows && i < count; i++) {
        const ckpt_score *s = &points[i].score;
        values[SCORE * count + i] = s->has_current ? s->current : s->has_best ? s->best : NAN; /* as in the table */
        values[LR * count + i] = points[i].lr;
        values[NORM * count + i] = sqrt(points[i].squares);
        rows[i] = (row_parts){{&points[i]}};
        odd += points[i].nonfinite > 0;
        first = points[i].nonfinite && first == count ? i : first;
    }
    int status = CLI_YES;
    if (values && series && rows) {
        series[SCORE].name = metric_of(points, count);
        series[LR].name = "learning rate";
        series[NORM].name = "norm of the weights";
        for (size_t i = 0; i < layers; i++)
            layer_series(&values[(OWN + i) * count], points, count, series[OWN + i].name);
        status = report_stats_page(o, &(report_stats){columns, ALL, rows, count, series, series + OWN, OWN, layers,
                                                      odd ? points[first].path : NULL, odd});
    } else {
        status = cli_fail(&o->cli, "no-memory", "out of memory for the report");
    }
    free(rows);
    free(series);
    free(values);
    return status;
}

static void warn_unknown(const command_line *o, const point *points, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (points[i].unknown)
            cli_warn(&o->cli, "%s: the values of %llu tensor%s are not known, and not in these numbers", points[i].path,
                     (unsigned long long)points[i].unknown, points[i].unknown == 1 ? "" : "s");
}

int stats_run(const command_line *o)
{
    const cli *c = &o->cli;
    path_list paths = {NULL, 0};
    if (o->by && strcmp(o->by, "layer") != 0)
        return cli_usage(c, "stats: --by %s is not for --run (choose layer)", o->by);
    if (o->by && c->markdown)
        return cli_usage(c, "stats: --markdown goes without --by; --json has the norms of the layers");
    if (o->nonfinite)
        return cli_usage(c, "stats: --nonfinite is for one checkpoint; --run counts such values in each");
    int status = list_all(o, &paths);
    point *points = status == CLI_YES ? calloc(paths.count, sizeof *points) : NULL;
    if (status == CLI_YES && !points)
        status = cli_fail(c, "no-memory", "out of memory");
    for (size_t i = 0; status == CLI_YES && i < paths.count; i++) {
        points[i] = (point){.path = paths.items[i], .step = -1, .epoch = -1, .epoch_exact = -1};
        status = cli_signal_caught() ? CLI_NO_ANSWER : open_point(o, &points[i]);
    }
    if (status == CLI_YES && o->report)
        status = put_page(o, points, paths.count);
    if (status == CLI_YES && c->json)
        put_json(o, points, paths.count);
    else if (status == CLI_YES)
        put_text(o, points, paths.count);
    if (status == CLI_YES)
        warn_unknown(o, points, paths.count);
    for (size_t i = 0; points && i < paths.count; i++) {
        for (size_t k = 0; k < points[i].layer_count; k++)
            free(points[i].layers[k].name);
        free(points[i].layers);
    }
    free(points);
    path_list_free(&paths);
    return status;
}
