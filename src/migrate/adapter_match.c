/* migrate/adapter_match.c - --merge-adapter: which tensor of the base each part of the adapter changes. From here on the source's index
 * says of such a tensor that it is computed; the base as it is has a reader of its own. */
#include "migrate/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include "model/views.h"

/* The work of ckpt__migrate_adapter. */
typedef struct matcher {
    ckpt__migration *m;
    ckpt__adapter *a;
    ckpt__hash *listed;    /* owned: name -> tensor of the source */
    ckpt__views views;     /* owned: which tensors view which storage */
    ckpt_str cut, front;   /* an adapter's name without its beginning `cut`, behind `front`, is the base's */
    bool straight, turned; /* some matrix, that is not square, is out x in; in x out */
    bool *taken;           /* heap, owned, one a tensor of the source: a part changes it */
    ckpt_error *err;
} matcher;

/* ---- names */

/* The entry of a weight of the model; NULL: it has none of this name. */
static const ckpt__canon_entry *weight(const matcher *x, ckpt_str name)
{
    const ckpt__canon *canon = x->m->canon;
    size_t i;
    if (!ckpt__hash_get(canon->by_name, name.data, name.size, &i))
        return NULL;
    const ckpt__canon_entry *e = &canon->entries[i];
    bool is = e->is_tensor && !e->outside && !e->state_key.data;
    return is && (e->role == CKPT_ROLE_PARAM || e->role == CKPT_ROLE_BUFFER) ? e : NULL;
}

/* By the adapter's name; `text` holds what it becomes. */
static const ckpt__canon_entry *weight_of(const matcher *x, ckpt_str target, ckpt__buf *text)
{
    if (x->cut.size && !ckpt__str_begins_with(target, x->cut))
        return NULL;
    text->size = 0;
    ckpt__buf_add(text, x->front.data ? x->front.data : "", x->front.size);
    ckpt__buf_add(text, target.data + x->cut.size, target.size - x->cut.size);
    return text->failed ? NULL : weight(x, (ckpt_str){text->data, text->size});
}

/* "model.layers.0.q.weight" where the base has "layers.0.q.weight": one key or two too many in front. */
static bool find_cut(matcher *x, ckpt_str target, ckpt__buf *text)
{
    const char *at = target.data;
    for (size_t i = 0; i < 2; i++) {
        const char *dot = memchr(at, '.', (size_t)(target.data + target.size - at));
        if (!dot)
            break;
        x->cut = (ckpt_str){target.data, (size_t)(dot + 1 - target.data)};
        if (weight_of(x, target, text))
            return true;
        at = dot + 1;
    }
    x->cut = (ckpt_str){NULL, 0};
    return false;
}

/* "layers.0.q.weight" where the base has "model.layers.0.q.weight": the one weight that ends so. */
static ckpt_status find_front(matcher *x, ckpt_str target, bool *found)
{
    const ckpt__canon *canon = x->m->canon;
    char shown[200];
    *found = false;
    for (size_t i = 0; i < canon->count; i++) {
        ckpt_str name = canon->entries[i].name;
        if (name.size <= target.size || name.data[name.size - target.size - 1] != '.' ||
            memcmp(name.data + name.size - target.size, target.data, target.size) != 0 || !weight(x, name))
            continue;
        if (*found)
            return ckpt__fail(
                x->err, CKPT_E_MISMATCH, x->m->src,
                "more than one of its weights ends in '%s', which the adapter changes: take one of its models "
                "with a map file {map: 1, source: {model: 'PATH'}} (--map-location)",
                ckpt__escape(shown, sizeof shown, target.data, target.size));
        x->front = (ckpt_str){name.data, name.size - target.size};
        *found = true;
    }
    return CKPT_OK;
}

/* How names of the adapter become those of the base, by the first that LoRA changes. */
static ckpt_status find_names(matcher *x)
{
    ckpt_str target = x->a->parts[0].target;
    ckpt__buf text = {0};
    bool found = false;
    for (size_t i = x->a->count; i-- > 0;)
        if (x->a->parts[i].kind == CKPT__MERGE_LORA)
            target = x->a->parts[i].target;
    ckpt_status status = CKPT_OK;
    if (!weight_of(x, target, &text) && !find_cut(x, target, &text))
        status = find_front(x, target, &found);
    ckpt__buf_free(&text);
    if (status < 0 || (!x->cut.size && !x->front.size))
        return status;
    char cut[100], front[100];
    return ckpt__migration_note(
        x->m, CKPT_SEVERITY_NOTE, "adapter", (ckpt_str){NULL, 0}, x->err,
        "names of the adapter that begin with '%s' are taken for those of the base that begin with '%s'",
        ckpt__escape(cut, sizeof cut, x->cut.data ? x->cut.data : "", x->cut.size),
        ckpt__escape(front, sizeof front, x->front.data ? x->front.data : "", x->front.size));
}

