/* kill_migrate - kills a migration to a directory with SIGKILL, at 20 system calls or at every one, and runs it again: it goes on
 * where it was, what it leaves is the same as without a kill, and nothing else stays.
 *
 *     kill_migrate [--long] [--keep]
 *
 * It speaks TAP. The migration is this program itself, with --child. */
#include <ckpt/ckpt.h>
#include <ckpt/inspect.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "killer.h"

enum { PATH = 4400, KILLS = 20, MOST_STOPS = 20000, FILES = 512 };

static char work[256], self[4096], source[PATH], said[PATH];
static int errors, count, failures;

static void report(bool good, const char *what)
{
    count++;
    failures += !good;
    printf("%sok %d - %s\n", good ? "" : "not ", count, what);
    fflush(stdout);
}

/* ---- the migration */

typedef struct target {
    const char *name, *to, *options;
    bool of_directory; /* its source is the directory */
} target;

static const target targets[] = {{"dcp for four ranks", "dcp", "4", false},
                                 {"universal", "universal", "", false},
                                 {"shards for transformers", "hf", "", false},
                                 {"a run of three ranks", "ckpt-run", "3", false},
                                 {"the same files, converted", "same", "cast", true},
                                 {"a copy of the same files", "same", "", true},
                                 {"dcp for three ranks, converted", "dcp", "3 cast", false}};

static int child(char **argv)
{
    const char *to = argv[2], *src = argv[3], *dst = argv[4], *options = argv[5];
    static const char *const cast[] = {"*=bfloat16"};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = to;
    o.lossy = true;
    o.threads = strstr(options, "thread") ? 3 : 1;
    o.weights_only = strcmp(to, "hf") == 0;
    o.max_shard_size = 64;
    o.target_world = (uint32_t)strtoul(options, NULL, 10);
    o.force = strstr(options, "force") != NULL;
    o.dry_run = strstr(options, "dry") != NULL;
    o.no_resume = strstr(options, "anew") != NULL;
    o.verify = strstr(options, "verify") != NULL;
    if (strstr(options, "cast")) {
        o.cast = cast;
        o.cast_count = 1;
    }
    prctl(KILLER_MARK, KILLER_BEGIN, 0, 0, 0);
    ckpt_status status = ckpt_migrate(src, dst, &o, r, &err);
    prctl(KILLER_MARK, KILLER_END, 0, 0, 0);
    FILE *f = fopen(argv[6], "w");
    for (size_t i = 0; f && i < ckpt_report_count(r); i++)
        fprintf(f, "%s %s: %s\n", ckpt_report_get(r, i)->code, ckpt_report_get(r, i)->tensor,
                ckpt_report_get(r, i)->message);
    if (f && status < 0)
        fprintf(f, "error %s: %s\n", err.object, err.message);
    if (!f || fclose(f) != 0)
        return 3;
    ckpt_report_free(r);
    return status == CKPT_OK ? 0 : status == CKPT_E_EXISTS ? 17 : 2;
}

/* To its end (at -1), or to the at-th stop. */
static int migrate(const target *t, const char *src, const char *dst, const char *more, long at, bool full,
                   killer_result *r)
{
    char options[64];
    snprintf(options, sizeof options, "%s %s", t->options, more);
    char *argv[] = {self,
                    (char *)(uintptr_t) "--child",
                    (char *)(uintptr_t)t->to,
                    (char *)(uintptr_t)src,
                    (char *)(uintptr_t)dst,
                    options,
                    said,
                    NULL};
    unlink(said);
    if (at >= 0)
        killer_trace(argv, errors, at, !full, NULL, r);
    else
        killer_run(argv, errors, r);
    return WIFEXITED(r->status) ? WEXITSTATUS(r->status) : -1;
}

/* Does a line of what it said begin so? */
static bool has_said(const char *code)
{
    char line[2000];
    bool found = false;
    FILE *f = fopen(said, "r");
    while (f && fgets(line, sizeof line, f))
        found |= strncmp(line, code, strlen(code)) == 0 && line[strlen(code)] == ' ';
    if (f)
        fclose(f);
    return found;
}

