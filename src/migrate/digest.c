/* migrate/digest.c - is a migration the same as another one? Its digest is of all that decides on a byte of the target:
 *
 *   the sources      of each file its name, size, inode, time of its last change, and samples of its bytes: its head, its tail
 *                    (where a zip archive has the CRC-32 of each record) and places between; the CRCs that its format keeps
 *   the options      those that may change the target (digest_options.c)
 *   the plan         of each file its name, its segments, and the bytes that are known by now; which tensor is made of which, and how
 *   the library      its version
 *
 * The device number of a file system is left out, for it may be another one after each mount; so is the path, for a directory that was
 * moved is the same source. The plan is in it because it is what a new option changes, whether or not the option has a line here. */
#include <stdlib.h>
#include "migrate/adapter.h"
#include "migrate/out.h"

typedef ckpt__sha256 sum;

static void add_number(sum *s, uint64_t n)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(n >> 8 * i);
    ckpt__sha256_add(s, bytes, sizeof bytes);
}

/* With its length, so that two texts are not the same as two others; NULL is another one than "". */
static void add_bytes(sum *s, const void *data, size_t n)
{
    add_number(s, data ? n : UINT64_MAX);
    if (data)
        ckpt__sha256_add(s, data, n);
}

/* Yes and no, eight at most. */
static void add_flags(sum *s, const bool *flags, size_t count)
{
    uint64_t n = 0;
    for (size_t i = 0; i < count; i++)
        n = n << 1 | (flags[i] ? 1 : 0);
    add_number(s, n);
}

static void add_text(sum *s, const char *text)
{
    add_bytes(s, text, text ? strlen(text) : 0);
}

static void add_texts(sum *s, const char *const *texts, size_t count)
{
    add_number(s, count);
    for (size_t i = 0; i < count; i++)
        add_text(s, texts[i]);
}

/* ---- the sources */

enum { END = 64 << 10, SAMPLE = 4 << 10, SAMPLES = 6 };

static ckpt_status add_range(sum *s, const ckpt__source *source, uint32_t file, uint64_t at, size_t n, void *block,
                             ckpt_error *err)
{
    ckpt_status status = ckpt__source_read(source, file, at, block, n, err);
    if (status == CKPT_OK)
        ckpt__sha256_add(s, block, n);
    return status;
}

static ckpt_status add_file(sum *s, const ckpt__source *source, uint32_t file, void *block, ckpt_error *err)
{
    const ckpt__file *f = &source->files[file];
    const uint64_t size = f->size;
    add_text(s, source->directory ? f->name : NULL);
    add_number(s, f->root);
    add_number(s, size);
    add_number(s, f->ino);
    add_number(s, (uint64_t)f->mtime);
    add_number(s, (uint64_t)f->mtime_ns);
    if (size <= END)
        return size ? add_range(s, source, file, 0, (size_t)size, block, err) : CKPT_OK;
    ckpt_status status = add_range(s, source, file, 0, END, block, err);
    for (uint64_t i = 1; status == CKPT_OK && i < SAMPLES && size > 2 * END; i++)
        status = add_range(s, source, file, size / SAMPLES * i, SAMPLE, block, err);
    return status == CKPT_OK ? add_range(s, source, file, size - END, END, block, err) : status;
}

static ckpt_status add_source(sum *s, const ckpt__source *source, void *block, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    add_number(s, source->count);
    for (uint32_t i = 0; status == CKPT_OK && i < source->count; i++)
        status = add_file(s, source, i, block, err);
    return status;
}

/* Of a file that goes along unread, and is not open. */
static ckpt_status add_copied(ckpt__out *w, sum *s, const ckpt__out_file *f, void *block)
{
    ckpt__source *source = w->m->reader->source;
    const size_t before = source->count;
    uint32_t file = 0;
    ckpt_status status = ckpt__source_add_at(source, f->from, f->name, &file, w->err);
    if (status == CKPT_OK)
        status = add_file(s, source, file, block, w->err);
    if (source->count > before)
        ckpt__source_drop_last(source);
    return status;
}

static void add_extent(sum *s, const ckpt__extent *e)
{
    const bool placed =
        !e->memory && (e->coding == CKPT__STORED || e->coding == CKPT__DEFLATE || e->coding == CKPT__ZLIB);
    add_number(s, e->file);
    add_number(s, e->coding);
    add_flags(s, (bool[]){e->big_endian, e->has_crc, e->missing, e->spanned, e->memory != NULL}, 5);
    add_number(s, e->has_crc ? e->crc : 0);
    add_number(s, placed ? e->offset : 0);
    add_number(s, e->length);
    add_number(s, e->size);
    if (e->memory && !e->device)
        ckpt__sha256_add(s, e->memory, (size_t)e->size);
}

