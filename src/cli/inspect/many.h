/* cli/inspect/many.h - one command for several PATHs, and for the checkpoints of a folder. */
#ifndef CKPT_CLI_INSPECT_MANY_H
#define CKPT_CLI_INSPECT_MANY_H
#include "cli/inspect/inspect.h"

/* PATHs, each owned by the list. */
typedef struct path_list {
    char **items; /* heap, owned; NULL: none */
    size_t count;
} path_list;
bool path_list_add(path_list *list, const char *path); /* copies it; false: no memory */
void path_list_free(path_list *list);

/* Answers for the one PATH of the command line and returns its exit status, everything said. MANY_INSIDE, with nothing said: PATH is a
 * folder of checkpoints and no checkpoint itself. */
typedef int (*many_fn)(const command_line *one, size_t command);
enum { MANY_INSIDE = -2 };

/* Asks for each PATH, or for each checkpoint in it, and counts the answers where there are several. --json: one document of results[], each with
 * its "path"; --ndjson: a document for each. The worst status. */
int many_answer(const command_line *o, size_t command, many_fn ask);
#endif
