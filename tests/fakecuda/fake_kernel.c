/* tests/fakecuda/fake_kernel.c - modules, functions and launches: a kernel runs as its host twin. */
#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kernels that the program registered. */
static CUfunction registered;
static int launched_on; /* the device of the twin that runs now */
static const char *launched;

static void fill(CUfunction f, const char *name, fakecuda_twin twin, const size_t *sizes, size_t count)
{
    if (strlen(name) >= sizeof f->name || count > FAKECUDA_PARAMS_MAX)
        fake_die("the kernel %s has a name or a list of parameters that is too long", name);
    strcpy(f->name, name);
    f->twin = twin;
    for (size_t i = 0; i < count; i++)
        f->sizes[i] = sizes[i];
    f->count = count;
}

void fakecuda_register_kernel(const char *name, fakecuda_twin twin, const size_t *sizes, size_t count)
{
    fake_lock();
    CUfunction f = registered;
    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    if (!f) {
        f = fake_alloc(sizeof *f);
        f->next = registered;
        registered = f;
    }
    fill(f, name, twin, sizes, count);
    fake_unlock();
}

/* ---- modules */

static CUresult load(const char *call, CUmodule *out, const void *image)
{
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba}, wrapper[] = {0xb1, 0x43, 0x62, 0x46};
    static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'};
    CUresult r = fake_begin(call, FAKE_WORK);
    CUcontext current = r == CUDA_SUCCESS ? fake_current(call) : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS && !image)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && memcmp(image, fatbin, 4) && memcmp(image, wrapper, 4) && memcmp(image, elf, 4) &&
        !strstr(image, ".version"))
        r = CUDA_ERROR_INVALID_IMAGE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUmodule m = fake_alloc(sizeof *m);
    m->context = current;
    m->next = fake.modules;
    fake.modules = m;
    *out = m;
    return fake_end(r);
}

API cuModuleLoadData(CUmodule *out, const void *image)
{
    return load("cuModuleLoadData", out, image);
}

API cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, CUjit_option *names, void **values)
{
    (void)count;
    (void)names;
    (void)values;
    return load("cuModuleLoadDataEx", out, image);
}

API cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    return load("cuModuleLoadFatBinary", out, image);
}

static CUmodule live_module(const char *call, CUmodule handle)
{
    CUcontext current = fake_current(call);
    for (CUmodule m = fake.modules; m; m = m->next)
        if (m == handle) {
            if (m->context == current)
                return m;
            fake_breach(CUDA_ERROR_INVALID_HANDLE, "%s: the module belongs to another context than the current one",
                        call);
            return NULL;
        }
    fake_breach(CUDA_ERROR_INVALID_HANDLE, "%s: %p is no live module", call, (void *)handle);
    return NULL;
}

