/* scan/archive.c - the records of a zip archive, also of one that is no archive to a reader. The directory is believed
 * where all of it is true (codec/zip.h); what lies between the records of such a one, and all of any other, is searched for
 * the headers of records: whoever unpickles a record found its header first. */
#include "scan/work.h"

#include <stdlib.h>
#include "codec/zip.h"

enum { LOCAL_SIZE = 30, WINDOW = 64 << 10, NAME_MAX_SIZE = 4096, HEAD = 512, END_MAX = 22 + 65535 };

static uint16_t le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* ---- one record */

/* One record of a zip archive, as the directory or its own header says. The name is borrowed and has no NUL. */
typedef struct record {
    const char *name;
    size_t name_size;
    uint64_t data, size;   /* in the span; the coded bytes */
    bool deflated, hunted; /* hunted: found by its header alone (ckpt__scan_span) */
} record;

static ckpt_status push_stored(ckpt__scan_job *job, const ckpt__scan_span *span, const record *r, char *label,
                               const ckpt__scan_span *like)
{
    unsigned char head[HEAD];
    ckpt__scan_span s = *like;
    size_t n = ckpt__scan_head(job, span, r->data, head, sizeof head);
    if (!s.named_pickle && !ckpt__scan_may_matter(job, head, n, r->size)) {
        free(label);
        return CKPT_OK;
    }
    s.view = ckpt__scan_view_keep(span->view);
    s.at = span->at + r->data;
    s.size = r->size;
    s.label = label;
    return ckpt__scan_push(job, s);
}

static ckpt_status push_deflated(ckpt__scan_job *job, const ckpt__scan_span *span, const record *r, char *label,
                                 const ckpt__scan_span *like)
{
    unsigned char head[HEAD];
    ckpt__scan_span coded = {.view = span->view, .at = span->at + r->data, .size = r->size}, s = *like;
    s.view = label ? ckpt__scan_view_inflate(job, &coded, true) : NULL;
    s.size = UINT64_MAX / 2; /* scan.c inflates it to its end before it is looked at */
    s.hunted = false;
    s.label = label;
    if (!s.view) {
        free(label);
        return ckpt__fail_memory(job->err, span->label, WINDOW);
    }
    size_t n = ckpt__scan_head(job, &s, 0, head, sizeof head);
    if (s.named_pickle || ckpt__scan_may_matter(job, head, n, n < HEAD ? n : UINT64_MAX))
        return ckpt__scan_push(job, s);
    ckpt__scan_view_drop(job, s.view);
    free(label);
    return CKPT_OK;
}

static ckpt_status push_record(ckpt__scan_job *job, const ckpt__scan_span *span, const record *r)
{
    ckpt__scan_span like = {.depth = span->depth + 1,
                            .hunted = r->hunted,
                            .named_pickle = ckpt__str_ends((ckpt_str){r->name, r->name_size}, ".pkl") && !r->hunted};
    if (r->size < 2)
        return CKPT_OK;
    if (like.depth > CKPT__SCAN_DEPTH)
        return ckpt__scan_limit(job, span->label, "archives are nested deeper than scan reads");
    char *label = ckpt__scan_label(span->label, r->name, r->name_size);
    if (!label)
        return ckpt__fail_memory(job->err, span->label, r->name_size);
    return r->deflated ? push_deflated(job, span, r, label, &like) : push_stored(job, span, r, label, &like);
}

/* ---- records by their headers */

/* The record whose header may be at `at`. */
static ckpt_status push_header(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t at)
{
    unsigned char p[LOCAL_SIZE];
    char name[NAME_MAX_SIZE];
    if (ckpt__scan_head(job, span, at, p, sizeof p) < sizeof p)
        return CKPT_OK;
    unsigned flags = le16(p + 6), method = le16(p + 8);
    size_t n = le16(p + 26), extra = le16(p + 28), shown = n < sizeof name ? n : sizeof name;
    uint64_t data = at + LOCAL_SIZE + n + extra;
    if (data >= span->size)
        return CKPT_OK;
    shown = ckpt__scan_head(job, span, at + LOCAL_SIZE, name, shown);
    ckpt_status status = CKPT_OK;
    if ((flags & 1) || (method != 0 && method != 8)) {
        /* A payload may hold such four bytes by chance; a name that is text is no chance. */
        if (n && n < 256 && ckpt__utf8_valid(name, shown) && method < 100)
            status =
                ckpt__scan_note(job, "scan-unreadable", span->label, "unpack it, and scan what comes out",
                                "it has a record that says that it is encrypted, or compressed by a method that is not "
                                "read: what it unpacks to was not looked into");
    }
    /* Neither is always true: torch does not look at the flags. */
    record r = {.name = name, .name_size = shown, .data = data, .size = span->size - data, .hunted = true};
    if (status == CKPT_OK)
        status = push_record(job, span, &r);
    /* What the directory says of the method may be something else than what the record says. */
    r.deflated = true;
    return status == CKPT_OK ? push_record(job, span, &r) : status;
}

