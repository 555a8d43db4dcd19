/* scan/other.c - what else pickles lie in: tar (torch before 0.1.12), compressed files (joblib, .pkl.gz), arrays of
 * numpy, and what a native file keeps of a pickle. */
#include "scan/work.h"

#include <stdlib.h>

static uint16_t le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static uint64_t le64(const unsigned char *p)
{
    uint64_t n = 0;
    for (unsigned i = 8; i-- > 0;)
        n = n << 8 | p[i];
    return n;
}

/* ---- what begins how */

typedef struct magic {
    const char *bytes;
    size_t size;
    const char *what; /* NULL: looked into */
} magic;

static const magic magics[] = {
    {"PK\3\4", 4, NULL},
    {"PK\5\6", 4, NULL},
    {"\x93NUMPY", 6, NULL},
    {"\x1f\x8b\x08", 3, NULL},
    {"BZh", 3, "bzip2"},
    {"\xFD"
     "7zXZ",
     6, "xz"},
    {"\x5D\0\0\x80\0", 5, "lzma"},
    {"\x04\x22\x4D\x18", 4, "lz4"},
    {"\x28\xB5\x2F\xFD", 4, "zstd"},
    {"7z\xBC\xAF\x27\x1C", 6, "7-Zip"},
    {"Rar!\x1A\x07", 6, "RAR"},
};

static const magic *magic_of(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (n >= magics[i].size && memcmp(head, magics[i].bytes, magics[i].size) == 0 &&
            (i != 4 || (n > 9 && memcmp(head + 4, "1AY&SY", 6) == 0))) /* bzip2: the first block's mark too */
            return &magics[i];
    return NULL;
}

/* RFC 1950: deflate, a window that exists, no preset dictionary, and the check of the two bytes. */
static bool is_zlib(const unsigned char *head, size_t n)
{
    return n > 8 && (head[0] & 15) == 8 && head[0] >> 4 <= 7 && !(head[1] & 0x20) && (head[0] << 8 | head[1]) % 31 == 0;
}

static bool is_tar(const unsigned char *head, size_t n)
{
    return n >= 262 && memcmp(head + 257, "ustar", 5) == 0;
}

bool ckpt__scan_is_container(const unsigned char *head, size_t n)
{
    return magic_of(head, n) || is_zlib(head, n) || is_tar(head, n);
}

/* ---- gzip, zlib */

ckpt_status ckpt__scan_packed(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n,
                              bool *is)
{
    const magic *m = magic_of(head, n);
    bool gzip = n > 2 && head[0] == 0x1f && head[1] == 0x8b;
    unsigned char begin[512];
    *is = (m && m->what) || gzip || is_zlib(head, n);
    if (m && m->what)
        return ckpt__scan_note(job, "scan-unreadable", span->label, "unpack it, and scan what comes out",
                               "compressed by %s, which is not read here: it was not looked into", m->what);
    if (!*is)
        return CKPT_OK;
    if (span->depth >= CKPT__SCAN_DEPTH)
        return ckpt__scan_limit(job, span->label, "it is nested deeper than scan reads");
    ckpt__scan_span s = {
        .view = ckpt__scan_view_inflate(job, span, false), .size = UINT64_MAX / 2, .depth = span->depth + 1};
    if (!s.view)
        return ckpt__fail_memory(job->err, span->label, 0);
    n = ckpt__scan_head(job, &s, 0, begin, sizeof begin);
    if (ckpt__scan_may_matter(job, begin, n, n < sizeof begin ? n : UINT64_MAX)) {
        s.label = ckpt__scan_label(span->label, gzip ? "gzip" : "zlib", 4);
        return ckpt__scan_push(job, s);
    }
    ckpt__scan_view_drop(job, s.view);
    return CKPT_OK;
}

/* ---- .npy: behind its header an array of objects is a pickle */

ckpt_status ckpt__scan_npy(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n,
                           bool *is)
{
    uint64_t end;
    *is = n >= 12 && memcmp(head, "\x93NUMPY", 6) == 0;
    if (!*is)
        return CKPT_OK;
    uint64_t from = head[6] == 1 ? 10 + (uint64_t)le16(head + 8) : 12 + (le64(head + 8 - 4) >> 32);
    if (from >= span->size)
        return CKPT_OK;
    return ckpt__scan_pickles(job, span, from, &end);
}

