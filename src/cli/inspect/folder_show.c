/* inspect/folder_show.c - show of a folder of checkpoints: a line for each, as text, as JSON, as a page. */
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"
#include "cli/inspect/show.h"
#include "cli/inspect/show_line.h"
#include "cli/report/report.h"

static const char *word_of(const folder_item *it)
{
    return it->complete     ? it->checked == FOLDER_BYTES ? "verified" : "readable"
           : it->unread     ? "not read"
           : it->refused    ? "refused"
           : it->unfinished ? "unfinished"
                            : "damaged";
}

bool folder_rows(folder_list *l)
{
    static const char *const checks[] = {"structure", "partial", "bytes"};
    l->rows = calloc(l->count + 1, sizeof *l->rows);
    for (size_t i = 0; l->rows && i < l->count; i++) {
        const folder_item *it = &l->items[i];
        const bool looked = it->complete && strcmp(it->format, "run") != 0;
        l->rows[i] = (checkpoint){.name = {it->name, strlen(it->name)},
                                  .path = it->path,
                                  .format = it->format[0] ? it->format : NULL,
                                  .producer = it->producer[0] ? it->producer : NULL,
                                  .step = it->step,
                                  .epoch = it->epoch,
                                  .epoch_exact = it->epoch_exact,
                                  .score = it->score,
                                  .time = it->time,
                                  .nbytes = it->nbytes,
                                  .complete = it->complete,
                                  .unread = it->unread,
                                  .checked = it->unread ? NULL : checks[it->checked],

                                  .best_known = l->best.item != NULL,
                                  .best = it->best,
                                  .last = it->last,
                                  .state = word_of(it),
                                  .why = it->complete ? NULL : it->why,
                                  .style = it->complete ? NULL
                                           : it->unread ? "yellow"
                                                        : "red",
                                  .kind = it->complete ? "good"
                                          : it->unread ? "warning"
                                                       : "error"};
        l->rows[i].score.name = (ckpt_str){it->metric[0] ? it->metric : NULL, strlen(it->metric)};
        l->unchecked += looked && it->checked == FOLDER_STRUCTURE;
    }
    l->no_memory = l->no_memory || !l->rows;
    return l->rows != NULL;
}

void folder_table(const folder_list *l)
{
    checkpoints_text(&l->o->cli, l->rows, l->count, IN_FOLDER);
    if (l->passed)
        printf("and %zu more entries, not read\n", l->passed);
}

/* Who says which is the best, or why it is not known. */
static void text_best(const folder_list *l)
{
    const folder_best *b = &l->best;
    char *text = NULL;
    size_t size = 0;
    FILE *f = b->said ? open_memstream(&text, &size) : NULL;
    if (!f)
        return;
    if (b->item)
        cli_put(f, b->item->name, strlen(b->item->name));
    else
        fputs(b->name[0] ? "" : "not known: ", f);
    cli_put(f, b->why, strlen(b->why));
    if (b->monitor) {
        fputs(", by ", f);
        cli_put(f, b->monitor, strlen(b->monitor));
    }
    fprintf(f, "%s%s%s", b->mode ? " (" : "", b->mode ? b->mode : "", b->mode ? ")" : "");
    if (fclose(f) == 0) {
        printf("%s%-11s%s", cli_style(&l->o->cli, "bold"), "best", cli_style(&l->o->cli, "off"));
        cli_put_wrapped(stdout, text, 11, 11);
    }
    free(text);
}

/* What "readable" does not promise. */
static void text_unchecked(const folder_list *l, const folder_item *last)
{
    char *text = NULL;
    size_t size = 0;
    const bool partial = last && last->checked == FOLDER_PARTIAL;
    FILE *f = l->unchecked || partial ? open_memstream(&text, &size) : NULL;
    if (!f)
        return;
    if (partial) {
        fputs("of ", f);
        cli_put(f, last->name, strlen(last->name));
        fprintf(f, " read, and checked where it keeps a checksum%s", l->unchecked ? "; " : "");
    }
    if (l->unchecked) {
        fprintf(f, "not checked of %zu that %s readable%s: ckpt-inspect verify ", l->unchecked,
                l->unchecked == 1 ? "is" : "are",
                last && last->checked == FOLDER_STRUCTURE ? ", the one to resume from among them" : "");
        cli_put(f, l->path, l->path_size);
    }
    if (fclose(f) == 0) {
        printf("%s%-11s%s", cli_style(&l->o->cli, "bold"), "bytes", cli_style(&l->o->cli, "off"));
        cli_put_wrapped(stdout, text, 11, 11);
    }
    free(text);
}

