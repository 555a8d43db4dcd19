/* plans.c - what a plan costs (engine/plan.h), and what it spares a reader of many small tensors (engine/pull.h).
 *
 *     plans DIR ROUNDS
 *     plans growth ROUNDS      a thousand pieces to a million: seconds of a plan and all its copies, by lines for bench/growth.py
 *
 * The plans: a million pieces on a million, and what is as large. Each case is a child of its own, so that none of them has
 * what another one left in the heap. It makes the two indexes, then the plan, asks for every copy by ranges of 8 MiB as a
 * reader does, and sorts as many items of 32 bytes (qsort) as the source has pieces or tensors. "beyond the indexes" is what
 * its resident memory was at most, from before the plan to after the last copy, less what it was before the plan: freed
 * memory of the indexes' making has gone back to the system then, and the bonds are a part of the plan.
 *
 * The reads: a million tensors of 64 bytes side by side in a file below DIR, in the page cache, to memory, in the file's
 * order and in another one: a pread each, whose places lie in an array; a pread for each copy that a plan gives; that plan
 * pulled in ranges of 8 MiB; one pread of all of them and a memcpy each.
 *
 * All of it is interleaved: a round runs each once. The first round of the reads is not counted. */
#include "engine/pull.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "codec/crc32.h"

enum { RANGE = 8 << 20, MOST_ROUNDS = 100, ITEM = 32, BUDGET_MB = 250 };

__attribute__((noreturn)) static void die(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "plans: %s: %s %s\n", what, err ? err->object : "", err ? err->message : "");
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *room(size_t count, size_t size)
{
    void *p = calloc(count, size);
    if (!p)
        die("memory", NULL);
    return p;
}

/* A number of a file of /proc/self behind `key`; NAN: there is none. */
static double proc_number(const char *path, const char *key)
{
    char line[256];
    double value = NAN;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtod(line + strlen(key), NULL);
    if (f)
        fclose(f);
    return value;
}

/* Resident memory, in MB; then the most that it was since. */
static double resident(void)
{
    ckpt__heap_trim();
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool reset = f && fputs("5", f) >= 0;
    reset = f && fclose(f) == 0 && reset;
    return reset ? proc_number("/proc/self/status", "VmRSS:") * 1024 / 1e6 : NAN;
}
static double resident_most(void)
{
    return proc_number("/proc/self/status", "VmHWM:") * 1024 / 1e6;
}

/* ---- figures */

typedef struct figures {
    double lowest, median, highest;
} figures;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static figures figures_of(const double *values, size_t count)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_value);
    return (figures){sorted[0], sorted[count / 2], sorted[count - 1]};
}

/* ---- the plans */

typedef struct plan_case {
    const char *name;
    uint32_t n;
    int64_t shape[3], from[3], to[3]; /* of each tensor, and of the boxes that the two sides are cut into */
    size_t tensors;
    bool shuffled; /* the target's tensors, or the boxes of its one, lie in another order than the source's */
    double budget; /* seconds for the plan and all copies; 0: none is set */
} plan_case;

static const plan_case plan_cases[] = {
    {"1-D, cut alike", 1, {3000000}, {3}, {3}, 1, false, 3},
    {"1-D, cut otherwise", 1, {6000000}, {6}, {5}, 1, false, 3},
    {"2-D, cut alike", 2, {3000, 3000}, {3, 3}, {3, 3}, 1, false, 3},
    {"2-D, cut otherwise", 2, {5000, 5000}, {5, 5}, {4, 6}, 1, false, 3},
    {"2-D, cut otherwise, in another order", 2, {5000, 5000}, {5, 5}, {4, 6}, 1, true, 0},
    {"3-D, cut alike", 3, {300, 300, 300}, {3, 3, 3}, {3, 3, 3}, 1, false, 8},
    {"3-D, cut otherwise", 3, {400, 400, 400}, {4, 4, 4}, {3, 5, 4}, 1, false, 8},
    {"1,000 tensors, 1,024 slabs on 32", 2, {1024, 1024}, {1, 1024}, {1024, 32}, 1000, false, 0},
    {"1,000,000 whole tensors", 1, {16}, {16}, {16}, 1000000, false, 0},
    {"1,000,000 whole tensors, in another order", 1, {16}, {16}, {16}, 1000000, true, 0},
};
enum { PLAN_CASES = sizeof plan_cases / sizeof *plan_cases };

