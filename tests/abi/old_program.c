/* old_program.c DIRECTORY DATA init|zero - a program of 0.2.0: tests/frozen_headers.sh builds it against the frozen headers
 * (tests/data/v02) and runs it with later libraries. It gives the library each struct that a caller owns, placed so that the
 * struct ends where its page ends and the next page cannot be touched: one byte too many, read or written, is a SIGSEGV.
 * "zero": with struct_size 0 instead of the initializer's. What it asserts is that the last fields of each struct count. */
#define CKPT_EXPERIMENTAL
#include <ckpt/ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool zero;
static ckpt_error err;

static void complain(int line, const char *what)
{
    fprintf(stderr, "old_program: line %d: %s (%s: %s)\n", line, what, err.object, err.message);
    exit(1);
}
#define CHECK(what) ((what) ? (void)0 : complain(__LINE__, #what))
#define OK(call) CHECK((call) == CKPT_OK)

static void *place(const void *as, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED && size < page && mprotect(two + page, page, PROT_NONE) == 0);
    char *at = two + page - size;
    memcpy(at, as, size);
    if (zero)
        memset(at, 0, sizeof(uint32_t));
    return at;
}
#define NEW(type, init) ((type *)place(&(type)init, sizeof(type)))

static int seen;
static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    seen++;
    return 0;
}
static const ckpt_progress progress = {on_progress, NULL};

/* ---- a state, by every kind of descriptor */

static float weights[8], moved[8], exp_avg[4], lr = 0.5f;
static int64_t steps = 3;
static char queue[5] = "abcd";

static ckpt_status measure(void *ctx, uint64_t *size, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    *size = sizeof queue;
    return CKPT_OK;
}
static ckpt_status give(void *ctx, void *to, size_t size, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    memcpy(to, queue, size);
    return CKPT_OK;
}
static ckpt_status take(void *ctx, const void *from, size_t size, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    CHECK(size == sizeof queue);
    memcpy(queue, from, size);
    return CKPT_OK;
}

static ckpt_state *bind(void)
{
    static const int64_t shape[] = {4};
    static const char *const params[] = {"a", "b"};
    static const ckpt_arena_entry entries[] = {{"a", 0, 1, shape}, {"b", 16, 1, shape}};
    static const ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F32, &lr}};
    ckpt_state *s = ckpt_state_new();
    ckpt_arena_desc *arena = NEW(ckpt_arena_desc, CKPT_ARENA_DESC_INIT);
    arena->data = weights;
    arena->nbytes = sizeof weights;
    arena->dtype = CKPT_F32;
    arena->role = CKPT_ROLE_PARAM;
    arena->name = "params";
    OK(ckpt_state_arena(s, arena, entries, 2, &err));
    OK(ckpt_state_rebind(s, "params", moved, &err));
    OK(ckpt_state_rebind(s, "params", weights, &err));
    ckpt_tensor_desc *d = NEW(ckpt_tensor_desc, CKPT_TENSOR_DESC_INIT);
    d->param = "a";
    d->role = CKPT_ROLE_EXP_AVG;
    d->dtype = CKPT_F32;
    d->ndim = 1;
    d->shape = shape;
    d->data = exp_avg;
    OK(ckpt_state_tensor(s, d, &err));
    ckpt_group_desc *g = NEW(ckpt_group_desc, CKPT_GROUP_DESC_INIT);
    g->name = "0";
    g->params = params;
    g->param_count = 2;
    g->hypers = hypers;
    g->hyper_count = 1;
    OK(ckpt_state_group(s, g, &err));
    ckpt_value_hooks *h = NEW(ckpt_value_hooks, CKPT_VALUE_HOOKS_INIT);
    h->measure = measure;
    h->write = give;
    h->take = take;
    OK(ckpt_state_value(s, "queue", h, &err));
    OK(ckpt_state_i64(s, "step", &steps, &err));
    return s;
}

static void fill(float with)
{
    for (int i = 0; i < 8; i++)
        weights[i] = with + (float)i;
    for (int i = 0; i < 4; i++)
        exp_avg[i] = with;
    lr = with;
}

