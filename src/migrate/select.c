/* migrate/select.c - which tensors go along. What does not is taken out of the value tree as well: entries of
 * dicts go, items of lists become None, so that load_state_dict(strict=False) takes what is left. */
#include "migrate/order.h"
#include "migrate/rules.h"
#include "migrate/select.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- taking tensors out of the tree */

typedef struct cutter {
    ckpt__migration *m;
    ckpt__hash *names; /* of the places that go; NULL: by number alone */
    ckpt_error *err;
} cutter;

/* The name without the file that it starts with, in a directory's tree. */
static ckpt_str inner_name(const ckpt_visit *v)
{
    ckpt_str first = v->path.count > 1 ? v->path.keys[0].text : (ckpt_str){NULL, 0};
    if (!first.data || v->name.size <= first.size)
        return v->name;
    return (ckpt_str){v->name.data + first.size + 1, v->name.size - first.size - 1};
}

/* By its whole name, or without the file in front. */
static bool is_named(const cutter *c, const ckpt_visit *v)
{
    ckpt_str name = v->name, inner = inner_name(v);
    bool files = c->m->reader->source->directory || c->m->by_files;
    return ckpt__hash_get(c->names, name.data, name.size, NULL) ||
           (files && ckpt__hash_get(c->names, inner.data, inner.size, NULL));
}

static int cut_tensor(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    cutter *c = ctx;
    const ckpt_value *v = visit->value;
    const ckpt__index *x = c->m->from;
    (void)spot;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= x->tensor_count || visit->cycle)
        return CKPT_OK;
    bool goes = c->names && is_named(c, visit);
    /* a place whose name is not in the list is that of the same tensor under another name, or a flat tensor's */
    if (!goes && ckpt__stays_behind(c->m, v->tensor))
        goes = !c->names || ckpt__is_flat(x, v->tensor);
    if (goes)
        *to = NULL;
    return CKPT_OK;
}

static bool went_from_tree(const ckpt__migration *m, size_t tensor)
{
    return ckpt__stays_behind(m, tensor) && !ckpt__is_flat(m->from, tensor);
}

/* by_name: of a tensor that has two names only those places go that are named; else all that show it. */
static ckpt_status cut_dropped(ckpt__migration *m, bool by_name, ckpt_error *err)
{
    cutter c = {.m = m, .names = by_name ? ckpt__listed(m, went_from_tree) : NULL, .err = err};
    if (by_name && !c.names)
        return ckpt__migration_no_memory(err);
    ckpt_status status = ckpt__migration_rewrite(m, cut_tensor, &c, err);
    ckpt__hash_free(c.names);
    return status;
}

