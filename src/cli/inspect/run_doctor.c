/* inspect/run_doctor.c - from which checkpoint of a run directory would a resume go on? Walks as ckpt_run_resume does:
 * newest first; one that is damaged is passed over for the one before it, and one that does not fit is the end. */
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/run.h"
#include "cli/out/names.h"

typedef enum fate { FATE_OLDER, FATE_PASSED, FATE_TAKEN, FATE_STOPS, FATE_UNKNOWN } fate;

typedef struct candidate {
    fate fate;
    const char *checked; /* "bytes", "hint", "metadata"; NULL: it was not looked at */
    ckpt_outcome outcome;
    char why[900];
} candidate;

typedef struct walk {
    const run_view *v;
    candidate *all;
    size_t end;   /* the one that the walk ended with; v->count: it passed over all */
    names params; /* --param-names */
    ckpt_doctor_options options;
    ckpt_doctor_result result; /* of that one */
    ckpt_report *report;       /* its findings, never NULL */
    bool gone;                 /* a candidate went while it was read */
    bool asked;                /* options, result and report say something */
    char *snippet;             /* --snippet, and for the page */
} walk;

static void ends(walk *w, size_t i, fate how, const char *why)
{
    w->end = i;
    w->all[i].fate = how;
    snprintf(w->all[i].why, sizeof w->all[i].why, "%s", why);
}

static void passed(walk *w, size_t i, const char *why)
{
    w->all[i].fate = FATE_PASSED;
    w->all[i].outcome = CKPT_OUTCOME_FAILS_AT_LOAD;
    snprintf(w->all[i].why, sizeof w->all[i].why, "%s", why);
}

/* May the one before it be better? As the hook has it: the file is at fault, not what reads it. */
static bool falls_back(ckpt_status status)
{
    return status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_NOT_FOUND;
}

/* Not complete: passed over, unless a newer version wrote it, or ranks that are not here may have the rest of it. */
static void weigh_incomplete(walk *w, size_t i, const run_parts *parts)
{
    const ckpt_run_entry *e = ckpt_run_list_entry(w->v->list, i);
    ckpt_reader *reader = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = ckpt_reader_open(e->path, NULL, &reader, &err);
    ckpt_reader_close(reader);
    if (status == CKPT_E_TOO_NEW) {
        ends(w, i, FATE_STOPS, err.message);
        w->all[i].outcome = CKPT_OUTCOME_FAILS_AT_LOAD;
    } else if (e->world > 1 && parts->rank_directories < (uint64_t)e->world && e->ranks_held > 0 &&
               (uint64_t)e->ranks_held == parts->count) {
        ends(w, i, FATE_UNKNOWN, e->why);
    } else {
        passed(w, i, e->why);
    }
}

/* -1: every byte is right, or was not to be read; else the exit status, or 0 where this one is settled. */
static int weigh_bytes(walk *w, size_t i)
{
    const run_view *v = w->v;
    const ckpt_run_entry *e = ckpt_run_list_entry(v->list, i);
    run_check check;
    cli_progress shown;
    if (e->verified || v->o->metadata_only) {
        w->all[i].checked = e->verified ? "hint" : "metadata";
        return -1;
    }
    cli_progress_init(&shown, &v->o->cli, "checked");
    bool memory = run_check_do(v, e, &shown, &check);
    int status = memory ? -1 : cli_fail(&v->o->cli, "no-memory", "out of memory");
    if (memory) {
        w->all[i].checked = "bytes";
        if (check.gone) {
            passed(w, i, "it went while it was read: a writer has removed or replaced it");
            status = 0;
        } else if (!check.answered) {
            ends(w, i, FATE_UNKNOWN, check.why);
            status = 0;
        } else if (!check.ok) {
            passed(w, i, check.why);
            status = 0;
        }
    }
    run_check_free(&check);
    return status;
}

