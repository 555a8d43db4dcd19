/* Classes of optimizers by the settings of their groups. */
#include "anatomy/optimizer_class.h"
#include "../runner.h"

static ckpt__index *ix;

static const ckpt_value *number(int64_t n)
{
    return ckpt__value_int(ix->arena, n);
}

static const ckpt_value *word(const char *text)
{
    return ckpt__value_str(ix->arena, text, strlen(text));
}

static ckpt_value *dict_of(const char *key, const ckpt_value *value, const char *second, const ckpt_value *other)
{
    ckpt_entry entries[2] = {{word(key), value}, {second ? word(second) : NULL, other}};
    return ckpt__value_dict(ix->arena, entries, second ? 2 : 1);
}

static void make_index(void)
{
    ix = ckpt__index_new(0);
}

static void free_index(void)
{
    ckpt__index_free(ix);
}

static bool in_group(void *ctx, const char *key, const ckpt_value **value)
{
    *value = ckpt_value_get(ctx, key);
    return *value != NULL;
}

static bool keeps_exp_inf(void *ctx, const char *key)
{
    return ckpt_value_get(ctx, "exp_inf") && strcmp(key, "exp_inf") == 0;
}

START_TEST(classes)
{
    static const struct {
        const char *settings, *name, *constructor; /* words; the value of each is False */
    } cases[] = {
        {"betas eps amsgrad", "Adam or AdamW", "AdamW"},
        {"betas eps amsgrad decoupled_weight_decay", "Adam", "Adam"},
        {"momentum dampening nesterov", "SGD", "SGD"},
        {"momentum nesterov ns_steps ns_coefficients eps", "Muon", "Muon"}, /* it has nesterov, and is no SGD */
        {"betas eps maximize", "SparseAdam", "SparseAdam"},                 /* it has no amsgrad, and is no Adamax */
        {"betas eps weight_decay exp_inf", "Adamax", "Adamax"},
        {"betas eps decoupled_weight_decay capturable", "RAdam", "RAdam"},
        {"max_iter max_eval history_size", "LBFGS", NULL},
        {"beta2_decay d", "Adafactor", NULL},
        {"nesterov", NULL, "SGD"}, /* a program left settings out: it can be constructed nevertheless */
        {"lr_decay", NULL, "Adagrad"},
        {"betas amsgrad decoupled_weight_decay", NULL, "Adam"},
        {"betas amsgrad", NULL, "AdamW"},
        {"betas decoupled_weight_decay", NULL, "RAdam"},
        {"betas weight_decay", NULL, "Adamax"},
        {"momentum", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_entry entries[8];
        size_t n = 0;
        for (const char *at = cases[i].settings; *at; n++) {
            size_t size = strcspn(at, " ");
            entries[n] = (ckpt_entry){ckpt__value_str(ix->arena, at, size), ckpt__value_bool(ix->arena, false)};
            at += size + (at[size] == ' ');
        }
        ckpt_value *dict = ckpt__value_dict(ix->arena, entries, n);
        ckpt__optimizer_facts facts = {in_group, keeps_exp_inf, dict};
        const ckpt__optimizer_class *class = ckpt__optimizer_class_by(&facts);
        ck_assert_pstr_eq(class ? class->name : NULL, cases[i].name);
        ck_assert_pstr_eq(ckpt__optimizer_constructor(&facts), cases[i].constructor);
    }
    const ckpt_value *group = dict_of("a", ckpt__value_bool(ix->arena, true), "b", number(1));
    ck_assert(ckpt__words_hold(group, "a=True b", true) && !ckpt__words_hold(group, "a=False b", true) &&
              !ckpt__words_hold(group, "a c", true));
    ck_assert(ckpt__words_hold(group, "c a=True", false) && !ckpt__words_hold(group, "c a=False b=True", false));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("optimizer_class");
    TCase *t = tcase_create("optimizer_class");
    tcase_add_checked_fixture(t, make_index, free_index);
    tcase_add_test(t, classes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
