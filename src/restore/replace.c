/* restore/replace.c - tensors that are new in the state although the checkpoint has others of their names
 * (ckpt_state_replace), and what belongs to them in the optimizer. */
#include "restore/restoration.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_named(const ckpt_state *s, ckpt_str glob, size_t binding)
{
    ckpt_str name = s->bindings[binding].name;
    if (ckpt__glob(glob.data, glob.size, name.data, name.size))
        return true;
    for (size_t i = 0; i < s->alias_count; i++)
        if (ckpt__str_equal(s->aliases[i].of, name) &&
            ckpt__glob(glob.data, glob.size, s->aliases[i].name.data, s->aliases[i].name.size))
            return true;
    return false;
}

/* The tensor of the checkpoint that has the binding's name; SIZE_MAX: none. */
static size_t tensor_of(const ckpt__target_state *side, size_t binding)
{
    size_t entry;
    if (!ckpt__target_find(side, side->state->bindings[binding].name, &entry) || !side->canon->entries[entry].is_tensor)
        return SIZE_MAX;
    return side->canon->entries[entry].tensor;
}

static bool differs(const ckpt__restorer *r, const ckpt__binding *b, size_t tensor)
{
    const ckpt_tensor_info *t = &r->reader->index->tensors[tensor].info;
    return !ckpt__same_shape(b->shape, b->ndim, t->shape, t->ndim);
}

/* Has it the shape of its parameter? */
static bool is_moment(const ckpt__binding *b)
{
    return b->param.data && (b->role == CKPT_ROLE_EXP_AVG || b->role == CKPT_ROLE_EXP_AVG_SQ ||
                             b->role == CKPT_ROLE_MAX_EXP_AVG_SQ || b->role == CKPT_ROLE_MOMENTUM);
}

/* A checkpoint of the optimizer alone shows by the moments that the parameter had another shape. */
static void ask_moments(const ckpt__restorer *r, ckpt__target_state *side, const bool *named)
{
    const ckpt_state *s = side->state;
    for (size_t i = 0; i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i],
                            *p = is_moment(b) ? ckpt__state_find(s, b->param.data, b->param.size) : NULL;
        size_t own = p ? tensor_of(side, i) : SIZE_MAX;
        if (own != SIZE_MAX && named[p - s->bindings] && tensor_of(side, (size_t)(p - s->bindings)) == SIZE_MAX &&
            differs(r, b, own))
            side->replaced[p - s->bindings] = true;
    }
}

ckpt_status ckpt__restore_find_replaced(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    side->replaced = calloc(s->count + 1, sizeof *side->replaced);
    bool *named = calloc(s->count + 1, sizeof *named);
    ckpt_status status = side->replaced && named ? CKPT_OK : ckpt__fail_memory(err, r->path, s->count);
    for (size_t g = 0; status == CKPT_OK && g < s->replace_count; g++) {
        bool used = false;
        for (size_t i = 0; i < s->count; i++)
            if (!ckpt_role_is_optimizer(s->bindings[i].role) && is_named(s, s->replace[g], i))
                used = named[i] = true;
        if (!used)
            status = ckpt__target_note(side, CKPT_SEVERITY_ERROR, "unused-replace", s->replace[g].data,
                                       "correct the glob of ckpt_state_replace", err,
                                       "no tensor of such a name is bound that could be new");
    }
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        size_t tensor = named[i] ? tensor_of(side, i) : SIZE_MAX;
        side->replaced[i] = tensor != SIZE_MAX && differs(r, &s->bindings[i], tensor);
    }
    if (status == CKPT_OK && s->replace_count)
        ask_moments(r, side, named);
    free(named);
    return status;
}

static bool is_replaced(const ckpt__target_state *side, const char *name, size_t n)
{
    const ckpt__binding *b = ckpt__state_find(side->state, name, n);
    return b && side->replaced[b - side->state->bindings];
}

