/* migrate/layout.c - --layout: which way the layout goes, and the source as it is behind it. */
#include "migrate/layout.h"

#include <stdlib.h>
#include "format/table.h"
#include "migrate/to_canonical.h"
#include "model/flat_state.h"
#include "model/visits.h"

/* ---- the file */

ckpt_status ckpt__migrate_read_layout(ckpt__migration *m, ckpt__layout **out, ckpt_error *err)
{
    const char *path = m->options.layout;
    ckpt__source *s = NULL;
    char *text = NULL;
    ckpt_status status = ckpt__source_open(path, &s, err);
    if (status == CKPT_OK && s->directory)
        status = ckpt__fail(err, CKPT_E_ARGUMENT, path, "it is a directory, and a layout is a file");
    if (status == CKPT_OK && s->files[0].size > CKPT__LAYOUT_SIZE)
        status = ckpt__fail(err, CKPT_E_LIMIT, path, "a layout has at most %d bytes", (int)CKPT__LAYOUT_SIZE);
    if (status == CKPT_OK && !(text = malloc((size_t)s->files[0].size + 1)))
        status = ckpt__fail_memory(err, path, s->files[0].size);
    if (status == CKPT_OK)
        status = ckpt__source_read(s, 0, 0, text, (size_t)s->files[0].size, err);
    if (status == CKPT_OK)
        status = ckpt__layout_parse(text, (size_t)s->files[0].size, path, m->report, out, err);
    free(text);
    ckpt__source_close(s);
    return status;
}

/* ---- which way */

/* Do the shapes fit? Pieces are not needed to know it. */
static ckpt_status try_shapes(ckpt__laying *l, const ckpt__layout_match *match, ckpt_report *report)
{
    size_t wrong = 0;
    ckpt_status status = CKPT_OK;
    for (size_t u = 0; status == CKPT_OK && u < match->count; u++) {
        const ckpt__layout_use *use = &match->uses[u];
        const ckpt__arena_mark mark = ckpt__arena_note(l->arena);
        ckpt__lay *in = ckpt__arena_array(l->arena, use->input_count + 1, sizeof *in),
                  *out = ckpt__arena_array(l->arena, use->output_count + 1, sizeof *out);
        ckpt_error own = CKPT_ERROR_INIT;
        if (!in || !out)
            return ckpt__migration_no_memory(l->err);
        for (size_t i = 0; i < use->input_count; i++) {
            const ckpt__layout_name *n = &l->names[use->inputs[i]];
            in[i] = (ckpt__lay){.ndim = n->ndim, .unit = 1, .shape = (int64_t *)(uintptr_t)n->shape};
        }
        if (use->output_count)
            status = ckpt__layout_lower(match, use, in, 0, l->arena, out, &own);
        if (status == CKPT_E_MISMATCH || status == CKPT_E_LIMIT) {
            wrong++;
            status = ckpt__report_add(report, CKPT_SEVERITY_ERROR, "layout-wrong", NULL, NULL, "%s", own.message) &&
                             ckpt__report_tensor(report, l->names[use->inputs[0]].name)
                         ? CKPT_OK
                         : ckpt__migration_no_memory(l->err);
        } else if (status < 0)
            status = ckpt__migration_no_memory(l->err);
        ckpt__arena_rewind(l->arena, &mark);
    }
    return status == CKPT_OK && wrong ? CKPT_E_MISMATCH : status;
}

/* One way. CKPT_E_MISMATCH: it does not fit, and the report says why. */
static ckpt_status try_way(ckpt__laying *l, unsigned from, ckpt_report *report, ckpt__layout_match **out)
{
    const ckpt_migrate_options *o = &l->m->options;
    ckpt_status status = ckpt__layout_match_names(l->layout, from, l->names, l->name_count, o->layout_vars,
                                                  o->layout_var_count, report, out, l->err);
    return status == CKPT_OK ? try_shapes(l, *out, report) : status;
}

static ckpt_status refuse(ckpt__laying *l, const ckpt_report *report)
{
    if (!ckpt__report_merge(l->m->report, report))
        return ckpt__migration_no_memory(l->err);
    return ckpt__report_fail(report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, l->m->options.layout, l->err);
}

