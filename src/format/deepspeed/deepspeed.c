/* format/deepspeed/deepspeed.c - the formats of the table, and the order of work. */
#include "format/deepspeed/deepspeed.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what the other files of this room ask for */

bool ckpt__ds_goes_on(const ckpt__ds *d)
{
    return ckpt__survey_goes_on(d->reader.request);
}

ckpt_status ckpt__ds_lack(const ckpt__ds *d, const char *name, ckpt_status status, const ckpt_error *why,
                          ckpt_error *err)
{
    return ckpt__survey_lack(d->reader.request, ckpt__ds_index(d)->findings, name, status, why, err);
}

ckpt_status ckpt__ds_read(ckpt__ds *d, const char *name, const ckpt_value **root, ckpt_error *err)
{
    uint32_t file;
    bool sorted;
    ckpt__index *part = NULL;
    *root = NULL;
    ckpt_status status = ckpt__source_add(d->reader.request->source, name, &file, err);
    if (status == CKPT_OK)
        status = ckpt__folder_part(&d->reader, file, &part, &sorted, err);
    if (status < 0)
        return status;
    status = ckpt__ds_check_name(name, part->archive, err);
    if (status < 0) {
        ckpt__index_free(part);
        return status;
    }
    const ckpt_value *own = part->root;
    status = ckpt__folder_absorb(&d->reader, part, name, false, err);
    *root = status == CKPT_OK ? own : NULL;
    return status == CKPT_OK && !own ? ckpt__fail(err, CKPT_E_FORMAT, name, "it holds nothing") : status;
}

/* ---- files beside the tag: of the HF Trainer, of accelerate */

static bool is_beside(const ckpt__member *m)
{
    static const ckpt__part parts[] = {CKPT__PART_SCHEDULER, CKPT__PART_SCALER, CKPT__PART_SAMPLER,      CKPT__PART_RNG,
                                       CKPT__PART_CUSTOM,    CKPT__PART_ARGS,   CKPT__PART_TRAINER_STATE};
    for (size_t i = 0; m->exact && i < sizeof parts / sizeof *parts; i++)
        if (m->part == parts[i])
            return true;
    return false;
}

/* Two ranks' files have tensors of one name: the file's stands before it. */
static ckpt_status put_file_before(ckpt__ds *d, size_t first, const char *file, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    for (size_t i = first; i < x->tensor_count; i++) {
        ckpt_tensor_info *info = &x->tensors[i].info;
        ckpt_key *keys = ckpt__arena_array(x->arena, info->path.count + 1, sizeof *keys);
        ckpt_str name = ckpt__arena_join(x->arena, ckpt__s(file), ckpt__s("."), info->name),
                 own = ckpt__arena_str(x->arena, file, strlen(file));
        if (!keys || !name.data || !own.data)
            return ckpt__ds_no_memory(err);
        keys[0] = (ckpt_key){.text = own};
        for (size_t k = 0; k < info->path.count; k++)
            keys[k + 1] = info->path.keys[k];
        info->name = name;
        info->path = (ckpt_path){keys, info->path.count + 1};
    }
    return CKPT_OK;
}

static ckpt_status read_beside(ckpt__ds *d, ckpt_error *err)
{
    ckpt__folder f;
    ckpt__folder_reader side = {.request = d->reader.request, .index = d->reader.index};
    if (!*d->below)
        return CKPT_OK;
    ckpt_status status = ckpt__folder_look(d->reader.request->source, &f, err);
    for (size_t i = 0; status == CKPT_OK && i < f.count; i++) {
        const size_t first = ckpt__ds_index(d)->tensor_count;
        if (!is_beside(&f.members[i]))
            continue;
        status = ckpt__folder_member(&side, &f, &f.members[i], err);
        if (status == CKPT_OK)
            status = put_file_before(d, first, f.members[i].name, err);
    }
    ckpt__folder_free(&f);
    d->beside = side.entries;
    d->beside_count = side.entry_count;
    return status;
}

/* ---- reading */

static ckpt_status refuse(const ckpt__ds *d, const ckpt__ds_tag *t, ckpt_error *err)
{
    if (t->layers || t->experts)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, d->label,
            "this is a checkpoint of DeepSpeed with %s: %zu files of layers and %zu of experts (%s). Its "
            "parameters are in files of their own, which are not read as one model: each file opens alone, and "
            "engine.load_checkpoint(DIR) loads all",
            t->experts ? "experts" : "a pipeline", t->layers, t->experts, d->below);
    if (t->highest_mp > 0)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, d->label,
            "this is a checkpoint of DeepSpeed with %lld model parallel ranks (mp_rank_%02lld_...): how the program "
            "divides its tensors among them is in no file. engine.load_checkpoint(DIR) loads it with as many ranks",
            (long long)t->highest_mp + 1, (long long)t->highest_mp);
    return CKPT_OK;
}

