/* restore/restore.c - restore, in this order: open, match, place, and report all that is wrong; then allocate, copy, put the
 * scalars, and only then let go of what was there before. */
#include "restore/restoration.h"

#include <stdlib.h>
#include "anatomy/part.h"
#include "base/first_sizes.h"

/* ---- preparing a side */

static ckpt_status read_options(ckpt__target_state *side, const ckpt_restore_options *options, const char *path,
                                ckpt_error *err)
{
    const ckpt_restore_options *o = &side->options;
    ckpt_status named = CKPT__TAKE_OPTIONS(ckpt_restore_options, &side->options, options, err);
    if (named == CKPT_OK)
        named = ckpt__canon_check_names(o->param_names, o->param_name_count, path, err);
    if (named == CKPT_OK)
        named = ckpt__order_check(o->assume_order, path, err);
    const uint64_t known = CKPT_AVOID_MAPPING | CKPT_AVOID_STREAMING | CKPT_AVOID_DIRECT;
    if (named == CKPT_OK && (o->avoid & ~known))
        named = ckpt__fail(err, CKPT_E_ARGUMENT, path, "avoid has the bits 0x%llx; this library knows 0x%llx",
                           (unsigned long long)o->avoid, (unsigned long long)known);
    if (named < 0)
        return named;
    side->ranks = o->ranks;
    if (side->ranks.world == 0)
        side->ranks = (ckpt_ranks)CKPT_RANKS_INIT;
    side->map = side->options.map;
    if (!side->map && side->options.map_location && *side->options.map_location) {
        ckpt_status status = ckpt_map_parse(side->options.map_location, &side->own_map, err);
        if (status < 0)
            return status;
        side->map = side->own_map;
    }
    return CKPT_OK;
}

static bool wants_optimizer(const ckpt_state *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (ckpt_role_is_optimizer(s->bindings[i].role))
            return true;
    for (size_t i = 0; i < s->scalar_count; i++)
        if (s->scalars[i].group != SIZE_MAX)
            return true;
    return s->group_count > 0;
}

static bool wants_scaler(const ckpt_state *s)
{
    for (size_t i = 0; i < s->scalar_count; i++)
        if (ckpt__str_begins(s->scalars[i].name, "scaler."))
            return true;
    return false;
}

/* The state's own groups, in its order. */
static ckpt_status hint_groups(ckpt__target_state *side, ckpt__canon_hints *hints, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    size_t n = 0;
    for (size_t g = 0; g < s->group_count; g++)
        n += s->groups[g].param_count;
    ckpt_str *params = ckpt__arena_array(side->memory, n + 1, sizeof *params);
    size_t *sizes = ckpt__arena_array(side->memory, s->group_count + 1, sizeof *sizes);
    if (!params || !sizes)
        return ckpt__fail_memory(err, "parameter groups", n);
    for (size_t g = 0, at = 0; g < s->group_count; g++) {
        sizes[g] = s->groups[g].param_count;
        for (size_t i = 0; i < s->groups[g].param_count; i++)
            params[at++] = s->groups[g].params[i];
    }
    hints->group_params = params;
    hints->group_sizes = sizes;
    hints->group_count = s->group_count;
    return CKPT_OK;
}

static ckpt_status name_things(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    ckpt__canon_hints hints = {.map = side->map,
                               .param_names = side->options.param_names,
                               .param_name_count = side->options.param_name_count,
                               .wants = ckpt__state_has_weights(s) ? ckpt__state_wants : NULL,
                               .wants_ctx = s,
                               .is_bound_so = ckpt__state_binds_so,
                               .bound_ctx = s,
                               .assume_order = side->options.assume_order,
                               .strict_order = side->options.strict_order,
                               .optional_optimizer = !wants_optimizer(s),
                               .needs_scaler = wants_scaler(s)};
    ckpt_status status = hint_groups(side, &hints, err);
    if (status == CKPT_OK)
        status = ckpt__canon_build(r->reader->index, &hints, &side->canon, side->report, err);
    return status;
}

/* All that is asked by name has been asked: of a checkpoint of a million tensors that is 150 MB which the placement and the bytes can
 * have. The entries of numbers that become tensors stay, and those of steps, whose number the placement may ask for. Without memory for
 * them all stay. */
static bool is_asked_again(const ckpt__target_state *side, size_t i)
{
    const ckpt__item *item = &side->items[i];
    return item->entry != CKPT__NOTHING &&
           (item->tensor == CKPT__NOTHING || side->state->bindings[i].role == CKPT_ROLE_STEP);
}

