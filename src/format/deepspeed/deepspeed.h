/* format/deepspeed/deepspeed.h - checkpoints of DeepSpeed: ZeRO 1, 2 and 3, where each rank has a flat part of the optimizer's state,
 * and universal ones, with a folder for each parameter. They become whole tensors: "W" and "optimizer.W.exp_avg".
 *
 *   deepspeed.c   the formats of the table: the files by their names, reading each
 *   tags.c        the tag: which one is read
 *   names.c       what a file of a tag is, by its name
 *   shapes.c      param_shapes: the parameters in the order in which they are laid out
 *   ranks.c       the optimizer's files: what each says, and that all are of one save
 *   doubles.c     ranks' files that are copies of one another
 *   saves.c       files of different saves, by their steps and by their values
 *   flat.c        masters and moments: pieces of the ranks' flat tensors
 *   rows.c        rows of the index: made, named, kept
 *   parts.c       parts of flat tensors as storages
 *   models.c      the model's files of all ranks, with stage 3
 *   weights.c     the model: what its file holds, or the masters where it holds nothing
 *   universal.c   the folders of a universal checkpoint
 *   values.c      groups, steps, the scaler, and what else the files say
 *
 * Names and orders are those of deepspeed/runtime/engine.py (_save_checkpoint, _save_zero_checkpoint, _get_zero_param_shapes),
 * zero/stage_1_and_2.py and stage3.py (state_dict), runtime/bf16_optimizer.py, checkpoint/constants.py, utils/zero_to_fp32.py and
 * checkpoint/ds_to_universal.py. */
#ifndef CKPT_DEEPSPEED_H
#define CKPT_DEEPSPEED_H
#include "format/folder/folder.h"

/* ---- names.c */
typedef enum ckpt__ds_kind {
    CKPT__DS_NOTHING = 0,
    CKPT__DS_MODEL,    /* mp_rank_00_model_states.pt: stages 0 to 2 */
    CKPT__DS_MODEL_OF, /* zero_pp_rank_1_mp_rank_00_model_states.pt: stage 3 */
    CKPT__DS_OPTIM,    /* [bf16_]zero_pp_rank_1_mp_rank_00_optim_states.pt */
    CKPT__DS_LAYER,    /* layer_03-model_00-model_states.pt: a stage of a pipeline */
    CKPT__DS_EXPERT    /* layer_1_expert_2_mp_rank_00_model_states.pt, expp_rank_0_mp_rank_00_optim_states.pt */
} ckpt__ds_kind;
/* *dp, *mp: the data parallel and the model parallel rank, 0 where the name has none. */
ckpt__ds_kind ckpt__ds_kind_of(const char *name, int64_t *dp, int64_t *mp);
/* torch.save gives an archive the name of its file. So a file that has another rank's name in it is that rank's: CKPT_E_MISMATCH.
 * archive: ckpt__index.archive. One that says nothing of the kind is right. */
ckpt_status ckpt__ds_check_name(const char *name, ckpt_str archive, ckpt_error *err);

/* The files of one tag, by their names. */
typedef struct ckpt__ds_tag {
    bool universal; /* there is a folder zero/ */
    size_t models, models_of, optims, layers, experts;
    int64_t highest, highest_mp; /* of any file; -1: there is none */
    const char *
        *optim; /* heap, owned: name of the file of each rank up to `highest`; NULL: none has it. Names in `arena` */
    const char **model; /* the same of stage 3 */
    const char *plain;  /* mp_rank_00_model_states.pt */
    size_t capacity;
    ckpt__arena *arena; /* borrowed */
} ckpt__ds_tag;
/* below: "global_step3/" or "". Two files of one rank: CKPT_E_FORMAT. Free in any case. */
ckpt_status ckpt__ds_look(const ckpt__source *source, const char *below, ckpt__arena *arena, ckpt__ds_tag *out,
                          ckpt_error *err);
void ckpt__ds_tag_free(ckpt__ds_tag *tag);

/* ---- what is read */
/* A parameter, in the order of param_shapes. A model with w (3 x 4) and b (5) in one group, two ranks, stage 2: w begins at 0 and b
 * at 12 of 17 elements, padded to 20; rank 0 has elements 0 to 9 and rank 1 the others. Stage 3: each rank has 6 elements of w at 0
 * and 3 of b at 6. */
