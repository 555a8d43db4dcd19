/* examine/diff_prefix.c - things that have the same name but for a path in front: a model below `ema` in one checkpoint and
 * bare in the other, a wrapper's `module.`. Each tensor that is left votes for the paths that would give it a counterpart of its
 * shape, each value for those that would give it one of its kind; a path is taken where it explains at least half of what the
 * side without it has left. */
#include "examine/diff_work.h"

#include <stdio.h>
#include <stdlib.h>

/* Of a name the first dots are tried: hashing what is behind each of thousands would take the square of its length. */
enum { ROUNDS = 8, CANDIDATES_MAX = 4096, NAME_MAX_TRIED = 4096, DOTS_MAX_TRIED = 64 };

/* A path that may be in front of one side's names. */
typedef struct candidate {
    ckpt_str prefix; /* with its last dot; borrowed from a name */
    size_t votes[2]; /* of tensors, of values */
} candidate;

/* The search in one direction. `with` has ema.w (4 x 4), ema.b (4) and ema.c (4); `without` has w (4 x 4), b (4) and
 * d (4). The path "ema." gets 2 votes of tensors, and left is {3, 0}: 2 of 3 is at least half, so w and b are
 * paired, c and d are not. */
typedef struct prefixes {
    ckpt__differ *d;                 /* borrowed */
    ckpt__diff_side *with, *without; /* the two sides of d, either way round */
    ckpt__hash *names;               /* owned, for one round: of what `without` has left -> number of the thing */
    ckpt__hash *known;               /* owned, for one round: prefix -> number of the candidate */
    candidate *list;
    size_t count, capacity; /* heap, owned */
    ckpt__buf text;         /* owned: a name that is looked for */
    size_t left[2];         /* tensors and values that `without` has left */
} prefixes;

/* What a state calls it where that is known: the model's path and the optimizer's ids are gone from it. */
static ckpt_str name_of(const ckpt__thing *t)
{
    return t->canonical.data ? t->canonical : t->name;
}

/* Tensors of one shape, or values of one kind. */
static bool alike(const prefixes *p, size_t with, size_t without)
{
    const ckpt__thing *x = &p->with->things[with], *y = &p->without->things[without];
    if (x->value || y->value)
        return x->value && y->value && x->value->kind == y->value->kind;
    const ckpt_tensor_info *a = &p->with->reader->index->tensors[with].info;
    const ckpt_tensor_info *b = &p->without->reader->index->tensors[without].info;
    return (a->ndim == 0 || (a->shape && b->shape)) && ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim);
}

static bool vote(prefixes *p, ckpt_str prefix, bool of_value)
{
    size_t at;
    int put = ckpt__hash_put(p->known, prefix.data, prefix.size, p->count, &at);
    if (put < 0 || !ckpt__grow(&p->list, &p->capacity, p->count + 1, sizeof *p->list))
        return false;
    if (put == 1) {
        at = p->count++;
        p->list[at] = (candidate){prefix, {0, 0}};
    }
    p->list[at].votes[of_value]++;
    return true;
}

/* It explains at least half of what is left, of the tensors or of the values. */
static bool explains(const prefixes *p, const candidate *c)
{
    return (c->votes[0] && c->votes[0] * 2 >= p->left[0]) || (c->votes[1] && c->votes[1] * 2 >= p->left[1]);
}

/* The counterpart of a name without the `size` bytes from `at` on; SIZE_MAX: none that is free. */
static size_t counterpart(prefixes *p, ckpt_str name, size_t at, size_t size)
{
    size_t found;
    const char *data = name.data + size;
    if (at > 0) { /* "optimizer." stays in front */
        p->text.size = 0;
        ckpt__buf_add(&p->text, name.data, at);
        ckpt__buf_add(&p->text, name.data + at + size, name.size - at - size);
        data = p->text.data;
    }
    if (p->text.failed || !ckpt__hash_get(p->names, data, name.size - size, &found))
        return SIZE_MAX;
    return p->without->things[found].other == SIZE_MAX ? found : SIZE_MAX;
}

/* Where the path may stand: of optimizer state, behind "optimizer.". */
static size_t behind(const ckpt__thing *t)
{
    return ckpt__str_begins_more(t->canonical, "optimizer.") ? strlen("optimizer.") : 0;
}

