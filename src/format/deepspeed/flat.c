/* format/deepspeed/flat.c - masters and moments: which elements of each rank's flat tensors are which parameter's.
 *
 * Stages 1 and 2: the parameters of a group, one behind the other in the order of param_shapes, each followed by what
 * param_alignment_paddings says; the whole, padded at its end, is cut into as many equal parts as there are ranks. So a cut may
 * lie within a parameter. Stage 3: each parameter is cut into equal parts, the last ones padded; a rank has one part of each. */
#include "format/deepspeed/deepspeed.h"
#include "format/survey.h"
#include "model/training.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- where each parameter begins */

static ckpt_status wrong_size(const ckpt__ds *d, size_t flat, uint64_t found, uint64_t expected, ckpt_error *err)
{
    return ckpt__fail(
        err, CKPT_E_MISMATCH, d->optims[d->first_rank].name,
        "its flat tensor %zu has %llu elements, and the parameters that param_shapes lays out in it need %llu: "
        "the model's file and this are not of one checkpoint",
        flat, (unsigned long long)found, (unsigned long long)expected);
}

/* Elements of a rank's flat tensor of masters, of one dimension. False: there is none. */
static bool length_of(const ckpt__ds *d, const ckpt_value *masters, size_t flat, uint64_t *out)
{
    const ckpt_value *v = masters && flat < masters->item_count ? masters->items[flat] : NULL;
    const ckpt__tensor *t = ckpt__ds_tensor(d, v);
    if (!t || t->info.ndim != 1 || !t->whole)
        return false;
    *out = (uint64_t)t->info.shape[0];
    return true;
}

/* Padding behind parameter i of its group (parameter_alignment). */
static uint64_t padding_behind(const ckpt__ds *d, size_t group, size_t i)
{
    const ckpt_value *all = ckpt_value_get(d->first, "param_alignment_paddings"),
                     *own = ckpt__is_list(all) && group < all->item_count ? all->items[group] : NULL;
    int64_t n = ckpt__is_list(own) && i < own->item_count ? ckpt__ds_int(own->items[i]) : 0;
    return n > 0 ? (uint64_t)n : 0;
}

/* The parameters of one group; *end: elements up to the last one's padding. */
static ckpt_status lay_out_group(ckpt__ds *d, size_t group, size_t *next, uint64_t *end, ckpt_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; *next < d->param_count && d->params[*next].group == group; i++, ++*next) {
        ckpt__ds_param *p = &d->params[*next];
        p->flat = group;
        p->at = at;
        if (!ckpt__add(at, p->numel, &at) || !ckpt__add(at, padding_behind(d, group, i), &at) || at > INT64_MAX)
            return ckpt__fail(err, CKPT_E_FORMAT, d->model.name,
                              "group %zu of param_shapes has more elements than 63 bits count", group);
    }
    *end = at;
    return CKPT_OK;
}

/* The padding at the end of the ranks' parts, by group, which their masters do not have. NULL: older versions do not say it, or the
 * masters have it: BF16_Optimizer (stage 1, bf16, gradients that are added up in float32) saves its parts as they are. It says neither
 * a stage nor a loss scale, which the optimizer of stages 1 and 2 does. */
static const ckpt_value *trims(const ckpt_value *optimizer)
{
    bool bf16 = !ckpt_value_get(optimizer, "zero_stage") && !ckpt_value_get(optimizer, "loss_scaler");
    return bf16 ? NULL : ckpt_value_get(optimizer, "group_paddings");
}

static uint64_t trimmed(const ckpt_value *optimizer, size_t group)
{
    const ckpt_value *v = trims(optimizer);
    int64_t n = ckpt__is_list(v) && group < v->item_count ? ckpt__ds_int(v->items[group]) : 0;
    return n > 0 ? (uint64_t)n : 0;
}

/* Elements of each rank's part of a group, its padding too. */
static bool part_of(const ckpt__ds *d, size_t rank, size_t group, uint64_t *out)
{
    const ckpt_value *optimizer = ckpt__ds_optimizer(&d->optims[rank]);
    return length_of(d, ckpt__ds_masters(optimizer), group, out) && ckpt__add(*out, trimmed(optimizer, group), out);
}

