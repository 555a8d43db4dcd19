/* migrate/torch.c - the structure that a native file keeps of a torch file: see torch.h. */
#include "migrate/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/native/native.h"
#include "format/torch/write.h"
#include "format/table.h"
#include "model/views.h"
#include "model/visits.h"

static const ckpt_entry *kept_entry(const ckpt__index *x)
{
    bool dict = ckpt__format_of(x)->keeps_torch && x->root && x->root->kind == CKPT_V_DICT;
    const ckpt_entry *e = dict ? ckpt__find_entry(x->root, CKPT__TORCH_KEY) : NULL;
    return e && e->value->kind == CKPT_V_BYTES ? e : NULL;
}

/* ---- a directory of files: its tree is a dict from a file's name to what it holds, and has a mark in what is kept */

#define FILES_KEY "ckpt.files"

bool ckpt__migrate_in_files(const ckpt__migration *m)
{
    return m->became_torch ? m->by_files : m->reader->source->directory && !ckpt__format_of(m->from)->joins_files;
}

static const ckpt_value *mark_files(ckpt__migration *m)
{
    ckpt__arena *a = m->index->arena;
    const ckpt_value *root = m->from->root;
    ckpt_entry mark = {ckpt__value_str(a, FILES_KEY, strlen(FILES_KEY)), ckpt__value_bool(a, true)};
    if (root->kind != CKPT_V_DICT)
        return root;
    ckpt_value *copy = ckpt__value_dict(a, root->entries, root->entry_count);
    const ckpt_value *state = mark.key && mark.value ? ckpt__value_dict(a, &mark, 1) : NULL;
    if (!copy || !state)
        return NULL;
    copy->class_name = ckpt__s("collections.OrderedDict");
    copy->state = state;
    return copy;
}

static ckpt_status read_mark(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *root = m->from->root;
    if (root->kind != CKPT_V_DICT || !root->state || root->state->kind != CKPT_V_DICT ||
        !ckpt__find_entry(root->state, FILES_KEY))
        return CKPT_OK;
    ckpt_value *plain = ckpt__value_new(m->from->arena, CKPT_V_DICT);
    if (!plain)
        return ckpt__migration_no_memory(err);
    plain->entries = root->entries;
    plain->entry_count = root->entry_count;
    m->by_files = true;
    m->from->kind = "directory";
    ckpt_status status = ckpt__migration_replace(m, root, plain, err);
    return status == CKPT_OK ? ckpt__migration_apply(m, err) : status;
}

/* ---- as if it were the torch file */

/* The two walks of become_torch: the first names a tensor by its first place, the second names its other records. */
typedef struct name_walk {
    ckpt__index *x;
    bool *named; /* heap, one a tensor: it has its name from the tree */
    bool again;  /* the second walk: second places of tensors that are recorded under each of their names */
    ckpt__views views;
    size_t closed; /* the depth of a tensor that is no record of its own, with its parts below it; 0: none */
    ckpt_error *err;
} name_walk;

/* The native file records a tensor once a name; the tree has the number of one of them. Another record of the same view, by
 * the name that this place has without what leads to its state_dict. */
