/* migrate/place_tags.c - the device tags of a target: of tensors, of the parts of those that are not dense, and of storages. */
#include "migrate/place.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"
#include "format/torch/write.h"

typedef ckpt__placing placement;

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
    bool native = m->became_torch || ckpt__format_of(m->from)->tags_tensors;
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
    if (storage >= p->m->storages) {
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

ckpt_status ckpt__place_tag(placement *p, size_t tensor, const ckpt__target *target)
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

/* A target that keeps a device for everything: torch, where nothing says one, loads it on the cpu. */
static void set_missing_tags(placement *p)
{
    ckpt__index *x = p->m->index;
    if (!p->m->torch || p->m->same)
        return;
    for (size_t i = 0; i < x->tensor_count; i++)
        if (!x->tensors[i].info.device.data)
            x->tensors[i].info.device = ckpt__s("cpu");
    for (size_t i = 0; i < x->storage_count; i++)
        if (!x->storages[i].device.data)
            x->storages[i].device = ckpt__s("cpu");
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
        if (!p->m->ledger.rows[i].entry && ckpt__is_flat(x, i) &&
            ckpt__str_ends_more(x->tensors[i].info.name, ".sizes") &&
            ckpt__hash_put(nested, stem.data, stem.size, i, NULL) < 0)
            return false;
    }
    return true;
}

/* A part of a tensor that is not dense, of which a native file knows no whole: rules by tag and the default. What describes
 * a nested tensor stays on the host. */
ckpt_status ckpt__place_parts_alone(placement *p)
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
        if (m->ledger.rows[i].entry || ckpt__stays_behind(m, i) || !ckpt__is_flat(m->from, i) ||
            stands_for_storage(m, i) || !m->from->tensors[i].whole ||
            (describes(t->name) && ckpt__hash_get(nested, stem.data, stem.size, NULL)))
            continue;
        status = ckpt__map_apply(m->map, &subject, &m->options.ranks, NULL, &target, p->err);
        if (status == CKPT_OK)
            status = ckpt__place_tag(p, i, &target);
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
    for (size_t i = 0; status == CKPT_OK && m->map && i < m->storages; i++) {
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

/* The tag of a row's storage, and those of its parts. */
static ckpt_status tag_row(placement *p, size_t i)
{
    if (ckpt__stays_behind(p->m, i) || stands_for_storage(p->m, i))
        return CKPT_OK;
    ckpt_status status = set_storage_tag(p, i);
    return status == CKPT_OK && p->m->from->tensors[i].info.extra->part_count ? place_parts(p, i) : status;
}

ckpt_status ckpt__place_storages(placement *p)
{
    const ckpt__index *x = p->m->from;
    ckpt_status status = CKPT_OK;
    set_missing_tags(p);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i))
        status = tag_row(p, i);
    if (status == CKPT_OK)
        status = place_bare(p);
    if (status == CKPT_OK)
        place_stand_ins(p);
    return status;
}