typedef struct ckpt__ds_param {
    ckpt_str name;
    const int64_t *shape;
    uint32_t ndim;
    uint64_t numel;
    size_t group; /* number in param_shapes */
    size_t flat;  /* number of the flat tensors that have it */
    uint64_t at;  /* elements: in the whole group (stages 1, 2), or in each rank's flat tensor (3) */
} ckpt__ds_param;

/* What one rank has of a frozen parameter (stage 3): elements side by side in a storage of the index. */
typedef struct ckpt__ds_fragment {
    size_t storage;
    uint64_t at;    /* bytes */
    uint64_t numel; /* 0: it has none */
    ckpt_dtype dtype;
} ckpt__ds_fragment;

/* One file of a rank. */
typedef struct ckpt__ds_file {
    const char *name;       /* below the source; NULL: no file has the name */
    bool there;             /* it was read */
    const ckpt_value *root; /* NULL: only the fragments are kept of it */
    ckpt__ds_fragment
        *fragments; /* heap, owned: of the model, one an entry of frozen_param_shapes; NULL: there is none */
} ckpt__ds_file;

/* What one rank has of a kind of state of a flat tensor. */
typedef struct ckpt__ds_share_of {
    uint64_t numel;  /* elements side by side; 0: it has none */
    uint64_t begin;  /* of the first in the tensor's storage: bytes */
    uint32_t own;    /* the tensor's storage */
    uint32_t shared; /* that of its pieces (ckpt__ds_all_of); UINT32_MAX: not asked for yet */
} ckpt__ds_share_of;

/* The tensors of all ranks that have one kind of state of a flat tensor. */
typedef struct ckpt__ds_flat {
    ckpt_str key;              /* "exp_avg", as the caller has it; data NULL: the masters */
    uint64_t copy;             /* CKPT__DS_STATE or CKPT__DS_WEIGHT */
    ckpt_dtype dtype;          /* that all have; NONE: no rank has any */
    ckpt__ds_share_of *shares; /* heap, owned: one a rank */
} ckpt__ds_flat;

typedef struct ckpt__ds {
    ckpt__folder_reader reader; /* the index, and the entries of its root */
    const char *label;          /* of the directory */
    const char *below;          /* "global_step3/" or "" */
    const char **tags; /* in the arena: all folders with files of DeepSpeed, by step; NULL: `below` was given */
    size_t tag_count;
    int64_t stage;           /* 0: no file of the optimizer */
    size_t ranks;            /* data parallel */
    ckpt__ds_file model;     /* its root has what is said once; of stage 3 that of the first rank that is there */
    ckpt__ds_file *models;   /* heap, owned: stage 3, one a rank */
    ckpt__ds_file *optims;   /* heap, owned: one a rank */
    const ckpt_value *first; /* optimizer_state_dict of the first rank that is there */
    size_t first_rank;
    ckpt__ds_param *params; /* heap, owned */
    size_t param_count, param_capacity;
    ckpt__hash *by_name; /* owned: parameter's name -> number */
    size_t group_count;  /* of param_shapes */
    size_t flat_count;   /* flat tensors of each rank; with stages 1 and 2 one a group */
    int64_t *ids;        /* heap, owned: the key of each flat tensor's state */
    bool *keep;          /* heap, owned: the index's tensors that stay */
    size_t keep_capacity;
    ckpt__hash *parts; /* owned: {storage, first byte, bytes} -> the storage that is this part of it */
    uint32_t *spans;   /* heap, owned: of each storage 1 + its span; 0: none yet */
    size_t span_capacity;
    ckpt__ds_flat *flats; /* heap, owned: what was looked up of the flat tensor `flat` (flat.c) */
    size_t flat, looked_count, looked_capacity;
    ckpt_entry *beside; /* heap, owned: files beside the tag, and what is in them */
    size_t beside_count, beside_capacity;
    ckpt_entry *numbers; /* heap, owned: the values of states that are no tensors: W -> {"step": 3} */
    size_t number_count, number_capacity;
} ckpt__ds;

