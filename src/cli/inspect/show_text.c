/* inspect/show_text.c - `show` for people. */
#include "cli/inspect/show.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"

static void label(const void *picture, const char *text)
{
    const show_picture *p = picture;
    printf("%s%-11s%s", cli_style(&p->o->cli, "bold"), text, cli_style(&p->o->cli, "off"));
}

/* A line that is made before it is written: it is broken where a terminal is narrow, with one indent for all. */
typedef struct made_line {
    char *text; /* heap */
    size_t size;
    FILE *f;
} made_line;
enum { INDENT = 11 };

/* NULL: no memory, and nothing is written. */
static FILE *begin_line(made_line *l)
{
    *l = (made_line){NULL, 0, NULL};
    l->f = open_memstream(&l->text, &l->size);
    return l->f;
}

static void end_line(const show_picture *p, const char *what, made_line *l)
{
    if (l->f && fclose(l->f) == 0 && l->text) {
        label(p, what);
        cli_put_wrapped(stdout, l->text, INDENT, INDENT);
    }
    free(l->text);
}

static void text_table(const show_picture *p, const char *what, const show_table *t)
{
    char size[CLI_SIZE_MAX];
    size_t column = 11;
    const size_t columns = cli_columns(stdout);
    if (t->count == 0)
        return;
    label(p, what);
    for (size_t i = 0; i < t->count; i++) {
        const char *name = t->rows[i].name[0] ? t->rows[i].name : "none";
        char text[128];
        int n = snprintf(text, sizeof text, "%s %" PRIu64 " (%s)%s", name, t->rows[i].count,
                         cli_size(size, t->rows[i].nbytes), i + 1 < t->count ? "," : "");
        if (column + (size_t)n + 1 > columns && column > 11) {
            printf("\n%11s", "");
            column = 11;
        }
        if (column > 11) {
            putchar(' ');
            column++;
        }
        cli_put(stdout, text, strlen(text));
        column += (size_t)n;
    }
    putchar('\n');
}

static void put_number(FILE *f, const ckpt_value *v)
{
    char number[JSON_DOUBLE_MAX];
    if (v->kind == CKPT_V_FLOAT)
        fputs(json_format_double(number, v->real), f);
    else if (v->kind == CKPT_V_INT)
        fprintf(f, "%" PRId64, v->integer);
    else if (v->kind == CKPT_V_BOOL)
        fputs(v->boolean ? "True" : "False", f);
    else
        fputs(ckpt_kind_name(v->kind), f);
}

static void put_hyper(FILE *f, const ckpt_value *group, const char *key, const char *before)
{
    const ckpt_value *v = ckpt_value_get(group, key);
    if (!v || v->kind == CKPT_V_NONE)
        return;
    fprintf(f, "%s%s ", before, key);
    if (v->kind == CKPT_V_DICT) { /* native: betas.0, betas.1 */
        for (size_t i = 0; i < v->entry_count; i++) {
            fputs(i ? ", " : "(", f);
            put_number(f, v->entries[i].value);
        }
        putc(')', f);
    } else if (v->item_count > 0) {
        for (size_t i = 0; i < v->item_count && i < 8; i++) {
            fputs(i ? ", " : "(", f);
            put_number(f, v->items[i]);
        }
        putc(')', f);
    } else {
        put_number(f, v);
    }
}

static void text_group(const show_group *g)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return;
    if (g->unnamed)
        fputs("parameters not named", f);
    else
        fprintf(f, "%zu parameter%s", g->params, g->params == 1 ? "" : "s");
    put_hyper(f, g->hypers, "lr", ", ");
    put_hyper(f, g->hypers, "betas", ", ");
    put_hyper(f, g->hypers, "momentum", ", ");
    put_hyper(f, g->hypers, "weight_decay", ", ");
    if (fclose(f) == 0 && text) {
        printf("%11s", "");
        cli_put_wrapped(stdout, text, INDENT, INDENT);
    }
    free(text);
}

