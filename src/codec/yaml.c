/* codec/yaml.c - over libyaml's event API: the document API would resolve aliases, and so let a few bytes become
 * gigabytes. */
#include "codec/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

/* A list or map that is still open. */
struct frame {
    ckpt__yaml_node *node;
    const ckpt__yaml_node **keys, **items;
    size_t key_count, key_capacity, item_count, item_capacity;
};

/* A document while it is read; `stack` holds the lists and maps that are open, outermost first. */
struct reader {
    yaml_parser_t parser;
    ckpt__yaml *yaml;
    const char *text, *name;
    size_t size;
    struct frame stack[CKPT__YAML_MAX_DEPTH];
    size_t depth;
    ckpt_error *err;
};

const char *ckpt__yaml_kind_name(ckpt__yaml_kind kind)
{
    return kind == CKPT__YAML_MAP ? "a map" : kind == CKPT__YAML_LIST ? "a list" : "text";
}

static ckpt_status fail_at(ckpt_error *err, const char *name, size_t line, size_t column, const char *what)
{
    return ckpt__fail(err, CKPT_E_ARGUMENT, name, "line %zu, column %zu: %s", line, column, what);
}

ckpt_status ckpt__yaml_fail(ckpt_error *err, const char *name, const ckpt__yaml_node *at, const char *format, ...)
{
    char what[600];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail_at(err, name, at->line, at->column, what);
}

const ckpt__yaml_node *ckpt__yaml_get(const ckpt__yaml_node *map, const char *key)
{
    if (!map || map->kind != CKPT__YAML_MAP)
        return NULL;
    for (size_t i = 0; i < map->count; i++)
        if (ckpt__str_is(map->keys[i]->text, key))
            return map->items[i];
    return NULL;
}

ckpt_status ckpt__yaml_check_keys(const ckpt__yaml_node *map, const char *const *known, const char *name,
                                  ckpt_error *err)
{
    for (size_t i = 0; i < map->count; i++) {
        size_t k = 0;
        while (known[k] && !ckpt__str_is(map->keys[i]->text, known[k]))
            k++;
        if (known[k])
            continue;
        char shown[80];
        ckpt__escape(shown, sizeof shown, map->keys[i]->text.data, map->keys[i]->text.size);
        ckpt__buf list = {0};
        for (k = 0; known[k]; k++)
            ckpt__buf_printf(&list, "%s%s", k ? ", " : "", known[k]);
        ckpt_status s = ckpt__yaml_fail(err, name, map->keys[i], "there is no key '%s' here; the keys are %s", shown,
                                        list.data ? list.data : "few");
        ckpt__buf_free(&list);
        return s;
    }
    return CKPT_OK;
}

/* ---- what libyaml refuses */

/* Line `number` of the text, from 0. (libyaml's marks count characters, not bytes, so its index is no offset.) */
static ckpt_str line_of(const struct reader *r, size_t number)
{
    size_t begin = 0, end;
    for (; number > 0 && begin < r->size; begin++)
        number -= r->text[begin] == '\n';
    for (end = begin; end < r->size && r->text[end] != '\n';)
        end++;
    ckpt_str line = {r->text + begin, end - begin};
    return line;
}

static ckpt_status fail_reader(struct reader *r)
{
    size_t at = r->parser.problem_offset < r->size ? r->parser.problem_offset : r->size, line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column = r->text[i] == '\n' ? 1 : column + 1;
        line += r->text[i] == '\n';
    }
    return ckpt__fail(r->err, CKPT_E_ARGUMENT, r->name, "line %zu, column %zu: not valid UTF-8 text: %s", line, column,
                      r->parser.problem ? r->parser.problem : "unreadable");
}

static ckpt_status fail_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return ckpt__fail_memory(r->err, "a YAML document", r->size);
    if (p->error == YAML_READER_ERROR)
        return fail_reader(r);
    bool alias = p->context && strstr(p->context, "scanning an alias");
    yaml_mark_t mark = alias ? p->context_mark : p->problem_mark;
    if (alias)
        return fail_at(r->err, r->name, mark.line + 1, mark.column + 1,
                       "a value that starts with '*' is an alias in YAML, and those are refused; quote it: '*...'");
    /* In a flow map `to: cuda:{rank}` breaks at the brace with a message that helps nobody. */
    ckpt_str line = line_of(r, mark.line);
    bool brace = memmem(line.data, line.size, ":{", 2) != NULL;
    return ckpt__fail(r->err, CKPT_E_ARGUMENT, r->name, "line %zu, column %zu: %s%s%s%s", mark.line + 1,
                      mark.column + 1, p->problem ? p->problem : "not YAML", p->context ? " " : "",
                      p->context ? p->context : "",
                      brace ? "; a value that holds '{' is a map in YAML: quote it, 'cuda:{rank}'" : "");
}

