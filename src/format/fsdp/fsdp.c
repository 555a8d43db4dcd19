/* format/fsdp/fsdp.c - a directory with a file of each rank: which files it has, what is wrong with them, and the index of them. */
#include "format/fsdp/fsdp.h"
#include "format/survey.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1 << 16, SAID = 16 };

ckpt_status ckpt__fsdp_no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the files of the ranks", 0);
}

ckpt_status ckpt__fsdp_lack(ckpt__fsdp *f, const char *file, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    return ckpt__survey_lack(f->request, f->index->findings, file, status, why, err);
}

/* ---- names */

static int by_rank(const void *x, const void *y)
{
    const ckpt__fsdp_file *a = x, *b = y;
    if (a->is.kind != b->is.kind)
        return a->is.kind < b->is.kind ? -1 : 1;
    if (a->is.number != b->is.number)
        return a->is.number < b->is.number ? -1 : 1;
    if (a->is.rank != b->is.rank)
        return a->is.rank < b->is.rank ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool same_group(const ckpt__fsdp_file *a, const ckpt__fsdp_file *b)
{
    return a->is.kind == b->is.kind && a->is.number == b->is.number;
}

/* The files of ranks, sorted; two of one rank, or of runs of different sizes by their names, are an error: it cannot be told which
 * of them are meant. */
static ckpt_status list_files(ckpt__fsdp *f, const ckpt__folder *folder, ckpt_error *err)
{
    for (size_t i = 0; i < folder->count; i++) {
        ckpt__fsdp_file file = {.name = folder->members[i].name};
        if (!ckpt__fsdp_name_of(file.name, &file.is))
            continue;
        if (folder->members[i].copies > 1)
            return ckpt__fail(err, CKPT_E_MISMATCH, file.name,
                              "it is in %zu of the directories: give each rank's directory once",
                              folder->members[i].copies);
        if (!ckpt__grow(&f->files, &f->capacity, f->count + 1, sizeof *f->files))
            return ckpt__fsdp_no_memory(err);
        f->files[f->count++] = file;
    }
    if (f->count == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, f->label,
                          "it has no files of the ranks of FSDP (pytorch_model_fsdp_0_rank0.bin, "
                          "model_world_size_2_rank_0.pt, ...)");
    qsort(f->files, f->count, sizeof *f->files, by_rank);
    for (size_t i = 1; i < f->count; i++) {
        const ckpt__fsdp_file *a = &f->files[i - 1], *b = &f->files[i];
        if (a->is.world != b->is.world)
            return ckpt__fail(err, CKPT_E_MISMATCH, f->label,
                              "%s and %s are of runs of different sizes: these are several checkpoints. Keep the files "
                              "of one in the directory",
                              a->name, b->name);
        if (same_group(a, b) && a->is.rank == b->is.rank)
            return ckpt__fail(err, CKPT_E_MISMATCH, f->label, "%s and %s are both of rank %lld; one file is expected",
                              a->name, b->name, (long long)a->is.rank);
    }
    return CKPT_OK;
}

/* The name that the file of another rank has: up to the number that is the rank, and behind it. */
static void name_of_rank(const ckpt__fsdp_file *like, int64_t rank, char *out, size_t size)
{
    const char *end = strrchr(like->name, '.'), *at = end;
    while (at > like->name && at[-1] >= '0' && at[-1] <= '9')
        at--;
    snprintf(out, size, "%.*s%lld%s", (int)(at - like->name), like->name, (long long)rank, end);
}

/* ---- one file */

/* The rank and the ranks that the tensors of a file say, against its name. */
static ckpt_status check_file(ckpt__fsdp_file *file, ckpt_error *err)
{
    for (const ckpt__shard *s = file->shards; s; s = s->next) {
        if (s->rank >= 0 && s->rank != file->is.rank)
            return ckpt__fail(err, CKPT_E_MISMATCH, file->name,
                              "its tensors are of rank %lld, and its name says rank %lld: it is a copy of another "
                              "rank's file. Take the file that rank %lld wrote",
                              (long long)s->rank, (long long)file->is.rank, (long long)file->is.rank);
        file->world = s->world > file->world ? s->world : file->world;
    }
    if (file->is.world && file->world > file->is.world)
        return ckpt__fail(err, CKPT_E_MISMATCH, file->name,
                          "its tensors are of a run of %lld ranks, and its name says %lld", (long long)file->world,
                          (long long)file->is.world);
    if (file->world && file->is.rank >= file->world)
        return ckpt__fail(err, CKPT_E_MISMATCH, file->name,
                          "its tensors are of a run of %lld ranks, and its name says rank %lld", (long long)file->world,
                          (long long)file->is.rank);
    return CKPT_OK;
}

/* What it holds, and the note of what part of which tensor its rank has; what the note uses is no tensor that was left over. */
static ckpt_status take_in(ckpt__fsdp *f, ckpt__fsdp_file *file, ckpt__index *part, bool sorted, ckpt_error *err)
{
    ckpt_report *findings = part->findings;
    file->root = part->root;
    file->shards = part->shards;
    file->tensors = f->index->tensor_count;
    file->tensor_count = part->tensor_count;
    file->storages = f->index->storage_count;
    ckpt_report *kept = ckpt_report_new();
    bool good = kept != NULL;
    for (size_t i = 0; good && i < ckpt_report_count(findings); i++) {
        const ckpt_finding *one = ckpt_report_get(findings, i);
        if (!file->shards || strcmp(one->code, "closed-tensors") != 0)
            good = ckpt__report_repeat(kept, one, one->severity, one->code);
    }
    if (good)
        part->findings = kept;
    ckpt_report_free(good ? findings : kept);
    if (!good) {
        ckpt__index_free(part);
        return ckpt__fsdp_no_memory(err);
    }
    return ckpt__folder_absorb(&f->reader, part, file->name, sorted, err);
}

static ckpt_status read_file(ckpt__fsdp *f, ckpt__fsdp_file *file, ckpt_error *err)
{
    ckpt__index *part = NULL;
    uint32_t number;
    bool sorted = false;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__source_add(f->request->source, file->name, &number, &why);
    if (status == CKPT_OK)
        status = ckpt__folder_part(&f->reader, number, &part, &sorted, &why);
    if (status == CKPT_OK) {
        status = take_in(f, file, part, sorted, &why);
        if (status == CKPT_OK)
            status = check_file(file, &why);
    }
    file->there = status == CKPT_OK;
    return status == CKPT_OK ? CKPT_OK : ckpt__fsdp_lack(f, file->name, status, &why, err);
}

/* ---- all files */

static ckpt_status read_files(ckpt__fsdp *f, ckpt_error *err)
{
    const char **names = calloc(f->count + 1, sizeof *names);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; names && i < f->count; i++)
        names[i] = f->files[i].name;
    f->reader.ahead = names ? ckpt__ahead_new(f->request, names, f->count) : NULL;
    for (size_t i = 0; status == CKPT_OK && i < f->count; i++)
        status = read_file(f, &f->files[i], err);
    ckpt__ahead_free(f->reader.ahead);
    f->reader.ahead = NULL;
    free(names);
    return status;
}

