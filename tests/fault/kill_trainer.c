/* kill_trainer - a trainer to be killed. Its whole state is a function of the step, so that whoever finds a checkpoint
 * can tell every bit of it. It uses the public functions alone.
 *
 *     kill_trainer [OPTION]... DIR             resumes, compares, trains
 *     kill_trainer --check [OPTION]... DIR     resumes, compares, and reports the step that it found
 *
 * It reports to an open descriptor what it was promised, a line each: "resumed 7", "saved 8" (the library said that it is
 * on disk), "found 8", "found none". */
#include <ckpt/ckpt.h>
#include <ckpt/run.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "kill_control.h"
#include "killer.h"

enum { BIG = 320 * 1024, HALF = 3 * 4097, ROWS = 64, COLUMNS = 33, PITCH = 40, RNG = 2496 };

/* Each file of a checkpoint is larger than 1 MiB. */
typedef struct training {
    float big[BIG];
    float exp_avg[BIG];
    uint16_t half[HALF];
    float slab[ROWS][PITCH];     /* rows of COLUMNS; what lies between them is not the library's */
    float turned[COLUMNS][ROWS]; /* bound as ROWS x COLUMNS */
    float exp_step;
    float lr;
    int64_t step, epoch;
    double loss;
    ckpt_scaler scaler;
    unsigned char rng[RNG];
    char phase[32];
    bool warm;
} training;

static struct {
    bool check, control, synchronous, read_back, again, open_too, say, lift_limit, prune_first;
    int64_t steps, every, keep_last, keep_every, back;
    int64_t writer; /* saved with each checkpoint; 0: nothing is */
    int report;
    const char *ballast; /* a file to remove after two failures: space is freed */
    const char *path;
} opt = {.steps = -1, .every = 1, .keep_last = 2, .report = -1};

static training now, expected;
static int64_t writer; /* of what was restored, or of this process */

static void report_line(const char *what, int64_t step)
{
    if (opt.report >= 0 && dprintf(opt.report, "%s %" PRId64 "\n", what, step) < 0)
        exit(4);
}

static int complain(const ckpt_error *err)
{
    fprintf(stderr, "kill_trainer: %s: %s\n", err->object, err->message);
    return 1;
}

/* ---- the function of the step */
static void noise(void *to, size_t n, uint64_t salt, int64_t step)
{
    uint64_t x = salt * 0x9e3779b97f4a7c15u ^ (uint64_t)step * 0xd1342543de82ef95u;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t z = x += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        memcpy((char *)to + i, &z, n - i < 8 ? n - i : 8);
    }
}

static void fill(training *t, int64_t step)
{
    memset(t, 0, sizeof *t);
    noise(t->big, sizeof t->big, 1, step);
    noise(t->exp_avg, sizeof t->exp_avg, 2, step);
    noise(t->half, sizeof t->half, 3, step);
    noise(t->slab, sizeof t->slab, 4, step);
    for (int row = 0; row < ROWS; row++)
        for (int column = COLUMNS; column < PITCH; column++)
            t->slab[row][column] = -1.0f;
    noise(t->turned, sizeof t->turned, 5, step);
    noise(t->rng, sizeof t->rng, 6, step);
    t->exp_step = (float)step;
    t->lr = 1.0f / (float)(step + 3);
    t->step = step;
    t->epoch = step / 10;
    t->loss = 1.0 / (double)(step + 7);
    t->scaler = (ckpt_scaler){65536.0 / (double)(step % 9 + 1), 2.0, 0.5, 2000, step % 2000};
    snprintf(t->phase, sizeof t->phase, "phase %" PRId64, step);
    t->warm = step % 3 == 0;
}

static bool is_at(int64_t step)
{
    size_t length = strnlen(now.phase, sizeof now.phase);
    memset(now.phase + length, 0, sizeof now.phase - length); /* what follows a string is nobody's */
    fill(&expected, step);
    if (memcmp(&now, &expected, sizeof now) == 0)
        return true;
    size_t i = 0;
    while (((char *)&now)[i] == ((char *)&expected)[i])
        i++;
    fprintf(stderr, "kill_trainer: the state is not that of step %" PRId64 ": it differs from byte %zu of %zu on\n",
            step, i, sizeof now);
    return false;
}

