/* codec/zip.c - the end records and the central directory. */
#include "codec/zip.h"
#include "codec/zip_priv.h"

#include <stdlib.h>

enum {
    END_SIZE = 22, /* PK\5\6 without its comment */
    COMMENT_MAX = 65535,
    LOCATOR_SIZE = 20, /* PK\6\7 */
    END64_SIZE = 56,   /* PK\6\6 */
    CENTRAL_SIZE = 46  /* PK\1\2 without name, extra field, comment */
};
/* A directory of half a gigabyte names ten million records. */
static const uint64_t DIRECTORY_MAX = (uint64_t)512 << 20;

/* Where the directory lies, as the end records say. */
typedef struct extent {
    uint64_t count, size, offset, end; /* end: where the record that follows it must begin */
} extent;

static ckpt_status cut_off(const ckpt__zip *z, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                      "begins as a zip archive but has no end record: the file is truncated (%llu bytes are left); "
                      "copy it again, or use an earlier checkpoint",
                      (unsigned long long)z->in.size);
}

/* Finds PK\5\6 such that its comment ends where the file does; where there is none, the last one of which bytes are left:
 * a file that was padded, which torch and most zip tools read. */
static ckpt_status find_end(ckpt__zip *z, unsigned char end[END_SIZE], uint64_t *at, ckpt_error *err)
{
    uint64_t tail = z->in.size < END_SIZE + COMMENT_MAX ? z->in.size : END_SIZE + COMMENT_MAX;
    unsigned char *bytes = malloc((size_t)tail + 1);
    if (!bytes)
        return ckpt__fail_memory(err, z->in.label, tail);
    ckpt_status status = z->in.read(z->in.ctx, z->in.size - tail, bytes, (size_t)tail, err);
    bool exact = false, found = false;
    for (uint64_t i = tail; status == CKPT_OK && !exact && i-- > 0;) {
        if (tail - i < END_SIZE || memcmp(bytes + i, "PK\5\6", 4) != 0)
            continue;
        uint64_t comment = le16(bytes + i + 20), behind = tail - i - END_SIZE;
        exact = comment == behind;
        if (comment > behind || (found && !exact))
            continue;
        memcpy(end, bytes + i, END_SIZE);
        *at = z->in.size - tail + i;
        z->trailing = behind - comment;
        found = true;
    }
    free(bytes);
    if (status < 0)
        return status;
    return found ? CKPT_OK : cut_off(z, err);
}

/* A field of the 32-bit end record that is all ones stands in the 64-bit record; any other must agree with it. */
static bool agree(uint64_t narrow, uint64_t all_ones, uint64_t wide)
{
    return narrow == all_ones || narrow == wide;
}

static ckpt_status read_end64(const ckpt__zip *z, const unsigned char *end, uint64_t end_at, uint64_t where,
                              extent *out, ckpt_error *err)
{
    unsigned char r[END64_SIZE];
    uint64_t locator = end_at - LOCATOR_SIZE;
    if (where > locator || locator - where < END64_SIZE)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "the zip64 locator points to byte %llu, where no zip64 record fits",
                          (unsigned long long)where);
    ckpt_status status = z->in.read(z->in.ctx, where, r, sizeof r, err);
    if (status < 0)
        return status;
    if (memcmp(r, "PK\6\6", 4) != 0 || le64(r + 4) != locator - where - 12)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "no zip64 end record at byte %llu, where the locator points", (unsigned long long)where);
    if (le32(r + 16) != 0 || le32(r + 20) != 0)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, z->in.label,
                          "a zip archive of several disks; put it together first");
    *out = (extent){le64(r + 32), le64(r + 40), le64(r + 48), where};
    if (le64(r + 24) != out->count || !agree(le16(end + 10), 0xFFFF, out->count) ||
        !agree(le32(end + 12), 0xFFFFFFFF, out->size) || !agree(le32(end + 16), 0xFFFFFFFF, out->offset))
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label, "its zip64 end record contradicts its end record");
    return CKPT_OK;
}

static ckpt_status read_end(ckpt__zip *z, extent *out, ckpt_error *err)
{
    unsigned char end[END_SIZE] = {0}, locator[LOCATOR_SIZE];
    uint64_t at = 0;
    ckpt_status status = find_end(z, end, &at, err);
    if (status < 0)
        return status;
    if (at >= LOCATOR_SIZE) {
        status = z->in.read(z->in.ctx, at - LOCATOR_SIZE, locator, sizeof locator, err);
        if (status < 0)
            return status;
        if (memcmp(locator, "PK\6\7", 4) == 0)
            return read_end64(z, end, at, le64(locator + 8), out, err);
    }
    if (le16(end + 4) != 0 || le16(end + 6) != 0)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, z->in.label,
                          "a zip archive of several disks; put it together first");
    *out = (extent){le16(end + 10), le32(end + 12), le32(end + 16), at};
    if (le16(end + 8) != out->count)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label, "its end record gives two counts of records, %u and %u",
                          le16(end + 8), le16(end + 10));
    return CKPT_OK;
}

