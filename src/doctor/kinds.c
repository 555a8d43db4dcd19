/* doctor/kinds.c - which optimizer a group is of, and what its load_state_dict and its step() read without a default.
 * Seen with torch 2.13 and bitsandbytes 0.50, key by key: each taken out, set to None, to text, to other lengths. */
#include "doctor/facts.h"

#include <stdio.h>

static const ckpt_str none = {NULL, 0};

typedef struct optimizer_kind {
    const char *class;
    const char *tells[4]; /* keys of its groups or its state that others do not have: one is enough */
    const char
        *state[8]; /* what its state holds; with anything else it is a class of somebody's own, but for bitsandbytes,
                                   * whose load_state_dict takes any key, and whose mark nobody else writes */
    const char *hypers[6]; /* read by step(): numbers, but for `pairs` of them, which come first */
    unsigned pairs;
    const char *early[4]; /* state that load_state_dict reads */
    const char *late[4];  /* state that step() reads */
    bool bnb;             /* bitsandbytes; the others are torch's, whose groups have one of torch's own flags */
} optimizer_kind;

/* clang-format off */
static const optimizer_kind kinds[] = {
    {"bitsandbytes", {"__bnb_optimizer_quant_state__", "t_alpha"}, {"step", "__bnb_optimizer_quant_state__"}, {"betas", "eps", "weight_decay"}, 1,
     {NULL}, {"step", "__bnb_optimizer_quant_state__"}, true},
    {"torch.optim.NAdam", {"momentum_decay", "mu_product"}, {"step", "mu_product", "exp_avg", "exp_avg_sq"}, {"betas", "eps", "weight_decay", "momentum_decay"}, 1,
     {"step", "mu_product"}, {"exp_avg", "exp_avg_sq"}, false},
    {"torch.optim.Adamax", {"exp_inf"}, {"step", "exp_avg", "exp_inf"}, {"betas", "eps", "weight_decay"}, 1, {"step"}, {"exp_avg", "exp_inf"}, false},
    {"torch.optim.Adam or AdamW", {"amsgrad", "decoupled_weight_decay"}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {"betas", "eps", "weight_decay"}, 1, {"step"},
     {"exp_avg", "exp_avg_sq"}, false},
    {"torch.optim.Adadelta", {"acc_delta"}, {"step", "square_avg", "acc_delta"}, {"rho", "eps", "weight_decay"}, 0, {"step"}, {"square_avg", "acc_delta"}, false},
    {"torch.optim.Adagrad", {"initial_accumulator_value", "lr_decay"}, {"step", "sum"}, {"lr_decay", "eps", "weight_decay"}, 0, {"step"}, {"sum"}, false},
    {"torch.optim.RMSprop", {"centered", "grad_avg"}, {"step", "square_avg", "momentum_buffer", "grad_avg"}, {"alpha", "eps", "weight_decay"}, 0, {"step"}, {"square_avg"},
     false},
    {"torch.optim.Rprop", {"etas", "step_sizes"}, {"step", "prev", "step_size"}, {"etas", "step_sizes"}, 2, {"step"}, {"prev", "step_size"}, false},
    {"torch.optim.ASGD", {"lambd", "t0"}, {"step", "eta", "mu", "ax"}, {"lambd", "alpha", "t0", "weight_decay"}, 0, {"step", "eta", "mu"}, {"ax"}, false},
    {"torch.optim.SGD", {"dampening", "nesterov"}, {"momentum_buffer"}, {"momentum", "dampening", "weight_decay"}, 0, {NULL}, {NULL}, false},
};
/* clang-format on */

static bool has(const ckpt__examination *p, const ckpt__doctor_group *g, const char *key)
{
    bool tensor;
    return ckpt__doctor_hyper(p, g, key, &tensor) || tensor;
}

static const ckpt__doctor_item *item_of(const ckpt__examination *p, const ckpt__doctor_slot *slot, const char *key)
{
    for (size_t i = slot->first; i < slot->first + slot->count; i++)
        if (!p->items[i].nested && ckpt__str_is(p->items[i].key, key))
            return &p->items[i];
    return NULL;
}

