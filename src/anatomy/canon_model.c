/* anatomy/canon_model.c - which dicts are a model's state_dict, and the canonical names of what is in them. */
#include "anatomy/canon_work.h"

#include <stdlib.h>
#include "format/table.h"
#include "format/torch/write.h"

/* A state's names are compared with so many dicts above a tensor: real files nest five deep. */
enum { MAX_ABOVE = 16, STRIPS = 3 };

void ckpt__model_free(ckpt__model *model)
{
    ckpt__hash_free(model->by_name);
    free(model->entries);
    memset(model, 0, sizeof *model);
    model->node = SIZE_MAX;
}

/* ---- structure */

static const ckpt_tensor_info *tensor_of(const ckpt__builder *b, size_t node)
{
    const ckpt_value *v = b->tree.nodes[node].value;
    return v->kind == CKPT_V_TENSOR && v->tensor < b->index->tensor_count ? &b->index->tensors[v->tensor].info : NULL;
}

bool ckpt__canon_is_model(const ckpt__index *index, const ckpt_value *v)
{
    return ckpt__is_state_dict(index, v, ckpt__torch_is_closed);
}

static bool add_node(size_t **list, size_t *count, size_t *capacity, size_t node)
{
    if (!ckpt__grow(list, capacity, *count + 1, sizeof **list))
        return false;
    (*list)[(*count)++] = node;
    return true;
}

void ckpt__canon_scan(ckpt__builder *b)
{
    size_t from = 0;
    for (size_t i = 0; i < b->anatomy->count && !b->no_memory; i++) {
        const ckpt__organ *organ = &b->anatomy->organs[i];
        bool optimizer = ckpt__organ_is_optimizer(organ);
        if (organ->node < from || (!optimizer && organ->kind != CKPT__MODEL))
            continue;
        if (optimizer)
            b->no_memory = !add_node(&b->optimizers, &b->optimizer_count, &b->optimizer_capacity, organ->node);
        else
            b->no_memory = !add_node(&b->models, &b->model_count, &b->model_capacity, organ->node);
        if (optimizer || (organ->evidence & CKPT__BY_MODULE)) /* what is below is part of it */
            from = b->tree.nodes[organ->node].end;
    }
}

