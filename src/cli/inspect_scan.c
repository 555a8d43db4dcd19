/* inspect_scan.c - what would an unpickler import and call? */
#include "inspect.h"

int inspect_scan(const inspect *o)
{
    return cli_fail(&o->cli, "unsupported", "this version does not have `scan`");
}
