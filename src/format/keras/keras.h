/* format/keras/keras.h - what Keras saves: .keras archives and weight files of Keras 3, HDF5 files of Keras 2.
 *
 *   keras.c       files: an archive (config.json, metadata.json, model.weights.h5), or HDF5 alone
 *   shards.c      a directory: of weight files that model.weights.json names, or of what an archive has
 *   roles.c       what a tensor is to training, by its place in the file
 *   optimizer.c   the variables of an optimizer, by their order
 *   hdf5.c        one HDF5 file: groups, datasets and attributes, in the order of their names
 *   dataset.c     a dataset as a tensor: its extent, its chunks as pieces, or a decoded copy
 *   attribute.c   an attribute as a value
 *   driver.c      libhdf5 reads by positional reads of ours, below a file of the source or in memory
 *   no_hdf5.c     in place of the last four where libhdf5 is not built in
 *
 * Names: keras/src/saving/saving_lib.py (Keras 3), keras/src/legacy/saving/legacy_h5_format.py (Keras 2). */
#ifndef CKPT_KERAS_H
#define CKPT_KERAS_H
#include "format/format.h"

/* The members of an archive, and the files of a directory that is one unpacked (save_model with zipped=False). */
#define CKPT__KERAS_CONFIG "config.json"
#define CKPT__KERAS_METADATA "metadata.json"
#define CKPT__KERAS_WEIGHTS "model.weights.h5"

/* Where an HDF5 file is: a stretch of a file of the source, or in memory where a zip had it deflated. */
typedef struct ckpt__h5_input {
    const ckpt__source *source;  /* borrowed, as all here */
    uint32_t file;               /* number in the source */
    uint64_t offset, size;       /* bytes, from the first of the file */
    const unsigned char *memory; /* not NULL: its `size` bytes, in the index's arena */
    const char *label;           /* of the file, for messages */
    bool spanned;                /* it is a span of the index, `span` its number there */
    uint32_t span;
    ckpt_str shard; /* its name, where it is one of several; data NULL: it is not */
} ckpt__h5_input;

/* The entries that become the root's: {"layers/dense/vars@name": "head", "config.json": {...}}. */
typedef struct ckpt__keras_values {
    ckpt_entry *entries;
    size_t count, capacity; /* heap, owned */
} ckpt__keras_values;
ckpt_status ckpt__keras_put(ckpt__index *index, ckpt__keras_values *values, ckpt_str key, const ckpt_value *value,
                            ckpt_error *err);

/* Adds each dataset as a tensor whose name is its path ("layers/dense/vars/0"), and each attribute as a value: "<path>@<name>".
 * Strings of an array become one text, as NumPy prints it. CKPT_E_DAMAGED: the structure is not true; CKPT_E_UNSUPPORTED: links
 * that lead out of the file or around in it, external and virtual datasets, elements that are no numbers, an unknown filter;
 * CKPT_E_LIMIT: more than the arena or the limits of hdf5.h allow. One thread at a time is in here: libhdf5 asks for that. */
ckpt_status ckpt__h5_read(const ckpt__h5_input *input, ckpt__index *index, ckpt__keras_values *values, ckpt_error *err);

/* shards.c */
int ckpt__keras_bid_directory(const ckpt__probe *probe);
ckpt_status ckpt__keras_read_directory(const ckpt__read_request *request, ckpt__index *index,
                                       ckpt__keras_values *values, ckpt_error *err);

/* Does the name end in .weights.json, and the head begin a map of shards? Then the map stands for its directory. */
bool ckpt__keras_is_map(const ckpt__probe *probe);
ckpt_status ckpt__keras_read_map(const ckpt__read_request *request, ckpt__index *index, ckpt__keras_values *values,
                                 ckpt_error *err);

/* roles.c: gives roles, state keys and parameters to the tensors of an index that is read; config (may be NULL) is what
 * config.json holds, or model_config of Keras 2. What the file does not tell stays unknown. */
ckpt_status ckpt__keras_roles(ckpt__index *index, const ckpt__keras_values *values, ckpt_error *err);
#endif
