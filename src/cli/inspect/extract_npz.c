/* inspect/extract_npz.c - an uncompressed .npz: a zip of stored entries NAME.npy, which numpy.load opens. Sizes and CRC-32s stand
 * before the bytes, for a tensor is in memory when its entry begins; so nothing is ever gone back to. All entries have one
 * date, and the same tensors give the same bytes. Layout: PKWARE's APPNOTE 4.3; zip64 where a number does not fit. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "cli/inspect/extract.h"
#include "cli/out/strset.h"

enum { LOCAL = 0x04034b50, ENTRY = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50, LOCATOR = 0x07064b50 };
enum { PLAIN = 20, ZIP64 = 45, UTF8 = 1 << 11, FIRST_DAY = 0x21, NAME_MAX_SIZE = 65000 };
static const uint32_t IN_EXTRA = 0xffffffff; /* the number is in the extra field of zip64 */

struct npz {
    output_file *out;
    uint64_t offset, count;
    char *list; /* the list of the entries as it grows, in `directory` */
    size_t list_size;
    FILE *directory;
    strset names;
    char *name; /* of npz_name */
};

/* A record as it is filled in, little-endian. */
typedef struct record {
    unsigned char bytes[96];
    size_t size;
} record;

static void put(record *r, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        r->bytes[r->size++] = (unsigned char)(value >> 8 * i);
}

npz *npz_new(output_file *out)
{
    npz *z = calloc(1, sizeof *z);
    if (z && !(z->directory = open_memstream(&z->list, &z->list_size))) {
        free(z);
        return NULL;
    }
    if (z)
        z->out = out;
    return z;
}

void npz_free(npz *z)
{
    if (!z)
        return;
    fclose(z->directory);
    free(z->list);
    free(z->name);
    strset_free(&z->names);
    free(z);
}

/* ---- names */

/* A byte that no entry's name may have: of a control character, a separator of another system, or of no UTF-8 (`length` 0). */
static bool is_odd(const char *at, size_t length)
{
    return length == 0 || (unsigned char)*at < 32 || *at == 127 || *at == '\\';
}

/* Is the step of a path that begins here "", "." or ".."? Then it would lead out of a folder, or be no path. */
static bool is_way_out(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] != '/')
        n++;
    return n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.');
}

/* What may not stand there as %XX: "/etc/x" is "%2Fetc/x", "a/../b" is "a/%2E./b". */
static void write_safe(FILE *f, ckpt_str name)
{
    const char *end = name.data + name.size;
    bool begins = true;
    for (const char *at = name.data; at < end;) {
        uint32_t code;
        size_t length = json_decode(at, (size_t)(end - at), &code);
        bool lone = code >= 0xd800 && code < 0xe000;
        bool odd = is_odd(at, lone ? 0 : length) || (begins && is_way_out(at, end));
        begins = !odd && *at == '/';
        if (odd) {
            fprintf(f, "%%%02X", (unsigned)(unsigned char)*at++);
            continue;
        }
        fwrite(at, 1, length, f);
        at += length;
    }
}

const char *npz_name(npz *z, ckpt_str name)
{
    size_t size = 0;
    int added = 0;
    for (unsigned copy = 1; added == 0; copy++) {
        free(z->name);
        z->name = NULL;
        FILE *f = name.size <= NAME_MAX_SIZE / 3 ? open_memstream(&z->name, &size) : NULL;
        if (!f)
            return NULL;
        if (name.size == 0)
            fputs("tensor", f);
        write_safe(f, name);
        if (copy > 1)
            fprintf(f, "~%u", copy);
        if (fclose(f) != 0)
            return NULL;
        added = strset_add(&z->names, z->name, size);
    }
    return added > 0 ? z->name : NULL;
}

/* ---- entries */

static bool send(npz *z, const void *data, size_t size)
{
    z->offset += size;
    return output_put(z->out, data, size);
}

static bool is_ascii(const char *text)
{
    while (*text && !(*text & 0x80))
        text++;
    return !*text;
}