/* The masters of the last ranks end where the parameters do: so one that does not is another rank's. */
static ckpt_status check_trim(const ckpt__ds *d, size_t rank, size_t group, uint64_t part, uint64_t end,
                              ckpt_error *err)
{
    const ckpt_value *optimizer = ckpt__ds_optimizer(&d->optims[rank]);
    uint64_t found, first;
    if (!trims(optimizer) || !ckpt__mul(rank, part, &first) ||
        !length_of(d, ckpt__ds_masters(optimizer), group, &found))
        return CKPT_OK;
    const uint64_t left = end > first ? end - first : 0, expected = left < part ? left : part;
    return found == expected
               ? CKPT_OK
               : ckpt__fail(
                     err, CKPT_E_MISMATCH, d->optims[rank].name,
                     "its masters of group %zu have %llu elements, where rank %zu of %zu has %llu: it is the file of "
                     "another rank or of another run",
                     group, (unsigned long long)found, rank, d->ranks, (unsigned long long)expected);
}

/* Each rank's part is as long as the first one's, and all are as long as the parameters, but for a padding at the end. */
static ckpt_status check_parts(const ckpt__ds *d, size_t group, uint64_t end, ckpt_error *err)
{
    uint64_t part, own, all, kept = 0, length;
    bool whole = true;
    ckpt_status status = CKPT_OK;
    if (!part_of(d, d->first_rank, group, &part) || !ckpt__mul(part, d->ranks, &all))
        return ckpt__fail(err, CKPT_E_FORMAT, d->optims[d->first_rank].name, "it has no flat masters of group %zu",
                          group);
    for (size_t r = 0; r < d->ranks; r++) {
        whole = whole && d->optims[r].there;
        if (!d->optims[r].there)
            continue;
        if (!part_of(d, r, group, &own) || own != part)
            return ckpt__fail(
                err, CKPT_E_MISMATCH, d->optims[r].name,
                "its part of group %zu has %llu elements, that of rank %zu has %llu: these are not the files of "
                "one run",
                group, (unsigned long long)own, d->first_rank, (unsigned long long)part);
        if (length_of(d, ckpt__ds_masters(ckpt__ds_optimizer(&d->optims[r])), group, &length))
            kept += length;
    }
    if (all < end || (whole && kept != all && kept < end))
        return wrong_size(d, group, kept < all && whole ? kept : all, end, err);
    /* DeepSpeed pads to 2 elements a rank, or to the alignment that is asked for (nccl_start_alignment_factor, 4 KiB). */
    enum { WIDEST_ALIGNMENT = 4096 };
    if (all - end >= (uint64_t)WIDEST_ALIGNMENT * d->ranks)
        return wrong_size(d, group, all, end, err);
    for (size_t r = 0; status == CKPT_OK && r < d->ranks; r++)
        status = d->optims[r].there ? check_trim(d, r, group, part, end, err) : CKPT_OK;
    return status;
}

static ckpt_status lay_out_groups(ckpt__ds *d, ckpt_error *err)
{
    size_t next = 0;
    uint64_t end = 0;
    ckpt_status status = CKPT_OK;
    if (d->flat_count != d->group_count)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, d->optims[d->first_rank].name,
            "it has %zu groups of masters, and the model's file shapes of %zu: they are not of one checkpoint",
            d->flat_count, d->group_count);
    for (size_t g = 0; status == CKPT_OK && g < d->group_count; g++) {
        status = lay_out_group(d, g, &next, &end, err);
        if (status == CKPT_OK)
            status = check_parts(d, g, end, err);
    }
    return status;
}

/* Elements of a parameter that each rank has with stage 3: the last may have fewer that count. */
static uint64_t share_of(const ckpt__ds *d, const ckpt__ds_param *p)
{
    return p->numel / d->ranks + (p->numel % d->ranks != 0);
}

