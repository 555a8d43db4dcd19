/* engine/cover.h - do the pieces of a tensor make it whole? A restore and a migration ask the plan; who only looks asks here. */
#ifndef CKPT_COVER_H
#define CKPT_COVER_H
#include "model/index.h"

/* An error finding for each split tensor whose pieces do not have all of its elements ("pieces-missing"), or have one twice
 * ("pieces-overlap"). No byte is read. CKPT_E_LIMIT: it takes more comparisons than the plan makes. */
ckpt_status ckpt__cover_note(const ckpt__index *index, ckpt_report *findings, ckpt_error *err);
/* Does a report have such a finding already? */
bool ckpt__cover_noted(const ckpt_report *findings);
#endif
