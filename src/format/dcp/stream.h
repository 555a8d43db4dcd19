/* format/dcp/stream.h - what the files of the streaming reader of lists share.
 *
 *   stream.c        the machine: opcodes -> small values on a stack
 *   stream_quick.c  the three objects of which a list has millions, each at one go
 *   stream_memo.c   which entries of the memo are ever fetched, and these
 *   stream_set.c    objects -> what is wanted of their attributes
 *   stream_fold.c   lists and dicts of objects -> items, chunks and records of the list, as soon as they are complete
 *
 * A list of 3.5 million chunks is a pickle of 640 MB and 240 million opcodes. Its graph has 30 nodes a chunk, of which 32 bytes are
 * wanted. So the file passes through a window twice: once to see which memo entries are fetched (one in a thousand), once to run
 * it, where each object is folded into what is wanted of it, and the memory of its parts is used again for the next.
 *
 * The machine knows only what torch's own pickling of a list comes to. Whatever else it meets, it gives up, and the list is read
 * as a graph (list.c), which has an answer to everything, and a message for what is wrong. */
#ifndef CKPT_DCP_STREAM_H
#define CKPT_DCP_STREAM_H
#include "codec/pickle_vm.h"
#include "format/dcp/dcp.h"

/* ---- the window on the file */

enum {
    CKPT__DCP_WINDOW = 256 << 10,
    CKPT__DCP_TEXT_MAX = 64 << 10, /* the longest text that is taken */
    CKPT__DCP_ARGUMENT = 32        /* an opcode and its fixed argument are shorter: so much can always be looked at */
};

typedef struct ckpt__dcp_window {
    const ckpt__pickle_input *in;
    unsigned char *bytes; /* owned: CKPT__DCP_WINDOW, and CKPT__DCP_ARGUMENT zeros behind the end of the file */
    const unsigned char *at, *end; /* what was not taken yet */
    uint64_t next;                 /* byte of the file that comes behind `end` */
} ckpt__dcp_window;

bool ckpt__dcp_window_open(ckpt__dcp_window *w, const ckpt__pickle_input *in); /* false: no memory */
void ckpt__dcp_window_close(ckpt__dcp_window *w);
/* So many bytes, at most CKPT__DCP_TEXT_MAX, are at w->at; false: the file ends before, or cannot be read. */
bool ckpt__dcp_window_more(ckpt__dcp_window *w, size_t n);
/* Back to byte 0. */
void ckpt__dcp_window_rewind(ckpt__dcp_window *w);
static inline bool ckpt__dcp_window_need(ckpt__dcp_window *w, size_t n)
{
    return (size_t)(w->end - w->at) >= n || ckpt__dcp_window_more(w, n);
}

/* ---- values */

typedef enum ckpt__dcp_kind {
    CKPT__D_NONE,
    CKPT__D_BOOL,
    CKPT__D_INT,     /* number */
    CKPT__D_TEXT,    /* text, n bytes and a NUL; what: its ckpt__dcp_name, where known, or CKPT__DN_UNASKED */
    CKPT__D_CLASS,   /* what: ckpt__dcp_class; n: of a dtype its ckpt_dtype */
    CKPT__D_INTS,    /* a tuple of ints, or torch.Size: n numbers, none negative */
    CKPT__D_TUPLE,   /* of other things: n items */
    CKPT__D_DICT,    /* what: ckpt__dcp_dict */
    CKPT__D_LIST,    /* of chunks, n of them from number `first` on; or, what 1, of the one text "stream.zstd/1" */
    CKPT__D_OBJECT,  /* object */
    CKPT__D_STRIDED, /* the layout of a dense tensor */
    CKPT__D_OTHER,   /* something that a list has and nobody asks for */
    CKPT__D_CHANGING /* in the memo: a list, dict or object, which may have changed since: it is not fetched */
} ckpt__dcp_kind;

