/* codec/zip_priv.h - what zip.c (the directory), zip_record.c (the records) and zip_salvage.c share. */
#ifndef CKPT_ZIP_PRIV_H
#define CKPT_ZIP_PRIV_H
#include <pthread.h>
#include "codec/zip.h"

struct ckpt__zip {
    ckpt__zip_input in;
    ckpt__arena *arena; /* names */
    ckpt__zip_record *records;
    size_t count;
    ckpt__hash *by_name; /* in lower case (ASCII) */
    const char *refused; /* by torch's reader, in its words; NULL: nothing yet */
    size_t refused_record; /* of what; SIZE_MAX: of the whole archive */
    uint64_t directory; /* offset of the central directory: records end before it */
    uint64_t trailing;  /* bytes behind the end record and its comment */
    size_t capacity;    /* salvage: of records */
    uint64_t walked;    /* salvage: the walk goes on here */
    struct ckpt__zip *told; /* salvage: what a directory that is whole says (it has no `told`), or NULL */
    struct ckpt__zip_share *ahead; /* of `checker`, which checks the local headers, or nobody has asked how that ended */
    pthread_t checker;
    ckpt_status check_status;
    ckpt_error check_error;
};

/* What the central directory says, of which nothing is compared with the records: their `data` is not known. */
ckpt_status ckpt__zip_directory(const ckpt__zip_input *input, ckpt__zip **out, ckpt_error *err);

/* Puts a record's name, which stays, into by_name: as ckpt__hash_put, -1 without memory, 0 where one of that name is there. */
int ckpt__zip_remember(ckpt__zip *zip, ckpt_str name, size_t number, size_t *before);
/* torch's reader refuses the archive; the first reason is kept. */
void ckpt__zip_note_refused(ckpt__zip *zip, size_t number, const char *why);

/* Relative, without "..", not empty. */
bool ckpt__zip_name_is_safe(const char *name, size_t n);

static inline uint16_t le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t le32(const unsigned char *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}
static inline uint64_t le64(const unsigned char *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

/* Compares each local header and data descriptor with the directory, finds where the data begins, and that no two
 * records overlap. */
ckpt_status ckpt__zip_check_locals(ckpt__zip *zip, ckpt_error *err);
/* The same by a thread, until ckpt__zip_checked; at once where there are few records, or no thread is to be had. */
ckpt_status ckpt__zip_check_ahead(ckpt__zip *zip, ckpt_error *err);
/* Ends such a check without an answer. */
void ckpt__zip_abandon(ckpt__zip *zip);

#endif
