/* doctor/schedule.c - what is at its end or in another mode when it is saved: schedules, loaders of data, optimizers that
 * train and evaluate with different weights. */
#include "doctor/facts.h"

#include <stdio.h>

static const ckpt_str none = {NULL, 0};

static bool number_at(ckpt__examination *p, const ckpt_value *dict, const char *key, double *number)
{
    const ckpt_value *v = ckpt_value_get(dict, key);
    return v && ckpt__doctor_number(p, v, v->kind == CKPT_V_TENSOR ? v->tensor : SIZE_MAX, number);
}

/* Of a SequentialLR those that its milestones have left behind are not stepped again. */
static void leave_behind(ckpt__examination *p, const ckpt_value *v)
{
    const ckpt_value *milestones = ckpt_value_get(v, "_milestones"), *all = ckpt_value_get(v, "_schedulers");
    double last = 0, at = 0;
    if (!milestones || milestones->kind != CKPT_V_LIST || !all || all->kind != CKPT_V_LIST ||
        !number_at(p, v, "last_epoch", &last))
        return;
    for (size_t i = 0;
         i < milestones->item_count && i < all->item_count && p->idle_count < sizeof p->idle / sizeof *p->idle; i++)
        if (ckpt__doctor_number(p, milestones->items[i], SIZE_MAX, &at) && at <= last)
            p->idle[p->idle_count++] = all->items[i];
}

static bool is_idle(const ckpt__examination *p, const ckpt_value *v)
{
    for (size_t i = 0; i < p->idle_count; i++)
        if (p->idle[i] == v)
            return true;
    return false;
}

/* Schedules that end, and what lr is from there. */
static void check_end(ckpt__examination *p, const ckpt__node *node, double last)
{
    const ckpt_value *v = node->value;
    double end = 0, factor = 1, least = 0;
    char at[40];
    const char *what = NULL, *then = "lr is 0 from here on, and nothing is learned";
    bool iters = number_at(p, v, "total_iters", &end);
    if (iters && number_at(p, v, "end_factor", &factor) && factor == 0)
        what = "LinearLR";
    else if (iters && ckpt_value_get(v, "power"))
        what = "PolynomialLR";
    else if (number_at(p, v, "T_max", &end) && number_at(p, v, "eta_min", &least)) {
        what = "CosineAnnealingLR";
        then = least == 0 ? "lr is 0 at the next step, and rises again from there"
                          : "lr is at its least, and rises again from here";
    }
    if (!what || last < end)
        return;
    snprintf(at, sizeof at, "step %.0f of %.0f", last, end);
    ckpt__doctor_note(p, CKPT__SCHEDULE_ENDED, NULL, node->name, what, at, then);
}

void ckpt__doctor_schedule(ckpt__examination *p, const ckpt__node *node)
{
    const ckpt_value *v = node->value;
    double last = 0, total = 0;
    char next[40], most[40];
    if (!p->loader->python || !ckpt_value_get(v, "last_epoch"))
        return;
    leave_behind(p, v);
    if (!number_at(p, v, "last_epoch", &last) || is_idle(p, v))
        return;
    bool one_cycle = ckpt_value_get(v, "_schedule_phases") || ckpt_value_get(v, "_anneal_func_type") ||
                     ckpt_value_get(v, "anneal_func");
    p->schedule_last = last > p->schedule_last ? last : p->schedule_last;
    if (!one_cycle || !number_at(p, v, "total_steps", &total)) {
        check_end(p, node, last);
        return;
    }
    if (last < total)
        return;
    snprintf(next, sizeof next, "%.0f", last + 1);
    snprintf(most, sizeof most, "%.0f", total);
    ckpt__doctor_note(p, CKPT__SCHEDULE_OVER, NULL, node->name, next, most, NULL);
}

/* What torchdata's StatefulDataLoader saves differs with its workers. */
void ckpt__doctor_data_loader(ckpt__examination *p, const ckpt__node *node, unsigned evidence)
{
    double workers = 0;
    char count[40];
    const ckpt_value *snapshot = ckpt_value_get(node->value, "_snapshot");
    if (evidence == CKPT__WITHOUT_WORKERS) {
        ckpt__doctor_note(p, CKPT__DATA_WORKERS, NULL, node->name, "no workers", NULL, NULL);
    } else if (number_at(p, ckpt_value_get(snapshot, "_main_snapshot"), "_num_workers", &workers)) {
        snprintf(count, sizeof count, "%.0f worker%s", workers, workers == 1 ? "" : "s");
        ckpt__doctor_note(p, CKPT__DATA_WORKERS, NULL, node->name, count, NULL, NULL);
    }
}

/* schedulefree keeps in its groups whether it trains; saved between eval() and train() the weights are the averaged ones. */
void ckpt__doctor_modes(ckpt__examination *p)
{
    for (size_t i = 0; i < p->group_count; i++) {
        const ckpt_value *group = p->groups[i].dict, *mode = group ? ckpt_value_get(group, "train_mode") : NULL;
        if (mode && mode->kind == CKPT_V_BOOL && !mode->boolean && ckpt_value_get(group, "weight_sum"))
            ckpt__doctor_note(p, CKPT__EVAL_MODE, NULL, none, NULL, NULL, NULL);
    }
}
