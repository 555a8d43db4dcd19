/* core/doctor.c - will it resume? Gathers facts (where each tensor would come back, what the saved groups say), looks
 * each up in the rows, and answers with the worst outcome. */
#include "core/doctor_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include "core/canon.h"
#include "core/engine.h"
#include "core/placement.h"
#include "core/producer.h"

enum { NEWEST_MAJOR = 2, NEWEST_MINOR = 13, OLDEST_MAJOR = 1, OLDEST_MINOR = 12 };

typedef struct patient {
    const ckpt_reader *reader;
    const ckpt__index *index;
    const ckpt_doctor_options *options;
    ckpt_doctor_result *result;
    ckpt_map *map;
    ckpt__canon *canon;
    ckpt__placement places;
    ckpt_device *after;           /* per item of places: where it comes back, before load_state_dict */
    ckpt__hash *params;           /* canonical name -> item of places */
    ckpt__found found[CKPT__FACT_COUNT];
    ckpt_report *canon_report;    /* what canonical names and placement said */
    ckpt_error *err;
} patient;

const char *ckpt_outcome_name(ckpt_outcome outcome)
{
    static const char *const names[] = {"unknown", "resumes", "resumes-differently", "fails-at-load", "fails-at-step"};
    return outcome >= CKPT_OUTCOME_UNKNOWN && outcome <= CKPT_FAILS_AT_STEP ? names[outcome] : "unknown";
}

/* Notes a fact; the first occurrence gives the name and the details. */
static void note(patient *p, ckpt__fact fact, ckpt_str tensor, const char *a, const char *b)
{
    ckpt__found *f = &p->found[fact];
    if (f->count++ > 0)
        return;
    if (tensor.data)
        ckpt__escape(f->tensor, sizeof f->tensor, tensor.data, tensor.size);
    snprintf(f->a, sizeof f->a, "%s", a ? a : "");
    snprintf(f->b, sizeof f->b, "%s", b ? b : "");
}

static bool for_torch(const patient *p)
{
    return p->result->loader != CKPT_LOADER_CKPT;
}

static ckpt_str own_name(const patient *p, size_t item)
{
    return p->canon->entries[p->places.entries[item]].own;
}

static bool is_cuda(ckpt_device d)
{
    return d.type == CKPT_DEVICE_CUDA;
}

/* ---- where things come back */

static ckpt_status locate(patient *p)
{
    ckpt__placement *places = &p->places;
    ckpt_ranks ranks = CKPT_RANKS_INIT;
    ckpt_status status = CKPT_OK;
    p->after = calloc(places->count + 1, sizeof *p->after);
    p->params = ckpt__hash_new(places->count);
    if (!p->after || !p->params)
        return ckpt__fail_memory(p->err, "the placement of tensors", places->count);
    /* ckpt_restore places by rules and policy as soon as there is a map; torch.load applies its map to each storage */
    if (p->map && !for_torch(p))
        status = ckpt__placement_apply(places, p->map, p->options->optimizer, &ranks, p->canon_report, p->err);
    for (size_t i = 0; status == CKPT_OK && i < places->count; i++) {
        if (p->map && for_torch(p))
            status = ckpt__map_apply(p->map, &places->subjects[i], &ranks, NULL, &places->targets[i], p->err);
        p->after[i] = places->targets[i].device;
        if (p->after[i].type == CKPT_DEVICE_NONE && places->subjects[i].tag.data)
            p->after[i] = ckpt__tag_parse(places->subjects[i].tag);
        ckpt_str name = places->subjects[i].name;
        if (places->subjects[i].role == CKPT_PARAM && ckpt__hash_put(p->params, name.data, name.size, i, NULL) < 0)
            status = ckpt__fail_memory(p->err, "tensor names", places->count);
    }
    return status;
}

/* Where the program has a parameter. torch copies the loaded weights into a model that is where the program made it: on
 * a GPU if the weights come back there or were saved from there. */
static ckpt_device home(const patient *p, size_t item)
{
    ckpt_device saved = {CKPT_DEVICE_NONE, -1};
    if (!for_torch(p) || is_cuda(p->after[item]))
        return p->after[item];
    if (p->places.subjects[item].tag.data)
        saved = ckpt__tag_parse(p->places.subjects[item].tag);
    return is_cuda(saved) ? saved : p->after[item];
}

