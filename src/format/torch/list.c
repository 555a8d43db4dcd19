/* format/torch/list.c - the tensors of the index: one for each key path that leads to a tensor, so a tied parameter is
 * listed under both its names, with one storage.
 *
 * Tensors below the arguments of an opaque call, in sets, in a state that is no dict, or under keys that are tensors
 * have no path that a program could follow: they stay in the value tree, as objects, and a finding counts them. */
#include "format/torch/torch.h"

#include <stdlib.h>

/* A name on its way to the table: the place where it belongs is fetched meanwhile. */
typedef struct waiting_name {
    ckpt_str name;
    size_t tensor; /* its number */
} waiting_name;

typedef struct lister {
    ckpt__torch *t;
    const ckpt_value **containers;
    size_t container_capacity; /* [i]: the value at depth i of the visit's path */
    bool *closed;
    size_t closed_capacity; /* [i]: nothing below it is listed */
    ckpt__hash *names;
    waiting_name waiting[CKPT__HASH_AHEAD]; /* a ring */
    size_t came, put;                       /* names that came into it; that are in the table */
    const ckpt_tensor_extra *last;          /* of the last tensor that has no parts, but something else that few have */
    uint64_t names_left;                    /* bytes that the names of values may still have */
    uint64_t collisions;
    ckpt_str first_collision;
    ckpt_error *err;
} lister;

static bool is_set(const ckpt_value *v)
{
    return ckpt__str_is(v->class_name, "builtins.set") || ckpt__str_is(v->class_name, "builtins.frozenset");
}

/* Does the way from parent to the visited value go through something that has no name of its own? */
static bool leads_nowhere(const ckpt_value *parent, const ckpt_visit *visit)
{
    const ckpt_key *key = &visit->path.keys[visit->path.count - 1];
    if (parent->kind == CKPT_V_OBJECT && is_set(parent))
        return true;
    if (key->other)
        return key->text.size && key->text.data[0] == '<'; /* <tensor>: a key without a text of its own */
    bool args = visit->value == parent->args && key->text.data && ckpt__str_is(key->text, "args");
    bool state = visit->value == parent->state && key->text.data && ckpt__str_is(key->text, "state");
    if (!args && !state)
        return false;
    const ckpt_value *named = ckpt_value_get(parent, args ? "args" : "state");
    return named != visit->value;
}

/* ---- one tensor */

/* Texts of keys are those of values, which live as long; but for what stands for a key that is no str. */
static ckpt_status copy_path(ckpt__arena *a, const ckpt_visit *visit, ckpt_tensor_info *info)
{
    ckpt_key *keys = ckpt__arena_array(a, visit->path.count ? visit->path.count : 1, sizeof *keys);
    info->name = ckpt__arena_str(a, visit->name.data, visit->name.size);
    if (!keys || !info->name.data)
        return CKPT_E_NO_MEMORY;
    for (size_t i = 0; i < visit->path.count; i++) {
        keys[i] = visit->path.keys[i];
        if (keys[i].other && keys[i].text.data &&
            !(keys[i].text = ckpt__arena_str(a, keys[i].text.data, keys[i].text.size)).data)
            return CKPT_E_NO_MEMORY;
    }
    info->path = (ckpt_path){keys, visit->path.count};
    return CKPT_OK;
}

/* Packed elements (two or four to a byte) are read as the whole storage: rows may be padded to whole bytes. */
static void set_packed(ckpt__index *x, size_t number, const ckpt__torch_spec *spec)
{
    x->tensors[number].info.nbytes = x->storages[spec->storage].extent.size;
}

static ckpt_status set_dense(lister *l, size_t number, const ckpt__torch_spec *spec)
{
    ckpt__index *x = l->t->index;
    ckpt_status status =
        ckpt__index_set_view(x, number, spec->storage, spec->shape, spec->strides, spec->offset, l->err);
    if (status < 0)
        return status;
    ckpt__storage *s = &x->storages[spec->storage];
    if (s->unit == 1 && ckpt__dtype_row_of(spec->dtype)->unit > 1 && l->t->big_endian) {
        s->unit = ckpt__dtype_row_of(spec->dtype)->unit; /* an untyped storage is what its tensor makes of it */
        s->extent.big_endian = true;
    }
    if (ckpt_dtype_size(spec->dtype) == 0)
        set_packed(x, number, spec);
    return CKPT_OK;
}

