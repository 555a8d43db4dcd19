/* anatomy/canon_note.c - what every file of canon needs and what calls none of them: an entry, a finding, the want of memory. */
#include "anatomy/canon_work.h"

#include <stdio.h>
#include "format/table.h"

bool ckpt__canon_in_files(const ckpt__builder *b)
{
    return ckpt__in_files(b->index);
}

ckpt_status ckpt__canon_no_memory(ckpt__builder *b)
{
    if (ckpt__arena_over_limit(b->canon->arena))
        return ckpt__fail(b->err, CKPT_E_LIMIT, "canonical names",
                          "the names of all values would take more than %llu MiB, far more than the values themselves: "
                          "very long keys that are shared by many",
                          (unsigned long long)(ckpt__arena_limit(b->canon->arena) >> 20));
    return ckpt__fail_memory(b->err, "canonical names", b->index->tensor_count);
}

void ckpt__canon_note(ckpt__builder *b, ckpt_severity severity, const char *code, const char *tensor, const char *fix,
                      const char *format, ...)
{
    char message[900];
    va_list args;
    if (!b->report)
        return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (!ckpt__report_add(b->report, severity, code, tensor, fix, "%s", message))
        b->no_memory = true;
}

ckpt__canon_entry *ckpt__canon_add(ckpt__builder *b)
{
    ckpt__canon *c = b->canon;
    if (!ckpt__arena_grow(c->arena, &c->entries, &b->entry_capacity, c->count + 1, sizeof *c->entries))
        return NULL;
    ckpt__canon_entry *e = &c->entries[c->count++];
    memset(e, 0, sizeof *e);
    return e;
}
