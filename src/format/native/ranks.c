/* format/native/ranks.c - the steps that the ranks of a run saved together, a directory each, as one checkpoint.
 *
 * Each rank saves what it binds. A tensor that several hold under one name is one where its shape, dtype and CRC are the same
 * (it is replicated), and is then listed once; else each is another (a share), and has its rank before its name. */
#include "format/native/manifest.h"
#include "format/native/native.h"
#include "model/value_path.h"
#include "model/visits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MOST = 65536, MANIFEST_BYTES = 1 << 20 };

/* One rank's directory. */
typedef struct share {
    ckpt__manifest manifest;
    size_t root;        /* of the source */
    ckpt__index *index; /* until it is absorbed */
    char name[32];      /* "rank-00003" */
} share;

typedef struct ranks {
    const ckpt__read_request *request;
    share *all;
    size_t count;      /* sorted by rank */
    ckpt__hash *names; /* of all tensors: the number of the name */
    struct name {
        const ckpt__index *of; /* of the first rank that has it */
        const ckpt__tensor *first;
        bool differs;
    } * held;
    size_t held_count;
    size_t replicated, renamed;
} ranks;

/* ---- which ranks */

/* Where memory is short it may have one: the reading says so. */
static bool has_manifest(ckpt__source *s, size_t root)
{
    uint32_t file;
    ckpt_status status = ckpt__source_add_at(s, root, "checkpoint.json", &file, NULL);
    return status == CKPT_OK || status == CKPT_E_NO_MEMORY;
}

bool ckpt__native_has_ranks(ckpt__source *s)
{
    size_t n = 0;
    for (size_t root = 0; root < ckpt__source_roots(s); root++)
        n += has_manifest(s, root);
    return n > 1;
}

static ckpt_status read_manifest(const ranks *r, share *one, ckpt__arena *arena, ckpt_error *err)
{
    ckpt__source *s = r->request->source;
    const char *path = ckpt__source_root(s, one->root);
    ckpt__buf text = {0};
    uint32_t file;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__source_add_at(s, one->root, "checkpoint.json", &file, &why);
    if (status < 0) {
        if (err)
            *err = why;
        return why.sys_errno == ENOENT
                   ? ckpt__fail(
                         err, CKPT_E_MISMATCH, path,
                         "it holds no checkpoint.json, as the other ranks' directories do, and is not a part of this checkpoint")
                   : status;
    }
    status = ckpt__source_slurp(s, file, MANIFEST_BYTES, &text, err);
    if (status == CKPT_OK)
        status = ckpt__manifest_read(text.data ? text.data : "", text.size, path, arena, &one->manifest, err);
    ckpt__buf_free(&text);
    snprintf(one->name, sizeof one->name, "rank-%05" PRId64, one->manifest.rank);
    return status;
}

static int by_rank(const void *a, const void *b)
{
    const share *x = a, *y = b;
    if (x->manifest.rank != y->manifest.rank)
        return x->manifest.rank < y->manifest.rank ? -1 : 1;
    return (x->root > y->root) - (x->root < y->root);
}

static ckpt_status two_checkpoints(const ranks *r, const share *a, const share *b, const char *what, int64_t x,
                                   int64_t y, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__source_root(r->request->source, b->root),
                      "its %s is %" PRId64 ", and that of %s is %" PRId64 ": these are not the parts of one checkpoint",
                      what, y, ckpt__source_root(r->request->source, a->root), x);
}