static void text_optimizer(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    const ckpt_value *groups = ckpt_value_get(s->optimizer, "param_groups");
    if (!s->optimizer && !s->optimizer_kind.data)
        return;
    if (!groups)
        groups = ckpt_value_get(s->optimizer, "groups");
    size_t n = 0, shown = 0;
    show_group g;
    for (size_t i = 0; i < show_group_limit(groups); i++)
        n += show_group_at(groups, i, &g);
    made_line l;
    FILE *f = begin_line(&l);
    if (!f)
        return;
    if (s->optimizer_class)
        fprintf(f, "%s%s", s->optimizer_class, s->optimizer_kind.data ? ", " : "");
    cli_put_str(f, s->optimizer_kind, s->optimizer_class ? "" : "?");
    if (s->optimizer_path.data && s->optimizer_path.size) {
        fputs(", at ", f);
        cli_put_str(f, s->optimizer_path, "");
    }
    fprintf(f, ", %zu group%s", n, n == 1 ? "" : "s");
    if (s->optimizer_count > 1)
        fprintf(f, "; the first of %" PRIu64, s->optimizer_count);
    end_line(p, "optimizer", &l);
    for (size_t i = 0; i < show_group_limit(groups) && shown < 8; i++) {
        if (!show_group_at(groups, i, &g))
            continue;
        shown++;
        text_group(&g);
    }
    if (n > 8)
        printf("%11sand %zu more\n", "", n - 8);
}

static void text_scaler(const show_picture *p)
{
    const ckpt_value *v = p->summary.scaler;
    if (!v)
        return;
    made_line l;
    FILE *f = begin_line(&l);
    if (!f)
        return;
    if (v->entry_count == 0) {
        fputs("disabled", f);
    } else {
        put_hyper(f, v, "scale", "");
        put_hyper(f, v, "growth_interval", ", ");
        put_hyper(f, v, "_growth_tracker", ", ");
    }
    end_line(p, "scaler", &l);
}

static void text_scheduler(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    char *text = NULL;
    size_t size = 0;
    FILE *f = s->scheduler ? open_memstream(&text, &size) : NULL;
    if (!f)
        return;
    if (s->scheduler_class)
        fprintf(f, "%s, ", s->scheduler_class);
    fputs("at ", f);
    cli_put_str(f, s->scheduler_path, "");
    put_hyper(f, s->scheduler, "last_epoch", ", ");
    if (s->scheduler_count > 1)
        fprintf(f, "; the first of %" PRIu64, s->scheduler_count);
    if (fclose(f) == 0 && text) {
        label(p, "scheduler");
        cli_put_wrapped(stdout, text, INDENT, INDENT);
    }
    free(text);
}

/* "3 of 14 ...: a, b, c, ..." */
static void text_names(const show_picture *p, const char *what, uint64_t count, const ckpt_str *names)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = count ? open_memstream(&text, &size) : NULL;
    if (!f)
        return;
    fprintf(f, "%" PRIu64 "%s", count, what);
    size_t i = 0;
    for (; i < 3 && i < CKPT_SUMMARY_NAMES && names[i].data; i++) {
        fputs(i ? ", " : ": ", f);
        cli_put(f, names[i].data, names[i].size);
    }
    if (i && count > i)
        fputs(", ...", f);
    if (fclose(f) == 0 && text) {
        label(p, "");
        cli_put_wrapped(stdout, text, INDENT, INDENT);
    }
    free(text);
}

static void text_state(const show_picture *p)
{
    const ckpt_summary_state *s = &p->summary.state;
    char what[80];
    snprintf(what, sizeof what, " of %" PRIu64 " parameters without optimizer state", s->params);
    if (s->known)
        text_names(p, what, s->without_state, s->without_names);
    if (s->known)
        text_names(p, s->without_param == 1 ? " state without a parameter" : " states without a parameter",
                   s->without_param, s->without_param_names);
}

static void text_score(const show_picture *p)
{
    const ckpt_score *s = &p->summary.score;
    char number[JSON_DOUBLE_MAX];
    if (!s->has_best && !s->has_current)
        return;
    label(p, "score");
    cli_put_str(stdout, s->name, "");
    printf("%s", s->name.data ? " " : "");
    if (s->has_current)
        printf("%s here%s", json_format_double(number, s->current), s->has_best ? ", " : "");
    if (s->has_best)
        printf("%s at best", json_format_double(number, s->best));
    putchar('\n');
}

