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
    CKPT__SCAN_DEPTH = 10,               /* archives in archives, bytes in pickles, ... */
    CKPT__SCAN_QUEUE_MAX = 200000,       /* ranges that wait */
    CKPT__SCAN_GLOBALS_MAX = 50000,      /* that are listed */
    CKPT__SCAN_LABEL_MAX = 600
};
/* Of what is inflated or decoded: at one time, and of one stream; of a small file less (memory_max of the job). */
#define CKPT__SCAN_MEMORY_MAX ((uint64_t)384 << 20)
#define CKPT__SCAN_STREAM_MAX ((uint64_t)256 << 20)

typedef struct ckpt__scan_view ckpt__scan_view;      /* counted references; view.c */

/* A range of bytes with its name. It holds a reference to its view. */
typedef struct ckpt__scan_span {
    ckpt__scan_view *view;
    uint64_t at, size;
    char *label;
    unsigned depth;
    bool literal;                        /* a string or bytes of a pickle: no file that somebody opens */
    bool hunted;                         /* found by its header alone: `size` reaches to the end of all */
    bool named_pickle;                   /* *.pkl: a loader takes it for one */
} ckpt__scan_span;

typedef struct ckpt__scan_job {
    ckpt__source *source;
    uint32_t file;
    ckpt__walker *walker, *peeker;
    ckpt__scan_span *queue; size_t queue_count, queue_capacity;
    uint64_t memory;                     /* of views, now */
    uint64_t memory_max;                 /* it may be */
    size_t queue_max;
    uint64_t budget;                     /* bytes that may still be looked at */
    bool over;                           /* the budget is spent */
    ckpt_scan *scan;
    ckpt_report *report;
    const ckpt_progress *progress;
    uint64_t done, total;
    size_t notes;                        /* in the report */
    ckpt_error *err;
} ckpt__scan_job;

/* ---- scan.c. Status: CKPT_OK or an error that ends the scan (no memory, cancelled). */
/* Takes the span (label and reference) over, also on failure; it is looked at later. A label NULL is no memory. */
ckpt_status ckpt__scan_push(ckpt__scan_job *job, ckpt__scan_span span);
/* A finding, once for each code and label; the verdict is unknown at least. */
ckpt_status ckpt__scan_note(ckpt__scan_job *job, const char *code, const char *label, const char *fix, const char *format, ...)
    CKPT__PRINTF(5, 6);
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
ckpt__scan_view *ckpt__scan_view_memory(ckpt__scan_job *job, ckpt__buf *bytes);   /* takes them over */
/* What the span's bytes inflate to; raw: without a zlib or gzip header. */
ckpt__scan_view *ckpt__scan_view_inflate(ckpt__scan_job *job, const ckpt__scan_span *span, bool raw);
ckpt__scan_view *ckpt__scan_view_keep(ckpt__scan_view *view);
void ckpt__scan_view_drop(ckpt__scan_job *job, ckpt__scan_view *view);      /* accepts NULL */
/* Its size: of a stream as much as can be inflated up to `want` bytes. */
uint64_t ckpt__scan_view_size(ckpt__scan_job *job, ckpt__scan_view *view, uint64_t want);
bool ckpt__scan_view_capped(const ckpt__scan_view *view);      /* there is more than was inflated */
/* Exactly n bytes. CKPT_E_LIMIT: the budget is spent. Offsets count from the view's beginning. */
ckpt_status ckpt__scan_view_read(ckpt__scan_job *job, ckpt__scan_view *view, uint64_t at, void *dst, size_t n, ckpt_error *err);
/* At most n bytes from the span's beginning; 0 where they cannot be read. */
size_t ckpt__scan_head(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t at, void *dst, size_t n);
/* The span as the codecs take it; ctx must live as long. */
typedef struct ckpt__scan_input {
    ckpt__scan_job *job;
    const ckpt__scan_span *span;
} ckpt__scan_input;
ckpt_status ckpt__scan_read(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err);
typedef struct ckpt__scan_memory {
    const unsigned char *data;
    size_t size;
} ckpt__scan_memory;
ckpt_status ckpt__scan_read_memory(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err);

/* ---- pickle.c */
/* Pickles one behind the other from `from` on; *end is the byte behind the last one. */
ckpt_status ckpt__scan_pickles(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t *end);
/* Pickles anywhere from `from` on, for bytes of which nothing says where one begins: by PROTO; loose: and dangerous globals
 * in the middle of one. */
ckpt_status ckpt__scan_skim(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t to, bool loose);
/* May these first bytes of something be of interest? Most payloads are dismissed by them. */
bool ckpt__scan_may_matter(ckpt__scan_job *job, const unsigned char *head, size_t n, uint64_t size);

/* ---- archive.c, other.c: *is: the span is one, and all in it was pushed. */
ckpt_status ckpt__scan_zip(ckpt__scan_job *job, const ckpt__scan_span *span, bool *is);
ckpt_status ckpt__scan_tar(ckpt__scan_job *job, const ckpt__scan_span *span, bool *is);
ckpt_status ckpt__scan_packed(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n, bool *is);
ckpt_status ckpt__scan_npy(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n, bool *is);
ckpt_status ckpt__scan_native(ckpt__scan_job *job, const ckpt__scan_span *span, const unsigned char *head, size_t n, bool *is);
/* Does a container of any kind begin so? */
bool ckpt__scan_is_container(const unsigned char *head, size_t n);

/* ---- names.c */
typedef struct ckpt__scan_row {
    ckpt_danger danger;
    const char *modules;                 /* separated by blanks */
    const char *names;                   /* the same; "*": all, of submodules too; "A*": capitalised ones, of submodules too */
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
