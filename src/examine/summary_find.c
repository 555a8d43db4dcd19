/* examine/summary_find.c - optimizers and schedulers wherever they lie, which they are by the keys that they keep, and
 * what is special about a checkpoint. */
#include "examine/summary.h"
#include "anatomy/optimizer_class.h"

/* ---- which class: the keys that torch's own __init__ gives a scheduler's __dict__ (torch/optim/lr_scheduler.py); of optimizers:
 * optimizer_class.c */

/* One row of the table of schedulers; the first row that fits is taken. All texts are static. {"StepLR", "step_size
 * gamma", ""} is a scheduler with both keys. */
typedef struct kind_row {
    const char *name;
    const char *all, *none; /* words: keys: all of these are there, and none of those */
} kind_row;

static const kind_row schedulers[] = {
    {"SequentialLR", "_schedulers _milestones", ""},
    {"ChainedScheduler", "_schedulers", "_milestones"},
    {"CosineAnnealingWarmRestarts", "T_0 T_mult eta_min", ""},
    {"CosineAnnealingLR", "T_max eta_min", ""},
    {"OneCycleLR", "total_steps _schedule_phases", ""},
    {"CyclicLR", "total_size step_ratio", ""},
    {"StepLR", "step_size gamma", ""},
    {"MultiStepLR", "milestones gamma", "warmup_iters"},
    {"ReduceLROnPlateau", "patience num_bad_epochs factor", ""},
    {"LinearLR", "start_factor end_factor total_iters", ""},
    {"PolynomialLR", "total_iters power", ""},
    {"ConstantLR", "factor total_iters", ""},
    {"LambdaLR or MultiplicativeLR", "lr_lambdas", ""},
    {"SWALR", "anneal_epochs base_lrs", ""},
    {"ExponentialLR", "gamma base_lrs", "step_size milestones"},
};

/* The options of the first group: torch's list, our dict of dicts, libtorch's "param_groups/0": {"options": {...}}. */
static const ckpt_value *first_group(const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    if (!groups)
        groups = ckpt_value_get(optimizer, "groups");
    if (groups && (groups->kind == CKPT_V_LIST || groups->kind == CKPT_V_TUPLE))
        return groups->item_count ? groups->items[0] : NULL;
    const ckpt_value *in = groups && groups->kind == CKPT_V_OBJECT && groups->state ? groups->state : groups;
    for (size_t i = 0; in && i < in->entry_count; i++) {
        const ckpt_value *options = ckpt_value_get(in->entries[i].value, "options");
        if (options || ckpt_value_get(in->entries[i].value, "lr"))
            return options ? options : in->entries[i].value;
    }
    return NULL;
}

/* The optimizer's first group, and the state of the first parameter that has some. Borrowed from the tree; NULL:
 * there is none. */
typedef struct first_of {
    const ckpt_value *group, *state;
} first_of;

static bool has_setting(void *ctx, const char *key, const ckpt_value **value)
{
    const first_of *first = ctx;
    *value = ckpt_value_get(first->group, key);
    return *value != NULL;
}

static bool has_state(void *ctx, const char *key)
{
    const first_of *first = ctx;
    return ckpt_value_get(first->state, key) != NULL;
}

static const char *class_of(const ckpt_value *optimizer)
{
    first_of first = {optimizer ? first_group(optimizer) : NULL, NULL};
    const ckpt_value *state = ckpt_value_get(optimizer, "state");
    if (state && state->entry_count)
        first.state = state->entries[0].value;
    const ckpt__optimizer_class *class =
        ckpt__optimizer_class_by(&(ckpt__optimizer_facts){has_setting, has_state, &first});
    return class ? class->name : NULL;
}

static const char *scheduler_of(const ckpt_value *scheduler)
{
    for (size_t i = 0; scheduler && i < sizeof schedulers / sizeof *schedulers; i++)
        if (ckpt__words_hold(scheduler, schedulers[i].all, true) &&
            !ckpt__words_hold(scheduler, schedulers[i].none, false))
            return schedulers[i].name;
    return NULL;
}

const char *ckpt__summary_kind(const char *so_far, ckpt__flags flags)
{
    const char *own = ckpt_optimizer_kind_name(ckpt__kind_of_flags(flags));
    return !so_far || strcmp(so_far, own) == 0 ? own : "mixed";
}

/* Of the flags as they stand in the file. */
static const char *kind_of(const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    const char *kind = NULL;
    for (size_t i = 0; groups && i < groups->item_count; i++)
        kind = ckpt__summary_kind(kind, ckpt__flags_of(groups->items[i]));
    return kind;
}

/* LBFGS keeps one state for all, SGD without momentum none: no parameter of theirs lacks one. */
static bool has_no_state_of_its_own(const char *class_name, const ckpt_value *optimizer)
{
    const ckpt_value *groups = optimizer ? ckpt_value_get(optimizer, "param_groups") : NULL;
    if (!class_name || strcmp(class_name, "SGD") != 0)
        return class_name && strcmp(class_name, "LBFGS") == 0;
    for (size_t i = 0; groups && i < groups->item_count; i++) {
        const ckpt_value *v = ckpt_value_get(groups->items[i], "momentum");
        if (!v || (v->kind == CKPT_V_INT ? v->integer != 0 : v->kind != CKPT_V_FLOAT || v->real != 0))
            return false;
    }
    return groups && groups->item_count > 0;
}

/* ---- where they are */

static bool is_scheduler(const ckpt__organ *o)
{
    return o->kind == CKPT__SCHEDULER && ckpt__is_scheduler(o->evidence);
}