static void forget_names(ckpt__target_state *side)
{
    ckpt__canon *c = side->canon;
    uint32_t kept = 0;
    for (size_t i = 0; i < side->state->count; i++)
        kept += is_asked_again(side, i);
    ckpt__canon_entry *entries = malloc(((size_t)kept + 1) * sizeof *entries);
    if (!entries)
        return;
    kept = 0;
    for (size_t i = 0; i < side->state->count; i++) {
        ckpt__item *item = &side->items[i];
        if (is_asked_again(side, i)) {
            entries[kept] = c->entries[item->entry];
            item->entry = kept++;
        }
    }
    free(c->entries);
    ckpt__hash_free(c->by_name);
    free(side->consumed);
    c->entries = entries;
    c->count = kept;
    c->by_name = NULL;
    side->consumed = NULL;
}

static ckpt_status prepare(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    if (!side->report && !(side->report = side->own_report = ckpt_report_new()))
        return ckpt__fail_memory(err, r->path, 0);
    if (!(side->memory = ckpt__arena_new(0)))
        return ckpt__fail_memory(err, r->path, 0);
    ckpt__known known = {.begin = 0};
    ckpt_status status = ckpt__state_check_bound(side->state, true, true, err);
    if (status == CKPT_OK)
        status = name_things(r, side, err);
    if (status == CKPT_OK)
        status = ckpt__restore_match(r, side, err);
    if (status == CKPT_OK)
        forget_names(side);
    if (status == CKPT_OK)
        status = ckpt__restore_place(r, side, err);
    for (size_t i = 0; status == CKPT_OK && i < side->state->count; i++)
        if (!side->state->bindings[i].ours)
            status = ckpt__state_check_now(side->state, &side->state->bindings[i], &known, err);
    if (status == CKPT_OK && ckpt_report_worst(side->report) == CKPT_SEVERITY_ERROR)
        status = ckpt__report_fail(side->report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, r->path, err);
    return status;
}

static void free_side(ckpt__target_state *side)
{
    ckpt__canon_free(side->canon);
    ckpt_map_free(side->own_map);
    ckpt_report_free(side->own_report);
    ckpt__arena_free(side->memory);
    free(side->items);
    free(side->consumed);
    free(side->replaced);
    free(side->groups);
    free(side->pending);
    ckpt__restore_free_values(side);
    free(side->arena_data);
    free(side->arena_device);
}

/* ---- memory of ours on the target */

static bool arena_is_new(const ckpt__target_state *side, size_t a)
{
    const ckpt__state_arena *arena = &side->state->arenas[a];
    return side->arena_device[a].type != CKPT_DEVICE_NONE &&
           (!arena->data || !ckpt_device_equal(arena->device, side->arena_device[a]));
}

bool ckpt__restore_is_new(const ckpt__target_state *side, size_t i)
{
    const ckpt__binding *b = &side->state->bindings[i];
    if (b->arena != CKPT__NO_ARENA)
        return arena_is_new(side, b->arena);
    return b->ours && (!b->data || !ckpt_device_equal(ckpt__memory_device(&b->memory), side->items[i].target));
}

static ckpt_status allocate(ckpt__target_state *side, ckpt_error *err)
{
    ckpt_state *s = side->state;
    ckpt_status status = CKPT_OK;
    for (size_t a = 0; status == CKPT_OK && a < s->arena_count; a++)
        if (arena_is_new(side, a))
            status = ckpt__memory_new(side->arena_device[a], s->arenas[a].nbytes, &side->arena_data[a], err);
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        ckpt__item *item = &side->items[i];
        if (b->arena != CKPT__NO_ARENA) {
            void *base = side->arena_data[b->arena] ? side->arena_data[b->arena] : s->arenas[b->arena].data;
            item->data = (char *)base + b->arena_offset;
            item->fresh = side->arena_data[b->arena] != NULL;
        } else if (ckpt__restore_is_new(side, i)) {
            status = ckpt__fail_tensor(err, ckpt__memory_new(item->target, b->nbytes, &item->data, err), b->name);
            item->fresh = status == CKPT_OK;
        } else
            item->data = b->data;
    }
    return status;
}

static void release_new(ckpt__target_state *side)
{
    for (size_t i = 0; side->items && i < side->state->count; i++)
        if (side->items[i].fresh && side->state->bindings[i].arena == CKPT__NO_ARENA)
            ckpt__memory_release(side->items[i].target, side->items[i].data);
    for (size_t a = 0; side->arena_data && a < side->state->arena_count; a++)
        ckpt__memory_release(side->arena_device[a], side->arena_data[a]);
}

