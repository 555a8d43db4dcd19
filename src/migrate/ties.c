/* migrate/ties.c - weights that are tied: a program that ties them itself gets one of their names. */
#include "migrate/out.h"

/* Two tensors of one view have the same text. */
static ckpt_str view_text(ckpt__arena *a, const ckpt__tensor *t)
{
    const ckpt_tensor_info *i = &t->info;
    ckpt__buf text = {0};
    ckpt__buf_printf(&text, "%u %lld %d %u %d%d", t->storage, (long long)i->offset, (int)i->dtype, i->ndim, i->conj,
                     i->neg);
    for (uint32_t d = 0; d < i->ndim; d++)
        ckpt__buf_printf(&text, " %lld:%lld", (long long)i->shape[d], (long long)i->strides[d]);
    const ckpt_str kept = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(a, text.data, text.size);
    ckpt__buf_free(&text);
    return kept;
}

ckpt_status ckpt__leave_tied(ckpt__migration *m, ckpt__hash *seen, size_t tensor, ckpt_str name, const char *why,
                             bool *tied, ckpt_error *err)
{
    const ckpt__tensor *t = &m->index->tensors[tensor];
    char other[200];
    size_t first;
    *tied = false;
    if (!t->whole || !t->info.nbytes)
        return CKPT_OK;
    const ckpt_str text = view_text(m->index->arena, t);
    const int put = text.data ? ckpt__hash_put(seen, text.data, text.size, tensor, &first) : -1;
    *tied = put == 0;
    if (put != 0)
        return put < 0 ? ckpt__migration_no_memory(err) : CKPT_OK;
    const ckpt_str is = m->index->tensors[first].info.name;
    m->ledger.rows[tensor].fate = CKPT__FATE_TIED;
    return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "tied", name, err, "is '%s' under another name: left out, %s",
                                ckpt__escape(other, sizeof other, is.data, is.size), why);
}
