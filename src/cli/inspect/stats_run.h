/* cli/inspect/stats_run.h - stats --run: numbers of a run, a line per checkpoint. */
#ifndef CKPT_CLI_INSPECT_STATS_RUN_H
#define CKPT_CLI_INSPECT_STATS_RUN_H
#include "cli/inspect/inspect.h"

/* Of the checkpoints of a run directory or of a folder, by step. The payload of the selected tensors of each is read. */
int stats_run(const command_line *o);
#endif