/* The kind that runs: torch takes the saved flags over, ckpt the program's word. */
static ckpt_optimizer_kind running(const patient *p, size_t item)
{
    ckpt_optimizer_kind kind = CKPT_OPTIMIZER_DEFAULT;
    if (!for_torch(p))
        kind = p->options->optimizer != CKPT_OPTIMIZER_DEFAULT ? p->options->optimizer : ckpt__map_optimizer(p->map);
    if (kind == CKPT_OPTIMIZER_DEFAULT)
        kind = p->places.kinds[item];
    return kind == CKPT_OPTIMIZER_DEFAULT ? CKPT_PLAIN : kind;
}

static void check_step(patient *p, size_t item, ckpt_device param)
{
    char name[CKPT_DEVICE_NAME_MAX];
    ckpt_optimizer_kind kind = running(p, item);
    bool on_device = kind == CKPT_FUSED || kind == CKPT_CAPTURABLE;
    if (on_device && is_cuda(param) && p->after[item].type == CKPT_DEVICE_CPU)
        note(p, kind == CKPT_FUSED ? CKPT__STEP_ON_CPU_FUSED : CKPT__STEP_ON_CPU_CAPTURABLE, own_name(p, item),
             ckpt_device_name(param, name), NULL);
    if (!on_device && is_cuda(p->after[item]))
        note(p, CKPT__STEP_ON_GPU, own_name(p, item), ckpt_device_name(p->after[item], name), NULL);
    if (kind == CKPT_CAPTURABLE && param.type == CKPT_DEVICE_CPU)
        note(p, CKPT__CAPTURABLE_ON_CPU, own_name(p, item), NULL, NULL);
}

static void check_moment(patient *p, size_t item, size_t param)
{
    char a[CKPT_DEVICE_NAME_MAX], b[CKPT_DEVICE_NAME_MAX];
    ckpt_device at = home(p, param);
    ckpt_dtype own = p->places.dtypes[item], theirs = p->places.dtypes[param];
    if (at.type != CKPT_DEVICE_NONE && p->after[item].type != CKPT_DEVICE_NONE && !ckpt_device_equal(at, p->after[item]))
        note(p, CKPT__MIXED_DEVICES, own_name(p, item), ckpt_device_name(p->after[item], a), ckpt_device_name(at, b));
    if (ckpt_dtype_is_float(own) && ckpt_dtype_is_float(theirs) && ckpt_dtype_bits(own) > ckpt_dtype_bits(theirs))
        note(p, CKPT__MOMENTS_WIDER, own_name(p, item), ckpt_dtype_name(own), ckpt_dtype_name(theirs));
}

static void check_device(patient *p, size_t item)
{
    char name[CKPT_DEVICE_NAME_MAX], there[64];
    int count = p->options->cuda_devices;
    ckpt_device d = p->after[item];
    if (p->places.subjects[item].role == CKPT_RNG && is_cuda(d))
        note(p, CKPT__RNG_ON_GPU, own_name(p, item), ckpt_device_name(d, name), NULL);
    if (count < 0 || !is_cuda(d) || (d.index < 0 ? count > 0 : d.index < count))
        return;
    snprintf(there, sizeof there, count == 0 ? "is no CUDA device" : count == 1 ? "is one CUDA device" : "are %d CUDA devices",
             count);
    note(p, CKPT__NO_SUCH_DEVICE, own_name(p, item), ckpt_device_name(d, name), there);
}

static void check_places(patient *p)
{
    for (size_t i = 0; i < p->places.count; i++) {
        const ckpt__subject *s = &p->places.subjects[i];
        size_t param;
        check_device(p, i);
        if (!ckpt_role_is_optimizer(s->role) || !s->param.data || !ckpt__hash_get(p->params, s->param.data, s->param.size, &param))
            continue;
        if (s->role == CKPT_STEP)
            check_step(p, i, home(p, param));
        else
            check_moment(p, i, param);
    }
}

/* ---- groups and their hyper-parameters */

static const ckpt__canon_entry *hyper(const patient *p, const ckpt__canon_group *g, const char *key)
{
    char name[600];
    size_t i;
    int n = snprintf(name, sizeof name, "optimizer.groups.%.*s.%s", (int)(g->name.size < 400 ? g->name.size : 400), g->name.data, key);
    return n > 0 && ckpt__hash_get(p->canon->by_name, name, (size_t)n, &i) ? &p->canon->entries[i] : NULL;
}