/* The first key of the group's state that the kind does not write; NULL: there is none. *tells: one of its own is there. */
static const ckpt__doctor_item *foreign_item(const ckpt__examination *p, const ckpt__doctor_group *g,
                                             const optimizer_kind *kind, bool *tells)
{
    const ckpt__doctor_item *foreign = NULL;
    for (size_t s = g->first; s < g->first + g->count; s++)
        for (size_t i = p->slots[s].first; i < p->slots[s].first + p->slots[s].count; i++) {
            bool known = p->items[i].nested;
            for (size_t k = 0; k < 8 && kind->state[k]; k++)
                known = known || ckpt__str_is(p->items[i].key, kind->state[k]);
            for (size_t k = 0; k < 4 && kind->tells[k]; k++)
                *tells = *tells || ckpt__str_is(p->items[i].key, kind->tells[k]);
            if (!known && !kind->bnb)
                return &p->items[i];
            if (!known && !foreign)
                foreign = &p->items[i];
        }
    return kind->bnb && *tells ? NULL : foreign;
}

/* Moving averages that are wanted, and nothing but a count of steps is there: of bitsandbytes, whose groups say nothing else. */
static bool is_only_counted(const ckpt__examination *p, const ckpt__doctor_group *g)
{
    size_t counted = 0;
    if (!has(p, g, "betas") || !has(p, g, "eps") || !has(p, g, "weight_decay") || !p->loader->python)
        return false;
    for (size_t s = g->first; s < g->first + g->count; s++)
        for (size_t i = p->slots[s].first; i < p->slots[s].first + p->slots[s].count; i++, counted++)
            if (!ckpt__str_is(p->items[i].key, "step") || p->items[i].tensor != SIZE_MAX || !p->items[i].value ||
                p->items[i].value->kind != CKPT_V_INT)
                return false;
    return counted > 0;
}

/* *foreign: the groups alone tell it, and the state has this too. */
static const optimizer_kind *kind_of(const ckpt__examination *p, const ckpt__doctor_group *g,
                                     const ckpt__doctor_item **foreign)
{
    const optimizer_kind *by_group = NULL;
    static const char *const flags[] = {"foreach", "differentiable", "maximize", "capturable", "fused"};
    bool flagged = false;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        flagged = flagged || has(p, g, flags[i]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const optimizer_kind *kind = &kinds[i];
        bool adam = ckpt__str_is(ckpt__s(kind->tells[0]), "amsgrad"), tells = false, of_group = false;
        const ckpt__doctor_item *other = foreign_item(p, g, kind, &tells);
        for (size_t k = 0; k < 4 && kind->tells[k]; k++)
            of_group = of_group || has(p, g, kind->tells[k]);
        if (other && of_group && flagged && !kind->bnb && !by_group) {
            by_group = kind;
            *foreign = other;
        }
        if (other || !(kind->bnb || flagged || adam))
            continue;
        tells = tells || of_group;
        if (tells || (kind->bnb && !flagged && !has(p, g, "amsgrad") && is_only_counted(p, g)))
            return *foreign = NULL, kind;
    }
    return by_group;
}

static bool is_number(const ckpt_value *v)
{
    return v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT || v->kind == CKPT_V_BIGINT || v->kind == CKPT_V_FLOAT ||
           v->kind == CKPT_V_TENSOR || v->kind == CKPT_V_ARRAY || v->kind == CKPT_V_OBJECT;
}

static const char *called(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_NONE:
        return "None";
    case CKPT_V_STR:
        return "text";
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
        return "a list";
    default:
        return is_number(v) ? "one number" : "no number";
    }
}

static void check_number(ckpt__examination *p, const ckpt__doctor_group *g, const char *key, const char *group)
{
    const ckpt_value *v = ckpt__doctor_hyper(p, g, key, NULL);
    if (v && !is_number(v))
        ckpt__doctor_note(p, CKPT__BAD_HYPER, NULL, none, key, group, called(v));
}

