/* migrate/chain_expect.h - what is expected of a checkpoint of a chain: what the one before it held, but for what the migration said that it
 * loses. */
#ifndef CHAIN_EXPECT_H
#define CHAIN_EXPECT_H
#include "chain_targets.h"

static uint64_t chain_seed;
static size_t chain_faults, chain_looked; /* things that are wrong; tensors and values that were compared */

static inline void say_chain(const stop *s)
{
    const char *names[8];
    size_t n = 0;
    for (const stop *k = s; k && n < 8; k = k->from)
        names[n++] = k->as ? k->as->to : k->path;
    printf("# seed %llu: ", (unsigned long long)chain_seed);
    while (n-- > 0)
        printf("%s%s", names[n], n ? " > " : ": ");
}

static inline void fault(const stop *s, const char *format, ...) CKPT__PRINTF(2, 3);
static inline void fault(const stop *s, const char *format, ...)
{
    va_list args;
    say_chain(s);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    chain_faults++;
    if (getenv("CKPT_CHAIN_REPORT"))
        for (size_t i = 0; s->report && i < ckpt_report_count(s->report); i++) {
            const ckpt_finding *f = ckpt_report_get(s->report, i);
            if (strcmp(f->code, "copy") != 0)
                printf("#     %s [%s] %s\n", f->code, f->tensor, f->message);
        }
}

/* ---- what the migration has said */

static inline bool is_said(const stop *s, const char *code, const char *text)
{
    for (size_t i = 0; i < ckpt_report_count(s->report); i++) {
        const ckpt_finding *f = ckpt_report_get(s->report, i);
        if (strcmp(f->code, code) == 0 && strstr(f->message, text))
            return true;
    }
    return false;
}

/* Of the tensor or value of that name. */
static inline bool is_said_of(const stop *s, const char *code, const char *name)
{
    char quoted[CHAIN_NAME + 3];
    snprintf(quoted, sizeof quoted, "'%s'", name);
    for (size_t i = 0; i < ckpt_report_count(s->report); i++) {
        const ckpt_finding *f = ckpt_report_get(s->report, i);
        if (strcmp(f->code, code) == 0 && (strcmp(f->tensor, name) == 0 || strstr(f->message, quoted)))
            return true;
    }
    return false;
}

static inline bool is_to(const stop *s, const char *to)
{
    return strcmp(s->as->to, to) == 0;
}

static inline bool is_weight(const thing *x)
{
    return x->role == CKPT_ROLE_PARAM || x->role == CKPT_ROLE_BUFFER;
}

/* It was there before, and is not any more: was it said? */
static inline bool may_go(const stop *s, const thing *x)
{
    return is_said_of(s, "lost", x->name) || is_said_of(s, "tied", x->name) ||
           (s->as->weights && !is_weight(x) && is_said(s, "lost", "none of the model's weights")) ||
           (x->role == CKPT_ROLE_MASTER && is_said(s, "weights-from-masters", "")) ||
           /* one for all, as the manual says */
           (x->role == CKPT_ROLE_STEP && (is_to(s, "torch-dist") || is_to(s, "llmc")));
}

/* was: its name before. A directory has files for first keys, with a dot in their names. */
static inline bool may_go_value(const stop *s, const setting *v, const char *was)
{
    char first[CHAIN_NAME], file[CHAIN_NAME], values[CHAIN_NAME + 20];
    const size_t dot = strcspn(was, "."), second = was[dot] ? dot + 1 + strcspn(was + dot + 1, ".") : dot;
    ck_assert_uint_lt(second, CHAIN_NAME);
    memcpy(first, was, dot);
    first[dot] = 0;
    memcpy(file, was, second);
    file[second] = 0;
    snprintf(values, sizeof values, "the values of %s", first);
    return is_said_of(s, "lost", v->name) || is_said_of(s, "lost", was) || is_said(s, "lost", values) ||
           (strcmp(first, "optimizer") != 0 && is_said_of(s, "lost", first)) || is_said_of(s, "lost", file) ||
           (strcmp(first, "optimizer") == 0 && is_said_of(s, "lost", "saved_param_groups")) ||
           (s->as->weights && is_said(s, "lost", "all values beside the tensors")) ||
           (strcmp(v->name, "step") == 0 &&
            (is_said(s, "left-out", "the step (") || is_said(s, "lost", "the step, "))) ||
           (is_to(s, "llmc") && is_said(s, "lost", "values for which llm.c has no place")) ||
           (is_to(s, "llmc") && is_said(s, "lost", "the optimizer's settings"));
}