static bool is_true(const ckpt__canon_entry *e)
{
    return e && e->value && e->value->kind == CKPT_V_BOOL && e->value->boolean;
}

static bool is_nonzero(const ckpt__canon_entry *e)
{
    return e && e->value && ((e->value->kind == CKPT_V_FLOAT && e->value->real != 0) || (e->value->kind == CKPT_V_INT && e->value->integer != 0));
}

static bool has_state(const patient *p, ckpt_str param, const char *key)
{
    ckpt__buf name = {NULL, 0, 0, false};
    size_t i;
    ckpt__buf_str(&name, "optimizer.");
    ckpt__buf_add(&name, param.data, param.size);
    ckpt__buf_char(&name, '.');
    ckpt__buf_str(&name, key);
    bool found = !name.failed && ckpt__hash_get(p->canon->by_name, name.data, name.size, &i);
    ckpt__buf_free(&name);
    return found;
}

static void check_group(patient *p, const ckpt__canon_group *g, uint64_t *without, uint64_t *with)
{
    const ckpt__canon_entry *lr = hyper(p, g, "lr");
    bool adam = hyper(p, g, "betas.0") || hyper(p, g, "betas"), momentum = is_nonzero(hyper(p, g, "momentum"));
    if (!lr)
        note(p, CKPT__NO_LR, g->name, NULL, NULL);
    else if (lr->is_tensor && g->foreach == 1 && g->capturable != 1)
        note(p, CKPT__TENSOR_LR_FOREACH, g->name, NULL, NULL);
    if (!adam && !momentum)
        return;                   /* plain SGD and the like keep no state */
    for (size_t i = 0; i < g->param_count; i++) {
        ckpt_str param = g->params[i];
        bool has = has_state(p, param, "exp_avg") || has_state(p, param, "momentum_buffer") || has_state(p, param, "step") ||
                   has_state(p, param, "state1");
        *(has ? with : without) += 1;
        if (!has)
            note(p, CKPT__SOME_STATE_MISSING, param, NULL, NULL);
        else if (adam && is_true(hyper(p, g, "amsgrad")) && !has_state(p, param, "max_exp_avg_sq"))
            note(p, CKPT__NO_MAX_EXP_AVG_SQ, param, NULL, NULL);
    }
}

static void check_groups(patient *p)
{
    uint64_t without = 0, with = 0;
    bool fused = p->canon->group_count > 0, any_fused = false, capturable = fused;
    const ckpt_str none = {NULL, 0};
    for (size_t i = 0; i < p->canon->group_count; i++) {
        const ckpt__canon_group *g = &p->canon->groups[i];
        fused &= g->fused == 1;
        any_fused |= g->fused == 1;
        capturable &= g->capturable == 1;
        check_group(p, g, &without, &with);
    }
    if (without > 0 && with == 0) {
        p->found[CKPT__NO_STATE] = p->found[CKPT__SOME_STATE_MISSING];
        p->found[CKPT__SOME_STATE_MISSING].count = 0;
    }
    if (p->canon->group_count == 0) {
        bool optimizer = false;
        for (size_t i = 0; i < p->places.count && !optimizer; i++)
            optimizer = ckpt_role_is_optimizer(p->places.subjects[i].role);
        if (!optimizer)
            note(p, CKPT__NO_OPTIMIZER, none, NULL, NULL);
        return;
    }
    ckpt_optimizer_kind program = p->options->optimizer;
    if (program == CKPT_FUSED && !fused)
        note(p, p->result->amp ? CKPT__FUSED_LOST_AMP : CKPT__FUSED_LOST, none, NULL, NULL);
    if (program == CKPT_CAPTURABLE && !capturable)
        note(p, CKPT__CAPTURABLE_LOST, none, NULL, NULL);
    if (program != CKPT_OPTIMIZER_DEFAULT && program != CKPT_FUSED && any_fused)
        note(p, CKPT__FUSED_KEPT, none, ckpt_optimizer_kind_name(program), NULL);
}

/* ---- the value tree */

