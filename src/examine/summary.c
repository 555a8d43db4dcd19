/* examine/summary.c - what `show` says of the training state: who wrote it, how far it is, where its parts are, what
 * resumes it. */
#include "examine/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/canon_work.h"
#include "anatomy/part.h"
#include "format/torch/write.h"

ckpt_str ckpt__summary_keep(ckpt_summary *out, ckpt_str text)
{
    return text.data ? ckpt__arena_str(out->owned, text.data, text.size) : text;
}

typedef struct picture {
    const ckpt_reader *reader;
    const ckpt__index *index;
    const ckpt__producer *producer;
    const ckpt_value *root; /* what the producer's paths start from */
    ckpt_summary *out;
    ckpt_error *err;
} picture;

static const ckpt_value *find(const picture *p, const char *alternatives, const char **word, size_t *size)
{
    return ckpt__producer_find(p->root, alternatives, NULL, word, size);
}

/* ---- numbers: a value, a numpy scalar, or a tensor of one element */

/* The dtype and the bytes of one that is not a plain value; NONE: it is no such number. */
static ckpt_dtype scalar_of(const picture *p, const ckpt_value *v, char bytes[16])
{
    static const struct {
        const char *numpy;
        ckpt_dtype dtype;
    } arrays[] = {{"<f8", CKPT_F64}, {"<f4", CKPT_F32}, {"<f2", CKPT_F16}, {"<i8", CKPT_I64}, {"<i4", CKPT_I32}, {"<i2", CKPT_I16},
                  {"|i1", CKPT_I8},  {"<u8", CKPT_U64}, {"<u4", CKPT_U32}, {"<u2", CKPT_U16}, {"|u1", CKPT_U8}};
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

static bool number_of(const picture *p, const ckpt_value *v, double *out)
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
static bool count_of(const picture *p, const ckpt_value *v, int64_t *out)
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

/* The first of the keys that holds a count, at the root or one level below it under the names that trainers use. */
static int64_t count_in(const picture *p, const ckpt_value *root, const char *const *keys)
{
    static const char *const below[] = {NULL, "trainer_state", "progress", "state", "train_state"};
    int64_t n;
    for (size_t b = 0; b < sizeof below / sizeof *below; b++) {
        const ckpt_value *at = below[b] ? ckpt_value_get(root, below[b]) : root;
        for (size_t i = 0; at && keys[i]; i++)
            if (count_of(p, ckpt_value_get(at, keys[i]), &n))
                return n;
    }
    return -1;
}

/* Of a directory: the one file that says it (an RNG file counts its own). */
static int64_t count_in_files(const picture *p, const ckpt_value *root, const char *const *keys)
{
    int64_t found = -1;
    for (size_t i = 0; root && i < root->entry_count; i++) {
        ckpt_str file = root->entries[i].key->text;
        int64_t own =
            file.size > 6 && memcmp(file.data, "random", 6) == 0 ? -1 : count_in(p, root->entries[i].value, keys);
        if (own >= 0 && found >= 0 && own != found)
            return -1;
        found = own >= 0 ? own : found;
    }
    return found;
}

static void take_progress(const picture *p)
{
    static const char *const step_keys[] = {"global_step",  "step",        "iter", "iteration",
                                            "global_steps", "steps",       "it",   "iter_num",
                                            "train_step",   "num_updates", NULL};
    static const char *const epoch_keys[] = {"epoch", "current_epoch", NULL};
    const char *word;
    size_t n;
    double exact;
    ckpt_summary *out = p->out;
    bool files =
        strcmp(p->index->kind, "directory") == 0 && p->root == p->index->root && strcmp(p->index->format, "ckpt") != 0;
    int64_t (*count)(const picture *, const ckpt_value *, const char *const *) = files ? count_in_files : count_in;
    const ckpt_value *step = find(p, p->producer->step, &word, &n), *epoch = find(p, p->producer->epoch, &word, &n);
    out->step = p->index->step;
    if (out->step < 0 && !p->producer->step)
        out->step = count(p, p->root, step_keys);
    else if (out->step < 0)
        count_of(p, step, &out->step);
    out->epoch = p->producer->epoch ? -1 : count(p, p->root, epoch_keys);
    bool whole = count_of(p, epoch, &out->epoch);
    out->epoch_exact = (double)out->epoch;
    if (!whole && number_of(p, epoch, &exact) && exact >= 0 && exact < 1e15) {
        out->epoch = (int64_t)exact;
        out->epoch_exact = exact;
    }
}

/* ---- how well */

/* The HF Trainer's last evaluation: {"eval_loss": ..., "step": ...} in a list of what it has logged. */
static void take_last_evaluation(const picture *p)
{
    ckpt_score *s = &p->out->score;
    char key[120];
    ckpt_str metric = s->name.data ? s->name : ckpt__s("loss");
    const ckpt_value *state = ckpt_value_get(p->root, "trainer_state.json"),
                     *log = ckpt_value_get(state, "log_history");
    bool named = metric.size > 5 && memcmp(metric.data, "eval_", 5) == 0;
    int n = snprintf(key, sizeof key, "%s%.*s", named ? "" : "eval_", (int)(metric.size < 100 ? metric.size : 100),
                     metric.data);
    for (size_t i = log && n > 0 ? log->item_count : 0; i > 0 && !s->has_current; i--)
        s->has_current = number_of(p, ckpt_value_get(log->items[i - 1], key), &s->current);
    if ((s->has_current || s->has_best) && !s->name.data)
        s->name = ckpt__s("eval_loss");
}

static void take_score(const picture *p)
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

static void take_version(const picture *p)
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

static void take_precision(const picture *p)
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

static bool is_below(ckpt_str name, ckpt_str path)
{
    return name.size > path.size && memcmp(name.data, path.data, path.size) == 0 && name.data[path.size] == '.';
}

/* Where the row says, else where tensors are that have the role. */
static void take_ema(const picture *p)
{
    const char *word;
    size_t n;
    ckpt__buf name = {0};
    ckpt_summary *out = p->out;
    ckpt_str path = {NULL, 0};
    if (ckpt__producer_find(p->root, p->producer->ema, &name, &word, &n) && !name.failed)
        path = word ? (ckpt_str){word, n} : (ckpt_str){name.data, name.size};
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        if (path.data ? is_below(t->name, path) : t->role == CKPT_ROLE_EMA)
            out->ema_count++;
        if (!path.data && t->role == CKPT_ROLE_EMA && out->ema_count == 1)
            for (size_t k = 0; k < t->name.size && !out->ema_path.data; k++) /* up to the part that says so */
                if (t->name.data[k] == '.' && ckpt__is_average((ckpt_str){t->name.data, k}))
                    out->ema_path = ckpt__summary_keep(out, (ckpt_str){t->name.data, k});
    }
    if (path.data && out->ema_count)
        out->ema_path = ckpt__summary_keep(out, path);
    ckpt__buf_free(&name);
}

