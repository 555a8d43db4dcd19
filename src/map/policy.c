/* map/policy.c - where a role must live for an optimizer, and all tensors of a state at once. */
#include "map/rules.h"

#include <stdio.h>
#include <stdlib.h>

/* torch 2.x: the multi-tensor and single-tensor optimizers read `step` on the host, fused and capturable kernels read
 * it on the device, as float32. Upstream moves; so this is data. */
static const struct {
    ckpt_role role;
    ckpt__place on_host;   /* default, foreach, plain */
    ckpt__place on_device; /* fused, capturable */
    bool float32;          /* fused, capturable */
} table[] = {
    {CKPT_ROLE_GRAD, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_EXP_AVG, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_EXP_AVG_SQ, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_MAX_EXP_AVG_SQ, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_MOMENTUM, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_OPTIM, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_MASTER, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_STEP, CKPT__ON_CPU, CKPT__WITH_PARAM, true},
    {CKPT_ROLE_SCALER, CKPT__WITH_PARAM, CKPT__WITH_PARAM, false},
    {CKPT_ROLE_RNG, CKPT__ON_CPU, CKPT__ON_CPU, false},
};

ckpt__policy ckpt__policy_of(ckpt_optimizer_kind kind, ckpt_role role)
{
    bool on_device = kind == CKPT_OPTIMIZER_FUSED || kind == CKPT_OPTIMIZER_CAPTURABLE;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].role == role)
            return (ckpt__policy){on_device ? table[i].on_device : table[i].on_host, on_device && table[i].float32};
    return (ckpt__policy){CKPT__FREE, false};
}

/* One ckpt__map_place: its arguments, and what its steps hand on. The first ten are the caller's. */
struct placing {
    const ckpt_map *map;
    ckpt_optimizer_kind kind;
    const ckpt_optimizer_kind *kinds;
    const ckpt__subject *subjects;
    const ckpt_dtype *dtypes;
    size_t n;
    const ckpt_ranks *ranks;
    ckpt__target *out;
    ckpt_report *report;
    ckpt_error *err;
    size_t *param; /* subject -> the subject that it follows, or SIZE_MAX */
    bool *used;    /* rule -> it decided something */
    struct {       /* for "policy-placed": one note a role */
        size_t count, first;
        ckpt__target to;
    } moved[CKPT__ROLE_COUNT];
    bool no_memory;
};

static ckpt_optimizer_kind kind_of(const struct placing *p, size_t i)
{
    ckpt_optimizer_kind kind = p->kind != CKPT_OPTIMIZER_DEFAULT ? p->kind : ckpt__map_optimizer(p->map);
    if (kind == CKPT_OPTIMIZER_DEFAULT && p->kinds)
        kind = p->kinds[i];
    return kind == CKPT_OPTIMIZER_DEFAULT ? CKPT_OPTIMIZER_PLAIN : kind;
}

/* A tag that names one device, of those that tensors are computed on. */
static bool is_place(ckpt_device d)
{
    bool none = d.type == CKPT_DEVICE_NONE || d.type == CKPT_DEVICE_META || d.type == CKPT_DEVICE_OTHER;
    return d.type == CKPT_DEVICE_CPU || d.type == CKPT_DEVICE_MPS || d.type == CKPT_DEVICE_HPU ||
           (!none && d.index >= 0);
}

/* Where a tensor ends up as far as is known here: its target, else its saved tag; NONE where that names no device. */
static ckpt__target resolved(const struct placing *p, size_t i)
{
    ckpt__target keeps = {.device = {CKPT_DEVICE_NONE, -1}};
    if (p->out[i].device.type != CKPT_DEVICE_NONE)
        return p->out[i];
    if (p->subjects[i].tag.data) {
        ckpt_device saved = ckpt__tag_parse(p->subjects[i].tag);
        if (is_place(saved))
            keeps.device = saved;
    }
    return keeps;
}

static bool same_place(const ckpt__target *a, const ckpt__target *b)
{
    return ckpt_device_equal(a->device, b->device) &&
           (a->device.type != CKPT_DEVICE_OTHER || ckpt__str_equal(a->word, b->word));
}

static bool is_explicit(const ckpt__target *t)
{
    return t->by == CKPT__BY_NAME || t->by == CKPT__BY_ROLE;
}

static void add(struct placing *p, ckpt_severity severity, const char *code, size_t subject, const char *fix,
                const char *message)
{
    if (p->report && !ckpt__report_add(p->report, severity, code,
                                       subject == SIZE_MAX ? NULL : p->subjects[subject].name.data, fix, "%s", message))
        p->no_memory = true;
}

/* ---- who belongs to whom */

/* The scaler's device buffers (scale, growth tracker, found_inf) belong to no one parameter: they follow the first. */
static size_t first_param(const struct placing *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->subjects[i].role == CKPT_ROLE_PARAM)
            return i;
    return SIZE_MAX;
}

