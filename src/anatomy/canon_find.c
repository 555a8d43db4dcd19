/* anatomy/canon_find.c - which of the dicts are the model, its optimizer and its scaler: by rule, by the state's names, by
 * structure where there is one, and by what fits together. */
#include "anatomy/canon_work.h"

#include <stdio.h>
#include <stdlib.h>

enum { SHOWN = 6 }; /* candidates that a message lists */

/* A name for messages; the root has none. */
static const char *shown(const ckpt__builder *b, size_t node, char *buf, size_t size)
{
    ckpt_str name = b->tree.nodes[node].name;
    return name.size ? ckpt__escape(buf, size, name.data, name.size) : "the root";
}

static void list_candidates(const ckpt__builder *b, const size_t *nodes, size_t count, ckpt__buf *out)
{
    char buf[120];
    for (size_t i = 0; i < count && i < SHOWN; i++)
        ckpt__buf_printf(out, "%s'%s'", i ? ", " : "", shown(b, nodes[i], buf, sizeof buf));
    if (count > SHOWN)
        ckpt__buf_printf(out, " and %zu more", count - SHOWN);
}

/* The node of a path in the map's `source`. */
static ckpt_status by_rule(ckpt__builder *b, const char *key, const char *path, const size_t *candidates, size_t count,
                           size_t *out)
{
    *out = ckpt__tree_find(&b->tree, path);
    if (*out != SIZE_MAX)
        return CKPT_OK;
    ckpt__buf list = {0};
    list_candidates(b, candidates, count, &list);
    char where[160];
    ckpt_status s =
        ckpt__fail(b->err, CKPT_E_MISMATCH, ckpt__escape(where, sizeof where, path, strlen(path)),
                   "source.%s: the checkpoint has nothing at this path; %s%s", key,
                   list.size ? "it could be " : "and nothing in it looks like one", list.data ? list.data : "");
    ckpt__buf_free(&list);
    return s;
}

/* ---- the optimizer, given a model */

/* Names the slots of the optimizer at `node`, as far as that can be. */
static ckpt_status resolve(ckpt__builder *b, size_t node, const ckpt__model *model, ckpt__optimizer *o,
                           ckpt__order *order)
{
    memset(order, 0, sizeof *order);
    ckpt_status s = ckpt__canon_read_optimizer(b, node, o);
    if (s == CKPT_OK)
        s = ckpt__canon_stated_names(b, o, model, &order->evidence);
    if (s != CKPT_OK || order->evidence) {
        order->fit = CKPT__FITS;
        return s;
    }
    if (model->node == SIZE_MAX && ckpt__canon_state_order(b, o, order))
        return CKPT_OK;
    if (model->node == SIZE_MAX) {
        snprintf(order->how, sizeof order->how,
                 b->model_count > 1 ? "which of the models it trains is not known"
                                    : "the file has no model whose parameters could be counted");
        return CKPT_OK;
    }
    s = ckpt__canon_infer_order(b, o, model, order);
    for (size_t i = 0; s == CKPT_OK && order->fit == CKPT__FITS && i < o->slot_count; i++)
        o->slots[i].name = model->entries[order->entries[i]].name;
    return s;
}

static void take_optimizer(ckpt__builder *b, ckpt__optimizer *o)
{
    b->optimizer = *o;
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < b->optimizer.slot_count && b->model.by_name; i++) {
        size_t entry;
        ckpt_str name = b->optimizer.slots[i].name;
        if (ckpt__hash_get(b->model.by_name, name.data, name.size, &entry))
            b->model.entries[entry].group = b->optimizer.slots[i].group;
    }
}

