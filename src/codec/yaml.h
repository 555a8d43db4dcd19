/* codec/yaml.h - a strict subset of YAML, read into a small tree. For files that people write by hand: the subset has
 * no anchors, aliases or tags, no second document and no duplicate keys, and every node knows where it stands. */
#ifndef CKPT_YAML_H
#define CKPT_YAML_H
#include "base/base.h"

enum {
    CKPT__YAML_MAX_SIZE = 1 << 20, /* bytes of a document */
    CKPT__YAML_MAX_DEPTH = 32      /* levels of lists and maps */
};

typedef enum ckpt__yaml_kind { CKPT__YAML_SCALAR = 0, CKPT__YAML_LIST, CKPT__YAML_MAP } ckpt__yaml_kind;

/* One node of a document, in the arena of ckpt__yaml. `rules: [a, b]` in line 3 is a MAP with count 1, keys[0] the scalar
 * "rules" at line 3, column 1, and items[0] a LIST with count 2 at line 3, column 8. */
typedef struct ckpt__yaml_node ckpt__yaml_node;
struct ckpt__yaml_node {
    ckpt__yaml_kind kind;
    size_t line, column; /* of its first character, from 1 */
    bool quoted;         /* SCALAR: in quotes or a block; false: plain, so `1` may be meant as a number */
    ckpt_str text;       /* SCALAR: UTF-8 without NULs; "" for a value left out */
    const ckpt__yaml_node *const *keys;  /* MAP: `count` scalars, all different; else NULL */
    const ckpt__yaml_node *const *items; /* LIST, MAP: `count` values; SCALAR: NULL */
    size_t count;
};

typedef struct ckpt__yaml {
    ckpt__arena *arena;          /* owned: all nodes and texts */
    const ckpt__yaml_node *root; /* never NULL */
} ckpt__yaml;

/* Reads one document; `name` (a file's name) is the object of errors. CKPT_E_ARGUMENT with line and column,
 * CKPT_E_LIMIT, CKPT_E_NO_MEMORY. A plain scalar that holds '{' or starts with '*' is refused: YAML gives both a
 * meaning of its own, so the message says to quote it. */
ckpt_status ckpt__yaml_parse(const char *text, size_t size, const char *name, ckpt__yaml **out, ckpt_error *err);
void ckpt__yaml_free(ckpt__yaml *yaml);

/* The value of a key of a map; NULL where it has none or is no map. */
const ckpt__yaml_node *ckpt__yaml_get(const ckpt__yaml_node *map, const char *key);

/* "text", "a list", "a map": for messages. */
const char *ckpt__yaml_kind_name(ckpt__yaml_kind kind);

/* Fills *err with "line L, column C: ..." about a node and returns CKPT_E_ARGUMENT: for the schema of the caller. */
ckpt_status ckpt__yaml_fail(ckpt_error *err, const char *name, const ckpt__yaml_node *at, const char *format, ...)
    CKPT__PRINTF(4, 5);

/* Every key of the map must be one of the list `known` (NULL-terminated). CKPT_E_ARGUMENT names key, place, and the
 * keys that there are. */
ckpt_status ckpt__yaml_check_keys(const ckpt__yaml_node *map, const char *const *known, const char *name,
                                  ckpt_error *err);
#endif
