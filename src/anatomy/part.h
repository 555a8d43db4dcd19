/* anatomy/part.h - a file that is a part of a checkpoint: one rank's shard, one of the files of a directory. Alone it has no
 * answer to whether a run resumes.
 *
 *   part.c        shards, by what is in the file and how it is called
 *   part_beside.c files of a directory that is a checkpoint, by what lies beside them */
#ifndef CKPT_PART_H
#define CKPT_PART_H
#include "model/index.h"

/* Why a file alone has no answer, in words for a message. The texts are kept here, so that an answer owns nothing. */
typedef struct ckpt__whole {
    char what[620]; /* "rank 2 of 4 (tensor parallel 0 of 2, ...) of a Megatron checkpoint: ..." */
    char how[350];  /* what reads or merges the whole; "" */
} ckpt__whole;

/* Is this file a shard of a checkpoint that several files are? path: as it was opened. */
bool ckpt__part_of_shards(const ckpt__index *index, const char *path, ckpt__whole *out);
/* Is it one of the files of a directory that is a checkpoint? Looks at the names in the directory. */
bool ckpt__part_of_folder(const ckpt__index *index, const char *path, ckpt__whole *out);
/* Either of the two, the shard first. */
bool ckpt__part_find(const ckpt__index *index, const char *path, ckpt__whole *out);
/* CKPT_E_UNSUPPORTED where a tensor of it would be taken for the whole that it is a box of (a shard of HuggingFaceStorageWriter, a record of
 * DCP), or where it lists tensors that lie elsewhere (a list of DCP). Asked by what gives tensors on: migrate and restore. */
ckpt_status ckpt__part_refuse(const ckpt__index *index, const char *path, ckpt_error *err);
#endif
