/* codec/crc32.h - zlib's CRC-32 (IEEE, reflected), by ISA-L where it was built in, else by zlib. */
#ifndef CKPT_CRC32_H
#define CKPT_CRC32_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
uint32_t ckpt__crc32(uint32_t crc, const void *data, size_t n); /* start with 0 */
uint32_t ckpt__crc32_combine(uint32_t a, uint32_t b, uint64_t length_of_b);
/* The CRC of the bytes, which are copied on the way (base/stream_copy.h). dst and src must not overlap. past: past the cache, and
 * ckpt__copy_stream_end has to follow; else by ordinary stores. */
uint32_t ckpt__crc32_copy_part(uint32_t crc, void *dst, const void *src, size_t n, bool past);
#endif
