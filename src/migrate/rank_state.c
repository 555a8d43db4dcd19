/* migrate/rank_state.c - see rank_state.h: the rules, and what is said.
 *
 *     of what kind           all ranks have the same    they differ
 *     random generators      becomes one                that of rank 0
 *     data, of each rank     becomes one                is left out
 *     data, of rank 0 alone  -                          is left out: of the others nothing is known
 *     data, of all together  stays                      -
 *     other values           becomes one                stay, each under the name of its rank */
#include "migrate/rank_state.h"

#include <stdio.h>
#include <stdlib.h>

static const char RANDOM[] = "seed the generators anew where they have to be those of a new run; else nothing";
static const char LOADER[] =
    "let the program skip what was seen before: so many samples as all ranks together have taken by that step";

typedef struct deciding {
    ckpt__migration *m;
    const ckpt__rank_states *found;
    ckpt__rank_deed *deeds;
    size_t joined, apart; /* other values: that became one, and that differ */
    ckpt_error *err;
} deciding;

static ckpt_status say(const deciding *d, ckpt_severity severity, const ckpt__rank_state *s, const char *fix,
                       const char *format, ...) CKPT__PRINTF(5, 6);

static ckpt_status say(const deciding *d, ckpt_severity severity, const ckpt__rank_state *s, const char *fix,
                       const char *format, ...)
{
    char message[900];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bool added = ckpt__report_add(d->m->report, severity, "rank-state", NULL, fix, "%s", message) &&
                 ckpt__report_tensor(d->m->report, s->name);
    return added ? CKPT_OK : ckpt__migration_no_memory(d->err);
}

/* ---- drop */

static const char *what(const ckpt__rank_state *s)
{
    return s->kind == CKPT__OF_GENERATORS ? "random state" : "place in the data";
}

static ckpt_status drop(deciding *d, size_t i)
{
    const ckpt__rank_state *s = &d->found->states[i];
    d->apart += s->kind == CKPT__OF_OTHER;
    if (s->kind == CKPT__OF_OTHER || s->form == CKPT__IN_TOTAL)
        return CKPT_OK;
    d->deeds[i].verdict = CKPT__RANK_GOES;
    if (s->form == CKPT__IN_MAIN)
        return say(d, CKPT_SEVERITY_NOTE, s, NULL, "left out as asked: the place in the data that rank 0 of %lld had",
                   (long long)s->ranks);
    if (s->form == CKPT__IN_COMMON)
        return say(d, CKPT_SEVERITY_NOTE, s, NULL,
                   "left out as asked: the place of all %lld ranks in the data, each in a shuffle of its own",
                   (long long)s->ranks);
    return say(d, CKPT_SEVERITY_NOTE, s, NULL, "left out as asked: the %s of each of %zu ranks", what(s), s->count);
}

/* ---- derive */

/* The root has another entry, or the checkpoint another tensor, of the name that one process has for the state. */
static bool is_taken(const deciding *d, const ckpt__rank_state *s)
{
    const ckpt__index *x = d->m->from;
    const ckpt__rank_part *first = &d->found->parts[s->first];
    bool taken = false;
    if (!s->alone.data || ckpt__str_equal(s->alone, first->name))
        return false;
    if (first->holder)
        return ckpt__find_entry(x->root, s->alone.data) != NULL;
    for (size_t i = 0; i < x->tensor_count && !taken; i++)
        taken = ckpt__str_equal(x->tensors[i].info.name, s->alone);
    return taken;
}

