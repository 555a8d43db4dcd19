/* util.h - what the samples share. An error is said on one line, and ends the program with status 1. */
#ifndef SAMPLE_UTIL_H
#define SAMPLE_UTIL_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <ckpt/train.h>

#ifdef __GNUC__
__attribute__((format(printf, 1, 2), noreturn))
#endif
static inline void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* Ends the program where a call of the library answered with an error. */
static inline void check(ckpt_status status, const ckpt_error *err)
{
    if (status >= 0)
        return;
    if (err->object[0])
        die("%s: %s", err->object, err->message);
    die("%s", err->message);
}

static inline void *allocate(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (!p)
        die("out of memory");
    return p;
}

/* What a restore wants the user to know, one line each; what is wrong is in its error. */
static inline void print_warnings(const ckpt_report *report)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (f->severity == CKPT_SEVERITY_WARNING)
            fprintf(stderr, "warning: %s%s%s%s%s\n", f->tensor, f->tensor[0] ? ": " : "", f->message,
                    f->fix[0] ? "; " : "", f->fix);
    }
}

/* torch's GradScaler.update: after a step with an infinite gradient a smaller scale, after growth_interval without one
 * a larger. */
static inline void update_scaler(ckpt_scaler *s, bool found_inf)
{
    if (found_inf) {
        s->scale *= s->backoff_factor;
        s->growth_tracker = 0;
    } else if (++s->growth_tracker == s->growth_interval) {
        if (isfinite((float)(s->scale * s->growth_factor)))
            s->scale *= s->growth_factor;
        s->growth_tracker = 0;
    }
}

#endif
