/* migrate/groups.c - what a native file has of an optimizer, made ready for torch's: moments that no parameter group holds get
 * one, in the order of the file, and one step for all becomes one a parameter. What no torch optimizer could be is a loss. */
#include "engine/stream.h"
#include "migrate/torch.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEYS_MAX = 32 };

/* A parameter that the optimizer has a state of. */
typedef struct owner {
    ckpt_str name;
    size_t model;  /* the parameter's place among the model's parameters; SIZE_MAX: the model has none
                                   * of this name */
    uint32_t keys; /* one bit for each key of its state but "step": bit k is grouper.keys[k] */
    size_t step;   /* number of the canonical entry with its step; SIZE_MAX: none */
    bool grouped;  /* a group holds the parameter */
} owner;

/* The work of ckpt__migrate_groups. An example: with the grouper's keys {"exp_avg", "exp_avg_sq"} an owner of both has
 * keys 3, and an owner of "exp_avg_sq" alone has keys 2. */
typedef struct grouper {
    ckpt__migration *m;
    owner *owners;
    size_t count, capacity; /* heap, owned */
    ckpt__hash *by_name;    /* name of a parameter -> number of its owner */
    ckpt_str keys[KEYS_MAX];
    size_t key_count; /* of all states but "step"; at most KEYS_MAX are noted */
    size_t params;    /* how many parameters the model has */
    size_t made;      /* how many steps were made */
    int64_t common;   /* the one step of the checkpoint; -1: none */
    ckpt_error *err;
} grouper;

static const char head[] = "optimizer.";
enum { HEAD = sizeof head - 1 };

/* ---- whose states there are */

static owner *owner_of(grouper *g, ckpt_str name)
{
    size_t at;
    int put = ckpt__hash_put(g->by_name, name.data, name.size, g->count, &at);
    if (put < 0 || !ckpt__grow(&g->owners, &g->capacity, g->count + 1, sizeof *g->owners))
        return NULL;
    if (put == 1)
        g->owners[g->count++] = (owner){.name = name, .model = SIZE_MAX, .step = SIZE_MAX};
    return &g->owners[put == 1 ? g->count - 1 : at];
}

static void note_key(grouper *g, owner *o, ckpt_str key)
{
    size_t k = 0;
    while (k < g->key_count && !ckpt__str_equal(g->keys[k], key))
        k++;
    if (k == KEYS_MAX)
        return;
    if (k == g->key_count)
        g->keys[g->key_count++] = key;
    o->keys |= UINT32_C(1) << k;
}

static bool has_key(const grouper *g, const owner *o, const char *key)
{
    for (size_t k = 0; k < g->key_count; k++)
        if (ckpt__str_is(g->keys[k], key))
            return o->keys >> k & 1;
    return false;
}

/* A step that is a number stands among the values: "optimizer.<param>.step". */
static size_t owner_of_value(const grouper *g, const ckpt__canon_entry *e)
{
    static const char tail[] = ".step";
    const size_t n = sizeof tail - 1;
    size_t at;
    if (e->is_tensor || !e->value || e->name.size <= HEAD + n || !ckpt__str_begins(e->name, head) ||
        !ckpt__str_ends(e->name, tail) ||
        !ckpt__hash_get(g->by_name, e->name.data + HEAD, e->name.size - HEAD - n, &at))
        return SIZE_MAX;
    return at;
}

static ckpt_status find_owners(grouper *g)
{
    const ckpt__canon *c = g->m->canon;
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (!e->is_tensor || e->outside || !e->param.data || !e->state_key.data ||
            ckpt__stays_behind(g->m, e->tensor) || !ckpt__str_begins_more(e->name, head))
            continue; /* gradients and averages are of parameters too */
        owner *o = owner_of(g, e->param);
        if (!o)
            return ckpt__migration_no_memory(g->err);
        if (ckpt__str_is(e->state_key, "step"))
            o->step = i;
        else
            note_key(g, o, e->state_key);
    }
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        size_t at;
        if (e->is_tensor && !e->outside && !e->state_key.data && e->role == CKPT_ROLE_PARAM) {
            if (ckpt__hash_get(g->by_name, e->name.data, e->name.size, &at))
                g->owners[at].model = g->params;
            g->params++;
        } else if ((at = owner_of_value(g, e)) != SIZE_MAX) {
            g->owners[at].step = i;
        }
    }
    for (size_t k = 0; k < c->group_count; k++)
        for (size_t i = 0; i < c->groups[k].param_count; i++) {
            size_t at;
            ckpt_str name = c->groups[k].params[i];
            if (ckpt__hash_get(g->by_name, name.data, name.size, &at))
                g->owners[at].grouped = true;
        }
    return CKPT_OK;
}