/* The ranks from `from` to before `to` have no file beside `like`. */
static ckpt_status say_missing(ckpt__fsdp *f, const ckpt__fsdp_file *like, int64_t from, int64_t to, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (int64_t rank = from; status == CKPT_OK && rank < to; rank++) {
        char name[300], more[80] = "";
        ckpt_error why = CKPT_ERROR_INIT;
        const bool rest = rank - from == SAID;
        name_of_rank(like, rank, name, sizeof name);
        if (rest)
            snprintf(more, sizeof more, ", and so are those of the %lld ranks behind it", (long long)(to - rank - 1));
        status =
            ckpt__fail(&why, CKPT_E_DAMAGED, name,
                       "it is missing, with what rank %lld of %lld has of the tensors%s. Copy it from where it was "
                       "saved, or take an earlier checkpoint",
                       (long long)rank, (long long)f->world, more);
        status = ckpt__fsdp_lack(f, name, status, &why, err);
        if (rest)
            break;
    }
    return status;
}

static ckpt_status check_ranks(ckpt__fsdp *f, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    int64_t next = 0;
    for (size_t i = 0; i < f->count; i++) {
        const ckpt__fsdp_file *file = &f->files[i];
        int64_t least = file->is.world ? file->is.world : file->is.rank + 1;
        f->world = file->there && file->world > f->world ? file->world : f->world;
        f->world = least > f->world ? least : f->world;
    }
    if (f->world > MOST_RANKS)
        return ckpt__fail(err, CKPT_E_LIMIT, f->label, "its files are of %lld ranks; %d are read", (long long)f->world,
                          (int)MOST_RANKS);
    for (size_t i = 0; status == CKPT_OK && i < f->count; i++) {
        const ckpt__fsdp_file *file = &f->files[i];
        status = say_missing(f, file, next, file->is.rank, err);
        next = file->is.rank + 1;
        if (i + 1 < f->count && same_group(file, file + 1))
            continue;
        if (status == CKPT_OK)
            status = say_missing(f, file, next, f->world, err);
        next = 0;
    }
    return status;
}

