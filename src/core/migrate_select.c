/* core/migrate_select.c - which tensors go along. What does not is taken out of the value tree as well: entries of
 * dicts go, items of lists become None, so that load_state_dict(strict=False) takes what is left. */
#include "core/migrate_job.h"
#include "core/migrate_order.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- taking tensors out of the tree */

typedef struct cutter {
    ckpt__mover *m;
    ckpt__cuts cuts;
    ckpt__hash *names; /* of the places that go; NULL: by number alone */
    ckpt_error *err;
} cutter;

/* The name without the file that it starts with, in a directory's tree. */
static ckpt_str inner_name(const ckpt_visit *v)
{
    ckpt_str first = v->path.count > 1 ? v->path.keys[0].text : (ckpt_str){ NULL, 0 };
    if (!first.data || v->name.size <= first.size)
        return v->name;
    return (ckpt_str){ v->name.data + first.size + 1, v->name.size - first.size - 1 };
}

static int cut_spot(void *ctx, const ckpt__spot *spot)
{
    cutter *c = ctx;
    const ckpt_value *v = spot->visit->value;
    const ckpt__index *x = c->m->from;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= x->tensor_count || spot->visit->cycle)
        return CKPT_OK;
    ckpt_str name = spot->visit->name, inner = inner_name(spot->visit);
    bool goes = c->names && ckpt__hash_get(c->names, name.data, name.size, NULL);
    if (!goes && c->names && (c->m->reader->source->directory || c->m->by_files))
        goes = ckpt__hash_get(c->names, inner.data, inner.size, NULL);
    /* a place whose name is not in the list is that of the same tensor under another name, or a flat tensor's */
    if (!goes && c->m->dropped[v->tensor])
        goes = !c->names || ckpt__is_flat(x, v->tensor);
    if (goes && !ckpt__cuts_add(&c->cuts, spot))
        return ckpt__fail_memory(c->err, "the value tree", 0);
    return CKPT_OK;
}

/* by_name: of a tensor that has two names only those places go that are named; else all that show it. */
static ckpt_status cut_dropped(ckpt__mover *m, bool by_name, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    cutter c = { .m = m, .err = err };
    ckpt_status status = CKPT_OK;
    if (by_name && !(c.names = ckpt__hash_new(x->tensor_count)))
        return ckpt__mover_no_memory(err);
    for (size_t i = 0; by_name && i < x->tensor_count; i++)
        if (m->dropped[i] && !ckpt__is_flat(x, i) &&
            ckpt__hash_put(c.names, x->tensors[i].info.name.data, x->tensors[i].info.name.size, i, NULL) < 0)
            status = ckpt__mover_no_memory(err);
    if (status == CKPT_OK)
        status = ckpt__edit_walk(x->root, cut_spot, &c, err);
    if (status == CKPT_OK)
        m->holes |= ckpt__cuts_apply(&c.cuts);
    ckpt__cuts_free(&c.cuts);
    ckpt__hash_free(c.names);
    return status;
}

/* A tensor with two names is listed twice, and its value has the number of the first. Where that went and the other stays,
 * the value is the other's from now on. */
typedef struct renumber {
    const ckpt__mover *m;
    const ckpt__hash *listed;     /* name -> tensor that stays */
    size_t emptied;               /* places of tensors that stay, and are None now */
    ckpt_str first;               /* the first of them */
} renumber;

