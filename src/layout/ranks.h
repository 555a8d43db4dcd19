/* layout/ranks.h - what a layout says of the ranks of its programs: the mesh that they stand in, and how they cut each tensor. A part
 * of the YAML (ckpt-layout(5)):
 *
 *     ranks:
 *       torchtitan:
 *         mesh: {dp: 2, tp: 2}
 *         shard:
 *         - {name: layers.<i>.attention.wo.weight, cuts: [{axis: tp, dim: 1}, {axis: dp, dim: 0}]}
 *         - {name: "<all:rest>", cuts: [{axis: dp, dim: 0}]}
 *
 * The first entry of `shard` that has a tensor's name cuts it. Names are those of parameters; what an optimizer has of a parameter,
 * of its shape, is cut as the parameter. mesh.h says what comes of the cuts. */
#ifndef CKPT_LAYOUT_RANKS_H
#define CKPT_LAYOUT_RANKS_H
#include "layout/formula.h"
#include "layout/layout.h"
#include "layout/mesh.h"

/* The value of a variable: a ckpt__formula_value, of a match. */
bool ckpt__layout_value(const void *match, ckpt_str name, int64_t *out, char *why, size_t size);
bool ckpt__layout_has_mesh(const ckpt__layout *layout, unsigned side);
/* The mesh of a side that has one. The sizes of axes that `said` names (NULL: none) are those; the others are the layout's
 * expressions, of which value(ctx) says what their names are: ckpt__layout_value, of a match. CKPT_E_ARGUMENT: `said` names an axis that
 * the side has not, or axes in another order, a size cannot be computed, or is none; with line and column where it is the layout. The names lie
 * in the layout. */
ckpt_status ckpt__layout_mesh(const ckpt__layout *layout, unsigned side, const ckpt__rank_mesh *said,
                              ckpt__formula_value *value, const void *ctx, ckpt__rank_mesh *out, ckpt_error *err);
/* The entry of `shard` that has the name; SIZE_MAX: none. */
size_t ckpt__layout_shard_of(const ckpt__layout *layout, unsigned side, ckpt_str name);
size_t ckpt__layout_shard_count(const ckpt__layout *layout, unsigned side);
/* Need a tensor be of this entry? And where the entry stands, for messages. */
bool ckpt__layout_shard_optional(const ckpt__layout *layout, unsigned side, size_t shard, size_t *line, size_t *column);
/* Its cuts, of ckpt__layout_mesh's mesh, in the arena. CKPT_E_ARGUMENT with line and column. */
ckpt_status ckpt__layout_shard_cuts(const ckpt__layout *layout, unsigned side, size_t shard,
                                    const ckpt__rank_mesh *mesh, ckpt__formula_value *value, const void *ctx,
                                    ckpt__arena *arena, const ckpt__rank_cut **out, size_t *count, ckpt_error *err);
#endif
