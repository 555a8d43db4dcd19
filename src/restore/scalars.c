/* restore/scalars.c - the numbers, strings and bytes of a state: checked and converted first, put in place last. */
#include "restore/restoration.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"

ckpt_status ckpt__restore_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    (void)err;
    memcpy((char *)ctx + offset, data, n);
    return CKPT_OK;
}

/* Of a decimal integer: a digit at a time, so that one of 64 bits is exact. */
static void read_large(ckpt_str text, ckpt__number *n)
{
    bool minus = text.size && text.data[0] == '-';
    *n = (ckpt__number){.is_int = true, .natural = !minus, .beyond = minus};
    for (size_t i = minus; i < text.size; i++) {
        unsigned digit = (unsigned)(text.data[i] - '0');
        n->real = n->real * 10 + digit;
        n->beyond = n->beyond || n->large > (UINT64_MAX - digit) / 10;
        n->large = n->large * 10 + digit;
    }
    if (n->beyond)
        n->natural = false;
    else
        n->real = (double)n->large;
    if (minus)
        n->real = -n->real;
}

static bool number_of_value(const ckpt_value *v, ckpt__number *n)
{
    if (v->kind == CKPT_V_BIGINT) {
        read_large(v->text, n);
        return true;
    }
    n->is_int = v->kind != CKPT_V_FLOAT;
    n->integer = v->kind == CKPT_V_BOOL ? v->boolean : v->kind == CKPT_V_INT ? v->integer : 0;
    n->real = v->kind == CKPT_V_FLOAT ? v->real : (double)n->integer;
    return v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL;
}

bool ckpt__restore_number(ckpt__restorer *r, const ckpt__canon_entry *e, ckpt__number *n, ckpt_status *status,
                          ckpt_error *err)
{
    *status = CKPT_OK;
    *n = (ckpt__number){.is_int = false};
    if (!e->is_tensor)
        return number_of_value(e->value, n);
    const ckpt__tensor *t = &r->reader->index->tensors[e->tensor];
    unsigned char bytes[16];
    uint64_t numel;
    if (!t->info.shape || !ckpt__numel(t->info.shape, t->info.ndim, &numel) || numel != 1 ||
        t->info.nbytes > sizeof bytes || ckpt__has_no_bytes(t))
        return false;
    *status = ckpt__read_tensor(r->reader->source, r->reader->index, e->tensor, !r->sides[0].options.no_verify,
                                ckpt__restore_block, bytes, err);
    if (*status < 0)
        return false;
    n->is_int = !ckpt_dtype_is_float(t->info.dtype);
    if (t->info.dtype == CKPT_U64)
        memcpy(&n->large, bytes, sizeof n->large);
    n->natural = n->large > INT64_MAX;
    if (n->natural)
        n->real = (double)n->large;
    else if (n->is_int ? !ckpt__convert(t->info.dtype, bytes, CKPT_I64, &n->integer, 1, NULL)
                       : !ckpt__convert(t->info.dtype, bytes, CKPT_F64, &n->real, 1, NULL))
        return false;
    else if (n->is_int)
        n->real = (double)n->integer;
    return true;
}

bool ckpt__restore_element(const ckpt__number *n, ckpt_dtype dtype, unsigned char bytes[16])
{
    bool inexact = false;
    double back = 0;
    if (n->beyond || !(n->natural  ? ckpt__convert(CKPT_U64, &n->large, dtype, bytes, 1, &inexact)
                       : n->is_int ? ckpt__convert(CKPT_I64, &n->integer, dtype, bytes, 1, &inexact)
                                   : ckpt__convert(CKPT_F64, &n->real, dtype, bytes, 1, &inexact)))
        return false;
    if (!inexact)
        return true;
    return !n->is_int && ckpt_dtype_is_float(dtype) && ckpt__convert(dtype, bytes, CKPT_F64, &back, 1, NULL) &&
           !isinf(back);
}

const char *ckpt__number_text(const ckpt__number *n, char text[CKPT__NUMBER_MAX])
{
    if (n->natural)
        snprintf(text, CKPT__NUMBER_MAX, "%" PRIu64, n->large);
    else if (n->is_int && !n->beyond)
        snprintf(text, CKPT__NUMBER_MAX, "%" PRId64, n->integer);
    else
        ckpt__format_double(text, n->real);
    return text;
}