API cuModuleUnload(CUmodule handle)
{
    CUresult fault = fake_begin("cuModuleUnload", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUmodule m = live_module("cuModuleUnload", handle);
    if (!m)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    for (CUmodule *at = &fake.modules; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    for (CUfunction f = m->functions, next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(m);
    return fake_end(fault);
}

/* Registered, or exported by the program. */
static bool find_twin(CUfunction f, const char *name)
{
    char symbol[160];
    void *found;
    fakecuda_twin twin;
    for (CUfunction k = registered; k; k = k->next)
        if (strcmp(k->name, name) == 0) {
            fill(f, name, k->twin, k->sizes, k->count);
            return true;
        }
    snprintf(symbol, sizeof symbol, "fakecuda_twin_%s", name);
    if (!(found = dlsym(RTLD_DEFAULT, symbol)))
        return false;
    memcpy(&twin, &found, sizeof twin);
    snprintf(symbol, sizeof symbol, "fakecuda_params_%s", name);
    const size_t *sizes = dlsym(RTLD_DEFAULT, symbol);
    size_t count = 0;
    if (!sizes)
        fake_die("the kernel %s has a twin, but no %s: write it with FAKECUDA_TWIN", name, symbol);
    while (count <= FAKECUDA_PARAMS_MAX && sizes[count])
        count++;
    fill(f, name, twin, sizes, count);
    return true;
}

API cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    CUresult r = fake_begin("cuModuleGetFunction", FAKE_WORK);
    CUmodule m = r == CUDA_SUCCESS ? live_module("cuModuleGetFunction", handle) : NULL;
    if (r == CUDA_SUCCESS && (!m || !name))
        r = m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUfunction f = fake_alloc(sizeof *f);
    if (!find_twin(f, name)) {
        free(f);
        return fake_end(CUDA_ERROR_NOT_FOUND);
    }
    f->module = m;
    f->next = m->functions;
    m->functions = f;
    *out = f;
    return fake_end(CUDA_SUCCESS);
}

/* ---- launches */

static CUfunction live_function(CUfunction handle)
{
    CUcontext current = fake_current("cuLaunchKernel");
    for (CUmodule m = fake.modules; m; m = m->next)
        for (CUfunction f = m->functions; f; f = f->next)
            if (f == handle) {
                if (m->context == current)
                    return f;
                fake_breach(CUDA_ERROR_INVALID_HANDLE,
                            "cuLaunchKernel: %s belongs to another context than the current one", f->name);
                return NULL;
            }
    fake_breach(CUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: %p is no live function", (void *)handle);
    return NULL;
}

static void *twin_range(uint64_t p, size_t n)
{
    const fake_block *b = fake_find(p, n ? n : 1);
    if (n == 0 && !b)
        return NULL;
    if (!b || b->kind == FAKE_RESERVED)
        fake_die("the kernel %s on cuda:%d reaches for %zu bytes at %#llx, which are not in one live allocation",
                 launched, launched_on, n, (unsigned long long)p);
    if (b->kind == FAKE_DEVICE && b->ordinal != launched_on)
        fake_die("the kernel %s on cuda:%d reaches for memory of cuda:%d", launched, launched_on, b->ordinal);
    return fake_touch(p);
}

static void *twin_host(uint64_t p)
{
    return twin_range(p, 1);
}

static void keep_params(fake_op *op, const struct CUfunc_st *f, void **params)
{
    size_t total = 0;
    for (size_t i = 0; i < f->count; i++)
        total += (f->sizes[i] + 15) / 16 * 16;
    op->params = fake_alloc(total ? total : 1);
    op->count = f->count;
    for (size_t i = 0, at = 0; i < f->count; at += (f->sizes[i] + 15) / 16 * 16, i++) {
        op->pointers[i] = op->params + at;
        op->sizes[i] = f->sizes[i];
        memcpy(op->params + at, params[i], f->sizes[i]);
    }
}

API cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void **params, void **extra)
{
    CUresult r = fake_begin("cuLaunchKernel", FAKE_WORK), bad = CUDA_SUCCESS;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUfunction f = live_function(handle);
    CUstream s = f ? fake_stream("cuLaunchKernel", stream, &bad) : NULL;
    if (!f || !s)
        return fake_end(f ? bad : CUDA_ERROR_INVALID_HANDLE);
    if (extra)
        return fake_end(CUDA_ERROR_NOT_SUPPORTED);
    if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024 || gy > 65535 || gz > 65535 ||
        (f->count && !params))
        return fake_end(CUDA_ERROR_INVALID_VALUE);
    fake_op *op = fake_queue(s, FAKE_KERNEL);
    op->twin = f->twin;
    op->launch =
        (fakecuda_launch){NULL, s->context->ordinal, {gx, gy, gz}, {bx, by, bz}, shared, twin_host, twin_range};
    keep_params(op, f, params);
    op->staged = strdup(f->name); /* the module may be unloaded before it runs */
    op->launch.name = op->staged;
    return fake_end(CUDA_SUCCESS);
}

void fake_run_kernel(const fake_op *op)
{
    void *params[FAKECUDA_PARAMS_MAX + 1] = {NULL};
    memcpy(params, op->pointers, op->count * sizeof *params);
    launched = op->launch.name;
    launched_on = op->launch.ordinal;
    op->twin(&op->launch, params);
}

/* A parameter of 8 bytes whose value lies in the range is taken for a pointer into it. */
bool fake_kernel_touches(const fake_op *op, uint64_t p, size_t n)
{
    for (size_t i = 0; i < op->count; i++) {
        uint64_t value;
        if (op->sizes[i] != sizeof value)
            continue;
        memcpy(&value, op->pointers[i], sizeof value);
        if (value - p < n)
            return true;
    }
    return false;
}
