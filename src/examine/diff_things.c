/* examine/diff_things.c - what a checkpoint holds, as a list: its tensors, and the leaves of its value tree. */
#include "examine/diff_work.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/folder/folder.h"
#include "format/table.h"

static bool is_leaf(const ckpt__tree *tree, size_t i)
{
    const ckpt_value *v = tree->nodes[i].value;
    bool alone = tree->nodes[i].end == i + 1; /* nothing below it */
    if (v->kind == CKPT_V_TENSOR || tree->nodes[i].attribute)
        return false;
    return v->kind <= CKPT_V_BYTEARRAY || v->kind == CKPT_V_ARRAY || v->kind == CKPT_V_CLASS || (alone && i > 0) ||
           v->kind == CKPT_V_OBJECT;
}

static ckpt__thing *add(ckpt__diff_side *s)
{
    if (!ckpt__arena_grow(s->arena, &s->things, &s->capacity, s->count + 1, sizeof *s->things))
        return NULL;
    ckpt__thing *t = &s->things[s->count++];
    *t = (ckpt__thing){.tensor = SIZE_MAX, .other = SIZE_MAX, .tied = SIZE_MAX};
    return t;
}

/* In a directory: "rng.cpu" of "rng_state.pth.cpu", as ckpt-migrate calls it in one file of all that is in the directory. */
static bool loosen(const ckpt__diff_side *s, ckpt__thing *t, ckpt_str file)
{
    char key[300];
    if (t->name.size < file.size || file.size >= sizeof key)
        return true;
    ckpt__folder_key(file, key, sizeof key);
    size_t n = strlen(key), rest = t->name.size - file.size;
    char *text = ckpt__arena_alloc(s->arena, n + rest + 1);
    if (!text)
        return false;
    memcpy(text, key, n);
    memcpy(text + n, t->name.data + file.size, rest);
    t->loose = (ckpt_str){text, n + rest};
    return true;
}

/* Tensors of the tree have their path as name: in a directory that says which file. */
static ckpt_status list_things(ckpt__differ *d, ckpt__diff_side *s)
{
    const ckpt__index *index = s->reader->index;
    for (size_t i = 0; i < index->tensor_count; i++) {
        ckpt__thing *t = add(s);
        if (!t)
            return ckpt__differ_no_memory(d);
        t->tensor = i;
        t->name = index->tensors[i].info.name;
    }
    bool files = ckpt__in_files(index);
    ckpt_str file = {"", 0};
    for (size_t i = 0; i < s->tree.count; i++) {
        const ckpt__node *node = &s->tree.nodes[i];
        ckpt__thing *t = NULL;
        if (node->depth == 1)
            file = node->key;
        if (node->value->kind == CKPT_V_TENSOR && node->value->tensor < index->tensor_count) {
            t = &s->things[node->value->tensor];
            t->name = node->name;
            t->quantizer = node->value->args;
        } else if (is_leaf(&s->tree, i)) {
            if (!(t = add(s)))
                return ckpt__differ_no_memory(d);
            t->name = node->name;
            t->value = node->value;
            t->empty = node->end == i + 1 && node->value->kind >= CKPT_V_LIST && node->value->kind <= CKPT_V_DICT;
        }
        if (t && files && !loosen(s, t, file))
            return ckpt__differ_no_memory(d);
    }
    return CKPT_OK;
}

/* ---- what a state calls them */

static bool below(ckpt_str name, ckpt_str path)
{
    return path.data && (path.size == 0 || (name.size > path.size && memcmp(name.data, path.data, path.size) == 0 &&
                                            name.data[path.size] == '.'));
}

/* What the names of the optimizer's state were found by, and has no name of its own: ids in param_groups, a native file's
 * lists of parameters (ckpt__canon_group has them, in order); and what a native file notes for its way back to the format
 * that it came from, under keys that begin with "ckpt.". */
static bool is_frame(const ckpt__diff_side *s, const ckpt__thing *t)
{
    static const ckpt_str groups = {"optimizer.groups", 16}, notes = {"ckpt", 4};
    bool own = ckpt__format_of(s->reader->index)->canonical;
    if (own && below(t->name, notes))
        return true;
    bool plain = t->value && (t->value->kind <= CKPT_V_BYTEARRAY || t->empty);
    return plain && s->canon && below(t->name, own ? groups : s->canon->optimizer_path);
}

