/* migrate/stack.c - a target of megatron-core (torch-dist): the layers of its model become one tensor for each parameter of a layer, with
 * the layers along its first dimension, and the experts of a layer along the second. So do the moments and masters. Where layers are kept
 * apart, experts alone are stacked, and other tensors get the name that their key has. The rest of the work sees tensors that are split:
 * nothing is copied.
 *
 *     decoder.layers.0.mlp.linear_fc2.weight   [12, 14]      a piece of   decoder.layers.mlp.linear_fc2.weight   [2, 12, 14]
 *     decoder.layers.1.mlp.linear_fc2.weight   [12, 14]      another one
 *     decoder.layers.1.mlp.experts.local_experts.3.linear_fc2.weight   [12, 14]
 *                                                            one of          decoder.layers.mlp.experts.experts.linear_fc2.weight
 *                                                                            [2, 4, 12, 14] */
#include "migrate/megatron_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "format/megatron/megatron.h"
#include "model/views.h"

enum { MOST_EXPERTS = 100000, DIMS = 2 };

/* A tensor of a stack: in the place at[] of it, by layer, and by expert. */
typedef struct member {
    int64_t at[DIMS];
    size_t entry; /* of the canonical names */
} member;

/* What the layers, or the experts, of one key have of one kind. */
typedef struct stack {
    ckpt_str key, kind; /* kind: "exp_avg", ...; data NULL: the parameter itself */
    member *members;    /* heap */
    size_t count, capacity;
    bool by_layer, by_expert; /* its dimensions; neither: it is one tensor, which has another name */
    ckpt_role role;
} stack;

typedef struct stacking {
    ckpt__migration *m;
    stack *stacks; /* heap */
    size_t count, capacity;
    ckpt__hash *by_name;   /* owned: name of the stacked tensor -> number */
    ckpt__canon_entry one; /* the entry that is looked at: entries move when others are made */
    size_t steps;          /* tensors with a step that were read */
    bool moments;          /* there are some */
    bool masters;          /* there are some: then the groups have the step */
    ckpt_error *err;
} stacking;

static ckpt_status no_memory(const stacking *s)
{
    return ckpt__migration_no_memory(s->err);
}

static ckpt_str whole_name(const stacking *s, ckpt_str key, ckpt_str kind)
{
    ckpt__arena *a = s->m->from->arena;
    if (!kind.data)
        return key;
    ckpt_str head = ckpt__arena_join(a, ckpt__s("optimizer."), key, ckpt__s("."));
    return head.data ? ckpt__arena_join(a, head, kind, (ckpt_str){NULL, 0}) : head;
}

/* ---- which tensors belong together */

static ckpt_status add_to_stack(stacking *s, const ckpt__meg_key *key, size_t entry)
{
    const ckpt_str kept = ckpt__arena_str(s->m->from->arena, key->text, strlen(key->text)),
                   name = kept.data ? whole_name(s, kept, s->one.state_key) : kept;
    size_t at;
    int put = name.data && ckpt__grow(&s->stacks, &s->capacity, s->count + 1, sizeof *s->stacks)
                  ? ckpt__hash_put(s->by_name, name.data, name.size, s->count, &at)
                  : -1;
    if (put < 0)
        return no_memory(s);
    if (put)
        s->stacks[at = s->count++] = (stack){.key = kept,
                                             .kind = s->one.state_key,
                                             .by_layer = !s->m->meg.apart,
                                             .by_expert = key->expert >= 0,
                                             .role = s->one.role};
    stack *own = &s->stacks[at];
    if (!ckpt__grow(&own->members, &own->capacity, own->count + 1, sizeof *own->members))
        return no_memory(s);
    own->members[own->count++] =
        (member){.at = {own->by_layer ? key->layer : 0, own->by_expert ? key->expert : 0}, .entry = entry};
    if (key->expert >= s->m->meg.experts)
        s->m->meg.experts = key->expert + 1;
    return CKPT_OK;
}