/* ---- building the tree */

static ckpt_status no_memory(struct reader *r)
{
    return ckpt__fail_memory(r->err, "a YAML document", r->size);
}

static ckpt__yaml_node *new_node(struct reader *r, ckpt__yaml_kind kind, const yaml_event_t *event)
{
    ckpt__yaml_node *node = ckpt__arena_alloc(r->yaml->arena, sizeof *node);
    if (!node)
        return NULL;
    node->kind = kind;
    node->line = event->start_mark.line + 1;
    node->column = event->start_mark.column + 1;
    return node;
}

/* A node is complete or has been opened: it goes into its parent. */
static ckpt_status attach(struct reader *r, const ckpt__yaml_node *node)
{
    if (r->depth == 0) {
        r->yaml->root = node;
        return CKPT_OK;
    }
    struct frame *f = &r->stack[r->depth - 1];
    if (f->node->kind == CKPT__YAML_MAP && f->key_count == f->item_count) {
        if (node->kind != CKPT__YAML_SCALAR)
            return ckpt__yaml_fail(r->err, r->name, node, "a key must be text, and this is %s%s",
                                   ckpt__yaml_kind_name(node->kind),
                                   node->kind == CKPT__YAML_MAP ? "; quote a value that holds '{'" : "");
        if (!ckpt__grow(&f->keys, &f->key_capacity, f->key_count + 1, sizeof *f->keys))
            return no_memory(r);
        f->keys[f->key_count++] = node;
        return CKPT_OK;
    }
    if (!ckpt__grow(&f->items, &f->item_capacity, f->item_count + 1, sizeof *f->items))
        return no_memory(r);
    f->items[f->item_count++] = node;
    return CKPT_OK;
}

static ckpt_status take_scalar(struct reader *r, const yaml_event_t *event)
{
    ckpt__yaml_node *node = new_node(r, CKPT__YAML_SCALAR, event);
    if (!node)
        return no_memory(r);
    const char *value = (const char *)event->data.scalar.value;
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = ckpt__arena_str(r->yaml->arena, value, event->data.scalar.length);
    if (!node->text.data)
        return no_memory(r);
    if (memchr(value, 0, event->data.scalar.length))
        return ckpt__yaml_fail(r->err, r->name, node, "the text holds a NUL character");
    if (!node->quoted && memchr(value, '{', event->data.scalar.length)) {
        char shown[120];
        ckpt__escape(shown, sizeof shown, value, event->data.scalar.length);
        return ckpt__yaml_fail(r->err, r->name, node, "a value that holds '{' is a map in YAML; quote it: '%s'", shown);
    }
    return attach(r, node);
}

static ckpt_status open_container(struct reader *r, ckpt__yaml_kind kind, const yaml_event_t *event)
{
    ckpt__yaml_node *node = new_node(r, kind, event);
    if (!node)
        return no_memory(r);
    if (r->depth == CKPT__YAML_MAX_DEPTH)
        return ckpt__fail(r->err, CKPT_E_LIMIT, r->name, "line %zu, column %zu: nested deeper than %d levels",
                          node->line, node->column, (int)CKPT__YAML_MAX_DEPTH);
    ckpt_status s = attach(r, node);
    if (s != CKPT_OK)
        return s;
    struct frame *f = &r->stack[r->depth++];
    memset(f, 0, sizeof *f);
    f->node = node;
    return CKPT_OK;
}

static ckpt_status check_duplicates(struct reader *r, const struct frame *f)
{
    ckpt__hash *seen = ckpt__hash_new(f->key_count);
    if (!seen)
        return no_memory(r);
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; i < f->key_count && s == CKPT_OK; i++) {
        size_t first = 0;
        int put = ckpt__hash_put(seen, f->keys[i]->text.data, f->keys[i]->text.size, i, &first);
        if (put < 0)
            s = no_memory(r);
        if (put == 0) {
            char shown[120];
            ckpt__escape(shown, sizeof shown, f->keys[i]->text.data, f->keys[i]->text.size);
            s = ckpt__yaml_fail(r->err, r->name, f->keys[i], "the key '%s' stands twice; first in line %zu", shown,
                                f->keys[first]->line);
        }
    }
    ckpt__hash_free(seen);
    return s;
}

