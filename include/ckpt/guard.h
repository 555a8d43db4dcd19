/* ckpt/guard.h - is all that a fused optimizer touches on one device? Asked of the driver, not of tags. */
#ifndef CKPT_GUARD_H
#define CKPT_GUARD_H

#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/report.h>
#include <ckpt/state.h>

CKPT_BEGIN_DECLS

/* Further checks. Zero: the state alone is checked. The list is borrowed during the call. */
typedef struct ckpt_guard_options {
    uint32_t struct_size; /* by the initializer */
    bool check_rank;      /* a tensor on another device than `own` is a finding ("rank-device") */
    ckpt_device own;      /* this rank's device */
    ckpt_ranks ranks;
    const ckpt_device
        *wanted; /* devices that the run wants to use; one that holds nothing is a finding ("idle-device") */
    size_t wanted_count;
} ckpt_guard_options;
#define CKPT_GUARD_OPTIONS_INIT CKPT_SIZED(ckpt_guard_options)

/* Each parameter with its moments, master and step, against the placement policy for `kind`: CKPT_OK, or CKPT_ANSWER_NO with
 * findings (mixed-devices, step-on-cpu, step-on-gpu-slow, split, unmapped, managed, rank-device, idle-device). The
 * error, when given, holds torch's sentence and the first tensors. report may be NULL; its device rows say what each
 * device holds. */
ckpt_status ckpt_guard(ckpt_state *state, ckpt_optimizer_kind kind, const ckpt_guard_options *options,
                       ckpt_report *report, ckpt_error *err);

CKPT_END_DECLS
#endif
