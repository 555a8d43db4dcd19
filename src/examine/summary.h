/* examine/summary.h - what the files of summary share: summary.c (the answer), summary_find.c (optimizers, schedulers and marks,
 * wherever they lie), summary_state.c (parameters beside optimizer state). */
#ifndef CKPT_CORE_SUMMARY_H
#define CKPT_CORE_SUMMARY_H
#include <ckpt/summary.h>
#include "anatomy/anatomy.h"
#include "anatomy/canon.h"
#include "reader/reader.h"
#include "anatomy/producer.h"
#include "model/value_path.h"

/* A copy in out->owned; data NULL where there is no memory, or nothing was given. */
static inline ckpt_str ckpt__summary_keep(ckpt_summary *out, ckpt_str text)
{
    return text.data ? ckpt__arena_str(out->owned, text.data, text.size) : text;
}

/* summary.c. ckpt_summarize, by an anatomy of the reader's index that is there already and whole; NULL: by one of its own. *out is
 * overwritten, and zero after an error. */
ckpt_status ckpt__summarize_by(const ckpt_reader *reader, ckpt__anatomy *anatomy, ckpt_summary *out, ckpt_error *err);

/* ---- summary_find.c */
/* How many optimizers and schedulers there are, the first of them, and their classes. */
void ckpt__summary_find(const ckpt__anatomy *anatomy, ckpt_summary *out);
/* The marks of a checkpoint (ckpt_summary.marks): what is unusual about it. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__summary_marks(const ckpt__index *index, const ckpt_reader *reader, ckpt_summary *out,
                                ckpt_error *err);
/* The kernels of an optimizer's groups in one word, one group after the other (so_far NULL: the first); "mixed": they differ. */
const char *ckpt__summary_kind(const char *so_far, ckpt__flags flags);

/* ---- summary_state.c. states: how many the optimizer's dict holds, where some are in no group; else 0. */
ckpt_status ckpt__summary_state(const ckpt__index *index, const ckpt__canon *canon, size_t states, ckpt_summary *out,
                                ckpt_error *err);
#endif