static void check_hypers(ckpt__examination *p, const ckpt__doctor_group *g, const optimizer_kind *kind,
                         const char *group)
{
    for (size_t k = 0; k < 6 && kind->hypers[k]; k++) {
        const char *key = kind->hypers[k];
        char first[80], said[64];
        snprintf(first, sizeof first, "%s.0", key);
        if (!has(p, g, key)) {
            if ((k >= kind->pairs || !has(p, g, first)) && ckpt__doctor_bound(p, k < kind->pairs ? first : key, NULL))
                ckpt__doctor_note(p, CKPT__NO_HYPER, NULL, none, key, group, NULL);
            continue;
        }
        const ckpt_value *v = ckpt__doctor_hyper(p, g, key, NULL);
        if (k >= kind->pairs) {
            bool dampening =
                strcmp(key, "dampening") == 0 && ckpt__doctor_real(ckpt__doctor_hyper(p, g, "momentum", NULL)) == 0;
            if (!dampening)
                check_number(p, g, key, group);
            continue;
        }
        bool list = v && (v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE);
        if (list && (v->item_count == 2 || (kind->bnb && v->item_count > 2)))
            continue;
        snprintf(said, sizeof said, "%s, not two numbers", v ? called(v) : "a tensor");
        ckpt__doctor_note(p, CKPT__BAD_HYPER, NULL, none, key, group, said);
    }
}

/* None, or text, where load_state_dict makes a tensor of it; to bitsandbytes' kernels a float too. */
static bool is_no_step(const ckpt__doctor_item *item, bool bnb)
{
    return item && item->tensor == SIZE_MAX && item->value &&
           (item->value->kind == CKPT_V_NONE || item->value->kind == CKPT_V_STR ||
            (bnb && item->value->kind == CKPT_V_FLOAT));
}

static void check_slot(ckpt__examination *p, const ckpt__doctor_group *g, const ckpt__doctor_slot *slot,
                       const optimizer_kind *kind)
{
    ckpt_str name = slot->param != SIZE_MAX ? p->index->tensors[slot->param].info.name : none;
    for (size_t k = 0; k < 4 && kind->early[k]; k++)
        if (!item_of(p, slot, kind->early[k]) && ckpt__doctor_bound(p, NULL, kind->early[k]))
            ckpt__doctor_note(p, k == 0 ? CKPT__NO_STEP : CKPT__NO_FACTOR, NULL, name, kind->early[k], NULL, NULL);
    for (size_t k = 0; k < 4 && kind->late[k]; k++)
        if (!item_of(p, slot, kind->late[k]) && ckpt__doctor_bound(p, NULL, kind->late[k]))
            ckpt__doctor_note(p, CKPT__NO_MOMENT, NULL, name,
                              ckpt__begins(kind->late[k], "__bnb") ? "state1" : kind->late[k], NULL, NULL);
    const char *step = kind->early[0] ? kind->early[0] : kind->late[0];
    if (step && is_no_step(item_of(p, slot, step), kind->bnb))
        ckpt__doctor_note(p, kind->bnb ? CKPT__BAD_STEP_LATER : CKPT__BAD_STEP, NULL, name, NULL, NULL, NULL);
    if (strcmp(kind->tells[0], "centered") != 0)
        return;
    if (ckpt__doctor_real(ckpt__doctor_hyper(p, g, "momentum", NULL)) > 0 && !item_of(p, slot, "momentum_buffer"))
        ckpt__doctor_note(p, CKPT__NO_MOMENT, NULL, name, "momentum_buffer", NULL, NULL);
    if (ckpt__doctor_real(ckpt__doctor_hyper(p, g, "centered", NULL)) != 0 && !item_of(p, slot, "grad_avg"))
        ckpt__doctor_note(p, CKPT__NO_MOMENT, NULL, name, "grad_avg", NULL, NULL);
}

