/* format/megatron/join.c - the parts of all ranks -> one tensor for each parameter.
 *
 * A gated fc1 of 4 + 4 rows over 2 ranks: rank 0 has the rows 0 and 1 of the gate, and below them 0 and 1 of the other half.
 *
 *     rank 0   [g0 g1 u0 u1]     pieces: its rows 0-1 are rows 0-1 of the whole, its rows 2-3 are rows 4-5
 *     rank 1   [g2 g3 u2 u3]     pieces: rows 2-3, and rows 6-7                              whole: [g0 g1 g2 g3 u0 u1 u2 u3] */
#include "format/megatron/ranks.h"
#include "format/survey.h"

#include <stdio.h>
#include <stdlib.h>

static const size_t NO_PART = SIZE_MAX;

/* Behind "model." or "model<number>.". */
static ckpt_str name_in_model(const ckpt_tensor_info *t)
{
    const char *dot = memchr(t->name.data, '.', t->name.size);
    const size_t head = dot ? (size_t)(dot - t->name.data) + 1 : 0;
    return (ckpt_str){t->name.data + head, t->name.size - head};
}

static const ckpt_tensor_info *part_of(const ckpt__meg *m, const ckpt__meg_rank *r, size_t stage, size_t row)
{
    return &m->index->tensors[ckpt__meg_chunk_of(m, r, stage)->items[row]].info;
}

/* ---- layers: each stage counts its own from 0 */

/* "decoder." of "decoder.layers.3.mlp.linear_fc1.weight"; the layers of a prediction of several tokens are counted by themselves. */
static bool is_main_stack(ckpt_str name, size_t at)
{
    const ckpt_str before = {name.data, at - (sizeof "layers." - 1)};
    return before.size == 0 || ckpt__str_ends(before, "decoder.") || ckpt__str_ends(before, "encoder.") ||
           ckpt__str_ends(before, "transformer.");
}

/* Layers of a stage, and which stack they are of: two stacks are cut in another way than one. */
static int64_t count_layers(const ckpt__meg *m, const ckpt__meg_rank *r, size_t stage, ckpt_str *stack, bool *two)
{
    int64_t count = 0;
    for (size_t i = 0; i < ckpt__meg_chunk_of(m, r, stage)->count; i++) {
        const ckpt_str name = name_in_model(part_of(m, r, stage, i));
        size_t at, size;
        int64_t layer;
        if (!ckpt__meg_layer(name, &at, &size, &layer) || !is_main_stack(name, at))
            continue;
        const ckpt_str own = {name.data, at};
        *two |= stack->data && !ckpt__str_equal(*stack, own);
        *stack = stack->data ? *stack : own;
        count = layer + 1 > count ? layer + 1 : count;
    }
    return count;
}

/* first[s]: the number of the first layer of stage s. Of stages that are not there the arguments say the sum. */
static ckpt_status number_layers(const ckpt__meg *m, int64_t *first, ckpt_error *err)
{
    ckpt_str stack = {NULL, 0};
    bool two = false;
    int64_t sum = 0, all;
    size_t lost = 0;
    const bool known = ckpt__meg_int(m->args, "num_layers", &all);
    for (size_t s = 0; s < m->stage_count; s++) {
        const ckpt__meg_rank *r = ckpt__meg_of_stage(m, s);
        first[s] = r ? count_layers(m, r, s, &stack, &two) : -1;
        lost += !r;
        sum += r ? first[s] : 0;
    }
    if (two && m->stage_count > 1)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, m->label,
            "its model has several stacks of layers, cut over %zu pipeline stages, and such checkpoints are not "
            "read in this layout: save it with Megatron-LM and --ckpt-format torch_dist",
            m->stage_count);
    if (!two && stack.data && known && (lost ? sum > all : sum != all))
        return ckpt__fail(
            err, CKPT_E_MISMATCH, m->label,
            "its %zu pipeline stages have %lld layers together, and the arguments say %lld: these are not the "
            "files of one run",
            m->stage_count, (long long)sum, (long long)all);
    if (lost > 1 || (lost && !known)) /* then each has as many as another, or nothing is known */
        for (size_t s = 0; s < m->stage_count; s++)
            if (!known || all % (int64_t)m->stage_count || (first[s] >= 0 && first[s] != all / (int64_t)m->stage_count))
                return ckpt__fail(
                    err, CKPT_E_DAMAGED, m->label,
                    "%zu of its %zu pipeline stages are missing, and how many layers each had is not known: the "
                    "layers of the others cannot be numbered",
                    lost, m->stage_count);
    int64_t at = 0;
    for (size_t s = 0; s < m->stage_count; s++) {
        const int64_t own = first[s] >= 0 ? first[s] : lost > 1 ? all / (int64_t)m->stage_count : all - sum;
        first[s] = at;
        at += own;
    }
    return CKPT_OK;
}

