/* anatomy/canon_exchange.c - an order fits: could a trainer have used another one that fits as well? Parameters of one shape
 * are looked for that stand in different branches of the model: modules beside each other that are no entries of one list
 * (the two nets of a GAN), modules that a program hands over in another order than the model has them, groups. Layers of
 * one list and parameters within one layer are handed over in the model's order by every program, and are only counted. */
#include "anatomy/canon_work.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 400 }; /* modules at the top whose orders are tried */
static const uint64_t budget = 300000;

/* One module of the model, as far as the optimizer has parameters of it. Modules with equal sums have the same shapes
 * in the same order: their parameters could change places. The names h.0.w, h.0.b, h.1.w, h.1.b and head.w give
 *
 *     number  path    key     parent    count  children
 *     0       ""      ""      SIZE_MAX  5      2
 *     1       h       h       0         4      2
 *     2       h.0     0       1         2      0
 *     3       h.1     1       1         2      0
 *     4       head    head    0         1      0 */
typedef struct module {
    ckpt_str path, key; /* "h.0" and its last step "0": both are borrowed from a parameter's name */
    size_t parent;      /* number of the module above; SIZE_MAX: none */
    uint64_t sum;       /* of the groups and shapes of its parameters, in the optimizer's order */
    size_t count;       /* its parameters, those of its modules too */
    size_t children;    /* modules directly below */
    bool in_list;       /* below an entry of a list, or of modules that a number tells apart */
    bool numbered;      /* its name ends in a number: layer1, block2-3 */
    bool vectors;       /* all its parameters are vectors, or single numbers */
} module;

/* The look at one order that fits. For the names above, home is {2, 2, 3, 3, 4} and top is 0: the root has two
 * modules, h and head. */
typedef struct look {
    const ckpt__exam *x; /* borrowed */
    ckpt__order *order;  /* borrowed; the answer goes there */
    ckpt__arena *keys;   /* owned: keys of hash tables */
    module *modules;
    size_t count, capacity; /* heap, owned; a parent is before its children */
    size_t *home;           /* heap, owned: slot -> number of the module that holds its parameter itself */
    size_t top;             /* the first module that has more than one */
    bool dtypes;            /* each moment has the dtype of its parameter */
    bool no_memory;
} look;

static const ckpt_tensor_info *param_of(const look *l, size_t slot)
{
    const ckpt__exam *x = l->x;
    return &x->b->index->tensors[x->m->entries[l->order->entries[slot]].tensor].info;
}

/* ---- the modules of the parameters that the optimizer has */

static bool all_digits(ckpt_str key)
{
    for (size_t i = 0; i < key.size; i++)
        if (key.data[i] < '0' || key.data[i] > '9')
            return false;
    return key.size > 0;
}

static size_t add_module(look *l, ckpt__hash *paths, ckpt_str path, size_t parent)
{
    size_t at = l->count;
    int put = ckpt__hash_put(paths, path.data, path.size, at, &at);
    if (put == 0)
        return at;
    if (put < 0 || !ckpt__grow(&l->modules, &l->capacity, l->count + 1, sizeof *l->modules)) {
        l->no_memory = true;
        return 0;
    }
    size_t from = parent == SIZE_MAX || !l->modules[parent].path.size ? 0 : l->modules[parent].path.size + 1;
    module m = {.path = path,
                .key = {path.data + from, path.size - from},
                .parent = parent,
                .sum = 14695981039346656037u,
                .vectors = true};
    m.numbered = m.key.size && m.key.data[m.key.size - 1] >= '0' && m.key.data[m.key.size - 1] <= '9';
    if (parent != SIZE_MAX) {
        l->modules[parent].children++;
        const module *above = &l->modules[parent];
        m.in_list = above->in_list || all_digits(above->key) || (above->numbered && above->parent != SIZE_MAX);
    }
    l->modules[l->count++] = m;
    return at;
}

