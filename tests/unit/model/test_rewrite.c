/* Another tree of one that is never touched: what is replaced and dropped, what is shared, cycles, what values have become; over
 * random graphs against a plain map; and with every allocation failing in turn. */
#include <stdlib.h>
#include "model/rewrite.h"
#include "../made_values.h"
#include "../runner.h"
#include "../scarce_memory.h"

static ckpt__edits *edits;
static bool held; /* objects hold their items and entries */

static bool holds(const ckpt__edits *e, const ckpt_value *v)
{
    (void)e;
    return held && v->kind == CKPT_V_OBJECT;
}

static void begin(void)
{
    make_index();
    held = false;
    edits = ckpt__edits_new(ix->arena, holds);
}

static void end(void)
{
    ckpt__edits_free(edits);
    free_index();
}

/* What to do where: one rule a value or a path. */
typedef struct rule {
    const ckpt_value *value; /* NULL: any */
    const char *path;        /* NULL: any */
    const ckpt_value *by;    /* NULL: dropped */
} rule;

typedef struct rules {
    const rule *list;
    size_t count, places, places_differ; /* no assert where memory is short: libcheck takes some */
} rules;

static int apply_rules(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    rules *r = ctx;
    r->places++;
    r->places_differ += spot->value != visit->value;
    for (size_t i = 0; i < r->count; i++)
        if ((!r->list[i].value || r->list[i].value == visit->value) &&
            (!r->list[i].path || ckpt__str_is(visit->name, r->list[i].path)))
            *to = r->list[i].by;
    return 0;
}

static const ckpt_value *rewrite(const ckpt_value *root, const rule *list, size_t count)
{
    rules r = {list, count, 0, 0};
    const ckpt_value *out = NULL;
    ck_assert_int_eq(ckpt__rewrite(edits, root, apply_rules, &r, &out, NULL), CKPT_OK);
    ck_assert(r.places_differ == 0 && (r.places > 0) == (root != NULL));
    return out;
}

static const ckpt_value *pair(ckpt_kind kind, const ckpt_value *a, const ckpt_value *b)
{
    const ckpt_value *items[] = {a, b};
    return ckpt__value_list(ix->arena, kind, items, 2);
}

START_TEST(example)
{
    const ckpt_value *x = number(1), *y = number(2), *z = word("z"), *list = pair(CKPT_V_LIST, x, y);
    const ckpt_value *root = dict_of("a", list, "b", x);
    const rule both[] = {{x, NULL, z}, {y, NULL, NULL}};
    const ckpt_value *now = rewrite(root, both, 2);
    ck_assert_ptr_ne(now, root);
    ck_assert_ptr_eq(now->entries[1].value, z);
    ck_assert_ptr_eq(now->entries[0].value->items[0], z);
    ck_assert_int_eq(now->entries[0].value->items[1]->kind, CKPT_V_NONE);
    ck_assert_uint_eq(now->entries[0].value->item_count, 2);
    ck_assert_ptr_eq(root->entries[0].value, list); /* what it was */
    ck_assert_ptr_eq(root->entries[1].value, x);
    ck_assert_ptr_eq(list->items[0], x);
    ck_assert_ptr_eq(list->items[1], y);
    ck_assert_ptr_eq(ckpt__edits_now(edits, root), now);
    ck_assert_ptr_eq(ckpt__edits_now(edits, list), now->entries[0].value);
    ck_assert_ptr_eq(ckpt__edits_now(edits, x), z);
    ck_assert_ptr_eq(ckpt__edits_now(NULL, x), x);
    const ckpt_value *same = rewrite(now, NULL, 0);
    ck_assert_ptr_eq(same, now); /* nothing changes: nothing is copied */
    ck_assert_ptr_null(rewrite(NULL, NULL, 0));
}
END_TEST

