/* cli/inspect.h - the commands of ckpt-inspect. Each gets its PATHs and answers with an exit status. */
#ifndef CKPT_CLI_INSPECT_H
#define CKPT_CLI_INSPECT_H
#include "cli.h"

typedef struct inspect {
    cli cli;
    const char *output;           /* extract -o */
    bool raw;                     /* extract --raw */
    /* doctor */
    const char *loader, *torch, *load_weights_only, *optimizer, *map_location, *devices, *param_names;
    bool amp;
    char **paths;
    int path_count;
} inspect;

int inspect_show(const inspect *o);
int inspect_list(const inspect *o);
int inspect_tree(const inspect *o);
int inspect_verify(const inspect *o);
int inspect_doctor(const inspect *o);
int inspect_extract(const inspect *o);
#endif
