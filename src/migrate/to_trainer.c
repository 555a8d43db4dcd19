/* migrate/to_trainer.c - a directory that the HF Trainer or accelerate resumes from, in one process or with DDP
 * (transformers/trainer.py, accelerate/checkpointing.py):
 *
 *     the Trainer's checkpoint-N    accelerate's save_state
 *     model.safetensors             model.safetensors        weights; of a tied one the first name
 *     optimizer.pt                  optimizer.bin            {'state': {id: {...}}, 'param_groups': [...]}: ids in order
 *     scheduler.pt                  scheduler.bin
 *     rng_state.pth                 random_states_0.pkl      of one process
 *     scaler.pt                     scaler.pt
 *     trainer_state.json                                     the step, and how often the program logs and saves
 *
 * What they write of FSDP2 and of DeepSpeed: to_trainer_shards.c. Of one process both match an optimizer's states by position. Where the states have masters those are the weights: both programs train weights of
 * float32. */
#include "migrate/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"
#include "model/views.h"

typedef ckpt__trainer trainer;

/* ---- files */

static int place_tensor(void *ctx, const ckpt_visit *visit)
{
    trainer *t = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= t->m->index->tensor_count || t->placed[v->tensor])
        return 0;
    for (size_t i = v->tensor, end = ckpt__tensor_end(t->m->index, i); i < end; i++) {
        t->placed[i] = true;
        t->order[t->count++] = i;
    }
    return 0;
}

ckpt_status ckpt__trainer_placed(trainer *t, const char *name, const ckpt_value *own)
{
    if (!own)
        return ckpt__trainer_no_memory(t);
    ckpt__made_put_as(&t->tree, name, own);
    return (ckpt_status)ckpt_value_walk(own, 0, place_tensor, t, t->err);
}

ckpt_status ckpt__trainer_file(trainer *t, const char *name, const char *format, const ckpt_value *own,
                               const ckpt_value *root)
{
    const size_t first = t->count;
    ckpt_status status = root ? ckpt__trainer_placed(t, name, own) : ckpt__trainer_no_memory(t);
    ckpt__out_file *f = status == CKPT_OK ? ckpt__out_add(t->w, name) : NULL;
    if (!f)
        return status == CKPT_OK ? ckpt__trainer_no_memory(t) : status;
    f->format = ckpt__format_find(format);
    f->first = first;
    f->count = t->count - first;
    f->root = root;
    return CKPT_OK;
}

ckpt_status ckpt__trainer_torch(trainer *t, const char *name, const ckpt_value *root)
{
    return ckpt__trainer_file(t, name, "torch", root, root);
}

/* ---- the weights */

static const ckpt__trained *trained(const trainer *t, ckpt_str name)
{
    size_t at;
    return ckpt__hash_get(t->parts.by_name, name.data, name.size, &at) ? &t->parts.params[at] : NULL;
}

static ckpt_status write_weight(trainer *t, const ckpt_entry *e, ckpt__hash *seen, ckpt__made_dict *d)
{
    const ckpt_str name = e->key->text;
    bool tied;
    ckpt_status status =
        ckpt__leave_tied(t->m, seen, e->value->tensor, name, "the program ties it again", &tied, t->err);
    if (status < 0 || tied)
        return status;
    const ckpt__trained *own = trained(t, name);
    const ckpt_value *master = own ? ckpt__master_in(t->m, own->state) : NULL, *v = master ? master : e->value;
    if (master) {
        if (t->m->canon->order.ambiguous)
            return ckpt__fail(
                t->err, CKPT_E_MISMATCH, t->m->src,
                "the optimizer's states have masters, which are to be the weights, and which of the model's "
                "parameters its numbers are is not known: state their names (--param-names)");
        t->masters++;
        t->m->ledger.rows[e->value->tensor].fate = CKPT__FATE_TIED;
    }
    t->m->index->tensors[v->tensor].info.name = name;
    ckpt__made_put(d, e->key, v);
    return CKPT_OK;
}

ckpt_status ckpt__trainer_no_model(const trainer *t)
{
    return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                      "the checkpoint has no model, which the program asks for first. Where its weights are, a map "
                      "file says: {map: 1, source: {model: 'PATH'}} (--map-location)");
}

