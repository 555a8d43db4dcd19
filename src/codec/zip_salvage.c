/* codec/zip_salvage.c - the records of an archive whose directory is lost, found by their local headers.
 *
 * A writer that streams (torch's does) leaves sizes and CRC at zero in the local header and puts them into a descriptor
 * behind the data: "PK\7\8", CRC, coded size, size. So a record ends where a descriptor names exactly the distance from
 * where its data began, or where the caller knows that it does. Payloads may hold anything, whole archives too; the
 * caller's sizes carry the walk over them. Every byte is looked at once, so the time is that of reading the file. */
#include "codec/crc32.h"
#include "codec/zip_priv.h"

#include <stdlib.h>

enum { LOCAL_SIZE = 30, NARROW = 16, WIDE = 24, HAS_DESCRIPTOR = 8, ENCRYPTED = 1 | 1 << 6 | 1 << 13 };
enum { WINDOW = 256 << 10, NAME_MAX_SIZE = 4096 };
/* As many as the largest directory that is read has. */
enum { RECORDS_MAX = 10000000 };

typedef struct walk {
    ckpt__zip *z;
    ckpt__zip_hint hint;
    void *ctx;
    ckpt_error *err;
    unsigned char *window;
} walk;

static ckpt_status read_at(const walk *w, uint64_t at, void *dst, size_t n)
{
    return w->z->in.read(w->z->in.ctx, at, dst, n, w->err);
}

static uint64_t left_at(const walk *w, uint64_t at)
{
    return at < w->z->in.size ? w->z->in.size - at : 0;
}

/* ---- local headers */

typedef struct header {
    ckpt__zip_record r; /* name borrowed from `text` */
    uint32_t crc, csize, usize;
    uint64_t wide[2]; /* usize and csize of the zip64 field */
    bool filled;      /* the fields fill the extra field as its length says: that length is right */
    char text[NAME_MAX_SIZE + 1];
} header;

static void read_extra(header *h, const unsigned char *extra, size_t n)
{
    size_t i = 0;
    while (n - i >= 4) {
        size_t id = le16(extra + i), size = le16(extra + i + 2);
        i += 4;
        if (size > n - i)
            return;
        for (size_t k = 0; id == 1 && k < 2 && 8 * (k + 1) <= size; k++)
            h->wide[k] = le64(extra + i + 8 * k);
        i += size;
    }
    h->filled = i == n;
}

/* Is there a local header at `at`, of the archive whose first record names it? */
static ckpt_status read_header(walk *w, uint64_t at, header *h, bool *found)
{
    unsigned char p[LOCAL_SIZE];
    *found = false;
    memset(h, 0, offsetof(header, text));
    if (left_at(w, at) < LOCAL_SIZE)
        return CKPT_OK;
    ckpt_status status = read_at(w, at, p, sizeof p);
    if (status < 0 || memcmp(p, "PK\3\4", 4) != 0)
        return status;
    size_t name = le16(p + 26), extra = le16(p + 28);
    h->r.flags = le16(p + 6);
    h->r.method = le16(p + 8);
    if (name == 0 || name > NAME_MAX_SIZE || left_at(w, at) < LOCAL_SIZE + name + extra || (h->r.flags & ENCRYPTED) ||
        (h->r.method != CKPT__ZIP_STORED && h->r.method != CKPT__ZIP_DEFLATED))
        return CKPT_OK;
    status = read_at(w, at + LOCAL_SIZE, h->text, name);
    if (status == CKPT_OK && extra)
        status = read_at(w, at + LOCAL_SIZE + name, w->window, extra);
    if (status < 0 || !ckpt__zip_name_is_safe(h->text, name))
        return status;
    read_extra(h, w->window, extra);
    h->text[name] = '\0';
    const char *slash = memchr(h->text, '/', name);
    const ckpt__zip_record *first = ckpt__zip_at(w->z, 0);
    size_t root = slash ? (size_t)(slash - h->text) + 1 : 0;
    if (root == 0 || (first && (first->name.size < root || memcmp(first->name.data, h->text, root) != 0)))
        return CKPT_OK;
    h->r.name = (ckpt_str){h->text, name};
    h->r.folder = h->text[name - 1] == '/';
    h->r.header = at;
    h->r.data = at + LOCAL_SIZE + name + extra;
    h->crc = le32(p + 14);
    h->csize = le32(p + 18);
    h->usize = le32(p + 22);
    *found = true;
    return CKPT_OK;
}

