/* migrate/turns.c - files that have ranges of the same tensors are written by turns, tensor by tensor, so that the source is read
 * once: where two files part a piece of the source, the second half is read while the first is still at hand. File after file, a
 * DeepSpeed checkpoint of 4 ranks would be read one and a half times for 3. */
#include "migrate/out.h"

#include <stdlib.h>

enum { AT_A_TIME = 4 }; /* files: of more, two groups meet in one piece, and that is read twice */

typedef struct turn {
    ckpt__out_file *file; /* borrowed */
    ckpt__sink *sink;     /* owned until it is committed */
    ckpt__recipe_writer *writer;
    size_t next; /* the segment of its next payload; the count of segments: there is none */
} turn;

size_t ckpt__turns_count(const ckpt__out *w, size_t first)
{
    size_t n = 0;
    while (first + n < w->count && w->files[first + n].recipe && w->files[first + n].recipe->range_count)
        n++;
    size_t groups = (n + AT_A_TIME - 1) / AT_A_TIME;
    return groups ? (n + groups - 1) / groups : 0;
}

static void find_next(turn *t)
{
    const ckpt__recipe *r = t->file->recipe;
    while (t->next < r->count && r->segments[t->next].kind != CKPT__RANGE &&
           r->segments[t->next].kind != CKPT__PAYLOAD && r->segments[t->next].kind != CKPT__STORAGE)
        t->next++;
}

/* The place of the payload among all of the target: where it begins in its own. */
static bool is_before(const turn *a, const turn *b)
{
    const ckpt__recipe *ra = a->file->recipe, *rb = b->file->recipe;
    if (a->next >= ra->count || b->next >= rb->count)
        return a->next < ra->count;
    const ckpt__segment *sa = &ra->segments[a->next], *sb = &rb->segments[b->next];
    const ckpt__range wa = sa->kind == CKPT__RANGE ? ra->ranges[sa->number] : (ckpt__range){sa->number, 0},
                      wb = sb->kind == CKPT__RANGE ? rb->ranges[sb->number] : (ckpt__range){sb->number, 0};
    return wa.number != wb.number ? wa.number < wb.number : wa.begin < wb.begin;
}

/* One payload after the other, whichever file it is in. */
static ckpt_status take_turns(turn *turns, size_t count)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK) {
        turn *t = &turns[0];
        for (size_t i = 1; i < count; i++)
            t = is_before(&turns[i], t) ? &turns[i] : t;
        if (t->next >= t->file->recipe->count)
            break;
        status = ckpt__recipe_writer_to(t->writer, ++t->next);
        find_next(t);
    }
    return status;
}

ckpt_status ckpt__write_turns(ckpt__out *w, size_t first, size_t count, ckpt__sink *folder,
                              const ckpt__payload *payload)
{
    ckpt__migration *m = w->m;
    ckpt__write_progress progress = {&m->options.progress, m->done, m->total};
    ckpt__payload part = *payload; /* of the memory of one file's blocks */
    turn *turns = calloc(count + 1, sizeof *turns);
    ckpt_status status = turns ? CKPT_OK : ckpt__migration_no_memory(w->err);
    size_t n = 0;
    part.block = (payload->block ? payload->block : CKPT__BLOCK) / AT_A_TIME;
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        if (w->files[first + i].taken)
            continue;
        turn *t = &turns[n++];
        t->file = &w->files[first + i];
        status = ckpt__sink_member(folder, t->file->name, t->file->recipe->size, &t->sink, w->err);
        if (status == CKPT_OK)
            status = ckpt__recipe_writer_open(t->file->recipe, &part, t->sink, &progress, &t->writer, w->err);
        find_next(t);
    }
    if (status == CKPT_OK && n)
        status = take_turns(turns, n);
    for (size_t i = 0; i < n; i++) {
        turn *t = &turns[i];
        if (status == CKPT_OK)
            status = ckpt__recipe_writer_finish(t->writer, &t->file->crc);
        ckpt__recipe_writer_free(t->writer);
        if (status < 0) {
            ckpt__sink_abort(t->sink);
            continue;
        }
        status = ckpt__sink_commit(t->sink, w->err);
        m->done += t->file->recipe->size;
        if (status == CKPT_OK)
            status = ckpt__interrupted_record(w, folder, t->file);
        if (status == CKPT_OK)
            status = ckpt__interrupted_record(w, folder, t->file);
    }
    free(turns);
    return status;
}
