/* inspect/tree.c - everything that is not a tensor. The tree is walked once to count it, so that a limit is an error
 * and not half a document, and once for each part of the answer; nothing is kept but names. */
#include "cli/inspect/inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "cli/inspect/newest.h"
#include "cli/out/strset.h"

/* A line for each of so many levels grows with their square. Python's own limit is of this size. */
enum { MAX_DEPTH = 1000, INDENT_MAX = 40 };

typedef struct tree {
    const command_line *o;
    json_out j;
    hashset all;                       /* names of scalars, or of objects */
    strset twice;                      /* those that seem to occur twice, and: */
    strset names;                      /* of these the ones that were met */
    strset collided;                   /* names that occur twice */
    uint64_t collided_bytes, left_out; /* of `collided`; names that are not in it, for there are too many */
    bool no_memory, too_deep;
    size_t hidden; /* text: the depth of a dict whose entries are not shown; 0: none */
} tree;

static uint32_t crc_of(const char *data, size_t size)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t n; size > 0; data += n, size -= n) {
        n = size < (1u << 30) ? size : 1u << 30;
        crc = crc32(crc, (const Bytef *)data, (uInt)n);
    }
    return (uint32_t)crc;
}

/* Of an array's elements in C order; those of one in Fortran order are gathered. False: its bytes are not known. */
static bool array_crc(const ckpt_value *v, uint32_t *crc)
{
    const ckpt_array *a = v->array;
    size_t count = 1;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] < 0 || __builtin_mul_overflow(count, (size_t)a->shape[i], &count))
            return false;
    if (!v->text.data || (a->fortran && count && v->text.size % count))
        return false;
    if (!a->fortran || a->ndim < 2 || !count) {
        *crc = crc_of(v->text.data, v->text.size);
        return true;
    }
    size_t size = v->text.size / count;
    char *ordered = malloc(v->text.size + 1);
    for (size_t i = 0; ordered && i < count; i++) {
        size_t left = i, from = 0;
        for (uint32_t d = a->ndim; d-- > 0;
             left /= (size_t)a->shape[d]) { /* the last index runs fastest in C, the first here */
            size_t stride = 1;
            for (uint32_t k = 0; k < d; k++)
                stride *= (size_t)a->shape[k];
            from += left % (size_t)a->shape[d] * stride;
        }
        memcpy(ordered + i * size, v->text.data + from * size, size);
    }
    if (ordered)
        *crc = crc_of(ordered, v->text.size);
    free(ordered);
    return ordered != NULL;
}

static bool is_scalar(const ckpt_value *v)
{
    return v->kind <= CKPT_V_STR;
}

static bool class_is(ckpt_str s, const char *name)
{
    return s.data && s.size == strlen(name) && memcmp(s.data, name, s.size) == 0;
}

/* The class of what is neither scalar nor a plain dict, list, tuple or array; data NULL for those. */
static ckpt_str object_class(const ckpt_value *v)
{
    static const char *const plain[] = {"collections.OrderedDict", "builtins.dict", "dict",
                                        "numpy.ndarray",           "builtins.list", "builtins.tuple"};
    ckpt_str none = {NULL, 0};
    if (v->kind == CKPT_V_OBJECT || v->kind == CKPT_V_CLASS)
        return v->class_name;
    if (is_scalar(v) || v->kind == CKPT_V_TENSOR)
        return none;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (class_is(v->class_name, plain[i]))
            return none;
    return v->class_name;
}

static int count_visit(void *ctx, const ckpt_visit *visit)
{
    tree *t = ctx;
    t->too_deep = visit->path.count > MAX_DEPTH;
    return t->too_deep;
}

/* ---- --json */

static void json_path(json_out *j, const ckpt_path *path)
{
    json_array(j, "path");
    for (size_t i = 0; i < path->count; i++) {
        if (path->keys[i].text.data)
            json_bytes(j, NULL, path->keys[i].text.data, path->keys[i].text.size);
        else
            json_int(j, NULL, path->keys[i].number);
    }
    json_end_array(j);
}

