/* codec/pickle_ops.c - the opcodes, by Lib/pickletools.py. A name here is the name there. */
#include "codec/pickle_vm.h"

typedef ckpt__pickle_vm vm_t;
typedef ckpt__pickle_node node_t;
static const char *const kind_names[] = {"None",     "a bool",      "an int",      "an int",   "a float",
                                         "a str",    "bytes",       "a bytearray", "a list",   "a tuple",
                                         "a set",    "a frozenset", "a dict",      "a global", "a persistent object",
                                         "an object"};

static const char *kind_name(const node_t *n)
{
    return kind_names[n->kind];
}

/* ---- the stack */
static ckpt_status op_mark(vm_t *vm)
{
    if (!ckpt__arena_grow(vm->arena, &vm->marks, &vm->mark_capacity, vm->mark_count + 1, sizeof *vm->marks))
        return ckpt__pickle_no_memory(vm);
    vm->marks[vm->mark_count++] = vm->depth;
    return CKPT_OK;
}
static ckpt_status op_pop_mark(vm_t *vm)
{
    node_t **items;
    size_t n;
    return ckpt__pickle_pop_mark(vm, &items, &n);
}
static ckpt_status op_dup(vm_t *vm)
{
    node_t *n;
    ckpt_status status = ckpt__pickle_top(vm, &n);
    return status < 0 ? status : ckpt__pickle_push(vm, n);
}
static ckpt_status memo_number(vm_t *vm, unsigned width, ckpt_status (*then)(vm_t *, uint64_t))
{
    uint64_t index;
    ckpt_status status = ckpt__pickle_number(vm, width, &index);
    return status < 0 ? status : then(vm, index);
}
static ckpt_status op_binget(vm_t *vm)
{
    return memo_number(vm, 1, ckpt__pickle_memo_get);
}
static ckpt_status op_long_binget(vm_t *vm)
{
    return memo_number(vm, 4, ckpt__pickle_memo_get);
}
static ckpt_status op_binput(vm_t *vm)
{
    return memo_number(vm, 1, ckpt__pickle_memo_put);
}
static ckpt_status op_long_binput(vm_t *vm)
{
    return memo_number(vm, 4, ckpt__pickle_memo_put);
}
static ckpt_status op_memoize(vm_t *vm)
{
    return ckpt__pickle_memo_put(vm, vm->memo_entries);
}

/* ---- containers */
static ckpt_status push_empty(vm_t *vm, ckpt__pickle_kind kind)
{
    return ckpt__pickle_push(vm, ckpt__pickle_new(vm, kind));
}
static ckpt_status op_empty_list(vm_t *vm)
{
    return push_empty(vm, CKPT__P_LIST);
}
static ckpt_status op_empty_dict(vm_t *vm)
{
    return push_empty(vm, CKPT__P_DICT);
}
static ckpt_status op_empty_set(vm_t *vm)
{
    return push_empty(vm, CKPT__P_SET);
}
static ckpt_status op_empty_tuple(vm_t *vm)
{
    return ckpt__pickle_push(vm, vm->empty_tuple);
}

static bool hashable(const node_t *key)
{
    return key->kind != CKPT__P_LIST && key->kind != CKPT__P_DICT && key->kind != CKPT__P_SET &&
           key->kind != CKPT__P_BYTEARRAY;
}

static ckpt_status check_pairs(vm_t *vm, node_t *const *items, size_t n)
{
    if (n % 2)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "a key without a value");
    for (size_t i = 0; i < n; i += 2)
        if (!hashable(items[i]))
            return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "%s cannot be a key", kind_name(items[i]));
    return CKPT_OK;
}