static bool count_votes(prefixes *p)
{
    for (size_t i = 0; i < p->with->count; i++) {
        const ckpt__thing *t = &p->with->things[i];
        ckpt_str name = name_of(t);
        size_t from = behind(t);
        if (t->other != SIZE_MAX || t->frame || name.size > NAME_MAX_TRIED)
            continue;
        for (size_t k = from, dots = 0; k + 1 < name.size && dots < DOTS_MAX_TRIED && p->count < CANDIDATES_MAX; k++) {
            if (name.data[k] != '.')
                continue;
            dots++;
            size_t at = counterpart(p, name, from, k + 1 - from);
            if (at != SIZE_MAX && alike(p, i, at) &&
                !vote(p, (ckpt_str){name.data + from, k + 1 - from}, t->value != NULL))
                return false;
        }
    }
    return !p->text.failed;
}

static bool list_left(prefixes *p)
{
    p->left[0] = p->left[1] = 0;
    for (size_t i = 0; i < p->without->count; i++) {
        const ckpt__thing *t = &p->without->things[i];
        ckpt_str name = name_of(t);
        if (t->other != SIZE_MAX || t->frame)
            continue;
        p->left[t->value != NULL]++;
        if (ckpt__hash_put(p->names, name.data, name.size, i, NULL) < 0)
            return false;
    }
    return true;
}

/* Pairs all that is below the path. */
static size_t apply(prefixes *p, ckpt_str prefix)
{
    size_t paired = 0;
    for (size_t i = 0; i < p->with->count; i++) {
        const ckpt__thing *t = &p->with->things[i];
        ckpt_str name = name_of(t);
        size_t from = behind(t);
        if (t->other != SIZE_MAX || t->frame || name.size <= from + prefix.size ||
            memcmp(name.data + from, prefix.data, prefix.size) != 0)
            continue;
        size_t at = counterpart(p, name, from, prefix.size);
        if (at == SIZE_MAX || (t->tensor == SIZE_MAX) != (p->without->things[at].tensor == SIZE_MAX))
            continue;
        if (p->with == &p->d->a)
            ckpt__differ_pair(p->d, i, at, CKPT_MATCH_PREFIX);
        else
            ckpt__differ_pair(p->d, at, i, CKPT_MATCH_PREFIX);
        paired++;
    }
    return paired;
}

static bool tell(const prefixes *p, ckpt_str prefix, size_t paired)
{
    char message[500], shown[300];
    ckpt__escape(shown, sizeof shown, prefix.data, prefix.size - 1);
    snprintf(message, sizeof message,
             "%s has %zu things below '%s' that %s has without that path: they were compared with those",
             p->with->letter, paired, shown, p->without->letter);
    return ckpt__differ_note(p->d, CKPT_SEVERITY_NOTE, "matched-prefix", NULL, message);
}

static ckpt_status round_of(prefixes *p, bool *more)
{
    p->names = ckpt__hash_new(p->without->count);
    p->known = ckpt__hash_new(64);
    p->count = 0;
    *more = false;
    bool fine = p->names && p->known && list_left(p) && count_votes(p);
    const candidate *best = NULL;
    for (size_t i = 0; fine && i < p->count; i++)
        if (explains(p, &p->list[i]) &&
            (!best || p->list[i].votes[0] > best->votes[0] ||
             (p->list[i].votes[0] == best->votes[0] && p->list[i].votes[1] > best->votes[1])))
            best = &p->list[i];
    if (fine && best) {
        size_t paired = apply(p, best->prefix);
        *more = paired > 0;
        fine = paired == 0 || tell(p, best->prefix, paired);
    }
    ckpt__hash_free(p->names);
    ckpt__hash_free(p->known);
    return fine ? CKPT_OK : ckpt__differ_no_memory(p->d);
}

static ckpt_status one_way(ckpt__differ *d, ckpt__diff_side *with, ckpt__diff_side *without)
{
    prefixes p = {.d = d, .with = with, .without = without};
    ckpt_status status = CKPT_OK;
    bool more = true;
    for (int i = 0; status == CKPT_OK && more && i < ROUNDS; i++)
        status = round_of(&p, &more);
    ckpt__buf_free(&p.text);
    free(p.list);
    return status;
}

ckpt_status ckpt__differ_match_prefixes(ckpt__differ *d)
{
    ckpt_status status = one_way(d, &d->a, &d->b);
    return status == CKPT_OK ? one_way(d, &d->b, &d->a) : status;
}
