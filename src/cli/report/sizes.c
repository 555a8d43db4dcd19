/* report/sizes.c - who holds what, before and after; sizes by role, dtype, layer; the largest tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/report/page.h"

/* Bytes under one name: a device, a role, a dtype, a layer. */
typedef struct tally {
    char name[64];
    uint64_t tensors, nbytes, parts[HTML_KINDS];
} tally;
typedef struct tallies {
    tally rows[REPORT_TAGS];
    size_t count;
} tallies;

static void tally_add(tally *t, ckpt_role role, uint64_t tensors, uint64_t nbytes)
{
    unsigned kind = html_kind_of(role);
    t->tensors = html_add(t->tensors, tensors);
    t->nbytes = html_add(t->nbytes, nbytes);
    t->parts[kind] = html_add(t->parts[kind], nbytes);
}

/* Tags come from files: those past the table's end share its last row. */
static tally *tally_named(tallies *all, const char *data, size_t size)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(size < sizeof key ? size : sizeof key - 1), data);
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->rows[i].name, key) == 0)
            return &all->rows[i];
    if (all->count == REPORT_TAGS) {
        strcpy(all->rows[REPORT_TAGS - 1].name, "(others)");
        return &all->rows[REPORT_TAGS - 1];
    }
    tally *row = &all->rows[all->count++];
    memset(row, 0, sizeof *row);
    strcpy(row->name, key);
    return row;
}

static int by_size(const void *a, const void *b)
{
    const tally *x = a, *y = b;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? 1 : -1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const tally *x = a, *y = b;
    size_t n = strlen(x->name), m = strlen(y->name); /* cuda:2 before cuda:10 */
    bool both = strncmp(x->name, "cuda:", 5) == 0 && strncmp(y->name, "cuda:", 5) == 0;
    return both && n != m ? (n > m) - (n < m) : strcmp(x->name, y->name);
}

/* ---- devices */

static void put_device(FILE *f, const char *name)
{
    if (*name)
        html_put(f, name, strlen(name));
    else
        fputs("no device tag", f);
}

static void device_bars(report_page *p, const tallies *all, uint64_t whole, const char *title)
{
    FILE *f = p->f;
    char size[CLI_SIZE_MAX];
    fputs("<div>\n<h3>", f);
    html_text(f, title);
    fputs("</h3>\n<ul class=\"hold\">\n", f);
    for (size_t i = 0; i < all->count && i < REPORT_DEVICES; i++) {
        const tally *t = &all->rows[i];
        fputs("<li><div class=\"holder\"><span class=\"name\">", f);
        put_device(f, t->name);
        fprintf(f, "</span><span>%s</span></div>", cli_size(size, t->nbytes));
        html_bar(f, t->parts, whole, *t->name ? t->name : "no device tag");
        fputs("</li>\n", f);
    }
    fputs("</ul>\n", f);
    if (all->count > REPORT_DEVICES)
        fprintf(f, "<p class=\"quiet\">and %zu more</p>\n", all->count - REPORT_DEVICES);
    fputs("</div>\n", f);
}

/* One tensor's worth of a row of "who holds what". */
typedef struct move {
    const char *from, *to; /* to NULL: not known */
    size_t from_size;
    ckpt_role role;
    uint64_t tensors, nbytes;
} move;

static void move_row(FILE *f, const move *m, bool after)
{
    fputs("<tr><th scope=\"row\"><span class=\"name word\">", f);
    if (m->from_size)
        html_put(f, m->from, m->from_size);
    else
        fputs("no device tag", f);
    fputs("</span></th>", f);
    if (after) {
        fputs("<td class=\"name word\">", f);
        put_device(f, m->to);
        fputs("</td>", f);
    }
    fprintf(f, "<td>%s</td><td class=\"n\">", ckpt_role_name(m->role));
    html_count(f, m->tensors);
    fputs("</td><td class=\"n\">", f);
    html_count(f, m->nbytes);
    fputs("</td></tr>\n", f);
}

static void move_table(report_page *p, const move *moves, size_t count, bool after)
{
    static const char *const both[] = {"saved on", "comes back on", "role", "#tensors", "#bytes", NULL},
                             *const saved[] = {"saved on", "role", "#tensors", "#bytes", NULL};
    size_t shown = 0;
    html_table(p->f, after ? "Bytes per device, before and after" : "Bytes per device", after ? both : saved);
    for (; shown < count && shown < REPORT_MOVES && report_room(p); shown++)
        move_row(p->f, &moves[shown], after);
    html_table_end(p->f);
    if (shown < count)
        fprintf(p->f, "<p class=\"quiet\">and %zu more</p>\n", count - shown);
}

