/* inspect_stats.c - numbers of each tensor's values */
#include "inspect.h"

int inspect_stats(const inspect *o)
{
    return cli_fail(&o->cli, "unsupported", "this version does not have `stats`");
}
