/* --rank-state: what each of several ranks has for itself is kept, left out, or becomes that of one process; by the layouts of
 * tests/data/ranks, of a run of this library, and of llm.c. */
#include <pthread.h>
#include <stdlib.h>
#include <ckpt/run.h>
#include "../migrate_setup.h"
#include "../runner.h"
#include "../scarce_memory.h"

#define OK(call) ck_assert_msg((call) >= 0, "%s: %s: %s", #call, err.object, err.message)

static const char *data(const char *name)
{
    static char path[4][1000];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/tests/data/ranks/%s", getenv("srcdir") ? getenv("srcdir") : ".", name);
    return to;
}

/* ---- what a target has */

static const ckpt_value *value(const ckpt_reader *r, const char *path)
{
    const ckpt_value *v = NULL;
    const ckpt_value *root = ckpt_reader_root(r);
    return root && ckpt_value_find(root, path, &v, NULL) == CKPT_OK ? v : NULL;
}

static void has(const ckpt_reader *r, const char *path)
{
    ck_assert_msg(value(r, path) || find(r, path), "there is no %s", path);
}

static void lacks(const ckpt_reader *r, const char *path)
{
    ck_assert_msg(!value(r, path) && !find(r, path), "there is %s", path);
}

static void has_int(const ckpt_reader *r, const char *path, int64_t n)
{
    const ckpt_value *v = value(r, path);
    ck_assert_msg(v && v->kind == CKPT_V_INT, "there is no number %s", path);
    ck_assert_int_eq(v->integer, n);
}

static uint32_t crc_of(const ckpt_reader *r, const char *name)
{
    size_t i;
    uint32_t crc = 0;
    OK(ckpt_reader_find(r, name, strlen(name), &i, &err));
    OK(ckpt_reader_crc32(r, i, &crc, &err));
    return crc;
}

/* The tensor is that of the source, which another one of it is not. */
static void is_that_of(const ckpt_reader *r, const char *name, const char *source, const char *one, const char *other)
{
    ckpt_reader *from = opened(source);
    ck_assert_uint_eq(crc_of(r, name), crc_of(from, one));
    if (other)
        ck_assert_uint_ne(crc_of(r, name), crc_of(from, other));
    ckpt_reader_close(from);
}

/* ---- what the report says */

static const ckpt_finding *said(const char *of)
{
    const ckpt_finding *f = ckpt_report_find(report, "rank-state", of);
    ck_assert_msg(f != NULL, "nothing is said of %s", of ? of : "them");
    return f;
}

static void says(const char *of, ckpt_severity severity, const char *words)
{
    const ckpt_finding *f = said(of);
    ck_assert_msg(strstr(f->message, words) != NULL, "%s: no '%s' in: %s", of, words, f->message);
    ck_assert_int_eq(f->severity, severity);
}

static void count_said(size_t n)
{
    ck_assert_uint_eq(ckpt_report_count_code(report, "rank-state"), n);
}

static const char random_goes_on[] = "not that of the unbroken run", differ[] = "left out: they differ";

static ckpt_reader *migrated(const char *source, const char *to, ckpt_rank_state what)
{
    const char *out = at(strcmp(to, "same") == 0 ? "out" : strcmp(to, "torch") == 0 ? "out.pt" : "out.safetensors");
    options.struct_size = sizeof options;
    options.rank_state = what;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", out);
    ck_assert_int_eq(system(command), 0);
    migrates(source, to, out);
    return opened(out);
}

/* ---- keep: one note, and nothing else is other than without the option */

static void keeps(const char *name, const char *path, const char *words)
{
    ckpt_reader *r = migrated(data(name), "torch", CKPT_RANK_STATE_KEEP);
    has(r, path);
    count_said(1);
    const ckpt_finding *f = said(NULL);
    ck_assert_msg(strstr(f->message, words) != NULL, "no '%s' in: %s", words, f->message);
    ck_assert_ptr_nonnull(strstr(f->fix, "--rank-state derive"));
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_NOTE);
    ckpt_reader_close(r);
}

