/* migrate/place.c - the target's index: the source's tensors and storages under their numbers, with canonical
 * names, roles, and the device tags and dtypes that rules, policy and casts give them. */
#include "migrate/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"
#include "format/torch/write.h"
#include "model/views.h"

/* The work of ckpt__migrate_place. The arrays are heap and are freed at its end. They are indexed by numbers of the
 * source, which are numbers of the target as well. */
typedef struct placement {
    ckpt__migration *m; /* borrowed */
    bool *named;        /* one a tensor: a canonical entry names it */
    ckpt__views views;  /* owned: which tensors of the source view which storage */
    size_t *holder;     /* one a storage: the tensor that gave the storage its tag; SIZE_MAX: none yet */
    ckpt_dtype *wanted; /* one a tensor: the dtype that a rule of the map or --cast asks for; NONE: as saved */
    ckpt_error *err;
} placement;

/* ---- the copy */

static ckpt_status copy_index(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__index *from = m->from;
    m->index->format = from->format;
    m->index->kind = "file";
    m->index->step = from->step;
    if (!ckpt__index_reserve(m->index, from->storage_count, from->tensor_count))
        return ckpt__migration_no_memory(err);
    for (size_t i = 0; i < from->storage_count; i++) {
        ckpt__storage *s = ckpt__index_add_storage(m->index);
        if (!s)
            return ckpt__migration_no_memory(err);
        *s = from->storages[i];
    }
    for (size_t i = 0; i < from->tensor_count; i++) {
        ckpt__tensor *t = ckpt__index_add_tensor(m->index);
        if (!t)
            return ckpt__migration_no_memory(err);
        *t = from->tensors[i];
        t->has_crc = false; /* computed anew on the way */
    }
    return CKPT_OK;
}

/* The tensor in a storage of its own, in C order. */
static ckpt_status set_own(placement *p, size_t i, ckpt__own why)
{
    ckpt__migration *m = p->m;
    ckpt__tensor *t = &m->index->tensors[i];
    ckpt_str device = t->info.device;
    ckpt__storage *s = ckpt__index_add_storage(m->index);
    if (!s)
        return ckpt__migration_no_memory(p->err);
    *s = (ckpt__storage){.extent.size = t->info.nbytes, .name = t->info.name, .device = device, .unit = 1};
    t->info.conj = t->info.neg = false;
    m->ledger.rows[i].own = (uint8_t)why;
    m->ledger.rows[i].dtype = (uint8_t)t->info.dtype;
    ckpt_status status = ckpt__index_set_view(m->index, i, m->index->storage_count - 1, t->info.shape, NULL, 0, p->err);
    m->index->tensors[i].info.device = device;
    return status;
}

/* A tensor without elements that was split has no piece that is kept; one on meta has none either. */
static bool is_empty(const ckpt__tensor *t)
{
    return ckpt__has_no_bytes(t) && t->info.shape && t->info.nbytes == 0 && !t->info.extra->layout.data &&
           !t->info.extra->part_count && ckpt__tag_parse(t->info.device).type != CKPT_DEVICE_META;
}

/* What is split becomes whole: no format that is written here keeps pieces. */
static ckpt_status join_pieces(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i++) {
        ckpt__tensor *t = &m->index->tensors[i];
        if (!ckpt__is_split(t) && !is_empty(t))
            continue;
        ckpt__leave_pieces(t); /* those are the source's */
        if (!ckpt__stays_behind(m, i))
            status = set_own(p, i, CKPT__OWN_JOINED);
    }
    return status;
}

static ckpt_status know_views(placement *p)
{
    const ckpt__index *x = p->m->from;
    p->named = calloc(x->tensor_count + 1, sizeof *p->named);
    p->holder = calloc(x->storage_count + 1, sizeof *p->holder);
    p->wanted = calloc(x->tensor_count + 1, sizeof *p->wanted);
    if (!p->named || !p->holder || !p->wanted || !ckpt__views_make(x, &p->views))
        return ckpt__migration_no_memory(p->err);
    for (size_t i = 0; i < x->storage_count; i++)
        p->holder[i] = SIZE_MAX;
    return CKPT_OK;
}

