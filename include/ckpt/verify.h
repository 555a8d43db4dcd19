/* ckpt/verify.h - is every byte what was written? */
#ifndef CKPT_VERIFY_H
#define CKPT_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum ckpt_integrity {
    CKPT_INTEGRITY_NONE = 0,      /* the format holds no checksums */
    CKPT_INTEGRITY_PARTIAL,       /* some payloads have one */
    CKPT_INTEGRITY_CRC32,
    CKPT_INTEGRITY_DIGEST
} ckpt_integrity;

typedef struct ckpt_verify_result {
    bool ok;
    ckpt_integrity integrity;
    uint64_t bytes;               /* payload bytes read */
    uint64_t tensors;
    uint64_t unprotected_bytes;   /* payload bytes without any checksum */
    char format[32];
} ckpt_verify_result;

/* Reads everything. CKPT_OK: nothing wrong; CKPT_ANSWER_NO: damaged, the findings name each tensor, header or file; an error
 * where there is no answer (not a checkpoint, cannot be read). format NULL: told from the content.
 *   Of several files each that is damaged or missing is a finding with its `file`, and all others are checked; tensors and
 * bytes are what was. Where all that is wrong is that a file is of a kind that is not read ("member-unread"), there is no
 * answer: CKPT_E_UNSUPPORTED. */
ckpt_status ckpt_verify(const char *path, const char *format, const ckpt_progress *progress, ckpt_verify_result *result,
                        ckpt_report *report, ckpt_error *err);
/* The same for several paths that are one checkpoint, as ckpt_reader_options.also has them. */
ckpt_status ckpt_verify_paths(const char *const *paths, size_t count, const char *format, const ckpt_progress *progress,
                              ckpt_verify_result *result, ckpt_report *report, ckpt_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
