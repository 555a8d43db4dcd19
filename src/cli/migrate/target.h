/* cli/migrate/target.h - the DST that was typed, and the file that is written for it. */
#ifndef CKPT_CLI_MIGRATE_TARGET_H
#define CKPT_CLI_MIGRATE_TARGET_H
#include "cli/out/command_line.h"

/* DST may be a directory to write into, or "-". */
typedef struct target {
    const char *path; /* what is written: DST, or `made` */
    char *made;       /* owned: DIRECTORY/NAME, or a temporary; NULL: path is DST */
    char *folder;     /* owned: of the temporary, which has nothing else; NULL: there is none */
    int out;          /* "-": standard output as it was; text goes to standard error. -1: DST is a name */
} target;

/* SRC can be read from the middle; a pipe cannot. -1, or the exit status, the error said. */
int target_check_source(const cli *c, const char *src);
/* Is DST a directory that a single file is put into, as cp does it: it is there, or ends in a slash? */
bool target_is_into(const char *dst);
/* The format of the file SRC, to write the same; NULL, the error said: it is none that is written as one file. *name: as errors
 * have it. */
const char *target_same_format(const cli *c, const char *src);
/* What is written, for a format of one file. folder: the format is that of a directory. -1, or the exit status. */
int target_open(target *t, const command_line *o, const char *src, const char *dst, const char *to, bool folder);
/* The temporary to standard output, where DST is "-". CLI_YES, or the exit status. */
int target_send(target *t, const cli *c);
/* The migration failed with the errno `why`: where the temporary had no room, a warning says how to choose its place. */
void target_advise(const target *t, const cli *c, int why);
/* Removes the temporary. A target that is all zero but for out, which is -1, is one too. */
void target_close(target *t);
#endif
