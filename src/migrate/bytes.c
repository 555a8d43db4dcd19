/* migrate/bytes.c - the bytes of a target: laid out, and proved by one plan before the first is read. */
#include "migrate/out.h"

#include <stdlib.h>
#include "engine/passes.h"
#include "format/dcp/write.h"
#include "format/safetensors.h"
#include "migrate/bytes_priv.h"
#include "model/nested.h"

/* ---- what each payload is made of */

static ckpt_status find_op(ckpt__bytes *b, const ckpt__op_want *want, const char *what, uint16_t *op, ckpt_error *err)
{
    for (size_t i = 0; i < b->op_count; i++) {
        const ckpt__op_want *w = &b->wants[i];
        if (w->from == want->from && w->to == want->to && w->from_swap == want->from_swap && w->conj == want->conj &&
            w->neg == want->neg && w->exact == want->exact) {
            *op = (uint16_t)i;
            return CKPT_OK;
        }
    }
    if (!ckpt__grow(&b->ops, &b->op_capacity, b->op_count + 1, sizeof *b->ops) ||
        !ckpt__grow(&b->wants, &b->want_capacity, b->op_count + 1, sizeof *b->wants))
        return ckpt__migration_no_memory(err);
    b->wants[b->op_count] = *want;
    b->converts |= want->from != want->to;
    *op = (uint16_t)b->op_count;
    ckpt_status status = ckpt__op_make(want, what, &b->ops[b->op_count], err); /* of dtypes and bits: never so many */
    b->op_count += status == CKPT_OK;
    return status;
}

static uint8_t swap_of(const ckpt__storage *s)
{
    return s->extent.big_endian && s->unit > 1 ? s->unit : 0;
}

static ckpt_status bond_storage(ckpt__bytes *b, const ckpt__laid *laid, ckpt__bond *bond, ckpt_error *err)
{
    const ckpt__storage *s = &b->m->from->storages[laid->from];
    uint8_t swap = swap_of(s);
    ckpt_dtype unit = swap == 2 ? CKPT_I16 : swap == 4 ? CKPT_I32 : CKPT_I64;
    const ckpt__op_want want = {.from = unit, .to = unit, .from_swap = swap};
    *bond = (ckpt__bond){laid->to, laid->from, CKPT__OP_BYTES, CKPT__BOND_STORAGE};
    return swap ? find_op(b, &want, s->name.data ? s->name.data : "a storage", &bond->op, err) : CKPT_OK;
}

/* Two values of four bits are two elements of float4 and one of float4_e2m1fn_x2: whoever has the former is seen as the latter,
 * in memory alone, as all is said of both by now. */
static ckpt_status see_pairs(const ckpt__migration *m, ckpt__tensor *four, const ckpt__tensor *pairs, ckpt_error *err)
{
    uint32_t n = pairs->info.ndim;
    int64_t *strides = ckpt__arena_array(m->index->arena, (size_t)n + 1, sizeof *strides);
    if (!strides)
        return ckpt__migration_no_memory(err);
    ckpt__c_strides(pairs->info.shape, n, strides);
    four->info.dtype = CKPT_F4_E2M1_X2;
    four->info.shape = pairs->info.shape;
    four->info.strides = strides;
    four->info.offset /= 2;
    return CKPT_OK;
}

static ckpt_status bond_tensor(ckpt__bytes *b, const ckpt__laid *laid, ckpt__bond *bond, ckpt_error *err)
{
    ckpt__tensor *from = &b->m->from->tensors[laid->from], *to = &b->m->index->tensors[laid->to];
    ckpt_status status = CKPT_OK;
    if (from->info.dtype == CKPT_F4 && to->info.dtype == CKPT_F4_E2M1_X2)
        status = see_pairs(b->m, from, to, err);
    else if (to->info.dtype == CKPT_F4 && from->info.dtype == CKPT_F4_E2M1_X2)
        status = see_pairs(b->m, to, from, err);
    if (status < 0)
        return status;
    bool converts = from->info.dtype != to->info.dtype, some = !ckpt__has_no_bytes(from);
    const ckpt__op_want want = {.from = from->info.dtype,
                                .to = to->info.dtype,
                                .from_swap =
                                    some ? swap_of(&b->m->from->storages[ckpt__first_storage(b->m->from, from)]) : 0,
                                .conj = from->info.conj && !to->info.conj,
                                .neg = from->info.neg && !to->info.neg,
                                .exact = converts && to->info.role == CKPT_ROLE_STEP};
    *bond = (ckpt__bond){.to = laid->to, .from = laid->from};
    return find_op(b, &want, to->info.name.data, &bond->op, err);
}

