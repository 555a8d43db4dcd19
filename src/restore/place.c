/* restore/place.c - the target device of every binding, and whether it can be reached. */
#include "anatomy/placement.h"
#include "restore/restoration.h"

#include <stdio.h>
#include <stdlib.h>

/* What ckpt__map_place asks and answers: arrays with one row a binding, heap, owned by ckpt__restore_place. */
typedef struct places {
    ckpt__subject *subjects;
    ckpt_dtype *dtypes;         /* in the checkpoint; of the binding where that has no such tensor */
    ckpt_optimizer_kind *kinds; /* of the optimizer that the parameter's group belongs to; NULL: there are no groups */
    ckpt__target *targets;      /* the answer */
    ckpt_device last;           /* the device that was named last, */
    ckpt_str tag;               /* and its name, in the side's memory */
} places;

static bool has_rules(const ckpt__target_state *side)
{
    return side->map != NULL;
}

/* Are the caller's own buffers held to the rules and the policy? Without either they simply stay. */
static bool enforced(const ckpt__target_state *side)
{
    return has_rules(side) || side->options.optimizer != CKPT_OPTIMIZER_DEFAULT;
}

/* The name of a device, one for all bindings that follow each other on it; data NULL: no memory. */
static ckpt_str name_device(ckpt__target_state *side, places *p, ckpt_device device)
{
    char name[CKPT_DEVICE_NAME_MAX];
    if (p->tag.data && ckpt_device_equal(device, p->last))
        return p->tag;
    ckpt_device_name(device, name);
    p->tag = ckpt__arena_str(side->memory, name, strlen(name));
    p->last = device;
    return p->tag;
}

/* The tag that stands for "keep": the saved one where there are rules; else where the tensor is or is to be. False: no memory. */
static bool get_tag(ckpt__restorer *r, ckpt__target_state *side, places *p, size_t i, ckpt_str *tag)
{
    const ckpt__binding *b = &side->state->bindings[i];
    const ckpt__item *item = &side->items[i];
    ckpt_str saved = {NULL, 0};
    ckpt_device own = {CKPT_DEVICE_NONE, -1};
    if (item->tensor != CKPT__NOTHING || item->like != CKPT__NOTHING)
        saved = r->reader->index->tensors[item->tensor != CKPT__NOTHING ? item->tensor : item->like].info.device;
    if (!b->ours)
        own = ckpt__memory_device(&b->memory);
    else if (b->wanted.type != CKPT_DEVICE_NONE)
        own = b->wanted; /* else, where it is not in the checkpoint: with the other parameters (common_device) */
    bool use_own = own.type != CKPT_DEVICE_NONE && (!has_rules(side) || !saved.data);
    *tag = use_own ? name_device(side, p, own) : saved;
    return !use_own || tag->data;
}

static ckpt_status gather(ckpt__restorer *r, ckpt__target_state *side, places *p, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    size_t n = s->count + 1;
    ckpt__hash *groups = ckpt__hash_new(side->canon->group_count ? s->count : 0);
    p->subjects = calloc(n, sizeof *p->subjects);
    p->dtypes = calloc(n, sizeof *p->dtypes);
    p->kinds = side->canon->group_count ? calloc(n, sizeof *p->kinds) : NULL;
    p->targets = calloc(n, sizeof *p->targets);
    if (!groups || !p->subjects || !p->dtypes || (!p->kinds && side->canon->group_count) || !p->targets) {
        ckpt__hash_free(groups);
        return ckpt__fail_memory(err, r->path, 0);
    }
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; g < side->canon->group_count; g++)
        for (size_t i = 0; i < side->canon->groups[g].param_count; i++)
            if (ckpt__hash_put(groups, side->canon->groups[g].params[i].data, side->canon->groups[g].params[i].size, g,
                               NULL) < 0)
                status = ckpt__fail_memory(err, r->path, 0);
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        ckpt_str owner = b->param.data ? b->param : b->name;
        size_t g;
        p->subjects[i] = (ckpt__subject){
            .name = b->name,
            .param = b->param,
            .role = b->role,
            .host = !b->ours && (b->memory.kind == CKPT_MEMORY_HOST || b->memory.kind == CKPT_MEMORY_PINNED),
            .stays = !b->ours && !enforced(side)};
        if (!get_tag(r, side, p, i, &p->subjects[i].tag))
            status = ckpt__fail_memory(err, r->path, 0);
        p->dtypes[i] = side->items[i].tensor != CKPT__NOTHING
                           ? r->reader->index->tensors[side->items[i].tensor].info.dtype
                           : b->dtype;
        if (p->kinds && ckpt__hash_get(groups, owner.data, owner.size, &g))
            p->kinds[i] = ckpt__kind_of_flags(side->canon->groups[g].flags);
    }
    ckpt__hash_free(groups);
    return status;
}

