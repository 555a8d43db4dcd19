/* inspect/doctor.c - will it resume? */
#include "cli/inspect/folder.h"
#include "cli/inspect/inspect.h"
#include <stdlib.h>
#include <string.h>
#include "cli/out/names.h"
#include "cli/report/report.h"

void inspect_doctor_options(const command_line *o, ckpt_doctor_options *d)
{
    *d = (ckpt_doctor_options)CKPT_DOCTOR_OPTIONS_INIT;
    if (o->loader)
        (void)ckpt_loader_from_name(o->loader, &d->loader);
    d->torch_major = (int)(o->torch.n / 100);
    d->torch_minor = (int)(o->torch.n % 100);
    d->load_weights_only = !o->load_weights_only ? 0 : strcmp(o->load_weights_only, "yes") == 0 ? 1 : -1;
    d->optimizer = o->optimizer ? ckpt_optimizer_kind_from_name(o->optimizer) : CKPT_OPTIMIZER_DEFAULT;
    d->cuda_device_count = !o->devices.text ? 0 : o->devices.n > 0 ? (int)o->devices.n : -1;
    d->device_memory = o->device_memory.n;
    d->world = (int)o->world.n;
    d->map_location = o->map_location;
    d->assume_order = o->assume_order;
    d->mesh = o->mesh;
    d->amp = o->amp;
    d->read_values = o->values;
}

bool inspect_doctor_torch(ckpt_loader loader)
{
    return loader != CKPT_LOADER_CKPT && loader < CKPT_LOADER_DCP;
}

void inspect_doctor_warn(const command_line *o, ckpt_loader loader)
{
    if (loader >= CKPT_LOADER_DCP && (o->torch.text || o->load_weights_only))
        cli_warn(&o->cli, "%s: what --for %s loads does not depend on it: it does not count",
                 !o->load_weights_only ? "--torch"
                 : o->torch.text       ? "--torch, --load-weights-only"
                                       : "--load-weights-only",
                 ckpt_loader_name(loader));
    if (loader == CKPT_LOADER_CKPT && (o->torch.text || o->load_weights_only))
        cli_warn(&o->cli, "%s: no torch is there when this library loads (--for ckpt): it does not count",
                 !o->load_weights_only ? "--torch"
                 : o->torch.text       ? "--torch, --load-weights-only"
                                       : "--load-weights-only");
}

void inspect_doctor_json_assumed(json_out *j, const command_line *o, const ckpt_doctor_options *d,
                                 const ckpt_doctor_result *r)
{
    char version[24];
    snprintf(version, sizeof version, "%d.%d", r->torch_major, r->torch_minor);
    bool torch = inspect_doctor_torch(r->loader);
    json_object(j, "assumed");
    json_text(j, "for", ckpt_loader_name(r->loader));
    json_text(j, "torch", torch ? version : NULL);
    json_bool_or_null(j, "load_weights_only", torch, r->load_weights_only);
    json_text(j, "optimizer", d->optimizer != CKPT_OPTIMIZER_DEFAULT ? ckpt_optimizer_kind_name(d->optimizer) : NULL);
    json_bool(j, "amp", r->amp);
    json_text(j, "map_location", o->map_location);
    json_int_or_null(j, "devices", d->cuda_device_count != 0, d->cuda_device_count > 0 ? d->cuda_device_count : 0);
    json_uint_or_null(j, "device_memory", d->device_memory != 0, d->device_memory);
    json_int_or_null(j, "world", d->world != 0, d->world);
    json_text(j, "mesh", d->mesh);
    json_bool(j, "values", d->read_values);
    json_end_object(j);
    json_object(j, "effective");
    json_bool_or_null(j, "fused", r->uses_fused >= 0, r->uses_fused > 0);
    json_bool_or_null(j, "capturable", r->uses_capturable >= 0, r->uses_capturable > 0);
    json_bool_or_null(j, "foreach", r->uses_foreach >= 0, r->uses_foreach > 0);
    json_end_object(j);
}

