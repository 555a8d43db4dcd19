/* format/megatron/megatron.h - checkpoints of Megatron-LM and megatron-core, in their two layouts:
 *
 *   latest_checkpointed_iteration.txt         "5", or "release"; written last
 *   iter_0000005/                             torch-dist                               (release/ is named so)
 *       .metadata, __<rank>_<i>.distcp        a distributed checkpoint of PyTorch (format/dcp)
 *       common.pt                             what all ranks have the same: arguments, iteration, the optimizer's groups
 *       metadata.json                         {"sharded_backend": "torch_dist", ...}
 *   iter_0000005/                             megatron: a folder for each part of the model
 *       mp_rank_<tp>[_<pp>][_<ep>]/model_optim_rng.pt   the part of one tensor-parallel, pipeline and expert-parallel rank
 *       mp_rank_<tp>[_<pp>][_<ep>]/distrib_optim.pt     what the distributed optimizer has of it, flat
 *
 *   megatron.c   the formats of the table: bids, which step is read
 *   dist.c       torch-dist: the list's tensors and what is in common.pt
 *   keys.c       torch-dist: which key a parameter has
 *   space.c      torch-dist: moments that lie in fragments (fully_sharded_model_space) -> the parameters' own shapes
 *   ranks.c      megatron: the files of all ranks: which there are, which there must be
 *   check.c      megatron: whether they are of one save
 *   rules.c      megatron: how a parameter is cut, by its name and by what the file says
 *   join.c       megatron: the parts of all ranks -> one tensor for each parameter
 *   optim.c      megatron: an optimizer's numbers -> the parameters that they stand for
 *   values.c     megatron: what is no tensor, once where all ranks have the same
 *
 * [megatron/training/checkpointing.py: get_checkpoint_name, save_checkpoint; megatron/core/dist_checkpointing;
 * megatron/core/optimizer/distrib_optimizer.py] */
#ifndef CKPT_MEGATRON_H
#define CKPT_MEGATRON_H
#include "format/dcp/read.h"
#include "format/format.h"

/* Where in a source's directory a checkpoint is. */
typedef struct ckpt__meg_place {
    char folder[48];   /* "", "iter_0000005/" or "release/" */
    int64_t iteration; /* that the folder's name says; -1: it says none */
    bool dist;         /* torch-dist, by the names of its files */
} ckpt__meg_place;

ckpt_status ckpt__meg_no_memory(ckpt_error *err);
/* One file by its own format, as an index in `arena`. name: below the source's directory. */
ckpt_status ckpt__meg_part(const ckpt__read_request *request, const char *name, ckpt__index *into, ckpt__index **part,
                           ckpt_error *err);
/* Takes a part in; its findings get the name. part belongs to `into` then, also on failure. */
ckpt_status ckpt__meg_absorb(ckpt__index *into, ckpt__index *part, const char *name, ckpt_error *err);
/* The integer at a key of a dict, or of an object's attributes; false: there is none. */
bool ckpt__meg_int(const ckpt_value *dict, const char *key, int64_t *out);
/* "optimizer.state.exp_avg.<parameter>" and the like, of a name of torch-dist: the parameter, and what it is of it. False: it is none. */
bool ckpt__meg_moment(ckpt_str name, ckpt_str *param, ckpt_str *kind, ckpt_role *role);
/* The arguments say how many rows of a vocabulary are no padding: a note says it of the tensors that have more. */
ckpt_status ckpt__meg_note_vocabulary(ckpt__index *index, const ckpt_value *args, ckpt_error *err);

/* The facts of a model that decide which keys it has. */
typedef struct ckpt__meg_model {
    bool apart;      /* each layer has keys of its own */
    bool norm_alone; /* there are experts, and the layers are Transformer Engine's */
    int64_t layers, experts;
} ckpt__meg_model;

/* keys.c: the key of a parameter of the GPT model. */
typedef struct ckpt__meg_key {
    char text[200];
    int64_t layer, expert; /* which it is of; -1: of none */
} ckpt__meg_key;

/* False: the name is none of that model's. */
bool ckpt__meg_key_of(ckpt_str name, const ckpt__meg_model *model, ckpt__meg_key *out);
/* The same of what a module keeps beside its parameters: "decoder.layers.3.<module>._extra_state". */
bool ckpt__meg_extra(ckpt_str name, const ckpt__meg_model *model, ckpt__meg_key *out);
/* The name says of its layer that it has experts, and that its norms have the names of fused layers. False: it is of no layer. */
bool ckpt__meg_tells(ckpt_str name, int64_t *layer, bool *experts, bool *fused);
/* Is the key of the experts of a layer, or of all; is it of all layers? Then its tensors have a dimension more for it. */
bool ckpt__meg_is_expert_key(ckpt_str key);
bool ckpt__meg_is_layer_key(ckpt_str key);
/* The key of the extra state that each linear layer of the stack has, by the key of its weight. False: it is no such weight. */
bool ckpt__meg_extra_of(ckpt_str key, char *extra, size_t size);

/* dist.c, and ranks.c: a checkpoint as an index; *out is NULL on failure. */
ckpt_status ckpt__meg_read_dist(const ckpt__read_request *request, const ckpt__meg_place *place, ckpt__index **out,
                                ckpt_error *err);
ckpt_status ckpt__meg_read_ranks(const ckpt__read_request *request, const ckpt__meg_place *place, ckpt__index **out,
                                 ckpt_error *err);
/* space.c: gives the moments of a model-space optimizer the shapes of their parameters, where those can be proved; the others stay as
 * they are, with a finding. model_space: the optimizer's values say that it is one. */
ckpt_status ckpt__meg_unfold(ckpt__index *index, const ckpt__dcp_wholes *wholes, bool model_space, ckpt_error *err);
#endif
