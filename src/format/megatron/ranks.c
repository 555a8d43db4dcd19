/* format/megatron/ranks.c - the files of all ranks: which there are, which there must be, their parts of the model. */
#include "format/megatron/ranks.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1 << 13 };

static const char MODEL[] = "model_optim_rng.pt", FLAT[] = "distrib_optim.pt";

/* ---- folders */

/* mp_rank_00, mp_rank_00_001, mp_rank_00_001_002: a rank of tensor parallelism of two digits, and others of three. */
typedef struct folder {
    int64_t numbers[3];
    size_t count;
    char name[64];
} folder;

typedef struct folders {
    folder *items; /* heap */
    size_t count, capacity;
    bool old; /* model_rng.pt and the like lie there */
} folders;

static bool parse_folder(const char *name, folder *f)
{
    const char *at = name + 8;
    if (!ckpt__begins(name, "mp_rank_") || strlen(name) >= sizeof f->name)
        return false;
    for (f->count = 0; f->count < 3; f->count++) {
        const size_t digits = strspn(at, "0123456789"), least = f->count ? 3 : 2;
        if (digits < least || digits > 6 || !ckpt__parse_i64(at, digits, &f->numbers[f->count]))
            return false;
        at += digits;
        if (!*at)
            break;
        if (*at++ != '_')
            return false;
    }
    snprintf(f->name, sizeof f->name, "%s", name);
    return f->count++ < 3;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool is_folder, ckpt_error *err)
{
    folders *all = ctx;
    folder f;
    (void)root;
    if (!is_folder || !parse_folder(name, &f))
        return CKPT_OK;
    for (size_t i = 0; i < all->count; i++) /* on several disks it is there more than once */
        if (strcmp(all->items[i].name, name) == 0)
            return CKPT_OK;
    if (!ckpt__grow(&all->items, &all->capacity, all->count + 1, sizeof f))
        return ckpt__meg_no_memory(err);
    all->items[all->count++] = f;
    return CKPT_OK;
}