/* ---- names */

bool ckpt__zip_name_is_safe(const char *name, size_t n)
{
    if (n == 0 || name[0] == '/' || name[0] == '\\' || memchr(name, '\0', n) || (n > 1 && name[1] == ':'))
        return false;
    for (size_t i = 0; i <= n;) {
        size_t j = i;
        while (j < n && name[j] != '/' && name[j] != '\\')
            j++;
        if (j - i == 2 && name[i] == '.' && name[i + 1] == '.')
            return false;
        i = j + 1;
    }
    return true;
}

static ckpt_status add_name(ckpt__zip *z, ckpt__zip_record *r, const char *name, size_t n, ckpt_error *err)
{
    char shown[256];
    if (!ckpt__zip_name_is_safe(name, n))
        return ckpt__fail(err, CKPT_E_FORMAT, z->in.label,
                          "a record is named '%s': a name that is empty, absolute or climbs "
                          "out of the archive; no program that saves checkpoints writes it",
                          ckpt__escape(shown, sizeof shown, name, n));
    r->name = ckpt__arena_str(z->arena, name, n);
    int put = r->name.data ? ckpt__hash_put(z->by_name, r->name.data, n, (size_t)(r - z->records), NULL) : -1;
    if (put < 0)
        return ckpt__fail_memory(err, z->in.label, n);
    if (put == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, z->in.label,
                          "two records are named '%s': readers would disagree on which one counts",
                          ckpt__escape(shown, sizeof shown, name, n));
    r->folder = name[n - 1] == '/';
    return CKPT_OK;
}

/* ---- the central directory */

/* Sizes and offset that are all ones stand in the zip64 extra field, in this order, and only those. */
static bool apply_zip64(ckpt__zip_record *r, const unsigned char *extra, size_t n)
{
    uint64_t *wide[3] = {&r->usize, &r->csize, &r->header};
    bool missing = r->usize == 0xFFFFFFFF || r->csize == 0xFFFFFFFF || r->header == 0xFFFFFFFF;
    for (size_t i = 0; missing && n - i >= 4;) {
        size_t id = le16(extra + i), size = le16(extra + i + 2);
        i += 4;
        if (size > n - i)
            return false;
        if (id == 1) {
            for (size_t k = 0; k < 3; k++) {
                if (*wide[k] != 0xFFFFFFFF)
                    continue;
                if (size < 8)
                    return false;
                *wide[k] = le64(extra + i);
                i += 8;
                size -= 8;
            }
            missing = false;
        }
        i += size;
    }
    return !missing;
}

static ckpt_status check_record(const ckpt__zip *z, const ckpt__zip_record *r, ckpt_error *err)
{
    enum { ENCRYPTED = 1 | 1 << 6 | 1 << 13 };
    char shown[256];
    if (!(r->flags & ENCRYPTED) && r->method == CKPT__ZIP_STORED && r->csize == r->usize && !r->folder)
        return CKPT_OK; /* as nearly all are: no name is escaped for a message */
    ckpt__escape(shown, sizeof shown, r->name.data, r->name.size);
    if (r->flags & ENCRYPTED)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, z->in.label, "record '%s' is encrypted; decrypt the archive first",
                          shown);
    if (r->method != CKPT__ZIP_STORED && r->method != CKPT__ZIP_DEFLATED)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, z->in.label,
                          "record '%s' is compressed by method %u; only stored (0) and deflate (8) are read", shown,
                          r->method);
    if (r->method == CKPT__ZIP_STORED && r->csize != r->usize)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label, "stored record '%s' has two sizes, %llu and %llu bytes",
                          shown, (unsigned long long)r->csize, (unsigned long long)r->usize);
    /* Deflate's best is 258 bytes for 2 bits: 1032 to 1. */
    if (r->method == CKPT__ZIP_DEFLATED && r->usize / 1032 > r->csize)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "record '%s': %llu bytes cannot inflate to the %llu that it says", shown,
                          (unsigned long long)r->csize, (unsigned long long)r->usize);
    if (r->folder && r->usize != 0)
        return ckpt__fail(err, CKPT_E_FORMAT, z->in.label, "folder '%s' has %llu bytes of content", shown,
                          (unsigned long long)r->usize);
    return CKPT_OK;
}