/* What the fused and the foreach kernels refuse of the saved flags. */
static void check_kernels(ckpt__examination *p, const ckpt__doctor_group *g, const optimizer_kind *kind,
                          const char *group)
{
    static const char *const flags[] = {"maximize", "amsgrad", "nesterov"};
    bool differentiable = ckpt__doctor_real(ckpt__doctor_hyper(p, g, "differentiable", NULL)) != 0;
    bool sgd = strcmp(kind->tells[0], "dampening") == 0;
    if (kind->bnb)
        return;
    if (differentiable && g->fused == 1 && !sgd)
        ckpt__doctor_note(p, CKPT__DIFFERENTIABLE, NULL, none, "fused=True", group,
                          "RuntimeError (\"with fused=True does not support differentiable=True\")");
    else if (differentiable && g->foreach == 1 && !sgd)
        ckpt__doctor_note(p, CKPT__DIFFERENTIABLE, NULL, none, "foreach=True", group,
                          "AssertionError (\"_foreach ops don't support autograd\")");
    for (size_t k = 0; g->fused == 1 && k < sizeof flags / sizeof *flags; k++) {
        const ckpt_value *v = ckpt__doctor_hyper(p, g, flags[k], NULL);
        if (v && v->kind == CKPT_V_NONE)
            ckpt__doctor_note(p, CKPT__BAD_HYPER, NULL, none, flags[k], group,
                              "None, and the fused kernel wants True or False");
    }
}

/* __setstate__ sets these to False or 0 where a group does not say them: the state tells of some that they were not, and of nesterov
 * nothing does. */
static void check_defaulted(ckpt__examination *p, const ckpt__doctor_group *g, const optimizer_kind *kind,
                            const char *group)
{
    static const struct {
        const char *tells, *key, *state, *why;
    } rows[] = {{"amsgrad", "amsgrad", "max_exp_avg_sq", "its state has max_exp_avg_sq"},
                {"centered", "centered", "grad_avg", "its state has grad_avg"},
                {"centered", "momentum", "momentum_buffer", "its state has momentum_buffer"},
                {"dampening", "nesterov", NULL, "every torch writes it, and there is a momentum"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(kind->tells[0], rows[i].tells) != 0 || has(p, g, rows[i].key))
            continue;
        bool told = !rows[i].state && ckpt__doctor_real(ckpt__doctor_hyper(p, g, "momentum", NULL)) != 0;
        for (size_t s = g->first; s < g->first + g->count && rows[i].state && !told; s++)
            told = item_of(p, &p->slots[s], rows[i].state) != NULL;
        if (told)
            ckpt__doctor_note(p, CKPT__DEFAULTED_HYPER, NULL, none, rows[i].key, group, rows[i].why);
    }
}

/* Does the group lack what step() of this kind reads, or its state what load_state_dict or step() does? */
static bool lacks_some(const ckpt__examination *p, const ckpt__doctor_group *g, const optimizer_kind *kind)
{
    bool lacks = false;
    for (size_t k = 0; k < 6 && kind->hypers[k]; k++) {
        char first[80];
        snprintf(first, sizeof first, "%s.0", kind->hypers[k]);
        lacks = lacks || (!has(p, g, kind->hypers[k]) && (k >= kind->pairs || !has(p, g, first)));
    }
    for (size_t s = g->first; s < g->first + g->count; s++) {
        for (size_t k = 0; k < 4 && kind->early[k] && p->slots[s].count; k++)
            lacks = lacks || !item_of(p, &p->slots[s], kind->early[k]);
        for (size_t k = 0; k < 4 && kind->late[k] && p->slots[s].count; k++)
            lacks = lacks || !item_of(p, &p->slots[s], kind->late[k]);
    }
    return lacks;
}

bool ckpt__doctor_kind(ckpt__examination *p, const ckpt__doctor_group *g, bool *stateful)
{
    const ckpt__doctor_item *foreign = NULL;
    const optimizer_kind *kind = kind_of(p, g, &foreign);
    char group[24], shown[80];
    *stateful = kind && !foreign && (kind->early[0] || kind->late[0]);
    if (!kind)
        return false;
    snprintf(group, sizeof group, "%zu", (size_t)(g - p->groups));
    if (foreign && lacks_some(p, g, kind))
        ckpt__doctor_note(p, CKPT__CLASS_UNDECIDED, NULL, none,
                          ckpt__escape(shown, sizeof shown, foreign->key.data, foreign->key.size), group, kind->class);
    if (foreign)
        return false;
    check_hypers(p, g, kind, group);
    check_defaulted(p, g, kind, group);
    if (strcmp(kind->tells[0], "etas") != 0)
        check_number(p, g, "lr", group);
    check_kernels(p, g, kind, group);
    for (size_t s = g->first; s < g->first + g->count; s++)
        if (p->slots[s].count > 0)
            check_slot(p, g, &p->slots[s], kind);
    return true;
}
