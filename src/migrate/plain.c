/* migrate/plain.c - opaque objects as dicts, lists, strings and tensors, so that torch.load(weights_only=True) reads
 * the file: what it allows stays as it is (torch/_weights_only_unpickler.py), all else is put in plain terms, and listed.
 *
 * An enum becomes its value, a path a string, a Namespace (or any object with attributes) a dict of them, a set or a
 * deque a list, a numpy array a tensor where torch has its dtype, a class or function its name. A tensor that is a shell
 * around others becomes a dict of them and of its attributes; one that is around a single one, or of a subclass with bytes of
 * its own, becomes a tensor, without attributes, which are named. */
#include "migrate/migration.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct plain_copy {
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__pointers done;
    ckpt__buf left; /* names of the attributes that the value has no longer */
    struct inside {
        const ckpt_value *state;
        ckpt_str name;
    } * tensors;                          /* attributes of tensors that stay what they are: */
    size_t tensor_count, tensor_capacity; /* the walk of the tree does not visit them */
    ckpt_str within;                      /* what is looked at is an attribute of this tensor */
    ckpt__buf name;                       /* then: with that in front */
    ckpt_error *err;
} plain_copy;

/* ---- what weights_only=True takes */

static bool is_allowed_class(ckpt_str name)
{
    static const char classes[] =
        "torch.Tensor torch.Size torch.device torch.nn.parameter.Parameter collections.OrderedDict "
        "collections.Counter builtins.set builtins.bytearray builtins.complex torch.per_tensor_affine "
        "torch.per_channel_affine torch.per_tensor_symmetric torch.per_channel_symmetric "
        "torch.per_channel_affine_float_qparams";
    if (ckpt__str_among(name, classes))
        return true;
    /* dtypes: "torch.float32"; "none" is our word for no dtype */
    return ckpt__str_begins_more(name, "torch.") && ckpt_dtype_from_name(name.data + 6) != CKPT_DTYPE_NONE;
}

static bool is_allowed(const ckpt_value *v)
{
    static const char calls[] = "torch.Size torch.device collections.Counter builtins.set builtins.complex";
    static const char layouts[] = "torch.strided torch.sparse_coo torch.sparse_csr torch.sparse_csc torch.sparse_bsr "
                                  "torch.sparse_bsc torch._mkldnn torch.jagged";
    switch (v->kind) {
    case CKPT_V_CLASS:
        return is_allowed_class(v->class_name) || ckpt__str_among(v->class_name, layouts);
    case CKPT_V_OBJECT:
        return ckpt__str_among(v->class_name, calls) && !v->state;
    case CKPT_V_DICT:
        return !v->class_name.data || !v->class_name.size || ckpt__str_is(v->class_name, "collections.OrderedDict") ||
               ckpt__str_is(v->class_name, "builtins.dict");
    case CKPT_V_ARRAY:
        return false;
    default:
        return true;
    }
}

/* ---- in plain terms */

static bool is_path(ckpt_str name)
{
    return ckpt__str_among(name, "pathlib.PosixPath pathlib.PurePosixPath pathlib.WindowsPath pathlib.PureWindowsPath "
                                 "pathlib.Path pathlib._local.PosixPath pathlib._local.PurePosixPath "
                                 "pathlib._local.WindowsPath pathlib._local.PureWindowsPath");
}

/* pathlib's arguments (or items) are the parts: ("/", "data", "x"). */
static ckpt_status make_path(plain_copy *p, ckpt_value *v)
{
    const ckpt_value *from = v->item_count ? v : v->args;
    ckpt__buf b = {0};
    for (size_t i = 0; from && i < from->item_count; i++) {
        if (from->items[i]->kind != CKPT_V_STR)
            continue;
        if (b.size && b.data[b.size - 1] != '/' && b.data[b.size - 1] != '\\')
            ckpt__buf_char(&b, '/');
        ckpt__buf_add(&b, from->items[i]->text.data, from->items[i]->text.size);
    }
    if (b.size == 0)
        ckpt__buf_char(&b, '.');
    ckpt_str text = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(p->arena, b.data, b.size);
    ckpt__buf_free(&b);
    *v = (ckpt_value){.kind = CKPT_V_STR, .text = text};
    return text.data ? CKPT_OK : ckpt__migration_no_memory(p->err);
}

