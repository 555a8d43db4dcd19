/* ranks.c - several processes train one model, and all of them resume from one common step.
 *
 * Each process is a rank: it draws its own data, and keeps its own shard of the weights and moments; gradients go to
 * all by shared memory. Each saves its shard in a directory of its own, RUN/rank-00000 and so on, and the library makes
 * sure, by the all-reduce that it is given here, that a step is saved by all or by none. It needs no MPI for that: with
 * MPI, all_reduce would be one call of MPI_Allreduce.
 *
 * The ranks are forked before anything of the library is used. When one dies, the others must not wait for it: the
 * first process sees it and says so, their next all-reduce fails, and the run ends. The same command resumes it. */
#include "util.h"
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORLD = 8, WIDTH = 96, BATCH = 8, CHUNK = 64 };

static const char usage[] =
    "usage: ranks [options] RUN_DIR\n"
    "Trains a small model with several processes, each with a shard of it, and resumes.\n"
    "\n"
    "  --world N        processes (default 3)\n"
    "  --steps N        train until N steps are done (default 60)\n"
    "  --save-every N   save after every N steps (default 10)\n"
    "  --keep-last N    remove all but the newest N checkpoints\n"
    "  --wait           save while the training waits, not beside it\n"
    "\n"
    "To try what can go wrong:\n"
    "  --die R N        rank R dies (SIGKILL) when the library asks for the N-th all-reduce\n"
    "  --die-after R N  and when that has been done\n";

typedef struct command {
    const char *run;
    int world, die_rank;
    int64_t steps, save_every, keep_last, die_call;
    bool wait, die_after;
} command;

/* In memory that all processes share. */
typedef struct team {
    int world;
    pid_t first;                          /* the process that waits for the ranks */
    atomic_uint arrived, phase;
    atomic_int lost;                      /* a rank has ended that should not have */
    int64_t numbers[MAX_WORLD][CHUNK];
    float weights[WIDTH];                 /* put together from the shards at each step */
    float grads[MAX_WORLD][WIDTH], losses[MAX_WORLD];
} team;

typedef struct member {
    const command *cmd;
    team *team;
    int rank;
    int64_t calls;                        /* of all_reduce */

    /* The training state of this rank. */
    int begin, count;                     /* its shard */
    float weight[WIDTH], exp_avg[WIDTH], exp_avg_sq[WIDTH], updates;
    uint64_t rng;
    int64_t step;
    ckpt_state *state;
    ckpt_run *run;
} member;

/* ---- all-reduce */

static void wake(team *t)
{
    syscall(SYS_futex, &t->phase, FUTEX_WAKE, MAX_WORLD, NULL, NULL, 0);
}

/* Comes back with 0 when all have come here; with -1 when that will never be, because one of them is gone. */
static int meet(team *t)
{
    const struct timespec moment = { 0, 100000000 };
    unsigned phase = atomic_load(&t->phase);
    if (atomic_load(&t->lost))            /* a rank that has left the others' order must not be counted with them */
        return -1;
    if (atomic_fetch_add(&t->arrived, 1) + 1 == (unsigned)t->world) {
        atomic_store(&t->arrived, 0);
        atomic_fetch_add(&t->phase, 1);
        wake(t);
        return 0;
    }
    while (atomic_load(&t->phase) == phase) {
        if ((atomic_load(&t->lost) || getppid() != t->first) && atomic_load(&t->phase) == phase)
            return -1;
        syscall(SYS_futex, &t->phase, FUTEX_WAIT, phase, &moment, NULL, 0);
    }
    return 0;
}

static void reduce(const team *t, int64_t *v, size_t n, ckpt_op op)
{
    for (size_t i = 0; i < n; i++) {
        v[i] = t->numbers[0][i];
        for (int r = 1; r < t->world; r++) {
            int64_t other = t->numbers[r][i];
            if (op == CKPT_OP_SUM)
                v[i] += other;
            else if (op == CKPT_OP_MIN ? other < v[i] : other > v[i])
                v[i] = other;
        }
    }
}

static void die_here(const member *m, bool after)
{
    if (m->cmd->die_rank == m->rank && m->cmd->die_call == m->calls && m->cmd->die_after == after)
        kill(getpid(), SIGKILL);
}

/* What the library calls on every rank, in the same order. */
static int all_reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    member *m = ctx;
    m->calls++;
    die_here(m, false);
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t part = n - at < CHUNK ? n - at : CHUNK;
        memcpy(m->team->numbers[m->rank], v + at, part * sizeof *v);
        if (meet(m->team) < 0)
            return -1;
        reduce(m->team, v + at, part, op);
        if (meet(m->team) < 0)            /* nobody writes the next numbers while others still read these */
            return -1;
    }
    die_here(m, true);
    return 0;
}

/* ---- the run */

