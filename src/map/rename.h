/* map/rename.h - one rule that renames by regular expression: PCRE2, anchored at both ends, bounded. */
#ifndef CKPT_RENAME_H
#define CKPT_RENAME_H
#include "base/base.h"

typedef struct ckpt__rename ckpt__rename;

/* `to` may hold $1 ... $99 or ${1}, $0 (the whole name) and $$ for a dollar sign. CKPT_E_ARGUMENT with the place in
 * `from` or `to`. */
ckpt_status ckpt__rename_new(const char *from, size_t from_size, const char *to, size_t to_size, ckpt__rename **out,
                             ckpt_error *err);
/* "REGEX=REPLACEMENT": of several '=' the first one that leaves a regular expression before it counts. */
ckpt_status ckpt__rename_parse(const char *text, ckpt__rename **out, ckpt_error *err);
void ckpt__rename_free(ckpt__rename *rename);

/* Where the whole name matches, appends the new name to out and sets *matched; else appends nothing. CKPT_E_LIMIT
 * where matching takes too long, CKPT_E_NO_MEMORY. May be called by several threads at once. */
ckpt_status ckpt__rename_apply(const ckpt__rename *rename, const char *name, size_t size, bool *matched, ckpt__buf *out,
                               ckpt_error *err);
#endif
