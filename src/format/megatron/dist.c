/* format/megatron/dist.c - torch-dist: the tensors of the list under their own keys, and beside them what is in common.pt. */
#include "format/megatron/megatron.h"
#include "format/native/json_values.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* One checkpoint on its way. All but wholes.items is borrowed. */
typedef struct dist {
    const ckpt__read_request *request;
    const ckpt__meg_place *place;
    ckpt__index *index;
    ckpt__dcp_wholes wholes;
    bool unfinished;  /* there is no metadata.json */
    bool says_common; /* metadata.json says that there is a common.pt, or is not there itself */
} dist;

static void path_of(const dist *d, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s%s", d->place->folder, name);
}

/* ---- metadata.json */

static ckpt_status check_backend(dist *d, const ckpt_value *v, const char *label, ckpt_error *err)
{
    char shown[80];
    const ckpt_value *backend = ckpt_value_get(v, "sharded_backend"), *common = ckpt_value_get(v, "common_backend");
    d->says_common = !common || (common->kind == CKPT_V_STR && ckpt__str_is(common->text, "torch"));
    if (!backend || backend->kind != CKPT_V_STR || ckpt__str_is(backend->text, "torch_dist"))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, label,
        "its tensors are saved by the backend '%s' of Megatron, and torch_dist alone is read: load it with "
        "Megatron-LM and save it with --ckpt-format torch_dist",
        ckpt__escape(shown, sizeof shown, backend->text.data, backend->text.size));
}

