/* doctor/snippet.c - a resume that is right for one checkpoint, as source to paste: Python for torch and the
 * frameworks; C is snippet_c.c. The text is in the templates of src/doctor/snippets; the values of their holes and
 * conditions are here, and each was seen in the checkpoint. */
#include "doctor/text.h"

#include <stdlib.h>
#include "base/first_sizes.h"
#include "anatomy/optimizer_class.h"
#include "anatomy/producer.h"
#include "doctor/template.h"
#include "format/table.h"
#include "model/training.h"

enum { NAMES = 2000 }; /* parameters that are named one by one; a model of more is handed over in its own order */

/* ---- what the saved groups are of */

/* The value of the first group that has it. */
static bool any_group(void *ctx, const char *key, const ckpt_value **value)
{
    const ckpt__examination *p = ctx;
    for (size_t i = 0; i < p->group_count; i++) {
        bool tensor;
        *value = ckpt__doctor_hyper(p, &p->groups[i], key, &tensor);
        if (*value || tensor)
            return true;
    }
    return false;
}

static bool any_state(void *ctx, const char *key)
{
    const ckpt__examination *p = ctx;
    for (size_t i = 0; i < p->item_count; i++)
        if (ckpt__str_is(p->items[i].key, key))
            return true;
    return false;
}

static bool any_flag(const ckpt__examination *p, bool fused)
{
    for (size_t i = 0; i < p->group_count; i++)
        if ((fused ? p->groups[i].fused : p->groups[i].capturable) == 1)
            return true;
    return false;
}

/* torch's class by the hyper-parameters of its groups; NULL: none that is known. bitsandbytes has classes of its own. */
static const char *class_of(const ckpt__examination *p)
{
    void *ctx = (void *)(uintptr_t)p;
    if (any_state(ctx, "qmap1") || any_state(ctx, "state1"))
        return NULL;
    return ckpt__optimizer_constructor(&(ckpt__optimizer_facts){any_group, any_state, ctx});
}

static ckpt_str name_of(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    size_t e = slot->param != SIZE_MAX ? p->entry_of[slot->param] : SIZE_MAX;
    return e != SIZE_MAX ? p->canon->entries[e].name : (ckpt_str){NULL, 0};
}

static bool names_known(const ckpt__examination *p)
{
    bool known = p->optimizer_count == 1 && p->slot_count > 0 && p->slot_count <= NAMES &&
                 !(p->canon && p->canon->order.ambiguous);
    for (size_t i = 0; i < p->slot_count && known; i++)
        known = name_of(p, &p->slots[i]).data != NULL;
    return known;
}

/* The name without the prefixes of wrappers: "module." only in front, the others anywhere. */
static void put_name(ckpt__buf *b, ckpt_str name)
{
    ckpt__buf out = {NULL, 0, 0, false};
    for (size_t i = 0; i < name.size;) {
        size_t skip = 0;
        for (size_t k = 0; k < CKPT__WRAPPERS && skip == 0; k++) {
            size_t n = strlen(ckpt__wrappers[k]);
            bool here = out.size == 0 || (k > 0 && out.data[out.size - 1] == '.');
            if (here && name.size - i > n && memcmp(name.data + i, ckpt__wrappers[k], n) == 0)
                skip = n;
        }
        if (skip == 0)
            ckpt__buf_char(&out, name.data[i]);
        i += skip ? skip : 1;
        if (out.failed)
            break;
    }
    ckpt_value text = {.kind = CKPT_V_STR, .text = {out.data ? out.data : "", out.size}};
    ckpt__value_repr(b, &text);
    b->failed = b->failed || out.failed;
    ckpt__buf_free(&out);
}

/* Weights alone, by another function than torch.load. */
static bool is_flat(const ckpt__examination *p)
{
    return ckpt__format_of(p->index)->weights_alone;
}

static bool has_prefix(const ckpt__examination *p)
{
    for (size_t i = 0; is_flat(p) && i < p->index->tensor_count; i++) /* their names are the parameters' own */
        for (size_t k = 0; k < CKPT__WRAPPERS; k++)
            if (ckpt__str_begins_more(p->index->tensors[i].info.name, ckpt__wrappers[k]))
                return true;
    for (size_t i = 0; i < ckpt__rows_load_count; i++)
        if (ckpt__rows_load[i].fact == CKPT__PREFIX && p->found[ckpt__rows_place_count + i].count > 0)
            return true;
    return false;
}