/* ---- where a record ends */

/* A descriptor of `have` bytes behind `distance` bytes of data: its length, 0 where it is none. */
static size_t descriptor(const unsigned char *d, size_t have, uint64_t distance, bool stored, ckpt__zip_record *r)
{
    if (have < NARROW || memcmp(d, "PK\7\x08", 4) != 0)
        return 0;
    /* What has no bytes has a CRC of 0: so a narrow descriptor of nothing and a wide one are told apart. */
    bool narrow =
        le32(d + 8) == distance && (stored ? le32(d + 12) == distance : le32(d + 12) != 0 || le32(d + 4) == 0);
    bool wide = have >= WIDE && le64(d + 8) == distance && (!stored || le64(d + 16) == distance);
    if (!narrow && !wide)
        return 0;
    r->crc = le32(d + 4);
    r->csize = distance;
    r->usize = narrow ? le32(d + 12) : le64(d + 16);
    r->has_crc = r->crc != 0 || r->usize == 0;
    return narrow ? NARROW : WIDE;
}

/* The record is said to have `size` bytes. *next: behind its descriptor; 0 where what stands there is none. A file may
 * end within the descriptor: what is there of it must be right. */
static ckpt_status try_size(walk *w, ckpt__zip_record *r, uint64_t size, uint64_t *next)
{
    unsigned char d[WIDE];
    *next = 0;
    if (left_at(w, r->data) < size)
        return CKPT_OK;
    uint64_t end = r->data + size, left = left_at(w, end);
    bool stored = r->method == CKPT__ZIP_STORED;
    size_t have = left < sizeof d ? (size_t)left : sizeof d;
    r->csize = size;
    r->usize = stored ? size : r->usize;
    if (size == 0 || have == 0 || !(r->flags & HAS_DESCRIPTOR)) {
        *next = end;
        return CKPT_OK;
    }
    ckpt_status status = read_at(w, end, d, have);
    if (status < 0)
        return status;
    size_t used = descriptor(d, have, size, stored, r);
    if (used) {
        *next = end + used;
    } else if (left < WIDE && memcmp(d, "PK\7\x08", have < 4 ? have : 4) == 0 &&
               (have < 12 || le32(d + 8) == (uint32_t)size)) {
        r->crc = have >= 8 ? le32(d + 4) : 0;
        r->has_crc = r->crc != 0;
        *next = w->z->in.size;
    }
    return CKPT_OK;
}

typedef struct hit {
    bool descriptor, header;
    uint64_t at, next;
} hit;

/* "PK" at p, of which `have` bytes are in the window: the descriptor that ends r, or another record's header? */
static ckpt_status look(walk *w, uint64_t at, const unsigned char *p, size_t have, ckpt__zip_record *r, hit *out)
{
    if (r && at >= r->data && have >= 4 && p[2] == 7 && p[3] == 8) {
        size_t used = descriptor(p, have, at - r->data, r->method == CKPT__ZIP_STORED, r);
        if (used)
            *out = (hit){true, false, at, at + used};
        return CKPT_OK;
    }
    if (have < 4 || p[2] != 3 || p[3] != 4)
        return CKPT_OK;
    unsigned char *window = w->window;
    header *h = malloc(sizeof *h);
    bool found = false;
    w->window = h ? malloc(WINDOW) : NULL; /* the extra field goes there, and p must stay */
    ckpt_status status = w->window ? read_header(w, at, h, &found) : ckpt__fail_memory(w->err, w->z->in.label, WINDOW);
    free(w->window);
    free(h);
    w->window = window;
    if (found)
        *out = (hit){false, true, at, at};
    return status;
}