static ckpt_status parse_entry(ckpt__zip *z, const unsigned char *p, size_t left, size_t *used, ckpt_error *err)
{
    size_t index = z->count;
    if (left < CENTRAL_SIZE || memcmp(p, "PK\1\2", 4) != 0)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "record %zu of its directory is not there: the count of records is "
                          "wrong, or the directory is damaged",
                          index);
    size_t name = le16(p + 28), extra = le16(p + 30), comment = le16(p + 32);
    if (name + extra + comment > left - CENTRAL_SIZE)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label, "record %zu of its directory runs past the directory's end",
                          index);
    ckpt__zip_record *r = &z->records[index];
    r->flags = le16(p + 8);
    r->method = le16(p + 10);
    r->crc = le32(p + 16);
    r->csize = le32(p + 20);
    r->usize = le32(p + 24);
    r->header = le32(p + 42);
    ckpt_status status = add_name(z, r, (const char *)p + CENTRAL_SIZE, name, err);
    if (status < 0)
        return status;
    if (!apply_zip64(r, p + CENTRAL_SIZE + name, extra))
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "record %zu of its directory refers to a zip64 field that is not there", index);
    r->has_crc = r->crc != 0 || r->usize == 0;
    z->count++;
    *used = CENTRAL_SIZE + name + extra + comment;
    return check_record(z, r, err);
}

static ckpt_status parse_directory(ckpt__zip *z, const extent *where, ckpt_error *err)
{
    unsigned char *bytes = malloc((size_t)where->size + 1);
    if (!bytes)
        return ckpt__fail_memory(err, z->in.label, where->size);
    ckpt__touch(bytes, (size_t)where->size);
    ckpt__touch(z->records, (size_t)where->count * sizeof *z->records);
    ckpt_status status = z->in.read(z->in.ctx, where->offset, bytes, (size_t)where->size, err);
    size_t at = 0;
    for (uint64_t i = 0; status == CKPT_OK && i < where->count; i++) {
        size_t used = 0;
        status = parse_entry(z, bytes + at, (size_t)where->size - at, &used, err);
        at += used;
    }
    free(bytes);
    if (status == CKPT_OK && at != where->size)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "%llu bytes of its directory belong to no record: the count of records, "
                          "%llu, is too small",
                          (unsigned long long)(where->size - at), (unsigned long long)where->count);
    return status;
}

static ckpt_status read_directory(ckpt__zip *z, ckpt_error *err)
{
    extent where = {0};
    ckpt_status status = read_end(z, &where, err);
    if (status < 0)
        return status;
    if (where.offset > where.end || where.size != where.end - where.offset)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "its directory of %llu bytes at byte %llu does not end at byte %llu, where "
                          "the end record stands",
                          (unsigned long long)where.size, (unsigned long long)where.offset,
                          (unsigned long long)where.end);
    if (where.count > where.size / CENTRAL_SIZE)
        return ckpt__fail(err, CKPT_E_DAMAGED, z->in.label,
                          "its end record counts %llu records; its directory of %llu bytes has room "
                          "for %llu",
                          (unsigned long long)where.count, (unsigned long long)where.size,
                          (unsigned long long)(where.size / CENTRAL_SIZE));
    if (where.size > DIRECTORY_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, z->in.label, "its directory has %llu bytes; the limit is %llu",
                          (unsigned long long)where.size, (unsigned long long)DIRECTORY_MAX);
    z->directory = where.offset;
    z->records = calloc((size_t)where.count + 1, sizeof *z->records);
    z->by_name = ckpt__hash_new((size_t)where.count);
    if (!z->records || !z->by_name)
        return ckpt__fail_memory(err, z->in.label, where.count * sizeof *z->records);
    return parse_directory(z, &where, err);
}

/* ---- an archive behind other bytes */

ckpt_status ckpt__zip_start(const ckpt__zip_input *input, uint64_t *start, bool *two, ckpt_error *err)
{
    ckpt__zip z = {.in = *input};
    unsigned char end[END_SIZE] = {0}, wide[END64_SIZE + LOCATOR_SIZE] = {0}, head[4], before[END_SIZE] = {0};
    uint64_t at = 0;
    *start = 0;
    ckpt_status status = input->size < END_SIZE ? CKPT_E_DAMAGED : find_end(&z, end, &at, err);
    if (status == CKPT_OK && at >= sizeof wide)
        status = z.in.read(z.in.ctx, at - sizeof wide, wide, sizeof wide, err);
    if (status < 0)
        return status == CKPT_E_DAMAGED ? CKPT_OK : status;     /* it has no end record */
    /* Where the record behind the directory stands, and where it should. */
    uint64_t said = (uint64_t)le32(end + 12) + le32(end + 16);
    if (memcmp(wide, "PK\6\6", 4) == 0 && memcmp(wide + END64_SIZE, "PK\6\7", 4) == 0) {
        uint64_t size = le64(wide + 40), offset = le64(wide + 48);
        at -= sizeof wide;
        said = le64(wide + END64_SIZE + 8);
        if (size > said || said - size != offset)
            return CKPT_OK;
    }
    if (said >= at)
        return CKPT_OK;
    status = z.in.read(z.in.ctx, at - said, head, sizeof head, err);
    if (status < 0 || memcmp(head, "PK\3\4", 4) != 0)
        return status;
    *start = at - said;
    if (two && *start >= sizeof before)
        status = z.in.read(z.in.ctx, *start - sizeof before, before, sizeof before, err);
    if (two)
        *two = memcmp(before, "PK\5\6", 4) == 0 && le16(before + 20) == 0;
    return status;
}

