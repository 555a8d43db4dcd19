/* format/folder/folder.c - a directory of files that are one checkpoint: each is read by its own format, and all become one
 * index, whose value tree is {file name: what is in it}. */
#include "format/dcp/read.h"
#include "format/folder/folder.h"
#include "format/native/json_values.h"
#include "format/native/native.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t json_max = (uint64_t)64 << 20;

static const char *const formats[] = {[CKPT__LAYOUT_NONE] = "",
                                      [CKPT__LAYOUT_REFUSED] = "",
                                      [CKPT__LAYOUT_HF] = "hf",
                                      [CKPT__LAYOUT_PEFT] = "peft",
                                      [CKPT__LAYOUT_ACCELERATE] = "accelerate",
                                      [CKPT__LAYOUT_HF_TRAINER] = "hf-trainer",
                                      [CKPT__LAYOUT_FOLDER] = "folder"};

/* ---- one member */

ckpt_status ckpt__folder_put(ckpt__folder_reader *r, const char *name, const ckpt_value *value, ckpt_error *err)
{
    ckpt_value *key = ckpt__value_str(r->index->arena, name, strlen(name));
    if (!key || !ckpt__grow(&r->entries, &r->entry_capacity, r->entry_count + 1, sizeof *r->entries))
        return ckpt__fail_memory(err, "the files of a checkpoint", r->entry_count);
    r->entries[r->entry_count++] = (ckpt_entry){key, value};
    return CKPT_OK;
}

/* A flat file's tensors lie in a dict of their names, as in a torch file, and what was its root beside them. */
static ckpt_status make_dict(ckpt__index *x, ckpt_error *err)
{
    size_t more = x->root && x->root->kind == CKPT_V_DICT ? x->root->entry_count : 0;
    ckpt_entry *entries = ckpt__arena_array(x->arena, x->tensor_count + more + 1, sizeof *entries);
    ckpt_value *dict = entries ? ckpt__value_new(x->arena, CKPT_V_DICT) : NULL;
    if (!dict)
        return ckpt__fail_memory(err, "tensors", x->tensor_count);
    for (size_t i = 0; i < x->tensor_count; i++) {
        ckpt_value *key = ckpt__value_new(x->arena, CKPT_V_STR), *value = ckpt__value_new(x->arena, CKPT_V_TENSOR);
        if (!key || !value)
            return ckpt__fail_memory(err, "tensors", x->tensor_count);
        key->text = x->tensors[i].info.name;
        value->tensor = i;
        entries[i] = (ckpt_entry){key, value};
    }
    for (size_t i = 0; i < more; i++)
        entries[x->tensor_count + i] = x->root->entries[i];
    dict->entries = entries;
    dict->entry_count = x->tensor_count + more;
    x->root = dict;
    return CKPT_OK;
}

ckpt_status ckpt__folder_part(ckpt__folder_reader *r, uint32_t file, ckpt__index **part, bool *sorted, ckpt_error *err)
{
    char label[256];
    ckpt__read_request request = {.source = r->request->source,
                                  .file = file,
                                  .salvage = r->request->salvage,
                                  .arena = r->index->arena,
                                  .members = r->request->members};
    const ckpt__format *format;
    *part = NULL;
    *sorted = false;
    ckpt__arena_allow(r->index->arena, ckpt__known_limit(request.source->files[file].size, true));
    const bool ready = ckpt__ahead_take(r->ahead, file, part);
    ckpt_status status = ready ? CKPT_OK : request.members->choose(&request, &format, err);
    if (status == CKPT_OK && !ready && format == &ckpt__format_hf) /* one that names itself would have no end */
        return ckpt__fail(err, CKPT_E_FORMAT, ckpt__source_label(request.source, file, label, sizeof label),
                          "it is an index of shards, where a file of tensors is expected");
    if (status == CKPT_OK && !ready)
        status = request.members->read(&request, NULL, part, err);
    if (status < 0) {
        ckpt__st_blame(err, ckpt__source_label(request.source, file, label, sizeof label));
        return status;
    }
    if (strcmp((*part)->format, "safetensors") == 0 || strcmp((*part)->format, "ckpt") == 0) {
        *sorted = strcmp((*part)->format, "safetensors") == 0;
        status = make_dict(*part, err);
    }
    if (status < 0) {
        ckpt__index_free(*part);
        *part = NULL;
    }
    return status;
}

