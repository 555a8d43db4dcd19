/* report/answer.c - whose it is, the verdict, and what is odd. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

/* ---- facts */

static void fact(FILE *f, const char *label, const char *text)
{
    fputs("<div><dt>", f);
    html_text(f, label);
    fputs("</dt><dd>", f);
    html_text(f, text);
    fputs("</dd></div>\n", f);
}

static void fact_bytes(FILE *f, const char *label, uint64_t bytes)
{
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX], text[2 * CLI_SIZE_MAX + 16];
    if (bytes < 1024)
        snprintf(text, sizeof text, "%s", cli_size(size, bytes));
    else
        snprintf(text, sizeof text, "%s (%s bytes)", cli_size(size, bytes), cli_count(exact, bytes));
    fact(f, label, text);
}

static void fact_str(FILE *f, const char *label, ckpt_str s, bool wide)
{
    fprintf(f, "<div%s><dt>", wide ? " class=\"wide\"" : "");
    html_text(f, label);
    fputs("</dt><dd class=\"name\">", f);
    html_str(f, s, "");
    fputs("</dd></div>\n", f);
}

static void fact_number(FILE *f, const char *label, int64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, n);
    fact(f, label, text);
}

void report_facts(report_page *p, const ckpt_reader *reader, const ckpt_summary *summary, const char *id,
                  const char *title)
{
    const cli *c = &p->o->cli;
    uint64_t count = 0, bytes = 0;
    char n[CLI_SIZE_MAX];
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(c, t))
            continue;
        count++;
        bytes = html_add(bytes, t->nbytes);
    }
    html_section(p->f, id, title);
    fputs("<dl class=\"facts\">\n", p->f);
    const char *path = ckpt_reader_path(reader);
    fact_str(p->f, "path", (ckpt_str){path, strlen(path)}, true);
    for (int i = 0; i < c->also_count; i++)
        fact_str(p->f, "and", (ckpt_str){c->also[i], strlen(c->also[i])}, true);
    fact(p->f, "format", ckpt_reader_format(reader));
    fact(p->f, "written by", summary->producer ? summary->producer : "not known");
    if (summary->step >= 0)
        fact_number(p->f, "step", summary->step);
    if (summary->epoch >= 0)
        fact_number(p->f, "epoch", summary->epoch);
    fact_bytes(p->f, c->also_count ? "size of all its files" : "size on disk", ckpt_reader_file_size(reader));
    fact(p->f, cli_has_selection(c) ? "tensors selected" : "tensors", cli_count(n, count));
    fact_bytes(p->f, "bytes of these tensors", bytes);
    if (summary->model_path.size)
        fact_str(p->f, "model at", summary->model_path, false);
    if (summary->optimizer_kind.size)
        fact_str(p->f, "optimizer, by its saved flags", summary->optimizer_kind, false);
    if (summary->optimizer_path.size)
        fact_str(p->f, "optimizer at", summary->optimizer_path, false);
    if (summary->scaler_path.size)
        fact_str(p->f, "grad scaler at", summary->scaler_path, false);
    fputs("</dl>\n", p->f);
    html_section_end(p->f);
}

/* ---- doctor's answer */

static const struct {
    ckpt_outcome outcome;
    const char *kind, *title, *says;
} verdicts[] = {
    {CKPT_OUTCOME_RESUMES, "good", "It resumes",
     "With what is assumed below, training goes on from this checkpoint as it was saved."},
    {CKPT_OUTCOME_RESUMES_DIFFERENTLY, "warning", "It resumes, but not as it was",
     "The program loads it and goes on, but not exactly as before. See the findings."},
    {CKPT_OUTCOME_FAILS_AT_LOAD, "error", "It does not load",
     "The program stops while it loads this checkpoint: the findings say why."},
    {CKPT_OUTCOME_FAILS_AT_STEP, "error", "It loads, and fails at the first step",
     "The program loads it, and stops at the first step of its optimizer: the findings say why."},
    {CKPT_OUTCOME_WEIGHTS_ONLY, "good", "Weights only: nothing to resume",
     "It holds the weights of a model and no state of a training run. It loads: the findings say with what."},
    {CKPT_OUTCOME_UNKNOWN, "unknown", "It is not known whether it resumes",
     "The findings say what is missing for an answer."},
};

