/* format/deepspeed/models.c - the model's files of all ranks, with stage 3. Each has all names of the model, and of its tensors only its
 * part of the frozen ones and the buffers, which all have. So nothing of a file is kept but its fragments: the names of a thousand
 * parameters, a thousand times, would fill gigabytes. */
#include "format/deepspeed/deepspeed.h"
#include "format/twins.h"

#include <stdio.h>
#include <stdlib.h>

static const ckpt_value *frozen_of(const ckpt__ds *d)
{
    const ckpt_value *v = ckpt_value_get(d->model.root, "frozen_param_shapes");
    return v && v->kind == CKPT_V_DICT && v->entry_count ? v : NULL;
}

static const ckpt_value *value_at(const ckpt_value *dict, const ckpt_value *key)
{
    for (size_t i = 0; dict && dict->kind == CKPT_V_DICT && key->kind == CKPT_V_STR && i < dict->entry_count; i++)
        if (dict->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(dict->entries[i].key->text, key->text))
            return dict->entries[i].value;
    return NULL;
}

/* The storage of another index as one of ours, with its texts. */
static ckpt_status copy_storage(ckpt__ds *d, const ckpt__storage *from, const char *file, size_t *number,
                                ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const ckpt__extent *e = &from->extent;
    if (e->memory || e->spanned || (e->coding != CKPT__STORED && e->coding != CKPT__DEFLATE))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, file,
                          "its fragments of frozen parameters are in no records of the archive");
    ckpt_str name = ckpt__arena_str(x->arena, from->name.data, from->name.size),
             device =
                 from->device.data ? ckpt__arena_str(x->arena, from->device.data, from->device.size) : from->device;
    ckpt__storage *s = name.data && (device.data || !from->device.data) ? ckpt__index_add_storage(x) : NULL;
    if (!s)
        return ckpt__ds_no_memory(err);
    *s = *from;
    s->name = name;
    s->device = device;
    *number = x->storage_count - 1;
    return CKPT_OK;
}

/* part: the index that root is of. The first file's is the one that is filled. */
static ckpt_status take_fragments(ckpt__ds *d, const ckpt__index *part, const ckpt_value *root, ckpt__ds_file *f,
                                  ckpt_error *err)
{
    const ckpt_value *frozen = frozen_of(d), *all = ckpt_value_get(root, "frozen_param_fragments");
    ckpt_status status = CKPT_OK;
    if (!frozen)
        return CKPT_OK;
    if (!(f->fragments = calloc(frozen->entry_count, sizeof *f->fragments)))
        return ckpt__ds_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < frozen->entry_count; i++) {
        const ckpt_value *v = value_at(all, frozen->entries[i].key);
        const ckpt__tensor *t =
            v && v->kind == CKPT_V_TENSOR && v->tensor < part->tensor_count ? &part->tensors[v->tensor] : NULL;
        if (!t || !t->whole || t->info.ndim != 1 || t->info.shape[0] == 0 || t->info.strides[0] != 1)
            continue;
        ckpt__ds_fragment *g = &f->fragments[i];
        *g = (ckpt__ds_fragment){.storage = t->storage,
                                 .at = (uint64_t)t->info.offset * ckpt_dtype_size(t->info.dtype),
                                 .numel = (uint64_t)t->info.shape[0],
                                 .dtype = t->info.dtype};
        if (part != ckpt__ds_index(d))
            status = copy_storage(d, &part->storages[t->storage], f->name, &g->storage, err);
    }
    return status;
}

static ckpt_status check_step(const ckpt__ds *d, const ckpt__ds_file *f, const ckpt_value *root, ckpt_error *err)
{
    const int64_t step = ckpt__ds_int(ckpt_value_get(root, "global_steps")),
                  first = ckpt__ds_int(ckpt_value_get(d->model.root, "global_steps"));
    if (step == first)
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_MISMATCH, f->name,
        "it is of step %lld, %s of step %lld: these are not the files of one save. Copy the files of one step, or "
        "take another checkpoint",
        (long long)step, d->model.name, (long long)first);
}

/* How the files are read: one after the other, and each freed before the next. Nearly all of them say the same. */
typedef struct apart {
    ckpt__read_request request;
    ckpt__ahead *ahead;
} apart;

/* As an index of its own, whose arena goes with it. */
static ckpt_status open_apart(apart *a, const char *name, ckpt__index **part, ckpt_error *err)
{
    *part = NULL;
    ckpt_status status = ckpt__source_add(a->request.source, name, &a->request.file, err);
    if (status < 0 || ckpt__ahead_take(a->ahead, a->request.file, part))
        return status;
    return a->request.members->read(&a->request, NULL, part, err);
}

static ckpt_status read_one(ckpt__ds *d, apart *a, ckpt__ds_file *f, ckpt_error *err)
{
    ckpt__index *part = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = open_apart(a, f->name, &part, &why);
    if (status == CKPT_OK && (status = ckpt__ds_check_name(f->name, part->archive, &why)) < 0)
        ckpt__index_free(part);
    if (status < 0)
        return ckpt__ds_lack(d, f->name, status, &why, err);
    f->there = true;
    status = ckpt__folder_findings(&d->reader, part, f->name, err);
    if (status == CKPT_OK)
        status = check_step(d, f, part->root, err);
    if (status == CKPT_OK)
        status = take_fragments(d, part, part->root, f, err);
    ckpt__ds_index(d)->metadata_bytes += part->metadata_bytes;
    ckpt__index_free(part);
    return status;
}

static ckpt_status say_missing(const ckpt__ds *d, size_t rank, ckpt_error *err)
{
    char name[300];
    ckpt_error why = CKPT_ERROR_INIT;
    snprintf(name, sizeof name, "%szero_pp_rank_%zu_mp_rank_00_model_states.pt", d->below, rank);
    ckpt__fail(
        &why, CKPT_E_DAMAGED, name,
        "it is missing, with what rank %zu has of frozen parameters and of its own state. Copy it from where it was saved, "
        "or take another checkpoint",
        rank);
    return ckpt__ds_lack(d, name, CKPT_E_DAMAGED, &why, err);
}

ckpt_status ckpt__ds_read_models(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    d->models = calloc(d->ranks, sizeof *d->models);
    if (!d->models)
        return ckpt__ds_no_memory(err);
    const ckpt__read_request *own = d->reader.request;
    apart a = {
        .request = {
            .source = own->source, .salvage = own->salvage, .twins = ckpt__twins_new(), .members = own->members}};
    a.ahead = ckpt__ahead_new(&a.request, tag->model, tag->capacity);
    for (size_t r = 0; status == CKPT_OK && r < d->ranks; r++) {
        ckpt__ds_file *f = &d->models[r];
        f->name = r < tag->capacity ? tag->model[r] : NULL;
        if (!f->name) {
            status = say_missing(d, r, err);
        } else if (strcmp(f->name, d->model.name) == 0) {
            *f = d->model;
            status = take_fragments(d, ckpt__ds_index(d), d->model.root, f, err);
        } else {
            status = read_one(d, &a, f, err);
        }
    }
    ckpt__ahead_free(a.ahead);
    ckpt__twins_free(a.request.twins);
    return status;
}
