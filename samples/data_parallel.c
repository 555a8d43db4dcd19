/* data_parallel.c - one model on several GPUs of one process: each replica on its own device, one checkpoint.
 *
 * Rank r trains on cuda:(r % devices), on its own part of the data; gradients are averaged, and every replica's fused
 * optimizer takes the same step. Rank 0 saves. A resume reads each byte of the file once and puts it on all devices
 * (ckpt_restore_many): a checkpoint of one GPU onto several, of several onto one, or of PyTorch's DataParallel, whose
 * names begin with "module.". Unlike train_charlm.c, the buffers here are the program's own: the library is told their
 * addresses, and asks the driver on which device they lie. */
#include "adamw.h"
#include "charlm.h"
#include "gpu.h"
#include "util.h"
#include <math.h>
#include <string.h>

enum { DECAY, NO_DECAY, GROUPS, MAX_WORLD = 16 };
enum { PARAM, EXP_AVG, EXP_AVG_SQ, STEP, GRAD, BUFFERS };

static const char usage[] =
    "usage: data_parallel [options] TEXT\n"
    "Trains one model on several devices of one process.\n"
    "\n"
    "  --world N        replicas (default 2): rank r is on cuda:(r % devices), or on the CPU where there is none\n"
    "  --steps N        train until N steps are done (default 10)\n"
    "  --resume PATH    continue a checkpoint, written on however many devices\n"
    "  --save PATH      rank 0 writes a checkpoint at the end\n"
    "  --spread PATH    also writes the run as a model-parallel one leaves it: block i on cuda:(i % devices)\n"
    "  --ddp-names      writes names as DistributedDataParallel has them: module.tok.weight\n";

typedef struct command {
    const char *text, *resume, *save, *spread;
    int world;
    int64_t steps;
    bool ddp_names;
} command;

typedef struct replica {
    int64_t rank;
    gpu *gpu;                             /* NULL: on the CPU */
    float *buffers[BUFFERS];              /* on its device; parameters, moments and gradients have one layout */
    float *host_weights, *host_grads;
    float *weights[CHARLM_PARAMS], *grads[CHARLM_PARAMS];
    adamw_tensor tensors[CHARLM_PARAMS];
    const char *names[CHARLM_PARAMS];
    adamw_group groups[GROUPS];
    bool fused;
    adamw *optimizer;
    charlm *model;
    ckpt_scaler scaler;
    charlm_rng rng;
    int64_t step;
    ckpt_state *state;
} replica;

static charlm_param params[CHARLM_PARAMS];
static size_t total;

/* ---- memory on a replica's device */

static size_t buffer_floats(int buffer)
{
    return buffer == STEP ? CHARLM_PARAMS : total;
}

static float *on_device(gpu *g, size_t floats)
{
    return g ? gpu_alloc(g, floats * sizeof(float)) : allocate(floats, sizeof(float));
}

static float *on_host(gpu *g, size_t floats)
{
    return g ? gpu_host_alloc(g, floats * sizeof(float)) : allocate(floats, sizeof(float));
}

static void release(gpu *g, float *device, float *host)
{
    if (g) {
        gpu_free(g, device);
        gpu_host_free(g, host);
    } else {
        free(device);
        free(host);
    }
}

static void fetch(gpu *g, float *host, const float *device, size_t floats)
{
    if (g) {
        gpu_download(g, host, device, floats * sizeof(float));
        gpu_wait(g);
    } else {
        memcpy(host, device, floats * sizeof(float));
    }
}

static void put(gpu *g, float *device, const float *host, size_t floats)
{
    if (g) {
        gpu_upload(g, device, host, floats * sizeof(float));
        gpu_wait(g);
    } else {
        memcpy(device, host, floats * sizeof(float));
    }
}

/* ---- one replica */

static void bind_tensors(ckpt_state *state, float *const data[BUFFERS], const char *prefix)
{
    static const ckpt_role roles[] = { CKPT_ROLE_PARAM, CKPT_ROLE_EXP_AVG, CKPT_ROLE_EXP_AVG_SQ, CKPT_ROLE_STEP };
    ckpt_error err = CKPT_ERROR_INIT;
    for (int b = PARAM; b <= STEP; b++) {
        ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
        ckpt_arena_entry entries[CHARLM_PARAMS];
        char names[CHARLM_PARAMS][64];
        for (size_t i = 0; i < CHARLM_PARAMS; i++) {
            snprintf(names[i], sizeof names[i], "%s%.47s", prefix, params[i].name);
            entries[i] = (ckpt_arena_entry){ names[i], (b == STEP ? i : params[i].offset) * sizeof(float),
                                             b == STEP ? 0 : params[i].ndim, params[i].shape };
        }
        arena.data = data[b];
        arena.nbytes = buffer_floats(b) * sizeof(float);
        arena.dtype = CKPT_F32;
        arena.role = roles[b];
        check(ckpt_state_arena(state, &arena, entries, CHARLM_PARAMS, &err), &err);
    }
}

