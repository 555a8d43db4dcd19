/* doctor/models.c - several models and several optimizers in one checkpoint: does each optimizer fit one of the models, or some
 * of them together? And one model on several devices. torch matches by position, so shapes in order are all the evidence. */
#include "doctor/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/canon.h"

static const ckpt_str none = {NULL, 0};
enum { MOST = 64 }; /* models, and optimizers: of more nothing is said */

/* The tensors of one dict of weights, in the file's order. */
typedef struct weights {
    ckpt_str key;                     /* of the dict: where it lies */
    size_t *tensors, count, capacity; /* heap, owned: numbers of the parameters; buffers are left out */
    bool average, fits, equal;        /* fits: some optimizer has its parameters; equal: and none beside them */
} weights;

typedef struct models {
    ckpt__hash *numbers;
    weights *items;
    size_t count, capacity;
} models;

static void free_models(models *m)
{
    for (size_t i = 0; i < m->count; i++)
        free(m->items[i].tensors);
    free(m->items);
    ckpt__hash_free(m->numbers);
}

/* The name of a tensor less its last key. */
static ckpt_str dict_of(const ckpt_tensor_info *t)
{
    size_t last = t->path.count ? t->path.keys[t->path.count - 1].text.size : 0;
    return t->path.count > 1 && t->name.size > last ? (ckpt_str){t->name.data, t->name.size - last - 1}
                                                    : (ckpt_str){"", 0};
}

static bool add_tensor(models *m, const ckpt__index *index, size_t tensor)
{
    const ckpt_tensor_info *t = &index->tensors[tensor].info;
    ckpt_str key = dict_of(t);
    size_t i = m->count;
    int put = ckpt__hash_put(m->numbers, key.data, key.size, i, &i);
    if (put < 0 || !ckpt__grow(&m->items, &m->capacity, m->count + (put > 0), sizeof *m->items))
        return false;
    if (put > 0)
        m->items[m->count++] = (weights){.key = key, .average = ckpt__is_average(t->name)};
    weights *w = &m->items[i];
    if (!ckpt__grow(&w->tensors, &w->capacity, w->count + 1, sizeof *w->tensors))
        return false;
    w->tensors[w->count++] = tensor;
    return true;
}

static bool find_models(const ckpt__examination *p, models *m)
{
    m->numbers = ckpt__hash_new(64);
    bool ok = m->numbers != NULL;
    for (size_t i = 0; ok && i < p->index->tensor_count; i++)
        if (p->index->tensors[i].info.role == CKPT_ROLE_PARAM)
            ok = add_tensor(m, p->index, i);
    return ok;
}

/* ---- one optimizer */

/* One optimizer beside the models. An SGD with momentum has shaped[i] = its momentum_buffer i, and SIZE_MAX without
 * one. */
typedef struct fit {
    size_t optimizer;     /* number in p->optimizers */
    size_t *slots, count; /* in the arena: numbers of the optimizer's slots */
    size_t *shaped;       /* in the arena, one a slot: a tensor of its state that has its parameter's shape;
                                   * SIZE_MAX: none */
    size_t model, fits;   /* the first model that the optimizer fits; how many models it fits. fits 0: model
                                   * means nothing */
} fit;

static bool same_shape(const ckpt__index *index, size_t a, size_t b)
{
    const ckpt_tensor_info *x = &index->tensors[a].info, *y = &index->tensors[b].info;
    return ckpt__same_shape(x->shape, x->ndim, y->shape, y->ndim);
}

static size_t shaped_item(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    for (size_t i = slot->first; i < slot->first + slot->count; i++)
        if (p->items[i].tensor != SIZE_MAX && !p->items[i].nested && ckpt__key_has_param_shape(p->items[i].key))
            return p->items[i].tensor;
    return SIZE_MAX;
}

static bool read_slots(const ckpt__examination *p, fit *f)
{
    f->slots = ckpt__arena_array(p->arena, p->slot_count + 1, sizeof *f->slots);
    f->shaped = ckpt__arena_array(p->arena, p->slot_count + 1, sizeof *f->shaped);
    for (size_t i = 0; f->slots && f->shaped && i < p->slot_count; i++) {
        if (p->groups[p->slots[i].group].optimizer != f->optimizer)
            continue;
        f->slots[f->count] = i;
        f->shaped[f->count++] = shaped_item(p, &p->slots[i]);
    }
    return f->slots && f->shaped;
}

static const char *name_of(ckpt__examination *p, size_t optimizer, char *buf, size_t size)
{
    ckpt_str name = p->optimizers[optimizer].name;
    return name.size ? ckpt__escape(buf, size, name.data, name.size) : "the root";
}