static int renumber_value(void *ctx, const ckpt_visit *visit)
{
    renumber *r = ctx;
    ckpt_value *v = (ckpt_value *)(uintptr_t)visit->value; /* the reader is this call's own */
    size_t to;
    if (v->kind == CKPT_V_TENSOR && v->tensor < r->m->from->tensor_count && r->m->dropped[v->tensor] &&
        ckpt__hash_get(r->listed, visit->name.data, visit->name.size, &to))
        v->tensor = to;
    if (v->kind == CKPT_V_NONE && ckpt__hash_get(r->listed, visit->name.data, visit->name.size, &to) && r->emptied++ == 0)
        r->first = r->m->from->tensors[to].info.name;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_second_names(ckpt__mover *m, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    ckpt__hash *listed = ckpt__hash_new(x->tensor_count);
    renumber r = { m, listed, 0, { NULL, 0 } };
    ckpt_status status = listed ? CKPT_OK : ckpt__mover_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        if (!m->dropped[i] && !ckpt__is_flat(x, i) &&
            ckpt__hash_put(listed, x->tensors[i].info.name.data, x->tensors[i].info.name.size, i, NULL) < 0)
            status = ckpt__mover_no_memory(err);
    if (status == CKPT_OK && x->root)
        status = (ckpt_status)ckpt_value_walk(x->root, 0, renumber_value, &r, err);
    ckpt__hash_free(listed);
    if (status < 0 || !r.emptied)
        return status;
    char shown[200];
    ckpt__escape(shown, sizeof shown, r.first.data, r.first.size);
    return ckpt__report_add(m->lost, CKPT_WARNING, "lost", shown, "drop it by this name too",
                            "%zu places hold the same tensor as an opaque object that was to lose it, and become None with it",
                            r.emptied)
               ? CKPT_OK
               : ckpt__mover_no_memory(err);
}

/* A tensor's parts go with it. */
static void drop(ckpt__mover *m, size_t i)
{
    for (size_t end = ckpt__tensor_end(m->from, i); i < end; i++)
        m->dropped[i] = true;
}

/* ---- patterns */

static bool has_wildcard(const char *glob)
{
    return *glob != '=' && strpbrk(glob, "*?\\") != NULL;
}

static bool matches(const char *glob, ckpt_str name)
{
    if (!name.data)
        return false;
    if (*glob == '=')
        return ckpt__str_is(name, glob + 1);
    return ckpt__glob(glob, strlen(glob), name.data, name.size);
}

static bool any_matches(const char *const *globs, size_t n, ckpt_str name)
{
    for (size_t k = 0; k < n; k++)
        if (matches(globs[k], name))
            return true;
    return false;
}

static bool selected(const ckpt__mover *m, const ckpt_tensor_info *t)
{
    const ckpt_migrate_options *o = &m->options;
    const char *role = ckpt_role_name(t->role);
    bool by_role = o->only_role_count == 0, by_device = o->only_device_count == 0;
    for (size_t i = 0; i < o->only_role_count; i++)
        by_role = by_role || strcmp(o->only_role[i], role) == 0;
    for (size_t i = 0; i < o->only_device_count; i++)
        by_device = by_device || ckpt__str_is(t->device, o->only_device[i]);
    return by_role && by_device && (o->only_tensor_count == 0 || any_matches(o->only_tensor, o->only_tensor_count, t->name));
}

/* ---- --drop, and what else is selected */

/* Canonical names count as well as the file's own: nobody knows which number a parameter's state has. */
typedef struct canonical {
    ckpt__canon *canon;
    ckpt__hash *listed; /* own name -> tensor: a tie is listed under both */
    ckpt_str *names; /* per tensor */
} canonical;

static size_t listing(const canonical *c, const ckpt__canon_entry *e)
{
    size_t i;
    return ckpt__hash_get(c->listed, e->own.data, e->own.size, &i) ? i : e->tensor;
}

static ckpt_status canonical_names(ckpt__mover *m, canonical *c, ckpt_error *err)
{
    c->canon = m->canon;
    c->names = calloc(m->from->tensor_count + 1, sizeof *c->names);
    c->listed = ckpt__hash_new(m->from->tensor_count);
    if (!c->names || !c->listed)
        return ckpt__mover_no_memory(err);
    for (size_t i = 0; i < m->from->tensor_count; i++) {
        ckpt_str name = m->from->tensors[i].info.name;
        if (ckpt__hash_put(c->listed, name.data, name.size, i, NULL) < 0)
            return ckpt__mover_no_memory(err);
    }
    for (size_t i = 0; i < c->canon->count; i++) {
        const ckpt__canon_entry *e = &c->canon->entries[i];
        if (e->is_tensor)
            c->names[listing(c, e)] = e->name;
    }
    return CKPT_OK;
}

static void canonical_free(canonical *c)
{
    ckpt__hash_free(c->listed);
    free(c->names);
}

typedef struct dropper {
    ckpt__mover *m;
    bool *used; /* per pattern */
    ckpt__cuts *cuts;
    ckpt_error *err;
} dropper;

/* A pattern without wildcards may name anything of the tree, with all that is below it. */
static int drop_value(void *ctx, const ckpt__spot *spot)
{
    dropper *d = ctx;
    const ckpt_migrate_options *o = &d->m->options;
    if (spot->visit->value->kind == CKPT_V_TENSOR || !spot->parent)
        return CKPT_OK;
    for (size_t k = 0; k < o->drop_count; k++) {
        if (has_wildcard(o->drop[k]) || !matches(o->drop[k], spot->visit->name))
            continue;
        d->used[k] = true;
        if (!ckpt__cuts_add(d->cuts, spot))
            return ckpt__fail_memory(d->err, "the value tree", 0);
    }
    return CKPT_OK;
}

static bool is_below(ckpt_str name, const char *above)
{
    above += *above == '=';
    size_t n = strlen(above);
    return name.size > n && name.data[n] == '.' && memcmp(name.data, above, n) == 0;
}

static void drop_below(dropper *d)
{
    ckpt__mover *m = d->m;
    for (size_t i = 0; i < m->from->tensor_count; i++)
        for (size_t k = 0; k < m->options.drop_count; k++)
            if (!has_wildcard(m->options.drop[k]) && is_below(m->from->tensors[i].info.name, m->options.drop[k])) {
                m->dropped[i] = true;
                d->used[k] = true;
            }
}

/* After the tensors: places move when entries go. */
static ckpt_status drop_values(dropper *d)
{
    ckpt__cuts cuts = { NULL, 0, 0 };
    d->cuts = &cuts;
    ckpt_status status = ckpt__edit_walk(d->m->from->root, drop_value, d, d->err);
    if (status == CKPT_OK)
        d->m->holes |= ckpt__cuts_apply(&cuts);
    ckpt__cuts_free(&cuts);
    return status;
}

/* Values that went have no canonical name either. */
static void forget_values(const dropper *d)
{
    const ckpt_migrate_options *o = &d->m->options;
    for (size_t i = 0; i < d->m->canon->count; i++) {
        ckpt__canon_entry *e = &d->m->canon->entries[i];
        for (size_t k = 0; !e->is_tensor && k < o->drop_count; k++)
            if (!has_wildcard(o->drop[k]) && (matches(o->drop[k], e->own) || is_below(e->own, o->drop[k])))
                e->value = NULL;
    }
}

static void drop_tensors(dropper *d, const ckpt_str *names)
{
    ckpt__mover *m = d->m;
    for (size_t i = 0; i < m->from->tensor_count; i++) {
        const ckpt_tensor_info *t = &m->from->tensors[i].info;
        for (size_t k = 0; k < m->options.drop_count; k++)
            if (matches(m->options.drop[k], t->name) || matches(m->options.drop[k], names[i])) {
                d->used[k] = true;
                drop(m, i);
            }
        size_t end = ckpt__tensor_end(m->from, i);
        if (end > i + 1 && !m->dropped[i] && !selected(m, t))
            drop(m, i);
        else if (!m->dropped[i] && !selected(m, t))
            m->dropped[i] = true;
    }
}

static ckpt_status note_unused(dropper *d)
{
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < d->m->options.drop_count; k++)
        if (!d->used[k])
            status = ckpt__mover_note(d->m, CKPT_WARNING, "unused-rule", (ckpt_str){ NULL, 0 }, d->err,
                                      "--drop '%s' names nothing that is there", d->m->options.drop[k]);
    return status;
}

