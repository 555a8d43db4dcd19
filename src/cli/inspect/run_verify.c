/* inspect/run_verify.c - every checkpoint of a run directory, on every rank: is every byte what was written? */
#include "cli/inspect/run.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one checkpoint */

/* What the answer of one part says; false: no memory. */
static bool take_part(run_check *out, size_t part, ckpt_status answer, const ckpt_verify_result *r,
                      const ckpt_error *err)
{
    ckpt_verify_result *sum = &out->sum;
    const ckpt_report *report = out->reports[part];
    const char *path = out->parts.count > 1 ? out->parts.items[part].path : "", *colon = *path ? ": " : "";
    if (answer == CKPT_E_NO_MEMORY)
        return false;
    if (answer == CKPT_E_SYSTEM || answer == CKPT_E_TOO_NEW || answer == CKPT_E_CANCELLED) {
        if (out->answered)
            snprintf(out->why, sizeof out->why, "%s%s%s", path, colon, err->message);
        out->answered = false;
    } else if (answer != CKPT_OK && out->answered && out->ok) {
        const ckpt_finding *f = NULL;
        for (size_t i = 0; i < ckpt_report_count(report) && !(f && f->severity == CKPT_SEVERITY_ERROR); i++)
            f = ckpt_report_get(report, i);
        if (f && f->severity == CKPT_SEVERITY_ERROR)
            snprintf(out->why, sizeof out->why, "%s%s%s%s%s", path, colon, f->file, *f->file ? ": " : "", f->message);
        else
            snprintf(out->why, sizeof out->why, "%s%s%s", path, colon, err->message);
    }
    out->ok = out->ok && answer == CKPT_OK;
    sum->bytes += r->bytes;
    sum->tensors += r->tensors;
    sum->unprotected_bytes += r->unprotected_bytes;
    if (answer >= 0 && r->integrity < sum->integrity)
        sum->integrity = r->integrity;
    if (r->format[0])
        memcpy(sum->format, r->format, sizeof sum->format);
    return true;
}

bool run_check_do(const run_view *v, const ckpt_run_entry *e, cli_progress *shown, run_check *out)
{
    ckpt_verify_options options = CKPT_VERIFY_OPTIONS_INIT;
    options.progress = (ckpt_progress){cli_progress_step, shown};
    options.threads = v->o->threads.n;
    memset(out, 0, sizeof *out);
    out->ok = out->answered = true;
    out->sum.integrity = CKPT_INTEGRITY_DIGEST;
    if (!run_parts_find(v, e, &out->parts))
        return false;
    out->reports = calloc(out->parts.count, sizeof(ckpt_report *));
    bool memory = out->reports != NULL;
    for (size_t i = 0; memory && i < out->parts.count; i++) {
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
        out->reports[i] = ckpt_report_new();
        if (out->reports[i])
            memory =
                take_part(out, i, ckpt_verify(out->parts.items[i].path, &options, &r, out->reports[i], &err), &r, &err);
        else
            memory = false;
    }
    cli_progress_end(shown);
    if (!out->sum.format[0])
        out->sum.integrity = CKPT_INTEGRITY_NONE;
    out->gone = memory && (!out->ok || !out->answered) && run_parts_gone(&out->parts);
    return memory;
}

void run_check_free(run_check *check)
{
    for (size_t i = 0; check->reports && i < check->parts.count; i++)
        ckpt_report_free(check->reports[i]);
    free(check->reports);
    run_parts_free(&check->parts);
    memset(check, 0, sizeof *check);
}

/* ---- all of them */

typedef struct verdict {
    run_check check;
    bool elsewhere; /* not complete only because ranks lie on other disks */
    bool ok;
} verdict;

/* With node-local disks: what is here is whole, and the rest is to be verified where it lies. */
static bool is_elsewhere(const ckpt_run_entry *e, const run_check *check)
{
    return !e->complete && check->parts.rank_directories < (uint64_t)e->world && e->ranks_held > 0 &&
           (uint64_t)e->ranks_held == check->parts.count;
}