/* What torch.load(weights_only=True) builds; everything else it refuses. */
static bool weights_only_class(ckpt_str name)
{
    static const char *const allowed[] = {
        "collections.OrderedDict", "collections.Counter", "torch.Size", "torch.device", "torch.Tensor",
        "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer", "builtins.set", "builtins.bytearray", "builtins.complex",
        "builtins.dict", "builtins.list", "builtins.tuple", "builtins.bytes", "torch.serialization._get_layout",
        "torch.storage.TypedStorage"};
    /* What these modules make is allowed once they are imported, as a program that has such tensors has done. */
    static const char *const modules[] = {"torch.distributed.tensor.", "torch.distributed.device_mesh.",
                                          "torch.distributed._mesh_layout.", "torch.nested._internal.nested_tensor."};
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (ckpt__str_is(name, allowed[i]))
            return true;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (name.size > strlen(modules[i]) && memcmp(name.data, modules[i], strlen(modules[i])) == 0)
            return true;
    return false;
}

static bool is_torch_constant(const ckpt_value *v)
{
    char name[40];
    if (v->class_name.size < 7 || v->class_name.size - 6 >= sizeof name || memcmp(v->class_name.data, "torch.", 6) != 0)
        return false;
    memcpy(name, v->class_name.data + 6, v->class_name.size - 6);
    name[v->class_name.size - 6] = 0;
    return ckpt_dtype_from_name(name) != CKPT_DTYPE_NONE || strncmp(name, "per_", 4) == 0;
}

static bool weights_only_refuses(const ckpt_value *v)
{
    bool named = v->class_name.data && v->class_name.size;
    bool storage = named && v->class_name.size > 13 && memcmp(v->class_name.data, "torch.", 6) == 0 &&
                   memcmp(v->class_name.data + v->class_name.size - 7, "Storage", 7) == 0;
    if (v->kind == CKPT_V_CLASS)
        return !is_torch_constant(v) && !storage;
    return v->kind == CKPT_V_ARRAY || (v->kind >= CKPT_V_DICT && named && !weights_only_class(v->class_name));
}

/* The keys are no visits of their own. */
static const ckpt_value *refused_key(const ckpt_value *v)
{
    for (size_t i = 0; i < v->entry_count; i++)
        if (weights_only_refuses(v->entries[i].key))
            return v->entries[i].key;
    return NULL;
}

static int look_at_value(void *ctx, const ckpt_visit *visit)
{
    patient *p = ctx;
    const ckpt_value *v = visit->value;
    if (visit->cycle || v->kind < CKPT_V_DICT)
        return 0;
    bool named = v->class_name.data != NULL;
    if (visit->path.count && named && strncmp(v->class_name.data, "__torch__.", 10) == 0)
        return 0;                 /* a module in a TorchScript archive: the root says it */
    const ckpt_value *refused = weights_only_refuses(v) ? v : refused_key(v);
    if (refused) {
        char name[200] = "numpy.ndarray";
        if (refused->class_name.data)
            ckpt__escape(name, sizeof name, refused->class_name.data, refused->class_name.size);
        note(p, CKPT__NOT_WEIGHTS_ONLY, visit->name, name, NULL);
    }
    if (p->map && v->kind == CKPT_V_OBJECT && ckpt__str_is(v->class_name, "torch.device") && v->args && v->args->item_count == 2 &&
        v->args->items[0]->kind == CKPT_V_STR && v->args->items[1]->kind == CKPT_V_INT) {
        char type[32], device[64];
        ckpt__escape(type, sizeof type, v->args->items[0]->text.data, v->args->items[0]->text.size);
        snprintf(device, sizeof device, "%s:%lld", type, (long long)v->args->items[1]->integer);
        note(p, CKPT__STRAY_DEVICE, visit->name, device, NULL);
    }
    return 0;
}

