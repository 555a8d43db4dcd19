/* doctor/values.c - what lies beside the tensors: devices among the values, the scaler, schedulers, states of random
 * generators; and where things are, as Python says it. */
#include "doctor/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"
#include "model/training.h"
#include "model/value_path.h"

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

/* Of every object of the file: is it refused, and is it a device? */
static int look_at_value(void *ctx, const ckpt_visit *visit)
{
    ckpt__examination *p = ctx;
    bool script = visit->path.count && ckpt__is_scripted_class(visit->value->class_name);
    if (!script && !ckpt__doctor_refused(p, visit)) /* a module in a TorchScript archive: the root says it */
        return ckpt__fail_memory(p->err, "the report", 0);
    if (!visit->cycle)
        look_for_device(p, visit);
    return 0;
}

/* ---- where things are */

enum { PATH_MAX_BYTES = 255 };

/* The path of a node as Python has it: ['trainer']['optimizer_states'][0]. "" for the root. false: no memory. */
static bool put_path(ckpt__buf *b, const ckpt__tree *tree, size_t node)
{
    size_t depth = tree->nodes[node].depth, *way = calloc(depth + 1, sizeof *way);
    for (size_t i = depth; way && i > 0; i--, node = tree->nodes[node].parent)
        way[i - 1] = node;
    for (size_t i = 0; way && i < depth && b->size <= PATH_MAX_BYTES; i++) {
        const ckpt__node *n = &tree->nodes[way[i]];
        ckpt_value text = {.kind = CKPT_V_STR, .text = n->key};
        ckpt__buf_char(b, '[');
        if (n->integer_key || n->other_key)
            ckpt__buf_add(b, n->key.data, n->key.size);
        else
            ckpt__value_repr(b, &text);
        ckpt__buf_char(b, ']');
    }
    free(way);
    return way && !b->failed;
}

/* The first that is noted stays. " ": the root. */
static void note_path(const ckpt__examination *p, size_t node, char *to)
{
    ckpt__buf b = {0};
    if (!*to && put_path(&b, &p->anatomy->tree, node) && b.size < PATH_MAX_BYTES)
        snprintf(to, 256, "%s", b.size ? b.data : " ");
    ckpt__buf_free(&b);
}

static void look_at_scheduler(ckpt__examination *p, const ckpt__organ *o)
{
    if (ckpt__is_scheduler(o->evidence)) {
        p->has_scheduler = true;
        note_path(p, o->node, p->paths.scheduler);
    }
    ckpt__doctor_schedule(p, &p->anatomy->tree.nodes[o->node]);
}

static void look_at_scaler(ckpt__examination *p, const ckpt__organ *o)
{
    const ckpt__node *n = &p->anatomy->tree.nodes[o->node];
    bool whole = (o->evidence | CKPT__HAS_TRACKER) == CKPT__WHOLE_SCALER;
    if (!whole && o->evidence != CKPT__EMPTY_SCALER)
        return;
    p->has_scaler = true;
    if (!whole)
        return;
    p->scaler_enabled = true;
    ckpt__doctor_scale(p, n->value);
    note_path(p, o->node, p->paths.scaler);
    if (n->depth == 1 && !n->integer_key)
        ckpt__escape(p->paths.scaler_key, sizeof p->paths.scaler_key, n->key.data, n->key.size);
}

/* One state a rank. */
static void check_ranks(ckpt__examination *p, const ckpt__organ *o, const char *of)
{
    const ckpt__node *n = &p->anatomy->tree.nodes[o->node];
    char have[24], want[24];
    if (p->options->world <= 0 || n->value->item_count == (size_t)p->options->world)
        return;
    snprintf(have, sizeof have, "%zu", n->value->item_count);
    snprintf(want, sizeof want, "%d", p->options->world);
    ckpt__doctor_note(p, CKPT__RANK_STATES, NULL, n->name, have, want, of);
}

/* A state that set_rng_state takes; in a list of ranks' it may be a dict of several. */
static bool is_state(const ckpt__examination *p, const ckpt_value *v)
{
    return v->kind != CKPT_V_TENSOR || p->index->tensors[v->tensor].info.dtype == CKPT_U8;
}

