/* The power fails at every operation of a run, and the disk then holds what it may hold by several models of file
 * systems (disk.h). In each such state the run is opened and resumed: what had been reported as saved is there bit for
 * bit, and no resume fails or gives anything torn. Two controls show that a loss is seen: the same operations without
 * their syncs, and with each checkpoint published before it is synced.
 *
 * CKPT_FAULT_LONG=1 tries all models with many more chances at each operation; CKPT_FAULT_SEED chooses others. */
#include "disk.h"

enum { KEEP = 2, RANDOM = 2, RANDOM_LONG = 24 };

typedef struct saved {
    int64_t step;
    unsigned seed;
} saved;

/* Steps that are saved twice are replaced. 0: the process ends here, and another goes on. */
static const saved training_plan[] = {{1, 11}, {2, 21}, {3, 31}, {3, 32}, {4, 41},
                                      {0, 0},  {5, 51}, {5, 52}, {6, 61}, {7, 71}};
enum { PLANNED = sizeof training_plan / sizeof *training_plan };

typedef struct scenario {
    const char *name;
    bool asynchronous, no_exchange, big;
} scenario;

static world trained, restored;
static ckpt_state *trained_state, *restored_state;
static char disk_path[80], crash_path[80];
static unsigned long seed;

static void setup(void)
{
    make_fault_folder();
    strcpy(disk_path, in_folder("disk"));
    strcpy(crash_path, in_folder("crash"));
    trained_state = restored_state = NULL;
    seed = fault_seed();
}

static void teardown(void)
{
    ckpt_state_free(trained_state);
    ckpt_state_free(restored_state);
    remove_folder();
}

static const char *run_below(const char *root)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/runs/gpt", root);
    return path;
}

/* ---- what is recorded */

static void told(const saved *list, size_t *from, size_t to)
{
    for (; *from < to; ++*from)
        note_save(OP_TOLD, list[*from].step, list[*from].seed);
}

/* Resumes, and saves these. */
static void train(const scenario *sc, const saved *list, size_t n)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run *run;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    int64_t done;
    size_t reported = 0;
    o.synchronous = !sc->asynchronous;
    o.retention.keep_last = KEEP;
    OK(ckpt_run_open(run_below(disk_path), trained_state, &o, &run, &err));
    OK(ckpt_run_resume(run, NULL, &done, NULL, &err));
    for (size_t i = 0; i < n; i++) {
        fill_world(&trained, list[i].step, list[i].seed);
        note_save(OP_BEGUN, list[i].step, list[i].seed);
        OK(ckpt_run_save(run, list[i].step, &err));
        fill_world(&trained, list[i].step, 99);
        if (sc->asynchronous && i % 2)
            OK(ckpt_run_wait(run, &err));
        if (!sc->asynchronous || i % 2)
            told(list, &reported, i + 1);
    }
    OK(ckpt_run_close(run, &err));
    told(list, &reported, n);
}

static void record_training(recording *r, const scenario *sc)
{
    world_count[0] = sc->big ? WORLD_BIG : WORLD_SMALL;
    ckpt_state_free(trained_state);
    ckpt_state_free(restored_state);
    trained_state = bind_world(&trained);
    restored_state = bind_world(&restored);
    no_exchange = sc->no_exchange;
    remove_tree(disk_path);
    ck_assert_int_eq(mkdir(disk_path, 0777), 0);
    start_recording(r, disk_path);
    record = r;
    for (size_t from = 0, to; from < PLANNED; from = to + 1) {
        for (to = from; to < PLANNED && training_plan[to].step; to++)
            continue;
        train(sc, training_plan + from, to - from);
    }
    record = NULL;
    ck_assert_msg(!r->odd, "the model does not know %s", r->odd);
}

/* ---- what is found after a crash */

typedef struct found {
    int64_t step;
    unsigned seed;
} found;

static bool holds_save(const recording *r, size_t point, int64_t step, found *f)
{
    size_t from = 0;
    for (size_t i = 0; i < point; i++) /* what was reported last of this step, or what was begun after it */
        if (r->ops[i].kind == OP_TOLD && (int64_t)r->ops[i].offset == step)
            for (size_t k = 0; k < i; k++)
                if (r->ops[k].kind == OP_BEGUN && r->ops[k].offset == r->ops[i].offset &&
                    r->ops[k].size == r->ops[i].size)
                    from = k;
    for (size_t i = from; i < point; i++)
        if (r->ops[i].kind == OP_BEGUN && (int64_t)r->ops[i].offset == step &&
            world_is(&restored, step, (unsigned)r->ops[i].size)) {
            *f = (found){step, (unsigned)r->ops[i].size};
            return true;
        }
    return false;
}

/* Steps newer than this one that were begun: retention may have counted them. */
static int begun_after(const recording *r, size_t point, int64_t step)
{
    int64_t last = step;
    int n = 0;
    for (size_t i = 0; i < point; i++)
        if (r->ops[i].kind == OP_BEGUN && (int64_t)r->ops[i].offset > last) {
            last = (int64_t)r->ops[i].offset;
            n++;
        }
    return n;
}

