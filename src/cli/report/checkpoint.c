/* report/checkpoint.c - the pages of show and of doctor about one checkpoint. */
#include "cli/report/page.h"
#include <stdlib.h>
#include <string.h>

int report_show(const command_line *o, const ckpt_reader *reader, const ckpt_summary *summary,
                const ckpt_report *findings, const char *resume)
{
    report_page p;
    int status = report_begin(&p, o, "show", "What this checkpoint is", reader, NULL);
    if (status >= 0)
        return status;
    report_headline(&p, reader, summary);
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
    bool c = result->loader == CKPT_LOADER_CKPT || result->loader >= CKPT_LOADER_DCP ||
             result->loader == CKPT_LOADER_TORCH_CPP;
    const char *language = p->o->snippet ? p->o->snippet : c ? "c" : "torch";
    char *snippet = NULL;
    if (ckpt_doctor_snippet(reader, language, options, &snippet, NULL) < 0 || !snippet)
        return;
    html_section(p->f, "snippet", "A resume that is right for this checkpoint");
    if (strlen(snippet) < REPORT_BLOCK)
        report_fix(p, "to paste:", snippet);
    else /* half a program is none */
        fprintf(p->f,
                "<p>It names so many parameters that it is too long for a page: "
                "<code>ckpt-inspect doctor --snippet %s</code> prints it.</p>\n",
                language);
    html_section_end(p->f);
    free(snippet);
}

int report_doctor(const command_line *o, const ckpt_reader *reader, const ckpt_doctor_options *options,
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