/* ---- directories */

static int remove_it(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static bool remove_all(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 || nftw(path, remove_it, 16, FTW_DEPTH | FTW_PHYS) == 0;
}

static char *slurp(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    char *data = fd >= 0 && fstat(fd, &st) == 0 ? calloc(1, (size_t)st.st_size + 1) : NULL;
    *n = data && read(fd, data, (size_t)st.st_size) == st.st_size ? (size_t)st.st_size : SIZE_MAX;
    if (fd >= 0)
        close(fd);
    return data;
}

/* The manifests of a run say when it was written, and a number that no two have alike: those lines go, and *n is what stays. */
static void without_own_lines(char *text, size_t *n)
{
    static const char *const own[] = {"{\"ckpt.crc32\":", " \"time\":", " \"save\":"};
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        bool goes = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            goes |= strncmp(line, own[i], strlen(own[i])) == 0;
        if (!goes) {
            memmove(to, line, (size_t)(next - line));
            to += next - line;
        }
    }
    *n = (size_t)(to - text);
}

static const char *compare_a, *compare_b;
static long compared;

static int compare_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    char other[PATH * 2];
    struct stat there;
    size_t n, k;
    snprintf(other, sizeof other, "%s%s", compare_b, path + strlen(compare_a));
    compared++;
    if (lstat(other, &there) != 0 || (st->st_mode & S_IFMT) != (there.st_mode & S_IFMT) || st->st_mode != there.st_mode)
        return 1;
    if (kind != FTW_F)
        return 0;
    char *a = slurp(path, &n), *b = slurp(other, &k);
    if (a && b && n != SIZE_MAX && k != SIZE_MAX && strcmp(path + at->base, "checkpoint.json") == 0) {
        without_own_lines(a, &n);
        without_own_lines(b, &k);
    }
    int differ = !a || !b || n == SIZE_MAX || n != k || memcmp(a, b, n) != 0;
    free(a);
    free(b);
    return differ;
}

/* Byte for byte, with the same modes, and neither has more. */
static bool same_tree(const char *a, const char *b)
{
    compared = 0;
    compare_a = a, compare_b = b;
    if (nftw(a, compare_one, 16, FTW_PHYS) != 0)
        return false;
    long one = compared;
    compared = 0;
    compare_a = b, compare_b = a;
    return nftw(b, compare_one, 16, FTW_PHYS) == 0 && compared == one && one > 1;
}

/* Names in a directory, but for `but`. */
static int names_in(const char *path, const char *but)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, but) != 0;
    if (d)
        closedir(d);
    return d ? n : -1;
}

/* The one name in it that ends so. */
static bool find_name(const char *path, const char *tail, char *name, size_t size)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t k = strlen(e->d_name);
        if (k >= strlen(tail) && strcmp(e->d_name + k - strlen(tail), tail) == 0) {
            n++;
            snprintf(name, size, "%s/%s", path, e->d_name);
        }
    }
    if (d)
        closedir(d);
    return n == 1;
}

/* ---- what was finished by the time of the kill */

typedef struct finished {
    int n;
    struct {
        char name[200];
        ino_t ino;
        struct timespec written;
    } files[FILES];
} finished;

/* By the journal; a torn line is none. */
static void look_at_journal(const char *out, finished *f)
{
    char path[PATH], name[300], line[9000];
    f->n = 0;
    if (!find_name(out, ".journal", path, sizeof path))
        return;
    FILE *j = fopen(path, "r");
    path[strlen(path) - strlen(".journal")] = '\0';
    while (j && fgets(line, sizeof line, j)) {
        struct stat st;
        char file[PATH + 400];
        if (!strchr(line, '\n') || sscanf(line, "%*x file %*u %*x %299s", name) != 1)
            continue;
        snprintf(file, sizeof file, "%s/%s", path, name);
        if (stat(file, &st) != 0 || f->n == FILES)
            continue;
        snprintf(f->files[f->n].name, sizeof f->files[f->n].name, "%.199s", name);
        f->files[f->n].ino = st.st_ino;
        f->files[f->n++].written = st.st_mtim;
    }
    if (j)
        fclose(j);
}

