/* inspect_folder.c - a directory that is no checkpoint itself: those that it holds. */
#include "inspect.h"

int inspect_folder(const inspect *o)
{
    (void)o;
    return -1;
}