/* It is said, and does not stop anybody: the known order, and one parameter each. */
static void add_doubt(look *l, ckpt_str a, ckpt_str b)
{
    char one[60], two[60], text[220];
    ckpt__order *o = l->order;
    size_t n = strlen(o->how);
    snprintf(text, sizeof text, "%s%s <-> %s",
             o->doubtful ? ", " : "; but these could be exchanged: ", ckpt__escape(one, sizeof one, a.data, a.size),
             ckpt__escape(two, sizeof two, b.data, b.size));
    if (n + strlen(text) < sizeof o->how)
        memcpy(o->how + n, text, strlen(text) + 1);
    o->doubtful = true;
}

static uint64_t mix(uint64_t sum, uint64_t value)
{
    for (int i = 0; i < 8; i++, value >>= 8)
        sum = (sum ^ (value & 0xff)) * 1099511628211u;
    return sum;
}

static uint64_t token(const look *l, size_t slot, bool with_group)
{
    const ckpt_tensor_info *info = param_of(l, slot);
    uint64_t sum = mix(14695981039346656037u, with_group ? l->x->o->slots[slot].group + 1 : 0);
    sum = mix(sum, l->dtypes ? (uint64_t)info->dtype + 1 : 0);
    sum = mix(sum, info->ndim);
    for (uint32_t d = 0; d < info->ndim; d++)
        sum = mix(sum, (uint64_t)info->shape[d]);
    return sum;
}

static bool dtypes_agree(const look *l)
{
    const ckpt__exam *x = l->x;
    bool agree = true, some = false;
    for (size_t i = 0; i < x->o->slot_count && agree; i++) {
        size_t t = x->o->slots[i].shaped;
        some = some || t != SIZE_MAX;
        agree = t == SIZE_MAX || x->b->index->tensors[t].info.dtype == param_of(l, i)->dtype;
    }
    return agree && some;
}

static bool build_modules(look *l)
{
    const ckpt__exam *x = l->x;
    ckpt__hash *paths = ckpt__hash_new(x->o->slot_count);
    l->no_memory = !paths;
    if (paths)
        add_module(l, paths, ckpt__s(""), SIZE_MAX);
    for (size_t i = 0; i < x->o->slot_count && !l->no_memory; i++) {
        ckpt_str name = x->m->entries[l->order->entries[i]].own;
        size_t at = 0;
        uint64_t sum = token(l, i, true);
        for (size_t k = 0; k <= name.size && !l->no_memory; k++) {
            if (k > 0 && (k == name.size || (name.data[k] != '.' && name.data[k] != '/'))) /* Keras writes a/b */
                continue;
            if (k > 0)
                at = add_module(l, paths, (ckpt_str){name.data, k}, at);
            l->modules[at].sum = mix(l->modules[at].sum, sum);
            l->modules[at].count++;
            l->modules[at].vectors = l->modules[at].vectors && param_of(l, i)->ndim < 2;
        }
        l->home[i] = at;
    }
    ckpt__hash_free(paths);
    return !l->no_memory;
}

static void find_top(look *l)
{
    l->top = 0;
    while (l->modules[l->top].children == 1) {
        size_t next = l->top + 1; /* modules stand behind their parents */
        while (l->modules[next].parent != l->top)
            next++;
        l->top = next;
    }
}

/* ---- what could be exchanged */

static void add_exchange(look *l, ckpt_str a, ckpt_str b, size_t count)
{
    ckpt__order *o = l->order;
    char text[200], one[60], two[60];
    if (!o->ambiguous)
        o->exchange_count = 0; /* those within modules */
    o->ambiguous = true;
    o->plain = false;
    if (o->exchange_count == CKPT__EXCHANGES)
        return;
    o->exchanges[o->exchange_count++] = (ckpt__exchange){a, b, count};
    snprintf(text, sizeof text, "%s%s <-> %s: %zu parameter%s", *o->why ? "; " : "",
             ckpt__escape(one, sizeof one, a.data, a.size), ckpt__escape(two, sizeof two, b.data, b.size), count,
             count == 1 ? "" : "s");
    size_t n = strlen(o->why), more = strlen(text);
    if (n + more < sizeof o->why)
        memcpy(o->why + n, text, more + 1);
}

