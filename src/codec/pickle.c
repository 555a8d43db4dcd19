/* codec/pickle.c - the machine: stack, marks, memo, and the loop. */
#include "codec/pickle_vm.h"

#include <stdio.h>
#include <stdlib.h>

ckpt_status ckpt__pickle_fail(ckpt__pickle_vm *vm, ckpt_status status, const char *format, ...)
{
    char text[512], opcode[24];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    unsigned char byte = vm->op_at < vm->size ? vm->data[vm->op_at] : 0;
    const char *name = ckpt__pickle_ops[byte].name;
    if (!name) {
        snprintf(opcode, sizeof opcode, "opcode 0x%02x", byte);
        name = opcode;
    }
    return ckpt__fail(vm->err, status, vm->label, "byte %zu, %s: %s", vm->op_at, name, text);
}

ckpt_status ckpt__pickle_no_memory(ckpt__pickle_vm *vm)
{
    if (ckpt__arena_over_limit(vm->arena))
        return ckpt__pickle_fail(
            vm, CKPT_E_LIMIT,
            "reading this pickle of %zu bytes would take more than %llu MiB of memory, which is the limit for "
            "a file of its size: no program that saves checkpoints writes such pickles",
            vm->size, (unsigned long long)(ckpt__arena_limit(vm->arena) >> 20));
    return ckpt__fail_memory(vm->err, vm->label, vm->size);
}

/* ---- input */

ckpt_status ckpt__pickle_cut_off(ckpt__pickle_vm *vm, uint64_t n)
{
    return ckpt__pickle_fail(vm, CKPT_E_DAMAGED,
                             "needs %llu bytes and %zu are left: the pickle is cut off, or a length in it "
                             "is wrong",
                             (unsigned long long)n, vm->size - vm->at);
}

ckpt_status ckpt__pickle_line(ckpt__pickle_vm *vm, const char **line, size_t *n)
{
    const unsigned char *from = vm->data + vm->at, *end = memchr(from, '\n', vm->size - vm->at);
    if (!end)
        return ckpt__pickle_fail(vm, CKPT_E_DAMAGED, "its line does not end: the pickle is cut off");
    *line = (const char *)from;
    *n = (size_t)(end - from);
    vm->at += *n + 1;
    return CKPT_OK;
}

/* ---- nodes and the stack */

ckpt__pickle_node *ckpt__pickle_new(ckpt__pickle_vm *vm, ckpt__pickle_kind kind)
{
    ckpt__pickle_node *node = ckpt__arena_alloc(vm->arena, sizeof *node);
    if (node) {
        node->kind = kind;
        ckpt__pickle_place(node, vm->op_at);
    }
    return node;
}

ckpt_status ckpt__pickle_push_text(ckpt__pickle_vm *vm, ckpt__pickle_kind kind, const void *text, size_t n)
{
    const size_t much = 4096; /* below it a copy costs nothing, and has a NUL */
    ckpt__pickle_node *node = ckpt__pickle_new(vm, kind);
    /* A text with escapes was put together elsewhere: only what stands in the pickle itself outlives this call. */
    bool stands = (uintptr_t)text - (uintptr_t)vm->data < vm->size;
    bool keep = vm->kept && stands && n >= much && (kind == CKPT__P_BYTES || kind == CKPT__P_BYTEARRAY);
    if (node && keep)
        node->u.text = (ckpt_str){text, n};
    else if (node && !(node->u.text = ckpt__arena_str(vm->arena, text, n)).data)
        node = NULL;
    return ckpt__pickle_push(vm, node);
}

/* Where the node of an int may be that was made before; NULL: nowhere. */
static ckpt__pickle_node **int_place(ckpt__pickle_vm *vm, int64_t value)
{
    enum { MANY = 4096, PLACES = 65536 };
    if (value >= 0 && value < CKPT__PICKLE_SMALL_INTS)
        return &vm->small_ints[value];
    if (vm->int_count < MANY)
        vm->int_count++;
    else if (!vm->ints)
        vm->ints = calloc(PLACES, sizeof(ckpt__pickle_node *));
    return vm->ints ? &vm->ints[(uint64_t)value % PLACES] : NULL;
}

ckpt_status ckpt__pickle_push_int(ckpt__pickle_vm *vm, int64_t value)
{
    ckpt__pickle_node **known = int_place(vm, value);
    if (known && *known && (*known)->u.integer == value)
        return ckpt__pickle_push(vm, *known);
    ckpt__pickle_node *node = ckpt__pickle_new(vm, CKPT__P_INT);
    if (node)
        node->u.integer = value;
    if (known)
        *known = node;
    return ckpt__pickle_push(vm, node);
}

