/* core/canon_order.c - whose state is it? An optimizer's dict numbers its parameters; the names come from what is
 * stated, else from the order of the model's parameters, where exactly one assignment fits. */
#include "core/canon_tree.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- stated names */

static ckpt_status set_name(ckpt__builder *b, ckpt__slot *slot, const ckpt__model *model, ckpt_str raw)
{
    int best = model->node == SIZE_MAX ? 0 : model->strip;
    for (int strip = 0; strip < 3 && model->by_name; strip++) {
        ckpt_str name;
        ckpt_status s = ckpt__canon_param_name(b, raw, strip, &name);
        if (s != CKPT_OK)
            return s;
        if (ckpt__hash_get(model->by_name, name.data, name.size, NULL)) {
            slot->name = name;
            return CKPT_OK;
        }
    }
    return ckpt__canon_param_name(b, raw, best, &slot->name);
}

static bool has_param_names(const ckpt__builder *b, const ckpt__optimizer *o)
{
    const ckpt__tree *t = &b->tree;
    for (size_t g = 0; g < o->group_count; g++) {
        if (o->groups[g].names == SIZE_MAX)
            return false;
        size_t count = 0;
        for CKPT__CHILDREN(t, c, o->groups[g].names) {
            count++;
            if (t->nodes[c].value->kind != CKPT_V_STR)
                return false;
        }
        if (count != o->groups[g].count)
            return false;
    }
    return o->group_count > 0;
}

static ckpt_status take_param_names(ckpt__builder *b, ckpt__optimizer *o, const ckpt__model *model)
{
    const ckpt__tree *t = &b->tree;
    for (size_t g = 0; g < o->group_count; g++) {
        size_t i = o->groups[g].first;
        for CKPT__CHILDREN(t, c, o->groups[g].names) {
            ckpt_status s = set_name(b, &o->slots[i++], model, t->nodes[c].value->text);
            if (s != CKPT_OK)
                return s;
        }
    }
    return CKPT_OK;
}

/* Ids that are strings are names, unless they are the addresses of a dead process (digits, as libtorch writes). */
static bool ids_are_names(const ckpt__optimizer *o)
{
    if (!o->text_ids)
        return false;
    int64_t number;
    for (size_t i = 0; i < o->slot_count; i++)
        if (!ckpt__parse_i64(o->slots[i].id.data, o->slots[i].id.size, &number))
            return true;
    return false;
}

static ckpt_status take_declared(ckpt__builder *b, ckpt__optimizer *o, const ckpt__model *model)
{
    const ckpt__canon_hints *h = b->hints;
    bool listed = h->param_name_count != o->slot_count && h->param_name_count == o->listed_count;
    if (h->param_name_count != o->slot_count && !listed)
        return ckpt__fail(b->err, CKPT_E_MISMATCH, b->tree.nodes[o->node].name.data,
                          "%zu parameter names were given, and the optimizer's groups hold %zu parameters; give one name "
                          "for each, group by group",
                          h->param_name_count, o->slot_count);
    for (size_t i = 0; i < h->param_name_count; i++) {
        ckpt__slot *slot = &o->slots[listed ? o->listed[i] : i];
        if (slot->name.data)
            continue;              /* the second name of a tie */
        ckpt_str name = ckpt__arena_str(b->canon->arena, h->param_names[i], strlen(h->param_names[i]));     /* the caller's */
        ckpt_status s = name.data ? set_name(b, slot, model, name) : ckpt__canon_no_memory(b);
        if (s != CKPT_OK)
            return s;
        if (!model->by_name || ckpt__hash_get(model->by_name, slot->name.data, slot->name.size, NULL))
            continue;
        char shown[160];
        ckpt__escape(shown, sizeof shown, slot->name.data, slot->name.size);
        return ckpt__fail(b->err, CKPT_E_MISMATCH, shown,
                          "this name was given for parameter %zu of the optimizer, and the model in the file has none of "
                          "that name",
                          i);
    }
    return CKPT_OK;
}

