/* migrate/out.h - the files of a target: one, or those of a directory. */
#ifndef CKPT_MIGRATE_OUT_H
#define CKPT_MIGRATE_OUT_H
#include "migrate/migration.h"

typedef struct ckpt__out_file {
    const char *name;             /* relative to the directory; NULL: the target itself */
    const ckpt__format *format;   /* of the tensors; NULL: `text`, or a copy */
    size_t first, count;          /* in m->chosen */
    const ckpt_value *root;
    ckpt__recipe *recipe;
    ckpt__buf text;
    bool copy;                    /* of the source's file of this name, byte for byte */
    size_t from;                  /* root of the source in which that lies */
    uint64_t size;                /* its bytes, and their CRC-32 once it is written */
    uint32_t crc;
} ckpt__out_file;

typedef struct ckpt__out {
    ckpt__mover *m;
    ckpt__out_file *files; size_t count, capacity;
    const char **folders; size_t folder_count, folder_capacity;        /* parents first */
    uint64_t total;               /* bytes of the tensors */
    ckpt_error *err;
} ckpt__out;

/* One more file; NULL: memory is short. Valid until the next. */
ckpt__out_file *ckpt__out_add(ckpt__out *w, const char *name);

/* ---- as_folder.c */

/* The members of the source's directory, each to be written in its own format, or copied. */
ckpt_status ckpt__same_files(ckpt__out *w);
/* For a directory of weights: the source's settings, tokenizer and other files that hold no part of a checkpoint. */
ckpt_status ckpt__carry_files(ckpt__out *w);
/* Is the file of this name, at the top of the source, one that ckpt__carry_files takes along? */
bool ckpt__is_carried(const char *name);

/* ---- copy.c */
ckpt_status ckpt__copy_file(ckpt__out *w, ckpt__out_file *file, ckpt__sink *folder);
ckpt_status ckpt__copy_size(ckpt__out *w, const ckpt__out_file *file, uint64_t *size);
/* The copies are read back. */
ckpt_status ckpt__check_copies(ckpt__out *w);
/* May the target that is there be replaced? A directory only by one that has all that it holds. */
ckpt_status ckpt__check_replaced(const ckpt__mover *m, ckpt_error *err);
#endif
