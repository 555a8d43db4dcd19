/* ckpt/reader.h - open a checkpoint of any format, look at it, read tensors. */
#ifndef CKPT_READER_H
#define CKPT_READER_H

#include <ckpt/device.h>
#include <ckpt/error.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>

CKPT_BEGIN_DECLS

typedef struct ckpt_reader ckpt_reader;

/* How to open. Zero is the default: the format is told from the content, and every byte that is read is checked. Texts are
 * borrowed during the call. */
typedef struct ckpt_reader_options {
    uint32_t struct_size; /* by the initializer */
    const char *format;   /* NULL: told from the content; else "ckpt", "safetensors", "torch", "torch-legacy", "pickle",
                                   * "keras", "hf", "hf-trainer", "accelerate", "peft", "dcp", "llmc", "deepspeed", "universal",
                                   * "torch-dist", "megatron", "fsdp" or "folder" */
    const char *const *also; /* further files or directories of the same checkpoint: "optimizer.pt" beside the path
                                   * "module.pt", the directories of other ranks; nothing else in those folders is read (the
                                   * commands' --one). Borrowed during the call */
    size_t also_count;
    bool salvage;       /* a damaged file: what is whole can be read, the rest is listed in the findings */
    bool leave_large;   /* of a storage over 64 MiB an eighth at most, in all, is read without reading all of it for
                                   * its CRC; ckpt_reader_unchecked counts that. Else every byte read is checked */
    bool leave_damaged; /* of a directory of accelerate or the HF Trainer: a damaged file that its own loader does not
                                   * need (random_states_N.pkl, training_args.bin, or of optimizer.pt and scheduler.pt one without
                                   * the other) is left out, and the error finding "member-damaged" names it; for a doctor. Of a
                                   * distributed checkpoint or shards of Keras: a file that is missing or short, or a rank's
                                   * list. The findings shard-missing, truncated and rank-missing name it, the rest is read,
                                   * and tensors whose bytes were in it are listed */
} ckpt_reader_options;
#define CKPT_READER_OPTIONS_INIT CKPT_SIZED(ckpt_reader_options)

/* Opens a file or a directory and reads its metadata, no payload. A directory may be a step of a run, a model in shards (its index
 * file will do, too), a checkpoint of accelerate, the HF Trainer, PEFT or torch.distributed.checkpoint, or hold files that belong
 * together. A directory that is neither a step of ours nor a distributed checkpoint has the root {file name: what is in it}, and
 * each tensor has its file. The format is told from the content, never from the
 * name. options may be NULL. CKPT_E_FORMAT: not a checkpoint, or a rule of its format is broken; CKPT_E_DAMAGED;
 * CKPT_E_TOO_NEW; CKPT_E_UNSUPPORTED names what it is; CKPT_E_LIMIT; CKPT_E_SYSTEM (of a path that is not there sys_errno
 * is ENOENT); CKPT_E_NOT_FOUND where it was removed while it was opened; CKPT_E_ARGUMENT: a path is NULL, or there is no
 * format of that name; *out is NULL then. A reader may be shared by threads. It holds its files open: what is replaced by
 * a rename afterwards is read as it was.
 *   Close with ckpt_reader_close, which accepts NULL. All that the functions below give (names, shapes, values, mapped
 * bytes) belongs to the reader and is gone then: copy what is to stay. Where they are given a NULL reader, those that have
 * a status answer CKPT_E_ARGUMENT, the others NULL or 0. */
ckpt_status ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out, ckpt_error *err);
void ckpt_reader_close(ckpt_reader *reader);

/* Which layout of several ranks or files a directory has, by the names in it: "dcp" or "dcp-hf", which ckpt_reader_open reads, or
 * one that it knows and refuses with CKPT_E_UNSUPPORTED ("nanotron", "tensorflow"). NULL: none of these. Static. */
const char *ckpt_layout_of(const char *path);

const char *ckpt_reader_format(const ckpt_reader *reader); /* "ckpt", "safetensors", "torch", ... */
const char *ckpt_reader_path(const ckpt_reader *reader);   /* as given */
/* How the ranks that saved it divided it: "ZeRO stage 2 over 8 data parallel ranks". NULL: it is not divided, or its format does not
 * tell. */
const char *ckpt_reader_layout(const ckpt_reader *reader);
uint64_t ckpt_reader_file_size(const ckpt_reader *reader); /* bytes of all its files */
size_t ckpt_reader_tensor_count(const ckpt_reader *reader);
/* In the file's order. The parts of a tensor that is not dense, or is quantized by channel, follow it, and are tensors too. */
const ckpt_tensor_info *ckpt_reader_tensor(const ckpt_reader *reader, size_t i); /* NULL past the end */
/* The first tensor of that name (name_size bytes): its key path joined by dots. Two may have one name ({"a.b": .., "a": {"b":
 * ..}}: a finding name-collision); their paths differ. CKPT_E_NOT_FOUND. i may be NULL. */
