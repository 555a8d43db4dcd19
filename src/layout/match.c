/* layout/match.c - which rule has which names, and what becomes of them. */
#include "layout/parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The work of ckpt__layout_match_names. Uses and their inputs are found by a key: the rule's number, and what its names capture. */
typedef struct matching {
    ckpt__layout_match *m;
    const ckpt__layout_name *names;
    size_t count;
    size_t *numbers;                          /* heap, CKPT__LAYOUT_OVER a name: where it is in its stack */
    ckpt__hash *by_name, *by_key, *by_output; /* name -> input; key -> use; name -> use */
    size_t *used;                             /* heap, one a rule: how many uses */
    bool vars_alone;                          /* the rules are not asked */
    bool states;                              /* a name has the part STATES */
    size_t wrong;
    ckpt_report *report;
    ckpt_error *err;
    ckpt_status status;
} matching;

static void no_memory(matching *x)
{
    if (x->status == CKPT_OK)
        x->status = ckpt__fail_memory(x->err, x->m->layout->name, 0);
}

static void wrong(matching *x, size_t line, size_t column, const char *format, ...) CKPT__PRINTF(4, 5);
static void wrong(matching *x, size_t line, size_t column, const char *format, ...)
{
    char text[900], shown[1200], where[80] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (line)
        snprintf(where, sizeof where, "line %zu, column %zu: ", line, column);
    ckpt__escape(shown, sizeof shown, text, strlen(text));
    x->wrong++;
    if (!ckpt__report_add(x->report, CKPT_SEVERITY_ERROR, "layout-wrong", NULL, NULL, "%s%s", where, shown))
        no_memory(x);
}

static const char *side_of(const matching *x, unsigned side)
{
    return x->m->layout->sides[side].data;
}

/* ---- variables */

static size_t var_at(const ckpt__layout *layout, ckpt_str name)
{
    size_t v = 0;
    while (v < layout->var_count && !ckpt__str_equal(layout->vars[v].name, name))
        v++;
    return v;
}

bool ckpt__layout_value(const void *ctx, ckpt_str name, int64_t *out, char *why, size_t size)
{
    const ckpt__layout_match *m = ctx;
    const size_t v = var_at(m->layout, name);
    if (v < m->layout->var_count && m->known[v]) {
        *out = m->values[v];
        return true;
    }
    const ckpt__layout_var *var = v < m->layout->var_count ? &m->layout->vars[v] : NULL;
    const char *tensor = var && var->tensor[m->from].data ? var->tensor[m->from].data : NULL;
    snprintf(why, size, "the value of '%.*s' is unknown%s%s; say --var %.*s=NUMBER", (int)name.size, name.data,
             tensor ? ": the source has no such dimension of " : "", tensor ? tensor : "", (int)name.size, name.data);
    return false;
}

static void find_var(matching *x, size_t v)
{
    const ckpt__layout_var *var = &x->m->layout->vars[v];
    const ckpt_str tensor = var->tensor[x->m->from];
    char why[300];
    size_t at;
    if (var->formula.count) {
        x->m->known[v] = ckpt__formula_eval(&var->formula, ckpt__layout_value, x->m, &x->m->values[v], why, sizeof why);
        if (!x->m->known[v] && !strstr(why, "is unknown"))
            wrong(x, var->line, var->column, "%s = %s: %s", var->name.data, var->formula.text.data, why);
    } else if (tensor.data && ckpt__hash_get(x->by_name, tensor.data, tensor.size, &at) &&
               var->dim[x->m->from] < x->names[at].ndim) {
        x->m->known[v] = true;
        x->m->values[v] = x->names[at].shape[var->dim[x->m->from]];
    }
}

static void find_vars(matching *x, const char *const *said, size_t said_count)
{
    const ckpt__layout *layout = x->m->layout;
    for (size_t i = 0; i < said_count; i++) {
        const char *equals = strchr(said[i], '=');
        const ckpt_str name = {said[i], equals ? (size_t)(equals - said[i]) : strlen(said[i])};
        int64_t value;
        if (!equals || !ckpt__parse_i64(equals + 1, strlen(equals + 1), &value) || value < 0)
            wrong(x, 0, 0, "--var %s: NAME=NUMBER is expected, and the number is 0 or more", said[i]);
        else if (var_at(layout, name) == layout->var_count)
            wrong(x, 0, 0, "--var %s: the layout has no variable '%.*s'", said[i], (int)name.size, name.data);
    }
    for (size_t v = 0; v < layout->var_count; v++) {
        const ckpt__layout_var *var = &layout->vars[v];
        find_var(x, v);
        for (size_t i = 0; i < said_count; i++) {
            int64_t value;
            if (strncmp(said[i], var->name.data, var->name.size) != 0 || said[i][var->name.size] != '=' ||
                !ckpt__parse_i64(said[i] + var->name.size + 1, strlen(said[i] + var->name.size + 1), &value) ||
                value < 0)
                continue;
            if (x->m->known[v] && x->m->values[v] != value)
                wrong(x, var->line, var->column, "--var %s: %s is %lld in this checkpoint", said[i], var->name.data,
                      (long long)x->m->values[v]);
            x->m->known[v] = true;
            x->m->values[v] = value;
        }
    }
}

