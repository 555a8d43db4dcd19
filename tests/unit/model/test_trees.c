/* The trees of several files as one: which places there are, what becomes of them, what each file has for itself; over random trees
 * against a plain reference; and with every allocation failing in turn. */
#include <stdio.h>
#include <stdlib.h>
#include "model/trees.h"
#include "../made_values.h"
#include "../runner.h"
#include "../scarce_memory.h"

enum { FILES = 3 };

static const ckpt_value *list_of(ckpt_kind kind, const ckpt_value *one, const ckpt_value *two)
{
    const ckpt_value *items[] = {one, two};
    return ckpt__value_list(ix->arena, kind, items, two ? 2 : 1);
}

/* Values are common where they are alike in all files that have them, and each file's own where not. */
typedef struct merging {
    size_t asked;
    const char *rename; /* this key becomes "renamed"; NULL: none */
    ckpt_error *err;
} merging;

static ckpt_status merge(void *ctx, const ckpt__place *at, ckpt_entry *out, ckpt__entries *own)
{
    merging *m = ctx;
    const ckpt_value *first = at->values[ckpt__place_first(at)];
    bool same = true, some;
    m->asked++;
    if (m->rename && at->key->kind == CKPT_V_STR && ckpt__str_is(at->key->text, m->rename) &&
        !(out->key = ckpt__value_str(ix->arena, "renamed", 7)))
        return ckpt__fail_memory(m->err, "a key", 0);
    if (ckpt__place_is(at, CKPT_V_DICT) || ckpt__place_is_lists(at)) {
        ckpt_status status = ckpt__place_merge(at, ix->arena, merge, m, &out->value, &some, own, m->err);
        out->value = some ? out->value : NULL;
        return status;
    }
    for (size_t i = 0; i < at->count; i++)
        same = same && (!at->values[i] || ckpt__value_alike(first, at->values[i]));
    out->value = same ? first : NULL;
    return same ? CKPT_OK : ckpt__place_keep(at, own, m->err);
}

/* What comes of the trees, and in own[i] what file i has for itself. */
static const ckpt_value *merged(const ckpt_value **trees, size_t files, merging *m, ckpt__entries *own)
{
    const ckpt__place root = {.values = trees, .count = files};
    const ckpt_value *out = NULL;
    ck_assert_int_eq(ckpt__place_merge(&root, ix->arena, merge, m, &out, NULL, own, m->err), CKPT_OK);
    return out;
}

/* The root's entries are a file's own as they are. */
static const ckpt_value *own_dict(ckpt__entries *own)
{
    const ckpt_value *dict = ckpt__entries_dict(own, ix->arena);
    free(own->items);
    return dict;
}