/* ---- one tensor */

/* Of a torch_dist: all layers are one tensor. False: it is of no layer. */
static inline bool stacked_name(const char *own, char *name, int64_t *layer)
{
    static const char layers[] = "decoder.layers.";
    const char *at = strstr(own, layers), *rest = at ? strchr(at + sizeof layers - 1, '.') : NULL;
    if (rest) {
        *layer = atoi(at + sizeof layers - 1);
        snprintf(name, CHAIN_NAME, "%.*s%s", (int)(at - own) + (int)sizeof layers - 1, own, rest + 1);
    }
    return rest != NULL;
}

static inline bool holds_stacked(const picture *p, const thing *x, const unsigned char *want, ckpt_dtype dtype)
{
    char name[CHAIN_NAME];
    int64_t layer;
    if (!stacked_name(x->name, name, &layer))
        return false;
    const ckpt__canon_entry *e = entry_of(p, name);
    const ckpt_tensor_info *i = e && e->is_tensor ? info_of(p, e) : NULL;
    if (!i || i->dtype != dtype || i->ndim != x->ndim + 1 || i->shape[0] <= layer ||
        (x->ndim && memcmp(i->shape + 1, x->shape, x->ndim * sizeof *x->shape) != 0))
        return false;
    unsigned char *own = elements_of(p, e);
    const size_t size = x->count * ckpt_dtype_size(dtype);
    const bool same = memcmp(own + (size_t)layer * size, want, size) == 0;
    free(own);
    return same;
}

static inline bool holds_either(const picture *p, const ckpt__canon_entry *e, const thing *x, const unsigned char *want,
                                ckpt_dtype dtype)
{
    return (e && e->is_tensor && holds(p, e, dtype, x, want)) || holds_stacked(p, x, want, dtype);
}

static inline bool holds_floats(const picture *p, const ckpt__canon_entry *e, const thing *x)
{
    unsigned char *want = malloc(x->count * sizeof(float) + 1);
    ck_assert_ptr_nonnull(want);
    const bool same = (x->count == 0 || ckpt__convert(x->dtype, x->bytes, CKPT_F32, want, x->count, NULL)) &&
                      holds_either(p, e, x, want, CKPT_F32);
    free(want);
    return same;
}

static inline const thing *master_of(const training *t, const thing *x)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->things[i].role == CKPT_ROLE_MASTER &&
            &t->things[t->things[i].owner] == (x->tie < 0 ? x : &t->things[x->tie]))
            return &t->things[i];
    return NULL;
}

/* What it is held as; HELD_OTHER: as nothing that it may be. */
static inline held held_as(const picture *p, const training *t, const thing *x)
{
    const ckpt__canon_entry *e = entry_of(p, x->name);
    const thing *master = master_of(t, x);
    const thing row = {.ndim = 1, .shape = {(int64_t)x->size}, .count = x->size};
    if (holds_either(p, e, x, x->bytes, x->dtype))
        return HELD;
    if (master && holds_either(p, e, x, master->bytes, CKPT_F32))
        return HELD_MASTER;
    if (x->dtype != CKPT_F32 && holds_floats(p, e, x))
        return HELD_FLOATS;
    if (e && e->is_tensor && holds(p, e, CKPT_U8, &row, x->bytes))
        return HELD_BYTES;
    return e ? HELD_OTHER : HELD_NOT;
}

/* May it be held otherwise than before? */
static inline bool may_change(const stop *s, const training *t, const thing *x, held was, held is)
{
    const thing *owner = x->owner >= 0 ? &t->things[x->owner] : x;
    char name[CHAIN_NAME];
    int64_t layer;
    if (is == HELD_MASTER)
        return is_said(s, "weights-from-masters", "") || s->as->floats;
    if (is == HELD_FLOATS)
        return is_said_of(s, "cast", x->name) || is_said_of(s, "cast", owner->name) ||
               (stacked_name(owner->name, name, &layer) && is_said_of(s, "cast", name));
    if (is == HELD_BYTES)
        return is_said_of(s, "lost", x->name) && was == HELD;
    return was == HELD_NOT && is == HELD; /* the second name of a tie, a step that all share */
}