static void json_array_value(json_out *j, const ckpt_value *v)
{
    json_bytes(j, "dtype", v->array->dtype.data, v->array->dtype.size);
    json_sizes(j, "shape", v->array->shape, v->array->ndim);
    json_bool(j, "fortran", v->array->fortran);
    json_uint(j, "length", v->text.size);
    uint32_t crc;
    if (array_crc(v, &crc))
        json_crc(j, "crc32", crc);
    else
        json_null(j, "crc32");
}

static int entry_visit(void *ctx, const ckpt_visit *visit)
{
    tree *t = ctx;
    json_out *j = &t->j;
    const ckpt_value *v = visit->value;
    if (v->kind == CKPT_V_TENSOR)
        return 0;
    json_object(j, NULL);
    json_path(j, &visit->path);
    json_bytes(j, "name", visit->name.data, visit->name.size);
    json_text(j, "kind", ckpt_kind_name(v->kind));
    if (visit->cycle) {
        json_bytes(j, "cycle", visit->cycle_to.data, visit->cycle_to.size);
    } else if (is_scalar(v)) {
        cli_json_value(j, "value", v);
    } else {
        if (v->class_name.data)
            json_bytes(j, "class", v->class_name.data, v->class_name.size);
        if (v->kind == CKPT_V_BYTES || v->kind == CKPT_V_BYTEARRAY) {
            json_uint(j, "length", v->text.size);
            json_crc(j, "crc32", crc_of(v->text.data, v->text.size));
        } else if (v->kind == CKPT_V_ARRAY) {
            json_array_value(j, v);
        } else if (v->kind == CKPT_V_DICT) {
            json_uint(j, "length", v->entry_count);
        } else if (v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE) {
            json_uint(j, "length", v->item_count);
        }
    }
    if (visit->inside)
        json_bool(j, "inside", true);
    json_end_object(j);
    return 0;
}

/* Of a million names next to none occurs twice: only what may be such a one is kept. */
static int note_name(tree *t, ckpt_str name)
{
    int added = hashset_add(&t->all, name.data, name.size);
    if (added == 0)
        added = strset_add(&t->twice, name.data, name.size);
    t->no_memory |= added < 0;
    return t->no_memory;
}

/* Remembered once, as far as there is room. */
static int note_collided(tree *t, ckpt_str name)
{
    const uint64_t most = (uint64_t)8 << 20;
    if (t->collided_bytes + name.size > most) {
        t->left_out += !strset_has(&t->collided, name.data, name.size);
        return 0;
    }
    int added = strset_add(&t->collided, name.data, name.size);
    t->collided_bytes += added == 1 ? name.size + sizeof *t->collided.slots : 0;
    return added;
}

/* True: the first of its name. The second and later ones are counted. */
static bool first_of_name(tree *t, ckpt_str name)
{
    if (!strset_has(&t->twice, name.data, name.size))
        return true;
    int added = strset_add(&t->names, name.data, name.size);
    if (added == 0 && note_collided(t, name) < 0)
        added = -1;
    t->no_memory |= added < 0;
    return added == 1;
}

static int scalar_name(void *ctx, const ckpt_visit *visit)
{
    return visit->inside || !is_scalar(visit->value) ? 0 : note_name(ctx, visit->name);
}

static int scalar_visit(void *ctx, const ckpt_visit *visit)
{
    tree *t = ctx;
    if (visit->inside || !is_scalar(visit->value) || !first_of_name(t, visit->name))
        return t->no_memory;
    json_key(&t->j, visit->name.data, visit->name.size);
    cli_json_value(&t->j, NULL, visit->value);
    return 0;
}

static int object_name(void *ctx, const ckpt_visit *visit)
{
    return visit->inside || visit->cycle || !object_class(visit->value).data ? 0 : note_name(ctx, visit->name);
}

static int object_visit(void *ctx, const ckpt_visit *visit)
{
    tree *t = ctx;
    ckpt_str name = object_class(visit->value);
    if (visit->inside || visit->cycle || !name.data || !first_of_name(t, visit->name))
        return t->no_memory;
    json_key(&t->j, visit->name.data, visit->name.size);
    json_bytes(&t->j, NULL, name.data, name.size);
    return 0;
}