static ckpt_status lay_out_shares(ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *masters = ckpt__ds_masters(d->first);
    size_t flat = 0;
    uint64_t at = 0, length = 0;
    for (size_t i = 0; i < d->param_count; i++) {
        ckpt__ds_param *p = &d->params[i];
        const uint64_t share = share_of(d, p);
        while (flat < d->flat_count && (!length_of(d, masters, flat, &length) || (at == length && share))) {
            if (!length_of(d, masters, flat, &length))
                return ckpt__fail(err, CKPT_E_FORMAT, d->optims[d->first_rank].name,
                                  "its flat masters %zu are not a tensor of one dimension", flat);
            at = 0;
            flat++;
        }
        if (flat == d->flat_count || share > length - at)
            return wrong_size(d, flat, length, at + share, err);
        p->flat = flat;
        p->at = at;
        at += share;
    }
    return flat + 1 < d->flat_count || at != length ? wrong_size(d, flat, length, at, err) : CKPT_OK;
}

/* All ranks' flat tensors of stage 3 are of one length. */
static ckpt_status check_shares(const ckpt__ds *d, ckpt_error *err)
{
    for (size_t r = 0; r < d->ranks; r++)
        for (size_t k = 0; d->optims[r].there && k < d->flat_count; k++) {
            uint64_t own = 0, first = 0;
            length_of(d, ckpt__ds_masters(ckpt__ds_optimizer(&d->optims[r])), k, &own);
            length_of(d, ckpt__ds_masters(d->first), k, &first);
            if (own != first)
                return ckpt__fail(
                    err, CKPT_E_MISMATCH, d->optims[r].name,
                    "its flat masters %zu have %llu elements, those of rank %zu %llu: these are not the files of "
                    "one run",
                    k, (unsigned long long)own, d->first_rank, (unsigned long long)first);
        }
    return CKPT_OK;
}

/* The keys of the flat tensors' states: those that param_groups lists, in their order. */
static ckpt_status find_ids(ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *groups = ckpt__ds_groups(d->first);
    size_t n = 0;
    d->ids = calloc(d->flat_count + 1, sizeof *d->ids);
    if (!d->ids)
        return ckpt__ds_no_memory(err);
    for (size_t k = 0; k < d->flat_count; k++)
        d->ids[k] = (int64_t)k;
    for (size_t g = 0; groups && g < groups->item_count; g++) {
        const ckpt_value *own = ckpt_value_get(groups->items[g], "params");
        for (size_t i = 0; ckpt__is_list(own) && i < own->item_count; i++)
            if (n < d->flat_count)
                d->ids[n++] = ckpt__ds_int(own->items[i]);
    }
    return CKPT_OK;
}

ckpt_status ckpt__ds_lay_out(ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *masters = ckpt__ds_masters(d->first);
    if (!masters)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, d->optims[d->first_rank].name,
            "it has no flat masters (single_partition_of_fp32_groups, fp32_flat_groups), as DeepSpeed before 0.3.17 "
            "wrote it. Load it there, and save it with a newer one");
    d->flat_count = masters->item_count;
    ckpt_status status = find_ids(d, err);
    if (status == CKPT_OK)
        status = d->stage == 3 ? lay_out_shares(d, err) : lay_out_groups(d, err);
    return status == CKPT_OK && d->stage == 3 ? check_shares(d, err) : status;
}

/* ---- pieces */

/* Room for a piece a rank. */
typedef struct cutter {
    ckpt__ds *d;
    uint64_t copy;       /* of the bytes: CKPT__DS_STATE or CKPT__DS_WEIGHT */
    ckpt__piece *pieces; /* heap, owned, as the others */
    int64_t (*boxes)[2];
    size_t *ranks; /* whose piece it is */
} cutter;

/* The tensor of a rank that has a kind of state of the flat tensor; key data NULL: the masters. */
static const ckpt_value *find_flat(const ckpt__ds *d, size_t rank, size_t flat, ckpt_str key)
{
    const ckpt_value *optimizer = ckpt__ds_optimizer(&d->optims[rank]);
    const ckpt_value *list = key.data ? ckpt__ds_states(optimizer) : ckpt__ds_masters(optimizer);
    const ckpt_value *v = ckpt__ds_item(list, key.data ? d->ids[flat] : (int64_t)flat);
    v = key.data ? ckpt_value_get(v, key.data) : v;
    return ckpt__ds_tensor(d, v) ? v : NULL;
}