/* What a child tells of one run. */
typedef struct sample {
    double plan, copies, sort; /* seconds */
    double mb;                 /* beyond the indexes; NAN: the system does not say */
    uint64_t count;            /* copies */
    uint64_t from, to;         /* pieces, or whole tensors */
} sample;

static uint32_t *order_of(size_t count, bool shuffled)
{
    uint64_t x = 88172645463325252u;
    uint32_t *order = room(count, sizeof *order);
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count; shuffled && i-- > 1;) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t k = (size_t)(x % (i + 1));
        uint32_t kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    return order;
}

/* Boxes of `step` of a tensor, in C order; .at is the bytes of one. Returns how many. */
static size_t cut(const plan_case *c, const int64_t *step, ckpt__piece *pieces, int64_t *boxes)
{
    int64_t lo[3] = {0};
    size_t count = 0;
    for (uint32_t i = 0; i < c->n; count++) {
        int64_t *box = boxes + count * 2 * c->n;
        uint64_t bytes = 4;
        for (i = 0; i < c->n; i++) {
            box[i] = lo[i];
            box[c->n + i] = c->shape[i] - lo[i] < step[i] ? c->shape[i] - lo[i] : step[i];
            bytes *= (uint64_t)box[c->n + i];
        }
        pieces[count] = (ckpt__piece){.box = box, .at = bytes};
        uint32_t left = c->n; /* dimensions that may go on */
        while (left > 0 && (lo[left - 1] += step[left - 1]) >= c->shape[left - 1])
            lo[--left] = 0;
        i = left ? 0 : c->n;
    }
    return count;
}

static ckpt__index *side_of(const plan_case *c, const int64_t *step, bool shuffled)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__index *x = ckpt__index_new(0);
    uint64_t bytes = 4, at = 0;
    size_t most = 1;
    for (uint32_t i = 0; i < c->n; i++) {
        bytes *= (uint64_t)c->shape[i];
        most *= (size_t)((c->shape[i] + step[i] - 1) / step[i]);
    }
    ckpt__piece *pieces = room(most, sizeof *pieces);
    int64_t *boxes = room(most, 2 * c->n * sizeof *boxes);
    ckpt__storage *s = x ? ckpt__index_add_storage(x) : NULL;
    if (!s)
        die("memory", NULL);
    s->extent.size = s->extent.length = bytes * c->tensors;
    s->name = ckpt__s("storage");
    size_t count = cut(c, step, pieces, boxes);
    uint32_t *of_box = order_of(count, shuffled), *of_tensor = order_of(c->tensors, shuffled);
    for (size_t i = 0; i < count; i++) { /* one behind the other */
        uint64_t size = pieces[of_box[i]].at;
        pieces[of_box[i]].at = at;
        at += size;
    }
    at = 0;
    for (size_t t = 0; t < c->tensors; t++) {
        for (size_t i = 0; i < count; i++)
            pieces[i].at += of_tensor[t] * bytes - at;
        at = of_tensor[t] * bytes;
        ckpt__tensor *tensor = ckpt__index_add_tensor(x);
        if (!tensor)
            die("memory", NULL);
        tensor->info.name = ckpt__s("weight");
        tensor->info.dtype = CKPT_F32;
        tensor->info.ndim = c->n;
        if (ckpt__index_set_pieces(x, t, c->shape, pieces, count, &err) < 0)
            die("index", &err);
    }
    free(of_box);
    free(of_tensor);
    free(pieces);
    free(boxes);
    return x;
}

static int by_key(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double sort_items(size_t count)
{
    uint64_t *items = room(count, ITEM);
    for (size_t i = 0; i < count * (ITEM / 8); i++)
        items[i] = i * 0x9e3779b97f4a7c15u;
    double start = now();
    qsort(items, count, ITEM, by_key);
    double took = now() - start;
    free(items);
    return took;
}

typedef struct seen {
    uint64_t copies, elements;
} seen;

static ckpt_status see(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    (void)err;
    seen *s = ctx;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < c->box.n; i++)
        elements *= c->box.size[i];
    s->copies++;
    s->elements += elements;
    return CKPT_OK;
}

static ckpt__plan *plan_of(const ckpt__index *from, const ckpt__index *to, const ckpt__bond *bonds, size_t count,
                           ckpt__op *op)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__op_want plain = {.from = CKPT_F32, .to = CKPT_F32};
    ckpt__plan *plan;
    if (ckpt__op_make(&plain, "plans", op, &err) < 0)
        die("op", &err);
    ckpt__plan_want want = {
        .from = from, .to = to, .bonds = bonds, .bond_count = count, .ops = op, .op_count = 1, .whole = true};
    if (ckpt__plan_new(&want, &plan, &err) < 0)
        die("plan", &err);
    return plan;
}

