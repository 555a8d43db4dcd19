/* ckpt/save.h - write a state as a checkpoint. */
#ifndef CKPT_SAVE_H
#define CKPT_SAVE_H

#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>
#include <ckpt/state.h>

CKPT_BEGIN_DECLS

/* How to write. Zero is the default: a native file, whole and durable, in place of an older one. Texts are borrowed during the
 * call. */
typedef struct ckpt_save_options {
    uint32_t struct_size; /* by the initializer */
    const char *format;   /* NULL or "ckpt": native; "safetensors": plain, needs weights_only or lossy */
    bool weights_only;    /* parameters and buffers alone: the file that the HF tools expect */
    bool directory;       /* path is a step directory: model.safetensors, training.safetensors, checkpoint.json. An
                                   * older one of that name is replaced whole: other files in it go with it */
    bool lossy;           /* what the format cannot hold may be left out */
    bool keep_existing;   /* an existing path stays, and the call is CKPT_E_EXISTS */
    bool no_sync;         /* no fsync: a power cut may lose the file */
    ckpt_progress progress;
    ckpt_report *report; /* NULL: none. The call clears it, and lists what is odd about the state:
                                   * "moments-incomplete" */
} ckpt_save_options;
#define CKPT_SAVE_OPTIONS_INIT CKPT_SIZED(ckpt_save_options)

/* Writes every bound tensor and value. The file appears whole under its name or not at all: the call writes a temporary in the
 * same directory with a CRC-32 of every tensor, syncs it (fdatasync), renames it, and syncs the directory. options may be NULL.
 *   CKPT_E_POISONED: the last restore failed. CKPT_E_SYSTEM: errno and the call that the system refused. After an error the
 * previous file is untouched. */
ckpt_status ckpt_save(ckpt_state *state, const char *path, const ckpt_save_options *options, ckpt_error *err);

CKPT_END_DECLS
#endif
