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
 * Both match an optimizer's states by position. Where the states have masters those are the weights: both programs train weights of
 * float32. */
#include "migrate/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include "codec/json.h"
#include "format/table.h"
#include "model/views.h"

typedef struct trainer {
    ckpt__out *w;
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__trained_parts parts;
    bool accelerate;
    bool *used;           /* heap: of the root's entries, those that have a place */
    ckpt__made_dict tree; /* by the files' names: what is read back */
    size_t *order, count; /* heap: tensors by files */
    bool *placed;         /* heap, one a tensor: it is in a file */
    size_t masters;       /* that are the weights */
    ckpt_error *err;
} trainer;

static ckpt_status no_memory(const trainer *t)
{
    return ckpt__migration_no_memory(t->err);
}

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

static ckpt_status add_file(trainer *t, const char *name, const char *format, const ckpt_value *own,
                            const ckpt_value *root)
{
    const size_t first = t->count;
    if (!own || !root)
        return no_memory(t);
    ckpt_status status = (ckpt_status)ckpt_value_walk(own, 0, place_tensor, t, t->err);
    ckpt__out_file *f = status == CKPT_OK ? ckpt__out_add(t->w, name) : NULL;
    ckpt__made_put_as(&t->tree, name, own);
    if (!f)
        return status == CKPT_OK ? no_memory(t) : status;
    f->format = ckpt__format_find(format);
    f->first = first;
    f->count = t->count - first;
    f->root = root;
    return CKPT_OK;
}

static ckpt_status add_torch(trainer *t, const char *name, const ckpt_value *root)
{
    return add_file(t, name, "torch", root, root);
}

/* ---- the weights */

static const ckpt__trained *trained(const trainer *t, ckpt_str name)
{
    size_t at;
    return ckpt__hash_get(t->parts.by_name, name.data, name.size, &at) ? &t->parts.params[at] : NULL;
}

/* Another name of a weight that is written: the program ties it again. *seen: view -> tensor, by the storage. */
static bool is_tied(const trainer *t, ckpt__hash *seen, size_t tensor, size_t *first, bool *failed)
{
    const ckpt__tensor *one = &t->m->index->tensors[tensor];
    char key[60];
    if (!one->whole || !one->info.nbytes)
        return false;
    int n = snprintf(key, sizeof key, "%u %lld", one->storage, (long long)one->info.offset);
    ckpt_str text = ckpt__arena_str(t->arena, key, (size_t)n);
    int put = text.data ? ckpt__hash_put(seen, text.data, text.size, tensor, first) : -1;
    *failed |= put < 0;
    return put == 0 && ckpt__same_view(&t->m->index->tensors[*first], one);
}

static ckpt_status write_weight(trainer *t, const ckpt_entry *e, ckpt__hash *seen, ckpt__made_dict *d)
{
    char other[200];
    size_t first;
    bool failed = false;
    const ckpt_str name = e->key->text;
    if (is_tied(t, seen, e->value->tensor, &first, &failed)) {
        ckpt_str is = t->m->index->tensors[first].info.name;
        t->m->ledger.rows[e->value->tensor].fate = CKPT__FATE_TIED;
        return ckpt__migration_note(t->m, CKPT_SEVERITY_NOTE, "tied", name, t->err,
                                    "is '%s' under another name: left out, the program ties it again",
                                    ckpt__escape(other, sizeof other, is.data, is.size));
    }
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
    return failed ? no_memory(t) : CKPT_OK;
}

static ckpt_status write_model(trainer *t)
{
    const ckpt_value *model = t->parts.model;
    ckpt__made_dict d = {.arena = t->arena}, format = {.arena = t->arena}, meta = {.arena = t->arena};
    ckpt__hash *seen = ckpt__hash_new(64);
    size_t others = 0;
    ckpt_status status = seen ? CKPT_OK : no_memory(t);
    if (status == CKPT_OK && (!model || model->entry_count == 0))
        status =
            ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                       "the checkpoint has no model, which the program asks for first. Where its weights are, a map "
                       "file says: {map: 1, source: {model: 'PATH'}} (--map-location)");
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
        status = add_file(t, "model.safetensors", "safetensors", own, root);
    if (status == CKPT_OK && others)
        status = ckpt__lose(t->m, t->err, "%zu values of the model that are no tensors", others);
    if (status == CKPT_OK && t->masters)
        status = ckpt__migration_note(t->m, CKPT_SEVERITY_NOTE, "weights-from-masters", (ckpt_str){NULL, 0}, t->err,
                                      "%zu weights are written as their float32 masters, of which they were rounded",
                                      t->masters);
    ckpt__hash_free(seen);
    return status;
}

