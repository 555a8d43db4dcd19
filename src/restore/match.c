/* restore/match.c - which tensor of the checkpoint each binding gets, and what fits nothing. */
#include "restore/restoration.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/native/native.h"
#include "format/table.h"

ckpt_status ckpt__target_note(ckpt__target_state *side, ckpt_severity severity, const char *code, const char *tensor,
                              const char *fix, ckpt_error *err, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (!ckpt__report_add(side->report, severity, code, tensor, fix, "%s", text))
        return ckpt__fail_memory(err, "report", 0);
    return CKPT_OK;
}

static bool find_entry(const ckpt__target_state *side, ckpt_str name, size_t *entry)
{
    return ckpt__hash_get(side->canon->by_name, name.data, name.size, entry);
}

/* A tied tensor may be stored under its other name alone (safetensors leaves one of the two out). */
static bool find_by_alias(const ckpt__target_state *side, ckpt_str name, size_t *entry)
{
    for (size_t i = 0; i < side->state->alias_count; i++)
        if (ckpt__str_equal(side->state->aliases[i].of, name) && find_entry(side, side->state->aliases[i].name, entry))
            return true;
    return false;
}

bool ckpt__target_find(const ckpt__target_state *side, ckpt_str name, size_t *entry)
{
    return find_entry(side, name, entry) || find_by_alias(side, name, entry);
}

/* ---- what is not there */

enum { PREFIX_SEARCHES = 8 }; /* each looks at every entry */

/* Is there an entry "<prefix><name>"? What comes of the prefix is kept: mostly it is the same for all. */
static void search_prefix(ckpt__target_state *side, ckpt_str name)
{
    const ckpt__canon_entry *found = NULL;
    for (size_t i = 0; i < side->canon->count && (!found || found->outside); i++) {
        const ckpt__canon_entry *e = &side->canon->entries[i];
        size_t before = e->name.size > name.size ? e->name.size - name.size : 0;
        if (e->is_tensor && before > 1 && !e->param.data && e->name.data[before - 1] == '.' &&
            memcmp(e->name.data + before, name.data, name.size) == 0 && (!found || !e->outside))
            found = e;
    }
    side->prefix = (ckpt_str){NULL, 0};
    if (found)
        side->prefix = (ckpt_str){found->name.data, found->name.size - name.size};
    side->prefix_outside = found && found->outside;
}

static bool has_prefixed(const ckpt__target_state *side, ckpt_str name)
{
    ckpt__buf full = {0};
    size_t entry;
    ckpt__buf_add(&full, side->prefix.data, side->prefix.size);
    ckpt__buf_add(&full, name.data, name.size);
    bool has = !full.failed && ckpt__hash_get(side->canon->by_name, full.data, full.size, &entry);
    ckpt__buf_free(&full);
    return has;
}

/* The checkpoint may have it under a longer or a shorter name: then says what to do, else leaves `fix` as it is. */
static void other_name(ckpt__target_state *side, ckpt_str name, char *fix, size_t size)
{
    char shown[200];
    size_t entry;
    for (size_t i = 1; i < name.size; i++)
        if (name.data[i - 1] == '.' && find_entry(side, (ckpt_str){name.data + i, name.size - i}, &entry) &&
            side->canon->entries[entry].is_tensor && !side->canon->entries[entry].outside) {
            ckpt__escape(shown, sizeof shown, name.data, i);
            snprintf(
                fix, size,
                "the checkpoint has it without '%s': bind it so, or give it this name with the map's source.rename",
                shown);
            return;
        }
    if (!(side->prefix.data && has_prefixed(side, name))) {
        if (side->prefix_searches >= PREFIX_SEARCHES)
            return;
        side->prefix_searches++;
        search_prefix(side, name);
    }
    if (!side->prefix.data)
        return;
    bool outside = side->prefix_outside;
    ckpt__escape(shown, sizeof shown, side->prefix.data, side->prefix.size - (outside ? 1 : 0));
    snprintf(fix, size,
             outside
                 ? "the checkpoint has it below '%s': if that is the model, name it in the map: source: {model: '%s'}"
                 : "the checkpoint has it with '%s' before it: take that off with the map's "
                   "source: {strip_prefix: ['%s']}",
             shown, shown);
}

