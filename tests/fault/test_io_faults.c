/* A run whose n-th system call or allocation fails, for n = 1, 2, 3, ... until it comes through: opened, resumed, saved,
 * pruned, closed. After each, what was reported as saved is there bit for bit, what was not reported left the checkpoint
 * of before alone, the training's state is untouched, the next save works, and nothing is leaked or left lying.
 *
 * `make check` gives each call one error and lets the errors take turns; CKPT_FAULT_SEED begins with others, and
 * CKPT_FAULT_LONG=1 tries all of them. */
#include "faulty.h"

#include <signal.h>
#include "harmless.h"
#include "world.h"

enum { DONE = 2, NEXT = 3, AFTER = 4 };

/* ---- what is driven */

typedef struct scenario {
    const char *name;
    bool asynchronous, read_back, big, fresh, half_swapped, no_exchange, listed, back;
} scenario;

static const scenario *now;
static char root[64], run_path[128];
static plan current;

/* One life of a run, and what came of it. */
static struct {
    int errors, warnings; /* calls that failed; warnings that were given */
    int64_t resumed;
    bool fell_back, reported[2];
    int attempts; /* saves of step NEXT that were begun, as seeds 30, 31 */
} life;

static struct {
    long lives, struck, failed, warned;
} sums;

static const char *what(void)
{
    static char text[200];
    snprintf(text, sizeof text, "%s: call %ld (%s fails with %s, %s)", now->name, current.n,
             faulty.struck < 0 ? "none" : faults[faulty.struck].name,
             faulty.error > 0 ? strerrorname_np(faulty.error)
             : faulty.error   ? "a short count"
                              : "nothing",
             current.mode == ONCE            ? "once"
             : current.mode == THIS_FOR_EVER ? "for ever"
                                             : "and so do all others");
    return text;
}

#define HOLDS(condition, ...) ck_assert_msg(condition, "%s: %s", what(), said(__VA_ARGS__))

