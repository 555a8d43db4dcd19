/* inspect/show_by.c - show --by: tensors, parameters and bytes of each layer, dtype, role or device. Layers that are alike stand in one line. */
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/show.h"
#include "cli/out/rows.h"

/* A selected tensor. Of those that lie at one place only the first is one. */
typedef struct member {
    ckpt_str group,
        inside; /* the layer, and the name below it; else the dtype, role or device. The reader's, or static */
    size_t tensor;
    uint64_t elements;
} member;

/* The members of one name; where several layers are alike, the first of them has the sums of all. */
typedef struct group {
    ckpt_str name;
    size_t first, size,
        tensor;   /* of the members: index and count; tensor: the lowest of them, for the order of the lines */
    size_t place; /* the lowest tensor of all layers of its stem */
    size_t stem;  /* bytes of the name before its number; 0: there is none */
    uint64_t number;
    size_t like, layers, family; /* the group that has its sums; how many this one sums up; lines of its stem */
    uint64_t tensors, parameters, nbytes;
    char *shown; /* heap, owned: "model.layers.*"; NULL: the name */
} group;

struct show_by {
    const cli *c;
    const ckpt_reader *reader;
    ckpt_naming *naming; /* NULL: not known */
    member *members;     /* heap, owned, as is groups */
    group *groups;
    size_t member_count, group_count;
    bool layers;
    ckpt_role counted; /* as parameters: CKPT_ROLE_NONE where the file keeps no roles */
};

/* ---- which group */

static void take_layer(const show_by *b, member *out)
{
    ckpt_str name = cli_layer_name(b->reader, b->naming, out->tensor);
    const size_t n = cli_layer_size(name), dot = n < name.size;
    out->group = (ckpt_str){name.data, n};
    out->inside = (ckpt_str){name.data + n + dot, name.size - n - dot};
}

static void take_group(const show_by *b, const char *by, const ckpt_tensor_info *t, member *out)
{
    const char *word = strcmp(by, "dtype") == 0 ? ckpt_dtype_name(t->dtype) : ckpt_role_name(t->role);
    out->inside = (ckpt_str){"", 0};
    if (b->layers)
        take_layer(b, out);
    else if (strcmp(by, "device") == 0)
        out->group = t->device.data ? t->device : (ckpt_str){"none", 4};
    else
        out->group = (ckpt_str){word, strlen(word)};
}

