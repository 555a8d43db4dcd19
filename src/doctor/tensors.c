/* doctor/tensors.c - where each tensor comes back, where the program has its parameters, and what of the
 * optimizer's state is in the wrong place then. */
#include "doctor/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/canon.h"

static const ckpt_device nowhere = {CKPT_DEVICE_NONE, -1}, the_cpu = {CKPT_DEVICE_CPU, -1};

static const ckpt_tensor_info *info_of(const ckpt__examination *p, size_t tensor)
{
    return &p->index->tensors[tensor].info;
}

static ckpt_device tag_of(const ckpt__examination *p, size_t tensor)
{
    ckpt_str tag = info_of(p, tensor)->device;
    return tag.data ? ckpt__tag_parse(tag) : nowhere;
}

/* The device that a program has for what was on this one: its own first where the target has no such number. */
static ckpt_device there(const ckpt__examination *p, ckpt_device d)
{
    if (p->cuda_devices == 0)
        return the_cpu;
    if (d.index < 0 || (p->cuda_devices > 0 && d.index >= p->cuda_devices))
        return ckpt_cuda(0);
    return d;
}

/* ---- where things come back */

static void look_for_gpu(ckpt__examination *p)
{
    const ckpt_dtype several = (ckpt_dtype)CKPT__DTYPE_COUNT;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        ckpt_device tag = tag_of(p, i);
        ckpt_role role = info_of(p, i)->role;
        bool trained = role == CKPT_ROLE_PARAM && !ckpt__is_average(info_of(p, i)->name);
        if (trained && p->param_dtype != several)
            p->param_dtype = p->param_dtype == CKPT_DTYPE_NONE || p->param_dtype == info_of(p, i)->dtype
                                 ? info_of(p, i)->dtype
                                 : several;
        if (p->gpu.type == CKPT_DEVICE_NONE && ckpt__is_gpu(tag) && p->cuda_devices != 0)
            p->gpu = there(p, tag);
    }
    if (p->param_dtype == several)
        p->param_dtype = CKPT_DTYPE_NONE;
}

/* A tensor without a storage has nothing that a map could move; libtorch leaves every one on meta. */
static bool stays_on_meta(const ckpt__examination *p, size_t tensor)
{
    bool cpp = p->loader->loader == CKPT_LOADER_TORCH_CPP;
    return tag_of(p, tensor).type == CKPT_DEVICE_META &&
           (cpp || (p->loader->python && info_of(p, tensor)->storage < 0));
}

/* What the loader does by itself. States of random generators lie in files of their own, which frameworks load bare. */
static ckpt_device by_default(const ckpt__examination *p, size_t tensor)
{
    bool several = p->options->world > 1;
    ckpt__brings brings = several ? p->loader->several : p->loader->alone;
    const ckpt_tensor_info *t = info_of(p, tensor);
    if (brings == CKPT__TO_TAG || (t->role == CKPT_ROLE_RNG && t->file.data) || stays_on_meta(p, tensor))
        return tag_of(p, tensor);
    if (brings == CKPT__TO_RANK && p->gpu.type != CKPT_DEVICE_NONE)
        return ckpt_cuda(0);
    return the_cpu;
}

static ckpt_status place_by_map(ckpt__examination *p, size_t tensor, const ckpt_ranks *ranks)
{
    const ckpt_tensor_info *t = info_of(p, tensor);
    ckpt__target target = {.device = nowhere, .rule = SIZE_MAX};
    ckpt__subject subject = {.name = t->name, .role = t->role, .tag = t->device};
    size_t e = p->entry_of[tensor];
    if (e != SIZE_MAX) {
        subject.name = p->canon->entries[e].name;
        subject.param = p->canon->entries[e].param;
        subject.role = p->canon->entries[e].role;
    }
    ckpt_status status = ckpt__map_apply(p->map, &subject, ranks, NULL, &target, p->err);
    if (stays_on_meta(p, tensor))
        target.device = nowhere;
    p->after[tensor] = target.device.type != CKPT_DEVICE_NONE ? target.device : tag_of(p, tensor);
    return status;
}

/* ckpt_restore places by rules and policy as soon as there is a map; torch.load applies its map to each storage. */
static ckpt_status place_by_policy(ckpt__examination *p)
{
    ckpt_ranks ranks = CKPT_RANKS_INIT;
    ranks.world = p->options->world > 1 ? p->options->world : 1;
    ckpt_status status =
        ckpt__placement_apply(&p->places, p->map, p->options->optimizer, &ranks, p->canon_report, p->err);
    for (size_t i = 0; status == CKPT_OK && i < p->places.count; i++) {
        size_t tensor = p->canon->entries[p->places.entries[i]].tensor;
        if (p->places.targets[i].device.type != CKPT_DEVICE_NONE)
            p->after[tensor] = p->places.targets[i].device;
    }
    return status;
}

