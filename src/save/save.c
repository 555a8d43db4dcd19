/* save/save.c - ckpt_save: an index of the state, and its bytes while it stands still. */
#include "save/save.h"
#include "state/state.h"
#include "format/table.h"
#include "base/first_sizes.h"

static ckpt_status check_options(ckpt__save_job *v, const ckpt_state *state, const ckpt_save_options *options,
                                 ckpt_error *err)
{
    const char *format = "ckpt";
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_save_options, &v->options, options, err);
    if (status < 0)
        return status;
    if (v->options.format)
        format = v->options.format;
    v->format = ckpt__format_find(format);
    if (!v->format || !v->format->write)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, v->path, "format '%s' is not written; 'ckpt' and 'safetensors' are",
                          format);
    if (v->options.directory && !v->format->has_manifest)
        return ckpt__fail(err, CKPT_E_ARGUMENT, v->path, "a step directory is written in format 'ckpt' only");
    if (!v->format->holds_state && !v->options.weights_only && !v->options.lossy)
        return ckpt__fail(err, CKPT_E_ARGUMENT, v->path,
                          "plain safetensors holds tensors alone: ask for weights_only, or permit the loss with lossy");
    if (state->poisoned)
        return ckpt__fail(err, CKPT_E_POISONED, v->path,
                          "the last restore failed midway and the state holds a mixture; restore a checkpoint first");
    return CKPT_OK;
}

ckpt_status ckpt_save(ckpt_state *state, const char *path, const ckpt_save_options *options, ckpt_error *err)
{
    ckpt__save_job job = {.path = path};
    ckpt__state_index saved = {.index = NULL};
    ckpt__live live = {.state = NULL};
    if (!state || !path || !*path)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_save", "a NULL state or path");
    ckpt_status status = check_options(&job, state, options, err);
    if (job.options.report)
        ckpt_report_clear(job.options.report);
    if (status == CKPT_OK && job.options.report && !job.options.weights_only)
        status = ckpt__state_moments(state, job.options.report, err);
    if (status == CKPT_OK)
        status = ckpt__state_index_take(state, job.options.weights_only, path, &saved, err);
    if (status == CKPT_OK)
        status = ckpt__live_open(&live, state, &saved, &job.payload, err);
    job.saved = &saved;
    job.live = &live;
    if (status == CKPT_OK)
        status = job.options.directory ? ckpt__save_directory(&job, NULL, err) : ckpt__save_file(&job, err);
    ckpt__live_close(&live, NULL); /* after a failure; otherwise it is closed already */
    ckpt__state_index_free(&saved);
    return status;
}