static size_t fence(const ckpt__pickle_vm *vm)
{
    return vm->mark_count ? vm->marks[vm->mark_count - 1] : 0;
}

ckpt_status ckpt__pickle_top(ckpt__pickle_vm *vm, ckpt__pickle_node **out)
{
    if (vm->depth == fence(vm))
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "%s",
                                 vm->mark_count ? "nothing is left above the last MARK" : "the stack is empty");
    *out = vm->stack[vm->depth - 1];
    return CKPT_OK;
}

ckpt_status ckpt__pickle_pop(ckpt__pickle_vm *vm, ckpt__pickle_node **out)
{
    ckpt_status status = ckpt__pickle_top(vm, out);
    if (status == CKPT_OK)
        vm->depth--;
    return status;
}

ckpt_status ckpt__pickle_pop_mark(ckpt__pickle_vm *vm, ckpt__pickle_node ***items, size_t *n)
{
    if (vm->mark_count == 0)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "there is no MARK before it");
    size_t from = vm->marks[--vm->mark_count];
    *n = vm->depth - from;
    *items = *n ? vm->stack + from : NULL; /* nothing may have been pushed yet */
    vm->depth = from;
    return CKPT_OK;
}

/* The first batch is taken as it is (most lists come in one); later ones double the room. */
ckpt_status ckpt__pickle_append(ckpt__pickle_vm *vm, ckpt__pickle_list *list, ckpt__pickle_node *const *items, size_t n)
{
    if (n > UINT32_MAX - list->count)
        return ckpt__pickle_fail(vm, CKPT_E_LIMIT, "more than %u items of one object", UINT32_MAX);
    if (n > list->capacity - list->count) {
        size_t capacity = list->count + n;
        if (list->count && capacity < 2 * (size_t)list->count)
            capacity = list->count <= UINT32_MAX / 2 ? 2 * (size_t)list->count : UINT32_MAX;
        ckpt__pickle_node **fresh = ckpt__arena_array(vm->arena, capacity, sizeof *fresh);
        if (!fresh)
            return ckpt__pickle_no_memory(vm);
        if (list->count)
            memcpy(fresh, list->items, list->count * sizeof *fresh);
        list->items = fresh;
        list->capacity = (uint32_t)capacity;
    }
    if (n)
        memcpy(list->items + list->count, items, n * sizeof *items);
    list->count += (uint32_t)n;
    return CKPT_OK;
}

ckpt_status ckpt__pickle_push_global(ckpt__pickle_vm *vm, const char *module, size_t module_size, const char *name,
                                     size_t name_size)
{
    ckpt__pickle *out = vm->out;
    ckpt__pickle_node *node = ckpt__pickle_new(vm, CKPT__P_GLOBAL);
    if (!node || !(node->u.global = ckpt__arena_alloc(vm->arena, sizeof *node->u.global)) ||
        !ckpt__arena_grow(vm->arena, &out->globals, &out->global_capacity, out->global_count + 1, sizeof *out->globals))
        return ckpt__pickle_no_memory(vm);
    node->u.global->module = ckpt__arena_str(vm->arena, module, module_size);
    node->u.global->name = ckpt__arena_str(vm->arena, name, name_size);
    if (!node->u.global->module.data || !node->u.global->name.data)
        return ckpt__pickle_no_memory(vm);
    out->globals[out->global_count++] = (ckpt__pickle_global){node->u.global->module, node->u.global->name, vm->op_at};
    return ckpt__pickle_push(vm, node);
}

bool ckpt__pickle_note_persistent(ckpt__pickle *out, ckpt__arena *arena, ckpt__pickle_node *node)
{
    if (!ckpt__arena_grow(arena, &out->persistents, &out->persistent_capacity, out->persistent_count + 1, sizeof node))
        return false;
    out->persistents[out->persistent_count++] = node;
    return true;
}

/* ---- the memo */

enum { A_HASHED = 64 }; /* what a hash table takes for an entry, at most */

