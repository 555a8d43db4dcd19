/* migrate/fix.c - --fix CODE: what a rewrite does about a finding of doctor. */
#include "migrate/migration.h"

#include <ckpt/doctor.h>
#include "doctor/mends.h"
#include "format/table.h"

static ckpt_status strip_wrappers(ckpt__migration *m, ckpt_error *err)
{
    if (m->options.strip_prefix_count)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "--fix prefix",
                          "--strip-prefix says already what to strip: leave one of the two out");
    m->options.strip_prefix = ckpt__wrappers;
    m->options.strip_prefix_count = CKPT__WRAPPERS;
    m->fixes_prefix = true;
    return CKPT_OK;
}

static ckpt_status apply(ckpt__migration *m, const ckpt__mend *mend, ckpt_error *err)
{
    ckpt_migrate_options *o = &m->options;
    const char *what = mend->what;
    for (size_t i = 0; i < ckpt_report_count(m->report); i++) {
        const ckpt_finding *f = ckpt_report_get(m->report, i);
        if (strcmp(f->code, "fix") == 0 && ckpt__begins(f->message, mend->code))
            return CKPT_OK; /* asked for already */
    }
    switch (mend->how) {
    case CKPT__MEND_POLICY:
        m->place = true;
        break;
    case CKPT__MEND_PLAIN:
        if (o->optimizer == CKPT_OPTIMIZER_DEFAULT)
            o->optimizer = CKPT_OPTIMIZER_PLAIN;
        break;
    case CKPT__MEND_FUSED:
        if (o->optimizer == CKPT_OPTIMIZER_DEFAULT)
            o->optimizer = CKPT_OPTIMIZER_FUSED;
        break;
    case CKPT__MEND_DEVICES:
        if (o->map_location)
            what = "the tags are those of --map-location";
        else
            o->map_location = "cuda:*=cuda:0";
        break;
    case CKPT__MEND_PREFIX:
        if (strip_wrappers(m, err) < 0)
            return CKPT_E_ARGUMENT;
        break;
    case CKPT__MEND_OBJECTS:
        o->plain = true;
        break;
    case CKPT__MEND_DEVICE_OBJECTS:
        if (!o->map_location)
            return ckpt__fail(err, CKPT_E_ARGUMENT, "--fix torch-device-object",
                              "add --map-location, which says where they go");
        o->map_device_objects = true;
        break;
    case CKPT__MEND_SALVAGE:
        o->salvage = true;
        break;
    }
    return ckpt__report_add(m->report, CKPT_SEVERITY_NOTE, "fix", NULL, NULL, "%s: %s", mend->code, what)
               ? CKPT_OK
               : ckpt__migration_no_memory(err);
}

/* The mends of what doctor finds for one loader. */
static ckpt_status apply_found(ckpt__migration *m, const ckpt_reader *reader, ckpt_loader loader, ckpt_error *err)
{
    ckpt_doctor_options asked = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result answer = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    asked.loader = loader;
    ckpt_status status = report ? ckpt_doctor(reader, &asked, &answer, report, err) : ckpt__migration_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        const ckpt__mend *mend = f->severity > CKPT_SEVERITY_NOTE ? ckpt__mend_of(f->code) : NULL;
        if (mend)
            status = apply(m, mend, err);
    }
    ckpt_doctor_result_clear(&answer);
    ckpt_report_free(report);
    return status;
}

/* What doctor would print, for a trainer in C and for torch. */
static ckpt_status apply_all(ckpt__migration *m, ckpt_error *err)
{
    ckpt_reader_options reading = {.struct_size = sizeof reading,
                                   .format = m->options.from,
                                   .also = m->options.also,
                                   .also_count = m->options.also_count};
    ckpt_reader *reader = NULL;
    ckpt_error damage = CKPT_ERROR_INIT;
    ckpt_status status = ckpt_reader_open(m->src, &reading, &reader, &damage);
    if (status == CKPT_E_DAMAGED)
        return apply(m, ckpt__mend_of("truncated"), err);
    if (status < 0 && err)
        *err = damage;
    if (status == CKPT_OK)
        status = apply_found(m, reader, CKPT_LOADER_CKPT, err);
    if (status == CKPT_OK && ckpt__format_of(reader->index)->torch_loads)
        status = apply_found(m, reader, CKPT_LOADER_TORCH, err);
    ckpt_reader_close(reader);
    return status;
}

static ckpt_status no_mend(const char *code, ckpt_error *err)
{
    ckpt__buf list = {0};
    char shown[80];
    for (size_t i = 0; i < ckpt__mend_count; i++)
        ckpt__buf_printf(&list, "%s%s", i ? ", " : "", ckpt__mends[i].code);
    ckpt_status status =
        ckpt__fail(err, CKPT_E_ARGUMENT, ckpt__escape(shown, sizeof shown, code, strlen(code)),
                   "there is no automatic fix for this code; --fix takes %s, and all", list.data ? list.data : "");
    ckpt__buf_free(&list);
    return status;
}

ckpt_status ckpt__migrate_fixes(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->options.fix_count; i++) {
        const char *code = m->options.fix[i];
        const ckpt__mend *mend = ckpt__mend_of(code);
        if (strcmp(code, "all") == 0)
            status = apply_all(m, err);
        else
            status = mend ? apply(m, mend, err) : no_mend(code, err);
    }
    return status;
}
