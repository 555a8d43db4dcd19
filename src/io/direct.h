/* io/direct.h - bytes of a source's files past the page cache (O_DIRECT), where it does not have them.
 *
 * What a disk is read for comes through the page cache at the price of a new page for each 4 KiB. Past it the disk writes to a buffer of
 * ours in huge pages, from which the bytes are summed up and copied to where they are wanted. To have the disk write to the place itself was
 * slower where that is in pages of 4 KiB (GB/s of a virtual disk: 1.53, 1.42, and 1.04 through the page cache). It also could lose what the
 * program writes to the same page, in a process that forks meanwhile, on a kernel before 6.3. What the page cache has newer than the disk, the
 * system writes to the disk first.
 *   Such bytes are not in the page cache afterwards. Where several processes restore one file at the same time, each would have the disk read
 * all of it (two of them took 1.9 times as long as through the page cache). So whoever reads a file so has a shared lock on a byte far
 * behind its end (fcntl(2), F_OFD_SETLK), and while another has it too, both read through the page cache. A program that wants to lock the
 * file by fcntl to infinity, for itself alone, waits for the restore.
 */
#ifndef CKPT_DIRECT_H
#define CKPT_DIRECT_H
#include "io/source.h"

/* Files that are open for such reads at the same time; the bytes that one read has at most, from one multiple of CKPT__DIRECT_ALIGN in the file to
 * another. */
enum { CKPT__DIRECT_FILES = 32, CKPT__DIRECT_MOST = 2 << 20, CKPT__DIRECT_ALIGN = 4096 };

/* The files of one source that were asked for. Threads may share it. */
typedef struct ckpt__direct ckpt__direct;

/* s: borrowed until it is closed. Files that are added to it later are not read so. NULL: no memory. */
ckpt__direct *ckpt__direct_open(const ckpt__source *s);
void ckpt__direct_close(ckpt__direct *d); /* accepts NULL */
/* Bytes [offset, offset + n) of a file, until ckpt__direct_leave. NULL: they are to be read by ckpt__source_read, which also says what is
 * wrong with them. Half of them or more are in the page cache, or somebody else reads the file so, or it is shorter, or lies on another machine's
 * disk, or such reads of it are refused; or d is NULL. */
const unsigned char *ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n);
void ckpt__direct_leave(ckpt__direct *d, const unsigned char *bytes);
#endif
