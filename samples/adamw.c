/* adamw.c - the host's side of AdamW: where the tensors are, and the launches. */
#include "adamw.h"
#include "gpu.h"
#include "util.h"
#include <string.h>

enum { THREADS = 256, BLOCKS = 4 };

/* What nvcc made of adamw_fused.cu. The stand-in finds the kernels' twins by name, so that without nvcc an image with
 * nothing in it does for it. */
#ifdef SAMPLE_FATBIN
_Alignas(64) static const unsigned char image[] = {
#include "adamw_fatbin.inc"
};
#else
static const char image[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
#endif

struct adamw {
    adamw_kind kind;
    gpu *gpu;
    const adamw_tensor *tensors;
    const char *const *names;
    size_t count;
    const adamw_group *groups;
    size_t group_count;
    adamw_call *call;                     /* page-locked on a GPU */
    adamw_tensor *staged_tensors;
    float *staged_step;
    adamw_call *device_call;
    adamw_tensor *device_tensors;
    gpu_kernel *fused_step, *fused, *plain;
    bool told_slow;
};

/* A build without nvcc has no code for a real GPU. */
static void need_image(const gpu *g)
{
#ifdef SAMPLE_FATBIN
    (void)g;
#else
    ckpt_error err = CKPT_ERROR_INIT;
    char name[64];
    bool simulated = false;
    check(ckpt_device_info(ckpt_cuda(gpu_ordinal(g)), name, sizeof name, NULL, NULL, &simulated, &err), &err);
    if (!simulated)
        die("cuda:%d: this program was built without nvcc and has no code for a GPU: use --device cpu", gpu_ordinal(g));
#endif
}

adamw *adamw_new(adamw_kind kind, gpu *g, const adamw_tensor *tensors, const char *const *names, size_t count,
                 const adamw_group *groups, size_t group_count)
{
    adamw *opt = allocate(1, sizeof *opt);
    *opt = (adamw){ .kind = kind, .gpu = g, .tensors = tensors, .names = names, .count = count, .groups = groups,
                    .group_count = group_count };
    if (group_count > ADAMW_GROUPS)
        die("adamw: at most %d groups", ADAMW_GROUPS);
    if (!g) {
        opt->call = allocate(1, sizeof *opt->call);
        return opt;
    }
    need_image(g);
    opt->call = gpu_host_alloc(g, sizeof *opt->call);
    opt->staged_tensors = gpu_host_alloc(g, count * sizeof *tensors);
    opt->staged_step = gpu_host_alloc(g, sizeof *opt->staged_step);
    opt->device_call = gpu_alloc(g, sizeof *opt->device_call);
    opt->device_tensors = gpu_alloc(g, count * sizeof *tensors);
    memcpy(opt->staged_tensors, tensors, count * sizeof *tensors);
    gpu_upload(g, opt->device_tensors, opt->staged_tensors, count * sizeof *tensors);
    opt->fused_step = gpu_kernel_load(g, image, "adamw_fused_step");
    opt->fused = gpu_kernel_load(g, image, "adamw_fused");
    opt->plain = gpu_kernel_load(g, image, "adamw_plain");
    return opt;
}

void adamw_free(adamw *opt)
{
    if (!opt)
        return;
    if (opt->gpu) {
        gpu_kernel_free(opt->fused_step);
        gpu_kernel_free(opt->fused);
        gpu_kernel_free(opt->plain);
        gpu_free(opt->gpu, opt->device_call);
        gpu_free(opt->gpu, opt->device_tensors);
        gpu_host_free(opt->gpu, opt->call);
        gpu_host_free(opt->gpu, opt->staged_tensors);
        gpu_host_free(opt->gpu, opt->staged_step);
    } else {
        free(opt->call);
    }
    free(opt);
}

/* ---- where things are: what torch checks before a fused step, asked of the driver */

static ckpt_device device_of(const void *data, uint64_t floats)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_memory memory;
    check(ckpt_device_query(data, (size_t)floats * sizeof(float), &memory, &err), &err);
    return memory.device;
}

