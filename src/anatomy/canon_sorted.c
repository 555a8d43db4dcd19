/* anatomy/canon_sorted.c - whose state is it, where the model comes from a file that lists its tensors by name (safetensors)?
 * Shape and class of name decide where they leave one parameter for each state. Else the order in which torch lists a
 * model's parameters is looked for: a module gives its own ones first and then its children one after another, children of
 * a list by their numbers, modules of one build in the same order, a weight before its bias and norm1 before norm2. Which
 * of the other children comes first is not known: if one order alone fits the shapes, it is the likely one. */
#include "anatomy/canon_work.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_DEPTH = 64 };
static const uint64_t budget = 2000000; /* steps of the search; real models take some thousands */

/* A part of names: "h", "0", "attn", "weight". The file lists h.0.bias, h.0.weight, h.1.bias and h.1.weight:
 *
 *     number  key     leaf      children  before  build
 *     0       ""      SIZE_MAX  {1}       -       4
 *     1       h       SIZE_MAX  {2, 5}    -       3
 *     2       0       SIZE_MAX  {3, 4}    -       2
 *     3       bias    0         -         1       1        child 1 of part 2 is the weight
 *     4       weight  1         -         -       0
 *     5       1       SIZE_MAX  {6, 7}    0       2        child 0 of part 1 is layer 0
 *     6       bias    2         -         1       1
 *     7       weight  3         -         -       0
 *
 * The layers have one build if their weights have one shape, and their biases another. */
typedef struct part {
    ckpt_str key;                                              /* borrowed from the name */
    size_t leaf;                                               /* entry of the model; SIZE_MAX: a module */
    size_t *children, child_count, child_capacity, leaf_count; /* heap, owned: numbers of parts; how many of them
                                                                   * are leaves */
    size_t before; /* the sibling (number among the children) that must come first; SIZE_MAX: none */
    size_t build;  /* modules of one build have one number */
    size_t given;  /* how many of its children the search has taken */
} part;

/* The order of the children of all modules of one build, as far as it is chosen. A choice in layer 0 holds for layer
 * 1 too: for build 2 above, order {1, 0} lists the weight before the bias in both. Both arrays have an item for each
 * child. */
typedef struct build {
    size_t *order, chosen; /* heap, owned: numbers among the children; how many are chosen. NULL: a leaf */
    size_t leaves;         /* of the chosen ones */
    bool *used;            /* heap, owned: one a child: it is chosen */
} build;

typedef enum event { LEAF, ENTER, LEAVE } event;
/* One step of the search, kept so that it can be undone. Numbers of parts, but for `child`. */
typedef struct trail {
    event event;
    size_t part;          /* LEAF: the leaf; ENTER, LEAVE: the module */
    size_t module, child; /* whose child was taken, and which: its number among the children */
    bool chose;           /* it was a choice: another child may be tried */
} trail;

/* The search for the order of the modules. Without a split all slots are one sequence: next {0, 0}, end {slot_count,
 * 0}. With a split, groups of 2 and of 1 slots, and a first group that decays, class 0 has next 0 and end 2, and
 * class 1 has next 2 and end 3: a parameter that decays takes slot 0 or 1, another one slot 2. All arrays are the
 * heap's. */
typedef struct search {
    ckpt__builder *b; /* borrowed, as are the optimizer and the model */
    const ckpt__optimizer *o;
    const ckpt__model *m;
    const char *known;   /* what a config.json beside it says of its modules; NULL: nothing */
    int candidates;      /* see ckpt__canon_may_hold */
    int split, decaying; /* split -1: none, all slots are one sequence; decaying: the group of class 0 */
    part *parts;
    size_t part_count, part_capacity;
    build *builds;
    size_t build_count;
    size_t open[MAX_DEPTH + 2], depth; /* modules that are being listed */
    trail *trail;
    size_t trail_count, trail_capacity;
    size_t next[2], end[2];  /* slots of the two classes (0: decays, or all) */
    size_t *entries, *other; /* slot -> entry: the first and the second solution */
    size_t solutions;        /* 2: two that differ, or too many to look through */
    uint64_t steps;          /* of the search so far */
    bool no_memory;
} search;

static const ckpt_tensor_info *info_of(const search *s, size_t entry)
{
    return &s->b->index->tensors[s->m->entries[entry].tensor].info;
}