/* None of them was written again. */
static bool are_kept(const finished *f, const char *dst)
{
    for (int i = 0; i < f->n; i++) {
        char file[PATH + 400];
        struct stat st;
        snprintf(file, sizeof file, "%s/%s", dst, f->files[i].name);
        if (stat(file, &st) != 0 || st.st_ino != f->files[i].ino || st.st_mtim.tv_sec != f->files[i].written.tv_sec ||
            st.st_mtim.tv_nsec != f->files[i].written.tv_nsec)
            return false;
    }
    return true;
}

/* ---- kills */

typedef struct place {
    char out[PATH], dst[PATH], whole[PATH];
    const char *src;
} place;

static bool prepare(const target *t, place *p)
{
    static char shards[PATH];
    killer_result r;
    snprintf(p->out, sizeof p->out, "%s/out", work);
    snprintf(p->dst, sizeof p->dst, "%s/out/x", work);
    snprintf(p->whole, sizeof p->whole, "%s/whole/x", work);
    snprintf(shards, sizeof shards, "%s/shards", work);
    p->src = t->of_directory ? shards : source;
    char above[PATH];
    snprintf(above, sizeof above, "%s/whole", work);
    if (!remove_all(p->out) || !remove_all(above) || mkdir(p->out, 0777) != 0 || mkdir(above, 0777) != 0)
        return false;
    return migrate(t, p->src, p->whole, "", -1, false, &r) == 0 && names_in(above, "x") == 0;
}

/* One kill, and the run that goes on. NULL, or what is wrong. *ended: the run was not killed. */
static const char *kill_once(const target *t, const place *p, const char *more, long at, bool full, bool *ended,
                             long *taken)
{
    static finished f;
    killer_result r;
    struct stat st;
    *ended = false;
    if (!remove_all(p->out) || mkdir(p->out, 0777) != 0)
        return strerror(errno);
    int first = migrate(t, p->src, p->dst, more, at, full, &r);
    *ended = !r.killed;
    if (!r.killed)
        return first == 0 ? NULL : "it fails without a kill";
    look_at_journal(p->out, &f);
    bool there = stat(p->dst, &st) == 0;
    if (there && !same_tree(p->whole, p->dst))
        return "half a target has its name";
    int second = migrate(t, p->src, p->dst, more, -1, false, &r);
    if (there ? second != 17 : second != 0)
        return there ? "the target has its name, and the second run does not say so" : "the second run fails";
    if (!same_tree(p->whole, p->dst))
        return "what the second run leaves is not the same as without a kill";
    if (!there && f.n > 0 && !has_said("journal-resumed"))
        return "the second run does not say that it went on";
    if (!there && (has_said("journal-stale") || has_said("journal-rewritten")))
        return "the second run says that it did not go on";
    if (!there && !are_kept(&f, p->dst))
        return "a file that was finished was written again";
    if (names_in(p->out, "x") != 0)
        return "something stays beside the target";
    *taken += there ? 0 : f.n;
    return NULL;
}

static void kill_each(const target *t, const char *more, bool full)
{
    place p;
    killer_result r;
    char line[300];
    long kills = 0, taken = 0, stops = MOST_STOPS;
    if (!prepare(t, &p)) {
        report(false, t->name);
        return;
    }
    remove_all(p.out);
    mkdir(p.out, 0777);
    migrate(t, p.src, p.dst, more, MOST_STOPS, full, &r); /* how many there are */
    stops = r.stops;
    const char *wrong = r.killed || stops < KILLS ? "the number of its system calls cannot be told" : NULL;
    long step = full || stops < KILLS ? 1 : stops / KILLS;
    for (long at = step; !wrong && at <= stops; at += step) {
        bool ended;
        wrong = kill_once(t, &p, more, at, full, &ended, &taken);
        if (wrong)
            printf("# killed at stop %ld of %ld: %s\n", at, stops, wrong);
        if (ended)
            break;
        kills++;
    }
    if (!wrong && (kills < KILLS || taken == 0))
        wrong = "too few kills, or none after a file was finished";
    snprintf(line, sizeof line, "%s%s: %ld kills, %ld finished files taken over%s%s", t->name, more, kills, taken,
             wrong ? ": " : "", wrong ? wrong : "");
    report(!wrong, line);
}