static ckpt_status sequence(vm_t *vm, ckpt__pickle_kind kind, node_t *const *items, size_t n)
{
    if (kind == CKPT__P_TUPLE && n == 0)
        return ckpt__pickle_push(vm, vm->empty_tuple);
    if (kind == CKPT__P_DICT && check_pairs(vm, items, n) < 0)
        return CKPT_E_FORMAT;
    node_t *node = ckpt__pickle_new(vm, kind);
    if (!node)
        return ckpt__pickle_no_memory(vm);
    ckpt_status status = ckpt__pickle_append(vm, &node->u.list, items, n);
    return status < 0 ? status : ckpt__pickle_push(vm, node);
}
static ckpt_status marked(vm_t *vm, ckpt__pickle_kind kind)
{
    node_t **items;
    size_t n;
    ckpt_status status = ckpt__pickle_pop_mark(vm, &items, &n);
    return status < 0 ? status : sequence(vm, kind, items, n);
}
static ckpt_status op_tuple(vm_t *vm)
{
    return marked(vm, CKPT__P_TUPLE);
}
static ckpt_status op_list(vm_t *vm)
{
    return marked(vm, CKPT__P_LIST);
}
static ckpt_status op_dict(vm_t *vm)
{
    return marked(vm, CKPT__P_DICT);
}
static ckpt_status op_frozenset(vm_t *vm)
{
    return marked(vm, CKPT__P_FROZENSET);
}
static ckpt_status tuple_of(vm_t *vm, size_t n)
{
    node_t *items[3];
    for (size_t i = n; i-- > 0;) {
        ckpt_status status = ckpt__pickle_pop(vm, &items[i]);
        if (status < 0)
            return status;
    }
    return sequence(vm, CKPT__P_TUPLE, items, n);
}
static ckpt_status op_tuple1(vm_t *vm)
{
    return tuple_of(vm, 1);
}
static ckpt_status op_tuple2(vm_t *vm)
{
    return tuple_of(vm, 2);
}
static ckpt_status op_tuple3(vm_t *vm)
{
    return tuple_of(vm, 3);
}

/* The objects into which torch's weights_only unpickler puts items. */
static bool is_python_dict(const node_t *callable, ckpt__pickle_kind kind)
{
    return kind == CKPT__P_DICT && (ckpt__pickle_is_global(callable, "collections", "OrderedDict") ||
                                    ckpt__pickle_is_global(callable, "collections", "Counter"));
}

/* Where items go; SETITEM is for dicts and objects alone: on anything else it is an attack on readers that do not look.
 */
static ckpt_status add(vm_t *vm, ckpt__pickle_kind kind, node_t *const *items, size_t n)
{
    node_t *to;
    ckpt_status status = ckpt__pickle_top(vm, &to);
    if (status < 0)
        return status;
    ckpt__pickle_list *list = NULL;
    if (to->kind == CKPT__P_OBJECT && !vm->out->strange && !is_python_dict(to->u.object->callable, kind))
        vm->out->strange =
            kind == CKPT__P_DICT ? "SETITEM on something other than a dict" : "APPEND on something other than a list";
    if (to->kind == CKPT__P_OBJECT)
        list = kind == CKPT__P_DICT ? &to->u.object->entries : &to->u.object->items;
    else if (to->kind == kind)
        list = &to->u.list;
    if (!list)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "works on %s or an object, not on %s", kind_names[kind],
                                 kind_name(to));
    if (kind == CKPT__P_DICT && check_pairs(vm, items, n) < 0)
        return CKPT_E_FORMAT;
    if (to->boolean && !vm->out->late) {
        vm->out->late = true;
        vm->out->late_at = vm->op_at;
    }
    return ckpt__pickle_append(vm, list, items, n);
}
static ckpt_status add_marked(vm_t *vm, ckpt__pickle_kind kind)
{
    node_t **items;
    size_t n;
    ckpt_status status = ckpt__pickle_pop_mark(vm, &items, &n);
    return status < 0 ? status : add(vm, kind, items, n);
}
static ckpt_status op_appends(vm_t *vm)
{
    return add_marked(vm, CKPT__P_LIST);
}
static ckpt_status op_additems(vm_t *vm)
{
    return add_marked(vm, CKPT__P_SET);
}
static ckpt_status op_setitems(vm_t *vm)
{
    return add_marked(vm, CKPT__P_DICT);
}
static ckpt_status op_append(vm_t *vm)
{
    node_t *item;
    ckpt_status status = ckpt__pickle_pop(vm, &item);
    return status < 0 ? status : add(vm, CKPT__P_LIST, &item, 1);
}
static ckpt_status op_setitem(vm_t *vm)
{
    node_t *pair[2];
    ckpt_status status = ckpt__pickle_pop(vm, &pair[1]);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &pair[0]);
    return status < 0 ? status : add(vm, CKPT__P_DICT, pair, 2);
}