static int by_numbers(const void *a, const void *b)
{
    const folder *x = a, *y = b;
    for (size_t i = 0; i < x->count && i < y->count; i++)
        if (x->numbers[i] != y->numbers[i])
            return x->numbers[i] < y->numbers[i] ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

/* ---- one file */

static ckpt_status lack(ckpt__meg *m, const char *name, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    return ckpt__survey_lack(m->request, m->index->findings, name, status, why, err);
}

static void path_of(const ckpt__meg *m, const ckpt__meg_rank *r, const char *file, char *out, size_t size)
{
    snprintf(out, size, "%s%s/%s", m->place->folder, r->folder, file);
}

static ckpt_status read_model(ckpt__meg *m, const ckpt__meg_rank *r, const char *name, ckpt__index **part,
                              ckpt_error *err)
{
    char place[160];
    ckpt_status status = ckpt__meg_part(m->request, name, m->index, part, err);
    if (status == CKPT_E_SYSTEM && err && err->sys_errno == ENOENT)
        status = ckpt__fail(
            err, CKPT_E_DAMAGED, name,
            "it is missing, with what %s has of the model and of its optimizer. Copy it from where it was saved, or take an "
            "earlier step",
            ckpt__meg_rank_text(m, r, place, sizeof place));
    if (status == CKPT_OK && (!(*part)->root || (*part)->root->kind != CKPT_V_DICT)) {
        ckpt__index_free(*part);
        *part = NULL;
        status = ckpt__fail(err, CKPT_E_FORMAT, name, "it holds no dict, as Megatron writes it");
    }
    return status;
}

/* ---- taking it in */

/* The tensors below "model", or below "model<number>", in their order. */
static ckpt_status take_chunk(ckpt__meg *m, ckpt__meg_rank *r, size_t number, ckpt_error *err)
{
    ckpt__meg_chunk *c = &r->chunks[number];
    char head[32] = "model.";
    if (m->vp > 1)
        snprintf(head, sizeof head, "model%zu.", number);
    for (size_t i = r->first; i < m->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &m->index->tensors[i].info;
        if (!ckpt__str_begins_more(t->name, head) || t->inside)
            continue;
        if (!ckpt__grow(&c->items, &c->capacity, c->count + 1, sizeof *c->items))
            return ckpt__meg_no_memory(err);
        c->items[c->count++] = i;
    }
    return CKPT_OK;
}

static ckpt_status take_model(ckpt__meg *m, ckpt__meg_rank *r, ckpt__index *part, const char *name, ckpt_error *err)
{
    r->root = part->root;
    r->first = m->index->tensor_count;
    ckpt_status status = ckpt__meg_absorb(m->index, part, name, err);
    r->chunks = calloc(m->vp, sizeof *r->chunks);
    if (status == CKPT_OK && !r->chunks)
        status = ckpt__meg_no_memory(err);
    for (size_t v = 0; status == CKPT_OK && v < m->vp; v++)
        status = take_chunk(m, r, v, err);
    r->there = status == CKPT_OK;
    if (!m->first && r->there)
        m->first = r;
    return status;
}

/* The flat buffers of the distributed optimizer, where there are some. */
static ckpt_status read_flat(ckpt__meg *m, ckpt__meg_rank *r, ckpt_error *err)
{
    char name[200], place[160];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__index *part = NULL;
    const ckpt_value *distributed = ckpt_value_get(m->args, "use_distributed_optimizer"),
                     *none = ckpt_value_get(m->args, "no_save_optim");
    const bool optimizer =
        ckpt_value_get(r->root, "optimizer") && !(none && none->kind == CKPT_V_BOOL && none->boolean);
    path_of(m, r, FLAT, name, sizeof name);
    ckpt_status status = ckpt__meg_part(m->request, name, m->index, &part, &why);
    if (status == CKPT_E_SYSTEM && why.sys_errno == ENOENT) {
        if (!optimizer || !distributed || distributed->kind != CKPT_V_BOOL || !distributed->boolean)
            return CKPT_OK;
        status =
            ckpt__fail(&why, CKPT_E_DAMAGED, name,
                       "it is missing, with what %s has of the optimizer. Copy it from where it was saved, or take an "
                       "earlier step; ckpt-migrate --salvage keeps the weights",
                       ckpt__meg_rank_text(m, r, place, sizeof place));
    }
    if (status == CKPT_OK && ckpt_value_get(part->root, "model")) {
        ckpt__index_free(part);
        status = ckpt__fail(
            &why, CKPT_E_MISMATCH, name,
            "it holds a model, as %s does, where the optimizer's buffers are expected. Copy it again from where "
            "it was saved",
            MODEL);
    }
    if (status < 0)
        return lack(m, name, status, &why, err);
    r->flat = part->root;
    return ckpt__meg_absorb(m->index, part, name, err);
}

/* What the first one says holds for all. */
static ckpt_status read_rank(ckpt__meg *m, ckpt__meg_rank *r, ckpt_error *err)
{
    const bool first = !m->first;
    char name[200];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__index *part = NULL;
    path_of(m, r, MODEL, name, sizeof name);
    ckpt_status status = read_model(m, r, name, &part, &why);
    if (status == CKPT_OK)
        status = ckpt__meg_check_kind(m, part->root, name, &why);
    if (status == CKPT_OK && !first)
        status = ckpt__meg_check_same(m, part->root, name, &why);
    if (status == CKPT_OK)
        status = ckpt__meg_check_rank(m, r, part->root, name, &why);
    if (status < 0) {
        ckpt__index_free(part);
        return lack(m, name, status, &why, err);
    }
    status = take_model(m, r, part, name, err); /* which frees the part where it fails */
    if (status == CKPT_OK && first)
        m->args = ckpt_value_get(r->root, "args");
    return status == CKPT_OK ? read_flat(m, r, err) : status;
}

/* ---- the same file twice: all its parameters, or all buffers of its optimizer, have the CRCs of another's, in the same order */

typedef struct digest {
    uint64_t crcs; /* FNV-1a of them */
    size_t count, rank;
} digest;

static void add_digest(const ckpt__meg *m, size_t tensor, uint32_t least, digest *d)
{
    const ckpt__tensor *t = &m->index->tensors[tensor];
    const ckpt__extent *e = t->whole ? &m->index->storages[t->storage].extent : NULL;
    if (!e || !e->has_crc || t->info.ndim < least)
        return;
    d->crcs = (d->crcs ^ e->crc) * UINT64_C(1099511628211);
    d->count++;
}

typedef struct flat_digest {
    const ckpt__meg *m;
    digest *d;
} flat_digest;

static int on_flat(void *ctx, const ckpt_visit *visit)
{
    const flat_digest *f = ctx;
    if (visit->value->kind == CKPT_V_TENSOR && visit->value->tensor < f->m->index->tensor_count)
        add_digest(f->m, visit->value->tensor, 1, f->d);
    return CKPT_OK;
}

static ckpt_status digest_of(const ckpt__meg *m, size_t rank, bool flat, digest *d, ckpt_error *err)
{
    const ckpt__meg_rank *r = &m->ranks[rank];
    *d = (digest){UINT64_C(14695981039346656037), 0, rank};
    if (flat)
        return r->there && r->flat ? (ckpt_status)ckpt_value_walk(r->flat, 0, on_flat, &(flat_digest){m, d}, err)
                                   : CKPT_OK;
    for (size_t v = 0; r->there && v < m->vp; v++)
        for (size_t i = 0; i < r->chunks[v].count; i++)
            add_digest(m, r->chunks[v].items[i], 2, d);
    return CKPT_OK;
}

static int by_crcs(const void *a, const void *b)
{
    const digest *x = a, *y = b;
    if (x->crcs != y->crcs)
        return x->crcs < y->crcs ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static ckpt_status check_doubles(ckpt__meg *m, bool flat, ckpt_error *err)
{
    const size_t n = m->rank_count;
    char name[200];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    digest *all = calloc(n + 1, sizeof *all);
    if (!all)
        return ckpt__meg_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = digest_of(m, i, flat, &all[i], err);
    qsort(all, n, sizeof *all, by_crcs);
    for (size_t i = 1; status == CKPT_OK && i < n; i++) {
        ckpt__meg_rank *r = &m->ranks[all[i].rank];
        const ckpt__meg_rank *one = &m->ranks[all[i - 1].rank];
        if (all[i].count < 2 || all[i].count != all[i - 1].count || all[i].crcs != all[i - 1].crcs)
            continue;
        path_of(m, r, flat ? FLAT : MODEL, name, sizeof name);
        status = ckpt__fail(&why, CKPT_E_MISMATCH, name,
                            "it has the same %s as the one in %s, byte by byte: it is a copy of it, and what this rank "
                            "had is missing. Copy it again from where it was saved",
                            flat ? "buffers" : "parameters", one->folder);
        if (flat)
            r->flat = NULL;
        else
            r->there = false;
        status = lack(m, name, status, &why, err);
    }
    free(all);
    return status;
}

/* ---- all of them */

static size_t size_said(const ckpt_value *args, const char *key)
{
    int64_t size;
    if (!ckpt__meg_int(args, key, &size))
        return 1;
    return size < 1 || size > MOST_RANKS ? 0 : (size_t)size;
}

/* Of one part that can be read. */
static ckpt_status set_sizes(ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err)
{
    m->args = ckpt_value_get(root, "args");
    m->tp = size_said(m->args, "tensor_model_parallel_size");
    m->pp = size_said(m->args, "pipeline_model_parallel_size");
    m->ep = size_said(m->args, "expert_model_parallel_size");
    m->vp = ckpt__meg_count_chunks(root);
    m->rank_count = m->tp * m->pp * m->ep; /* each is at most 2^13 */
    m->stage_count = m->pp * m->vp;
    if (m->rank_count == 0 || m->rank_count > MOST_RANKS || m->stage_count > MOST_RANKS)
        return ckpt__fail(
            err, CKPT_E_LIMIT, name,
            "its arguments say that there are %zu tensor-parallel ranks, %zu pipeline ranks of %zu stages "
            "and %zu expert-parallel ranks (0: less than 1, or more than %d); %d together are read",
            m->tp, m->pp, m->vp, m->ep, MOST_RANKS, MOST_RANKS);
    return CKPT_OK;
}

/* Sizes by the arguments of the first part that can be read. */
static ckpt_status take_sizes(ckpt__meg *m, const folders *all, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    ckpt_error why = CKPT_ERROR_INIT;
    char name[200];
    m->tp = m->pp = m->ep = m->vp = 1;
    for (size_t i = 0; i < all->count && !m->args; i++) {
        const ckpt__meg_rank r = {.tp = all->items[i].numbers[0], .folder = all->items[i].name};
        ckpt__index *part = NULL;
        path_of(m, &r, MODEL, name, sizeof name);
        status = read_model(m, &r, name, &part, &why);
        if (status == CKPT_OK)
            status = ckpt__meg_check_kind(m, part->root, name, &why);
        if (status < 0) {
            ckpt__index_free(part);
            if (!ckpt__survey_leaves(m->request, status))
                break;
            continue; /* it is said when its turn comes */
        }
        status = set_sizes(m, part->root, name, err);
        ckpt__index_free(part);
        if (status < 0)
            return status;
    }
    if (m->args) {
        m->args = NULL; /* that of the first part that is taken in is kept */
        return CKPT_OK;
    }
    if (err)
        *err = why;
    return status;
}

/* The numbers in the name of a rank's folder: that of a pipeline stage, and of an expert-parallel rank, where there are several. */
static size_t numbers_of(const ckpt__meg *m, const ckpt__meg_rank *r, int64_t numbers[3])
{
    size_t n = 0;
    numbers[n++] = r->tp;
    if (m->pp > 1)
        numbers[n++] = r->pp;
    if (m->ep > 1)
        numbers[n++] = r->ep;
    return n;
}

/* Has the folder these numbers, and behind them none but 0? */
static bool is_folder_of(const folder *f, const int64_t *numbers, size_t count)
{
    bool is = f->count >= count;
    for (size_t k = 0; is && k < f->count; k++)
        is = f->numbers[k] == (k < count ? numbers[k] : 0);
    return is;
}

/* The folder of a rank: that with its numbers, or where there is none as it would be called. */
static ckpt_status name_rank(ckpt__meg *m, const folders *all, ckpt__meg_rank *r, ckpt_error *err)
{
    char name[80];
    int64_t numbers[3];
    const size_t count = numbers_of(m, r, numbers);
    size_t size = (size_t)snprintf(name, sizeof name, "mp_rank_%02lld", (long long)numbers[0]);
    for (size_t k = 1; k < count; k++)
        size += (size_t)snprintf(name + size, sizeof name - size, "_%03lld", (long long)numbers[k]);
    for (size_t i = 0; i < all->count; i++)
        if (is_folder_of(&all->items[i], numbers, count))
            snprintf(name, sizeof name, "%s", all->items[i].name);
    r->folder = ckpt__arena_copy(m->index->arena, name, strlen(name));
    return r->folder ? CKPT_OK : ckpt__meg_no_memory(err);
}

/* Is it the folder of a rank of these sizes, and the first one of that rank? */
static bool is_own(const ckpt__meg *m, const folders *all, size_t number)
{
    const folder *f = &all->items[number];
    const ckpt__meg_rank most = {.tp = (int64_t)m->tp, .pp = (int64_t)m->pp, .ep = (int64_t)m->ep};
    int64_t sizes[3];
    const size_t count = numbers_of(m, &most, sizes);
    bool own = f->count >= count;
    for (size_t k = 0; own && k < f->count; k++)
        own = f->numbers[k] < (k < count ? sizes[k] : 1);
    for (size_t k = 0; own && k < number; k++)
        own = !is_folder_of(&all->items[k], f->numbers, count);
    return own;
}

/* A folder that is none of the run's ranks. */
static ckpt_status check_folders(ckpt__meg *m, const folders *all, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < all->count; i++) {
        if (is_own(m, all, i))
            continue;
        ckpt_error why = CKPT_ERROR_INIT;
        char experts[80] = "";
        if (m->ep > 1)
            snprintf(experts, sizeof experts, " times %zu expert-parallel ranks", m->ep);
        status = ckpt__fail(
            &why, CKPT_E_MISMATCH, all->items[i].name,
            "it is the folder of no rank of %zu tensor-parallel ranks times %zu pipeline stages%s, which the "
            "arguments of the others say: these are not the files of one run",
            m->tp, m->pp, experts);
        status = lack(m, all->items[i].name, status, &why, err);
    }
    return status;
}

static ckpt_status read_all(ckpt__meg *m, const folders *all, ckpt_error *err)
{
    ckpt_status status = take_sizes(m, all, err);
    if (status < 0)
        return status;
    m->ranks = calloc(m->rank_count, sizeof *m->ranks);
    status = m->ranks ? check_folders(m, all, err) : ckpt__meg_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < m->rank_count; i++) {
        ckpt__meg_rank *r = &m->ranks[i];
        r->tp = (int64_t)(i % m->tp);
        r->pp = (int64_t)(i / m->tp % m->pp);
        r->ep = (int64_t)(i / m->tp / m->pp);
        status = name_rank(m, all, r, err);
        if (status == CKPT_OK)
            status = read_rank(m, r, err);
    }
    if (status == CKPT_OK)
        status = check_doubles(m, false, err);
    return status == CKPT_OK ? check_doubles(m, true, err) : status;
}

