/* layout/layout_yaml.c - the YAML of a layout. Everything that is wrong is found in one reading. */
#include "layout/parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what is wrong */

void ckpt__layout_no_memory(ckpt__layout_reading *r)
{
    if (r->status == CKPT_OK)
        r->status = ckpt__fail_memory(r->err, r->layout->name, 0);
}

void ckpt__layout_wrong(ckpt__layout_reading *r, const ckpt__yaml_node *at, const char *format, ...)
{
    char text[500], shown[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ckpt__escape(shown, sizeof shown, text, strlen(text));
    r->wrong++;
    if (!ckpt__report_add(r->report, CKPT_SEVERITY_ERROR, "layout-wrong", NULL, NULL, "line %zu, column %zu: %s",
                          at->line, at->column, shown))
        ckpt__layout_no_memory(r);
}

/* ---- parts that several keys have */

ckpt_str ckpt__layout_keep(ckpt__layout_reading *r, ckpt_str text)
{
    ckpt_str kept = ckpt__arena_str(r->layout->arena, text.data, text.size);
    if (!kept.data)
        ckpt__layout_no_memory(r);
    return kept;
}

bool ckpt__layout_read_map(ckpt__layout_reading *r, const ckpt__yaml_node *n, const char *what,
                           const char *const *known)
{
    char all[300] = "";
    size_t used = 0;
    if (n->kind != CKPT__YAML_MAP) {
        ckpt__layout_wrong(r, n, "%s is %s, and a map is expected", what, ckpt__yaml_kind_name(n->kind));
        return false;
    }
    for (size_t k = 0; known[k] && used < sizeof all; k++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", k ? ", " : "", known[k]);
    for (size_t i = 0; i < n->count; i++) {
        size_t k = 0;
        while (known[k] && !ckpt__str_is(n->keys[i]->text, known[k]))
            k++;
        if (!known[k])
            ckpt__layout_wrong(r, n->keys[i], "there is no key '%.*s' here; there are %s",
                               (int)(n->keys[i]->text.size < 80 ? n->keys[i]->text.size : 80), n->keys[i]->text.data,
                               all);
    }
    return true;
}

bool ckpt__layout_read_formula(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__formula *out)
{
    size_t at = 0;
    const char *what = NULL;
    if (n->kind != CKPT__YAML_SCALAR) {
        ckpt__layout_wrong(r, n, "%s stands here, and an expression is expected", ckpt__yaml_kind_name(n->kind));
        return false;
    }
    if (!ckpt__formula_parse(r->layout->arena, n->text, out, &at, &what)) {
        if (what)
            ckpt__layout_wrong(r, n, "'%.*s', character %zu: %s", (int)(n->text.size < 100 ? n->text.size : 100),
                               n->text.data, at + 1, what);
        else
            ckpt__layout_no_memory(r);
        return false;
    }
    bool fine = true;
    for (size_t i = 0; i < out->count; i++) {
        size_t v = 0;
        while (out->ops[i].code == 'v' && v < r->layout->var_count &&
               !ckpt__str_equal(out->ops[i].name, r->layout->vars[v].name))
            v++;
        if (out->ops[i].code != 'v' || v < r->layout->var_count)
            continue;
        fine = false;
        ckpt__layout_wrong(r, n, "there is no variable '%.*s' (a variable is listed in 'vars', before it is used)",
                           (int)(out->ops[i].name.size < 80 ? out->ops[i].name.size : 80), out->ops[i].name.data);
    }
    return fine;
}

bool ckpt__layout_read_formulas(ckpt__layout_reading *r, const ckpt__yaml_node *n, const char *what, size_t least,
                                ckpt__formula **out, size_t *count)
{
    if (n->kind != CKPT__YAML_LIST || n->count < least || n->count > CKPT__LAY_DIMS) {
        ckpt__layout_wrong(r, n, "a list of %zu to %d %s is expected", least, (int)CKPT__LAY_DIMS, what);
        return false;
    }
    *out = ckpt__arena_array(r->layout->arena, n->count + 1, sizeof **out);
    if (!*out) {
        ckpt__layout_no_memory(r);
        return false;
    }
    *count = n->count;
    bool fine = true;
    for (size_t i = 0; i < n->count; i++)
        fine = ckpt__layout_read_formula(r, n->items[i], &(*out)[i]) && fine;
    return fine;
}

bool ckpt__layout_read_dim(ckpt__layout_reading *r, const ckpt__yaml_node *n, uint32_t *out)
{
    int64_t v;
    if (n->kind == CKPT__YAML_SCALAR && ckpt__parse_i64(n->text.data, n->text.size, &v) && v >= 0 &&
        v < CKPT__LAY_DIMS) {
        *out = (uint32_t)v;
        return true;
    }
    ckpt__layout_wrong(r, n, "the number of a dimension is expected: 0, 1, ... %d", (int)CKPT__LAY_DIMS - 1);
    return false;
}

bool ckpt__layout_read_flag(ckpt__layout_reading *r, const ckpt__yaml_node *n)
{
    if (n && (n->kind != CKPT__YAML_SCALAR || (!ckpt__str_is(n->text, "true") && !ckpt__str_is(n->text, "false"))))
        ckpt__layout_wrong(r, n, "true or false is expected");
    return n && n->kind == CKPT__YAML_SCALAR && ckpt__str_is(n->text, "true");
}

/* ---- sides */

const ckpt__yaml_node *ckpt__layout_on_side(const ckpt__layout *layout, const ckpt__yaml_node *map, unsigned side)
{
    for (size_t i = 0; layout->sides[side].data && i < map->count; i++)
        if (ckpt__str_equal(map->keys[i]->text, layout->sides[side]))
            return map->items[i];
    return NULL;
}

static void read_sides(ckpt__layout_reading *r, const ckpt__yaml_node *root)
{
    static const char *const words[] = {"steps", "optional", "drop", "shape", "of", NULL};
    const ckpt__yaml_node *n = ckpt__yaml_get(root, "sides");
    if (!n || n->kind != CKPT__YAML_LIST || n->count == 0 || n->count > 2) {
        ckpt__layout_wrong(r, n ? n : root,
                           "'sides' is expected, a list of two names: [hf, mine], or of one whose 'ranks' have files");
        return;
    }
    for (unsigned i = 0; i < n->count; i++) {
        const ckpt__yaml_node *name = n->items[i];
        bool taken = false;
        for (size_t k = 0; words[k]; k++)
            taken = taken || ckpt__str_is(name->text, words[k]);
        if (name->kind != CKPT__YAML_SCALAR || !ckpt__formula_is_name(name->text) || taken)
            ckpt__layout_wrong(r, name, "the name of a side is a letter or _, and then letters, digits and _%s",
                               taken ? "; a rule has this word as a key" : "");
        r->layout->sides[i] = ckpt__layout_keep(r, name->text);
    }
    if (n->count == 2 && ckpt__str_equal(r->layout->sides[0], r->layout->sides[1]))
        ckpt__layout_wrong(r, n, "both sides have one name");
}

/* ---- variables */

static void read_var_shape(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_var *v)
{
    const char *const known[] = {r->layout->sides[0].data, r->layout->sides[1].data, NULL};
    if (!ckpt__layout_read_map(r, n, "the variable", known))
        return;
    for (unsigned side = 0; side < 2; side++) {
        const ckpt__yaml_node *at = ckpt__layout_on_side(r->layout, n, side);
        if (!at)
            continue;
        if (at->kind != CKPT__YAML_LIST || at->count != 2 || at->items[0]->kind != CKPT__YAML_SCALAR) {
            ckpt__layout_wrong(r, at, "[name of a tensor, number of a dimension] is expected");
            continue;
        }
        v->tensor[side] = ckpt__layout_keep(r, at->items[0]->text);
        ckpt__layout_read_dim(r, at->items[1], &v->dim[side]);
    }
}

static void read_vars(ckpt__layout_reading *r, const ckpt__yaml_node *n)
{
    if (!n)
        return;
    if (n->kind != CKPT__YAML_MAP) {
        ckpt__layout_wrong(r, n, "'vars' is %s, and a map is expected", ckpt__yaml_kind_name(n->kind));
        return;
    }
    r->layout->vars = ckpt__arena_array(r->layout->arena, n->count + 1, sizeof *r->layout->vars);
    if (!r->layout->vars) {
        ckpt__layout_no_memory(r);
        return;
    }
    for (size_t i = 0; i < n->count; i++) {
        ckpt__layout_var *v = &r->layout->vars[i];
        const ckpt__yaml_node *value = n->items[i];
        *v = (ckpt__layout_var){.line = n->keys[i]->line, .column = n->keys[i]->column};
        if (!ckpt__formula_is_name(n->keys[i]->text) || ckpt__str_is(n->keys[i]->text, "given"))
            ckpt__layout_wrong(r, n->keys[i],
                               "the name of a variable is a letter or _, and then letters, digits and _; not 'given'");
        v->name = ckpt__layout_keep(r, n->keys[i]->text);
        if (value->kind == CKPT__YAML_MAP)
            read_var_shape(r, value, v);
        else if (value->kind == CKPT__YAML_SCALAR && ckpt__str_is(value->text, "given"))
            v->given = true;
        else
            ckpt__layout_read_formula(r, value, &v->formula);
        r->layout->var_count = i + 1; /* a later one may use it */
    }
}

/* ---- rules */

static void read_form(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__name_form *out)
{
    size_t at = 0;
    const char *what = NULL;
    if (n->kind != CKPT__YAML_SCALAR)
        ckpt__layout_wrong(r, n, "%s stands here, and the name of a tensor is expected", ckpt__yaml_kind_name(n->kind));
    else if (!ckpt__name_form_parse(r->layout->arena, n->text, out, &at, &what)) {
        if (what)
            ckpt__layout_wrong(r, n, "'%.*s', character %zu: %s", (int)(n->text.size < 100 ? n->text.size : 100),
                               n->text.data, at + 1, what);
        else
            ckpt__layout_no_memory(r);
    }
}

void ckpt__layout_read_names(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__rule_names *out)
{
    const bool list = n->kind == CKPT__YAML_LIST;
    const size_t count = list ? n->count : 1;
    if (count == 0 || count > CKPT__LAYOUT_MEMBERS) {
        ckpt__layout_wrong(r, n, "1 to %d names are expected", (int)CKPT__LAYOUT_MEMBERS);
        return;
    }
    out->forms = ckpt__arena_array(r->layout->arena, count, sizeof *out->forms);
    if (!out->forms) {
        ckpt__layout_no_memory(r);
        return;
    }
    out->count = count;
    for (size_t i = 0; i < count; i++)
        read_form(r, list ? n->items[i] : n, &out->forms[i]);
}

bool ckpt__layout_is_over(const ckpt__layout_rule *rule, ckpt_str capture)
{
    for (size_t i = 0; rule->joins && i < rule->joins->over_count; i++)
        if (ckpt__str_equal(rule->joins->over[i], capture))
            return true;
    return false;
}

bool ckpt__layout_has_many(const ckpt__layout_rule *rule, unsigned side)
{
    return rule->joins && rule->joins->kind == CKPT__STEP_STACK && rule->many == side;
}

static bool captures_number(const ckpt__name_form *form, ckpt_str name)
{
    for (size_t k = 0; k < form->count; k++)
        if (form->parts[k].kind == CKPT__NUMBER && ckpt__str_equal(form->parts[k].text, name))
            return true;
    return false;
}

/* The side whose name captures the numbers of a stack has the tensors that are one on the other side. */
static void find_many(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule)
{
    const ckpt__step *s = rule->joins;
    if (rule->side[0].count != 1 || rule->side[1].count != 1) {
        ckpt__layout_wrong(r, n, "a stack has one name on each side");
        return;
    }
    for (unsigned side = 0; side < 2; side++) {
        size_t has = 0, lacks = 0;
        for (size_t i = 0; i < s->over_count; i++) {
            has += captures_number(&rule->side[side].forms[0], s->over[i]);
            lacks += !ckpt__name_form_has(&rule->side[1 - side].forms[0], s->over[i]);
        }
        if (has == s->over_count && lacks == has) {
            rule->many = side;
            return;
        }
    }
    ckpt__layout_wrong(r, n, "a stack's 'over' is a number that the name of one side captures, and the other not");
}

/* Each name of a rule has the same captures, so that it can be made of any other one. A stack's is on one side alone. */
static void check_captures(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule)
{
    const ckpt__name_form *first = &rule->side[0].forms[0];
    const size_t before = r->wrong, over = rule->joins ? rule->joins->over_count : 0;
    if (over)
        find_many(r, n, rule);
    if (r->wrong != before)
        return;
    const size_t base = first->captures - (ckpt__layout_has_many(rule, 0) ? over : 0);
    for (unsigned side = 0; side < 2; side++)
        for (size_t i = 0; i < rule->side[side].count; i++) {
            const ckpt__name_form *f = &rule->side[side].forms[i];
            for (size_t k = 0; k < f->count; k++) {
                const ckpt_str name = f->parts[k].text;
                if (f->parts[k].kind == CKPT__LITERAL || ckpt__name_form_has(side || i ? first : f, name) ||
                    ckpt__layout_is_over(rule, name))
                    continue;
                ckpt__layout_wrong(r, n, "the name '%.*s' captures '%.*s', and '%.*s' does not: no name could be made",
                                   (int)f->text.size, f->text.data, (int)name.size, name.data, (int)first->text.size,
                                   first->text.data);
            }
            const size_t want = base + (ckpt__layout_has_many(rule, side) ? over : 0);
            if (f->captures < want)
                ckpt__layout_wrong(r, n, "the name '%.*s' captures %zu part%s, and %zu %s expected", (int)f->text.size,
                                   f->text.data, f->captures, f->captures == 1 ? "" : "s", want,
                                   want == 1 ? "is" : "are");
        }
}

/* A step for some of several tensors stands where they are several. */
static void check_only(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_rule *rule)
{
    const bool joins = rule->side[0].count > 1;
    const size_t count = rule->side[joins ? 0 : 1].count;
    for (size_t i = 0; i < rule->step_count; i++) {
        const ckpt__step *s = &rule->steps[i];
        if (s->only && (!rule->joins || rule->joins->kind != CKPT__STEP_SEGMENTS || (s < rule->joins) != joins))
            ckpt__layout_wrong(r, n,
                               "the step in line %zu has 'only', and stands where there is one tensor: it is for some "
                               "of those that segments join or cut",
                               s->line);
        else if (s->only >> count)
            ckpt__layout_wrong(r, n, "the step in line %zu is for a name that the rule has not: it has %zu, from 0 on",
                               s->line, count);
    }
}

static void check_rule(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule)
{
    const size_t a = rule->side[0].count, b = rule->side[1].count;
    const bool segments = rule->joins && rule->joins->kind == CKPT__STEP_SEGMENTS;
    if (rule->drops) {
        if ((a != 0) == (b != 0) || a + b != 1 || rule->step_count || rule->shape)
            ckpt__layout_wrong(r, n,
                               "a rule that drops has one name, of one side, and no steps: it cannot be taken "
                               "back");
        return;
    }
    if (!a || !b) {
        ckpt__layout_wrong(r, n,
                           "the rule has no name for side %.*s (a tensor that is left out there has 'drop: true')",
                           (int)r->layout->sides[a ? 1 : 0].size, r->layout->sides[a ? 1 : 0].data);
        return;
    }
    if (a > 1 && b > 1)
        ckpt__layout_wrong(r, n, "the rule has several names on both sides: one of them has one name");
    else if ((a > 1 || b > 1) != segments)
        ckpt__layout_wrong(r, n,
                           segments ? "segments are of several tensors: one side has a list of names"
                                    : "the rule has several names on one side: a step 'segments' is expected");
    else if (segments && rule->joins->size_count && rule->joins->size_count != (a > 1 ? a : b))
        ckpt__layout_wrong(r, n, "the segments have %zu sizes, and the rule has %zu names", rule->joins->size_count,
                           a > 1 ? a : b);
    check_only(r, n, rule);
    check_captures(r, n, rule);
}

/* The rule is about weights, or about states. */
static void read_part(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule)
{
    if (!n)
        return;
    if (n->kind == CKPT__YAML_SCALAR && ckpt__str_is(n->text, "weights"))
        rule->part = CKPT__PART_WEIGHTS;
    else if (n->kind == CKPT__YAML_SCALAR && ckpt__str_is(n->text, "states"))
        rule->part = CKPT__PART_STATES;
    else
        ckpt__layout_wrong(r, n, "'part' is 'weights' or 'states'");
}

/* 1 + the number of the variable; 0: there is none, which was said where n is there. */
static size_t read_condition(ckpt__layout_reading *r, const ckpt__yaml_node *n)
{
    for (size_t v = 0; n && n->kind == CKPT__YAML_SCALAR && v < r->layout->var_count; v++)
        if (ckpt__str_equal(r->layout->vars[v].name, n->text))
            return v + 1;
    if (n)
        ckpt__layout_wrong(r, n, "the name of a variable is expected");
    return 0;
}

static void read_rule(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule)
{
    const char *const known[] = {r->layout->sides[0].data,
                                 r->layout->sides[1].data,
                                 "steps",
                                 "shape",
                                 "optional",
                                 "drop",
                                 "part",
                                 "when",
                                 "unless",
                                 NULL};
    const size_t before = r->wrong;
    rule->line = n->line;
    rule->column = n->column;
    if (!ckpt__layout_read_map(r, n, "the rule", known))
        return;
    for (unsigned side = 0; side < 2; side++) {
        const ckpt__yaml_node *names = ckpt__layout_on_side(r->layout, n, side);
        if (names)
            ckpt__layout_read_names(r, names, &rule->side[side]);
    }
    const ckpt__yaml_node *steps = ckpt__yaml_get(n, "steps"), *shape = ckpt__yaml_get(n, "shape");
    if (steps)
        ckpt__layout_read_steps(r, steps, rule);
    if (shape)
        ckpt__layout_read_formulas(r, shape, "sizes", 1, &rule->shape, &rule->shape_count);
    rule->optional = ckpt__layout_read_flag(r, ckpt__yaml_get(n, "optional"));
    rule->drops = ckpt__layout_read_flag(r, ckpt__yaml_get(n, "drop"));
    read_part(r, ckpt__yaml_get(n, "part"), rule);
    rule->when = read_condition(r, ckpt__yaml_get(n, "when"));
    rule->unless = read_condition(r, ckpt__yaml_get(n, "unless"));
    if (r->wrong == before && r->status == CKPT_OK)
        check_rule(r, n, rule);
}

static void read_rules(ckpt__layout_reading *r, const ckpt__yaml_node *root)
{
    const ckpt__yaml_node *n = ckpt__yaml_get(root, "rules");
    if (!n || n->kind != CKPT__YAML_LIST || n->count == 0) {
        ckpt__layout_wrong(r, n ? n : root, "'rules' is expected, a list of one rule or more");
        return;
    }
    r->layout->rules = ckpt__arena_array(r->layout->arena, n->count, sizeof *r->layout->rules);
    if (!r->layout->rules) {
        ckpt__layout_no_memory(r);
        return;
    }
    r->layout->rule_count = n->count;
    for (size_t i = 0; i < n->count && r->status == CKPT_OK; i++)
        read_rule(r, n->items[i], &r->layout->rules[i]);
}

static void read_tie(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_tied *tie)
{
    const char *const known[] = {r->layout->sides[0].data, r->layout->sides[1].data, "of", NULL};
    if (!ckpt__layout_read_map(r, n, "the tie", known))
        return;
    const ckpt__yaml_node *of = ckpt__yaml_get(n, "of"), *a = ckpt__layout_on_side(r->layout, n, 0),
                          *b = ckpt__layout_on_side(r->layout, n, 1);
    const ckpt__yaml_node *name = a ? a : b;
    tie->line = n->line;
    tie->column = n->column;
    tie->side = a ? 0 : 1;
    if (!of || (!a == !b) || of->kind != CKPT__YAML_SCALAR || name->kind != CKPT__YAML_SCALAR || !of->text.size ||
        !name->text.size) {
        ckpt__layout_wrong(r, n, "a tie has the name of a tensor of one side, and 'of', the name of another one there");
        return;
    }
    tie->name = ckpt__layout_keep(r, name->text);
    tie->of = ckpt__layout_keep(r, of->text);
}

static void read_ties(ckpt__layout_reading *r, const ckpt__yaml_node *n)
{
    if (!n)
        return;
    if (n->kind != CKPT__YAML_LIST) {
        ckpt__layout_wrong(r, n, "'ties' is %s, and a list is expected", ckpt__yaml_kind_name(n->kind));
        return;
    }
    r->layout->ties = ckpt__arena_array(r->layout->arena, n->count + 1, sizeof *r->layout->ties);
    if (!r->layout->ties) {
        ckpt__layout_no_memory(r);
        return;
    }
    r->layout->tie_count = n->count;
    for (size_t i = 0; i < n->count && r->status == CKPT_OK; i++)
        read_tie(r, n->items[i], &r->layout->ties[i]);
}

/* ---- all of it */

/* One side alone: names stay as they are, and files of ranks become one checkpoint. */
static void check_alone(ckpt__layout_reading *r, const ckpt__yaml_node *root)
{
    const ckpt__yaml_node *rules = ckpt__yaml_get(root, "rules"), *ties = ckpt__yaml_get(root, "ties");
    if (rules || ties)
        ckpt__layout_wrong(r, rules ? rules : ties,
                           "'%s' leads from one side to the other, and there is one side alone",
                           rules ? "rules" : "ties");
    if (!r->layout->ranks[0].said)
        ckpt__layout_wrong(r, root, "a layout of one side has 'ranks', which say how its files are put together");
    else if (!r->layout->ranks[0].files && r->wrong == 0)
        ckpt__layout_wrong(r, root, "the 'ranks' of a layout of one side have 'files'");
}

static void read_root(ckpt__layout_reading *r, const ckpt__yaml_node *root)
{
    static const char *const known[] = {"layout", "about", "sides", "vars", "rules", "ties", "ranks", NULL};
    if (!ckpt__layout_read_map(r, root, "the document", known))
        return;
    const ckpt__yaml_node *version = ckpt__yaml_get(root, "layout"), *about = ckpt__yaml_get(root, "about");
    if (!version || version->kind != CKPT__YAML_SCALAR || !ckpt__str_is(version->text, "1"))
        ckpt__layout_wrong(r, version ? version : root, "'layout: 1' is expected: the version of this language");
    if (about && about->kind != CKPT__YAML_SCALAR)
        ckpt__layout_wrong(r, about, "'about' is %s, and a text is expected", ckpt__yaml_kind_name(about->kind));
    const size_t before = r->wrong;
    read_sides(r, root);
    if (r->wrong > before || r->status < 0)
        return; /* no rule could be read without them */
    read_vars(r, ckpt__yaml_get(root, "vars"));
    if (r->layout->sides[1].data) {
        read_rules(r, root);
        read_ties(r, ckpt__yaml_get(root, "ties"));
    }
    ckpt__layout_read_ranks(r, ckpt__yaml_get(root, "ranks"));
    if (!r->layout->sides[1].data)
        check_alone(r, root);
}

ckpt_status ckpt__layout_parse(const char *text, size_t size, const char *name, ckpt_report *report, ckpt__layout **out,
                               ckpt_error *err)
{
    ckpt__yaml *yaml = NULL;
    *out = NULL;
    ckpt_status status = ckpt__yaml_parse(text, size, name, &yaml, err);
    if (status < 0)
        return status;
    ckpt__layout *layout = calloc(1, sizeof *layout);
    ckpt__layout_reading r = {.layout = layout, .report = report, .err = err};
    if (layout && (layout->arena = ckpt__arena_new(0)))
        layout->name = ckpt__arena_copy(layout->arena, name, strlen(name));
    if (layout && layout->name)
        read_root(&r, yaml->root);
    else
        r.status = ckpt__fail_memory(err, name, 0);
    ckpt__yaml_free(yaml);
    if (r.status == CKPT_OK && r.wrong)
        r.status = ckpt__report_fail(report, CKPT_SEVERITY_ERROR, CKPT_E_ARGUMENT, name, err);
    if (r.status == CKPT_OK)
        *out = layout;
    else
        ckpt__layout_free(layout);
    return r.status;
}

void ckpt__layout_free(ckpt__layout *layout)
{
    if (!layout)
        return;
    ckpt__arena_free(layout->arena);
    free(layout);
}

const char *ckpt__layout_file(const ckpt__layout *layout)
{
    return layout->name;
}

const char *ckpt__layout_side(const ckpt__layout *layout, unsigned side)
{
    return layout->sides[side].data;
}

bool ckpt__layout_has_parts(const ckpt__layout *layout)
{
    for (size_t i = 0; i < layout->rule_count; i++)
        if (layout->rules[i].part != CKPT__PART_ALL)
            return true;
    return false;
}

bool ckpt__layout_renames(const ckpt__layout *layout, size_t rule)
{
    return layout->rules[rule].step_count == 0;
}

ckpt_str ckpt__layout_tie_of(const ckpt__layout *layout, unsigned side, ckpt_str name)
{
    for (size_t i = 0; i < layout->tie_count; i++)
        if (layout->ties[i].side == side && ckpt__str_equal(layout->ties[i].name, name))
            return layout->ties[i].of;
    return (ckpt_str){NULL, 0};
}