static int by_group(const void *x, const void *y)
{
    const member *a = x, *b = y;
    int order = cli_str_order(a->group, b->group);
    order = order ? order : cli_str_order(a->inside, b->inside);
    return order ? order : (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* As in the file, and the layers of a stem together: they may lie as 1, 10, 2. */
static int by_place(const void *x, const void *y)
{
    const group *a = x, *b = y;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* ---- layers that are alike */

/* "model.layers." and 12 */
static void take_number(group *g)
{
    size_t at = g->name.size;
    while (at > 0 && g->name.data[at - 1] >= '0' && g->name.data[at - 1] <= '9')
        at--;
    if (at == 0 || at == g->name.size || g->name.size - at > 18 || g->name.data[at - 1] != '.')
        return;
    g->stem = at;
    for (size_t i = at; i < g->name.size; i++)
        g->number = g->number * 10 + (uint64_t)(g->name.data[i] - '0');
}

static bool same_stem(const group *a, const group *b)
{
    return a->stem > 0 && a->stem == b->stem && memcmp(a->name.data, b->name.data, a->stem) == 0;
}

static bool is_alike(const show_by *b, const group *x, const group *y)
{
    bool same = x->size == y->size && x->nbytes == y->nbytes && same_stem(x, y);
    for (size_t i = 0; same && i < x->size; i++) {
        const member *m = &b->members[x->first + i], *n = &b->members[y->first + i];
        const ckpt_tensor_info *s = ckpt_reader_tensor(b->reader, m->tensor),
                               *t = ckpt_reader_tensor(b->reader, n->tensor);
        same = cli_str_order(m->inside, n->inside) == 0 && s->dtype == t->dtype && s->role == t->role &&
               s->ndim == t->ndim && (s->ndim == 0 || memcmp(s->shape, t->shape, s->ndim * sizeof *s->shape) == 0);
    }
    return same;
}

/* The groups are still in the order of their names. */
static void find_places(show_by *b)
{
    for (size_t begin = 0, end; begin < b->group_count; begin = end) {
        size_t place = b->groups[begin].tensor;
        for (end = begin + 1; end < b->group_count && same_stem(&b->groups[begin], &b->groups[end]); end++)
            place = b->groups[end].tensor < place ? b->groups[end].tensor : place;
        for (size_t i = begin; i < end; i++)
            b->groups[i].place = place;
    }
}

/* Each layer in the first that it is like; and how many lines its stem gets. */
static void join_layers(show_by *b)
{
    for (size_t i = 0; i < b->group_count; i++) {
        group *g = &b->groups[i];
        for (size_t k = 0; k < i && g->like == i; k++)
            if (b->groups[k].like == k && is_alike(b, &b->groups[k], g))
                g->like = k;
    }
    for (size_t i = 0; i < b->group_count; i++)
        for (size_t k = 0; k < b->group_count && b->groups[i].like == i; k++)
            b->groups[i].family += b->groups[k].like == k && same_stem(&b->groups[i], &b->groups[k]);
}

/* "model.layers.*"; where others of them differ "model.layers.* (0-4, 6-31)". False: no memory. */
static bool name_layers(show_by *b, size_t at)
{
    enum { RANGES = 4 };
    group *g = &b->groups[at];
    size_t size = 0, ranges = 0;
    FILE *f = open_memstream(&g->shown, &size);
    if (!f)
        return false;
    fprintf(f, "%.*s*", (int)g->stem, g->name.data);
    uint64_t low = g->number, high = g->number;
    for (size_t i = at + 1; g->family > 1 && i <= b->group_count && ranges <= RANGES; i++) {
        const group *next = i < b->group_count ? &b->groups[i] : NULL;
        if (next && next->like != at)
            continue;
        if (next && next->number == high + 1) {
            high++;
            continue;
        }
        fputs(ranges ? ", " : " (", f);
        if (ranges == RANGES)
            fputs("...", f);
        else if (high > low)
            fprintf(f, "%llu-%llu", (unsigned long long)low, (unsigned long long)high);
        else
            fprintf(f, "%llu", (unsigned long long)low);
        ranges++;
        low = high = next ? next->number : 0;
    }
    if (ranges)
        putc(')', f);
    return fclose(f) == 0;
}

/* ---- all of it */

static uint64_t elements_of(const ckpt_tensor_info *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->ndim; i++)
        n = t->shape[i] > 0 ? n * (uint64_t)t->shape[i] : 0;
    return n;
}

static void add_up(show_by *b)
{
    for (size_t i = 0; i < b->member_count; i++) {
        const member *m = &b->members[i];
        const ckpt_tensor_info *t = ckpt_reader_tensor(b->reader, m->tensor);
        if (i == 0 || cli_str_order(b->members[i - 1].group, m->group) != 0) {
            b->groups[b->group_count++] = (group){.name = m->group, .first = i, .tensor = m->tensor};
            if (b->layers)
                take_number(&b->groups[b->group_count - 1]);
        }
        group *g = &b->groups[b->group_count - 1];
        g->size++;
        g->tensor = m->tensor < g->tensor ? m->tensor : g->tensor;
        g->tensors++;
        g->nbytes += t->nbytes;
        g->parameters += t->role == b->counted ? m->elements : 0;
    }
}

/* False: no memory. */
static bool sum_up(show_by *b)
{
    bool ok = true;
    for (size_t i = 0; i < b->group_count; i++)
        b->groups[i].like = i;
    if (b->layers)
        join_layers(b);
    for (size_t i = 0; i < b->group_count; i++) {
        group *g = &b->groups[i], *to = &b->groups[g->like];
        to->layers++;
        if (to == g)
            continue;
        to->tensors += g->tensors;
        to->parameters += g->parameters;
        to->nbytes += g->nbytes;
    }
    for (size_t i = 0; ok && i < b->group_count; i++)
        ok = b->groups[i].layers < 2 || name_layers(b, i);
    return ok;
}

show_by *show_by_new(const command_line *o, const ckpt_reader *reader)
{
    const size_t n = ckpt_reader_tensor_count(reader);
    show_by *b = calloc(1, sizeof *b);
    bool *again = b ? show_second_names(reader, &o->cli) : NULL;
    if (again) {
        b->c = &o->cli;
        b->reader = reader;
        b->layers = strcmp(o->by, "layer") == 0;
        if (b->layers && ckpt_naming_new(reader, NULL, &b->naming, NULL, NULL) < 0)
            b->naming = NULL;
        b->members = calloc(n + 1, sizeof *b->members);
        b->groups = calloc(n + 1, sizeof *b->groups);
    }
    bool ok = again && b->members && b->groups;
    for (size_t i = 0; ok && i < n; i++)
        b->counted = ckpt_reader_tensor(reader, i)->role == CKPT_ROLE_NONE ? b->counted : CKPT_ROLE_PARAM;
    for (size_t i = 0; ok && i < n; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(&o->cli, t) || again[i])
            continue;
        member *m = &b->members[b->member_count++];
        m->tensor = i;
        m->elements = elements_of(t);
        take_group(b, o->by, t, m);
    }
    if (ok && b->member_count) {
        qsort(b->members, b->member_count, sizeof *b->members, by_group);
        add_up(b);
        find_places(b);
        qsort(b->groups, b->group_count, sizeof *b->groups, by_place);
        ok = sum_up(b);
    }
    free(again);
    if (ok)
        return b;
    show_by_free(b);
    return NULL;
}

void show_by_free(show_by *b)
{
    for (size_t i = 0; b && i < b->group_count; i++)
        free(b->groups[i].shown);
    if (b) {
        ckpt_naming_free(b->naming);
        free(b->members);
        free(b->groups);
    }
    free(b);
}

/* ---- what is printed */

/* A line of the table. */
typedef struct line {
    ckpt_str name;
    uint64_t layers, tensors, nbytes;
    char parameters[CLI_SIZE_MAX];
} line;

static bool is_several(const row_parts *r)
{
    return ((const line *)r->part[0])->layers > 1;
}

static ckpt_str parameters_text(char buf[ROW_CELL], const row_parts *r)
{
    return rows_print(buf, "%s", ((const line *)r->part[0])->parameters);
}

enum { PLAIN = 1, LAYERS = 2 };
#define AT(member) .at = offsetof(line, member)
static const row_field columns[] = {
    {.title = "tensors", .kind = ROW_UINT, AT(tensors), .right = true},
    {.title = "parameters", .text = parameters_text, .right = true},
    {.title = "size", .kind = ROW_SIZE, AT(nbytes), .right = true},
    {.title = "layers",
     .kind = ROW_UINT,
     AT(layers),
     .known = is_several,
     .only = LAYERS,
     .if_any = LAYERS,
     .right = true},
    {.title = "name", .kind = ROW_STR, AT(name)},
    {.key = NULL},
};

static line line_of(const group *g)
{
    line out = {{g->shown ? g->shown : g->name.data, g->shown ? strlen(g->shown) : g->name.size},
                g->layers,
                g->tensors,
                g->nbytes,
                "-"};
    if (out.name.size == 0)
        out.name = (ckpt_str){"\"\"", 2};
    if (g->parameters)
        cli_count(out.parameters, g->parameters);
    return out;
}

void show_by_text(const show_by *b)
{
    row_text t;
    rows_begin(&t, columns, b->layers ? LAYERS : PLAIN, 2);
    for (size_t i = 0; i < b->group_count; i++) {
        line own = line_of(&b->groups[i]);
        if (b->groups[i].like == i)
            rows_measure(&t, &(row_parts){{&own}});
    }
    rows_head(&t, b->c);
    for (size_t i = 0; i < b->group_count; i++) {
        line own = line_of(&b->groups[i]);
        if (b->groups[i].like != i)
            continue;
        rows_line(&t, &(row_parts){{&own}});
        rows_end_line(&t);
    }
    rows_flush(&t);
}

void show_by_json(const show_by *b, json_out *j)
{
    json_array(j, "by");
    for (size_t i = 0; i < b->group_count; i++) {
        const group *g = &b->groups[i];
        const line own = line_of(g);
        if (g->like != i)
            continue;
        json_object(j, NULL);
        json_bytes(j, "name", g->shown ? own.name.data : g->name.data, g->shown ? own.name.size : g->name.size);
        json_uint(j, "tensors", g->tensors);
        json_uint(j, "parameters", g->parameters);
        json_uint(j, "nbytes", g->nbytes);
        if (b->layers) {
            json_array(j, "layers");
            for (size_t k = i; k < b->group_count; k++)
                if (b->groups[k].like == i)
                    json_bytes(j, NULL, b->groups[k].name.data, b->groups[k].name.size);
            json_end_array(j);
        }
        json_end_object(j);
    }
    json_end_array(j);
}
