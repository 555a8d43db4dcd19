/* run/map.c - the map of a resume. It is read before any checkpoint is looked for, so that its errors are its own, in a
 * new run too; and once, so that a file which goes later does no harm. */
#include "run/run.h"

#include <stdlib.h>
#include "base/first_sizes.h"
#include "map/map.h"

/* options.restore, with what this run adds to it. */
static ckpt_status restore_options(const ckpt_run *run, ckpt_restore_options *out, ckpt_error *err)
{
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_restore_options, out, run->options.restore, err);
    if (status < 0)
        return status;
    out->format = "ckpt"; /* steps of a run are ours: without its manifest one is no model's directory, but damaged */
    if (out->ranks.world == 0)
        out->ranks = run->options.ranks;
    return CKPT_OK;
}

static bool has_text(const ckpt_restore_options *o)
{
    return !o->map && o->map_location && *o->map_location;
}

ckpt_status ckpt__run_map_open(ckpt_run *run, ckpt_error *err)
{
    ckpt_restore_options o;
    ckpt_status status = restore_options(run, &o, err);
    if (status < 0 || !has_text(&o))
        return status;
    if (!(run->map_text = strdup(o.map_location)))
        return ckpt__fail_memory(err, "the map", 0);
    return ckpt_map_parse(o.map_location, &run->map, err);
}

/* One device for every tensor, and it is not there: no checkpoint need be looked for to say so. */
static ckpt_status check_device(const ckpt_restore_options *o, ckpt_report *report, ckpt_error *err)
{
    ckpt__target to;
    bool one = false;
    char name[CKPT_DEVICE_NAME_MAX];
    ckpt_status status = ckpt__map_one(o->map, &o->ranks, &to, &one, err);
    if (status < 0 || !one)
        return status;
    if (to.device.type == CKPT_DEVICE_CPU || to.device.type == CKPT_DEVICE_CUDA)
        status = ckpt_device_check(to.device, err);
    else
        status = ckpt__fail(
            err, CKPT_E_DEVICE, ckpt__target_name(&to, name),
            "no such device: the map sends every tensor there, and this library places tensors on cpu and cuda "
            "only");
    if (status == CKPT_E_DEVICE && err &&
        !ckpt__report_add(report, CKPT_SEVERITY_ERROR, "no-such-device", NULL,
                          "give a map_location that names a device that is there",
                          "the map sends every tensor to %s: %s", ckpt__target_name(&to, name), err->message))
        return ckpt__fail_memory(err, "report", 0);
    return status;
}

ckpt_status ckpt__run_map_take(const ckpt_run *run, const char *argument, ckpt_restore_options *out, ckpt_map **own,
                               ckpt_report *report, ckpt_error *err)
{
    *own = NULL;
    ckpt_status status = restore_options(run, out, err);
    if (status < 0)
        return status;
    if (argument) { /* it counts instead of both that the options have */
        out->map_location = argument;
        out->map = NULL;
    }
    if (has_text(out) && !argument && run->map && strcmp(run->map_text, out->map_location) == 0)
        out->map = run->map;
    else if (has_text(out)) {
        if ((status = ckpt_map_parse(out->map_location, own, err)) < 0)
            return status;
        out->map = *own;
    }
    out->map_location = NULL;
    return out->map ? check_device(out, report, err) : CKPT_OK;
}
