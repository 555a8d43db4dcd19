/* engine/engine.h - the one place where payload bytes move: reading storages, writing recipes. */
#ifndef CKPT_ENGINE_H
#define CKPT_ENGINE_H
#include <ckpt/progress.h>
#include <ckpt/reader.h>
#include <ckpt/verify.h>
#include "format/format.h"
#include "io/sink.h"
#include "io/source.h"
#include "model/index.h"

enum { CKPT__BLOCK = 8 << 20 };   /* bytes of a block of the output, and of a read */

typedef struct ckpt__reader_parts ckpt__reader_parts;    /* reader/parts.h */

struct ckpt_reader {
    char *path;
    ckpt__source *source;
    ckpt__index *index;
    ckpt__hash *by_name;
    ckpt__reader_parts *parts;
};

/* ckpt_reader_open, but that a file of several that is damaged or missing becomes a finding, and the others are read. */
ckpt_status ckpt__reader_survey(const char *path, const ckpt_reader_options *options, ckpt_reader **out, ckpt_error *err);

/* Of ckpt_verify what looks at payloads: one finding for each tensor whose bytes are not what its own CRC, or that of its
 * storage, says; result gets the bytes (add to what is there). */
ckpt_status ckpt__verify_payloads(const ckpt_reader *reader, ckpt_verify_result *result, ckpt_report *report, ckpt_error *err);

/* ckpt_reader_crc32; where check is false, what the file keeps of CRCs is not compared. */
ckpt_status ckpt__reader_crc32(const ckpt_reader *reader, size_t i, bool check, uint32_t *crc, ckpt_error *err);

/* The decoded bytes of storage i, as stored (no byte swap), in order, in blocks. With check, a CRC that the extent has
 * is compared at the end: CKPT_E_DAMAGED ("crc-mismatch"). A return of fn other than CKPT_OK stops and is returned. */
typedef ckpt_status (*ckpt__block_fn)(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err);
ckpt_status ckpt__read_storage(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                               ckpt__block_fn fn, void *ctx, ckpt_error *err);
/* The same, into buffers that the caller gives: buffer() is asked before each block for room for n bytes (at most
 * CKPT__BLOCK) at `offset`; fn is called once they are filled. */
typedef ckpt_status (*ckpt__buffer_fn)(void *ctx, uint64_t offset, size_t n, void **buffer, ckpt_error *err);
ckpt_status ckpt__read_storage_into(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                                    ckpt__buffer_fn buffer, ckpt__block_fn fn, void *ctx, ckpt_error *err);
/* The elements of tensor i in C order, little-endian, contiguous, in order, in blocks of whole elements, with conjugate
 * and negated views resolved. With check, the CRCs of the storage, of which it may be a part, and of the tensor are compared. Memory is bounded
 * (engine/payload.h). */
ckpt_status ckpt__read_tensor(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool check,
                              ckpt__block_fn fn, void *ctx, ckpt_error *err);
/* The same, unresolved and unchecked: what the CRC of a tensor is of. */
ckpt_status ckpt__read_tensor_as_stored(const ckpt__source *source, const ckpt__index *index, size_t tensor,
                                        ckpt__block_fn fn, void *ctx, ckpt_error *err);

/* Where a recipe's payloads come from: bytes [offset, offset + n) of the payload of `number` (PAYLOAD: a tensor's
 * elements in C order; STORAGE: a storage's bytes), asked for in order within one payload. */
typedef struct ckpt__payload {
    ckpt_status (*read)(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                        ckpt_error *err);
    void *ctx;
    bool alone;                   /* the thread that reads writes as well; else another one does */
    size_t block;                 /* bytes that are written at a time; 0: CKPT__BLOCK */
} ckpt__payload;

/* Writes the recipe to the sink (which has its size): 8 MiB blocks or smaller, CRC of each payload on the way, the deferred bytes
 * last. crc (may be NULL) gets the CRC-32 of the whole file. Does not commit. */
ckpt_status ckpt__write_recipe(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                               const ckpt_progress *progress, uint64_t done_before, uint64_t total, uint32_t *crc,
                               ckpt_error *err);
#endif