START_TEST(entries_go)
{
    const ckpt_value *inner = dict_of("x", number(1), "y", number(2)), *root = dict_of("keep", inner, "go", inner);
    const rule first[] = {{NULL, "go", NULL}};
    const ckpt_value *now = rewrite(root, first, 1);
    ck_assert(now->entry_count == 1 && ckpt__str_is(now->entries[0].key->text, "keep"));
    ck_assert_ptr_eq(now->entries[0].value, inner); /* shared with what it was */
    const rule then[] = {{NULL, "keep.x", NULL}};
    now = rewrite(now, then, 1);
    ck_assert(now->entry_count == 1 && now->entries[0].value->entry_count == 1);
    ck_assert_ptr_eq(ckpt__edits_now(edits, root), now); /* over both */
    ck_assert_ptr_eq(ckpt__edits_now(edits, inner), now->entries[0].value);
    ck_assert_uint_eq(inner->entry_count, 2);
    ck_assert_ptr_eq(rewrite(now, &(rule){NULL, "", number(7)}, 1), ckpt__edits_now(edits, root)); /* the root itself */
}
END_TEST

/* A value that takes the place of another is asked about next, and what is below it. */
START_TEST(goes_on)
{
    const ckpt_value *x = number(1), *old = word("old");
    const ckpt_value *fresh = dict_of("x", x, "old", word("other"));
    const rule list[] = {{old, NULL, fresh}, {NULL, "a.x", number(3)}};
    const ckpt_value *now = rewrite(dict_of("a", old, NULL, NULL), list, 2);
    ck_assert_int_eq(now->entries[0].value->entries[0].value->integer, 3);
    ck_assert_int_eq(fresh->entries[0].value->integer, 1); /* what it was given is not touched either */
}
END_TEST

static ckpt_value *object_of(const ckpt_value *item, const ckpt_value *entry, const ckpt_value *attribute)
{
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_OBJECT);
    const ckpt_value *list = pair(CKPT_V_LIST, item, number(5)), *dict = dict_of("e", entry, "f", number(6));
    v->items = list->items;
    v->item_count = 2;
    v->entries = dict->entries;
    v->entry_count = 2;
    v->state = dict_of("s", attribute, "t", number(7));
    v->args = pair(CKPT_V_TUPLE, item, entry);
    v->origin = "a pickle";
    return v;
}

START_TEST(objects)
{
    const ckpt_value *item = word("item"), *entry = word("entry"), *attribute = word("attribute");
    const ckpt_value *object = object_of(item, entry, attribute), *root = dict_of("o", object, NULL, NULL);
    const rule list[] = {{NULL, "o.0", NULL}, {NULL, "o.e", NULL}, {NULL, "o.s", NULL}};
    const ckpt_value *now = rewrite(root, list, 3)->entries[0].value;
    ck_assert(now->item_count == 2 && now->items[0]->kind == CKPT_V_NONE && now->args->items[0]->kind == CKPT_V_NONE);
    ck_assert(now->entry_count == 2 && now->entries[0].value->kind == CKPT_V_NONE); /* wherever they stand */
    ck_assert(now->state->entry_count == 1 && ckpt__str_is(now->state->entries[0].key->text, "t"));
    ck_assert(object->state->entry_count == 2 && object->items[0] == item && object->args->items[1] == entry);
    held = true;
    object = object_of(item = word("item"), entry = word("entry"), attribute);
    now = rewrite(dict_of("o", object, NULL, NULL), list, 2);
    const ckpt_value *o = now->entries[0].value;
    ck_assert(o->item_count == 2 && o->items[0]->kind == CKPT_V_NONE && o->args->items[0] == item);
    ck_assert(o->entry_count == 1 && ckpt__str_is(o->entries[0].key->text, "f"));
    ck_assert_int_eq(ckpt__edits_close_holes(edits, now, &now, NULL), CKPT_OK);
    o = now->entries[0].value;
    ck_assert(o->item_count == 1 && o->items[0]->integer == 5);
    ck_assert_ptr_eq(ckpt__edits_now(edits, object), o);
    ck_assert_uint_eq(object->item_count, 2);
    const ckpt_value *none = now;
    ck_assert_int_eq(ckpt__edits_close_holes(edits, now, &now, NULL), CKPT_OK);
    ck_assert_ptr_eq(now, none); /* there are none any more */
}
END_TEST

