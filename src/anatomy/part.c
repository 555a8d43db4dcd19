/* anatomy/part.c - shards of checkpoints that several ranks wrote, each opened alone. What they hold is in the sources of
 * torch/distributed/checkpoint/metadata.py and hf_storage.py, deepspeed/runtime/engine.py and zero/stage_1_and_2.py (_save_zero_checkpoint,
 * state_dict), deepspeed/checkpoint/ds_to_universal.py, megatron/training/checkpointing.py (get_checkpoint_name) and
 * megatron/core/optimizer/distrib_optimizer.py. Files of the programs themselves were read. */
#include "anatomy/part.h"
#include "format/shard.h"

#include <stdio.h>

/* ---- names */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The number behind the last `word` of a text, and where it ends; -1: none. */
static int64_t number_behind(const char *text, const char *word, const char **end)
{
    int64_t found = -1;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        const char *p = at + strlen(word);
        int64_t n = 0;
        size_t digits = 0;
        for (; p[digits] >= '0' && p[digits] <= '9' && digits < 9; digits++)
            n = n * 10 + (p[digits] - '0');
        if (digits == 0)
            continue;
        found = n;
        if (end)
            *end = p + digits;
    }
    return found;
}

/* "rank 1 of 2" as its tensors say, or by the names of rank files: model_world_size_2_rank_1.pt,
 * pytorch_model_fsdp_0_rank1.bin. */
static void rank_of(const ckpt__index *index, const char *path, char *out, size_t size)
{
    const char *name = base_of(path);
    const ckpt__shard *shard = index->shards;
    int64_t world = number_behind(name, "world_size_", NULL), rank = number_behind(name, "rank_", NULL);
    if (rank < 0)
        rank = number_behind(name, "rank", NULL);
    if (shard && shard->rank >= 0 && shard->world > shard->rank)
        snprintf(out, size, "rank %lld of %lld", (long long)shard->rank, (long long)shard->world);
    else if (rank >= 0 && world > 0)
        snprintf(out, size, "rank %lld of %lld by its name", (long long)rank, (long long)world);
    else if (rank >= 0)
        snprintf(out, size, "rank %lld by its name", (long long)rank);
    else
        snprintf(out, size, "one rank's");
}

/* ---- values */

static const ckpt_value *attribute(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = v ? ckpt_value_get(v, key) : NULL;
    return found && found->kind != CKPT_V_NONE ? found : NULL;
}

static int64_t int_at(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = attribute(v, key);
    return found && found->kind == CKPT_V_INT ? found->integer : -1;
}

static bool is_true(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = attribute(v, key);
    return found && found->kind == CKPT_V_BOOL && found->boolean;
}

/* ---- tensors that are one rank's piece: FSDP2, tensor parallel, FSDP1 */