/* ---- do the files agree? */

static bool same_cuts(const ckpt__shard *a, const ckpt__shard *b)
{
    if (!a->mesh || !b->mesh || !a->placements || !b->placements)
        return !a->mesh == !b->mesh;
    if (!ckpt__same_shape(a->mesh->sizes, a->mesh->ndim, b->mesh->sizes, b->mesh->ndim) || !a->order != !b->order)
        return false;
    for (uint32_t i = 0; i < a->mesh->ndim; i++)
        if (a->placements[i].cut != b->placements[i].cut || a->placements[i].dim != b->placements[i].dim ||
            a->placements[i].split != b->placements[i].split || (a->order && a->order[i] != b->order[i]))
            return false;
    return true;
}

static ckpt_status differ(const ckpt__fsdp_file *one, const ckpt__fsdp_file *file, const ckpt_tensor_info *t,
                          const char *what, const char *own, const char *other, ckpt_error *err)
{
    char name[200];
    return ckpt__fail(err, CKPT_E_MISMATCH, file->name,
                      "%s of '%s' is %s in it, and %s in %s: these are not the files of one run", what,
                      ckpt__escape(name, sizeof name, t->name.data, t->name.size), own, other, one->name);
}

/* The same tensor in the files of two ranks. */
static ckpt_status check_pair(const ckpt__fsdp *f, const ckpt__fsdp_file *one, const ckpt__shard *a,
                              const ckpt__fsdp_file *file, const ckpt__shard *b, ckpt_error *err)
{
    const ckpt_tensor_info *x = &f->index->tensors[one->tensors + a->tensor].info,
                           *y = &f->index->tensors[file->tensors + b->tensor].info;
    char own[200], other[200];
    if (!ckpt__same_shape(x->shape, x->ndim, y->shape, y->ndim)) {
        ckpt__shape_text(other, sizeof other, x->shape, x->ndim);
        ckpt__shape_text(own, sizeof own, y->shape, y->ndim);
        return differ(one, file, y, "the shape", own, other, err);
    }
    if (x->dtype != y->dtype)
        return differ(one, file, y, "the dtype", ckpt_dtype_name(y->dtype), ckpt_dtype_name(x->dtype), err);
    if (a->mesh && b->mesh && !ckpt__same_shape(a->mesh->sizes, a->mesh->ndim, b->mesh->sizes, b->mesh->ndim)) {
        ckpt__shape_text(other, sizeof other, a->mesh->sizes, a->mesh->ndim);
        ckpt__shape_text(own, sizeof own, b->mesh->sizes, b->mesh->ndim);
        return differ(one, file, y, "the mesh", own, other, err);
    }
    if (!same_cuts(a, b))
        return differ(one, file, y, "the placement", "another one", "one", err);
    return CKPT_OK;
}

