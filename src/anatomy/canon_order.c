/* anatomy/canon_order.c - whose state is it? An optimizer's dict numbers its parameters; the names come from what is
 * stated, else from the order of the model's parameters, where exactly one assignment fits. */
#include "anatomy/canon_work.h"

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
        for
            CKPT__CHILDREN(t, c, o->groups[g].names)
            {
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
        for
            CKPT__CHILDREN(t, c, o->groups[g].names)
            {
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
        return ckpt__fail(
            b->err, CKPT_E_MISMATCH, b->tree.nodes[o->node].name.data,
            "%zu parameter names were given, and the optimizer's groups hold %zu parameters; give one name "
            "for each, group by group",
            h->param_name_count, o->slot_count);
    for (size_t i = 0; i < h->param_name_count; i++) {
        ckpt__slot *slot = &o->slots[listed ? o->listed[i] : i];
        if (slot->name.data)
            continue; /* the second name of a tie */
        ckpt_str name =
            ckpt__arena_str(b->canon->arena, h->param_names[i], strlen(h->param_names[i])); /* the caller's */
        ckpt_status s = name.data ? set_name(b, slot, model, name) : ckpt__canon_no_memory(b);
        if (s != CKPT_OK)
            return s;
        if (!model->by_name || ckpt__hash_get(model->by_name, slot->name.data, slot->name.size, NULL))
            continue;
        char shown[160];
        ckpt__escape(shown, sizeof shown, slot->name.data, slot->name.size);
        return ckpt__fail(
            b->err, CKPT_E_MISMATCH, shown,
            "this name was given for parameter %zu of the optimizer, and the model in the file has none of "
            "that name",
            i);
    }
    return CKPT_OK;
}

ckpt_status ckpt__canon_stated_names(ckpt__builder *b, ckpt__optimizer *o, const ckpt__model *model,
                                     ckpt__order_evidence *evidence)
{
    ckpt_status s = CKPT_OK;
    *evidence = CKPT__FILE_NAMES;
    if (has_param_names(b, o))
        return take_param_names(b, o, model);
    if (ids_are_names(o)) {
        for (size_t i = 0; i < o->slot_count && s == CKPT_OK; i++)
            s = set_name(b, &o->slots[i], model, o->slots[i].id);
        return s;
    }
    *evidence = b->hints->param_name_count ? CKPT__STATED_NAMES : CKPT__NO_EVIDENCE;
    return b->hints->param_name_count ? take_declared(b, o, model) : CKPT_OK;
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
    out->evidence = CKPT__STATE_GROUPS;
    out->inferred = out->plain = true;
    snprintf(out->how, sizeof out->how, "the state's own groups, as the file has no model");
    return true;
}

/* ---- one hypothesis */

/* The known orders: two of the whole model, the groups from last to first, and each split with the group that decays first
 * or last. */
enum { IN_ORDER, REVERSED, GROUPS_REVERSED, SPLITS };

/* One hypothesis that is tried. `left` and `right` show whether there is more than one way: a model with the entries
 * w1 (4 x 4), b (4) and w2 (4 x 4), and an optimizer with one slot of shape 4 x 4, give left {0} and right {2}: two
 * ways. A second slot of shape 4 behind it leaves one way, and both are {0, 1}. The arrays are the heap's, and
 * ckpt__canon_infer_order frees them. */
typedef struct trial {
    ckpt__builder *b; /* borrowed, as are the optimizer and the model */
    const ckpt__optimizer *o;
    const ckpt__model *m;
    int candidates;           /* 0: parameters; 1: and what only its name makes a buffer; 2: all that the model has */
    size_t *list, list_count; /* the model's entries that one run of slots may take, in order */
    size_t all;               /* how many the model has */
    size_t *left, *right;     /* slot -> entry: the first and the last possibility */
} trial;

static size_t hypotheses(void)
{
    return SPLITS + 2 * ckpt__split_count();
}

static void name_of(size_t h, char *name, size_t size)
{
    static const char *const names[] = {"model", "model-reversed", "groups-reversed"};
    if (h < SPLITS)
        snprintf(name, size, "%s", names[h]);
    else
        snprintf(name, size, "decay-split-%s%s", ckpt__split_name((h - SPLITS) / 2), (h - SPLITS) % 2 ? "-last" : "");
}

bool ckpt__order_known(const char *name)
{
    char known[40];
    for (size_t h = 0; h < hypotheses(); h++) {
        name_of(h, known, sizeof known);
        if (strcmp(known, name) == 0)
            return true;
    }
    return false;
}

const char *ckpt__order_names(void)
{
    return "model, model-reversed, groups-reversed, decay-split-rank, -name, -token, -bias, -hf, -vector, -pattern and -layernorm, and each "
           "of these with -last";
}

ckpt_status ckpt__order_check(const char *assume_order, const char *object, ckpt_error *err)
{
    if (!assume_order || ckpt__order_known(assume_order))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_ARGUMENT, object, "there is no order '%.60s' (assume_order); the known ones are %s",
                      assume_order, ckpt__order_names());
}

