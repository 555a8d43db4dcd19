/* format/deepspeed/ranks.c - the optimizer's files, one a data parallel rank: what each says, and that all are of one save. */
#include "format/deepspeed/deepspeed.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what one of them says */

const ckpt_value *ckpt__ds_optimizer(const ckpt__ds_file *f)
{
    const ckpt_value *v = f->root ? ckpt_value_get(f->root, "optimizer_state_dict") : NULL;
    return v && v->kind == CKPT_V_DICT ? v : NULL;
}

/* Stages 1 and 2 have {state: {0: {...}}, param_groups} in base_optimizer_state, or, elastic, a list of states; stage 3 has
 * optimizer_state_dict. */
static const ckpt_value *inner(const ckpt_value *optimizer)
{
    const ckpt_value *v = ckpt_value_get(optimizer, "base_optimizer_state");
    return v ? v : ckpt_value_get(optimizer, "optimizer_state_dict");
}

const ckpt_value *ckpt__ds_states(const ckpt_value *optimizer)
{
    const ckpt_value *v = inner(optimizer);
    return ckpt__is_list(v) ? v : ckpt_value_get(v, "state");
}

const ckpt_value *ckpt__ds_groups(const ckpt_value *optimizer)
{
    const ckpt_value *v = inner(optimizer), *groups = ckpt__is_list(v) ? NULL : ckpt_value_get(v, "param_groups");
    if (!groups)
        groups = ckpt_value_get(optimizer, "param_groups");
    return ckpt__is_list(groups) ? groups : NULL;
}

const ckpt_value *ckpt__ds_masters(const ckpt_value *optimizer)
{
    const ckpt_value *v = ckpt_value_get(optimizer, "fp32_flat_groups");
    if (!v)
        v = ckpt_value_get(optimizer, "single_partition_of_fp32_groups");
    return ckpt__is_list(v) ? v : NULL;
}

static int64_t stage_of(const ckpt_value *optimizer)
{
    const ckpt_value *said = ckpt_value_get(optimizer, "zero_stage");
    if (said)
        return ckpt__ds_int(said);
    return ckpt_value_get(optimizer, "fp32_flat_groups") ? 3 : ckpt__ds_masters(optimizer) ? 1 : -1;
}

/* An int, or with stages 1 and 2 one a group, which differ for experts alone. -1: it says none; -2: they differ. */
static int64_t partitions_of(const ckpt_value *optimizer)
{
    const ckpt_value *v = ckpt_value_get(optimizer, "partition_count");
    if (!ckpt__is_list(v))
        return v ? ckpt__ds_int(v) : -1;
    int64_t first = v->item_count ? ckpt__ds_int(v->items[0]) : -1;
    for (size_t i = 1; i < v->item_count; i++)
        if (ckpt__ds_int(v->items[i]) != first)
            return -2;
    return first;
}

/* ---- are two of them of one save? */

/* A number that is a value or a tensor of one element, whose few bytes are read: nothing else in such a file says of which step it
 * is. False: it is neither, or its bytes are not to be had. */
static bool read_number(const ckpt__ds *d, const ckpt_value *v, double *out)
{
    enum { WIDEST = 8 };
    unsigned char bytes[WIDEST];
    if (v && v->kind == CKPT_V_INT)
        *out = (double)v->integer;
    else if (v && v->kind == CKPT_V_FLOAT)
        *out = v->real;
    if (v && (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT))
        return true;
    const ckpt__tensor *t = ckpt__ds_tensor(d, v);
    const size_t size = t ? ckpt_dtype_size(t->info.dtype) : 0;
    if (!t || !t->whole || t->info.nbytes != size || size == 0 || size > WIDEST)
        return false;
    const ckpt__extent *e = &ckpt__ds_index(d)->storages[t->storage].extent;
    const uint64_t at = (uint64_t)t->info.offset * size;
    return e->coding == CKPT__STORED && !e->memory && !e->big_endian && !e->missing &&
           ckpt__source_read(d->reader.request->source, e->file, e->offset + at, bytes, size, NULL) == CKPT_OK &&
           ckpt__convert(t->info.dtype, bytes, CKPT_F64, out, 1, NULL);
}

