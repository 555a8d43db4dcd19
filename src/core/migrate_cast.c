/* core/migrate_cast.c - which tensors --cast GLOB=DTYPE is about.
 *
 * A glob is compared with the source's name and the canonical one; the first that matches wins. What a wide glob
 * would hit by accident it leaves alone: integers and bools, complex numbers that would lose a part, random states, the
 * scales of quantized weights, and the optimizer's state. Those are converted only by a glob that says so: one without
 * wildcards, one that spells the state's key ("*.exp_avg"), or one that begins with a text that no weight's name begins
 * with ("optimizer.*"). */
#include "core/migrate_job.h"

#include <stdlib.h>

typedef struct rule {
    char *glob; /* NUL-terminated */
    size_t literal; /* bytes before the first wildcard */
    bool exact; /* no wildcard at all */
    ckpt_dtype to;
    bool weights; /* a weight's name begins with the literal bytes */
    bool matched; /* something, also if it was left alone */
    bool used;
} rule;

typedef struct caster {
    ckpt__mover *m;
    rule *rules;
    size_t count;
    ckpt_error *err;
} caster;

static ckpt_status parse(const char *text, rule *out, ckpt_error *err)
{
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text || (equals == text + 1 && *text == '='))
        return ckpt__fail(err, CKPT_E_ARGUMENT, text, "a cast is GLOB=DTYPE, such as '*=bfloat16'");
    out->to = ckpt_dtype_from_name(equals + 1);
    if (out->to == CKPT_DTYPE_NONE)
        return ckpt__fail(err, CKPT_E_ARGUMENT, text,
                          "'%s' is no dtype; torch's names are float32, bfloat16, float16, int64, ...", equals + 1);
    if (!(out->glob = strndup(text, (size_t)(equals - text))))
        return ckpt__mover_no_memory(err);
    out->exact = *out->glob == '=';
    if (out->exact)
        memmove(out->glob, out->glob + 1, strlen(out->glob));
    out->literal = out->exact ? strlen(out->glob) : strcspn(out->glob, "*?\\");
    out->exact = out->exact || out->glob[out->literal] == 0;
    return CKPT_OK;
}

static bool matches(const rule *r, ckpt_str name)
{
    if (!name.data)
        return false;
    return r->exact ? ckpt__str_is(name, r->glob) : ckpt__glob(r->glob, strlen(r->glob), name.data, name.size);
}

static bool begins(const rule *r, ckpt_str name)
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
    if (!is_float(t->dtype) || t->role == CKPT_RNG || t->role == CKPT_SCALER)
        return false;
    if (ckpt__dtype_row_of(t->dtype)->is_complex != ckpt__dtype_row_of(r->to)->is_complex)
        return false;
    if (t->role == CKPT_BUFFER && t->param.data)      /* what a quantized weight is read with */
        return false;
    bool spelled = t->state_key.data && t->state_key.size && strstr(r->glob, t->state_key.data) != NULL;
    if (t->state_key.data || ckpt_role_is_optimizer(t->role))
        return spelled || (r->literal > 0 && !r->weights);
    return true;
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

static ckpt_status apply(caster *c, ckpt_dtype *out, const bool *part)
{
    const ckpt__index *x = c->m->index, *from = c->m->from;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++) {
        const ckpt_tensor_info *t = &x->tensors[i].info;
        if (c->m->dropped[i] || part[i])
            continue;
        for (size_t k = 0; k < c->count; k++) {
            rule *r = &c->rules[k];
            if (!matches(r, c->m->canonical[i]) && !matches(r, t->name) && !matches(r, from->tensors[i].info.name))
                continue;
            r->matched = true;
            if (!means(r, t))
                continue;
            r->used = true;
            bool dense = x->tensors[i].piece_count == 1 && !t->extra->quantizer.data && ckpt_dtype_size(t->dtype) > 0;
            if (dense)
                out[i] = r->to;
            else if (r->exact)
                status = no_bytes(c, r, t);
            break;
        }
    }
    return status;
}

static ckpt_status note_unused(caster *c)
{
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < c->count; k++) {
        const rule *r = &c->rules[k];
        if (!r->used)
            status = ckpt__mover_note(c->m, CKPT_WARNING, "unused-rule", (ckpt_str){ NULL, 0 }, c->err,
                                      "--cast '%s=%s' converts nothing%s", r->glob, ckpt_dtype_name(r->to),
                                      r->matched
                                          ? ": integers, random states and the optimizer's state are left alone unless the "
                                            "glob names them"
                                          : ": no name matches");
    }
    return status;
}

static void find_weights(caster *c)
{
    const ckpt__index *x = c->m->index, *from = c->m->from;
    for (size_t k = 0; k < c->count; k++)
        for (size_t i = 0; !c->rules[k].weights && i < x->tensor_count; i++) {
            const ckpt_tensor_info *t = &x->tensors[i].info;
            bool weight = !t->state_key.data && (t->role == CKPT_PARAM || t->role == CKPT_BUFFER);
            c->rules[k].weights = weight && (begins(&c->rules[k], t->name) || begins(&c->rules[k], c->m->canonical[i]) ||
                                             begins(&c->rules[k], from->tensors[i].info.name));
        }
}

ckpt_status ckpt__migrate_casts(ckpt__mover *m, ckpt_dtype *out, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    caster c = { .m = m, .count = o->cast_count, .err = err };
    if (!o->cast_count)
        return CKPT_OK;
    bool *part = calloc(m->from->tensor_count + 1, sizeof *part);
    c.rules = calloc(o->cast_count + 1, sizeof *c.rules);
    ckpt_status status = part && c.rules ? CKPT_OK : ckpt__mover_no_memory(err);
    for (size_t k = 0; status == CKPT_OK && k < o->cast_count; k++)
        status = parse(o->cast[k], &c.rules[k], err);
    for (size_t i = 0; status == CKPT_OK && i < m->from->tensor_count; i = ckpt__tensor_end(m->from, i))
        for (size_t k = i + 1; k < ckpt__tensor_end(m->from, i); k++)
            part[k] = true;
    if (status == CKPT_OK)
        find_weights(&c);
    if (status == CKPT_OK)
        status = apply(&c, out, part);
    if (status == CKPT_OK)
        status = note_unused(&c);
    for (size_t k = 0; c.rules && k < o->cast_count; k++)
        free(c.rules[k].glob);
    free(c.rules);
    free(part);
    return status;
}
