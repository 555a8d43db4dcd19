/* examine/verify_work.h - what the files of ckpt_verify share: one check, and what it has found. */
#ifndef CKPT_VERIFIER_H
#define CKPT_VERIFIER_H
#include <ckpt/verify.h>
#include "engine/sweep.h"
#include "io/source.h"
#include "model/views.h"

/* One check. While the checkpoint is open, source and index are the reader's; before and after, the source is the
 * verifier's own and the index NULL. */
typedef struct ckpt__verifier {
    const ckpt_progress *progress; /* borrowed; NULL: none */
    ckpt_verify_result *result;    /* borrowed */
    ckpt_report *report;           /* never NULL here */
    ckpt__source *source;
    const ckpt__index *index;
    bool *whole;              /* heap, owned: per file of the source: its bytes are the manifest's; NULL: none are */
    size_t whole_count;       /* items of it; a file with a greater number is not whole */
    uint64_t done, total;     /* bytes, for the progress callback */
    uint64_t protected_bytes; /* payload bytes that some checksum covers */
    ckpt__views views;        /* made when a storage is damaged */
    unsigned threads;         /* 0: as many as read the source the fastest */
} ckpt__verifier;

/* CKPT_E_CANCELLED: the caller's callback asks to end. n: bytes that were read since the last call. */
ckpt_status ckpt__verifier_tick(ckpt__verifier *v, uint64_t n, ckpt_error *err);
/* Reads all of the list by the verifier's threads (engine/sweep.h), and ticks. */
ckpt_status ckpt__verifier_sweep(ckpt__verifier *v, ckpt__swept *list, size_t count, ckpt_error *err);
/* Adds a finding that is an error. tensor, file and fix may be NULL. */
ckpt_status ckpt__verifier_wrong(ckpt__verifier *v, const char *code, const char *tensor, const char *file,
                                 const char *fix, const char *message, ckpt_error *err);
/* The fix of a finding that names a file and no tensor. */
extern const char ckpt__verifier_file_fix[];
/* The manifest names the file, and the size and CRC-32 of the file are as it says. */
bool ckpt__verifier_file_is_whole(const ckpt__verifier *v, uint32_t file);

/* verify_payloads.c: reads the payloads of the open checkpoint. */
ckpt_status ckpt__verifier_payloads(ckpt__verifier *v, ckpt_error *err);
/* verify_replicas.c: once those are checked, the pieces that several files have. */
ckpt_status ckpt__verifier_replicas(ckpt__verifier *v, ckpt_error *err);
#endif