void report_box(report_page *p, const char *kind, const char *title, const char *says, const char *outcome)
{
    fprintf(p->f, "<section class=\"verdict is-%s\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"%s\">",
            kind, kind);
    html_icon(p->f, kind);
    fputs(" ", p->f);
    html_text(p->f, title);
    fputs("</h2>\n<p>", p->f);
    html_text(p->f, says);
    fputs("</p>\n", p->f);
    if (outcome)
        fprintf(p->f, "<p class=\"quiet\">Outcome: <code>%s</code></p>\n", outcome);
    html_section_end(p->f);
}

void report_verdict(report_page *p, const ckpt_doctor_result *result, const ckpt_report *findings)
{
    size_t row = sizeof verdicts / sizeof *verdicts - 1, fixes = 0;
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (verdicts[i].outcome == result->outcome)
            row = i;
    for (size_t i = 0; i < ckpt_report_count(findings); i++)
        fixes += ckpt_report_get(findings, i)->severity > CKPT_SEVERITY_NOTE && *ckpt_report_get(findings, i)->fix;
    char mends[80] = "", about[400];
    if (fixes)
        snprintf(mends, sizeof mends, " %zu of them %s a mend to paste.", fixes, fixes == 1 ? "has" : "have");
    snprintf(about, sizeof about, "%s%s", verdicts[row].says, mends);
    report_box(p, verdicts[row].kind, verdicts[row].title, about, ckpt_outcome_name(result->outcome));
}

static void assumed_row(FILE *f, const char *what, const char *value, bool given)
{
    fputs("<tr><th scope=\"row\">", f);
    html_text(f, what);
    fputs("</th><td class=\"name\">", f);
    html_put(f, value, strlen(value) < 400 ? strlen(value) : 400);
    fprintf(f, "</td><td>%s</td></tr>\n", given ? "given" : "assumed");
}

static const char *flag_word(int flag)
{
    return flag < 0 ? "not set" : flag > 0 ? "True" : "False";
}

void report_assumed(report_page *p, const ckpt_doctor_result *r)
{
    static const char *const heads[] = {"what the answer depends on", "value", "why", NULL}, *const after[] = {
                                                                                                 "flag",
                                                                                                 "after the load",
                                                                                                 NULL};
    const command_line *o = p->o;
    bool torch = r->loader != CKPT_LOADER_CKPT && r->loader < CKPT_LOADER_DCP;
    char version[24];
    snprintf(version, sizeof version, "%d.%d", r->torch_major, r->torch_minor);
    html_section(p->f, "assumed", "What this answer assumes");
    html_table(p->f, "Another program, version or machine may get another answer.", heads);
    assumed_row(p->f, "loaded by", ckpt_loader_name(r->loader), o->loader);
    if (torch) {
        assumed_row(p->f, "torch", version, o->torch.text);
        assumed_row(p->f, "weights_only of torch.load", r->load_weights_only ? "True" : "False", o->load_weights_only);
    }
    assumed_row(p->f, "optimizer that the program constructs",
                r->optimizer != CKPT_OPTIMIZER_DEFAULT ? ckpt_optimizer_kind_name(r->optimizer) : "of the saved kind",
                o->optimizer);
    assumed_row(p->f, "mixed precision with a grad scaler", r->amp ? "yes" : "no", o->amp);
    assumed_row(p->f, "map_location", o->map_location ? o->map_location : "what the loader does by itself",
                o->map_location);
    assumed_row(p->f, "devices of the target", o->devices.text ? o->devices.text : "not counted", o->devices.text);
    if (o->device_memory.text)
        assumed_row(p->f, "memory of each device", o->device_memory.text, true);
    if (o->world.text)
        assumed_row(p->f, "ranks", o->world.text, true);
    if (o->mesh)
        assumed_row(p->f, "mesh", o->mesh, true);
    if (o->param_names)
        assumed_row(p->f, "order of the parameters", o->param_names, true);
    if (o->assume_order)
        assumed_row(p->f, "order of the parameters", o->assume_order, true);
    html_table_end(p->f);
    if (r->uses_fused >= 0 || r->uses_capturable >= 0 || r->uses_foreach >= 0) {
        const struct {
            const char *name;
            int flag;
        } flags[] = {{"fused", r->uses_fused}, {"capturable", r->uses_capturable}, {"foreach", r->uses_foreach}};
        html_table(p->f, "The optimizer's flags once it has loaded this", after);
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            fprintf(p->f, "<tr><th scope=\"row\" class=\"name\">%s</th><td class=\"name\">%s</td></tr>\n",
                    flags[i].name, flag_word(flags[i].flag));
        html_table_end(p->f);
    }
    html_section_end(p->f);
}

