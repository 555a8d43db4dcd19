/* format/torch/legacy_read.c - PyTorch's format before 1.6 (torch/serialization.py, _legacy_save and _legacy_load): five
 * pickles, which are a magic number, 1001, a description of the machine, the object and the keys of its storages; then in
 * the order of those keys, which is that of the text, each storage as its number of elements (int64, little-endian) and
 * their bytes, without any alignment.
 *
 * Elements are little-endian on every machine (torch/csrc/serialization.cpp swaps them on others); the number in front of
 * them was not always, so both orders of it are taken. Nothing has a checksum. */
#include "format/torch/torch.h"

#include <stdlib.h>

static const char magic_number[] = "119547037146038801333356"; /* 0x1950a86a20f9469cfc6c */
enum { PROTOCOL_VERSION = 1001, NUMBER_SIZE = 8 };

/* A storage that has bytes in the file. Behind the five pickles each storage has 8 bytes with its number of elements, and then its
 * bytes: for 12 float32 at byte 900 the number 12 is at 900..907, and the storage has offset 908 and nbytes 48. */
typedef struct root {
    ckpt_str key;
    uint64_t nbytes;
    unsigned item_sizes; /* bit n: some description of it has elements of 1 << n bytes */
    bool listed, missing;
    uint64_t offset, there; /* its bytes, and how many of them the file has */
} root;

struct ckpt__torch_legacy {
    ckpt__torch_legacy_input in;
    root *roots; /* heap */
    size_t count, capacity;
    ckpt__hash *by_key; /* key -> number in `roots` */
    uint64_t at;        /* the next byte to read */
};

void ckpt__torch_legacy_free(struct ckpt__torch_legacy *l)
{
    if (!l)
        return;
    ckpt__hash_free(l->by_key);
    free(l->roots);
    free(l);
}

/* ---- the pickles */

static ckpt_status next_pickle(ckpt__torch *t, ckpt__pickle *out, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    const unsigned char *from = l->in.bytes + l->at;
    t->pickle_at = l->at;
    ckpt_status status = ckpt__pickle_read_kept(from, l->in.held - (size_t)l->at, t->label, t->arena, out, err);
    if (status == CKPT_OK)
        l->at += out->end;
    else
        ckpt__error_prefix(err, "in the pickle that begins at byte %llu: ", (unsigned long long)l->at);
    return status;
}

/* All five are read by one unpickler. */
static void note_strange(ckpt__torch *t, const ckpt__pickle *p)
{
    if (t->depth == 0 && !t->index->pickle_strange)
        t->index->pickle_strange = p->strange;
}

static bool is_magic(const ckpt__pickle_node *n)
{
    return n->kind == CKPT__P_BIGINT && ckpt__str_is(n->u.text, magic_number);
}

static bool is_version(const ckpt__pickle_node *n)
{
    return n->kind == CKPT__P_INT && n->u.integer == PROTOCOL_VERSION;
}

/* torch loads what says nothing of the machine, and does not look at it; a program may have put anything there. */
static bool is_sys_info(const ckpt__pickle_node *n)
{
    (void)n;
    return true;
}

static ckpt_status read_head(ckpt__torch *t, ckpt_error *err)
{
    static const struct {
        bool (*right)(const ckpt__pickle_node *);
        const char *what;
    } heads[] = {
        {is_magic, "the magic number of PyTorch's format before 1.6"},
        {is_version, "1001, the version of PyTorch's format before 1.6"},
        {is_sys_info, ""},
    };
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < sizeof heads / sizeof heads[0]; i++) {
        ckpt__pickle p;
        uint64_t from = t->legacy->at;
        status = next_pickle(t, &p, err);
        if (status == CKPT_OK)
            note_strange(t, &p);
        if (status == CKPT_OK && !heads[i].right(p.root))
            status = ckpt__fail(err, CKPT_E_FORMAT, t->label, "the pickle at byte %llu is not %s",
                                (unsigned long long)from, heads[i].what);
        if (status == CKPT_OK && i == 2 && t->depth == 0 && (p.root->kind != CKPT__P_DICT || p.global_count) &&
            !ckpt__report_add(
                t->index->findings, CKPT_SEVERITY_WARNING, "odd-sys-info", NULL, "scan it before you load it",
                "the third pickle of this file describes something else than a machine; torch.save writes a "
                "dict of numbers there"))
            status = ckpt__torch_no_memory(t, err);
        ckpt__pickle_free(&p);
    }
    return status;
}

/* ---- the storages, as the object's persistent ids describe them */