static ckpt_status read_model(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    const char *name = tag->plain;
    ckpt_status status = CKPT_OK;
    for (size_t r = 0; !name && r < tag->capacity; r++)
        name = tag->model[r];
    if (!name)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, d->label,
            "%smp_rank_00_model_states.pt is missing, with the model and the shapes of all parameters. Copy it from "
            "where it was saved, or take another checkpoint",
            d->below);
    d->model.name = name;
    ckpt_error why = CKPT_ERROR_INIT;
    status = ckpt__ds_read(d, name, &d->model.root, &why);
    if (status == CKPT_E_FORMAT) /* it has the name of one, and is none: cut to nothing, mostly */
        status = ckpt__fail(err, CKPT_E_DAMAGED, name, "%s", why.message);
    else if (status < 0 && err)
        *err = why;
    if (status == CKPT_OK && d->model.root->kind != CKPT_V_DICT)
        status =
            ckpt__fail(err, CKPT_E_FORMAT, name, "it is not a dict, where a model's file of DeepSpeed is expected");
    d->model.there = status == CKPT_OK;
    return status;
}

/* The findings go with what could not be read: the error says of the first file what is wrong with it. */
static ckpt_status none_is_read(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    const ckpt_value *root;
    const char *name = NULL;
    for (int64_t r = 0; !name && r <= tag->highest; r++)
        name = tag->optim[r];
    const ckpt_status status = name ? ckpt__ds_read(d, name, &root, &why) : CKPT_OK;
    return ckpt__fail(err, status == CKPT_E_MISMATCH ? status : CKPT_E_DAMAGED, d->label,
                      "no file of the optimizer can be read, and stage 3 has the weights there: %s%s%s",
                      name ? name : "", status < 0 ? ": " : "", status < 0 ? why.message : "");
}

static ckpt_status read_zero(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    ckpt_status status = ckpt__ds_read_ranks(d, tag, err);
    if (status == CKPT_OK && !d->first) { /* all are damaged, which was said: the weights are left */
        d->stage = tag->models ? 2 : 3;
        return d->stage == 2 ? ckpt__ds_weights(d, err) : none_is_read(d, tag, err);
    }
    if (status == CKPT_OK)
        status = ckpt__ds_lay_out(d, err);
    if (status == CKPT_OK)
        status = ckpt__ds_check_doubles(d, err);
    if (status == CKPT_OK)
        status = ckpt__ds_check_saves(d, err);
    if (status == CKPT_OK && d->stage == 3)
        status = ckpt__ds_read_models(d, tag, err);
    if (status == CKPT_OK)
        status = ckpt__ds_weights(d, err);
    return status == CKPT_OK ? ckpt__ds_states_fill(d, err) : status;
}

/* DeepSpeed 0.18.1 and 0.18.2 take the optimizer of bf16 without ZeRO for that configuration (BFLOAT16 and DDP_BFLOAT16 are one text there), and
 * save its state nowhere: the model's file says None of it, and the ranks have no files. */
static bool wrote_none(const ckpt_value *model, int64_t stage)
{
    const ckpt_value *config = ckpt_value_get(model, "ds_config"), *own = ckpt_value_get(model, "optimizer"),
                     *version = ckpt_value_get(model, "ds_version"),
                     *enabled = ckpt_value_get(ckpt_value_get(config, "bf16"), "enabled"),
                     *added = ckpt_value_get(ckpt_value_get(config, "data_types"), "grad_accum_dtype");
    enabled = enabled ? enabled : ckpt_value_get(ckpt_value_get(config, "bfloat16"), "enabled");
    return stage == 1 && own && own->kind == CKPT_V_NONE && enabled && enabled->kind == CKPT_V_BOOL &&
           enabled->boolean && added && added->kind == CKPT_V_STR &&
           (ckpt__str_is(added->text, "fp32") || ckpt__str_is(added->text, "float32")) && version &&
           version->kind == CKPT_V_STR &&
           (ckpt__str_is(version->text, "0.18.1") || ckpt__str_is(version->text, "0.18.2"));
}

