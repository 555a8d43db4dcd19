/* state/overlap.c - do two bound tensors share bytes? Contiguous tensors are kept in sorted runs, so a million binds stay cheap, and
 * cheapest in the order of the memory. Strided ones, which may interleave without touching, are compared byte by byte with what
 * lies in their range. */
#include "state/state.h"

#include <stdlib.h>

/* The bytes of one contiguous binding. */
typedef struct interval {
    uintptr_t begin, end; /* first byte, and past the last: addresses, or offsets into the arena */
    uint32_t arena;   /* of ours, which may have no memory yet: the places are offsets into it. NO_ARENA: addresses */
    uint32_t binding; /* its number in the state; GONE: it has moved away */
} interval;

enum { MOST_RUNS = 64, FEW = 64 };
static const uint32_t GONE = UINT32_MAX;

/* Where all bound tensors are. A tensor a at bytes 0..47 and a tensor b at bytes 48..95 of one buffer are two
 * intervals, [0, 48) and [48, 96). A third tensor at bytes 40..59 meets a or b, one of them is found, and the bind is
 * refused. A strided tensor is in no run, for tensors may lie in its gaps.
 *
 * The intervals of a run are sorted, and no two of them meet. What lies behind the last interval goes behind it, anything else begins
 * a run; runs of which the later is not smaller than the one before become one. So there are few, and each of them is searched: 5, 6,
 * 7, 2 and 9 are the runs {5, 6, 7} and {2, 9}, and with 1 they are {1, 2, 5, 6, 7, 9}. */
struct ckpt__span {
    interval *items; /* heap, owned: the runs, one behind the other */
    size_t count, capacity;
    size_t gone;              /* of the items: those that have moved away */
    size_t starts[MOST_RUNS]; /* of the runs, ascending */
    size_t run_count;
    size_t *strided; /* heap, owned: numbers of strided bindings; NULL: none */
    size_t strided_count, strided_capacity;
};

void ckpt__spans_free(ckpt__span *s)
{
    if (!s)
        return;
    free(s->items);
    free(s->strided);
    free(s);
}

/* Does p lie before q, all of it? */
static bool is_before(const interval *p, const interval *q)
{
    return p->arena != q->arena ? p->arena < q->arena : p->end <= q->begin;
}

/* One that meets x; NULL: none does. */
static interval *find(const ckpt__span *s, const interval *x)
{
    for (size_t r = 0; r < s->run_count; r++) {
        size_t first = s->starts[r], end = r + 1 < s->run_count ? s->starts[r + 1] : s->count, behind = end;
        if (first < end && is_before(&s->items[end - 1], x)) /* the commonest case: they are bound in order */
            continue;
        while (first < behind) {
            const size_t middle = first + (behind - first) / 2;
            if (is_before(&s->items[middle], x))
                first = middle + 1;
            else
                behind = middle;
        }
        for (; first < end && !is_before(x, &s->items[first]); first++)
            if (s->items[first].binding != GONE)
                return &s->items[first];
    }
    return NULL;
}

/* Takes those that are gone out of the items [first, end); how many remain. */
static size_t drop_gone(ckpt__span *s, size_t first, size_t end)
{
    size_t kept = first;
    for (size_t i = first; i < end; i++)
        if (s->items[i].binding != GONE)
            s->items[kept++] = s->items[i];
    s->gone -= end - kept;
    return kept - first;
}

static void drop_all_gone(ckpt__span *s)
{
    size_t kept = 0, runs = 0;
    for (size_t r = 0; r < s->run_count; r++) {
        size_t first = s->starts[r], end = r + 1 < s->run_count ? s->starts[r + 1] : s->count,
               n = drop_gone(s, first, end);
        memmove(s->items + kept, s->items + first, n * sizeof *s->items);
        if (n)
            s->starts[runs++] = kept;
        kept += n;
    }
    s->run_count = runs;
    s->count = kept;
}

/* The last two runs become one. False: no memory, and they are as they were. */
static bool merge(ckpt__span *s)
{
    size_t first = s->starts[s->run_count - 2], second = s->starts[s->run_count - 1];
    interval *late = malloc((s->count - second) * sizeof *late);
    if (!late)
        return false;
    size_t m = drop_gone(s, second, s->count), n;
    memcpy(late, s->items + second, m * sizeof *late);
    n = drop_gone(s, first, second);
    s->count = first + n + m;
    s->run_count--;
    for (size_t at = s->count; m > 0;) {
        bool early = n > 0 && is_before(&late[m - 1], &s->items[first + n - 1]);
        s->items[--at] = early ? s->items[first + --n] : late[--m];
    }
    free(late);
    return true;
}

