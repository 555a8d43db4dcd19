/* migrate/shards.c - --shard: what each rank of a run holds so many rows of becomes whole again. A run of this library does not say
 * that its ranks hold parts of one tensor: each rank binds tensors of its own. So it has to be said. */
#include "migrate/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include "migrate/rules.h"

int64_t ckpt__shard_rank(ckpt_str name, ckpt_str *stem)
{
    enum { HEAD = 5, DIGITS = 5 };
    int64_t rank = -1;
    *stem = name;
    if (name.size < HEAD + DIGITS + 2 || !ckpt__str_begins(name, "rank-") || name.data[HEAD + DIGITS] != '.' ||
        !ckpt__parse_i64(name.data + HEAD, DIGITS, &rank) || rank < 0)
        return -1;
    *stem = (ckpt_str){name.data + HEAD + DIGITS + 1, name.size - HEAD - DIGITS - 1};
    return rank;
}

static ckpt_str owner_of(const ckpt_tensor_info *t)
{
    ckpt_str stem;
    ckpt__shard_rank(t->param.data && t->state_key.data ? t->param : t->name, &stem);
    return stem;
}

size_t ckpt__shard_glob(const ckpt_migrate_options *o, const ckpt_tensor_info *t)
{
    const ckpt_str owner = owner_of(t);
    size_t i = 0;
    while (i < o->shard_count && !ckpt__rule_matches(o->shard[i], owner))
        i++;
    return i;
}

bool ckpt__shard_is_cut(const ckpt_tensor_info *t, const ckpt_tensor_info *param)
{
    return t->ndim > 0 && (!param || ckpt__same_shape(t->shape, t->ndim, param->shape, param->ndim));
}

int64_t ckpt__shard_row(int64_t n, int64_t ranks, int64_t rank)
{
    return n / ranks * rank + n % ranks * rank / ranks;
}

/* ---- joined */

/* The parts of one tensor, by ranks. */
typedef struct joined {
    ckpt_str name;
    size_t *parts; /* in the joining's array, one a rank: SIZE_MAX: that rank has none */
    bool all;      /* one tensor stands for all ranks, as it is the same on each */
} joined;

typedef struct joining {
    ckpt__index *x;
    const char *label;
    size_t ranks;
    joined *list;                   /* heap */
    size_t count, capacity, *parts; /* heap: ranks of each of as many as there are tensors */
    ckpt__hash *by_name;
    bool *keep;
    ckpt__piece *pieces;
    int64_t *boxes; /* heap: of one tensor */
    ckpt_error *err;
} joining;

static ckpt_status no_memory(const joining *j)
{
    return ckpt__fail_memory(j->err, "parts of ranks", j->count);
}

static ckpt_status refuse(const joining *j, const joined *w, const char *why)
{
    char shown[200];
    return ckpt__fail(j->err, CKPT_E_MISMATCH, j->label, "--shard: the parts of '%s' cannot be joined: %s",
                      ckpt__escape(shown, sizeof shown, w->name.data, w->name.size), why);
}

static ckpt_status add_part(joining *j, size_t tensor)
{
    ckpt_str stem;
    const int64_t rank = ckpt__shard_rank(j->x->tensors[tensor].info.name, &stem);
    size_t at = j->count;
    int put = ckpt__hash_put(j->by_name, stem.data, stem.size, j->count, &at);
    if (put < 0 || !ckpt__grow(&j->list, &j->capacity, j->count + 1, sizeof *j->list))
        return no_memory(j);
    if (put > 0) {
        j->list[j->count] = (joined){.name = stem, .parts = j->parts + j->count * j->ranks};
        for (size_t r = 0; r < j->ranks; r++)
            j->list[j->count].parts[r] = SIZE_MAX;
        j->count++;
        at = j->count - 1;
    }
    joined *w = &j->list[at];
    if (rank >= (int64_t)j->ranks || w->all || (rank >= 0 && w->parts[rank] != SIZE_MAX) || (rank < 0 && put == 0))
        return refuse(j, w, "two tensors would be the part of one rank");
    w->all = rank < 0;
    for (size_t r = 0; r < j->ranks; r++)
        if (rank < 0 || (int64_t)r == rank)
            w->parts[r] = tensor;
    return CKPT_OK;
}

/* Of a parameter the whole; NULL: it is one itself, or there is none. */
static const joined *param_of(const joining *j, const ckpt_tensor_info *t)
{
    const ckpt_str owner = owner_of(t);
    size_t at;
    return t->state_key.data && ckpt__hash_get(j->by_name, owner.data, owner.size, &at) ? &j->list[at] : NULL;
}

