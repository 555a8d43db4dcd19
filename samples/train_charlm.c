/* train_charlm.c - trains a small transformer on a text file, and resumes: on the same device or on another, from its
 * own checkpoints or from PyTorch's.
 *
 * Read it from the bottom: main, train_step, then what makes a run resumable: bind_state, open_run, and, for a
 * checkpoint in one file such as PyTorch's, resume.
 * The model is charlm.c, forward and backward in plain C on the CPU. With --device cuda:N the parameters, the moments
 * and the step counters live on the GPU and the fused optimizer runs there; the weights are copied to the host for the
 * forward and backward pass, and the gradients back: this sample is about where tensors live, not about speed. */
#include "adamw.h"
#include "charlm.h"
#include "gpu.h"
#include "util.h"
#include <math.h>
#include <string.h>

enum { DECAY, NO_DECAY, GROUPS };

static const char usage[] =
    "usage: train_charlm [options] TEXT\n"
    "Trains a small character model on a text file and prints the loss of each step.\n"
    "\n"
    "  --steps N             train until N steps are done (default 100)\n"
    "  --device D            cpu (default) or cuda:N: where a new run starts\n"
    "  --optimizer KIND      fused (default) or plain\n"
    "  --run DIR             keep checkpoints there; the newest whole one is continued\n"
    "  --keep-last N         remove all but the newest N of them\n"
    "  --time-limit S        save and stop before S seconds are over\n"
    "  --save PATH           write one checkpoint there at the end; replaced whole or not at all\n"
    "  --save-every N        save after every N steps too\n"
    "  --resume PATH         continue a checkpoint: this trainer's, or PyTorch's of the same model;\n"
    "                        with --run only where there is none yet\n"
    "  --map-location RULES  where its tensors go: cuda:1, or cuda:0=cuda:1,cpu=cpu, or a YAML file\n"
    "                        (default: the --device); the run goes on where the parameters are\n"
    "  --allow-unexpected    leave alone what the checkpoint has and this trainer does not know\n"
    "  --seed N              of fresh weights and of the order of the data (default 1609)\n"
    "  --lr X                learning rate of a new run (default 0.003)\n"
    "  --growth-interval N   steps without overflow until the loss scale doubles (default 25)\n"
    "\n"
    "To try what can go wrong:\n"
    "  --overflow-at N       step N gets an infinite gradient: the grad scaler skips it\n"
    "  --unguarded           let a map through that breaks the optimizer's placement policy\n"
    "  --forget WHAT         after a resume, lose the moments, the steps or the rng: the losses then differ\n";

typedef struct command {
    const char *text, *run, *save, *resume, *map_location, *forget;
    ckpt_device device;
    adamw_kind optimizer;
    int64_t steps, save_every, keep_last, overflow_at, growth_interval;
    uint64_t seed;
    double lr, time_limit;
    bool allow_unexpected, unguarded;
} command;

typedef struct trainer {
    command cmd;
    unsigned char *text;
    size_t text_size;

    /* The training state: what a checkpoint holds. The four arenas belong to the library, which puts them on their
     * device; the rest are variables of this program. */
    ckpt_state *state;
    charlm_param params[CHARLM_PARAMS];
    size_t total;                         /* floats of all parameters */
    adamw_group groups[GROUPS];
    const char *order[CHARLM_PARAMS];     /* the parameters in the optimizer's order, group by group */
    size_t ordered;
    bool fused;
    ckpt_scaler scaler;
    charlm_rng rng;
    int64_t step;                         /* completed steps, skipped ones included */
    ckpt_run *run;                        /* NULL: without --run */

    /* Working memory: made after the state has its place, and in no checkpoint. */
    ckpt_device device;                   /* where the parameters are */
    gpu *gpu;                             /* NULL on the CPU */
    charlm *model;
    float *host_weights;                  /* the copy that the model reads; NULL on the CPU */
    float *host_grads, *device_grads;
    float *weights[CHARLM_PARAMS], *grads[CHARLM_PARAMS];
    adamw_tensor tensors[CHARLM_PARAMS];
    const char *names[CHARLM_PARAMS];
    adamw *optimizer;
} trainer;

