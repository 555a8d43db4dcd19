/* migrate/trainer_beside.c - what stands beside the weights and the optimizer in a directory of the HF Trainer or of accelerate. */
#include "migrate/trainer.h"

#include <stdio.h>
#include "codec/json.h"

typedef ckpt__trainer trainer;

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

/* What becomes of a resume without one: each program has its own way. */
static ckpt_status lose_scheduler(trainer *t)
{
    if (t->accelerate)
        return ckpt__lose(
            t->m, t->err,
            "the scheduler, which the checkpoint does not have: load_state of a program that has one asks "
            "for scheduler.bin (FileNotFoundError)");
    if (t->deepspeed)
        return ckpt__lose(t->m, t->err,
                          "the scheduler, which the checkpoint does not have: with DeepSpeed the Trainer asks for "
                          "scheduler.pt (FileNotFoundError), unless DeepSpeed's configuration has a scheduler");
    return ckpt__lose(t->m, t->err,
                      "the optimizer's state to the Trainer: it loads %s and scheduler.pt together or none, without a "
                      "word, and the checkpoint has no scheduler",
                      t->fsdp ? "optimizer_0" : "optimizer.pt");
}

ckpt_status ckpt__trainer_scheduler(trainer *t)
{
    static const char *const names[] = {"scheduler.pt", "scheduler.bin", "scheduler", "lr_scheduler", NULL};
    const ckpt_value *v = take(t, names);
    return v ? ckpt__trainer_torch(t, t->accelerate ? "scheduler.bin" : "scheduler.pt", v) : lose_scheduler(t);
}

