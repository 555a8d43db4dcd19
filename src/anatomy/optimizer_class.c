/* anatomy/optimizer_class.c - the table of optimizers, and its two questions. */
#include "anatomy/optimizer_class.h"

/* The first row that fits is taken. LBFGS takes a closure, and both Adafactors take settings that only the program knows. */
/* clang-format off */
static const ckpt__optimizer_class rows[] = {
    { "Muon", "Muon", "ns_steps ns_coefficients", "", NULL, NULL },
    { "NAdam", "NAdam", "betas momentum_decay", "", NULL, "momentum_decay" },
    { "SGD", "SGD", "momentum dampening nesterov", "", NULL, "nesterov" },
    { "RMSprop", "RMSprop", "alpha centered", "betas", NULL, "centered" },
    { "Adadelta", "Adadelta", "rho", "betas", NULL, "rho" },
    { "Adagrad", "Adagrad", "lr_decay initial_accumulator_value", "", NULL, "lr_decay" },
    { "ASGD", "ASGD", "lambd alpha t0", "", NULL, "lambd" },
    { "Rprop", "Rprop", "etas step_sizes", "", NULL, "etas" },
    { "LBFGS", NULL, "max_iter max_eval history_size", "", NULL, NULL },
    { "Adafactor", NULL, "beta2_decay d", "", NULL, NULL },
    { "Adafactor (transformers)", NULL, "scale_parameter relative_step warmup_init", "", NULL, NULL },
    { "AdamW", "AdamW", "betas eps amsgrad decoupled_weight_decay=True", "", NULL, NULL },
    { "Adam", "Adam", "betas eps amsgrad decoupled_weight_decay=False", "", NULL, "betas amsgrad decoupled_weight_decay=False" },
    { "Adam or AdamW", "AdamW", "betas eps amsgrad",
      "decoupled_weight_decay momentum_decay grad_averaging decoupled_decay rectify weight_decouple nus", NULL, "betas amsgrad" },
    { "RAdam", "RAdam", "betas eps decoupled_weight_decay capturable", "amsgrad momentum_decay", NULL, "betas decoupled_weight_decay" },
    { "Adamax", "Adamax", "betas eps", "amsgrad", "exp_inf", "betas" },
    { "SparseAdam", "SparseAdam", "betas eps maximize", "weight_decay amsgrad", NULL, NULL },
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof *rows };

static bool has_word(const ckpt__optimizer_facts *facts, const char *word, size_t n)
{
    char key[64];
    const char *wanted = memchr(word, '=', n);
    size_t size = wanted ? (size_t)(wanted - word) : n;
    const ckpt_value *v = NULL;
    if (size >= sizeof key)
        return false;
    memcpy(key, word, size);
    key[size] = '\0';
    return facts->setting(facts->ctx, key, &v) &&
           (!wanted || (v && v->kind == CKPT_V_BOOL && v->boolean == (wanted[1] == 'T')));
}

static bool hold(const ckpt__optimizer_facts *facts, const char *words, bool all)
{
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        if (has_word(facts, at, n) != all)
            return !all;
        at += n + (at[n] == ' ');
    }
    return all;
}

const ckpt__optimizer_class *ckpt__optimizer_class_by(const ckpt__optimizer_facts *facts)
{
    for (size_t i = 0; i < ROWS; i++)
        if (hold(facts, rows[i].all, true) && !hold(facts, rows[i].none, false) &&
            (!rows[i].state || facts->state(facts->ctx, rows[i].state)))
            return &rows[i];
    return NULL;
}

const char *ckpt__optimizer_constructor(const ckpt__optimizer_facts *facts)
{
    const ckpt__optimizer_class *class = ckpt__optimizer_class_by(facts);
    for (size_t i = 0; !class && i < ROWS; i++)
        if (rows[i].some && hold(facts, rows[i].some, true))
            class = &rows[i];
    return class ? class->constructor : NULL;
}

static bool in_dict(void *ctx, const char *key, const ckpt_value **value)
{
    *value = ckpt_value_get(ctx, key);
    return *value != NULL;
}

bool ckpt__words_hold(const ckpt_value *dict, const char *words, bool all)
{
    ckpt__optimizer_facts facts = {in_dict, NULL, (void *)(uintptr_t)dict};
    return hold(&facts, words, all);
}