static sample run_case(const plan_case *c)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__index *from = side_of(c, c->from, false), *to = side_of(c, c->to, c->shuffled);
    uint64_t size = to->storages[0].extent.size;
    seen all = {0};
    ckpt__op op;
    double before = resident(), start = now();
    ckpt__bond *bonds = room(c->tensors, sizeof *bonds);
    for (size_t i = 0; i < c->tensors; i++)
        bonds[i] = (ckpt__bond){.to = (uint32_t)i, .from = (uint32_t)i};
    ckpt__plan *plan = plan_of(from, to, bonds, c->tensors, &op);
    double made = now();
    for (uint64_t at = 0; at < size; at += RANGE)
        if (ckpt__plan_target(plan, 0, at, at + RANGE < size ? at + RANGE : size, see, &all, &err) < 0)
            die("copies", &err);
    double end = now();
    sample s = {.plan = made - start, .copies = end - made, .mb = resident_most() - before, .count = all.copies};
    s.from = from->piece_count ? from->piece_count : from->tensor_count;
    s.to = to->piece_count ? to->piece_count : to->tensor_count;
    s.sort = sort_items((size_t)s.from);
    if (all.elements * 4 != size)
        die("the copies are not all of the target", NULL);
    ckpt__plan_free(plan);
    free(bonds);
    ckpt__index_free(from);
    ckpt__index_free(to);
    return s;
}

static sample run_child(const plan_case *c)
{
    int ends[2], status;
    sample s;
    fflush(stdout);
    if (pipe(ends) != 0)
        die("pipe", NULL);
    pid_t child = fork();
    if (child == 0) {
        s = run_case(c);
        _exit(write(ends[1], &s, sizeof s) == sizeof s ? 0 : 1);
    }
    close(ends[1]);
    bool told = child > 0 && read(ends[0], &s, sizeof s) == sizeof s;
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0 || !told)
        die(c->name, NULL);
    return s;
}

static void print_case(const plan_case *c, const sample *samples, size_t rounds)
{
    double plan[MOST_ROUNDS], copies[MOST_ROUNDS], both[MOST_ROUNDS], ratio[MOST_ROUNDS], mb[MOST_ROUNDS];
    for (size_t r = 0; r < rounds; r++) {
        plan[r] = samples[r].plan;
        copies[r] = samples[r].copies;
        both[r] = plan[r] + copies[r];
        ratio[r] = both[r] / samples[r].sort;
        mb[r] = samples[r].mb;
    }
    figures all = figures_of(both, rounds), most = figures_of(mb, rounds);
    printf("  %s: %llu on %llu\n", c->name, (unsigned long long)samples->from, (unsigned long long)samples->to);
    printf("      plan %.2f s, %llu copies %.2f s; both %.2f s (%.2f to %.2f), %.2f x qsort",
           figures_of(plan, rounds).median, (unsigned long long)samples->count, figures_of(copies, rounds).median,
           all.median, all.lowest, all.highest, figures_of(ratio, rounds).median);
    if (c->budget > 0)
        printf("; budget %.0f s: %s", c->budget, all.median <= c->budget ? "reached" : "MISSED");
    printf("\n      beyond the indexes ");
    if (isnan(most.median))
        printf("not measured: no /proc/self/clear_refs\n");
    else
        printf("%.0f MB; budget %d MB: %s\n", most.median, BUDGET_MB, most.median <= BUDGET_MB ? "reached" : "MISSED");
}

static void measure_plans(size_t rounds)
{
    static sample samples[PLAN_CASES][MOST_ROUNDS];
    double sort[MOST_ROUNDS];
    for (size_t r = 0; r < rounds; r++)
        for (size_t c = 0; c < PLAN_CASES; c++)
            samples[c][r] = run_child(&plan_cases[c]);
    for (size_t r = 0; r < rounds; r++)
        sort[r] = samples[0][r].sort;
    printf("plans, %zu rounds, medians (lowest to highest); a qsort of %llu items of %d bytes: %.2f s\n", rounds,
           (unsigned long long)samples[0][0].from, ITEM, figures_of(sort, rounds).median);
    for (size_t c = 0; c < PLAN_CASES; c++)
        print_case(&plan_cases[c], samples[c], rounds);
}