/* "norm" of "norm2"; the whole where no number ends it. */
static ckpt_str stem_of(ckpt_str key)
{
    size_t n = key.size;
    while (n > 0 && key.data[n - 1] >= '0' && key.data[n - 1] <= '9')
        n--;
    return (ckpt_str){key.data, n};
}

static bool of_one_list(const module *a, const module *b)
{
    ckpt_str x = stem_of(a->key), y = stem_of(b->key);
    return x.size < a->key.size && y.size < b->key.size && ckpt__str_equal(x, y);
}

/* A norm, or a scale: whoever hands over what it belongs to hands it over with that. */
static bool is_norm(const module *m)
{
    return m->vectors && m->children == 0;
}

/* Modules beside each other with equal sequences of shapes: are they branches that a program may hand over in any order? */
static bool are_branches(const look *l, const module *a, const module *b)
{
    bool top = a->parent == l->top, modules = a->children > 0 || b->children > 0;
    if (l->x->m->parts > 1 && top)
        return true;
    if ((a->in_list && !top) || (all_digits(a->key) && all_digits(b->key)))
        return false;
    if (is_norm(a) && is_norm(b))
        return false;
    if (of_one_list(a, b))
        return modules && top;
    return top || (modules && a->count > 1);
}

/* No other module of the same parent is between them: who hands over a table and a head in each other's place moves more. */
static bool stand_together(const look *l, size_t a, size_t b)
{
    for (size_t i = a + 1; i < b; i++)
        if (l->modules[i].parent == l->modules[a].parent)
            return false;
    return true;
}

static ckpt_status find_twins(look *l)
{
    ckpt__hash *seen = ckpt__hash_new(l->count);
    l->no_memory = l->no_memory || !seen;
    for (size_t i = 1; i < l->count && !l->no_memory; i++) {
        const module *m = &l->modules[i];
        uint64_t key[4] = {m->parent, m->sum, m->count, m->children > 0};
        size_t first = i;
        char *kept = ckpt__arena_copy(l->keys, (const char *)key, sizeof key);
        int put = kept ? ckpt__hash_put(seen, kept, sizeof key, i, &first) : -1;
        l->no_memory = put < 0;
        if (put != 0 || !are_branches(l, &l->modules[first], m))
            continue;
        if (m->count > 1 || l->x->m->parts > 1)
            add_exchange(l, l->modules[first].path, m->path, m->count);
        else if (stand_together(l, first, i))
            add_doubt(l, l->modules[first].path, m->path);
    }
    ckpt__hash_free(seen);
    return l->no_memory ? ckpt__canon_no_memory(l->x->b) : CKPT_OK;
}

/* ---- the modules at the top in another order */

/* A module at the top, or the parameters beside them: its slots, group after group, as the optimizer has them. For
 * the names above, h is block 0 with the slots {0, 1, 2, 3}, and head is block 1 with the slot {4}. */
typedef struct block {
    size_t module;                  /* number of the module */
    size_t *slots, count, capacity; /* heap, owned by the list of blocks */
    size_t before; /* the block that must come first: an earlier entry of the same list; SIZE_MAX: none */
} block;

/* The search for another order of the blocks. A block that is placed takes the next free slots of each group. With
 * the order {1, 0} and one group, head.w is tried in slot 0: if the state there has its shape, the parameters of h
 * are tried in the slots 1 to 4. All arrays are the heap's, and try_orders frees them. */
typedef struct tries {
    look *l; /* borrowed */
    block *blocks;
    size_t count;          /* count is at most BLOCKS */
    size_t *taken;         /* slots of each group that are taken */
    size_t *chosen, depth; /* numbers of blocks, in the order that is tried; how many are placed */
    bool *used;            /* one a block: it is among the chosen */
    size_t *entries;       /* slot -> entry, of this order */
    uint64_t steps;        /* of the search so far; it ends beyond `budget` */
} tries;