static bool is_candidate(const search *s, size_t entry)
{
    return ckpt__canon_may_hold(s->o, s->m, entry, s->candidates);
}

static bool fits(const search *s, size_t slot, size_t entry)
{
    bool buffer = s->m->entries[entry].is == CKPT__A_BUFFER; /* Keras': among the parameters, never with a state */
    return !(buffer && s->o->slots[slot].has_tensors) && ckpt__slot_fits(s->b, &s->o->slots[slot], info_of(s, entry));
}

static int class_of(const search *s, size_t entry)
{
    return s->split < 0 || ckpt__split_decays((size_t)s->split, s->m->entries[entry].own, info_of(s, entry)->ndim) ? 0
                                                                                                                   : 1;
}

/* ---- by shape and class alone */

static void shape_key(ckpt__buf *key, int class, const ckpt_tensor_info *info)
{
    key->size = 0;
    ckpt__buf_add(key, &class, sizeof class);
    for (uint32_t d = 0; d < info->ndim; d++)
        ckpt__buf_add(key, &info->shape[d], sizeof info->shape[d]);
}

/* Each state has a shape, and one parameter of its class has that shape. False also where memory is short. */
static bool only_way(search *s)
{
    ckpt__hash *by_shape = ckpt__hash_new(s->m->count);
    ckpt__arena *keys = ckpt__arena_new(0);
    ckpt__buf key = {0};
    bool *several = calloc(s->m->count + 1, sizeof *several), *taken = calloc(s->m->count + 1, sizeof *taken);
    bool only = by_shape && keys && several && taken;
    s->no_memory = s->no_memory || !only;
    for (size_t e = 0; only && e < s->m->count; e++) {
        size_t first;
        if (!is_candidate(s, e))
            continue;
        shape_key(&key, class_of(s, e), info_of(s, e));
        ckpt_str kept = key.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(keys, key.data ? key.data : "", key.size);
        int put = kept.data ? ckpt__hash_put(by_shape, kept.data, kept.size, e, &first) : -1;
        only = put >= 0;
        s->no_memory = s->no_memory || put < 0;
        if (put == 0)
            several[first] = true;
    }
    for (int class = 0; only && class < 2; class ++)
        for (size_t i = s->next[class]; only && i < s->end[class]; i++) {
            size_t shaped = s->o->slots[i].shaped, e = 0;
            if (shaped != SIZE_MAX)
                shape_key(&key, class, &s->b->index->tensors[shaped].info);
            only = shaped != SIZE_MAX && ckpt__hash_get(by_shape, key.data ? key.data : "", key.size, &e) &&
                   !several[e] && !taken[e];
            taken[e] = true;
            s->entries[i] = e;
        }
    ckpt__buf_free(&key);
    ckpt__hash_free(by_shape);
    ckpt__arena_free(keys);
    free(several);
    free(taken);
    return only;
}

/* ---- the modules */

static size_t add_part(search *s, size_t parent, ckpt_str key)
{
    part *parts;
    if (!ckpt__grow(&s->parts, &s->part_capacity, s->part_count + 1, sizeof *s->parts)) {
        s->no_memory = true;
        return SIZE_MAX;
    }
    parts = s->parts;
    parts[s->part_count] = (part){.key = key, .leaf = SIZE_MAX, .before = SIZE_MAX};
    if (parent != SIZE_MAX) {
        part *p = &parts[parent];
        if (!ckpt__grow(&p->children, &p->child_capacity, p->child_count + 1, sizeof *p->children)) {
            s->no_memory = true;
            return SIZE_MAX;
        }
        p->children[p->child_count++] = s->part_count;
    }
    return s->part_count++;
}

/* Adds a name's parts; modules are known by the text before their dot. */
static bool add_name(search *s, ckpt__hash *modules, size_t entry)
{
    ckpt_str name = s->m->entries[entry].own;
    size_t at = 0, depth = 0, from = 0;
    for (size_t i = 0; i < name.size; i++) {
        if (name.data[i] != '.')
            continue;
        size_t module;
        if (++depth > MAX_DEPTH)
            return false;
        if (!ckpt__hash_get(modules, name.data, i, &module)) {
            module = add_part(s, at, (ckpt_str){name.data + from, i - from});
            if (module == SIZE_MAX || ckpt__hash_put(modules, name.data, i, module, NULL) < 0)
                return false;
        }
        at = module;
        from = i + 1;
    }
    size_t leaf = add_part(s, at, (ckpt_str){name.data + from, name.size - from});
    if (leaf == SIZE_MAX)
        return false;
    s->parts[leaf].leaf = entry;
    s->parts[at].leaf_count++;
    return true;
}