/* A pair of dicts as state: (__dict__, slots). */
START_TEST(slots)
{
    ckpt_value *object = ckpt__value_new(ix->arena, CKPT_V_OBJECT);
    object->state = pair(CKPT_V_TUPLE, dict_of("a", number(1), NULL, NULL), dict_of("b", number(2), "c", number(3)));
    const rule list[] = {{NULL, "o.b", NULL}, {NULL, "o.a", number(9)}};
    const ckpt_value *now = rewrite(dict_of("o", object, NULL, NULL), list, 2)->entries[0].value;
    ck_assert_int_eq(now->state->items[0]->entries[0].value->integer, 9);
    ck_assert(now->state->items[1]->entry_count == 1 && now->state->items[1]->entries[0].value->integer == 3);
    ck_assert_uint_eq(object->state->items[1]->entry_count, 2);
}
END_TEST

START_TEST(cycles)
{
    const ckpt_value *items[2] = {number(1), NULL};
    ckpt_value *loop = ckpt__value_new(ix->arena, CKPT_V_LIST);
    items[1] = loop;
    loop->items = items;
    loop->item_count = 2;
    const ckpt_value *root = dict_of("l", loop, "m", loop), *two = number(2);
    const ckpt_value *now = rewrite(root, &(rule){items[0], NULL, two}, 1), *is = now->entries[0].value;
    ck_assert_ptr_ne(is, loop);
    ck_assert_ptr_eq(is, now->entries[1].value);
    ck_assert(is->items[0] == two && is->items[1] == is);
    ck_assert(loop->items[0] != two && loop->items[1] == loop);
}
END_TEST

START_TEST(keys)
{
    const ckpt_value *part = word("part"), *key = pair(CKPT_V_TUPLE, part, number(1));
    ckpt_entry e = {key, number(2)};
    const ckpt_value *root = ckpt__value_dict(ix->arena, &e, 1), *now = NULL, *other = word("other");
    ck_assert(ckpt__edits_replace(edits, part, other));
    ck_assert(ckpt__edits_replace(edits, other, other)); /* no edit */
    ck_assert_int_eq(ckpt__edits_apply(edits, root, &now, NULL), CKPT_OK);
    ck_assert_ptr_eq(now->entries[0].key->items[0], other);
    ck_assert_ptr_eq(now->entries[0].value, e.value);
    ck_assert_ptr_eq(key->items[0], part);
}
END_TEST

static int refuse(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    (void)spot;
    (void)to;
    return visit->path.count ? CKPT_E_CANCELLED : (*(int *)ctx)++;
}

START_TEST(ends_early)
{
    int n = 0;
    const ckpt_value *out = NULL;
    ck_assert_int_eq(ckpt__rewrite(edits, dict_of("a", number(1), NULL, NULL), refuse, &n, &out, NULL),
                     CKPT_E_CANCELLED);
    ck_assert(n == 1 && !out);
}
END_TEST

/* ---- random graphs */

enum { NODES = 60 };

static uint64_t seed;

static size_t random_below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((seed >> 33) % n);
}

typedef struct graph {
    ckpt_value *node[NODES];
    ckpt_value was[NODES]; /* a copy of each */
    const ckpt_value *by[NODES];
} graph;

