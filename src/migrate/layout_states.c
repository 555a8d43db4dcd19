/* migrate/layout_states.c - what belongs to each tensor of the model, and becomes with it what the layout makes of it: the moments
 * and the masters as its elements do, the step as one number. */
#include "migrate/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "engine/sums.h"
#include "model/views.h"

/* ---- names, and what belongs to them */

static size_t name_of(ckpt__laying *l, ckpt_str name, bool weight)
{
    size_t at;
    const bool apart = l->by_weight != NULL;
    int put = ckpt__hash_put(apart && weight ? l->by_weight : l->by_name, name.data, name.size, l->name_count, &at);
    if (put == 0)
        return at;
    if (put < 0 || !ckpt__grow(&l->names, &l->name_capacity, l->name_count + 1, sizeof *l->names) ||
        !ckpt__grow(&l->items_of, &l->of_capacity, l->name_count + 1, sizeof *l->items_of))
        return SIZE_MAX;
    l->names[l->name_count] = (ckpt__layout_name){.name = name,
                                                  .part = !apart   ? CKPT__PART_ALL
                                                          : weight ? CKPT__PART_WEIGHTS
                                                                   : CKPT__PART_STATES};
    l->items_of[l->name_count] = SIZE_MAX;
    return l->name_count++;
}

static ckpt_status add_item(ckpt__laying *l, size_t entry, ckpt_str param, ckpt_str head, ckpt_str tail)
{
    const ckpt__canon_entry *e = &l->m->canon->entries[entry];
    const bool self = !head.size && !tail.size;
    size_t n = name_of(l, param, self);
    if (n == SIZE_MAX || !ckpt__grow(&l->items, &l->item_capacity, l->item_count + 1, sizeof *l->items))
        return ckpt__migration_no_memory(l->err);
    l->items[l->item_count] = (ckpt__laid_item){entry, l->items_of[n], head, tail};
    l->items_of[n] = l->item_count++;
    const ckpt_tensor_info *t = e->is_tensor ? &l->m->from->tensors[e->tensor].info : NULL;
    if (t &&
        (self || (!l->names[n].shape && (e->role == CKPT_ROLE_MASTER || ckpt__key_has_param_shape(e->state_key))))) {
        l->names[n].ndim = t->ndim;
        l->names[n].shape = t->shape;
    }
    return CKPT_OK;
}

/* The name of a state holds that of its parameter. */
static ckpt_status add_state(ckpt__laying *l, size_t entry)
{
    const ckpt__canon_entry *e = &l->m->canon->entries[entry];
    const ckpt_str name = e->name, param = e->param, empty = {"", 0};
    const size_t n = sizeof "optimizer." - 1;
    if (ckpt__str_begins(name, "optimizer.") && name.size >= n + param.size &&
        memcmp(name.data + n, param.data, param.size) == 0)
        return add_item(l, entry, param, (ckpt_str){name.data, n},
                        (ckpt_str){name.data + n + param.size, name.size - n - param.size});
    if (ckpt__str_ends_with(name, param))
        return add_item(l, entry, param, (ckpt_str){name.data, name.size - param.size}, empty);
    if (ckpt__str_begins_with(name, param))
        return add_item(l, entry, param, empty, (ckpt_str){name.data + param.size, name.size - param.size});
    return ckpt__fail_tensor(l->err,
                             ckpt__fail(l->err, CKPT_E_UNSUPPORTED, NULL,
                                        "it belongs to '%.*s', and its name does not hold that: --drop it",
                                        (int)param.size, param.data),
                             name);
}

/* A number of a parameter that stands among the values: "optimizer.<param>.step". */
static ckpt_status add_value(ckpt__laying *l, size_t entry)
{
    const ckpt_str name = l->m->canon->entries[entry].name;
    const size_t n = sizeof "optimizer." - 1;
    for (size_t end = name.size; end > n; end--)
        if (end < name.size && name.data[end] == '.' &&
            (ckpt__hash_get(l->by_name, name.data + n, end - n, NULL) ||
             (l->by_weight && ckpt__hash_get(l->by_weight, name.data + n, end - n, NULL))))
            return add_item(l, entry, (ckpt_str){name.data + n, end - n}, (ckpt_str){name.data, n},
                            (ckpt_str){name.data + end, name.size - end});
    return CKPT_OK;
}