/* The new memory takes the old one's place. */
static void adopt(ckpt__target_state *side)
{
    ckpt_state *s = side->state;
    ckpt__state_changed(s);
    for (size_t i = 0; i < s->count; i++) {
        ckpt__binding *b = &s->bindings[i];
        const ckpt__item *item = &side->items[i];
        if (!item->fresh)
            continue;
        if (b->arena == CKPT__NO_ARENA)
            ckpt__memory_release(ckpt__memory_device(&b->memory), b->data);
        b->data = item->data;
        b->memory.device = item->target;
        b->memory.kind = item->target.type == CKPT_DEVICE_CUDA ? CKPT_MEMORY_DEVICE : CKPT_MEMORY_HOST;
        side->items[i].fresh = false; /* the state's from here on, whatever comes */
    }
    for (size_t a = 0; a < s->arena_count; a++)
        if (side->arena_data[a]) {
            ckpt__memory_release(s->arenas[a].device, s->arenas[a].data);
            s->arenas[a].data = side->arena_data[a];
            s->arenas[a].device = side->arena_device[a];
            side->arena_data[a] = NULL;
        }
}

/* ---- the bytes */

static ckpt_status open_lanes(ckpt__restorer *r, ckpt_error *err)
{
    for (size_t n = 0; n < r->count; n++) {
        const ckpt__target_state *side = &r->sides[n];
        ckpt__caller_streams callers = ckpt__state_streams(side->state);
        for (size_t i = 0; i < side->state->count; i++) {
            const ckpt__binding *b = &side->state->bindings[i];
            ckpt__lane *lane;
            ckpt_status status = ckpt__lanes_get(&r->lanes, &callers, side->items[i].target, &lane, err);
            if (status == CKPT_OK && b->data)
                status = ckpt__lanes_get(&r->lanes, &callers, ckpt__memory_device(&b->memory), &lane, err);
            if (status < 0)
                return status;
        }
    }
    return CKPT_OK;
}

/* New memory is zero already. */
static ckpt_status zero(ckpt__restorer *r, ckpt__target_state *side, size_t i, ckpt_error *err)
{
    const ckpt__binding *b = &side->state->bindings[i];
    const ckpt__item *item = &side->items[i];
    ckpt__strided place;
    if (item->fresh)
        return CKPT_OK;
    side->items[i].done = CKPT__TORN;
    ckpt__strided_init(&place, b->shape, b->strides, b->ndim, ckpt_dtype_size(b->dtype));
    return ckpt__put_zeros(&r->lanes, item->target, item->data, &place, err);
}

bool ckpt__restore_number_of(ckpt__restorer *r, const ckpt__target_state *side, size_t i, unsigned char bytes[16])
{
    const ckpt__binding *b = &side->state->bindings[i];
    const ckpt__item *item = &side->items[i];
    ckpt_status status;
    ckpt__number n;
    return item->tensor == CKPT__NOTHING && item->entry != CKPT__NOTHING && b->nbytes &&
           ckpt__restore_number(r, &side->canon->entries[item->entry], &n, &status, NULL) &&
           ckpt__restore_element(&n, b->dtype, bytes); /* as the match saw */
}

/* Tensors that were not in the checkpoint and change their device, or start at zero, and numbers that become tensors on a device. */
static ckpt_status place_rest(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < side->state->count; i++) {
        const ckpt__binding *b = &side->state->bindings[i];
        ckpt__item *item = &side->items[i];
        unsigned char bytes[16] = {0};
        if (item->tensor != CKPT__NOTHING || b->nbytes == 0)
            continue;
        if (item->fate == CKPT__ZEROED)
            status = zero(r, side, i, err);
        else if (item->entry == CKPT__NOTHING && item->fresh && b->data)
            status = ckpt__move_bytes(&r->lanes, item->target, item->data, ckpt__memory_device(&b->memory), b->data,
                                      b->nbytes, err);
        status = ckpt__fail_tensor(err, status, b->name);
        if (status < 0 || item->target.type == CKPT_DEVICE_CPU || !ckpt__restore_number_of(r, side, i, bytes))
            continue;
        item->done = CKPT__TORN;
        status = ckpt__fail_tensor(
            err, ckpt__put_bytes(&r->lanes, item->target, item->data, bytes, (size_t)b->nbytes, err), b->name);
        if (status == CKPT_OK)
            item->done = CKPT__COMPLETE;
    }
    return status;
}