/* A tensor that is reached under two names is listed twice, and the tree has the number of the first: the second name
 * belongs to a listing of the same view that has none yet. */
static size_t listing_of(const placement *p, size_t tensor)
{
    const ckpt__index *x = p->m->from;
    if (!p->named[tensor] || !x->tensors[tensor].whole)
        return tensor;
    size_t count;
    const size_t *views = ckpt__views_of(&p->views, x->tensors[tensor].storage, &count);
    for (size_t i = 0; i < count; i++)
        if (!p->named[views[i]] && ckpt__same_view(&x->tensors[views[i]], &x->tensors[tensor]))
            return views[i];
    return tensor;
}

/* ---- dtypes */

/* Another tensor of the same view that was converted to the same dtype: they go on sharing their bytes. */
static size_t converted_twin(const placement *p, size_t tensor, ckpt_dtype to)
{
    const ckpt__index *x = p->m->from;
    size_t count;
    const size_t *views = ckpt__views_of(&p->views, x->tensors[tensor].storage, &count);
    for (size_t i = 0; x->tensors[tensor].whole && i < count; i++)
        if (views[i] != tensor && ckpt__own_dtype(p->m, views[i]) == to &&
            ckpt__same_view(&x->tensors[views[i]], &x->tensors[tensor]))
            return p->m->index->tensors[views[i]].storage;
    return SIZE_MAX;
}

static ckpt_status set_cast(placement *p, size_t tensor, ckpt_dtype to)
{
    ckpt__migration *m = p->m;
    ckpt__tensor *t = &m->index->tensors[tensor];
    uint64_t numel, nbytes;
    ckpt_str device = t->info.device, name = t->info.name;
    const char *from_name = ckpt_dtype_name(t->info.dtype);
    if (t->info.dtype == to || ckpt__has_no_bytes(t))
        return CKPT_OK;
    if (!ckpt__numel(t->info.shape, t->info.ndim, &numel) || !ckpt__nbytes(numel, ckpt_dtype_bits(to), &nbytes))
        return ckpt__fail(p->err, CKPT_E_FORMAT, name.data, "its shape overflows");
    size_t storage = converted_twin(p, tensor, to);
    if (storage == SIZE_MAX && ckpt__own_dtype(m, tensor) != CKPT_DTYPE_NONE) { /* it is alone in its storage already */
        storage = t->storage;
        m->index->storages[storage].extent.size = nbytes;
    } else if (storage == SIZE_MAX) {
        ckpt__storage *s = ckpt__index_add_storage(m->index);
        if (!s)
            return ckpt__migration_no_memory(p->err);
        *s = (ckpt__storage){.extent.size = nbytes, .name = name, .device = device, .unit = 1};
        storage = m->index->storage_count - 1;
    }
    t->info.dtype = to;
    t->info.conj = t->info.neg = false;
    m->ledger.rows[tensor].own = CKPT__OWN_CAST;
    m->ledger.rows[tensor].dtype = (uint8_t)to;
    ckpt_status status = ckpt__index_set_view(m->index, tensor, storage, t->info.shape, NULL, 0, p->err);
    m->index->tensors[tensor].info.device = device;
    if (status == CKPT_OK)
        status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "cast", name, p->err, "converted from %s to %s", from_name,
                                      ckpt_dtype_name(to));
    if (status == CKPT_OK && !ckpt__report_detail(m->report, NULL, from_name, ckpt_dtype_name(to), nbytes))
        status = ckpt__migration_no_memory(p->err);
    return status;
}

/* ---- device tags */

static const char *tag_text(ckpt_str tag, char *buf, size_t size)
{
    return tag.data ? ckpt__escape(buf, size, tag.data, tag.size) : "";
}