/* What the reader's tags say: a row for each tag and role. */
static size_t moves_of_tags(const report_page *p, const ckpt_reader *reader, move *out, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        size_t k = 0, size = t->device.data ? t->device.size : 0;
        const char *tag = size ? t->device.data : "";
        if (!cli_selected(&p->o->cli, t))
            continue;
        while (k < count && (out[k].role != t->role || out[k].from_size != size || memcmp(out[k].from, tag, size) != 0))
            k++;
        if (k == most) /* so many tags and roles: the last row takes the rest */
            k--;
        else if (k == count)
            out[count++] = (move){.from = tag, .from_size = size, .role = t->role};
        out[k].tensors++;
        out[k].nbytes = html_add(out[k].nbytes, t->nbytes);
    }
    return count;
}

static int move_by_size(const void *a, const void *b)
{
    const move *x = a, *y = b;
    return x->nbytes != y->nbytes ? (x->nbytes < y->nbytes ? 1 : -1) : (x->role > y->role) - (x->role < y->role);
}

static uint64_t largest_of(const tallies *all)
{
    uint64_t most = 0;
    for (size_t i = 0; i < all->count; i++)
        most = all->rows[i].nbytes > most ? all->rows[i].nbytes : most;
    return most;
}

static void device_pictures(report_page *p, const move *moves, size_t count, bool after, tallies *before, tallies *then)
{
    uint64_t parts[HTML_KINDS] = {0};
    for (size_t i = 0; i < count; i++) {
        const move *m = &moves[i];
        unsigned kind = html_kind_of(m->role);
        parts[kind] = html_add(parts[kind], m->nbytes);
        tally_add(tally_named(before, m->from, m->from_size), m->role, m->tensors, m->nbytes);
        if (after)
            tally_add(tally_named(then, m->to, strlen(m->to)), m->role, m->tensors, m->nbytes);
    }
    uint64_t whole = largest_of(before), other = largest_of(then);
    whole = other > whole ? other : whole;
    qsort(before->rows, before->count, sizeof *before->rows, by_name);
    qsort(then->rows, then->count, sizeof *then->rows, by_name);
    fputs("<div class=\"pair\">\n", p->f);
    device_bars(p, before, whole, after ? "Before: as it was saved" : "As it was saved");
    if (after)
        device_bars(p, then, whole, "After: where it comes back");
    fputs("</div>\n", p->f);
    html_legend(p->f, parts);
}

void report_devices(report_page *p, const ckpt_reader *reader, const ckpt_doctor_result *result)
{
    enum { MOST = REPORT_TAGS };
    bool after = result && result->place_count > 0;
    size_t count = after ? result->place_count : MOST;
    move *moves = calloc(count, sizeof *moves);
    tallies *sums = calloc(2, sizeof *sums);
    if (moves && sums) {
        for (size_t i = 0; after && i < count; i++) {
            const ckpt_doctor_place *d = result->places[i];
            moves[i] = (move){d->from, d->to, strlen(d->from), d->role, d->tensors, d->nbytes};
        }
        if (!after)
            count = moves_of_tags(p, reader, moves, MOST);
        qsort(moves, count, sizeof *moves, move_by_size);
        html_section(p->f, "devices", "Where the bytes are");
        if (count == 0)
            fputs("<p>There are no tensors.</p>\n", p->f);
        else
            device_pictures(p, moves, count, after, &sums[0], &sums[1]);
        if (result && !after && count > 0)
            fputs("<p class=\"quiet\">Where the tensors come back was not worked out.</p>\n", p->f);
        if (count > 0)
            move_table(p, moves, count, after);
        html_section_end(p->f);
    }
    free(moves);
    free(sums);
}

/* ---- sizes */