static ckpt_str global_name(const ckpt__meg *m, ckpt_str own, int64_t first, ckpt_error *err)
{
    size_t at, size;
    int64_t layer;
    char number[24];
    ckpt_str name = own;
    if (first > 0 && ckpt__meg_layer(own, &at, &size, &layer) && is_main_stack(own, at)) {
        snprintf(number, sizeof number, "%lld", (long long)(layer + first));
        name = ckpt__arena_join(m->index->arena, (ckpt_str){own.data, at}, ckpt__s(number),
                                (ckpt_str){own.data + at + size, own.size - at - size});
    } else {
        name = ckpt__arena_str(m->index->arena, own.data, own.size);
    }
    if (!name.data)
        ckpt__meg_no_memory(err);
    return name;
}

/* The same with the number of an expert of one expert-parallel rank, of which each has `local` of them. */
static ckpt_str expert_name(const ckpt__meg *m, ckpt_str own, int64_t local, size_t ep, ckpt_error *err)
{
    size_t at, size;
    int64_t expert;
    bool experts;
    char number[24];
    if (ep == 0 || !ckpt__meg_expert(own, &experts, &at, &size, &expert))
        return own;
    snprintf(number, sizeof number, "%lld", (long long)(expert + (int64_t)ep * local));
    const ckpt_str name = ckpt__arena_join(m->index->arena, (ckpt_str){own.data, at}, ckpt__s(number),
                                           (ckpt_str){own.data + at + size, own.size - at - size});
    if (!name.data)
        ckpt__meg_no_memory(err);
    return name;
}

/* ---- parameters of a stage: those of its first rank, which all its ranks have */

static ckpt_status check_parts(const ckpt__meg *m, size_t stage, const ckpt__meg_rank *a, const ckpt__meg_rank *b,
                               ckpt_error *err)
{
    char name[300];
    const size_t count = ckpt__meg_chunk_of(m, a, stage)->count, other = ckpt__meg_chunk_of(m, b, stage)->count;
    if (count != other)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, b->folder,
            "its part of the model has %zu tensors, and that of %s has %zu: these are not the files of one run", other,
            a->folder, count);
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *x = part_of(m, a, stage, i), *y = part_of(m, b, stage, i);
        if (!ckpt__str_equal(x->name, y->name) || x->dtype != y->dtype || x->ndim != y->ndim)
            return ckpt__fail(err, CKPT_E_MISMATCH, b->folder,
                              "'%s' of its model is not what %s has at that place: these are not the files of one run",
                              ckpt__escape(name, sizeof name, y->name.data, y->name.size), a->folder);
    }
    return CKPT_OK;
}