static void doctor_json_checked(json_out *j, const ckpt_doctor_result *r)
{
    json_object(j, "checked");
    json_uint(j, "bytes", r->read_bytes);
    json_uint(j, "tensors", r->read_tensors);
    json_uint(j, "unprotected_bytes", r->read_bytes - r->checked_bytes);
    json_uint(j, "unread_bytes", r->payload_bytes > r->read_bytes ? r->payload_bytes - r->read_bytes : 0);
    json_end_object(j);
}

static void doctor_json_places(json_out *j, const ckpt_doctor_result *r)
{
    json_array(j, "places");
    for (size_t i = 0; i < r->place_count; i++) {
        const ckpt_doctor_place *p = r->places[i];
        json_object(j, NULL);
        json_text(j, "from", *p->from ? p->from : NULL);
        json_text(j, "to", *p->to ? p->to : NULL);
        json_text(j, "role", ckpt_role_name(p->role));
        json_uint(j, "tensors", p->tensors);
        json_uint(j, "nbytes", p->nbytes);
        json_end_object(j);
    }
    json_end_array(j);
}

static void doctor_json(const command_line *o, const ckpt_doctor_options *d, const ckpt_doctor_result *r,
                        const ckpt_report *report, const char *snippet)
{
    json_out j;
    json_document(&j);
    if (r->outcome == CKPT_OUTCOME_UNKNOWN)
        cli_json_error(&o->cli, &j, "unknown", "whether it resumes is not known; the findings say what is missing");
    inspect_doctor_json_assumed(&j, o, d, r);
    json_text(&j, "outcome", ckpt_outcome_name(r->outcome));
    json_bool_or_null(&j, "will_resume", r->outcome != CKPT_OUTCOME_UNKNOWN && r->outcome != CKPT_OUTCOME_WEIGHTS_ONLY,
                      r->outcome == CKPT_OUTCOME_RESUMES || r->outcome == CKPT_OUTCOME_RESUMES_DIFFERENTLY);
    doctor_json_checked(&j, r);
    cli_json_findings(&j, report, NULL, CKPT_SEVERITY_NOTE);
    doctor_json_places(&j, r);
    if (snippet)
        json_text(&j, "snippet", snippet);
    json_end_object(&j);
}

/* A verdict is about what was looked at: the bytes of the tensors are not, unless they were asked for. */
static void say_checked(const command_line *o, const ckpt_doctor_result *r, char *buf, size_t size)
{
    char all[32], bare[32];
    if (r->payload_bytes == 0)
        snprintf(buf, size, "%s", "");
    else if (!o->values)
        snprintf(buf, size, "; values not read, see --values");
    else if (r->read_bytes > r->checked_bytes)
        snprintf(buf, size, "; %s read, %s of it have no checksum", cli_size(all, r->read_bytes),
                 cli_size(bare, r->read_bytes - r->checked_bytes));
    else
        snprintf(buf, size, "; %s read, all by their checksums", cli_size(all, r->read_bytes));
}

static void doctor_text(const command_line *o, const ckpt_doctor_result *r, const ckpt_report *report)
{
    static const char *const sentences[] = {"it is not known whether it resumes; ",
                                            "",
                                            "it resumes, with differences; ",
                                            "",
                                            "it loads, and fails at the first optimizer step; ",
                                            "it loads, and holds nothing to resume; "};
    const cli *c = &o->cli;
    bool bad = r->outcome == CKPT_OUTCOME_FAILS_AT_LOAD || r->outcome == CKPT_OUTCOME_FAILS_AT_STEP;
    cli_put(stdout, o->paths[0], strlen(o->paths[0]));
    printf(": %s%s%s ", cli_style(c, bad ? "red" : "bold"), ckpt_outcome_name(r->outcome), cli_style(c, "off"));
    char version[40] = "", safe[40] = "", kind[60] = "", job[40] = "", bytes[160], tail[460];
    if (o->mesh)
        snprintf(job, sizeof job, ", mesh %.28s", o->mesh);
    else if (o->world.text)
        snprintf(job, sizeof job, ", %llu rank%s", (unsigned long long)o->world.n, o->world.n == 1 ? "" : "s");
    if (inspect_doctor_torch(r->loader)) /* the version is torch's, whoever calls it */
        snprintf(version, sizeof version, "%s %d.%d", r->loader == CKPT_LOADER_TORCH ? "" : ", torch", r->torch_major,
                 r->torch_minor);
    if (inspect_doctor_torch(r->loader) && r->loader != CKPT_LOADER_TORCH_CPP)
        snprintf(safe, sizeof safe, ", weights_only=%s", r->load_weights_only ? "True" : "False");
    if (r->optimizer != CKPT_OPTIMIZER_DEFAULT)
        snprintf(kind, sizeof kind, ", optimizer %s", ckpt_optimizer_kind_name(r->optimizer));
    say_checked(o, r, bytes, sizeof bytes);
    snprintf(tail, sizeof tail, "(%sfor %s%s%s%s%s%s)", sentences[r->outcome], ckpt_loader_name(r->loader), version,
             safe, kind, job, bytes);
    cli_put_wrapped(stdout, tail,
                    cli_width(o->paths[0], strlen(o->paths[0])) + 3 + strlen(ckpt_outcome_name(r->outcome)), 4);
    cli_text_by_severity(c, stdout, report, NULL);
}