/* ---- globals and objects */
static ckpt_status op_global(vm_t *vm)
{
    const char *module, *name;
    size_t module_size, name_size;
    ckpt_status status = ckpt__pickle_line(vm, &module, &module_size);
    if (status == CKPT_OK)
        status = ckpt__pickle_line(vm, &name, &name_size);
    if (status < 0)
        return status;
    if (!ckpt__pickle_utf8(module, module_size) || !ckpt__pickle_utf8(name, name_size))
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "names that are not UTF-8");
    return ckpt__pickle_push_global(vm, module, module_size, name, name_size);
}
static ckpt_status op_stack_global(vm_t *vm)
{
    node_t *module, *name;
    ckpt_status status = ckpt__pickle_pop(vm, &name);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &module);
    if (status < 0)
        return status;
    if (module->kind != CKPT__P_STR || name->kind != CKPT__P_STR)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "module and name must be strs, not %s and %s", kind_name(module),
                                 kind_name(name));
    return ckpt__pickle_push_global(vm, module->u.text.data, module->u.text.size, name->u.text.data, name->u.text.size);
}

static inline bool has_content(const node_t *n)
{
    return (1u << n->kind & (1u << CKPT__P_LIST | 1u << CKPT__P_DICT)) != 0;
}

/* Functions of these look at what they are given at once; other classes may keep the list itself, and an object that is in a
 * list that it is made of is written so. */
static bool takes_content(const node_t *callable)
{
    if (callable->kind != CKPT__P_GLOBAL)
        return false;
    const ckpt_str module = callable->u.global->module;
    return ckpt__str_begins(module, "torch") || ckpt__str_is(module, "collections") ||
           ckpt__str_is(module, "builtins") || ckpt__str_is(module, "__builtin__");
}

static void note_given(const node_t *callable, const node_t *args)
{
    for (uint32_t i = 0; i < args->u.list.count; i++)
        if (has_content(args->u.list.items[i]) && takes_content(callable))
            args->u.list.items[i]->boolean = true;
}

static ckpt_status push_object(vm_t *vm, ckpt__pickle_call call, node_t *callable, node_t *args, node_t *kwargs)
{
    if (callable->kind != CKPT__P_GLOBAL && callable->kind != CKPT__P_OBJECT && callable->kind != CKPT__P_PERSISTENT)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "calls %s", kind_name(callable));
    if (args->kind != CKPT__P_TUPLE)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "the arguments must be a tuple, not %s", kind_name(args));
    if (kwargs && kwargs->kind != CKPT__P_DICT)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "the keyword arguments must be a dict, not %s", kind_name(kwargs));
    node_t *n = ckpt__pickle_new(vm, CKPT__P_OBJECT);
    if (!n || !(n->u.object = ckpt__arena_alloc(vm->arena, sizeof *n->u.object)))
        return ckpt__pickle_no_memory(vm);
    n->u.object->call = call;
    n->u.object->callable = callable;
    n->u.object->args = args;
    n->u.object->kwargs = kwargs;
    note_given(callable, args);
    return ckpt__pickle_push(vm, n);
}
static ckpt_status call_of(vm_t *vm, ckpt__pickle_call call)
{
    node_t *callable, *args, *kwargs = NULL;
    ckpt_status status = call == CKPT__P_NEWOBJ_EX ? ckpt__pickle_pop(vm, &kwargs) : CKPT_OK;
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &args);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &callable);
    return status < 0 ? status : push_object(vm, call, callable, args, kwargs);
}
static ckpt_status op_reduce(vm_t *vm)
{
    return call_of(vm, CKPT__P_REDUCE);
}
static ckpt_status op_newobj(vm_t *vm)
{
    return call_of(vm, CKPT__P_NEWOBJ);
}
static ckpt_status op_newobj_ex(vm_t *vm)
{
    return call_of(vm, CKPT__P_NEWOBJ_EX);
}
/* MARK, class, arguments, OBJ */
static ckpt_status op_obj(vm_t *vm)
{
    node_t **items, *callable, *args;
    size_t n;
    ckpt_status status = ckpt__pickle_pop_mark(vm, &items, &n);
    if (status < 0)
        return status;
    if (n == 0)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "no class above the last MARK");
    callable = items[0];
    status = sequence(vm, CKPT__P_TUPLE, items + 1, n - 1);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &args);
    return status < 0 ? status : push_object(vm, CKPT__P_OBJ, callable, args, NULL);
}
/* MARK, arguments, INST module name */
static ckpt_status op_inst(vm_t *vm)
{
    node_t *callable, *args;
    ckpt_status status = op_tuple(vm);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &args);
    if (status == CKPT_OK)
        status = op_global(vm);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &callable);
    return status < 0 ? status : push_object(vm, CKPT__P_INST, callable, args, NULL);
}
static ckpt_status op_build(vm_t *vm)
{
    node_t *state, *to;
    ckpt_status status = ckpt__pickle_pop(vm, &state);
    if (status == CKPT_OK)
        status = ckpt__pickle_top(vm, &to);
    if (status < 0)
        return status;
    if (to->kind != CKPT__P_OBJECT)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "gives a state to %s; only objects have one", kind_name(to));
    if (to->u.object->state)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "gives the same object a second state");
    to->u.object->state = state;
    if (has_content(state))
        state->boolean = true;
    return CKPT_OK;
}
static ckpt_status push_persistent(vm_t *vm, node_t *id)
{
    node_t *n = ckpt__pickle_new(vm, CKPT__P_PERSISTENT);
    if (n)
        n->u.id = id;
    return n && ckpt__pickle_note_persistent(vm->out, vm->arena, n) ? ckpt__pickle_push(vm, n)
                                                                    : ckpt__pickle_no_memory(vm);
}
static ckpt_status op_binpersid(vm_t *vm)
{
    node_t *id;
    ckpt_status status = ckpt__pickle_pop(vm, &id);
    return status < 0 ? status : push_persistent(vm, id);
}
static ckpt_status op_persid(vm_t *vm)
{
    const char *line;
    size_t size;
    node_t *id;
    ckpt_status status = ckpt__pickle_line(vm, &line, &size);
    if (status == CKPT_OK)
        status = ckpt__pickle_push_string(vm, line, size);
    if (status == CKPT_OK)
        status = ckpt__pickle_pop(vm, &id);
    vm->out->text_persid = true;
    return status < 0 ? status : push_persistent(vm, id);
}