/* It meets none. False: no memory. */
static bool put(ckpt__span *s, const interval *x)
{
    if (s->gone > FEW && s->gone > s->count / 2)
        drop_all_gone(s);
    bool behind = s->run_count && s->count && is_before(&s->items[s->count - 1], x);
    if ((!behind && s->run_count == MOST_RUNS) || !ckpt__grow(&s->items, &s->capacity, s->count + 1, sizeof *s->items))
        return false;
    if (!behind)
        s->starts[s->run_count++] = s->count;
    s->items[s->count++] = *x;
    while (s->run_count > 1 &&
           s->count - s->starts[s->run_count - 1] >= s->starts[s->run_count - 1] - s->starts[s->run_count - 2])
        if (!merge(s))
            break;
    return true;
}

static interval interval_of(const ckpt_state *state, size_t i)
{
    const ckpt__binding *b = &state->bindings[i];
    uintptr_t begin = b->arena == CKPT__NO_ARENA ? (uintptr_t)b->data : (uintptr_t)b->arena_offset;
    return (interval){begin, begin + (uintptr_t)b->span, b->arena, (uint32_t)i};
}

static void start(ckpt__strided *it, const ckpt__binding *b)
{
    ckpt__strided_init(it, b->shape, b->strides, b->ndim, ckpt_dtype_size(b->dtype));
}

/* Marks the bytes of one in a bitmap of the common range, and looks for the other's. */
int ckpt__bindings_touch(const ckpt__binding *a, const ckpt__binding *b)
{
    uintptr_t begin = (uintptr_t)a->data > (uintptr_t)b->data ? (uintptr_t)a->data : (uintptr_t)b->data;
    uintptr_t a_end = (uintptr_t)a->data + a->span, b_end = (uintptr_t)b->data + b->span,
              end = a_end < b_end ? a_end : b_end;
    if (begin >= end)
        return 0;
    if (a->span == a->nbytes && b->span == b->nbytes) /* neither has gaps */
        return 1;
    unsigned char *bits = calloc((end - begin) / 8 + 1, 1);
    if (!bits)
        return -1;
    int hit = 0;
    for (int pass = 0; pass < 2 && !hit; pass++) {
        const ckpt__binding *x = pass ? b : a;
        ckpt__strided it;
        uint64_t offset, n;
        start(&it, x);
        while (!hit && ckpt__strided_next(&it, UINT64_MAX, &offset, &n))
            for (uintptr_t p = (uintptr_t)x->data + offset, stop = p + n; p < stop && !hit; p++)
                if (p >= begin && p < end) {
                    size_t i = p - begin;
                    if (pass && (bits[i / 8] >> (i % 8) & 1))
                        hit = 1;
                    bits[i / 8] |= (unsigned char)(1u << (i % 8));
                }
    }
    free(bits);
    return hit;
}

static ckpt_status refuse(const ckpt_state *state, size_t a, size_t b, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_MISMATCH, state->bindings[a].name.data,
                      "its memory overlaps that of '%s'; two names of one tensor are declared with ckpt_state_alias",
                      state->bindings[b].name.data);
}

static ckpt_status compare(const ckpt_state *state, size_t a, size_t b, ckpt_error *err)
{
    interval x = interval_of(state, a), y = interval_of(state, b);
    int hit = x.arena == y.arena && x.begin < y.end && y.begin < x.end
                  ? ckpt__bindings_touch(&state->bindings[a], &state->bindings[b])
                  : 0;
    return hit < 0 ? ckpt__fail_memory(err, "overlap check", 0) : hit ? refuse(state, a, b, err) : CKPT_OK;
}

