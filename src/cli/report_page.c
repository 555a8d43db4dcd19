/* report_page.c - one page of HTML that opens from disk: what one attaches to a bug report. */
#include "report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "output.h"

bool report_room(const report_page *p)
{
    return ftello(p->f) < REPORT_ROOM;
}

/* A page replaces a page; anything else that has this name was not meant. */
static bool is_page(const char *path)
{
    static const char head[] = "<!doctype html";
    char text[sizeof head] = "";
    FILE *f = fopen(path, "re");
    if (!f)
        return errno == ENOENT;
    size_t n = fread(text, 1, sizeof head - 1, f);
    fclose(f);
    const char *slash = strrchr(path, '/');
    if (n == 0)                   /* as mktemp makes them; but the lock of a run is empty too */
        return strcmp(slash ? slash + 1 : path, ".lock") != 0;
    return strcasecmp(text, head) == 0;
}

static int check_output(const inspect *o, const ckpt_reader *a, const ckpt_reader *b)
{
    const cli *c = &o->cli;
    struct stat st;
    if (!*o->report || output_is_stdout(o->report))
        return strcmp(o->report, "/dev/null") == 0 ? -1 :
               cli_usage(c, "--report: a FILE is wanted, standard output has the answer");
    bool source = output_is_part(o->report, a) || output_is_part(o->report, b) ||
                  (o->param_names && output_is_same(o->report, o->param_names, NULL, 0)) ||
                  (o->map_location && output_is_same(o->report, o->map_location, NULL, 0));
    for (int i = 0; i < o->path_count; i++)
        source |= output_is_same(o->report, o->paths[i], NULL, 0);
    if (source)
        return cli_fail(c, "argument", "%s: --report would replace what is looked at, which is never written; "
                                       "name another FILE", o->report);
    if (stat(o->report, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_fail(c, "argument", "%s: --report wants the name of a FILE, this is a directory", o->report);
    if (stat(o->report, &st) == 0 && S_ISREG(st.st_mode) && !is_page(o->report))
        return cli_fail(c, "exists", "%s: exists, and is no page of HTML: --report replaces pages only; name another FILE",
                        o->report);
    return -1;
}

int report_begin(report_page *p, const inspect *o, const char *command, const char *says, const ckpt_reader *a,
                 const ckpt_reader *b)
{
    memset(p, 0, sizeof *p);
    p->o = o;
    int status = check_output(o, a, b);
    if (status >= 0)
        return status;
    p->f = open_memstream(&p->text, &p->size);
    if (!p->f)
        return cli_fail(&o->cli, "no-memory", "out of memory for the report");
    report_head(p, command, says);
    return -1;
}

int report_end(report_page *p)
{
    const cli *c = &p->o->cli;
    struct stat st;
    char size[CLI_SIZE_MAX];
    report_origin(p);
    bool failed = ferror(p->f) != 0;
    int status = CLI_NO_ANSWER;
    bool replaced = stat(p->o->report, &st) == 0 && S_ISREG(st.st_mode);
    if (fclose(p->f) != 0 || failed)
        cli_fail(c, "no-memory", "out of memory for the report");
    else
        status = output_write(c, p->o->report, true, "", 0, p->text, p->size);
    if (status == CLI_YES)
        cli_warn(c, "%s: report %s (%s)", p->o->report, replaced ? "replaced" : "written", cli_size(size, p->size));
    free(p->text);
    return status;
}

int report_give_up(report_page *p, int status)
{
    fclose(p->f);
    free(p->text);
    return status;
}

int report_show(const inspect *o, const ckpt_reader *reader, const ckpt_summary *summary, const ckpt_report *findings,
                const char *resume)
{
    report_page p;
    int status = report_begin(&p, o, "show", "What this checkpoint is", reader, NULL);
    if (status >= 0)
        return status;
    report_facts(&p, reader, summary, "facts", "What it is");
    if (resume) {
        html_section(p.f, "resume", "Resume with");
        report_fix(&p, "what the program that wrote it calls to go on:", resume);
        html_section_end(p.f);
    }
    report_findings(&p, ckpt_reader_findings(reader), findings);
    report_devices(&p, reader, NULL);
    report_sizes(&p, reader);
    report_values(&p, reader);
    return report_end(&p);
}

/* A resume to paste; where there is none for this checkpoint, nothing. */
static void put_snippet(report_page *p, const ckpt_reader *reader, const ckpt_doctor_options *options,
                        const ckpt_doctor_result *result)
{
    bool c = result->loader == CKPT_LOADER_CKPT || result->loader == CKPT_LOADER_TORCH_CPP;
    const char *language = p->o->snippet ? p->o->snippet : c ? "c" : "torch";
    char *snippet = NULL;
    if (ckpt_doctor_snippet(reader, language, options, &snippet, NULL) < 0 || !snippet)
        return;
    html_section(p->f, "snippet", "A resume that is right for this checkpoint");
    if (strlen(snippet) < REPORT_BLOCK)
        report_fix(p, "to paste:", snippet);
    else                          /* half a program is none */
        fprintf(p->f, "<p>It names so many parameters that it is too long for a page: "
                      "<code>ckpt-inspect doctor --snippet %s</code> prints it.</p>\n", language);
    html_section_end(p->f);
    free(snippet);
}

int report_doctor(const inspect *o, const ckpt_reader *reader, const ckpt_doctor_options *options,
                  const ckpt_doctor_result *result, const ckpt_report *findings)
{
    report_page p;
    ckpt_summary summary = CKPT_SUMMARY_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    int status = report_begin(&p, o, "doctor", "Will this checkpoint resume?", reader, NULL);
    if (status >= 0)
        return status;
    if (ckpt_summarize(reader, &summary, &err) < 0)
        return report_give_up(&p, cli_fail_error(&o->cli, &err));
    report_verdict(&p, result, findings);
    report_findings(&p, findings, NULL);
    report_devices(&p, reader, result);
    report_assumed(&p, result);
    put_snippet(&p, reader, options, result);
    report_facts(&p, reader, &summary, "facts", "What it is");
    ckpt_summary_clear(&summary);
    report_sizes(&p, reader);
    report_values(&p, reader);
    return report_end(&p);
}
