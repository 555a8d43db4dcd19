/* ckpt/summary.h - whose a checkpoint is, and how far it is, in the terms of the program that wrote it. */
#ifndef CKPT_SUMMARY_H
#define CKPT_SUMMARY_H

#ifndef CKPT_EXPERIMENTAL
#error "<ckpt/summary.h> is young and may change with each release: define CKPT_EXPERIMENTAL before the include"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/reader.h>

CKPT_BEGIN_DECLS

/* How well it did, by what the producer keeps of it. The struct never grows: it is a field of ckpt_summary. */
typedef struct ckpt_score {
    ckpt_str name; /* "val_loss"; data NULL: not said */
    bool has_best, has_current;
    double best;    /* so far in the run */
    double current; /* of this checkpoint */
} ckpt_score;

enum { CKPT_SUMMARY_NAMES = 8 };

/* Parameters beside optimizer state, where both are here and it is known what belongs to what. The struct never grows: it is a
 * field of ckpt_summary. */
typedef struct ckpt_summary_state {
    bool known;
    uint64_t params;                            /* ties count once */
    uint64_t without_state;                     /* parameters that have no optimizer state */
    ckpt_str without_names[CKPT_SUMMARY_NAMES]; /* the first of them, data NULL behind the last */
    uint64_t without_param;                     /* states that belong to no parameter of the checkpoint */
    ckpt_str without_param_names[CKPT_SUMMARY_NAMES];
} ckpt_summary_state;

/* The training state as `show` prints it: found by structure. data NULL: not found. Texts live until ckpt_summary_clear,
 * values until the reader is closed. */
typedef struct ckpt_summary {
    uint32_t struct_size;      /* by the initializer */
    const char *producer;      /* "ckpt", "torch", "libtorch", "Lightning", "accelerate", ...; NULL: not known */
    ckpt_str producer_version; /* "2.6.6" */
    ckpt_str version_of;       /* whose version that is where it is not the producer's own: "transformers" */
    bool rewritten;            /* a checkpoint of ours that was made from the producer's file */
    bool bare;                 /* a state_dict of weights and nothing else */
    ckpt_str marks; /* what is special, parted by ", ": "bitsandbytes 8-bit optimizer", "PEFT LORA adapter" */
    ckpt_str model_path, optimizer_path, scaler_path, scheduler_path, ema_path;
    const ckpt_value *optimizer; /* the dict with state and param_groups, or NULL */
    const ckpt_value *scaler;
    const ckpt_value *scheduler;               /* its state_dict; the first of several */
    uint64_t optimizer_count, scheduler_count; /* that the checkpoint holds */
    const char *optimizer_class; /* "AdamW", "Adam or AdamW" where the file does not tell them apart; NULL: not known */
    const char *scheduler_class; /* "StepLR"; NULL: not known */
    ckpt_str precision;          /* "MixedPrecision", "bf16": as the producer calls it */
    uint64_t ema_count;          /* tensors of averaged weights */
    int64_t step, epoch;         /* -1: not found; a fraction of an epoch is cut off */
    double epoch_exact;          /* the same with its fraction; -1: not found */
    ckpt_score score;
    ckpt_summary_state state;
    ckpt_str optimizer_kind; /* "fused", ... by the saved flags */
    /* How the producer's own program goes on: lines of code, parted by '\n', with {path} where the path belongs, {load}
     * where torch.load is told ", weights_only=False" if the file needs it, and {device} for the device of the weights. */
    ckpt_str resume;
    ckpt_str resume_file; /* in a directory: the file that {path} is, data NULL: the directory */
    void *owned;          /* what the texts point into */
} ckpt_summary;
#define CKPT_SUMMARY_INIT CKPT_SIZED(ckpt_summary)

/* Fills *out, which must hold no summary: take it as it was initialized, or after ckpt_summary_clear. After an error it holds
 * nothing. */
ckpt_status ckpt_summarize(const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err);
void ckpt_summary_clear(ckpt_summary *summary); /* accepts one that holds nothing, and NULL */

CKPT_END_DECLS
#endif
