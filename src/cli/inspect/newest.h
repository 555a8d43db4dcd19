/* cli/inspect/newest.h - a PATH of list, tree, stats, extract or diff that holds several checkpoints stands for the newest of them. */
#ifndef CKPT_CLI_INSPECT_NEWEST_H
#define CKPT_CLI_INSPECT_NEWEST_H
#include "cli/inspect/inspect.h"

/* Opens o->paths[which]. Where that is a run directory, or a folder of checkpoints, its newest complete checkpoint is opened: a line on
 * standard error says which, --json has it as "taken", and o->paths[which] is that checkpoint from then on. With several ranks the
 * directories of all of them are read. Where the newest is not known nothing is taken: an error names some. NULL: the error was said. */
ckpt_reader *newest_open(const command_line *o, size_t which);
/* Call at the end: the PATHs that were taken are freed. */
void newest_free(void);
#endif