static ckpt_status note_dropped(ckpt__mover *m, const bool *before, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    ckpt_status status = CKPT_OK;
    size_t left = 0;
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i = ckpt__tensor_end(m->from, i)) {
        left += !m->dropped[i];
        if (m->dropped[i] && !before[i])
            status = ckpt__mover_note(m, CKPT_NOTE, "dropped", m->from->tensors[i].info.name, err, "left out as asked");
    }
    if (status == CKPT_OK && !left && m->from->tensor_count && (o->only_tensor_count || o->only_role_count || o->only_device_count))
        status = ckpt__mover_note(m, CKPT_WARNING, "unused-rule", (ckpt_str){ NULL, 0 }, err,
                                  "--tensor, --role and --device select none of the %zu tensors", m->from->tensor_count);
    return status;
}

/* ---- parameters that went with all their state: the optimizer's ids are dense again */

/* kept[slot]: the optimizer goes on holding it. A parameter leaves its group when its tensor and all its state went. */
static bool find_kept(const ckpt__mover *m, const canonical *c, ckpt__hash *slots, bool *kept, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < c->canon->count; i++) {
        const ckpt__canon_entry *e = &c->canon->entries[i];
        bool state = e->param.data != NULL && e->state_key.data != NULL;
        size_t slot;
        if (!e->is_tensor || e->outside || (!state && e->role != CKPT_PARAM))
            continue;
        ckpt_str name = state ? e->param : e->name;
        if (ckpt__hash_get(slots, name.data, name.size, &slot) && !m->dropped[listing(c, e)])
            kept[slot] = true;
    }
    for (size_t i = 0; i < count; i++)
        any = any || !kept[i];
    return any;
}

