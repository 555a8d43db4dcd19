/* format/folder/folder.h - directories whose files are one checkpoint: sharded models and model folders of Hugging Face, what
 * accelerate's save_state and the HF Trainer write, PEFT adapters, and others of the kind.
 *
 *   folder.c         the formats of the table: bids, and reading all members as one
 *   names.c   what a file is to a checkpoint, by its name; which layout a directory has
 *   keys.c    the key of a file where all become one dict
 *   foreign.c  layouts that are known by their names and not read
 *   one.c     what must agree between members: ranks, steps, files on several disks
 *   hf.c             shards by their index file
 *
 * Names are those that the programs write: transformers/utils/__init__.py (WEIGHTS_NAME, ...), transformers/trainer.py,
 * accelerate/utils/constants.py and checkpointing.py, peft/utils/constants.py, diffusers/utils/constants.py. */
#ifndef CKPT_FOLDER_H
#define CKPT_FOLDER_H
#include "format/ahead.h"
#include "format/format.h"

/* What a file is to the checkpoint, in the order in which members are read. */
typedef enum ckpt__part {
    CKPT__PART_NONE = 0, /* not read */
    CKPT__PART_INDEX,    /* names the shards of a model */
    CKPT__PART_MODEL,
    CKPT__PART_DISTRIBUTED, /* a folder with a distributed checkpoint of PyTorch (format/dcp) */
    CKPT__PART_ADAPTER,
    CKPT__PART_EMA,
    CKPT__PART_OPTIMIZER,
    CKPT__PART_SCHEDULER,
    CKPT__PART_SCALER,
    CKPT__PART_SAMPLER,
    CKPT__PART_RNG,
    CKPT__PART_CUSTOM,
    CKPT__PART_ARGS,
    CKPT__PART_TRAINER_STATE,
    CKPT__PART_CONFIG, /* JSON */
    CKPT__PART_SHARD,  /* read by way of its index */
    CKPT__PART_OTHER   /* has the suffix of a checkpoint, and a name that says nothing */
} ckpt__part;

/* One file of the directory, by its name alone: nothing is opened for it. "rng_state_3.pth" is {part CKPT__PART_RNG, number 3,
 * exact true}. */
typedef struct ckpt__member {
    const char *name; /* relative to the directory; in the folder's arena. Of DISTRIBUTED a folder's */
    ckpt__part part;
    int64_t number; /* rank, or which of several models; -1: none */
    size_t root;    /* number of the first of the source's paths that has it */
    size_t copies;  /* how many of the paths have it */
    bool exact;     /* a name that a program gives, not only one that has its words in it */
    bool read;      /* the layout reads it */
} ckpt__member;

typedef enum ckpt__folder_layout {
    CKPT__LAYOUT_NONE = 0, /* no checkpoint: `why` says so */
    CKPT__LAYOUT_REFUSED,  /* known by name, not read */
    CKPT__LAYOUT_HF,
    CKPT__LAYOUT_PEFT,
    CKPT__LAYOUT_ACCELERATE,
    CKPT__LAYOUT_HF_TRAINER,
    CKPT__LAYOUT_FOLDER
} ckpt__folder_layout;

/* A directory that was looked at: its files, and which layout they are. */
typedef struct ckpt__folder {
    const ckpt__source *source; /* borrowed */
    ckpt__arena *arena;         /* owned: names */
    ckpt__member *members;
    size_t count, capacity; /* heap; sorted by part, number and name */
    const char **folders;
    size_t folder_count, folder_capacity; /* heap: names of folders in it */
    ckpt__folder_layout layout;
    char why[740];       /* of NONE and REFUSED */
    const char *foreign; /* of REFUSED: the format's name, "dcp"; static. NULL: none */
    uint64_t signs;      /* a bit for each sign of a foreign layout that was seen: foreign.c */
} ckpt__folder;

/* What a name says; *number and *exact are set. */
ckpt__part ckpt__part_of(const char *name, int64_t *number, bool *exact);
/* "model-00002-of-00005.safetensors": the number, how many, and the name without them in `stem` ("model.safetensors"). */
bool ckpt__shard_of(const char *name, uint64_t *number, uint64_t *count, char *stem, size_t size);
/* keys.c: the key that a file gets where all of a directory become one dict: "rng" of "rng_state.pth". */
void ckpt__folder_key(ckpt_str file, char *out, size_t size);

/* Lists the source's directory (or its files) and decides; free in any case. */
ckpt_status ckpt__folder_look(const ckpt__source *source, ckpt__folder *out, ckpt_error *err);
void ckpt__folder_free(ckpt__folder *folder);

/* ---- foreign.c: what each name in the directory says; then what it is all together */
void ckpt__foreign_see(ckpt__folder *folder, const char *name, bool is_folder);
void ckpt__foreign_decide(ckpt__folder *folder);

/* ---- reading */
/* The members on their way into one index, whose root becomes a dict from file name to what the file holds. */
typedef struct ckpt__folder_reader {
    const ckpt__read_request *request; /* borrowed */
    ckpt__index *index;                /* borrowed: that is filled */
    ckpt_entry *entries;
    size_t entry_count, entry_capacity; /* heap: the root's */
    bool bad_index;                     /* salvage: an index file that is none was passed over */
    ckpt__ahead *ahead;                 /* borrowed: files that are read before they are asked for; NULL: none are */
} ckpt__folder_reader;

/* Reads one member by its own format; *part's root is a dict, of tensors too where its file is flat. */
ckpt_status ckpt__folder_part(ckpt__folder_reader *r, uint32_t file, ckpt__index **part, bool *sorted, ckpt_error *err);
/* Takes it into the index under `name`; sorted: the order of its tensors says nothing. */
ckpt_status ckpt__folder_absorb(ckpt__folder_reader *r, ckpt__index *part, const char *name, bool sorted,
                                ckpt_error *err);
/* What the reading of a member found, as findings about that file. */
ckpt_status ckpt__folder_findings(ckpt__folder_reader *r, const ckpt__index *part, const char *name, ckpt_error *err);
ckpt_status ckpt__folder_put(ckpt__folder_reader *r, const char *name, const ckpt_value *value, ckpt_error *err);
/* Reads one member by its own format, and puts it into the index and the root under its name. One that is damaged is a finding
 * where reading goes on. */
ckpt_status ckpt__folder_member(ckpt__folder_reader *r, const ckpt__folder *f, const ckpt__member *m, ckpt_error *err);
/* hf.c: the shards that the index file names, as one dict under the name of the index file. */
ckpt_status ckpt__hf_shards(ckpt__folder_reader *r, uint32_t index_file, const char *name, ckpt_error *err);
/* hf.c: an index file that is not needed, for a whole model lies beside it: is it one? */
ckpt_status ckpt__hf_check(ckpt__folder_reader *r, uint32_t index_file, const char *name, ckpt_error *err);
/* hf.c: shards without an index file: all of them, by their numbers. */
ckpt_status ckpt__hf_loose_shards(ckpt__folder_reader *r, const ckpt__folder *folder, ckpt_error *err);

/* ---- one.c */
ckpt_status ckpt__folder_check_ranks(const ckpt__folder *folder, ckpt_report *findings, ckpt_error *err);
ckpt_status ckpt__folder_check_steps(ckpt__folder_reader *r, const ckpt__folder *folder, ckpt_error *err);
#endif
