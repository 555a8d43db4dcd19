/* restore/values.c - what the trainer's own hooks take: found and asked first, read into memory of ours before the first
 * byte of the state changes, handed over last. */
#include "restore/restoration.h"

#include <stdlib.h>
#include "engine/stream.h"

/* ---- what is there */

static ckpt_status ask(ckpt__target_state *side, const ckpt__valued *v, uint64_t size, ckpt_error *err)
{
    ckpt_error own = CKPT_ERROR_INIT, why = CKPT_ERROR_INIT;
    if (!v->hooks.check ||
        ckpt__hook_answer(v, "check", v->hooks.check(v->hooks.ctx, (size_t)size, &own), &own, &why) == CKPT_OK)
        return CKPT_OK;
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "value-mismatch", v->name.data, NULL, err,
                             "it has %llu bytes in the checkpoint, and %s", (unsigned long long)size, why.message);
}

static ckpt_status match_tensor(ckpt__restorer *r, ckpt__target_state *side, const ckpt__valued *v, ckpt__taken *t,
                                size_t tensor, ckpt_error *err)
{
    const ckpt_tensor_info *info = &r->reader->index->tensors[tensor].info;
    if ((info->dtype != CKPT_U8 && info->dtype != CKPT_I8) || info->extra->quantizer.data)
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "kind-mismatch", v->name.data, NULL, err,
                                 "it is bound as a value of bytes, and the checkpoint holds a tensor of %s",
                                 info->extra->quantizer.data ? "quantized numbers" : ckpt_dtype_name(info->dtype));
    if (info->extra->layout.data || (ckpt__has_no_bytes(&r->reader->index->tensors[tensor]) && info->nbytes))
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "no-data", v->name.data, NULL, err,
                                 "it is a tensor without data of its own in the checkpoint");
    t->tensor = tensor;
    t->size = info->nbytes;
    return ask(side, v, t->size, err);
}

static ckpt_status match_value(ckpt__restorer *r, ckpt__target_state *side, size_t i, ckpt_error *err)
{
    const ckpt__valued *v = &side->state->values[i];
    ckpt__taken *t = &side->taken[i];
    size_t entry;
    *t = (ckpt__taken){.tensor = SIZE_MAX, .data = ""};
    if (!ckpt__hash_get(side->canon->by_name, v->name.data, v->name.size, &entry))
        return ckpt__restore_missing_value(side, v->name, err);
    const ckpt__canon_entry *e = &side->canon->entries[entry];
    side->consumed[entry] = true;
    t->found = true;
    if (e->is_tensor)
        return match_tensor(r, side, v, t, e->tensor, err);
    if (e->value->kind != CKPT_V_BYTES && e->value->kind != CKPT_V_BYTEARRAY)
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "kind-mismatch", v->name.data, NULL, err,
                                 "it is bound as a value of bytes, and the checkpoint holds a %s",
                                 ckpt_kind_name(e->value->kind));
    t->size = e->value->text.size;
    t->data = t->size ? e->value->text.data : "";
    return ask(side, v, t->size, err);
}

ckpt_status ckpt__restore_values(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (!(side->taken = calloc(side->state->value_count + 1, sizeof *side->taken)))
        return ckpt__fail_memory(err, "values", 0);
    for (size_t i = 0; status == CKPT_OK && i < side->state->value_count; i++)
        status = match_value(r, side, i, err);
    return status;
}

/* ---- their bytes */

/* What an earlier replica has read already. */
static const ckpt__taken *read_before(const ckpt__restorer *r, size_t side, size_t tensor)
{
    for (size_t n = 0; n < side; n++)
        for (size_t i = 0; i < r->sides[n].state->value_count; i++)
            if (r->sides[n].taken[i].found && r->sides[n].taken[i].tensor == tensor)
                return &r->sides[n].taken[i];
    return NULL;
}

ckpt_status ckpt__restore_read_values(ckpt__restorer *r, size_t n, ckpt_error *err)
{
    ckpt__target_state *side = &r->sides[n];
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < side->state->value_count; i++) {
        ckpt__taken *t = &side->taken[i];
        const ckpt__taken *same = t->tensor == SIZE_MAX ? NULL : read_before(r, n, t->tensor);
        if (t->tensor == SIZE_MAX || t->size == 0)
            continue;
        if (same) {
            t->data = same->data;
            continue;
        }
        status = ckpt__hook_room(&side->state->values[i], t->size, &t->own, err);
        if (status == CKPT_OK)
            status = ckpt__read_tensor(r->reader->source, r->reader->index, t->tensor, !r->sides[0].options.no_verify,
                                       ckpt__restore_block, t->own, err);
        t->data = t->own;
    }
    return status;
}

ckpt_status ckpt__restore_take_values(ckpt__target_state *side, ckpt_error *err)
{
    for (size_t i = 0; i < side->state->value_count; i++) {
        const ckpt__valued *v = &side->state->values[i];
        const ckpt__taken *t = &side->taken[i];
        ckpt_error own = CKPT_ERROR_INIT, why = CKPT_ERROR_INIT;
        if (!t->found)
            continue;
        ckpt_status status =
            ckpt__hook_answer(v, "take", v->hooks.take(v->hooks.ctx, t->data, (size_t)t->size, &own), &own, &why);
        if (status == CKPT_OK)
            continue;
        side->state->poisoned = true;
        ckpt__target_note(side, CKPT_SEVERITY_ERROR, "not-taken", v->name.data, "restore again", NULL,
                          "all else is restored, and %s", why.message);
        if (err)
            *err = why;
        return status;
    }
    return CKPT_OK;
}

void ckpt__restore_free_values(ckpt__target_state *side)
{
    for (size_t i = 0; side->taken && i < side->state->value_count; i++)
        free(side->taken[i].own);
    free(side->taken);
}