/* ---- after a kill */

/* Kills it with some files finished, of which one is not the last. */
static bool leave_some(const target *t, place *p, finished *f, long *stop)
{
    killer_result r;
    for (long at = *stop ? *stop : 8; at < MOST_STOPS; at += 4) {
        if (!remove_all(p->out) || mkdir(p->out, 0777) != 0)
            return false;
        migrate(t, p->src, p->dst, "", at, false, &r);
        if (!r.killed)
            return false;
        look_at_journal(p->out, f);
        *stop = at;
        if (f->n >= 2)
            return true;
    }
    return false;
}

static bool whole_again(const place *p)
{
    return same_tree(p->whole, p->dst) && names_in(p->out, "x") == 0;
}

static bool flip_a_byte(const char *path)
{
    char byte = 0;
    struct stat st;
    int fd = open(path, O_RDWR);
    bool done = fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &byte, 1, st.st_size / 2) == 1;
    byte = (char)(byte ^ 0x40);
    done = done && pwrite(fd, &byte, 1, st.st_size / 2) == 1;
    if (fd >= 0)
        close(fd);
    return done;
}

static void damage_a_file(const target *t)
{
    place p;
    static finished f;
    killer_result r;
    char temporary[PATH], file[PATH + 300], text[300];
    long stop = 0;
    bool good =
        prepare(t, &p) && leave_some(t, &p, &f, &stop) && find_name(p.out, ".journal", temporary, sizeof temporary);
    temporary[strlen(temporary) - strlen(".journal")] = '\0';
    snprintf(file, sizeof file, "%s/%s", temporary, f.files[0].name);
    good = good && flip_a_byte(file) && migrate(t, p.src, p.dst, "", -1, false, &r) == 0 &&
           has_said("journal-rewritten") && has_said("journal-resumed") && whole_again(&p);
    struct finished other = {.n = 1};
    other.files[0] = f.files[1];
    good = good && are_kept(&other, p.dst);
    other.files[0] = f.files[0];
    good = good && !are_kept(&other, p.dst);
    snprintf(text, sizeof text, "%s: a finished file with another byte is written again, and the others are not",
             t->name);
    report(good, text);

    good = leave_some(t, &p, &f, &stop) && find_name(p.out, ".journal", temporary, sizeof temporary);
    temporary[strlen(temporary) - strlen(".journal")] = '\0';
    snprintf(file, sizeof file, "%s/%s", temporary, f.files[0].name);
    good = good && unlink(file) == 0 && migrate(t, p.src, p.dst, "", -1, false, &r) == 0 &&
           has_said("journal-rewritten") && whole_again(&p);
    snprintf(text, sizeof text, "%s: a finished file that is gone is written again", t->name);
    report(good, text);

    good = leave_some(t, &p, &f, &stop) && find_name(p.out, ".journal", temporary, sizeof temporary);
    int fd = open(temporary, O_WRONLY | O_APPEND);
    good = good && fd >= 0 && write(fd, "1234abcd file 10 0000", 21) == 21;
    close(fd);
    good = good && migrate(t, p.src, p.dst, "", -1, false, &r) == 0 && has_said("journal-resumed") &&
           !has_said("journal-rewritten") && are_kept(&f, p.dst) && whole_again(&p);
    snprintf(text, sizeof text, "%s: a torn record at the end of the journal is passed over", t->name);
    report(good, text);
}

