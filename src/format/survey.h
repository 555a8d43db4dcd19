/* format/survey.h - a checkpoint of several files of which some are damaged: each is said, and the others are read. This is
 * how a directory is verified. A salvage goes further, and reads what is whole of the damaged ones too. */
#ifndef CKPT_SURVEY_H
#define CKPT_SURVEY_H
#include "format/format.h"

/* The code of a damage that kept a file from being opened, by what was said of it: "crc-mismatch", "truncated",
 * "shard-missing", else "damaged". */
const char *ckpt__damage_code(const char *message);
/* What to do about a file of that damage, whose tensors are not known; NULL: nothing more than its message says. */
const char *ckpt__damage_fix(const char *code);
/* What a survey passes over: the file is damaged, by its content none of this checkpoint, or of a kind that is not read
 * ("member-unread"). */
bool ckpt__survey_passes(ckpt_status status);
/* Is a file that failed so left out of what is read, with a finding, and are the others read? A survey says of what is not read that it is
 * not; who reads on otherwise does not take the rest of that for all. */
bool ckpt__survey_leaves(const ckpt__read_request *request, ckpt_status status);
/* Is what is damaged or missing of a checkpoint of several files a finding, and the rest read? */
bool ckpt__survey_goes_on(const ckpt__read_request *request);
/* A file of a rank is missing, damaged or of another run (CKPT_E_MISMATCH): a finding where reading goes on, else the error `why`. */
ckpt_status ckpt__survey_lack(const ckpt__read_request *request, ckpt_report *findings, const char *file,
                              ckpt_status status, const ckpt_error *why, ckpt_error *err);
/* One finding about `file`, whose reading failed with `status` and `why`. */
ckpt_status ckpt__survey_note(ckpt_report *findings, const char *file, ckpt_status status, const ckpt_error *why,
                              ckpt_error *err);
/* The finding "pieces-missing": the files have so many of the elements of a tensor that is split. */
ckpt_status ckpt__survey_pieces(ckpt_report *findings, ckpt_str tensor, uint64_t elements, uint64_t of,
                                ckpt_error *err);
#endif
