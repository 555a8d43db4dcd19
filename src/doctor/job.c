/* doctor/job.c - the job that resumes beside the one that saved: how many ranks, how they divide the work, and what there is once for
 * each rank. What becomes of a difference is in rows_job.c. */
#include "doctor/facts.h"

#include <stdio.h>
#include "anatomy/producer.h"
#include "anatomy/rank_state.h"
#include "format/shard.h"
#include "format/table.h"

static const ckpt_str none = {NULL, 0};

/* ---- what the ranks wrote */

static bool is_flat(const ckpt__index *index)
{
    return ckpt_report_find(index->findings, "flat-parameters", NULL) != NULL;
}

unsigned ckpt__doctor_inside(const ckpt__index *index)
{
    const ckpt__format *format = ckpt__format_of(index);
    if (index->job.whole_model)
        return CKPT__IN_DEEPSPEED;
    if (!ckpt__index_is_directory(index))
        return 0;
    switch (format->sharded) {
    case CKPT__SHARDED_DCP:
        return index->bare_list ? CKPT__IN_DCP : CKPT__IN_DCP_HF; /* lists and records, or safetensors alone */
    case CKPT__SHARDED_DEEPSPEED:
        return CKPT__IN_DEEPSPEED;
    case CKPT__SHARDED_UNIVERSAL:
        return CKPT__IN_UNIVERSAL;
    case CKPT__SHARDED_MEGATRON:
        return CKPT__IN_MEGATRON;
    case CKPT__SHARDED_TORCH_DIST:
        return CKPT__IN_TORCH_DIST;
    case CKPT__SHARDED_FSDP:
        return is_flat(index) ? CKPT__IN_FLAT : CKPT__IN_FSDP;
    case CKPT__SHARDED_LLMC:
        return CKPT__IN_LLMC;
    default:
        return 0;
    }
}

static const ckpt_value *root_value(const ckpt__examination *p, const char *key)
{
    return p->index->root ? ckpt_value_get(p->index->root, key) : NULL;
}

/* The files that the HF Trainer, accelerate and Lightning leave beside what the ranks wrote. A file of a rank is accelerate's by its
 * name: pytorch_model_fsdp_0_rank1.bin. */
bool ckpt__doctor_reads_inside(const ckpt__examination *p)
{
    if (!(p->loader->takes & p->inside))
        return false;
    switch (p->loader->loader) {
    case CKPT_LOADER_HF_TRAINER:
        return ckpt__producer_of(p->index)->loader == CKPT_LOADER_HF_TRAINER;
    case CKPT_LOADER_ACCELERATE:
        if (p->inside & (CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL))
            return ckpt__producer_of(p->index)->loader == CKPT_LOADER_ACCELERATE;
        for (size_t i = 0; i < p->index->tensor_count; i++)
            if (p->index->tensors[i].info.file.data &&
                ckpt__begins(p->index->tensors[i].info.file.data, "pytorch_model_fsdp_"))
                return true;
        return p->inside == CKPT__IN_FLAT || root_value(p, "extra_state") == NULL;
    case CKPT_LOADER_LIGHTNING:
        return p->inside == CKPT__IN_DCP ? root_value(p, "meta.pt") != NULL
                                         : root_value(p, "pytorch-lightning_version") != NULL;
    default:
        return true;
    }
}

/* ---- how many ranks saved it */

/* By the names of the files: "__3_0.distcp", "shard-00004-model-00001-of-00001.safetensors", below any folder. */
int64_t ckpt__doctor_ranks_of_files(const ckpt__examination *p)
{
    int64_t most = 0;
    for (size_t i = 0; i < p->reader->source->count; i++) {
        const char *name = p->reader->source->files[i].name, *slash = strrchr(name, '/');
        const char *at = slash ? slash + 1 : name;
        bool shard = ckpt__begins(at, "shard-"), record = ckpt__begins(at, "__");
        at += shard ? 6 : 2;
        size_t digits = shard || record ? strspn(at, "0123456789") : 0;
        int64_t rank;
        if (digits == 0 || !ckpt__parse_i64(at, digits, &rank))
            continue;
        rank += record;
        most = rank > most ? rank : most;
    }
    return most;
}

