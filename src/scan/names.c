/* scan/names.c - what a name means, by the table of table.c. */
#include "scan/work.h"

enum { PARTS_MAX = 64, NAME_SIZE = 512 };

/* ---- the table */

static bool is_capital(ckpt_str name)
{
    size_t i = 0;
    while (i < name.size && name.data[i] == '_')
        i++;
    return i < name.size && name.data[i] >= 'A' && name.data[i] <= 'Z' && !memchr(name.data, '.', name.size);
}

/* How much of `module` one of the row's modules covers: all of it, or of a row for all names what it lies below. 0:
 * none. */
static size_t covers(const ckpt__scan_row *row, ckpt_str module)
{
    bool below = row->names[0] == '*' || strcmp(row->names, "A*") == 0;
    size_t most = 0;
    for (const char *p = row->modules; *p;) {
        size_t n = strcspn(p, " ");
        if (module.size >= n && memcmp(module.data, p, n) == 0 &&
            (module.size == n || (below && module.data[n] == '.')) && n > most)
            most = n;
        p += n + (p[n] == ' ');
    }
    return most;
}

/* A name that is listed goes before a rule for all names, and a longer module before a shorter one. */
static const ckpt__scan_row *find(ckpt_str module, ckpt_str name)
{
    const ckpt__scan_row *best = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < ckpt__scan_table_size; i++) {
        const ckpt__scan_row *row = &ckpt__scan_table[i];
        size_t covered = covers(row, module);
        if (!covered)
            continue;
        bool all = row->names[0] == '*', capital = strcmp(row->names, "A*") == 0;
        if (!all && !capital && ckpt__str_among(name, row->names))
            return row;
        if ((all || (capital && is_capital(name))) && covered > longest) {
            best = row;
            longest = covered;
        }
    }
    return best;
}

/* ---- what is dangerous in disguise */

static bool in_list(const char *const *list, size_t count, ckpt_str word)
{
    for (size_t i = 0; i < count; i++)
        if (ckpt__str_is(word, list[i]))
            return true;
    return false;
}

static ckpt_str part_of(ckpt_str s, size_t from)
{
    const char *dot = memchr(s.data + from, '.', s.size - from);
    return (ckpt_str){s.data + from, dot ? (size_t)(dot - s.data) - from : s.size - from};
}

/* Of os, and of _os: modules import others under such names. */
static bool is_anywhere(ckpt_str part)
{
    if (in_list(ckpt__scan_anywhere, ckpt__scan_anywhere_size, part))
        return true;
    while (part.size && part.data[0] == '_')
        part = (ckpt_str){part.data + 1, part.size - 1};
    return in_list(ckpt__scan_anywhere, ckpt__scan_anywhere_size, part);
}

/* six.moves.builtins, torch.serialization.os: a module of that name is reached through another one. The first part of
 * the module itself is what the table is for. Of a name without dots only what begins as __dict__ does reaches anything: it
 * belongs to the module. */
static bool reaches(ckpt_str module, ckpt_str name)
{
    for (size_t at = 0; at < module.size;) {
        ckpt_str part = part_of(module, at);
        if (at > 0 && is_anywhere(part))
            return true;
        at += part.size + 1;
    }
    bool dotted = memchr(name.data, '.', name.size);
    for (size_t at = 0; at < name.size;) {
        ckpt_str part = part_of(name, at);
        bool within = dotted || ckpt__str_begins_more(part, "__");
        if (is_anywhere(part) || (within && in_list(ckpt__scan_reaching, ckpt__scan_reaching_size, part)))
            return true;
        at += part.size + 1;
    }
    return false;
}

/* Parts of a dotted name that are listed as dangerous: serialization.load, of torch; Path.write_text, of pathlib. */
static const ckpt__scan_row *find_inside(ckpt_str module, ckpt_str name)
{
    char joined[NAME_SIZE];
    if (module.size + 1 + name.size > sizeof joined)
        return NULL;
    memcpy(joined, module.data, module.size);
    joined[module.size] = '.';
    memcpy(joined + module.size + 1, name.data, name.size);
    size_t size = module.size + 1 + name.size;
    for (size_t from = 0, parts = 0; from < size && parts < PARTS_MAX; parts++) {
        /* joined[from..dot) is a module, joined(dot..] its name */
        for (size_t dot = from; dot < size; dot++) {
            if (joined[dot] != '.' || (from == 0 && dot < module.size))
                continue;
            ckpt_str m = {joined + from, dot - from}, n = part_of((ckpt_str){joined, size}, dot + 1);
            const ckpt__scan_row *row = find(m, n);
            if (row && row->danger == CKPT_DANGER_DANGEROUS)
                return row;
        }
        from = from == 0 ? module.size + 1 : from + part_of((ckpt_str){joined, size}, from).size + 1;
    }
    return NULL;
}

/* "OS": no import finds it where names have a case, and where they have none it is os. */
static const ckpt__scan_row *find_other_case(ckpt_str module, ckpt_str name)
{
    char lower[NAME_SIZE];
    bool changed = false;
    if (module.size > sizeof lower)
        return NULL;
    for (size_t i = 0; i < module.size; i++) {
        bool upper = module.data[i] >= 'A' && module.data[i] <= 'Z';
        lower[i] = (char)(upper ? module.data[i] | 32 : module.data[i]);
        changed |= upper;
    }
    const ckpt__scan_row *row = changed ? find((ckpt_str){lower, module.size}, name) : NULL;
    return row && row->danger == CKPT_DANGER_DANGEROUS ? row : NULL;
}

static bool is_exception(ckpt_str module, ckpt_str name)
{
    bool builtin =
        ckpt__str_is(module, "builtins") || ckpt__str_is(module, "exceptions") || ckpt__str_is(module, "__builtin__");
    return builtin && is_capital(name) &&
           (ckpt__str_ends_more(name, "Error") || ckpt__str_ends_more(name, "Exception") ||
            ckpt__str_ends_more(name, "Warning"));
}

static ckpt_danger is(ckpt_danger danger, const char *why, const char **reason)
{
    *reason = why;
    return danger;
}

ckpt_danger ckpt__scan_judge(ckpt_str module, ckpt_str name, const char **reason)
{
    static const char unknown[] =
        "not known: neither harmless nor dangerous by the table of names; what it does is up to the "
        "program that has it";
    const ckpt_str empty = {"", 0};
    const ckpt__scan_row *row = module.data ? find(module, name.data ? name : empty) : NULL;
    if (!module.data || !name.data) {
        if (row && row->danger == CKPT_DANGER_DANGEROUS)
            return is(CKPT_DANGER_DANGEROUS, row->reason, reason);
        return is(CKPT_DANGER_UNKNOWN, "its name is computed: which global it is was not found out", reason);
    }
    bool dotted = memchr(name.data, '.', name.size);
    if (row && (row->danger == CKPT_DANGER_DANGEROUS || (ckpt__str_among(name, row->names) && row->names[0] != '*')))
        return is(row->danger, row->reason, reason);
    if (reaches(module, name))
        return is(CKPT_DANGER_DANGEROUS, "reaches a dangerous module or attribute by way of another", reason);
    const ckpt__scan_row *inside = dotted ? find_inside(module, name) : NULL;
    if (!inside)
        inside = find_other_case(module, name);
    if (inside)
        return is(CKPT_DANGER_DANGEROUS, inside->reason, reason);
    if (row && !dotted)
        return is(row->danger, row->reason, reason);
    if (is_exception(module, name))
        return is(CKPT_DANGER_HARMLESS, "an exception", reason);
    return is(CKPT_DANGER_UNKNOWN, unknown, reason);
}
