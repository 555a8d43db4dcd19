/* doctor/doctor.c - will it resume? Gathers facts (where each tensor would come back, what the saved groups say); answer.c
 * looks each up in the rows. */
#include "doctor/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include "doctor/text.h"
#include "base/first_sizes.h"
#include "anatomy/producer.h"
#include "format/table.h"

static const ckpt_str none = {NULL, 0};

const char *ckpt_outcome_name(ckpt_outcome outcome)
{
    static const char *const names[] = {"unknown",       "resumes",       "resumes-differently",
                                        "fails-at-load", "fails-at-step", "weights-only"};
    return outcome >= CKPT_OUTCOME_UNKNOWN && outcome <= CKPT_OUTCOME_WEIGHTS_ONLY ? names[outcome] : "unknown";
}

unsigned ckpt__kind_bit(ckpt_optimizer_kind kind)
{
    switch (kind) {
    case CKPT_OPTIMIZER_FUSED:
        return CKPT__K_FUSED;
    case CKPT_OPTIMIZER_CAPTURABLE:
        return CKPT__K_CAPTURABLE;
    case CKPT_OPTIMIZER_FOREACH:
        return CKPT__K_FOREACH;
    case CKPT_OPTIMIZER_PLAIN:
        return CKPT__K_PLAIN;
    case CKPT_OPTIMIZER_DEFAULT:
        break;
    }
    return 0;
}

bool ckpt__is_gpu(ckpt_device d)
{
    return d.type == CKPT_DEVICE_CUDA;
}

/* The flags after the load; groups that disagree give -1. */
static void effective(ckpt__examination *p)
{
    ckpt_doctor_result *r = p->result;
    ckpt_optimizer_kind kind =
        p->options->optimizer != CKPT_OPTIMIZER_DEFAULT ? p->options->optimizer : ckpt__map_optimizer(p->map);
    r->uses_fused = r->uses_capturable = r->uses_foreach = -1;
    r->optimizer = kind;
    for (size_t i = 0; i < p->group_count; i++) {
        const ckpt__doctor_group *g = &p->groups[i];
        ckpt__flags flags = {g->fused, g->capturable, g->foreach};
        ckpt_optimizer_kind own = ckpt__kind_of_flags(flags);
        r->uses_fused = i == 0 || r->uses_fused == g->fused ? g->fused : -1;
        r->uses_capturable = i == 0 || r->uses_capturable == g->capturable ? g->capturable : -1;
        r->uses_foreach = i == 0 || r->uses_foreach == g->foreach ? g->foreach : -1;
        if (kind == CKPT_OPTIMIZER_DEFAULT)
            r->optimizer = i == 0 || r->optimizer == own ? own : CKPT_OPTIMIZER_DEFAULT;
    }
    if (p->loader->loader == CKPT_LOADER_CKPT && kind != CKPT_OPTIMIZER_DEFAULT) {
        r->uses_fused = kind == CKPT_OPTIMIZER_FUSED;
        r->uses_capturable = kind == CKPT_OPTIMIZER_CAPTURABLE;
        r->uses_foreach = kind == CKPT_OPTIMIZER_FOREACH;
    }
}

/* ---- canonical names */

/* The message of an error ends in what to do: here that is the fix. */
static void note_ambiguous(ckpt__examination *p, ckpt_error *why)
{
    char text[760], *message = why->message;
    static const char *const fixes[] = {"; state the parameters' names", "; say which one in a map file"};
    const char *fix =
        p->options->param_name_count ? NULL : "say which with source: in a map file, or with --param-names FILE";
    bool order = strstr(message, "order") != NULL;
    for (size_t i = 0; i < sizeof fixes / sizeof *fixes; i++) {
        char *at = strstr(message, fixes[i]);
        if (at) {
            *at = 0;
            fix = at + 2;
            order = order || i == 0;
        }
    }
    snprintf(text, sizeof text, "%.240s%s%.510s", why->object, *why->object ? ": " : "", message);
    ckpt__doctor_note(p, order ? CKPT__ORDER_AMBIGUOUS : CKPT__SOURCE_AMBIGUOUS, NULL, none, text, fix, NULL);
}

