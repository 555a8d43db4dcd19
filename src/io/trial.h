/* io/trial.h - a call that may crash, tried in a process of its own before it is made: of a library of others that reads files and
 * is known to fall over damaged ones. */
#ifndef CKPT_TRIAL_H
#define CKPT_TRIAL_H
#include "base/base.h"

/* Calls fn in a copy of this process (fork), which then ends; what fn changed is gone with it, but for its status and error, which
 * are given back. CKPT_E_DAMAGED, too: it crashed, or took more than `seconds` of the processor. CKPT_E_SYSTEM: there is no such process to be had, or it stands still for a minute. `label` and
 * `what` ("libhdf5") are for messages. The program may get a SIGCHLD; the copy shares its memory until it is written to, calls
 * no exit handlers and prints nothing. Other threads of the program do not exist in the copy: fn asks for no lock that
 * they may hold (malloc's are no matter). */
ckpt_status ckpt__trial(ckpt_status (*fn)(void *ctx, ckpt_error *err), void *ctx, unsigned seconds, const char *label,
                        const char *what, ckpt_error *err);
#endif