/* Lists, dicts and leaves with edges to any of them: shared, and in cycles. */
static void make_graph(graph *g)
{
    for (size_t i = 0; i < NODES; i++)
        g->node[i] = ckpt__value_new(ix->arena, CKPT_V_INT);
    for (size_t i = 0; i < NODES; i++) {
        ckpt_value *v = g->node[i];
        size_t kind = i == 0 ? 0 : random_below(4), n = 1 + random_below(5);
        g->by[i] = NULL;
        if (kind >= 2) {
            v->integer = (int64_t)i;
            g->by[i] = random_below(3) == 0 ? number(1000 + (int64_t)i) : NULL;
        } else {
            const ckpt_value **items = ckpt__arena_array(ix->arena, n, sizeof *items);
            ckpt_entry *entries = ckpt__arena_array(ix->arena, n, sizeof *entries);
            for (size_t k = 0; k < n; k++) {
                items[k] = g->node[random_below(NODES)];
                entries[k] = (ckpt_entry){word("k"), g->node[random_below(NODES)]};
            }
            v->kind = kind ? CKPT_V_DICT : CKPT_V_LIST;
            v->items = kind ? NULL : items;
            v->item_count = kind ? 0 : n;
            v->entries = kind ? entries : NULL;
            v->entry_count = kind ? n : 0;
        }
    }
    for (size_t i = 0; i < NODES; i++)
        g->was[i] = *g->node[i];
}

static size_t number_of(const graph *g, const ckpt_value *v)
{
    size_t i = 0;
    while (i < NODES && g->node[i] != v)
        i++;
    return i;
}

static const ckpt_value *child_of(const ckpt_value *v, size_t k)
{
    return v->kind == CKPT_V_LIST ? v->items[k] : v->entries[k].value;
}

static size_t children_of(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST ? v->item_count : v->kind == CKPT_V_DICT ? v->entry_count : 0;
}

/* leads[i]: from node i there is a way to a leaf that is replaced. */
static void find_leads(const graph *g, bool *leads)
{
    for (size_t i = 0; i < NODES; i++)
        leads[i] = g->by[i] != NULL;
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < NODES; i++)
            for (size_t k = 0; k < children_of(g->node[i]); k++)
                if (leads[number_of(g, child_of(g->node[i], k))] && !leads[i])
                    more = leads[i] = true;
    }
}

/* From the root on: each node has one value in the other tree, which is of the same shape. */
static void check_graph(const graph *g, const ckpt_value *now)
{
    const ckpt_value *is[NODES] = {NULL};
    size_t stack[NODES], depth = 0;
    bool leads[NODES];
    find_leads(g, leads);
    is[0] = now;
    stack[depth++] = 0;
    while (depth) {
        size_t i = stack[--depth];
        const ckpt_value *v = is[i];
        ck_assert_ptr_eq(v, ckpt__edits_now(edits, g->node[i]));
        ck_assert((v != g->node[i]) == leads[i]);
        ck_assert(!g->by[i] || v == g->by[i]);
        ck_assert_uint_eq(children_of(v), children_of(g->node[i]));
        for (size_t k = 0; k < children_of(v); k++) {
            size_t c = number_of(g, child_of(g->node[i], k));
            if (!is[c])
                stack[depth++] = c;
            ck_assert(!is[c] || is[c] == child_of(v, k));
            is[c] = child_of(v, k);
        }
    }
    for (size_t i = 0; i < NODES; i++)
        ck_assert(memcmp(&g->was[i], g->node[i], sizeof g->was[i]) == 0);
}

START_TEST(graphs)
{
    size_t changed = 0;
    for (seed = 1; seed < 2000; seed += 7) {
        uint64_t before = seed;
        graph g;
        begin();
        make_graph(&g);
        for (size_t i = 0; i < NODES; i++)
            ck_assert(!g.by[i] || ckpt__edits_replace(edits, g.node[i], g.by[i]));
        const ckpt_value *now = NULL;
        ck_assert_int_eq(ckpt__edits_apply(edits, g.node[0], &now, NULL), CKPT_OK);
        check_graph(&g, now);
        changed += now != g.node[0];
        end();
        seed = before;
    }
    ck_assert_uint_gt(changed, 100);
}
END_TEST