static ckpt_status keep_first(deciding *d, size_t i, bool same)
{
    const ckpt__rank_state *s = &d->found->states[i];
    const ckpt__rank_part *first = &d->found->parts[s->first];
    char as[200] = "", name[160];
    if (s->alone.data && !ckpt__str_equal(s->alone, first->name))
        snprintf(as, sizeof as, ", which is called %s now",
                 ckpt__escape(name, sizeof name, s->alone.data, s->alone.size));
    d->deeds[i] = (ckpt__rank_deed){CKPT__RANK_ONE, first};
    if (same && s->kind == CKPT__OF_DATA)
        return say(
            d, CKPT_SEVERITY_WARNING, s, LOADER,
            "all %zu ranks have the same: it becomes one%s. If it counts what a rank has taken of its own part of the data, one "
            "process sees some of the data again",
            s->count, as);
    if (same)
        return say(d, CKPT_SEVERITY_NOTE, s, NULL, "the random states of %zu ranks are the same: they become one%s",
                   s->count, as);
    return say(
        d, CKPT_SEVERITY_NOTE, s, RANDOM,
        "of the random states of %zu ranks that of rank 0 is taken%s: what is random from here on (dropout, shuffling) is not that of "
        "the unbroken run",
        s->count, as);
}

static ckpt_status leave(deciding *d, size_t i)
{
    const ckpt__rank_state *s = &d->found->states[i];
    d->deeds[i].verdict = CKPT__RANK_GOES;
    if (s->kind == CKPT__OF_GENERATORS && is_taken(d, s))
        return say(d, CKPT_SEVERITY_WARNING, s, NULL,
                   "the random states of %zu ranks are left out: that of one process is there already, as %s", s->count,
                   s->alone.data);
    if (s->kind == CKPT__OF_GENERATORS)
        return say(d, CKPT_SEVERITY_WARNING, s, RANDOM,
                   "the random states of %zu ranks are left out: there is none of rank 0", s->count);
    if (s->form == CKPT__IN_MAIN)
        return say(
            d, CKPT_SEVERITY_WARNING, s, LOADER,
            "left out: it is the place in the data that rank 0 of %lld had, and what the others had is in no file",
            (long long)s->ranks);
    if (s->form == CKPT__IN_COMMON)
        return say(
            d, CKPT_SEVERITY_WARNING, s, LOADER,
            "left out: it is the place of all %lld ranks in the data, each in a shuffle of its own, and one process has none of "
            "those",
            (long long)s->ranks);
    return say(d, CKPT_SEVERITY_WARNING, s, LOADER,
               "the places in the data of %zu ranks are left out: they differ, and no rule makes one of them",
               s->count);
}

static ckpt_status derive(deciding *d, size_t i)
{
    const ckpt__rank_state *s = &d->found->states[i];
    const bool zero = d->found->parts[s->first].rank == 0;
    bool same = false;
    ckpt_status status = CKPT_OK;
    if (s->form == CKPT__IN_TOTAL)
        return say(
            d, CKPT_SEVERITY_NOTE, s, NULL,
            "it counts batches of all %lld ranks together, and stays: one process goes on there with a batch %lld times as large",
            (long long)s->ranks, (long long)s->ranks);
    if (s->form < CKPT__IN_MAIN)
        status = ckpt__rank_alike(d->m, d->found, s, &same, d->err);
    if (status < 0)
        return status;
    if (s->kind == CKPT__OF_OTHER) {
        d->joined += same;
        d->apart += !same;
        d->deeds[i].kept = same ? &d->found->parts[s->first] : NULL;
        d->deeds[i].verdict = same ? CKPT__RANK_ONE : CKPT__RANK_STAYS;
        return CKPT_OK;
    }
    if (zero && !is_taken(d, s) && (same || s->kind == CKPT__OF_GENERATORS))
        return keep_first(d, i, same);
    return leave(d, i);
}

/* ---- both */

static ckpt_status say_rest(const deciding *d, size_t known)
{
    const ckpt__rank_state all = {.name = {NULL, 0}};
    const bool derives = d->m->options.rank_state == CKPT_RANK_STATE_DERIVE;
    ckpt_status status = CKPT_OK;
    if (!known)
        status = say(d, CKPT_SEVERITY_NOTE, &all, NULL,
                     "nothing in it is known to be there once for each of several ranks: nothing is %s",
                     derives ? "derived" : "left out");
    if (status == CKPT_OK && d->joined)
        status = say(d, CKPT_SEVERITY_NOTE, &all, NULL, "%zu value%s that all ranks have alike become%s one", d->joined,
                     d->joined == 1 ? "" : "s", d->joined == 1 ? "s" : "");
    if (status == CKPT_OK && d->apart)
        status = say(d, derives ? CKPT_SEVERITY_WARNING : CKPT_SEVERITY_NOTE, &all, NULL,
                     "%zu value%s no random state and no place in the data%s: each stays under the name of its rank",
                     d->apart, d->apart == 1 ? " of the ranks is" : "s of the ranks are",
                     !derives        ? ""
                     : d->apart == 1 ? ", and is not the same on all of them"
                                     : ", and are not the same on all of them");
    return status;
}