/* ---- names of parts */

static void add_code(ckpt__buf *code, const ckpt_value *key, size_t number)
{
    if (!code)
        return;
    if (!key) {
        ckpt__buf_printf(code, "[%zu]", number);
        return;
    }
    for (size_t i = 0; i < key->text.size; i++)
        code->failed = code->failed || (unsigned char)key->text.data[i] < 0x20 || strchr("\"\\{}", key->text.data[i]);
    ckpt__buf_printf(code, "[\"%s\"]", key->text.data);
}

const ckpt_value *ckpt__summary_at(const ckpt_value *root, ckpt_str path, ckpt__buf *code)
{
    const ckpt_value *at = root;
    const char *p = path.data, *end = path.data + path.size;
    while (at && p < end) {
        if (code && at->kind == CKPT_V_OBJECT)
            code->failed = true; /* an attribute of something that only its own program can build */
        const ckpt_value *next = NULL, *key = NULL;
        size_t taken = 0, number = 0;
        const ckpt_value *state = at->kind == CKPT_V_OBJECT && at->state ? at->state : at;
        for (size_t i = 0; i < state->entry_count; i++) { /* the longest key that fits */
            const ckpt_value *k = state->entries[i].key;
            size_t n = k->text.size, left = (size_t)(end - p);
            if (k->kind == CKPT_V_STR && n <= left && n >= taken && memcmp(k->text.data, p, n) == 0 &&
                (n == left || p[n] == '.')) {
                next = state->entries[i].value;
                key = k;
                taken = n;
            }
        }
        char digits[24];
        for (size_t i = 0; !next && (at->kind == CKPT_V_LIST || at->kind == CKPT_V_TUPLE) && i < at->item_count; i++) {
            size_t n = (size_t)snprintf(digits, sizeof digits, "%zu", i);
            if (n <= (size_t)(end - p) && memcmp(digits, p, n) == 0 && (n == (size_t)(end - p) || p[n] == '.')) {
                next = at->items[i];
                taken = n;
                number = i;
            }
        }
        if (next)
            add_code(code, key, number);
        at = next;
        p += taken < (size_t)(end - p) ? taken + 1 : taken;
    }
    return at;
}