static int by_model(const void *a, const void *b)
{
    const owner *x = a, *y = b;
    return x->model < y->model ? -1 : x->model > y->model;
}

/* ---- what no torch optimizer could be */

static const char bind[] = "bind a parameter group for each optimizer (ckpt_state_group), and save again";

/* "a.weight, a.bias and 3 more", of those for which `odd` holds. */
static size_t list_names(const grouper *g, bool (*odd)(const grouper *, const owner *), char *out, size_t size)
{
    enum { SHOWN = 4 };
    size_t used = 0, n = 0;
    *out = 0;
    for (size_t i = 0; i < g->count; i++) {
        char shown[100];
        if (!odd(g, &g->owners[i]) || n++ >= SHOWN || used + sizeof shown + 40 > size)
            continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                 ckpt__escape(shown, sizeof shown, g->owners[i].name.data, g->owners[i].name.size));
    }
    if (n > SHOWN)
        snprintf(out + used, size - used, " and %zu more", n - SHOWN);
    return n;
}

static ckpt_status lose(grouper *g, const char *what)
{
    return ckpt__report_add(g->m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, bind, "%s", what)
               ? CKPT_OK
               : ckpt__migration_no_memory(g->err);
}

static bool is_orphan(const grouper *g, const owner *o)
{
    (void)g;
    return o->model == SIZE_MAX;
}

static bool differs(const grouper *g, const owner *o)
{
    return o->keys != g->owners[0].keys;
}

static bool is_apart(const grouper *g, const owner *o)
{
    (void)g;
    return !o->grouped;
}

/* Adam's kind divides by what the number of steps says. */
static bool lacks_step(const grouper *g, const owner *o)
{
    return o->step == SIZE_MAX && has_key(g, o, "exp_avg") && has_key(g, o, "exp_avg_sq");
}

static void put_keys(const grouper *g, const owner *o, char *out, size_t size)
{
    size_t used = 0;
    *out = 0;
    for (size_t k = 0; k < g->key_count && used + 60 < size; k++)
        if (o->keys >> k & 1)
            used += (size_t)snprintf(out + used, size - used, "%s%.40s", used ? ", " : "", g->keys[k].data);
}

/* *said: a loss was listed. */
static ckpt_status find_losses(grouper *g, bool *said)
{
    char names[600], keys[2][200], what[1000];
    size_t n;
    *said = true;
    if (g->m->canon->group_count) {
        n = list_names(g, is_apart, names, sizeof names);
        *said = n > 0;
        snprintf(what, sizeof what, "the optimizer state of %zu parameter%s in no group, which torch would not see: %s",
                 n, n == 1 ? " that is" : "s that are", names);
        return n ? lose(g, what) : CKPT_OK;
    }
    if ((n = list_names(g, is_orphan, names, sizeof names))) {
        snprintf(what, sizeof what,
                 "the optimizer: no group is bound, and %zu of its states are of parameters that the model does not "
                 "have (%s)",
                 n, names);
        return lose(g, what);
    }
    if ((n = list_names(g, differs, names, sizeof names))) {
        size_t other = 0;
        while (!differs(g, &g->owners[other]))
            other++;
        put_keys(g, &g->owners[0], keys[0], sizeof keys[0]);
        put_keys(g, &g->owners[other], keys[1], sizeof keys[1]);
        snprintf(what, sizeof what,
                 "the optimizer: no group is bound, and the states are not alike: '%.100s' has %s, and %zu others have "
                 "%s or others (%.300s)",
                 g->owners[0].name.data, keys[0], n, keys[1], names);
        return lose(g, what);
    }
    *said = false;
    return CKPT_OK;
}

