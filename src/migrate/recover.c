/* migrate/recover.c - --salvage: what is whole goes along, the rest is listed. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>
#include "engine/joined.h"
#include "engine/stream.h"

/* Are the bytes of storage i there, and are they what was written? A CRC that does not match makes them lost, and so does a record of
 * a kind that is not read. */
static ckpt_status storage_is_whole(ckpt__migration *m, size_t i, bool *whole, char *why, size_t size, ckpt_error *err)
{
    const ckpt__storage *s = &m->from->storages[i];
    ckpt_error said = CKPT_ERROR_INIT;
    *whole = !s->extent.missing;
    if (s->extent.missing) {
        snprintf(why, size, "%llu of its %llu bytes are there",
                 (unsigned long long)(s->extent.length < s->extent.size ? s->extent.length : s->extent.size),
                 (unsigned long long)s->extent.size);
        return CKPT_OK;
    }
    if (!ckpt__has_any_crc(&s->extent) && s->extent.coding == CKPT__STORED)
        return CKPT_OK;
    ckpt_status status = ckpt__read_storage(m->reader->source, m->from, i, true, NULL, NULL, &said);
    bool unread = status == CKPT_E_UNSUPPORTED && s->extent.coding == CKPT__NESTED;
    if (status != CKPT_E_DAMAGED && !unread) {
        if (status < 0 && err)
            *err = said;
        return status;
    }
    *whole = false;
    snprintf(why, size, "its bytes are %s: %.700s", unread ? "not read" : "damaged", said.message);
    return CKPT_OK;
}

static ckpt_status tensor_is_whole(ckpt__migration *m, size_t i, bool *whole, char *why, size_t size, ckpt_error *err)
{
    const ckpt__tensor *t = &m->from->tensors[i];
    ckpt_error said = CKPT_ERROR_INIT;
    ckpt__joined *joined = NULL;
    ckpt_status status = CKPT_OK;
    if (ckpt__is_split(t)) { /* are they all there? */
        status = ckpt__joined_new(m->reader->source, m->from, i, false, false, 0, &joined, &said);
        ckpt__joined_free(joined);
    } else if (t->has_crc && t->whole)
        status = ckpt__read_tensor(m->reader->source, m->from, i, true, NULL, NULL, &said);
    if (status == CKPT_E_DAMAGED || status == CKPT_E_MISMATCH) {
        *whole = false;
        snprintf(why, size, "its %s: %.200s",
                 status == CKPT_E_DAMAGED ? "bytes are damaged" : "pieces do not make it whole", said.message);
        return CKPT_OK;
    }
    if (status < 0 && err)
        *err = said;
    return status;
}

/* A dense tensor that looks at the part of a cut storage that is there: it can be had without the rest. */
static bool lies_in_what_is_left(const ckpt__index *x, size_t i)
{
    const ckpt__tensor *t = &x->tensors[i];
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    uint64_t reach, end, bytes;
    if (!t->whole || ckpt__tensor_end(x, i) != i + 1 || bits % 8 || t->info.extra->quantizer.data)
        return false;
    const ckpt__extent *e = &x->storages[t->storage].extent;
    return e->missing && e->coding == CKPT__STORED && !e->memory &&
           ckpt__view_extent(t->info.shape, t->info.strides, t->info.ndim, &reach) &&
           ckpt__add((uint64_t)t->info.offset, reach, &end) && ckpt__nbytes(end, bits, &bytes) && bytes <= e->length;
}

/* The tensor and its parts stand or fall together. */
static ckpt_status recover_row(ckpt__migration *m, size_t i, const bool *whole, const char *const *why, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    size_t end = ckpt__tensor_end(x, i);
    char text[800] = "";
    bool fine = true;
    ckpt_status status = CKPT_OK;
    for (size_t k = i; status == CKPT_OK && fine && k < end; k++) {
        for (size_t p = 0; fine && p < ckpt__view_count(&x->tensors[k]); p++) {
            uint32_t storage = ckpt__view_of(x, &x->tensors[k], p).storage;
            fine = whole[storage];
            if (!fine)
                snprintf(text, sizeof text, "%s", why[storage]);
        }
        if (fine)
            status = tensor_is_whole(m, k, &fine, text, sizeof text, err);
    }
    if (status == CKPT_OK && !fine && lies_in_what_is_left(x, i)) {
        m->ledger.rows[i].own = CKPT__OWN_CUT;
        return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "cut-out", x->tensors[i].info.name, err,
                                    "recovered from a storage (%s): it no longer shares it", text);
    }
    if (status < 0 || fine)
        return status;
    ckpt__leave(m, i, CKPT__FATE_NOT_RECOVERED);
    return ckpt__migration_note(m, CKPT_SEVERITY_ERROR, "not-recovered", x->tensors[i].info.name, err, "%s", text);
}

/* A fix without its advice to salvage, which is being done: *cut has room for it. */
static const char *fix_of(const ckpt_finding *f, char *cut, size_t size)
{
    static const char advice[] = "ckpt-migrate --salvage";
    const char *begin = strstr(f->fix, advice);
    if (!begin || strstr(begin, "as it stands")) /* what comes of that is worth to be known now */
        return f->fix;
    size_t n = (size_t)(begin - f->fix);
    while (n > 0 && (f->fix[n - 1] == ' ' || f->fix[n - 1] == ';'))
        n--;
    snprintf(cut, size, "%.*s", (int)n, f->fix);
    return cut;
}

/* What the reader could not read at all: a shard that is not there, a member that is damaged. */
static ckpt_status note_unread(ckpt__migration *m, ckpt_error *err)
{
    char fix[500];
    for (size_t i = 0; i < ckpt_report_count(m->from->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(m->from->findings, i);
        bool lost = f->severity == CKPT_SEVERITY_ERROR, added = true;
        if (lost)
            added = ckpt__report_add(m->report, CKPT_SEVERITY_ERROR, "not-recovered", f->tensor,
                                     fix_of(f, fix, sizeof fix), "%s", f->message);
        else if (strcmp(f->code, "salvaged") == 0)
            added = ckpt__report_add(m->report, f->severity, "salvaged", f->tensor, f->fix, "%s", f->message);
        if (!added || ((lost || strcmp(f->code, "salvaged") == 0) &&
                       !ckpt__report_detail(m->report, f->file, NULL, NULL, f->nbytes)))
            return ckpt__migration_no_memory(err);
    }
    return CKPT_OK;
}

ckpt_status ckpt__migrate_recover(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    if (!m->options.salvage)
        return CKPT_OK;
    bool *whole = calloc(x->storage_count + 1, sizeof *whole);
    const char **why = calloc(x->storage_count + 1, sizeof *why);
    ckpt_status status = whole && why ? note_unread(m, err) : ckpt__migration_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < x->storage_count; i++) {
        char text[800] = "";
        status = storage_is_whole(m, i, &whole[i], text, sizeof text, err);
        if (status == CKPT_OK && !whole[i] && !(why[i] = ckpt__arena_copy(x->arena, text, strlen(text))))
            status = ckpt__migration_no_memory(err);
    }
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i))
        status = recover_row(m, i, whole, why, err);
    status = status == CKPT_OK ? ckpt__migrate_recover_closed(m, whole, why, err) : status;
    free(whole);
    free(why);
    return status;
}