static void refuse(const char *name, const char *what, ckpt_device wanted, ckpt_device found)
{
    char a[CKPT_DEVICE_NAME_MAX], b[CKPT_DEVICE_NAME_MAX];
    ckpt_device_name(wanted, a);
    ckpt_device_name(found, b);
    die("Expected all tensors to be on the same device, but found at least two devices, %s and %s! "
        "(%s: %s is on %s)",
        a, b, name, what, b);
}

static void check_devices(const adamw *opt)
{
    ckpt_device here = opt->gpu ? ckpt_cuda(gpu_ordinal(opt->gpu)) : ckpt_cpu();
    for (size_t i = 0; i < opt->count; i++) {
        const adamw_tensor *t = &opt->tensors[i];
        const struct {
            const char *what;
            const float *data;
            uint64_t count;
        } parts[] = { { "the parameter", t->param, t->count }, { "its gradient", t->grad, t->count },
                      { "exp_avg", t->exp_avg, t->count }, { "exp_avg_sq", t->exp_avg_sq, t->count },
                      { "step", t->step, 1 } };
        size_t n = opt->kind == ADAMW_FUSED ? 5 : 4;      /* a plain step is a number of the CPU's */
        for (size_t k = 0; k < n; k++) {
            ckpt_device found = device_of(parts[k].data, parts[k].count);
            if (!ckpt_device_equal(found, here))
                refuse(opt->names[i], parts[k].what, here, found);
        }
    }
}

/* ---- the update */

static void step_fused(adamw *opt)
{
    uint64_t count = opt->count;
    if (!opt->gpu) {
        adamw_fused_on_host(opt->tensors, count, opt->call);
        return;
    }
    void *args[] = { &opt->device_tensors, &count, &opt->device_call };
    gpu_launch(opt->gpu, opt->fused_step, (unsigned)((count + THREADS - 1) / THREADS), 1, THREADS, args);
    gpu_launch(opt->gpu, opt->fused, BLOCKS, (unsigned)count, THREADS, args);
}

/* Where `step` came back on a GPU a plain optimizer still works, as torch's does: by reading it back each time. */
static double count_step(adamw *opt, size_t i)
{
    float *step = opt->tensors[i].step;
    if (ckpt_device_equal(device_of(step, 1), ckpt_cpu()))
        return (double)(*step += 1.0f);
    if (!opt->gpu)
        refuse(opt->names[i], "step", ckpt_cpu(), device_of(step, 1));
    if (!opt->told_slow)
        fprintf(stderr, "note: %s: step is on the GPU: a plain optimizer reads it back for each parameter (slow)\n",
                opt->names[i]);
    opt->told_slow = true;
    gpu_download(opt->gpu, opt->staged_step, step, sizeof *step);
    gpu_wait(opt->gpu);
    *opt->staged_step += 1.0f;
    gpu_upload(opt->gpu, step, opt->staged_step, sizeof *step);
    gpu_wait(opt->gpu);
    return (double)*opt->staged_step;
}

static void step_plain(adamw *opt)
{
    if (opt->call->found_inf != 0.0f)
        return;
    for (size_t i = 0; i < opt->count; i++) {
        double step = count_step(opt, i);
        if (!opt->gpu) {
            adamw_plain_on_host(&opt->tensors[i], opt->call, step);
            continue;
        }
        adamw_tensor *tensor = opt->device_tensors + i;
        void *args[] = { &tensor, &opt->device_call, &step };
        gpu_launch(opt->gpu, opt->plain, BLOCKS, 1, THREADS, args);
    }
}

void adamw_step(adamw *opt, float grad_scale, float found_inf)
{
    check_devices(opt);
    if (opt->gpu)
        gpu_wait(opt->gpu);               /* the copy of the last call has left the staging buffer */
    memcpy(opt->call->groups, opt->groups, opt->group_count * sizeof *opt->groups);
    opt->call->grad_scale = grad_scale;
    opt->call->found_inf = found_inf;
    if (opt->gpu)
        gpu_upload(opt->gpu, opt->device_call, opt->call, sizeof *opt->call);
    if (opt->kind == ADAMW_FUSED)
        step_fused(opt);
    else
        step_plain(opt);
}