/* A number for each shape: equal for equal ones. */
static uint64_t shape_key(const ckpt__index *index, size_t tensor)
{
    const ckpt_tensor_info *t = &index->tensors[tensor].info;
    uint64_t key = t->ndim + UINT64_C(1469598103934665603);
    for (uint32_t d = 0; d < t->ndim; d++)
        key = (key ^ (uint64_t)t->shape[d]) * UINT64_C(1099511628211) + d;
    return key;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The keys of these tensors' shapes in order, SIZE_MAX left out; NULL: no memory. */
static uint64_t *sorted_keys(const ckpt__index *index, const size_t *tensors, size_t count, size_t *kept)
{
    uint64_t *keys = calloc(count + 1, sizeof *keys);
    *kept = 0;
    for (size_t i = 0; keys && i < count; i++)
        if (tensors[i] != SIZE_MAX)
            keys[(*kept)++] = shape_key(index, tensors[i]);
    if (keys)
        qsort(keys, *kept, sizeof *keys, by_key);
    return keys;
}

/* Can each slot have a parameter of its shape for itself among these? */
static bool contains(const ckpt__index *index, const size_t *tensors, size_t count, const fit *f)
{
    size_t have = 0, want = 0, k = 0, found = 0;
    uint64_t *theirs = sorted_keys(index, tensors, count, &have),
             *ours = sorted_keys(index, f->shaped, f->count, &want);
    for (size_t i = 0; theirs && ours && i < want; i++) {
        while (k < have && theirs[k] < ours[i])
            k++;
        if (k == have || theirs[k] != ours[i])
            break;
        k++;
        found++;
    }
    bool all = theirs && ours && found == want && f->count <= count;
    free(theirs);
    free(ours);
    return all;
}

/* Do whole models follow each other in it, in any order, each once? */
static bool is_chain(const ckpt__examination *p, const models *m, const fit *f)
{
    bool used[MOST] = {false};
    size_t at = 0;
    while (at < f->count) {
        size_t best = 0, which = 0;
        for (size_t i = 0; i < m->count; i++) {
            const weights *w = &m->items[i];
            bool here = !used[i] && w->count > best && w->count <= f->count - at;
            for (size_t k = 0; here && k < w->count; k++)
                here = f->shaped[at + k] == SIZE_MAX || same_shape(p->index, w->tensors[k], f->shaped[at + k]);
            which = here ? i : which;
            best = here ? w->count : best;
        }
        if (best == 0)
            return false;
        used[which] = true;
        at += best;
    }
    return true;
}

/* Has some state a shape that no weight at all has? That is found for each tensor by itself (tensors.c). */
static bool has_strange(const ckpt__examination *p, const fit *f)
{
    for (size_t i = 0; i < f->count; i++) {
        bool found = f->shaped[i] == SIZE_MAX;
        for (size_t t = 0; !found && t < p->index->tensor_count; t++) {
            ckpt_role role = p->index->tensors[t].info.role;
            found = (role == CKPT_ROLE_PARAM || role == CKPT_ROLE_BUFFER) && same_shape(p->index, t, f->shaped[i]);
        }
        if (!found)
            return true;
    }
    return false;
}

/* More parameters of some shape than all models of the file have: whosever they are, one of them fails. */
static void too_many(ckpt__examination *p, const fit *f)
{
    char where[120], text[240];
    ckpt_str name = none;
    for (size_t i = 0; i < f->count && !name.data; i++)
        name = f->shaped[i] != SIZE_MAX ? p->index->tensors[f->shaped[i]].info.name : none;
    snprintf(text, sizeof text,
             "the optimizer at '%s' has more parameters of some shape than all models of the file together",
             name_of(p, f->optimizer, where, sizeof where));
    ckpt__doctor_note(p, CKPT__MOMENT_SHAPE, NULL, name, text, NULL, name.data);
}

/* All weights together: an optimizer may have the parameters of several dicts. */
static bool fits_together(const ckpt__examination *p, const models *m, const fit *f, bool *equal)
{
    size_t total = 0;
    for (size_t i = 0; i < m->count; i++)
        total += m->items[i].average ? 0 : m->items[i].count;
    size_t *all = calloc(total + 1, sizeof *all), n = 0;
    for (size_t i = 0; all && i < m->count; i++)
        for (size_t k = 0; k < m->items[i].count && !m->items[i].average; k++)
            all[n++] = m->items[i].tensors[k];
    bool fits = all && contains(p->index, all, n, f);
    *equal = fits && n == f->count;
    free(all);
    return fits;
}

static void undecided(ckpt__examination *p, size_t optimizer, const char *why)
{
    char where[120], text[400];
    snprintf(text, sizeof text, "the optimizer at '%s' %s", name_of(p, optimizer, where, sizeof where), why);
    ckpt__doctor_note(p, CKPT__MODEL_UNDECIDED, NULL, none, text, NULL, NULL);
}

/* Do the optimizer's parameters have the shapes of these? wrong: the first that does not. */
static size_t first_wrong(const ckpt__examination *p, const size_t *tensors, const fit *f, size_t *right)
{
    size_t wrong = SIZE_MAX;
    *right = 0;
    for (size_t k = 0; k < f->count; k++) {
        if (f->shaped[k] == SIZE_MAX)
            continue;
        bool same = same_shape(p->index, tensors[k], f->shaped[k]);
        *right += same;
        wrong = same || wrong != SIZE_MAX ? wrong : k;
    }
    return wrong;
}

/* Two groups, of those that decay and of the others: does one of the ways in which trainers divide them fit? */
static bool fits_split(const ckpt__examination *p, const weights *w, const fit *f)
{
    size_t *list = calloc(w->count + 1, sizeof *list), first = 0, right;
    bool fits = false;
    while (first < f->count && p->slots[f->slots[first]].group == p->slots[f->slots[0]].group)
        first++;
    for (size_t way = 0; list && !fits && first < f->count && way < 2 * ckpt__split_count(); way++) {
        size_t n = 0, head = 0;
        for (size_t part = 0; part < 2; part++) {
            for (size_t k = 0; k < w->count; k++) {
                const ckpt_tensor_info *t = &p->index->tensors[w->tensors[k]].info;
                ckpt_str name = t->path.count ? t->path.keys[t->path.count - 1].text : t->name;
                if (ckpt__split_decays(way / 2, name, t->ndim) == (part == way % 2))
                    list[n++] = w->tensors[k];
            }
            head = part == 0 ? n : head;
        }
        fits = head == first && first_wrong(p, list, f, &right) == SIZE_MAX;
    }
    free(list);
    return fits;
}

/* One group, whose parameters have no names: such a program has handed over model.parameters(). */
static bool is_plain(const ckpt__examination *p, const fit *f)
{
    const ckpt__doctor_group *g = &p->groups[p->slots[f->slots[0]].group];
    return p->slots[f->slots[f->count - 1]].group == p->slots[f->slots[0]].group &&
           !(g->dict && ckpt_value_get(g->dict, "param_names"));
}

/* Where a model has as many parameters as the groups hold ids, in an order that trainers use: the state of an id that stands
 * twice is the last one's. false: no model of that size, or its order is another. */
static bool check_twice(ckpt__examination *p, const models *m, const fit *f)
{
    for (size_t i = 0; i < m->count; i++) {
        const weights *w = &m->items[i];
        size_t right;
        if (w->count != f->count || f->count == 0)
            continue;
        size_t wrong = first_wrong(p, w->tensors, f, &right);
        if (wrong == SIZE_MAX || fits_split(p, w, f))
            return true;
        if (right < 1 || !is_plain(p, f))
            continue;
        ckpt_str name = p->index->tensors[f->shaped[wrong]].info.name;
        ckpt__doctor_note(p, CKPT__MOMENT_SHAPE, NULL, name, "its id stands twice", NULL, name.data);
        return true;
    }
    return false;
}

static void check_ids(ckpt__examination *p)
{
    char id[80], where[120];
    for (size_t i = 0; i < p->optimizer_count; i++) {
        const ckpt__doctor_optimizer *o = &p->optimizers[i];
        if (o->twice.data)
            ckpt__doctor_note(p, CKPT__ID_TWICE, NULL, none, ckpt__escape(id, sizeof id, o->twice.data, o->twice.size),
                              name_of(p, i, where, sizeof where), NULL);
    }
}

/* The models that have all the parameters of the optimizer. */
static void fit_models(const ckpt__examination *p, models *m, fit *f)
{
    for (size_t i = 0; i < m->count; i++) {
        weights *w = &m->items[i];
        if (!contains(p->index, w->tensors, w->count, f))
            continue;
        w->fits = true;
        w->equal = w->equal || w->count == f->count;
        f->model = f->fits++ == 0 ? i : f->model;
    }
}

static bool check_optimizer(ckpt__examination *p, models *m, fit *f)
{
    const ckpt__doctor_optimizer *o = &p->optimizers[f->optimizer];
    bool equal = false;
    if (!read_slots(p, f))
        return false;
    if (o->twice.data) {
        if (!check_twice(p, m, f))
            undecided(p, f->optimizer,
                      "holds an id twice, and no model here has as many parameters in such an order: whose state it is "
                      "is not known");
        return true;
    }
    fit_models(p, m, f);
    if (f->fits > 0 || o->gone || m->count < 2 || is_chain(p, m, f))
        return true;
    bool together = fits_together(p, m, f, &equal);
    if (together && !equal)
        undecided(p, f->optimizer,
                  "fits none of the models alone, and several only in part: whose parameters it has is not known");
    else if (!together && !has_strange(p, f))
        too_many(p, f);
    return true;
}

/* ---- weights that are not in the file */

/* Parameters of the model that the optimizer has as well, each for itself; without a shape it may have any. */
static size_t in_common(const ckpt__index *index, const weights *w, const fit *f)
{
    size_t have = 0, want = 0, k = 0, found = 0;
    uint64_t *theirs = sorted_keys(index, w->tensors, w->count, &have),
             *ours = sorted_keys(index, f->shaped, f->count, &want);
    for (size_t i = 0; theirs && ours && i < have; i++) {
        while (k < want && ours[k] < theirs[i])
            k++;
        if (k < want && ours[k] == theirs[i]) {
            k++;
            found++;
        }
    }
    free(theirs);
    free(ours);
    return found;
}

/* It fits none. Is there a model that is left over, and all of it is among the optimizer's parameters? Then the others are gone.
 * Or has each model an optimizer of its own, and this one has next to nothing of any? Then its model lies elsewhere. */
static void look_for_weights(ckpt__examination *p, const models *m, const fit *f)
{
    const weights *rest = NULL;
    bool all = true, strange = true;
    char a[32], b[32];
    for (size_t i = 0; i < m->count; i++) {
        const weights *w = &m->items[i];
        if (w->average)
            continue;
        size_t common = in_common(p->index, w, f);
        all = all && w->equal;
        strange = strange && 2 * common < f->count;
        if (!w->fits && w->count < f->count && 2 * w->count >= f->count && common == w->count &&
            (!rest || w->count > rest->count))
            rest = w;
    }
    if (!rest && !(all && strange && p->loader->loader == CKPT_LOADER_TORCH))
        return;
    p->optimizers[f->optimizer].gone = true;
    if (!rest) {
        char where[120];
        ckpt__doctor_note(p, CKPT__MODEL_ELSEWHERE, NULL, none, name_of(p, f->optimizer, where, sizeof where), NULL,
                          NULL);
        return;
    }
    snprintf(a, sizeof a, "%zu", rest->count);
    snprintf(b, sizeof b, "%zu", f->count);
    ckpt__doctor_note(p, CKPT__WEIGHTS_FEWER, NULL, rest->key, a, b, NULL);
}

/* Optimizers that fit one and the same model, and cannot both have it, where another model has none. */
static void check_pairs(ckpt__examination *p, const models *m, const fit *fits)
{
    bool spare = false;
    for (size_t i = 0; i < m->count; i++)
        spare = spare || (!m->items[i].fits && !m->items[i].average);
    for (size_t i = 0; spare && i < m->count; i++) {
        size_t slots = 0, first = SIZE_MAX;
        for (size_t o = 0; o < p->optimizer_count; o++) {
            if (fits[o].fits != 1 || fits[o].model != i)
                continue;
            slots += fits[o].count;
            first = first == SIZE_MAX ? o : first;
        }
        if (slots > m->items[i].count && slots > fits[first].count)
            undecided(p, first,
                      "and another one fit the same model, which cannot have both, and a second model has none");
    }
}

/* Shapes that are no parameter's: experts that are trained as one tensor, and moments of a projection. */
static bool has_other_shapes(const ckpt__examination *p)
{
    for (size_t i = 0; i < p->group_count; i++)
        if (ckpt__doctor_hyper(p, &p->groups[i], "rank", NULL))
            return true;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        ckpt_str name = p->index->tensors[i].info.name;
        if (name.size && memmem(name.data, name.size, "experts.", 8))
            return true;
    }
    return false;
}

