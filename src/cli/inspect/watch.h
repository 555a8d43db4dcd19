/* cli/inspect/watch.h - show --watch. */
#ifndef CKPT_CLI_INSPECT_WATCH_H
#define CKPT_CLI_INSPECT_WATCH_H
#include "cli/inspect/inspect.h"

/* Answers for the command line, everything said, and returns its exit status. */
typedef int (*watch_fn)(const command_line *o, size_t command);

/* Asks now, and again each time that the checkpoints of the one PATH have changed and have then stayed as they are for a second.
 * Returns on an error of the first answer, on a signal, and where PATH is gone. */
int watch_show(const command_line *o, size_t command, watch_fn ask);
#endif