static int cut_named(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    if (spot->parent && !visit->cycle && is_named(ctx, visit))
        *to = NULL;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_cut_named(ckpt__migration *m, ckpt__hash *names, ckpt_error *err)
{
    cutter c = {.m = m, .names = names, .err = err};
    return ckpt__migration_rewrite(m, cut_named, &c, err);
}

/* A tensor with two names is listed twice, and its value has the number of the first. Where that went and the other stays,
 * the value is the other's from now on. */
typedef struct renumber {
    ckpt__migration *m;
    const ckpt__hash *listed; /* name -> tensor that stays */
    size_t emptied;           /* places of tensors that stay, and are None now */
    ckpt_str first;           /* the first of them */
    ckpt_error *err;
} renumber;

static int renumber_value(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    renumber *r = ctx;
    const ckpt_value *v = visit->value;
    size_t other;
    (void)spot;
    if (v->kind == CKPT_V_TENSOR && v->tensor < r->m->from->tensor_count && ckpt__stays_behind(r->m, v->tensor) &&
        ckpt__hash_get(r->listed, visit->name.data, visit->name.size, &other)) {
        ckpt_value *copy = ckpt__edits_copy(r->m->edits, v);
        if (!copy)
            return ckpt__migration_no_memory(r->err);
        copy->tensor = other;
        *to = copy;
    }
    if (v->kind == CKPT_V_NONE && ckpt__hash_get(r->listed, visit->name.data, visit->name.size, &other) &&
        r->emptied++ == 0)
        r->first = r->m->from->tensors[other].info.name;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_second_names(ckpt__migration *m, ckpt_error *err)
{
    ckpt__hash *listed = ckpt__listed(m, ckpt__goes_in_tree);
    renumber r = {m, listed, 0, {NULL, 0}, err};
    ckpt_status status = listed ? ckpt__migration_rewrite(m, renumber_value, &r, err) : ckpt__migration_no_memory(err);
    ckpt__hash_free(listed);
    if (status < 0 || !r.emptied)
        return status;
    bool added = ckpt__report_add(
                     m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, "drop it by this name too",
                     "%zu places hold the same tensor as an opaque object that was to lose it, and become None with it",
                     r.emptied) &&
                 ckpt__report_tensor(m->lost, r.first);
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* ---- what is selected */

/* Per pattern of --tensor, --role and --device, in this order: has a tensor been found by it? */
static bool selected(const ckpt__migration *m, const ckpt_tensor_info *t, bool *used)
{
    const ckpt_migrate_options *o = &m->options;
    const char *role = ckpt_role_name(t->role);
    bool by_tensor = o->only_tensor_count == 0, by_role = o->only_role_count == 0,
         by_device = o->only_device_count == 0;
    for (size_t i = 0; i < o->only_tensor_count; i++, used++) {
        bool is = ckpt__rule_matches(o->only_tensor[i], t->name);
        *used = *used || is;
        by_tensor = by_tensor || is;
    }
    for (size_t i = 0; i < o->only_role_count; i++, used++) {
        bool is = strcmp(o->only_role[i], role) == 0;
        *used = *used || is;
        by_role = by_role || is;
    }
    for (size_t i = 0; i < o->only_device_count; i++, used++) {
        bool is = ckpt__str_is(t->device, o->only_device[i]);
        *used = *used || is;
        by_device = by_device || is;
    }
    return by_tensor && by_role && by_device;
}

/* ---- --drop, and what else is selected */

typedef struct dropper {
    ckpt__migration *m;
    bool *used;  /* heap, one a pattern of --drop: it has matched */
    bool *chose; /* heap, one a pattern of selected(): it has matched */
    ckpt_error *err;
} dropper;

/* A pattern of --drop without wildcards may name anything of the tree, with all that is below it. */
static bool is_name(const char *rule, ckpt_str name)
{
    return !ckpt__rule_has_wildcard(rule) && ckpt__rule_matches(rule, name);
}

static int drop_value(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    dropper *d = ctx;
    const ckpt_migrate_options *o = &d->m->options;
    if (visit->value->kind == CKPT_V_TENSOR || !spot->parent)
        return CKPT_OK;
    for (size_t k = 0; k < o->drop_count; k++) {
        if (!is_name(o->drop[k], visit->name))
            continue;
        d->used[k] = true;
        *to = NULL;
    }
    return CKPT_OK;
}

/* Values that went have no canonical name either. */
static void forget_values(const dropper *d)
{
    const ckpt_migrate_options *o = &d->m->options;
    for (size_t i = 0; i < d->m->canon->count; i++) {
        ckpt__canon_entry *e = &d->m->canon->entries[i];
        for (size_t k = 0; !e->is_tensor && k < o->drop_count; k++)
            if (is_name(o->drop[k], e->own) || ckpt__rule_is_below(e->own, o->drop[k]))
                e->value = NULL;
    }
}

/* With its parts; what lies below a name that goes, one by one. */
static void select_row(dropper *d, size_t i)
{
    const ckpt_migrate_options *o = &d->m->options;
    const ckpt_tensor_info *t = &d->m->from->tensors[i].info;
    bool left = !selected(d->m, t, d->chose), below = false;
    for (size_t k = 0; k < o->drop_count; k++) {
        bool named =
                 ckpt__rule_matches(o->drop[k], t->name) || ckpt__rule_matches(o->drop[k], d->m->ledger.rows[i].called),
             under = ckpt__rule_is_below(t->name, o->drop[k]);
        d->used[k] = d->used[k] || named || under;
        left = left || named;
        below = below || under;
    }
    if (left)
        ckpt__leave(d->m, i, CKPT__FATE_DROPPED);
    else if (below)
        ckpt__leave_one(d->m, i, CKPT__FATE_DROPPED);
}

static ckpt_status unused(dropper *d, const char *option, const char *rule, const char *why,
                          const ckpt__rule_names *names)
{
    char said[300];
    snprintf(said, sizeof said, "%s '%s'", option, rule);
    return ckpt__rule_unused(d->m, said, why, rule, names, d->err);
}

/* The roles, or devices, that there are: "param, buffer, exp_avg". */
static void put_kinds(const ckpt__index *x, bool roles, char *out, size_t size)
{
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < x->tensor_count && used + 40 < size; i++) {
        ckpt_str device = x->tensors[i].info.device;
        char kind[40];
        snprintf(kind, sizeof kind, "%s",
                 roles         ? ckpt_role_name(x->tensors[i].info.role)
                 : device.data ? device.data
                               : "");
        const char *at = strstr(out, kind);
        size_t n = strlen(kind);
        while (n && at && (at[n] != 0 && at[n] != ','))
            at = strstr(at + 1, kind);
        if (n && !at)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", kind);
    }
}

static ckpt_status note_unused_kinds(dropper *d, const bool *chose, bool roles)
{
    const ckpt_migrate_options *o = &d->m->options;
    const char *const *rules = roles ? o->only_role : o->only_device;
    size_t n = roles ? o->only_role_count : o->only_device_count;
    char why[300], kinds[200];
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < n; k++) {
        if (chose[k])
            continue;
        put_kinds(d->m->from, roles, kinds, sizeof kinds);
        snprintf(why, sizeof why, "matches nothing; there %s %s",
                 *kinds ? strchr(kinds, ',') ? "are" : "is" : "is none", *kinds ? kinds : "at all");
        status = unused(d, roles ? "--role" : "--device", rules[k], why, NULL);
    }
    return status;
}

static ckpt_status note_unused(dropper *d)
{
    const ckpt_migrate_options *o = &d->m->options;
    ckpt__rule_names own = {.canonical = false}, all = {.canonical = true, .values = true};
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < o->drop_count; k++)
        if (!d->used[k])
            status = unused(d, "--drop", o->drop[k], "matches nothing", &all);
    for (size_t k = 0; status == CKPT_OK && k < o->only_tensor_count; k++)
        if (!d->chose[k])
            status = unused(d, "--tensor", o->only_tensor[k], "matches nothing", &own);
    if (status == CKPT_OK)
        status = note_unused_kinds(d, d->chose + o->only_tensor_count, true);
    return status == CKPT_OK ? note_unused_kinds(d, d->chose + o->only_tensor_count + o->only_role_count, false)
                             : status;
}