static inline ckpt__index *ckpt__ds_index(const ckpt__ds *d)
{
    return d->reader.index;
}
ckpt_status ckpt__ds_no_memory(ckpt_error *err);
/* Is what is missing or damaged a finding, and the rest read? */
bool ckpt__ds_goes_on(const ckpt__ds *d);
/* An error about a file of a rank, or a finding where reading goes on. */
ckpt_status ckpt__ds_lack(const ckpt__ds *d, const char *name, ckpt_status status, const ckpt_error *why,
                          ckpt_error *err);
/* Reads the file into the index; *root is its value tree. */
ckpt_status ckpt__ds_read(ckpt__ds *d, const char *name, const ckpt_value **root, ckpt_error *err);
/* A new tensor that stays, as "name", without its bytes; *number is its own in the index. */
ckpt_status ckpt__ds_add(ckpt__ds *d, ckpt_str name, ckpt_dtype dtype, uint32_t ndim, ckpt_role role, size_t *number,
                         ckpt_error *err);
/* Another row of a tensor that was read, as "name"; it stays. */
ckpt_status ckpt__ds_add_like(ckpt__ds *d, ckpt_str name, size_t tensor, ckpt_role role, size_t *number,
                              ckpt_error *err);
/* One without elements, which no file has to hold. */
ckpt_status ckpt__ds_add_empty(ckpt__ds *d, ckpt_str name, ckpt_dtype dtype, const ckpt__ds_param *p, ckpt_role role,
                               size_t *number, ckpt_error *err);
ckpt_status ckpt__ds_keep(ckpt__ds *d, size_t tensor, ckpt_error *err);
ckpt_status ckpt__ds_put(ckpt__ds *d, const char *key, const ckpt_value *value, ckpt_error *err);
/* "optimizer.W.exp_avg", and what it is. */
ckpt_status ckpt__ds_name_state(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str key, ckpt_str *name, ckpt_error *err);
void ckpt__ds_belongs(ckpt__ds *d, size_t tensor, const ckpt__ds_param *p, ckpt_str key);
/* The row of a TENSOR value; NULL: it is none. */
const ckpt__tensor *ckpt__ds_tensor(const ckpt__ds *d, const ckpt_value *v);
/* Of a dict whose keys are ints, or of a list. NULL: none */
const ckpt_value *ckpt__ds_item(const ckpt_value *container, int64_t key);
/* An int, also the value of an enum's object; -1: it is neither. */
int64_t ckpt__ds_int(const ckpt_value *v);

/* below: the folder of the tag, "" or with a slash at its end; NULL: the one that latest names, or the newest that is whole. */
ckpt_status ckpt__ds_read_at(const ckpt__read_request *request, const char *below, ckpt__index **out, ckpt_error *err);

/* ---- tags.c */
int64_t ckpt__ds_step_of(const char *folder); /* "global_step12/" -> 12; -1: it is not named so */
int ckpt__ds_bid(const ckpt__probe *probe);
/* Sets below, and what the index's job has of it. */
ckpt_status ckpt__ds_find_below(ckpt__ds *d, ckpt_error *err);
/* Where the tag that latest names is not whole, the newest that is has to be named: in the error, or in a finding. status: of
 * reading it, which is returned. */
ckpt_status ckpt__ds_say_whole(ckpt__ds *d, ckpt_status status, ckpt_error *err);

/* ---- shapes.c: fills params, by_name and group_count; of each param all but where it is laid out. */
ckpt_status ckpt__ds_shapes(ckpt__ds *d, const ckpt_value *model, ckpt_error *err);
/* torch.Size((3, 4)) or a tuple of ints; in the arena. */
ckpt_status ckpt__ds_shape(const ckpt__ds *d, const ckpt_value *v, ckpt_str name, const int64_t **shape, uint32_t *ndim,
                           ckpt_error *err);

/* ---- ranks.c: reads all files of the optimizer, and compares what they say. Sets ranks, stage, first and ids. */
ckpt_status ckpt__ds_read_ranks(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err);
const ckpt_value *ckpt__ds_optimizer(const ckpt__ds_file *f); /* optimizer_state_dict; NULL: none */
/* The states of the flat tensors, and the masters, in one rank's optimizer_state_dict. */
const ckpt_value *ckpt__ds_states(const ckpt_value *optimizer);
const ckpt_value *ckpt__ds_masters(const ckpt_value *optimizer);
/* The step that all states have; NULL: they have none, or not one. */
const ckpt_value *ckpt__ds_one_step(const ckpt__ds *d, const ckpt_value *optimizer);
const ckpt_value *ckpt__ds_groups(const ckpt_value *optimizer); /* param_groups; NULL: none */