ckpt_status ckpt__canon_stated_names(ckpt__builder *b, ckpt__optimizer *o, const ckpt__model *model, bool *done)
{
    ckpt_status s = CKPT_OK;
    *done = true;
    if (has_param_names(b, o))
        return take_param_names(b, o, model);
    if (ids_are_names(o)) {
        for (size_t i = 0; i < o->slot_count && s == CKPT_OK; i++)
            s = set_name(b, &o->slots[i], model, o->slots[i].id);
        return s;
    }
    if (b->hints->param_name_count)
        return take_declared(b, o, model);
    *done = false;
    return CKPT_OK;
}

bool ckpt__canon_state_order(const ckpt__builder *b, ckpt__optimizer *o, ckpt__order *out)
{
    const ckpt__canon_hints *h = b->hints;
    if (!h->group_count || h->group_count != o->group_count)
        return false;
    for (size_t g = 0; g < o->group_count; g++)
        if (h->group_sizes[g] != o->groups[g].count)
            return false;
    for (size_t i = 0; i < o->slot_count; i++)
        o->slots[i].name = h->group_params[i];
    out->fit = CKPT__FITS;
    out->inferred = out->plain = true;
    snprintf(out->how, sizeof out->how, "the state's own groups, as the file has no model");
    return true;
}

/* ---- classes of names */

static bool is_bias(ckpt_str name)
{
    return name.size >= 4 && memcmp(name.data + name.size - 4, "bias", 4) == 0;
}

/* A part of the name says norm, or is ln, bn, gn with a number or a letter: ln_1, ln_f, bn2. */
static bool is_norm(ckpt_str name)
{
    for (size_t i = 0; i < name.size; i++) {
        size_t left = name.size - i;
        const char *c = name.data + i;
        if (left >= 4 && (memcmp(c, "norm", 4) == 0 || memcmp(c, "Norm", 4) == 0))
            return true;
        if ((i > 0 && c[-1] != '.') || left < 3 || (memcmp(c, "ln", 2) != 0 && memcmp(c, "bn", 2) != 0 &&
                                                   memcmp(c, "gn", 2) != 0))
            continue;
        if (c[2] == '.' || c[2] == '_' || (c[2] >= '0' && c[2] <= '9') || (c[2] == 'f' && left > 3 && c[3] == '.'))
            return true;
    }
    return false;
}

static bool holds(ckpt_str name, const char *word)
{
    return memmem(name.data, name.size, word, strlen(word)) != NULL;
}

/* Tokens, positions and scales, which vision transformers and VAR do not decay. */
static bool is_token(ckpt_str name)
{
    static const char *const words[] = { "cls_token", "start_token", "task_token", "cfg_uncond", "pos_embed", "pos_1LC",
                                         "pos_start", "start_pos", "lvl_embed", "gamma", "beta", "ada_gss", "moe_bias",
                                         "scale_mul" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (holds(name, words[i]))
            return true;
    return false;
}

static bool decays_by_rank(ckpt_str name, uint32_t ndim)
{
    (void)name;
    return ndim >= 2;
}

static bool decays_by_name(ckpt_str name, uint32_t ndim)
{
    (void)ndim;
    return !is_bias(name) && !is_norm(name);
}

static bool decays_by_token(ckpt_str name, uint32_t ndim)
{
    return ndim != 1 && !is_bias(name) && !is_token(name);
}

static const struct {
    const char *text;
    bool (*decays)(ckpt_str name, uint32_t ndim);
} splits[] = {
    { "those with two or more dimensions", decays_by_rank },
    { "those that are neither bias nor norm", decays_by_name },
    { "those with two or more dimensions that are no bias, token or position", decays_by_token },
};

size_t ckpt__split_count(void)
{
    return sizeof splits / sizeof splits[0];
}

const char *ckpt__split_text(size_t split)
{
    return splits[split].text;
}

bool ckpt__split_decays(size_t split, ckpt_str name, uint32_t ndim)
{
    return splits[split].decays(name, ndim);
}

/* ---- one hypothesis */

struct trial {
    const ckpt__builder *b;
    const ckpt__optimizer *o;
    const ckpt__model *m;
    bool maybe_buffers;            /* they count as parameters too */
    size_t *list, list_count;      /* the model's entries that one run of slots may take, in order */
    size_t *left, *right;          /* slot -> entry: the first and the last possibility */
};

static const ckpt_tensor_info *entry_info(const struct trial *t, size_t entry)
{
    return &t->b->index->tensors[t->m->entries[entry].tensor].info;
}

bool ckpt__canon_may_hold(const ckpt__optimizer *o, const ckpt__model *m, size_t entry, bool maybe_buffers)
{
    ckpt__param_class is = m->entries[entry].is;
    if (m->adapter_count && m->adapter_count == o->slot_count && !ckpt__canon_is_adapter(m->entries[entry].name))
        return false;
    return is == CKPT__A_PARAM || (is == CKPT__MAYBE_BUFFER && maybe_buffers);
}

static bool is_candidate(const struct trial *t, size_t entry)
{
    return ckpt__canon_may_hold(t->o, t->m, entry, t->maybe_buffers);
}

static bool shapes_agree(const struct trial *t, size_t slot, size_t entry)
{
    size_t shaped = t->o->slots[slot].shaped;
    if (shaped == SIZE_MAX)
        return true;               /* no state, or none that has a shape: it says nothing */
    const ckpt_tensor_info *a = &t->b->index->tensors[shaped].info, *e = entry_info(t, entry);
    if (a->ndim != e->ndim)
        return false;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] != e->shape[d])
            return false;
    return true;
}