/* ---- the rest */
static ckpt_status op_proto(vm_t *vm)
{
    uint64_t version;
    ckpt_status status = ckpt__pickle_number(vm, 1, &version);
    if (status < 0)
        return status;
    if (version > 5)
        return ckpt__pickle_fail(vm, CKPT_E_TOO_NEW, "protocol %u; 0 to 5 are read", (unsigned)version);
    vm->out->protocol = (unsigned)version;
    return CKPT_OK;
}
/* A frame says how much to read ahead; its end means nothing to the machine. */
static ckpt_status op_frame(vm_t *vm)
{
    uint64_t n;
    ckpt_status status = ckpt__pickle_number(vm, 8, &n);
    if (status < 0)
        return status;
    if (n > vm->size - vm->at)
        return ckpt__pickle_fail(vm, CKPT_E_DAMAGED, "a frame of %llu bytes where %zu are left: the pickle is cut off",
                                 (unsigned long long)n, vm->size - vm->at);
    return CKPT_OK;
}
/* Python takes the top and forgets what lies below it. */
static ckpt_status op_stop(vm_t *vm)
{
    ckpt_status status = ckpt__pickle_pop(vm, &vm->out->root);
    vm->out->left = vm->depth + vm->mark_count;
    vm->stopped = true;
    return status;
}
static ckpt_status op_extension(vm_t *vm)
{
    return ckpt__pickle_fail(vm, CKPT_E_UNSUPPORTED,
                             "a global by its number in copyreg's registry: only the program that wrote "
                             "it knows which one; torch does not read it either");
}
static ckpt_status op_buffer(vm_t *vm)
{
    return ckpt__pickle_fail(vm, CKPT_E_UNSUPPORTED, "an out-of-band buffer, whose bytes are not in this pickle");
}

static ckpt_status op_strange(vm_t *vm)
{
    const ckpt__pickle_op *op = &ckpt__pickle_ops[vm->data[vm->op_at]];
    if (!vm->out->strange)
        vm->out->strange = op->name;
    return op->then(vm);
}

