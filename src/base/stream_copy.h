/* base/stream_copy.h - copies of more bytes than the cache holds. */
#ifndef CKPT_STREAM_COPY_H
#define CKPT_STREAM_COPY_H
#include <stddef.h>

/* ThreadSanitizer does not see stores past the cache: it is given ordinary ones, which it sees. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CKPT__ORDINARY_STORES
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(CKPT__ORDINARY_STORES)
#define CKPT__ORDINARY_STORES
#endif

/* memcpy for a part of a job that is larger than the cache. An ordinary store first reads the line that it overwrites, and
 * leaves it in the cache, from which it drives what the program uses. On x86 this copy writes whole lines past the cache;
 * elsewhere it is memcpy. The C library does the same only where one call alone is large. dst and src must not overlap.
 *
 * Another thread may see the bytes only after the thread that copied them has called ckpt__copy_stream_end and then whatever orders
 * the two threads. That call waits for the stores, which takes longer than the copy of a kilobyte. */
void ckpt__copy_stream_part(void *dst, const void *src, size_t n);
void ckpt__copy_stream_end(void);

/* The same, and the bytes from src + ahead on, as many, are brought into the cache meanwhile: what is read next, so that reading it goes on
 * while this is written. They need not be there. 0: nothing is. */
void ckpt__copy_stream_ahead(void *dst, const void *src, size_t n, size_t ahead);
/* Likewise with ordinary stores, for which the target is brought into the cache too, half as far ahead. */
void ckpt__copy_ahead(void *dst, const void *src, size_t n, size_t ahead);
#endif