/* One save, and every rank of it once. The same directory given twice, or a copy of it, counts once. */
static ckpt_status check_ranks(ranks *r, ckpt_error *err)
{
    const ckpt__source *s = r->request->source;
    size_t kept = 0;
    qsort(r->all, r->count, sizeof *r->all, by_rank);
    const ckpt__manifest *first = &r->all[0].manifest;
    for (size_t i = 0; i < r->count; i++) {
        const ckpt__manifest *m = &r->all[i].manifest, *before = kept ? &r->all[kept - 1].manifest : NULL;
        if (m->step != first->step)
            return two_checkpoints(r, &r->all[0], &r->all[i], "step", first->step, m->step, err);
        if (m->world != first->world)
            return two_checkpoints(r, &r->all[0], &r->all[i], "number of ranks", first->world, m->world, err);
        if (before && before->rank == m->rank && before->crc == m->crc)
            continue;
        if (before && before->rank == m->rank)
            return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__source_root(s, r->all[i].root),
                              "it is of rank %" PRId64 " of %" PRId64
                              ", and so is %s, with other bytes: these are not the parts of one "
                              "checkpoint",
                              m->rank, m->world, ckpt__source_root(s, r->all[kept - 1].root));
        if (m->save != first->save)
            return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__source_root(s, r->all[i].root),
                              "it is of another save of step %" PRId64
                              " than %s: these are not the parts of one checkpoint",
                              m->step, ckpt__source_root(s, r->all[0].root));
        r->all[kept++] = r->all[i];
    }
    r->count = kept;
    for (size_t i = 0; i < r->count; i++)
        if (r->all[i].manifest.rank != (int64_t)i || (i + 1 == r->count && (int64_t)i + 1 < first->world))
            return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__source_root(s, r->all[i].root),
                              "rank %zu of %" PRId64
                              " is missing: give the directory of that rank too (%s is of rank %" PRId64 ")",
                              r->all[i].manifest.rank != (int64_t)i ? i : i + 1, first->world,
                              ckpt__source_root(s, r->all[i].root), r->all[i].manifest.rank);
    return CKPT_OK;
}

/* ---- names */

/* A tensor that is a part of another's storage, or its second name, has no CRC of its own: that of the storage tells. */
static bool is_same_view(const ckpt__index *x, const ckpt__tensor *a, const ckpt__index *y, const ckpt__tensor *b)
{
    if (!a->whole || !b->whole)
        return false;
    const ckpt__extent *p = &x->storages[a->storage].extent, *q = &y->storages[b->storage].extent;
    return p->has_crc && q->has_crc && p->crc == q->crc && p->size == q->size && a->info.offset == b->info.offset &&
           a->info.conj == b->info.conj && a->info.neg == b->info.neg &&
           (a->info.ndim == 0 || memcmp(a->info.strides, b->info.strides, a->info.ndim * sizeof *a->info.strides) == 0);
}

static bool is_same(const ckpt__index *x, const ckpt__tensor *a, const ckpt__index *y, const ckpt__tensor *b)
{
    const ckpt_tensor_info *i = &a->info, *k = &b->info;
    if (i->dtype != k->dtype || i->nbytes != k->nbytes || i->extra->part_count || k->extra->part_count ||
        !ckpt__same_shape(i->shape, i->ndim, k->shape, k->ndim))
        return false;
    return a->has_crc && b->has_crc ? a->crc == b->crc : is_same_view(x, a, y, b);
}

static struct name *name_of(const ranks *r, const ckpt__tensor *t)
{
    size_t number;
    return ckpt__hash_get(r->names, t->info.name.data, t->info.name.size, &number) ? &r->held[number] : NULL;
}

static ckpt_status gather_names(ranks *r, ckpt_error *err)
{
    size_t all = 0;
    for (size_t i = 0; i < r->count; i++)
        all += r->all[i].index->tensor_count;
    r->names = ckpt__hash_new(all);
    r->held = calloc(all + 1, sizeof *r->held);
    if (!r->names || !r->held)
        return ckpt__fail_memory(err, "names", all);
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->all[i].index->tensor_count; k++) {
            const ckpt__index *x = r->all[i].index;
            const ckpt__tensor *t = &x->tensors[k];
            size_t number = r->held_count;
            int put = ckpt__hash_put(r->names, t->info.name.data, t->info.name.size, r->held_count, &number);
            if (put < 0)
                return ckpt__fail_memory(err, "names", all);
            if (put > 0)
                r->held[r->held_count++] = (struct name){.of = x, .first = t};
            else if (!is_same(r->held[number].of, r->held[number].first, x, t))
                r->held[number].differs = true;
        }
    return CKPT_OK;
}

