/* report/list.c - the page of a run directory or of a folder of checkpoints: a line each, and the one to go on from. */
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

static void put_cell(FILE *f, const row_field *field, const row_parts *r)
{
    char buf[ROW_CELL];
    const char *css = field->right ? "n" : field->css;
    fprintf(f, css ? "<td class=\"%s\">" : "<td>%s", css ? css : "");
    if (field->kind == ROW_SIZE)
        html_size(f, ((const checkpoint *)r->part[0])->nbytes);
    else
        html_str(f, rows_cell(field, buf, r), "-");
    fputs("</td>", f);
}

/* The name is the first column, the state the last. */
static void put_line(FILE *f, const row_text *t, const checkpoint *it)
{
    fputs("<tr><th scope=\"row\"><span class=\"name long\">", f);
    html_str(f, it->name, "");
    fputs("</span></th>", f);
    for (size_t i = 1; i + 1 < t->count; i++)
        if (!t->columns[i].hidden)
            put_cell(f, t->columns[i].field, &(row_parts){{it}});
    fputs("<td>", f);
    html_icon(f, it->kind);
    fputs(" ", f);
    html_text(f, it->state);
    fputs(it->why && *it->why ? ": " : "", f);
    html_message(f, it->why ? it->why : "", 600);
    fputs("</td></tr>\n", f);
}

/* The score over the checkpoints that have one, oldest first. */
static void put_curve(report_page *p, const report_list *l, const char *metric)
{
    double *scores = metric ? calloc(l->count + 1, sizeof *scores) : NULL;
    size_t n = 0;
    for (size_t i = 0; scores && i < l->count; i++) {
        const checkpoint *it = &l->rows[l->newest_first ? l->count - 1 - i : i];
        if (it->score.has_current && it->score.current - it->score.current == 0) /* no infinity, no NaN */
            scores[n++] = it->score.current;
    }
    if (scores)
        report_curve(p, metric, scores, n);
    free(scores);
}

static void put_lines(report_page *p, const report_list *l)
{
    const char *metric = checkpoints_metric(l->rows, l->count), *heads[ROW_COLUMNS + 1] = {NULL};
    char text[ROW_COLUMNS][32];
    size_t n = 0, shown = 0;
    row_text t;
    rows_begin(&t, checkpoint_fields, ON_PAGE | l->set, 2);
    for (size_t i = 0; i < l->count; i++)
        rows_measure(&t, &(row_parts){{&l->rows[i]}});
    for (size_t i = 0; i < t.count; i++) {
        snprintf(text[i], sizeof text[i], "%s%s", t.columns[i].field->right ? "#" : "", t.columns[i].title);
        if (!t.columns[i].hidden)
            heads[n++] = text[i];
    }
    html_section(p->f, "checkpoints", "Checkpoints");
    if (l->count > 0) {
        html_table(p->f, l->newest_first ? "The newest first" : "The newest last", heads);
        for (; shown < l->count && shown < REPORT_CHECKPOINTS && report_room(p);
             shown++) /* the newest, in their order */
            put_line(
                p->f, &t,
                &l->rows[l->newest_first || l->count <= REPORT_CHECKPOINTS ? shown
                                                                           : l->count - REPORT_CHECKPOINTS + shown]);
        html_table_end(p->f);
    } else {
        fputs("<p>Nothing was saved yet.</p>\n", p->f);
    }
    put_curve(p, l, metric);
    if (metric) {
        fputs("<p class=\"quiet\">The score is <span class=\"name\">", p->f);
        html_str(p->f, (ckpt_str){metric, strlen(metric)}, "");
        fputs("</span>.</p>\n", p->f);
    }
    if (shown < l->count)
        fprintf(p->f, "<p class=\"quiet\">and %zu older; <code>--json</code> has all.</p>\n", l->count - shown);
    if (l->passed)
        fprintf(p->f, "<p class=\"quiet\">and %zu more entries, which were not checked.</p>\n", l->passed);
    if (l->note[0]) {
        fputs("<p class=\"quiet\">", p->f);
        html_message(p->f, l->note, sizeof l->note);
        fputs("</p>\n", p->f);
    }
    html_section_end(p->f);
}

/* The checkpoint to go on from, as its own page has it. -1: said; else the exit status, the error said. */
static int put_recommended(report_page *p, const report_list *l, const ckpt_reader *reader)
{
    ckpt_summary summary = CKPT_SUMMARY_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    if (ckpt_summarize(reader, &summary, &err) < 0)
        return cli_fail_error(&p->o->cli, &err);
    report_facts(p, reader, &summary, "facts",
                 !l->result   ? "The checkpoint to go on from"
                 : l->resumes ? "The checkpoint that it resumes from"
                              : "The checkpoint that a resume stops at");
    ckpt_summary_clear(&summary);
    report_devices(p, reader, l->result);
    if (l->result)
        report_assumed(p, l->result);
    if (l->snippet) {
        html_section(p->f, "snippet", "A resume that is right for this run");
        report_fix(p, "to paste:", l->snippet);
        html_section_end(p->f);
    }
    report_sizes(p, reader);
    report_values(p, reader);
    return -1;
}

int report_list_page(const command_line *o, const report_list *l)
{
    report_page p;
    ckpt_reader *reader = NULL;
    if (l->recommended && ckpt_reader_open(l->recommended, NULL, &reader, NULL) < 0)
        reader = NULL; /* removed meanwhile, or damaged: its line says so */
    int status = report_begin(&p, o, l->command, l->says, reader, NULL);
    if (status < 0) {
        if (l->title)
            report_box(&p, l->kind, l->title, l->about,
                       l->resumes ? "Outcome of that checkpoint:" : "Outcome:", l->outcome);
        put_lines(&p, l);
        if (l->resume) {
            html_section(p.f, "resume", "Resume with");
            report_fix(&p, "what the program that wrote it calls to go on:", l->resume);
            html_section_end(p.f);
        }
        report_findings(&p, l->findings, l->more);
        if (reader)
            status = put_recommended(&p, l, reader);
        status = status < 0 ? report_end(&p) : report_give_up(&p, status);
    }
    ckpt_reader_close(reader);
    return status;
}
