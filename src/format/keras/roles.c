/* format/keras/roles.c - what a tensor is to training. A layer's variables are vars/0, vars/1, ... of its group, the trainable ones
 * first (keras/src/layers/layer.py, save_own_variables); an optimizer's are those of the group optimizer. Which parameter a
 * moment belongs to is told by names in a file of Keras 2, and in one of Keras 3 by the order of the layers in config.json,
 * where the shapes leave no choice. */
#include "format/keras/optimizer.h"

#include <stdio.h>
#include <stdlib.h>

/* Each moment is looked for among the weights, and each layer among the groups: beyond that none is. */
enum { MOST = 20000 };

/* ---- paths */

/* The part before the last slash, and the one behind it. */
static ckpt_str parent(ckpt_str path)
{
    size_t n = path.size;
    while (n > 0 && path.data[n - 1] != '/')
        n--;
    return (ckpt_str){path.data, n ? n - 1 : 0};
}

static ckpt_str base(ckpt_str path)
{
    size_t n = parent(path).size;
    n += n < path.size && path.data[n] == '/';
    return (ckpt_str){path.data + n, path.size - n};
}

/* "batch_normalization_3": that class, the fourth of its kind. */
static bool is_numbered(ckpt_str name, const char *class)
{
    size_t n = strlen(class);
    if (!ckpt__str_begins(name, class))
        return false;
    for (size_t i = n + 1; i < name.size; i++)
        if (name.data[i] < '0' || name.data[i] > '9')
            return false;
    return name.size == n || (name.data[n] == '_' && name.size > n + 1);
}

static bool is_slot(ckpt_str path)
{
    return ckpt__str_begins(path, "optimizer/") || ckpt__str_begins(path, "optimizer_weights/");
}

/* Without what TensorFlow puts behind it: "kernel:0". */
static ckpt_str without_output(ckpt_str name)
{
    return ckpt__str_ends(name, ":0") ? (ckpt_str){name.data, name.size - 2} : name;
}

/* ---- weights */

static const ckpt_value *value_of(const ckpt__keras_values *values, const char *key)
{
    for (size_t i = 0; i < values->count; i++)
        if (ckpt__str_is(values->entries[i].key->text, key))
            return values->entries[i].value;
    return NULL;
}

/* How many variables the group of this tensor has: they lie side by side, for tensors are in the order of their paths. */
static void group_of(const ckpt__index *x, size_t i, size_t *first, size_t *count)
{
    ckpt_str group = parent(x->tensors[i].info.name);
    size_t a = i, b = i;
    while (a > 0 && ckpt__str_equal(parent(x->tensors[a - 1].info.name), group))
        a--;
    while (b + 1 < x->tensor_count && ckpt__str_equal(parent(x->tensors[b + 1].info.name), group))
        b++;
    *first = a;
    *count = b - a + 1;
}

/* Keras 3 numbers the variables of a layer; Keras 2 has a group for all of a model, or lists the layers at the root where a
 * file is of weights alone. What lies elsewhere is not known to be a weight. */
static ckpt_role weight_role(const ckpt__index *x, size_t i, bool lists_layers)
{
    enum { STATISTICS = 2, VARIABLES = 4 }; /* gamma and beta may be left out, moving mean and variance never */
    const ckpt_tensor_info *t = &x->tensors[i].info;
    ckpt_str group = parent(t->name), name = without_output(base(t->name)), layer = base(parent(group));
    size_t first, count;
    bool numbered = ckpt__str_is(base(group), "vars");
    if (ckpt__str_among(name, "seed_generator_state") ||
        (numbered && (is_numbered(layer, "seed_generator") || is_numbered(layer, "random_generator"))))
        return CKPT_ROLE_RNG;
    if (ckpt__str_among(name, "moving_mean moving_variance") || (numbered && is_numbered(layer, "normalization")))
        return CKPT_ROLE_BUFFER;
    if (numbered && is_numbered(layer, "batch_normalization")) {
        group_of(x, i, &first, &count);
        if (count >= STATISTICS && count <= VARIABLES && i >= first + count - STATISTICS)
            return CKPT_ROLE_BUFFER;
    }
    bool weight = numbered || lists_layers || ckpt__str_begins(t->name, "model_weights/");
    return weight && ckpt_dtype_is_float(t->dtype) ? CKPT_ROLE_PARAM : CKPT_ROLE_NONE;
}

static void give_weight_roles(ckpt__index *x, const ckpt__keras_values *values)
{
    bool lists_layers = value_of(values, "@layer_names") != NULL;
    for (size_t i = 0; i < x->tensor_count; i++)
        if (!is_slot(x->tensors[i].info.name))
            x->tensors[i].info.role = weight_role(x, i, lists_layers);
}

