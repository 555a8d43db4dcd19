/* io/trial.h - a call that may crash, tried in a process of its own before it is made: of a library of others that reads files and
 * is known to fall over damaged ones. */
#ifndef CKPT_TRIAL_H
#define CKPT_TRIAL_H
#include "base/base.h"

typedef struct ckpt__trial_want {
    ckpt_status (*fn)(void *ctx, ckpt_error *err);
    void *ctx;         /* borrowed, as the texts */
    unsigned seconds;  /* of the processor that it may take */
    uint64_t memory;   /* bytes beyond what the process has already; 0: no limit of its own */
    const char *label; /* for messages */
    const char *what;  /* the same: "libhdf5" */
} ckpt__trial_want;

/* Calls fn in a copy of this process (fork), which then ends; what fn changed is gone with it, but for its status and error, which
 * are given back. CKPT_E_DAMAGED, too: it crashed, or took more than `seconds` of the processor. CKPT_E_LIMIT, too: it called the
 * file damaged when it got no more memory (where our own code is built for a sanitizer there is no such limit). CKPT_E_SYSTEM: there
 * is no such process to be had, it stands still for a minute, or it was ended from outside: where memory runs out, or at a limit of
 * the program's own. (A program that ignores SIGCHLD is not told how it ended: CKPT_E_DAMAGED.) The program may get a SIGCHLD; the
 * copy shares its memory until it is written to, calls no exit handlers and prints nothing. Other threads of the program do not
 * exist in the copy: fn asks for no lock that they may hold (malloc's are no matter). */
ckpt_status ckpt__trial(const ckpt__trial_want *want, ckpt_error *err);
#endif