/* ---- what the state is */

/* One arena for the parameters and one for each of their moments, with the same layout; a float32 step for each. */
static void bind_arena(trainer *t, ckpt_role role, ckpt_device device)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_arena_entry entries[CHARLM_PARAMS];
    bool step = role == CKPT_ROLE_STEP;
    for (size_t i = 0; i < CHARLM_PARAMS; i++) {
        const charlm_param *p = &t->params[i];
        entries[i].name = p->name;
        entries[i].offset = (step ? i : p->offset) * sizeof(float);
        entries[i].ndim = step ? 0 : p->ndim;
        entries[i].shape = p->shape;
    }
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.nbytes = (step ? CHARLM_PARAMS : t->total) * sizeof(float);
    arena.dtype = CKPT_F32;
    arena.role = role;
    arena.device = device;
    check(ckpt_state_arena(t->state, &arena, entries, CHARLM_PARAMS, &err), &err);
}

static void bind_group(trainer *t, const char *name, int group)
{
    ckpt_error err = CKPT_ERROR_INIT;
    adamw_group *g = &t->groups[group];
    const ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, &g->lr },         { "betas.0", CKPT_SCALAR_F64, &g->beta1 },
                                  { "betas.1", CKPT_SCALAR_F64, &g->beta2 }, { "eps", CKPT_SCALAR_F64, &g->eps },
                                  { "weight_decay", CKPT_SCALAR_F64, &g->weight_decay },
                                  { "fused", CKPT_SCALAR_BOOL, &t->fused } };
    ckpt_group_desc desc = CKPT_GROUP_DESC_INIT;
    desc.name = name;
    desc.params = t->order + t->ordered;
    for (size_t i = 0; i < CHARLM_PARAMS; i++)
        if (t->params[i].decay == (group == DECAY))
            t->order[t->ordered + desc.param_count++] = t->params[i].name;
    t->ordered += desc.param_count;
    desc.hypers = hypers;
    desc.hyper_count = sizeof hypers / sizeof *hypers;
    check(ckpt_state_group(t->state, &desc, &err), &err);
}

/* Tells the library, once, what this run consists of. Saving and resuming need nothing else. */
static void bind_state(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_device device = t->cmd.device;
    t->state = ckpt_state_new();
    if (!t->state)
        die("out of memory");
    bind_arena(t, CKPT_ROLE_PARAM, device);
    bind_arena(t, CKPT_ROLE_EXP_AVG, device);
    bind_arena(t, CKPT_ROLE_EXP_AVG_SQ, device);
    bind_arena(t, CKPT_ROLE_STEP, t->cmd.optimizer == ADAMW_FUSED ? device : ckpt_cpu());
    bind_group(t, "decay", DECAY);
    bind_group(t, "no_decay", NO_DECAY);
    check(ckpt_state_scaler(t->state, "scaler", &t->scaler, &err), &err);
    check(ckpt_state_bytes(t->state, "rng", &t->rng, sizeof t->rng, &err), &err);
    check(ckpt_state_i64(t->state, "step", &t->step, &err), &err);
    /* A PyTorch checkpoint cannot have this program's generator. */
    check(ckpt_state_optional(t->state, "rng*", &err), &err);
}

/* ---- a new run, or an old one */

static ckpt_optimizer_kind policy(const trainer *t)
{
    return t->cmd.optimizer == ADAMW_FUSED ? CKPT_OPTIMIZER_FUSED : CKPT_OPTIMIZER_PLAIN;
}

/* Every tensor of a checkpoint goes to its target device before the optimizer sees it: map_location says where. */
static ckpt_restore_options restore_options(const trainer *t)
{
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.optimizer = policy(t);
    options.param_names = t->order;       /* PyTorch's optimizers number their parameters: this is the order */
    options.param_name_count = t->ordered;
    options.allow_unexpected = t->cmd.allow_unexpected;
    options.allow_policy_breach = t->cmd.unguarded;
    return options;
}

