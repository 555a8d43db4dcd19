/* scan/work.h - what the parts of a scan share: the job, its queue of byte ranges, and the table of names.
 *
 *     scan.c          files and directories, the queue, the result
 *     view.c     bytes: of a file, of memory, of a stream that is inflated as far as it is read
 *     pickle.c   pickles, and what lies in their strings
 *     archive.c  zip archives, sound or not
 *     other.c    tar, gzip, .npy, files of our own
 *     names.c    what a name means; table.c: the table
 */
#ifndef CKPT_SCAN_WORK_H
#define CKPT_SCAN_WORK_H
#include <ckpt/scan.h>
#include "base/base.h"
#include "codec/pickle_walk.h"
#include "io/source.h"

enum {
    CKPT__SCAN_DEPTH = 10,          /* archives in archives, bytes in pickles, ... */
    CKPT__SCAN_QUEUE_MAX = 200000,  /* ranges that wait */
    CKPT__SCAN_GLOBALS_MAX = 50000, /* that are listed */
    CKPT__SCAN_LABEL_MAX = 600
};
/* Of what is inflated or decoded: at one time, and of one stream; of a small file less (memory_max of the job). */
#define CKPT__SCAN_MEMORY_MAX ((uint64_t)384 << 20)
#define CKPT__SCAN_STREAM_MAX ((uint64_t)256 << 20)

typedef struct ckpt__scan_view ckpt__scan_view; /* counted references; view.c */

/* A range of bytes with its name. It holds a reference to its view. Spans exist because one file holds others: what is
 * found in a span becomes spans of the queue, each a level deeper. The zip archive model.pt, a file of 5000 bytes, has
 * a stored pickle of 700 bytes at byte 128 and a deflated one of 90 bytes, which inflates to 400, at byte 1000:
 *
 *     model.pt                   view of the file          .at = 0,   .size = 5000    .depth = 0
 *     the stored pickle in it    view of the file          .at = 128, .size = 700     .depth = 1
 *     the deflated one           view of what inflates     .at = 0,   .size = 400     .depth = 1
 *
 * A stream's size is not known when its span is pushed: the size is cut to the view's when the span is looked at. */
typedef struct ckpt__scan_span {
    ckpt__scan_view *view;
    uint64_t at, size; /* bytes of the view: first byte, count. The size may reach past the view's
                                          * end */
    char *label;       /* heap, owned: "model.pt!model/data.pkl"; for messages */
    unsigned depth;    /* how many containers it is in; at most CKPT__SCAN_DEPTH */
    bool literal;      /* a string or bytes of a pickle: no file that somebody opens */
    bool hunted;       /* found by its header alone: `size` reaches to the end of all */
    bool named_pickle; /* *.pkl: a loader takes it for one */
} ckpt__scan_span;

/* One call of ckpt_scan_open, on one thread. The limits are set anew for each file, in proportion to its size: a
 * hostile file of 1 KiB cannot keep a scan busy for long. */
typedef struct ckpt__scan_job {
    ckpt__source *source;          /* owned */
    uint32_t file;                 /* number in the source of the file that is looked at */
    ckpt__walker *walker, *peeker; /* owned: of pickles that are listed; of first bytes that are only tried */
    ckpt__scan_span *queue;
    size_t queue_count, queue_capacity; /* heap, owned: spans of this file that wait, the
                                                                    * last one next; NULL: none yet */
    uint64_t memory;                    /* bytes that views hold, now */
    uint64_t memory_max;                /* it may be */
    size_t queue_max;                   /* spans that may wait */
    uint64_t budget;                    /* bytes that may still be looked at */
    bool over;                          /* the budget is spent */
    ckpt_scan *scan;                    /* the result; owned until it is handed out */
    ckpt_report *report;                /* the caller's; NULL: none is wanted */
    const ckpt_progress *progress;      /* the caller's; its fn may be NULL */
    uint64_t done, total;               /* bytes of files, for the progress; total 0: a directory, not known */
    size_t notes;                       /* in the report */
    ckpt_error *err;                    /* the caller's; NULL: no error is wanted */
} ckpt__scan_job;

/* ---- scan.c. Status: CKPT_OK or an error that ends the scan (no memory, cancelled). */
/* Takes the span (label and reference) over, also on failure; it is looked at later. A label NULL is no memory. */
ckpt_status ckpt__scan_push(ckpt__scan_job *job, ckpt__scan_span span);
/* A finding, once for each code and label; the verdict is unknown at least. */
ckpt_status ckpt__scan_note(ckpt__scan_job *job, const char *code, const char *label, const char *fix,
                            const char *format, ...) CKPT__PRINTF(5, 6);