/* ZeRO is on, and no file of the optimizer is there. */
static ckpt_status read_alone(ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *zero = ckpt_value_get(ckpt_value_get(d->model.root, "ds_config"), "zero_optimization");
    const int64_t stage = ckpt__ds_int(ckpt_value_get(zero, "stage"));
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    if (stage > 0 && wrote_none(d->model.root, stage)) {
        ckpt__fail(
            &why, CKPT_E_DAMAGED, d->label,
            "%s*_optim_states.pt is missing, with the masters and the optimizer's state: DeepSpeed %.*s writes none with "
            "ZeRO stage 1, bf16 and gradients in float32 (data_types.grad_accum_dtype), and cannot load this again. "
            "ckpt-migrate --salvage keeps the weights, in bfloat16; save with a newer version, or without "
            "grad_accum_dtype",
            d->below, (int)ckpt_value_get(d->model.root, "ds_version")->text.size,
            ckpt_value_get(d->model.root, "ds_version")->text.data);
        status = ckpt__ds_lack(d, d->label, CKPT_E_DAMAGED, &why, err);
    } else if (stage > 0) {
        ckpt__fail(
            &why, CKPT_E_DAMAGED, d->label,
            "%s*_optim_states.pt is missing, with the masters and the optimizer's state of all ranks (ZeRO stage %lld). Copy "
            "them from where they were saved; ckpt-migrate --salvage keeps the model's file",
            d->below, (long long)stage);
        status = ckpt__ds_lack(d, d->label, CKPT_E_DAMAGED, &why, err);
    }
    d->stage = 0;
    return status == CKPT_OK ? ckpt__ds_weights(d, err) : status;
}

static ckpt_status read_tag(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err)
{
    ckpt_status status = refuse(d, tag, err);
    if (status == CKPT_OK)
        status = read_model(d, tag, err);
    if (status == CKPT_OK && (tag->optims || tag->universal))
        status = ckpt__ds_shapes(d, d->model.root, err);
    if (status == CKPT_OK)
        status = read_beside(d, err);
    if (status < 0)
        return status;
    ckpt__ds_index(d)->format = tag->universal ? "universal" : "deepspeed";
    if (tag->universal)
        return ckpt__ds_universal(d, tag, err);
    status = tag->optims ? read_zero(d, tag, err) : read_alone(d, err);
    return status == CKPT_OK ? ckpt__ds_values(d, d->first, d->first ? ckpt__ds_groups(d->first) : NULL, err) : status;
}

static ckpt_status tell_layout(const ckpt__ds *d, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const bool universal = strcmp(x->format, "universal") == 0;
    x->job.zero = d->stage;
    x->job.folder = ckpt__arena_str(x->arena, d->below, strlen(d->below)).data;
    x->job.frozen = d->model.root ? ckpt_value_get(d->model.root, "frozen_param_shapes") : NULL;
    x->job.shared = d->model.root ? ckpt_value_get(d->model.root, "shared_params") : NULL;
    x->job.dp = universal ? 0 : (int64_t)d->ranks;
    if (d->stage == 0 || (!d->first && d->optims))
        return CKPT_OK;
    bool told = universal ? ckpt__index_tell_layout(x, "universal, a folder for each parameter")
                          : ckpt__index_tell_layout(x, "ZeRO stage %lld over %zu data parallel rank%s",
                                                    (long long)d->stage, d->ranks, d->ranks == 1 ? "" : "s");
    return told ? CKPT_OK : ckpt__ds_no_memory(err);
}

static ckpt_status finish(ckpt__ds *d, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    ckpt_status status = tell_layout(d, err);
    if (status == CKPT_OK)
        status = ckpt__ds_keep(d, x->tensor_count, err); /* room for all */
    if (status < 0)
        return status;
    if (!(x->root = ckpt__value_dict(x->arena, d->reader.entries, d->reader.entry_count)))
        return ckpt__ds_no_memory(err);
    ckpt__ds_join_devices(d);
    status = ckpt__index_finish(x, err);
    return status == CKPT_OK ? ckpt__index_keep(x, d->keep, err) : status;
}

static void release(ckpt__ds *d)
{
    free(d->reader.entries);
    for (size_t r = 0; d->models && r < d->ranks; r++)
        free(d->models[r].fragments);
    free(d->models);
    free(d->optims);
    free(d->params);
    ckpt__hash_free(d->by_name);
    free(d->ids);
    ckpt__ds_forget_flats(d);
    free(d->flats);
    free(d->keep);
    ckpt__hash_free(d->parts);
    free(d->spans);
    free(d->beside);
    free(d->numbers);
}

/* Without ZeRO the model's file has the optimizer's state too, as torch keeps it: it is a file of torch then, and *out its index.
 * NULL: it is none such. */