static ckpt_status add_pending(ckpt__target_state *side, const ckpt__pending *p, ckpt_error *err)
{
    if (!ckpt__grow(&side->pending, &side->pending_capacity, side->pending_count + 1, sizeof *side->pending))
        return ckpt__fail_memory(err, "scalars", 0);
    side->pending[side->pending_count++] = *p;
    return CKPT_OK;
}

/* Is the integer what its nearest double says? */
static bool real_is_exact(const ckpt__number *n)
{
    if (n->natural)
        return n->real < 18446744073709551616.0 && (uint64_t)n->real == n->large;
    return !n->is_int || (!n->beyond && n->real < 9223372036854775808.0 && (int64_t)n->real == n->integer);
}

/* Into the variable's type; false where it does not hold the number exactly. A float32 takes the nearest of a Python
 * float (its 0.1 is no float32), but not one that overflows. */
static bool fit(ckpt__scalar_kind kind, const ckpt__number *n, ckpt__pending *p)
{
    bool whole =
        n->is_int ? !n->natural && !n->beyond : n->real == floor(n->real) && fabs(n->real) < 9007199254740992.0;
    int64_t i = n->is_int ? n->integer : whole ? (int64_t)n->real : 0;
    switch (kind) {
    case CKPT__S_F64:
        p->u.f64 = n->real;
        return real_is_exact(n);
    case CKPT__S_F32:
        p->u.f32 = (float)n->real;
        return (!isinf(p->u.f32) || isinf(n->real)) &&
               (!n->is_int || (real_is_exact(n) && (double)p->u.f32 == n->real));
    case CKPT__S_I64:
        p->u.i64 = i;
        return whole;
    case CKPT__S_I32:
        p->u.i32 = (int32_t)i;
        return whole && i >= INT32_MIN && i <= INT32_MAX;
    case CKPT__S_U32:
        p->u.u32 = (uint32_t)i;
        return whole && i >= 0 && i <= UINT32_MAX;
    case CKPT__S_U64:
        p->u.u64 = n->natural ? n->large : (uint64_t)i;
        return n->natural || (whole && i >= 0);
    case CKPT__S_BOOL:
        p->u.boolean = i != 0;
        return whole && (i == 0 || i == 1);
    default:
        return false;
    }
}

static const char *kind_text(ckpt__scalar_kind kind)
{
    static const char *const names[] = {"",       "a float32", "a float64", "an int32", "an int64",
                                        "a bool", "a uint32",  "a uint64",  "a string", "bytes"};
    return names[kind];
}

static ckpt_status number(ckpt__restorer *r, ckpt__target_state *side, size_t scalar, const char *name,
                          const ckpt__canon_entry *e, ckpt_error *err)
{
    const ckpt__scalar *s = &side->state->scalars[scalar];
    ckpt__pending p = {.scalar = scalar};
    ckpt__number n;
    ckpt_status status;
    if (!ckpt__restore_number(r, e, &n, &status, err))
        return status < 0 ? status
                          : ckpt__target_note(side, CKPT_SEVERITY_ERROR, "kind-mismatch", name, NULL, err,
                                              "it is bound as %s, and the checkpoint holds a %s", kind_text(s->kind),
                                              e->is_tensor ? "tensor that does not convert to one number"
                                                           : ckpt_kind_name(e->value->kind));
    if (fit(s->kind, &n, &p))
        return add_pending(side, &p, err);
    char shown[CKPT__NUMBER_MAX];
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "value-mismatch", name, NULL, err,
                             "its value %s cannot be held exactly by %s", ckpt__number_text(&n, shown),
                             kind_text(s->kind));
}