/* Where the bytes lie that are read, with the CRCs that are known. */
static void add_index(sum *s, const ckpt__index *x)
{
    add_number(s, x->storage_count);
    for (size_t i = 0; i < x->storage_count; i++)
        add_extent(s, &x->storages[i].extent);
    for (size_t i = 0; i < x->span_count; i++)
        add_extent(s, &x->spans[i].extent);
    add_number(s, x->tensor_count);
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt__tensor *t = &x->tensors[i];
        add_bytes(s, t->info.name.data, t->info.name.size);
        add_number(s, (uint64_t)t->info.dtype);
        add_number(s, (uint64_t)t->info.offset);
        add_number(s, t->info.nbytes);
        add_number(s, t->whole ? t->storage : UINT32_MAX);
        add_number(s, (uint64_t)t->piece_count << 32 | (t->has_crc ? t->crc : 0));
        for (uint32_t d = 0; d < t->info.ndim; d++) {
            add_number(s, (uint64_t)t->info.shape[d]);
            add_number(s, t->info.strides ? (uint64_t)t->info.strides[d] : 0);
        }
    }
}

/* ---- the plan */

static void add_recipe(sum *s, const ckpt__recipe *r)
{
    add_number(s, r->size);
    add_number(s, r->count);
    for (size_t i = 0; i < r->count; i++) {
        const ckpt__segment *g = &r->segments[i];
        add_number(s, g->kind);
        add_number(s, g->size);
        if (g->kind == CKPT__LITERAL)
            ckpt__sha256_add(s, g->bytes, (size_t)g->size);
        else if (g->kind == CKPT__RANGE) {
            add_number(s, r->ranges[g->number].number);
            add_number(s, r->ranges[g->number].begin);
        } else if (g->kind != CKPT__DEFERRED)
            add_number(s, g->number);
    }
}

static void add_plan(sum *s, const ckpt__plan *plan)
{
    const size_t count = ckpt__plan_bond_count(plan);
    add_number(s, count);
    for (size_t i = 0; i < count; i++) {
        const ckpt__bond *b = ckpt__plan_bond(plan, i);
        const ckpt__op *op = ckpt__plan_op_of(plan, b->op);
        add_number(s, (uint64_t)b->to << 32 | b->from);
        add_number(s, b->flags);
        add_number(s, (uint64_t)op->from << 32 | (uint64_t)op->to);
        add_number(s, (uint64_t)op->granule << 32 | (uint64_t)op->from_swap << 16 | (uint64_t)op->to_swap << 8 |
                          op->negate);
        add_flags(s, (bool[]){op->flips, op->exact}, 2);
        if (op->flips)
            ckpt__sha256_add(s, op->flip, sizeof op->flip);
    }
}

static void add_files(ckpt__out *w, sum *s)
{
    add_number(s, w->count);
    add_texts(s, w->folders, w->folder_count);
    for (size_t i = 0; i < w->count; i++) {
        const ckpt__out_file *f = &w->files[i];
        add_text(s, f->name);
        add_text(s, f->format ? f->format->name : NULL);
        add_number(s, f->copy);
        if (f->recipe)
            add_recipe(s, f->recipe);
        else if (!f->copy && !f->list) /* a list has the time, and what no two runs have alike */
            add_bytes(s, f->text.data, f->text.size);
    }
}

/* ---- all of it */

static ckpt_status sum_sources(const ckpt__migration *m, void *block, char *digest, ckpt_error *err)
{
    sum s;
    ckpt__sha256_begin(&s);
    ckpt_status status = add_source(&s, m->reader->source, block, err);
    if (status == CKPT_OK && m->adapter)
        status = add_source(&s, m->adapter->reader->source, block, err);
    ckpt__sha256_end(&s, digest);
    return status;
}

static ckpt_status sum_copied(ckpt__out *w, void *block, char *digest)
{
    sum s;
    ckpt_status status = CKPT_OK;
    ckpt__sha256_begin(&s);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        if (w->files[i].copy)
            status = add_copied(w, &s, &w->files[i], block);
    ckpt__sha256_end(&s, digest);
    return status;
}

ckpt_status ckpt__out_digest(ckpt__out *w, char digest[CKPT__SHA256_TEXT], ckpt__buf *of)
{
    const ckpt__migration *m = w->m;
    char source[CKPT__SHA256_TEXT] = "", copied[CKPT__SHA256_TEXT] = "";
    sum s;
    unsigned char *block = malloc(END);
    ckpt_status status = block ? sum_sources(m, block, source, w->err) : ckpt__migration_no_memory(w->err);
    if (status == CKPT_OK)
        status = sum_copied(w, block, copied);
    free(block);
    if (status < 0)
        return status;
    ckpt__buf_printf(of, "source=%.16s copied=%.16s version=%s ", source, copied, ckpt_version());
    ckpt__options_say(m, of);
    ckpt__sha256_begin(&s);
    add_text(&s, source);
    add_text(&s, copied);
    add_bytes(&s, of->data, of->size);
    add_index(&s, m->from);
    add_plan(&s, ckpt__bytes_plan_of(w->bytes));
    add_files(w, &s);
    ckpt__sha256_end(&s, digest);
    return of->failed ? ckpt__migration_no_memory(w->err) : CKPT_OK;
}