static void change_things(const target *t)
{
    place p;
    static finished f;
    killer_result r;
    char text[300], copy[PATH];
    long stop = 0;
    size_t n;
    if (!prepare(t, &p)) {
        report(false, "set up");
        return;
    }
    /* other options: what is finished would be lost */
    bool good = leave_some(t, &p, &f, &stop) && migrate(t, p.src, p.dst, "cast", -1, false, &r) == 17 &&
                !has_said("journal-stale") && !has_said("journal-resumed") && names_in(p.out, "x") == 2 &&
                migrate(t, p.src, p.dst, "", -1, false, &r) == 0 && has_said("journal-resumed") && whole_again(&p) &&
                are_kept(&f, p.dst);
    snprintf(text, sizeof text, "%s: with other options it stops, and the first ones go on all the same", t->name);
    report(good, text);

    good = leave_some(t, &p, &f, &stop) && migrate(t, p.src, p.dst, "cast anew", -1, false, &r) == 0 &&
           has_said("journal-stale") && !has_said("journal-resumed") && names_in(p.out, "x") == 0;
    snprintf(text, sizeof text, "%s: with other options --no-resume starts anew, says so, and what was left is gone",
             t->name);
    report(good, text);

    good = leave_some(t, &p, &f, &stop) && migrate(t, p.src, p.dst, "anew", -1, false, &r) == 0 &&
           has_said("journal-stale") && !has_said("journal-resumed") && whole_again(&p) && !are_kept(&f, p.dst);
    snprintf(text, sizeof text, "%s: --no-resume starts anew, and what was left is gone", t->name);
    report(good, text);

    good = leave_some(t, &p, &f, &stop) && migrate(t, p.src, p.dst, "dry", -1, false, &r) == 0 &&
           has_said("journal-resumed");
    static finished after;
    look_at_journal(p.out, &after);
    good = good && after.n == f.n && names_in(p.out, "x") == 2 &&
           migrate(t, p.src, p.dst, "dry cast", -1, false, &r) == 0 && has_said("journal-other") &&
           names_in(p.out, "x") == 2;
    good = good && migrate(t, p.src, p.dst, "verify", -1, false, &r) == 0 && has_said("journal-resumed") &&
           whole_again(&p) && are_kept(&f, p.dst);
    snprintf(text, sizeof text, "%s: a dry run says what a run would do, and changes nothing; --verify goes on too",
             t->name);
    report(good, text);

    /* the source is another file, with the same bytes; then the same file again, touched */
    snprintf(copy, sizeof copy, "%s/copy.pt", work);
    char *data = slurp(source, &n);
    int fd = open(copy, O_RDWR | O_CREAT | O_TRUNC, 0666);
    good = data && fd >= 0 && write(fd, data, n) == (ssize_t)n && close(fd) == 0;
    p.src = copy;
    good = good && leave_some(t, &p, &f, &stop) && migrate(t, source, p.dst, "", -1, false, &r) == 0 &&
           has_said("journal-stale") && whole_again(&p);
    good = good && leave_some(t, &p, &f, &stop) && utimensat(AT_FDCWD, copy, NULL, 0) == 0 &&
           migrate(t, copy, p.dst, "", -1, false, &r) == 0 && has_said("journal-stale") &&
           !has_said("journal-resumed") && whole_again(&p);
    snprintf(text, sizeof text, "%s: another source, or the same one written to, is started anew", t->name);
    report(good, text);
    free(data);
}

/* ---- two at a time */