/* "norm" and 2 of "norm2"; "" and 3 of "3". */
static ckpt_str stem_of(ckpt_str key, uint64_t *number)
{
    size_t n = key.size;
    uint64_t scale = 1;
    *number = 0;
    while (n > 0 && key.data[n - 1] >= '0' && key.data[n - 1] <= '9' && key.size - n < 12) {
        *number += (uint64_t)(key.data[--n] - '0') * scale;
        scale *= 10;
    }
    return (ckpt_str){key.data, n};
}

static bool is_numbered(ckpt_str key)
{
    uint64_t number;
    return stem_of(key, &number).size < key.size;
}

/* Among siblings: must a come before b? */
static bool precedes(const search *s, const part *a, const part *b)
{
    uint64_t x, y;
    bool digit = a->key.size && a->key.data[0] >= '0' && a->key.data[0] <= '9';
    int order = s->known && !digit ? ckpt__known_order(s->known, a->key, b->key) : 0;
    if (order)
        return order < 0;
    ckpt_str one = stem_of(a->key, &x), two = stem_of(b->key, &y);
    if ((a->leaf != SIZE_MAX) != (b->leaf != SIZE_MAX))
        return false; /* own parameters come first anyhow */
    if (is_numbered(a->key) && is_numbered(b->key) && one.size == two.size && memcmp(one.data, two.data, one.size) == 0)
        return x < y;
    const char *w = memmem(a->key.data, a->key.size, "weight", 6);
    size_t head = w ? (size_t)(w - a->key.data) : 0;
    return w && b->key.size == a->key.size - 2 && memcmp(a->key.data, b->key.data, head) == 0 &&
           memcmp(b->key.data + head, "bias", 4) == 0 &&
           memcmp(w + 6, b->key.data + head + 4, a->key.size - head - 6) == 0;
}

/* The last of those that must come before each child: the others come before that one. */
static bool set_before(search *s, const part *module)
{
    for (size_t i = 0; i < module->child_count; i++) {
        part *child = &s->parts[module->children[i]];
        for (size_t k = 0; k < module->child_count; k++) {
            if ((s->steps += 1) > budget)
                return false;
            const part *other = &s->parts[module->children[k]];
            if (k != i && precedes(s, other, child) &&
                (child->before == SIZE_MAX || precedes(s, &s->parts[module->children[child->before]], other)))
                child->before = k;
        }
    }
    return true;
}

/* Modules below which the same names have the same shapes are of one build. Children have greater numbers than their
 * modules, so that from the last to the first all children are done. */
static bool set_builds(search *s)
{
    ckpt__hash *known = ckpt__hash_new(64);
    ckpt__arena *keys = ckpt__arena_new(0);
    ckpt__buf key = {0};
    bool ok = known && keys;
    for (size_t i = s->part_count; ok && i > 0; i--) {
        part *p = &s->parts[i - 1];
        size_t number = s->build_count;
        key.size = 0;
        for (size_t k = 0; k < p->child_count; k++) {
            const part *child = &s->parts[p->children[k]];
            ckpt__buf_add(&key, &child->key.size, sizeof child->key.size);
            ckpt__buf_add(&key, child->key.data, child->key.size);
            ckpt__buf_add(&key, &child->build, sizeof child->build);
        }
        if (p->leaf != SIZE_MAX)
            shape_key(&key, -1, info_of(s, p->leaf));
        ckpt_str kept = key.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(keys, key.data ? key.data : "", key.size);
        int put = kept.data ? ckpt__hash_put(known, kept.data, kept.size, number, &number) : -1;
        ok = put >= 0;
        p->build = number;
        s->build_count += put == 1;
    }
    s->builds = ok ? calloc(s->build_count + 1, sizeof *s->builds) : NULL;
    ok = s->builds != NULL;
    for (size_t i = 0; ok && i < s->part_count; i++) {
        const part *p = &s->parts[i];
        build *own = &s->builds[p->build];
        if (own->order || p->child_count == 0)
            continue;
        own->order = calloc(p->child_count, sizeof *own->order);
        own->used = calloc(p->child_count, sizeof *own->used);
        ok = own->order && own->used;
    }
    s->no_memory = s->no_memory || !ok;
    ckpt__buf_free(&key);
    ckpt__hash_free(known);
    ckpt__arena_free(keys);
    return ok;
}

