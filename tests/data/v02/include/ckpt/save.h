/* ckpt/save.h - write a state as a checkpoint. */
#ifndef CKPT_SAVE_H
#define CKPT_SAVE_H

#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>
#include <ckpt/state.h>

CKPT_BEGIN_DECLS

typedef struct ckpt_save_options {
    uint32_t struct_size;         /* by the initializer */
    const char *format;           /* NULL or "ckpt": native; "safetensors": plain, needs weights_only or lossy */
    bool weights_only;            /* parameters and buffers alone: the file that the HF tools expect */
    bool directory;               /* path is a step directory: model.safetensors, training.safetensors, checkpoint.json. An
                                   * older one of that name is replaced whole: other files in it go with it */
    bool lossy;                   /* permits what the format cannot hold to be left out */
    bool keep_existing;           /* CKPT_E_EXISTS instead of replacing path */
    bool no_sync;                 /* permits loss at a power cut: no fsync */
    ckpt_progress progress;
    ckpt_report *report;          /* NULL, or cleared and filled with what is odd about what was saved: "moments-incomplete" */
} ckpt_save_options;
#define CKPT_SAVE_OPTIONS_INIT CKPT_SIZED(ckpt_save_options)

/* Writes every bound tensor and value. The file appears whole and durable under its name or not at all: temporary in
 * the same directory, CRC-32 of every tensor, fdatasync, rename, fsync of the directory. options may be NULL.
 * CKPT_E_POISONED: the last restore failed; CKPT_E_SYSTEM with errno and the call; the previous file is untouched. */
ckpt_status ckpt_save(ckpt_state *state, const char *path, const ckpt_save_options *options, ckpt_error *err);

CKPT_END_DECLS
#endif
