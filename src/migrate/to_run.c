/* migrate/to_run.c - the directory of a run that ckpt_run_resume takes: the step's directory, and of several ranks one for each.
 *
 *   step-00000020/{model,training}.safetensors, checkpoint.json        of one rank
 *   rank-00000/step-00000020/..., rank-00001/step-00000020/..., ...    of several
 *
 * Each rank of such a run restores what it binds, from its own directory, and there are no parts of tensors: a rank has tensors of its
 * own, or the same as others. So each tensor goes to all ranks; one that the source has for a rank ("rank-00001.rng") goes to that rank;
 * and of what --shard names each rank has its rows, as a tensor of its own. */
#include "migrate/to_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "format/native/manifest.h"
#include "io/publish.h"
#include "migrate/resume.h"
#include "migrate/shards.h"
#include "model/value_path.h"

enum { MOST_RANKS = 1 << 16 };

/* What the index says of a tensor while the files of one rank are described. */
typedef struct own_row {
    ckpt_str name, param, device; /* as they are otherwise */
    const int64_t *shape;
    uint64_t nbytes, begin; /* begin: byte of the tensor where the rank's rows begin */
    int64_t rank;           /* it is of that rank alone; -1: of all */
    bool cut;
} own_row;

typedef struct run_target {
    ckpt__out *w;
    ckpt__migration *m;
    own_row *rows;   /* heap: one a tensor */
    size_t *tensors; /* heap: of one file */
    const ckpt_value *root;
    int64_t ranks, step;
    int64_t time;
    uint64_t save;
    ckpt_error *err;
} run_target;

static ckpt_status no_memory(const run_target *t)
{
    return ckpt__migration_no_memory(t->err);
}

static ckpt_tensor_info *info_of(const run_target *t, size_t tensor)
{
    return &t->m->index->tensors[tensor].info;
}

/* ---- who has what */

/* "rank-00003" as a key; -1: it is none. */
static int64_t rank_of_key(const ckpt_value *key)
{
    int64_t rank = -1;
    return key->kind == CKPT_V_STR && key->text.size == 10 && ckpt__str_begins(key->text, "rank-") &&
                   ckpt__parse_i64(key->text.data + 5, 5, &rank)
               ? rank
               : -1;
}

/* The rank that an entry of the root is of. What is empty, as all was left out, is of none. */
static int64_t own_rank(const ckpt_entry *e)
{
    return e->value->kind == CKPT_V_DICT && e->value->entry_count == 0 ? -1 : rank_of_key(e->key);
}

/* The number of ranks that values or tensors are of; 0: nothing is of one rank. *first: what is. */
static int64_t own_ranks(run_target *t, ckpt_str *first)
{
    const ckpt_value *root = t->root;
    int64_t most = 0;
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        const int64_t rank = own_rank(&root->entries[i]);
        if (rank >= 0 && most == 0)
            *first = root->entries[i].key->text;
        most = rank >= most ? rank + 1 : most;
    }
    for (size_t k = 0; k < t->m->chosen_count; k++) {
        const int64_t rank = t->rows[t->m->chosen[k]].rank;
        if (rank >= 0 && most == 0)
            *first = info_of(t, t->m->chosen[k])->name;
        most = rank >= most ? rank + 1 : most;
    }
    return most;
}

static ckpt_status check_ranks(run_target *t)
{
    ckpt_str first = {NULL, 0};
    char shown[200];
    const int64_t own = own_ranks(t, &first), roots = (int64_t)ckpt__source_roots(t->m->reader->source);
    const uint32_t wanted = t->m->options.target_world;
    const bool several = ckpt__format_of(t->m->from)->has_manifest && roots > 1;
    if (wanted > MOST_RANKS)
        return ckpt__fail(t->err, CKPT_E_ARGUMENT, t->m->dst, "a target for %u ranks: at most %d are written",
                          (unsigned)wanted, MOST_RANKS);
    t->ranks = wanted ? wanted : several ? roots : own ? own : 1;
    if (t->m->rank_tags && t->m->options.ranks.world != t->ranks)
        return ckpt__fail(t->err, CKPT_E_ARGUMENT, t->m->dst,
                          "the devices of %lld ranks were asked for, and the run has %lld: say --world %lld",
                          (long long)t->m->options.ranks.world, (long long)t->ranks, (long long)t->ranks);
    if (!own || t->ranks == own || (several && own <= roots && t->ranks == roots))
        return CKPT_OK;
    return ckpt__fail(
        t->err, CKPT_E_MISMATCH, t->m->src,
        "it has what each of %lld ranks has for itself ('%s'), and the target is for %lld: --rank-state derive or "
        "drop for states, --shard GLOB for tensors whose rows the ranks share",
        (long long)own, ckpt__escape(shown, sizeof shown, first.data, first.size), (long long)t->ranks);
}

