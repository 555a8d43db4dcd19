/* map/map_parse.c - map_location as one line of text: a device, or rules by saved tag. */
#include "map/map_yaml.h"
#include "map/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TEXT = 1 << 16, MAX_RULES = 4096, WORD_MAX = 20 };

/* ---- targets */

/* "WORD" or "WORD:N", taken as it stands: a device that a program of the user's own registered. */
static ckpt_status literal_goal(const char *text, size_t size, bool computed, ckpt__goal *out, ckpt_error *err)
{
    const char *colon = memchr(text, ':', size);
    size_t word = colon ? (size_t)(colon - text) : size;
    int64_t index = -1;
    for (size_t i = 0; i < word; i++)
        if (text[i] != '_' && (text[i] < 'a' || text[i] > 'z') && (i == 0 || text[i] < '0' || text[i] > '9'))
            word = 0;
    if (word == 0 || word > WORD_MAX)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "behind '=' stands a device's name in lower case, and its index, as in =musa:0");
    const char *digits = colon ? colon + 1 : "";
    size_t n = colon ? size - word - 1 : 0;
    bool number = ckpt__parse_i64(digits, n, &index) && index >= 0 && index <= INT32_MAX && (n == 1 || *digits != '0');
    if (colon && !computed && !number)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "an index is a decimal number without leading zeros, as in =musa:0");
    out->word = (ckpt_str){text, word};
    out->device = ckpt__tag_parse(out->word);
    if (out->device.type == CKPT_DEVICE_CPU || out->device.type == CKPT_DEVICE_META ||
        out->device.type == CKPT_DEVICE_CUDA)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "behind '=' stands a name that this program does not know; write it without '='");
    out->device.index = number && colon ? (int32_t)index : -1;
    return CKPT_OK;
}

/* What stands before the '{' of an index that is computed. */
static ckpt_status computed_goal(ckpt_map *map, const char *text, size_t size, bool literal, ckpt__goal *out,
                                 ckpt_error *err)
{
    ckpt_str word = {text, size - 1};
    if (!literal && (out->device.type = ckpt__indexed_device(word)) != CKPT_DEVICE_NONE)
        return CKPT_OK;
    if (!literal)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "an expression is the whole index of a device that has one; write cuda:{rank %% 8}");
    ckpt_status status = literal_goal(text, size, true, out, err);
    if (status == CKPT_OK) /* its name alone, with an end */
        out->word = ckpt__arena_str(map->arena, out->word.data, out->word.size);
    return status == CKPT_OK && !out->word.data ? ckpt__fail_memory(err, "a map rule", size) : status;
}

ckpt_status ckpt__goal_parse(ckpt_map *map, const char *text, size_t size, ckpt__goal *out, size_t *at, ckpt_error *err)
{
    size_t ignored;
    at = at ? at : &ignored;
    *at = 0;
    memset(out, 0, sizeof *out);
    out->text = ckpt__arena_str(map->arena, text, size);
    if (!out->text.data)
        return ckpt__fail_memory(err, "a map rule", size);
    if (memchr(text, 0, size))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "the device holds a NUL character");
    bool literal = size > 0 && text[0] == '=';
    size_t skip = literal;
    const char *brace = memchr(text, '{', size);
    ckpt_status status;
    if (!brace && !literal)
        return ckpt__tag_target(out->text.data, &out->device, err);
    if (!brace) {
        status = literal_goal(text + 1, size - 1, false, out, err);
        if (status == CKPT_OK && !(out->word = ckpt__arena_str(map->arena, out->word.data, out->word.size)).data)
            status = ckpt__fail_memory(err, "a map rule", size);
        return status;
    }
    size_t head = (size_t)(brace - text) + 1; /* with the brace */
    if (head < skip + 3 || text[head - 2] != ':' || text[size - 1] != '}' || memchr(brace + 1, '{', size - head) ||
        memchr(brace + 1, '}', size - head - 1)) {
        *at = head - 1;
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "an expression is the whole index of a device that has one; write cuda:{rank %% 8}");
    }
    *at = literal ? skip : head - 1;
    status = computed_goal(map, text + skip, head - 1 - skip, literal, out, err);
    out->computed = status == CKPT_OK;
    const char *what = "";
    if (status == CKPT_OK && !ckpt__expr_parse(brace + 1, size - head - 1, &out->expr, at, &what)) {
        *at += head;
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "%s", what);
    }
    return status;
}

/* ---- saved tags */

static bool is_digits(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return size > 0;
}

static ckpt_status never(ckpt_error *err, const char *tag, const char *instead)
{
    return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "'%s' matches no saved tag: %s", tag, instead);
}

