/* codec/zip.h - the directory of a zip archive: names, sizes, CRCs, and where each record's bytes lie in the file.
 * Stored records are then read in place by whoever wants them; small deflated ones are inflated here. Facts:
 * APPNOTE.TXT 6.3.
 *
 * Nothing is believed: counts and offsets are bounded by the file, names of the central directory are compared with
 * those of the local headers, so are sizes and data descriptors, and no two records may overlap. */
#ifndef CKPT_ZIP_H
#define CKPT_ZIP_H
#include "base/base.h"

/* The file, by a callback: exactly n bytes at offset, or an error. `label` stands in messages where no record is meant.
 */
typedef struct ckpt__zip_input {
    ckpt_status (*read)(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err);
    void *ctx;         /* of `read`; borrowed until ckpt__zip_free */
    uint64_t size;     /* bytes of the file */
    const char *label; /* never NULL; borrowed as well */
} ckpt__zip_input;

enum { CKPT__ZIP_STORED = 0, CKPT__ZIP_DEFLATED = 8 };

/* One record of the archive. All offsets count from the first byte of the file. The local header of "archive/data/0" at byte
 * 1100 has 30 bytes, then 14 of name, then an extra field, with which torch pads: its length is 8 here, so that the data
 * begins at a multiple of 64. Of 48 stored bytes: header = 1100, data = 1100 + 30 + 14 + 8 = 1152, csize = usize = 48. The
 * directory has only `header`: the lengths in the local header say where the data begins, so `data` is known once that was read
 * (ckpt__zip_checked). */
typedef struct ckpt__zip_record {
    ckpt_str name; /* as in the archive: relative, without "..", unique; in the zip's arena */
    uint16_t method, flags;
    bool folder;           /* the name ends in '/' */
    bool has_crc;          /* false also for a CRC of 0 over bytes: some writers say so that they computed none */
    uint32_t crc;          /* of the decoded bytes */
    uint64_t header;       /* offset of the local header */
    uint64_t data;         /* offset of the coded bytes */
    uint64_t csize, usize; /* coded and decoded bytes; equal when stored */
    bool unsure; /* salvage: no size is known; csize is the room up to the next record or the end of the file */
} ckpt__zip_record;

typedef struct ckpt__zip ckpt__zip;

/* Reads the whole directory. The input's ctx and label are borrowed until ckpt__zip_free.
 * CKPT_E_FORMAT: not a zip, or names that are absolute, climb out, or occur twice (also in another case), or records that
 * overlap, or two end records;
 * CKPT_E_DAMAGED: truncated, or a count, offset or size that is not true; CKPT_E_UNSUPPORTED: encrypted, several disks,
 * or a compression method other than stored and deflate. */
ckpt_status ckpt__zip_open(const ckpt__zip_input *input, ckpt__zip **out, ckpt_error *err);
/* The same, but where there are many records their local headers (a read each) are looked at by a thread of its own, so
 * input->read is called by two threads. Until ckpt__zip_checked no record's `data` is known, and nothing but
 * ckpt__zip_read may be asked about where bytes lie. Whoever opens so asks ckpt__zip_checked before anything of the archive
 * is believed, and prefers its error to any other. */
ckpt_status ckpt__zip_open_ahead(const ckpt__zip_input *input, ckpt__zip **out, ckpt_error *err);
ckpt_status ckpt__zip_checked(ckpt__zip *zip, ckpt_error *err);
void ckpt__zip_free(ckpt__zip *zip);

/* Salvage (zip_salvage.c): an archive whose directory is not there or not true is walked from its first byte by local
 * headers alone. A record's size is the hint's, its header's or its data descriptor's, whichever is confirmed; else the
 * record is `unsure`. A CRC that its descriptor does not name is that of the directory, if that much of it is true. Where
 * no header follows a record, the next one of the same archive name is looked for.
 * The walk stops behind the first record whose name ends in `until` (so that the caller learns sizes from it), and
 * ckpt__zip_salvage_rest goes on; that invalidates pointers to records.
 * CKPT_E_DAMAGED: not even the first record's header is there. */
ckpt_status ckpt__zip_salvage(const ckpt__zip_input *input, const char *until, ckpt__zip **out, ckpt_error *err);
/* How many bytes a record of that name has, uncompressed; false where it is not known. */
typedef bool (*ckpt__zip_hint)(void *ctx, ckpt_str name, uint64_t *size);
ckpt_status ckpt__zip_salvage_rest(ckpt__zip *zip, ckpt__zip_hint hint, void *ctx, ckpt_error *err);
/* The caller has found out how many bytes an unsure record has. */
void ckpt__zip_settle(ckpt__zip *zip, const ckpt__zip_record *record, uint64_t size);

/* Where the archive that ends the file begins, by its own records, where that is not the file's first byte: offsets in it
 * count from there. Such files are refused, for programs read them differently: torch reads what stands before, if that
 * is an archive laid out in the same way, and else nothing; Python's zipfile reads the archive. 0: no such archive.
 * *two (may be NULL): what stands before ends as a whole archive does. An error: a read's. */
ckpt_status ckpt__zip_start(const ckpt__zip_input *input, uint64_t *start, bool *two, ckpt_error *err);

/* Bytes behind the archive's end, which belong to nothing; 0 in what a program that saves writes. */
uint64_t ckpt__zip_trailing(const ckpt__zip *zip);
size_t ckpt__zip_count(const ckpt__zip *zip);
const ckpt__zip_record *ckpt__zip_at(const ckpt__zip *zip, size_t i); /* in directory order; NULL past the end */
/* As torch's reader finds it: upper and lower case of ASCII are one. Two records whose names differ in that alone are refused
 * when the archive is opened. */
const ckpt__zip_record *ckpt__zip_find(const ckpt__zip *zip, const char *name, size_t n);
/* The first thing for which torch's reader refuses an archive that is read here, in its words: of *record, or of the whole
 * archive where that is NULL. NULL: nothing. */
const char *ckpt__zip_refused(const ckpt__zip *zip, const ckpt__zip_record **record);

/* Appends a record's decoded bytes to b. More than `limit` bytes: CKPT_E_LIMIT. Another length than the directory says,
 * or another CRC where there is one: CKPT_E_DAMAGED. */
ckpt_status ckpt__zip_read(const ckpt__zip *zip, const ckpt__zip_record *record, uint64_t limit, ckpt__buf *b,
                           ckpt_error *err);

#endif
