/* doctor/steps.c - the numbers of a resume: step, lr, the scaler's scale; are they such that training goes on, and do they
 * agree with each other? Where they are tensors their few bytes are read, also where no other value is looked at. */
#include "doctor/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "examine/summary.h"
#include "model/nested.h"

static const ckpt_str none = {NULL, 0};
enum { CODED_MAX = 1 << 16 }; /* bytes of a compressed storage that are decoded for one number */

/* ---- one number */

static bool read_number(ckpt__examination *p, size_t tensor, double *number)
{
    const ckpt__tensor *whole = &p->index->tensors[tensor];
    const ckpt_tensor_info *t = &whole->info;
    bool read;
    ckpt_error why = CKPT_ERROR_INIT;
    size_t size = ckpt_dtype_size(t->dtype);
    if (size == 0 || t->nbytes != size || !whole->whole ||
        (t->extra && (t->extra->layout.data || t->extra->quantizer.data)))
        return false;
    const ckpt__extent *e = &p->index->storages[whole->storage].extent;
    if (e->coding != CKPT__STORED && e->size > CODED_MAX)
        return false;
    ckpt_status status =
        ckpt__read_number(p->reader->source, p->index, tensor, t->storage_nbytes == t->nbytes, number, &read, &why);
    if (status == CKPT_E_DAMAGED && !p->options->read_values)
        ckpt__doctor_note(p, CKPT__WRONG_BYTES, NULL, t->name, why.message, NULL, NULL);
    if (!p->options->read_values) {
        p->result->read_bytes += size;
        p->result->read_tensors++;
        p->result->checked_bytes +=
            ckpt__has_any_crc(ckpt__extent_known(p->index, whole->storage)) && t->storage_nbytes == t->nbytes ? size
                                                                                                              : 0;
    }
    return read;
}

bool ckpt__doctor_number(ckpt__examination *p, const ckpt_value *v, size_t tensor, double *number)
{
    if (tensor < p->index->tensor_count)
        return read_number(p, tensor, number);
    if (!v || (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT))
        return false;
    *number = v->kind == CKPT_V_INT ? (double)v->integer : v->real;
    return true;
}

/* As people write it: whole numbers without a point. */
static char *written(char *buf, double number)
{
    if (isfinite(number) && number == floor(number) && fabs(number) < 1e15)
        snprintf(buf, CKPT__DOUBLE_MAX, "%.0f", number);
    else
        ckpt__format_double(buf, number);
    return buf;
}

/* ---- step */

static const ckpt__doctor_item *item_of(const ckpt__examination *p, const ckpt__doctor_slot *slot, const char *key)
{
    for (size_t i = slot->first; i < slot->first + slot->count; i++)
        if (ckpt__str_is(p->items[i].key, key) && !p->items[i].nested)
            return &p->items[i];
    return NULL;
}

/* RMSprop, Adadelta and Rprop count steps and make nothing of them; Adagrad without lr_decay neither. */
static bool counts(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    static const char *const keys[] = {"exp_avg", "exp_avg_sq", "exp_inf", "sum", "ax", "exp_avg_sq_row"};
    const ckpt_value *decay = ckpt__doctor_hyper(p, &p->groups[slot->group], "lr_decay", NULL);
    bool number = decay && (decay->kind == CKPT_V_INT || decay->kind == CKPT_V_FLOAT);
    if (number && ckpt__doctor_real(decay) == 0 && item_of(p, slot, "sum") && !item_of(p, slot, "exp_avg"))
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (item_of(p, slot, keys[i]))
            return true;
    return false;
}

