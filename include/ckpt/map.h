/* ckpt/map.h - map_location: the rules that give every tensor its target device. */
#ifndef CKPT_MAP_H
#define CKPT_MAP_H

#include <ckpt/device.h>
#include <ckpt/error.h>
#include <ckpt/tensor.h>

CKPT_BEGIN_DECLS

/* Who asks: the values of `rank`, `local_rank`, `world` in expressions. The struct never grows. */
typedef struct ckpt_ranks {
    int64_t rank, local_rank, world;
} ckpt_ranks;
#define CKPT_RANKS_INIT                                                                                                \
    {                                                                                                                  \
        0, 0, 1                                                                                                        \
    }

/* The optimizer that will run: decides where `step` and the like must live. */
typedef enum ckpt_optimizer_kind {
    CKPT_OPTIMIZER_DEFAULT = 0, /* the map's, else the saved group's flags, else plain */
    CKPT_OPTIMIZER_FUSED,
    CKPT_OPTIMIZER_CAPTURABLE,
    CKPT_OPTIMIZER_FOREACH,
    CKPT_OPTIMIZER_PLAIN
} ckpt_optimizer_kind;
const char *ckpt_optimizer_kind_name(ckpt_optimizer_kind kind);
ckpt_optimizer_kind ckpt_optimizer_kind_from_name(const char *name); /* DEFAULT where unknown */

typedef struct ckpt_map ckpt_map;

/* Reads map_location as a user writes it:
 *   "cuda:0"                     everything goes there (torch's str)
 *   "cuda:1=cuda:0,cpu=cpu"      by saved tag; unmatched tags keep theirs (torch's dict); never chained
 *   "cuda:*=cuda:{rank}"         wildcard; expressions over rank, local_rank, world, index: + - * / % ( )
 *   "cuda:*=xpu:{index}"         tags of torch's further devices: for ckpt_migrate and doctor; a restore refuses them
 *   "FILE.yaml"                  a file whose name ends in .yaml or .yml: ckpt-map(5)
 * NULL or "": every tensor keeps its tag. CKPT_E_ARGUMENT with the place (column, or line and column); CKPT_E_SYSTEM: the file
 * cannot be read. A restore into buffers of the caller's needs no map: they stay where they are. */
ckpt_status ckpt_map_parse(const char *text, ckpt_map **out, ckpt_error *err);

/* The YAML text itself; `name` is for messages. */
ckpt_status ckpt_map_parse_yaml(const char *text, size_t size, const char *name, ckpt_map **out, ckpt_error *err);

/* torch's callable: gives the target of a tensor, or CKPT_DEVICE_NONE to keep its tag. */
typedef ckpt_device (*ckpt_map_fn)(void *ctx, const char *name, ckpt_role role, const char *tag);
ckpt_status ckpt_map_callback(ckpt_map_fn fn, void *ctx, ckpt_map **out, ckpt_error *err);

void ckpt_map_free(ckpt_map *map);

CKPT_END_DECLS
#endif