static const char *map_location(const trainer *t, char device[CKPT_DEVICE_NAME_MAX])
{
    return t->cmd.map_location ? t->cmd.map_location : ckpt_device_name(t->cmd.device, device);
}

static void after_restore(trainer *t, const char *path, ckpt_report *report)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (ckpt_report_find(report, "kept", "rng"))      /* then the data goes on where the step count says */
        t->rng.counter = (uint64_t)t->step * CHARLM_BATCH;
    t->fused = t->cmd.optimizer == ADAMW_FUSED;       /* the group's flag is this run's, not the file's */
    fprintf(stderr, "resumed %s after step %lld: %zu tensors moved to another device\n", path, (long long)t->step,
            ckpt_report_count_code(report, "moved"));
    if (!t->cmd.unguarded && ckpt_guard(t->state, policy(t), NULL, report, &err) != CKPT_OK)
        die("%s", err.message);
}

/* Continues a checkpoint in one file, or one directory. */
static void resume(trainer *t, const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    char device[CKPT_DEVICE_NAME_MAX];
    ckpt_report *report = ckpt_report_new();
    ckpt_restore_options options = restore_options(t);
    options.map_location = map_location(t, device);
    ckpt_status status = ckpt_restore(t->state, path, &options, report, &err);
    print_warnings(report);
    check(status, &err);
    after_restore(t, path, report);
    ckpt_report_free(report);
}

/* "saved" says which checkpoint and what asked for it. A "fallback" is in the report of the resume too, and "save-failed"
 * comes back as an error. */
static void print_notice(void *ctx, const ckpt_finding *notice)
{
    if (strcmp(notice->code, "fallback") != 0 && strcmp(notice->code, "save-failed") != 0)
        fprintf(ctx, "%s: %s: %s\n", ckpt_severity_name(notice->severity), notice->code, notice->message);
}

/* Opens the run's directory and continues the newest checkpoint in it. False: there is none yet. */
static bool open_run(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    char device[CKPT_DEVICE_NAME_MAX];
    ckpt_restore_options restore = restore_options(t);
    ckpt_run_options options = CKPT_RUN_OPTIONS_INIT;
    options.every_steps = t->cmd.save_every;
    options.last_step = t->cmd.steps;
    options.retention.keep_last = t->cmd.keep_last;
    options.signals = true;
    options.time_limit = t->cmd.time_limit;
    options.restore = &restore;
    options.notice = print_notice;
    options.notice_ctx = stderr;
    check(ckpt_run_open(t->cmd.run, t->state, &options, &t->run, &err), &err);

    ckpt_report *report = ckpt_report_new();
    int64_t done = 0;                     /* the bound step says the same */
    ckpt_status status = ckpt_run_resume(t->run, map_location(t, device), &done, report, &err);
    print_warnings(report);
    check(status, &err);
    if (status == CKPT_OK)
        after_restore(t, t->cmd.run, report);
    ckpt_report_free(report);
    return status == CKPT_OK;
}

static void start(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    check(ckpt_state_allocate(t->state, &err), &err);
}

/* ---- working memory */

static float *tensor(const trainer *t, const char *format, const char *param)
{
    char name[96];
    snprintf(name, sizeof name, format, param);
    return ckpt_state_data(t->state, name);
}

static void print_device(ckpt_device device)
{
    ckpt_error err = CKPT_ERROR_INIT;
    char name[CKPT_DEVICE_NAME_MAX], model[128];
    bool simulated = false;
    ckpt_device_name(device, name);
    if (device.type == CKPT_DEVICE_CUDA) {
        check(ckpt_device_info(device, model, sizeof model, NULL, NULL, &simulated, &err), &err);
        fprintf(stderr, "%s is %s%s\n", name, model, simulated ? ": the stand-in for the CUDA driver, not a GPU" : "");
    }
    fprintf(stderr, "training on %s\n", name);
}