static const ckpt_tensor_info *entry_info(const trial *t, size_t entry)
{
    return &t->b->index->tensors[t->m->entries[entry].tensor].info;
}

bool ckpt__canon_may_hold(const ckpt__optimizer *o, const ckpt__model *m, size_t entry, int candidates)
{
    ckpt__param_class is = m->entries[entry].is;
    if (m->adapter_count && m->adapter_count == o->slot_count && !ckpt__canon_is_adapter(m->entries[entry].own))
        return false;
    return is == CKPT__A_PARAM || (is == CKPT__MAYBE_BUFFER && candidates > 0) ||
           (is == CKPT__A_BUFFER && candidates > 1);
}

/* Keras' models on torch have integers, and means that move, among their parameters: those never have a state. */
static bool agree(const trial *t, size_t slot, size_t entry)
{
    if (t->m->entries[entry].is == CKPT__A_BUFFER && t->o->slots[slot].has_tensors)
        return false;
    return ckpt__slot_fits(t->b, &t->o->slots[slot], entry_info(t, entry));
}

/* Slots [first, first + count) take entries of the list in order, skipping what must be frozen or a buffer. Taking the
 * earliest each time gives the leftmost way, the latest from the end the rightmost: they are one iff there is one. */
static bool embed(trial *t, size_t first, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        while (at < t->list_count && !agree(t, first + i, t->list[at]))
            at++;
        if (at == t->list_count)
            return false;
        t->left[first + i] = t->list[at++];
    }
    at = t->list_count;
    for (size_t i = count; i > 0; i--) {
        while (at > 0 && !agree(t, first + i - 1, t->list[at - 1]))
            at--;
        if (at == 0)
            return false;
        t->right[first + i - 1] = t->list[--at];
    }
    return true;
}

static void fill_list(trial *t, size_t split, int decays)
{
    t->list_count = 0;
    for (size_t e = 0; e < t->m->count; e++) {
        if (!ckpt__canon_may_hold(t->o, t->m, e, t->candidates))
            continue;
        if (decays < 0 || ckpt__split_decays(split, t->m->entries[e].own, entry_info(t, e)->ndim) == (decays == 1))
            t->list[t->list_count++] = e;
    }
    if (decays < 0)
        t->all = t->list_count;
}

static void reverse_list(trial *t)
{
    for (size_t i = 0; i < t->list_count / 2; i++) {
        size_t other = t->list[t->list_count - 1 - i];
        t->list[t->list_count - 1 - i] = t->list[i];
        t->list[i] = other;
    }
}

/* All groups one after another in the model's order, or from its end. */
static bool try_sequence(trial *t, bool reversed)
{
    fill_list(t, 0, -1);
    if (reversed)
        reverse_list(t);
    return embed(t, 0, t->o->slot_count) && (t->o->group_count < 2 || ckpt__classes_agree(t->o, t->m, t->b, t->left));
}