/* How many of an ascending list are not above a node. */
static size_t count_upto(const size_t *list, size_t count, size_t node)
{
    size_t low = 0;
    for (size_t high = count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (list[middle] <= node)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool in_optimizer(const ckpt__builder *b, size_t node)
{
    size_t n = count_upto(b->optimizers, b->optimizer_count, node);
    return n > 0 && node < b->tree.nodes[b->optimizers[n - 1]].end;
}

/* ---- names */

static size_t prefix_at(const char *name, size_t size)
{
    for (size_t i = 0; i < CKPT__WRAPPERS; i++) {
        size_t n = strlen(ckpt__wrappers[i]);
        if (size > n && memcmp(name, ckpt__wrappers[i], n) == 0)
            return n;
    }
    return 0;
}

/* Appends a name without the prefixes that stand after a dot. */
static void add_stripped(ckpt__buf *out, const char *name, size_t size)
{
    size_t from = 0, skip;
    for (size_t i = 1; i < size; i++) {
        if (name[i - 1] != '.' || (skip = prefix_at(name + i, size - i)) == 0)
            continue;
        ckpt__buf_add(out, name + from, i - from);
        from = i + skip;
        i = from - 1; /* another may follow */
    }
    ckpt__buf_add(out, name + from, size - from);
}

static ckpt_status name_by(ckpt__builder *b, const ckpt_map *map, ckpt_str raw, int strip, ckpt__buf *out)
{
    ckpt__buf stripped = {0};
    const char *name = raw.data;
    size_t size = raw.size, skip;
    ckpt_status s = CKPT_OK;
    while (strip > 0 && (skip = prefix_at(name, size)) > 0) {
        name += skip;
        size -= skip;
    }
    if (strip == 2) {
        add_stripped(&stripped, name, size);
        name = stripped.data ? stripped.data : "";
        size = stripped.size;
    }
    out->size = 0;
    if (map && !stripped.failed)
        s = ckpt__map_rename(map, name, size, out, b->err);
    else
        ckpt__buf_add(out, name, size);
    if (s == CKPT_OK && (stripped.failed || out->failed || !ckpt__buf_reserve(out, 1)))
        s = ckpt__canon_no_memory(b);
    ckpt__buf_free(&stripped);
    return s;
}

ckpt_status ckpt__canon_name_buf(ckpt__builder *b, ckpt_str raw, int strip, ckpt__buf *out)
{
    return name_by(b, b->hints->map, raw, strip, out);
}

static ckpt_status param_name(ckpt__builder *b, const ckpt_map *map, ckpt_str raw, int strip, ckpt_str *out)
{
    ckpt__buf name = {0};
    if (!map && strip == 0 && raw.size) {
        *out = raw;
        return CKPT_OK;
    }
    ckpt_status s = name_by(b, map, raw, strip, &name);
    if (s == CKPT_OK) {
        if (name.size && name.size <= raw.size && memcmp(raw.data + raw.size - name.size, name.data, name.size) == 0)
            *out = (ckpt_str){raw.data + raw.size - name.size, name.size}; /* the same bytes */
        else
            *out = ckpt__arena_str(b->canon->arena, name.data, name.size);
        if (!out->data)
            s = ckpt__canon_no_memory(b);
    }
    ckpt__buf_free(&name);
    return s;
}

ckpt_status ckpt__canon_param_name(ckpt__builder *b, ckpt_str raw, int strip, ckpt_str *out)
{
    return param_name(b, b->hints->map, raw, strip, out);
}

ckpt__param_class ckpt__param_class_of(const ckpt_tensor_info *info, ckpt_str name)
{
    static const ckpt_str surely[] = {CKPT__STR("running_mean"), CKPT__STR("running_var"),
                                      CKPT__STR("num_batches_tracked")};
    static const ckpt_str perhaps[] = {
        CKPT__STR("inv_freq"),
        CKPT__STR("masked_bias"),
        CKPT__STR("zero_k_bias"),
        CKPT__STR("attn_bias_for_masking"),
        CKPT__STR("_mask"),
        CKPT__STR(".mask"),
        CKPT__STR("freqs_cis"),
        CKPT__STR("cos_cached"),
        CKPT__STR("sin_cached"),
        CKPT__STR("._u"),
        CKPT__STR("._v"),
        CKPT__STR(".weight_u"),
        CKPT__STR(".weight_v"),
        CKPT__STR("rotary_emb.cos"),
        CKPT__STR("rotary_emb.sin"),
    };
    if (!ckpt_dtype_is_float(info->dtype) && !ckpt__dtype_row_of(info->dtype)->is_complex)
        return CKPT__A_BUFFER; /* a gradient needs a float, real or complex */
    if (ckpt__str_ends_among(name, surely, sizeof surely / sizeof surely[0]))
        return CKPT__A_BUFFER;
    if (info->role == CKPT_ROLE_BUFFER || ckpt__str_ends_among(name, perhaps, sizeof perhaps / sizeof perhaps[0]))
        return CKPT__MAYBE_BUFFER;
    /* GPT-2's causal mask is called attn.bias and has shape (1, 1, n, n). */
    if (ckpt__str_ends(name, ".bias") && info->ndim == 4 && info->shape[0] == 1 && info->shape[1] == 1)
        return CKPT__MAYBE_BUFFER;
    return CKPT__A_PARAM;
}

ckpt_role ckpt__canon_weight_role(const ckpt_tensor_info *info, ckpt_str name)
{
    if (ckpt__param_class_of(info, name) == CKPT__A_PARAM)
        return CKPT_ROLE_PARAM;
    /* A quantized weight has integers and no gradient, and is a parameter nevertheless. */
    bool quantized = !ckpt_dtype_is_float(info->dtype) && info->ndim > 1 && ckpt__str_ends(name, "weight");
    return quantized ? CKPT_ROLE_PARAM : CKPT_ROLE_BUFFER;
}

void ckpt__canon_give_roles(ckpt__index *index)
{
    bool of_model = ckpt__format_of(index)->of_one_model;
    for (size_t i = 0; of_model && i < index->tensor_count; i++) {
        ckpt_tensor_info *info = &index->tensors[i].info;
        if (info->role == CKPT_ROLE_NONE)
            info->role = ckpt__canon_weight_role(info, info->name);
    }
}

/* ---- a model's entries */

static void view_key(ckpt__buf *key, const ckpt_tensor_info *info)
{
    key->size = 0;
    ckpt__buf_add(key, &info->storage, sizeof info->storage);
    ckpt__buf_add(key, &info->offset, sizeof info->offset);
    ckpt__buf_add(key, &info->dtype, sizeof info->dtype);
    ckpt__buf_add(key, &info->ndim, sizeof info->ndim);
    for (uint32_t d = 0; d < info->ndim; d++) {
        ckpt__buf_add(key, &info->shape[d], sizeof info->shape[d]);
        if (info->strides)
            ckpt__buf_add(key, &info->strides[d], sizeof info->strides[d]);
    }
}

static const ckpt_tensor_info *info_of(const ckpt__builder *b, const ckpt__model *m, size_t entry)
{
    return &b->index->tensors[m->entries[entry].tensor].info;
}

/* Whether a storage is seen by one of the entries (1) or by several (2): most are by one, which is tied to nothing. The
 * heap's; NULL: no memory. */
static unsigned char *count_viewers(const ckpt__builder *b, const ckpt__model *m)
{
    unsigned char *viewers = calloc(b->index->storage_count + 1, 1);
    for (size_t i = 0; viewers && i < m->count; i++) {
        int64_t storage = info_of(b, m, i)->storage;
        if (storage >= 0 && (size_t)storage < b->index->storage_count && viewers[storage] < 2)
            viewers[storage]++;
    }
    return viewers;
}

/* A parameter under two names is one view of one storage; the optimizer holds it once. */
static ckpt_status mark_ties(ckpt__builder *b, ckpt__model *m)
{
    unsigned char *viewers = count_viewers(b, m);
    ckpt__arena *keys = ckpt__arena_new(0);
    ckpt__hash *seen = ckpt__hash_new(16);
    ckpt__buf key = {0};
    ckpt_status s = viewers && keys && seen ? CKPT_OK : ckpt__canon_no_memory(b);
    for (size_t i = 0; i < m->count && s == CKPT_OK; i++) {
        const ckpt_tensor_info *info = info_of(b, m, i);
        if (info->storage < 0 || info->nbytes == 0 ||
            ((size_t)info->storage < b->index->storage_count && viewers[info->storage] < 2))
            continue;
        view_key(&key, info);
        ckpt_str kept = key.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(keys, key.data, key.size);
        int put = kept.data ? ckpt__hash_put(seen, kept.data, kept.size, i, NULL) : -1;
        if (put < 0)
            s = ckpt__canon_no_memory(b);
        else if (put == 0)
            m->entries[i].is = CKPT__A_TIE;
    }
    ckpt__buf_free(&key);
    ckpt__hash_free(seen);
    ckpt__arena_free(keys);
    free(viewers);
    return s;
}

static bool is_scanned_model(const ckpt__builder *b, size_t node)
{
    size_t n = count_upto(b->models, b->model_count, node);
    return n > 0 && b->models[n - 1] == node;
}

/* Of a dict that is no state_dict itself, only what is wanted belongs to the model; with nothing wanted, what lies in
 * the state_dicts below it. */
static bool belongs(const ckpt__builder *b, bool parent_is_model, bool flat, ckpt_str name)
{
    if (flat)
        return true;
    return ckpt__canon_asks(b) ? ckpt__canon_wants(b, name.data, name.size) : parent_is_model;
}

static ckpt_status add_model_entry(ckpt__builder *b, ckpt__model *m, size_t node, ckpt_str name)
{
    ckpt_str own = name;
    if (!ckpt__grow(&m->entries, &m->capacity, m->count + 1, sizeof *m->entries))
        return ckpt__canon_no_memory(b);
    if (b->hints->map) {
        ckpt_status s = param_name(b, NULL, ckpt__tree_relative(&b->tree, m->node, node), m->strip, &own);
        if (s != CKPT_OK)
            return s;
    }
    size_t tensor = b->tree.nodes[node].value->tensor;
    ckpt__param_class is = ckpt__param_class_of(&b->index->tensors[tensor].info, own);
    m->entries[m->count++] = (ckpt__model_entry){name, own, node, tensor, is, SIZE_MAX};
    m->sorted = m->sorted || b->index->tensors[tensor].sorted;
    return CKPT_OK;
}

/* What was made of a safetensors file lists its tensors by dtype and name too: a bias comes before its weight, which no
 * module of torch does. */
static bool listed_by_name(const ckpt__builder *b, const ckpt__model *m)
{
    bool bias_first = false;
    for (size_t i = 1; i < m->count; i++) {
        ckpt_str x = m->entries[i - 1].own, y = m->entries[i].own;
        size_t n = x.size < y.size ? x.size : y.size;
        int order = n ? memcmp(x.data, y.data, n) : 0;
        bool ascends = order < 0 || (order == 0 && x.size < y.size);
        if (!ascends && b->index->tensors[m->entries[i - 1].tensor].info.dtype ==
                            b->index->tensors[m->entries[i].tensor].info.dtype)
            return false;
        bias_first = bias_first || (ckpt__str_ends(x, ".bias") && ckpt__str_ends(y, ".weight") &&
                                    x.size + 2 == y.size && memcmp(x.data, y.data, x.size - 4) == 0);
    }
    return bias_first;
}

/* A part of the name is PEFT's: lora_A, lora_B, lora_embedding_A, lora_magnitude_vector. */
bool ckpt__canon_is_adapter(ckpt_str name)
{
    const size_t n = sizeof "lora" - 1;
    size_t i = 0;
    for (const char *at; i < name.size && (at = memchr(name.data + i, '_', name.size - i)) != NULL; i++) {
        i = (size_t)(at - name.data);
        if (i >= n && memcmp(at - n, "lora", n) == 0 && (i == n || at[-(ptrdiff_t)n - 1] == '.'))
            return true;
    }
    return false;
}

static ckpt_status table_names(ckpt__builder *b, ckpt__model *m)
{
    m->by_name = ckpt__hash_new(m->count);
    ckpt_status s = m->by_name ? CKPT_OK : ckpt__canon_no_memory(b);
    for (size_t i = 0; i < m->count && s == CKPT_OK; i++)
        if (ckpt__hash_put(m->by_name, m->entries[i].name.data, m->entries[i].name.size, i, NULL) < 0)
            s = ckpt__canon_no_memory(b);
    return s;
}

ckpt_status ckpt__canon_read_model(ckpt__builder *b, size_t node, int strip, ckpt__model *out)
{
    ckpt__tree *t = &b->tree;
    memset(out, 0, sizeof *out);
    out->node = node;
    out->strip = strip;
    bool flat = is_scanned_model(b, node), inner = false;
    size_t inner_end = 0, part = node, last_part = SIZE_MAX;
    ckpt_status s = CKPT_OK;
    for (size_t i = node + 1; i < t->nodes[node].end && s == CKPT_OK; i++) {
        if (!flat && is_scanned_model(b, i)) {
            inner = true;
            inner_end = t->nodes[i].end;
            part = i;
        }
        inner = inner && i < inner_end;
        if (flat && ckpt__canon_is_attribute(t, node, i)) {
            i = t->nodes[i].end - 1;
            continue;
        }
        if (!tensor_of(b, i) || t->nodes[i].attribute || (!flat && in_optimizer(b, i)))
            continue;
        ckpt_str name;
        s = ckpt__canon_param_name(b, ckpt__tree_relative(t, node, i), strip, &name);
        if (s != CKPT_OK || !belongs(b, inner, flat, name))
            continue;
        s = add_model_entry(b, out, i, name);
        size_t from = inner ? part : node;
        out->parts += from != last_part;
        last_part = from;
    }
    out->sorted = out->sorted || listed_by_name(b, out);
    if (s == CKPT_OK && b->optimizer_count)
        s = table_names(b, out);
    if (s == CKPT_OK)
        s = mark_ties(b, out);
    for (size_t i = 0; i < out->count; i++)
        out->adapter_count += out->entries[i].is == CKPT__A_PARAM && ckpt__canon_is_adapter(out->entries[i].own);
    return s;
}

/* ---- the dict that the state's names are in */

/* How well the names below a node fit, for each way to strip. A dict with module.w, module.b and n below it, where
 * the state has w and b, has tensors 3 and matched {0, 2, 2}. */
struct score {
    size_t node, matched[STRIPS]; /* matched: tensors whose stripped name the state has */
    size_t tensors;               /* below the node */
};

static ckpt_status score_tensor(ckpt__builder *b, struct score *score, size_t node, ckpt__buf *name)
{
    score->tensors++;
    ckpt_str raw = ckpt__tree_relative(&b->tree, score->node, node);
    for (int strip = 0; strip < STRIPS; strip++) {
        ckpt_status s = ckpt__canon_name_buf(b, raw, strip, name);
        if (s != CKPT_OK)
            return s;
        score->matched[strip] += ckpt__canon_wants(b, name->data, name->size);
    }
    return CKPT_OK;
}

/* Scores all dicts: the ancestors of a tensor are the open ranges around it. */
static ckpt_status score_all(ckpt__builder *b, struct score *scores, size_t *open, ckpt__buf *name)
{
    const ckpt__tree *t = &b->tree;
    size_t depth = 0;
    for (size_t i = 0; i < t->count; i++) {
        scores[i].node = i;
        while (depth > 0 && i >= t->nodes[open[depth - 1]].end)
            depth--;
        if (tensor_of(b, i) && !t->nodes[i].attribute && !in_optimizer(b, i)) {
            for (size_t k = depth; k > 0 && depth - k < MAX_ABOVE; k--) {
                ckpt_status s = score_tensor(b, &scores[open[k - 1]], i, name);
                if (s != CKPT_OK)
                    return s;
            }
        } else if (t->nodes[i].end > i + 1) {
            open[depth++] = i;
        }
    }
    return CKPT_OK;
}

/* Greater is better: names that match; then no names beside them; then not an average. */
static int compare(const ckpt__builder *b, const struct score *x, int sx, const struct score *y, int sy)
{
    if (x->matched[sx] != y->matched[sy])
        return x->matched[sx] > y->matched[sy] ? 1 : -1;
    if (sx != sy)
        return sx < sy ? 1 : -1;
    bool ex = x->tensors == x->matched[sx], ey = y->tensors == y->matched[sy];
    if (ex != ey)
        return ex ? 1 : -1;
    bool ax = ckpt__anatomy_is_average(&b->tree, x->node), ay = ckpt__anatomy_is_average(&b->tree, y->node);
    return ax == ay ? 0 : ay ? 1 : -1;
}

static int best_strip(const struct score *x)
{
    int best = 0;
    for (int s = 1; s < STRIPS; s++)
        if (x->matched[s] > x->matched[best])
            best = s;
    return best;
}

static ckpt_status ambiguous_wanted(ckpt__builder *b, size_t first, size_t second)
{
    char one[160], two[160];
    ckpt_str a = b->tree.nodes[first].name, c = b->tree.nodes[second].name;
    ckpt__escape(one, sizeof one, a.data, a.size);
    ckpt__escape(two, sizeof two, c.data, c.size);
    return ckpt__fail(
        b->err, CKPT_E_MISMATCH, "the model",
        "'%s' and '%s' both have the state's names; say which one in a map file: {map: 1, source: {model: '%s'}}", one,
        two, one);
}

ckpt_status ckpt__canon_match_wanted(ckpt__builder *b, size_t *node, int *strip)
{
    size_t n = b->tree.count, best = SIZE_MAX, rival = SIZE_MAX;
    struct score *scores = calloc(n ? n : 1, sizeof *scores);
    size_t *open = calloc(n ? n : 1, sizeof *open);
    ckpt__buf name = {0};
    ckpt_status s = scores && open ? score_all(b, scores, open, &name) : ckpt__canon_no_memory(b);
    *node = SIZE_MAX;
    for (size_t i = 0; i < n && s == CKPT_OK; i++) {
        int mine = best_strip(&scores[i]);
        if (!scores[i].matched[mine])
            continue;
        int order = best == SIZE_MAX ? 1 : compare(b, &scores[i], mine, &scores[best], best_strip(&scores[best]));
        if (order > 0) {
            best = i;
            rival = SIZE_MAX;
        } else if (order == 0) {
            rival = i;
        }
    }
    if (s == CKPT_OK && rival != SIZE_MAX)
        s = ambiguous_wanted(b, best, rival);
    if (s == CKPT_OK && best != SIZE_MAX) {
        *node = best;
        *strip = best_strip(&scores[best]);
    }
    ckpt__buf_free(&name);
    free(scores);
    free(open);
    return s;
}

ckpt_status ckpt__canon_match_below(ckpt__builder *b, size_t node, int *strip)
{
    struct score score = {.node = node};
    ckpt__buf name = {0};
    ckpt_status s = CKPT_OK;
    for (size_t i = node + 1; i < b->tree.nodes[node].end && s == CKPT_OK; i++)
        if (tensor_of(b, i) && !b->tree.nodes[i].attribute)
            s = score_tensor(b, &score, i, &name);
    ckpt__buf_free(&name);
    *strip = best_strip(&score);
    return s;
}

/* ---- with nothing wanted: another dict that a state's names would fit as well */

static ckpt_status names_below(ckpt__builder *b, size_t node, ckpt__hash *names, size_t *count, ckpt__buf *name)
{
    ckpt_status s = CKPT_OK;
    *count = 0;
    for (size_t i = node + 1; i < b->tree.nodes[node].end && s == CKPT_OK; i++) {
        if (!tensor_of(b, i) || b->tree.nodes[i].attribute)
            continue;
        s = ckpt__canon_name_buf(b, ckpt__tree_relative(&b->tree, node, i), 0, name);
        char *kept = s == CKPT_OK ? ckpt__arena_copy(b->canon->arena, name->data ? name->data : "", name->size) : NULL;
        if (s == CKPT_OK && (!kept || ckpt__hash_put(names, kept, name->size, i, NULL) < 0))
            s = ckpt__canon_no_memory(b);
        (*count)++;
    }
    return s;
}

/* Mostly all tensors are the model's and the optimizer's: nothing need be scored then. */
static bool has_tensors_apart(const ckpt__builder *b, size_t node)
{
    for (size_t i = 0; i < b->tree.count; i++)
        if ((i < node || i >= b->tree.nodes[node].end) && tensor_of(b, i) && !b->tree.nodes[i].attribute &&
            !in_optimizer(b, i))
            return true;
    return false;
}

ckpt_status ckpt__canon_find_rival(ckpt__builder *b, size_t node, size_t *rival)
{
    ckpt__buf name = {0};
    size_t n = b->tree.count, count = 0;
    *rival = SIZE_MAX;
    if (!has_tensors_apart(b, node))
        return CKPT_OK;
    struct score *scores = calloc(n ? n : 1, sizeof *scores);
    size_t *open = calloc(n ? n : 1, sizeof *open);
    ckpt__hash *names = ckpt__hash_new(16);
    ckpt_status s = scores && open && names ? names_below(b, node, names, &count, &name) : ckpt__canon_no_memory(b);
    b->wanted = names; /* as if a state had the names of this model */
    if (s == CKPT_OK)
        s = score_all(b, scores, open, &name);
    b->wanted = NULL;
    for (size_t i = 0; i < n && s == CKPT_OK && *rival == SIZE_MAX; i++) {
        int mine = best_strip(&scores[i]);
        if (i != node && scores[i].tensors &&
            compare(b, &scores[i], mine, &scores[node], best_strip(&scores[node])) == 0)
            *rival = i;
    }
    ckpt__buf_free(&name);
    ckpt__hash_free(names);
    free(scores);
    free(open);
    return s;
}
