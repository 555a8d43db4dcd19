/* core/migrate_torch.c - the structure that a native file keeps of a torch file: see migrate_torch.h. */
#include "core/migrate_torch.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/torch_write.h"

static bool is_native(const ckpt__index *x)
{
    return x->format && strcmp(x->format, "ckpt") == 0;
}

static ckpt_entry *kept_entry(const ckpt__index *x)
{
    bool dict = is_native(x) && x->root && x->root->kind == CKPT_V_DICT;
    ckpt_entry *e = dict ? ckpt__entry_of(x->root, CKPT__TORCH_KEY) : NULL;
    return e && e->value->kind == CKPT_V_BYTES ? e : NULL;
}

/* ---- as if it were the torch file */

typedef struct namer {
    ckpt__index *x;
    bool *named;                  /* per tensor */
    ckpt_error *err;
} namer;

/* The name and path of a tensor are where the tree has it: the first place, as when a torch file is read. */
static int name_tensor(void *ctx, const ckpt_visit *visit)
{
    namer *n = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= n->x->tensor_count || n->named[v->tensor])
        return 0;
    ckpt_tensor_info *info = &n->x->tensors[v->tensor].info;
    ckpt_key *keys = ckpt__arena_array(n->x->arena, visit->path.count + 1, sizeof *keys);
    ckpt_str name = ckpt__arena_str(n->x->arena, visit->name.data, visit->name.size);
    if (!keys || !name.data)
        return ckpt__mover_no_memory(n->err);
    for (size_t i = 0; i < visit->path.count; i++) {
        ckpt_str text = visit->path.keys[i].text;
        keys[i] = visit->path.keys[i];
        if (text.data && !(keys[i].text = ckpt__arena_str(n->x->arena, text.data, text.size)).data)
            return ckpt__mover_no_memory(n->err);
    }
    info->name = name;
    info->path = (ckpt_path){ keys, visit->path.count };
    info->inside = visit->inside;
    n->named[v->tensor] = true;
    return 0;
}

static ckpt_status become_torch(ckpt__mover *m, ckpt_str pickle, ckpt_error *err)
{
    ckpt__index *x = m->from;
    const ckpt_value *root = NULL;
    namer n = { x, calloc(x->tensor_count + 1, sizeof *n.named), err };
    ckpt_status status = n.named ? ckpt__torch_kept_tree(x, pickle, &root, err) : ckpt__mover_no_memory(err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(root, 0, name_tensor, &n, err);
    free(n.named);
    if (status < 0) {
        ckpt__error_prefix(err, "the structure of a torch file that it keeps (%s)", CKPT__TORCH_KEY);
        return status;
    }
    x->root = root;
    x->format = "torch";
    return CKPT_OK;
}

static void take_out(ckpt_value *root, const ckpt_entry *e)
{
    ckpt_entry *entries = (ckpt_entry *)(uintptr_t)root->entries;     /* trees of migrate are its own */
    size_t at = (size_t)(e - entries);
    memmove(entries + at, entries + at + 1, (root->entry_count - at - 1) * sizeof *entries);
    root->entry_count--;
}

/* Storages that no tensor shows become tensors of bytes, so that they go along. */
static ckpt_status show_storages(ckpt__mover *m, ckpt_error *err)
{
    ckpt__index *x = m->from;
    bool *shown = calloc(x->storage_count + 1, sizeof *shown);
    ckpt_status status = shown ? CKPT_OK : ckpt__mover_no_memory(err);
    for (size_t i = 0; shown && i < x->tensor_count; i++)
        if (x->tensors[i].piece_count == 1)
            shown[x->tensors[i].pieces[0].storage] = true;
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++) {
        char name[sizeof CKPT__TORCH_STORAGE + 24];
        uint64_t size = x->storages[i].extent.size;
        if (shown[i] || x->storages[i].extent.missing || size > INT64_MAX)
            continue;
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        int64_t shape = (int64_t)size;
        snprintf(name, sizeof name, CKPT__TORCH_STORAGE "%zu", i);
        if (!t || !(t->info.name = ckpt__arena_str(x->arena, name, strlen(name))).data) {
            status = ckpt__mover_no_memory(err);
            break;
        }
        t->info.dtype = CKPT_U8;
        t->info.ndim = 1;
        t->info.role = CKPT_OTHER;
        status = ckpt__index_set_view(x, x->tensor_count - 1, i, &shape, NULL, 0, err);
    }
    free(shown);
    bool *dropped = status == CKPT_OK ? calloc(x->tensor_count + 1, sizeof *dropped) : NULL;
    if (status == CKPT_OK && !dropped)
        return ckpt__mover_no_memory(err);
    if (dropped) {
        free(m->dropped);
        m->dropped = dropped;
    }
    return status;
}