/* ---- steps */

static ckpt_status make_step(grouper *g, owner *o, int64_t step)
{
    ckpt_status status = ckpt__make_step(g->m, o->name, step, &o->step, g->err);
    g->made += status == CKPT_OK;
    return status;
}

/* For a step of each. */
static ckpt_status make_room(grouper *g)
{
    ckpt__migration *m = g->m;
    ckpt__canon_entry *entries = realloc(m->canon->entries, (m->canon->count + g->count + 1) * sizeof *entries);
    m->canon->entries = entries ? entries : m->canon->entries;
    return entries ? CKPT_OK : ckpt__migration_no_memory(g->err);
}

/* Of a torch_dist of megatron-core: the optimizer's own count, which iterations that were skipped are not in. */
static ckpt_status read_common(grouper *g)
{
    const ckpt__migration *m = g->m;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        double step = 0;
        bool read = false;
        if (!e->is_tensor || e->param.data || e->role != CKPT_ROLE_STEP ||
            !ckpt__str_is(e->name, "optimizer.state.common_step"))
            continue;
        status = ckpt__read_number(m->reader->source, m->from, e->tensor, true, &step, &read, g->err);
        if (status == CKPT_OK && read && step >= 0 && step <= (double)(INT64_C(1) << 40) &&
            step == (double)(int64_t)step)
            g->common = (int64_t)step;
    }
    return status;
}

/* The one step of the checkpoint: its optimizer's, or bound as "step", or the file's own. */
static ckpt_status find_common(grouper *g)
{
    const ckpt__migration *m = g->m;
    size_t i;
    const ckpt_value *v = ckpt__hash_get(m->canon->by_name, "step", 4, &i) ? m->canon->entries[i].value : NULL;
    g->common = v && v->kind == CKPT_V_INT && v->integer >= 0 ? v->integer : m->from->step;
    return read_common(g);
}

static bool is_exact(int64_t step)
{
    return step >= 0 && step <= INT64_C(1) << 40 && (int64_t)(float)step == step;
}

/* *lost: no step can be made. */
static ckpt_status make_steps(grouper *g, bool *lost)
{
    char names[600], what[900];
    const int64_t common = g->common;
    ckpt_status status = CKPT_OK;
    size_t n = list_names(g, lacks_step, names, sizeof names);
    *lost = n && !is_exact(common);
    if (*lost && common < 0)
        snprintf(what, sizeof what,
                 "the optimizer: the checkpoint does not say how many steps were taken, and torch's Adam fails without "
                 "(bind \"step\" with ckpt_state_i64): %s",
                 names);
    else if (*lost)
        snprintf(what, sizeof what, "the optimizer: step %lld is not float32, in which torch counts",
                 (long long)common);
    if (*lost)
        return lose(g, what);
    status = make_room(g);
    for (size_t i = 0; status == CKPT_OK && i < g->count; i++) {
        owner *o = &g->owners[i];
        const ckpt_value *own = o->step == SIZE_MAX ? NULL : g->m->canon->entries[o->step].value;
        bool adam = has_key(g, o, "exp_avg");
        if (o->step == SIZE_MAX && adam && is_exact(common))
            status = make_step(g, o, common);
        else if (own && adam && own->kind == CKPT_V_INT && is_exact(own->integer))
            status = make_step(g, o, own->integer);
    }
    return status;
}

/* ---- the groups that the source has without the names of their parameters, as Megatron's common.pt: its loader takes those of
 * the running program */

static bool names_none(const ckpt_value *list)
{
    for (size_t i = 0; i < list->item_count; i++) {
        const ckpt_value *params = ckpt_value_get(list->items[i], "params");
        if (list->items[i]->kind != CKPT_V_DICT || (params && params->item_count))
            return false;
    }
    return list->item_count > 0;
}

