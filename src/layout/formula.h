/* layout/formula.h - the expressions of a layout: whole numbers of 0 or more, names, + - * / and parentheses. A difference below 0,
 * a quotient that is no whole number, and a number past 2^62 are errors: a size that does not come out is a wrong layout. */
#ifndef CKPT_FORMULA_H
#define CKPT_FORMULA_H
#include "base/base.h"

enum { CKPT__FORMULA_MAX = 64 }; /* operands and operators of one */

typedef struct ckpt__formula_op {
    char code;      /* 'n' a number, 'v' a name, or + - * / */
    int64_t number; /* of 'n' */
    ckpt_str name;  /* of 'v', in the arena */
} ckpt__formula_op;

/* In reverse Polish order: "2 * (a + 1)" is n 2, v a, n 1, +, *. It lies in the arena that it was read into. */
typedef struct ckpt__formula {
    const ckpt__formula_op *ops;
    size_t count;
    ckpt_str text; /* as it was written, for messages */
} ckpt__formula;

/* The value of a name. False: it has none, and *why (of `size` bytes) says so. */
typedef bool ckpt__formula_value(const void *ctx, ckpt_str name, int64_t *out, char *why, size_t size);

/* False: *what is a static text, and *at the offset that it is about; *what NULL: no memory. */
bool ckpt__formula_parse(ckpt__arena *arena, ckpt_str text, ckpt__formula *out, size_t *at, const char **what);
/* False: `why` says what is wrong. */
bool ckpt__formula_eval(const ckpt__formula *formula, ckpt__formula_value *value, const void *ctx, int64_t *out,
                        char *why, size_t size);
/* Is it a name? A letter or _, then letters, digits and _. */
bool ckpt__formula_is_name(ckpt_str text);
#endif
