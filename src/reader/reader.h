/* reader/reader.h - one open checkpoint: its files, their index, and what is made when it is first asked for. */
#ifndef CKPT_READER_INTERNAL_H
#define CKPT_READER_INTERNAL_H
#include <ckpt/reader.h>
#include "io/source.h"
#include "model/index.h"

typedef struct ckpt__reader_parts ckpt__reader_parts; /* reader/parts.h */

/* The reader owns all of it; ckpt_reader_close frees it. */
struct ckpt_reader {
    char *path;           /* heap: as it was opened */
    ckpt__source *source; /* the open files */
    ckpt__index *index;   /* its by_name is NULL: the table is the reader's */
    ckpt__hash *by_name;  /* name -> number of the first tensor of that name; NULL: it is nameless */
    ckpt__reader_parts *parts;
};

/* ckpt_reader_open, but that a file of several that is damaged or missing becomes a finding, and the others are read. */
ckpt_status ckpt__reader_survey(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                ckpt_error *err);

/* A reader of what was read already. Both are the reader's then, also on failure, when they are freed. */
ckpt_status ckpt__reader_of(const char *path, ckpt__source *source, ckpt__index *index, ckpt_reader **out,
                            ckpt_error *err);

/* ckpt_reader_open without the table of names, for whoever asks for no tensor by its name. */
ckpt_status ckpt__reader_nameless(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                  ckpt_error *err);

/* ckpt_reader_crc32; where check is false, what the file keeps of CRCs is not compared. */
ckpt_status ckpt__reader_crc32(const ckpt_reader *reader, size_t i, bool check, uint32_t *crc, ckpt_error *err);
#endif
