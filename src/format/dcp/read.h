/* format/dcp/read.h - distributed checkpoints of PyTorch, for the formats whose directories have some in their folders. */
#ifndef CKPT_DCP_READ_H
#define CKPT_DCP_READ_H
#include "format/format.h"

/* The one in `folder` ("optimizer_0/") of the request's directory; "": the directory itself. The index lies in request->arena where there
 * is one. */
ckpt_status ckpt__dcp_read_folder(const ckpt__read_request *request, const char *folder, ckpt__index **out,
                                  ckpt_error *err);
/* By the names of its files: is there one in the folder ("optimizer_0") of the source's directory, finished or not? */
bool ckpt__dcp_in_folder(const ckpt__source *source, const char *folder);
/* A name that HuggingFaceStorageWriter gives to what one rank writes. */
bool ckpt__dcp_is_shard(const char *name);
#endif