/* A parameter that the model's dict does not show was never dropped. */
static void keep_unknown(const canonical *c, bool *kept)
{
    size_t slot = 0, i;
    for (size_t g = 0; g < c->canon->group_count; g++)
        for (size_t k = 0; k < c->canon->groups[g].param_count; k++, slot++) {
            ckpt_str name = c->canon->groups[g].params[k];
            if (!name.data || !ckpt__hash_get(c->canon->by_name, name.data, name.size, &i))
                kept[slot] = true;
        }
}

static void forget_params(ckpt__canon *canon, const bool *kept)
{
    size_t slot = 0;
    for (size_t g = 0; g < canon->group_count; g++) {
        ckpt_str *params = (ckpt_str *)(uintptr_t)canon->groups[g].params;
        size_t n = 0, all = canon->groups[g].param_count;
        for (size_t i = 0; i < all; i++, slot++)
            if (kept[slot])
                params[n++] = params[i];
        canon->groups[g].param_count = n;
    }
}

static ckpt_status prune(ckpt__mover *m, const canonical *c, const ckpt_value *optimizer, size_t count, ckpt_error *err)
{
    size_t slot = 0, n = 0, groups = c->canon->group_count;
    ckpt__hash *slots = ckpt__hash_new(count);
    bool *kept = calloc(count + 1, sizeof *kept);
    size_t *order = calloc(count + 1, sizeof *order), *group = calloc(groups + 1, sizeof *group);
    ckpt_status status = slots && kept && order && group ? CKPT_OK : ckpt__mover_no_memory(err);
    for (size_t g = 0; status == CKPT_OK && g < groups; g++) {
        group[g] = g;
        for (size_t i = 0; status == CKPT_OK && i < c->canon->groups[g].param_count; i++, slot++) {
            ckpt_str name = c->canon->groups[g].params[i];
            if (name.data && ckpt__hash_put(slots, name.data, name.size, slot, NULL) < 0)
                status = ckpt__mover_no_memory(err);
        }
    }
    if (status == CKPT_OK)
        keep_unknown(c, kept);
    if (status == CKPT_OK && find_kept(m, c, slots, kept, count)) {
        for (size_t i = 0; i < count; i++)
            if (kept[i])
                order[n++] = i;
        status = ckpt__optimizer_turn(optimizer, order, n, group, groups, m->from->arena, err);
        forget_params(c->canon, kept);
        if (status == CKPT_OK)
            status = ckpt__mover_note(
                m, CKPT_NOTE, "reordered", (ckpt_str){ NULL, 0 }, err,
                "%zu parameters left the optimizer with their state; the ids of the other %zu are dense again", count - n,
                n);
    }
    ckpt__hash_free(slots);
    free(kept);
    free(order);
    free(group);
    return status;
}

