/* cli/out/names.h - --param-names FILE: the optimizer's parameters in order, one name a line. */
#ifndef CKPT_CLI_OUT_NAMES_H
#define CKPT_CLI_OUT_NAMES_H
#include "cli/out/cli.h"

/* The names of one file. Both pointers are heap, owned; names_free frees them. */
typedef struct names {
    char *text; /* the file; the items point into it */
    const char **items;
    size_t count;
} names;

/* -1: read; else the exit status, the error said. Empty lines and lines that begin with '#' are passed over. */
int names_read(const cli *c, const char *path, names *out);
void names_free(names *n);
#endif