/* Slots [first, first + count) take entries of the list in order, skipping what must be frozen or a buffer. Taking the
 * earliest each time gives the leftmost way, the latest from the end the rightmost: they are one iff there is one. */
static bool embed(struct trial *t, size_t first, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        while (at < t->list_count && !shapes_agree(t, first + i, t->list[at]))
            at++;
        if (at == t->list_count)
            return false;
        t->left[first + i] = t->list[at++];
    }
    at = t->list_count;
    for (size_t i = count; i > 0; i--) {
        while (at > 0 && !shapes_agree(t, first + i - 1, t->list[at - 1]))
            at--;
        if (at == 0)
            return false;
        t->right[first + i - 1] = t->list[--at];
    }
    return true;
}

static void fill_list(struct trial *t, size_t split, int decays)
{
    t->list_count = 0;
    for (size_t e = 0; e < t->m->count; e++) {
        if (!is_candidate(t, e))
            continue;
        if (decays < 0 || splits[split].decays(t->m->entries[e].name, entry_info(t, e)->ndim) == (decays == 1))
            t->list[t->list_count++] = e;
    }
}

/* A group that decays and one that does not: the names must be of the classes that trainers put there. */
bool ckpt__classes_agree(const ckpt__optimizer *o, const ckpt__model *m, const ckpt__builder *b, const size_t *entries)
{
    bool some = false, none = false;
    for (size_t g = 0; g < o->group_count; g++) {
        some = some || (o->groups[g].has_decay && o->groups[g].decay > 0);
        none = none || (o->groups[g].has_decay && !(o->groups[g].decay > 0));
    }
    for (size_t i = 0; some && none && i < o->slot_count; i++) {
        const ckpt__opt_group *g = &o->groups[o->slots[i].group];
        const ckpt__model_entry *e = &m->entries[entries[i]];
        bool vector = is_bias(e->name) || is_norm(e->name);
        uint32_t ndim = b->index->tensors[e->tensor].info.ndim;
        if (g->has_decay && g->decay > 0 ? vector : !vector && !is_token(e->name) && ndim >= 2)
            return false;
    }
    return true;
}

/* All groups one after another in the model's order. */
static bool try_sequence(struct trial *t)
{
    fill_list(t, 0, -1);
    return embed(t, 0, t->o->slot_count) && (t->o->group_count < 2 || ckpt__classes_agree(t->o, t->m, t->b, t->left));
}

/* Two groups: the one that decays is the first, or the second. */
static bool try_split(struct trial *t, size_t split, size_t decaying)
{
    const ckpt__opt_group *d = &t->o->groups[decaying], *n = &t->o->groups[1 - decaying];
    if (d->has_decay && n->has_decay && d->decay < n->decay)
        return false;
    fill_list(t, split, 1);
    if (!embed(t, d->first, d->count))
        return false;
    fill_list(t, split, 0);
    return embed(t, n->first, n->count);
}

/* ---- all hypotheses */