static void free_places(places *p)
{
    free(p->subjects);
    free(p->dtypes);
    free(p->kinds);
    free(p->targets);
}

/* Where a tensor goes that neither rule nor tag speaks of: to where all the parameters go, if that is one device. */
static ckpt_device common_device(const ckpt__target_state *side, const places *p)
{
    ckpt_device d = {CKPT_DEVICE_NONE, -1};
    for (size_t i = 0; i < side->state->count; i++) {
        ckpt_device t = p->targets[i].device;
        if (side->state->bindings[i].role != CKPT_ROLE_PARAM || t.type == CKPT_DEVICE_NONE)
            continue;
        if (d.type != CKPT_DEVICE_NONE && !ckpt_device_equal(d, t))
            return ckpt_cpu();
        d = t;
    }
    return d.type == CKPT_DEVICE_NONE ? ckpt_cpu() : d;
}

/* Where each tensor is to go. What the caller's own memory is held to is seen afterwards, by check_own. */
static void aim(ckpt__target_state *side, places *p, size_t i)
{
    const ckpt__binding *b = &side->state->bindings[i];
    ckpt__item *item = &side->items[i];
    ckpt_device keep = ckpt__tag_parse(p->subjects[i].tag), own = ckpt__memory_device(&b->memory);
    item->target = p->targets[i].device.type != CKPT_DEVICE_NONE ? p->targets[i].device : keep;
    item->cast = (uint8_t)p->targets[i].cast;
    if (item->target.type == CKPT_DEVICE_NONE)
        item->target = b->ours ? common_device(side, p) : own;
    if (item->target.type == CKPT_DEVICE_CUDA && item->target.index < 0)
        item->target.index = 0; /* "cuda" in a file: torch's current device, which for a trainer that set none is 0 */
    if (!b->ours && (!b->nbytes || !enforced(side)))
        item->target = own;
}

static bool is_place(ckpt_device d)
{
    return d.type == CKPT_DEVICE_CPU || d.type == CKPT_DEVICE_CUDA;
}

/* Memory of ours goes anywhere that tensors can be. */
static ckpt_status check_ours(ckpt__target_state *side, places *p, size_t i, ckpt_error *err)
{
    const ckpt__binding *b = &side->state->bindings[i];
    char want[CKPT_DEVICE_NAME_MAX];
    if (is_place(side->items[i].target))
        return CKPT_OK;
    if (p->targets[i].device.type != CKPT_DEVICE_NONE)
        return ckpt__target_note(
            side, CKPT_SEVERITY_ERROR, "no-such-device", b->name.data,
            "send it to cpu or cuda:N; ckpt-migrate --map-location rewrites the tags of a file for others", err,
            "the rules put it on %s, and this library places tensors on cpu and cuda only",
            ckpt__target_name(&p->targets[i], want));
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "no-such-device", b->name.data,
                             "give a map_location, such as cuda:0", err,
                             "it was saved on '%s', and no rule says where it goes here",
                             p->subjects[i].tag.data ? p->subjects[i].tag.data : "an unknown device");
}

