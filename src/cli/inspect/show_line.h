/* cli/inspect/show_line.h - show of several PATHs: a line each, when all are known. */
#ifndef CKPT_CLI_INSPECT_SHOW_LINE_H
#define CKPT_CLI_INSPECT_SHOW_LINE_H
#include "cli/out/command_line.h"

/* What is said of one. Texts are copied; NULL, and below 0 for step and epoch, is not known. */
typedef struct show_line {
    const char *path, *format, *producer, *verdict;
    int64_t step, epoch;
    double epoch_exact;          /* 1.5 where epoch is 1 */
    uint64_t parameters, nbytes; /* parameters 0: not known */
    bool bad;                    /* it has no answer: only path and verdict count */
} show_line;

/* Is the PATH one of several that get a line each? Not with -v, --json, --by or --report. */
bool show_lines_wanted(const command_line *o);
bool show_line_add(const show_line *line); /* false: no memory */
size_t show_line_count(void);
/* All that were added, and they are forgotten. */
void show_lines_put(const cli *c);
#endif
