/* format/llmc/write.c - the files of one step of llm.c, as recipes. What ZeRO-1 divides is a range of its tensor for each layer of it. */
#include "format/llmc/llmc.h"
#include "format/safetensors.h"

typedef struct writing {
    const ckpt__llmc_parts *parts;
    ckpt__recipe *recipe;
    unsigned char *head;
    ckpt_error *err;
} writing;

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "a file of llm.c", CKPT__LLMC_HEAD);
}

static void put_int(const writing *w, size_t place, int64_t value)
{
    for (size_t i = 0; i < 4; i++)
        w->head[place * 4 + i] = (unsigned char)((uint64_t)value >> 8 * i);
}

static void put_long(const writing *w, size_t place, int64_t value)
{
    put_int(w, place, value);
    put_int(w, place + 1, (int64_t)((uint64_t)value >> 32));
}

static ckpt_status begin(writing *w, int64_t magic, int64_t version)
{
    w->recipe = ckpt__recipe_new();
    w->head = w->recipe ? ckpt__arena_alloc(w->recipe->arena, CKPT__LLMC_HEAD) : NULL;
    if (!w->head)
        return no_memory(w->err);
    memset(w->head, 0, CKPT__LLMC_HEAD);
    put_int(w, 0, magic);
    put_int(w, CKPT__LLMC_VERSION, version);
    return ckpt__recipe_add(w->recipe, &w->recipe->capacity, CKPT__LITERAL, CKPT__LLMC_HEAD, (const char *)w->head, 0,
                            w->err);
}

/* The recipe is the caller's, or nobody's. */
static ckpt_status finish(const writing *w, ckpt_status status, ckpt__recipe **out)
{
    if (status == CKPT_OK)
        *out = w->recipe;
    else
        ckpt__recipe_free(w->recipe);
    return status;
}

static ckpt_status add_range(const writing *w, size_t tensor, uint64_t begin, uint64_t size)
{
    return ckpt__recipe_add_range(w->recipe, &w->recipe->capacity, tensor, begin, size, w->err);
}

static uint64_t bytes_of(const writing *w, size_t tensor)
{
    return w->parts->index->tensors[tensor].info.nbytes;
}

/* ---- a model */

ckpt_status ckpt__llmc_write_model(const ckpt__llmc_parts *parts, ckpt__recipe **out, ckpt_error *err)
{
    const ckpt__llmc_model *m = &parts->model;
    writing w = {.parts = parts, .err = err};
    ckpt_status status =
        begin(&w, CKPT__LLMC_MODEL_MAGIC, m->dtype == CKPT_F32 ? CKPT__LLMC_FLOAT32 : CKPT__LLMC_BFLOAT16);
    if (status == CKPT_OK) {
        put_int(&w, CKPT__LLMC_MAX_T, m->max_t);
        put_int(&w, CKPT__LLMC_VOCAB, m->vocab);
        put_int(&w, CKPT__LLMC_LAYERS, m->layers);
        put_int(&w, CKPT__LLMC_HEADS, m->heads);
        put_int(&w, CKPT__LLMC_CHANNELS, m->channels);
        put_int(&w, CKPT__LLMC_PADDED_VOCAB, m->padded_vocab);
    }
    for (size_t i = 0; status == CKPT_OK && i < CKPT__LLMC_TENSORS; i++)
        status = ckpt__recipe_add(w.recipe, &w.recipe->capacity, CKPT__PAYLOAD, bytes_of(&w, parts->weights[i]), NULL,
                                  parts->weights[i], err);
    return finish(&w, status, out);
}

/* ---- a state */

bool ckpt__llmc_divides(const ckpt__llmc_model *m, uint64_t ranks, ckpt__llmc_tensor *odd)
{
    for (size_t i = 0; i < CKPT__LLMC_TENSORS; i++) {
        *odd = ckpt__llmc_tensor_of(m, i);
        if (odd->numel / odd->layers % ranks)
            return false;
    }
    return true;
}

static ckpt_status add_kind(const writing *w, const ckpt__llmc_state *s, const size_t *tensors)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < CKPT__LLMC_TENSORS; i++) {
        const ckpt__llmc_tensor t = ckpt__llmc_tensor_of(&w->parts->model, i);
        const uint64_t layer = t.numel / t.layers * 4, own = layer / (uint64_t)s->ranks;
        if (!s->split)
            status = add_range(w, tensors[i], 0, bytes_of(w, tensors[i]));
        for (uint64_t l = 0; s->split && status == CKPT_OK && l < t.layers; l++)
            status = add_range(w, tensors[i], l * layer + (uint64_t)s->rank * own, own);
    }
    return status;
}

static ckpt_status add_list(const writing *w, size_t tensor)
{
    char *count = ckpt__arena_alloc(w->recipe->arena, 8);
    const uint64_t size = bytes_of(w, tensor);
    if (!count)
        return no_memory(w->err);
    for (size_t i = 0; i < 8; i++)
        count[i] = (char)(unsigned char)(size / 4 >> 8 * i);
    ckpt_status status = ckpt__recipe_add(w->recipe, &w->recipe->capacity, CKPT__LITERAL, 8, count, 0, w->err);
    return status == CKPT_OK ? add_range(w, tensor, 0, size) : status;
}

ckpt_status ckpt__llmc_write_state(const ckpt__llmc_parts *parts, const ckpt__llmc_state *s,
                                   const size_t lists[CKPT__LLMC_LISTS], ckpt__recipe **out, ckpt_error *err)
{
    writing w = {.parts = parts, .err = err};
    ckpt_status status = begin(&w, CKPT__LLMC_STATE_MAGIC, 1);
    if (status == CKPT_OK) {
        put_int(&w, CKPT__LLMC_RANKS, s->ranks);
        put_int(&w, CKPT__LLMC_RANK, s->rank);
        put_int(&w, CKPT__LLMC_MASTER, s->master);
        put_int(&w, CKPT__LLMC_SHUFFLES, s->shuffles);
        put_int(&w, CKPT__LLMC_STEP, s->step);
        put_long(&w, CKPT__LLMC_RNG, s->rng);
        put_long(&w, CKPT__LLMC_RNG_LAST, s->rng_last);
        put_long(&w, CKPT__LLMC_SHARD, s->shard);
        put_long(&w, CKPT__LLMC_SAMPLE, s->sample);
    }
    for (size_t k = 0; status == CKPT_OK && k < (s->master ? 3u : 2u); k++)
        status = add_kind(&w, s, parts->states[k]);
    for (size_t k = 0; s->shuffles && status == CKPT_OK && k < CKPT__LLMC_TWIST; k++)
        status = add_list(&w, lists[k]);
    if (s->shuffles && status == CKPT_OK)
        status = add_range(&w, lists[CKPT__LLMC_TWIST], 0, CKPT__LLMC_TWISTER);
    return finish(&w, status, out);
}
