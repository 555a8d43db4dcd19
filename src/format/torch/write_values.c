/* format/torch/write_values.c - the value tree -> a graph of pickle nodes. Plain values are written from the tree. What
 * is opaque is copied from the pickle that it was read from, node by node; where a node has a value of its own, that one
 * counts: so what was changed in the tree is changed everywhere. A node is filled when its turn comes to be counted, and once
 * more to be written; identity is that of the node that was read, or else of the value. */
#include "format/torch/torch.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>
#include "model/training.h"

typedef ckpt__torch_writer writer;

ckpt_status ckpt__torch_put_failed(writer *w)
{
    return ckpt__fail_memory(w->err, "a pickle", w->lasting ? ckpt__arena_used(w->lasting) : 0);
}

ckpt_status ckpt__torch_put_lost(writer *w, size_t n, const char *format, ...)
{
    char text[300];
    ckpt_str name = {NULL, 0};
    va_list ap;
    if (!w->p->lost || w->writing)
        return CKPT_OK;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < w->p->index->tensor_count)
        name = w->p->index->tensors[n].info.name;
    bool added = ckpt__report_add(w->p->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", text) &&
                 ckpt__report_tensor(w->p->lost, name);
    return added ? CKPT_OK : ckpt__torch_put_failed(w);
}

/* ---- which node is to be made */

const ckpt_value *ckpt__torch_user(const writer *w, const ckpt__pickle_node *n)
{
    return ckpt__edits_now(w->p->edits, n->user);
}

/* By addresses, which are ours: a table for the text of files would take three times the memory. */
static ckpt__torch_made *slot_of(const writer *w, const void *identity)
{
    uint64_t mixed = (uint64_t)(uintptr_t)identity * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(mixed >> 32 ^ mixed) & w->made_mask;
    while (w->made[i].identity && w->made[i].identity != identity)
        i = (i + 1) & w->made_mask;
    return &w->made[i];
}

/* At most three quarters are taken. */
static bool room_for_one(writer *w)
{
    size_t slots = w->made ? w->made_mask + 1 : 0;
    if (w->made_count < slots / 4 * 3)
        return true;
    ckpt__torch_made *old = w->made,
                     *fresh = slots > SIZE_MAX / 2 ? NULL : calloc(slots ? slots * 2 : 64, sizeof *fresh);
    if (!fresh)
        return false;
    w->made = fresh;
    w->made_mask = (slots ? slots * 2 : 64) - 1;
    for (size_t i = 0; i < slots; i++)
        if (old[i].identity)
            *slot_of(w, old[i].identity) = old[i];
    free(old);
    return true;
}

/* Its content is that of the value, or of the node: `boolean` says that it is a value. */
static ckpt__out *out_of(writer *w, const void *identity, const ckpt_value *value, const ckpt__pickle_node *from)
{
    if (!room_for_one(w))
        return NULL;
    ckpt__torch_made *made = slot_of(w, identity);
    if (made->identity)
        return made->to;
    ckpt__out *to = ckpt__pickle_make_later(w->lasting, value ? (const void *)value : from);
    if (!to)
        return NULL;
    to->boolean = value != NULL;
    *made = (ckpt__torch_made){identity, to};
    w->made_count++;
    return to;
}

/* A string that was read keeps its identity too, so that a pickle comes out as it went in. */
static ckpt__out *copy_text(writer *w, const ckpt__pickle_node *from)
{
    ckpt__out *to = out_of(w, from, NULL, from);
    if (to && to->known == CKPT__PICKLE_LATER) {
        to->known = 0;
        to->kind = from->kind;
        to->u = from->u;
    }
    return to;
}

static ckpt__out *put_real(writer *w, double v)
{
    ckpt__out *to = ckpt__pickle_make(w->arena, CKPT__P_FLOAT);
    if (to)
        to->u.real = v;
    return to;
}

ckpt__out *ckpt__torch_put_int(writer *w, int64_t value)
{
    if (value < 0 || value >= CKPT__TORCH_INTS)
        return ckpt__pickle_make_int(w->arena, value);
    ckpt__out **known = &w->ints[value];
    return *known ? *known : (*known = ckpt__pickle_make_int(w->lasting, value));
}