/* What can be said of several dicts of which none stands out. */
static ckpt_status ambiguous(ckpt__builder *b, const char *what, const size_t *nodes, size_t count)
{
    ckpt__buf list = {0};
    char first[120], fix[240];
    list_candidates(b, nodes, count, &list);
    snprintf(fix, sizeof fix, "say which one in a map file: {map: 1, source: {%s: '%s'}}", what,
             shown(b, nodes[0], first, sizeof first));
    ckpt_status s = CKPT_OK;
    if (strcmp(what, "optimizer") == 0 && b->model.node == SIZE_MAX && b->model_count > 1)
        snprintf(fix, sizeof fix,
                 "say which one the model is: of the optimizers that one is taken then which alone fits it");
    bool optional = b->hints->optional_optimizer && !(b->hints->needs_scaler && strcmp(what, "scaler") == 0);
    if (optional)
        ckpt__canon_note(b, CKPT_SEVERITY_WARNING, "source-ambiguous", NULL, fix, "%zu dicts could be the %s: %s",
                         count, what, list.data ? list.data : "");
    else
        s = ckpt__fail(b->err, CKPT_E_MISMATCH, what, "%zu dicts of the checkpoint could be it: %s; %s", count,
                       list.data ? list.data : "", fix);
    ckpt__buf_free(&list);
    return s;
}

/* Every model is tried with every optimizer: a file of thousands of both would take hours. */
static bool too_many_pairs(const ckpt__builder *b, const size_t *models, size_t count)
{
    const uint64_t most = 20000000;
    uint64_t in_models = 0, in_optimizers = 0;
    for (size_t i = 0; i < count; i++)
        in_models += b->tree.nodes[models[i]].end - models[i];
    for (size_t i = 0; i < b->optimizer_count; i++)
        in_optimizers += b->tree.nodes[b->optimizers[i]].end - b->optimizers[i];
    return b->optimizer_count + count > 2 && in_models * b->optimizer_count + in_optimizers * count > most;
}

/* The optimizers that fit the model, in one order or in several. */
typedef struct fitting {
    size_t *nodes, count;      /* heap: their dicts; room for all optimizers of the checkpoint */
    ckpt__optimizer optimizer; /* the first of them, owned until take_optimizer */
    ckpt__order order;         /* of the last of them, or that was tried; its entries are gone */
} fitting;

static ckpt_status try_optimizer(ckpt__builder *b, size_t node, fitting *f)
{
    ckpt__optimizer o = {0};
    ckpt__order order;
    ckpt_status s = resolve(b, node, &b->model, &o, &order);
    bool fits = s == CKPT_OK && order.fit != CKPT__FITS_NOT;
    if (fits && f->count == 0) {
        f->optimizer = o;
        memset(&o, 0, sizeof o);
    }
    free(order.entries);
    order.entries = NULL;
    if (fits || f->count == 0)
        f->order = order;
    if (fits)
        f->nodes[f->count++] = node;
    ckpt__optimizer_free(&o);
    return s;
}

/* Of several optimizers the one that fits the model, if it is the only one. */
static ckpt_status choose_optimizer(ckpt__builder *b, const char *path, size_t rule, fitting *f)
{
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; i < b->optimizer_count && s == CKPT_OK; i++)
        if (!path || b->optimizers[i] == rule)
            s = try_optimizer(b, b->optimizers[i], f);
    if (s != CKPT_OK)
        return s;
    if (path && !f->count && ckpt__tree_child(&b->tree, rule, "param_groups") == SIZE_MAX)
        return ckpt__fail(
            b->err, CKPT_E_MISMATCH, path,
            "source.optimizer: this is not an optimizer's state_dict: it has no 'state' and 'param_groups'");
    if (!b->optimizer_count)
        return CKPT_OK;
    if (f->count > 1)
        return ambiguous(b, "optimizer", f->nodes, f->count);
    b->canon->order = f->order;
    bool known = f->count == 1 && f->order.fit == CKPT__FITS;
    if (known && !f->order.ambiguous &&
        !(b->hints->strict_order && f->order.inferred && f->order.evidence != CKPT__ASSUMED_ORDER)) {
        take_optimizer(b, &f->optimizer);
        ckpt__canon_note_order(b, &f->order);
        return CKPT_OK;
    }
    if (known && b->hints->tentative_order) {
        take_optimizer(b, &f->optimizer);
        ckpt__canon_note_tentative(b, &f->order);
        return CKPT_OK;
    }
    if (f->count == 0 && b->optimizer_count > 1 && !path)
        return ambiguous(b, "optimizer", b->optimizers, b->optimizer_count);
    return ckpt__canon_order_unknown(b, f->count ? f->nodes[0] : path ? rule : b->optimizers[0], &f->order);
}

