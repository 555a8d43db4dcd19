/* migrate/own.c - tensors that cannot stay in the storage that they were read from: each gets one of its own, in C order, and the
 * ledger says why. */
#include "migrate/place.h"

#include "migrate/layout.h"
#include "migrate/torch.h"

typedef ckpt__placing placement;

/* The tensor with the dtype that it has now, in that storage (SIZE_MAX: in one of its own), in C order. */
static ckpt_status set_view(placement *p, size_t i, size_t storage, ckpt__own why)
{
    ckpt__migration *m = p->m;
    ckpt__tensor *t = &m->index->tensors[i];
    ckpt_str device = t->info.device;
    if (storage == SIZE_MAX) {
        ckpt__storage *s = ckpt__index_add_storage(m->index);
        if (!s)
            return ckpt__migration_no_memory(p->err);
        *s = (ckpt__storage){.extent.size = t->info.nbytes, .name = t->info.name, .device = device, .unit = 1};
        storage = m->index->storage_count - 1;
    }
    t->info.conj = t->info.neg = false;
    m->ledger.rows[i].own = (uint8_t)why;
    m->ledger.rows[i].dtype = (uint8_t)t->info.dtype;
    ckpt_status status = ckpt__index_set_view(m->index, i, storage, t->info.shape, NULL, 0, p->err);
    t->info.device = device;
    return status;
}

static ckpt_status set_own(placement *p, size_t i, ckpt__own why)
{
    return set_view(p, i, SIZE_MAX, why);
}

/* A tensor without elements that was split has no piece that is kept; one on meta has none either. */
static bool is_empty(const ckpt__tensor *t)
{
    return ckpt__has_no_bytes(t) && t->info.shape && t->info.nbytes == 0 && !t->info.extra->layout.data &&
           !t->info.extra->part_count && ckpt__tag_parse(t->info.device).type != CKPT_DEVICE_META;
}

/* What is split becomes whole: no format that is written here keeps pieces. */
ckpt_status ckpt__own_joined(placement *p, size_t i)
{
    const ckpt__tensor *t = &p->m->from->tensors[i];
    return ckpt__is_split(t) || is_empty(t) ? set_own(p, i, CKPT__OWN_JOINED) : CKPT_OK;
}

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

/* What is computed lies in no storage of the source. */
ckpt_status ckpt__own_merged(placement *p, size_t i)
{
    if (p->m->ledger.rows[i].own != CKPT__OWN_MERGED)
        return CKPT_OK;
    return set_view(p, i, converted_twin(p, i, p->m->index->tensors[i].info.dtype), CKPT__OWN_MERGED);
}

ckpt_status ckpt__own_cast(placement *p, size_t i)
{
    ckpt__migration *m = p->m;
    ckpt__tensor *t = &m->index->tensors[i];
    const ckpt_dtype was = t->info.dtype, to = (ckpt_dtype)m->ledger.rows[i].cast;
    uint64_t numel, nbytes;
    if (to == CKPT_DTYPE_NONE || to == was || ckpt__has_no_bytes(t))
        return CKPT_OK;
    if (!ckpt__numel(t->info.shape, t->info.ndim, &numel) || !ckpt__nbytes(numel, ckpt_dtype_bits(to), &nbytes))
        return ckpt__fail(p->err, CKPT_E_FORMAT, t->info.name.data, "its shape overflows");
    size_t storage = converted_twin(p, i, to);
    if (storage == SIZE_MAX && ckpt__own_dtype(m, i) != CKPT_DTYPE_NONE) { /* it is alone in its storage already */
        storage = t->storage;
        m->index->storages[storage].extent.size = nbytes;
    }
    t->info.dtype = to;
    t->info.nbytes = nbytes;
    ckpt_status status = set_view(p, i, storage, CKPT__OWN_CAST);
    if (status == CKPT_OK)
        status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "cast", t->info.name, p->err, "converted from %s to %s",
                                      ckpt_dtype_name(was), ckpt_dtype_name(to));
    if (status == CKPT_OK && !ckpt__report_detail(m->report, NULL, ckpt_dtype_name(was), ckpt_dtype_name(to), nbytes))
        status = ckpt__migration_no_memory(p->err);
    return status;
}

/* What was recovered from a storage that is not whole; or is in a file of its own; or was turned by a layout. */
ckpt_status ckpt__own_cut(placement *p, size_t i)
{
    const ckpt__own own = (ckpt__own)p->m->ledger.rows[i].own;
    return own == CKPT__OWN_CUT || own == CKPT__OWN_LAID ? set_own(p, i, own) : CKPT_OK;
}

/* A tensor that a native file has in C order, and that lay otherwise in the torch file which it was made from. */
ckpt_status ckpt__own_strided(placement *p, size_t i)
{
    ckpt__migration *m = p->m;
    ckpt__tensor *t = &m->index->tensors[i];
    const int64_t *strides = m->ledger.rows[i].strides;
    ckpt_str device = t->info.device;
    ckpt_status status = CKPT_OK;
    if (!strides || m->ledger.rows[i].own != CKPT__OWN_NONE)
        return CKPT_OK;
    /* only dimensions of size 1 have other strides: no byte moves, and what shares the storage goes on sharing it */
    if (!ckpt__is_c_order(t->info.shape, strides, t->info.ndim))
        status = set_own(p, i, CKPT__OWN_STRIDED);
    if (status == CKPT_OK)
        status = ckpt__index_set_view(m->index, i, t->storage, t->info.shape, strides, 0, p->err);
    t->info.device = device;
    return status;
}

/* Conjugate and negated views are bits beside the bytes, which torch's own format has, and ours where it keeps a torch
 * file's structure: elsewhere they are resolved, which takes a storage of their own. */
ckpt_status ckpt__own_resolved(placement *p, size_t i)
{
    ckpt__migration *m = p->m;
    const ckpt__tensor *t = &m->index->tensors[i];
    if ((!t->info.conj && !t->info.neg) || !t->whole || (m->torch && !m->as) || ckpt__migrate_torch_keeps(m))
        return CKPT_OK;
    ckpt_status status = set_own(p, i, CKPT__OWN_RESOLVED);
    if (status == CKPT_OK)
        status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "resolved", t->info.name, p->err,
                                      "a conjugate or negated view: written as its values");
    return status;
}

/* What a layout has made as another name of a tensor, and was put together like it, has its bytes: the file has them once. */
ckpt_status ckpt__own_tied(placement *p, size_t i)
{
    const ckpt__followed *f = p->m->followed;
    const ckpt__index *x = p->m->index;
    size_t k = 0;
    while (f && k < f->tie_count && f->ties[k].made != i)
        k++;
    if (!f || k == f->tie_count || ckpt__stays_behind(p->m, f->ties[k].of))
        return CKPT_OK;
    const ckpt__tensor *one = &x->tensors[f->ties[k].of], *other = &x->tensors[i];
    const ckpt__own own = (ckpt__own)p->m->ledger.rows[i].own;
    if (own == CKPT__OWN_NONE || p->m->ledger.rows[f->ties[k].of].own != own || !one->whole || !other->whole ||
        one->info.dtype != other->info.dtype)
        return CKPT_OK;
    if ((one->info.device.data || other->info.device.data) && !ckpt__str_equal(one->info.device, other->info.device))
        return CKPT_OK;
    return set_view(p, i, one->storage, own);
}