void ckpt__ds_forget_flats(ckpt__ds *d)
{
    for (size_t i = 0; i < d->looked_count; i++)
        free(d->flats[i].shares);
    d->looked_count = 0;
}

static ckpt__ds_share_of share_in(const ckpt__tensor *t)
{
    const bool plain = t && t->whole && t->info.ndim == 1 && t->info.strides[0] == 1;
    return (ckpt__ds_share_of){.numel = plain ? (uint64_t)t->info.shape[0] : 0,
                               .begin = plain ? (uint64_t)t->info.offset * ckpt_dtype_size(t->info.dtype) : 0,
                               .own = plain ? t->storage : 0,
                               .shared = UINT32_MAX};
}

/* Some rank's dtype: all have one, which the pieces of another would belie. */
static ckpt_status take_dtype(const ckpt__ds *d, size_t rank, const ckpt__tensor *t, ckpt__ds_flat *f, ckpt_error *err)
{
    if (f->dtype != CKPT_DTYPE_NONE && t->info.dtype != f->dtype)
        return ckpt__fail(err, CKPT_E_MISMATCH, d->optims[rank].name, "its %s is %s, that of a rank before %s",
                          f->key.data ? f->key.data : "master", ckpt_dtype_name(t->info.dtype),
                          ckpt_dtype_name(f->dtype));
    f->dtype = t->info.dtype;
    return CKPT_OK;
}

/* Those of all ranks. They are looked up once for all the parameters that lie in them: with a thousand ranks and a thousand
 * parameters it would be a million times. */
static ckpt_status flats_of(ckpt__ds *d, size_t flat, ckpt_str key, uint64_t copy, ckpt__ds_flat **out, ckpt_error *err)
{
    if (flat != d->flat)
        ckpt__ds_forget_flats(d);
    d->flat = flat;
    for (size_t i = 0; i < d->looked_count; i++) {
        *out = &d->flats[i];
        if (copy == (*out)->copy && !key.data == !(*out)->key.data && (!key.data || ckpt__str_equal(key, (*out)->key)))
            return CKPT_OK;
    }
    ckpt__ds_flat f = {.key = key, .copy = copy, .shares = calloc(d->ranks, sizeof *f.shares)};
    ckpt_status status = f.shares && ckpt__grow(&d->flats, &d->looked_capacity, d->looked_count + 1, sizeof *d->flats)
                             ? CKPT_OK
                             : ckpt__ds_no_memory(err);
    for (size_t r = 0; status == CKPT_OK && r < d->ranks; r++) {
        const ckpt__tensor *t = d->optims[r].there ? ckpt__ds_tensor(d, find_flat(d, r, flat, key)) : NULL;
        f.shares[r] = share_in(t);
        status = t ? take_dtype(d, r, t, &f, err) : CKPT_OK;
    }
    if (status < 0) {
        free(f.shares);
        return status;
    }
    d->flats[d->looked_count] = f;
    *out = &d->flats[d->looked_count++];
    return CKPT_OK;
}

/* The elements of p that rank r has: from *lo on, so many, and where they begin in its flat tensor. part: elements of each rank's part
 * of the flat tensor, with stage 3 of p. */
static void range_of(const ckpt__ds *d, const ckpt__ds_param *p, size_t r, uint64_t part, uint64_t *lo, uint64_t *count,
                     uint64_t *at)
{
    uint64_t begin, end, from = 0;
    if (d->stage == 3) {
        begin = r * part > p->numel ? p->numel : r * part; /* r * part < numel + ranks */
        end = p->numel - begin < part ? p->numel : begin + part;
        from = p->at;
    } else {
        const uint64_t first = r * part, last = first + part; /* part * ranks was multiplied before */
        begin = first > p->at ? first - p->at : 0;
        begin = begin > p->numel ? p->numel : begin;
        end = last > p->at ? last - p->at : 0;
        end = end > p->numel ? p->numel : end;
        from = end > begin ? p->at + begin - first : 0;
    }
    *lo = begin;
    *count = end > begin ? end - begin : 0;
    *at = from;
}

