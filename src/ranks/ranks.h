/* ranks/ranks.h - the files of the ranks of any program, put together as a layout says it (ckpt-layout(5), FILES OF RANKS).
 *
 *   ranks.c    the order of work, and the index in the end
 *   files.c    which files there are, and which there must be; reading them
 *   names.c    what the layout calls each tensor of a file
 *   stages.c   a pipeline: the names of each stage in the whole model, and the optimizers of the stages
 *   merge.c    the trees of all ranks -> one: dicts and lists
 *   leaves.c   their values and tensors
 *   native.c   files that this library has written
 *   flat.c     flat buffers of an optimizer (flat.h)
 *   alike.c    have ranks the same values, and the same bytes?
 *   parts.c    the parts of all ranks -> a tensor in pieces
 *   fill.c     the rows of the index, by the tree
 *
 * An example: {dp: 2, tp: 2}, "rank_<dp>_<tp>.pt", and w cut along dimension 0 by tp. There are four files, each a dict {model: {w: ...}}.
 * Their rows are taken into one index. The tree that comes of theirs has one tensor w, of the pieces that the ranks 0 and 1 have;
 * those of the ranks 2 and 3 are compared with them. The rows of the files are left out in the end. */
#ifndef CKPT_RANKS_H
#define CKPT_RANKS_H
#include "format/folder/folder.h"
#include "layout/rank_files.h"
#include "layout/ranks.h"

/* Borrowed, all of it. */
typedef struct ckpt__ranks_request {
    const ckpt__layout *layout;
    unsigned side;
    const char *const *vars; /* "name=number" */
    size_t var_count;
    const char *const
        *param_names; /* the order of the optimizer's parameters, of the whole model; NULL: the files tell it */
    size_t param_name_count;
    const char *assume_order; /* NULL: none */
    ckpt_report *report;      /* gets what is wrong, and notes: "ranks-wrong", "ranks" */
} ckpt__ranks_request;

/* Has the source a file of such a name? */
ckpt_status ckpt__ranks_are_there(const ckpt__source *source, const ckpt__files_of_ranks *files, bool *found,
                                  ckpt_error *err);
/* The source is a directory. The index has format "ranks". CKPT_E_MISMATCH: all that is wrong is in the report. */
ckpt_status ckpt__ranks_read(ckpt__source *source, const ckpt__ranks_request *request, ckpt__index **out,
                             ckpt_error *err);

/* ---- between the files of this room */

/* A file of one rank, or of all ranks that differ along axes that are not in its name. */
typedef struct ckpt__ranks_file {
    const char *name;            /* in the index's arena */
    int64_t at[CKPT__MESH_AXES]; /* 0 along axes that are not in its name */
    uint32_t rank;               /* of the mesh, at those */
    const ckpt_value *root;      /* in the index's arena, without what lies flat */
    const ckpt_value *whole;     /* the same with it */
    size_t first, count;         /* its rows in the index */
    int64_t step;                /* that the file says beside its values; -1: it does not */
    bool native;                 /* this library has written it */
} ckpt__ranks_file;

/* The files of one form, sorted by rank. */
typedef struct ckpt__ranks_group {
    const ckpt__file_form *form;
    ckpt__ranks_file *files; /* heap, owned */
    size_t count, capacity;
    bool along[CKPT__MESH_AXES]; /* the axes in its names */
} ckpt__ranks_group;

/* What the layout calls a tensor that a file has. */
typedef struct ckpt__ranks_name {
    ckpt_str own;   /* as the file has it: "optim.state.0.exp_avg". This and the others lie in the work's arena */
    ckpt_str param; /* "layers.0.w", counted over all stages; of a tensor that is outside of the model its own name */
    ckpt_str shown; /* "optimizer.layers.0.w.exp_avg" */
    uint32_t ndim;
    int64_t *shape; /* of the first rank's */
    bool inside;    /* of the model, or of its optimizer */
    bool state;     /* of the optimizer: param is whose */
    bool step;      /* it counts */
    bool buffer;    /* no parameter */
    ckpt_str local; /* param as the files have it */
} ckpt__ranks_name;

/* What one rank has of a tensor. */
typedef struct ckpt__ranks_part {
    const ckpt__ranks_file *file;
    size_t row;
} ckpt__ranks_part;

/* A tensor of the model, of its optimizer, or of an entry of `shard`. */
typedef struct ckpt__ranks_tensor {
    const ckpt__ranks_group *group;
    ckpt__ranks_name name;
    size_t first, count; /* parts[first ...] of the work, one a file, sorted by rank */
    size_t stage;
    const struct ckpt__flat_state *flat; /* what a flat buffer has of a parameter; NULL: it lies in no buffer */
    bool alone;                          /* it shares no storage with another tensor */
    size_t shard;   /* the entry of the layout that cuts it; SIZE_MAX: none does, all ranks have the same */
    int64_t *shape; /* of the whole, in the work's arena; NULL: it is not known, which was said */
} ckpt__ranks_tensor;

/* Two tensors of the work that are one, each of another stage. */
typedef struct ckpt__ranks_twin {
    size_t one, other;
} ckpt__ranks_twin;