/* `thing`: the parameter or buffer that it is, or belongs to; data NULL: neither. */
static ckpt_status missing(ckpt__target_state *side, ckpt_str name, ckpt_str thing, ckpt_error *err)
{
    char fix[600] = "if it is meant to be new, permit it with allow_missing or ckpt_state_optional";
    if (ckpt__state_is_optional(side->state, name))
        return ckpt__target_note(side, CKPT_SEVERITY_NOTE, "kept", name.data, NULL, err,
                                 "it is not in the checkpoint and keeps its value");
    if (side->options.allow_missing)
        return ckpt__target_note(side, CKPT_SEVERITY_NOTE, "missing", name.data, NULL, err,
                                 "it is not in the checkpoint and keeps its value (allow_missing)");
    if (thing.data)
        other_name(side, thing, fix, sizeof fix);
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "missing", name.data, fix, err,
                             "it is bound and the checkpoint has no tensor or value of that name");
}

/* ---- what is there */

static ckpt_status check_shape(ckpt__target_state *side, const ckpt__binding *b, const ckpt_tensor_info *t,
                               ckpt_error *err)
{
    char have[256], want[256];
    uint64_t ours = 0, theirs = 0;
    if (ckpt__same_shape(b->shape, b->ndim, t->shape, t->ndim))
        return CKPT_OK;
    /* A counter of shape [] and one of shape [1] hold the same number. */
    if (b->role == CKPT_ROLE_STEP && ckpt__numel(b->shape, b->ndim, &ours) && ckpt__numel(t->shape, t->ndim, &theirs) &&
        ours == 1 && theirs == 1)
        return CKPT_OK;
    ckpt__shape_text(have, sizeof have, t->shape, t->ndim);
    ckpt__shape_text(want, sizeof want, b->shape, b->ndim);
    return ckpt__target_note(
        side, CKPT_SEVERITY_ERROR, "shape-mismatch", b->name.data,
        "bind it in that shape; what is meant to be new (another head) is named with ckpt_state_replace", err,
        "its shape is %s in the checkpoint and %s in the state", have, want);
}

static ckpt_status match_binding(ckpt__restorer *r, ckpt__target_state *side, size_t i, ckpt_error *err)
{
    const ckpt__binding *b = &side->state->bindings[i];
    ckpt__item *item = &side->items[i];
    size_t entry;
    *item = (ckpt__item){.entry = CKPT__NOTHING, .tensor = CKPT__NOTHING, .like = CKPT__NOTHING};
    if (ckpt__restore_replace(side, i))
        return CKPT_OK;
    if (!ckpt__target_find(side, b->name, &entry)) {
        bool weight = b->role == CKPT_ROLE_PARAM || b->role == CKPT_ROLE_BUFFER;
        return missing(side, b->name, weight ? b->name : b->param, err);
    }
    const ckpt__canon_entry *e = &side->canon->entries[entry];
    item->entry = (uint32_t)entry;
    side->consumed[entry] = true;
    if (!e->is_tensor) {
        ckpt__number n;
        uint64_t numel;
        unsigned char bytes[16];
        char number[CKPT__NUMBER_MAX];
        ckpt_status status = CKPT_OK;
        if (ckpt__numel(b->shape, b->ndim, &numel) && numel == 1 && ckpt__restore_number(r, e, &n, &status, err)) {
            if (ckpt__restore_element(&n, b->dtype, bytes))
                return CKPT_OK; /* an optimizer that keeps step as a number */
            return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "value-mismatch", b->name.data, NULL, err,
                                     "its value %s in the checkpoint cannot be held exactly by %s",
                                     ckpt__number_text(&n, number), ckpt_dtype_name(b->dtype));
        }
        if (status < 0)
            return status;
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "kind-mismatch", b->name.data, NULL, err,
                                 "it is bound as a tensor of %llu bytes, and the checkpoint holds a %s there",
                                 (unsigned long long)b->nbytes, ckpt_kind_name(e->value->kind));
    }
    const ckpt_tensor_info *t = &r->reader->index->tensors[e->tensor].info;
    item->tensor = (uint32_t)e->tensor;
    if (t->extra->quantizer.data)
        return ckpt__target_note(
            side, CKPT_SEVERITY_ERROR, "no-data", b->name.data, "save it dequantized: tensor.dequantize()", err,
            "it is quantized in the checkpoint (%s), and its bytes mean nothing without scale and zero "
            "point; only dense tensors are restored",
            t->extra->quantizer.data);
    if (t->extra->layout.data || (ckpt__has_no_bytes(&r->reader->index->tensors[e->tensor]) && t->nbytes))
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "no-data", b->name.data, NULL, err,
                                 t->extra->layout.data
                                     ? "its layout in the checkpoint is %s; only dense tensors are restored"
                                     : "it has no data in the checkpoint (%s)",
                                 t->extra->layout.data ? t->extra->layout.data : "a meta tensor");
    return check_shape(side, b, t, err);
}