/* ---- the optimizer */

/* Without its master, which is the weight now. */
static const ckpt_value *state_of(const trainer *t, const ckpt_value *state)
{
    return ckpt__made_without(t->arena, state, ckpt__master_in(t->m, state));
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
static ckpt_status refuse_optimizer(const trainer *t)
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
        return refuse_optimizer(t);
    const size_t count = t->parts.groups->item_count;
    const ckpt_value **groups = ckpt__arena_array(t->arena, count + 1, sizeof *groups);
    for (size_t i = 0; states && i < states->entry_count; i++)
        ckpt__made_put(&all, states->entries[i].key, state_of(t, states->entries[i].value));
    for (size_t g = 0; groups && g < count; g++)
        if (!(groups[g] = group_of(t, t->parts.groups->items[g])))
            return no_memory(t);
    ckpt__made_put_as(&both, "state", ckpt__made_finish(&all));
    ckpt__made_put_as(&both, "param_groups", groups ? ckpt__value_list(t->arena, CKPT_V_LIST, groups, count) : NULL);
    ckpt_status status = add_torch(t, t->accelerate ? "optimizer.bin" : "optimizer.pt", ckpt__made_finish(&both));
    return status == CKPT_OK ? ckpt__lose_settings(t->m, t->parts.optimizer, t->err) : status;
}

/* ---- what stands beside, by the names that files and programs give it */

/* NULL: there is none. */
static const ckpt_value *take(trainer *t, const char *const *names)
{
    const ckpt_value *root = t->m->root;
    for (; *names; names++)
        for (size_t i = 0; i < root->entry_count; i++) {
            const ckpt_entry *e = &root->entries[i];
            if (e->key->kind != CKPT_V_STR || !ckpt__str_is(e->key->text, *names) || e->value->kind != CKPT_V_DICT)
                continue;
            t->used[i] = true;
            return e->value;
        }
    return NULL;
}

static ckpt_status write_scheduler(trainer *t)
{
    static const char *const names[] = {"scheduler.pt", "scheduler.bin", "scheduler", "lr_scheduler", NULL};
    const ckpt_value *v = take(t, names);
    if (v)
        return add_torch(t, t->accelerate ? "scheduler.bin" : "scheduler.pt", v);
    return t->accelerate
               ? ckpt__lose(
                     t->m, t->err,
                     "the scheduler, which the checkpoint does not have: load_state of a program that has one asks "
                     "for scheduler.bin (FileNotFoundError)")
               : ckpt__lose(t->m, t->err,
                            "the optimizer's state to the Trainer: it loads optimizer.pt and scheduler.pt together or "
                            "none, without a word, and the checkpoint has no scheduler");
}

static ckpt_status write_scaler(trainer *t)
{
    static const char *const names[] = {"scaler.pt", "scaler", NULL};
    const ckpt_value *v = take(t, names);
    return v ? add_torch(t, "scaler.pt", v) : CKPT_OK;
}

/* Random states of one process: what the Trainer calls them, and accelerate. */
static const char *const random_keys[][2] = {
    {"python", "random_state"}, {"numpy", "numpy_random_seed"}, {"cpu", "torch_manual_seed"}};

static bool is_random(const ckpt_value *v, size_t whose)
{
    bool all = true;
    for (size_t i = 0; i < 3; i++)
        all = all && ckpt__at(v, random_keys[i][whose]);
    return all;
}

static ckpt_status write_random(trainer *t)
{
    static const char *const names[] = {"rng_state.pth", "random_states_0.pkl", "rng", NULL};
    const ckpt_value *v = take(t, names);
    const char *name = t->accelerate ? "random_states_0.pkl" : "rng_state.pth";
    const size_t own = t->accelerate, other = !own;
    ckpt__made_dict d = {.arena = t->arena};
    if (!v)
        return CKPT_OK;
    if (is_random(v, own))
        return add_torch(t, name, v);
    if (!is_random(v, other))
        return ckpt__lose(t->m, t->err, "the random states, which are not those of Python, numpy and torch together");
    if (own)
        ckpt__made_put_as(&d, "step", ckpt__value_int(t->arena, 0));
    for (size_t i = 0; i < 3; i++)
        ckpt__made_put_as(&d, random_keys[i][own], ckpt__at(v, random_keys[i][other]));
    ckpt_status status = add_torch(t, name, ckpt__made_finish(&d));
    const char *device = other ? "torch_cuda_manual_seed" : "cuda";
    if (status == CKPT_OK && ckpt__at(v, device))
        status = ckpt__lose(t->m, t->err, "the random states of the GPUs ('%s')", device);
    return status;
}