static const ckpt_tensor_info *part(const joining *j, const joined *w, size_t rank)
{
    return w && w->parts[rank] != SIZE_MAX ? &j->x->tensors[w->parts[rank]].info : NULL;
}

/* So many rows each: all of one dtype, and alike but for the rows. */
static ckpt_status check_parts(const joining *j, const joined *w, int64_t *rows)
{
    const ckpt_tensor_info *first = part(j, w, 0);
    *rows = 0;
    for (size_t r = 0; r < j->ranks; r++) {
        const ckpt_tensor_info *t = part(j, w, r);
        char text[120];
        if (!t || !j->x->tensors[w->parts[r]].whole) {
            snprintf(text, sizeof text, t ? "that of rank %zu has no bytes of its own" : "rank %zu has none", r);
            return refuse(j, w, text);
        }
        if (t->dtype != first->dtype || t->ndim != first->ndim || t->ndim == 0 ||
            !ckpt__same_shape(t->shape + 1, t->ndim - 1, first->shape + 1, first->ndim - 1)) {
            snprintf(text, sizeof text, "that of rank %zu differs from that of rank 0 in more than its rows", r);
            return refuse(j, w, text);
        }
        if (t->shape[0] > INT64_MAX - *rows)
            return refuse(j, w, "together they have more rows than 64 bits count");
        *rows += t->shape[0];
    }
    return CKPT_OK;
}

static void set_piece(const joining *j, const joined *w, size_t rank, int64_t at)
{
    const ckpt__tensor *t = &j->x->tensors[w->parts[rank]];
    const uint32_t n = t->info.ndim;
    int64_t *box = j->boxes + rank * 3 * n;
    for (uint32_t d = 0; d < n; d++) {
        box[d] = d == 0 ? at : 0;
        box[n + d] = t->info.shape[d];
        box[2 * n + d] = t->info.strides[d];
    }
    j->pieces[rank] = (ckpt__piece){.box = box,
                                    .at = ckpt__whole_at(t),
                                    .storage = (uint32_t)t->storage,
                                    .crc = t->crc,
                                    .has_crc = t->has_crc,
                                    .flags = CKPT__PIECE_STRIDED};
}

/* A tensor of the whole's name, without its bytes yet. SIZE_MAX: memory is short. */
static size_t add_whole(joining *j, const joined *w)
{
    const ckpt_tensor_info was = *part(j, w, 0);
    ckpt__tensor *t = ckpt__index_add_tensor(j->x);
    ckpt_key *key = ckpt__arena_alloc(j->x->arena, sizeof *key);
    if (!t || !key)
        return SIZE_MAX;
    key->text = w->name;
    t->info.name = w->name;
    t->info.path = (ckpt_path){key, 1};
    t->info.dtype = was.dtype;
    t->info.ndim = was.ndim;
    t->info.role = was.role;
    t->info.state_key = was.state_key;
    t->info.group = was.group;
    t->info.device = was.device;
    t->info.file = was.file;
    if (was.param.data)
        ckpt__shard_rank(was.param, &t->info.param);
    return j->x->tensor_count - 1;
}

static ckpt_status join_rows(joining *j, const joined *w)
{
    int64_t rows, at = 0, *shape;
    ckpt_status status = check_parts(j, w, &rows);
    if (status < 0)
        return status;
    const ckpt_tensor_info *first = part(j, w, 0);
    const uint32_t n = first->ndim;
    const ckpt_str device = first->device;
    free(j->boxes);
    j->boxes = calloc(j->ranks * 3 * n + n, sizeof *j->boxes);
    if (!j->boxes)
        return no_memory(j);
    shape = j->boxes + j->ranks * 3 * n;
    memcpy(shape, first->shape, n * sizeof *shape);
    shape[0] = rows;
    for (size_t r = 0; r < j->ranks; r++) {
        set_piece(j, w, r, at);
        at += part(j, w, r)->shape[0];
        j->keep[w->parts[r]] = false;
    }
    const size_t whole = add_whole(j, w);
    if (whole == SIZE_MAX)
        return no_memory(j);
    status = ckpt__index_set_pieces(j->x, whole, shape, j->pieces, j->ranks, j->err);
    if (status == CKPT_OK)
        j->x->tensors[whole].info.device = device;
    return status;
}

