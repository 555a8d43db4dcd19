/* ckpt/restore.h - fill a state from a checkpoint, every tensor on its target device. */
#ifndef CKPT_RESTORE_H
#define CKPT_RESTORE_H

#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>
#include <ckpt/state.h>

CKPT_BEGIN_DECLS

/* Where a large checkpoint is in the page cache, and the file system gives a read lease on its files (fcntl(2): whoever would
 * write to one or cut it waits until the restore is done with it), a restore may map them instead of reading. It times both and takes the
 * faster one. */
#define CKPT_AVOID_MAPPING 0x1
/* Copies of a large checkpoint may go past the processor's cache (x86: non-temporal stores). */
#define CKPT_AVOID_STREAMING 0x2
/* Of a large checkpoint that for the most part is not in the page cache, what goes to host memory may be read past it (O_DIRECT) by eight threads and more, and is
 * not in it afterwards. Files that several processes restore at the same time go through it: the library tells by a shared lock (fcntl(2),
 * F_OFD_SETLK) on a byte far behind the end of each file. */
#define CKPT_AVOID_DIRECT 0x4

/* Options of a restore: what is restored, and where to. All zero is the safe default: strict, verified. Texts, lists and the map are borrowed during the
 * call. */
typedef struct ckpt_restore_options {
    uint32_t struct_size;     /* by the initializer */
    const char *map_location; /* the text of a map (ckpt_map_parse). NULL: the caller's buffers stay where they are;
                                   * tensors of the library go to their descriptor's device, else to their saved tag. A map
                                   * places the library's tensors, and a caller's buffer that lies elsewhere is the error
                                   * "device-mismatch". Two kinds of buffers are excepted: host memory of role "rng" or
                                   * "other" (a loader's order) stays unless a rule by name or role says otherwise; managed
                                   * memory has no fixed device and fits every target (the warning "managed") */
    const ckpt_map *map;      /* a map that was read already, instead of map_location; NULL: none */
    ckpt_optimizer_kind optimizer; /* the optimizer that will run; DEFAULT: the map's, else the saved flags' */
    ckpt_ranks ranks;              /* of expressions in the map; all zero: rank 0 of 1 */
    const char *format;            /* NULL: told from the content; else as ckpt_reader_options.format */
    const char *const
        *also; /* further files or directories of the same checkpoint: of a program on libtorch the path is
                                   * its module.pt, and { "optimizer.pt" } is also (ckpt_reader_options.also) */
    size_t also_count;
    bool allow_missing;       /* a bound name that is not in the checkpoint keeps its value */
    bool allow_unexpected;    /* a tensor of the model or the optimizer that is not bound is left alone */
    bool allow_cast;          /* dtypes may differ; values are rounded to nearest even, and the report lists them */
    bool allow_policy_breach; /* a rule by name or role that breaks the placement policy is a warning */
    bool no_verify;           /* payload CRCs are not checked */
    bool verify_first;        /* reads twice; on damage nothing is touched and the state is not poisoned */
    const char *const *param_names; /* the optimizer's parameters in order, group by group (positional files) */
    size_t param_name_count;
    ckpt_progress progress;
    const char
        *assume_order; /* the order that the file's optimizer has its parameters in, by its name (ckpt-map(5): "model",
                                   * "groups-reversed", ...), where more than one order fits; NULL: none */
    bool strict_order; /* an order that only shapes tell is an error; names in the file, param_names or assume_order
                                   * must tell it */
    size_t threads; /* that read, check and deliver, the calling one among them; 1 to 16, more count as 16. 0: two, and
                                   * where a tensor goes to a GPU twelve, but no more than the process may run on
                                   * processors; where most of the files is not in the page cache 16 to host memory, eight
                                   * with CKPT_AVOID_DIRECT, and twelve at most to a GPU. The result is
                                   * the same for any number: the bytes, and the error. Of a damaged checkpoint, which
                                   * tensors are still restored may differ */
    uint64_t
        avoid; /* CKPT_AVOID_..., or-ed: means to be fast that it goes without, to find out which one is to blame. The
                                   * result is the same. A bit that the library does not know is CKPT_E_ARGUMENT */
} ckpt_restore_options;
#define CKPT_RESTORE_OPTIONS_INIT CKPT_SIZED(ckpt_restore_options)

/* Fills the state from a file or a directory of any format that ckpt_reader_open reads. Of what PyTorch, Lightning,
 * accelerate or the HF Trainer wrote, the model's dict, the optimizer's, the scaler's and the step are found by structure, or
 * by the map's `source` (ckpt-map(5)); an optimizer that numbers its parameters needs param_names or assume_order where their
 * order cannot be told: where more than one order that trainers use fits, or parameters of equal shape in different branches
 * of the model could be exchanged (the error "order-ambiguous", which names them). 8-bit optimizer state is bound as it is
 * (state.h). The rest of such checkpoints (arguments, callbacks, the RNG of another language) is left alone, and the report
 * lists it ("left-over"). Tensors of the model or the optimizer that are not bound are an error, unless allow_unexpected; so
 * are values of a ckpt file, which a trainer bound once.
 *   Checks before the first byte moves: names, shapes, dtypes, devices that exist, memory, header CRC, file size. Everything
 * wrong is in one report; the message shows the first, eight at most. report may be NULL; it is cleared first and filled on
 * success (moved, cast, left over, source found) and on failure (missing, mismatch, untouched, complete, torn). After a
 * failure in mid-copy the state is poisoned until a restore completes. options may be NULL.
 *   CKPT_E_MISMATCH: something does not fit (all of it is in the report; of tensors that are not whole, the first); CKPT_E_ARGUMENT: an option is wrong;
 * CKPT_E_DAMAGED, CKPT_E_SYSTEM, CKPT_E_DEVICE, CKPT_E_CANCELLED, CKPT_E_NO_MEMORY; else as ckpt_reader_open. */
ckpt_status ckpt_restore(ckpt_state *state, const char *path, const ckpt_restore_options *options, ckpt_report *report,
                         ckpt_error *err);

/* n replicas (data parallel on n devices of one process): each byte of the file is read once. options[i] and reports[i]
 * belong to states[i]; options, reports and each of their elements may be NULL (defaults; no report). The options that concern the file
 * (format, also, no_verify, verify_first, progress, threads, avoid) are taken from options[0].
 *   Two states share a byte of memory only where both bind one place in one dtype, shape and strides, and both get the same
 * tensor or number of the checkpoint there (replicas with one step). All else that two states share is CKPT_E_MISMATCH, and
 * the finding "overlap" in the reports of both names the two tensors and states. No byte has moved then. */
ckpt_status ckpt_restore_many(ckpt_state *const *states, size_t n, const char *path,
                              const ckpt_restore_options *const *options, ckpt_report *const *reports, ckpt_error *err);

CKPT_END_DECLS
#endif
