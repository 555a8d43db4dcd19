/* migrate/turns.c - files that have ranges of the same tensors are written by turns, tensor by tensor, so that the source is read
 * once: where two files part a piece of the source, the second half is read while the first is still at hand, and what several files
 * have is read for all of them. File after file, a DeepSpeed checkpoint of 4 ranks would be read one and a half times for 3, and one
 * for a run of 8 ranks, each of which has all, eight times. */
#include "migrate/out.h"

#include <stdlib.h>

/* Files at a time. Of more, two groups that part a tensor meet in one piece, and that is read twice. Groups that have the same bytes read
 * all of them again, so there may be more in one; but each has a smaller block then, and what is interrupted is not finished. */
enum { AT_A_TIME = 4, ALIKE_AT_A_TIME = 64, ALIGN = 4096 };

typedef struct turn {
    ckpt__out_file *file; /* borrowed */
    ckpt__sink *sink;     /* owned until it is committed */
    ckpt__recipe_writer *writer;
    ckpt__payload_place place; /* where it goes on */
    bool there;                /* false: it has all payloads */
} turn;

typedef struct turns {
    ckpt__out *w;
    const ckpt__payload *payload;
    turn *list; /* heap, owned */
    size_t count;
    unsigned char *shared; /* heap, owned: what is read for several files; NULL: nothing was by now */
    size_t room;           /* bytes of it */
} turns;

/* ---- which files */

/* What the files of a group have by now: of each payload the first range that was met, as 1 + its first byte; 0: none was. */
static void mark(uint64_t *begins, const ckpt__recipe *r)
{
    for (size_t i = 0; i < r->range_count; i++)
        if (!begins[r->ranges[i].number])
            begins[r->ranges[i].number] = r->ranges[i].begin + 1;
}

/* *alike: a range begins where one of the group does. */
static bool shares(const uint64_t *begins, const ckpt__recipe *r, bool *alike)
{
    bool some = false;
    for (size_t i = 0; i < r->range_count && !*alike; i++) {
        some |= begins[r->ranges[i].number] != 0;
        *alike = begins[r->ranges[i].number] == r->ranges[i].begin + 1;
    }
    return some || *alike;
}

ckpt_status ckpt__turns_count(const ckpt__out *w, size_t first, size_t *count)
{
    const ckpt__recipe *r = w->files[first].recipe;
    *count = 0;
    if (!r || !r->range_count)
        return CKPT_OK;
    uint64_t *begins = calloc(ckpt__plan_bond_count(ckpt__bytes_plan_of(w->bytes)) + 1, sizeof *begins);
    if (!begins)
        return ckpt__migration_no_memory(w->err);
    bool alike = false;
    size_t n = 1, most = AT_A_TIME;
    mark(begins, r);
    for (; n < 2 * most && first + n < w->count; n++) {
        r = w->files[first + n].recipe;
        if (!r || !shares(begins, r, &alike))
            break;
        most = alike ? ALIKE_AT_A_TIME : AT_A_TIME;
        mark(begins, r);
    }
    free(begins);
    *count = n <= most ? n : n >= 2 * most ? most : (n + 1) / 2;
    return CKPT_OK;
}

/* ---- by turns */

static bool is_before(const turn *a, const turn *b)
{
    if (!a->there || !b->there || a->place.number == b->place.number)
        return a->there && (!b->there || a->place.at < b->place.at);
    return a->place.number < b->place.number;
}

/* Where the next bytes of the target are; NULL: nowhere. */
static const turn *earliest(const turns *t)
{
    const turn *first = &t->list[0];
    for (size_t i = 1; i < t->count; i++)
        first = is_before(&t->list[i], first) ? &t->list[i] : first;
    return first->there ? first : NULL;
}

/* Bytes from that place on, up to where another file begins or one of those that are there ends. *files: how many are there. */
static uint64_t common(const turns *t, const ckpt__payload_place *place, size_t *files)
{
    uint64_t bytes = place->left;
    *files = 0;
    for (size_t i = 0; i < t->count; i++) {
        const ckpt__payload_place *p = &t->list[i].place;
        if (!t->list[i].there || p->number != place->number)
            continue;
        const uint64_t its = p->at == place->at ? p->left : p->at - place->at;
        *files += p->at == place->at;
        bytes = its < bytes ? its : bytes;
    }
    return bytes;
}