/* Two names of one tensor stand behind one another in a file, and have the same parts. */
static ckpt_status check_agreement(const ckpt__fsdp *f, ckpt__fsdp_file *file, ckpt__hash *by_name,
                                   ckpt__fsdp_part *seen, size_t *count, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (const ckpt__shard *s = file->shards; status == CKPT_OK && s; s = s->next) {
        const ckpt_str name = f->index->tensors[file->tensors + s->tensor].info.name;
        size_t found = 0;
        int put = ckpt__hash_put(by_name, name.data, name.size, *count, &found);
        if (put < 0)
            return ckpt__fsdp_no_memory(err);
        if (put > 0)
            seen[(*count)++] = (ckpt__fsdp_part){file, s};
        else
            status = check_pair(f, seen[found].file, seen[found].shard, file, s, err);
    }
    return status;
}

static size_t group_size(const ckpt__fsdp *f, size_t first)
{
    size_t n = 1;
    while (first + n < f->count && same_group(&f->files[first], &f->files[first + n]))
        n++;
    return n;
}

/* Of the files that were read: those that do not agree with the ones before are said, and are not used. */
static ckpt_status check_group(ckpt__fsdp *f, size_t first, size_t size, ckpt_error *err)
{
    size_t most = 0, count = 0;
    for (size_t i = first; i < first + size; i++)
        for (const ckpt__shard *s = f->files[i].shards; s; s = s->next)
            most++;
    ckpt__hash *by_name = ckpt__hash_new(64);
    ckpt__fsdp_part *seen = calloc(most + 1, sizeof *seen);
    ckpt_status status = by_name && seen ? CKPT_OK : ckpt__fsdp_no_memory(err);
    for (size_t i = first; status == CKPT_OK && i < first + size; i++) {
        ckpt_error why = CKPT_ERROR_INIT;
        ckpt__fsdp_file *file = &f->files[i];
        if (!file->there)
            continue;
        status = check_agreement(f, file, by_name, seen, &count, &why);
        file->there = status == CKPT_OK;
        if (status < 0)
            status = ckpt__fsdp_lack(f, file->name, status, &why, err);
    }
    ckpt__hash_free(by_name);
    free(seen);
    return status;
}

/* ---- what lies beside: random states, a schedule, ... */

static bool goes_along(const ckpt__member *m)
{
    ckpt__fsdp_name rank;
    static const ckpt__part parts[] = {CKPT__PART_DISTRIBUTED, CKPT__PART_SCHEDULER,    CKPT__PART_SCALER,
                                       CKPT__PART_SAMPLER,     CKPT__PART_RNG,          CKPT__PART_CUSTOM,
                                       CKPT__PART_ARGS,        CKPT__PART_TRAINER_STATE};
    for (size_t i = 0; m->exact && i < sizeof parts / sizeof *parts; i++)
        if (m->part == parts[i])
            return !ckpt__fsdp_name_of(m->name, &rank);
    return false;
}

static ckpt_status read_others(ckpt__fsdp *f, ckpt__folder *folder, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < folder->count; i++) {
        ckpt__member *m = &folder->members[i];
        ckpt__fsdp_name rank;
        m->read = goes_along(m);
        if (m->read)
            status = ckpt__folder_member(&f->reader, folder, m, err);
        else if (!ckpt__fsdp_name_of(m->name, &rank) && m->part != CKPT__PART_CONFIG &&
                 (!ckpt__report_add(f->index->findings, CKPT_SEVERITY_NOTE, "file-ignored", NULL,
                                    "to look at it, give the file itself",
                                    "it is not read: it is not a part of this checkpoint by its name") ||
                  !ckpt__report_detail(f->index->findings, m->name, NULL, NULL, 0)))
            status = ckpt__fsdp_no_memory(err);
    }
    if (status == CKPT_OK)
        status = ckpt__folder_check_ranks(folder, f->index->findings, err);
    return status == CKPT_OK ? ckpt__folder_check_steps(&f->reader, folder, err) : status;
}

/* ---- all of it */

