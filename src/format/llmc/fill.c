/* format/llmc/fill.c - one step of llm.c as an index: the weights, the moments and masters of all ranks, what each rank has of its
 * own, and the values of the headers. */
#include "format/llmc/llmc.h"

#include <stdio.h>
#include <stdlib.h>

typedef ckpt__llmc reading;

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "a checkpoint of llm.c", 0);
}

/* ---- tensors */

static ckpt_status put(reading *r, const char *key, const ckpt_value *value, ckpt_error *err)
{
    const ckpt_value *name = ckpt__value_str(r->index->arena, key, strlen(key));
    if (!value || !name || !ckpt__grow(&r->entries, &r->entry_capacity, r->entry_count + 1, sizeof *r->entries))
        return no_memory(err);
    r->entries[r->entry_count++] = (ckpt_entry){name, value};
    return CKPT_OK;
}

static ckpt_status add_storage(reading *r, uint32_t file, uint64_t offset, uint64_t size, ckpt_dtype dtype,
                               ckpt_str name, ckpt_error *err)
{
    ckpt__storage *s = ckpt__index_add_storage(r->index);
    if (!s)
        return no_memory(err);
    s->name = name;
    s->dtype = dtype;
    s->unit = (uint8_t)ckpt_dtype_size(dtype);
    s->extent = (ckpt__extent){.file = file, .offset = offset, .length = size, .size = size};
    return CKPT_OK;
}

/* A tensor without its bytes yet. The root has no value for it, as that of a native file. */
static ckpt_status add_tensor(reading *r, ckpt_str name, ckpt_dtype dtype, uint32_t ndim, ckpt_role role,
                              ckpt_error *err)
{
    ckpt__tensor *t = name.data ? ckpt__index_add_tensor(r->index) : NULL;
    ckpt_key *key = ckpt__arena_alloc(r->index->arena, sizeof *key);
    if (!t || !key)
        return no_memory(err);
    key->text = name;
    t->info.name = name;
    t->info.path = (ckpt_path){key, 1};
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    t->info.role = role;
    return CKPT_OK;
}

static ckpt_status add_weights(reading *r, uint32_t file, ckpt_error *err)
{
    uint64_t at = CKPT__LLMC_HEAD;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < CKPT__LLMC_TENSORS; i++) {
        const ckpt__llmc_tensor t = ckpt__llmc_tensor_of(&r->model, i);
        const uint64_t size = t.numel * ckpt_dtype_size(r->model.dtype);
        const ckpt_str name = ckpt__arena_str(r->index->arena, t.name, strlen(t.name));
        status = add_tensor(r, name, r->model.dtype, t.ndim, CKPT_ROLE_PARAM, err);
        if (status == CKPT_OK)
            status = add_storage(r, file, at, size, r->model.dtype, name, err);
        if (status == CKPT_OK)
            status = ckpt__index_set_view(r->index, r->index->tensor_count - 1, r->index->storage_count - 1, t.shape,
                                          NULL, 0, err);
        at += size;
    }
    return status;
}

/* ---- moments and masters */