/* A list of CUDA's has a state a GPU; another with more than one state has one a rank. */
static void look_at_generators(ckpt__examination *p, const ckpt__organ *o)
{
    const ckpt__node *n = &p->anatomy->tree.nodes[o->node];
    size_t count = n->value->item_count;
    bool gpu = o->evidence & CKPT__RNG_OF_GPU, list = o->evidence & CKPT__RNG_LIST;
    char have[24], want[24];
    if ((o->evidence & CKPT__RNG_TENSOR) && !gpu && n->depth > 0 && !n->integer_key && is_state(p, n->value))
        note_path(p, o->node, p->paths.rng);
    for (size_t i = 0; list && i < count; i++)
        list = is_state(p, n->value->items[i]);
    if (list && !gpu && count > 1)
        check_ranks(p, o, "random generators");
    if (!list || !gpu)
        return;
    note_path(p, o->node, p->paths.cuda_rng);
    snprintf(have, sizeof have, "%zu", count);
    snprintf(want, sizeof want, "%d", p->cuda_devices);
    if (p->cuda_devices >= 0 && count > (size_t)p->cuda_devices)
        ckpt__doctor_note(p, CKPT__DEVICE_STATES, NULL, n->name, have, want, NULL);
}

static void look_at_organ(ckpt__examination *p, const ckpt__organ *o)
{
    const ckpt__node *n = &p->anatomy->tree.nodes[o->node];
    bool dict = n->value->kind == CKPT_V_DICT && !n->inside;
    if (o->kind == CKPT__SCHEDULER && dict)
        look_at_scheduler(p, o);
    else if (o->kind == CKPT__SCALER && dict)
        look_at_scaler(p, o);
    else if (o->kind == CKPT__DATA_LOADER && dict)
        ckpt__doctor_data_loader(p, n, o->evidence);
    else if (o->kind == CKPT__RNG)
        look_at_generators(p, o);
    else if (o->kind == CKPT__SAMPLERS)
        check_ranks(p, o, "samplers");
    else if (o->kind == CKPT__OPTIMIZER && p->optimizer_count > 0 && p->optimizers[0].dict == n->value &&
             !ckpt__pointers_get(&p->anatomy->made, n->value, NULL))
        note_path(p, o->node, p->paths.optimizer);
}

/* A model's dict that was made beside a flattened optimizer is in no file. */
static void look_for_model(ckpt__examination *p)
{
    ckpt_str path = p->canon ? p->canon->model_path : none;
    const ckpt__tree *t = &p->anatomy->tree;
    const ckpt_value *in_file = path.data ? ckpt__value_at(p->index->root, path) : NULL;
    for (size_t i = 0; in_file && in_file->kind == CKPT_V_DICT && i < t->count; i++)
        if (t->nodes[i].value->kind == CKPT_V_DICT && ckpt__str_equal(t->nodes[i].name, path)) {
            note_path(p, i, p->paths.model);
            return;
        }
}

/* ---- what they say together */

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

/* Does a part of the name begin with an underscore, as those of all wrappers but the first do? */
static bool has_hidden_part(ckpt_str name)
{
    size_t i = 0;
    for (const char *at; i < name.size && (at = memchr(name.data + i, '_', name.size - i)) != NULL; i++) {
        i = (size_t)(at - name.data);
        if (i == 0 || at[-1] == '.')
            return true;
    }
    return false;
}

/* Names as a wrapper of the model leaves them. */
static void check_prefix(ckpt__examination *p)
{
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        ckpt_str name = t->path.count ? t->path.keys[t->path.count - 1].text : t->name;
        if (t->role != CKPT_ROLE_PARAM && t->role != CKPT_ROLE_BUFFER)
            continue;
        if (!name.data || (!ckpt__str_begins(name, ckpt__wrappers[0]) && !has_hidden_part(name)))
            continue;
        for (size_t k = 0; k < CKPT__WRAPPERS; k++) {
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
    if (status != CKPT_OK)
        return status;
    for (size_t i = 0; i < p->anatomy->count; i++)
        look_at_organ(p, &p->anatomy->organs[i]);
    look_for_model(p);
    check_scaler(p);
    check_prefix(p);
    if (p->has_scheduler && p->optimizer_count == 0 && !p->broken_optimizer)
        ckpt__doctor_note(p, CKPT__SCHEDULER_ALONE, NULL, none, NULL, NULL, NULL);
    return status;
}