/* The names of a group, with commas, and a new line before a name that would pass column 110. */
static void put_names(ckpt__buf *b, const ckpt__examination *p, const ckpt__doctor_group *group)
{
    size_t column = 5;
    for (size_t i = 0; i < group->count; i++) {
        ckpt_str name = name_of(p, &p->slots[group->first + i]);
        bool wraps = i > 0 && column + name.size > 110;
        if (i > 0)
            ckpt__buf_str(b, wraps ? ",\n     " : ", ");
        put_name(b, name);
        column = (wraps ? 5 : column) + name.size + (i > 0 ? 4 : 0);
    }
}

static void put_sizes(ckpt__buf *b, const ckpt__examination *p)
{
    for (size_t g = 0, n = 0; g < p->group_count; g++)
        if (p->groups[g].optimizer == 0)
            ckpt__buf_printf(b, "%s%zu", n++ ? ", " : "", p->groups[g].count);
}

static void put_refused(ckpt__buf *b, const ckpt__examination *p)
{
    char name[200];
    for (size_t i = 0; i < p->refusal_count && i < 8; i++)
        ckpt__buf_printf(
            b, "%s%s", i ? ", " : "",
            ckpt__escape(name, sizeof name, p->refusals[i].class_name.data, p->refusals[i].class_name.size));
    if (p->refusal_count > 8)
        ckpt__buf_str(b, ", ...");
}

static void put_lr(ckpt__buf *b, const ckpt__examination *p)
{
    char lr[CKPT__DOUBLE_MAX] = "1e-3";
    const ckpt_value *v = p->group_count ? ckpt__doctor_hyper(p, &p->groups[0], "lr", NULL) : NULL;
    if (v && v->kind == CKPT_V_FLOAT)
        ckpt__format_double(lr, v->real);
    ckpt__buf_str(b, lr);
}

/* The value at a path of ckpt__doctor_paths, where " " is the root. */
static void put_place(ckpt__buf *b, const char *path)
{
    ckpt__buf_printf(b, "checkpoint%s", strcmp(path, " ") == 0 ? "" : path);
}

/* ---- the templates */

/* A checkpoint as the Python templates see it. `class_name` is static, NULL where CKPT__PY_IF_CLASS does not hold. */
typedef struct py_source {
    const ckpt__examination *p;
    const char *class_name;
    bool holds[CKPT__PY_IF_COUNT];
} py_source;

static void put_hole(ckpt__buf *b, const void *context, int hole, size_t round)
{
    const py_source *s = context;
    const ckpt__examination *p = s->p;
    const char *const places[] = {[CKPT__PY_OPTIMIZER] = p->paths.optimizer,
                                  [CKPT__PY_SCHEDULER] = p->paths.scheduler,
                                  [CKPT__PY_SCALER] = p->paths.scaler,
                                  [CKPT__PY_RNG] = p->paths.rng,
                                  [CKPT__PY_CUDA_RNG] = p->paths.cuda_rng};
    switch ((ckpt__python_hole)hole) {
    case CKPT__PY_PATH:
        ckpt__put_python(b, p->path);
        return;
    case CKPT__PY_LOADER:
        ckpt__buf_str(b, p->loader->name);
        return;
    case CKPT__PY_TORCH:
        ckpt__buf_printf(b, "%d.%d", p->result->torch_major, p->result->torch_minor);
        return;
    case CKPT__PY_OPTIMIZER_COUNT:
        ckpt__buf_printf(b, "%zu", p->optimizer_count);
        return;
    case CKPT__PY_NAMES:
        put_names(b, p, &p->groups[round]);
        return;
    case CKPT__PY_CLASS:
        ckpt__buf_str(b, s->class_name);
        return;
    case CKPT__PY_LR:
        put_lr(b, p);
        return;
    case CKPT__PY_REFUSED:
        put_refused(b, p);
        return;
    case CKPT__PY_SIZES:
        put_sizes(b, p);
        return;
    case CKPT__PY_FLAT_STATE:
        ckpt__buf_str(b, p->flat);
        return;
    case CKPT__PY_SCALER_KEY:
        ckpt__put_python(b, p->paths.scaler_key);
        return;
    case CKPT__PY_MODEL:
        if (*p->flat_model)
            ckpt__buf_str(b, p->flat_model);
        else
            put_place(b, p->paths.model);
        return;
    case CKPT__PY_OPTIMIZER:
    case CKPT__PY_SCHEDULER:
    case CKPT__PY_SCALER:
    case CKPT__PY_RNG:
    case CKPT__PY_CUDA_RNG:
        put_place(b, places[hole]);
        return;
    }
}

