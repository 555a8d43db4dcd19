/* move_drive - two trainers on one run directory, which is moved, replaced and moved back, whose .lock is removed and replaced, while
 * they are killed and started again, at random moments.
 *
 *     move_drive [--rounds N] [--seed N] [--keep]
 *
 * Each trainer has a number of its own, which is in everything that it saves. After a round, in every directory that there is
 *
 *     each checkpoint is whole, and another process resumes from the newest, bit for bit
 *     what a trainer saved lies in one directory, the one that it had opened
 *     by the times at which they got their names, the checkpoints of a trainer stand together: none of another is between them
 *     everything that a trainer reported as saved is there
 *
 * It speaks TAP. README says what was found. */
#include <ckpt/ckpt.h>
#include <ckpt/run.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 2, LIVES = 400, DIRECTORIES = 200, STEPS = 20000, EVENTS = 30 };

typedef struct life {
    pid_t pid;
    int64_t number;
    bool ended;
} life;
typedef struct saved {
    int64_t step, writer;
    struct timespec named;
    int directory;
} saved;

static struct {
    char trainer[4096], work[2048];
    uint64_t rng;
    bool keep;
    life lives[LIVES];
    int life_count, slots[SLOTS], directories;
    saved all[STEPS];
    size_t count;
    long moves, locks, kills, refused, saves, promises, overtaken, wrong;
} d;

static uint64_t random_below(uint64_t n)
{
    uint64_t z = d.rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static const char *in_work(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *in_work(const char *format, ...)
{
    static char paths[8][4096];
    static int next;
    char name[512];
    va_list ap;
    next = (next + 1) % 8;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    snprintf(paths[next], sizeof paths[next], "%s/%s", d.work, name);
    return paths[next];
}

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void wrong(const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    printf("# %s\n", text);
    d.wrong++;
}

static void pause_for(long microseconds)
{
    struct timespec t = {0, microseconds * 1000};
    nanosleep(&t, NULL);
}

/* ---- the trainers */

static pid_t start_trainer(int64_t number, const char *report, const char *const *more)
{
    char writer[40];
    const char *args[12] = {d.trainer, writer, "--report=3", "--keep=0"};
    size_t n = 4;
    snprintf(writer, sizeof writer, "--writer=%" PRId64, number);
    while (*more)
        args[n++] = *more++;
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(report, O_WRONLY | O_CREAT | O_APPEND, 0600), nowhere = open("/dev/null", O_WRONLY);
        if (fd < 0 || nowhere < 0)
            _exit(99);
        dup2(nowhere, 1);
        dup2(nowhere, 2);
        if (fd != 3) {
            dup2(fd, 3);
            close(fd);
        }
        union {
            const char **in;
            char **out;
        } a = {.in = args};
        execv(d.trainer, a.out);
        _exit(99);
    }
    return pid;
}

static void start_life(int slot)
{
    static const char *const kinds[] = {"--sync", "--read-back", "--every=1"};
    if (d.life_count == LIVES)
        return;
    life *l = &d.lives[d.life_count];
    l->number = d.life_count + 1;
    l->ended = false;
    const char *more[] = {kinds[random_below(3)], in_work("run"), NULL};
    l->pid = start_trainer(l->number, in_work("report-%" PRId64, l->number), more);
    d.slots[slot] = d.life_count++;
}

static void end_life(life *l, bool kill_it)
{
    int status = 0;
    if (l->ended)
        return;
    if (kill_it)
        kill(l->pid, SIGKILL);
    if (waitpid(l->pid, &status, kill_it ? 0 : WNOHANG) == l->pid) {
        l->ended = true;
        d.refused += WIFEXITED(status);
        d.kills += WIFSIGNALED(status);
    }
}

/* ---- what is done to them */

static void move_away(bool make_another)
{
    if (d.directories < DIRECTORIES && rename(in_work("run"), in_work("run.%d", d.directories)) == 0) {
        d.directories++;
        d.moves++;
        if (make_another)
            (void)!mkdir(in_work("run"), 0777);
    }
}

static void move_back(void)
{
    if (d.directories && renameat2(AT_FDCWD, in_work("run.%d", (int)random_below((uint64_t)d.directories)), AT_FDCWD,
                                   in_work("run"), RENAME_NOREPLACE) == 0)
        d.moves++;
}

static void replace_lock(const char *text)
{
    int fd = open(in_work("other-lock"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    if (written && rename(in_work("other-lock"), in_work("run/.lock")) == 0)
        d.locks++;
}

static void one_event(void)
{
    switch (random_below(10)) {
    case 0:
        move_away(false);
        break;
    case 1:
        move_away(true);
        break;
    case 2:
    case 3:
        move_back();
        break;
    case 4:
    case 5:
        d.locks += unlink(in_work("run/.lock")) == 0;
        break;
    case 6:
        replace_lock("");
        break;
    case 7:
        replace_lock("pid 1 on host elsewhere\n");
        break;
    case 8: {
        life *l = &d.lives[d.slots[random_below(SLOTS)]];
        end_life(l, true);
        break;
    }
    default:
        break;
    }
}

/* ---- what is there */

static int64_t number_in(const ckpt_value *root, const char *name)
{
    const ckpt_value *v = ckpt_value_get(root, name);
    return v && v->kind == CKPT_V_INT ? v->integer : -1;
}

static void read_directory(int number, const char *path)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    struct stat st;
    if (stat(path, &st) < 0 || ckpt_run_list_open(path, &list, &err) < 0)
        return; /* nothing was saved there */
    for (size_t i = 0; i < ckpt_run_list_count(list) && d.count < STEPS; i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(list, i);
        ckpt_reader *reader = NULL;
        if (!e->complete && e->nbytes > 0)
            wrong("%s is not complete: %s", e->path, e->why);
        if (!e->complete)
            continue;
        if (ckpt_reader_open(e->path, NULL, &reader, &err) < 0 || stat(e->path, &st) < 0)
            wrong("%s: %s", e->path, err.message);
        else {
            saved s = {e->step, number_in(ckpt_reader_root(reader), "writer"), st.st_ctim, number};
            d.all[d.count++] = s;
            d.saves++;
        }
        ckpt_reader_close(reader);
    }
    bool any = ckpt_run_list_count(list) > 0;
    ckpt_run_list_close(list);
    if (!any)
        return;
    const char *more[] = {"--check", path, NULL};
    int status = -1;
    pid_t pid = start_trainer(999999, in_work("check"), more);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        wrong("another process cannot resume from %s: status %d", path, status);
}

static int by_time(const void *a, const void *b)
{
    const saved *x = a, *y = b;
    if (x->directory != y->directory)
        return x->directory - y->directory;
    if (x->named.tv_sec != y->named.tv_sec)
        return x->named.tv_sec < y->named.tv_sec ? -1 : 1;
    if (x->named.tv_nsec != y->named.tv_nsec)
        return x->named.tv_nsec < y->named.tv_nsec ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static void check_writers(void)
{
    bool over[LIVES + 1] = {false};
    int where[LIVES + 1];
    memset(where, -1, sizeof where);
    qsort(d.all, d.count, sizeof *d.all, by_time);
    for (size_t i = 0; i < d.count; i++) {
        const saved *s = &d.all[i];
        if (s->writer < 1 || s->writer > d.life_count) {
            wrong("step %" PRId64 " of nobody", s->step);
            continue;
        }
        if (where[s->writer] >= 0 && where[s->writer] != s->directory)
            wrong("writer %" PRId64 " saved step %" PRId64 " in a second directory", s->writer, s->step);
        where[s->writer] = s->directory;
        if (over[s->writer])
            wrong("writer %" PRId64 " saved step %" PRId64 " after another had", s->writer, s->step);
        if (i && d.all[i - 1].directory == s->directory && d.all[i - 1].writer != s->writer)
            over[d.all[i - 1].writer] = true;
    }
}

static void check_promises(int64_t number)
{
    FILE *f = fopen(in_work("report-%" PRId64, number), "r");
    char line[200];
    int64_t step;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "saved %" SCNd64, &step) != 1)
            continue;
        d.promises++;
        bool own = false, any = false;
        for (size_t i = 0; i < d.count; i++)
            if (d.all[i].step == step) {
                own |= d.all[i].writer == number;
                any = true;
            }
        d.overtaken += any && !own;
        if (!any)
            wrong("writer %" PRId64 " had step %" PRId64 " on disk, and it is nowhere", number, step);
    }
    if (f)
        fclose(f);
}