static bool is_scalar(const ckpt_value *v)
{
    return v->kind == CKPT_V_STR || v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL || v->kind == CKPT_V_FLOAT ||
           v->kind == CKPT_V_BIGINT;
}

/* Class(value) and nothing else: an enum, a str or int of a subclass. */
static bool is_enum(const ckpt_value *v)
{
    const ckpt_value *from = v->item_count ? v : v->args;
    return !v->state && !v->entry_count && from && from->item_count == 1 && is_scalar(from->items[0]);
}

static void become(ckpt_value *v, const ckpt_value *other)
{
    ckpt_value copy = *other;
    copy.origin = NULL;
    *v = copy;
}

/* getattr(Class, 'NAME'): how enums and methods are pickled from protocol 4 on. */
static bool is_getattr(const ckpt_value *v)
{
    return ckpt__str_is(v->class_name, "builtins.getattr") && v->args && v->args->item_count == 2 &&
           v->args->items[1]->kind == CKPT_V_STR;
}

static const ckpt_value *attributes(const ckpt_value *v, size_t i)
{
    const ckpt_value *s = v->state;
    if (s && s->kind == CKPT_V_DICT)
        return i == 0 ? s : NULL;
    if (s && s->kind == CKPT_V_TUPLE && s->item_count == 2 && i < 2)
        return s->items[i]->kind == CKPT_V_DICT ? s->items[i] : NULL;
    return NULL;
}

