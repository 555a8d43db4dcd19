/* ckpt/reader.h - open a checkpoint of any format, look at it, read tensors. */
#ifndef CKPT_READER_H
#define CKPT_READER_H

#include <ckpt/device.h>
#include <ckpt/error.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ckpt_reader ckpt_reader;

typedef struct ckpt_reader_options {
    uint32_t struct_size;         /* 0: this header's */
    const char *format;           /* NULL: told from the content; else "ckpt", "safetensors", "torch", ... */
    const char *const *also;      /* further files or directories of the same checkpoint (--one); borrowed during the call */
    size_t also_count;
    bool salvage;                 /* a damaged file: what is whole can be read, the rest is listed in the findings */
} ckpt_reader_options;

/* Opens a file or a step directory and reads its metadata, no payload. The format is told from the content, never
 * from the name. CKPT_E_FORMAT: not a checkpoint, or a rule of its format is broken; CKPT_E_DAMAGED; CKPT_E_TOO_NEW;
 * CKPT_E_UNSUPPORTED names what it is; CKPT_E_LIMIT; CKPT_E_SYSTEM. A reader is immutable and may be shared by
 * threads. Close with ckpt_reader_close, which accepts NULL. */
ckpt_status ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out, ckpt_error *err);
void ckpt_reader_close(ckpt_reader *reader);

const char *ckpt_reader_format(const ckpt_reader *reader);     /* "ckpt", "safetensors", "torch", ... */
const char *ckpt_reader_path(const ckpt_reader *reader);       /* as given */
uint64_t ckpt_reader_file_size(const ckpt_reader *reader);     /* bytes of all its files */
size_t ckpt_reader_tensor_count(const ckpt_reader *reader);
const ckpt_tensor_info *ckpt_reader_tensor(const ckpt_reader *reader, size_t i);  /* NULL past the end */
/* The first tensor of that name (name_size bytes); CKPT_E_NOT_FOUND. */
ckpt_status ckpt_reader_find(const ckpt_reader *reader, const char *name, size_t name_size, size_t *i, ckpt_error *err);

/* The value tree; NULL where the format has none (plain safetensors without __metadata__). */
const ckpt_value *ckpt_reader_root(const ckpt_reader *reader);

/* What was odd while reading (name collisions, CRCs that are not there, ...). Borrowed. */
const ckpt_report *ckpt_reader_findings(const ckpt_reader *reader);

/* Reads a whole tensor into host memory: C order, contiguous, little-endian. size must be its nbytes. Payload CRCs
 * are checked where the whole storage is read. CKPT_E_DAMAGED, CKPT_E_SYSTEM, CKPT_E_UNSUPPORTED (not dense, or a conjugated or
 * negated view, whose bytes are not its values). */
ckpt_status ckpt_reader_read(const ckpt_reader *reader, size_t i, void *dst, size_t size, ckpt_error *err);

/* zlib's crc32 over the tensor's elements in C order, little-endian, contiguous: equal for the same tensor in any
 * format. Streams where it can. */
ckpt_status ckpt_reader_crc32(const ckpt_reader *reader, size_t i, uint32_t *crc, ckpt_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