/* Two tensors of one storage cannot be on two devices: torch keeps the device of a storage. */
static ckpt_status split_storage(placement *p, size_t a, size_t b)
{
    const ckpt__index *x = p->m->index;
    char one[200], two[200], at[40], to[40];
    ckpt_str na = x->tensors[a].info.name, nb = x->tensors[b].info.name;
    ckpt__escape(one, sizeof one, na.data, na.size);
    ckpt__escape(two, sizeof two, nb.data, nb.size);
    tag_text(x->tensors[a].info.device, at, sizeof at);
    tag_text(x->tensors[b].info.device, to, sizeof to);
    bool added = ckpt__report_add(
        p->m->report, CKPT_SEVERITY_ERROR, "shared-split", two, "give both the same device (rules by name)",
        "'%s' would go to %s and '%s' to %s, and both are views of one storage", one, at, two, to);
    return added ? CKPT_OK : ckpt__migration_no_memory(p->err);
}

/* Torch has storages on these: of a tensor on another device the storage is the host's copy (torch/_tensor.py, _reduce_ex_internal). */
static bool has_storages(ckpt_str tag)
{
    ckpt_device_type type = ckpt__tag_parse(tag).type;
    return type == CKPT_DEVICE_CPU || type == CKPT_DEVICE_CUDA || type == CKPT_DEVICE_MPS || type == CKPT_DEVICE_XPU;
}

/* Was the tensor's storage saved with another tag than the tensor? In a torch file it is the host's copy of an xla tensor then. A
 * native file has a tag for every tensor, so that two of one storage can have different ones, which torch cannot keep. */
static bool lies_elsewhere(const placement *p, ckpt_str storage, ckpt_str tensor)
{
    const ckpt__migration *m = p->m;
    if (!storage.data || !tensor.data || ckpt__str_equal(storage, tensor))
        return false;
    bool native = m->became_torch || ckpt__format_of(m->from)->family == CKPT__FAMILY_NATIVE;
    return !m->torch || !native || !has_storages(tensor);
}

/* The tag goes to the tensor's storage where that had the tensor's. */
static ckpt_status set_storage_tag(placement *p, size_t tensor)
{
    ckpt__tensor *t = &p->m->index->tensors[tensor];
    const ckpt__tensor *was = &p->m->from->tensors[tensor];
    if (!t->whole)
        return CKPT_OK;
    size_t storage = t->storage;
    ckpt__storage *s = &p->m->index->storages[storage];
    if (storage >= p->m->from->storage_count) {
        s->device = t->info.device;
        return CKPT_OK;
    }
    if (lies_elsewhere(p, p->m->from->storages[storage].device, was->info.device))
        return CKPT_OK;
    size_t holder = p->holder[storage];
    if (holder != SIZE_MAX && s->device.data && t->info.device.data && !ckpt__str_equal(s->device, t->info.device))
        return p->m->torch ? split_storage(p, holder, tensor) : CKPT_OK;
    p->holder[storage] = tensor;
    s->device = t->info.device;
    return CKPT_OK;
}

static ckpt_status set_tag(placement *p, size_t tensor, const ckpt__target *target, bool note)
{
    ckpt__migration *m = p->m;
    ckpt_tensor_info *t = &m->index->tensors[tensor].info;
    char before[40] = "", after[CKPT_DEVICE_NAME_MAX] = "";
    if (m->same && !t->device.data)
        return CKPT_OK; /* its file keeps none */
    if (target->device.type == CKPT_DEVICE_NONE ||
        (t->device.data && ckpt__tag_parse(t->device).type == CKPT_DEVICE_META))
        return CKPT_OK; /* what is on meta has no bytes that could move */
    tag_text(t->device, before, sizeof before);
    ckpt__target_name(target, after);
    if (strcmp(before, after) == 0)
        return CKPT_OK;
    t->device = ckpt__arena_str(m->index->arena, after, strlen(after));
    if (!t->device.data)
        return ckpt__migration_no_memory(p->err);
    if (!note)
        return CKPT_OK;
    ckpt_status status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "moved", t->name, p->err, "%s -> %s",
                                              *before ? before : "no tag", after);
    if (status == CKPT_OK && !ckpt__report_detail(m->report, NULL, before, after, t->nbytes))
        status = ckpt__migration_no_memory(p->err);
    if (status == CKPT_OK)
        ckpt__migration_note_row(m, tensor);
    return status;
}

