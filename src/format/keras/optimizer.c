/* format/keras/optimizer.c - the variables of an optimizer of Keras 3 lie in the order in which its build() makes them
 * (keras/src/optimizers): iteration; learning_rate, unless a schedule computes it; then rounds over the trainable variables.
 * One round of Adam makes momentum and velocity of each, a second one velocity_hat (amsgrad). */
#include "format/keras/optimizer.h"

#include <stdlib.h>

enum { ROUNDS = 3, KEYS = 2, WAYS = 4, BEFORE = 2 };

/* A class, and the ways in which it may have been set. */
static const struct class_row {
    const char *names; /* in lower case, a blank between */
    struct way {
        const char *when;                 /* a setting that must hold for this way; NULL: none does */
        const char *rounds[ROUNDS][KEYS]; /* the keys of a round */
    } ways[WAYS];
} classes[] = {
    {"adam adamw nadam lamb",
     {{NULL, {{"momentum", "velocity"}}}, {"amsgrad", {{"momentum", "velocity"}, {"velocity_hat"}}}}},
    {"adamax", {{NULL, {{"momentum", "norm"}}}}},
    {"sgd", {{NULL, {{NULL}}}, {"momentum", {{"momentum"}}}}},
    {"rmsprop",
     {{NULL, {{"velocity"}}},
      {"momentum", {{"velocity"}, {"momentum"}}},
      {"centered", {{"velocity"}, {"average_gradient"}}},
      {"momentum centered", {{"velocity"}, {"momentum"}, {"average_gradient"}}}}},
    {"adagrad", {{NULL, {{"accumulator"}}}}},
    {"adadelta", {{NULL, {{"accumulated_grad", "accumulated_delta_var"}}}}},
    {"lion", {{NULL, {{"momentum"}}}}},
    {"ftrl", {{NULL, {{"accumulator", "linear"}}}}},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* The row of "Adam", or of the name that Keras gives it: "adam", "adam_1". */
static const struct class_row *row_of(ckpt_str name)
{
    char lower[24];
    size_t n = name.size, digits = n;
    while (digits > 0 && name.data[digits - 1] >= '0' && name.data[digits - 1] <= '9')
        digits--;
    if (digits < n && digits > 0 && name.data[digits - 1] == '_')
        n = digits - 1;
    if (!name.data || n == 0 || n >= sizeof lower)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        char c = name.data[i];
        lower[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    for (size_t i = 0; i < CLASSES; i++)
        if (ckpt__str_among((ckpt_str){lower, n}, classes[i].names))
            return &classes[i];
    return NULL;
}

ckpt_role ckpt__keras_slot_role(ckpt_str optimizer, ckpt_str key)
{
    const struct class_row *row = row_of(optimizer);
    bool adam = row == &classes[0] || row == &classes[1], momentum = ckpt__str_among(key, "momentum m");
    if (ckpt__str_among(key, "average"))
        return CKPT_ROLE_EMA;
    if (ckpt__str_among(key, "gradient_accumulator"))
        return CKPT_ROLE_GRAD;
    if (adam && momentum)
        return CKPT_ROLE_EXP_AVG;
    if (row == &classes[0] && ckpt__str_among(key, "velocity v"))
        return CKPT_ROLE_EXP_AVG_SQ;
    if (row == &classes[0] && ckpt__str_among(key, "velocity_hat vhat"))
        return CKPT_ROLE_MAX_EXP_AVG_SQ;
    return row && momentum ? CKPT_ROLE_MOMENTUM : CKPT_ROLE_OPTIM;
}

/* ---- settings */

/* Is it there, and neither false, nor 0, nor null? -1: there are no settings. */
static int is_set(const ckpt_value *settings, const char *name)
{
    const ckpt_value *v = settings ? ckpt_value_get(settings, name) : NULL;
    if (!settings)
        return -1;
    return v && ((v->kind == CKPT_V_BOOL && v->boolean) || (v->kind == CKPT_V_INT && v->integer != 0) ||
                 (v->kind == CKPT_V_FLOAT && v->real != 0));
}

/* Do the settings ask for this way, and for no more? */
static bool is_asked(const struct class_row *row, const struct way *way, const ckpt_value *settings)
{
    static const char *const all[] = {"amsgrad", "momentum", "centered"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool matters = false;
        for (size_t w = 0; w < WAYS; w++)
            matters = matters || (row->ways[w].when && ckpt__str_among(ckpt__s(all[i]), row->ways[w].when));
        int set = matters ? is_set(settings, all[i]) : -1;
        if (set >= 0 && set != (way->when && ckpt__str_among(ckpt__s(all[i]), way->when)))
            return false;
    }
    return true;
}

/* ---- shapes */

/* What was found so far. */
typedef struct finder {
    ckpt__index *index;
    const size_t *order;
    size_t count, begin, end;                /* of order: the rounds are [begin, end) */
    const char *keys[BEFORE + ROUNDS][KEYS]; /* of the way that is tried, with what every class can have before it */
    size_t rounds;
} finder;

static const ckpt_tensor_info *info(const finder *f, size_t i)
{
    return &f->index->tensors[f->order[i]].info;
}

static bool same_shape(const finder *f, size_t a, size_t b)
{
    const ckpt_tensor_info *x = info(f, a), *y = info(f, b);
    return ckpt__same_shape(x->shape, x->ndim, y->shape, y->ndim);
}

static size_t key_count(const finder *f, size_t round)
{
    return f->keys[round][0] == NULL ? 0 : f->keys[round][1] == NULL ? 1 : 2;
}

/* How many parameters, if the rounds are these; 0: their shapes contradict it. */
static size_t fit(const finder *f)
{
    size_t each = 0, have = f->end - f->begin, at = f->begin;
    for (size_t r = 0; r < f->rounds; r++)
        each += key_count(f, r);
    if (each == 0 || have % each != 0)
        return 0;
    size_t params = have / each, step = key_count(f, 0);
    for (size_t r = 0; r < f->rounds; r++)
        for (size_t i = 0; i < params; i++)
            for (size_t k = 0; k < key_count(f, r); k++, at++)
                if (!same_shape(f, at, f->begin + i * step))
                    return 0;
    return params;
}

static void take_way(finder *f, const struct way *way, bool average, bool accumulates)
{
    memset(f->keys, 0, sizeof f->keys);
    f->rounds = 0;
    if (average)
        f->keys[f->rounds++][0] = "average";
    if (accumulates)
        f->keys[f->rounds++][0] = "gradient_accumulator";
    for (size_t r = 0; r < ROUNDS && way->rounds[r][0]; r++)
        memcpy(f->keys[f->rounds++], way->rounds[r], sizeof f->keys[0]);
}

/* The one way that fits; without settings all are tried. False: none does, or several. */
static bool find_way(finder *f, const struct class_row *row, const ckpt_value *settings, size_t *params)
{
    enum { BOTH = 4 }; /* with an average, with sums of gradients, with both, without */
    int average = is_set(settings, "use_ema"), sums = is_set(settings, "gradient_accumulation_steps");
    finder found = {.rounds = 0};
    for (size_t w = 0; w < WAYS && (w == 0 || row->ways[w].when); w++) {
        for (int i = 0; i < BOTH && is_asked(row, &row->ways[w], settings); i++) {
            bool with_average = i & 1, with_sums = i & 2;
            if ((average >= 0 && with_average != average) || (sums >= 0 && with_sums != sums))
                continue;
            take_way(f, &row->ways[w], with_average, with_sums);
            if (fit(f) == 0)
                continue;
            if (found.rounds)
                return false;
            found = *f;
        }
    }
    if (!found.rounds)
        return false;
    *f = found;
    *params = fit(f);
    return true;
}

/* ---- what is given */

static void give(const finder *f, size_t i, const char *key, ckpt_str optimizer)
{
    ckpt_tensor_info *t = &f->index->tensors[f->order[i]].info;
    t->state_key = ckpt__s(key);
    t->role = ckpt__keras_slot_role(optimizer, t->state_key);
}

static bool is_scalar(const finder *f, size_t i, bool real)
{
    return i < f->count && info(f, i)->ndim == 0 && ckpt_dtype_is_float(info(f, i)->dtype) == real;
}

static void give_rounds(const finder *f, size_t params, ckpt_str optimizer, ckpt__keras_slots *out)
{
    size_t at = f->begin, step = key_count(f, 0);
    for (size_t r = 0; r < f->rounds; r++)
        for (size_t i = 0; i < params; i++)
            for (size_t k = 0; k < key_count(f, r); k++, at++) {
                give(f, at, f->keys[r][k], optimizer);
                out->owner[at] = i;
            }
    for (size_t i = 0; i < params; i++)
        out->first[i] = f->order[f->begin + i * step];
    out->count = params;
}

ckpt_status ckpt__keras_find_slots(ckpt__index *index, const size_t *order, size_t count, const ckpt_value *config,
                                   ckpt_str name, ckpt__keras_slots *out, ckpt_error *err)
{
    finder f = {.index = index, .order = order, .count = count, .end = count};
    const ckpt_value *class = config ? ckpt_value_get(config, "class_name") : NULL;
    const ckpt_value *settings = config ? ckpt_value_get(config, "config") : NULL;
    const ckpt_value *rate = settings ? ckpt_value_get(settings, "learning_rate") : NULL;
    ckpt_str optimizer = class && class->kind == CKPT_V_STR ? class->text : name;
    const struct class_row *row = row_of(optimizer);
    size_t params = 0;
    *out = (ckpt__keras_slots){.first = calloc(count + 1, sizeof *out->first),
                               .owner = calloc(count + 1, sizeof *out->owner)};
    if (!out->first || !out->owner)
        return ckpt__fail_memory(err, "the variables of an optimizer", count);
    memset(out->owner, 0xFF, (count + 1) * sizeof *out->owner);
    for (size_t i = 0; i < count; i++)
        index->tensors[order[i]].info.role = CKPT_ROLE_OPTIM;
    if (!is_scalar(&f, 0, false))
        return CKPT_OK; /* none that Keras wrote */
    give(&f, f.begin++, "iteration", optimizer);
    if (is_scalar(&f, 1, true) && (!rate || rate->kind == CKPT_V_FLOAT || rate->kind == CKPT_V_INT))
        give(&f, f.begin++, "learning_rate", optimizer);
    if (row && ckpt__str_is(ckpt__s(row->names), classes[0].names) && (f.end - f.begin) % 2 == 1 &&
        is_scalar(&f, f.end - 1, true) && ckpt__str_holds_nocase(optimizer, "nadam"))
        give(&f, --f.end, "u_product", optimizer);
    if (row && f.begin < f.end && find_way(&f, row, settings, &params))
        give_rounds(&f, params, optimizer, out);
    return CKPT_OK;
}