static ckpt_status build_canon(ckpt__examination *p, bool optional, ckpt_error *why)
{
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    hints.map = p->map;
    hints.anatomy = p->anatomy;
    hints.assume_order = p->options->assume_order;
    hints.tentative_order = p->loader->python || p->loader->loader == CKPT_LOADER_TORCH_CPP;
    hints.optional_optimizer = optional;
    if (ckpt__doctor_names_fit(p)) {
        hints.param_names = p->options->param_names;
        hints.param_name_count = p->options->param_name_count;
    }
    return ckpt__canon_build(p->index, &hints, &p->canon, p->canon_report, why);
}

/* More than one order fits: the finding says which. */
static bool note_several(ckpt__examination *p, const ckpt_error *why)
{
    const ckpt_finding *f = ckpt_report_find(p->canon_report, "order-ambiguous", NULL);
    if (!f)
        return false;
    p->several = *why;
    ckpt__doctor_note(p, CKPT__ORDER_SEVERAL, NULL, none, f->message, f->fix, NULL);
    return true;
}

static ckpt_status canonical(ckpt__examination *p)
{
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = build_canon(p, false, &why);
    if (status == CKPT_E_MISMATCH) {
        if (p->inside_job) /* which goes by names of its own */
            p->several = why;
        else if (!note_several(p, &why))
            note_ambiguous(p, &why);
        ckpt_report_clear(p->canon_report);
        status = build_canon(p, true, &why); /* what can be told without the optimizer's names */
        ckpt_report_clear(p->canon_report);
        if (status == CKPT_E_MISMATCH)
            return CKPT_OK;
    }
    if (status < 0 && p->err)
        *p->err = why;
    return status;
}

static uint64_t elements(const ckpt_tensor_info *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->ndim; d++)
        n *= (uint64_t)t->shape[d]; /* the reader has found that it fits */
    return n;
}

/* Is it state of a fused group, of as many elements as its parameter, on the CPU? Its kernel there looks at no shape (one of
 * a GPU was not run). `name` is the canonical one. */
static bool fused_takes(const ckpt__examination *p, const char *name)
{
    size_t e;
    if (!p->canon || !ckpt__hash_get(p->canon->by_name, name, strlen(name), &e) || !p->canon->entries[e].is_tensor)
        return false;
    size_t tensor = p->canon->entries[e].tensor;
    for (size_t s = 0; s < p->slot_count; s++) {
        const ckpt__doctor_slot *slot = &p->slots[s];
        for (size_t i = slot->first; i < slot->first + slot->count; i++)
            if (p->items[i].tensor == tensor)
                return p->groups[slot->group].fused == 1 && slot->param != SIZE_MAX &&
                       !ckpt__is_gpu(ckpt__doctor_home(p, slot)) &&
                       elements(&p->index->tensors[tensor].info) == elements(&p->index->tensors[slot->param].info);
    }
    return false;
}

/* State whose id is in no group does nothing: names find it where an id is text there and a number in the groups. */
static bool is_dead(const ckpt__examination *p, const char *name)
{
    size_t e;
    if (!p->loader->python || !p->canon || p->optimizer_count == 0 ||
        !ckpt__hash_get(p->canon->by_name, name, strlen(name), &e) || !p->canon->entries[e].is_tensor)
        return false;
    for (size_t i = 0; i < p->item_count; i++)
        if (p->items[i].tensor == p->canon->entries[e].tensor)
            return false;
    return true;
}