START_TEST(what_is_not_the_same_is_of_each_file)
{
    ckpt__entries own[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    merging m = {.asked = 0};
    const ckpt_value *trees[] = {dict_of("step", number(3), "rng", dict_of("cpu", word("A"), NULL, NULL)),
                                 dict_of("step", number(3), "rng", dict_of("cpu", word("B"), NULL, NULL))};
    const ckpt_value *out = merged(trees, 2, &m, own);
    ck_assert(ckpt__value_alike(out, dict_of("step", number(3), NULL, NULL)));
    ck_assert_uint_eq(m.asked, 3);
    ck_assert(ckpt__value_alike(own_dict(&own[0]), dict_of("rng", dict_of("cpu", word("A"), NULL, NULL), NULL, NULL)));
    ck_assert(ckpt__value_alike(own_dict(&own[1]), dict_of("rng", dict_of("cpu", word("B"), NULL, NULL), NULL, NULL)));
}
END_TEST

START_TEST(keys_in_the_order_in_which_they_are_met)
{
    ckpt__entries own[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    merging m = {.rename = "b"};
    ckpt_value *first = dict_of("a", number(1), "b", number(2));
    first->class_name = ckpt__s("collections.OrderedDict");
    const ckpt_value *state = number(9), *trees[] = {first, dict_of("c", number(3), "a", number(1))};
    first->state = state;
    const ckpt_value *out = merged(trees, 2, &m, own);
    ck_assert_uint_eq(out->entry_count, 3);
    ck_assert(ckpt__str_is(out->entries[0].key->text, "a") && ckpt__str_is(out->entries[1].key->text, "renamed") &&
              ckpt__str_is(out->entries[2].key->text, "c"));
    ck_assert(ckpt__str_is(out->class_name, "collections.OrderedDict") && out->state == state);
    ck_assert(own[0].count == 0 && own[1].count == 0);
}
END_TEST

START_TEST(a_number_is_another_key_than_its_text)
{
    ckpt__entries own[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    merging m = {.asked = 0};
    const ckpt_entry one = {number(1), word("n")};
    const ckpt_value *trees[] = {dict_of("1", word("t"), NULL, NULL), ckpt__value_dict(ix->arena, &one, 1)};
    ck_assert_uint_eq(merged(trees, 2, &m, own)->entry_count, 2);
}
END_TEST

/* Items behind one that the files have not in common keep their numbers. */
START_TEST(lists_keep_their_numbers)
{
    ckpt__entries own[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    merging m = {.asked = 0};
    const ckpt_value *trees[] = {dict_of("l", list_of(CKPT_V_TUPLE, word("x"), number(2)), NULL, NULL),
                                 dict_of("l", list_of(CKPT_V_TUPLE, word("y"), number(2)), NULL, NULL)};
    const ckpt_value *l = merged(trees, 2, &m, own)->entries[0].value;
    ck_assert(l->kind == CKPT_V_TUPLE && l->item_count == 2);
    ck_assert(l->items[0]->kind == CKPT_V_NONE && l->items[1]->integer == 2);
    const ckpt_entry numbered = {number(0), word("x")};
    ck_assert(
        ckpt__value_alike(own_dict(&own[0]), dict_of("l", ckpt__value_dict(ix->arena, &numbered, 1), NULL, NULL)));
    free(own[1].items);
}
END_TEST

START_TEST(places)
{
    const ckpt_value *list = list_of(CKPT_V_LIST, number(1), NULL), *pair = list_of(CKPT_V_LIST, number(1), number(2)),
                     *tuple = list_of(CKPT_V_TUPLE, number(1), NULL);
    const struct {
        const ckpt_value *values[FILES];
        size_t first;
        bool ints, lists;
    } cases[] = {
        {{number(1), number(2), number(3)}, 0, true, false},
        {{NULL, number(2), NULL}, 1, true, false},
        {{number(1), word("2"), NULL}, 0, false, false},
        {{NULL, NULL, list}, 2, false, true},
        {{list, NULL, list}, 0, false, true},
        {{list, pair, NULL}, 0, false, false},
        {{NULL, list, tuple}, 1, false, false},
        {{tuple, tuple, tuple}, 0, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_value *values[FILES] = {cases[i].values[0], cases[i].values[1], cases[i].values[2]};
        const ckpt__place at = {.values = values, .count = FILES};
        ck_assert_msg(ckpt__place_first(&at) == cases[i].first, "case %zu", i);
        ck_assert_msg(ckpt__place_is(&at, CKPT_V_INT) == cases[i].ints, "case %zu", i);
        ck_assert_msg(ckpt__place_is_lists(&at) == cases[i].lists, "case %zu", i);
    }
    const ckpt__place none = {.values = (const ckpt_value *[FILES]){NULL, NULL, NULL}, .count = FILES};
    ck_assert_uint_eq(ckpt__place_first(&none), FILES);
}
END_TEST

/* ---- random trees: each leaf of a file is in the one tree, or in the file's own, and nothing else is */

static unsigned seed;

static unsigned roll(unsigned sides)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % sides;
}

/* Files differ in some leaves, and some lack keys. */
static ckpt_value *random_tree(size_t file, unsigned shape, int depth)
{
    ckpt_entry entries[4];
    size_t count = 0;
    for (unsigned k = 0; k < 4; k++) {
        const unsigned kind = (shape >> (2 * k)) & 3, own = shape * 31 + k;
        const char name[2] = {(char)('a' + k), 0};
        if (kind == 0 && own % 3 == file) /* it lacks it */
            continue;
        const ckpt_value *v = kind == 1 && depth < 3 ? random_tree(file, own * 7 + 5, depth + 1)
                              : kind == 2            ? number((int64_t)(own + file))
                                                     : number((int64_t)own);
        entries[count++] = (ckpt_entry){word(name), v};
    }
    return ckpt__value_dict(ix->arena, entries, count);
}

typedef struct leaves {
    const ckpt_value *one, *own; /* where each leaf has to be */
    size_t count, lost;
} leaves;

static int on_leaf(void *ctx, const ckpt_visit *visit)
{
    leaves *l = ctx;
    char path[64];
    if (visit->value->kind != CKPT_V_INT)
        return 0;
    snprintf(path, sizeof path, "%.*s", (int)visit->name.size, visit->name.data);
    const ckpt_value *both[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        const ckpt_value *v = i ? l->own : l->one;
        for (char *p = path; v && *p; p += 2) {
            const char key[2] = {*p, 0};
            v = ckpt_value_get(v, key);
            if (!p[1])
                break;
        }
        both[i] = v && v->kind == CKPT_V_INT ? v : NULL;
    }
    l->count++;
    l->lost += !both[0] == !both[1] || (both[0] ? both[0] : both[1])->integer != visit->value->integer;
    return 0;
}

static int count_leaf(void *ctx, const ckpt_visit *visit)
{
    *(size_t *)ctx += visit->value->kind == CKPT_V_INT;
    return 0;
}

START_TEST(random_trees)
{
    size_t commons = 0, owns = 0;
    for (unsigned round = 0; round < 300; round++) {
        seed = round + 1;
        const unsigned shape = roll(1 << 16);
        const ckpt_value *trees[FILES], *own_of[FILES];
        ckpt__entries own[FILES] = {{NULL, 0, 0}};
        merging m = {.asked = 0};
        for (size_t i = 0; i < FILES; i++)
            trees[i] = random_tree(i, shape, 0);
        const ckpt_value *out = merged(trees, FILES, &m, own);
        for (size_t i = 0; i < FILES; i++) {
            own_of[i] = own_dict(&own[i]);
            leaves l = {out, own_of[i], 0, 0};
            size_t count = 0;
            ck_assert_int_eq(ckpt_value_walk(trees[i], 0, on_leaf, &l, NULL), 0);
            ck_assert_msg(l.lost == 0, "shape %u, file %zu", shape, i);
            ck_assert_int_eq(ckpt_value_walk(own_of[i], 0, count_leaf, &count, NULL), 0);
            ck_assert_msg(count <= l.count, "shape %u: it has more for itself than there was", shape);
            owns += count;
        }
        ck_assert_int_eq(ckpt_value_walk(out, 0, count_leaf, &commons, NULL), 0);
    }
    ck_assert_msg(commons > 100 && owns > 100, "%zu in common, %zu of one file", commons, owns);
}
END_TEST

/* ---- want of memory */

START_TEST(short_of_memory)
{
    const ckpt_value *trees[] = {
        dict_of("a", list_of(CKPT_V_LIST, word("x"), number(2)), "b", dict_of("c", number(1), NULL, NULL)),
        dict_of("a", list_of(CKPT_V_LIST, word("y"), number(2)), "b", dict_of("c", number(2), "d", number(3)))};
    const ckpt__place root = {.values = trees, .count = 2};
    long calls = 0;
    for (bool refused = true; refused; calls++) {
        ckpt_error err = CKPT_ERROR_INIT;
        merging m = {.rename = "d", .err = &err};
        ckpt__entries own[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
        const ckpt_value *out = NULL;
        allocations_left = calls;
        const ckpt_status status = ckpt__place_merge(&root, ix->arena, merge, &m, &out, NULL, own, &err);
        refused = allocations_left < 0;
        allocations_left = -1;
        free(own[0].items);
        free(own[1].items);
        ck_assert_int_eq(status, refused ? CKPT_E_NO_MEMORY : CKPT_OK);
        ck_assert(refused || (out && out->entry_count == 2 && own[0].count == 2));
    }
    ck_assert_int_gt(calls, 10);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trees");
    TCase *t = tcase_create("trees");
    tcase_add_checked_fixture(t, make_index, free_index);
    tcase_add_test(t, what_is_not_the_same_is_of_each_file);
    tcase_add_test(t, keys_in_the_order_in_which_they_are_met);
    tcase_add_test(t, a_number_is_another_key_than_its_text);
    tcase_add_test(t, lists_keep_their_numbers);
    tcase_add_test(t, places);
    tcase_add_test(t, random_trees);
    tcase_add_test(t, short_of_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
