/* report/list.c - the page of a run directory or of a folder of checkpoints: a line each, and the one to go on from. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

/* Which columns the table has: those in which some line says something. */
typedef struct columns {
    bool epoch, score, ranks, plan;
} columns;

static columns columns_of(const report_list *l)
{
    columns has = {false, false, false, false};
    for (size_t i = 0; i < l->count; i++) {
        has.epoch |= l->lines[i].epoch[0] != 0;
        has.score |= l->lines[i].score[0] != 0;
        has.ranks |= l->lines[i].ranks[0] != 0;
        has.plan |= l->lines[i].plan != NULL;
    }
    return has;
}

static void put_cell(FILE *f, const char *text)
{
    fputs("<td class=\"n\">", f);
    html_text(f, *text ? text : "-");
    fputs("</td>", f);
}

static void put_when(FILE *f, int64_t when)
{
    char text[32];
    time_t t = (time_t)when;
    struct tm tm;
    bool known = when >= 0 && gmtime_r(&t, &tm) && tm.tm_year <= 9999 - 1900 &&
                 strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    fputs("<td class=\"name word\">", f);
    html_text(f, known ? text : "-");
    fputs("</td>", f);
}

static void put_line(FILE *f, const report_line *line, const columns *has)
{
    char step[24] = "-";
    if (line->step >= 0)
        snprintf(step, sizeof step, "%" PRId64, line->step);
    fputs("<tr><th scope=\"row\"><span class=\"name long\">", f);
    html_str(f, (ckpt_str){line->name, strlen(line->name)}, "");
    fputs("</span></th>", f);
    put_cell(f, step);
    if (has->epoch)
        put_cell(f, line->epoch);
    if (has->score)
        put_cell(f, line->score);
    put_when(f, line->time);
    fputs("<td class=\"n\">", f);
    html_size(f, line->nbytes);
    fputs("</td>", f);
    if (has->ranks)
        put_cell(f, line->ranks);
    if (has->plan)
        fprintf(f, "<td>%s</td>", line->plan ? line->plan : "-");
    fputs("<td>", f);
    html_icon(f, line->kind);
    fputs(" ", f);
    html_text(f, line->state);
    fputs(*line->why ? ": " : "", f);
    html_message(f, line->why, 600);
    fputs("</td></tr>\n", f);
}

static void put_lines(report_page *p, const report_list *l)
{
    columns has = columns_of(l);
    const char *heads[10];
    size_t n = 0, shown = 0;
    heads[n++] = "name";
    heads[n++] = "#step";
    if (has.epoch)
        heads[n++] = "#epoch";
    if (has.score)
        heads[n++] = "#score";
    heads[n++] = "saved (UTC)";
    heads[n++] = "#size";
    if (has.ranks)
        heads[n++] = "#ranks here";
    if (has.plan)
        heads[n++] = "plan";
    heads[n++] = "state";
    heads[n] = NULL;
    html_section(p->f, "checkpoints", "Checkpoints");
    if (l->count > 0) {
        html_table(p->f, l->newest_first ? "The newest first" : "The newest last", heads);
        for (; shown < l->count && shown < REPORT_CHECKPOINTS && report_room(p);
             shown++) /* the newest, in their order */
            put_line(
                p->f,
                &l->lines[l->newest_first || l->count <= REPORT_CHECKPOINTS ? shown
                                                                            : l->count - REPORT_CHECKPOINTS + shown],
                &has);
        html_table_end(p->f);
    } else {
        fputs("<p>Nothing was saved yet.</p>\n", p->f);
    }
    if (l->metric && has.score) {
        fputs("<p class=\"quiet\">The score is <span class=\"name\">", p->f);
        html_str(p->f, (ckpt_str){l->metric, strlen(l->metric)}, "");
        fputs("</span>.</p>\n", p->f);
    }
    if (shown < l->count)
        fprintf(p->f, "<p class=\"quiet\">and %zu older; <code>--json</code> has all.</p>\n", l->count - shown);
    if (l->passed)
        fprintf(p->f, "<p class=\"quiet\">and %zu more entries, which were not looked at.</p>\n", l->passed);
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
            report_box(&p, l->kind, l->title, l->about, l->outcome);
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
