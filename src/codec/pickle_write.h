/* codec/pickle_write.h - writes a graph of pickle nodes (codec/pickle.h) as a pickle: protocol 2, which every torch reads,
 * also the restricted reader of torch.load(weights_only=True). The opcodes are those that CPython's pickler writes
 * (Lib/pickle.py).
 *
 * Identity is the node's: one that is reached twice is written once and fetched from the memo afterwards, so sharing and
 * cycles stay. Equal globals count as one node, and so do equal strings among those that were made here. A tuple or a call
 * that contains itself by way of something mutable is written as CPython does: again inside itself, and thrown away
 * outside. Sets are calls of `__builtin__ set`, bytes are _codecs.encode of latin-1 text: protocol 2 has no opcodes for
 * them. A pickle that CPython wrote with protocol 2 comes out the same, byte for byte. */
#ifndef CKPT_PICKLE_WRITE_H
#define CKPT_PICKLE_WRITE_H
#include "codec/pickle.h"

/* Appends the pickle of root to out. The `user` fields of all nodes that can be reached must be NULL, and are used. A
 * global whose name has a dot in it needs protocol 4, which then is declared: module names must be those of Python 3 in
 * that case (ckpt__pickle_is_dotted). CKPT_E_LIMIT: a graph that would come out far larger than it is (only made-up ones
 * do). */
ckpt_status ckpt__pickle_write(ckpt__pickle_node *root, ckpt__buf *out, ckpt_error *err);

/* A graph of a hundred thousand tensors takes far more memory than its pickle. So a node may be made without its content
 * (ckpt__pickle_make_later): fill gives it one, all of it but `user`, from `what` it was made as, and what fill takes from
 * `arena` for that is given back when the node is written. It is asked twice for every node, first for counting and then for
 * writing, and gives the same both times, but for the text of a STR, and which globals are meant. Nodes that are to be the
 * same object wherever they are reached lie in another arena, and so do texts. */
enum { CKPT__PICKLE_LATER = 1 }; /* the node's `known` */
typedef struct ckpt__pickle_later {
    ckpt__arena *arena; /* the caller's: contents, which the writer rewinds */
    ckpt_status (*fill)(void *ctx, const ckpt__pickle_node *what, ckpt__pickle_node *to, bool writing, ckpt_error *err);
    void *ctx;
} ckpt__pickle_later;
ckpt_status ckpt__pickle_write_later(ckpt__pickle_node *root, const ckpt__pickle_later *later, ckpt__buf *out,
                                     ckpt_error *err);
/* Does the global need protocol 4? */
bool ckpt__pickle_is_dotted(const ckpt__pickle_node *global);

/* ---- making nodes, in an arena; NULL when memory is short, and where an argument is NULL: so calls can be nested and
 * looked at once. Texts are not copied. A STR has `boolean` set: it may be one with others that are equal. */
ckpt__pickle_node *ckpt__pickle_make(ckpt__arena *a, ckpt__pickle_kind kind);
ckpt__pickle_node *ckpt__pickle_make_later(ckpt__arena *a, const void *what);
ckpt__pickle_node *ckpt__pickle_make_int(ckpt__arena *a, int64_t value);
ckpt__pickle_node *ckpt__pickle_make_bool(ckpt__arena *a, bool value);
ckpt__pickle_node *ckpt__pickle_make_text(ckpt__arena *a, ckpt__pickle_kind kind, ckpt_str text);
ckpt__pickle_node *ckpt__pickle_make_global(ckpt__arena *a, ckpt_str module, ckpt_str name);
/* A TUPLE, LIST, SET, FROZENSET or DICT of room for n items (a dict: twice the entries), all NULL. */
ckpt__pickle_node *ckpt__pickle_make_list(ckpt__arena *a, ckpt__pickle_kind kind, size_t n);
ckpt__pickle_node *ckpt__pickle_make_tuple(ckpt__arena *a, size_t n, ckpt__pickle_node *const *items);
ckpt__pickle_node *ckpt__pickle_make_call(ckpt__arena *a, ckpt__pickle_call call, ckpt__pickle_node *callable,
                                          ckpt__pickle_node *args);
ckpt__pickle_node *ckpt__pickle_make_persistent(ckpt__arena *a, ckpt__pickle_node *id);

/* ---- pickle_number.c. LONG1, LONG4: appends the opcode, length and two's complement of a decimal number of any size,
 * '-' in front where it is negative; false where the text is no such number or has more than 20000 digits. */
bool ckpt__pickle_put_long(ckpt__buf *out, ckpt_str decimal);
/* BININT1, BININT2, BININT or LONG1, as CPython chooses; BINFLOAT; BINUNICODE, or BINUNICODE8 past 4 GiB. */
void ckpt__pickle_put_int(ckpt__buf *out, int64_t value);
void ckpt__pickle_put_float(ckpt__buf *out, double value);
void ckpt__pickle_put_text(ckpt__buf *out, ckpt_str text);
/* A text in which each byte is the code point of that number. */
void ckpt__pickle_put_latin1(ckpt__buf *out, ckpt_str bytes);

#endif
