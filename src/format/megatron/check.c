/* format/megatron/check.c - is a rank's file one of this checkpoint, and one that is read? */
#include "format/megatron/ranks.h"

#include <stdio.h>

enum { MOST_KEYS = 1000 };

const char *ckpt__meg_rank_text(const ckpt__meg *m, const ckpt__meg_rank *r, char *out, size_t size)
{
    char experts[60] = "", stage[60] = "";
    if (m->ep > 1)
        snprintf(experts, sizeof experts, " of expert-parallel rank %lld", (long long)r->ep);
    if (m->pp > 1)
        snprintf(stage, sizeof stage, " of pipeline stage %lld", (long long)r->pp);
    snprintf(out, size, "tensor-parallel rank %lld%s%s", (long long)r->tp, experts, stage);
    return out;
}

static bool differs(const ckpt_value *a, const ckpt_value *b, const char *key, int64_t *x, int64_t *y)
{
    const bool one = ckpt__meg_int(a, key, x), two = ckpt__meg_int(b, key, y);
    return one != two || *x != *y;
}

ckpt_status ckpt__meg_check_same(const ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err)
{
    static const char *const keys[] = {"num_layers",
                                       "hidden_size",
                                       "num_attention_heads",
                                       "num_query_groups",
                                       "ffn_hidden_size",
                                       "padded_vocab_size",
                                       "tensor_model_parallel_size",
                                       "pipeline_model_parallel_size",
                                       "expert_model_parallel_size",
                                       "world_size",
                                       "seed",
                                       "consumed_train_samples"};
    const ckpt_value *args = ckpt_value_get(root, "args");
    int64_t x, y;
    if (differs(root, m->first->root, "iteration", &x, &y))
        return ckpt__fail(
            err, CKPT_E_MISMATCH, name,
            "it is of iteration %lld, and the part in %s is of iteration %lld: these are not the files of one "
            "step",
            (long long)x, m->first->folder, (long long)y);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (differs(args, m->args, keys[i], &x, &y))
            return ckpt__fail(err, CKPT_E_MISMATCH, name,
                              "its arguments say %s %lld, and those in %s say %lld: these are not the files of one run",
                              keys[i], (long long)x, m->first->folder, (long long)y);
    return CKPT_OK;
}

size_t ckpt__meg_count_chunks(const ckpt_value *root)
{
    char key[32];
    const ckpt_value *v = ckpt_value_get(root, "model");
    size_t n = 0;
    if (v)
        return v->kind == CKPT_V_DICT;
    for (v = ckpt_value_get(root, "model0"); v && v->kind == CKPT_V_DICT && n < MOST_KEYS;
         v = ckpt_value_get(root, key))
        snprintf(key, sizeof key, "model%zu", ++n);
    return v ? 0 : n;
}

/* Several parts of the model are those of an interleaved pipeline where the arguments say so many. */
static ckpt_status check_model(const ckpt__meg *m, const ckpt_value *root, const ckpt_value *args, const char *name,
                               ckpt_error *err)
{
    const size_t chunks = ckpt__meg_count_chunks(root);
    int64_t said;
    if (!chunks)
        return ckpt__fail(err, CKPT_E_FORMAT, name, "it has no dict 'model', as Megatron writes it");
    const bool says = ckpt__meg_int(args, "virtual_pipeline_model_parallel_size", &said);
    if (chunks > 1 && (!says || said != (int64_t)chunks))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, name,
                          "it has %zu parts of the model (model0, model1, ...), and its arguments do not say that they "
                          "are those of an interleaved pipeline (virtual_pipeline_model_parallel_size): where their "
                          "layers belong is not known. Save it with Megatron-LM and --ckpt-format torch_dist",
                          chunks);
    if (m->first && chunks != m->vp)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, name,
            "it has %zu parts of the model, and the file in %s has %zu: these are not the files of one run", chunks,
            m->first->folder, m->vp);
    return CKPT_OK;
}

ckpt_status ckpt__meg_check_kind(const ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err)
{
    int64_t step, size, tp;
    const ckpt_value *args = ckpt_value_get(root, "args");
    if (root->entry_count > MOST_KEYS)
        return ckpt__fail(err, CKPT_E_LIMIT, name,
                          "its dict has %zu keys, and Megatron writes some ten of them; %d are read", root->entry_count,
                          MOST_KEYS);
    if (!args)
        return ckpt__fail(
            err, CKPT_E_FORMAT, name,
            "it has no arguments (args), which say over how many ranks the model is cut: Megatron writes them");
    if (m->place->iteration >= 0 && ckpt__meg_int(root, "iteration", &step) && step != m->place->iteration)
        return ckpt__fail(err, CKPT_E_MISMATCH, name,
                          "it is of iteration %lld, and lies in %s: these are not the files of one step",
                          (long long)step, m->place->folder);
    if (ckpt__meg_int(args, "num_experts", &size) && ckpt__meg_int(args, "expert_tensor_parallel_size", &size) &&
        (!ckpt__meg_int(args, "tensor_model_parallel_size", &tp) || size != tp))
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, name,
            "its experts are cut over %lld tensor-parallel ranks and the rest of the model over %lld, and such checkpoints "
            "are not read in this layout: save it with Megatron-LM and --ckpt-format torch_dist",
            (long long)size, (long long)tp);
    return check_model(m, root, args, name, err);
}

/* The number of the process that wrote it, where the arguments have it: its tensor-parallel rank is the quickest to count, an
 * expert-parallel one the next, and a pipeline stage the slowest or the next. A converter leaves the same number in all. */
ckpt_status ckpt__meg_check_rank(const ckpt__meg *m, const ckpt__meg_rank *r, const ckpt_value *root, const char *name,
                                 ckpt_error *err)
{
    int64_t rank, world;
    char place[160];
    const ckpt_value *args = ckpt_value_get(root, "args");
    const int64_t tp = (int64_t)m->tp, pp = (int64_t)m->pp, ep = (int64_t)m->ep;
    if (!ckpt__meg_int(args, "rank", &rank) || !ckpt__meg_int(args, "world_size", &world) || rank <= 0 ||
        world < tp * pp * ep || world % pp != 0)
        return CKPT_OK;
    const bool fits =
        rank % tp == r->tp && rank / tp % ep == r->ep && (rank / (tp * ep) == r->pp || rank / (world / pp) == r->pp);
    return fits
               ? CKPT_OK
               : ckpt__fail(
                     err, CKPT_E_MISMATCH, name,
                     "its arguments say that rank %lld of %lld wrote it, which is not %s of %lld times %lld: it is the "
                     "file of another rank, or of a run of another size",
                     (long long)rank, (long long)world, ckpt__meg_rank_text(m, r, place, sizeof place),
                     (long long)(pp * ep), (long long)tp);
}