static int64_t saved_ranks(const ckpt__examination *p)
{
    const ckpt__job *job = &p->index->job;
    if (p->inside == CKPT__IN_DEEPSPEED)
        return job->dp;
    return job->ranks ? job->ranks : p->inside & (CKPT__IN_DCP | CKPT__IN_DCP_HF) ? ckpt__doctor_ranks_of_files(p) : 0;
}

static const char *count_of(char *buf, size_t size, int64_t n)
{
    snprintf(buf, size, "%lld", (long long)n);
    return buf;
}

static void note(ckpt__examination *p, ckpt__fact fact, int64_t saved, int64_t asked, const char *c)
{
    char a[24], b[24];
    ckpt__doctor_note(p, fact, NULL, none, count_of(a, sizeof a, saved), count_of(b, sizeof b, asked), c);
}

/* ---- ranks and mesh */

/* "dp=2, tp=2", of the mesh that a DTensor names; its axes may have no names. */
static void put_mesh(const ckpt__mesh *m, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < m->ndim && at < size; i++) {
        char name[60] = "";
        if (m->names[i].data)
            ckpt__escape(name, sizeof name, m->names[i].data, m->names[i].size);
        at += (size_t)snprintf(out + at, size - at, "%s%s%s%lld", i ? "," : "", name, *name ? "=" : "",
                               (long long)m->sizes[i]);
    }
}

static void put_asked(const ckpt__mesh_asked *m, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < m->count && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%.*s=%lld", i ? "," : "", (int)m->names[i].size,
                               m->names[i].data, (long long)m->sizes[i]);
}

/* Axes of one rank divide nothing. */
static size_t without_ones(const int64_t *sizes, size_t count, size_t *kept)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (sizes[i] > 1)
            kept[n++] = i;
    return n;
}

/* What an axis of that name divides, by its first letter: programs call that of the data dp, fsdp, dp_shard, shard, ... 0: not known. */
static char divides(ckpt_str name)
{
    static const char *const data[] = {"dp",        "ddp",      "fsdp",         "data", "shard",
                                       "replicate", "dp_shard", "dp_replicate", "rep"};
    if (!name.data)
        return 0;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (ckpt__str_is(name, data[i]))
            return 'd';
    return ckpt__str_is(name, "tp") ? 't' : ckpt__str_is(name, "pp") ? 'p' : 0;
}

/* Files of ranks as DTensors: the same sizes in the same order, and of each axis what it divides. */
static void compare_meshes(ckpt__examination *p)
{
    const ckpt__mesh *saved = p->index->job.mesh;
    const ckpt__mesh_asked *asked = &p->mesh;
    size_t a[CKPT__MESH_MOST], b[16];
    char before[200], after[200];
    put_asked(asked, after, sizeof after);
    if (!saved) {
        ckpt__doctor_note(p, CKPT__MESH_UNKNOWN, NULL, none, "", after,
                          "no tensor in the files names the mesh that it was cut for");
        return;
    }
    put_mesh(saved, before, sizeof before);
    size_t n = without_ones(saved->sizes, saved->ndim, a), m = without_ones(asked->sizes, asked->count, b);
    bool same = n == m, known = true;
    for (size_t i = 0; same && i < n; i++) {
        char was = divides(saved->names[a[i]]), is = divides(asked->names[b[i]]);
        same = saved->sizes[a[i]] == asked->sizes[b[i]] && (!was || !is || was == is);
        known = known && was && is;
    }
    if (!same)
        ckpt__doctor_note(p, CKPT__MESH_DIFFERS, NULL, none, before, after, NULL);
    else if (!known)
        ckpt__doctor_note(p, CKPT__MESH_UNKNOWN, NULL, none, before, after,
                          "the sizes are the same, and what the axes divide is not said by their names");
}

/* How the distributed optimizer of Megatron is laid out; NULL: there is none, or it is not said. */
static const char *sharding_of(const ckpt__examination *p)
{
    static const char *const kinds[] = {"dp_reshardable", "fully_reshardable", "fully_sharded_model_space",
                                        "dp_zero_gather_scatter", "fully_sharded_bucket_space"};
    const ckpt_value *content = root_value(p, "content_metadata"), *optimizer = root_value(p, "optimizer");
    const ckpt_value *says[] = {content ? ckpt_value_get(content, "distrib_optim_sharding_type") : NULL,
                                optimizer ? ckpt_value_get(optimizer, "param_state_sharding_type") : NULL};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; says[i] && says[i]->kind == CKPT_V_STR && k < sizeof kinds / sizeof *kinds; k++)
            if (ckpt__str_is(says[i]->text, kinds[k]))
                return kinds[k];
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        ckpt_str name = p->index->tensors[i].info.name;
        if (name.data && strstr(name.data, ".gbuf_idx_") && strstr(name.data, ".bucket_idx_"))
            return kinds[0];
    }
    return NULL;
}

