/* doctor/whole.c - what is there in part: an optimizer's dict without one of its keys, a model that holds fewer tensors
 * than its optimizer has parameters, states of generators, schedulers and scalers that do not load. */
#include "doctor/facts.h"

#include <stdio.h>

static const ckpt_str none = {NULL, 0};

static ckpt_str last_key(const ckpt_visit *visit, size_t back)
{
    size_t n = visit->path.count;
    return n > back ? visit->path.keys[n - 1 - back].text : none;
}

/* ---- an optimizer's dict */

static bool is_state(const ckpt_value *state)
{
    bool tensors = false;
    if (state->kind != CKPT_V_DICT)
        return false;
    for (size_t i = 0; i < state->entry_count; i++) {
        const ckpt_value *of = state->entries[i].value;
        if (of->kind != CKPT_V_DICT)
            return false;
        for (size_t k = 0; k < of->entry_count; k++) {
            const ckpt_value *item = of->entries[k].value; /* bitsandbytes keeps them in a dict */
            tensors =
                tensors || item->kind == CKPT_V_TENSOR ||
                (item->kind == CKPT_V_DICT && item->entry_count > 0 && item->entries[0].value->kind == CKPT_V_TENSOR);
        }
    }
    return tensors;
}

/* How many of the groups have parameters; SIZE_MAX: they are no groups. */
static size_t with_params(const ckpt_value *groups)
{
    size_t n = 0;
    if (groups->kind != CKPT_V_LIST || groups->item_count == 0)
        return SIZE_MAX;
    for (size_t i = 0; i < groups->item_count; i++) {
        if (groups->items[i]->kind != CKPT_V_DICT)
            return SIZE_MAX;
        const ckpt_value *params = ckpt_value_get(groups->items[i], "params");
        n += params && params->kind == CKPT_V_LIST;
    }
    return n;
}

static void look_at_optimizer(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *state = ckpt_value_get(visit->value, "state"),
                     *groups = ckpt_value_get(visit->value, "param_groups");
    char name[160];
    ckpt_str key = last_key(visit, 0);
    bool called = ckpt__str_holds_nocase(key.data ? key : last_key(visit, 1), "opt");
    size_t with = groups ? with_params(groups) : SIZE_MAX;
    const char *missing = NULL;
    if (groups && with != SIZE_MAX && state && state->kind == CKPT_V_DICT && with < groups->item_count)
        missing = "params";
    else if (!state && groups && with != SIZE_MAX && with > 0)
        missing = "state";
    else if (!groups && state && called && is_state(state))
        missing = "param_groups";
    if (!missing)
        return;
    p->broken_optimizer = true;
    ckpt__escape(name, sizeof name, visit->name.data, visit->name.size);
    ckpt__doctor_note(p, CKPT__OPTIMIZER_KEY, NULL, none, missing, *name ? name : "the root", NULL);
}

/* ---- schedulers */

static const char *const scheduler_keys[] = {
    "base_lrs", "last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial", "verbose"};

static bool only_common(const ckpt_value *v)
{
    for (size_t i = 0; i < v->entry_count; i++) {
        bool common = false;
        for (size_t k = 0; k < sizeof scheduler_keys / sizeof *scheduler_keys && v->entries[i].key->kind == CKPT_V_STR;
             k++)
            common = common || ckpt__str_is(v->entries[i].key->text, scheduler_keys[k]);
        if (!common)
            return false;
    }
    return true;
}

static void look_at_scheduler(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value, *lrs = ckpt_value_get(v, "base_lrs");
    char have[24], want[24];
    size_t common = 0;
    for (size_t k = 0; k < 5; k++)
        common += ckpt_value_get(v, scheduler_keys[k]) != NULL;
    if (common < 3 && !(ckpt_value_get(v, "_schedulers") && ckpt_value_get(v, "_milestones")))
        return;
    bool epoch = ckpt_value_get(v, "last_epoch") != NULL, exponential = ckpt_value_get(v, "gamma") &&
                                                                        !ckpt_value_get(v, "step_size") &&
                                                                        !ckpt_value_get(v, "milestones");
    p->has_scheduler = true;
    if (!epoch && !exponential) /* ExponentialLR goes from one lr to the next */
        ckpt__doctor_note(p, CKPT__SCHEDULER_EPOCH, NULL, visit->name, "last_epoch", NULL, NULL);
    if (ckpt_value_get(v, "T_0") && !ckpt_value_get(v, "T_cur"))
        ckpt__doctor_note(p, CKPT__SCHEDULER_EPOCH, NULL, visit->name, "T_cur", NULL, NULL);
    if (common == 5 && only_common(v))
        ckpt__doctor_note(p, CKPT__SCHEDULER_LAMBDAS, NULL, visit->name, NULL, NULL, NULL);
    bool cyclic = ckpt_value_get(v, "max_lrs") != NULL,
         zips = cyclic || ckpt_value_get(v, "lr_lambdas") || ckpt_value_get(v, "T_0");
    if (p->optimizer_count != 1 || !zips || !lrs || lrs->kind != CKPT_V_LIST || lrs->item_count == p->group_count ||
        lrs->item_count == 0)
        return;
    snprintf(have, sizeof have, "%zu", lrs->item_count);
    snprintf(want, sizeof want, "%zu", p->group_count);
    ckpt__doctor_note(p, CKPT__SCHEDULER_LRS, NULL, visit->name, have, want,
                      (lrs->item_count > p->group_count) != cyclic ? "longer" : "shorter");
}

/* ---- scalers and generators */