const ckpt__pickle_op ckpt__pickle_ops[256] = {
    ['('] = {"MARK", op_mark, NULL},
    ['.'] = {"STOP", op_stop, NULL},
    ['0'] = {"POP", op_strange, ckpt__pickle_op_pop},
    ['1'] = {"POP_MARK", op_strange, op_pop_mark},
    ['2'] = {"DUP", op_strange, op_dup},
    ['F'] = {"FLOAT", op_strange, ckpt__pickle_op_float},
    ['I'] = {"INT", op_strange, ckpt__pickle_op_int},
    ['J'] = {"BININT", ckpt__pickle_op_binint, NULL},
    ['K'] = {"BININT1", ckpt__pickle_op_binint1, NULL},
    ['L'] = {"LONG", op_strange, ckpt__pickle_op_long},
    ['M'] = {"BININT2", ckpt__pickle_op_binint2, NULL},
    ['N'] = {"NONE", ckpt__pickle_op_none, NULL},
    ['P'] = {"PERSID", op_strange, op_persid},
    ['Q'] = {"BINPERSID", op_binpersid, NULL},
    ['R'] = {"REDUCE", op_reduce, NULL},
    ['S'] = {"STRING", op_strange, ckpt__pickle_op_string},
    ['T'] = {"BINSTRING", op_strange, ckpt__pickle_op_binstring},
    ['U'] = {"SHORT_BINSTRING", ckpt__pickle_op_short_binstring, NULL},
    ['V'] = {"UNICODE", op_strange, ckpt__pickle_op_unicode},
    ['X'] = {"BINUNICODE", ckpt__pickle_op_binunicode, NULL},
    ['a'] = {"APPEND", op_append, NULL},
    ['b'] = {"BUILD", op_build, NULL},
    ['c'] = {"GLOBAL", op_global, NULL},
    ['d'] = {"DICT", op_strange, op_dict},
    ['}'] = {"EMPTY_DICT", op_empty_dict, NULL},
    ['e'] = {"APPENDS", op_appends, NULL},
    ['g'] = {"GET", op_strange, ckpt__pickle_op_get},
    ['h'] = {"BINGET", op_binget, NULL},
    ['i'] = {"INST", op_strange, op_inst},
    ['j'] = {"LONG_BINGET", op_long_binget, NULL},
    ['l'] = {"LIST", op_strange, op_list},
    [']'] = {"EMPTY_LIST", op_empty_list, NULL},
    ['o'] = {"OBJ", op_strange, op_obj},
    ['p'] = {"PUT", op_strange, ckpt__pickle_op_put},
    ['q'] = {"BINPUT", op_binput, NULL},
    ['r'] = {"LONG_BINPUT", op_long_binput, NULL},
    ['s'] = {"SETITEM", op_setitem, NULL},
    ['t'] = {"TUPLE", op_tuple, NULL},
    [')'] = {"EMPTY_TUPLE", op_empty_tuple, NULL},
    ['u'] = {"SETITEMS", op_setitems, NULL},
    ['G'] = {"BINFLOAT", ckpt__pickle_op_binfloat, NULL},
    [0x80] = {"PROTO", op_proto, NULL},
    [0x81] = {"NEWOBJ", op_newobj, NULL},
    [0x82] = {"EXT1", op_strange, op_extension},
    [0x83] = {"EXT2", op_strange, op_extension},
    [0x84] = {"EXT4", op_strange, op_extension},
    [0x85] = {"TUPLE1", op_tuple1, NULL},
    [0x86] = {"TUPLE2", op_tuple2, NULL},
    [0x87] = {"TUPLE3", op_tuple3, NULL},
    [0x88] = {"NEWTRUE", ckpt__pickle_op_newtrue, NULL},
    [0x89] = {"NEWFALSE", ckpt__pickle_op_newfalse, NULL},
    [0x8a] = {"LONG1", ckpt__pickle_op_long1, NULL},
    [0x8b] = {"LONG4", op_strange, ckpt__pickle_op_long4},
    ['B'] = {"BINBYTES", op_strange, ckpt__pickle_op_binbytes},
    ['C'] = {"SHORT_BINBYTES", op_strange, ckpt__pickle_op_short_binbytes},
    [0x8c] = {"SHORT_BINUNICODE", op_strange, ckpt__pickle_op_short_binunicode},
    [0x8d] = {"BINUNICODE8", op_strange, ckpt__pickle_op_binunicode8},
    [0x8e] = {"BINBYTES8", op_strange, ckpt__pickle_op_binbytes8},
    [0x8f] = {"EMPTY_SET", op_empty_set, NULL},
    [0x90] = {"ADDITEMS", op_strange, op_additems},
    [0x91] = {"FROZENSET", op_strange, op_frozenset},
    [0x92] = {"NEWOBJ_EX", op_strange, op_newobj_ex},
    [0x93] = {"STACK_GLOBAL", op_strange, op_stack_global},
    [0x94] = {"MEMOIZE", op_strange, op_memoize},
    [0x95] = {"FRAME", op_strange, op_frame},
    [0x96] = {"BYTEARRAY8", op_strange, ckpt__pickle_op_bytearray8},
    [0x97] = {"NEXT_BUFFER", op_strange, op_buffer},
    [0x98] = {"READONLY_BUFFER", op_strange, op_buffer},
};
