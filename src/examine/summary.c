/* examine/summary.c - what `show` says of the training state: who wrote it, how far it is, where its parts are, what
 * resumes it. */
#include "examine/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/canon.h"
#include "model/preorder.h"
#include "base/first_sizes.h"
#include "anatomy/part.h"
#include "format/torch/write.h"
#include "format/table.h"

/* The work on one summary. All pointers are borrowed. */
typedef struct summary_work {
    const ckpt_reader *reader;
    const ckpt__index *index;       /* the reader's */
    const ckpt__producer *producer; /* never NULL */
    const ckpt_value *root;         /* what the producer's paths start from */
    const ckpt__anatomy *anatomy;   /* of the tree that has `root`, as far as that was looked at */
    size_t root_node;               /* of the anatomy: that of `root` */
    ckpt_summary *out;
    ckpt_error *err;
} summary_work;

static const ckpt_value *find(const summary_work *p, const char *alternatives, const char **word, size_t *size)
{
    return ckpt__producer_find(p->root, alternatives, NULL, word, size);
}

/* ---- numbers: a value, a numpy scalar, or a tensor of one element */

/* The dtype and the bytes of one that is not a plain value; NONE: it is no such number. */
static ckpt_dtype scalar_of(const summary_work *p, const ckpt_value *v, char bytes[16])
{
    static const struct {
        const char *numpy;
        ckpt_dtype dtype;
    } arrays[] = {{"<f8", CKPT_F64}, {"<f4", CKPT_F32}, {"<f2", CKPT_F16}, {"<i8", CKPT_I64},
                  {"<i4", CKPT_I32}, {"<i2", CKPT_I16}, {"|i1", CKPT_I8},  {"<u8", CKPT_U64},
                  {"<u4", CKPT_U32}, {"<u2", CKPT_U16}, {"|u1", CKPT_U8}};
    if (v->array && v->text.data) { /* a scalar of numpy's is an object, an array is an array */
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
            if (ckpt__str_is(v->array->dtype, arrays[i].numpy) && v->text.size == ckpt_dtype_size(arrays[i].dtype)) {
                memcpy(bytes, v->text.data, v->text.size);
                return arrays[i].dtype;
            }
    } else if (v->kind == CKPT_V_TENSOR && v->tensor < p->index->tensor_count) {
        const ckpt_tensor_info *t = &p->index->tensors[v->tensor].info;
        bool dense = !t->extra->layout.data && !t->extra->quantizer.data;
        bool one = dense && t->nbytes <= 16 && t->nbytes == ckpt_dtype_size(t->dtype);
        if (one && ckpt_reader_read(p->reader, v->tensor, bytes, t->nbytes, NULL) == CKPT_OK)
            return t->dtype;
    }
    return CKPT_DTYPE_NONE;
}

static bool number_of(const summary_work *p, const ckpt_value *v, double *out)
{
    char bytes[16];
    if (v && (v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT)) {
        *out = v->kind == CKPT_V_FLOAT ? v->real : (double)v->integer;
        return true;
    }
    ckpt_dtype dtype = v ? scalar_of(p, v, bytes) : CKPT_DTYPE_NONE;
    return dtype != CKPT_DTYPE_NONE && ckpt__convert(dtype, bytes, CKPT_F64, out, 1, NULL);
}

/* A whole number >= 0, kept as one. */
static bool count_of(const summary_work *p, const ckpt_value *v, int64_t *out)
{
    static const ckpt_dtype whole[] = {CKPT_I64, CKPT_I32, CKPT_I16, CKPT_I8, CKPT_U64, CKPT_U32, CKPT_U16, CKPT_U8};
    char bytes[16];
    bool changed = false, is_whole = false;
    int64_t n = -1;
    if (v && v->kind == CKPT_V_INT) {
        n = v->integer;
    } else if (v) {
        ckpt_dtype dtype = scalar_of(p, v, bytes);
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
            is_whole = is_whole || dtype == whole[i];
        if (!is_whole || !ckpt__convert(dtype, bytes, CKPT_I64, &n, 1, &changed) || changed)
            return false;
    }
    *out = n >= 0 ? n : *out;
    return n >= 0;
}