bool ckpt__ds_part_size(const ckpt__ds *d, size_t flat, uint64_t *out)
{
    return part_of(d, d->first_rank, flat, out);
}

bool ckpt__ds_share(const ckpt__ds *d, const ckpt__ds_param *p, size_t rank, uint64_t part, uint64_t *lo, uint64_t *n,
                    uint64_t *at)
{
    range_of(d, p, rank, part, lo, n, at);
    return *n > 0;
}

/* The storages of the pieces. One that is alone may be all of its tensor, which then shares no bytes with its neighbours: it has a
 * storage of its own. ranks: of each piece its rank. */
static ckpt_status set_storages(const cutter *c, ckpt__ds_flat *f, size_t count, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t part;
    if (count == 1) {
        ckpt__piece *p = &c->pieces[0];
        const size_t own = f->shares[c->ranks[0]].own;
        status = ckpt__ds_part(c->d, own, p->at, (uint64_t)p->box[1] * ckpt_dtype_size(f->dtype), c->copy, &part, err);
        p->storage = (uint32_t)part;
        p->at = part == own ? p->at : 0;
        return status;
    }
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        ckpt__ds_share_of *share = &f->shares[c->ranks[i]];
        if (share->shared == UINT32_MAX) {
            status = ckpt__ds_all_of(c->d, share->own, c->copy, &part, err);
            share->shared = (uint32_t)part;
        }
        c->pieces[i].storage = share->shared;
    }
    return status;
}

static ckpt_status cut(const cutter *c, const ckpt__ds_param *p, ckpt__ds_flat *f, size_t *count, uint64_t *elements,
                       ckpt_error *err)
{
    const ckpt__ds *d = c->d;
    const size_t size = ckpt_dtype_size(f->dtype);
    uint64_t part = d->stage == 3 ? share_of(d, p) : 0;
    *count = 0;
    *elements = 0;
    if (d->stage != 3 && !part_of(d, d->first_rank, p->flat, &part))
        return ckpt__fail(err, CKPT_E_FORMAT, d->optims[d->first_rank].name, "it has no flat masters of group %zu",
                          p->flat);
    for (size_t r = 0; r < d->ranks; r++) {
        uint64_t lo, n, at;
        range_of(d, p, r, part, &lo, &n, &at);
        if (!d->optims[r].there || n == 0)
            continue;
        if (f->shares[r].numel < at + n) {
            char shown[200];
            return ckpt__fail(err, CKPT_E_FORMAT, d->optims[r].name,
                              "its %s of the flat tensor %zu has fewer than the %llu elements that end with '%s'",
                              f->key.data ? f->key.data : "masters", p->flat, (unsigned long long)(at + n),
                              ckpt__escape(shown, sizeof shown, p->name.data, p->name.size));
        }
        c->boxes[*count][0] = (int64_t)lo;
        c->boxes[*count][1] = (int64_t)n;
        c->ranks[*count] = r;
        c->pieces[*count] =
            (ckpt__piece){.box = c->boxes[*count], .at = f->shares[r].begin + at * size, .flags = CKPT__PIECE_FLAT};
        ++*count;
        *elements += n;
    }
    return set_storages(c, f, *count, err);
}

static ckpt_status add(const cutter *c, const ckpt__ds_param *p, ckpt_str key, ckpt_str name, ckpt_role role,
                       size_t *number, ckpt_error *err)
{
    ckpt__ds *d = c->d;
    size_t count;
    uint64_t elements;
    ckpt__ds_flat *f;
    *number = SIZE_MAX;
    ckpt_status status = flats_of(d, p->flat, key, c->copy, &f, err);
    if (status == CKPT_OK)
        status = cut(c, p, f, &count, &elements, err);
    if (status < 0)
        return status;
    const ckpt_dtype dtype = f->dtype;
    if (elements == 0 && p->numel)
        return ckpt__survey_pieces(ckpt__ds_index(d)->findings, name, 0, p->numel, err);
    if (p->numel == 0)
        return ckpt__ds_add_empty(d, name, dtype == CKPT_DTYPE_NONE ? CKPT_F32 : dtype, p, role, number, err);
    status = ckpt__ds_add(d, name, dtype, p->ndim, role, number, err);
    return status == CKPT_OK ? ckpt__index_set_pieces(ckpt__ds_index(d), *number, p->shape, c->pieces, count, err)
                             : status;
}