ckpt_status ckpt__doctor_locate(ckpt__examination *p)
{
    size_t n = p->index->tensor_count;
    ckpt_ranks ranks = CKPT_RANKS_INIT;
    ckpt_status status = CKPT_OK;
    ranks.world = p->options->world > 1 ? p->options->world : 1;
    p->after = ckpt__arena_array(p->arena, n + 1, sizeof *p->after);
    p->entry_of = ckpt__arena_array(p->arena, n + 1, sizeof *p->entry_of);
    if (!p->after || !p->entry_of)
        return ckpt__fail_memory(p->err, "the placement of tensors", n);
    for (size_t i = 0; i < n; i++)
        p->entry_of[i] = SIZE_MAX;
    for (size_t i = 0; p->canon && i < p->canon->count; i++)
        if (p->canon->entries[i].is_tensor && p->entry_of[p->canon->entries[i].tensor] == SIZE_MAX)
            p->entry_of[p->canon->entries[i].tensor] = i;
    look_for_gpu(p);
    bool policy = p->map && p->canon && p->loader->loader == CKPT_LOADER_CKPT;
    for (size_t i = 0; status == CKPT_OK && i < n; i++) {
        if (p->to_meta)
            p->after[i] = (ckpt_device){CKPT_DEVICE_META, -1};
        else if (p->map && p->loader->takes_map && !policy)
            status = place_by_map(p, i, &ranks);
        else
            p->after[i] = by_default(p, i);
    }
    if (status == CKPT_OK && p->canon)
        status = ckpt__placement_build(p->index, p->canon, &p->places, p->err);
    if (status == CKPT_OK && policy)
        status = place_by_policy(p);
    for (size_t i = 0; i < n && p->gpu.type == CKPT_DEVICE_NONE; i++)
        if (ckpt__is_gpu(p->after[i]) && p->cuda_devices != 0)
            p->gpu = there(p, p->after[i]);
    return status;
}

/* Where the program has a parameter. torch copies loaded weights into a model that is where the program made it: on a
 * GPU if they come back there or were saved from there, which the moments tell where the weights have no tags. In C++
 * the parameter itself becomes what was read. */
ckpt_device ckpt__doctor_home(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    bool known = slot->param != SIZE_MAX;
    if (!p->loader->python && known && p->after[slot->param].type != CKPT_DEVICE_NONE)
        return p->after[slot->param];
    if (p->loader->loader == CKPT_LOADER_CKPT)
        return nowhere;
    if (p->cuda_devices == 0)
        return the_cpu;
    if (known && ckpt__is_gpu(p->after[slot->param]))
        return there(p, p->after[slot->param]);
    if (known && ckpt__is_gpu(tag_of(p, slot->param)))
        return there(p, tag_of(p, slot->param));
    bool on_cpu = known && info_of(p, slot->param)->device.data;
    for (size_t i = slot->first; i < slot->first + slot->count; i++) {
        size_t t = p->items[i].tensor;
        if (t == SIZE_MAX || ckpt__str_is(p->items[i].key, "step"))
            continue;
        if (ckpt__is_gpu(p->after[t]))
            return there(p, p->after[t]);
        if (!on_cpu && ckpt__is_gpu(tag_of(p, t)))
            return there(p, tag_of(p, t));
    }
    return p->cuda_devices > 0 ? ckpt_cuda(0) : the_cpu; /* a target with GPUs trains on them */
}

/* ---- tensors by themselves */

