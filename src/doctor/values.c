/* doctor/values.c - what lies beside the tensors: devices among the values, the scaler, schedulers, states of random
 * generators; and where things are, as Python says it. */
#include "doctor/facts.h"

#include <stdio.h>
#include "format/table.h"
#include "model/training.h"

static const ckpt_str none = {NULL, 0};

/* ---- devices among the values */

static void look_for_device(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    char type[32], device[64];
    if (v->kind != CKPT_V_OBJECT || !ckpt__str_is(v->class_name, "torch.device") || !v->args ||
        v->args->item_count == 0 || v->args->items[0]->kind != CKPT_V_STR ||
        ckpt__str_is(v->args->items[0]->text, "cpu"))
        return;
    ckpt__escape(type, sizeof type, v->args->items[0]->text.data, v->args->items[0]->text.size);
    if (v->args->item_count > 1 && v->args->items[1]->kind == CKPT_V_INT)
        snprintf(device, sizeof device, "%s:%lld", type, (long long)v->args->items[1]->integer);
    else
        snprintf(device, sizeof device, "%s", type);
    ckpt__doctor_note(p, CKPT__DEVICE_OBJECT, NULL, visit->name, device, NULL, NULL);
}

/* ---- where things are */

/* ['trainer']['optimizer_states'][0], into buf; "" for the root, false where it does not fit. */
static bool python_path(const ckpt_path *path, size_t count, char *buf, size_t size)
{
    ckpt__buf b = {NULL, 0, 0, false};
    for (size_t i = 0; i < count; i++) {
        const ckpt_key *k = &path->keys[i];
        if (!k->text.data) {
            ckpt__buf_printf(&b, "[%lld]", (long long)k->number);
            continue;
        }
        ckpt_value text = {.kind = CKPT_V_STR, .text = k->text};
        ckpt__buf_char(&b, '[');
        if (k->other)
            ckpt__buf_add(&b, k->text.data, k->text.size);
        else
            ckpt__value_repr(&b, &text);
        ckpt__buf_char(&b, ']');
    }
    bool fits = !b.failed && b.size < size;
    snprintf(buf, size, "%s", fits && b.data ? b.data : "");
    ckpt__buf_free(&b);
    return fits;
}

static void note_path(const ckpt_visit *visit, size_t count, char *to)
{
    char text[256];
    if (!*to && python_path(&visit->path, count, text, sizeof text - 1))
        snprintf(to, 256, "%s", *text ? text : " "); /* " ": the root */
}

static void look_at_dict(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    if (ckpt__is_scheduler(ckpt__scheduler_evidence(v))) {
        p->has_scheduler = true;
        note_path(visit, visit->path.count, p->paths.scheduler);
    }
    ckpt__doctor_schedule(p, visit);
    unsigned bits = ckpt__scaler_evidence(v, visit->name, visit->path.count);
    bool scaler = (bits | CKPT__HAS_TRACKER) == CKPT__WHOLE_SCALER;
    if (!scaler && bits != CKPT__EMPTY_SCALER)
        return;
    p->has_scaler = true;
    p->scaler_enabled = p->scaler_enabled || scaler;
    if (scaler)
        ckpt__doctor_scale(p, v);
    if (scaler)
        note_path(visit, visit->path.count, p->paths.scaler);
    if (scaler && visit->path.count == 1 && visit->path.keys[0].text.data)
        ckpt__escape(p->paths.scaler_key, sizeof p->paths.scaler_key, visit->path.keys[0].text.data,
                     visit->path.keys[0].text.size);
}

static bool is_rng_tensor(const ckpt__examination *p, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && v->tensor < p->index->tensor_count &&
           p->index->tensors[v->tensor].info.role == CKPT_ROLE_RNG &&
           p->index->tensors[v->tensor].info.dtype == CKPT_U8;
}

/* Lists of states: one a GPU, or one a rank. */
static void look_at_list(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    char have[24], want[24];
    bool rng = v->item_count > 0, sampler = v->item_count > 1 && ckpt__str_holds_nocase(visit->name, "sampler");
    bool cuda = ckpt__str_holds_nocase(visit->name, "cuda") || ckpt__str_holds_nocase(visit->name, "gpu");
    for (size_t i = 0; i < v->item_count && (rng || sampler); i++) {
        const ckpt_value *item = v->items[i];
        rng = rng && (is_rng_tensor(p, item) ||
                      (item->kind == CKPT_V_DICT &&
                       (ckpt__str_holds_nocase(visit->name, "rng") || ckpt__str_holds_nocase(visit->name, "random"))));
        sampler = sampler && item->kind == CKPT_V_DICT;
    }
    if (!rng && !sampler)
        return;
    snprintf(have, sizeof have, "%zu", v->item_count);
    if (rng && cuda) {
        note_path(visit, visit->path.count, p->paths.cuda_rng);
        snprintf(want, sizeof want, "%d", p->cuda_devices);
        if (p->cuda_devices >= 0 && v->item_count > (size_t)p->cuda_devices)
            ckpt__doctor_note(p, CKPT__DEVICE_STATES, NULL, visit->name, have, want, NULL);
        return;
    }
    snprintf(want, sizeof want, "%d", p->options->world);
    if (p->options->world > 0 && v->item_count != (size_t)p->options->world && (v->item_count > 1 || sampler))
        ckpt__doctor_note(p, CKPT__RANK_STATES, NULL, visit->name, have, want, rng ? "random generators" : "samplers");
}

