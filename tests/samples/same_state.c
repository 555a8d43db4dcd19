/* same_state.c - do two checkpoints hold the same training state, bit for bit? Wherever its tensors lay.
 *
 *     same_state A B
 *
 * Every tensor by name: role, dtype, shape, bytes. Every value by name: kind and value, floats by their bits. Device
 * tags and file layout are not compared. Exit status as cmp's: 0 the same, 1 different (a line for each), 2 trouble. */
#include <ckpt/inspect.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct list {
    char **lines;
    size_t count, room;
} list;

static void trouble(const char *what)
{
    fprintf(stderr, "same_state: %s\n", what);
    exit(2);
}

static ckpt_reader *open_reader(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    if (ckpt_reader_open(path, NULL, &reader, &err) < 0) {
        fprintf(stderr, "same_state: %s: %s\n", path, err.message);
        exit(2);
    }
    return reader;
}

static void *read_tensor(const ckpt_reader *reader, size_t i)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    void *data = malloc(t->nbytes ? t->nbytes : 1);
    if (!data)
        trouble("out of memory");
    if (ckpt_reader_read(reader, i, data, t->nbytes, &err) < 0) {
        fprintf(stderr, "same_state: %s: %s\n", t->name.data, err.message);
        exit(2);
    }
    return data;
}

static bool same_tensor(const ckpt_reader *a, size_t i, const ckpt_reader *b)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_tensor_info *x = ckpt_reader_tensor(a, i), *y;
    size_t k;
    if (ckpt_reader_find(b, x->name.data, x->name.size, &k, &err) < 0) {
        printf("%s: only in one of them\n", x->name.data);
        return false;
    }
    y = ckpt_reader_tensor(b, k);
    bool same = x->dtype == y->dtype && x->ndim == y->ndim && x->nbytes == y->nbytes && x->role == y->role;
    for (uint32_t d = 0; same && d < x->ndim; d++)
        same = x->shape[d] == y->shape[d];
    if (!same) {
        printf("%s: dtype, role or shape differ\n", x->name.data);
        return false;
    }
    void *p = read_tensor(a, i), *q = read_tensor(b, k);
    same = memcmp(p, q, x->nbytes) == 0;
    if (!same)
        printf("%s: the bytes differ\n", x->name.data);
    free(p);
    free(q);
    return same;
}

/* One line a leaf: name, kind, value. */
static int add_leaf(void *ctx, const ckpt_visit *visit)
{
    list *l = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE || v->kind == CKPT_V_TENSOR)
        return 0;
    size_t size = visit->name.size + 2 * v->text.size + 128;
    char *line = malloc(size);
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->lines = realloc(l->lines, l->room * sizeof *l->lines);
    }
    if (!line || !l->lines)
        trouble("out of memory");
    int n = snprintf(line, size, "%.*s: %s %d %" PRId64 " %a ", (int)visit->name.size, visit->name.data,
                     ckpt_kind_name(v->kind), v->boolean, v->integer, v->real);
    for (size_t i = 0; i < v->text.size; i++)
        n += snprintf(line + n, size - (size_t)n, "%02x", (unsigned char)v->text.data[i]);
    l->lines[l->count++] = line;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static list leaves(const ckpt_reader *reader)
{
    ckpt_error err = CKPT_ERROR_INIT;
    list l = {NULL, 0, 0};
    if (ckpt_reader_root(reader) && ckpt_value_walk(ckpt_reader_root(reader), 0, add_leaf, &l, &err) < 0)
        trouble(err.message);
    if (l.count)
        qsort(l.lines, l.count, sizeof *l.lines, by_text);
    return l;
}

static bool same_values(const list *a, const list *b)
{
    bool same = true;
    size_t i = 0, k = 0;
    while (i < a->count || k < b->count) {
        int order = i == a->count ? 1 : k == b->count ? -1 : strcmp(a->lines[i], b->lines[k]);
        if (order < 0)
            printf("< %s\n", a->lines[i]);
        if (order > 0)
            printf("> %s\n", b->lines[k]);
        same = same && order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    return same;
}

static void free_list(list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->lines[i]);
    free(l->lines);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        trouble("usage: same_state A B");
    ckpt_reader *a = open_reader(argv[1]), *b = open_reader(argv[2]);
    size_t n = ckpt_reader_tensor_count(a);
    bool same = true;
    if (n != ckpt_reader_tensor_count(b)) {
        printf("%zu and %zu tensors\n", n, ckpt_reader_tensor_count(b));
        same = false;
    }
    for (size_t i = 0; i < n; i++)
        same = same_tensor(a, i, b) && same;
    list x = leaves(a), y = leaves(b);
    same = same_values(&x, &y) && same;
    if (n == 0 || x.count == 0)
        trouble("nothing to compare");
    if (same)
        printf("%zu tensors and %zu values: the same\n", n, x.count);
    free_list(&x);
    free_list(&y);
    ckpt_reader_close(a);
    ckpt_reader_close(b);
    return same ? 0 : 1;
}
