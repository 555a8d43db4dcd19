/* run/merge.c - what several ranks hold, put together into checkpoints: only what all of them hold of one save can
 * be resumed from, and of everything else it is said what is missing, and on which rank. */
#include <stdio.h>
#include <stdlib.h>
#include "run/gather.h"

/* One rank's part of a checkpoint. Both pointers are borrowed from the places that the list was gathered from. */
typedef struct member {
    const ckpt__held *held;
    const ckpt__place *at; /* the place that has `held` */
} member;

/* What tells one save of a step from another; those whose manifest could not be read have no save and come last. */
static bool is_read(const member *m)
{
    return m->held->manifest_crc != 0 || m->held->save != 0;
}

/* Newest step first; within it what the run directory itself holds (each its own), then by save, then by rank. */
static int by_save(const void *a, const void *b)
{
    const member *x = a, *y = b;
    const ckpt__held *h = x->held, *k = y->held;
    if (h->step != k->step)
        return h->step < k->step ? 1 : -1;
    if ((x->at->rank == CKPT__TOP) != (y->at->rank == CKPT__TOP))
        return x->at->rank == CKPT__TOP ? -1 : 1;
    if (x->at->rank == CKPT__TOP)
        return h->time != k->time ? (h->time < k->time ? 1 : -1) : strcmp(h->name, k->name);
    if (is_read(x) != is_read(y))
        return is_read(x) ? -1 : 1;
    if (h->save != k->save)
        return h->save < k->save ? -1 : 1;
    if (h->world != k->world)
        return h->world < k->world ? -1 : 1;
    if (x->at->rank != y->at->rank)
        return x->at->rank < y->at->rank ? -1 : 1;
    return strcmp(h->name, k->name);
}

/* "rank 3", "ranks 0, 2-5 and more"; ranks[0..n) sorted. */
static void put_ranks(ckpt__buf *b, const int64_t *low, const int64_t *high, size_t n)
{
    bool several = n > 1 || (n == 1 && high[0] > low[0]);
    ckpt__buf_str(b, several ? "ranks " : "rank ");
    for (size_t i = 0; i < n && i < CKPT__RANKS_NAMED; i++) {
        ckpt__buf_printf(b, "%s%lld", i ? ", " : "", (long long)low[i]);
        if (high[i] > low[i])
            ckpt__buf_printf(b, "-%lld", (long long)high[i]);
    }
    if (n > CKPT__RANKS_NAMED)
        ckpt__buf_str(b, " and more");
}

static int64_t rank_of(const member *m)
{
    return m->at->rank == CKPT__TOP ? m->held->rank : m->at->rank;
}

/* The ranks of `world` that are not among the members (sorted by rank), as ranges. */
static void put_missing(ckpt__buf *b, const member *m, size_t n, int64_t world)
{
    int64_t low[CKPT__RANKS_NAMED + 1], high[CKPT__RANKS_NAMED + 1], next = 0;
    size_t count = 0;
    for (size_t i = 0; i <= n && count <= CKPT__RANKS_NAMED; i++) {
        int64_t rank = i < n && rank_of(&m[i]) < world ? rank_of(&m[i]) : world;
        if (rank > next) {
            low[count] = next;
            high[count++] = rank - 1;
        }
        if (rank >= next)
            next = rank + 1;
    }
    put_ranks(b, low, high, count);
}

static void put_present(ckpt__buf *b, const member *m, size_t n)
{
    int64_t low[CKPT__RANKS_NAMED + 1], high[CKPT__RANKS_NAMED + 1];
    size_t count = 0;
    for (size_t i = 0; i < n && count <= CKPT__RANKS_NAMED; i++) {
        if (count > 0 && m[i].at->rank == high[count - 1] + 1)
            high[count - 1]++;
        else if (count == 0 || m[i].at->rank != high[count - 1]) {
            low[count] = high[count] = m[i].at->rank;
            count++;
        }
    }
    put_ranks(b, low, high, count);
}