/* The side whose names and shapes the source has. */
static ckpt_status choose_way(ckpt__laying *l, unsigned first, unsigned last)
{
    ckpt_report *report[2] = {ckpt_report_new(), ckpt_report_new()};
    ckpt__layout_match *match[2] = {NULL, NULL};
    ckpt_status way[2] = {CKPT_E_MISMATCH, CKPT_E_MISMATCH}, status = CKPT_OK;
    if (!report[0] || !report[1])
        status = ckpt__migration_no_memory(l->err);
    for (unsigned i = first; status == CKPT_OK && i <= last; i++) {
        way[i] = try_way(l, i, report[i], &match[i]);
        if (way[i] != CKPT_OK && way[i] != CKPT_E_MISMATCH)
            status = way[i];
    }
    const char *const a = ckpt__layout_side(l->layout, 0), *const b = ckpt__layout_side(l->layout, 1);
    if (status == CKPT_OK && way[0] == CKPT_OK && way[1] == CKPT_OK)
        status = ckpt__fail(l->err, CKPT_E_MISMATCH, l->m->src,
                            "its tensors could be those of %s and those of %s: say which with --layout-side", a, b);
    else if (status == CKPT_OK && way[0] != CKPT_OK && way[1] != CKPT_OK) {
        unsigned near = first;
        if (first != last && match[0] && match[1])
            near = match[1]->unmatched < match[0]->unmatched;
        status = refuse(l, report[near]);
        if (first != last)
            ckpt__error_prefix(l->err, "the source fits neither side of the layout, %s or %s; for %s", a, b,
                               near ? b : a);
    } else if (status == CKPT_OK) {
        l->match = match[way[1] == CKPT_OK];
        match[way[1] == CKPT_OK] = NULL;
    }
    ckpt__layout_match_free(match[0]);
    ckpt__layout_match_free(match[1]);
    ckpt_report_free(report[0]);
    ckpt_report_free(report[1]);
    return status;
}

static ckpt_status find_way(ckpt__laying *l)
{
    const char *said = l->m->options.layout_side;
    if (!said)
        return choose_way(l, 0, 1);
    for (unsigned i = 0; i < 2; i++)
        if (strcmp(said, ckpt__layout_side(l->layout, i)) == 0)
            return choose_way(l, i, i);
    return ckpt__fail(l->err, CKPT_E_ARGUMENT, l->m->options.layout, "it has no side '%s': its sides are %s and %s",
                      said, ckpt__layout_side(l->layout, 0), ckpt__layout_side(l->layout, 1));
}

/* Its states would stay as they are, and the parameters would not. */
static ckpt_status check_named(const ckpt__laying *l)
{
    const ckpt__canon *c = l->m->canon;
    for (size_t i = 0; c->unnamed.data && i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (!e->is_tensor || ckpt__stays_behind(l->m, e->tensor) || !ckpt__str_begins_with(e->own, c->unnamed))
            continue;
        return ckpt__fail(l->err, CKPT_E_MISMATCH, l->m->src,
                          "which parameters the states of the optimizer at '%.*s' belong to is unknown, so that no "
                          "layout could be applied to them: say --param-names FILE, or --weights-only",
                          (int)c->unnamed.size, c->unnamed.data);
    }
    return CKPT_OK;
}

/* ---- the source behind it */

static ckpt_status name_tensors(ckpt__laying *l)
{
    ckpt__arena *a = l->m->from->arena;
    for (size_t i = 0; i < l->m->canon->count; i++) {
        const ckpt__canon_entry *e = &l->m->canon->entries[i];
        if (!e->is_tensor || e->outside || ckpt__str_begins(l->m->from->tensors[e->tensor].info.name, "ckpt."))
            continue;
        ckpt_tensor_info *t = &l->m->from->tensors[e->tensor].info;
        const ckpt_str none = {NULL, 0};
        t->name = ckpt__arena_str(a, e->name.data, e->name.size);
        t->param = e->param.data ? ckpt__arena_str(a, e->param.data, e->param.size) : none;
        t->state_key = e->state_key.data ? ckpt__arena_str(a, e->state_key.data, e->state_key.size) : none;
        t->group = e->group.data ? ckpt__arena_str(a, e->group.data, e->group.size) : none;
        t->path = (ckpt_path){NULL, 0};
        t->role = e->role != CKPT_ROLE_NONE ? e->role : t->role;
        if (!t->name.data || !t->param.data != !e->param.data || !t->state_key.data != !e->state_key.data ||
            !t->group.data != !e->group.data)
            return ckpt__migration_no_memory(l->err);
    }
    return CKPT_OK;
}

/* The source's own optimizer without its tensors. NULL: it says nothing else. */
static ckpt_status settings_of(const ckpt__laying *l, const ckpt_value *own, const ckpt_value **out)
{
    const size_t count = l->m->from->tensor_count;
    bool *all = malloc(count + 1);
    if (all)
        memset(all, true, count + 1);
    const bool fine = all && ckpt__values_without(own, all, count, l->m->from->arena, out);
    free(all);
    return fine ? CKPT_OK : ckpt__migration_no_memory(l->err);
}