ckpt_status ckpt__folder_findings(ckpt__folder_reader *r, const ckpt__index *part, const char *name, ckpt_error *err)
{
    for (size_t i = 0; i < ckpt_report_count(part->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(part->findings, i);
        const char *whose = f->file[0] ? f->file : name; /* of a folder's, one of its files */
        if (!ckpt__report_repeat(r->index->findings, f, f->severity, f->code) ||
            !ckpt__report_detail(r->index->findings, whose, f->from, f->to, f->nbytes))
            return ckpt__fail_memory(err, "findings", 0);
    }
    return CKPT_OK;
}

ckpt_status ckpt__folder_absorb(ckpt__folder_reader *r, ckpt__index *part, const char *name, bool sorted,
                                ckpt_error *err)
{
    ckpt_str file = ckpt__arena_str(r->index->arena, name, strlen(name));
    size_t first = r->index->tensor_count;
    ckpt_status status = file.data ? ckpt__folder_findings(r, part, name, err) : ckpt__fail_memory(err, name, 0);
    if (status < 0) {
        ckpt__index_free(part);
        return status;
    }
    ckpt_report_clear(part->findings);
    status = ckpt__index_absorb(r->index, part, file, err);
    for (size_t i = first; status == CKPT_OK && i < r->index->tensor_count; i++)
        r->index->tensors[i].sorted = sorted;
    return status;
}

static ckpt_status read_json(ckpt__folder_reader *r, uint32_t file, const char *name, ckpt_error *err)
{
    char label[256];
    ckpt__buf text = {0};
    const ckpt_value *value;
    ckpt__source_label(r->request->source, file, label, sizeof label);
    ckpt_status status = ckpt__source_slurp(r->request->source, file, json_max, &text, err);
    ckpt__arena_allow(r->index->arena, ckpt__known_limit(text.size, true));
    if (status == CKPT_OK)
        status = ckpt__json_values(text.data, text.size, label, r->index->arena, &value, err);
    ckpt__buf_free(&text);
    if (status < 0 && err && !err->object[0])
        ckpt__error_object(err, label);
    return status == CKPT_OK ? ckpt__folder_put(r, name, value, err) : status;
}

/* A trainer's state and its arguments differ from node to node in what they say of the node (is_world_process_zero,
 * local_rank): the first counts, and its step is compared later. */
static ckpt_status open_member(ckpt__folder_reader *r, const ckpt__member *m, uint32_t *file, ckpt_error *err)
{
    bool own = m->part == CKPT__PART_TRAINER_STATE || m->part == CKPT__PART_ARGS;
    return own ? ckpt__source_add_at(r->request->source, m->root, m->name, file, err)
               : ckpt__source_add(r->request->source, m->name, file, err);
}

static bool has_part(const ckpt__folder *f, ckpt__part part)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->members[i].read && f->members[i].part == part)
            return true;
    return false;
}

/* Does the loader of this layout go on where the file cannot be read? accelerate 1.15 (checkpointing.py) passes over every
 * error of the random states; the Trainer of transformers 5.23 does not read training_args.bin, and reads optimizer.pt and
 * scheduler.pt only where both are there. */
static bool loader_goes_on(const ckpt__folder *f, const ckpt__member *m)
{
    if (f->layout == CKPT__LAYOUT_ACCELERATE)
        return m->part == CKPT__PART_RNG;
    return f->layout == CKPT__LAYOUT_HF_TRAINER &&
           (m->part == CKPT__PART_ARGS || (m->part == CKPT__PART_SCHEDULER && !has_part(f, CKPT__PART_OPTIMIZER)) ||
            (m->part == CKPT__PART_OPTIMIZER && !has_part(f, CKPT__PART_SCHEDULER)));
}