static ckpt_status unknown_name(const stacking *s, ckpt_str name)
{
    char shown[300];
    ckpt__escape(shown, sizeof shown, name.data, name.size);
    if (ckpt__str_ends(name, ".mlp.experts.weight1") || ckpt__str_ends(name, ".mlp.experts.weight2"))
        return ckpt__fail(
            s->err, CKPT_E_UNSUPPORTED, shown,
            "it is of all experts of a layer as GroupedMLP has them, turned and one behind the other, and torch-dist has each "
            "by itself: --layout megatron-moe-gemm gives them the names of SequentialMLP first");
    if (ckpt__str_begins(name, "mtp.") || ckpt__str_holds(name, ".mixer.") || ckpt__str_begins(name, "encoder.layers."))
        return ckpt__fail(
            s->err, CKPT_E_UNSUPPORTED, shown,
            "it is of %s, and such models are written as torch-dist only where they are read from torch_dist: "
            "save it with Megatron-LM and --ckpt-format torch_dist",
            ckpt__str_begins(name, "mtp.")     ? "a layer that predicts several tokens (MTP)"
            : ckpt__str_holds(name, ".mixer.") ? "a layer of Mamba"
                                               : "an encoder (T5, BERT)");
    static const char layers[] = "decoder.layers.";
    const size_t head = sizeof layers - 1;
    if (ckpt__str_begins(name, layers) && name.size > head && (name.data[head] < '0' || name.data[head] > '9'))
        return ckpt__fail(
            s->err, CKPT_E_UNSUPPORTED, shown,
            "its layers are one tensor already, and torch-dist is made of tensors of each layer: --layout "
            "megatron-layers parts them");
    return ckpt__fail(
        s->err, CKPT_E_UNSUPPORTED, shown,
        "it is none of the names of megatron-core's GPT model (embedding.word_embeddings.weight, "
        "decoder.layers.0.self_attention.linear_qkv.weight, ...), and torch-dist has tensors by those alone: a layout "
        "that says which of them is which is needed (--layout), or rename them (--rename), or leave it out (--drop)");
}

/* A step of a parameter: megatron-core has one for all of them. */
static ckpt_status take_step(stacking *s, size_t tensor)
{
    ckpt__migration *m = s->m;
    double step = 0;
    bool read = false;
    ckpt_status status = ckpt__read_number(m->reader->source, m->from, tensor, true, &step, &read, s->err);
    if (status < 0 || !read)
        return status;
    if (step < 0 || step > 1e12 || step != (double)(int64_t)step)
        return ckpt__fail(s->err, CKPT_E_UNSUPPORTED, m->from->tensors[tensor].info.name.data,
                          "the step is %g, and megatron-core counts whole steps", step);
    if (s->steps++ && m->common_step != (int64_t)step)
        return ckpt__fail(
            s->err, CKPT_E_UNSUPPORTED, m->from->tensors[tensor].info.name.data,
            "the step of this parameter is %lld, and that of others %lld: megatron-core has one for all of them",
            (long long)(int64_t)step, (long long)m->common_step);
    m->common_step = (int64_t)step;
    ckpt__leave(m, tensor, CKPT__FATE_STACKED);
    return CKPT_OK;
}

static ckpt_status look_at(stacking *s, size_t entry)
{
    const ckpt__canon_entry *e = &s->one;
    const bool state = e->state_key.data != NULL;
    ckpt__meg_key key;
    if (state && ckpt__str_is(e->state_key, "step"))
        return take_step(s, e->tensor);
    if (!ckpt__megatron_has_key(s->m, e))
        return CKPT_OK;
    s->moments |= e->role == CKPT_ROLE_EXP_AVG;
    s->masters |= e->role == CKPT_ROLE_MASTER;
    if (!ckpt__meg_key_of(state ? e->param : e->name, &s->m->meg, &key))
        return unknown_name(s, state ? e->param : e->name);
    if (key.layer >= CKPT__MEGATRON_LAYERS || key.expert >= MOST_EXPERTS)
        return ckpt__fail(s->err, CKPT_E_LIMIT, e->name.data, "a model of more than %d layers, or %d experts in one",
                          (int)CKPT__MEGATRON_LAYERS, (int)MOST_EXPERTS);
    return key.layer < 0 ? CKPT_OK : add_to_stack(s, &key, entry);
}

/* What a torch-dist had, that became another file since. */
static bool is_common_step(ckpt_str name)
{
    return ckpt__str_begins(name, "optimizer.") && ckpt__str_ends(name, ".state.common_step");
}