/* What canonical names and placement said already becomes doctor's own where torch makes something else of it. */
static bool own_finding(ckpt__examination *p, const ckpt_finding *f)
{
    ckpt_str tensor = *f->tensor ? ckpt__s(f->tensor) : none;
    if (strcmp(f->code, "moment-shape") == 0 && p->weights_fewer && p->loader->python)
        return true; /* which parameter it is of cannot be told */
    if (strcmp(f->code, "moment-shape") == 0 && is_dead(p, f->tensor))
        return true;
    if (strcmp(f->code, "moment-shape") == 0 && p->loader->python && fused_takes(p, f->tensor)) {
        ckpt__doctor_note(p, CKPT__MOMENT_FUSED, NULL, tensor, f->message, NULL, f->tensor);
        return true;
    }
    if (strcmp(f->code, "moment-shape") == 0 && ckpt__format_of(p->index)->bound &&
        p->loader->loader == CKPT_LOADER_CKPT) {
        ckpt__doctor_note(p, CKPT__MOMENT_SHARD, NULL, tensor, f->message, NULL, f->tensor);
        return true;
    }
    if (strcmp(f->code, "moment-shape") == 0) {
        ckpt__doctor_note(p, CKPT__MOMENT_SHAPE, NULL, tensor, f->message, NULL, f->tensor);
        return p->loader->loader != CKPT_LOADER_CKPT;
    }
    if (strcmp(f->code, "policy-breach") == 0)
        ckpt__doctor_note(p, CKPT__POLICY_BREACH, NULL, none, NULL, NULL, NULL);
    if (strcmp(f->code, "order-ambiguous") == 0) {
        note_several(p, &(ckpt_error){.status = CKPT_E_MISMATCH});
        return true;
    }
    if (strcmp(f->code, "order-unknown") == 0) {
        if (p->loader->python || p->loader->loader == CKPT_LOADER_TORCH_CPP)
            ckpt__doctor_note(p, CKPT__ORDER_AMBIGUOUS, NULL, none, f->message, f->fix, NULL);
        else
            ckpt__doctor_note(p, CKPT__UNNAMED, NULL, none, NULL, NULL, NULL);
        return p->loader->loader != CKPT_LOADER_CKPT;
    }
    return strcmp(f->code, "dead-state") == 0 || strcmp(f->code, "prefix-stripped") == 0; /* seen for itself */
}

static ckpt_status take_over(ckpt__examination *p, ckpt_report *report)
{
    for (size_t i = 0; i < ckpt_report_count(p->canon_report); i++) {
        const ckpt_finding *f = ckpt_report_get(p->canon_report, i);
        if (own_finding(p, f))
            continue;
        const char *code = strcmp(f->code, "order-unknown") == 0 ? "ambiguous-order" : f->code;
        if (!ckpt__report_repeat(report, f, f->severity, code))
            return ckpt__fail_memory(p->err, "the report", 0);
    }
    return CKPT_OK;
}

/* ---- the whole */

/* A directory of files that torch wrote: a program loads each by its name. */
static bool all_torch(const ckpt__index *index)
{
    bool all = ckpt__format_of(index)->loose_files && index->absorbed_count > 1;
    for (size_t i = 0; all && i < index->absorbed_count; i++)
        all = ckpt__format_of(index->absorbed[i])->torch_loads;
    return all;
}

/* The loaders of weights alone: safetensors reads such a file, from_pretrained a directory of Hugging Face, and DCP's reader of
 * safetensors any of those. */
static bool reads_weights(const ckpt__examination *p)
{
    const ckpt__format *format = ckpt__format_of(p->inner), *folder = ckpt__format_of(p->index);
    bool safetensors = format->weights_alone;
    for (size_t i = 0; folder->pretrained && i < p->index->tensor_count; i++)
        safetensors =
            p->index->tensors[i].info.file.data && ckpt__str_ends(p->index->tensors[i].info.file, ".safetensors");
    switch (p->loader->loader) {
    case CKPT_LOADER_SAFETENSORS:
        return safetensors;
    case CKPT_LOADER_HF:
        return folder->pretrained;
    case CKPT_LOADER_DCP_HF:
        return safetensors && ckpt__index_is_directory(p->index);
    default:
        return false;
    }
}