static bool owner_differs(const ranks *r, const ckpt_tensor_info *t)
{
    size_t owner;
    return t->param.data && ckpt__hash_get(r->names, t->param.data, t->param.size, &owner) && r->held[owner].differs;
}

/* "rank-00003." before a name; data NULL: no memory. */
static ckpt_str of_rank(const share *one, ckpt_str name, ckpt__arena *arena)
{
    ckpt__buf text = {0};
    ckpt__buf_printf(&text, "%s.", one->name);
    ckpt__buf_add(&text, name.data, name.size);
    ckpt_str out = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(arena, text.data, text.size);
    ckpt__buf_free(&text);
    return out;
}

/* What belongs to a tensor that is another on each rank is told by its rank with it, though its bytes be the same. */
static void follow_owners(ranks *r)
{
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->all[i].index->tensor_count; k++) {
            const ckpt__tensor *t = &r->all[i].index->tensors[k];
            struct name *name = name_of(r, t);
            if (name && owner_differs(r, &t->info))
                name->differs = true;
        }
}

/* Where the ranks hold different tensors of one name, each is told by its rank; whose moments they are is, too. */
static ckpt_status give_names(ranks *r, ckpt__arena *arena, ckpt_error *err)
{
    for (size_t i = 0; i < r->count; i++) {
        ckpt__index *x = r->all[i].index;
        for (size_t k = 0; k < x->tensor_count; k++) {
            ckpt_tensor_info *t = &x->tensors[k].info;
            const struct name *name = name_of(r, &x->tensors[k]);
            ckpt__buf text = {0};
            ckpt__buf_printf(&text, "%s/%s", r->all[i].name, t->file.data ? t->file.data : "");
            t->file = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(arena, text.data, text.size);
            ckpt__buf_free(&text);
            bool lost = !t->file.data;
            if (owner_differs(r, t)) {
                t->param = of_rank(&r->all[i], t->param, arena);
                lost = lost || !t->param.data;
            }
            if (name && name->differs) {
                t->name = of_rank(&r->all[i], t->name, arena);
                lost = lost || !t->name.data;
                r->renamed++;
            }
            if (lost)
                return ckpt__fail_memory(err, "names", x->tensor_count);
        }
    }
    return CKPT_OK;
}

/* ---- values */

/* The values of a tree as text; false: some have none. A tensor is its name: those that differ between ranks have their ranks in it. */
typedef struct printed {
    const ckpt__index *index;
    ckpt__buf text;
    bool whole;
} printed;

static int print_value(void *ctx, const ckpt_visit *visit)
{
    printed *p = ctx;
    const ckpt_value *v = visit->value;
    const bool plain = v->kind == CKPT_V_NONE || v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT ||
                       v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_STR;
    const bool tensor = v->kind == CKPT_V_TENSOR && v->tensor < p->index->tensor_count;
    const bool text = v->kind == CKPT_V_BYTES || v->kind == CKPT_V_BYTEARRAY || v->kind == CKPT_V_BIGINT || tensor;
    p->whole =
        p->whole && (plain || text || v->kind == CKPT_V_DICT || v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE);
    ckpt__buf_add(&p->text, visit->name.data, visit->name.size);
    ckpt__buf_printf(&p->text, " %d ", (int)v->kind);
    if (plain)
        ckpt__value_repr(&p->text, v);
    if (text) {
        const ckpt_str own = tensor ? p->index->tensors[v->tensor].info.name : v->text;
        ckpt__buf_printf(&p->text, "%zu ", own.size);
        ckpt__buf_add(&p->text, own.data, own.size);
    }
    ckpt__buf_add(&p->text, "\n", 1);
    return p->whole && !p->text.failed ? 0 : 1;
}