/* In the file's own tree, which stays when the anatomy goes: where an optimizer was made, dicts around it were copied. */
static const ckpt_value *value_of(const ckpt__anatomy *a, const ckpt__organ *o)
{
    return a->made.count ? ckpt__value_at(a->index->root, ckpt__organ_path(a, o)) : ckpt__organ_value(a, o);
}

/* As they lie in the file: an optimizer's dict of torch's, or of libtorch's from 1.5 on. */
static bool is_optimizer(const ckpt__anatomy *a, const ckpt__organ *o)
{
    return o->kind == CKPT__OPTIMIZER &&
           (o->form == CKPT__TORCH_DICT || (o->form == CKPT__LIBTORCH && ckpt__is_optimizer(value_of(a, o))));
}

/* Organs inside one that was counted are not counted again: the schedulers of a SequentialLR. */
static void count_organs(const ckpt__anatomy *a, ckpt_summary *out, const ckpt__organ **optimizer)
{
    size_t from = 0;
    *optimizer = NULL;
    for (size_t i = 0; i < a->count; i++) {
        const ckpt__organ *o = &a->organs[i];
        if (o->node < from || !(is_optimizer(a, o) || is_scheduler(o)))
            continue;
        from = a->tree.nodes[o->node].end;
        if (o->kind == CKPT__OPTIMIZER && out->optimizer_count++ == 0)
            *optimizer = o;
        if (o->kind == CKPT__SCHEDULER && out->scheduler_count++ == 0) {
            out->scheduler = value_of(a, o);
            out->scheduler_path = ckpt__summary_keep(out, ckpt__organ_path(a, o));
        }
    }
}

void ckpt__summary_find(const ckpt__anatomy *anatomy, ckpt_summary *out)
{
    const ckpt__organ *first;
    count_organs(anatomy, out, &first);
    const ckpt_value *dict = first ? value_of(anatomy, first) : NULL;
    if (dict && dict != out->optimizer && (!out->optimizer || out->optimizer_count > 1)) {
        out->optimizer = dict;
        out->optimizer_path = ckpt__summary_keep(out, ckpt__organ_path(anatomy, first));
        out->optimizer_kind = (ckpt_str){NULL, 0}; /* that was another's */
    }
    if (out->optimizer_count > 1)
        memset(&out->state, 0, sizeof out->state); /* whose parameters are which was not asked */
    if (out->optimizer && !out->optimizer_kind.data)
        out->optimizer_kind = ckpt__s(kind_of(out->optimizer));
    out->optimizer_class = class_of(out->optimizer);
    out->scheduler_class = scheduler_of(out->scheduler);
    if (has_no_state_of_its_own(out->optimizer_class, out->optimizer) && out->state.without_param == 0)
        memset(&out->state, 0, sizeof out->state);
}

/* ---- what is special */

static void add_mark(ckpt__buf *marks, const char *text)
{
    if (marks->size)
        ckpt__buf_str(marks, ", ");
    ckpt__buf_str(marks, text);
}

/* bitsandbytes/nn/modules.py: Linear8bitLt keeps SCB beside an int8 weight. */
static bool is_int8_weight(const ckpt__index *index, const ckpt_reader *reader, ckpt_str name)
{
    char weight[512];
    size_t i, stem = name.size - 3; /* "SCB" */
    if (stem + 7 > sizeof weight)
        return false;
    memcpy(weight, name.data, stem);
    memcpy(weight + stem, "weight", 7);
    return ckpt_reader_find(reader, weight, stem + 6, &i, NULL) == CKPT_OK && index->tensors[i].info.dtype == CKPT_I8;
}

ckpt_status ckpt__summary_marks(const ckpt__index *index, const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err)
{
    bool nf4 = false, fp4 = false, int8 = false, qmap = false, absmax = false;
    ckpt__buf marks = {0};
    for (size_t i = 0; i < index->tensor_count; i++) {
        const ckpt_tensor_info *t = &index->tensors[i].info;
        nf4 = nf4 || ckpt__str_ends(t->name, ".quant_state.bitsandbytes__nf4");
        fp4 = fp4 || ckpt__str_ends(t->name, ".quant_state.bitsandbytes__fp4");
        qmap = qmap || ckpt__str_ends(t->name, ".qmap1");
        absmax = absmax || ckpt__str_ends(t->name, ".absmax1");
        if (!int8 && (ckpt__str_ends(t->name, ".SCB") || ckpt__str_is(t->name, "SCB")))
            int8 = is_int8_weight(index, reader, t->name);
    }
    const ckpt_value *adapter = index->root ? ckpt_value_get(index->root, "adapter_config.json") : NULL;
    const ckpt_value *type = adapter ? ckpt_value_get(adapter, "peft_type") : NULL;
    if (type && type->kind == CKPT_V_STR) {
        char shown[60];
        add_mark(&marks, "PEFT ");
        ckpt__buf_str(&marks, ckpt__escape(shown, sizeof shown, type->text.data, type->text.size));
        ckpt__buf_str(&marks, " adapter");
    }
    if (qmap && absmax)
        add_mark(&marks, "bitsandbytes 8-bit optimizer");
    if (nf4 || fp4)
        add_mark(&marks, nf4 && fp4 ? "bitsandbytes 4-bit weights (nf4, fp4)"
                         : nf4      ? "bitsandbytes 4-bit weights (nf4)"
                                    : "bitsandbytes 4-bit weights (fp4)");
    if (int8)
        add_mark(&marks, "bitsandbytes int8 weights");
    bool failed = marks.failed;
    if (marks.size && !failed) {
        out->marks = ckpt__summary_keep(out, (ckpt_str){marks.data, marks.size});
        failed = !out->marks.data;
    }
    ckpt__buf_free(&marks);
    return failed ? ckpt__fail_memory(err, "the marks of a checkpoint", 0) : CKPT_OK;
}