/* The member's own fault: NULL where it is sound. */
static const char *fault_of(const member *m, char *text, size_t size)
{
    if (!m->held->complete)
        return m->held->why;
    if (m->at->rank == CKPT__TOP || m->at->rank == m->held->rank)
        return NULL;
    snprintf(text, size, "its checkpoint.json is of rank %lld: it was copied from there", (long long)m->held->rank);
    return text;
}

/* Members of one step and save, sorted by rank: one entry of the list. Both arrays are parts of the array of all
 * members.
 *
 * Rank 0 holds save 9 of step 200 and rank 1 holds save 7. The members of step 200 are sorted by save: m[0] is of rank
 * 1, m[1] is of rank 0. The first group has m = m + 0, n = 1 and others = m + 1; the second has m = m + 1, n = 1 and
 * others = m + 0. */
typedef struct group {
    const member *m;
    size_t n;             /* members, at least 1 */
    int64_t world;        /* ranks that the checkpoint needs: by its manifests, else as many as rank
                                   * directories */
    const member *others; /* members of the same step and of another save; NULL: none */
    size_t other_count;
} group;

/* Two directories of one rank (step-7, step-00000007) count once. */
static int64_t ranks_here(const group *g)
{
    int64_t here = 0;
    for (size_t i = 0; i < g->n; i++)
        here += rank_of(&g->m[i]) < g->world && (i == 0 || rank_of(&g->m[i]) != rank_of(&g->m[i - 1]));
    return here;
}

static void say_why(ckpt__buf *b, const group *g)
{
    char text[200];
    const char *fault = NULL;
    size_t at = 0;
    if (g->other_count > 0) {
        ckpt__buf_str(b, "two saves of this step: ");
        put_present(b, g->m, g->n);
        ckpt__buf_str(b, g->n == 1 ? " has one, " : " have one, ");
        put_present(b, g->others, g->other_count);
        ckpt__buf_str(b, g->other_count == 1 ? " has another" : " have another");
        return;
    }
    while (at < g->n && !(fault = fault_of(&g->m[at], text, sizeof text)))
        at++;
    if (fault && g->m[at].at->rank != CKPT__TOP)
        ckpt__buf_printf(b, "rank %lld: ", (long long)g->m[at].at->rank);
    if (fault)
        ckpt__buf_str(b, fault);
    int64_t here = ranks_here(g);
    if (here < g->world) {
        ckpt__buf_printf(b, "%s%lld of %lld ranks here, ", fault ? "; " : "", (long long)here, (long long)g->world);
        put_missing(b, g->m, g->n, g->world);
        ckpt__buf_str(b, " missing");
    }
}

static char *keep(ckpt_run_list *list, const char *text)
{
    return ckpt__arena_copy(list->strings, text ? text : "", text ? strlen(text) : 0);
}

/* Of the ranks that hold it whole: how many, the first of them, and whether each of them is verified. */
static void count_sound(const group *g, ckpt_run_entry *e, const member **shown)
{
    char text[200];
    int64_t last = -1, verified = 0;
    bool last_verified = false;
    *shown = NULL;
    for (size_t i = 0; i < g->n; i++) {
        const member *m = &g->m[i];
        if (fault_of(m, text, sizeof text) || rank_of(m) >= g->world)
            continue;
        if (!*shown)
            *shown = m;
        if (rank_of(m) != last) {
            e->ranks_held++;
            last_verified = false;
        }
        verified += m->held->verified && !last_verified;
        last_verified = last_verified || m->held->verified;
        last = rank_of(m);
    }
    e->complete = e->ranks_held == g->world;
    e->verified = e->complete && verified == g->world;
    if (!*shown)
        *shown = g->m;
}

