/* format/megatron/megatron.c - the formats of Megatron in the table: by which names a directory is known, which step of it is read. */
#include "format/megatron/megatron.h"
#include "format/safetensors.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char TRACKER[] = "latest_checkpointed_iteration.txt";

ckpt_status ckpt__meg_no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "a checkpoint of Megatron", 0);
}

/* ---- names */

/* What a directory has, by names alone. */
typedef struct names {
    bool list, records, common, json, ranks, tracker, release, deepspeed;
    int64_t *steps; /* heap: numbers of iter_<number> */
    size_t count, capacity;
} names;

/* "iter_0000005": 5. Megatron writes seven digits at least. */
static bool step_of(const char *name, int64_t *step)
{
    char own[40];
    size_t digits = ckpt__begins(name, "iter_") ? strspn(name + 5, "0123456789") : 0;
    if (digits < 7 || digits > 18 || name[5 + digits] || !ckpt__parse_i64(name + 5, digits, step))
        return false;
    snprintf(own, sizeof own, "iter_%07lld", (long long)*step);
    return strcmp(own, name) == 0;
}

static bool is_rank_folder(const char *name)
{
    return ckpt__begins(name, "mp_rank_") && strspn(name + 8, "0123456789") > 0;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    names *n = ctx;
    int64_t step;
    (void)root;
    if (!folder) {
        n->list |= strcmp(name, ".metadata") == 0;
        n->records |= ckpt__ends(name, ".distcp");
        n->common |= strcmp(name, "common.pt") == 0;
        n->json |= strcmp(name, "metadata.json") == 0;
        n->tracker |= strcmp(name, TRACKER) == 0;
        return CKPT_OK;
    }
    n->ranks |= is_rank_folder(name);
    n->release |= strcmp(name, "release") == 0;
    n->deepspeed |= ckpt__begins(name, "global_step");
    if (!step_of(name, &step))
        return CKPT_OK;
    if (!ckpt__grow(&n->steps, &n->capacity, n->count + 1, sizeof *n->steps))
        return ckpt__meg_no_memory(err);
    n->steps[n->count++] = step;
    return CKPT_OK;
}

static ckpt_status look(const ckpt__source *source, const char *folder, names *n, ckpt_error *err)
{
    memset(n, 0, sizeof *n);
    return ckpt__source_each(source, folder, see, n, err);
}

/* torch-dist has common.pt, and a list or records. */
static bool has_dist(const names *n)
{
    return n->common && (n->list || n->records || n->json);
}

static void set_folder(ckpt__meg_place *place, int64_t step)
{
    place->iteration = step;
    if (step < 0)
        snprintf(place->folder, sizeof place->folder, "release/");
    else
        snprintf(place->folder, sizeof place->folder, "iter_%07lld/", (long long)step);
}

/* Which of the two layouts a step's folder has. What is neither by its names is looked for as the older one, which says what is
 * missing. */
static ckpt_status look_below(const ckpt__source *source, ckpt__meg_place *place, ckpt_error *err)
{
    names n;
    ckpt_status status = look(source, place->folder, &n, err);
    place->dist = n.list || n.records || n.common || n.json;
    free(n.steps);
    return status;
}

static int64_t highest(const names *n)
{
    int64_t most = -1;
    for (size_t i = 0; i < n->count; i++)
        most = n->steps[i] > most ? n->steps[i] : most;
    return most;
}

/* ---- bids. Megatron-DeepSpeed writes the same text beside DeepSpeed's own folders. */

static int bid_for(const ckpt__probe *probe, bool dist)
{
    enum { LIKELY = 88 };
    names n = {0};
    ckpt__meg_place place = {.iteration = -1};
    bool is = false;
    if (!probe->directory || look(probe->source, "", &n, NULL) < 0) {
        free(n.steps);
        return 0;
    }
    if (has_dist(&n) || n.ranks) {
        is = dist == has_dist(&n);
    } else if (n.tracker && (n.count || n.release || !n.deepspeed)) {
        set_folder(&place, n.count ? highest(&n) : -1);
        is = look_below(probe->source, &place, NULL) == CKPT_OK && place.dist == dist;
    }
    free(n.steps);
    return is ? LIKELY : 0;
}