/* What the file has. */
static void look_at_file(py_source *s)
{
    const ckpt__examination *p = s->p;
    const ckpt__doctor_paths *paths = &p->paths;
    bool *holds = s->holds;
    const char *key = paths->scaler_key;
    holds[CKPT__PY_IF_FLAT] = is_flat(p);
    holds[CKPT__PY_IF_DIRECTORY] = ckpt__index_is_directory(p->index);
    /* flat_model takes the weights by the names of the program's own model, which are left as they are */
    holds[CKPT__PY_IF_PREFIX] = has_prefix(p) && (is_flat(p) || (*paths->model && !*p->flat_model));
    holds[CKPT__PY_IF_REFUSED] = p->refusal_count > 0;
    holds[CKPT__PY_IF_WEIGHTS_ONLY] = p->version >= 113;
    holds[CKPT__PY_IF_MODEL] = *paths->model || *p->flat_model;
    holds[CKPT__PY_IF_SCHEDULER] = *paths->scheduler;
    holds[CKPT__PY_IF_SCALER] = *paths->scaler;
    holds[CKPT__PY_IF_SCALER_DISABLED] = p->has_scaler;
    holds[CKPT__PY_IF_SCALER_KEY] =
        *key && strcmp(key, "MixedPrecision") != 0 && strcmp(key, "native_amp_scaling_state") != 0;
    holds[CKPT__PY_IF_RNG] = *paths->rng;
    holds[CKPT__PY_IF_CUDA_RNG] = *paths->cuda_rng;
}

static void look_at_optimizer(py_source *s)
{
    const ckpt__examination *p = s->p;
    const char *name = p->optimizer_count > 0 ? class_of(p) : NULL;
    bool *holds = s->holds, named = name && names_known(p);
    if (!named && p->group_count > 1)
        name = NULL; /* which parameters are in which group is not known: the program's own function must say */
    s->class_name = name;
    holds[CKPT__PY_IF_OPTIMIZER] = p->optimizer_count > 0;
    holds[CKPT__PY_IF_SEVERAL] = p->optimizer_count > 1;
    holds[CKPT__PY_IF_CLASS] = name != NULL;
    holds[CKPT__PY_IF_NAMED] = named;
    holds[CKPT__PY_IF_FLAT_STATE] = *p->flat;
    holds[CKPT__PY_IF_MAKE_FUSED] =
        name && ckpt__str_among(ckpt__s(name), "AdamW Adam SGD Adagrad") && any_flag(p, true);
    holds[CKPT__PY_IF_CAPTURABLE] = any_flag(p, false);
    holds[CKPT__PY_IF_CAPTURABLE_ALONE] = any_flag(p, false) && !any_flag(p, true);
}

static bool is_adapter(const ckpt__examination *p)
{
    bool lora = false;
    if (ckpt__format_of(p->index)->adapter)
        return p->optimizer_count == 0;
    for (size_t i = 0; is_flat(p) && !lora && i < p->index->tensor_count; i++) {
        ckpt_str name = p->index->tensors[i].info.name;
        lora = name.size > 17 && memcmp(name.data, "base_model.model.", 17) == 0 &&
               memmem(name.data, name.size, ".lora_A.weight", 14);
    }
    return lora;
}

