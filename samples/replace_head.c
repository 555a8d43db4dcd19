/* replace_head.c - a pretrained body, a new head, and everything on one device.
 *
 *     replace_head CHECKPOINT DEVICE [OUT.safetensors]
 *
 * Takes the weights of a checkpoint of train_charlm (or of PyTorch's same model) without its optimizer, leaves out the
 * old head, and puts a classifier of 10 classes in its place. This is where "Expected all tensors to be on the same
 * device" usually comes from: the body is loaded onto the GPU and the new head, which no checkpoint has, stays where it
 * was made. Here the head is part of the state, so the map moves it too, and every tensor is asserted to be there. */
#include "charlm.h"
#include "gpu.h"
#include "util.h"
#include <string.h>

enum { CLASSES = 10 };

static void bind(ckpt_state *state, const char *name, uint32_t ndim, const int64_t *shape)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
    desc.name = name;
    desc.dtype = CKPT_F32;
    desc.ndim = ndim;
    desc.shape = shape;
    desc.role = CKPT_PARAM;
    desc.device = ckpt_cpu();             /* data is NULL: ours, first made on the CPU as most programs make a model */
    check(ckpt_state_tensor(state, &desc, &err), &err);
}

static void bind_model(ckpt_state *state)
{
    ckpt_error err = CKPT_ERROR_INIT;
    charlm_param params[CHARLM_PARAMS];
    size_t total;
    charlm_layout(params, &total);
    for (size_t i = 0; i < CHARLM_PARAMS; i++)
        if (strcmp(params[i].name, "head.weight") != 0)
            bind(state, params[i].name, params[i].ndim, params[i].shape);

    const int64_t weight[] = { CLASSES, CHARLM_WIDTH }, bias[] = { CLASSES };
    bind(state, "classifier.weight", 2, weight);
    bind(state, "classifier.bias", 1, bias);
    check(ckpt_state_optional(state, "classifier.*", &err), &err);     /* these alone may be missing */
    check(ckpt_state_allocate(state, &err), &err);
}

/* Small weights from a fixed seed; the bias stays zero. */
static void init_head(ckpt_state *state)
{
    float *weight = ckpt_state_data(state, "classifier.weight");
    charlm_rng rng = { 7, 0 };
    for (int i = 0; i < CLASSES * CHARLM_WIDTH; i++)
        weight[i] = ((float)(charlm_random(&rng) >> 40) / (float)(1 << 24) - 0.5f) * 0.1f;
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

/* The new head must have kept its values on the way. */
static void assert_head(ckpt_state *state, ckpt_device device)
{
    float now[CLASSES * CHARLM_WIDTH];
    const float *weight = ckpt_state_data(state, "classifier.weight");
    charlm_rng rng = { 7, 0 };
    if (device.type == CKPT_DEVICE_CUDA) {
        gpu *g = gpu_open(device.index);
        float *pinned = gpu_host_alloc(g, sizeof now);
        gpu_download(g, pinned, weight, sizeof now);
        gpu_wait(g);
        memcpy(now, pinned, sizeof now);
        gpu_host_free(g, pinned);
        gpu_close(g);
    } else {
        memcpy(now, weight, sizeof now);
    }
    for (int i = 0; i < CLASSES * CHARLM_WIDTH; i++)
        if (now[i] != ((float)(charlm_random(&rng) >> 40) / (float)(1 << 24) - 0.5f) * 0.1f)
            die("classifier.weight: element %d has changed", i);
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_device device;
    if (argc < 3 || argc > 4)
        die("usage: replace_head CHECKPOINT DEVICE [OUT.safetensors]");
    check(ckpt_device_parse(argv[2], &device, &err), &err);

    ckpt_state *state = ckpt_state_new();
    ckpt_report *report = ckpt_report_new();
    if (!state || !report)
        die("out of memory");
    bind_model(state);
    init_head(state);

    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.map_location = argv[2];
    options.allow_unexpected = true;      /* the old head and the old optimizer */
    ckpt_status status = ckpt_restore(state, argv[1], &options, report, &err);
    print_warnings(report);
    check(status, &err);

    assert_one_device(state, device);
    assert_head(state, device);
    printf("kept as they were: %zu (the new head)\n", ckpt_report_count_code(report, "kept"));
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