/* ---- how far */

static bool is_count(const void *ctx, const ckpt_value *v)
{
    int64_t n;
    return count_of(ctx, v, &n);
}

/* Below a node, or in a dict there that trainers keep counters in. -1: nothing there counts so. */
static int64_t count_in(const summary_work *p, size_t node, unsigned bits)
{
    const ckpt__organ *o = ckpt__anatomy_counter(p->anatomy, bits, node, is_count, p);
    int64_t n = -1;
    for (size_t i = 0; i < CKPT__COUNTER_DICTS && !o; i++) {
        size_t dict = ckpt__tree_child(&p->anatomy->tree, node, ckpt__counter_dicts[i]);
        o = dict == SIZE_MAX ? NULL : ckpt__anatomy_counter(p->anatomy, bits, dict, is_count, p);
    }
    if (o)
        count_of(p, ckpt__organ_value(p->anatomy, o), &n);
    return n;
}

/* Of a directory: the one file that says it (an RNG file counts its own). */
static int64_t count_in_files(const summary_work *p, unsigned bits)
{
    const ckpt__tree *t = &p->anatomy->tree;
    int64_t found = -1;
    for
        CKPT__CHILDREN(t, file, 0)
        {
            int64_t own = ckpt__str_begins_more(t->nodes[file].key, "random") ? -1 : count_in(p, file, bits);
            if (own >= 0 && found >= 0 && own != found)
                return -1;
            found = own >= 0 ? own : found;
        }
    return found;
}

static int64_t count(const summary_work *p, unsigned bits)
{
    if (p->anatomy->tree.count == 0 || p->root_node == SIZE_MAX)
        return -1;
    bool files = ckpt__in_files(p->index) && p->root == p->index->root;
    return files ? count_in_files(p, bits) : count_in(p, p->root_node, bits);
}

static void take_progress(const summary_work *p)
{
    const char *word;
    size_t n;
    double exact;
    ckpt_summary *out = p->out;
    const ckpt_value *step = find(p, p->producer->step, &word, &n), *epoch = find(p, p->producer->epoch, &word, &n);
    out->step = p->index->step;
    if (out->step < 0 && !p->producer->step)
        out->step = count(p, CKPT__COUNTS_STEPS);
    else if (out->step < 0)
        count_of(p, step, &out->step);
    out->epoch = p->producer->epoch ? -1 : count(p, CKPT__COUNTS_EPOCHS);
    bool whole = count_of(p, epoch, &out->epoch);
    out->epoch_exact = (double)out->epoch;
    if (!whole && number_of(p, epoch, &exact) && exact >= 0 && exact < 1e15) {
        out->epoch = (int64_t)exact;
        out->epoch_exact = exact;
    }
}

/* ---- how well */

/* The HF Trainer's last evaluation: {"eval_loss": ..., "step": ...} in a list of what it has logged. */
static void take_last_evaluation(const summary_work *p)
{
    ckpt_score *s = &p->out->score;
    char key[120];
    ckpt_str metric = s->name.data ? s->name : ckpt__s("loss");
    const ckpt_value *state = ckpt_value_get(p->root, "trainer_state.json"),
                     *log = ckpt_value_get(state, "log_history");
    bool named = ckpt__str_begins_more(metric, "eval_");
    int n = snprintf(key, sizeof key, "%s%.*s", named ? "" : "eval_", (int)(metric.size < 100 ? metric.size : 100),
                     metric.data);
    for (size_t i = log && n > 0 ? log->item_count : 0; i > 0 && !s->has_current; i--)
        s->has_current = number_of(p, ckpt_value_get(log->items[i - 1], key), &s->current);
    if ((s->has_current || s->has_best) && !s->name.data)
        s->name = ckpt__s("eval_loss");
}