/* "": all is well; else what is wrong. */
static const char *losses(const recording *r, size_t point, found *f)
{
    static char text[1400];
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run *run;
    int64_t done = -1, newest = 0;
    *f = (found){0, 0};
    fill_world(&restored, 0, 99);
    ckpt_status status = ckpt_run_open(run_below(crash_path), restored_state, NULL, &run, &err);
    if (status >= 0) {
        status = ckpt_run_resume(run, NULL, &done, NULL, &err);
        ckpt_run_close(run, NULL);
    }
    if (status < 0) {
        snprintf(text, sizeof text, "it cannot be resumed: %s: %s", err.object, err.message);
        return text;
    }
    for (size_t i = 0; i < point; i++)
        if (r->ops[i].kind == OP_TOLD && (int64_t)r->ops[i].offset > newest)
            newest = (int64_t)r->ops[i].offset;
    snprintf(text, sizeof text, "step %d was reported as saved, and %d is resumed", (int)newest, (int)done);
    if (done < newest || (status == CKPT_NOTHING_TO_RESUME) != (done == 0))
        return text;
    snprintf(text, sizeof text, "step %d is resumed, with other bytes than were saved last", (int)done);
    if (done > 0 && !holds_save(r, point, done, f))
        return text;
    for (int64_t step = 1; step < done; step++) {
        bool reported = false;
        found other;
        char path[240];
        for (size_t i = 0; i < point; i++)
            reported |= r->ops[i].kind == OP_TOLD && (int64_t)r->ops[i].offset == step;
        if (!reported || begun_after(r, point, step) >= KEEP)
            continue;
        snprintf(path, sizeof path, "%s/step-%08d", run_below(crash_path), (int)step);
        if (ckpt_restore(restored_state, path, NULL, NULL, &err) < 0 || !holds_save(r, point, step, &other)) {
            snprintf(text, sizeof text, "step %d, which is to be kept, is lost: %s: %s", (int)step, err.object,
                     err.message);
            return text;
        }
    }
    return "";
}

/* ---- crashes */

static struct {
    unsigned long states, lost;
    char example[1600];
} tally;

static void crash_once(crash c, found *f)
{
    lay_out(c, crash_path);
    const char *lost = losses(c.r, c.point, f);
    tally.states++;
    if (*lost && !tally.lost++)
        snprintf(tally.example, sizeof tally.example,
                 "%s, crash after operation %zu of %zu, %u/%u/%u quarters of the entries, sizes, bytes: %s", c.m->name,
                 c.point, c.r->count, c.entries, c.sizes, c.bytes, lost);
}

/* All of what was not synced, none of it, and some of it. */
static void crash_at(const recording *r, size_t point, unsigned share)
{
    static const unsigned extremes[][3] = {{4, 0, 0}, {0, 0, 0}, {4, 4, 0}, {0, 4, 4}, {4, 4, 4}};
    enum { EXTREMES = sizeof extremes / sizeof *extremes };
    unsigned random = is_long() ? RANDOM_LONG : RANDOM;
    found f;
    for (unsigned i = 0; i < MODELS; i++) {
        if (!is_long() && (point + i) % share)
            continue;
        crash c = {r, &models[i], point, 0, 0, 0, (seed * 1000003 + point) * 0x9e3779b97f4a7c15u + i + 1};
        for (unsigned k = 0; k < EXTREMES + random; k++) {
            if (!is_long() && k < EXTREMES && (point + i + k) % 2)
                continue;
            for (int warm = 0; warm < 3; warm++)
                next_random(&c);
            c.entries = k < EXTREMES ? extremes[k][0] : (unsigned)(next_random(&c) >> 40) % 5;
            c.sizes = k < EXTREMES ? extremes[k][1] : (unsigned)(next_random(&c) >> 40) % 5;
            c.bytes = k < EXTREMES ? extremes[k][2] : (unsigned)(next_random(&c) >> 40) % 5;
            crash_once(c, &f);
        }
    }
}

static void crash_everywhere(const recording *r, unsigned share)
{
    for (size_t point = r->first; point <= r->count; point++)
        crash_at(r, point, share);
}

static void report(const char *name, const recording *r, const char *kind)
{
    printf("# %s: %zu operations, %lu crash states (seed %lu), %lu %s\n", name, r->count - r->first, tally.states, seed,
           tally.lost, kind);
}

