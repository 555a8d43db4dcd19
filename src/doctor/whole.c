/* doctor/whole.c - what is there in part: an optimizer's dict without one of its keys, a model that holds fewer tensors
 * than its optimizer has parameters, states of generators, schedulers and scalers that do not load. */
#include "doctor/facts.h"
#include "format/table.h"

#include <stdio.h>

static const ckpt_str none = {NULL, 0};

/* ---- an optimizer's dict */

static void look_at_optimizer(ckpt__examination *p, const ckpt__node *node, unsigned evidence)
{
    char name[160];
    const char *missing = evidence & CKPT__LACKS_PARAMS  ? "params"
                          : evidence & CKPT__LACKS_STATE ? "state"
                                                         : "param_groups";
    p->broken_optimizer = true;
    ckpt__escape(name, sizeof name, node->name.data, node->name.size);
    ckpt__doctor_note(p, CKPT__OPTIMIZER_KEY, NULL, none, missing, *name ? name : "the root", NULL);
}

/* ---- schedulers */

static bool only_common(const ckpt_value *v)
{
    for (size_t i = 0; i < v->entry_count; i++)
        if (v->entries[i].key->kind != CKPT_V_STR ||
            !ckpt__str_among(v->entries[i].key->text, "base_lrs last_epoch _step_count _last_lr "
                                                      "_get_lr_called_within_step _is_initial verbose"))
            return false;
    return true;
}

static void look_at_scheduler(ckpt__examination *p, const ckpt__node *node, unsigned evidence)
{
    const unsigned common =
        CKPT__HAS_LAST_EPOCH | CKPT__HAS_BASE_LRS | CKPT__HAS_STEP_COUNT | CKPT__HAS_LAST_LR | CKPT__HAS_LR_CALLED;
    const ckpt_value *v = node->value, *lrs = ckpt_value_get(v, "base_lrs");
    char have[24], want[24];
    if (!(evidence & CKPT__SHARES_KEYS))
        return;
    bool epoch = evidence & CKPT__HAS_LAST_EPOCH, exponential = ckpt_value_get(v, "gamma") &&
                                                                !ckpt_value_get(v, "step_size") &&
                                                                !ckpt_value_get(v, "milestones");
    p->has_scheduler = true;
    if (!epoch && !exponential) /* ExponentialLR goes from one lr to the next */
        ckpt__doctor_note(p, CKPT__SCHEDULER_EPOCH, NULL, node->name, "last_epoch", NULL, NULL);
    if (ckpt_value_get(v, "T_0") && !ckpt_value_get(v, "T_cur"))
        ckpt__doctor_note(p, CKPT__SCHEDULER_EPOCH, NULL, node->name, "T_cur", NULL, NULL);
    if ((evidence & common) == common && only_common(v))
        ckpt__doctor_note(p, CKPT__SCHEDULER_LAMBDAS, NULL, node->name, NULL, NULL, NULL);
    bool cyclic = ckpt_value_get(v, "max_lrs") != NULL,
         zips = cyclic || ckpt_value_get(v, "lr_lambdas") || ckpt_value_get(v, "T_0");
    if (p->optimizer_count != 1 || !zips || !lrs || lrs->kind != CKPT_V_LIST || lrs->item_count == p->group_count ||
        lrs->item_count == 0)
        return;
    snprintf(have, sizeof have, "%zu", lrs->item_count);
    snprintf(want, sizeof want, "%zu", p->group_count);
    ckpt__doctor_note(p, CKPT__SCHEDULER_LRS, NULL, node->name, have, want,
                      (lrs->item_count > p->group_count) != cyclic ? "longer" : "shorter");
}

/* ---- scalers and generators */

static void look_at_scaler(ckpt__examination *p, const ckpt__node *node, unsigned evidence)
{
    static const char *const keys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                       "_growth_tracker"};
    size_t missing = 0;
    if (evidence == CKPT__WHOLE_SCALER || evidence == CKPT__EMPTY_SCALER)
        return;
    while (evidence >> missing & 1) /* a bit each, in this order */
        missing++;
    p->has_scaler = p->scaler_enabled = true;
    ckpt__doctor_note(p, CKPT__SCALER_PART, NULL, node->name, keys[missing], NULL, NULL);
}

/* Of the CPU's generator, where programs keep it. */
static void look_at_generator(ckpt__examination *p, const ckpt__node *node, unsigned evidence)
{
    const ckpt_value *v = node->value;
    char text[160];
    if (!(evidence & CKPT__RNG_BY_NAME) || (evidence & CKPT__RNG_OF_GPU))
        return;
    if (v->kind == CKPT_V_LIST && v->item_count > 1000 && v->items[0]->kind == CKPT_V_INT) {
        ckpt__doctor_note(p, CKPT__RNG_KIND, NULL, node->name,
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
    ckpt__doctor_note(p, CKPT__RNG_KIND, NULL, node->name, text, NULL, NULL);
}

static void look_at_all(ckpt__examination *p)
{
    const ckpt__format *format = ckpt__format_of(p->index);
    const bool by_name = format->canonical && !format->keeps_torch; /* its optimizer is no dict of torch's */
    for (size_t i = 0; i < p->anatomy->count; i++) {
        const ckpt__organ *o = &p->anatomy->organs[i];
        const ckpt__node *node = &p->anatomy->tree.nodes[o->node];
        if (node->inside)
            continue;
        if (o->kind == CKPT__RNG)
            look_at_generator(p, node, o->evidence);
        if (node->value->kind != CKPT_V_DICT)
            continue;
        if (o->kind == CKPT__BROKEN_OPTIMIZER && !by_name)
            look_at_optimizer(p, node, o->evidence);
        else if (o->kind == CKPT__SCHEDULER)
            look_at_scheduler(p, node, o->evidence);
        else if (o->kind == CKPT__SCALER)
            look_at_scaler(p, node, o->evidence);
    }
}

/* ---- the model beside its optimizer */

static bool is_statistic(const ckpt_tensor_info *t)
{
    return ckpt__str_holds_nocase(t->name, "running_mean") || ckpt__str_holds_nocase(t->name, "running_var") ||
           ckpt__str_holds_nocase(t->name, "num_batches_tracked");
}

/* Tensors that may be parameters: those of models, or of averages where there is nothing else. */
static uint64_t count_weights(const ckpt__examination *p)
{
    uint64_t tensors = 0, averages = 0;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        tensors += (t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER) && !is_statistic(t);
        averages += t->role == CKPT_ROLE_EMA;
    }
    return tensors ? tensors : averages;
}

/* An optimizer cannot hold more parameters than there are tensors to be them. */
static void check_weights(ckpt__examination *p, const ckpt__doctor_optimizer *o, uint64_t tensors)
{
    uint64_t slots = o->slot_count + o->lost, with = o->lost;
    char a[32], b[32];
    for (size_t i = o->first_slot; i < o->first_slot + o->slot_count; i++)
        with += p->slots[i].count > 0;
    bool known =
        p->canon && p->canon->model_path.data; /* else the weights may be in another file, but for a few tensors */
    uint64_t ids = slots - o->repeats;         /* one that stands twice is one parameter */
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
    uint64_t tensors = count_weights(p);
    for (size_t o = 0; o < p->optimizer_count; o++)
        if (!p->optimizers[o].gone)
            check_weights(p, &p->optimizers[o], tensors);
    look_at_all(p);
    return CKPT_OK;
}