static void tally_table(report_page *p, const char *caption, const char *what, tallies *all, uint64_t whole)
{
    const char *heads[] = {what, "#tensors", "#size", "#share", "|", NULL};
    uint64_t most = largest_of(all);
    qsort(all->rows, all->count, sizeof *all->rows, by_size);
    html_table(p->f, caption, heads);
    for (size_t i = 0; i < all->count && i < 64; i++) {
        const tally *t = &all->rows[i];
        fputs("<tr><th scope=\"row\">", p->f);
        html_put(p->f, t->name, strlen(t->name));
        fputs("</th><td class=\"n\">", p->f);
        html_count(p->f, t->tensors);
        fputs("</td><td class=\"n\">", p->f);
        html_size(p->f, t->nbytes);
        fputs("</td><td class=\"n\">", p->f);
        html_share(p->f, t->nbytes, whole);
        fputs("</td><td class=\"bars\">", p->f);
        html_bar(p->f, t->parts, most, NULL);
        fputs("</td></tr>\n", p->f);
    }
    html_table_end(p->f);
}

/* A tensor and the layer it belongs to: a piece of its name, or of its parameter's. */
typedef struct member {
    ckpt_str layer;
    size_t tensor;
} member;
typedef struct layer {
    ckpt_str name;
    size_t first;   /* tensor: layers of one size stand in the file's order */
    uint64_t alike; /* so many of one kind and size are one row */
    uint64_t tensors, nbytes, parts[HTML_KINDS];
} layer;

static int by_layer(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = cli_str_order(x->layer, y->layer);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* The first number of a name that stands between dots: "blocks." and ".mlp" are around that of "blocks.3.mlp". before.data
 * NULL: there is none. */
typedef struct stem {
    ckpt_str before, after;
} stem;

static stem stem_of(ckpt_str name)
{
    for (size_t begin = 0, end; begin < name.size; begin = end + 1) {
        for (end = begin; end < name.size && name.data[end] >= '0' && name.data[end] <= '9'; end++)
            ;
        if (end > begin && (end == name.size || name.data[end] == '.'))
            return (stem){{name.data, begin}, {name.data + end, name.size - end}};
        while (end < name.size && name.data[end] != '.')
            end++;
    }
    return (stem){{NULL, 0}, name};
}

static int layer_by_size(const void *a, const void *b)
{
    const layer *x = a, *y = b;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Those that can be one row stand together, in the file's order. */
static int layer_by_kind(const void *a, const void *b)
{
    const layer *x = a, *y = b;
    stem one = stem_of(x->name), other = stem_of(y->name);
    int order = cli_str_order(one.before, other.before);
    if (order == 0)
        order = cli_str_order(one.after, other.after);
    if (order == 0)
        order = (x->nbytes > y->nbytes) - (x->nbytes < y->nbytes);
    return order ? order : (x->first > y->first) - (x->first < y->first);
}

static bool is_alike(const layer *a, const layer *b)
{
    stem x = stem_of(a->name), y = stem_of(b->name);
    return x.before.data && y.before.data && cli_str_order(x.before, y.before) == 0 &&
           cli_str_order(x.after, y.after) == 0 && a->nbytes == b->nbytes && a->tensors == b->tensors &&
           memcmp(a->parts, b->parts, sizeof a->parts) == 0;
}

/* Three and more layers of a stack that have the same tensors become one row; what is odd among them stands alone. */
static size_t join_alike(layer *all, size_t count)
{
    enum { FEWEST = 3 };
    size_t n = 0;
    qsort(all, count, sizeof *all, layer_by_kind);
    for (size_t i = 0, k; i < count; i = k) {
        for (k = i + 1; k < count && is_alike(&all[i], &all[k]); k++)
            ;
        if (k - i < FEWEST) {
            for (; i < k; i++)
                all[n++] = all[i];
            continue;
        }
        layer l = all[i];
        l.alike = k - i;
        for (size_t m = i + 1; m < k; m++) {
            l.tensors += all[m].tensors;
            l.nbytes = html_add(l.nbytes, all[m].nbytes);
            for (unsigned kind = 0; kind < HTML_KINDS; kind++)
                l.parts[kind] = html_add(l.parts[kind], all[m].parts[kind]);
        }
        all[n++] = l;
    }
    return n;
}

/* Sorted by layer, *members becomes the layers, largest first. */
static size_t layers_of(const ckpt_reader *reader, member *members, size_t count, layer *out)
{
    size_t n = 0;
    qsort(members, count, sizeof *members, by_layer);
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, members[i].tensor);
        ckpt_str name = members[i].layer;
        if (n == 0 || out[n - 1].name.size != name.size || memcmp(out[n - 1].name.data, name.data, name.size) != 0)
            out[n++] = (layer){.name = name, .first = members[i].tensor};
        layer *l = &out[n - 1];
        unsigned kind = html_kind_of(t->role);
        l->tensors++;
        l->nbytes = html_add(l->nbytes, t->nbytes);
        l->parts[kind] = html_add(l->parts[kind], t->nbytes);
    }
    n = join_alike(out, n);
    qsort(out, n, sizeof *out, layer_by_size);
    return n;
}