static ckpt_status find_optimizer(ckpt__builder *b)
{
    const char *path = ckpt__map_source_of(b->hints->map)->optimizer;
    if (!path && b->model.node != SIZE_MAX && too_many_pairs(b, &b->model.node, 1))
        return ambiguous(b, "optimizer", b->optimizers, b->optimizer_count);
    size_t rule = SIZE_MAX;
    fitting f = {.nodes = calloc(b->optimizer_count + 1, sizeof *f.nodes)};
    ckpt_status s = f.nodes ? CKPT_OK : ckpt__canon_no_memory(b);
    if (s == CKPT_OK && path)
        s = by_rule(b, "optimizer", path, b->optimizers, b->optimizer_count, &rule);
    if (s == CKPT_OK)
        s = choose_optimizer(b, path, rule, &f);
    free(f.nodes);
    ckpt__optimizer_free(&f.optimizer);
    return s;
}

/* ---- the model */

/* The state_dicts that are no average of another, or all of them where there are only averages. */
static size_t plain_models(const ckpt__builder *b, size_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < b->model_count; i++)
        if (!ckpt__anatomy_is_average(&b->tree, b->models[i]))
            out[n++] = b->models[i];
    for (size_t i = 0; n == 0 && i < b->model_count; i++)
        out[i] = b->models[i];
    return n ? n : b->model_count;
}

/* How many of the file's optimizers fit this model; where a rule says which is meant, of that one. */
static ckpt_status count_fits(ckpt__builder *b, size_t node, size_t *fits)
{
    const char *path = ckpt__map_source_of(b->hints->map)->optimizer;
    size_t rule = path ? ckpt__tree_find(&b->tree, path) : SIZE_MAX;
    ckpt__model m;
    *fits = 0;
    ckpt_status s = ckpt__canon_read_model(b, node, 0, &m);
    for (size_t i = 0; i < b->optimizer_count && s == CKPT_OK; i++) {
        ckpt__optimizer o = {0};
        ckpt__order order = {0};
        if (rule != SIZE_MAX && b->optimizers[i] != rule)
            continue;
        s = ckpt__canon_read_optimizer(b, b->optimizers[i], &o);
        if (s == CKPT_OK)
            s = ckpt__canon_infer_order(b, &o, &m, &order);
        *fits += s == CKPT_OK && order.fit != CKPT__FITS_NOT;
        free(order.entries);
        ckpt__optimizer_free(&o);
    }
    ckpt__model_free(&m);
    return s;
}

/* The dict below which the state_dicts lie that together are the optimizer's model ({'model': ..., 'head': ...}). The
 * list ascends, so what holds its first and its last holds them all. */
static size_t common_parent(const ckpt__builder *b, const size_t *nodes, size_t count)
{
    size_t parent = nodes[0];
    while (parent > 0 && (parent == nodes[0] || b->tree.nodes[parent].end <= nodes[count - 1]))
        parent--;
    return parent;
}

/* One of several state_dicts: the one that an optimizer fits. */
static ckpt_status choose_model(ckpt__builder *b, const size_t *nodes, size_t count, size_t *out)
{
    size_t found = 0, fits = 0;
    ckpt_status s = CKPT_OK;
    *out = SIZE_MAX;
    if (!b->optimizer_count)
        return CKPT_OK; /* weights of several models, and nothing that asks for one: their own names */
    if (too_many_pairs(b, nodes, count))
        return ambiguous(b, "model", nodes, count);
    for (size_t i = 0; i < count && s == CKPT_OK; i++) {
        s = count_fits(b, nodes[i], &fits);
        if (fits && found++ == 0)
            *out = nodes[i];
    }
    if (s != CKPT_OK || found == 1)
        return s;
    *out = SIZE_MAX;
    if (found > 1)
        return ambiguous(b, "model", nodes, count);
    size_t parent = common_parent(b, nodes, count);
    s = count_fits(b, parent, &fits);
    if (s == CKPT_OK && fits)
        *out = parent;
    return s == CKPT_OK && !fits ? ambiguous(b, "model", nodes, count) : s;
}