/* A tag without wildcards: a name in lower case, and perhaps :N. */
static ckpt_status check_literal(const char *shown, const char *text, size_t size, ckpt_error *err)
{
    const char *colon = memchr(text, ':', size);
    size_t name = colon ? (size_t)(colon - text) : size;
    for (size_t i = 0; i < name; i++) {
        if (text[i] >= 'A' && text[i] <= 'Z')
            return never(err, shown, "tags are in lower case");
        if (text[i] != '_' && (text[i] < 'a' || text[i] > 'z') && (text[i] < '0' || text[i] > '9'))
            return never(err, shown, "a tag is cpu, cuda:N, meta, mps, xpu:N or the like");
    }
    ckpt_str word = {text, name};
    if (ckpt__str_is(word, "cpu") && colon)
        return never(err, shown, "the cpu's tag has no index; write cpu");
    if (ckpt__str_is(word, "gpu"))
        return never(err, shown, "torch calls such a device cuda:N");
    if (!colon)
        return CKPT_OK;
    const char *digits = colon + 1;
    size_t count = size - name - 1;
    if (name == 0 || !is_digits(digits, count) || (count > 1 && digits[0] == '0'))
        return never(err, shown, "an index is a decimal number without leading zeros, as in cuda:1");
    return CKPT_OK;
}

ckpt_status ckpt__tag_check(const char *text, size_t size, ckpt_error *err)
{
    char shown[80];
    ckpt__escape(shown, sizeof shown, text, size);
    if (size == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "the saved tag is empty; write '*' for every tag");
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '{')
            return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "'%s': an expression stands in the target, not in the tag",
                              shown);
        if (text[i] == '*' || text[i] == '?' || text[i] == '\\')
            return CKPT_OK;
    }
    return check_literal(shown, text, size, err);
}

/* Surely every tag that `inner` matches, `outer` matches too. A pattern is compared as text: what `*` in outer takes
 * may be any pattern, but a `?` there would wrongly take the `*` of inner. */
static bool covers(ckpt_str outer, ckpt_str inner)
{
    if (!outer.data || !inner.data)
        return false;
    bool star = memchr(inner.data, '*', inner.size) || memchr(inner.data, '\\', inner.size);
    if (star && memchr(outer.data, '?', outer.size))
        return ckpt__str_equal(outer, inner);
    return ckpt__glob(outer.data, outer.size, inner.data, inner.size);
}

ckpt_status ckpt__map_check_reached(const ckpt_map *map, ckpt_error *err)
{
    const ckpt__rule *last = &map->rules[map->rule_count - 1];
    if (map->rule_count > MAX_RULES)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "more than %d rules; use wildcards", (int)MAX_RULES);
    if (last->name.data || last->role != CKPT_ROLE_NONE || !last->has_goal || last->cast != CKPT_DTYPE_NONE)
        return CKPT_OK;
    for (size_t i = 0; i + 1 < map->rule_count; i++) {
        const ckpt__rule *r = &map->rules[i];
        if (r->name.data || r->role != CKPT_ROLE_NONE || !r->has_goal || !covers(r->tag, last->tag))
            continue;
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "it is never reached: %s before it takes every tag that it names; %s", r->text,
                          ckpt__str_equal(r->tag, last->tag) ? "drop one of them" : "put this one first");
    }
    return CKPT_OK;
}

const char *ckpt__map_trap(const ckpt__rule *rule)
{
    if (ckpt__str_is(rule->tag, "cuda"))
        return "'cuda' is not 'cuda:0': tags match exactly; write cuda:* for all of them";
    if (rule->tag.data && !rule->name.data && rule->role == CKPT_ROLE_NONE)
        return "no tensor has such a tag; see the devices that the checkpoint lists";
    return NULL;
}

/* ---- the list of rules */

static void trim(const char **text, size_t *size)
{
    while (*size && (**text == ' ' || **text == '\t')) {
        ++*text;
        --*size;
    }
    while (*size && ((*text)[*size - 1] == ' ' || (*text)[*size - 1] == '\t'))
        --*size;
}

/* Adds "column N" of the whole text to an error about a part of it. */
static ckpt_status at_column(const char *whole, const char *part, ckpt_error *err, ckpt_status s)
{
    ckpt__error_prefix(err, "column %zu", (size_t)(part - whole) + 1);
    ckpt__error_object(err, whole);
    return s;
}