static void bind_variables(ckpt_state *state, replica *r, const char *prefix)
{
    static const char *const group_names[] = { "decay", "no_decay" };
    ckpt_error err = CKPT_ERROR_INIT;
    char names[CHARLM_PARAMS][64];
    for (int g = 0; g < GROUPS; g++) {
        adamw_group *v = &r->groups[g];
        const ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, &v->lr },
                                      { "betas.0", CKPT_SCALAR_F64, &v->beta1 },
                                      { "betas.1", CKPT_SCALAR_F64, &v->beta2 },
                                      { "eps", CKPT_SCALAR_F64, &v->eps },
                                      { "weight_decay", CKPT_SCALAR_F64, &v->weight_decay },
                                      { "fused", CKPT_SCALAR_BOOL, &r->fused } };
        const char *members[CHARLM_PARAMS];
        ckpt_group_desc desc = CKPT_GROUP_DESC_INIT;
        for (size_t i = 0; i < CHARLM_PARAMS; i++) {
            if (params[i].decay != (g == DECAY))
                continue;
            snprintf(names[i], sizeof names[i], "%s%.47s", prefix, params[i].name);
            members[desc.param_count++] = names[i];
        }
        desc.name = group_names[g];
        desc.params = members;
        desc.hypers = hypers;
        desc.hyper_count = sizeof hypers / sizeof *hypers;
        check(ckpt_state_group(state, &desc, &err), &err);
    }
    check(ckpt_state_scaler(state, "scaler", &r->scaler, &err), &err);
    check(ckpt_state_bytes(state, "rng", &r->rng, sizeof r->rng, &err), &err);
    check(ckpt_state_i64(state, "step", &r->step, &err), &err);
    check(ckpt_state_optional(state, "rng*", &err), &err);
}

static ckpt_state *bind_state(replica *r, float *const data[BUFFERS], const char *prefix)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    if (!state)
        die("out of memory");
    bind_tensors(state, data, prefix);
    bind_variables(state, r, prefix);
    if (r->gpu)
        check(ckpt_state_stream(state, ckpt_cuda(gpu_ordinal(r->gpu)), gpu_stream(r->gpu), &err), &err);
    return state;
}

static void replica_open(replica *r, int64_t rank, int devices)
{
    r->rank = rank;
    r->gpu = devices ? gpu_open((int)(rank % devices)) : NULL;
    for (int b = 0; b < BUFFERS; b++)
        r->buffers[b] = on_device(r->gpu, buffer_floats(b));
    r->host_weights = on_host(r->gpu, total);
    r->host_grads = on_host(r->gpu, total);
    r->fused = true;
    r->groups[DECAY] = (adamw_group){ 3e-3, 0.9, 0.95, 1e-8, 0.05 };
    r->groups[NO_DECAY] = (adamw_group){ 3e-3, 0.9, 0.95, 1e-8, 0.0 };
    r->scaler = (ckpt_scaler)CKPT_SCALER_INIT;
    r->rng = (charlm_rng){ 1609, 0 };
    for (size_t i = 0; i < CHARLM_PARAMS; i++) {
        size_t at = params[i].offset;
        r->tensors[i] = (adamw_tensor){ r->buffers[PARAM] + at,      r->buffers[GRAD] + at, r->buffers[EXP_AVG] + at,
                                        r->buffers[EXP_AVG_SQ] + at, r->buffers[STEP] + i,  params[i].count,
                                        params[i].decay ? DECAY : NO_DECAY };
        r->weights[i] = r->host_weights + at;
        r->grads[i] = r->host_grads + at;
        r->names[i] = params[i].name;
    }
    r->optimizer = adamw_new(ADAMW_FUSED, r->gpu, r->tensors, r->names, CHARLM_PARAMS, r->groups, GROUPS);
    r->model = charlm_new();
    if (!r->model)
        die("out of memory");
    r->state = bind_state(r, r->buffers, "");
}

static void replica_close(replica *r)
{
    ckpt_state_free(r->state);
    adamw_free(r->optimizer);
    charlm_free(r->model);
    for (int b = 0; b < BUFFERS; b++)
        release(r->gpu, r->buffers[b], NULL);
    release(r->gpu, NULL, r->host_weights);
    release(r->gpu, NULL, r->host_grads);
    gpu_close(r->gpu);
}

/* ---- all replicas */