ckpt_status ckpt__scan_limit(ckpt__scan_job *job, const char *label, const char *what);
/* plain_getattr: it is getattr, and what it takes is added too. */
ckpt_status ckpt__scan_add(ckpt__scan_job *job, const char *label, const ckpt__walk_global *g, bool plain_getattr);
void ckpt__scan_count_pickle(ckpt__scan_job *job);
/* Between blocks: progress. CKPT_E_CANCELLED. */
ckpt_status ckpt__scan_step(ckpt__scan_job *job);
/* parent!name, with what is no text escaped; NULL: no memory. */
char *ckpt__scan_label(const char *parent, const char *name, size_t n);

/* ---- view.c */
ckpt__scan_view *ckpt__scan_view_file(ckpt__scan_job *job, uint32_t file);
ckpt__scan_view *ckpt__scan_view_memory(ckpt__scan_job *job, ckpt__buf *bytes); /* takes them over */
/* What the span's bytes inflate to; raw: without a zlib or gzip header. */
ckpt__scan_view *ckpt__scan_view_inflate(ckpt__scan_job *job, const ckpt__scan_span *span, bool raw);
ckpt__scan_view *ckpt__scan_view_keep(ckpt__scan_view *view);
void ckpt__scan_view_drop(ckpt__scan_job *job, ckpt__scan_view *view); /* accepts NULL */
/* Its size: of a stream as much as can be inflated up to `want` bytes. */
uint64_t ckpt__scan_view_size(ckpt__scan_job *job, ckpt__scan_view *view, uint64_t want);
bool ckpt__scan_view_capped(const ckpt__scan_view *view); /* there is more than was inflated */
/* Exactly n bytes. CKPT_E_LIMIT: the budget is spent. Offsets count from the view's beginning. */
ckpt_status ckpt__scan_view_read(ckpt__scan_job *job, ckpt__scan_view *view, uint64_t at, void *dst, size_t n,
                                 ckpt_error *err);
/* At most n bytes from the span's beginning; 0 where they cannot be read. */
size_t ckpt__scan_head(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t at, void *dst, size_t n);
/* The span as the codecs take it; ctx must live as long. */
typedef struct ckpt__scan_input {
    ckpt__scan_job *job;
    const ckpt__scan_span *span;
} ckpt__scan_input;
ckpt_status ckpt__scan_read(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err);
/* The same of bytes in memory, which must live as long. */
typedef struct ckpt__scan_memory {
    const unsigned char *data;
    size_t size;
} ckpt__scan_memory;
ckpt_status ckpt__scan_read_memory(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err);

/* ---- pickle.c */
/* Pickles one behind the other from `from` on; *end is the byte behind the last one. */
ckpt_status ckpt__scan_pickles(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t *end);
/* Pickles anywhere from `from` on, for bytes of which nothing says where one begins: by PROTO; loose: and dangerous
 * globals in the middle of one. */
ckpt_status ckpt__scan_skim(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t to, bool loose);
/* May these first bytes of something be of interest? Most payloads are dismissed by them. */
bool ckpt__scan_may_matter(ckpt__scan_job *job, const unsigned char *head, size_t n, uint64_t size);

/* ---- archive.c, other.c: *is: the span is one, and all in it was pushed. */
ckpt_status ckpt__scan_zip(ckpt__scan_job *job, const ckpt__scan_span *span, bool *is);
ckpt_status ckpt__scan_tar(ckpt__scan_job *job, const ckpt__scan_span *span, bool *is);
ckpt_status ckpt__scan_packed(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n,
                              bool *is);
ckpt_status ckpt__scan_npy(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n,
                           bool *is);
ckpt_status ckpt__scan_native(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n,
                              bool *is);
/* Does a container of any kind begin so? */
bool ckpt__scan_is_container(const unsigned char *head, size_t n);

/* ---- names.c */
/* A row of the table of names: what is known of some names of some modules. All text is static. */
typedef struct ckpt__scan_row {
    ckpt_danger danger;
    const char *modules; /* separated by blanks */
    const char *names;   /* the same; "*": all, of submodules too; "A*": capitalised ones, of submodules
                                          * too */
    const char *reason;
} ckpt__scan_row;
extern const ckpt__scan_row ckpt__scan_table[];
extern const size_t ckpt__scan_table_size;
/* Words that, as a part of a name with dots, reach out of the class that it seems to be in. */
extern const char *const ckpt__scan_reaching[];
extern const size_t ckpt__scan_reaching_size;
/* Modules, and a few functions, that are dangerous through whatever module they are reached. */
extern const char *const ckpt__scan_anywhere[];
extern const size_t ckpt__scan_anywhere_size;
ckpt_danger ckpt__scan_judge(ckpt_str module, ckpt_str name, const char **reason);
#endif