static int severity_of(ckpt_outcome outcome)
{
    static const int order[] = {1, 0, 2,
                                4, 3, 0}; /* unknown, resumes, differently, fails at load, at step, weights only */
    return order[outcome];
}

/* What the loader will make of one rank's part. -1: go on. */
static int ask_part(walk *w, size_t i, const char *path, bool first)
{
    const cli *c = &w->v->o->cli;
    ckpt_reader *reader = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_status status = ckpt_reader_open(path, NULL, &reader, &err);
    if (status < 0) {
        if (falls_back(status))
            passed(w, i, err.message);
        else
            ends(w, i, status == CKPT_E_TOO_NEW ? FATE_STOPS : FATE_UNKNOWN, err.message);
        return 0;
    }
    ckpt_report *report = ckpt_report_new();
    int answer = report ? -1 : cli_fail(c, "no-memory", "out of memory");
    inspect_doctor_options(w->v->o, &w->options);
    w->options.param_names = w->params.items;
    w->options.param_name_count = w->params.count;
    if (answer < 0 && ckpt_doctor(reader, &w->options, &result, report, &err) < 0)
        answer = cli_fail_error(c, &err);
    if (answer < 0 && (first || severity_of(result.outcome) > severity_of(w->result.outcome))) {
        ckpt_report *before = w->report;
        ckpt_doctor_result_clear(&w->result);
        w->result = result;
        w->report = report;
        report = before;
    } else if (answer < 0) {
        ckpt_doctor_result_clear(&result);
    }
    ckpt_report_free(report);
    ckpt_reader_close(reader);
    return answer;
}

/* -1: go on to the one before; 0: the walk is at its end; else the exit status, the error said. */
static int weigh(walk *w, size_t i)
{
    const ckpt_run_entry *e = ckpt_run_list_entry(w->v->list, i);
    run_parts parts;
    int answer = -1;
    if (!run_parts_find(w->v, e, &parts))
        return cli_fail(&w->v->o->cli, "no-memory", "out of memory");
    if (!e->complete) {
        weigh_incomplete(w, i, &parts);
        answer = 0;
    } else {
        answer = weigh_bytes(w, i);
        for (size_t k = 0; answer < 0 && k < parts.count; k++)
            answer = ask_part(w, i, parts.items[k].path, k == 0);
        if (answer < 0) {
            bool goes = w->result.outcome == CKPT_OUTCOME_RESUMES ||
                        w->result.outcome == CKPT_OUTCOME_RESUMES_DIFFERENTLY ||
                        w->result.outcome == CKPT_OUTCOME_WEIGHTS_ONLY;
            ends(w, i, w->result.outcome == CKPT_OUTCOME_UNKNOWN ? FATE_UNKNOWN : goes ? FATE_TAKEN : FATE_STOPS, "");
            w->all[i].outcome = w->result.outcome;
            w->asked = true;
            answer = 0;
        }
    }
    w->gone = w->gone || run_parts_gone(&parts);
    run_parts_free(&parts);
    if (answer == 0 && w->all[i].fate == FATE_PASSED)
        answer = -1;
    return answer;
}

/* ---- the answer */

static int exit_status(const walk *w)
{
    if (w->end == w->v->count)
        return CLI_NO;
    switch (w->all[w->end].fate) {
    case FATE_TAKEN:
        return w->end == 0 && w->result.outcome == CKPT_OUTCOME_RESUMES ? CLI_YES : CLI_NO;
    case FATE_STOPS:
        return CLI_NO;
    default:
        return CLI_NO_ANSWER;
    }
}

/* NULL: there is nothing that could resume or fail. */
static const char *outcome_of(const walk *w)
{
    if (w->v->count == 0)
        return NULL;
    if (w->end == w->v->count)
        return ckpt_outcome_name(CKPT_OUTCOME_FAILS_AT_LOAD);
    return ckpt_outcome_name(w->all[w->end].fate == FATE_UNKNOWN ? CKPT_OUTCOME_UNKNOWN : w->all[w->end].outcome);
}