static ckpt_status sparse_put(ckpt__pickle_vm *vm, uint64_t index, ckpt__pickle_node *node)
{
    uint64_t *key = ckpt__arena_alloc(vm->arena, sizeof *key);
    if (!key || (!vm->sparse && !(vm->sparse = ckpt__hash_new(16))) || !ckpt__arena_charge(vm->arena, A_HASHED) ||
        !ckpt__arena_grow(vm->arena, &vm->sparse_nodes, &vm->sparse_capacity, vm->sparse_count + 1,
                          sizeof *vm->sparse_nodes))
        return ckpt__pickle_no_memory(vm);
    vm->sparse_charged += A_HASHED;
    *key = index;
    size_t at = vm->sparse_count;
    int put = ckpt__hash_put(vm->sparse, (const char *)key, sizeof *key, at, &at);
    if (put < 0)
        return ckpt__pickle_no_memory(vm);
    vm->sparse_nodes[at] = node;
    vm->sparse_count += put == 1;
    vm->memo_entries += put == 1;
    return CKPT_OK;
}

/* A hole of one is allowed in the array: some picklers begin with 1. */
ckpt_status ckpt__pickle_memo_put_slowly(ckpt__pickle_vm *vm, uint64_t index)
{
    ckpt__pickle_node *node = NULL;
    ckpt_status status = ckpt__pickle_top(vm, &node);
    if (status < 0)
        return status;
    if (index > (uint64_t)vm->memo_count + 1 ||
        (index >= vm->memo_count && vm->sparse && ckpt__hash_get(vm->sparse, (const char *)&index, sizeof index, NULL)))
        return sparse_put(vm, index, node);
    if (!ckpt__arena_grow(vm->arena, &vm->memo, &vm->memo_capacity, (size_t)index + 1, sizeof *vm->memo))
        return ckpt__pickle_no_memory(vm);
    while (vm->memo_count <= index)
        vm->memo[vm->memo_count++] = NULL;
    vm->memo_entries += !vm->memo[index];
    vm->memo[index] = node;
    return CKPT_OK;
}

/* An object that was made inside its own arguments is thrown away too, and the first one fetched in its place: no effect was
 * meant. */
static void look_at_popped(ckpt__pickle_vm *vm, const ckpt__pickle_node *got)
{
    const ckpt__pickle_object *call = vm->popped;
    vm->popped = NULL;
    if (vm->op_at != vm->popped_end || got->kind != CKPT__P_OBJECT || got->u.object->callable != call->callable)
        return;
    if (vm->given)
        vm->given->setter = vm->given->state = NULL;
    else
        vm->out->dropped--;
}

ckpt_status ckpt__pickle_memo_get(ckpt__pickle_vm *vm, uint64_t index)
{
    size_t at;
    ckpt__pickle_node *n = index < vm->memo_count ? vm->memo[index] : NULL;
    if (!n && vm->sparse && ckpt__hash_get(vm->sparse, (const char *)&index, sizeof index, &at))
        n = vm->sparse_nodes[at];
    if (!n)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "memo entry %llu was never put", (unsigned long long)index);
    if (vm->popped)
        look_at_popped(vm, n);
    return ckpt__pickle_push(vm, n);
}

/* ---- POP */

/* The sixth item of what __reduce__ gives: setter(object, state), called above the object and thrown away. The object; NULL:
 * the call is of another kind. */
static ckpt__pickle_object *given_by(const ckpt__pickle_vm *vm, const ckpt__pickle_object *call)
{
    ckpt__pickle_node *below = vm->depth > fence(vm) ? vm->stack[vm->depth - 1] : NULL;
    bool given = below && below->kind == CKPT__P_OBJECT && !below->u.object->state && call->args->u.list.count == 2 &&
                 call->args->u.list.items[0] == below;
    return given ? below->u.object : NULL;
}

static void note_call(ckpt__pickle_vm *vm, const ckpt__pickle_node *n)
{
    const ckpt__pickle_object *call = n->kind == CKPT__P_OBJECT ? n->u.object : NULL;
    if (!call || !call->args || call->call != CKPT__P_REDUCE)
        return;
    vm->popped = call;
    vm->popped_end = vm->at;
    vm->given = given_by(vm, call);
    if (vm->given) {
        vm->given->setter = call->callable;
        vm->given->state = call->args->u.list.items[1];
    } else if (vm->out->dropped++ == 0) {
        vm->out->dropped_first = call->callable;
    }
}

