/* layout/rank_files.h - the files of the ranks of one program, as a layout says it (ckpt-layout(5), FILES OF RANKS): what they are
 * called, and what each rank has for itself. Which part of a tensor a rank has says mesh.h.
 *
 *     files: {model: "model_<tp:02>.pt", optim: "optim_<dp>_<tp:02>.pt"}
 *
 * has two forms, of the keys "model" and "optim". The file optim_1_03.pt is of dp 1, tp 3. Names are below the source, and may lead
 * into folders. */
#ifndef CKPT_LAYOUT_RANK_FILES_H
#define CKPT_LAYOUT_RANK_FILES_H
#include "layout/formula.h"
#include "layout/layout.h"
#include "layout/mesh.h"

enum {
    CKPT__FILE_FORMS = 8,             /* of one side, at most */
    CKPT__FILE_DEPTH = 8,             /* folders of a name, with the file */
    CKPT__FILE_WIDTH = 9,             /* digits that a number is filled up to, at most */
    CKPT__STAGES = 1 << 12,           /* of a pipeline, at most */
    CKPT__FILE_RANK = CKPT__MESH_AXES /* a number that is the rank, row by row of the mesh */
};

/* A part of a name: a text, or a number. */
typedef struct ckpt__file_part {
    ckpt_str text; /* data NULL: a number */
    size_t axis;   /* of a number: of the mesh, or CKPT__FILE_RANK */
    size_t width;  /* digits at least, with zeros in front; 1: no zeros */
} ckpt__file_part;

/* All lies in the arena of the layout. */
typedef struct ckpt__file_form {
    size_t line, column;
    ckpt_str key;  /* under which the joined checkpoint has what is in them; data NULL: they are all of it */
    ckpt_str text; /* as it was written */
    ckpt__file_part *parts;
    size_t count;
    bool has[CKPT__MESH_AXES + 1]; /* which numbers stand in it */
} ckpt__file_form;

/* Names of tensors, keys and values. */
typedef struct ckpt__name_list {
    const struct ckpt__name_form *forms;
    size_t count;
} ckpt__name_list;

/* A pipeline: each stage has layers of its own. */
typedef struct ckpt__rank_stages {
    bool there;
    size_t line, column;
    size_t axis;            /* of the mesh: one coordinate a stage */
    bool local;             /* each stage counts its layers from 0; else names are those of the whole model */
    ckpt__name_list layers; /* local: of names that hold the number of a layer, the only number that each captures */
    ckpt__formula *sizes;   /* local: layers of each stage; NULL: as many as its files have */
    size_t size_count;
    int64_t *
        numbers; /* local: which layers of the whole each stage has, all of stage 0, then those of stage 1, ... NULL: they follow
                       * one another */
    size_t *number_counts, number_stages; /* how many each has */
    ckpt__name_list shared;               /* of tensors that several stages have */
} ckpt__rank_stages;

enum { CKPT__FLATS = 16, CKPT__FLAT_BUFFERS = 16 };

/* How the parameters follow one another in a flat buffer. */
typedef enum ckpt__flat_order {
    CKPT__FLAT_MODEL,  /* as in the model of the files */
    CKPT__FLAT_SORTED, /* by their names there */
    CKPT__FLAT_LISTED, /* as a list in the files says, at a path */
    CKPT__FLAT_FORMS   /* by the first form that has the name; those of one form as in the model */
} ckpt__flat_order;

/* A buffer of an optimizer in one dimension, with what it has of all parameters of a rank, one behind the other; the ranks along an
 * axis have parts of it. */
typedef struct ckpt__flat_buffer {
    ckpt_str key;  /* of the state that it becomes: exp_avg */
    ckpt_str path; /* where it lies in the files */
} ckpt__flat_buffer;
typedef struct ckpt__rank_flat {
    size_t line, column;
    size_t axis;
    ckpt__rank_cut_as as;
    ckpt_str in; /* the path of the dict that gets the optimizer, with a state for each parameter */
    ckpt__flat_buffer *buffers;
    size_t buffer_count;
    ckpt_str step, group; /* paths: of what becomes the step of each, and of their settings; data NULL: none */
    ckpt__flat_order order;
    ckpt_str listed;        /* FLAT_LISTED: its path */
    ckpt__name_list forms;  /* FLAT_FORMS */
    ckpt__formula align;    /* each parameter begins at a multiple of so many elements; count 0: of 1 */
    ckpt__formula multiple; /* AS_EVEN: the part of each rank has a multiple of so many; count 0: of 1 */
} ckpt__rank_flat;

typedef struct ckpt__files_of_ranks {
    size_t line, column;
    ckpt__file_form *forms;
    size_t count;
    bool first;          /* of replicas the first rank's are taken, and the others are not looked at */
    ckpt__name_list own; /* of what each rank has another of for itself */
    size_t own_line, own_column;
    ckpt__rank_stages stages;
    ckpt__rank_flat *flats;
    size_t flat_count;
} ckpt__files_of_ranks;

/* NULL: the layout says none for the side. */
const ckpt__files_of_ranks *ckpt__layout_files(const ckpt__layout *layout, unsigned side);
/* The axes of a side's mesh; the size of one that is left to the names of the files is -1, that of another 0: it is an expression. Returns how
 * many there are. */
size_t ckpt__layout_axes(const ckpt__layout *layout, unsigned side, ckpt__rank_axis out[CKPT__MESH_AXES]);
/* The axis and the dimension of each cut of an entry of `shard`. Returns how many there are. */
size_t ckpt__layout_shard_axes(const ckpt__layout *layout, unsigned side, size_t shard, size_t axes[CKPT__MESH_AXES],
                               uint32_t dims[CKPT__MESH_AXES]);
/* The name with these coordinates, one an axis, appended. */
void ckpt__file_form_fill(const ckpt__file_form *form, const ckpt__rank_mesh *mesh, const int64_t *coordinates,
                          ckpt__buf *out);
/* How many names of folders it is, with the file's. */
size_t ckpt__file_form_depth(const ckpt__file_form *form);
/* Is that a name of its folder (or file) of this depth, from 0? numbers[axis], and numbers[CKPT__FILE_RANK], get what stands there; one
 * that is set (0 or more) has to be the same. */
bool ckpt__file_form_match(const ckpt__file_form *form, size_t depth, ckpt_str name, int64_t *numbers);
/* The number of a layer in the name, of digits [*at, *at + *digits): of the first form of the list that has the name. False: none has it. */
bool ckpt__name_list_number(const ckpt__name_list *list, ckpt_str name, int64_t *number, size_t *at, size_t *digits);
/* Of a list the one form. */
ckpt__name_list ckpt__name_list_one(const ckpt__name_list *list, size_t i);
/* The number of the list's form that has the name; list->count: none has it. */
size_t ckpt__name_list_find(const ckpt__name_list *list, ckpt_str name);
#endif