/* ---- uses */

static void make_key(const ckpt__layout *layout, size_t rule, ckpt__layout_part part, const ckpt__name_form *first,
                     const ckpt__captured *with, ckpt__buf *key)
{
    key->size = 0;
    ckpt__buf_printf(key, "%zu %d", rule, (int)part);
    for (size_t i = 0; i < first->count; i++)
        for (size_t k = 0; first->parts[i].kind != CKPT__LITERAL && k < with->count; k++)
            if (ckpt__str_equal(with->name[k], first->parts[i].text) &&
                !ckpt__layout_is_over(&layout->rules[rule], with->name[k])) {
                ckpt__buf_char(key, '\n');
                ckpt__buf_add(key, with->text[k].data, with->text[k].size);
            }
}

static ckpt__layout_use *new_use(matching *x, size_t rule, size_t room)
{
    ckpt__layout_match *m = x->m;
    if (!ckpt__grow(&m->uses, &m->capacity, m->count + 1, sizeof *m->uses))
        return NULL;
    ckpt__layout_use *use = &m->uses[m->count];
    *use = (ckpt__layout_use){.rule = rule, .inputs = ckpt__arena_array(m->arena, room, sizeof *use->inputs)};
    if (!use->inputs)
        return NULL;
    for (size_t i = 0; i < room; i++)
        use->inputs[i] = SIZE_MAX;
    use->input_count = room;
    m->count++;
    x->used[rule]++;
    return use;
}

/* A stack's inputs come in any order, and as many as there are: they are put in order when all are known (order_stack). */
static bool put_stacked(matching *x, ckpt__layout_use *use, const ckpt__captured *with, size_t input)
{
    const ckpt__layout_rule *r = &x->m->layout->rules[use->rule];
    const size_t n = use->input_count;
    for (size_t d = 0; d < r->joins->over_count; d++)
        for (size_t k = 0; k < with->count; k++) {
            int64_t number = 0;
            if (!ckpt__str_equal(with->name[k], r->joins->over[d]))
                continue;
            ckpt__parse_i64(with->text[k].data, with->text[k].size, &number); /* 18 digits at most */
            x->numbers[input * CKPT__LAYOUT_OVER + d] = (size_t)number;
        }
    if ((n & (n - 1)) == 0) { /* there is room for the next power of two */
        size_t *inputs = ckpt__arena_array(x->m->arena, n ? 2 * n : 1, sizeof *inputs);
        if (!inputs)
            return false;
        if (n)
            memcpy(inputs, use->inputs, n * sizeof *inputs);
        use->inputs = inputs;
    }
    use->inputs[use->input_count++] = input;
    return true;
}

static bool put_input(matching *x, size_t rule, size_t member, const ckpt__captured *with, size_t input, ckpt__buf *key)
{
    const ckpt__layout_rule *r = &x->m->layout->rules[rule];
    const ckpt__rule_names *side = &r->side[x->m->from];
    const bool stack = ckpt__layout_has_many(r, x->m->from);
    size_t at;
    make_key(x->m->layout, rule, x->names[input].part, &side->forms[0], with, key);
    char *kept = key->failed ? NULL : ckpt__arena_copy(x->m->arena, key->data, key->size);
    int put = kept ? ckpt__hash_put(x->by_key, kept, key->size, x->m->count, &at) : -1;
    if (put < 0)
        return false;
    if (put == 1 && !new_use(x, rule, stack ? 0 : side->count))
        return false;
    ckpt__layout_use *use = &x->m->uses[put == 1 ? x->m->count - 1 : at];
    if (stack)
        return put_stacked(x, use, with, input);
    use->inputs[member] = input;
    return true;
}

static bool is_set(const matching *x, size_t var)
{
    return var && x->m->known[var - 1] && x->m->values[var - 1] != 0;
}

/* Is the rule one that counts here, by its conditions? */
static bool counts(const matching *x, const ckpt__layout_rule *r)
{
    return (!r->when || is_set(x, r->when)) && !is_set(x, r->unless);
}

