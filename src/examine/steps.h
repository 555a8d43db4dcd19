/* examine/steps.h - are the files of ranks of one save? */
#ifndef CKPT_EXAMINE_STEPS_H
#define CKPT_EXAMINE_STEPS_H
#include <ckpt/report.h>
#include "io/source.h"
#include "model/index.h"

/* Adds "mixed-steps" to the report where all steps that an optimizer has in one file are the same, and another number in another file: an
 * error where each has several, else a warning. most: how many steps of one optimizer are read of one file. Of a checkpoint in one
 * file nothing is read. What cannot be read is passed over. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__steps_compare(const ckpt__source *source, const ckpt__index *index, size_t most, ckpt_report *report,
                                ckpt_error *err);
#endif
