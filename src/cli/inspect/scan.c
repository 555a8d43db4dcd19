/* inspect/scan.c - what would an unpickler import and call? */
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* ---- of a directory: the verdict of each file that names something, or of which something was found */

typedef struct file_verdict {
    ckpt_str file; /* the scan's, or a finding's */
    ckpt_danger worst;
} file_verdict;
typedef struct file_verdicts {
    file_verdict *items; /* heap, owned; NULL: none, or no directory */
    size_t count;
    bool no_memory;
} file_verdicts;

/* The file of "sub/a.pt!archive/data.pkl": up to the first '!' before which a file lies there. */
static size_t file_size(const char *directory, ckpt_str label)
{
    size_t size = strlen(directory) + label.size + 2;
    char *path = malloc(size);
    size_t n = label.size;
    bool found = false;
    for (size_t i = 0; path && i < label.size && !found; i++) {
        struct stat st;
        if (label.data[i] != '!')
            continue;
        snprintf(path, size, "%s/%.*s", directory, (int)i, label.data);
        found = stat(path, &st) == 0 && S_ISREG(st.st_mode);
        n = found ? i : n;
    }
    free(path);
    return n;
}

static int by_name(const void *x, const void *y)
{
    const file_verdict *a = x, *b = y;
    return cli_str_order(a->file, b->file);
}

static int by_verdict(const void *x, const void *y)
{
    const file_verdict *a = x, *b = y;
    return a->worst != b->worst ? (a->worst < b->worst ? 1 : -1) : by_name(x, y);
}

static file_verdicts verdicts_of(const char *path, const ckpt_scan *scan, const ckpt_report *report)
{
    struct stat st;
    file_verdicts out = {NULL, 0, false};
    const size_t globals = ckpt_scan_count(scan), findings = ckpt_report_count(report);
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return out;
    out.items = calloc(globals + findings + 1, sizeof *out.items);
    out.no_memory = !out.items;
    size_t n = 0;
    for (size_t i = 0; out.items && i < globals; i++) {
        const ckpt_scan_global *g = ckpt_scan_get(scan, i);
        out.items[n++] = (file_verdict){{g->file.data, file_size(path, g->file)}, g->danger};
    }
    for (size_t i = 0; out.items && i < findings; i++) {
        const char *file = ckpt_report_get(report, i)->file;
        ckpt_str label = {file, strlen(file)};
        if (*file)
            out.items[n++] = (file_verdict){{file, file_size(path, label)}, CKPT_DANGER_UNKNOWN};
    }
    if (n)
        qsort(out.items, n, sizeof *out.items, by_name);
    for (size_t i = 0; i < n; i++) {
        file_verdict *last = out.count ? &out.items[out.count - 1] : NULL;
        if (last && by_name(last, &out.items[i]) == 0)
            last->worst = out.items[i].worst > last->worst ? out.items[i].worst : last->worst;
        else
            out.items[out.count++] = out.items[i];
    }
    if (out.count)
        qsort(out.items, out.count, sizeof *out.items, by_verdict);
    return out;
}

static void json_verdicts(json_out *j, const char *path, const ckpt_scan *scan, const ckpt_report *report)
{
    file_verdicts files = verdicts_of(path, scan, report);
    if (files.items) {
        json_array(j, "by_file");
        for (size_t i = 0; i < files.count; i++) {
            json_object(j, NULL);
            json_bytes(j, "file", files.items[i].file.data, files.items[i].file.size);
            json_text(j, "verdict", ckpt_verdict_name(files.items[i].worst));
            json_end_object(j);
        }
        json_end_array(j);
    }
    free(files.items);
}

/* A line each, and how many have nothing to say of: not only pickles lie in a directory. */
static void text_verdicts(const cli *c, const char *path, const ckpt_scan *scan, const ckpt_report *report)
{
    enum { WIDTH = 11 };
    file_verdicts files = verdicts_of(path, scan, report);
    char n[32];
    for (size_t i = 0; i < files.count; i++) {
        const file_verdict *f = &files.items[i];
        if (c->quiet && f->worst == CKPT_DANGER_HARMLESS)
            continue;
        printf("%s%-*s%s",
               cli_style(c, f->worst == CKPT_DANGER_DANGEROUS ? "red"
                            : f->worst                        ? "yellow"
                                                              : "dim"),
               WIDTH, ckpt_verdict_name(f->worst), cli_style(c, "off"));
        cli_put(stdout, f->file.data, f->file.size);
        putchar('\n');
    }
    uint64_t looked = ckpt_scan_files(scan), rest = looked > files.count ? looked - files.count : 0;
    if (files.items && !c->quiet && rest)
        printf("%-*s%s file%s that name%s nothing to import\n", WIDTH, "others", cli_count(n, rest),
               rest == 1 ? "" : "s", rest == 1 ? "s" : "");
    free(files.items);
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
    json_verdicts(&j, o->paths[0], scan, report);
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
    text_verdicts(c, o->paths[0], scan, report);
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
