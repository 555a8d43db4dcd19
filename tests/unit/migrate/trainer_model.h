/* migrate/trainer_model.h - three parameters with Adam's states, as a trainer in C saves them, for the targets that trainers resume from. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H
#include "bound_adam.h"

enum { N = 3, RNG = 3 };
static const char *const names[N] = {"b.weight", "a.weight", "c.bias"}; /* the order of the groups */
static float params[N][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, m[N][4] = {{.5f}, {.25f}, {.125f}}, v[N][4];
static float masters[N][4] = {{1.1f}, {2.2f}, {3.3f}};
static uint16_t halves[N][4];
static int64_t step = 7, last_epoch = 7, extra = 3, seeds[RNG] = {11, 12, 13};
static double lr = 0.5, decay[2] = {0.25, 0};

typedef struct what {
    bool half, no_optimizer, no_scheduler, extra, setting;
    size_t ranks;               /* with random states */
    const char *epoch_texts[2]; /* of the root, and of the Trainer's state */
    double epochs[2];           /* the same; 0: none */
} what;

static void save(const char *path, what w)
{
    ckpt_state *s = ckpt_state_new();
    ckpt_save_options to = CKPT_SAVE_OPTIONS_INIT;
    char key[80], texts[2][20];
    to.no_sync = true;
    for (size_t i = 0; i < N; i++) {
        const bool moments = !w.no_optimizer;
        bind_adam(s, names[i],
                  (adam){params[i], w.half && moments ? masters[i] : NULL, moments ? m[i] : NULL, moments ? v[i] : NULL,
                         w.half ? halves[i] : NULL});
    }
    if (!w.no_optimizer) {
        bind_group(s, "0", names, 2, &lr, &decay[0]);
        bind_group(s, "1", names + 2, 1, &lr, &decay[1]);
    }
    if (!w.no_scheduler)
        OK(ckpt_state_i64(s, "scheduler.last_epoch", &last_epoch, &err));
    static const char *const keys[] = {"python", "numpy", "cpu"};
    for (size_t r = 0; r < w.ranks; r++)
        for (size_t k = 0; k < 3; k++) {
            snprintf(key, sizeof key, "rng_%zu.%s", r, keys[k]);
            OK(ckpt_state_i64(s, key, &seeds[r], &err));
        }
    OK(ckpt_state_i64(s, "step", &step, &err));
    if (w.setting)
        OK(ckpt_state_f64(s, "optimizer.scale", &lr, &err));
    static const char *const epoch_keys[] = {"epoch", "trainer_state.epoch"};
    for (size_t i = 0; i < 2; i++) {
        if (w.epoch_texts[i])
            OK(ckpt_state_string(s, epoch_keys[i], strcpy(texts[i], w.epoch_texts[i]), sizeof texts[i], &err));
        else if (w.epochs[i])
            OK(ckpt_state_f64(s, epoch_keys[i], &w.epochs[i], &err));
    }
    if (w.extra)
        OK(ckpt_state_i64(s, "extra", &extra, &err));
    OK(ckpt_save(s, path, &to, &err));
    ckpt_state_free(s);
}

static void holds(ckpt_reader *r, const char *name, const float *want)
{
    float is[4] = {0};
    size_t i;
    OK(ckpt_reader_find(r, name, strlen(name), &i, &err));
    ck_assert_msg(ckpt_reader_tensor(r, i)->dtype == CKPT_F32, "%s", name);
    OK(ckpt_reader_read(r, i, is, sizeof is, &err));
    ck_assert_msg(memcmp(is, want, sizeof is) == 0, "%s has other values", name);
}

/* Is there a finding of that code with such words? */
static bool is_said(const char *code, const char *part)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (strcmp(f->code, code) == 0 && strstr(f->message, part))
            return true;
    }
    return false;
}
#endif
