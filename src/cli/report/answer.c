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

typedef struct place {
    int64_t storage, offset;
    uint64_t elements;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->storage != y->storage)
        return (x->storage > y->storage) - (x->storage < y->storage);
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Elements of all parameters, those that are tied once; 0: none, or no memory. */
static uint64_t parameters_of(const report_page *p, const ckpt_reader *reader)
{
    size_t count = ckpt_reader_tensor_count(reader), n = 0;
    uint64_t sum = 0;
    place *places = calloc(count + 1, sizeof *places);
    for (size_t i = 0; places && i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (t->role != CKPT_ROLE_PARAM || !cli_selected(&p->o->cli, t))
            continue;
        place *at = &places[n++];
        *at = (place){t->storage, t->offset, 1};
        for (uint32_t d = 0; d < t->ndim;
             d++) /* sizes are a file's claim: nothing is made of a product that is too large */
            at->elements = t->shape[d] <= 0                                    ? 0
                           : at->elements > UINT64_MAX / (uint64_t)t->shape[d] ? 0
                                                                               : at->elements * (uint64_t)t->shape[d];
    }
    if (places)
        qsort(places, n, sizeof *places, by_place);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || places[i].storage < 0 || by_place(&places[i - 1], &places[i]) != 0)
            sum = html_add(sum, places[i].elements);
    free(places);
    return sum;
}

static void put_big(FILE *f, const char *label, const char *text)
{
    fputs("<div><dt>", f);
    html_text(f, label);
    fputs("</dt><dd>", f);
    html_text(f, text);
    fputs("</dd></div>\n", f);
}

void report_headline(report_page *p, const ckpt_reader *reader, const ckpt_summary *summary)
{
    static const char *const units[] = {"", " K", " M", " G", " T", " P", " E"};
    char text[CLI_SIZE_MAX + 8], label[CLI_SIZE_MAX + 24], exact[CLI_SIZE_MAX];
    uint64_t params = parameters_of(p, reader);
    size_t unit = 0;
    double shown = (double)params;
    for (; shown >= 999.95 && unit + 1 < sizeof units / sizeof *units; unit++)
        shown /= 1000;
    fputs("<dl class=\"big\">\n", p->f);
    if (params) {
        snprintf(text, sizeof text, unit ? "%.1f%s" : "%.0f%s", shown, units[unit]);
        snprintf(label, sizeof label, unit ? "parameters (%s)" : "parameters", cli_count(exact, params));
        put_big(p->f, label, text);
    }
    put_big(p->f, "size on disk", cli_size(text, ckpt_reader_file_size(reader)));
    if (summary->step >= 0) {
        snprintf(text, sizeof text, "%" PRId64, summary->step);
        put_big(p->f, "step", text);
    } else if (summary->epoch >= 0) {
        snprintf(text, sizeof text, "%" PRId64, summary->epoch);
        put_big(p->f, "epoch", text);
    }
    if (summary->producer)
        put_big(p->f, "written by", summary->producer);
    fputs("</dl>\n", p->f);
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
    {CKPT_OUTCOME_RESUMES_DIFFERENTLY, "warning", "It resumes, with differences",
     "The program loads it and goes on, but not exactly as before:"},
    {CKPT_OUTCOME_FAILS_AT_LOAD, "error", "It does not load", "The program stops while it loads this checkpoint:"},
    {CKPT_OUTCOME_FAILS_AT_STEP, "error", "It loads, and fails at the first step",
     "The program loads it, and stops at the first step of its optimizer:"},
    {CKPT_OUTCOME_WEIGHTS_ONLY, "good", "Weights only: nothing to resume",
     "It holds the weights of a model and no state of a training run. It loads: the findings say with what."},
    {CKPT_OUTCOME_UNKNOWN, "unknown", "It is not known whether it resumes", "This is missing for an answer:"},
};

static void box_begin(report_page *p, const char *kind, const char *title, const char *says)
{
    fprintf(p->f, "<section class=\"verdict is-%s\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"%s\">",
            kind, kind);
    html_icon(p->f, kind);
    fputs(" ", p->f);
    html_text(p->f, title);
    fputs("</h2>\n<p>", p->f);
    html_text(p->f, says);
    fputs("</p>\n", p->f);
}

void report_box(report_page *p, const char *kind, const char *title, const char *says, const char *label,
                const char *outcome)
{
    box_begin(p, kind, title, says);
    if (outcome)
        fprintf(p->f, "<p class=\"quiet\">%s <code>%s</code></p>\n", label, outcome);
    html_section_end(p->f);
}

