/* replace_head.c - fine-tuning: a new head under the old one's name, and everything on one device.
 *
 *     replace_head CHECKPOINT DEVICE [OUT.safetensors]
 *
 * Goes on from a checkpoint of train_charlm (or of PyTorch's same model) with a head for 10 classes where the checkpoint
 * has one for 96. The head is called head.weight in both. The state declares it replaced: it keeps its new
 * values, its moments begin at zero and its step at 0, and all other parameters keep their weights, moments and steps,
 * although the saved optimizer still counts the old head. This is where "Expected all tensors to be on the same
 * device" usually comes from: the body is loaded onto the GPU, and the head that no checkpoint has stays where it was
 * made. Here the head is part of the state, so the map moves it too, and every tensor is asserted to be there. */
#include "charlm.h"
#include "gpu.h"
#include "util.h"
#include <string.h>

enum { CLASSES = 10 };
static const char head[] = "head.weight";

static void bind(ckpt_state *state, const charlm_param *p, ckpt_role role)
{
    static const int64_t one[] = { 1 };
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
    desc.name = role == CKPT_ROLE_PARAM ? p->name : NULL;
    desc.param = role == CKPT_ROLE_PARAM ? NULL : p->name;
    desc.dtype = CKPT_F32;
    desc.ndim = role == CKPT_ROLE_STEP ? 0 : p->ndim;
    desc.shape = role == CKPT_ROLE_STEP ? one : p->shape;
    desc.role = role;
    desc.device = ckpt_cpu();             /* data is NULL: ours, first made on the CPU as most programs make a model */
    check(ckpt_state_tensor(state, &desc, &err), &err);
}

static void bind_group(ckpt_state *state, const char *name, const charlm_param *params, bool decay, double *lr)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const char *names[CHARLM_PARAMS];
    const ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, lr } };
    ckpt_group_desc desc = CKPT_GROUP_DESC_INIT;
    desc.name = name;
    desc.params = names;
    desc.hypers = hypers;
    desc.hyper_count = 1;
    for (size_t i = 0; i < CHARLM_PARAMS; i++)
        if (params[i].decay == decay)
            names[desc.param_count++] = params[i].name;
    check(ckpt_state_group(state, &desc, &err), &err);
}

static void bind_all(ckpt_state *state, charlm_param params[CHARLM_PARAMS], double *lr)
{
    static const ckpt_role roles[] = { CKPT_ROLE_PARAM, CKPT_ROLE_EXP_AVG, CKPT_ROLE_EXP_AVG_SQ, CKPT_ROLE_STEP };
    ckpt_error err = CKPT_ERROR_INIT;
    size_t total;
    charlm_layout(params, &total);
    for (size_t i = 0; i < CHARLM_PARAMS; i++) {
        if (strcmp(params[i].name, head) == 0)
            params[i].shape[0] = CLASSES;
        for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
            bind(state, &params[i], roles[k]);
    }
    bind_group(state, "0", params, true, &lr[0]);
    bind_group(state, "1", params, false, &lr[1]);
    check(ckpt_state_replace(state, head, &err), &err);
    check(ckpt_state_allocate(state, &err), &err);
}

static float head_value(charlm_rng *rng)
{
    return ((float)(charlm_random(rng) >> 40) / (float)(1 << 24) - 0.5f) * 0.1f;
}

/* Small weights from a fixed seed. */
static void init_head(ckpt_state *state)
{
    float *weight = ckpt_state_data(state, head);
    charlm_rng rng = { 7, 0 };
    for (int i = 0; i < CLASSES * CHARLM_WIDTH; i++)
        weight[i] = head_value(&rng);
}