/* The step of the first flat tensor. */
static bool step_of(const ckpt__ds *d, const ckpt_value *optimizer, double *out)
{
    const ckpt_value *states = ckpt__ds_states(optimizer), *first = NULL;
    if (ckpt__is_list(states) && states->item_count)
        first = states->items[0];
    else if (states && states->kind == CKPT_V_DICT && states->entry_count)
        first = states->entries[0].value;
    return first && read_number(d, ckpt_value_get(first, "step"), out);
}

bool ckpt__ds_first_step(const ckpt__ds *d, double *out)
{
    return step_of(d, d->first, out);
}

const ckpt_value *ckpt__ds_one_step(const ckpt__ds *d, const ckpt_value *optimizer)
{
    const ckpt_value *states = ckpt__ds_states(optimizer), *first = NULL;
    const bool list = ckpt__is_list(states), dict = states && states->kind == CKPT_V_DICT;
    const size_t count = list ? states->item_count : dict ? states->entry_count : 0;
    double one = 0, own;
    for (size_t i = 0; i < count; i++) {
        const ckpt_value *v = ckpt_value_get(list ? states->items[i] : states->entries[i].value, "step");
        if (!v || !read_number(d, v, &own) || (first && own != one))
            return NULL;
        one = own;
        first = first ? first : v;
    }
    return first;
}

static ckpt_status check_same(const ckpt__ds *d, const ckpt__ds_file *f, size_t rank, ckpt_error *err)
{
    const ckpt_value *own = ckpt__ds_optimizer(f);
    double a, b;
    if (stage_of(own) != d->stage)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, f->name,
            "it is of ZeRO stage %lld, the file of rank %zu of stage %lld: these are not the files of one run",
            (long long)stage_of(own), d->first_rank, (long long)d->stage);
    if (partitions_of(own) != partitions_of(d->first))
        return ckpt__fail(
            err, CKPT_E_MISMATCH, f->name,
            "it is of a run of %lld ranks (partition_count), the file of rank %zu of one of %lld: these are "
            "not the files of one run",
            (long long)partitions_of(own), d->first_rank, (long long)partitions_of(d->first));
    if (step_of(d, own, &a) && step_of(d, d->first, &b) && a != b)
        return ckpt__fail(err, CKPT_E_MISMATCH, f->name,
                          "it is of step %.0f of the optimizer, the file of rank %zu of step %.0f: these are not the "
                          "files of one save. Copy the files of one step, or take another checkpoint",
                          a, d->first_rank, b);
    static const char *const said[] = {"loss_scaler", "dynamic_loss_scale", "clip_grad"};
    bool same = ckpt__value_alike(ckpt__ds_groups(own), ckpt__ds_groups(d->first));
    const char *what = same ? NULL : "param_groups";
    for (size_t i = 0; !what && i < sizeof said / sizeof *said; i++)
        if (!ckpt__value_alike(ckpt_value_get(own, said[i]), ckpt_value_get(d->first, said[i])))
            what = said[i];
    if (what)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, f->name,
            "its %s (of rank %zu) is another than that of rank %zu: these are not the files of one save. Copy "
            "the files of one step, or take another checkpoint",
            what, rank, d->first_rank);
    return CKPT_OK;
}

/* ---- all of them */

static ckpt_status missing(const ckpt__ds *d, size_t rank, char *name, size_t size, ckpt_error *err)
{
    snprintf(name, size, "%s%szero_pp_rank_%zu_mp_rank_00_optim_states.pt", d->below,
             d->first_rank < d->ranks && d->optims && d->optims[d->first_rank].name &&
                     strstr(d->optims[d->first_rank].name, "bf16_")
                 ? "bf16_"
                 : "",
             rank);
    return ckpt__fail(err, CKPT_E_DAMAGED, name,
                      "it is missing, with what rank %zu has of the masters and of the optimizer's state. Copy it from "
                      "where it was saved (another node's disk, maybe: give its directory too), or take another "
                      "checkpoint; ckpt-migrate --salvage keeps what is whole without it",
                      rank);
}