/* ---- Keras 2: names */

/* Does the weight's path end in `head` (of a moment's name), with '/' or '_' between its parts? "conv2d/kernel" and conv2d_kernel. */
static bool is_weight_of(ckpt_str weight, ckpt_str head)
{
    weight = without_output(weight);
    if (head.size == 0 || head.size >= weight.size || weight.data[weight.size - head.size - 1] != '/')
        return false;
    const char *tail = weight.data + (weight.size - head.size);
    for (size_t i = 0; i < head.size; i++)
        if (tail[i] != head.data[i] && !(tail[i] == '/' && head.data[i] == '_'))
            return false;
    return true;
}

/* The one weight that it names and whose shape it has. */
static void give_named_param(ckpt__index *x, ckpt_tensor_info *slot, ckpt_str head)
{
    const ckpt_tensor_info *found = NULL;
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt_tensor_info *w = &x->tensors[i].info;
        if (w->role != CKPT_ROLE_PARAM || !is_weight_of(w->name, head))
            continue;
        if (!ckpt__same_shape(w->shape, w->ndim, slot->shape, slot->ndim) || found)
            return;
        found = w;
    }
    if (found)
        slot->param = found->name;
}

/* "optimizer_weights/adam/conv2d_kernel_momentum", "optimizer_weights/Adam/dense/kernel/m:0" */
static void give_named_slot(ckpt__index *x, ckpt_tensor_info *t)
{
    static const char *const keys[] = {"velocity_hat",
                                       "accumulated_delta_var",
                                       "accumulated_grad",
                                       "average_gradient",
                                       "gradient_accumulator",
                                       "accumulator",
                                       "momentum",
                                       "velocity",
                                       "average",
                                       "norm",
                                       "linear",
                                       "learning_rate",
                                       "iteration",
                                       "iterations",
                                       "iter",
                                       "vhat",
                                       "rms",
                                       "mg",
                                       "m",
                                       "v"};
    static const char top[] = "optimizer_weights/";
    ckpt_str rest = {t->name.data + sizeof top - 1, t->name.size - (sizeof top - 1)};
    size_t n = 0;
    while (n < rest.size && rest.data[n] != '/')
        n++;
    ckpt_str optimizer = {rest.data, n};
    rest = without_output((ckpt_str){rest.data + n + (n < rest.size), rest.size - n - (n < rest.size)});
    t->role = CKPT_ROLE_OPTIM;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t k = strlen(keys[i]);
        bool ends = ckpt__str_ends(rest, keys[i]);
        if (!ends || (rest.size > k && rest.data[rest.size - k - 1] != '_' && rest.data[rest.size - k - 1] != '/'))
            continue;
        t->state_key = ckpt__s(keys[i]);
        t->role = ckpt__keras_slot_role(optimizer, t->state_key);
        if (rest.size > k && x->tensor_count <= MOST)
            give_named_param(x, t, (ckpt_str){rest.data, rest.size - k - 1});
        return;
    }
}

/* ---- Keras 3: positions */

typedef struct work {
    ckpt__index *index;
    const ckpt__keras_values *values;
    size_t *order, order_count; /* heap: the optimizer's variables */
    size_t *params;             /* heap: the trainable ones of the model, by the layers' order */
    size_t *segment;            /* heap: of each of them, which layer it is of */
    size_t param_count, segments;
    ckpt__keras_slots slots;
} work;

/* Where the layers' groups are told by their names: {"layers/dense/vars@name": "head"}. The group of the layer "head" is
 * "layers/dense"; size 0: there is none, or there are several. */
static ckpt_str group_named(const ckpt__keras_values *values, ckpt_str name)
{
    static const char tail[] = "/vars@name", top[] = "layers/";
    ckpt_str found = {"", 0};
    for (size_t i = 0; i < values->count; i++) {
        ckpt_str key = values->entries[i].key->text;
        const ckpt_value *v = values->entries[i].value;
        if (!v || v->kind != CKPT_V_STR || !ckpt__str_equal(v->text, name) || !ckpt__str_begins(key, top) ||
            !ckpt__str_ends(key, tail))
            continue;
        ckpt_str group = {key.data, key.size - (sizeof tail - 1)};
        if (memchr(group.data + sizeof top - 1, '/', group.size - (sizeof top - 1)))
            continue; /* of a layer within a layer */
        if (found.size)
            return (ckpt_str){"", 0};
        found = group;
    }
    return found;
}

static bool is_below(ckpt_str path, ckpt_str group)
{
    return path.size > group.size && ckpt__str_begins_with(path, group) && path.data[group.size] == '/';
}

