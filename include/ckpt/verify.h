/* ckpt/verify.h - is every byte what was written? */
#ifndef CKPT_VERIFY_H
#define CKPT_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_integrity {
    CKPT_INTEGRITY_NONE = 0, /* the format holds no checksums */
    CKPT_INTEGRITY_PARTIAL,  /* some payloads have one */
    CKPT_INTEGRITY_CRC32,
    CKPT_INTEGRITY_DIGEST
} ckpt_integrity;

/* The checks to make, and how. Zero is the default. Texts and lists are borrowed during the call. */
typedef struct ckpt_verify_options {
    uint32_t struct_size;    /* by the initializer */
    const char *format;      /* NULL: told from the content; else as ckpt_reader_options.format */
    const char *const *also; /* further files or directories of the same checkpoint (ckpt_reader_options.also) */
    size_t also_count;
    ckpt_progress progress; /* called by the calling thread */
    size_t threads; /* that read and sum up, the calling one among them; 1 to 16, more count as 16. 0: as many as the
                                   * process may run on processors, eight at most; eight where most of the files is not
                                   * in the page cache. The answer is the same for any number */
} ckpt_verify_options;
#define CKPT_VERIFY_OPTIONS_INIT CKPT_SIZED(ckpt_verify_options)

/* The answer in numbers. */
typedef struct ckpt_verify_result {
    uint32_t struct_size; /* by the initializer */
    bool ok;              /* nothing wrong was found */
    ckpt_integrity integrity;
    uint64_t bytes; /* payload bytes read */
    uint64_t tensors;
    uint64_t unprotected_bytes; /* payload bytes without any checksum */
    char format[32];            /* as ckpt_reader_format names it */
} ckpt_verify_result;
#define CKPT_VERIFY_RESULT_INIT CKPT_SIZED(ckpt_verify_result)

/* Reads everything. CKPT_OK: nothing wrong; CKPT_ANSWER_NO: damaged, or files of several saves; the findings name each; an error
 * where there is no answer (not a checkpoint, cannot be read). options, result and report may be NULL.
 *   Of several files each that is damaged or missing is a finding with its `file`, and all others are checked; tensors and
 * bytes are what was. Where all that is wrong is that a file is of a kind that is not read ("member-unread"), there is no
 * answer: CKPT_E_UNSUPPORTED. */
ckpt_status ckpt_verify(const char *path, const ckpt_verify_options *options, ckpt_verify_result *result,
                        ckpt_report *report, ckpt_error *err);

CKPT_END_DECLS
#endif
