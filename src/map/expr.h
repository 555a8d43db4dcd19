/* map/expr.h - the expressions of map_location: non-negative integers, + - * / %, parentheses, and four variables. */
#ifndef CKPT_EXPR_H
#define CKPT_EXPR_H
#include "base/base.h"

enum { CKPT__EXPR_MAX = 64 }; /* operands and operators of one expression */

typedef struct ckpt__expr_op {
    char code;      /* 'n' number, 'r' rank, 'l' local_rank, 'w' world, 'i' index, or + - * / % */
    int64_t number; /* of 'n'; else 0 */
} ckpt__expr_op;

/* In reverse Polish order, so that evaluation needs one stack and no recursion: "rank * 2 + 1" is r, n 2, *, n 1, +. No
 * pointers: copy it freely. */
typedef struct ckpt__expr {
    ckpt__expr_op ops[CKPT__EXPR_MAX];
    size_t count;
} ckpt__expr;

typedef struct ckpt__expr_vars {
    int64_t rank, local_rank, world;
    int64_t index; /* of the saved tag; -1: it has none */
} ckpt__expr_vars;

/* Reads the text between the braces. On failure *what is a static text and *at the offset that it is about. */
bool ckpt__expr_parse(const char *text, size_t size, ckpt__expr *out, size_t *at, const char **what);

/* False on overflow, division by zero, a negative result (also on the way) or an index that the tag does not have;
 * *what is a static text. */
bool ckpt__expr_eval(const ckpt__expr *expr, const ckpt__expr_vars *vars, int64_t *out, const char **what);
#endif