/* What describes a nested tensor: torch reads it on the host. */
static bool describes(ckpt_str name)
{
    return ckpt__str_ends_more(name, ".sizes") || ckpt__str_ends_more(name, ".strides") ||
           ckpt__str_ends_more(name, ".offsets");
}

/* Parts that were where the whole was go with it; those of a nested tensor that describe it stay on the host. */
static ckpt_status place_parts(placement *p, size_t whole)
{
    ckpt__migration *m = p->m;
    ckpt_str was = m->from->tensors[whole].info.device;
    bool nested = ckpt__str_is(m->from->tensors[whole].info.extra->layout, "nested");
    ckpt_status status = CKPT_OK;
    for (size_t i = whole + 1, end = ckpt__tensor_end(m->from, whole); status == CKPT_OK && i < end; i++) {
        ckpt_tensor_info *t = &m->index->tensors[i].info;
        if ((ckpt__str_equal(t->device, was) || !t->device.data) &&
            !(nested && describes(t->name) && ckpt__str_is(t->device, "cpu")))
            t->device = m->index->tensors[whole].info.device;
        status = set_storage_tag(p, i);
    }
    return status;
}

/* ---- canonical entries */

/* In a directory the tree's names begin with the file's; a listing has that beside the name. */
static ckpt_str listed_name(const ckpt__migration *m, ckpt_str own)
{
    const ckpt_value *root = m->from->root;
    for (size_t i = 0; m->same && root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        ckpt_str file = root->entries[i].key->text;
        if (root->entries[i].key->kind == CKPT_V_STR && own.size > file.size + 1 && own.data[file.size] == '.' &&
            memcmp(own.data, file.data, file.size) == 0)
            return (ckpt_str){own.data + file.size + 1, own.size - file.size - 1};
    }
    return own;
}

static ckpt_status set_entry(placement *p, size_t item)
{
    ckpt__migration *m = p->m;
    const ckpt__canon_entry *e = &m->canon->entries[m->places.entries[item]];
    const ckpt__target *target = &m->places.targets[item];
    size_t tensor = listing_of(p, e->tensor), g = m->places.groups[item];
    ckpt_tensor_info *t = &m->index->tensors[tensor].info;
    if (m->became_torch && ckpt__is_flat(m->from, tensor))
        return CKPT_OK; /* a part of what is no record: place_parts_alone */
    p->named[tensor] = true;
    if (ckpt__stays_behind(m, tensor))
        return CKPT_OK;
    m->ledger.rows[tensor].canonical = e->name;
    t->name = m->torch && !m->options.weights_only && m->tree ? listed_name(m, e->own) : e->name;
    t->path = (ckpt_path){NULL, 0};
    if (e->role != CKPT_ROLE_NONE)
        t->role = e->role;
    t->param = e->param;
    t->state_key = e->state_key;
    t->group = e->group.data ? e->group : g != SIZE_MAX ? m->canon->groups[g].name : e->group;
    ckpt_status status = set_tag(p, tensor, target, true);
    if (status == CKPT_OK && target->cast != CKPT_DTYPE_NONE)
        p->wanted[tensor] = target->cast;
    return status;
}

/* A target that keeps a device for everything: torch, where nothing says one, loads it on the cpu. */
static ckpt_status set_missing_tags(placement *p)
{
    ckpt__index *x = p->m->index;
    for (size_t i = 0; p->m->torch && !p->m->same && i < x->tensor_count; i++)
        if (!x->tensors[i].info.device.data)
            x->tensors[i].info.device = ckpt__s("cpu");
    for (size_t i = 0; p->m->torch && !p->m->same && i < x->storage_count; i++)
        if (!x->storages[i].device.data)
            x->storages[i].device = ckpt__s("cpu");
    return CKPT_OK;
}