/* ---- what is cut */

static size_t param_at(const run_target *t, const ckpt__hash *names, const ckpt_tensor_info *i)
{
    size_t at = SIZE_MAX;
    (void)t;
    return i->param.data && i->state_key.data && ckpt__hash_get(names, i->param.data, i->param.size, &at) ? at
                                                                                                          : SIZE_MAX;
}

static ckpt_status check_cut(const run_target *t, size_t tensor)
{
    const ckpt_tensor_info *i = info_of(t, tensor);
    char shown[200];
    ckpt__escape(shown, sizeof shown, i->name.data, i->name.size);
    if (i->shape[0] < t->ranks)
        return ckpt__fail(t->err, CKPT_E_MISMATCH, t->m->src, "--shard: '%s' has %lld rows, fewer than %lld ranks",
                          shown, (long long)i->shape[0], (long long)t->ranks);
    if (!ckpt_dtype_size(i->dtype))
        return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->src,
                          "--shard: '%s' is %s, whose elements are not whole bytes", shown, ckpt_dtype_name(i->dtype));
    for (size_t k = 0; k < t->m->chosen_count; k++) {
        const size_t other = t->m->chosen[k];
        if (other != tensor && ckpt__same_storage(&t->m->index->tensors[other], &t->m->index->tensors[tensor]))
            return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, t->m->src,
                              "--shard: '%s' shares its storage with another tensor, and is not cut", shown);
    }
    return CKPT_OK;
}

static ckpt_status find_cuts(run_target *t)
{
    const ckpt_migrate_options *o = &t->m->options;
    ckpt__hash *names = ckpt__hash_new(t->m->chosen_count);
    bool *matched = calloc(o->shard_count + 1, sizeof *matched);
    ckpt_status status = names && matched ? CKPT_OK : no_memory(t);
    for (size_t k = 0; status == CKPT_OK && k < t->m->chosen_count; k++) {
        const ckpt_str name = info_of(t, t->m->chosen[k])->name;
        if (ckpt__hash_put(names, name.data, name.size, t->m->chosen[k], NULL) < 0)
            status = no_memory(t);
    }
    for (size_t k = 0; status == CKPT_OK && k < t->m->chosen_count; k++) {
        const size_t i = t->m->chosen[k], glob = ckpt__shard_glob(o, info_of(t, i)),
                     at = param_at(t, names, info_of(t, i));
        if (glob == o->shard_count || t->rows[i].rank >= 0)
            continue;
        matched[glob] = true;
        t->rows[i].cut = t->ranks > 1 && ckpt__shard_is_cut(info_of(t, i), at == SIZE_MAX ? NULL : info_of(t, at));
        status = t->rows[i].cut ? check_cut(t, i) : CKPT_OK;
    }
    for (size_t g = 0; status == CKPT_OK && g < o->shard_count; g++)
        if (!matched[g] && !o->allow_unused) {
            char shown[200];
            status = ckpt__fail(t->err, CKPT_E_ARGUMENT, t->m->src, "--shard '%s' names no tensor",
                                ckpt__escape(shown, sizeof shown, o->shard[g], strlen(o->shard[g])));
        }
    ckpt__hash_free(names);
    free(matched);
    return status;
}

/* ---- the index as one rank sees it, and as it is */

static ckpt_status cut_row(run_target *t, size_t tensor, int64_t rank)
{
    own_row *row = &t->rows[tensor];
    ckpt_tensor_info *i = info_of(t, tensor);
    const int64_t begin = ckpt__shard_row(i->shape[0], t->ranks, rank),
                  end = ckpt__shard_row(i->shape[0], t->ranks, rank + 1);
    const uint64_t bytes = i->nbytes / (uint64_t)i->shape[0];
    int64_t *shape = ckpt__arena_array(t->m->index->arena, i->ndim, sizeof *shape);
    if (!shape)
        return no_memory(t);
    memcpy(shape, i->shape, i->ndim * sizeof *shape);
    shape[0] = end - begin;
    row->begin = bytes * (uint64_t)begin;
    i->shape = shape;
    i->nbytes = bytes * (uint64_t)(end - begin);
    return CKPT_OK;
}