static void match_name(matching *x, size_t input, ckpt__buf *key)
{
    const ckpt__layout *layout = x->m->layout;
    const ckpt_str name = x->names[input].name;
    const ckpt__layout_part part = x->names[input].part;
    size_t found = SIZE_MAX, member = 0;
    ckpt__captured with = {.count = 0}, now;
    for (size_t r = 0; r < layout->rule_count && x->status == CKPT_OK; r++)
        for (size_t i = 0; i < layout->rules[r].side[x->m->from].count; i++) {
            if (!counts(x, &layout->rules[r]) || (layout->rules[r].part && layout->rules[r].part != part))
                continue;
            if (!ckpt__name_form_match(&layout->rules[r].side[x->m->from].forms[i], name, &now))
                continue;
            if (found != SIZE_MAX) {
                wrong(x, layout->rules[r].line, layout->rules[r].column,
                      "'%.*s' is a name of this rule, and of that in line %zu: one rule has it, and no other",
                      (int)name.size, name.data, layout->rules[found].line);
                return;
            }
            found = r;
            member = i;
            with = now;
        }
    if (found == SIZE_MAX) {
        x->m->unmatched++;
        wrong(x, 0, 0, "no rule has %s '%.*s' of side %s",
              part == CKPT__PART_STATES ? "the optimizer's states of" : "the name", (int)name.size, name.data,
              side_of(x, x->m->from));
    } else if (!put_input(x, found, member, &with, input, key))
        no_memory(x);
}

/* ---- outputs */

/* A name of a stack, and where it is in it. */
typedef struct placed {
    size_t at[CKPT__LAYOUT_OVER], input;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    for (size_t d = 0; d < CKPT__LAYOUT_OVER; d++)
        if (x->at[d] != y->at[d])
            return x->at[d] < y->at[d] ? -1 : 1;
    return 0;
}

/* The names of a stack in their order, its last number the fastest; which is missing among them, if any. */
static bool check_places(matching *x, ckpt__layout_use *use, const placed *all)
{
    const ckpt__layout_rule *r = &x->m->layout->rules[use->rule];
    const size_t n = use->input_count;
    size_t last = 1; /* along the last dimension, where there are two */
    char missing[60];
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < r->joins->over_count; d++) {
            const size_t number = all[i].at[d];
            if (number >= x->count) { /* there are fewer tensors, so that one below it is missing */
                const ckpt_str name = x->names[all[i].input].name;
                wrong(x, r->line, r->column, "'%.*s' has number %zu, and not all below it are there", (int)name.size,
                      name.data, number);
                return false;
            }
            use->grid[d] = number + 1 > use->grid[d] ? number + 1 : use->grid[d];
        }
    if (r->joins->over_count > 1)
        last = use->grid[1];
    for (size_t i = 0; i < use->grid[0] * last; i++) { /* what is missing first is not past n */
        const size_t want[2] = {i / last, i % last};
        if (i < n && all[i].at[0] == want[0] && (r->joins->over_count == 1 || all[i].at[1] == want[1]))
            continue;
        if (r->joins->over_count == 1)
            snprintf(missing, sizeof missing, "number %zu", want[0]);
        else
            snprintf(missing, sizeof missing, "numbers %zu and %zu", want[0], want[1]);
        const ckpt_str name = x->names[all[0].input].name;
        wrong(x, r->line, r->column, "'%.*s' is there, and the one with %s is not", (int)name.size, name.data, missing);
        return false;
    }
    return true;
}

static bool order_stack(matching *x, ckpt__layout_use *use)
{
    placed *all = malloc((use->input_count + 1) * sizeof *all);
    if (!all) {
        no_memory(x);
        return false;
    }
    for (size_t i = 0; i < use->input_count; i++) {
        all[i].input = use->inputs[i];
        memcpy(all[i].at, x->numbers + use->inputs[i] * CKPT__LAYOUT_OVER, sizeof all[i].at);
    }
    qsort(all, use->input_count, sizeof *all, by_place);
    const bool complete = check_places(x, use, all);
    for (size_t i = 0; i < use->input_count; i++)
        use->inputs[i] = all[i].input;
    free(all);
    return complete;
}