static void check_device(ckpt__examination *p, size_t tensor)
{
    char name[CKPT_DEVICE_NAME_MAX], what[64];
    int count = p->cuda_devices;
    const ckpt_tensor_info *t = info_of(p, tensor);
    ckpt_device d = p->after[tensor];
    if (t->role == CKPT_ROLE_RNG && ckpt__is_gpu(d))
        ckpt__doctor_note(p, CKPT__RNG_ON_GPU, NULL, t->name, ckpt_device_name(d, name), NULL, NULL);
    bool cpp = p->loader->loader == CKPT_LOADER_TORCH_CPP;
    bool no_tag = cpp ? !ckpt__cpp_device(t->device) : d.type == CKPT_DEVICE_OTHER;
    bool cpu = cpp && ckpt__str_begins_more(t->device, "cpu:"); /* to libtorch */
    bool other = d.type >= CKPT_DEVICE_OTHER && !(cpu && d.type == CKPT_DEVICE_OTHER);
    size_t e = p->entry_of[tensor];
    bool model =
        (e != SIZE_MAX && !p->canon->entries[e].outside) ||
        (p->loader->python && !(p->canon && p->canon->model_path.data)); /* of several models any may be meant */
    if (p->loader->loader ==
        CKPT_LOADER_CKPT) /* which takes what a state binds, and places it on two kinds of device */
        no_tag = other = model && d.type >= CKPT_DEVICE_META;
    if ((other || no_tag) && t->storage >= 0) {
        char tag[64] = "another device";
        if (t->device.data)
            ckpt__escape(tag, sizeof tag, t->device.data, t->device.size);
        if (no_tag || count >= 0)
            ckpt__doctor_note(p, no_tag ? CKPT__NO_SUCH_TAG : CKPT__NO_SUCH_BACKEND, NULL, t->name, tag, NULL, NULL);
    }
    if (d.type == CKPT_DEVICE_META && model && (t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER))
        ckpt__doctor_note(p, CKPT__ON_META, NULL, t->name, NULL, NULL, NULL);
    if (count < 0 || !ckpt__is_gpu(d) || (d.index < 0 ? count > 0 : d.index < count))
        return;
    snprintf(what, sizeof what,
             count == 0   ? "is no CUDA device"
             : count == 1 ? "is one CUDA device"
                          : "are %d CUDA devices",
             count);
    ckpt__doctor_note(p, CKPT__NO_SUCH_DEVICE, NULL, t->name, ckpt_device_name(d, name), what, NULL);
}

void ckpt__doctor_tensors(ckpt__examination *p)
{
    for (size_t i = 0; i < p->index->tensor_count; i++)
        check_device(p, i);
}

/* ---- optimizer state */

/* The kind that runs: torch takes the saved flags over, ckpt the program's word. */
static unsigned running(const ckpt__examination *p, const ckpt__doctor_group *g)
{
    ckpt_optimizer_kind kind = CKPT_OPTIMIZER_DEFAULT;
    if (p->loader->loader == CKPT_LOADER_CKPT)
        kind = p->options->optimizer != CKPT_OPTIMIZER_DEFAULT ? p->options->optimizer : ckpt__map_optimizer(p->map);
    if (kind == CKPT_OPTIMIZER_DEFAULT)
        kind = ckpt__kind_of_flags((ckpt__flags){g->fused, g->capturable, g->foreach});
    return ckpt__kind_bit(kind);
}

static void check_step(ckpt__examination *p, const ckpt__doctor_item *item, const ckpt__doctor_group *g,
                       ckpt_device home)
{
    char where[CKPT_DEVICE_NAME_MAX], at[CKPT_DEVICE_NAME_MAX];
    ckpt__situation s = ckpt__doctor_situation(p);
    ckpt_str name = {NULL, 0};
    s.kind = running(p, g);
    s.home = ckpt__is_gpu(home) ? CKPT__HOME_GPU : home.type == CKPT_DEVICE_CPU ? CKPT__HOME_CPU : 0;
    if (s.kind == CKPT__K_PLAIN && p->loader->python && g->foreach < 0 && s.home == CKPT__HOME_GPU)
        s.kind = CKPT__K_FOREACH; /* torch's own choice for a GPU where nothing is said */
    s.step = CKPT__STEP_NUMBER;
    s.step_dtype = CKPT__F32_STEP;
    if (item->tensor != SIZE_MAX) {
        ckpt_device d = p->after[item->tensor];
        name = info_of(p, item->tensor)->name;
        s.step = ckpt__is_gpu(d) ? CKPT__STEP_GPU : d.type == CKPT_DEVICE_CPU ? CKPT__STEP_CPU : 0;
        ckpt_dtype dtype = info_of(p, item->tensor)->dtype;
        s.step_dtype = dtype == CKPT_F32 ? CKPT__F32_STEP : dtype == CKPT_F64 ? CKPT__F64_STEP : CKPT__ODD_STEP;
        ckpt_device_name(d, at);
    } else {
        snprintf(at, sizeof at, "no device");
    }
    ckpt__doctor_note(p, CKPT__STEP, &s, name, ckpt_device_name(home, where), at,
                      item->tensor != SIZE_MAX ? ckpt_dtype_name(info_of(p, item->tensor)->dtype) : "a number");
}