/* The run is where its parameters are. */
static void prepare(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    size_t bytes = t->total * sizeof(float);
    t->device = ckpt_state_device(t->state, t->params[0].name);
    print_device(t->device);
    if (t->device.type == CKPT_DEVICE_CUDA) {
        t->gpu = gpu_open(t->device.index);
        t->host_weights = gpu_host_alloc(t->gpu, bytes);
        t->host_grads = gpu_host_alloc(t->gpu, bytes);
        t->device_grads = gpu_alloc(t->gpu, bytes);
        /* Saves now wait for the kernels that are queued here, and need not stop the whole device. */
        check(ckpt_state_stream(t->state, t->device, gpu_stream(t->gpu), &err), &err);
    } else {
        t->host_grads = allocate(1, bytes);
    }
    for (size_t i = 0; i < CHARLM_PARAMS; i++) {
        const charlm_param *p = &t->params[i];
        adamw_tensor *a = &t->tensors[i];
        a->param = tensor(t, "%s", p->name);
        a->exp_avg = tensor(t, "optimizer.%s.exp_avg", p->name);
        a->exp_avg_sq = tensor(t, "optimizer.%s.exp_avg_sq", p->name);
        a->step = tensor(t, "optimizer.%s.step", p->name);
        a->grad = (t->gpu ? t->device_grads : t->host_grads) + p->offset;
        a->count = p->count;
        a->group = p->decay ? DECAY : NO_DECAY;
        t->grads[i] = t->host_grads + p->offset;
        t->weights[i] = t->gpu ? t->host_weights + p->offset : a->param;
        t->names[i] = p->name;
    }
    t->optimizer = adamw_new(t->cmd.optimizer, t->gpu, t->tensors, t->names, CHARLM_PARAMS, t->groups, GROUPS);
    t->model = charlm_new();
    if (!t->model)
        die("out of memory");
}

static void write_tensor(trainer *t, const char *format, const char *param, const float *values, size_t count)
{
    char name[96];
    snprintf(name, sizeof name, format, param);
    float *data = ckpt_state_data(t->state, name);
    if (ckpt_state_device(t->state, name).type != CKPT_DEVICE_CUDA) {
        memcpy(data, values, count * sizeof *data);
        return;
    }
    memcpy(t->host_grads, values, count * sizeof *data);
    gpu_upload(t->gpu, data, t->host_grads, count * sizeof *data);
    gpu_wait(t->gpu);
}

static void fresh_weights(trainer *t)
{
    float *fresh = allocate(t->total, sizeof *fresh);
    charlm_init(t->params, fresh, t->cmd.seed);
    for (size_t i = 0; i < CHARLM_PARAMS; i++)
        write_tensor(t, "%s", t->names[i], fresh + t->params[i].offset, t->params[i].count);
    free(fresh);
}

/* What a resume that loses a part of the state does to a run: it goes on, and goes wrong. */
static void forget(trainer *t, const char *what)
{
    float *zeros = allocate(t->total, sizeof *zeros);
    for (size_t i = 0; i < CHARLM_PARAMS; i++) {
        if (strcmp(what, "moments") == 0) {
            write_tensor(t, "optimizer.%s.exp_avg", t->names[i], zeros, t->params[i].count);
            write_tensor(t, "optimizer.%s.exp_avg_sq", t->names[i], zeros, t->params[i].count);
        } else if (strcmp(what, "steps") == 0) {
            write_tensor(t, "optimizer.%s.step", t->names[i], zeros, 1);
        }
    }
    if (strcmp(what, "rng") == 0)
        t->rng.counter = 0;
    free(zeros);
}

/* ---- training */