/* Where states have names of their own: so has each parameter of a group, which may have no state yet, and its shape is that of the
 * weights. */
static ckpt_status find_states(ckpt__laying *l)
{
    const ckpt__canon *c = l->m->canon;
    size_t weight;
    for (size_t g = 0; g < c->group_count; g++)
        for (size_t i = 0; i < c->groups[g].param_count; i++) {
            const ckpt_str name = c->groups[g].params[i];
            if (ckpt__hash_get(l->by_weight, name.data, name.size, NULL) && name_of(l, name, false) == SIZE_MAX)
                return ckpt__migration_no_memory(l->err);
        }
    for (size_t n = 0; n < l->name_count; n++) {
        ckpt__layout_name *own = &l->names[n];
        if (own->part == CKPT__PART_STATES && ckpt__hash_get(l->by_weight, own->name.data, own->name.size, &weight)) {
            own->ndim = l->names[weight].ndim;
            own->shape = l->names[weight].shape;
        }
    }
    return CKPT_OK;
}

ckpt_status ckpt__laying_find(ckpt__laying *l)
{
    const ckpt__canon *c = l->m->canon;
    const ckpt_str empty = {"", 0};
    const bool apart = ckpt__layout_has_parts(l->layout);
    l->by_name = ckpt__hash_new(c->count);
    l->by_weight = apart ? ckpt__hash_new(c->count) : NULL;
    ckpt_status status = l->by_name && (!apart || l->by_weight) ? CKPT_OK : ckpt__migration_no_memory(l->err);
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (!e->is_tensor || e->outside || ckpt__stays_behind(l->m, e->tensor))
            continue;
        if (e->param.data)
            status = add_state(l, i);
        else if (e->role == CKPT_ROLE_PARAM || e->role == CKPT_ROLE_BUFFER)
            status = add_item(l, i, e->name, empty, empty);
    }
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++)
        if (!c->entries[i].is_tensor && c->entries[i].value && !c->entries[i].outside &&
            ckpt__str_begins(c->entries[i].name, "optimizer.") &&
            !ckpt__str_begins(c->entries[i].name, "optimizer.groups."))
            status = add_value(l, i);
    if (status == CKPT_OK && apart)
        status = find_states(l);
    for (size_t i = 0; status == CKPT_OK && i < l->name_count; i++)
        if (!l->names[i].shape && l->names[i].ndim == 0) {
            static const int64_t none[1] = {0};
            l->names[i].shape = none; /* of a number without dimensions */
        }
    return status;
}

/* ---- one item of all inputs of a use */

/* An item of each input, with the same place around the name. */
typedef struct together {
    ckpt__laying *l;
    const ckpt__layout_use *use;
    const size_t *entries; /* one an input */
    ckpt_str head, tail;
} together;

static ckpt__canon_entry *entry_of(const together *t, size_t input)
{
    return &t->l->m->canon->entries[t->entries[input]];
}

static ckpt_status mismatch(const together *t, size_t input, const char *what)
{
    const ckpt_str a = entry_of(t, 0)->name, b = entry_of(t, input)->name;
    return ckpt__fail(t->l->err, CKPT_E_MISMATCH, t->l->m->src, "'%.*s' and '%.*s' become one, and %s", (int)a.size,
                      a.data, (int)b.size, b.data, what);
}

/* The entry has the name of output k now. */
static ckpt_status name_entry(const together *t, ckpt__canon_entry *e, size_t k)
{
    ckpt__arena *a = t->l->m->canon->arena;
    const ckpt_str out = t->use->outputs[k];
    const bool owned = e->param.data != NULL;
    e->name = ckpt__arena_join(a, t->head, out, t->tail);
    if (owned)
        e->param = ckpt__arena_str(a, out.data, out.size);
    return e->name.data && (!owned || e->param.data) ? CKPT_OK : ckpt__migration_no_memory(t->l->err);
}

