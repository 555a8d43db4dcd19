/* restore/guard.c - the proof before the optimizer runs: where each tensor of a parameter really lies, asked of the driver. */
#include <ckpt/guard.h>

#include <stdio.h>
#include <stdlib.h>
#include "base/first_sizes.h"
#include "state/state.h"
#include "map/map.h"

/* One look at a state. All but `memory` is the caller's. */
typedef struct guard {
    ckpt_state *state;
    ckpt_optimizer_kind kind;
    ckpt_guard_options options;
    ckpt_report *report;
    ckpt_memory *memory; /* heap, owned: of each binding, as the driver says now */
    ckpt_error *err;
} guard;

static ckpt_status add(guard *g, ckpt_severity severity, const char *code, const ckpt__binding *b, const char *fix,
                       const char *text)
{
    if (!ckpt__report_add(g->report, severity, code, b ? b->name.data : "", fix, "%s", text))
        return ckpt__fail_memory(g->err, "report", 0);
    return CKPT_OK;
}

/* ---- each tensor by itself */

static ckpt_status look_at(guard *g, size_t i)
{
    const ckpt__binding *b = &g->state->bindings[i];
    char text[256], name[CKPT_DEVICE_NAME_MAX];
    g->memory[i] = (ckpt_memory){CKPT_MEMORY_HOST, ckpt_cpu()};
    if (!b->data || b->span == 0)
        return CKPT_OK;
    ckpt_status status = ckpt_device_query(b->data, (size_t)b->span, &g->memory[i], g->err);
    if (status < 0)
        return status;
    ckpt_device d = ckpt__memory_device(&g->memory[i]);
    ckpt_device_name(d, name);
    switch (g->memory[i].kind) {
    case CKPT_MEMORY_SPLIT:
        snprintf(text, sizeof text, "its %llu bytes do not lie in one allocation of one device",
                 (unsigned long long)b->span);
        return add(g, CKPT_SEVERITY_ERROR, "split", b, "bind a pointer to one allocation that holds all of it", text);
    case CKPT_MEMORY_UNMAPPED:
        return add(g, CKPT_SEVERITY_ERROR, "unmapped", b, "bind it again with ckpt_state_rebind once it is allocated",
                   "its pointer is a device address outside any live allocation");
    case CKPT_MEMORY_MANAGED:
        if ((status = add(g, CKPT_SEVERITY_WARNING, "managed", b, "use device memory",
                          "managed memory has no fixed device")) < 0)
            return status;
        break;
    default:
        break;
    }
    if (!ckpt__report_use(g->report, d, b->role, b->nbytes))
        return ckpt__fail_memory(g->err, "report", 0);
    if (!g->options.check_rank || d.type != CKPT_DEVICE_CUDA || ckpt_device_equal(d, g->options.own))
        return CKPT_OK;
    char own[CKPT_DEVICE_NAME_MAX];
    snprintf(text, sizeof text, "it is on %s, and rank %lld owns %s", name, (long long)g->options.ranks.rank,
             ckpt_device_name(g->options.own, own));
    return add(g, CKPT_SEVERITY_ERROR, "rank-device", b,
               "restore with map_location 'cuda:{local_rank}' (torch's trap: every rank loads onto cuda:0)", text);
}

/* ---- each against its parameter */

/* Memory that lies nowhere, or in two places, is on no one device: look_at() has said so. */
static bool has_device(const guard *g, const ckpt__binding *b)
{
    ckpt_memory_kind kind = g->memory[b - g->state->bindings].kind;
    return kind != CKPT_MEMORY_UNMAPPED && kind != CKPT_MEMORY_SPLIT;
}

static ckpt_status mixed(guard *g, const char *code, const ckpt__binding *b, ckpt_device have,
                         const ckpt__binding *param, ckpt_device want, const char *fix)
{
    char one[CKPT_DEVICE_NAME_MAX], two[CKPT_DEVICE_NAME_MAX], text[640];
    ckpt_device_name(want, one);
    ckpt_device_name(have, two);
    snprintf(
        text, sizeof text,
        "Expected all tensors to be on the same device, but found at least two devices, %s and %s! '%s' is on %s, its parameter '%s' on %s",
        one, two, b->name.data, two, param->name.data, one);
    return add(g, CKPT_SEVERITY_ERROR, code, b, fix, text);
}

static ckpt_status compare(guard *g, size_t i)
{
    const ckpt__binding *b = &g->state->bindings[i];
    const ckpt__binding *param = b->param.data ? ckpt__state_find(g->state, b->param.data, b->param.size) : NULL;
    if (!param || param == b || !b->data || !param->data || !ckpt_role_is_optimizer(b->role) || !has_device(g, b) ||
        !has_device(g, param))
        return CKPT_OK;
    ckpt__policy policy = ckpt__policy_of(g->kind, b->role);
    ckpt_device have = ckpt__memory_device(&g->memory[i]),
                want = ckpt__memory_device(&g->memory[param - g->state->bindings]);
    char text[256], name[CKPT_DEVICE_NAME_MAX];
    bool managed =
        g->memory[i].kind == CKPT_MEMORY_MANAGED || g->memory[param - g->state->bindings].kind == CKPT_MEMORY_MANAGED;
    bool together = managed || ckpt_device_equal(have, want); /* of managed memory look_at() has warned */
    if (policy.place == CKPT__ON_CPU) {
        if (have.type != CKPT_DEVICE_CUDA)
            return CKPT_OK;
        snprintf(
            text, sizeof text,
            "it is on %s; a %s optimizer reads it on the host once a parameter and step, which waits for the device each time",
            ckpt_device_name(have, name), ckpt_optimizer_kind_name(g->kind));
        return add(g, CKPT_SEVERITY_WARNING, "step-on-gpu-slow", b, "keep step on the cpu, or use a fused optimizer",
                   text);
    }
    if (policy.place == CKPT__WITH_PARAM && !together) {
        bool step = b->role == CKPT_ROLE_STEP && have.type == CKPT_DEVICE_CPU;
        return mixed(g, step ? "step-on-cpu" : "mixed-devices", b, have, param, want,
                     step ? "restore with optimizer: fused, or bind step on the parameter's device"
                          : "restore with one map_location for the parameter and what belongs to it");
    }
    if (policy.float32 && b->dtype != CKPT_F32) {
        snprintf(text, sizeof text, "it is %s; a %s optimizer needs float32", ckpt_dtype_name(b->dtype),
                 ckpt_optimizer_kind_name(g->kind));
        return add(g, CKPT_SEVERITY_ERROR, "step-dtype", b, "bind step as float32", text);
    }
    return CKPT_OK;
}