/* The flags of the groups in one word; groups that disagree have none. */
static const char *kind_of(const ckpt__canon *canon)
{
    const char *kind = NULL;
    for (size_t i = 0; i < canon->group_count; i++) {
        const ckpt__canon_group *g = &canon->groups[i];
        const char *own = g->fused == 1        ? "fused"
                          : g->capturable == 1 ? "capturable"
                          : g->foreach == 1    ? "foreach"
                                               : "plain";
        if (kind && strcmp(kind, own) != 0)
            return "mixed";
        kind = own;
    }
    return kind;
}

static void take_paths(const picture *p, const ckpt__canon *canon)
{
    ckpt_summary *out = p->out;
    const ckpt_value *root = p->index->root;
    out->model_path = ckpt__summary_keep(out, canon->model_path);
    out->optimizer_path = ckpt__summary_keep(out, canon->optimizer_path);
    out->scaler_path = ckpt__summary_keep(out, canon->scaler_path);
    if (out->optimizer_path.data)
        out->optimizer = ckpt__summary_at(root, out->optimizer_path, NULL);
    if (!out->optimizer || !ckpt_value_get(out->optimizer, "param_groups")) {      /* one with a key for each value */
        bool mixed = false;
        const ckpt_value *flat = ckpt__flat_unfold(out->optimizer ? out->optimizer : root, out->owned, &mixed);
        const ckpt_value *optimizer = mixed && flat ? ckpt_value_get(flat, "optimizer") : flat;
        if (flat && flat != root && flat != out->optimizer)
            out->optimizer = optimizer;
    }
    if (out->scaler_path.data)
        out->scaler = ckpt__summary_at(root, out->scaler_path, NULL);
    if (strcmp(p->index->format, "ckpt") == 0) { /* canonical already: the paths are the names themselves */
        out->optimizer = out->optimizer ? out->optimizer : ckpt_value_get(root, "optimizer");
        out->scaler = out->scaler ? out->scaler : ckpt_value_get(root, "scaler");
    }
    const char *kind = kind_of(canon);
    if (kind)
        out->optimizer_kind = ckpt__s(kind);
}

/* Canonical names tell which dict is what, and which state belongs to which parameter. */
static ckpt_status take_parts(const picture *p)
{
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    hints.optional_optimizer = true;
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

static void add_line(const picture *p, ckpt__buf *lines, const char *what, const ckpt_value *part, ckpt_str path)
{
    ckpt__buf code = {0};
    if (part && path.data && path.size && part == ckpt__summary_at(p->root, path, &code) && !code.failed)
        ckpt__buf_printf(lines, "\n%s.load_state_dict(ckpt%s)", what, code.data);
    ckpt__buf_free(&code);
}

/* Names as modules have them, in an OrderedDict as state_dict() gives it, or most of them with their owner's in front.
 */
static bool is_state_dict(const ckpt_value *v)
{
    size_t owned = 0;
    if (!ckpt__is_weights(v))
        return false;
    for (size_t i = 0; i < v->entry_count; i++)
        owned += memchr(v->entries[i].key->text.data, '.', v->entries[i].key->text.size) != NULL;
    return ckpt__str_is(v->class_name, "collections.OrderedDict") || owned * 2 > v->entry_count;
}

/* What trainers call the model's dict. */
static bool names_a_model(ckpt_str path)
{
    static const char *const words[] = {"model",   "state_dict", "model_state_dict", "model_state", "net",
                                        "network", "module",     "weights",          "params"};
    for (size_t i = path.size; i > 0; i--)
        if (path.data[i - 1] == '.') {
            path = (ckpt_str){path.data + i, path.size - i};
            break;
        }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ckpt__str_is(path, words[i]))
            return true;
    return false;
}