static ckpt_status name_values(ckpt__differ *d, ckpt__diff_side *s)
{
    size_t tensors = s->reader->index->tensor_count;
    s->by_name = ckpt__hash_new(s->count - tensors);
    for (size_t i = tensors; s->by_name && i < s->count; i++)
        if (ckpt__hash_put(s->by_name, s->things[i].name.data, s->things[i].name.size, i, NULL) < 0)
            return ckpt__differ_no_memory(d);
    return s->by_name ? CKPT_OK : ckpt__differ_no_memory(d);
}

static void give_canonical(ckpt__diff_side *s)
{
    for (size_t i = 0; i < s->count; i++)
        s->things[i].frame = is_frame(s, &s->things[i]);
    for (size_t i = 0; s->canon && i < s->canon->count; i++) {
        const ckpt__canon_entry *e = &s->canon->entries[i];
        size_t at = e->tensor;
        if (e->is_tensor ? at >= s->reader->index->tensor_count
                         : !ckpt__hash_get(s->by_name, e->own.data, e->own.size, &at))
            continue;
        if (!e->is_tensor)
            s->things[at].frame = false;
        if (!e->outside && !s->things[at].canonical.data)
            s->things[at].canonical = e->name;
    }
}

/* What is known of the checkpoint is bounded by its size; what is made of that here, by half as much. */
static uint64_t side_limit(const ckpt__index *index)
{
    uint64_t limit = ckpt__arena_limit(index->arena);
    return limit ? limit / 2 : ((uint64_t)256 << 20) + 8 * ckpt__arena_used(index->arena);
}

ckpt_status ckpt__diff_side_open(ckpt__differ *d, ckpt__diff_side *s, const ckpt_reader *reader, const char *letter)
{
    /* Nothing is named here for good: a wrong order shows as a difference, and the note says where it may come from. */
    ckpt__canon_hints hints = {.optional_optimizer = true, .tentative_order = true};
    ckpt_error why = CKPT_ERROR_INIT;
    s->reader = reader;
    s->letter = letter;
    /* every name repeats the keys above it: one key of a megabyte over many values must not take as many megabytes */
    if (!(s->arena = ckpt__arena_new(side_limit(reader->index))))
        return ckpt__differ_no_memory(d);
    ckpt_status status =
        reader->index->root ? ckpt__tree_build(reader->index->root, s->arena, &s->tree, d->err) : CKPT_OK;
    if (status == CKPT_E_NO_MEMORY)
        return ckpt__differ_no_memory(d);
    if (status == CKPT_OK)
        status = list_things(d, s);
    if (status == CKPT_OK)
        status = name_values(d, s);
    if (status < 0)
        return status;
    ckpt_status named = ckpt__canon_build(reader->index, &hints, &s->canon, NULL, &why);
    if (named == CKPT_E_NO_MEMORY)
        return ckpt__differ_no_memory(d);
    give_canonical(s);
    if (named < 0) {
        char message[900];
        snprintf(message, sizeof message, "%s: %.700s; what it holds is compared by its own names", s->letter,
                 why.message);
        return ckpt__differ_note(d, CKPT_SEVERITY_NOTE, "source-ambiguous", NULL, message) ? CKPT_OK
                                                                                           : ckpt__differ_no_memory(d);
    }
    if (s->canon->order.ambiguous || s->canon->order.fit == CKPT__FITS_SEVERAL) {
        char message[900];
        snprintf(
            message, sizeof message,
            "%s: more than one order fits the optimizer's parameters (%.300s): its state is compared in this order; "
            "if that was not the one, differences of its state say nothing",
            letter, s->canon->order.how);
        return ckpt__differ_note(d, CKPT_SEVERITY_NOTE, "order-ambiguous", NULL, message) ? CKPT_OK
                                                                                          : ckpt__differ_no_memory(d);
    }
    return CKPT_OK;
}

void ckpt__diff_side_close(ckpt__diff_side *s)
{
    ckpt__tree_free(&s->tree);
    ckpt__hash_free(s->containers);
    ckpt__hash_free(s->by_name);
    ckpt__canon_free(s->canon);
    ckpt__arena_free(s->arena);
    free(s->things);
    memset(s, 0, sizeof *s);
}