/* The caller's memory is where it is: a target that is elsewhere is an error, and memory without a fixed device fits every
 * one. A device that is not there has its own finding, and what is bound elsewhere is then no news. */
static ckpt_status check_own(ckpt__target_state *side, places *p, size_t i, size_t *managed, ckpt_error *err)
{
    const ckpt__binding *b = &side->state->bindings[i];
    ckpt__item *item = &side->items[i];
    ckpt_device own = ckpt__memory_device(&b->memory), target = item->target;
    char want[CKPT_DEVICE_NAME_MAX], have[CKPT_DEVICE_NAME_MAX], fix[200];
    if (ckpt_device_equal(own, target) && b->memory.kind != CKPT_MEMORY_MANAGED)
        return CKPT_OK;
    if (target.type == CKPT_DEVICE_CUDA && ckpt_device_check(target, NULL) < 0)
        return CKPT_OK;
    if (b->memory.kind == CKPT_MEMORY_MANAGED && is_place(target)) {
        item->target = own;
        *managed += has_rules(side) && b->nbytes > 0;
        return CKPT_OK;
    }
    ckpt__target_name(&(ckpt__target){.device = target, .word = p->targets[i].word}, want);
    bool step = b->role == CKPT_ROLE_STEP && own.type == CKPT_DEVICE_CPU && target.type == CKPT_DEVICE_CUDA;
    if (step)
        snprintf(fix, sizeof fix, "bind a step counter on the parameter's device");
    else if (has_rules(side))
        snprintf(fix, sizeof fix,
                 "pass NULL as map_location: your buffers stay where they are; or bind a buffer on %s; or change "
                 "the map",
                 want);
    else
        snprintf(fix, sizeof fix, "bind a buffer on %s", want);
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, step ? "step-on-cpu" : "device-mismatch", b->name.data, fix,
                             err, "the rules put it on %s, and its bound buffer is %s%s", want,
                             b->memory.kind == CKPT_MEMORY_MANAGED ? "managed memory" : "on ",
                             b->memory.kind == CKPT_MEMORY_MANAGED ? "" : ckpt_device_name(own, have));
}

/* "and there are 2 CUDA devices" */
static void count_devices(char *text, size_t size)
{
    const char *why = NULL;
    int count = 0;
    if (ckpt_device_count(CKPT_DEVICE_CUDA, &count, &why, NULL) < 0 || count == 0)
        snprintf(text, size, "there is no CUDA device%s%s", why ? ": " : "", why ? why : "");
    else
        snprintf(text, size, count == 1 ? "there is %d CUDA device" : "there are %d CUDA devices", count);
}

static ckpt_status note_absent(ckpt__target_state *side, ckpt_device d, size_t first, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    size_t tensors = 0;
    char name[CKPT_DEVICE_NAME_MAX], there[320], which[200] = "";
    for (size_t k = first; k < s->count; k++)
        tensors += ckpt_device_equal(side->items[k].target, d);
    count_devices(there, sizeof there);
    if (tensors > 1)
        snprintf(which, sizeof which, " (the first: %.150s)", s->bindings[first].name.data);
    return ckpt__target_note(
        side, CKPT_SEVERITY_ERROR, "no-such-device", s->bindings[first].name.data,
        "give a map_location that names a device that is there (CUDA_VISIBLE_DEVICES may hide some)", err,
        "%zu tensor%s to go to %s, and %s%s", tensors, tensors == 1 ? " is" : "s are", ckpt_device_name(d, name), there,
        which);
}

/* Every device that is a target is asked for once; a missing one is one finding that counts its tensors. */
static ckpt_status check_devices(ckpt__target_state *side, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    enum { MOST = 256 };
    ckpt_device asked[MOST];
    size_t count = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        ckpt_device d = side->items[i].target;
        size_t k = 0;
        while (k < count && !ckpt_device_equal(asked[k], d))
            k++;
        if (d.type != CKPT_DEVICE_CUDA || k < count)
            continue;
        if (count < MOST)
            asked[count++] = d;
        if (ckpt_device_check(d, NULL) < 0)
            status = note_absent(side, d, i, err);
    }
    return status;
}