static bool same_values(const ckpt__index *index, const ckpt_value *a, const ckpt_value *b)
{
    printed x = {.index = index, .whole = true}, y = {.index = index, .whole = true};
    bool same = !a && !b;
    if (a && b && ckpt_value_walk(a, 0, print_value, &x, NULL) == 0 &&
        ckpt_value_walk(b, 0, print_value, &y, NULL) == 0)
        same = x.text.size == y.text.size && (x.text.size == 0 || memcmp(x.text.data, y.text.data, x.text.size) == 0);
    ckpt__buf_free(&x.text);
    ckpt__buf_free(&y.text);
    return same;
}

/* The entry of that key; NULL: there is none. */
static const ckpt_entry *entry_of(const ckpt_value *root, const ckpt_value *key)
{
    const bool named = root && root->kind == CKPT_V_DICT && key->kind == CKPT_V_STR;
    return named && strlen(key->text.data) == key->text.size ? ckpt__find_entry(root, key->text.data) : NULL;
}

/* Have all ranks the entry, with the same value? One whose key looks like a rank's is told by the rank that has it. */
static bool is_common(const ranks *r, const ckpt__index *index, const ckpt_value *const *roots, const ckpt_entry *e)
{
    bool same = e->key->kind == CKPT_V_STR && !ckpt__str_begins(e->key->text, "rank-");
    for (size_t i = 0; same && i < r->count; i++) {
        const ckpt_entry *own = entry_of(roots[i], e->key);
        same = own && (i == 0 ? own == e : same_values(index, own->value, e->value));
    }
    return same;
}

/* Adds one entry, under the name of the rank, with what that rank alone has. common[i]: all ranks have entry i of rank 0. */
static bool put_own(const share *one, const ckpt_value *root, const ckpt_value *first, const bool *common,
                    ckpt__arena *a, ckpt_entry *entries, size_t *n)
{
    if (!root)
        return true;
    ckpt_entry *own = calloc(root->entry_count + 1, sizeof *own);
    size_t count = 0;
    if (!own)
        return false;
    for (size_t k = 0; root->kind == CKPT_V_DICT && k < root->entry_count; k++) {
        const ckpt_entry *same = entry_of(first, root->entries[k].key);
        if (!same || !common[same - first->entries])
            own[count++] = root->entries[k];
    }
    const bool all = root->kind != CKPT_V_DICT || count == root->entry_count;
    const ckpt_value *value = all ? root : ckpt__value_dict(a, own, count);
    free(own);
    if (!all && !count)
        return true;
    entries[*n] = (ckpt_entry){ckpt__value_str(a, one->name, strlen(one->name)), value};
    return entries[*n].key && entries[(*n)++].value;
}

/* Entries that all ranks have alike are entries of one tree. What each rank has otherwise is a dict under its
 * name. */
static ckpt_status join_values(const ranks *r, const ckpt_value *const *roots, ckpt__index *into, ckpt_error *err)
{
    bool same = true, any = false;
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++) {
        same = same && same_values(into, roots[0], roots[i]);
        any = any || roots[i];
    }
    if (same || !any) {
        into->root = roots[0];
        return CKPT_OK;
    }
    const ckpt_value *first = roots[0];
    const size_t most = first && first->kind == CKPT_V_DICT ? first->entry_count : 0;
    ckpt_entry *entries = calloc(most + r->count, sizeof *entries);
    bool *common = calloc(most + 1, sizeof *common), ok = entries && common;
    for (size_t k = 0; ok && k < most; k++)
        if ((common[k] = is_common(r, into, roots, &first->entries[k])))
            entries[n++] = first->entries[k];
    for (size_t i = 0; ok && i < r->count; i++)
        ok = put_own(&r->all[i], roots[i], first, common, into->arena, entries, &n);
    ok = ok && (into->root = ckpt__value_dict(into->arena, entries, n));
    free(entries);
    free(common);
    return ok ? CKPT_OK : ckpt__fail_memory(err, "the values of the ranks", r->count);
}

