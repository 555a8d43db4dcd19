/* ckpt/report.h - findings: what a call noticed, did, or could not do, one record each. */
#ifndef CKPT_REPORT_H
#define CKPT_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <ckpt/device.h>
#include <ckpt/tensor.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_severity { CKPT_SEVERITY_NOTE = 0, CKPT_SEVERITY_WARNING, CKPT_SEVERITY_ERROR } ckpt_severity;
const char *ckpt_severity_name(ckpt_severity severity); /* "note", "warning", "error" */

/* One way to fix a finding: one line, which is pasted alone. Kinds: "shell" (a whole command), "python", "c", "config" (a
 * setting of a file) and "advice" (a sentence). The library makes the struct; it may grow. */
typedef struct ckpt_fix {
    const char *kind;
    const char *text;
} ckpt_fix;

/* The library makes the struct; it may grow. Strings live as long as the report; "" where there is none, never NULL. The
 * codes are listed in ckpt.3. */
typedef struct ckpt_finding {
    const char *code; /* stable and short: "step-on-cpu", "moved", "missing", "crc-mismatch", ... */
    ckpt_severity severity;
    const char *message;
    const char *fix; /* what to do or paste: the texts of `fixes` in one */
    const char *tensor;
    const char *file;
    const char *from, *to; /* devices or dtypes, for "moved" and "cast" */
    uint64_t nbytes;
    const ckpt_fix *const *fixes; /* each does it alone; NULL where there is none */
    size_t fix_count;
} ckpt_finding;

/* One row for each device: what it holds. The library makes the struct; it may grow. */
typedef struct ckpt_device_use {
    ckpt_device device;
    uint64_t tensors;
    uint64_t nbytes;
    const uint64_t *by_role; /* bytes by role, by_role[CKPT_ROLE_PARAM] and so on; lives as long as the report */
    size_t role_count;       /* entries of by_role: ckpt_role_count() of the library */
} ckpt_device_use;

typedef struct ckpt_report ckpt_report;

ckpt_report *ckpt_report_new(void); /* NULL when memory is short */
void ckpt_report_free(ckpt_report *report);
void ckpt_report_clear(ckpt_report *report);
size_t ckpt_report_count(const ckpt_report *report);
const ckpt_finding *ckpt_report_get(const ckpt_report *report, size_t i); /* NULL past the end */
size_t ckpt_report_count_code(const ckpt_report *report, const char *code);
const ckpt_finding *ckpt_report_find(const ckpt_report *report, const char *code, const char *tensor); /* either NULL */
ckpt_severity ckpt_report_worst(const ckpt_report *report);
size_t ckpt_report_device_count(const ckpt_report *report);
const ckpt_device_use *ckpt_report_device(const ckpt_report *report, size_t i);

CKPT_END_DECLS
#endif