ckpt__out *ckpt__torch_put_bool(writer *w, bool value)
{
    return w->bools[value] ? w->bools[value] : (w->bools[value] = ckpt__pickle_make_bool(w->lasting, value));
}

ckpt__out *ckpt__torch_put_value(writer *w, const ckpt_value *v)
{
    v = ckpt__edits_now(w->p->edits, v); /* of a call's argument, which no walk of the tree comes to */
    switch (v->kind) {
    case CKPT_V_NONE:
        return ckpt__pickle_make(w->arena, CKPT__P_NONE);
    case CKPT_V_BOOL:
        return ckpt__torch_put_bool(w, v->boolean);
    case CKPT_V_INT:
        return ckpt__torch_put_int(w, v->integer);
    case CKPT_V_FLOAT:
        return put_real(w, v->real);
    case CKPT_V_BIGINT:
        return ckpt__pickle_make_text(w->arena, CKPT__P_BIGINT, v->text);
    default:
        break;
    }
    /* A copy of a value that kept its origin is another object than the value. */
    const ckpt__pickle_node *origin = v->origin;
    bool own = origin && ckpt__torch_user(w, origin) == v;
    if (v->kind == CKPT_V_STR && own && origin->kind == CKPT__P_STR && ckpt__str_equal(origin->u.text, v->text))
        return copy_text(w, origin);
    if (v->kind == CKPT_V_STR)
        return ckpt__pickle_make_text(w->arena, CKPT__P_STR, v->text);
    return out_of(w, own ? (const void *)origin : v, v, NULL);
}

ckpt__out *ckpt__torch_put_node(writer *w, const ckpt__pickle_node *n)
{
    const ckpt_value *user = ckpt__torch_user(w, n);
    if (user)
        return ckpt__torch_put_value(w, user);
    switch (n->kind) {
    case CKPT__P_BOOL:
        return ckpt__torch_put_bool(w, n->boolean);
    case CKPT__P_INT:
        return ckpt__torch_put_int(w, n->u.integer);
    case CKPT__P_NONE:
    case CKPT__P_BIGINT:
    case CKPT__P_FLOAT: {
        ckpt__out *to = ckpt__pickle_make(w->arena, n->kind);
        if (to) {
            to->boolean = n->boolean;
            to->u = n->u;
        }
        return to;
    }
    case CKPT__P_STR:
        return copy_text(w, n);
    case CKPT__P_TUPLE:
        if (n->u.list.count == 0)
            return ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, 0); /* there is only one */
        return out_of(w, n, NULL, n);
    default:
        return out_of(w, n, NULL, n);
    }
}

/* ---- contents */

/* A name with a dot in it needs protocol 4, in which names are those of Python 3: that is known when all were counted. */
static void note_global(writer *w, const ckpt__out *g)
{
    if (!w->writing)
        w->dotted |= ckpt__pickle_is_dotted(g);
    else if (w->dotted)
        ckpt__torch_python3(&g->u.global->module, &g->u.global->name);
}

/* The names become the copy's own. */
static bool copy_global(writer *w, const ckpt__pickle_node *from, ckpt__out *to)
{
    if (!(to->u.global = ckpt__arena_alloc(w->arena, sizeof *to->u.global)))
        return false;
    *to->u.global = *from->u.global;
    note_global(w, to);
    return true;
}

ckpt__out *ckpt__torch_put_callable(writer *w, const ckpt__pickle_node *n)
{
    const ckpt_value *v = ckpt__torch_user(w, n);
    if (n->kind != CKPT__P_GLOBAL || !v || v->kind == CKPT_V_CLASS)
        return ckpt__torch_put_node(w, n);
    ckpt__out *to = ckpt__pickle_make(w->arena, CKPT__P_GLOBAL);
    return to && copy_global(w, n, to) ? to : NULL;
}

ckpt__out *ckpt__torch_put_global(writer *w, const char *module, const char *name)
{
    for (size_t i = 0; i < CKPT__TORCH_RECENT && w->recent[i]; i++)
        if (ckpt__str_is(w->recent[i]->u.global->name, name) && ckpt__str_is(w->recent[i]->u.global->module, module))
            return w->recent[i];
    ckpt__out *g = ckpt__pickle_make_global(w->lasting, ckpt__s(module), ckpt__s(name));
    if (!g)
        return NULL;
    note_global(w, g);
    w->recent[w->next_recent++ % CKPT__TORCH_RECENT] = g;
    return g;
}

