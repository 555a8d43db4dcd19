/* format/llmc/llmc.c - the folder of llm.c: which step of it is whole, its files, and the index of them. */
#include "format/llmc/llmc.h"
#include "format/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- names */

typedef enum file_kind { NOTHING, MODEL, STATE, DONE } file_kind;

static bool takes_digits(const char **at, size_t n, int64_t *out)
{
    size_t digits = strspn(*at, "0123456789");
    bool is = digits >= n && digits <= 18 && ckpt__parse_i64(*at, digits, out);
    *at += digits;
    return is;
}

/* llm.c writes a step of eight digits at least, and a rank of five. */
static file_kind kind_of(const char *name, int64_t *step, int64_t *rank)
{
    static const struct {
        const char *head, *tail;
        file_kind kind;
    } kinds[] = {{"model_", ".bin", MODEL}, {"state_", ".bin", STATE}, {"DONE_", "", DONE}};
    *rank = -1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *at = name + strlen(kinds[i].head);
        if (!ckpt__begins(name, kinds[i].head) || !takes_digits(&at, 8, step))
            continue;
        bool ranked = kinds[i].kind == STATE;
        if (ranked && (*at++ != '_' || !takes_digits(&at, 5, rank)))
            return NOTHING;
        return strcmp(at, kinds[i].tail) == 0 ? kinds[i].kind : NOTHING;
    }
    return NOTHING;
}

/* The files of one step, by their names. */
typedef struct step_files {
    int64_t step;
    bool model, done;
    int64_t highest; /* rank with a state; -1: none has one */
} step_files;

typedef struct folder {
    step_files *steps; /* heap, in no order */
    size_t count, capacity;
} folder;

static ckpt_status see(void *ctx, size_t root, const char *name, bool is_folder, ckpt_error *err)
{
    folder *f = ctx;
    int64_t number, rank;
    size_t i = 0;
    (void)root;
    file_kind kind = is_folder ? NOTHING : kind_of(name, &number, &rank);
    if (kind == NOTHING)
        return CKPT_OK;
    while (i < f->count && f->steps[i].step != number)
        i++;
    if (i == f->count) {
        if (!ckpt__grow(&f->steps, &f->capacity, f->count + 1, sizeof *f->steps))
            return ckpt__fail_memory(err, "the names of a folder", f->count);
        f->steps[f->count++] = (step_files){.step = number, .highest = -1};
    }
    f->steps[i].model |= kind == MODEL;
    f->steps[i].done |= kind == DONE;
    f->steps[i].highest = kind == STATE && rank > f->steps[i].highest ? rank : f->steps[i].highest;
    return CKPT_OK;
}

/* A model alone may be anybody's; beside a state or a mark it is llm.c's. */
static int bid(const ckpt__probe *probe)
{
    enum { SURE = 100, LIKELY = 87 };
    folder f = {0};
    bool is = false;
    if (!probe->directory)
        return ckpt__llmc_is_model(probe->head, probe->head_size) || ckpt__llmc_is_state(probe->head, probe->head_size)
                   ? SURE
                   : 0;
    if (ckpt__source_each(probe->source, "", see, &f, NULL) == CKPT_OK)
        for (size_t i = 0; i < f.count; i++)
            is = is || f.steps[i].highest >= 0 || (f.steps[i].model && f.steps[i].done);
    free(f.steps);
    return is ? LIKELY : 0;
}

/* ---- the files of a step */

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "a checkpoint of llm.c", 0);
}

/* A file of a rank that is missing or damaged: an error, or a finding where reading goes on. */
static ckpt_status lack(ckpt__llmc *r, const char *name, ckpt_status status, const ckpt_error *why, ckpt_error *err)
{
    return ckpt__survey_lack(r->request, r->index->findings, name, status, why, err);
}

/* Is the file of this rank one of the step, and of the same run as the first? */
static ckpt_status check_rank(const ckpt__llmc *r, const ckpt__llmc_state *s, int64_t step, int64_t rank,
                              const char *name, ckpt_error *err)
{
    const ckpt__llmc_state *one = r->first ? r->first : s;
    if (s->step != step || s->rank != rank)
        return ckpt__fail(err, CKPT_E_MISMATCH, name,
                          "its header says rank %lld at step %lld, its name rank %lld at %lld", (long long)s->rank,
                          (long long)s->step, (long long)rank, (long long)step);
    if (s->ranks != one->ranks || s->master != one->master || s->split != one->split)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, name,
            "it is of a run of %lld ranks, %s master weights, %s; rank %lld is of one of %lld, %s, %s: these "
            "are not the files of one run",
            (long long)s->ranks, s->master ? "with" : "without", s->split ? "ZeRO-1" : "not divided",
            (long long)one->rank, (long long)one->ranks, one->master ? "with" : "without",
            one->split ? "ZeRO-1" : "not divided");
    return CKPT_OK;
}