/* The work. */
typedef struct ckpt__ranks {
    const ckpt__ranks_request *request;
    const ckpt__files_of_ranks *files;
    ckpt__source *source;
    ckpt__index *index;
    ckpt__folder_reader reader;
    ckpt__rank_mesh mesh;
    ckpt__ranks_group groups[CKPT__FILE_FORMS];
    size_t group_count;
    ckpt__arena *arena;    /* owned */
    ckpt__hash **by_own;   /* heap, owned: of each stage: name in its files -> names */
    ckpt__hash **by_param; /* the same: name of a parameter or a buffer in the whole model -> names */
    ckpt__ranks_name *names;
    size_t name_count, name_capacity; /* heap, owned */
    ckpt_str optimizer;               /* where it lies in the tree; data NULL: there is none */
    ckpt__ranks_part *parts;
    size_t part_count, part_capacity; /* heap, owned */
    ckpt__ranks_tensor *tensors; /* heap, owned. A TENSOR value of row_count + i is tensors[i] until it is filled */
    size_t tensor_count, tensor_capacity;
    size_t row_count;   /* rows of all files */
    size_t stage_count; /* 1: there is no pipeline */
    int64_t
        *layers; /* heap, owned: of stage s those that it counts from 0 are layers[layer_first[s] ...] of the whole */
    size_t *layer_first;
    ckpt__ranks_twin *twins;
    size_t twin_count, twin_capacity; /* heap, owned: to be compared */
    bool *shares;                     /* heap, owned: one a name of `shared` */
    ckpt__layout_match *given;        /* owned: the variables that are known without a shape */
    uint64_t flat_forms[CKPT__FLATS]; /* of each flat buffer: bits of the forms of `order` that have a parameter */
    ckpt__layout_match *vars;         /* owned: the variables, once the shapes are known */
    bool *used;                       /* heap, owned: one an entry of `shard` */
    bool *owned;                      /* heap, owned: one a name of `own` */
    bool native;                      /* all files are this library's */
    size_t differ;                    /* values that each rank has for itself */
    size_t wrong;                     /* errors in the report */
    ckpt_error *err;
} ckpt__ranks;

ckpt_status ckpt__ranks_no_memory(ckpt_error *err);
/* An error in the report; of a file, a tensor or a key (data NULL: of none). The work goes on. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__ranks_wrong(ckpt__ranks *r, const char *file, ckpt_str name, const char *format, ...)
    CKPT__PRINTF(4, 5);
/* "rank 3 (dp=1, tp=1)", for messages. */
const char *ckpt__ranks_rank_text(const ckpt__ranks *r, const ckpt__ranks_file *f, char *out, size_t size);

/* files.c */
ckpt_status ckpt__ranks_list(ckpt__ranks *r); /* and the mesh */
ckpt_status ckpt__ranks_read_files(ckpt__ranks *r);
/* names.c */
ckpt_status ckpt__ranks_find_names(ckpt__ranks *r);
/* What a stage's files have; NULL: no tensor of them has that name */
const ckpt__ranks_name *ckpt__ranks_name_of(const ckpt__ranks *r, size_t stage, ckpt_str own);
/* The parameter of a state; NULL: the files have none of that name. */
const ckpt__ranks_name *ckpt__ranks_param_of(const ckpt__ranks *r, size_t stage, const ckpt__ranks_name *state);
/* stages.c: which layers of the whole those of each stage are; by the trees of the files, which were read. */
ckpt_status ckpt__ranks_find_stages(ckpt__ranks *r);
/* Is a file of the stage? One whose name does not say it is of the first. */
bool ckpt__ranks_in_stage(const ckpt__ranks *r, const ckpt__ranks_file *f, size_t stage);
/* A name in a stage's files -> that of the whole model: itself, or another one in the index's arena. Data NULL: no memory. */
ckpt_str ckpt__ranks_global(const ckpt__ranks *r, size_t stage, ckpt_str name);
/* merge.c: the root, and `tensors` */
ckpt_status ckpt__ranks_merge(ckpt__ranks *r);
/* alike.c */
ckpt_status ckpt__ranks_alike(ckpt__ranks *r, const ckpt_value *a, const ckpt_value *b, bool *same);
/* Have two rows the same elements? *at: the first that differs. The shapes are the same. */
ckpt_status ckpt__ranks_same_bytes(ckpt__ranks *r, size_t a, size_t b, bool *same, uint64_t *at);
/* parts.c: first the shapes of all, then the variables, then the pieces of one */
ckpt_status ckpt__ranks_shape(ckpt__ranks *r, ckpt__ranks_tensor *t);
ckpt_status ckpt__ranks_find_vars(ckpt__ranks *r);
/* Row `row`, whose name is there, becomes the tensor. *made false: it cannot, which was said. */
ckpt_status ckpt__ranks_join(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t row, bool *made);
/* Its pieces are known. */
ckpt_status ckpt__ranks_set(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t row, const ckpt__piece *pieces,
                            size_t count);
/* flat.c: after the files were read; the tree of one that was read, without what lies flat; once the model's tensors are known */
ckpt_status ckpt__flat_open(ckpt__ranks *r);
ckpt_status ckpt__flat_without(ckpt__ranks *r, const ckpt__ranks_group *g, const ckpt_value *root, ckpt__arena *arena,
                               const ckpt_value **out);
ckpt_status ckpt__flat_graft(ckpt__ranks *r, const ckpt__ranks_group *group, size_t stage, const ckpt_value **root);
/* native.c: once the files were read; and of an index of native files the tree without tensors, which are not in it */
ckpt_status ckpt__ranks_open_native(ckpt__ranks *r);
ckpt_status ckpt__ranks_drop_tensors(const ckpt__ranks *r, ckpt__index *index);
/* fill.c */
ckpt_status ckpt__ranks_fill(ckpt__ranks *r);
#endif