static bool copy_list(writer *w, const ckpt__pickle_list *from, ckpt__pickle_list *to)
{
    if (!from->count)
        return true; /* to is all zero */
    to->items = ckpt__arena_array(w->arena, from->count, sizeof *to->items);
    if (!to->items)
        return false;
    to->count = to->capacity = from->count;
    for (size_t i = 0; i < from->count; i++)
        if (!(to->items[i] = ckpt__torch_put_node(w, from->items[i])))
            return false;
    return true;
}

bool ckpt__torch_holds(const ckpt__edits *edits, const ckpt_value *v)
{
    const ckpt__pickle_node *n = v->origin;
    if (v->kind != CKPT_V_OBJECT || !n || ckpt__edits_now(edits, n->user) != v || n->kind != CKPT__P_OBJECT ||
        n->u.object->kwargs)
        return false;
    const ckpt__pickle_object *o = n->u.object;
    if (ckpt__pickle_is_global(o->callable, "collections", "defaultdict"))
        return o->items.count == 0;
    const ckpt__pickle_node *first = ckpt__torch_item(o->args, 0); /* what the constructor gets holds none of them */
    bool bare = !first || ((first->kind == CKPT__P_TUPLE || first->kind == CKPT__P_LIST) && first->u.list.count == 0);
    return ckpt__pickle_is_global(o->callable, "collections", "deque") && bare && o->entries.count == 0;
}

bool ckpt__torch_is_closed(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT && v->origin && ckpt__torch_is_tensor(v->origin);
}

bool ckpt__torch_looks_at(const ckpt__index *x, const ckpt_value *v, const bool *whole, size_t *storage)
{
    const ckpt__pickle_node *stack[64];
    size_t depth = 0;
    if (v->kind == CKPT_V_OBJECT && v->origin)
        stack[depth++] = v->origin;
    bool closed = ckpt__torch_is_closed(v);
    while (depth) {
        const ckpt__pickle_node *n = stack[--depth];
        if (ckpt__index_storage_of(x, n, storage) > 0) {
            if (!whole[*storage])
                return true;
            continue;
        }
        const ckpt__pickle_node *args = n->kind == CKPT__P_OBJECT ? n->u.object->args : n;
        for (size_t i = 0; closed && i < ckpt__torch_length(args) && depth < sizeof stack / sizeof *stack; i++)
            stack[depth++] = ckpt__torch_item(args, i);
    }
    return false;
}

/* What it holds, as the value has it. */
static bool put_held(writer *w, const ckpt_value *v, ckpt__pickle_object *o)
{
    ckpt__out *items = ckpt__pickle_make_list(w->arena, CKPT__P_LIST, v->item_count),
              *entries = ckpt__pickle_make_list(w->arena, CKPT__P_DICT, 2 * v->entry_count);
    bool ok = items && entries;
    for (size_t i = 0; ok && i < v->item_count; i++)
        ok = (items->u.list.items[i] = ckpt__torch_put_value(w, v->items[i])) != NULL;
    for (size_t i = 0; ok && i < v->entry_count; i++)
        ok = (entries->u.list.items[2 * i] = ckpt__torch_put_value(w, v->entries[i].key)) != NULL &&
             (entries->u.list.items[2 * i + 1] = ckpt__torch_put_value(w, v->entries[i].value)) != NULL;
    if (ok) {
        o->items = items->u.list;
        o->entries = entries->u.list;
    }
    return ok;
}

/* ('module', class, path, source text): whole modules before 1.6. */
static const ckpt__pickle_node *wrapped_class(const ckpt__pickle_node *persistent)
{
    const ckpt__pickle_node *id = persistent->u.id, *kind = ckpt__torch_item(id, 0), *class = ckpt__torch_item(id, 1);
    bool module =
        kind && (kind->kind == CKPT__P_STR || kind->kind == CKPT__P_BYTES) && ckpt__str_is(kind->u.text, "module");
    return module && class && class->kind == CKPT__P_GLOBAL ? class : NULL;
}

/* What stands for a persistent id that is no storage: the class of a module; else the id itself, of which only the program that
 * wrote the pickle knows what it means; None for one that cannot be a key of a dict, as it may be. NULL: no memory. */
