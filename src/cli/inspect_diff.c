/* inspect_diff.c - what differs between two checkpoints */
#include "inspect.h"

int inspect_diff(const inspect *o)
{
    return cli_fail(&o->cli, "unsupported", "this version does not have `diff`");
}