static ckpt_status add_entry(ckpt_run_list *list, const group *g, ckpt_error *err)
{
    ckpt_run_entry e = {.step = g->m[0].held->step, .time = -1, .world = g->world};
    ckpt__buf path = {0}, why = {0};
    const member *shown;
    count_sound(g, &e, &shown);
    for (size_t i = 0; i < g->n; i++) {
        const ckpt__held *h = g->m[i].held;
        e.time = h->time > e.time ? h->time : e.time;
        if (!ckpt__add(e.nbytes, h->nbytes, &e.nbytes))
            e.nbytes = UINT64_MAX;
    }
    if (!e.complete)
        say_why(&why, g);
    ckpt__buf_printf(&path, "%s%s%s", shown->at->path, strcmp(shown->at->path, "/") == 0 ? "" : "/", shown->held->name);
    bool failed = path.failed || why.failed || !(e.name = keep(list, shown->held->name)) ||
                  !(e.path = keep(list, path.data)) || !(e.why = keep(list, why.data)) ||
                  !ckpt__grow(&list->entries, &list->capacity, list->count + 1, sizeof e);
    ckpt__buf_free(&path);
    ckpt__buf_free(&why);
    if (failed)
        return ckpt__fail_memory(err, "a list of checkpoints", list->count);
    list->entries[list->count++] = e;
    return CKPT_OK;
}

/* How many of m[0..n) are of the save of m[0]. */
static size_t same_save(const member *m, size_t n)
{
    size_t k = 1;
    while (k < n && m[k].at->rank != CKPT__TOP && is_read(&m[k]) == is_read(m) &&
           (!is_read(m) || (m[k].held->save == m->held->save && m[k].held->world == m->held->world)))
        k++;
    return m->at->rank == CKPT__TOP ? 1 : k;
}

static int by_rank(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->at->rank != y->at->rank ? (x->at->rank < y->at->rank ? -1 : 1) : strcmp(x->held->name, y->held->name);
}

/* The checkpoints of one step. Members whose manifest cannot be read belong to the only save there is; where there are
 * several, or none, they are an entry of their own. */
static ckpt_status add_step(ckpt_run_list *list, member *m, size_t n, int64_t world, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    while (n > 0 && m->at->rank == CKPT__TOP && status == CKPT_OK) {
        group one = {.m = m, .n = 1, .world = m->held->world};
        status = add_entry(list, &one, err);
        m++;
        n--;
    }
    size_t first = n > 0 ? same_save(m, n) : 0;
    if (first < n && is_read(m) && !is_read(&m[first])) {
        qsort(m, n, sizeof *m, by_rank);
        group all = {.m = m, .n = n, .world = m->held->world};
        for (size_t i = 0; i < n; i++)
            if (is_read(&m[i]))
                all.world = m[i].held->world;
        return status == CKPT_OK ? add_entry(list, &all, err) : status;
    }
    for (size_t at = 0, k; at < n && status == CKPT_OK; at += k) {
        k = same_save(m + at, n - at);
        group one = {.m = m + at, .n = k, .world = is_read(&m[at]) ? m[at].held->world : world};
        if (at > 0) {
            one.others = m;
            one.other_count = first;
        } else if (first < n) {
            one.others = m + first;
            one.other_count = n - first;
        }
        status = add_entry(list, &one, err);
    }
    return status;
}

/* Two saves of one step: the one that can be resumed from is shown first. */
static int by_use(const void *a, const void *b)
{
    const ckpt_run_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    if (x->complete != y->complete)
        return x->complete ? -1 : 1;
    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return strcmp(x->path, y->path);
}

ckpt_status ckpt__run_merge(ckpt_run_list *list, const ckpt__place *places, size_t count, ckpt_error *err)
{
    size_t n = 0;
    int64_t world = 0; /* where no manifest says it: as many as there are rank directories */
    for (size_t i = 0; i < count; i++) {
        n += places[i].count;
        world += places[i].rank != CKPT__TOP;
    }
    member *members = calloc(n + 1, sizeof *members);
    if (!members)
        return ckpt__fail_memory(err, "a list of checkpoints", n);
    n = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < places[i].count; k++)
            members[n++] = (member){&places[i].held[k], &places[i]};
    qsort(members, n, sizeof *members, by_save);
    ckpt_status status = CKPT_OK;
    for (size_t at = 0, k; at < n && status == CKPT_OK; at += k) {
        for (k = 1; at + k < n && members[at + k].held->step == members[at].held->step;)
            k++;
        status = add_step(list, members + at, k, world, err);
    }
    if (status == CKPT_OK && list->count > 1)
        qsort(list->entries, list->count, sizeof *list->entries, by_use);
    free(members);
    return status;
}
