/* format/native/values.h - the value tree as JSON, and back.
 *
 * None, bool, str, finite float (always with '.' or 'e'), integers up to 2^53, lists, and dicts with distinct string
 * keys that do not begin with '$' are plain JSON. All else is an object whose first member is "$":
 *   {"$":"int","v":"9007199254740993"}    {"$":"float","v":"nan"}    {"$":"str","hex":"eda080"} (not UTF-8)
 *   {"$":"bytes","hex":"00ff"}  {"$":"bytes","blob":0}     and "bytearray"
 *   {"$":"tuple","items":[...]}  {"$":"list","blob":1}
 *   {"$":"dict","class":"collections.OrderedDict","entries":[[k,v],...]}
 *   {"$":"object","class":"m.C","args":...,"state":...,"items":[...],"entries":[[k,v],...]}
 *   {"$":"array","dtype":"<f4","shape":[2],"fortran":false,"hex":"..."}  {"$":"class","class":"torch.float32"}
 *   {"$":"tensor","n":3}  {"$":"tensor","name":"wte.weight"} (in another file of the same checkpoint)
 * "state" may stand in list, dict and object. What is reached more than once has an "id" as its second member (0, 1,
 * ... in the order of the text) and stands as {"$":"ref","id":0} afterwards: so sharing and cycles survive.
 * Long bytes and long lists of numbers lie outside, as blobs. man/ckpt-format.5 is the specification. */
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H
#include "codec/json.h"
#include "model/index.h"

enum {
    CKPT__BLOB_BYTES = 64,  /* bytes longer than this become blobs */
    CKPT__BLOB_NUMBERS = 32 /* lists and tuples of at least so many numbers, too */
};

typedef struct ckpt__values_writer {
    /* Appends `"n":3` or `"name":"..."` for a tensor of the index. */
    ckpt_status (*tensor)(void *ctx, size_t number, ckpt__buf *out, ckpt_error *err);
    /* Takes a blob of U8, I64 or F64; data lives as long as the tree or the arena. */
    ckpt_status (*blob)(void *ctx, ckpt_dtype dtype, const char *data, size_t size, uint64_t *number, ckpt_error *err);
    void *ctx;
    ckpt__arena *arena; /* for the elements of lists that become blobs */
} ckpt__values_writer;
/* Appends the text to out. CKPT_E_LIMIT: nested too deeply for the format. */
ckpt_status ckpt__values_write(const ckpt_value *root, const ckpt__values_writer *w, ckpt__buf *out, ckpt_error *err);

typedef struct ckpt__values_reader {
    /* Finishes the TENSOR value v: n >= 0, or a name (n is -1). */
    ckpt_status (*tensor)(void *ctx, int64_t n, ckpt_str name, ckpt_value *v, ckpt_error *err);
    /* The bytes of a blob, in the arena; each may be asked for once. */
    ckpt_status (*blob)(void *ctx, int64_t number, ckpt_dtype *dtype, const char **data, size_t *size, ckpt_error *err);
    void *ctx;
    ckpt__arena *arena; /* of the values; its limit is what bounds them */
} ckpt__values_reader;
ckpt_status ckpt__values_read(const char *text, size_t size, const ckpt__values_reader *r, const ckpt_value **root,
                              ckpt_error *err);

/* 1: a string key occurs twice (*which), 0: not, -1: no memory. */
int ckpt__values_twice(const ckpt_entry *entries, size_t n, ckpt_str *which);
#endif
