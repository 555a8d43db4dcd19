/* format/megatron/ranks.c - the files of all ranks: which there are, which there must be, whether they are of one save. */
#include "format/megatron/ranks.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1 << 13, MOST_KEYS = 1000 };

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

static const char *place_of(const ckpt__meg_rank *r, size_t stages, char *out, size_t size)
{
    if (stages > 1)
        snprintf(out, size, "tensor-parallel rank %lld of pipeline stage %lld", (long long)r->tp, (long long)r->pp);
    else
        snprintf(out, size, "tensor-parallel rank %lld", (long long)r->tp);
    return out;
}

static ckpt_status read_model(ckpt__meg *m, const ckpt__meg_rank *r, const char *name, ckpt__index **part,
                              ckpt_error *err)
{
    char place[80];
    ckpt_status status = ckpt__meg_part(m->request, name, m->index, part, err);
    if (status == CKPT_E_SYSTEM && err && err->sys_errno == ENOENT)
        status = ckpt__fail(
            err, CKPT_E_DAMAGED, name,
            "it is missing, with what %s has of the model and of its optimizer. Copy it from where it was saved, or take an "
            "earlier step",
            place_of(r, m->pp, place, sizeof place));
    if (status == CKPT_OK && (!(*part)->root || (*part)->root->kind != CKPT_V_DICT)) {
        ckpt__index_free(*part);
        *part = NULL;
        status = ckpt__fail(err, CKPT_E_FORMAT, name, "it holds no dict, as Megatron writes it");
    }
    return status;
}

/* ---- is it one of this checkpoint? */

static bool differs(const ckpt_value *a, const ckpt_value *b, const char *key, int64_t *x, int64_t *y)
{
    const bool one = ckpt__meg_int(a, key, x), two = ckpt__meg_int(b, key, y);
    return one != two || *x != *y;
}

static ckpt_status check_same(const ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err)
{
    static const char *const keys[] = {"num_layers",
                                       "hidden_size",
                                       "num_attention_heads",
                                       "num_query_groups",
                                       "ffn_hidden_size",
                                       "padded_vocab_size",
                                       "tensor_model_parallel_size",
                                       "pipeline_model_parallel_size",
                                       "expert_model_parallel_size",
                                       "world_size",
                                       "seed",
                                       "consumed_train_samples"};
    const ckpt_value *args = ckpt_value_get(root, "args");
    int64_t x, y;
    if (differs(root, m->first->root, "iteration", &x, &y))
        return ckpt__fail(
            err, CKPT_E_MISMATCH, name,
            "it is of iteration %lld, and the part in %s is of iteration %lld: these are not the files of one "
            "step",
            (long long)x, m->first->folder, (long long)y);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (differs(args, m->args, keys[i], &x, &y))
            return ckpt__fail(err, CKPT_E_MISMATCH, name,
                              "its arguments say %s %lld, and those in %s say %lld: these are not the files of one run",
                              keys[i], (long long)x, m->first->folder, (long long)y);
    return CKPT_OK;
}

/* The iteration by the folder's name, and what is not read. */
static ckpt_status check_kind(const ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err)
{
    int64_t step, size;
    const ckpt_value *args = ckpt_value_get(root, "args");
    if (root->entry_count > MOST_KEYS)
        return ckpt__fail(err, CKPT_E_LIMIT, name,
                          "its dict has %zu keys, and Megatron writes some ten of them; %d are read", root->entry_count,
                          MOST_KEYS);
    if (!args)
        return ckpt__fail(
            err, CKPT_E_FORMAT, name,
            "it has no arguments (args), which say over how many ranks the model is cut: Megatron writes them");
    if (m->place->iteration >= 0 && ckpt__meg_int(root, "iteration", &step) && step != m->place->iteration)
        return ckpt__fail(err, CKPT_E_MISMATCH, name,
                          "it is of iteration %lld, and lies in %s: these are not the files of one step",
                          (long long)step, m->place->folder);
    if (ckpt__meg_int(args, "expert_model_parallel_size", &size) && size > 1)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, name,
            "its experts are cut over %lld ranks (expert parallel), and such checkpoints are not read in this "
            "layout: save it with Megatron-LM and --ckpt-format torch_dist",
            (long long)size);
    if (ckpt_value_get(root, "model0"))
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, name,
            "it has several parts of the model (model0, model1, ...: an interleaved pipeline), and such "
            "checkpoints are not read in this layout: save it with Megatron-LM and --ckpt-format torch_dist");
    const ckpt_value *model = ckpt_value_get(root, "model");
    return model && model->kind == CKPT_V_DICT
               ? CKPT_OK
               : ckpt__fail(err, CKPT_E_FORMAT, name, "it has no dict 'model', as Megatron writes it");
}