static bool other_record(const name_walk *n, size_t tensor, ckpt_str place, size_t *out)
{
    const ckpt__tensor *t = &n->x->tensors[tensor];
    size_t count = 0;
    const size_t *views = t->whole ? ckpt__views_of(&n->views, t->storage, &count) : NULL;
    for (size_t k = 0; k < count; k++) {
        size_t i = views[k];
        if (!n->named[i] && ckpt__is_flat(n->x, i) && n->x->tensors[i].info.name.size > 0 &&
            ckpt__str_ends_with(place, n->x->tensors[i].info.name) && ckpt__same_view(&n->x->tensors[i], t)) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* The name and path of a tensor are where the tree has it: the first place, as when a torch file is read. Parts of what is
 * no record keep theirs. */
static int name_tensor(void *ctx, const ckpt_visit *visit)
{
    name_walk *n = ctx;
    const ckpt_value *v = visit->value;
    if (n->closed && visit->path.count >= n->closed)
        return 0;
    n->closed = ckpt__torch_is_closed(v) ? visit->path.count + 1 : 0;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= n->x->tensor_count || n->named[v->tensor] != n->again)
        return 0;
    size_t tensor = v->tensor;
    if (n->again && (ckpt__str_equal(n->x->tensors[tensor].info.name, visit->name) || visit->cycle ||
                     !other_record(n, tensor, visit->name, &tensor)))
        return 0;
    ckpt_tensor_info *info = &n->x->tensors[tensor].info;
    if (!ckpt__visit_row(n->x->arena, visit, info))
        return ckpt__migration_no_memory(n->err);
    n->named[tensor] = true;
    return 0;
}

/* Is anything asked for that does not reach a tensor which is no record of its own? */
static bool edits_content(const ckpt__migration *m)
{
    const ckpt_migrate_options *o = &m->options;
    return ckpt__selects(m) || o->plain || o->replace_count || o->cast_count || o->salvage ||
           o->rank_state != CKPT_RANK_STATE_KEEP;
}

/* Is anything asked for that may change a tensor, a name or a value? */
static bool edits(const ckpt__migration *m)
{
    const ckpt_migrate_options *o = &m->options;
    return edits_content(m) || o->strip_prefix_count || o->rename_count || o->add_prefix || o->map_device_objects ||
           o->param_name_count || o->fix_count || m->map || m->kind != CKPT_OPTIMIZER_DEFAULT;
}

static ckpt_status note_closed(ckpt__migration *m, size_t count, ckpt_error *err)
{
    return ckpt__migration_note(
        m, CKPT_SEVERITY_WARNING, "not-edited", (ckpt_str){NULL, 0}, err,
        "tensors that are not dense, or on meta (%zu), only get other names and devices: --cast and --drop change them where the torch file itself is migrated",
        count);
}

static ckpt_status become_torch(ckpt__migration *m, ckpt_str pickle, ckpt_error *err)
{
    ckpt__index *x = m->from;
    const ckpt_value *root = NULL;
    size_t closed = 0;
    name_walk n = {.x = x, .err = err};
    const int64_t **strides = calloc(x->tensor_count + 1, sizeof(const int64_t *));
    n.named = calloc(x->tensor_count + 1, sizeof *n.named);
    ckpt_status status = n.named && strides && ckpt__views_make(x, false, &n.views)
                             ? ckpt__torch_kept_tree(x, pickle, &root, strides, &closed, err)
                             : ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(root, 0, name_tensor, &n, err);
    n.again = true;
    n.closed = 0;
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(root, 0, name_tensor, &n, err);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        m->ledger.rows[i].strides = strides[i];
    free(strides);
    free(n.named);
    ckpt__views_free(&n.views);
    if (status < 0) {
        ckpt__error_prefix(err, "the structure of a torch file that it keeps (%s)", CKPT__TORCH_KEY);
        return status;
    }
    x->root = root;
    x->format = ckpt__format_torch.name;
    m->became_torch = true;
    status = read_mark(m, err);
    return status == CKPT_OK && closed && edits_content(m) && !m->options.weights_only ? note_closed(m, closed, err)
                                                                                       : status;
}

/* An entry of the root goes. */
static ckpt_status take_out(ckpt__migration *m, const ckpt_entry *e, ckpt_error *err)
{
    const ckpt_value *root = m->from->root;
    const ckpt__spot place = {e->value, root, root, (size_t)(e - root->entries), false};
    return ckpt__edits_drop(m->edits, &place) ? ckpt__migration_apply(m, err) : ckpt__migration_no_memory(err);
}

/* Is the tensor all of its storage, in C order? */
static bool is_all_of(const ckpt__tensor *t, const ckpt__storage *s)
{
    return t->info.offset == 0 && t->info.nbytes == s->extent.size && !t->info.conj && !t->info.neg &&
           ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim);
}

/* Storages that no tensor shows become tensors of bytes, so that they go along; also those of which the tensors show a
 * part, where something inside an opaque object may look at the rest. */
