/* codec/pickle_walk.h - what an unpickler would import and call, told from the opcodes of a pickle that nobody has vouched
 * for. pickle.h reads pickles that are as they should be, and refuses the rest; this walks over any bytes as an unpickler
 * would run over them, up to the opcode at which every unpickler stops, and says what it would have imported by then.
 *
 * Values are followed as far as names need it: strings (also by memo, DUP and tuples), globals, tuples, results of calls.
 * All else is one opaque value. Nothing is built, imported or called; the time is linear in the bytes walked over, and the
 * memory is bounded by constants: what is past them is an opaque value too, and a global whose name is such a one is
 * reported without its name. Opcodes: Lib/pickletools.py. */
#ifndef CKPT_PICKLE_WALK_H
#define CKPT_PICKLE_WALK_H
#include "codec/pickle.h"

/* Why the walk ended before STOP. */
typedef enum ckpt__walk_trouble {
    CKPT__WALK_FINE = 0,
    CKPT__WALK_CUT_OFF,   /* the bytes end inside it */
    CKPT__WALK_NO_OPCODE, /* a byte that is no opcode of protocols 0 to 5 */
    CKPT__WALK_UNDERFLOW, /* takes from the stack, or a mark, or from the memo what was never put there */
    CKPT__WALK_LIMIT,     /* deeper than is followed */
    CKPT__WALK_READ       /* the input could not be read: `why` */
} ckpt__walk_trouble;

typedef enum ckpt__walk_kind {
    CKPT__WALK_OPAQUE = 0,
    CKPT__WALK_TEXT,    /* a string or bytes whose characters are known */
    CKPT__WALK_LITERAL, /* a string or bytes that stands in the pickle, too long to be kept */
    CKPT__WALK_GLOBAL,
    CKPT__WALK_TUPLE,
    CKPT__WALK_RESULT /* of a call */
} ckpt__walk_kind;

/* One global that a pickle names, whatever becomes of it. Texts are in the walker's arena, until its next walk. */
typedef struct ckpt__walk_global {
    ckpt_str module, name; /* data NULL: unknown, because it is computed or too long */
    uint64_t position;     /* of the first opcode that names it */
    uint64_t count, calls; /* how often it is named; how often called */
    uint64_t uses;         /* how often it was put on the stack: more than calls where it is kept or passed on, too */
    uint32_t extension;    /* its number in copyreg's registry; 0: it has names */
    ckpt_str argument;     /* the first text that a call of it is given; data NULL: none */
    bool build;            /* BUILD sets attributes of the global itself */
} ckpt__walk_global;

enum { CKPT__WALK_ARGUMENTS = 4 };

/* A call: by REDUCE, NEWOBJ, NEWOBJ_EX, OBJ or INST. */
typedef struct ckpt__walk_call {
    ckpt__walk_global *global; /* NULL: what is called is no global (the result of another call, ...) */
    int argument_count;        /* -1: not known */
    struct {
        ckpt__walk_kind kind;
        ckpt_str text;                   /* of a TEXT */
        const ckpt__walk_global *global; /* of a GLOBAL */
    } arguments[CKPT__WALK_ARGUMENTS];
} ckpt__walk_call;

typedef enum ckpt__walk_form {
    CKPT__WALK_STR,
    CKPT__WALK_BYTES,
    CKPT__WALK_STRING_LINE,
    CKPT__WALK_UNICODE_LINE
} ckpt__walk_form;

/* A string or bytes in the pickle: where its bytes lie in the input. STRING_LINE and UNICODE_LINE are protocol 0's text with
 * escapes (and quotes). `data` are the bytes where they are at hand, else NULL; valid during the call. */
typedef struct ckpt__walk_literal {
    ckpt__walk_form form;
    uint64_t offset, size;
    const char *data;
} ckpt__walk_literal;

typedef struct ckpt__walk_sink {
    /* Both may be NULL. call: the number of the argument that the result is as much a literal as; -1: of none.
     * literal: a status other than CKPT_OK ends the walk with it. */
    int (*call)(void *ctx, const ckpt__walk_call *call);
    ckpt_status (*literal)(void *ctx, const ckpt__walk_literal *literal);
    void *ctx;
} ckpt__walk_sink;

typedef struct ckpt__walker ckpt__walker; /* reused from walk to walk */

/* What a walk found. Positions and ends are bytes of the input, not of the pickle. */
typedef struct ckpt__walk {
    const ckpt__walk_global *globals; /* each once, in file order; they live until the next walk */
    size_t count;
    bool stopped; /* STOP was reached; else see trouble */
    ckpt__walk_trouble trouble;
    unsigned opcode; /* at which it ended */
    uint64_t end;    /* the byte behind STOP, or the one of that opcode */
    bool proto;      /* begins with PROTO */
    bool torn;       /* something reaches over the end of its frame: unpicklers read it differently */
    unsigned protocol;
    uint64_t opcodes, calls;
    ckpt_error why;
} ckpt__walk;

ckpt__walker *ckpt__walker_new(void); /* NULL: no memory */
void ckpt__walker_free(ckpt__walker *walker);
/* The walks from now on are of what is in a file of so many bytes: as much is remembered as suits it. Past that values are
 * opaque, and a stack or memo is trouble: CKPT__WALK_LIMIT. */
void ckpt__walker_limit(ckpt__walker *walker, uint64_t size);
/* Walks over the pickle that begins at byte `from`. An error is only CKPT_E_NO_MEMORY, or what sink->literal gave: all that
 * may be wrong with a pickle is in *out. */
ckpt_status ckpt__pickle_walk(ckpt__walker *walker, const ckpt__pickle_input *in, uint64_t from,
                              const ckpt__walk_sink *sink, ckpt__walk *out, ckpt_error *err);

/* Appends what the characters of a STRING_LINE or UNICODE_LINE stand for, code points as UTF-8 (UNICODE_LINE) or bytes. */
void ckpt__walk_unescape(ckpt__walk_form form, const char *line, size_t n, ckpt__buf *out);
#endif
