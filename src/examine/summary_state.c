/* examine/summary_state.c - which parameters have no optimizer state, and which state has no parameter. */
#include "examine/summary.h"

#include <stdlib.h>

/* The parameters that have optimizer state, and those that have none. A parameter counts once, by the place of its
 * elements, however many names it has: with state for wte.weight, the tied lm_head.weight lacks nothing. */
typedef struct state_tally {
    const ckpt__index *index; /* borrowed, as is the canon */
    const ckpt__canon *canon;
    ckpt__hash *has_state; /* owned: canonical names of parameters that have some */
    ckpt__hash
        *bytes_with_state; /* owned: where such a parameter's elements are: a tie is the same elements under another
                            * name */
    ckpt__hash *seen;      /* owned: places of the parameters that were counted */
    ckpt__arena *arena;    /* owned: keys of bytes_with_state and seen */
    ckpt_summary *out;     /* borrowed */
    size_t alive;          /* parameters that have state */
} state_tally;

static bool is_state(const ckpt__canon_entry *e)
{
    return !e->outside && e->param.data && e->state_key.data;
}

static bool is_param(const ckpt__canon_entry *e)
{
    return e->is_tensor && !e->outside && e->role == CKPT_ROLE_PARAM;
}

/* "storage offset": where a tensor's elements are; its number where it has none. */
static ckpt_str place_of(const state_tally *l, size_t tensor)
{
    const ckpt_tensor_info *t = &l->index->tensors[tensor].info;
    ckpt__buf b = {0};
    if (t->storage >= 0)
        ckpt__buf_printf(&b, "%lld %lld", (long long)t->storage, (long long)t->offset);
    else
        ckpt__buf_printf(&b, "#%zu", tensor);
    ckpt_str out = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(l->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return out;
}

static void add_name(ckpt_summary *out, ckpt_str *names, uint64_t count, ckpt_str name)
{
    if (count <= CKPT_SUMMARY_NAMES)
        names[count - 1] = ckpt__summary_keep(out, name);
}

/* Who has state; states of parameters that are not here. False: no memory. */
static bool take_states(state_tally *l)
{
    ckpt_summary_state *s = &l->out->state;
    for (size_t i = 0; i < l->canon->count; i++) {
        const ckpt__canon_entry *e = &l->canon->entries[i];
        size_t param;
        if (!is_state(e))
            continue;
        int put = ckpt__hash_put(l->has_state, e->param.data, e->param.size, i, NULL);
        if (put < 0)
            return false;
        if (put == 0)
            continue;
        l->alive++;
        if (!ckpt__hash_get(l->canon->by_name, e->param.data, e->param.size, &param) ||
            !l->canon->entries[param].is_tensor) {
            add_name(l->out, s->without_param_names, ++s->without_param, e->param);
            continue;
        }
        ckpt_str place = place_of(l, l->canon->entries[param].tensor);
        if (!place.data || ckpt__hash_put(l->bytes_with_state, place.data, place.size, i, NULL) < 0)
            return false;
    }
    return true;
}

static bool take_params(state_tally *l)
{
    ckpt_summary_state *s = &l->out->state;
    for (size_t i = 0; i < l->canon->count; i++) {
        const ckpt__canon_entry *e = &l->canon->entries[i];
        if (!is_param(e))
            continue;
        ckpt_str place = place_of(l, e->tensor);
        int put = place.data ? ckpt__hash_put(l->seen, place.data, place.size, i, NULL) : -1;
        if (put < 0)
            return false;
        if (put == 0)
            continue; /* a tie */
        s->params++;
        if (!ckpt__hash_get(l->bytes_with_state, place.data, place.size, NULL))
            add_name(l->out, s->without_names, ++s->without_state, e->name);
    }
    return true;
}

ckpt_status ckpt__summary_state(const ckpt__index *index, const ckpt__canon *canon, size_t states, ckpt_summary *out,
                                ckpt_error *err)
{
    bool optimizer = canon->optimizer_path.data || canon->group_count, model = false;
    for (size_t i = 0; !model && i < canon->count; i++)
        model = is_param(&canon->entries[i]);
    for (size_t i = 0; !optimizer && i < canon->count; i++)
        optimizer = is_state(&canon->entries[i]);
    if (!optimizer || !model)
        return CKPT_OK;
    state_tally l = {.index = index, .canon = canon, .out = out};
    l.has_state = ckpt__hash_new(64);
    l.bytes_with_state = ckpt__hash_new(64);
    l.seen = ckpt__hash_new(64);
    l.arena = ckpt__arena_new(0);
    bool ok = l.has_state && l.bytes_with_state && l.seen && l.arena && take_states(&l) && take_params(&l);
    ckpt__hash_free(l.has_state);
    ckpt__hash_free(l.bytes_with_state);
    ckpt__hash_free(l.seen);
    ckpt__arena_free(l.arena);
    out->state.known = ok;
    out->state.without_param += states > l.alive ? states - l.alive : 0;
    return ok ? CKPT_OK : ckpt__fail_memory(err, "the parameters of an optimizer", canon->count);
}