/* Every rank's map is one text: what the rank is decides where its tensors go. */
static void resume(replica *replicas, int world, int devices, const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *states[MAX_WORLD];
    ckpt_report *reports[MAX_WORLD];
    ckpt_restore_options own[MAX_WORLD];
    const ckpt_restore_options *options[MAX_WORLD];
    ckpt_map *map = NULL;
    char text[160];
    int n = devices ? snprintf(text, sizeof text,
                               "map: 1\n"
                               "source: {strip_prefix: ['module.']}\n"
                               "optimizer: fused\n"
                               "default: 'cuda:{rank %% %d}'\n",
                               devices)
                    : snprintf(text, sizeof text, "map: 1\nsource: {strip_prefix: ['module.']}\ndefault: cpu\n");
    check(ckpt_map_parse_yaml(text, (size_t)n, "data_parallel's map", &map, &err), &err);
    for (int r = 0; r < world; r++) {
        states[r] = replicas[r].state;
        reports[r] = ckpt_report_new();
        own[r] = (ckpt_restore_options)CKPT_RESTORE_OPTIONS_INIT;
        own[r].map = map;
        own[r].optimizer = CKPT_OPTIMIZER_FUSED;
        own[r].ranks = (ckpt_ranks){ r, r, world };
        options[r] = &own[r];
    }
    ckpt_status status = ckpt_restore_many(states, (size_t)world, path, options, reports, &err);
    print_warnings(reports[0]);
    check(status, &err);
    for (int r = 0; r < world; r++) {
        if (ckpt_report_find(reports[r], "kept", "rng"))
            replicas[r].rng.counter = (uint64_t)replicas[r].step * CHARLM_BATCH;
        if (ckpt_guard(states[r], CKPT_OPTIMIZER_FUSED, NULL, reports[r], &err) != CKPT_OK)
            die("rank %d: %s", r, err.message);
        ckpt_report_free(reports[r]);
    }
    ckpt_map_free(map);
}

static void train_step(replica *replicas, int world, const unsigned char *text, size_t size)
{
    int inputs[CHARLM_BATCH * CHARLM_CONTEXT], targets[CHARLM_BATCH * CHARLM_CONTEXT];
    float loss = 0.0f;
    for (int i = 0; i < world; i++) {
        replica *r = &replicas[i];
        charlm_rng rng = { r->rng.seed + (uint64_t)r->rank, r->rng.counter };     /* each rank its own stream */
        charlm_batch(&rng, text, size, inputs, targets);
        r->rng.counter = rng.counter;
        fetch(r->gpu, r->host_weights, r->buffers[PARAM], total);
        loss += charlm_forward(r->model, r->weights, inputs, targets) / (float)world;
        charlm_backward(r->model, r->weights, r->grads, (float)r->scaler.scale);
    }
    /* The all-reduce: the mean, summed in the order of the ranks, to every rank. */
    bool found_inf = false;
    for (size_t k = 0; k < total; k++) {
        float sum = 0.0f;
        for (int i = 0; i < world; i++)
            sum += replicas[i].host_grads[k];
        found_inf |= !isfinite(sum);
        for (int i = 0; i < world; i++)
            replicas[i].host_grads[k] = sum / (float)world;
    }
    for (int i = 0; i < world; i++) {
        replica *r = &replicas[i];
        put(r->gpu, r->buffers[GRAD], r->host_grads, total);
        adamw_step(r->optimizer, (float)r->scaler.scale, found_inf ? 1.0f : 0.0f);
        r->step++;
    }
    printf("step %lld loss %.6f (%a) scale %.9g%s\n", (long long)replicas[0].step, (double)loss, (double)loss,
           replicas[0].scaler.scale, found_inf ? " skipped" : "");
    for (int i = 0; i < world; i++)
        update_scaler(&replicas[i].scaler, found_inf);
}

/* Replicas that have seen the same gradients hold the same bits. */
static void assert_equal(replica *replicas, int world)
{
    for (int i = 0; i < world; i++)
        fetch(replicas[i].gpu, replicas[i].host_weights, replicas[i].buffers[PARAM], total);
    for (int i = 1; i < world; i++)
        if (memcmp(replicas[0].host_weights, replicas[i].host_weights, total * sizeof(float)) != 0)
            die("rank %d does not hold what rank 0 holds", i);
}

/* Rank 0's state is everybody's. Under other names it is another state over the same buffers. */
static void save(replica *r, const char *path, const char *prefix)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *renamed = *prefix ? bind_state(r, r->buffers, prefix) : NULL;
    check(ckpt_save(renamed ? renamed : r->state, path, NULL, &err), &err);
    ckpt_state_free(renamed);
}