/* Expert-parallel ranks, as Megatron's arguments say; of a version that knows none 1. 0: not told. */
static int64_t experts_of(const ckpt__examination *p)
{
    const ckpt_value *args = root_value(p, "args"),
                     *v = args ? ckpt_value_get(args, "expert_model_parallel_size") : NULL;
    if (args && !v && p->inside == CKPT__IN_MEGATRON)
        return 1;
    return v && v->kind == CKPT_V_INT && v->integer > 0 ? v->integer : 0;
}

/* Has the optimizer of a torch-dist the form for several expert parallel ranks, or for one? -1: it has no experts, or no such optimizer. */
static int form_of_experts(const ckpt__examination *p)
{
    const ckpt_value *optimizer = root_value(p, "optimizer");
    bool experts = false;
    for (size_t i = 0; i < p->index->tensor_count && !experts; i++)
        experts = ckpt__str_begins(p->index->tensors[i].info.name, "decoder.layers.") &&
                  ckpt__str_holds(p->index->tensors[i].info.name, ".mlp.experts.experts.");
    if (p->inside != CKPT__IN_TORCH_DIST || !experts || !optimizer || optimizer->kind != CKPT_V_DICT ||
        !optimizer->entry_count)
        return -1;
    return optimizer->entries[0].key->kind == CKPT_V_INT;
}

/* False: the optimizer loads, as far as experts go. */
static bool note_form(ckpt__examination *p)
{
    const int64_t asked = p->mesh.count ? p->mesh.ep : 0;
    const int form = asked > 0 ? form_of_experts(p) : -1;
    char ranks[60], count[24];
    if (form < 0 || form == (asked > 1))
        return false;
    snprintf(count, sizeof count, "%lld", (long long)asked);
    snprintf(ranks, sizeof ranks, "ep=%lld", (long long)asked);
    ckpt__doctor_note(p, CKPT__MESH_FOR_EXPERTS, NULL, none,
                      form ? "two expert parallel ranks or more" : "one expert parallel rank", ranks, count);
    return true;
}

static void put_sizes(char *out, size_t size, int64_t tp, int64_t pp, int64_t ep)
{
    int n = snprintf(out, size, "tp=%lld,pp=%lld", (long long)tp, (long long)pp);
    if (ep > 0 && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, ",ep=%lld", (long long)ep);
}

/* Random states of ranks: "rng_state/shard_0.1_1.2". */
static bool has_rng(const ckpt__rank_states *ranks)
{
    for (size_t i = 0; i < ranks->count; i++)
        if (ranks->states[i].kind == CKPT__OF_GENERATORS && ranks->states[i].form == CKPT__IN_GRID)
            return true;
    return false;
}