START_TEST(kept_and_said)
{
    keeps("accelerate", "rng_1.torch_manual_seed", "2 ranks saved it");
    keeps("accelerate", "dl_state_dict._num_yielded", "dl_state_dict.bin (1), random_states_*.pkl (2)");
    keeps("hf-trainer", "rng_1.cuda.1", "rng_state_*.pth (2)");
    keeps("dcp", "rng.rank_1", "rng.rank_* (2)");
    keeps("verl", "rank_1.extra_state.rng.cpu", "rank_*.extra_state.rng (2)");
    keeps("megatron", "rng_state.mp_rank_01.1.torch_rng_state", "rng_state (2)");
    keeps("torch-dist", "rng_state/shard_0.1_1.2.0.1.torch_rng_state", "rng_state/shard_* (2)");
}
END_TEST

/* One process, or weights alone: there is nothing to be said. */
START_TEST(nothing_of_ranks)
{
    char one[1000];
    snprintf(one, sizeof one, "%s/tests/data/peers/accelerate", getenv("srcdir") ? getenv("srcdir") : ".");
    ckpt_reader *r = migrated(one, "torch", CKPT_RANK_STATE_KEEP);
    count_said(0);
    ckpt_reader_close(r);
    r = migrated(one, "torch", CKPT_RANK_STATE_DROP);
    has(r, "rng.torch_manual_seed");
    count_said(1);
    ck_assert_ptr_nonnull(strstr(said(NULL)->message, "nothing in it is known"));
    ckpt_reader_close(r);
    r = migrated(one, "torch", CKPT_RANK_STATE_DERIVE);
    has(r, "rng.torch_manual_seed");
    ck_assert_ptr_nonnull(strstr(said(NULL)->message, "nothing is derived"));
    ckpt_reader_close(r);
    options.weights_only = true;
    r = migrated(data("accelerate"), "torch", CKPT_RANK_STATE_KEEP);
    count_said(0);
    ckpt_reader_close(r);
    options.weights_only = false;
    static const char *const second[] = {"random_states_1.pkl", "dl_state_dict.bin"};
    options.drop = second;
    options.drop_count = 2;
    r = migrated(data("accelerate"), "torch", CKPT_RANK_STATE_KEEP);
    has(r, "rng.torch_manual_seed");
    lacks(r, "rng_1.torch_manual_seed");
    count_said(0);
    ckpt_reader_close(r);
}
END_TEST

/* ---- drop: values and tensors, the dicts that are empty by it too, and nothing else */