/* The number of the process that wrote it, where the arguments have it: its tensor-parallel rank is the quickest to count, and a
 * pipeline stage the slowest or the next. A converter leaves the same number in all. */
static ckpt_status check_rank(const ckpt__meg *m, const ckpt__meg_rank *r, const ckpt_value *root, const char *name,
                              ckpt_error *err)
{
    int64_t rank, world;
    char place[80];
    const ckpt_value *args = ckpt_value_get(root, "args");
    const int64_t tp = (int64_t)m->tp, pp = (int64_t)m->pp;
    if (!ckpt__meg_int(args, "rank", &rank) || !ckpt__meg_int(args, "world_size", &world) || rank <= 0 ||
        world < tp * pp || world % pp != 0)
        return CKPT_OK;
    const bool fits = rank % tp == r->tp && (rank == r->tp + tp * r->pp || rank / (world / pp) == r->pp);
    return fits
               ? CKPT_OK
               : ckpt__fail(
                     err, CKPT_E_MISMATCH, name,
                     "its arguments say that rank %lld of %lld wrote it, which is not %s of %lld times %lld: it is the "
                     "file of another rank, or of a run of another size",
                     (long long)rank, (long long)world, place_of(r, m->pp, place, sizeof place), (long long)pp,
                     (long long)tp);
}

/* ---- taking it in */

static ckpt_status take_model(ckpt__meg *m, ckpt__meg_rank *r, ckpt__index *part, const char *name, ckpt_error *err)
{
    r->root = part->root;
    r->first = m->index->tensor_count;
    ckpt_status status = ckpt__meg_absorb(m->index, part, name, err);
    for (size_t i = r->first; status == CKPT_OK && i < m->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &m->index->tensors[i].info;
        if (!ckpt__str_begins_more(t->name, "model.") || t->inside)
            continue;
        if (!ckpt__grow(&r->params, &r->param_capacity, r->param_count + 1, sizeof *r->params))
            return ckpt__meg_no_memory(err);
        r->params[r->param_count++] = i;
    }
    r->there = status == CKPT_OK;
    if (!m->first && r->there)
        m->first = r;
    return status;
}

/* The flat buffers of the distributed optimizer, where there are some. */
static ckpt_status read_flat(ckpt__meg *m, ckpt__meg_rank *r, ckpt_error *err)
{
    char name[200], place[80];
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
                       place_of(r, m->pp, place, sizeof place));
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
        status = check_kind(m, part->root, name, &why);
    if (status == CKPT_OK && !first)
        status = check_same(m, part->root, name, &why);
    if (status == CKPT_OK)
        status = check_rank(m, r, part->root, name, &why);
    if (status < 0) {
        ckpt__index_free(part);
        return lack(m, name, status, &why, err);
    }
    status = take_model(m, r, part, name, err);
    if (first)
        m->args = ckpt_value_get(r->root, "args");
    return status == CKPT_OK ? read_flat(m, r, err) : status;
}

/* ---- the same file twice: all its parameters have the CRCs of another's, in the same order */

typedef struct digest {
    uint64_t crcs; /* FNV-1a of them */
    size_t count, rank;
} digest;