static const char *word_of(const verdict *d)
{
    if (d->check.gone)
        return "gone: a writer has removed or replaced it meanwhile";
    if (!d->check.answered)
        return "NOT READ";
    return d->ok ? "ok" : d->check.ok ? "INCOMPLETE" : "DAMAGED";
}

static void put_findings(const run_view *v, const verdict *d)
{
    const cli *c = &v->o->cli;
    const run_parts *parts = &d->check.parts;
    for (size_t i = 0; i < parts->count; i++) {
        if (parts->count > 1 && ckpt_report_worst(d->check.reports[i]) == CKPT_SEVERITY_ERROR) {
            cli_put(stdout, parts->items[i].path, strlen(parts->items[i].path));
            puts(":");
        }
        cli_text_by_severity(c, stdout, d->check.reports[i], NULL);
    }
}

static bool has_error(const run_check *check)
{
    for (size_t i = 0; i < check->parts.count; i++)
        if (ckpt_report_worst(check->reports[i]) == CKPT_SEVERITY_ERROR)
            return true;
    return false;
}

static void counts_of(char *out, size_t size, const run_check *check)
{
    const ckpt_verify_result *r = &check->sum;
    char read[CLI_SIZE_MAX], bytes[CLI_SIZE_MAX], without[CLI_SIZE_MAX], ranks[40] = "", more[80] = "";
    if (check->parts.count > 1)
        snprintf(ranks, sizeof ranks, ", %zu ranks", check->parts.count);
    if (r->unprotected_bytes > 0)
        snprintf(more, sizeof more, ", %s without a checksum", cli_size(without, r->unprotected_bytes));
    snprintf(out, size, ", %" PRIu64 " tensor%s, %s (%s bytes) read, integrity %s%s%s", r->tensors,
             r->tensors == 1 ? "" : "s", cli_size(read, r->bytes), cli_count(bytes, r->bytes),
             inspect_integrity_name(r->integrity), ranks, more);
}

static void put_verdict(const run_view *v, const ckpt_run_entry *e, const verdict *d)
{
    const cli *c = &v->o->cli;
    const run_check *check = &d->check;
    bool bad = !d->ok && !check->gone;
    if (c->quiet && !bad)
        return;
    cli_put(stdout, e->path, strlen(e->path));
    printf(": %s%s%s", cli_style(c, bad ? "red" : "bold"), word_of(d), cli_style(c, "off"));
    const char *why = check->answered && !e->complete         ? e->why
                      : !check->answered || !has_error(check) ? check->why
                                                              : "";
    char tail[sizeof check->why + 300] = "";
    if (*why && !check->gone)
        snprintf(tail, sizeof tail, ", %s", why);
    else if (!check->gone)
        counts_of(tail, sizeof tail, check);
    cli_put_wrapped(stdout, tail, cli_width(e->path, strlen(e->path)) + 2 + strlen(word_of(d)), 4);
    if (!check->gone)
        put_findings(v, d);
    fflush(stdout);
}

static void json_verdict(json_out *j, const ckpt_run_entry *e, const verdict *d)
{
    json_object(j, NULL);
    json_text(j, "name", e->name);
    json_text(j, "path", e->path);
    json_int(j, "step", e->step);
    json_bool(j, "complete", e->complete);
    json_bool_or_null(j, "ok", !d->check.gone && d->check.answered, d->ok);
    json_text(j, "integrity", inspect_integrity_name(d->check.sum.integrity));
    inspect_json_checked(j, &d->check.sum);
    const char *why = !e->complete ? e->why : d->check.why;
    json_text(j, "why", *why ? why : NULL);
    json_array(j, "parts"); /* of each rank that is here */
    for (size_t i = 0; i < d->check.parts.count; i++) {
        json_object(j, NULL);
        json_text(j, "path", d->check.parts.items[i].path);
        cli_json_findings(j, d->check.reports[i], NULL, CKPT_SEVERITY_NOTE);
        json_end_object(j);
    }
    json_end_array(j);
    json_end_object(j);
}