static ckpt_status prune_optimizer(ckpt__mover *m, const canonical *c, ckpt_error *err)
{
    if (!c->canon->optimizer_path.data || !m->options.drop_count)
        return CKPT_OK;
    const ckpt_value *optimizer = ckpt__value_at(m->from->root, c->canon->optimizer_path);
    size_t count = 0;
    for (size_t g = 0; g < c->canon->group_count; g++)
        count += c->canon->groups[g].param_count;
    if (!optimizer || !ckpt__is_optimizer_dict(optimizer) || ckpt__optimizer_slots(optimizer) != count ||
        ckpt_value_get(optimizer, "param_groups")->item_count != c->canon->group_count)
        return CKPT_OK;
    return prune(m, c, optimizer, count, err);
}

ckpt_status ckpt__migrate_select(ckpt__mover *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    if (m->lost_some) { /* what was not recovered: canonical names are there, so nothing depends on it any more */
        ckpt_status cut = cut_dropped(m, false, err);
        if (cut < 0)
            return cut;
    }
    if (!o->drop_count && !o->only_tensor_count && !o->only_role_count && !o->only_device_count)
        return CKPT_OK;
    dropper d = { .m = m, .err = err };
    canonical c = { NULL, NULL, NULL };
    d.used = calloc(o->drop_count + 1, sizeof *d.used);
    bool *before = calloc(m->from->tensor_count + 1, sizeof *before);
    if (before)
        memcpy(before, m->dropped, m->from->tensor_count * sizeof *before);
    ckpt_status status = d.used && before ? canonical_names(m, &c, err) : ckpt__mover_no_memory(err);
    if (status == CKPT_OK) {
        drop_tensors(&d, c.names);
        drop_below(&d);
        forget_values(&d);
        status = note_dropped(m, before, err);
    }
    if (status == CKPT_OK)
        status = cut_dropped(m, true, err);
    if (status == CKPT_OK)
        status = drop_values(&d);
    if (status == CKPT_OK)
        status = prune_optimizer(m, &c, err);
    if (status == CKPT_OK)
        status = note_unused(&d);
    canonical_free(&c);
    free(before);
    free(d.used);
    return status;
}

/* ---- --salvage */

/* Are the bytes of storage i there, and are they what was written? A CRC that does not match makes them lost. */
static ckpt_status storage_is_whole(ckpt__mover *m, size_t i, bool *whole, char *why, size_t size, ckpt_error *err)
{
    const ckpt__storage *s = &m->from->storages[i];
    ckpt_error said = CKPT_ERROR_INIT;
    *whole = !s->extent.missing;
    if (s->extent.missing) {
        snprintf(why, size, "%llu of its %llu bytes are there",
                 (unsigned long long)(s->extent.length < s->extent.size ? s->extent.length : s->extent.size),
                 (unsigned long long)s->extent.size);
        return CKPT_OK;
    }
    if (!s->extent.has_crc && s->extent.coding == CKPT__STORED)
        return CKPT_OK;
    ckpt_status status = ckpt__read_storage(m->reader->source, m->from, i, true, NULL, NULL, &said);
    if (status != CKPT_E_DAMAGED) {
        if (status < 0 && err)
            *err = said;
        return status;
    }
    *whole = false;
    snprintf(why, size, "its bytes are damaged: %.200s", said.message);
    return CKPT_OK;
}

static ckpt_status tensor_is_whole(ckpt__mover *m, size_t i, bool *whole, char *why, size_t size, ckpt_error *err)
{
    const ckpt__tensor *t = &m->from->tensors[i];
    ckpt_error said = CKPT_ERROR_INIT;
    if (!t->has_crc || t->piece_count != 1)
        return CKPT_OK;
    ckpt_status status = ckpt__read_tensor(m->reader->source, m->from, i, true, NULL, NULL, &said);
    if (status == CKPT_E_DAMAGED) {
        *whole = false;
        snprintf(why, size, "its bytes are damaged: %.200s", said.message);
        return CKPT_OK;
    }
    if (status < 0 && err)
        *err = said;
    return status;
}

