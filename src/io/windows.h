/* io/windows.h - windows of files that pass, read past the page cache; those that are wanted next are read by threads meanwhile. For src/io
 * alone. */
#ifndef CKPT_WINDOWS_H
#define CKPT_WINDOWS_H
#include "io/source.h"

/* Of one source; one thread uses it. */
typedef struct ckpt__windows ckpt__windows;

/* s: borrowed until it is closed. memory: what the windows may take, in bytes. NULL: too little, or there is no memory; nothing is lost. */
ckpt__windows *ckpt__windows_open(const ckpt__source *s, uint64_t memory);
void ckpt__windows_close(ckpt__windows *w); /* those that are held were left before; accepts NULL */
/* Bytes [at, at + n) of a file, until they are left: those that were asked for, or what is read now. NULL: as many are held as may be, or the
 * bytes are not to be read so (ckpt__direct_look). */
const unsigned char *ckpt__window_read(ckpt__windows *w, uint32_t file, uint64_t at, size_t n);
void ckpt__window_leave(ckpt__windows *w, const unsigned char *bytes); /* accepts NULL */
/* Copies bytes of a file from `at` on, n at most, out of windows that were asked for, which stay. How many. */
size_t ckpt__window_peek(ckpt__windows *w, uint32_t file, uint64_t at, void *dst, size_t n);
/* They are wanted soon. Where as many others are asked for as may be, nothing is done. */
void ckpt__window_ask(ckpt__windows *w, uint32_t file, uint64_t at, size_t n);
#endif