/* The archive that ends the file is not the one that begins it: that is what is wrong, whatever was met first. */
static ckpt_status name_two(const ckpt__zip_input *input, ckpt_status status, ckpt_error *err)
{
    uint64_t start = 0;
    bool two = false;
    if (status != CKPT_E_DAMAGED || ckpt__zip_start(input, &start, &two, NULL) < 0 || start == 0)
        return status;
    unsigned long long n = start;
    if (!two)
        return ckpt__fail(err, CKPT_E_DAMAGED, input->label,
                          "a zip archive that begins at byte %llu ends the file, and the bytes before it are no whole archive: "
                          "the file was cut off behind an archive that one of its records holds, or another file was appended "
                          "to it. `tail -c +%llu FILE` is that archive; what is before it can be salvaged",
                          n, n + 1);
    return ckpt__fail(err, CKPT_E_DAMAGED, input->label,
                      "two archives in one file, the second from byte %llu on, and programs do not agree on which is meant: "
                      "torch reads the first where both are laid out alike, else neither, and Python's zipfile the second. "
                      "Take them apart: `head -c %llu FILE` is the first, `tail -c +%llu FILE` the second",
                      n, n, n + 1);
}

ckpt_status ckpt__zip_directory(const ckpt__zip_input *input, ckpt__zip **out, ckpt_error *err)
{
    ckpt__zip *z = calloc(1, sizeof *z);
    *out = NULL;
    if (!z)
        return ckpt__fail_memory(err, input->label, sizeof *z);
    z->in = *input;
    z->arena = ckpt__arena_new(0);
    ckpt_status status = z->arena ? read_directory(z, err) : ckpt__fail_memory(err, input->label, 0);
    if (status < 0)
        ckpt__zip_free(z);
    else
        *out = z;
    return status;
}

static ckpt_status open_zip(const ckpt__zip_input *input, bool ahead, ckpt__zip **out, ckpt_error *err)
{
    *out = NULL;
    unsigned char head[4] = {0};
    ckpt_status status = input->size < 4 ? CKPT_OK : input->read(input->ctx, 0, head, sizeof head, err);
    if (status < 0)
        return status;
    if (memcmp(head, "PK\3\4", 4) != 0 && memcmp(head, "PK\5\6", 4) != 0)
        return ckpt__fail(err, CKPT_E_FORMAT, input->label, "not a zip archive: it does not begin with PK");
    ckpt__zip *z = NULL;
    status = ckpt__zip_directory(input, &z, err);
    if (status == CKPT_OK)
        status = ahead ? ckpt__zip_check_ahead(z, err) : ckpt__zip_check_locals(z, err);
    if (status < 0) {
        ckpt__zip_free(z);
        return name_two(input, status, err);
    }
    *out = z;
    return CKPT_OK;
}

ckpt_status ckpt__zip_open(const ckpt__zip_input *input, ckpt__zip **out, ckpt_error *err)
{
    return open_zip(input, false, out, err);
}

ckpt_status ckpt__zip_open_ahead(const ckpt__zip_input *input, ckpt__zip **out, ckpt_error *err)
{
    return open_zip(input, true, out, err);
}

uint64_t ckpt__zip_trailing(const ckpt__zip *z)
{
    return z->trailing;
}

void ckpt__zip_free(ckpt__zip *z)
{
    if (!z)
        return;
    ckpt__zip_abandon(z);
    ckpt__zip_free(z->told);
    ckpt__hash_free(z->by_name);
    ckpt__arena_free(z->arena);
    free(z->records);
    free(z);
}

size_t ckpt__zip_count(const ckpt__zip *z)
{
    return z->count;
}

const ckpt__zip_record *ckpt__zip_at(const ckpt__zip *z, size_t i)
{
    return i < z->count ? &z->records[i] : NULL;
}

const ckpt__zip_record *ckpt__zip_find(const ckpt__zip *z, const char *name, size_t n)
{
    size_t i;
    return ckpt__hash_get(z->by_name, name, n, &i) ? &z->records[i] : NULL;
}