static ckpt_status text(ckpt__restorer *r, ckpt__target_state *side, size_t scalar, const char *name,
                        const ckpt__canon_entry *e, ckpt_error *err)
{
    const ckpt__scalar *s = &side->state->scalars[scalar];
    ckpt__pending p = {.scalar = scalar};
    bool bytes = s->kind == CKPT__S_BYTES;
    const ckpt_tensor_info *t = e->is_tensor ? &r->reader->index->tensors[e->tensor].info : NULL;
    if (t && bytes && (t->dtype == CKPT_U8 || t->dtype == CKPT_I8) &&
        t->nbytes == s->size) { /* torch keeps its RNG so */
        char *copy = ckpt__arena_alloc(side->memory, s->size ? s->size : 1);
        if (!copy)
            return ckpt__fail_memory(err, name, s->size);
        ckpt_status status = ckpt__read_tensor(r->reader->source, r->reader->index, e->tensor,
                                               !r->sides[0].options.no_verify, ckpt__restore_block, copy, err);
        p.text = (ckpt_str){copy, s->size};
        return status < 0 ? status : add_pending(side, &p, err);
    }
    if (t && bytes && (t->dtype == CKPT_U8 || t->dtype == CKPT_I8))
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "value-mismatch", name, NULL, err,
                                 "it has %llu bytes, and the state has room for %zu exactly",
                                 (unsigned long long)t->nbytes, s->size);
    ckpt_kind kind = t ? CKPT_V_TENSOR : e->value->kind;
    if (bytes ? kind != CKPT_V_BYTES && kind != CKPT_V_BYTEARRAY : kind != CKPT_V_STR)
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "kind-mismatch", name, NULL, err,
                                 "it is bound as %s, and the checkpoint holds a %s", kind_text(s->kind),
                                 ckpt_kind_name(kind));
    p.text = e->value->text;
    if (bytes ? p.text.size != s->size : p.text.size >= s->size)
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "value-mismatch", name, NULL, err,
                                 "it has %zu bytes, and the state has room for %zu%s", p.text.size, s->size,
                                 bytes ? " exactly" : " with the NUL");
    return add_pending(side, &p, err);
}

/* `step` where the checkpoint only has one a parameter: those, if all are equal. */
static ckpt_status step_of_parameters(ckpt__restorer *r, ckpt__target_state *side, size_t scalar, bool *found,
                                      ckpt_error *err)
{
    double first = 0;
    const char *who = NULL;
    *found = false;
    for (size_t i = 0; i < side->canon->count; i++) {
        const ckpt__canon_entry *e = &side->canon->entries[i];
        ckpt__number n;
        ckpt_status status;
        if (e->role != CKPT_ROLE_STEP || !e->param.data)
            continue;
        if (!ckpt__restore_number(r, e, &n, &status, err)) {
            if (status < 0)
                return status;
            continue;
        }
        if (who && n.real != first) {
            char a[CKPT__DOUBLE_MAX], b[CKPT__DOUBLE_MAX];
            return ckpt__target_note(
                side, CKPT_SEVERITY_ERROR, "steps-differ", "step",
                "name the one that counts with source.step in the map", err,
                "the checkpoint has no step of its own, and its parameters' steps differ: '%s' %s, '%s' %s", who,
                ckpt__format_double(a, first), e->name.data, ckpt__format_double(b, n.real));
        }
        first = n.real;
        who = who ? who : e->name.data;
    }
    if (!who)
        return CKPT_OK;
    *found = true;
    ckpt__pending p = {.scalar = scalar};
    if (!fit(side->state->scalars[scalar].kind, &(ckpt__number){.real = first}, &p))
        return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "value-mismatch", "step", NULL, err,
                                 "the parameters' step is not a whole number");
    ckpt_status status = add_pending(side, &p, err);
    return status < 0 ? status
                      : ckpt__target_note(side, CKPT_SEVERITY_NOTE, "step-from-parameters", "step", NULL, err,
                                          "taken from the parameters' steps, which all are %lld", (long long)first);
}

ckpt_status ckpt__restore_missing_value(ckpt__target_state *side, ckpt_str name, ckpt_error *err)
{
    bool optional = ckpt__state_is_optional(side->state, name);
    if (optional || side->options.allow_missing)
        return ckpt__target_note(side, CKPT_SEVERITY_NOTE, optional ? "kept" : "missing", name.data, NULL, err,
                                 "it is not in the checkpoint and keeps its value");
    return ckpt__target_note(side, CKPT_SEVERITY_ERROR, "missing", name.data,
                             "if it is meant to keep its value, permit it with allow_missing or ckpt_state_optional",
                             err, "it is bound and the checkpoint has no value of that name");
}