ckpt_status ckpt__migrate_ranks(ckpt__migration *m, ckpt_error *err)
{
    if (m->options.rank_state == CKPT_RANK_STATE_KEEP)
        return CKPT_OK;
    ckpt__rank_states found;
    deciding d = {.m = m, .found = &found, .err = err};
    size_t known = 0;
    ckpt_status status = ckpt__rank_states_find(m->from, m->from->arena, &found, err);
    d.deeds = calloc(found.count + 1, sizeof *d.deeds);
    if (status == CKPT_OK && !d.deeds)
        status = ckpt__migration_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < found.count; i++) {
        if (!found.states[i].several)
            continue;
        known++;
        status = m->options.rank_state == CKPT_RANK_STATE_DROP ? drop(&d, i) : derive(&d, i);
    }
    if (status == CKPT_OK)
        status = say_rest(&d, known);
    if (status == CKPT_OK && known)
        status = ckpt__rank_edit(m, &found, d.deeds, err);
    free(d.deeds);
    ckpt__rank_states_free(&found);
    return status;
}

/* ---- keep */

/* Does a part of it still go along, of more than one rank? */
static bool goes(const ckpt__migration *m, const ckpt__rank_states *found, const ckpt__rank_state *s)
{
    bool any = false;
    for (size_t i = s->first; i < s->first + s->count && !any; i++)
        any = found->parts[i].value || !ckpt__stays_behind(m, found->parts[i].at);
    return any && s->several && s->form != CKPT__IN_TOTAL;
}

ckpt_status ckpt__migrate_say_ranks(ckpt__migration *m, ckpt_error *err)
{
    enum { NAMED = 4 };
    ckpt__rank_states found;
    ckpt__arena *scratch = NULL;
    ckpt__buf names = {NULL, 0, 0, false};
    size_t count = 0, others = 0;
    if (m->options.rank_state != CKPT_RANK_STATE_KEEP || m->hf || m->options.weights_only)
        return CKPT_OK; /* weights are no rank's own */
    if (!(scratch = ckpt__arena_new(0)))
        return ckpt__migration_no_memory(err);
    ckpt_status status = ckpt__rank_states_find(m->from, scratch, &found, err);
    for (size_t i = 0; status == CKPT_OK && i < found.count; i++) {
        const ckpt__rank_state *s = &found.states[i];
        char name[120];
        others += s->kind == CKPT__OF_OTHER && s->several;
        if (s->kind == CKPT__OF_OTHER || !goes(m, &found, s) || count++ >= NAMED)
            continue;
        ckpt__buf_printf(&names, "%s%s (%zu)", count > 1 ? ", " : "",
                         ckpt__escape(name, sizeof name, s->name.data, s->name.size), s->count);
    }
    if (count > NAMED)
        ckpt__buf_printf(&names, " and %zu more", count - NAMED);
    if (others)
        ckpt__buf_printf(&names, "%s%zu other value%s", count ? "; " : "", others, others == 1 ? "" : "s");
    if (names.failed)
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK && count + others > 0 &&
        !ckpt__report_add(
            m->report, CKPT_SEVERITY_NOTE, "rank-state", NULL,
            "--rank-state derive makes of them the state of one process, --rank-state drop leaves them out",
            "%lld ranks saved it, and each rank's own values are kept under the name of the rank: %s",
            (long long)found.ranks, names.data))
        status = ckpt__migration_no_memory(err);
    ckpt__buf_free(&names);
    ckpt__rank_states_free(&found);
    ckpt__arena_free(scratch);
    return status;
}
