/* format/table.h - the list of formats, and the choice between them. It stands above the formats, which do not know it. */
#ifndef CKPT_FORMAT_TABLE_H
#define CKPT_FORMAT_TABLE_H
#include "format/format.h"

/* The one visible registration list, in order of bidding; NULL at the end. */
extern const ckpt__format *const ckpt__formats[];
const ckpt__format *ckpt__format_find(const char *name);
/* The format that an index was read as. Never NULL: where none has read it, a row without any fact. */
const ckpt__format *ckpt__format_of(const ckpt__index *index);
/* The root is a dict from a file's name to what the file holds. */
bool ckpt__in_files(const ckpt__index *index);
/* In files, and one of them holds values of its own: neither tensors, nor __metadata__ of safetensors, nor settings in JSON. */
bool ckpt__files_have_values(const ckpt__index *index);
/* A file of this name, at the top of a directory that was read as `index`, holds part of a checkpoint (ckpt__format.owns).
 * NULL: it is not read. */
bool ckpt__format_owned(const ckpt__index *index, const char *name);
/* Bids, then reads. forced NULL: told from the content. The message of a failure names what it is where it is known
 * (HDF5, a tar, TorchScript, a zip without data.pkl, ...). */
ckpt_status ckpt__format_read(const ckpt__read_request *request, const char *forced, ckpt__index **out,
                              ckpt_error *err);
/* The format that bids highest for it; *best NULL: none does. */
ckpt_status ckpt__format_choose(const ckpt__read_request *request, const ckpt__format **best, ckpt_error *err);
/* The request for what was opened: its only file, or its directory. */
ckpt__read_request ckpt__read_all(ckpt__source *source);
#endif
