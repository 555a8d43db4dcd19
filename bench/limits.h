/* limits.h - what the machine can do at best with the bytes that bench/ckpt_bench.c saves and restores: reads and writes of a file,
 * past the page cache and through it, and copies in memory, by a number of threads and in blocks of a size. The benchmark tries
 * several of each and takes the fastest as the limit. Whatever fails ends the program. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

/* The memory that is read into, written from, or copied. It is borrowed. */
typedef struct limit_span {
    char *memory;   /* aligned to 4096 bytes */
    size_t size;    /* bytes; past the page cache only whole 4096 bytes of them are moved */
    size_t threads; /* 1 to 64; the calling thread is none of them where there are more than one */
    size_t block;   /* bytes of one call; a multiple of 4096 */
} limit_span;

enum limit_copy_way { LIMIT_COPY_EACH, LIMIT_COPY_WHOLE, LIMIT_COPY_STREAM };

/* The beginning of the file, into the memory. The threads take the blocks in the file's order. Returns seconds. */
double limit_read(const char *path, const limit_span *span, bool direct);

/* A new file with the bytes of the memory, on the disk when it returns (fdatasync). An older file is removed before the clock
 * starts. Past the page cache the blocks are allocated first (posix_fallocate). Returns seconds. */
double limit_write(const char *path, const limit_span *span, bool direct);

/* The memory to `to`, each thread a part of its own: a memcpy for each tensor of `tensor` bytes, one for the whole part, or
 * stores that go past the caches. Returns seconds. */
double limit_copy(char *to, const limit_span *span, size_t tensor, enum limit_copy_way way);

/* Memory in huge pages, as far as the system gives them, that has been touched. Freed by free(). */
char *limit_memory(size_t size);

#endif
