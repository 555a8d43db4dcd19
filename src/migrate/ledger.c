/* migrate/ledger.c - see ledger.h. */
#include "migrate/ledger.h"

#include <stdlib.h>

bool ckpt__ledger_reach(ckpt__ledger *l, size_t count)
{
    if (count <= l->count)
        return true;
    if (!ckpt__grow(&l->rows, &l->capacity, count, sizeof *l->rows))
        return false;
    memset(l->rows + l->count, 0, (count - l->count) * sizeof *l->rows);
    l->count = count;
    return true;
}

void ckpt__ledger_free(ckpt__ledger *l)
{
    free(l->rows);
    *l = (ckpt__ledger){0};
}

size_t ckpt__ledger_count(const ckpt__ledger *l, ckpt__fate fate)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += l->rows[i].fate == fate;
    return n;
}