/* The selected tensors with their layers. Optimizer state goes with its parameter, and the path of the model's dict is
 * left out, where that is known. */
static size_t members_of(const report_page *p, const ckpt_reader *reader, const ckpt_naming *naming, member *out)
{
    size_t n = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (!cli_selected(&p->o->cli, t))
            continue;
        ckpt_str name = cli_layer_name(reader, naming, i);
        out[n++] = (member){{name.data, cli_layer_size(name)}, i};
    }
    return n;
}

static void layer_row(FILE *f, const layer *l, uint64_t whole, uint64_t most)
{
    fputs("<tr><th scope=\"row\"><span class=\"name long\">", f);
    if (l->alike) {
        char each[CLI_SIZE_MAX], n[CLI_SIZE_MAX];
        stem around = stem_of(l->name);
        html_str(f, around.before, "");
        fputs("*", f);
        html_str(f, around.after, "");
        fputs("</span> <span class=\"quiet\">", f);
        fprintf(f, "%s alike, %s each</span></th><td class=\"n\">", cli_count(n, l->alike),
                cli_size(each, l->nbytes / l->alike));
    } else {
        html_str(f, l->name, "");
        fputs(l->name.size ? "</span></th><td class=\"n\">" : "(no name)</span></th><td class=\"n\">", f);
    }
    html_count(f, l->tensors);
    fputs("</td><td class=\"n\">", f);
    html_size(f, l->nbytes);
    fputs("</td><td class=\"n\">", f);
    html_share(f, l->nbytes, whole);
    fputs("</td><td class=\"bars\">", f);
    html_bar(f, l->parts, most, NULL);
    fputs("</td></tr>\n", f);
}

static void layer_table(report_page *p, const layer *layers, size_t count, uint64_t whole)
{
    static const char *const heads[] = {"layer", "#tensors", "#size", "#share", "|", NULL};
    uint64_t parts[HTML_KINDS] = {0}, tensors = 0, bytes = 0;
    size_t shown = 0;
    html_table(p->f, "Size by layer (weights and optimizer state)", heads);
    for (; shown < count && shown < REPORT_LAYERS && report_room(p); shown++) {
        bool speck = whole > 0 && layers[shown].nbytes < whole / 1000; /* callbacks' scores, by the dozen */
        if (speck && shown >= REPORT_SPECKS)
            break;
        layer_row(p->f, &layers[shown], whole, layers[0].nbytes);
    }
    for (size_t i = 0; i < count; i++) {
        for (unsigned k = 0; k < HTML_KINDS; k++)
            parts[k] = html_add(parts[k], layers[i].parts[k]);
        tensors += i < shown ? 0 : layers[i].tensors;
        bytes = i < shown ? bytes : html_add(bytes, layers[i].nbytes);
    }
    if (shown < count) {
        fprintf(p->f, "<tr><th scope=\"row\">and %zu more</th><td class=\"n\">", count - shown);
        html_count(p->f, tensors);
        fputs("</td><td class=\"n\">", p->f);
        html_size(p->f, bytes);
        fputs("</td><td class=\"n\">", p->f);
        html_share(p->f, bytes, whole);
        fputs("</td><td class=\"bars\"></td></tr>\n", p->f);
    }
    html_table_end(p->f);
    html_legend(p->f, parts);
}

/* ---- the largest tensors */

static void shape_cell(FILE *f, const ckpt_tensor_info *t)
{
    fputs("<td class=\"name word\">[", f);
    for (uint32_t i = 0; i < t->ndim && i < 16; i++)
        fprintf(f, i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
    fputs(t->ndim > 16 ? ", ...]</td>" : "]</td>", f);
}

/* Tensors of one shape, of which the first is shown. */
typedef struct shape {
    size_t tensor;
    uint64_t count;
} shape;

static bool same_shape(const ckpt_tensor_info *a, const ckpt_tensor_info *b)
{
    return a->nbytes == b->nbytes && a->dtype == b->dtype && a->role == b->role && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0) &&
           a->device.size == b->device.size &&
           (a->device.size == 0 || memcmp(a->device.data, b->device.data, a->device.size) == 0);
}

