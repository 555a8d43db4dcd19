/* codec/pickle_emit.h - what the two passes of the pickle writer share.
 *
 *   pickle_count.c   looks which nodes are reached twice, and how much there is
 *   pickle_write.c   writes */
#ifndef CKPT_PICKLE_EMIT_H
#define CKPT_PICKLE_EMIT_H
#include "codec/pickle_write.h"

/* What is known of a node stands in its `user`: two flags, and times SLOT 1 + its memo entry (0: it has none yet). */
enum { CKPT__PICKLE_SEEN = 1, CKPT__PICKLE_SHARED = 2, CKPT__PICKLE_SLOT = 4 };

/* One pickle on its way out. The first pass counts (which nodes are reached twice, how many bytes), the second writes; both go
 * by this struct, which lives for one ckpt__pickle_write. */
typedef struct ckpt__pickle_emitter {
    ckpt__buf *out;                  /* the caller's */
    const ckpt__pickle_later *later; /* the caller's; NULL: all nodes have their content */
    ckpt__arena *arena;              /* helper nodes, keys */
    ckpt__hash *strings, *globals;   /* -> 1 + the memo entry */
    ckpt__buf key;
    struct ckpt__pickle_frame *frames;
    size_t depth, frame_capacity;
    uint64_t nodes, bytes, limit; /* nodes: as often as they are reached; bytes: of texts */
    size_t start;                 /* of the pickle in out */
    uint32_t next_slot;
    unsigned protocol;
    ckpt__pickle_node *encode, *latin1, *set, *frozenset, *bytearray;
    ckpt_error *err;
} ckpt__pickle_emitter;

static inline bool ckpt__pickle_is_container(const ckpt__pickle_node *n)
{
    return n->kind == CKPT__P_LIST || n->kind == CKPT__P_TUPLE || n->kind == CKPT__P_SET ||
           n->kind == CKPT__P_FROZENSET || n->kind == CKPT__P_DICT || n->kind == CKPT__P_PERSISTENT ||
           n->kind == CKPT__P_OBJECT;
}

static inline bool ckpt__pickle_is_memoized(const ckpt__pickle_node *n)
{
    if (n->kind == CKPT__P_TUPLE)
        return n->u.list.count > 0;
    return ckpt__pickle_is_container(n) || n->kind == CKPT__P_STR || n->kind == CKPT__P_BYTES ||
           n->kind == CKPT__P_BYTEARRAY || n->kind == CKPT__P_GLOBAL;
}

/* Is it one that has no content yet? */
static inline bool ckpt__pickle_is_later(const ckpt__pickle_emitter *e, const ckpt__pickle_node *n)
{
    return e->later && n->known == CKPT__PICKLE_LATER;
}

ckpt_status ckpt__pickle_fill(const ckpt__pickle_emitter *e, ckpt__pickle_node *n, bool writing);
/* Sets SEEN and SHARED, nodes, bytes and the protocol. */
ckpt_status ckpt__pickle_count(ckpt__pickle_emitter *e, ckpt__pickle_node *root);
#endif
