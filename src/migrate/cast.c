/* migrate/cast.c - which tensors --cast GLOB=DTYPE is about, and --cast DTYPE: parameters and buffers.
 *
 * A glob is compared with the source's name, the target's, and the canonical ones of both; the first that matches wins.
 * What a wide glob would hit by accident it leaves alone: integers and bools, complex numbers that would lose a part,
 * float4, of which a byte holds two, random states, the scales of quantized weights, and the optimizer's state. Those are
 * converted only by a glob that says so: one without wildcards, one that spells the state's key ("*.exp_avg"), or one that
 * begins with a text that no weight's name begins with ("optimizer.*"). */
#include "migrate/rules.h"

#include <stdio.h>
#include <stdlib.h>

/* One --cast GLOB=DTYPE. Of "*.exp_avg=bfloat16" the literal bytes are 0; of "optimizer.*=float32" they are 10, the
 * length of "optimizer.". */
typedef struct rule {
    char *glob;     /* heap, owned; NUL-terminated */
    size_t literal; /* bytes before the first wildcard */
    bool exact;     /* no wildcard at all */
    bool plain;     /* a dtype alone, without a glob: parameters and buffers, and tensors of no known role */
    ckpt_dtype to;
    bool weights; /* a weight's name begins with the literal bytes */
    bool matched; /* the glob matched a tensor, which may have been left alone */
    bool used;    /* the rule decided about a tensor */
    size_t taken; /* tensors that the rule means too, and that a rule before it has taken; counted while not used */
    size_t by;    /* number of the rule that took the first of them; means something where taken is not 0 */
} rule;

/* All rules of one call, in the order of the options: the first that matches decides. */
typedef struct caster {
    ckpt__migration *m;
    rule *rules; /* heap, owned */
    size_t count;
    ckpt_error *err;
} caster;

/* One that is escaped is none. */
static bool has_wildcard(const char *glob)
{
    for (; *glob; glob++) {
        if (*glob == '*' || *glob == '?')
            return true;
        if (*glob == '\\' && glob[1])
            glob++;
    }
    return false;
}

static void unescape(char *glob)
{
    char *to = glob;
    for (; *glob; glob++) {
        if (*glob == '\\' && glob[1])
            glob++;
        *to++ = *glob;
    }
    *to = 0;
}

static bool converts(ckpt_dtype from, ckpt_dtype to)
{
    return from == to || ckpt__convert(from, NULL, to, NULL, 0, NULL);
}

static ckpt_status parse(const char *text, rule *out, ckpt_error *err)
{
    const char *equals = strrchr(text, '='), *name = equals ? equals + 1 : text;
    out->to = ckpt__dtype_called(name);
    out->plain = !equals && out->to != CKPT_DTYPE_NONE;
    if (!out->plain && (!equals || equals == text || (equals == text + 1 && *text == '=')))
        return ckpt__fail(err, CKPT_E_ARGUMENT, text,
                          "a cast is a dtype, such as bfloat16, or GLOB=DTYPE, such as '*.norm.*=float32'");
    const char *meant = out->to == CKPT_DTYPE_NONE ? ckpt__dtype_meant(name) : NULL;
    if (meant)
        return ckpt__fail(err, CKPT_E_ARGUMENT, text, "unknown dtype '%s' (did you mean %s?)", name, meant);
    if (out->to == CKPT_DTYPE_NONE)
        return ckpt__fail(err, CKPT_E_ARGUMENT, text,
                          "unknown dtype '%s'; torch's names are float32, bfloat16, float16, int64, ...", name);
    if (!converts(CKPT_F32, out->to) && !converts(CKPT_C64, out->to))
        return ckpt__fail(err, CKPT_E_ARGUMENT, text, "nothing is converted to %s", name);
    out->glob = out->plain ? strdup("*") : strndup(text, (size_t)(equals - text));
    if (!out->glob)
        return ckpt__migration_no_memory(err);
    out->exact = *out->glob == '=';
    if (out->exact)
        memmove(out->glob, out->glob + 1, strlen(out->glob));
    out->literal = out->exact ? strlen(out->glob) : strcspn(out->glob, "*?\\");
    if (!out->exact && !has_wildcard(out->glob)) {
        unescape(out->glob);
        out->exact = true;
        out->literal = strlen(out->glob);
    }
    return CKPT_OK;
}

