/* format/twins.h - files of many ranks that say the same. With stage 3 of DeepSpeed each of a thousand ranks has all names of the model,
 * in a pickle that is the others' byte for byte, or that of the other ranks with the same number of a device. What such a pickle
 * comes to is made once. */
#ifndef CKPT_TWINS_H
#define CKPT_TWINS_H
#include "model/index.h"

/* What was read of one file, and the pickle that it was made of. Nothing in it changes. */
typedef struct ckpt__twin {
    ckpt__buf pickle;
    ckpt__index *index; /* held */
    bool big_endian;    /* as the archive says: the pickle does not */
} ckpt__twin;

/* Threads may share it. Each index that was made of a twin borrows that one's tensors and values: free those indexes before this. */
typedef struct ckpt__twins ckpt__twins;
ckpt__twins *ckpt__twins_new(void); /* NULL: no memory. Then each file is read by itself */
void ckpt__twins_free(ckpt__twins *twins);
/* NULL: none with this pickle was kept. */
const ckpt__twin *ckpt__twins_find(ckpt__twins *twins, const ckpt__buf *pickle, bool big_endian);
/* Takes the bytes from *pickle, and holds the index: it stays when whoever asked for it frees it. A few are kept: what comes
 * then is left as it was. */
void ckpt__twins_keep(ckpt__twins *twins, ckpt__buf *pickle, bool big_endian, ckpt__index *index);
#endif