/* ---- the reads */

enum { TENSORS = 1000000, BYTES = 64, HEADER = 4096 };
static const size_t payload = (size_t)TENSORS * BYTES;

typedef struct reads {
    const char *path;
    int fd;
    ckpt__source *source;
    ckpt__index *from, *to;
    ckpt__bond *bonds;
    uint32_t *place; /* of each tensor of the file: number in the target */
    ckpt__op op;
    ckpt__plan *plan;
    unsigned char *stored, *memory, *buffer; /* as in the file; the target; what one pread reads */
} reads;

static void write_file(reads *r)
{
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < payload; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(r->stored + i, &x, sizeof x);
    }
    FILE *f = fopen(r->path, "w");
    if (!f || fseek(f, HEADER, SEEK_SET) != 0 || fwrite(r->stored, 1, payload, f) != payload || fclose(f) != 0)
        die(r->path, NULL);
}

/* A million tensors with a storage each, as most formats have them, or in one. */
static ckpt__index *index_of(const reads *r, bool each)
{
    static const int64_t shape[1] = {BYTES / 4};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__index *x = ckpt__index_new(0);
    for (size_t i = 0; x && i < TENSORS; i++) {
        ckpt__storage *s = each || i == 0 ? ckpt__index_add_storage(x) : x->storages;
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        if (!s || !t)
            die("memory", NULL);
        s->name = t->info.name = ckpt__s("weight");
        s->extent.size = s->extent.length = each ? BYTES : payload;
        s->extent.offset = each ? HEADER + i * BYTES : 0;
        if (each) {
            s->extent.has_crc = true;
            s->extent.crc = ckpt__crc32(0, r->stored + i * BYTES, BYTES);
        }
        t->info.dtype = CKPT_F32;
        t->info.ndim = 1;
        if (ckpt__index_set_view(x, i, each ? i : 0, shape, NULL, each ? 0 : (int64_t)i * shape[0], &err) < 0)
            die("index", &err);
    }
    if (!x)
        die("memory", NULL);
    return x;
}

static void read_each(reads *r)
{
    for (size_t i = 0; i < TENSORS; i++)
        if (pread(r->fd, r->memory + (size_t)r->place[i] * BYTES, BYTES, (off_t)(HEADER + i * BYTES)) != BYTES)
            die(r->path, NULL);
}

static ckpt_status read_copy(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    const reads *r = ctx;
    return ckpt__source_read(r->source, 0, r->from->storages[c->from].extent.offset + c->from_at, r->memory + c->to_at,
                             c->box.n ? (size_t)c->box.size[0] * 4 : 4, err);
}

static void read_each_copy(reads *r)
{
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t at = 0; at < payload; at += RANGE)
        if (ckpt__plan_target(r->plan, 0, at, at + RANGE < payload ? at + RANGE : payload, read_copy, r, &err) < 0)
            die("copies", &err);
}

static void read_at_once(reads *r)
{
    for (size_t at = 0; at < payload;) {
        ssize_t n = pread(r->fd, r->buffer + at, payload - at, (off_t)(HEADER + at));
        if (n <= 0)
            die(r->path, NULL);
        at += (size_t)n;
    }
    for (size_t i = 0; i < TENSORS; i++)
        memcpy(r->memory + (size_t)r->place[i] * BYTES, r->buffer + i * BYTES, BYTES);
}

static void pull(reads *r, bool check)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__pull *p;
    if (ckpt__pull_new(r->plan, r->source, check, 0, &p, &err) < 0)
        die("pull", &err);
    for (size_t at = 0; at < payload; at += RANGE) {
        size_t end = at + RANGE < payload ? at + RANGE : payload;
        if (ckpt__pull_bytes(p, 0, at, end, r->memory + at, NULL, &err) < 0)
            die("pull", &err);
    }
    ckpt__pull_free(p);
}
static void pull_unchecked(reads *r)
{
    pull(r, false);
}
static void pull_checked(reads *r)
{
    pull(r, true);
}

static const struct {
    const char *name;
    void (*read)(reads *);
} readers[] = {
    {"a pread each", read_each},
    {"a pread for each of the copies", read_each_copy},
    {"pulled in ranges of 8 MiB", pull_unchecked},
    {"the same, every CRC-32 compared", pull_checked},
    {"one pread, and a memcpy each", read_at_once},
};
enum { READERS = sizeof readers / sizeof *readers };

