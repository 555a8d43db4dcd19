/* format/folder/hf.h - a model in shards, while it is read: hf_index.c reads what its index file says, hf.c the shards. */
#ifndef CKPT_HF_PRIV_H
#define CKPT_HF_PRIV_H
#include "format/folder/folder.h"

typedef struct ckpt__hf_shard {
    ckpt_str name;        /* of the file, in the arena */
    size_t tensors;       /* how many tensors the index file puts into it */
    bool missing, unread; /* unread: it is there, and damaged so that nothing of it is known */
} ckpt__hf_shard;

/* What "model.safetensors.index.json" says, and what of that was found. Its weight_map {"a": "m-1.safetensors", "b":
 * "m-1.safetensors", "c": "m-2.safetensors"} gives tensors {a, shard 0}, {b, shard 0}, {c, shard 1} and the shards m-1 (tensors 2)
 * and m-2 (tensors 1). */
typedef struct ckpt__hf {
    ckpt__folder_reader *r;          /* borrowed */
    const char *name;                /* of the index file; NULL: there is none */
    char label[256];                 /* the same for messages */
    ckpt__arena *arena;              /* names */
    ckpt__hash *by_tensor, *by_file; /* name -> number in tensors, shards */
    struct {
        ckpt_str name;
        uint32_t shard;
        bool found;
    } * tensors;
    size_t count, capacity;
    ckpt__hf_shard *shards;
    size_t shard_count, shard_capacity;
    bool sorted; /* the index lists tensors by name */
    bool has_total;
    int64_t total; /* metadata.total_size: bytes of all tensors */
    bool flat;     /* some shard is safetensors */
    ckpt_entry *entries;
    size_t entry_count, entry_capacity;
} ckpt__hf;

/* Fills tensors and shards, has_total and total; s->arena, by_tensor and by_file are there. */
ckpt_status ckpt__hf_parse_index(ckpt__hf *s, const char *text, size_t size, ckpt_error *err);
ckpt_status ckpt__hf_no_memory(const ckpt__hf *s, ckpt_error *err);
#endif