START_TEST(dropped)
{
    ckpt_reader *r = migrated(data("accelerate"), "torch", CKPT_RANK_STATE_DROP);
    lacks(r, "rng");
    lacks(r, "rng_1");
    lacks(r, "dl_state_dict");
    has(r, "model.weight");
    has(r, "optimizer.param_groups.0.lr");
    says("random_states_*.pkl", CKPT_SEVERITY_NOTE, "each of 2 ranks");
    says("dl_state_dict.bin", CKPT_SEVERITY_NOTE, "rank 0 of 2");
    count_said(2);
    ckpt_reader_close(r);
    r = migrated(data("dcp"), "torch", CKPT_RANK_STATE_DROP);
    static const char *const gone[] = {"rng",     "python_rng_rank_0", "alike_rng",       "dataloader",
                                       "sampler", "rank_0.rng_state",  "rank_1.rng_state"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        lacks(r, gone[i]);
    has_int(r, "rank_1.seen", 41);
    has_int(r, "step", 7);
    has(r, "model.weight");
    ckpt_reader_close(r);
    r = migrated(data("verl"), "torch", CKPT_RANK_STATE_DROP);
    lacks(r, "rank_0.extra_state.rng");
    has_int(r, "rank_1.extra_state.mine", 1);
    has_int(r, "extra_state.lr_scheduler.last_epoch", 3);
    ckpt_reader_close(r);
    r = migrated(data("megatron"), "torch", CKPT_RANK_STATE_DROP);
    lacks(r, "rng_state");
    has_int(r, "args.consumed_train_samples", 20);
    ckpt_reader_close(r);
    r = migrated(data("torch-dist"), "torch", CKPT_RANK_STATE_DROP);
    lacks(r, "rng_state/shard_0.0_1.2");
    lacks(r, "rerun_state_machine_state/shard_0_2");
    has(r, "model.output_layer.weight");
    ckpt_reader_close(r);
}
END_TEST

/* ---- derive, layout by layout */

START_TEST(of_accelerate)
{
    static const char *const formats[] = {"torch", "ckpt"};
    for (size_t i = 0; i < 2; i++) {
        ckpt_reader *r = migrated(data("accelerate"), formats[i], CKPT_RANK_STATE_DERIVE);
        const char *head = i ? "random_states_0.pkl" : "rng";
        char name[80];
        snprintf(name, sizeof name, "%s.torch_manual_seed", head);
        is_that_of(r, name, data("accelerate/random_states_0.pkl"), "torch_manual_seed", "torch_cuda_manual_seed.0");
        snprintf(name, sizeof name, "%s.torch_cuda_manual_seed.0", head);
        is_that_of(r, name, data("accelerate/random_states_0.pkl"), "torch_cuda_manual_seed.0",
                   "torch_cuda_manual_seed.1");
        snprintf(name, sizeof name, "%s.torch_cuda_manual_seed.1", head);
        lacks(r, name);
        lacks(r, "rng_1");
        lacks(r, "random_states_1.pkl.torch_manual_seed");
        lacks(r, "dl_state_dict");
        says("random_states_*.pkl", CKPT_SEVERITY_NOTE, random_goes_on);
        says("dl_state_dict.bin", CKPT_SEVERITY_WARNING, "rank 0 of 2");
        ck_assert_ptr_nonnull(strstr(said("dl_state_dict.bin")->fix, "skip"));
        ckpt_reader_close(r);
    }
}
END_TEST

/* As a job of one process has it: the file has another name, and one tensor where there was a list. */
START_TEST(of_the_trainer)
{
    ckpt_reader *r = migrated(data("hf-trainer"), "torch", CKPT_RANK_STATE_DERIVE);
    is_that_of(r, "rng.cpu", data("hf-trainer/rng_state_0.pth"), "cpu", NULL);
    is_that_of(r, "rng.cuda", data("hf-trainer/rng_state_0.pth"), "cuda.0", "cuda.1");
    lacks(r, "rng_1");
    lacks(r, "rng_0");
    says("rng_state_*.pth", CKPT_SEVERITY_NOTE, "called rng_state.pth now");
    ckpt_reader_close(r);
}
END_TEST

START_TEST(of_dcp)
{
    static const char *const formats[] = {"torch", "ckpt"};
    for (size_t i = 0; i < 2; i++) {
        ckpt_reader *r = migrated(data("dcp"), formats[i], CKPT_RANK_STATE_DERIVE);
        is_that_of(r, "rng.rank_0", data("dcp"), "rng.rank_0", "rng.rank_1");
        is_that_of(r, "rank_0.rng_state", data("dcp"), "rank_0.rng_state", "rank_1.rng_state");
        has(r, "alike_rng.rank_0");
        has(r, "python_rng_rank_0");
        static const char *const gone[] = {"rng.rank_1",       "alike_rng.rank_1", "python_rng_rank_1",
                                           "rank_1.rng_state", "dataloader",       "sampler.rank_1"};
        for (size_t k = 0; k < sizeof gone / sizeof *gone; k++)
            lacks(r, gone[k]);
        has_int(r, "sampler.rank_0.epoch", 1);
        has_int(r, "rank_1.seen", 41); /* which says nothing of what it is */
        says("rng.rank_*", CKPT_SEVERITY_NOTE, random_goes_on);
        says("python_rng_rank_*", CKPT_SEVERITY_NOTE, random_goes_on);
        says("alike_rng.rank_*", CKPT_SEVERITY_NOTE, "are the same: they become one");
        says("dataloader.dp_rank_*", CKPT_SEVERITY_WARNING, differ);
        says("sampler.rank_*", CKPT_SEVERITY_WARNING, "all 2 ranks have the same: it becomes one");
        count_said(6);
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(of_verl)
{
    ckpt_reader *r = migrated(data("verl"), "torch", CKPT_RANK_STATE_DERIVE);
    is_that_of(r, "extra_state.rng.cpu", data("verl"), "rank_0.extra_state.rng.cpu", "rank_1.extra_state.rng.cpu");
    has(r, "extra_state.rng.random");
    has_int(r, "extra_state.lr_scheduler.last_epoch", 3);
    lacks(r, "rank_0.extra_state.rng");
    has_int(r, "rank_0.extra_state.mine", 0);
    has_int(r, "rank_1.extra_state.mine", 1);
    says("rank_*.extra_state.rng", CKPT_SEVERITY_NOTE, random_goes_on);
    const ckpt_finding *rest = NULL;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (strcmp(ckpt_report_get(report, i)->code, "rank-state") == 0 && !*ckpt_report_get(report, i)->tensor)
            rest = ckpt_report_get(report, i);
    ck_assert_ptr_nonnull(rest);
    ck_assert_int_eq(rest->severity, CKPT_SEVERITY_WARNING);
    ck_assert_ptr_nonnull(strstr(rest->message, "1 value of the ranks is no random state"));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(of_megatron)
{
    ckpt_reader *r = migrated(data("megatron"), "torch", CKPT_RANK_STATE_DERIVE);
    is_that_of(r, "rng_state.0.torch_rng_state", data("megatron"), "rng_state.mp_rank_00.0.torch_rng_state",
               "rng_state.mp_rank_00.1.torch_rng_state");
    has(r, "rng_state.0.rng_tracker_states.model-parallel-rng");
    lacks(r, "rng_state.1");
    lacks(r, "rng_state.mp_rank_00");
    has_int(r, "args.consumed_train_samples", 20); /* of all ranks together */
    has_int(r, "args.world_size", 1);
    says("rng_state", CKPT_SEVERITY_NOTE, random_goes_on);
    ckpt_reader_close(r);
    r = migrated(data("torch-dist"), "torch", CKPT_RANK_STATE_DERIVE);
    is_that_of(r, "rng_state/shard_0.0_1.1.0.0.torch_rng_state", data("torch-dist"),
               "rng_state/shard_0.0_1.2.0.0.torch_rng_state", "rng_state/shard_0.1_1.2.0.0.torch_rng_state");
    lacks(r, "rng_state/shard_0.0_1.1.0.1");
    lacks(r, "rng_state/shard_0.0_1.2");
    lacks(r, "rng_state/shard_0.1_1.2");
    lacks(r, "rerun_state_machine_state/shard_0_2");
    says("rng_state/shard_*", CKPT_SEVERITY_NOTE, random_goes_on);
    says("rerun_state_machine_state/shard_*", CKPT_SEVERITY_WARNING, differ);
    ckpt_reader_close(r);
}
END_TEST

/* ---- a native file that keeps the structure of the directory that it was made of */

START_TEST(through_a_native_file)
{
    ckpt_reader *r = migrated(data("hf-trainer"), "ckpt", CKPT_RANK_STATE_KEEP);
    ckpt_reader_close(r);
    ck_assert_int_eq(rename(at("out.safetensors"), at("kept.safetensors")), 0);
    r = migrated(at("kept.safetensors"), "torch", CKPT_RANK_STATE_DERIVE);
    is_that_of(r, "rng.cuda", data("hf-trainer/rng_state_0.pth"), "cuda.0", "cuda.1");
    lacks(r, "rng_1");
    ckpt_reader_close(r);
    r = migrated(at("kept.safetensors"), "ckpt", CKPT_RANK_STATE_DROP);
    lacks(r, "rng_state_0.pth.cpu");
    lacks(r, "rng_state_1.pth.cpu");
    ckpt_reader_close(r);
    ck_assert_int_eq(rename(at("out.safetensors"), at("dropped.safetensors")), 0);
    r = migrated(at("dropped.safetensors"), "torch", CKPT_RANK_STATE_KEEP); /* the structure has none either */
    lacks(r, "rng");
    lacks(r, "rng_0");
    has(r, "model.weight");
    count_said(0);
    ckpt_reader_close(r);
}
END_TEST

/* ---- the same layout */

static bool there(const char *name)
{
    return access(at("out/%s", name), F_OK) == 0;
}

/* diff says nothing of the file. */
static bool copied(const char *from, const char *name)
{
    char command[2600];
    snprintf(command, sizeof command, "cmp -s '%s/%s' '%s'", data(from), name, at("out/%s", name));
    return system(command) == 0;
}

START_TEST(as_the_same_folder)
{
    ckpt_reader *r = migrated(data("hf-trainer"), "same", CKPT_RANK_STATE_KEEP);
    ck_assert(copied("hf-trainer", "rng_state_0.pth") && copied("hf-trainer", "rng_state_1.pth"));
    count_said(1);
    ckpt_reader_close(r);
    r = migrated(data("hf-trainer"), "same", CKPT_RANK_STATE_DROP);
    ck_assert(!there("rng_state_0.pth") && !there("rng_state_1.pth") && !there("rng_state.pth"));
    ck_assert(copied("hf-trainer", "model.safetensors") && copied("hf-trainer", "trainer_state.json"));
    ckpt_reader_close(r);
    r = migrated(data("hf-trainer"), "same", CKPT_RANK_STATE_DERIVE);
    ck_assert(!there("rng_state_0.pth") && !there("rng_state_1.pth") && there("rng_state.pth"));
    ck_assert(copied("hf-trainer", "model.safetensors") && copied("hf-trainer", "trainer_state.json"));
    ckpt_reader_close(r);
    r = opened(at("out/rng_state.pth"));
    is_that_of(r, "cpu", data("hf-trainer/rng_state_0.pth"), "cpu", NULL);
    is_that_of(r, "cuda", data("hf-trainer/rng_state_0.pth"), "cuda.0", "cuda.1");
    ckpt_reader *first = opened(data("hf-trainer/rng_state_0.pth"));
    has_int(r, "python.1.1", value(first, "python.1.1")->integer);
    ckpt_reader_close(first);
    ckpt_reader_close(r);
    r = migrated(data("accelerate"), "same", CKPT_RANK_STATE_DERIVE);
    ck_assert(there("random_states_0.pkl") && !there("random_states_1.pkl") && !there("dl_state_dict.bin"));
    ck_assert(copied("accelerate", "optimizer.bin") && copied("accelerate", "model.safetensors"));
    ckpt_reader_close(r);
    r = opened(at("out/random_states_0.pkl"));
    has(r, "torch_cuda_manual_seed.0");
    lacks(r, "torch_cuda_manual_seed.1");
    ckpt_reader_close(r);
}
END_TEST

/* ---- lists of ranks in a file of a program's own */

START_TEST(of_lists)
{
    ckpt_reader *r = migrated(data("lists.pt"), "torch", CKPT_RANK_STATE_DERIVE);
    is_that_of(r, "rng_states.0", data("lists.pt"), "rng_states.0", "rng_states.1");
    lacks(r, "rng_states.1");
    has(r, "cuda_rng_states.1");  /* of two GPUs */
    has(r, "small_rng_states.1"); /* not known to be of ranks: no generator of a CPU has so few bytes */
    static const char *const sound_so[] = {"random_transforms.1.p", "samplers.1.kind",
                                           "model.random_proj.rank_1.weight"};
    for (size_t i = 0; i < sizeof sound_so / sizeof *sound_so; i++)
        has(r, sound_so[i]);
    lacks(r, "sampler_states");
    says("rng_states", CKPT_SEVERITY_NOTE, random_goes_on);
    says("sampler_states", CKPT_SEVERITY_WARNING, differ);
    count_said(2);
    ckpt_reader_close(r);
}
END_TEST

/* ---- llm.c */

START_TEST(of_llmc)
{
    ckpt_reader *r = migrated(data("llmc"), "torch", CKPT_RANK_STATE_DERIVE);
    has_int(r, "rng_state.0", 13375337);
    has_int(r, "rng_state_last_update.0", 13371337);
    lacks(r, "rng_state.1");
    has_int(r, "world_size", 1);
    has_int(r, "current_sample_idx", 4);
    says("current_sample_idx", CKPT_SEVERITY_NOTE, "counts batches of all 2 ranks together, and stays");
    ckpt_reader_close(r);
    r = migrated(data("llmc"), "torch", CKPT_RANK_STATE_DROP);
    lacks(r, "rng_state");
    has_int(r, "current_sample_idx", 4);
    has_int(r, "world_size", 2);
    ckpt_reader_close(r);
    r = migrated(data("llmc-shuffled"), "ckpt", CKPT_RANK_STATE_DERIVE);
    lacks(r, "loader.0.mt19937");
    lacks(r, "loader.1.intra_shard_indices");
    lacks(r, "current_sample_idx");
    has_int(r, "rng_state.0", 13375337);
    says("loader.*.mt19937", CKPT_SEVERITY_WARNING, differ);
    says("current_sample_idx", CKPT_SEVERITY_WARNING, "each in a shuffle of its own");
    ckpt_reader_close(r);
}
END_TEST

/* ---- ranks of ckpt_run */

static char run_path[300];
static pthread_barrier_t meet;
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static int64_t shared[4096];
static int arrived;

static int all_reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    (void)ctx;
    pthread_mutex_lock(&alone);
    for (size_t i = 0; i < n; i++)
        shared[i] = arrived == 0                                ? v[i]
                    : op == CKPT_OP_SUM                         ? shared[i] + v[i]
                    : (op == CKPT_OP_MIN) == (v[i] < shared[i]) ? v[i]
                                                                : shared[i];
    arrived++;
    pthread_mutex_unlock(&alone);
    pthread_barrier_wait(&meet);
    memcpy(v, shared, n * sizeof *v);
    pthread_barrier_wait(&meet);
    arrived = 0;
    pthread_barrier_wait(&meet);
    return 0;
}

static void *train(void *arg)
{
    const int64_t rank = *(const int64_t *)arg, two = 2;
    unsigned char rng[64];
    float weight[2] = {1, 2};
    int64_t step = 1, seen = 10 + rank, epoch = 3, place = 5 + rank, done = 0;
    ckpt_error e = CKPT_ERROR_INIT;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    ckpt_run *run = NULL;
    ckpt_state *state = ckpt_state_new();
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    memset(rng, (int)rank + 1, sizeof rng);
    d.name = "w";
    d.dtype = CKPT_F32;
    d.ndim = 1;
    d.shape = &two;
    d.role = CKPT_ROLE_PARAM;
    d.data = weight;
    double lr = 0.5 + (double)rank; /* each rank has a group of its own */
    static const char *const params[] = {"w"};
    ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &lr}};
    ckpt_group_desc group = CKPT_GROUP_DESC_INIT;
    group.name = "0";
    group.params = params;
    group.param_count = 1;
    group.hypers = hypers;
    group.hyper_count = 1;
    o.ranks.rank = rank;
    o.ranks.world = 2;
    o.all_reduce = all_reduce;
    ckpt_status status = ckpt_state_tensor(state, &d, &e);
    ckpt_tensor_desc gpu = CKPT_TENSOR_DESC_INIT;
    gpu.name = "rng.gpu";
    gpu.dtype = CKPT_U8;
    gpu.ndim = 1;
    gpu.shape = &two;
    gpu.role = CKPT_ROLE_RNG;
    gpu.data = rng;
    status = status < 0 ? status : ckpt_state_tensor(state, &gpu, &e);
    status = status < 0 ? status : ckpt_state_group(state, &group, &e);
    status = status < 0 ? status : ckpt_state_bytes(state, "rng.cpu", rng, sizeof rng, &e);
    status = status < 0 ? status : ckpt_state_i64(state, "step", &step, &e);
    status = status < 0 ? status : ckpt_state_i64(state, "seen", &seen, &e);
    status = status < 0 ? status : ckpt_state_i64(state, "epoch", &epoch, &e);
    status = status < 0 ? status : ckpt_state_i64(state, "loader.at", &place, &e);
    status = status < 0 ? status : ckpt_run_open(run_path, state, &o, &run, &e);
    status = status < 0 ? status : ckpt_run_resume(run, NULL, &done, NULL, &e);
    status = status < 0 ? status : ckpt_run_save(run, 1, &e);
    status = status < 0 ? status : ckpt_run_close(run, &e);
    ckpt_state_free(state);
    if (status < 0)
        fprintf(stderr, "rank %d: %s: %s\n", (int)rank, e.object, e.message);
    return status < 0 ? (void *)state : NULL;
}

/* rank-00000 and rank-00001 of one step. */
static const char *make_run(const char **second)
{
    static char one[300], two[300];
    static const int64_t ranks[] = {0, 1};
    pthread_t thread;
    void *failed = NULL;
    snprintf(run_path, sizeof run_path, "%s", at("run"));
    ck_assert_int_eq(pthread_barrier_init(&meet, NULL, 2), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, train, (void *)(uintptr_t)&ranks[1]), 0);
    void *own = train((void *)(uintptr_t)&ranks[0]);
    ck_assert_int_eq(pthread_join(thread, &failed), 0);
    ck_assert(!own && !failed);
    snprintf(one, sizeof one, "%s", at("run/rank-00000/step-00000001"));
    snprintf(two, sizeof two, "%s", at("run/rank-00001/step-00000001"));
    *second = two;
    return one;
}