/* The parameters of one group: some on the host and some on a device never step together; several devices are what a
 * model-parallel run looks like, and the optimizer goes through them one by one. */
static ckpt_status compare_group(guard *g, const ckpt_str *params, size_t count)
{
    const ckpt__binding *first = NULL, *noted = NULL;
    ckpt_device device = {CKPT_DEVICE_NONE, -1};
    for (size_t i = 0; i < count; i++) {
        const ckpt__binding *b = ckpt__state_find(g->state, params[i].data, params[i].size);
        if (!b || !b->data || b->span == 0 || g->memory[b - g->state->bindings].kind == CKPT_MEMORY_MANAGED ||
            !has_device(g, b))
            continue;
        ckpt_device d = ckpt__memory_device(&g->memory[b - g->state->bindings]);
        ckpt_status status = CKPT_OK;
        if (!first) {
            first = b;
            device = d;
        } else if (d.type != device.type)
            status = mixed(g, "mixed-devices", b, d, first, device, "restore with one map_location for all parameters");
        else if (!ckpt_device_equal(d, device) && !noted) {
            noted = b;
            status = add(g, CKPT_SEVERITY_NOTE, "several-devices", b, NULL,
                         "its parameter group is spread over several devices (model parallel)");
        }
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

static ckpt_status compare_groups(guard *g)
{
    ckpt_state *s = g->state;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < s->group_count; i++)
        status = compare_group(g, s->groups[i].params, s->groups[i].param_count);
    if (s->group_count || status < 0)
        return status;
    ckpt_str *all = malloc((s->count + 1) * sizeof *all);
    size_t n = 0;
    if (!all)
        return ckpt__fail_memory(g->err, "guard", 0);
    for (size_t i = 0; i < s->count; i++)
        if (s->bindings[i].role == CKPT_ROLE_PARAM)
            all[n++] = s->bindings[i].name;
    status = compare_group(g, all, n);
    free(all);
    return status;
}

static ckpt_status idle_devices(guard *g)
{
    for (size_t i = 0; i < g->options.wanted_count; i++) {
        bool used = false;
        char name[CKPT_DEVICE_NAME_MAX], text[128];
        for (size_t k = 0; k < ckpt_report_device_count(g->report); k++)
            used |= ckpt_device_equal(ckpt_report_device(g->report, k)->device, g->options.wanted[i]) &&
                    ckpt_report_device(g->report, k)->nbytes > 0;
        if (used)
            continue;
        snprintf(text, sizeof text, "%s is required for this run and holds nothing",
                 ckpt_device_name(g->options.wanted[i], name));
        ckpt_status status =
            add(g, CKPT_SEVERITY_WARNING, "idle-device", NULL, "map the replica of this rank to it: cuda:{rank}", text);
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

ckpt_status ckpt_guard(ckpt_state *state, ckpt_optimizer_kind kind, const ckpt_guard_options *options,
                       ckpt_report *report, ckpt_error *err)
{
    guard g = {.state = state, .kind = kind == CKPT_OPTIMIZER_DEFAULT ? CKPT_OPTIMIZER_PLAIN : kind, .err = err};
    if (!state)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_guard", "a NULL state");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_guard_options, &g.options, options, err);
    if (status < 0)
        return status;
    ckpt_report *own = report ? NULL : ckpt_report_new();
    g.report = report ? report : own;
    g.memory = calloc(state->count + 1, sizeof *g.memory);
    status = g.report && g.memory ? CKPT_OK : ckpt__fail_memory(err, "guard", 0);
    ckpt_report_clear(g.report);
    for (size_t i = 0; status == CKPT_OK && i < state->count; i++)
        status = look_at(&g, i);
    for (size_t i = 0; status == CKPT_OK && i < state->count; i++)
        status = compare(&g, i);
    if (status == CKPT_OK)
        status = compare_groups(&g);
    if (status == CKPT_OK)
        status = idle_devices(&g);
    if (status == CKPT_OK)
        status = ckpt__state_moments(state, g.report, err);
    if (status == CKPT_OK && ckpt_report_worst(g.report) == CKPT_SEVERITY_ERROR) {
        status = CKPT_ANSWER_NO;
        ckpt__report_fail(g.report, CKPT_SEVERITY_ERROR, CKPT_ANSWER_NO, "ckpt_guard", err);
    }
    if (status < 0 && err && !err->object[0])
        ckpt__error_object(err, "ckpt_guard");
    free(g.memory);
    ckpt_report_free(own);
    return status;
}