static ckpt_status say_unfinished(const dist *d, ckpt_error *err)
{
    char name[120];
    path_of(d, "metadata.json", name, sizeof name);
    if (ckpt__report_add(
            d->index->findings, CKPT_SEVERITY_ERROR, "shard-missing", NULL,
            "copy it from where it was saved; where all other files are there, it is the one line "
            "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}",
            "it is missing: megatron-core writes it last of all, and loads nothing without it. The save did not "
            "finish, or it was not copied") &&
        ckpt__report_detail(d->index->findings, name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__meg_no_memory(err);
}

static ckpt_status read_backend(dist *d, ckpt_error *err)
{
    char name[120], label[300];
    uint32_t file;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__buf text = {0};
    const ckpt_value *value;
    ckpt__arena *a = ckpt__arena_new((uint64_t)16 << 20);
    d->says_common = true;
    path_of(d, "metadata.json", name, sizeof name);
    ckpt_status status = a ? ckpt__source_add(d->request->source, name, &file, &why) : ckpt__meg_no_memory(&why);
    const bool none = status == CKPT_E_SYSTEM && why.sys_errno == ENOENT;
    if (status == CKPT_OK)
        status = ckpt__source_slurp(d->request->source, file, 1 << 20, &text, &why);
    if (status == CKPT_OK) {
        ckpt__source_label(d->request->source, file, label, sizeof label);
        status = ckpt__json_values(text.data ? text.data : "", text.size, label, a, &value, &why);
        if (status == CKPT_OK)
            status = check_backend(d, value, label, &why);
    }
    ckpt__buf_free(&text);
    ckpt__arena_free(a);
    if (status < 0 && !none && err)
        *err = why;
    d->unfinished = none;
    return none ? CKPT_OK : status;
}

/* ---- what each tensor is */

bool ckpt__meg_moment(ckpt_str name, ckpt_str *param, ckpt_str *kind, ckpt_role *role)
{
    static const struct {
        const char *key, *kind;
        ckpt_role role;
    } kinds[] = {
        {"exp_avg", "exp_avg", CKPT_ROLE_EXP_AVG},    {"exp_avg_sq", "exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
        {"param", "master", CKPT_ROLE_MASTER},        {"fp32_param", "master", CKPT_ROLE_MASTER},
        {"master_param", "master", CKPT_ROLE_MASTER}, {"momentum_buffer", "momentum_buffer", CKPT_ROLE_MOMENTUM}};
    static const char head[] = "optimizer.state.";
    const char *at = name.data ? memmem(name.data, name.size, head, sizeof head - 1) : NULL;
    if (!at || (at != name.data && at[-1] != '.'))
        return false;
    at += sizeof head - 1;
    const size_t left = name.size - (size_t)(at - name.data);
    const char *dot = memchr(at, '.', left);
    const ckpt_str key = {at, dot ? (size_t)(dot - at) : 0};
    for (size_t i = 0; dot && i < sizeof kinds / sizeof *kinds; i++)
        if (ckpt__str_is(key, kinds[i].key)) {
            *kind = ckpt__s(kinds[i].kind);
            *role = kinds[i].role;
            *param = (ckpt_str){dot + 1, left - key.size - 1};
            return param->size > 0;
        }
    return false;
}

/* "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(...).bucket_idx_0.exp_avg" */
static bool is_bucket(ckpt_str name)
{
    return ckpt__str_holds(name, ".gbuf_idx_") && ckpt__str_begins(name, "optimizer");
}

/* Of a tensor within a value: of an object's record, or of common.pt. */
static void set_value_role(ckpt_tensor_info *t)
{
    const ckpt_str last = ckpt__str_last(t->name);
    if (ckpt__str_begins(t->name, "rng_state") || ckpt__str_ends(last, "rng_state"))
        t->role = CKPT_ROLE_RNG;
    else if (ckpt__str_is(last, "step") || ckpt__str_is(last, "common_step"))
        t->role = CKPT_ROLE_STEP;
    else
        t->role = ckpt__str_begins(t->name, "optimizer") ? CKPT_ROLE_OPTIM : CKPT_ROLE_OTHER;
    t->param = t->state_key = t->group = (ckpt_str){NULL, 0};
}

static void set_role(ckpt_tensor_info *t)
{
    ckpt_str param, kind;
    ckpt_role role;
    if (t->path.count != 1 || t->inside) {
        set_value_role(t);
        return;
    }
    if (ckpt__meg_moment(t->name, &param, &kind, &role)) {
        t->role = role;
        t->param = param;
        t->state_key = kind;
        return;
    }
    if (is_bucket(t->name)) {
        const ckpt_str last = ckpt__str_last(t->name);
        t->role = ckpt__str_is(last, "exp_avg")      ? CKPT_ROLE_EXP_AVG
                  : ckpt__str_is(last, "exp_avg_sq") ? CKPT_ROLE_EXP_AVG_SQ
                  : ckpt__str_is(last, "param")      ? CKPT_ROLE_MASTER
                                                     : CKPT_ROLE_OPTIM;
        t->state_key = t->role == CKPT_ROLE_MASTER ? ckpt__s("master") : last;
    } else if (ckpt__str_begins(t->name, "optimizer.")) {
        t->role = CKPT_ROLE_OPTIM;
    } else if (ckpt__str_ends(t->name, ".weight") || ckpt__str_ends(t->name, ".bias") ||
               ckpt__str_holds(t->name, "layer_norm_") || ckpt__str_holds(t->name, ".weight_") ||
               ckpt__str_holds(t->name, ".bias_") || ckpt__str_ends(t->name, ".shared_experts.gate_weight")) {
        t->role = CKPT_ROLE_PARAM;
    } else if (ckpt__str_ends(t->name, ".router.expert_bias")) {
        t->role = CKPT_ROLE_BUFFER;
    }
}

/* ---- common.pt */

static ckpt_status lack_common(dist *d, const char *name, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    return ckpt__survey_lack(d->request, d->index->findings, name, status, why, err);
}

/* The root becomes one dict of the list's keys and of those of common.pt. */
static ckpt_status join_roots(dist *d, const ckpt_value *common, const char *name, ckpt_error *err)
{
    ckpt__index *x = d->index;
    const ckpt_value *list = x->root;
    char shown[200];
    if (!common || common->kind != CKPT_V_DICT)
        return ckpt__fail(err, CKPT_E_FORMAT, name, "it holds no dict, as Megatron writes it");
    if (!list || list->kind != CKPT_V_DICT)
        return ckpt__fail(err, CKPT_E_FORMAT, name,
                          "the list beside it is of no dict of tensors, as Megatron writes it");
    for (size_t i = 0; i < common->entry_count; i++) {
        const ckpt_value *key = common->entries[i].key;
        char *text = key->kind == CKPT_V_STR ? ckpt__arena_copy(x->arena, key->text.data, key->text.size) : NULL;
        if (key->kind == CKPT_V_STR && !text)
            return ckpt__meg_no_memory(err);
        if (text && ckpt_value_get(list, text))
            return ckpt__fail(err, CKPT_E_FORMAT, name, "it has '%s', which the list of tensors has, too",
                              ckpt__escape(shown, sizeof shown, key->text.data, key->text.size));
    }
    const size_t n = list->entry_count + common->entry_count;
    ckpt_entry *entries = ckpt__arena_array(x->arena, n ? n : 1, sizeof *entries);
    if (!entries)
        return ckpt__meg_no_memory(err);
    if (list->entry_count)
        memcpy(entries, list->entries, list->entry_count * sizeof *entries);
    if (common->entry_count)
        memcpy(entries + list->entry_count, common->entries, common->entry_count * sizeof *entries);
    x->root = ckpt__value_dict(x->arena, entries, n);
    return x->root ? CKPT_OK : ckpt__meg_no_memory(err);
}

static ckpt_status check_step(dist *d, const ckpt_value *common, const char *name, ckpt_error *err)
{
    int64_t step;
    if (!ckpt__meg_int(common, "iteration", &step))
        return CKPT_OK;
    d->index->step = step;
    if (d->place->iteration < 0 || d->place->iteration == step)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_MISMATCH, name,
                      "it is of iteration %lld, and its directory is named %s: these are not the files of one step",
                      (long long)step, d->place->folder);
}

static ckpt_status read_common(dist *d, ckpt_error *err)
{
    char name[120];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__index *part = NULL;
    path_of(d, "common.pt", name, sizeof name);
    ckpt_status status = ckpt__meg_part(d->request, name, d->index, &part, &why);
    if (status == CKPT_E_SYSTEM && why.sys_errno == ENOENT) {
        if (!d->says_common)
            return CKPT_OK;
        status = ckpt__fail(
            &why, CKPT_E_DAMAGED, name,
            "it is missing, with the iteration, the arguments and the optimizer's groups. Copy it from where it was saved, "
            "or take an earlier step");
    }
    if (status < 0)
        return lack_common(d, name, status, &why, err);
    const ckpt_value *root = part->root;
    status = check_step(d, root, name, &why);
    if (status < 0) {
        ckpt__index_free(part);
        return lack_common(d, name, status, &why, err);
    }
    const size_t first = d->index->tensor_count;
    status = ckpt__meg_absorb(d->index, part, name, err);
    for (size_t i = first; status == CKPT_OK && i < d->index->tensor_count; i++)
        set_value_role(&d->index->tensors[i].info);
    return status == CKPT_OK ? join_roots(d, root, name, err) : status;
}

/* ---- what the files do not hold */

static ckpt_status note_buckets(dist *d, ckpt_error *err)
{
    size_t count = 0;
    const ckpt_str *first = NULL;
    char name[300];
    for (size_t i = 0; i < d->index->tensor_count; i++)
        if (is_bucket(d->index->tensors[i].info.name) && count++ == 0)
            first = &d->index->tensors[i].info.name;
    if (!count)
        return CKPT_OK;
    bool ok = ckpt__report_add(
        d->index->findings, CKPT_SEVERITY_WARNING, "layout-unknown",
        ckpt__escape(name, sizeof name, first->data, first->size),
        "load it with Megatron-LM in the sizes that wrote it (tensor, pipeline and data parallel), and save it with "
        "--dist-ckpt-optim-fully-reshardable",
        "%zu tensors of the optimizer are flat buffers, whose parameters' names, order and padding are in no file "
        "(dp_reshardable): they stay as they are, under their own keys",
        count);
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

/* "fully_sharded_model_space", in the optimizer's values or in those about all. */
static bool is_model_space(const ckpt_value *root)
{
    const ckpt_value *content = ckpt_value_get(root, "content_metadata"),
                     *optimizer = ckpt_value_get(root, "optimizer");
    const ckpt_value *says[] = {content ? ckpt_value_get(content, "distrib_optim_sharding_type") : NULL,
                                optimizer ? ckpt_value_get(optimizer, "param_state_sharding_type") : NULL};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (says[i] && says[i]->kind == CKPT_V_STR && ckpt__str_is(says[i]->text, "fully_sharded_model_space"))
            return true;
    return false;
}

/* The arguments say so where Megatron-LM wrote it; megatron-core alone writes none. */
static ckpt_status tell_layout(ckpt__index *x, ckpt_error *err)
{
    const ckpt_value *args = ckpt_value_get(x->root, "args");
    int64_t tp = 0, pp = 0;
    if (args && !ckpt__meg_int(args, "world_size", &x->job.ranks))
        x->job.ranks = 0;
    bool told = args && ckpt__meg_int(args, "tensor_model_parallel_size", &tp) &&
                        ckpt__meg_int(args, "pipeline_model_parallel_size", &pp)
                    ? ckpt__index_tell_layout(x, "saved by %lld tensor parallel, %lld pipeline ranks", (long long)tp,
                                              (long long)pp)
                    : ckpt__index_tell_layout(x, "torch_dist: pieces of all ranks, by name");
    x->job.tp = pp > 0 ? tp : 0;
    x->job.pp = pp;
    return told ? CKPT_OK : ckpt__meg_no_memory(err);
}

static ckpt_status fill(dist *d, ckpt_error *err)
{
    ckpt__index *x = d->index;
    x->format = "torch-dist";
    for (size_t i = 0; i < x->tensor_count; i++)
        set_role(&x->tensors[i].info);
    ckpt_status status = d->unfinished ? say_unfinished(d, err) : CKPT_OK;
    if (status == CKPT_OK)
        status = read_common(d, err);
    if (status == CKPT_OK)
        status = ckpt__meg_unfold(x, &d->wholes, is_model_space(x->root), err);
    if (status == CKPT_OK)
        status = note_buckets(d, err);
    if (status == CKPT_OK)
        status = tell_layout(x, err);
    if (status == CKPT_OK)
        status = ckpt__meg_note_vocabulary(x, ckpt_value_get(x->root, "args"), err);
    return status == CKPT_OK ? ckpt__index_finish(x, err) : status;
}

ckpt_status ckpt__meg_read_dist(const ckpt__read_request *request, const ckpt__meg_place *place, ckpt__index **out,
                                ckpt_error *err)
{
    dist d = {.request = request, .place = place};
    ckpt_status status = read_backend(&d, err);
    if (status == CKPT_OK)
        status = ckpt__dcp_read_wholes(request, place->folder, &d.wholes, &d.index, err);
    if (status == CKPT_OK) {
        status = fill(&d, err);
        status = ckpt__index_refused(d.index, status, request->source->path, err);
    }
    free(d.wholes.items);
    if (status < 0)
        ckpt__index_free(d.index);
    *out = status < 0 ? NULL : d.index;
    return status;
}