static bool place(tries *t, size_t number)
{
    const ckpt__exam *x = t->l->x;
    const block *b = &t->blocks[number];
    size_t i = 0;
    for (; i < b->count; i++) {
        size_t slot = b->slots[i], g = x->o->slots[slot].group, to = x->o->groups[g].first + t->taken[g];
        t->steps++;
        if (t->taken[g] >= x->o->groups[g].count || !ckpt__slot_fits(x->b, &x->o->slots[to], param_of(t->l, slot)))
            break;
        t->entries[to] = t->l->order->entries[slot];
        t->taken[g]++;
    }
    if (i == b->count) {
        t->used[number] = true;
        t->chosen[t->depth++] = number;
        return true;
    }
    while (i > 0)
        t->taken[x->o->slots[b->slots[--i]].group]--;
    return false;
}

static size_t take_back(tries *t)
{
    size_t number = t->chosen[--t->depth];
    const block *b = &t->blocks[number];
    for (size_t i = 0; i < b->count; i++)
        t->taken[t->l->x->o->slots[b->slots[i]].group]--;
    t->used[number] = false;
    return number;
}

static bool differs(const tries *t)
{
    return memcmp(t->entries, t->l->order->entries, t->l->x->o->slot_count * sizeof *t->entries) != 0;
}

/* Goes through the orders of the blocks until one fits that gives other names. */
static bool other_order(tries *t)
{
    size_t from = 0;
    for (;;) {
        bool placed = false;
        if (t->depth == t->count && differs(t))
            return true;
        for (size_t i = from; i < t->count && !placed && t->depth < t->count; i++) {
            t->steps++;
            placed = !t->used[i] && (t->blocks[i].before == SIZE_MAX || t->used[t->blocks[i].before]) && place(t, i);
        }
        if (t->steps > budget || (!placed && t->depth == 0))
            return false;
        from = placed ? 0 : take_back(t) + 1;
    }
}

/* The block of a slot: the module below the top that it is in; l->top for what lies beside those. */
static size_t block_of(const look *l, size_t slot)
{
    size_t at = l->home[slot];
    while (at != SIZE_MAX && at != l->top && l->modules[at].parent != l->top)
        at = l->modules[at].parent;
    return at == SIZE_MAX ? l->top : at;
}

static bool same_list(const look *l, size_t a, size_t b)
{
    const module *x = &l->modules[a], *y = &l->modules[b];
    if (a == l->top || b == l->top || l->x->m->parts > 1)
        return false;
    if (x->count == 1 && y->count == 1 && x->sum == y->sum)
        return true; /* a doubt, and said as one */
    return of_one_list(x, y) && (all_digits(x->key) || !(x->children || y->children));
}

static bool fill_blocks(tries *t)
{
    look *l = t->l;
    size_t n = l->x->o->slot_count, last = 0, taken = 0, *number = calloc(l->count, sizeof *number);
    bool ok = number != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        size_t m = block_of(l, i);
        if (m != l->top && !number[m] && t->count && is_norm(&l->modules[m]) && l->x->m->parts < 2)
            number[m] = number[last];
        else if (m != l->top && !number[m] && t->count == 1 && t->blocks[0].module != l->top &&
                 is_norm(&l->modules[t->blocks[0].module]) && !taken && l->x->m->parts < 2)
            taken = number[m] = 1; /* the first one is a norm, and goes with what follows */
        last = m;
        if (!number[m]) {
            if (t->count == BLOCKS)
                break;
            t->blocks[t->count] = (block){.module = m, .before = SIZE_MAX};
            for (size_t k = t->count; k > 0 && t->blocks[t->count].before == SIZE_MAX; k--)
                if (same_list(l, t->blocks[k - 1].module, m))
                    t->blocks[t->count].before = k - 1;
            number[m] = ++t->count;
        }
        block *b = &t->blocks[number[m] - 1];
        ok = ckpt__grow(&b->slots, &b->capacity, b->count + 1, sizeof *b->slots);
        if (ok)
            b->slots[b->count++] = i;
    }
    free(number);
    return ok;
}

