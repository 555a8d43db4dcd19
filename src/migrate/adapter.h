/* migrate/adapter.h - --merge-adapter: a LoRA adapter of PEFT, merged into its base on the way. The merged tensors are extents that
 * are computed (CKPT__MADE): row by row, as the target asks for them, so that neither a tensor nor the model is held.
 *
 *   adapter.c        the adapter: its settings and its keys, as parts
 *   adapter_match.c  which tensor of the base each part belongs to
 *   lora.c           the arithmetic: what a merged row is */
#ifndef CKPT_MIGRATE_ADAPTER_H
#define CKPT_MIGRATE_ADAPTER_H
#include "migrate/migration.h"

enum { CKPT__NO_TENSOR = -1 };

/* How a tensor of the base changes. */
typedef enum ckpt__merge_kind {
    CKPT__MERGE_LORA, /* W + scaling * B @ A */
    CKPT__MERGE_BIAS, /* bias + scaling * (bias of lora_B) */
    CKPT__MERGE_TAKE  /* the adapter has the whole tensor: modules_to_save, a trained bias */
} ckpt__merge_kind;

/* One change of one tensor of the base. An example: "base_model.model.h.0.fc.lora_A.weight" of 8 x 64 and its lora_B of 256 x 8, with
 * lora_alpha 16, are one of kind LORA: module "h.0.fc", target "h.0.fc.weight", rank 8, scaling 2, rows 256, cols 64, and the merged
 * weight is 256 x 64. Where the base keeps it as 64 x 256 (Conv1D of transformers, an embedding), rows is 64, cols is 256, and
 * `turned` is true: row i is made of column i of A and of all of B. */
typedef struct ckpt__merge_part {
    ckpt__maker maker; /* first: a maker that is opened is this part */
    const struct ckpt__adapter *adapter;
    ckpt_str module, target; /* in the arena of the adapter; target: the parameter as the adapter calls it */
    ckpt__merge_kind kind;
    int64_t a, b, magnitude; /* numbers of tensors of the adapter; CKPT__NO_TENSOR: none. BIAS, TAKE: b alone */
    bool embedding;          /* lora_embedding_A, lora_embedding_B */
    bool turned;
    double scaling;
    uint64_t rank, rows, cols; /* elements */
    size_t base;               /* number of the tensor in the base */
    ckpt_dtype dtype;          /* of the base, and of what is made */
} ckpt__merge_part;

typedef struct ckpt__adapter {
    const char *path;        /* the caller's */
    ckpt_reader *reader;     /* owned: the adapter's */
    ckpt_reader *base;       /* owned: the source once more, as m->from says of a merged tensor where it is computed */
    ckpt__arena *arena;      /* owned */
    ckpt__merge_part *parts; /* heap, owned */
    size_t count, capacity;
    ckpt__hash *by_target;    /* owned: target -> part */
    const ckpt_value *config; /* adapter_config.json, the reader's */
} ckpt__adapter;

/* ---- adapter.c */

/* *out is set also on failure, to be freed by ckpt__adapter_close. CKPT_E_UNSUPPORTED: it is no LoRA adapter, or asks for what
 * is not merged here. */
ckpt_status ckpt__adapter_open(const char *path, ckpt__adapter **out, ckpt_error *err);
void ckpt__adapter_close(ckpt__adapter *adapter); /* NULL is nothing */

/* ---- lora.c */

/* The part's maker: its rows are computed of the base and the adapter. */
void ckpt__merge_maker(ckpt__merge_part *part);
/* Bytes that computing it takes, and bytes that are read for it. */
uint64_t ckpt__merge_memory(const ckpt__merge_part *part);
uint64_t ckpt__merge_reads(const ckpt__merge_part *part);
/* ---- adapter_match.c */

/* What reading the merged tensors takes beside the buffers of the payloads: bytes. 0: no adapter is merged. */
uint64_t ckpt__adapter_memory(const ckpt__migration *m);
#endif