/* A tensor of bytes that stands for a whole storage (torch.c, or read from a native file). */
static bool stands_for_storage(const ckpt__migration *m, size_t tensor)
{
    return ckpt__str_begins_more(m->from->tensors[tensor].info.name, CKPT__TORCH_STORAGE) &&
           ckpt__is_flat(m->from, tensor);
}

/* What stands before the last dot. */
static ckpt_str stem_of(ckpt_str name)
{
    while (name.size > 0 && name.data[name.size - 1] != '.')
        name.size--;
    return name;
}

/* Tensors "<stem>sizes" make <stem> a nested tensor; a jagged one has offsets too, which lie with its values. */
static bool note_nested(const placement *p, ckpt__hash *nested)
{
    const ckpt__index *x = p->m->from;
    for (size_t i = 0; i < x->tensor_count; i++) {
        ckpt_str stem = stem_of(x->tensors[i].info.name);
        if (!p->named[i] && ckpt__is_flat(x, i) && ckpt__str_ends_more(x->tensors[i].info.name, ".sizes") &&
            ckpt__hash_put(nested, stem.data, stem.size, i, NULL) < 0)
            return false;
    }
    return true;
}

/* A part of a tensor that is not dense, of which a native file knows no whole: rules by tag and the default. What describes
 * a nested tensor stays on the host. */
static ckpt_status place_parts_alone(placement *p)
{
    ckpt__migration *m = p->m;
    if (!m->became_torch || !m->map)
        return CKPT_OK;
    ckpt__hash *nested = ckpt__hash_new(16);
    ckpt_status status = nested && note_nested(p, nested) ? CKPT_OK : ckpt__migration_no_memory(p->err);
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i++) {
        const ckpt_tensor_info *t = &m->index->tensors[i].info;
        ckpt_str stem = stem_of(t->name);
        ckpt__subject subject = {.name = t->name, .role = CKPT_ROLE_NONE, .tag = t->device};
        ckpt__target target;
        if (p->named[i] || ckpt__stays_behind(m, i) || !ckpt__is_flat(m->from, i) || stands_for_storage(m, i) ||
            !m->from->tensors[i].whole || (describes(t->name) && ckpt__hash_get(nested, stem.data, stem.size, NULL)))
            continue;
        status = ckpt__map_apply(m->map, &subject, &m->options.ranks, NULL, &target, p->err);
        if (status == CKPT_OK)
            status = set_tag(p, i, &target, true);
    }
    ckpt__hash_free(nested);
    return status;
}

static bool is_bare(const placement *p, size_t storage)
{
    size_t count;
    const size_t *views = ckpt__views_of(&p->views, storage, &count);
    for (size_t i = 0; i < count; i++)
        if (!stands_for_storage(p->m, views[i]))
            return false;
    return true;
}

/* It is where its storage is. */
static void place_stand_ins(placement *p)
{
    ckpt__migration *m = p->m;
    for (size_t i = 0; i < m->from->tensor_count; i++)
        if (m->from->tensors[i].whole && stands_for_storage(m, i))
            m->index->tensors[i].info.device = m->index->storages[m->from->tensors[i].storage].device;
}

