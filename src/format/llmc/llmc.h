/* format/llmc/llmc.h - checkpoints of llm.c in CUDA: what train_gpt2cu writes into its folder every so many steps.
 *
 *   model_00000004.bin         the weights, by rank 0
 *   state_00000004_00000.bin   a file of each rank: the optimizer's moments, master weights, the random state, the loader's place
 *   DONE_00000004              empty; written last, when all ranks have written theirs
 *
 * All numbers are little-endian. Each file begins with 256 int32, of which these are known:
 *
 *     model    0 magic 20240326   1 version: 3 float32, 5 bfloat16   2 maxT   3 V   4 layers   5 heads   6 channels   7 padded V
 *     state    0 magic 20240527   1 version 1   2 ranks   3 rank   4 has master weights   5 shuffles   10 step
 *              20, 22 random state and the last one that updated (64 bits)   30, 32 shard and sample of the loader (64 bits)
 *
 * Behind a model's are 16 tensors, those of all layers in one. Behind a state's are exp_avg, exp_avg_sq and, where there are
 * some, master weights, each of float32 and of all parameters. With ZeRO-1 a rank has of each tensor, and of each layer of it, the
 * part (number of elements) / ranks that is its own; without it has all. Which of the two it is stands nowhere: the length tells.
 *
 *     tensor of 2 layers of 8 elements, 2 ranks, ZeRO-1:   rank 0 has elements 0-3 and 8-11, rank 1 has 4-7 and 12-15
 *
 * A loader that shuffles adds two lists and a Mersenne Twister: int64 n, n int32, int64 m, m int32, 2,520 bytes.
 * [karpathy/llm.c, train_gpt2.cu: gpt2_write_to_checkpoint, save_state, gpt2_update; llmc/dataloader.h, llmc/rand.h] */
#ifndef CKPT_LLMC_H
#define CKPT_LLMC_H
#include "format/format.h"

/* Places in the headers: of a model's, and of a state's. */
enum {
    CKPT__LLMC_MODEL_MAGIC = 20240326,
    CKPT__LLMC_STATE_MAGIC = 20240527,
    CKPT__LLMC_VERSION = 1,
    CKPT__LLMC_MAX_T = 2,
    CKPT__LLMC_VOCAB,
    CKPT__LLMC_LAYERS,
    CKPT__LLMC_HEADS,
    CKPT__LLMC_CHANNELS,
    CKPT__LLMC_PADDED_VOCAB,
    CKPT__LLMC_RANKS = 2,
    CKPT__LLMC_RANK,
    CKPT__LLMC_MASTER,
    CKPT__LLMC_SHUFFLES,
    CKPT__LLMC_STEP = 10,
    CKPT__LLMC_RNG = 20,
    CKPT__LLMC_RNG_LAST = 22,
    CKPT__LLMC_SHARD = 30,
    CKPT__LLMC_SAMPLE = 32
};

/* Versions of a model. */
enum { CKPT__LLMC_FLOAT32 = 3, CKPT__LLMC_BFLOAT16 = 5 };

enum { CKPT__LLMC_HEAD = 1024, CKPT__LLMC_TWISTER = 2520, CKPT__LLMC_TENSORS = 16, CKPT__LLMC_KINDS = 3 };

/* What is behind the header of a model. */
typedef struct ckpt__llmc_model {
    int64_t max_t, vocab, layers, heads, channels, padded_vocab;
    ckpt_dtype dtype;
    uint64_t numel; /* of all tensors */
} ckpt__llmc_model;

typedef struct ckpt__llmc_state {
    uint32_t file; /* number in the source */
    bool there;    /* else the file is missing or short, and only the next is known */
    int64_t rank, ranks, step;
    bool master, shuffles, split; /* split: ZeRO-1 */
    int64_t rng, rng_last, shard, sample;
    uint64_t numel;           /* of one kind in this file */
    uint64_t shuffle_at;      /* byte where the first list's length is */
    uint64_t shards, samples; /* numbers in the two lists */
} ckpt__llmc_state;