static bool is_true(const ckpt_value *args, const char *key)
{
    const ckpt_value *v = ckpt_value_get(args, key);
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

static bool is_gated(const ckpt_value *args)
{
    return is_true(args, "swiglu") || is_true(args, "quick_geglu") || is_true(args, "gated_linear_unit");
}

/* p: where it is. first: the number of the stage's first layer; local: experts of a rank. */
static ckpt_status add_param(ckpt__meg *m, const ckpt__meg_rank *r, ckpt__meg_param p, int64_t first, int64_t local,
                             ckpt_error *err)
{
    size_t found;
    char shown[300];
    p.name = global_name(m, name_in_model(part_of(m, r, p.stage, p.row)), first, err);
    if (p.name.data && p.expert)
        p.name = expert_name(m, p.name, local, p.ep, err);
    if (!p.name.data || !ckpt__grow(&m->params, &m->param_capacity, m->param_count + 1, sizeof p))
        return ckpt__meg_no_memory(err);
    p.cut = ckpt__meg_cut_by_name(p.name, is_gated(m->args));
    const int put = ckpt__hash_put(m->by_name, p.name.data, p.name.size, m->param_count, &found);
    if (put < 0)
        return ckpt__meg_no_memory(err);
    p.again = put == 0;
    if (p.again) {
        const ckpt__meg_param *one = &m->params[found];
        const ckpt_tensor_info *x = part_of(m, r, p.stage, p.row),
                               *y = part_of(m, ckpt__meg_of_stage(m, one->stage), one->stage, one->row);
        if (one->stage == p.stage || x->dtype != y->dtype || !ckpt__same_shape(x->shape, x->ndim, y->shape, y->ndim))
            return ckpt__fail(err, CKPT_E_MISMATCH, r->folder, "'%s' is of another dtype or shape than in stage %zu",
                              ckpt__escape(shown, sizeof shown, p.name.data, p.name.size), one->stage);
    }
    m->params[m->param_count++] = p;
    return CKPT_OK;
}

/* Experts that each expert-parallel rank has; 0: the stage has none. */
static ckpt_status count_experts(const ckpt__meg *m, const ckpt__meg_rank *r, size_t stage, int64_t *local,
                                 ckpt_error *err)
{
    size_t at, size;
    int64_t expert, all;
    char shown[300];
    *local = 0;
    for (size_t i = 0; m->ep > 1 && i < ckpt__meg_chunk_of(m, r, stage)->count; i++) {
        const ckpt_str name = name_in_model(part_of(m, r, stage, i));
        bool experts;
        const bool known = ckpt__meg_expert(name, &experts, &at, &size, &expert);
        if (experts && !known)
            return ckpt__fail(
                err, CKPT_E_UNSUPPORTED, ckpt__escape(shown, sizeof shown, name.data, name.size),
                "it is a tensor of several experts, and no file says how they lie in it: it is not read in this layout. "
                "Save it with Megatron-LM and --ckpt-format torch_dist");
        *local = experts && expert + 1 > *local ? expert + 1 : *local;
    }
    if (*local && ckpt__meg_int(m->args, "num_experts", &all) && all != *local * (int64_t)m->ep)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, r->folder,
            "it has %lld experts of each layer, one of %zu expert-parallel ranks, and the arguments say that there are "
            "%lld: these are not the files of one run",
            (long long)*local, m->ep, (long long)all);
    return CKPT_OK;
}

static bool is_expert(const ckpt__meg *m, const ckpt__meg_rank *r, size_t stage, size_t row)
{
    size_t at, size;
    int64_t expert;
    bool experts;
    return m->ep > 1 && ckpt__meg_expert(name_in_model(part_of(m, r, stage, row)), &experts, &at, &size, &expert);
}