/* ---- tensors that several ranks hold */

static ckpt_status list_once(ranks *r, ckpt__index *x, ckpt_error *err)
{
    const size_t count = x->tensor_count;
    size_t *now = calloc(count + 1, sizeof *now), *first = calloc(r->held_count + 1, sizeof *first), kept = 0, number;
    if (!now || !first) {
        free(now);
        free(first);
        return ckpt__fail_memory(err, "names", count);
    }
    for (size_t i = 0; i < count; i++) {
        ckpt_str name = x->tensors[i].info.name;
        bool known = ckpt__hash_get(r->names, name.data, name.size, &number) && !r->held[number].differs;
        if (known && first[number]) {
            now[i] = first[number];
            r->replicated++;
            continue;
        }
        x->tensors[kept++] = x->tensors[i];
        now[i] = kept;
        if (known)
            first[number] = kept;
    }
    x->tensor_count = kept;
    free(first);
    ckpt_status status = ckpt__values_number(x->root, now, count, err);
    free(now);
    return status == CKPT_OK ? ckpt__index_finish(x, err) : status;
}

static ckpt_status note_ranks(const ranks *r, ckpt__index *x, ckpt_error *err)
{
    if (ckpt__report_add(
            x->findings, CKPT_SEVERITY_NOTE, "ranks-joined", NULL, NULL,
            "%zu ranks' parts of one save: %zu tensors that another rank holds too are listed once, %zu that differ between "
            "ranks under one name have their rank before it (rank-00000.NAME)",
            r->count, r->replicated, r->renamed))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

/* ---- all of them */

static ckpt_status join(ranks *r, ckpt__index *into, ckpt_error *err)
{
    const ckpt_value **roots = calloc(r->count + 1, sizeof *roots);
    ckpt_status status = roots ? gather_names(r, err) : ckpt__fail_memory(err, "ranks", r->count);
    if (status == CKPT_OK) {
        follow_owners(r);
        status = give_names(r, into->arena, err);
    }
    for (size_t i = 0; status == CKPT_OK && i < r->count; i++) {
        ckpt__index *part = r->all[i].index;
        ckpt_str none = {NULL, 0};
        r->all[i].index = NULL;
        status = ckpt__index_absorb(into, part, none, err);
        roots[i] = status == CKPT_OK ? part->root : NULL; /* where it failed there is no part any more */
    }
    if (status == CKPT_OK)
        status = join_values(r, roots, into, err);
    if (status == CKPT_OK)
        status = list_once(r, into, err);
    if (status == CKPT_OK)
        status = note_ranks(r, into, err);
    free(roots);
    return status;
}

ckpt_status ckpt__native_read_ranks(const ckpt__read_request *request, ckpt__index *into, ckpt_error *err)
{
    ranks r = {.request = request, .count = ckpt__source_roots(request->source)};
    if (r.count > RANKS_MOST)
        return ckpt__fail(err, CKPT_E_LIMIT, request->source->path, "%zu directories are more than %d", r.count,
                          RANKS_MOST);
    r.all = calloc(r.count, sizeof *r.all);
    ckpt_status status = r.all ? CKPT_OK : ckpt__fail_memory(err, "ranks", r.count);
    for (size_t i = 0; status == CKPT_OK && i < r.count; i++) {
        r.all[i].root = i;
        status = read_manifest(&r, &r.all[i], into->arena, err);
    }
    if (status == CKPT_OK)
        status = check_ranks(&r, err);
    for (size_t i = 0; status == CKPT_OK && i < r.count; i++)
        status = ckpt__native_read_root(request, r.all[i].root, &r.all[i].index, err);
    if (status == CKPT_OK) {
        into->step = r.all[0].manifest.step;
        status = join(&r, into, err);
    }
    for (size_t i = 0; r.all && i < r.count; i++)
        ckpt__index_free(r.all[i].index);
    ckpt__hash_free(r.names);
    free(r.held);
    free(r.all);
    return status;
}
