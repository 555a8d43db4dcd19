/* cli/out/command_line.h - what the command line of ckpt-inspect says. The commands and the pages of a report read it; nobody
 * but main changes it. */
#ifndef CKPT_CLI_OUT_COMMAND_LINE_H
#define CKPT_CLI_OUT_COMMAND_LINE_H
#include <ckpt/run.h>
#include "cli/out/cli.h"

typedef struct command_line {
    cli cli;
    const char *output;           /* extract -o */
    bool raw, force;              /* extract --raw, --force */
    const char *check;            /* "all", "part"; NULL: part */
    /* doctor */
    const char *loader, *torch, *load_weights_only, *optimizer, *map_location, *devices, *param_names, *assume_order;
    const char *device_memory, *snippet, *world;
    bool amp, values;
    /* diff */
    const char *atol, *rtol;
    const char *report;           /* --report FILE.html: show, diff, doctor */
    /* a run directory */
    ckpt_retention keep;          /* show --keep-last, --keep-every */
    bool metadata_only;           /* doctor --metadata-only */
    bool one;                     /* --one: all PATHs are one checkpoint (cli.also) */
    const char *name;             /* extract: the NAME */
    char **paths;
    int path_count;
    char **typed;                 /* the command line before getopt sorts it: the report shows it */
    int typed_count;
} command_line;
#endif
