/* codec/zip_priv.h - what zip.c (the directory), zip_record.c (the records) and zip_salvage.c share. */
#ifndef CKPT_ZIP_PRIV_H
#define CKPT_ZIP_PRIV_H
#include <pthread.h>
#include "codec/zip.h"

/* An open archive. Owns everything that it points to but `refused`, which is static, and what `in` borrows. */
struct ckpt__zip {
    ckpt__zip_input in;
    ckpt__arena *arena;        /* has the names */
    ckpt__zip_record *records; /* heap, in directory order */
    size_t count;
    ckpt__hash *by_name;   /* name in lower case (ASCII) -> number of the record */
    const char *refused;   /* why torch's reader refuses the archive, in its words; NULL: nothing found yet */
    size_t refused_record; /* number of the record that it refuses; SIZE_MAX: the whole archive */
    uint64_t directory;    /* offset of the central directory: records end before it */
    uint64_t trailing;     /* bytes behind the end record and its comment */
    size_t capacity;       /* salvage: records that there is room for */
    uint64_t walked;       /* salvage: offset at which the walk goes on */
    struct ckpt__zip
        *told; /* salvage: a directory that is whole, as an archive of its own (without a `told`); NULL: none */
    struct ckpt__zip_share
        *ahead;               /* the thread's share of checking local headers; NULL: no thread runs that still has to be
                                    * waited for */
    pthread_t checker;        /* that thread, where `ahead` is not NULL */
    ckpt_status check_status; /* how the check ended */
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