static void say_order(tries *t)
{
    look *l = t->l;
    const size_t *was = l->order->entries, *now = t->entries;
    size_t n = l->x->o->slot_count, first = 0, count = 0;
    for (size_t i = n; i > 0; i--) {
        count += was[i - 1] != now[i - 1];
        first = was[i - 1] != now[i - 1] ? i - 1 : first;
    }
    size_t other = first;
    while (other + 1 < n && was[other] != now[first])
        other++;
    size_t a = block_of(l, first), b = block_of(l, other);
    for (size_t i = 0; l->order->ambiguous && i < l->order->exchange_count; i++) {
        const ckpt__exchange *x = &l->order->exchanges[i];
        if ((ckpt__str_equal(x->a, l->modules[a].path) && ckpt__str_equal(x->b, l->modules[b].path)) ||
            (ckpt__str_equal(x->b, l->modules[a].path) && ckpt__str_equal(x->a, l->modules[b].path)))
            return;
    }
    ckpt_str beside = ckpt__s("the parameters beside them");
    add_exchange(l, a == l->top ? beside : l->modules[a].path, b == l->top ? beside : l->modules[b].path, count);
}

static ckpt_status try_orders(look *l)
{
    const ckpt__exam *x = l->x;
    size_t n = x->o->slot_count;
    tries t = {.l = l,
               .blocks = calloc(BLOCKS + 1, sizeof *t.blocks),
               .taken = calloc(x->o->group_count + 1, sizeof *t.taken),
               .chosen = calloc(BLOCKS + 1, sizeof *t.chosen),
               .used = calloc(BLOCKS + 1, sizeof *t.used),
               .entries = calloc(n + 1, sizeof *t.entries)};
    bool ok = t.blocks && t.taken && t.chosen && t.used && t.entries && fill_blocks(&t);
    size_t in_blocks = 0;
    for (size_t i = 0; ok && i < t.count; i++)
        in_blocks += t.blocks[i].count;
    if (ok && in_blocks == n && t.count > 1 && other_order(&t))
        say_order(&t);
    for (size_t i = 0; t.blocks && i < t.count; i++)
        free(t.blocks[i].slots);
    free(t.blocks);
    free(t.taken);
    free(t.chosen);
    free(t.used);
    free(t.entries);
    return ok ? CKPT_OK : ckpt__canon_no_memory(x->b);
}

/* ---- groups */

static bool equal_groups(const look *l, const ckpt__opt_group *a, const ckpt__opt_group *b)
{
    bool equal = a->count == b->count && a->count > 0;
    for (size_t i = 0; i < a->count && equal; i++)
        equal = token(l, a->first + i, false) == token(l, b->first + i, false);
    return equal;
}

static ckpt_str group_text(look *l, size_t group)
{
    char text[40];
    int n = snprintf(text, sizeof text, "group %zu", group);
    return ckpt__arena_str(l->x->b->canon->arena, text, n > 0 ? (size_t)n : 0);
}

static bool add_groups(look *l, size_t a, size_t b, size_t count)
{
    ckpt_str one = group_text(l, a), two = group_text(l, b);
    if (!one.data || !two.data)
        return false;
    add_exchange(l, one, two, count);
    return true;
}

/* How many of a group have a shape that another group has too. */
static size_t common(const look *l, const ckpt__opt_group *a, const ckpt__opt_group *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->count && i < 1000; i++) {
        uint64_t mine = token(l, a->first + i, false);
        size_t k = 0;
        while (k < b->count && k < 1000 && token(l, b->first + k, false) != mine)
            k++;
        n += k < b->count && k < 1000;
    }
    return n;
}

