/* run/run.h - what a run holds, and who may touch it.
 *
 * Two threads: the caller's, and the writer. `job` says whose things are whose: while it is not NONE the task and the
 * snapshot belong to the writer, else to the caller. Notices and info are under the lock. The store's path
 * and descriptor are only read, by both; its lock is the writer's while there is a job.
 *
 * The caller's thread is whoever is `inside`: a call that works enters by that flag, and a second one is refused. Other
 * threads may ask (poll, stopping, get_info): what these look at is under the lock too. */
#ifndef CKPT_RUN_INTERNAL_H
#define CKPT_RUN_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <ckpt/run.h>
#include "run/list.h"
#include "save/snapshot.h"
#include "state/state.h"
#include "io/claim.h"
#include "io/store.h"

/* The work that the caller's thread hands to the writer. The caller sets the job, and the writer sets it back to NONE.
 * EXIT stays until the caller has joined the thread.
 *
 * One process:      WRITE writes, publishes and finishes.
 * Several ranks:    WRITE, then PUBLISH once all ranks have written, then FINISH once all ranks have published.
 * Before the first save: RESERVE maps the memory of the snapshot. */
typedef enum ckpt__run_job {
    CKPT__JOB_NONE,
    CKPT__JOB_RESERVE,
    CKPT__JOB_WRITE,
    CKPT__JOB_PUBLISH,
    CKPT__JOB_FINISH,
    CKPT__JOB_EXIT
} ckpt__run_job;

/* How far the save is that is under way, on all ranks alike: they go from one to the next together. A run of one
 * process publishes at the end of WRITING. */
typedef enum ckpt__stage { CKPT__IDLE, CKPT__WRITING, CKPT__PUBLISHING } ckpt__stage;

/* The save that is under way, or the last one. The task exists so that both threads speak of one save: the caller's
 * thread fills the task, the writer works on it and leaves status, error and finished, and the caller's thread reads
 * those.
 *
 * A save of step 2000 by rank 3 of 4 has name "step-00002000", path "<run>/rank-00003/step-00002000", and the same odd
 * number `save` as the tasks of the three other ranks. After JOB_WRITE the sink holds the written directory under a
 * temporary name. JOB_PUBLISH commits the sink, sink becomes NULL, and `finished` gets its value. */
typedef struct ckpt__task {
    int64_t step, time;         /* completed steps; seconds since 1970 in UTC, when the save began */
    uint64_t save;              /* one number for what all ranks save together; rank 0 chooses it; 0 for one
                                   * process */
    ckpt_trigger trigger;       /* the reason for the save */
    char name[CKPT__STEP_NAME]; /* of the step's directory */
    char *path;                 /* heap, owned, until the next save begins: store path and name, for messages; NULL
                                   * before the first save, and where memory was short */
    ckpt__sink *sink;           /* owned, settled: waits for its publication; NULL: nothing waits */
    ckpt_status status;         /* of this rank; after the last stage that of all ranks */
    ckpt_error error;           /* of this rank's failure; means something where status is negative */
    double began, finished;     /* by ckpt__run_clock, in seconds; finished: it has its name, on disk */
} ckpt__task;

/* The files SAVE and STOP, by which a person asks for something: numbers in `touched` and `answering`. */
enum { CKPT__TOUCH_SAVE, CKPT__TOUCH_STOP, CKPT__TOUCHES };

/* One run of a trainer. Each field has one owner, and the owner alone touches the field:
 *
 *     from open to close, read by all       state, options, path, top, store, map, map_text, claim, owner, opened
 *     atomic                                inside, call
 *     the caller's thread                   resumed, floor, floor_saved, last_call, stalled, reserved,
 *                                           said_synchronous, looked_over, broken, broken_error, untold,
 *                                           untold_error, thread, threaded
 *     the writer while a job is under way,  task, snapshot, need, bad, bad_count, moved
 *     else the caller's thread
 *     whoever holds the lock                job and all fields below it
 *
 * An example of one save, in a run of one process with every_steps 100. ckpt_run_step(100): the caller's thread waits
 * for the writer, fills the task, copies the state into the snapshot and sets job WRITE. ckpt_run_step(101): the writer
 * is busy, and the call returns. The writer writes, publishes and finishes, and sets job NONE. ckpt_run_step(102): the
 * caller's thread finds the writer idle and the stage WRITING, takes the result from the task, counts it in `info` and
 * sets stage IDLE. */