static void look_at_scaler(ckpt__examination *p, const ckpt_visit *visit)
{
    static const char *const keys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                       "_growth_tracker"};
    size_t count = sizeof keys / sizeof *keys, have = 0, first = count;
    for (size_t k = count; k-- > 0;) {
        bool there = ckpt_value_get(visit->value, keys[k]) != NULL;
        have += there;
        first = there ? first : k;
    }
    if (have < 3 || first == count)
        return;
    p->has_scaler = p->scaler_enabled = true;
    ckpt__doctor_note(p, CKPT__SCALER_PART, NULL, visit->name, keys[first], NULL, NULL);
}

/* The CPU generator's state where programs keep it. CUDA's are of 16 bytes. */
static void look_at_generator(ckpt__examination *p, const ckpt_visit *visit)
{
    static const char *const keys[] = {"torch",           "cpu",           "torch_manual_seed",
                                       "torch_rng_state", "cpu_rng_state", "rng_state"};
    const ckpt_value *v = visit->value;
    ckpt_str key = last_key(visit, 0);
    char text[160];
    bool known = false;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && key.data; k++)
        known = known || ckpt__str_is(key, keys[k]);
    if (!known || !(ckpt__str_holds_nocase(visit->name, "rng") || ckpt__str_holds_nocase(visit->name, "random")) ||
        ckpt__str_holds_nocase(visit->name, "cuda") || ckpt__str_holds_nocase(visit->name, "gpu"))
        return;
    if (v->kind == CKPT_V_LIST && v->item_count > 1000 && v->items[0]->kind == CKPT_V_INT) {
        ckpt__doctor_note(p, CKPT__RNG_KIND, NULL, visit->name,
                          "TypeError (\"expected a torch.ByteTensor, but got list\")", NULL, NULL);
        return;
    }
    if (v->kind != CKPT_V_TENSOR || v->tensor >= p->index->tensor_count)
        return;
    const ckpt_tensor_info *t = &p->index->tensors[v->tensor].info;
    uint64_t numbers = 1;
    for (uint32_t d = 0; d < t->ndim; d++)
        numbers *= (uint64_t)t->shape[d]; /* the reader has found that it fits */
    if (t->dtype != CKPT_U8)
        snprintf(text, sizeof text, "TypeError (\"RNG state must be a torch.ByteTensor\")");
    else if (numbers != 5056 && numbers != 5048 && numbers > 1000)
        snprintf(
            text, sizeof text,
            "RuntimeError (\"Expected a CPUGeneratorImplState of size 5056 but found the input RNG state size to be %llu\")",
            (unsigned long long)numbers);
    else
        return;
    ckpt__doctor_note(p, CKPT__RNG_KIND, NULL, visit->name, text, NULL, NULL);
}

static int look(void *ctx, const ckpt_visit *visit)
{
    ckpt__examination *p = ctx;
    if (visit->cycle || visit->inside)
        return 0;
    if (visit->value->kind == CKPT_V_DICT) {
        look_at_optimizer(p, visit);
        look_at_scheduler(p, visit);
        look_at_scaler(p, visit);
    }
    look_at_generator(p, visit);
    return 0;
}

/* ---- the model beside its optimizer */

static bool is_statistic(const ckpt_tensor_info *t)
{
    return ckpt__str_holds_nocase(t->name, "running_mean") || ckpt__str_holds_nocase(t->name, "running_var") ||
           ckpt__str_holds_nocase(t->name, "num_batches_tracked");
}

/* An optimizer cannot hold more parameters than there are tensors to be them. */
static void check_weights(ckpt__examination *p, size_t optimizer)
{
    uint64_t tensors = 0, averages = 0, slots = 0, with = 0;
    char a[32], b[32];
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        tensors += (t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER) && !is_statistic(t);
        averages += t->role == CKPT_ROLE_EMA;
    }
    tensors += tensors ? 0 : averages;
    for (size_t i = 0; i < p->slot_count; i++)
        if (p->groups[p->slots[i].group].optimizer == optimizer) {
            slots++;
            with += p->slots[i].count > 0;
        }
    slots += p->optimizers[optimizer].lost;
    with += p->optimizers[optimizer].lost;
    bool known =
        p->canon && p->canon->model_path.data; /* else the weights may be in another file, but for a few tensors */
    uint64_t ids = slots - p->optimizers[optimizer].repeats; /* one that stands twice is one parameter */
    if (slots <= tensors || tensors == 0 || (!known && (!p->loader->python || tensors < ids - ids / 4)))
        return;
    snprintf(a, sizeof a, "%llu", (unsigned long long)tensors);
    snprintf(b, sizeof b, "%llu", (unsigned long long)slots);
    if (!p->loader->python || with == tensors) { /* those that are there have their state: an id is too many */
        ckpt__doctor_note(p, p->loader->python ? CKPT__PLACES_EMPTY : CKPT__GROUP_COUNT, NULL, none, a, b,
                          "the checkpoint's own model has");
        return;
    }
    p->weights_fewer = true;
    ckpt__doctor_note(p, CKPT__WEIGHTS_FEWER, NULL, none, a, b, NULL);
}

ckpt_status ckpt__doctor_incomplete(ckpt__examination *p)
{
    ckpt_status status = ckpt__doctor_gone(p);
    if (status != CKPT_OK)
        return status;
    for (size_t o = 0; o < p->optimizer_count; o++)
        if (!p->optimizers[o].gone)
            check_weights(p, o);
    return p->index->root ? (ckpt_status)ckpt_value_walk(p->index->root, 0, look, p, p->err) : CKPT_OK;
}
