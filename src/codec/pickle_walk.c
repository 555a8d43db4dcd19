/* codec/pickle_walk.c - the machine that follows an unpickler over a pickle: its input, stack, memo and values. */
#include "codec/pickle_walk.h"
#include "codec/pickle_walk_vm.h"

#include <stdlib.h>

typedef ckpt__walk_vm vm_t;

enum { DENSE_GAP = 65536 }; /* memo entries this far past the others are still kept in the array */

bool ckpt__walk_stop(vm_t *w, ckpt__walk_trouble trouble)
{
    w->out->trouble = trouble;
    return false;
}

bool ckpt__walk_no_memory(vm_t *w)
{
    w->status = ckpt__fail_memory(w->err, "pickle", 0);
    return false;
}

bool ckpt__walk_arena(vm_t *w)
{
    if (!w->arena)
        w->arena = ckpt__arena_new(0);
    return w->arena != NULL;
}

/* ---- input */

static bool fill(vm_t *w, uint64_t at)
{
    uint64_t left = w->in->size - at;
    size_t n = left < CKPT__WALK_WINDOW ? (size_t)left : CKPT__WALK_WINDOW;
    w->window_size = 0;
    if (w->in->read(w->in->ctx, at, w->window, n, &w->out->why) < 0)
        return ckpt__walk_stop(w, CKPT__WALK_READ);
    w->window_at = at;
    w->window_size = n;
    return true;
}

/* Bytes of the window from w->at on. */
static size_t at_hand(const vm_t *w)
{
    return w->at < w->window_at || w->at - w->window_at >= w->window_size
               ? 0
               : w->window_size - (size_t)(w->at - w->window_at);
}

/* What reaches over the end of a frame: CPython's unpickler, where it reads from a file, forgets what is left of the frame and
 * takes all of it from behind; from memory, or from a file that can be peeked into, it goes on as if there were no frames. */
static void pass(vm_t *w, uint64_t n)
{
    w->out->torn |= w->at < w->frame_end && n > w->frame_end - w->at;
}

void ckpt__walk_frame(vm_t *w, uint64_t n)
{
    pass(w, n);
    if (w->at >= w->frame_end && !ckpt__add(w->at, n, &w->frame_end))
        w->frame_end = UINT64_MAX;
}

bool ckpt__walk_take(vm_t *w, size_t n, const unsigned char **p)
{
    if (n > w->in->size - w->at)
        return ckpt__walk_stop(w, CKPT__WALK_CUT_OFF);
    pass(w, n);
    if (at_hand(w) < n && !fill(w, w->at))
        return false;
    *p = w->window + (w->at - w->window_at);
    w->at += n;
    return true;
}

bool ckpt__walk_skip(vm_t *w, uint64_t n)
{
    if (n > w->in->size - w->at)
        return ckpt__walk_stop(w, CKPT__WALK_CUT_OFF);
    pass(w, n);
    w->at += n;
    return true;
}

bool ckpt__walk_line(vm_t *w, uint64_t *offset, uint64_t *size, const char **text)
{
    *offset = w->at;
    *text = NULL;
    for (bool first = true;; first = false) {
        size_t n = at_hand(w);
        const unsigned char *p = w->window + (w->at - w->window_at), *end = n ? memchr(p, '\n', n) : NULL;
        if (!end && first && n < CKPT__WALK_WINDOW && w->at < w->in->size) { /* from the line's beginning on */
            if (!fill(w, w->at))
                return false;
            n = at_hand(w);
            p = w->window;
            end = memchr(p, '\n', n);
        }
        if (end) {
            if (first)
                *text = (const char *)p;
            pass(w, (uint64_t)(end - p) + 1);
            w->at += (uint64_t)(end - p) + 1;
            *size = w->at - 1 - *offset;
            return true;
        }
        pass(w, n);
        w->at += n;
        if (w->at >= w->in->size)
            return ckpt__walk_stop(w, CKPT__WALK_CUT_OFF);
        if (!fill(w, w->at))
            return false;
    }
}

/* ---- stack */

bool ckpt__walk_push(vm_t *w, uint32_t value)
{
    if (w->depth >= w->stack_max)
        return ckpt__walk_stop(w, CKPT__WALK_LIMIT);
    if (!ckpt__grow(&w->stack, &w->stack_capacity, w->depth + 1, sizeof *w->stack))
        return ckpt__walk_no_memory(w);
    w->stack[w->depth++] = value;
    return true;
}

