/* map/expr.c - two stacks and no recursion: the text comes from a user's file. */
#include "map/expr.h"

struct parser {
    const char *text;
    size_t size, at;
    ckpt__expr *out;
    char pending[CKPT__EXPR_MAX]; /* operators and '(' that wait for their right side */
    size_t pending_count;
    const char *what;
};

static bool fail(struct parser *p, const char *what)
{
    p->what = what;
    return false;
}

static bool emit(struct parser *p, char code, int64_t number)
{
    if (p->out->count == CKPT__EXPR_MAX)
        return fail(p, "the expression is too long (64 numbers and operators)");
    p->out->ops[p->out->count++] = (ckpt__expr_op){code, number};
    return true;
}

static int strength(char op)
{
    return op == '+' || op == '-' ? 1 : op == '(' ? 0 : 2;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static bool take_number(struct parser *p)
{
    size_t begin = p->at;
    int64_t value = 0;
    while (p->at < p->size && is_word(p->text[p->at]))
        p->at++;
    if (!ckpt__parse_i64(p->text + begin, p->at - begin, &value)) {
        p->at = begin;
        return fail(p, "not a decimal number below 2^63");
    }
    return emit(p, 'n', value);
}

static bool take_variable(struct parser *p)
{
    static const struct {
        const char *name;
        char code;
    } variables[] = {{"rank", 'r'}, {"local_rank", 'l'}, {"world", 'w'}, {"index", 'i'}};
    size_t begin = p->at;
    while (p->at < p->size && is_word(p->text[p->at]))
        p->at++;
    ckpt_str word = {p->text + begin, p->at - begin};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        if (ckpt__str_is(word, variables[i].name))
            return emit(p, variables[i].code, 0);
    p->at = begin;
    return fail(p, "unknown variable; there are rank, local_rank, world and index");
}

static bool push(struct parser *p, char op)
{
    if (p->pending_count == CKPT__EXPR_MAX)
        return fail(p, "the expression is nested too deeply");
    p->pending[p->pending_count++] = op;
    return true;
}

static bool take_operator(struct parser *p, char op)
{
    while (p->pending_count && strength(p->pending[p->pending_count - 1]) >= strength(op))
        if (!emit(p, p->pending[--p->pending_count], 0))
            return false;
    return push(p, op);
}

static bool take_close(struct parser *p)
{
    while (p->pending_count && p->pending[p->pending_count - 1] != '(')
        if (!emit(p, p->pending[--p->pending_count], 0))
            return false;
    if (!p->pending_count)
        return fail(p, "')' without '('");
    p->pending_count--;
    return true;
}

/* One token where an operand is due; *operand tells what is due next. */
static bool take_operand(struct parser *p, char c, bool *operand)
{
    if (c == '(') {
        p->at++;
        return push(p, c);
    }
    *operand = false;
    if (is_digit(c))
        return take_number(p);
    if (is_word(c))
        return take_variable(p);
    return fail(p, c == '-' ? "numbers are not negative here" : "a number, a variable or '(' is due here");
}

static bool parse(struct parser *p)
{
    bool operand = true;
    for (;;) {
        while (p->at < p->size && (p->text[p->at] == ' ' || p->text[p->at] == '\t'))
            p->at++;
        if (p->at == p->size)
            break;
        char c = p->text[p->at];
        if (operand) {
            if (!take_operand(p, c, &operand))
                return false;
            continue;
        }
        if (c == ')') {
            if (!take_close(p))
                return false;
        } else if (c == '+' || c == '-' || c == '*' || c == '/' || c == '%') {
            if (!take_operator(p, c))
                return false;
            operand = true;
        } else {
            return fail(p, "an operator (+ - * / %) or ')' is due here");
        }
        p->at++;
    }
    if (operand)
        return fail(p, p->size ? "a number, a variable or '(' is due here" : "the expression is empty");
    while (p->pending_count) {
        char op = p->pending[--p->pending_count];
        if (op == '(')
            return fail(p, "'(' without ')'");
        if (!emit(p, op, 0))
            return false;
    }
    return true;
}

bool ckpt__expr_parse(const char *text, size_t size, ckpt__expr *out, size_t *at, const char **what)
{
    struct parser p = {.text = text, .size = size, .out = out};
    out->count = 0;
    bool ok = parse(&p);
    *at = p.at;
    *what = p.what;
    return ok;
}

static bool combine(char op, int64_t a, int64_t b, int64_t *out, const char **what)
{
    bool overflow = false;
    switch (op) {
    case '+':
        overflow = __builtin_add_overflow(a, b, out);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, out);
        break;
    case '-':
        *out = a - b; /* both are >= 0 */
        if (*out < 0)
            *what = "the result is negative";
        return *out >= 0;
    default:
        if (b == 0) {
            *what = "division by zero";
            return false;
        }
        *out = op == '/' ? a / b : a % b;
        return true;
    }
    if (overflow)
        *what = "the result is too large";
    return !overflow;
}

static bool variable(char code, const ckpt__expr_vars *vars, int64_t *out, const char **what)
{
    *out = code == 'r' ? vars->rank : code == 'l' ? vars->local_rank : code == 'w' ? vars->world : vars->index;
    if (*out >= 0)
        return true;
    *what = code == 'i' ? "the saved tag has no index" : "a rank or the world size is negative";
    return false;
}

bool ckpt__expr_eval(const ckpt__expr *expr, const ckpt__expr_vars *vars, int64_t *out, const char **what)
{
    int64_t stack[CKPT__EXPR_MAX];
    size_t depth = 0;
    for (size_t i = 0; i < expr->count; i++) {
        const ckpt__expr_op *op = &expr->ops[i];
        if (op->code == 'n') {
            stack[depth++] = op->number;
        } else if (strchr("rlwi", op->code)) {
            if (!variable(op->code, vars, &stack[depth], what))
                return false;
            depth++;
        } else {
            int64_t result;
            if (!combine(op->code, stack[depth - 2], stack[depth - 1], &result, what))
                return false;
            stack[--depth - 1] = result;
        }
    }
    *out = stack[0];
    return true;
}