/* From byte `from` on: the end of record r (which may be NULL), or the next header. Neither: the end of the file. */
static ckpt_status search(walk *w, uint64_t from, ckpt__zip_record *r, hit *out)
{
    *out = (hit){false, false, w->z->in.size, w->z->in.size};
    while (left_at(w, from) >= 4) {
        uint64_t left = left_at(w, from);
        size_t n = left < WINDOW ? (size_t)left : WINDOW;
        /* The last bytes are looked at again with what follows them. */
        size_t last = left > WINDOW ? n - WIDE : n;
        ckpt_status status = read_at(w, from, w->window, n);
        for (size_t i = 0; status == CKPT_OK && i < last; i++) {
            const unsigned char *p = memchr(w->window + i, 'P', last - i);
            if (!p)
                break;
            i = (size_t)(p - w->window);
            if (n - i >= 2 && p[1] == 'K')
                status = look(w, from + i, p, n - i, r, out);
            if (out->descriptor || out->header)
                return status;
        }
        if (status < 0)
            return status;
        from += last;
    }
    return CKPT_OK;
}

/* The local header's own sizes, where they are filled in: a writer that streams may leave them at zero in the zip64 field
 * too, as Python's zipfile does. */
static bool own_size(header *h)
{
    ckpt__zip_record *r = &h->r;
    uint64_t csize = h->csize == 0xFFFFFFFF ? h->wide[1] : h->csize;
    if ((r->flags & HAS_DESCRIPTOR) && csize == 0)
        return false;
    r->csize = csize;
    r->usize = h->usize == 0xFFFFFFFF ? h->wide[0] : h->usize;
    r->crc = h->crc;
    r->has_crc = r->crc != 0 || r->usize == 0;
    return r->method == CKPT__ZIP_STORED ? r->csize == r->usize : r->usize / 1032 <= r->csize;
}

static ckpt_status check_crc(walk *w, const ckpt__zip_record *r, bool *same)
{
    uint32_t crc = 0;
    ckpt_status status = CKPT_OK;
    for (uint64_t done = 0; done < r->csize && status == CKPT_OK;) {
        size_t n = r->csize - done < WINDOW ? (size_t)(r->csize - done) : WINDOW;
        status = read_at(w, r->data + done, w->window, n);
        if (status == CKPT_OK)
            crc = ckpt__crc32(crc, w->window, n);
        done += n;
    }
    *same = status == CKPT_OK && crc == r->crc;
    return status;
}

/* Where the header's length of its extra field is damaged: a descriptor that ends at `end`, where the next header is, and
 * names the size that the record should have, says where the data is. Its CRC must agree. (Where that length is right, such
 * a descriptor is that of another record, whose header is lost.) */
static ckpt_status find_data(walk *w, header *h, uint64_t size, uint64_t least, uint64_t end, bool *found)
{
    static const size_t lengths[] = {NARROW, WIDE};
    uint64_t room = end > least ? end - least : 0;
    ckpt__zip_record r = h->r;
    unsigned char d[WIDE];
    ckpt_status status = CKPT_OK;
    *found = false;
    for (size_t i = 0; i < 2 && status == CKPT_OK && !*found; i++) {
        size_t n = lengths[i];
        if (size == 0 || room < n || room - n < size)
            continue;
        status = read_at(w, end - n, d, n);
        r.data = end - n - size;
        if (status == CKPT_OK && descriptor(d, n, size, true, &r) == n && r.has_crc)
            status = check_crc(w, &r, found);
    }
    if (*found)
        h->r = r;
    return status;
}

/* Sets the record's sizes as far as they can be told; *next is where the following record should begin. */
static ckpt_status measure(walk *w, header *h, uint64_t *next)
{
    ckpt__zip_record *r = &h->r;
    bool own = own_size(h), moved = false;
    uint64_t size = own ? r->csize : 0, least = r->header + LOCAL_SIZE + r->name.size;
    bool told = !own && r->method == CKPT__ZIP_STORED && w->hint && w->hint(w->ctx, r->name, &size);
    *next = 0;
    if (own || told) {
        ckpt_status status = try_size(w, r, size, next);
        if (status < 0 || *next)
            return status;
    }
    hit end;
    ckpt_status status = search(w, told ? least : r->data, r->flags & HAS_DESCRIPTOR ? r : NULL, &end);
    if (status < 0)
        return status;
    *next = end.next;
    if (end.header && told && !h->filled)
        status = find_data(w, h, size, least, end.at, &moved);
    if (!end.descriptor && !moved) {
        r->unsure = true;
        r->has_crc = false;
        r->csize = end.at > r->data ? end.at - r->data : 0;
        r->usize = 0;
    }
    return status;
}

