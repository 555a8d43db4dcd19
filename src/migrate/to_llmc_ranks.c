/* migrate/to_llmc_ranks.c - a target of llm.c: what each rank has for itself. As many ranks as saved the source have theirs again. For
 * another number --rank-state says that it may be otherwise, and the report says how it is. */
#include "migrate/to_llmc.h"

#include <stdio.h>
#include <stdlib.h>

typedef ckpt__llmc_target target;

enum { MOST_RANKS = 1 << 16 };
/* The random state with which rank 0 of a new run begins; that of rank r is r more (train_gpt2.cu, gpt2_init_common). */
static const int64_t first_state = 13371337;

bool ckpt__llmc_number(const ckpt__llmc_target *t, const char *key, int64_t *out)
{
    const ckpt_value *v = ckpt__at(t->root, key);
    if (v && v->kind == CKPT_V_INT)
        *out = v->integer;
    return v && v->kind == CKPT_V_INT;
}

ckpt_status ckpt__llmc_plan_ranks(ckpt__llmc_target *t)
{
    const int64_t saved = t->m->from->job.ranks;
    const uint32_t wanted = t->m->options.target_world;
    int64_t said = 0;
    if (wanted > MOST_RANKS)
        return ckpt__fail(t->err, CKPT_E_ARGUMENT, t->m->dst, "a target for %u ranks: at most %d are written",
                          (unsigned)wanted, MOST_RANKS);
    t->ranks = wanted ? wanted : saved;
    if (!wanted && saved <= 0)
        t->ranks = ckpt__llmc_number(t, "world_size", &said) && said > 0 && said <= MOST_RANKS ? said : 1;
    t->states = calloc((size_t)t->ranks, sizeof *t->states);
    t->lists = calloc((size_t)t->ranks, sizeof *t->lists);
    if (!t->states || !t->lists)
        return ckpt__migration_no_memory(t->err);
    for (int64_t r = 0; r < t->ranks; r++)
        for (size_t k = 0; k < CKPT__LLMC_LISTS; k++)
            t->lists[r][k] = SIZE_MAX;
    return CKPT_OK;
}

/* ---- ZeRO */

/* As the source had it; where nobody knows, as ZeRO-1 does, which is what several ranks are mostly for. llm.c switches ZeRO off where
 * the parameters cannot be divided (set_zero_configs), and ends where a tensor cannot (multi_gpu_get_shard_offset). */
static ckpt_status plan_split(target *t)
{
    int64_t stage = 1;
    ckpt__llmc_tensor odd;
    const bool said = ckpt__llmc_number(t, "zero_stage", &stage);
    const uint64_t ranks = (uint64_t)t->ranks;
    t->split = t->ranks > 1 && stage >= 1;
    if (!t->split)
        return CKPT_OK;
    if (t->parts.model.numel % ranks) {
        t->split = false;
        return ckpt__warn(
            t->m, "llmc-resume", t->err, NULL,
            "%llu parameters cannot be divided among %lld ranks: each has all moments, as llm.c itself has then, with "
            "-z 0 and -z 1",
            (unsigned long long)t->parts.model.numel, (long long)t->ranks);
    }
    if (!ckpt__llmc_divides(&t->parts.model, ranks, &odd)) {
        t->split = false;
        return ckpt__warn(
            t->m, "llmc-resume", t->err, "train_gpt2cu -z 0",
            "llm.c's ZeRO cannot divide the %llu elements of %s among %lld ranks, and ends there: each rank has all "
            "moments",
            (unsigned long long)(odd.numel / odd.layers), odd.name, (long long)t->ranks);
    }
    return said
               ? CKPT_OK
               : ckpt__warn(
                     t->m, "llmc-resume", t->err, "train_gpt2cu -z 1",
                     "the checkpoint does not say whether ZeRO divides its optimizer: it is divided among the %lld ranks",
                     (long long)t->ranks);
}

/* ---- random states */

static size_t count_of(const ckpt_value *v)
{
    if (v && v->kind == CKPT_V_INT)
        return 1;
    for (size_t i = 0; ckpt__is_list(v) && i < v->item_count; i++)
        if (v->items[i]->kind != CKPT_V_INT)
            return 0;
    return ckpt__is_list(v) ? v->item_count : 0;
}

