/* out/width.c - the columns that a character takes on a terminal: the C library's table, whatever the locale of the environment. */
#include <locale.h>
#include <wchar.h>
#include "cli/out/cli.h"

static locale_t unicode; /* made at the first use, for the whole run; 0: the C library has none */

size_t cli_char_width(uint32_t code)
{
    static bool asked;
    if (!asked)
        unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    asked = true;
    if (!unicode)
        return 1;
    locale_t before = uselocale(unicode);
    int columns = wcwidth((wchar_t)code);
    uselocale(before);
    return columns < 0 ? 1 : (size_t)columns;
}

void cli_width_free(void)
{
    if (unicode)
        freelocale(unicode);
    unicode = (locale_t)0;
}
