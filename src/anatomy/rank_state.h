/* anatomy/rank_state.h - what a checkpoint has once for each rank that saved it: states of random generators, places in the data, and
 * other values that the ranks have for themselves. Whoever asks which file, key, item or tensor is of which rank asks it here.
 *
 * A rank state is one such thing, and its parts are the places that have it, one a rank. Where they are is its form; each form is what
 * a program writes. An example: accelerate's random_states_0.pkl and random_states_1.pkl are one state of the form FILE, named
 * "random_states_*.pkl", with two parts:
 *
 *     rank  name                   holder     at
 *     0     "random_states_0.pkl"  the root   number of its entry
 *     1     "random_states_1.pkl"  the root   number of its entry
 *
 * A shard of a weight, and a flat buffer of an optimizer, are no rank state, whatever their names: the ranks have divided them. */
#ifndef CKPT_ANATOMY_RANK_STATE_H
#define CKPT_ANATOMY_RANK_STATE_H
#include "anatomy/rank_kind.h"
#include "model/index.h"

typedef enum ckpt__rank_form {
    CKPT__IN_FILES_OF_RANKS, /* a file each, an entry of the root: random_states_3.pkl, rng_state_3.pth (accelerate, HF Trainer) */
    CKPT__IN_GRID, /* an entry of the root each, which says its place in a grid of ranks: "rng_state/shard_0.1_2.2" (torch_dist) */
    CKPT__IN_FOLDERS, /* an entry each of a dict that stands where one process has the value: {"mp_rank_00": ...} (Megatron) */
    CKPT__IN_KEYS,  /* an entry of one dict each: rng.rank_3 (DCP), dataloader.dp_rank_3 (torchtitan) */
    CKPT__IN_ITEMS, /* an item of one list each */
    CKPT__IN_OWN, /* below a dict of the root each, at the path that one process has it: rank_3.extra_state.rng (files of FSDP),
                              * rank-00003.seed (ranks of ckpt_run) */
    CKPT__IN_NAMES, /* a tensor without a place in the tree each: rank-00003.rng (ckpt_run), loader.3.mt19937 (llm.c) */
    CKPT__IN_MAIN, /* of the first rank alone, though each has another: dl_state_dict.bin (accelerate). One part, of rank 0 */
    CKPT__IN_COMMON, /* of all ranks together, and nothing without what each has: a place in a shuffle (llm.c). The same */
    CKPT__IN_TOTAL /* of all ranks together: it counts what they have taken (llm.c). The same */
} ckpt__rank_form;

typedef struct ckpt__rank_part {
    int64_t rank;
    ckpt_str name;            /* whole, as tensors below it begin; in the arena, or the index's */
    size_t depth;             /* keys in that name; IN_NAMES: 0 */
    const ckpt_value *holder; /* the dict or list that has it; NULL: IN_NAMES */
    const ckpt_value *value;  /* what it has; NULL: IN_NAMES */
    size_t at;                /* number of the holder's entry or item; IN_NAMES: the tensor's */
    size_t state;             /* the one that it is a part of */
    const ckpt_value **keys;  /* IN_OWN: depth - 1 keys, the path that one process has it at. Else NULL */
} ckpt__rank_part;

typedef struct ckpt__rank_state {
    ckpt__rank_kind kind;
    ckpt__rank_form form;
    ckpt_str name; /* for messages: a '*' for each number of a rank; in the arena */
    ckpt_str
        alone; /* FILES, GRID: the key that a job of one process has it under; NAMES: the tensor's name. data NULL: the first
                          * rank's own, or what the form says */
    size_t first, count; /* parts, sorted by rank */
    int64_t ranks;       /* one more than the highest */
    size_t
        world; /* number of the entry of the parts' holder that says how many ranks there were; SIZE_MAX: none does */
    bool several; /* it is of several ranks; else a job of one process has just that */
} ckpt__rank_state;

/* The answer. */
typedef struct ckpt__rank_states {
    ckpt__rank_state *states;
    size_t count, capacity; /* heap, owned; in the order in which they were met */
    ckpt__rank_part *parts;
    size_t part_count, part_capacity; /* heap, owned; sorted by state and rank */
    int64_t ranks;                    /* the most that a state has, or that the checkpoint tells of */
    size_t world; /* llm.c: number of the root's entry that says how many ranks there were; SIZE_MAX: none does */
} ckpt__rank_states;

/* Of the tree as it is now, and the tensors. The names lie in the arena, which must outlive *out; to be freed in any case. */
ckpt_status ckpt__rank_states_find(const ckpt__index *index, ckpt__arena *arena, ckpt__rank_states *out,
                                   ckpt_error *err);
void ckpt__rank_states_free(ckpt__rank_states *states);

/* Files of random states, by their names. */
typedef struct ckpt__rank_file {
    const char *prefix, *suffix; /* of the file of a rank: "rng_state_", ".pth" */
    const char *name;            /* of all of them, for messages: "rng_state_*.pth" */
    const char *alone;           /* the file of a job of one process: "rng_state.pth" */
} ckpt__rank_file;
enum {
    CKPT__RANDOM_STATES,
    CKPT__RNG_STATES,
    CKPT__RANK_FILES
}; /* accelerate's, the HF Trainer's; how many there are */
extern const ckpt__rank_file ckpt__rank_files[CKPT__RANK_FILES];

/* The rank that a name says: rank-00003, rank3, mp_rank_03; -1: none. */
int64_t ckpt__rank_in(ckpt_str name);
/* "prefix<number>suffix" -> the number; -1: another name. */
int64_t ckpt__number_between(ckpt_str name, const char *prefix, const char *suffix);
#endif
