/* run/back.c - a run that goes back to an earlier step: what is later is kept, under names at which no one looks. */
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "io/aside.h"

/* "step-00000060 as aside-step-00000060, step-00000050 as ... and 2 more" */
static void list_names(ckpt__buf *text, const char *const *names, const ckpt__aside_name *kept, size_t n)
{
    enum { NAMED = 4 };
    size_t moved = 0;
    for (size_t i = 0; i < n; i++)
        if (kept[i].text[0] && moved++ < NAMED)
            ckpt__buf_printf(text, "%s%s as %s", moved > 1 ? ", " : "", names[i], kept[i].text);
    if (moved > NAMED)
        ckpt__buf_printf(text, " and %zu more", moved - NAMED);
}

static ckpt_status tell(ckpt_run *run, int64_t step, const char *const *names, const ckpt__aside_name *kept, size_t n,
                        ckpt_report *report, ckpt_error *err)
{
    ckpt__buf text = {0};
    char fix[128];
    list_names(&text, names, kept, n);
    const char *moved = text.data && !text.failed ? text.data : "";
    snprintf(fix, sizeof fix, "take resume_step away for the next start, or it goes back to step %" PRId64 " again",
             step);
    bool ok = true;
    if (*moved) {
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "kept-aside", fix,
                       "the run goes back to step %" PRId64 "; what is later is kept: %s", step, moved);
        ok = ckpt__report_add(report, CKPT_SEVERITY_WARNING, "kept-aside", NULL, fix,
                              "the run goes back to step %" PRId64 "; what is later is kept: %s", step, moved) &&
             ckpt__report_detail(report, run->store->path, NULL, NULL, 0);
    }
    ckpt__buf_free(&text);
    return ok ? CKPT_OK : ckpt__fail_memory(err, "report", 0);
}

/* Those that were restored from or read back, without what is gone from under its name. */
static void mend_hints(ckpt_run *run, int64_t step, const ckpt__held *list, size_t count)
{
    char name[CKPT__STEP_NAME];
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__step_name(name, step);
    for (size_t i = 0; i < count; i++)
        if (list[i].step == step)
            snprintf(name, sizeof name, "%s", list[i].name);
    ckpt__run_write_latest(run, name);
    if (ckpt__held_mark_verified(run->store, list, count, NULL, &err) < 0)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "hint-failed", NULL, "the hint 'verified' could not be written: %s",
                       err.message);
}

ckpt_status ckpt__run_keep_aside(ckpt_run *run, int64_t step, ckpt__held *list, size_t *count, ckpt_report *report,
                                 ckpt_error *err)
{
    size_t n = 0;
    while (n < *count && list[n].step > step) /* they are in order, newest first: a kill leaves the older ones */
        n++;
    const char **names = calloc(n + 1, sizeof *names);
    ckpt__aside_name *kept = calloc(n + 1, sizeof *kept);
    ckpt_status status = names && kept ? CKPT_OK : ckpt__fail_memory(err, run->path, n);
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        names[i] = list[i].name;
    if (status == CKPT_OK && n)
        status = ckpt__aside_keep(run->store, names, n, kept, err);
    if (status < 0)
        ckpt__error_prefix(err,
                           "step %" PRId64
                           " is restored, and what is later could not all be kept aside; call again, or move "
                           "it out of the run directory by hand",
                           step);
    if (names && kept) {
        ckpt_status told = tell(run, step, names, kept, n, report, status < 0 ? NULL : err);
        status = status < 0 ? status : told;
    }
    if (status == CKPT_OK) {
        memmove(list, list + n, (*count - n) * sizeof *list);
        *count -= n;
        mend_hints(run, step, list, *count);
    }
    free(names);
    free(kept);
    return status;
}
