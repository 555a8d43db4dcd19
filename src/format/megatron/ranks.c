/* format/megatron/ranks.c - the files of all ranks, and whether they are of one save. */
#include "format/megatron/megatron.h"

ckpt_status ckpt__meg_read_ranks(const ckpt__read_request *request, const ckpt__meg_place *place, ckpt__index **out,
                                 ckpt_error *err)
{
    (void)place;
    *out = NULL;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, request->source->path, "not read yet");
}