static ckpt_status show_storages(ckpt__migration *m, ckpt_error *err)
{
    ckpt__index *x = m->from;
    bool *shown = calloc(x->storage_count + 1, sizeof *shown);
    const bool leaves_out =
        m->options.replace_count || ckpt__selects(m) || m->options.rank_state != CKPT_RANK_STATE_KEEP;
    ckpt_status status = shown ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t i = 0; shown && i < x->tensor_count; i++)
        if (x->tensors[i].whole) {
            const ckpt__storage *s = &x->storages[x->tensors[i].storage];
            if (!s->closed || (!leaves_out && is_all_of(&x->tensors[i], s)))
                shown[x->tensors[i].storage] = true;
        } else
            for (size_t p = 0; p < ckpt__view_count(&x->tensors[i]); p++) { /* its elements go along, joined */
                uint32_t storage = ckpt__view_of(x, &x->tensors[i], p).storage;
                shown[storage] |= !x->storages[storage].closed;
            }
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++) {
        char name[sizeof CKPT__TORCH_STORAGE + 24];
        uint64_t size = x->storages[i].extent.size;
        if (shown[i] || x->storages[i].extent.missing || size > INT64_MAX)
            continue;
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        int64_t shape = (int64_t)size;
        snprintf(name, sizeof name, CKPT__TORCH_STORAGE "%zu", i);
        if (!t || !(t->info.name = ckpt__arena_str(x->arena, name, strlen(name))).data) {
            status = ckpt__migration_no_memory(err);
            break;
        }
        t->info.dtype = CKPT_U8;
        t->info.ndim = 1;
        t->info.role = CKPT_ROLE_OTHER;
        status = ckpt__index_set_view(x, x->tensor_count - 1, i, &shape, NULL, 0, err);
    }
    free(shown);
    if (status == CKPT_OK && !ckpt__ledger_reach(&m->ledger, x->tensor_count))
        status = ckpt__migration_no_memory(err);
    return status;
}

bool ckpt__migrate_torch_keeps(const ckpt__migration *m)
{
    const ckpt__index *x = m->from;
    bool structured = ckpt__has_tree(x) || m->reader->source->directory;
    /* one of libtorch's in C++ that has names is made from those again (to_torch.c) */
    return m->format->keeps_torch && m->as != CKPT__AS_RUN && !m->options.weights_only &&
           !ckpt__format_of(x)->canonical && structured && x->root && !m->named_script;
}

/* ---- edited along, for a native target */

/* What becomes of a native file's tensors, to be taken back. */
typedef struct before {
    ckpt_tensor_info *tensors; /* heap */
    size_t count;
    const ckpt_value *root;
    ckpt__hash *names; /* -> a tensor */
} before;

static void free_before(before *b)
{
    free(b->tensors);
    ckpt__hash_free(b->names);
}

static bool note_before(const ckpt__index *x, before *b)
{
    b->count = x->tensor_count;
    b->root = x->root;
    b->tensors = malloc((b->count + 1) * sizeof *b->tensors);
    b->names = ckpt__hash_new(b->count);
    bool ok = b->tensors && b->names;
    for (size_t i = 0; ok && i < b->count; i++) {
        b->tensors[i] = x->tensors[i].info;
        ok = ckpt__hash_put(b->names, b->tensors[i].name.data, b->tensors[i].name.size, i, NULL) >= 0;
    }
    return ok;
}

static void take_back(ckpt__migration *m, const before *b)
{
    for (size_t i = 0; i < b->count; i++)
        m->from->tensors[i].info = b->tensors[i];
    for (size_t i = 0; i < m->ledger.count; i++)
        m->ledger.rows[i].strides = NULL;
    m->from->root = b->root;
    m->from->format = ckpt__format_native.name;
    m->from->kind = "file";
    m->became_torch = m->by_files = false;
    free(m->kept_names);
    m->kept_names = NULL;
    m->kept_name_count = 0;
}

static bool is_param_name(ckpt_str name)
{
    return name.data && !memchr(name.data, 0, name.size);
}

/* The optimizer's order, which the canonical names have, and which the torch file may not say. */
static ckpt_status note_order(ckpt__migration *m, const ckpt__canon *canon, ckpt_error *err)
{
    size_t n = 0;
    for (size_t g = 0; g < canon->group_count; g++)
        n += canon->groups[g].param_count;
    if (!(m->kept_names = calloc(n + 1, sizeof *m->kept_names)))
        return ckpt__migration_no_memory(err);
    for (size_t g = 0; g < canon->group_count; g++)
        for (size_t i = 0; i < canon->groups[g].param_count; i++) {
            ckpt_str name = canon->groups[g].params[i];
            char *text = ckpt__arena_copy(m->from->arena, name.data ? name.data : "", name.size + 1);
            if (!text)
                return ckpt__migration_no_memory(err);
            text[name.size] = 0;
            if (is_param_name(name))
                m->kept_names[m->kept_name_count++] = text;
        }
    return CKPT_OK;
}

static bool same_bytes(const ckpt__tensor *a, const ckpt__tensor *b)
{
    return a == b || (a->whole && b->whole && a->storage == b->storage && a->info.offset == b->info.offset);
}