struct ckpt_run {
    ckpt_state *state;        /* the trainer's; borrowed until the run is closed */
    ckpt_run_options options; /* a copy; what its pointers point at is the trainer's. more_signals is NULL once they
                                   * are taken */
    char *path;               /* heap, owned: as given, for messages */
    ckpt__store *top, *store; /* owned: of the run, and of this rank: one and the same for a run of one process */
    ckpt_map *map;
    char *map_text;             /* owned: of options.restore->map_location, read when the run was opened; or
                                          * NULL */
    ckpt__claim *claim;         /* owned: of `store`, for this process; NULL: with no_lock */
    pid_t owner;                /* the process that opened the run; a forked child is refused */
    _Atomic(void *) inside;     /* the thread whose call is at work (enter.c); NULL: none */
    _Atomic(const char *) call; /* and the name of that call, for messages */
    bool resumed;               /* ckpt_run_resume was called */
    int64_t floor;              /* completed steps: what was resumed, or saved since: no step below it is taken */
    bool floor_saved;           /* ... and it is the latter */
    bool owns_signals;          /* this run has the signals of the process (run/signals.h); set once, at the open */
    ckpt__held *bad;
    size_t bad_count; /* heap, owned: found not to be good, at the resume or because another rank
                                          * could not publish; retention does not count them. NULL: none */

    double opened, last_call, stalled; /* in seconds. By ckpt__run_clock: the open; the end of the last step's call,
                                          * 0: none yet. A duration: for how long the last save held the trainer up */
    ckpt__task task;
    ckpt__snapshot snapshot;         /* its memory is owned, and kept from save to save */
    ckpt__snapshot_need need;        /* of JOB_RESERVE: filled before that job is handed over */
    bool moved;                      /* the run directory is not at its path any more, and that was said */
    bool reserved, said_synchronous; /* JOB_RESERVE was decided on, once a run; the notice was given that saves are
                                          * written while the trainer waits */
    bool looked_over;                /* the state, for what a trainer forgot to bind: once, before the first save */
    ckpt_status broken; /* all_reduce failed: what the others know is not known, and it is not called again */
    ckpt_error broken_error;
    ckpt_status untold; /* of a save whose failure no call has returned yet */
    ckpt_error untold_error;

    pthread_t thread; /* the writer; means something where threaded */
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t changed;          /* of job: the writer waits for a job with it, and the caller's thread for NONE */
    ckpt__run_job job;               /* under the lock, as are: */
    ckpt_report *notices;            /* owned: what the trainer has not been told yet */
    ckpt_run_info info;              /* what ckpt_run_get_info gives; times in seconds */
    ckpt__stage stage;               /* written by the caller's thread alone, which reads it without the lock */
    double last_begin, longest_step; /* in seconds. By ckpt__run_clock: the last save's begin, else the resume or
                                          * the open. A duration: the longest so far from the end of one step's call to
                                          * the begin of the next */
    double state_bytes;              /* of the bound tensors, for the guess at the first save's time; 0 once a save was
                                   * timed */
    double looked; /* by ckpt__run_clock, in seconds: when the touch files were last looked for; 0: look
                                   * now */
    uint64_t touched[CKPT__TOUCHES];   /* the file that is there, by its id (ckpt__store_touched); 0: none */
    uint64_t answering[CKPT__TOUCHES]; /* the file that a save answers, or has answered, by its id; 0: none. A file
                                          * asks while its id differs from this one */
    ckpt_trigger stop_asked;           /* of any rank, and no save has answered it yet */
    bool signal_answered, deadline_answered; /* a save has answered the signal; the deadline */
};

double ckpt__run_clock(void); /* seconds, monotonic */

/* Queues a notice; it is told on the caller's thread by ckpt__run_tell. A notice is lost where memory is short. */
void ckpt__run_note(ckpt_run *run, ckpt_severity severity, const char *code, const char *fix, const char *format, ...)
    CKPT__PRINTF(5, 6);
void ckpt__run_note_all(ckpt_run *run, const ckpt_report *findings);
void ckpt__run_tell(ckpt_run *run);

/* ---- enter.c: who may call */
/* CKPT_E_ARGUMENT, and nothing is touched: a NULL run, a forked child, or another call is at work in this run: of
 * another thread, or of this one when a notice or all_reduce calls. */
