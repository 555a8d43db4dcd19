/* migrate/copy.c - files of the source that go along byte for byte, in bounded memory; and which directory they may
 * replace. */
#include "migrate/out.h"

#include <stdlib.h>
#include <sys/stat.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "format/folder/folder.h"

enum { BLOCK = 1 << 20 };

/* The file of a root of the source, and whether it was opened for this. */
static ckpt_status open_copy(ckpt__out *w, const ckpt__out_file *f, uint32_t *file, bool *own)
{
    ckpt__source *source = w->m->reader->source;
    size_t before = source->count;
    ckpt_status status = ckpt__source_add_at(source, f->from, f->name, file, w->err);
    *own = status == CKPT_OK && source->count > before;
    return status;
}

ckpt_status ckpt__copy_size(ckpt__out *w, const ckpt__out_file *f, uint64_t *size)
{
    uint32_t file = 0;
    bool own = false;
    ckpt_status status = open_copy(w, f, &file, &own);
    *size = status == CKPT_OK ? w->m->reader->source->files[file].size : 0;
    if (own)
        ckpt__source_drop_last(w->m->reader->source);
    return status;
}

/* What the checkpoint has in the file goes along unseen: it is held against its own CRCs before. */
static ckpt_status check_storages(ckpt__out *w, uint32_t file)
{
    const ckpt__migration *m = w->m;
    const ckpt__index *x = m->from;
    ckpt_status status = CKPT_OK;
    char what[200];
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++) {
        const ckpt__storage *s = &x->storages[i];
        if ((!s->extent.memory || s->extent.spanned) && s->extent.file == file)
            status = ckpt__check_storage(m->reader->source, x, i, UINT64_MAX,
                                         ckpt__escape(what, sizeof what, s->name.data ? s->name.data : "storage",
                                                      s->name.data ? s->name.size : 7),
                                         w->err);
    }
    return status;
}

ckpt_status ckpt__copy_file(ckpt__out *w, ckpt__out_file *f, ckpt__sink *folder)
{
    ckpt__source *source = w->m->reader->source;
    ckpt__sink *sink = NULL;
    uint32_t file = 0;
    bool own = false;
    char *block = malloc(BLOCK);
    ckpt_status status = block ? open_copy(w, f, &file, &own) : ckpt__migration_no_memory(w->err);
    f->size = status == CKPT_OK ? source->files[file].size : 0;
    f->crc = 0;
    if (status == CKPT_OK && !own)
        status = check_storages(w, file);
    if (status == CKPT_OK)
        status = ckpt__sink_member(folder, f->name, f->size, &sink, w->err);
    if (status == CKPT_OK)
        ckpt__sink_narrow(sink, ckpt__source_mode(source));
    for (uint64_t at = 0; status == CKPT_OK && at < f->size; at += BLOCK) {
        size_t n = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;
        const ckpt_progress *p = &w->m->options.progress;
        status = ckpt__source_read(source, file, at, block, n, w->err);
        if (status == CKPT_OK)
            status = ckpt__sink_write(sink, at, block, n, w->err);
        if (status == CKPT_OK)
            f->crc = ckpt__crc32(f->crc, block, n);
        w->m->done += n;
        if (status == CKPT_OK && p->fn &&
            p->fn(p->ctx, w->m->done < w->m->total ? w->m->done : w->m->total, w->m->total) != 0)
            status = ckpt__fail(w->err, CKPT_E_CANCELLED, w->m->dst, "cancelled by the progress callback");
    }
    if (own)
        ckpt__source_drop_last(source);
    free(block);
    if (status == CKPT_OK)
        return ckpt__sink_commit(sink, w->err);
    ckpt__sink_abort(sink);
    return status;
}

static ckpt_status check_copy(ckpt__out *w, ckpt__source *there, const ckpt__out_file *f, char *block)
{
    uint32_t file = 0, crc = 0;
    ckpt_status status = ckpt__source_add(there, f->name, &file, w->err);
    if (status == CKPT_OK && there->files[file].size != f->size)
        status = ckpt__fail(w->err, CKPT_E_DAMAGED, f->name, "it reads back with %llu bytes, and has %llu",
                            (unsigned long long)there->files[file].size, (unsigned long long)f->size);
    for (uint64_t at = 0; status == CKPT_OK && at < f->size; at += BLOCK) {
        size_t n = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;
        status = ckpt__source_read(there, file, at, block, n, w->err);
        if (status == CKPT_OK)
            crc = ckpt__crc32(crc, block, n);
    }
    if (status == CKPT_OK)
        ckpt__source_drop_last(there);
    if (status == CKPT_OK && crc != f->crc)
        status = ckpt__fail(w->err, CKPT_E_DAMAGED, f->name, "it reads back with CRC-32 %08x, the source's is %08x",
                            (unsigned)crc, (unsigned)f->crc);
    return status;
}

