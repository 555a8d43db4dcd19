/* kill_drive - kills a trainer with SIGKILL at every system call of a save, of a prune and of a recovery, and at random
 * times; after each kill another process resumes, and what it finds is compared with what was promised.
 *
 *     kill_drive [--long] [--seed N] [--random N] [--only TEXT [--at N]] [--keep]
 *
 * It speaks TAP. Without --long it takes a sample, for make check: system calls that change something, and not all of
 * those. --only runs the parts whose titles hold TEXT, --at one stop of them. --keep leaves the directories. README tells
 * what is checked, and what was found. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kill_oracle.h"
#include "killer.h"

enum { SAMPLE = 12, RECOVERY_SAMPLE = 2, ARGS = 16, TEMPLATES = 40, MOST_FAILURES = 5, KEEP_LAST = 2, KEEP_EVERY = 25 };

typedef struct part {
    const char *title;
    const char *args[6]; /* of the trainer */
    bool fresh;          /* each run begins without a directory */
    bool control;        /* in-place writing: it must lose something */
    rule keep;
} part;

#define KEEP .keep = {KEEP_LAST, 0, false}
static const part traced_parts[] = {
    {"two saves and prunes, synchronous", {"--sync", "--steps=2"}, KEEP},
    {"two saves and prunes, asynchronous", {"--steps=2"}, KEEP},
    {"two saves, read back, and prunes, asynchronous", {"--read-back", "--steps=2"}, .keep = {KEEP_LAST, 0, true}},
    {"a save over one of the same step, synchronous", {"--sync", "--again", "--steps=0"}, KEEP},
    {"a save over one of the same step, asynchronous", {"--again", "--steps=0"}, KEEP},
    {"a new run and its first save, synchronous", {"--mark-open", "--sync", "--steps=1"}, .fresh = true, KEEP},
    {"a new run and its first save, asynchronous", {"--mark-open", "--steps=1"}, .fresh = true, KEEP},
};
static const part recovery_part = {"recovery", {"--mark-open", "--steps=0"}, .keep = {ORACLE_STEPS, 0, false}};
static const part control_part = {
    "in-place writing", {"--control", "--steps=2"}, .control = true, .keep = {1, 0, false}};

static struct {
    bool full, keep;
    uint64_t seed, rng;
    long random_kills, only_at;
    const char *only;
    char trainer[4096], work[4096], run[4096 + 16], report_fd[16];
    int report, errors;
    int64_t floor; /* the newest step that was found or promised: it may not be lost */
    int tests, failed;
    long kills, checks, lost, wrong; /* of this part */
    killer_tally killed_at;
    struct {
        char path[4096 + 32];
        listing holds;
    } templates[TEMPLATES];
    int template_count;
} d = {.seed = 1, .random_kills = 40};

