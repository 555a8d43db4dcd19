/* layout/parts.h - what a layout that was read is made of; shared by the files of this room only. All lies in the arena of the layout. */
#ifndef CKPT_LAYOUT_PARTS_H
#define CKPT_LAYOUT_PARTS_H
#include "codec/yaml.h"
#include "layout/formula.h"
#include "layout/layout.h"
#include "layout/ranks.h"
#include "model/index.h"

enum {
    CKPT__LAYOUT_CAPTURES = 8, /* of one name, at most */
    CKPT__LAYOUT_MEMBERS = 16, /* names of one side of a rule, at most */
    CKPT__LAYOUT_STEPS = 16    /* of a rule, at most */
};

/* ---- names.c: "layers.<i>.<what:word>.weight" has the parts "layers.", <i>, ".", <what:word>, ".weight" */
typedef enum ckpt__capture { CKPT__LITERAL, CKPT__NUMBER, CKPT__WORD, CKPT__REST } ckpt__capture;
typedef struct ckpt__name_part {
    ckpt__capture kind;
    ckpt_str text; /* LITERAL: the text; else the capture's name */
} ckpt__name_part;
typedef struct ckpt__name_form {
    ckpt_str text; /* as it was written */
    ckpt__name_part *parts;
    size_t count;
    size_t captures;
} ckpt__name_form;
/* What the captures of a name are. */
typedef struct ckpt__captured {
    ckpt_str name[CKPT__LAYOUT_CAPTURES], text[CKPT__LAYOUT_CAPTURES];
    size_t count;
} ckpt__captured;
/* False: *what is a static text and *at the offset that it is about; *what NULL: no memory. */
bool ckpt__name_form_parse(ckpt__arena *a, ckpt_str text, ckpt__name_form *out, size_t *at, const char **what);
bool ckpt__name_form_match(const ckpt__name_form *form, ckpt_str name, ckpt__captured *out);
/* The name with those captures in their places, appended; one that is not among them is left out. */
void ckpt__name_form_fill(const ckpt__name_form *form, const ckpt__captured *with, ckpt__buf *out);
bool ckpt__name_form_has(const ckpt__name_form *form, ckpt_str capture);

/* ---- rules */
typedef enum ckpt__step_kind {
    CKPT__STEP_TRANSPOSE, /* all dimensions in another order: `order` */
    CKPT__STEP_REORDER,   /* a dimension is `sizes`, in the order `order`, and is one again */
    CKPT__STEP_VIEW,      /* a dimension becomes several, of `sizes` */
    CKPT__STEP_MERGE,     /* several dimensions, of `sizes`, become one */
    CKPT__STEP_PAD,       /* a dimension of size sizes[0] ends at sizes[1] */
    CKPT__STEP_SEGMENTS, /* several tensors stand side by side along a dimension, `sizes` of each, `groups` times in turn */
    CKPT__STEP_STACK /* tensors with the numbers of the captures `over` are one, with a dimension more for each of them */
} ckpt__step_kind;

typedef struct ckpt__step {
    ckpt__step_kind kind;
    size_t line, column;
    uint32_t dim;
    ckpt__formula *sizes;
    size_t size_count; /* SEGMENTS: 0: all the same */
    uint32_t *order;
    size_t order_count;
    ckpt__formula groups;             /* SEGMENTS; count 0: 1 */
    ckpt_str over[CKPT__LAYOUT_OVER]; /* STACK */
    size_t over_count;
    uint32_t only; /* bit i: it is for tensor i of the several ones; 0: for all */
} ckpt__step;

typedef struct ckpt__rule_names {
    ckpt__name_form *forms;
    size_t count;
} ckpt__rule_names;

typedef struct ckpt__layout_rule {
    size_t line, column;
    ckpt__rule_names side[2];
    ckpt__step *steps;
    size_t step_count;
    const ckpt__step *joins; /* the SEGMENTS or STACK among them; NULL: none */
    unsigned many;           /* of a STACK: the side that has the several tensors */
    bool optional, drops;
    ckpt__layout_part part;
    size_t when, unless;  /* 1 + a variable that has to be known and not 0, or must not be so; 0: none */
    ckpt__formula *shape; /* of each tensor of the first side; NULL: not said */
    size_t shape_count;
} ckpt__layout_rule;

typedef struct ckpt__layout_var {
    size_t line, column;
    ckpt_str name;
    bool given;            /* by the caller alone */
    ckpt__formula formula; /* count 0: of a shape, or given */
    ckpt_str tensor[2];    /* of which the size of dimension dim[side] is it; data NULL: not on this side */
    uint32_t dim[2];
} ckpt__layout_var;

typedef struct ckpt__layout_tied {
    size_t line, column;
    unsigned side;
    ckpt_str name, of;
} ckpt__layout_tied;