const ckpt__meg_rank *ckpt__meg_of_experts(const ckpt__meg *m, size_t stage, size_t ep)
{
    for (size_t t = 0; t < m->tp; t++)
        if (ckpt__meg_rank_of(m, t, stage, ep)->there)
            return ckpt__meg_rank_of(m, t, stage, ep);
    return NULL;
}

const ckpt__meg_rank *ckpt__meg_of_stage(const ckpt__meg *m, size_t stage)
{
    const ckpt__meg_rank *r = NULL;
    for (size_t e = 0; !r && e < m->ep; e++)
        r = ckpt__meg_of_experts(m, stage, e);
    return r;
}

const ckpt__meg_rank *ckpt__meg_holder(const ckpt__meg *m, const ckpt__meg_param *p, size_t tp)
{
    for (size_t e = p->ep; e < (p->expert ? p->ep + 1 : m->ep); e++)
        if (ckpt__meg_rank_of(m, tp, p->stage, e)->there)
            return ckpt__meg_rank_of(m, tp, p->stage, e);
    return NULL;
}

ckpt_status ckpt__meg_put(ckpt__meg *m, ckpt_str key, const ckpt_value *value, ckpt_error *err)
{
    const ckpt_value *name = key.data ? ckpt__value_str(m->index->arena, key.data, key.size) : NULL;
    if (!value || !name || !ckpt__grow(&m->entries, &m->entry_capacity, m->entry_count + 1, sizeof *m->entries))
        return ckpt__meg_no_memory(err);
    m->entries[m->entry_count++] = (ckpt_entry){name, value};
    return CKPT_OK;
}