typedef enum ckpt__dcp_class {
    CKPT__DC_METADATA,
    CKPT__DC_TENSOR,
    CKPT__DC_BYTES,
    CKPT__DC_CHUNK,
    CKPT__DC_PROPERTIES,
    CKPT__DC_STORAGE_META,
    CKPT__DC_INDEX,
    CKPT__DC_INFO,
    CKPT__DC_OBJECTS, /* those above can be made and have attributes */
    CKPT__DC_FORMAT = CKPT__DC_OBJECTS,
    CKPT__DC_SIZE,
    CKPT__DC_LAYOUT,
    CKPT__DC_PATH,
    CKPT__DC_DTYPE
} ckpt__dcp_class;

typedef enum ckpt__dcp_name {
    CKPT__DN_UNASKED, /* nobody has compared it yet */
    CKPT__DN_OTHER,
    CKPT__DN_STATE_DICT_METADATA,
    CKPT__DN_PLANNER_DATA,
    CKPT__DN_STORAGE_DATA,
    CKPT__DN_STORAGE_META,
    CKPT__DN_VERSION,
    CKPT__DN_PROPERTIES,
    CKPT__DN_SIZE,
    CKPT__DN_CHUNKS,
    CKPT__DN_OFFSETS,
    CKPT__DN_SIZES,
    CKPT__DN_FQN,
    CKPT__DN_OFFSET,
    CKPT__DN_RELATIVE_PATH,
    CKPT__DN_LENGTH,
    CKPT__DN_TRANSFORM,
    CKPT__DN_DTYPE,
    CKPT__DN_LAYOUT
} ckpt__dcp_name;

typedef enum ckpt__dcp_dict {
    CKPT__DD_EMPTY,
    CKPT__DD_STATE,   /* its entries are attributes of the object before it: BUILD is to follow */
    CKPT__DD_ITEMS,   /* state_dict_metadata */
    CKPT__DD_PATHS,   /* planner_data */
    CKPT__DD_RECORDS, /* storage_data */
    CKPT__DD_COUNT
} ckpt__dcp_dict;

typedef struct ckpt__dcp_made ckpt__dcp_made;

typedef struct ckpt__dcp_value {
    uint8_t kind, what;
    uint32_t n;
    union {
        int64_t number;
        uint64_t first;
        const char *text;
        const int64_t *numbers;
        const struct ckpt__dcp_value *items;
        ckpt__dcp_made *object;
    } u;
} ckpt__dcp_value;

/* Which attributes of an object were met, in the order in which ckpt__dcp_made has them. */
enum { CKPT__DA_FIRST = 1, CKPT__DA_SECOND = 2, CKPT__DA_THIRD = 4 };

/* What is wanted of an object's attributes. */
struct ckpt__dcp_made {
    uint8_t class_of; /* ckpt__dcp_class */
    bool built;
    bool zstd;               /* INFO */
    uint8_t has;             /* bits of the attributes that were met, in the order of the switch of its class */
    uint16_t dtype;          /* PROPERTIES, TENSOR */
    ckpt__dcp_value a, b;    /* CHUNK: offsets, sizes. INDEX: fqn, offset. INFO: relative_path. TENSOR: size, chunks */
    uint64_t offset, length; /* INFO */
};

/* ---- the machine */

enum { CKPT__DCP_MARKS = 64, CKPT__DCP_STACK = 1 << 20, CKPT__DCP_POOL = 32 << 20 };

enum { CKPT__DCP_LAST = 256 };

typedef struct ckpt__dcp_memo {
    uint64_t *fetched; /* owned: a bit an entry */
    uint32_t *before;  /* owned: of each word of `fetched`, the bits that are set before it */
    uint64_t words;
    ckpt__dcp_value *kept; /* owned: one for each bit that is set */
    uint64_t kept_count;
    struct ckpt__dcp_fetched {
        uint64_t number;
        ckpt__dcp_value value;
    } last
        [CKPT__DCP_LAST]; /* what was fetched last, by the last bits of the number: two dozen entries are fetched for each chunk */
    uint64_t next; /* the number that MEMOIZE gives */
} ckpt__dcp_memo;