ckpt_status ckpt_reader_find(const ckpt_reader *reader, const char *name, size_t name_size, size_t *i, ckpt_error *err);

/* The value tree, to be walked or looked into by path (<ckpt/value.h>); NULL where the format has none (plain safetensors
 * without __metadata__). */
const ckpt_value *ckpt_reader_root(const ckpt_reader *reader);

/* Oddities met while reading (name collisions, CRCs that are not there, ...). Borrowed. */
const ckpt_report *ckpt_reader_findings(const ckpt_reader *reader);

/* Bytes that were read so far and not checked, where leave_large permits it; 0 where all were that have a CRC. *of (may be
 * NULL) gets the size of the storages that they are a part of, report (may be NULL) a note "bytes-unchecked" where there are
 * some. A storage that was checked later counts as checked. */
uint64_t ckpt_reader_unchecked(const ckpt_reader *reader, uint64_t *of, ckpt_report *report);

/* Reads a whole tensor into host memory: C order, contiguous, little-endian; a conjugated or negated view gives its values.
 * size must be its nbytes. Elements are as they were saved, whatever their dtype: nothing is cast, and of a quantized tensor
 * they are its integers (scale and zero point: ckpt_value.args). Where the file keeps a CRC of
 * the tensor's storage it is compared, whatever part of the storage the tensor shows: for a view, or a part, the storage is
 * read once more, once for all tensors of it, and the answer is kept until the reader is closed.
 * Beside dst it takes memory for a deflated storage or a view whose elements do not lie in order only, at most 128 MiB.
 * CKPT_E_DAMAGED, CKPT_E_SYSTEM; CKPT_E_UNSUPPORTED: not dense (read its parts), or no data; CKPT_E_ARGUMENT: a NULL or
 * another size; CKPT_E_MISMATCH: dst is memory of a device, or the pieces of a split tensor are not all of it, or meet;
 * CKPT_E_LIMIT: a view of more than 16 GiB whose elements do not lie in order repeats what is stored more than 1,024 times.
 * Where it fails while reading, dst is undefined. */
ckpt_status ckpt_reader_read(const ckpt_reader *reader, size_t i, void *dst, size_t size, ckpt_error *err);

/* The same into memory of a device (its address as the driver gave it), through page-locked buffers (32 MiB, made by the
 * first call, kept until the reader is closed; threads that share the reader take turns). It comes after all that is queued
 * on `stream` now, the caller's CUstream (NULL: the default stream), and is done when the call returns. A cpu is
 * ckpt_reader_read. CKPT_E_MISMATCH where dst is not memory of that device, CKPT_E_DEVICE where there is none; where it
 * fails later, dst is undefined. */
ckpt_status ckpt_reader_read_to(const ckpt_reader *reader, size_t i, ckpt_device device, void *stream, void *dst,
                                size_t size, ckpt_error *err);

/* One piece of a tensor: which elements it has, and where they lie. A tensor that is whole has one, with all of it. Fill it by
 * ckpt_reader_piece. A float32 tensor of shape 8 x 4 that two ranks have split by rows has two, each of 64 bytes, in a file each:
 * lo {0, 0}, size {4, 4}, and lo {4, 0}, size {4, 4}. Pointers are borrowed until the reader is closed. */
typedef struct ckpt_piece_info {
    uint32_t struct_size;     /* by the initializer */
    uint32_t ndim;            /* dimensions of the tensor: numbers in lo, size and strides */
    const int64_t *lo, *size; /* the box: its first index and how many, in elements of the tensor. NULL: flat */
    const int64_t *strides;   /* from one index to the next in the storage, in elements; NULL: C order of the box */
    uint64_t flat_begin; /* flat: the first of its elements, in C order of the tensor; they lie one behind the other */
    uint64_t flat_count;
    uint64_t nbytes;         /* of its elements (rounded up to whole bytes) */
    int64_t storage;         /* a number for each run of payload bytes: of a whole tensor its info.storage; what only
                                   * pieces view is counted on from there. Equal: the same bytes, perhaps other parts of them */
    uint64_t storage_nbytes; /* of all of it, decoded */
    uint64_t offset;         /* of the first element in the storage, in bytes */
    int64_t file_offset;     /* the same in the file; -1: compressed, or bytes within a pickle */
    ckpt_str file;           /* as in ckpt_tensor_info: data NULL for a single file */
    ckpt_str device;         /* tag as stored; data NULL where the format keeps none */
    uint32_t crc32;          /* where has_crc: zlib's, of its elements in C order, as the file keeps it */
    bool has_crc;
    bool flat;    /* a range of elements, not a box */
    bool replica; /* other pieces may be the very same box with the same bytes; one of them is read */
} ckpt_piece_info;
#define CKPT_PIECE_INFO_INIT CKPT_SIZED(ckpt_piece_info)

