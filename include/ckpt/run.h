/* ckpt/run.h - the resume hook: a training run whose checkpoints survive kills, full disks and signals.
 *
 *     ckpt_run *run = NULL;
 *     ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
 *     o.every_steps = 1000;
 *     o.retention.keep_last = 3;
 *     int64_t done = 0;                                      completed steps
 *     if (ckpt_run_open("runs/gpt", state, &o, &run, &err) < 0 ||
 *         ckpt_run_resume(run, NULL, &done, NULL, &err) < 0)  NULL: your buffers stay where they are. A map_location is
 *         return fail(&err);                                 for memory that the library allocates (data NULL)
 *     while (done < last) {                                  from what was resumed: steps only grow
 *         train(done);
 *         ckpt_status s = ckpt_run_step(run, ++done, &err);
 *         if (s == CKPT_STOP) break;                         saved because of a signal, a deadline or a STOP file
 *         if (s < 0) warn(&err);                             a save failed; training may go on
 *         if (s < 0 && ckpt_run_stopping(run)) break;        ... unless it is to stop now: the checkpoint before is on disk
 *     }
 *     ckpt_run_close(run, &err);
 *
 * A run directory holds
 *     step-00001000/     a step directory (see ckpt_save_options.directory), named by completed steps; published whole
 *     latest             its name; a hint for people and scripts: a resume looks at the directories themselves
 *     verified           names of checkpoints that were read back, or restored from, with every CRC right; a hint
 *     .lock              locked by the process that writes here
 *     .tmp-*, .trash-*   what is being written or removed; what a dead writer left goes when the next one opens the run
 *     aside-step-*       what was later than a step that a run went back to (resume_step): kept, and read by nothing
 * and with several ranks one such directory for each, rank-00000, rank-00001, ..., on a shared disk or on each its own.
 *
 * A run belongs to one thread at a time, and to the process that opened it (never to a child that was forked). A call that
 * comes while another is at work in the run, from another thread or from a notice or all_reduce of that very call, is
 * CKPT_E_ARGUMENT and touches nothing, ckpt_run_close included; ckpt_run_poll, ckpt_run_stopping and ckpt_run_get_info may be
 * called by any thread until the run is closed (not by a signal handler). The writer thread touches the snapshot, never the state. */
#ifndef CKPT_RUN_H
#define CKPT_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/report.h>
#include <ckpt/restore.h>
#include <ckpt/state.h>

CKPT_BEGIN_DECLS

/* ---- which checkpoints stay: a plan without I/O */

/* All zero: every checkpoint stays. The struct never grows: it is a field of ckpt_run_options. */
typedef struct ckpt_retention {
    int64_t keep_last;  /* the newest N complete ones stay, others go; 0: nothing is ever removed */
    int64_t keep_every; /* those whose step is a multiple of K stay as well; 0: none */
} ckpt_retention;

/* A checkpoint of a run directory, as it lies on the disk. Strings live as long as the list that it is from. The library makes
 * the struct; it may grow. */
typedef struct ckpt_run_entry {
    const char *name; /* "step-00001000" */
    const char *path; /* what ckpt_reader_open takes; with several ranks that of the lowest that holds it */
    int64_t step;
    int64_t time;       /* when it was saved, seconds since 1970 in UTC; -1: not known */
    uint64_t nbytes;    /* of its files, of all ranks that hold it */
    int64_t world;      /* how many ranks saved it; 1 for a run of one process */
    int64_t ranks_held; /* how many of them hold this very save here */
    bool complete;      /* on every rank: a sound manifest, every file there with its size, one save. Payload
                                   * CRCs are not read: see ckpt_verify */
    bool verified;      /* read back or restored from, with every CRC right, by some process (the hint) */
    const char *why;    /* not complete: what is wrong; else "" */
} ckpt_run_entry;

/* One checkpoint, as ckpt_retention_plan has to know it (ckpt_run_entry has the same fields). The struct never grows: the plan takes an array
 * of it. */