/* Whether the loader reads such a thing at all. */
static void check_format(ckpt__examination *p)
{
    const ckpt_value *root = p->inner->root;
    ckpt_loader loader = p->loader->loader;
    const ckpt__format *format = ckpt__format_of(p->inner);
    if (loader >= CKPT_LOADER_DCP) {
        if (!reads_weights(p))
            ckpt__doctor_note(p, CKPT__FOREIGN, NULL, none, format->name, NULL, NULL);
        return;
    }
    bool script = root && ckpt__is_scripted_class(root->class_name);
    bool file = !ckpt__index_is_directory(p->index), torch = format->torch_loads;
    bool safetensors = format->weights_alone, pickle = format->torch_raises, apart = format->own_loader;
    bool folders = loader == CKPT_LOADER_ACCELERATE || loader == CKPT_LOADER_HF_TRAINER;
    bool foreign = loader == CKPT_LOADER_TORCH_CPP   ? !torch && !all_torch(p->inner)
                   : loader == CKPT_LOADER_LIGHTNING ? safetensors || pickle
                                                     : false;
    if (loader == CKPT_LOADER_TORCH_CPP && torch && !script)
        ckpt__doctor_note(p, CKPT__NOT_AN_ARCHIVE, NULL, none, NULL, NULL, NULL);
    if ((loader == CKPT_LOADER_TORCH && pickle) || (folders && file))
        ckpt__doctor_note(p, CKPT__NOT_ITS_FORMAT, NULL, none, NULL, NULL, NULL);
    else if (folders && (apart || ckpt__format_of(p->index)->loose_files))
        ckpt__doctor_note(p, CKPT__NOT_ITS_FOLDER, NULL, none, apart ? format->name : "no layout of its own", NULL,
                          NULL);
    else if (foreign || (apart && loader != CKPT_LOADER_CKPT))
        ckpt__doctor_note(p, CKPT__FOREIGN, NULL, none, format->name, NULL, NULL);
    else if (loader == CKPT_LOADER_TORCH && safetensors)
        ckpt__doctor_note(p, CKPT__SAFETENSORS, NULL, none, NULL, NULL, NULL);
}

/* What the reader saw that torch.load raises on. */
static void check_refused(ckpt__examination *p)
{
    const ckpt_report *findings = p->index->findings;
    for (size_t i = 0; p->loader->python && i < ckpt_report_count(findings); i++) {
        const ckpt_finding *f = ckpt_report_get(findings, i);
        if (strstr(f->message, "don't know how to restore data location"))
            continue; /* a tag: what becomes of it lies with the map (no-such-device) */
        if (strcmp(f->code, "torch-refuses") == 0 &&
            !ckpt__loader_file(p->loader->skips, *f->file ? ckpt__s(f->file) : none))
            ckpt__doctor_note(p, CKPT__TORCH_REFUSES, NULL, none, f->message, NULL, NULL);
    }
}

static void check_question(ckpt__examination *p)
{
    char asked[32];
    if (p->beyond) {
        snprintf(asked, sizeof asked, "%d.%d", p->options->torch_major, p->options->torch_minor);
        ckpt__doctor_note(p, CKPT__TORCH_UNKNOWN, NULL, none, asked, NULL, NULL);
    }
    bool reads = p->optimizer_count > 0 || p->index->root != NULL;
    if (p->loader->oldest && p->version < p->loader->oldest && reads)
        ckpt__doctor_note(p, CKPT__TORCH_TOO_OLD, NULL, none, NULL, NULL, NULL);
    if (p->result->load_weights_only && p->version < CKPT__WEIGHTS_ONLY_TORCH)
        ckpt__doctor_note(p, CKPT__NO_WEIGHTS_ONLY, NULL, none, NULL, NULL, NULL);
    if (p->options->map_location && !p->loader->takes_map)
        ckpt__doctor_note(p, CKPT__MAP_IGNORED, NULL, none,
                          p->loader->several == CKPT__TO_RANK
                              ? "the cpu, or each process's own device where there are several"
                              : "the cpu",
                          NULL, NULL);
}

static ckpt_status dissect(ckpt__examination *p)
{
    p->anatomy = ckpt__arena_array(p->arena, 1, sizeof *p->anatomy);
    return p->anatomy ? ckpt__anatomy_build(p->index, p->names, p->anatomy, p->err)
                      : ckpt__fail_memory(p->err, "the report", 0);
}