/* A MARK on top counts as an item, as it does in Python. */
ckpt_status ckpt__pickle_op_pop(ckpt__pickle_vm *vm)
{
    ckpt__pickle_node **items, *n = NULL;
    size_t count;
    if (vm->mark_count && vm->marks[vm->mark_count - 1] == vm->depth)
        return ckpt__pickle_pop_mark(vm, &items, &count);
    ckpt_status status = ckpt__pickle_pop(vm, &n);
    if (n)
        note_call(vm, n);
    return status;
}

/* ---- the loop */

static ckpt_status run(ckpt__pickle_vm *vm)
{
    while (!vm->stopped) {
        if (vm->at == vm->size)
            return ckpt__fail(vm->err, CKPT_E_DAMAGED, vm->label,
                              "the pickle ends at byte %zu without STOP: it is cut off", vm->size);
        vm->op_at = vm->at++;
        const ckpt__pickle_op *op = &ckpt__pickle_ops[vm->data[vm->op_at]];
        if (!op->name)
            return ckpt__pickle_fail(vm, CKPT_E_FORMAT,
                                     "no such opcode in protocols 0 to 5: this is not a pickle, or a damaged one");
        ckpt_status status = op->run(vm);
        if (status < 0)
            return status;
    }
    return CKPT_OK;
}

/* Frees the stack, the marks and the memo, which only the unpickling needed. */
static void release(ckpt__pickle_vm *vm)
{
    ckpt__arena_discharge(vm->arena, (uint64_t)vm->stack_capacity * sizeof *vm->stack +
                                         (uint64_t)vm->mark_capacity * sizeof *vm->marks +
                                         (uint64_t)vm->memo_capacity * sizeof *vm->memo +
                                         (uint64_t)vm->sparse_capacity * sizeof *vm->sparse_nodes + vm->sparse_charged);
    free(vm->stack);
    free(vm->marks);
    free(vm->memo);
    free(vm->ints);
    free(vm->sparse_nodes);
    ckpt__hash_free(vm->sparse);
}

static ckpt_status read(const void *data, size_t size, bool kept, const char *label, ckpt__arena *arena,
                        ckpt__pickle *out, ckpt_error *err)
{
    memset(out, 0, sizeof *out);
    ckpt__pickle_vm vm = {.data = data, .size = size, .label = label, .arena = arena, .out = out, .err = err};
    vm.kept = kept;
    vm.none = ckpt__pickle_new(&vm, CKPT__P_NONE);
    vm.yes = ckpt__pickle_new(&vm, CKPT__P_BOOL);
    vm.no = ckpt__pickle_new(&vm, CKPT__P_BOOL);
    vm.empty_tuple = ckpt__pickle_new(&vm, CKPT__P_TUPLE);
    ckpt_status status;
    if (vm.none && vm.yes && vm.no && vm.empty_tuple) {
        vm.yes->boolean = true;
        status = run(&vm);
    } else {
        status = ckpt__fail_memory(err, label, size);
    }
    if (status < 0)
        out->root = NULL;
    out->end = vm.at;
    release(&vm);
    return status;
}

ckpt_status ckpt__pickle_read(const void *data, size_t size, const char *label, ckpt__arena *arena, ckpt__pickle *out,
                              ckpt_error *err)
{
    return read(data, size, false, label, arena, out, err);
}

ckpt_status ckpt__pickle_read_kept(const void *data, size_t size, const char *label, ckpt__arena *arena,
                                   ckpt__pickle *out, ckpt_error *err)
{
    return read(data, size, true, label, arena, out, err);
}

void ckpt__pickle_free(ckpt__pickle *p)
{
    free(p->persistents);
    p->persistents = NULL;
    p->persistent_count = p->persistent_capacity = 0;
    free(p->globals);
    p->globals = NULL;
    p->global_count = p->global_capacity = 0;
}

bool ckpt__pickle_is_global(const ckpt__pickle_node *node, const char *module, const char *name)
{
    return node && node->kind == CKPT__P_GLOBAL && ckpt__str_is(node->u.global->module, module) &&
           ckpt__str_is(node->u.global->name, name);
}

ckpt__pickle_node *ckpt__pickle_get(const ckpt__pickle_node *dict, const char *key)
{
    if (!dict || dict->kind != CKPT__P_DICT)
        return NULL;
    for (size_t i = dict->u.list.count; i >= 2; i -= 2) {
        const ckpt__pickle_node *k = dict->u.list.items[i - 2];
        if (k->kind == CKPT__P_STR && ckpt__str_is(k->u.text, key))
            return dict->u.list.items[i - 1];
    }
    return NULL;
}