/* All headers from `from` to `to`. */
static ckpt_status hunt(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t to)
{
    ckpt_status status = CKPT_OK;
    unsigned char *window = malloc(WINDOW);
    if (!window)
        return ckpt__fail_memory(job->err, span->label, WINDOW);
    while (status == CKPT_OK && from + 4 <= to && !job->over) {
        size_t n = ckpt__scan_head(job, span, from, window, to - from < WINDOW ? (size_t)(to - from) : WINDOW);
        if (n < 4)
            break;
        for (size_t i = 0; status == CKPT_OK && i + 4 <= n; i++) {
            const unsigned char *p = memmem(window + i, n - i, "PK\3\4", 4);
            if (!p)
                break;
            i = (size_t)(p - window);
            status = push_header(job, span, from + i);
        }
        from += n - 3;
        if (status == CKPT_OK)
            status = ckpt__scan_step(job);
    }
    free(window);
    if (job->over && status == CKPT_OK)
        status = ckpt__scan_limit(job, span->label, "it has more than scan reads");
    return status;
}

/* ---- a sound archive */

static int by_header(const void *a, const void *b)
{
    const ckpt__zip_record *const *x = a, *const *y = b;
    return (*x)->header < (*y)->header ? -1 : (*x)->header > (*y)->header;
}

/* What lies between the records belongs to none of them: torch leaves nothing there, a descriptor takes 24 bytes. */
static ckpt_status gaps(ckpt__scan_job *job, const ckpt__scan_span *span, const ckpt__zip_record **sorted, size_t count)
{
    uint64_t end = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i <= count; i++) {
        uint64_t next = i < count ? sorted[i]->header : span->size;
        if (next > end && next - end > LOCAL_SIZE)
            status = hunt(job, span, end, next);
        if (i < count)
            end = sorted[i]->data + sorted[i]->csize;
    }
    return status;
}

static ckpt_status sound(ckpt__scan_job *job, const ckpt__scan_span *span, const ckpt__zip *zip)
{
    size_t count = ckpt__zip_count(zip);
    const ckpt__zip_record **sorted = calloc(count + 1, sizeof *sorted);
    if (!sorted)
        return ckpt__fail_memory(job->err, span->label, count * sizeof *sorted);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        const ckpt__zip_record *z = sorted[i] = ckpt__zip_at(zip, i);
        const record r = {.name = z->name.data,
                          .name_size = z->name.size,
                          .data = z->data,
                          .size = z->csize,
                          .deflated = z->method == CKPT__ZIP_DEFLATED};
        status = push_record(job, span, &r);
    }
    qsort(sorted, count, sizeof *sorted, by_header);
    if (status == CKPT_OK)
        status = gaps(job, span, sorted, count);
    free(sorted);
    return status;
}

/* A file may be an archive by its end and something else by its beginning. */
static bool has_end(ckpt__scan_job *job, const ckpt__scan_span *span)
{
    uint64_t n = span->size < END_MAX ? span->size : END_MAX;
    unsigned char *tail = span->size < 22 ? NULL : malloc((size_t)n);
    bool found = tail && ckpt__scan_head(job, span, span->size - n, tail, (size_t)n) == n &&
                 memmem(tail, (size_t)n, "PK\5\6", 4);
    free(tail);
    return found;
}

ckpt_status ckpt__scan_zip(ckpt__scan_job *job, const ckpt__scan_span *span, bool *is)
{
    unsigned char head[4];
    ckpt__scan_input input = {job, span};
    const ckpt__zip_input in = {ckpt__scan_read, &input, span->size, "archive"};
    ckpt__zip *zip;
    bool begins = ckpt__scan_head(job, span, 0, head, 4) == 4 &&
                  (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0);
    *is = begins || has_end(job, span);
    if (!*is)
        return CKPT_OK;
    ckpt_status status = begins ? ckpt__zip_open(&in, &zip, NULL) : CKPT_E_FORMAT;
    if (status == CKPT_OK) {
        status = sound(job, span, zip);
        ckpt__zip_free(zip);
        return status;
    }
    return status == CKPT_E_NO_MEMORY ? ckpt__fail_memory(job->err, span->label, span->size)
                                      : hunt(job, span, 0, span->size);
}