/* ---- shapes */

static const ckpt_tensor_info *of_adapter(const matcher *x, int64_t i)
{
    return &x->a->reader->index->tensors[i].info;
}

static ckpt_str key_of(const ckpt_tensor_info *t)
{
    return t->path.count ? t->path.keys[t->path.count - 1].text : t->name;
}

static ckpt_status does_not_fit(const matcher *x, const ckpt__merge_part *p, const char *why)
{
    const int64_t last = p->b != CKPT__NO_TENSOR ? p->b : p->magnitude;
    const ckpt_tensor_info *w = &x->m->from->tensors[p->base].info, *b = of_adapter(x, last);
    char key[250], a_shape[100] = "", b_shape[100], name[250], shape[100];
    if (p->a != CKPT__NO_TENSOR)
        ckpt__shape_text(a_shape, sizeof a_shape, of_adapter(x, p->a)->shape, of_adapter(x, p->a)->ndim);
    ckpt__shape_text(b_shape, sizeof b_shape, b->shape, b->ndim);
    ckpt__shape_text(shape, sizeof shape, w->shape, w->ndim);
    return ckpt__fail(
        x->err, CKPT_E_MISMATCH, x->a->path,
        "'%s' has the shape %s%s%s, and does not fit the base's '%s' of %s%s: is this the base that it was trained "
        "on?",
        ckpt__escape(key, sizeof key, key_of(b).data, key_of(b).size), b_shape, *a_shape ? ", its lora_A " : "",
        a_shape, ckpt__escape(name, sizeof name, w->name.data, w->name.size), shape, why);
}

static uint64_t count_of(const ckpt_tensor_info *t)
{
    return t->nbytes / ckpt_dtype_size(t->dtype);
}

/* How a matrix lies in the base: *straight out x in, *turned in x out. */
static void matrix_lies(const matcher *x, const ckpt__merge_part *p, bool *straight, bool *turned)
{
    const ckpt_tensor_info *w = &x->m->from->tensors[p->base].info, *a = of_adapter(x, p->a), *b = of_adapter(x, p->b);
    const bool flat = w->ndim == 2 && a->ndim == 2 && b->ndim == 2;
    *straight = flat && !p->embedding && w->shape[0] == b->shape[0] && w->shape[1] == a->shape[1];
    *turned = flat && w->shape[1] == b->shape[0] && w->shape[0] == a->shape[1];
}

/* Square ones lie as the others do; the settings have to say the same. */
static ckpt_status lies_square(const matcher *x, ckpt__merge_part *p)
{
    const ckpt_value *fan = ckpt_value_get(x->a->config, "fan_in_fan_out");
    bool turned = fan && fan->kind == CKPT_V_BOOL && fan->boolean;
    char name[250];
    ckpt_str target = p->target;
    p->turned = turned;
    if (!(turned ? x->straight : x->turned))
        return CKPT_OK;
    return ckpt__fail(
        x->err, CKPT_E_MISMATCH, x->a->path,
        "whether '%s' is out x in or in x out is not known: it is square, fan_in_fan_out of adapter_config.json is "
        "%s, and other matrices lie otherwise; merge it with PEFT (merge_and_unload), which sees the modules",
        ckpt__escape(name, sizeof name, target.data, target.size), turned ? "true" : "false");
}

/* A convolution: lora_A is rank x in x kernel, lora_B out x rank x 1 ...: both flat, a matrix out x (in x kernel). */
static ckpt_status fit_convolution(const matcher *x, ckpt__merge_part *p)
{
    const ckpt_tensor_info *w = &x->m->from->tensors[p->base].info, *a = of_adapter(x, p->a), *b = of_adapter(x, p->b);
    bool fits = a->ndim == w->ndim && b->ndim == w->ndim && w->shape[0] == b->shape[0];
    for (uint32_t i = 2; fits && i < w->ndim; i++)
        fits = a->shape[i] == w->shape[i] && b->shape[i] == 1;
    if (fits && w->shape[1] > 0 && a->shape[1] != w->shape[1] && a->shape[1] % w->shape[1] == 0)
        return does_not_fit(x, p, ", as the convolution has groups, which PEFT does not merge either");
    if (!fits || a->shape[1] != w->shape[1])
        return does_not_fit(x, p, "");
    p->rows = (uint64_t)w->shape[0];
    p->cols = p->rows ? count_of(w) / p->rows : 0;
    return CKPT_OK;
}