static ckpt_status find_stacks(stacking *s)
{
    const ckpt__canon *c = s->m->canon;
    ckpt_status status = ckpt__megatron_look(s->m, s->err);
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++) {
        s->one = c->entries[i];
        if (!s->one.is_tensor || ckpt__stays_behind(s->m, s->one.tensor))
            continue;
        if (s->one.outside && is_common_step(s->one.name))
            status = take_step(s, s->one.tensor);
        else if (!s->one.outside)
            status = look_at(s, i);
    }
    return status;
}

/* ---- one tensor of several */

static const ckpt__tensor *tensor_of(const stacking *s, const stack *k, size_t i)
{
    return &s->m->from->tensors[s->m->canon->entries[k->members[i].entry].tensor];
}

/* How many along each dimension; 1 where the stack has it not. */
static void sizes_of(const stacking *s, const stack *k, uint64_t size[DIMS])
{
    size[0] = k->by_layer ? (uint64_t)s->m->meg.layers : 1;
    size[1] = k->by_expert ? (uint64_t)s->m->meg.experts : 1;
}

static uint64_t place_of(const member *m, const uint64_t size[DIMS])
{
    return (uint64_t)m->at[0] * size[1] + (uint64_t)m->at[1];
}

static int by_place(const void *a, const void *b)
{
    const member *x = a, *y = b;
    for (size_t d = 0; d < DIMS; d++)
        if (x->at[d] != y->at[d])
            return x->at[d] < y->at[d] ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* "layer 3", "expert 5 of layer 3" */
static const char *place_text(const stack *k, int64_t layer, int64_t expert, char *out, size_t size)
{
    if (k->by_layer && k->by_expert)
        snprintf(out, size, "expert %lld of layer %lld", (long long)expert, (long long)layer);
    else if (!k->by_layer && !k->by_expert)
        snprintf(out, size, "its layer");
    else
        snprintf(out, size, "%s %lld", k->by_expert ? "expert" : "layer", (long long)(k->by_expert ? expert : layer));
    return out;
}

static ckpt_status twice(const stacking *s, const stack *k, const member *m)
{
    char name[300], place[80];
    const ckpt_str own = s->m->canon->entries[m->entry].name;
    return ckpt__fail(s->err, CKPT_E_MISMATCH, ckpt__escape(name, sizeof name, own.data, own.size),
                      "%s has another tensor for the key '%s' of torch_dist, which has the norms of a layer under "
                      "the name of the linear layer behind them: drop one of them (--drop)",
                      place_text(k, m->at[0], m->at[1], place, sizeof place), k->key.data);
}

static ckpt_status lacks(const stacking *s, const char *name, const stack *k, int64_t layer, int64_t expert)
{
    char place[80], experts[60] = "";
    if (k->by_expert)
        snprintf(experts, sizeof experts, " of %lld experts", (long long)s->m->meg.experts);
    return ckpt__fail(s->err, CKPT_E_MISMATCH, name,
                      "%s has none, and the model has %lld layers%s: torch_dist has the %s of a model in one tensor, "
                      "so each of them is needed",
                      place_text(k, layer, expert, place, sizeof place), (long long)s->m->meg.layers, experts,
                      k->by_expert ? "experts" : "layers");
}

/* All layers and experts are there, each once. */
static ckpt_status order_members(const stacking *s, const char *name, stack *k)
{
    uint64_t size[DIMS];
    sizes_of(s, k, size); /* each is 100000 at most */
    qsort(k->members, k->count, sizeof *k->members, by_place);
    for (size_t i = 0; i < k->count; i++) {
        const uint64_t place = place_of(&k->members[i], size);
        if (i && place == place_of(&k->members[i - 1], size))
            return twice(s, k, &k->members[i]);
        if (place != i)
            return lacks(s, name, k, (int64_t)(i / size[1]), (int64_t)(i % size[1]));
    }
    return k->count == size[0] * size[1]
               ? CKPT_OK
               : lacks(s, name, k, (int64_t)(k->count / size[1]), (int64_t)(k->count % size[1]));
}

static ckpt_status check_member(const stacking *s, const char *name, const stack *k, size_t i)
{
    const ckpt__tensor *own = tensor_of(s, k, i);
    const ckpt_tensor_info *t = &own->info, *one = &tensor_of(s, k, 0)->info;
    const member *m = &k->members[i];
    char a[120], b[120], place[80], first[80];
    place_text(k, m->at[0], m->at[1], place, sizeof place);
    if (ckpt__has_no_bytes(own) && t->nbytes)
        return ckpt__fail(s->err, CKPT_E_UNSUPPORTED, name, "that of %s is not dense, or on meta", place);
    if (t->conj || t->neg || ckpt_dtype_size(t->dtype) == 0)
        return ckpt__fail(s->err, CKPT_E_UNSUPPORTED, name, "that of %s is of %s, which is not stacked", place,
                          t->conj || t->neg ? "a conjugate or negated view" : ckpt_dtype_name(t->dtype));
    if (t->dtype == one->dtype && ckpt__same_shape(t->shape, t->ndim, one->shape, one->ndim))
        return CKPT_OK;
    ckpt__shape_text(a, sizeof a, one->shape, one->ndim);
    ckpt__shape_text(b, sizeof b, t->shape, t->ndim);
    return ckpt__fail(
        s->err, CKPT_E_MISMATCH, name,
        "that of %s is %s %s and that of %s is %s %s: torch_dist has them in one tensor, where each is alike",
        place_text(k, k->members[0].at[0], k->members[0].at[1], first, sizeof first), ckpt_dtype_name(one->dtype), a,
        place, ckpt_dtype_name(t->dtype), b);
}

static ckpt_status check_stack(const stacking *s, stack *k, ckpt_str whole)
{
    char name[300];
    ckpt__escape(name, sizeof name, whole.data, whole.size);
    ckpt_status status = order_members(s, name, k);
    for (size_t i = 0; status == CKPT_OK && i < k->count; i++)
        status = check_member(s, name, k, i);
    return status;
}

/* Dimensions that a stack has before those of its tensors. */
static uint32_t dims_of(const stack *k)
{
    return (uint32_t)k->by_layer + k->by_expert;
}

/* A member's piece, or view, as a piece of the whole. box: room for 3 * (dims + ndim) numbers. */
static ckpt__piece piece_of(const ckpt__tensor *t, const ckpt__view *v, const stack *k, size_t i, int64_t numel,
                            int64_t *box)
{
    const uint32_t n = t->info.ndim, dims = dims_of(k), all = n + dims;
    const int64_t *at = k->members[i].at;
    ckpt__piece p = {.box = box, .at = v->at, .storage = v->storage, .crc = v->crc, .has_crc = v->has_crc};
    if (v->flat) {
        box[0] = (int64_t)v->begin + numel * (int64_t)i; /* members stand in order */
        box[1] = (int64_t)v->count;
        p.flags = CKPT__PIECE_FLAT;
    } else {
        const bool strided = v->strides && !ckpt__is_c_order(v->size, v->strides, n);
        for (uint32_t d = 0; d < dims; d++) {
            box[d] = at[k->by_layer ? d : 1];
            box[all + d] = 1;
            box[2 * all + d] = numel;
        }
        for (uint32_t d = 0; d < n; d++) {
            box[dims + d] = v->lo ? v->lo[d] : 0;
            box[all + dims + d] = v->size[d];
            box[2 * all + dims + d] = v->strides ? v->strides[d] : 0;
        }
        p.flags = strided ? CKPT__PIECE_STRIDED : 0;
    }
    if (v->replica)
        p.flags |= CKPT__PIECE_REPLICA;
    return p;
}

static size_t count_views(const stacking *s, const stack *k)
{
    size_t n = 0;
    for (size_t i = 0; i < k->count; i++)
        n += ckpt__view_count(tensor_of(s, k, i));
    return n;
}

/* The pieces of all members; the boxes lie in `boxes`. */
static void fill_pieces(const stacking *s, const stack *k, int64_t numel, ckpt__piece *pieces, int64_t *boxes)
{
    size_t n = 0;
    for (size_t i = 0; i < k->count; i++) {
        const ckpt__tensor *t = tensor_of(s, k, i);
        for (size_t v = 0; v < ckpt__view_count(t); v++, n++) {
            const ckpt__view view = ckpt__view_of(s->m->from, t, v);
            pieces[n] = piece_of(t, &view, k, i, numel, boxes + n * 3 * ((size_t)t->info.ndim + dims_of(k)));
        }
    }
}

/* The source's last tensor is the stack from now on. */
static ckpt_status add_tensor(const stacking *s, const stack *k, ckpt_str name, const int64_t *shape,
                              const ckpt__piece *pieces, size_t count)
{
    ckpt__migration *m = s->m;
    ckpt__tensor *t = ckpt__index_add_tensor(m->from);
    if (!t || !ckpt__ledger_reach(&m->ledger, m->from->tensor_count))
        return no_memory(s);
    const ckpt_tensor_info one = tensor_of(s, k, 0)->info;
    t->info.name = name;
    t->info.dtype = one.dtype;
    t->info.ndim = one.ndim + dims_of(k);
    t->info.role = k->role;
    t->info.device = one.device;
    t->info.path = one.path; /* one without is a part of what is not dense (ckpt__is_flat) */
    return ckpt__index_set_pieces(m->from, m->from->tensor_count - 1, shape, pieces, count, s->err);
}

static ckpt_status make_tensor(const stacking *s, const stack *k, ckpt_str name)
{
    const ckpt_tensor_info *one = &tensor_of(s, k, 0)->info;
    const uint32_t dims = dims_of(k);
    const size_t views = count_views(s, k);
    uint64_t numel = 0, all, numbers, size[DIMS];
    if (!ckpt__numel(one->shape, one->ndim, &numel) || !ckpt__mul(numel, k->count, &all) || all > INT64_MAX ||
        !ckpt__mul(views + 1, 3 * ((uint64_t)one->ndim + dims + 1), &numbers) || numbers > SIZE_MAX / sizeof(int64_t))
        return ckpt__fail(s->err, CKPT_E_LIMIT, name.data, "its layers have more elements than 64 bits count");
    int64_t *boxes = calloc((size_t)numbers, sizeof *boxes),
            *shape = calloc((size_t)one->ndim + dims + 1, sizeof *shape);
    ckpt__piece *pieces = calloc(views + 1, sizeof *pieces);
    ckpt_status status = boxes && shape && pieces ? CKPT_OK : no_memory(s);
    if (status == CKPT_OK) {
        sizes_of(s, k, size);
        for (uint32_t d = 0; d < dims; d++)
            shape[d] = (int64_t)size[k->by_layer ? d : 1];
        for (uint32_t d = 0; d < one->ndim; d++)
            shape[dims + d] = one->shape[d];
        fill_pieces(s, k, (int64_t)numel, pieces, boxes);
        status = add_tensor(s, k, name, shape, pieces, views);
    }
    free(boxes);
    free(shape);
    free(pieces);
    return status;
}

/* Its name in the target; there is room. */
static ckpt_status add_entry(const stacking *s, const stack *k, ckpt_str name)
{
    ckpt__canon *c = s->m->canon;
    c->entries[c->count] = (ckpt__canon_entry){.name = name,
                                               .own = name,
                                               .tensor = s->m->from->tensor_count - 1,
                                               .param = k->kind.data ? k->key : (ckpt_str){NULL, 0},
                                               .state_key = k->kind,
                                               .role = k->role,
                                               .is_tensor = true};
    return ckpt__hash_put(c->by_name, name.data, name.size, c->count++, NULL) < 0 ? no_memory(s) : CKPT_OK;
}

static ckpt_status make_stack(const stacking *s, stack *k)
{
    const ckpt_str name = whole_name(s, k->key, k->kind);
    ckpt_status status = name.data ? check_stack(s, k, name) : no_memory(s);
    if (status == CKPT_OK)
        status = make_tensor(s, k, name);
    if (status == CKPT_OK)
        status = add_entry(s, k, name);
    for (size_t i = 0; status == CKPT_OK && i < k->count; i++)
        ckpt__leave(s->m, s->m->canon->entries[k->members[i].entry].tensor, CKPT__FATE_STACKED);
    return status;
}

static ckpt_status make_stacks(stacking *s)
{
    ckpt__canon *c = s->m->canon;
    ckpt__canon_entry *entries = realloc(c->entries, (c->count + s->count + 1) * sizeof *entries);
    if (!entries)
        return no_memory(s);
    c->entries = entries;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++)
        status = make_stack(s, &s->stacks[i]);
    return status;
}

