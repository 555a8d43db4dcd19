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

static bool is_scheduler(const ckpt_value *v)
{
    const ckpt_value *parts = v->kind == CKPT_V_DICT ? ckpt_value_get(v, "_schedulers") : NULL;
    if (parts && parts->kind == CKPT_V_LIST && ckpt_value_get(v, "_last_lr"))
        return true; /* SequentialLR has no base_lrs of its own, ChainedScheduler no last_epoch */
    if (v->kind != CKPT_V_DICT || !ckpt_value_get(v, "last_epoch"))
        return false;
    return ckpt_value_get(v, "base_lrs") || ckpt_value_get(v, "_step_count") || ckpt_value_get(v, "num_bad_epochs");
}

/* The walk over the value tree. */
typedef struct finder {
    ckpt_summary *out;       /* borrowed */
    ckpt__buf name;          /* owned: path of the last that was found; what is below it is its own */
    const ckpt_value *first; /* optimizer; borrowed from the tree; NULL: none yet */
    ckpt_str first_path;     /* of it, in the arena of the summary */
    bool no_memory;
} finder;

static int look_at(void *ctx, const ckpt_visit *visit)
{
    finder *f = ctx;
    ckpt_summary *out = f->out;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_DICT || visit->cycle)
        return CKPT_OK;
    size_t n = f->name.size;
    if (n && visit->name.size > n && memcmp(visit->name.data, f->name.data, n) == 0 && visit->name.data[n] == '.')
        return CKPT_OK; /* inside the last one: a scheduler of a SequentialLR */
    bool optimizer = ckpt__is_optimizer(v), scheduler = !optimizer && is_scheduler(v);
    if (!optimizer && !scheduler)
        return CKPT_OK;
    f->name.size = 0;
    ckpt__buf_add(&f->name, visit->name.data, visit->name.size);
    uint64_t count = optimizer ? out->optimizer_count++ : out->scheduler_count++;
    if (count == 0 && optimizer) {
        f->first = v;
        f->first_path = ckpt__summary_keep(out, visit->name);
    } else if (count == 0 && scheduler) {
        out->scheduler = v;
        out->scheduler_path = ckpt__summary_keep(out, visit->name);
    }
    f->no_memory = f->no_memory || f->name.failed;
    return CKPT_OK;
}

ckpt_status ckpt__summary_find(const ckpt__index *index, ckpt_summary *out, ckpt_error *err)
{
    enum { NODES = 4000000 }; /* a tree that shares its parts over and over is looked at so far */
    finder f = {.out = out};
    ckpt_error ignored = CKPT_ERROR_INIT;
    int status = index->root ? ckpt_value_walk(index->root, NODES, look_at, &f, &ignored) : CKPT_OK;
    ckpt__buf_free(&f.name);
    if (status == CKPT_E_NO_MEMORY || f.no_memory)
        return ckpt__fail_memory(err, "the parts of a training state", 0);
    if (f.first && f.first != out->optimizer && (!out->optimizer || out->optimizer_count > 1)) {
        out->optimizer = f.first;
        out->optimizer_path = f.first_path;
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
    return CKPT_OK;
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