static ckpt_status note_managed(ckpt__target_state *side, size_t managed, ckpt_error *err)
{
    if (managed == 0)
        return CKPT_OK;
    return ckpt__target_note(
        side, CKPT_SEVERITY_WARNING, "managed", "", "use device memory where the map is to be kept", err,
        "%zu bound buffer%s managed memory, which has no fixed device: the map was not applied to %s", managed,
        managed == 1 ? " is" : "s are", managed == 1 ? "it" : "them");
}

/* ---- dtypes: they differ only by a rule, by the policy's float32 for a step, or by permission */

/* A step counter may change its dtype without permission where the number stays what it is. */
static bool step_is_exact(ckpt__restorer *r, const ckpt__target_state *side, size_t i)
{
    const ckpt__binding *b = &side->state->bindings[i];
    ckpt__number n;
    bool inexact = false;
    unsigned char bytes[16];
    ckpt_status status;
    if (b->role != CKPT_ROLE_STEP ||
        !ckpt__restore_number(r, &side->canon->entries[side->items[i].entry], &n, &status, NULL) || n.natural ||
        n.beyond)
        return false;
    bool known = n.is_int ? ckpt__convert(CKPT_I64, &n.integer, b->dtype, bytes, 1, &inexact)
                          : ckpt__convert(CKPT_F64, &n.real, b->dtype, bytes, 1, &inexact);
    return known && !inexact;
}

static ckpt_status check_dtype(ckpt__restorer *r, ckpt__target_state *side, size_t i, ckpt_error *err)
{
    const ckpt__binding *b = &side->state->bindings[i];
    const ckpt__item *item = &side->items[i];
    if (item->tensor == CKPT__NOTHING)
        return CKPT_OK;
    const ckpt_tensor_info *t = &r->reader->index->tensors[item->tensor].info;
    if (t->dtype == b->dtype)
        return CKPT_OK;
    const char *from = ckpt_dtype_name(t->dtype), *to = ckpt_dtype_name(b->dtype);
    if (item->cast == b->dtype || side->options.allow_cast || step_is_exact(r, side, i)) {
        ckpt_dtype probe = t->dtype;
        if (!ckpt__convert(probe, NULL, b->dtype, NULL, 0, NULL))
            return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "dtype-mismatch", b->name.data, NULL, err,
                                     "there is no conversion from %s to %s", from, to);
        ckpt_status status = ckpt__target_note(side, CKPT_SEVERITY_NOTE, "cast", b->name.data, NULL, err,
                                               "converted from %s to %s", from, to);
        if (status == CKPT_OK && !ckpt__report_detail(side->report, NULL, from, to, b->nbytes))
            status = ckpt__fail_memory(err, "report", 0);
        return status;
    }
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "dtype-mismatch", b->name.data,
                             "permit a conversion with allow_cast, or with a rule: {name: ..., cast: ...}", err,
                             "it is %s in the checkpoint and %s in the state", from, to);
}

/* ---- memory and arenas */

static bool needs_memory(const ckpt__binding *b, ckpt_device target)
{
    return b->ours && (!b->data || !ckpt_device_equal(ckpt__memory_device(&b->memory), target));
}