static void show_text_of(const folder_list *l, uint64_t nbytes, const folder_item *last, const char *resume)
{
    const cli *c = &l->o->cli;
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX];
    const char *bold = cli_style(c, "bold"), *off = cli_style(c, "off");
    printf("%sformat%s     a folder of %zu checkpoint%s, %s (%s bytes)\n", bold, off, l->count,
           l->count == 1 ? "" : "s", cli_size(size, nbytes), cli_count(exact, nbytes));
    folder_table(l);
    if (!c->quiet) {
        text_best(l);
        text_unchecked(l, last);
    }
    if (!resume || c->quiet)
        return;
    printf("%sresume with%s", bold, off);
    for (const char *line = resume; *line;) {
        size_t n = strcspn(line, "\n");
        printf("%*s%.*s\n", line == resume ? 1 : CLI_INDENT, "", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void show_json_of(const folder_list *l, uint64_t nbytes, const folder_item *last, const char *resume)
{
    json_out j;
    json_document(&j);
    json_text(&j, "format", "checkpoints");
    json_text(&j, "kind", "directory");
    json_text(&j, "producer", last ? last->producer : NULL);
    ckpt_summary s = {
        .step = last ? last->step : -1, .epoch = last ? last->epoch : -1, .epoch_exact = last ? last->epoch_exact : -1};
    show_json_progress(&j, &s);
    json_uint(&j, "nbytes", nbytes);
    show_json_unsaid(&j);
    checkpoints_json(&j, l->rows, l->count, IN_FOLDER);
    json_uint(&j, "passed", l->passed);
    json_text(&j, "best", l->best.item ? l->best.item->path : NULL);
    json_text(&j, "best_name", l->best.name[0] ? l->best.name : NULL);
    json_text(&j, "best_why", l->best.why[0] ? l->best.why : NULL);
    json_text(&j, "last", last ? last->path : NULL);
    json_text(&j, "monitor", l->best.monitor);
    json_text(&j, "mode", l->best.mode);
    json_text(&j, "resume", resume);
    cli_json_findings(&j, NULL, NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

static int folder_report(const folder_list *l, const folder_item *last, const char *resume)
{
    report_list page = {.command = "show",
                        .says = "What this folder holds",
                        .resume = resume,
                        .rows = l->rows,
                        .count = l->count,
                        .passed = l->passed,
                        .recommended = last ? last->path : NULL};
    if (!last)
        snprintf(page.note, sizeof page.note,
                 "No single one to go on from: several programs wrote these, or none of them is whole.");
    return report_list_page(l->o, &page);
}

/* Of several PATHs. */
static int show_in_line(const folder_list *l, uint64_t nbytes, const folder_item *last)
{
    char verdict[80];
    snprintf(verdict, sizeof verdict, "%zu checkpoint%s", l->count, l->count == 1 ? "" : "s");
    const show_line own = {.path = l->o->paths[0],
                           .format = "checkpoints",
                           .producer = last ? last->producer : NULL,
                           .verdict = verdict,
                           .step = last ? last->step : -1,
                           .epoch = last ? last->epoch : -1,
                           .epoch_exact = last ? last->epoch_exact : -1,
                           .nbytes = nbytes};
    return show_line_add(&own) ? CLI_YES : cli_fail(&l->o->cli, "no-memory", "out of memory");
}

int folder_show(const command_line *o)
{
    folder_list l;
    const char *why = NULL;
    folder_look(&l, o, o->paths[0]);
    const bool listed = l.count > 0 && !cli_has_selection(&o->cli) && !o->by;
    const folder_item *last = listed && !l.no_memory ? folder_choose(&l, &why) : NULL;
    int status = CLI_YES;
    folder_find_best(&l, last);
    if (l.no_memory || !folder_rows(&l)) {
        status = cli_fail(&o->cli, "no-memory", "out of memory");
    } else if (l.count == 0) {
        status = -1;
    } else if (!listed) {
        status = cli_usage(
            &o->cli,
            "%s: show lists the checkpoints of a folder; --tensor, --role, --device and --by are for one of them",
            o->paths[0]);
    } else {
        uint64_t nbytes = 0;
        for (size_t i = 0; i < l.count; i++)
            nbytes += l.items[i].nbytes;
        if (show_lines_wanted(o)) {
            status = show_in_line(&l, nbytes, last);
            folder_free(&l);
            return status;
        }
        char *resume = last ? show_resume_of(o, last->path) : NULL;
        status = o->report ? folder_report(&l, last, resume) : CLI_YES;
        if (status == CLI_YES && o->cli.json)
            show_json_of(&l, nbytes, last, resume);
        else if (status == CLI_YES)
            show_text_of(&l, nbytes, last, resume);
        free(resume);
    }
    folder_free(&l);
    return status;
}
