/* codec/pickle_vm.h - the machine that pickle.c runs and pickle_ops.c, pickle_scalars.c and pickle_text.c give their opcodes to. */
#ifndef CKPT_PICKLE_VM_H
#define CKPT_PICKLE_VM_H
#include "codec/pickle.h"

enum { CKPT__PICKLE_SMALL_INTS = 256, CKPT__PICKLE_INT_MAX = 4096 };

/* A run of the machine over one pickle: the unpickler's stack, marks and memo. It lives for one ckpt__pickle_read. Stack, marks
 * and memo are heap arrays that count against the arena; nodes are the arena's. */
typedef struct ckpt__pickle_vm {
    const unsigned char *data; /* the pickle, the caller's */
    size_t size, at;           /* at: the next byte to read */
    size_t op_at;              /* the byte of the opcode that runs */
    const char *label;
    ckpt__arena *arena;
    ckpt__pickle *out;
    ckpt_error *err;

    ckpt__pickle_node **stack;
    size_t depth, stack_capacity;
    size_t *marks;
    size_t mark_count, mark_capacity; /* stack depths */

    /* The memo: picklers number entries 0, 1, 2, ..., so those are an array; any other number is hashed. */
    ckpt__pickle_node **memo;
    size_t memo_count, memo_capacity;
    ckpt__hash *sparse;
    ckpt__pickle_node **sparse_nodes;
    size_t sparse_count, sparse_capacity;
    uint64_t sparse_charged; /* to the arena */
    uint64_t memo_entries;   /* of both: what MEMOIZE numbers by */

    ckpt__pickle_node *none, *yes, *no, *empty_tuple;
    ckpt__pickle_node *small_ints[CKPT__PICKLE_SMALL_INTS];
    /* Of more ints: equal ones are one node, as long as no other took its place. A list of a million has few different ones. */
    ckpt__pickle_node **ints;
    size_t int_count; /* that were made */
    const ckpt__pickle_object
        *popped;                /* the call that the last POP threw away; NULL: none, or it was looked at since */
    ckpt__pickle_object *given; /* what that gave a setter; NULL: nothing */
    size_t popped_end;          /* the byte behind that POP */
    bool stopped;
    bool kept; /* the data outlives the nodes: long bytes are not copied */
} ckpt__pickle_vm;

typedef struct ckpt__pickle_op {
    const char *name; /* NULL: no such opcode */
    ckpt_status (*run)(ckpt__pickle_vm *vm);
    /* Set for an opcode that torch's weights_only unpickler does not know (torch/_weights_only_unpickler.py): run notes the opcode,
     * and calls this to execute it. */
    ckpt_status (*then)(ckpt__pickle_vm *vm);
} ckpt__pickle_op;
extern const ckpt__pickle_op ckpt__pickle_ops[256];

/* What follows an opcode, so that it can be passed over without being run. One of the three is set, or none:
 *     fixed    BININT: 4 bytes              {4, 0, 0}
 *     counted  BINUNICODE: a length of 4 bytes and so many bytes of text   {0, 4, 0}
 *     lines    GLOBAL: two lines            {0, 0, 2} */
typedef struct ckpt__pickle_shape {
    unsigned char fixed, counted, lines;
} ckpt__pickle_shape;
extern const ckpt__pickle_shape ckpt__pickle_shapes[256]; /* pickle_measure.c */

/* "byte N, OPCODE: ..." */
ckpt_status ckpt__pickle_fail(ckpt__pickle_vm *vm, ckpt_status status, const char *format, ...) CKPT__PRINTF(3, 4);
ckpt_status ckpt__pickle_no_memory(ckpt__pickle_vm *vm);
/* The next n bytes, or CKPT_E_DAMAGED. */
ckpt_status ckpt__pickle_cut_off(ckpt__pickle_vm *vm, uint64_t n); /* that they are not there */
static inline ckpt_status ckpt__pickle_take(ckpt__pickle_vm *vm, uint64_t n, const unsigned char **out)
{
    *out = NULL;
    if (n > vm->size - vm->at)
        return ckpt__pickle_cut_off(vm, n);
    *out = vm->data + vm->at;
    vm->at += (size_t)n;
    return CKPT_OK;
}
/* Up to a newline, which is taken too and not counted. */
ckpt_status ckpt__pickle_line(ckpt__pickle_vm *vm, const char **line, size_t *n);
/* A little-endian number of `width` bytes. */
static inline ckpt_status ckpt__pickle_number(ckpt__pickle_vm *vm, unsigned width, uint64_t *out)
{
    const unsigned char *p = NULL;
    ckpt_status status = ckpt__pickle_take(vm, width, &p);
    uint64_t value = 0;
    for (unsigned i = width; status == CKPT_OK && i-- > 0;)
        value = value << 8 | p[i];
    *out = value;
    return status;
}

