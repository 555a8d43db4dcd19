/* io/cached.h - bytes of a source's files where the page cache has them, without a copy.
 *
 * A program that reads a mapping of a file which somebody cuts meanwhile is ended by SIGBUS. So a file is mapped only where nobody can
 * cut it: it lies on a file system of this machine's own, nobody has it open for writing, and the program gets a read lease on it (fcntl(2), F_SETLEASE:
 * the file is the caller's, or the caller has CAP_LEASE). Whoever then opens it for writing, or cuts it by name, waits until the lease is
 * given back, for as many seconds as /proc/sys/fs/lease-break-time says (45). Each look asks whether somebody waits; then the lease is given
 * back as soon as the looks under way have ended, and the rest of the file is read. When another file is looked at, those that nobody
 * looks at any more are given back too. No signal is sent, for the descriptor of the file has no owner; but for the moment between taking
 * the lease and giving up its ownership, where it is SIGURG, which does nothing unless the program has a handler of its own.
 *   One case is left: a process that is stopped (SIGSTOP) for longer than that, between a look and the end of its use, while the file is cut. */
#ifndef CKPT_CACHED_H
#define CKPT_CACHED_H
#include "io/source.h"

/* Files that are mapped at the same time: each keeps a descriptor. */
enum { CKPT__CACHED_FILES = 32 };

/* The files of one source that were asked for. Threads may share it. */
typedef struct ckpt__cached ckpt__cached;

/* s: borrowed until it is closed; no file is added to it meanwhile. NULL: no memory, or this system has no such mappings. All
 * below accept NULL. */
ckpt__cached *ckpt__cached_open(const ckpt__source *s);
void ckpt__cached_close(ckpt__cached *c);
/* Is the file system one whose files no other machine changes, and whose pages stay where they are? */
bool ckpt__cached_is_local(int fd);
/* Bytes [offset, offset + n) of a file, to be read until ckpt__cached_leave; nobody changes them. NULL: the file is not mapped, or not
 * all of them are in the page cache. */
const unsigned char *ckpt__cached_look(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n);
/* The end of that, with the same arguments. The pages are no longer counted as the process's own. */
void ckpt__cached_leave(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n);
#endif