/* The last group first: trainers give the head before the backbone, or the layers from last to first, as groups. */
static bool try_groups_reversed(trial *t)
{
    size_t n = 0, *list = t->list;
    bool fits = true;
    fill_list(t, 0, -1);
    if (t->list_count != t->o->slot_count)
        return false;
    for (size_t g = t->o->group_count; fits && g > 0; g--) {
        const ckpt__opt_group *group = &t->o->groups[g - 1];
        t->list = list + n;
        t->list_count = group->count;
        fits = embed(t, group->first, group->count);
        n += group->count;
    }
    t->list = list;
    t->list_count = t->all;
    return fits && ckpt__classes_agree(t->o, t->m, t->b, t->left);
}

/* Two groups: the one that decays is the first, or the last. Where the optimizer has all parameters, none is left out. */
static bool try_split(trial *t, size_t split, size_t decaying)
{
    const ckpt__opt_group *d = &t->o->groups[decaying], *n = &t->o->groups[1 - decaying];
    if (d->has_decay && n->has_decay && d->decay < n->decay)
        return false;
    fill_list(t, 0, -1);
    bool whole = t->all == t->o->slot_count;
    fill_list(t, split, 1);
    if ((whole && t->list_count != d->count) || !embed(t, d->first, d->count))
        return false;
    fill_list(t, split, 0);
    return embed(t, n->first, n->count);
}

static bool try_one(trial *t, size_t h)
{
    if (h == IN_ORDER || h == REVERSED)
        return try_sequence(t, h == REVERSED);
    if (h == GROUPS_REVERSED)
        return t->o->group_count > 1 && try_groups_reversed(t);
    return t->o->group_count == 2 && try_split(t, (h - SPLITS) / 2, (h - SPLITS) % 2);
}

static void describe(trial *t, char *how, size_t size, size_t h)
{
    char skipped[100] = "";
    fill_list(t, 0, -1);
    if (t->all > t->o->slot_count)
        snprintf(skipped, sizeof skipped, ", %zu of its %zu left out (frozen, or buffers)", t->all - t->o->slot_count,
                 t->all);
    if (h < SPLITS)
        snprintf(how, size, "the parameters in the model's order%s%s%s",
                 h == REVERSED ? ", from the last to the first" : "",
                 t->o->group_count < 2  ? ""
                 : h == GROUPS_REVERSED ? ", the last group first"
                                        : ", group after group",
                 skipped);
    else
        snprintf(how, size, "group %d has the parameters %s, group %d the others%s", (h - SPLITS) % 2 ? 1 : 0,
                 ckpt__split_text((h - SPLITS) / 2), (h - SPLITS) % 2 ? 0 : 1, skipped);
}

/* ---- all hypotheses */

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

/* Would a slot fit a tensor too that was taken for a buffer by its name? */
static bool may_be_buffers(trial *t)
{
    size_t n = t->o->slot_count;
    if (t->candidates > 0)
        return false;
    t->candidates = 1;
    fill_list(t, 0, -1);
    bool several = embed(t, 0, n) && memcmp(t->left, t->right, n * sizeof *t->left) != 0;
    t->candidates = 0;
    fill_list(t, 0, -1);
    return several;
}

/* Why the file's order, though it fits, may not be the order in which torch lists the model's parameters; NULL: it is. */
static const char *doubt(trial *t)
{
    for (size_t i = 1; i < t->list_count; i++)
        if (sorted_as_text(t->m->entries[t->list[i - 1]].own, t->m->entries[t->list[i]].own))
            return "the names are sorted as text (10 before 2), which is not the order of a model";
    if (may_be_buffers(t))
        return "a tensor that has the name of a buffer would fit as well";
    return NULL;
}