/* ---- the state, bound */
typedef struct tensor {
    const char *name;
    ckpt_dtype dtype;
    ckpt_role role;
    uint32_t ndim;
    int64_t shape[2], strides[2];
    void *data;
    const char *param;
} tensor;

static ckpt_status bind(ckpt_state *s, ckpt_error *err)
{
    const tensor tensors[] = {
        {"big", CKPT_F32, CKPT_ROLE_PARAM, 2, {320, 1024}, {0}, now.big, NULL},
        {"half", CKPT_BF16, CKPT_ROLE_PARAM, 2, {3, 4097}, {0}, now.half, NULL},
        {"slab", CKPT_F32, CKPT_ROLE_BUFFER, 2, {ROWS, COLUMNS}, {PITCH, 1}, now.slab, NULL},
        {"turned", CKPT_F32, CKPT_ROLE_PARAM, 2, {ROWS, COLUMNS}, {1, ROWS}, now.turned, NULL},
        {NULL, CKPT_F32, CKPT_ROLE_EXP_AVG, 2, {320, 1024}, {0}, now.exp_avg, "big"},
        {NULL, CKPT_F32, CKPT_ROLE_STEP, 0, {0}, {0}, &now.exp_step, "big"},
    };
    static const char *const params[] = {"big", "half", "turned"};
    static const ckpt_hyper hyper = {"lr", CKPT_SCALAR_F32, &now.lr};
    ckpt_group_desc group = CKPT_GROUP_DESC_INIT;
    ckpt_status status = s ? CKPT_OK : CKPT_E_NO_MEMORY;
    for (size_t i = 0; status == CKPT_OK && i < sizeof tensors / sizeof *tensors; i++) {
        const tensor *t = &tensors[i];
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = t->name;
        d.dtype = t->dtype;
        d.role = t->role;
        d.ndim = t->ndim;
        d.shape = t->shape;
        d.strides = t->strides[0] ? t->strides : NULL;
        d.data = t->data;
        d.param = t->param;
        status = ckpt_state_tensor(s, &d, err);
    }
    group.name = "0";
    group.params = params;
    group.param_count = 3;
    group.hypers = &hyper;
    group.hyper_count = 1;
    if (status < 0 || (status = ckpt_state_alias(s, "tied", "big", err)) < 0 ||
        (status = ckpt_state_group(s, &group, err)) < 0 || (status = ckpt_state_i64(s, "step", &now.step, err)) < 0 ||
        (status = ckpt_state_i64(s, "epoch", &now.epoch, err)) < 0 ||
        (status = ckpt_state_f64(s, "loss", &now.loss, err)) < 0 ||
        (status = ckpt_state_bool(s, "warm", &now.warm, err)) < 0 ||
        (status = ckpt_state_scaler(s, "scaler", &now.scaler, err)) < 0 ||
        (status = ckpt_state_string(s, "phase", now.phase, sizeof now.phase, err)) < 0 ||
        (opt.writer && (status = ckpt_state_i64(s, "writer", &writer, err)) < 0))
        return status;
    return ckpt_state_bytes(s, "rng", now.rng, sizeof now.rng, err);
}

/* ---- the run */
static int64_t last_promise = -1;

/* Whatever the library says is on disk is a promise. */
static void note_promise(ckpt_run *run)
{
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    ckpt_run_get_info(run, &info);
    if (info.saved_step >= 0 && info.saved_step != last_promise)
        report_line("saved", info.saved_step);
    last_promise = info.saved_step;
}

/* Every other step takes as long as the save, so that a promise is seen the moment that it is given; the steps between
 * meet a save that is still being written. */
static void watch(ckpt_run *run, int64_t step)
{
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    const struct timespec moment = {0, 100000};
    for (;;) {
        note_promise(run);
        ckpt_run_get_info(run, &info);
        if (!info.busy || step % 2 != 0 || opt.synchronous)
            return;
        nanosleep(&moment, NULL);
    }
}