/* Rows of the stage from *row on: one that all ranks have, or those of experts that stand together, rank by rank. */
static ckpt_status add_rows(ckpt__meg *m, const ckpt__meg_rank *r, size_t stage, size_t *row, int64_t first,
                            int64_t local, ckpt_error *err)
{
    const size_t begin = *row, count = ckpt__meg_chunk_of(m, r, stage)->count;
    ckpt_status status = CKPT_OK;
    if (!is_expert(m, r, stage, begin)) {
        ++*row;
        return add_param(m, r, (ckpt__meg_param){.stage = stage, .row = begin}, first, local, err);
    }
    while (*row < count && is_expert(m, r, stage, *row))
        ++*row;
    for (size_t e = 0; e < m->ep; e++) {
        const ckpt__meg_rank *own = ckpt__meg_of_experts(m, stage, e);
        for (size_t i = begin; own && status == CKPT_OK && i < *row; i++)
            status = add_param(m, own, (ckpt__meg_param){.stage = stage, .row = i, .expert = true, .ep = e}, first,
                               local, err);
    }
    return status;
}

static ckpt_status find_of_stage(ckpt__meg *m, size_t stage, int64_t first, ckpt_error *err)
{
    const ckpt__meg_rank *r = ckpt__meg_of_stage(m, stage);
    ckpt_status status = CKPT_OK;
    int64_t local = 0;
    m->stages[stage] = m->param_count;
    for (size_t i = 0; r && status == CKPT_OK && i < m->tp * m->ep; i++) {
        const ckpt__meg_rank *other = ckpt__meg_rank_of(m, i % m->tp, stage, i / m->tp);
        if (other->there && other != r)
            status = check_parts(m, stage, r, other, err);
    }
    if (r && status == CKPT_OK)
        status = count_experts(m, r, stage, &local, err);
    for (size_t i = 0; r && status == CKPT_OK && i < ckpt__meg_chunk_of(m, r, stage)->count;)
        status = add_rows(m, r, stage, &i, first, local, err);
    m->stages[stage + 1] = m->param_count;
    return status;
}

ckpt_status ckpt__meg_find_params(ckpt__meg *m, ckpt_error *err)
{
    int64_t *first = calloc(m->stage_count, sizeof *first);
    m->stages = calloc(m->stage_count + 1, sizeof *m->stages);
    m->by_name = ckpt__hash_new(256);
    ckpt_status status = first && m->stages && m->by_name ? number_layers(m, first, err) : ckpt__meg_no_memory(err);
    for (size_t s = 0; status == CKPT_OK && s < m->stage_count; s++)
        status = find_of_stage(m, s, first[s], err);
    free(first);
    return status;
}

/* ---- one tensor of its parts */

/* A tensor's parts as pieces. All is borrowed or freed at the end. */
typedef struct joining {
    ckpt__meg *m;
    const ckpt__meg_logical *of;
    const ckpt_tensor_info *one; /* a part that is there */
    int64_t *shape;              /* heap: of the whole, ndim */
    int64_t *boxes;              /* heap: 3 ndim numbers a piece */
    ckpt__piece *pieces;         /* heap */
    size_t count;
} joining;

static ckpt_status misfit(const joining *j, const ckpt_tensor_info *t, const char *what, ckpt_error *err)
{
    char name[300], one[120], other[120];
    ckpt__shape_text(one, sizeof one, j->one->shape, j->one->ndim);
    ckpt__shape_text(other, sizeof other, t->shape, t->ndim);
    return ckpt__fail(
        err, CKPT_E_MISMATCH, ckpt__escape(name, sizeof name, j->of->name.data, j->of->name.size),
        "its parts have the shapes %s and %s, %s: these are not the files of one run, or another program cut it", one,
        other, what);
}

/* Does each part have the shape that the others have? A cut is into equal parts. */
static ckpt_status check_shape(const joining *j, size_t part, ckpt_error *err)
{
    const ckpt__tensor *t = &j->m->index->tensors[part];
    char name[300];
    if (!t->whole || ckpt_dtype_size(t->info.dtype) == 0)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, ckpt__escape(name, sizeof name, j->of->name.data, j->of->name.size),
                          "a rank's part of it is not a dense tensor with elements of whole bytes");
    if (t->info.dtype != j->one->dtype || !ckpt__same_shape(t->info.shape, t->info.ndim, j->one->shape, j->one->ndim))
        return misfit(j, &t->info, "where equal ones are expected", err);
    if (j->of->cut.dim >= (int)t->info.ndim)
        return misfit(j, &t->info, "which cannot be cut as it is said to be", err);
    if (j->of->cut.dim >= 0 && t->info.shape[j->of->cut.dim] % j->of->cut.blocks)
        return misfit(j, &t->info, "which have not the two halves of a gated layer", err);
    return CKPT_OK;
}