static void take_score(const summary_work *p)
{
    const ckpt__producer *own = p->producer;
    ckpt_score *s = &p->out->score;
    const char *word;
    size_t n;
    const ckpt_value *name = own->metric && own->metric[0] != '=' ? find(p, own->metric, &word, &n) : NULL;
    if (own->metric && own->metric[0] == '=')
        s->name = ckpt__s(own->metric + 1);
    else if (name && name->kind == CKPT_V_STR)
        s->name = ckpt__summary_keep(p->out, name->text);
    s->has_best = number_of(p, find(p, own->score, &word, &n), &s->best);
    s->has_current = number_of(p, find(p, own->current, &word, &n), &s->current);
    if (own->loader == CKPT_LOADER_HF_TRAINER)
        take_last_evaluation(p);
    if (!s->has_best && !s->has_current)
        s->name = (ckpt_str){NULL, 0};
}

/* ---- versions, precision, averages */

static void take_version(const summary_work *p)
{
    const char *word;
    size_t n;
    const ckpt_value *v = find(p, p->producer->version, &word, &n);
    if (!v || v->kind != CKPT_V_STR)
        return;
    p->out->producer_version = ckpt__summary_keep(p->out, v->text);
    if (word && n)
        p->out->version_of = ckpt__summary_keep(p->out, (ckpt_str){word, n});
}

static void take_precision(const summary_work *p)
{
    const char *word;
    size_t n;
    ckpt__buf name = {0};
    const ckpt_value *v = ckpt__producer_find(p->root, p->producer->precision, &name, &word, &n);
    ckpt_str text = word ? (ckpt_str){word, n} : (ckpt_str){name.data, name.size};
    if (v && v->kind == CKPT_V_STR && ckpt__str_is(text, "="))
        text = v->text;
    if (v && !name.failed)
        p->out->precision = ckpt__summary_keep(p->out, text);
    ckpt__buf_free(&name);
}

/* Where the row says, else where tensors are that have the role. */
static void take_ema(const summary_work *p)
{
    const char *word;
    size_t n;
    ckpt__buf name = {0};
    ckpt_str said = {NULL, 0};
    if (ckpt__producer_find(p->root, p->producer->ema, &name, &word, &n) && !name.failed)
        said = word ? (ckpt_str){word, n} : (ckpt_str){name.data, name.size};
    ckpt__averages averages = ckpt__anatomy_averages(p->index, said);
    p->out->ema_count = averages.count;
    p->out->ema_path = ckpt__summary_keep(p->out, averages.path);
    ckpt__buf_free(&name);
}

/* ---- names of parts */

static void add_code(ckpt__buf *code, const ckpt__step *step)
{
    const ckpt_value *key = step->entry ? step->entry->key : NULL;
    if (!key || key->kind == CKPT_V_INT) {
        ckpt__buf_printf(code, "[%lld]", key ? (long long)key->integer : (long long)step->item);
        return;
    }
    for (size_t i = 0; i < key->text.size; i++)
        code->failed = code->failed || (unsigned char)key->text.data[i] < 0x20 || strchr("\"\\{}", key->text.data[i]);
    ckpt__buf_printf(code, "[\"%s\"]", key->text.data);
}

/* The value of a dotted path, and the path as Python writes it: ["a"][0]. The code is marked as failed where a key cannot be
 * written. */
static const ckpt_value *value_and_code(const ckpt_value *root, ckpt_str path, ckpt__buf *code)
{
    const ckpt_value *v = root;
    for (size_t at = 0; v && at < path.size;) {
        ckpt__step step;
        code->failed =
            code->failed || v->kind == CKPT_V_OBJECT; /* an attribute of what only its own program can build */
        bool there = ckpt__step_into(v, (ckpt_str){path.data + at, path.size - at}, &step);
        if (there)
            add_code(code, &step);
        v = there ? step.value : NULL;
        at += step.taken + 1;
    }
    return v;
}