void ckpt__ds_forget_flats(ckpt__ds *d); /* flat.c */

/* ---- parts.c: the storage that is these bytes of `storage`, and nothing else; `storage` itself where it cannot be divided, or
 * where copy is 0 and it is all of them. Asked twice with one `copy` it is the same one. Tensors of several copies share no storage,
 * though they have the same bytes: a torch file of them has each by itself. */
enum { CKPT__DS_STATE = 0, CKPT__DS_WEIGHT = 1, CKPT__DS_STEP = 2 /* and the tensor's number */ };
ckpt_status ckpt__ds_part(ckpt__ds *d, size_t storage, uint64_t at, uint64_t nbytes, uint64_t copy, size_t *out,
                          ckpt_error *err);
/* The storage that is all bytes of `storage`, for the pieces of tensors that are split: a torch file makes a new storage of each, so
 * they share this one. Of a thousand ranks and a thousand parameters there would be millions of parts. */
ckpt_status ckpt__ds_all_of(ckpt__ds *d, size_t storage, uint64_t copy, size_t *out, ckpt_error *err);
/* Where the ranks' tags say cuda:0, cuda:1, ..., what they hold together is on "cuda". After all tensors are made. */
void ckpt__ds_join_devices(ckpt__ds *d);

/* ---- doubles.c: CKPT_E_MISMATCH naming the two; after ckpt__ds_lay_out */
ckpt_status ckpt__ds_check_doubles(const ckpt__ds *d, ckpt_error *err);

/* ---- saves.c: CKPT_E_MISMATCH naming a file, or a warning; after ckpt__ds_lay_out */
ckpt_status ckpt__ds_check_saves(ckpt__ds *d, ckpt_error *err);
/* Of a universal checkpoint of stages 1 and 2: a finding where masters are not the weights; after all tensors are made. */
ckpt_status ckpt__ds_check_universal(const ckpt__ds *d, ckpt_error *err);
bool ckpt__ds_first_step(const ckpt__ds *d, double *out); /* ranks.c: of the first flat tensor; false: it has none */

/* ---- flat.c */
/* Stages 1 and 2: elements of each rank's part of a flat tensor, its padding too; false: there is none. And the elements of p in a
 * rank's part: n from lo on, which begin at `at` in its flat tensor; false: none. */
bool ckpt__ds_part_size(const ckpt__ds *d, size_t flat, uint64_t *out);
bool ckpt__ds_share(const ckpt__ds *d, const ckpt__ds_param *p, size_t rank, uint64_t part, uint64_t *lo, uint64_t *n,
                    uint64_t *at);
ckpt_status ckpt__ds_lay_out(ckpt__ds *d, ckpt_error *err);
/* Masters and moments of all parameters. */
ckpt_status ckpt__ds_states_fill(ckpt__ds *d, ckpt_error *err);
/* A tensor of the masters' pieces, under the parameter's own name or that of another tied to it. */
ckpt_status ckpt__ds_weight_of_master(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str name, ckpt_error *err);

/* ---- the model's files of all ranks (models.c), and what they have of a frozen parameter of that size (weights.c): stage 3 */
ckpt_status ckpt__ds_read_models(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err);
ckpt_status ckpt__ds_frozen(ckpt__ds *d, ckpt_str name, const ckpt_value *size, ckpt_error *err);

/* ---- weights.c */
ckpt_status ckpt__ds_weights(ckpt__ds *d, ckpt_error *err);

/* ---- universal.c */
ckpt_status ckpt__ds_universal(ckpt__ds *d, const ckpt__ds_tag *tag, ckpt_error *err);

/* ---- values.c. A state of p that is no tensor. */
ckpt_status ckpt__ds_put_number(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str key, const ckpt_value *v,
                                ckpt_error *err);
/* What the model's file holds beside the model, and what lies beside the tag; groups: param_groups; NULL: none is known */
ckpt_status ckpt__ds_values(ckpt__ds *d, const ckpt_value *optimizer, const ckpt_value *groups, ckpt_error *err);
#endif