static ckpt_status fit_lora(const matcher *x, ckpt__merge_part *p)
{
    const ckpt_tensor_info *w = &x->m->from->tensors[p->base].info;
    bool straight, turned;
    ckpt_status status = CKPT_OK;
    if (w->ndim > 2 && !p->embedding)
        status = fit_convolution(x, p);
    else {
        matrix_lies(x, p, &straight, &turned);
        if (!straight && !turned)
            return does_not_fit(x, p, "");
        p->turned = turned;
        if (straight && turned)
            status = lies_square(x, p);
        p->rows = (uint64_t)w->shape[0];
        p->cols = (uint64_t)w->shape[1];
    }
    if (status == CKPT_OK && p->magnitude != CKPT__NO_TENSOR &&
        count_of(of_adapter(x, p->magnitude)) != (p->turned ? p->cols : p->rows)) {
        ckpt__merge_part alone = *p;
        alone.a = alone.b = CKPT__NO_TENSOR;
        return does_not_fit(x, &alone, "");
    }
    return status;
}

static ckpt_status fit(const matcher *x, ckpt__merge_part *p)
{
    enum { STRETCH = 16 << 10 };
    const ckpt_tensor_info *w = &x->m->from->tensors[p->base].info;
    const char *dtype = ckpt_dtype_name(w->dtype);
    char name[250];
    if (w->dtype != CKPT_F32 && w->dtype != CKPT_BF16 && w->dtype != CKPT_F16)
        return ckpt__fail(x->err, CKPT_E_UNSUPPORTED, x->m->src,
                          "'%s', which the adapter changes, is %s: only float32, bfloat16 and float16 are merged; %s",
                          ckpt__escape(name, sizeof name, w->name.data, w->name.size), dtype,
                          w->dtype == CKPT_F64 ? "merge it with PEFT"
                                               : "take the base as it was before it was quantized");
    p->dtype = w->dtype;
    if (p->kind == CKPT__MERGE_LORA)
        return fit_lora(x, p);
    const ckpt_tensor_info *b = of_adapter(x, p->b);
    if (!ckpt__same_shape(w->shape, w->ndim, b->shape, b->ndim))
        return does_not_fit(x, p, "");
    p->cols = count_of(w);
    if (p->kind == CKPT__MERGE_TAKE && p->cols > STRETCH)
        p->cols = STRETCH;
    p->rows = p->cols ? (count_of(w) + p->cols - 1) / p->cols : 0;
    return CKPT_OK;
}

/* ---- each part */

static ckpt_status not_there(const matcher *x, const ckpt__merge_part *p)
{
    const ckpt_tensor_info *t = of_adapter(x, p->b != CKPT__NO_TENSOR ? p->b : p->a);
    const bool head = ckpt__str_ends(p->target, "lm_head.weight");
    char key[300], name[300];
    return ckpt__fail(x->err, CKPT_E_MISMATCH, x->a->path,
                      "its key '%s' belongs to no tensor of the base %s: '%s' is not there%s",
                      ckpt__escape(key, sizeof key, key_of(t).data, key_of(t).size), x->m->src,
                      ckpt__escape(name, sizeof name, p->target.data, p->target.size),
                      head ? " (a base that ties it to its embedding does not keep it: merge it with PEFT)"
                           : " (ckpt-inspect list shows its names: is this the base that the adapter was trained on?)");
}

static ckpt_status find_part(matcher *x, ckpt__merge_part *p)
{
    ckpt__buf text = {0};
    const ckpt__canon_entry *e = weight_of(x, p->target, &text);
    bool failed = text.failed, straight, turned;
    ckpt__buf_free(&text);
    if (failed)
        return ckpt__migration_no_memory(x->err);
    if (!e)
        return not_there(x, p);
    p->base = ckpt__listing(x->listed, e);
    if (p->kind != CKPT__MERGE_LORA || p->embedding)
        return CKPT_OK;
    matrix_lies(x, p, &straight, &turned);
    x->straight |= straight && !turned;
    x->turned |= turned && !straight;
    return CKPT_OK;
}

