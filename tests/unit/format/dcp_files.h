/* dcp_files.h - copies of the distributed checkpoints of tests/data/dcp, which may be changed. */
#ifndef DCP_FILES_H
#define DCP_FILES_H
#include "../folder_files.h"

static inline const char *data(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/tests/data/dcp/%s", getenv("srcdir"), name);
    return path;
}

/* A copy that may be changed: at("c"). */
static inline void copy(const char *name)
{
    char command[1000];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'", at("c"), data(name),
             at("c"), at("c"));
    ck_assert_int_eq(system(command), 0);
}

#endif