ckpt_status ckpt__run_enter(ckpt_run *run, const char *call, ckpt_error *err);
ckpt_status ckpt__run_leave(ckpt_run *run, ckpt_status status, ckpt_error *err); /* gives status back, as does: */
/* An error that names no object gets the run's path, for "object: message" is how it is printed. */
ckpt_status ckpt__run_object(const ckpt_run *run, ckpt_status status, ckpt_error *err);

/* ---- due.c: what asks for a save */
ckpt_trigger ckpt__run_due(ckpt_run *run, int64_t done, double now);
bool ckpt__run_stops(ckpt_trigger trigger);
void ckpt__run_note_pace(ckpt_run *run, double now);                   /* at the beginning of a step */
void ckpt__run_answer(ckpt_run *run, ckpt_trigger trigger);            /* a save begins that answers it */
void ckpt__run_answered(ckpt_run *run, ckpt_trigger trigger, bool ok); /* ... and has ended */

/* ---- writer.c */
/* Hands a job to the writer thread, which is made when first needed; where none can be made it is done at once,
 * here. */
void ckpt__writer_start(ckpt_run *run, ckpt__run_job job);
bool ckpt__writer_busy(ckpt_run *run); /* with a save; making room for a snapshot is none */
void ckpt__writer_wait(ckpt_run *run);
void ckpt__writer_end(ckpt_run *run);

/* ---- save.c: the parts of a save, on either thread. Each takes and leaves task.status. */
void ckpt__task_write(ckpt_run *run, const ckpt__state_index *saved, const ckpt__payload *payload, ckpt__live *live);
void ckpt__task_publish(ckpt_run *run);
void ckpt__task_finish(ckpt_run *run); /* hints and retention: what goes wrong is a notice */
void ckpt__run_write_latest(ckpt_run *run, const char *name);
/* Restores or reads back what has that name in the run directory, wherever that was moved: calls fn with a path that
 * leads there, again where it did not lead there to the end. */
ckpt_status ckpt__run_reached(const ckpt_run *run, const char *name,
                              ckpt_status (*fn)(void *ctx, const char *path, ckpt_error *err), void *ctx,
                              ckpt_error *err);
/* Not to be counted by retention, and to be replaced whatever it is. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__run_mark_bad(ckpt_run *run, const ckpt__held *held, ckpt_error *err);

/* ---- map.c */
ckpt_status ckpt__run_map_open(ckpt_run *run, ckpt_error *err);
/* The options of the restore: options.restore with this run's ranks and format, and the map that counts (argument:
 * ckpt_run_resume's map_location), read. *own: to be freed when the restore is done. */
ckpt_status ckpt__run_map_take(const ckpt_run *run, const char *argument, ckpt_restore_options *out, ckpt_map **own,
                               ckpt_report *report, ckpt_error *err);

/* ---- back.c: after a resume from options.resume_step */
/* Renames what is later than `step` on this rank, takes it out of the list, and puts the hints right. An error: some of
 * it may be renamed, and the same call does the rest. */
ckpt_status ckpt__run_keep_aside(ckpt_run *run, int64_t step, ckpt__held *list, size_t *count, ckpt_report *report,
                                 ckpt_error *err);

/* ---- step.c */
/* Moves the save that is under way on as far as it goes; with `wait` to its end. Collective. A failure is `untold`; an
 * error is one of the all-reduce. */
ckpt_status ckpt__run_advance(ckpt_run *run, bool wait, ckpt_error *err);
ckpt_status ckpt__run_wait(ckpt_run *run, ckpt_error *err);
/* Gives the failure that no call has told yet, and forgets it. */
ckpt_status ckpt__run_untold(ckpt_run *run, ckpt_error *err);

/* ---- ranks.c: collective; a run of one process gets its own numbers back */
ckpt_status ckpt__reduce(ckpt_run *run, int64_t *v, size_t n, ckpt_op op, ckpt_error *err);
/* CKPT_OK where every rank has CKPT_OK; else the same error on every rank: that of the lowest one that failed, errors
 * that end a resume before others. */
ckpt_status ckpt__agree(ckpt_run *run, ckpt_status status, ckpt_error *err);
/* Is the file at fault, so that the checkpoint before it may be better? */
bool ckpt__may_fall_back(ckpt_status status, int sys_errno);
#endif