/* A dense tensor that looks at the part of a cut storage that is there: it can be had without the rest. */
static bool lies_in_what_is_left(const ckpt__index *x, size_t i)
{
    const ckpt__tensor *t = &x->tensors[i];
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    uint64_t reach, end, bytes;
    if (t->piece_count != 1 || ckpt__tensor_end(x, i) != i + 1 || bits % 8 || t->info.extra->quantizer.data)
        return false;
    const ckpt__piece *p = &t->pieces[0];
    const ckpt__extent *e = &x->storages[p->storage].extent;
    return e->missing && e->coding == CKPT__STORED && !e->memory &&
           ckpt__view_extent(p->shape, p->strides, t->info.ndim, &reach) && ckpt__add((uint64_t)p->offset, reach, &end) &&
           ckpt__nbytes(end, bits, &bytes) && bytes <= e->length;
}

/* The tensor and its parts stand or fall together. */
static ckpt_status recover_tensor(ckpt__mover *m, size_t i, const bool *whole, const char *const *why, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    size_t end = ckpt__tensor_end(x, i);
    char text[300] = "";
    bool fine = true;
    ckpt_status status = CKPT_OK;
    for (size_t k = i; status == CKPT_OK && fine && k < end; k++) {
        for (size_t p = 0; fine && p < x->tensors[k].piece_count; p++)
            if (!whole[x->tensors[k].pieces[p].storage]) {
                fine = false;
                snprintf(text, sizeof text, "%s", why[x->tensors[k].pieces[p].storage]);
            }
        if (fine)
            status = tensor_is_whole(m, k, &fine, text, sizeof text, err);
    }
    if (status == CKPT_OK && !fine && lies_in_what_is_left(x, i)) {
        m->cut_out[i] = true;
        return ckpt__mover_note(m, CKPT_NOTE, "cut-out", x->tensors[i].info.name, err,
                                "recovered from a storage of which %s: it no longer shares it", text);
    }
    if (status < 0 || fine)
        return status;
    m->lost_some = true;
    drop(m, i);
    return ckpt__mover_note(m, CKPT_ERROR, "not-recovered", x->tensors[i].info.name, err, "%s", text);
}

/* What the reader could not read at all: a shard that is not there, a member that is damaged. */
static ckpt_status note_unread(ckpt__mover *m, ckpt_error *err)
{
    for (size_t i = 0; i < ckpt_report_count(m->from->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(m->from->findings, i);
        bool lost = f->severity == CKPT_ERROR, added = true;
        if (lost)
            added = ckpt__report_add(m->report, CKPT_ERROR, "not-recovered", f->tensor, f->fix, "%s%s%s", f->message,
                                     *f->file ? ": " : "", f->file);
        else if (strcmp(f->code, "salvaged") == 0)
            added = ckpt__report_add(m->report, f->severity, "salvaged", f->tensor, f->fix, "%s", f->message);
        if (!added ||
            ((lost || strcmp(f->code, "salvaged") == 0) && !ckpt__report_detail(m->report, f->file, NULL, NULL, f->nbytes)))
            return ckpt__mover_no_memory(err);
    }
    return CKPT_OK;
}

ckpt_status ckpt__migrate_recover(ckpt__mover *m, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    if (!m->options.salvage)
        return CKPT_OK;
    bool *whole = calloc(x->storage_count + 1, sizeof *whole);
    const char **why = calloc(x->storage_count + 1, sizeof *why);
    m->cut_out = calloc(x->tensor_count + 1, sizeof *m->cut_out);
    m->cut_count = x->tensor_count;
    ckpt_status status = whole && why && m->cut_out ? note_unread(m, err) : ckpt__mover_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++) {
        char text[300] = "";
        status = storage_is_whole(m, i, &whole[i], text, sizeof text, err);
        if (status == CKPT_OK && !whole[i] && !(why[i] = ckpt__arena_copy(x->arena, text, strlen(text))))
            status = ckpt__mover_no_memory(err);
    }
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i))
        status = recover_tensor(m, i, whole, why, err);
    status = status == CKPT_OK ? ckpt__migrate_recover_closed(m, whole, why, err) : status;
    free(whole);
    free(why);
    return status;
}

/* ---- --weights-only */

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