static inline void expect_thing(stop *s, const picture *p, const training *t, size_t i)
{
    const thing *x = &t->things[i];
    const held was = s->from->things[i], is = held_as(p, t, x);
    chain_looked++;
    s->things[i] = is;
    if (is == HELD_OTHER) {
        const ckpt_tensor_info *info = NULL;
        const ckpt__canon_entry *e = entry_of(p, x->name);
        if (e->is_tensor)
            info = info_of(p, e);
        fault(s, "'%s' has other elements (%s, and here %s)", x->name, ckpt_dtype_name(x->dtype),
              info ? ckpt_dtype_name(info->dtype) : "a value");
    } else if (was == HELD_HIDDEN)
        return;
    else if (is == HELD_NOT && was != HELD_NOT && !may_go(s, x))
        fault(s, "'%s' is not there, and nothing was said", x->name);
    else if (is != HELD_NOT && is != was && !may_change(s, t, x, was, is))
        fault(s, "'%s' is held as %d, and was as %d", x->name, (int)is, (int)was);
}

/* ---- one value */

static inline const ckpt__canon_entry *entry_at(const picture *p, const char *head, const char *rest)
{
    char name[2 * CHAIN_NAME];
    snprintf(name, sizeof name, "%s%s", head, rest);
    return entry_of(p, name);
}

/* Where the programs have it. */
static inline const ckpt__canon_entry *entry_of_value(const picture *p, const char *name)
{
    static const struct {
        const char *is, *has;
    } ways[] = {{"", ""},
                {"", "client_state."},
                {"", "trainer_state.json."},
                {"", "trainer_state."},
                {"step", "trainer_state.global_step"},
                {"step", "trainer_state.json.global_step"},
                {"step", "global_steps"},
                {"step", "iteration"},
                {"optimizer.groups.", "optimizer.param_groups."},
                {"optimizer.groups.", "optimizer.optimizer.param_groups."},
                {"optimizer.groups.", "saved_param_groups."},
                {"scheduler.", "scheduler.bin."},
                {"scheduler.", "scheduler.pt."},
                {"scheduler.", "lr_scheduler."},
                {"scheduler.", "opt_param_scheduler."},
                {"scheduler.", "client_state.scheduler."}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const size_t n = strlen(ways[i].is);
        if (strncmp(name, ways[i].is, n) != 0 || (strcmp(ways[i].is, "step") == 0 && name[n]))
            continue;
        const ckpt__canon_entry *e = entry_at(p, ways[i].has, name + n);
        if (e)
            return e;
    }
    return NULL;
}

static inline void expect_setting(stop *s, const picture *p, const training *t, size_t i)
{
    const setting *v = &t->settings[i];
    const ckpt__canon_entry *e = entry_of_value(p, v->name);
    chain_looked++;
    s->settings[i][0] = 0;
    if (e && holds_setting(p, e, v))
        snprintf(s->settings[i], CHAIN_NAME, "%.*s", (int)e->own.size, e->own.data);
    if (s->settings[i][0] || !s->from->settings[i][0]) /* what was gone may be there again, made by rule */
        return;
    if (e)
        fault(s, "'%s' has another value", v->name);
    else if (!may_go_value(s, v, s->from->settings[i]))
        fault(s, "the value '%s' is not there, and nothing was said", v->name);
}

/* ---- the groups */

static inline bool holds_groups(const picture *p, const training *t)
{
    bool same = p->canon->group_count == t->group_count;
    for (size_t g = 0; same && g < t->group_count; g++) {
        const ckpt__canon_group *own = &p->canon->groups[g];
        same = own->param_count == t->group_sizes[g];
        for (size_t i = 0; same && i < own->param_count; i++)
            same = ckpt__str_is(own->params[i], t->things[t->groups[g][i]].name);
    }
    return same;
}