static int failures;

/* For tests that make saves fail: each outcome is one line, and training goes on. */
static int tell(ckpt_run *run, int64_t step, ckpt_status status, ckpt_error *err)
{
    if (status >= 0)
        status = ckpt_run_wait(run, err);
    if (status >= 0) {
        printf("step %" PRId64 ": saved\n", step);
        return 0;
    }
    printf("step %" PRId64 ": %s %s: %s: %s\n", step, ckpt_status_name(status),
           err->sys_errno ? strerrorname_np(err->sys_errno) : "-", err->object, err->message);
    if (++failures != 2)
        return 0;
    if (opt.ballast && unlink(opt.ballast) < 0) {
        perror(opt.ballast);
        return 1;
    }
    struct rlimit limit;
    if (opt.lift_limit && getrlimit(RLIMIT_FSIZE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    return 0;
}

static int train(ckpt_run *run, int64_t done, ckpt_error *err)
{
    int status = 0;
    if (opt.again && ckpt_run_save(run, done, err) < 0)
        return complain(err);
    for (int64_t i = 0; i != opt.steps && status == 0; i++) {
        fill(&now, ++done);
        writer = opt.writer;
        ckpt_status s = ckpt_run_step(run, done, err);
        if (opt.say)
            status = tell(run, done, s, err);
        else if (s < 0)
            status = complain(err);
        watch(run, done);
    }
    if (ckpt_run_wait(run, err) < 0 && !opt.say)
        status = complain(err);
    note_promise(run);
    return status;
}

/* Nothing there may be half a checkpoint: only a name may be claimed (mkdir) before one is there. *listed: how many there
 * are. */
static int inspect(int64_t *listed, ckpt_error *err)
{
    ckpt_run_list *list = NULL;
    int status = 0;
    *listed = 0;
    ckpt_status opened = ckpt_run_list_open(opt.path, &list, err);
    if (opened < 0) /* a run that was killed before its first save is none yet */
        return opened == CKPT_E_FORMAT || err->sys_errno == ENOENT ? 0 : complain(err);
    for (size_t i = 0; i < ckpt_run_list_count(list); i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(list, i);
        *listed += e->complete;
        if (!e->complete && e->nbytes > 0) {
            fprintf(stderr, "kill_trainer: %s is not complete: %s\n", e->name, e->why);
            status = 1;
        }
    }
    ckpt_run_list_close(list);
    return status;
}

static int resume(ckpt_run *run, int64_t *done, ckpt_error *err)
{
    ckpt_report *report = ckpt_report_new();
    ckpt_status status = ckpt_run_resume(run, "cpu", done, report, err);
    int result = status < 0 ? complain(err) : 0;
    if (report && ckpt_report_count_code(report, "fallback") > 0) {
        fprintf(stderr, "kill_trainer: a checkpoint was passed over: %s\n",
                ckpt_report_find(report, "fallback", NULL)->message);
        result = 1;
    }
    ckpt_report_free(report);
    if (result == 0 && status == CKPT_NOTHING_TO_RESUME) {
        if (opt.check && dprintf(opt.report, "found none\n") < 0)
            return 4;
        fill(&now, *done);
    } else if (result == 0) {
        result = is_at(*done) ? 0 : 3;
        if (result == 0)
            report_line(opt.check ? "found" : "resumed", *done);
    }
    return result;
}

static int on_the_run(void)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    ckpt_run *run = NULL;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    int64_t done = 0, listed = 0;
    o.every_steps = opt.every;
    o.retention.keep_last = opt.keep_last;
    o.prune_first = opt.prune_first;
    o.retention.keep_every = opt.keep_every;
    o.synchronous = opt.synchronous;
    o.read_back = opt.read_back;
    o.resume_step = opt.back;
    fill(&now, 123456789); /* what a restore must overwrite */
    if (bind(state, &err) < 0)
        return complain(&err);
    int status = opt.check ? inspect(&listed, &err) : 0;
    if (opt.open_too)
        prctl(KILLER_MARK, KILLER_BEGIN);
    if (status == 0 && ckpt_run_open(opt.path, state, &o, &run, &err) < 0)
        status = complain(&err);
    if (status == 0)
        status = resume(run, &done, &err);
    if (status == 0 && listed > 0 && done == 0) {
        fprintf(stderr, "kill_trainer: %" PRId64 " checkpoints are listed, and none is found\n", listed);
        status = 1;
    }
    if (!opt.open_too)
        prctl(KILLER_MARK, KILLER_BEGIN);
    if (status == 0 && !opt.check)
        status = train(run, done, &err);
    if (ckpt_run_close(run, &err) < 0 && status == 0 && !opt.say)
        status = complain(&err);
    prctl(KILLER_MARK, KILLER_END);
    ckpt_state_free(state);
    return status;
}

/* ---- the control: what many trainers do instead */
static int in_place(void)
{
    int64_t done = control_resume(opt.path, &now, sizeof now);
    if (done >= 0 && !is_at(done))
        done = -1;
    if (opt.check) {
        if (dprintf(opt.report, done < 0 ? "found none\n" : "found %" PRId64 "\n", done) < 0)
            return 4;
        return 0;
    }
    if (done < 0)
        done = 0;
    prctl(KILLER_MARK, KILLER_BEGIN);
    for (int64_t i = 0; i != opt.steps; i++) {
        fill(&now, ++done);
        if (!control_save(opt.path, done, &now, sizeof now)) {
            perror(opt.path);
            return 1;
        }
        report_line("saved", done);
    }
    prctl(KILLER_MARK, KILLER_END);
    return 0;
}

static int usage(void)
{
    fputs(
        "usage: kill_trainer [--check] [--control] [--sync] [--steps N] [--every N] [--keep N] [--keep-every N] [--again]\n"
        "           [--read-back] [--mark-open] [--report FD] [--back STEP] [--say] [--ballast FILE] [--lift-limit] DIR\n",
        stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"check", no_argument, NULL, 'c'},
                                            {"control", no_argument, NULL, 'C'},
                                            {"sync", no_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"every", required_argument, NULL, 'e'},
                                            {"keep", required_argument, NULL, 'k'},
                                            {"keep-every", required_argument, NULL, 'K'},
                                            {"again", no_argument, NULL, 'a'},
                                            {"mark-open", no_argument, NULL, 'o'},
                                            {"report", required_argument, NULL, 'r'},
                                            {"read-back", no_argument, NULL, 'R'},
                                            {"prune-first", no_argument, NULL, 'p'},
                                            {"writer", required_argument, NULL, 'w'},
                                            {"say", no_argument, NULL, 'S'},
                                            {"ballast", required_argument, NULL, 'b'},
                                            {"lift-limit", no_argument, NULL, 'l'},
                                            {"back", required_argument, NULL, 'B'},
                                            {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (c) {
        case 'c':
            opt.check = true;
            break;
        case 'C':
            opt.control = true;
            break;
        case 's':
            opt.synchronous = true;
            break;
        case 'n':
            opt.steps = atoll(optarg);
            break;
        case 'e':
            opt.every = atoll(optarg);
            break;
        case 'k':
            opt.keep_last = atoll(optarg);
            break;
        case 'K':
            opt.keep_every = atoll(optarg);
            break;
        case 'a':
            opt.again = true;
            break;
        case 'o':
            opt.open_too = true;
            break;
        case 'r':
            opt.report = atoi(optarg);
            break;
        case 'R':
            opt.read_back = true;
            break;
        case 'S':
            opt.say = true;
            break;
        case 'b':
            opt.ballast = optarg;
            break;
        case 'w':
            opt.writer = atoll(optarg);
            break;
        case 'p':
            opt.prune_first = true;
            break;
        case 'l':
            opt.lift_limit = true;
            break;
        case 'B':
            opt.back = atoll(optarg);
            break;
        default:
            return usage();
        }
    if (optind + 1 != argc || (opt.check && opt.report < 0))
        return usage();
    opt.path = argv[optind];
    setvbuf(stdout, NULL, _IOLBF, 0);
    return opt.control ? in_place() : on_the_run();
}