static const char *kind_of(const ckpt__canon *canon)
{
    const char *kind = NULL;
    for (size_t i = 0; i < canon->group_count; i++)
        kind = ckpt__summary_kind(kind, canon->groups[i].flags);
    return kind;
}

static void take_paths(const summary_work *p, const ckpt__canon *canon)
{
    ckpt_summary *out = p->out;
    const ckpt_value *root = p->index->root;
    out->model_path = ckpt__summary_keep(out, canon->model_path);
    out->optimizer_path = ckpt__summary_keep(out, canon->optimizer_path);
    out->scaler_path = ckpt__summary_keep(out, canon->scaler_path);
    if (out->optimizer_path.data)
        out->optimizer = ckpt__value_at(root, out->optimizer_path);
    if (!out->optimizer || !ckpt_value_get(out->optimizer, "param_groups")) { /* one with a key for each value */
        bool mixed = false;
        const ckpt_value *flat = ckpt__flat_unfold(out->optimizer ? out->optimizer : root, out->owned, &mixed);
        const ckpt_value *optimizer = mixed && flat ? ckpt_value_get(flat, "optimizer") : flat;
        if (flat && flat != root && flat != out->optimizer)
            out->optimizer = optimizer;
    }
    if (out->scaler_path.data)
        out->scaler = ckpt__value_at(root, out->scaler_path);
    if (ckpt__format_of(p->index)->canonical) { /* canonical already: the paths are the names themselves */
        const ckpt_value *own = ckpt_value_get(root, "optimizer"),
                         *inner = own ? ckpt_value_get(own, "optimizer") : NULL;
        if (inner && ckpt_value_get(inner, "param_groups")) /* what Megatron has around torch's */
            own = inner;
        out->optimizer = out->optimizer ? out->optimizer : own;
        out->scaler = out->scaler ? out->scaler : ckpt_value_get(root, "scaler");
    }
    const char *kind = kind_of(canon);
    if (kind)
        out->optimizer_kind = ckpt__s(kind);
}

/* Canonical names tell which dict is what, and which state belongs to which parameter. */
static ckpt_status take_named(const summary_work *p, ckpt__anatomy *anatomy)
{
    ckpt__canon_hints hints = {.anatomy = anatomy, .paths_only = true, .optional_optimizer = true};
    ckpt__canon *canon = NULL;
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt_report *findings = ckpt_report_new();
    if (!findings)
        return ckpt__fail_memory(p->err, "the report", 0);
    ckpt_status status = ckpt__canon_build(p->index, &hints, &canon, findings, &ignored);
    bool dead = ckpt_report_count_code(findings, "dead-state") > 0;
    ckpt_report_free(findings);
    if (status == CKPT_E_NO_MEMORY)
        return ckpt__fail_memory(p->err, "canonical names", 0);
    if (status < 0) /* ambiguous: what was found without it still holds */
        return CKPT_OK;
    take_paths(p, canon);
    const ckpt_value *state = p->out->optimizer && dead ? ckpt_value_get(p->out->optimizer, "state") : NULL;
    status = ckpt__summary_state(p->index, canon, state ? state->entry_count : 0, p->out, p->err);
    ckpt__canon_free(canon);
    return status;
}

/* ---- what resumes it */

static void add_line(const summary_work *p, ckpt__buf *lines, const char *what, const ckpt_value *part, ckpt_str path)
{
    ckpt__buf code = {0};
    if (part && path.data && path.size && part == value_and_code(p->root, path, &code) && !code.failed)
        ckpt__buf_printf(lines, "\n%s.load_state_dict(ckpt%s)", what, code.data);
    ckpt__buf_free(&code);
}