static const ckpt_run_entry *taken(const walk *w)
{
    return w->end < w->v->count && w->all[w->end].fate == FATE_TAKEN ? ckpt_run_list_entry(w->v->list, w->end) : NULL;
}

static void json_candidate(json_out *j, const ckpt_run_entry *e, const candidate *c)
{
    json_object(j, NULL);
    json_text(j, "path", e->path);
    json_int(j, "step", e->step);
    json_bool(j, "complete", e->complete);
    json_bool(j, "verified", e->verified);
    json_text(j, "checked", c->checked);
    json_text(j, "outcome",
              c->fate == FATE_OLDER ? NULL
                                    : ckpt_outcome_name(c->fate == FATE_UNKNOWN ? CKPT_OUTCOME_UNKNOWN : c->outcome));
    json_text(j, "why", c->why[0] ? c->why : NULL);
    json_end_object(j);
}

static void doctor_json(const walk *w, int status)
{
    const run_view *v = w->v;
    const ckpt_run_entry *from = taken(w);
    json_out j;
    json_document(&j);
    if (status == CLI_NO_ANSWER)
        cli_json_error(&v->o->cli, &j, "unknown",
                       w->all[w->end].why[0] ? w->all[w->end].why
                                             : "whether it resumes is not known; the findings say what is missing");
    if (from) {
        char *command = run_resume_command(v);
        json_object(&j, "resume");
        json_text(&j, "path", from->path);
        json_int(&j, "step", from->step);
        json_text(&j, "command", command);
        json_end_object(&j);
        free(command);
    } else {
        json_null(&j, "resume");
    }
    json_text(&j, "format", "run");
    json_array(&j, "candidates");
    for (size_t i = 0; i < v->count; i++)
        json_candidate(&j, ckpt_run_list_entry(v->list, i), &w->all[i]);
    json_end_array(&j);
    if (w->asked)
        inspect_doctor_json_assumed(&j, v->o, &w->options, &w->result);
    if (v->o->snippet)
        json_text(&j, "snippet", w->snippet);
    json_text(&j, "outcome", outcome_of(w));
    json_bool_or_null(&j, "will_resume", status != CLI_NO_ANSWER, from != NULL);
    cli_json_findings(&j, w->report, ckpt_run_list_findings(v->list), CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

static const char *sentence_of(const candidate *c)
{
    switch (c->fate) {
    case FATE_PASSED:
        return "skipped";
    case FATE_TAKEN:
    case FATE_STOPS:
        return ckpt_outcome_name(c->outcome);
    case FATE_UNKNOWN:
        return "unknown";
    case FATE_OLDER:
        break;
    }
    return "not checked (older)";
}

static const char *checked_of(const candidate *c)
{
    return c->fate != FATE_TAKEN || !c->checked ? ""
           : strcmp(c->checked, "bytes") == 0   ? "every byte checked"
           : strcmp(c->checked, "hint") == 0    ? "verified before"
                                                : "bytes not read";
}

static void put_candidate(const walk *w, size_t i)
{
    const ckpt_run_entry *e = ckpt_run_list_entry(w->v->list, i);
    const candidate *c = &w->all[i];
    const cli *o = &w->v->o->cli;
    bool bad = c->fate == FATE_PASSED || c->fate == FATE_STOPS || c->fate == FATE_UNKNOWN;
    cli_put(stdout, e->name, strlen(e->name));
    printf("  %s%s%s",
           cli_style(o, bad                     ? "red"
                        : c->fate == FATE_TAKEN ? "bold"
                                                : "off"),
           sentence_of(c), cli_style(o, "off"));
    if (c->why[0]) {
        fputs(": ", stdout);
        cli_put_wrapped(stdout, c->why, strlen(e->name) + 2 + strlen(sentence_of(c)) + 2, 15);
        return;
    }
    if (*checked_of(c))
        printf(", %s", checked_of(c));
    putchar('\n');
}

static void doctor_text(const walk *w)
{
    const run_view *v = w->v;
    const cli *c = &v->o->cli;
    const ckpt_run_entry *from = taken(w);
    cli_put(stdout, v->path, strlen(v->path));
    if (v->count == 0) {
        puts(": nothing to resume: nothing was saved yet");
        cli_text_by_severity(c, stdout, ckpt_run_list_findings(v->list), NULL);
        return;
    }
    printf(": %s%s%s", cli_style(c, from && w->end == 0 ? "bold" : "red"), outcome_of(w), cli_style(c, "off"));
    if (from)
        printf(" from step %lld%s\n", (long long)from->step, w->end == 0 ? "" : ", not from the newest");
    else if (w->end == v->count)
        printf(": none of %zu checkpoints is sound\n", v->count);
    else
        printf(" (%s)\n", ckpt_run_list_entry(v->list, w->end)->name);
    if (from && !c->quiet)
        run_put_resume(v, from);
    for (size_t i = 0; i < v->count && !c->quiet; i++)
        put_candidate(w, i);
    cli_text_by_severity(c, stdout, w->report, NULL);
    cli_text_by_severity(c, stdout, ckpt_run_list_findings(v->list), "incomplete-step");
}

/* ---- --snippet and --report */

/* The resume of the run, by what the walk ended with: -1, or the exit status, the error said. */
static int make_snippet(walk *w)
{
    const cli *c = &w->v->o->cli;
    ckpt_reader *reader = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    if (!w->asked || (!w->v->o->snippet && !w->v->o->report) ||
        ckpt_reader_open(ckpt_run_list_entry(w->v->list, w->end)->path, NULL, &reader, NULL) < 0)
        return -1;
    ckpt_status status = ckpt_doctor_snippet(reader, "run", &w->options, &w->snippet, &err);
    ckpt_reader_close(reader);
    return status < 0 ? cli_fail_error(c, &err) : -1;
}

static const char *kind_of(const candidate *c)
{
    switch (c->fate) {
    case FATE_TAKEN:
        return c->outcome == CKPT_OUTCOME_RESUMES ? "good" : "warning";
    case FATE_PASSED:
    case FATE_STOPS:
        return "error";
    case FATE_UNKNOWN:
        return "unknown";
    case FATE_OLDER:
        break;
    }
    return "note";
}

static void report_answer(const walk *w, report_list *page, char *title, size_t size)
{
    static const char passed_over[] = "Newer checkpoints are skipped: the table says why.";
    const ckpt_run_entry *from = taken(w);
    bool same = from && w->result.outcome == CKPT_OUTCOME_RESUMES;
    page->title = title;
    page->outcome = outcome_of(w);
    page->about = "";
    if (from) {
        snprintf(title, size, "It resumes from step %lld%s%s", (long long)from->step,
                 w->end ? ", not from the newest" : "", same ? "" : ", but not as it was");
        page->kind = same && w->end == 0 ? "good" : "warning";
        page->about = w->end ? passed_over : "";
    } else if (w->v->count == 0) {
        snprintf(title, size, "Nothing was saved yet");
        page->kind = "note";
    } else if (w->end == w->v->count) {
        snprintf(title, size, "None of its checkpoints is sound");
        page->kind = "error";
    } else {
        bool stops = w->all[w->end].fate == FATE_STOPS;
        snprintf(title, size, stops ? "It does not resume: %s does not fit" : "It is not known whether it resumes: %s",
                 ckpt_run_list_entry(w->v->list, w->end)->name);
        page->kind = stops ? "error" : "unknown";
    }
}

/* CLI_YES: written; else the exit status, the error said. */
static int put_report(const walk *w)
{
    const run_view *v = w->v;
    const ckpt_run_entry *from = taken(w);
    char title[200];
    checkpoint *rows = run_rows(v);
    if (!rows)
        return cli_fail(&v->o->cli, "no-memory", "out of memory");
    for (size_t i = 0; i < v->count; i++) {
        rows[i].kind = kind_of(&w->all[i]);
        rows[i].state = sentence_of(&w->all[i]);
        rows[i].why = w->all[i].why[0] ? w->all[i].why : checked_of(&w->all[i]);
    }
    char *resume = from ? run_resume_command(v) : NULL;
    report_list page = {.command = "doctor",
                        .says = "Will this run resume?",
                        .rows = rows,
                        .count = v->count,
                        .newest_first = true,
                        .findings = ckpt_run_list_findings(v->list)};
    report_answer(w, &page, title, sizeof title);
    page.resume = resume;
    page.more = w->report;
    if (w->asked) {
        page.recommended = ckpt_run_list_entry(v->list, w->end)->path;
        page.result = &w->result;
        page.resumes = from != NULL;
        page.snippet = w->snippet;
        run_report_note(&page, ckpt_run_list_entry(v->list, w->end));
    }
    int status = report_list_page(v->o, &page);
    free(rows);
    free(resume);
    return status;
}

/* A snippet stands alone on standard output; from where it resumes, and what is odd, goes beside it. */
static void put_snippet(const walk *w)
{
    const cli *c = &w->v->o->cli;
    if (!w->snippet) {
        cli_warn(
            c,
            "%s: no checkpoint of it could be resumed from, so there is no snippet; doctor without --snippet says why",
            w->v->path);
        return;
    }
    fputs(w->snippet, stdout);
    if (w->end > 0)
        cli_warn(c, "%s: %s from step %lld, not from the newest", w->v->path, outcome_of(w),
                 (long long)ckpt_run_list_entry(w->v->list, w->end)->step);
    if (w->result.outcome != CKPT_OUTCOME_RESUMES && !c->quiet)
        cli_text_findings(c, stderr, w->report, CKPT_SEVERITY_WARNING, NULL);
}

static int say(walk *w)
{
    const command_line *o = w->v->o;
    int failed = make_snippet(w);
    if (failed < 0 && o->report && (failed = put_report(w)) == CLI_YES)
        failed = -1;
    if (failed >= 0)
        return failed;
    int status = exit_status(w);
    if (o->cli.json)
        doctor_json(w, status);
    else if (o->snippet)
        put_snippet(w);
    else
        doctor_text(w);
    return status;
}

/* -1: a candidate went while it was read, and nothing was said. */
static int doctor_once(const run_view *v, bool insist)
{
    const cli *c = &v->o->cli;
    walk w = {.v = v, .end = v->count};
    w.all = calloc(v->count + 1, sizeof *w.all);
    w.report = ckpt_report_new();
    int answer = w.all && w.report ? -1 : cli_fail(c, "no-memory", "out of memory");
    if (answer < 0 && v->o->param_names)
        answer = names_read(c, v->o->param_names, &w.params);
    for (size_t i = 0; answer < 0 && i < v->count; i++)
        answer = weigh(&w, i);
    if (answer <= 0 && w.gone && !insist) {
        answer = -1;
    } else if (answer <= 0) {
        answer = say(&w);
    }
    free(w.snippet);
    names_free(&w.params);
    ckpt_doctor_result_clear(&w.result);
    ckpt_report_free(w.report);
    free(w.all);
    return answer;
}

int run_doctor(const run_view *v)
{
    if (v->o->loader && strcmp(v->o->loader, "ckpt") != 0)
        return cli_usage(&v->o->cli,
                         "%s: a run directory is resumed by ckpt_run_resume; --for %s is for one of its checkpoints",
                         v->path, v->o->loader);
    if (v->o->snippet && strcmp(v->o->snippet, "c") != 0)
        return cli_usage(&v->o->cli,
                         "--snippet: a run directory is resumed by ckpt_run_resume, in C or C++: write --snippet c");
    inspect_doctor_warn(v->o, CKPT_LOADER_CKPT);
    return run_again(v, doctor_once);
}