static ckpt_status see_as(run_target *t, int64_t rank)
{
    const ckpt__migration *m = t->m;
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const size_t n = m->chosen[k];
        own_row *row = &t->rows[n];
        ckpt_tensor_info *i = info_of(t, n);
        row->begin = 0;
        if (m->rank_tags && m->rank_tags[(size_t)rank * m->index->tensor_count + n].data)
            i->device = m->rank_tags[(size_t)rank * m->index->tensor_count + n];
        if (row->rank == rank)
            ckpt__shard_rank(i->name, &i->name);
        if (i->param.data && ckpt__shard_rank(i->param, &(ckpt_str){NULL, 0}) == rank)
            ckpt__shard_rank(i->param, &i->param);
        status = row->cut ? cut_row(t, n, rank) : CKPT_OK;
    }
    return status;
}

static void see_whole(run_target *t)
{
    for (size_t k = 0; k < t->m->chosen_count; k++) {
        const own_row *row = &t->rows[t->m->chosen[k]];
        ckpt_tensor_info *i = info_of(t, t->m->chosen[k]);
        i->name = row->name;
        i->param = row->param;
        i->device = row->device;
        i->shape = row->shape;
        i->nbytes = row->nbytes;
    }
}

/* ---- files */

static bool is_weight(const ckpt_tensor_info *i)
{
    return i->role == CKPT_ROLE_PARAM || i->role == CKPT_ROLE_BUFFER;
}

static size_t choose(run_target *t, int64_t rank, bool weights)
{
    size_t n = 0;
    for (size_t k = 0; k < t->m->chosen_count; k++) {
        const size_t i = t->m->chosen[k];
        if ((t->rows[i].rank < 0 || t->rows[i].rank == rank) && is_weight(info_of(t, i)) == weights)
            t->tensors[n++] = i;
    }
    return n;
}

/* Several files have the tensor, or rows of it: a range of it each. */
static ckpt_status as_ranges(const run_target *t, ckpt__recipe *r)
{
    for (size_t i = 0; i < r->count; i++) {
        ckpt__segment *g = &r->segments[i];
        if (g->kind != CKPT__PAYLOAD)
            continue;
        if (!ckpt__grow(&r->ranges, &r->range_capacity, r->range_count + 1, sizeof *r->ranges))
            return no_memory(t);
        r->ranges[r->range_count] = (ckpt__range){g->number, t->rows[g->number].begin};
        g->kind = CKPT__RANGE;
        g->number = r->range_count++;
    }
    return CKPT_OK;
}

static ckpt_status add_file(run_target *t, const char *folder, const char *name, ckpt__recipe *recipe)
{
    char path[120];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return ckpt__out_add_recipe(t->w, path, recipe);
}

static ckpt_status add_tensors(run_target *t, const char *folder, int64_t rank, bool weights, const ckpt_value *root)
{
    ckpt_report *again = rank > 0 ? ckpt_report_new() : NULL; /* what is lost is the same on all ranks */
    ckpt__recipe *recipe = NULL;
    const ckpt__write_request q = {.index = t->m->index,
                                   .source = t->m->from,
                                   .edits = t->m->edits,
                                   .tensors = t->tensors,
                                   .count = choose(t, rank, weights),
                                   .root = weights ? NULL : root,
                                   .step = t->step,
                                   .weights_only = weights,
                                   .lost = rank > 0 ? again : t->m->lost};
    ckpt_status status = q.lost ? t->m->format->write(&q, &recipe, t->err) : no_memory(t);
    if (status == CKPT_OK && t->ranks > 1)
        status = as_ranges(t, recipe);
    ckpt_report_free(again);
    if (status < 0) {
        ckpt__recipe_free(recipe);
        return status;
    }
    return add_file(t, folder, weights ? "model.safetensors" : "training.safetensors", recipe);
}