static const scenario scenarios[] = {
    {"synchronous", false, false, false},
    {"asynchronous", true, false, false},
    {"a file system without exchange", false, true, false},
    {"large files", true, false, true},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

START_TEST(nothing_reported_is_lost)
{
    const scenario *sc = &scenarios[_i];
    recording r;
    memset(&tally, 0, sizeof tally);
    record_training(&r, sc);
    crash_everywhere(&r, sc->big ? 5 : 2);
    report(sc->name, &r, "lost something");
    ck_assert_msg(tally.lost == 0, "%s: %lu of %lu lose something; the first: %s", sc->name, tally.lost, tally.states,
                  tally.example);
    free_recording(&r);
}
END_TEST

/* The next process meets what a crash left, clears it away and goes on, and the power fails again. */
START_TEST(nor_after_a_second_crash)
{
    recording first, second;
    unsigned long operations = 0;
    memset(&tally, 0, sizeof tally);
    for (int no = 0; no < 2; no++) {
        scenario sc = {"a second crash", false, no, false};
        record_training(&first, &sc);
        for (size_t point = 5 + seed % 7; point < first.count; point += is_long() ? 3 : 31) {
            found f;
            crash c = {&first,
                       &models[point % MODELS],
                       point,
                       (unsigned)(point / 3 % 4) + 1,
                       2,
                       2,
                       (seed * 7919 + point) * 0x9e3779b97f4a7c15u + 1};
            crash_once(c, &f);
            lay_out(c, disk_path);
            start_recording(&second, disk_path);
            adopt(&second);
            record = &second;
            if (f.step) {
                note_save(OP_BEGUN, f.step, f.seed);
                note_save(OP_TOLD, f.step, f.seed);
                second.first = second.count;
            }
            train(&sc, (saved[]){{f.step + 1, 81}, {f.step + 1, 82}}, 2);
            record = NULL;
            crash_everywhere(&second, 5);
            operations += second.count - second.first;
            free_recording(&second);
        }
        free_recording(&first);
    }
    printf("# a second crash: %lu operations, %lu crash states (seed %lu), %lu lost something\n", operations,
           tally.states, seed, tally.lost);
    ck_assert_msg(tally.lost == 0, "%lu of %lu lose something; the first: %s", tally.lost, tally.states, tally.example);
}
END_TEST

/* ---- the controls */

START_TEST(a_loss_is_seen_without_syncs)
{
    recording r;
    memset(&tally, 0, sizeof tally);
    ignore_syncs = true;
    record_training(&r, &scenarios[0]);
    ignore_syncs = false;
    crash_everywhere(&r, 5);
    report("control without syncs", &r, "lost something, as they must");
    ck_assert_msg(tally.lost > tally.states / 10, "only %lu of %lu lose something: the test is blind", tally.lost,
                  tally.states);
    free_recording(&r);
}
END_TEST

/* Moves the syncs of a checkpoint's files, and of its directory, behind the rename that gives it its name. */
static void publish_first(recording *r)
{
    for (size_t i = 0; i < r->count; i++) {
        op published = r->ops[i];
        if ((published.kind != OP_MOVE && published.kind != OP_SWAP) || strncmp(published.name, ".tmp-step-", 10) != 0)
            continue;
        for (size_t k = i; k-- > 0;) {
            op o = r->ops[k];
            bool own = o.kind == OP_SYNC && o.ino == published.ino;
            for (size_t m = 0; m < k && o.kind == OP_SYNC && !own; m++)
                own = r->ops[m].kind == OP_ENTER && r->ops[m].dir == published.ino && r->ops[m].ino == o.ino;
            if (!own)
                continue;
            memmove(&r->ops[k], &r->ops[k + 1], (i - k) * sizeof o); /* it comes to lie right behind the rename */
            r->ops[i] = o;
            i--;
        }
    }
}

START_TEST(a_loss_is_seen_where_publishing_comes_first)
{
    recording r;
    memset(&tally, 0, sizeof tally);
    record_training(&r, &scenarios[0]);
    publish_first(&r);
    crash_everywhere(&r, 2);
    report("control that publishes first", &r, "lost something, as they must");
    ck_assert_msg(tally.lost > 20, "only %lu of %lu lose something: the test is blind", tally.lost, tally.states);
    free_recording(&r);
}
END_TEST

/* With all operations done and nothing lost, the model's disk is the real one: nothing was missed by recording. */
START_TEST(the_model_follows_the_disk)
{
    char command[300];
    for (int i = 0; i < SCENARIOS; i++) {
        recording r;
        record_training(&r, &scenarios[i]);
        ck_assert_uint_gt(r.count, 100);
        for (int m = 0; m < MODELS; m++) {
            crash c = {&r, &models[m], r.count, 4, 4, 4, 1};
            lay_out(c, crash_path);
            snprintf(command, sizeof command, "diff -r '%s' '%s'", disk_path, crash_path);
            ck_assert_msg(system(command) == 0, "%s, %s: the model's disk is another", scenarios[i].name,
                          models[m].name);
        }
        free_recording(&r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("power loss");
    TCase *t = tcase_create("power loss");
    tcase_set_timeout(t, 3600);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_model_follows_the_disk);
    tcase_add_loop_test(t, nothing_reported_is_lost, 0, SCENARIOS);
    tcase_add_test(t, nor_after_a_second_crash);
    tcase_add_test(t, a_loss_is_seen_without_syncs);
    tcase_add_test(t, a_loss_is_seen_where_publishing_comes_first);
    suite_add_tcase(s, t);
    return run_suite(s);
}