/* What trainers call the model's dict. */
static bool names_a_model(ckpt_str path)
{
    return ckpt__str_among(ckpt__str_last(path),
                           "model state_dict model_state_dict model_state net network module weights params");
}

static void put_lines(const summary_work *p, ckpt__buf *to)
{
    static const char load[] = "torch.load(\"{path}\", map_location=\"cpu\"{load})";
    ckpt_summary *out = p->out;
    ckpt__buf lines = {0};
    if (out->bare) {
        ckpt__buf_printf(to, "model.load_state_dict(%s)", load);
        return;
    }
    if (p->root == p->index->root && (out->optimizer || names_a_model(out->model_path))) {
        const ckpt_value *model = out->model_path.size ? ckpt__value_at(p->root, out->model_path) : NULL;
        add_line(p, &lines, "model", model, out->model_path);
        if (out->optimizer_count == 1)
            add_line(p, &lines, "optimizer", out->optimizer, out->optimizer_path);
        if (out->scheduler_count == 1)
            add_line(p, &lines, "scheduler", out->scheduler, out->scheduler_path);
        if (out->scaler && out->scaler->entry_count)
            add_line(p, &lines, "scaler", out->scaler, out->scaler_path);
    }
    ckpt__buf_printf(to, "%s%s%s", lines.size ? "ckpt = " : "", load, lines.size ? lines.data : "");
    to->failed = to->failed || lines.failed;
    ckpt__buf_free(&lines);
}

/* A directory of libtorch's archives is read file by file. */
static bool put_archives(const summary_work *p, ckpt__buf *to)
{
    const ckpt_value *root = p->index->root;
    size_t archives = 0;
    if (!ckpt__format_of(p->index)->loose_files || !root || p->out->resume_file.data)
        return false;
    for (size_t i = 0; i < root->entry_count; i++) {
        ckpt_str name = root->entries[i].value->class_name;
        archives += ckpt__is_scripted_class(name) && root->entries[i].key->kind == CKPT_V_STR;
    }
    for (size_t i = 0; i < root->entry_count && archives == root->entry_count; i++) {
        const ckpt_value *v = root->entries[i].value;
        bool optimizer = ckpt__is_cpp_optimizer(v);
        ckpt__buf_printf(to, "%storch::load(%s, \"{path}/%s\")", i ? "\n" : "", optimizer ? "optimizer" : "module",
                         root->entries[i].key->text.data);
    }
    return archives > 1 && archives == root->entry_count;
}

/* config.json's "architectures": the class with its head. AutoModel alone would leave the head out. */
static void put_model(const summary_work *p, ckpt__buf *to)
{
    const ckpt_value *config = ckpt_value_get(p->root, "config.json"), *list = ckpt_value_get(config, "architectures");
    const ckpt_value *name = list && list->kind == CKPT_V_LIST && list->item_count == 1 ? list->items[0] : NULL;
    const ckpt_value *map = ckpt_value_get(config, "auto_map"); /* of a model whose class is none of transformers' */
    for (size_t i = 0; map && map->kind == CKPT_V_DICT && i < map->entry_count; i++)
        if (map->entries[i].key->kind == CKPT_V_STR && ckpt__begins(map->entries[i].key->text.data, "AutoModelFor"))
            name = map->entries[i].key;
    bool plain = name && name->kind == CKPT_V_STR && name->text.size > 0 && name->text.size < 100 &&
                 (!map || ckpt__begins(name->text.data, "Auto"));
    for (size_t i = 0; plain && i < name->text.size; i++) {
        char c = name->text.data[i];
        plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i > 0 && c >= '0' && c <= '9');
    }
    if (plain)
        ckpt__buf_printf(to, "transformers.%s", name->text.data);
    else
        ckpt__buf_str(to, "AutoModel");
}

/* The engine looks for the folder that latest names, in the directory that it is given. Where there is no such text, or the path is that
 * folder, it is told: without the tag it would begin anew, with no more than a warning. */