/* The number of pieces in which tensor i lies. As a rule it is 1: the tensor is whole. It is 0 where the tensor has no data of its own
 * (it is on meta, or not dense: its parts have the data), and where no tensor has this number. Pieces without elements do not
 * count. */
size_t ckpt_reader_piece_count(const ckpt_reader *reader, size_t i);
/* Piece number `piece`, from 0, in the order of the files. *out is begun with CKPT_PIECE_INFO_INIT. No payload is read, and it is not
 * checked that the pieces are all of the tensor. CKPT_E_ARGUMENT: no such tensor or piece, a NULL, or no initializer;
 * CKPT_E_NO_MEMORY. */
ckpt_status ckpt_reader_piece(const ckpt_reader *reader, size_t i, size_t piece, ckpt_piece_info *out, ckpt_error *err);

/* The number of files of the checkpoint. */
size_t ckpt_reader_file_count(const ckpt_reader *reader);
/* Counts the pieces of tensors in file number `file`, from 0, and the bytes of their elements. *name is the file's name below the
 * checkpoint's directory, borrowed until the reader is closed; data NULL for a single file. Pieces that have the same elements
 * (replicas) all count. Only metadata that was read when the checkpoint was opened is asked, and no record is looked into: of a file that is
 * damaged it is what the metadata says. Each place may be NULL. CKPT_E_ARGUMENT: no such file; CKPT_E_NO_MEMORY. */
ckpt_status ckpt_reader_file_holds(const ckpt_reader *reader, size_t file, ckpt_str *name, uint64_t *pieces,
                                   uint64_t *nbytes, ckpt_error *err);

/* Reads one box of a tensor, whole or in pieces, as ckpt_reader_read reads all of it: the elements from index lo[k] on, size[k] of them
 * along each dimension k, into dst, in C order. lo and size have ndim numbers (NULL where ndim is 0); n must be the bytes of the
 * box, which may be empty. Of the files no more is read than the box takes, but for what a CRC or a compressed storage asks for,
 * as ckpt_reader_read has it. Of a tensor in pieces those that have the box must be there; others may be missing.
 *   CKPT_E_ARGUMENT: the box does not lie in the tensor; another n; a NULL; of a dtype below a byte a box or a tensor whose rows
 * begin or end within a byte (a box that is all of the tensor may). CKPT_E_MISMATCH: no piece has some element of the box, or two
 * pieces that are not replicas have the same one; dst is memory of a device. CKPT_E_LIMIT: more than 64 dimensions, more pieces than can
 * be compared, or a view that repeats its storage more than a thousand times to over 16 GiB. CKPT_E_UNSUPPORTED, CKPT_E_DAMAGED,
 * CKPT_E_SYSTEM as ckpt_reader_read. */
ckpt_status ckpt_reader_read_box(const ckpt_reader *reader, size_t i, const int64_t *lo, const int64_t *size, void *dst,
                                 size_t n, ckpt_error *err);

/* The tensor's bytes where they lie: *data is the address of its first element in a read-only mapping of the file (or in
 * the reader's memory, for bytes inside a pickle), *size its nbytes. Nothing is copied or read before it is touched, and
 * no CRC is checked: verify does that. The file is mapped once for all its tensors, until the reader is closed; then the
 * address is no longer good. An empty tensor is NULL and 0.
 *   CKPT_E_UNSUPPORTED says why it cannot be mapped (compressed, big-endian, a transposed or conjugated view, not dense,
 * ...) and what to do instead, mostly ckpt_reader_read. Of a dense tensor saved by a known program the elements lie aligned:
 * at 64 bytes in files of PyTorch, at least at their size in ckpt files; other files promise nothing, nor does a view into a
 * storage, so a program that needs alignment looks at the address. If another program truncates the file meanwhile, touching
 * the lost bytes is a SIGBUS; a file replaced by a rename, as this library replaces files, stays as it was. */
ckpt_status ckpt_reader_map(const ckpt_reader *reader, size_t i, const void **data, size_t *size, ckpt_error *err);

/* zlib's crc32 over the tensor's elements in C order, little-endian, contiguous, as ckpt_reader_read gives them: equal for
 * the same tensor in any format. Streams. CRCs of the file are compared as by ckpt_reader_read: CKPT_E_DAMAGED.
 * CKPT_E_UNSUPPORTED: not dense, no data, or a view that repeats its storage more than a thousand times to over 16 GiB. */
ckpt_status ckpt_reader_crc32(const ckpt_reader *reader, size_t i, uint32_t *crc, ckpt_error *err);

CKPT_END_DECLS
#endif