/* All in one list: an optimizer of several (Megatron's ChainedOptimizer) has one list each, below a number. */
static bool gather_groups(const ckpt_value *v, int depth, const ckpt_value ***all, size_t *count, size_t *capacity)
{
    bool ok = true;
    for (size_t i = 0; v->kind == CKPT_V_DICT && ok && i < v->entry_count; i++) {
        const ckpt_entry *e = &v->entries[i];
        if (e->key->kind == CKPT_V_STR && ckpt__str_is(e->key->text, "param_groups") && ckpt__is_list(e->value)) {
            if (!names_none(e->value))
                continue;
            ok = ckpt__grow(all, capacity, *count + e->value->item_count, sizeof **all);
            for (size_t k = 0; ok && k < e->value->item_count; k++)
                (*all)[(*count)++] = e->value->items[k];
        } else if (depth > 0) {
            ok = gather_groups(e->value, depth - 1, all, count, capacity);
        }
    }
    return ok;
}

ckpt_status ckpt__migrate_nameless_groups(const ckpt__migration *m, ckpt__arena *a, const ckpt_value **out,
                                          ckpt_error *err)
{
    enum { DEPTH = 3 };
    const ckpt_value *optimizer = ckpt_value_get(m->from->root, "optimizer"), **all = NULL;
    size_t count = 0, capacity = 0;
    *out = NULL;
    bool ok = !optimizer || gather_groups(optimizer, DEPTH, &all, &count, &capacity);
    if (ok && count)
        ok = (*out = ckpt__value_list(a, CKPT_V_LIST, all, count)) != NULL;
    free(all);
    return ok ? CKPT_OK : ckpt__migration_no_memory(err);
}

static bool is_no_setting(ckpt_str key)
{
    return ckpt__str_is(key, "params") || ckpt__str_is(key, "param_names") || ckpt__str_is(key, "step");
}

static const ckpt_value *setting_of(const ckpt_value *group, ckpt_str setting)
{
    for (size_t k = 0; k < group->entry_count; k++)
        if (group->entries[k].key->kind == CKPT_V_STR && ckpt__str_equal(group->entries[k].key->text, setting))
            return group->entries[k].value;
    return NULL;
}

bool ckpt__migrate_is_shared(const ckpt_value *groups, ckpt_str setting)
{
    const ckpt_value *first = NULL;
    if (is_no_setting(setting))
        return false;
    for (size_t i = 0; i < groups->item_count; i++) {
        const ckpt_value *v = setting_of(groups->items[i], setting);
        first = first ? first : v;
        if (!v || !ckpt__value_alike(v, first))
            return false;
    }
    return first != NULL;
}

/* Has a group before this one the setting too? */
static bool said_before(const ckpt_value *groups, size_t group, ckpt_str setting)
{
    while (group-- > 0)
        if (setting_of(groups->items[group], setting))
            return true;
    return false;
}

/* Has each rank of a run an optimizer of its own? Their settings are not those of one group. */
static bool ranks_have_settings(const ckpt_value *root)
{
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && i < root->entry_count; i++)
        if (root->entries[i].key->kind == CKPT_V_STR && ckpt__str_begins(root->entries[i].key->text, "rank-") &&
            ckpt_value_get(root->entries[i].value, "optimizer"))
            return true;
    return false;
}

/* What is said of the settings of the group that was made. */
static void say_settings(const grouper *g, char *out, size_t size)
{
    const ckpt_value *groups = g->m->saved_groups;
    size_t at, differ = 0;
    if (!groups) {
        snprintf(out, size, "%s",
                 ranks_have_settings(g->m->from->root)
                     ? "The ranks have other settings each (rank-00000.optimizer, ...), and none of them is taken"
                     : "Hyper-parameters are not in the checkpoint");
        return;
    }
    at = (size_t)snprintf(
        out, size, "It has the settings that %zu group%s of the checkpoint %s, whose parameters it does not name",
        groups->item_count, groups->item_count == 1 ? "" : "s", groups->item_count == 1 ? "has" : "have in common");
    for (size_t i = 0; i < groups->item_count; i++)
        for (size_t k = 0; k < groups->items[i]->entry_count && at < size; k++) {
            const ckpt_value *key = groups->items[i]->entries[k].key;
            if (key->kind != CKPT_V_STR || is_no_setting(key->text) || ckpt__migrate_is_shared(groups, key->text) ||
                said_before(groups, i, key->text))
                continue;
            char name[60];
            ckpt__escape(name, sizeof name, key->text.data, key->text.size);
            at += (size_t)snprintf(out + at, size - at, "%s%s",
                                   differ++ ? ", " : "; these differ, and are in 'saved_param_groups' alone: ", name);
        }
}