static const char *said(const char *format, ...)
{
    static char text[1400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return text;
}

static void too_long(int signal)
{
    (void)signal;
    const char *text = what();
    (void)!__real_write(2, text, strlen(text));
    (void)!__real_write(2, ": it hangs\n", 11);
    _exit(3);
}

static bool has_word(const char *words, const char *text)
{
    char word[32];
    for (const char *p = words; *p; p += *p == '|') {
        size_t n = strcspn(p, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        if (strstr(text, word))
            return true;
        p += n;
    }
    return false;
}

/* Below the directory of this test, or one of those above it that had to be made. */
static bool names_path(const ckpt_error *err)
{
    return strstr(err->object, root) || strstr(err->message, root) ||
           (err->object[0] == '/' && strncmp(err->object, root, strlen(err->object)) == 0);
}

/* The errno that was given to it, in the record or, where the failure of a part is told with the whole, in words. */
static bool names_errno(const ckpt_error *err)
{
    int given[2] = {faulty.error > 0 ? faulty.error : EIO, current.mode == ALL_FOR_EVER ? EIO : 0};
    for (int i = 0; i < 2; i++)
        if (given[i] && (err->sys_errno == given[i] || strstr(err->message, strerror(given[i]))))
            return true;
    return false;
}

/* A failure says what the system refused and where. Allocations have no place. That no checkpoint can be read is damage,
 * whatever the reason; so is what a disk that answers EIO does not give back. */
static ckpt_status checked(const char *call, ckpt_status status, const ckpt_error *err)
{
    if (status >= 0)
        return status;
    life.errors++;
    HOLDS(faulty.hits > 0, "%s failed without a cause: %s: %s", call, err->object, err->message);
    if (faulty.struck == F_memory) {
        HOLDS(status == CKPT_E_NO_MEMORY && strstr(err->message, "memory"), "%s: status %d: %s: %s", call, status,
              err->object, err->message);
        return status;
    }
    bool none_is_good = status == CKPT_E_DAMAGED && strstr(call, "resume") && strstr(err->message, "none of");
    none_is_good |= status == CKPT_E_DAMAGED && now->read_back && strstr(err->message, "reads back otherwise") &&
                    strstr(err->message, strerror(EIO));
    none_is_good |= status == CKPT_E_DAMAGED && now->back && strstr(err->message, "no other step is tried");
    HOLDS(names_path(err), "%s names no path: %s: %s", call, err->object, err->message);
    HOLDS(status == CKPT_E_SYSTEM || none_is_good, "%s: status %d: %s: %s", call, status, err->object, err->message);
    HOLDS(names_errno(err), "%s: errno %d: %s: %s", call, err->sys_errno, err->object, err->message);
    HOLDS(current.mode == ALL_FOR_EVER || has_word(faults[faulty.struck].says, err->message),
          "%s does not say '%s': %s: %s", call, faults[faulty.struck].says, err->object, err->message);
    return status;
}

/* The library's call, with its failures on. */
#define DO(call)                                                                                                       \
    (faulty.inside = true, err = (ckpt_error)CKPT_ERROR_INIT, status = (call), faulty.inside = false,                  \
     checked(#call, status, &err))

static void noticed(void *ctx, const ckpt_finding *f)
{
    (void)ctx;
    life.warnings += f->severity != CKPT_SEVERITY_NOTE;
}

static ckpt_run_options options_of(const scenario *sc)
{
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    o.every_steps = 1;
    o.retention.keep_last = 1;
    o.synchronous = !sc->asynchronous;
    o.read_back = sc->read_back;
    o.no_touch_files = true;
    o.notice = noticed;
    o.resume_step = sc->back ? 1 : 0;
    return o;
}

/* ---- the directory that each life finds */

static void copy_tree(const char *from, const char *to)
{
    char a[400], b[400];
    ck_assert_int_eq(mkdir(to, 0777), 0);
    DIR *d = opendir(from);
    for (struct dirent *e; (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        snprintf(b, sizeof b, "%s/%s", to, e->d_name);
        if (e->d_type == DT_DIR) {
            copy_tree(a, b);
            continue;
        }
        size_t n;
        char *data = get_file(a, &n);
        put_file(b, data, n);
        free(data);
    }
    closedir(d);
}

/* Steps 1 and 2 whole, and what a dead writer may leave. */
static void make_template(const scenario *sc)
{
    ckpt_error err = CKPT_ERROR_INIT;
    static world w;
    char path[256];
    const char *template = in_folder("template");
    ckpt_run *run;
    int64_t done;
    remove_tree(template);
    fill_world(&w, 1, 1);
    ckpt_state *s = bind_world(&w);
    OK(ckpt_run_open(template, s, NULL, &run, &err));
    OK(ckpt_run_resume(run, NULL, &done, NULL, &err));
    OK(ckpt_run_save(run, 1, &err));
    OK(ckpt_run_wait(run, &err));
    fill_world(&w, DONE, 2);
    OK(ckpt_run_save(run, DONE, &err));
    OK(ckpt_run_close(run, &err));
    ckpt_state_free(s);
    snprintf(path, sizeof path, "%s/.tmp-step-00000009.0123456789abcdef", template);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    strcat(path, "/model.safetensors");
    put_file(path, "left", 4);
    snprintf(path, sizeof path, "%s/.trash-pruned.step-00000000.0123456789abcdef", template);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    strcat(path, "/checkpoint.json");
    put_file(path, "left", 4);
    snprintf(path, sizeof path, "%s/.latest.tmp-0123456789abcdef", template);
    put_file(path, "left", 4);
    if (sc->half_swapped) {
        char aside[256];
        snprintf(path, sizeof path, "%s/step-%08d", template, DONE);
        snprintf(aside, sizeof aside, "%s/.trash-step-%08d.0123456789abcdef", template, DONE);
        ck_assert_int_eq(rename(path, aside), 0);
    }
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Names of what a writer leaves; a clean directory has none. */
static const char *left_over(void)
{
    static char text[600];
    DIR *d = opendir(run_path);
    text[0] = '\0';
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, ".tmp-", 5) == 0 || strncmp(e->d_name, ".trash-", 7) == 0 || strstr(e->d_name, ".tmp-"))
            snprintf(text + strlen(text), sizeof text - strlen(text), " %s", e->d_name);
    if (d)
        closedir(d);
    return text;
}

/* ---- one life */

static world w;
static ckpt_state *state;

/* Where directories cannot be exchanged, the old one is moved aside first. */
static bool lies_aside(int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, ".trash-step-%08d.", (int)step);
    return strstr(left_over(), name) != NULL;
}

/* The step as it lies on the disk is one of these two (none: 0), bit for bit. */
static void step_holds(int64_t step, unsigned seed, unsigned or_seed)
{
    if (faulty.struck == F_renameat && lies_aside(step))
        return; /* the way back was barred, too; the next run puts it back */
    static world found;
    ckpt_error err = CKPT_ERROR_INIT;
    char path[200];
    memset(&found, 0, sizeof found);
    ckpt_state *s = bind_world(&found);
    snprintf(path, sizeof path, "%s/step-%08d", run_path, (int)step);
    ckpt_status status = ckpt_restore(s, path, NULL, NULL, &err);
    HOLDS(status == CKPT_OK, "step %d is lost: %s: %s", (int)step, err.object, err.message);
    HOLDS(world_is(&found, step, seed) || (or_seed && world_is(&found, step, or_seed)), "step %d is another",
          (int)step);
    ckpt_state_free(s);
}

/* Back at step 1: step 2 is kept, under its other name. */
static void went_back(int64_t done)
{
    static world found;
    ckpt_error err = CKPT_ERROR_INIT;
    char path[200];
    HOLDS(done == 1 && world_is(&w, 1, 1), "went back to step %d", (int)done);
    bool on = faulty.on;
    faulty.on = false;
    ckpt_state *s = bind_world(&found);
    snprintf(path, sizeof path, "%s/aside-step-%08d", run_path, DONE);
    HOLDS(ckpt_restore(s, path, NULL, NULL, &err) == CKPT_OK && world_is(&found, DONE, 2), "step 2 is lost: %s",
          err.message);
    ckpt_state_free(s);
    faulty.on = on;
}

static void resume(ckpt_run *run)
{
    ckpt_error err;
    ckpt_status status;
    ckpt_report *report = ckpt_report_new();
    int64_t done = -7;
    if (DO(ckpt_run_resume(run, NULL, &done, report, &err)) < 0) {
        bool on = faulty.on;
        faulty.on = false; /* the failure is over, and a second try works */
        status = ckpt_run_resume(run, NULL, &done, report, &err);
        HOLDS(status >= 0, "a second resume fails: %s: %s", err.object, err.message);
        faulty.on = on;
    }
    life.resumed = done;
    life.fell_back = ckpt_report_find(report, "fallback", NULL) != NULL;
    if (now->fresh)
        HOLDS(status == CKPT_NOTHING_TO_RESUME && done == 0, "resumed step %d", (int)done);
    else if (now->back)
        went_back(done);
    else if (done == DONE)
        HOLDS(world_is(&w, DONE, 2), "resumed something else than step 2");
    else {
        HOLDS(done == 1 && life.fell_back && world_is(&w, 1, 1), "resumed step %d without a word", (int)done);
        /* What will be better in a moment is no reason to lose steps. */
        int e = faulty.error;
        HOLDS(e > 0 && e != EMFILE && e != ENFILE && e != ENOMEM && e != EINTR, "passed a good checkpoint over");
    }
    ckpt_report_free(report);
}

/* Saves step NEXT; the trainer changes everything as soon as it may. */
static void attempt(ckpt_run *run, unsigned seed)
{
    ckpt_error err;
    ckpt_status status;
    int i = life.attempts++;
    fill_world(&w, NEXT, seed);
    bool ok = (i ? DO(ckpt_run_save(run, NEXT, &err)) : DO(ckpt_run_step(run, NEXT, &err))) >= 0;
    HOLDS(world_is(&w, NEXT, seed), "the save changed the state");
    fill_world(&w, NEXT, 77);
    ok &= DO(ckpt_run_wait(run, &err)) >= 0;
    HOLDS(world_is(&w, NEXT, 77), "the save changed the state");
    life.reported[i] = ok;
    bool on = faulty.on;
    faulty.on = false;
    char path[200];
    snprintf(path, sizeof path, "%s/step-%08d", run_path, NEXT);
    if (ok)
        step_holds(NEXT, seed, 0);
    else if (i && life.reported[0])
        step_holds(NEXT, 30, 31);
    else if (!now->fresh)
        step_holds(now->back ? 1 : DONE, now->back ? 1 : 2, 0);
    faulty.on = on;
}

static void saves_again(ckpt_run *run)
{
    ckpt_error err = CKPT_ERROR_INIT;
    faulty.on = false;
    fill_world(&w, AFTER, 40);
    ckpt_status status = ckpt_run_save(run, AFTER, &err);
    HOLDS(status >= 0, "the next save fails: %s: %s", err.object, err.message);
    status = ckpt_run_wait(run, &err);
    HOLDS(status >= 0, "the next save fails: %s: %s", err.object, err.message);
    step_holds(AFTER, 40, 0);
    faulty.on = true;
}

/* False: the run could not be opened. */
static bool live(bool saves_after)
{
    ckpt_error err;
    ckpt_status status;
    ckpt_run *run = NULL;
    ckpt_run_options o = options_of(now);
    fill_world(&w, 0, 99);
    state = bind_world(&w);
    int fds = descriptors();
    long memory = faulty.live;
    faulty.no_exchange = now->no_exchange;
    play(current);
    faulty.on = true;
    bool open = DO(ckpt_run_open(run_path, state, &o, &run, &err)) >= 0;
    HOLDS(open == (run != NULL), "ckpt_run_open: status %d and a run %p", status, (void *)run);
    if (open) {
        resume(run);
        attempt(run, 30);
        attempt(run, 31);
        if (saves_after)
            saves_again(run);
        DO(ckpt_run_close(run, &err));
    }
    faulty.on = false;
    HOLDS(descriptors() == fds, "%d descriptors, %d before", descriptors(), fds);
    ckpt_state_free(state);
    HOLDS(faulty.live - memory <= 0, "%ld allocations are not freed", faulty.live - memory);
    return open;
}

/* The next process: it finds what was reported, and clears away what is left. */
static void next_life(bool opened, bool saved_after)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run *run;
    int64_t done = -7;
    memset(&w, 0, sizeof w);
    ckpt_state *s = bind_world(&w);
    ckpt_status status = ckpt_run_open(run_path, s, NULL, &run, &err);
    HOLDS(status >= 0, "the next run cannot be opened: %s: %s", err.object, err.message);
    HOLDS(*left_over() == '\0', "the next run leaves%s", left_over());
    status = ckpt_run_resume(run, NULL, &done, NULL, &err);
    HOLDS(status >= 0, "the next run cannot resume: %s: %s", err.object, err.message);
    bool any = life.reported[0] || life.reported[1];
    if (opened && saved_after)
        HOLDS(done == AFTER && world_is(&w, AFTER, 40), "the next run resumes step %d", (int)done);
    else if (done == NEXT)
        HOLDS((life.attempts > 0 && !life.reported[1] && world_is(&w, NEXT, 30)) ||
                  (life.attempts > 1 && world_is(&w, NEXT, 31)),
              "the next run resumes another step 3");
    else if (now->fresh)
        HOLDS(!any && status == CKPT_NOTHING_TO_RESUME, "the next run resumes step %d", (int)done);
    else if (now->back && opened)
        HOLDS(!any && done == 1 && world_is(&w, 1, 1), "the next run resumes step %d", (int)done);
    else
        HOLDS(!any && done == DONE && world_is(&w, DONE, 2), "the next run resumes step %d", (int)done);
    status = ckpt_run_close(run, &err);
    HOLDS(status >= 0, "%s: %s", err.object, err.message);
    ckpt_state_free(s);
}

/* A failure that the library can do without, or go round: no call fails for it. */
static bool must_come_through(int f, int e)
{
    switch (f) {
    case F_read:
    case F_pread:
    case F_pwrite:
    case F_close:
        return e == EINTR || e < 0;
    case F_pwrite_direct:
        return e == EINTR || e == EINVAL || e < 0;
    case F_fallocate:
        return e == EINTR || e == EOPNOTSUPP;
    case F_renameat2:
        return e == EINVAL || e == ENOSYS;
    case F_openat2:
        return e == ENOSYS;
    case F_open_direct:
    case F_pthread_create:
    case F_getrandom:
    case F_madvise:
    case F_mmap:
    case F_gethostname:
    case F_process_vm_readv:
        return true;
    default:
        return false;
    }
}

/* A failure after which something may be amiss: a call says so, or a warning. */
static bool must_be_told(int f, int e)
{
    switch (f) {
    case F_fsync:
    case F_fdatasync:
    case F_mkdir:
    case F_mkdirat:
    case F_linkat:
    case F_open_above:
    case F_readdir:
    case F_pread:
    case F_fdopendir:
    case F_dup:
        return e > 0 && e != EINTR;
    case F_renameat2:
        return e != EINVAL && e != ENOSYS;
    case F_fallocate:
        return e != EINTR && e != EOPNOTSUPP;
    default:
        return false;
    }
}

/* Clearing away is done with these: where they fail, something may stay for the next run. */
static bool clears_away(int f)
{
    switch (f) {
    case F_unlink:
    case F_unlinkat:
    case F_rmdir:
    case F_fchmodat:
    case F_openat:
    case F_dup:
    case F_fdopendir:
    case F_opendir:
    case F_readdir:
    case F_getdents64:
    case F_fstatat:
    case F_fsync:
    case F_renameat:
    case F_renameat2:
    case F_memory:
        return true;
    default:
        return false;
    }
}

static void account(bool opened, const char *left)
{
    int f = faulty.struck, e = faulty.error;
    bool told = life.errors || life.warnings || life.fell_back;
    sums.lives++;
    if (!faulty.hits) {
        HOLDS(!life.errors && life.reported[0] && life.reported[1], "without a failure it failed");
        return;
    }
    sums.struck++;
    sums.failed += life.errors > 0;
    sums.warned += !life.errors && (life.warnings || life.fell_back);
    HOLDS(told || !must_be_told(f, e), "nobody was told");
    if (current.mode != ALL_FOR_EVER)
        HOLDS(!life.errors || !must_come_through(f, e), "it must come through");
    if (current.mode == ONCE && opened)
        HOLDS(*left == '\0' || clears_away(f), "it leaves%s", left);
}

/* True: the failure was met. */
static bool one_life(plan p)
{
    bool saves_after = p.n % 2 == 0;
    memset(&life, 0, sizeof life);
    current = p;
    alarm(60);
    remove_tree(in_folder("runs"));
    if (!now->fresh) {
        ck_assert_int_eq(mkdir(in_folder("runs"), 0777), 0);
        copy_tree(in_folder("template"), run_path);
    }
    bool opened = live(saves_after);
    char left[600];
    strcpy(left, left_over());
    account(opened, left);
    next_life(opened, saves_after);
    alarm(0);
    return faulty.hits > 0;
}

static unsigned long seed;

static void drive(const scenario *sc, bool memory)
{
    world_count[0] = sc->big ? WORLD_BIG : WORLD_SMALL;
    now = sc;
    snprintf(run_path, sizeof run_path, "%s/runs/%s", folder, sc->fresh ? "new/and/deep" : "it");
    strcpy(root, folder);
    if (!sc->fresh)
        make_template(sc);
    signal(SIGALRM, too_long);
    memset(&sums, 0, sizeof sums);
    /* Each call fails in all three ways, or they take turns. */
    const bool few = getenv("CKPT_TEST_FEW") != NULL; /* of those beyond the 20th each second, in turns */
    bool all = is_long() || (sc->asynchronous && !sc->big && !memory && !few);
    for (int pass = 0; pass < (all ? 3 : 1); pass++)
        for (long n = 1; n < 100000; n += few && n > 20 ? 2 : 1) {
            bool met = false;
            lasting mode = (lasting)(all ? (unsigned long)pass : ((unsigned long)n + seed) % 3);
            unsigned turns = is_long() && !memory ? 9 : 1;
            for (unsigned i = 0; i < turns; i++)
                met = one_life((plan){n, mode, memory, (unsigned)(seed * 7 + (unsigned long)n / 3 + i), 0});
            if (!met)
                break;
        }
    printf("# %s, %s: %ld lives, %ld met a failure: %ld ended in an error, %ld in a warning\n", sc->name,
           memory ? "allocations" : "system calls", sums.lives, sums.struck, sums.failed, sums.warned);
    ck_assert_int_eq(faulty.misaligned, 0);
}

static const scenario scenarios[] = {
    {.name = "synchronous"},
    {.name = "asynchronous", .asynchronous = true},
    {.name = "past the page cache, read back", .asynchronous = true, .read_back = true, .big = true},
    {.name = "a new run", .asynchronous = true, .fresh = true},
    {.name = "a half-done swap", .half_swapped = true},
    {.name = "a file system without exchange", .no_exchange = true},
    {.name = "back to a step", .back = true},
    {.name = "back to a step, without exchange", .back = true, .no_exchange = true},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

START_TEST(system_calls_fail)
{
    drive(&scenarios[_i], false);
}
END_TEST

START_TEST(allocations_fail)
{
    const scenario *sc = &scenarios[_i];
    if (is_long() || sc->fresh || (sc->back && !sc->no_exchange) || (sc->asynchronous && !sc->big))
        drive(sc, true);
}
END_TEST

static bool is_faulty(const char *name)
{
    static const char *const memory[] = {"malloc",  "calloc",   "realloc", "aligned_alloc", "strdup",
                                         "strndup", "asprintf", "free",    "syscall",       "closedir"};
    for (int f = 0; f < F_COUNT; f++)
        if (strcmp(faults[f].name, name) == 0)
            return true;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (strcmp(memory[i], name) == 0)
            return true;
    return false;
}

/* Whatever the library calls is made to fail here, or known to do no I/O. */
START_TEST(no_call_is_left_out)
{
    char command[500], line[300], name[200], kind;
    int found = 0;
    const char *nm = getenv("NM"), *dir = getenv("builddir");
    snprintf(command, sizeof command, "%s '%s/.libs/libckpt_core.a'", nm && *nm ? nm : "nm", dir ? dir : ".");
    FILE *p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    while (fgets(line, sizeof line, p))
        if (sscanf(line, " %c %199s", &kind, name) == 2 && kind == 'U' && ++found)
            ck_assert_msg(
                is_faulty(name) || is_harmless(name),
                "%s() is called by the library: let it fail in tests/fault/faulty.h and record what it "
                "changes in tests/fault/recorded.h (and wrap it in tests/fault/Makefile.inc), or if it can do "
                "no harm to a file list it in tests/fault/harmless.h",
                name);
    ck_assert_int_eq(pclose(p), 0);
    ck_assert_int_gt(found, 500);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("I/O faults");
    TCase *t = tcase_create("I/O faults");
    seed = fault_seed();
    tcase_set_timeout(t, 3600);
    tcase_add_checked_fixture(t, make_fault_folder, remove_folder);
    tcase_add_test(t, no_call_is_left_out);
    tcase_add_loop_test(t, system_calls_fail, 0, SCENARIOS);
    tcase_add_loop_test(t, allocations_fail, 0, SCENARIOS);
    suite_add_tcase(s, t);
    return run_suite(s);
}