/* Names pairs of groups: those of equal shapes, or the first that share some. */
static bool name_groups(look *l, bool equal, size_t *count)
{
    const ckpt__optimizer *o = l->x->o;
    size_t named = 0;
    bool ok = true;
    for (size_t a = 0; ok && a < o->group_count && a < 32; a++)
        for (size_t b = a + 1; ok && b < o->group_count && b < 32 && named < (equal ? 3 : 1); b++) {
            size_t n = !equal                                          ? common(l, &o->groups[a], &o->groups[b])
                       : equal_groups(l, &o->groups[a], &o->groups[b]) ? o->groups[a].count
                                                                       : 0;
            named += n > 0;
            ok = n == 0 || add_groups(l, a, b, n);
        }
    *count = named;
    return ok;
}

static bool shapes_shared(const look *l)
{
    const ckpt__optimizer *o = l->x->o;
    for (size_t a = 0; a < o->group_count; a++)
        for (size_t b = a + 1; b < o->group_count; b++)
            if (common(l, &o->groups[a], &o->groups[b]) > 0)
                return true;
    return false;
}

static ckpt_status check_groups(look *l)
{
    bool several = false;
    ckpt_status s = CKPT_OK;
    if (l->x->o->group_count < 2 || l->x->decided)
        return CKPT_OK;
    if (l->x->list)
        s = ckpt__canon_shuffles(l->x, &several);
    else
        several = shapes_shared(l);
    if (s != CKPT_OK || !several)
        return s;
    size_t named = 0;
    bool ok = name_groups(l, true, &named) && (named || name_groups(l, false, &named));
    l->order->ambiguous = true;
    l->order->plain = false;
    return ok ? CKPT_OK : ckpt__canon_no_memory(l->x->b);
}

/* ---- how many have a twin in shape */

/* One number a module at the top, for the note. */
static ckpt_status count_equal(look *l)
{
    size_t n = l->x->o->slot_count, *times = calloc(n + 1, sizeof *times), *first = calloc(n + 1, sizeof *first);
    size_t *in = calloc(l->count + 1, sizeof *in);
    ckpt__hash *seen = ckpt__hash_new(n);
    bool ok = times && first && in && seen;
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t key = token(l, i, false);
        char *kept = ckpt__arena_copy(l->keys, (const char *)&key, sizeof key);
        first[i] = i;
        ok = kept && ckpt__hash_put(seen, kept, sizeof key, i, &first[i]) >= 0;
        if (ok)
            times[first[i]]++;
    }
    for (size_t i = 0; ok && i < n; i++)
        if (times[first[i]] > 1) {
            l->order->exchangeable++;
            in[block_of(l, i)]++;
        }
    for (size_t m = 0; ok && !l->order->ambiguous && m < l->count && l->order->exchange_count < CKPT__EXCHANGES; m++)
        if (in[m] && m != l->top)
            l->order->exchanges[l->order->exchange_count++] = (ckpt__exchange){l->modules[m].path, {NULL, 0}, in[m]};
    free(times);
    free(first);
    free(in);
    ckpt__hash_free(seen);
    return ok ? CKPT_OK : ckpt__canon_no_memory(l->x->b);
}

ckpt_status ckpt__canon_weigh(const ckpt__exam *x, ckpt__order *order)
{
    look l = {.x = x, .order = order, .keys = ckpt__arena_new(0), .home = calloc(x->o->slot_count + 1, sizeof *l.home)};
    bool ok = l.keys && l.home && x->o->slot_count > 0, assumed = x->b->hints->assume_order != NULL;
    if (x->o->slot_count == 0) {
        ckpt__arena_free(l.keys);
        free(l.home);
        return CKPT_OK;
    }
    l.dtypes = ok && dtypes_agree(&l);
    ok = ok && build_modules(&l);
    ckpt_status s = ok ? CKPT_OK : ckpt__canon_no_memory(x->b);
    if (s == CKPT_OK) {
        find_top(&l);
        s = count_equal(&l);
    }
    if (s == CKPT_OK && !assumed)
        s = find_twins(&l);
    if (s == CKPT_OK && !assumed)
        s = check_groups(&l);
    if (s == CKPT_OK && !assumed)
        s = try_orders(&l);
    free(l.home);
    free(l.modules);
    ckpt__arena_free(l.keys);
    return s;
}