static const ckpt__pickle_node *without_persistent(writer *w, const ckpt__pickle_node *from)
{
    const ckpt__pickle_node *class = wrapped_class(from);
    if (class)
        return class;
    while (from->kind == CKPT__P_PERSISTENT)
        from = from->u.id;
    static const ckpt__pickle_node nothing = {.kind = CKPT__P_NONE};
    bool key = from->kind != CKPT__P_LIST && from->kind != CKPT__P_DICT && from->kind != CKPT__P_SET &&
               from->kind != CKPT__P_BYTEARRAY;
    ckpt_status status =
        ckpt__torch_put_lost(w, SIZE_MAX, "a persistent id becomes %s: torch.load looks up none but those of storages",
                             key ? "the value that it is" : "None");
    return status < 0 ? NULL : key ? from : &nothing;
}

/* Can what is written for it be called, and is the call no other than it was? The class of a module may be torch.nn.Linear; one of
 * torch's own functions would make a tensor of what is none here. */
static bool is_callable(const writer *w, const ckpt__pickle_node *n)
{
    const ckpt__pickle_node *class = n->kind == CKPT__P_PERSISTENT ? wrapped_class(n) : NULL;
    if (class) {
        ckpt_str module = class->u.global->module;
        return !ckpt__str_is(module, "torch") && !ckpt__str_begins(module, "torch._");
    }
    if (n->kind != CKPT__P_OBJECT)
        return n->kind == CKPT__P_GLOBAL;
    const ckpt_value *v = ckpt__torch_user(w, n); /* --plain may have made a string or a dict of it */
    return !v || v->kind == CKPT_V_OBJECT || v->kind == CKPT_V_TENSOR || (v->kind == CKPT_V_DICT && v->class_name.data);
}

static bool copy_object(writer *w, const ckpt__pickle_node *node, ckpt__out *to)
{
    const ckpt__pickle_object *from = node->u.object;
    if (!is_callable(w, from->callable) || (from->setter && !is_callable(w, from->setter))) {
        to->kind = CKPT__P_NONE;
        return ckpt__torch_put_lost(w, SIZE_MAX, "the result of calling what %s becomes None",
                                    from->callable->kind == CKPT__P_PERSISTENT ? "a persistent id stands for"
                                                                               : "is a plain value now") == CKPT_OK;
    }
    ckpt__pickle_object *o = ckpt__arena_alloc(w->arena, sizeof *o);
    if (!o)
        return false;
    o->call = from->call;
    o->callable = ckpt__torch_put_callable(w, from->callable);
    o->args = ckpt__torch_put_node(w, from->args);
    if (from->kwargs)
        o->kwargs = ckpt__torch_put_node(w, from->kwargs);
    if (from->state)
        o->state = ckpt__torch_put_node(w, from->state);
    if (from->setter)
        o->setter = ckpt__torch_put_callable(w, from->setter);
    to->u.object = o;
    if (!o->callable || !o->args || (from->kwargs && !o->kwargs) || (from->state && !o->state) ||
        (from->setter && !o->setter))
        return false;
    const ckpt_value *v = ckpt__torch_user(w, node);
    if (v && ckpt__torch_holds(w->p->edits, v))
        return put_held(w, v, o);
    return copy_list(w, &from->items, &o->items) && copy_list(w, &from->entries, &o->entries);
}

static bool may_be_storage(const ckpt__pickle_node *n)
{
    return n->kind == CKPT__P_PERSISTENT ||
           (n->kind == CKPT__P_OBJECT &&
            ckpt__pickle_is_global(n->u.object->callable, "torch.storage", "_load_from_bytes"));
}

ckpt_status ckpt__torch_copy_node(writer *w, const ckpt__pickle_node *from, ckpt__out *to)
{
    size_t storage;
    bool ok = true;
    if (may_be_storage(from) && ckpt__index_storage_of(w->p->source, from, &storage) > 0)
        return ckpt__torch_put_storage(w, from, storage, to);
    if (from->kind == CKPT__P_PERSISTENT && !(from = without_persistent(w, from)))
        return ckpt__torch_put_failed(w);
    to->kind = from->kind;
    switch (from->kind) {
    case CKPT__P_LIST:
    case CKPT__P_TUPLE:
    case CKPT__P_SET:
    case CKPT__P_FROZENSET:
    case CKPT__P_DICT:
        ok = copy_list(w, &from->u.list, &to->u.list);
        break;
    case CKPT__P_OBJECT:
        ok = copy_object(w, from, to);
        break;
    case CKPT__P_GLOBAL:
        ok = copy_global(w, from, to);
        break;
    default:
        to->boolean = from->boolean;
        to->u = from->u;
    }
    return ok ? CKPT_OK : ckpt__torch_put_failed(w);
}