/* From now on the source's tensor is computed. */
static ckpt_status set_made(matcher *x, size_t tensor, size_t storage)
{
    ckpt__migration *m = x->m;
    ckpt__tensor *t = &m->from->tensors[tensor];
    ckpt_str device = t->info.device;
    t->has_crc = false;
    t->info.conj = t->info.neg = false;
    ckpt__leave_pieces(t);
    ckpt_status status = ckpt__index_set_view(m->from, tensor, storage, t->info.shape, NULL, 0, x->err);
    t->info.device = device;
    m->ledger.rows[tensor].own = CKPT__OWN_MERGED;
    m->ledger.rows[tensor].strides = NULL;
    return status;
}

static ckpt_status tied(const matcher *x, const ckpt__merge_part *p, size_t other)
{
    char name[250], second[250];
    ckpt_str a = x->m->from->tensors[p->base].info.name, b = x->m->from->tensors[other].info.name;
    return ckpt__fail(x->err, CKPT_E_UNSUPPORTED, x->m->src,
                      "'%s', which the adapter %s, is tied to '%s'%s: merge it with PEFT (merge_and_unload)",
                      ckpt__escape(name, sizeof name, a.data, a.size),
                      p->kind == CKPT__MERGE_TAKE ? "has a new value for" : "changes",
                      ckpt__escape(second, sizeof second, b.data, b.size),
                      p->kind == CKPT__MERGE_TAKE ? "" : ", which it changes, too");
}

/* Names that the base ties go on being one tensor, as they do in PEFT's model. */
static ckpt_status make_tied(matcher *x, ckpt__merge_part *p, size_t storage, ckpt__tensor was)
{
    const ckpt__index *from = x->m->from;
    ckpt_status status = CKPT_OK;
    size_t count = 0;
    const size_t *views = was.whole ? ckpt__views_of(&x->views, was.storage, &count) : NULL;
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        if (views[i] == p->base || !ckpt__same_view(&from->tensors[views[i]], &was))
            continue;
        if (p->kind == CKPT__MERGE_TAKE || x->taken[views[i]])
            return tied(x, p, views[i]);
        status = set_made(x, views[i], storage);
        if (status == CKPT_OK)
            status = ckpt__migration_note(x->m, CKPT_SEVERITY_NOTE, "merged", from->tensors[views[i]].info.name, x->err,
                                          "tied to a tensor that the adapter changes, and changed with it");
    }
    return status;
}

static ckpt_status note_part(matcher *x, const ckpt__merge_part *p)
{
    ckpt_str name = x->m->from->tensors[p->base].info.name;
    if (p->kind == CKPT__MERGE_TAKE)
        return ckpt__migration_note(x->m, CKPT_SEVERITY_NOTE, "merged", name, x->err, "taken from the adapter");
    if (p->kind == CKPT__MERGE_BIAS)
        return ckpt__migration_note(x->m, CKPT_SEVERITY_NOTE, "merged", name, x->err, "the bias of lora_B is added");
    return ckpt__migration_note(x->m, CKPT_SEVERITY_NOTE, "merged", name, x->err, "LoRA of rank %llu, scaling %.9g%s",
                                (unsigned long long)p->rank, p->scaling,
                                p->magnitude == CKPT__NO_TENSOR ? "" : ", DoRA");
}

static ckpt_status make_part(matcher *x, ckpt__merge_part *p)
{
    ckpt__migration *m = x->m;
    const ckpt__tensor was = m->from->tensors[p->base];
    p->adapter = x->a;
    ckpt_status status = x->taken[p->base] ? tied(x, p, p->base) : fit(x, p);
    if (status < 0 || !was.info.nbytes)
        return status;
    x->taken[p->base] = true;
    ckpt__merge_maker(p);
    ckpt__storage *s = ckpt__index_add_storage(m->from);
    if (!s)
        return ckpt__migration_no_memory(x->err);
    *s = (ckpt__storage){.extent = {.coding = CKPT__MADE, .size = was.info.nbytes, .length = ckpt__merge_reads(p)},
                         .name = was.info.name,
                         .device = was.info.device,
                         .unit = 1};
    s->extent.maker = &p->maker;
    const size_t storage = m->from->storage_count - 1;
    status = set_made(x, p->base, storage);
    if (status == CKPT_OK)
        status = note_part(x, p);
    return status == CKPT_OK ? make_tied(x, p, storage, was) : status;
}