static ckpt_status file_parts(ckpt__fsdp *f, ckpt_error *err)
{
    f->row_count = f->index->tensor_count;
    if (!(f->by_row = calloc(f->row_count + 1, sizeof *f->by_row)))
        return ckpt__fsdp_no_memory(err);
    for (size_t i = 0; i < f->count; i++)
        for (const ckpt__shard *s = f->files[i].shards; s; s = s->next)
            f->by_row[f->files[i].tensors + s->tensor] = s;
    for (size_t i = 0; i < f->count; i++)
        f->any_part = f->any_part || f->files[i].shards;
    return CKPT_OK;
}

static ckpt_status put_own(ckpt__fsdp *f, const ckpt__entries *own, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (int64_t rank = 0; status == CKPT_OK && rank < f->world; rank++) {
        char key[40];
        if (!own[rank].count)
            continue;
        const ckpt_value *dict = ckpt__entries_dict(&own[rank], f->index->arena);
        snprintf(key, sizeof key, "rank_%lld", (long long)rank);
        status = dict ? ckpt__folder_put(&f->reader, key, dict, err) : ckpt__fsdp_no_memory(err);
    }
    if (status == CKPT_OK && f->differ && !ckpt__trees_say_differ(f->index->findings, f->differ))
        status = ckpt__fsdp_no_memory(err);
    return status;
}

static ckpt_status merge_all(ckpt__fsdp *f, ckpt_error *err)
{
    static const char *const keys[] = {"model", "optimizer", "extra_state"};
    ckpt__entries *own = calloc((size_t)f->world + 1, sizeof *own);
    ckpt_status status = own ? CKPT_OK : ckpt__fsdp_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < f->count;) {
        ckpt__fsdp_group g = {.files = &f->files[i], .count = group_size(f, i)};
        if (g.files->is.number)
            snprintf(g.key, sizeof g.key, "%s_%lld", keys[g.files->is.kind], (long long)g.files->is.number);
        else
            snprintf(g.key, sizeof g.key, "%s", keys[g.files->is.kind]);
        status = ckpt__fsdp_merge(f, &g, own, err);
        i += g.count;
    }
    if (status == CKPT_OK)
        status = put_own(f, own, err);
    for (int64_t i = 0; own && i < f->world; i++)
        free(own[i].items);
    free(own);
    return status;
}

/* LOCAL_STATE_DICT: each unit of FSDP1 has one parameter of all its own, flat. */
static ckpt_status note_flat(ckpt__fsdp *f, ckpt_error *err)
{
    size_t count = 0;
    const ckpt_tensor_info *first = NULL;
    for (size_t i = 0; i < f->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &f->index->tensors[i].info;
        if (t->ndim != 1 || !ckpt__str_ends(t->name, "_flat_param"))
            continue;
        first = first ? first : t;
        count++;
    }
    char name[200], slices[200] = "";
    if (f->slices)
        snprintf(
            slices, sizeof slices,
            ". The name%s of %zu parameter%s there, too: what rank_0, rank_1, ... have of one are its elements in that order",
            f->slices == 1 ? "" : "s", f->slices, f->slices == 1 ? " is" : "s are");
    if (count &&
        !ckpt__report_add(
            f->index->findings, CKPT_SEVERITY_WARNING, "flat-parameters",
            ckpt__escape(name, sizeof name, first->name.data, first->name.size),
            "load it with FSDP on as many ranks, wrapped as it was, and save it with SHARDED_STATE_DICT or "
            "FULL_STATE_DICT",
            "%zu tensor%s the flat parameters of FSDP units (LOCAL_STATE_DICT), put together over the ranks: the names "
            "and shapes of the parameters in them are in no file%s",
            count, count == 1 ? " is" : "s are", slices))
        return ckpt__fsdp_no_memory(err);
    return CKPT_OK;
}

/* The largest mesh of all that the files name: beside FSDP with tensor parallel some tensors are on a dimension of it alone. */
static void tell_job(ckpt__fsdp *f)
{
    int64_t most = 0;
    f->index->job.ranks = f->world;
    for (size_t i = 0; i < f->count; i++)
        for (const ckpt__shard *s = f->files[i].there ? f->files[i].shards : NULL; s; s = s->next) {
            if (!s->mesh || s->mesh->ndim <= most)
                continue;
            most = s->mesh->ndim;
            f->index->job.mesh = s->mesh;
        }
}