/* Has everything the name that it has in the native file? One tensor may have several. */
static bool same_names(const ckpt__index *x, const ckpt__canon *canon, const before *b)
{
    for (size_t i = 0; i < canon->count; i++) {
        const ckpt__canon_entry *e = &canon->entries[i];
        size_t named;
        if (e->is_tensor && !ckpt__is_flat(x, e->tensor) &&
            (e->tensor >= b->count || !ckpt__hash_get(b->names, e->name.data, e->name.size, &named) ||
             !same_bytes(&x->tensors[e->tensor], &x->tensors[named])))
            return false;
    }
    return true;
}

/* Reads the file as the torch file that it was made from, so that one edit changes both; *along is false where that does
 * not give the names that it has. */
static ckpt_status try_along(ckpt__migration *m, ckpt_str pickle, const before *b, bool *along, ckpt_error *err)
{
    ckpt__canon *canon = NULL;
    ckpt_error why;
    ckpt_report *said = ckpt_report_new();
    ckpt_status status = said ? ckpt__canon_build(m->from, NULL, &canon, said, err) : ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        status = note_order(m, canon, err);
    ckpt__canon_free(canon);
    canon = NULL;
    if (status == CKPT_OK)
        status = become_torch(m, pickle, err);
    if (status == CKPT_OK) {
        ckpt__canon_hints hints = {.map = m->map,
                                   .param_names = m->kept_names,
                                   .param_name_count = m->kept_name_count,
                                   .optional_optimizer = true};
        *along = ckpt__canon_build(m->from, &hints, &canon, said, &why) == CKPT_OK && same_names(m->from, canon, b);
        ckpt__canon_free(canon);
    }
    ckpt_report_free(said);
    return status;
}

static ckpt_status edit_along(ckpt__migration *m, const ckpt_entry *e, ckpt_error *err)
{
    before b = {0};
    bool along = false;
    ckpt_status status =
        note_before(m->from, &b) ? try_along(m, e->value->text, &b, &along, err) : ckpt__migration_no_memory(err);
    if (status == CKPT_OK && !along) {
        take_back(m, &b);
        status = take_out(m, e, err);
    }
    if (status == CKPT_OK && !along)
        status = ckpt__migration_note(
            m, CKPT_SEVERITY_NOTE, "structure-dropped", (ckpt_str){NULL, 0}, err,
            "the structure of the torch file that it was made from cannot be changed along, and is left "
            "out: --to torch will make one of the names");
    free_before(&b);
    return status;
}

/* The optimizer of the target has names, and those of the native file are sure: the torch file may have numbers alone. */
static ckpt_status keep_order(ckpt__migration *m, ckpt_error *err)
{
    ckpt__canon *canon = NULL;
    ckpt_report *said = ckpt_report_new();
    ckpt_status status = said ? ckpt__canon_build(m->from, NULL, &canon, said, err) : ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        status = note_order(m, canon, err);
    ckpt__canon_free(canon);
    ckpt_report_free(said);
    return status;
}

ckpt_status ckpt__migrate_torch_open(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_entry *e = kept_entry(m->from);
    ckpt_status status = CKPT_OK;
    if (ckpt__migrate_torch_keeps(m))
        return show_storages(m, err);
    if (!e)
        return CKPT_OK;
    if (m->torch && (m->as || m->options.layout) && !m->options.param_name_count)
        status = keep_order(m, err);
    if (m->torch)
        return status == CKPT_OK ? become_torch(m, e->value->text, err) : status;
    if (m->as == CKPT__AS_RUN) /* a directory of files, and the structure is that of one */
        return take_out(m, e, err);
    if (m->format->keeps_torch && !m->options.weights_only)
        return edits(m) ? edit_along(m, e, err) : CKPT_OK;
    return take_out(m, e, err);
}

/* ---- keeping it */

/* What the file will have no record of is taken out of the pickle. */
static ckpt_status renumber(ckpt__migration *m, ckpt__torch_pickling *p, ckpt_error *err)
{
    const size_t *record_of = p->record_of;
    ckpt__buf pickle = {0};
    ckpt__buf_free(&m->kept);
    p->record_of = NULL;
    p->lost = NULL; /* it was said */
    ckpt_status status = ckpt__torch_pickle(p, &pickle, err);
    if (status == CKPT_OK)
        status = ckpt__torch_kept_renumber((ckpt_str){pickle.data, pickle.size}, record_of, m->index->tensor_count,
                                           &m->kept, err);
    ckpt__buf_free(&pickle);
    return status;
}