/* The step of a parameter that is new; what else is a number of its state keeps its value. */
static ckpt_status replaced(ckpt__target_state *side, size_t scalar, ckpt_str key, ckpt_error *err)
{
    const ckpt__scalar *s = &side->state->scalars[scalar];
    ckpt__pending p = {.scalar = scalar};
    size_t entry;
    bool anew = ckpt__str_is(key, "step") && fit(s->kind, &(ckpt__number){.is_int = true}, &p);
    if (ckpt__hash_get(side->canon->by_name, s->name.data, s->name.size, &entry))
        side->consumed[entry] = true;
    ckpt_status status = anew ? add_pending(side, &p, err) : CKPT_OK;
    return status < 0 ? status
                      : ckpt__target_note(side, CKPT_SEVERITY_NOTE, "replaced", s->name.data, NULL, err,
                                          "it %s, as its parameter is new", anew ? "starts at 0" : "keeps its value");
}

static ckpt_status one(ckpt__restorer *r, ckpt__target_state *side, size_t i, ckpt_error *err)
{
    const ckpt__scalar *s = &side->state->scalars[i];
    ckpt__buf wanted = {0}, stored = {0};
    ckpt_status status = CKPT_OK;
    size_t entry;
    bool found = false;
    ckpt_str key = {NULL, 0};
    ckpt__scalar_name(side->state, s, &wanted);
    if (s->group != SIZE_MAX && side->groups[s->group] != SIZE_MAX) /* the file's group may have another name */
        ckpt__buf_printf(&stored, "optimizer.groups.%s.%s", side->canon->groups[side->groups[s->group]].name.data,
                         s->name.data);
    else
        ckpt__buf_add(&stored, wanted.data, wanted.size);
    if (wanted.failed || stored.failed)
        status = ckpt__fail_memory(err, s->name.data, 0);
    else if (s->group == SIZE_MAX && ckpt__restore_is_of_replaced(side, s->name, (ckpt_str){NULL, 0}, &key))
        status = replaced(side, i, key, err);
    else if (ckpt__hash_get(side->canon->by_name, stored.data, stored.size, &entry)) {
        side->consumed[entry] = true;
        const ckpt__canon_entry *e = &side->canon->entries[entry];
        status = s->kind == CKPT__S_STRING || s->kind == CKPT__S_BYTES ? text(r, side, i, wanted.data, e, err)
                                                                       : number(r, side, i, wanted.data, e, err);
    } else {
        if (ckpt__str_is(s->name, "step"))
            status = step_of_parameters(r, side, i, &found, err);
        if (status == CKPT_OK && !found && ckpt_report_find(side->report, "steps-differ", "step") == NULL)
            status = ckpt__restore_missing_value(side, (ckpt_str){wanted.data, wanted.size}, err);
    }
    ckpt__buf_free(&wanted);
    ckpt__buf_free(&stored);
    return status;
}

ckpt_status ckpt__restore_scalars(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < side->state->scalar_count; i++)
        status = one(r, side, i, err);
    return status;
}

void ckpt__restore_apply_scalars(const ckpt__target_state *side)
{
    for (size_t i = 0; i < side->pending_count; i++) {
        const ckpt__pending *p = &side->pending[i];
        const ckpt__scalar *s = &side->state->scalars[p->scalar];
        switch (s->kind) {
        case CKPT__S_F32:
            memcpy(s->data, &p->u.f32, sizeof p->u.f32);
            break;
        case CKPT__S_F64:
            memcpy(s->data, &p->u.f64, sizeof p->u.f64);
            break;
        case CKPT__S_I32:
            memcpy(s->data, &p->u.i32, sizeof p->u.i32);
            break;
        case CKPT__S_I64:
            memcpy(s->data, &p->u.i64, sizeof p->u.i64);
            break;
        case CKPT__S_U32:
            memcpy(s->data, &p->u.u32, sizeof p->u.u32);
            break;
        case CKPT__S_U64:
            memcpy(s->data, &p->u.u64, sizeof p->u.u64);
            break;
        case CKPT__S_BOOL:
            memcpy(s->data, &p->u.boolean, sizeof p->u.boolean);
            break;
        case CKPT__S_STRING:
            memcpy(s->data, p->text.data, p->text.size);
            ((char *)s->data)[p->text.size] = '\0';
            break;
        case CKPT__S_BYTES:
            memcpy(s->data, p->text.data, s->size);
            break;
        }
    }
}
