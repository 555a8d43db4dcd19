/* cli/inspect/many.h - one command for several PATHs. */
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

/* The PATHs of the command line; for verify and doctor a folder that holds several checkpoints, and is none itself, gives way to
 * them. False: no memory. */
bool many_expand(const command_line *o, path_list *out);

/* One PATH's answer: its exit status, everything said. */
typedef int (*many_fn)(const command_line *one, size_t command);
/* Asks for each PATH, then counts the answers; with --json one document of results[], each with its "path", with --ndjson a line
 * each. The worst status. */
int many_answer(const command_line *o, size_t command, const path_list *paths, many_fn ask);
/* --ndjson of a command that takes one PATH, or two: its document in one line. */
int many_one_line(const command_line *o, size_t command, many_fn ask);
#endif
