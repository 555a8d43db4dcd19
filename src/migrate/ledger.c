/* migrate/ledger.c - see ledger.h. */
#include "migrate/migration.h"

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
             {"rank-state", "it is of one rank of several, and --rank-state leaves it out"},
             {"dead-state", "its parameter is in no group"},
             {"stacked", "another tensor that is written has it, as one of the model's layers, or a value does"},
             {"laid-out", "its elements are in other tensors: the layout joins them, or leaves it out"},
             {"tied", "it is another name of a tensor that is written"},
             {"in-structure", "it is not dense: the structure of the torch file has it, and its parts are written"},
             {"in-header", "the target says the step once for all parameters"},
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
    static const char *const codes[] = {NULL,      "joined", "cut-out",  "converted",
                                        "strided", "merged", "laid-out", "resolved"};
    return codes[own];
}

size_t ckpt__ledger_count(const ckpt__ledger *l, ckpt__fate fate)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += l->rows[i].fate == fate;
    return n;
}

/* ---- rows by their names */

ckpt__hash *ckpt__listed(const ckpt__migration *m, ckpt__row_is *is)
{
    const ckpt__index *x = m->from;
    ckpt__hash *listed = ckpt__hash_new(x->tensor_count);
    bool room = listed != NULL;
    for (size_t i = 0; room && i < x->tensor_count; i++) {
        ckpt_str name = x->tensors[i].info.name;
        room = (is && !is(m, i)) || ckpt__hash_put(listed, name.data, name.size, i, NULL) >= 0;
    }
    if (room)
        return listed;
    ckpt__hash_free(listed);
    return NULL;
}

bool ckpt__goes_in_tree(const ckpt__migration *m, size_t tensor)
{
    return !ckpt__stays_behind(m, tensor) && !ckpt__is_flat(m->from, tensor);
}

size_t ckpt__listing(const ckpt__hash *listed, const ckpt__canon_entry *e)
{
    size_t i;
    return ckpt__hash_get(listed, e->own.data, e->own.size, &i) ? i : e->tensor;
}

void ckpt__call_rows(ckpt__migration *m, const ckpt__hash *listed)
{
    for (size_t i = 0; i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        if (e->is_tensor)
            m->ledger.rows[ckpt__listing(listed, e)].called = e->name;
    }
}

ckpt_str ckpt__canonical(const ckpt__migration *m, size_t tensor)
{
    const ckpt__row *row = &m->ledger.rows[tensor];
    if (!m->index)
        return row->called;
    bool named = row->entry && row->entry <= m->canon->count && !ckpt__stays_behind(m, tensor);
    return named ? m->canon->entries[row->entry - 1].name : (ckpt_str){NULL, 0};
}

void ckpt__leave(ckpt__migration *m, size_t tensor, ckpt__fate fate)
{
    for (size_t i = tensor, end = ckpt__tensor_end(m->from, i); i < end; i++)
        ckpt__leave_one(m, i, fate);
}