static bool build_tree(search *s)
{
    ckpt__hash *modules = ckpt__hash_new(s->m->count);
    bool ok = modules && add_part(s, SIZE_MAX, ckpt__s("")) != SIZE_MAX;
    s->no_memory = s->no_memory || !modules;
    for (size_t e = 0; ok && e < s->m->count; e++)
        if (is_candidate(s, e))
            ok = add_name(s, modules, e);
    ckpt__hash_free(modules);
    for (size_t i = 0; ok && i < s->part_count; i++)
        ok = set_before(s, &s->parts[i]);
    return ok && set_builds(s);
}

/* ---- the search */

static bool push_trail(search *s, trail t)
{
    if (!ckpt__grow(&s->trail, &s->trail_capacity, s->trail_count + 1, sizeof *s->trail)) {
        s->no_memory = true;
        return false;
    }
    s->trail[s->trail_count++] = t;
    return true;
}

/* May this child of the module come next? Own parameters before modules, siblings in their order. */
static bool may_be_next(const search *s, const part *module, const build *own, size_t child)
{
    const part *c = &s->parts[module->children[child]];
    if (own->used[child] || (c->before != SIZE_MAX && !own->used[c->before]))
        return false;
    return c->leaf != SIZE_MAX || own->leaves == module->leaf_count;
}

/* Takes child number `child` of the module that is open; false: it does not fit. */
static bool take(search *s, size_t module, size_t child, bool chose)
{
    part *p = &s->parts[module];
    size_t number = p->children[child];
    part *c = &s->parts[number];
    if (c->leaf != SIZE_MAX) {
        int class = class_of(s, c->leaf);
        size_t slot = s->next[class];
        if (slot >= s->end[class] || !fits(s, slot, c->leaf))
            return false;
        (s->solutions ? s->other : s->entries)[slot] = c->leaf;
        s->next[class]++;
    }
    if (!push_trail(s, (trail){c->leaf != SIZE_MAX ? LEAF : ENTER, number, module, child, chose}))
        return false;
    if (c->leaf == SIZE_MAX)
        s->open[s->depth++] = number;
    build *own = &s->builds[p->build];
    if (chose) {
        own->order[own->chosen++] = child;
        own->used[child] = true;
        own->leaves += c->leaf != SIZE_MAX;
    }
    p->given++;
    return true;
}

/* Undoes the last event; true: it was a choice, made in `module` for `child`. */
static bool undo(search *s, size_t *module, size_t *child)
{
    trail t = s->trail[--s->trail_count];
    if (t.event == LEAVE) {
        s->open[s->depth++] = t.part;
        return false;
    }
    part *c = &s->parts[t.part];
    if (t.event == LEAF)
        s->next[class_of(s, c->leaf)]--;
    else
        s->depth--;
    part *p = &s->parts[t.module];
    p->given--;
    if (t.chose) {
        build *own = &s->builds[p->build];
        own->used[own->order[--own->chosen]] = false;
        own->leaves -= c->leaf != SIZE_MAX;
    }
    *module = t.module;
    *child = t.child;
    return t.chose;
}

/* Goes on with the module that is open, trying its children from number `from` on; false: nothing fits. */
static bool advance(search *s, size_t from)
{
    size_t module = s->open[s->depth - 1];
    part *p = &s->parts[module];
    build *own = &s->builds[p->build];
    s->steps++;
    if (p->given == p->child_count) {
        s->depth--;
        return push_trail(s, (trail){LEAVE, module, module, 0, false});
    }
    if (p->given < own->chosen)
        return take(s, module, own->order[p->given], false);
    for (size_t child = from; child < p->child_count; child++) {
        s->steps++;
        if (may_be_next(s, p, own, child) && take(s, module, child, true))
            return true;
    }
    return false;
}

/* Back to the last choice that has another child to try; false: there is none. */
static bool step_back(search *s)
{
    size_t module, child;
    while (s->trail_count > 0 && s->steps <= budget && !s->no_memory) {
        s->steps++;
        if (undo(s, &module, &child) && advance(s, child + 1))
            return true;
    }
    return false;
}

