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

/* By ckpt__fate. */
static const struct {
    const char *code, *why;
} fates[] = {{"written", NULL},
             {"dropped", "it was left out as asked"},
             {"replaced", "the new program has another in its place"},
             {"not-recovered", "its bytes are not whole"},
             {"no-weight", "it is none of the model's weights"},
             {"counted", "it says how many parameters there are, as the groups do"},
             {"dead-state", "its parameter is in no group"},
             {"tied", "it is another name of a tensor that is written"},
             {"in-structure", "it is not dense: the structure of the torch file has it, and its parts are written"},
             {"lost", "the target cannot hold it"}};

const char *ckpt__fate_code(ckpt__fate fate)
{
    return fates[fate].code;
}

const char *ckpt__fate_why(ckpt__fate fate)
{
    return fates[fate].why;
}

const char *ckpt__own_code(ckpt__own own)
{
    static const char *const codes[] = {NULL, "joined", "cut-out", "converted", "strided", "resolved"};
    return codes[own];
}

size_t ckpt__ledger_count(const ckpt__ledger *l, ckpt__fate fate)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += l->rows[i].fate == fate;
    return n;
}