bool ckpt__walk_push_again(vm_t *w, uint32_t value)
{
    if (w->values[value].kind == CKPT__WALK_GLOBAL)
        w->globals[w->values[value].a].uses++;
    return ckpt__walk_push(w, value);
}

/* Old unpicklers take values from below a mark, new ones do not: it is allowed here. */
bool ckpt__walk_pop(vm_t *w, uint32_t *value)
{
    if (w->depth == 0)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    *value = w->stack[--w->depth];
    return true;
}

bool ckpt__walk_push_mark(vm_t *w)
{
    if (w->mark_count >= w->stack_max)
        return ckpt__walk_stop(w, CKPT__WALK_LIMIT);
    if (!ckpt__grow(&w->marks, &w->mark_capacity, w->mark_count + 1, sizeof *w->marks))
        return ckpt__walk_no_memory(w);
    w->marks[w->mark_count++] = (uint32_t)w->depth;
    return true;
}

bool ckpt__walk_pop_mark(vm_t *w, size_t *from)
{
    if (w->mark_count == 0)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    *from = w->marks[--w->mark_count];
    if (*from > w->depth)
        *from = w->depth;
    return true;
}

/* ---- memo */

static bool put_sparse(vm_t *w, uint64_t index, uint32_t value)
{
    size_t at = 0;
    char *key = ckpt__walk_arena(w) ? ckpt__arena_alloc(w->arena, sizeof index) : NULL;
    if (!w->sparse)
        w->sparse = ckpt__hash_new(64);
    if (!key || !w->sparse ||
        !ckpt__grow(&w->sparse_values, &w->sparse_capacity, w->sparse_count + 1, sizeof(uint32_t)))
        return ckpt__walk_no_memory(w);
    memcpy(key, &index, sizeof index);
    int put = ckpt__hash_put(w->sparse, key, sizeof index, w->sparse_count, &at);
    if (put < 0)
        return ckpt__walk_no_memory(w);
    if (put == 1) {
        at = w->sparse_count++;
        w->memo_entries++;
    }
    w->sparse_values[at] = value;
    return true;
}

bool ckpt__walk_memo_put(vm_t *w, uint64_t index)
{
    if (w->depth == 0)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    uint32_t value = w->stack[w->depth - 1];
    if (w->memo_entries >= w->stack_max)
        return ckpt__walk_stop(w, CKPT__WALK_LIMIT);
    if (index >= w->memo_count + DENSE_GAP || index >= w->stack_max)
        return put_sparse(w, index, value);
    if (!ckpt__grow(&w->memo, &w->memo_capacity, (size_t)index + 1, sizeof *w->memo))
        return ckpt__walk_no_memory(w);
    while (w->memo_count <= index)
        w->memo[w->memo_count++] = UINT32_MAX;
    w->memo_entries += w->memo[index] == UINT32_MAX;
    w->memo[index] = value;
    return true;
}

bool ckpt__walk_memo_get(vm_t *w, uint64_t index)
{
    size_t at;
    if (index < w->memo_count && w->memo[index] != UINT32_MAX)
        return ckpt__walk_push_again(w, w->memo[index]);
    if (w->sparse && ckpt__hash_get(w->sparse, (const char *)&index, sizeof index, &at))
        return ckpt__walk_push_again(w, w->sparse_values[at]);
    return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
}

/* ---- values */

uint32_t ckpt__walk_value_new(vm_t *w, ckpt__walk_kind kind, uint32_t a, uint32_t b, bool *ok)
{
    *ok = true;
    if (w->value_count >= w->values_max)
        return 0;
    if (!ckpt__grow(&w->values, &w->value_capacity, w->value_count + 1, sizeof *w->values)) {
        *ok = ckpt__walk_no_memory(w);
        return 0;
    }
    w->values[w->value_count] = (ckpt__walk_value){(uint32_t)kind, a, b};
    return (uint32_t)w->value_count++;
}

uint32_t ckpt__walk_text_new(vm_t *w, const char *text, size_t n, bool *ok)
{
    *ok = true;
    if (n > CKPT__WALK_NAME_MAX || w->text.size + n > w->text_max)
        return ckpt__walk_value_new(w, CKPT__WALK_LITERAL, 0, 0, ok);
    size_t at = w->text.size;
    ckpt__buf_add(&w->text, text, n);
    if (w->text.failed) {
        *ok = ckpt__walk_no_memory(w);
        return 0;
    }
    return ckpt__walk_value_new(w, CKPT__WALK_TEXT, (uint32_t)at, (uint32_t)n, ok);
}