/* What a local header and an entry of the list have in common. */
static void put_common(record *r, const char *name, uint32_t crc, uint64_t size, size_t extra)
{
    put(r, extra ? ZIP64 : PLAIN, 2);
    put(r, is_ascii(name) ? 0 : UTF8, 2);
    put(r, 0, 2); /* stored */
    put(r, 0, 2);
    put(r, FIRST_DAY, 2);
    put(r, crc, 4);
    for (int i = 0; i < 2; i++)
        put(r, size >= IN_EXTRA ? IN_EXTRA : size, 4);
    put(r, strlen(name) + 4, 2);
    put(r, extra, 2);
}

bool npz_put(npz *z, const char *name, const char *head, size_t head_size, const char *data, size_t size)
{
    record local = {.size = 0}, tail = {.size = 0}, entry = {.size = 0}, more = {.size = 0};
    const uint64_t at = z->offset, whole = (uint64_t)head_size + size;
    uLong crc = crc32_z(crc32_z(0, (const Bytef *)head, head_size), (const Bytef *)data, size);
    const bool large = whole >= IN_EXTRA, far = at >= IN_EXTRA;
    put(&local, LOCAL, 4);
    put_common(&local, name, (uint32_t)crc, whole, large ? 20 : 0);
    if (large) {
        put(&tail, 1, 2);
        put(&tail, 16, 2);
        put(&tail, whole, 8);
        put(&tail, whole, 8);
    }
    if (large || far) {
        put(&more, 1, 2);
        put(&more, large ? far ? 24 : 16 : 8, 2);
        for (int i = 0; large && i < 2; i++)
            put(&more, whole, 8);
        if (far)
            put(&more, at, 8);
    }
    put(&entry, ENTRY, 4);
    put(&entry, 3 << 8 | ZIP64, 2); /* made on Unix */
    put_common(&entry, name, (uint32_t)crc, whole, more.size);
    put(&entry, 0, 2); /* no comment */
    put(&entry, 0, 2);
    put(&entry, 0, 2);
    put(&entry, (uint64_t)0100644 << 16, 4); /* a plain file, as zipfile writes it */
    put(&entry, far ? IN_EXTRA : at, 4);
    fwrite(entry.bytes, 1, entry.size, z->directory);
    fprintf(z->directory, "%s.npy", name);
    fwrite(more.bytes, 1, more.size, z->directory);
    z->count++;
    return !ferror(z->directory) && send(z, local.bytes, local.size) && send(z, name, strlen(name)) &&
           send(z, ".npy", 4) && send(z, tail.bytes, tail.size) && send(z, head, head_size) && send(z, data, size);
}

bool npz_end(npz *z)
{
    const uint64_t at = z->offset;
    record end = {.size = 0};
    if (fflush(z->directory) != 0 || !send(z, z->list, z->list_size))
        return false;
    const uint64_t size = z->offset - at;
    if (z->count >= 0xffff || at >= IN_EXTRA || size >= IN_EXTRA) {
        const uint64_t here = z->offset;
        put(&end, END64, 4);
        put(&end, 44, 8);
        put(&end, 3 << 8 | ZIP64, 2);
        put(&end, ZIP64, 2);
        put(&end, 0, 8); /* one disk */
        put(&end, z->count, 8);
        put(&end, z->count, 8);
        put(&end, size, 8);
        put(&end, at, 8);
        put(&end, LOCATOR, 4);
        put(&end, 0, 4);
        put(&end, here, 8);
        put(&end, 1, 4);
        if (!send(z, end.bytes, end.size))
            return false;
        end.size = 0;
    }
    put(&end, END, 4);
    put(&end, 0, 4);
    for (int i = 0; i < 2; i++)
        put(&end, z->count >= 0xffff ? 0xffff : z->count, 2);
    put(&end, size >= IN_EXTRA ? IN_EXTRA : size, 4);
    put(&end, at >= IN_EXTRA ? IN_EXTRA : at, 4);
    put(&end, 0, 2);
    return send(z, end.bytes, end.size);
}
