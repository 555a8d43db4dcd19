/* format/keras/hdf5.c - an HDF5 file from its root down, without recursion: hard links to groups and datasets, each object by
 * one name. */
#include "format/keras/hdf5.h"
#include "io/trial.h"

#include <stdlib.h>

enum { NAME_MAX_BYTES = 4096 };

/* A group that waits. */
typedef struct waiting {
    ckpt_str path; /* in the arena; size 0: the root */
    unsigned depth;
} waiting;

/* The links of the group that is open. */
typedef struct listing {
    ckpt__h5 *h;
    ckpt_str path;
    ckpt_str *names;
    size_t count, capacity; /* heap; the names are in the index's arena */
    ckpt_status status;
    ckpt_error *err;
} listing;

typedef struct walk {
    ckpt__h5 *h;
    waiting *stack;
    size_t count, capacity; /* heap */
    listing links;
    ckpt__h5_laters laters;
} walk;

static const char *shown(ckpt_str path, char *buf, size_t size)
{
    return path.size ? ckpt__escape(buf, size, path.data, path.size) : "/";
}

/* ---- links */

static const char *link_kind(H5L_type_t type)
{
    return type == H5L_TYPE_SOFT ? "soft" : type == H5L_TYPE_EXTERNAL ? "external" : "user-defined";
}

static ckpt_status check_link(const listing *l, const char *name, H5L_type_t type)
{
    char text[160], group[200];
    size_t n = strlen(name);
    ckpt__escape(text, sizeof text, name, n < NAME_MAX_BYTES ? n : NAME_MAX_BYTES);
    const char *in = shown(l->path, group, sizeof group);
    if (type != H5L_TYPE_HARD)
        return ckpt__fail(l->err, CKPT_E_UNSUPPORTED, l->h->in->label,
                          "'%s' in group '%s' is %s %s link, which may lead out of the file: it is not followed. Keras "
                          "writes none; h5repack makes a file without",
                          text, in, type == H5L_TYPE_EXTERNAL ? "an" : "a", link_kind(type));
    if (n == 0 || n >= NAME_MAX_BYTES || strchr(name, '/') || strcmp(name, ".") == 0)
        return ckpt__fail(l->err, CKPT_E_FORMAT, l->h->in->label, "a link in group '%s' is called '%s'%s", in, text,
                          n >= NAME_MAX_BYTES ? ", and so on" : ", which is not a name of an object");
    return CKPT_OK;
}

static herr_t see_link(hid_t group, const char *name, const H5L_info_t *info, void *ctx)
{
    (void)group;
    listing *l = ctx;
    l->status = check_link(l, name, info->type);
    if (l->status != CKPT_OK)
        return -1;
    ckpt_str copy = ckpt__arena_str(l->h->index->arena, name, strlen(name));
    if (!copy.data || !ckpt__arena_grow(l->h->index->arena, &l->names, &l->capacity, l->count + 1, sizeof *l->names)) {
        l->status = ckpt__fail_memory(l->err, "the names of a group", l->count);
        return -1;
    }
    l->names[l->count++] = copy;
    return 0;
}

/* Numbers by their value, so that vars/2 comes before vars/10. */
static int by_name(const void *pa, const void *pb)
{
    const char *a = ((const ckpt_str *)pa)->data, *b = ((const ckpt_str *)pb)->data;
    static const char digits[] = "0123456789";
    while (*a && *b) {
        size_t n = strspn(a, digits), m = strspn(b, digits);
        if (n && m && n != m && *a != '0' && *b != '0')
            return n < m ? -1 : 1;
        if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        a++;
        b++;
    }
    return *a ? 1 : *b ? -1 : 0;
}

