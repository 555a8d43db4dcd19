/* io/claim.h - which run directories this process has open: the lock on .lock is of files, and cannot tell one's own from
 * another's. */
#ifndef CKPT_CLAIM_H
#define CKPT_CLAIM_H
#include "io/store.h"

typedef struct ckpt__claim ckpt__claim;

/* CKPT_E_EXISTS: this process has the directory claimed already, by whatever path. A claim that a forked child inherits
 * counts for nothing in the child. */
ckpt_status ckpt__claim_take(const ckpt__store *s, ckpt__claim **out, ckpt_error *err);
void ckpt__claim_release(ckpt__claim *claim); /* accepts NULL */
#endif