static int64_t item(const ckpt_value *v, size_t i)
{
    return v->kind == CKPT_V_INT ? v->integer : v->items[i]->integer;
}

static ckpt_status refuse_states(const target *t, size_t count)
{
    if (count == 0)
        return ckpt__fail(
            t->err, CKPT_E_UNSUPPORTED, t->m->src,
            "it has no random state of llm.c (rng_state, rng_state_last_update), which each rank of %lld has: "
            "--rank-state drop begins with those of a new run",
            (long long)t->ranks);
    return ckpt__fail(
        t->err, CKPT_E_MISMATCH, t->m->src,
        "it has the random states of %zu rank%s, and the target is for %lld: --rank-state derive gives rank 0 "
        "that of rank 0, and the others those of a new run; --rank-state drop all of them those",
        count, count == 1 ? "" : "s", (long long)t->ranks);
}

/* How many ranks saved the source, by what it says itself; those of the target where it says nothing. */
static int64_t saved_ranks(const target *t)
{
    int64_t said = t->ranks;
    if (t->m->from->job.ranks > 0)
        return t->m->from->job.ranks;
    ckpt__llmc_number(t, "world_size", &said);
    return said;
}

/* Each rank rounds its own part of the masters, by its own random state, and once more as it resumes. */
static const char *rounds_anew(const target *t)
{
    return t->master && t->parts.model.dtype == CKPT_BF16
               ? ": the weights are not bit by bit those of the model's file, as train_gpt2cu rounds them anew from the "
                 "masters when it resumes, and at random"
               : "";
}

static ckpt_status plan_random(target *t)
{
    const ckpt_value *now = ckpt__at(t->root, "rng_state"), *last = ckpt__at(t->root, "rng_state_last_update");
    const size_t count = count_of(now), ranks = (size_t)t->ranks;
    const bool all = count == ranks && count_of(last) == count,
               derives = t->m->options.rank_state == CKPT_RANK_STATE_DERIVE;
    if (!all && t->m->options.rank_state == CKPT_RANK_STATE_KEEP)
        return refuse_states(t, count_of(last) == count ? count : 0);
    const size_t kept = all ? ranks : derives && count && count_of(last) ? 1 : 0;
    for (size_t r = 0; r < ranks; r++) {
        t->states[r].rng = r < kept ? item(now, r) : first_state + (int64_t)r;
        t->states[r].rng_last = r < kept ? item(last, r) : first_state + (int64_t)r;
    }
    if (kept < ranks)
        return ckpt__warn(
            t->m, "llmc-resume", t->err, NULL,
            "rank%s %zu to %zu begin with the random state%s of a new run (13371337 + the rank): what is rounded at "
            "random from here on is not that of the unbroken run%s",
            kept + 1 == ranks ? "" : "s", kept, ranks - 1, kept + 1 == ranks ? "" : "s", rounds_anew(t));
    return saved_ranks(t) == t->ranks || !*rounds_anew(t)
               ? CKPT_OK
               : ckpt__warn(t->m, "llmc-resume", t->err, NULL, "it was saved by %lld ranks, and is for %lld%s",
                            (long long)saved_ranks(t), (long long)t->ranks, rounds_anew(t));
}

/* ---- the place in the data */

static const char *lacking_list(const target *t)
{
    static const char *const names[CKPT__LLMC_LISTS] = {"shard_indices", "intra_shard_indices", "mt19937"};
    for (int64_t r = 0; r < t->ranks; r++)
        for (size_t k = 0; k < CKPT__LLMC_LISTS; k++)
            if (t->lists[r][k] == SIZE_MAX)
                return names[k];
    return NULL;
}