/* ---- names tied in the state */

/* One is not the other, whatever their bytes. */
static ckpt_status tie_differs(ckpt__target_state *side, const ckpt__alias *a, const ckpt_tensor_info *of,
                               const ckpt_tensor_info *tied, ckpt_error *err)
{
    char have[200], want[200];
    ckpt__shape_text(have, sizeof have, tied->shape, tied->ndim);
    ckpt__shape_text(want, sizeof want, of->shape, of->ndim);
    return ckpt__target_note(
        side, CKPT_SEVERITY_ERROR, "tie-broken", a->name.data, "bind it as a tensor of its own instead of an alias",
        err, "the state ties it to '%s', and the checkpoint holds it as %s %s, and '%s' as %s %s", a->of.data,
        ckpt_dtype_name(tied->dtype), have, a->of.data, ckpt_dtype_name(of->dtype), want);
}

static ckpt_status check_alias(ckpt__restorer *r, ckpt__target_state *side, const ckpt__alias *a, ckpt_error *err)
{
    const ckpt__index *x = r->reader->index;
    size_t entry;
    if (!find_entry(side, a->name, &entry))
        return CKPT_OK;
    side->consumed[entry] = true;
    const ckpt__binding *b = ckpt__state_find(side->state, a->of.data, a->of.size);
    const ckpt__item *item = &side->items[b - side->state->bindings];
    const ckpt__canon_entry *e = &side->canon->entries[entry];
    if (!e->is_tensor || item->tensor == CKPT__NOTHING || item->tensor == e->tensor)
        return CKPT_OK;
    const ckpt__tensor *p = &x->tensors[item->tensor], *q = &x->tensors[e->tensor];
    if (ckpt__same_view(p, q))
        return CKPT_OK;
    if (p->info.dtype != q->info.dtype || !ckpt__same_shape(p->info.shape, p->info.ndim, q->info.shape, q->info.ndim))
        return tie_differs(side, a, &p->info, &q->info, err);
    uint32_t c1, c2;
    bool check = !r->sides[0].options.no_verify;
    ckpt_status status = ckpt__reader_crc32(r->reader, item->tensor, check, &c1, err);
    if (status == CKPT_OK)
        status = ckpt__reader_crc32(r->reader, e->tensor, check, &c2, err);
    if (status < 0)
        return status;
    if (c1 == c2)
        return CKPT_OK;
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "tie-broken", a->name.data,
                             "bind it as a tensor of its own instead of an alias", err,
                             "the state ties it to '%s', and the checkpoint holds two different tensors", a->of.data);
}

/* ---- groups */

static ckpt_status same_params(const ckpt__group *g, const ckpt__canon_group *c, bool *same, ckpt_error *err)
{
    *same = g->param_count == c->param_count;
    if (!*same)
        return CKPT_OK;
    ckpt__hash *h = ckpt__hash_new(g->param_count);
    ckpt_status status = h ? CKPT_OK : ckpt__fail_memory(err, "parameter groups", 0);
    for (size_t i = 0; status == CKPT_OK && i < g->param_count; i++)
        if (ckpt__hash_put(h, g->params[i].data, g->params[i].size, i, NULL) < 0)
            status = ckpt__fail_memory(err, "parameter groups", 0);
    for (size_t i = 0; status == CKPT_OK && *same && i < c->param_count; i++)
        *same = ckpt__hash_get(h, c->params[i].data, c->params[i].size, NULL);
    ckpt__hash_free(h);
    return status;
}

/* One of a's parameters that b has not; data NULL: there is none (or no memory to look). */
static ckpt_str not_among(const ckpt_str *a, size_t count, const ckpt_str *b, size_t b_count)
{
    ckpt__hash *h = ckpt__hash_new(b_count);
    ckpt_str odd = {NULL, 0};
    bool ok = h != NULL;
    for (size_t i = 0; ok && i < b_count; i++)
        ok = ckpt__hash_put(h, b[i].data, b[i].size, i, NULL) >= 0;
    for (size_t i = 0; ok && !odd.data && i < count; i++)
        if (!ckpt__hash_get(h, a[i].data, a[i].size, NULL))
            odd = a[i];
    ckpt__hash_free(h);
    return odd;
}