/* What the answer was, to people or as JSON; a snippet stands alone on standard output, so that it can be redirected. */
static int doctor_say(const command_line *o, const ckpt_reader *reader, const ckpt_doctor_options *d,
                      const ckpt_doctor_result *r, const ckpt_report *report)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    char *snippet = NULL;
    if (o->snippet && ckpt_doctor_snippet(reader, o->snippet, d, &snippet, &err) < 0)
        return cli_fail_error(c, &err);
    inspect_doctor_warn(o, r->loader);
    int reported = o->report ? report_doctor(o, reader, d, r, report) : CLI_YES;
    if (reported != CLI_YES) {
        free(snippet);
        return reported;
    }
    if (c->json) {
        doctor_json(o, d, r, report, snippet);
    } else if (snippet) {
        fputs(snippet, stdout);
        if (r->outcome != CKPT_OUTCOME_RESUMES && r->outcome != CKPT_OUTCOME_WEIGHTS_ONLY && !c->quiet)
            cli_text_findings(c, stderr, report, CKPT_SEVERITY_WARNING, NULL);
    } else {
        doctor_text(o, r, report);
    }
    free(snippet);
    if (r->outcome == CKPT_OUTCOME_UNKNOWN)
        return CLI_NO_ANSWER;
    return r->outcome == CKPT_OUTCOME_RESUMES || r->outcome == CKPT_OUTCOME_WEIGHTS_ONLY ? CLI_YES : CLI_NO;
}

int inspect_doctor(const command_line *o)
{
    const cli *c = &o->cli;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_doctor_options options;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    cli_progress shown;
    names list = {NULL, NULL, 0};
    ckpt_reader *reader = cli_open_quietly(c, o->paths[0], &err);
    const char *empty = reader && ckpt_reader_tensor_count(reader) == 0 ? ckpt_reader_format(reader) : "";
    if (folder_holds_several(o, reader ? NULL : &err, empty)) {
        ckpt_reader_close(reader);
        return MANY_INSIDE;
    }
    if (!reader)
        return cli_fail_error_of(c, o->paths[0], &err);
    ckpt_report *report = ckpt_report_new();
    int status = report ? -1 : cli_fail(c, "no-memory", "out of memory");
    inspect_doctor_options(o, &options);
    if (status < 0 && o->param_names)
        status = names_read(c, o->param_names, &list);
    if (status < 0) {
        options.param_names = list.items;
        options.param_name_count = list.count;
        cli_progress_init(&shown, c, "read");
        if (options.read_values) {
            cli_signals();
            options.progress = (ckpt_progress){cli_progress_step, &shown};
        }
        ckpt_status answer = ckpt_doctor(reader, &options, &result, report, &err);
        if (options.read_values)
            cli_progress_end(&shown);
        status = answer < 0 ? cli_fail_error(c, &err) : doctor_say(o, reader, &options, &result, report);
        if (answer >= 0)
            ckpt_doctor_result_clear(&result);
    }
    names_free(&list);
    ckpt_report_free(report);
    ckpt_reader_close(reader);
    return status;
}
