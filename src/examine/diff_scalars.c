/* examine/diff_scalars.c - everything that is not a tensor: values against values, a number against a tensor of one element,
 * and the order of the parameters in the optimizer's groups. */
#include "examine/diff_work.h"

#include <math.h>
#include <stdio.h>

/* ---- two values */

static bool same_double(const ckpt__differ *d, double a, double b)
{
    const ckpt_diff_options *o = d->options;
    if (a == b)
        return o->tolerant || signbit(a) == signbit(b);
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return o->tolerant && isfinite(a) && isfinite(b) && fabs(a - b) <= o->atol + o->rtol * fabs(b);
}

static bool is_sequence(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE;
}

static bool same_text(ckpt_str a, ckpt_str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static unsigned compare_arrays(const ckpt_value *v, const ckpt_value *w)
{
    const ckpt_array *a = v->array, *b = w->array;
    unsigned what = same_text(a->dtype, b->dtype) ? 0u : CKPT_DIFF_DTYPE;
    if (!ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim))
        what |= CKPT_DIFF_SHAPE;
    else if (!what && (!same_text(v->text, w->text) || a->fortran != b->fortran))
        what |= CKPT_DIFF_VALUE;
    return what;
}

/* An empty list and an empty tuple are the same: JSON and the native format have one kind for both. */
static unsigned compare_values(const ckpt__differ *d, const ckpt_value *a, const ckpt_value *b)
{
    bool same = true;
    if (a->kind != b->kind && !(is_sequence(a) && is_sequence(b)))
        return CKPT_DIFF_KIND;
    switch (a->kind) {
    case CKPT_V_BOOL:
        same = a->boolean == b->boolean;
        break;
    case CKPT_V_INT:
        same = a->integer == b->integer;
        break;
    case CKPT_V_FLOAT:
        same = same_double(d, a->real, b->real);
        break;
    case CKPT_V_BIGINT:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        same = same_text(a->text, b->text);
        break;
    case CKPT_V_ARRAY:
        return compare_arrays(a, b);
    case CKPT_V_CLASS:
    case CKPT_V_OBJECT:
        if (!same_text(a->class_name, b->class_name))
            return CKPT_DIFF_KIND;
        /* a scalar of numpy has its bytes; the native format keeps them with the structure of the torch file alone */
        return a->array && b->array ? compare_arrays(a, b) : 0u;
    case CKPT_V_NONE:
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_DICT:
    case CKPT_V_TENSOR:
        break;
    }
    return same ? 0u : CKPT_DIFF_VALUE;
}

/* The tensors among the arguments (scales and zero points of channels) are parts of the tensor, and compared as such. */
bool ckpt__differ_same_quantizer(const ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b)
{
    const ckpt_value *x = a->quantizer, *y = b->quantizer;
    if (!x || !y)
        return true;
    bool same = x->item_count == y->item_count;
    for (size_t i = 0; same && i < x->item_count; i++)
        same = compare_values(d, x->items[i], y->items[i]) == 0;
    return same;
}

/* A number here, a tensor there: of one element, it may be the same number. */
static ckpt_status compare_with_tensor(ckpt__differ *d, const ckpt_value *v, const ckpt__diff_side *s, size_t tensor,
                                       unsigned *what)
{
    double number = 0;
    bool is = false;
    ckpt_status status = ckpt__differ_number(d, s, tensor, &is, &number);
    double own = v->kind == CKPT_V_INT ? (double)v->integer : v->kind == CKPT_V_FLOAT ? v->real : (double)NAN;
    *what = CKPT_DIFF_KIND | (status == CKPT_OK && is && same_double(d, own, number) ? 0u : CKPT_DIFF_VALUE);
    return status;
}

/* ---- rows */

static ckpt_diff_scalar *add_row(ckpt__differ *d)
{
    if (!ckpt__grow(&d->scalars, &d->scalar_capacity, d->scalar_count + 1, sizeof *d->scalars))
        return NULL;
    ckpt_diff_scalar *row = &d->scalars[d->scalar_count++];
    memset(row, 0, sizeof *row);
    return row;
}

