/* ckpt/summary.h - whose a checkpoint is, and how far it is, in the terms of the program that wrote it. */
#ifndef CKPT_SUMMARY_H
#define CKPT_SUMMARY_H

#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/reader.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What `show` says of the training state: found by structure. data NULL: not found. The paths live until
 * ckpt_summary_clear, values until the reader is closed. */
typedef struct ckpt_summary {
    const char *producer;         /* "ckpt", "torch", "libtorch", "Lightning", "accelerate", ...; NULL: not known */
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