static uint64_t random_below(uint64_t n)
{
    uint64_t z = d.rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- TAP */
static void say_test(bool ok, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    printf("%sok %d - ", ok ? "" : "not ", ++d.tests);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
    d.failed += !ok;
}

static void say_errors(void)
{
    char text[2048];
    ssize_t n = pread(d.errors, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        printf("#   %s\n", line);
}

static void say_listing(const char *when, const listing *l)
{
    printf("#   %s: steps", when);
    for (int i = 0; i < l->count && i < 12; i++)
        printf(" %" PRId64, l->steps[i]);
    printf("; latest %" PRId64 "; leftovers: %s\n", l->latest, l->shape[0] ? l->shape : "none");
}

static bool is_wanted(const char *title)
{
    return !d.only || strstr(title, d.only) != NULL;
}

/* ---- the trainer's command line */
typedef struct command {
    char *argv[ARGS];
    int n;
} command;

static void append(command *c, const char *arg)
{
    if (c->n < ARGS - 1)
        c->argv[c->n++] = (char *)(uintptr_t)arg;
    c->argv[c->n] = NULL;
}

static command trainer(const char *const *args, const char *more)
{
    command c = {.n = 0};
    append(&c, d.trainer);
    append(&c, "--report");
    append(&c, d.report_fd);
    for (int i = 0; args && i < 6 && args[i]; i++)
        append(&c, args[i]);
    if (more)
        append(&c, more);
    append(&c, d.run);
    if (ftruncate(d.errors, 0) < 0)
        perror("the errors");
    return c;
}

/* ---- one kill and what comes after */
typedef struct cycle {
    listing before, after, resumed;
    promises promised, found;
    killer_result run, check;
    char what[320]; /* "": all is well */
} cycle;

static void wrong(cycle *c, const char *format, ...)
{
    va_list ap;
    if (c->what[0])
        return;
    va_start(ap, format);
    vsnprintf(c->what, sizeof c->what, format, ap);
    va_end(ap);
}

/* Another process opens the directory, resumes, and compares every bit. */
static void check(cycle *c, const part *p)
{
    command k = trainer(NULL, p->control ? "--control" : NULL);
    k.argv[k.n - 1] = "--check";
    append(&k, d.run);
    int64_t newest = listing_newest(&c->after);
    newest = c->after.aside > newest ? c->after.aside : newest;
    killer_run(k.argv, d.errors, &c->check);
    read_promises(d.report, &c->found);
    d.checks++;
    if (!list_run(d.run, &c->resumed))
        wrong(c, "the directory cannot be read");
    if (c->found.found < d.floor) {
        d.lost++;
        wrong(c, "step %" PRId64 " is lost: what is found is %" PRId64, d.floor, c->found.found);
    }
    if (c->check.status != 0)
        wrong(c, c->check.hung ? "the resume hangs" : "the resume fails (status %#x)", (unsigned)c->check.status);
    if (c->found.found != newest)
        wrong(c, "%" PRId64 " was published, but %" PRId64 " is found", newest, c->found.found);
    if (c->resumed.leftovers)
        wrong(c, "something is left after the resume: %s", c->resumed.shape);
    if (!p->control)
        for (int i = 0; i < c->after.count; i++)
            if (!listing_has(&c->resumed, c->after.steps[i]))
                wrong(c, "the resume removed step %" PRId64, c->after.steps[i]);
    d.floor = c->found.found;
}

/* After the kill. */
static void judge(cycle *c, const part *p)
{
    read_promises(d.report, &c->promised);
    d.kills += c->run.killed;
    if (c->run.killed && c->run.call >= 0 && c->run.call < KILLER_CALLS)
        d.killed_at.n[c->run.call][c->run.at_end]++;
    if (!c->run.started)
        wrong(c, "the trainer was not started: %s", c->run.why);
    else if (c->run.hung)
        wrong(c, "the trainer hangs");
    else if (!c->run.killed && c->run.status != 0)
        wrong(c, "the trainer ended with status %#x before it was killed", (unsigned)c->run.status);
    if (!list_run(d.run, &c->after))
        wrong(c, "the directory cannot be read");
    if (c->promised.newest > d.floor)
        d.floor = c->promised.newest;
    wrong(c, "%s", judge_directory(&c->before, &c->promised, &c->after, &p->keep));
}

static bool verdict(const cycle *c, const part *p, long at)
{
    if (!c->what[0])
        return true;
    d.wrong++;
    if (p->control || d.wrong > MOST_FAILURES)
        return p->control;
    printf("# %s, killed at stop %ld, %s %s: %s\n", p->title, at, c->run.at_end ? "after" : "before",
           killer_call_name(c->run.call), c->what);
    printf("#   promised: %" PRId64 ", found: %" PRId64 "\n", c->promised.newest, c->found.found);
    say_listing("before", &c->before);
    say_listing("after the kill", &c->after);
    say_listing("after the resume", &c->resumed);
    say_errors();
    return false;
}

/* Kinds of leftovers that real kills made: the recovery is killed over each of them. */
static void harvest(const listing *l)
{
    if (l->leftovers == 0 || d.template_count == TEMPLATES)
        return;
    for (int i = 0; i < d.template_count; i++)
        if (strcmp(d.templates[i].holds.shape, l->shape) == 0)
            return;
    snprintf(d.templates[d.template_count].path, sizeof d.templates->path, "%s/template-%d", d.work, d.template_count);
    d.templates[d.template_count].holds = *l;
    if (link_run(d.run, d.templates[d.template_count].path))
        d.template_count++;
}

static void begin_part(void)
{
    d.kills = d.checks = d.lost = d.wrong = 0;
    memset(&d.killed_at, 0, sizeof d.killed_at);
    d.floor = -1;
    remove_run(d.run);
}

/* A few checkpoints to begin with, more than are kept, so that the next save prunes. */
static bool prepare(const part *p)
{
    static const char *const args[] = {"--sync", "--steps=5", "--keep=4", NULL};
    static const char *const control[] = {"--control", "--steps=5", NULL};
    killer_result r;
    promises made;
    command c = trainer(p->control ? control : args, NULL);
    remove_run(d.run);
    killer_run(c.argv, d.errors, &r);
    read_promises(d.report, &made);
    d.floor = made.newest;
    if (r.status == 0 && made.newest == 5)
        return true;
    printf("# the trainer cannot begin: status %#x, step %" PRId64 "\n", (unsigned)r.status, made.newest);
    say_errors();
    return false;
}

/* Those of the part's beginning, again. The in-place writer would write into the copy that is kept. */
static bool begin_again(const part *p)
{
    char base[sizeof d.work + 16];
    struct stat st;
    snprintf(base, sizeof base, "%s/base", d.work);
    if (p->control)
        return d.floor >= 0 || prepare(p);
    if (stat(base, &st) < 0 && (!prepare(p) || rename(d.run, base) < 0))
        return false;
    d.floor = 5;
    return remove_run(d.run) && link_run(base, d.run);
}

/* ---- at every system call */
static bool traced_cycle(const part *p, long at, killer_tally *seen, killer_result *result)
{
    static cycle c;
    memset(&c, 0, sizeof c);
    if (!list_run(d.run, &c.before))
        wrong(&c, "the directory cannot be read");
    command k = trainer(p->args, NULL);
    killer_trace(k.argv, d.errors, at, !d.full, seen, &c.run);
    judge(&c, p);
    if (!p->control)
        harvest(&c.after);
    check(&c, p);
    *result = c.run;
    return verdict(&c, p, at);
}

/* All calls that a whole run makes must have been a place to die, before and after. */
static bool is_covered(const killer_tally *seen)
{
    bool covered = true;
    for (long call = 0; call < KILLER_CALLS; call++)
        for (int end = 0; end < 2; end++)
            if (seen->n[call][end] && !d.killed_at.n[call][end]) {
                printf("# never killed %s %s\n", end ? "after" : "before", killer_call_name(call));
                covered = false;
            }
    return covered;
}

static void say_places(void)
{
    printf("# killed at (before, after):");
    for (long call = 0; call < KILLER_CALLS; call++)
        if (d.killed_at.n[call][0] || d.killed_at.n[call][1])
            printf(" %s %ld %ld,", killer_call_name(call), d.killed_at.n[call][0], d.killed_at.n[call][1]);
    printf("\n");
}

/* In a sample, where a checkpoint takes its name is never left out. */
static bool is_chosen(long at, long first, long stride, const killer_tally *seen)
{
    return (at - first) % stride == 0 || (seen && at < KILLER_STOPS && seen->order[at] == SYS_renameat2);
}

/* Kills at each stop, or at a sample of them. `seen` is a run without a kill. */
static bool each_stop(const part *p, long stops, long sample, bool (*reset)(const part *), const killer_tally *seen,
                      long *places)
{
    killer_result r = {.killed = true};
    /* Odd, so that before and after take turns. */
    long stride = d.full || stops <= sample ? 1 : (stops + sample - 1) / sample | 1;
    long first = 1 + (long)random_below((uint64_t)stride);
    for (long at = 1; (r.killed || at <= stops) && at <= 2 * stops && (p->control || d.wrong <= MOST_FAILURES); at++) {
        if (d.only_at ? at != d.only_at : !is_chosen(at, first, stride, seen))
            continue;
        if (!reset(p))
            return false;
        traced_cycle(p, at, NULL, &r);
        *places += r.killed;
    }
    return d.wrong == 0;
}

static bool empty(const part *p)
{
    (void)p;
    d.floor = -1;
    return remove_run(d.run);
}

static void traced_part(const part *p)
{
    static killer_tally seen;
    killer_result r;
    long places = 0;
    double t = seconds();
    if (!is_wanted(p->title))
        return;
    begin_part();
    memset(&seen, 0, sizeof seen);
    bool (*reset)(const part *) = p->fresh ? empty : begin_again;
    bool ok = reset(p) && traced_cycle(p, 0, &seen, &r) && r.stops > 0; /* without a kill: how many stops there are */
    long stops = ok ? r.stops : 0;
    ok = ok && each_stop(p, stops, SAMPLE, reset, &seen, &places);
    say_places();
    if (ok && d.full && !d.only_at && !p->control && strstr(p->title, " synchronous"))
        ok = is_covered(&seen);
    if (p->control)
        say_test(ok || d.lost, "%s: %ld kills, %ld of %ld stops, %ld times the newest checkpoint was lost", p->title,
                 d.kills, places, stops, d.lost);
    else
        say_test(ok, "%s: %ld kills over %ld stops, %ld lost, %ld wrong (%.0f s)", p->title, d.kills, stops, d.lost,
                 d.wrong, seconds() - t);
    if (p->control)
        say_test(d.lost > 0, "the drive sees it when checkpoints are lost (%ld of %ld)", d.lost, d.kills);
}

/* ---- recovery */
static int template_now;

static bool restore_template(const part *p)
{
    if (!remove_run(d.run) || !link_run(d.templates[template_now].path, d.run)) {
        printf("# cannot copy %s: %s\n", d.templates[template_now].path, strerror(errno));
        return false;
    }
    const listing *l = &d.templates[template_now].holds;
    d.floor = l->aside > listing_newest(l) ? l->aside : listing_newest(l);
    /* Now and then the recovery has been killed before. */
    if (!d.only_at && random_below(4) == 0) {
        killer_result r;
        promises ignored;
        command k = trainer(p->args, NULL);
        killer_trace(k.argv, d.errors, 1 + (long)random_below(d.full ? 200 : 20), !d.full, NULL, &r);
        read_promises(d.report, &ignored);
        d.kills += r.killed;
    }
    return true;
}

static void move(const char *from, const char *to)
{
    char a[5000], b[5000];
    snprintf(a, sizeof a, "%s/%s", d.run, from);
    snprintf(b, sizeof b, "%s/%s", d.run, to);
    if (rename(a, b) < 0)
        printf("# cannot rename %s: %s\n", a, strerror(errno));
}

/* What a file system without RENAME_EXCHANGE and RENAME_NOREPLACE leaves: step 5 moved aside and the new one not there
 * yet, and a name that was claimed with mkdir. Here such calls never happen, so it is made by hand. */
static void make_two_step_leftovers(void)
{
    static const char *const args[] = {"--sync", "--steps=5", "--keep=3", NULL};
    killer_result r;
    promises made;
    listing l;
    char path[5000];
    command c = trainer(args, NULL);
    begin_part();
    killer_run(c.argv, d.errors, &r);
    read_promises(d.report, &made);
    move("step-00000003", ".trash-pruned.0123456789abcdef");
    snprintf(path, sizeof path, "%s/.trash-pruned.0123456789abcdef/checkpoint.json", d.run);
    unlink(path);
    move("step-00000005", ".trash-step-00000005.0123456789abcdef");
    snprintf(path, sizeof path, "%s/.tmp-step-00000005.fedcba9876543210", d.run);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/.latest.tmp-0123456789abcdef", d.run);
    close(open(path, O_WRONLY | O_CREAT, 0666));
    snprintf(path, sizeof path, "%s/step-00000006", d.run);
    mkdir(path, 0777);
    if (!list_run(d.run, &l) || l.aside != 5 || l.count != 1 || l.leftovers != 4 || r.status != 0) {
        say_listing("the leftovers made by hand", &l);
        say_errors();
        say_test(false, "leftovers made by hand");
    }
    harvest(&l);
}

static void recovery(void)
{
    killer_result r;
    long places = 0, stops = 0;
    double t = seconds();
    bool ok = true;
    if (!is_wanted(recovery_part.title))
        return;
    make_two_step_leftovers();
    begin_part();
    for (template_now = 0; ok && template_now < d.template_count; template_now++) {
        ok = restore_template(&recovery_part) && traced_cycle(&recovery_part, 0, NULL, &r) && r.stops > 0;
        stops += r.stops;
        ok = ok && each_stop(&recovery_part, r.stops, RECOVERY_SAMPLE, restore_template, NULL, &places);
        printf("# recovery of %s\n", d.templates[template_now].holds.shape);
    }
    say_places();
    say_test(ok, "recovery from %d kinds of leftovers: %ld kills over %ld stops, %ld lost, %ld wrong (%.0f s)",
             d.template_count, d.kills, stops, d.lost, d.wrong, seconds() - t);
}

/* ---- at random times */
static bool random_kill(const part *p, long longest)
{
    static cycle c;
    static const char *const modes[] = {"--sync", "--every=1", "--every=2", "--every=3"};
    const char *args[6] = {p->control ? "--control" : "--keep-every=25", NULL};
    memset(&c, 0, sizeof c);
    if (!p->control)
        args[1] = modes[random_below(4)];
    if (!list_run(d.run, &c.before))
        wrong(&c, "the directory cannot be read");
    command k = trainer(args, NULL);
    long delay = (long)random_below((uint64_t)longest);
    killer_timed(k.argv, d.errors, delay, &c.run);
    judge(&c, p);
    if (p->control || c.what[0] || random_below(4) != 0) /* else the next one goes on from there */
        check(&c, p);
    bool ok = verdict(&c, p, delay);
    return ok && (!p->control || !c.what[0] || prepare(p));
}

static void random_part(bool control, long kills)
{
    static const part library = {"random times", .keep = {KEEP_LAST, KEEP_EVERY, false}};
    static const part in_place = {"in-place writing at random times", .control = true, .keep = {1, 0, false}};
    const part *p = control ? &in_place : &library;
    if (!is_wanted(p->title))
        return;
    begin_part();
    d.rng = d.seed;
    double t = seconds();
    bool ok = prepare(p);
    long longest = (long)((seconds() - t) * 1.5e6) + 1000; /* three saves, and then some */
    t = seconds();
    /* Few kills may all miss what the control does; many do not. */
    for (long i = 0; ok && (i < kills || (control && d.lost == 0 && i < kills + 500)); i++)
        ok = random_kill(p, longest);
    if (control)
        say_test(d.lost > 0, "%s: %ld kills with seed %" PRIu64 ", %ld times the newest checkpoint was lost", p->title,
                 d.kills, d.seed, d.lost);
    else
        say_test(ok && d.wrong == 0, "%s: %ld kills within %ld ms with seed %" PRIu64 ", %ld lost, %ld wrong (%.0f s)",
                 p->title, d.kills, longest / 1000, d.seed, d.lost, d.wrong, seconds() - t);
}

/* ---- */
static bool set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(d.work, sizeof d.work, "%s/ckpt-kill.XXXXXX", tmp ? tmp : "/tmp");
    ssize_t n = readlink("/proc/self/exe", d.trainer, sizeof d.trainer - 32);
    char *slash = n > 0 ? strrchr(d.trainer, '/') : NULL;
    if (!slash || !mkdtemp(d.work))
        return false;
    strcpy(slash, "/kill_trainer");
    snprintf(d.run, sizeof d.run, "%s/run", d.work);
    d.report = memfd_create("report", 0);
    d.errors = memfd_create("errors", 0);
    if (d.report < 0 || d.errors < 0 || fcntl(d.report, F_SETFL, O_APPEND) < 0 ||
        fcntl(d.errors, F_SETFL, O_APPEND) < 0)
        return false;
    snprintf(d.report_fd, sizeof d.report_fd, "%d", d.report);
    d.rng = d.seed;
    setvbuf(stdout, NULL, _IOLBF, 0);
    return true;
}

static void all_traced(void)
{
    char why[200];
    const char *sanitizers = getenv("CKPT_SANITIZERS");
    if (sanitizers && strcmp(sanitizers, "yes") == 0)
        printf("ok %d - kills at system calls # SKIP the leak checker of the sanitizers cannot be traced\n", ++d.tests);
    else if (!killer_can_trace(why, sizeof why))
        printf("ok %d - kills at system calls # SKIP %s\n", ++d.tests, why);
    else {
        for (size_t i = 0; i < sizeof traced_parts / sizeof *traced_parts; i++)
            traced_part(&traced_parts[i]);
        recovery();
        traced_part(&control_part);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"long", no_argument, NULL, 'l'},         {"seed", required_argument, NULL, 's'},
        {"random", required_argument, NULL, 'r'}, {"only", required_argument, NULL, 'o'},
        {"at", required_argument, NULL, 'a'},     {"keep", no_argument, NULL, 'k'},
        {"mark-only", no_argument, NULL, 'm'},    {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (c) {
        case 'l':
            d.full = true;
            d.random_kills = 1000;
            break;
        case 's':
            d.seed = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            d.random_kills = atol(optarg);
            break;
        case 'o':
            d.only = optarg;
            break;
        case 'a':
            d.only_at = atol(optarg);
            break;
        case 'k':
            d.keep = true;
            break;
        case 'm':
            return prctl(KILLER_MARK, KILLER_BEGIN) == 0 || getppid() == 0;
        default:
            return 2;
        }
    if (!set_up()) {
        perror("kill_drive");
        return 99;
    }
    all_traced();
    random_part(false, d.random_kills);
    random_part(true, d.random_kills / 3 + 1);
    printf("1..%d\n", d.tests);
    if (d.keep || d.failed)
        printf("# the directories are left in %s\n", d.work);
    else if (!remove_run(d.work))
        printf("# cannot remove %s\n", d.work);
    return d.failed ? 1 : 0;
}