/* One more entry, for an output beside the first: a copy of entry `of`, which has a tensor of its own. */
static ckpt_status add_entry(ckpt__laying *l, size_t of, size_t *out)
{
    ckpt__migration *m = l->m;
    ckpt__canon *c = m->canon;
    ckpt__canon_entry *entries = realloc(c->entries, (c->count + 1) * sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(l->err);
    c->entries = entries;
    entries[c->count] = entries[of];
    *out = c->count++;
    if (!entries[of].is_tensor)
        return CKPT_OK;
    ckpt__tensor *t = ckpt__index_add_tensor(m->from);
    if (!t || !ckpt__ledger_reach(&m->ledger, m->from->tensor_count))
        return ckpt__migration_no_memory(l->err);
    const size_t was = entries[of].tensor, now = m->from->tensor_count - 1;
    *t = m->from->tensors[was];
    m->ledger.rows[now] = m->ledger.rows[was];
    m->ledger.rows[now].finding = 0;
    m->ledger.rows[now].own =
        t->whole ? CKPT__OWN_LAID : CKPT__OWN_NONE; /* a storage of its own: a step that is counted on is no alias */
    entries[*out].tensor = now;
    return CKPT_OK;
}

/* What is no longer there by itself. */
static void leave_entry(ckpt__laying *l, ckpt__canon_entry *e)
{
    if (e->is_tensor)
        ckpt__leave_one(l->m, e->tensor, CKPT__FATE_LAID);
    else
        e->value = NULL;
}

/* Two names that become one have to agree on a number: its step is one. */
static ckpt_status check_alike(const together *t)
{
    const ckpt__migration *m = t->l->m;
    double first = 0, own;
    bool read = true;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && t->use->input_count > 1 && i < t->use->input_count; i++) {
        const ckpt__canon_entry *e = entry_of(t, i), *one = entry_of(t, 0);
        char what[200];
        if (e->is_tensor != one->is_tensor)
            return mismatch(t, i, "one is a tensor, the other a value");
        if (!e->is_tensor) {
            if (!ckpt__value_alike(e->value, one->value))
                return mismatch(t, i, "they are not the same: what is one parameter has one step");
            continue;
        }
        status = ckpt__read_number(m->reader->source, m->from, e->tensor, true, i ? &own : &first, &read, t->l->err);
        if (status == CKPT_OK && !read)
            return mismatch(t, i, "they are not numbers that could be compared");
        if (status == CKPT_OK && i && own != first) {
            snprintf(what, sizeof what, "they are %.17g and %.17g: what is one parameter has one step", first, own);
            return mismatch(t, i, what);
        }
    }
    return status;
}

/* A number, or what is only renamed. */
static ckpt_status lay_number(together *t)
{
    const size_t of = t->entries[0];
    ckpt_status status = check_alike(t);
    for (size_t k = 1; status == CKPT_OK && k < t->use->output_count; k++) {
        size_t made;
        status = add_entry(t->l, of, &made);
        if (status == CKPT_OK)
            status = name_entry(t, &t->l->m->canon->entries[made], k);
    }
    for (size_t i = 1; status == CKPT_OK && i < t->use->input_count; i++)
        leave_entry(t->l, entry_of(t, i));
    return status == CKPT_OK ? name_entry(t, entry_of(t, 0), 0) : status;
}

static bool big_endian(const ckpt__index *x, const ckpt__tensor *t)
{
    return t->info.nbytes && x->storages[ckpt__first_storage(x, t)].extent.big_endian;
}