static void put_tag(const summary_work *p, ckpt__buf *to)
{
    const ckpt__job *job = &p->index->job;
    char shown[300];
    ckpt__buf_str(to, job->tag && job->inside_tag ? "/..\"" : "\"");
    if (job->tag)
        ckpt__buf_printf(to, ", tag=\"%s\"", ckpt__escape(shown, sizeof shown, job->tag, strlen(job->tag)));
}

static ckpt_status take_resume(const summary_work *p)
{
    ckpt__whole whole;
    if (ckpt__part_find(p->index, p->reader->path, &whole))
        return CKPT_OK; /* nothing resumes from a part */
    const char *text = p->producer->resume ? p->producer->resume : "";
    ckpt__buf made = {0};
    if (put_archives(p, &made))
        text = "";
    else
        made.size = 0;
    const char *lines = strstr(text, "{lines}"), *model = strstr(text, "{model}"), *tag = strstr(text, "\"{tag}");
    if (model == text) {
        put_model(p, &made);
        text += strlen("{model}");
    }
    if (tag) {
        ckpt__buf_add(&made, text, (size_t)(tag - text));
        put_tag(p, &made);
        text = tag + strlen("\"{tag}");
    }
    ckpt__buf_add(&made, text, lines ? (size_t)(lines - text) : strlen(text));
    if (lines) {
        put_lines(p, &made);
        ckpt__buf_str(&made, lines + strlen("{lines}"));
    }
    if (!made.failed && made.size)
        p->out->resume = ckpt__summary_keep(p->out, (ckpt_str){made.data, made.size});
    bool failed = made.failed || (made.size && !p->out->resume.data);
    ckpt__buf_free(&made);
    return failed ? ckpt__fail_memory(p->err, "how to resume", 0) : CKPT_OK;
}

/* ---- a native file that was made from a torch file keeps its structure, and so its producer */

/* The producer of the kept structure, which lives in scratch->arena: native's own stay as they are. NULL: it keeps
 * none, or none that a row names. */
static const ckpt__producer *kept_producer(const ckpt__index *index, ckpt__index *scratch, const ckpt_value **root)
{
    const ckpt_value *kept = ckpt__format_of(index)->keeps_torch ? ckpt_value_get(index->root, CKPT__TORCH_KEY) : NULL;
    memset(scratch, 0, sizeof *scratch);
    if (!kept || kept->kind != CKPT_V_BYTES)
        return NULL;
    *scratch = *index;
    scratch->origins = NULL;
    scratch->arena = ckpt__arena_new(0);
    const int64_t **strides = calloc(index->tensor_count + 1, sizeof *strides);
    size_t closed = 0;
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_E_NO_MEMORY;
    if (scratch->arena && strides)
        status = ckpt__torch_kept_tree(scratch, kept->text, root, strides, &closed, &ignored);
    free(strides);
    return status == CKPT_OK ? ckpt__producer_of_root(*root) : NULL;
}

static void take_facts(summary_work *p)
{
    p->out->producer = p->producer->name;
    take_version(p);
    take_progress(p);
    take_score(p);
    take_precision(p);
}

/* What the torch structure says that a native file keeps. */
static ckpt_status take_kept(summary_work p)
{
    ckpt__index scratch;
    ckpt__anatomy anatomy = {0};
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    int64_t step = p.out->step;
    const ckpt__producer *kept = kept_producer(p.index, &scratch, &p.root);
    if (kept) {
        scratch.root = p.root;
        status = ckpt__anatomy_build(&scratch, p.anatomy->arena, &anatomy, &ignored);
        p.producer = kept;
        p.anatomy = &anatomy;
        p.root_node = 0;
        take_facts(&p);
        p.out->step = step >= 0 ? step : p.out->step;
        p.out->rewritten = true;
        ckpt__anatomy_free(&anatomy);
    }
    if (scratch.format) {
        ckpt__index_free_origins(&scratch);
        ckpt__arena_free(scratch.arena);
    }
    return status == CKPT_E_NO_MEMORY ? ckpt__fail_memory(p.err, "the structure of a torch file", 0) : CKPT_OK;
}