static void text_producer(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    if (!s->producer)
        return;
    made_line l;
    FILE *f = begin_line(&l);
    if (!f)
        return;
    fputs(s->producer, f);
    if (s->producer_version.data) {
        fprintf(f, "%s", s->version_of.data ? ", " : " ");
        cli_put_str(f, s->version_of, "");
        fprintf(f, "%s", s->version_of.data ? " " : "");
        cli_put_str(f, s->producer_version, "");
    }
    if (s->bare)
        fputs(", a bare state_dict of weights", f);
    if (s->rewritten)
        fputs(", and rewritten by ckpt-migrate", f);
    end_line(p, "written by", &l);
    if (s->marks.data) {
        label(p, "");
        cli_put_wrapped(stdout, s->marks.data, INDENT, INDENT);
    }
}

static void text_progress(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    char number[JSON_DOUBLE_MAX];
    if (s->step < 0 && s->epoch < 0)
        return;
    label(p, "progress");
    if (s->step >= 0)
        printf("step %" PRId64 "%s", s->step, s->epoch >= 0 ? ", " : "");
    if (s->epoch >= 0 && s->epoch_exact > (double)s->epoch)
        printf("epoch %s", json_format_double(number, s->epoch_exact));
    else if (s->epoch >= 0)
        printf("epoch %" PRId64, s->epoch);
    putchar('\n');
}

static void text_training(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    text_optimizer(p);
    text_state(p);
    text_scheduler(p);
    text_scaler(p);
    if (s->precision.data) {
        label(p, "precision");
        cli_put_str(stdout, s->precision, "");
        putchar('\n');
    }
    if (s->ema_count) {
        label(p, "averages");
        printf("%" PRIu64 " tensor%s", s->ema_count, s->ema_count == 1 ? "" : "s");
        if (s->ema_path.data) {
            printf(", at ");
            cli_put_str(stdout, s->ema_path, "");
        }
        putchar('\n');
    }
    text_score(p);
}

static void text_resume(const show_picture *p)
{
    char *resume = show_resume_command(p), *rest = NULL;
    if (resume) {
        label(p, "resume with");
        for (char *line = strtok_r(resume, "\n", &rest), *first = line; line; line = strtok_r(NULL, "\n", &rest)) {
            printf("%*s", line == first ? 1 : CLI_INDENT, "");
            cli_put_message(stdout, line);
            putchar('\n');
        }
    }
    free(resume);
}

void show_text(const show_picture *p)
{
    const cli *c = &p->o->cli;
    const ckpt_summary *s = &p->summary;
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX];
    made_line l;
    if (begin_line(&l))
        fprintf(l.f, "%s, a %s of %s (%s bytes)", ckpt_reader_format(p->reader), p->directory ? "directory" : "file",
                cli_size(size, ckpt_reader_file_size(p->reader)), cli_count(exact, ckpt_reader_file_size(p->reader)));
    end_line(p, "format", &l);
    if (ckpt_reader_layout(p->reader)) {
        label(p, "layout");
        printf("%s\n", ckpt_reader_layout(p->reader));
    }
    show_files_text(&p->files, label, p);
    text_producer(p);
    text_progress(p);
    char *params = p->params.tensors ? show_params_text(&p->params) : NULL;
    if (params) {
        label(p, "parameters");
        cli_put_wrapped(stdout, params, INDENT, INDENT);
    }
    free(params);
    if (begin_line(&l))
        fprintf(l.f, "%" PRIu64 ", %s (%s bytes)", p->tensors, cli_size(size, p->nbytes), cli_count(exact, p->nbytes));
    end_line(p, "tensors", &l);
    text_table(p, "  role", &p->roles);
    text_table(p, "  device", &p->devices);
    text_table(p, "  dtype", &p->dtypes);
    if (s->model_path.data && s->model_path.size) {
        if (begin_line(&l)) {
            fputs("at ", l.f);
            cli_put_str(l.f, s->model_path, "");
        }
        end_line(p, "model", &l);
    }
    text_training(p);
    ckpt_severity least = c->quiet ? CKPT_SEVERITY_ERROR : c->verbose ? CKPT_SEVERITY_NOTE : CKPT_SEVERITY_WARNING;
    cli_text_findings(c, stdout, ckpt_reader_findings(p->reader), least, NULL);
    cli_text_findings(c, stdout, p->doctor, least, NULL);
    if (!c->quiet)
        text_resume(p);
    if (p->by)
        show_by_text(p->by);
    if (show_may_hold(p))
        folder_beside(p->o, p->reader, NULL, ckpt_reader_layout(p->reader) ? 2 : 1); /* one is what was read */
}