static ckpt_status add_folder(run_target *t, const char *name)
{
    ckpt__out *w = t->w;
    const char *kept = ckpt__arena_copy(t->m->index->arena, name, strlen(name));
    if (!kept || !ckpt__grow(&w->folders, &w->folder_capacity, w->folder_count + 1, sizeof *w->folders))
        return no_memory(t);
    w->folders[w->folder_count++] = kept;
    return CKPT_OK;
}

static ckpt_status add_manifest(run_target *t, const char *folder, int64_t rank)
{
    ckpt__manifest *list = ckpt__arena_alloc(t->m->index->arena, sizeof *list);
    ckpt_status status = list ? add_file(t, folder, "checkpoint.json", NULL) : no_memory(t);
    if (status < 0)
        return status;
    *list = (ckpt__manifest){
        .step = t->step, .world = t->ranks, .rank = rank, .time = t->time, .save = t->save, .count = 2};
    t->w->files[t->w->count - 1].list = list;
    return ckpt__run_list(t->w, t->w->count - 1);
}

/* A hint for people and scripts, as the hook leaves it. */
static ckpt_status add_latest(run_target *t, const char *folder)
{
    ckpt__out_file *f = ckpt__out_add(t->w, folder);
    if (f)
        ckpt__buf_printf(&f->text, "step-%08lld\n", (long long)t->step);
    return f && !f->text.failed ? CKPT_OK : no_memory(t);
}

/* The values of the rank's own dict, and those of all. NULL in *out: there are none. */
static ckpt_status values_of(const run_target *t, int64_t rank, const ckpt_value **out)
{
    ckpt__made_dict d = {.arena = t->m->index->arena};
    const ckpt_value *root = t->root;
    *out = root;
    if (!root || root->kind != CKPT_V_DICT)
        return CKPT_OK;
    for (size_t i = 0; i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        if (rank_of_key(e->key) < 0)
            ckpt__made_put(&d, e->key, e->value);
        for (size_t k = 0; own_rank(e) == rank && e->value->kind == CKPT_V_DICT && k < e->value->entry_count; k++)
            ckpt__made_put(&d, e->value->entries[k].key, e->value->entries[k].value);
    }
    *out = ckpt__made_finish(&d);
    return *out ? CKPT_OK : no_memory(t);
}

static void name_step(const run_target *t, int64_t rank, char *folder, size_t size)
{
    if (t->ranks > 1)
        snprintf(folder, size, "rank-%05lld/step-%08lld", (long long)rank, (long long)t->step);
    else
        snprintf(folder, size, "step-%08lld", (long long)t->step);
}

static ckpt_status add_folders(run_target *t, int64_t rank)
{
    char top[32], folder[80];
    ckpt_status status = CKPT_OK;
    name_step(t, rank, folder, sizeof folder);
    if (t->ranks > 1) {
        snprintf(top, sizeof top, "rank-%05lld", (long long)rank);
        status = add_folder(t, top);
    }
    return status == CKPT_OK ? add_folder(t, folder) : status;
}

static ckpt_status add_tensors_of(run_target *t, int64_t rank, bool weights)
{
    char folder[80];
    const ckpt_value *values = NULL;
    ckpt_status status = weights ? CKPT_OK : values_of(t, rank, &values);
    name_step(t, rank, folder, sizeof folder);
    if (status == CKPT_OK)
        status = see_as(t, rank);
    if (status == CKPT_OK)
        status = add_tensors(t, folder, rank, weights, values);
    see_whole(t);
    return status;
}

static ckpt_status add_end(run_target *t, int64_t rank)
{
    char folder[80], latest[48] = "latest";
    name_step(t, rank, folder, sizeof folder);
    if (t->ranks > 1)
        snprintf(latest, sizeof latest, "rank-%05lld/latest", (long long)rank);
    ckpt_status status = add_manifest(t, folder, rank);
    return status == CKPT_OK ? add_latest(t, latest) : status;
}

/* The files that have ranges of the same tensors lie one behind the other, so that those are read once (turns.c): the weights of all
 * ranks, what else each trains with, and then what says that all is there. */
