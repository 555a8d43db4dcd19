/* run/ranks.c - agreement between ranks, by the caller's all-reduce. */
#include "run/run.h"

#include <errno.h>

ckpt_status ckpt__reduce(ckpt_run *run, int64_t *v, size_t n, ckpt_op op, ckpt_error *err)
{
    if (run->options.ranks.world == 1)
        return CKPT_OK;
    /* After a failure the ranks may stand at different calls: another one would mix their numbers up, or wait for ever. */
    if (run->broken == CKPT_OK) {
        int rc = run->options.all_reduce(run->options.all_reduce_ctx, v, n, op);
        if (rc == 0)
            return CKPT_OK;
        run->broken = ckpt__fail(&run->broken_error, CKPT_E_SYSTEM, run->path,
                                 "the all_reduce that was given to ckpt_run_open failed on rank %lld (it returned %d): "
                                 "the ranks can no longer agree; end this run and resume it",
                                 (long long)run->options.ranks.rank, rc);
    }
    if (err)
        *err = run->broken_error;
    return run->broken;
}

bool ckpt__may_fall_back(ckpt_status status, int sys_errno)
{
    if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_NOT_FOUND)
        return true;
    return status == CKPT_E_SYSTEM &&
           (sys_errno == EIO || sys_errno == ENOENT || sys_errno == ENODATA || sys_errno == EBADMSG ||
            sys_errno == EUCLEAN || sys_errno == ESTALE || sys_errno == ENXIO || sys_errno == EREMOTEIO);
}

/* An error travels as numbers: the ranks that have none add zeros. */
enum { WORDS = (sizeof(ckpt_error) + 7) / 8 };

ckpt_status ckpt__agree(ckpt_run *run, ckpt_status status, ckpt_error *err)
{
    int64_t world = run->options.ranks.world, rank = run->options.ranks.rank;
    int64_t first = INT64_MAX, words[WORDS] = {0};
    ckpt_error own = CKPT_ERROR_INIT;
    if (world == 1)
        return status;
    if (err)
        own = *err;
    own.status = status;
    if (status < 0)
        first = rank + (ckpt__may_fall_back(status, own.sys_errno) ? world : 0);
    ckpt_status reduced = ckpt__reduce(run, &first, 1, CKPT_OP_MIN, err);
    if (reduced < 0 || first == INT64_MAX)
        return reduced;
    if (first % world == rank)
        memcpy(words, &own, sizeof own);
    if ((reduced = ckpt__reduce(run, words, WORDS, CKPT_OP_SUM, err)) < 0)
        return reduced;
    memcpy(&own, words, sizeof own);
    own.object[sizeof own.object - 1] = own.message[sizeof own.message - 1] = 0;
    if (err)
        *err = own;
    ckpt__error_prefix(err, "rank %lld", (long long)(first % world));
    return own.status < 0 ? own.status : CKPT_E_SYSTEM;
}