/* ---- the group */

#define SETDEFAULT                                                                                                     \
    "for g in optimizer.param_groups: [g.setdefault(k, v) for k, v in optimizer.defaults.items()]   # after load_state_dict"

static ckpt_status make_group(grouper *g)
{
    ckpt__canon *c = g->m->canon;
    ckpt_str *params = ckpt__arena_array(c->arena, g->count, sizeof *params);
    ckpt__canon_group *made = ckpt__arena_array(c->arena, 1, sizeof *made);
    char left[80] = "", step[120] = "", last[120], settings[400];
    if (!params || !made)
        return ckpt__migration_no_memory(g->err);
    for (size_t i = 0; i < g->count; i++)
        params[i] = g->owners[i].name;
    *made = (ckpt__canon_group){.name = ckpt__s("0"), .params = params, .param_count = g->count, .flags = {-1, -1, -1}};
    c->groups = made;
    c->group_count = 1;
    g->m->group_made = true;
    if (g->params > g->count)
        snprintf(left, sizeof left, " (%zu parameters without a state are not in it)", g->params - g->count);
    if (g->made)
        snprintf(step, sizeof step, "; each has the step %lld as a float32", (long long)g->common);
    ckpt_status status = ckpt__migrate_nameless_groups(g->m, g->m->from->arena, &g->m->saved_groups, g->err);
    if (status < 0)
        return status;
    say_settings(g, settings, sizeof settings);
    ckpt_str first = params[0], end = params[g->count - 1];
    char shown[100];
    ckpt__escape(shown, sizeof shown, first.data, first.size);
    ckpt__escape(last, sizeof last, end.data, end.size);
    bool added = ckpt__report_add(
        g->m->report, CKPT_SEVERITY_WARNING, "group-made", NULL,
        g->m->saved_groups ? SETDEFAULT : SETDEFAULT "; or bind a group (ckpt_state_group) before the save",
        "no parameter group %s: one was made of the %zu parameters with moments%s, in the order of ckpt-inspect list "
        "('%s' to '%s')%s. torch matches by position: construct the optimizer over the parameters in that order (param_names says it). "
        "%s",
        g->m->saved_groups ? "names its parameters" : "is bound", g->count, left, shown, last, step, settings);
    return added ? CKPT_OK : ckpt__migration_no_memory(g->err);
}

static ckpt_status note_steps(grouper *g)
{
    if (!g->made || g->m->group_made)
        return CKPT_OK;
    return ckpt__migration_note(
        g->m, CKPT_SEVERITY_NOTE, "step-made", (ckpt_str){NULL, 0}, g->err,
        "%zu parameters have a step each now, a float32 as torch counts: the checkpoint counts once (%lld), or in "
        "integers",
        g->made, (long long)g->common);
}

static ckpt_status group(grouper *g)
{
    bool lost = false, unknown = false;
    ckpt_status status = find_owners(g);
    if (status < 0 || !g->count)
        return status;
    status = find_common(g);
    if (status == CKPT_OK)
        status = find_losses(g, &lost);
    bool makes = !lost && !g->m->canon->group_count;
    if (status == CKPT_OK && makes) {
        qsort(g->owners, g->count, sizeof *g->owners, by_model);
        ckpt__hash_free(g->by_name); /* its numbers are those of before */
        g->by_name = NULL;
    }
    if (status == CKPT_OK && (makes || g->m->canon->group_count))
        status = make_steps(g, &unknown);
    if (status == CKPT_OK && makes && !unknown)
        status = make_group(g);
    return status == CKPT_OK ? note_steps(g) : status;
}

ckpt_status ckpt__migrate_groups(ckpt__migration *m, ckpt_error *err)
{
    grouper g = {.m = m, .by_name = ckpt__hash_new(64), .err = err};
    ckpt_status status = g.by_name ? group(&g) : ckpt__migration_no_memory(err);
    ckpt__hash_free(g.by_name);
    free(g.owners);
    return status;
}