/* ---- tar */

/* Octal digits, as Python's int() takes them, or a number of base 256 where the first bit is set. */
static bool tar_number(const unsigned char *p, size_t n, uint64_t *out)
{
    *out = 0;
    if (p[0] & 0x80) {
        for (size_t i = n - 8; i < n; i++)
            *out = *out << 8 | p[i];
        return true;
    }
    bool any = false;
    for (size_t i = 0; i < n && p[i] && (p[i] != ' ' || !any); i++) {
        bool sign = p[i] == '+' || p[i] == '_' || (i > 0 && p[i - 1] == '0' && (p[i] | 32) == 'o');
        if (p[i] == ' ' || (p[i] >= '\t' && p[i] <= '\r') || sign)
            continue;
        if (p[i] < '0' || p[i] > '7' || *out >> 60)
            return false;
        *out = *out << 3 | (uint64_t)(p[i] - '0');
        any = true;
    }
    return any;
}

/* Of the bytes without sign; some writers took them with it, and readers take both. */
static bool tar_sum_is_right(const unsigned char *p)
{
    uint64_t said, sum = 0, negative = 0;
    for (size_t i = 0; i < 512; i++) {
        unsigned char c = i >= 148 && i < 156 ? ' ' : p[i];
        sum += c;
        negative += c & 0x80 ? 256 : 0;
    }
    return tar_number(p + 148, 8, &said) && (said == sum || said == sum - negative);
}

static bool is_zeros(const unsigned char *p, size_t n)
{
    while (n && p[n - 1] == 0)
        n--;
    return n == 0;
}

/* An extended header may give another size to the member behind it, which is not followed here. */
static ckpt_status look_at_extension(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t at, uint64_t size)
{
    char text[4096];
    size_t n = ckpt__scan_head(job, span, at, text, size < sizeof text ? (size_t)size : sizeof text);
    if (size <= sizeof text && !memmem(text, n, "size=", 5) && !memmem(text, n, "GNU.sparse", 10))
        return CKPT_OK;
    return ckpt__scan_note(
        job, "scan-unreadable", span->label, "unpack it, and scan what comes out",
        "a tar archive with an extended header of %llu bytes that may give another size to what follows: it "
        "is not followed",
        (unsigned long long)size);
}

ckpt_status ckpt__scan_tar(ckpt__scan_job *job, const ckpt__scan_span *span, bool *is)
{
    unsigned char p[512];
    uint64_t at = 0, size;
    ckpt_status status = CKPT_OK;
    *is = ckpt__scan_head(job, span, 0, p, sizeof p) == sizeof p && (is_tar(p, sizeof p) || tar_sum_is_right(p));
    if (!*is)
        return CKPT_OK;
    if (span->depth >= CKPT__SCAN_DEPTH)
        return ckpt__scan_limit(job, span->label, "it is nested deeper than scan reads");
    while (status == CKPT_OK && !job->over && ckpt__scan_head(job, span, at, p, sizeof p) == sizeof p) {
        at += sizeof p;
        if (is_zeros(p, sizeof p))
            continue; /* they may also stand between members */
        if (!tar_sum_is_right(p) || !tar_number(p + 124, 12, &size) || size > span->size - at) {
            status = ckpt__scan_note(
                job, "scan-damaged", span->label, "take a whole copy, or none of it",
                "a tar archive whose member at byte %llu is cut off, or has no size or a wrong check sum",
                (unsigned long long)(at - sizeof p));
            size = span->size - at;
        }
        size_t n = strnlen((const char *)p, 100);
        if (status == CKPT_OK && (p[156] == 'x' || p[156] == 'g' || p[156] == 'X'))
            status = look_at_extension(job, span, at, size);
        if (status == CKPT_OK && size > 0)
            status =
                ckpt__scan_push(job, (ckpt__scan_span){.view = ckpt__scan_view_keep(span->view),
                                                       .at = span->at + at,
                                                       .size = size,
                                                       .depth = span->depth + 1,
                                                       .label = ckpt__scan_label(span->label, (const char *)p, n)});
        if (size > span->size - at || (size + 511) / 512 * 512 > span->size - at)
            break;
        at += (size + 511) / 512 * 512;
    }
    return status;
}