static ckpt_status add_tag_rule(ckpt_map *map, const char *whole, const char *item, size_t size, ckpt_error *err)
{
    const char *equals = memchr(item, '=', size);
    if (!equals)
        return at_column(whole, item, err,
                         ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a rule is SAVED=TARGET, and this has no '='"));
    const char *tag = item, *target = equals + 1;
    size_t tag_size = (size_t)(equals - item), target_size = size - tag_size - 1, at = 0;
    trim(&tag, &tag_size);
    trim(&target, &target_size);
    ckpt_status s = ckpt__tag_check(tag, tag_size, err);
    if (s != CKPT_OK)
        return at_column(whole, tag, err, s);
    ckpt__rule *rule = ckpt__map_add_rule(map);
    if (!rule)
        return ckpt__fail_memory(err, "a map rule", sizeof *rule);
    rule->has_goal = true;
    rule->tag = ckpt__arena_str(map->arena, tag, tag_size);
    rule->text = ckpt__arena_copy(map->arena, item, size);
    if (!rule->tag.data || !rule->text)
        return ckpt__fail_memory(err, "a map rule", size);
    s = ckpt__goal_parse(map, target, target_size, &rule->goal, &at, err);
    if (s != CKPT_OK) {
        char shown[80];
        if (!rule->goal.computed)
            ckpt__error_prefix(err, "'%s'", ckpt__escape(shown, sizeof shown, target, target_size));
        return at_column(whole, target + at, err, s);
    }
    s = ckpt__map_check_reached(map, err);
    return s == CKPT_OK ? s : at_column(whole, item, err, s);
}

/* Up to the next comma that is not in braces. */
static size_t item_size(const char *text)
{
    size_t i = 0;
    for (bool inside = false; text[i] && (inside || text[i] != ','); i++)
        inside = text[i] == '{' || (inside && text[i] != '}');
    return i;
}

static ckpt_status parse_list(ckpt_map *map, const char *text, ckpt_error *err)
{
    for (const char *rest = text;;) {
        const char *item = rest;
        size_t size = item_size(rest);
        rest += size;
        trim(&item, &size);
        if (!size)
            return at_column(text, item, err,
                             ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a rule is missing here, beside a comma"));
        ckpt_status s = add_tag_rule(map, text, item, size, err);
        if (s != CKPT_OK || !*rest)
            return s;
        rest++;
    }
}

static ckpt_status parse_text(ckpt_map *map, const char *text, ckpt_error *err)
{
    bool list = false, inside = false;
    for (const char *c = text; *c; c++) {
        inside = *c == '{' || (inside && *c != '}');
        list = list || (!inside && (*c == '=' || *c == ','));
    }
    if (list)
        return parse_list(map, text, err);
    const char *target = text;
    size_t size = strlen(text), at = 0;
    trim(&target, &size);
    map->has_default = map->is_string = true;
    ckpt_status s = ckpt__goal_parse(map, target, size, &map->fallback, &at, err);
    if (s != CKPT_OK) {
        if (map->fallback.computed || at)
            ckpt__error_prefix(err, "column %zu", (size_t)(target - text) + at + 1);
        ckpt__error_object(err, text);
    }
    return s;
}

/* ---- files */

static ckpt_status read_all(int fd, const char *path, char **out, size_t *size, ckpt_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ckpt__fail_sys(err, errno, path, "cannot read it");
    if (!S_ISREG(st.st_mode))
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "it is not a regular file");
    if (st.st_size > CKPT__YAML_MAX_SIZE)
        return ckpt__fail(err, CKPT_E_LIMIT, path, "it has %lld bytes, and a map file may have %d",
                          (long long)st.st_size, (int)CKPT__YAML_MAX_SIZE);
    char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        return ckpt__fail_memory(err, "a map file", (uint64_t)st.st_size);
    size_t have = 0;
    while (have < (size_t)st.st_size) {
        ssize_t n = read(fd, text + have, (size_t)st.st_size - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return ckpt__fail_sys(err, errno, path, "cannot read it");
        }
        if (n == 0)
            break;
        have += (size_t)n;
    }
    text[have] = 0;
    *out = text;
    *size = have;
    return CKPT_OK;
}

static ckpt_status parse_file(const char *path, ckpt_map **out, ckpt_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return ckpt__fail_sys(err, errno, path, "cannot open the map file");
    char *text = NULL;
    size_t size = 0;
    ckpt_status s = read_all(fd, path, &text, &size, err);
    close(fd);
    if (s == CKPT_OK)
        s = ckpt_map_parse_yaml(text, size, path, out, err);
    free(text);
    return s;
}

ckpt_status ckpt_map_parse(const char *text, ckpt_map **out, ckpt_error *err)
{
    *out = NULL;
    if (text && (ckpt__str_ends_more(ckpt__s(text), ".yaml") || ckpt__str_ends_more(ckpt__s(text), ".yml")))
        return parse_file(text, out, err);
    if (text && strlen(text) > MAX_TEXT)
        return ckpt__fail(err, CKPT_E_LIMIT, "map_location", "longer than %d bytes; put the rules into a .yaml file",
                          (int)MAX_TEXT);
    ckpt_map *map = ckpt__map_new();
    if (!map)
        return ckpt__fail_memory(err, "a map", sizeof *map);
    ckpt_status s = text && *text ? parse_text(map, text, err) : CKPT_OK;
    if (s != CKPT_OK) {
        ckpt_map_free(map);
        return s;
    }
    *out = map;
    return CKPT_OK;
}