/* The shapes of the largest tensors, the largest first: *n of them. */
static void find_largest(const ckpt_reader *reader, const member *members, size_t count, shape *top, size_t *n)
{
    for (size_t i = 0; i < count; i++) {
        size_t tensor = members[i].tensor, at = 0;
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, tensor);
        while (at < *n && !same_shape(ckpt_reader_tensor(reader, top[at].tensor), t))
            at++;
        if (at < *n) {
            top[at].count++;
            top[at].tensor = tensor < top[at].tensor ? tensor : top[at].tensor;
            continue;
        }
        for (at = *n; at > 0; at--) {
            const ckpt_tensor_info *other = ckpt_reader_tensor(reader, top[at - 1].tensor);
            if (other->nbytes > t->nbytes || (other->nbytes == t->nbytes && top[at - 1].tensor < tensor))
                break;
            if (at < REPORT_LARGEST)
                top[at] = top[at - 1];
        }
        if (at < REPORT_LARGEST)
            top[at] = (shape){tensor, 1};
        *n += *n < REPORT_LARGEST;
    }
}

static void largest_table(report_page *p, const ckpt_reader *reader, const member *members, size_t count)
{
    static const char *const heads[] = {"name",   "#of this shape", "dtype",         "shape",
                                        "device", "role",           "#size of each", NULL};
    shape top[REPORT_LARGEST];
    size_t n = 0;
    uint64_t left = count;
    find_largest(reader, members, count, top, &n);
    html_table(p->f, "The largest tensors", heads);
    for (size_t i = 0; i < n && report_room(p); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, top[i].tensor);
        fputs("<tr><th scope=\"row\"><span class=\"name long\">", p->f);
        html_str(p->f, t->name, "");
        fputs("</span></th><td class=\"n\">", p->f);
        html_count(p->f, top[i].count);
        fprintf(p->f, "</td><td class=\"name word\">%s</td>", ckpt_dtype_name(t->dtype));
        shape_cell(p->f, t);
        fputs("<td class=\"name word\">", p->f);
        html_str(p->f, t->device, "none");
        fprintf(p->f, "</td><td>%s</td><td class=\"n\">", ckpt_role_name(t->role));
        html_size(p->f, t->nbytes);
        fputs("</td></tr>\n", p->f);
        left -= top[i].count < left ? top[i].count : left;
    }
    html_table_end(p->f);
    if (left)
        fprintf(p->f, "<p class=\"quiet\">and %" PRIu64 " more: <code>ckpt-inspect list</code> has all.</p>\n", left);
}

static void sizes_tables(report_page *p, const ckpt_reader *reader, member *members, layer *layers, tallies *sums,
                         size_t count)
{
    uint64_t whole = 0;
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, members[i].tensor);
        const char *role = ckpt_role_name(t->role), *dtype = ckpt_dtype_name(t->dtype);
        whole = html_add(whole, t->nbytes);
        tally_add(tally_named(&sums[0], role, strlen(role)), t->role, 1, t->nbytes);
        tally_add(tally_named(&sums[1], dtype, strlen(dtype)), t->role, 1, t->nbytes);
    }
    size_t n = layers_of(reader, members, count, layers);
    html_section(p->f, "sizes", "Sizes");
    fputs("<div class=\"pair\">\n", p->f);
    tally_table(p, "By role", "role", &sums[0], whole);
    tally_table(p, "By dtype", "dtype", &sums[1], whole);
    fputs("</div>\n", p->f);
    layer_table(p, layers, n, whole);
    largest_table(p, reader, members, count);
    html_section_end(p->f);
}

void report_sizes(report_page *p, const ckpt_reader *reader)
{
    size_t count = ckpt_reader_tensor_count(reader);
    ckpt_naming *naming = NULL;
    member *members = calloc(count + 1, sizeof *members);
    layer *layers = calloc(count + 1, sizeof *layers);
    tallies *sums = calloc(2, sizeof *sums);
    if (members && layers && sums && ckpt_naming_new(reader, NULL, &naming, NULL, NULL) < 0)
        naming = NULL; /* the names that the file has will do */
    if (members && layers && sums && (count = members_of(p, reader, naming, members)) > 0)
        sizes_tables(p, reader, members, layers, sums, count);
    ckpt_naming_free(naming);
    free(members);
    free(layers);
    free(sums);
}