static const ckpt__yaml_node *const *keep(struct reader *r, const ckpt__yaml_node **list, size_t count)
{
    const ckpt__yaml_node **copy = ckpt__arena_array(r->yaml->arena, count ? count : 1, sizeof *copy);
    if (copy && count)
        memcpy(copy, list, count * sizeof *copy);
    return (const ckpt__yaml_node *const *)copy;
}

static ckpt_status close_container(struct reader *r)
{
    struct frame *f = &r->stack[r->depth - 1];
    if (f->node->kind == CKPT__YAML_MAP) {
        ckpt_status s = check_duplicates(r, f);
        if (s != CKPT_OK)
            return s;
        f->node->keys = keep(r, f->keys, f->key_count);
        if (!f->node->keys)
            return no_memory(r);
    }
    f->node->items = keep(r, f->items, f->item_count);
    if (!f->node->items)
        return no_memory(r);
    f->node->count = f->item_count;
    free(f->keys);
    free(f->items);
    r->depth--;
    return CKPT_OK;
}

/* Anchors and tags of an event. */
static ckpt_status check_plain(struct reader *r, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    size_t line = event->start_mark.line + 1, column = event->start_mark.column + 1;
    if (anchor)
        return fail_at(r->err, r->name, line, column, "an anchor ('&...') is refused; quote the value if it is text");
    if (tag)
        return fail_at(r->err, r->name, line, column, "a tag ('!...') is refused; quote the value if it is text");
    return CKPT_OK;
}

static ckpt_status take_event(struct reader *r, const yaml_event_t *event)
{
    ckpt_status s = check_plain(r, event);
    if (s != CKPT_OK)
        return s;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->yaml->root)
            return fail_at(r->err, r->name, event->start_mark.line + 1, event->start_mark.column + 1,
                           "a second document begins here, and a file holds one");
        return CKPT_OK;
    case YAML_ALIAS_EVENT:
        return fail_at(r->err, r->name, event->start_mark.line + 1, event->start_mark.column + 1,
                       "a value that starts with '*' is an alias in YAML, and those are refused; quote it: '*...'");
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_container(r, CKPT__YAML_LIST, event);
    case YAML_MAPPING_START_EVENT:
        return open_container(r, CKPT__YAML_MAP, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_container(r);
    default:
        return CKPT_OK;
    }
}

static ckpt_status read_events(struct reader *r)
{
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event))
            return fail_syntax(r);
        ckpt_status s = take_event(r, &event);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (s != CKPT_OK)
            return s;
    }
    return r->yaml->root ? CKPT_OK : ckpt__fail(r->err, CKPT_E_ARGUMENT, r->name, "the file is empty");
}

ckpt_status ckpt__yaml_parse(const char *text, size_t size, const char *name, ckpt__yaml **out, ckpt_error *err)
{
    *out = NULL;
    if (size > CKPT__YAML_MAX_SIZE)
        return ckpt__fail(err, CKPT_E_LIMIT, name, "it has %zu bytes, and such a file may have %d", size,
                          (int)CKPT__YAML_MAX_SIZE);
    struct reader r = {.text = text, .size = size, .name = name, .err = err};
    r.yaml = calloc(1, sizeof *r.yaml);
    if (r.yaml)
        r.yaml->arena = ckpt__arena_new(UINT64_C(256) << 20);
    if (!r.yaml || !r.yaml->arena || !yaml_parser_initialize(&r.parser)) {
        ckpt__yaml_free(r.yaml);
        return ckpt__fail_memory(err, "a YAML document", size);
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    ckpt_status s = read_events(&r);
    for (size_t i = 0; i < r.depth; i++) {
        free(r.stack[i].keys);
        free(r.stack[i].items);
    }
    yaml_parser_delete(&r.parser);
    if (s != CKPT_OK) {
        ckpt__yaml_free(r.yaml);
        return s;
    }
    *out = r.yaml;
    return CKPT_OK;
}

void ckpt__yaml_free(ckpt__yaml *yaml)
{
    if (!yaml)
        return;
    ckpt__arena_free(yaml->arena);
    free(yaml);
}