/* Numbers that become tensors in host memory: last, as no device can fail then. */
static void put_numbers(ckpt__restorer *r, const ckpt__target_state *side)
{
    for (size_t i = 0; i < side->state->count; i++) {
        unsigned char bytes[16] = {0};
        if (side->items[i].target.type == CKPT_DEVICE_CPU && ckpt__restore_number_of(r, side, i, bytes))
            memcpy(side->items[i].data, bytes, (size_t)side->state->bindings[i].nbytes);
    }
}

/* ---- reports */

/* What will have been done. It is written down first, so that a restore which did it cannot fail for want of memory to
 * say so, and is taken back where it was not done. */
static ckpt_status report_done(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    char to[CKPT_DEVICE_NAME_MAX];
    side->foreseen = ckpt_report_count(side->report);
    for (size_t i = 0; i < side->state->count; i++) {
        const ckpt__binding *b = &side->state->bindings[i];
        const ckpt__item *item = &side->items[i];
        const ckpt_tensor_info *t =
            item->tensor == CKPT__NOTHING ? NULL : &r->reader->index->tensors[item->tensor].info;
        ckpt_device_name(item->target, to);
        bool ok = ckpt__report_use(side->report, item->target, b->role, b->nbytes);
        if (ok && t && t->device.data && !ckpt__str_is(t->device, to))
            ok = ckpt__report_add(side->report, CKPT_SEVERITY_NOTE, "moved", b->name.data, NULL, "from %s to %s",
                                  t->device.data, to) &&
                 ckpt__report_detail(side->report, NULL, t->device.data, to, b->nbytes);
        if (!ok || !ckpt__restore_report_replaced(r, side, i))
            return ckpt__fail_memory(err, "report", 0);
    }
    return CKPT_OK;
}

static void report_copied(ckpt__target_state *side, size_t binding, ckpt__copied done)
{
    static const char *const codes[] = {"untouched", "torn", "complete"};
    if (side->items[binding].fresh) /* it is given back, and the old memory still holds what it held */
        done = CKPT__UNTOUCHED;
    ckpt__report_add(side->report, done == CKPT__TORN ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_NOTE, codes[done],
                     side->state->bindings[binding].name.data, NULL, "%s when the restore stopped",
                     done == CKPT__UNTOUCHED ? "not yet touched"
                     : done == CKPT__TORN    ? "partly overwritten"
                                             : "restored");
}

/* After damage: what of each state is as before, what is new and whole, what is neither. */
static void report_torn(ckpt__restorer *r)
{
    for (size_t i = 0; i < r->bonds.count; i++)
        report_copied(&r->sides[r->bonds.owners[i].state], r->bonds.owners[i].binding, (ckpt__copied)r->bonds.done[i]);
    for (size_t n = 0; n < r->count; n++)
        for (size_t i = 0; i < r->sides[n].state->count; i++) {
            const ckpt__item *item = &r->sides[n].items[i];
            if (item->tensor == CKPT__NOTHING && (item->entry != CKPT__NOTHING || item->fate == CKPT__ZEROED) &&
                r->sides[n].state->bindings[i].nbytes)
                report_copied(&r->sides[n], i, (ckpt__copied)item->done);
        }
}

/* ---- all of it */

static bool touched(const ckpt__restorer *r, size_t side)
{
    for (size_t i = 0; i < r->bonds.count; i++)
        if (r->bonds.owners[i].state == side && r->bonds.done[i] != CKPT__UNTOUCHED &&
            !r->sides[side].items[r->bonds.owners[i].binding].fresh)
            return true;
    for (size_t i = 0; i < r->sides[side].state->count; i++)
        if (r->sides[side].items[i].done != CKPT__UNTOUCHED && !r->sides[side].items[i].fresh)
            return true;
    return false;
}

/* All bytes are in their places: the numbers and scalars, our new memory, and last the values that hooks take. Where one does not, the
 * values of the states behind it are old. */
static ckpt_status hand_over(ckpt__restorer *r, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t n = 0; n < r->count; n++) {
        put_numbers(r, &r->sides[n]);
        ckpt__restore_apply_scalars(&r->sides[n]);
        adopt(&r->sides[n]);
        r->sides[n].state->poisoned = false;
    }
    for (size_t n = 0; n < r->count; n++)
        if (status == CKPT_OK)
            status = ckpt__restore_take_values(&r->sides[n], err);
        else if (r->sides[n].state->value_count)
            r->sides[n].state->poisoned = true;
    return status;
}