static void clean(void)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", d.work);
    if (system(command) != 0)
        printf("# cannot remove %s\n", d.work);
}

static void play_round(void)
{
    d.life_count = d.directories = 0;
    d.count = 0;
    for (int i = 0; i < SLOTS; i++)
        start_life(i);
    for (int i = 0; i < EVENTS; i++) {
        pause_for((long)random_below(60000));
        one_event();
        for (int slot = 0; slot < SLOTS; slot++) {
            end_life(&d.lives[d.slots[slot]], false);
            if (d.lives[d.slots[slot]].ended)
                start_life(slot);
        }
    }
    for (int i = 0; i < d.life_count; i++)
        end_life(&d.lives[i], true);
    read_directory(0, in_work("run"));
    for (int i = 0; i < d.directories; i++)
        read_directory(i + 1, in_work("run.%d", i));
    check_writers();
    for (int64_t i = 1; i <= d.life_count; i++)
        check_promises(i);
}

static bool find_trainer(const char *own)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", own);
    char *slash = strrchr(path, '/');
    if (slash)
        slash[1] = '\0';
    else
        strcpy(path, "./");
    size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "kill_trainer");
    return realpath(path, d.trainer) != NULL;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"keep", no_argument, NULL, 'k'},
                                            {NULL, 0, NULL, 0}};
    long rounds = 6;
    int c;
    d.rng = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (c) {
        case 'r':
            rounds = atol(optarg);
            break;
        case 's':
            d.rng = strtoull(optarg, NULL, 10);
            break;
        case 'k':
            d.keep = true;
            break;
        default:
            fprintf(stderr, "usage: move_drive [--rounds N] [--seed N] [--keep]\n");
            return 2;
        }
    if (!find_trainer(argv[0])) {
        printf("Bail out! no kill_trainer beside %s\n", argv[0]);
        return 99;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (long i = 0; i < rounds && d.wrong == 0; i++) {
        snprintf(d.work, sizeof d.work, "%s/ckpt-move.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
        if (!mkdtemp(d.work)) {
            printf("Bail out! %s: %s\n", d.work, strerror(errno));
            return 99;
        }
        play_round();
        if (d.keep || d.wrong)
            printf("# round %ld lies in %s\n", i + 1, d.work);
        else
            clean();
    }
    printf(
        "# %ld moves, %ld locks removed or replaced, %ld kills, %ld trainers that ended by themselves, %ld checkpoints, %ld reported, %ld "
        "saved again by the next\n",
        d.moves, d.locks, d.kills, d.refused, d.saves, d.promises, d.overtaken);
    printf("%s 1 - %ld rounds: one writer in a directory, and nothing is lost\n", d.wrong ? "not ok" : "ok", rounds);
    bool busy = d.moves > 0 && d.locks > 0 && d.saves > 20;
    printf("%s 2 - the directories were moved, the locks replaced, and checkpoints saved\n1..2\n",
           busy ? "ok" : "not ok");
    return d.wrong || !busy;
}