static ckpt_status check_values(patient *p)
{
    const ckpt_str none = {NULL, 0};
    ckpt_summary summary;
    ckpt_status status = ckpt_summarize(p->reader, &summary, p->err);
    if (status < 0)
        return status;
    bool enabled = summary.scaler && (summary.scaler->entry_count > 0 || ckpt_value_get(summary.scaler, "scale"));
    p->result->amp = p->options->amp || enabled;
    if (p->options->amp && summary.scaler && !enabled)
        note(p, CKPT__SCALER_DISABLED, none, NULL, NULL);
    if (p->options->amp && !summary.scaler)
        note(p, CKPT__SCALER_MISSING, none, NULL, NULL);
    ckpt_summary_clear(&summary);
    if (status == CKPT_OK && p->index->root)
        status = (ckpt_status)ckpt_value_walk(p->index->root, 0, look_at_value, p, p->err);
    if (!for_torch(p) || !p->result->load_weights_only)
        p->found[CKPT__NOT_WEIGHTS_ONLY].count = 0;
    return status;
}

/* ---- the answer */

/* A path as a shell takes it. */
static void put_quoted(ckpt__buf *b, const char *path)
{
    if (path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:@%,")] == 0 && *path) {
        ckpt__buf_str(b, path);
        return;
    }
    ckpt__buf_char(b, '\'');
    for (; *path; path++) {
        if (*path == '\'')
            ckpt__buf_str(b, "'\\''");
        else
            ckpt__buf_char(b, *path);
    }
    ckpt__buf_char(b, '\'');
}

static void expand(ckpt__buf *b, const char *text, const patient *p, const ckpt__found *f)
{
    for (; *text; text++) {
        size_t n = *text == '{' ? strcspn(text, "}") : 0;
        ckpt_str key = {text + 1, n > 0 ? n - 1 : 0};
        if (n == 0 || !text[n]) {
            ckpt__buf_char(b, *text);
            continue;
        }
        if (ckpt__str_is(key, "n"))
            ckpt__buf_printf(b, "%llu", (unsigned long long)f->count);
        else if (ckpt__str_is(key, "s"))
            ckpt__buf_str(b, f->count == 1 ? "" : "s");
        else if (ckpt__str_is(key, "tensor"))
            ckpt__buf_str(b, f->tensor);
        else if (ckpt__str_is(key, "a"))
            ckpt__buf_str(b, f->a);
        else if (ckpt__str_is(key, "b"))
            ckpt__buf_str(b, f->b);
        else if (ckpt__str_is(key, "path"))
            put_quoted(b, p->reader->path);
        else if (ckpt__str_is(key, "version"))
            ckpt__buf_printf(b, "%d.%d", p->result->torch_major, p->result->torch_minor);
        else
            ckpt__buf_add(b, text, n + 1);
        text += n;
    }
}

/* From better to worse; unknown weighs more than "differently", less than a failure that is sure. */
static int weight(ckpt_outcome outcome)
{
    static const int weights[] = {[CKPT_RESUMES] = 0, [CKPT_RESUMES_DIFFERENTLY] = 1, [CKPT_OUTCOME_UNKNOWN] = 2, [CKPT_FAILS_AT_STEP] = 3,
                                  [CKPT_FAILS_AT_LOAD] = 4};
    return weights[outcome];
}

static ckpt_status answer(patient *p, ckpt_report *report)
{
    int version = p->result->torch_major * 100 + p->result->torch_minor;
    int mask = for_torch(p) ? CKPT__FOR_TORCH : CKPT__FOR_CKPT;
    p->result->outcome = CKPT_RESUMES;
    for (size_t i = 0; i < ckpt__doctor_row_count; i++) {
        const ckpt__row *r = &ckpt__doctor_rows[i];
        const ckpt__found *f = &p->found[r->fact];
        bool in_version = !for_torch(p) || (version >= r->from && (r->until == 0 || version <= r->until));
        if (f->count == 0 || !((int)r->loaders & mask) || !in_version)
            continue;
        if (weight(r->outcome) > weight(p->result->outcome))
            p->result->outcome = r->outcome;
        if (!*r->code)            /* the finding is there already, from the canonical names */
            continue;
        ckpt__buf message = {NULL, 0, 0, false}, fix = {NULL, 0, 0, false};
        expand(&message, r->message, p, f);
        expand(&fix, r->fix, p, f);
        if (*f->tensor && f->count > 0)
            ckpt__buf_printf(&message, f->count == 1 ? " (%s)" : " (the first: %s)", f->tensor);
        bool added = !message.failed && !fix.failed &&
                     ckpt__report_add(report, r->severity, r->code, f->tensor, fix.data, "%s", message.data);
        ckpt__buf_free(&message);
        ckpt__buf_free(&fix);
        if (!added)
            return ckpt__fail_memory(p->err, "the report", 0);
    }
    return CKPT_OK;
}