/* Asks the driver, not a tag, where each tensor is. */
static void assert_one_device(const ckpt_state *state, ckpt_device wanted)
{
    char found_name[CKPT_DEVICE_NAME_MAX], wanted_name[CKPT_DEVICE_NAME_MAX];
    for (size_t i = 0; i < ckpt_state_tensor_count(state); i++) {
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_memory found;
        const char *name = ckpt_state_tensor_name(state, i);
        check(ckpt_device_query(ckpt_state_data(state, name), sizeof(float), &found, &err), &err);
        if (!ckpt_device_equal(found.device, wanted))
            die("Expected all tensors to be on the same device, but found at least two devices, %s and %s! (%s)",
                ckpt_device_name(wanted, wanted_name), ckpt_device_name(found.device, found_name), name);
    }
    printf("%zu tensors, all on %s\n", ckpt_state_tensor_count(state), ckpt_device_name(wanted, wanted_name));
}

/* The first n floats of a tensor, wherever it is. */
static void fetch(ckpt_state *state, const char *name, ckpt_device device, float *to, size_t n)
{
    const float *from = ckpt_state_data(state, name);
    if (device.type != CKPT_DEVICE_CUDA) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    gpu *g = gpu_open(device.index);
    float *pinned = gpu_host_alloc(g, n * sizeof *to);
    gpu_download(g, pinned, from, n * sizeof *to);
    gpu_wait(g);
    memcpy(to, pinned, n * sizeof *to);
    gpu_host_free(g, pinned);
    gpu_close(g);
}

/* The new head has its values, nothing behind them, and the body goes on. */
static void assert_replaced(ckpt_state *state, ckpt_device device)
{
    float now[CLASSES * CHARLM_WIDTH], step, body;
    charlm_rng rng = { 7, 0 };
    fetch(state, head, device, now, CLASSES * CHARLM_WIDTH);
    for (int i = 0; i < CLASSES * CHARLM_WIDTH; i++)
        if (now[i] != head_value(&rng))
            die("%s: element %d has changed", head, i);
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "optimizer.head.weight.exp_avg_sq" : "optimizer.head.weight.exp_avg";
        fetch(state, name, device, now, CLASSES * CHARLM_WIDTH);
        for (int i = 0; i < CLASSES * CHARLM_WIDTH; i++)
            if (now[i] != 0.0f)
                die("%s: element %d is not zero", name, i);
    }
    fetch(state, "optimizer.head.weight.step", device, &step, 1);
    fetch(state, "optimizer.tok.weight.step", device, &body, 1);
    if (step != 0.0f || body <= 0.0f)
        die("the head has step %g, the body %g", (double)step, (double)body);
    printf("the head begins at step 0, the body goes on after step %g\n", (double)body);
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_device device;
    charlm_param params[CHARLM_PARAMS];
    double lr[2] = { 0, 0 };
    if (argc < 3 || argc > 4)
        die("usage: replace_head CHECKPOINT DEVICE [OUT.safetensors]");
    check(ckpt_device_parse(argv[2], &device, &err), &err);

    ckpt_state *state = ckpt_state_new();
    ckpt_report *report = ckpt_report_new();
    if (!state || !report)
        die("out of memory");
    bind_all(state, params, lr);
    init_head(state);

    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.map_location = argv[2];
    options.optimizer = CKPT_OPTIMIZER_FUSED;       /* so each step is beside its parameter */
    options.allow_unexpected = true;      /* the old run's step, scaler and generator */
    ckpt_status status = ckpt_restore(state, argv[1], &options, report, &err);
    print_warnings(report);
    check(status, &err);

    assert_one_device(state, device);
    assert_replaced(state, device);
    printf("replaced: %zu (the head and its moments), lr %g\n", ckpt_report_count_code(report, "replaced"), lr[0]);
    check(ckpt_guard(state, CKPT_OPTIMIZER_FUSED, NULL, NULL, &err), &err);
    if (argc == 4) {
        ckpt_save_options save = CKPT_SAVE_OPTIONS_INIT;
        save.weights_only = true;
        check(ckpt_save(state, argv[3], &save, &err), &err);
        printf("saved %s\n", argv[3]);
    }
    ckpt_report_free(report);
    ckpt_state_free(state);
    return 0;
}
