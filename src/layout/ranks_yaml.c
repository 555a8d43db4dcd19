/* layout/ranks_yaml.c - the YAML of `ranks`: for each side the mesh of its ranks, and how they cut its tensors. */
#include "layout/parts.h"

/* The key of a map that has to be there. */
static const ckpt__yaml_node *need(ckpt__layout_reading *r, const ckpt__yaml_node *map, const char *what,
                                   const char *key)
{
    const ckpt__yaml_node *n = ckpt__yaml_get(map, key);
    if (!n)
        ckpt__layout_wrong(r, map, "%s needs the key '%s'", what, key);
    return n;
}

/* ---- the mesh */

static void read_mesh(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_ranks *ranks)
{
    if (n->kind != CKPT__YAML_MAP || n->count == 0 || n->count > CKPT__MESH_AXES) {
        ckpt__layout_wrong(r, n, "the mesh is a map of 1 to %d axes and their sizes, the slowest first: {dp: 2, tp: 2}",
                           (int)CKPT__MESH_AXES);
        return;
    }
    ranks->axes = ckpt__arena_array(r->layout->arena, n->count, sizeof *ranks->axes);
    if (!ranks->axes) {
        ckpt__layout_no_memory(r);
        return;
    }
    ranks->axis_count = n->count;
    for (size_t i = 0; i < n->count; i++) {
        ckpt__layout_axis *a = &ranks->axes[i];
        a->line = n->keys[i]->line;
        a->column = n->keys[i]->column;
        a->name = ckpt__layout_keep(r, n->keys[i]->text);
        if (!ckpt__formula_is_name(n->keys[i]->text))
            ckpt__layout_wrong(r, n->keys[i], "the name of an axis is a letter or _, and then letters, digits and _");
        if (n->items[i]->kind != CKPT__YAML_SCALAR || !ckpt__str_is(n->items[i]->text, "files"))
            ckpt__layout_read_formula(r, n->items[i], &a->size);
    }
}

/* ---- cuts */

static void read_axis(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                      ckpt__layout_cut *cut)
{
    size_t a = 0;
    while (a < ranks->axis_count && !ckpt__str_equal(n->text, ranks->axes[a].name))
        a++;
    cut->axis = a;
    if (n->kind != CKPT__YAML_SCALAR || a == ranks->axis_count)
        ckpt__layout_wrong(r, n, "'%.*s' is not an axis of the mesh", (int)(n->text.size < 80 ? n->text.size : 80),
                           n->text.data ? n->text.data : "");
}