static const struct {
    const char *ending, *key; /* of the name; of the state */
    ckpt_role role;
} kinds[CKPT__LLMC_KINDS] = {{"exp_avg", "exp_avg", CKPT_ROLE_EXP_AVG},
                             {"exp_avg_sq", "exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
                             {"fp32", "master", CKPT_ROLE_MASTER}};

/* A piece a layer and a rank, or one a rank, which all have the same. Those of a file that is not there are in no storage: the tensor
 * has holes then. storages: one a rank. */
static size_t set_pieces(const reading *r, const ckpt__llmc_tensor *t, uint64_t offset, const size_t *storages,
                         ckpt__piece *pieces, int64_t (*boxes)[2])
{
    const bool split = r->first->split;
    const uint64_t parts = split ? t->layers : 1, layer = t->numel / parts, own = split ? layer / r->rank_count : layer;
    size_t n = 0;
    for (uint64_t l = 0; l < parts; l++)
        for (uint64_t rank = 0; rank < r->rank_count; rank++) {
            if (!r->states[rank].there)
                continue;
            boxes[n][0] = (int64_t)(l * layer + (split ? rank * own : 0));
            boxes[n][1] = (int64_t)own;
            pieces[n] = (ckpt__piece){.box = boxes[n],
                                      .at = (offset + l * own) * 4,
                                      .storage = (uint32_t)storages[rank],
                                      .flags = CKPT__PIECE_FLAT | (split ? 0 : CKPT__PIECE_REPLICA)};
            n++;
        }
    return n;
}

static ckpt_status add_moment(reading *r, size_t kind, const ckpt__llmc_tensor *t, uint64_t offset,
                              const size_t *storages, ckpt__piece *pieces, int64_t (*boxes)[2], ckpt_error *err)
{
    ckpt__arena *a = r->index->arena;
    ckpt_str param = ckpt__arena_str(a, t->name, strlen(t->name)),
             ending = ckpt__arena_join(a, ckpt__s("."), ckpt__s(kinds[kind].ending), (ckpt_str){NULL, 0}),
             name = ckpt__arena_join(a, ckpt__s("optimizer."), param, ending);
    if (!param.data || !ending.data)
        return no_memory(err);
    ckpt_status status = add_tensor(r, name, CKPT_F32, t->ndim, kinds[kind].role, err);
    if (status < 0)
        return status;
    const size_t tensor = r->index->tensor_count - 1, n = set_pieces(r, t, offset, storages, pieces, boxes);
    r->index->tensors[tensor].info.param = param;
    r->index->tensors[tensor].info.state_key = ckpt__s(kinds[kind].key);
    return ckpt__index_set_pieces(r->index, tensor, t->shape, pieces, n, err);
}

static ckpt_status add_kind(reading *r, size_t kind, size_t *storages, ckpt__piece *pieces, int64_t (*boxes)[2],
                            ckpt_error *err)
{
    const uint64_t size = r->first->numel * 4, ranks = r->first->split ? r->rank_count : 1;
    uint64_t offset = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < r->rank_count; i++) {
        storages[i] = r->index->storage_count;
        if (r->states[i].there)
            status = add_storage(r, r->states[i].file, CKPT__LLMC_HEAD + kind * size, size, CKPT_F32,
                                 ckpt__s(kinds[kind].ending), err);
    }
    for (size_t i = 0; status == CKPT_OK && i < CKPT__LLMC_TENSORS; i++) {
        const ckpt__llmc_tensor t = ckpt__llmc_tensor_of(&r->model, i);
        status = add_moment(r, kind, &t, offset, storages, pieces, boxes, err);
        offset += t.numel / ranks;
    }
    return status;
}

/* ZeRO-1 of llm.c asks that every tensor, and every layer of it, can be divided. */
static ckpt_status check_divides(const reading *r, ckpt_error *err)
{
    for (size_t i = 0; r->first->split && i < CKPT__LLMC_TENSORS; i++) {
        const ckpt__llmc_tensor t = ckpt__llmc_tensor_of(&r->model, i);
        if (t.numel / t.layers % r->rank_count)
            return ckpt__fail(err, CKPT_E_FORMAT, r->label,
                              "its state files are as long as those of ZeRO-1 with %zu ranks, which cannot divide the "
                              "%llu elements of %s",
                              r->rank_count, (unsigned long long)(t.numel / t.layers), t.name);
    }
    return CKPT_OK;
}

static ckpt_status add_moments(reading *r, ckpt_error *err)
{
    size_t most = (size_t)r->model.layers * r->rank_count;
    ckpt_status status = check_divides(r, err);
    if (status < 0)
        return status;
    size_t *storages = calloc(r->rank_count, sizeof *storages);
    ckpt__piece *pieces = calloc(most, sizeof *pieces);
    int64_t(*boxes)[2] = calloc(most, sizeof *boxes);
    status = storages && pieces && boxes ? CKPT_OK : no_memory(err);
    for (size_t k = 0; status == CKPT_OK && k < (r->first->master ? 3u : 2u); k++)
        status = add_kind(r, k, storages, pieces, boxes, err);
    free(storages);
    free(pieces);
    free(boxes);
    return status;
}

/* ---- what exists once per rank */

static ckpt_status add_rank_tensor(reading *r, const ckpt__llmc_state *s, const char *what, uint64_t at, uint64_t count,
                                   ckpt_dtype dtype, ckpt_role role, ckpt_error *err)
{
    char text[80];
    const int64_t shape[] = {(int64_t)count};
    snprintf(text, sizeof text, "loader.%lld.%s", (long long)s->rank, what);
    const ckpt_str name = ckpt__arena_str(r->index->arena, text, strlen(text));
    ckpt_status status = add_tensor(r, name, dtype, 1, role, err);
    if (status == CKPT_OK)
        status = add_storage(r, s->file, at, count * ckpt_dtype_size(dtype), dtype, name, err);
    return status == CKPT_OK ? ckpt__index_set_view(r->index, r->index->tensor_count - 1, r->index->storage_count - 1,
                                                    shape, NULL, 0, err)
                             : status;
}

static ckpt_status add_loader(reading *r, const ckpt__llmc_state *s, ckpt_error *err)
{
    uint64_t at = s->shuffle_at + 8;
    ckpt_status status = add_rank_tensor(r, s, "shard_indices", at, s->shards, CKPT_I32, CKPT_ROLE_OTHER, err);
    at += s->shards * 4 + 8;
    if (status == CKPT_OK)
        status = add_rank_tensor(r, s, "intra_shard_indices", at, s->samples, CKPT_I32, CKPT_ROLE_OTHER, err);
    at += s->samples * 4;
    return status == CKPT_OK ? add_rank_tensor(r, s, "mt19937", at, CKPT__LLMC_TWISTER, CKPT_U8, CKPT_ROLE_RNG, err)
                             : status;
}