ckpt_status ckpt__migrate_torch_keep(ckpt__migration *m, const ckpt_value **kept, ckpt_error *err)
{
    *kept = NULL;
    if (!ckpt__migrate_torch_keeps(m))
        return CKPT_OK;
    ckpt__write_request q = {.index = m->index, .tensors = m->chosen, .count = m->chosen_count};
    ckpt__torch_pickling p = {.index = m->index, .source = m->from, .edits = m->edits, .lost = m->lost, .kept = true};
    size_t *record_of = NULL;
    ckpt_status status = m->kind != CKPT_OPTIMIZER_DEFAULT ? ckpt__migrate_torch_flags(m, err) : CKPT_OK;
    p.root = m->from->root;
    if (status == CKPT_OK && ckpt__migrate_in_files(m) && !(p.root = mark_files(m)))
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        status = ckpt__native_records(&q, &record_of, err);
    ckpt__heap_trim(); /* its entries */
    p.record_of = record_of;
    if (status == CKPT_OK)
        status = ckpt__torch_pickle(&p, &m->kept, err);
    if (status == CKPT_OK && p.missing)
        status = renumber(m, &p, err);
    free(record_of);
    free(p.storages);
    ckpt_value *v = status == CKPT_OK ? ckpt__value_new(m->index->arena, CKPT_V_BYTES) : NULL;
    if (v)
        v->text = (ckpt_str){m->kept.data, m->kept.size};
    else if (status == CKPT_OK)
        status = ckpt__migration_no_memory(err);
    *kept = v;
    return status;
}

ckpt_status ckpt__migrate_torch_attach(ckpt__migration *m, const ckpt_value *kept, ckpt_error *err)
{
    ckpt__arena *a = m->index->arena;
    const ckpt_value *root = m->root;
    bool dict = root && root->kind == CKPT_V_DICT;
    size_t n = dict ? root->entry_count : root ? 1 : 0;
    if (!kept)
        return CKPT_OK;
    ckpt_entry *entries = ckpt__arena_array(a, n + 1, sizeof *entries);
    if (!entries)
        return ckpt__migration_no_memory(err);
    for (size_t i = 0; dict && i < n; i++)
        entries[i] = root->entries[i];
    if (!dict && root) /* a list, a number: it keeps a place of its own */
        entries[0] = (ckpt_entry){ckpt__value_str(a, "value", 5), root};
    entries[n] = (ckpt_entry){ckpt__value_str(a, CKPT__TORCH_KEY, strlen(CKPT__TORCH_KEY)), kept};
    const ckpt_value *fresh =
        dict ? ckpt__value_dict_like(a, root, entries, n + 1) : ckpt__value_dict(a, entries, n + 1);
    if (!fresh || !entries[n].key || (n && !entries[0].key))
        return ckpt__migration_no_memory(err);
    m->root = fresh;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_torch_views(ckpt__migration *m, const ckpt__recipe *recipe, ckpt_error *err)
{
    const ckpt__index *x = m->index;
    bool *views = calloc(x->storage_count + 1, sizeof *views);
    size_t count = 0;
    ckpt_str first = {NULL, 0};
    ckpt_status status = views ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t i = 0; views && i < recipe->count; i++)
        if (recipe->segments[i].kind == CKPT__STORAGE && recipe->segments[i].number < x->storage_count)
            views[recipe->segments[i].number] = true;
    for (size_t k = 0; views && k < m->chosen_count; k++) {
        const ckpt__tensor *t = &x->tensors[m->chosen[k]];
        if (!t->whole || !views[t->storage])
            continue;
        first = count++ ? first : t->info.name;
    }
    if (count && m->format->keeps_torch && ckpt__migrate_torch_keeps(m))
        status = ckpt__migration_note(
            m, CKPT_SEVERITY_NOTE, "view", count == 1 ? first : (ckpt_str){NULL, 0}, err,
            "%zu %s (not in C order, or of a part of its storage; conjugate or negated): kept so, which a "
            "reader of plain safetensors sees as the bytes of ckpt.storage.*, under no name",
            count, count == 1 ? "tensor is a view" : "tensors are views");
    free(views);
    return status;
}

const char *ckpt__migrate_torch_archive(const ckpt__migration *m)
{
    const char *name = m->dst;
    for (const char *c = m->dst; *c; c++)
        if (*c == '/' || *c == '\\')
            name = c + 1;
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    return n ? ckpt__arena_copy(m->index->arena, name, n) : NULL;
}