static void add_piece(joining *j, const ckpt__tensor *t, size_t rank, int64_t block)
{
    const uint32_t n = t->info.ndim;
    const int dim = j->of->cut.dim;
    int64_t *box = j->boxes + j->count * 3 * (n ? n : 1), skip = 0;
    const bool plain = !t->info.strides || ckpt__is_c_order(t->info.shape, t->info.strides, n),
               strided = !plain || (dim > 0 && j->of->cut.blocks > 1);
    for (uint32_t i = 0; i < n; i++)
        box[n + i] = t->info.shape[i];
    if (dim >= 0) {
        const int64_t own = t->info.shape[dim] / j->of->cut.blocks;
        box[n + (uint32_t)dim] = own;
        box[dim] = block * (j->shape[dim] / j->of->cut.blocks) + (int64_t)rank * own;
        skip = block * own * (t->info.strides ? t->info.strides[dim] : 1);
    }
    if (t->info.strides && n)
        memcpy(box + 2 * (size_t)n, t->info.strides, n * sizeof *box);
    j->pieces[j->count++] =
        (ckpt__piece){.box = box,
                      .at = (uint64_t)(t->info.offset + skip) * ckpt_dtype_size(t->info.dtype),
                      .storage = t->storage,
                      .flags = (uint8_t)((strided ? CKPT__PIECE_STRIDED : 0) | (dim < 0 ? CKPT__PIECE_REPLICA : 0))};
}

static ckpt_status set_shape(joining *j, ckpt_error *err)
{
    const uint32_t n = j->one->ndim;
    const size_t most = j->m->tp * (size_t)j->of->cut.blocks;
    uint64_t size;
    j->shape = calloc(n + 1, sizeof *j->shape);
    j->boxes = calloc(most, 3 * ((size_t)n + 1) * sizeof *j->boxes);
    j->pieces = calloc(most, sizeof *j->pieces);
    if (!j->shape || !j->boxes || !j->pieces)
        return ckpt__meg_no_memory(err);
    for (uint32_t i = 0; i < n; i++)
        j->shape[i] = j->one->shape[i];
    if (j->of->cut.dim < 0)
        return CKPT_OK;
    if (!ckpt__mul((uint64_t)j->shape[j->of->cut.dim], j->m->tp, &size) || size > INT64_MAX)
        return misfit(j, j->one, "whose product overflows 64 bits", err);
    j->shape[j->of->cut.dim] = (int64_t)size;
    return CKPT_OK;
}

static ckpt_status add_logical(joining *j, ckpt_error *err)
{
    ckpt__index *x = j->m->index;
    const ckpt_dtype dtype = j->one->dtype;
    const uint32_t ndim = j->one->ndim;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    ckpt_value *value = ckpt__value_new(x->arena, CKPT_V_TENSOR);
    ckpt_key *key = ckpt__arena_alloc(x->arena, sizeof *key);
    if (!t || !value || !key)
        return ckpt__meg_no_memory(err);
    const size_t number = x->tensor_count - 1;
    key->text = j->of->name;
    value->tensor = number;
    t->info.name = j->of->name;
    t->info.path = (ckpt_path){key, 1};
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    t->info.role = j->of->role;
    t->info.param = j->of->param;
    t->info.state_key = j->of->state_key;
    ckpt_status status = ckpt__index_set_pieces(x, number, j->shape, j->pieces, j->count, err);
    return status == CKPT_OK ? ckpt__meg_put(j->m, j->of->name, value, err) : status;
}