/* A canonical name has a number as text: "0" is the key 0 of an optimizer that is two. */
static const ckpt_entry *entry_called(const ckpt_value *dict, ckpt_str name)
{
    int64_t number;
    const ckpt_entry *e = ckpt__find_entry(dict, name.data);
    for (size_t i = 0; !e && ckpt__parse_i64(name.data, name.size, &number) && i < dict->entry_count; i++)
        if (dict->entries[i].key->kind == CKPT_V_INT && dict->entries[i].key->integer == number)
            e = &dict->entries[i];
    return e;
}

/* Groups that name no parameters (megatron-core's) are none of the canonical ones: they stay the lists that they are in the source. */
static ckpt_status keep_groups(const ckpt__laying *l, const ckpt_value *was, const ckpt_entry *made,
                               const ckpt_entry **out)
{
    const ckpt_entry *own = ckpt__find_entry(was, "optimizer");
    const ckpt_value *values = NULL;
    *out = made;
    if (l->m->canon->group_count || !made || made->value->kind != CKPT_V_DICT || !own ||
        own->value->kind != CKPT_V_DICT)
        return CKPT_OK;
    ckpt_status status = settings_of(l, own->value, &values);
    if (status < 0 || !values)
        return status;
    const size_t room = made->value->entry_count;
    ckpt_entry *entries = ckpt__arena_array(l->m->from->arena, room + 1, sizeof *entries),
               *both = ckpt__arena_array(l->m->from->arena, 1, sizeof *both);
    if (!entries || !both)
        return ckpt__migration_no_memory(l->err);
    for (size_t i = 0; i < room; i++) {
        const ckpt_entry *one = &made->value->entries[i];
        const ckpt_entry *same = one->key->kind == CKPT_V_STR ? entry_called(values, one->key->text) : NULL;
        entries[i] = same && ckpt__value_has_tensor(one->value, NULL) == 0 ? *same : *one;
    }
    *both = (ckpt_entry){made->key, ckpt__value_dict(l->m->from->arena, entries, room)};
    *out = both;
    return both->value ? CKPT_OK : ckpt__migration_no_memory(l->err);
}

/* What a tree with canonical names has beside the optimizer stays as it is; the optimizer is that of `canonical`. */
static ckpt_status replace_optimizer(ckpt__laying *l, const ckpt_value *was, const ckpt_value *canonical,
                                     const ckpt_value **out)
{
    const ckpt_entry *made = NULL;
    const size_t count = was && was->kind == CKPT_V_DICT ? was->entry_count : 0;
    ckpt_entry *entries = ckpt__arena_array(l->m->from->arena, count + 2, sizeof *entries);
    size_t n = 0;
    if (!entries)
        return ckpt__migration_no_memory(l->err);
    ckpt_status status = keep_groups(l, was, ckpt__find_entry(canonical, "optimizer"), &made);
    if (status < 0)
        return status;
    for (size_t i = 0; i < count; i++)
        if (!ckpt__str_is(was->entries[i].key->text, "optimizer"))
            entries[n++] = was->entries[i];
    if (made)
        entries[n++] = *made;
    *out = ckpt__value_dict(l->m->from->arena, entries, n);
    return *out ? CKPT_OK : ckpt__migration_no_memory(l->err);
}

/* The settings of an optimizer that was flattened (model/flat_state.h) are those of its groups by now, and here under names that are no
 * more. */
static ckpt_status drop_flat(const ckpt__laying *l, const ckpt_value **root)
{
    const ckpt_entry *e = ckpt__find_entry(*root, "optimizer");
    const ckpt_str none = {"", 0};
    ckpt__arena *a = l->m->from->arena;
    if (!e || e->value->kind != CKPT_V_DICT || !l->m->canon->group_count)
        return CKPT_OK;
    ckpt_entry *kept = ckpt__arena_array(a, e->value->entry_count + 1, sizeof *kept),
               *all = ckpt__arena_array(a, (*root)->entry_count + 1, sizeof *all);
    size_t n = 0;
    for (size_t i = 0; kept && i < e->value->entry_count; i++) {
        const ckpt_entry *one = &e->value->entries[i];
        ckpt_str param, what;
        bool group;
        if (one->key->kind != CKPT_V_STR || !ckpt__flat_key(one->key->text, none, &group, &param, &what) || !group)
            kept[n++] = *one;
    }
    if (kept && n == e->value->entry_count)
        return CKPT_OK;
    if (kept && all) {
        memcpy(all, (*root)->entries, (*root)->entry_count * sizeof *all);
        all[e - (*root)->entries].value = ckpt__value_dict_like(a, e->value, kept, n);
        *root = all[e - (*root)->entries].value ? ckpt__value_dict_like(a, *root, all, (*root)->entry_count) : NULL;
    }
    return kept && all && *root ? CKPT_OK : ckpt__migration_no_memory(l->err);
}