static digest digest_of(const ckpt__meg *m, size_t rank)
{
    const ckpt__meg_rank *r = &m->ranks[rank];
    digest d = {UINT64_C(14695981039346656037), 0, rank};
    for (size_t i = 0; r->there && i < r->param_count; i++) {
        const ckpt__tensor *t = &m->index->tensors[r->params[i]];
        const ckpt__extent *e = t->whole ? &m->index->storages[t->storage].extent : NULL;
        if (!e || !e->has_crc || t->info.ndim < 2)
            continue;
        d.crcs = (d.crcs ^ e->crc) * UINT64_C(1099511628211);
        d.count++;
    }
    return d;
}

static int by_crcs(const void *a, const void *b)
{
    const digest *x = a, *y = b;
    if (x->crcs != y->crcs)
        return x->crcs < y->crcs ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static ckpt_status check_doubles(ckpt__meg *m, ckpt_error *err)
{
    const size_t n = m->tp * m->pp;
    char name[200];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    digest *all = calloc(n + 1, sizeof *all);
    if (!all)
        return ckpt__meg_no_memory(err);
    for (size_t i = 0; i < n; i++)
        all[i] = digest_of(m, i);
    qsort(all, n, sizeof *all, by_crcs);
    for (size_t i = 1; status == CKPT_OK && i < n; i++) {
        ckpt__meg_rank *r = &m->ranks[all[i].rank];
        const ckpt__meg_rank *one = &m->ranks[all[i - 1].rank];
        if (all[i].count < 2 || all[i].count != all[i - 1].count || all[i].crcs != all[i - 1].crcs)
            continue;
        path_of(m, r, MODEL, name, sizeof name);
        status = ckpt__fail(
            &why, CKPT_E_MISMATCH, name,
            "it has the same parameters as the one in %s, byte by byte: it is a copy of it, and what this rank "
            "had is missing. Copy it again from where it was saved",
            one->folder);
        r->there = false;
        status = lack(m, name, status, &why, err);
    }
    free(all);
    return status;
}

/* ---- all of them */

/* Sizes by the arguments of the first part that can be read. */
static ckpt_status take_sizes(ckpt__meg *m, const folders *all, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    ckpt_error why = CKPT_ERROR_INIT;
    int64_t tp, pp;
    char name[200];
    m->tp = m->pp = 1;
    for (size_t i = 0; i < all->count && !m->args; i++) {
        const ckpt__meg_rank r = {.tp = all->items[i].numbers[0], .folder = all->items[i].name};
        ckpt__index *part = NULL;
        path_of(m, &r, MODEL, name, sizeof name);
        status = read_model(m, &r, name, &part, &why);
        if (status == CKPT_OK)
            status = check_kind(m, part->root, name, &why);
        if (status < 0) {
            ckpt__index_free(part);
            if (!ckpt__survey_leaves(m->request, status))
                break;
            continue; /* it is said when its turn comes */
        }
        m->args = ckpt_value_get(part->root, "args");
        if (!ckpt__meg_int(m->args, "tensor_model_parallel_size", &tp))
            tp = 1;
        if (!ckpt__meg_int(m->args, "pipeline_model_parallel_size", &pp))
            pp = 1;
        ckpt__index_free(part);
        if (tp < 1 || pp < 1 || tp > MOST_RANKS || pp > MOST_RANKS || tp * pp > MOST_RANKS)
            return ckpt__fail(
                err, CKPT_E_LIMIT, name,
                "its arguments say %lld tensor-parallel ranks and %lld pipeline stages; %d together are read",
                (long long)tp, (long long)pp, MOST_RANKS);
        m->tp = (size_t)tp;
        m->pp = (size_t)pp;
    }
    if (m->args) {
        m->args = NULL; /* that of the first part that is taken in is kept */
        return CKPT_OK;
    }
    if (err)
        *err = why;
    return status;
}

/* The folder of a rank: that with its numbers, or where there is none as it would be called. */
static ckpt_status name_rank(ckpt__meg *m, const folders *all, ckpt__meg_rank *r, ckpt_error *err)
{
    char name[64];
    const size_t numbers = m->pp > 1 ? 2 : 1;
    if (m->pp > 1)
        snprintf(name, sizeof name, "mp_rank_%02lld_%03lld", (long long)r->tp, (long long)r->pp);
    else
        snprintf(name, sizeof name, "mp_rank_%02lld", (long long)r->tp);
    for (size_t i = 0; i < all->count; i++) {
        const folder *f = &all->items[i];
        if (f->count >= numbers && f->numbers[0] == r->tp && (numbers == 1 || f->numbers[1] == r->pp))
            snprintf(name, sizeof name, "%s", f->name);
    }
    r->folder = ckpt__arena_copy(m->index->arena, name, strlen(name));
    return r->folder ? CKPT_OK : ckpt__meg_no_memory(err);
}

/* A folder that is none of the run's ranks. */
static ckpt_status check_folders(ckpt__meg *m, const folders *all, ckpt_error *err)
{
    const size_t numbers = m->pp > 1 ? 2 : 1;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < all->count; i++) {
        const folder *f = &all->items[i];
        bool own = f->numbers[0] < (int64_t)m->tp && f->count >= numbers;
        for (size_t k = 1; own && k < f->count; k++)
            own = f->numbers[k] < (k < numbers ? (int64_t)m->pp : 1);
        for (size_t k = 0; own && k < i; k++)
            own =
                all->items[k].numbers[0] != f->numbers[0] || (numbers > 1 && all->items[k].numbers[1] != f->numbers[1]);
        if (own)
            continue;
        ckpt_error why = CKPT_ERROR_INIT;
        status =
            ckpt__fail(&why, CKPT_E_MISMATCH, f->name,
                       "it is the folder of no rank of %zu tensor-parallel ranks times %zu pipeline stages, which the "
                       "arguments of the others say: these are not the files of one run",
                       m->tp, m->pp);
        status = lack(m, f->name, status, &why, err);
    }
    return status;
}

