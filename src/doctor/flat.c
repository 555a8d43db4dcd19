/* doctor/flat.c - an optimizer's state with a key for each value, as torch.distributed.checkpoint.state_dict flattens it:
 * where it is, as Python; and a model's that stands beside an optimizer. */
#include "doctor/facts.h"
#include "doctor/text.h"

#include <stdio.h>
#include "format/table.h"
#include "model/flat_state.h"

/* The part of `whole` that is the optimizer's: all of it, or the keys with its prefix. */
static void put_state(ckpt__examination *p, const ckpt_value *dict, ckpt_str prefix, const char *whole)
{
    ckpt__buf head = {NULL, 0, 0, false};
    size_t own = 0;
    for (size_t i = 0; i < dict->entry_count; i++) {
        bool group;
        ckpt_str param, what;
        own += dict->entries[i].key->kind == CKPT_V_STR &&
               ckpt__flat_key(dict->entries[i].key->text, prefix, &group, &param, &what);
    }
    char shown[80];
    ckpt__escape(shown, sizeof shown, prefix.data ? prefix.data : "", prefix.size);
    ckpt__buf_printf(&head, "('%sstate.', '%sparam_groups.')", shown, shown);
    if (own == dict->entry_count && prefix.size == 0)
        snprintf(p->flat, sizeof p->flat, "%s", whole);
    else if (prefix.size == 0 && !head.failed)
        snprintf(p->flat, sizeof p->flat, "{k: v for k, v in %s.items() if k.startswith(%s)}", whole, head.data);
    else if (!head.failed)
        snprintf(p->flat, sizeof p->flat, "{k[%zu:]: v for k, v in %s.items() if k.startswith(%s)}", prefix.size, whole,
                 head.data);
    if (own < dict->entry_count)
        snprintf(p->flat_model, sizeof p->flat_model, "{k: v for k, v in %s.items() if k in model.state_dict()}",
                 whole);
    ckpt__buf_free(&head);
}

/* As torch's own dict, whose ids are the parameters' names. */
static ckpt_status take(ckpt__examination *p, const ckpt__unfolded_one *one, ckpt_str name)
{
    const ckpt__organ *o;
    for (size_t at = 0; (o = ckpt__anatomy_next(p->anatomy, CKPT__OPTIMIZER, &at)) != NULL;)
        if (o->form == CKPT__FLAT_DICT && ckpt__organ_value(p->anatomy, o) == one->optimizer)
            return ckpt__doctor_take_optimizer(p, o, name);
    return CKPT_OK;
}

static const ckpt_entry *entry_with(const ckpt_value *root, const ckpt_value *value)
{
    for (size_t i = 0; root->kind == CKPT_V_DICT && i < root->entry_count; i++)
        if (root->entries[i].value == value && root->entries[i].key->kind == CKPT_V_STR)
            return &root->entries[i];
    return NULL;
}

ckpt_status ckpt__doctor_find_flat(ckpt__examination *p)
{
    const ckpt_value *root = p->inner->root;
    const ckpt__unfolded_one *one = p->anatomy->unfolded.first;
    const ckpt_entry *e = NULL;
    ckpt__buf whole = {NULL, 0, 0, false};
    if (!root || !ckpt__format_of(p->inner)->torch_loads)
        return CKPT_OK;
    if (p->anatomy->unfolded.beside) /* load_state_dict takes no other keys */
        snprintf(p->flat_model, sizeof p->flat_model,
                 "{k: v for k, v in checkpoint.items() if k in model.state_dict()}");
    if (p->optimizer_count > 0)
        return CKPT_OK;
    while (one && one->dict != root && !(e = entry_with(root, one->dict)))
        one = one->next;
    if (!one)
        return CKPT_OK;
    ckpt__buf_str(&whole, "checkpoint");
    if (e) {
        ckpt__buf_char(&whole, '[');
        ckpt__value_repr(&whole, e->key);
        ckpt__buf_char(&whole, ']');
    }
    if (!whole.failed)
        put_state(p, one->dict, one->prefix, whole.data);
    ckpt__buf_free(&whole);
    if (*p->flat)
        ckpt__doctor_note(p, CKPT__FLAT, NULL, (ckpt_str){NULL, 0}, p->flat, NULL, NULL);
    return take(p, one, e ? e->key->text : (ckpt_str){"", 0});
}