/* Tensors that become one are of one kind. */
static ckpt_status check_kind(const together *t)
{
    const ckpt__index *x = t->l->m->from;
    const ckpt__tensor *one = &x->tensors[entry_of(t, 0)->tensor];
    for (size_t i = 1; i < t->use->input_count; i++) {
        const ckpt__tensor *o = &x->tensors[entry_of(t, i)->tensor];
        if (o->info.dtype != one->info.dtype)
            return mismatch(t, i, "they have different dtypes: convert one with --cast in a step before this one");
        if (o->info.conj != one->info.conj || o->info.neg != one->info.neg || big_endian(x, o) != big_endian(x, one))
            return mismatch(t, i, "their bytes are kept in different ways: write them with --to safetensors first");
        if (!t->l->m->map && !ckpt__str_equal(o->info.device, one->info.device) &&
            (o->info.device.data || one->info.device.data))
            return mismatch(t, i, "they were on different devices: say where it goes with --map-location");
    }
    return CKPT_OK;
}

static ckpt_status lay_tensors(together *t)
{
    ckpt__laying *l = t->l;
    const ckpt__arena_mark mark = ckpt__arena_note(l->arena);
    ckpt__lay *in = ckpt__arena_array(l->arena, t->use->input_count + 1, sizeof *in),
              *out = ckpt__arena_array(l->arena, t->use->output_count + 1, sizeof *out);
    ckpt_status status = in && out ? check_kind(t) : ckpt__migration_no_memory(l->err);
    const bool padded = l->zero != 0;
    if (!padded)
        l->zero = (uint32_t)l->m->from->storage_count;
    for (size_t i = 0; status == CKPT_OK && i < t->use->input_count; i++)
        status = ckpt__laying_lay(l, entry_of(t, i)->tensor, &in[i]);
    if (status == CKPT_OK) {
        status = ckpt__layout_lower(l->match, t->use, in, l->zero, l->arena, out, l->err);
        if (status < 0)
            status = ckpt__fail_tensor(l->err, status, entry_of(t, 0)->name);
    }
    for (size_t k = 0; status == CKPT_OK && k < t->use->output_count; k++) {
        size_t made = t->entries[0];
        if (k)
            status = add_entry(l, t->entries[0], &made);
        if (status == CKPT_OK)
            status = ckpt__laying_set(l, l->m->canon->entries[made].tensor, &out[k]);
        if (status == CKPT_OK && k)
            status = name_entry(t, &l->m->canon->entries[made], k);
    }
    for (size_t i = 1; status == CKPT_OK && i < t->use->input_count; i++)
        leave_entry(l, entry_of(t, i));
    ckpt__arena_rewind(l->arena, &mark);
    return status == CKPT_OK ? name_entry(t, entry_of(t, 0), 0) : status;
}

/* Has each entry the shape of its own name? */
static bool has_shapes(const together *t)
{
    for (size_t i = 0; i < t->use->input_count; i++) {
        const ckpt__layout_name *n = &t->l->names[t->use->inputs[i]];
        const ckpt__canon_entry *e = entry_of(t, i);
        if (!e->is_tensor || !ckpt__same_shape(t->l->m->from->tensors[e->tensor].info.shape,
                                               t->l->m->from->tensors[e->tensor].info.ndim, n->shape, n->ndim))
            return false;
    }
    return true;
}

static bool is_number(const ckpt__laying *l, const ckpt__canon_entry *e)
{
    uint64_t numel;
    const ckpt_tensor_info *t = e->is_tensor ? &l->m->from->tensors[e->tensor].info : NULL;
    return !t || e->role == CKPT_ROLE_STEP || (ckpt__numel(t->shape, t->ndim, &numel) && numel == 1);
}

static ckpt_status lay_item(together *t)
{
    const ckpt__canon_entry *e = entry_of(t, 0);
    const bool self = !t->head.size && !t->tail.size;
    if (ckpt__layout_renames(t->l->layout, t->use->rule) || (!self && e->role == CKPT_ROLE_STEP) || !e->is_tensor)
        return lay_number(t);
    if (has_shapes(t))
        return lay_tensors(t);
    if (is_number(t->l, e))
        return lay_number(t);
    return ckpt__fail_tensor(t->l->err,
                             ckpt__fail(t->l->err, CKPT_E_UNSUPPORTED, NULL,
                                        "it has not the shape of its parameter, so that no layout can say what becomes "
                                        "of it: --drop it, or the optimizer"),
                             e->name);
}