typedef struct ckpt_retention_entry {
    int64_t step;
    bool complete;
    bool verified;
} ckpt_retention_entry;

/* remove[i] is set where entries[i] would go: complete, not the newest complete one, not the newest verified one, not
 * among the newest keep_last complete ones, and not a multiple of keep_every. An incomplete one is never removed: it is
 * not understood. Pure; the order of the entries does not matter. */
void ckpt_retention_plan(const ckpt_retention *rule, const ckpt_retention_entry *entries, size_t n, bool *remove);

/* The checkpoints of a run directory, newest first: metadata only, no lock is taken and nothing is written, so it may be listed
 * while a run writes and prunes. CKPT_E_FORMAT: not a run directory; CKPT_E_SYSTEM. */
typedef struct ckpt_run_list ckpt_run_list;
ckpt_status ckpt_run_list_open(const char *path, ckpt_run_list **out, ckpt_error *err);
void ckpt_run_list_close(ckpt_run_list *list); /* accepts NULL */
size_t ckpt_run_list_count(const ckpt_run_list *list);
const ckpt_run_entry *ckpt_run_list_entry(const ckpt_run_list *list, size_t i); /* newest first; NULL past the end */
/* Who holds the lock ("pid 17 on host a"); NULL: nobody. */
const char *ckpt_run_list_writer(const ckpt_run_list *list);
/* Notes of what was odd: "stale-hint" (latest names what is not the newest), "leftover" (.tmp-*, .trash-*),
 * "incomplete-step", "kept-aside" (aside-step-*). Borrowed. */
const ckpt_report *ckpt_run_list_findings(const ckpt_run_list *list);

/* ---- several ranks */

typedef enum ckpt_op { CKPT_OP_MIN = 1, CKPT_OP_MAX, CKPT_OP_SUM } ckpt_op;

/* Reduces v[0..n) element by element over all ranks and leaves the result in v on every rank. 0: done; anything else:
 * it failed. Called on the thread that calls ckpt_run_*, by every rank in the same order: all ranks call the same
 * ckpt_run functions with the same steps. One call of five numbers a step, more where something is saved. A rank that is
 * gone must make it fail, not wait for ever. */
typedef int (*ckpt_all_reduce_fn)(void *ctx, int64_t *v, size_t n, ckpt_op op);

/* ---- the run */

typedef struct ckpt_run ckpt_run;

/* Called with each event, as a finding, on the thread that calls ckpt_run_*, during that call: "saved", "save-failed",
 * "save-skipped", "synchronous", "pruned", "prune-failed", "hint-failed", "recovered", "fallback", "run-moved", ...
 * (ckpt.3 lists them). Strings live during the call. The message of a "save-failed" names a stop that asked for the save: "a
 * stop was asked for (signal), and its save failed: ...". */
typedef void (*ckpt_notice_fn)(void *ctx, const ckpt_finding *finding);