static ckpt_status join(ckpt__meg *m, ckpt_error *err)
{
    const size_t logical = m->index->tensor_count;
    ckpt_status status = ckpt__meg_find_params(m, err);
    if (status == CKPT_OK)
        status = ckpt__meg_check_optimizer(m, err);
    if (status == CKPT_OK)
        status = ckpt__meg_join_params(m, err);
    if (status == CKPT_OK)
        status = ckpt__meg_join_optimizer(m, err);
    if (status == CKPT_OK)
        status = ckpt__meg_put_values(m, err);
    if (status == CKPT_OK)
        status = ckpt__index_finish(m->index, err);
    if (status == CKPT_OK)
        status = ckpt__meg_keep_rest(m, logical, err);
    return status == CKPT_OK ? ckpt__meg_note_vocabulary(m->index, m->args, err) : status;
}

static ckpt_status read_folders(ckpt__meg *m, ckpt_error *err)
{
    folders all = {0};
    ckpt_status status = ckpt__source_each(m->request->source, m->place->folder, see, &all, err);
    if (all.count)
        qsort(all.items, all.count, sizeof *all.items, by_numbers);
    if (status == CKPT_OK && all.count == 0)
        status = ckpt__fail(err, m->place->folder[0] ? CKPT_E_DAMAGED : CKPT_E_FORMAT, m->label,
                            "%s has no files of Megatron: neither .metadata and common.pt (torch_dist) nor "
                            "mp_rank_00/model_optim_rng.pt",
                            m->place->folder[0] ? m->place->folder : "it");
    if (status == CKPT_OK)
        status = read_all(m, &all, err);
    free(all.items);
    return status;
}