uint32_t ckpt__walk_tuple_new(vm_t *w, const uint32_t *items, size_t n, bool *ok)
{
    size_t kept = n < CKPT__WALK_ARGUMENTS ? n : CKPT__WALK_ARGUMENTS, at = w->item_count;
    *ok = true;
    if (n > INT32_MAX || w->value_count >= w->values_max)
        return 0;
    if (!ckpt__grow(&w->items, &w->item_capacity, at + kept + 1, sizeof *w->items)) {
        *ok = ckpt__walk_no_memory(w);
        return 0;
    }
    if (kept)
        memcpy(w->items + at, items, kept * sizeof *items);
    w->item_count += kept;
    return ckpt__walk_value_new(w, CKPT__WALK_TUPLE, (uint32_t)at, (uint32_t)n, ok);
}

ckpt_str ckpt__walk_text_of(const vm_t *w, uint32_t value)
{
    const ckpt__walk_value *v = &w->values[value];
    if (v->kind != CKPT__WALK_TEXT)
        return (ckpt_str){NULL, 0};
    return (ckpt_str){w->text.data ? w->text.data + v->a : "", v->b};
}

/* ---- a walk */

ckpt__walker *ckpt__walker_new(void)
{
    vm_t *w = calloc(1, sizeof *w);
    if (w && !(w->window = malloc(CKPT__WALK_WINDOW))) {
        free(w);
        w = NULL;
    }
    if (w)
        ckpt__walker_limit(w, UINT64_MAX);
    return w;
}

void ckpt__walker_limit(vm_t *w, uint64_t size)
{
    const uint64_t few = 384 << 10;
    uint64_t n = size < CKPT__WALK_STACK_MAX ? size : CKPT__WALK_STACK_MAX;
    w->values_max = (size_t)(few + 2 * n < CKPT__WALK_VALUES_MAX ? few + 2 * n : CKPT__WALK_VALUES_MAX);
    w->stack_max = (size_t)(few + 2 * n < CKPT__WALK_STACK_MAX ? few + 2 * n : CKPT__WALK_STACK_MAX);
    w->text_max = (size_t)(8 * few + 4 * n < CKPT__WALK_TEXT_MAX ? 8 * few + 4 * n : CKPT__WALK_TEXT_MAX);
}

static void forget(vm_t *w)
{
    ckpt__hash_free(w->sparse);
    ckpt__hash_free(w->by_name);
    ckpt__arena_free(w->arena);
    w->sparse = w->by_name = NULL;
    w->arena = NULL;
    w->value_count = w->item_count = w->depth = w->mark_count = w->memo_count = w->sparse_count = w->global_count = 0;
    w->memo_entries = 0;
    w->text.size = 0;
    w->text.failed = false;
}

void ckpt__walker_free(vm_t *w)
{
    if (!w)
        return;
    forget(w);
    free(w->window);
    free(w->values);
    free(w->items);
    ckpt__buf_free(&w->text);
    free(w->stack);
    free(w->marks);
    free(w->memo);
    free(w->sparse_values);
    free(w->globals);
    free(w);
}

ckpt_status ckpt__pickle_walk(vm_t *w, const ckpt__pickle_input *in, uint64_t from, const ckpt__walk_sink *sink,
                              ckpt__walk *out, ckpt_error *err)
{
    bool ok;
    forget(w);
    *out = (ckpt__walk){.end = from};
    w->in = in;
    w->sink = sink;
    w->out = out;
    w->err = err;
    w->status = CKPT_OK;
    w->begin = w->at = w->frame_end = from;
    w->window_size = 0;
    ckpt__walk_value_new(w, CKPT__WALK_OPAQUE, 0, 0, &ok);
    while (ok && !out->stopped) {
        const unsigned char *p;
        w->op_at = w->at;
        if (!(ok = ckpt__walk_take(w, 1, &p)))
            break;
        out->opcode = *p;
        if ((ok = ckpt__walk_step(w, (unsigned char)out->opcode)))
            out->opcodes++;
    }
    out->end = out->stopped ? w->at : w->op_at;
    out->globals = w->globals;
    out->count = w->global_count;
    return w->status;
}