static bool keeps(const ckpt__mover *m)
{
    return m->format == &ckpt__format_native && !m->options.weights_only && !is_native(m->from) &&
           strncmp(m->from->format, "torch", 5) == 0 && m->from->root;
}

ckpt_status ckpt__migrate_torch_open(ckpt__mover *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    const ckpt_entry *e = kept_entry(m->from);
    if (keeps(m))
        return show_storages(m, err);
    if (!e)
        return CKPT_OK;
    if (m->torch)
        return become_torch(m, e->value->text, err);
    bool edits = o->strip_prefix_count || o->rename_count || o->add_prefix || o->plain || o->weights_only ||
                 o->map_device_objects || m->kind != CKPT_OPTIMIZER_DEFAULT;
    if (m->format != &ckpt__format_native || edits)
        take_out((ckpt_value *)(uintptr_t)m->from->root, e);
    return CKPT_OK;
}

/* ---- keeping it */

ckpt_status ckpt__migrate_torch_keep(ckpt__mover *m, const ckpt_value **kept, ckpt_error *err)
{
    *kept = NULL;
    if (!keeps(m))
        return CKPT_OK;
    ckpt__torch_pickling p = { .index = m->index, .source = m->from, .root = m->from->root, .lost = m->lost, .kept = true };
    ckpt__buf pickle = { 0 };
    ckpt_status status = ckpt__torch_pickle(&p, &pickle, err);
    ckpt_value *v = status == CKPT_OK ? ckpt__value_new(m->index->arena, CKPT_V_BYTES) : NULL;
    if (v)
        v->text = ckpt__arena_str(m->index->arena, pickle.data, pickle.size);
    ckpt__buf_free(&pickle);
    free(p.storages);
    if (status == CKPT_OK && (!v || !v->text.data))
        status = ckpt__mover_no_memory(err);
    *kept = status == CKPT_OK ? v : NULL;
    return status;
}

ckpt_status ckpt__migrate_torch_attach(ckpt__mover *m, const ckpt_value *kept, ckpt_error *err)
{
    ckpt__arena *a = m->index->arena;
    const ckpt_value *root = m->root;
    bool dict = root && root->kind == CKPT_V_DICT;
    size_t n = dict ? root->entry_count : root ? 1 : 0;
    if (!kept)
        return CKPT_OK;
    ckpt_entry *entries = ckpt__arena_array(a, n + 1, sizeof *entries);
    if (!entries)
        return ckpt__mover_no_memory(err);
    for (size_t i = 0; dict && i < n; i++)
        entries[i] = root->entries[i];
    if (!dict && root)            /* a list, a number: it keeps a place of its own */
        entries[0] = (ckpt_entry){ ckpt__value_str(a, "value", 5), root };
    entries[n] = (ckpt_entry){ ckpt__value_str(a, CKPT__TORCH_KEY, strlen(CKPT__TORCH_KEY)), kept };
    ckpt_value *fresh = ckpt__value_dict(a, entries, n + 1);
    if (!fresh || !entries[n].key || (n && !entries[0].key))
        return ckpt__mover_no_memory(err);
    if (dict) {
        fresh->class_name = root->class_name;
        fresh->state = root->state;
    }
    m->root = fresh;
    return CKPT_OK;
}

const char *ckpt__migrate_torch_archive(const ckpt__mover *m)
{
    const char *name = m->dst;
    for (const char *c = m->dst; *c; c++)
        if (*c == '/' || *c == '\\')
            name = c + 1;
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    return n ? ckpt__arena_copy(m->index->arena, name, n) : NULL;
}