static void read_as(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_cut *cut)
{
    static const struct {
        const char *name;
        ckpt__rank_cut_as as;
    } ways[] = {{"ceil", CKPT__CUT_AS_CEIL}, {"even", CKPT__CUT_AS_EVEN}, {"balanced", CKPT__CUT_AS_BALANCED}};
    if (n->kind == CKPT__YAML_LIST) {
        cut->as = CKPT__CUT_AS_WIDTHS;
        if (n->count <= CKPT__LAY_DIMS)
            ckpt__layout_read_formulas(r, n, "widths", 1, &cut->widths, &cut->width_count);
        else
            ckpt__layout_wrong(r, n, "at most %d widths are read", (int)CKPT__LAY_DIMS);
        return;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (n->kind == CKPT__YAML_SCALAR && ckpt__str_is(n->text, ways[i].name)) {
            cut->as = ways[i].as;
            return;
        }
    ckpt__layout_wrong(r, n, "ceil, even, balanced or a list of widths is expected");
}

static void read_cut_segments(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_cut *cut)
{
    static const char *const known[] = {"sizes", "groups", NULL};
    if (!ckpt__layout_read_map(r, n, "segments", known))
        return;
    const ckpt__yaml_node *sizes = need(r, n, "segments", "sizes"), *groups = ckpt__yaml_get(n, "groups");
    if (sizes)
        ckpt__layout_read_formulas(r, sizes, "sizes", 1, &cut->segments, &cut->segment_count);
    if (groups)
        ckpt__layout_read_formula(r, groups, &cut->groups);
}

static void read_cut(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                     ckpt__layout_cut *cut)
{
    static const char *const known[] = {"axis", "dim", "as", "segments", NULL};
    cut->line = n->line;
    cut->column = n->column;
    if (!ckpt__layout_read_map(r, n, "the cut", known))
        return;
    const ckpt__yaml_node *axis = need(r, n, "a cut", "axis"), *dim = need(r, n, "a cut", "dim"),
                          *as = ckpt__yaml_get(n, "as"), *segments = ckpt__yaml_get(n, "segments");
    if (axis)
        read_axis(r, axis, ranks, cut);
    if (dim)
        ckpt__layout_read_dim(r, dim, &cut->dim);
    if (as)
        read_as(r, as, cut);
    if (segments)
        read_cut_segments(r, segments, cut);
}

static void read_cuts(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                      ckpt__layout_shard *shard)
{
    if (n->kind != CKPT__YAML_LIST || n->count > CKPT__MESH_AXES) {
        ckpt__layout_wrong(r, n, "a list of at most %d cuts is expected, the outer one first", (int)CKPT__MESH_AXES);
        return;
    }
    shard->cuts = ckpt__arena_array(r->layout->arena, n->count + 1, sizeof *shard->cuts);
    if (!shard->cuts) {
        ckpt__layout_no_memory(r);
        return;
    }
    shard->cut_count = n->count;
    for (size_t i = 0; i < n->count && r->status == CKPT_OK; i++) {
        const size_t before = r->wrong;
        read_cut(r, n->items[i], ranks, &shard->cuts[i]);
        for (size_t k = 0; k < i && r->wrong == before; k++)
            if (shard->cuts[k].axis == shard->cuts[i].axis)
                ckpt__layout_wrong(r, n->items[i], "an axis cuts a tensor once");
    }
}

static void read_shard(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                       ckpt__layout_shard *shard)
{
    static const char *const known[] = {"name", "cuts", "optional", NULL};
    shard->line = n->line;
    shard->column = n->column;
    if (!ckpt__layout_read_map(r, n, "the entry of 'shard'", known))
        return;
    const ckpt__yaml_node *name = need(r, n, "an entry of 'shard'", "name"),
                          *cuts = need(r, n, "an entry of 'shard'", "cuts");
    if (name)
        ckpt__layout_read_names(r, name, &shard->names);
    if (cuts)
        read_cuts(r, cuts, ranks, shard);
    shard->optional = ckpt__layout_read_flag(r, ckpt__yaml_get(n, "optional"));
}

static void read_shards(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_ranks *ranks)
{
    if (n->kind != CKPT__YAML_LIST || n->count == 0) {
        ckpt__layout_wrong(r, n,
                           "'shard' is a list of one entry or more, and the first that has a tensor's name cuts it");
        return;
    }
    ranks->shards = ckpt__arena_array(r->layout->arena, n->count, sizeof *ranks->shards);
    if (!ranks->shards) {
        ckpt__layout_no_memory(r);
        return;
    }
    ranks->shard_count = n->count;
    for (size_t i = 0; i < n->count && r->status == CKPT_OK; i++)
        read_shard(r, n->items[i], ranks, &ranks->shards[i]);
}

/* ---- a side */

static void read_side(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_ranks *ranks)
{
    static const char *const known[] = {"mesh", "shard", "files", "replicate", "own", "stages", "flat", NULL};
    const size_t before = r->wrong;
    ranks->said = true;
    ranks->line = n->line;
    ranks->column = n->column;
    if (!ckpt__layout_read_map(r, n, "a side of 'ranks'", known))
        return;
    const ckpt__yaml_node *mesh = need(r, n, "a side of 'ranks'", "mesh"), *shard = ckpt__yaml_get(n, "shard");
    if (mesh)
        read_mesh(r, mesh, ranks);
    if (shard && (ranks->axis_count || r->wrong == before))
        read_shards(r, shard, ranks);
    if (ranks->axis_count)
        ckpt__layout_read_files(r, n, ranks);
}

void ckpt__layout_read_ranks(ckpt__layout_reading *r, const ckpt__yaml_node *n)
{
    const char *const known[] = {r->layout->sides[0].data, r->layout->sides[1].data, NULL};
    if (!n || !ckpt__layout_read_map(r, n, "'ranks'", known))
        return;
    for (unsigned side = 0; side < 2; side++) {
        const ckpt__yaml_node *at = ckpt__layout_on_side(r->layout, n, side);
        if (at && r->status == CKPT_OK)
            read_side(r, at, &r->layout->ranks[side]);
    }
}