static void look_for_paths(ckpt__examination *p, const ckpt_visit *visit)
{
    ckpt_str model = p->canon ? p->canon->model_path : none;
    const ckpt_value *v = visit->value;
    if (v->kind == CKPT_V_DICT && model.data && visit->name.size == model.size &&
        memcmp(visit->name.data, model.data, model.size) == 0)
        note_path(visit, visit->path.count, p->paths.model);
    if (p->optimizer_count > 0 && p->optimizers[0].dict == v)
        note_path(visit, visit->path.count, p->paths.optimizer);
    if (is_rng_tensor(p, v) && visit->path.count > 0 && visit->path.keys[visit->path.count - 1].text.data) {
        bool cuda = ckpt__str_holds_nocase(visit->name, "cuda") || ckpt__str_holds_nocase(visit->name, "gpu");
        if (!cuda)
            note_path(visit, visit->path.count, p->paths.rng);
    }
}

static int look_at_value(void *ctx, const ckpt_visit *visit)
{
    ckpt__examination *p = ctx;
    const ckpt_value *v = visit->value;
    bool script = visit->path.count && ckpt__is_scripted_class(v->class_name);
    if (!script && !ckpt__doctor_refused(p, visit)) /* a module in a TorchScript archive: the root says it */
        return ckpt__fail_memory(p->err, "the report", 0);
    if (visit->cycle)
        return 0;
    look_for_paths(p, visit);
    look_for_device(p, visit);
    if (v->kind == CKPT_V_DICT && !visit->inside)
        look_at_dict(p, visit);
    if (v->kind == CKPT_V_LIST)
        look_at_list(p, visit);
    return 0;
}

static void check_scaler(ckpt__examination *p)
{
    if (p->canon && !p->has_scaler && p->canon->scaler_path.data)
        p->has_scaler = p->scaler_enabled = true;
    const ckpt_value *native = ckpt_value_get(p->index->root, "scaler");
    if (!p->has_scaler && native && ckpt__format_of(p->index)->canonical) {
        p->has_scaler = p->scaler_enabled = true;
        ckpt__doctor_scale(p, native);
    }
    p->result->amp = p->options->amp || p->scaler_enabled;
    if (p->options->amp && p->has_scaler && !p->scaler_enabled)
        ckpt__doctor_note(p, CKPT__SCALER_EMPTY, NULL, none, NULL, NULL, NULL);
    if (p->options->amp && !p->has_scaler)
        ckpt__doctor_note(p, CKPT__NO_SCALER, NULL, none, NULL, NULL, NULL);
    const char *key = p->paths.scaler_key;
    if (*key && strcmp(key, "MixedPrecision") != 0 && strcmp(key, "native_amp_scaling_state") != 0)
        ckpt__doctor_note(p, CKPT__SCALER_KEY, NULL, none, key, NULL, NULL);
}

/* Names as a wrapper of the model leaves them. */
static void check_prefix(ckpt__examination *p)
{
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        ckpt_str name = t->path.count ? t->path.keys[t->path.count - 1].text : t->name;
        if (t->role != CKPT_ROLE_PARAM && t->role != CKPT_ROLE_BUFFER)
            continue;
        for (size_t k = 0; name.data && k < CKPT__WRAPPERS; k++) {
            const char *at = memmem(name.data, name.size, ckpt__wrappers[k], strlen(ckpt__wrappers[k]));
            bool wrapper = at && (at == name.data || (k > 0 && at[-1] == '.'));
            if (wrapper) {
                ckpt__doctor_note(p, CKPT__PREFIX, NULL, t->name, ckpt__wrappers[k], NULL, NULL);
                break;
            }
        }
    }
}

ckpt_status ckpt__doctor_values(ckpt__examination *p)
{
    ckpt_status status = CKPT_OK;
    if (p->index->root)
        status = (ckpt_status)ckpt_value_walk(p->index->root, 0, look_at_value, p, p->err);
    if (status == CKPT_OK)
        check_scaler(p);
    if (status == CKPT_OK)
        check_prefix(p);
    if (status == CKPT_OK && p->has_scheduler && p->optimizer_count == 0 && !p->broken_optimizer)
        ckpt__doctor_note(p, CKPT__SCHEDULER_ALONE, NULL, none, NULL, NULL, NULL);
    return status;
}