/* Is there one way only? In libtorch a frozen parameter is in the groups too, and without a state: which of the tensors
 * without a gradient it is then changes nothing. */
static bool one_way(const trial *t)
{
    bool same = true;
    for (size_t i = 0; i < t->o->slot_count && same; i++)
        same = t->left[i] == t->right[i] || (t->o->libtorch && t->o->slots[i].state == SIZE_MAX);
    return same;
}

/* Does any state have something that a parameter of another name could have got? LBFGS keeps one state for all. */
static bool could_mix(const ckpt__optimizer *o)
{
    size_t shaped = 0, with = 0;
    for (size_t i = 0; i < o->slot_count; i++) {
        shaped += ckpt__slot_has_shape(&o->slots[i]);
        with += o->slots[i].has_tensors;
    }
    return shaped > 0 || with > 1;
}

static bool decay_tells(const ckpt__optimizer *o, size_t h)
{
    const ckpt__opt_group *d = &o->groups[(h - SPLITS) % 2], *n = &o->groups[1 - (h - SPLITS) % 2];
    return d->has_decay && n->has_decay && d->decay > 0 && !(n->decay > 0);
}

/* Keeps the assignment of hypothesis h, the first that fits. */
static ckpt_status keep(trial *t, size_t h, const char *how, ckpt__order *out)
{
    size_t n = t->o->slot_count;
    memcpy(out->entries, t->left, n * sizeof *t->left);
    bool unsure = memcmp(t->left, t->right, n * sizeof *t->left) != 0, mix = could_mix(t->o);
    fill_list(t, 0, -1);
    out->fit = CKPT__FITS;
    out->evidence = h >= SPLITS && decay_tells(t->o, h) ? CKPT__CONTENT : CKPT__STRUCTURE;
    name_of(h, out->name, sizeof out->name);
    const char *why = h == IN_ORDER && mix && !t->b->hints->assume_order ? doubt(t) : NULL;
    out->ambiguous = why != NULL;
    snprintf(out->why, sizeof out->why, "%s", why ? why : "");
    out->doubtful = unsure;
    out->plain = h == IN_ORDER && t->o->group_count == 1 && t->list_count == n && !unsure && !why;
    snprintf(out->how, sizeof out->how, "%s%s", how,
             unsure ? "; but which parameters those without state are is not sure: they may be buffers" : "");
    if (h == REVERSED)
        reverse_list(t);
    ckpt__exam exam = {t->b, t->o, t->m, t->list, t->list_count, out->evidence == CKPT__CONTENT};
    if (t->b->hints->assume_order)
        out->evidence = CKPT__ASSUMED_ORDER;
    return mix ? ckpt__canon_weigh(&exam, out) : CKPT_OK;
}

/* A second known order that fits, and gives other names. Who hands over the parameters from the last to the first is rare, and it fits
 * what has few shapes only: that is a doubt. */
static void add_rival(ckpt__order *out, size_t h)
{
    static const char reversed[] = "; but from the last to the first they would fit as well";
    if (h == REVERSED) {
        size_t n = strlen(out->how);
        if (n + sizeof reversed <= sizeof out->how)
            memcpy(out->how + n, reversed, sizeof reversed);
        out->doubtful = true;
        return;
    }
    char name[40], before[sizeof out->why];
    name_of(h, name, sizeof name);
    memcpy(before, out->why, sizeof before);
    snprintf(out->why, sizeof out->why, "'%s' fits too%s%.300s", name, *before ? "; " : "", before);
    out->ambiguous = true;
    out->plain = false;
}

