/* test_messages.c - what is wrong with a layout: every message, with its line and column, all of a file at once. */
#include "layout/layout.h"

#include <stdio.h>
#include "layout/parts.h"
#include "../runner.h"

#define HEAD "layout: 1\nsides: [a, b]\n"
#define RANKS(side) HEAD "rules: [{a: x, b: y}]\nranks:\n a: " side "\n"

/* The findings of a text, one a line. */
static void findings(const char *text, char *out, size_t size)
{
    ckpt__layout *layout = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_status status = ckpt__layout_parse(text, strlen(text), "x.yaml", report, &layout, &err);
    size_t used = 0;
    out[0] = 0;
    ck_assert_int_eq(status == CKPT_OK, layout != NULL);
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        used += (size_t)snprintf(out + used, size - used, "%s\n", ckpt_report_get(report, i)->message);
    if (status != CKPT_OK && !used)
        snprintf(out, size, "%s\n", err.message);
    ckpt_report_free(report);
    ckpt__layout_free(layout);
}

static const struct wrong {
    const char *text, *says[4]; /* each of them is in the findings; several findings at once */
} wrongs[] = {
    {"layout: 2\nsides: [a, b]\nrules: [{a: x, b: y}]\n", {"line 1, column 9: 'layout: 1' is expected"}},
    {"sides: [a, b]\nrules: [{a: x, b: y}]\n", {"line 1, column 1: 'layout: 1' is expected"}},
    {"layout: 1\nrules: []\n", {"line 1, column 1: 'sides' is expected"}},
    {"layout: 1\nsides: [a, a]\nrules: []\n", {"line 2, column 8: both sides have one name"}},
    {"layout: 1\nsides: [a, steps]\nrules: []\n", {"line 2, column 12: the name of a side", "has this word as a key"}},
    {HEAD "rules: []\n", {"line 3, column 8: 'rules' is expected"}},
    {HEAD "what: 1\nrules: [{a: x, b: y}]\n", {"line 3, column 1: there is no key 'what' here"}},
    {HEAD "vars: {n: 1 +}\nrules: [{a: x, b: y}]\n", {"line 3, column 11: '1 +', character 4: a number or a name"}},
    {HEAD "vars: {n: (1}\nrules: [{a: x, b: y}]\n", {"there is no ) for a ("}},
    {HEAD "vars: {n: 1)}\nrules: [{a: x, b: y}]\n", {"character 2: there is no ( for this )"}},
    {HEAD "vars: {n: 1 2}\nrules: [{a: x, b: y}]\n", {"character 3: + - * / or ) is expected here"}},
    {HEAD "vars: {n: m}\nrules: [{a: x, b: y}]\n", {"line 3, column 11: there is no variable 'm'"}},
    {HEAD "vars: {n: 9999999999999999999}\nrules: [{a: x, b: y}]\n", {"the number is too large"}},
    {HEAD "vars: {given: 1}\nrules: [{a: x, b: y}]\n", {"line 3, column 8: the name of a variable"}},
    {HEAD "vars: {n: {a: [x]}}\nrules: [{a: x, b: y}]\n", {"line 3, column 15: [name of a tensor, number"}},
    {HEAD "vars: {n: {a: [x, -1]}}\nrules: [{a: x, b: y}]\n", {"line 3, column 19: the number of a dimension"}},
    {HEAD "rules:\n- {a: x}\n- {a: z, b: w, x: 1}\n",
     {"line 4, column 3: the rule has no name for side b", "line 5, column 16: there is no key 'x' here"}},
    {HEAD "rules:\n- {a: '<i', b: y}\n- {a: 'i>', b: y}\n- {a: '<i><j>', b: y}\n- {a: '<i>0', b: y}\n",
     {"line 4, column 7: '<i', character 1: there is no > for this <",
      "line 5, column 7: 'i>', character 2: there is no <",
      "line 6, column 7: '<i><j>', character 4: two captures side by side",
      "line 7, column 7: '<i>0', character 4: a digit follows"}},
    {HEAD
     "rules:\n- {a: 'x<w:word>y', b: y}\n- {a: '<r:rest>x<i>', b: y}\n- {a: '<i:x>', b: y}\n- {a: '<i>.<i>', b: y}\n",
     {"a dot has to follow a captured word", "only a fixed text may follow", "a capture is <name>",
      "a name captures this twice"}},
    {HEAD "rules:\n- {a: x.<i>, b: y}\n", {"the name 'y' captures 0 parts, and 1 is expected"}},
    {HEAD "rules:\n- {a: x, b: y.<i>}\n", {"the name 'y.<i>' captures 'i', and 'x' does not"}},
    {HEAD "rules:\n- {a: [x, y], b: z}\n", {"a step 'segments' is expected"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [segments: {dim: 0}]}\n", {"segments are of several tensors"}},
    {HEAD "rules:\n- {a: [x, y], b: [z, w], steps: [segments: {dim: 0}]}\n", {"several names on both sides"}},
    {HEAD "rules:\n- {a: [x, y], b: z, steps: [segments: {dim: 0, sizes: [1, 2, 3]}]}\n",
     {"3 sizes, and the rule has 2 names"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [turn: 1]}\n", {"line 4, column 24: there is no step 'turn'"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [transpose: [0, 0]]}\n", {"line 4, column 39: dimension 0 is named twice"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [transpose: [0, 2]]}\n", {"2 is none of the 2 dimensions"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [reorder: {dim: 0, as: [2, 3], order: [0]}]}\n", {"the order has 1 numbers"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [view: {as: [2, 3]}, pad: 3]}\n",
     {"view needs the key 'dim'", "line 4, column 49: the step is text"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [view: {as: [2, 3]}]}\n", {"view needs the key 'dim'"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [view: {dim: 0, as: [2]}]}\n", {"a list of 2 to 32 sizes is expected"}},
    {HEAD "rules:\n- {a: x, b: z, steps: [pad: {dim: 0, to: 3}]}\n", {"pad needs the key 'from'"}},
    {HEAD "rules:\n- {a: x.<e>, b: z.<e>, steps: [stack: {dim: 0, over: e}]}\n", {"a stack's 'over' is a number"}},
    {HEAD "rules:\n- {a: 'x.<e:word>', b: z, steps: [stack: {dim: 0, over: e}]}\n", {"a stack's 'over' is a number"}},
    {HEAD "rules:\n- {a: x.<e>, b: z.<f>, steps: [stack: {dim: 0, over: [e, f]}]}\n", {"a stack's 'over' is a number"}},
    {HEAD "rules:\n- {a: x.<e>.<f>, b: z.<f>, steps: [stack: {dim: 0, over: [e, f]}]}\n",
     {"a stack's 'over' is a number"}},
    {HEAD "rules:\n- {a: x.<e>, b: z, steps: [stack: {dim: 0, over: [e, e]}]}\n", {"both dimensions are over 'e'"}},
    {HEAD "rules:\n- {a: x.<e>, b: z, steps: [stack: {dim: 0, over: [e]}]}\n", {"or a list of 2"}},
    {HEAD "rules:\n- {a: x.<e>, b: z, steps: [stack: {dim: 0, over: 3}]}\n", {"the name of a capture is expected"}},
    {HEAD "rules:\n- {a: x, b: z.<i>.<e>, steps: [stack: {dim: 0, over: e}]}\n", {"captures 'i', and 'x' does not"}},
    {HEAD "rules:\n- {a: x.<i>, b: z.<e>, steps: [stack: {dim: 0, over: e}]}\n",
     {"the name 'z.<e>' captures 1 part, and 2 are expected"}},
    {HEAD "rules:\n- {a: x, b: y, drop: true}\n", {"a rule that drops has one name, of one side"}},
    {HEAD "rules:\n- {a: x, b: y, optional: 1}\n", {"true or false is expected"}},
    {HEAD "rules:\n- {a: x, b: y, part: moments}\n", {"line 4, column 22: 'part' is 'weights' or 'states'"}},
    {HEAD "vars: {n: given}\nrules:\n- {a: x, b: y, when: m, unless: [n]}\n",
     {"line 5, column 22: the name of a variable", "line 5, column 33: the name of a variable"}},
    {HEAD "rules:\n- {a: [x, y], b: z, steps: [segments: {dim: 0}, view: {dim: 0, as: [2, 3], only: 0}]}\n",
     {"line 4, column 3: the step in line 4 has 'only', and stands where there is one tensor"}},
    {HEAD "rules:\n- {a: x, b: [y, z], steps: [view: {dim: 0, as: [2, 3], only: 0}, segments: {dim: 0}]}\n",
     {"has 'only', and stands where there is one tensor"}},
    {HEAD "rules:\n- {a: x.<e>, b: z, steps: [view: {dim: 0, as: [2, 3], only: 0}, stack: {dim: 0, over: e}]}\n",
     {"has 'only', and stands where there is one tensor"}},
    {HEAD "rules:\n- {a: [x, y], b: z, steps: [view: {dim: 0, as: [2, 3], only: [0, 2]}, segments: {dim: 0}]}\n",
     {"the step in line 4 is for a name that the rule has not: it has 2, from 0 on"}},
    {HEAD "rules:\n- {a: [x, y], b: z, steps: [view: {dim: 0, as: [2, 3], only: [x, 16]}, segments: {dim: 0}]}\n",
     {"line 4, column 63: the number of a name is expected", "line 4, column 66: the number of a name is expected"}},
    {HEAD "rules: [{a: x, b: y}]\nties:\n- {a: x}\n", {"line 5, column 3: a tie has the name"}},
    {HEAD "rules: [{a: x, b: y}]\nmesh: {dp: 2}\n", {"line 4, column 1: there is no key 'mesh' here"}},
    {RANKS("2"), {"line 5, column 5: a side of 'ranks' is text, and a map is expected"}},
    {HEAD "rules: [{a: x, b: y}]\nranks: {c: {mesh: {dp: 2}}}\n",
     {"line 4, column 9: there is no key 'c' here; there are a, b"}},
    {RANKS("{meshes: 1}"),
     {"line 5, column 6: there is no key 'meshes' here", "column 5: a side of 'ranks' needs the key 'mesh'"}},
    {RANKS("{mesh: {}}"), {"line 5, column 12: the mesh is a map of 1 to 8 axes"}},
    {RANKS("{mesh: [2, 2]}"), {"line 5, column 12: the mesh is a map of 1 to 8 axes"}},
    {RANKS("{mesh: {2: 2, dp: 2 +, tp: n}}"),
     {"line 5, column 13: the name of an axis", "line 5, column 23: '2 +', character 4",
      "column 32: there is no variable 'n'"}},
    {RANKS("{mesh: {dp: 2}, shard: []}"), {"line 5, column 28: 'shard' is a list of one entry or more"}},
    {RANKS("{mesh: {dp: 2}, shard: [{name: x}, {cuts: []}, 1, {name: '<i', cuts: [], optional: 2}]}"),
     {"line 5, column 29: an entry of 'shard' needs the key 'cuts'",
      "line 5, column 40: an entry of 'shard' needs the key 'name'", "line 5, column 52: the entry of 'shard' is text",
      "there is no > for this <"}},
    {RANKS("{mesh: {dp: 2}, shard: [{name: x, cuts: 1}, {name: y, cuts: [1, {}, {axis: tp, dim: x, by: 2}]}]}"),
     {"column 45: a list of at most 8 cuts", "column 66: the cut is text", "'tp' is not an axis of the mesh",
      "the number of a dimension"}},
    {RANKS("{mesh: {dp: 2}, shard: [{name: x, cuts: [{axis: dp, dim: 0}, {axis: dp, dim: 1}]}]}"),
     {"line 5, column 66: an axis cuts a tensor once"}},
    {RANKS("{mesh: {dp: 2}, shard: [{name: x, cuts: [{axis: dp, dim: 0, as: odd}]}]}"),
     {"line 5, column 69: ceil, even, balanced or a list of widths"}},
    {RANKS("{mesh: {dp: 2}, shard: [{name: x, cuts: [{axis: dp, dim: 0, as: [1, ')']}]}]}"),
     {"line 5, column 73: ')', character 1: a number, a name or ("}},
    {RANKS("{mesh: {dp: 2}, shard: [{name: x, cuts: [{axis: dp, dim: 0, segments: {groups: 2}}]}]}"),
     {"line 5, column 75: segments needs the key 'sizes'"}},
};

START_TEST(messages)
{
    const struct wrong *w = &wrongs[_i];
    char all[8000];
    findings(w->text, all, sizeof all);
    for (size_t i = 0; i < 4 && w->says[i]; i++)
        ck_assert_msg(strstr(all, w->says[i]), "'%s' is not in:\n%s\nof\n%s", w->says[i], all, w->text);
}
END_TEST

/* What does not fit a checkpoint. */
typedef struct named {
    const char *name;
    uint32_t ndim;
    int64_t shape[3];
} named;

/* Behind "W:" the weights of a name, behind "S:" its states. */
static ckpt__layout_name name_of(const named *n)
{
    const ckpt__layout_part part = strncmp(n->name, "W:", 2) == 0   ? CKPT__PART_WEIGHTS
                                   : strncmp(n->name, "S:", 2) == 0 ? CKPT__PART_STATES
                                                                    : CKPT__PART_ALL;
    return (ckpt__layout_name){ckpt__s(n->name + (part ? 2 : 0)), n->ndim, n->shape, part};
}

static void matched(const char *text, unsigned from, const named *in, size_t n, const char *var, char *out, size_t size)
{
    ckpt__layout *layout = NULL;
    ckpt__layout_match *m = NULL;
    ckpt__layout_name names[8];
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    ck_assert_msg(ckpt__layout_parse(text, strlen(text), "x.yaml", report, &layout, &err) == CKPT_OK, "%s",
                  err.message);
    for (size_t i = 0; i < n; i++)
        names[i] = name_of(&in[i]);
    ckpt_status status = ckpt__layout_match_names(layout, from, names, n, &var, var != NULL, report, &m, &err);
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        used += (size_t)snprintf(out + used, size - used, "%s\n", ckpt_report_get(report, i)->message);
    ckpt__arena *a = ckpt__arena_new(0);
    for (size_t u = 0; status == CKPT_OK && u < m->count; u++) {
        ckpt__lay lays[8], made[8];
        for (size_t i = 0; i < m->uses[u].input_count; i++) {
            const ckpt__layout_name *name = &names[m->uses[u].inputs[i]];
            lays[i] = (ckpt__lay){.ndim = name->ndim, .unit = 1, .shape = (int64_t *)(uintptr_t)name->shape};
        }
        if (ckpt__layout_lower(m, &m->uses[u], lays, 0, a, made, &err) != CKPT_OK)
            used += (size_t)snprintf(out + used, size - used, "%s\n", err.message);
    }
    ckpt__arena_free(a);
    ckpt__layout_match_free(m);
    ckpt__layout_free(layout);
    ckpt_report_free(report);
}

/* Two weights, of which an optimizer has one parameter or two. */
#define JOINED                                                                                                             \
    HEAD                                                                                                                   \
        "vars: {joined: {b: [pq, 0]}}\nrules:\n- {a: x, b: p, part: weights}\n"                                            \
        "- {a: w, b: q, part: weights}\n- {a: x, b: p, part: states, unless: joined}\n"                                    \
        "- {a: w, b: q, part: states, unless: joined}\n"                                                                   \
        "- {a: [x, w], b: pq, part: states, when: joined, steps: [reorder: {dim: 0, as: [1, 3], order: [1, 0], only: 1}, " \
        "segments: {dim: 0}]}\n"

static const struct unfit {
    const char *text;
    unsigned from;
    named in[4];
    const char *var, *says;
} unfits[] = {
    {HEAD "rules:\n- {a: x, b: y}\n", 0, {{"x", 0, {0}}}, NULL, ""},
    {HEAD "rules:\n- {a: x, b: y}\n", 0, {{"x", 0, {0}}, {"z", 0, {0}}}, NULL, "no rule has the name 'z' of side a"},
    {HEAD "rules:\n- {a: x, b: y}\n",
     1,
     {{"x", 0, {0}}},
     NULL,
     "line 4, column 3: no tensor has the name 'y' of side b"},
    {HEAD "rules:\n- {a: x.<i>, b: y.<i>}\n- {a: x.1, b: z}\n",
     0,
     {{"x.1", 0, {0}}},
     NULL,
     "one rule has it, and no other"},
    {HEAD "rules:\n- {a: [x, w], b: y, steps: [segments: {dim: 0}]}\n",
     0,
     {{"x", 1, {3}}},
     NULL,
     "'x' is there, and its 'w' is not"},
    {HEAD "rules:\n- {a: [x, w], b: y, steps: [segments: {dim: 0}]}\n",
     0,
     {{"x", 1, {3}}, {"w", 1, {4}}},
     NULL,
     "which is not that of [1, 3]"},
    {HEAD "rules:\n- {a: [x, w], b: y, steps: [segments: {dim: 0}]}\n",
     1,
     {{"y", 1, {3}}},
     NULL,
     "1 groups of 2 segments of one size"},
    {HEAD "rules:\n- {a: x.<e>, b: y, steps: [stack: {dim: 0, over: e}]}\n",
     0,
     {{"x.0", 1, {3}}, {"x.2", 1, {3}}},
     NULL,
     "not all below it are there"},
    {HEAD "rules:\n- {a: x.<e>, b: y, steps: [stack: {dim: 0, over: e}]}\n",
     0,
     {{"x.1", 1, {3}}, {"z", 1, {3}}},
     NULL,
     "the one with number 0 is not"},
    {HEAD "rules:\n- {a: x.<i>.<e>, b: y, steps: [stack: {dim: 0, over: [i, e]}]}\n",
     0,
     {{"x.0.0", 1, {3}}, {"x.1.1", 1, {3}}, {"x.1.0", 1, {3}}},
     NULL,
     "'x.0.0' is there, and the one with numbers 0 and 1 is not"},
    {HEAD "rules:\n- {a: x.<i>.<e>, b: y, steps: [stack: {dim: 0, over: [i, e]}]}\n",
     0,
     {{"x.1.0", 1, {3}}, {"x.0.1", 1, {3}}, {"x.0.0", 1, {3}}, {"x.1.1", 1, {3}}},
     NULL,
     ""},
    {HEAD "rules:\n- {a: x.<i>.<e>, b: y, steps: [stack: {dim: 1, over: [i, e]}]}\n",
     1,
     {{"y", 2, {2, 3}}},
     NULL,
     "there is no dimension 2"},
    {HEAD "rules:\n- {a: x.<i>.<e>, b: y, steps: [stack: {dim: 1, over: [i, e]}]}\n",
     1,
     {{"y", 3, {2, 1200, 1200}}},
     NULL,
     "there is no dimension 2 of at most 1048576 tensors"},
    {HEAD "rules:\n- {a: x, b: y.<e>, steps: [stack: {dim: 0, over: e}]}\n",
     1,
     {{"y.0", 1, {3}}, {"y.1", 1, {4}}},
     NULL,
     "cannot stand side by side"},
    {HEAD "rules:\n- {a: x, b: y, steps: [transpose: [1, 0]]}\n",
     0,
     {{"x", 1, {3}}},
     NULL,
     "line 4, column 24: it has 1 dimensions, and an order of 2"},
    {HEAD "rules:\n- {a: x, b: y, steps: [view: {dim: 1, as: [1, 3]}]}\n",
     0,
     {{"x", 1, {3}}},
     NULL,
     "dimension 1 is asked for"},
    {HEAD "rules:\n- {a: x, b: y, steps: [merge: {dim: 0, as: [2, 2]}]}\n",
     0,
     {{"x", 2, {2, 3}}},
     NULL,
     "size 3, and 2 is expected"},
    {HEAD "rules:\n- {a: x, b: y, steps: [pad: {dim: 0, from: 2, to: 4}]}\n",
     0,
     {{"x", 1, {3}}},
     NULL,
     "size 3, and 2 is expected"},
    {HEAD "rules:\n- {a: x, b: y, steps: [pad: {dim: 0, from: 4, to: 2}]}\n",
     0,
     {{"x", 1, {4}}},
     NULL,
     "which is less"},
    {HEAD "rules:\n- {a: x, b: y, shape: [4]}\n",
     0,
     {{"x", 1, {3}}},
     NULL,
     "its shape is [3], and [4] is expected on side a"},
    {HEAD "vars: {n: given}\nrules:\n- {a: x, b: y, shape: [n]}\n", 0, {{"x", 1, {3}}}, NULL, "say --var n=NUMBER"},
    {HEAD "vars: {n: given}\nrules:\n- {a: x, b: y, shape: [n]}\n", 0, {{"x", 1, {3}}}, "n=3", ""},
    {HEAD "vars: {n: given}\nrules:\n- {a: x, b: y}\n", 0, {{"x", 1, {3}}}, "m=3", "the layout has no variable 'm'"},
    {HEAD "vars: {n: given}\nrules:\n- {a: x, b: y}\n", 0, {{"x", 1, {3}}}, "n=-3", "NAME=NUMBER is expected"},
    {HEAD "vars: {n: {a: [x, 0]}}\nrules:\n- {a: x, b: y}\n", 0, {{"x", 1, {3}}}, "n=4", "n is 3 in this checkpoint"},
    {HEAD "vars: {n: {a: [x, 0]}, h: n / 2}\nrules:\n- {a: x, b: y}\n",
     0,
     {{"x", 1, {3}}},
     NULL,
     "3 / 2 is not a whole number"},
    {HEAD "vars: {n: {a: [x, 0]}, h: n - 4}\nrules:\n- {a: x, b: y}\n", 0, {{"x", 1, {3}}}, NULL, "3 - 4 is below 0"},
    {HEAD "vars: {n: {a: [x, 0]}, h: n / 0}\nrules:\n- {a: x, b: y}\n", 0, {{"x", 1, {3}}}, NULL, "a division by 0"},
    {HEAD "vars: {h: 2147483648 * 2147483648 * 4}\nrules:\n- {a: x, b: y}\n", 0, {{"x", 1, {3}}}, NULL, "is too large"},
    /* weights and states apart */
    {JOINED, 0, {{"W:x", 1, {3}}, {"W:w", 1, {3}}, {"S:x", 1, {3}}, {"S:w", 1, {3}}}, NULL, ""},
    {JOINED, 0, {{"W:x", 1, {3}}, {"W:w", 1, {3}}, {"S:x", 1, {3}}, {"S:w", 1, {3}}}, "joined=1", ""},
    {JOINED, 0, {{"W:x", 1, {3}}, {"W:w", 1, {3}}}, "joined=1", ""}, /* no states at all */
    {JOINED, 1, {{"W:p", 1, {3}}, {"W:q", 1, {3}}, {"S:pq", 1, {6}}}, NULL, ""},
    {JOINED, 1, {{"W:p", 1, {3}}, {"W:q", 1, {3}}, {"S:p", 1, {3}}, {"S:q", 1, {3}}}, NULL, ""},
    {JOINED,
     1,
     {{"W:p", 1, {3}}, {"W:q", 1, {3}}, {"S:q", 1, {3}}, {"S:pq", 1, {6}}},
     NULL,
     "no rule has the optimizer's states of 'q' of side b"},
    {JOINED, 1, {{"W:p", 1, {3}}, {"W:q", 1, {3}}, {"S:pq", 1, {6}}}, "joined=7", "joined is 6 in this checkpoint"},
    {JOINED, 0, {{"W:x", 1, {3}}, {"W:w", 1, {3}}, {"S:x", 1, {3}}}, "joined=1", "'x' is there, and its 'w' is not"},
    {HEAD "rules:\n- {a: x, b: y, part: weights}\n- {a: w, b: y, part: states}\n",
     0,
     {{"W:x", 1, {3}}, {"S:w", 1, {3}}},
     NULL,
     ""},
    {HEAD "rules:\n- {a: x, b: y, part: states}\n- {a: w, b: y}\n",
     0,
     {{"S:x", 1, {3}}, {"S:w", 1, {3}}},
     NULL,
     "'y' would be made twice"},
};

START_TEST(fits)
{
    const struct unfit *u = &unfits[_i];
    char all[4000];
    size_t n = 0;
    while (n < 4 && u->in[n].name)
        n++;
    matched(u->text, u->from, u->in, n, u->var, all, sizeof all);
    if (*u->says)
        ck_assert_msg(strstr(all, u->says), "'%s' is not in:\n%s\nof\n%s", u->says, all, u->text);
    else
        ck_assert_str_eq(all, "");
}
END_TEST

/* A text that is cut anywhere, or has a byte changed, is read or refused. */
START_TEST(damaged)
{
    static const char text[] = HEAD
        "vars: {n: {a: [x.0, 0]}, m: (n + 1) * 2}\nrules:\n- {a: [x.<i>, w.<i>], b: y.<i>, steps: "
        "[segments: {dim: 0, groups: m, sizes: [n, n / 2]}]}\n"
        "- {a: 'e.<e>.<r:rest>', b: 'f.<r:rest>', steps: [stack: {dim: 0, over: e}]}\n"
        "- {a: [u, v], b: s, part: states, when: n, unless: m, steps: [view: {dim: 0, as: [1, n], only: [0, 1]}, segments: "
        "{dim: 0}]}\n"
        "ranks: {b: {mesh: {dp: n, tp: 2}, shard: [{name: [y.<i>, 'f.<r:rest>'], optional: true, cuts: [{axis: tp, dim: 0, "
        "as: [1, m], segments: {sizes: [1, 2], groups: n}}, {axis: dp, dim: 1, as: even}]}]}}\n";
    char copy[sizeof text], all[8000];
    for (size_t i = 0; i < sizeof text - 1; i++) {
        memcpy(copy, text, sizeof text);
        copy[i] = 0;
        findings(copy, all, sizeof all);
        static const char bytes[] = "<>{}[]:,0 x'/";
        for (size_t k = 0; k < sizeof bytes - 1; k++) {
            memcpy(copy, text, sizeof text);
            copy[i] = bytes[k];
            findings(copy, all, sizeof all);
        }
    }
    findings(text, all, sizeof all);
    ck_assert_str_eq(all, "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout");
    TCase *c = tcase_create("layout");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, messages, 0, sizeof wrongs / sizeof *wrongs);
    tcase_add_loop_test(c, fits, 0, sizeof unfits / sizeof *unfits);
    tcase_add_test(c, damaged);
    suite_add_tcase(s, c);
    return run_suite(s);
}