static ckpt_status groups_differ(ckpt__target_state *side, const ckpt__group *g, const ckpt__canon_group *c,
                                 ckpt_error *err)
{
    char shown[200] = "", which[300] = "";
    ckpt_str ours = not_among(g->params, g->param_count, c->params, c->param_count),
             theirs = not_among(c->params, c->param_count, g->params, g->param_count), odd = ours.data ? ours : theirs;
    if (odd.data)
        snprintf(which, sizeof which, "; '%s' is in the %s's only",
                 ckpt__escape(shown, sizeof shown, odd.data, odd.size), ours.data ? "state" : "checkpoint");
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "group-mismatch", g->name.data,
                             "bind the groups with the parameters that they have in the checkpoint, or bind no groups",
                             err, "parameter group '%s' has %zu parameters in the state and %zu in the checkpoint%s",
                             g->name.data, g->param_count, c->param_count, which);
}

/* By the parameters, and among equals by the name. */
static ckpt_status match_group(ckpt__target_state *side, size_t g, ckpt_error *err)
{
    const ckpt__canon *c = side->canon;
    const ckpt__group *group = &side->state->groups[g];
    size_t by_params = SIZE_MAX, by_name = SIZE_MAX;
    for (size_t i = 0; i < c->group_count; i++) {
        bool named = ckpt__str_equal(group->name, c->groups[i].name), same = false;
        if (named)
            by_name = i;
        if (by_params != SIZE_MAX && !named)
            continue;
        ckpt_status status = same_params(group, &c->groups[i], &same, err);
        if (status < 0)
            return status;
        if (same)
            by_params = i;
    }
    side->groups[g] = by_params != SIZE_MAX ? by_params : by_name;
    if (by_params != SIZE_MAX || by_name == SIZE_MAX)
        return CKPT_OK;
    return groups_differ(side, group, &c->groups[by_name], err);
}

/* ---- what nobody asked for */

static ckpt_status leftovers(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    const ckpt__index *x = r->reader->index;
    /* A file that ckpt_save wrote holds what a trainer bound: a value that nobody asks for now is a mistake. One that came
     * from another program holds much that was never bound. */
    bool bound = ckpt__format_of(x)->bound && !(x->root && ckpt_value_get(x->root, CKPT__OUTSIDE_KEY));
    for (size_t i = 0; i < side->canon->count; i++) {
        const ckpt__canon_entry *e = &side->canon->entries[i];
        if (side->consumed[i] || (ckpt__str_begins(e->name, "optimizer.groups.") && ckpt__str_ends(e->name, ".params")))
            continue;
        /* The values of other programs (their arguments, their RNG) are no part of this state; their tensors are. */
        bool strict = !e->outside && (e->is_tensor || bound) && e->role != CKPT_ROLE_RNG &&
                      !ckpt__restore_is_of_replaced(side, e->name, e->param, NULL);
        ckpt_status status;
        if (strict && !side->options.allow_unexpected && !ckpt__state_is_optional(side->state, e->name))
            status = ckpt__target_note(side, CKPT_SEVERITY_ERROR, "unexpected", e->name.data,
                                       "bind it, or permit it with allow_unexpected", err,
                                       "it is in the checkpoint, and nothing of that name is bound");
        else
            status = ckpt__target_note(side, CKPT_SEVERITY_NOTE, "left-over", e->name.data, NULL, err,
                                       "it is in the checkpoint and nothing of that name is bound: left alone");
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

ckpt_status ckpt__restore_match(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    if (side->canon->count >= CKPT__NOTHING)
        return ckpt__fail(err, CKPT_E_LIMIT, r->path, "it has too many tensors and values");
    side->items = calloc(s->count + 1, sizeof *side->items);
    side->consumed = calloc(side->canon->count + 1, sizeof *side->consumed);
    side->groups = calloc(s->group_count + 1, sizeof *side->groups);
    if (!side->items || !side->consumed || !side->groups)
        return ckpt__fail_memory(err, r->path, 0);
    ckpt_status status = ckpt__restore_find_replaced(r, side, err);
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++)
        status = match_binding(r, side, i, err);
    for (size_t i = 0; status == CKPT_OK && i < s->alias_count; i++)
        status = check_alias(r, side, &s->aliases[i], err);
    for (size_t i = 0; status == CKPT_OK && i < s->group_count; i++)
        status = match_group(side, i, err);
    if (status == CKPT_OK)
        status = ckpt__restore_scalars(r, side, err);
    if (status == CKPT_OK)
        status = ckpt__restore_values(r, side, err);
    return status == CKPT_OK ? leftovers(r, side, err) : status;
}
