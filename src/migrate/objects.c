/* migrate/objects.c - torch.device objects among arguments and hyper-parameters. No map_location of torch reaches
 * them, so a run may put its tensors where the file's writer had them: each is reported, and follows the rules where
 * that is asked for. */
#include "migrate/migration.h"

#include <stdio.h>

typedef struct finder {
    ckpt__migration *m;
    ckpt__pointers done;
    ckpt_error *err;
} finder;

static bool is_device(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT && ckpt__str_is(v->class_name, "torch.device");
}

/* torch.device('cuda', 1), torch.device('cuda:1') -> "cuda:1". */
static bool tag_of(const ckpt_value *v, char *out, size_t size)
{
    const ckpt_value *args = v->args;
    size_t n = args ? args->item_count : 0;
    if (n < 1 || n > 2 || args->items[0]->kind != CKPT_V_STR || (n == 2 && args->items[1]->kind != CKPT_V_INT) ||
        args->items[0]->text.size > 30)
        return false;
    if (n == 2)
        snprintf(out, size, "%s:%lld", args->items[0]->text.data, (long long)args->items[1]->integer);
    else
        snprintf(out, size, "%s", args->items[0]->text.data);
    return true;
}

/* The same object with another device: its arguments are new. */
static ckpt_status set_device(finder *f, const ckpt_value *v, const ckpt__target *target, const ckpt_value **to)
{
    ckpt__arena *a = f->m->index->arena;
    char name[CKPT_DEVICE_NAME_MAX];
    ckpt__target_name(target, name);
    char *colon = strchr(name, ':');
    const ckpt_value *items[2] = {ckpt__value_str(a, name, colon ? (size_t)(colon - name) : strlen(name)),
                                  colon ? ckpt__value_int(a, target->device.index) : NULL};
    const ckpt_value *args =
        items[0] && (!colon || items[1]) ? ckpt__value_list(a, CKPT_V_TUPLE, items, colon ? 2 : 1) : NULL;
    ckpt_value *now = args ? ckpt__edits_copy(f->m->edits, v) : NULL;
    if (!now)
        return ckpt__migration_no_memory(f->err);
    now->args = args;
    now->origin = NULL;
    *to = now;
    return ckpt__pointers_add(&f->done, now) < 0 ? ckpt__migration_no_memory(f->err) : CKPT_OK;
}

static int on_place(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    finder *f = ctx;
    ckpt__migration *m = f->m;
    const ckpt_value *v = visit->value;
    char tag[64], after[CKPT_DEVICE_NAME_MAX];
    (void)spot;
    if (!is_device(v) || !tag_of(v, tag, sizeof tag))
        return CKPT_OK;
    int first = ckpt__pointers_add(&f->done, v);
    if (first <= 0)
        return first < 0 ? ckpt__migration_no_memory(f->err) : CKPT_OK;
    ckpt__subject subject = {.name = visit->name, .role = CKPT_ROLE_NONE, .tag = ckpt__s(tag)};
    ckpt__target target = {.device = {CKPT_DEVICE_NONE, -1}};
    ckpt_status status = CKPT_OK;
    if (m->options.map_device_objects && m->map && strcmp(tag, "meta") != 0)
        status = ckpt__map_apply(m->map, &subject, &m->options.ranks, NULL, &target, f->err);
    if (status < 0)
        return status;
    ckpt__target_name(&target, after);
    if (target.device.type == CKPT_DEVICE_NONE || strcmp(tag, after) == 0)
        return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "torch-device-object", visit->name, f->err,
                                    "a torch.device object says %s, and stays so%s", tag,
                                    m->options.map_device_objects ? "" : " (--map-device-objects changes it)");
    status = set_device(f, v, &target, to);
    return status == CKPT_OK ? ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "torch-device-object", visit->name, f->err,
                                                    "a torch.device object said %s, and says %s now", tag, after)
                             : status;
}

ckpt_status ckpt__migrate_device_objects(ckpt__migration *m, ckpt_error *err)
{
    finder f = {.m = m, .err = err};
    if (!m->root)
        return CKPT_OK; /* tensors alone are written */
    ckpt_status status = ckpt__migration_rewrite(m, on_place, &f, err);
    ckpt__pointers_free(&f.done);
    return status;
}