static ckpt_status note_root(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    char shown[200];
    size_t i = l->count;
    uint64_t nbytes;
    ckpt__escape(shown, sizeof shown, id->key.data, id->key.size);
    if (!ckpt__torch_storage_size(id, id->numel, &nbytes))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "storage %s: %lld elements overflow 64 bits", shown,
                                (long long)id->numel);
    if (!ckpt__grow(&l->roots, &l->capacity, l->count + 1, sizeof *l->roots))
        return ckpt__torch_no_memory(t, err);
    int put = ckpt__hash_put(l->by_key, id->key.data, id->key.size, i, &i);
    if (put < 0)
        return ckpt__torch_no_memory(t, err);
    if (put == 1)
        l->roots[l->count++] = (root){.key = id->key, .nbytes = nbytes};
    if (l->roots[i].nbytes != nbytes)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                                "storage %s is described twice, with %llu and with %llu bytes", shown,
                                (unsigned long long)l->roots[i].nbytes, (unsigned long long)nbytes);
    size_t size = ckpt_dtype_size(id->dtype);
    for (unsigned n = 0; n <= 4; n++)
        if (size == (size_t)1 << n || (size == 0 && n == 0))
            l->roots[i].item_sizes |= 1u << n;
    return CKPT_OK;
}

static ckpt_status note_roots(ckpt__torch *t, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < t->pickle.persistent_count; i++) {
        const ckpt__pickle_node *p = t->pickle.persistents[i];
        ckpt__torch_id id;
        if (ckpt__torch_module(p))
            continue;
        status = ckpt__torch_parse_id(t, p, &id, err);
        if (status == CKPT_OK && id.untyped &&
            !ckpt__torch_refuses(t,
                                 "AttributeError: type object 'torch.storage.UntypedStorage' has no attribute 'dtype'"))
            return ckpt__torch_no_memory(t, err);
        if (status == CKPT_OK)
            status = note_root(t, p, &id, err);
    }
    return status;
}

static ckpt_status read_object(ckpt__torch *t, ckpt_error *err)
{
    ckpt_status status = next_pickle(t, &t->pickle, err);
    if (status == CKPT_OK)
        status = ckpt__torch_check_late(t, err);
    if (status == CKPT_OK && !ckpt__torch_check_ids(t))
        return ckpt__torch_no_memory(t, err);
    if (status < 0)
        return status;
    note_strange(t, &t->pickle);
    if (t->pickle.text_persid)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, t->label,
            "pickled with protocol 0: its storages are named by text that torch itself cannot load. Save it "
            "again without pickle_protocol=0");
    if (t->pickle.left && t->depth == 0 &&
        !ckpt__report_add(t->index->findings, CKPT_SEVERITY_WARNING, "stack-left", NULL, "scan it before you load it",
                          "%s makes %zu objects that belong to nothing; torch.save does not write such pickles",
                          t->label, t->pickle.left))
        return ckpt__torch_no_memory(t, err);
    return note_roots(t, err);
}

/* ---- where they lie */

static uint64_t load64(const unsigned char *p, bool big)
{
    uint64_t v = 0;
    for (int i = 0; i < NUMBER_SIZE; i++)
        v |= (uint64_t)p[big ? NUMBER_SIZE - 1 - i : i] << 8 * i;
    return v;
}

/* Is n the number of elements of that storage? */
static bool count_fits(const root *r, uint64_t n)
{
    uint64_t nbytes;
    for (unsigned k = 0; k <= 4; k++)
        if ((r->item_sizes >> k & 1) && ckpt__mul(n, (uint64_t)1 << k, &nbytes) && nbytes == r->nbytes)
            return true;
    return false;
}

static ckpt_status read_number(const ckpt__torch *t, unsigned char *out, ckpt_error *err)
{
    const struct ckpt__torch_legacy *l = t->legacy;
    if (!l->in.memory)
        return ckpt__source_read(t->source, t->file, l->at, out, NUMBER_SIZE, err);
    memcpy(out, l->in.bytes + l->at, NUMBER_SIZE);
    return CKPT_OK;
}

static ckpt_status cut_off(const ckpt__torch *t, const root *r, ckpt_error *err)
{
    char shown[200];
    const struct ckpt__torch_legacy *l = t->legacy;
    uint64_t end = l->at;
    if (!ckpt__add(end, r->nbytes, &end) || !ckpt__add(end, NUMBER_SIZE, &end))
        end = UINT64_MAX;
    return ckpt__fail(
        err, CKPT_E_DAMAGED, t->label,
        "it ends at byte %llu; storage %s needs bytes %llu to %llu: the file is truncated; copy it again, or "
        "use an earlier checkpoint",
        (unsigned long long)l->in.size, ckpt__escape(shown, sizeof shown, r->key.data, r->key.size),
        (unsigned long long)l->at, (unsigned long long)end);
}