static void bind(member *m, ckpt_role role, float *data)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
    const int64_t shape[] = { m->count };
    desc.name = role == CKPT_ROLE_PARAM ? "weight" : NULL;
    desc.param = role == CKPT_ROLE_PARAM ? NULL : "weight";
    desc.dtype = CKPT_F32;
    desc.ndim = role == CKPT_ROLE_STEP ? 0 : 1;
    desc.shape = shape;
    desc.role = role;
    desc.data = data;
    check(ckpt_state_tensor(m->state, &desc, &err), &err);
}

/* Each rank binds what it holds, and nothing else. */
static void bind_state(member *m)
{
    ckpt_error err = CKPT_ERROR_INIT;
    m->state = ckpt_state_new();
    if (!m->state)
        die("out of memory");
    bind(m, CKPT_ROLE_PARAM, m->weight);
    bind(m, CKPT_ROLE_EXP_AVG, m->exp_avg);
    bind(m, CKPT_ROLE_EXP_AVG_SQ, m->exp_avg_sq);
    bind(m, CKPT_ROLE_STEP, &m->updates);
    check(ckpt_state_bytes(m->state, "rng", &m->rng, sizeof m->rng, &err), &err);
    check(ckpt_state_i64(m->state, "step", &m->step, &err), &err);
}

static void tell(void *ctx, const ckpt_finding *notice)
{
    const member *m = ctx;
    fprintf(stderr, "rank %d: %s: %s\n", m->rank, notice->code, notice->message);
}

static void open_run(member *m)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_options options = CKPT_RUN_OPTIONS_INIT;
    int64_t done = 0;
    options.every_steps = m->cmd->save_every;
    options.last_step = m->cmd->steps;
    options.retention.keep_last = m->cmd->keep_last;
    options.synchronous = m->cmd->wait;
    options.signals = true;
    options.ranks = (ckpt_ranks){ m->rank, m->rank, m->cmd->world };
    options.all_reduce = all_reduce;
    options.all_reduce_ctx = m;
    options.notice = tell;
    options.notice_ctx = m;
    check(ckpt_run_open(m->cmd->run, m->state, &options, &m->run, &err), &err);
    check(ckpt_run_resume(m->run, NULL, &done, NULL, &err), &err);
    fprintf(stderr, "rank %d begins after step %" PRId64 "\n", m->rank, done);
}

/* ---- training: a linear model that learns to imitate another */

static float uniform(uint64_t *rng)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((z ^ (z >> 31)) >> 40) / 8388608.0f - 1.0f;
}

static float gradient(member *m, float *grad)
{
    float loss = 0.0f;
    memset(grad, 0, WIDTH * sizeof *grad);
    for (int b = 0; b < BATCH; b++) {
        float x[WIDTH], off = 0.0f;
        for (int i = 0; i < WIDTH; i++) {
            x[i] = uniform(&m->rng);
            off += (m->team->weights[i] - (float)(i % 7) * 0.25f) * x[i];
        }
        for (int i = 0; i < WIDTH; i++)
            grad[i] += 2.0f * off * x[i] / BATCH;
        loss += off * off / BATCH;
    }
    return loss;
}

/* AdamW on this rank's shard, with the mean of all gradients, summed in the order of the ranks. */
static void update(member *m)
{
    const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.99f, eps = 1e-8f, decay = 0.01f;
    m->updates += 1.0f;
    for (int i = 0; i < m->count; i++) {
        float grad = 0.0f;
        for (int r = 0; r < m->team->world; r++)
            grad += m->team->grads[r][m->begin + i];
        grad /= (float)m->team->world;
        m->exp_avg[i] = beta1 * m->exp_avg[i] + (1.0f - beta1) * grad;
        m->exp_avg_sq[i] = beta2 * m->exp_avg_sq[i] + (1.0f - beta2) * grad * grad;
        float mean = m->exp_avg[i] / (1.0f - powf(beta1, m->updates));
        float square = m->exp_avg_sq[i] / (1.0f - powf(beta2, m->updates));
        m->weight[i] -= lr * (mean / (sqrtf(square) + eps) + decay * m->weight[i]);
    }
}

static void train_step(member *m)
{
    team *t = m->team;
    float loss = 0.0f;
    memcpy(t->weights + m->begin, m->weight, (size_t)m->count * sizeof *m->weight);
    if (meet(t) < 0)
        die("rank %d: another rank is gone", m->rank);
    t->losses[m->rank] = gradient(m, t->grads[m->rank]);
    if (meet(t) < 0)
        die("rank %d: another rank is gone", m->rank);
    update(m);
    m->step++;
    for (int r = 0; r < t->world; r++)
        loss += t->losses[r] / (float)t->world;
    if (m->rank == 0)
        printf("step %" PRId64 " loss %.6f (%a)\n", m->step, (double)loss, (double)loss);
}