/* Zero is the safe default: asynchronous, durable, locked, every checkpoint kept, no signal touched. */
typedef struct ckpt_run_options {
    uint32_t struct_size; /* by the initializer */

    /* when to save: any of them */
    int64_t every_steps;  /* when done is a multiple; 0: not by steps */
    double every_seconds; /* since the last save began; 0: not by time */
    int64_t last_step;    /* the run's last step: saved whatever the period says; 0: not known */

    ckpt_retention retention;

    /* how to save */
    bool synchronous;        /* ckpt_run_step returns when the checkpoint is on disk: no snapshot, no thread */
    bool skip_when_busy;     /* a save that comes due while one is being written is left out ("save-skipped");
                                   * default: it waits for that one. Saves that stop the run always wait */
    uint64_t snapshot_limit; /* bytes of host memory for the snapshot; a larger state is saved synchronously, which
                                   * is said once ("synchronous"). 0: half of what is free when it is first needed */
    bool read_back;          /* the writer reads each checkpoint back and checks every CRC: it is then verified */

    /* how to resume: borrowed until the last ckpt_run_resume returns. Its map_location is read when the run is opened. Where
     * the map_location of ckpt_run_resume is not NULL, that one counts instead of both maps here. NULL: defaults */
    const ckpt_restore_options *restore;

    /* when to save and stop (CKPT_STOP) */
    bool signals;            /* SIGTERM and SIGUSR1 save and stop. One run of a process may own signals */
    const int *more_signals; /* others that do; never SIGINT; copied */
    size_t more_signal_count;
    double time_limit;   /* seconds from ckpt_run_open until the job is killed; it saves and stops when no more
                                   * is left than the last save and the longest step took, with some to spare. 0: none */
    bool no_touch_files; /* default: a file SAVE in the run directory saves at the next step, a file STOP saves
                                   * and stops; looked for once a second, removed when that is done. Rank 0 looks */

    /* several ranks: all_reduce is needed when ranks.world > 1. The ranks must have the same synchronous, skip_when_busy and
     * resume_step, or the open fails. Once all_reduce has failed, it is not called again and every call fails. All zero: rank 0
     * of 1 */
    ckpt_ranks ranks;
    ckpt_all_reduce_fn all_reduce;
    void *all_reduce_ctx;

    ckpt_notice_fn notice; /* NULL: nobody is told; errors still come back from the calls */
    void *notice_ctx;

    bool no_lock; /* the directory is not locked, and a second writer is not refused: for a file system without
                                   * locks */

    int64_t resume_step; /* the step that ckpt_run_resume goes back to; 0: the newest. Once the checkpoint of that
                                   * step is restored, later ones are renamed ("aside-step-00000040"): no resume, retention or
                                   * step count looks at them. A program that keeps this option goes back at each start */
    bool prune_first;    /* with keep_last > 1: one more old checkpoint is removed before a save, to make room for the
                                   * new one. Until that is published there is one checkpoint less than keep_last. The last
                                   * complete checkpoint always stays */
    uint64_t snapshot_threads; /* that copy the state into the snapshot, the calling one among them, while ckpt_run_step
                                   * waits. The state's host memory is read by all of them. 0: as many as the process may run on,
                                   * eight at most; 256 are the most */
} ckpt_run_options;
#define CKPT_RUN_OPTIONS_INIT CKPT_SIZED(ckpt_run_options)

/* Opens the run directory (made with its parents where it is not there), locks it, and removes what a dead writer left.
 * The state is borrowed until ckpt_run_close; it need not be complete yet. CKPT_E_EXISTS: another process writes here,
 * by pid and host, or this process has the directory open already, by whatever path; CKPT_E_ARGUMENT, also for a map_location of
 * options.restore that is none; CKPT_E_SYSTEM. Options may be NULL: then only ckpt_run_save saves. */
ckpt_status ckpt_run_open(const char *path, ckpt_state *state, const ckpt_run_options *options, ckpt_run **out,
                          ckpt_error *err);

/* Restores the newest checkpoint that is whole, every CRC checked, and sets *done to its completed steps. A damaged one
 * is skipped, and the one before it is taken, with a warning "fallback" in the report that says why; a checkpoint that does
 * not fit the state (CKPT_E_MISMATCH), is too new, or finds no memory or device is an error at once. Candidates that
 * exist and none that loads is an error, never a silent start from step 0. With several ranks: the newest step that all
 * ranks hold of one save, or the same error on all; a run that died in its very first save, before all ranks had published
 * it, begins anew. To be called once before the first step, also in a new run: CKPT_NOTHING_TO_RESUME (positive), *done is
 * 0. report may be NULL.
 *   map_location as in ckpt_restore_options: NULL for buffers of your own, which stay where they are; a map for tensors that the
 * library allocates, or to have it checked that your buffers lie where the map says. It is read before any checkpoint is looked
 * for, in a new run too: what ckpt_map_parse says of it is the error of this call, and so is a device string whose device
 * is not there (CKPT_E_DEVICE). Rules count where a tensor uses them.
 *   With options.resume_step: that step or an error, which lists the steps that are there; nothing was renamed then. Later ones
 * are kept aside once the step is restored, on all ranks: the warning "kept-aside" in the report, and as a notice. After a
 * kill on the way the same call does the rest. */