/* ---- all items of a use */

/* The item of a name with that around it; SIZE_MAX: it has none. */
static size_t item_like(const ckpt__laying *l, size_t name, ckpt_str head, ckpt_str tail)
{
    size_t i = l->items_of[name];
    while (i != SIZE_MAX && !(ckpt__str_equal(l->items[i].head, head) && ckpt__str_equal(l->items[i].tail, tail)))
        i = l->items[i].next;
    return i;
}

/* Each input of a use has something, or none has it. */
static ckpt_status check_items(ckpt__laying *l, const ckpt__layout_use *use)
{
    for (size_t i = 0; i < use->input_count; i++)
        for (size_t k = 0; k < use->input_count; k++)
            for (size_t at = l->items_of[use->inputs[i]]; at != SIZE_MAX; at = l->items[at].next) {
                const ckpt_str is = l->m->canon->entries[l->items[at].entry].name, not = l->names[use->inputs[k]].name;
                if (item_like(l, use->inputs[k], l->items[at].head, l->items[at].tail) == SIZE_MAX)
                    return ckpt__fail(l->err, CKPT_E_MISMATCH, l->m->src,
                                      "'%.*s' is there, and '%.*s', which becomes one parameter with it, has nothing "
                                      "like it",
                                      (int)is.size, is.data, (int)not .size, not .data);
            }
    return CKPT_OK;
}

/* One view, or two whose elements have one sum (engine/sums.h). */
static ckpt_status compare(const ckpt__laying *l, size_t a, size_t b, bool *same)
{
    const ckpt__index *x = l->m->from;
    const ckpt__tensor *one = &x->tensors[a], *other = &x->tensors[b];
    uint64_t sum[2] = {0, 0};
    *same = ckpt__same_view(one, other);
    if (*same || one->info.dtype != other->info.dtype ||
        !ckpt__same_shape(one->info.shape, one->info.ndim, other->info.shape, other->info.ndim) ||
        ckpt__has_no_bytes(one) || ckpt__has_no_bytes(other))
        return CKPT_OK;
    ckpt__summer *s = NULL;
    ckpt_status status = ckpt__summer_new(l->m->reader->source, x, &s, l->err);
    for (int i = 0; status == CKPT_OK && i < 2; i++)
        status = ckpt__sum_tensor(s, i ? b : a, one->info.dtype, true, false, &sum[i], l->err);
    ckpt__summer_free(s);
    *same = sum[0] == sum[1];
    return status;
}

/* The name's own tensor; SIZE_MAX: it has none. */
static size_t tensor_of(const ckpt__laying *l, size_t name)
{
    const ckpt_str none = {"", 0};
    for (size_t at = l->items_of[name]; at != SIZE_MAX; at = l->items[at].next)
        if (ckpt__str_equal(l->items[at].head, none) && ckpt__str_equal(l->items[at].tail, none) &&
            l->m->canon->entries[l->items[at].entry].is_tensor)
            return l->m->canon->entries[l->items[at].entry].tensor;
    return SIZE_MAX;
}

ckpt_status ckpt__laying_check_drop(ckpt__laying *l, const ckpt__layout_use *use)
{
    size_t at = 0;
    bool same = false;
    if (use->output_count)
        return CKPT_OK;
    const ckpt_str name = l->names[use->inputs[0]].name, of = ckpt__layout_tie_of(l->layout, l->match->from, name);
    if (!of.data)
        return CKPT_OK;
    if (l->items_of[use->inputs[0]] == SIZE_MAX) /* a parameter that a group has, without any state */
        return CKPT_OK;
    const ckpt__hash *weights = l->by_weight ? l->by_weight : l->by_name;
    const size_t own = tensor_of(l, use->inputs[0]),
                 other = ckpt__hash_get(weights, of.data, of.size, &at) ? tensor_of(l, at) : SIZE_MAX;
    ckpt_status status = own != SIZE_MAX && other != SIZE_MAX ? compare(l, own, other, &same) : CKPT_OK;
    if (status == CKPT_OK && same && l->items[l->items_of[use->inputs[0]]].next == SIZE_MAX)
        return ckpt__migration_note(l->m, CKPT_SEVERITY_NOTE, "layout-tied", name, l->err,
                                    "the same as '%.*s', which the other program has once", (int)of.size, of.data);
    return status < 0 ? status
                      : ckpt__fail(l->err, CKPT_E_MISMATCH, l->m->src,
                                   "'%.*s' is not '%.*s' once more%s, and the other program has one tensor for both: "
                                   "nothing can become of it (--drop leaves it out all the same)",
                                   (int)name.size, name.data, (int)of.size, of.data,
                                   same ? ", but a parameter of its own with its own state" : "");
}

