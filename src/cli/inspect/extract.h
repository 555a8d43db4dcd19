/* cli/inspect/extract.h - the parts of extract: which tensors, as what, into which file. */
#ifndef CKPT_CLI_INSPECT_EXTRACT_H
#define CKPT_CLI_INSPECT_EXTRACT_H
#include "cli/inspect/inspect.h"
#include "cli/out/file.h"

/* The tensors that the NAMEs of the command line name, each once: in the order of the NAMEs, and of the file where one is a
 * glob. */
typedef struct chosen {
    size_t *tensors; /* numbers of the reader; owned, for free() */
    size_t count;
    bool by_glob; /* one of the NAMEs is a glob */
} chosen;
/* -1: some are; else the exit status, the error said. */
int extract_choose(const command_line *o, const ckpt_reader *reader, chosen *out);

/* numpy's name of a dtype ("<f4"); NULL where numpy has none. */
const char *extract_numpy(ckpt_dtype dtype);
/* What --upcast writes for it: float32 for what numpy has no name for and float32 holds exactly, else the dtype itself. */
ckpt_dtype extract_upcast(ckpt_dtype dtype);
/* size bytes at data + room - size, elements of `from`, become float32 from data on; room is 4 for each of them. */
void extract_to_float32(ckpt_dtype from, char *data, size_t size, size_t room);

/* The head of an .npy 1.0 of the tensor in that dtype: *length bytes. False: its shape does not fit into `size`. */
bool extract_npy_head(const ckpt_tensor_info *t, ckpt_dtype dtype, char *out, size_t size, size_t *length);

/* The elements of --head, on standard output. */
int extract_head(const command_line *o, const ckpt_reader *reader, const chosen *all);

/* An element as a number: one part of it where the dtype is complex. */
typedef struct element {
    enum { ELEMENT_REAL, ELEMENT_INT, ELEMENT_UINT, ELEMENT_BOOL } kind;
    double real; /* the number with the fewest digits that the dtype rounds to the element */
    int64_t i;   /* of ELEMENT_INT */
    uint64_t u;  /* of the others: bits of an unsigned one, 0 or 1 */
} element;
/* The parts of an element: 1; 2 of a complex one; 0 where this program cannot tell its elements (below a byte). */
unsigned extract_parts(ckpt_dtype dtype);
/* One part, from its bytes (little-endian): the size of an element by its parts. */
element extract_element(ckpt_dtype dtype, const unsigned char *bytes);

/* An uncompressed .npz, entry after entry. Nothing is asked of the file but to be written to: it may be a pipe. */
typedef struct npz npz;
npz *npz_new(output_file *out); /* NULL: no memory. out is borrowed until npz_free */
/* The name of the entry for a tensor, without ".npy": its own where that is safe, and no other entry has it. Borrowed until the next
 * call; NULL: no memory, or no zip file has room for it. */
const char *npz_name(npz *z, ckpt_str name);
/* The entry of that name. False: no memory, or a write failed. */
bool npz_put(npz *z, const char *name, const char *head, size_t head_size, const char *data, size_t size);
/* What stands at the end: the list of the entries. */
bool npz_end(npz *z);
void npz_free(npz *z);
#endif
