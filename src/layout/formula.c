/* layout/formula.c - see formula.h. */
#include "layout/formula.h"

#include <stdio.h>

/* ---- reading: operators wait on a stack until what follows binds less */

typedef struct reading {
    ckpt_str text;
    size_t at;
    ckpt__formula_op ops[CKPT__FORMULA_MAX];
    size_t count;
    char waiting[CKPT__FORMULA_MAX];
    size_t depth;
    ckpt__arena *arena;
    const char *what; /* what is wrong */
    bool short_of_memory;
} reading;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool ckpt__formula_is_name(ckpt_str s)
{
    for (size_t i = 0; i < s.size; i++)
        if (!is_letter(s.data[i]) && !(i && is_digit(s.data[i])))
            return false;
    return s.size > 0;
}

static bool put(reading *r, ckpt__formula_op op)
{
    if (r->count == CKPT__FORMULA_MAX) {
        r->what = "more than 64 numbers, names and operators";
        return false;
    }
    r->ops[r->count++] = op;
    return true;
}

static int binds(char op)
{
    return op == '*' || op == '/' ? 2 : op == '(' ? 0 : 1;
}

/* Those that wait and bind as much, or more. */
static bool put_waiting(reading *r, int least)
{
    while (r->depth && binds(r->waiting[r->depth - 1]) >= least)
        if (!put(r, (ckpt__formula_op){.code = r->waiting[--r->depth]}))
            return false;
    return true;
}

static bool wait_for(reading *r, char op)
{
    if (r->depth == CKPT__FORMULA_MAX) {
        r->what = "more than 64 parentheses and operators that wait";
        return false;
    }
    r->waiting[r->depth++] = op;
    r->at++;
    return true;
}

static bool operand(reading *r)
{
    const char *s = r->text.data;
    const size_t first = r->at;
    ckpt__formula_op op = {.code = 'n'};
    if (is_digit(s[r->at])) {
        while (r->at < r->text.size && is_digit(s[r->at])) {
            if (op.number > (INT64_C(1) << 58)) {
                r->what = "the number is too large";
                return false;
            }
            op.number = op.number * 10 + (s[r->at++] - '0');
        }
        return put(r, op);
    }
    while (r->at < r->text.size && (is_letter(s[r->at]) || is_digit(s[r->at])))
        r->at++;
    op.code = 'v';
    op.name = ckpt__arena_str(r->arena, s + first, r->at - first);
    r->short_of_memory = !op.name.data;
    return op.name.data && put(r, op);
}

/* One character, or one operand; *value: an operand is to come next. */
static bool step(reading *r, bool *value)
{
    const char c = r->text.data[r->at];
    if (c == ' ') {
        r->at++;
        return true;
    }
    if (*value && c == '(')
        return wait_for(r, '(');
    if (*value) {
        *value = false;
        r->what = is_letter(c) || is_digit(c) ? NULL : "a number, a name or ( is expected here";
        return !r->what && operand(r);
    }
    if (c == ')') {
        if (!put_waiting(r, 1))
            return false;
        if (!r->depth) {
            r->what = "there is no ( for this )";
            return false;
        }
        r->depth--;
        r->at++;
        return true;
    }
    *value = true;
    if (c != '+' && c != '-' && c != '*' && c != '/') {
        r->what = "+ - * / or ) is expected here";
        return false;
    }
    return put_waiting(r, binds(c)) && wait_for(r, c);
}

bool ckpt__formula_parse(ckpt__arena *arena, ckpt_str text, ckpt__formula *out, size_t *at, const char **what)
{
    reading r = {.text = text, .arena = arena};
    bool value = true, fine = true;
    while (fine && r.at < text.size)
        fine = step(&r, &value);
    if (fine && value) {
        fine = false;
        r.what = text.size ? "a number or a name is expected at the end" : "an expression is expected";
    }
    if (fine)
        fine = put_waiting(&r, 1);
    if (fine && r.depth) {
        fine = false;
        r.what = "there is no ) for a (";
    }
    *at = r.at;
    *what = r.short_of_memory ? NULL : r.what;
    if (!fine)
        return false;
    ckpt__formula_op *ops = ckpt__arena_array(arena, r.count, sizeof *ops);
    ckpt_str kept = ckpt__arena_str(arena, text.data, text.size);
    *what = NULL;
    if (!ops || !kept.data)
        return false;
    memcpy(ops, r.ops, r.count * sizeof *ops);
    *out = (ckpt__formula){ops, r.count, kept};
    return true;
}

/* ---- values */

static bool compute(char op, int64_t a, int64_t b, int64_t *out, char *why, size_t size)
{
    const int64_t most = INT64_C(1) << 62;
    int64_t v = 0;
    bool over = false;
    if (op == '/' && (b == 0 || a % b != 0)) {
        snprintf(why, size, b == 0 ? "%lld / %lld: a division by 0" : "%lld / %lld is not a whole number", (long long)a,
                 (long long)b);
        return false;
    }
    if (op == '+')
        over = __builtin_add_overflow(a, b, &v);
    else if (op == '-')
        v = a - b;
    else if (op == '*')
        over = __builtin_mul_overflow(a, b, &v);
    else
        v = a / b;
    if (!over && v >= 0 && v <= most) {
        *out = v;
        return true;
    }
    snprintf(why, size, !over && v < 0 ? "%lld %c %lld is below 0" : "%lld %c %lld is too large", (long long)a, op,
             (long long)b);
    return false;
}

bool ckpt__formula_eval(const ckpt__formula *f, ckpt__formula_value *value, const void *ctx, int64_t *out, char *why,
                        size_t size)
{
    int64_t stack[CKPT__FORMULA_MAX + 1];
    size_t depth = 0;
    for (size_t i = 0; i < f->count; i++) {
        const ckpt__formula_op *op = &f->ops[i];
        if (op->code == 'n')
            stack[depth++] = op->number;
        else if (op->code == 'v') {
            if (!value(ctx, op->name, &stack[depth++], why, size))
                return false;
        } else {
            depth--;
            if (!compute(op->code, stack[depth - 1], stack[depth], &stack[depth - 1], why, size))
                return false;
        }
    }
    *out = stack[0];
    return true;
}