START_TEST(of_a_run)
{
    const char *second, *first = make_run(&second), *const also[] = {second};
    options.also = also;
    options.also_count = 1;
    ckpt_reader *r = migrated(first, "ckpt", CKPT_RANK_STATE_KEEP);
    has(r, "rank-00001.rng.cpu");
    has(r, "rank-00001.rng.gpu");
    has_int(r, "rank-00001.loader.at", 6);
    count_said(1);
    ckpt_reader_close(r);
    static const char *const formats[] = {"torch", "ckpt"};
    for (size_t i = 0; i < 2; i++) {
        r = migrated(first, formats[i], CKPT_RANK_STATE_DERIVE);
        unsigned char gpu[2];
        size_t number;
        OK(ckpt_reader_find(r, "rng.gpu", 7, &number, &err));
        OK(ckpt_reader_read(r, number, gpu, sizeof gpu, &err));
        ck_assert_uint_eq(gpu[0], 1); /* rank 0's */
        const ckpt_value *cpu = value(r, "rng.cpu");
        ck_assert(cpu && cpu->kind == CKPT_V_BYTES && cpu->text.size == 64 && cpu->text.data[63] == 1);
        static const char *const gone[] = {"rank-00000.rng", "rank-00001.rng", "rank-00000.rng.gpu",
                                           "rank-00001.rng.gpu"};
        for (size_t k = 0; k < sizeof gone / sizeof *gone; k++)
            lacks(r, gone[k]);
        has_int(r, "epoch", 3); /* all ranks had it */
        lacks(r, "rank-00000.epoch");
        has_int(r, "rank-00000.seen", 10); /* nobody knows what it is */
        has_int(r, "rank-00001.seen", 11);
        lacks(r, "rank-00001.loader");
        lacks(r, "loader");
        has(r, "rank-00001.optimizer.groups.0.params"); /* a group is not taken apart */
        has(r, "rank-00001.optimizer.groups.0.lr");
        lacks(r, "optimizer.groups.0");
        says("rank-*.rng", CKPT_SEVERITY_NOTE, random_goes_on);
        says("rank-*.rng.gpu", CKPT_SEVERITY_NOTE, "called rng.gpu now");
        says("rank-*.loader", CKPT_SEVERITY_WARNING, differ);
        has(r, formats[i][0] == 't' ? "model.w" : "w");
        ckpt_reader_close(r);
    }
    r = migrated(first, "ckpt", CKPT_RANK_STATE_DROP);
    lacks(r, "rank-00000.rng");
    lacks(r, "rank-00000.rng.gpu");
    lacks(r, "rank-00000.loader");
    has_int(r, "epoch", 3); /* all ranks have it */
    ckpt_reader_close(r);
}
END_TEST