/* The template of the loader; a directory and an adapter have their own for plain torch. */
static const ckpt__snippet_op *template_of(const ckpt__examination *p)
{
    switch (p->loader->loader) {
    case CKPT_LOADER_LIGHTNING:
        return ckpt__snippet_lightning_py;
    case CKPT_LOADER_ACCELERATE:
        return ckpt__snippet_accelerate_py;
    case CKPT_LOADER_HF_TRAINER:
        return ckpt__snippet_hf_trainer_py;
    case CKPT_LOADER_OWN:
    case CKPT_LOADER_CKPT:
    case CKPT_LOADER_TORCH:
    case CKPT_LOADER_TORCH_CPP:
    case CKPT_LOADER_DCP:
    case CKPT_LOADER_DCP_HF:
    case CKPT_LOADER_DEEPSPEED:
    case CKPT_LOADER_UNIVERSAL:
    case CKPT_LOADER_MEGATRON:
    case CKPT_LOADER_TORCH_DIST:
    case CKPT_LOADER_FSDP:
    case CKPT_LOADER_LLMC:
    case CKPT_LOADER_SAFETENSORS:
    case CKPT_LOADER_HF:
        break;
    }
    if (is_adapter(p))
        return ckpt__snippet_adapter_py;
    return ckpt__index_is_directory(p->index) ? ckpt__snippet_folder_py : ckpt__snippet_torch_py;
}

static void put_python(ckpt__buf *b, const ckpt__examination *p)
{
    py_source s = {.p = p};
    size_t counts[CKPT__PY_EACH_COUNT] = {[CKPT__PY_EACH_GROUP] = p->group_count};
    look_at_file(&s);
    look_at_optimizer(&s);
    ckpt__snippet_expand(b, template_of(p), &(ckpt__snippet){s.holds, counts, put_hole, &s});
}

/* The snippet of an examined checkpoint as the caller's text. What it cannot say without a wrong name is an error. */
static ckpt_status write_snippet(const ckpt__examination *p, bool python, bool run, char **out, ckpt_error *err)
{
    ckpt__buf b = {NULL, 0, 0, false};
    if (!python && p->several.status != CKPT_OK) { /* it would name the states of one parameter as another's */
        if (err)
            *err = p->several;
        return p->several.status;
    }
    if (python)
        put_python(&b, p);
    else
        ckpt__put_snippet_c(&b, p, run);
    if (b.failed || !b.data) {
        ckpt__buf_free(&b);
        return ckpt__fail_memory(err, "the snippet", b.size);
    }
    *out = b.data;
    return CKPT_OK;
}

ckpt_status ckpt_doctor_snippet(const ckpt_reader *reader, const char *language, const ckpt_doctor_options *options,
                                char **out, ckpt_error *err)
{
    ckpt_doctor_options own;
    ckpt_doctor_result result;
    bool run = language && strcmp(language, "run") == 0, python = language && strcmp(language, "torch") == 0;
    if (!reader || !out || !language || (!python && !run && strcmp(language, "c") != 0))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "no reader, no place for the snippet, or a language that is none of torch, c, run");
    *out = NULL;
    ckpt_status known = CKPT__TAKE_OPTIONS(ckpt_doctor_options, &own, options, err);
    if (known < 0)
        return known;
    own.read_values = false;
    const char *no_python = ckpt__format_of(reader->index)->no_python;
    if (python && no_python)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, reader->path, "%s", no_python);
    if (own.loader == CKPT_LOADER_OWN)
        own.loader = ckpt__producer_of(reader->index)->loader;
    if (!python)
        own.loader = CKPT_LOADER_CKPT;
    else if (!ckpt__loader_row_of(own.loader)->python)
        own.loader = CKPT_LOADER_TORCH;
    known = ckpt__order_check(own.assume_order, reader->path, err);
    if (known < 0)
        return known;
    ckpt__examination *p = calloc(1, sizeof *p);
    ckpt_report *findings = ckpt_report_new();
    if (!p || !findings) {
        free(p);
        ckpt_report_free(findings);
        return ckpt__fail_memory(err, "the snippet", 0);
    }
    ckpt_status status = ckpt__doctor_admit(p, reader, &own, &result, err);
    if (status == CKPT_OK && p->shard)
        status = ckpt__fail(err, CKPT_E_UNSUPPORTED, reader->path, "this is %s. There is no resume from it alone; %s",
                            p->whole.what, p->whole.how);
    if (status == CKPT_OK)
        status = ckpt__doctor_examine(p, findings);
    if (status == CKPT_OK)
        status = write_snippet(p, python, run, out, err);
    ckpt_report_free(findings);
    ckpt_doctor_result_clear(&result);
    ckpt__doctor_discharge(p);
    return status;
}