/* Storages that no listed tensor shows (inside opaque objects, or by themselves): rules by tag and the default. */
static ckpt_status place_bare(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && m->map && i < m->from->storage_count; i++) {
        ckpt__storage *s = &m->index->storages[i];
        ckpt__subject subject = {.name = ckpt__s(""), .role = CKPT_ROLE_NONE, .tag = s->device};
        ckpt__target target = {.device = {CKPT_DEVICE_NONE, -1}};
        char name[CKPT_DEVICE_NAME_MAX];
        if (!is_bare(p, i) || !s->device.data || ckpt__tag_parse(s->device).type == CKPT_DEVICE_META)
            continue;
        status = ckpt__map_apply(m->map, &subject, &m->options.ranks, NULL, &target, p->err);
        if (status < 0 || target.device.type == CKPT_DEVICE_NONE)
            continue;
        ckpt__target_name(&target, name);
        if (!ckpt__str_is(s->device, name) && !(s->device = ckpt__arena_str(m->index->arena, name, strlen(name))).data)
            status = ckpt__migration_no_memory(p->err);
    }
    return status;
}

static ckpt_status set_tags(placement *p)
{
    const ckpt__index *x = p->m->from;
    ckpt_status status = set_missing_tags(p);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i)) {
        if (ckpt__stays_behind(p->m, i) || stands_for_storage(p->m, i))
            continue;
        status = set_storage_tag(p, i);
        if (status == CKPT_OK && x->tensors[i].info.extra->part_count)
            status = place_parts(p, i);
    }
    return status;
}

static ckpt_status set_casts(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = ckpt__migrate_casts(m, p->wanted, p->err);
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i++)
        if (p->wanted[i] != CKPT_DTYPE_NONE && !ckpt__stays_behind(m, i))
            status = set_cast(p, i, p->wanted[i]);
    return status;
}

/* What was recovered from a storage that is not whole. */
static ckpt_status cut_out(placement *p)
{
    const ckpt__migration *m = p->m;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i++)
        if (m->ledger.rows[i].own == CKPT__OWN_CUT && !ckpt__stays_behind(m, i))
            status = set_own(p, i, CKPT__OWN_CUT);
    return status;
}

/* A tensor that a native file has in C order, and that lay otherwise in the torch file which it was made from. */
static ckpt_status set_strides(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i++) {
        const int64_t *strides = m->ledger.rows[i].strides;
        if (!strides || ckpt__stays_behind(m, i) || m->ledger.rows[i].own != CKPT__OWN_NONE)
            continue;
        const ckpt__tensor *t = &m->index->tensors[i];
        ckpt_str device = t->info.device;
        /* only dimensions of size 1 have other strides: no byte moves, and what shares the storage goes on sharing it */
        if (!ckpt__is_c_order(t->info.shape, strides, t->info.ndim))
            status = set_own(p, i, CKPT__OWN_STRIDED);
        if (status == CKPT_OK)
            status = ckpt__index_set_view(m->index, i, t->storage, t->info.shape, strides, 0, p->err);
        m->index->tensors[i].info.device = device;
    }
    return status;
}

/* Conjugate and negated views are bits beside the bytes, which torch's own format has, and ours where it keeps a torch
 * file's structure: elsewhere they are resolved, which takes a storage of their own. */
static ckpt_status resolve_views(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = CKPT_OK;
    bool keeps = m->torch || ckpt__migrate_torch_keeps(m);
    for (size_t i = 0; status == CKPT_OK && !keeps && i < m->from->tensor_count; i++) {
        ckpt__tensor *t = &m->index->tensors[i];
        if (ckpt__stays_behind(m, i) || (!t->info.conj && !t->info.neg) || !t->whole)
            continue;
        status = set_own(p, i, CKPT__OWN_RESOLVED);
        if (status == CKPT_OK)
            status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "resolved", t->info.name, p->err,
                                          "a conjugate or negated view: written as its values");
    }
    return status;
}

