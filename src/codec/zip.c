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

static ckpt_status two_ends(const ckpt__zip *z, uint64_t first, uint64_t last, ckpt_error *err)
{
    return ckpt__fail(
        err, CKPT_E_FORMAT, z->in.label,
        "two end records, at byte %llu and at byte %llu: torch reads the archive of the second, and who looks for "
        "the record whose comment ends the file that of the first. One of them lies in a comment, or behind the "
        "archive; save the checkpoint again with the program that wrote it",
        (unsigned long long)first, (unsigned long long)last);
}

/* miniz looks for the record in steps of 4093 bytes from the file's end on, and reads at an offset below zero where the last step
 * does not fit any more: a small file with a long comment, or with a page behind it. */
static bool torch_finds(uint64_t size, uint64_t at)
{
    const uint64_t block = 4096, step = block - 3, from = size > block ? size - block : 0;
    uint64_t steps = at >= from ? 0 : (from - at + step - 1) / step;
    return from >= steps * step;
}

/* torch's reader (miniz) and Python's zipfile take the last PK\5\6 that is followed by as many bytes as the record has,
 * whatever its comment's length says. So does this, where no other reading is as good: an earlier one whose comment ends
 * where the file does is what readers take that believe the comment's length. A record that is followed by more than its
 * comment is that of a file that was padded. */
static ckpt_status find_end(ckpt__zip *z, unsigned char end[END_SIZE], uint64_t *at, ckpt_error *err)
{
    uint64_t tail = z->in.size < END_SIZE + COMMENT_MAX ? z->in.size : END_SIZE + COMMENT_MAX, other = 0;
    unsigned char *bytes = malloc((size_t)tail + 1);
    if (!bytes)
        return ckpt__fail_memory(err, z->in.label, tail);
    ckpt_status status = z->in.read(z->in.ctx, z->in.size - tail, bytes, (size_t)tail, err);
    bool whole = false, found = false, two = false;
    for (const unsigned char *p = bytes + tail;
         status == CKPT_OK && !two && (p = memrchr(bytes, 'P', (size_t)(p - bytes)));) {
        const uint64_t i = (uint64_t)(p - bytes);
        if (tail - i < END_SIZE || memcmp(p, "PK\5\6", 4) != 0)
            continue;
        uint64_t comment = le16(bytes + i + 20), behind = tail - i - END_SIZE;
        other = z->in.size - tail + i;
        two = found && (comment == behind || (!whole && comment < behind));
        if (found)
            continue;
        memcpy(end, bytes + i, END_SIZE);
        *at = other;
        whole = comment <= behind;
        z->trailing = whole ? behind - comment : 0;
        found = true;
    }
    free(bytes);
    if (status == CKPT_OK && found && whole && !torch_finds(z->in.size, *at))
        ckpt__zip_note_refused(z, SIZE_MAX, "OSError: [Errno 22] Invalid argument");
    if (status < 0)
        return status;
    if (two)
        return two_ends(z, other, *at, err);
    return found && whole ? CKPT_OK : cut_off(z, err);
}

/* A field of the 32-bit end record that is all ones stands in the 64-bit record; any other must agree with it. */
static bool agree(uint64_t narrow, uint64_t all_ones, uint64_t wide)
{
    return narrow == all_ones || narrow == wide;
}