static ckpt_status put_row(ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b, unsigned what)
{
    ckpt_diff_counts *n = &d->result->of_scalars;
    ckpt_diff_status status = !a ? CKPT_DIFF_ADDED : !b ? CKPT_DIFF_REMOVED : what ? CKPT_DIFF_CHANGED : CKPT_DIFF_SAME;
    *(!a ? &n->added : !b ? &n->removed : what ? &n->changed : &n->same) += 1;
    if (a && b)
        *(a->match == CKPT_MATCH_NAME     ? &n->by_name
          : a->match == CKPT_MATCH_PREFIX ? &n->by_prefix
                                          : &n->by_canonical) += 1;
    if (status == CKPT_DIFF_SAME && !d->options->keep_same)
        return CKPT_OK;
    ckpt_diff_scalar *row = add_row(d);
    if (!row)
        return ckpt__differ_no_memory(d);
    row->status = status;
    row->what = what;
    row->match = a && b ? a->match : CKPT_MATCH_NONE;
    row->name = a ? a->name : b->name;
    if (a) {
        row->name_a = a->name;
        row->a = a->value;
        row->tensor_a = a->value ? NULL : &d->a.reader->index->tensors[a->tensor].info;
    }
    if (b) {
        row->name_b = b->name;
        row->b = b->value;
        row->tensor_b = b->value ? NULL : &d->b.reader->index->tensors[b->tensor].info;
    }
    return CKPT_OK;
}

/* Does the other side have a container of that name that is not empty? What is in it has been compared. */
static ckpt_status is_filled(ckpt__differ *d, ckpt__diff_side *other, ckpt_str name, bool *filled)
{
    *filled = false;
    if (!other->containers && !(other->containers = ckpt__hash_new(64)))
        return ckpt__differ_no_memory(d);
    for (; other->containers_next < other->tree.count; other->containers_next++) {
        const ckpt__node *node = &other->tree.nodes[other->containers_next];
        bool holds = node->end > other->containers_next + 1;
        if (holds && ckpt__hash_put(other->containers, node->name.data, node->name.size, 0, NULL) < 0)
            return ckpt__differ_no_memory(d);
    }
    *filled = ckpt__hash_get(other->containers, name.data, name.size, &(size_t){0});
    return CKPT_OK;
}

/* What has no counterpart and is no difference: how the optimizer's dict is laid out, the class of an object whose members are
 * compared, the mark that every writer of safetensors sets. */
static bool passes(const ckpt__thing *t)
{
    if (t->frame ||
        (t->value->kind == CKPT_V_OBJECT && (t->value->state || t->value->item_count || t->value->entry_count)))
        return true;
    bool mark = ckpt__str_is(t->name, "__metadata__.format") || ckpt__str_ends(t->name, ".__metadata__.format");
    return mark && t->value->kind == CKPT_V_STR;
}

/* One value under two names here (a step as "step" and as "global_step", in a file that was one of Lightning's), and under one of
 * them there. */
static bool is_second_name(const ckpt__differ *d, const ckpt__diff_side *other, const ckpt__thing *t)
{
    size_t at;
    return !t->empty && ckpt__hash_get(other->by_name, t->name.data, t->name.size, &at) &&
           other->things[at].other != SIZE_MAX && compare_values(d, t->value, other->things[at].value) == 0;
}

static ckpt_status put_alone(ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b)
{
    const ckpt__thing *t = a ? a : b;
    ckpt__diff_side *other = a ? &d->b : &d->a;
    bool filled = false;
    ckpt_status status = t->empty ? is_filled(d, other, t->name, &filled) : CKPT_OK;
    if (status < 0 || filled || passes(t))
        return status;
    if (is_second_name(d, other, t)) {
        d->result->of_scalars.tied++;
        return CKPT_OK;
    }
    return put_row(d, a, b, 0);
}

static ckpt_status compare_pair(ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b)
{
    unsigned what = 0;
    ckpt_status status = CKPT_OK;
    if ((!a->value && b->value->kind == CKPT_V_NONE && ckpt__differ_in_parts(&d->a, &d->b, a)) ||
        (!b->value && a->value->kind == CKPT_V_NONE && ckpt__differ_in_parts(&d->b, &d->a, b)))
        return CKPT_OK;
    if (a->value && b->value)
        what = compare_values(d, a->value, b->value);
    else
        status = a->value ? compare_with_tensor(d, a->value, &d->b, b->tensor, &what)
                          : compare_with_tensor(d, b->value, &d->a, a->tensor, &what);
    return status == CKPT_OK ? put_row(d, a, b, what) : status;
}