static void train_step(trainer *t)
{
    int inputs[CHARLM_BATCH * CHARLM_CONTEXT], targets[CHARLM_BATCH * CHARLM_CONTEXT];
    size_t bytes = t->total * sizeof(float);
    charlm_batch(&t->rng, t->text, t->text_size, inputs, targets);

    if (t->gpu) {
        for (size_t i = 0; i < CHARLM_PARAMS; i++)
            gpu_download(t->gpu, t->weights[i], t->tensors[i].param, t->params[i].count * sizeof(float));
        gpu_wait(t->gpu);
    }
    float loss = charlm_forward(t->model, t->weights, inputs, targets);
    charlm_backward(t->model, t->weights, t->grads, (float)t->scaler.scale);
    if (t->step + 1 == t->cmd.overflow_at)
        t->grads[0][0] = INFINITY;
    bool found_inf = false;
    for (size_t i = 0; i < t->total; i++)
        found_inf |= !isfinite(t->host_grads[i]);

    if (t->gpu)
        gpu_upload(t->gpu, t->device_grads, t->host_grads, bytes);
    adamw_step(t->optimizer, (float)t->scaler.scale, found_inf ? 1.0f : 0.0f);
    t->step++;
    printf("step %lld loss %.6f (%a) scale %.9g%s\n", (long long)t->step, (double)loss, (double)loss, t->scaler.scale,
           found_inf ? " skipped" : "");
    update_scaler(&t->scaler, found_inf);
}

static void save(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    check(ckpt_save(t->state, t->cmd.save, NULL, &err), &err);
}

/* True: what the run asks for is saved, and it is to stop here. A save that failed does not stop it: the checkpoint
 * before is untouched, and the next one that is due tries again. */
static bool save_or_stop(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (!t->run) {
        if (t->cmd.save_every && t->step % t->cmd.save_every == 0)
            save(t);
        return false;
    }
    ckpt_status status = ckpt_run_step(t->run, t->step, &err);
    if (status < 0)
        fprintf(stderr, "the training goes on: %s: %s\n", err.object, err.message);
    if (status == CKPT_STOP)
        fprintf(stderr, "stopped after step %lld: the same command goes on from there\n", (long long)t->step);
    return status == CKPT_STOP;
}

/* ---- the command line */

static void read_text(trainer *t)
{
    FILE *file = fopen(t->cmd.text, "rb");
    enum { LIMIT = 64 << 20 };
    t->text = allocate(1, LIMIT);
    if (!file)
        die("%s: cannot be opened", t->cmd.text);
    t->text_size = fread(t->text, 1, LIMIT, file);
    fclose(file);
    if (t->text_size <= CHARLM_CONTEXT)
        die("%s: a text needs more than %d characters", t->cmd.text, CHARLM_CONTEXT);
}

static int64_t number(const char *option, const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 0)
        die("%s: \"%s\" is not a number", option, text);
    return value;
}

static void parse_option(command *cmd, const char *name, const char *value)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (strcmp(name, "--steps") == 0)
        cmd->steps = number(name, value);
    else if (strcmp(name, "--device") == 0)
        check(ckpt_device_parse(value, &cmd->device, &err), &err);
    else if (strcmp(name, "--optimizer") == 0 && strcmp(value, "fused") == 0)
        cmd->optimizer = ADAMW_FUSED;
    else if (strcmp(name, "--optimizer") == 0 && strcmp(value, "plain") == 0)
        cmd->optimizer = ADAMW_PLAIN;
    else if (strcmp(name, "--run") == 0)
        cmd->run = value;
    else if (strcmp(name, "--keep-last") == 0)
        cmd->keep_last = number(name, value);
    else if (strcmp(name, "--time-limit") == 0)
        cmd->time_limit = (double)number(name, value);
    else if (strcmp(name, "--save") == 0)
        cmd->save = value;
    else if (strcmp(name, "--save-every") == 0)
        cmd->save_every = number(name, value);
    else if (strcmp(name, "--resume") == 0)
        cmd->resume = value;
    else if (strcmp(name, "--map-location") == 0)
        cmd->map_location = value;
    else if (strcmp(name, "--seed") == 0)
        cmd->seed = (uint64_t)number(name, value);
    else if (strcmp(name, "--lr") == 0)
        cmd->lr = atof(value);
    else if (strcmp(name, "--growth-interval") == 0)
        cmd->growth_interval = number(name, value);
    else if (strcmp(name, "--overflow-at") == 0)
        cmd->overflow_at = number(name, value);
    else if (strcmp(name, "--forget") == 0 &&
             (strcmp(value, "moments") == 0 || strcmp(value, "steps") == 0 || strcmp(value, "rng") == 0))
        cmd->forget = value;
    else
        die("%s %s: no such option; see --help", name, value);
}