/* The flags after the load; groups that disagree give -1. */
static void effective(patient *p)
{
    ckpt_doctor_result *r = p->result;
    ckpt_optimizer_kind kind = p->options->optimizer != CKPT_OPTIMIZER_DEFAULT ? p->options->optimizer : ckpt__map_optimizer(p->map);
    r->fused = r->capturable = r->foreach_ = -1;
    r->optimizer = kind;
    for (size_t i = 0; p->canon && i < p->canon->group_count; i++) {
        const ckpt__canon_group *g = &p->canon->groups[i];
        r->fused = i == 0 || r->fused == g->fused ? g->fused : -1;
        r->capturable = i == 0 || r->capturable == g->capturable ? g->capturable : -1;
        r->foreach_ = i == 0 || r->foreach_ == g->foreach ? g->foreach : -1;
        if (kind == CKPT_OPTIMIZER_DEFAULT)
            r->optimizer = i == 0 || r->optimizer == ckpt__group_kind(g) ? ckpt__group_kind(g) : CKPT_OPTIMIZER_DEFAULT;
    }
    if (!for_torch(p) && kind != CKPT_OPTIMIZER_DEFAULT) {
        r->fused = kind == CKPT_FUSED;
        r->capturable = kind == CKPT_CAPTURABLE;
        r->foreach_ = kind == CKPT_FOREACH;
    }
}

/* The message of an error ends in what to do: here that is the fix. */
static void note_ambiguous(patient *p, ckpt_error *why)
{
    char text[760], *message = why->message;
    static const char *const fixes[] = {"; state the parameters' names", "; say which one in a map file"};
    const ckpt_str none = {NULL, 0};
    const char *fix = p->options->param_name_count ? NULL : "say which with source: in a map file, or with --param-names";
    for (size_t i = 0; i < sizeof fixes / sizeof *fixes; i++) {
        char *at = strstr(message, fixes[i]);
        if (at) {
            *at = 0;
            fix = at + 2;
        }
    }
    snprintf(text, sizeof text, "%.240s%s%.510s", why->object, *why->object ? ": " : "", message);
    note(p, CKPT__AMBIGUOUS, none, text, fix);
}

static ckpt_status canonical(patient *p)
{
    ckpt__canon_hints hints;
    ckpt_error why = CKPT_ERROR_INIT;
    memset(&hints, 0, sizeof hints);
    hints.map = p->map;
    hints.param_names = p->options->param_names;
    hints.param_name_count = p->options->param_name_count;
    ckpt_status status = ckpt__canon_build(p->index, &hints, &p->canon, p->canon_report, &why);
    if (status == CKPT_E_MISMATCH) {
        note_ambiguous(p, &why);
        return CKPT_OK;
    }
    if (status < 0 && p->err)
        *p->err = why;
    return status;
}

/* What canonical names and placement said already; "moment-shape" has a row of its own for torch. */
static ckpt_status take_over(patient *p, ckpt_report *report)
{
    const ckpt_str none = {NULL, 0};
    for (size_t i = 0; i < ckpt_report_count(p->canon_report); i++) {
        const ckpt_finding *f = ckpt_report_get(p->canon_report, i);
        bool shape = strcmp(f->code, "moment-shape") == 0;
        if (shape)
            note(p, CKPT__MOMENT_SHAPE, *f->tensor ? ckpt__s(f->tensor) : none, NULL, NULL);
        if (shape && for_torch(p))
            continue;
        if (strcmp(f->code, "policy-breach") == 0)
            note(p, CKPT__POLICY_BREACH, none, NULL, NULL);
        if (strcmp(f->code, "order-unknown") == 0)
            note(p, CKPT__UNNAMED, none, NULL, NULL);
        /* torch matches by position: how the names were found matters to it as little as the names */
        ckpt_severity severity = for_torch(p) && strcmp(f->code, "order-hypothesis") == 0 ? CKPT_NOTE : f->severity;
        if (!ckpt__report_add(report, severity, f->code, f->tensor, f->fix, "%s", f->message) ||
            !ckpt__report_detail(report, f->file, f->from, f->to, f->nbytes))
            return ckpt__fail_memory(p->err, "the report", 0);
    }
    return CKPT_OK;
}

