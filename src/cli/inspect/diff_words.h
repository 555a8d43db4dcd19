/* cli/inspect/diff_words.h - one difference in words: all but its status and its name. */
#ifndef CKPT_CLI_INSPECT_DIFF_WORDS_H
#define CKPT_CLI_INSPECT_DIFF_WORDS_H
#include "cli/inspect/inspect.h"

bool diff_same_text(ckpt_str a, ckpt_str b);
/* What a tensor is that is in one alone; else what differs in it but for the values. Two blanks before each part. */
void diff_put_change(FILE *f, const ckpt_diff_tensor *t);
/* ": 3 of 4 values, max ...", for one whose values differ. */
void diff_put_values(FILE *f, const ckpt_diff_tensor *t);
/* "3 -> 4"; what is in one alone by itself. */
void diff_put_scalar(FILE *f, const ckpt_diff_scalar *s);
#endif