/* Meta tensors and those that are not dense have a shape and no bytes. */
static ckpt_status set_shape(lister *l, size_t number, const ckpt__torch_spec *spec)
{
    ckpt_tensor_info *info = &l->t->index->tensors[number].info;
    uint64_t numel, nbytes = 0;
    char name[200];
    if (spec->shape &&
        (!ckpt__numel(spec->shape, spec->ndim, &numel) || !ckpt__nbytes(numel, ckpt_dtype_bits(spec->dtype), &nbytes)))
        return ckpt__fail(l->err, CKPT_E_FORMAT, ckpt__escape(name, sizeof name, info->name.data, info->name.size),
                          "the product of its shape is negative or overflows 64 bits");
    info->shape = spec->shape;
    info->strides = spec->strides;
    info->nbytes = nbytes;
    return CKPT_OK;
}

/* Most tensors have nothing of it; parameters have a class, all the same one. */
static bool set_extra(lister *l, const ckpt__torch_spec *spec, ckpt_tensor_info *info)
{
    const ckpt_tensor_extra *last = l->last;
    if (!spec->layout.data && !spec->quantizer.data && !spec->class_name.data && !spec->part_count)
        return true;
    if (!spec->part_count && last && last->layout.data == spec->layout.data &&
        last->quantizer.data == spec->quantizer.data && last->class_name.data == spec->class_name.data) {
        info->extra = last;
        return true;
    }
    ckpt_tensor_extra *extra = ckpt__arena_alloc(l->t->arena, sizeof *extra);
    if (!extra)
        return false;
    *extra = (ckpt_tensor_extra){.layout = spec->layout, .quantizer = spec->quantizer, .class_name = spec->class_name};
    info->extra = extra;
    if (!spec->part_count)
        l->last = extra;
    return !spec->part_count || ckpt__torch_placements(l->t, spec->state, &extra->placements);
}

static ckpt_status add_one(lister *l, ckpt__torch_tensor *tensor, const ckpt_tensor_info *named, size_t *number)
{
    const ckpt__torch_spec *spec = tensor->spec;
    ckpt__tensor *out = ckpt__index_add_tensor(l->t->index);
    if (!out)
        return ckpt__torch_no_memory(l->t, l->err);
    *number = l->t->index->tensor_count - 1;
    ckpt_tensor_info *info = &out->info;
    info->name = named->name;
    info->path = named->path;
    info->inside = named->inside;
    info->dtype = spec->dtype;
    info->ndim = spec->ndim;
    info->device = spec->device;
    info->requires_grad = spec->requires_grad;
    info->conj = spec->conj;
    info->neg = spec->neg;
    if (!set_extra(l, spec, info) || (spec->shell && !ckpt__torch_note_shard(l->t, spec, *number)))
        return ckpt__torch_no_memory(l->t, l->err);
    if (!tensor->listed)
        tensor->value.tensor = *number;
    tensor->listed = true;
    return spec->has_storage ? set_dense(l, *number, spec) : set_shape(l, *number, spec);
}

/* Name and path of the part `part` of a tensor. */
static ckpt_status part_name(lister *l, const ckpt_tensor_info *whole, ckpt_str part, ckpt_tensor_info *out)
{
    ckpt__arena *a = l->t->arena;
    size_t n = whole->name.size;
    char *name = ckpt__arena_alloc(a, n + part.size + 2);
    ckpt_key *keys = ckpt__arena_array(a, whole->path.count + 1, sizeof *keys);
    if (!name || !keys)
        return ckpt__torch_no_memory(l->t, l->err);
    memcpy(name, whole->name.data, n);
    if (whole->path.count)
        name[n++] = '.';
    memcpy(name + n, part.data, part.size);
    if (whole->path.count)
        memcpy(keys, whole->path.keys, whole->path.count * sizeof *keys);
    keys[whole->path.count].text = part;
    *out = (ckpt_tensor_info){
        .name = {name, n + part.size}, .path = {keys, whole->path.count + 1}, .inside = whole->inside};
    return CKPT_OK;
}

enum { PART_DEPTH = 8 };