static bool differs(const search *s)
{
    return memcmp(s->entries, s->other, s->o->slot_count * sizeof *s->entries) != 0;
}

/* Counts solutions up to two that differ. */
static void look_for_orders(search *s)
{
    s->open[s->depth++] = 0;
    bool more = true;
    while (more && s->solutions < 2 && s->steps <= budget && !s->no_memory) {
        if (s->depth == 0) {
            bool complete = s->next[0] == s->end[0] && s->next[1] == s->end[1];
            if (complete && (s->solutions == 0 || differs(s)) && s->solutions++ == 0)
                memcpy(s->other, s->entries, s->o->slot_count * sizeof *s->other);
            more = s->solutions < 2 && step_back(s);
        } else if (!advance(s, 0))
            more = step_back(s);
    }
    if (s->steps > budget)
        s->solutions = s->solutions ? 2 : 0;
}

static void free_tree(search *s)
{
    for (size_t i = 0; i < s->part_count; i++)
        free(s->parts[i].children);
    for (size_t i = 0; s->builds && i < s->build_count; i++) {
        free(s->builds[i].order);
        free(s->builds[i].used);
    }
    free(s->parts);
    free(s->builds);
    free(s->trail);
    s->parts = NULL;
    s->builds = NULL;
    s->trail = NULL;
    s->part_count = s->part_capacity = s->build_count = s->trail_count = s->trail_capacity = s->depth = 0;
}

/* ---- hypotheses */

/* Which slots the two classes have; false: the hypothesis does not apply. */
static bool set_classes(search *s, size_t h)
{
    const ckpt__optimizer *o = s->o;
    s->split = h == 0 ? -1 : (int)((h - 1) / 2);
    s->decaying = h == 0 ? 0 : (int)((h - 1) % 2);
    s->next[1] = s->end[1] = 0;
    s->next[0] = 0;
    s->end[0] = o->slot_count;
    if (h == 0)
        return true;
    if (o->group_count != 2)
        return false;
    const ckpt__opt_group *d = &o->groups[s->decaying], *n = &o->groups[1 - s->decaying];
    if (d->has_decay && n->has_decay && d->decay < n->decay)
        return false;
    s->next[0] = d->first;
    s->end[0] = d->first + d->count;
    s->next[1] = n->first;
    s->end[1] = n->first + n->count;
    return true;
}

/* Are there as many parameters of each class as slots? */
static bool counts_agree(const search *s)
{
    size_t count[2] = {0, 0};
    for (size_t e = 0; e < s->m->count; e++)
        if (is_candidate(s, e))
            count[class_of(s, e)]++;
    return count[0] == s->end[0] - s->next[0] && count[1] == s->end[1] - s->next[1];
}

static void say(const search *s, char *how, size_t size, bool by_shape)
{
    const char *text = by_shape ? "the parameters by their shapes, no two being alike"
                       : s->known
                           ? "the parameters in the order in which transformers defines the modules of this model_type"
                           : "the parameters as torch lists modules: by the numbers of layers, weights before biases";
    bool alone = s->m->adapter_count == s->o->slot_count && s->m->adapter_count < s->m->count;
    if (s->split < 0)
        snprintf(how, size, "%s%s", text, alone ? ", of the adapter alone (PEFT freezes the others)" : "");
    else
        snprintf(how, size, "%s; group %d has those %s, group %d the others", text, s->decaying ? 1 : 0,
                 ckpt__split_text((size_t)s->split), s->decaying ? 0 : 1);
}

/* The first slot that two parameters may have. */
static void say_several(const search *s, const size_t *a, const size_t *b, char *how, size_t size)
{
    char one[90], two[90];
    for (size_t i = 0; i < s->o->slot_count; i++) {
        ckpt_str x = s->m->entries[a[i]].own, y = s->m->entries[b[i]].own;
        if (a[i] == b[i])
            continue;
        snprintf(how, size, "its file lists the model's tensors by name, and state %zu may be that of '%s' or of '%s'",
                 i, ckpt__escape(one, sizeof one, x.data, x.size), ckpt__escape(two, sizeof two, y.data, y.size));
        return;
    }
    snprintf(how, size, "its file lists the model's tensors by name, and too many orders would fit");
}

static void name_of(size_t h, char *name, size_t size)
{
    if (h == 0)
        snprintf(name, size, "model");
    else
        snprintf(name, size, "decay-split-%s%s", ckpt__split_name((h - 1) / 2), (h - 1) % 2 ? "-last" : "");
}