static double run_reader(reads *r, size_t reader, double *calls)
{
    memset(r->memory, 0, payload);
    double once = proc_number("/proc/self/io", "syscr:"), before = proc_number("/proc/self/io", "syscr:");
    double start = now();
    readers[reader].read(r);
    double took = now() - start;
    *calls = proc_number("/proc/self/io", "syscr:") - before - (before - once); /* less those of asking */
    for (size_t i = 0; i < TENSORS; i++)
        if (memcmp(r->memory + (size_t)r->place[i] * BYTES, r->stored + i * BYTES, BYTES) != 0)
            die("not what the file has", NULL);
    return took;
}

static void measure_order(reads *r, bool shuffled, size_t rounds)
{
    double seconds[READERS][MOST_ROUNDS], plans[MOST_ROUNDS], calls[READERS];
    r->place = order_of(TENSORS, shuffled);
    for (uint32_t i = 0; i < TENSORS; i++)
        r->bonds[i] = (ckpt__bond){.to = r->place[i], .from = i};
    for (size_t i = 0; i <= rounds; i++) {
        size_t at = i ? i - 1 : 0;
        double start = now();
        r->plan = plan_of(r->from, r->to, r->bonds, TENSORS, &r->op);
        plans[at] = now() - start;
        for (size_t k = 0; k < READERS; k++)
            seconds[k][at] = run_reader(r, k, &calls[k]);
        ckpt__plan_free(r->plan);
    }
    printf("  in %s (its plan: %.2f s)\n", shuffled ? "another order" : "the file's order",
           figures_of(plans, rounds).median);
    for (size_t k = 0; k < READERS; k++) {
        figures f = figures_of(seconds[k], rounds);
        double ratio[MOST_ROUNDS];
        for (size_t i = 0; i < rounds; i++)
            ratio[i] = seconds[k][i] / seconds[0][i];
        printf("      %-32s %8.1f ms  (%.1f to %.1f)  %5.2f x", readers[k].name, f.median * 1e3, f.lowest * 1e3,
               f.highest * 1e3, figures_of(ratio, rounds).median);
        if (isnan(calls[k]))
            printf("   reads not counted: no /proc/self/io\n");
        else
            printf("  %8.0f reads\n", calls[k]);
    }
    free(r->place);
}

static void measure_reads(const char *folder, size_t rounds)
{
    ckpt_error err = CKPT_ERROR_INIT;
    char path[4096];
    snprintf(path, sizeof path, "%s/bench.small", folder);
    reads r = {.path = path};
    r.stored = room(1, payload);
    r.memory = room(1, payload);
    r.buffer = room(1, payload);
    r.bonds = room(TENSORS, sizeof *r.bonds);
    memset(r.buffer, 1, payload);
    write_file(&r);
    r.fd = open(path, O_RDONLY);
    if (r.fd < 0 || ckpt__source_open(path, &r.source, &err) < 0)
        die(path, &err);
    r.from = index_of(&r, true);
    r.to = index_of(&r, false);
    printf(
        "reads of %d tensors of %d bytes, page cache, %zu rounds, medians (lowest to highest), against a pread each\n",
        TENSORS, BYTES, rounds);
    measure_order(&r, false, rounds);
    measure_order(&r, true, rounds);
    ckpt__index_free(r.from);
    ckpt__index_free(r.to);
    ckpt__source_close(r.source);
    close(r.fd);
    unlink(path);
    free(r.stored);
    free(r.memory);
    free(r.buffer);
    free(r.bonds);
}

static void measure_growth(size_t rounds)
{
    for (int64_t pieces = 1000; pieces <= 1000000; pieces *= 10) {
        const plan_case c = {"growth", 1, {6 * pieces}, {6}, {5}, 1, false, 0};
        printf("# %lld, a plan and its copies, 0,", (long long)pieces);
        for (size_t r = 0; r < rounds; r++) {
            sample s = run_child(&c);
            printf(" %.6f", s.plan + s.copies);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    long rounds = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: plans DIR ROUNDS    (DIR/bench.small is written; ROUNDS: 1 to %d)\n", MOST_ROUNDS);
        return 2;
    }
    if (strcmp(argv[1], "growth") == 0) {
        measure_growth((size_t)rounds);
        return 0;
    }
    measure_plans((size_t)rounds);
    measure_reads(argv[1], (size_t)rounds);
    return 0;
}