/* All of it. A tree of more values than can be looked at has the organs that were found till then, and no names. */
static ckpt_status take_all(summary_work *p, ckpt__anatomy *anatomy, bool whole)
{
    ckpt_summary *out = p->out;
    take_facts(p);
    take_ema(p);
    ckpt_status status = whole ? take_named(p, anatomy) : CKPT_OK;
    if (status == CKPT_OK) {
        ckpt__summary_find(anatomy, out);
        status = ckpt__summary_marks(p->index, p->reader, out, p->err);
    }
    out->bare = out->producer && strcmp(out->producer, "torch") == 0 && out->model_path.data && !out->model_path.size &&
                out->optimizer_count == 0 && ckpt__is_bare_state_dict(p->root);
    if (status == CKPT_OK)
        status = take_resume(p);
    return status == CKPT_OK ? take_kept(*p) : status;
}

/* By an anatomy that is whole, or has what was found till there was too much. *out is zero. */
static ckpt_status summarize(const ckpt_reader *reader, ckpt__anatomy *anatomy, bool whole, ckpt_summary *out,
                             ckpt_error *err)
{
    summary_work p = {.reader = reader, .index = reader->index, .out = out, .err = err, .anatomy = anatomy};
    out->owned = ckpt__arena_new(0);
    if (!out->owned)
        return ckpt__fail_memory(err, "a summary", 0);
    p.producer = ckpt__producer_match(p.index, &p.root, &out->resume_file);
    if (p.root != p.index->root)
        p.root_node = out->resume_file.data ? ckpt__tree_child(&anatomy->tree, 0, out->resume_file.data) : SIZE_MAX;
    return take_all(&p, anatomy, whole);
}

static ckpt_status summarize_alone(const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err)
{
    ckpt__anatomy anatomy;
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt__arena *arena = ckpt__arena_new(ckpt__anatomy_names_limit(reader->index));
    if (!arena)
        return ckpt__fail_memory(err, "a summary", 0);
    ckpt_status status = ckpt__anatomy_build(reader->index, arena, &anatomy, &ignored);
    status = status == CKPT_E_NO_MEMORY ? ckpt__fail_memory(err, "canonical names", 0)
                                        : summarize(reader, &anatomy, status == CKPT_OK, out, err);
    ckpt__anatomy_free(&anatomy);
    ckpt__arena_free(arena);
    return status;
}

ckpt_status ckpt__summarize_by(const ckpt_reader *reader, ckpt__anatomy *anatomy, ckpt_summary *out, ckpt_error *err)
{
    *out = (ckpt_summary)CKPT_SUMMARY_INIT;
    ckpt_status status = anatomy ? summarize(reader, anatomy, true, out, err) : summarize_alone(reader, out, err);
    if (status < 0)
        ckpt_summary_clear(out);
    return status;
}

ckpt_status ckpt_summarize(const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err)
{
    ckpt_summary own;
    if (!reader || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no reader or no place for the answer was given");
    ckpt_status status = CKPT__CHECK_ANSWER(ckpt_summary, out, err);
    if (status < 0)
        return status;
    status = ckpt__summarize_by(reader, NULL, &own, err);
    CKPT__GIVE_ANSWER(ckpt_summary, out, &own);
    return status;
}

void ckpt_summary_clear(ckpt_summary *summary)
{
    ckpt_summary own;
    CKPT__TAKE_ANSWER(ckpt_summary, &own, summary);
    ckpt__arena_free(own.owned);
    memset(&own, 0, sizeof own);
    CKPT__GIVE_ANSWER(ckpt_summary, summary, &own);
}