static ckpt_status find_params(struct placing *p)
{
    bool any = false; /* asks for a parameter */
    for (size_t i = 0; i < p->n && !any; i++)
        any = p->subjects[i].param.data != NULL;
    ckpt__hash *names = ckpt__hash_new(any ? p->n : 0);
    if (!names)
        return ckpt__fail_memory(p->err, "tensor names", p->n);
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; i < p->n && any && s == CKPT_OK; i++)
        if (p->subjects[i].name.data &&
            ckpt__hash_put(names, p->subjects[i].name.data, p->subjects[i].name.size, i, NULL) < 0)
            s = ckpt__fail_memory(p->err, "tensor names", p->n);
    size_t first = first_param(p);
    for (size_t i = 0; i < p->n && s == CKPT_OK; i++) {
        const ckpt__subject *subject = &p->subjects[i];
        size_t found = SIZE_MAX;
        p->param[i] = SIZE_MAX;
        if (subject->param.data && ckpt__hash_get(names, subject->param.data, subject->param.size, &found) &&
            found != i)
            p->param[i] = found;
        else if (subject->role == CKPT_ROLE_SCALER)
            p->param[i] = first;
    }
    ckpt__hash_free(names);
    return s;
}

/* ---- what the policy does to one tensor */

/* A rule by name or role stands, also where it breaks the policy; but it is said. */
static void breach(struct placing *p, size_t i, const ckpt__target *want, const char *why)
{
    char has[CKPT_DEVICE_NAME_MAX], should[CKPT_DEVICE_NAME_MAX], message[512];
    ckpt__target_name(&p->out[i], has);
    ckpt__target_name(want, should);
    snprintf(message, sizeof message, "rule %s puts this %s on %s, and %s: it must be on %s",
             ckpt__map_rule_text(p->map, p->out[i].rule), ckpt_role_name(p->subjects[i].role), has, why, should);
    add(p, CKPT_SEVERITY_ERROR, "policy-breach", i,
        "drop the rule, or name the parameter in it so that its state comes along", message);
    if (p->report && !ckpt__report_detail(p->report, NULL, has, should, 0))
        p->no_memory = true;
}

/* A loader's order, a shuffle: what the program keeps in its own host memory and is no tensor of the model stays there. */
static bool is_host_value(const struct placing *p, size_t i)
{
    return p->subjects[i].host && p->subjects[i].role == CKPT_ROLE_OTHER && p->param[i] == SIZE_MAX;
}

static const char *why_text(const struct placing *p, size_t i, ckpt__place place)
{
    ckpt_role role = p->subjects[i].role;
    if (role == CKPT_ROLE_RNG)
        return "the state of a random generator stays on the cpu";
    if (role == CKPT_ROLE_OTHER)
        return "the program's own host memory that is not a tensor of the model stays where it is";
    if (role != CKPT_ROLE_STEP)
        return "it must be where its parameter is";
    if (place == CKPT__ON_CPU)
        return "an optimizer that is neither fused nor capturable reads step on the cpu";
    return kind_of(p, i) == CKPT_OPTIMIZER_FUSED ? "a fused optimizer reads step on its parameter's device"
                                                 : "a capturable optimizer reads step on its parameter's device";
}

static void breach_dtype(struct placing *p, size_t i)
{
    const char *cast = ckpt_dtype_name(p->out[i].cast);
    char message[200];
    snprintf(message, sizeof message, "a rule casts this step to %s, and a %s optimizer reads it as float32", cast,
             ckpt_optimizer_kind_name(kind_of(p, i)));
    add(p, CKPT_SEVERITY_ERROR, "policy-breach", i, "drop the cast", message);
    if (p->report && !ckpt__report_detail(p->report, NULL, cast, "float32", 0))
        p->no_memory = true;
}

static void move(struct placing *p, size_t i, const ckpt__target *to, ckpt__decided by)
{
    ckpt__target before = resolved(p, i);
    p->out[i].device = to->device;
    p->out[i].word = to->word;
    p->out[i].by = by;
    p->out[i].rule = SIZE_MAX;
    ckpt_role role = p->subjects[i].role;
    if ((role != CKPT_ROLE_STEP && role != CKPT_ROLE_RNG && !is_host_value(p, i)) || p->subjects[i].stays ||
        to->device.type == CKPT_DEVICE_NONE || same_place(&before, to))
        return;
    if (p->moved[role].count++ == 0) {
        p->moved[role].first = i;
        p->moved[role].to = *to;
    }
}