/* All inputs of a use are there? */
static bool is_complete(matching *x, ckpt__layout_use *use)
{
    const ckpt__layout_rule *r = &x->m->layout->rules[use->rule];
    const ckpt__rule_names *side = &r->side[x->m->from];
    size_t there = SIZE_MAX;
    if (ckpt__layout_has_many(r, x->m->from))
        return order_stack(x, use);
    for (size_t i = 0; i < use->input_count; i++)
        if (use->inputs[i] != SIZE_MAX)
            there = use->inputs[i];
    for (size_t i = 0; i < use->input_count && there != SIZE_MAX; i++) {
        if (use->inputs[i] != SIZE_MAX)
            continue;
        const ckpt_str form = side->forms[i].text, name = x->names[there].name;
        wrong(x, r->line, r->column, "'%.*s' is there, and its '%.*s' is not", (int)name.size, name.data,
              (int)form.size, form.data);
        return false;
    }
    return there != SIZE_MAX;
}

/* How many tensors a use makes. */
static bool count_outputs(matching *x, ckpt__layout_use *use, size_t *out)
{
    const ckpt__layout_rule *r = &x->m->layout->rules[use->rule];
    *out = r->side[1 - x->m->from].count;
    if (!ckpt__layout_has_many(r, 1 - x->m->from))
        return true;
    const ckpt__layout_name *n = &x->names[use->inputs[0]];
    ckpt_error own = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__layout_stacked(x->m, use->rule, n, use->grid, &own);
    if (status == CKPT_E_NO_MEMORY)
        no_memory(x);
    else if (status < 0)
        wrong(x, r->line, r->column, "'%.*s': %s", (int)n->name.size, n->name.data, own.message);
    *out = use->grid[0] * (r->joins->over_count > 1 ? use->grid[1] : 1);
    return status == CKPT_OK;
}

static bool name_output(matching *x, size_t number, size_t k, ckpt__captured *with, ckpt__buf *text)
{
    ckpt__layout_use *use = &x->m->uses[number];
    const ckpt__layout_rule *r = &x->m->layout->rules[use->rule];
    const ckpt__rule_names *side = &r->side[1 - x->m->from];
    const bool cuts = ckpt__layout_has_many(r, 1 - x->m->from);
    char index[CKPT__LAYOUT_OVER][24];
    size_t other;
    ckpt__captured all = *with;
    for (size_t d = 0; cuts && d < r->joins->over_count;
         d++) { /* eight captures at most are on that side, these among them */
        const size_t last = r->joins->over_count > 1 ? use->grid[1] : 1, at = d ? k % last : k / last;
        all.name[all.count] = r->joins->over[d];
        all.text[all.count++] = (ckpt_str){index[d], (size_t)snprintf(index[d], sizeof index[d], "%zu", at)};
    }
    text->size = 0;
    ckpt__name_form_fill(&side->forms[cuts ? 0 : k], &all, text);
    const bool states = x->names[use->inputs[0]].part == CKPT__PART_STATES;
    use->outputs[k] = text->failed ? (ckpt_str){0} : ckpt__arena_str(x->m->arena, text->data, text->size);
    ckpt_str made = use->outputs[k];
    if (states && made.data) /* weights of that name may come of another rule */
        made = ckpt__arena_join(x->m->arena, ckpt__s("states of "), made, (ckpt_str){"", 0});
    int put = made.data ? ckpt__hash_put(x->by_output, made.data, made.size, number, &other) : -1;
    if (put == 0)
        wrong(x, r->line, r->column, "'%.*s' would be made twice: also by the rule in line %zu",
              (int)use->outputs[k].size, use->outputs[k].data, x->m->layout->rules[x->m->uses[other].rule].line);
    return put >= 0;
}

static void make_outputs(matching *x, size_t number)
{
    ckpt__layout_use *use = &x->m->uses[number];
    const ckpt__layout_rule *r = &x->m->layout->rules[use->rule];
    const ckpt__rule_names *side = &r->side[x->m->from];
    size_t count = 0;
    ckpt__captured with = {.count = 0};
    ckpt__buf text = {0};
    if (r->drops || !is_complete(x, use) || !count_outputs(x, use, &count))
        return;
    use->outputs = ckpt__arena_array(x->m->arena, count + 1, sizeof *use->outputs);
    use->output_count = count;
    bool fine = use->outputs && ckpt__name_form_match(&side->forms[0], x->names[use->inputs[0]].name, &with);
    for (size_t k = 0; fine && k < count; k++)
        fine = name_output(x, number, k, &with, &text);
    if (!fine)
        no_memory(x);
    ckpt__buf_free(&text);
}

static void find_ties(matching *x)
{
    const ckpt__layout *layout = x->m->layout;
    for (size_t i = 0; i < layout->tie_count; i++) {
        const ckpt__layout_tied *t = &layout->ties[i];
        size_t use, k = 0;
        if (t->side == x->m->from || ckpt__hash_get(x->by_output, t->name.data, t->name.size, NULL) ||
            !ckpt__hash_get(x->by_output, t->of.data, t->of.size, &use))
            continue;
        while (!ckpt__str_equal(x->m->uses[use].outputs[k], t->of))
            k++;
        if (!ckpt__grow(&x->m->ties, &x->m->tie_capacity, x->m->tie_count + 1, sizeof *x->m->ties)) {
            no_memory(x);
            return;
        }
        x->m->ties[x->m->tie_count++] = (ckpt__layout_tie){t->name, use, k};
    }
}