static ckpt_status read_one(ckpt__ds *d, const char *name, ckpt__ds_file *out, ckpt_error *err)
{
    *out = (ckpt__ds_file){.name = name};
    ckpt_status status = ckpt__ds_read(d, name, &out->root, err);
    if (status == CKPT_OK && !ckpt__ds_optimizer(out))
        status = ckpt__fail(err, CKPT_E_FORMAT, name,
                            "it has no optimizer_state_dict, where a file of DeepSpeed's optimizer is expected");
    out->there = status == CKPT_OK;
    return status;
}

/* What the first file says holds for all. */
static ckpt_status take_first(ckpt__ds *d, const ckpt__ds_file *f, size_t rank, int64_t highest, ckpt_error *err)
{
    enum { MOST_RANKS = 1 << 16 };
    int64_t count;
    d->first = ckpt__ds_optimizer(f);
    d->first_rank = rank;
    d->stage = stage_of(d->first);
    if (d->stage < 1 || d->stage > 3)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, f->name, "it is of ZeRO stage %lld; the stages 1 to 3 are read",
                          (long long)d->stage);
    count = partitions_of(d->first);
    if (count == -2)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, f->name,
            "its groups are divided among different numbers of ranks (partition_count), as those of experts "
            "are, which are not read");
    if (count < 0 && (count = ckpt__ds_int(ckpt_value_get(d->model.root, "dp_world_size"))) < 0)
        count = highest + 1;
    if (count < 1 || count > MOST_RANKS)
        return ckpt__fail(err, CKPT_E_LIMIT, f->name, "its state is divided among %lld ranks; 1 to %d are read",
                          (long long)count, (int)MOST_RANKS);
    if (highest >= count)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, f->name,
            "it is of a run of %lld ranks (partition_count), and there is a file of rank %lld: these are not "
            "the files of one run",
            (long long)count, (long long)highest);
    d->ranks = (size_t)count;
    d->optims = calloc(d->ranks, sizeof *d->optims);
    return d->optims ? CKPT_OK : ckpt__ds_no_memory(err);
}

static ckpt_status find_first(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (int64_t r = 0; status == CKPT_OK && !d->first && r <= tag->highest; r++) {
        ckpt__ds_file f;
        ckpt_error why = CKPT_ERROR_INIT;
        if (!tag->optim[r])
            continue;
        status = read_one(d, tag->optim[r], &f, &why);
        if (status < 0) {
            status = ckpt__ds_lack(d, tag->optim[r], status, &why, err);
            continue;
        }
        status = take_first(d, &f, (size_t)r, tag->highest, err);
        if (status == CKPT_OK)
            d->optims[r] = f;
    }
    return status;
}

ckpt_status ckpt__ds_read_ranks(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    d->reader.ahead = ckpt__ahead_new(d->reader.request, tag->optim, (size_t)(tag->highest + 1));
    ckpt_status status = find_first(d, tag, err);
    for (size_t r = 0; status == CKPT_OK && d->first && r < d->ranks; r++) {
        char name[300];
        ckpt_error why = CKPT_ERROR_INIT;
        const char *file = (int64_t)r <= tag->highest ? tag->optim[r] : NULL;
        if (file && r <= d->first_rank) /* it was read before, or found damaged */
            continue;
        status = file ? read_one(d, file, &d->optims[r], &why) : missing(d, r, name, sizeof name, &why);
        if (status == CKPT_OK && (status = check_same(d, &d->optims[r], r, err)) < 0)
            break;
        if (status < 0) {
            status = ckpt__ds_lack(d, file ? file : name, status, &why, err);
            d->optims[r].there = false;
        }
    }
    ckpt__ahead_free(d->reader.ahead);
    d->reader.ahead = NULL;
    return status;
}
