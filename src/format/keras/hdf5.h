/* format/keras/hdf5.h - what the sources that call libhdf5 share. Nothing else includes it. */
#ifndef CKPT_HDF5_H
#define CKPT_HDF5_H
#include "format/keras/hdf5_library.h"
#include "format/keras/keras.h"

/* Limits, each far beyond what Keras writes. */
enum {
    CKPT__H5_DEPTH = 128,        /* groups in one another */
    CKPT__H5_ATTRIBUTES = 4096,  /* of one object */
    CKPT__H5_ITEMS = 65536,      /* of an attribute that is an array */
    CKPT__H5_CHUNKS = 1 << 20,   /* of a dataset */
    CKPT__H5_DECODED = 64 << 20, /* bytes that libhdf5 decodes while a file is opened, all together */
    CKPT__H5_TEXT = 64 << 20,    /* bytes of one text */
    CKPT__H5_TEXTS = 16 << 20    /* bytes of the texts of one attribute that is an array */
};

/* One file that is open. libhdf5 gets its bytes by read() of driver.c alone. */
typedef struct ckpt__h5 {
    const ckpt__h5_input *in; /* borrowed */
    ckpt__index *index;       /* borrowed: that is filled */
    ckpt__keras_values *values;
    hid_t driver, file;
    ckpt__hash *seen;      /* owned: the address of an object -> 0 for a group, else 1 + the number of its tensor */
    uint64_t decoded;      /* bytes that libhdf5 has decoded */
    uint64_t budget;       /* bytes that libhdf5 may still read: what goes around in a circle ends here */
    uint64_t heap_most;    /* the largest collection of texts that it may read now */
    uint64_t heap_largest; /* the largest that it has read: it may have kept it */
    ckpt_error io;         /* of the first read that failed for a reason of its own */
    ckpt_status io_status; /* CKPT_OK: none did */
    bool decoding;         /* a dataset is: raw data is read */
    bool out_of_budget, heap_refused;
} ckpt__h5;

/* driver.c. One thread at a time is between enter and leave: what they set of libhdf5's own is set back. */
ckpt_status ckpt__h5_enter(const char *label, ckpt_error *err);
void ckpt__h5_leave(void);
/* Before `close` all objects of the file are closed. */
ckpt_status ckpt__h5_open(ckpt__h5 *h, ckpt_error *err);
void ckpt__h5_close(ckpt__h5 *h);

/* What a call of libhdf5 failed for: our own reason where a read had one, else the innermost line of its error stack. Called at
 * once, for the next call clears that. what: "dataset 'a/b'". */
ckpt_status ckpt__h5_fail(ckpt__h5 *h, const char *what, ckpt_error *err);

/* dataset.c: adds the open dataset as a tensor of that name. */
ckpt_status ckpt__h5_dataset(ckpt__h5 *h, hid_t set, ckpt_str path, ckpt_error *err);
/* attribute.c: the attributes of an open object. Texts that are alone wait until the last arrays are read: see there. */
typedef struct ckpt__h5_later {
    ckpt_str path, name; /* in the index's arena */
    size_t entry;        /* of h->values, whose value is not set yet */
} ckpt__h5_later;
typedef struct ckpt__h5_laters {
    ckpt__h5_later *items;
    size_t count, capacity; /* heap, owned */
} ckpt__h5_laters;
ckpt_status ckpt__h5_attributes(ckpt__h5 *h, hid_t object, ckpt_str path, uint64_t count, ckpt__h5_laters *laters,
                                ckpt_error *err);
ckpt_status ckpt__h5_read_later(ckpt__h5 *h, const ckpt__h5_laters *laters, ckpt_error *err);
#endif