/* Attributes and entries of an object as one dict; items, arguments and an odd state under names of their own. */
static ckpt_status make_dict(plain_copy *p, ckpt_value *v)
{
    const ckpt_value *a = attributes(v, 0), *b = attributes(v, 1);
    size_t n = 0, room = (a ? a->entry_count : 0) + (b ? b->entry_count : 0) + v->entry_count + 3;
    ckpt_entry *entries = ckpt__arena_array(p->arena, room, sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(p->err);
    for (size_t i = 0; a && i < a->entry_count; i++)
        entries[n++] = a->entries[i];
    for (size_t i = 0; b && i < b->entry_count; i++)
        entries[n++] = b->entries[i];
    for (size_t i = 0; i < v->entry_count; i++)
        entries[n++] = v->entries[i];
    const char *names[3] = {"items", "args", "state"};
    const ckpt_value *values[3] = {NULL, NULL, NULL};
    if (v->item_count)
        values[0] = ckpt__value_list(p->arena, CKPT_V_LIST, v->items, v->item_count);
    if (v->args && v->args->item_count)
        values[1] = v->args;
    if (v->state && !a && !b && v->state->kind != CKPT_V_NONE)
        values[2] = v->state;
    for (size_t i = 0; i < 3; i++) {
        if (!values[i])
            continue;
        if (!(entries[n].key = ckpt__value_str(p->arena, names[i], strlen(names[i]))))
            return ckpt__migration_no_memory(p->err);
        entries[n++].value = values[i];
    }
    *v = (ckpt_value){.kind = CKPT_V_DICT, .entries = entries, .entry_count = n};
    return CKPT_OK;
}

/* ---- one value */

/* Tensors that no path leads to, and storages by themselves, are objects of the tree; torch allows them. */
static bool is_bare(const ckpt_value *v)
{
    return ckpt__str_is(v->class_name, "torch.Tensor") || ckpt__str_is(v->class_name, "torch.nn.parameter.Parameter") ||
           (ckpt__str_begins_more(v->class_name, "torch.") && ckpt__str_ends(v->class_name, "Storage"));
}

bool ckpt__is_plain(const ckpt_value *v)
{
    return is_allowed(v) || is_bare(v);
}

ckpt_status ckpt__plain_scalar(ckpt__arena *a, const ckpt_value *v, const ckpt_value **out, ckpt_error *err)
{
    plain_copy p = {.arena = a, .err = err};
    const ckpt_value *from = v->item_count ? v : v->args;
    *out = NULL;
    if (v->kind == CKPT_V_OBJECT && is_path(v->class_name)) {
        ckpt_value *path = ckpt__value_new(a, CKPT_V_NONE);
        if (!path)
            return ckpt__migration_no_memory(err);
        *path = *v;
        *out = path;
        return make_path(&p, path);
    }
    if (v->kind == CKPT_V_OBJECT && is_enum(v))
        *out = from->items[0];
    return CKPT_OK;
}

static ckpt_status make_object(plain_copy *p, ckpt_value *v, ckpt_str name)
{
    const ckpt_value *from = v->item_count ? v : v->args;
    bool attributes_only = v->state && (attributes(v, 0) || attributes(v, 1));
    if (v->array && (v->text.data || v->item_count))
        return ckpt__plain_array(p->m, v, name, p->err);
    if (is_path(v->class_name))
        return make_path(p, v);
    if (is_getattr(v) || is_enum(v)) {
        become(v, is_getattr(v) ? v->args->items[1] : from->items[0]);
        return CKPT_OK;
    }
    if (v->item_count && !v->entry_count && !attributes_only) {
        *v = (ckpt_value){.kind = CKPT_V_LIST, .items = v->items, .item_count = v->item_count};
        return CKPT_OK;
    }
    if (ckpt__str_is(v->class_name, "collections.defaultdict"))
        v->args = NULL; /* what makes a missing value: a class */
    return make_dict(p, v);
}

static ckpt_status make_class(plain_copy *p, ckpt_value *v)
{
    ckpt_str name = v->class_name.data ? v->class_name : ckpt__s("");
    (void)p;
    *v = (ckpt_value){.kind = CKPT_V_STR, .text = name};
    return CKPT_OK;
}

static bool is_part(const ckpt_tensor_info *t, const ckpt_value *key)
{
    for (size_t i = 0; key->kind == CKPT_V_STR && i < t->extra->part_count; i++)
        if (ckpt__str_equal(t->extra->parts[i]->name, key->text))
            return true;
    return false;
}

/* Part `name` of the shell, as its attributes have it; NULL: they have none of that name. */
static const ckpt_value *part_of(const ckpt_value *shell, ckpt_str name)
{
    for (size_t k = 0; k < 2; k++) {
        const ckpt_value *a = attributes(shell, k);
        for (size_t i = 0; a && i < a->entry_count; i++)
            if (a->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(a->entries[i].key->text, name))
                return a->entries[i].value;
    }
    return NULL;
}

/* A dict of the tensors that a shell holds, whose numbers follow its own, and of its attributes. */
static ckpt_status make_parts(plain_copy *p, ckpt_value *v, const ckpt_value *shell, const ckpt_tensor_info *t)
{
    size_t n = 0, room = t->extra->part_count, at = v->tensor + 1; /* each has its own parts behind it */
    for (size_t k = 0; k < 2; k++)
        room += attributes(shell, k) ? attributes(shell, k)->entry_count : 0;
    ckpt_entry *entries = ckpt__arena_array(p->arena, room, sizeof *entries);
    for (; entries && n < t->extra->part_count; n++) {
        ckpt_value *part = ckpt__value_new(p->arena, CKPT_V_TENSOR);
        ckpt_str name = t->extra->parts[n]->name;
        const ckpt_value *was = part_of(shell, name);
        entries[n].key = ckpt__value_str(p->arena, name.data, name.size);
        if (!part || !entries[n].key)
            return ckpt__migration_no_memory(p->err);
        part->tensor = at;
        part->class_name = was ? was->class_name : part->class_name;
        part->state = was ? was->state : NULL;
        entries[n].value = part;
        at = ckpt__tensor_end(p->m->from, at);
    }
    if (!entries)
        return ckpt__migration_no_memory(p->err);
    for (size_t k = 0; k < 2; k++) {
        const ckpt_value *a = attributes(shell, k);
        for (size_t i = 0; a && i < a->entry_count; i++)
            if (!is_part(t, a->entries[i].key))
                entries[n++] = a->entries[i];
    }
    *v = (ckpt_value){.kind = CKPT_V_DICT, .entries = entries, .entry_count = n};
    return CKPT_OK;
}

static bool is_wrapper(const ckpt_tensor_info *t)
{
    return ckpt__str_is(t->extra->layout, "wrapper") && t->extra->part_count > 0;
}

/* Names what a tensor had besides its parts, if any (t NULL: none). */
static void leave_attributes(plain_copy *p, const ckpt_value *v, const ckpt_tensor_info *t)
{
    for (size_t k = 0; v && k < 2; k++) {
        const ckpt_value *a = attributes(v, k);
        for (size_t i = 0; a && i < a->entry_count; i++) {
            if (t && is_part(t, a->entries[i].key))
                continue;
            ckpt__buf_str(&p->left, p->left.size ? ", " : "");
            if (a->entries[i].key->kind == CKPT_V_STR)
                ckpt__buf_add(&p->left, a->entries[i].key->text.data, a->entries[i].key->text.size);
            else
                ckpt__value_repr(&p->left, a->entries[i].key);
        }
    }
}

/* A tensor that torch allows, with attributes: they are looked at when the walk of the tree is over. */
static ckpt_status look_inside(plain_copy *p, const ckpt_value *v, ckpt_str name)
{
    ckpt_str kept = ckpt__arena_str(p->arena, name.data, name.size);
    if (!kept.data || !ckpt__grow(&p->tensors, &p->tensor_capacity, p->tensor_count + 1, sizeof *p->tensors))
        return ckpt__migration_no_memory(p->err);
    p->tensors[p->tensor_count++] = (struct inside){v->state, kept};
    return CKPT_OK;
}

/* A subclass of Tensor: its own tensor; of a wrapper the one that it holds (DTensor), or a dict of those that it holds. */
static ckpt_status make_tensor(plain_copy *p, ckpt_value *v, ckpt_str name, bool *changed)
{
    const ckpt__index *x = p->m->from;
    const ckpt_tensor_info *t = &x->tensors[v->tensor].info;
    if (is_wrapper(t)) {
        ckpt_value outer = *v;
        const ckpt_value *shell = &outer;
        size_t i = v->tensor;
        for (; is_wrapper(t) && t->extra->part_count == 1; t = &x->tensors[++i].info) {
            leave_attributes(p, shell, t);
            shell = shell ? part_of(shell, t->extra->parts[0]->name) : NULL;
        }
        *v = (ckpt_value){.kind = CKPT_V_TENSOR, .tensor = i};
        *changed = true;
        return is_wrapper(t) ? make_parts(p, v, shell ? shell : v, t) : CKPT_OK;
    }
    *changed = v->class_name.data && !is_allowed_class(v->class_name) && !ckpt__has_no_bytes(&x->tensors[v->tensor]) &&
               !t->extra->quantizer.data;
    if (!*changed)
        return v->state && v->origin ? look_inside(p, v, name) : CKPT_OK;
    leave_attributes(p, v, t);
    v->class_name = (ckpt_str){NULL, 0};
    v->state = NULL;
    v->origin = NULL;
    return CKPT_OK;
}

static ckpt_status note_plain(plain_copy *p, ckpt_str name, ckpt_str class_name, const char *kind)
{
    char shown[200], left[300];
    ckpt__escape(shown, sizeof shown, class_name.data ? class_name.data : "?", class_name.data ? class_name.size : 1);
    ckpt__escape(left, sizeof left, p->left.data ? p->left.data : "", p->left.size);
    bool failed = p->left.failed;
    p->left.size = 0;
    return failed ? ckpt__migration_no_memory(p->err)
                  : ckpt__migration_note(p->m, CKPT_SEVERITY_NOTE, "plain", name, p->err, "%s becomes %s%s%s", shown,
                                         kind, *left ? ", without its attributes " : "", left);
}

/* Python writes empty bytes as a call of bytes(), which is not allowed; an int of thousands of digits neither. */
static bool make_small(ckpt_value *v)
{
    if (v->kind == CKPT_V_BYTES && v->text.size == 0)
        *v = (ckpt_value){.kind = CKPT_V_BYTEARRAY, .text = v->text};
    else if (v->kind == CKPT_V_BIGINT && v->text.size > 600)
        *v = (ckpt_value){.kind = CKPT_V_STR, .text = v->text};
    else
        return false;
    return true;
}

/* A tensor inside an object, a set or a key, which is not listed. */
static ckpt_status make_closed(plain_copy *p, ckpt_value *v)
{
    leave_attributes(p, v, NULL);
    const ckpt_value *made = ckpt__torch_unclass(v, p->arena);
    if (made)
        *v = *made;
    return made ? CKPT_OK : ckpt__migration_no_memory(p->err);
}

/* A dict or a list cannot be in a set: does an item become one? */
static bool holds_unhashable(const ckpt_value *v)
{
    bool holds = false;
    for (size_t i = 0; ckpt__str_is(v->class_name, "builtins.set") && i < v->item_count && !holds; i++) {
        const ckpt_value *item = v->items[i];
        bool scalar = item->kind == CKPT_V_OBJECT && (is_path(item->class_name) || is_getattr(item) || is_enum(item));
        holds = item->kind == CKPT_V_OBJECT && !ckpt__is_plain(item) && !ckpt__torch_is_subclass(item) && !scalar;
        for (size_t k = 0; item->kind == CKPT_V_TUPLE && k < item->item_count && !holds; k++)
            holds = item->items[k]->kind == CKPT_V_OBJECT && !ckpt__is_plain(item->items[k]);
    }
    return holds;
}

/* The name of the visited value; data NULL: no memory. */
static ckpt_str full_name(plain_copy *p, ckpt_str name)
{
    if (!p->within.data)
        return name;
    p->name.size = 0;
    ckpt__buf_add(&p->name, p->within.data, p->within.size);
    ckpt__buf_str(&p->name, p->within.size && name.size ? "." : "");
    ckpt__buf_add(&p->name, name.data, name.size);
    return p->name.failed || !p->name.data ? (ckpt_str){NULL, 0} : (ckpt_str){p->name.data, p->name.size};
}

/* Where there is another value now: it is dealt with, also where it is shared; and so are its keys. */
static ckpt_status put(plain_copy *p, const ckpt_value *v, ckpt_str name, const ckpt_value **to)
{
    if (*to != v && ckpt__pointers_add(&p->done, *to) < 0)
        return ckpt__migration_no_memory(p->err);
    v = *to;
    ckpt_status status = ckpt__plain_keys(p->m, v, name, to, p->err);
    if (status == CKPT_OK && *to != v && ckpt__pointers_add(&p->done, *to) < 0)
        return ckpt__migration_no_memory(p->err);
    return status;
}

/* In plain terms, in *v; its keys are another matter. *what: what it was, for the note. */
static ckpt_status change(plain_copy *p, ckpt_value *v, ckpt_str name, bool *changed, ckpt_str *what)
{
    *changed = true;
    *what = v->class_name;
    if (v->kind == CKPT_V_TENSOR) {
        *changed = false;
        return v->tensor < p->m->from->tensor_count ? make_tensor(p, v, name, changed) : CKPT_OK;
    }
    if (ckpt__is_plain(v) && !holds_unhashable(v)) {
        *what = (ckpt_str){"an empty bytes or a huge int", 28};
        *changed = make_small(v);
    } else if (v->kind == CKPT_V_CLASS)
        return make_class(p, v);
    else if (v->kind == CKPT_V_DICT)
        *v = (ckpt_value){.kind = CKPT_V_DICT, .entries = v->entries, .entry_count = v->entry_count};
    else if (v->kind == CKPT_V_ARRAY)
        return ckpt__plain_array(p->m, v, name, p->err);
    else
        return ckpt__torch_is_subclass(v) ? make_closed(p, v) : make_object(p, v, name);
    return CKPT_OK;
}

static ckpt_status note_changed(plain_copy *p, const ckpt_value *v, ckpt_str name, ckpt_str what)
{
    bool tensor = v->kind == CKPT_V_TENSOR || ckpt__torch_is_closed(v);
    const char *word = v->kind == CKPT_V_STR ? "a string" : tensor ? "a tensor" : ckpt_kind_name(v->kind);
    return note_plain(p, name, what, word);
}

static int on_place(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    plain_copy *p = ctx;
    const ckpt_value *was = visit->value;
    ckpt_value now = *was;
    ckpt_str name = full_name(p, visit->name), what;
    bool changed;
    (void)spot;
    if (!name.data)
        return ckpt__migration_no_memory(p->err);
    if (visit->cycle && was->kind == CKPT_V_TUPLE) { /* a tuple that holds itself takes an opcode that is refused */
        ckpt_value *list = ckpt__edits_copy(p->m->edits, was);
        if (!list || ckpt__pointers_add(&p->done, list) < 0)
            return ckpt__migration_no_memory(p->err);
        list->kind = CKPT_V_LIST;
        list->origin = NULL;
        *to = list;
        return note_plain(p, visit->cycle_to, ckpt__s("a tuple that contains itself"), "list");
    }
    int first = visit->cycle ? 0 : ckpt__pointers_add(&p->done, was);
    if (first <= 0)
        return first < 0 ? ckpt__migration_no_memory(p->err) : CKPT_OK;
    ckpt_status status = change(p, &now, name, &changed, &what);
    if (status == CKPT_OK && changed && !(*to = ckpt__edits_copy(p->m->edits, &now))) {
        *to = was;
        return ckpt__migration_no_memory(p->err);
    }
    if (status == CKPT_OK && changed)
        status = note_changed(p, &now, name, what);
    return status == CKPT_OK ? put(p, was, name, to) : status;
}

static int on_keys(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    plain_copy *p = ctx;
    const ckpt_value *v = visit->value;
    ckpt_str name = full_name(p, visit->name);
    (void)spot;
    int first = visit->cycle ? 0 : ckpt__pointers_add(&p->done, v);
    if (!name.data || first < 0)
        return ckpt__migration_no_memory(p->err);
    if (first == 0)
        return CKPT_OK;
    ckpt_status status = v->kind == CKPT_V_TENSOR && v->state ? look_inside(p, v, name) : CKPT_OK;
    return status == CKPT_OK ? put(p, v, name, to) : status;
}

/* The tree, and then what hangs on its tensors. */
static ckpt_status walk(plain_copy *p, ckpt__rewrite_fn fn)
{
    p->within = (ckpt_str){NULL, 0};
    ckpt__pointers_free(&p->done);
    ckpt_status status = ckpt__edits_note(p->m->edits, p->m->from->root, fn, p, p->err);
    while (status == CKPT_OK && p->tensor_count > 0) {
        p->within = p->tensors[--p->tensor_count].name;
        status = ckpt__edits_note(p->m->edits, p->tensors[p->tensor_count].state, fn, p, p->err);
    }
    return status;
}

/* Keys first: an object may be a key in one place and a value in another, where it is changed in itself. */
ckpt_status ckpt__migrate_plain(ckpt__migration *m, ckpt_error *err)
{
    plain_copy p = {.m = m, .arena = m->from->arena, .err = err};
    if (!m->options.plain)
        return CKPT_OK;
    ckpt_status status = walk(&p, on_keys);
    if (status == CKPT_OK)
        status = walk(&p, on_place);
    if (status == CKPT_OK)
        status = ckpt__migration_apply(m, err);
    ckpt__pointers_free(&p.done);
    ckpt__buf_free(&p.left);
    ckpt__buf_free(&p.name);
    free(p.tensors);
    return status;
}