/* ---- what is not there, and what is there twice */

static const char *copy_of(const char *name)
{
    char command[1400];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'", at("copy"), data(name),
             at("copy"), at("copy"));
    ck_assert_int_eq(system(command), 0);
    return at("copy");
}

START_TEST(without_the_first_rank)
{
    copy_of("hf-trainer");
    ck_assert_int_eq(unlink(at("copy/rng_state_0.pth")), 0);
    ckpt_reader *r = migrated(at("copy"), "torch", CKPT_RANK_STATE_DERIVE);
    lacks(r, "rng");
    lacks(r, "rng_1");
    says("rng_state_*.pth", CKPT_SEVERITY_WARNING, "there is none of rank 0");
    ckpt_reader_close(r);
    copy_of("hf-trainer");
    ck_assert_int_eq(truncate(at("copy/rng_state_0.pth"), 900), 0);
    options.salvage = true;
    r = migrated(at("copy"), "torch", CKPT_RANK_STATE_DERIVE);
    says("rng_state_*.pth", CKPT_SEVERITY_WARNING, "there is none of rank 0");
    ckpt_reader_close(r);
}
END_TEST

START_TEST(under_a_name_that_is_taken)
{
    char command[900];
    copy_of("hf-trainer");
    snprintf(command, sizeof command, "cp '%s' '%s'", data("hf-trainer/rng_state_1.pth"), at("copy/rng_state.pth"));
    ck_assert_int_eq(system(command), 0);
    ckpt_reader *r = migrated(at("copy"), "same", CKPT_RANK_STATE_DERIVE);
    ck_assert(copied("hf-trainer", "model.safetensors"));
    ck_assert(there("rng_state.pth") && !there("rng_state_0.pth") && !there("rng_state_1.pth"));
    says("rng_state_*.pth", CKPT_SEVERITY_WARNING, "is there already, as rng_state.pth");
    ckpt_reader_close(r);
    r = opened(at("out/rng_state.pth"));
    is_that_of(r, "cpu", data("hf-trainer/rng_state_1.pth"), "cpu", NULL);
    ckpt_reader_close(r);
}
END_TEST