/* What the reader could not give the names of parameters. */
static void note_flat_layout(ckpt__examination *p)
{
    static const char *const codes[] = {"layout-unknown", "flat-parameters"};
    for (size_t i = 0; i < ckpt_report_count(p->index->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(p->index->findings, i);
        if (strcmp(f->code, codes[0]) == 0 || strcmp(f->code, codes[1]) == 0)
            ckpt__doctor_note(p, CKPT__A_FLAT_LAYOUT, NULL, none, f->message, f->fix, NULL);
    }
}

static ckpt_status look(ckpt__examination *p)
{
    ckpt_status status = CKPT_OK;
    p->unread = p->loader->loader == CKPT_LOADER_HF_TRAINER && !p->inside && p->index->root &&
                ckpt__index_is_directory(p->index) &&
                (!ckpt_value_get(p->index->root, "optimizer.pt") || !ckpt_value_get(p->index->root, "scheduler.pt"));
    p->to_meta = p->options->map_location && p->loader->loader == CKPT_LOADER_TORCH &&
                 strcmp(p->options->map_location, "meta") == 0;
    if (p->options->map_location && !p->to_meta)
        status = ckpt_map_parse(p->options->map_location, &p->map, p->err);
    if (status == CKPT_OK)
        status = dissect(p);
    if (status == CKPT_OK)
        status = ckpt__doctor_find_dicts(p);
    if (status == CKPT_OK)
        status = ckpt__doctor_find_flat(p);
    if (status == CKPT_OK)
        status = canonical(p);
    if (status == CKPT_OK)
        status = ckpt__doctor_find_named(p);
    if (status != CKPT_OK)
        return status;
    ckpt__doctor_link(p);
    status = ckpt__doctor_incomplete(p);
    if (status == CKPT_OK)
        status = ckpt__doctor_values(p);
    return status == CKPT_OK ? ckpt__doctor_locate(p) : status;
}

/* Of a part there is nothing to say that would hold of the whole. */
static ckpt_status examine_part(ckpt__examination *p, ckpt_report *report)
{
    ckpt__doctor_note(p, p->shard ? CKPT__A_SHARD : CKPT__A_PART, NULL, none, p->whole.what, p->whole.how, NULL);
    ckpt_status status = ckpt__doctor_answer(p, report);
    effective(p);
    return status;
}

/* Numbers, devices, and elements that are not finite. */
static ckpt_status examine_values(ckpt__examination *p)
{
    ckpt_status status = ckpt__doctor_steps(p);
    if (status == CKPT_OK)
        status = ckpt__doctor_places(p);
    return status == CKPT_OK ? ckpt__doctor_finite(p) : status;
}

/* By the program of a sharded checkpoint: tensors go by name, and where they go is the program's own affair. */
static ckpt_status examine_job(ckpt__examination *p, ckpt_report *report)
{
    ckpt_status status = look(p);
    if (status == CKPT_OK)
        status = ckpt__doctor_job(p);
    if (status == CKPT_OK) {
        ckpt__doctor_stateful(p);
        status = examine_values(p);
    }
    if (status == CKPT_OK)
        status = ckpt__doctor_answer(p, report);
    effective(p);
    return status;
}

ckpt_status ckpt__doctor_examine(ckpt__examination *p, ckpt_report *report)
{
    bool lost;
    ckpt_status left = ckpt__doctor_lost(p, report, &lost);
    if (left != CKPT_OK || lost)
        return left;
    bool asked = p->options->loader != CKPT_LOADER_OWN;
    if (p->shard || (p->part && !asked))
        return examine_part(p, report);
    if (p->part)
        ckpt__doctor_note(p, CKPT__A_PART_ASKED, NULL, none, p->whole.what, p->whole.how, NULL);
    if (p->inside_job)
        return examine_job(p, report);
    ckpt_status status = look(p);
    if (status == CKPT_OK) {
        check_question(p);
        check_format(p);
        note_flat_layout(p);
        check_refused(p);
        ckpt__doctor_tensors(p);
        ckpt__doctor_state(p);
        ckpt__doctor_groups(p);
        ckpt__doctor_ranks(p);
        ckpt__doctor_files(p);
        ckpt__doctor_adapter(p);
        ckpt__doctor_memory(p);
        ckpt__doctor_modes(p);
        status = ckpt__doctor_order(p);
    }
    if (status == CKPT_OK)
        status = ckpt__doctor_models(p);
    if (status == CKPT_OK)
        status = examine_values(p);
    if (status == CKPT_OK)
        status = take_over(p, report);
    if (status == CKPT_OK)
        status = ckpt__doctor_answer(p, report);
    effective(p);
    return status;
}

void ckpt_doctor_result_clear(ckpt_doctor_result *result)
{
    ckpt_doctor_result own;
    CKPT__TAKE_ANSWER(ckpt_doctor_result, &own, result);
    free((void *)(uintptr_t)own.places);
    free(own.owned);
    memset(&own, 0, sizeof own);
    CKPT__GIVE_ANSWER(ckpt_doctor_result, result, &own);
}

static ckpt_status choose_version(ckpt__examination *p)
{
    ckpt_doctor_result *r = p->result;
    int asked = p->options->load_weights_only, want = p->options->torch_major * 100 + p->options->torch_minor;
    p->beyond = want > CKPT__NEWEST_TORCH;
    p->version = want == 0 || p->beyond ? CKPT__NEWEST_TORCH : want;
    r->torch_major = p->version / 100;
    r->torch_minor = p->version % 100;
    int from = p->loader->weights_only > 0 ? 204 : 206; /* accelerate drops the argument below 2.4 */
    r->load_weights_only = p->loader->weights_only >= 0 && p->version >= from;
    if (asked != 0 && p->loader->weights_only >= 0)
        r->load_weights_only = asked > 0 && (p->loader->weights_only == 0 || p->version >= from);
    if (want != 0 && want < CKPT__OLDEST_TORCH)
        return ckpt__fail(p->err, CKPT_E_UNSUPPORTED, NULL, "torch %d.%d: what is known here begins with %d.%d",
                          r->torch_major, r->torch_minor, CKPT__OLDEST_TORCH / 100, CKPT__OLDEST_TORCH % 100);
    return CKPT_OK;
}

/* A folder of one file is that file to every loader. false: no memory. */
static bool look_inside(ckpt__examination *p)
{
    const ckpt_value *root;
    ckpt_str file;
    size_t n = strlen(p->path);
    if (!ckpt__format_of(p->index)->loose_files)
        return true;
    if (p->index->absorbed_count == 1)
        p->inner = p->index->absorbed[0];
    ckpt__producer_match(p->index, &root, &file);
    if (!file.data)
        return true;
    ckpt__buf path = {NULL, 0, 0, false};
    ckpt__buf_add(&path, p->path, n);
    if (n > 0 && p->path[n - 1] != '/')
        ckpt__buf_char(&path, '/');
    ckpt__buf_add(&path, file.data, file.size);
    ckpt_str kept = path.failed ? none : ckpt__arena_str(p->arena, path.data, path.size);
    ckpt__buf_free(&path);
    p->path = kept.data;
    return kept.data != NULL;
}

ckpt_status ckpt__doctor_admit(ckpt__examination *p, const ckpt_reader *reader, const ckpt_doctor_options *options,
                               ckpt_doctor_result *result, ckpt_error *err)
{
    memset(p, 0, sizeof *p);
    memset(result, 0, sizeof *result);
    p->reader = reader;
    p->index = reader->index;
    p->options = options;
    p->cuda_devices = options->cuda_device_count > 0   ? options->cuda_device_count
                      : options->cuda_device_count < 0 ? 0
                                                       : -1;
    p->result = result;
    p->err = err;
    result->loader = options->loader != CKPT_LOADER_OWN ? options->loader : ckpt__producer_of(reader->index)->loader;
    p->loader = ckpt__loader_row_of(result->loader);
    result->loader = p->loader->loader;
    p->schedule_last = -1;
    p->summary.struct_size = sizeof p->summary;
    p->asked_summary = p->summed = options->summary != NULL;
    if (options->summary)
        CKPT__TAKE_ANSWER(ckpt_summary, &p->summary, options->summary);
    p->inner = p->index;
    p->path = reader->path;
    p->arena = ckpt__arena_new(0);
    p->names = ckpt__arena_new(ckpt__anatomy_names_limit(reader->index));
    p->canon_report = ckpt_report_new();
    p->found = calloc(ckpt__doctor_row_count(), sizeof *p->found);
    if (!p->arena || !p->names || !p->canon_report || !p->found)
        return ckpt__fail_memory(err, "the report", 0);
    p->inside = ckpt__doctor_inside(p->index);
    p->inside_job = ckpt__doctor_reads_inside(p);
    p->shard = ckpt__part_of_shards(p->index, reader->path, &p->whole);
    p->part = !p->shard && ckpt__part_of_folder(p->index, reader->path, &p->whole);
    return look_inside(p) ? choose_version(p) : ckpt__fail_memory(err, "the report", 0);
}

void ckpt__doctor_discharge(ckpt__examination *p)
{
    ckpt_report_free(p->canon_report);
    if (!p->options || !p->options->summary)
        ckpt_summary_clear(&p->summary);
    ckpt__placement_free(&p->places);
    ckpt__canon_free(p->canon);
    if (p->anatomy)
        ckpt__anatomy_free(p->anatomy);
    ckpt__arena_free(p->names);
    ckpt_map_free(p->map);
    ckpt__arena_free(p->arena);
    free(p->optimizers);
    free(p->groups);
    free(p->slots);
    free(p->items);
    free(p->found);
    free(p);
}

ckpt_status ckpt_doctor(const ckpt_reader *reader, const ckpt_doctor_options *options, ckpt_doctor_result *result,
                        ckpt_report *report, ckpt_error *err)
{
    ckpt_doctor_options own;
    ckpt_doctor_result answer;
    ckpt__mesh_asked mesh;
    if (!reader || !result)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no reader or no place for the answer was given");
    ckpt_status status = CKPT__CHECK_ANSWER(ckpt_doctor_result, result, err);
    if (status == CKPT_OK)
        status = CKPT__TAKE_OPTIONS(ckpt_doctor_options, &own, options, err);
    if (status == CKPT_OK && own.summary)
        status = CKPT__CHECK_ANSWER(ckpt_summary, own.summary, err);
    if (status == CKPT_OK)
        status = ckpt__canon_check_names(own.param_names, own.param_name_count, reader->path, err);
    if (status == CKPT_OK)
        status = ckpt__order_check(own.assume_order, reader->path, err);
    if (status == CKPT_OK)
        status = ckpt__mesh_parse(own.mesh, own.world, reader->path, &mesh, err);
    if (status < 0)
        return status;
    own.world = (int)mesh.world;
    ckpt__examination *p = calloc(1, sizeof *p);
    ckpt_report *findings = ckpt_report_new();
    if (!p || !findings) {
        free(p);
        ckpt_report_free(findings);
        return ckpt__fail_memory(err, "the report", 0);
    }
    status = ckpt__doctor_admit(p, reader, &own, &answer, err);
    if (status == CKPT_OK)
        p->mesh = mesh;
    if (status == CKPT_OK)
        status = ckpt__doctor_examine(p, findings);
    if (report)
        ckpt_report_clear(report);
    if (status == CKPT_OK && report && !ckpt__report_merge(report, findings))
        status = ckpt__fail_memory(err, "the report", 0);
    ckpt_report_free(findings);
    ckpt__doctor_discharge(p);
    if (status != CKPT_OK)
        ckpt_doctor_result_clear(&answer);
    CKPT__GIVE_ANSWER(ckpt_doctor_result, result, &answer);
    return status;
}