/* The first of the most severe findings, with one way to fix it: the command where there is one. */
static void put_cause(report_page *p, const ckpt_report *findings)
{
    const ckpt_finding *worst = NULL;
    size_t others = 0;
    for (size_t i = 0; i < ckpt_report_count(findings); i++) {
        const ckpt_finding *f = ckpt_report_get(findings, i);
        if (f->severity == CKPT_SEVERITY_NOTE)
            continue;
        worst = !worst || f->severity > worst->severity ? f : worst;
        others++;
    }
    if (!worst)
        return;
    fputs("<p class=\"cause\">", p->f);
    html_message(p->f, worst->message, 600);
    fputs("</p>\n", p->f);
    const ckpt_fix *best = worst->fix_count ? worst->fixes[0] : NULL;
    for (size_t i = 0; i < worst->fix_count; i++)
        if (strcmp(worst->fixes[i]->kind, "shell") == 0 && strncmp(worst->fixes[i]->text, "ckpt-migrate ", 13) == 0)
            best = worst->fixes[i];
    if (best) {
        const ckpt_finding one = {.code = worst->code, .fixes = &best, .fix_count = 1};
        report_fixes(p, &one, 1);
    }
    fputs("<p class=\"quiet\">See <a href=\"#", p->f);
    html_put(p->f, worst->code, strlen(worst->code));
    fputs("\"><code>", p->f);
    html_put(p->f, worst->code, strlen(worst->code));
    fputs("</code></a>", p->f);
    if (worst->fix_count > 1)
        fprintf(p->f, " for %zu other way%s to fix it", worst->fix_count - 1, worst->fix_count == 2 ? "" : "s");
    if (others > 1)
        fprintf(p->f, "%s %zu more error%s or warning%s", worst->fix_count > 1 ? ", and" : " and", others - 1,
                others == 2 ? "" : "s", others == 2 ? "" : "s");
    fputs(".</p>\n", p->f);
}

void report_verdict(report_page *p, const ckpt_doctor_result *result, const ckpt_report *findings)
{
    size_t row = sizeof verdicts / sizeof *verdicts - 1;
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (verdicts[i].outcome == result->outcome)
            row = i;
    box_begin(p, verdicts[row].kind, verdicts[row].title, verdicts[row].says);
    put_cause(p, findings);
    fprintf(p->f, "<p class=\"quiet\">Outcome: <code>%s</code></p>\n", ckpt_outcome_name(result->outcome));
    html_section_end(p->f);
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

static const char *language(const char *kind)
{
    static const char *const words[][2] = {
        {"shell", "Shell"}, {"python", "Python"}, {"c", "C"}, {"config", "Configuration"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], kind) == 0)
            return words[i][1];
    return NULL;
}

void report_fixes(report_page *p, const ckpt_finding *g, size_t most)
{
    size_t count = g->fix_count < most ? g->fix_count : most;
    char alone[60];
    if (count > 1)
        fputs("<p class=\"fix\">How to fix it, one of:</p>\n", p->f);
    for (size_t i = 0; i < count; i++) {
        const char *name = language(g->fixes[i]->kind);
        if (name) {
            snprintf(alone, sizeof alone, "How to fix it (%s):", name);
            report_fix(p, count > 1 ? name : alone, g->fixes[i]->text);
            continue;
        }
        fputs(count > 1 ? "<p>" : "<p>How to fix it: ", p->f);
        html_message(p->f, g->fixes[i]->text, 2048);
        fputs("</p>\n", p->f);
    }
}

/* Two that one fix is for, as a class of each that is refused. */
static bool is_alike(const ckpt_finding *a, const ckpt_finding *b)
{
    return a->severity == b->severity && strcmp(a->code, b->code) == 0 && *a->fix && strcmp(a->fix, b->fix) == 0;
}

static void put_about(report_page *p, const ckpt_finding *g)
{
    fputs("<p>", p->f);
    html_message(p->f, g->message, 2048);
    fputs("</p>\n", p->f);
    bool where = *g->tensor && !strstr(g->message, g->tensor);
    if (!where && !*g->file)
        return;
    fputs("<p class=\"quiet\">", p->f);
    fputs(where ? "at <span class=\"name\">" : "", p->f);
    html_message(p->f, where ? g->tensor : "", 300);
    fputs(where ? "</span>" : "", p->f);
    fputs(*g->file ? where ? ", file <span class=\"name\">" : "file <span class=\"name\">" : "", p->f);
    html_message(p->f, g->file, 300);
    fputs(*g->file ? "</span></p>\n" : "</p>\n", p->f);
}

