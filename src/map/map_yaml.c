/* map/map_yaml.c - the schema: every key known, every value of its kind, every complaint with line and column. */
#include "map/map_yaml.h"

#include <stdio.h>
#include <stdlib.h>

struct ctx {
    ckpt_map *map;    /* that is filled */
    const char *name; /* of the file, for messages */
    ckpt_error *err;
};

static ckpt_status no_memory(struct ctx *c)
{
    return ckpt__fail_memory(c->err, "a map file", sizeof *c->map);
}

/* Puts "line L, column C" before the message of a failure below. */
static ckpt_status placed(struct ctx *c, const ckpt__yaml_node *at, ckpt_status s)
{
    if (s == CKPT_OK)
        return s;
    ckpt__error_prefix(c->err, "line %zu, column %zu", at->line, at->column);
    ckpt__error_object(c->err, c->name);
    return s;
}

static ckpt_status want_kind(struct ctx *c, const ckpt__yaml_node *node, ckpt__yaml_kind kind, const char *key)
{
    if (node->kind == kind)
        return CKPT_OK;
    return ckpt__yaml_fail(c->err, c->name, node, "'%s' takes %s, and this is %s%s", key, ckpt__yaml_kind_name(kind),
                           ckpt__yaml_kind_name(node->kind),
                           node->kind == CKPT__YAML_MAP && kind == CKPT__YAML_SCALAR ? "; quote a value that holds '{'"
                                                                                     : "");
}

static ckpt_status want_text(struct ctx *c, const ckpt__yaml_node *node, const char *key)
{
    ckpt_status s = want_kind(c, node, CKPT__YAML_SCALAR, key);
    if (s == CKPT_OK && !node->text.size)
        s = ckpt__yaml_fail(c->err, c->name, node, "'%s' has no value; leave the key out or give it one", key);
    return s;
}

/* Copies the text at an optional key of a map into the arena. */
static ckpt_status take_text(struct ctx *c, const ckpt__yaml_node *map, const char *key, const char **out)
{
    const ckpt__yaml_node *node = ckpt__yaml_get(map, key);
    if (!node)
        return CKPT_OK;
    ckpt_status s = want_text(c, node, key);
    if (s != CKPT_OK)
        return s;
    *out = ckpt__arena_copy(c->map->arena, node->text.data, node->text.size);
    return *out ? CKPT_OK : no_memory(c);
}

/* ---- source */

static ckpt_status take_prefixes(struct ctx *c, const ckpt__yaml_node *list)
{
    if (!list)
        return CKPT_OK;
    ckpt_status s = want_kind(c, list, CKPT__YAML_LIST, "strip_prefix");
    if (s != CKPT_OK)
        return s;
    const char **prefixes = ckpt__arena_array(c->map->arena, list->count + 1, sizeof *prefixes);
    if (!prefixes)
        return no_memory(c);
    for (size_t i = 0; i < list->count; i++) {
        if ((s = want_text(c, list->items[i], "strip_prefix")) != CKPT_OK)
            return s;
        prefixes[i] = ckpt__arena_copy(c->map->arena, list->items[i]->text.data, list->items[i]->text.size);
        if (!prefixes[i])
            return no_memory(c);
    }
    c->map->source.strip_prefix = prefixes;
    c->map->source.strip_count = list->count;
    return CKPT_OK;
}

static ckpt_status take_rename(struct ctx *c, const ckpt__yaml_node *node)
{
    static const char *const known[] = {"from", "to", NULL};
    ckpt_status s = want_kind(c, node, CKPT__YAML_MAP, "rename");
    if (s == CKPT_OK)
        s = ckpt__yaml_check_keys(node, known, c->name, c->err);
    if (s != CKPT_OK)
        return s;
    const ckpt__yaml_node *from = ckpt__yaml_get(node, "from"), *to = ckpt__yaml_get(node, "to");
    if (!from || !to)
        return ckpt__yaml_fail(c->err, c->name, node, "a rename has two keys: {from: 'REGEX', to: 'NAME'}");
    if ((s = want_text(c, from, "from")) != CKPT_OK || (s = want_text(c, to, "to")) != CKPT_OK)
        return s;
    if (!ckpt__grow(&c->map->renames, &c->map->rename_capacity, c->map->rename_count + 1, sizeof *c->map->renames))
        return no_memory(c);
    ckpt__rename **slot = &c->map->renames[c->map->rename_count];
    s = ckpt__rename_new(from->text.data, from->text.size, to->text.data, to->text.size, slot, c->err);
    if (s != CKPT_OK)
        return placed(c, node, s);
    c->map->rename_count++;
    return CKPT_OK;
}