/* ---- findings */

void report_fix(report_page *p, const char *label, const char *text)
{
    fputs("<p class=\"fix\">", p->f);
    html_text(p->f, label);
    fprintf(p->f, "</p>\n<pre%s><code>", strchr(text, '\n') ? " class=\"program\" tabindex=\"0\"" : "");
    size_t size = strlen(text), shown = size < REPORT_BLOCK ? size : REPORT_BLOCK;
    for (size_t at = 0, n; at < shown; at += n + 1) { /* its lines are its own: names in it are escaped */
        n = strcspn(text + at, "\n");
        char *line = strndup(text + at, n < shown - at ? n : shown - at);
        if (line)
            html_message(p->f, line, 8192);
        free(line);
        fputs(at + n + 1 < size ? "\n" : "", p->f);
    }
    if (shown < size)
        fprintf(p->f, "... (%zu more bytes)", size - shown);
    fputs("</code></pre>\n", p->f);
}

static void finding(report_page *p, const ckpt_finding *g)
{
    const char *name = ckpt_severity_name(g->severity);
    fputs("<li>\n<h3>", p->f);
    html_icon(p->f, name);
    fprintf(p->f, "<span class=\"%s\">%s</span> <code>", name, name);
    html_put(p->f, g->code, strlen(g->code));
    fputs("</code></h3>\n<p>", p->f);
    html_message(p->f, g->message, 2048);
    fputs("</p>\n", p->f);
    if (*g->tensor || *g->file) {
        fputs("<p class=\"quiet\">", p->f);
        fputs(*g->tensor ? "tensor <span class=\"name\">" : "", p->f);
        html_message(p->f, g->tensor, 300);
        fputs(*g->tensor ? "</span>" : "", p->f);
        fputs(*g->file ? *g->tensor ? ", file <span class=\"name\">" : "file <span class=\"name\">" : "", p->f);
        html_message(p->f, g->file, 300);
        fputs(*g->file ? "</span></p>\n" : "</p>\n", p->f);
    }
    if (*g->fix)
        report_fix(p, "how to fix it:", g->fix);
    fputs("</li>\n", p->f);
}

void report_findings(report_page *p, const ckpt_report *a, const ckpt_report *b)
{
    const ckpt_report *const reports[] = {a, b};
    size_t shown = 0, left = 0;
    html_section(p->f, "findings", "Findings");
    for (int severity = CKPT_SEVERITY_ERROR; severity >= CKPT_SEVERITY_NOTE; severity--)
        for (size_t r = 0; r < 2; r++)
            for (size_t i = 0; reports[r] && i < ckpt_report_count(reports[r]); i++) {
                const ckpt_finding *g = ckpt_report_get(reports[r], i);
                if ((int)g->severity != severity)
                    continue;
                if (shown >= REPORT_FINDINGS || !report_room(p)) {
                    left++;
                    continue;
                }
                fputs(shown++ ? "" : "<ol class=\"findings\">\n", p->f);
                finding(p, g);
            }
    fputs(shown ? "</ol>\n" : "<p>Nothing odd was found.</p>\n", p->f);
    if (left)
        fprintf(
            p->f,
            "<p class=\"quiet\">and %zu more, none more severe than the last one here; <code>--json</code> has all.</p>\n",
            left);
    html_section_end(p->f);
}