/* Bytes that several files have, read once. */
static ckpt_status read_shared(turns *t, const ckpt__payload_place *place, uint64_t bytes)
{
    const ckpt__payload *p = t->payload;
    if (!t->shared) {
        t->room = p->block ? p->block : CKPT__BLOCK;
        t->room = p->tile && p->tile < t->room ? p->tile : t->room;
        if (!(t->shared = malloc(t->room)))
            return ckpt__migration_no_memory(t->w->err);
    }
    ckpt_status status = CKPT_OK;
    for (uint64_t done = 0, n; status == CKPT_OK && done < bytes; done += n) {
        n = bytes - done < t->room ? bytes - done : t->room;
        status = p->read(p->ctx, place->kind, place->number, place->at + done, t->shared, (size_t)n, t->w->err);
        for (size_t i = 0; status == CKPT_OK && i < t->count; i++) {
            const turn *one = &t->list[i];
            if (one->there && one->place.number == place->number && one->place.at == place->at)
                status = ckpt__recipe_writer_give(one->writer, t->shared, (size_t)n);
        }
    }
    return status;
}

static ckpt_status take_turns(turns *t)
{
    ckpt_status status = CKPT_OK;
    for (const turn *first; status == CKPT_OK && (first = earliest(t));) {
        const ckpt__payload_place place = first->place;
        size_t files;
        const uint64_t bytes = common(t, &place, &files);
        status = files > 1 ? read_shared(t, &place, bytes) : ckpt__recipe_writer_read(first->writer, bytes);
        for (size_t i = 0; status == CKPT_OK && i < t->count; i++) {
            turn *one = &t->list[i];
            if (one->there && one->place.number == place.number && one->place.at == place.at)
                status = ckpt__recipe_writer_next(one->writer, &one->place, &one->there);
        }
    }
    return status;
}

/* ---- all of a group */

static ckpt_status open_one(turns *t, ckpt__out_file *file, const ckpt__payload *part, ckpt__write_progress *progress,
                            ckpt__sink *folder)
{
    ckpt_error *err = t->w->err;
    turn *one = &t->list[t->count++];
    one->file = file;
    ckpt_status status = ckpt__sink_member(folder, file->name, file->recipe->size, &one->sink, err);
    if (status == CKPT_OK)
        status = ckpt__recipe_writer_open(file->recipe, part, one->sink, progress, &one->writer, err);
    return status == CKPT_OK ? ckpt__recipe_writer_next(one->writer, &one->place, &one->there) : status;
}

static ckpt_status finish_one(const turns *t, turn *one, ckpt__sink *folder, ckpt_status status)
{
    ckpt__migration *m = t->w->m;
    if (status == CKPT_OK)
        status = ckpt__recipe_writer_finish(one->writer, &one->file->crc);
    ckpt__recipe_writer_free(one->writer);
    if (status < 0) {
        ckpt__sink_abort(one->sink);
        return status;
    }
    status = ckpt__sink_commit(one->sink, t->w->err);
    m->done += one->file->recipe->size;
    return status == CKPT_OK ? ckpt__interrupted_record(t->w, folder, one->file) : status;
}

ckpt_status ckpt__write_turns(ckpt__out *w, size_t first, size_t count, ckpt__sink *folder,
                              const ckpt__payload *payload)
{
    ckpt__migration *m = w->m;
    ckpt__write_progress progress = {&m->options.progress, m->done, m->total};
    ckpt__payload part = *payload; /* of the memory of one file's blocks */
    turns t = {.w = w, .payload = payload, .list = calloc(count + 1, sizeof *t.list)};
    ckpt_status status = t.list ? CKPT_OK : ckpt__migration_no_memory(w->err);
    part.block = (payload->block ? payload->block : CKPT__BLOCK) / (count > AT_A_TIME ? count : AT_A_TIME);
    part.block = part.block / ALIGN * ALIGN;
    part.alone = payload->alone || count > AT_A_TIME; /* else each has a thread */
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        if (!w->files[first + i].taken)
            status = open_one(&t, &w->files[first + i], &part, &progress, folder);
    if (status == CKPT_OK && t.count)
        status = take_turns(&t);
    for (size_t i = 0; i < t.count; i++)
        status = finish_one(&t, &t.list[i], folder, status);
    free(t.shared);
    free(t.list);
    return status;
}