bool ckpt__restore_is_of_replaced(const ckpt__target_state *side, ckpt_str name, ckpt_str param, ckpt_str *key)
{
    static const char head[] = "optimizer.";
    const size_t n = sizeof head - 1;
    if (!side->state->replace_count)
        return false;
    if (param.data && is_replaced(side, param.data, param.size))
        return true;
    if (!ckpt__str_begins_more(name, head))
        return false;
    for (size_t end = name.size - 1; end > n; end--)
        if (name.data[end] == '.' && is_replaced(side, name.data + n, end - n)) {
            if (key)
                *key = (ckpt_str){name.data + end + 1, name.size - end - 1};
            return true;
        }
    return false;
}

/* What of an optimizer does not begin at zero: the learning rate of ASGD and Rprop, the products of NAdam and ASGD. */
static bool begins_elsewhere(ckpt_str key)
{
    static const char *const keys[] = {"mu_product", "mu", "eta", "step_size"};
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        found = found || ckpt__str_is(key, keys[i]);
    return found;
}

/* The table of an 8-bit code (qmap1, ...) has nothing to do with the parameter. */
static bool is_table(const ckpt__binding *b)
{
    return b->role == CKPT_ROLE_OPTIM && ckpt__str_begins_more(b->state_key, "qmap");
}

bool ckpt__restore_replace(ckpt__target_state *side, size_t i)
{
    const ckpt__binding *b = &side->state->bindings[i];
    ckpt__item *item = &side->items[i];
    bool belongs = ckpt_role_is_optimizer(b->role) || b->role == CKPT_ROLE_GRAD || b->role == CKPT_ROLE_EMA;
    bool of_new = belongs && b->param.data && !is_table(b) && is_replaced(side, b->param.data, b->param.size);
    size_t entry;
    if (!side->replaced[i] && !of_new)
        return false;
    bool keeps =
        side->replaced[i] || b->role == CKPT_ROLE_MASTER || b->role == CKPT_ROLE_EMA || begins_elsewhere(b->state_key);
    item->fate = keeps ? CKPT__KEPT : CKPT__ZEROED;
    if (ckpt__target_find(side, b->name, &entry)) {
        side->consumed[entry] = true;
        if (side->canon->entries[entry].is_tensor)
            item->like = (uint32_t)side->canon->entries[entry].tensor;
    }
    return true;
}

bool ckpt__restore_report_replaced(const ckpt__restorer *r, ckpt__target_state *side, size_t i)
{
    const ckpt__binding *b = &side->state->bindings[i];
    const ckpt__item *item = &side->items[i];
    char had[256], has[256], shapes[640] = "", device[CKPT_DEVICE_NAME_MAX], of[300] = "", shown[200];
    if (item->fate == CKPT__TAKEN)
        return true;
    ckpt_device_name(item->target, device);
    ckpt__shape_text(has, sizeof has, b->shape, b->ndim);
    if (item->like != CKPT__NOTHING) {
        const ckpt_tensor_info *t = &r->reader->index->tensors[item->like].info;
        ckpt__shape_text(had, sizeof had, t->shape, t->ndim);
        snprintf(shapes, sizeof shapes, "its shape is %s in the checkpoint and %s in the state: ", had, has);
    } else
        snprintf(shapes, sizeof shapes, "its shape is %s, and the checkpoint has none of that name: ", has);
    if (!side->replaced[i])
        snprintf(of, sizeof of, ", as its parameter '%s' is new",
                 ckpt__escape(shown, sizeof shown, b->param.data, b->param.size));
    return ckpt__report_add(side->report, CKPT_SEVERITY_NOTE, "replaced", b->name.data, NULL, "%sit %s on %s%s", shapes,
                            item->fate == CKPT__KEPT ? "keeps its value," : "starts at zero,", device, of) &&
           ckpt__report_detail(side->report, NULL, item->like == CKPT__NOTHING ? NULL : had, has, b->nbytes);
}