ckpt_status ckpt__meg_join(ckpt__meg *m, const ckpt__meg_logical *of, const size_t *parts, ckpt_error *err)
{
    joining j = {.m = m, .of = of};
    ckpt_status status = CKPT_OK;
    size_t first = NO_PART;
    for (size_t t = 0; first == NO_PART && t < m->tp; t++)
        first = parts[t];
    if (first == NO_PART)
        return CKPT_OK;
    const ckpt_tensor_info one = m->index->tensors[first].info; /* rows move as others are added */
    j.one = &one;
    for (size_t t = 0; status == CKPT_OK && t < m->tp; t++)
        if (parts[t] != NO_PART)
            status = check_shape(&j, parts[t], err);
    if (status == CKPT_OK)
        status = set_shape(&j, err);
    for (size_t t = 0; status == CKPT_OK && t < m->tp; t++)
        for (int64_t b = 0; parts[t] != NO_PART && b < of->cut.blocks; b++)
            add_piece(&j, &m->index->tensors[parts[t]], t, b);
    if (status == CKPT_OK)
        status = add_logical(&j, err);
    free(j.shape);
    free(j.boxes);
    free(j.pieces);
    return status;
}

/* ---- all parameters */

/* The CRC of a part that is all of its storage. */
static bool crc_of(const ckpt__meg *m, size_t part, uint32_t *crc)
{
    const ckpt__tensor *t = part == NO_PART ? NULL : &m->index->tensors[part];
    const ckpt__extent *e = t && t->whole ? &m->index->storages[t->storage].extent : NULL;
    if (!e || !e->has_crc || t->info.offset != 0 || t->info.nbytes != e->size)
        return false;
    *crc = e->crc;
    return true;
}

/* Have all ranks the same bytes, by their CRCs? *differ: two have not, as far as it is known. */
static bool has_same_bytes(const ckpt__meg *m, const size_t *parts, bool *differ)
{
    uint32_t first = 0, own;
    bool all = true, any = false;
    *differ = false;
    for (size_t t = 0; t < m->tp; t++) {
        if (!crc_of(m, parts[t], &own)) {
            all = false;
            continue;
        }
        *differ |= any && own != first;
        first = any ? first : own;
        any = true;
    }
    return all && !*differ;
}

/* The rows of a fc1 are as many as the arguments say, or twice as many where it has a gate. */
static ckpt_status check_gate(const ckpt__meg *m, const ckpt__meg_param *p, const ckpt_tensor_info *t, ckpt_error *err)
{
    int64_t ffn;
    uint64_t rows;
    char name[300];
    const bool expert = ckpt__str_holds(p->name, ".experts.") && ckpt__str_holds(p->name, ".linear_fc1.weight"),
               fc1 = expert || ckpt__str_ends(p->name, ".mlp.linear_fc1.weight") ||
                     ckpt__str_ends(p->name, ".mlp.dense_h_to_4h.weight");
    const char *key = expert ? "moe_ffn_hidden_size" : "ffn_hidden_size";
    if (!fc1 || t->ndim != 2 || !ckpt__meg_int(m->args, key, &ffn) || ffn <= 0 ||
        !ckpt__mul((uint64_t)t->shape[0], m->tp, &rows))
        return CKPT_OK;
    const bool gated = p->cut.blocks == 2;
    if (rows != (uint64_t)ffn * (gated ? 1 : 2))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__escape(name, sizeof name, p->name.data, p->name.size),
                      "its parts have %llu rows together and %s is %lld, so it is %s; the arguments say that it is "
                      "(swiglu: %s)",
                      (unsigned long long)rows, key, (long long)ffn, gated ? "not gated" : "gated",
                      gated ? "True" : "False, or nothing");
}