static bool put_items(writer *w, const ckpt_value *v, ckpt__out *to, ckpt__pickle_kind kind)
{
    ckpt__out *list = ckpt__pickle_make_list(w->arena, kind, v->item_count);
    for (size_t i = 0; list && i < v->item_count; i++)
        if (!(list->u.list.items[i] = ckpt__torch_put_value(w, v->items[i])))
            return false;
    if (list)
        *to = *list;
    return list != NULL;
}

/* A dict; one with attributes, or of a subclass, is a call of its class. */
static bool put_dict(writer *w, const ckpt_value *v, ckpt__out *to)
{
    ckpt__out *dict = ckpt__pickle_make_list(w->arena, CKPT__P_DICT, 2 * v->entry_count);
    for (size_t i = 0; dict && i < v->entry_count; i++) {
        dict->u.list.items[2 * i] = ckpt__torch_put_value(w, v->entries[i].key);
        dict->u.list.items[2 * i + 1] = ckpt__torch_put_value(w, v->entries[i].value);
        if (!dict->u.list.items[2 * i] || !dict->u.list.items[2 * i + 1])
            return false;
    }
    if (!dict)
        return false;
    bool script = ckpt__is_scripted(v); /* its class is a program's, which torch.load does not have */
    if ((!v->class_name.data || script) && !v->state) {
        *to = *dict;
        return true;
    }
    ckpt_str name = v->class_name.data ? v->class_name : ckpt__s("collections.OrderedDict");
    size_t dot = ckpt__str_after_dot(name);
    ckpt_str module = ckpt__arena_str(w->arena, name.data, dot ? dot - 1 : 0);
    ckpt__out *class = ckpt__pickle_make_global(w->arena, dot ? module : ckpt__s("builtins"),
                                                (ckpt_str){name.data + dot, name.size - dot});
    ckpt__out *call =
        ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, class, ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, 0));
    if (!call)
        return false;
    note_global(w, class);
    call->u.object->entries = dict->u.list;
    if (v->state && !(call->u.object->state = ckpt__torch_put_value(w, v->state)))
        return false;
    *to = *call;
    return true;
}

static ckpt_status put_opaque(writer *w, const ckpt_value *v, ckpt__out *to)
{
    const ckpt__pickle_node *origin = v->origin;
    if (!origin)
        return ckpt__torch_put_object(w, v, to);
    if (ckpt__torch_is_tensor(origin))
        return ckpt__torch_put_tensor(w, v, to);
    return ckpt__torch_copy_node(w, origin, to);
}

static ckpt_status fill_from(writer *w, const ckpt_value *v, ckpt__out *to)
{
    ckpt__out *text;
    bool ok = true;
    switch (v->kind) {
    case CKPT_V_LIST:
        ok = put_items(w, v, to, CKPT__P_LIST);
        break;
    case CKPT_V_TUPLE:
        ok = put_items(w, v, to, CKPT__P_TUPLE);
        break;
    case CKPT_V_DICT:
        ok = put_dict(w, v, to);
        break;
    case CKPT_V_TENSOR:
        return ckpt__torch_put_tensor(w, v, to);
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        if (v->origin)
            return ckpt__torch_copy_node(w, v->origin, to);
        text = ckpt__pickle_make_text(w->arena, v->kind == CKPT_V_BYTES ? CKPT__P_BYTES : CKPT__P_BYTEARRAY,
                                      v->text.data ? v->text : ckpt__s(""));
        ok = text != NULL;
        if (text)
            *to = *text;
        break;
    default:
        return put_opaque(w, v, to);
    }
    return ok ? CKPT_OK : ckpt__torch_put_failed(w);
}

/* ---- keys of storages: 0, 1, ... in the order in which the pickle names them */