static void place_one(struct placing *p, size_t i)
{
    ckpt__target *t = &p->out[i];
    ckpt__policy policy = ckpt__policy_of(kind_of(p, i), p->subjects[i].role);
    size_t param = p->param[i];
    const ckpt__target cpu = {.device = ckpt_cpu()};
    if (is_host_value(p, i) && !is_explicit(t))
        move(p, i, &cpu, t->by);
    else if (policy.place == CKPT__ON_CPU) {
        if (!is_explicit(t))
            move(p, i, &cpu, t->by);
        else if (t->device.type != CKPT_DEVICE_CPU)
            breach(p, i, &cpu, why_text(p, i, policy.place));
    } else if (param != SIZE_MAX) {
        ckpt__target want = resolved(p, param);
        if (!is_explicit(t))
            move(p, i, &want, CKPT__BY_PARAM);
        else if (policy.place == CKPT__WITH_PARAM && want.device.type != CKPT_DEVICE_NONE && !same_place(t, &want))
            breach(p, i, &want, why_text(p, i, policy.place));
    }
    if (!policy.float32)
        return;
    if (t->cast != CKPT_DTYPE_NONE && t->cast != CKPT_F32)
        breach_dtype(p, i);
    else if (p->dtypes && p->dtypes[i] != CKPT_F32)
        t->cast = CKPT_F32;
}

/* ---- findings about the whole */

static void report_moved(struct placing *p)
{
    for (int role = 0; role < CKPT__ROLE_COUNT; role++) {
        size_t first = p->moved[role].first;
        if (!p->moved[role].count)
            continue;
        char to[CKPT_DEVICE_NAME_MAX], message[320];
        ckpt__place place = ckpt__policy_of(kind_of(p, first), (ckpt_role)role).place;
        ckpt__target_name(&p->moved[role].to, to);
        snprintf(message, sizeof message, "%zu tensor%s of role %s %s placed on %s%s, whatever the map says: %s",
                 p->moved[role].count, p->moved[role].count == 1 ? "" : "s", ckpt_role_name((ckpt_role)role),
                 p->moved[role].count == 1 ? "is" : "are", to, place == CKPT__WITH_PARAM ? " (with its parameter)" : "",
                 why_text(p, first, place));
        add(p, CKPT_SEVERITY_NOTE, "policy-placed", first, NULL, message);
        if (p->report && !ckpt__report_detail(p->report, NULL, NULL, to, 0))
            p->no_memory = true;
    }
}

static void report_unused(struct placing *p)
{
    for (size_t i = 0; p->map && i < p->map->rule_count; i++) {
        if (p->used[i])
            continue;
        const char *trap = ckpt__map_trap(&p->map->rules[i]);
        char message[512];
        snprintf(message, sizeof message, "rule %s decided nothing%s%s", p->map->rules[i].text, trap ? ": " : "",
                 trap ? trap : "");
        add(p, CKPT_SEVERITY_WARNING, "unused-rule", SIZE_MAX, "correct it or drop it", message);
    }
}

static void report_conflict(struct placing *p)
{
    ckpt_optimizer_kind said = ckpt__map_optimizer(p->map);
    if (p->kind == CKPT_OPTIMIZER_DEFAULT || said == CKPT_OPTIMIZER_DEFAULT || said == p->kind)
        return;
    char message[200];
    snprintf(message, sizeof message, "the map says optimizer: %s, and the program constructs %s, which is what counts",
             ckpt_optimizer_kind_name(said), ckpt_optimizer_kind_name(p->kind));
    add(p, CKPT_SEVERITY_WARNING, "optimizer-conflict", SIZE_MAX, "drop the key 'optimizer' from the map", message);
}

static ckpt_status place_all(struct placing *p)
{
    ckpt_status s = find_params(p);
    for (size_t i = 0; i < p->n && s == CKPT_OK; i++)
        s = ckpt__map_apply(p->map, &p->subjects[i], p->ranks, p->used, &p->out[i], p->err);
    if (s != CKPT_OK)
        return s;
    /* Parameters and what else is followed have their places now: a chain (the absmax of a master) is not followed. */
    for (size_t i = 0; i < p->n; i++)
        if (p->subjects[i].role == CKPT_ROLE_PARAM || p->param[i] == SIZE_MAX)
            place_one(p, i);
    for (size_t i = 0; i < p->n; i++)
        if (p->subjects[i].role != CKPT_ROLE_PARAM && p->param[i] != SIZE_MAX)
            place_one(p, i);
    report_conflict(p);
    report_moved(p);
    report_unused(p);
    return p->no_memory ? ckpt__fail_memory(p->err, "the report", 0) : CKPT_OK;
}

ckpt_status ckpt__map_place(const ckpt_map *map, ckpt_optimizer_kind kind, const ckpt_optimizer_kind *kinds,
                            const ckpt__subject *subjects, const ckpt_dtype *dtypes, size_t n, const ckpt_ranks *ranks,
                            ckpt__target *out, ckpt_report *report, ckpt_error *err)
{
    struct placing p = {.map = map,
                        .kind = kind,
                        .kinds = kinds,
                        .subjects = subjects,
                        .dtypes = dtypes,
                        .n = n,
                        .ranks = ranks,
                        .out = out,
                        .report = report,
                        .err = err};
    p.param = calloc(n ? n : 1, sizeof *p.param);
    p.used = calloc(map && map->rule_count ? map->rule_count : 1, sizeof *p.used);
    ckpt_status s = p.param && p.used ? place_all(&p) : ckpt__fail_memory(err, "the placement of tensors", n);
    free(p.param);
    free(p.used);
    return s;
}