static ckpt_status take_source(struct ctx *c, const ckpt__yaml_node *node)
{
    static const char *const known[] = {"model", "optimizer", "scaler", "step", "strip_prefix", "rename", NULL};
    if (!node)
        return CKPT_OK;
    ckpt__map_source *source = &c->map->source;
    ckpt_status s = want_kind(c, node, CKPT__YAML_MAP, "source");
    if (s == CKPT_OK)
        s = ckpt__yaml_check_keys(node, known, c->name, c->err);
    if (s == CKPT_OK)
        s = take_text(c, node, "model", &source->model);
    if (s == CKPT_OK)
        s = take_text(c, node, "optimizer", &source->optimizer);
    if (s == CKPT_OK)
        s = take_text(c, node, "scaler", &source->scaler);
    if (s == CKPT_OK)
        s = take_text(c, node, "step", &source->step);
    if (s == CKPT_OK)
        s = take_prefixes(c, ckpt__yaml_get(node, "strip_prefix"));
    const ckpt__yaml_node *rename = ckpt__yaml_get(node, "rename");
    if (s == CKPT_OK && rename)
        s = want_kind(c, rename, CKPT__YAML_LIST, "rename");
    for (size_t i = 0; rename && i < rename->count && s == CKPT_OK; i++)
        s = take_rename(c, rename->items[i]);
    return s;
}

/* ---- rules */

static void put_quoted(ckpt__buf *b, const char *key, ckpt_str text)
{
    char shown[160];
    if (!text.data)
        return;
    ckpt__escape(shown, sizeof shown, text.data, text.size);
    ckpt__buf_printf(b, "%s%s: '%s'", b->size > 1 ? ", " : "", key, shown);
}