static ckpt_status note_dropped(dropper *d)
{
    const ckpt__migration *m = d->m;
    ckpt_status status = CKPT_OK;
    size_t left = 0, used = 0,
           all = m->options.only_tensor_count + m->options.only_role_count + m->options.only_device_count;
    for (size_t k = 0; k < all; k++)
        used += d->chose[k];
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i = ckpt__tensor_end(m->from, i)) {
        left += !ckpt__stays_behind(m, i);
        if (m->ledger.rows[i].fate == CKPT__FATE_DROPPED)
            status = ckpt__migration_note(d->m, CKPT_SEVERITY_NOTE, "dropped", m->from->tensors[i].info.name, d->err,
                                          "left out as asked");
    }
    if (status == CKPT_OK && !left && m->from->tensor_count && all && used == all)
        status = ckpt__rule_unused(d->m, "--tensor, --role and --device together", "select none of the tensors", NULL,
                                   NULL, d->err);
    return status;
}

/* ---- parameters that went with all their state: the optimizer's ids are dense again */

static bool is_replaced(const ckpt__chosen *c, ckpt_str name)
{
    return c->replaced && ckpt__hash_get(c->replaced, name.data, name.size, NULL);
}

/* kept[slot]: the optimizer goes on holding it. A parameter leaves its group when its tensor and all its state went. */
static bool find_kept(const ckpt__migration *m, const ckpt__chosen *c, ckpt__hash *slots, bool *kept, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        bool state = e->param.data != NULL && e->state_key.data != NULL;
        size_t slot;
        if (!e->is_tensor || e->outside || (!state && e->role != CKPT_ROLE_PARAM))
            continue;
        ckpt_str name = state ? e->param : e->name;
        bool stays = !ckpt__stays_behind(m, ckpt__listing(c->listed, e)) || is_replaced(c, name);
        if (ckpt__hash_get(slots, name.data, name.size, &slot) && stays)
            kept[slot] = true;
    }
    for (size_t i = 0; i < count; i++)
        any = any || !kept[i];
    return any;
}

/* A parameter that the model's dict does not show was never dropped. */
static void keep_unknown(const ckpt__canon *canon, bool *kept)
{
    size_t slot = 0, i;
    for (size_t g = 0; g < canon->group_count; g++)
        for (size_t k = 0; k < canon->groups[g].param_count; k++, slot++) {
            ckpt_str name = canon->groups[g].params[k];
            if (!name.data || !ckpt__hash_get(canon->by_name, name.data, name.size, &i))
                kept[slot] = true;
        }
}

static void forget_params(ckpt__canon *canon, const bool *kept)
{
    size_t slot = 0;
    for (size_t g = 0; g < canon->group_count; g++) {
        ckpt_str *params = canon->groups[g].params;
        size_t n = 0, all = canon->groups[g].param_count;
        for (size_t i = 0; i < all; i++, slot++)
            if (kept[slot])
                params[n++] = params[i];
        canon->groups[g].param_count = n;
    }
}