/* One of the 16: all shapes of them follow from the model's header. */
typedef struct ckpt__llmc_tensor {
    const char *name;
    uint32_t ndim;
    int64_t shape[3];
    uint64_t numel, layers; /* elements; 1 where it is of no layer */
} ckpt__llmc_tensor;

/* One step on its way into an index. All but the arrays is borrowed. */
typedef struct ckpt__llmc {
    const ckpt__read_request *request;
    ckpt__index *index;
    const char *label; /* the directory's, or the file's */
    ckpt__llmc_model model;
    ckpt__llmc_state *states;      /* heap, owned: one a rank */
    size_t rank_count;             /* 0: weights alone */
    const ckpt__llmc_state *first; /* of those whose file is there; NULL: none is */
    ckpt_entry *entries;           /* heap, owned: of the root */
    size_t entry_count, entry_capacity;
} ckpt__llmc;

/* fill.c: model and states -> index. model: number of its file. CKPT_E_FORMAT: the tensors cannot be divided among the ranks. */
ckpt_status ckpt__llmc_fill(ckpt__llmc *r, uint32_t model, ckpt_error *err);

/* header.c. CKPT_E_FORMAT, CKPT_E_DAMAGED (the file is short, or longer than it says), CKPT_E_UNSUPPORTED (another version). */
ckpt_status ckpt__llmc_read_model(const ckpt__source *source, uint32_t file, ckpt__llmc_model *out, ckpt_error *err);
/* out->file is set. */
ckpt_status ckpt__llmc_read_state(const ckpt__source *source, const ckpt__llmc_model *model, ckpt__llmc_state *out,
                                  ckpt_error *err);
/* i < CKPT__LLMC_TENSORS. The model was read, so no product overflows. */
ckpt__llmc_tensor ckpt__llmc_tensor_of(const ckpt__llmc_model *model, size_t i);
/* The number of elements in all 16, and so of one kind in a state that is not divided; false: they overflow 64 bits. */
bool ckpt__llmc_numel(const ckpt__llmc_model *model, uint64_t *out);
/* Does a file begin as one of these? */
bool ckpt__llmc_is_model(const unsigned char *head, size_t size);
bool ckpt__llmc_is_state(const unsigned char *head, size_t size);
/* What is wrong with the sizes, as CKPT_E_FORMAT of `label`; `who` says them: "its header". */
ckpt_status ckpt__llmc_check_sizes(const ckpt__llmc_model *m, const char *who, const char *label, ckpt_error *err);

/* ---- write.c */

/* Shards and samples of the loader's shuffle, and its twister: numbers of tensors in the index. */
enum { CKPT__LLMC_SHARDS, CKPT__LLMC_SAMPLES, CKPT__LLMC_TWIST, CKPT__LLMC_LISTS };

/* What the files of a step are made of: numbers of tensors in the index that is written. */
typedef struct ckpt__llmc_parts {
    const ckpt__index *index; /* borrowed */
    ckpt__llmc_model model;   /* numel is set */
    size_t weights[CKPT__LLMC_TENSORS];
    size_t states[CKPT__LLMC_KINDS][CKPT__LLMC_TENSORS]; /* by kind: exp_avg, exp_avg_sq, master */
} ckpt__llmc_parts;

/* Can ZeRO-1 divide every tensor, and every layer of it, among the ranks? *odd: one that it cannot. */
bool ckpt__llmc_divides(const ckpt__llmc_model *model, uint64_t ranks, ckpt__llmc_tensor *odd);
ckpt_status ckpt__llmc_write_model(const ckpt__llmc_parts *parts, ckpt__recipe **out, ckpt_error *err);
/* The file of s->rank; of s the numbers of its header count, and whether it has masters and a shuffle, and is divided. lists: the
 * tensors of the shuffle. */
ckpt_status ckpt__llmc_write_state(const ckpt__llmc_parts *parts, const ckpt__llmc_state *s,
                                   const size_t lists[CKPT__LLMC_LISTS], ckpt__recipe **out, ckpt_error *err);
#endif