/* What cannot be read is said, and the rest goes on: of JSON always, for no tensor is in it, of all else to salvage, in a
 * survey, or where it was asked for. */
static ckpt_status give_up(ckpt__folder_reader *r, const ckpt__folder *f, const ckpt__member *m, ckpt_status status,
                           const ckpt_error *why, ckpt_error *err)
{
    bool leave = r->request->salvage || (r->request->leave_damaged && loader_goes_on(f, m));
    bool json = m->part == CKPT__PART_TRAINER_STATE || m->part == CKPT__PART_CONFIG;
    bool damage = status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_LIMIT;
    if (r->request->survey && ckpt__survey_passes(status) && !json)
        return ckpt__survey_note(r->index->findings, m->name, status, why, err);
    if ((!leave && !json) || !damage) {
        if (err)
            *err = *why;
        return status;
    }
    if (!ckpt__report_add(r->index->findings, CKPT_SEVERITY_ERROR, "member-damaged", NULL, NULL, "%s is left out: %s",
                          m->name, why->message) ||
        !ckpt__report_detail(r->index->findings, m->name, NULL, NULL, 0))
        return ckpt__fail_memory(err, "findings", 0);
    return CKPT_OK;
}

/* A distributed checkpoint in a folder: its tree stands under the folder's name. */
static ckpt_status read_distributed(ckpt__folder_reader *r, const ckpt__folder *f, const ckpt__member *m,
                                    ckpt_error *err)
{
    ckpt__read_request request = *r->request;
    ckpt__buf below = {0};
    ckpt__index *part = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__buf_printf(&below, "%s/", m->name);
    request.arena = r->index->arena;
    ckpt_status status =
        below.failed ? ckpt__fail_memory(&why, m->name, 0) : ckpt__dcp_read_folder(&request, below.data, &part, &why);
    ckpt__buf_free(&below);
    if (status < 0)
        return give_up(r, f, m, status, &why, err);
    const ckpt_value *root = part->root;
    const char *was = r->index->layout, *own = part->layout;
    if (own && !ckpt__index_tell_layout(r->index, "%s%s%s: %s", was ? was : "", was ? "; " : "", m->name, own)) {
        ckpt__index_free(part);
        return ckpt__fail_memory(err, m->name, 0);
    }
    status = ckpt__folder_absorb(r, part, m->name, false, err);
    return status == CKPT_OK ? ckpt__folder_put(r, m->name, root, err) : status;
}

ckpt_status ckpt__folder_member(ckpt__folder_reader *r, const ckpt__folder *f, const ckpt__member *m, ckpt_error *err)
{
    uint32_t file;
    ckpt__index *part = NULL;
    bool sorted;
    ckpt_error why = CKPT_ERROR_INIT;
    if (m->part == CKPT__PART_DISTRIBUTED)
        return read_distributed(r, f, m, err);
    ckpt_status status = open_member(r, m, &file, &why);
    if (status < 0) {
        if (err)
            *err = why;
        return status;
    }
    if (m->part == CKPT__PART_INDEX)
        return ckpt__hf_shards(r, file, m->name, err);
    if (m->part == CKPT__PART_TRAINER_STATE || m->part == CKPT__PART_CONFIG) {
        status = read_json(r, file, m->name, &why);
        return status < 0 ? give_up(r, f, m, status, &why, err) : CKPT_OK;
    }
    status = ckpt__folder_part(r, file, &part, &sorted, &why);
    if (status < 0)
        return give_up(r, f, m, status, &why, err);
    const ckpt_value *root = part->root;
    status = ckpt__folder_absorb(r, part, m->name, sorted, err);
    if (status < 0)
        return status;
    if (!root && !(root = ckpt__value_new(r->index->arena, CKPT_V_NONE)))
        return ckpt__fail_memory(err, m->name, 0);
    return ckpt__folder_put(r, m->name, root, err);
}

/* ---- all of them */