static void save_and_restore(ckpt_state *s, ckpt_state *other)
{
    ckpt_report *report = ckpt_report_new();
    ckpt_save_options *save = NEW(ckpt_save_options, CKPT_SAVE_OPTIONS_INIT);
    save->progress = progress;
    save->report = report;
    fill(1);
    OK(ckpt_save(s, "a.ckpt", save, &err));
    CHECK(seen > 0 && ckpt_report_count_code(report, "moments-incomplete") == 1);
    fill(2);
    memset(queue, 0, sizeof queue);
    ckpt_restore_options *o = NEW(ckpt_restore_options, CKPT_RESTORE_OPTIONS_INIT);
    o->assume_order = "no such order";
    CHECK(ckpt_restore(s, "a.ckpt", o, report, &err) == CKPT_E_ARGUMENT);
    o->assume_order = NULL;
    o->strict_order = true;
    OK(ckpt_restore(s, "a.ckpt", o, report, &err));
    CHECK(weights[7] == 8 && lr == 1 && strcmp(queue, "abcd") == 0);
    const ckpt_device_use *use = ckpt_report_device(report, 0);
    CHECK(use && use->role_count > CKPT_ROLE_OTHER && use->by_role[CKPT_ROLE_PARAM] == 32 &&
          use->by_role[CKPT_ROLE_EXP_AVG] == 16);
    ckpt_state *const both[] = {s, other};
    const ckpt_restore_options *each[] = {o, NEW(ckpt_restore_options, CKPT_RESTORE_OPTIONS_INIT)};
    ckpt_state_free(other); /* it holds the same memory */
    OK(ckpt_restore_many(both, 1, "a.ckpt", each, NULL, &err));
    ckpt_guard_options *g = NEW(ckpt_guard_options, CKPT_GUARD_OPTIONS_INIT);
    const ckpt_device idle = ckpt_cuda(0);
    g->wanted = &idle;
    g->wanted_count = 1;
    OK(ckpt_guard(s, CKPT_OPTIMIZER_PLAIN, g, report, &err));
    CHECK(ckpt_report_count_code(report, "idle-device") == 1);
    ckpt_report_free(report);
}

static void run_some(ckpt_state *s)
{
    ckpt_run *run = NULL;
    ckpt_restore_options *restore = NEW(ckpt_restore_options, CKPT_RESTORE_OPTIONS_INIT);
    ckpt_run_options *o = NEW(ckpt_run_options, CKPT_RUN_OPTIONS_INIT);
    o->every_steps = 1;
    o->synchronous = true;
    o->retention.keep_last = 2;
    o->restore = restore;
    o->prune_first = true;
    restore->map_location = "no such map {";
    CHECK(ckpt_run_open("run", s, o, &run, &err) == CKPT_E_ARGUMENT && !run);
    restore->map_location = NULL;
    int64_t done = 0;
    OK(ckpt_run_open("run", s, o, &run, &err));
    CHECK(ckpt_run_resume(run, NULL, &done, NULL, &err) == CKPT_NOTHING_TO_RESUME);
    for (steps = 1; steps <= 3; steps++)
        OK(ckpt_run_step(run, steps, &err));
    ckpt_run_info *info = NEW(ckpt_run_info, CKPT_RUN_INFO_INIT);
    info->busy = true;
    ckpt_run_get_info(run, info);
    CHECK(info->saved_step == 3 && info->saves == 3 && info->save_seconds > 0 && !info->busy);
    OK(ckpt_run_close(run, &err));
    ckpt_run_list *list = NULL;
    bool gone[2];
    ckpt_retention_entry entries[2];
    const ckpt_retention rule = {1, 0};
    OK(ckpt_run_list_open("run", &list, &err));
    CHECK(ckpt_run_list_count(list) == 2 && !ckpt_run_list_entry(list, 2));
    for (size_t i = 0; i < 2; i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(list, i);
        CHECK(e->step == 3 - (int64_t)i && e->complete && !*e->why);
        entries[i] = (ckpt_retention_entry){e->step, e->complete, e->verified};
    }
    ckpt_retention_plan(&rule, entries, 2, gone);
    CHECK(!gone[0] && gone[1]);
    ckpt_run_list_close(list);
}

static int on_stats(void *ctx, size_t tensor, const ckpt_tensor_stats *stats)
{
    (void)tensor;
    *(uint64_t *)ctx += stats->count;
    return 0;
}