/* The tensor, then its parts: each is a tensor of the index too, so that its bytes can be read. */
static ckpt_status add_tensor(lister *l, ckpt__torch_tensor *tensor, const ckpt_tensor_info *named, int depth,
                              size_t *number)
{
    const ckpt__torch_spec *spec = tensor->spec;
    ckpt_status status = add_one(l, tensor, named, number);
    if (status < 0 || spec->part_count == 0)
        return status;
    if (depth >= PART_DEPTH)
        return ckpt__fail(l->err, CKPT_E_LIMIT, l->t->label, "tensors made of tensors nest deeper than %d", PART_DEPTH);
    ckpt_tensor_info *parts = ckpt__arena_array(l->t->arena, spec->part_count, sizeof *parts);
    const ckpt_tensor_info **list = ckpt__arena_array(l->t->arena, spec->part_count, sizeof *list);
    if (!parts || !list)
        return ckpt__torch_no_memory(l->t, l->err);
    for (size_t i = 0; i < spec->part_count; i++) {
        ckpt_tensor_info part;
        size_t at;
        status = part_name(l, named, spec->parts[i].name, &part);
        if (status == CKPT_OK)
            status = add_tensor(l, spec->parts[i].tensor, &part, depth + 1, &at);
        if (status < 0)
            return status;
        parts[i] = l->t->index->tensors[at].info;
        parts[i].name = spec->parts[i].name;
        list[i] = &parts[i];
        parts[i].storage_nbytes = at; /* its number in the index, until all storages are numbered */
    }
    ckpt_tensor_extra *extra = (ckpt_tensor_extra *)(uintptr_t)l->t->index->tensors[*number].info.extra; /* its own */
    extra->parts = list;
    extra->part_count = spec->part_count;
    return CKPT_OK;
}

enum { A_NAME = 64 }; /* bytes that a table takes for a name, at most */

/* The name that has waited longest. */
static ckpt_status put_name(lister *l)
{
    const waiting_name *w = &l->waiting[l->put++ % CKPT__HASH_AHEAD];
    bool room = l->put <= l->t->tensor_count || ckpt__arena_charge(l->t->arena, A_NAME); /* more names than tensors */
    int put = room ? ckpt__hash_put(l->names, w->name.data, w->name.size, w->tensor, NULL) : -1;
    if (put < 0)
        return ckpt__torch_no_memory(l->t, l->err);
    if (put == 0 && l->collisions++ == 0)
        l->first_collision = w->name;
    return CKPT_OK;
}

static ckpt_status note_name(lister *l, ckpt_str name)
{
    ckpt_status status = l->came - l->put == CKPT__HASH_AHEAD ? put_name(l) : CKPT_OK;
    ckpt__hash_ahead(l->names, name.data, name.size);
    l->waiting[l->came++ % CKPT__HASH_AHEAD] = (waiting_name){name, l->t->index->tensor_count};
    return status;
}

/* ---- the walk */

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    lister *l = ctx;
    size_t depth = visit->path.count;
    if (visit->name.size > l->names_left)
        return ckpt__value_names_over(l->t->label, l->err);
    l->names_left -= visit->name.size;
    if (!ckpt__grow(&l->containers, &l->container_capacity, depth + 1, sizeof *l->containers) ||
        !ckpt__grow(&l->closed, &l->closed_capacity, depth + 1, sizeof *l->closed))
        return ckpt__torch_no_memory(l->t, l->err);
    l->containers[depth] = visit->value;
    l->closed[depth] = depth > 0 && (l->closed[depth - 1] || leads_nowhere(l->containers[depth - 1], visit));
    if (visit->value->kind != CKPT_V_TENSOR || l->closed[depth])
        return CKPT_OK;
    ckpt_tensor_info named = {.inside = visit->inside};
    if (copy_path(l->t->arena, visit, &named) < 0)
        return ckpt__torch_no_memory(l->t, l->err);
    ckpt__torch_tensor *tensor = (ckpt__torch_tensor *)(uintptr_t)visit->value;
    size_t number;
    int status = note_name(l, named.name);
    if (status == CKPT_OK)
        status = add_tensor(l, tensor, &named, 0, &number);
    if (status < 0)
        return status;
    ckpt__index *x = l->t->index;
    if (!ckpt__torch_set_role(l->t, tensor->spec, l->containers, &x->tensors[number].info))
        return ckpt__torch_no_memory(l->t, l->err);
    for (size_t i = number + 1; i < x->tensor_count; i++) /* its parts */
        x->tensors[i].info.role = x->tensors[number].info.role;
    return CKPT_OK;
}