static inline void expect_groups(stop *s, const picture *p, const training *t)
{
    s->groups = holds_groups(p, t);
    chain_looked++;
    if (s->groups || !s->from->groups || is_to(s, "torch-dist") || is_to(s, "llmc") || s->as->weights)
        return;
    if (!is_said(s, "lost", "optimizer.groups.") && !is_said(s, "lost", "the optimizer") &&
        !is_said(s, "groups-joined", "") && !is_said(s, "universal-incomplete", "have no state, and get no files"))
        fault(s, "the groups of the optimizer are others");
}

/* Do both hold the same of the training, as it is there? */
static inline bool holds_same(const stop *a, const stop *b, const training *t)
{
    bool same = a->groups == b->groups;
    for (size_t i = 0; same && i < t->count; i++)
        same = a->things[i] == b->things[i];
    for (size_t i = 0; same && i < t->setting_count; i++)
        same = !a->settings[i][0] == !b->settings[i][0];
    return same;
}

/* ---- two checkpoints, entry by entry: also what the training does not know of */

/* A value that is a number, and a tensor that is the same one: the step of a universal checkpoint is a tensor of float32. */
static inline bool same_number(const picture *p, const ckpt__canon_entry *tensor, const ckpt__canon_entry *value)
{
    const ckpt_tensor_info *i = info_of(p, tensor);
    const ckpt_value *v = value->value;
    if (i->ndim || i->dtype != CKPT_F32 || (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT))
        return false;
    float is;
    unsigned char *a = elements_of(p, tensor);
    memcpy(&is, a, sizeof is);
    free(a);
    return (double)is == (v->kind == CKPT_V_INT ? (double)v->integer : v->real);
}

static inline bool same_entry(const picture *p, const ckpt__canon_entry *e, const picture *q,
                              const ckpt__canon_entry *f)
{
    if (e->is_tensor != f->is_tensor)
        return e->is_tensor ? same_number(p, e, f) : same_number(q, f, e);
    if (!e->is_tensor)
        return ckpt__value_alike(e->value, f->value);
    const ckpt_tensor_info *i = info_of(p, e), *k = info_of(q, f);
    if (i->dtype != k->dtype || !ckpt__same_shape(i->shape, i->ndim, k->shape, k->ndim))
        return false;
    unsigned char *a = elements_of(p, e), *b = elements_of(q, f);
    const bool same = memcmp(a, b, (size_t)i->nbytes) == 0;
    free(a);
    free(b);
    return same;
}

/* What both have is the same. What one way alone leads past is not asked for: programs have values of their own (trainer_state.json), other
 * places for a value, masters, layers in one tensor. All that the training has was looked for at each stop. */
static inline void compare_entries(const stop *s, const picture *p, const picture *q)
{
    for (size_t i = 0; i < p->canon->count; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i], *f = entry_of(q, e->name.data);
        if (f && !same_entry(p, e, q, f))
            fault(s, "'%s' is another on either way", e->name.data);
        chain_looked += f != NULL;
    }
}

static inline void expect_same(const stop *s, const stop *other, const training *t)
{
    picture p, q;
    ckpt_error err = CKPT_ERROR_INIT;
    if (look(&p, s->read[0], t, s->numbered && s->from->groups, &err) == CKPT_OK &&
        look(&q, other->read[0], t, other->numbered && other->from->groups, &err) == CKPT_OK) {
        compare_entries(s, &p, &q);
        forget(&q);
    }
    forget(&p);
}

/* ---- all of it */

static inline void expect_all(stop *s, const training *t)
{
    picture p;
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t r = 0; r < s->reads; r++) {
        /* whose state it is nobody knows where a file numbers it and no group has said the order: only weights are looked at */
        const bool blind = s->numbered && !s->from->groups && t->group_count;
        if (look(&p, s->read[r], t, s->numbered && s->from->groups, &err) != CKPT_OK) {
            fault(s, "it cannot be read: %s: %s", err.object, err.message);
        } else {
            for (size_t i = 0; i < t->count; i++)
                if (!blind || t->things[i].owner < 0)
                    expect_thing(s, &p, t, i);
                else
                    s->things[i] = HELD_HIDDEN;
            for (size_t i = 0; i < t->setting_count; i++)
                if (!blind || strncmp(t->settings[i].name, "optimizer.", 10) != 0)
                    expect_setting(s, &p, t, i);
                else
                    s->settings[i][0] = 0;
            expect_groups(s, &p, t);
        }
        forget(&p);
    }
}
#endif