/* ---- the walk */

/* The first of a name counts: a second one is in some payload, or was put there. */
static ckpt_status add(walk *w, const ckpt__zip_record *found)
{
    ckpt__zip *z = w->z;
    size_t at = z->count;
    if (ckpt__zip_find(z, found->name.data, found->name.size))
        return CKPT_OK;
    if (z->count == RECORDS_MAX)
        return ckpt__fail(w->err, CKPT_E_LIMIT, z->in.label, "more than %d records", RECORDS_MAX);
    if (!ckpt__grow(&z->records, &z->capacity, z->count + 1, sizeof *z->records))
        return ckpt__fail_memory(w->err, z->in.label, z->count * sizeof *z->records);
    z->records[at] = *found;
    z->records[at].name = ckpt__arena_str(z->arena, found->name.data, found->name.size);
    const ckpt_str name = z->records[at].name;
    const ckpt__zip_record *told = z->told ? ckpt__zip_find(z->told, found->name.data, found->name.size) : NULL;
    if (told && told->has_crc && !found->has_crc) { /* its descriptor is damaged, and the bytes before it may be */
        z->records[at].has_crc = true;
        z->records[at].crc = told->crc;
    }
    if (!name.data || ckpt__zip_remember(z, name, at, NULL) < 0)
        return ckpt__fail_memory(w->err, z->in.label, found->name.size);
    z->count++;
    return CKPT_OK;
}

static ckpt_status go(walk *w, header *h, const char *until)
{
    ckpt__zip *z = w->z;
    while (z->walked < z->in.size) {
        bool found;
        ckpt_status status = read_header(w, z->walked, h, &found);
        if (status == CKPT_OK && !found) {
            hit next;
            status = search(w, z->walked, NULL, &next);
            if (status < 0 || !next.header)
                return status;
            z->walked = next.at;
            continue;
        }
        uint64_t next = 0;
        if (status == CKPT_OK)
            status = measure(w, h, &next);
        if (status == CKPT_OK)
            status = add(w, &h->r);
        if (status < 0)
            return status;
        z->walked = next;
        if (until && *until && ckpt__str_ends(h->r.name, until))
            return CKPT_OK;
    }
    return CKPT_OK;
}

static ckpt_status walk_on(ckpt__zip *z, const char *until, ckpt__zip_hint hint, void *ctx, ckpt_error *err)
{
    walk w = {z, hint, ctx, err, malloc(WINDOW)};
    header *h = malloc(sizeof *h);
    ckpt_status status = w.window && h ? go(&w, h, until) : ckpt__fail_memory(err, z->in.label, WINDOW);
    free(w.window);
    free(h);
    return status;
}

ckpt_status ckpt__zip_salvage(const ckpt__zip_input *input, const char *until, ckpt__zip **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__zip *z = calloc(1, sizeof *z);
    if (!z)
        return ckpt__fail_memory(err, input->label, sizeof *z);
    z->in = *input;
    z->directory = input->size;
    z->arena = ckpt__arena_new(0);
    z->by_name = ckpt__hash_new(64);
    ckpt_status status = z->arena && z->by_name ? ckpt__zip_directory(input, &z->told, err)
                                                : ckpt__fail_memory(err, input->label, sizeof *z);
    if (status != CKPT_E_NO_MEMORY && status != CKPT_E_SYSTEM)
        status = walk_on(z, until, NULL, NULL, err);
    if (status == CKPT_OK && z->count == 0)
        status = ckpt__fail(err, CKPT_E_DAMAGED, input->label,
                            "not one record of this zip archive has its header: nothing can "
                            "be recovered");
    if (status < 0)
        ckpt__zip_free(z);
    else
        *out = z;
    return status;
}

ckpt_status ckpt__zip_salvage_rest(ckpt__zip *z, ckpt__zip_hint hint, void *ctx, ckpt_error *err)
{
    return walk_on(z, NULL, hint, ctx, err);
}

void ckpt__zip_settle(ckpt__zip *z, const ckpt__zip_record *record, uint64_t size)
{
    ckpt__zip_record *r = &z->records[record - z->records];
    r->csize = r->usize = size;
    r->unsure = false;
}