/* bitsandbytes: its own load_state_dict moves these and never casts them. */
static bool is_bnb(ckpt__examination *p, const ckpt__doctor_item *item)
{
    static const char *const keys[] = {"state1",  "state2", "qmap1", "qmap2",    "absmax1",
                                       "absmax2", "max1",   "max2",  "new_max1", "new_max2"};
    const ckpt_tensor_info *t = info_of(p, item->tensor);
    bool known = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        known = known || ckpt__str_is(item->key, keys[i]);
    if (!known)
        return false;
    if (item->nested)
        ckpt__doctor_note(p, CKPT__BNB_NESTED, NULL, t->name, NULL, NULL, NULL);
    else if (t->dtype == CKPT_U8)
        ckpt__doctor_note(p, CKPT__BNB_FLAT, NULL, t->name, NULL, NULL, NULL);
    return true;
}

/* Optimizer.load_state_dict makes all but step of its parameter's dtype. */
static void check_cast(ckpt__examination *p, const ckpt__doctor_slot *slot, const ckpt__doctor_item *item)
{
    const ckpt_tensor_info *t = info_of(p, item->tensor);
    ckpt_dtype own = t->dtype, theirs = slot->param != SIZE_MAX ? info_of(p, slot->param)->dtype : p->param_dtype;
    if (slot->param != SIZE_MAX && ckpt__is_average(info_of(p, slot->param)->name))
        return; /* a copy of what is trained, which may be of another dtype */
    if (is_bnb(p, item) || item->nested || !ckpt_dtype_is_float(theirs) || own == theirs || !ckpt_dtype_is_float(own))
        return;
    bool narrows = ckpt_dtype_bits(own) >= ckpt_dtype_bits(theirs);
    ckpt__doctor_note(p, narrows ? CKPT__MOMENT_CAST : CKPT__MOMENT_WIDENED, NULL, t->name, ckpt_dtype_name(own),
                      ckpt_dtype_name(theirs), NULL);
}

/* NAdam reads mu_product on the host, and load_state_dict takes it to the parameter's device. */
static void check_factor(ckpt__examination *p, const ckpt__doctor_item *item, const ckpt__doctor_group *g,
                         ckpt_device home)
{
    char at[CKPT_DEVICE_NAME_MAX];
    ckpt__situation s = ckpt__doctor_situation(p);
    s.kind = running(p, g);
    s.home = ckpt__is_gpu(home) ? CKPT__HOME_GPU : CKPT__HOME_CPU;
    if (ckpt__str_is(item->key, "mu_product"))
        ckpt__doctor_note(p, CKPT__FACTOR_ON_GPU, &s, info_of(p, item->tensor)->name, ckpt_device_name(home, at), NULL,
                          NULL);
}

/* 7 + 1 of "model.layers.0.mlp.experts.7.w1.weight"; 0: it is no expert's. */
static int64_t count_experts(ckpt_str name)
{
    static const char mark[] = "experts.";
    const char *at = name.size ? memmem(name.data, name.size, mark, sizeof mark - 1) : NULL;
    int64_t number;
    if (!at)
        return 0;
    at += sizeof mark - 1;
    size_t left = (size_t)(name.data + name.size - at), digits = 0;
    while (digits < left && at[digits] >= '0' && at[digits] <= '9')
        digits++;
    bool is_one = digits < left && at[digits] == '.' && ckpt__parse_i64(at, digits, &number) && number < INT64_MAX;
    return is_one ? number + 1 : 0;
}

/* Where the order is not known: a shape that no parameter has is no parameter's. But transformers 5 trains all experts of a
 * layer as one tensor (experts.gate_up_proj), and saves each by itself. */
static uint64_t elements(const ckpt_tensor_info *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->ndim; d++)
        n *= (uint64_t)t->shape[d]; /* the reader has found that it fits */
    return n;
}

