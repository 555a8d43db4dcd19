/* format/ahead.c - files of a checkpoint's ranks, read by several threads before they are asked for. */
#include "format/ahead.h"

#include <stdlib.h>
#include "base/workers.h"

enum { A_THREAD = 4 }; /* files, of those that are read together */

typedef struct ready {
    uint32_t file;     /* number in the source */
    bool added;        /* the source has it */
    ckpt__index *part; /* owned, until it is taken; NULL: it is left to the caller */
} ready;

struct ckpt__ahead {
    ckpt__read_request request; /* of a file without an arena: each has one of its own */
    const char **names;         /* heap: without the NULL ones */
    size_t count;
    unsigned threads;
    ready *files; /* heap: `room` of them, of which `held` are those of the names from `first` on */
    size_t room, first, held;
    size_t next; /* of the names: those before were taken or passed over */
};

ckpt__ahead *ckpt__ahead_new(const ckpt__read_request *request, const char *const *names, size_t count)
{
    const unsigned threads = ckpt__workers_usual();
    ckpt__ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->request = (ckpt__read_request){
        .source = request->source, .salvage = request->salvage, .twins = request->twins, .members = request->members};
    a->threads = threads;
    a->room = threads > 1 ? (size_t)A_THREAD * threads : 1;
    a->names = calloc(count + 1, sizeof *a->names);
    a->files = calloc(a->room, sizeof *a->files);
    if (!a->names || !a->files) {
        ckpt__ahead_free(a);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        if (names[i])
            a->names[a->count++] = names[i];
    return a;
}

static void drop_held(ckpt__ahead *a)
{
    for (size_t i = 0; i < a->held; i++)
        ckpt__index_free(a->files[i].part);
    a->held = 0;
}

void ckpt__ahead_free(ckpt__ahead *a)
{
    if (!a)
        return;
    drop_held(a);
    free(a->files);
    free(a->names);
    free(a);
}

/* These look at their one file, and add none to the source. */
static bool is_of_one_file(const ckpt__format *format)
{
    return format && (format->family == CKPT__FAMILY_TORCH || format->family == CKPT__FAMILY_SAFETENSORS ||
                      format->family == CKPT__FAMILY_PICKLE);
}

/* What fails here fails again where it is asked for, and is told there. */
static ckpt_status read_one(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    ckpt__ahead *a = ctx;
    ready *f = &a->files[unit];
    ckpt__read_request request = a->request;
    const ckpt__format *format = NULL;
    (void)worker;
    (void)err;
    request.file = f->file;
    if (!f->added || request.members->choose(&request, &format, NULL) < 0 || !is_of_one_file(format))
        return CKPT_OK;
    if (request.members->read(&request, NULL, &f->part, NULL) < 0)
        f->part = NULL;
    return CKPT_OK;
}

/* The source grows here alone, by one thread. */
static void read_next(ckpt__ahead *a)
{
    drop_held(a);
    a->first = a->next;
    while (a->held < a->room && a->first + a->held < a->count) {
        ready *f = &a->files[a->held];
        *f = (ready){0};
        f->added = ckpt__source_add(a->request.source, a->names[a->first + a->held], &f->file, NULL) == CKPT_OK;
        a->held++;
    }
    ckpt__workers_run(a->threads, a->held, read_one, a, NULL);
}

bool ckpt__ahead_take(ckpt__ahead *a, uint32_t file, ckpt__index **part)
{
    *part = NULL;
    size_t at = a ? a->next : 0;
    const char *name = a ? a->request.source->files[file].name : "";
    while (a && at < a->count && strcmp(a->names[at], name) != 0)
        at++;
    if (!a || at == a->count)
        return false;
    a->next = at;
    if (at >= a->first + a->held)
        read_next(a);
    ready *f = &a->files[at - a->first];
    a->next = at + 1;
    if (!f->added || f->file != file)
        return false;
    *part = f->part;
    f->part = NULL;
    return *part != NULL;
}