/* Opens the file of a rank and reads its header; *s.there tells whether there is one. */
static ckpt_status read_rank(ckpt__llmc *r, int64_t step, int64_t rank, ckpt__llmc_state *s, ckpt_error *err)
{
    char name[80];
    ckpt_error why = CKPT_ERROR_INIT;
    *s = (ckpt__llmc_state){.rank = rank};
    snprintf(name, sizeof name, "state_%08lld_%05lld.bin", (long long)step, (long long)rank);
    ckpt_status status = ckpt__source_add(r->request->source, name, &s->file, &why);
    if (status == CKPT_E_SYSTEM && why.sys_errno == ENOENT)
        status = ckpt__fail(
            &why, CKPT_E_DAMAGED, name,
            "it is missing, with what rank %lld has of the optimizer. Copy it from where it was saved, or take "
            "an earlier step; ckpt-migrate --salvage keeps the weights",
            (long long)rank);
    if (status == CKPT_OK)
        status = ckpt__llmc_read_state(r->request->source, &r->model, s, &why);
    if (status == CKPT_OK)
        status = check_rank(r, s, step, rank, name, &why);
    s->there = status == CKPT_OK;
    s->rank = rank;
    return status == CKPT_OK ? CKPT_OK : lack(r, name, status, &why, err);
}

/* The first rank whose file is whole says how many there are. */
static ckpt_status read_states(ckpt__llmc *r, const step_files *of, ckpt_error *err)
{
    enum { MOST = 1 << 16 };
    ckpt__llmc_state first = {.there = false};
    ckpt_status status = CKPT_OK;
    int64_t rank = -1;
    while (status == CKPT_OK && !first.there && rank < of->highest && rank < MOST)
        status = read_rank(r, of->step, ++rank, &first, err);
    if (status < 0 || !first.there)
        return status;
    if (first.ranks > MOST)
        return ckpt__fail(err, CKPT_E_LIMIT, r->label, "its states are of %lld ranks; %d are read",
                          (long long)first.ranks, MOST);
    if (of->highest >= first.ranks)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, r->label,
            "step %lld has a state of rank %lld, and that of rank %lld is of a run of %lld ranks: these are not "
            "the files of one run",
            (long long)of->step, (long long)of->highest, (long long)rank, (long long)first.ranks);
    r->rank_count = (size_t)first.ranks;
    if (!(r->states = calloc(r->rank_count, sizeof *r->states)))
        return no_memory(err);
    for (int64_t i = 0; i < rank; i++)
        r->states[i].rank = i; /* not there: it was said */
    r->states[rank] = first;
    r->first = &r->states[rank];
    for (size_t i = (size_t)rank + 1; status == CKPT_OK && i < r->rank_count; i++)
        status = read_rank(r, of->step, (int64_t)i, &r->states[i], err);
    return status;
}

/* ---- which step */

static bool is_better(const step_files *a, const step_files *b)
{
    if (a->done != b->done)
        return a->done;
    return a->step > b->step;
}

static ckpt_status say(ckpt__llmc *r, ckpt_severity severity, const char *code, const char *fix, const char *format,
                       long long a, long long b, ckpt_error *err)
{
    char text[300];
    snprintf(text, sizeof text, format, a, b);
    return ckpt__report_add(r->index->findings, severity, code, NULL, fix, "%s", text) ? CKPT_OK : no_memory(err);
}

/* llm.c writes the mark when all ranks have written their files, and goes on from the newest that has one. */
static ckpt_status say_others(ckpt__llmc *r, const folder *f, const step_files *taken, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (!taken->done) {
        r->index->job.latest = CKPT__LATEST_NONE;
        status = say(
            r, CKPT_SEVERITY_WARNING, "incomplete-step",
            "take an earlier step; or make sure that all files are whole (ckpt-inspect verify), and make the mark, an "
            "empty file",
            "step %lld has no mark that it is whole (DONE_%08lld), which llm.c writes last", taken->step, taken->step,
            err);
    }
    for (size_t i = 0; status == CKPT_OK && i < f->count; i++) {
        const step_files *s = &f->steps[i];
        if (s == taken)
            continue;
        status = s->step > taken->step
                     ? say(r, CKPT_SEVERITY_WARNING, "incomplete-step", NULL,
                           "step %lld is not whole, as it has no DONE_%08lld: it is skipped", s->step, s->step, err)
                     : say(r, CKPT_SEVERITY_NOTE, "file-ignored", NULL, "there is an earlier step, %lld; %lld is read",
                           s->step, taken->step, err);
    }
    return status;
}