/* The set's own order changes from run to run. */
static int by_name(const void *a, const void *b)
{
    const struct strset_slot *x = a, *y = b;
    if (!x->data || !y->data)
        return (x->data == NULL) - (y->data == NULL);
    int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static void json_fix(json_out *j)
{
    static const char text[] = "use the path arrays of entries";
    json_text(j, "fix", text);
    json_array(j, "fixes");
    json_object(j, NULL);
    json_text(j, "kind", "advice");
    json_text(j, "text", text);
    json_end_object(j);
    json_end_array(j);
}

/* Nothing is added to the set after this. */
static void json_collisions(tree *t, const ckpt_reader *reader)
{
    json_out *j = &t->j;
    const ckpt_report *odd = ckpt_reader_findings(reader);
    json_array(j, "findings");
    for (size_t i = 0; i < ckpt_report_count(odd); i++)
        cli_json_finding(j, ckpt_report_get(odd, i));
    if (t->collided.slots)
        qsort(t->collided.slots, t->collided.mask + 1, sizeof *t->collided.slots, by_name);
    for (size_t i = 0; t->collided.slots && i <= t->collided.mask; i++) {
        if (!t->collided.slots[i].data)
            continue;
        json_object(j, NULL);
        json_text(j, "code", "name-collision");
        json_text(j, "severity", "warning");
        json_text(j, "message",
                  "the name occurs more than once (keys such as 0 and \"0\"); scalars and objects show its first");
        json_fix(j);
        json_bytes(j, "tensor", t->collided.slots[i].data, t->collided.slots[i].size);
        json_null(j, "file");
        json_end_object(j);
    }
    if (t->left_out) {
        char text[120];
        snprintf(text, sizeof text, "names that occur already occur %" PRIu64 " times more", t->left_out);
        json_object(j, NULL);
        json_text(j, "code", "name-collision");
        json_text(j, "severity", "warning");
        json_text(j, "message", text);
        json_fix(j);
        json_null(j, "tensor");
        json_null(j, "file");
        json_end_object(j);
    }
    json_end_array(j);
}

/* One entry for each name: what `visit` prints. `name` has been shown all names before. */
static void json_by_name(tree *t, const ckpt_value *root, const char *key, ckpt_visit_fn name, ckpt_visit_fn visit)
{
    json_object(&t->j, key);
    ckpt_value_walk(root, 0, name, t, NULL);
    hashset_free(&t->all);
    ckpt_value_walk(root, 0, visit, t, NULL);
    json_end_object(&t->j);
    strset_free(&t->twice);
    strset_free(&t->names);
}

static void tree_json(tree *t, const ckpt_reader *reader)
{
    const ckpt_value *root = ckpt_reader_root(reader);
    json_out *j = &t->j;
    json_document(j);
    json_text(j, "format", ckpt_reader_format(reader));
    json_array(j, "entries");
    ckpt_value_walk(root, 0, entry_visit, t, NULL);
    json_end_array(j);
    json_by_name(t, root, "scalars", scalar_name, scalar_visit);
    json_by_name(t, root, "objects", object_name, object_visit);
    json_collisions(t, reader);
    json_end_object(j);
}

/* ---- text */

static void put_scalar(const ckpt_value *v)
{
    char number[JSON_DOUBLE_MAX];
    switch (v->kind) {
    case CKPT_V_BOOL:
        fputs(v->boolean ? "True" : "False", stdout);
        break;
    case CKPT_V_INT:
        printf("%" PRId64, v->integer);
        break;
    case CKPT_V_FLOAT:
        fputs(json_format_double(number, v->real), stdout);
        break;
    case CKPT_V_BIGINT:
        cli_put(stdout, v->text.data, v->text.size);
        break;
    case CKPT_V_STR:
        putchar('\'');
        cli_put(stdout, v->text.data, v->text.size);
        putchar('\'');
        break;
    default:
        fputs("None", stdout);
    }
}

static void put_compound(const tree *t, const ckpt_value *v)
{
    const char *dim = cli_style(&t->o->cli, "dim"), *off = cli_style(&t->o->cli, "off");
    fputs(dim, stdout);
    if (v->class_name.data)
        cli_put(stdout, v->class_name.data, v->class_name.size);
    else
        fputs(ckpt_kind_name(v->kind), stdout);
    if (v->kind == CKPT_V_BYTES || v->kind == CKPT_V_BYTEARRAY) {
        printf(" of %zu bytes, crc32 %08" PRIx32, v->text.size, crc_of(v->text.data, v->text.size));
    } else if (v->kind == CKPT_V_ARRAY) {
        putchar(' ');
        cli_put_str(stdout, v->array->dtype, "");
        fputs(" [", stdout);
        for (uint32_t i = 0; i < v->array->ndim; i++)
            printf("%s%" PRId64, i ? ", " : "", v->array->shape[i]);
        putchar(']');
    } else if (v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE) {
        printf(" of %zu", v->item_count);
    } else if (v->kind == CKPT_V_DICT) {
        printf(" of %zu", v->entry_count);
    }
    fputs(off, stdout);
}

/* What torch keeps beside each state_dict: the version of each of its modules, hundreds of lines that say 1. */
static bool is_versions(const ckpt_visit *visit)
{
    static const char name[] = "_metadata";
    const ckpt_str key = visit->path.count ? visit->path.keys[visit->path.count - 1].text : (ckpt_str){NULL, 0};
    return visit->value->kind == CKPT_V_DICT && key.size == sizeof name - 1 &&
           memcmp(key.data, name, sizeof name - 1) == 0;
}

static int text_visit(void *ctx, const ckpt_visit *visit)
{
    tree *t = ctx;
    const ckpt_value *v = visit->value;
    size_t depth = visit->path.count;
    if (v->kind == CKPT_V_TENSOR || (t->hidden && depth > t->hidden))
        return 0;
    t->hidden = !t->o->cli.verbose && is_versions(visit) ? depth : 0;
    size_t indent = depth > 0 ? depth - 1 : 0;
    printf("%*s", (int)(2 * (indent < INDENT_MAX ? indent : INDENT_MAX)), "");
    if (depth > 0) {
        const ckpt_key *key = &visit->path.keys[depth - 1];
        if (key->text.data && !key->text.size)
            fputs("''", stdout);
        else if (key->text.data)
            cli_put(stdout, key->text.data, key->text.size);
        else
            printf("%" PRId64, key->number);
        fputs(": ", stdout);
    }
    if (visit->cycle) {
        fputs("(again: ", stdout);
        cli_put(stdout, visit->cycle_to.size ? visit->cycle_to.data : "the root",
                visit->cycle_to.size ? visit->cycle_to.size : 8);
        putchar(')');
    } else if (is_scalar(v)) {
        put_scalar(v);
    } else {
        put_compound(t, v);
        if (t->hidden && v->entry_count)
            printf(", not shown (-v)");
    }
    putchar('\n');
    return 0;
}

int inspect_tree(const command_line *o)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = newest_open(o, 0);
    if (!reader)
        return CLI_NO_ANSWER;
    tree t;
    memset(&t, 0, sizeof t);
    t.o = o;
    const ckpt_value *root = ckpt_reader_root(reader);
    int status = CLI_YES;
    int walked = root ? ckpt_value_walk(root, 0, count_visit, &t, &err) : 0;
    if (t.too_deep)
        status = cli_fail(&o->cli, ckpt_status_name(CKPT_E_LIMIT), "%s: the values nest deeper than %d levels",
                          o->paths[0], MAX_DEPTH);
    else if (walked != 0)
        status = cli_fail_error(&o->cli, &err);
    else if (o->cli.json)
        tree_json(&t, reader);
    else if (root)
        ckpt_value_walk(root, 0, text_visit, &t, NULL);
    else
        cli_warn(&o->cli, "%s: there are tensors only", o->paths[0]);
    strset_free(&t.names);
    strset_free(&t.collided);
    ckpt_reader_close(reader);
    return status;
}