/* Do the settings of the two groups say which of them decays? */
static bool decay_tells(const search *s)
{
    const ckpt__opt_group *d = &s->o->groups[s->decaying], *n = &s->o->groups[1 - s->decaying];
    return d->has_decay && n->has_decay && d->decay > 0 && !(n->decay > 0);
}

static void try_hypothesis(search *s, size_t h, ckpt__order *out)
{
    const char *assumed = s->b->hints->assume_order;
    char name[40];
    name_of(h, name, sizeof name);
    if ((assumed && strcmp(assumed, name) != 0) || !set_classes(s, h))
        return;
    s->solutions = 0;
    s->steps = 0;
    bool by_shape = only_way(s);
    if (by_shape)
        s->solutions = 1;
    else if (counts_agree(s)) {
        if (build_tree(s))
            look_for_orders(s);
        free_tree(s);
    }
    if (s->solutions == 0 || s->no_memory ||
        (h == 0 && s->o->group_count > 1 && !ckpt__classes_agree(s->o, s->m, s->b, s->entries)))
        return;
    size_t n = s->o->slot_count;
    if (s->solutions > 1) {
        out->fit = CKPT__FITS_SEVERAL;
        say_several(s, s->entries, s->other, out->how, sizeof out->how);
    } else if (out->fit == CKPT__FITS_NOT) {
        out->fit = CKPT__FITS;
        out->evidence = h > 0 && decay_tells(s) ? CKPT__CONTENT : CKPT__STRUCTURE;
        out->doubtful = !by_shape;
        name_of(h, out->name, sizeof out->name);
        memcpy(out->entries, s->entries, n * sizeof *s->entries);
        say(s, out->how, sizeof out->how, by_shape);
    } else if (memcmp(out->entries, s->entries, n * sizeof *s->entries) != 0) {
        out->fit = CKPT__FITS_SEVERAL;
        say_several(s, out->entries, s->entries, out->how, sizeof out->how);
    }
}

/* Counts the parameters that could be exchanged without contradiction, also between groups, which the search keeps in the file's
 * order. The model's order is that of the slots where all slots are one sequence; for two classes of parameters the file does not
 * say how the classes interleave. */
static ckpt_status weigh(search *s, ckpt__order *out)
{
    bool sequence = strcmp(out->name, "model") == 0;
    ckpt__exam exam = {
        s->b, s->o, s->m, sequence ? out->entries : NULL, s->o->slot_count, out->evidence == CKPT__CONTENT};
    bool shaped = false;
    for (size_t i = 0; i < s->o->slot_count; i++)
        shaped = shaped || ckpt__slot_has_shape(&s->o->slots[i]);
    if (s->b->hints->assume_order)
        out->evidence = CKPT__ASSUMED_ORDER;
    return shaped ? ckpt__canon_weigh(&exam, out) : CKPT_OK;
}

ckpt_status ckpt__canon_infer_sorted(ckpt__builder *b, const ckpt__optimizer *o, const ckpt__model *m, ckpt__order *out)
{
    search s = {.b = b, .o = o, .m = m, .known = ckpt__known_siblings(b)};
    size_t n = o->slot_count ? o->slot_count : 1;
    s.entries = calloc(n, sizeof *s.entries);
    s.other = calloc(n, sizeof *s.other);
    s.no_memory = !s.entries || !s.other;
    for (int pass = 0; pass < 3 && out->fit == CKPT__FITS_NOT && !s.no_memory; pass++) {
        s.candidates = pass;
        for (size_t h = 0; h < 1 + 2 * ckpt__split_count() && out->fit != CKPT__FITS_SEVERAL && !s.no_memory; h++)
            try_hypothesis(&s, h, out);
    }
    if (out->fit == CKPT__FITS_NOT)
        snprintf(out->how, sizeof out->how,
                 "the model's file lists its tensors by name, and %zu parameters in %zu group%s of the optimizer fit "
                 "its %zu in no "
                 "order in which modules have them",
                 o->slot_count, o->group_count, o->group_count == 1 ? "" : "s", m->count);
    free(s.entries);
    free(s.other);
    if (s.no_memory)
        return ckpt__canon_no_memory(b);
    return out->fit == CKPT__FITS ? weigh(&s, out) : CKPT_OK;
}
