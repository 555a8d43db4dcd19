/* run/signals.h - signals that ask a run to save and stop. One owner a process. */
#ifndef CKPT_RUN_SIGNALS_H
#define CKPT_RUN_SIGNALS_H
#include "base/base.h"

/* Installs one handler for each (SA_RESTART). The handler notes the signal and calls the earlier handler where that is
 * neither SIG_DFL nor SIG_IGN; a second signal of the kind restores the earlier disposition and raises it again, so that an
 * impatient user wins. CKPT_E_ARGUMENT: SIGINT, or a signal that cannot be caught or means a fault (SEGV, BUS, FPE, ILL,
 * ABRT, TRAP, KILL, STOP, XFSZ), or no signal; CKPT_E_EXISTS: another run of the process owns signals. */
ckpt_status ckpt__signals_take(const int *signals, size_t n, ckpt_error *err);
int ckpt__signals_caught(void); /* the first that came since ckpt__signals_take; 0: none. Cheap */
/* Restores the earlier dispositions, but not where someone installed a handler over ours since: ours then stays below it
 * and only passes on. Nothing happens where nothing is owned. */
void ckpt__signals_release(void);
#endif
