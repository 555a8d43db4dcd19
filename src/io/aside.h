/* io/aside.h - directories that are kept, under names at which no one looks: "aside-step-00000040". */
#ifndef CKPT_ASIDE_H
#define CKPT_ASIDE_H
#include "io/store.h"

#define CKPT__ASIDE "aside-"
enum { CKPT__ASIDE_NAME = 64 };

/* Is it such a name: "aside-", what it was called, and ".2", ".3", ... where that was taken? */
bool ckpt__aside_is(const char *name);

typedef struct ckpt__aside_name {
    char text[CKPT__ASIDE_NAME];
} ckpt__aside_name;

/* Renames each of the n names in the order given, then fsyncs the directory. kept[i] is what names[i] is called now, "" where
 * it was gone. Nothing is ever replaced. After an error the first of them may be renamed, and the same call does the rest. */
ckpt_status ckpt__aside_keep(ckpt__store *s, const char *const *names, size_t n, ckpt__aside_name *kept,
                             ckpt_error *err);
#endif