/* ---- the whole */

/* What the optimizer knows is of the weights before the merge. */
static ckpt_status check_state(const ckpt__migration *m, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    char name[200];
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt_tensor_info *t = &x->tensors[i].info;
        bool weights = t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER || t->role == CKPT_ROLE_NONE ||
                       t->role == CKPT_ROLE_OTHER || t->role == CKPT_ROLE_RNG;
        if (ckpt__stays_behind(m, i) || (weights && !t->state_key.data))
            continue;
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->src,
                          "'%s' belongs to the weights as they were before the adapter is merged: say --weights-only",
                          ckpt__escape(name, sizeof name, t->name.data, t->name.size));
    }
    return CKPT_OK;
}

static ckpt_status open_base(const ckpt__migration *m, ckpt__adapter *a, ckpt_error *err)
{
    const ckpt_reader_options reading = {.struct_size = sizeof reading,
                                         .format = m->options.from,
                                         .also = m->options.also,
                                         .also_count = m->options.also_count,
                                         .salvage = m->options.salvage};
    ckpt_status status = ckpt_reader_open(m->src, &reading, &a->base, err);
    if (status == CKPT_OK && a->base->index->tensor_count != m->ledger.read)
        status = ckpt__fail(err, CKPT_E_MISMATCH, m->src, "it was changed while it was read");
    return status;
}

static ckpt_status say_merged(const matcher *x)
{
    size_t counts[3] = {0};
    for (size_t i = 0; i < x->a->count; i++)
        counts[x->a->parts[i].kind]++;
    return ckpt__migration_note(
        x->m, CKPT_SEVERITY_NOTE, "adapter", (ckpt_str){NULL, 0}, x->err,
        "%s: %zu weight%s merged, %zu bias%s added to, %zu tensor%s taken whole; the sums are float32, "
        "as PEFT's on a CPU",
        x->a->path, counts[0], counts[0] == 1 ? "" : "s", counts[1], counts[1] == 1 ? "" : "es", counts[2],
        counts[2] == 1 ? "" : "s");
}

static ckpt_status match(matcher *x)
{
    ckpt__adapter *a = x->a;
    ckpt_status status = find_names(x);
    for (size_t i = 0; status == CKPT_OK && i < a->count; i++)
        status = find_part(x, &a->parts[i]);
    for (size_t i = 0; status == CKPT_OK && i < a->count; i++)
        status = make_part(x, &a->parts[i]);
    return status == CKPT_OK ? say_merged(x) : status;
}

ckpt_status ckpt__migrate_adapter(ckpt__migration *m, ckpt_error *err)
{
    matcher x = {.m = m, .err = err};
    if (!m->options.merge_adapter)
        return CKPT_OK;
    if (m->same)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, m->dst,
            "--merge-adapter does not write --to same of a directory: say --to hf, torch, safetensors or ckpt");
    ckpt_status status = check_state(m, err);
    if (status == CKPT_OK)
        status = ckpt__adapter_open(m->options.merge_adapter, &m->adapter, err);
    if (status == CKPT_OK)
        status = open_base(m, m->adapter, err);
    if (status < 0)
        return status;
    x.a = m->adapter;
    x.listed = ckpt__listed(m, NULL);
    x.taken = calloc(m->from->tensor_count + 1, sizeof *x.taken);
    status =
        x.listed && x.taken && ckpt__views_make(m->from, false, &x.views) ? match(&x) : ckpt__migration_no_memory(err);
    ckpt__views_free(&x.views);
    ckpt__hash_free(x.listed);
    free(x.taken);
    return status;
}

uint64_t ckpt__adapter_memory(const ckpt__migration *m)
{
    uint64_t most = 0;
    if (!m->adapter)
        return 0;
    for (size_t i = 0; i < m->adapter->count; i++) {
        uint64_t its = ckpt__merge_memory(&m->adapter->parts[i]);
        most = most > its ? most : its;
    }
    const ckpt__index *of[] = {m->adapter->reader->index, m->adapter->base->index};
    for (size_t i = 0; i < 2; i++)
        most += ckpt__arena_used(of[i]->arena) + of[i]->tensor_count * sizeof(ckpt__tensor) +
                of[i]->storage_count * sizeof(ckpt__storage);
    return most;
}