ckpt__pickle_node *ckpt__pickle_new(ckpt__pickle_vm *vm, ckpt__pickle_kind kind);         /* NULL: no memory */
static inline ckpt_status ckpt__pickle_push(ckpt__pickle_vm *vm, ckpt__pickle_node *node) /* NULL: no memory */
{
    if (!node || !ckpt__arena_grow(vm->arena, &vm->stack, &vm->stack_capacity, vm->depth + 1, sizeof *vm->stack))
        return ckpt__pickle_no_memory(vm);
    vm->stack[vm->depth++] = node;
    return CKPT_OK;
}
ckpt_status ckpt__pickle_push_text(ckpt__pickle_vm *vm, ckpt__pickle_kind kind, const void *text, size_t n);
ckpt_status ckpt__pickle_push_int(ckpt__pickle_vm *vm, int64_t value);
/* Pops one; never below a mark. */
ckpt_status ckpt__pickle_pop(ckpt__pickle_vm *vm, ckpt__pickle_node **out);
/* The items above the last mark, which is taken away with them; they stay valid until the next push. */
ckpt_status ckpt__pickle_pop_mark(ckpt__pickle_vm *vm, ckpt__pickle_node ***items, size_t *n);
/* The object that an opcode works on stays on the stack. */
ckpt_status ckpt__pickle_top(ckpt__pickle_vm *vm, ckpt__pickle_node **out);
ckpt_status ckpt__pickle_append(ckpt__pickle_vm *vm, ckpt__pickle_list *list, ckpt__pickle_node *const *items,
                                size_t n);
ckpt_status ckpt__pickle_push_global(ckpt__pickle_vm *vm, const char *module, size_t module_size, const char *name,
                                     size_t name_size);

bool ckpt__pickle_note_persistent(ckpt__pickle *out, ckpt__arena *arena,
                                  ckpt__pickle_node *node); /* false: no memory */

ckpt_status ckpt__pickle_memo_put_slowly(ckpt__pickle_vm *vm, uint64_t index);
/* Picklers number one behind the other, and what they number is the top of the stack. */
static inline ckpt_status ckpt__pickle_memo_put(ckpt__pickle_vm *vm, uint64_t index)
{
    bool next = index == vm->memo_count && index < vm->memo_capacity && !vm->sparse;
    if (!next || vm->depth == (vm->mark_count ? vm->marks[vm->mark_count - 1] : 0))
        return ckpt__pickle_memo_put_slowly(vm, index);
    vm->memo[vm->memo_count++] = vm->stack[vm->depth - 1];
    vm->memo_entries++;
    return CKPT_OK;
}
ckpt_status ckpt__pickle_memo_get(ckpt__pickle_vm *vm, uint64_t index);
ckpt_status ckpt__pickle_op_pop(ckpt__pickle_vm *vm);

/* ---- pickle_scalars.c: constants, numbers, strings and bytes */
ckpt_status ckpt__pickle_op_none(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_newtrue(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_newfalse(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binint1(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binint2(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binint(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_long1(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_long4(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binfloat(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_short_binunicode(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binunicode(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binunicode8(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_short_binbytes(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binbytes(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binbytes8(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_bytearray8(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_short_binstring(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_binstring(ckpt__pickle_vm *vm);

/* ---- pickle_text.c: opcodes of protocol 0 whose arguments are lines of text */
ckpt_status ckpt__pickle_op_int(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_long(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_float(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_string(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_unicode(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_get(ckpt__pickle_vm *vm);
ckpt_status ckpt__pickle_op_put(ckpt__pickle_vm *vm);
/* n bytes, two's complement, little-endian: LONG1, LONG4. */
ckpt_status ckpt__pickle_push_long(ckpt__pickle_vm *vm, const unsigned char *bytes, size_t n);
/* Bytes of a Python 2 string: text where they are UTF-8, else bytes. */
ckpt_status ckpt__pickle_push_string(ckpt__pickle_vm *vm, const void *bytes, size_t n);
/* UTF-8 in which lone surrogates are allowed. */
bool ckpt__pickle_utf8(const char *data, size_t n);

#endif