typedef struct ckpt__dcp_machine {
    ckpt__dcp *d;
    ckpt__dcp_window window;
    ckpt__dcp_memo memo;
    ckpt__arena *kept;      /* owned: what memo entries point to */
    ckpt__dcp_value *stack; /* owned */
    size_t depth, deepest;  /* values: there are, and at most */
    struct {
        size_t depth, used; /* of the stack and the pool when MARK ran */
    } marks[CKPT__DCP_MARKS];
    size_t mark_count;
    char *pool;             /* owned: for what values on the stack point to; it is given back with their mark */
    size_t used, pool_size; /* bytes */

    /* fold: */
    uint32_t *after;  /* owned, one an item: the item whose record came behind its one the last time; 0: not known */
    uint32_t *cursor; /* owned, one an item: the chunk whose record is expected next */
    uint32_t *first, *count; /* owned, one an item: its chunks */
    size_t first_capacity, count_capacity, after_capacity, cursor_capacity;
    uint32_t
        *sorted; /* owned: chunks of an item by place, from first[item] on; NULL until a record comes out of order */
    unsigned char *is_sorted; /* owned, one an item; NULL as well */
    uint32_t record_file;     /* of the last record, and the byte behind it */
    uint64_t record_end;
    uint32_t last_item, last_file; /* of the last record */
    size_t order_capacity;
    size_t list_begin,
        same; /* the first chunk of the last list; and how many chunks before each lies the one that is likely the same
                              * box of another tensor */
    bool seen[CKPT__DD_COUNT];
    bool complete;  /* Metadata was built */
    bool no_memory; /* the reason for giving up */
} ckpt__dcp_machine;

/* Memory for what a value points to, until its mark is taken away; NULL: there is no more, and the machine gives up. */
static inline void *ckpt__dcp_take(ckpt__dcp_machine *m, size_t n)
{
    n = (n + 7) & ~(size_t)7;
    if (n > m->pool_size - m->used)
        return NULL;
    m->used += n;
    return m->pool + (m->used - n);
}

static inline uint64_t ckpt__dcp_little(const unsigned char *p, unsigned n)
{
    uint64_t bits = 0;
    for (unsigned i = n; i-- > 0;)
        bits = bits << 8 | p[i];
    return bits;
}