static ckpt_status number_storage(writer *w, size_t storage, ckpt__out *key)
{
    ckpt__torch_pickling *p = w->p;
    ckpt__torch_spot *s = ckpt__torch_spot_of(w, storage);
    char text[24] = "";
    if (w->writing && !s->used) {
        if (!ckpt__grow(&p->storages, &w->key_capacity, p->count + 1, sizeof *p->storages))
            return ckpt__torch_put_failed(w);
        s->used = true;
        s->key = p->count;
        p->storages[p->count++] = storage;
    }
    snprintf(text, sizeof text, "%zu", s->key);
    key->kind = CKPT__P_STR;
    key->u.text = ckpt__arena_str(w->arena, text, strlen(text));
    return key->u.text.data ? CKPT_OK : ckpt__torch_put_failed(w);
}

/* ---- together */

/* A key has 1 + the number of its storage as its position. */
static ckpt_status fill(void *ctx, const ckpt__pickle_node *what, ckpt__out *to, bool writing, ckpt_error *err)
{
    writer *w = ctx;
    (void)err; /* w->err */
    if (writing && !w->writing) {
        w->writing = true;
        memset(w->recent, 0, sizeof w->recent); /* their names may be others from now on */
    }
    if (what->position)
        return number_storage(w, (size_t)what->position - 1, to);
    return what->boolean ? fill_from(w, what->u.later, to) : ckpt__torch_copy_node(w, what->u.later, to);
}

/* Of what dtype are the tensors that view each storage? */
static ckpt_status place_storages(writer *w)
{
    const ckpt__index *x = w->p->index;
    const size_t first = w->p->only ? w->p->only - 1 : 0, end = w->p->only ? w->p->only : x->tensor_count;
    w->places = ckpt__arena_array(w->lasting, w->p->only ? 1 : x->storage_count + 1, sizeof *w->places);
    if (w->p->kept)
        w->keys = ckpt__arena_array(w->lasting, x->tensor_count + 1, sizeof(ckpt__out *));
    if (!w->places || (w->p->kept && !w->keys))
        return ckpt__torch_put_failed(w);
    for (size_t i = first; i < end; i++) {
        const ckpt__tensor *t = &x->tensors[i];
        if (!t->whole)
            continue;
        ckpt__torch_spot *s = ckpt__torch_spot_of(w, t->storage);
        const ckpt__storage *storage = &x->storages[t->storage];
        bool stands_in = ckpt__str_begins_more(t->info.name, CKPT__TORCH_STORAGE);
        /* one that stands for the storage is never left out, as the others may be */
        if ((!s->whole || stands_in) && t->info.offset == 0 && t->info.nbytes == storage->extent.size &&
            !t->info.conj && !t->info.neg && ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim))
            s->whole = i + 1;
        if (stands_in)
            continue;
        s->mixed |= s->dtype != CKPT_DTYPE_NONE && s->dtype != t->info.dtype;
        s->dtype = t->info.dtype;
    }
    return CKPT_OK;
}

ckpt_status ckpt__torch_pickle(ckpt__torch_pickling *p, ckpt__buf *out, ckpt_error *err)
{
    writer w = {.p = p, .arena = ckpt__arena_new(0), .lasting = ckpt__arena_new(0), .err = err};
    ckpt__pickle_later later = {.arena = w.arena, .fill = fill, .ctx = &w};
    size_t none; /* the table of origins is made now, and asking cannot fail later */
    bool ready = w.arena && w.lasting && ckpt__index_storage_of(p->source, NULL, &none) >= 0;
    ckpt_status status = ready ? place_storages(&w) : ckpt__torch_put_failed(&w);
    ckpt__out *root = status == CKPT_OK ? ckpt__torch_put_value(&w, p->root) : NULL;
    if (status == CKPT_OK)
        status = root ? ckpt__pickle_write_later(root, &later, out, err) : ckpt__torch_put_failed(&w);
    w.writing = false;
    if (status == CKPT_OK && w.left_out)
        status = ckpt__torch_put_lost(&w, SIZE_MAX, "%llu storages or tensors that no listed tensor holds become None",
                                      (unsigned long long)w.left_out);
    if (status == CKPT_OK)
        p->held = (size_t)ckpt__arena_used(w.lasting) + (w.made ? (w.made_mask + 1) * sizeof *w.made : 0);
    ckpt__arena_free(w.arena);
    ckpt__arena_free(w.lasting);
    free(w.made);
    return status;
}
