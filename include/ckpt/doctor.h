/* ckpt/doctor.h - will it resume? If not, or not as meant: why, and what to do. */
#ifndef CKPT_DOCTOR_H
#define CKPT_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/reader.h>
#include <ckpt/report.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum ckpt_outcome {
    CKPT_OUTCOME_UNKNOWN = 0, CKPT_RESUMES, CKPT_RESUMES_DIFFERENTLY, CKPT_FAILS_AT_LOAD, CKPT_FAILS_AT_STEP
} ckpt_outcome;
const char *ckpt_outcome_name(ckpt_outcome outcome);     /* "resumes-differently" */

typedef enum ckpt_loader { CKPT_LOADER_CKPT = 0, CKPT_LOADER_TORCH } ckpt_loader;

typedef struct ckpt_doctor_options {
    uint32_t struct_size;
    ckpt_loader loader;
    int torch_major, torch_minor; /* 0.0: the newest known (2.13) */
    ckpt_optimizer_kind optimizer;/* what the program constructs; DEFAULT: the saved flags */
    const char *map_location;     /* NULL: what the loader does by itself */
    int cuda_devices;             /* how many the target has; -1: not said */
    const char *const *param_names;
    size_t param_name_count;
    int load_weights_only;        /* torch.load(weights_only=...): 1 yes, -1 no, 0: that version's default */
    bool amp;                     /* the program has an enabled GradScaler (assumed when the file has a scaler's state) */
} ckpt_doctor_options;

typedef struct ckpt_doctor_result {
    ckpt_outcome outcome;
    ckpt_loader loader;
    int torch_major, torch_minor;
    ckpt_optimizer_kind optimizer;
    int fused, capturable, foreach_;   /* after the load: 1, 0, or -1 for None/absent */
    bool load_weights_only, amp;  /* assumed */
} ckpt_doctor_result;

ckpt_status ckpt_doctor(const ckpt_reader *reader, const ckpt_doctor_options *options, ckpt_doctor_result *result,
                        ckpt_report *report, ckpt_error *err);

/* What `show` says of the training state: found by structure. data NULL: not found. The paths live until
 * ckpt_summary_clear, values until the reader is closed. */
typedef struct ckpt_summary {
    const char *producer;         /* "ckpt", "VAR", "torch"; NULL: not known */
    ckpt_str model_path, optimizer_path, scaler_path;
    const ckpt_value *optimizer;  /* the dict with state and param_groups, or NULL */
    const ckpt_value *scaler;
    int64_t step, epoch;          /* -1: not found */
    ckpt_str optimizer_kind;      /* "fused", ... by the saved flags */
    char *owned;                  /* what the paths point into */
} ckpt_summary;
ckpt_status ckpt_summarize(const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err);
void ckpt_summary_clear(ckpt_summary *summary);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