static ckpt_status begin_cutting(ckpt__ds *d, cutter *c, ckpt_error *err)
{
    *c = (cutter){.d = d,
                  .pieces = calloc(d->ranks, sizeof *c->pieces),
                  .boxes = calloc(d->ranks, sizeof *c->boxes),
                  .ranks = calloc(d->ranks, sizeof *c->ranks)};
    return c->pieces && c->boxes && c->ranks ? CKPT_OK : ckpt__ds_no_memory(err);
}

static void end_cutting(cutter *c)
{
    free(c->pieces);
    free(c->boxes);
    free(c->ranks);
}

ckpt_status ckpt__ds_weight_of_master(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str name, ckpt_error *err)
{
    cutter c;
    size_t number;
    ckpt_status status = begin_cutting(d, &c, err);
    c.copy = CKPT__DS_WEIGHT;
    if (status == CKPT_OK)
        status = add(&c, p, (ckpt_str){NULL, 0}, name, CKPT_ROLE_PARAM, &number, err);
    end_cutting(&c);
    return status;
}

/* ---- the states of one parameter */

/* A state that is a number of its own of each flat tensor: step. */
static ckpt_status add_number(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str key, const ckpt_value *v, ckpt_error *err)
{
    if (!ckpt__ds_tensor(d, v))
        return ckpt__ds_put_number(d, p, key, v, err);
    ckpt_str name;
    size_t number;
    ckpt_status status = ckpt__ds_name_state(d, p, key, &name, err);
    if (status == CKPT_OK)
        status = ckpt__ds_add_like(d, name, v->tensor, ckpt__role_of_key(key), &number, err);
    if (status == CKPT_OK)
        ckpt__ds_belongs(d, number, p, key);
    return status;
}

static ckpt_status add_state(const cutter *c, const ckpt__ds_param *p, const ckpt_entry *e, ckpt_error *err)
{
    ckpt__ds *d = c->d;
    const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : (ckpt_str){NULL, 0};
    const ckpt__tensor *t = ckpt__ds_tensor(d, e->value);
    ckpt_str name;
    size_t number;
    if (!key.data)
        return CKPT_OK;
    if (!t || t->info.ndim == 0)
        return e->value->kind == CKPT_V_NONE ? CKPT_OK : add_number(d, p, key, e->value, err);
    ckpt_status status = ckpt__ds_name_state(d, p, key, &name, err);
    if (status == CKPT_OK)
        status = add(c, p, key, name, ckpt__role_of_key(key), &number, err);
    if (status == CKPT_OK && number != SIZE_MAX)
        ckpt__ds_belongs(d, number, p, key);
    return status;
}

static ckpt_status add_master(const cutter *c, const ckpt__ds_param *p, ckpt_error *err)
{
    ckpt_str name;
    size_t number;
    ckpt_status status = ckpt__ds_name_state(c->d, p, ckpt__s("fp32"), &name, err);
    if (status == CKPT_OK)
        status = add(c, p, (ckpt_str){NULL, 0}, name, CKPT_ROLE_MASTER, &number, err);
    if (status == CKPT_OK && number != SIZE_MAX)
        ckpt__ds_belongs(c->d, number, p, ckpt__s("master"));
    return status;
}

ckpt_status ckpt__ds_states_fill(ckpt__ds *d, ckpt_error *err)
{
    cutter c;
    ckpt_status status = begin_cutting(d, &c, err);
    for (size_t i = 0; status == CKPT_OK && i < d->param_count; i++) {
        const ckpt__ds_param *p = &d->params[i];
        const ckpt_value *state = ckpt__ds_item(ckpt__ds_states(d->first), d->ids[p->flat]);
        status = add_master(&c, p, err);
        for (size_t k = 0; status == CKPT_OK && state && state->kind == CKPT_V_DICT && k < state->entry_count; k++)
            status = add_state(&c, p, &state->entries[k], err);
    }
    end_cutting(&c);
    return status;
}
