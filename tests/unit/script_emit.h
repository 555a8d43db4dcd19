/* tests/unit/script_emit.h - archives as libtorch in C++ and torch.jit write them, built byte by byte: the payloads first, then
 * data.pkl, code/, constants.pkl. Every storage holds its number * 100 + 0, 1, 2, ... as float32 or int64. */
#ifndef SCRIPT_EMIT_H
#define SCRIPT_EMIT_H
#include "torch_emit.h"
#include "runner.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "scratch_base.h"

static char folder[64], path[96];
static bytes pickle; /* data.pkl */
static archive zip;
static int storages;

static void script_setup(void)
{
    snprintf(folder, sizeof folder, "%s/test_script.XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.pt", folder);
    memset(&pickle, 0, sizeof pickle);
    memset(&zip, 0, sizeof zip);
    storages = 0;
}
static void script_teardown(void)
{
    unlink(path);
    rmdir(folder);
}

static void add(const char *name, const void *data, size_t n)
{
    add_record(&zip, &(record){.name = name, .data = data, .size = n, .flags = n ? 0x808 : 0x800});
}

/* ---- objects */

static void begin(void)
{
    pickle.size = 0;
    PUT(&pickle, "\x80\2");
}
static void open_as(const char *module, const char *class_name)
{
    put_global(&pickle, module, class_name);
    PUT(&pickle, ")\x81}(");
}
static void open_one(void)
{
    open_as("__torch__.___torch_mangle_3", "Module");
}
static void shut(void)
{
    PUT(&pickle, "ub");
}
static void key(const char *name)
{
    put_str(&pickle, name);
}
static void open_at(const char *name)
{
    key(name);
    open_one();
}
static void text(const char *name, const char *value)
{
    key(name);
    put_str(&pickle, value);
}
static void integer(const char *name, int64_t value)
{
    key(name);
    put_int(&pickle, value);
}
static void real(const char *name, double value)
{
    key(name);
    put_real(&pickle, value);
}

/* A storage of n elements as the next record; its number. */
static int store(int64_t n, bool whole)
{
    float f[64];
    int64_t l[64];
    char name[32];
    for (int i = 0; i < n; i++) {
        f[i] = (float)(storages * 100 + i);
        l[i] = storages * 100 + i;
    }
    snprintf(name, sizeof name, "m/data/%d", storages);
    if (whole)
        add(name, l, (size_t)n * sizeof *l);
    else
        add(name, f, (size_t)n * sizeof *f);
    return storages++;
}

static void rebuild(int storage, const char *class_name, int64_t numel, int ndim, int64_t a, int64_t b, bool grad)
{
    char number[12];
    int64_t shape[2] = {a, b}, strides[2] = {ndim == 2 ? b : 1, 1};
    snprintf(number, sizeof number, "%d", storage);
    put_global(&pickle, "torch._utils", "_rebuild_tensor_v2");
    PUT(&pickle, "(");
    put_storage(&pickle, class_name, number, "cpu", numel);
    put_int(&pickle, 0);
    put_ints(&pickle, shape, ndim);
    put_ints(&pickle, strides, ndim);
    put(&pickle, grad ? "\x88" : "\x89", 1);
    put_ordered_dict(&pickle);
    PUT(&pickle, "tR");
}
/* An attribute that is a tensor of its own storage; b 0: one dimension. */
static void floats(const char *name, int64_t a, int64_t b, bool grad)
{
    int64_t n = b ? a * b : a;
    key(name);
    rebuild(store(n, false), "FloatStorage", n, b ? 2 : 1, a, b, grad);
}
static void count(const char *name)
{
    key(name);
    rebuild(store(1, true), "LongStorage", 1, 0, 0, 0, false);
}

/* fc1 (3x2), bn (3), fc2 (2x3): what torch::save of a module writes. */
static inline void small_model(void)
{
    open_at("fc1");
    floats("weight", 3, 2, true);
    floats("bias", 3, 0, true);
    shut();
    open_at("bn");
    floats("weight", 3, 0, true);
    floats("bias", 3, 0, true);
    floats("running_mean", 3, 0, false);
    count("num_batches_tracked");
    shut();
    open_at("fc2");
    floats("weight", 2, 3, true);
    shut();
}
static const char *const small_names[] = {"fc1.weight", "fc1.bias", "bn.weight", "bn.bias", "fc2.weight"};
static const char *const addresses[] = {"94640276305168", "94640276306848", "94640276302688", "94640276303568",
                                        "94640276312624"};

static void moments(const char *address, int64_t a, int64_t b)
{
    open_at(address);
    integer("step", 7);
    floats("exp_avg", a, b, false);
    floats("exp_avg_sq", a, b, false);
    shut();
}
static void options(double lr, double decay)
{
    open_at("options");
    real("lr", lr);
    key("betas");
    PUT(&pickle, "(G\x3f\xec\xcc\xcc\xcc\xcc\xcc\xcd" /* 0.9, 0.999 */
                 "G\x3f\xef\xf7\xce\xd9\x16\x87\x2bt");
    real("weight_decay", decay);
    key("amsgrad");
    PUT(&pickle, "\x89");
    shut();
}
/* The state of small_model, hashed into another order, as libtorch's map is. */
static void small_state(void)
{
    open_at("state");
    moments(addresses[4], 2, 3);
    moments(addresses[1], 3, 0);
    moments(addresses[0], 3, 2);
    moments(addresses[3], 3, 0);
    moments(addresses[2], 3, 0);
    shut();
}
static void params_of(int first, int n)
{
    count("params/size");
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "params/%d", i);
        text(name, addresses[first + i]);
    }
}
static void group_of(const char *name, int first, int n, double lr, double decay)
{
    open_at(name);
    params_of(first, n);
    options(lr, decay);
    shut();
}
/* What torch::save of an AdamW over small_model writes. */
static inline void small_optimizer(void)
{
    text("pytorch_version", "1.5.0");
    small_state();
    open_at("param_groups");
    count("param_groups/size");
    group_of("param_groups/0", 0, 5, 0.01, 0.1);
    shut();
}

/* ---- the archive */

static void write_file(void)
{
    add("m/data.pkl", pickle.data, pickle.size);
    add("m/code/__torch__.py", "class Module(Module):\n", 22);
    add("m/constants.pkl", "\x80\2).", 4);
    add("m/version", "3\n", 2);
    add("m/byteorder", "little", 6);
    put_end64(&zip, 0, 0, 0);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(zip.file.data, 1, zip.file.size, f), zip.file.size);
    ck_assert_int_eq(fclose(f), 0);
    memset(&zip, 0, sizeof zip);
    storages = 0;
}
static void finish(void)
{
    PUT(&pickle, ".");
    write_file();
}
#endif
