/* map/map_yaml.h - the YAML form of a map: ckpt-map(5) is its manual. */
#ifndef CKPT_MAP_YAML_H
#define CKPT_MAP_YAML_H
#include "codec/yaml.h"
#include "map/rules.h"

/* Fills an empty map from a parsed document. */
ckpt_status ckpt__map_from_yaml(ckpt_map *map, const ckpt__yaml_node *root, const char *name, ckpt_error *err);
#endif