/* A step, or another state that is none of rows: each rank has the same, and one stays. */
static ckpt_status join_same(joining *j, const joined *w)
{
    if (w->all)
        return CKPT_OK;
    const ckpt__tensor *first = w->parts[0] != SIZE_MAX ? &j->x->tensors[w->parts[0]] : NULL;
    for (size_t r = 0; r < j->ranks; r++) {
        const ckpt__tensor *t = w->parts[r] != SIZE_MAX ? &j->x->tensors[w->parts[r]] : NULL;
        if (!t || !first || t->info.dtype != first->info.dtype || !t->has_crc || t->crc != first->crc ||
            !ckpt__same_shape(t->info.shape, t->info.ndim, first->info.shape, first->info.ndim))
            return refuse(j, w, "it has no rows as its parameter has, and is not the same on all ranks");
        j->keep[w->parts[r]] = r == 0;
    }
    ckpt_tensor_info *kept = &j->x->tensors[w->parts[0]].info;
    ckpt_key *key = ckpt__arena_alloc(j->x->arena, sizeof *key);
    if (!key)
        return no_memory(j);
    key->text = kept->name = w->name;
    kept->path = (ckpt_path){key, 1};
    ckpt__shard_rank(kept->param, &kept->param);
    return CKPT_OK;
}

/* Is every rank's as its parameter is there? What all ranks have alike is asked for rank 0. */
static bool has_rows(const joining *j, const joined *w)
{
    const ckpt_tensor_info *t = part(j, w, 0);
    return !t || ckpt__shard_is_cut(t, part(j, param_of(j, t), 0));
}

static ckpt_status join_all(joining *j)
{
    bool *rows = calloc(j->count + 1, sizeof *rows); /* before a name changes */
    ckpt_status status = rows ? CKPT_OK : no_memory(j);
    for (size_t i = 0; rows && i < j->count; i++)
        rows[i] = has_rows(j, &j->list[i]);
    for (size_t i = 0; status == CKPT_OK && i < j->count; i++)
        status = rows[i] ? join_rows(j, &j->list[i]) : join_same(j, &j->list[i]);
    free(rows);
    return status;
}

static ckpt_status find_parts(joining *j, const ckpt_migrate_options *o, bool *matched)
{
    const size_t count = j->x->tensor_count;
    ckpt_status status = CKPT_OK;
    size_t some = 0;
    for (size_t i = 0; i < count; i++)
        some += ckpt__shard_glob(o, &j->x->tensors[i].info) < o->shard_count;
    j->by_name = ckpt__hash_new(some);
    j->parts = calloc(some + 1, j->ranks * sizeof *j->parts);
    j->pieces = calloc(j->ranks, sizeof *j->pieces);
    j->keep = malloc(2 * count + 1);
    if (!j->by_name || !j->parts || !j->pieces || !j->keep)
        return no_memory(j);
    memset(j->keep, true, 2 * count + 1);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        const size_t glob = ckpt__shard_glob(o, &j->x->tensors[i].info);
        if (glob == o->shard_count)
            continue;
        matched[glob] = true;
        status = add_part(j, i);
    }
    return status;
}

ckpt_status ckpt__shards_join(ckpt__index *x, const char *label, size_t ranks, const ckpt_migrate_options *o,
                              bool *matched, ckpt_error *err)
{
    joining j = {.x = x, .label = label, .ranks = ranks, .err = err};
    ckpt_status status = find_parts(&j, o, matched);
    if (status == CKPT_OK)
        status = join_all(&j);
    if (status == CKPT_OK && j.count)
        status = ckpt__index_keep(x, j.keep, err);
    ckpt__hash_free(j.by_name);
    free(j.list);
    free(j.parts);
    free(j.pieces);
    free(j.boxes);
    free(j.keep);
    return status;
}

ckpt_status ckpt__migrate_join(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    const size_t ranks = ckpt__source_roots(m->reader->source);
    const bool several = ckpt__format_of(m->from)->has_manifest && ranks > 1;
    bool *matched = o->shard_count ? calloc(o->shard_count, sizeof *matched) : NULL;
    ckpt_status status = CKPT_OK;
    if (!o->shard_count || (!several && m->as == CKPT__AS_RUN)) { /* which cuts what is whole */
        free(matched);
        return CKPT_OK;
    }
    if (!matched)
        return ckpt__migration_no_memory(err);
    if (!several)
        status =
            ckpt__fail(err, CKPT_E_ARGUMENT, m->src,
                       "--shard names what the ranks of a run have parts of: the source is not their directories, nor "
                       "is the target --to ckpt-run");
    else
        status = ckpt__shards_join(m->from, m->src, ranks, o, matched, err);
    for (size_t i = 0; status == CKPT_OK && i < o->shard_count; i++)
        if (!matched[i] && !o->allow_unused) {
            char shown[200];
            status = ckpt__fail(err, CKPT_E_ARGUMENT, m->src, "--shard '%s' names no tensor",
                                ckpt__escape(shown, sizeof shown, o->shard[i], strlen(o->shard[i])));
        }
    free(matched);
    return status;
}