/* The one state_dict is the model, unless another dict, which holds more than tensors, has the same names: {"a": ..} in a list beside
 * {"a": .., "b": "text"}. A state with these names could not be told which one is meant; so nobody takes the one. */
static ckpt_status take_only(ckpt__builder *b, size_t only, size_t *node)
{
    size_t rival;
    ckpt_status s = ckpt__canon_find_rival(b, only, &rival);
    *node = only;
    if (s != CKPT_OK || rival == SIZE_MAX)
        return s;
    const size_t both[] = {only < rival ? only : rival, only < rival ? rival : only};
    if (b->optimizer_count)
        return choose_model(b, both, 2, node);
    char first[160], second[160];
    *node = SIZE_MAX;
    ckpt__canon_note(b, CKPT_SEVERITY_WARNING, "source-ambiguous", NULL,
                     "say which one is the model in a map file: {map: 1, source: {model: 'NAME'}}",
                     "2 dicts could be the model, as both have its names: %s and %s; their tensors keep the names that "
                     "they have in the file",
                     shown(b, both[0], first, sizeof first), shown(b, both[1], second, sizeof second));
    return CKPT_OK;
}

static ckpt_status locate_model(ckpt__builder *b, size_t *node, int *strip)
{
    const char *path = ckpt__map_source_of(b->hints->map)->model;
    size_t *plain = calloc(b->model_count ? b->model_count : 1, sizeof *plain);
    if (!plain)
        return ckpt__canon_no_memory(b);
    size_t count = plain_models(b, plain);
    ckpt_status s = CKPT_OK;
    *node = SIZE_MAX;
    *strip = 0;
    if (path) {
        s = by_rule(b, "model", path, b->models, b->model_count, node);
        if (s == CKPT_OK && ckpt__canon_asks(b))
            s = ckpt__canon_match_below(b, *node, strip);
    } else {
        if (ckpt__canon_asks(b))
            s = ckpt__canon_match_wanted(b, node, strip);
        if (s == CKPT_OK && *node == SIZE_MAX && count == 1 && ckpt__canon_asks(b))
            *node = plain[0];
        else if (s == CKPT_OK && *node == SIZE_MAX && count == 1)
            s = take_only(b, plain[0], node);
        else if (s == CKPT_OK && *node == SIZE_MAX && count > 1)
            s = choose_model(b, plain, count, node);
    }
    free(plain);
    return s;
}

static ckpt_status find_model(ckpt__builder *b)
{
    size_t node;
    int strip;
    ckpt_status s = locate_model(b, &node, &strip);
    if (s != CKPT_OK || node == SIZE_MAX)
        return s;
    s = ckpt__canon_read_model(b, node, strip, &b->model);
    if (s != CKPT_OK)
        return s;
    char where[160];
    const ckpt__unfolded *u = &b->anatomy->unfolded;
    if (!ckpt__map_source_of(b->hints->map)->model && !u->mixed && !u->beside && b->tree.nodes[node].name.size)
        ckpt__canon_note(b, CKPT_SEVERITY_NOTE, "source-found", NULL, NULL, "the model is taken from '%s'",
                         shown(b, node, where, sizeof where));
    if (strip)
        ckpt__canon_note(b, CKPT_SEVERITY_NOTE, "prefix-stripped", NULL, NULL,
                         "the model's names fit without the prefixes that wrappers add (module., _orig_mod., ...)%s",
                         strip == 2 ? ", which stand inside names too" : "");
    return CKPT_OK;
}