static bool matches(const rule *r, ckpt_str name)
{
    if (!name.data)
        return false;
    return r->exact ? ckpt__str_is(name, r->glob) : ckpt__glob(r->glob, strlen(r->glob), name.data, name.size);
}

static bool may_match(const rule *r, ckpt_str name)
{
    return name.data && name.size >= r->literal && memcmp(name.data, r->glob, r->literal) == 0;
}

static bool is_float(ckpt_dtype dtype)
{
    return ckpt_dtype_is_float(dtype) || ckpt__dtype_row_of(dtype)->is_complex;
}

/* Does the rule mean this tensor? */
static bool means(const rule *r, const ckpt_tensor_info *t)
{
    if (r->exact)
        return true;
    if (!is_float(t->dtype) || t->role == CKPT_ROLE_RNG || t->role == CKPT_ROLE_SCALER)
        return false;
    if (ckpt__dtype_row_of(t->dtype)->is_complex != ckpt__dtype_row_of(r->to)->is_complex)
        return false;
    if (t->role == CKPT_ROLE_BUFFER && t->param.data) /* what a quantized weight is read with */
        return false;
    if (r->plain && t->role != CKPT_ROLE_PARAM && t->role != CKPT_ROLE_BUFFER && t->role != CKPT_ROLE_NONE)
        return false;
    bool spelled = t->state_key.data && t->state_key.size && strstr(r->glob, t->state_key.data) != NULL;
    if (t->state_key.data || ckpt_role_is_optimizer(t->role))
        return spelled || (r->literal > 0 && !r->weights);
    return true;
}

static ckpt_status no_conversion(caster *c, const rule *r, const ckpt_tensor_info *t)
{
    char shown[200];
    return ckpt__fail(c->err, CKPT_E_UNSUPPORTED, ckpt__escape(shown, sizeof shown, t->name.data, t->name.size),
                      "--cast '%s=%s': there is no conversion from %s to %s", r->glob, ckpt_dtype_name(r->to),
                      ckpt_dtype_name(t->dtype), ckpt_dtype_name(r->to));
}

static ckpt_status no_bytes(caster *c, const rule *r, const ckpt_tensor_info *t)
{
    char shown[200];
    return ckpt__fail(c->err, CKPT_E_UNSUPPORTED, ckpt__escape(shown, sizeof shown, t->name.data, t->name.size),
                      "--cast '%s=%s': only dense tensors are converted, and this one is %s", r->glob,
                      ckpt_dtype_name(r->to),
                      t->extra->layout.data      ? t->extra->layout.data
                      : t->extra->quantizer.data ? "quantized"
                                                 : "without data");
}

static bool names(const caster *c, const rule *r, size_t i)
{
    const ckpt__migration *m = c->m;
    return matches(r, ckpt__canonical(m, i)) || matches(r, m->index->tensors[i].info.name) ||
           matches(r, m->from->tensors[i].info.name) || (m->tree && matches(r, m->ledger.rows[i].called));
}

/* Rules behind the one that has taken tensor i: what they match there they do not get. */
static void note_taken(caster *c, size_t i, size_t by)
{
    for (size_t k = by + 1; k < c->count; k++) {
        rule *r = &c->rules[k];
        if (!r->used && names(c, r, i) && means(r, &c->m->index->tensors[i].info) && r->taken++ == 0)
            r->by = by;
    }
}

/* The first rule that means the tensor decides. Its parts stay as they are. */
static ckpt_status cast_row(caster *c, size_t i)
{
    const ckpt__tensor *t = &c->m->index->tensors[i];
    ckpt__row *row = &c->m->ledger.rows[i];
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; k < c->count && !row->rule; k++) {
        rule *r = &c->rules[k];
        if (!names(c, r, i))
            continue;
        r->matched = true;
        bool dense = !ckpt__has_no_bytes(t) && !t->info.extra->quantizer.data, can = converts(t->info.dtype, r->to);
        if (!means(r, &t->info) || (dense && !can && !r->exact)) /* packed ones: float4, two a byte */
            continue;
        r->used = true;
        row->rule = (uint32_t)k + 1;
        if (dense && can)
            row->cast = (uint8_t)r->to;
        else if (r->exact)
            status = dense ? no_conversion(c, r, &t->info) : no_bytes(c, r, &t->info);
        note_taken(c, i, k);
    }
    return status;
}