static ckpt_status try_all(trial *t, ckpt__order *out)
{
    size_t n = t->o->slot_count;
    const char *assumed = t->b->hints->assume_order;
    bool mix = could_mix(t->o);
    ckpt_status s = CKPT_OK;
    for (size_t h = 0; h < hypotheses() && out->fit != CKPT__FITS_SEVERAL && s == CKPT_OK; h++) {
        char how[200], name[40];
        name_of(h, name, sizeof name);
        if ((assumed && strcmp(assumed, name) != 0) || ((h == REVERSED || h == GROUPS_REVERSED) && !assumed && !mix) ||
            !try_one(t, h))
            continue;
        bool one = one_way(t);
        if (!one) {
            describe(t, how, sizeof how, h);
            out->fit = CKPT__FITS_SEVERAL;
            snprintf(out->how, sizeof out->how, "%s: %zu parameters fit the optimizer's %zu in more than one way", how,
                     t->m->count, n);
        } else if (out->fit == CKPT__FITS_NOT) {
            describe(t, how, sizeof how, h);
            s = keep(t, h, how, out);
        } else if (memcmp(out->entries, t->left, n * sizeof *t->left) != 0) {
            add_rival(out, h);
        }
    }
    return s;
}

/* One moment of a wrong shape must not hide an order that is otherwise plain: then "moment-shape" names it. */
static bool try_near(trial *t, ckpt__order *out)
{
    size_t wrong = 0;
    fill_list(t, 0, -1);
    if (t->o->group_count != 1 || t->list_count != t->o->slot_count || t->list_count < 2)
        return false;
    for (size_t i = 0; i < t->list_count; i++)
        wrong += !agree(t, i, t->list[i]);
    if (wrong != 1)
        return false;
    memcpy(out->entries, t->list, t->list_count * sizeof *t->list);
    out->fit = CKPT__FITS;
    out->evidence = CKPT__STRUCTURE;
    out->plain = true;
    name_of(IN_ORDER, out->name, sizeof out->name);
    describe(t, out->how, sizeof out->how, IN_ORDER);
    return true;
}

static void why_not(trial *t, ckpt__order *out)
{
    t->candidates = 0;
    fill_list(t, 0, -1);
    if (t->b->hints->assume_order)
        snprintf(out->how, sizeof out->how,
                 "the order that is assumed, '%s', does not fit %zu parameters in %zu group%s to the %zu of the model",
                 t->b->hints->assume_order, t->o->slot_count, t->o->group_count, t->o->group_count == 1 ? "" : "s",
                 t->list_count);
    else
        snprintf(
            out->how, sizeof out->how,
            "%zu parameters in %zu group%s of the optimizer do not fit the %zu of the model in any order that trainers use",
            t->o->slot_count, t->o->group_count, t->o->group_count == 1 ? "" : "s", t->list_count);
}

ckpt_status ckpt__canon_infer_order(ckpt__builder *b, const ckpt__optimizer *o, const ckpt__model *m, ckpt__order *out)
{
    memset(out, 0, sizeof *out);
    trial t = {.b = b, .o = o, .m = m};
    size_t n = o->slot_count ? o->slot_count : 1;
    out->entries = calloc(n, sizeof *out->entries);
    t.left = calloc(n, sizeof *t.left);
    t.right = calloc(n, sizeof *t.right);
    t.list = calloc(m->count ? m->count : 1, sizeof *t.list);
    bool ok = out->entries && t.left && t.right && t.list;
    ckpt_status s = CKPT_OK;
    out->inferred = ok;
    if (ok && m->sorted) {
        s = ckpt__canon_infer_sorted(b, o, m, out);
    } else if (ok) {
        for (int pass = 0; pass < 3 && s == CKPT_OK && out->fit == CKPT__FITS_NOT; pass++) {
            t.candidates = pass;
            fill_list(&t, 0, -1);
            if (pass < 2 || t.all == o->slot_count)
                s = try_all(&t, out);
        }
        t.candidates = 0;
        if (s == CKPT_OK && out->fit == CKPT__FITS_NOT && !try_near(&t, out))
            why_not(&t, out);
    }
    free(t.left);
    free(t.right);
    free(t.list);
    return ok ? s : ckpt__canon_no_memory(b);
}
