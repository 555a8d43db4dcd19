/* map/map.c - a map, and its rules applied to one tensor. */
#include "map/rules.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    ckpt_optimizer_kind kind;
    const char *name;
} kinds[] = {
    {CKPT_OPTIMIZER_DEFAULT, "default"}, {CKPT_OPTIMIZER_FUSED, "fused"}, {CKPT_OPTIMIZER_CAPTURABLE, "capturable"},
    {CKPT_OPTIMIZER_FOREACH, "foreach"}, {CKPT_OPTIMIZER_PLAIN, "plain"},
};

const char *ckpt_optimizer_kind_name(ckpt_optimizer_kind kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "default";
}

ckpt_optimizer_kind ckpt_optimizer_kind_from_name(const char *name)
{
    for (size_t i = 0; name && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    return CKPT_OPTIMIZER_DEFAULT;
}

ckpt_map *ckpt__map_new(void)
{
    ckpt_map *map = calloc(1, sizeof *map);
    if (map && !(map->arena = ckpt__arena_new(0))) {
        free(map);
        return NULL;
    }
    return map;
}

void ckpt_map_free(ckpt_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->rename_count; i++)
        ckpt__rename_free(map->renames[i]);
    free(map->renames);
    free(map->rules);
    ckpt__arena_free(map->arena);
    free(map);
}

ckpt__rule *ckpt__map_add_rule(ckpt_map *map)
{
    if (!ckpt__grow(&map->rules, &map->rule_capacity, map->rule_count + 1, sizeof *map->rules))
        return NULL;
    ckpt__rule *rule = &map->rules[map->rule_count++];
    memset(rule, 0, sizeof *rule);
    return rule;
}

ckpt_status ckpt_map_callback(ckpt_map_fn fn, void *ctx, ckpt_map **out, ckpt_error *err)
{
    *out = NULL;
    if (!fn)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "map_location", "the callback is NULL");
    ckpt_map *map = ckpt__map_new();
    if (!map)
        return ckpt__fail_memory(err, "a map", sizeof *map);
    map->fn = fn;
    map->fn_ctx = ctx;
    *out = map;
    return CKPT_OK;
}

size_t ckpt__map_rule_count(const ckpt_map *map)
{
    return map ? map->rule_count : 0;
}

const char *ckpt__map_rule_text(const ckpt_map *map, size_t rule)
{
    return map && rule < map->rule_count && map->rules[rule].text ? map->rules[rule].text : "";
}

ckpt_optimizer_kind ckpt__map_optimizer(const ckpt_map *map)
{
    return map ? map->optimizer : CKPT_OPTIMIZER_DEFAULT;
}

bool ckpt__map_has_names(const ckpt_map *map)
{
    bool names = map && map->fn;
    for (size_t i = 0; map && i < map->rule_count && !names; i++)
        names = map->rules[i].name.data != NULL;
    return names;
}

const ckpt__map_source *ckpt__map_source_of(const ckpt_map *map)
{
    static const ckpt__map_source none;
    return map ? &map->source : &none;
}

/* ---- one tensor */

const char *ckpt__target_name(const ckpt__target *target, char *buf)
{
    if (target->device.type != CKPT_DEVICE_OTHER || !target->word.data)
        return ckpt_device_name(target->device, buf);
    if (target->device.index < 0)
        snprintf(buf, CKPT_DEVICE_NAME_MAX, "%s", target->word.data);
    else
        snprintf(buf, CKPT_DEVICE_NAME_MAX, "%s:%d", target->word.data, (int)target->device.index);
    return buf;
}

ckpt_status ckpt__goal_eval(const ckpt__goal *goal, ckpt_str tag, const ckpt_ranks *ranks, ckpt__target *out,
                            ckpt_error *err)
{
    out->device = goal->device;
    out->word = goal->word;
    if (!goal->computed)
        return CKPT_OK;
    ckpt_device saved = tag.data ? ckpt__tag_parse(tag) : (ckpt_device){CKPT_DEVICE_NONE, -1};
    ckpt__expr_vars vars = {0, 0, 1, saved.index};
    if (ranks && (ranks->rank || ranks->local_rank || ranks->world)) {
        vars.rank = ranks->rank;
        vars.local_rank = ranks->local_rank;
        vars.world = ranks->world;
    }
    const char *what = "";
    int64_t index = 0;
    if (!ckpt__expr_eval(&goal->expr, &vars, &index, &what))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "%s (rank %lld, local_rank %lld, world %lld, saved tag '%.*s')",
                          what, (long long)vars.rank, (long long)vars.local_rank, (long long)vars.world,
                          (int)(tag.size < 60 ? tag.size : 60), tag.data ? tag.data : "none");
    if (index > 65535)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "the device index %lld is too large", (long long)index);
    out->device.index = (int32_t)index;
    return CKPT_OK;
}

static bool matches(const ckpt__rule *rule, const ckpt__subject *subject)
{
    if (rule->name.data &&
        !(subject->name.data && ckpt__glob(rule->name.data, rule->name.size, subject->name.data, subject->name.size)))
        return false;
    if (rule->role != CKPT_ROLE_NONE && rule->role != subject->role)
        return false;
    return !rule->tag.data ||
           (subject->tag.data && ckpt__glob(rule->tag.data, rule->tag.size, subject->tag.data, subject->tag.size));
}

