/* format/ranks.c - files of the ranks of a program that no format knows: a layout says how they are put together (src/ranks), and this row
 * what is known of the checkpoint that comes of it. */
#include "format/format.h"

static int bid(const ckpt__probe *probe)
{
    (void)probe; /* nothing in the files says it */
    return 0;
}

static ckpt_status read_ranks(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    *out = NULL;
    return ckpt__fail(
        err, CKPT_E_ARGUMENT, request->source->path,
        "a layout says how files of ranks are put together: say --layout FILE, whose 'ranks' have 'files' "
        "(ckpt-layout(5))");
}

const ckpt__format ckpt__format_ranks = {
    .name = "ranks",
    .bid = bid,
    .read = read_ranks,
    .family = CKPT__FAMILY_RANKS,
    .sharded = CKPT__SHARDED_RANKS,
    .laid_out = true,
    .own_loader = true,
    .no_python =
        "each file is one rank's part of this alone, and the program that wrote them reads them. ckpt-migrate --layout FILE --to "
        "torch makes a file of all ranks for which there is a resume in Python; in C there is one for this",
    .joins_files = true,
    .has_values = true,
};
