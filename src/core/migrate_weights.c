/* core/migrate_weights.c - the model's tensors alone: which those are, and which weights stay behind. */
#include "core/migrate_job.h"

#include <stdio.h>
#include <stdlib.h>

ckpt_status ckpt__migrate_weights(ckpt__mover *m, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    size_t kept = 0;
    if (!m->options.weights_only && !m->hf)
        return CKPT_OK;
    bool *keep = calloc(x->tensor_count + 1, sizeof *keep);
    if (!keep)
        return ckpt__mover_no_memory(err);
    for (size_t i = 0; i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        if (!e->is_tensor || e->outside || e->state_key.data || (e->role != CKPT_PARAM && e->role != CKPT_BUFFER))
            continue;
        for (size_t k = e->tensor, end = ckpt__tensor_end(x, k); k < end; k++)
            keep[k] = true;
        kept++;
    }
    for (size_t i = 0; i < x->tensor_count; i++) {
        m->no_weights += !m->dropped[i] && !keep[i];
        m->dropped[i] = m->dropped[i] || !keep[i];
    }
    free(keep);
    if (kept)
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_MISMATCH, m->src,
        "it is not known which of its tensors are the model's weights; say so in a map file: {map: 1, source: {model: 'PATH'}} "
        "(ckpt-inspect list PATH shows the names)");
}