static void check_odd(ckpt__examination *p, const ckpt__doctor_slot *slot, double step)
{
    const ckpt__doctor_group *group = &p->groups[slot->group];
    const ckpt_value *amsgrad = ckpt__doctor_hyper(p, group, "amsgrad", NULL);
    ckpt_str name = slot->param != SIZE_MAX ? p->index->tensors[slot->param].info.name : none;
    char text[CKPT__DOUBLE_MAX];
    bool adam = amsgrad && item_of(p, slot, "exp_avg_sq") && group->fused != 1;
    if ((isfinite(step) && step >= 0) || !counts(p, slot))
        return;
    ckpt__doctor_note(p,
                      isnan(step)   ? CKPT__STEP_NAN
                      : isinf(step) ? CKPT__STEP_INF
                      : adam        ? CKPT__STEP_NEGATIVE
                                    : CKPT__STEP_BELOW_ZERO,
                      NULL, name, written(text, step),
                      step == -1
                          ? "ZeroDivisionError: float division by zero"
                          : "RuntimeError: result type ComplexFloat can't be cast to the desired output type Float",
                      NULL);
}

/* The steps of one optimizer's parameters; NAN where there is none. */
static void read_steps(ckpt__examination *p, size_t optimizer, double *steps)
{
    const ckpt__doctor_optimizer *o = &p->optimizers[optimizer];
    for (size_t i = o->first_slot; i < o->first_slot + o->slot_count; i++) {
        const ckpt__doctor_slot *slot = &p->slots[i];
        const ckpt__doctor_item *item = item_of(p, slot, "step");
        double step = 0;
        steps[i] = NAN;
        if (!item || !ckpt__doctor_number(p, item->value, item->tensor, &step))
            continue;
        check_odd(p, slot, step);
        if (isfinite(step))
            steps[i] = step;
    }
}

/* Are they the same all through each file, and not in all files? So are those of files of two saves; a module that was frozen has its
 * steps among the others'. */
static bool differ_by_file(const ckpt__examination *p, const ckpt__doctor_optimizer *o, const double *steps)
{
    const ckpt__index *x = p->index;
    const size_t files = p->reader->source->count;
    double *of = files > 1 ? calloc(files, sizeof *of) : NULL;
    bool same = of != NULL;
    for (size_t f = 0; same && f < files; f++)
        of[f] = NAN;
    for (size_t i = o->first_slot; same && i < o->first_slot + o->slot_count; i++) {
        const ckpt__doctor_item *item = isnan(steps[i]) ? NULL : item_of(p, &p->slots[i], "step");
        const ckpt__extent *e =
            item && item->tensor < x->tensor_count ? ckpt__first_extent(x, &x->tensors[item->tensor]) : NULL;
        if (!e)
            continue;
        const uint32_t file = e->file;
        same = file < files && (isnan(of[file]) || of[file] == steps[i]);
        if (same)
            of[file] = steps[i];
    }
    free(of);
    return same;
}

/* Do those that lag behind belong together? */
static void check_equal(ckpt__examination *p, size_t optimizer, const double *steps, bool *behind)
{
    double least = INFINITY, most = -INFINITY;
    uint64_t lag = 0, all = 0, used = 0;
    size_t first = SIZE_MAX;
    char a[CKPT__DOUBLE_MAX], b[CKPT__DOUBLE_MAX], c[80];
    const ckpt__doctor_optimizer *o = &p->optimizers[optimizer];
    for (size_t i = o->first_slot; i < o->first_slot + o->slot_count; i++) {
        behind[i] = false;
        if (isnan(steps[i]))
            continue;
        least = steps[i] < least ? steps[i] : least;
        most = steps[i] > most ? steps[i] : most;
        all++;
        used += counts(p, &p->slots[i]);
    }
    if (all == 0)
        return;
    p->step_least = p->steps_known && p->step_least < least ? p->step_least : least;
    p->step_most = p->steps_known && p->step_most > most ? p->step_most : most;
    p->steps_known = true;
    if (!(least < most))
        return;
    for (size_t i = o->first_slot; i < o->first_slot + o->slot_count; i++) {
        const ckpt__doctor_slot *slot = &p->slots[i];
        behind[i] = isnan(steps[i]) ? ckpt__doctor_stateless(p, slot) : steps[i] < most;
        lag += !isnan(steps[i]) && steps[i] < most;
        first = first == SIZE_MAX && !isnan(steps[i]) && steps[i] < most ? i : first;
    }
    snprintf(c, sizeof c, "%llu of %llu parameters", (unsigned long long)lag, (unsigned long long)all);
    size_t param = p->slots[first].param;
    ckpt__doctor_note(
        p,
        ckpt__doctor_whole(p, optimizer, behind) && !differ_by_file(p, o, steps) ? CKPT__STEPS_DIFFER_WHOLE
        : used                                                                   ? CKPT__STEPS_DIFFER
                                                                                 : CKPT__STEPS_DIFFER_UNUSED,
        NULL, param != SIZE_MAX ? p->index->tensors[param].info.name : none, written(a, least), written(b, most), c);
}