/* Files of the program itself, of a checkpoint that is its own: under their names. */
static bool is_own_file(const trainer *t, ckpt_str name)
{
    static const char *const accelerate[] = {"random_states_", "sampler", "custom_checkpoint_", "dl_state_dict"},
                             *const hf[] = {"rng_state_", "training_args.bin"};
    const char *const *heads = t->accelerate ? accelerate : hf;
    const size_t count = t->accelerate ? sizeof accelerate / sizeof *accelerate : sizeof hf / sizeof *hf;
    const bool file = ckpt__str_ends(name, ".bin") || ckpt__str_ends(name, ".pkl") || ckpt__str_ends(name, ".pth");
    for (size_t i = 0; file && !memchr(name.data, '/', name.size) && i < count; i++)
        if (ckpt__str_begins(name, heads[i]))
            return true;
    return false;
}

/* ---- trainer_state.json */

static bool has_file(trainer *t, const char *name)
{
    ckpt_error why = CKPT_ERROR_INIT;
    uint32_t file;
    return t->m->reader->source->directory && t->m->options.also_count == 0 &&
           ckpt__source_add(t->m->reader->source, name, &file, &why) == CKPT_OK;
}

static void put_number(ckpt__buf *b, const ckpt_value *v, const char *otherwise)
{
    if (v && v->kind == CKPT_V_INT)
        ckpt__json_put_i64(b, v->integer);
    else if (v && v->kind == CKPT_V_FLOAT)
        ckpt__json_put_double(b, v->real);
    else
        ckpt__buf_str(b, otherwise);
}

/* What the Trainer does not read of its arguments, but of this file: the numbers are its own defaults. */
static ckpt_status make_state(trainer *t, ckpt__buf *b, int64_t step)
{
    static const struct {
        const char *key, *otherwise;
    } numbers[] = {{"epoch", "0.0"},          {"max_steps", "0"},    {"num_train_epochs", "0"},
                   {"logging_steps", "500"},  {"save_steps", "500"}, {"eval_steps", "500"},
                   {"train_batch_size", "1"}, {"total_flos", "0.0"}, {"num_input_tokens_seen", "0"},
                   {"best_metric", "null"}};
    static const char *const names[] = {"trainer_state", "trainer_state.json", NULL};
    const ckpt_value *was = take(t, names);
    ckpt__buf_str(b, "{\n");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const ckpt_value *v = ckpt__at(was, numbers[i].key);
        ckpt__buf_printf(b, "  \"%s\": ", numbers[i].key);
        put_number(b, v || i ? v : ckpt__at(t->m->root, "epoch"), numbers[i].otherwise);
        ckpt__buf_str(b, ",\n");
    }
    ckpt__buf_str(b, "  \"global_step\": ");
    ckpt__json_put_i64(b, step);
    ckpt__buf_str(
        b, ",\n  \"log_history\": [],\n  \"best_global_step\": null,\n  \"best_model_checkpoint\": null,\n"
           "  \"is_hyper_param_search\": false,\n  \"is_local_process_zero\": true,\n"
           "  \"is_world_process_zero\": true,\n  \"trial_name\": null,\n  \"trial_params\": null,\n"
           "  \"stateful_callbacks\": {\n    \"TrainerControl\": {\n      \"args\": {},\n      \"attributes\": {}\n"
           "    }\n  }\n}\n");
    if (b->failed)
        return no_memory(t);
    if (was)
        return ckpt__lose(t->m, t->err, "of trainer_state the logs and the states of callbacks");
    return ckpt__migration_note(
        t->m, CKPT_SEVERITY_WARNING, "trainer-state-made", ckpt__s("trainer_state.json"), t->err,
        "it was made: logging_steps, save_steps and eval_steps are 500 in it, and the Trainer takes "
        "them from there and not from its arguments: set them to those of the run");
}

