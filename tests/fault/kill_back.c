/* kill_back - kills a trainer that goes back to an earlier step (resume_step) at every system call of that: nothing is lost,
 * whatever name it has then, and the same call does the rest.
 *
 *     kill_back [--long]
 *
 * It speaks TAP. Without --long only calls that change something on the disk are counted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kill_oracle.h"
#include "killer.h"

enum { LAST = 6, BACK = 3, MOST_STOPS = 4000 };

static char work[4096], base[4096 + 16], run[4096 + 16], trainer[4096], report_fd[16];
static int report, errors;

/* Runs the trainer, to its end or to the at-th stop. */
static bool start(const char *const *args, long at, bool full, killer_result *r, promises *made)
{
    char *argv[12] = {trainer, (char *)(uintptr_t) "--report", report_fd};
    int n = 3;
    for (; *args; args++)
        argv[n++] = (char *)(uintptr_t)*args;
    argv[n] = run;
    if (ftruncate(errors, 0) < 0)
        return false;
    if (at >= 0)
        killer_trace(argv, errors, at, !full, NULL, r);
    else
        killer_run(argv, errors, r);
    read_promises(report, made);
    return true;
}

/* One process makes steps 1 to LAST, and keeps them all. */
static bool prepare(void)
{
    static const char *const args[] = {"--sync", "--steps=6", "--keep=9", NULL};
    killer_result r;
    promises made;
    return start(args, -1, false, &r, &made) && r.status == 0 && made.newest == LAST && rename(run, base) == 0;
}

static bool is_kept(int step)
{
    char path[5000];
    struct stat st;
    snprintf(path, sizeof path, "%s/aside-step-%08d/checkpoint.json", run, step);
    return stat(path, &st) == 0;
}

/* After the kill: each step has the one name or the other, and the newest go first. "" or what is wrong. */
static const char *judge(const listing *l)
{
    bool older_is_kept = false;
    for (int step = 1; step <= LAST; step++) {
        bool named = listing_has(l, step), kept = is_kept(step);
        if (named == kept)
            return named ? "a step is there twice" : "a step is lost";
        if (step <= BACK && kept)
            return "an earlier step was moved";
        if (older_is_kept && named)
            return "an older one was moved before a newer one";
        older_is_kept |= kept;
    }
    return "";
}

/* The same call again, without a kill. */
static const char *finish(void)
{
    static const char *const again[] = {"--check", "--back=3", NULL}, *const after[] = {"--check", NULL};
    static char text[200];
    killer_result r;
    promises made;
    listing l;
    if (!start(again, -1, false, &r, &made) || r.status != 0 || made.found != BACK) {
        snprintf(text, sizeof text, "going back again ends with status %#x and finds %" PRId64, (unsigned)r.status,
                 made.found);
        return text;
    }
    if (!list_run(run, &l) || l.count != BACK || l.latest != BACK || l.leftovers)
        return "what is there in the end is not steps 1 to 3, with the hint naming 3";
    for (int step = BACK + 1; step <= LAST; step++)
        if (!is_kept(step))
            return "a later step is not kept";
    if (!start(after, -1, false, &r, &made) || r.status != 0 || made.found != BACK)
        return "the next start, without resume_step, does not find step 3";
    return "";
}

static bool each_stop(bool full, long *kills)
{
    static const char *const args[] = {"--mark-open", "--back=3", "--steps=0", NULL};
    for (long at = 1; at < MOST_STOPS; at++) {
        killer_result r;
        promises made;
        listing l;
        if (!remove_run(run) || !link_run(base, run) || !start(args, at, full, &r, &made) || !list_run(run, &l)) {
            printf("# stop %ld: %s\n", at, strerror(errno));
            return false;
        }
        const char *what = judge(&l);
        if (!*what && !r.killed && r.status != 0)
            what = "it fails without being killed";
        if (!*what)
            what = finish();
        if (*what) {
            printf("# killed at stop %ld, %s %s: %s\n", at, r.at_end ? "after" : "before", killer_call_name(r.call),
                   what);
            return false;
        }
        if (!r.killed)
            return *kills > 0;
        ++*kills;
    }
    return false;
}

static bool set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(work, sizeof work, "%s/ckpt-back.XXXXXX", tmp ? tmp : "/tmp");
    ssize_t n = readlink("/proc/self/exe", trainer, sizeof trainer - 32);
    char *slash = n > 0 ? strrchr(trainer, '/') : NULL;
    if (!slash || !mkdtemp(work))
        return false;
    strcpy(slash, "/kill_trainer");
    snprintf(run, sizeof run, "%s/run", work);
    snprintf(base, sizeof base, "%s/base", work);
    report = memfd_create("report", 0);
    errors = memfd_create("errors", 0);
    snprintf(report_fd, sizeof report_fd, "%d", report);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return report >= 0 && errors >= 0 && fcntl(report, F_SETFL, O_APPEND) == 0 && fcntl(errors, F_SETFL, O_APPEND) == 0;
}

int main(int argc, char **argv)
{
    char why[200];
    const char *sanitizers = getenv("CKPT_SANITIZERS");
    bool full = argc > 1 && strcmp(argv[1], "--long") == 0, ok = true;
    long kills = 0;
    if (argc > 1 && strcmp(argv[1], "--mark-only") == 0) /* killer_can_trace starts this very program */
        return prctl(KILLER_MARK, KILLER_BEGIN) == 0 || getppid() == 0;
    if (sanitizers && strcmp(sanitizers, "yes") == 0)
        printf("ok 1 - going back # SKIP the leak checker of the sanitizers cannot be traced\n1..1\n");
    else if (!killer_can_trace(why, sizeof why))
        printf("ok 1 - going back # SKIP %s\n1..1\n", why);
    else {
        ok = set_up() && prepare() && each_stop(full, &kills);
        printf("%sok 1 - going back to a step: %ld kills, nothing lost, and the same call does the rest\n1..1\n",
               ok ? "" : "not ", kills);
        if (ok)
            (void)remove_run(work);
        else
            printf("# the directories are left in %s\n", work);
    }
    return ok ? 0 : 1;
}