static int bid_dist(const ckpt__probe *probe)
{
    return bid_for(probe, true);
}

static int bid_ranks(const ckpt__probe *probe)
{
    return bid_for(probe, false);
}

/* ---- which step */

/* What one read says before there is an index. */
typedef struct choice {
    const ckpt__read_request *request;
    const char *label; /* of the directory */
    names names;
    ckpt_report *findings; /* owned */
} choice;

static bool has_step(const names *n, int64_t step)
{
    bool has = step < 0 && n->release;
    for (size_t i = 0; i < n->count; i++)
        has |= n->steps[i] == step;
    return has;
}

/* *step: -1 for "release". */
static ckpt_status read_tracker(const choice *c, int64_t *step, ckpt_error *err)
{
    uint32_t file;
    ckpt__buf text = {0};
    char shown[80], label[256];
    ckpt_status status = ckpt__source_add(c->request->source, TRACKER, &file, err);
    if (status == CKPT_OK)
        status = ckpt__source_slurp(c->request->source, file, 4096, &text, err);
    if (status == CKPT_OK) {
        const char *at = text.data ? text.data : "";
        size_t n = text.size;
        while (n && strchr(" \t\r\n", at[n - 1]))
            n--;
        *step = -1;
        if (!(n == 7 && memcmp(at, "release", 7) == 0) && (n > 18 || !ckpt__parse_i64(at, n, step) || *step < 0))
            status = ckpt__fail(
                err, CKPT_E_FORMAT, ckpt__source_label(c->request->source, file, label, sizeof label),
                "it says '%s', where the number of a step or the word release is expected. Give the step's own "
                "directory (iter_...)",
                ckpt__escape(shown, sizeof shown, at, n));
    }
    ckpt__buf_free(&text);
    return status;
}

/* The step that was written last is not there: an error, or the newest one before it where reading goes on. */
static ckpt_status lack_step(choice *c, ckpt__meg_place *place, ckpt_error *err)
{
    char text[400], others[80] = "it has no other step";
    int64_t best = -1;
    for (size_t i = 0; i < c->names.count; i++)
        if (c->names.steps[i] > best && (place->iteration < 0 || c->names.steps[i] < place->iteration))
            best = c->names.steps[i];
    if (best >= 0)
        snprintf(others, sizeof others, "there is the step before it, iter_%07lld", (long long)best);
    snprintf(
        text, sizeof text,
        "%s names %s as the step that was written last, which is missing, with all that it had; %s. Copy it from where "
        "it was saved, or give the directory of another step",
        TRACKER, place->folder, others);
    if (!ckpt__survey_goes_on(c->request) || best < 0)
        return ckpt__fail(err, CKPT_E_DAMAGED, c->label, "%s", text);
    set_folder(place, best);
    return ckpt__report_add(c->findings, CKPT_SEVERITY_ERROR, "incomplete-step", NULL, NULL, "%s", text)
               ? CKPT_OK
               : ckpt__meg_no_memory(err);
}