static ckpt_status note_unused(caster *c)
{
    const ckpt__rule_names all = {.canonical = true};
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < c->count; k++) {
        const rule *r = &c->rules[k], *first = &c->rules[r->by];
        char said[300], why[400] = "converts nothing: no name matches";
        if (r->used)
            continue;
        snprintf(said, sizeof said, "--cast '%s=%s'", r->glob, ckpt_dtype_name(r->to));
        if (r->taken)
            snprintf(
                why, sizeof why,
                "converts nothing: '%.200s=%s' before it takes %s that it matches (%zu), and the first that matches counts",
                first->glob, ckpt_dtype_name(first->to), r->taken == 1 ? "the tensor" : "all tensors", r->taken);
        if (r->matched && !r->taken)
            status = ckpt__migration_note(
                c->m, CKPT_SEVERITY_WARNING, "unused-rule", (ckpt_str){NULL, 0}, c->err,
                "%s converts nothing: integers, random states and the optimizer's state are left alone unless "
                "the glob names them",
                said);
        else
            status = ckpt__rule_unused(c->m, said, why, r->taken ? NULL : r->glob, &all, c->err);
    }
    return status;
}

/* A tensor is listed once a name, and its value has the number of the first. */
typedef struct tie_finder {
    ckpt__migration *m;
    const ckpt__hash *listed; /* name -> tensor */
} tie_finder;

static int find_tie(void *ctx, const ckpt_visit *visit)
{
    const tie_finder *f = ctx;
    size_t at, first = visit->value->tensor;
    if (visit->value->kind == CKPT_V_TENSOR && first < f->m->from->tensor_count &&
        ckpt__hash_get(f->listed, visit->name.data, visit->name.size, &at))
        f->m->ledger.rows[at].first = (uint32_t)first + 1;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_find_ties(ckpt__migration *m, ckpt_error *err)
{
    ckpt__hash *listed = ckpt__listed(m, ckpt__goes_in_tree);
    tie_finder f = {m, listed};
    if (!listed)
        return ckpt__migration_no_memory(err);
    ckpt__call_rows(m, listed);
    ckpt_status status = m->from->root ? (ckpt_status)ckpt_value_walk(m->from->root, 0, find_tie, &f, err) : CKPT_OK;
    ckpt__hash_free(listed);
    return status;
}

static void take_earlier(ckpt__row *to, const ckpt__row *from)
{
    if (!from->rule || (to->rule && to->rule <= from->rule))
        return;
    to->rule = from->rule;
    to->cast = from->cast;
}

/* A tensor under several names is one: the first rule that matches any of them is for all. */
static void join_names(const ckpt__ledger *ledger)
{
    ckpt__row *rows = ledger->rows;
    for (size_t i = 0; i < ledger->count; i++)
        if (rows[i].first)
            take_earlier(&rows[rows[i].first - 1], &rows[i]);
    for (size_t i = 0; i < ledger->count; i++)
        if (rows[i].first)
            take_earlier(&rows[i], &rows[rows[i].first - 1]);
}

static void find_weights(caster *c)
{
    const ckpt__index *x = c->m->index, *from = c->m->from;
    for (size_t k = 0; k < c->count; k++)
        for (size_t i = 0; !c->rules[k].weights && i < x->tensor_count; i++) {
            const ckpt_tensor_info *t = &x->tensors[i].info;
            bool weight = !t->state_key.data && (t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER);
            c->rules[k].weights =
                weight && (may_match(&c->rules[k], t->name) || may_match(&c->rules[k], ckpt__canonical(c->m, i)) ||
                           may_match(&c->rules[k], from->tensors[i].info.name));
        }
}

ckpt_status ckpt__migrate_casts(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    const ckpt__index *x = m->from;
    caster c = {.m = m, .rules = calloc(o->cast_count + 1, sizeof *c.rules), .count = o->cast_count, .err = err};
    ckpt_status status = c.rules ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t k = 0; status == CKPT_OK && k < c.count; k++)
        status = parse(o->cast[k], &c.rules[k], err);
    if (status == CKPT_OK)
        find_weights(&c);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i))
        if (!ckpt__stays_behind(m, i))
            status = cast_row(&c, i);
    if (status == CKPT_OK) {
        join_names(&m->ledger);
        status = note_unused(&c);
    }
    for (size_t k = 0; c.rules && k < c.count; k++)
        free(c.rules[k].glob);
    free(c.rules);
    return status;
}