/* A checkpoint of several GPUs: copies each tensor to the device that a model-parallel run would keep it on. */
static void save_spread(replica *r, int devices, const char *path, const char *prefix)
{
    static const ckpt_role roles[] = { CKPT_ROLE_PARAM, CKPT_ROLE_EXP_AVG, CKPT_ROLE_EXP_AVG_SQ, CKPT_ROLE_STEP };
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    gpu *gpus[MAX_WORLD] = { NULL };
    static float *copies[STEP + 1][CHARLM_PARAMS];
    int block, n = devices > MAX_WORLD ? MAX_WORLD : devices;
    if (!state)
        die("out of memory");
    for (int d = 0; d < n; d++)
        gpus[d] = gpu_open(d);
    for (int b = PARAM; b <= STEP; b++) {
        for (size_t i = 0; i < CHARLM_PARAMS; i++) {
            gpu *g = n ? gpus[sscanf(params[i].name, "blocks.%d.", &block) == 1 ? block % n : 0] : NULL;
            size_t count = b == STEP ? 1 : params[i].count, at = b == STEP ? i : params[i].offset;
            char name[64];
            copies[b][i] = on_device(g, count);
            fetch(r->gpu, r->host_weights, r->buffers[b] + at, count);
            put(g, copies[b][i], r->host_weights, count);
            snprintf(name, sizeof name, "%s%.47s", prefix, params[i].name);
            ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
            desc.name = b == PARAM ? name : NULL;
            desc.param = b == PARAM ? NULL : name;
            desc.dtype = CKPT_F32;
            desc.ndim = b == STEP ? 0 : params[i].ndim;
            desc.shape = params[i].shape;
            desc.role = roles[b];
            desc.data = copies[b][i];
            check(ckpt_state_tensor(state, &desc, &err), &err);
        }
    }
    bind_variables(state, r, prefix);
    check(ckpt_save(state, path, NULL, &err), &err);
    ckpt_state_free(state);
    for (int b = PARAM; b <= STEP; b++) {
        for (size_t i = 0; i < CHARLM_PARAMS; i++) {
            gpu *g = n ? gpus[sscanf(params[i].name, "blocks.%d.", &block) == 1 ? block % n : 0] : NULL;
            release(g, copies[b][i], NULL);
        }
    }
    for (int d = 0; d < n; d++)
        gpu_close(gpus[d]);
}

/* ---- the command line */

static command parse(int argc, char **argv)
{
    command cmd = { .world = 2, .steps = 10 };
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else if (strcmp(argv[i], "--ddp-names") == 0) {
            cmd.ddp_names = true;
        } else if (argv[i][0] != '-' && !cmd.text) {
            cmd.text = argv[i];
        } else if (!value) {
            die("%s: no such option, or its value is missing; see --help", argv[i]);
        } else {
            i++;
            if (strcmp(argv[i - 1], "--world") == 0)
                cmd.world = atoi(value);
            else if (strcmp(argv[i - 1], "--steps") == 0)
                cmd.steps = atoll(value);
            else if (strcmp(argv[i - 1], "--resume") == 0)
                cmd.resume = value;
            else if (strcmp(argv[i - 1], "--save") == 0)
                cmd.save = value;
            else if (strcmp(argv[i - 1], "--spread") == 0)
                cmd.spread = value;
            else
                die("%s: no such option; see --help", argv[i - 1]);
        }
    }
    if (!cmd.text)
        die("which text? see --help");
    if (cmd.world < 1 || cmd.world > MAX_WORLD)
        die("--world: 1 to %d", MAX_WORLD);
    return cmd;
}

int main(int argc, char **argv)
{
    static replica replicas[MAX_WORLD];
    static unsigned char text[1 << 20];
    ckpt_error err = CKPT_ERROR_INIT;
    command cmd = parse(argc, argv);
    const char *prefix = cmd.ddp_names ? "module." : "";
    int devices = 0;

    FILE *file = fopen(cmd.text, "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    if (size <= CHARLM_CONTEXT)
        die("%s: cannot be read, or is shorter than %d characters", cmd.text, CHARLM_CONTEXT);
    setvbuf(stdout, NULL, _IOLBF, 0);

    check(ckpt_device_count(CKPT_DEVICE_CUDA, &devices, NULL, &err), &err);
    charlm_layout(params, &total);
    for (int r = 0; r < cmd.world; r++) {
        replica_open(&replicas[r], r, devices);
        if (devices)
            fprintf(stderr, "rank %d of %d: cuda:%d\n", r, cmd.world, r % devices);
        else
            fprintf(stderr, "rank %d of %d: cpu\n", r, cmd.world);
        charlm_init(params, replicas[r].host_weights, 1609);
        put(replicas[r].gpu, replicas[r].buffers[PARAM], replicas[r].host_weights, total);
    }
    if (cmd.resume)
        resume(replicas, cmd.world, devices, cmd.resume);
    while (replicas[0].step < cmd.steps)
        train_step(replicas, cmd.world, text, size);
    assert_equal(replicas, cmd.world);
    if (cmd.save)
        save(&replicas[0], cmd.save, prefix);
    if (cmd.spread)
        save_spread(&replicas[0], devices, cmd.spread, prefix);
    for (int r = 0; r < cmd.world; r++)
        replica_close(&replicas[r]);
    return 0;
}