/* The plan of all. What it finds is in the reports, from which what will have been done is taken. */
static ckpt_status bind_all(ckpt__restorer *r, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__restore_bind(r, &why);
    if (status < 0 && err)
        *err = why;
    if (status != CKPT_E_MISMATCH)
        return status;
    for (size_t n = 0; n < r->count; n++)
        ckpt__report_cut(r->sides[n].report, r->sides[n].foreseen);
    ckpt_status noted = ckpt__restore_not_whole(r, &why, err);
    for (size_t n = 0; n < r->count; n++)
        r->sides[n].foreseen = ckpt_report_count(r->sides[n].report);
    return noted < 0 ? noted : status;
}

static ckpt_status move(ckpt__restorer *r, ckpt_error *err)
{
    const ckpt_restore_options *o = &r->sides[0].options;
    ckpt_status status = CKPT_OK;
    bool started = false;
    for (size_t n = 0; status == CKPT_OK && n < r->count; n++)
        status = allocate(&r->sides[n], err);
    if (status == CKPT_OK)
        status = bind_all(r, err);
    for (size_t n = 0; status == CKPT_OK && n < r->count; n++)
        status = ckpt__restore_read_values(r, n, err);
    if (status == CKPT_OK)
        status = open_lanes(r, err);
    if (status == CKPT_OK && o->verify_first && !o->no_verify)
        status = ckpt__restore_push(r, true, err);
    if (status == CKPT_OK) {
        started = true;
        status = ckpt__restore_push(r, false, err);
    }
    for (size_t n = 0; status == CKPT_OK && n < r->count; n++)
        status = place_rest(r, &r->sides[n], err);
    ckpt_status closed = ckpt__lanes_close(&r->lanes, status < 0 ? NULL : err);
    status = status < 0 ? status : closed;
    if (status == CKPT_OK)
        return hand_over(r, err);
    for (size_t n = 0; n < r->count; n++) {
        if (started && touched(r, n))
            r->sides[n].state->poisoned = true;
        ckpt__report_cut(r->sides[n].report, r->sides[n].foreseen);
    }
    if (started)
        report_torn(r);
    return status;
}

ckpt_status ckpt_restore_many(ckpt_state *const *states, size_t n, const char *path,
                              const ckpt_restore_options *const *options, ckpt_report *const *reports, ckpt_error *err)
{
    for (size_t i = 0; reports && i < n; i++)
        ckpt_report_clear(reports[i]);
    if (!states || n == 0 || !path || !*path)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_restore", "a NULL state or path");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k <= i; k++)
            if (!states[i] || (k < i && states[k] == states[i]))
                return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_restore_many", "state %zu is NULL or given twice", i);
    ckpt__restorer r = {.path = path, .count = n};
    if (!(r.sides = calloc(n, sizeof *r.sides)))
        return ckpt__fail_memory(err, path, 0);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < n; i++) {
        r.sides[i].state = states[i];
        r.sides[i].report = reports ? reports[i] : NULL;
        status = read_options(&r.sides[i], options ? options[i] : NULL, path, err);
    }
    const ckpt_restore_options *of_first = status == CKPT_OK ? &r.sides[0].options : NULL;
    ckpt_reader_options ro = CKPT_READER_OPTIONS_INIT;
    ro.format = of_first ? of_first->format : NULL;
    ro.also = of_first ? of_first->also : NULL;
    ro.also_count = of_first ? of_first->also_count : 0;
    if (status == CKPT_OK)
        status = ckpt__reader_nameless(path, &ro, &r.reader, err);
    if (status == CKPT_OK)
        status = ckpt__part_refuse(r.reader->index, path, err);
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = prepare(&r, &r.sides[i], err);
    if (status == CKPT_OK)
        status = ckpt__restore_shared(&r, err);
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = report_done(&r, &r.sides[i], err);
    bool moving = status == CKPT_OK;
    if (moving)
        status = move(&r, err);
    for (size_t i = 0; i < n; i++) {
        if (moving && status < 0)
            release_new(&r.sides[i]);
        free_side(&r.sides[i]);
    }
    ckpt__restore_free_bonds(&r.bonds);
    ckpt_reader_close(r.reader);
    free(r.sides);
    return status;
}

ckpt_status ckpt_restore(ckpt_state *state, const char *path, const ckpt_restore_options *options, ckpt_report *report,
                         ckpt_error *err)
{
    return ckpt_restore_many(&state, 1, path, &options, &report, err);
}