ckpt_status ckpt__check_copies(ckpt__out *w)
{
    ckpt__source *there = NULL;
    bool any = false;
    for (size_t i = 0; i < w->count; i++)
        any |= w->files[i].copy;
    if (!any)
        return CKPT_OK;
    char *block = malloc(BLOCK);
    ckpt_status status = block ? ckpt__source_open(w->m->beside, &there, w->err) : ckpt__migration_no_memory(w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        if (w->files[i].copy)
            status = check_copy(w, there, &w->files[i], block);
    ckpt__source_close(there);
    free(block);
    return status;
}

/* ---- what may be replaced */

typedef struct replaced {
    const ckpt__migration *m;
    ckpt__source *from;
} replaced;

static ckpt_status may_go(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const replaced *r = ctx;
    int64_t number;
    bool exact;
    char shown[200];
    uint32_t file;
    ckpt_error why = CKPT_ERROR_INIT;
    (void)root;
    if (!folder && ckpt__part_of(name, &number, &exact) != CKPT__PART_NONE && exact)
        return CKPT_OK;
    size_t before = r->from->count;
    ckpt_status status = folder ? CKPT_E_NOT_FOUND : ckpt__source_add(r->from, name, &file, &why);
    if (status == CKPT_OK) {
        if (r->from->count > before)
            ckpt__source_drop_last(r->from);
        return CKPT_OK; /* the source has one of this name too */
    }
    if (status == CKPT_E_NO_MEMORY) {
        if (err)
            *err = why;
        return status;
    }
    return ckpt__fail(err, CKPT_E_EXISTS, r->m->dst, "it holds '%s', which would be lost; write to a new directory",
                      ckpt__escape(shown, sizeof shown, name, strlen(name)));
}

static ckpt_status check_same(const ckpt__migration *m, ckpt_error *err)
{
    ckpt__source *there = NULL;
    ckpt__folder look = {0};
    replaced r = {.m = m};
    ckpt_status status = ckpt__source_open(m->src, &r.from, err);
    if (status == CKPT_OK)
        status = ckpt__source_open(m->dst, &there, err);
    if (status == CKPT_OK) {
        status = ckpt__folder_look(there, &look, err);
        if (status == CKPT_OK && look.layout <= CKPT__LAYOUT_REFUSED)
            status = ckpt__fail(err, CKPT_E_EXISTS, m->dst,
                                "it is another kind of checkpoint, and is not replaced; write to a new directory");
        ckpt__folder_free(&look);
    }
    if (status == CKPT_OK)
        status = ckpt__source_each(there, "", may_go, &r, err);
    ckpt__source_close(there);
    ckpt__source_close(r.from);
    return status;
}

/* Is the name as the pattern has it? 0: a digit; #: one or several. */
static bool is_like(const char *name, const char *pattern)
{
    for (; *pattern; pattern++) {
        size_t digits = *pattern == '#' ? strspn(name, "0123456789") : *pattern == '0' && *name >= '0' && *name <= '9';
        if (digits == 0 && (*pattern == '#' || *pattern == '0' || *name != *pattern))
            return false;
        name += digits ? digits : 1;
    }
    return !*name;
}

/* The names that are written: of --to hf model.safetensors, its shards, and their index. */
static bool is_written(const ckpt__migration *m, const char *name)
{
    if (m->as == CKPT__AS_DCP)
        return is_like(name, "__#_#.distcp") || strcmp(name, ".metadata") == 0;
    if (m->as == CKPT__AS_DCP_HF)
        return is_like(name, "shard-00000-model-00000-of-00000.safetensors");
    return is_like(name, "model-00000-of-00000.safetensors") || strcmp(name, "model.safetensors") == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0;
}

static ckpt_status only_weights(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const ckpt__migration *m = ctx;
    (void)root;
    struct stat st;
    ckpt__buf path = {0};
    ckpt__buf_printf(&path, "%s/%s", m->src, name);
    bool failed = path.failed;
    bool carried = m->hf && !folder && !failed && ckpt__is_carried(m->from, name) && stat(path.data, &st) == 0 &&
                   S_ISREG(st.st_mode);
    ckpt__buf_free(&path);
    if (failed)
        return ckpt__migration_no_memory(err);
    if (carried)
        return CKPT_OK; /* the source has one of this name, which comes in its place */
    if (!folder && is_written(m, name))
        return CKPT_OK;
    char shown[200];
    return ckpt__fail(err, CKPT_E_EXISTS, m->dst, "it holds '%s', which would be lost; write to a new directory",
                      ckpt__escape(shown, sizeof shown, name, strlen(name)));
}

/* A directory is replaced where it holds nothing but such files. */
static ckpt_status check_shards(ckpt__migration *m, ckpt_error *err)
{
    ckpt__source *there = NULL;
    ckpt_status status = ckpt__source_open(m->dst, &there, err);
    if (status == CKPT_OK)
        status = ckpt__source_each(there, "", only_weights, m, err);
    ckpt__source_close(there);
    return status;
}

static ckpt_status see_any(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const ckpt__migration *m = ctx;
    char shown[200];
    (void)root;
    (void)folder;
    return ckpt__fail(err, CKPT_E_EXISTS, m->dst, "it holds '%s', which would be lost; write to a new directory",
                      ckpt__escape(shown, sizeof shown, name, strlen(name)));
}

/* What folders hold is not looked through: a directory with anything in it stays. */
static ckpt_status check_empty(ckpt__migration *m, ckpt_error *err)
{
    ckpt__source *there = NULL;
    ckpt_status status = ckpt__source_open(m->dst, &there, err);
    if (status == CKPT_OK)
        status = ckpt__source_each(there, "", see_any, m, err);
    ckpt__source_close(there);
    return status;
}

ckpt_status ckpt__check_replaced(ckpt__migration *m, ckpt_error *err)
{
    if (m->same || ckpt__is_trainers(m))
        return check_same(m, err);
    return m->hf || ckpt__is_dcp(m) ? check_shards(m, err) : ckpt__is_folder(m) ? check_empty(m, err) : CKPT_OK;
}
