/* inspect_doctor.c - will it resume? */
#include "inspect.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "names.h"

/* "2.0", "1.13.1+cu117": major and minor count. */
static bool parse_version(const char *text, int *major, int *minor)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    long a = strtol(text, &end, 10);
    if (*end != '.' || end[1] < '0' || end[1] > '9')
        return false;
    long b = strtol(end + 1, &end, 10);
    if ((*end && *end != '.' && *end != '+' && *end != 'a' && *end != 'b' && *end != 'r') || a < 1 || a > 99 || b > 99)
        return false;
    *major = (int)a;
    *minor = (int)b;
    return true;
}

/* "cuda:2" (two devices, as the contract writes it), "2", "cpu". */
static bool parse_devices(const char *text, int *count)
{
    const char *digits = strncmp(text, "cuda:", 5) == 0 ? text + 5 : text;
    char *end;
    if (strcmp(text, "cpu") == 0) {
        *count = 0;
        return true;
    }
    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    long n = strtol(digits, &end, 10);
    if (*end || errno || n > 1024)
        return false;
    *count = (int)n;
    return true;
}

int inspect_doctor_options(const inspect *o, ckpt_doctor_options *d)
{
    const cli *c = &o->cli;
    memset(d, 0, sizeof *d);
    d->cuda_devices = -1;
    d->amp = o->amp;
    d->map_location = o->map_location;
    if (o->loader && !ckpt_loader_from_name(o->loader, &d->loader))
        return cli_usage(c, "--for: '%s' is none of ckpt, torch, torch-cpp, lightning, accelerate, hf-trainer", o->loader);
    if (o->torch && !parse_version(o->torch, &d->torch_major, &d->torch_minor))
        return cli_usage(c, "--torch: '%s' is no version; write 2.0 or 2.13", o->torch);
    if (o->load_weights_only && strcmp(o->load_weights_only, "yes") == 0)
        d->load_weights_only = 1;
    else if (o->load_weights_only && strcmp(o->load_weights_only, "no") == 0)
        d->load_weights_only = -1;
    else if (o->load_weights_only)
        return cli_usage(c, "--load-weights-only: '%s' is neither yes nor no", o->load_weights_only);
    if (o->optimizer && (d->optimizer = ckpt_optimizer_kind_from_name(o->optimizer)) == CKPT_OPTIMIZER_DEFAULT)
        return cli_usage(c, "--optimizer: '%s' is none of fused, capturable, foreach, plain", o->optimizer);
    if (o->devices && !parse_devices(o->devices, &d->cuda_devices))
        return cli_usage(c, "--devices: '%s' is no number of devices; write cuda:2 for two of them, or cpu for none", o->devices);
    return -1;
}

static void json_flag(json_out *j, const char *key, int flag)
{
    if (flag < 0)
        json_null(j, key);
    else
        json_bool(j, key, flag > 0);
}

void inspect_doctor_json_assumed(json_out *j, const inspect *o, const ckpt_doctor_options *d, const ckpt_doctor_result *r)
{
    char version[24];
    snprintf(version, sizeof version, "%d.%d", r->torch_major, r->torch_minor);
    bool torch = r->loader != CKPT_LOADER_CKPT;
    json_object(j, "assumed");
    json_text(j, "for", ckpt_loader_name(r->loader));
    json_text(j, "torch", torch ? version : NULL);
    json_flag(j, "load_weights_only", torch ? r->load_weights_only : -1);
    json_text(j, "optimizer", d->optimizer != CKPT_OPTIMIZER_DEFAULT ? ckpt_optimizer_kind_name(d->optimizer) : NULL);
    json_bool(j, "amp", r->amp);
    json_text(j, "map_location", o->map_location);
    if (d->cuda_devices >= 0)
        json_int(j, "devices", d->cuda_devices);
    else
        json_null(j, "devices");
    json_end_object(j);
    json_object(j, "effective");
    json_flag(j, "fused", r->fused);
    json_flag(j, "capturable", r->capturable);
    json_flag(j, "foreach", r->foreach_);
    json_end_object(j);
}

static void doctor_json(const inspect *o, const ckpt_doctor_options *d, const ckpt_doctor_result *r, const ckpt_report *report)
{
    json_out j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ckpt", 1);
    if (r->outcome == CKPT_OUTCOME_UNKNOWN) {            /* status 2 always has an error beside it */
        json_object(&j, "error");
        json_text(&j, "code", "unknown");
        json_text(&j, "message", "whether it resumes is not known; the findings say what is missing");
        json_end_object(&j);
    }
    inspect_doctor_json_assumed(&j, o, d, r);
    json_text(&j, "outcome", ckpt_outcome_name(r->outcome));
    json_flag(&j, "will_resume", r->outcome == CKPT_OUTCOME_UNKNOWN ? -1 : r->outcome == CKPT_RESUMES || r->outcome == CKPT_RESUMES_DIFFERENTLY);
    cli_json_findings(&j, report, NULL, CKPT_NOTE);
    json_end_object(&j);
}

static void doctor_text(const inspect *o, const ckpt_doctor_result *r, const ckpt_report *report)
{
    static const char *const sentences[] = {"it is not known whether it resumes; ", "", "it resumes, but not as it was; ", "",
                                            "it loads, and fails at the first optimizer step; "};
    const cli *c = &o->cli;
    cli_text_findings(c, stdout, report, c->quiet ? CKPT_ERROR : CKPT_NOTE, NULL);
    bool bad = r->outcome == CKPT_FAILS_AT_LOAD || r->outcome == CKPT_FAILS_AT_STEP;
    cli_put(stdout, o->paths[0], strlen(o->paths[0]));
    printf(": %s%s%s (%sfor %s", cli_style(c, bad ? "red" : "bold"), ckpt_outcome_name(r->outcome), cli_style(c, "off"),
           sentences[r->outcome], ckpt_loader_name(r->loader));
    if (r->loader != CKPT_LOADER_CKPT)
        printf(" %d.%d, weights_only=%s", r->torch_major, r->torch_minor, r->load_weights_only ? "True" : "False");
    if (r->optimizer != CKPT_OPTIMIZER_DEFAULT)
        printf(", optimizer %s", ckpt_optimizer_kind_name(r->optimizer));
    puts(")");
}

int inspect_doctor(const inspect *o)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_doctor_options options;
    ckpt_doctor_result result;
    names list = {NULL, NULL, 0};
    ckpt_reader *reader = cli_open(c, o->paths[0]);
    if (!reader)
        return CLI_NO_ANSWER;
    ckpt_report *report = ckpt_report_new();
    int status = report ? inspect_doctor_options(o, &options) : cli_fail(c, "no-memory", "out of memory");
    if (status < 0 && o->param_names)
        status = names_read(c, o->param_names, &list);
    if (status < 0) {
        options.param_names = list.items;
        options.param_name_count = list.count;
        if (ckpt_doctor(reader, &options, &result, report, &err) < 0) {
            status = cli_fail_error(c, &err);
        } else {
            status = result.outcome == CKPT_OUTCOME_UNKNOWN ? CLI_NO_ANSWER : result.outcome == CKPT_RESUMES ? CLI_YES : CLI_NO;
            if (c->json)
                doctor_json(o, &options, &result, report);
            else
                doctor_text(o, &result, report);
        }
    }
    names_free(&list);
    ckpt_report_free(report);
    ckpt_reader_close(reader);
    return status;
}