static void put_shape(char *out, size_t size, const ckpt_tensor_info *t)
{
    size_t at = (size_t)snprintf(out, size, "(");
    for (uint32_t d = 0; d < t->ndim && at < size; d++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    if (at < size)
        snprintf(out + at, size - at, ")");
}

/* Its own tensor is smaller than what it stands for. One over a mesh of one rank, or that every rank has whole, is none. */
static bool is_piece(const ckpt_tensor_info *t)
{
    if (ckpt__str_ends(t->extra->class_name, ".ShardedTensor"))
        return true;
    if (!t->extra->placements.data || t->extra->part_count == 0)
        return false;
    const ckpt_tensor_info *local = t->extra->parts[0];
    return !ckpt__same_shape(local->shape, local->ndim, t->shape, t->ndim);
}

/* verl and accelerate: the directory is a checkpoint (format/fsdp). */
static void rank_how(const char *path, ckpt__whole *out)
{
    const char *name = base_of(path);
    bool verl = number_behind(name, "world_size_", NULL) > 0;
    bool named = verl || ckpt__begins(name, "pytorch_model_fsdp_") || ckpt__begins(name, "optimizer_");
    snprintf(
        out->how, sizeof out->how, "%s",
        named
            ? "ask for the directory, which is read whole (ckpt-migrate --to torch DIR OUT.pt makes one file of it); the "
              "program that saved it (verl, accelerate) loads each rank's file in that rank, with as many ranks"
            : "each rank of the program that saved it loads its own file, after the model was sharded as it was then; "
              "for one file of all of them save there with torch.distributed.checkpoint.state_dict."
              "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))");
}

/* verl's, without a tensor that says so: the state of FSDP1's own optimizers, random states. */
static bool of_rank(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    char rank[80];
    if (number_behind(base_of(path), "world_size_", NULL) < 2 || number_behind(base_of(path), "rank_", NULL) < 0)
        return false;
    rank_of(index, path, rank, sizeof rank);
    snprintf(out->what, sizeof out->what, "one of the files of a checkpoint with a file of each rank (%s)", rank);
    rank_how(path, out);
    return true;
}

static bool of_pieces(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    const ckpt_tensor_info *first = NULL;
    size_t pieces = 0;
    for (size_t i = 0; i < index->tensor_count; i++) {
        const ckpt_tensor_info *t = &index->tensors[i].info;
        if (t->extra && is_piece(t)) {
            first = first ? first : t;
            pieces++;
        }
    }
    if (!first)
        return of_rank(index, path, out);
    char rank[80], global[80], local[80], name[120];
    rank_of(index, path, rank, sizeof rank);
    put_shape(global, sizeof global, first);
    ckpt__escape(name, sizeof name, first->name.data, first->name.size);
    if (first->extra->part_count && first->extra->placements.data) {
        put_shape(local, sizeof local, first->extra->parts[0]);
        snprintf(out->what, sizeof out->what,
                 "a shard (%s): of %zu tensor%s it has one rank's piece (DTensor), the first %s: %.80s, %s of %s", rank,
                 pieces, pieces == 1 ? "" : "s", name, first->extra->placements.data, local, global);
    } else {
        snprintf(out->what, sizeof out->what,
                 "a shard (%s): of %zu tensor%s it has one rank's piece (ShardedTensor, FSDP1), the first %s of %s",
                 rank, pieces, pieces == 1 ? "" : "s", name, global);
    }
    rank_how(path, out);
    return true;
}

/* ---- DCP: its list of tensors */

/* torch's own dcp_to_torch is not named: of lists that each rank wrote for itself it reads rank 0's alone, and writes wrong
 * tensors. */
static const char dcp_how[] =
    "ask for the directory, which is read whole; torch.distributed.checkpoint.load(state_dict, "
    "checkpoint_id=DIR) loads it; to make one file of it: ckpt-migrate --to torch DIR OUT.pt";

static bool of_dcp(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    const ckpt_value *root = index->root;
    if (!root || root->kind != CKPT_V_OBJECT || !ckpt__str_ends(root->class_name, "checkpoint.metadata.Metadata") ||
        !attribute(root, "state_dict_metadata"))
        return false;
    const char *name = base_of(path), *end = NULL;
    int64_t rank = number_behind(name, "__", &end);
    char whose[40] = "the";
    if (rank >= 0 && strcmp(end, ".metadata") == 0)
        snprintf(whose, sizeof whose, "rank %lld's", (long long)rank);
    snprintf(
        out->what, sizeof out->what,
        "%s list of what lies where in a PyTorch distributed checkpoint (DCP, %zu entries): it holds no tensor; those are "
        "in the .distcp files beside it",
        whose, attribute(root, "state_dict_metadata")->entry_count);
    snprintf(out->how, sizeof out->how, "%s", dcp_how);
    return true;
}

/* ---- DCP in safetensors: torch's HuggingFaceStorageWriter. The header of each rank's file says where its tensors begin in the whole
 * ones; how large those are is in no single file. */

static const ckpt_value *saved_offsets(const ckpt_value *root)
{
    const ckpt_value *metadata = attribute(root, "__metadata__"), *text = attribute(metadata, "DCP_SHARDING_INFO");
    return text && text->kind == CKPT_V_STR ? text : NULL;
}

static bool of_boxes(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    int64_t rank = number_behind(base_of(path), "shard-", NULL);
    char whose[60] = "one rank's";
    if (!saved_offsets(index->root))
        return false;
    if (rank > 0) /* the files are counted from 1 on */
        snprintf(whose, sizeof whose, "rank %lld by its name", (long long)rank - 1);
    snprintf(
        out->what, sizeof out->what,
        "a shard (%s) of a PyTorch distributed checkpoint in safetensors (HuggingFaceStorageWriter): each of its %zu "
        "tensors is a box of a larger one, where it begins is in DCP_SHARDING_INFO of its header",
        whose, index->tensor_count);
    snprintf(
        out->how, sizeof out->how,
        "ask for the directory, which is read whole; torch.distributed.checkpoint.load(state_dict, "
        "storage_reader=HuggingFaceStorageReader(DIR)) loads it; to make one file of it: ckpt-migrate --to safetensors "
        "DIR OUT.safetensors");
    return true;
}

/* ---- DeepSpeed */

static const char deepspeed_how[] =
    "ask for the directory that holds latest, which is read whole; engine.load_checkpoint(DIR) loads it; to make one file of it, with "
    "the optimizer: ckpt-migrate --to torch DIR OUT.pt";

/* "data parallel rank 1, model parallel rank 0", as far as the name says. */
static void deepspeed_ranks(const char *path, char *out, size_t size)
{
    const char *name = base_of(path);
    int64_t dp = number_behind(name, "zero_pp_rank_", NULL), mp = number_behind(name, "mp_rank_", NULL);
    if (dp >= 0 && mp >= 0)
        snprintf(out, size, "data parallel rank %lld, model parallel rank %lld", (long long)dp, (long long)mp);
    else if (mp >= 0)
        snprintf(out, size, "model parallel rank %lld", (long long)mp);
    else
        snprintf(out, size, "one rank's");
}

/* zero/<parameter>/{fp32,exp_avg,exp_avg_sq,step}.pt and zero/optimizer_state.pt */
static bool of_universal(const ckpt_value *root, const char *path, ckpt__whole *out)
{
    static const char *const files[] = {"fp32.pt", "exp_avg.pt", "exp_avg_sq.pt", "step.pt"};
    const char *name = base_of(path), *zero = strstr(path, "/zero/");
    bool state = root && attribute(root, "zero_stage") && attribute(root, "param_groups"), own = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        own = own || strcmp(name, files[i]) == 0;
    if (zero && own && name > zero + 6) {
        char param[160];
        ckpt__escape(param, sizeof param, zero + 6, (size_t)(name - zero - 7));
        snprintf(out->what, sizeof out->what, "%.*s of the parameter %s, in a DeepSpeed universal checkpoint",
                 (int)(strlen(name) - 3), name, param);
    } else if (state) {
        snprintf(out->what, sizeof out->what,
                 "the optimizer's settings of a DeepSpeed universal checkpoint: its state lies in a "
                 "folder for each parameter");
    } else {
        return false;
    }
    snprintf(out->how, sizeof out->how,
             "engine.load_checkpoint(DIR) with \"checkpoint\": {\"load_universal\": true} in the "
             "configuration, DIR being the directory that holds latest_universal");
    return true;
}

static bool of_deepspeed(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    char ranks[100];
    const ckpt_value *root = index->root, *optimizer = attribute(root, "optimizer_state_dict");
    if (of_universal(root, path, out))
        return true;
    if (!attribute(root, "ds_version") && !attribute(root, "ds_config"))
        return false;
    deepspeed_ranks(path, ranks, sizeof ranks);
    snprintf(out->how, sizeof out->how, "%s", deepspeed_how);
    if (optimizer && (attribute(optimizer, "zero_stage") || attribute(optimizer, "partition_count"))) {
        snprintf(
            out->what, sizeof out->what,
            "a shard of a DeepSpeed ZeRO checkpoint (%s): its part of the optimizer's state, flat; the model's parts are in "
            "*_model_states.pt beside it",
            ranks);
        return true;
    }
    bool universal = strstr(path, "universal/") != NULL;
    int64_t mp = int_at(root, "mp_world_size"), dp = int_at(root, "dp_world_size");
    bool stage3 = number_behind(base_of(path), "zero_pp_rank_", NULL) >= 0;
    bool zero = attribute(root, "param_shapes") && !attribute(root, "optimizer");
    if (!attribute(root, "module") || (mp < 2 && !stage3 && !zero))
        return false; /* whole: without ZeRO and model parallelism */
    snprintf(
        out->what, sizeof out->what,
        "a part of a DeepSpeed%s checkpoint (%s; saved by %lld data parallel rank%s): %s; the optimizer's state is in %s "
        "beside it",
        zero || stage3 ? " ZeRO" : "", ranks, (long long)(dp < 0 ? 0 : dp), dp == 1 ? "" : "s",
        stage3   ? "its parameters are empty here (stage 3), and lie in the optimizer's files"
        : mp > 1 ? "its share of the model"
                 : "the model",
        universal ? "zero/" : "*_optim_states.pt");
    return true;
}

/* ---- Megatron */

/* mp_rank_<tp>[_<pp>[_<ep>]] in the path; -1 where it does not say. */
static void megatron_ranks(const char *path, int64_t *tp, int64_t *pp)
{
    const char *end = NULL;
    *tp = number_behind(path, "mp_rank_", &end);
    *pp = -1;
    if (*tp >= 0 && end[0] == '_' && end[1] >= '0' && end[1] <= '9')
        *pp = number_behind(end, "_", NULL);
    if (*pp >= 0) { /* the first of the numbers behind: expert parallel ranks follow it */
        int64_t first = 0;
        for (const char *p = end + 1; *p >= '0' && *p <= '9' && first < 100000000; p++)
            first = first * 10 + (*p - '0');
        *pp = first;
    }
}

static void megatron_place(const ckpt_value *args, const char *path, char *out, size_t size)
{
    int64_t tp, pp, tps = int_at(args, "tensor_model_parallel_size"),
                    pps = int_at(args, "pipeline_model_parallel_size");
    int64_t rank = int_at(args, "rank"), world = int_at(args, "world_size");
    char mesh[120] = "";
    megatron_ranks(path, &tp, &pp);
    if (tp >= 0 && tps > 0)
        snprintf(mesh, sizeof mesh, "tensor parallel rank %lld of %lld", (long long)tp, (long long)tps);
    else if (tps > 0)
        snprintf(mesh, sizeof mesh, "of %lld tensor parallel ranks", (long long)tps);
    size_t n = strlen(mesh);
    if (pps > 1 && pp >= 0)
        snprintf(mesh + n, sizeof mesh - n, ", pipeline stage %lld of %lld", (long long)pp, (long long)pps);
    else if (pps > 1)
        snprintf(mesh + n, sizeof mesh - n, ", of %lld pipeline stages", (long long)pps);
    if (rank >= 0 && world > 0)
        snprintf(out, size, "rank %lld of %lld: %s", (long long)rank, (long long)world, mesh);
    else
        snprintf(out, size, "%s", mesh);
}

static bool of_megatron(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    char place[200];
    const ckpt_value *root = index->root, *args = attribute(root, "args");
    int64_t tps = int_at(args, "tensor_model_parallel_size"), pps = int_at(args, "pipeline_model_parallel_size"), tp,
            pp;
    snprintf(
        out->how, sizeof out->how,
        "the directory that holds latest_checkpointed_iteration.txt, which is read here with the parts of all ranks; "
        "Megatron-LM with --load of that directory, and the same tensor and pipeline sizes");
    if (is_true(root, "buckets_coalesced")) {
        megatron_ranks(path, &tp, &pp);
        snprintf(place, sizeof place, tp >= 0 ? "tensor parallel rank %lld" : "one rank's", (long long)tp);
        snprintf(
            out->what, sizeof out->what,
            "the distributed optimizer's state of a part of a Megatron checkpoint (%s), flat: neither names nor order of its "
            "parameters are in it",
            place);
        return true;
    }
    if (tps < 0 || !attribute(root, "checkpoint_version"))
        return false;
    const ckpt_value *format = attribute(args, "ckpt_format");
    bool model = attribute(root, "model") || attribute(root, "model0");
    if (!model && format && format->kind == CKPT_V_STR && ckpt__str_is(format->text, "torch_dist")) {
        snprintf(
            out->what, sizeof out->what,
            "what all ranks of a Megatron checkpoint have in common (torch_dist; %lld tensor parallel, %lld pipeline ranks): "
            "arguments, schedule, settings of the optimizer; weights and moments are in the .distcp files beside it",
            (long long)tps, (long long)(pps < 1 ? 1 : pps));
        return true;
    }
    bool distributed = is_true(args, "use_distributed_optimizer");
    if (!model || (tps < 2 && pps < 2 && !distributed))
        return false;
    megatron_place(args, path, place, sizeof place);
    snprintf(out->what, sizeof out->what, "a part of a Megatron checkpoint (%s)%s", place,
             distributed ? "; the optimizer's state is in distrib_optim.pt beside it" : "");
    return true;
}

/* ---- all of them */

/* One record of a distributed checkpoint: a whole file of torch.save by its bytes. */
static bool of_distcp(const char *path, ckpt__whole *out)
{
    const char *name = base_of(path), *end = NULL;
    int64_t rank = number_behind(name, "__", &end);
    if (rank < 0 || end[0] != '_' || strlen(name) < 7 || strcmp(name + strlen(name) - 7, ".distcp") != 0)
        return false;
    snprintf(
        out->what, sizeof out->what,
        "a record that rank %lld wrote for a PyTorch distributed checkpoint (DCP): its name and place are in .metadata beside it",
        (long long)rank);
    snprintf(out->how, sizeof out->how, "%s", dcp_how);
    return true;
}

bool ckpt__part_of_shards(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    if (ckpt__index_is_directory(index))
        return false;
    return of_boxes(index, path, out) || of_dcp(index, path, out) || of_distcp(path, out) ||
           of_deepspeed(index, path, out) || of_megatron(index, path, out) || of_pieces(index, path, out);
}

bool ckpt__part_find(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    memset(out, 0, sizeof *out);
    return ckpt__part_of_shards(index, path, out) || ckpt__part_of_folder(index, path, out);
}

ckpt_status ckpt__part_refuse(const ckpt__index *index, const char *path, ckpt_error *err)
{
    ckpt__whole whole;
    memset(&whole, 0, sizeof whole);
    bool directory = ckpt__index_is_directory(index);
    bool part = !directory && (of_boxes(index, path, &whole) || of_dcp(index, path, &whole) || of_distcp(path, &whole));
    for (size_t i = 0; !part && directory && index->root && i < index->root->entry_count; i++)
        if (saved_offsets(index->root->entries[i].value)) {
            const ckpt_str file = index->root->entries[i].key->text;
            char name[200];
            snprintf(whole.what, sizeof whole.what,
                     "a directory in which %s is a shard of a PyTorch distributed checkpoint in safetensors "
                     "(HuggingFaceStorageWriter): each of its tensors is a box of a larger one",
                     ckpt__escape(name, sizeof name, file.data, file.size));
            snprintf(whole.how, sizeof whole.how,
                     "give all ranks' files in one directory, under the names that torch gave them "
                     "(shard-00001-model-00001-of-00001.safetensors)");
            part = true;
        }
    if (!part)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, path, "this is %s. A shard is not given out as the tensor: %s",
                      whole.what, whole.how);
}