static ckpt_status read_step(ckpt__llmc *r, const step_files *of, ckpt_error *err)
{
    char name[80];
    uint32_t model;
    snprintf(name, sizeof name, "model_%08lld.bin", (long long)of->step);
    if (!of->model)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, r->label,
            "%s is missing, with the weights of step %lld and the shapes of all tensors. Copy it from where "
            "it was saved, or take an earlier step",
            name, (long long)of->step);
    ckpt_status status = ckpt__source_add(r->request->source, name, &model, err);
    if (status == CKPT_OK)
        status = ckpt__llmc_read_model(r->request->source, model, &r->model, err);
    if (status == CKPT_OK)
        status = read_states(r, of, err);
    return status == CKPT_OK ? ckpt__llmc_fill(r, model, err) : status;
}

static ckpt_status read_directory(ckpt__llmc *r, ckpt_error *err)
{
    folder f = {0};
    const step_files *best = NULL;
    ckpt_status status = ckpt__source_each(r->request->source, "", see, &f, err);
    for (size_t i = 0; i < f.count; i++)
        best = !best || is_better(&f.steps[i], best) ? &f.steps[i] : best;
    if (status == CKPT_OK && !best)
        status = ckpt__fail(err, CKPT_E_FORMAT, r->label, "it has no files of llm.c (model_00000004.bin, ...)");
    if (status == CKPT_OK)
        status = say_others(r, &f, best, err);
    if (status == CKPT_OK)
        status = read_step(r, best, err);
    free(f.steps);
    return status;
}

/* ---- a file alone */

static ckpt_status read_file(ckpt__llmc *r, ckpt_error *err)
{
    unsigned char head[CKPT__LLMC_HEAD];
    const ckpt__source *source = r->request->source;
    const uint32_t file = r->request->file;
    bool full = source->files[file].size >= sizeof head;
    ckpt_status status = full ? ckpt__source_read(source, file, 0, head, sizeof head, err) : CKPT_OK;
    if (status == CKPT_OK && full && ckpt__llmc_is_state(head, sizeof head))
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, r->label,
            "it is the state of rank %d of %d of a checkpoint of llm.c (step %d): the shapes of what it holds "
            "are in the model's file beside it. Open the folder",
            head[12] | head[13] << 8, head[8] | head[9] << 8, head[40] | head[41] << 8 | head[42] << 16);
    if (status == CKPT_OK)
        status = ckpt__llmc_read_model(source, file, &r->model, err);
    return status == CKPT_OK ? ckpt__llmc_fill(r, file, err) : status;
}

static ckpt_status read_llmc(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    const ckpt__source *source = request->source;
    bool directory = request->file == CKPT__WHOLE_DIRECTORY;
    char label[256];
    if (directory)
        ckpt__escape(label, sizeof label, source->path, strlen(source->path));
    else
        ckpt__source_label(source, request->file, label, sizeof label);
    ckpt__llmc r = {.request = request,
                    .label = label,
                    .index = request->arena ? ckpt__index_new_part(request->arena)
                                            : ckpt__index_new(ckpt__known_limit(0, directory))};
    if (!r.index)
        return no_memory(err);
    r.index->format = "llmc";
    r.index->kind = directory ? "directory" : "file";
    ckpt_status status = directory ? read_directory(&r, err) : read_file(&r, err);
    free(r.states);
    free(r.entries);
    status = ckpt__index_refused(r.index, status, label, err);
    if (status < 0)
        ckpt__index_free(r.index);
    else
        *out = r.index;
    return status;
}

static bool owns(const char *name)
{
    int64_t step, rank;
    return kind_of(name, &step, &rank) != NOTHING;
}

const ckpt__format ckpt__format_llmc = {
    .name = "llmc",
    .bid = bid,
    .read = read_llmc,
    .family = CKPT__FAMILY_LLMC,
    .sharded = CKPT__SHARDED_LLMC,
    .canonical = true,
    .own_loader = true,
    .no_python =
        "no Python program reads this, llm.c does: train_gpt2cu -y 1 with the folder as -o. ckpt-migrate --to torch "
        "makes a file for which there is a resume in Python; in C there is one for this",
    .joins_files = true,
    .owns = owns,
};