static int64_t rng_of(const ckpt__llmc_state *s)
{
    return s->rng;
}

static int64_t rng_last_of(const ckpt__llmc_state *s)
{
    return s->rng_last;
}

static int64_t shard_of(const ckpt__llmc_state *s)
{
    return s->shard;
}

static int64_t sample_of(const ckpt__llmc_state *s)
{
    return s->sample;
}

/* One number where all ranks have the same, else a list by rank; None: the file of that rank is not there. */
static const ckpt_value *value_by_rank(reading *r, int64_t (*of)(const ckpt__llmc_state *s), bool one)
{
    ckpt__arena *a = r->index->arena;
    const ckpt_value **items = ckpt__arena_array(a, r->rank_count, sizeof *items);
    bool same = one;
    for (size_t i = 0; items && i < r->rank_count; i++) {
        const ckpt__llmc_state *s = &r->states[i];
        same = same && (!s->there || of(s) == of(r->first));
        items[i] = s->there ? ckpt__value_int(a, of(s)) : ckpt__value_new(a, CKPT_V_NONE);
        if (!items[i])
            return NULL;
    }
    if (same)
        return ckpt__value_int(a, of(r->first));
    return items ? ckpt__value_list(a, CKPT_V_LIST, items, r->rank_count) : NULL;
}

static ckpt_status put_int(reading *r, const char *key, int64_t value, ckpt_error *err)
{
    return put(r, key, ckpt__value_int(r->index->arena, value), err);
}

static ckpt_status put_values(reading *r, ckpt_error *err)
{
    const ckpt__llmc_model *m = &r->model;
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"max_seq_len", m->max_t}, {"vocab_size", m->vocab}, {"padded_vocab_size", m->padded_vocab},
                 {"num_layers", m->layers}, {"num_heads", m->heads},  {"channels", m->channels}};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < sizeof sizes / sizeof *sizes; i++)
        status = put_int(r, sizes[i].key, sizes[i].value, err);
    if (!r->first || status < 0)
        return status;
    const struct {
        const char *key;
        const ckpt_value *value;
    } values[] = {{"step", ckpt__value_int(r->index->arena, r->first->step)},
                  {"world_size", ckpt__value_int(r->index->arena, (int64_t)r->rank_count)},
                  {"use_master_weights", ckpt__value_int(r->index->arena, r->first->master)},
                  {"should_shuffle", ckpt__value_int(r->index->arena, r->first->shuffles)},
                  {"rng_state", value_by_rank(r, rng_of, false)},
                  {"rng_state_last_update", value_by_rank(r, rng_last_of, false)},
                  {"current_shard_idx", value_by_rank(r, shard_of, true)},
                  {"current_sample_idx", value_by_rank(r, sample_of, true)}};
    for (size_t i = 0; status == CKPT_OK && i < sizeof values / sizeof *values; i++)
        status = put(r, values[i].key, values[i].value, err);
    if (status == CKPT_OK && r->rank_count > 1) /* of one rank nobody can tell */
        status = put_int(r, "zero_stage", r->first->split, err);
    return status;
}

/* ---- all of it */

static ckpt_status tell_layout(const reading *r, ckpt_error *err)
{
    r->index->job.ranks = (int64_t)r->rank_count;
    r->index->job.zero = r->first->split;
    const char *how = r->rank_count == 1 ? "whole" : r->first->split ? "ZeRO stage 1" : "replicated";
    return ckpt__index_tell_layout(r->index, "%s over %zu rank%s", how, r->rank_count, r->rank_count == 1 ? "" : "s")
               ? CKPT_OK
               : no_memory(err);
}

ckpt_status ckpt__llmc_fill(ckpt__llmc *r, uint32_t model, ckpt_error *err)
{
    ckpt_status status = add_weights(r, model, err);
    if (status == CKPT_OK && r->first)
        status = add_moments(r, err);
    for (size_t i = 0; status == CKPT_OK && i < r->rank_count; i++)
        if (r->states[i].there && r->states[i].shuffles)
            status = add_loader(r, &r->states[i], err);
    if (status == CKPT_OK)
        status = put_values(r, err);
    if (status == CKPT_OK && !(r->index->root = ckpt__value_dict(r->index->arena, r->entries, r->entry_count)))
        status = no_memory(err);
    r->index->step = r->first ? r->first->step : -1;
    if (status == CKPT_OK && r->first)
        status = tell_layout(r, err);
    return status == CKPT_OK ? ckpt__index_finish(r->index, err) : status;
}