/* The rule in one line, with where it stands. */
static const char *rule_text(struct ctx *c, const ckpt__rule *rule)
{
    ckpt__buf b = {0};
    ckpt__buf_char(&b, '{');
    put_quoted(&b, "name", rule->name);
    if (rule->role != CKPT_ROLE_NONE)
        ckpt__buf_printf(&b, "%srole: %s", b.size > 1 ? ", " : "", ckpt_role_name(rule->role));
    put_quoted(&b, "tag", rule->tag);
    if (rule->has_goal)
        put_quoted(&b, "to", rule->goal.text);
    if (rule->cast != CKPT_DTYPE_NONE)
        ckpt__buf_printf(&b, "%scast: %s", b.size > 1 ? ", " : "", ckpt_dtype_name(rule->cast));
    ckpt__buf_printf(&b, "} (line %zu)", rule->line);
    const char *text = b.failed ? NULL : ckpt__arena_copy(c->map->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return text;
}

static ckpt_status take_role(struct ctx *c, const ckpt__yaml_node *node, ckpt__rule *rule)
{
    ckpt_status s = want_text(c, node, "role");
    if (s != CKPT_OK)
        return s;
    rule->role = ckpt_role_from_name(node->text.data);
    if (rule->role != CKPT_ROLE_NONE)
        return CKPT_OK;
    char shown[60];
    ckpt__escape(shown, sizeof shown, node->text.data, node->text.size);
    ckpt__buf list = {0};
    for (int r = CKPT_ROLE_NONE + 1; r < CKPT__ROLE_COUNT; r++)
        ckpt__buf_printf(&list, "%s%s", r > 1 ? ", " : "", ckpt_role_name((ckpt_role)r));
    s = ckpt__yaml_fail(c->err, c->name, node, "there is no role '%s'; the roles are %s", shown,
                        list.data ? list.data : "in ckpt-map(5)");
    ckpt__buf_free(&list);
    return s;
}

/* The conditions: name, role, tag. */
static ckpt_status take_conditions(struct ctx *c, const ckpt__yaml_node *node, ckpt__rule *rule)
{
    const ckpt__yaml_node *name = ckpt__yaml_get(node, "name"), *role = ckpt__yaml_get(node, "role"),
                          *tag = ckpt__yaml_get(node, "tag");
    ckpt_status s = CKPT_OK;
    if (!name && !role && !tag)
        return ckpt__yaml_fail(c->err, c->name, node,
                               "a rule says which tensors: name, role or tag; for all of them there is 'default'");
    if (name && (s = want_text(c, name, "name")) != CKPT_OK)
        return s;
    if (tag && (s = want_text(c, tag, "tag")) != CKPT_OK)
        return s;
    if (name && !(rule->name = ckpt__arena_str(c->map->arena, name->text.data, name->text.size)).data)
        return no_memory(c);
    if (role && (s = take_role(c, role, rule)) != CKPT_OK)
        return s;
    if (!tag)
        return CKPT_OK;
    if (!(rule->tag = ckpt__arena_str(c->map->arena, tag->text.data, tag->text.size)).data)
        return no_memory(c);
    return placed(c, tag, ckpt__tag_check(tag->text.data, tag->text.size, c->err));
}

static ckpt_status take_goal(struct ctx *c, const ckpt__yaml_node *node, const char *key, ckpt__goal *goal)
{
    ckpt_status s = want_text(c, node, key);
    if (s != CKPT_OK)
        return s;
    s = ckpt__goal_parse(c->map, node->text.data, node->text.size, goal, NULL, c->err);
    char shown[80];
    if (s != CKPT_OK)
        ckpt__error_prefix(c->err, "'%s'", ckpt__escape(shown, sizeof shown, node->text.data, node->text.size));
    return placed(c, node, s);
}

/* The effects: to, cast. */
static ckpt_status take_effects(struct ctx *c, const ckpt__yaml_node *node, ckpt__rule *rule)
{
    const ckpt__yaml_node *to = ckpt__yaml_get(node, "to"), *cast = ckpt__yaml_get(node, "cast");
    ckpt_status s = CKPT_OK;
    if (!to && !cast)
        return ckpt__yaml_fail(c->err, c->name, node, "a rule says what to do: to, cast or both");
    if (to && (s = take_goal(c, to, "to", &rule->goal)) != CKPT_OK)
        return s;
    rule->has_goal = to != NULL;
    if (!cast)
        return CKPT_OK;
    if ((s = want_text(c, cast, "cast")) != CKPT_OK)
        return s;
    rule->cast = ckpt_dtype_from_name(cast->text.data);
    if (rule->cast != CKPT_DTYPE_NONE)
        return CKPT_OK;
    char shown[60];
    const char *meant = ckpt__dtype_meant(cast->text.data);
    ckpt__escape(shown, sizeof shown, cast->text.data, cast->text.size);
    if (meant)
        return ckpt__yaml_fail(c->err, c->name, cast, "unknown dtype '%s' (did you mean %s?)", shown, meant);
    return ckpt__yaml_fail(c->err, c->name, cast,
                           "unknown dtype '%s'; torch's names are float32, bfloat16, float16, int64, ...", shown);
}

static ckpt_status take_rule(struct ctx *c, const ckpt__yaml_node *node)
{
    static const char *const known[] = {"name", "role", "tag", "to", "cast", NULL};
    ckpt_status s = want_kind(c, node, CKPT__YAML_MAP, "rules");
    if (s == CKPT_OK)
        s = ckpt__yaml_check_keys(node, known, c->name, c->err);
    if (s != CKPT_OK)
        return s;
    ckpt__rule *rule = ckpt__map_add_rule(c->map);
    if (!rule)
        return no_memory(c);
    rule->line = node->line;
    if ((s = take_conditions(c, node, rule)) != CKPT_OK || (s = take_effects(c, node, rule)) != CKPT_OK)
        return s;
    rule->text = rule_text(c, rule);
    if (!rule->text)
        return no_memory(c);
    return placed(c, node, ckpt__map_check_reached(c->map, c->err));
}

/* ---- the document */

static ckpt_status check_version(struct ctx *c, const ckpt__yaml_node *root)
{
    if (root->kind != CKPT__YAML_MAP)
        return ckpt__yaml_fail(c->err, c->name, root, "a map file begins with 'map: 1', and this is %s",
                               ckpt__yaml_kind_name(root->kind));
    const ckpt__yaml_node *version = ckpt__yaml_get(root, "map");
    if (!version)
        return ckpt__yaml_fail(c->err, c->name, root, "the key 'map' is missing; a map file begins with 'map: 1'");
    ckpt_status s = want_text(c, version, "map");
    if (s != CKPT_OK || ckpt__str_is(version->text, "1"))
        return s;
    int64_t number = 0;
    char shown[40];
    if (ckpt__parse_i64(version->text.data, version->text.size, &number) && number > 1) {
        s = ckpt__yaml_fail(c->err, c->name, version, "map language %lld; this version reads 1", (long long)number);
        if (c->err)
            c->err->status = CKPT_E_TOO_NEW;
        return s == CKPT_E_ARGUMENT ? CKPT_E_TOO_NEW : s;
    }
    return ckpt__yaml_fail(c->err, c->name, version, "'map' is the language's version, 1, and this is '%s'",
                           ckpt__escape(shown, sizeof shown, version->text.data, version->text.size));
}

static ckpt_status take_optimizer(struct ctx *c, const ckpt__yaml_node *node)
{
    if (!node)
        return CKPT_OK;
    ckpt_status s = want_text(c, node, "optimizer");
    if (s != CKPT_OK)
        return s;
    c->map->optimizer = ckpt_optimizer_kind_from_name(node->text.data);
    if (c->map->optimizer != CKPT_OPTIMIZER_DEFAULT)
        return CKPT_OK;
    char shown[60];
    return ckpt__yaml_fail(c->err, c->name, node,
                           "there is no optimizer kind '%s'; it is fused, capturable, foreach or plain",
                           ckpt__escape(shown, sizeof shown, node->text.data, node->text.size));
}

ckpt_status ckpt__map_from_yaml(ckpt_map *map, const ckpt__yaml_node *root, const char *name, ckpt_error *err)
{
    static const char *const known[] = {"map", "source", "optimizer", "rules", "default", NULL};
    struct ctx c = {map, name, err};
    ckpt_status s = check_version(&c, root);
    if (s == CKPT_OK)
        s = ckpt__yaml_check_keys(root, known, name, err);
    if (s == CKPT_OK)
        s = take_source(&c, ckpt__yaml_get(root, "source"));
    if (s == CKPT_OK)
        s = take_optimizer(&c, ckpt__yaml_get(root, "optimizer"));
    const ckpt__yaml_node *rules = ckpt__yaml_get(root, "rules"), *fallback = ckpt__yaml_get(root, "default");
    if (s == CKPT_OK && rules)
        s = want_kind(&c, rules, CKPT__YAML_LIST, "rules");
    for (size_t i = 0; rules && i < rules->count && s == CKPT_OK; i++)
        s = take_rule(&c, rules->items[i]);
    if (s == CKPT_OK && fallback) {
        s = take_goal(&c, fallback, "default", &map->fallback);
        map->has_default = true;
    }
    return s;
}

ckpt_status ckpt_map_parse_yaml(const char *text, size_t size, const char *name, ckpt_map **out, ckpt_error *err)
{
    *out = NULL;
    name = name ? name : "the map";
    ckpt__yaml *yaml = NULL;
    ckpt_status s = ckpt__yaml_parse(text, size, name, &yaml, err);
    if (s != CKPT_OK)
        return s;
    ckpt_map *map = ckpt__map_new();
    s = map ? ckpt__map_from_yaml(map, yaml->root, name, err) : ckpt__fail_memory(err, "a map", sizeof *map);
    ckpt__yaml_free(yaml);
    if (s != CKPT_OK) {
        ckpt_map_free(map);
        return s;
    }
    *out = map;
    return CKPT_OK;
}
