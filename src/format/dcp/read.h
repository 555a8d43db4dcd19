/* format/dcp/read.h - distributed checkpoints of PyTorch, for the formats whose directories have some in their folders. */
#ifndef CKPT_DCP_READ_H
#define CKPT_DCP_READ_H
#include "format/format.h"

/* The one in `folder` ("optimizer_0/") of the request's directory; "": the directory itself. The index lies in request->arena where there
 * is one. */
ckpt_status ckpt__dcp_read_folder(const ckpt__read_request *request, const char *folder, ckpt__index **out,
                                  ckpt_error *err);
/* The whole shape of a tensor that the list has in fragments, as megatron-core writes it. Texts and sizes lie in the arena of the
 * index that was read. */
typedef struct ckpt__dcp_whole {
    ckpt_str name;
    const int64_t *shape; /* ndim sizes, at most 64 */
    uint32_t ndim;
} ckpt__dcp_whole;
typedef struct ckpt__dcp_wholes {
    ckpt__dcp_whole *items; /* heap, owned by the caller */
    size_t count, capacity;
} ckpt__dcp_wholes;
/* ckpt__dcp_read_folder, and what the list says of whole shapes: *wholes is all zero at first. */
ckpt_status ckpt__dcp_read_wholes(const ckpt__read_request *request, const char *folder, ckpt__dcp_wholes *wholes,
                                  ckpt__index **out, ckpt_error *err);
/* By the names of its files: is there one in the folder ("optimizer_0") of the source's directory, finished or not? */
bool ckpt__dcp_in_folder(const ckpt__source *source, const char *folder);
/* A name that HuggingFaceStorageWriter gives to what one rank writes. */
bool ckpt__dcp_is_shard(const char *name);
#endif