/* The groups have the stacks in the place of the layers, each once. */
static ckpt_status name_group(const stacking *s, ckpt__canon_group *g, ckpt__hash *seen)
{
    ckpt__arena *a = s->m->canon->arena;
    ckpt_str *params = ckpt__arena_array(a, g->param_count + 1, sizeof *params);
    size_t count = 0;
    ckpt__meg_key key;
    for (size_t i = 0; params && i < g->param_count; i++) {
        ckpt_str name = g->params[i];
        if (ckpt__meg_key_of(name, &s->m->meg, &key) && !(name = ckpt__arena_str(a, key.text, strlen(key.text))).data)
            return no_memory(s);
        int put = ckpt__hash_put(seen, name.data, name.size, 0, NULL);
        if (put < 0)
            return no_memory(s);
        if (put)
            params[count++] = name;
    }
    g->params = params;
    g->param_count = count;
    return params ? CKPT_OK : no_memory(s);
}

static ckpt_status name_groups(const stacking *s)
{
    ckpt__canon *c = s->m->canon;
    ckpt__hash *seen = ckpt__hash_new(64);
    ckpt_status status = seen ? CKPT_OK : no_memory(s);
    for (size_t g = 0; status == CKPT_OK && g < c->group_count; g++)
        status = name_group(s, &c->groups[g], seen);
    ckpt__hash_free(seen);
    return status;
}