/* ---- all of it */

static void match_all(matching *x, const char *const *vars, size_t var_count)
{
    const ckpt__layout *layout = x->m->layout;
    ckpt__buf key = {0};
    for (size_t i = 0; i < x->count && x->status == CKPT_OK; i++) {
        x->states |= x->names[i].part == CKPT__PART_STATES;
        if (ckpt__hash_put(x->by_name, x->names[i].name.data, x->names[i].name.size, i, NULL) < 0)
            no_memory(x);
    }
    if (x->status == CKPT_OK)
        find_vars(x, vars, var_count);
    if (x->vars_alone)
        return;
    for (size_t i = 0; i < x->count && x->status == CKPT_OK; i++)
        match_name(x, i, &key);
    ckpt__buf_free(&key);
    for (size_t i = 0; i < x->m->count && x->status == CKPT_OK; i++)
        make_outputs(x, i);
    for (size_t r = 0; r < layout->rule_count && x->status == CKPT_OK; r++)
        if (!x->used[r] && !layout->rules[r].optional && !layout->rules[r].drops && counts(x, &layout->rules[r]) &&
            (x->states || layout->rules[r].part != CKPT__PART_STATES) && layout->rules[r].side[x->m->from].count)
            wrong(x, layout->rules[r].line, layout->rules[r].column,
                  "no tensor has the name '%s' of side %s (a rule that may be without one has 'optional: true')",
                  layout->rules[r].side[x->m->from].forms[0].text.data, side_of(x, x->m->from));
    if (x->status == CKPT_OK)
        find_ties(x);
}

static ckpt_status match(const ckpt__layout *layout, unsigned from, matching x, const char *const *vars,
                         size_t var_count, ckpt__layout_match **out)
{
    const size_t count = x.count;
    ckpt__layout_match *m = x.m = *out = calloc(1, sizeof *m);
    if (m && (m->arena = ckpt__arena_new(0))) {
        m->layout = layout;
        m->from = from;
        m->values = ckpt__arena_array(m->arena, layout->var_count + 1, sizeof *m->values);
        m->known = ckpt__arena_array(m->arena, layout->var_count + 1, sizeof *m->known);
        x.by_name = ckpt__hash_new(count);
        x.by_key = ckpt__hash_new(count);
        x.by_output = ckpt__hash_new(count);
        x.used = calloc(layout->rule_count + 1, sizeof *x.used);
        x.numbers = calloc(count + 1, CKPT__LAYOUT_OVER * sizeof *x.numbers);
    }
    if (m && m->values && m->known && x.by_name && x.by_key && x.by_output && x.used && x.numbers)
        match_all(&x, vars, var_count);
    else
        x.status = ckpt__fail_memory(x.err, layout->name, 0);
    ckpt__hash_free(x.by_name);
    ckpt__hash_free(x.by_key);
    ckpt__hash_free(x.by_output);
    free(x.used);
    free(x.numbers);
    if (x.status == CKPT_OK && x.wrong)
        x.status = ckpt__report_fail(x.report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, layout->name, x.err);
    if (x.status < 0 && !x.wrong) {
        ckpt__layout_match_free(m);
        *out = NULL;
    }
    return x.status;
}

ckpt_status ckpt__layout_match_names(const ckpt__layout *layout, unsigned from, const ckpt__layout_name *names,
                                     size_t count, const char *const *vars, size_t var_count, ckpt_report *report,
                                     ckpt__layout_match **out, ckpt_error *err)
{
    const matching x = {.names = names, .count = count, .report = report, .err = err};
    return match(layout, from, x, vars, var_count, out);
}

ckpt_status ckpt__layout_match_vars(const ckpt__layout *layout, unsigned from, const ckpt__layout_name *names,
                                    size_t count, const char *const *vars, size_t var_count, ckpt_report *report,
                                    ckpt__layout_match **out, ckpt_error *err)
{
    const matching x = {.names = names, .count = count, .report = report, .err = err, .vars_alone = true};
    return match(layout, from, x, vars, var_count, out);
}

void ckpt__layout_match_free(ckpt__layout_match *m)
{
    if (!m)
        return;
    ckpt__arena_free(m->arena);
    free(m->uses);
    free(m->ties);
    free(m);
}