static void look_at(const char *pickled)
{
    static const char *const nothing[] = {"nothing.*"};
    ckpt_reader *a = NULL, *b = NULL, *p = NULL;
    ckpt_reader_options *o = NEW(ckpt_reader_options, CKPT_READER_OPTIONS_INIT);
    o->also_count = 1;
    CHECK(ckpt_reader_open("a.ckpt", o, &a, &err) == CKPT_E_ARGUMENT && !a);
    o->also_count = 0;
    o->leave_large = o->leave_damaged = true;
    OK(ckpt_reader_open("a.ckpt", o, &a, &err));
    ckpt_piece_info *piece = NEW(ckpt_piece_info, CKPT_PIECE_INFO_INIT);
    piece->replica = true;
    CHECK(ckpt_reader_piece_count(a, 0) == 1);
    OK(ckpt_reader_piece(a, 0, 0, piece, &err));
    CHECK(piece->nbytes > 0 && piece->nbytes == ckpt_reader_tensor(a, 0)->nbytes && piece->has_crc && !piece->replica);
    ckpt_verify_options *v = NEW(ckpt_verify_options, CKPT_VERIFY_OPTIONS_INIT);
    ckpt_verify_result *r = NEW(ckpt_verify_result, CKPT_VERIFY_RESULT_INIT);
    seen = 0;
    v->progress = progress;
    OK(ckpt_verify("a.ckpt", v, r, NULL, &err));
    CHECK(seen > 0 && r->ok && r->tensors == 4 && strcmp(r->format, "ckpt") == 0);
    ckpt_migrate_options *m = NEW(ckpt_migrate_options, CKPT_MIGRATE_OPTIONS_INIT);
    m->drop = nothing;
    m->drop_count = 1;
    CHECK(ckpt_migrate("a.ckpt", "b.ckpt", m, NULL, &err) == CKPT_E_ARGUMENT);
    m->allow_unused = true;
    OK(ckpt_migrate("a.ckpt", "b.ckpt", m, NULL, &err));
    OK(ckpt_reader_open("b.ckpt", NULL, &b, &err));

    /* the young parts */
    ckpt_diff_options *d = NEW(ckpt_diff_options, CKPT_DIFF_OPTIONS_INIT);
    ckpt_diff_result *same = NEW(ckpt_diff_result, CKPT_DIFF_RESULT_INIT);
    seen = 0;
    d->keep_same = true;
    d->progress = progress;
    OK(ckpt_diff(a, b, d, same, NULL, &err));
    CHECK(seen > 0 && same->same && same->tensor_count == 4 && same->owned && same->bytes > 0);
    for (size_t i = 0; i < same->tensor_count; i++)
        CHECK(same->tensors[i]->status == CKPT_DIFF_SAME && same->tensors[i]->elements > 0 &&
              same->tensors[i]->max_rel == 0);
    CHECK(same->scalar_count > 1 && same->scalars[1]->status == CKPT_DIFF_SAME && !same->scalars[1]->tensor_b);
    ckpt_diff_result_clear(same);
    CHECK(!same->owned && !same->tensors && same->struct_size == (zero ? 0 : sizeof *same));
    ckpt_doctor_options *ask = NEW(ckpt_doctor_options, CKPT_DOCTOR_OPTIONS_INIT);
    ckpt_doctor_result *answer = NEW(ckpt_doctor_result, CKPT_DOCTOR_RESULT_INIT);
    ask->assume_order = "no such order";
    CHECK(ckpt_doctor(a, ask, answer, NULL, &err) == CKPT_E_ARGUMENT);
    ask->assume_order = NULL;
    OK(ckpt_doctor(a, ask, answer, NULL, &err));
    CHECK(answer->loader == CKPT_LOADER_CKPT && answer->place_count > 1 && answer->places[1]->nbytes > 0 &&
          answer->owned);
    ckpt_doctor_result_clear(answer);
    CHECK(!answer->owned && !answer->places);
    char *text = NULL;
    OK(ckpt_doctor_snippet(a, "c", ask, &text, &err));
    free(text);
    ckpt_stats_options *of = NEW(ckpt_stats_options, CKPT_STATS_OPTIONS_INIT);
    uint64_t values = 0;
    seen = 0;
    of->progress = progress;
    OK(ckpt_stats(a, NULL, 0, of, on_stats, &values, &err));
    CHECK(seen > 0 && values == 8 + 4 + 5);
    ckpt_naming_options *n = NEW(ckpt_naming_options, CKPT_NAMING_OPTIONS_INIT);
    ckpt_naming *naming = NULL;
    n->assume_order = "no such order";
    CHECK(ckpt_naming_new(a, n, &naming, NULL, &err) == CKPT_E_ARGUMENT && !naming);
    n->assume_order = NULL;
    OK(ckpt_naming_new(a, n, &naming, NULL, &err));
    CHECK(ckpt_naming_get(naming, 1)->name.size > 0 && !ckpt_naming_get(naming, 4));
    ckpt_naming_free(naming);
    ckpt_summary *sum = NEW(ckpt_summary, CKPT_SUMMARY_INIT);
    OK(ckpt_summarize(a, sum, &err));
    CHECK(sum->producer && sum->step == 3 && sum->owned);
    ckpt_summary_clear(sum);
    CHECK(!sum->owned && sum->struct_size == (zero ? 0 : sizeof *sum));
    ckpt_scan *scan = NULL;
    ckpt_scan_options *w = NEW(ckpt_scan_options, CKPT_SCAN_OPTIONS_INIT);
    seen = 0;
    w->progress = progress;
    OK(ckpt_scan_open(pickled, w, &scan, NULL, &err));
    CHECK(seen > 0 && ckpt_scan_count(scan) > 1 && ckpt_scan_get(scan, 1)->count > 0);
    ckpt_scan_close(scan);

    /* lists within what the library makes */
    size_t i;
    OK(ckpt_reader_open(pickled, NULL, &p, &err));
    OK(ckpt_reader_find(p, "coo", 3, &i, &err));
    const ckpt_tensor_extra *extra = ckpt_reader_tensor(p, i)->extra;
    CHECK(extra->part_count == 2 && strcmp(extra->parts[1]->name.data, "values") == 0 && extra->parts[1]->extra);
    ckpt_reader_close(p);
    ckpt_reader_close(b);
    ckpt_reader_close(a);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4 && chdir(argv[1]) == 0);
    zero = strcmp(argv[3], "zero") == 0;
    CHECK(ckpt_version_number() >= CKPT_VERSION_NUMBER);
    ckpt_state *s = bind();
    save_and_restore(s, bind());
    look_at(argv[2]);
    run_some(s);
    ckpt_state_free(s);
    puts("every struct was taken at its own size");
    return 0;
}