static ckpt_status write_state(trainer *t)
{
    const int64_t step = t->m->index->step;
    static const char *const names[] = {"trainer_state.json", NULL};
    const bool own = has_file(t, names[0]);
    if (!own && step < 0)
        return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                          "the checkpoint does not say which step it is of, and the Trainer goes on from there");
    ckpt__out_file *f = ckpt__out_add(t->w, names[0]);
    if (!f)
        return no_memory(t);
    f->copy = own;
    if (own)
        take(t, names);
    return own ? CKPT_OK : make_state(t, &f->text, step);
}

/* ---- all else */

static bool has_out(const trainer *t, ckpt_str name)
{
    for (size_t i = 0; i < t->w->count; i++)
        if (ckpt__str_is(name, t->w->files[i].name))
            return true;
    return false;
}

/* What a file of weights says of itself, or a value that is in a file by now: its own, or one that is carried along. */
static bool is_written(const trainer *t, const ckpt_entry *e)
{
    static const char *const steps[] = {"step", "global_step", "global_steps"};
    const ckpt_str key = e->key->text;
    const ckpt_value *v = e->value;
    bool is = v == t->parts.model || v == t->parts.optimizer || (!t->accelerate && ckpt__str_is(key, "epoch")) ||
              has_out(t, key) || (v->kind == CKPT_V_DICT && v->entry_count == 1 && ckpt__find_entry(v, "__metadata__"));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        is |= ckpt__str_is(key, steps[i]) && v->kind == CKPT_V_INT && v->integer == t->m->index->step;
    return is;
}

static ckpt_status write_others(trainer *t)
{
    const ckpt_value *root = t->m->root;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        char shown[120];
        const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : ckpt__s("a value whose key is no text");
        if (t->used[i] || (e->key->kind == CKPT_V_STR && is_written(t, e)))
            continue;
        if (e->key->kind == CKPT_V_STR && is_own_file(t, key))
            status = add_torch(t, key.data, e->value);
        else if (!t->accelerate && ckpt__str_is(key, "training_args")) /* of such a directory that became a file */
            status = add_torch(t, "training_args.bin", e->value);
        else
            status = ckpt__lose(t->m, t->err, "'%s', for which %s has no file",
                                ckpt__escape(shown, sizeof shown, key.data, key.size),
                                t->accelerate ? "accelerate" : "the Trainer");
    }
    if (status == CKPT_OK && t->accelerate && t->m->index->step >= 0)
        status = ckpt__migration_note(
            t->m, CKPT_SEVERITY_NOTE, "left-out", (ckpt_str){NULL, 0}, t->err,
            "the step (%lld) is in no file of accelerate: its programs have it in the directory's name",
            (long long)t->m->index->step);
    return status;
}

/* m->chosen by files; a tensor that is in none is not written. */
static ckpt_status take_order(trainer *t)
{
    ckpt__migration *m = t->m;
    const ckpt_value *tree = ckpt__made_finish(&t->tree);
    if (!tree)
        return no_memory(t);
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

ckpt_status ckpt__trainer_files(ckpt__out *w)
{
    ckpt__migration *m = w->m;
    trainer t = {.w = w, .m = m, .arena = m->index->arena, .accelerate = m->as == CKPT__AS_ACCELERATE, .err = w->err};
    t.tree.arena = t.arena;
    t.used = calloc(m->root ? m->root->entry_count + 1 : 1, sizeof *t.used);
    t.order = calloc(m->index->tensor_count + 1, sizeof *t.order);
    t.placed = calloc(m->index->tensor_count + 1, sizeof *t.placed);
    ckpt_status status = t.used && t.order && t.placed ? CKPT_OK : no_memory(&t);
    if (status == CKPT_OK)
        status = ckpt__trained_take(m, &t.parts, t.err);
    ckpt_status (*const steps[])(trainer * t) = {write_model, write_optimizer, write_scheduler, write_scaler,
                                                 write_random};
    for (size_t i = 0; status == CKPT_OK && i < sizeof steps / sizeof *steps; i++)
        status = steps[i](&t);
    if (status == CKPT_OK && !t.accelerate)
        status = write_state(&t);
    if (status == CKPT_OK && m->reader->source->directory)
        status = ckpt__carry_files(w);
    if (status == CKPT_OK)
        status = write_others(&t);
    if (status == CKPT_OK)
        status = take_order(&t);
    free(t.tree.entries);
    free(t.used);
    free(t.order);
    free(t.placed);
    ckpt__trained_free(&t.parts);
    return status;
}