/* ---- a native file: pickles are bytes of its value tree, as hexadecimal digits in the header or as blobs of their own */

enum { HEADER_MAX = 100000000 };

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static ckpt_status push_hex(ckpt__scan_job *job, const ckpt__scan_span *span, const char *text, const char *end,
                            const char **behind)
{
    ckpt__buf bytes = {0};
    while (end - text >= 2 && hex_digit(text[0]) >= 0 && hex_digit(text[1]) >= 0) {
        ckpt__buf_char(&bytes, (char)(hex_digit(text[0]) << 4 | hex_digit(text[1])));
        text += 2;
    }
    *behind = text;
    uint64_t size = bytes.size;
    if (!bytes.failed &&
        !ckpt__scan_may_matter(job, (const unsigned char *)(bytes.data ? bytes.data : ""), bytes.size, size)) {
        ckpt__buf_free(&bytes);
        return CKPT_OK;
    }
    ckpt__scan_view *view = bytes.failed ? NULL : ckpt__scan_view_memory(job, &bytes);
    if (!view) {
        ckpt__buf_free(&bytes);
        return ckpt__fail_memory(job->err, span->label, size);
    }
    return ckpt__scan_push(job, (ckpt__scan_span){.view = view,
                                                  .size = size,
                                                  .depth = span->depth + 1,
                                                  .literal = true,
                                                  .label = ckpt__scan_label(span->label, "bytes of its values", 19)});
}

/* The decimal number at p. */
static const char *number(const char *p, const char *end, uint64_t *out)
{
    *out = 0;
    while (p < end && (*p < '0' || *p > '9') && *p != ']')
        p++;
    while (p < end && *p >= '0' && *p <= '9' && *out < UINT64_MAX / 16)
        *out = *out * 10 + (uint64_t)(*p++ - '0');
    return p;
}

static ckpt_status push_blob(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t data, const char *p,
                             const char *end)
{
    static const char offsets[] = "\"data_offsets\":";
    uint64_t from, to;
    const char *close = memchr(p, '}', (size_t)(end - p));
    const char *at = close ? memmem(p, (size_t)(close - p), offsets, sizeof offsets - 1) : NULL;
    if (!at)
        return CKPT_OK;
    at = number(at + sizeof offsets - 1, close, &from);
    number(at, close, &to);
    if (to <= from || span->size < data || from > span->size - data)
        return CKPT_OK;
    to = to > span->size - data ? span->size - data : to;
    return ckpt__scan_push(job, (ckpt__scan_span){.view = ckpt__scan_view_keep(span->view),
                                                  .at = span->at + data + from,
                                                  .size = to - from,
                                                  .depth = span->depth + 1,
                                                  .literal = true,
                                                  .label = ckpt__scan_label(span->label, "bytes of its values", 19)});
}

/* Damaged ones too: the header is searched, and not parsed. */
static ckpt_status search_header(ckpt__scan_job *job, const ckpt__scan_span *span, const char *text, size_t n)
{
    static const char blob[] = "\"ckpt.blob.";
    const char *end = text + n;
    ckpt_status status = CKPT_OK;
    for (const char *p = text; status == CKPT_OK && (p = memmem(p, (size_t)(end - p), "hex", 3));) {
        p += 3;
        while (p < end && (*p == '\\' || *p == '"' || *p == ':' || *p == ' '))
            p++;
        status = push_hex(job, span, p, end, &p);
    }
    for (const char *p = text; status == CKPT_OK && (p = memmem(p, (size_t)(end - p), blob, sizeof blob - 1));) {
        p += sizeof blob - 1;
        status = push_blob(job, span, 8 + n, p, end);
    }
    return status;
}

ckpt_status ckpt__scan_native(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n,
                              bool *is)
{
    uint64_t size = n >= 9 ? le64(head) : 0;
    *is = n >= 9 && head[8] == '{' && size >= 2 && size <= HEADER_MAX && size <= span->size - 8;
    if (!*is)
        return CKPT_OK;
    char *text = malloc((size_t)size + 1);
    if (!text)
        return ckpt__fail_memory(job->err, span->label, size);
    ckpt_status status = CKPT_OK;
    if (ckpt__scan_head(job, span, 8, text, (size_t)size) == size)
        status = search_header(job, span, text, (size_t)size);
    free(text);
    return status;
}