/* Storages have their final numbers now: the copies in `parts` get them. */
static void number_parts(ckpt__index *x)
{
    for (size_t i = 0; i < x->tensor_count; i++) {
        for (size_t k = 0; k < x->tensors[i].info.extra->part_count; k++) {
            ckpt_tensor_info *part = (ckpt_tensor_info *)(uintptr_t)x->tensors[i].info.extra->parts[k];
            ckpt_str name = part->name;
            *part = x->tensors[part->storage_nbytes].info;
            part->name = name;
        }
    }
}

static ckpt_status close_the_rest(ckpt__torch *t, ckpt_error *err)
{
    size_t closed = 0;
    for (size_t i = 0; i < t->tensor_count; i++)
        if (!t->tensors[i]->listed) {
            ckpt_value *v = &t->tensors[i]->value;
            if (t->tensors[i]->spec->has_storage)
                t->index->storages[t->tensors[i]->spec->storage].closed = true;
            v->kind = CKPT_V_OBJECT;
            if (!v->class_name.data)
                v->class_name = ckpt__s("torch.Tensor");
            closed++;
        }
    if (closed && !ckpt__report_add(
                      t->index->findings, CKPT_SEVERITY_NOTE, "closed-tensors", NULL, NULL,
                      "%zu tensor%s inside opaque objects where no key path leads (arguments of calls, sets, keys): %s "
                      "not listed",
                      closed, closed == 1 ? " lies" : "s lie", closed == 1 ? "it is" : "they are"))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

/* dill calls setattr and dict.update so: no object holds the call, and what is written has none. */
static ckpt_status note_dropped(ckpt__torch *t, ckpt_error *err)
{
    char name[200];
    if (t->pickle.dropped == 0)
        return CKPT_OK;
    bool named = t->pickle.dropped_first->kind == CKPT__P_GLOBAL;
    ckpt_str first = named ? ckpt__torch_class(t, t->pickle.dropped_first) : ckpt__s("what another call gave");
    if (!first.data)
        return ckpt__torch_no_memory(t, err);
    ckpt__escape(name, sizeof name, first.data, first.size);
    if (!ckpt__report_add(
            t->index->findings, CKPT_SEVERITY_WARNING, "calls-dropped", NULL,
            "where the objects matter, let the program that wrote them write the copy",
            "the pickle makes %zu call%s for the effect alone and throws the result away, of %s first: they are not "
            "shown, and not written again",
            t->pickle.dropped, t->pickle.dropped == 1 ? "" : "s", name))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

ckpt_status ckpt__torch_list(ckpt__torch *t, ckpt_error *err)
{
    uint64_t size = t->window ? t->window->size : t->source ? t->source->files[t->file].size : t->pickle.end;
    lister l = {.t = t, .err = err, .names = ckpt__hash_new(t->tensor_count), .names_left = ckpt__names_limit(size)};
    bool room = l.names && ckpt__arena_charge(t->arena, (uint64_t)t->tensor_count * A_NAME) &&
                ckpt__index_reserve(t->index, 0, t->tensor_count);
    ckpt_status status = room ? CKPT_OK : ckpt__torch_no_memory(t, err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(t->index->root, ckpt__visits_limit(size), on_visit, &l, err);
    while (status == CKPT_OK && l.put < l.came)
        status = put_name(&l);
    if (status == CKPT_OK)
        status = ckpt__index_finish(t->index, err);
    if (status == CKPT_OK) {
        number_parts(t->index);
        status = close_the_rest(t, err);
    }
    if (status == CKPT_OK)
        status = note_dropped(t, err);
    if (status == CKPT_OK && l.collisions) {
        char shown[200];
        ckpt__escape(shown, sizeof shown, l.first_collision.data, l.first_collision.size);
        if (!ckpt__report_add(t->index->findings, CKPT_SEVERITY_NOTE, "name-collision", shown, NULL,
                              "%llu tensors have a name that another has too, '%s' first: their paths tell them apart",
                              (unsigned long long)l.collisions, shown))
            status = ckpt__torch_no_memory(t, err);
    }
    free(l.containers);
    free(l.closed);
    if (status == CKPT_OK && l.put == t->index->tensor_count) /* no parts, which are found by name too */
        t->index->by_name = l.names;
    else
        ckpt__hash_free(l.names);
    return status;
}