/* The model and its optimizer first, then the `others`. */
static ckpt_status make_root(ckpt__fsdp *f, size_t others, ckpt_error *err)
{
    const size_t count = f->reader.entry_count;
    ckpt_entry *entries = calloc(count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < count; i++)
        entries[i < others ? count - others + i : i - others] = f->reader.entries[i];
    f->index->root = entries ? ckpt__value_dict(f->index->arena, entries, count) : NULL;
    free(entries);
    return f->index->root ? CKPT_OK : ckpt__fsdp_no_memory(err);
}

static ckpt_status make_index(ckpt__fsdp *f, ckpt__folder *folder, ckpt_error *err)
{
    ckpt_status status = list_files(f, folder, err);
    if (status == CKPT_OK)
        status = read_files(f, err);
    for (size_t i = 0; status == CKPT_OK && i < f->count; i += group_size(f, i))
        status = check_group(f, i, group_size(f, i), err);
    if (status == CKPT_OK)
        status = check_ranks(f, err);
    if (status == CKPT_OK)
        status = read_others(f, folder, err);
    if (status == CKPT_OK)
        status = file_parts(f, err);
    const size_t others = f->reader.entry_count;
    if (status == CKPT_OK)
        status = merge_all(f, err);
    if (status == CKPT_OK)
        status = make_root(f, others, err);
    if (status == CKPT_OK)
        status = ckpt__fsdp_fill(f, err);
    tell_job(f);
    if (status == CKPT_OK && !ckpt__index_tell_layout(f->index, "a file of each of %lld ranks", (long long)f->world))
        status = ckpt__fsdp_no_memory(err);
    return status == CKPT_OK ? note_flat(f, err) : status;
}

static ckpt_status read_fsdp(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    char label[256];
    ckpt__folder folder = {0};
    *out = NULL;
    if (request->file != CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, request->source->path,
                          "a file; the files of all ranks of FSDP are in a directory");
    ckpt__escape(label, sizeof label, request->source->path, strlen(request->source->path));
    ckpt__fsdp f = {.request = request, .label = label, .index = ckpt__index_new(ckpt__known_limit(0, false))};
    if (!f.index)
        return ckpt__fsdp_no_memory(err);
    f.index->format = "fsdp";
    f.index->kind = "directory";
    f.reader = (ckpt__folder_reader){.request = request, .index = f.index};
    ckpt_status status = ckpt__folder_look(request->source, &folder, err);
    if (status == CKPT_OK)
        status = make_index(&f, &folder, err);
    ckpt__folder_free(&folder);
    free(f.reader.entries);
    free(f.files);
    free(f.by_row);
    free(f.parts);
    free(f.tensors);
    status = ckpt__index_refused(f.index, status, label, err);
    if (status < 0)
        ckpt__index_free(f.index);
    else
        *out = f.index;
    return status;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    ckpt__fsdp_name is;
    bool *found = ctx;
    (void)root;
    (void)err;
    *found = *found || (!folder && ckpt__fsdp_name_of(name, &is));
    return CKPT_OK;
}

static int bid(const ckpt__probe *probe)
{
    enum { LIKELY = 83 }; /* a list of DCP beside them says more */
    bool found = false;
    if (!probe->directory || ckpt__source_each(probe->source, "", see, &found, NULL) < 0)
        return 0;
    return found ? LIKELY : 0;
}

static bool owns(const char *name)
{
    ckpt__fsdp_name is;
    return ckpt__fsdp_name_of(name, &is);
}

const ckpt__format ckpt__format_fsdp = {
    .name = "fsdp",
    .bid = bid,
    .read = read_fsdp,
    .family = CKPT__FAMILY_FSDP,
    .sharded = CKPT__SHARDED_FSDP,
    .laid_out = true,
    .own_loader = true,
    .no_python =
        "torch.load reads one rank's part of this alone, in that rank: accelerator.load_state, or verl, with as many "
        "ranks as saved it. ckpt-migrate --to torch makes a file of all ranks for which there is a resume in Python; in "
        "C there is one for this",
    .joins_files = true,
    .has_values = true,
    .owns = owns,
};