static ckpt_status read_plain(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt__index **out, ckpt_error *err)
{
    ckpt__read_request request = *d->reader.request;
    *out = NULL;
    if (!tag->plain || tag->optims || tag->universal || tag->layers || tag->experts || tag->highest_mp > 0)
        return CKPT_OK;
    ckpt_status status = ckpt__source_add(request.source, tag->plain, &request.file, err);
    if (status == CKPT_OK)
        status = request.members->read(&request, NULL, out, err);
    if (status < 0)
        return status;
    const ckpt_value *optimizer = ckpt_value_get((*out)->root, "optimizer");
    bool whole = optimizer && optimizer->kind == CKPT_V_DICT;
    const ckpt__job *job = &ckpt__ds_index(d)->job;
    (*out)->job.whole_model = whole;
    (*out)->job.latest = job->latest;
    (*out)->job.beside = job->beside;
    (*out)->job.inside_tag = job->inside_tag;
    if (whole && job->tag && !((*out)->job.tag = ckpt__arena_copy((*out)->arena, job->tag, strlen(job->tag)))) {
        ckpt__index_free(*out);
        *out = NULL;
        return ckpt__ds_no_memory(err);
    }
    if (whole && !ckpt__report_merge((*out)->findings, ckpt__ds_index(d)->findings))
        status = ckpt__ds_no_memory(err);
    if (status == CKPT_OK && whole)
        return CKPT_OK;
    ckpt__index_free(*out);
    *out = NULL;
    return status;
}

ckpt_status ckpt__ds_read_at(const ckpt__read_request *request, const char *below, ckpt__index **out, ckpt_error *err)
{
    char label[256];
    ckpt__ds_tag tag = {0};
    ckpt__ds d = {.reader = {.request = request}, .label = label};
    ckpt__escape(label, sizeof label, request->source->path, strlen(request->source->path));
    if (!(d.reader.index = ckpt__index_new(ckpt__known_limit(0, true))))
        return ckpt__ds_no_memory(err);
    d.reader.index->kind = "directory";
    d.reader.index->format = "deepspeed";
    d.below = below;
    ckpt_status status = below ? CKPT_OK : ckpt__ds_find_below(&d, err);
    if (status == CKPT_OK)
        status = ckpt__ds_look(request->source, d.below, d.reader.index->arena, &tag, err);
    ckpt__index *plain = NULL;
    if (status == CKPT_OK)
        status = read_plain(&d, &tag, &plain, err);
    if (status == CKPT_OK && !plain)
        status = read_tag(&d, &tag, err);
    if (status == CKPT_OK && !plain)
        status = finish(&d, err);
    if (!below)
        status = ckpt__ds_say_whole(&d, status, err);
    ckpt__ds_tag_free(&tag);
    release(&d);
    status = ckpt__index_refused(d.reader.index, status, label, err);
    if (status < 0 || plain)
        ckpt__index_free(d.reader.index);
    if (status == CKPT_OK)
        *out = plain ? plain : d.reader.index;
    return status;
}

static ckpt_status read_directory(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    char label[256];
    if (request->file == CKPT__WHOLE_DIRECTORY)
        return ckpt__ds_read_at(request, NULL, out, err);
    ckpt__escape(label, sizeof label, request->source->path, strlen(request->source->path));
    return ckpt__fail(err, CKPT_E_FORMAT, label, "it is a file, where a directory of DeepSpeed is expected");
}

static bool owns(const char *name)
{
    int64_t dp, mp;
    return ckpt__ds_kind_of(name, &dp, &mp) != CKPT__DS_NOTHING || strcmp(name, "latest") == 0 ||
           strcmp(name, "latest_universal") == 0 || strcmp(name, "zero_to_fp32.py") == 0;
}

const ckpt__format ckpt__format_deepspeed = {
    .name = "deepspeed",
    .bid = ckpt__ds_bid,
    .read = read_directory,
    .family = CKPT__FAMILY_DEEPSPEED,
    .sharded = CKPT__SHARDED_DEEPSPEED,
    .canonical = true,
    .own_loader = true,
    .no_python =
        "engine.load_checkpoint(DIR) reads this, with as many ranks as saved it. No function that reads a file does. ckpt-migrate --to torch makes a file of the whole model and optimizer, for which there is a resume in Python; "
        "in C there is one for this",
    .joins_files = true,
    .owns = owns,
};

/* The other formats' bids leave it out: the reader is the same, and says which of the two it is. */
static int no_bid(const ckpt__probe *probe)
{
    (void)probe;
    return 0;
}

const ckpt__format ckpt__format_universal = {
    .name = "universal",
    .bid = no_bid,
    .read = read_directory,
    .family = CKPT__FAMILY_DEEPSPEED,
    .sharded = CKPT__SHARDED_UNIVERSAL,
    .canonical = true,
    .own_loader = true,
    .no_python =
        "engine.load_checkpoint(DIR) reads this, with \"checkpoint\": {\"load_universal\": true} in its configuration. No function that reads a file does. ckpt-migrate --to torch makes a file of the whole model and optimizer, for which there "
        "is a resume in Python; in C there is one for this",
    .joins_files = true,
    .owns = owns,
};
