/* codec/pickle_walk_vm.h - the machine of pickle_walk.c, and what pickle_walk_ops.c does with it. */
#ifndef CKPT_PICKLE_WALK_VM_H
#define CKPT_PICKLE_WALK_VM_H
#include "codec/pickle_vm.h"
#include "codec/pickle_walk.h"

enum {
    CKPT__WALK_WINDOW = 64 << 10,
    CKPT__WALK_NAME_MAX = 4096,      /* of text that is kept */
    CKPT__WALK_VALUES_MAX = 4 << 20, /* strings, tuples, results: past them values are opaque */
    CKPT__WALK_TEXT_MAX = 64 << 20,  /* bytes of kept text, all in all */
    CKPT__WALK_STACK_MAX = 16 << 20  /* also of marks, and of memo entries */
};

/* A value as a number: the stack, the memo and tuples hold indices of `values`, so that hostile pickles cost 12 bytes a value.
 * a and b by kind: TEXT: first byte in `text`, bytes. GLOBAL: its number, -. TUPLE: first place in `items`, count. RESULT: -. */
typedef struct ckpt__walk_value {
    uint32_t kind, a, b;
} ckpt__walk_value;

/* The machine. Heap arrays are owned and reused from walk to walk; in, sink, out and err are the caller's, for one walk. */
struct ckpt__walker {
    const ckpt__pickle_input *in;
    const ckpt__walk_sink *sink;
    ckpt__walk *out;
    ckpt_error *err;
    ckpt_status status;        /* what ends the walk as a whole */
    uint64_t begin, at, op_at; /* of the pickle; the next byte; the opcode that runs */
    uint64_t frame_end;        /* of the outermost frame that `at` is in, or was last */
    unsigned char *window;     /* heap: CKPT__WALK_WINDOW bytes of the input ... */
    uint64_t window_at;        /* ... from this offset on, */
    size_t window_size;        /* so many of them read */

    size_t values_max, stack_max, text_max; /* at most those above */
    ckpt__walk_value *values;
    size_t value_count, value_capacity; /* 0 is the opaque one */
    uint32_t *items;
    size_t item_count, item_capacity;
    ckpt__buf text;
    uint32_t *stack;
    size_t depth, stack_capacity;
    uint32_t *marks;
    size_t mark_count, mark_capacity;
    uint32_t *memo;
    size_t memo_count, memo_capacity; /* UINT32_MAX: no entry */
    ckpt__hash *sparse;               /* memo entries far from the others: to the place in ... */
    uint32_t *sparse_values;
    size_t sparse_count, sparse_capacity;
    uint64_t memo_entries;

    ckpt__walk_global *globals;
    size_t global_count, global_capacity;
    ckpt__hash *by_name;
    ckpt__arena *arena; /* names, keys of the hashes, arguments */
};
typedef ckpt__walker ckpt__walk_vm;

/* All give false when the walk must end: out->trouble, or status, says why. */
bool ckpt__walk_stop(ckpt__walk_vm *w, ckpt__walk_trouble trouble);
bool ckpt__walk_no_memory(ckpt__walk_vm *w);
/* Most walks end before they need one. */
bool ckpt__walk_arena(ckpt__walk_vm *w);
/* The next n bytes (at most a window), which stay until the next call. */
bool ckpt__walk_take(ckpt__walk_vm *w, size_t n, const unsigned char **p);
bool ckpt__walk_skip(ckpt__walk_vm *w, uint64_t n);
/* The next n bytes are a frame. */
void ckpt__walk_frame(ckpt__walk_vm *w, uint64_t n);
/* A line without its newline: its offset and size; *text NULL where it is longer than a window. */
bool ckpt__walk_line(ckpt__walk_vm *w, uint64_t *offset, uint64_t *size, const char **text);

bool ckpt__walk_push(ckpt__walk_vm *w, uint32_t value);
bool ckpt__walk_push_again(ckpt__walk_vm *w, uint32_t value); /* one that is somewhere already */
bool ckpt__walk_pop(ckpt__walk_vm *w, uint32_t *value);
bool ckpt__walk_push_mark(ckpt__walk_vm *w);
/* Takes the last mark away: `from` is its depth; the stack is as it was. */
bool ckpt__walk_pop_mark(ckpt__walk_vm *w, size_t *from);
bool ckpt__walk_memo_put(ckpt__walk_vm *w, uint64_t index);
bool ckpt__walk_memo_get(ckpt__walk_vm *w, uint64_t index);
/* A new value, 0 (opaque) where there are too many; *ok false: no memory. */
uint32_t ckpt__walk_value_new(ckpt__walk_vm *w, ckpt__walk_kind kind, uint32_t a, uint32_t b, bool *ok);
uint32_t ckpt__walk_text_new(ckpt__walk_vm *w, const char *text, size_t n, bool *ok);
uint32_t ckpt__walk_tuple_new(ckpt__walk_vm *w, const uint32_t *items, size_t n, bool *ok);
ckpt_str ckpt__walk_text_of(const ckpt__walk_vm *w, uint32_t value); /* data NULL: not known */

/* One opcode. */
bool ckpt__walk_step(ckpt__walk_vm *w, unsigned char opcode);
#endif