/* Is there anything that canonical names have not settled? */
static bool is_settled(const ckpt__examination *p)
{
    bool settled = p->optimizer_count > 0;
    for (size_t o = 0; settled && o < p->optimizer_count; o++)
        settled = p->optimizers[o].dict != NULL && !p->optimizers[o].twice.data;
    return settled && p->optimizer_count == 1 && p->canon && ckpt__doctor_named(p);
}

/* ---- one model on several devices */

static void check_devices(ckpt__examination *p)
{
    ckpt_device main_device = {CKPT_DEVICE_NONE, -1}, other = main_device;
    uint64_t count = 0, apart = 0;
    size_t first = SIZE_MAX;
    char a[CKPT_DEVICE_NAME_MAX], b[CKPT_DEVICE_NAME_MAX], c[120];
    for (size_t i = 0; p->canon && i < p->canon->count; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i];
        if (!e->is_tensor || e->outside || e->role != CKPT_ROLE_PARAM || ckpt__is_average(e->own))
            continue;
        ckpt_str tag = p->index->tensors[e->tensor].info.device;
        ckpt_device d = p->map ? p->after[e->tensor] : tag.data ? ckpt__tag_parse(tag) : main_device;
        if (!tag.data || (d.type != CKPT_DEVICE_CPU && !ckpt__is_gpu(d)))
            continue;
        if (main_device.type == CKPT_DEVICE_NONE)
            main_device = d;
        if (ckpt_device_equal(d, main_device)) {
            count++;
            continue;
        }
        other = apart++ == 0 ? d : other;
        first = first == SIZE_MAX ? e->tensor : first;
    }
    if (apart == 0)
        return;
    ckpt__situation s = ckpt__doctor_situation(p);
    s.home = ckpt__is_gpu(main_device) && ckpt__is_gpu(other) ? CKPT__HOME_GPU : CKPT__HOME_CPU;
    snprintf(c, sizeof c, "%llu and %llu of them", (unsigned long long)count, (unsigned long long)apart);
    ckpt__doctor_note(p, CKPT__MODEL_APART, &s, p->index->tensors[first].info.name, ckpt_device_name(main_device, a),
                      ckpt_device_name(other, b), c);
}