static ckpt_status write_model(trainer *t)
{
    const ckpt_value *model = t->parts.model;
    ckpt__made_dict d = {.arena = t->arena}, format = {.arena = t->arena}, meta = {.arena = t->arena};
    ckpt__hash *seen = ckpt__hash_new(64);
    size_t others = 0;
    ckpt_status status = seen ? CKPT_OK : ckpt__trainer_no_memory(t);
    if (status == CKPT_OK && (!model || model->entry_count == 0))
        status = ckpt__trainer_no_model(t);
    for (size_t i = 0; status == CKPT_OK && i < model->entry_count; i++) {
        const ckpt_entry *e = &model->entries[i];
        if (e->value->kind != CKPT_V_TENSOR || e->key->kind != CKPT_V_STR)
            others += e->key->kind != CKPT_V_STR || !ckpt__str_is(e->key->text, "__metadata__");
        else
            status = write_weight(t, e, seen, &d);
    }
    ckpt__made_put_as(&format, "format", ckpt__value_str(t->arena, "pt", 2));
    ckpt__made_put_as(&meta, "__metadata__", ckpt__made_finish(&format));
    const ckpt_value *own = ckpt__made_finish(&d), *root = ckpt__made_finish(&meta);
    if (status == CKPT_OK)
        status = ckpt__trainer_file(t, "model.safetensors", "safetensors", own, root);
    if (status == CKPT_OK && others)
        status = ckpt__lose(t->m, t->err, "%zu values of the model that are not tensors", others);
    if (status == CKPT_OK && t->masters)
        status = ckpt__migration_note(t->m, CKPT_SEVERITY_NOTE, "weights-from-masters", (ckpt_str){NULL, 0}, t->err,
                                      "%zu weights are written as their float32 masters, before rounding", t->masters);
    ckpt__hash_free(seen);
    return status;
}

/* ---- the optimizer */

/* Without its master, which is the weight now; and the step first, as torch's optimizers make their states. */
static const ckpt_value *state_of(const trainer *t, const ckpt_value *state)
{
    const ckpt_value *own = ckpt__made_without(t->arena, state, ckpt__master_in(t->m, state));
    ckpt__made_dict d = {.arena = t->arena};
    if (!own || own->kind != CKPT_V_DICT || ckpt__at(own, "step") == NULL ||
        ckpt__at(own, "step") == own->entries[0].value)
        return own;
    for (int first = 1; first >= 0; first--)
        for (size_t i = 0; i < own->entry_count; i++) {
            const ckpt_value *key = own->entries[i].key;
            if ((key->kind == CKPT_V_STR && ckpt__str_is(key->text, "step")) == (first == 1))
                ckpt__made_put(&d, key, own->entries[i].value);
        }
    return ckpt__made_finish(&d);
}

/* With the ids, without names: no program asks for them, and those of an order that was only assumed are nothing to write down. */
static const ckpt_value *group_of(const trainer *t, const ckpt_value *group)
{
    ckpt__made_dict d = {.arena = t->arena};
    for (size_t i = 0; i < group->entry_count; i++)
        if (group->entries[i].key->kind != CKPT_V_STR || !ckpt__str_is(group->entries[i].key->text, "param_names"))
            ckpt__made_put(&d, group->entries[i].key, group->entries[i].value);
    return ckpt__made_finish(&d);
}

/* Nobody would resume from such a directory: without a word the Trainer begins with a new optimizer. */
ckpt_status ckpt__trainer_refuse(const trainer *t)
{
    const bool unnamed = t->m->canon->unnamed.data;
    return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst, "%s",
                      unnamed
                          ? "which of the model's parameters the optimizer's numbers are is not known (--param-names, "
                            "--assume-order)"
                          : "the checkpoint has no optimizer to resume with. For weights alone say --to hf");
}

static ckpt_status write_optimizer(trainer *t)
{
    const ckpt_value *states = ckpt__at(t->parts.optimizer, "state");
    ckpt__made_dict both = {.arena = t->arena}, all = {.arena = t->arena};
    if (!t->parts.groups)
        return ckpt__trainer_refuse(t);
    char shown[200];
    for (size_t i = 0; i < t->parts.count; i++) /* the program counts its own parameters */
        if (t->parts.params[i].weight == SIZE_MAX)
            return ckpt__fail(
                t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                "the optimizer's parameter '%s' is none of the model's, and the program that resumes has the "
                "model's alone: a layout may say what it is of (--layout)",
                ckpt__escape(shown, sizeof shown, t->parts.params[i].name.data, t->parts.params[i].name.size));
    const size_t count = t->parts.groups->item_count;
    const ckpt_value **groups = ckpt__arena_array(t->arena, count + 1, sizeof *groups);
    for (size_t i = 0; states && i < states->entry_count; i++)
        ckpt__made_put(&all, states->entries[i].key, state_of(t, states->entries[i].value));
    for (size_t g = 0; groups && g < count; g++)
        if (!(groups[g] = group_of(t, t->parts.groups->items[g])))
            return ckpt__trainer_no_memory(t);
    ckpt__made_put_as(&both, "state", ckpt__made_finish(&all));
    ckpt__made_put_as(&both, "param_groups", groups ? ckpt__value_list(t->arena, CKPT_V_LIST, groups, count) : NULL);
    ckpt_status status =
        ckpt__trainer_torch(t, t->accelerate ? "optimizer.bin" : "optimizer.pt", ckpt__made_finish(&both));
    return status == CKPT_OK ? ckpt__lose_settings(t->m, t->parts.optimizer, t->err) : status;
}