static ckpt_status list_links(walk *w, hid_t group, ckpt_str path, ckpt_error *err)
{
    listing *l = &w->links;
    char text[200];
    l->h = w->h;
    l->path = path;
    l->count = 0;
    l->status = CKPT_OK;
    l->err = err;
    herr_t walked = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, see_link, l);
    if (l->status != CKPT_OK)
        return l->status;
    if (walked < 0)
        return ckpt__h5_fail(w->h, shown(path, text, sizeof text), err);
    if (l->count)
        qsort(l->names, l->count, sizeof *l->names, by_name);
    return CKPT_OK;
}

/* ---- objects */

static ckpt_status join(ckpt__h5 *h, ckpt_str group, ckpt_str name, ckpt_str *out, ckpt_error *err)
{
    size_t n = group.size ? group.size + 1 : 0;
    char *text = ckpt__arena_alloc(h->index->arena, n + name.size + 1);
    if (!text)
        return ckpt__fail_memory(err, "names", n + name.size);
    if (n) {
        memcpy(text, group.data, group.size);
        text[group.size] = '/';
    }
    memcpy(text + n, name.data, name.size);
    *out = (ckpt_str){text, n + name.size};
    return CKPT_OK;
}

/* One name for one object: a second one is a circle, or the same bytes as two tensors. */
static ckpt_status first_time(ckpt__h5 *h, const H5O_info_t *info, ckpt_str path, ckpt_error *err)
{
    char text[200];
    uint64_t *address = ckpt__arena_alloc(h->index->arena, sizeof *address);
    if (!address)
        return ckpt__fail_memory(err, "the objects of a file", h->index->tensor_count);
    *address = info->addr;
    int put = ckpt__hash_put(h->seen, (const char *)address, sizeof *address, 0, NULL);
    if (put < 0)
        return ckpt__fail_memory(err, "the objects of a file", h->index->tensor_count);
    if (put == 0)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, h->in->label,
                          "'%s' is another name of an object that was met before (a hard link). Keras writes none; "
                          "h5repack makes two of it",
                          shown(path, text, sizeof text));
    return CKPT_OK;
}

static ckpt_status push(walk *w, ckpt_str path, unsigned depth, ckpt_error *err)
{
    char text[200];
    if (depth > CKPT__H5_DEPTH)
        return ckpt__fail(err, CKPT_E_LIMIT, w->h->in->label, "group '%s' lies in %d others, which is the most here",
                          shown(path, text, sizeof text), CKPT__H5_DEPTH);
    if (!ckpt__arena_grow(w->h->index->arena, &w->stack, &w->capacity, w->count + 1, sizeof *w->stack))
        return ckpt__fail_memory(err, "the groups of a file", w->count);
    w->stack[w->count++] = (waiting){path, depth};
    return CKPT_OK;
}

/* A group waits; a dataset becomes a tensor at once. */
static ckpt_status take(walk *w, hid_t object, ckpt_str path, unsigned depth, ckpt_error *err)
{
    ckpt__h5 *h = w->h;
    H5O_info_t info;
    char text[200];
    if (object < 0 || H5Oget_info2(object, &info, H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS) < 0)
        return ckpt__h5_fail(h, shown(path, text, sizeof text), err);
    ckpt_status status = first_time(h, &info, path, err);
    if (status == CKPT_OK && info.type == H5O_TYPE_DATASET)
        status = ckpt__h5_dataset(h, object, path, err);
    else if (status == CKPT_OK && info.type == H5O_TYPE_GROUP)
        status = push(w, path, depth, err);
    return status == CKPT_OK ? ckpt__h5_attributes(h, object, path, info.num_attrs, &w->laters, err) : status;
}