static const char own_step[] = "optimizer.state.common_step"; /* as a torch_dist has it */

/* Where no parameter has a step of its own, the optimizer's stands for all of them, or the checkpoint's, as in the other targets. */
static ckpt_status find_step(stacking *s)
{
    ckpt__migration *m = s->m;
    const ckpt__canon *c = m->canon;
    size_t i;
    const ckpt_value *v = ckpt__hash_get(c->by_name, "step", 4, &i) ? c->entries[i].value : NULL;
    const int64_t step = v && v->kind == CKPT_V_INT ? v->integer : m->from->step;
    if (!s->moments || s->steps)
        return CKPT_OK;
    if (ckpt__hash_get(c->by_name, own_step, sizeof own_step - 1, &i) && !c->entries[i].value)
        return take_step(s, c->entries[i].tensor);
    if (step < 0)
        return CKPT_OK;
    m->common_step = step;
    return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "step-made", (ckpt_str){NULL, 0}, s->err,
                                "no parameter has a step of its own: that of the optimizer is the checkpoint's (%lld)",
                                (long long)step);
}

/* Once for all parameters, as a float32 of no dimensions: torch counts so. */
static ckpt_status make_step(const stacking *s)
{
    ckpt__migration *m = s->m;
    if (s->masters || m->common_step < 0 || m->common_step > 1 << 24)
        return CKPT_OK;
    const ckpt_str kept = ckpt__arena_str(m->from->arena, own_step, sizeof own_step - 1);
    ckpt_status status = kept.data ? ckpt__add_step(m, kept, kept, m->common_step, s->err) : no_memory(s);
    if (status == CKPT_OK)
        m->step_tensor = m->from->tensor_count - 1;
    return status;
}

ckpt_status ckpt__megatron_ready(ckpt__migration *m, ckpt_error *err)
{
    stacking s = {.m = m, .by_name = ckpt__hash_new(64), .err = err};
    m->common_step = -1;
    m->step_tensor = SIZE_MAX;
    if (ckpt__keeps_megatron(m)) {
        ckpt__hash_free(s.by_name);
        return CKPT_OK;
    }
    ckpt_status status = s.by_name ? find_stacks(&s) : no_memory(&s);
    if (status == CKPT_OK)
        status = find_step(&s);
    if (status == CKPT_OK)
        status = make_stacks(&s);
    if (status == CKPT_OK)
        status = name_groups(&s);
    if (status == CKPT_OK)
        status = make_step(&s);
    for (size_t i = 0; i < s.count; i++)
        free(s.stacks[i].members);
    free(s.stacks);
    ckpt__hash_free(s.by_name);
    return status;
}