/* The parameters of one layer are one segment: those of one group are in order, those of several are not known to be. */
static size_t add_segment(work *w, ckpt_str group)
{
    size_t count = 0;
    for (size_t i = 0; i < w->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &w->index->tensors[i].info;
        if (t->role != CKPT_ROLE_PARAM || (group.size && !is_below(t->name, group)))
            continue;
        if (w->param_count == w->index->tensor_count)
            return count; /* the file names a layer twice */
        w->params[w->param_count] = i;
        w->segment[w->param_count++] = w->segments;
        count++;
    }
    w->segments++;
    return count;
}

/* keras/src/layers/rnn/bidirectional.py makes the one that runs forward first; the names of the two are in the other order. */
static size_t add_both_ways(work *w, ckpt_str group)
{
    static const char *const ways[] = {"forward_layer", "backward_layer"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char path[512];
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)(group.size < 400 ? group.size : 400), group.data, ways[i]);
        count += add_segment(w, (ckpt_str){path, (size_t)n});
    }
    return count;
}

static size_t add_layer(work *w, ckpt_str group, const ckpt_value *layer)
{
    const ckpt_value *class = ckpt_value_get(layer, "class_name");
    bool both_ways = class && class->kind == CKPT_V_STR && ckpt__str_is(class->text, "Bidirectional");
    return both_ways ? add_both_ways(w, group) : add_segment(w, group);
}

static bool is_frozen(const ckpt_value *layer)
{
    const ckpt_value *config = ckpt_value_get(layer, "config");
    const ckpt_value *trainable = config ? ckpt_value_get(config, "trainable") : NULL;
    return trainable && trainable->kind == CKPT_V_BOOL && !trainable->boolean;
}

/* The layers in the order of the model's variables, where Keras made them so; else NULL. */
static const ckpt_value *layers_of(const ckpt_value *config)
{
    const ckpt_value *class = config ? ckpt_value_get(config, "class_name") : NULL;
    const ckpt_value *model = config ? ckpt_value_get(config, "config") : NULL;
    const ckpt_value *layers = model ? ckpt_value_get(model, "layers") : NULL;
    bool in_order = class && class->kind == CKPT_V_STR && ckpt__str_among(class->text, "Functional Sequential Model");
    return in_order && layers && layers->kind == CKPT_V_LIST && layers->item_count <= MOST ? layers : NULL;
}

/* By the layers of config.json; without them all of the model is one segment. */
static void find_params(work *w, const ckpt_value *config)
{
    const ckpt_value *layers = layers_of(config);
    size_t all = 0, frozen = 0;
    for (size_t i = 0; i < w->index->tensor_count; i++)
        all += w->index->tensors[i].info.role == CKPT_ROLE_PARAM;
    for (size_t i = 0; layers && i < layers->item_count; i++) {
        const ckpt_value *settings = ckpt_value_get(layers->items[i], "config");
        const ckpt_value *name = settings ? ckpt_value_get(settings, "name") : NULL;
        ckpt_str group = name && name->kind == CKPT_V_STR ? group_named(w->values, name->text) : (ckpt_str){"", 0};
        size_t before = w->param_count;
        if (group.size == 0)
            continue;
        size_t count = add_layer(w, group, layers->items[i]);
        if (is_frozen(layers->items[i])) {
            w->param_count = before;
            frozen += count;
        }
    }
    if (w->param_count + frozen == all)
        return;
    w->param_count = w->segments = 0; /* weights that belong to no layer of the list: its order says nothing */
    add_segment(w, (ckpt_str){"", 0});
}

/* Are all of the segment's parameters in one group? Then they are in the order of their numbers. */
static bool is_ordered(const work *w, size_t begin, size_t end)
{
    ckpt_str group = parent(w->index->tensors[w->params[begin]].info.name);
    for (size_t i = begin; i < end; i++)
        if (!ckpt__str_equal(parent(w->index->tensors[w->params[i]].info.name), group))
            return false;
    return true;
}

static bool same_shape(const work *w, size_t a, size_t b)
{
    const ckpt_tensor_info *x = &w->index->tensors[a].info, *y = &w->index->tensors[b].info;
    return ckpt__same_shape(x->shape, x->ndim, y->shape, y->ndim);
}

/* Has the parameter a shape that only it has in the segment? Then so has its slot. */
static size_t alone(const work *w, size_t begin, size_t end, size_t slot)
{
    size_t found = SIZE_MAX, slots = 0;
    for (size_t i = begin; i < end; i++) {
        slots += same_shape(w, w->slots.first[i], slot);
        if (!same_shape(w, w->params[i], slot))
            continue;
        if (found != SIZE_MAX)
            return SIZE_MAX;
        found = w->params[i];
    }
    return slots == 1 ? found : SIZE_MAX;
}