/* One rank alone, of several: a job of one process has another name for its file. */
START_TEST(of_one_rank_of_several)
{
    copy_of("hf-trainer");
    ck_assert_int_eq(unlink(at("copy/rng_state_1.pth")), 0);
    ckpt_reader *r = migrated(at("copy"), "same", CKPT_RANK_STATE_DERIVE);
    ck_assert(there("rng_state.pth") && !there("rng_state_0.pth"));
    ckpt_reader_close(r);
}
END_TEST

/* ---- the ledger; options */

typedef struct counts {
    size_t written, of_ranks, others;
} counts;

static ckpt_status take(void *ctx, const ckpt_migrate_row *row, ckpt_error *e)
{
    counts *c = ctx;
    (void)e;
    c->written += strcmp(row->fate, "written") == 0;
    c->of_ranks += strcmp(row->fate, "rank-state") == 0;
    c->others += strcmp(row->fate, "written") != 0 && strcmp(row->fate, "rank-state") != 0;
    ck_assert(strcmp(row->fate, "rank-state") != 0 || (row->why && !row->name.data));
    return CKPT_OK;
}

START_TEST(in_the_ledger)
{
    static const struct {
        ckpt_rank_state what;
        size_t of_ranks;
    } want[] = {{CKPT_RANK_STATE_KEEP, 0}, {CKPT_RANK_STATE_DROP, 6}, {CKPT_RANK_STATE_DERIVE, 4}};
    for (size_t i = 0; i < 3; i++) {
        counts c = {0, 0, 0};
        options.ledger = (ckpt_migrate_ledger){take, &c};
        ckpt_reader *r = migrated(data("accelerate"), "torch", want[i].what);
        ck_assert_uint_eq(c.of_ranks, want[i].of_ranks); /* a CPU's and two GPUs' of each of two ranks */
        ck_assert_uint_eq(c.others, 0);
        ck_assert_uint_eq(c.written, ckpt_reader_tensor_count(r));
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(no_such_choice)
{
    options.struct_size = sizeof options;
    options.rank_state = (ckpt_rank_state)3;
    ck_assert_int_eq(migrate(data("dcp"), "torch", at("a.pt")), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "rank_state is 3"));
    ck_assert_int_ne(access(at("a.pt"), F_OK), 0);
}
END_TEST

/* ---- an allocation fails */

START_TEST(memory_is_short)
{
    static const char *const sources[] = {"dcp", "verl", "megatron", "hf-trainer"};
    options.struct_size = sizeof options;
    options.threads = 1;
    options.verify = false;
    options.dry_run = true;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        long failed = 0;
        bool all = false;
        options.rank_state = i == 0 ? CKPT_RANK_STATE_DROP : CKPT_RANK_STATE_DERIVE;
        for (long n = 0; !all; n++) {
            allocations_left = n;
            ckpt_status status = migrate(data(sources[i]), "torch", at("a.pt"));
            all = allocations_left >= 0; /* none has failed */
            allocations_left = -1;
            ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "%s: allocation %ld: %d %s", sources[i], n,
                          (int)status, err.message);
            failed += status < 0;
        }
        ck_assert_int_gt(failed, 100);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rank_state");
    TCase *t = tcase_create("rank_state");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_test(t, kept_and_said);
    tcase_add_test(t, nothing_of_ranks);
    tcase_add_test(t, dropped);
    tcase_add_test(t, of_accelerate);
    tcase_add_test(t, of_the_trainer);
    tcase_add_test(t, of_dcp);
    tcase_add_test(t, of_verl);
    tcase_add_test(t, of_megatron);
    tcase_add_test(t, through_a_native_file);
    tcase_add_test(t, as_the_same_folder);
    tcase_add_test(t, of_lists);
    tcase_add_test(t, of_llmc);
    tcase_add_test(t, of_a_run);
    tcase_add_test(t, without_the_first_rank);
    tcase_add_test(t, under_a_name_that_is_taken);
    tcase_add_test(t, of_one_rank_of_several);
    tcase_add_test(t, in_the_ledger);
    tcase_add_test(t, no_such_choice);
    tcase_add_test(t, memory_is_short);
    suite_add_tcase(s, t);
    return run_suite(s);
}