/* ---- scaler and step */

static ckpt_status find_scaler(ckpt__builder *b)
{
    const char *path = ckpt__map_source_of(b->hints->map)->scaler;
    if (path)
        return by_rule(b, "scaler", path, NULL, 0, &b->scaler);
    size_t found[SHOWN], count = 0, at = 0;
    for (const ckpt__organ *o; (o = ckpt__anatomy_next(b->anatomy, CKPT__SCALER, &at)) != NULL;)
        if (o->evidence == CKPT__WHOLE_SCALER && count++ < SHOWN)
            found[count - 1] = o->node;
    if (count == 1)
        b->scaler = found[0];
    if (count < 2)
        return CKPT_OK;
    return ambiguous(b, "scaler", found, count < SHOWN ? count : SHOWN);
}

static bool is_restored(const void *ctx, const ckpt_value *counter)
{
    (void)ctx;
    return counter->kind == CKPT_V_INT || counter->kind == CKPT_V_TENSOR;
}

static size_t step_below(const ckpt__builder *b, size_t parent)
{
    const ckpt__organ *step = ckpt__anatomy_counter(b->anatomy, CKPT__RESTORES_STEP, parent, is_restored, NULL);
    return step ? step->node : SIZE_MAX;
}

/* Of a directory of files: what the trainer's state says, else the one file that says it. accelerate's random_states have
 * a step of their own, which counts batches. */
static size_t step_in_files(const ckpt__builder *b)
{
    size_t found = SIZE_MAX, state = ckpt__tree_child(&b->tree, 0, "trainer_state.json");
    if (state != SIZE_MAX)
        return step_below(b, state);
    for
        CKPT__CHILDREN(&b->tree, c, 0)
        {
            ckpt_str file = b->tree.nodes[c].key;
            size_t own = ckpt__str_begins_more(file, "random") ? SIZE_MAX : step_below(b, c);
            if (own != SIZE_MAX && found != SIZE_MAX)
                return SIZE_MAX;
            found = own != SIZE_MAX ? own : found;
        }
    return found;
}

static ckpt_status find_step(ckpt__builder *b)
{
    const char *path = ckpt__map_source_of(b->hints->map)->step;
    if (path)
        return by_rule(b, "step", path, NULL, 0, &b->step);
    b->step = ckpt__canon_in_files(b) ? step_in_files(b) : step_below(b, 0);
    return CKPT_OK;
}

/* What was found without a rule is said; the root's own names need no word. */
static void note_found(ckpt__builder *b, const char *what, const char *rule, size_t node)
{
    char where[160];
    if (!rule && !b->anatomy->unfolded.mixed && node != SIZE_MAX && b->tree.nodes[node].name.size &&
        !ckpt__str_is(b->tree.nodes[node].name, what))
        ckpt__canon_note(b, CKPT_SEVERITY_NOTE, "source-found", NULL, NULL, "the %s is taken from '%s'", what,
                         shown(b, node, where, sizeof where));
}

ckpt_status ckpt__canon_find(ckpt__builder *b)
{
    const ckpt__map_source *source = ckpt__map_source_of(b->hints->map);
    ckpt_status s = find_model(b);
    if (s == CKPT_OK)
        s = find_optimizer(b);
    if (s == CKPT_OK)
        s = find_scaler(b);
    if (s == CKPT_OK)
        s = find_step(b);
    if (s != CKPT_OK)
        return s;
    note_found(b, "optimizer", source->optimizer, b->optimizer.node);
    note_found(b, "scaler", source->scaler, b->scaler);
    note_found(b, "step", source->step, b->step);
    if (b->model.node != SIZE_MAX)
        b->canon->model_path = b->tree.nodes[b->model.node].name;
    if (b->optimizer.node != SIZE_MAX)
        b->canon->optimizer_path = b->tree.nodes[b->optimizer.node].name;
    if (b->scaler != SIZE_MAX)
        b->canon->scaler_path = b->tree.nodes[b->scaler].name;
    return CKPT_OK;
}