/* It has canonical names now, and values under them. */
static ckpt_status become_canonical(ckpt__laying *l)
{
    ckpt__migration *m = l->m;
    const ckpt_value *root = NULL;
    const ckpt__canon_hints hints = {.optional_optimizer = true};
    const ckpt_value *was = m->from->root;
    const bool canonical = ckpt__format_of(m->from)->canonical;
    if (canonical)
        m->from->root = NULL;
    ckpt_status status =
        ckpt__migrate_tree(m->from, m->canon, m->edits, !canonical, m->from->arena, m->lost, &root, l->err);
    if (status == CKPT_OK && canonical)
        status = replace_optimizer(l, was, root, &root);
    if (status == CKPT_OK && root)
        status = drop_flat(l, &root);
    if (status == CKPT_OK)
        status = name_tensors(l);
    if (status < 0)
        return status;
    m->from->root = root;
    m->from->format = ckpt__format_native.name;
    m->from->kind = "file";
    m->tree = false;
    ckpt__canon_free(m->canon);
    m->canon = NULL;
    ckpt_report *said = ckpt_report_new();
    status = said ? ckpt__canon_build(m->from, &hints, &m->canon, said, l->err) : ckpt__migration_no_memory(l->err);
    if (status == CKPT_OK && ckpt_report_count_code(said, "name-collision"))
        status = ckpt__report_fail(said, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, m->src, l->err);
    ckpt_report_free(said);
    return status;
}

static ckpt_status lay_out(ckpt__laying *l)
{
    ckpt_status status = ckpt__migrate_read_layout(l->m, &l->layout, l->err);
    if (status == CKPT_OK)
        status = check_named(l);
    if (status == CKPT_OK)
        status = ckpt__laying_find(l);
    if (status == CKPT_OK && !l->name_count)
        status = ckpt__fail(l->err, CKPT_E_MISMATCH, l->m->src,
                            "no tensor of a model is kept, so there is nothing to lay out");
    if (status == CKPT_OK)
        status = find_way(l);
    if (status == CKPT_OK)
        status = ckpt__migration_note(
            l->m, CKPT_SEVERITY_NOTE, "layout", (ckpt_str){NULL, 0}, l->err, "%s: from %s to %s", l->m->options.layout,
            ckpt__layout_side(l->layout, l->match->from), ckpt__layout_side(l->layout, 1 - l->match->from));
    for (size_t i = 0; status == CKPT_OK && i < l->match->count; i++)
        status = ckpt__laying_check_drop(l, &l->match->uses[i]);
    for (size_t i = 0; status == CKPT_OK && i < l->match->count; i++)
        status = ckpt__laying_use(l, &l->match->uses[i]);
    for (size_t i = 0; status == CKPT_OK && i < l->match->tie_count; i++)
        status = ckpt__laying_tie(l, &l->match->ties[i]);
    if (status == CKPT_OK)
        status = ckpt__laying_groups(l);
    return status == CKPT_OK ? become_canonical(l) : status;
}

void ckpt__followed_free(ckpt__followed *followed)
{
    if (!followed)
        return;
    ckpt__layout_match_free(followed->match);
    ckpt__layout_free(followed->layout);
    free(followed->ties);
    free(followed);
}

ckpt_status ckpt__migrate_layout(ckpt__migration *m, ckpt_error *err)
{
    ckpt__laying l = {.m = m, .err = err};
    if (m->same)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "--to same keeps the files of the source's program: with --layout say --to ckpt, torch, "
                          "safetensors, ...");
    if (m->options.salvage)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "--salvage and --layout are two steps: salvage first, and lay out what it has kept");
    l.arena = ckpt__arena_new(0);
    ckpt_status status = l.arena ? lay_out(&l) : ckpt__migration_no_memory(err);
    if (status == CKPT_OK && !(m->followed = calloc(1, sizeof *m->followed)))
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK) { /* what it says of ranks is asked for once the target is described */
        *m->followed = (ckpt__followed){l.layout, l.match, l.ties, l.tie_count};
    } else {
        free(l.ties);
        ckpt__layout_match_free(l.match);
        ckpt__layout_free(l.layout);
    }
    ckpt__hash_free(l.by_name);
    ckpt__hash_free(l.by_weight);
    ckpt__arena_free(l.arena);
    free(l.names);
    free(l.items_of);
    free(l.items);
    return status;
}