static void two_at_a_time(const target *t)
{
    place p;
    static finished f;
    killer_result r;
    char journal[PATH], text[300];
    long stop = 0;
    bool good = prepare(t, &p) && leave_some(t, &p, &f, &stop) && find_name(p.out, ".journal", journal, sizeof journal);
    /* Whoever holds the lock lives: here this process. */
    int fd = open(journal, O_RDWR);
    good = good && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && migrate(t, p.src, p.dst, "", -1, false, &r) == 0 &&
           has_said("journal-busy") && !has_said("journal-resumed") && same_tree(p.whole, p.dst) &&
           !are_kept(&f, p.dst);
    good = good && names_in(p.out, "x") == 2; /* the other's */
    close(fd);
    snprintf(text, sizeof text, "%s: what a living run has is left alone, and a second run is independent", t->name);
    report(good, text);

    bool all = true;
    int won = 0, rounds = 12;
    for (int i = 0; all && i < rounds; i++) {
        all = i % 2 ? leave_some(t, &p, &f, &stop) : remove_all(p.out) && mkdir(p.out, 0777) == 0;
        pid_t pids[3];
        for (int k = 0; k < 3; k++)
            if ((pids[k] = fork()) == 0) {
                char file[PATH + 16];
                snprintf(file, sizeof file, "%s.%d", said, k);
                execl(self, self, "--child", t->to, p.src, p.dst, t->options, file, (char *)NULL);
                _exit(127);
            }
        for (int k = 0, status; k < 3; k++) {
            all = waitpid(pids[k], &status, 0) == pids[k] && WIFEXITED(status) &&
                  (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 17) && all;
            won += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        all = all && same_tree(p.whole, p.dst);
        int left = names_in(p.out, "x");
        if (left)
            printf("# round %d: %d names stay beside the target\n", i, left);
        all = all && left == 0;
    }
    snprintf(text, sizeof text, "%s: three at a time, in %d rounds: each time one of them, whole (%d)", t->name, rounds,
             won);
    report(all && won == rounds, text);
}

/* What may not be looked into, or is not ours, stays. */
static void leave_alone(const target *t)
{
    place p;
    killer_result r;
    char path[PATH + 100];
    bool good = prepare(t, &p);
    static const char *const names[] = {".tmp-x.0123456789abcdef", ".tmp-xy.0123456789abcdef",
                                        ".tmp-x.0123456789abcdef.more"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", p.out, names[i]);
        good = good && mkdir(path, 0777) == 0;
    }
    snprintf(path, sizeof path, "%s/.tmp-x.0123456789abcdee.journal", p.out);
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    good = good && fd >= 0 && write(fd, "some text\n", 10) == 10;
    close(fd);
    good = good && migrate(t, p.src, p.dst, "", -1, false, &r) == 0 && same_tree(p.whole, p.dst) &&
           names_in(p.out, "x") == 4;
    report(good, "directories without a journal, and what is no journal, are left alone");
}

int main(int argc, char **argv)
{
    bool full = false, keep = false;
    char why[200];
    if (argc == 7 && strcmp(argv[1], "--child") == 0)
        return child(argv);
    for (int i = 1; i < argc; i++) {
        full |= strcmp(argv[i], "--long") == 0;
        keep |= strcmp(argv[i], "--keep") == 0;
        if (strcmp(argv[i], "--mark-only") == 0) {
            prctl(KILLER_MARK, KILLER_BEGIN, 0, 0, 0);
            return getppid() < 0;
        }
    }
    const char *tmp = getenv("TMPDIR"), *srcdir = getenv("srcdir");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    snprintf(work, sizeof work, "%.200s/ckpt-kill-migrate.XXXXXX", tmp ? tmp : "/tmp");
    if (n <= 0 || !mkdtemp(work) || (errors = memfd_create("errors", 0)) < 0)
        return 99;
    snprintf(source, sizeof source, "%s/tests/data/cli/fused-step-cpu.pt", srcdir ? srcdir : ".");
    snprintf(said, sizeof said, "%s/said", work);
    killer_result r;
    char shards[PATH];
    snprintf(shards, sizeof shards, "%s/shards", work);
    if (migrate(&targets[2], source, shards, "", -1, false, &r) != 0)
        return 99;
    if (!killer_can_trace(why, sizeof why))
        printf("ok %d - kills at system calls # SKIP %s\n", ++count, why);
    else {
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
            kill_each(&targets[i], "", full);
        kill_each(&targets[0], " verify", full);
        kill_each(&targets[1], " thread", full);
        damage_a_file(&targets[0]);
        damage_a_file(&targets[4]);
        change_things(&targets[0]);
        two_at_a_time(&targets[2]);
    }
    leave_alone(&targets[1]);
    printf("1..%d\n", count);
    if (!keep)
        remove_all(work);
    return failures != 0;
}