/* A rule drops it, with what belongs to it. */
static ckpt_status drop(ckpt__laying *l, const ckpt__layout_use *use)
{
    const bool tied =
        ckpt__layout_tie_of(l->layout, l->match->from, l->names[use->inputs[0]].name).data; /* said by now */
    for (size_t at = l->items_of[use->inputs[0]]; at != SIZE_MAX; at = l->items[at].next) {
        ckpt__canon_entry *e = &l->m->canon->entries[l->items[at].entry];
        ckpt_status status =
            tied ? CKPT_OK
                 : ckpt__migration_note(l->m, CKPT_SEVERITY_NOTE, "layout-dropped", e->name, l->err,
                                        "the layout leaves it out: the other program has no such tensor");
        if (status < 0)
            return status;
        leave_entry(l, e);
    }
    return CKPT_OK;
}

ckpt_status ckpt__laying_use(ckpt__laying *l, const ckpt__layout_use *use)
{
    if (!use->output_count)
        return drop(l, use);
    ckpt_status status = check_items(l, use);
    size_t *entries = calloc(use->input_count + 1, sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(l->err);
    for (size_t at = l->items_of[use->inputs[0]]; status == CKPT_OK && at != SIZE_MAX; at = l->items[at].next) {
        together t = {l, use, entries, l->items[at].head, l->items[at].tail};
        for (size_t i = 0; i < use->input_count; i++)
            entries[i] = l->items[item_like(l, use->inputs[i], t.head, t.tail)].entry;
        status = lay_item(&t);
    }
    free(entries);
    return status;
}

/* Another name of what a use has made: the tensor alone, for the optimizer has it once. */
ckpt_status ckpt__laying_tie(ckpt__laying *l, const ckpt__layout_tie *tie)
{
    ckpt__canon *c = l->m->canon;
    const ckpt_str of = l->match->uses[tie->use].outputs[tie->output];
    for (size_t i = 0; i < c->count; i++) {
        size_t made;
        if (!c->entries[i].is_tensor || c->entries[i].outside || c->entries[i].param.data ||
            !ckpt__str_equal(c->entries[i].name, of))
            continue;
        const ckpt__own own = (ckpt__own)l->m->ledger.rows[c->entries[i].tensor].own;
        ckpt_status status = add_entry(l, i, &made);
        if (status == CKPT_OK && !ckpt__grow(&l->ties, &l->tie_capacity, l->tie_count + 1, sizeof *l->ties))
            status = ckpt__migration_no_memory(l->err);
        if (status < 0)
            return status;
        l->ties[l->tie_count++] = (ckpt__laid_tie){c->entries[made].tensor, c->entries[i].tensor};
        if (own == CKPT__OWN_NONE) /* it is the same tensor, and may share its bytes */
            l->m->ledger.rows[c->entries[made].tensor].own = CKPT__OWN_NONE;
        c->entries[made].name = ckpt__arena_str(c->arena, tie->name.data, tie->name.size);
        return c->entries[made].name.data
                   ? ckpt__migration_note(l->m, CKPT_SEVERITY_NOTE, "layout-tied", tie->name, l->err,
                                          "the same as '%.*s', which the other program has under both names",
                                          (int)of.size, of.data)
                   : ckpt__migration_no_memory(l->err);
    }
    return CKPT_OK;
}
