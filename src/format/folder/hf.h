/* format/folder/hf.h - a model in shards, while it is read: hf_index.c reads what its index file says, hf.c the shards. */
#ifndef CKPT_HF_PRIV_H
#define CKPT_HF_PRIV_H
#include "format/folder/folder.h"

typedef struct ckpt__hf_shard {
    ckpt_str name;
    size_t tensors;               /* that the index puts into it */
    bool missing, unread;         /* unread: it is there, and damaged so that nothing of it is known */
} ckpt__hf_shard;

typedef struct ckpt__hf {
    ckpt__folder_reader *r;
    const char *name;             /* of the index file; NULL: there is none */
    char label[256];
    ckpt__arena *arena;
    ckpt__hash *by_tensor, *by_file;      /* name -> number in tensors, shards */
    struct { ckpt_str name; uint32_t shard; bool found; } *tensors; size_t count, capacity;
    ckpt__hf_shard *shards; size_t shard_count, shard_capacity;
    bool sorted;                  /* the index lists tensors by name */
    bool has_total; int64_t total;
    bool flat;                    /* some shard is safetensors */
    ckpt_entry *entries; size_t entry_count, entry_capacity;
} ckpt__hf;

/* Fills tensors and shards, has_total and total; s->arena, by_tensor and by_file are there. */
ckpt_status ckpt__hf_parse_index(ckpt__hf *s, const char *text, size_t size, ckpt_error *err);
#endif
