/* state/whole.c - was a moment forgotten? What one parameter lacks and its peers have, or what an optimizer with such
 * hyper-parameters always has. Mixtures that people train with are none: Lion and SGD have one moment, Muon's matrices have
 * another than AdamW's vectors, Adafactor has rows and columns, frozen parameters have nothing. */
#include "state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include "model/index.h"

enum { AVG = 1, SQ = 2, STEP = 4, OTHERS = 8, BOTH = AVG | SQ };

/* One parameter that the optimizer has tensors of. */
typedef struct param {
    ckpt_str name; /* canonical, in the state's memory */
    unsigned has;  /* bits: AVG, SQ, STEP, OTHERS */
    size_t group;  /* number of groups: it is in none */
} param;

typedef struct kind {       /* of a group; the last one is that of the parameters in none */
    bool hypers, eps, beta; /* it has hyper-parameters; eps (or epsilon) among them; betas.0 */
    size_t both;            /* of its parameters: how many have AVG and SQ */
    struct {
        size_t first, count;
    } lacks[3]; /* AVG, SQ, STEP: parameters that lack it */
} kind;

/* One look at a state. All but the state is owned by the look. */
typedef struct whole {
    const ckpt_state *state;
    ckpt__hash *by_name; /* name of a parameter -> its number in params */
    param *params;
    size_t count, capacity;
    kind *kinds;
    size_t kind_count;       /* one a group, and one for the parameters in no group */
    size_t both;             /* parameters of all groups that have AVG and SQ */
    size_t lone, lone_count; /* parameters with exp_avg alone where nothing says which optimizer it is; the first */
} whole;

static const struct {
    unsigned bit;
    const char *key, *role;
} keys[3] = {
    {AVG, "exp_avg", "CKPT_ROLE_EXP_AVG"},
    {SQ, "exp_avg_sq", "CKPT_ROLE_EXP_AVG_SQ"},
    {STEP, "step", "CKPT_ROLE_STEP"},
};

/* What a tensor of the optimizer says of its parameter. */
static unsigned bit_of(const ckpt__binding *b)
{
    switch (b->role) {
    case CKPT_ROLE_EXP_AVG:
        return AVG;
    case CKPT_ROLE_EXP_AVG_SQ:
        return SQ;
    case CKPT_ROLE_STEP:
        return STEP;
    case CKPT_ROLE_MAX_EXP_AVG_SQ:
    case CKPT_ROLE_MASTER:
        return 0;
    default:
        break;
    }
    for (size_t i = 0; i < 3; i++)
        if (ckpt__str_is(b->state_key, keys[i].key))
            return keys[i].bit;
    return ckpt__str_is(b->state_key, "mu_product") ? 0 : OTHERS; /* NAdam's, beside the two moments */
}

static param *param_of(whole *w, ckpt_str name, bool add)
{
    size_t i;
    const ckpt__binding *b = ckpt__state_find(w->state, name.data, name.size);
    name = b ? b->name : name; /* of an alias its tensor's */
    if (ckpt__hash_get(w->by_name, name.data, name.size, &i))
        return &w->params[i];
    if (!add || !ckpt__grow(&w->params, &w->capacity, w->count + 1, sizeof *w->params) ||
        ckpt__hash_put(w->by_name, name.data, name.size, w->count, NULL) < 0)
        return NULL;
    w->params[w->count] = (param){name, 0, w->state->group_count};
    return &w->params[w->count++];
}

static bool gather_tensors(whole *w)
{
    for (size_t i = 0; i < w->state->count; i++) {
        const ckpt__binding *b = &w->state->bindings[i];
        if (!ckpt_role_is_optimizer(b->role) || !b->param.data)
            continue;
        param *p = param_of(w, b->param, true);
        if (!p)
            return false;
        p->has |= bit_of(b);
    }
    return true;
}

/* The steps that are variables, and the hyper-parameters. */
static void gather_scalars(whole *w)
{
    static const char head[] = "optimizer.", tail[] = ".step";
    const size_t h = sizeof head - 1, t = sizeof tail - 1;
    for (size_t i = 0; i < w->state->scalar_count; i++) {
        const ckpt__scalar *v = &w->state->scalars[i];
        if (v->group != SIZE_MAX) {
            kind *k = &w->kinds[v->group];
            k->hypers = true;
            k->eps = k->eps || ckpt__str_is(v->name, "eps") || ckpt__str_is(v->name, "epsilon");
            k->beta = k->beta || ckpt__str_is(v->name, "betas.0");
        } else if (v->name.size > h + t && memcmp(v->name.data, head, h) == 0 &&
                   memcmp(v->name.data + v->name.size - t, tail, t) == 0) {
            param *p = param_of(w, (ckpt_str){v->name.data + h, v->name.size - h - t}, false);
            if (p)
                p->has |= STEP;
        }
    }
}

static void gather_groups(whole *w)
{
    for (size_t g = 0; g < w->state->group_count; g++)
        for (size_t i = 0; i < w->state->groups[g].param_count; i++) {
            param *p = param_of(w, w->state->groups[g].params[i], false);
            if (p)
                p->group = g;
        }
    for (size_t i = 0; i < w->count; i++)
        if ((w->params[i].has & BOTH) == BOTH) {
            w->kinds[w->params[i].group].both++;
            w->both++;
        }
}

