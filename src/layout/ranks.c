/* layout/ranks.c - the mesh of a side, and the cuts of its tensors, with the values of the variables put in. */
#include "layout/ranks.h"

#include <stdio.h>
#include "layout/parts.h"

typedef struct evaluating {
    const ckpt__layout *layout;
    ckpt__formula_value *value;
    const void *ctx;
    ckpt_error *err;
} evaluating;

bool ckpt__layout_has_mesh(const ckpt__layout *layout, unsigned side)
{
    return layout->ranks[side].axis_count != 0;
}

static ckpt_status eval(const evaluating *e, size_t line, size_t column, const ckpt__formula *f, int64_t *out)
{
    char why[300];
    if (ckpt__formula_eval(f, e->value, e->ctx, out, why, sizeof why))
        return CKPT_OK;
    return ckpt__fail(e->err, CKPT_E_ARGUMENT, e->layout->name, "line %zu, column %zu: '%.*s': %s", line, column,
                      (int)(f->text.size < 100 ? f->text.size : 100), f->text.data, why);
}

/* ---- the mesh */

/* "dp, tp" */
static void name_axes(const ckpt__layout_ranks *r, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < r->axis_count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", i ? ", " : "",
                                 (int)(r->axes[i].name.size < 40 ? r->axes[i].name.size : 40), r->axes[i].name.data);
}

/* Each axis that was said is one of the side's, in the side's order: the order says which rank is where. */
static ckpt_status check_said(const evaluating *e, unsigned side, const ckpt__rank_mesh *said)
{
    const ckpt__layout_ranks *r = &e->layout->ranks[side];
    char all[400];
    size_t last = 0;
    name_axes(r, all, sizeof all);
    for (size_t i = 0; said && i < said->count; i++) {
        const ckpt_str name = said->axes[i].name;
        size_t at = 0;
        while (at < r->axis_count && !ckpt__str_equal(r->axes[at].name, name))
            at++;
        if (at == r->axis_count)
            return ckpt__fail(e->err, CKPT_E_ARGUMENT, e->layout->name,
                              "line %zu, column %zu: the mesh of %s has no axis '%.*s': its axes are %s", r->line,
                              r->column, e->layout->sides[side].data, (int)(name.size < 60 ? name.size : 60), name.data,
                              all);
        if (at < last)
            return ckpt__fail(e->err, CKPT_E_ARGUMENT, e->layout->name,
                              "line %zu, column %zu: the axes of %s are in the order %s, which says which rank is "
                              "where: say --mesh in that order",
                              r->line, r->column, e->layout->sides[side].data, all);
        last = at;
    }
    return CKPT_OK;
}

ckpt_status ckpt__layout_mesh(const ckpt__layout *layout, unsigned side, const ckpt__rank_mesh *said,
                              ckpt__formula_value *value, const void *ctx, ckpt__rank_mesh *out, ckpt_error *err)
{
    const evaluating e = {layout, value, ctx, err};
    const ckpt__layout_ranks *r = &layout->ranks[side];
    *out = (ckpt__rank_mesh){.count = 0};
    ckpt_status status = check_said(&e, side, said);
    for (size_t i = 0; status == CKPT_OK && i < r->axis_count; i++) {
        const ckpt__layout_axis *a = &r->axes[i];
        const size_t at = said ? ckpt__rank_mesh_axis(said, a->name) : 0;
        int64_t size = said && at < said->count ? said->axes[at].size : 0;
        if ((!said || at == said->count) && !a->size.count)
            status = ckpt__fail(
                err, CKPT_E_ARGUMENT, layout->name,
                "line %zu, column %zu: the size of the axis %.*s is left to the names of files, which are not "
                "read here: say its size",
                a->line, a->column, (int)(a->name.size < 60 ? a->name.size : 60), a->name.data);
        else if (!said || at == said->count)
            status = eval(&e, a->line, a->column, &a->size, &size);
        out->axes[out->count++] = (ckpt__rank_axis){a->name, size};
    }
    if (status == CKPT_OK && (status = ckpt__rank_mesh_check(out, err)) < 0) {
        ckpt__error_prefix(err, "line %zu, column %zu", r->line, r->column);
        ckpt__error_object(err, layout->name);
    }
    return status;
}