/* Findings [0, count) that are alike; named: no finding above has this code, whose name the heading takes. */
static void put_group(report_page *p, const ckpt_finding *const *items, size_t count, bool named)
{
    enum { OPEN = 5 };
    const ckpt_finding *g = items[0];
    const char *name = ckpt_severity_name(g->severity);
    fputs("<li>\n<h3", p->f);
    if (named) {
        fputs(" id=\"", p->f);
        html_put(p->f, g->code, strlen(g->code));
        fputs("\"", p->f);
    }
    fputs(">", p->f);
    html_icon(p->f, name);
    fprintf(p->f, "<span class=\"%s\">%s</span> <code>", name, name);
    html_put(p->f, g->code, strlen(g->code));
    fputs("</code></h3>\n", p->f);
    for (size_t i = 0; i < count; i++) {
        if (i == OPEN)
            fprintf(p->f, "<details><summary>and %zu more</summary>\n", count - i);
        put_about(p, items[i]);
    }
    fputs(count > OPEN ? "</details>\n" : "", p->f);
    report_fixes(p, g, g->fix_count);
    fputs("</li>\n", p->f);
}

/* A code becomes the name of its first heading, which a link leads to: "page.html#step-on-cpu". */
static bool is_first(report_page *p, const char *code)
{
    for (size_t i = 0; i < p->code_count; i++)
        if (strcmp(p->codes[i], code) == 0)
            return false;
    if (p->code_count == REPORT_FINDINGS)
        return false;
    p->codes[p->code_count++] = code;
    return true;
}

static size_t count_of(const ckpt_report *a, const ckpt_report *b, ckpt_severity severity)
{
    const ckpt_report *const reports[] = {a, b};
    size_t n = 0;
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; reports[r] && i < ckpt_report_count(reports[r]); i++)
            n += ckpt_report_get(reports[r], i)->severity == severity;
    return n;
}

/* Those of one severity: groups, each with one fix. *shown counts the findings of all severities, *left what had no room. */
static void put_severity(report_page *p, const ckpt_report *a, const ckpt_report *b, ckpt_severity severity,
                         size_t *shown, size_t *left)
{
    const ckpt_report *const reports[] = {a, b};
    const ckpt_finding *group[REPORT_FINDINGS];
    size_t n = 0;
    fputs("<ol class=\"findings\">\n", p->f);
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; reports[r] && i <= ckpt_report_count(reports[r]); i++) {
            const ckpt_finding *g = ckpt_report_get(reports[r], i); /* NULL behind the last */
            if (g && g->severity != severity)
                continue;
            if (n > 0 && !(g && is_alike(group[0], g))) {
                put_group(p, group, n, is_first(p, group[0]->code));
                n = 0;
            }
            if (!g)
                continue;
            if (*shown >= REPORT_FINDINGS || !report_room(p)) {
                ++*left;
                continue;
            }
            group[n++] = g;
            ++*shown;
        }
    fputs("</ol>\n", p->f);
}

void report_findings(report_page *p, const ckpt_report *a, const ckpt_report *b)
{
    size_t shown = 0, left = 0, notes = count_of(a, b, CKPT_SEVERITY_NOTE), worse = 0;
    html_section(p->f, "findings", "Findings");
    for (int severity = CKPT_SEVERITY_ERROR; severity > CKPT_SEVERITY_NOTE; severity--)
        if (count_of(a, b, (ckpt_severity)severity) > 0) {
            put_severity(p, a, b, (ckpt_severity)severity, &shown, &left);
            worse++;
        }
    if (worse == 0)
        fprintf(p->f, "<p>%s</p>\n", notes ? "No error and no warning." : "Nothing odd was found.");
    if (notes > 0 && shown < REPORT_FINDINGS) {
        fprintf(p->f, "<details><summary>%zu note%s</summary>\n", notes, notes == 1 ? "" : "s");
        put_severity(p, a, b, CKPT_SEVERITY_NOTE, &shown, &left);
        fputs("</details>\n", p->f);
    } else {
        left += notes;
    }
    if (left)
        fprintf(
            p->f,
            "<p class=\"quiet\">and %zu more, none more severe than the last one here; <code>--json</code> has all.</p>\n",
            left);
    html_section_end(p->f);
}