/* The storage's number of elements, then its bytes, at l->at. In a salvage what is wrong or not there is marked. */
static ckpt_status place_root(ckpt__torch *t, root *r, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    unsigned char number[NUMBER_SIZE];
    char shown[200];
    uint64_t left = l->in.size - l->at;
    r->listed = true;
    if (left < NUMBER_SIZE || left - NUMBER_SIZE < r->nbytes) {
        if (!t->salvage)
            return cut_off(t, r, err);
        r->missing = r->nbytes > 0;
        r->offset = left < NUMBER_SIZE ? l->in.size : l->at + NUMBER_SIZE;
        r->there = left < NUMBER_SIZE ? 0 : left - NUMBER_SIZE;
        l->at = l->in.size;
        return CKPT_OK;
    }
    ckpt_status status = read_number(t, number, err);
    if (status < 0)
        return status;
    bool fits = count_fits(r, load64(number, false)) || count_fits(r, load64(number, true));
    if (!fits && !t->salvage)
        return ckpt__fail(err, CKPT_E_DAMAGED, t->label,
                          "storage %s: at byte %llu it has %llu elements, and by the pickle it has %llu bytes",
                          ckpt__escape(shown, sizeof shown, r->key.data, r->key.size), (unsigned long long)l->at,
                          (unsigned long long)load64(number, false), (unsigned long long)r->nbytes);
    r->missing = !fits && r->nbytes > 0;
    r->offset = l->at + NUMBER_SIZE;
    r->there = r->missing ? 0 : r->nbytes;
    l->at = r->offset + r->nbytes;
    return CKPT_OK;
}

static ckpt_status find_root(ckpt__torch *t, const ckpt__pickle_node *key, root **out, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    size_t i = 0;
    char shown[200];
    if (key->kind != CKPT__P_STR && key->kind != CKPT__P_BYTES)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, key, err, "the list of storages holds something else than keys");
    ckpt__escape(shown, sizeof shown, key->u.text.data, key->u.text.size);
    if (!ckpt__hash_get(l->by_key, key->u.text.data, key->u.text.size, &i))
        return ckpt__torch_fail(
            t, CKPT_E_FORMAT, key, err,
            "the list of storages has key %s, which the object does not use: where the storages behind it "
            "lie cannot be told",
            shown);
    if (l->roots[i].listed)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, key, err, "the list of storages has key %s twice", shown);
    *out = &l->roots[i];
    return CKPT_OK;
}

static ckpt_status check_listed(ckpt__torch *t, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    for (size_t i = 0; i < l->count; i++) {
        root *r = &l->roots[i];
        char shown[200];
        if (r->listed)
            continue;
        if (!t->salvage)
            return ckpt__fail(err, CKPT_E_DAMAGED, t->label,
                              "the object uses storage %s, which is not in the list of storages",
                              ckpt__escape(shown, sizeof shown, r->key.data, r->key.size));
        r->missing = r->nbytes > 0;
        r->offset = l->in.size;
    }
    return CKPT_OK;
}

static ckpt_status read_storages(ckpt__torch *t, ckpt_error *err)
{
    ckpt__pickle keys;
    ckpt_status status = next_pickle(t, &keys, err);
    if (status == CKPT_OK)
        note_strange(t, &keys);
    if (status == CKPT_OK && keys.root->kind != CKPT__P_LIST)
        status = ckpt__torch_fail(t, CKPT_E_FORMAT, keys.root, err, "the list of storages is not a list");
    for (size_t i = 0; status == CKPT_OK && i < keys.root->u.list.count; i++) {
        root *r = NULL;
        status = find_root(t, keys.root->u.list.items[i], &r, err);
        if (status == CKPT_OK)
            status = place_root(t, r, err);
    }
    ckpt__pickle_free(&keys);
    return status;
}

/* ---- without the list */

static int by_key(const void *a, const void *b)
{
    const root *x = a, *y = b;
    size_t n = x->key.size < y->key.size ? x->key.size : y->key.size;
    int order = memcmp(x->key.data, y->key.data, n);
    return order ? order : (x->key.size > y->key.size) - (x->key.size < y->key.size);
}

/* In a salvage, where the list of keys is lost: storages lie in the order of their keys up to the end of the file, so they
 * begin as far before it as they take. They are believed where every number of elements is right. */