/* Megatron: data parallel ranks may be as many as one likes, tensor and pipeline parallel ones not always. */
static void compare_parallel(ckpt__examination *p, const ckpt__rank_states *ranks, int64_t saved)
{
    const ckpt__job *job = &p->index->job;
    const ckpt__mesh_asked *asked = &p->mesh;
    const char *kind = sharding_of(p);
    char before[80], after[80];
    if (!asked->count && job->tp > 0 && asked->world > 0 && asked->world % (job->tp * job->pp) != 0) {
        snprintf(before, sizeof before, "tp=%lld,pp=%lld", (long long)job->tp, (long long)job->pp);
        snprintf(after, sizeof after, "%lld ranks", (long long)asked->world);
        ckpt__doctor_note(p, CKPT__MESH_UNKNOWN, NULL, none, before, after,
                          "as many ranks cannot be so divided: say the mesh");
        return;
    }
    const int64_t experts = asked->ep > 0 ? experts_of(p) : 0; /* 0: not asked, or not told */
    put_sizes(before, sizeof before, job->tp, job->pp, experts);
    put_sizes(after, sizeof after, asked->tp, asked->pp, experts > 0 ? asked->ep : 0);
    bool other = asked->count && job->tp > 0 &&
                 (asked->tp != job->tp || asked->pp != job->pp || (experts > 0 && asked->ep != experts));
    bool fixed = kind && strcmp(kind, "fully_reshardable") != 0 && strcmp(kind, "fully_sharded_model_space") != 0;
    if (asked->count && job->tp == 0 && fixed)
        ckpt__doctor_note(
            p, CKPT__MESH_UNKNOWN, NULL, none, "not said", after,
            "no file says for which tensor and pipeline parallel size it was saved, and the optimizer is bound to that");
    else if (other && p->inside == CKPT__IN_MEGATRON)
        ckpt__doctor_note(p, CKPT__MESH_DIFFERS, NULL, none, before, after, NULL);
    else if (other && fixed)
        ckpt__doctor_note(p, CKPT__MESH_FOR_OPTIMIZER, NULL, none, before, after, kind);
    else if (note_form(p))
        return;
    else if (other && has_rng(ranks))
        ckpt__doctor_note(p, CKPT__RNG_IGNORED, NULL, none, before, after, NULL);
    if (!other && asked->world > 0 && saved != asked->world)
        note(p, CKPT__RESHARDED, saved, asked->world, NULL);
    else if (other && p->inside == CKPT__IN_TORCH_DIST && !fixed)
        ckpt__doctor_note(p, CKPT__RESHARDED, NULL, none, before, after, NULL);
}

/* DeepSpeed: the data parallel ranks have the parts. */
static bool has_frozen(const ckpt__examination *p)
{
    const ckpt_value *shapes = p->index->job.frozen;
    return shapes && shapes->entry_count > 0;
}

static void compare_ranks(ckpt__examination *p, int64_t saved)
{
    const ckpt__job *job = &p->index->job;
    const ckpt__mesh_asked *asked = &p->mesh;
    int64_t ranks = p->inside == CKPT__IN_DEEPSPEED && asked->count ? asked->dp : asked->world;
    if (p->inside == CKPT__IN_DEEPSPEED && asked->count && asked->tp * asked->pp > 1) {
        char after[200];
        put_asked(asked, after, sizeof after);
        ckpt__doctor_note(p, CKPT__MESH_UNKNOWN, NULL, none, "", after, "the files are of one model parallel rank");
        return;
    }
    if (saved == 0 || saved == ranks)
        return;
    note(p,
         p->inside != CKPT__IN_DEEPSPEED || job->zero != 3 ? CKPT__WORLD_DIFFERS
         : has_frozen(p)                                   ? CKPT__WORLD_FROZEN
                                                           : CKPT__WORLD_DIFFERS_3,
         saved, ranks, NULL);
}

/* ---- what there is once for each rank */

/* torchtitan keeps the place in the data for each data parallel rank, and how many there are. */
static void check_loader(ckpt__examination *p, const ckpt__rank_states *ranks)
{
    const ckpt__rank_state *s = NULL;
    for (size_t i = 0; i < ranks->count && !s; i++)
        if (ckpt__str_is(ranks->states[i].name, "dataloader.dp_rank_*") && ranks->states[i].world != SIZE_MAX)
            s = &ranks->states[i];
    int64_t asked = p->mesh.count ? p->mesh.dp : p->mesh.world;
    if (!s || ranks->parts[s->first].rank != 0 || asked == 0)
        return;
    int64_t world = ranks->parts[s->first].holder->entries[s->world].value->integer;
    bool sure = p->mesh.count || p->mesh.world < world; /* a world of fewer has fewer of them, too */
    if (asked != world)
        note(p, sure ? CKPT__LOADER_DATA : CKPT__LOADER_UNSAID, world, asked, NULL);
}