static ckpt_status prune(ckpt__migration *m, const ckpt__chosen *c, const ckpt_value *optimizer, size_t count,
                         ckpt_error *err)
{
    size_t slot = 0, n = 0, groups = m->canon->group_count;
    ckpt__hash *slots = ckpt__hash_new(count);
    bool *kept = calloc(count + 1, sizeof *kept);
    size_t *order = calloc(count + 1, sizeof *order), *group = calloc(groups + 1, sizeof *group);
    ckpt_status status = slots && kept && order && group ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t g = 0; status == CKPT_OK && g < groups; g++) {
        group[g] = g;
        for (size_t i = 0; status == CKPT_OK && i < m->canon->groups[g].param_count; i++, slot++) {
            ckpt_str name = m->canon->groups[g].params[i];
            if (name.data && ckpt__hash_put(slots, name.data, name.size, slot, NULL) < 0)
                status = ckpt__migration_no_memory(err);
        }
    }
    if (status == CKPT_OK)
        keep_unknown(m->canon, kept);
    if (status == CKPT_OK && find_kept(m, c, slots, kept, count)) {
        for (size_t i = 0; i < count; i++)
            if (kept[i])
                order[n++] = i;
        status = ckpt__optimizer_turn(m, optimizer, order, n, group, groups, err);
        forget_params(m->canon, kept);
        if (status == CKPT_OK)
            status = ckpt__migration_note(
                m, CKPT_SEVERITY_NOTE, "reordered", (ckpt_str){NULL, 0}, err,
                "%zu parameters left the optimizer with their state; the ids of the other %zu are dense again",
                count - n, n);
    }
    ckpt__hash_free(slots);
    free(kept);
    free(order);
    free(group);
    return status;
}

static ckpt_status prune_optimizer(ckpt__migration *m, const ckpt__chosen *c, ckpt_error *err)
{
    if (!m->canon->optimizer_path.data || !m->options.drop_count)
        return CKPT_OK;
    const ckpt_value *optimizer = ckpt__value_at(m->from->root, m->canon->optimizer_path);
    size_t count = 0;
    for (size_t g = 0; g < m->canon->group_count; g++)
        count += m->canon->groups[g].param_count;
    if (!ckpt__is_torch_optimizer(optimizer) || ckpt__optimizer_slots(optimizer) != count ||
        ckpt_value_get(optimizer, "param_groups")->item_count != m->canon->group_count)
        return CKPT_OK;
    return prune(m, c, optimizer, count, err);
}

static ckpt_status take_out(dropper *d, ckpt__chosen *c)
{
    ckpt__migration *m = d->m;
    for (size_t i = 0; i < m->from->tensor_count; i++)
        select_row(d, i);
    forget_values(d);
    ckpt_status status = note_dropped(d);
    if (status == CKPT_OK)
        status = ckpt__migrate_replace(m, c, d->err);
    if (status == CKPT_OK)
        status = cut_dropped(m, true, d->err);
    if (status == CKPT_OK) /* after the tensors: places move when entries go */
        status = ckpt__migration_rewrite(m, drop_value, d, d->err);
    if (status == CKPT_OK)
        status = prune_optimizer(m, c, d->err);
    return status == CKPT_OK ? note_unused(d) : status;
}

ckpt_status ckpt__migrate_select(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    if (ckpt__ledger_count(
            &m->ledger,
            CKPT__FATE_NOT_RECOVERED)) { /* what was not recovered: canonical names are there, so nothing depends on it any more */
        ckpt_status cut = cut_dropped(m, false, err);
        if (cut < 0)
            return cut;
    }
    if (!o->replace_count && !ckpt__selects(m))
        return CKPT_OK;
    dropper d = {.m = m, .err = err};
    ckpt__chosen c = {ckpt__listed(m, NULL), NULL};
    d.used = calloc(o->drop_count + 1, sizeof *d.used);
    d.chose = calloc(o->only_tensor_count + o->only_role_count + o->only_device_count + 1, sizeof *d.chose);
    ckpt_status status = d.used && d.chose && c.listed ? CKPT_OK : ckpt__migration_no_memory(err);
    if (status == CKPT_OK) {
        ckpt__call_rows(m, c.listed);
        status = take_out(&d, &c);
    }
    ckpt__hash_free(c.listed);
    ckpt__hash_free(c.replaced);
    free(d.chose);
    free(d.used);
    return status;
}