/* ---- ranks: how the ranks of a program cut its tensors */
typedef struct ckpt__layout_axis {
    size_t line, column;
    ckpt_str name;
    ckpt__formula size; /* count 0: the names of the files tell it */
} ckpt__layout_axis;

typedef struct ckpt__layout_cut {
    size_t line, column;
    size_t axis; /* number in the mesh of the side */
    uint32_t dim;
    ckpt__rank_cut_as as;
    ckpt__formula *widths; /* AS_WIDTHS: one a coordinate */
    size_t width_count;
    ckpt__formula *segments; /* NULL and 0: none */
    size_t segment_count;
    ckpt__formula groups; /* count 0: 1 */
} ckpt__layout_cut;

/* The first of a side's that has a tensor's name cuts the tensor. */
typedef struct ckpt__layout_shard {
    size_t line, column;
    ckpt__rule_names names;
    ckpt__layout_cut *cuts; /* none: each rank has all of it */
    size_t cut_count;
    bool optional;
} ckpt__layout_shard;

typedef struct ckpt__layout_ranks {
    bool said;
    size_t line, column;
    ckpt__layout_axis *axes;
    size_t axis_count;
    ckpt__layout_shard *shards;
    size_t shard_count;
    struct ckpt__files_of_ranks *files; /* rank_files.h; NULL: none are said */
} ckpt__layout_ranks;

struct ckpt__layout {
    ckpt__arena *arena;
    const char *name; /* of the file, in the arena */
    ckpt_str sides[2];
    ckpt__layout_var *vars;
    size_t var_count;
    ckpt__layout_rule *rules;
    size_t rule_count;
    ckpt__layout_tied *ties;
    size_t tie_count;
    ckpt__layout_ranks ranks[2]; /* of each side */
};

/* ---- layout_yaml.c and steps_yaml.c: what is wrong is a finding, and reading goes on */
typedef struct ckpt__layout_reading {
    ckpt__layout *layout;
    ckpt_report *report;
    size_t wrong;
    ckpt_status status; /* only for want of memory */
    ckpt_error *err;
} ckpt__layout_reading;
void ckpt__layout_wrong(ckpt__layout_reading *r, const ckpt__yaml_node *at, const char *format, ...) CKPT__PRINTF(3, 4);
void ckpt__layout_no_memory(ckpt__layout_reading *r);
/* False: it is none, which was said. */
bool ckpt__layout_read_formula(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__formula *out);
bool ckpt__layout_read_formulas(ckpt__layout_reading *r, const ckpt__yaml_node *n, const char *what, size_t least,
                                ckpt__formula **out, size_t *count);
bool ckpt__layout_read_dim(ckpt__layout_reading *r, const ckpt__yaml_node *n, uint32_t *out);
/* Is `n` a map whose keys are all among `known`? */
bool ckpt__layout_read_map(ckpt__layout_reading *r, const ckpt__yaml_node *n, const char *what,
                           const char *const *known);
bool ckpt__layout_read_flag(ckpt__layout_reading *r, const ckpt__yaml_node *n); /* NULL: false */
/* One name with captures, or a list of them. */
void ckpt__layout_read_names(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__rule_names *out);
ckpt_str ckpt__layout_keep(ckpt__layout_reading *r,
                           ckpt_str text); /* in the layout's arena; data NULL: no memory, which was said */
/* What a map has for that side; NULL: nothing. */
const ckpt__yaml_node *ckpt__layout_on_side(const ckpt__layout *layout, const ckpt__yaml_node *map, unsigned side);
/* ranks_yaml.c: the key `ranks`; NULL: there is none. */
void ckpt__layout_read_ranks(ckpt__layout_reading *r, const ckpt__yaml_node *n);
/* rank_files_yaml.c: what a side of `ranks` says of files; its mesh was read. */
void ckpt__layout_read_files(ckpt__layout_reading *r, const ckpt__yaml_node *side, ckpt__layout_ranks *ranks);
/* The steps of a rule, whose names were read. */
void ckpt__layout_read_steps(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule);
/* How many tensors a stack of that shape is made of, behind the steps between it and the stack: grid[] has as many numbers as the
 * step has captures. CKPT_E_MISMATCH, CKPT_E_LIMIT: it is none. */
ckpt_status ckpt__layout_stacked(const ckpt__layout_match *match, size_t rule, const ckpt__layout_name *name,
                                 size_t *grid, ckpt_error *err);
/* Is the rule a stack, and are the several tensors on that side? */
bool ckpt__layout_has_many(const ckpt__layout_rule *rule, unsigned side);
bool ckpt__layout_is_over(const ckpt__layout_rule *rule, ckpt_str capture);
#endif