static int train(const command *cmd, team *t, int rank)
{
    static member m;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    m.cmd = cmd;
    m.team = t;
    m.rank = rank;
    m.begin = WIDTH * rank / cmd->world;
    m.count = WIDTH * (rank + 1) / cmd->world - m.begin;
    m.rng = 1609 + ((uint64_t)rank << 32);
    bind_state(&m);
    open_run(&m);
    while (status != CKPT_STOP && m.step < cmd->steps) {
        train_step(&m);
        status = ckpt_run_step(m.run, m.step, &err);
        if (status < 0)
            fprintf(stderr, "rank %d: %s: %s\n", rank, err.object, err.message);
        if (atomic_load(&t->lost))        /* the library cannot know that the others will not come back */
            break;
    }
    if (status == CKPT_STOP)
        fprintf(stderr, "rank %d stopped after step %" PRId64 "\n", rank, m.step);
    status = ckpt_run_close(m.run, &err);
    if (status < 0)
        fprintf(stderr, "rank %d: %s: %s\n", rank, err.object, err.message);
    ckpt_state_free(m.state);
    fprintf(stderr, "rank %d made %" PRId64 " calls\n", rank, m.calls);
    return status < 0 || atomic_load(&t->lost);
}

/* ---- the first process: it starts the ranks, passes signals on, and sees when one dies */

static pid_t start_rank(const command *cmd, team *t, int rank, const sigset_t *signals)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_UNBLOCK, signals, NULL);
        exit(train(cmd, t, rank));
    }
    return pid;
}

static int say_how_it_ended(int rank, int status)
{
    if (WIFSIGNALED(status))
        fprintf(stderr, "rank %d was killed by signal %d\n", rank, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

static int watch(team *t, pid_t *pids, const sigset_t *signals)
{
    int left = t->world, failed = 0;
    while (left > 0) {
        int sig = sigwaitinfo(signals, NULL), status;
        pid_t pid;
        for (int r = 0; (sig == SIGTERM || sig == SIGUSR1) && r < t->world; r++)
            if (pids[r] > 0)
                kill(pids[r], sig);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            for (int r = 0; r < t->world; r++) {
                if (pids[r] != pid)
                    continue;
                pids[r] = 0;
                left--;
                if (say_how_it_ended(r, status) != 0) {
                    failed = 1;
                    atomic_store(&t->lost, 1);
                    wake(t);
                }
            }
        }
    }
    return failed;
}

/* ---- the command line */

static int64_t number(const char *option, const char *text, int64_t least, int64_t most)
{
    char *end = NULL;
    long long value = text ? strtoll(text, &end, 10) : 0;
    if (!text || end == text || *end || value < least || value > most)
        die("%s: a number from %" PRId64 " to %" PRId64 " is needed; see --help", option, least, most);
    return value;
}

static command parse(int argc, char **argv)
{
    command cmd = { .world = 3, .steps = 60, .save_every = 10, .die_rank = -1 };
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool two = strcmp(name, "--die") == 0 || strcmp(name, "--die-after") == 0;
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else if (strcmp(name, "--wait") == 0) {
            cmd.wait = true;
            continue;
        } else if (strcmp(name, "--world") == 0) {
            cmd.world = (int)number(name, value, 1, MAX_WORLD);
        } else if (strcmp(name, "--steps") == 0) {
            cmd.steps = number(name, value, 0, INT64_MAX);
        } else if (strcmp(name, "--save-every") == 0) {
            cmd.save_every = number(name, value, 0, INT64_MAX);
        } else if (strcmp(name, "--keep-last") == 0) {
            cmd.keep_last = number(name, value, 0, INT64_MAX);
        } else if (two) {
            cmd.die_rank = (int)number(name, value, 0, MAX_WORLD - 1);
            cmd.die_call = number(name, i + 2 < argc ? argv[i + 2] : NULL, 1, INT64_MAX);
            cmd.die_after = strcmp(name, "--die-after") == 0;
        } else if (name[0] != '-' && !cmd.run) {
            cmd.run = name;
            continue;
        } else {
            die("%s: no such option; see --help", name);
        }
        i += two ? 2 : 1;
    }
    if (!cmd.run)
        die("which run directory? see --help");
    return cmd;
}

int main(int argc, char **argv)
{
    command cmd = parse(argc, argv);
    pid_t pids[MAX_WORLD];
    sigset_t signals;
    team *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED)
        die("mmap: %s", strerror(errno));
    t->world = cmd.world;
    t->first = getpid();
    setvbuf(stdout, NULL, _IOLBF, 0);

    /* Blocked, and waited for: a signal that comes before a rank can take it is not lost. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    for (int r = 0; r < cmd.world; r++)
        pids[r] = start_rank(&cmd, t, r, &signals);
    int failed = watch(t, pids, &signals);
    munmap(t, sizeof *t);
    return failed;
}