static ckpt_status check_lists(const target *t)
{
    for (int64_t r = 0; r < t->ranks; r++)
        for (size_t k = 0; k < CKPT__LLMC_LISTS; k++) {
            const ckpt_tensor_info *i = &t->m->index->tensors[t->lists[r][k]].info;
            const bool twister = k == CKPT__LLMC_TWIST;
            char shown[120];
            if (i->ndim == 1 && i->dtype == (twister ? CKPT_U8 : CKPT_I32) &&
                (!twister || i->nbytes == CKPT__LLMC_TWISTER))
                continue;
            return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src, "'%s' is %s of %llu bytes, and llm.c's is %s",
                              ckpt__escape(shown, sizeof shown, i->name.data, i->name.size), ckpt_dtype_name(i->dtype),
                              (unsigned long long)i->nbytes, twister ? "uint8 of 2520" : "int32 of one dimension");
        }
    return CKPT_OK;
}

/* Lists that are not written: those of ranks that the target does not have, too, have no place. */
static void forget_lists(target *t)
{
    for (int64_t r = 0; r < t->ranks; r++)
        for (size_t k = 0; k < CKPT__LLMC_LISTS; k++)
            if (t->lists[r][k] != SIZE_MAX)
                t->m->ledger.rows[t->lists[r][k]].fate = CKPT__FATE_LOST;
}

static ckpt_status begin_anew(target *t, const char *what)
{
    if (t->m->options.rank_state == CKPT_RANK_STATE_KEEP)
        return ckpt__fail(
            t->err, CKPT_E_UNSUPPORTED, t->m->src,
            "%s: llm.c goes on at a place in the data that is not there. --rank-state drop begins with the first "
            "sample of the first shard, not shuffled",
            what);
    t->shuffles = false;
    forget_lists(t);
    return ckpt__warn(t->m, "llmc-resume", t->err, NULL,
                      "%s: train_gpt2cu begins with the first sample of the first shard, and does not shuffle", what);
}

/* A rank of several that shuffle has a shuffle of its own, and its length is of that many ranks. */
static ckpt_status plan_data(target *t)
{
    const ckpt_value *shard = ckpt__at(t->root, "current_shard_idx"), *sample = ckpt__at(t->root, "current_sample_idx");
    int64_t shuffles = 0;
    const int64_t saved = saved_ranks(t);
    const size_t ranks = (size_t)t->ranks, shards = count_of(shard), samples = count_of(sample);
    const bool said = ckpt__llmc_number(t, "should_shuffle", &shuffles);
    t->shuffles = shuffles == 1;
    if (!said || !shards || !samples)
        return begin_anew(
            t, "the checkpoint has no place in the data as llm.c keeps it (should_shuffle, current_shard_idx, "
               "current_sample_idx)");
    if (t->shuffles && (lacking_list(t) || saved != t->ranks)) {
        char text[200];
        snprintf(text, sizeof text, "it shuffles, and the shuffles of %lld ranks are none of %lld (%s of each)",
                 (long long)saved, (long long)t->ranks, lacking_list(t) ? lacking_list(t) : "the lists");
        return begin_anew(t, text);
    }
    if ((shards != 1 && shards != ranks) || (samples != 1 && samples != ranks))
        return begin_anew(t, "the places in the data are of another number of ranks");
    for (size_t r = 0; r < ranks; r++) {
        t->states[r].shard = item(shard, shards == 1 ? 0 : r);
        t->states[r].sample = item(sample, samples == 1 ? 0 : r);
    }
    if (t->shuffles)
        return check_lists(t);
    forget_lists(t);
    return saved == t->ranks
               ? CKPT_OK
               : ckpt__warn(
                     t->m, "llmc-resume", t->err, NULL,
                     "the place in the data (sample %lld) counts batches of all %lld ranks together, and stays: the target "
                     "goes on there where -b is %lld/%lld of what it was",
                     (long long)t->states[0].sample, (long long)saved, (long long)saved, (long long)t->ranks);
}

ckpt_status ckpt__llmc_plan_states(ckpt__llmc_target *t)
{
    ckpt_status status = plan_split(t);
    if (status == CKPT_OK)
        status = plan_random(t);
    if (status == CKPT_OK)
        status = plan_data(t);
    for (int64_t r = 0; r < t->ranks; r++) {
        ckpt__llmc_state *s = &t->states[r];
        s->rank = r;
        s->ranks = t->ranks;
        s->step = t->step;
        s->master = t->master;
        s->split = t->split;
        s->shuffles = t->shuffles;
    }
    return status;
}