static ckpt__decided decided_by(const ckpt__rule *rule)
{
    return rule->name.data ? CKPT__BY_NAME : rule->role != CKPT_ROLE_NONE ? CKPT__BY_ROLE : CKPT__BY_TAG;
}

static ckpt_status goal_failed(const char *rule, const ckpt__subject *subject, ckpt_error *err)
{
    char shown[120];
    ckpt__escape(shown, sizeof shown, subject->name.data ? subject->name.data : "", subject->name.size);
    ckpt__error_prefix(err, "for tensor '%s'", shown);
    ckpt__error_object(err, rule);
    return CKPT_E_ARGUMENT;
}

static ckpt_status apply_callback(const ckpt_map *map, const ckpt__subject *subject, ckpt__target *out, ckpt_error *err)
{
    ckpt_device d = map->fn(map->fn_ctx, subject->name.data ? subject->name.data : "", subject->role,
                            subject->tag.data ? subject->tag.data : "");
    if (d.type == CKPT_DEVICE_NONE)
        return CKPT_OK;
    if (d.type != CKPT_DEVICE_CPU && (d.type != CKPT_DEVICE_CUDA || d.index < 0)) {
        ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                   "the callback gave a device that is not a target; give cpu, cuda:N or none");
        return goal_failed("map_location", subject, err);
    }
    out->device = d;
    out->by = CKPT__BY_CALLBACK;
    return CKPT_OK;
}

ckpt_status ckpt__map_apply(const ckpt_map *map, const ckpt__subject *subject, const ckpt_ranks *ranks, bool *used,
                            ckpt__target *out, ckpt_error *err)
{
    *out = (ckpt__target){.device = {CKPT_DEVICE_NONE, -1}, .rule = SIZE_MAX};
    if (!map)
        return CKPT_OK;
    if (map->fn)
        return apply_callback(map, subject, out, err);
    bool placed = false, cast = false;
    for (size_t i = 0; i < map->rule_count && !(placed && cast); i++) {
        const ckpt__rule *rule = &map->rules[i];
        bool speaks = (rule->has_goal && !placed) || (rule->cast != CKPT_DTYPE_NONE && !cast);
        if (!speaks || !matches(rule, subject))
            continue;
        if (used)
            used[i] = true;
        if (rule->cast != CKPT_DTYPE_NONE && !cast) {
            out->cast = rule->cast;
            cast = true;
        }
        if (rule->has_goal && !placed) {
            if (ckpt__goal_eval(&rule->goal, subject->tag, ranks, out, err) != CKPT_OK)
                return goal_failed(rule->text, subject, err);
            out->by = decided_by(rule);
            out->rule = i;
            placed = true;
        }
    }
    if (!placed && map->has_default) {
        if (ckpt__goal_eval(&map->fallback, subject->tag, ranks, out, err) != CKPT_OK)
            return goal_failed(map->fallback.text.data, subject, err);
        out->by = map->is_string ? CKPT__BY_STRING : CKPT__BY_DEFAULT;
    }
    return CKPT_OK;
}

ckpt_status ckpt__map_one(const ckpt_map *map, const ckpt_ranks *ranks, ckpt__target *out, bool *one, ckpt_error *err)
{
    *out = (ckpt__target){.device = {CKPT_DEVICE_NONE, -1}, .rule = SIZE_MAX, .by = CKPT__BY_STRING};
    *one = map && map->is_string && map->has_default && map->rule_count == 0 && !map->fn;
    for (size_t i = 0; *one && map->fallback.computed && i < map->fallback.expr.count; i++)
        *one = map->fallback.expr.ops[i].code != 'i';
    if (!*one)
        return CKPT_OK;
    ckpt_status status = ckpt__goal_eval(&map->fallback, (ckpt_str){NULL, 0}, ranks, out, err);
    if (status < 0)
        ckpt__error_object(err, map->fallback.text.data);
    return status;
}

/* ---- names */

ckpt_status ckpt__map_rename(const ckpt_map *map, const char *name, size_t n, ckpt__buf *out, ckpt_error *err)
{
    for (bool again = map != NULL; again;) {
        again = false;
        for (size_t i = 0; i < map->source.strip_count; i++) {
            size_t size = strlen(map->source.strip_prefix[i]);
            if (size > 0 && n > size && memcmp(name, map->source.strip_prefix[i], size) == 0) {
                name += size;
                n -= size;
                again = true;
            }
        }
    }
    ckpt__buf current = {0};
    ckpt__buf_add(&current, name, n);
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; map && i < map->rename_count && s == CKPT_OK && !current.failed; i++) {
        ckpt__buf next = {0};
        bool matched = false;
        s = ckpt__rename_apply(map->renames[i], current.data ? current.data : "", current.size, &matched, &next, err);
        if (s == CKPT_OK && matched) {
            ckpt__buf swap = current;
            current = next;
            next = swap;
        }
        ckpt__buf_free(&next);
    }
    if (s == CKPT_OK) {
        ckpt__buf_add(out, current.data ? current.data : "", current.size);
        if (current.failed || out->failed)
            s = ckpt__fail_memory(err, "a parameter's name", n);
    }
    ckpt__buf_free(&current);
    return s;
}