static ckpt_status make_bonds(ckpt__bytes *b, const ckpt__laid *laid, size_t count, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (!(b->bonds = malloc((count + 1) * sizeof *b->bonds)))
        return ckpt__migration_no_memory(err);
    b->count = count;
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        status = laid[i].storage ? bond_storage(b, &laid[i], &b->bonds[i], err)
                                 : bond_tensor(b, &laid[i], &b->bonds[i], err);
    return status;
}

/* A recipe of each tensor that the files have in ranges, as if one file had them whole, in the order in which they are met. NULL: there
 * is none. */
static ckpt_status gather_ranges(const ckpt__out *w, ckpt__recipe **out)
{
    const ckpt__index *x = w->m->index;
    size_t capacity = 0;
    bool *met = NULL;
    ckpt_status status = CKPT_OK;
    *out = NULL;
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        const ckpt__recipe *r = w->files[i].recipe;
        for (size_t k = 0; r && status == CKPT_OK && k < r->range_count; k++) {
            const size_t tensor = r->ranges[k].number;
            if (!met && (!(met = calloc(x->tensor_count + 1, sizeof *met)) || !(*out = ckpt__recipe_new())))
                status = ckpt__migration_no_memory(w->err);
            else if (!met[tensor])
                status = ckpt__recipe_add(*out, &capacity, CKPT__PAYLOAD, x->tensors[tensor].info.nbytes, NULL, tensor,
                                          w->err);
            if (met)
                met[tensor] = true;
        }
    }
    free(met);
    return status;
}

/* The ranges are of payloads by their numbers from now on, as all segments are. */
static ckpt_status number_ranges(const ckpt__out *w, const ckpt__laid *laid, size_t count)
{
    size_t *of = w->ranged ? calloc(w->m->index->tensor_count + 1, sizeof *of) : NULL;
    if (!w->ranged)
        return CKPT_OK;
    if (!of)
        return ckpt__migration_no_memory(w->err);
    for (size_t i = 0; i < count; i++)
        if (!laid[i].storage)
            of[laid[i].to] = i;
    for (size_t i = 0; i < w->count; i++)
        for (size_t k = 0; w->files[i].recipe && k < w->files[i].recipe->range_count; k++)
            w->files[i].recipe->ranges[k].number = of[w->files[i].recipe->ranges[k].number];
    free(of);
    return CKPT_OK;
}

/* A payload that was laid out in C order has the boxes of its tensor one behind the other from now on. */
static ckpt_status set_boxes(ckpt__index *x, size_t tensor, const ckpt__dcp_cut *cut, ckpt_error *err)
{
    ckpt__tensor *t = &x->tensors[tensor];
    const uint64_t at = ckpt__whole_at(t), unit = t->info.nbytes / cut->begin[cut->count];
    const uint32_t storage = t->storage;
    ckpt__piece *pieces = calloc(cut->count + 1, sizeof *pieces);
    size_t count = 0;
    if (!pieces)
        return ckpt__migration_no_memory(err);
    for (size_t k = 0; k < cut->count; k++)
        if (!ckpt__dcp_box_is_empty(cut, k))
            pieces[count++] =
                (ckpt__piece){.box = ckpt__dcp_box_lo(cut, k), .at = at + unit * cut->begin[k], .storage = storage};
    t->whole = false;
    ckpt_status status = ckpt__index_set_pieces(x, tensor, t->info.shape, pieces, count, err);
    free(pieces);
    return status;
}

/* Of those that files have in ranges: they lie in the storage behind those of the files. */
static ckpt_status set_all_boxes(const ckpt__out *w, const ckpt__laid *laid, size_t count)
{
    ckpt__index *x = w->m->index;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; w->ranged && w->cuts && status == CKPT_OK && i < count; i++) {
        const ckpt__dcp_cut *cut = laid[i].storage ? NULL : ckpt__dcp_cut_of(w->cuts, laid[i].to);
        if (cut && !cut->ranges && x->tensors[laid[i].to].storage == w->count)
            status = set_boxes(x, laid[i].to, cut, w->err);
    }
    return status;
}

uint64_t ckpt__payload_begin(const ckpt__index *x, const ckpt__tensor *t)
{
    return ckpt__is_split(t) ? x->pieces[t->first_piece].at : ckpt__whole_at(t);
}