static ckpt_status guess_storages(ckpt__torch *t, uint64_t object_end, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    uint64_t total = 0;
    bool fits = true;
    for (size_t i = 0; i < l->count; i++) {
        l->roots[i].listed = l->roots[i].missing = false;
        l->roots[i].there = 0;
        fits = fits && ckpt__add(total, l->roots[i].nbytes, &total) && ckpt__add(total, NUMBER_SIZE, &total);
    }
    if (!fits || total > l->in.size || l->in.size - total < object_end)
        return CKPT_OK;
    if (l->count == 0)
        return CKPT_OK;
    root *sorted = malloc(l->count * sizeof *sorted);
    if (!sorted)
        return ckpt__fail_memory(err, t->label, l->count * sizeof *sorted);
    memcpy(sorted, l->roots, l->count * sizeof *sorted);
    qsort(sorted, l->count, sizeof *sorted, by_key);
    l->at = l->in.size - total;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && fits && i < l->count; i++) {
        status = place_root(t, &sorted[i], err);
        fits = !sorted[i].missing;
    }
    for (size_t i = 0; status == CKPT_OK && fits && i < l->count; i++) {
        size_t k = 0;
        if (ckpt__hash_get(l->by_key, sorted[i].key.data, sorted[i].key.size, &k))
            l->roots[k] = sorted[i];
    }
    free(sorted);
    return status;
}

static ckpt_status note_behind(ckpt__torch *t, ckpt_error *err)
{
    const struct ckpt__torch_legacy *l = t->legacy;
    if (l->at < l->in.size && t->depth == 0 &&
        !ckpt__report_add(t->index->findings, CKPT_SEVERITY_WARNING, "bytes-after-stop", NULL,
                          "scan it before you load it",
                          "%llu bytes follow the last storage; torch.save writes none, and nothing reads them",
                          (unsigned long long)(l->in.size - l->at)))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

ckpt_status ckpt__torch_legacy_open(ckpt__torch *t, const ckpt__torch_legacy_input *input, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy = calloc(1, sizeof *l);
    if (!l || !(l->by_key = ckpt__hash_new(64)))
        return ckpt__fail_memory(err, t->label, 0);
    l->in = *input;
    ckpt_status status = read_head(t, err);
    if (status == CKPT_OK)
        status = read_object(t, err);
    uint64_t object_at = t->pickle_at, object_end = l->at;
    bool object = status == CKPT_OK, lost = t->salvage && l->at == l->in.held;
    if (object && !lost)
        status = read_storages(t, err);
    if (object && t->salvage && (lost || status == CKPT_E_FORMAT || status == CKPT_E_DAMAGED))
        status = guess_storages(t, object_end, err);
    if (status == CKPT_OK)
        status = check_listed(t, err);
    if (status == CKPT_OK && !t->salvage)
        status = note_behind(t, err);
    t->pickle_at = object_at;
    return status;
}

/* ---- a persistent id's storage */

ckpt_status ckpt__torch_legacy_place(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                     ckpt__torch_place *out, ckpt_error *err)
{
    struct ckpt__torch_legacy *l = t->legacy;
    size_t i = 0;
    ckpt_str key = id->view ? id->view_key : id->key;
    /* A view by the name of a whole storage is that storage: torch asks for the name first. */
    bool whole = ckpt__hash_get(l->by_key, key.data, key.size, &i);
    if (!whole && !ckpt__hash_get(l->by_key, id->key.data, id->key.size, &i))
        return ckpt__torch_fail(t, CKPT_E_DAMAGED, p, err, "a storage that is not in the file");
    const root *r = &l->roots[i];
    uint64_t from = 0, size = r->nbytes;
    if (!whole && (!ckpt__torch_storage_size(id, id->view_offset, &from) ||
                   !ckpt__torch_storage_size(id, id->view_numel, &size) || from > r->nbytes || size > r->nbytes - from))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                                "a view of %lld elements from element %lld of a storage of %llu bytes does not fit",
                                (long long)id->view_numel, (long long)id->view_offset, (unsigned long long)r->nbytes);
    uint64_t there = r->there > from ? r->there - from : 0;
    there = there < size ? there : size;
    out->name = key;
    out->extent = (ckpt__extent){.file = t->file,
                                 .memory = l->in.memory ? l->in.bytes + r->offset + from : NULL,
                                 .offset = l->in.memory ? 0
                                           : there      ? r->offset + from
                                                        : r->offset,
                                 .length = there,
                                 .size = size,
                                 .missing = there < size};
    return CKPT_OK;
}