static ckpt_status check_memory(ckpt__target_state *side, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    enum { MOST = 64 };
    uint64_t need[MOST] = {0};
    for (size_t i = 0; i < s->count; i++)
        if (side->items[i].target.type == CKPT_DEVICE_CUDA && side->items[i].target.index < MOST &&
            needs_memory(&s->bindings[i], side->items[i].target))
            need[side->items[i].target.index] += s->bindings[i].nbytes;
    for (int d = 0; d < MOST; d++) {
        uint64_t available, total;
        bool simulated;
        char name[128];
        ckpt_error why = CKPT_ERROR_INIT;
        if (!need[d] || ckpt_device_info(ckpt_cuda(d), name, sizeof name, &available, &total, &simulated, &why) < 0 ||
            need[d] <= available)
            continue;
        ckpt_status status = ckpt__target_note(
            side, CKPT_SEVERITY_ERROR, "device-memory", "", "choose other devices, or free memory there", err,
            "cuda:%d has %llu bytes free of %llu, and %llu are needed", d, (unsigned long long)available,
            (unsigned long long)total, (unsigned long long)need[d]);
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

static ckpt_status check_arenas(ckpt__target_state *side, ckpt_error *err)
{
    const ckpt_state *s = side->state;
    side->arena_device = calloc(s->arena_count + 1, sizeof *side->arena_device);
    side->arena_data = calloc(s->arena_count + 1, sizeof *side->arena_data);
    if (!side->arena_device || !side->arena_data)
        return ckpt__fail_memory(err, "arenas", 0);
    for (size_t i = 0; i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        if (b->arena == CKPT__NO_ARENA)
            continue;
        ckpt_device *d = &side->arena_device[b->arena], target = side->items[i].target;
        char one[CKPT_DEVICE_NAME_MAX], two[CKPT_DEVICE_NAME_MAX];
        if (d->type == CKPT_DEVICE_NONE)
            *d = target;
        else if (!ckpt_device_equal(*d, target)) {
            ckpt_status status =
                ckpt__target_note(side, CKPT_SEVERITY_ERROR, "arena-split", b->name.data,
                                  "bind these tensors one by one, or send the whole arena to one device", err,
                                  "the rules put it on %s, and others of its arena (one allocation) on %s",
                                  ckpt_device_name(target, one), ckpt_device_name(*d, two));
            if (status < 0)
                return status;
        }
    }
    return CKPT_OK;
}

/* Findings of the placement become the side's; a breach of the policy is a warning where the caller permits it. */
static ckpt_status merge_findings(ckpt__target_state *side, const ckpt_report *found, ckpt_error *err)
{
    for (size_t i = 0; i < ckpt_report_count(found); i++) {
        const ckpt_finding *f = ckpt_report_get(found, i);
        bool breach = strcmp(f->code, "policy-breach") == 0;
        ckpt_severity severity = breach && side->options.allow_policy_breach ? CKPT_SEVERITY_WARNING : f->severity;
        if (!ckpt__report_add(side->report, severity, f->code, f->tensor, f->fix, "%s", f->message) ||
            !ckpt__report_detail(side->report, f->file, f->from, f->to, f->nbytes))
            return ckpt__fail_memory(err, "report", 0);
    }
    return CKPT_OK;
}

ckpt_status ckpt__restore_place(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    places p = {.subjects = NULL};
    size_t managed = 0;
    ckpt_report *found = ckpt_report_new();
    ckpt_status status = found ? gather(r, side, &p, err) : ckpt__fail_memory(err, r->path, 0);
    if (status == CKPT_OK)
        status = ckpt__map_place(side->map, side->options.optimizer, p.kinds, p.subjects, p.dtypes, side->state->count,
                                 &side->ranks, p.targets, found, err);
    if (status == CKPT_OK)
        status = merge_findings(side, found, err);
    for (size_t i = 0; status == CKPT_OK && i < side->state->count; i++)
        aim(side, &p, i);
    if (status == CKPT_OK) /* before what follows from it */
        status = check_devices(side, err);
    for (size_t i = 0; status == CKPT_OK && i < side->state->count; i++) {
        status = side->state->bindings[i].ours ? check_ours(side, &p, i, err) : check_own(side, &p, i, &managed, err);
        if (status == CKPT_OK)
            status = check_dtype(r, side, i, err);
    }
    if (status == CKPT_OK)
        status = note_managed(side, managed, err);
    if (status == CKPT_OK)
        status = check_arenas(side, err);
    if (status == CKPT_OK && ckpt_report_count_code(side->report, "no-such-device") == 0)
        status = check_memory(side, err);
    free_places(&p);
    ckpt_report_free(found);
    return status;
}