/* ---- the cuts */

size_t ckpt__layout_shard_count(const ckpt__layout *layout, unsigned side)
{
    return layout->ranks[side].shard_count;
}

bool ckpt__layout_shard_optional(const ckpt__layout *layout, unsigned side, size_t shard, size_t *line, size_t *column)
{
    const ckpt__layout_shard *s = &layout->ranks[side].shards[shard];
    *line = s->line;
    *column = s->column;
    return s->optional;
}

size_t ckpt__layout_shard_of(const ckpt__layout *layout, unsigned side, ckpt_str name)
{
    const ckpt__layout_ranks *r = &layout->ranks[side];
    ckpt__captured with;
    for (size_t i = 0; i < r->shard_count; i++)
        for (size_t k = 0; k < r->shards[i].names.count; k++)
            if (ckpt__name_form_match(&r->shards[i].names.forms[k], name, &with))
                return i;
    return SIZE_MAX;
}

static ckpt_status eval_all(const evaluating *e, const ckpt__layout_cut *c, const ckpt__formula *formulas, size_t count,
                            ckpt__arena *arena, const int64_t **out)
{
    int64_t *values = ckpt__arena_array(arena, count + 1, sizeof *values);
    ckpt_status status = values ? CKPT_OK : ckpt__fail_memory(e->err, e->layout->name, 0);
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        status = eval(e, c->line, c->column, &formulas[i], &values[i]);
    *out = values;
    return status;
}

static ckpt_status eval_cut(const evaluating *e, const ckpt__layout_cut *c, const ckpt__rank_mesh *mesh,
                            ckpt__arena *arena, ckpt__rank_cut *out)
{
    ckpt_status status = CKPT_OK;
    *out = (ckpt__rank_cut){.axis = c->axis, .dim = c->dim, .as = c->as, .groups = 1};
    if (c->as == CKPT__CUT_AS_WIDTHS && (int64_t)c->width_count != mesh->axes[c->axis].size)
        return ckpt__fail(e->err, CKPT_E_ARGUMENT, e->layout->name,
                          "line %zu, column %zu: there are %zu widths, and %lld ranks along %.*s", c->line, c->column,
                          c->width_count, (long long)mesh->axes[c->axis].size,
                          (int)(mesh->axes[c->axis].name.size < 60 ? mesh->axes[c->axis].name.size : 60),
                          mesh->axes[c->axis].name.data);
    if (c->as == CKPT__CUT_AS_WIDTHS)
        status = eval_all(e, c, c->widths, c->width_count, arena, &out->widths);
    if (status == CKPT_OK && c->segment_count)
        status = eval_all(e, c, c->segments, c->segment_count, arena, &out->segments);
    out->segment_count = c->segment_count;
    if (status == CKPT_OK && c->groups.count)
        status = eval(e, c->line, c->column, &c->groups, &out->groups);
    return status;
}

ckpt_status ckpt__layout_shard_cuts(const ckpt__layout *layout, unsigned side, size_t shard,
                                    const ckpt__rank_mesh *mesh, ckpt__formula_value *value, const void *ctx,
                                    ckpt__arena *arena, const ckpt__rank_cut **out, size_t *count, ckpt_error *err)
{
    const evaluating e = {layout, value, ctx, err};
    const ckpt__layout_shard *s = &layout->ranks[side].shards[shard];
    ckpt__rank_cut *cuts = ckpt__arena_array(arena, s->cut_count + 1, sizeof *cuts);
    ckpt_status status = cuts ? CKPT_OK : ckpt__fail_memory(err, layout->name, 0);
    for (size_t i = 0; status == CKPT_OK && i < s->cut_count; i++)
        status = eval_cut(&e, &s->cuts[i], mesh, arena, &cuts[i]);
    *out = cuts;
    *count = s->cut_count;
    return status;
}