static ckpt_status read_end64(ckpt__zip *z, const unsigned char *end, uint64_t end_at,
                              const unsigned char *locator_record, extent *out, ckpt_error *err)
{
    unsigned char r[END64_SIZE];
    const uint64_t where = le64(locator_record + 8), disks = le32(locator_record + 16);
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
    if (disks != 1)
        ckpt__zip_note_refused(z, SIZE_MAX, "unsupported multidisk archive");
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
            return read_end64(z, end, at, locator, out, err);
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

/* torch's reader (miniz) compares names by their letters without case, of ASCII alone; so do the tables here: what it finds
 * by a name is what is found here. */
static inline char fold(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Does a name have letters of upper case, or bytes that are not ASCII? Eight bytes at a time, then one by one if need be. */
enum { UPPER = 1, OTHER = 2 };
static unsigned letters_of(ckpt_str name)
{
    const uint64_t bit = 0x0101010101010101;
    uint64_t all = name.size < 8, word;
    for (size_t i = 0; i < name.size && name.size >= 8; i += 8) {
        memcpy(&word, name.data + (name.size - i < 8 ? name.size - 8 : i), 8);
        all |= (word & bit * 0x80) | (word & bit * 0x40 & ~((word & bit * 0x20) << 1));
    }
    if (all == 0) /* no byte from 0x40 to 0x5F, none from 0x80 on */
        return 0;
    unsigned found = 0;
    for (size_t i = 0; i < name.size; i++) {
        unsigned char c = (unsigned char)name.data[i];
        found |= c >= 0x80 ? OTHER : (unsigned char)(c - 'A') < 26 ? UPPER : 0u;
    }
    return found;
}

int ckpt__zip_remember(ckpt__zip *z, ckpt_str name, size_t number, size_t *before)
{
    const char *key = name.data;
    unsigned letters = letters_of(name);
    if ((letters & OTHER) && !ckpt__utf8_valid(name.data, name.size))
        ckpt__zip_note_refused(z, number, "'utf-8' codec can't decode its name");
    if (letters & UPPER) {
        char *folded = ckpt__arena_alloc(z->arena, name.size + 1);
        if (!folded)
            return -1;
        for (size_t i = 0; i < name.size; i++)
            folded[i] = fold(name.data[i]);
        key = folded;
    }
    return ckpt__hash_put(z->by_name, key, name.size, number, before);
}

void ckpt__zip_note_refused(ckpt__zip *z, size_t number, const char *why)
{
    if (!z->refused) {
        z->refused = why;
        z->refused_record = number;
    }
}

static ckpt_status same_name(const ckpt__zip *z, ckpt_str a, ckpt_str b, ckpt_error *err)
{
    char first[200], second[200];
    ckpt__escape(first, sizeof first, a.data, a.size);
    ckpt__escape(second, sizeof second, b.data, b.size);
    if (ckpt__str_equal(a, b))
        return ckpt__fail(err, CKPT_E_FORMAT, z->in.label,
                          "two records are named '%s': readers would disagree on which one counts", first);
    return ckpt__fail(
        err, CKPT_E_FORMAT, z->in.label,
        "records '%s' and '%s' have one name but for upper and lower case: torch's reader does not tell them apart and "
        "takes one for both, other readers take them for two",
        first, second);
}

static ckpt_status add_name(ckpt__zip *z, ckpt__zip_record *r, const char *name, size_t n, ckpt_error *err)
{
    char shown[256];
    size_t before = 0;
    if (!ckpt__zip_name_is_safe(name, n))
        return ckpt__fail(err, CKPT_E_FORMAT, z->in.label,
                          "a record is named '%s': a name that is empty, absolute or climbs "
                          "out of the archive; no program that saves checkpoints writes it",
                          ckpt__escape(shown, sizeof shown, name, n));
    r->name = ckpt__arena_str(z->arena, name, n);
    int put = r->name.data ? ckpt__zip_remember(z, r->name, (size_t)(r - z->records), &before) : -1;
    if (put < 0)
        return ckpt__fail_memory(err, z->in.label, n);
    if (put == 0)
        return same_name(z, z->records[before].name, r->name, err);
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

/* Checks the other fields as torch's reader does (miniz, mz_zip_reader_read_central_dir and mz_zip_reader_extract_to_mem). */
static ckpt_status check_attributes(ckpt__zip *z, const ckpt__zip_record *r, const unsigned char *p, ckpt_error *err)
{
    enum { DOS_FOLDER = 0x10, PATCH = 0x20 };
    char shown[256];
    unsigned disk = le16(p + 34);
    if (disk > 1)
        ckpt__zip_note_refused(z, SIZE_MAX, "unsupported multidisk archive");
    if (r->flags & PATCH)
        ckpt__zip_note_refused(z, z->count, "unsupported feature");
    if ((le32(p + 38) & DOS_FOLDER) && !r->folder && r->csize > 0)
        return ckpt__fail(
            err, CKPT_E_FORMAT, z->in.label,
            "record '%s' is marked as a folder by its attributes and has %llu bytes: torch's reader gives memory "
            "that it has not filled for it, other readers give the bytes",
            ckpt__escape(shown, sizeof shown, r->name.data, r->name.size), (unsigned long long)r->usize);
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
    status = check_attributes(z, r, p, err);
    if (status < 0)
        return status;
    z->count++;
    *used = CENTRAL_SIZE + name + extra + comment;
    return check_record(z, r, err);
}

/* The places of the names that follow are fetched, from byte *next of the directory on; *ahead entries are told and not yet parsed. What is
 * wrong with one is said when it is parsed. */
static void names_ahead(ckpt__zip *z, const unsigned char *bytes, size_t size, size_t *next, size_t *ahead)
{
    for (; *ahead <= CKPT__HASH_AHEAD && *next <= size && size - *next >= CENTRAL_SIZE; (*ahead)++) {
        const unsigned char *p = bytes + *next;
        const size_t name = le16(p + 28), more = (size_t)le16(p + 30) + le16(p + 32);
        if (name > size - *next - CENTRAL_SIZE)
            return;
        ckpt__hash_ahead(z->by_name, (const char *)p + CENTRAL_SIZE, name);
        *next += CENTRAL_SIZE + name + more;
    }
}

static ckpt_status parse_directory(ckpt__zip *z, const extent *where, ckpt_error *err)
{
    unsigned char *bytes = malloc((size_t)where->size + 1);
    if (!bytes)
        return ckpt__fail_memory(err, z->in.label, where->size);
    ckpt__touch(bytes, (size_t)where->size);
    ckpt__touch(z->records, (size_t)where->count * sizeof *z->records);
    ckpt_status status = z->in.read(z->in.ctx, where->offset, bytes, (size_t)where->size, err);
    size_t at = 0, next = 0, ahead = 0;
    for (uint64_t i = 0; status == CKPT_OK && i < where->count; i++) {
        size_t used = 0;
        names_ahead(z, bytes, (size_t)where->size, &next, &ahead);
        ahead -= ahead > 0;
        status = parse_entry(z, bytes + at, (size_t)where->size - at, &used, err);
        at += used;
    }
    ckpt__hash_ahead_end(z->by_name);
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
        return status == CKPT_E_DAMAGED ? CKPT_OK : status; /* it has no end record */
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
        return ckpt__fail(
            err, CKPT_E_DAMAGED, input->label,
            "a zip archive that begins at byte %llu ends the file, and the bytes before it are not a whole archive: "
            "the file was cut off behind an archive that one of its records holds, or another file was appended "
            "to it. `tail -c +%llu FILE` is that archive; what is before it can be salvaged",
            n, n + 1);
    return ckpt__fail(
        err, CKPT_E_DAMAGED, input->label,
        "two archives in one file, the second from byte %llu on, and loaders may pick different ones: "
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

static bool same_but_for_case(ckpt_str a, const char *b, size_t n)
{
    if (a.size != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (fold(a.data[i]) != fold(b[i]))
            return false;
    return true;
}

const ckpt__zip_record *ckpt__zip_find(const ckpt__zip *z, const char *name, size_t n)
{
    char folded[512];
    size_t i;
    if (n > sizeof folded) {
        for (i = 0; i < z->count; i++)
            if (same_but_for_case(z->records[i].name, name, n))
                return &z->records[i];
        return NULL;
    }
    for (i = 0; i < n; i++)
        folded[i] = fold(name[i]);
    return ckpt__hash_get(z->by_name, folded, n, &i) ? &z->records[i] : NULL;
}

const char *ckpt__zip_refused(const ckpt__zip *z, const ckpt__zip_record **record)
{
    *record = z->refused ? ckpt__zip_at(z, z->refused_record) : NULL;
    return z->refused;
}