static void free_all(ckpt__meg *m)
{
    for (size_t i = 0; m->ranks && i < m->rank_count; i++) {
        for (size_t v = 0; m->ranks[i].chunks && v < m->vp; v++)
            free(m->ranks[i].chunks[v].items);
        free(m->ranks[i].chunks);
        for (size_t k = 0; k < CKPT__MEG_OPTIMIZERS; k++)
            ckpt__hash_free(m->ranks[i].states[k]);
    }
    free(m->ranks);
    free(m->params);
    free(m->stages);
    free(m->entries);
    ckpt__hash_free(m->by_name);
}

static ckpt_status tell_layout(const ckpt__meg *m, ckpt_error *err)
{
    char stages[60] = "", experts[60] = "";
    if (m->vp > 1)
        snprintf(stages, sizeof stages, " of %zu stages each", m->vp);
    if (m->ep > 1)
        snprintf(experts, sizeof experts, ", %zu expert-parallel ranks", m->ep);
    return ckpt__index_tell_layout(m->index, "%zu tensor parallel, %zu pipeline rank%s%s%s", m->tp, m->pp,
                                   m->pp == 1 ? "" : "s", stages, experts)
               ? CKPT_OK
               : ckpt__meg_no_memory(err);
}

ckpt_status ckpt__meg_read_ranks(const ckpt__read_request *request, const ckpt__meg_place *place, ckpt__index **out,
                                 ckpt_error *err)
{
    char label[256];
    int64_t step;
    ckpt__meg m = {.request = request, .place = place, .label = label};
    ckpt__escape(label, sizeof label, request->source->path, strlen(request->source->path));
    *out = NULL;
    m.index = request->arena ? ckpt__index_new_part(request->arena) : ckpt__index_new(ckpt__known_limit(0, true));
    if (!m.index)
        return ckpt__meg_no_memory(err);
    m.index->format = "megatron";
    m.index->kind = "directory";
    ckpt_status status = read_folders(&m, err);
    if (status == CKPT_OK && !m.first)
        status = ckpt__fail(err, CKPT_E_DAMAGED, label, "the part of no rank is whole: nothing can be salvaged");
    if (status == CKPT_OK && ckpt__meg_int(m.first->root, "iteration", &step))
        m.index->step = step;
    if (status == CKPT_OK)
        status = join(&m, err);
    if (status == CKPT_OK && !ckpt__meg_int(ckpt_value_get(m.first->root, "args"), "world_size", &m.index->job.ranks))
        m.index->job.ranks = 0;
    m.index->job.tp = (int64_t)m.tp;
    m.index->job.pp = (int64_t)m.pp;
    if (status == CKPT_OK)
        status = tell_layout(&m, err);
    free_all(&m);
    status = ckpt__index_refused(m.index, status, label, err);
    if (status < 0)
        ckpt__index_free(m.index);
    else
        *out = m.index;
    return status;
}