static ckpt_status note_ignored(const ckpt__member *m, ckpt_report *findings, ckpt_error *err)
{
    if (m->read || m->part == CKPT__PART_SHARD)
        return CKPT_OK;
    bool known = m->exact && m->part != CKPT__PART_OTHER;
    if (ckpt__report_add(
            findings, CKPT_SEVERITY_NOTE, "file-ignored", NULL, "to look at it, give the file itself", "%s",
            known ? "it is not read: another file of the directory holds the same model"
                  : "it is not read: it has the suffix of a checkpoint, but is not a part of this one by its name") &&
        ckpt__report_detail(findings, m->name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

/* What is not read; an index file all the same must be one. */
static ckpt_status pass_over(ckpt__folder_reader *r, const ckpt__member *m, ckpt_error *err)
{
    uint32_t file;
    ckpt_status status = CKPT_OK;
    if (m->part == CKPT__PART_INDEX && (status = open_member(r, m, &file, err)) == CKPT_OK)
        status = ckpt__hf_check(r, file, m->name, err);
    return status == CKPT_OK ? note_ignored(m, r->index->findings, err) : status;
}

/* torchtune keeps the optimizer, its seed and its progress apart from the model (training/checkpointing/_checkpointer.py). */
static ckpt_status note_recipe(const ckpt__folder *f, ckpt_report *findings, ckpt_error *err)
{
    const char *found = NULL;
    for (size_t i = 0; i < f->folder_count; i++)
        found = strcmp(f->folders[i], "recipe_state") == 0 ? "recipe_state/recipe_state.pt" : found;
    for (size_t i = 0; i < f->count; i++)
        found = strcmp(f->members[i].name, "recipe_state.pt") == 0 ? "recipe_state.pt" : found;
    if (!found || f->layout == CKPT__LAYOUT_FOLDER)
        return CKPT_OK;
    if (ckpt__report_add(
            findings, CKPT_SEVERITY_WARNING, "file-ignored", NULL, "to look at it, give the file itself",
            "%s is not read here: it holds the optimizer's state and the progress of this checkpoint (torchtune)",
            found) &&
        ckpt__report_detail(findings, found, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

static size_t count_shards(const ckpt__folder *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++)
        n += f->members[i].part == CKPT__PART_SHARD;
    return n;
}

static bool has_shards_only(const ckpt__folder *f)
{
    bool shard = false;
    for (size_t i = 0; i < f->count; i++) {
        ckpt__part part = f->members[i].part;
        bool model = part == CKPT__PART_INDEX || (part == CKPT__PART_MODEL && f->members[i].exact);
        if (model)
            return false;
        shard = shard || part == CKPT__PART_SHARD;
    }
    return shard;
}

static ckpt_status read_members(ckpt__folder_reader *r, const ckpt__folder *f, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (has_shards_only(f))
        status = ckpt__hf_loose_shards(r, f, err);
    for (size_t i = 0; status == CKPT_OK && i < f->count; i++)
        status =
            f->members[i].read ? ckpt__folder_member(r, f, &f->members[i], err) : pass_over(r, &f->members[i], err);
    if (status == CKPT_OK && r->bad_index && count_shards(f) > 0)
        status = ckpt__hf_loose_shards(r, f, err);
    if (status == CKPT_OK)
        status = note_recipe(f, r->index->findings, err);
    if (status == CKPT_OK)
        status = ckpt__folder_check_ranks(f, r->index->findings, err);
    return status == CKPT_OK ? ckpt__folder_check_steps(r, f, err) : status;
}

/* A file removed between the listing and its opening: a writer is at work, and the reader tries again. */
static ckpt_status read_directory(ckpt__folder_reader *r, ckpt_error *err)
{
    ckpt__folder f;
    char label[256];
    ckpt__source *s = r->request->source;
    ckpt_status status = ckpt__folder_look(s, &f, err);
    ckpt__escape(label, sizeof label, s->path, strlen(s->path));
    if (status == CKPT_OK && f.layout <= CKPT__LAYOUT_REFUSED)
        status =
            ckpt__fail(err, f.layout == CKPT__LAYOUT_REFUSED ? CKPT_E_UNSUPPORTED : CKPT_E_FORMAT, label, "%s", f.why);
    if (status == CKPT_OK)
        status = read_members(r, &f, err);
    if (status == CKPT_OK)
        r->index->format = formats[f.layout];
    ckpt__folder_free(&f);
    return status;
}

static ckpt_status read_index_file(ckpt__folder_reader *r, ckpt_error *err)
{
    ckpt_status status = ckpt__source_open_around(r->request->source, err);
    r->index->format = "hf";
    return status == CKPT_OK
               ? ckpt__hf_shards(r, r->request->file, r->request->source->files[r->request->file].name, err)
               : status;
}

static ckpt_status folder_read(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    ckpt__folder_reader r = {.request = request, .index = ckpt__index_new(ckpt__known_limit(0, false))};
    *out = NULL;
    if (!r.index)
        return ckpt__fail_memory(err, "index", 0);
    r.index->kind = "directory";
    ckpt_status status = request->file == CKPT__WHOLE_DIRECTORY ? read_directory(&r, err) : read_index_file(&r, err);
    if (status == CKPT_OK && !(r.index->root = ckpt__value_dict(r.index->arena, r.entries, r.entry_count)))
        status = ckpt__fail_memory(err, "the files of a checkpoint", r.entry_count);
    free(r.entries);
    if (status < 0) {
        status = ckpt__index_refused(r.index, status, request->source->path, err);
        ckpt__index_free(r.index);
    } else
        *out = r.index;
    return status;
}

/* ---- the formats */

static int bid_for(const ckpt__probe *probe, ckpt__folder_layout layout)
{
    ckpt__folder f;
    if (!probe->directory)
        return 0;
    bool mine = ckpt__folder_look(probe->source, &f, NULL) == CKPT_OK && f.layout == layout;
    ckpt__folder_free(&f);
    return mine ? 80 : 0;
}

/* {"metadata": ..., "weight_map": ...}, also alone. */
static int bid_hf(const ckpt__probe *probe)
{
    if (probe->directory)
        return bid_for(probe, CKPT__LAYOUT_HF);
    size_t n = probe->head_size, at = 0;
    while (at < n && memchr(" \t\r\n", probe->head[at], 4))
        at++;
    return at < n && probe->head[at] == '{' && memmem(probe->head, n, "\"weight_map\"", 12) ? 90 : 0;
}

static int bid_hf_trainer(const ckpt__probe *probe)
{
    return bid_for(probe, CKPT__LAYOUT_HF_TRAINER);
}

static int bid_accelerate(const ckpt__probe *probe)
{
    return bid_for(probe, CKPT__LAYOUT_ACCELERATE);
}

static int bid_peft(const ckpt__probe *probe)
{
    return bid_for(probe, CKPT__LAYOUT_PEFT);
}

static int bid_folder(const ckpt__probe *probe)
{
    return bid_for(probe, CKPT__LAYOUT_FOLDER);
}

const ckpt__format ckpt__format_hf = {
    .name = "hf",
    .bid = bid_hf,
    .read = folder_read,
    .family = CKPT__FAMILY_FOLDER,
    .of_one_model = true,
    .pretrained = true,
};
const ckpt__format ckpt__format_accelerate = {
    .name = "accelerate",
    .bid = bid_accelerate,
    .read = folder_read,
    .family = CKPT__FAMILY_FOLDER,
    .of_one_model = true,
};
const ckpt__format ckpt__format_hf_trainer = {
    .name = "hf-trainer",
    .bid = bid_hf_trainer,
    .read = folder_read,
    .family = CKPT__FAMILY_FOLDER,
    .of_one_model = true,
};
const ckpt__format ckpt__format_peft = {
    .name = "peft",
    .bid = bid_peft,
    .read = folder_read,
    .family = CKPT__FAMILY_FOLDER,
    .of_one_model = true,
    .adapter = true,
};
const ckpt__format ckpt__format_folder = {
    .name = "folder",
    .bid = bid_folder,
    .read = folder_read,
    .family = CKPT__FAMILY_FOLDER,
    .loose_files = true,
};
