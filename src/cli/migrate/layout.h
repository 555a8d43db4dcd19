/* migrate/layout.h - --layout: a file, or one of the layouts that are installed. */
#ifndef CLI_MIGRATE_LAYOUT_H
#define CLI_MIGRATE_LAYOUT_H
#include "cli/out/cli.h"

/* The path of the layout. A word without a slash, and without .yaml at its end, is a preset: a file in CKPT_LAYOUTS, where the
 * environment has it, or in the folder that was installed. -1: found; else the exit status, and what is wrong was said. */
int layout_find(const cli *c, const char *text, char *path, size_t size);
#endif