/* A group of an optimizer of its own, which has one moment: its hyper-parameters are bound, and no eps. */
static bool is_of_one_moment(const whole *w, const param *p)
{
    const kind *k = &w->kinds[p->group];
    return k->hypers && !k->eps && k->both == 0;
}

static void note_lack(whole *w, size_t i, size_t key)
{
    kind *k = &w->kinds[w->params[i].group];
    if (k->lacks[key].count++ == 0)
        k->lacks[key].first = i;
}

static void look(whole *w)
{
    size_t with_step = 0, without = 0;
    for (size_t i = 0; i < w->count; i++) {
        const param *p = &w->params[i];
        const kind *k = &w->kinds[p->group];
        unsigned pair = p->has & BOTH;
        if (pair == AVG && !(p->has & OTHERS) && !k->beta && !k->eps && w->both == 0 && w->lone_count++ == 0)
            w->lone = i;
        if (!pair || is_of_one_moment(w, p))
            continue;
        with_step += (p->has & STEP) != 0;
        without += (p->has & STEP) == 0;
        if (pair == BOTH || (p->has & OTHERS))
            continue;
        if (w->both || (pair == AVG ? k->eps : k->eps && k->beta))
            note_lack(w, i, pair == AVG ? 1 : 0);
    }
    for (size_t i = 0; with_step > without && i < w->count; i++)
        if ((w->params[i].has & BOTH) && !(w->params[i].has & STEP) && !is_of_one_moment(w, &w->params[i]))
            note_lack(w, i, 2);
}

static ckpt_status report_lack(const whole *w, const kind *k, size_t key, ckpt_report *report, ckpt_error *err)
{
    const param *p = &w->params[k->lacks[key].first];
    size_t others = k->lacks[key].count - 1;
    char more[64] = "", name[300], peers[120], tensor[400], fix[400];
    ckpt__escape(name, sizeof name, p->name.data, p->name.size);
    snprintf(tensor, sizeof tensor, "optimizer.%s.%s", name, keys[key].key);
    if (others)
        snprintf(more, sizeof more, ", and so %s %zu other%s", others == 1 ? "has" : "have", others,
                 others == 1 ? "" : "s");
    if (key == 2)
        snprintf(peers, sizeof peers, "most other parameters have a step of their own");
    else if (w->both)
        snprintf(peers, sizeof peers, "%zu other parameter%s both", w->both, w->both == 1 ? " has" : "s have");
    else
        snprintf(peers, sizeof peers, "an optimizer with the hyper-parameter eps%s has both",
                 key == 0 ? " and betas" : "");
    snprintf(fix, sizeof fix, "bind it: a tensor of param '%.200s' and role %s, or an arena with that entry", name,
             keys[key].role);
    return ckpt__report_add(report, CKPT_SEVERITY_WARNING, "moments-incomplete", tensor, fix,
                            "its parameter has %s without %s%s; %s",
                            key == 0                     ? "exp_avg_sq"
                            : key == 1 || !(p->has & SQ) ? "exp_avg"
                                                         : "moments",
                            keys[key].key, more, peers)
               ? CKPT_OK
               : ckpt__fail_memory(err, "report", 0);
}

/* One moment everywhere, and no hyper-parameter that tells Lion from an Adam whose second one was forgotten. */
static ckpt_status report_lone(const whole *w, ckpt_report *report, ckpt_error *err)
{
    char name[300], tensor[400];
    ckpt__escape(name, sizeof name, w->params[w->lone].name.data, w->params[w->lone].name.size);
    snprintf(tensor, sizeof tensor, "optimizer.%s.exp_avg_sq", name);
    return ckpt__report_add(
               report, CKPT_SEVERITY_NOTE, "moments-incomplete", tensor,
               "for Adam and AdamW bind exp_avg_sq too (role CKPT_ROLE_EXP_AVG_SQ); Lion has one moment",
               "%zu parameter%s exp_avg and no exp_avg_sq: that is all of Lion's state, and half of Adam's",
               w->lone_count, w->lone_count == 1 ? " has" : "s have")
               ? CKPT_OK
               : ckpt__fail_memory(err, "report", 0);
}

ckpt_status ckpt__state_moments(const ckpt_state *state, ckpt_report *report, ckpt_error *err)
{
    whole w = {.state = state, .kind_count = state->group_count + 1};
    w.by_name = ckpt__hash_new(state->count);
    w.kinds = calloc(w.kind_count, sizeof *w.kinds);
    ckpt_status status = w.by_name && w.kinds && gather_tensors(&w) ? CKPT_OK : ckpt__fail_memory(err, "moments", 0);
    if (status == CKPT_OK) {
        gather_scalars(&w);
        gather_groups(&w);
        look(&w);
    }
    for (size_t g = 0; status == CKPT_OK && g < w.kind_count; g++)
        for (size_t key = 0; status == CKPT_OK && key < 3; key++)
            if (w.kinds[g].lacks[key].count)
                status = report_lack(&w, &w.kinds[g], key, report, err);
    if (status == CKPT_OK && w.lone_count)
        status = report_lone(&w, report, err);
    ckpt__hash_free(w.by_name);
    free(w.params);
    free(w.kinds);
    return status;
}