static void verify_json(const run_view *v, const verdict *all, int status)
{
    ckpt_verify_result sum = {.integrity = CKPT_INTEGRITY_DIGEST};
    bool opened = false;
    json_out j;
    json_document(&j);
    for (size_t i = 0; i < v->count; i++) {
        const ckpt_verify_result *r = &all[i].check.sum;
        if (all[i].check.gone)
            continue;
        sum.bytes += r->bytes;
        sum.tensors += r->tensors;
        sum.unprotected_bytes += r->unprotected_bytes;
        opened = opened || r->format[0];
        if (r->format[0] && r->integrity < sum.integrity)
            sum.integrity = r->integrity;
    }
    if (!opened)
        sum.integrity = CKPT_INTEGRITY_NONE;
    if (status == CLI_NO_ANSWER)
        cli_json_error(&v->o->cli, &j, "system", "a checkpoint could not be read; checkpoints[] says which and why");
    json_text(&j, "format", "run");
    json_bool_or_null(&j, "ok", status != CLI_NO_ANSWER, status == CLI_YES);
    json_text(&j, "integrity", inspect_integrity_name(sum.integrity));
    inspect_json_checked(&j, &sum);
    json_array(&j, "checkpoints");
    for (size_t i = 0; i < v->count; i++)
        json_verdict(&j, ckpt_run_list_entry(v->list, i), &all[i]);
    json_end_array(&j);
    cli_json_findings(&j, ckpt_run_list_findings(v->list), NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

static void put_total(const run_view *v, size_t bad, size_t unread, size_t gone)
{
    if (v->o->cli.quiet)
        return;
    cli_put(stdout, v->path, strlen(v->path));
    if (v->count == 0)
        puts(": no checkpoint yet");
    else if (bad || unread)
        printf(": %zu of %zu checkpoints damaged or incomplete%s\n", bad, v->count - gone,
               unread ? ", and not all could be read" : "");
    else
        printf(": %zu checkpoint%s ok\n", v->count - gone, v->count - gone == 1 ? "" : "s");
}

/* -1: all of them went while they were read, and no answer was given. */
static int verify_once(const run_view *v, bool insist)
{
    const cli *c = &v->o->cli;
    size_t bad = 0, unread = 0, gone = 0, done = 0;
    bool memory = true;
    verdict *all = calloc(v->count + 1, sizeof *all);
    if (!all)
        return cli_fail(c, "no-memory", "out of memory");
    for (; memory && done < v->count; done++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(v->list, done);
        verdict *d = &all[done];
        cli_progress shown;
        cli_progress_init(&shown, c, "checked");
        memory = run_check_do(v, e, &shown, &d->check);
        d->elsewhere = is_elsewhere(e, &d->check);
        d->ok = d->check.ok && d->check.answered && (e->complete || d->elsewhere);
        gone += d->check.gone;
        bad += d->check.answered && !d->check.gone && !d->ok;
        unread += !d->check.answered && !d->check.gone;
        if (memory && !c->json)
            put_verdict(v, e, d);
    }
    int status = bad ? CLI_NO : unread ? CLI_NO_ANSWER : CLI_YES;
    if (!memory)
        status = cli_fail(c, "no-memory", "out of memory");
    else if (gone > 0 && gone == v->count && !insist)
        status = -1;
    else if (gone > 0 && gone == v->count)
        status = cli_fail(c, "not-found", "%s: every checkpoint was removed or replaced while it was read", v->path);
    else if (c->json)
        verify_json(v, all, status);
    else
        put_total(v, bad, unread, gone);
    for (size_t i = 0; i < done; i++)
        run_check_free(&all[i].check);
    free(all);
    return status;
}

int run_verify(const run_view *v)
{
    return run_again(v, verify_once);
}