static ckpt_status read_group(walk *w, waiting at, ckpt_error *err)
{
    char text[200];
    hid_t group = H5Gopen2(w->h->file, at.path.size ? at.path.data : "/", H5P_DEFAULT);
    if (group < 0)
        return ckpt__h5_fail(w->h, shown(at.path, text, sizeof text), err);
    ckpt_status status = list_links(w, group, at.path, err);
    size_t first = w->count;
    for (size_t i = 0; status == CKPT_OK && i < w->links.count; i++) {
        ckpt_str name = w->links.names[i], path;
        hid_t object = H5Oopen(group, name.data, H5P_DEFAULT);
        status = object < 0 ? ckpt__h5_fail(w->h, shown(name, text, sizeof text), err)
                            : join(w->h, at.path, name, &path, err);
        if (status == CKPT_OK)
            status = take(w, object, path, at.depth + 1, err);
        if (object >= 0)
            H5Oclose(object);
    }
    for (size_t i = first, k = w->count; i + 1 < k; i++, k--) { /* the first is taken next */
        waiting kept = w->stack[i];
        w->stack[i] = w->stack[k - 1];
        w->stack[k - 1] = kept;
    }
    H5Gclose(group);
    return status;
}

static ckpt_status read_root(walk *w, ckpt_error *err)
{
    static const ckpt_str top = {"", 0};
    hid_t root = H5Gopen2(w->h->file, "/", H5P_DEFAULT);
    ckpt_status status = root < 0 ? ckpt__h5_fail(w->h, "/", err) : take(w, root, top, 0, err);
    if (root >= 0)
        H5Gclose(root);
    while (status == CKPT_OK && w->count)
        status = read_group(w, w->stack[--w->count], err);
    return status == CKPT_OK ? ckpt__h5_read_later(w->h, &w->laters, err) : status;
}

static ckpt_status read_all(const ckpt__h5_input *input, ckpt__index *index, ckpt__keras_values *values,
                            ckpt_error *err)
{
    ckpt__h5 h = {.in = input, .index = index, .values = values, .seen = ckpt__hash_new(64)};
    walk w = {.h = &h};
    if (!h.seen)
        return ckpt__fail_memory(err, "the objects of a file", 0);
    ckpt_status status = ckpt__h5_open(&h, err);
    if (status == CKPT_OK) {
        status = read_root(&w, err);
        ckpt__h5_close(&h);
    }
    ckpt__arena_discharge(index->arena, w.capacity * sizeof *w.stack + w.links.capacity * sizeof *w.links.names +
                                            w.laters.capacity * sizeof *w.laters.items);
    free(w.stack);
    free(w.links.names);
    free(w.laters.items);
    ckpt__hash_free(h.seen);
    return status;
}

/* ---- libhdf5 crashes on damaged files (1.10.8: for one in some hundred flipped bytes), and where it only fails it may leave
 * objects open, of which it complains at the program's end. So each file is tried in a process of its own first, and one that is
 * not read there is not read here. */

/* libhdf5 itself takes some MiB for what it keeps, beside what is known of the file. */
enum { SECONDS = 60, OWN = 32 << 20 };

typedef struct trial {
    const ckpt__h5_input *input;
    uint64_t limit;
} trial;

static ckpt_status try_it(void *ctx, ckpt_error *err)
{
    const trial *t = ctx;
    ckpt__keras_values values = {0};
    ckpt__index *scratch = ckpt__index_new(t->limit);
    ckpt_status status = scratch ? read_all(t->input, scratch, &values, err) : ckpt__fail_memory(err, "index", 0);
    status = ckpt__index_refused(scratch, status, t->input->label, err);
    free(values.entries);
    ckpt__index_free(scratch);
    return status;
}

ckpt_status ckpt__h5_read(const ckpt__h5_input *input, ckpt__index *index, ckpt__keras_values *values, ckpt_error *err)
{
    trial t = {input, ckpt__arena_limit(index->arena)};
    ckpt_status status = ckpt__h5_enter(input->label, err);
    if (status < 0)
        return status;
    const ckpt__trial_want want = {.fn = try_it,
                                   .ctx = &t,
                                   .seconds = SECONDS,
                                   .memory = t.limit && t.limit < UINT64_MAX - OWN ? t.limit + OWN : 0,
                                   .label = input->label,
                                   .what = "libhdf5"};
    status = ckpt__trial(&want, err);
    if (status == CKPT_OK)
        status = read_all(input, index, values, err);
    ckpt__h5_leave();
    return status;
}