/* The text is written when a step is whole; a later step is one that was not. */
static ckpt_status say_others(choice *c, const ckpt__meg_place *place, ckpt_error *err)
{
    size_t earlier = 0;
    int64_t before = -1;
    bool ok = true;
    for (size_t i = 0; ok && i < c->names.count; i++) {
        const int64_t step = c->names.steps[i];
        if (place->iteration >= 0 && step > place->iteration)
            ok = ckpt__report_add(c->findings, CKPT_SEVERITY_WARNING, "incomplete-step", NULL, NULL,
                                  "step %lld is not whole, as %s names step %lld: it is skipped", (long long)step,
                                  TRACKER, (long long)place->iteration);
        else if (step != place->iteration) {
            earlier++;
            before = step > before ? step : before;
        }
    }
    if (ok && earlier)
        ok =
            ckpt__report_add(c->findings, CKPT_SEVERITY_NOTE, "file-ignored", NULL, "to look at it, give its directory",
                             "there are %zu other steps, the newest of them iter_%07lld; %s is read", earlier,
                             (long long)before, place->folder);
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

static ckpt_status choose(choice *c, ckpt__meg_place *place, ckpt_error *err)
{
    int64_t step;
    *place = (ckpt__meg_place){.iteration = -1};
    ckpt_status status = look(c->request->source, "", &c->names, err);
    if (status < 0)
        return status;
    if (has_dist(&c->names) || c->names.ranks || !c->names.tracker) {
        place->dist = has_dist(&c->names) || (!c->names.ranks && (c->names.list || c->names.records));
        return CKPT_OK;
    }
    status = read_tracker(c, &step, err);
    if (status < 0)
        return status;
    set_folder(place, step);
    if (!has_step(&c->names, step))
        status = lack_step(c, place, err);
    if (status == CKPT_OK)
        status = say_others(c, place, err);
    return status == CKPT_OK ? look_below(c->request->source, place, err) : status;
}

static ckpt_status read_megatron(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    char label[256];
    ckpt__meg_place place;
    choice c = {.request = request, .label = label};
    *out = NULL;
    ckpt__escape(label, sizeof label, request->source->path, strlen(request->source->path));
    if (request->file != CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a file; a checkpoint of Megatron is a directory");
    c.findings = ckpt_report_new();
    ckpt_status status = c.findings ? choose(&c, &place, err) : ckpt__meg_no_memory(err);
    if (status == CKPT_OK)
        status = place.dist ? ckpt__meg_read_dist(request, &place, out, err)
                            : ckpt__meg_read_ranks(request, &place, out, err);
    if (status == CKPT_OK && !ckpt__report_merge((*out)->findings, c.findings)) {
        ckpt__index_free(*out);
        *out = NULL;
        status = ckpt__meg_no_memory(err);
    }
    ckpt_report_free(c.findings);
    free(c.names.steps);
    return status;
}

/* ---- what both layouts need */

ckpt_status ckpt__meg_part(const ckpt__read_request *request, const char *name, ckpt__index *into, ckpt__index **part,
                           ckpt_error *err)
{
    char label[256];
    ckpt__read_request own = {
        .source = request->source, .salvage = request->salvage, .arena = into->arena, .members = request->members};
    *part = NULL;
    ckpt_status status = ckpt__source_add(own.source, name, &own.file, err);
    if (status < 0)
        return status;
    ckpt__arena_allow(into->arena, ckpt__known_limit(own.source->files[own.file].size, true));
    status = request->members->read(&own, NULL, part, err);
    if (status < 0)
        ckpt__st_blame(err, ckpt__source_label(own.source, own.file, label, sizeof label));
    return status;
}

ckpt_status ckpt__meg_absorb(ckpt__index *into, ckpt__index *part, const char *name, ckpt_error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < ckpt_report_count(part->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(part->findings, i);
        ok = ckpt__report_repeat(into->findings, f, f->severity, f->code) &&
             ckpt__report_detail(into->findings, name, f->from, f->to, f->nbytes);
    }
    if (!ok) {
        ckpt__index_free(part);
        return ckpt__meg_no_memory(err);
    }
    ckpt_report_clear(part->findings);
    return ckpt__index_absorb(into, part, (ckpt_str){NULL, 0}, err);
}

bool ckpt__meg_int(const ckpt_value *dict, const char *key, int64_t *out)
{
    const ckpt_value *v = dict ? ckpt_value_get(dict, key) : NULL;
    *out = v && v->kind == CKPT_V_INT ? v->integer : 0;
    return v && v->kind == CKPT_V_INT;
}

ckpt_status ckpt__meg_note_vocabulary(ckpt__index *x, const ckpt_value *args, ckpt_error *err)
{
    int64_t true_size, padded;
    size_t count = 0, first = 0;
    char name[300];
    if (!ckpt__meg_int(args, "vocab_size", &true_size) || !ckpt__meg_int(args, "padded_vocab_size", &padded) ||
        true_size <= 0 || padded <= true_size)
        return CKPT_OK;
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt_tensor_info *t = &x->tensors[i].info;
        bool rows = t->role == CKPT_ROLE_PARAM && t->ndim == 2 && t->shape && t->shape[0] == padded &&
                    (ckpt__str_holds(t->name, "embedding") || ckpt__str_holds(t->name, "output_layer"));
        if (rows && count++ == 0)
            first = i;
    }
    if (!count)
        return CKPT_OK;
    const ckpt_str *own = &x->tensors[first].info.name;
    bool ok = ckpt__report_add(
        x->findings, CKPT_SEVERITY_NOTE, "vocabulary-padded", ckpt__escape(name, sizeof name, own->data, own->size),
        "a program with the true size takes the first rows",
        "the vocabulary has %lld rows, and the arguments count %lld as true: the others are padding, and are kept "
        "(%zu such parameters)",
        (long long)padded, (long long)true_size, count);
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

/* ---- the formats */

static bool owns(const char *name)
{
    return strcmp(name, TRACKER) == 0;
}

static bool owns_beside(const ckpt__index *index, const char *name)
{
    (void)index;
    return strcmp(name, "common.pt") == 0 || strcmp(name, "metadata.json") == 0;
}

#define RESUME                                                                                                         \
    "torch.load does not read this, Megatron-LM does: --load with the directory that has "                             \
    "latest_checkpointed_iteration.txt. ckpt-migrate --to torch makes a file for which there is a resume in Python; "  \
    "in C there is one for this"

/* Of megatron/training/arguments.py. */
static const ckpt__rank_size sizes[] = {
    {"world_size", CKPT_V_INT, 1},
    {"rank", CKPT_V_INT, 0},
    {"tensor_model_parallel_size", CKPT_V_INT, 1},
    {"pipeline_model_parallel_size", CKPT_V_INT, 1},
    {"transformer_pipeline_model_parallel_size", CKPT_V_INT, 1},
    {"expert_model_parallel_size", CKPT_V_INT, 1},
    {"expert_tensor_parallel_size", CKPT_V_INT, 1},
    {"context_parallel_size", CKPT_V_INT, 1},
    {"data_parallel_size", CKPT_V_INT, 1},
    {"use_distributed_optimizer", CKPT_V_BOOL, 0},
    {NULL, CKPT_V_NONE, 0},
};
static const ckpt__rank_sizes rank_sizes = {"args", sizes};

const ckpt__format ckpt__format_torch_dist = {
    .name = "torch-dist",
    .bid = bid_dist,
    .read = read_megatron,
    .family = CKPT__FAMILY_MEGATRON,
    .sharded = CKPT__SHARDED_TORCH_DIST,
    .canonical = true,
    .own_loader = true,
    .no_python = RESUME,
    .joins_files = true,
    .has_values = true,
    .owns = owns,
    .rank_sizes = &rank_sizes,
    .owns_beside = owns_beside,
};
const ckpt__format ckpt__format_megatron = {
    .name = "megatron",
    .bid = bid_ranks,
    .read = read_megatron,
    .family = CKPT__FAMILY_MEGATRON,
    .sharded = CKPT__SHARDED_MEGATRON,
    .canonical = true,
    .own_loader = true,
    .no_python = RESUME,
    .joins_files = true,
    .owns = owns,
    .rank_sizes = &rank_sizes,
};
