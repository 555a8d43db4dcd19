/* inspect/verify.c - is every byte what was written? */
#include "cli/inspect/folder.h"
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <string.h>

const char *inspect_integrity_name(ckpt_integrity integrity)
{
    static const char *const names[] = {"none", "partial", "crc32", "digest"};
    return integrity <= CKPT_INTEGRITY_DIGEST ? names[integrity] : "none";
}

void inspect_json_checked(json_out *j, const ckpt_verify_result *r)
{
    json_object(j, "checked");
    json_uint(j, "bytes", r->bytes);
    json_uint(j, "tensors", r->tensors);
    json_uint(j, "unprotected_bytes", r->unprotected_bytes);
    json_end_object(j);
}

static void verify_json(const ckpt_verify_result *r, const ckpt_report *report)
{
    json_out j;
    json_document(&j);
    json_text(&j, "format", r->format[0] ? r->format : NULL);
    json_bool(&j, "ok", r->ok);
    json_text(&j, "integrity", inspect_integrity_name(r->integrity));
    inspect_json_checked(&j, r);
    cli_json_findings(&j, report, NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

/* The bytes are what was written: torch does not load them all the same. */
static bool only_refused(const ckpt_report *report)
{
    bool refused = false, other = false;
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        bool torch = strcmp(f->code, "torch-refuses") == 0;
        refused = refused || torch;
        other = other || (f->severity == CKPT_SEVERITY_ERROR && !torch);
    }
    return refused && !other;
}

static void verify_text(const command_line *o, const ckpt_verify_result *r, const ckpt_report *report)
{
    const cli *c = &o->cli;
    char size[CLI_SIZE_MAX], bytes[CLI_SIZE_MAX], without[CLI_SIZE_MAX];
    if (c->quiet && (r->ok || !o->many)) {
        cli_text_by_severity(c, stdout, report, NULL);
        return;
    }
    const char *path = o->paths[0], *word = r->ok ? "ok" : only_refused(report) ? "REFUSED BY TORCH" : "DAMAGED";
    char tail[300], more[80] = "";
    if (r->unprotected_bytes > 0)
        snprintf(more, sizeof more, ", %s without a checksum", cli_size(without, r->unprotected_bytes));
    snprintf(tail, sizeof tail, "%s%s, %" PRIu64 " tensor%s, %s (%s bytes) read, integrity %s%s",
             r->format[0] ? ", " : "", r->format, r->tensors, r->tensors == 1 ? "" : "s", cli_size(size, r->bytes),
             cli_count(bytes, r->bytes), inspect_integrity_name(r->integrity), more);
    cli_put(stdout, path, strlen(path));
    printf(": %s%s%s", cli_style(c, r->ok ? "bold" : "red"), word, cli_style(c, "off"));
    cli_put_wrapped(stdout, tail, cli_width(path, strlen(path)) + 2 + strlen(word), 4);
    cli_text_by_severity(c, stdout, report, NULL);
}

int inspect_verify(const command_line *o)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_verify_options options = CKPT_VERIFY_OPTIONS_INIT;
    cli_progress shown;
    ckpt_report *report = ckpt_report_new();
    if (!report)
        return cli_fail(c, "no-memory", "out of memory");
    cli_progress_init(&shown, c, "checked");
    options.format = c->from;
    options.also = (const char *const *)o->paths + 1;
    options.also_count = (size_t)o->path_count - 1;
    options.progress = (ckpt_progress){cli_progress_step, &shown};
    options.threads = o->threads.n;
    ckpt_status answer = ckpt_verify(o->paths[0], &options, &result, report, &err);
    cli_progress_end(&shown);
    int status = answer == CKPT_OK ? CLI_YES : answer == CKPT_ANSWER_NO ? CLI_NO : CLI_NO_ANSWER;
    if (folder_holds_several(o, answer < 0 ? &err : NULL, result.tensors == 0 ? result.format : ""))
        status = MANY_INSIDE;
    else if (status == CLI_NO_ANSWER)
        cli_fail_error(c, &err);
    else if (c->json)
        verify_json(&result, report);
    else
        verify_text(o, &result, report);
    ckpt_report_free(report);
    return status;
}