/* The Trainer makes two groups, the first of the parameters that decay, and refuses to load another number of them. */
static ckpt_status say_groups(const trainer *t)
{
    const size_t count = t->parts.groups ? t->parts.groups->item_count : 2;
    if (count == 2)
        return CKPT_OK;
    return ckpt__migration_note(
        t->m, CKPT_SEVERITY_WARNING, "trainer-groups", (ckpt_str){NULL, 0}, t->err,
        "the optimizer has %zu group%s, and the Trainer makes two (the first of the parameters that decay, the second of biases and "
        "norms) and refuses another number: give it the program's own optimizer, Trainer(optimizers=(optimizer, scheduler))",
        count, count == 1 ? "" : "s");
}

/* m->chosen by files; a tensor that is in none is not written. */
static ckpt_status take_order(trainer *t)
{
    ckpt__migration *m = t->m;
    const ckpt_value *tree = ckpt__made_finish(&t->tree);
    if (!tree)
        return ckpt__trainer_no_memory(t);
    m->root = tree;
    for (size_t k = 0; k < m->chosen_count; k++)
        if (!t->placed[m->chosen[k]] && m->ledger.rows[m->chosen[k]].fate == CKPT__FATE_GOES)
            m->ledger.rows[m->chosen[k]].fate = CKPT__FATE_LOST;
    free(m->chosen);
    m->chosen = t->order;
    m->chosen_count = t->count;
    t->order = NULL;
    return CKPT_OK;
}

/* Of one process and of FSDP2 the files have all that goes along; DeepSpeed's client state takes what is left. */
static ckpt_status write_all(trainer *t)
{
    typedef ckpt_status step(trainer * t);
    static step *const whole[] = {write_model,          write_optimizer,      ckpt__trainer_scheduler,
                                  ckpt__trainer_scaler, ckpt__trainer_random, NULL},
                       *const fsdp[] = {ckpt__trainer_fsdp, ckpt__trainer_scheduler, ckpt__trainer_scaler,
                                        ckpt__trainer_random, NULL},
                       *const deepspeed[] = {ckpt__trainer_scheduler, ckpt__trainer_random, NULL};
    ckpt_status status = CKPT_OK;
    for (step *const *s = t->fsdp ? fsdp : t->deepspeed ? deepspeed : whole; status == CKPT_OK && *s; s++)
        status = (*s)(t);
    if (status == CKPT_OK && !t->accelerate)
        status = ckpt__trainer_state(t);
    if (status == CKPT_OK && !t->accelerate)
        status = say_groups(t);
    if (status == CKPT_OK && t->m->reader->source->directory)
        status = ckpt__carry_files(t->w);
    if (status == CKPT_OK)
        status = ckpt__trainer_own(t);
    if (status == CKPT_OK)
        status = t->deepspeed ? ckpt__trainer_deepspeed(t) : ckpt__trainer_others(t);
    return status == CKPT_OK && !t->deepspeed ? take_order(t) : status;
}

ckpt_status ckpt__trainer_files(ckpt__out *w)
{
    ckpt__migration *m = w->m;
    trainer t = {.w = w,
                 .m = m,
                 .arena = m->index->arena,
                 .accelerate = ckpt__is_accelerates(m),
                 .fsdp = ckpt__is_fsdps(m),
                 .deepspeed = m->as == CKPT__AS_HF_TRAINER_DEEPSPEED || m->as == CKPT__AS_ACCELERATE_DEEPSPEED,
                 .err = w->err};
    t.tree.arena = t.arena;
    t.used = calloc(m->root ? m->root->entry_count + 1 : 1, sizeof *t.used);
    t.order = calloc(m->index->tensor_count + 1, sizeof *t.order);
    t.placed = calloc(m->index->tensor_count + 1, sizeof *t.placed);
    ckpt_status status = t.used && t.order && t.placed ? CKPT_OK : ckpt__trainer_no_memory(&t);
    if (status == CKPT_OK)
        status = ckpt__trained_take(m, &t.parts, t.err);
    if (status == CKPT_OK)
        status = write_all(&t);
    free(t.tree.entries);
    free(t.used);
    free(t.order);
    free(t.placed);
    ckpt__trained_free(&t.parts);
    return status;
}