static command parse(int argc, char **argv)
{
    command cmd = { .device = ckpt_cpu(), .steps = 100, .growth_interval = 25, .seed = 1609, .lr = 3e-3 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (strcmp(argv[i], "--allow-unexpected") == 0)
            cmd.allow_unexpected = true;
        else if (strcmp(argv[i], "--unguarded") == 0)
            cmd.unguarded = true;
        else if (argv[i][0] == '-' && i + 1 < argc)
            parse_option(&cmd, argv[i], argv[i + 1]), i++;
        else if (argv[i][0] != '-' && !cmd.text)
            cmd.text = argv[i];
        else
            die("%s: no such option, or its value is missing; see --help", argv[i]);
    }
    if (!cmd.text)
        die("which text? see --help");
    if (cmd.save_every && !cmd.save && !cmd.run)
        die("--save-every needs --run DIR or --save PATH");
    if ((cmd.keep_last || cmd.time_limit > 0) && !cmd.run)
        die("--keep-last and --time-limit need --run DIR");
    return cmd;
}

static void finish(trainer *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    check(ckpt_run_close(t->run, &err), &err);
    adamw_free(t->optimizer);
    charlm_free(t->model);
    if (t->gpu) {
        gpu_free(t->gpu, t->device_grads);
        gpu_host_free(t->gpu, t->host_weights);
        gpu_host_free(t->gpu, t->host_grads);
    } else {
        free(t->host_grads);
    }
    ckpt_state_free(t->state);
    gpu_close(t->gpu);
    free(t->text);
}

int main(int argc, char **argv)
{
    static trainer t;
    ckpt_error err = CKPT_ERROR_INIT;
    t.cmd = parse(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);     /* the losses of a run that is killed are those that it printed */
    read_text(&t);
    if (ckpt_device_check(t.cmd.device, &err) != CKPT_OK)
        die("%s (without a GPU: LD_LIBRARY_PATH=tests/fakecuda/.libs gives simulated devices)", err.message);

    charlm_layout(t.params, &t.total);
    t.groups[DECAY] = (adamw_group){ t.cmd.lr, 0.9, 0.95, 1e-8, 0.05 };
    t.groups[NO_DECAY] = (adamw_group){ t.cmd.lr, 0.9, 0.95, 1e-8, 0.0 };
    t.scaler = (ckpt_scaler)CKPT_SCALER_INIT;
    t.scaler.growth_interval = t.cmd.growth_interval;
    t.rng.seed = t.cmd.seed;
    t.fused = t.cmd.optimizer == ADAMW_FUSED;

    bind_state(&t);
    bool fresh = !t.cmd.run || !open_run(&t);
    if (fresh && t.cmd.resume) {
        resume(&t, t.cmd.resume);
        fresh = false;
    }
    if (fresh)
        start(&t);
    prepare(&t);
    if (fresh)
        fresh_weights(&t);
    if (t.cmd.forget)
        forget(&t, t.cmd.forget);

    bool stop = false;
    while (!stop && t.step < t.cmd.steps) {
        train_step(&t);
        stop = save_or_stop(&t);
    }
    if (t.cmd.save && !stop)
        save(&t);
    finish(&t);
    return 0;
}