/* owners[i] is the parameter of the optimizer's i-th, SIZE_MAX: not known. False: the shapes contradict the order. */
static bool match_segment(const work *w, size_t begin, size_t end, size_t *owners)
{
    bool ordered = is_ordered(w, begin, end);
    for (size_t i = begin; i < end; i++) {
        if (ordered && !same_shape(w, w->slots.first[i], w->params[i]))
            return false;
        owners[i] = ordered ? w->params[i] : alone(w, begin, end, w->slots.first[i]);
    }
    return true;
}

static ckpt_status match(work *w, ckpt_error *err)
{
    if (w->slots.count == 0 || w->slots.count != w->param_count)
        return CKPT_OK;
    size_t *owners = calloc(w->param_count + 1, sizeof *owners);
    bool fits = owners != NULL;
    for (size_t begin = 0, end; fits && begin < w->param_count; begin = end) {
        for (end = begin; end < w->param_count && w->segment[end] == w->segment[begin]; end++)
            ;
        fits = match_segment(w, begin, end, owners);
    }
    for (size_t i = 0; fits && i < w->param_count; i++)
        fits = owners[i] != SIZE_MAX; /* all or none: else the others would look as if they had no state */
    for (size_t i = 0; fits && i < w->order_count; i++) {
        size_t owner = w->slots.owner[i] == SIZE_MAX ? SIZE_MAX : owners[w->slots.owner[i]];
        if (owner != SIZE_MAX)
            w->index->tensors[w->order[i]].info.param = w->index->tensors[owner].info.name;
    }
    free(owners);
    return owners ? CKPT_OK : ckpt__fail_memory(err, "the parameters of a model", w->param_count);
}

/* Are its variables 0, 1, 2, ...? Tensors of one file are in that order; of shards, one may lack some. */
static bool is_complete(const work *w)
{
    for (size_t i = 0; i < w->order_count; i++) {
        ckpt_str number = base(w->index->tensors[w->order[i]].info.name);
        int64_t n;
        if (!ckpt__parse_i64(number.data, number.size, &n) || (uint64_t)n != i)
            return false;
    }
    return true;
}

static ckpt_status give_numbered_slots(work *w, ckpt_error *err)
{
    static const char group[] = "optimizer/vars";
    const ckpt_value *config = value_of(w->values, "config.json"), *name = value_of(w->values, "optimizer/vars@name");
    const ckpt_value *compiled = config ? ckpt_value_get(config, "compile_config") : NULL;
    ckpt_str none = {NULL, 0};
    for (size_t i = 0; i < w->index->tensor_count; i++) {
        ckpt_tensor_info *t = &w->index->tensors[i].info;
        if (ckpt__str_is(parent(t->name), group))
            w->order[w->order_count++] = i;
        else if (ckpt__str_begins(t->name, "optimizer/"))
            t->role = CKPT_ROLE_OPTIM;
    }
    if (w->order_count == 0 || !is_complete(w))
        return CKPT_OK;
    ckpt_status status = ckpt__keras_find_slots(w->index, w->order, w->order_count,
                                                compiled ? ckpt_value_get(compiled, "optimizer") : NULL,
                                                name && name->kind == CKPT_V_STR ? name->text : none, &w->slots, err);
    if (status < 0)
        return status;
    if (w->index->tensor_count > MOST || w->values->count > (size_t)4 * MOST)
        return CKPT_OK;
    find_params(w, config);
    return match(w, err);
}

ckpt_status ckpt__keras_roles(ckpt__index *index, const ckpt__keras_values *values, ckpt_error *err)
{
    work w = {.index = index, .values = values};
    w.order = calloc(index->tensor_count + 1, sizeof *w.order);
    w.params = calloc(index->tensor_count + 1, sizeof *w.params);
    w.segment = calloc(index->tensor_count + 1, sizeof *w.segment);
    ckpt_status status =
        w.order && w.params && w.segment ? CKPT_OK : ckpt__fail_memory(err, "roles", index->tensor_count);
    if (status == CKPT_OK)
        give_weight_roles(index, values);
    for (size_t i = 0; status == CKPT_OK && i < index->tensor_count; i++)
        if (ckpt__str_begins(index->tensors[i].info.name, "optimizer_weights/"))
            give_named_slot(index, &index->tensors[i].info);
    if (status == CKPT_OK)
        status = give_numbered_slots(&w, err);
    free(w.order);
    free(w.params);
    free(w.segment);
    free(w.slots.first);
    free(w.slots.owner);
    return status;
}
