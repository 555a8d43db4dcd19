/* examine/summary.h - what the files of summary share: summary.c (the answer), summary_find.c (optimizers, schedulers and marks,
 * wherever they lie), summary_state.c (parameters beside optimizer state). */
#ifndef CKPT_CORE_SUMMARY_H
#define CKPT_CORE_SUMMARY_H
#include <ckpt/summary.h>
#include "anatomy/canon.h"
#include "engine/engine.h"
#include "anatomy/producer.h"

/* A copy in out->owned; data NULL where there is no memory, or nothing was given. */
ckpt_str ckpt__summary_keep(ckpt_summary *out, ckpt_str text);
/* The value of a dotted path; keys may hold dots. `code` (may be NULL) gets it as Python writes it, ["a"][0]; it is marked
 * as failed where a key cannot be written. */
const ckpt_value *ckpt__summary_at(const ckpt_value *root, ckpt_str path, ckpt__buf *code);

/* ---- summary_find.c */
/* Optimizers and schedulers by their structure; their classes; what is special. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__summary_find(const ckpt__index *index, ckpt_summary *out, ckpt_error *err);
ckpt_status ckpt__summary_marks(const ckpt__index *index, const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err);
const char *ckpt__optimizer_class(const ckpt_value *optimizer);      /* NULL: it cannot be told */
const char *ckpt__scheduler_class(const ckpt_value *scheduler);

/* ---- summary_state.c. states: how many the optimizer's dict holds, where some are in no group; else 0. */
ckpt_status ckpt__summary_state(const ckpt__index *index, const ckpt__canon *canon, size_t states, ckpt_summary *out,
                                ckpt_error *err);
#endif