static void put_lines(const picture *p, ckpt__buf *to)
{
    static const char load[] = "torch.load(\"{path}\", map_location=\"cpu\"{load})";
    ckpt_summary *out = p->out;
    ckpt__buf lines = {0};
    if (out->bare) {
        ckpt__buf_printf(to, "model.load_state_dict(%s)", load);
        return;
    }
    if (p->root == p->index->root && (out->optimizer || names_a_model(out->model_path))) {
        const ckpt_value *model = out->model_path.size ? ckpt__summary_at(p->root, out->model_path, NULL) : NULL;
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
static bool put_archives(const picture *p, ckpt__buf *to)
{
    const ckpt_value *root = p->index->root;
    size_t archives = 0;
    if (strcmp(p->index->format, "folder") != 0 || !root || p->out->resume_file.data)
        return false;
    for (size_t i = 0; i < root->entry_count; i++) {
        ckpt_str name = root->entries[i].value->class_name;
        archives += name.data && strncmp(name.data, "__torch__.", 10) == 0 && root->entries[i].key->kind == CKPT_V_STR;
    }
    for (size_t i = 0; i < root->entry_count && archives == root->entry_count; i++) {
        const ckpt_value *v = root->entries[i].value;
        bool optimizer = ckpt_value_get(v, "param_groups") && ckpt_value_get(v, "state");
        ckpt__buf_printf(to, "%storch::load(%s, \"{path}/%s\")", i ? "\n" : "", optimizer ? "optimizer" : "module", root->entries[i].key->text.data);
    }
    return archives > 1 && archives == root->entry_count;
}

/* config.json's "architectures": the class with its head. AutoModel alone would leave the head out. */
static void put_model(const picture *p, ckpt__buf *to)
{
    const ckpt_value *config = ckpt_value_get(p->root, "config.json"), *list = ckpt_value_get(config, "architectures");
    const ckpt_value *name = list && list->kind == CKPT_V_LIST && list->item_count == 1 ? list->items[0] : NULL;
    const ckpt_value *map = ckpt_value_get(config, "auto_map");    /* of a model whose class is none of transformers' */
    for (size_t i = 0; map && map->kind == CKPT_V_DICT && i < map->entry_count; i++)
        if (map->entries[i].key->kind == CKPT_V_STR && strncmp(map->entries[i].key->text.data, "AutoModelFor", 12) == 0)
            name = map->entries[i].key;
    bool plain = name && name->kind == CKPT_V_STR && name->text.size > 0 && name->text.size < 100 &&
                 (!map || strncmp(name->text.data, "Auto", 4) == 0);
    for (size_t i = 0; plain && i < name->text.size; i++) {
        char c = name->text.data[i];
        plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i > 0 && c >= '0' && c <= '9');
    }
    if (plain)
        ckpt__buf_printf(to, "transformers.%s", name->text.data);
    else
        ckpt__buf_str(to, "AutoModel");
}

static ckpt_status take_resume(const picture *p)
{
    ckpt__whole whole;
    if (ckpt__part_find(p->reader, &whole))
        return CKPT_OK;           /* nothing resumes from a part */
    const char *text = p->producer->resume ? p->producer->resume : "";
    ckpt__buf made = {0};
    if (put_archives(p, &made))
        text = "";
    else
        made.size = 0;
    const char *lines = strstr(text, "{lines}"), *model = strstr(text, "{model}");
    if (model == text) {
        put_model(p, &made);
        text += strlen("{model}");
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
    const ckpt_value *kept = strcmp(index->format, "ckpt") == 0 ? ckpt_value_get(index->root, CKPT__TORCH_KEY) : NULL;
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

static void take_facts(picture *p)
{
    p->out->producer = p->producer->name;
    take_version(p);
    take_progress(p);
    take_score(p);
    take_precision(p);
}

ckpt_status ckpt_summarize(const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err)
{
    if (!reader || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no reader or no place for the answer was given");
    memset(out, 0, sizeof *out);
    out->owned = ckpt__arena_new(0);
    if (!out->owned)
        return ckpt__fail_memory(err, "a summary", 0);
    picture p = {.reader = reader, .index = reader->index, .out = out, .err = err};
    p.producer = ckpt__producer_match(p.index, &p.root, &out->resume_file);
    take_facts(&p);
    take_ema(&p);
    ckpt_status status = take_parts(&p);
    if (status == CKPT_OK)
        status = ckpt__summary_find(p.index, out, err);
    if (status == CKPT_OK)
        status = ckpt__summary_marks(p.index, reader, out, err);
    out->bare = out->producer && strcmp(out->producer, "torch") == 0 && out->model_path.data && !out->model_path.size &&
                out->optimizer_count == 0 && is_state_dict(p.root);
    if (status == CKPT_OK)
        status = take_resume(&p);
    ckpt__index scratch;
    const ckpt_value *root = NULL;
    const ckpt__producer *kept = kept_producer(p.index, &scratch, &root);
    if (kept) {
        int64_t step = out->step;
        p.producer = kept;
        p.root = root;
        take_facts(&p);
        out->step = step >= 0 ? step : out->step;
        out->rewritten = true;
    }
    if (scratch.format) {
        ckpt__index_free_origins(&scratch);
        ckpt__arena_free(scratch.arena);
    }
    if (status < 0)
        ckpt_summary_clear(out);
    return status;
}

void ckpt_summary_clear(ckpt_summary *summary)
{
    if (!summary)
        return;
    ckpt__arena_free(summary->owned);
    memset(summary, 0, sizeof *summary);
}