/* *unlike: it is not cut, and the ranks have different bytes of it. */
static ckpt_status settle_cut(ckpt__meg *m, ckpt__meg_param *p, const size_t *parts, bool *unlike, ckpt_error *err)
{
    char name[300];
    *unlike = false;
    if (m->tp == 1) {
        p->cut = (ckpt__meg_cut){true, -1, 1};
        return CKPT_OK;
    }
    bool differ;
    if (has_same_bytes(m, parts, &differ) && !p->cut.known) /* nobody says how it is cut, but each rank has the same */
        p->cut = (ckpt__meg_cut){true, -1, 1};
    *unlike = p->cut.known && p->cut.dim < 0 && differ;
    if (p->cut.known)
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, ckpt__escape(name, sizeof name, p->name.data, p->name.size),
        "how it is cut over %zu tensor-parallel ranks is not known: its name is none of Megatron's, and no file "
        "says it. Save it with Megatron-LM and --ckpt-format torch_dist",
        m->tp);
}

static void parts_of(const ckpt__meg *m, const ckpt__meg_param *p, size_t *parts)
{
    for (size_t t = 0; t < m->tp; t++) {
        const ckpt__meg_rank *r = ckpt__meg_holder(m, p, t);
        parts[t] = r ? ckpt__meg_chunk_of(m, r, p->stage)->items[p->row] : NO_PART;
    }
}

/* Has another expert-parallel rank other bytes of a parameter that each of them has, as far as CRCs say it? */
static bool differs_by_experts(const ckpt__meg *m, const ckpt__meg_param *p, const size_t *parts)
{
    uint32_t one, other;
    for (size_t i = 0; !p->expert && i < m->tp * m->ep; i++) {
        const ckpt__meg_rank *r = ckpt__meg_rank_of(m, i % m->tp, p->stage, i / m->tp);
        if (r->there && crc_of(m, parts[i % m->tp], &one) &&
            crc_of(m, ckpt__meg_chunk_of(m, r, p->stage)->items[p->row], &other) && one != other)
            return true;
    }
    return false;
}

static ckpt_status note_unlike(const ckpt__meg *m, size_t count, size_t first, ckpt_error *err)
{
    char name[300];
    const ckpt_str *own = &m->params[first].name;
    if (!count)
        return CKPT_OK;
    bool ok = ckpt__report_add(
        m->index->findings, CKPT_SEVERITY_WARNING, "replicas-differ",
        ckpt__escape(name, sizeof name, own->data, own->size),
        "make sure that the files are of one save; ranks that have drifted apart are a fault of the run",
        "several ranks have the same %zu parameters, and by their CRCs not the same bytes: those of the first rank are read",
        count);
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

ckpt_status ckpt__meg_join_params(ckpt__meg *m, ckpt_error *err)
{
    size_t *parts = calloc(m->tp, sizeof *parts), count = 0, first = 0;
    bool unlike;
    ckpt_status status = parts ? CKPT_OK : ckpt__meg_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < m->param_count; i++) {
        ckpt__meg_param *p = &m->params[i];
        parts_of(m, p, parts);
        status = settle_cut(m, p, parts, &unlike, err);
        unlike = unlike || differs_by_experts(m, p, parts);
        if (status == CKPT_OK && unlike && count++ == 0)
            first = i;
        if (status == CKPT_OK && m->tp > 1)
            status = check_gate(m, p, part_of(m, ckpt__meg_of_stage(m, p->stage), p->stage, p->row), err);
        if (status < 0 || p->again)
            continue;
        const ckpt__meg_logical of = {
            .name = p->name, .role = ckpt__meg_is_buffer(p->name) ? CKPT_ROLE_BUFFER : CKPT_ROLE_PARAM, .cut = p->cut};
        status = ckpt__meg_join(m, &of, parts, err);
    }
    free(parts);
    return status == CKPT_OK ? note_unlike(m, count, first, err) : status;
}