/* dcp.save keeps of what stands under one key of all ranks that of one. */
static void check_generators(ckpt__examination *p, const ckpt__rank_states *states, int64_t saved)
{
    char name[160] = "";
    int64_t ranks = 0;
    for (size_t i = 0; i < states->count; i++) {
        const ckpt__rank_state *s = &states->states[i];
        bool named = s->form == CKPT__IN_KEYS || s->form == CKPT__IN_NAMES;
        if (named && s->kind == CKPT__OF_GENERATORS && s->ranks > ranks)
            ranks = s->ranks;
    }
    for (size_t i = 0; i < p->index->tensor_count && !*name; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        if (t->role == CKPT_ROLE_RNG && t->name.data && ckpt__rank_in(t->name) < 0)
            ckpt__escape(name, sizeof name, t->name.data, t->name.size);
    }
    if (ranks > 0 && p->mesh.world > 0 && ranks != p->mesh.world)
        note(p, CKPT__STATE_KEYS, ranks, p->mesh.world,
             ranks < p->mesh.world
                 ? "a rank that has none asks for a key that is not there, and dcp.load fails with RuntimeError "
                   "(\"Missing key in checkpoint state_dict\"), or starts anew, as the program asks"
                 : "those of the ranks that are no more are lost");
    if (*name && (saved > 1 || p->mesh.world > 1))
        ckpt__doctor_note(p, CKPT__ONE_STATE, NULL, none, name, NULL, NULL);
}

/* A parameter that has no master, and is not another one's second name. */
static bool is_frozen(const ckpt__examination *p, ckpt_str name)
{
    const ckpt_value *shared = p->index->job.shared;
    ckpt__buf master = {NULL, 0, 0, false};
    size_t found;
    for (size_t i = 0; shared && i < shared->entry_count; i++) {
        const ckpt_value *key = shared->entries[i].key;
        if (key->kind == CKPT_V_STR && key->text.size == name.size && memcmp(key->text.data, name.data, name.size) == 0)
            return false;
    }
    ckpt__buf_str(&master, "optimizer.");
    ckpt__buf_add(&master, name.data, name.size);
    ckpt__buf_str(&master, ".fp32");
    bool none_of_it =
        !master.failed && p->reader->by_name && !ckpt__hash_get(p->reader->by_name, master.data, master.size, &found);
    ckpt__buf_free(&master);
    return none_of_it;
}

/* Parameters that have exp_avg, and no max_exp_avg_sq, of an optimizer that needs it: ds_to_universal.py takes exp_avg, exp_avg_sq and
 * step alone. */
static int64_t without_max(const ckpt__examination *p)
{
    bool amsgrad = false;
    int64_t left = 0;
    for (size_t i = 0; i < p->group_count; i++)
        amsgrad = amsgrad || ckpt__doctor_real(ckpt__doctor_hyper(p, &p->groups[i], "amsgrad", NULL)) != 0;
    for (size_t i = 0; amsgrad && i < p->index->tensor_count; i++) {
        const ckpt_role role = p->index->tensors[i].info.role;
        left += role == CKPT_ROLE_EXP_AVG ? 1 : role == CKPT_ROLE_MAX_EXP_AVG_SQ ? -1 : 0;
    }
    return left > 0 ? left : 0;
}

/* Buffers and frozen parameters lie in the model's file, which is not read under load_universal; of several groups stage 3 takes one. */
static void check_universal(ckpt__examination *p)
{
    uint64_t left = 0;
    ckpt_str first = none;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        bool is = t->role == CKPT_ROLE_BUFFER || (t->role == CKPT_ROLE_PARAM && t->name.data && is_frozen(p, t->name));
        first = is && !first.data ? t->name : first;
        left += is;
    }
    char count[24];
    if (left)
        ckpt__doctor_note(p, CKPT__UNIVERSAL_LEFT, NULL, first, count_of(count, sizeof count, (int64_t)left), NULL,
                          NULL);
    if (p->index->job.zero == 3 && p->group_count > 1)
        note(p, CKPT__UNIVERSAL_GROUPS, (int64_t)p->group_count, 0, NULL);
    const int64_t without = without_max(p);
    if (without > 0)
        note(p, CKPT__UNIVERSAL_MAX, without, 0, NULL);
}