/* ---- lr */

static void check_lr(ckpt__examination *p)
{
    char text[CKPT__DOUBLE_MAX];
    for (size_t g = 0; g < p->group_count; g++) {
        bool tensor = false;
        double lr = 0;
        const ckpt_value *v = ckpt__doctor_hyper(p, &p->groups[g], "lr", &tensor);
        if (!v || p->groups[g].count == 0 ||
            !ckpt__doctor_number(p, v, tensor && v->kind == CKPT_V_TENSOR ? v->tensor : SIZE_MAX, &lr))
            continue;
        if (!isfinite(lr) || lr < 0)
            ckpt__doctor_note(p, CKPT__LR_ODD, NULL, none, written(text, lr),
                              lr < 0 && isfinite(lr) ? "every step goes the wrong way, and the loss rises"
                                                     : "the first step makes every weight NaN or infinite",
                              NULL);
        else if (lr == 0)
            ckpt__doctor_note(p, CKPT__LR_ZERO, NULL, none, NULL, NULL, NULL);
    }
}

/* ---- the scaler */

void ckpt__doctor_scale(ckpt__examination *p, const ckpt_value *scaler)
{
    const ckpt_value *v = ckpt_value_get(scaler, "scale");
    const double least = 1.0 / 16384; /* the least number that float16 holds in full precision */
    double scale = 0;
    char text[CKPT__DOUBLE_MAX];
    if (!v || !ckpt__doctor_number(p, v, v->kind == CKPT_V_TENSOR ? v->tensor : SIZE_MAX, &scale))
        return;
    written(text, scale);
    if (!isfinite(scale))
        ckpt__doctor_note(p, CKPT__SCALE_STUCK, NULL, none, text, NULL, NULL);
    else if (scale == 0)
        ckpt__doctor_note(p, CKPT__SCALE_ZERO, NULL, none, NULL, NULL, NULL);
    else if (scale > 0 && scale < least)
        ckpt__doctor_note(p, CKPT__SCALE_TINY, NULL, none, text, NULL, NULL);
}

/* ---- the steps of several files */

const ckpt_summary *ckpt__doctor_summary(ckpt__examination *p)
{
    if (!p->asked_summary)
        p->summed =
            ckpt__summarize_by(p->reader, p->index == p->reader->index ? p->anatomy : NULL, &p->summary, NULL) >= 0;
    p->asked_summary = true;
    return p->summed ? &p->summary : NULL;
}

int64_t ckpt__doctor_taken(ckpt__examination *p, const char **what)
{
    static const char *const names[] = {"step", "epoch"};
    size_t i;
    *what = "step";
    for (size_t k = 0; p->canon && k < 2; k++) {
        if (!ckpt__hash_get(p->canon->by_name, names[k], strlen(names[k]), &i))
            continue;
        const ckpt_value *v = p->canon->entries[i].value;
        if (p->canon->entries[i].is_tensor || !v || v->kind != CKPT_V_INT || (k == 1 && v->integer <= 0))
            continue;
        *what = names[k];
        return v->integer;
    }
    if (p->index->step >= 0)
        return p->index->step;
    const ckpt_summary *said =
        ckpt__doctor_summary(p); /* as `show` finds it: under the names that its producer keeps it */
    if (said && said->step < 0 && said->epoch > 0) {
        *what = "epoch";
        return said->epoch;
    }
    return said ? said->step : -1;
}