ckpt_status ckpt_run_resume(ckpt_run *run, const char *map_location, int64_t *done, ckpt_report *report,
                            ckpt_error *err);

/* After each step: `done` steps are complete. Saves when something asks for it. When this returns the checkpoint's
 * content is fixed, whatever the trainer changes afterwards; it is on disk later (see ckpt_run_wait). CKPT_OK;
 * CKPT_STOP: saved, on disk, leave the loop; an error of this or of an earlier save: training may go on, the previous
 * checkpoint is untouched, and the next save that is due tries again. A stop whose save failed comes back as that
 * error and is tried again at the next step (see ckpt_run_stopping). CKPT_E_ARGUMENT: `done` is below the step that was resumed,
 * or below one that this run has saved (steps only grow: a loop that begins at 0 again would save the weights of step 1000 as
 * those of step 1; resume_step goes back); or a bound "step" does not equal `done`. Nothing is saved then, and nothing harmed. */
ckpt_status ckpt_run_step(ckpt_run *run, int64_t done, ckpt_error *err);

/* Saves now, whatever is due (the end of an epoch, a best score). */
ckpt_status ckpt_run_save(ckpt_run *run, int64_t done, ckpt_error *err);

/* Waits until what was saved is on disk, or has failed: an error that no call has told yet. */
ckpt_status ckpt_run_wait(ckpt_run *run, ckpt_error *err);

/* ckpt_run_wait, then unlocks and frees, in any case. Accepts NULL. */
ckpt_status ckpt_run_close(ckpt_run *run, ckpt_error *err);

/* Would ckpt_run_step save? This rank's own view; cheap. */
typedef enum ckpt_trigger {
    CKPT_TRIGGER_NONE = 0,
    CKPT_TRIGGER_PERIODIC,
    CKPT_TRIGGER_CALL,
    CKPT_TRIGGER_FILE,
    CKPT_TRIGGER_STOP_FILE,
    CKPT_TRIGGER_SIGNAL,
    CKPT_TRIGGER_DEADLINE /* several at once: the last of them counts */
} ckpt_trigger;
const char *ckpt_trigger_name(ckpt_trigger trigger); /* "periodic" */
ckpt_trigger ckpt_run_poll(ckpt_run *run, int64_t done);

/* Has a stop been asked for (a signal, the file STOP, the time limit) that no save has answered yet? NONE, or what asked. After a
 * ckpt_run_step that failed it tells a stop whose save failed, which the next steps try again, from a periodic save that
 * failed: a trainer that has to leave now leaves its loop here, with the last good checkpoint on disk. Cheap. */
ckpt_trigger ckpt_run_stopping(ckpt_run *run);

/* For the trainer's own log. */
typedef struct ckpt_run_info {
    uint32_t struct_size; /* by the initializer */
    int64_t resumed_step; /* -1: nothing was resumed */
    int64_t saved_step;   /* the newest that this run has on disk, -1: none */
    uint64_t saves, failures, skipped;
    uint64_t snapshot_bytes; /* host memory that the snapshot holds */
    double stall_seconds;    /* of the last save: how long the call held the trainer up */
    double save_seconds;     /* from its beginning to its being on disk */
    bool busy;               /* a save is being written */
} ckpt_run_info;
#define CKPT_RUN_INFO_INIT CKPT_SIZED(ckpt_run_info)
void ckpt_run_get_info(ckpt_run *run, ckpt_run_info *out);

CKPT_END_DECLS
#endif
