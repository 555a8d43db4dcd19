/* examine/diff_match.c - which things of two checkpoints are the same thing: first by what a state calls them, then by their
 * own names, then by a path that one side has in front. What is left and shares its storage with something that has a
 * counterpart is that thing's second name. */
#include "examine/diff_work.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"

void ckpt__differ_pair(ckpt__differ *d, size_t a, size_t b, ckpt_diff_match match)
{
    ckpt__thing *x = &d->a.things[a], *y = &d->b.things[b];
    if (ckpt__str_equal(x->name, y->name))
        match = CKPT_MATCH_NAME;
    x->other = b;
    y->other = a;
    x->match = y->match = match;
}

typedef enum key_kind { OWN, CANONICAL, LOOSE } key_kind;

static ckpt_str key_of(const ckpt__thing *t, key_kind kind)
{
    return kind == OWN ? t->name : kind == LOOSE ? t->loose : t->canonical;
}

static bool of_optimizer(ckpt_str canonical)
{
    return ckpt__str_begins_more(canonical, "optimizer.");
}

/* An id that numbers other parameters in each names another thing in each. */
static bool contradict(const ckpt__thing *a, const ckpt__thing *b)
{
    return of_optimizer(a->canonical) && of_optimizer(b->canonical) && !ckpt__str_equal(a->canonical, b->canonical);
}

/* The first of a chain that may be the same as thing i of a; it leaves the chain, which is `at` and, before it in order, what
 * follows it in next. SIZE_MAX: none. */
static size_t take_from(const ckpt__differ *d, size_t *next, size_t at, size_t i)
{
    const ckpt__thing *a = &d->a.things[i], *b = d->b.things;
    for (size_t before = at, k = next[at]; k != SIZE_MAX; before = k, k = next[k])
        if (!contradict(a, &b[k])) {
            next[before] = next[k];
            return k;
        }
    return b[at].other == SIZE_MAX && !contradict(a, &b[at]) ? at : SIZE_MAX;
}

/* Pairs what is unpaired and has the same key; of several things of one name the first goes with the first. */
static ckpt_status pair_by(ckpt__differ *d, key_kind of_a, key_kind of_b, ckpt_diff_match match)
{
    ckpt__diff_side *a = &d->a, *b = &d->b;
    ckpt__hash *table = ckpt__hash_new(b->count);
    size_t *next = malloc((b->count + 1) * sizeof *next), at;
    bool failed = !table || !next;
    for (size_t i = b->count; !failed && i-- > 0;) { /* from the last, so that chains begin with the first */
        ckpt_str key = key_of(&b->things[i], of_b);
        next[i] = SIZE_MAX;
        if (b->things[i].other != SIZE_MAX || !key.data)
            continue;
        int put = ckpt__hash_put(table, key.data, key.size, i, &at);
        failed = put < 0;
        if (put == 0) { /* the chain goes on behind the one that the table knows */
            next[i] = next[at];
            next[at] = i;
        }
    }
    for (size_t i = 0; !failed && i < a->count; i++) {
        ckpt_str key = key_of(&a->things[i], of_a);
        if (a->things[i].other != SIZE_MAX || !key.data || !ckpt__hash_get(table, key.data, key.size, &at))
            continue;
        size_t found = take_from(d, next, at, i);
        if (found != SIZE_MAX)
            ckpt__differ_pair(d, i, found, match);
    }
    ckpt__hash_free(table);
    free(next);
    return failed ? ckpt__differ_no_memory(d) : CKPT_OK;
}

/* ---- second names */

/* The place where a view begins, as a key: two names of one tensor have the same. The offset counts elements.
 * Tensors of one place may still be different views; ckpt__same_view decides. */
typedef struct place {
    uint64_t storage, offset, ndim;
} place;

static place place_of(const ckpt__tensor *t)
{
    return (place){t->storage, (uint64_t)t->info.offset, t->info.ndim};
}

static ckpt_status find_ties(ckpt__differ *d, ckpt__diff_side *s)
{
    const ckpt__index *index = s->reader->index;
    size_t paired = 0, at;
    for (size_t i = 0; i < index->tensor_count; i++)
        paired += s->things[i].other != SIZE_MAX;
    if (paired == index->tensor_count)
        return CKPT_OK;
    place *places = calloc(paired + 1, sizeof *places);
    ckpt__hash *table = ckpt__hash_new(paired);
    bool failed = !places || !table;
    for (size_t i = 0, n = 0; !failed && i < index->tensor_count; i++)
        if (s->things[i].other != SIZE_MAX && index->tensors[i].whole && index->tensors[i].info.nbytes) {
            places[n] = place_of(&index->tensors[i]);
            failed = ckpt__hash_put(table, (const char *)&places[n], sizeof *places, i, NULL) < 0;
            n++;
        }
    for (size_t i = 0; !failed && i < index->tensor_count; i++) {
        const ckpt__tensor *t = &index->tensors[i];
        if (s->things[i].other != SIZE_MAX || !t->whole)
            continue;
        place here = place_of(t);
        if (ckpt__hash_get(table, (const char *)&here, sizeof here, &at) && ckpt__same_view(t, &index->tensors[at]))
            s->things[i].tied = at;
    }
    ckpt__hash_free(table);
    free(places);
    return failed ? ckpt__differ_no_memory(d) : CKPT_OK;
}

ckpt_status ckpt__differ_match(ckpt__differ *d)
{
    static const struct {
        key_kind a, b;
        ckpt_diff_match match;
    } passes[] = {
        {CANONICAL, CANONICAL, CKPT_MATCH_CANONICAL},
        {OWN, OWN, CKPT_MATCH_NAME},
        {CANONICAL, OWN, CKPT_MATCH_CANONICAL},
        {OWN, CANONICAL, CKPT_MATCH_CANONICAL},
        {LOOSE, OWN, CKPT_MATCH_PREFIX},
        {OWN, LOOSE, CKPT_MATCH_PREFIX},
        {LOOSE, LOOSE, CKPT_MATCH_PREFIX},
    };
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < sizeof passes / sizeof *passes; i++)
        status = pair_by(d, passes[i].a, passes[i].b, passes[i].match);
    if (status == CKPT_OK)
        status = ckpt__differ_match_prefixes(d);
    if (status == CKPT_OK)
        status = find_ties(d, &d->a);
    return status == CKPT_OK ? find_ties(d, &d->b) : status;
}

bool ckpt__differ_in_parts(const ckpt__diff_side *s, const ckpt__diff_side *other, const ckpt__thing *t)
{
    const ckpt_tensor_info *info = &s->reader->index->tensors[t->tensor].info;
    if (!info->extra->layout.data || info->extra->part_count == 0 ||
        !ckpt__format_of(other->reader->index)->parts_alone)
        return false;
    for (size_t i = 1; i <= info->extra->part_count; i++)
        if (t->tensor + i >= s->reader->index->tensor_count || s->things[t->tensor + i].other == SIZE_MAX)
            return false;
    return true;
}