/* "checkpoint-500" -> 500; -1: another name. */
static int64_t number_of_path(const char *path)
{
    static const char prefix[] = "checkpoint-";
    size_t n = strlen(path);
    int64_t number;
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    if (n - from < sizeof prefix || memcmp(path + from, prefix, sizeof prefix - 1) != 0 ||
        !ckpt__parse_i64(path + from + sizeof prefix - 1, n - from - (sizeof prefix - 1), &number))
        return -1;
    return number;
}

/* The Trainer counts steps in trainer_state.json, and its scheduler and optimizer with it, but for steps that a scaler skips. */
static void check_trainer(ckpt__examination *p)
{
    const ckpt_value *root = p->index->root,
                     *state = root && root->kind == CKPT_V_DICT ? ckpt_value_get(root, "trainer_state.json") : NULL;
    const ckpt_value *said = state && state->kind == CKPT_V_DICT ? ckpt_value_get(state, "global_step") : NULL;
    char a[CKPT__DOUBLE_MAX], b[CKPT__DOUBLE_MAX], c[CKPT__DOUBLE_MAX];
    if (!said || said->kind != CKPT_V_INT)
        return;
    int64_t named = number_of_path(p->reader->path);
    double step = (double)said->integer;
    bool skips = p->has_scaler;
    written(c, step);
    if (named >= 0 && named != said->integer)
        ckpt__doctor_note(p, CKPT__STEP_OF_NAME, NULL, none, written(a, (double)named), c, NULL);
    if (p->steps_known && (p->step_most > step || (p->step_most < step && !skips)))
        ckpt__doctor_note(p, CKPT__STEP_OF_ANOTHER, NULL, none, "optimizer.pt", written(b, p->step_most), c);
    if (p->schedule_last >= 0 && ckpt_value_get(root, "scheduler.pt") &&
        (p->schedule_last > step || (p->schedule_last < step && !skips)))
        ckpt__doctor_note(p, CKPT__STEP_OF_ANOTHER, NULL, none, "scheduler.pt", written(b, p->schedule_last), c);
}

/* Lightning's global_step counts the steps of all optimizers; what the step of a file of one's own counts is not known. */
static void check_root(ckpt__examination *p)
{
    static const char *const keys[] = {"global_step", "step"};
    const ckpt_value *root = p->inner->root;
    char a[CKPT__DOUBLE_MAX], c[CKPT__DOUBLE_MAX];
    for (size_t i = 0; i < 2 && p->steps_known && root && root->kind == CKPT_V_DICT; i++) {
        const ckpt_value *v = ckpt_value_get(root, keys[i]);
        bool lightning = p->loader->loader == CKPT_LOADER_LIGHTNING;
        if (!v || v->kind != CKPT_V_INT || (lightning && i > 0) || !((double)v->integer < p->step_most))
            continue;
        written(a, p->step_most);
        written(c, (double)v->integer);
        if (lightning)
            ckpt__doctor_note(p, CKPT__STEP_OF_ANOTHER, NULL, none, "the optimizer's state", a, c);
        else
            ckpt__doctor_note(p, CKPT__STEP_OF_COUNT, NULL, none, a, keys[i], c);
        return;
    }
}

ckpt_status ckpt__doctor_steps(ckpt__examination *p)
{
    double *steps = ckpt__arena_array(p->arena, p->slot_count + 1, sizeof *steps);
    bool *behind = ckpt__arena_array(p->arena, p->slot_count + 1, sizeof *behind);
    if (!steps || !behind)
        return ckpt__fail_memory(p->err, "the steps of the parameters", p->slot_count);
    for (size_t o = 0; o < p->optimizer_count; o++) {
        read_steps(p, o, steps);
        check_equal(p, o, steps, behind);
    }
    check_lr(p);
    check_trainer(p);
    check_root(p);
    return CKPT_OK;
}