ckpt_status ckpt__bytes_plan(ckpt__out *w, ckpt__bytes **out)
{
    ckpt__migration *m = w->m;
    ckpt__bytes *b = calloc(1, sizeof *b);
    ckpt__recipe **recipes = calloc(w->count + 2, sizeof(ckpt__recipe *));
    ckpt__laid *laid = NULL;
    size_t count = 0;
    *out = b;
    ckpt_status status = b && recipes ? CKPT_OK : ckpt__migration_no_memory(w->err);
    if (status == CKPT_OK)
        status = gather_ranges(w, &w->ranged);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        recipes[i] = w->files[i].recipe;
    if (status == CKPT_OK) {
        recipes[w->count] = w->ranged;
        status = ckpt__recipes_lay_out(recipes, w->count + (w->ranged != NULL), m->index, m->storages, &laid, &count,
                                       w->err);
    }
    free(recipes);
    if (status == CKPT_OK)
        status = number_ranges(w, laid, count);
    if (status == CKPT_OK)
        status = set_all_boxes(w, laid, count);
    if (status == CKPT_OK) {
        b->m = m;
        b->ranges = w->ranged != NULL;
        b->current = SIZE_MAX; /* nothing is behind it */
        status = make_bonds(b, laid, count, w->err);
    }
    if (status == CKPT_OK)
        status = ckpt__slices_list(b, w);
    free(laid);
    if (status < 0)
        return status;
    ckpt__plan_want want = {.from = m->from,
                            .to = m->index,
                            .bonds = b->bonds,
                            .bond_count = b->count,
                            .ops = b->ops,
                            .op_count = b->op_count,
                            .runs = m->options.totals != NULL};
    return ckpt__plan_new(&want, &b->plan, w->err);
}

/* ---- what it comes to */

uint64_t ckpt__bytes_memory(const ckpt__bytes *b)
{
    return b->count * sizeof *b->bonds + b->slice_count * sizeof *b->slices + ckpt__plan_memory(b->plan);
}

const ckpt__plan *ckpt__bytes_plan_of(const ckpt__bytes *b)
{
    return b->plan;
}

/* ---- what it comes to */

typedef struct sum {
    const ckpt__index *x;
    ckpt_migrate_totals *out;
    uint32_t last; /* the storage whose runs were given last; UINT32_MAX: none */
} sum;

/* What is coded, or computed, is read from its beginning, and once here, whatever is used of it. */
static ckpt_status add_run(void *ctx, uint32_t storage, uint64_t begin, uint64_t end, ckpt_error *err)
{
    sum *s = ctx;
    const ckpt__extent *e = ckpt__extent_known(s->x, storage);
    const bool coded = ckpt__is_coded(e), first = storage != s->last;
    (void)err;
    s->last = storage;
    if (e->memory)
        return CKPT_OK;
    if (!coded && e->coding != CKPT__MADE)
        s->out->bytes_read += end - begin;
    else if (first)
        s->out->bytes_read += e->length;
    s->out->coded += coded && first;
    return CKPT_OK;
}

/* How often a bond reads a coded storage. */
static uint64_t coded_reads(const ckpt__bytes *b, const ckpt__bond *bond)
{
    const ckpt__index *x = b->m->from;
    uint64_t reads = 0;
    if (bond->flags & CKPT__BOND_STORAGE)
        return ckpt__is_coded(ckpt__extent_known(x, bond->from));
    const ckpt__tensor *t = &x->tensors[bond->from];
    for (size_t i = 0; t->info.nbytes && i < ckpt__view_count(t); i++)
        reads += ckpt__is_coded(ckpt__extent_known(x, ckpt__view_of(x, t, i).storage));
    return reads;
}

ckpt_status ckpt__bytes_totals(const ckpt__bytes *b, ckpt_migrate_totals *out, ckpt_error *err)
{
    enum { HOLE = 16 << 10 };
    ckpt__plan_totals sums;
    sum s = {b->m->from, out, UINT32_MAX};
    ckpt__plan_totals_of(b->plan, &sums);
    *out = (ckpt_migrate_totals){.struct_size = sizeof *out,
                                 .bytes_in = sums.bytes_in,
                                 .bytes_out = sums.bytes_out,
                                 .copies = sums.meets,
                                 .replicas = sums.replicas};
    ckpt_status status = ckpt__plan_all_runs(b->plan, HOLE, add_run, &s, err);
    for (size_t i = 0; i < b->count; i++)
        out->coded_reads += coded_reads(b, &b->bonds[i]);
    return status;
}

void ckpt__bytes_free(ckpt__bytes *b)
{
    if (!b)
        return;
    for (unsigned i = 0; b->pulls && i < b->pull_count; i++)
        ckpt__pull_free(b->pulls[i]);
    free(b->pulls);
    ckpt__crcs_free(b->crcs);
    ckpt__plan_free(b->plan);
    free(b->bonds);
    free(b->ops);
    free(b->wants);
    free(b->slices);
    free(b->counts);
    free(b->checked);
    free(b->tensor_counts);
    free(b->window);
    free(b);
}