static inline uint32_t ckpt__dcp_four(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Two's complement of at most 8 bytes. */
static inline int64_t ckpt__dcp_long(const unsigned char *p, unsigned n)
{
    const uint64_t bits = ckpt__dcp_little(p, n);
    return n && n < 8 && p[n - 1] & 0x80 ? (int64_t)(bits | UINT64_MAX << 8 * n) : (int64_t)bits;
}

/* BININT1, BININT2, BININT and LONG1: the bytes of opcode and argument; 0: it is another opcode, or a longer number. */
static inline size_t ckpt__dcp_int(const unsigned char *p, int64_t *out)
{
    switch (*p) {
    case 'K':
        *out = p[1];
        return 2;
    case 'M':
        *out = p[1] | p[2] << 8;
        return 3;
    case 'J':
        *out = (int32_t)ckpt__dcp_four(p + 1);
        return 5;
    case 0x8a:
        if (p[1] > 8)
            return 0;
        *out = ckpt__dcp_long(p + 2, p[1]);
        return 2 + (size_t)p[1];
    default:
        return 0;
    }
}

/* All of these: false: the machine gives up. */

/* A text of the window, which is UTF-8, as an unpickler asks for. It is copied in eights: the last may reach behind it, in the window
 * as in the pool. */
static inline bool ckpt__dcp_text(ckpt__dcp_machine *m, const unsigned char *text, size_t n, ckpt__dcp_value *out)
{
    uint64_t all = 0, eight;
    char *own = ckpt__dcp_take(m, n + 1);
    if (!own)
        return false;
    for (size_t i = 0; i < n; i += sizeof eight) {
        memcpy(&eight, text + i, sizeof eight);
        memcpy(own + i, &eight, sizeof eight);
        all |= i + sizeof eight <= n ? eight : 0;
    }
    for (size_t i = n & ~(sizeof eight - 1); i < n; i++)
        all |= text[i];
    own[n] = 0;
    *out = (ckpt__dcp_value){.kind = CKPT__D_TEXT, .n = (uint32_t)n, .u.text = own};
    return !(all & 0x8080808080808080) || ckpt__pickle_utf8(own, n);
}

/* stream_memo.c: which entries are fetched. Then the entry `number` becomes `value`, and is asked for. */
bool ckpt__dcp_memo_scan(ckpt__dcp_machine *m);
void ckpt__dcp_memo_free(ckpt__dcp_memo *memo);
bool ckpt__dcp_memo_keep(ckpt__dcp_machine *m, uint64_t number, const ckpt__dcp_value *value);
bool ckpt__dcp_memo_find(ckpt__dcp_machine *m, uint64_t number, ckpt__dcp_value *value);
static inline bool ckpt__dcp_memo_get(ckpt__dcp_machine *m, uint64_t number, ckpt__dcp_value *value)
{
    const struct ckpt__dcp_fetched *last = &m->memo.last[number % CKPT__DCP_LAST];
    if (last->number != number || last->value.kind == CKPT__D_CHANGING)
        return ckpt__dcp_memo_find(m, number, value);
    *value = last->value;
    return true;
}
/* Are the next n entries, at most 64, never fetched? False: perhaps they are. */
static inline bool ckpt__dcp_memo_forgets(const ckpt__dcp_machine *m, unsigned n)
{
    const ckpt__dcp_memo *memo = &m->memo;
    const uint64_t word = memo->next >> 6, bit = memo->next & 63;
    return bit + n <= 64 && (word >= memo->words || !(memo->fetched[word] >> bit & (((uint64_t)1 << n) - 1)));
}
static inline bool ckpt__dcp_memo_put(ckpt__dcp_machine *m, uint64_t number, const ckpt__dcp_value *value)
{
    const ckpt__dcp_memo *memo = &m->memo;
    const bool fetched = number >> 6 < memo->words && memo->fetched[number >> 6] >> (number & 63) & 1;
    return !fetched || ckpt__dcp_memo_keep(m, number, value);
}

/* stream_quick.c: the object of the class that was just fetched, with its attributes, as a pickler writes it: true, and it is on
 * the stack. False: nothing has happened, and the machine takes it opcode by opcode. */
bool ckpt__dcp_quick_object(ckpt__dcp_machine *m, const ckpt__dcp_value *class_of);

/* stream_set.c: the class that a module and a name are; the name that an attribute's text is. Then attributes of an object: one; n of them,
 * from a dict's entries; a state that BUILD gives. */
bool ckpt__dcp_class_of(ckpt_str module, ckpt_str name, ckpt__dcp_value *out);
ckpt__dcp_name ckpt__dcp_name_of(const char *text, size_t n);
bool ckpt__dcp_set(ckpt__dcp_machine *m, ckpt__dcp_made *object, const ckpt__dcp_value *key,
                   const ckpt__dcp_value *value);
bool ckpt__dcp_set_all(ckpt__dcp_machine *m, ckpt__dcp_made *object, const ckpt__dcp_value *pairs, size_t n);
bool ckpt__dcp_build(ckpt__dcp_made *object, const ckpt__dcp_value *state);

/* stream_fold.c: n entries are put into the dict that lies on the stack before them, or n items into a list. At the end: has each chunk
 * its record? */
bool ckpt__dcp_set_items(ckpt__dcp_machine *m, ckpt__dcp_value *dict, const ckpt__dcp_value *pairs, size_t n);
bool ckpt__dcp_append(ckpt__dcp_machine *m, ckpt__dcp_value *list, const ckpt__dcp_value *items, size_t n);
bool ckpt__dcp_fold_end(ckpt__dcp_machine *m);
void ckpt__dcp_fold_free(ckpt__dcp_machine *m);
#endif