ckpt_status ckpt__doctor_gone(ckpt__examination *p)
{
    models m = {NULL, NULL, 0, 0};
    if (!p->loader->python || p->optimizer_count < 2 || p->optimizer_count > MOST || has_other_shapes(p))
        return CKPT_OK;
    fit *fits = ckpt__arena_array(p->arena, p->optimizer_count + 1, sizeof *fits);
    bool ok = fits && find_models(p, &m), few = m.count > 0 && m.count <= MOST;
    for (size_t o = 0; ok && few && o < p->optimizer_count; o++) {
        memset(&fits[o], 0, sizeof fits[o]);
        fits[o].optimizer = o;
        ok = read_slots(p, &fits[o]);
        if (ok && p->optimizers[o].dict && !p->optimizers[o].twice.data)
            fit_models(p, &m, &fits[o]);
    }
    for (size_t o = 0; ok && few && o < p->optimizer_count; o++) {
        bool equal, known = p->optimizers[o].dict && !p->optimizers[o].twice.data && fits[o].count > 0;
        if (known && fits[o].fits == 0 && !is_chain(p, &m, &fits[o]) && !fits_together(p, &m, &fits[o], &equal))
            look_for_weights(p, &m, &fits[o]);
    }
    free_models(&m);
    return ok ? CKPT_OK : ckpt__fail_memory(p->err, "the models of the checkpoint", p->optimizer_count);
}

ckpt_status ckpt__doctor_models(ckpt__examination *p)
{
    bool positional = p->loader->python || p->loader->loader == CKPT_LOADER_TORCH_CPP;
    models m = {NULL, NULL, 0, 0};
    check_devices(p);
    check_ids(p);
    if (!positional || p->optimizer_count == 0 || p->optimizer_count > MOST || is_settled(p) || has_other_shapes(p))
        return CKPT_OK;
    fit *fits = ckpt__arena_array(p->arena, p->optimizer_count + 1, sizeof *fits);
    bool ok = fits && find_models(p, &m);
    if (ok && m.count > 0)
        memset(fits, 0, (p->optimizer_count + 1) * sizeof *fits);
    for (size_t o = 0; ok && m.count > 0 && m.count <= MOST && o < p->optimizer_count; o++) {
        fits[o].optimizer = o;
        ok = !p->optimizers[o].dict || check_optimizer(p, &m, &fits[o]);
    }
    if (ok && m.count > 1 && m.count <= MOST)
        check_pairs(p, &m, fits);
    free_models(&m);
    return ok ? CKPT_OK : ckpt__fail_memory(p->err, "the models of the checkpoint", p->optimizer_count);
}