static ckpt_status add_ranks(run_target *t)
{
    ckpt_status status = CKPT_OK;
    for (int64_t r = 0; status == CKPT_OK && r < t->ranks; r++)
        status = add_folders(t, r);
    for (int64_t r = 0; status == CKPT_OK && r < t->ranks; r++)
        status = add_tensors_of(t, r, true);
    for (int64_t r = 0; status == CKPT_OK && r < t->ranks; r++)
        status = add_tensors_of(t, r, false);
    for (int64_t r = 0; status == CKPT_OK && r < t->ranks; r++)
        status = add_end(t, r);
    return status;
}

/* The manifest says size and CRC of the rank's two files: its length is known before they are. */
ckpt_status ckpt__run_list(ckpt__out *w, size_t number)
{
    ckpt__manifest *list = w->files[number].list;
    for (size_t i = 0; i < list->count; i++) {
        const ckpt__out_file *f = &w->files[i * (size_t)list->world + (size_t)list->rank]; /* see add_ranks */
        const char *slash = strrchr(f->name, '/');
        list->files[i] = (ckpt__manifest_file){ckpt__s(slash ? slash + 1 : f->name), f->recipe->size, f->crc};
    }
    w->files[number].text.size = 0;
    return ckpt__manifest_write(list, &w->files[number].text, w->err);
}

/* ---- all of it */

static ckpt_status keep_rows(run_target *t)
{
    const ckpt__index *x = t->m->index;
    t->rows = calloc(x->tensor_count + 1, sizeof *t->rows);
    t->tensors = calloc(t->m->chosen_count + 1, sizeof *t->tensors);
    if (!t->rows || !t->tensors)
        return no_memory(t);
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt_tensor_info *n = &x->tensors[i].info;
        ckpt_str stem;
        t->rows[i] =
            (own_row){.name = n->name, .param = n->param, .device = n->device, .shape = n->shape, .nbytes = n->nbytes};
        t->rows[i].rank = ckpt__shard_rank(n->name, &stem);
    }
    return CKPT_OK;
}

/* What each rank had once for all is the same on all of them now. */
static ckpt_status say_ranks(const run_target *t)
{
    size_t cut = 0, own = 0;
    for (size_t k = 0; k < t->m->chosen_count; k++) {
        cut += t->rows[t->m->chosen[k]].cut;
        own += t->rows[t->m->chosen[k]].rank >= 0;
    }
    if (t->m->options.rank_state == CKPT_RANK_STATE_DERIVE && t->ranks > 1 &&
        !ckpt__report_add(
            t->m->report, CKPT_SEVERITY_WARNING, "run-ranks", NULL,
            "let each rank seed its generators by its number, after ckpt_run_resume",
            "what was derived is the same for all %lld ranks, random states too: what they draw is the same",
            (long long)t->ranks))
        return no_memory(t);
    return ckpt__migration_note(
        t->m, CKPT_SEVERITY_NOTE, "run-ranks", (ckpt_str){NULL, 0}, t->err,
        "a run of %lld rank%s: of %zu tensors each rank has all, of %zu its rows (rows n * r / %lld to "
        "n * (r + 1) / %lld of n), and %zu are of one rank",
        (long long)t->ranks, t->ranks == 1 ? "" : "s", t->m->chosen_count - cut - own, cut, (long long)t->ranks,
        (long long)t->ranks, own);
}

ckpt_status ckpt__run_files(ckpt__out *w)
{
    ckpt__migration *m = w->m;
    run_target t = {.w = w, .m = m, .err = w->err, .root = m->root, .time = (int64_t)time(NULL)};
    t.step = m->index->step >= 0 ? m->index->step : m->from->step;
    t.save = ckpt__unique() >> 1 | 1;
    ckpt_status status = CKPT_OK;
    if (t.step < 0)
        status = ckpt__fail(w->err, CKPT_E_UNSUPPORTED, m->src,
                            "it does not say which step it is of, and the directories of a run are named by it");
    if (status == CKPT_OK)
        status = keep_rows(&t);
    if (status == CKPT_OK)
        status = check_ranks(&t);
    if (status == CKPT_OK)
        status = find_cuts(&t);
    if (status == CKPT_OK)
        status = say_ranks(&t);
    m->run_ranks = (size_t)t.ranks;
    m->run_step = t.step;
    if (status == CKPT_OK)
        status = add_ranks(&t);
    free(t.rows);
    free(t.tensors);
    return status;
}