/* Each list has the one before it, and the root has all: what changes at the first changes all, in as many steps as there are. */
START_TEST(long_way)
{
    enum { LONG = 300000 };
    const ckpt_value **all = ckpt__arena_array(ix->arena, LONG, sizeof *all), *now = NULL;
    all[0] = number(1);
    for (size_t i = 1; i < LONG; i++)
        all[i] = ckpt__value_list(ix->arena, CKPT_V_LIST, &all[i - 1], 1);
    const ckpt_value *root = ckpt__value_list(ix->arena, CKPT_V_LIST, all, LONG);
    ck_assert(ckpt__edits_replace(edits, all[0], number(2)));
    ck_assert_int_eq(ckpt__edits_apply(edits, root, &now, NULL), CKPT_OK);
    for (size_t i = 1; i < LONG; i++)
        ck_assert_ptr_eq(now->items[i]->items[0], now->items[i - 1]);
    ck_assert_int_eq(now->items[0]->integer, 2);
}
END_TEST

/* Everything once: replaced, dropped, held, closed. */
static ckpt_status all_of_it(const ckpt_value *root, bool *as_wanted, ckpt_error *err)
{
    const rule list[] = {{NULL, "o.0", NULL}, {NULL, "o.e", NULL}, {NULL, "n", root->entries[0].key}};
    rules r = {list, 3, 0, 0};
    ckpt__edits *e = ckpt__edits_new(ix->arena, holds);
    const ckpt_value *now = NULL;
    ckpt_status status = e ? ckpt__rewrite(e, root, apply_rules, &r, &now, err) : CKPT_E_NO_MEMORY;
    if (status == CKPT_OK)
        status = ckpt__edits_close_holes(e, now, &now, err);
    if (status == CKPT_OK)
        *as_wanted = now->entries[0].value->item_count == 1 && now->entries[1].value == root->entries[0].key;
    ckpt__edits_free(e);
    return status;
}

START_TEST(short_of_memory)
{
    held = true;
    const ckpt_value *root = dict_of("o", object_of(word("i"), word("e"), word("a")), "n", number(1));
    long calls = 0;
    for (bool refused = true; refused; calls++) {
        ckpt_error err = CKPT_ERROR_INIT;
        bool as_wanted = false;
        allocations_left = calls;
        ckpt_status status = all_of_it(root, &as_wanted, &err);
        refused = allocations_left < 0;
        allocations_left = -1;
        ck_assert_int_eq(status, refused ? CKPT_E_NO_MEMORY : CKPT_OK);
        ck_assert(as_wanted == !refused);
    }
    ck_assert_int_gt(calls, 10);
    ck_assert(root->entry_count == 2 && root->entries[0].value->item_count == 2);
}
END_TEST

START_TEST(pointers)
{
    static char bytes[1000];
    ckpt__pointers t = {NULL, 0, 0};
    size_t n = 7;
    ck_assert(!ckpt__pointers_get(&t, bytes, &n) && n == 7);
    for (size_t i = 0; i < sizeof bytes; i++)
        ck_assert_int_eq(ckpt__pointers_put(&t, &bytes[i], i), 1);
    ck_assert_int_eq(ckpt__pointers_put(&t, bytes, 5), 0);
    ck_assert_int_eq(ckpt__pointers_add(&t, bytes + 1), 0);
    ck_assert(ckpt__pointers_set(&t, bytes + 2, 9));
    for (size_t i = 0; i < sizeof bytes; i++)
        ck_assert(ckpt__pointers_get(&t, &bytes[i], &n) && n == (i == 2 ? 9 : i));
    ck_assert(!ckpt__pointers_get(&t, bytes + sizeof bytes, NULL));
    ckpt__pointers_free(&t);
    ck_assert(!ckpt__pointers_get(&t, bytes, NULL));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rewrite");
    TCase *t = tcase_create("rewrite"), *alone = tcase_create("alone");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, example);
    tcase_add_test(t, entries_go);
    tcase_add_test(t, goes_on);
    tcase_add_test(t, objects);
    tcase_add_test(t, slots);
    tcase_add_test(t, cycles);
    tcase_add_test(t, keys);
    tcase_add_test(t, ends_early);
    tcase_add_test(t, long_way);
    tcase_add_test(t, short_of_memory);
    tcase_add_test(alone, graphs);
    tcase_add_test(alone, pointers);
    suite_add_tcase(s, t);
    suite_add_tcase(s, alone);
    return run_suite(s);
}