static void check_shape(ckpt__examination *p, const ckpt__doctor_slot *slot, const ckpt__doctor_item *item)
{
    const ckpt_tensor_info *t = info_of(p, item->tensor);
    bool weights = false, as_many = false;
    int64_t experts = 0, own;
    if (slot->param != SIZE_MAX || item->nested || !ckpt__key_has_param_shape(item->key))
        return;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *w = info_of(p, i);
        bool same = w->ndim == t->ndim && (w->role == CKPT_ROLE_PARAM || w->role == CKPT_ROLE_BUFFER);
        weights = weights || w->role == CKPT_ROLE_PARAM;
        as_many = as_many || (w->role == CKPT_ROLE_PARAM && elements(w) == elements(t));
        if (w->role == CKPT_ROLE_PARAM && (own = count_experts(w->name)) > experts)
            experts = own;
        for (uint32_t d = 0; same && d < w->ndim; d++)
            same = w->shape[d] == t->shape[d];
        if (same)
            return;
    }
    bool fused = experts && t->ndim > 1 && t->shape[0] == experts;
    if (weights && !fused &&
        !((p->weights_fewer || p->optimizers[p->groups[slot->group].optimizer].gone) && p->loader->python))
        ckpt__doctor_note(p,
                          as_many && p->loader->python && p->groups[slot->group].fused == 1 &&
                                  !ckpt__is_gpu(ckpt__doctor_home(p, slot))
                              ? CKPT__MOMENT_FUSED
                              : CKPT__MOMENT_SHAPE,
                          NULL, t->name, "no parameter of the model has this shape", NULL, t->name.data);
}

/* Whose parameter it is need not be known where two moments of one have different shapes: one of them is wrong. NovoGrad keeps
 * a number for one of them, and a fused kernel of the CPU looks at no shape. */
static void check_alike(ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    const ckpt_tensor_info *first = NULL;
    if (slot->param != SIZE_MAX || !p->loader->python || p->groups[slot->group].fused == 1)
        return;
    for (size_t i = slot->first; i < slot->first + slot->count; i++) {
        const ckpt__doctor_item *item = &p->items[i];
        const ckpt_tensor_info *t = item->tensor != SIZE_MAX ? info_of(p, item->tensor) : NULL;
        bool moment = ckpt__str_is(item->key, "exp_avg") || ckpt__str_is(item->key, "exp_avg_sq") ||
                      ckpt__str_is(item->key, "max_exp_avg_sq");
        if (!t || !moment || item->nested || t->ndim == 0)
            continue;
        if (!first) {
            first = t;
        } else if (!ckpt__same_shape(t->shape, t->ndim, first->shape, first->ndim)) {
            ckpt__doctor_note(p, CKPT__MOMENT_SHAPE, NULL, t->name,
                              "another moment of the same parameter has another shape", NULL, t->name.data);
            return;
        }
    }
}

static void check_moment(ckpt__examination *p, const ckpt__doctor_slot *slot, const ckpt__doctor_item *item,
                         ckpt_device home)
{
    char a[CKPT_DEVICE_NAME_MAX], b[CKPT_DEVICE_NAME_MAX];
    const ckpt_tensor_info *t = info_of(p, item->tensor);
    ckpt_device own = p->after[item->tensor];
    bool beside = t->ndim == 0 && own.type == CKPT_DEVICE_CPU; /* a number on the cpu goes with every device */
    if (!p->loader->python && own.type != CKPT_DEVICE_NONE && home.type != CKPT_DEVICE_NONE && !beside &&
        !ckpt_device_equal(own, home))
        ckpt__doctor_note(p, CKPT__MOMENT_ELSEWHERE, NULL, t->name, ckpt_device_name(own, a), ckpt_device_name(home, b),
                          NULL);
    if (p->loader->python && slot->param != SIZE_MAX) {
        ckpt_device saved = tag_of(p, item->tensor), param = tag_of(p, slot->param);
        if (saved.type != CKPT_DEVICE_NONE && param.type != CKPT_DEVICE_NONE && !ckpt_device_equal(saved, param))
            ckpt__doctor_note(p, CKPT__MOMENT_MIXED_IN_FILE, NULL, t->name, ckpt_device_name(saved, a),
                              ckpt_device_name(param, b), NULL);
    }
    check_cast(p, slot, item);
}

void ckpt__doctor_state(ckpt__examination *p)
{
    for (size_t i = 0; i < p->slot_count; i++) {
        const ckpt__doctor_slot *slot = &p->slots[i];
        const ckpt__doctor_group *group = &p->groups[slot->group];
        ckpt_device home = ckpt__doctor_home(p, slot);
        check_alike(p, slot);
        for (size_t k = slot->first; k < slot->first + slot->count; k++) {
            const ckpt__doctor_item *item = &p->items[k];
            if (ckpt__str_is(item->key, "step"))
                check_step(p, item, group, home);
            else if (item->tensor != SIZE_MAX) {
                check_moment(p, slot, item, home);
                check_factor(p, item, group, home);
                bool low_rank =
                    ckpt__doctor_hyper(p, group, "rank", NULL) != NULL; /* GaLore: moments of a projection */
                if (slot->param == SIZE_MAX && k - slot->first < 4 && !low_rank)
                    check_shape(p, slot, item);
            }
        }
    }
}