/* What is not dense has parts, which only torch's own format puts together again. */
static ckpt_status choose(placement *p)
{
    ckpt__migration *m = p->m;
    const ckpt__index *x = m->index;
    ckpt_status status = CKPT_OK;
    if (!(m->chosen = calloc(x->tensor_count + 1, sizeof *m->chosen)))
        return ckpt__migration_no_memory(p->err);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++) {
        const ckpt__tensor *t = &x->tensors[i];
        bool meta = ckpt__has_no_bytes(t) && !t->info.extra->layout.data && t->info.extra->part_count == 0;
        char why[300];
        if (ckpt__stays_behind(m, i))
            continue;
        if (t->whole || meta || m->torch) {
            m->chosen[m->chosen_count++] = i;
            continue;
        }
        const bool kept =
            ckpt__migrate_torch_keeps(m); /* with the torch file's structure (torch.h), the parts as tensors */
        m->ledger.rows[i].fate = kept ? CKPT__FATE_IN_STRUCTURE : CKPT__FATE_LOST;
        if (kept)
            continue;
        snprintf(why, sizeof why, "a tensor of layout %.100s is left out: only dense ones are written",
                 t->info.extra->layout.data ? t->info.extra->layout.data : "unknown");
        if (!ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", why) ||
            !ckpt__report_tensor(m->lost, t->info.name))
            status = ckpt__migration_no_memory(p->err);
    }
    return status;
}

/* Is there anything that --optimizer could speak of? */
static bool has_optimizer(const ckpt__migration *m)
{
    bool state = m->canon->group_count > 0;
    for (size_t i = 0; i < m->from->tensor_count && !state; i++) {
        ckpt_role role = m->from->tensors[i].info.role;
        state = role == CKPT_ROLE_STEP || role == CKPT_ROLE_EXP_AVG || role == CKPT_ROLE_EXP_AVG_SQ;
    }
    return state && !m->options.weights_only && !m->hf;
}

static ckpt_status place(placement *p)
{
    ckpt__migration *m = p->m;
    ckpt_status status = copy_index(m, p->err);
    if (status == CKPT_OK)
        status = join_pieces(p);
    if (status == CKPT_OK)
        status = know_views(p);
    if (status == CKPT_OK)
        status = ckpt__placement_build(m->from, m->canon, &m->places, p->err);
    if (status == CKPT_OK &&
        (m->map || m->place || m->kind != CKPT_OPTIMIZER_DEFAULT)) /* asked for nothing: every tag stays */
        status = ckpt__placement_apply(&m->places, m->map, m->options.optimizer, &m->options.ranks, m->report, p->err);
    if (status == CKPT_OK && m->options.optimizer != CKPT_OPTIMIZER_DEFAULT && !has_optimizer(m))
        status = ckpt__migration_note(
            m, CKPT_SEVERITY_WARNING, "unused-rule", (ckpt_str){NULL, 0}, p->err,
            "the optimizer is to be %s, and none is %s", ckpt_optimizer_kind_name(m->options.optimizer),
            m->options.weights_only || m->hf ? "written with the weights alone" : "in the checkpoint");
    for (size_t i = 0; status == CKPT_OK && i < m->places.count; i++)
        status = set_entry(p, i);
    if (status == CKPT_OK)
        status = place_parts_alone(p);
    ckpt__placement_free(&m->places);
    if (status == CKPT_OK)
        status = set_tags(p);
    if (status == CKPT_OK)
        status = place_bare(p);
    if (status == CKPT_OK)
        place_stand_ins(p);
    if (status == CKPT_OK)
        status = set_casts(p);
    if (status == CKPT_OK)
        status = cut_out(p);
    if (status == CKPT_OK)
        status = set_strides(p);
    if (status == CKPT_OK)
        status = resolve_views(p);
    if (status == CKPT_OK)
        status = ckpt__migrate_float4(m, p->err);
    if (status == CKPT_OK)
        status = choose(p);
    return status == CKPT_OK ? ckpt__index_finish(m->index, p->err) : status;
}

ckpt_status ckpt__migrate_place(ckpt__migration *m, ckpt_error *err)
{
    placement p = {.m = m, .err = err};
    m->index = ckpt__index_new(0);
    ckpt_status status = m->index ? place(&p) : ckpt__migration_no_memory(err);
    free(p.named);
    ckpt__views_free(&p.views);
    free(p.holder);
    free(p.wanted);
    return status;
}
