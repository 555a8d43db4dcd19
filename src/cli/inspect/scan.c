/* inspect/scan.c - what would an unpickler import and call? */
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <string.h>
#include "cli/out/strset.h"

static void json_global(json_out *j, const ckpt_scan_global *g)
{
    json_object(j, NULL);
    json_bytes(j, "name", g->name.data, g->name.size);
    json_text(j, "class", ckpt_danger_name(g->danger));
    json_bytes(j, "file", g->file.data, g->file.size);
    json_uint(j, "count", g->count);
    json_uint(j, "called", g->called);
    json_uint(j, "where", g->position);
    json_bytes(j, "argument", g->argument.data, g->argument.size);
    json_text(j, "reason", g->reason);
    json_end_object(j);
}

/* The reader of a file that is a part of a larger checkpoint; the reader's findings say of which. The caller closes it. NULL: the
 * file is not a part, or cannot be read. */
static ckpt_reader *open_part(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    if (ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK &&
        ckpt_report_find(ckpt_reader_findings(reader), "part-of-checkpoint", NULL))
        return reader;
    ckpt_reader_close(reader);
    return NULL;
}

static void scan_json(const command_line *o, const ckpt_scan *scan, const ckpt_report *report)
{
    ckpt_danger verdict = ckpt_scan_verdict(scan);
    ckpt_reader *part = open_part(o->paths[0]);
    json_out j;
    json_document(&j);
    if (verdict == CKPT_DANGER_UNKNOWN)
        cli_json_error(&o->cli, &j, "unknown",
                       "nothing dangerous is known of it, and not all of it is known; globals and findings say what");
    json_text(&j, "verdict", ckpt_verdict_name(verdict));
    json_uint(&j, "files", ckpt_scan_files(scan));
    json_uint(&j, "pickles", ckpt_scan_pickles(scan));
    json_array(&j, "globals");
    for (size_t i = 0; i < ckpt_scan_count(scan); i++)
        json_global(&j, ckpt_scan_get(scan, i));
    json_end_array(&j);
    cli_json_findings(&j, report, part ? ckpt_reader_findings(part) : NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
    ckpt_reader_close(part);
}

/* ---- text: dangerous ones one by one, with what they would do; the others by name. Lines are of 80 columns, but for
 * names and paths that are longer. */

enum { INDENT = 11, COLUMNS = 79, MOST = 50, ARGUMENT = 40 };

static void text_dangerous(const cli *c, const ckpt_scan_global *g)
{
    const char *does = g->called ? "would call " : "would import ";
    size_t used = INDENT + strlen(does) + cli_width(g->name.data, g->name.size);
    printf("%s%-*s%s%s", cli_style(c, "red"), INDENT, ckpt_danger_name(g->danger), cli_style(c, "off"), does);
    cli_put(stdout, g->name.data, g->name.size);
    if (g->argument.data) {
        size_t n = g->argument.size < ARGUMENT ? g->argument.size : ARGUMENT;
        if (used + n + 8 > COLUMNS)
            printf("\n%*s", INDENT, "");
        fputs("('", stdout);
        cli_put(stdout, g->argument.data, n);
        fputs(n < g->argument.size ? "...')" : "')", stdout);
    }
    printf("\n%*s%s\n%*sin ", INDENT, "", g->reason, INDENT, "");
    cli_put(stdout, g->file.data, g->file.size);
    printf(", byte %" PRIu64 "\n", g->position);
}

/* How many were left out. */
static size_t text_all_dangerous(const cli *c, const ckpt_scan *scan)
{
    size_t left = 0;
    for (size_t i = 0; i < ckpt_scan_count(scan) && ckpt_scan_get(scan, i)->danger == CKPT_DANGER_DANGEROUS; i++)
        if (i < MOST)
            text_dangerous(c, ckpt_scan_get(scan, i));
        else
            left++;
    return left;
}

/* Names of one kind, each once. */
static void text_names(const cli *c, const ckpt_scan *scan, ckpt_danger danger)
{
    size_t column = 0;
    strset seen = {0};
    for (size_t i = 0; i < ckpt_scan_count(scan); i++) {
        const ckpt_scan_global *g = ckpt_scan_get(scan, i);
        if (g->danger != danger || strset_add(&seen, g->name.data, g->name.size) == 0)
            continue;
        size_t width = cli_width(g->name.data, g->name.size);
        if (column == 0) {
            printf("%s%-*s%s", cli_style(c, danger == CKPT_DANGER_UNKNOWN ? "yellow" : "dim"), INDENT,
                   ckpt_danger_name(danger), cli_style(c, "off"));
            column = INDENT;
        } else if (column + 2 + width > COLUMNS) {
            printf(",\n%*s", INDENT, "");
            column = INDENT;
        } else {
            fputs(", ", stdout);
            column += 2;
        }
        cli_put(stdout, g->name.data, g->name.size);
        column += width;
    }
    if (column)
        putchar('\n');
    strset_free(&seen);
}

static void scan_text(const command_line *o, const ckpt_scan *scan, const ckpt_report *report)
{
    static const char *const sentences[] = {"every name that it imports is known to be harmless",
                                            "nothing dangerous is known of it, but not all of it is known",
                                            "do not load it with pickle or torch.load(weights_only=False)"};
    const cli *c = &o->cli;
    ckpt_danger verdict = ckpt_scan_verdict(scan);
    uint64_t files = ckpt_scan_files(scan), pickles = ckpt_scan_pickles(scan);
    char a[32], b[32];
    size_t left = text_all_dangerous(c, scan);
    if (left)
        printf("%*sand %zu more; --json lists all\n", INDENT, "", left);
    cli_text_findings(c, stdout, report, c->quiet ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_NOTE, NULL);
    ckpt_reader *part = open_part(o->paths[0]);
    cli_text_code(c, stdout, part ? ckpt_reader_findings(part) : NULL, "part-of-checkpoint");
    ckpt_reader_close(part);
    if (!c->quiet) {
        text_names(c, scan, CKPT_DANGER_UNKNOWN);
        if (!o->many)
            text_names(c, scan, CKPT_DANGER_HARMLESS);
    }
    cli_put(stdout, o->paths[0], strlen(o->paths[0]));
    printf(": %s%s%s (%s file%s, %s pickle%s)\n", cli_style(c, verdict == CKPT_DANGER_DANGEROUS ? "red" : "bold"),
           ckpt_verdict_name(verdict), cli_style(c, "off"), cli_count(a, files), files == 1 ? "" : "s",
           cli_count(b, pickles), pickles == 1 ? "" : "s");
    if (!c->quiet && !o->many)
        puts(pickles || verdict != CKPT_DANGER_HARMLESS ? sentences[verdict] : "no pickle was found in it");
}

int inspect_scan(const command_line *o)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_scan *scan;
    cli_progress shown;
    ckpt_report *report = ckpt_report_new();
    if (!report)
        return cli_fail(c, "no-memory", "out of memory");
    cli_progress_init(&shown, c, "scanned");
    ckpt_scan_options options = CKPT_SCAN_OPTIONS_INIT;
    options.progress = (ckpt_progress){cli_progress_step, &shown};
    ckpt_status answer = ckpt_scan_open(o->paths[0], &options, &scan, report, &err);
    cli_progress_end(&shown);
    int status = CLI_NO_ANSWER;
    if (answer < 0) {
        cli_fail_error(c, &err);
    } else {
        ckpt_danger verdict = ckpt_scan_verdict(scan);
        status = verdict == CKPT_DANGER_HARMLESS ? CLI_YES : verdict == CKPT_DANGER_DANGEROUS ? CLI_NO : CLI_NO_ANSWER;
        if (c->json)
            scan_json(o, scan, report);
        else
            scan_text(o, scan, report);
        ckpt_scan_close(scan);
    }
    ckpt_report_free(report);
    return status;
}
