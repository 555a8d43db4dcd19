/* layout/layout.h - a layout says how the tensors of one program are stored in another: under which names, and turned, cut, joined,
 * stacked or padded in which way. ckpt-layout(5) is the manual of its YAML. It makes pieces (lay.h) and nothing else: the engine moves
 * the bytes.
 *
 * A layout has two sides, which are programs. A rule names tensors of both, and its steps lead from the first side to the second; each
 * step can be taken back, so that every layout works both ways. An example:
 *
 *     layout: 1
 *     sides: [hf, mine]
 *     rules:
 *     - hf: [layers.<i>.q, layers.<i>.k]
 *       mine: blocks.<i>.qk
 *       steps:
 *       - segments: {dim: 0}
 *
 * With the inputs layers.0.q and layers.0.k, matched from side 0, there is one use of rule 0: of inputs 0 and 1, with the output
 * "blocks.0.qk". ckpt__layout_lower makes its pieces of theirs, once for the weights and once for each moment. */
#ifndef CKPT_LAYOUT_H
#define CKPT_LAYOUT_H
#include <ckpt/report.h>
#include "layout/lay.h"

enum { CKPT__LAYOUT_OVER = 2 }; /* dimensions of a stack, at most */

typedef struct ckpt__layout ckpt__layout;

/* Reads one. `name` (a file's name) is the object of errors. All that is wrong with it is in `report`, each with line and column
 * ("layout-wrong"), and then the result is CKPT_E_ARGUMENT; what is no YAML at all is one error. Also CKPT_E_LIMIT, CKPT_E_NO_MEMORY. */
ckpt_status ckpt__layout_parse(const char *text, size_t size, const char *name, ckpt_report *report, ckpt__layout **out,
                               ckpt_error *err);
void ckpt__layout_free(ckpt__layout *layout);
/* The name of a side. side: 0 or 1. Returns NULL for any other number. */
const char *ckpt__layout_side(const ckpt__layout *layout, unsigned side);
const char *ckpt__layout_file(const ckpt__layout *layout); /* the name that it was read by */

/* What of a tensor a rule is about: a program may keep the weights of several parameters, and have them as one in its optimizer. */
typedef enum ckpt__layout_part { CKPT__PART_ALL, CKPT__PART_WEIGHTS, CKPT__PART_STATES } ckpt__layout_part;

/* A tensor of the source, by its name in its program. Borrowed. Where rules tell weights from states (ckpt__layout_has_parts), each has a
 * name of its own; else the part is ALL. */
typedef struct ckpt__layout_name {
    ckpt_str name;
    uint32_t ndim;
    const int64_t *shape;
    ckpt__layout_part part;
} ckpt__layout_name;

/* Some inputs that become some outputs, by one rule. */
typedef struct ckpt__layout_use {
    size_t rule;
    size_t *inputs,
        input_count; /* numbers of names, in the rule's order; of a stack by their numbers, the last one the fastest */
    size_t grid[CKPT__LAYOUT_OVER]; /* of a stack: how many there are along each of its dimensions */
    ckpt_str *outputs;              /* their names; NULL and 0: the rule drops its input */
    size_t output_count;
} ckpt__layout_use;

/* Another name of an output, which the target's program has and the source has not. */
typedef struct ckpt__layout_tie {
    ckpt_str name;
    size_t use, output;
} ckpt__layout_tie;

/* What becomes of all names. Owned by whoever asked; the strings lie in its arena. */
typedef struct ckpt__layout_match {
    ckpt__arena *arena;
    const ckpt__layout *layout;
    unsigned from; /* the side of the source */
    ckpt__layout_use *uses;
    size_t count, capacity;
    ckpt__layout_tie *ties;
    size_t tie_count, tie_capacity;
    int64_t *values; /* of the variables, where known[i] */
    bool *known;
    size_t unmatched; /* names that no rule has: to tell one side from the other */
} ckpt__layout_match;

/* vars: "name=number", what the caller says. Everything that is wrong is in `report` ("layout-wrong": names that no rule has or
 * several have, rules that no name uses, a tensor that is missing beside the others, variables without a value), and then the result is
 * CKPT_E_MISMATCH. *out is made in any case but for want of memory (NULL then). */
ckpt_status ckpt__layout_match_names(const ckpt__layout *layout, unsigned from, const ckpt__layout_name *names,
                                     size_t count, const char *const *vars, size_t var_count, ckpt_report *report,
                                     ckpt__layout_match **out, ckpt_error *err);
/* The same for the variables alone: names of tensors are asked for shapes, and no rule is asked for a name. */
ckpt_status ckpt__layout_match_vars(const ckpt__layout *layout, unsigned from, const ckpt__layout_name *names,
                                    size_t count, const char *const *vars, size_t var_count, ckpt_report *report,
                                    ckpt__layout_match **out, ckpt_error *err);
/* The value of a variable: a ckpt__formula_value, of a match. */
bool ckpt__layout_value(const void *match, ckpt_str name, int64_t *out, char *why, size_t size);
void ckpt__layout_match_free(ckpt__layout_match *match);
/* Is there a rule that is about weights alone, or about states? */
bool ckpt__layout_has_parts(const ckpt__layout *layout);
/* Do elements stay where they are: is only the name another one? */
bool ckpt__layout_renames(const ckpt__layout *layout, size_t rule);
/* The tensor of which that one is another name in the program of the side, by the ties; data NULL: it is none. */
ckpt_str ckpt__layout_tie_of(const ckpt__layout *layout, unsigned side, ckpt_str name);

/* How the outputs of a use are made: in[] has as many as the use has inputs, out[] gets as many as it has outputs, in the arena.
 * Padding is the element at byte 0 of storage `zero`. CKPT_E_MISMATCH with the rule's line and the step, CKPT_E_LIMIT. */
ckpt_status ckpt__layout_lower(const ckpt__layout_match *match, const ckpt__layout_use *use, const ckpt__lay *in,
                               uint32_t zero, ckpt__arena *arena, ckpt__lay *out, ckpt_error *err);
#endif