static ckpt_status examine(patient *p, ckpt_report *report)
{
    ckpt_status status = p->options->map_location ? ckpt_map_parse(p->options->map_location, &p->map, p->err) : CKPT_OK;
    if (status == CKPT_OK)
        status = canonical(p);
    if (status == CKPT_OK)
        status = check_values(p);
    if (status == CKPT_OK && p->canon) {
        status = ckpt__placement_build(p->index, p->canon, &p->places, p->err);
        if (status == CKPT_OK)
            status = locate(p);
        if (status == CKPT_OK) {
            check_places(p);
            check_groups(p);
        }
    }
    if (status == CKPT_OK)
        status = take_over(p, report);
    if (status == CKPT_OK)
        status = answer(p, report);
    effective(p);
    return status;
}

static const char *const loader_names[] = {
    [CKPT_LOADER_OWN] = "own", [CKPT_LOADER_CKPT] = "ckpt", [CKPT_LOADER_TORCH] = "torch", [CKPT_LOADER_TORCH_CPP] = "torch-cpp",
    [CKPT_LOADER_LIGHTNING] = "lightning", [CKPT_LOADER_ACCELERATE] = "accelerate", [CKPT_LOADER_HF_TRAINER] = "hf-trainer"};

const char *ckpt_loader_name(ckpt_loader loader)
{
    return (unsigned)loader < sizeof loader_names / sizeof *loader_names ? loader_names[loader] : "own";
}

bool ckpt_loader_from_name(const char *name, ckpt_loader *loader)
{
    for (size_t i = CKPT_LOADER_CKPT; i < sizeof loader_names / sizeof *loader_names; i++)
        if (strcmp(name, loader_names[i]) == 0) {
            *loader = (ckpt_loader)i;
            return true;
        }
    return false;
}

void ckpt_doctor_result_clear(ckpt_doctor_result *result)
{
    if (result) {
        free(result->places);
        memset(result, 0, sizeof *result);
    }
}

ckpt_status ckpt_doctor(const ckpt_reader *reader, const ckpt_doctor_options *options, ckpt_doctor_result *result,
                        ckpt_report *report, ckpt_error *err)
{
    ckpt_doctor_options defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.cuda_devices = -1;
    if (!reader || !result)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no reader or no place for the answer was given");
    patient *p = calloc(1, sizeof *p);
    ckpt_report *findings = ckpt_report_new();
    if (!p || !findings || !(p->canon_report = ckpt_report_new())) {
        free(p);
        ckpt_report_free(findings);
        return ckpt__fail_memory(err, "the report", 0);
    }
    p->reader = reader;
    p->index = reader->index;
    p->options = options ? options : &defaults;
    p->result = result;
    p->err = err;
    memset(result, 0, sizeof *result);
    result->loader = p->options->loader != CKPT_LOADER_OWN ? p->options->loader : ckpt__producer_of(reader->index)->loader;
    bool newest = p->options->torch_major == 0;
    result->torch_major = newest ? NEWEST_MAJOR : p->options->torch_major;
    result->torch_minor = newest ? NEWEST_MINOR : p->options->torch_minor;
    int asked = p->options->load_weights_only, version = result->torch_major * 100 + result->torch_minor;
    result->load_weights_only = asked > 0 || (asked == 0 && version >= 206);
    ckpt_status status = CKPT_OK;
    if (version < OLDEST_MAJOR * 100 + OLDEST_MINOR)
        status = ckpt__fail(err, CKPT_E_UNSUPPORTED, NULL, "torch %d.%d: what is known here begins with %d.%d", result->torch_major,
                            result->torch_minor, OLDEST_MAJOR, OLDEST_MINOR);
    if (status == CKPT_OK)
        status = examine(p, findings);
    if (report)
        ckpt_report_clear(report);
    if (status == CKPT_OK && report && !ckpt__report_merge(report, findings))
        status = ckpt__fail_memory(err, "the report", 0);
    ckpt_report_free(findings);
    ckpt_report_free(p->canon_report);
    ckpt__placement_free(&p->places);
    ckpt__hash_free(p->params);
    ckpt__canon_free(p->canon);
    ckpt_map_free(p->map);
    free(p->after);
    free(p);
    return status;
}