static ckpt_status add_strided(ckpt_state *state, size_t binding, ckpt_error *err)
{
    ckpt__span *s = state->spans;
    interval x = interval_of(state, binding);
    ckpt_status status = CKPT_OK;
    if (find(s, &x)) /* something contiguous lies in its range: which, and does it touch? */
        for (size_t i = 0; status == CKPT_OK && i < state->count; i++)
            if (i != binding && state->bindings[i].data && state->bindings[i].span)
                status = compare(state, binding, i, err);
    if (status < 0)
        return status;
    if (!ckpt__grow(&s->strided, &s->strided_capacity, s->strided_count + 1, sizeof *s->strided))
        return ckpt__fail_memory(err, "overlap check", 0);
    s->strided[s->strided_count++] = binding;
    return CKPT_OK;
}

static ckpt_status add_contiguous(ckpt_state *state, size_t binding, ckpt_error *err)
{
    const interval x = interval_of(state, binding), *found = find(state->spans, &x);
    if (found)
        return refuse(state, binding, found->binding, err);
    return put(state->spans, &x) ? CKPT_OK : ckpt__fail_memory(err, "overlap check", sizeof x);
}

static bool has_place(const ckpt__binding *b)
{
    return (b->data || b->arena != CKPT__NO_ARENA) && b->span;
}

static ckpt_status add(ckpt_state *state, size_t binding, ckpt_error *err)
{
    const ckpt__binding *b = &state->bindings[binding];
    if (!has_place(b))
        return CKPT_OK;
    if (!state->spans && !(state->spans = calloc(1, sizeof *state->spans)))
        return ckpt__fail_memory(err, "overlap check", 0);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < state->spans->strided_count; i++)
        status = compare(state, binding, state->spans->strided[i], err);
    if (status < 0)
        return status;
    bool gaps = b->span != b->nbytes; /* each element has a place of its own (shape_of in state.c) */
    return gaps ? add_strided(state, binding, err) : add_contiguous(state, binding, err);
}

/* Forgets where everything lies; the next bind looks again. */
static void lose(ckpt_state *state)
{
    ckpt__spans_free(state->spans);
    state->spans = NULL;
    state->spans_lost = true;
}

static ckpt_status look_again(ckpt_state *state, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (!state->spans_lost)
        return CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < state->count; i++)
        status = add(state, i, err);
    if (status < 0)
        lose(state);
    else
        state->spans_lost = false;
    return status;
}

ckpt_status ckpt__spans_add(ckpt_state *state, size_t binding, ckpt_error *err)
{
    ckpt_status status = look_again(state, err);
    return status < 0 ? status : add(state, binding, err);
}

/* ---- memory that moves */

static void take_out(ckpt_state *state, size_t binding)
{
    ckpt__span *s = state->spans;
    if (!s || !has_place(&state->bindings[binding]))
        return;
    for (size_t i = 0; i < s->strided_count; i++)
        if (s->strided[i] == binding) {
            memmove(s->strided + i, s->strided + i + 1, (--s->strided_count - i) * sizeof *s->strided);
            return;
        }
    const interval x = interval_of(state, binding);
    interval *found = find(s, &x);
    if (!found || found->binding != binding)
        return;
    found->binding = GONE;
    s->gone++;
}

static void put_place(ckpt__binding *b, const ckpt__place_of *place)
{
    b->data = place->data;
    b->memory = place->memory;
}

ckpt_status ckpt__spans_move(ckpt_state *state, size_t first, size_t count, const ckpt__place_of *to, ckpt_error *err)
{
    ckpt__place_of *was = malloc((count + 1) * sizeof *was);
    size_t added = 0;
    ckpt__state_changed(state);
    ckpt_status status = was ? look_again(state, err) : ckpt__fail_memory(err, "overlap check", count * sizeof *was);
    if (status < 0) {
        free(was);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        ckpt__binding *b = &state->bindings[first + i];
        was[i] = (ckpt__place_of){b->data, b->memory};
        take_out(state, first + i);
        put_place(b, &to[i]);
    }
    while (status == CKPT_OK && added < count) {
        status = add(state, first + added, err);
        added += status == CKPT_OK;
    }
    for (size_t i = 0; status < 0 && i < added; i++)
        take_out(state, first + i);
    for (size_t i = 0; status < 0 && i < count; i++)
        put_place(&state->bindings[first + i], &was[i]);
    bool back = true;
    for (size_t i = 0; status < 0 && back && i < count; i++)
        back = add(state, first + i, NULL) == CKPT_OK;
    if (!back)
        lose(state);
    free(was);
    return status;
}