/* ---- the order of the parameters */

static const ckpt_value *names_value(const ckpt__diff_side *s, const ckpt__canon_group *g)
{
    const ckpt_value **items = ckpt__arena_array(s->arena, g->param_count + 1, sizeof *items);
    for (size_t i = 0; items && i < g->param_count; i++)
        if (!(items[i] = ckpt__value_str(s->arena, g->params[i].data, g->params[i].size)))
            items = NULL;
    return items ? ckpt__value_list(s->arena, CKPT_V_LIST, items, g->param_count) : NULL;
}

/* What b calls a parameter of a; its own name where it has none there. */
static ckpt_str name_in_b(const ckpt__differ *d, const ckpt__hash *params, ckpt_str name)
{
    size_t at;
    if (!ckpt__hash_get(params, name.data, name.size, &at) || d->a.things[at].other == SIZE_MAX)
        return name;
    ckpt_str other = d->b.things[d->a.things[at].other].canonical;
    return other.data ? other : name;
}

static ckpt_status compare_group(ckpt__differ *d, const ckpt__hash *params, size_t group)
{
    const ckpt__canon_group *a = &d->a.canon->groups[group], *b = &d->b.canon->groups[group];
    bool same = a->param_count == b->param_count, known = true;
    for (size_t i = 0; i < a->param_count; i++)
        known &= a->params[i].data != NULL;
    for (size_t i = 0; i < b->param_count; i++)
        known &= b->params[i].data != NULL;
    for (size_t i = 0; known && same && i < a->param_count; i++)
        same = ckpt__str_equal(name_in_b(d, params, a->params[i]), b->params[i]);
    if (same || !known)
        return CKPT_OK;
    char name[300], shown[200];
    ckpt__escape(shown, sizeof shown, a->name.data, a->name.size);
    int n = snprintf(name, sizeof name, "optimizer.groups.%s.params", shown);
    ckpt_str own = ckpt__arena_str(d->a.arena, name, (size_t)n);
    ckpt_diff_scalar *row = own.data ? add_row(d) : NULL;
    if (!row)
        return ckpt__differ_no_memory(d);
    *row = (ckpt_diff_scalar){CKPT_DIFF_CHANGED,
                              CKPT_DIFF_VALUE,
                              CKPT_MATCH_CANONICAL,
                              own,
                              own,
                              own,
                              names_value(&d->a, a),
                              names_value(&d->b, b),
                              NULL,
                              NULL};
    d->result->of_scalars.changed++;
    return row->a && row->b ? CKPT_OK : ckpt__differ_no_memory(d);
}

/* Ids number the parameters: another order is another optimizer, though each file may look as before. */
static ckpt_status compare_orders(ckpt__differ *d)
{
    const ckpt__canon *a = d->a.canon, *b = d->b.canon;
    if (!a || !b || !a->group_count || !b->group_count)
        return CKPT_OK;
    size_t tensors = d->a.reader->index->tensor_count;
    ckpt__hash *params = ckpt__hash_new(tensors);
    ckpt_status status = params ? CKPT_OK : ckpt__differ_no_memory(d);
    for (size_t i = 0; status == CKPT_OK && i < tensors; i++) {
        ckpt_str name = d->a.things[i].canonical;
        if (name.data && ckpt__hash_put(params, name.data, name.size, i, NULL) < 0)
            status = ckpt__differ_no_memory(d);
    }
    for (size_t g = 0; status == CKPT_OK && g < a->group_count && g < b->group_count; g++)
        status = compare_group(d, params, g);
    ckpt__hash_free(params);
    return status;
}

ckpt_status ckpt__differ_scalars(ckpt__differ *d)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < d->a.count; i++) {
        const ckpt__thing *a = &d->a.things[i], *b = a->other != SIZE_MAX ? &d->b.things[a->other] : NULL;
        if (b ? !a->value && !b->value : !a->value)
            continue; /* tensors */
        status = b ? compare_pair(d, a, b) : put_alone(d, a, NULL);
    }
    for (size_t i = 0; status == CKPT_OK && i < d->b.count; i++)
        if (d->b.things[i].value && d->b.things[i].other == SIZE_MAX)
            status = put_alone(d, NULL, &d->b.things[i]);
    return status == CKPT_OK ? compare_orders(d) : status;
}