/* What the engine does with `latest`. False: the loader is not the one of this kind, and nothing more is to be said. */
static bool check_deepspeed(ckpt__examination *p)
{
    ckpt_loader loader = p->loader->loader;
    bool universal = p->inside == CKPT__IN_UNIVERSAL;
    if ((universal && loader == CKPT_LOADER_DEEPSPEED) || (!universal && loader == CKPT_LOADER_UNIVERSAL)) {
        ckpt__doctor_note(p, CKPT__UNIVERSAL_ASKED, NULL, none, NULL, NULL, NULL);
        return false;
    }
    if (loader != CKPT_LOADER_ACCELERATE && p->index->job.latest != CKPT__LATEST_FINE)
        ckpt__doctor_note(p, p->index->job.latest == CKPT__LATEST_NONE ? CKPT__NO_LATEST : CKPT__WRONG_LATEST, NULL,
                          none, NULL, NULL, NULL);
    if (universal)
        check_universal(p);
    return true;
}

/* ---- the whole */

static void compare(ckpt__examination *p, const ckpt__rank_states *ranks, int64_t saved)
{
    bool asked = p->mesh.world > 0;
    if (p->inside & (CKPT__IN_MEGATRON | CKPT__IN_TORCH_DIST)) {
        if (asked)
            compare_parallel(p, ranks, saved);
    } else if (p->inside & (CKPT__IN_DCP | CKPT__IN_DCP_HF | CKPT__IN_UNIVERSAL)) {
        if (asked && (p->mesh.count || saved != p->mesh.world))
            note(p, CKPT__RESHARDED, saved, p->mesh.world, NULL);
    } else if (asked) {
        compare_ranks(p, saved);
        if ((p->inside & CKPT__IN_FSDP) && p->mesh.count && saved == p->mesh.world)
            compare_meshes(p);
    } else if (saved > 0) {
        note(p, CKPT__JOB_UNSAID, saved, saved, NULL);
    }
}

static void look(ckpt__examination *p, const ckpt__rank_states *ranks)
{
    int64_t saved = saved_ranks(p);
    char stage[40];
    if ((p->inside & (CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL)) && !check_deepspeed(p))
        return;
    if ((p->inside & CKPT__IN_LLMC) && p->index->job.latest != CKPT__LATEST_FINE)
        ckpt__doctor_note(p, CKPT__NO_LATEST, NULL, none, NULL, NULL, NULL);
    compare(p, ranks, saved);
    if (p->inside & CKPT__IN_DCP) {
        check_loader(p, ranks);
        check_generators(p, ranks, saved);
    }
    if (p->loader->loader == CKPT_LOADER_HF_TRAINER && !root_value(p, "trainer_state.json"))
        ckpt__doctor_note(p, CKPT__TRAINER_STATE_MISSING, NULL, none, NULL, NULL, NULL);
    if (p->loader->loader == CKPT_LOADER_HF_TRAINER && !root_value(p, "scheduler.pt"))
        ckpt__doctor_note(p, CKPT__INSIDE_SCHEDULER, NULL, none, NULL, NULL, NULL);
    if (p->index->root && (p->loader->loader == CKPT_LOADER_HF_TRAINER || p->loader->loader == CKPT_LOADER_ACCELERATE))
        ckpt__doctor_rank_states(p, saved);
    const ckpt_value *scheduler = root_value(p, "lr_scheduler");
    for (size_t i = 0; i < p->group_count; i++) /* which only a scheduler puts there */
        p->had_scheduler = p->had_scheduler || ckpt__doctor_hyper(p, &p->groups[i], "initial_lr", NULL);
    if (p->loader->loader == CKPT_LOADER_ACCELERATE && p->had_scheduler && !root_value(p, "scheduler.bin") &&
        (!scheduler || scheduler->kind == CKPT_V_NONE))
        ckpt__doctor_note(p, CKPT__SCHEDULER_FILE_MISSING, NULL, none, NULL, NULL, NULL);
    if (p->index->job.whole_model)
        return; /* of no stage */
    snprintf(stage, sizeof stage, "stage %s%lld",
             p->index->job.zero == 2 && p->inside == CKPT__IN_UNIVERSAL ? "1 or " : "", (long long)p->index->job.zero);
    ckpt__doctor_note(p, CKPT__JOB_NEEDS, NULL, none, stage, NULL, NULL);
}

ckpt_status ckpt__doctor_job(ckpt__examination *p)
{
    ckpt__rank_states ranks;
    ckpt_status status = ckpt__rank_states_find(p->index, p->arena, &ranks, p->err);
    if (status == CKPT_OK)
        look(p, &ranks);
    ckpt__rank_states_free(&ranks);
    return status;
}