static ckpt_status read_all(ckpt__meg *m, const folders *all, ckpt_error *err)
{
    ckpt_status status = take_sizes(m, all, err);
    if (status < 0)
        return status;
    m->ranks = calloc(m->tp * m->pp, sizeof *m->ranks);
    status = m->ranks ? check_folders(m, all, err) : ckpt__meg_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < m->tp * m->pp; i++) {
        ckpt__meg_rank *r = &m->ranks[i];
        r->tp = (int64_t)(i % m->tp);
        r->pp = (int64_t)(i / m->tp);
        status = name_rank(m, all, r, err);
        if (status == CKPT_OK)
            status = read_rank(m, r, err);
    }
    return status == CKPT_OK ? check_doubles(m, err) : status;
}

const ckpt__meg_rank *ckpt__meg_of_stage(const ckpt__meg *m, size_t stage)
{
    for (size_t t = 0; t < m->tp; t++)
        if (ckpt__meg_rank_of(m, t, stage)->there)
            return ckpt__meg_rank_of(m, t, stage);
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
    for (size_t i = 0; m->ranks && i < m->tp * m->pp; i++) {
        free(m->ranks[i].params);
        ckpt__hash_free(m->ranks[i].states);
    }
    free(m->ranks);
    free(m->params);
    free(m->stages);
    free(m->entries);
    ckpt__hash_free(m->by_name);
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
    if (status == CKPT_OK &&
        !ckpt__index_tell_layout(m.index, "%zu tensor parallel, %zu pipeline rank%s", m.tp, m.pp, m.pp == 1 ? "" : "s"))
        status = ckpt__meg_no_memory(err);
    free_all(&m);
    status = ckpt__index_refused(m.index, status, label, err);
    if (status < 0)
        ckpt__index_free(m.index);
    else
        *out = m.index;
    return status;
}