static void describe(struct trial *t, char *how, size_t size, size_t h)
{
    char skipped[100] = "";
    fill_list(t, 0, -1);
    if (t->list_count > t->o->slot_count)
        snprintf(skipped, sizeof skipped, ", %zu of its %zu left out (frozen, or buffers)",
                 t->list_count - t->o->slot_count, t->list_count);
    if (h == 0)
        snprintf(how, size, "the parameters in the model's order%s%s",
                 t->o->group_count > 1 ? ", group after group" : "", skipped);
    else
        snprintf(how, size, "two groups of the model's parameters, %s in the %s%s", splits[(h - 1) / 2].text,
                 (h - 1) % 2 ? "second" : "first", skipped);
}

/* Hypothesis 0 is the sequence; 1, 2, ... are the splits, each with the decaying group first and second. */
static bool try_one(struct trial *t, size_t h)
{
    if (h == 0)
        return try_sequence(t);
    return t->o->group_count == 2 && try_split(t, (h - 1) / 2, (h - 1) % 2);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 'h.10' before 'h.2': names that a program has sorted as text. */
static bool sorted_as_text(ckpt_str a, ckpt_str b)
{
    size_t at = 0, x, y;
    while (at < a.size && at < b.size && a.data[at] == b.data[at])
        at++;
    while (at > 0 && is_digit(a.data[at - 1]))
        at--;
    for (x = at; x < a.size && is_digit(a.data[x]);)
        x++;
    for (y = at; y < b.size && is_digit(b.data[y]);)
        y++;
    return y > at && x > y;
}

/* Would a slot fit a tensor too that was taken for a buffer by its name? Where no slot has a shape nothing can be mixed
 * up. */
static bool may_be_buffers(struct trial *t)
{
    size_t n = t->o->slot_count, shaped = 0;
    for (size_t i = 0; i < n; i++)
        shaped += t->o->slots[i].shaped != SIZE_MAX;
    if (!shaped || t->maybe_buffers)
        return false;
    t->maybe_buffers = true;
    fill_list(t, 0, -1);
    bool several = embed(t, 0, n) && memcmp(t->left, t->right, n * sizeof *t->left) != 0;
    t->maybe_buffers = false;
    return several;
}

/* Trainers give the head before the backbone, or the layers from last to first, as groups of their own. */
static bool fits_reversed(struct trial *t)
{
    size_t at = 0, shaped = 0;
    for (size_t g = t->o->group_count; g > 0; g--) {
        const ckpt__opt_group *group = &t->o->groups[g - 1];
        for (size_t i = group->first; i < group->first + group->count; i++, at++) {
            shaped += t->o->slots[i].shaped != SIZE_MAX;
            while (at < t->list_count && !shapes_agree(t, i, t->list[at]))
                at++;
            if (at >= t->list_count)
                return false;
        }
    }
    return shaped > 0;
}

/* Why the file's order, though it fits, may not be the order in which torch lists the model's parameters; NULL: it is.
 * Layers of one shape fit any order. */
static const char *doubt(struct trial *t)
{
    if (t->m->parts > 1)
        return "the model is in several dicts, and the optimizer may have taken them in another order";
    for (size_t i = 1; i < t->list_count; i++)
        if (sorted_as_text(t->m->entries[t->list[i - 1]].name, t->m->entries[t->list[i]].name))
            return "the names are sorted as text (10 before 2), which is not the order of a model";
    if (t->o->group_count > 1 && fits_reversed(t))
        return "the groups from last to first would fit as well";
    if (may_be_buffers(t))
        return "a tensor that has the name of a buffer would fit as well";
    return NULL;
}

/* Is there one way only? In libtorch a frozen parameter is in the groups too, and without a state: which of the tensors
 * without a gradient it is then changes nothing. */
static bool one_way(const struct trial *t)
{
    bool same = true;
    for (size_t i = 0; i < t->o->slot_count && same; i++)
        same = t->left[i] == t->right[i] || (t->o->libtorch && !t->o->old_count && t->o->slots[i].state == SIZE_MAX);
    return same;
}

/* Keeps the assignment of hypothesis h, the first that fits. */
static void keep(struct trial *t, size_t h, const char *how, ckpt__order *out)
{
    size_t n = t->o->slot_count;
    out->fit = CKPT__FITS;
    memcpy(out->entries, t->left, n * sizeof *t->left);
    fill_list(t, 0, -1);
    const char *why = h == 0 ? doubt(t) : NULL;
    if (!why && memcmp(t->left, t->right, n * sizeof *t->left) != 0)
        why = "which parameters those without state are is not sure: they may be buffers";
    fill_list(t, 0, -1);
    out->plain = h == 0 && t->o->group_count == 1 && t->list_count == n && !why;
    out->doubtful = why != NULL;
    snprintf(out->how, sizeof out->how, "%s%s%s", how, why ? "; but " : "", why ? why : "");
}

static void try_all(struct trial *t, ckpt__order *out)
{
    size_t n = t->o->slot_count, hypotheses = 1 + 2 * sizeof splits / sizeof splits[0];
    char other[300] = "";
    for (size_t h = 0; h < hypotheses && out->fit != CKPT__FITS_SEVERAL; h++) {
        if (!try_one(t, h))
            continue;
        char how[200];
        describe(t, how, sizeof how, h);
        if (!one_way(t)) {
            out->fit = CKPT__FITS_SEVERAL;
            snprintf(out->how, sizeof out->how, "%s: %zu parameters fit the optimizer's %zu in more than one way", how,
                     t->m->count, n);
        } else if (out->fit == CKPT__FITS_NOT) {
            keep(t, h, how, out);
        } else if (memcmp(out->entries, t->left, n * sizeof *t->left) != 0) {
            snprintf(other, sizeof other, "%.130s; or %.130s", out->how, how);
            memcpy(out->how, other, sizeof other);
            out->fit = CKPT__FITS_SEVERAL;
        }
    }
}

/* One moment of a wrong shape must not hide an order that is otherwise plain: then "moment-shape" names it. */
static bool try_near(struct trial *t, ckpt__order *out)
{
    size_t wrong = 0;
    fill_list(t, 0, -1);
    if (t->o->group_count != 1 || t->list_count != t->o->slot_count || t->list_count < 2)
        return false;
    for (size_t i = 0; i < t->list_count; i++)
        wrong += !shapes_agree(t, i, t->list[i]);
    if (wrong != 1)
        return false;
    memcpy(out->entries, t->list, t->list_count * sizeof *t->list);
    out->fit = CKPT__FITS;
    out->plain = true;
    describe(t, out->how, sizeof out->how, 0);
    return true;
}

static void why_not(struct trial *t, ckpt__order *out)
{
    t->maybe_buffers = false;
    fill_list(t, 0, -1);
    snprintf(out->how, sizeof out->how,
             "%zu parameters in %zu group%s of the optimizer do not fit the %zu of the model in any order that trainers use",
             t->o->slot_count, t->o->group_count, t->o->group_count == 1 ? "" : "s", t->list_count);
}

ckpt_status ckpt__canon_infer_order(ckpt__builder *b, const ckpt__optimizer *o, const ckpt__model *m, ckpt__order *out)
{
    memset(out, 0, sizeof *out);
    struct trial t = { .b = b, .o = o, .m = m };
    size_t n = o->slot_count ? o->slot_count : 1;
    out->entries = calloc(n, sizeof *out->entries);
    t.left = calloc(n, sizeof *t.left);
    t.right = calloc(n, sizeof *t.right);
    t.list = calloc(m->count ? m->count : 1, sizeof *t.list);
    bool ok = out->entries && t.left && t.right && t.list;
    ckpt_status s = CKPT_OK;
    if (ok && m->sorted) {
        out->inferred = true;
        s = ckpt__canon_infer_sorted(b, o, m, out);
    } else if (ok) {
        out->inferred = true;
        try_all(&t, out);
        if (out->fit == CKPT__FITS_NOT) {
            t.maybe_buffers = true;
            try_all(&t, out);
        }
        t.maybe_buffers = false;
        if (out->fit == CKPT__FITS_NOT && !try_near(&t, out))
            why_not(&t, out);
    }
    free(t.left);
    free(t.right);
    free(t.list);
    return ok ? s : ckpt__canon_no_memory(b);
}