ckpt_status ckpt__trainer_scaler(trainer *t)
{
    static const char *const names[] = {"scaler.pt", "scaler", NULL};
    const ckpt_value *v = take(t, names);
    return v ? ckpt__trainer_torch(t, "scaler.pt", v) : CKPT_OK;
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

/* Under the program's own keys, whichever of the two had it. */
static ckpt_status write_random(trainer *t, const char *name, const ckpt_value *v)
{
    const size_t own = t->accelerate, other = !own;
    ckpt__made_dict d = {.arena = t->arena};
    if (is_random(v, own))
        return ckpt__trainer_torch(t, name, v);
    if (!is_random(v, other))
        return ckpt__lose(t->m, t->err, "the random states, which are not those of Python, numpy and torch together");
    if (own)
        ckpt__made_put_as(&d, "step", ckpt__value_int(t->arena, 0));
    for (size_t i = 0; i < 3; i++)
        ckpt__made_put_as(&d, random_keys[i][own], ckpt__at(v, random_keys[i][other]));
    ckpt_status status = ckpt__trainer_torch(t, name, ckpt__made_finish(&d));
    const char *device = other ? "torch_cuda_manual_seed" : "cuda";
    if (status == CKPT_OK && ckpt__at(v, device))
        status = ckpt__lose(t->m, t->err, "the random states of the GPUs ('%s')", device);
    return status;
}

/* Of the rank, as either program and a file of torch call it. NULL: there is none. */
static const ckpt_value *random_of(trainer *t, size_t rank)
{
    static const char *const one[] = {"rng_state.pth", "rng", NULL};
    char hf[40], accelerate[40], plain[40];
    snprintf(hf, sizeof hf, "rng_state_%zu.pth", rank);
    snprintf(accelerate, sizeof accelerate, "random_states_%zu.pkl", rank);
    snprintf(plain, sizeof plain, "rng_%zu", rank);
    const char *const names[] = {hf, accelerate, plain, NULL};
    const ckpt_value *v = take(t, names);
    return v || rank ? v : take(t, one);
}

/* A process of several has a file of its own. What one process had is the first rank's: the others would draw what it draws. */
static ckpt_status write_ranks(trainer *t)
{
    const uint32_t wanted = t->m->options.target_world;
    const ckpt_value *v;
    size_t ranks = 0;
    ckpt_status status = CKPT_OK;
    for (; status == CKPT_OK && (v = random_of(t, ranks)); ranks++) {
        char name[40];
        if (t->accelerate)
            snprintf(name, sizeof name, "random_states_%zu.pkl", ranks);
        else if (wanted == 1 && ranks == 0)
            snprintf(name, sizeof name, "rng_state.pth");
        else
            snprintf(name, sizeof name, "rng_state_%zu.pth", ranks);
        status = write_random(t, name, v);
    }
    if (status < 0 || ranks == 0 || (wanted ? ranks >= wanted : ranks > 1))
        return status;
    return ckpt__migration_note(t->m, CKPT_SEVERITY_WARNING, "rank-state", (ckpt_str){NULL, 0}, t->err,
                                "the random states of %zu rank%s are there: each other rank begins with what its "
                                "program seeds",
                                ranks, ranks == 1 ? "" : "s");
}

ckpt_status ckpt__trainer_random(trainer *t)
{
    static const char *const names[] = {"rng_state.pth", "random_states_0.pkl", "rng", NULL};
    if (t->fsdp || t->deepspeed)
        return write_ranks(t);
    const ckpt_value *v = take(t, names);
    return v ? write_random(t, t->accelerate ? "random_states_0.pkl" : "rng_state.pth", v) : CKPT_OK;
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

static bool is_number(const ckpt_value *v)
{
    return v && (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT);
}

static void put_number(ckpt__buf *b, const ckpt_value *v, const char *otherwise)
{
    if (!is_number(v))
        ckpt__buf_str(b, otherwise);
    else if (v->kind == CKPT_V_INT)
        ckpt__json_put_i64(b, v->integer);
    else
        ckpt__json_put_double(b, v->real);
}

static const ckpt_value *epoch_in(const ckpt_value *dict)
{
    const ckpt_value *v = ckpt__at(dict, "epoch");
    return is_number(v) ? v : NULL;
}

static bool same_number(const ckpt_value *a, const ckpt_value *b)
{
    const ckpt_value *i = a->kind == CKPT_V_INT ? a : b, *f = i == a ? b : a;
    return a->kind == b->kind ? ckpt__value_alike(a, b) : f->real == (double)i->integer;
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
    ckpt_status status = CKPT_OK;
    t->epoch = epoch_in(was) ? epoch_in(was) : epoch_in(t->m->root);
    ckpt__buf_str(b, "{\n");
    for (size_t i = 0; status == CKPT_OK && i < sizeof numbers / sizeof *numbers; i++) {
        const ckpt_value *v = ckpt__at(was, numbers[i].key);
        ckpt__buf_printf(b, "  \"%s\": ", numbers[i].key);
        put_number(b, i ? v : t->epoch, numbers[i].otherwise);
        ckpt__buf_str(b, ",\n");
        if (v && v->kind != CKPT_V_NONE && !is_number(v))
            status = ckpt__lose(t->m, t->err, "'%s' of trainer_state, which is not a number", numbers[i].key);
    }
    if (status < 0)
        return status;
    ckpt__buf_str(b, "  \"global_step\": ");
    ckpt__json_put_i64(b, step);
    ckpt__buf_str(
        b, ",\n  \"log_history\": [],\n  \"best_global_step\": null,\n  \"best_model_checkpoint\": null,\n"
           "  \"is_hyper_param_search\": false,\n  \"is_local_process_zero\": true,\n"
           "  \"is_world_process_zero\": true,\n  \"trial_name\": null,\n  \"trial_params\": null,\n"
           "  \"stateful_callbacks\": {\n    \"TrainerControl\": {\n      \"args\": {},\n      \"attributes\": {}\n"
           "    }\n  }\n}\n");
    if (b->failed)
        return ckpt__trainer_no_memory(t);
    if (was)
        return ckpt__lose(t->m, t->err, "of trainer_state the logs and the states of callbacks");
    return ckpt__migration_note(
        t->m, CKPT_SEVERITY_WARNING, "trainer-state-made", ckpt__s("trainer_state.json"), t->err,
        "it was made: logging_steps, save_steps and eval_steps are 500 in it, and the Trainer takes "
        "them from there and not from its arguments: set them to those of the run");
}

ckpt_status ckpt__trainer_state(trainer *t)
{
    const int64_t step = t->m->index->step;
    static const char *const names[] = {"trainer_state.json", NULL};
    const bool own = has_file(t, names[0]);
    if (!own && step < 0)
        return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->dst,
                          "the checkpoint does not say which step it is of, and the Trainer goes on from there");
    ckpt__out_file *f = ckpt__out_add(t->w, names[0]);
    if (!f)
        return ckpt__trainer_no_memory(t);
    f->copy = own;
    if (own)
        t->epoch = epoch_in(take(t, names));
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
    bool is = v == t->parts.model || v == t->parts.optimizer ||
              (t->epoch && ckpt__str_is(key, "epoch") && is_number(v) && same_number(t->epoch, v)) || has_out(t, key) ||
              (v->kind == CKPT_V_DICT && v->entry_count == 1 && ckpt__find_entry(v, "__metadata__"));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        is |= ckpt__str_is(key, steps[i]) && v->kind == CKPT_V_INT && v->integer == t->m->index->step;
    return is;
}

ckpt_status ckpt__trainer_own(trainer *t)
{
    const ckpt_value *root = t->m->root;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        if (t->used[i] || e->key->kind != CKPT_V_STR)
            continue;
        t->used[i] = true;
        if (is_written(t, e))
            continue;
        if (is_own_file(t, e->key->text))
            status = ckpt__trainer_torch(t, e->key->text.data, e->value);
        else if (!t->accelerate &&
                 ckpt__str_is(e->key->text, "training_args")) /* of such a directory that became a file */
            status = ckpt__trainer_torch(t, "training_args.bin", e->value);
        else
            t->used[i] = false;
    }
    if (status == CKPT_OK && t->accelerate && t->m->index->step >= 0)
        status = ckpt__migration_note(
            t->m, CKPT_SEVERITY_NOTE, "left-out", (ckpt_str){NULL, 0}, t->err,
            "the step (%lld) is in no file of accelerate: its programs have it in the directory's name",
            (long long)t->m->index->step);
    return status;
}

ckpt_status ckpt__trainer_others(trainer *t)
{
    const ckpt_value *root = t->m->root;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        char shown[120];
        const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : ckpt__s("a value whose key is not text");
        if (!t->used[i])
            status = ckpt__lose(t->m, t->err, "'%s', for which %s has no file",
                                ckpt__escape(shown, sizeof shown, key.data, key.size),
                                t->accelerate ? "accelerate" : "the Trainer");
    }
    return status;
}
